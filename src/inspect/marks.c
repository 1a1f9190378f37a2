/* Marks in a run's folder that say which complete step a resume takes: steps found damaged, starts that began
 * anew. Only names count; layout: docs/formats/group.md. A copy may lack them: then none is known. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspect.h"

/* "STEP-NUMBER" or "NUMBER", decimal without leading zeros; false for any other name. */
static bool parse_name(const char *name, bool pair, struct inspect_mark *out) {
    char again[64];
    *out = (struct inspect_mark){0};
    if (pair ? sscanf(name, "%" SCNu64 "-%" SCNu64, &out->step, &out->incarnation) != 2
             : sscanf(name, "%" SCNu64, &out->incarnation) != 1)
        return false;
    if (pair)
        snprintf(again, sizeof again, "%" PRIu64 "-%" PRIu64, out->step, out->incarnation);
    else
        snprintf(again, sizeof again, "%" PRIu64, out->incarnation);
    return strcmp(again, name) == 0;
}

static bool add_mark(struct inspect_marks *m, struct inspect_mark mark) {
    struct inspect_mark *more = realloc(m->items, (m->count + 1u) * sizeof *more);
    if (more == NULL) return false;
    m->items = more;
    more[m->count++] = mark;
    return true;
}

static pawl_code read_folder(const char *run, const char *name, bool pair, struct inspect_marks *out,
                             struct pawl_error *e) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", run, name) < 0) return inspect_no_memory(e);
    DIR *folder = opendir(path);
    int why = folder != NULL ? 0 : errno;
    pawl_code code = PAWL_OK;
    struct inspect_mark mark;
    if (why != 0 && why != ENOENT) code = error_set(e, PAWL_IO, why, "%s: cannot open the folder", path);
    for (const struct dirent *d; code == PAWL_OK && folder != NULL && (d = readdir(folder)) != NULL;)
        if (parse_name(d->d_name, pair, &mark) && !add_mark(out, mark)) code = inspect_no_memory(e);
    if (folder != NULL) closedir(folder);
    free(path);
    return code;
}

pawl_code inspect_marks_read(const char *run, struct inspect_marks *out, struct pawl_error *e) {
    *out = (struct inspect_marks){0};
    pawl_code code = run != NULL ? read_folder(run, "bad", true, out, e) : PAWL_OK;
    return run != NULL && code == PAWL_OK ? read_folder(run, "scratch", false, out, e) : code;
}

/* A mark without a step is a start that began anew. */
static bool is_bad(const struct inspect_marks *m, const struct pawl_inspect_step *s) {
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].step == s->step && m->items[i].incarnation == s->incarnation) return true;
    return false;
}

void inspect_marks_apply(struct pawl_inspect *in) {
    for (uint32_t i = 0; i < in->step_count; i++) in->steps[i].is.bad = is_bad(&in->marks, &in->steps[i].is);
}

static uint32_t newest_from(const struct pawl_inspect *in, uint64_t most, uint64_t incarnation) {
    for (uint32_t i = 0; i < in->step_count; i++) {
        const struct pawl_inspect_step *s = &in->steps[i].is;
        if (s->complete && !s->bad && s->step <= most && s->incarnation >= incarnation) return i;
    }
    return PAWL_INSPECT_NONE;
}

/* What a start that began anew saved is newer than all before it, whatever the numbers; until it has saved
 * something, the old steps are what there is. */
uint32_t inspect_newest(const struct pawl_inspect *in, uint64_t most) {
    for (uint64_t below = UINT64_MAX;;) {
        uint64_t scratch = 0;
        for (uint32_t i = 0; i < in->marks.count; i++) {
            const struct inspect_mark *m = &in->marks.items[i];
            if (m->step == 0 && m->incarnation < below && m->incarnation > scratch) scratch = m->incarnation;
        }
        uint32_t found = newest_from(in, most, scratch);
        if (found != PAWL_INSPECT_NONE || scratch == 0) return found;
        below = scratch;
    }
}
