/* Implementation of run/progress.h: log files for machines, the standard error output for people.
 *
 * Telling must never stop or end the training: a full disk, a closed pipe or a terminal on hold costs lines,
 * which are counted and reported once, never the run. A log may be a pipe that nobody reads any more: nothing
 * waits for it. A log line is one write(2) on an O_APPEND file, so writers do not mix and a kill tears at
 * most the last line; a torn line, whoever left it, is closed with a newline before the next. Used by one
 * thread. Tested in tests/unit/run_progress_test.c. */
#include "run/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

#define STATE_TTY_NS   INT64_C(100000000)  /* 10 a second: faster than anybody reads */
#define STATE_PLAIN_NS INT64_C(5000000000) /* a line every 5 s: a job's log stays short */
#define HUMAN_MAX      1024                /* bytes of a line on the screen */

struct log_file {
    int fd;    /* -1: none */
    bool torn; /* the last line that was written has no end; asked where the file cannot tell */
};

struct progress {
    struct log_file logs[2];
    bool quiet, terminal;
    bool state_shown;  /* the terminal's last line is a state line */
    bool state_due;    /* the newest state has not been printed */
    bool state_begun;  /* one has been printed */
    int64_t shown_ns;  /* when */
    uint64_t log_lost; /* lines */
    bool log_loss_told;
    struct progress_state state;
    struct bytes line;
    struct json json;
};

/* --- the screen --- */

/* Lines that a held or full output would block on are dropped. */
static void screen_write(const char *text, size_t size) {
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
        (void)file_write_unsignalled(STDERR_FILENO, text, size);
}

static size_t screen_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

/* One write: what wipes the state line, the text, its end. */
static void screen_line(struct progress *p, const char *text) {
    char out[HUMAN_MAX + 16];
    if (p->quiet) return;
    int size = snprintf(out, sizeof out, "%s%.*s\n", p->state_shown ? "\r\033[K" : "", HUMAN_MAX, text);
    if (size > 0) screen_write(out, (size_t)size);
    p->state_shown = false;
}

/* --- the logs --- */

static void log_lost(struct progress *p, int err) {
    p->log_lost++;
    if (p->log_loss_told) return;
    p->log_loss_told = true;
    char text[256];
    snprintf(text, sizeof text, "the log cannot be written (%s); training goes on without it",
             err == EAGAIN ? "nobody reads it" : strerror(err));
    screen_line(p, text);
}

/* Its last line has no end: ours, or that of another writer. */
static bool ends_torn(const struct log_file *log) {
    char last = '\n';
    off_t end = lseek(log->fd, 0, SEEK_END);
    if (end < 0 || (end > 0 && pread(log->fd, &last, 1, end - 1) != 1)) return log->torn;
    return last != '\n';
}

static void log_write(struct progress *p, struct log_file *log) {
    if (log->fd < 0) return;
    size_t skip = ends_torn(log) ? 0 : 1; /* the line is kept with a newline in front */
    ssize_t wrote = file_write_unsignalled(log->fd, p->line.data + skip, p->line.size - skip);
    if (wrote == (ssize_t)(p->line.size - skip)) {
        log->torn = false;
        return;
    }
    if (wrote > 0) log->torn = true;
    log_lost(p, wrote < 0 ? errno : ENOSPC);
}

/* Not blocking: neither the opening of a pipe nor a line waits for a reader. */
static pawl_code log_open(const char *path, struct log_file *log, struct pawl_error *e) {
    const int flags = O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    log->fd = -1;
    if (path == NULL) return PAWL_OK;
    log->fd = open(path, O_RDWR | O_CREAT | flags, 0666);
    int why = errno;
    if (log->fd < 0) log->fd = open(path, O_WRONLY | flags); /* one that may only be written */
    if (log->fd >= 0) return PAWL_OK;
    if (errno != ENOENT) why = errno; /* else what keeps it from being made tells more */
    return error_set(e, error_code_of_errno(why), why, "opening log %s", path);
}

pawl_code progress_open(const char *log_path, const char *log_path2, bool quiet, struct progress **out,
                        struct pawl_error *e) {
    *out = NULL;
    struct progress *p = calloc(1, sizeof *p);
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the progress line");
    p->quiet = quiet;
    p->terminal = isatty(STDERR_FILENO) == 1;
    p->logs[1].fd = -1;
    pawl_code code = log_open(log_path, &p->logs[0], e);
    if (code == PAWL_OK) code = log_open(log_path2, &p->logs[1], e);
    if (code == PAWL_OK)
        *out = p;
    else
        progress_close(p);
    return code;
}

struct json *progress_begin(struct progress *p, const char *event) {
    char now[40];
    clock_utc(now, sizeof now);
    bytes_clear(&p->line);
    bytes_put_u8(&p->line, '\n');
    p->json = json_begin(&p->line);
    json_object(&p->json, NULL);
    json_text(&p->json, "time", now);
    json_text(&p->json, "event", event);
    return &p->json;
}

void progress_end(struct progress *p, const char *human, ...) {
    json_end_object(&p->json);
    bytes_put_u8(&p->line, '\n');
    if (p->line.failed)
        log_lost(p, ENOMEM);
    else
        for (int i = 0; i < 2; i++) log_write(p, &p->logs[i]);
    if (human == NULL) return;
    char text[HUMAN_MAX];
    va_list args;
    va_start(args, human);
    vsnprintf(text, sizeof text, human, args);
    va_end(args);
    screen_line(p, text);
}

/* --- the state line --- */

/* 950, 5.1k, 2.3M: three digits and a unit. */
static void print_count(double v, char *out, size_t size) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    size_t unit = 0;
    if (!isfinite(v) || v < 0) v = 0;
    while (v >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) v /= 1000, unit++;
    snprintf(out, size, "%.*f%s", unit > 0 && v < 99.95 ? 1 : 0, v, units[unit]);
}

/* 0:42, 12:05, 3:07:12; unknown: "-". */
static void print_time(double seconds, char *out, size_t size) {
    if (!isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        snprintf(out, size, "-");
        return;
    }
    unsigned long s = (unsigned long)(seconds + 0.5);
    if (s < 3600)
        snprintf(out, size, "%lu:%02lu", s / 60, s % 60);
    else
        snprintf(out, size, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
}

static void print_state(const struct progress_state *s, char *out, size_t size) {
    char rate[32], eta[32], durable[64] = "durable none", total[24];
    print_count(s->tokens_per_s, rate, sizeof rate);
    print_time(s->eta_s, eta, sizeof eta);
    int width = snprintf(total, sizeof total, "%llu", (unsigned long long)s->steps);
    if (s->has_durable)
        snprintf(durable, sizeof durable, "durable %llu (%.1f s ago)", (unsigned long long)s->durable_step,
                 s->durable_age_s);
    snprintf(out, size, "step %*llu/%s  loss %.4f  |g| %.2f  %s tok/s  workers %u/%u  %s  eta %s", width,
             (unsigned long long)s->step, total, s->loss, s->grad_norm, rate, s->live, s->workers, durable,
             eta);
}

static void show_state(struct progress *p, int64_t now) {
    char text[HUMAN_MAX], out[HUMAN_MAX + 16];
    print_state(&p->state, text, sizeof text);
    p->state_due = false;
    p->state_begun = true;
    p->shown_ns = now;
    if (!p->terminal) {
        screen_line(p, text);
        return;
    }
    /* A line wider than the terminal would wrap, and then not be wiped. */
    int size = snprintf(out, sizeof out, "\r\033[K%.*s", (int)screen_columns() - 1, text);
    screen_write(out, (size_t)size);
    p->state_shown = true;
}

void progress_state(struct progress *p, const struct progress_state *state) {
    if (p->quiet) return;
    int64_t now = clock_now_ns();
    p->state = *state;
    p->state_due = true;
    int64_t pause = p->terminal ? STATE_TTY_NS : STATE_PLAIN_NS;
    if (!p->state_begun || now - p->shown_ns >= pause) show_state(p, now);
}

void progress_close(struct progress *p) {
    if (p == NULL) return;
    if (p->state_due) show_state(p, clock_now_ns());
    if (p->state_shown) screen_write("\n", 1);
    p->state_shown = false;
    if (p->log_lost > 1) {
        char text[96];
        snprintf(text, sizeof text, "%llu log lines were lost", (unsigned long long)p->log_lost);
        screen_line(p, text);
    }
    for (int i = 0; i < 2; i++)
        if (p->logs[i].fd >= 0) close(p->logs[i].fd);
    bytes_close(&p->line);
    free(p);
}
