/* The caller's calls about saves. Each hands over or looks under the mutex; those that wait say so in the
 * public header. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "saver/saver.h"

void saver_task_free(struct task *t) {
    if (t == NULL) return;
    for (uint32_t i = 0; t->shares != NULL && i < t->share_count; i++) free(t->shares[i].data);
    free(t->shares);
    free(t->blob);
    free(t);
}

/* ---- what may be saved ---- */

static pawl_code wrong(uint64_t step, const char *field, uint64_t had, uint64_t least, uint64_t most,
                       struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0,
                     "save of step %" PRIu64 ": %s is %" PRIu64 ", wanted %" PRIu64 " to %" PRIu64, step,
                     field, had, least, most);
}

/* The save with its defaults filled in. */
static pawl_code check_save(const struct pawl_ckpt *c, struct pawl_ckpt_save *s, struct pawl_error *e) {
    if (s->unit_count == 0) s->unit_count = 1;
    if (s->replica_count == 0) s->replica_count = 1;
    if (s->copies == 0) s->copies = 1;
    if (s->state == NULL || s->state->owner != c)
        return error_set(e, PAWL_ARGUMENT, 0, "save of step %" PRIu64 ": the state was not declared here",
                         s->step);
    if (s->step == 0) return wrong(s->step, "step", 0, 1, UINT64_MAX, e);
    if (s->unit >= s->unit_count) return wrong(s->step, "unit", s->unit, 0, s->unit_count - 1, e);
    if (s->replica >= s->replica_count)
        return wrong(s->step, "replica", s->replica, 0, s->replica_count - 1, e);
    if (s->copies > s->replica_count) return wrong(s->step, "copies", s->copies, 1, s->replica_count, e);
    if (s->copies > CKPT_IN_FLIGHT_MAX) return wrong(s->step, "copies", s->copies, 1, CKPT_IN_FLIGHT_MAX, e);
    if (s->blob == NULL && s->blob_bytes > 0)
        return error_set(e, PAWL_ARGUMENT, 0, "save of step %" PRIu64 ": %zu bytes of blob at no address",
                         s->step, s->blob_bytes);
    return PAWL_OK;
}

/* Steps grow; several units of one step are saved one after the other. */
static pawl_code check_step(const struct pawl_ckpt *c, const struct pawl_ckpt_save *s, struct pawl_error *e) {
    if (!c->settled && c->loss.code != PAWL_OK)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "call pawl_ckpt_from_scratch to begin anew although what was saved is lost: %.600s",
                         c->loss.text);
    if (!c->settled && c->stored_step != 0)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "%.500s holds step %" PRIu64 ": call pawl_ckpt_resume, or pawl_ckpt_from_scratch to "
                         "begin anew",
                         c->options.path, c->stored_step);
    if (s->step <= c->resumed_step)
        return error_set(e, PAWL_ARGUMENT, 0, "save of step %" PRIu64 ": the run resumed from step %" PRIu64,
                         s->step, c->resumed_step);
    if (s->step > c->last_step) return PAWL_OK;
    bool again = s->step < c->last_step || c->last_unit_count == SAVER_UNITS_MAX;
    for (uint32_t i = 0; i < c->last_unit_count; i++) again = again || c->last_units[i] == s->unit;
    return !again ? PAWL_OK
                  : error_set(e, PAWL_ARGUMENT, 0,
                              "save of step %" PRIu64 ", unit %u: step %" PRIu64 " was saved before", s->step,
                              s->unit, c->last_step);
}

static bool is_empty(const struct pawl_tensor *t) {
    const uint64_t *extent = t->extent != NULL ? t->extent : t->shape;
    for (uint32_t i = 0; i < t->rank; i++)
        if (extent[i] == 0) return true;
    return false;
}

static pawl_code check_data(const struct pawl_ckpt_save *s, struct pawl_error *e) {
    for (uint32_t i = 0; i < s->state->count; i++) {
        const struct pawl_tensor *t = &s->state->tensors[i];
        if ((s->data != NULL ? s->data[i] : t->data) != NULL || is_empty(t)) continue;
        return error_set(e, PAWL_ARGUMENT, 0,
                         "save of step %" PRIu64 ": tensor %u '%.200s': no address of its %s", s->step, i,
                         t->name, s->data != NULL ? "data in save.data" : "data");
    }
    return PAWL_OK;
}

/* ---- tasks ---- */

static pawl_code place_data(const struct pawl_ckpt_save *s, struct task_share *share, struct pawl_error *e) {
    if (s->data == NULL) return PAWL_OK;
    share->data = calloc((size_t)share->plan->count + 1, sizeof *share->data);
    if (share->data == NULL) return saver_no_memory(s->state->owner, e);
    for (uint32_t i = 0; i < share->plan->count; i++) {
        bool whole = share->plan->part_count == 1;
        uint8_t *base = s->data[whole ? i : share->plan->share.source[i]];
        uint64_t offset = whole ? 0 : share->plan->share.offset[i];
        share->data[i] = base != NULL ? base + offset : NULL; /* an empty tensor may have no address */
    }
    return PAWL_OK;
}

static pawl_code make_task(const struct pawl_ckpt_save *s, struct task **out, struct pawl_error *e) {
    struct task *t = calloc(1, sizeof *t);
    struct pawl_ckpt *c = s->state->owner;
    if (t == NULL) return saver_no_memory(c, e);
    *t = (struct task){.step = s->step,
                       .immutable = s->immutable,
                       .unit = s->unit,
                       .unit_count = s->unit_count,
                       .copies = s->copies,
                       .share_count = s->copies,
                       .blob_bytes = s->blob_bytes};
    t->shares = calloc(t->share_count, sizeof *t->shares);
    if (s->blob_bytes > 0) t->blob = malloc(s->blob_bytes);
    pawl_code code =
        t->shares == NULL || (s->blob_bytes > 0 && t->blob == NULL) ? saver_no_memory(c, e) : PAWL_OK;
    if (code == PAWL_OK && s->blob_bytes > 0) memcpy(t->blob, s->blob, s->blob_bytes);
    struct pawl_ckpt_state *state =
        (struct pawl_ckpt_state *)(uintptr_t)s->state; /* ours; shares are cached */
    for (uint32_t i = 0; i < t->share_count && code == PAWL_OK; i++) {
        uint32_t part = (s->replica + i) % s->replica_count;
        code = saver_share_of(state, part, s->replica_count, &t->shares[i].plan, e);
        if (code == PAWL_OK) code = place_data(s, &t->shares[i], e);
    }
    if (code == PAWL_OK)
        *out = t;
    else
        saver_task_free(t);
    return code;
}

/* ---- room in the engine, before its first save ---- */

/* What is lost at both ends: chunks are cut at multiples of their size in the file, which a header begins. */
#define STAGING_SLACK_CHUNKS 2u
#define CHUNK_BYTES_USUAL    ((uint64_t)4 << 20) /* the engine's default, and its most */

/* Staging memory that holds this rank's part of the state whole, as far as the options allow that. */
static uint64_t staging_wanted(const struct pawl_ckpt *c, const struct pawl_ckpt_save *s) {
    const struct pawl_ckpt_options *o = &c->options;
    if (s->immutable || o->staging_max_bytes == 0) return 0;
    uint64_t chunk = o->chunk_bytes > 0 ? o->chunk_bytes : CHUNK_BYTES_USUAL, bytes = 0;
    for (uint32_t i = 0; i < s->state->count; i++) { /* sizes that the layout has checked */
        const struct pawl_tensor *t = &s->state->tensors[i];
        const uint64_t *extent = t->extent != NULL ? t->extent : t->shape;
        uint64_t bits = pawl_dtype_bits(t->dtype);
        for (uint32_t d = 0; d < t->rank; d++) bits *= extent[d];
        bytes += bits / 8;
    }
    bytes = bytes / s->replica_count * s->copies + STAGING_SLACK_CHUNKS * chunk;
    return bytes < o->staging_max_bytes ? bytes : o->staging_max_bytes;
}

static pawl_code make_ready(struct pawl_ckpt *c, const struct pawl_ckpt_save *s, struct pawl_error *e) {
    if (c->has_thread) return PAWL_OK;
    uint64_t staging = staging_wanted(c, s);
    bool widen = s->copies > 1 || staging > c->status.staging_bytes;
    pawl_code code = widen ? saver_widen(c, s->copies, staging, e) : PAWL_OK;
    return code == PAWL_OK ? saver_start(c, e) : code;
}

/* ---- back-pressure; under the mutex ---- */

static uint32_t undecided_max(const struct pawl_ckpt *c) { return 2 * c->options.in_flight + 2; }

/* An earlier failure, told once; or a later start of the run, told always. */
static pawl_code take_pending(struct pawl_ckpt *c, struct pawl_error *e) {
    struct pawl_error *told = c->fenced.code != PAWL_OK ? &c->fenced : &c->pending;
    if (told->code == PAWL_OK) return PAWL_OK;
    pawl_code code = told->code;
    if (e != NULL) *e = *told;
    c->pending.code = PAWL_OK;
    c->untold.code = PAWL_OK;
    return code;
}

/* The others must hear of it, else they keep their parts of a step that never will be whole. */
static void skip(struct pawl_ckpt *c, const struct pawl_ckpt_save *s, const char *why) {
    struct pawl_ckpt_event event = {.kind = PAWL_CKPT_SKIPPED, .step = s->step};
    snprintf(event.text, sizeof event.text, "%s", why);
    c->status.skipped++;
    saver_event(c, event);
    struct saver_skip *at =
        &c->skips[c->skip_count < SAVER_SKIPS_MAX ? c->skip_count++ : SAVER_SKIPS_MAX - 1];
    *at = (struct saver_skip){.step = s->step,
                              .unit = s->unit,
                              .unit_count = s->unit_count,
                              .replica = s->replica,
                              .replica_count = s->replica_count,
                              .copies = s->copies};
    saver_nudge(c);
}

/* False: the save is skipped. */
static bool make_room(struct pawl_ckpt *c, const struct pawl_ckpt_save *s) {
    char why[512];
    if (c->undecided >= undecided_max(c)) {
        snprintf(why, sizeof why, "%u steps are committed here and wait for %s", c->undecided, c->waits_for);
        skip(c, s, why);
        c->starved_step = s->step;
        error_set(&c->starved, PAWL_PEER_LOST, 0, "save of step %" PRIu64 " was skipped: %s", s->step, why);
        return false;
    }
    while (c->in_flight >= c->options.in_flight) {
        if (c->options.full == PAWL_CKPT_SKIP) {
            snprintf(why, sizeof why, "%u saves are under way, the most allowed", c->in_flight);
            skip(c, s, why);
            return false;
        }
        (void)saver_wait_until(&c->for_caller, &c->mutex, PAWL_FOREVER);
    }
    return true;
}

static void hand_over(struct pawl_ckpt *c, struct task *t) {
    t->id = ++c->next_id;
    *c->tasks_end = t;
    c->tasks_end = &t->next;
    c->in_flight++;
    c->status.saves++;
    if (t->step > c->last_step) c->last_unit_count = 0;
    c->last_step = t->step;
    c->last_units[c->last_unit_count++] = t->unit;
    saver_due_begun(c, t->step);
    saver_nudge(c);
}

pawl_code pawl_ckpt_save(struct pawl_ckpt *c, const struct pawl_ckpt_save *wanted, uint64_t *id,
                         struct pawl_error *e) {
    int64_t begin_ns = clock_now_ns();
    struct pawl_ckpt_save save = *wanted;
    struct task *t = NULL;
    if (id != NULL) *id = 0;
    pawl_code code = check_save(c, &save, e);
    if (code == PAWL_OK) code = check_step(c, &save, e);
    if (code == PAWL_OK) code = check_data(&save, e);
    if (code == PAWL_OK) code = make_ready(c, &save, e);
    if (code != PAWL_OK) return code;
    pthread_mutex_lock(&c->mutex);
    code = take_pending(c, e);
    bool room = code == PAWL_OK && make_room(c, &save);
    int64_t blocked = clock_now_ns() - begin_ns;
    pthread_mutex_unlock(&c->mutex);
    if (room) code = make_task(&save, &t, e); /* only the caller makes the number in flight grow */
    pthread_mutex_lock(&c->mutex);
    if (t != NULL) {
        t->begin_ns = clock_now_ns();
        t->blocked_ns = blocked;
        hand_over(c, t);
        if (id != NULL) *id = t->id;
    }
    int64_t stalled = clock_now_ns() - begin_ns;
    c->status.blocked_ns += stalled;
    saver_due_stalled(c, stalled);
    pthread_mutex_unlock(&c->mutex);
    return code;
}

/* ---- waiting ---- */

static struct task *find_task(const struct pawl_ckpt *c, uint64_t id) {
    struct task *t = c->tasks;
    while (t != NULL && t->id != id) t = t->next;
    return t;
}

static struct task *first_uncaptured(const struct pawl_ckpt *c) {
    struct task *t = c->tasks;
    while (t != NULL && t->captured) t = t->next;
    return t;
}

pawl_code pawl_ckpt_fence(struct pawl_ckpt *c, int64_t deadline_ns, struct pawl_error *e) {
    int64_t begin_ns = clock_now_ns();
    pawl_code code = PAWL_OK;
    pthread_mutex_lock(&c->mutex);
    struct task *t = first_uncaptured(c);
    while (t != NULL) {
        uint64_t id = t->id;
        int64_t from_ns = clock_now_ns();
        int result = saver_wait_until(&c->for_caller, &c->mutex, deadline_ns);
        t = find_task(c, id);
        if (t != NULL) t->blocked_ns += clock_now_ns() - from_ns;
        t = first_uncaptured(c);
        if (t == NULL || result != ETIMEDOUT) continue;
        code = error_set(e, PAWL_TIMEOUT, 0, "fence: the memory of step %" PRIu64 " is not captured yet",
                         t->step);
        break;
    }
    int64_t stalled = clock_now_ns() - begin_ns;
    c->status.blocked_ns += stalled;
    saver_due_stalled(c, stalled);
    pthread_mutex_unlock(&c->mutex);
    return code;
}

/* Under the mutex. OK and `*done`: it got so far, or will not (the code says why). */
static pawl_code reached(struct pawl_ckpt *c, uint64_t id, enum pawl_ckpt_until until, bool *done,
                         struct pawl_error *e) {
    const struct task *t = find_task(c, id);
    *done = true;
    if (t != NULL) {
        *done = (until == PAWL_CKPT_UNTIL_CAPTURED && t->captured) ||
                (until == PAWL_CKPT_UNTIL_COMMITTED && t->phase == TASK_COMMITTED);
        return PAWL_OK;
    }
    const struct outcome *o = &c->outcomes[id % SAVER_OUTCOMES];
    if (id == 0 || id > c->next_id || o->id != id)
        return error_set(e, PAWL_NOT_FOUND, 0, "save %" PRIu64 ": %s", id,
                         id == 0 || id > c->next_id ? "was never begun" : "ended too long ago to be known");
    bool good = o->code == PAWL_OK || (until != PAWL_CKPT_UNTIL_DURABLE && o->reached >= REACHED_COMMITTED);
    if (good) return PAWL_OK;
    if (e != NULL) *e = o->error;
    if (c->untold_id == id) c->untold.code = PAWL_OK;
    if (c->pending_id == id) c->pending.code = PAWL_OK;
    if (c->tolerated_id == id) c->tolerated.code = PAWL_OK;
    return o->code;
}

pawl_code pawl_ckpt_wait(struct pawl_ckpt *c, uint64_t id, enum pawl_ckpt_until until, int64_t deadline_ns,
                         struct pawl_error *e) {
    static const char *const names[] = {"captured", "committed", "durable"};
    bool done = false;
    pthread_mutex_lock(&c->mutex);
    pawl_code code = reached(c, id, until, &done, e);
    while (!done) {
        int result = saver_wait_until(&c->for_caller, &c->mutex, deadline_ns);
        code = reached(c, id, until, &done, e);
        if (done || result != ETIMEDOUT) continue;
        const struct task *t = find_task(c, id);
        bool group = t->phase == TASK_COMMITTED;
        code =
            error_set(e, PAWL_TIMEOUT, 0, "save of step %" PRIu64 ": not %s yet%s%s", t->step, names[until],
                      group ? ": committed here, waits for " : "", group ? c->waits_for : "");
        done = true;
    }
    pthread_mutex_unlock(&c->mutex);
    return code;
}

void pawl_ckpt_cancel(struct pawl_ckpt *c, uint64_t id) {
    pthread_mutex_lock(&c->mutex);
    struct task *t = find_task(c, id);
    if (t != NULL && t->phase != TASK_COMMITTED) {
        t->cancel = true;
        saver_nudge(c);
    }
    pthread_mutex_unlock(&c->mutex);
}
