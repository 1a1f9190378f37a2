/* What run/progress.h promises: whole JSON lines in the log, a short line for people, and no way to stop the
 * training by not listening. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/progress.h"

static char log_path[] = "/tmp/pawl-progress-XXXXXX";
static char log_path2[] = "/tmp/pawl-progress-XXXXXX";
static char screen_path[] = "/tmp/pawl-progress-XXXXXX";
static int real_stderr = -1;

static int make_files(void **state) {
    (void)state;
    real_stderr = dup(STDERR_FILENO);
    int a = mkstemp(log_path), b = mkstemp(log_path2), c = mkstemp(screen_path);
    return real_stderr < 0 || a < 0 || b < 0 || c < 0 || close(a) != 0 || close(b) != 0 || close(c) != 0;
}

static int remove_files(void **state) {
    (void)state;
    return unlink(log_path) != 0 || unlink(log_path2) != 0 || unlink(screen_path) != 0;
}

/* Every test begins with empty files and the screen in a file. */
static int divert(void **state) {
    (void)state;
    if (truncate(log_path, 0) != 0 || truncate(log_path2, 0) != 0) return -1;
    int fd = open(screen_path, O_RDWR | O_TRUNC | O_APPEND);
    return dup2(fd, STDERR_FILENO) < 0 || close(fd) != 0;
}

static int restore(void **state) {
    (void)state;
    return dup2(real_stderr, STDERR_FILENO) < 0;
}

static char *read_file(const char *path) {
    static char text[65536];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static struct progress *open_progress(const char *log, bool quiet) {
    struct progress *p = NULL;
    struct pawl_error e = {0};
    if (progress_open(log, NULL, quiet, &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    return p;
}

static const struct progress_state sample = {
    .step = 42,
    .steps = 100,
    .loss = 2.341,
    .grad_norm = 0.91,
    .tokens_per_s = 5123,
    .live = 7,
    .workers = 8,
    .has_durable = true,
    .durable_step = 40,
    .durable_age_s = 0.8,
    .eta_s = 42,
};
static const char sample_line[] =
    "step  42/100  loss 2.3410  |g| 0.91  5.1k tok/s  workers 7/8  durable 40 (0.8 s ago)  eta 0:42";

/* --- the log --- */

static void every_event_is_a_json_line_in_both_logs(void **state) {
    (void)state;
    struct progress *p = NULL;
    struct pawl_error e = {0};
    if (progress_open(log_path, log_path2, false, &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (int i = 0; i < 3; i++) {
        struct json *j = progress_begin(p, "worker-lost");
        json_i64(j, "rank", i);
        json_text(j, "why", "a \"quoted\"\nline");
        json_f64(j, "loss", NAN);
        progress_end(p, "worker %d lost", i);
    }
    progress_close(p);
    char *text = strdup(read_file(log_path));
    assert_string_equal(text, read_file(log_path2));
    int count = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), count++) {
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "event")), "worker-lost");
        assert_int_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(object, "rank")), count);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "why")), "a \"quoted\"\nline");
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "loss")));
        const char *time = cJSON_GetStringValue(cJSON_GetObjectItem(object, "time"));
        assert_non_null(time);
        assert_int_equal(time[strlen(time) - 1], 'Z');
        cJSON_Delete(object);
    }
    assert_int_equal(count, 3);
    free(text);
    assert_string_equal(read_file(screen_path), "worker 0 lost\nworker 1 lost\nworker 2 lost\n");
}

static void a_log_is_appended_to(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct progress *p = open_progress(log_path, true);
        progress_begin(p, "start");
        progress_end(p, NULL);
        progress_close(p);
    }
    char *text = read_file(log_path), *newline = strchr(text, '\n');
    assert_non_null(newline);
    assert_non_null(strchr(newline + 1, '\n'));
}

static void two_writers_of_one_log_overwrite_nothing(void **state) {
    (void)state;
    struct progress *p[2] = {open_progress(log_path, true), open_progress(log_path, true)};
    for (int i = 0; i < 10; i++) {
        progress_begin(p[i % 2], "event");
        progress_end(p[i % 2], NULL);
    }
    progress_close(p[0]);
    progress_close(p[1]);
    int lines = 0;
    for (char *c = read_file(log_path); *c != 0; c++) lines += *c == '\n';
    assert_int_equal(lines, 10);
}

static void a_line_torn_by_a_kill_spoils_no_other(void **state) {
    (void)state;
    FILE *f = fopen(log_path, "w");
    assert_non_null(f);
    fputs("{\"event\":\"whole\"}\n{\"event\":\"to", f);
    fclose(f);
    struct progress *p = open_progress(log_path, true);
    for (int i = 0; i < 2; i++) {
        progress_begin(p, "resume");
        progress_end(p, NULL);
    }
    progress_close(p);
    static const char wanted[] = "{\"event\":\"whole\"}\n{\"event\":\"to\n{\"time\":";
    char *text = read_file(log_path);
    assert_int_equal(strncmp(text, wanted, sizeof wanted - 1), 0);
    assert_null(strstr(text, "\n\n"));
    assert_non_null(strstr(text, "}\n{\"time\":"));
}

static void a_line_cut_by_a_full_disk_spoils_no_other(void **state) {
    (void)state;
    struct rlimit old, small = {0};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100; /* the second line ends behind it */
    struct progress *p = open_progress(log_path, false);
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 3; i++) {
        progress_begin(p, "a-long-name-of-an-event");
        progress_end(p, NULL);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, former);
    progress_begin(p, "last");
    progress_end(p, NULL);
    progress_close(p);
    char *text = read_file(log_path), *last = strstr(text, "\"event\":\"last\"}\n");
    assert_non_null(last);
    while (last > text && last[-1] != '\n') last--;
    assert_int_equal(last - text, 101); /* the torn line got its end */
    assert_non_null(strstr(read_file(screen_path), "2 log lines were lost"));
}

static void a_line_torn_by_another_writer_spoils_no_other(void **state) {
    (void)state;
    struct progress *p = open_progress(log_path, true);
    progress_begin(p, "first");
    progress_end(p, NULL);
    FILE *f = fopen(log_path, "a");
    assert_non_null(f);
    fputs("{\"event\":\"to", f);
    fclose(f);
    progress_begin(p, "last");
    progress_end(p, NULL);
    progress_close(p);
    char *torn = strstr(read_file(log_path), "}\n{\"event\":\"to\n{\"time\":");
    assert_non_null(torn);
    assert_null(strstr(torn, "\n\n"));
}

static void a_log_pipe_that_nobody_reads_stops_nothing(void **state) {
    (void)state;
    char pipe_path[] = "/tmp/pawl-progress-XXXXXX";
    int made = mkstemp(pipe_path);
    assert_true(made >= 0 && close(made) == 0 && unlink(pipe_path) == 0);
    assert_int_equal(mkfifo(pipe_path, 0666), 0);
    alarm(60); /* it would wait for ever */
    struct progress *p = open_progress(pipe_path, false);
    for (int i = 0; i < 2000; i++) { /* more than a pipe holds */
        progress_begin(p, "an-event-of-some-bytes");
        progress_end(p, NULL);
    }
    int fd = open(pipe_path, O_RDONLY | O_NONBLOCK);
    char got[4096];
    while (read(fd, got, sizeof got) > 0) continue;
    progress_begin(p, "heard-again");
    progress_end(p, NULL);
    alarm(0);
    ssize_t size = read(fd, got, sizeof got - 1);
    assert_true(size > 0);
    got[size] = 0;
    assert_non_null(strstr(got, "heard-again"));
    progress_close(p);
    close(fd);
    assert_int_equal(unlink(pipe_path), 0);
    char *text = read_file(screen_path);
    assert_non_null(strstr(text, "(nobody reads it); training goes on without it\n"));
    assert_non_null(strstr(text, "log lines were lost"));
}

static void a_full_disk_is_told_once_and_stops_nothing(void **state) {
    (void)state;
    struct progress *p = open_progress("/dev/full", false);
    for (int i = 0; i < 5; i++) {
        progress_begin(p, "step");
        progress_end(p, "event %d", i);
    }
    progress_close(p);
    assert_string_equal(read_file(screen_path),
                        "the log cannot be written (No space left on device); training goes on without it\n"
                        "event 0\nevent 1\nevent 2\nevent 3\nevent 4\n5 log lines were lost\n");
}

static void a_log_that_cannot_be_opened_is_an_error(void **state) {
    (void)state;
    struct progress *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(progress_open("/proc/nonexistent/log", NULL, false, &p, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/proc/nonexistent/log"));
    assert_null(p);
    assert_int_equal(progress_open(log_path, "/", false, &p, &e), PAWL_IO);
    assert_null(p);
    progress_close(NULL);
}

/* As on a medium that is read-only: the file is not there, but that is not why. */
static void a_log_that_cannot_be_made_says_why(void **state) {
    (void)state;
    char closed[] = "/tmp/pawl-progress-XXXXXX", path[64];
    struct progress *p = NULL;
    struct pawl_error e = {0};
    uid_t me = geteuid();
    assert_non_null(mkdtemp(closed));
    assert_int_equal(chmod(closed, 0555), 0);
    snprintf(path, sizeof path, "%s/log", closed);
    if (me == 0) assert_int_equal(seteuid(65534), 0);
    pawl_code code = progress_open(path, NULL, false, &p, &e);
    if (me == 0) assert_int_equal(seteuid(me), 0);
    assert_int_equal(code, PAWL_IO);
    assert_non_null(strstr(e.text, "(EACCES)"));
    assert_int_equal(rmdir(closed), 0);
}

/* --- the screen --- */

static void the_state_line_reads_as_documented(void **state) {
    (void)state;
    struct progress *p = open_progress(NULL, false);
    progress_state(p, &sample);
    progress_close(p);
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s\n", sample_line);
    assert_string_equal(read_file(screen_path), wanted);
}

static void unknown_and_large_values_are_readable(void **state) {
    (void)state;
    struct progress_state s = sample;
    s.has_durable = false;
    s.tokens_per_s = 123456;
    s.eta_s = 3 * 3600 + 7 * 60 + 12;
    struct progress *p = open_progress(NULL, false);
    progress_state(p, &s);
    progress_close(p);
    assert_non_null(strstr(read_file(screen_path), "  123k tok/s  workers 7/8  durable none  eta 3:07:12\n"));
    s.tokens_per_s = NAN;
    s.eta_s = INFINITY;
    s.step = s.steps = UINT64_MAX;
    p = open_progress(NULL, false);
    progress_state(p, &s);
    progress_close(p);
    assert_non_null(strstr(read_file(screen_path), "step 18446744073709551615/18446744073709551615"));
    assert_non_null(strstr(read_file(screen_path), "  0 tok/s  workers 7/8  durable none  eta -\n"));
}

static void off_a_terminal_a_burst_of_states_shows_the_first_and_the_last(void **state) {
    (void)state;
    struct progress_state s = sample;
    struct progress *p = open_progress(NULL, false);
    for (s.step = 1; s.step <= 1000; s.step++) progress_state(p, &s);
    progress_close(p);
    char *text = read_file(screen_path), *newline = strchr(text, '\n');
    assert_int_equal(strncmp(text, "step   1/100", 12), 0);
    char *last = strrchr(text, '\n'); /* a slow machine may show some in between, never all */
    assert_non_null(last);
    *last = 0;
    assert_int_equal(strncmp(strrchr(text, '\n') + 1, "step 1000/100", 13), 0);
    assert_true(newline != NULL && strlen(text) < 100 * sizeof sample_line);
    assert_null(strchr(text, '\r'));
}

static void quiet_prints_nothing_but_logs(void **state) {
    (void)state;
    struct progress *p = open_progress(log_path, true);
    progress_state(p, &sample);
    progress_begin(p, "start");
    progress_end(p, "started");
    progress_close(p);
    assert_string_equal(read_file(screen_path), "");
    assert_non_null(strstr(read_file(log_path), "\"event\":\"start\"}\n"));
}

/* What a terminal of `columns` got. */
static char *on_a_terminal(unsigned short columns, const char *event) {
    static char got[4096];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    assert_true(dup2(slave, STDERR_FILENO) >= 0);
    close(slave);
    struct progress *p = open_progress(NULL, false);
    progress_state(p, &sample);
    if (event != NULL) {
        progress_begin(p, "event");
        progress_end(p, "%s", event);
    }
    progress_close(p);
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0); /* closes the last slave: then EIO ends the reading */
    size_t size_got = 0;
    for (ssize_t n; (n = read(master, got + size_got, sizeof got - 1 - size_got)) > 0;) size_got += (size_t)n;
    got[size_got] = 0;
    close(master);
    return got;
}

static void on_a_terminal_the_state_line_is_rewritten_and_events_take_its_place(void **state) {
    (void)state;
    char wanted[512];
    snprintf(wanted, sizeof wanted, "\r\033[K%s\r\033[Kworker 3 lost\r\n", sample_line);
    assert_string_equal(on_a_terminal(200, "worker 3 lost"), wanted);
    snprintf(wanted, sizeof wanted, "\r\033[K%s\r\n", sample_line);
    assert_string_equal(on_a_terminal(200, NULL), wanted);
}

static void a_narrow_terminal_gets_a_line_that_fits(void **state) {
    (void)state;
    char wanted[512];
    snprintf(wanted, sizeof wanted, "\r\033[K%.39s\r\n", sample_line);
    assert_string_equal(on_a_terminal(40, NULL), wanted);
}

static void a_reader_that_went_away_stops_nothing(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[0]);
    close(ends[1]);
    struct progress *p = open_progress(log_path, false); /* SIGPIPE would end the test here */
    progress_state(p, &sample);
    progress_begin(p, "event");
    progress_end(p, "event");
    progress_close(p);
    assert_non_null(strstr(read_file(log_path), "\"event\":\"event\""));
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
}

static void a_reader_that_stopped_reading_stops_nothing(void **state) {
    (void)state;
    int ends[2];
    char block[4096] = {0};
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof block) > 0) {
    }
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0); /* blocking again, and full */
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    struct progress *p = open_progress(log_path, false);
    progress_state(p, &sample);
    progress_begin(p, "event");
    progress_end(p, "event");
    progress_close(p);
    close(ends[0]);
    close(ends[1]);
    assert_non_null(strstr(read_file(log_path), "\"event\":\"event\""));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, divert, restore)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_event_is_a_json_line_in_both_logs),
        TEST(a_log_is_appended_to),
        TEST(two_writers_of_one_log_overwrite_nothing),
        TEST(a_line_torn_by_a_kill_spoils_no_other),
        TEST(a_line_cut_by_a_full_disk_spoils_no_other),
        TEST(a_line_torn_by_another_writer_spoils_no_other),
        TEST(a_log_pipe_that_nobody_reads_stops_nothing),
        TEST(a_full_disk_is_told_once_and_stops_nothing),
        TEST(a_log_that_cannot_be_opened_is_an_error),
        TEST(a_log_that_cannot_be_made_says_why),
        TEST(the_state_line_reads_as_documented),
        TEST(unknown_and_large_values_are_readable),
        TEST(off_a_terminal_a_burst_of_states_shows_the_first_and_the_last),
        TEST(quiet_prints_nothing_but_logs),
        TEST(on_a_terminal_the_state_line_is_rewritten_and_events_take_its_place),
        TEST(a_narrow_terminal_gets_a_line_that_fits),
        TEST(a_reader_that_went_away_stops_nothing),
        TEST(a_reader_that_stopped_reading_stops_nothing),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
