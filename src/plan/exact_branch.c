/* Branch and bound over the order of pairs, with the pruning of exact_prune.c at every node.
 *
 * Where memory is tight this proves in milliseconds what other engines need seconds for; where it is ample it
 * may wander for ever, so that it is given a share of the time and the engine the rest. Asked is always for
 * one period: is there a schedule, yes or no. First for the least that is not refuted, then for anything
 * better than the best. Branches on the pair whose tighter order has the least room, and tries the roomier
 * order first. Source: Smith and Cheng, slack-based ordering. Tested in tests/unit/plan_exact_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* States of open nodes are kept in at most this much memory. */
#define EXACT_BRANCH_BYTES ((uint64_t)256 << 20)

enum answer { ANSWER_NONE, ANSWER_FOUND, ANSWER_UNKNOWN };

struct branch {
    struct exact_run *run;
    struct exact_state **states; /* [room] by depth; made when first needed */
    uint32_t room;
    int64_t period, deadline_ns;
    uint64_t nodes;
    pawl_code code;
    struct pawl_error *e;
};

/* What to decide next: a choice, or the order of a pair. */
struct fork {
    uint32_t choice, literal;
    int8_t first;
};

static bool both_here(const struct exact_state *s, const struct exact_shared *on) {
    return (on->if_a == EXACT_NONE || s->made[on->if_a] > 0) &&
           (on->if_b == EXACT_NONE || s->made[on->if_b] > 0);
}

static bool pick_choice(const struct exact_model *m, const struct exact_state *s, struct fork *out) {
    for (uint32_t i = 0; i < m->choice_count; i++) {
        if (s->made[i] != 0) continue;
        bool is_route = m->route->host[m->choices[i].cell] == m->choices[i].worker;
        *out = (struct fork){i, EXACT_NONE, is_route ? 1 : -1};
        if (is_route) return true;
    }
    return out->choice != EXACT_NONE;
}

/* Room that a before b has: the least of all views. */
static int64_t room_of(const struct exact_model *m, const struct exact_state *s, uint32_t a, uint32_t b,
                       int64_t length) {
    int64_t room = INT64_MAX;
    for (uint32_t g = 0; g < m->group_count; g++) {
        struct exact_view v = exact_view(m, s, g);
        int64_t here = v.late[b] - v.early[a] - length;
        if (here < room) room = here;
    }
    return room;
}

static bool pick_pair(const struct exact_model *m, const struct exact_state *s, struct fork *out) {
    int64_t least = INT64_MAX, least_other = INT64_MAX;
    for (uint32_t i = 0; i < m->shared_count; i++) {
        const struct exact_shared *on = &m->shared[i];
        const struct exact_pair *pair = &m->pairs[on->pair];
        if (s->order[pair->literal] != 0 || !both_here(s, on)) continue;
        int64_t a_room = room_of(m, s, pair->a, pair->b, on->a_length);
        int64_t b_room = room_of(m, s, pair->b, pair->a, on->b_length);
        int64_t tight = a_room < b_room ? a_room : b_room, wide = a_room < b_room ? b_room : a_room;
        if (tight > least || (tight == least && wide >= least_other)) continue;
        least = tight;
        least_other = wide;
        *out = (struct fork){EXACT_NONE, pair->literal, a_room >= b_room ? 1 : -1};
    }
    return out->literal != EXACT_NONE;
}

static pawl_code keep(struct branch *b, const struct exact_state *s) {
    const struct exact_model *m = b->run->model;
    struct exact_schedule found;
    pawl_code code = exact_schedule_new(m, &found, b->e);
    if (code != PAWL_OK) return code;
    memcpy(found.start, exact_view(m, s, m->anchor).early, m->node_count * sizeof *found.start);
    for (uint32_t i = 0; i < m->choice_count; i++)
        if (s->made[i] > 0) found.worker[m->choices[i].cell] = m->choices[i].worker;
    code = exact_run_found(b->run, &found, b->period, b->e);
    exact_schedule_close(&found);
    return code;
}

static bool is_over(struct branch *b) {
    if (b->nodes++ % 64 != 0) return false;
    return clock_now_ns() >= b->deadline_ns || exact_run_over(b->run);
}

static int8_t *decided(struct exact_state *s, const struct fork *fork) {
    return fork->choice != EXACT_NONE ? &s->made[fork->choice] : &s->order[fork->literal];
}

static bool make_room(struct branch *b, uint32_t depth) {
    if (depth >= b->room) return false;
    if (b->states[depth] == NULL) b->code = exact_state_new(b->run->model, &b->states[depth], b->e);
    return b->states[depth] != NULL;
}

/* Decides the state at `depth` until it is refuted or complete; the first way of each fork below it. */
static enum answer descend(struct branch *b, uint32_t depth) {
    const struct exact_model *m = b->run->model;
    struct exact_state *s = b->states[depth];
    for (;;) {
        if (is_over(b)) return ANSWER_UNKNOWN;
        if (!exact_prune_run(b->run->prune, b->period, s)) return ANSWER_NONE;
        struct fork fork = {EXACT_NONE, EXACT_NONE, 0};
        if (!pick_choice(m, s, &fork) && !pick_pair(m, s, &fork)) {
            b->code = keep(b, s);
            return b->code == PAWL_OK ? ANSWER_FOUND : ANSWER_UNKNOWN;
        }
        if (!make_room(b, depth + 1)) return ANSWER_UNKNOWN;
        exact_state_copy(m, b->states[depth + 1], s);
        *decided(b->states[depth + 1], &fork) = fork.first;
        enum answer answer = descend(b, depth + 1);
        if (answer != ANSWER_NONE) return answer;
        *decided(s, &fork) = (int8_t)-fork.first;
    }
}

static enum answer ask(struct branch *b, int64_t period, double seconds) {
    struct exact_state *begin = NULL;
    b->period = period;
    b->deadline_ns = clock_now_ns() + (int64_t)(seconds * 1e9);
    b->nodes = 0;
    if (!make_room(b, 0)) return ANSWER_UNKNOWN;
    b->code = exact_state_new(b->run->model, &begin, b->e);
    if (b->code != PAWL_OK) return ANSWER_UNKNOWN;
    exact_state_copy(b->run->model, b->states[0], begin);
    exact_state_free(begin);
    return descend(b, 0);
}

/* From below while that is decided quickly, else from above. */
static void climb(struct branch *b, double seconds) {
    struct exact_run *run = b->run;
    int64_t end_ns = clock_now_ns() + (int64_t)(seconds * 1e9);
    while (run->low <= exact_run_high(run) && !exact_run_over(run)) {
        double left = (double)(end_ns - clock_now_ns()) * 1e-9;
        enum answer answer = ask(b, run->low, left / 2);
        if (answer == ANSWER_NONE) exact_run_raise(run, run->low + 1);
        if (answer != ANSWER_UNKNOWN) continue;
        if (b->code != PAWL_OK) return;
        left = (double)(end_ns - clock_now_ns()) * 1e-9;
        answer = ask(b, exact_run_high(run), left / 2);
        if (answer == ANSWER_NONE) exact_run_raise(run, exact_run_high(run) + 1);
        if (answer != ANSWER_FOUND || b->code != PAWL_OK) return;
    }
}

pawl_code exact_branch(struct exact_run *run, double seconds, struct pawl_error *e) {
    const struct exact_model *m = run->model;
    uint64_t bytes = (uint64_t)m->group_count * m->node_count * 16 + m->literal_count + m->choice_count + 128;
    uint64_t room = (uint64_t)m->literal_count + m->choice_count + 2;
    struct branch b = {.run = run, .e = e};
    b.room = (uint32_t)(room * bytes > EXACT_BRANCH_BYTES ? EXACT_BRANCH_BYTES / bytes : room);
    b.states = calloc(b.room, sizeof *b.states);
    if (b.states == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory to branch");
    climb(&b, seconds);
    for (uint32_t i = 0; i < b.room; i++) exact_state_free(b.states[i]);
    free(b.states);
    return b.code;
}
