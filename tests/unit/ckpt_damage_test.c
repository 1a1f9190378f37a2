/* Promise 2: damage of any stored byte is found, named, and never becomes a wrong byte; an older step serves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "ckpt/log.h"
#include "ckpt/slot.h"
#include "kit/ckpt_kit.h"

struct place {
    struct storesim *sim;
    struct store *store;
    struct ckpt_config config;
};

/* Steps 1..count, all durable, nothing open but the store. */
static int place_with(void **state, uint32_t count) {
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->sim = storesim_new(5);
    p->config = kit_config(1, 0, 1, count);
    assert_int_equal(storesim_open(p->sim, "r0", false, &p->store, NULL), PAWL_OK);
    struct ckpt *c = NULL;
    assert_int_equal(ckpt_open(&p->config, p->store, &c, NULL), PAWL_OK);
    for (uint64_t step = 1; step <= count; step++) {
        struct kit_part *part = kit_part_new(step, 0, 1);
        struct ckpt_save save = kit_save(part, step, 0, 1);
        assert_int_equal(ckpt_save_begin(c, &save, NULL), PAWL_OK);
        assert_int_equal(kit_wait(c, p->store).code, PAWL_OK);
        ckpt_durable(c, step);
        kit_part_free(part);
    }
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    *state = p;
    return 0;
}
static int two_steps(void **state) { return place_with(state, 2); }
static int five_steps(void **state) { return place_with(state, 5); }

static int place_end(void **state) {
    struct place *p = *state;
    store_close(p->store);
    storesim_free(p->sim);
    free(p);
    return 0;
}

/* Which step reads back whole, and is the damage told anywhere? */
static uint64_t look(struct place *p, bool *told) {
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    pawl_code code = ckpt_set_open(&p->store, 1, p->config.run_id, &set, &e);
    *told = true;
    if (code != PAWL_OK) return 0;
    uint64_t newest = 0;
    *told = false;
    for (uint32_t i = 0; i < ckpt_set_count(set) && newest == 0; i++) {
        if (!ckpt_set_at(set, i)->complete) continue;
        code = kit_check_step(set, i, &e);
        if (code == PAWL_OK) newest = ckpt_set_at(set, i)->step;
        if (code != PAWL_OK) *told = code == PAWL_CORRUPT && strstr(e.text, "slot-") != NULL;
        if (code != PAWL_OK) assert_int_not_equal(ckpt_set_verify(set, i, NULL), PAWL_OK);
    }
    if (ckpt_set_problem(set, 0) != NULL) *told = true;
    ckpt_set_close(set);
    return newest;
}

static void expect_after_flip(struct place *p, const char *name, uint64_t byte, uint64_t step) {
    bool told = false;
    uint8_t mask = (uint8_t)(1u << (byte % 8));
    storesim_flip(p->sim, "r0", name, byte, mask);
    uint64_t newest = look(p, &told);
    storesim_flip(p->sim, "r0", name, byte, mask);
    if (newest != step || !told)
        fail_msg("%s, byte %" PRIu64 ": step %" PRIu64 " was read, wanted %" PRIu64 ", told: %d", name, byte,
                 newest, step, told);
}

static uint64_t size_of(struct place *p, const char *name) {
    struct store_file *f = NULL;
    uint64_t bytes = 0;
    assert_int_equal(store_file_open(p->store, name, false, 0, &f, NULL), PAWL_OK);
    assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
    store_file_close(f);
    return bytes;
}

static void a_flip_anywhere_in_a_slot_is_found_and_the_older_step_serves(void **state) {
    struct place *p = *state;
    const char *name = "slot-000001.safetensors";
    uint64_t bytes = size_of(p, name);
    for (uint64_t byte = 0; byte < bytes; byte += byte < STORE_BLOCK ? 3 : 97)
        expect_after_flip(p, name, byte, 1);
    expect_after_flip(p, name, bytes - 1, 1);
}

static void a_flip_anywhere_in_the_newest_record_is_found(void **state) {
    struct place *p = *state;
    /* Record 1 is the empty one, 2 names step 1 (region 1), 3 names both (region 0). */
    for (uint64_t byte = 0; byte < STORE_BLOCK; byte += 3) expect_after_flip(p, "commit-000001.log", byte, 1);
    for (uint64_t byte = 0; byte < STORE_BLOCK; byte += 61)
        expect_after_flip(p, "commit-000001.log", RECORD_REGION_BYTES + byte, 2);
}

static void a_flip_in_the_identity_is_told(void **state) {
    struct place *p = *state;
    uint64_t bytes = size_of(p, LOG_IDENTITY_NAME);
    for (uint64_t byte = 0; byte < bytes; byte++) {
        bool told = false;
        storesim_flip(p->sim, "r0", LOG_IDENTITY_NAME, byte, 4);
        (void)look(p, &told);
        struct ckpt *c = NULL;
        struct pawl_error e = {0};
        assert_int_not_equal(ckpt_open(&p->config, p->store, &c, &e), PAWL_OK);
        storesim_flip(p->sim, "r0", LOG_IDENTITY_NAME, byte, 4);
        assert_true(told);
    }
}

static void a_slot_of_another_length_is_refused_naming_both(void **state) {
    struct place *p = *state;
    const char *name = "slot-000001.safetensors";
    uint64_t bytes = size_of(p, name);
    const uint64_t cuts[] = {bytes - 1, bytes - STORE_BLOCK, bytes / 2, 100, 0, bytes + STORE_BLOCK};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(p->store, name, false, 0, &f, NULL), PAWL_OK);
        if (cuts[i] > bytes) {
            store_file_close(f);
            assert_int_equal(store_file_open(p->store, name, false, cuts[i], &f, NULL), PAWL_OK);
        } else {
            assert_int_equal(store_file_truncate(f, cuts[i], NULL), PAWL_OK);
        }
        store_file_close(f);
        struct ckpt_set *set = NULL;
        assert_int_equal(ckpt_set_open(&p->store, 1, NULL, &set, NULL), PAWL_OK);
        char had[32], wanted[32];
        snprintf(had, sizeof had, "%" PRIu64 " bytes long", cuts[i]);
        snprintf(wanted, sizeof wanted, "says %" PRIu64, bytes);
        const char *problem = ckpt_set_problem(set, 0);
        assert_non_null(problem);
        if (strstr(problem, had) == NULL || strstr(problem, wanted) == NULL || strstr(problem, name) == NULL)
            fail_msg("%s", problem);
        ckpt_set_close(set);
        bool told = false;
        assert_int_equal(look(p, &told), 1);
    }
}

static void a_missing_slot_is_a_problem_and_not_an_error(void **state) {
    struct place *p = *state;
    assert_int_equal(store_remove(p->store, "slot-000001.safetensors", NULL), PAWL_OK);
    bool told = false;
    assert_int_equal(look(p, &told), 1);
    assert_true(told);
}

static void the_newest_two_of_five_damaged_the_third_serves(void **state) {
    struct place *p = *state;
    storesim_flip(p->sim, "r0", "slot-000004.safetensors", 5000, 1);
    storesim_flip(p->sim, "r0", "slot-000003.safetensors", 100, 1);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&p->store, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 4); /* one has no valid header */
    assert_int_equal(ckpt_set_at(set, 0)->step, 5);
    struct pawl_error e = {0};
    assert_int_equal(ckpt_set_verify(set, 0, &e), PAWL_CORRUPT);
    if (strstr(e.text, "slot-000004.safetensors") == NULL || strstr(e.text, "chunk 0") == NULL)
        fail_msg("%s", e.text);
    assert_int_equal(ckpt_set_at(set, 1)->step, 3);
    assert_int_equal(ckpt_set_verify(set, 1, &e), PAWL_OK);
    ckpt_set_close(set);
    assert_int_equal(kit_newest(&p->store, 1, NULL), 3);
}

/* The same part in two stores: damage in one is told, and the other serves. */
static void a_damaged_part_is_replaced_by_its_copy(void **state) {
    struct place *p = *state;
    struct place *copy = NULL;
    void *other = NULL;
    place_with(&other, 2);
    copy = other;
    struct store *stores[2] = {p->store, copy->store};
    for (int damaged = 0; damaged < 3; damaged++) { /* one, the other, both */
        if (damaged != 1) storesim_flip(p->sim, "r0", "slot-000001.safetensors", 9000, 1);
        if (damaged != 0) storesim_flip(copy->sim, "r0", "slot-000001.safetensors", 9000, 1);
        struct ckpt_set *set = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ckpt_set_open(stores, 2, NULL, &set, NULL), PAWL_OK);
        assert_int_equal(ckpt_set_count(set), 2);
        assert_int_equal(kit_check_step(set, 0, &e), damaged == 2 ? PAWL_CORRUPT : PAWL_OK);
        assert_int_equal(ckpt_set_problem(set, 0) != NULL,
                         damaged != 1); /* the second is asked only if need be */
        assert_int_equal(ckpt_set_verify(set, 0, &e), PAWL_CORRUPT);
        ckpt_set_close(set);
        if (damaged != 1) storesim_flip(p->sim, "r0", "slot-000001.safetensors", 9000, 1);
        if (damaged != 0) storesim_flip(copy->sim, "r0", "slot-000001.safetensors", 9000, 1);
    }
    place_end(&other);
}

static void without_a_valid_record_nothing_is_opened_for_saving_or_changed(void **state) {
    struct place *p = *state;
    storesim_flip(p->sim, "r0", "commit-000001.log", 20, 1);
    storesim_flip(p->sim, "r0", "commit-000001.log", RECORD_REGION_BYTES + 20, 1);
    uint64_t ops = storesim_ops(p->sim);
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ckpt_open(&p->config, p->store, &c, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "nothing was changed"));
    assert_int_equal(store_remove(p->store, "commit-000001.log", NULL), PAWL_OK);
    assert_int_equal(ckpt_open(&p->config, p->store, &c, &e), PAWL_CORRUPT);
    assert_int_equal(storesim_ops(p->sim), ops + 1);
    bool told = false;
    assert_int_equal(look(p, &told), 0);
    assert_true(told); /* slots without a log are named, an empty folder is not */
}

static void a_newer_version_is_told_apart_from_damage(void **state) {
    struct place *p = *state;
    struct record *r = calloc(1, sizeof *r);
    struct bytes image = {0};
    r->counter = 9;
    memcpy(r->run_id, p->config.run_id, sizeof r->run_id);
    record_encode(r, &image);
    image.data[8] = 2; /* version */
    hash128(image.data, image.size - RECORD_SUM_BYTES, image.data + image.size - RECORD_SUM_BYTES);
    struct pawl_error e = {0};
    assert_int_equal(record_decode(image.data, image.size, r, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, "version 2"));
    assert_int_equal(store_put(p->store, "commit-000002.log", image.data, image.size, NULL), PAWL_OK);
    struct ckpt *c = NULL;
    assert_int_equal(ckpt_open(&p->config, p->store, &c, &e), PAWL_FORMAT);
    bytes_close(&image);
    free(r);
}

/* A folder put together from two runs: the identity is one's, the log the other's. */
static void a_log_of_another_run_is_refused_and_not_changed(void **state) {
    struct place *p = *state;
    struct record *r = calloc(1, sizeof *r);
    struct bytes image = {0};
    assert_non_null(r);
    r->counter = 99; /* the newest by far */
    memcpy(r->run_id, p->config.run_id, sizeof r->run_id);
    r->run_id[3] ^= 1;
    log_image(r, &image);
    assert_int_equal(store_put(p->store, "commit-000002.log", image.data, image.size, NULL), PAWL_OK);
    uint64_t ops = storesim_ops(p->sim);
    struct ckpt *c = NULL;
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    assert_string_equal(pawl_code_name(ckpt_open(&p->config, p->store, &c, &e)), "FOREIGN");
    assert_string_equal(pawl_code_name(ckpt_set_open(&p->store, 1, NULL, &set, &e)), "FOREIGN");
    assert_int_equal(storesim_ops(p->sim), ops);
    bytes_close(&image);
    free(r);
}

static void misstate(struct record_entry *t, int field) {
    if (field == 0) t->step = 3;
    if (field == 1) t->incarnation++;
    if (field == 2) t->unit = 1, t->unit_count = 2;
    if (field == 3) t->unit_count = 2;
    if (field == 4) t->part = 1, t->part_count = 2;
    if (field == 5) t->part_count = 2;
}

/* Each is valid by itself, checksums and all; only together they are wrong. */
static void a_header_that_is_not_the_one_its_record_means_does_not_count(void **state) {
    struct place *p = *state;
    struct log_found *found = malloc(sizeof *found);
    struct pawl_error e = {0};
    assert_non_null(found);
    if (log_scan(p->store, found, &e) != PAWL_OK) fail_msg("%s", e.text);
    struct record sound = found->newest;
    assert_int_equal(sound.entry_count, 2);
    sound.counter++;
    for (int field = 0; field <= 6; field++) { /* the last time nothing is misstated */
        struct record *r = &found->newest;
        struct bytes image = {0};
        struct ckpt_set *set = NULL;
        *r = sound;
        for (uint32_t i = 0; i < 2; i++)
            if (r->entries[i].step == 2) misstate(&r->entries[i], field);
        log_image(r, &image);
        assert_int_equal(store_put(p->store, "commit-000002.log", image.data, image.size, NULL), PAWL_OK);
        bytes_close(&image);
        if (ckpt_set_open(&p->store, 1, NULL, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
        const char *problem = ckpt_set_problem(set, 0);
        assert_int_equal(ckpt_set_count(set), field < 6 ? 1 : 2);
        assert_int_equal(ckpt_set_at(set, 0)->step, field < 6 ? 1 : 2);
        if ((problem != NULL) != (field < 6)) fail_msg("field %d: %s", field, problem ? problem : "not told");
        if (problem != NULL && strstr(problem, "different saves") == NULL) fail_msg("%s", problem);
        ckpt_set_close(set);
    }
    free(found);
}

/* ---- the header by itself ---- */

static struct bytes header_of(struct place *p, uint64_t *file_bytes) {
    uint8_t *data = NULL;
    size_t size = 0;
    struct bytes out = {0};
    assert_int_equal(store_get(p->store, "slot-000001.safetensors", &data, &size, NULL), PAWL_OK);
    bytes_put(&out, data, st_header_size(data));
    bytes_put_u8(&out, 0); /* so that it can be searched as text */
    out.size--;
    *file_bytes = size;
    free(data);
    return out;
}

static void every_missing_field_is_a_refusal_that_names_it(void **state) {
    static const char *const keys[] = {"pawl.format", "pawl.run",   "pawl.incarnation", "pawl.step",
                                       "pawl.unit",   "pawl.units", "pawl.part",        "pawl.parts",
                                       "pawl.chunks", "pawl.sums",  "pawl.slices",      "pawl.blob"};
    uint64_t file_bytes = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct bytes text = header_of(*state, &file_bytes);
        char quoted[32];
        snprintf(quoted, sizeof quoted, "\"%s\"", keys[i]);
        char *at = strstr((char *)text.data + 8, quoted);
        assert_non_null(at);
        at[1] = 'x';
        struct slot_info info;
        struct pawl_error e = {0};
        assert_int_equal(slot_parse(text.data, text.size, file_bytes, &info, &e), PAWL_FORMAT);
        if (strstr(e.text, keys[i]) == NULL) fail_msg("%s", e.text);
        bytes_close(&text);
    }
}

/* `from` and `to` have the same length. */
static void expect_refusal(struct place *p, const char *from, const char *to, const char *named) {
    uint64_t file_bytes = 0;
    struct bytes text = header_of(p, &file_bytes);
    char *at = strstr((char *)text.data + 8, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    struct slot_info info;
    struct pawl_error e = {0};
    assert_int_equal(slot_parse(text.data, text.size, file_bytes, &info, &e), PAWL_FORMAT);
    if (strstr(e.text, named) == NULL) fail_msg("'%s' does not name %s", e.text, named);
    bytes_close(&text);
}

static void fields_that_contradict_each_other_are_refused(void **state) {
    expect_refusal(*state, "\"pawl.format\":\"1\"", "\"pawl.format\":\"2\"", "this program reads 1");
    expect_refusal(*state, "\"pawl.unit\":\"0\"", "\"pawl.unit\":\"1\"", "pawl.unit");
    expect_refusal(*state, "\"pawl.part\":\"0\"", "\"pawl.part\":\"9\"", "pawl.part");
    expect_refusal(*state, "\"pawl.step\":\"2\"", "\"pawl.step\":\"x\"", "pawl.step");
    expect_refusal(*state, "3*8192,1*4096", "3*8192,1*8192", "pawl.chunks");
    expect_refusal(*state, "3*8192,1*4096", "3*8192,1*4095", "pawl.chunks");
    expect_refusal(*state, "3*8192,1*4096", "1*8192,5*4096", "pawl.sums");
    expect_refusal(*state, "3*8192,1*4096", "0*8192,7*4096", "pawl.chunks");
}

/* A header made by hand, with `metadata` behind the usual keys and `tensors` after it. */
static pawl_code parse_by_hand(const char *metadata, const char *tensors, uint64_t data_bytes,
                               struct pawl_error *e) {
    struct bytes text = {0};
    struct slot_info info;
    bytes_put_u64(&text, 0);
    bytes_printf(&text,
                 "{\"__metadata__\":{\"pawl.format\":\"1\",\"pawl.run\":\"%032d\",\"pawl.incarnation\":\"1\","
                 "\"pawl.step\":\"1\",\"pawl.unit\":\"0\",\"pawl.units\":\"1\",\"pawl.part\":\"0\","
                 "\"pawl.parts\":\"1\",\"pawl.blob\":\"\"%s}%s}",
                 0, metadata, tensors);
    bytes_pad(&text, STORE_BLOCK, ' ');
    for (int i = 0; i < 8; i++) text.data[i] = (uint8_t)((text.size - 8) >> (8 * i));
    pawl_code code = slot_parse(text.data, text.size, text.size + data_bytes, &info, e);
    if (code == PAWL_OK) slot_info_close(&info);
    bytes_close(&text);
    return code;
}

#define SUM "0123456789abcdef0123456789abcdef"

static void without_checksums_is_said_in_one_way_only(void **state) {
    (void)state;
    static const char tensor[] = ",\"t\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]}";
    static const struct {
        const char *metadata, *named; /* null: good */
    } cases[] = {
        {",\"pawl.sums\":\"" SUM "\"", NULL},
        {",\"pawl.checksum\":\"none\"", NULL},
        {"", "'pawl.sums' is missing"},
        {",\"pawl.checksum\":\"none\",\"pawl.sums\":\"" SUM "\"", "'pawl.sums': wanted none beside"},
        {",\"pawl.checksum\":\"none\",\"pawl.sums\":\"\"", "'pawl.sums': wanted none beside"},
        {",\"pawl.checksum\":\"xxh3\",\"pawl.sums\":\"" SUM "\"", "'pawl.checksum': wanted 'none'"},
        {",\"pawl.checksum\":\"\"", "'pawl.checksum': wanted 'none'"},
        {",\"pawl.sums\":\"\"", "'pawl.sums': wanted one checksum per chunk"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char metadata[300];
        struct pawl_error e = {0};
        snprintf(metadata, sizeof metadata, ",\"pawl.chunks\":\"1*4096\",\"pawl.slices\":\"\"%s",
                 cases[i].metadata);
        pawl_code code = parse_by_hand(metadata, tensor, 4096, &e);
        assert_int_equal(code, cases[i].named == NULL ? PAWL_OK : PAWL_FORMAT);
        if (cases[i].named != NULL && strstr(e.text, cases[i].named) == NULL) fail_msg("%s", e.text);
    }
}

static void slices_that_do_not_fit_their_tensors_are_refused(void **state) {
    (void)state;
    static const char tensors[] = ",\"t@8\":{\"dtype\":\"U8\",\"shape\":[16,128],\"data_offsets\":[0,2048]},"
                                  "\"q\":{\"dtype\":\"F4\",\"shape\":[2,2044],\"data_offsets\":[2048,4092]},"
                                  "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4092,4096]}";
    static const char *const good[] = {"",
                                       "0 8 64\\n",
                                       "0 8 64 @\\n",
                                       "0 8,0 64,128 @\\n1 1,2 5,2048\\n",
                                       "0 48,7 64,135\\n",
                                       "1 0,2 2,2046\\n"},
                             *const bad[] = {"0 8 23\\n", /* rows end behind the end */
                                             "0 49,0 64,128\\n",
                                             "0 0,8 64,128\\n",
                                             "0 8,0 64\\n", /* as many begins as sizes */
                                             "0 8 64,128\\n",
                                             "0 8,0,0 64,128,1\\n",
                                             "0 8, 64,\\n",
                                             "0 8 64 @",
                                             "0 8 64 x\\n",
                                             "0 8 64\\n0 8 64\\n", /* twice */
                                             "1 0 4 @\\n",         /* no @ in its name */
                                             "2 0 2\\n",           /* a scalar */
                                             "3 0 2\\n",           /* there is none */
                                             "0 8 18446744073709551615,18446744073709551615\\n",
                                             "0 18446744073709551615,0 18446744073709551615,128\\n",
                                             "1 0,1 2,2046\\n"}; /* cuts a byte */
    char metadata[300];
    for (size_t i = 0; i < sizeof good / sizeof good[0] + sizeof bad / sizeof bad[0]; i++) {
        bool is_good = i < sizeof good / sizeof good[0];
        const char *slices = is_good ? good[i] : bad[i - sizeof good / sizeof good[0]];
        struct pawl_error e = {0};
        snprintf(metadata, sizeof metadata,
                 ",\"pawl.chunks\":\"1*4096\",\"pawl.sums\":\"" SUM "\",\"pawl.slices\":\"%s\"", slices);
        pawl_code code = parse_by_hand(metadata, tensors, 4096, &e);
        if (code != (is_good ? PAWL_OK : PAWL_FORMAT)) fail_msg("'%s': %s", slices, e.text);
        if (!is_good && strstr(e.text, "'pawl.slices'") == NULL) fail_msg("'%s': %s", slices, e.text);
    }
}

/* Bytes of tensors, of filler, of the header's text and its padding, of both length and record: wherever a
 * bit turns in a part of a step of boxes, the step is not read as if nothing were, and the other one is. */
static void a_flip_in_any_file_of_several_ranks_is_found_and_the_older_step_serves(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(5);
    struct store *stores[3];
    static const char *const folders[] = {"r0", "r1", "r2"};
    for (uint32_t part = 0; part < 3; part++) {
        struct ckpt_config config = kit_config(1, 0, 1, 2);
        struct ckpt *c = NULL;
        assert_int_equal(storesim_open(sim, folders[part], false, &stores[part], NULL), PAWL_OK);
        assert_int_equal(ckpt_open(&config, stores[part], &c, NULL), PAWL_OK);
        for (uint64_t step = 1; step <= 2; step++) {
            struct kit_part *p = kit_part_new(step, part, 3);
            struct ckpt_save save = kit_save(p, step, part, 3);
            assert_int_equal(ckpt_save_begin(c, &save, NULL), PAWL_OK);
            assert_int_equal(kit_wait(c, stores[part]).code, PAWL_OK);
            ckpt_durable(c, step);
            kit_part_free(p);
        }
        assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    }
    assert_int_equal(kit_newest(stores, 3, NULL), 2);
    for (uint32_t part = 0; part < 3; part++) {
        struct store_file *f = NULL;
        uint64_t bytes = 0;
        assert_int_equal(store_file_open(stores[part], "slot-000001.safetensors", false, 0, &f, NULL),
                         PAWL_OK);
        assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
        store_file_close(f);
        for (uint64_t byte = part; byte < bytes; byte += byte < STORE_BLOCK ? 31 : 157) {
            storesim_flip(sim, folders[part], "slot-000001.safetensors", byte, 0x20);
            struct ckpt_set *set = NULL;
            assert_int_equal(ckpt_set_open(stores, 3, NULL, &set, NULL), PAWL_OK);
            assert_true(!ckpt_set_at(set, 0)->complete || ckpt_set_verify(set, 0, NULL) == PAWL_CORRUPT);
            ckpt_set_close(set);
            uint64_t newest = kit_newest(stores, 3, NULL); /* filler may be damaged without any harm */
            if (newest != 1 && byte < STORE_BLOCK) fail_msg("part %u, byte %" PRIu64, part, byte);
            assert_in_range(newest, 1, 2);
            storesim_flip(sim, folders[part], "slot-000001.safetensors", byte, 0x20);
        }
    }
    assert_int_equal(kit_newest(stores, 3, NULL), 2);
    for (uint32_t part = 0; part < 3; part++) store_close(stores[part]);
    storesim_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_flip_anywhere_in_a_slot_is_found_and_the_older_step_serves,
                                        two_steps, place_end),
        cmocka_unit_test_setup_teardown(a_flip_anywhere_in_the_newest_record_is_found, two_steps, place_end),
        cmocka_unit_test_setup_teardown(a_flip_in_the_identity_is_told, two_steps, place_end),
        cmocka_unit_test_setup_teardown(a_slot_of_another_length_is_refused_naming_both, two_steps,
                                        place_end),
        cmocka_unit_test_setup_teardown(a_missing_slot_is_a_problem_and_not_an_error, two_steps, place_end),
        cmocka_unit_test_setup_teardown(the_newest_two_of_five_damaged_the_third_serves, five_steps,
                                        place_end),
        cmocka_unit_test_setup_teardown(a_damaged_part_is_replaced_by_its_copy, two_steps, place_end),
        cmocka_unit_test_setup_teardown(without_a_valid_record_nothing_is_opened_for_saving_or_changed,
                                        two_steps, place_end),
        cmocka_unit_test_setup_teardown(a_newer_version_is_told_apart_from_damage, two_steps, place_end),
        cmocka_unit_test_setup_teardown(a_log_of_another_run_is_refused_and_not_changed, two_steps,
                                        place_end),
        cmocka_unit_test_setup_teardown(a_header_that_is_not_the_one_its_record_means_does_not_count,
                                        two_steps, place_end),
        cmocka_unit_test_setup_teardown(every_missing_field_is_a_refusal_that_names_it, two_steps, place_end),
        cmocka_unit_test_setup_teardown(fields_that_contradict_each_other_are_refused, two_steps, place_end),
        cmocka_unit_test(without_checksums_is_said_in_one_way_only),
        cmocka_unit_test(slices_that_do_not_fit_their_tensors_are_refused),
        cmocka_unit_test(a_flip_in_any_file_of_several_ranks_is_found_and_the_older_step_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
