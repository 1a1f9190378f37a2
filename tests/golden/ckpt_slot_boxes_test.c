/* Stores with boxes, every element type and without checksums must load for ever as they were first written:
 * tests/golden/ckpt_slot_boxes holds two ranks' parts of step 1, tests/golden/ckpt_slot_unchecked one rank's.
 * PAWL_GOLDEN_WRITE=FOLDER writes such stores anew, for a next version beside these, never in their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>

#include "kit/box_kit.h"

/* The types at the time of writing, by name: numbers are free to be others one day, names are not. */
static const char *const dtypes[] = {"BOOL",    "U8",          "I8",          "F8_E5M2", "F8_E4M3", "I16",
                                     "U16",     "F16",         "BF16",        "I32",     "U32",     "F32",
                                     "F64",     "I64",         "U64",         "F8_E8M0", "F4",      "F6_E2M3",
                                     "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"};
#define DTYPES ((uint32_t)(sizeof dtypes / sizeof dtypes[0]))

static enum pawl_dtype dtype_of(const char *name) {
    uint32_t i = 0;
    while (i < PAWL_DTYPE_COUNT && strcmp(pawl_dtype_name((enum pawl_dtype)i), name) != 0) i++;
    assert_int_not_equal(i, PAWL_DTYPE_COUNT);
    return (enum pawl_dtype)i;
}

/* Tensor i is of type i, 4 x 3 x 8; one more, a scalar, is whole in part 0. */
static struct global global_of(uint32_t i) {
    struct global g = {.dtype = i < DTYPES ? dtype_of(dtypes[i]) : PAWL_F64, .rank = i < DTYPES ? 3 : 0};
    uint64_t shape[3] = {4, 3, 8};
    snprintf(g.name, sizeof g.name, "%.12s", i < DTYPES ? dtypes[i] : "scalar");
    memcpy(g.shape, shape, sizeof shape);
    g.bytes = (i < DTYPES ? 96u : 1u) * pawl_dtype_bits(g.dtype) / 8;
    g.data = malloc(g.bytes);
    assert_non_null(g.data);
    kit_fill(g.data, 1, i, 0, g.bytes);
    return g;
}

/* Part 0: columns 0 to 3 of each tensor, and row 0 of columns 4 to 7, a second box of it; part 1: the rest.
 */
static const uint64_t begins[3][3] = {{0, 0, 0}, {0, 0, 4}, {1, 0, 4}};
static const uint64_t extents[3][3] = {{4, 3, 4}, {1, 3, 4}, {3, 3, 4}};

static void save_part(struct store *s, uint32_t part, uint32_t parts, bool unchecked) {
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct pawl_tensor tensors[3 * DTYPES + 1];
    struct global globals[DTYPES + 1];
    uint32_t count = 0;
    config.unchecked = unchecked;
    for (uint32_t i = 0; i <= DTYPES; i++) {
        struct global *g = &globals[i];
        *g = global_of(i);
        for (uint32_t box = 0; box < 3 && i < DTYPES; box++) {
            if (parts > 1 && box / 2 != part) continue;
            uint8_t *data = malloc(box_bytes(g, extents[box]));
            assert_non_null(data);
            box_take(g, begins[box], extents[box], data);
            tensors[count++] = tensor_of(g, begins[box], extents[box], data);
        }
        if (i == DTYPES && part == 0) tensors[count++] = tensor_of(g, NULL, NULL, g->data);
    }
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    struct ckpt_save save = {.step = 1,
                             .unit_count = 1,
                             .part = part,
                             .part_count = parts,
                             .tensors = tensors,
                             .tensor_count = count,
                             .blob = "\x01\x00\xff", /* no text */
                             .blob_bytes = 3};
    if (ckpt_open(&config, s, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_save_begin(c, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    for (uint32_t i = 0; i < count; i++)
        if (tensors[i].rank > 0) free(tensors[i].data);
    for (uint32_t i = 0; i <= DTYPES; i++) free(globals[i].data);
}

static void open_all(const char *folder, bool read_only, struct store **stores, uint32_t count) {
    for (uint32_t p = 0; p < count; p++) {
        char path[600];
        struct pawl_error e = {0};
        snprintf(path, sizeof path, "%s/r%u", folder, p);
        if (store_open(path, STORE_AUTO, read_only, &stores[p], NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    }
}

static void check_all(const char *folder, uint32_t count, bool unchecked) {
    struct store *stores[2];
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    open_all(folder, true, stores, count);
    struct ckpt_set_options options = {.unchecked = unchecked};
    if (ckpt_set_open_with(stores, count, &options, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_null(ckpt_set_problem(set, 0));
    assert_true(ckpt_set_at(set, 0)->complete);
    assert_int_equal(ckpt_set_tensor_count(set, 0), DTYPES + 1);
    assert_int_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    for (uint32_t i = 0; i <= DTYPES; i++) {
        struct global g = global_of(i);
        uint8_t out[768];
        struct pawl_tensor want = tensor_of(&g, NULL, NULL, out);
        if (ckpt_set_read(set, 0, &want, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_memory_equal(out, g.data, g.bytes);
        free(g.data);
    }
    const void *blob = NULL;
    size_t bytes = 0;
    assert_int_equal(ckpt_set_blob(set, 0, 0, &blob, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(blob, "\x01\x00\xff", 3);
    ckpt_set_close(set);
    for (uint32_t p = 0; p < count; p++) store_close(stores[p]);
}

static void stores_with_boxes_of_every_type_load(void **state) {
    (void)state;
    check_all(PAWL_SOURCE_DIR "/tests/golden/ckpt_slot_boxes", 2, false);
}

static void stores_without_checksums_load_when_asked_to_and_only_then(void **state) {
    (void)state;
    check_all(PAWL_SOURCE_DIR "/tests/golden/ckpt_slot_unchecked", 1, true);
    struct store *s;
    struct ckpt_set *set = NULL;
    open_all(PAWL_SOURCE_DIR "/tests/golden/ckpt_slot_unchecked", true, &s, 1);
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 0);
    assert_non_null(strstr(ckpt_set_problem(set, 0), "'unchecked'"));
    ckpt_set_close(set);
    store_close(s);
}

static void write_all(const char *folder) {
    struct store *stores[2];
    char path[600];
    snprintf(path, sizeof path, "%s/ckpt_slot_boxes", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    open_all(path, false, stores, 2);
    for (uint32_t p = 0; p < 2; p++) save_part(stores[p], p, 2, false);
    for (uint32_t p = 0; p < 2; p++) store_close(stores[p]);
    snprintf(path, sizeof path, "%s/ckpt_slot_unchecked", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    open_all(path, false, stores, 1);
    save_part(stores[0], 0, 1, true);
    store_close(stores[0]);
}

int main(void) {
    const char *folder = getenv("PAWL_GOLDEN_WRITE");
    if (folder != NULL) {
        write_all(folder);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_with_boxes_of_every_type_load),
        cmocka_unit_test(stores_without_checksums_load_when_asked_to_and_only_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
