/* One writer per folder: a lock that ends with the process that took it, whatever becomes of its children.
 *
 * flock(2) belongs to the open file, which fork(2) shares: a child that lives on (a loader of data, say)
 * would keep a dead parent's store locked. So a child closes what it inherited before fork returns in it, for
 * which all locks of the process are in one list. A child that is a new program has them closed by O_CLOEXEC.
 * Tested in tests/unit/store_files_test.c. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/posix.h"

#define LOCK_NAME ".lock"

static struct {
    pthread_mutex_t mutex;
    struct store_lock *first;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) { pthread_mutex_lock(&all.mutex); }

static void after_fork(void) { pthread_mutex_unlock(&all.mutex); }

static void in_child(void) {
    for (struct store_lock *l = all.first; l != NULL; l = l->next) {
        close(l->fd);
        l->fd = -1;
    }
    all.first = NULL;
    pthread_mutex_unlock(&all.mutex);
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork, in_child); }

/* Not by the number in the file: other containers have processes of the same number. */
static bool is_ours(int fd) {
    struct stat asked, held;
    if (fstat(fd, &asked) != 0) return false;
    for (struct store_lock *l = all.first; l != NULL; l = l->next)
        if (fstat(l->fd, &held) == 0 && held.st_dev == asked.st_dev && held.st_ino == asked.st_ino)
            return true;
    return false;
}

static pawl_code busy(int fd, const char *path, struct pawl_error *e) {
    char owner[32] = "";
    ssize_t size = pread(fd, owner, sizeof owner - 1, 0);
    if (size < 0) size = 0;
    owner[strcspn(owner, "\n")] = 0;
    if (is_ours(fd))
        return error_set(e, PAWL_BUSY, 0, "%s: this process has this store open already: close it first",
                         path);
    if (owner[0] == 0 || size == 0)
        return error_set(e, PAWL_BUSY, 0, "%s: another process has this store open", path);
    return error_set(e, PAWL_BUSY, 0, "%s: process %s has this store open", path, owner);
}

/* The number is for people; a lock without it still locks, so a full disk is no reason to stop here. */
static void sign(int fd) {
    char owner[32];
    int size = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0 && pwrite(fd, owner, (size_t)size, 0) < 0) return;
}

static pawl_code take(int fd, const char *path, struct pawl_error *e) {
    if (fd < 0)
        return error_set(e, error_code_of_errno(errno), errno, "%s/" LOCK_NAME ": cannot open the lock file",
                         path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return PAWL_OK;
    if (errno == EWOULDBLOCK) return busy(fd, path, e);
    return error_set(e, error_code_of_errno(errno), errno, "%s/" LOCK_NAME ": cannot lock", path);
}

pawl_code store_lock_take(struct store_lock *l, int folder_fd, const char *path, struct pawl_error *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&all.mutex); /* no fork between opening and the list */
    int fd = openat(folder_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    pawl_code code = take(fd, path, e);
    if (code == PAWL_OK) {
        sign(fd);
        *l = (struct store_lock){.fd = fd, .next = all.first};
        all.first = l;
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&all.mutex);
    return code;
}

void store_lock_give(struct store_lock *l) {
    pthread_mutex_lock(&all.mutex);
    for (struct store_lock **at = &all.first; *at != NULL; at = &(*at)->next)
        if (*at == l) {
            *at = l->next;
            break;
        }
    if (l->fd >= 0) {
        (void)flock(l->fd, LOCK_UN); /* a child that was forked just now may not have closed its own yet */
        close(l->fd);
    }
    l->fd = -1;
    pthread_mutex_unlock(&all.mutex);
}
