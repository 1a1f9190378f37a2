/* When to save: feeds the cadence (pawl/tune.h) with iterations, stalls and saves as they happen. */
#include <stdio.h>
#include <string.h>

#include <pawl/tune.h>

#include "base/clock.h"
#include "saver/saver.h"

static double now_s(void) { return (double)clock_now_ns() * 1e-9; }

pawl_code saver_due_new(struct pawl_ckpt *c, struct pawl_error *e) {
    struct pawl_cadence_config config = c->tuned; /* zeros where nothing was measured */
    config.every = c->options.every;
    config.in_flight = c->options.in_flight;
    if (c->options.overhead > 0) config.overhead = c->options.overhead;
    if (c->options.mtbf_s > 0) config.mtbf_s = c->options.mtbf_s;
    pawl_code code = pawl_cadence_new(&config, &c->cadence, e);
    if (code != PAWL_OK) return code;
    struct pawl_cadence_state state;
    pawl_cadence_state(c->cadence, &state);
    c->status.every = state.every;
    return PAWL_OK;
}

void saver_due_free(struct pawl_ckpt *c) { pawl_cadence_free(c->cadence); }

void saver_due_begun(struct pawl_ckpt *c, uint64_t step) { pawl_cadence_begun(c->cadence, step, now_s()); }

void saver_due_ended(struct pawl_ckpt *c, uint64_t step, bool durable) {
    pawl_cadence_ended(c->cadence, step, now_s(), durable);
}

void saver_due_stalled(struct pawl_ckpt *c, int64_t blocked_ns) {
    c->due_stalled_ns += blocked_ns;
    pawl_cadence_stall(c->cadence, (double)blocked_ns * 1e-9);
}

/* Under the mutex. */
static void tell_change(struct pawl_ckpt *c) {
    struct pawl_cadence_change change;
    struct pawl_cadence_state state;
    pawl_cadence_state(c->cadence, &state);
    c->status.every = state.every;
    c->status.iteration_s = state.iteration_s;
    c->status.save_s = state.write_s;
    if (!pawl_cadence_changed(c->cadence, &change)) return;
    struct pawl_ckpt_event event = {.kind = PAWL_CKPT_INTERVAL, .every = change.after};
    snprintf(event.text, sizeof event.text, "%s", change.why);
    saver_event(c, event);
    if (c->has_thread) saver_nudge(c); /* callbacks are the keeper's */
}

bool pawl_ckpt_due(struct pawl_ckpt *c, uint64_t step) {
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&c->mutex);
    if (c->due_called_ns != 0) {
        int64_t took = now - c->due_called_ns - c->due_stalled_ns;
        pawl_cadence_iteration(c->cadence, (double)now * 1e-9, took > 0 ? (double)took * 1e-9 : 0);
    }
    c->due_called_ns = now;
    c->due_stalled_ns = 0;
    bool due = pawl_cadence_due(c->cadence, step);
    tell_change(c);
    pthread_mutex_unlock(&c->mutex);
    return due;
}
