/* The keeper: the thread that owns the engine and the group, and ends what the caller began.
 *
 * One turn: hand queued saves to the engine, pass cancellations on, take what the engine says, ask the group,
 * tell the events. When a turn did nothing it sleeps: in the engine while that has operations under way, else
 * on a condition variable, until it is nudged or the group is to be asked again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "saver/saver.h"

#define KEEPER_EVENTS 16u

int saver_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns) {
    if (deadline_ns == PAWL_FOREVER) return pthread_cond_wait(cond, mutex);
    if (deadline_ns < 0) deadline_ns = 0;
    struct timespec t = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(cond, mutex, &t);
}

void saver_nudge(struct pawl_ckpt *c) {
    c->nudged = true;
    pthread_cond_signal(&c->for_keeper);
    if (c->sleeping_in_engine) ckpt_wake(c->engine);
}

/* ---- how a task ends; under the mutex ---- */

static void unlink_task(struct pawl_ckpt *c, struct task *t) {
    struct task **at = &c->tasks;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (c->tasks_end == &t->next) c->tasks_end = at;
}

static void end_task(struct pawl_ckpt *c, struct task *t, enum saver_reached reached) {
    struct outcome *o = &c->outcomes[t->id % SAVER_OUTCOMES];
    *o = (struct outcome){.id = t->id, .reached = reached, .code = t->code, .error = t->error};
    if (t->phase == TASK_COMMITTED)
        c->undecided--;
    else
        c->in_flight--;
    unlink_task(c, t);
    saver_task_free(t);
    pthread_cond_broadcast(&c->for_caller);
}

/* The step will not be durable, whoever's fault it is. */
static void note_failure(struct pawl_ckpt *c, const struct task *t) {
    c->status.failed_in_row++;
    if (t->step > c->failed_step) c->failed_step = t->step;
    if (c->status.failed_in_row <= c->options.tolerate) {
        if (c->tolerated.code != PAWL_OK) return;
        c->tolerated = t->error;
        c->tolerated_id = t->id;
        return;
    }
    c->pending = t->error;
    c->pending_id = t->id;
    if (c->untold.code != PAWL_OK) return;
    c->untold = t->error;
    c->untold_id = t->id;
}

/* Failures and skips before a durable step cost nothing that it does not make up for. */
static void note_success(struct pawl_ckpt *c, uint64_t step) {
    if (step > c->failed_step) {
        c->status.failed_in_row = 0;
        c->tolerated.code = PAWL_OK;
    }
    if (step >= c->starved_step) c->starved.code = PAWL_OK;
}

static void task_failed(struct pawl_ckpt *c, struct task *t) {
    bool cancelled = t->code == PAWL_CANCELLED;
    t->captured = true; /* nothing uses the memory any more */
    saver_due_ended(c, t->step, false);
    if (cancelled) {
        c->status.cancelled++;
    } else {
        c->status.failed++;
        note_failure(c, t);
    }
    struct pawl_ckpt_event event = saver_task_event(c, t, cancelled ? PAWL_CKPT_CANCELLED : PAWL_CKPT_FAILED);
    end_task(c, t, REACHED_NOTHING);
    saver_event(c, event);
}

static void task_committed(struct pawl_ckpt *c, struct task *t) {
    t->captured = true;
    t->phase = TASK_COMMITTED;
    c->in_flight--;
    c->undecided++;
    c->status.committed++;
    c->status.bytes_written += t->bytes;
    saver_due_ended(c, t->step, true);
    saver_event(c, saver_task_event(c, t, PAWL_CKPT_COMMITTED));
    pthread_cond_broadcast(&c->for_caller);
}

/* ---- handing over ---- */

static struct group_entry entry_of(const struct task *t, uint32_t share, bool committed) {
    const struct saver_share *plan = t->shares[share].plan;
    return (struct group_entry){.step = t->step,
                                .unit = t->unit,
                                .unit_count = t->unit_count,
                                .part = plan->part,
                                .part_count = plan->part_count,
                                .copies = t->copies,
                                .committed = committed};
}

static void note_group(struct pawl_ckpt *c, const struct task *t, bool committed) {
    for (uint32_t i = 0; i < t->share_count; i++) {
        struct group_entry entry = entry_of(t, i, committed);
        group_note(c->group, &entry, i + 1 == t->share_count);
    }
}

static void fail_task(struct task *t, pawl_code code, const struct pawl_error *why) {
    if (t->code != PAWL_OK) return;
    t->code = code;
    t->error = *why;
}

/* Nothing of it is under way: tells the group and ends it. */
static void settle(struct pawl_ckpt *c, struct task *t) {
    bool over = t->ended == t->begun && (t->begun == t->share_count || t->code != PAWL_OK);
    if (!over) return;
    bool good = t->code == PAWL_OK;
    note_group(c, t, good);
    pthread_mutex_lock(&c->mutex);
    if (good)
        task_committed(c, t);
    else
        task_failed(c, t);
    pthread_mutex_unlock(&c->mutex);
}

static pawl_code begin_share(struct pawl_ckpt *c, const struct task *t, struct pawl_error *e) {
    const struct task_share *share = &t->shares[t->begun];
    struct ckpt_save save = {.step = t->step,
                             .tag = t->id,
                             .unit = t->unit,
                             .unit_count = t->unit_count,
                             .part = share->plan->part,
                             .part_count = share->plan->part_count,
                             .layout = share->plan->layout,
                             .data = share->data,
                             .blob = t->blob,
                             .blob_bytes = t->blob_bytes,
                             .staged = !t->immutable,
                             .want_captured = true};
    return ckpt_save_begin(c->engine, &save, e);
}

static void announce(struct pawl_ckpt *c, struct task *t) {
    pthread_mutex_lock(&c->mutex);
    t->phase = TASK_RUNNING;
    saver_event(c, saver_task_event(c, t, PAWL_CKPT_BEGUN));
    pthread_mutex_unlock(&c->mutex);
}

/* The tasks' order is that of the saves; one that waits for room keeps younger ones behind it. */
static struct task *next_to_begin(struct pawl_ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    struct task *t = c->tasks;
    while (t != NULL && (t->phase == TASK_COMMITTED || t->begun == t->share_count || t->code != PAWL_OK))
        t = t->next;
    bool cancel = t != NULL && t->cancel;
    pthread_mutex_unlock(&c->mutex);
    if (!cancel) return t;
    struct pawl_error why;
    error_set(&why, PAWL_CANCELLED, 0, "save of step %" PRIu64 ": given up on request", t->step);
    fail_task(t, PAWL_CANCELLED, &why);
    return t;
}

static bool begin_queued(struct pawl_ckpt *c) {
    bool any = false;
    for (struct task *t; (t = next_to_begin(c)) != NULL; any = true) {
        struct pawl_error why = {0};
        if (t->code == PAWL_OK) {
            pawl_code code = begin_share(c, t, &why);
            if (code == PAWL_BUSY) return any;
            if (t->begun == 0 && code == PAWL_OK) announce(c, t);
            if (code == PAWL_OK)
                t->begun++;
            else
                fail_task(t, code, &why);
        }
        if (t->code != PAWL_OK && t->begun > t->ended) ckpt_cancel(c->engine, t->id);
        settle(c, t);
    }
    return any;
}

static bool pass_cancels(struct pawl_ckpt *c) {
    uint64_t ids[SAVER_TASKS_MAX];
    uint32_t count = 0;
    pthread_mutex_lock(&c->mutex);
    for (struct task *t = c->tasks; t != NULL && count < SAVER_TASKS_MAX; t = t->next) {
        if (!t->cancel || t->cancel_passed || t->phase != TASK_RUNNING) continue;
        t->cancel_passed = true;
        ids[count++] = t->id;
    }
    pthread_mutex_unlock(&c->mutex);
    for (uint32_t i = 0; i < count; i++) ckpt_cancel(c->engine, ids[i]);
    return count > 0;
}

/* ---- what the engine says ---- */

/* Only the keeper takes tasks out, so one found stays. */
static struct task *task_of(struct pawl_ckpt *c, uint64_t id) {
    pthread_mutex_lock(&c->mutex);
    struct task *t = c->tasks;
    while (t != NULL && t->id != id) t = t->next;
    pthread_mutex_unlock(&c->mutex);
    return t;
}

static void take_captured(struct pawl_ckpt *c, struct task *t, const struct ckpt_event *event) {
    if (event->capture_ns > t->capture_ns) t->capture_ns = event->capture_ns;
    if (++t->captured_shares < t->share_count) return;
    pthread_mutex_lock(&c->mutex);
    t->captured = true;
    saver_event(c, saver_task_event(c, t, PAWL_CKPT_CAPTURED));
    pthread_cond_broadcast(&c->for_caller);
    pthread_mutex_unlock(&c->mutex);
}

static void take_ended(struct pawl_ckpt *c, struct task *t, const struct ckpt_event *event) {
    t->ended++;
    t->bytes += event->code == PAWL_OK ? event->bytes : 0;
    if (event->capture_ns > t->capture_ns) t->capture_ns = event->capture_ns;
    if (event->write_ns > t->write_ns) t->write_ns = event->write_ns;
    t->total_ns = clock_now_ns() - t->begin_ns;
    if (event->code != PAWL_OK && t->code == PAWL_OK) {
        fail_task(t, event->code, &event->error);
        if (t->begun > t->ended) ckpt_cancel(c->engine, t->id);
    }
    settle(c, t);
}

static bool take_events(struct pawl_ckpt *c) {
    struct ckpt_event events[KEEPER_EVENTS];
    uint32_t count = ckpt_poll(c->engine, events, KEEPER_EVENTS);
    for (uint32_t i = 0; i < count; i++) {
        struct task *t = task_of(c, events[i].tag);
        if (t == NULL) continue;
        if (events[i].kind == CKPT_CAPTURED)
            take_captured(c, t, &events[i]);
        else
            take_ended(c, t, &events[i]);
    }
    uint64_t done = ckpt_progress(c->engine);
    if (done != c->progress_seen) {
        pthread_mutex_lock(&c->mutex);
        c->progress_seen = done;
        c->status.progress_ns = clock_now_ns();
        ckpt_staging(c->engine, &c->status.staging_bytes, &c->status.staging_used_bytes);
        pthread_mutex_unlock(&c->mutex);
    }
    return count > 0;
}

/* ---- what the group says ---- */

/* Committed tasks of `step`, in order; null: none. */
static struct task *committed_task(struct pawl_ckpt *c, uint64_t step) {
    struct task *t = c->tasks;
    while (t != NULL && (t->phase != TASK_COMMITTED || t->step != step)) t = t->next;
    return t;
}

static void step_durable(struct pawl_ckpt *c, uint64_t step) {
    struct pawl_error why;
    /* Once in the life of a run, and before anybody relies on the step: see run_was_saved. */
    if (!c->saved_noted && run_note_saved(&c->run, &why) == PAWL_OK) {
        c->saved_noted = true;
        if (c->run.path != NULL) starts_clean(&c->run, c->incarnation);
    }
    ckpt_durable(c->engine, step);
    pthread_mutex_lock(&c->mutex);
    c->status.durable_step = step;
    c->durable_ns = clock_now_ns();
    note_success(c, step);
    for (struct task *t; (t = committed_task(c, step)) != NULL;) {
        struct pawl_ckpt_event event = saver_task_event(c, t, PAWL_CKPT_DURABLE);
        end_task(c, t, REACHED_DURABLE);
        saver_event(c, event);
    }
    pthread_mutex_unlock(&c->mutex);
}

/* The step never becomes durable: because of another rank, or because nobody needs it any more. */
static void step_given_up(struct pawl_ckpt *c, const struct group_news *news) {
    ckpt_forget(c->engine, news->given_up);
    pthread_mutex_lock(&c->mutex);
    for (struct task *t; (t = committed_task(c, news->given_up)) != NULL;) {
        t->code =
            error_set(&t->error, news->overtaken ? PAWL_CANCELLED : PAWL_PEER_LOST, 0,
                      "step %" PRIu64 " is committed here and will not be durable: %s", t->step, news->who);
        if (news->overtaken) {
            c->status.cancelled++;
        } else {
            c->status.failed++;
            note_failure(c, t);
        }
        struct pawl_ckpt_event event =
            saver_task_event(c, t, news->overtaken ? PAWL_CKPT_CANCELLED : PAWL_CKPT_FAILED);
        end_task(c, t, REACHED_COMMITTED);
        saver_event(c, event);
    }
    pthread_mutex_unlock(&c->mutex);
}

static void fence_off(struct pawl_ckpt *c, const struct pawl_error *why) {
    pthread_mutex_lock(&c->mutex);
    if (c->fenced.code == PAWL_OK) {
        c->fenced = *why;
        if (c->untold.code == PAWL_OK) c->untold = *why;
    }
    for (struct task *t = c->tasks, *next; t != NULL; t = next) {
        next = t->next;
        if (t->phase != TASK_COMMITTED) continue;
        t->code = why->code;
        t->error = *why;
        c->status.failed++;
        struct pawl_ckpt_event event = saver_task_event(c, t, PAWL_CKPT_FAILED);
        end_task(c, t, REACHED_COMMITTED);
        saver_event(c, event);
    }
    pthread_mutex_unlock(&c->mutex);
}

static bool pass_skips(struct pawl_ckpt *c) {
    struct saver_skip skips[SAVER_SKIPS_MAX];
    pthread_mutex_lock(&c->mutex);
    uint32_t count = c->skip_count;
    memcpy(skips, c->skips, count * sizeof *skips);
    c->skip_count = 0;
    pthread_mutex_unlock(&c->mutex);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < skips[i].copies; k++) {
            struct group_entry entry = {.step = skips[i].step,
                                        .unit = skips[i].unit,
                                        .unit_count = skips[i].unit_count,
                                        .part = (skips[i].replica + k) % skips[i].replica_count,
                                        .part_count = skips[i].replica_count,
                                        .copies = skips[i].copies};
            group_note(c->group, &entry, k + 1 == skips[i].copies);
        }
    }
    return count > 0;
}

static bool ask_group(struct pawl_ckpt *c) {
    bool any = pass_skips(c);
    struct group_news news;
    struct pawl_error why = {0};
    while (c->fenced.code == PAWL_OK && group_poll(c->group, clock_now_ns(), &news, &why)) {
        any = true;
        if (news.durable != 0) step_durable(c, news.durable);
        if (news.given_up != 0) step_given_up(c, &news);
    }
    if (why.code == PAWL_BUSY) fence_off(c, &why);
    char missing[96];
    group_missing(c->group, 0, missing, sizeof missing);
    pthread_mutex_lock(&c->mutex);
    if (why.code != PAWL_OK)
        snprintf(c->waits_for, sizeof c->waits_for, "%.95s (%.120s)", missing, why.text);
    else
        snprintf(c->waits_for, sizeof c->waits_for, "%.95s", missing);
    pthread_mutex_unlock(&c->mutex);
    return any;
}

/* ---- the thread ---- */

static void sleep_in_engine(struct pawl_ckpt *c, int64_t until_ns) {
    int64_t left = until_ns == INT64_MAX ? INT64_MAX : until_ns - clock_now_ns();
    if (left > 0) ckpt_wait(c->engine, left);
    pthread_mutex_lock(&c->mutex);
    c->sleeping_in_engine = false;
    pthread_mutex_unlock(&c->mutex);
}

static void sleep_a_while(struct pawl_ckpt *c) {
    int64_t until = c->fenced.code == PAWL_OK ? group_next_ns(c->group) : INT64_MAX;
    bool busy = ckpt_in_flight(c->engine) > 0;
    pthread_mutex_lock(&c->mutex);
    if (c->stop && c->stop_deadline_ns < until) until = c->stop_deadline_ns;
    while (!c->nudged && !busy) {
        if (saver_wait_until(&c->for_keeper, &c->mutex, until) == ETIMEDOUT) break;
    }
    bool engine = !c->nudged && busy;
    c->sleeping_in_engine = engine;
    c->nudged = false;
    pthread_mutex_unlock(&c->mutex);
    if (engine) sleep_in_engine(c, until);
}

/* Closing, with only the group's word to wait for: is there none to come? Under the mutex. A deadline is the
 * caller's patience; without one a rank that is gone must not keep the others for ever. */
static bool group_is_quiet(struct pawl_ckpt *c) {
    int64_t now = clock_now_ns();
    if (c->stop_begin_ns == 0) {
        c->stop_begin_ns = now;
        group_close_begins(c->group);
    }
    int64_t sign = group_changed_ns(c->group);
    if (sign < c->stop_begin_ns) sign = c->stop_begin_ns;
    return c->stop_deadline_ns == PAWL_FOREVER && now - sign >= c->patience_ns;
}

static bool is_over(struct pawl_ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    bool over = c->stop && (clock_now_ns() >= c->stop_deadline_ns ||
                            (c->in_flight == 0 && (c->undecided == 0 || group_is_quiet(c))));
    pthread_mutex_unlock(&c->mutex);
    return over;
}

static void *keeper_main(void *arg) {
    struct pawl_ckpt *c = arg;
    do {
        bool any = begin_queued(c);
        any = pass_cancels(c) || any;
        any = take_events(c) || any;
        any = ask_group(c) || any;
        saver_tell(c);
        if (!any) sleep_a_while(c);
    } while (!is_over(c));
    return NULL;
}

pawl_code saver_start(struct pawl_ckpt *c, struct pawl_error *e) {
    int result = pthread_create(&c->thread, NULL, keeper_main, c);
    if (result != 0)
        return error_set(e, PAWL_MEMORY, result, "%.500s: cannot start the thread that saves",
                         c->options.path);
    c->has_thread = true;
    return PAWL_OK;
}

/* Committed here, and the time to wait for the group is over. */
static void give_up_waiting(struct pawl_ckpt *c, struct task *t, struct pawl_error *undecided) {
    char missing[96];
    group_missing(c->group, t->step, missing, sizeof missing);
    bool forever = c->stop_deadline_ns == PAWL_FOREVER;
    if (t->step < c->status.durable_step)
        t->code = error_set(&t->error, PAWL_CANCELLED, 0,
                            "step %" PRIu64 " is not needed: step %" PRIu64 " is durable", t->step,
                            c->status.durable_step);
    else
        t->code = error_set(&t->error, forever ? PAWL_PEER_LOST : PAWL_TIMEOUT, 0,
                            "step %" PRIu64 " is committed here and not durable: waited for %s%s", t->step,
                            missing, forever ? ": no sign of it came" : " until the time to close was over");
    bool failed = t->code != PAWL_CANCELLED;
    if (failed) *undecided = t->error;
    if (failed)
        c->status.failed++;
    else
        c->status.cancelled++;
    struct pawl_ckpt_event event = saver_task_event(c, t, failed ? PAWL_CKPT_FAILED : PAWL_CKPT_CANCELLED);
    end_task(c, t, REACHED_COMMITTED);
    saver_event(c, event);
}

/* What is in flight was abandoned with the engine. */
void saver_drain(struct pawl_ckpt *c, const struct pawl_error *why, struct pawl_error *undecided) {
    while (c->tasks != NULL) {
        struct task *t = c->tasks;
        if (t->phase == TASK_COMMITTED) {
            give_up_waiting(c, t, undecided);
            continue;
        }
        t->code = PAWL_TIMEOUT;
        error_set(&t->error, PAWL_TIMEOUT, 0,
                  "save of step %" PRIu64 ": given up when the time to close was over%s%s", t->step,
                  why->code != PAWL_OK ? ": " : "", why->code != PAWL_OK ? why->text : "");
        task_failed(c, t);
    }
}
