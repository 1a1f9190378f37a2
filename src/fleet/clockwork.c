/* See clockwork.h. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "fleet/clockwork.h"

void clockwork_init(struct clockwork *c) { *c = (struct clockwork){.until_save_s = INFINITY}; }

void clockwork_close(struct clockwork *c) {
    free(c->saves);
    c->saves = NULL;
}

void clockwork_set(struct clockwork *c, double rate, const struct fleet_saving *saving) {
    c->rate = rate;
    c->saving = *saving;
    if (saving->every_s == 0)
        c->until_save_s = INFINITY;
    else if (c->until_save_s > saving->every_s)
        c->until_save_s = saving->every_s;
}

double clockwork_runs_at(const struct clockwork *c) {
    return c->rate > 0 ? c->now_s + c->stop_left_s : INFINITY;
}

static pawl_code note_saves(struct clockwork *c, const struct saves *s, struct pawl_error *e) {
    if (c->save_count == c->save_room) {
        uint32_t room = c->save_room == 0 ? 16 : 2 * c->save_room;
        struct saves *more = realloc(c->saves, room * sizeof *more);
        if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u saves", room);
        c->saves = more, c->save_room = room;
    }
    c->saves[c->save_count++] = *s;
    return PAWL_OK;
}

static void work(struct clockwork *c, double seconds) {
    c->at.useful_s += seconds;
    c->at.counted += seconds * c->rate;
    c->stretch_s += seconds;
}

/* The newest save that is durable by now becomes `durable`; older ones are forgotten. */
static void settle(struct clockwork *c) {
    for (uint32_t i = c->save_count; i-- > 0;) {
        struct saves *s = &c->saves[i];
        double begun_by_s = c->now_s - s->write_s;
        if (s->first_s > begun_by_s) continue;
        double done = s->apart_s > 0 ? floor((begun_by_s - s->first_s) / s->apart_s) : 0;
        uint64_t last = done >= (double)(s->count - 1) ? s->count - 1 : (uint64_t)done;
        c->durable = (struct point){s->first.counted + (double)last * s->step.counted,
                                    s->first.useful_s + (double)last * s->step.useful_s};
        uint32_t kept = 0;
        if (last + 1 < s->count) { /* the rest of them may still become durable */
            s->first_s += (double)(last + 1) * s->apart_s;
            s->first =
                (struct point){c->durable.counted + s->step.counted, c->durable.useful_s + s->step.useful_s};
            s->count -= last + 1;
            c->saves[kept++] = *s;
        }
        for (uint32_t k = i + 1; k < c->save_count; k++) c->saves[kept++] = c->saves[k];
        c->save_count = kept;
        return;
    }
}

/* A span in which it runs. */
static pawl_code run(struct clockwork *c, double span_s, struct pawl_error *e) {
    double every = c->saving.every_s, stall = c->saving.stall_s, end_s = c->now_s + span_s;
    double still = fmin(span_s, c->stall_left_s);
    c->saving_s += still;
    c->stall_left_s -= still;
    double left = span_s - still;
    if (left < c->until_save_s) {
        work(c, left);
        c->until_save_s -= left;
        c->now_s = end_s;
        return PAWL_OK;
    }
    work(c, c->until_save_s);
    left -= c->until_save_s;
    struct saves s = {.first_s = end_s - left, .apart_s = every + stall, .write_s = c->saving.write_s};
    s.first = c->at;
    s.step = (struct point){every * c->rate, every};
    double cycles = floor(left / s.apart_s), rest = left - cycles * s.apart_s;
    s.count = (uint64_t)cycles + 1;
    work(c, cycles * every + fmax(rest - stall, 0));
    c->saving_s += cycles * stall + fmin(rest, stall);
    c->stall_left_s = fmax(stall - rest, 0);
    c->until_save_s = every - fmax(rest - stall, 0);
    c->now_s = end_s;
    settle(c); /* so that what may become durable stays few */
    return note_saves(c, &s, e);
}

pawl_code clockwork_advance(struct clockwork *c, double to_s, struct pawl_error *e) {
    double span_s = to_s - c->now_s;
    if (!(span_s > 0)) return PAWL_OK;
    if (c->rate == 0) {
        c->idle_s += span_s;
        c->now_s = to_s;
        return PAWL_OK;
    }
    double still = fmin(span_s, c->stop_left_s);
    c->stopped_s += still;
    c->stop_left_s -= still;
    c->now_s += still;
    pawl_code code = span_s > still ? run(c, to_s - c->now_s, e) : PAWL_OK;
    c->now_s = to_s;
    return code;
}

void clockwork_stop(struct clockwork *c, double seconds) {
    if (seconds > c->stop_left_s) c->stop_left_s = seconds;
    if (c->stop_left_s > 0) c->stretch_s = 0;
}

static void take_back(struct clockwork *c, struct point to) {
    c->lost_s += c->at.useful_s - to.useful_s;
    c->at = to;
}

void clockwork_lose(struct clockwork *c, double seconds) {
    double lost = fmin(seconds, c->stretch_s);
    c->stretch_s -= lost;
    take_back(c, (struct point){c->at.counted - lost * c->rate, c->at.useful_s - lost});
}

void clockwork_roll_back(struct clockwork *c) {
    settle(c);
    if (c->durable.useful_s < c->at.useful_s) take_back(c, c->durable);
    clockwork_save(c);
}

void clockwork_save(struct clockwork *c) {
    c->durable = c->at;
    c->save_count = 0;
    c->stretch_s = 0;
    c->stall_left_s = 0;
    c->until_save_s = c->saving.every_s > 0 ? c->saving.every_s : INFINITY;
}
