/* Making, comparing and keeping descriptions. Their text is in describe_text.c. */
#include "run/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/foreign.h"
#include "run/engine.h"

void description_close(struct description *d) {
    for (uint32_t s = 0; d->stages != NULL && s < d->stage_count; s++)
        foreign_tensors_free(d->stages[s].tensors, d->stages[s].tensor_count);
    free(d->stages);
    *d = (struct description){0};
}

/* ---- making ---- */

static pawl_code describe_stage(struct foreign *f, uint32_t index, struct description_stage *out,
                                struct pawl_error *e) {
    struct stage *stage = NULL;
    pawl_code code = foreign_stage_open(f, index, &stage, e);
    if (code != PAWL_OK) return code;
    *out = (struct description_stage){.input_bytes = stage->input_bytes,
                                      .output_bytes = stage->output_bytes,
                                      .tensors = stage->tensors,
                                      .tensor_count = stage->tensor_count};
    stage->tensors = NULL; /* they are the description's now */
    stage->tensor_count = 0;
    stage->ops->close(stage);
    return PAWL_OK;
}

pawl_code description_make(const struct spec *spec, struct description *out, struct pawl_error *e) {
    struct foreign *f = NULL;
    *out = (struct description){0};
    pawl_code code = engine_foreign(spec, &f, e);
    if (code == PAWL_OK) code = foreign_optimizer(f, &out->has_optimizer, &out->optimizer, e);
    if (code == PAWL_OK) code = foreign_samples(f, &out->samples, e);
    if (code == PAWL_OK) {
        out->stages = calloc(spec->parallel.stages, sizeof *out->stages);
        if (out->stages == NULL)
            code = error_set(e, PAWL_MEMORY, 0, "no memory for %u stages", spec->parallel.stages);
    }
    for (uint32_t s = 0; s < spec->parallel.stages && code == PAWL_OK; s++) {
        code = describe_stage(f, s, &out->stages[s], e);
        out->stage_count = s + 1;
    }
    foreign_close(f);
    if (code == PAWL_OK) code = description_check(out, e);
    if (code != PAWL_OK) description_close(out);
    return code;
}

/* ---- checks ---- */

/* The tensors of all stages, one list. */
struct list {
    const struct stage_tensor **at;
    uint64_t count;
};

static pawl_code list_of(const struct description *d, struct list *out, struct pawl_error *e) {
    *out = (struct list){0};
    for (uint32_t s = 0; s < d->stage_count; s++) out->count += d->stages[s].tensor_count;
    out->at = calloc((size_t)out->count + 1, sizeof *out->at);
    if (out->at == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %llu tensors", (unsigned long long)out->count);
    uint64_t n = 0;
    for (uint32_t s = 0; s < d->stage_count; s++)
        for (uint32_t i = 0; i < d->stages[s].tensor_count; i++) out->at[n++] = &d->stages[s].tensors[i];
    return PAWL_OK;
}

static int by_name(const void *a, const void *b) {
    const struct stage_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static pawl_code check_names(const struct description *d, struct pawl_error *e) {
    struct list all;
    pawl_code code = list_of(d, &all, e);
    if (code != PAWL_OK) return code;
    qsort(all.at, all.count, sizeof *all.at, by_name);
    for (uint64_t i = 1; i < all.count && code == PAWL_OK; i++)
        if (strcmp(all.at[i - 1]->name, all.at[i]->name) == 0)
            code = error_set(e, PAWL_USER, 0,
                             "two stages have a parameter called '%.200s': names are unique in the whole "
                             "model",
                             all.at[i]->name);
    free(all.at);
    return code;
}

pawl_code description_check(const struct description *d, struct pawl_error *e) {
    for (uint32_t s = 1; s < d->stage_count; s++)
        if (d->stages[s].input_bytes != d->stages[s - 1].output_bytes)
            return error_set(e, PAWL_USER, 0,
                             "stage %u gives %llu bytes of a micro-batch, but stage %u takes %llu: they are "
                             "to be the same",
                             s - 1, (unsigned long long)d->stages[s - 1].output_bytes, s,
                             (unsigned long long)d->stages[s].input_bytes);
    return check_names(d, e);
}

/* ---- comparing ---- */

static void shape_text(const struct stage_tensor *t, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (uint32_t d = 0; d < t->rank && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", d == 0 ? "" : ", ",
                                 (unsigned long long)t->shape[d]);
    if (used < size) snprintf(out + used, size - used, "]");
}

static bool same_shape(const struct stage_tensor *a, const struct stage_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

#define PUT_BACK "put it back to resume, or give another run.dir to begin a new run"

static pawl_code compare_tensor(const struct stage_tensor *now, const struct stage_tensor *then,
                                struct pawl_error *e) {
    char a[200], b[200];
    if (!same_shape(now, then)) {
        shape_text(now, a, sizeof a);
        shape_text(then, b, sizeof b);
        return error_set(e, PAWL_FOREIGN, 0, "parameter '%.200s' is %s but this run began with %s: " PUT_BACK,
                         now->name, a, b);
    }
    if (now->flags == then->flags) return PAWL_OK;
    return error_set(e, PAWL_FOREIGN, 0, "weight decay %s to parameter '%.200s', as it %s: " PUT_BACK,
                     now->flags & STAGE_DECAY ? "applies" : "does not apply", now->name,
                     then->flags & STAGE_DECAY ? "did when this run began" : "did not when this run began");
}

static const struct stage_tensor *find(const struct list *all, const char *name) {
    for (uint64_t i = 0; i < all->count; i++)
        if (strcmp(all->at[i]->name, name) == 0) return all->at[i];
    return NULL;
}

/* The first place at which the lists have not the same name; null: one of them ends there. */
static pawl_code tell_difference(const struct list *now, const struct list *then, uint64_t i,
                                 struct pawl_error *e) {
    const struct stage_tensor *a = i < now->count ? now->at[i] : NULL;
    const struct stage_tensor *b = i < then->count ? then->at[i] : NULL;
    if (a != NULL && find(then, a->name) == NULL) {
        char shape[200];
        shape_text(a, shape, sizeof shape);
        return error_set(e, PAWL_FOREIGN, 0, "parameter '%.200s' %s was not there when this run began: %s",
                         a->name, shape, PUT_BACK);
    }
    if (b != NULL && find(now, b->name) == NULL) {
        char shape[200];
        shape_text(b, shape, sizeof shape);
        return error_set(e, PAWL_FOREIGN, 0,
                         "parameter '%.200s' %s is gone, which was there when this run began: %s", b->name,
                         shape, PUT_BACK);
    }
    return error_set(e, PAWL_FOREIGN, 0,
                     "parameter '%.200s' is where '%.200s' was when this run began: put the order back, or "
                     "give another run.dir to begin a new run",
                     a != NULL ? a->name : "", b != NULL ? b->name : "");
}

static pawl_code compare_lists(const struct list *now, const struct list *then, struct pawl_error *e) {
    uint64_t most = now->count > then->count ? now->count : then->count;
    pawl_code code = PAWL_OK;
    for (uint64_t i = 0; i < most && code == PAWL_OK; i++) {
        bool both = i < now->count && i < then->count;
        if (both && strcmp(now->at[i]->name, then->at[i]->name) == 0)
            code = compare_tensor(now->at[i], then->at[i], e);
        else
            code = tell_difference(now, then, i, e);
    }
    return code;
}

pawl_code description_compare(const struct description *now, const struct description *then,
                              struct pawl_error *e) {
    struct list a, b = {0};
    pawl_code code = list_of(now, &a, e);
    if (code == PAWL_OK) code = list_of(then, &b, e);
    if (code == PAWL_OK) code = compare_lists(&a, &b, e);
    if (code == PAWL_OK) code = description_compare_samples(then, now->samples, e);
    free(a.at);
    free(b.at);
    return code;
}

pawl_code description_compare_samples(const struct description *d, uint64_t samples, struct pawl_error *e) {
    if (samples == d->samples || samples == 0 || d->samples == 0) return PAWL_OK;
    return error_set(e, PAWL_FOREIGN, 0,
                     "the data has %llu samples but this run began with %llu, and every step would be of "
                     "others: " PUT_BACK,
                     (unsigned long long)samples, (unsigned long long)d->samples);
}

pawl_code description_compare_stage(const struct description *d, const struct stage *stage,
                                    struct pawl_error *e) {
    if (stage->index >= d->stage_count)
        return error_set(e, PAWL_FOREIGN, 0, DESCRIBE_FILE " has %u stages, and none %u", d->stage_count,
                         stage->index);
    const struct description_stage *s = &d->stages[stage->index];
    if (s->input_bytes != stage->input_bytes || s->output_bytes != stage->output_bytes)
        return error_set(e, PAWL_FOREIGN, 0,
                         "stage %u takes %zu and gives %zu bytes, but said %llu and %llu at the start",
                         stage->index, stage->input_bytes, stage->output_bytes,
                         (unsigned long long)s->input_bytes, (unsigned long long)s->output_bytes);
    struct description_stage held = {.tensors = stage->tensors, .tensor_count = stage->tensor_count};
    struct description now = {.stage_count = 1, .stages = &held};
    struct description then = {.stage_count = 1, .stages = &d->stages[stage->index]};
    return description_compare(&now, &then, e);
}

/* ---- the file ---- */

static void file_of(const struct spec *spec, char *out, size_t size) {
    snprintf(out, size, "%s/" DESCRIBE_FILE, spec->run.dir);
}

pawl_code description_load(const struct spec *spec, struct description *out, struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 32];
    struct bytes text = {0};
    file_of(spec, path, sizeof path);
    *out = (struct description){0};
    pawl_code code = file_read(path, DESCRIBE_BYTES_MAX, "what the stages consist of", &text, e);
    if (code == PAWL_OK) code = description_parse((const char *)text.data, text.size, path, out, e);
    bytes_close(&text);
    return code;
}

pawl_code description_keep(const struct spec *spec, const struct description *d, struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 32];
    struct bytes text = {0};
    file_of(spec, path, sizeof path);
    description_print(d, &text);
    pawl_code code = text.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for %s", path)
                                 : file_replace(path, &text, "what the stages consist of", e);
    bytes_close(&text);
    return code;
}
