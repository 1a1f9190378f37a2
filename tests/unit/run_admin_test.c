/* What run/admin.h promises: frames that read back, a socket of any path that is the owner's alone, one-line
 * errors when nobody is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "run/admin.h"
#include "run/message.h"

static char root[] = "/tmp/pawl-admin-XXXXXX";
static char folder[600]; /* far longer than a socket's path may be */

static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(root) == NULL) return 1;
    snprintf(folder, sizeof folder, "%s", root);
    for (int i = 0; i < 5; i++) {
        size_t n = strlen(folder);
        snprintf(folder + n, sizeof folder - n, "/%090d", i);
        if (mkdir(folder, 0777) != 0) return 1;
    }
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static struct admin_frame sample(enum admin_kind kind) {
    return (struct admin_frame){.kind = kind,
                                .rank = 7,
                                .json = true,
                                .code = PAWL_BUSY,
                                .text = "all places are taken",
                                .transport = "tcp",
                                .evidence = "/run/.stacks"};
}

static void every_kind_reads_back_and_no_damaged_one_does(void **state) {
    (void)state;
    for (int kind = 1; kind < ADMIN_KIND_END; kind++) {
        struct admin_frame f = sample((enum admin_kind)kind), back;
        struct bytes first = {0}, second = {0};
        admin_encode(&f, &first);
        assert_int_equal(admin_decode(first.data, first.size, &back, NULL), PAWL_OK);
        admin_encode(&back, &second);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        for (size_t size = 0; size < first.size; size++)
            assert_int_equal(admin_decode(first.data, size, &back, NULL), PAWL_FORMAT);
        bytes_put_u8(&first, 0);
        assert_int_equal(admin_decode(first.data, first.size, &back, NULL), PAWL_FORMAT);
        bytes_close(&first);
        bytes_close(&second);
    }
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    struct admin_frame back;
    assert_int_equal(admin_decode((uint8_t[]){0}, 1, &back, NULL), PAWL_FORMAT);
    assert_int_equal(admin_decode((uint8_t[]){ADMIN_KIND_END}, 1, &back, NULL), PAWL_FORMAT);
    assert_int_equal(admin_decode((uint8_t[]){ADMIN_STATUS, 2}, 2, &back, NULL), PAWL_FORMAT);
    assert_int_equal(admin_decode((uint8_t[]){ADMIN_REPLY, 200, 0, 0, 0, 1, 0, 0, 0, 0}, 10, &back, NULL),
                     PAWL_FORMAT);
    assert_int_equal(admin_decode((uint8_t[]){ADMIN_REPLY, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0}, 11, &back, NULL),
                     PAWL_FORMAT); /* a text with a 0 inside */
}

static void without_a_run_a_request_is_told_so(void **state) {
    (void)state;
    char *text;
    struct pawl_error e;
    struct admin_frame stop = {.kind = ADMIN_STOP};
    assert_int_equal(admin_ask(folder, &stop, &text, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "no run is going on in /tmp/pawl-admin"));
    assert_null(text);
    assert_int_equal(admin_ask("/proc/nonexistent", &stop, &text, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/proc/nonexistent"));
}

/* The limit on an answer: as it was set last, and what it is shortened to (0: as it is). */
static long limit_s, limit_us;

int setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    struct timeval limit = {0};
    bool limits = level == SOL_SOCKET && name == SO_RCVTIMEO && size == sizeof limit;
    if (limits) memcpy(&limit, value, sizeof limit);
    if (limits) limit_s = limit.tv_sec;
    if (limit_us > 0 && limit.tv_sec > 0) limit = (struct timeval){.tv_usec = limit_us}, value = &limit;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}

/* A launcher for one request: takes the frame, answers with these. */
struct answers {
    int listener;
    enum admin_kind asked;
    uint32_t rank;
    const struct admin_frame *frames;
    uint32_t count;
    bool and_more; /* a byte of the worker's channel follows at once */
};

static void *serve(void *argument) {
    struct answers *a = argument;
    int fd;
    while ((fd = accept(a->listener, NULL, NULL)) < 0) {
    }
    struct channel *c = NULL;
    const uint8_t *data;
    size_t size;
    bool got = false;
    struct admin_frame f = {0};
    if (channel_open_fd(fd, &c, NULL) != PAWL_OK) return NULL;
    while (!got && channel_receive_frame(c, &data, &size, &got, NULL) == PAWL_OK) {
    }
    if (got && admin_decode(data, size, &f, NULL) == PAWL_OK) a->asked = f.kind, a->rank = f.rank;
    for (uint32_t i = 0; i < a->count; i++) {
        struct bytes out = {0};
        admin_encode(&a->frames[i], &out);
        channel_send_frame(c, out.data, out.size, NULL);
        bytes_close(&out);
    }
    if (a->and_more) send(fd, "x", 1, 0);
    while (!channel_flush(c)) {
    }
    channel_close(c);
    return NULL;
}

static void run_with(struct answers *a, pthread_t *thread) {
    struct pawl_error e;
    if (admin_listen(folder, &a->listener, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(pthread_create(thread, NULL, serve, a), 0);
}

static void a_request_reaches_the_launcher_by_a_path_of_any_length(void **state) {
    (void)state;
    struct admin_frame reply = {.kind = ADMIN_REPLY, .text = "worker 3 has left"};
    struct answers a = {.frames = &reply, .count = 1};
    pthread_t thread;
    char *text, path[700];
    struct pawl_error e;
    struct stat st;
    run_with(&a, &thread);
    snprintf(path, sizeof path, "%s/" ADMIN_SOCKET, folder);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    if (admin_ask(folder, &(struct admin_frame){.kind = ADMIN_DRAIN, .rank = 3}, &text, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    assert_string_equal(text, "worker 3 has left");
    free(text);
    pthread_join(thread, NULL);
    assert_int_equal(a.asked, ADMIN_DRAIN);
    assert_int_equal(a.rank, 3);
    close(a.listener);
}

static void the_launchers_error_is_the_commands(void **state) {
    (void)state;
    struct admin_frame reply = {.kind = ADMIN_REPLY, .code = PAWL_ARGUMENT, .text = "there is no worker 9"};
    struct answers a = {.frames = &reply, .count = 1};
    pthread_t thread;
    char *text;
    struct pawl_error e;
    run_with(&a, &thread);
    assert_int_equal(admin_ask(folder, &(struct admin_frame){.kind = ADMIN_DRAIN, .rank = 9}, &text, &e),
                     PAWL_ARGUMENT);
    assert_string_equal(e.text, "there is no worker 9");
    assert_int_equal(limit_s, 10);
    assert_null(text);
    pthread_join(thread, NULL);
    close(a.listener);
}

static char waited[64];
static void hear(const char *text) { snprintf(waited, sizeof waited, "%s", text); }

static void a_join_waits_and_leaves_what_follows_to_the_worker(void **state) {
    (void)state;
    struct admin_frame frames[] = {{.kind = ADMIN_WAIT, .text = "held off"},
                                   {.kind = ADMIN_WELCOME,
                                    .rank = 5,
                                    .text = "/",
                                    .transport = "tcp",
                                    .program = "/bin/x",
                                    .module = "a.b"}};
    struct answers a = {.frames = frames, .count = 2, .and_more = true};
    pthread_t thread;
    uint32_t rank = 0;
    int fd = -1;
    char byte = 0, cwd[64];
    struct pawl_error e;
    run_with(&a, &thread);
    char **program = NULL, number[16];
    if (admin_join(folder, hear, &rank, &fd, &program, &e) != PAWL_OK) fail_msg("%s", e.text);
    snprintf(number, sizeof number, "%d", fd);
    const char *words[] = {"/bin/x", "-m", "a.b", "worker", number};
    for (size_t i = 0; i < 5; i++) assert_string_equal(program[i], words[i]);
    assert_null(program[5]);
    free(program);
    assert_int_equal(rank, 5);
    assert_string_equal(waited, "held off");
    assert_int_equal(limit_s, 0); /* nor is what the worker hears */
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    assert_string_equal(getenv("PAWL_TRANSPORT"), "tcp");
    assert_string_equal(getcwd(cwd, sizeof cwd), "/");
    close(fd);
    pthread_join(thread, NULL);
    close(a.listener);
}

static void a_launcher_that_stands_still_is_not_waited_for(void **state) {
    (void)state;
    struct pawl_error e;
    int listener, fd;
    uint32_t rank;
    char *text, **program;
    if (admin_listen(folder, &listener, &e) != PAWL_OK) fail_msg("%s", e.text);
    limit_us = 20000;
    for (enum admin_kind kind = ADMIN_DRAIN; kind <= ADMIN_STATUS; kind++) {
        assert_int_equal(admin_ask(folder, &(struct admin_frame){.kind = kind}, &text, &e), PAWL_TIMEOUT);
        assert_non_null(strstr(e.text, "has not answered within 10 s"));
        assert_non_null(strstr(e.text, "ask again"));
    }
    assert_int_equal(admin_join(folder, hear, &rank, &fd, &program, &e), PAWL_TIMEOUT);
    assert_int_equal(fd, -1);
    limit_us = 0;
    close(listener);
}

static void what_takes_time_is_waited_for_once_the_launcher_says_so(void **state) {
    (void)state;
    struct admin_frame frames[] = {{.kind = ADMIN_WAIT, .text = "it is drained"},
                                   {.kind = ADMIN_REPLY, .text = "it has left"}};
    struct answers a = {.frames = frames, .count = 2};
    pthread_t thread;
    char *text;
    struct pawl_error e;
    run_with(&a, &thread);
    if (admin_ask(folder, &(struct admin_frame){.kind = ADMIN_DRAIN}, &text, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    assert_string_equal(text, "it has left");
    assert_int_equal(limit_s, 0);
    free(text);
    pthread_join(thread, NULL);
    close(a.listener);
}

static void a_launcher_that_dies_in_the_middle_is_an_error(void **state) {
    (void)state;
    struct answers a = {.count = 0};
    pthread_t thread;
    char *text;
    struct pawl_error e;
    run_with(&a, &thread);
    assert_int_equal(admin_ask(folder, &(struct admin_frame){.kind = ADMIN_STOP}, &text, &e), PAWL_PEER_LOST);
    pthread_join(thread, NULL);
    close(a.listener);
}

/* Answers before anything was asked, and closes, with as little between as can be. */
static void *refuse(void *argument) {
    const struct answers *a = argument;
    struct bytes out = {0};
    bytes_put_u32(&out, 0);
    admin_encode(&a->frames[0], &out);
    out.data[0] = (uint8_t)(out.size - 4);
    for (uint32_t i = 0; i < a->count; i++) {
        int fd;
        while ((fd = accept(a->listener, NULL, NULL)) < 0) {
        }
        send(fd, out.data, out.size, MSG_NOSIGNAL);
        close(fd);
    }
    bytes_close(&out);
    return NULL;
}

/* In some of so many tries the launcher has closed before the command asks. */
static void a_launcher_that_lost_patience_is_heard(void **state) {
    (void)state;
    struct admin_frame reply = {.kind = ADMIN_REPLY, .code = PAWL_TIMEOUT, .text = "ask again"};
    struct answers a = {.frames = &reply, .count = 2000};
    pthread_t thread;
    struct pawl_error e;
    if (admin_listen(folder, &a.listener, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(pthread_create(&thread, NULL, refuse, &a), 0);
    for (uint32_t i = 0; i < a.count; i++) {
        char *text;
        pawl_code code = admin_ask(folder, &(struct admin_frame){.kind = ADMIN_STOP}, &text, &e);
        if (code != PAWL_TIMEOUT) fail_msg("try %u: %s", i, e.text);
        assert_string_equal(e.text, "ask again");
    }
    pthread_join(thread, NULL);
    close(a.listener);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_reads_back_and_no_damaged_one_does),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(without_a_run_a_request_is_told_so),
        cmocka_unit_test(a_request_reaches_the_launcher_by_a_path_of_any_length),
        cmocka_unit_test(the_launchers_error_is_the_commands),
        cmocka_unit_test(a_join_waits_and_leaves_what_follows_to_the_worker),
        cmocka_unit_test(a_launcher_that_stands_still_is_not_waited_for),
        cmocka_unit_test(what_takes_time_is_waited_for_once_the_launcher_says_so),
        cmocka_unit_test(a_launcher_that_dies_in_the_middle_is_an_error),
        cmocka_unit_test(a_launcher_that_lost_patience_is_heard),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
