/* The checkpointer's memory does not grow: neither over many saves, nor when saves are asked for far faster
 * than the disk takes them; but for what is taken for copies, once, as far as the options say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>

#include "kit/saver_kit.h"

/* Bytes handed out by malloc: unlike the resident set it does not depend on what the kernel keeps mapped.
 * Arenas of all threads, and blocks mapped on their own. */
static size_t allocated(void) {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Sanitizers keep what was freed for a while, to catch its use: pages tell nothing then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PAGES_TELL 0
#elif defined(__has_feature)
#define PAGES_TELL (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define PAGES_TELL 1
#endif

static size_t resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f != NULL) fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static char *fast_folder(void) {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    return skit_folder();
}

static void two_thousand_saves_leave_the_memory_as_it_was(void **unused) {
    (void)unused;
    char *path = fast_folder();
    struct skit_rank r = skit_open(
        &(struct pawl_ckpt_options){.path = path, .staging_bytes = 1 << 20, .chunk_bytes = 65536, .keep = 2},
        skit_state_new(0, 1, 0));
    size_t blocks = 0, pages = 0;
    for (uint64_t step = 1; step <= 2000; step++) {
        skit_wait(&r, skit_save(&r, step), PAWL_CKPT_UNTIL_DURABLE);
        /* Everything has its size by then, the ring of events included: 4 a save, 1024 in all. */
        if (step == 400) blocks = allocated();
        if (step == 400) pages = resident();
    }
    size_t grown_blocks = allocated() > blocks ? allocated() - blocks : 0;
    size_t grown_pages = resident() > pages ? resident() - pages : 0;
    if (grown_blocks > 65536) fail_msg("%zu bytes more are allocated after 1600 saves", grown_blocks);
    if (PAGES_TELL && grown_pages > 2u << 20)
        fail_msg("%zu bytes more are resident after 1600 saves", grown_pages);
    skit_close(&r);
    skit_remove(path);
}

/* Nothing waits for the device, so that almost every save finds two under way. */
static void saves_asked_for_faster_than_the_disk_are_skipped_and_counted(void **unused) {
    (void)unused;
    char *path = fast_folder();
    struct skit_rank r = skit_open(
        &(struct pawl_ckpt_options){
            .path = path, .staging_bytes = 1 << 20, .chunk_bytes = 65536, .full = PAWL_CKPT_SKIP},
        skit_state_new(0, 1, 0));
    size_t blocks = 0;
    struct pawl_ckpt_status s;
    uint64_t asked = 0;
    do {
        struct pawl_ckpt_save save = {.state = r.state, .step = ++asked};
        SKIT_MUST(pawl_ckpt_save(r.c, &save, NULL, e));
        pawl_ckpt_status(r.c, &s);
        assert_true(s.in_flight <= 2);
        if (asked == 2000) blocks = allocated();
    } while (asked < 20000 || s.skipped < 5000);
    size_t grown = allocated() > blocks ? allocated() - blocks : 0;
    if (grown > 262144) fail_msg("%zu bytes more are allocated", grown); /* two saves under way, or none */
    assert_int_equal(s.saves + s.skipped, asked);
    skit_close(&r);
    skit_remove(path);
}

static uint64_t staging_after_a_save(struct pawl_ckpt_options o, bool immutable) {
    char *path = skit_folder();
    o.path = path;
    struct skit_rank r = skit_open(&o, skit_state_new(0, 1, 0));
    skit_fill(r.memory, 1);
    uint64_t id = 0;
    SKIT_MUST(pawl_ckpt_save(
        r.c, &(struct pawl_ckpt_save){.state = r.state, .step = 1, .immutable = immutable}, &id, e));
    skit_wait(&r, id, PAWL_CKPT_UNTIL_DURABLE);
    skit_fill(r.memory, 2);
    skit_wait(&r, skit_save(&r, 2), PAWL_CKPT_UNTIL_DURABLE);
    struct pawl_ckpt_status s;
    pawl_ckpt_status(r.c, &s);
    skit_close(&r);
    r = skit_open(&(struct pawl_ckpt_options){.path = path}, skit_state_new(0, 1, 0));
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
    assert_int_equal(step, 2);
    assert_true(skit_is(r.memory, 2));
    skit_close(&r);
    skit_remove(path);
    return s.staging_bytes;
}

static void staging_memory_grows_once_to_what_the_state_needs_and_no_further(void **unused) {
    (void)unused;
    struct skit_state *state = skit_state_new(0, 1, 0);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < state->count; i++) bytes += state->bytes[i];
    skit_state_free(state);
    struct pawl_ckpt_options o = {.chunk_bytes = 4096, .staging_bytes = 4096};
    assert_int_equal(staging_after_a_save(o, false), 4096);
    o.staging_max_bytes = 2 * 4096; /* less than the state */
    assert_true(bytes > o.staging_max_bytes);
    assert_int_equal(staging_after_a_save(o, false), 2 * 4096);
    o.staging_max_bytes = 1 << 30;
    assert_in_range(staging_after_a_save(o, false), bytes + 4096, bytes + 2 * 4096);
    assert_int_equal(staging_after_a_save(o, true), 4096); /* copies nothing, and is the first */
    o.staging_max_bytes = UINT64_MAX;
    assert_in_range(staging_after_a_save(o, false), bytes + 4096, bytes + 2 * 4096);
    o.staging_bytes = 1 << 20; /* holds all of it already */
    assert_int_equal(staging_after_a_save(o, false), 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_thousand_saves_leave_the_memory_as_it_was),
        cmocka_unit_test(staging_memory_grows_once_to_what_the_state_needs_and_no_further),
        cmocka_unit_test(saves_asked_for_faster_than_the_disk_are_skipped_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
