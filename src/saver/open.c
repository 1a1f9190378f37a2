/* Opening and closing: options, whose run it is, which start, the engine.
 *
 * Order at open: the run's folder and its identity; this rank's store, locked, so that no process of an
 * earlier start writes there any more; which start this is and where it resumes; the engine. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "saver/saver.h"

pawl_code saver_no_memory(const struct pawl_ckpt *c, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "%.500s: no memory for the checkpointer", c->options.path);
}

/* ---- options ---- */

static pawl_code wrong(const char *field, uint64_t had, uint64_t least, uint64_t most, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "options.%s is %" PRIu64 ", wanted %" PRIu64 " to %" PRIu64, field,
                     had, least, most);
}

static pawl_code check_numbers(const struct pawl_ckpt_options *o, struct pawl_error *e) {
    if (o->rank >= o->rank_count) return wrong("rank", o->rank, 0, o->rank_count - 1, e);
    if (o->in_flight > CKPT_IN_FLIGHT_MAX) return wrong("in_flight", o->in_flight, 1, CKPT_IN_FLIGHT_MAX, e);
    uint64_t chunk = o->chunk_bytes > 0 ? o->chunk_bytes : STORE_BLOCK;
    if (o->staging_bytes > 0 && o->staging_bytes < chunk)
        return wrong("staging_bytes", o->staging_bytes, chunk, UINT64_MAX, e);
    if (o->keep > CKPT_KEEP_MAX) return wrong("keep", o->keep, 1, CKPT_KEEP_MAX, e);
    if (o->full > PAWL_CKPT_SKIP) return wrong("full", o->full, PAWL_CKPT_BLOCK, PAWL_CKPT_SKIP, e);
    if (o->backend > PAWL_CKPT_PMEM) return wrong("backend", o->backend, PAWL_CKPT_AUTO, PAWL_CKPT_PMEM, e);
    if (!(o->overhead >= 0 && o->overhead < 1000) || !(o->mtbf_s >= 0) || isinf(o->mtbf_s))
        return error_set(e, PAWL_ARGUMENT, 0,
                         "options.overhead is %g, options.mtbf_s %g: wanted a share and seconds, 0 or more",
                         o->overhead, o->mtbf_s);
    if (o->group != NULL && (o->group->incarnation == 0 || o->group->incarnation > CKPT_START_MAX))
        return wrong("group->incarnation", o->group->incarnation, 1, CKPT_START_MAX, e);
    if (o->must_exist && o->must_be_new)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "options.must_exist and options.must_be_new exclude each other");
    return PAWL_OK;
}

static pawl_code take_options(struct pawl_ckpt *c, const struct pawl_ckpt_options *given,
                              struct pawl_error *e) {
    struct pawl_ckpt_options *o = &c->options;
    *o = *given;
    o->path = NULL; /* never the caller's: what fails from here on frees it */
    if (given->path == NULL || given->path[0] == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "options.path is missing");
    if ((o->path = strdup(given->path)) == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for the checkpointer");
    if (o->rank_count == 0) o->rank_count = 1;
    saver_take_tuned(c);
    if (o->in_flight == 0) o->in_flight = 2;
    if (o->keep == 0) o->keep = 1;
    return check_numbers(o, e);
}

/* ---- the file system as disk ---- */

static pawl_code open_own(void *context, struct store **out, char *why, struct pawl_error *e) {
    static const enum store_kind kinds[] = {
        [PAWL_CKPT_AUTO] = STORE_AUTO,
        [PAWL_CKPT_URING] = STORE_URING,
        [PAWL_CKPT_PLAIN] = STORE_PLAIN,
        [PAWL_CKPT_PMEM] = STORE_PMEM,
    };
    const struct pawl_ckpt *c = context;
    char name[32];
    snprintf(name, sizeof name, "store/" RUN_STORE_NAME, c->options.rank);
    char *path = run_path(&c->run, "", name);
    if (path == NULL) return saver_no_memory(c, e);
    pawl_code code = store_open(path, kinds[c->options.backend], false, out, why, e);
    free(path);
    return code;
}

static pawl_code open_all(void *context, struct saver_stores *out, struct pawl_error *e) {
    const struct pawl_ckpt *c = context;
    return saver_stores_open(c->run.path, true, out, e);
}

/* ---- which start ---- */

static uint32_t count_problems(const struct ckpt_set *set) {
    uint32_t count = 0;
    while (ckpt_set_problem(set, count) != NULL) count++;
    return count;
}

/* Nothing to resume from: is that a first start, or a loss? */
static pawl_code check_loss(const struct pawl_ckpt *c, const struct ckpt_set *set, struct pawl_error *e) {
    bool saved = false;
    pawl_code code = run_was_saved(&c->run, &saved, e);
    uint32_t problems = count_problems(set);
    if (code != PAWL_OK || (!saved && problems == 0)) return code;
    if (problems > 0)
        return error_set(e, PAWL_CORRUPT, 0,
                         "%.300s: no step can be resumed from; %u problems, the first: %.300s",
                         c->options.path, problems, ckpt_set_problem(set, 0));
    return error_set(e, PAWL_CORRUPT, 0,
                     "%.500s: steps were durable once, and none is complete and unmarked now",
                     c->options.path);
}

static pawl_code look_at_set(const struct pawl_ckpt *c, const struct ckpt_set *set, struct start *out,
                             struct pawl_error *e) {
    struct ckpt_marks marks;
    pawl_code code = run_marks(&c->run, &marks, e);
    if (code != PAWL_OK) return code;
    for (uint32_t i = 0; i < ckpt_set_count(set) && code == PAWL_OK; i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (s->incarnation > out->incarnation) out->incarnation = s->incarnation;
        if (s->incarnation > CKPT_START_MAX)
            code = error_set(e, PAWL_CORRUPT, 0,
                             "%.500s: step %" PRIu64 " is stored as of start %" PRIu64
                             ": no start has a number above %llu",
                             c->options.path, s->step, s->incarnation, CKPT_START_MAX);
    }
    for (uint32_t i = 0; i < marks.count; i++)
        if (marks.items[i].step == 0 && marks.items[i].incarnation > out->incarnation)
            out->incarnation = marks.items[i].incarnation;
    uint32_t newest = saver_newest(set, &marks);
    if (newest != UINT32_MAX) {
        out->step = ckpt_set_at(set, newest)->step;
        out->step_incarnation = ckpt_set_at(set, newest)->incarnation;
    }
    ckpt_marks_close(&marks);
    return code;
}

/* What is stored, as far as it can be read; that a store cannot be opened is an error. */
static pawl_code look(void *context, struct start *out, struct pawl_error *e) {
    struct pawl_ckpt *c = context;
    struct saver_stores stores;
    struct ckpt_set *set = NULL;
    *out = (struct start){0};
    pawl_code code = c->disk.open_all(c->disk.context, &stores, e);
    if (code != PAWL_OK) return code;
    struct ckpt_set_options options = {.run_id = c->run.id, .unchecked = c->options.unchecked};
    code = ckpt_set_open_with(stores.stores, stores.count, &options, &set, e);
    if (code == PAWL_OK) saver_note_problems(c, set);
    if (code == PAWL_OK) code = look_at_set(c, set, out, e);
    if (code == PAWL_OK && out->step == 0) {
        struct pawl_error why = {0};
        if (check_loss(c, set, &why) != PAWL_OK) c->loss = why;
    }
    ckpt_set_close(set);
    saver_stores_close(&stores);
    return code;
}

/* A step that ranks of an earlier, larger start committed may be known to the machine's memory only. */
static pawl_code settle_absent(struct pawl_ckpt *c, struct pawl_error *e) {
    struct saver_stores stores;
    pawl_code code = saver_stores_open(c->run.path, true, &stores, e);
    if (code != PAWL_OK) return code;
    for (uint32_t i = 0; i < stores.count && code == PAWL_OK; i++) {
        unsigned rank = 0;
        struct store *s = NULL;
        if (sscanf(stores.names[i], "rank-%u", &rank) != 1 || rank < c->options.rank_count) continue;
        code = store_open(store_path(stores.stores[i]), STORE_PLAIN, false, &s, NULL, e);
        if (code == PAWL_OK) code = ckpt_settle(s, e);
        store_close(s);
    }
    saver_stores_close(&stores);
    return code;
}

static pawl_code join_start(struct pawl_ckpt *c, struct start *out, struct pawl_error *e) {
    struct starts_look looks = {c, look};
    char token[STARTS_TOKEN_BYTES];
    bool other = false;
    const struct pawl_ckpt_options *o = &c->options;
    pawl_code code = PAWL_OK;
    if (o->group != NULL || c->run.path == NULL) {
        code = look(c, out, e);
        if (code != PAWL_OK || o->group == NULL) {
            out->incarnation++;
            return code;
        }
        out->step_incarnation = out->step == o->group->resume_step ? out->step_incarnation : 0;
        out->incarnation = o->group->incarnation;
        out->step = o->group->resume_step;
        return code;
    }
    code = starts_token(o->start, o->rank_count, token, e);
    if (code == PAWL_OK && o->must_be_new) code = starts_any_other(&c->run, token, &other, e);
    if (code == PAWL_OK && other)
        code = error_set(e, PAWL_BUSY, 0, "%.500s: the run was started before (must_be_new)", o->path);
    if (code == PAWL_OK) code = starts_join(&c->run, token, o->rank_count, &looks, out, e);
    if (code == PAWL_OK && o->rank == 0) code = settle_absent(c, e);
    return code;
}

/* A start's name that was used before would mix the parts of two lives under one incarnation. */
static pawl_code check_fresh(const struct pawl_ckpt *c, struct pawl_error *e) {
    struct pawl_error why;
    if (group_check_fresh(c->group, &why) == PAWL_OK) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "this rank has saved in a start of this name before: every start of the run needs a new "
                     "name, the same on all ranks (%.400s)",
                     why.text);
}

/* ---- the engine ---- */

pawl_code saver_engine(struct pawl_ckpt *c, uint64_t resume_step, uint32_t in_flight, struct pawl_error *e) {
    if (c->engine != NULL && c->engine_resume == resume_step && c->engine_in_flight == in_flight &&
        c->engine_anew == c->anew && c->engine_staging_bytes == c->options.staging_bytes)
        return PAWL_OK;
    const struct pawl_ckpt_options *o = &c->options;
    struct ckpt_config config = {.incarnation = c->incarnation,
                                 .resume_step = resume_step,
                                 .anew = c->anew,
                                 .in_flight = in_flight,
                                 .keep = o->keep,
                                 .chunk_bytes = o->chunk_bytes,
                                 .writers = o->writers,
                                 .staging_bytes = o->staging_bytes,
                                 .unchecked = o->unchecked};
    memcpy(config.run_id, c->run.id, sizeof config.run_id);
    pawl_code code = ckpt_close(c->engine, 0, e);
    c->engine = NULL;
    if (code == PAWL_OK) code = ckpt_open(&config, c->store, &c->engine, e);
    c->engine_resume = resume_step;
    c->engine_in_flight = in_flight;
    c->engine_anew = c->anew;
    c->engine_staging_bytes = o->staging_bytes;
    if (code == PAWL_OK) ckpt_staging(c->engine, &c->status.staging_bytes, &c->status.staging_used_bytes);
    return code;
}

pawl_code saver_widen(struct pawl_ckpt *c, uint32_t copies, uint64_t staging_bytes, struct pawl_error *e) {
    uint32_t wanted = c->options.in_flight * copies;
    uint64_t before = c->options.staging_bytes;
    if (wanted > CKPT_IN_FLIGHT_MAX) wanted = CKPT_IN_FLIGHT_MAX;
    if (staging_bytes > c->status.staging_bytes) c->options.staging_bytes = staging_bytes;
    pawl_code code = saver_engine(c, c->engine_resume, wanted, e);
    if (code != PAWL_MEMORY || c->options.staging_bytes == before) return code;
    c->options.staging_bytes = before;
    return saver_engine(c, c->engine_resume, wanted, e);
}

/* ---- open ---- */

static pawl_code open_run(struct pawl_ckpt *c, struct pawl_error *e) {
    struct run_open how = {.must_exist = c->options.must_exist};
    memcpy(how.id, c->options.run_id, sizeof how.id);
    if (c->disk.open_own != open_own) { /* a test's disk has no folder; the id is as given */
        memcpy(c->run.id, how.id, sizeof how.id);
        return PAWL_OK;
    }
    return run_open(c->options.path, &how, &c->run, e);
}

static pawl_code open_parts(struct pawl_ckpt *c, struct pawl_error *e) {
    struct start start = {0};
    pawl_code code = open_run(c, e);
    if (code == PAWL_OK) code = c->disk.open_own(c->disk.context, &c->store, c->status.backend, e);
    if (code == PAWL_OK) code = join_start(c, &start, e);
    if (code != PAWL_OK) return code;
    c->incarnation = start.incarnation;
    c->stored_step = start.step;
    c->stored_incarnation = start.step_incarnation;
    c->status.durable_step = start.step;
    memcpy(c->status.run_id, c->run.id, sizeof c->status.run_id);
    size_t said = strlen(c->status.backend);
    snprintf(c->status.backend + said, sizeof c->status.backend - said, "%s", c->tuned_note);
    struct group_config group = {.run = &c->run,
                                 .table = c->options.group,
                                 .incarnation = c->incarnation,
                                 .rank = c->options.rank,
                                 .rank_count = c->options.rank_count};
    code = group_open(&group, &c->group, e);
    if (code == PAWL_OK) code = check_fresh(c, e);
    if (code == PAWL_OK) code = saver_engine(c, c->stored_step, c->options.in_flight, e);
    if (code == PAWL_OK) code = saver_due_new(c, e);
    return code;
}

static void init_locks(struct pawl_ckpt *c) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* deadlines are of that clock */
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->for_caller, &attributes);
    pthread_cond_init(&c->for_keeper, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void free_all(struct pawl_ckpt *c) {
    saver_due_free(c);
    group_close(c->group);
    (void)ckpt_close(c->engine, 0, NULL);
    store_close(c->store);
    run_close(&c->run);
    saver_states_free(c);
    pthread_cond_destroy(&c->for_keeper);
    pthread_cond_destroy(&c->for_caller);
    pthread_mutex_destroy(&c->mutex);
    free(c->outcomes);
    free(c->events);
    free(c->damage);
    saver_blobs_free(c);
    free((void *)(uintptr_t)c->options.path);
    free(c);
}

pawl_code saver_open(const struct pawl_ckpt_options *options, const struct saver_disk *disk,
                     struct pawl_ckpt **out, struct pawl_error *e) {
    *out = NULL;
    struct pawl_ckpt *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the checkpointer");
    init_locks(c);
    c->tasks_end = &c->tasks;
    c->patience_ns = PAWL_CKPT_PEER_PATIENCE_NS;
    c->disk = disk != NULL ? *disk : (struct saver_disk){c, open_own, open_all};
    c->outcomes = calloc(SAVER_OUTCOMES, sizeof *c->outcomes);
    c->events = calloc(SAVER_EVENTS, sizeof *c->events);
    pawl_code code = c->outcomes == NULL || c->events == NULL
                         ? error_set(e, PAWL_MEMORY, 0, "no memory for the checkpointer")
                         : take_options(c, options, e);
    if (code == PAWL_OK) code = open_parts(c, e);
    if (code == PAWL_OK)
        *out = c;
    else
        free_all(c);
    return code;
}

pawl_code pawl_ckpt_open(const struct pawl_ckpt_options *options, struct pawl_ckpt **out,
                         struct pawl_error *e) {
    return saver_open(options, NULL, out, e);
}

/* ---- close ---- */

static void stop_keeper(struct pawl_ckpt *c, int64_t deadline_ns) {
    if (!c->has_thread) return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    c->stop_deadline_ns = deadline_ns;
    saver_nudge(c);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
}

/* The first failure that no call has told, else why the last step is not known to be durable. */
static const struct pawl_error *last_word(const struct pawl_ckpt *c, const struct pawl_error *undecided) {
    if (c->untold.code != PAWL_OK) return &c->untold;
    if (undecided->code != PAWL_OK) return undecided;
    return c->tolerated.code != PAWL_OK ? &c->tolerated : &c->starved;
}

pawl_code pawl_ckpt_close(struct pawl_ckpt *c, int64_t deadline_ns, struct pawl_error *e) {
    if (c == NULL) return PAWL_OK;
    stop_keeper(c, deadline_ns);
    struct pawl_error why = {0}, undecided = {0};
    (void)ckpt_close(c->engine, deadline_ns, &why);
    c->engine = NULL;
    saver_drain(c, &why, &undecided);
    saver_tell(c);
    const struct pawl_error *word = last_word(c, &undecided);
    pawl_code code = word->code;
    if (code != PAWL_OK && e != NULL) *e = *word;
    free_all(c);
    return code;
}
