/* Events: a ring for pawl_ckpt_poll, callbacks by the keeper's thread, and the status for everybody. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "saver/saver.h"

static const char *const event_names[] = {
    [PAWL_CKPT_BEGUN] = "begun",     [PAWL_CKPT_CAPTURED] = "captured", [PAWL_CKPT_COMMITTED] = "committed",
    [PAWL_CKPT_DURABLE] = "durable", [PAWL_CKPT_SKIPPED] = "skipped",   [PAWL_CKPT_CANCELLED] = "cancelled",
    [PAWL_CKPT_FAILED] = "failed",   [PAWL_CKPT_INTERVAL] = "interval",
};

const char *pawl_ckpt_event_name(enum pawl_ckpt_event_kind kind) {
    size_t count = sizeof event_names / sizeof event_names[0];
    return (size_t)kind < count ? event_names[kind] : "unknown";
}

int64_t pawl_now(void) { return clock_now_ns(); }

void saver_event(struct pawl_ckpt *c, struct pawl_ckpt_event event) {
    event.in_flight = c->in_flight;
    c->events[c->event_head++ % SAVER_EVENTS] = event;
    if (c->event_head - c->event_polled > SAVER_EVENTS) c->event_polled = c->event_head - SAVER_EVENTS;
    if (c->event_head - c->event_told > SAVER_EVENTS) c->event_told = c->event_head - SAVER_EVENTS;
}

struct pawl_ckpt_event saver_task_event(const struct pawl_ckpt *c, const struct task *t,
                                        enum pawl_ckpt_event_kind kind) {
    struct pawl_ckpt_event event = {.kind = kind,
                                    .id = t->id,
                                    .step = t->step,
                                    .code = t->code,
                                    .bytes = t->bytes,
                                    .blocked_ns = t->blocked_ns,
                                    .capture_ns = t->capture_ns,
                                    .write_ns = t->write_ns,
                                    .total_ns = t->total_ns,
                                    .every = c->status.every};
    if (t->code != PAWL_OK) memcpy(event.text, t->error.text, sizeof event.text);
    return event;
}
_Static_assert(sizeof((struct pawl_ckpt_event *)0)->text == sizeof((struct pawl_error *)0)->text,
               "an error's text fits into an event");

void saver_tell(struct pawl_ckpt *c) {
    if (c->options.on_event == NULL) return;
    pthread_mutex_lock(&c->mutex);
    while (c->event_told < c->event_head) {
        struct pawl_ckpt_event event = c->events[c->event_told++ % SAVER_EVENTS];
        pthread_mutex_unlock(&c->mutex);
        c->options.on_event(c->options.on_event_context, &event);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
}

uint32_t pawl_ckpt_poll(struct pawl_ckpt *c, struct pawl_ckpt_event *out, uint32_t max) {
    uint32_t count = 0;
    pthread_mutex_lock(&c->mutex);
    saver_tell_damage(c);
    while (count < max && c->event_polled < c->event_head)
        out[count++] = c->events[c->event_polled++ % SAVER_EVENTS];
    pthread_mutex_unlock(&c->mutex);
    return count;
}

void pawl_ckpt_status(const struct pawl_ckpt *shared, struct pawl_ckpt_status *out) {
    struct pawl_ckpt *c =
        (struct pawl_ckpt *)(uintptr_t)shared; /* the lock is no part of what const protects */
    pthread_mutex_lock(&c->mutex);
    *out = c->status;
    out->in_flight = c->in_flight;
    if (c->durable_ns != 0) out->durable_age_s = (double)(clock_now_ns() - c->durable_ns) * 1e-9;
    pthread_mutex_unlock(&c->mutex);
}
