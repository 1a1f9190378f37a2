/* Local search: many schedules, each a little different from the best of its time.
 *
 *   rules     a handful of fixed preferences, each then listed with time reversed and forward again by its
 *             times: that packs the end as well as the start, and is the greatest single gain
 *   keys      list schedules whose priorities are the times of the current schedule, a few of them changed;
 *             now and then one with time reversed in between, which packs the end as the others pack the
 * start orders    operations moved within workers' lists (search_order.c): cheaper, and they can make a
 * worker wait
 *
 * The last two take turns. A schedule replaces the current one if it is not worse: shorter, or as long with
 * less excess over the bound summed up over workers. So the search drifts over plateaus, which these
 * problems mainly consist of. Every schedule is one round. Ends at the bound. */
#include "plan/search.h"

#include <stdlib.h>

#include "base/clock.h"

enum { /* found by trial on the golden cases and on small uneven ones */
       KEY_ROUNDS = 16,
       ORDER_ROUNDS = 64, /* at first; then twice as many each time, as what is left is found by orders ... */
       ORDER_ROUNDS_MAX = 1024,
       TRIES_PER_ROUND = 16, /* moves that are not even tried cost a little too */
};

bool search_better(const struct list_schedule *a, const struct list_schedule *b) {
    return a->period < b->period || (a->period == b->period && a->excess < b->excess);
}

bool search_stopped(const struct search *s) {
    const struct plan_list_options *o = s->options;
    if (o->stop && __atomic_load_n(o->stop, __ATOMIC_RELAXED)) return true;
    return o->search_s > 0 && clock_now_ns() >= s->until_ns;
}

bool search_finished(const struct search *s) {
    return s->best->period <= s->options->bound || s->rounds >= s->rounds_end || search_stopped(s);
}

/* The next target is a step below the best: then the excess counts the workers that are in the way of a
 * shorter period, and by how much. */
static void set_target(struct search *s) {
    uint64_t bound = s->options->bound, period = s->best->period;
    s->pass->target = period > bound + s->step ? period - s->step : bound;
}

void search_note(struct search *s) {
    s->rounds++;
    if (!search_better(&s->trial, s->best)) return;
    bool shorter = s->trial.period < s->best->period;
    list_schedule_copy(s->problem, &s->trial, s->best);
    if (!shorter) return;
    set_target(s);
    list_evaluate(s->pass, s->best);
    list_evaluate(s->pass, &s->trial);
    if (s->current.count > 0) list_evaluate(s->pass, &s->current);
}

static void accept_if_not_worse(struct search *s) {
    if (search_better(&s->current, &s->trial)) return;
    struct list_schedule t = s->current;
    s->current = s->trial;
    s->trial = t;
}

/* ---- keys ---- */

/* Times as keys of 32 bits: `shift` so that the longest fits well, with room for changes on both sides. */
static void set_scale(struct search *s) {
    const struct list_problem *p = s->problem;
    uint64_t most = 0, sum = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < s->best->count; i++) {
        uint64_t ticks = list_ticks(p, list_cell(s->best->log[i]), list_op_of(s->best->log[i]));
        uint64_t end = *list_start(p, s->best, s->best->log[i]) + ticks;
        if (end > most) most = end;
        sum += ticks;
        if (ticks > 0 && ticks < least) least = ticks;
    }
    for (s->shift = 0; most >> s->shift >= 1u << 29; s->shift++) {
    }
    s->step = least / 8 + 1;
    s->reach = 4 * ((sum / s->best->count) >> s->shift) + 1;
}

static void keys_from(struct search *s, const struct list_schedule *from, bool backward) {
    const struct list_problem *p = s->problem;
    for (uint32_t cell = 0; cell < p->cells; cell++)
        for (int k = LIST_F; list_is_there(p, cell) && k <= (p->split ? LIST_W : LIST_I); k++) {
            uint64_t at = *list_start(p, from, list_code(cell, (enum list_op)k));
            if (backward) at += list_ticks(p, cell, (enum list_op)k);
            uint64_t key = (1u << 30) + (at >> s->shift);
            s->pass->key[k][cell] = (uint32_t)(backward ? UINT32_MAX - key : key);
        }
}

static void change_keys(struct search *s, uint64_t count) {
    for (; count > 0; count--) {
        uint32_t cell = (uint32_t)rng_below(&s->rng, s->problem->cells);
        uint64_t kind = rng_below(&s->rng, s->problem->split ? 3 : 2);
        uint64_t by = rng_below(&s->rng, 2 * s->reach + 1);
        uint32_t *key = &s->pass->key[kind][cell];
        *key = (uint32_t)(*key + by - s->reach);
    }
}

/* ---- rules ---- */

static void turn_keys(struct search *s) {
    for (int k = 0; k < 3; k++)
        for (uint32_t c = 0; c < s->problem->cells; c++) s->pass->key[k][c] = UINT32_MAX - s->pass->key[k][c];
}

static const struct list_rule by_key = {.prefer = LIST_BY_KEY};

/* From s->trial: its order with time reversed, then forward again, as long as that makes it shorter. */
static void polish(struct search *s) {
    for (bool backward = true; s->trial.period != LIST_NEVER && !search_finished(s); backward = !backward) {
        struct list_schedule last = s->current;
        s->current = s->trial, s->trial = last;
        keys_from(s, &s->current, backward);
        if (backward)
            list_backward(s->pass, &by_key, &s->trial);
        else
            list_forward(s->pass, &by_key, &s->trial);
        search_note(s);
        if (!search_better(&s->trial, &s->current)) return;
    }
}

static void try_rules(struct search *s) {
    static const struct {
        bool backward;
        struct list_rule rule;
    } tries[] = {
        {false, {.guests_first = true, .free_memory_first = true}},
        {false, {.free_memory_first = true}},
        {false, {.forward_first = true}},
        {true, {.guests_first = false}},
        {true, {.free_memory_first = true}},
    };
    list_schedule_copy(s->problem, s->best, &s->trial);
    polish(s);
    for (size_t i = 0; i < sizeof tries / sizeof *tries && !search_finished(s); i++) {
        list_keys(s->pass, tries[i].rule.guests_first);
        if (tries[i].backward) {
            turn_keys(s);
            list_backward(s->pass, &tries[i].rule, &s->trial);
        } else {
            list_forward(s->pass, &tries[i].rule, &s->trial);
        }
        search_note(s);
        polish(s);
    }
}

/* ---- walks ---- */

static void walk_keys(struct search *s, uint32_t rounds) {
    for (uint32_t end = s->rounds + rounds; s->rounds < end && !search_finished(s);) {
        bool backward = rng_below(&s->rng, 8) == 0;
        keys_from(s, &s->current, backward);
        change_keys(s, backward ? rng_below(&s->rng, 4) : 1 + rng_below(&s->rng, 6));
        if (backward) {
            list_backward(s->pass, &by_key, &s->trial);
            search_note(s);
            if (s->trial.period == LIST_NEVER) continue;
            keys_from(s, &s->trial, false);
        }
        list_forward(s->pass, &by_key, &s->trial);
        search_note(s);
        accept_if_not_worse(s);
    }
}

static void walk_orders(struct search *s, uint32_t rounds) {
    struct search_move m;
    uint32_t end = s->rounds + rounds, tries = rounds * TRIES_PER_ROUND;
    search_order_from(s->problem, &s->current, UINT32_MAX, &s->order);
    while (s->rounds < end && tries-- > 0 && !search_finished(s)) {
        uint32_t worker = (uint32_t)rng_below(&s->rng, s->problem->workers);
        if (!search_order_move(&s->order, s->problem, &s->rng, worker, &s->current, &m)) continue;
        search_order_run(&s->order, s->pass, &s->trial);
        search_note(s);
        if (search_better(&s->current, &s->trial)) search_order_undo(&s->order, &m);
        accept_if_not_worse(s);
    }
}

/* ---- all ---- */

static void walk(struct search *s) {
    set_target(s);
    list_evaluate(s->pass, s->best);
    list_schedule_copy(s->problem, s->best, &s->current);
    for (uint32_t rounds = ORDER_ROUNDS; !search_finished(s);) {
        walk_keys(s, KEY_ROUNDS);
        walk_orders(s, rounds);
        if (rounds < ORDER_ROUNDS_MAX) rounds *= 2;
    }
}

/* Where memory may be stretched, half of the rounds go to schedules that do, and those must be shorter. */
static void search(struct search *s) {
    bool stretch = s->problem->kinds > 3 && s->problem->costs->limit;
    s->rounds_end = stretch ? s->options->rounds / 2 : s->options->rounds;
    set_scale(s);
    set_target(s);
    list_evaluate(s->pass, s->best);
    try_rules(s);
    walk(s);
    s->rounds_end = s->options->rounds;
    if (!stretch || search_finished(s)) return;
    list_schedule_copy(s->problem, s->best, &s->plain);
    if (search_memory(s)) {
        walk(s);
        search_memory_prune(s);
    }
    if (s->best->period >= s->plain.period) list_schedule_copy(s->problem, &s->plain, s->best);
}

pawl_code list_search(struct list_pass *pass, struct list_schedule *best, struct pawl_error *e) {
    const struct list_problem *p = pass->problem;
    struct search s = {.pass = pass, .problem = p, .options = p->options, .best = best};
    static const struct list_rule first = {.prefer = LIST_BY_KIND};
    pawl_code code = PAWL_OK;
    list_keys(pass, false);
    list_forward(pass, &first, best);
    if (best->period == LIST_NEVER) code = list_serial(pass, best, e);
    if (code || p->options->rounds == 0 || best->period <= p->options->bound) return code;
    pass->stop = p->options->stop; /* from here on there is a schedule to fall back on */
    s.rng.state = p->options->seed;
    s.until_ns = clock_now_ns() + (int64_t)(p->options->search_s * 1e9);
    code = list_schedule_open(p, &s.current, e);
    if (!code) code = list_schedule_open(p, &s.trial, e);
    if (!code && p->kinds > 3) code = list_schedule_open(p, &s.plain, e);
    if (!code) code = search_order_open(p, &s.trial, &s.order, e);
    if (!code) search(&s);
    list_schedule_close(&s.current);
    list_schedule_close(&s.trial);
    list_schedule_close(&s.plain);
    search_order_close(&s.order);
    return code;
}
