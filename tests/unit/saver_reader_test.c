/* What include/pawl/ckpt.h promises of reading without writing: any folder, any cut, only the bytes asked
 * for, a thousand ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include "ckpt/ckpt.h"
#include "kit/saver_kit.h"

/* Saves `step` by `count` ranks that hold rows, or columns, of one state. */
static void run_of(const char *path, const char *start, uint32_t count, uint32_t along, uint64_t step) {
    struct skit_rank ranks[8];
    uint64_t ids[8];
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_ckpt_options o = {
            .path = path, .start = start, .rank = i, .rank_count = count, .keep = 3, .chunk_bytes = 4096};
        uint64_t resumed = 0;
        ranks[i] = skit_open(&o, skit_state_new(i, count, along));
        SKIT_MUST(pawl_ckpt_resume(ranks[i].c, ranks[i].state, &resumed, e));
    }
    for (uint32_t i = 0; i < count; i++) {
        char blob[32];
        int n = snprintf(blob, sizeof blob, "blob of %u", i);
        skit_fill(ranks[i].memory, step);
        struct pawl_ckpt_save save = {.state = ranks[i].state,
                                      .step = step,
                                      .unit = i,
                                      .unit_count = count,
                                      .blob = blob,
                                      .blob_bytes = (size_t)n};
        SKIT_MUST(pawl_ckpt_save(ranks[i].c, &save, &ids[i], e));
    }
    for (uint32_t i = 0; i < count; i++) skit_wait(&ranks[i], ids[i], PAWL_CKPT_UNTIL_DURABLE);
    for (uint32_t i = 0; i < count; i++) skit_close(&ranks[i]);
}

static struct pawl_ckpt_reader *open_reader(const char *path) {
    struct pawl_ckpt_reader *r = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &r, e));
    return r;
}

static void run_folder_store_folder_and_one_store_can_be_read(void **unused) {
    (void)unused;
    char *path = skit_folder(), sub[512];
    run_of(path, "a", 3, 0, 7);
    static const char *const below[] = {"", "store", "store/", "store/rank-0001"};
    for (size_t i = 0; i < 4; i++) {
        skit_join(sub, sizeof sub, path, below[i]);
        struct pawl_ckpt_reader *r = open_reader(sub);
        assert_int_equal(pawl_ckpt_reader_step_count(r), 1);
        struct pawl_ckpt_step s = pawl_ckpt_reader_step(r, 0);
        assert_int_equal(s.step, 7);
        assert_int_equal(s.unit_count, 3);
        assert_int_equal(s.complete, i < 3);
        assert_int_equal(pawl_ckpt_reader_newest(r), i < 3 ? 0 : UINT32_MAX);
        if (i == 3) assert_non_null(strstr(s.missing, "unit 0"));
        if (i < 3) assert_int_equal(pawl_ckpt_reader_tensor_count(r, 0), SKIT_TENSORS); /* each name once */
        assert_null(pawl_ckpt_reader_problem(r, 0));
        pawl_ckpt_reader_close(r);
    }
    struct pawl_ckpt_reader *none = NULL;
    struct pawl_error why = {0};
    skit_join(sub, sizeof sub, path, "bad-name");
    assert_int_equal(pawl_ckpt_reader_open(sub, NULL, &none, &why), PAWL_NOT_FOUND);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(pawl_ckpt_reader_open(sub, NULL, &none, &why), PAWL_NOT_FOUND);
    struct pawl_ckpt_reader_options prefer = {.prefer = "rank-0009"};
    assert_int_equal(pawl_ckpt_reader_open(path, &prefer, &none, &why), PAWL_ARGUMENT);
    struct pawl_ckpt_reader_options foreign = {.run_id = {1}};
    assert_int_equal(pawl_ckpt_reader_open(path, &foreign, &none, &why), PAWL_FOREIGN);
    skit_remove(path);
}

/* Saved by n ranks along one dimension, read by m along the other: every byte, and each only once. */
static void any_cut_is_read_by_any_other_and_little_more_than_its_bytes(void **unused) {
    (void)unused;
    char *path = skit_folder();
    for (uint32_t n = 1; n <= 4; n += 3) {
        char start[16];
        snprintf(start, sizeof start, "%u", n);
        run_of(path, start, n, n % 2, n);
        for (uint32_t m = 1; m <= 5; m++) {
            for (uint32_t k = 0; k < m; k++) {
                struct pawl_ckpt_reader *r = open_reader(path);
                struct skit_state *mine = skit_state_new(k, m, m % 2);
                SKIT_MUST(
                    pawl_ckpt_reader_read(r, pawl_ckpt_reader_newest(r), mine->tensors, mine->count, e));
                assert_true(skit_is(mine, n));
                size_t bytes = 0;
                for (uint32_t i = 0; i < mine->count; i++) bytes += mine->bytes[i];
                uint64_t read = pawl_ckpt_reader_bytes_read(r);
                assert_true(read > 0);
                /* Whole rows lie together: at most the chunk before and the chunk after, per tensor and part.
                 */
                if (n % 2 == 0 && m % 2 == 0 && read > bytes + 2 * 4096 * mine->count * n)
                    fail_msg("%" PRIu64 " bytes read for %zu wanted", read, bytes);
                skit_state_free(mine);
                pawl_ckpt_reader_close(r);
            }
        }
    }
    skit_remove(path);
}

static void one_tensor_is_loaded_into_fresh_memory(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, "a", 3, 0, 2);
    struct pawl_ckpt_reader *r = open_reader(path);
    struct pawl_error why = {0};
    for (uint32_t t = 0; t < SKIT_TENSORS; t++) {
        struct pawl_tensor tensor = {0};
        void *memory = NULL;
        SKIT_MUST(pawl_ckpt_reader_load(r, 0, skit_names[t], &tensor, &memory, e));
        assert_ptr_equal(tensor.data, memory);
        assert_int_equal(tensor.dtype, skit_types[t]);
        assert_int_equal(tensor.rank, skit_ranks[t]);
        uint64_t zero[2] = {0, 0};
        struct pawl_tensor whole = tensor;
        whole.begin = zero;
        whole.extent = tensor.shape;
        assert_true(skit_each(&whole, 2, true));
        free(memory);
    }
    struct pawl_tensor tensor = {0};
    void *memory = NULL;
    assert_int_equal(pawl_ckpt_reader_load(r, 0, "absent", &tensor, &memory, &why), PAWL_NOT_FOUND);
    assert_int_equal(pawl_ckpt_reader_load(r, 5, "w", &tensor, &memory, &why), PAWL_ARGUMENT);
    for (uint32_t unit = 0; unit < 3; unit++) {
        const void *blob = NULL;
        size_t bytes = 0;
        char wanted[32];
        snprintf(wanted, sizeof wanted, "blob of %u", unit);
        SKIT_MUST(pawl_ckpt_reader_blob(r, 0, unit, &blob, &bytes, e));
        assert_int_equal(bytes, strlen(wanted));
        assert_memory_equal(blob, wanted, bytes);
    }
    pawl_ckpt_reader_close(r);
    skit_remove(path);
}

static void reading_goes_on_beside_a_writer(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct skit_rank w = skit_open(&(struct pawl_ckpt_options){.path = path}, skit_state_new(0, 1, 0));
    struct skit_state *mine = skit_state_new(0, 1, 0);
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(w.c, w.state, &step, e));
    for (step = 1; step <= 10; step++) {
        skit_wait(&w, skit_save(&w, step), PAWL_CKPT_UNTIL_DURABLE);
        struct pawl_ckpt_reader *r = open_reader(path);
        uint32_t newest = pawl_ckpt_reader_newest(r);
        assert_int_equal(pawl_ckpt_reader_step(r, newest).step, step);
        SKIT_MUST(pawl_ckpt_reader_read(r, newest, mine->tensors, mine->count, e));
        assert_true(skit_is(mine, step));
        pawl_ckpt_reader_close(r);
    }
    skit_state_free(mine);
    skit_close(&w);
    skit_remove(path);
}

/* ---- a thousand ranks ---- */

#define MANY 1000u

static void save_row(const char *path, uint32_t rank) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/store/rank-%04u", path, rank);
    struct store *s = NULL;
    struct ckpt *c = NULL;
    struct ckpt_event event;
    struct ckpt_config config = {.run_id = "a thousand rank",
                                 .incarnation = 1,
                                 .in_flight = 1,
                                 .keep = 1,
                                 .chunk_bytes = STORE_BLOCK,
                                 .staging_bytes = STORE_BLOCK};
    uint32_t value = rank * 3 + 1;
    uint64_t shape[1] = {MANY}, begin[1] = {rank}, extent[1] = {1};
    struct pawl_tensor t = {.name = "row",
                            .dtype = PAWL_U32,
                            .rank = 1,
                            .shape = shape,
                            .begin = begin,
                            .extent = extent,
                            .data = &value};
    struct ckpt_save save = {.step = 5,
                             .unit = 0,
                             .unit_count = 1,
                             .part = rank,
                             .part_count = MANY,
                             .tensors = &t,
                             .tensor_count = 1};
    SKIT_MUST(store_open(folder, STORE_PLAIN, false, &s, NULL, e));
    SKIT_MUST(ckpt_open(&config, s, &c, e));
    SKIT_MUST(ckpt_save_begin(c, &save, e));
    while (ckpt_poll(c, &event, 1) == 0) ckpt_wait(c, SECOND);
    assert_int_equal(event.code, PAWL_OK);
    SKIT_MUST(ckpt_close(c, skit_soon(), e));
    store_close(s);
}

static void thousand_stores_are_read_with_few_descriptors_allowed(void **unused) {
    (void)unused;
    if (access("/dev/shm", W_OK) != 0) skip(); /* on a disk it would take minutes to make them */
    char path[] = "/dev/shm/pawl-saver-XXXXXX";
    assert_non_null(mkdtemp(path));
    for (uint32_t i = 0; i < MANY; i++) save_row(path, i);
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = 256;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct pawl_ckpt_reader *r = open_reader(path);
    assert_int_equal(pawl_ckpt_reader_newest(r), 0);
    struct pawl_tensor row = {0};
    void *memory = NULL;
    SKIT_MUST(pawl_ckpt_reader_load(r, 0, "row", &row, &memory, e));
    for (uint32_t i = 0; i < MANY; i++) assert_int_equal(((uint32_t *)memory)[i], i * 3 + 1);
    pawl_ckpt_reader_close(r);
    free(memory);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    (void)nftw(path, skit_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_folder_store_folder_and_one_store_can_be_read),
        cmocka_unit_test(any_cut_is_read_by_any_other_and_little_more_than_its_bytes),
        cmocka_unit_test(one_tensor_is_loaded_into_fresh_memory),
        cmocka_unit_test(reading_goes_on_beside_a_writer),
        cmocka_unit_test(thousand_stores_are_read_with_few_descriptors_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
