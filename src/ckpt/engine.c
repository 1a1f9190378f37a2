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

void engine_job_free(struct job *job) {
    if (job == NULL) return;
    slot_plan_close(&job->plan);
    mem_free(job->header, job->header_room);
    free(job);
}

void engine_report(struct ckpt *c, struct job *job) {
    struct ckpt_event *event = &job->event;
    event->total_ns = clock_now_ns() - job->begin_ns;
    if (event->code != PAWL_OK)
        error_wrap(&event->error, "save of step %" PRIu64 ", part %u of %u", event->step, event->part,
                   event->part_count);
    pthread_mutex_lock(&c->mutex);
    c->events[c->event_count++] = *event; /* at most in_flight are unpolled */
    pthread_mutex_unlock(&c->mutex);
    uint64_t one = 1;
    if (c->event_fd >= 0 && write(c->event_fd, &one, sizeof one) < 0) { /* full means readable already */
    }
    engine_job_free(job);
}

/* ---- the loop ---- */

/* Takes over what the owner asked for. */
static void take_requests(struct ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    for (uint32_t i = 0; i < c->durable_count; i++) commit_durable(&c->core, c->durable[i]);
    c->durable_count = 0;
    for (uint32_t i = 0; i < c->forgotten_count; i++) commit_forget(&c->core, c->forgotten[i]);
    c->forgotten_count = 0;
    for (uint32_t i = 0; i < c->queue_count; i++) {
        uint32_t save = 0;
        struct job *job = c->queue[i];
        (void)commit_begin(&c->core, job->event.step, job->plan.chunk_count,
                           &save); /* never BUSY: unpolled is bounded */
        c->jobs[save] = job;
    }
    c->queue_count = 0;
    pthread_mutex_unlock(&c->mutex);
}

static bool is_idle(const struct ckpt *c) { return commit_unreported(&c->core) == 0 && c->ops_busy == 0; }

/* Everything that was begun to its end, or from the deadline on to where it can be dropped: buffers belong to
 * the owner again only when no operation uses them. */
static void finish(struct ckpt *c) {
    for (bool abandoned = false;;) {
        take_requests(c);
        if (!abandoned && clock_now_ns() >= c->deadline_ns) {
            commit_abandon(&c->core, PAWL_TIMEOUT);
            abandoned = true;
        }
        bool any = engine_pump(c);
        if (is_idle(c)) return;
        if (any) continue;
        int64_t left = c->deadline_ns - clock_now_ns();
        store_wait(c->store, abandoned || left > 1000000000 ? 1000000000 : left);
    }
}

static void *thread_main(void *arg) {
    struct ckpt *c = arg;
    for (;;) {
        pthread_mutex_lock(&c->mutex);
        bool idle = is_idle(c);
        while (idle && !c->stop && c->queue_count == 0 && c->durable_count == 0 && c->forgotten_count == 0)
            pthread_cond_wait(&c->wake, &c->mutex);
        bool stop = c->stop;
        pthread_mutex_unlock(&c->mutex);
        if (stop) break;
        take_requests(c);
        if (!engine_pump(c) && c->ops_busy > 0) store_wait(c->store, ENGINE_LOOK_NS);
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
    return PAWL_OK;
}

static pawl_code no_memory(const struct ckpt *c, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "%s: no memory for the checkpoint engine", store_path(c->store));
}

static pawl_code reserve(struct ckpt *c, struct pawl_error *e) {
    uint64_t buffers = ENGINE_POOL_BYTES / c->config.chunk_bytes;
    c->chunks_max = store_depth(c->store);
    if (buffers > c->chunks_max) buffers = c->chunks_max;
    if (buffers == 0) buffers = 1;
    c->op_count = c->chunks_max + c->config.in_flight + 1; /* chunks, one other per save, the record */
    c->ops = calloc(c->op_count, sizeof *c->ops);
    c->free_buffers = calloc(buffers, sizeof *c->free_buffers);
    c->pool_bytes = (size_t)(buffers * c->config.chunk_bytes);
    c->pool = mem_alloc(c->pool_bytes);
    c->log.block = mem_alloc(RECORD_REGION_BYTES);
    if (c->ops == NULL || c->free_buffers == NULL || c->pool == NULL || c->log.block == NULL)
        return no_memory(c, e);
    for (uint32_t i = 0; i < buffers; i++) c->free_buffers[c->free_buffer_count++] = i;
    return PAWL_OK;
}

static void engine_free(struct ckpt *c) {
    for (uint32_t i = 0; i < COMMIT_SLOTS_MAX; i++) store_file_close(c->slots[i].file);
    store_file_close(c->log.file);
    mem_free(c->log.block, RECORD_REGION_BYTES);
    mem_free(c->pool, c->pool_bytes);
    free(c->free_buffers);
    free(c->ops);
    if (c->event_fd >= 0) close(c->event_fd);
    pthread_cond_destroy(&c->wake);
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
    if (c->config.chunk_bytes == 0) c->config.chunk_bytes = ENGINE_CHUNK_BYTES;
    c->store = store;
    c->event_fd = -1;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->wake, NULL);
    commit_init(&c->core, config->in_flight, config->keep, config->resume_step);
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
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    else
        finish(c);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < c->event_count && code == PAWL_OK; i++) {
        code = c->events[i].code;
        if (code != PAWL_OK && e != NULL) *e = c->events[i].error;
    }
    engine_free(c);
    return code;
}

/* ---- saving ---- */

static struct job *job_new(struct ckpt *c, const struct ckpt_save *save, struct pawl_error *e) {
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        no_memory(c, e);
        return NULL;
    }
    job->begin_ns = clock_now_ns();
    if (slot_plan_make(&c->config, save, &job->plan, e) != PAWL_OK) {
        free(job);
        return NULL;
    }
    job->header_room = job->plan.header_bytes;
    job->header = mem_alloc(job->header_room);
    if (job->header == NULL) {
        no_memory(c, e);
        engine_job_free(job);
        return NULL;
    }
    job->event = (struct ckpt_event){.step = save->step, .part = save->part, .part_count = save->part_count};
    job->event.bytes = job->plan.header_bytes + job->plan.data_bytes;
    job->entry = (struct record_entry){.step = save->step,
                                       .incarnation = c->config.incarnation,
                                       .unit = save->unit,
                                       .unit_count = save->unit_count,
                                       .part = save->part,
                                       .part_count = save->part_count,
                                       .header_bytes = job->plan.header_bytes,
                                       .file_bytes = job->event.bytes};
    return job;
}

pawl_code ckpt_save_begin(struct ckpt *c, const struct ckpt_save *save, struct pawl_error *e) {
    /* Only the owner begins and polls, so this cannot change before the lock below but downwards. */
    if (ckpt_in_flight(c) >= c->config.in_flight)
        return error_set(e, PAWL_BUSY, 0,
                         "save of step %" PRIu64 ": %u saves are in flight, the most allowed", save->step,
                         c->config.in_flight);
    struct pawl_error own = {0};
    struct pawl_error *why = e != NULL ? e : &own;
    struct job *job = job_new(c, save, why);
    if (job == NULL) return why->code;
    pthread_mutex_lock(&c->mutex);
    c->queue[c->queue_count++] = job;
    c->unpolled++;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    return PAWL_OK;
}

uint32_t ckpt_poll(struct ckpt *c, struct ckpt_event *out, uint32_t max) {
    if (!c->has_thread) {
        take_requests(c);
        engine_pump(c);
    }
    pthread_mutex_lock(&c->mutex);
    uint64_t count = 0;
    if (c->event_fd >= 0 && read(c->event_fd, &count, sizeof count) < 0) { /* nothing was announced */
    }
    uint32_t taken = c->event_count < max ? c->event_count : max;
    memcpy(out, c->events, taken * sizeof *out);
    memmove(c->events, c->events + taken, (c->event_count - taken) * sizeof *out);
    c->event_count -= taken;
    c->unpolled -= taken;
    count = 1;
    if (c->event_count > 0 && c->event_fd >= 0 &&
        write(c->event_fd, &count, sizeof count) < 0) { /* readable already */
    }
    pthread_mutex_unlock(&c->mutex);
    return taken;
}

int ckpt_fd(const struct ckpt *c) { return c->event_fd; }

uint64_t ckpt_progress(const struct ckpt *c) {
    return atomic_load_explicit(&c->operations, memory_order_relaxed);
}

uint32_t ckpt_in_flight(const struct ckpt *c) {
    struct ckpt *mutable = (struct ckpt *)(uintptr_t)c; /* the lock is no part of what const protects */
    pthread_mutex_lock(&mutable->mutex);
    uint32_t count = c->unpolled;
    pthread_mutex_unlock(&mutable->mutex);
    return count;
}

void ckpt_durable(struct ckpt *c, uint64_t step) {
    pthread_mutex_lock(&c->mutex);
    if (step > c->durable_newest) {
        c->durable_newest = step;
        if (c->durable_count == COMMIT_KEEP_MAX) /* more than can be kept: the oldest are of no interest */
            memmove(c->durable, c->durable + 1, --c->durable_count * sizeof c->durable[0]);
        c->durable[c->durable_count++] = step;
        pthread_cond_signal(&c->wake);
    }
    pthread_mutex_unlock(&c->mutex);
}

void ckpt_forget(struct ckpt *c, uint64_t step) {
    pthread_mutex_lock(&c->mutex);
    if (c->forgotten_count == COMMIT_KEEP_MAX) /* one slot more stays for a while */
        memmove(c->forgotten, c->forgotten + 1, --c->forgotten_count * sizeof c->forgotten[0]);
    c->forgotten[c->forgotten_count++] = step;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}
