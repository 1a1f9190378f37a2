/* See scratch.h. Tested in tests/unit/tune_measure_test.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "tune/scratch.h"

#define PREFIX ".pawl-scratch-"

static volatile sig_atomic_t stop_signal;
static struct sigaction before_int, before_term, before_pipe;

static void on_signal(int number) { stop_signal = number; }

int scratch_stopped(void) { return stop_signal; }

static void watch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    stop_signal = 0;
    sigaction(SIGINT, &action, &before_int);
    sigaction(SIGTERM, &action, &before_term);
    sigaction(SIGPIPE, NULL, &before_pipe);
    if (before_pipe.sa_handler == SIG_DFL) sigaction(SIGPIPE, &action, NULL); /* it would kill us half-way */
}

static void forget_signals(void) {
    sigaction(SIGINT, &before_int, NULL);
    sigaction(SIGTERM, &before_term, NULL);
    sigaction(SIGPIPE, &before_pipe, NULL);
}

/* Files only: nothing here makes folders within. */
static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    (void)rmdir(path);
}

/* Nobody holds the lock: its owner was killed. */
static void remove_stale(const char *path) {
    struct store *s = NULL;
    if (store_open(path, STORE_PLAIN, false, &s, NULL, NULL) != PAWL_OK) return;
    store_close(s);
    remove_folder(path);
}

static void remove_leftovers(const char *dir) {
    DIR *folder = opendir(dir);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[sizeof((struct scratch *)0)->path];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0) continue;
        int size = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (size > 0 && (size_t)size < sizeof path) remove_stale(path);
    }
    closedir(folder);
}

pawl_code scratch_open(const char *dir, struct scratch *out, struct pawl_error *e) {
    struct stat st;
    *out = (struct scratch){0};
    if (stat(dir, &st) != 0)
        return error_set(e, error_code_of_errno(errno), errno, "%s: cannot measure there", dir);
    if (!S_ISDIR(st.st_mode)) return error_set(e, PAWL_ARGUMENT, ENOTDIR, "%s: cannot measure there", dir);
    remove_leftovers(dir);
    int size = snprintf(out->path, sizeof out->path, "%s/" PREFIX "%ld", dir, (long)getpid());
    if (size < 0 || (size_t)size >= sizeof out->path)
        return error_set(e, PAWL_ARGUMENT, ENAMETOOLONG, "%s: cannot measure there", dir);
    watch_signals();
    if (mkdir(out->path, 0700) != 0) {
        int failed = errno;
        forget_signals();
        return error_set(e, error_code_of_errno(failed), failed, "%s: cannot be made", out->path);
    }
    out->made = true;
    return PAWL_OK;
}

void scratch_close(struct scratch *s) {
    if (!s->made) return;
    remove_folder(s->path);
    s->made = false;
    forget_signals();
}
