/* Restoring the newest step into a declared state, and going back past damage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "saver/saver.h"

/* ---- which step ---- */

static struct ckpt_candidate candidate(const void *set, uint32_t index) {
    const struct ckpt_step *s = ckpt_set_at(set, index);
    return (struct ckpt_candidate){s->step, s->incarnation, s->complete};
}

uint32_t saver_newest(const struct ckpt_set *set, const struct ckpt_marks *marks) {
    return ckpt_newest(marks, ckpt_set_count(set), candidate, set, UINT64_MAX);
}

static uint32_t find_step(const struct pawl_ckpt *c, const struct ckpt_set *set) {
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (s->complete && s->step == c->stored_step &&
            (c->stored_incarnation == 0 || s->incarnation == c->stored_incarnation))
            return i;
    }
    return UINT32_MAX;
}

/* ---- the blobs, one a unit ---- */

static uint32_t unit_of(const struct ckpt_set *set, uint32_t index, const struct pawl_ckpt_state *state) {
    for (uint32_t i = 0; state->count > 0 && i < ckpt_set_tensor_count(set, index); i++) {
        const struct ckpt_tensor *t = ckpt_set_tensor(set, index, i);
        if (strcmp(t->name, state->tensors[0].name) == 0) return t->unit;
    }
    return 0;
}

void saver_blobs_free(struct pawl_ckpt *c) {
    for (uint32_t i = 0; i < c->blob_count; i++) free(c->blobs[i].data);
    free(c->blobs);
    c->blobs = NULL;
    c->blob_count = c->first_unit = 0;
}

static pawl_code take_blob(struct pawl_ckpt *c, struct ckpt_set *set, uint32_t index, uint32_t unit,
                           struct pawl_error *e) {
    const void *blob = NULL;
    struct saver_blob *out = &c->blobs[unit];
    pawl_code code = ckpt_set_blob(set, index, unit, &blob, &out->bytes, e);
    if (code != PAWL_OK || out->bytes == 0) return code;
    out->data = malloc(out->bytes);
    if (out->data == NULL) return saver_no_memory(c, e);
    memcpy(out->data, blob, out->bytes);
    return PAWL_OK;
}

/* All that the set has read of them anyway: the files may be overwritten by the time somebody asks. */
static pawl_code take_blobs(struct pawl_ckpt *c, struct ckpt_set *set, uint32_t index,
                            const struct pawl_ckpt_state *state, struct pawl_error *e) {
    uint32_t count = ckpt_set_at(set, index)->unit_count;
    saver_blobs_free(c);
    c->blobs = calloc((size_t)count + 1, sizeof *c->blobs);
    if (c->blobs == NULL) return saver_no_memory(c, e);
    c->blob_count = count;
    c->first_unit = unit_of(set, index, state);
    pawl_code code = PAWL_OK;
    for (uint32_t unit = 0; unit < count && code == PAWL_OK; unit++) code = take_blob(c, set, index, unit, e);
    if (code != PAWL_OK) saver_blobs_free(c);
    return code;
}

uint32_t pawl_ckpt_unit_count(const struct pawl_ckpt *c) { return c->blob_count; }

pawl_code pawl_ckpt_unit_blob(const struct pawl_ckpt *c, uint32_t unit, const void **blob, size_t *bytes,
                              struct pawl_error *e) {
    *blob = NULL;
    *bytes = 0;
    if (unit >= c->blob_count)
        return error_set(e, PAWL_ARGUMENT, 0,
                         c->blob_count == 0 ? "unit %u: nothing was resumed from, there are %u units"
                                            : "unit %u: the step resumed from has %u units",
                         unit, c->blob_count);
    *blob = c->blobs[unit].data;
    *bytes = c->blobs[unit].bytes;
    return PAWL_OK;
}

void pawl_ckpt_blob(const struct pawl_ckpt *c, const void **blob, size_t *bytes) {
    bool known = c->first_unit < c->blob_count;
    *blob = known ? c->blobs[c->first_unit].data : NULL;
    *bytes = known ? c->blobs[c->first_unit].bytes : 0;
}

uint64_t pawl_ckpt_stored_step(const struct pawl_ckpt *c) { return c->stored_step; }

/* ---- reading ---- */

static bool is_damage(pawl_code code) { return code == PAWL_CORRUPT || code == PAWL_IO; }

/* Damage is not tried again by the next start; what could not be read may be readable then. */
static void mark(struct pawl_ckpt *c, const struct ckpt_step *s, const struct pawl_error *why) {
    struct pawl_error other;
    if (why->code == PAWL_CORRUPT) (void)run_mark_bad(&c->run, s->step, s->incarnation, why->text, &other);
}

static pawl_code read_step(struct pawl_ckpt *c, struct ckpt_set *set, uint32_t index,
                           const struct pawl_ckpt_state *state, struct pawl_error *e) {
    pawl_code code = ckpt_set_read_many(set, index, state->tensors, state->count, e);
    if (code == PAWL_OK) code = take_blobs(c, set, index, state, e);
    return code;
}

/* One rank decides for itself: the next older complete one, until one is good. */
static pawl_code read_alone(struct pawl_ckpt *c, struct ckpt_set *set, const struct pawl_ckpt_state *state,
                            uint64_t *step, struct pawl_error *e) {
    struct ckpt_marks marks;
    struct pawl_error first = {0}, why = {0};
    pawl_code code = run_marks(&c->run, &marks, e);
    for (uint32_t at; code == PAWL_OK;) {
        at = saver_newest(set, &marks);
        if (at == UINT32_MAX) {
            code = first.code;
            if (code != PAWL_OK && e != NULL) *e = first;
            break;
        }
        const struct ckpt_step *s = ckpt_set_at(set, at);
        code = read_step(c, set, at, state, &why);
        if (code == PAWL_OK) *step = s->step;
        if (code != PAWL_OK && !is_damage(code) && e != NULL) *e = why;
        if (!is_damage(code)) break;
        saver_note_passed_over(c, s->step, s->incarnation, &why);
        mark(c, s, &why);
        if (first.code == PAWL_OK) first = why;
        code = ckpt_marks_add(&marks, (struct ckpt_mark){s->step, s->incarnation}, e);
    }
    ckpt_marks_close(&marks);
    return code;
}

/* Several ranks have agreed on a step; none may take another. */
static pawl_code read_agreed(struct pawl_ckpt *c, struct ckpt_set *set, const struct pawl_ckpt_state *state,
                             uint64_t *step, struct pawl_error *e) {
    struct pawl_error why = {0};
    uint32_t at = find_step(c, set);
    if (at == UINT32_MAX) {
        const char *problem = ckpt_set_problem(set, 0);
        return error_set(e, PAWL_CORRUPT, 0,
                         "%.300s: step %" PRIu64 ", to resume from, is not complete%s%.300s", c->options.path,
                         c->stored_step, problem != NULL ? ": " : "", problem != NULL ? problem : "");
    }
    const struct ckpt_step *s = ckpt_set_at(set, at);
    pawl_code code = read_step(c, set, at, state, &why);
    if (code == PAWL_OK) {
        *step = s->step;
        return code;
    }
    if (is_damage(code)) mark(c, s, &why);
    if (code == PAWL_CORRUPT && c->run.path != NULL)
        return error_set(e, code, 0,
                         "step %" PRIu64 " is marked bad, the next start takes an older one: %.600s", s->step,
                         why.text);
    if (e != NULL) *e = why;
    return code;
}

static const struct store *own_store(const struct pawl_ckpt *c, const struct saver_stores *stores) {
    for (uint32_t i = 0; i < stores->count; i++)
        if (strcmp(store_path(stores->stores[i]), store_path(c->store)) == 0) return stores->stores[i];
    return NULL;
}

static pawl_code read_stored(struct pawl_ckpt *c, const struct pawl_ckpt_state *state, uint64_t *step,
                             struct pawl_error *e) {
    struct saver_stores stores;
    struct ckpt_set *set = NULL;
    pawl_code code = c->disk.open_all(c->disk.context, &stores, e);
    if (code != PAWL_OK) return code;
    struct ckpt_set_options options = {
        .run_id = c->run.id, .unchecked = c->options.unchecked, .prefer = own_store(c, &stores)};
    code = ckpt_set_open_with(stores.stores, stores.count, &options, &set, e);
    if (code == PAWL_OK) saver_note_problems(c, set);
    bool alone = c->options.rank_count == 1 && c->options.group == NULL;
    if (code == PAWL_OK)
        code = alone ? read_alone(c, set, state, step, e) : read_agreed(c, set, state, step, e);
    ckpt_set_close(set);
    saver_stores_close(&stores);
    return code;
}

static void tell_damage(struct pawl_ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    saver_tell_damage(c);
    pthread_mutex_unlock(&c->mutex);
}

/* From here on the caller saves; `step` may be overwritten once all ranks are here. */
static pawl_code settle(struct pawl_ckpt *c, uint64_t step, struct pawl_error *e) {
    pawl_code code = saver_engine(c, step, c->engine_in_flight, e);
    if (code == PAWL_OK) code = group_arrive(c->group, e);
    if (code != PAWL_OK) return code;
    c->settled = true;
    c->resumed_step = step;
    pthread_mutex_lock(&c->mutex);
    c->status.durable_step = step;
    if (step != 0) c->durable_ns = clock_now_ns();
    pthread_mutex_unlock(&c->mutex);
    saver_settle_damage(c, step);
    tell_damage(c);
    return PAWL_OK;
}

static pawl_code check_unsettled(const struct pawl_ckpt *c, const char *what, struct pawl_error *e) {
    if (!c->settled && !c->has_thread) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s: only once, before the first save", what);
}

/* Nothing is stored; was there anything once? */
static pawl_code check_no_loss(const struct pawl_ckpt *c, struct pawl_error *e) {
    if (c->stored_step != 0 || c->loss.code == PAWL_OK) return PAWL_OK;
    if (e != NULL) *e = c->loss;
    return c->loss.code;
}

pawl_code pawl_ckpt_resume(struct pawl_ckpt *c, struct pawl_ckpt_state *state, uint64_t *step,
                           struct pawl_error *e) {
    *step = 0;
    if (state == NULL || state->owner != c)
        return error_set(e, PAWL_ARGUMENT, 0, "resume: the state was not declared here");
    pawl_code code = check_unsettled(c, "resume", e);
    if (code == PAWL_OK) code = check_no_loss(c, e);
    if (code == PAWL_OK && c->stored_step != 0) code = read_stored(c, state, step, e);
    if (code == PAWL_OK) code = settle(c, *step, e);
    if (code != PAWL_OK) tell_damage(c);
    return code;
}

/* ---- resuming by hand ---- */

static pawl_code check_usable(const struct pawl_ckpt *c, const struct ckpt_set *set, uint64_t step,
                              uint64_t incarnation, struct pawl_error *e) {
    struct ckpt_marks marks;
    pawl_code code = run_marks(&c->run, &marks, e);
    if (code != PAWL_OK) return code;
    bool bad = ckpt_marks_bad(&marks, step, incarnation), found = false;
    ckpt_marks_close(&marks);
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        found = found || (s->complete && s->step == step && s->incarnation == incarnation);
    }
    if (found && !bad) return PAWL_OK;
    return error_set(e, PAWL_NOT_FOUND, 0, "%.500s: step %" PRIu64 " of start %" PRIu64 " is %s",
                     c->options.path, step, incarnation,
                     found ? "marked bad" : "not stored, or not complete");
}

static pawl_code check_stored(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation,
                              struct pawl_error *e) {
    struct saver_stores stores;
    struct ckpt_set *set = NULL;
    pawl_code code = c->disk.open_all(c->disk.context, &stores, e);
    if (code != PAWL_OK) return code;
    struct ckpt_set_options options = {.run_id = c->run.id, .unchecked = c->options.unchecked};
    code = ckpt_set_open_with(stores.stores, stores.count, &options, &set, e);
    if (code == PAWL_OK) saver_note_problems(c, set);
    if (code == PAWL_OK) code = check_usable(c, set, step, incarnation, e);
    ckpt_set_close(set);
    saver_stores_close(&stores);
    return code;
}

pawl_code pawl_ckpt_resume_from(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation,
                                struct pawl_error *e) {
    pawl_code code = check_unsettled(c, "resume", e);
    if (code == PAWL_OK && step == 0) code = check_no_loss(c, e);
    if (code == PAWL_OK && step == 0 && c->stored_step != 0)
        code =
            error_set(e, PAWL_ARGUMENT, 0,
                      "resume from nothing: step %" PRIu64 " is stored; pawl_ckpt_from_scratch begins anew",
                      c->stored_step);
    if (code == PAWL_OK && step != 0) code = check_stored(c, step, incarnation, e);
    return code == PAWL_OK ? settle(c, step, e) : code;
}

pawl_code pawl_ckpt_mark_bad(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation, const char *why,
                             struct pawl_error *e) {
    pawl_code code = check_unsettled(c, "mark a step bad", e);
    if (code == PAWL_OK && (step == 0 || incarnation == 0))
        code = error_set(e, PAWL_ARGUMENT, 0, "mark a step bad: no step and no start has the number 0");
    if (code != PAWL_OK) return code;
    struct pawl_error named;
    error_set(&named, PAWL_CORRUPT, 0, "%s", why != NULL ? why : "");
    saver_note_passed_over(c, step, incarnation, &named);
    return run_mark_bad(&c->run, step, incarnation, named.text, e);
}

pawl_code pawl_ckpt_from_scratch(struct pawl_ckpt *c, struct pawl_error *e) {
    if (c->settled || c->has_thread)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "from scratch: only instead of resuming, before the first save");
    pawl_code code = run_mark_scratch(&c->run, c->incarnation, e);
    if (code != PAWL_OK) return code;
    c->anew = true;
    code = saver_engine(c, 0, c->engine_in_flight, e);
    if (code == PAWL_OK) code = group_arrive(c->group, e);
    if (code != PAWL_OK) return code;
    c->settled = true;
    pthread_mutex_lock(&c->mutex);
    c->status.durable_step = 0;
    saver_tell_damage(c);
    pthread_mutex_unlock(&c->mutex);
    return PAWL_OK;
}
