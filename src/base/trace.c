/* See trace.h. Numbers are plain decimals in every locale; a line that does not fit the format is FORMAT. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trace.h"

#define DAY_S 86400.0

struct cursor { /* what is left of a line */
    const char *at, *end;
    uint32_t number;
};

static bool next_line(const char **at, const char *end, struct cursor *l) {
    if (*at == end) return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    l->at = *at;
    l->end = stop != NULL ? stop : end;
    *at = stop != NULL ? stop + 1 : end;
    if (l->end > l->at && l->end[-1] == '\r') l->end--;
    l->number++;
    return true;
}

static bool take_number(struct cursor *l, double *out) {
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

/* Exactly so many digits. */
static bool take_digits(struct cursor *l, int count, int *out) {
    *out = 0;
    for (; count > 0; count--, l->at++) {
        if (l->at == l->end || !isdigit((unsigned char)*l->at)) return false;
        *out = *out * 10 + (*l->at - '0');
    }
    return true;
}

static bool take(struct cursor *l, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(l->end - l->at) < size || memcmp(l->at, word, size) != 0) return false;
    l->at += size;
    return true;
}

static bool take_count(struct cursor *l, uint32_t *out) {
    double count;
    if (!take_number(l, &count) || l->at != l->end || count != floor(count) || count > UINT32_MAX)
        return false;
    *out = (uint32_t)count;
    return true;
}

/* "0,1652434464.406314,56" */
static bool read_count(struct cursor *l, struct trace_line *out) {
    double index;
    out->kind = TRACE_COUNT;
    return take_number(l, &index) && take(l, ",") && take_number(l, &out->time_s) && take(l, ",") &&
           take_count(l, &out->there);
}

static int days_in_month(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

/* Days since 1 March of year 0, which puts the leap day at the end of a year. */
static double days_to(int year, int month, int day) {
    int y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    return 365.0 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
}

/* "2022-05-13, 09:34:24, 56" */
static bool read_date(struct cursor *l, struct trace_line *out) {
    int year, month, day, hour, minute, second;
    out->kind = TRACE_COUNT;
    if (!take_digits(l, 4, &year) || !take(l, "-") || !take_digits(l, 2, &month) || !take(l, "-") ||
        !take_digits(l, 2, &day) || !take(l, ", "))
        return false;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) return false;
    if (!take_digits(l, 2, &hour) || !take(l, ":") || !take_digits(l, 2, &minute) || !take(l, ":") ||
        !take_digits(l, 2, &second) || !take(l, ", "))
        return false;
    out->time_s = days_to(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
    return hour < 24 && minute < 60 && second <= 60 && take_count(l, &out->there); /* 60: a leap second */
}

/* "60000,remove,node3" */
static bool read_node(struct cursor *l, struct trace_line *out) {
    if (!take_number(l, &out->time_s) || !take(l, ",")) return false;
    out->time_s /= 1000;
    if (take(l, "add,"))
        out->kind = TRACE_ADD;
    else if (take(l, "remove,"))
        out->kind = TRACE_REMOVE;
    else
        return false;
    out->node = l->at;
    out->node_size = (uint32_t)(l->end - l->at);
    return l->at < l->end;
}

static const struct format_rule {
    bool (*read)(struct cursor *l, struct trace_line *out);
    const char *wanted;
} rules[] = {
    [TRACE_NODES] = {read_node, "milliseconds,add or remove,node"},
    [TRACE_COUNTS] = {read_count, "index,seconds,count"},
    [TRACE_DATES] = {read_date, "YYYY-MM-DD, HH:MM:SS, count"},
};

/* The mark that some editors put before UTF-8; no format has it. */
static size_t mark_bytes(const char *text, size_t size) {
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static enum trace_format format_of(const char *text, size_t size) {
    struct cursor l = {.at = text, .end = text + size};
    int year;
    if (take(&l, "index,Time,GPUs") || take(&l, ",Time,GPUs")) return TRACE_COUNTS;
    return take_digits(&l, 4, &year) && take(&l, "-") ? TRACE_DATES : TRACE_NODES;
}

static pawl_code add(struct trace_lines *t, const struct trace_line *line, struct pawl_error *e) {
    if (t->count == UINT32_MAX) return error_set(e, PAWL_FORMAT, 0, "trace: more than %u lines", UINT32_MAX);
    if ((t->count & (t->count - 1)) == 0) { /* full at each power of two */
        size_t room = t->count == 0 ? 1 : 2 * (size_t)t->count;
        struct trace_line *more = realloc(t->line, room * sizeof *more);
        if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a trace");
        t->line = more;
    }
    t->line[t->count++] = *line;
    return PAWL_OK;
}

static pawl_code read_lines(const char *at, const char *end, struct trace_lines *t, struct pawl_error *e) {
    const struct format_rule *rule = &rules[t->format];
    struct cursor l = {.number = 0};
    uint32_t there = 0;
    if (t->format == TRACE_COUNTS) (void)next_line(&at, end, &l); /* the header */
    while (next_line(&at, end, &l)) {
        if (l.at == l.end) continue;
        struct trace_line line = {.number = l.number};
        if (!rule->read(&l, &line))
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: wanted \"%s\"%s", l.number, rule->wanted,
                             at == end && t->cut ? "; the file seems to be cut off there" : "");
        if (line.kind == TRACE_ADD)
            line.there = there + 1;
        else if (line.kind == TRACE_REMOVE)
            line.there = there > 0 ? there - 1 : 0;
        there = line.there;
        pawl_code code = add(t, &line, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code trace_lines_read(const char *text, size_t size, struct trace_lines *out, struct pawl_error *e) {
    size_t mark = mark_bytes(text, size);
    text += mark, size -= mark;
    struct trace_lines t = {.format = format_of(text, size)};
    t.cut = size > 0 && text[size - 1] != '\n';
    t.per_machine = t.format == TRACE_COUNTS ? 4 : 1;
    pawl_code code = read_lines(text, text + size, &t, e);
    if (code == PAWL_OK)
        *out = t;
    else
        trace_lines_close(&t);
    return code;
}

void trace_lines_close(struct trace_lines *t) {
    free(t->line);
    *t = (struct trace_lines){0};
}

uint32_t trace_lines_recorded(const struct trace_lines *t) {
    const struct trace_line *l = t->line;
    uint32_t n = t->count;
    if (n == 0 || l[n - 1].there != 0) return n;
    while (n > 1 && l[n - 2].there >= l[n - 1].there &&
           (l[n - 2].there == 0 || l[n - 1].there < l[n - 2].there))
        n--;
    return n; /* line[n - 1] is the last before the first of the falling ones */
}
