/* Measuring for real, on small saves in a folder of the build tree: what comes out is consistent, what was
 * made is gone, signals and a full folder end it cleanly, and what is kept is read back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <pawl/tune.h>

#include "base/mem.h"
#include "kit/tune_kit.h"
#include "tune/scratch.h"
#include "tune/stream.h"

static char dir[400];

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/tune_measure_XXXXXX", PAWL_BINARY_DIR);
    return mkdtemp(dir) == NULL;
}

static uint32_t entries(const char *path, const char *but) {
    uint32_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 (but == NULL || strcmp(entry->d_name, but) != 0);
    closedir(folder);
    return count;
}

static int remove_dir(void **state) {
    (void)state;
    char path[500];
    const char *names[] = {"tune.json", ".lock"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static struct pawl_tune_options options_of(uint64_t bytes) {
    return (struct pawl_tune_options){.dir = dir,
                                      .need = {.bytes = bytes, .iteration_s = 0.05},
                                      .in_flight_max = 3,
                                      .rounds = 2,
                                      .quiet = true};
}

static void a_sweep_measures_chooses_and_leaves_nothing_behind(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_tune_options o = options_of((2 << 20) + 12345); /* no multiple of anything */
    struct pawl_error e = {0};
    if (pawl_tune(&o, &r, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(r.stopped_by, 0);
    assert_int_equal(entries(dir, NULL), 0);
    assert_true(r.point_count >= 2);
    assert_int_equal(r.probe_bytes, o.need.bytes);
    assert_string_equal(r.note, "");
    assert_true(r.device.write_bps > 0 && r.device.read_bps > 0 && r.copy_bps > 0);
    bool more = false;
    for (uint32_t i = 0; i < r.point_count; i++) {
        assert_true(r.points[i].write_s > 0 && r.points[i].stall_s > 0);
        assert_true(r.points[i].stall_s < r.points[i].write_s);
        more = more || r.points[i].in_flight > 1;
        for (uint32_t k = 0; k < i; k++) /* each way once */
            assert_false(r.points[i].in_flight == r.points[k].in_flight &&
                         r.points[i].writers == r.points[k].writers &&
                         r.points[i].chunk_bytes == r.points[k].chunk_bytes);
    }
    assert_true(more);
    assert_int_equal(r.choice.storage_bytes, (r.choice.point.in_flight + 2) * o.need.bytes);
}

static void a_probe_is_scaled_up_and_said_to_be_one(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_tune_options o = options_of((uint64_t)1 << 30);
    struct pawl_error e = {0};
    o.probe_bytes = 1 << 20;
    o.in_flight_max = 1;
    if (pawl_tune(&o, &r, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(r.probe_bytes, 1 << 20);
    assert_non_null(strstr(r.note, "1 MiB"));
    assert_non_null(strstr(r.note, "scaled"));
    assert_int_equal(r.choice.memory_bytes, o.need.bytes);
    /* A thousand times the probe takes about a thousand times as long: not at many times the device's rate.
     */
    assert_true((double)o.need.bytes / r.choice.point.write_s < 50 * r.device.write_bps);
}

static void storage_and_memory_limit_what_is_tried(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_tune_options o = options_of(1 << 20);
    o.need.storage_bytes = 3 << 20; /* one in flight, one kept, one spare */
    assert_int_equal(pawl_tune(&o, &r, NULL), PAWL_OK);
    for (uint32_t i = 0; i < r.point_count; i++) assert_int_equal(r.points[i].in_flight, 1);
    o = options_of(1 << 20);
    o.need.memory_bytes = 2 << 20;
    assert_int_equal(pawl_tune(&o, &r, NULL), PAWL_OK);
    for (uint32_t i = 0; i < r.point_count; i++) assert_true(r.points[i].in_flight <= 2);
}

static void what_does_not_fit_is_refused_before_anything_is_made(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_error e = {0};
    struct pawl_tune_options o = options_of(1 << 20);
    o.need.storage_bytes = (3 << 20) - 1;
    assert_int_equal(pawl_tune(&o, &r, &e), PAWL_NO_SPACE);
    assert_non_null(strstr(e.text, "3145728"));
    o = options_of((uint64_t)1 << 60);
    assert_int_equal(pawl_tune(&o, &r, &e), PAWL_NO_SPACE);
    struct pawl_bench_options b = {.dir = dir, .bytes = (uint64_t)1 << 50, .quiet = true};
    struct pawl_bench_result br;
    assert_int_equal(pawl_bench(&b, &br, &e), PAWL_NO_SPACE);
    b.bytes = 1000;
    assert_int_equal(pawl_bench(&b, &br, &e), PAWL_ARGUMENT);
    o = options_of(1 << 20);
    o.dir = "/proc/nonexistent/folder";
    assert_int_equal(pawl_tune(&o, &r, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/proc/nonexistent/folder"));
    assert_int_equal(entries(dir, NULL), 0);
}

static void what_is_kept_is_read_back_the_same(void **state) {
    (void)state;
    static struct pawl_tune_result r, back;
    struct pawl_error e = {0};
    struct pawl_tune_options o = options_of(1 << 20);
    o.need.mtbf_s = 3600;
    o.keep_result = true;
    if (pawl_tune(&o, &r, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (pawl_tune_load(dir, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
    char *text = pawl_tune_json(&r), *again = pawl_tune_json(&back);
    assert_string_equal(text, again);
    free(text);
    free(again);
}

static void the_bench_compares_like_with_like(void **state) {
    (void)state;
    struct pawl_bench_options o = {.dir = dir, .bytes = 4 << 20, .rounds = 3, .quiet = true};
    struct pawl_bench_result r;
    struct pawl_error e = {0};
    if (pawl_bench(&o, &r, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_true(r.write_bps > 0 && r.save_bps > 0 && r.restore_bps > 0 && r.device.write_bps > 0);
    assert_true(r.write_ratio > 0 && r.restore_ratio > 0 && r.cpu_s_per_gb > 0 && r.blocked_s > 0);
    assert_true(r.blocked_s < r.write_s);
    char *text = pawl_bench_json(&r);
    const char *keys[] = {"write_mbps",    "device_write_mbps", "write_ratio",
                          "restore_ratio", "cpu_s_per_gb",      "device_read_mbps",
                          "restore_mbps",  "blocked_us",        "rounds"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) assert_non_null(strstr(text, keys[i]));
    free(text);
}

/* ---- stopping ---- */

static void *interrupt_once_it_is_at_work(void *arg) {
    (void)arg;
    while (entries(dir, "tune.json") < 1) usleep(200);
    kill(getpid(), SIGTERM);
    return NULL;
}

static volatile sig_atomic_t reached;
static void on_term(int number) { reached = number; }

static void a_signal_ends_it_and_everything_is_removed(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_tune_options o = options_of((uint64_t)64 << 20);
    pthread_t thread;
    struct sigaction own = {.sa_handler = on_term}, before;
    char path[500];
    snprintf(path, sizeof path, "%s/.lock", dir);
    (void)unlink(path);
    sigaction(SIGTERM, &own, &before);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_once_it_is_at_work, NULL), 0);
    assert_int_equal(pawl_tune(&o, &r, NULL), PAWL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(r.stopped_by, SIGTERM);
    assert_int_equal(entries(dir, "tune.json"), 0);
    assert_int_equal(reached, 0); /* it was caught, and ... */
    raise(SIGTERM);
    assert_int_equal(reached, SIGTERM); /* ... the caller's own handler is back */
    sigaction(SIGTERM, &before, NULL);
}

static void what_a_killed_process_left_is_removed_but_not_what_is_in_use(void **state) {
    (void)state;
    char stale[500], used[500], file[600];
    struct store *held = NULL;
    struct scratch s;
    snprintf(stale, sizeof stale, "%s/.pawl-scratch-1", dir);
    snprintf(used, sizeof used, "%s/.pawl-scratch-2", dir);
    assert_int_equal(mkdir(stale, 0700), 0);
    snprintf(file, sizeof file, "%s/slot-000000.safetensors", stale);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fclose(out);
    assert_int_equal(store_open(used, STORE_PLAIN, false, &held, NULL, NULL), PAWL_OK);
    assert_int_equal(scratch_open(dir, &s, NULL), PAWL_OK);
    assert_int_not_equal(access(stale, F_OK), 0);
    assert_int_equal(access(used, F_OK), 0);
    store_close(held);
    scratch_close(&s);
    assert_int_equal(scratch_open(dir, &s, NULL), PAWL_OK);
    scratch_close(&s);
    assert_int_equal(entries(dir, "tune.json"), 0);
}

static void a_full_pipe_has_its_saves_in_flight(void **state) {
    (void)state;
    struct scratch s;
    uint64_t step = 0;
    struct stream_result r;
    uint8_t *data = mem_alloc(1 << 20);
    assert_int_equal(scratch_open(dir, &s, NULL), PAWL_OK);
    for (uint32_t n = 1; n <= 5; n += 2) {
        struct stream stream;
        struct stream_config config = {
            .folder = s.path, .data = data, .bytes = 1 << 20, .in_flight = n, .keep = 1};
        assert_int_equal(stream_open(&config, &step, NULL, &stream, NULL), PAWL_OK);
        uint64_t before = step;
        assert_int_equal(stream_run(&stream, 4, &r, NULL), PAWL_OK);
        assert_int_equal(step - before, n * 6); /* to fill, one that does not count, four */
        assert_int_equal(stream.durable, step);
        assert_int_equal(ckpt_in_flight(stream.engine), 0);
        /* Tw follows from the rate: four rounds took about four times the median one, never less than two. */
        assert_true(r.write_s > 0 && r.seconds >= 2 * r.write_s);
        stream_close(&stream);
    }
    scratch_close(&s);
    mem_free(data, 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sweep_measures_chooses_and_leaves_nothing_behind),
        cmocka_unit_test(a_probe_is_scaled_up_and_said_to_be_one),
        cmocka_unit_test(storage_and_memory_limit_what_is_tried),
        cmocka_unit_test(what_does_not_fit_is_refused_before_anything_is_made),
        cmocka_unit_test(the_bench_compares_like_with_like),
        cmocka_unit_test(what_is_kept_is_read_back_the_same),
        cmocka_unit_test(a_signal_ends_it_and_everything_is_removed),
        cmocka_unit_test(what_a_killed_process_left_is_removed_but_not_what_is_in_use),
        cmocka_unit_test(a_full_pipe_has_its_saves_in_flight),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
