/* Implementation of ckpt/marks.h. */
#include "ckpt/marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False for any name but those that pawl would write itself. */
static bool parse_name(const char *folder, const char *name, struct ckpt_mark *out) {
    char again[64];
    bool bad = strcmp(folder, CKPT_MARK_BAD) == 0;
    *out = (struct ckpt_mark){0};
    if (bad ? sscanf(name, "%" SCNu64 "-%" SCNu64, &out->step, &out->incarnation) != 2
            : sscanf(name, "%" SCNu64, &out->incarnation) != 1)
        return false;
    if (bad)
        snprintf(again, sizeof again, "%" PRIu64 "-%" PRIu64, out->step, out->incarnation);
    else
        snprintf(again, sizeof again, "%" PRIu64, out->incarnation);
    /* No step and no start has number 0. */
    return strcmp(again, name) == 0 && out->incarnation > 0 && (out->step > 0) == bad;
}

pawl_code ckpt_marks_add(struct ckpt_marks *m, struct ckpt_mark mark, struct pawl_error *e) {
    struct ckpt_mark *more = realloc(m->items, ((size_t)m->count + 1) * sizeof *more);
    if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the marks of a run");
    m->items = more;
    more[m->count++] = mark;
    return PAWL_OK;
}

pawl_code ckpt_marks_add_name(struct ckpt_marks *m, const char *run, const char *folder, const char *name,
                              struct pawl_error *e) {
    struct ckpt_mark mark;
    if (!parse_name(folder, name, &mark)) return PAWL_OK;
    if (mark.incarnation > CKPT_START_MAX)
        return error_set(
            e, PAWL_CORRUPT, 0,
            "%.500s/%s/%.100s: no start has a number above %llu; remove the file when no process "
            "of the run lives",
            run, folder, name, CKPT_START_MAX);
    return ckpt_marks_add(m, mark, e);
}

bool ckpt_marks_bad(const struct ckpt_marks *m, uint64_t step, uint64_t incarnation) {
    for (uint32_t i = 0; step > 0 && i < m->count; i++)
        if (m->items[i].step == step && m->items[i].incarnation == incarnation) return true;
    return false;
}

void ckpt_marks_close(struct ckpt_marks *m) {
    free(m->items);
    *m = (struct ckpt_marks){0};
}

/* The newest start before `below` that began anew; 0: none. */
static uint64_t anew_before(const struct ckpt_marks *m, uint64_t below) {
    uint64_t anew = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const struct ckpt_mark *mark = &m->items[i];
        if (mark->step == 0 && mark->incarnation < below && mark->incarnation > anew)
            anew = mark->incarnation;
    }
    return anew;
}

uint32_t ckpt_newest(const struct ckpt_marks *m, uint32_t count,
                     struct ckpt_candidate (*at)(const void *context, uint32_t index), const void *context,
                     uint64_t most) {
    for (uint64_t below = UINT64_MAX;;) {
        uint64_t anew = anew_before(m, below);
        for (uint32_t i = 0; i < count; i++) {
            struct ckpt_candidate c = at(context, i);
            if (c.complete && c.step <= most && c.incarnation >= anew &&
                !ckpt_marks_bad(m, c.step, c.incarnation))
                return i;
        }
        if (anew == 0) return UINT32_MAX;
        below = anew;
    }
}
