/* See trace.h. Numbers are plain decimals in every locale; a line that does not fit the format is FORMAT. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tune/trace.h"

struct line { /* what is left of it */
    const char *at, *end;
    uint32_t number;
};

static bool next_line(const char **at, const char *end, struct line *l) {
    if (*at == end) return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    l->at = *at;
    l->end = stop != NULL ? stop : end;
    *at = stop != NULL ? stop + 1 : end;
    if (l->end > l->at && l->end[-1] == '\r') l->end--;
    l->number++;
    return true;
}

static bool take_number(struct line *l, double *out) {
    double value = 0, place = 1;
    const char *begin = l->at;
    bool point = false;
    for (; l->at < l->end && (isdigit((unsigned char)*l->at) || (*l->at == '.' && !point)); l->at++) {
        if (*l->at == '.') {
            point = true;
            continue;
        }
        value = value * 10 + (*l->at - '0');
        if (point) place *= 10;
    }
    *out = value / place;
    return l->at > begin && isfinite(*out);
}

static bool take(struct line *l, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(l->end - l->at) < size || memcmp(l->at, word, size) != 0) return false;
    l->at += size;
    return true;
}

static pawl_code add_sample(struct trace *t, double time_s, uint32_t count, struct pawl_error *e) {
    if ((t->count & (t->count - 1)) == 0) { /* full at each power of two */
        size_t room = t->count == 0 ? 1 : 2 * (size_t)t->count;
        struct trace_sample *more = realloc(t->samples, room * sizeof *more);
        if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a trace");
        t->samples = more;
    }
    t->samples[t->count++] = (struct trace_sample){time_s, count};
    return PAWL_OK;
}

/* "0,1652434464.406314,56" */
static bool read_count(struct line *l, double *time_s, double *count) {
    double index;
    return take_number(l, &index) && take(l, ",") && take_number(l, time_s) && take(l, ",") &&
           take_number(l, count) && l->at == l->end && *count == floor(*count) && *count <= UINT32_MAX;
}

/* "60000,remove,node3": `count` becomes what there is then. */
static bool read_event(struct line *l, double *time_s, double *count) {
    if (!take_number(l, time_s) || !take(l, ",")) return false;
    *time_s /= 1000;
    if (take(l, "add,"))
        ++*count;
    else if (take(l, "remove,") && *count >= 1)
        --*count;
    else
        return false;
    return l->at < l->end;
}

static pawl_code parse_lines(const char *at, const char *end, bool counts, struct trace *t,
                             struct pawl_error *e) {
    struct line l = {.number = 0};
    double time_s = 0, count = 0, first_s = 0, last_s = 0;
    if (counts) (void)next_line(&at, end, &l); /* the header */
    while (next_line(&at, end, &l)) {
        if (l.at == l.end) continue;
        if (!(counts ? read_count(&l, &time_s, &count) : read_event(&l, &time_s, &count)))
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: wanted \"%s\"", l.number,
                             counts ? "index,seconds,count" : "milliseconds,add or remove,node");
        if (t->count == 0) first_s = time_s;
        if (t->count > 0 && time_s < last_s)
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: goes back in time", l.number);
        last_s = time_s;
        pawl_code code = add_sample(t, time_s - first_s, (uint32_t)count, e);
        if (code != PAWL_OK) return code;
    }
    if (t->count < 2) return error_set(e, PAWL_FORMAT, 0, "trace: %u samples, wanted 2 or more", t->count);
    return PAWL_OK;
}

pawl_code trace_parse(const char *text, size_t size, struct trace *out, struct pawl_error *e) {
    static const char header[] = ",Time,GPUs";
    bool counts = size >= sizeof header - 1 && memcmp(text, header, sizeof header - 1) == 0;
    struct trace t = {.per_machine = counts ? 4 : 1};
    pawl_code code = parse_lines(text, text + size, counts, &t, e);
    if (code == PAWL_OK)
        *out = t;
    else
        trace_free(&t);
    return code;
}

void trace_free(struct trace *t) {
    free(t->samples);
    *t = (struct trace){0};
}

double trace_seconds(const struct trace *t) { return t->samples[t->count - 1].time_s; }

uint32_t trace_changes(const struct trace *t) {
    uint32_t changes = 0, before = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t now = t->samples[i].count;
        changes += (now > before ? now - before : before - now) / t->per_machine;
        before = now;
    }
    return changes;
}

/* Samples before the fall to 0 with which the recording ends. */
static uint32_t recorded(const struct trace *t) {
    uint32_t n = t->count;
    if (t->samples[n - 1].count != 0) return n;
    while (n > 1 && t->samples[n - 2].count >= t->samples[n - 1].count &&
           (t->samples[n - 2].count == 0 || t->samples[n - 1].count < t->samples[n - 2].count))
        n--;
    return n; /* samples[n - 1] is the last before the first of the falling ones */
}

pawl_code trace_drops(const struct trace *t, double **times_s, uint32_t *count, double *end_s,
                      struct pawl_error *e) {
    uint32_t n = recorded(t), drops = 0;
    double *times = malloc(t->count * sizeof *times);
    if (times == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a trace");
    for (uint32_t i = 1; i < n; i++) {
        if (t->samples[i].count >= t->samples[i - 1].count) continue;
        if (drops == 0 || times[drops - 1] < t->samples[i].time_s) times[drops++] = t->samples[i].time_s;
    }
    *times_s = times;
    *count = drops;
    *end_s = t->samples[n - 1].time_s;
    return PAWL_OK;
}
