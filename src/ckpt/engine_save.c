/* The owner's calls: begin, poll, wait, cancel, and what the group decided. Each notes what is wanted and
 * wakes the engine; none waits for the device. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/engine.h"

void job_free(struct job *job) {
    if (job == NULL) return;
    slot_plan_close(&job->plan);
    mem_free(job->header, job->header_room);
    free(job);
}

static pawl_code no_memory(const struct ckpt *c, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "%s: no memory for a save", store_path(c->store));
}

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
        job_free(job);
        return NULL;
    }
    job->staged = save->staged;
    job->want_captured = save->want_captured;
    job->ready = (struct engine_list){ENGINE_NONE, ENGINE_NONE};
    for (uint32_t i = 0; i < job->plan.span_count; i++) job->mixed |= job->plan.spans[i].memory != NULL;
    job->event = (struct ckpt_event){
        .step = save->step, .tag = save->tag, .part = save->part, .part_count = save->part_count};
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
    while (c->flights[job->flight].used) job->flight++; /* as many as may be unpolled */
    c->flights[job->flight] = (struct engine_flight){.used = true, .tag = save->tag};
    c->queue[c->queue_count++] = job;
    c->unpolled++;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
    return PAWL_OK;
}

/* ---- events ---- */

static void announce(struct ckpt *c) {
    uint64_t one = 1;
    if (c->event_fd >= 0 && write(c->event_fd, &one, sizeof one) < 0) { /* full means readable already */
    }
}

void engine_event(struct ckpt *c, const struct job *job, enum ckpt_event_kind kind) {
    pthread_mutex_lock(&c->mutex);
    struct engine_event *out = &c->events[c->event_count++]; /* at most two for each unpolled save */
    *out = (struct engine_event){job->event, job->flight};
    out->event.kind = kind;
    pthread_mutex_unlock(&c->mutex);
    announce(c);
}

uint32_t ckpt_poll(struct ckpt *c, struct ckpt_event *out, uint32_t max) {
    if (!c->has_thread) {
        engine_take_requests(c);
        engine_pump(c);
    }
    pthread_mutex_lock(&c->mutex);
    uint64_t announced = 0;
    if (c->event_fd >= 0 && read(c->event_fd, &announced, sizeof announced) < 0) { /* nothing was */
    }
    uint32_t taken = c->event_count < max ? c->event_count : max;
    for (uint32_t i = 0; i < taken; i++) {
        out[i] = c->events[i].event;
        if (out[i].kind != CKPT_ENDED) continue;
        c->flights[c->events[i].flight].used = false;
        c->unpolled--;
    }
    c->event_count -= taken;
    memmove(c->events, c->events + taken, c->event_count * sizeof *c->events);
    if (c->event_count > 0) announce(c);
    pthread_mutex_unlock(&c->mutex);
    return taken;
}

/* ---- waiting ---- */

static bool has_events(struct ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    bool any = c->event_count > 0;
    pthread_mutex_unlock(&c->mutex);
    return any;
}

/* A wake is kept apart from the descriptor: ckpt_poll, which clears that, must not swallow it. */
void ckpt_wait(struct ckpt *c, int64_t timeout_ns) {
    if (atomic_exchange(&c->woken, false) || has_events(c) || timeout_ns <= 0) return;
    if (c->has_thread) {
        struct pollfd p = {.fd = c->event_fd, .events = POLLIN};
        struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        (void)ppoll(&p, 1, &t, NULL);
    } else if (!c->more) {
        engine_sleep(c, timeout_ns);
    }
    atomic_store(&c->woken, false);
}

void ckpt_wake(struct ckpt *c) {
    atomic_store(&c->woken, true);
    if (c->has_thread) {
        announce(c);
        return;
    }
    pthread_mutex_lock(&c->mutex);
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
}

void ckpt_cancel(struct ckpt *c, uint64_t tag) {
    pthread_mutex_lock(&c->mutex);
    for (uint32_t i = 0; i < COMMIT_SAVES_MAX; i++)
        if (c->flights[i].used && c->flights[i].tag == tag) c->flights[i].cancelled = true;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
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
        engine_call(c);
    }
    pthread_mutex_unlock(&c->mutex);
}

void ckpt_enter(struct ckpt *c, uint64_t incarnation, uint64_t resume_step) {
    pthread_mutex_lock(&c->mutex);
    c->config.incarnation = incarnation;
    c->resumes = resume_step != 0;
    c->resume_step = resume_step;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
}

void ckpt_forget(struct ckpt *c, uint64_t step) {
    pthread_mutex_lock(&c->mutex);
    if (c->forgotten_count == COMMIT_KEEP_MAX) /* one slot more stays for a while */
        memmove(c->forgotten, c->forgotten + 1, --c->forgotten_count * sizeof c->forgotten[0]);
    c->forgotten[c->forgotten_count++] = step;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
}
