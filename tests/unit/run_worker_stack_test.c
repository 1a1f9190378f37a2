/* Asked by SIGUSR2, a process writes the stacks of all its threads and its last instruction, wherever it
 * hangs; without a folder to write to, nothing happens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "run/worker_stack.h"

/* The thread sanitizer keeps signals back from a thread that waits for a lock. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIGNALS_ARE_KEPT_BACK true
#endif
#elif defined(__SANITIZE_THREAD__)
#define SIGNALS_ARE_KEPT_BACK true
#endif
#ifndef SIGNALS_ARE_KEPT_BACK
#define SIGNALS_ARE_KEPT_BACK false
#endif

static pthread_mutex_t hung = PTHREAD_MUTEX_INITIALIZER;

static void *hang(void *arg) {
    (void)arg;
    pthread_mutex_lock(&hung);
    pthread_mutex_unlock(&hung);
    return NULL;
}

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) n++;
    return n;
}

static void all_threads_answer_while_they_hang_with_a_lock_held(void **state) {
    (void)state;
    char folder[] = "/tmp/pawl-stacks-XXXXXX", path[128], text[65536] = "";
    if (SIGNALS_ARE_KEPT_BACK) skip();
    assert_non_null(mkdtemp(folder));
    setenv("PAWL_EVIDENCE", folder, 1);
    worker_stack_install();
    struct worker_env env = {0};
    struct worker *worker = NULL;
    assert_int_equal(worker_new(&env, &worker, NULL), PAWL_OK);
    worker_stack_of(worker);
    pthread_mutex_lock(&hung);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, hang, NULL), 0);
    raise(SIGUSR2); /* returns when the handler has */
    snprintf(path, sizeof path, "%s/rank-4294967295.%d", folder, (int)getpid());
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("%s: there is no such file", path);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = 0;
    fclose(file);
    assert_int_equal(strncmp(text, "last instruction: none\n", 23), 0);
    /* These four, and what libraries have started. */
    if (count(text, "\nthread ") < 4 || count(text, "(main)") != 1)
        fail_msg("four threads, not in\n%s", text);
    if (count(text, "[0x") < 12) fail_msg("four stacks, not in\n%s", text);
    pthread_mutex_unlock(&hung);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    unlink(path);
    worker_stack_of(NULL);
    raise(SIGUSR2);
    if (access(path, F_OK) == 0) fail_msg("%s: written without a worker", path);
    rmdir(folder);
    worker_free(worker, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_threads_answer_while_they_hang_with_a_lock_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
