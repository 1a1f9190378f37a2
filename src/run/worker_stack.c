/* Implementation of run/worker_stack.h. */
#include "run/worker_stack.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ir/ir.h"

#define FRAMES_MAX 64

/* A thread that is asked for its stack writes it within this, or is passed over: it blocks the signal. */
#define ANSWER_NS INT64_C(20000000)
#define WAIT_NS   INT64_C(200000)

static char folder[PATH_MAX];
static _Atomic(const struct worker *) subject;
static _Atomic int file = -1; /* being written */
static _Atomic int answering; /* thread that is to write its stack; 0: it has */
static _Atomic bool under_way;

/* Text without stdio: the handler may have interrupted it. */
struct line {
    char text[PATH_MAX + 64];
    size_t size;
};

static void put(struct line *l, const char *text) {
    size_t size = strlen(text);
    if (size > sizeof l->text - 1 - l->size) size = sizeof l->text - 1 - l->size;
    memcpy(l->text + l->size, text, size);
    l->size += size;
    l->text[l->size] = 0;
}

static void put_number(struct line *l, uint64_t v) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do digits[--at] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    put(l, digits + at);
}

static void flush(struct line *l, int fd) {
    for (size_t at = 0; at < l->size;) {
        ssize_t n = write(fd, l->text + at, l->size - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* it is evidence: what there is must do */
        at += (size_t)n;
    }
    l->size = 0;
}

static int own_thread(void) { return (int)syscall(SYS_gettid); }

static void write_stack(int fd, int thread) {
    struct line l = {.size = 0};
    put(&l, "thread ");
    put_number(&l, (uint64_t)thread);
    put(&l, thread == getpid() ? " (main)\n" : "\n");
    flush(&l, fd);
    void *frames[FRAMES_MAX];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), fd);
}

static int thread_signal(void) { return SIGRTMIN + 3; }

static void on_thread_signal(int signal) {
    (void)signal;
    int saved = errno, fd = atomic_load(&file), self = own_thread();
    if (fd >= 0 && atomic_load(&answering) == self) {
        write_stack(fd, self);
        atomic_store(&answering, 0);
    }
    errno = saved;
}

static void ask_thread(int thread) {
    atomic_store(&answering, thread);
    if (syscall(SYS_tgkill, getpid(), thread, thread_signal()) != 0) return;
    struct timespec wait = {.tv_nsec = WAIT_NS};
    for (int64_t waited = 0; waited < ANSWER_NS && atomic_load(&answering) != 0; waited += WAIT_NS)
        nanosleep(&wait, NULL);
}

struct entry { /* of getdents64 */
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

static void write_other_threads(void) {
    int self = own_thread(), fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    _Alignas(struct entry) char raw[4096];
    for (long n; (n = syscall(SYS_getdents64, fd, raw, sizeof raw)) > 0;)
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(const void *)(raw + at);
            int thread = 0;
            for (const char *c = entry->name; *c >= '0' && *c <= '9'; c++) thread = thread * 10 + (*c - '0');
            if (thread > 0 && thread != self) ask_thread(thread);
            at += entry->size;
        }
    close(fd);
}

static void write_instruction(int fd, const struct worker *w) {
    struct message_at at = worker_at(w);
    struct line l = {.size = 0};
    put(&l, "last instruction: ");
    if (at.op >= IR_OP_COUNT) {
        put(&l, "none\n");
    } else {
        put(&l, ir_op_name((enum ir_op)at.op));
        put_number(&l, at.chunk);
        if (at.op != IR_R && at.op != IR_S) {
            put(&l, ":");
            put_number(&l, at.home);
            put(&l, ".");
            put_number(&l, at.microbatch);
        }
        put(&l, " at position ");
        put_number(&l, at.position);
        put(&l, " of iteration ");
        put_number(&l, at.iteration);
        put(&l, "\n");
    }
    flush(&l, fd);
}

static void on_ask(int signal) {
    (void)signal;
    int saved = errno;
    const struct worker *w = atomic_load(&subject);
    if (w == NULL || folder[0] == 0 || atomic_exchange(&under_way, true)) {
        errno = saved;
        return;
    }
    struct line path = {.size = 0}, part = {.size = 0};
    put(&path, folder);
    put(&path, "/rank-");
    put_number(&path, worker_rank(w));
    put(&path, ".");
    put_number(&path, (uint64_t)getpid());
    put(&part, path.text);
    put(&part, ".part");
    int fd = open(part.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
        write_instruction(fd, w);
        atomic_store(&file, fd);
        write_stack(fd, own_thread());
        write_other_threads();
        atomic_store(&file, -1);
        close(fd);
        rename(part.text, path.text);
    }
    atomic_store(&under_way, false);
    errno = saved;
}

static void catch_signal(int signal, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    sigdelset(&action.sa_mask, SIGKILL);
    sigaction(signal, &action, NULL);
}

void worker_stack_install(void) {
    const char *named = getenv("PAWL_EVIDENCE");
    if (named != NULL && strlen(named) < sizeof folder) memcpy(folder, named, strlen(named) + 1);
    void *frames[FRAMES_MAX];
    backtrace(frames, FRAMES_MAX); /* the first one loads a library: not to be done in a handler */
    catch_signal(thread_signal(), on_thread_signal);
    catch_signal(SIGUSR2, on_ask);
}

void worker_stack_of(const struct worker *worker) { atomic_store(&subject, worker); }
