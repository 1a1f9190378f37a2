/* The marks of a run's folder that say which complete step a resume takes (ckpt/marks.h). A copy may lack
 * them: then none is known. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "inspect/inspect.h"

/* What is no possible mark is told as a problem: whoever resumes would stop there. */
static pawl_code take_name(struct pawl_inspect *in, const char *folder, const char *name,
                           struct pawl_error *e) {
    char file[512];
    struct pawl_error why = {0};
    pawl_code code = ckpt_marks_add_name(&in->marks, in->run, folder, name, &why);
    if (code == PAWL_OK) return PAWL_OK;
    if (code != PAWL_CORRUPT) return inspect_no_memory(e);
    snprintf(file, sizeof file, "%s/%.300s", folder, name);
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_IDENTITY, .code = code, .store = in->run, .file = file};
    inspect_problem_add(in, like, "%s", why.text);
    return PAWL_OK;
}

static pawl_code read_folder(struct pawl_inspect *in, const char *name, struct pawl_error *e) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", in->run, name) < 0) return inspect_no_memory(e);
    DIR *folder = opendir(path);
    int why = folder != NULL ? 0 : errno;
    pawl_code code = PAWL_OK;
    if (why != 0 && why != ENOENT) code = error_set(e, PAWL_IO, why, "%s: cannot open the folder", path);
    for (const struct dirent *d; code == PAWL_OK && folder != NULL && (d = readdir(folder)) != NULL;)
        code = take_name(in, name, d->d_name, e);
    if (folder != NULL) closedir(folder);
    free(path);
    return code;
}

pawl_code inspect_marks_read(struct pawl_inspect *in, struct pawl_error *e) {
    ckpt_marks_close(&in->marks);
    if (in->run == NULL) return PAWL_OK;
    pawl_code code = read_folder(in, CKPT_MARK_BAD, e);
    return code == PAWL_OK ? read_folder(in, CKPT_MARK_SCRATCH, e) : code;
}

void inspect_marks_apply(struct pawl_inspect *in) {
    for (uint32_t i = 0; i < in->step_count; i++) {
        struct pawl_inspect_step *s = &in->steps[i].is;
        s->bad = ckpt_marks_bad(&in->marks, s->step, s->incarnation);
    }
}

static struct ckpt_candidate candidate(const void *context, uint32_t index) {
    const struct pawl_inspect *in = context;
    const struct pawl_inspect_step *s = &in->steps[index].is;
    return (struct ckpt_candidate){s->step, s->incarnation, s->complete};
}

uint32_t inspect_newest(const struct pawl_inspect *in, uint64_t most) {
    return ckpt_newest(&in->marks, in->step_count, candidate, in, most);
}
