/* The checkpoint engine's calls, and its thread. See ckpt/ckpt.h; decisions are in commit.c, I/O in
 * engine_io.c. */
#include "ckpt/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- the loop ---- */

void engine_call(struct ckpt *c) {
    c->news = true;
    if (c->waiting) store_wake(c->store);
}

static void take_save(struct ckpt *c, struct job *job) {
    uint32_t save = 0;
    struct commit_request request = {.step = job->event.step, .chunk_count = job->plan.chunk_count};
    for (uint64_t i = 0; i < request.chunk_count; i++)
        request.copy_count += job->staged || job->plan.chunks[i].direct == NULL;
    (void)commit_begin(&c->core, &request, &save); /* never BUSY: unpolled is bounded */
    c->jobs[save] = job;
}

static void take_cancelled(struct ckpt *c) {
    for (uint32_t i = 0; i < c->config.in_flight; i++)
        if (c->jobs[i] != NULL && c->flights[c->jobs[i]->flight].cancelled) commit_cancel(&c->core, i);
}

void engine_take_requests(struct ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    if (c->news) {
        if (c->resumes) commit_resume(&c->core, c->resume_step);
        c->resumes = false;
        for (uint32_t i = 0; i < c->durable_count; i++) commit_durable(&c->core, c->durable[i]);
        for (uint32_t i = 0; i < c->forgotten_count; i++) commit_forget(&c->core, c->forgotten[i]);
        for (uint32_t i = 0; i < c->queue_count; i++) take_save(c, c->queue[i]);
        take_cancelled(c);
        c->durable_count = c->forgotten_count = c->queue_count = 0;
        c->news = false;
    }
    pthread_mutex_unlock(&c->mutex);
}

void engine_sleep(struct ckpt *c, int64_t timeout_ns) {
    pthread_mutex_lock(&c->mutex);
    c->waiting = !c->news;
    bool sleep = c->waiting;
    pthread_mutex_unlock(&c->mutex);
    if (!sleep) return;
    store_wait(c->store, timeout_ns);
    pthread_mutex_lock(&c->mutex);
    c->waiting = false;
    pthread_mutex_unlock(&c->mutex);
}

static bool is_idle(const struct ckpt *c) { return commit_unreported(&c->core) == 0 && c->ops_busy == 0; }

/* Everything that was begun to its end, or from the deadline on to where it can be dropped: buffers belong to
 * the owner again only when no operation uses them. */
static void finish(struct ckpt *c) {
    for (bool abandoned = false;;) {
        engine_take_requests(c);
        int64_t left = c->deadline_ns - clock_now_ns();
        if (!abandoned && left <= 0) {
            commit_abandon(&c->core, PAWL_TIMEOUT);
            abandoned = true;
        }
        bool any = engine_pump(c);
        if (is_idle(c)) return;
        if (!any) engine_sleep(c, abandoned ? INT64_MAX : left);
    }
}

/* Asked after the requests were taken: a stop that comes later is news that nothing sleeps over. */
static bool is_stopped(struct ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->mutex);
    return stop;
}

static void *thread_main(void *arg) {
    struct ckpt *c = arg;
    for (;;) {
        engine_take_requests(c);
        if (is_stopped(c)) break;
        if (!engine_pump(c)) engine_sleep(c, INT64_MAX);
    }
    finish(c);
    return NULL;
}

/* ---- opening and closing ---- */

static pawl_code check_config(const struct ckpt_config *config, struct pawl_error *e) {
    if (config->in_flight < 1 || config->in_flight > COMMIT_SAVES_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "checkpoint: in_flight is %u, wanted 1 to %u",
                         config->in_flight, COMMIT_SAVES_MAX);
    if (config->keep < 1 || config->keep > COMMIT_KEEP_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "checkpoint: keep is %u, wanted 1 to %u", config->keep,
                         COMMIT_KEEP_MAX);
    if (config->chunk_bytes % STORE_BLOCK != 0 || config->chunk_bytes > SLOT_CHUNK_BYTES_MAX)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "checkpoint: chunk_bytes is %" PRIu64 ", wanted a multiple of %u up to %u",
                         config->chunk_bytes, STORE_BLOCK, SLOT_CHUNK_BYTES_MAX);
    if (config->writers > STORE_DEPTH_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "checkpoint: writers is %u, wanted at most %u", config->writers,
                         STORE_DEPTH_MAX);
    return PAWL_OK;
}

/* What is left open: of the two sizes the one given bounds the other. */
static void set_sizes(struct ckpt_config *config) {
    uint64_t *chunk = &config->chunk_bytes, *staging = &config->staging_bytes;
    uint64_t room = *staging / STORE_BLOCK * STORE_BLOCK;
    if (*chunk == 0) *chunk = *staging == 0 || room > ENGINE_CHUNK_BYTES ? ENGINE_CHUNK_BYTES : room;
    if (*chunk == 0) *chunk = STORE_BLOCK;
    if (*staging == 0) *staging = *chunk > ENGINE_STAGING_BYTES ? *chunk : ENGINE_STAGING_BYTES;
}

static pawl_code no_memory(const struct ckpt *c, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "%s: no memory for the checkpoint engine", store_path(c->store));
}

static pawl_code reserve(struct ckpt *c, struct pawl_error *e) {
    c->chunks_max = c->config.writers > 0 ? c->config.writers : store_depth(c->store);
    c->op_count = c->chunks_max + c->config.in_flight + 1; /* chunks, one other per save, the record */
    c->ops = calloc(c->op_count, sizeof *c->ops);
    c->log.block = mem_alloc(RECORD_REGION_BYTES);
    if (c->ops == NULL || c->log.block == NULL) return no_memory(c, e);
    return staging_open(c, e);
}

static void engine_free(struct ckpt *c) {
    for (uint32_t i = 0; i < COMMIT_SLOTS_MAX; i++) store_file_close(c->slots[i].file);
    store_file_close(c->log.file);
    mem_free(c->log.block, RECORD_REGION_BYTES);
    staging_close(c);
    free(c->ops);
    if (c->event_fd >= 0) close(c->event_fd);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

static pawl_code start_thread(struct ckpt *c, struct pawl_error *e) {
    c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->event_fd < 0) return error_set(e, PAWL_IO, errno, "checkpoint: cannot make an eventfd");
    int result = pthread_create(&c->thread, NULL, thread_main, c);
    if (result != 0) return error_set(e, PAWL_MEMORY, result, "checkpoint: cannot start its thread");
    c->has_thread = true;
    return PAWL_OK;
}

pawl_code ckpt_open(const struct ckpt_config *config, struct store *store, struct ckpt **out,
                    struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_config(config, e);
    if (code != PAWL_OK) return code;
    struct ckpt *c = calloc(1, sizeof *c);
    if (c == NULL)
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory for the checkpoint engine", store_path(store));
    c->config = *config;
    set_sizes(&c->config);
    c->store = store;
    c->event_fd = -1;
    pthread_mutex_init(&c->mutex, NULL);
    commit_init(&c->core, config->in_flight, config->keep, config->resume_step);
    c->core.anew = config->anew;
    if (config->writers > 0) store_depth_set(store, config->writers);
    code = reserve(c, e);
    if (code == PAWL_OK) code = engine_load(c, e);
    if (code == PAWL_OK && config->background) code = start_thread(c, e);
    if (code == PAWL_OK)
        *out = c;
    else
        engine_free(c);
    return code;
}

pawl_code ckpt_close(struct ckpt *c, int64_t deadline_ns, struct pawl_error *e) {
    if (c == NULL) return PAWL_OK;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    c->deadline_ns = deadline_ns;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    else
        finish(c);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < c->event_count && code == PAWL_OK; i++) {
        code = c->events[i].event.code;
        if (code != PAWL_OK && e != NULL) *e = c->events[i].event.error;
    }
    engine_free(c);
    return code;
}
