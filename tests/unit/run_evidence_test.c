/* What run/evidence.h promises, on real processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/evidence.h"

static char root[] = "/tmp/pawl-evidence-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(root) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(root); /* fails if a test leaves a file */
}

static void on_signal(int signal) { (void)signal; }

/* Told to be ready by a byte: then it has a handler for SIGUSR2, or not. */
static pid_t start_child(bool handler) {
    int ends[2];
    char byte = 'r';
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (handler) signal(SIGUSR2, on_signal);
        if (write(ends[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void end_child(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_stopped_process_is_seen_to_be_stopped_and_a_dead_one_to_be_gone(void **state) {
    (void)state;
    pid_t pid = start_child(false);
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_int_equal(evidence_state(pid), 'T');
    end_child(pid);
    assert_int_equal(evidence_state(pid), 0);
}

static void who_has_a_handler_for_the_signal_is_told_from_who_has_none(void **state) {
    (void)state;
    pid_t with = start_child(true), without = start_child(false);
    assert_true(evidence_catches(with, SIGUSR2));
    assert_false(evidence_catches(with, SIGUSR1));
    assert_false(evidence_catches(without, SIGUSR2));
    end_child(with);
    end_child(without);
    assert_false(evidence_catches(with, SIGUSR2));
}

static void a_description_names_worker_phase_instruction_and_the_kernels_state(void **state) {
    (void)state;
    pid_t pid = start_child(false);
    int status;
    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);
    struct evidence_worker w = {.rank = 3,
                                .pid = pid,
                                .pipeline = 1,
                                .stage = 2,
                                .busy = true,
                                .work = COORD_WORK_LOAD,
                                .at = {.iteration = 41, .position = 6, .op = 0, .chunk = 2, .microbatch = 5},
                                .progress = 77,
                                .progress_age_s = 12.5,
                                .beat_age_s = 2.25};
    struct bytes out = {0};
    evidence_describe(&w, &out);
    bytes_put_u8(&out, 0);
    const char *text = (const char *)out.data;
    const char *const wanted[] = {
        "worker 3: pid ",    "pipeline 1, stage 2", "phase load, busy", "iteration 41", "micro-batch 5",
        "made 12.500 s ago", "beat 2.250 s ago",    "state T",          "wchan: ",      "syscall"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (strstr(text, wanted[i]) == NULL) fail_msg("no \"%s\" in:\n%s", wanted[i], text);
    bytes_close(&out);
    end_child(pid);
}

static void a_process_without_an_instruction_or_that_is_gone_is_described_too(void **state) {
    (void)state;
    pid_t pid = start_child(false);
    end_child(pid);
    struct evidence_worker w = {.rank = 0, .pid = pid, .stage = UINT32_MAX, .at = {.op = 255}};
    struct bytes out = {0};
    evidence_describe(&w, &out);
    bytes_put_u8(&out, 0);
    assert_non_null(strstr((const char *)out.data, "none yet"));
    assert_non_null(strstr((const char *)out.data, "the process is gone"));
    assert_null(strstr((const char *)out.data, "pipeline"));
    bytes_close(&out);
}

static void a_workers_file_is_taken_once_and_nothing_but_a_file_is(void **state) {
    (void)state;
    char path[64];
    struct bytes out = {0};
    snprintf(path, sizeof path, "%s/rank-0.1", root);
    assert_false(evidence_take_file(path, &out));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("#0 main\n#1 \x1b[31mred\n", f);
    fclose(f);
    assert_true(evidence_take_file(path, &out));
    bytes_put_u8(&out, 0);
    assert_string_equal((const char *)out.data, "  #0 main\n  #1 ?[31mred\n");
    assert_false(evidence_take_file(path, &out));
    assert_int_equal(mkfifo(path, 0600), 0); /* would block whoever opens it */
    assert_false(evidence_take_file(path, &out));
    bytes_close(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_process_is_seen_to_be_stopped_and_a_dead_one_to_be_gone),
        cmocka_unit_test(who_has_a_handler_for_the_signal_is_told_from_who_has_none),
        cmocka_unit_test(a_description_names_worker_phase_instruction_and_the_kernels_state),
        cmocka_unit_test(a_process_without_an_instruction_or_that_is_gone_is_described_too),
        cmocka_unit_test(a_workers_file_is_taken_once_and_nothing_but_a_file_is),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
