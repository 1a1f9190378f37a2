/* Implementation of run/inject.h: text, lists, the note of what has fired, the launcher's own faults. */
#include "run/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

/* Beyond these a fault is a slip of the pen: eleven days, and a device that stands still. */
#define SECONDS_MAX 1e6

/* Less than a nanosecond would be none, and none is for ever (store_fail). */
#define SECONDS_MIN 1e-6

#define FACTOR_MAX 1e4

enum amount { AMOUNT_NONE, AMOUNT_SECONDS, AMOUNT_FACTOR, AMOUNT_ERRNO };

static const struct form {
    const char *name;
    bool ranked; /* ":RANK" before the "@" */
    bool launcher, all;
    enum amount amount;
    enum fault_point point; /* by default */
    const char *text;
} forms[INJECT_KIND_COUNT] = {
    [INJECT_KILL] = {"kill", true, true, true, AMOUNT_NONE, FAULT_AFTER_FORWARD,
                     "kill:RANK@STEP[:POINT], RANK a number, \"all\" or \"launcher\""},
    [INJECT_TERM] = {"term", true, true, false, AMOUNT_NONE, FAULT_AFTER_FORWARD,
                     "term:RANK@STEP[:POINT], RANK a number or \"launcher\""},
    [INJECT_STOP] = {"stop", true, false, false, AMOUNT_SECONDS, FAULT_AFTER_FORWARD,
                     "stop:RANK@STEP:SECONDS[:POINT]"},
    [INJECT_SLOW] = {"slow", true, false, false, AMOUNT_FACTOR, FAULT_AFTER_FORWARD,
                     "slow:RANK@STEP:FACTOR[:POINT], FACTOR from 1"},
    [INJECT_NET] = {"net", true, false, false, AMOUNT_SECONDS, FAULT_AFTER_FORWARD,
                    "net:RANK@STEP:SECONDS[:POINT]"},
    [INJECT_DISK] = {"disk", true, false, false, AMOUNT_ERRNO, FAULT_AFTER_FORWARD,
                     "disk:RANK@STEP:ERRNO[:SECONDS][:POINT], ERRNO a name as ENOSPC or EIO, or \"stuck\""},
    [INJECT_COORD] = {"coord", false, false, false, AMOUNT_NONE, FAULT_COORD_DECIDED, "coord@STEP[:POINT]"},
    [INJECT_JOIN] = {"join", false, false, false, AMOUNT_NONE, FAULT_LAUNCH_DECIDED, "join@STEP[:POINT]"},
};

/* ---- one fault ---- */

static pawl_code malformed(const char *text, const char *form, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: expected %s", text, form);
}

static bool take_number(const char **at, uint64_t *out) {
    if (**at < '0' || **at > '9') return false;
    char *end;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

static bool take_word(const char **at, const char *word) {
    size_t size = strlen(word);
    if (strncmp(*at, word, size) != 0) return false;
    *at += size;
    return true;
}

/* A number with a fraction, no sign, no exponent. */
static bool take_amount(const char **at, double *out) {
    size_t size = strspn(*at, "0123456789.");
    if (**at < '0' || **at > '9') return false;
    char *end;
    *out = strtod(*at, &end);
    *at += size;
    return end == *at && isfinite(*out);
}

static pawl_code take_rank(const char **at, const struct form *form, const struct inject_limits *limits,
                           struct inject *out, struct pawl_error *e) {
    uint64_t rank = 0;
    if (form->all && take_word(at, "all")) {
        out->rank = INJECT_ALL;
    } else if (form->launcher && take_word(at, "launcher")) {
        out->rank = INJECT_LAUNCHER;
    } else if (!take_number(at, &rank)) {
        return malformed(out->text, form->text, e);
    } else if (rank >= (limits != NULL ? limits->ranks : INJECT_LAUNCHER)) {
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: rank %llu, but the run has ranks 0 to %u",
                         out->text, (unsigned long long)rank, limits != NULL ? limits->ranks - 1 : 0);
    } else {
        out->rank = (uint32_t)rank;
    }
    return PAWL_OK;
}

static pawl_code take_seconds(const char **at, struct inject *out, struct pawl_error *e) {
    if (!take_amount(at, &out->amount) || out->amount < SECONDS_MIN || out->amount > SECONDS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: SECONDS is %.6f to %.0f: expected %s", out->text,
                         SECONDS_MIN, SECONDS_MAX, forms[out->kind].text);
    return PAWL_OK;
}

static pawl_code take_errno(const char **at, struct inject *out, struct pawl_error *e) {
    size_t size = strcspn(*at, ":");
    out->os_errno = -1;
    if (size == 5 && strncmp(*at, "stuck", 5) == 0) out->os_errno = 0;
    for (int i = 1; i < 256 && out->os_errno < 0; i++) {
        const char *name = strerrorname_np(i);
        if (name != NULL && strlen(name) == size && strncmp(name, *at, size) == 0) out->os_errno = i;
    }
    if (out->os_errno < 0)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: %.*s is no error's name: expected %s", out->text,
                         (int)size, *at, forms[INJECT_DISK].text);
    *at += size;
    if ((*at)[0] != ':' || (*at)[1] < '0' || (*at)[1] > '9') return PAWL_OK; /* for ever */
    ++*at;
    return take_seconds(at, out, e);
}

static pawl_code take_amount_of(const char **at, const struct form *form, struct inject *out,
                                struct pawl_error *e) {
    if (form->amount == AMOUNT_NONE) return PAWL_OK;
    if (**at != ':') return malformed(out->text, form->text, e);
    ++*at;
    switch (form->amount) {
    case AMOUNT_ERRNO:
        return take_errno(at, out, e);
    case AMOUNT_SECONDS:
        return take_seconds(at, out, e);
    default:
        if (take_amount(at, &out->amount) && out->amount >= 1 && out->amount <= FACTOR_MAX) return PAWL_OK;
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: FACTOR is 1 to %.0f: expected %s", out->text,
                         FACTOR_MAX, form->text);
    }
}

/* Which process passes the points of this fault. */
static enum fault_who who_passes(const struct inject *f) {
    if (f->kind == INJECT_COORD) return FAULT_WHO_COORD;
    if (f->kind == INJECT_JOIN || f->rank >= INJECT_LAUNCHER) return FAULT_WHO_LAUNCH;
    return FAULT_WHO_WORKER;
}

static pawl_code take_point(const char *name, struct inject *out, struct pawl_error *e) {
    enum fault_who who = who_passes(out);
    out->point = fault_of_name(name);
    if (out->point != FAULT_NONE && fault_who(out->point) == who) return PAWL_OK;
    char names[512] = "";
    for (uint32_t p = 1; p < FAULT_COUNT; p++) {
        if (fault_who((enum fault_point)p) != who) continue;
        strncat(names, names[0] != 0 ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, fault_name((enum fault_point)p), sizeof names - strlen(names) - 1);
    }
    return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: no point \"%s\" for this fault; there are %s",
                     out->text, name, names);
}

static const struct form *form_of(const char *text) {
    size_t size = strcspn(text, ":@");
    for (size_t k = 0; k < INJECT_KIND_COUNT; k++)
        if (strlen(forms[k].name) == size && strncmp(forms[k].name, text, size) == 0) return &forms[k];
    return NULL;
}

static pawl_code take_step(const char **at, const struct form *form, const struct inject_limits *limits,
                           struct inject *out, struct pawl_error *e) {
    if (*(*at)++ != '@' || !take_number(at, &out->step)) return malformed(out->text, form->text, e);
    if (limits != NULL && out->step > limits->steps)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: step %llu never comes, the run has %llu steps",
                         out->text, (unsigned long long)out->step, (unsigned long long)limits->steps);
    if (out->step == 0) out->step = 1;
    return PAWL_OK;
}

pawl_code inject_parse(const char *text, const struct inject_limits *limits, struct inject *out,
                       struct pawl_error *e) {
    *out = (struct inject){.rank = 0};
    if (strlen(text) >= sizeof out->text)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "--inject %.40s...: %zu characters, no fault takes more than %zu", text,
                         strlen(text), sizeof out->text - 1);
    memcpy(out->text, text, strlen(text) + 1);
    const struct form *form = form_of(text);
    if (form == NULL || strchr(text, '\n') != NULL)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "--inject %s: no such fault; there are kill, term, stop, slow, net, disk, coord, "
                         "join and random (docs/faults.md)",
                         text);
    out->kind = (enum inject_kind)(form - forms);
    const char *at = text + strlen(form->name);
    pawl_code code = PAWL_OK;
    if (form->ranked && *at++ != ':') return malformed(text, form->text, e);
    if (form->ranked) code = take_rank(&at, form, limits, out, e);
    if (code == PAWL_OK) code = take_step(&at, form, limits, out, e);
    if (code == PAWL_OK) code = take_amount_of(&at, form, out, e);
    if (code != PAWL_OK) return code;
    out->point = out->rank >= INJECT_LAUNCHER ? FAULT_LAUNCH_DECIDED : form->point;
    if (*at == ':') return take_point(at + 1, out, e);
    return *at == 0 ? PAWL_OK : malformed(text, form->text, e);
}

/* ---- lists ---- */

pawl_code inject_set_add(struct inject_set *set, const struct inject *one, struct pawl_error *e) {
    struct inject *more = realloc(set->items, (set->count + 1) * sizeof *more);
    if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u faults", set->count + 1);
    set->items = more;
    set->items[set->count++] = *one;
    return PAWL_OK;
}

/* random:SEED:RATE */
static pawl_code add_random(struct inject_set *set, const char *text, const struct inject_limits *limits,
                            struct pawl_error *e) {
    const char *at = text;
    uint64_t seed;
    double rate;
    if (!take_word(&at, "random:") || !take_number(&at, &seed) || *at++ != ':' || !take_amount(&at, &rate) ||
        *at != 0 || rate <= 0 || rate > 100)
        return malformed(text, "random:SEED:RATE, RATE the faults in 100 steps, more than 0 and at most 100",
                         e);
    return inject_draw(set, seed, rate, limits, e);
}

/* A fault that struck is known by its text alone: of two that are alike one would be waited for in vain. */
static pawl_code check_new(const char *const *texts, uint32_t index, struct pawl_error *e) {
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(texts[i], texts[index]) == 0)
            return error_set(
                e, PAWL_ARGUMENT, 0,
                "--inject %s: given twice, and each fault strikes once: name another step or point",
                texts[index]);
    return PAWL_OK;
}

pawl_code inject_set_open(const char *const *texts, uint32_t count, const struct inject_limits *limits,
                          struct inject_set *out, struct pawl_error *e) {
    *out = (struct inject_set){.count = 0};
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        struct inject one;
        code = check_new(texts, i, e);
        if (code != PAWL_OK) break;
        if (strncmp(texts[i], "random", 6) == 0) {
            code = add_random(out, texts[i], limits, e);
            continue;
        }
        code = inject_parse(texts[i], limits, &one, e);
        if (code == PAWL_OK) code = inject_set_add(out, &one, e);
    }
    return code;
}

void inject_set_close(struct inject_set *set) {
    free(set->items);
    *set = (struct inject_set){.count = 0};
}

/* ---- the note ---- */

#define NOTE_NAME      "injected"
#define NOTE_BYTES_MAX ((size_t)1 << 20) /* ten thousand faults; beyond that somebody else wrote the file */

static int note_open(const char *run_dir, int flags) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", run_dir, NOTE_NAME);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, flags | O_CLOEXEC, 0666);
}

void inject_note(const char *run_dir, const char *text) {
    char line[INJECT_TEXT_BYTES + 1];
    size_t size = strnlen(text, INJECT_TEXT_BYTES - 1);
    memcpy(line, text, size);
    line[size++] = '\n';
    int fd = note_open(run_dir, O_WRONLY | O_APPEND | O_CREAT);
    if (fd < 0) return;
    /* One write: two processes that are struck at once each get their line. Lost, the fault strikes again. */
    if (write(fd, line, size) < 0) errno = 0;
    close(fd);
}

static void mark_fired(struct inject_set *set, const char *line, size_t size) {
    for (uint32_t i = 0; i < set->count; i++)
        if (strlen(set->items[i].text) == size && memcmp(set->items[i].text, line, size) == 0)
            set->items[i].fired = true;
}

pawl_code inject_set_read(struct inject_set *set, const char *run_dir, struct pawl_error *e) {
    int fd = note_open(run_dir, O_RDONLY);
    if (fd < 0 && errno == ENOENT) return PAWL_OK;
    if (fd < 0)
        return error_set(e, error_code_of_errno(errno), errno, "cannot read %s/%s", run_dir, NOTE_NAME);
    struct bytes text = {0};
    char part[4096];
    ssize_t got;
    while ((got = read(fd, part, sizeof part)) > 0 && text.size < NOTE_BYTES_MAX)
        bytes_put(&text, part, (size_t)got);
    int failed = got < 0 ? errno : 0;
    close(fd);
    for (size_t at = 0; at < text.size;) {
        const char *line = (const char *)text.data + at;
        const char *end = memchr(line, '\n', text.size - at);
        size_t size = end != NULL ? (size_t)(end - line) : text.size - at;
        mark_fired(set, line, size);
        at += size + 1;
    }
    bool no_memory = text.failed;
    bytes_close(&text);
    if (failed != 0) return error_set(e, PAWL_IO, failed, "cannot read %s/%s", run_dir, NOTE_NAME);
    return no_memory ? error_set(e, PAWL_MEMORY, 0, "no memory for %s/%s", run_dir, NOTE_NAME) : PAWL_OK;
}

/* ---- handing out ---- */

static const struct inject *next_for(const struct inject_set *set, enum fault_who who, uint32_t rank,
                                     uint32_t *at) {
    while (*at < set->count) {
        const struct inject *f = &set->items[(*at)++];
        if (!f->fired && who_passes(f) == who && (who != FAULT_WHO_WORKER || f->rank == rank)) return f;
    }
    return NULL;
}

const struct inject *inject_for_rank(const struct inject_set *set, uint32_t rank, uint32_t *at) {
    return next_for(set, FAULT_WHO_WORKER, rank, at);
}

const struct inject *inject_for_coord(const struct inject_set *set, uint32_t *at) {
    return next_for(set, FAULT_WHO_COORD, 0, at);
}

/* ---- the launcher's own ---- */

static void strike_launcher(const struct inject *f, const struct inject_launch *does) {
    inject_note(does->run_dir, f->text);
    if (f->kind == INJECT_JOIN) {
        does->join(does->context, f->text);
    } else if (f->kind == INJECT_TERM) {
        kill(getpid(), SIGTERM);
    } else {
        if (f->rank == INJECT_ALL) does->kill_all(does->context, f->text);
        kill(getpid(), SIGKILL);
    }
}

void inject_launch(struct inject_set *set, enum fault_point point, uint64_t version,
                   const struct inject_launch *does) {
    uint64_t step = point == FAULT_LAUNCH_DECIDED ? version : version + 1; /* begun, or just taken */
    /* What ends this process comes last. */
    static const enum inject_kind order[] = {INJECT_JOIN, INJECT_TERM, INJECT_KILL};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++)
        for (uint32_t i = 0; i < set->count; i++) {
            struct inject *f = &set->items[i];
            if (f->kind != order[k] || f->point != point || f->step > step || f->fired) continue;
            f->fired = true;
            strike_launcher(f, does);
        }
}
