/* What one stage of the walk can do within T: its own chunk, what its helpers do of the neighbours', and
 * what is left. A helper's time is cut into whole micro-batches of two chunks; helpers on one side share
 * evenly, so far as each can. */
#include "plan/share_walk.h"
#include "plan/ticks.h"

/* Whole micro-batches in so many ticks; no more than there are. */
static int64_t pieces_in(const struct walk *w, uint64_t ticks, uint32_t worker, uint32_t chunk) {
    uint64_t pieces = ticks / route_unit(w->request->costs, worker, chunk);
    return pieces < (uint64_t)w->all ? (int64_t)pieces : w->all;
}

static uint64_t own_ticks(const struct walk *w, uint32_t worker) {
    return ticks_less(w->time, route_once(w->request->costs, worker, worker % w->stages));
}

/* ... of one that holds `chunk` as well. */
static uint64_t helper_ticks(const struct walk *w, uint32_t worker, uint32_t chunk) {
    return ticks_less(own_ticks(w, worker), route_once(w->request->costs, worker, chunk));
}

/* `late`: a right helper of the stage before has the chunk too, so that its gradients must be there within
 * the window of that stage, which begins earlier by a forward. */
static int64_t own_pieces(const struct walk *w, uint32_t worker, bool late) {
    uint32_t stage = worker % w->stages;
    return pieces_in(w, ticks_less(own_ticks(w, worker), late ? w->late[stage] : 0), worker, stage);
}

static bool has_room(const struct walk *w, uint32_t worker, uint32_t chunk) {
    const struct share_request *r = w->request;
    return r->room == NULL || r->room[worker] >= r->costs->chunk[chunk].state;
}

uint32_t walk_helper(const struct walk *w, uint32_t stage, enum walk_side side, uint32_t lefts, uint32_t i) {
    uint32_t left_seen = 0;
    for (uint32_t k = 0; k < w->count[stage]; k++) {
        uint32_t worker = walk_worker(w, stage, k);
        bool is_left = left_seen < lefts && stage > 0 && has_room(w, worker, stage - 1);
        if (is_left) left_seen++;
        bool fits = side == WALK_LEFT ? is_left : !is_left && has_room(w, worker, stage + 1);
        if (fits && i-- == 0) return worker;
    }
    return IR_NONE;
}

uint32_t walk_lefts(const struct walk *w, uint32_t stage, int64_t pieces) {
    uint32_t lefts = 0;
    for (uint32_t k = 0; k < w->count[stage] && pieces > 0; k++) {
        uint32_t worker = walk_worker(w, stage, k);
        if (!has_room(w, worker, stage - 1)) continue;
        pieces -= pieces_in(w, helper_ticks(w, worker, stage - 1), worker, stage - 1);
        lefts++;
    }
    return pieces > 0 ? IR_NONE : lefts;
}

/* Change of the stage's own capacity when its left helpers do what was handed to it. */
static int64_t after_lefts(const struct walk *w, uint32_t stage, int64_t pieces, uint32_t lefts) {
    int64_t change = 0;
    for (uint32_t i = 0; i < lefts; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_LEFT, lefts, i);
        uint64_t ticks = helper_ticks(w, worker, stage - 1);
        int64_t most = pieces_in(w, ticks, worker, stage - 1), share = (pieces + lefts - i - 1) / (lefts - i);
        int64_t rest_can = 0; /* what those after it cannot do it must */
        for (uint32_t k = i + 1; k < lefts; k++) {
            uint32_t later = walk_helper(w, stage, WALK_LEFT, lefts, k);
            rest_can += pieces_in(w, helper_ticks(w, later, stage - 1), later, stage - 1);
        }
        if (share < pieces - rest_can) share = pieces - rest_can;
        if (share > most) share = most;
        pieces -= share;
        ticks -= (uint64_t)share * route_unit(w->request->costs, worker, stage - 1);
        change += pieces_in(w, ticks, worker, stage) - own_pieces(w, worker, false);
    }
    return change;
}

int64_t walk_rights(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t spare,
                    uint32_t rights) {
    int64_t done = 0;
    uint32_t lefts = come->lefts;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, lefts, i);
        if (worker == IR_NONE) return -1;
        spare -= own_pieces(w, worker, come->handed > 0);
    }
    int64_t lack = spare < 0 ? -spare : 0; /* without them: so much of their own they must do */
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, lefts, i);
        uint64_t ticks = helper_ticks(w, worker, stage + 1);
        int64_t most = pieces_in(w, ticks, worker, stage), own = (lack + rights - i - 1) / (rights - i);
        if (own > most) own = most;
        lack -= own;
        ticks -= (uint64_t)own * route_unit(w->request->costs, worker, stage);
        done += pieces_in(w, ticks, worker, stage + 1);
    }
    if (lack > 0 || done <= 0) return -1;
    return done < w->all ? done : w->all;
}

int64_t walk_spare(const struct walk *w, uint32_t stage, const struct walk_come *come) {
    if (come->handed > 0) return w->late_capacity[stage] - w->all + come->handed;
    int64_t spare = w->capacity[stage] - w->all;
    return come->handed == 0 ? spare : spare + after_lefts(w, stage, -come->handed, come->lefts);
}

void walk_capacities(struct walk *w, uint64_t time) {
    w->time = time;
    for (uint32_t s = 0; s < w->stages; s++) {
        w->capacity[s] = w->late_capacity[s] = 0;
        for (uint32_t k = 0; k < w->count[s]; k++) {
            w->capacity[s] += own_pieces(w, walk_worker(w, s, k), false);
            w->late_capacity[s] += own_pieces(w, walk_worker(w, s, k), true);
        }
    }
}

int64_t walk_right_least(const struct walk *w, uint32_t stage) {
    int64_t least = w->all;
    for (uint32_t k = 0; k < w->count[stage]; k++) {
        uint32_t worker = walk_worker(w, stage, k);
        int64_t can = pieces_in(w, helper_ticks(w, worker, stage + 1), worker, stage + 1);
        if (can < least) least = can;
    }
    return least;
}

int64_t walk_left_over(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on) {
    int64_t by_others = (come->handed > 0 ? come->handed : 0) + (hand_on < 0 ? -hand_on : 0);
    bool too_few = come->handed < 0 && walk_lefts(w, stage, -come->handed) > come->lefts;
    if (too_few || by_others > w->all) return -1;
    int64_t spare = walk_spare(w, stage, come), pieces = hand_on;
    uint32_t rights = hand_on > 0 ? w->used[stage] : 0;
    if (hand_on < 0) return spare - hand_on;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, come->lefts, i);
        uint64_t ticks = helper_ticks(w, worker, stage + 1);
        int64_t share = (pieces + rights - i - 1) / (rights - i);
        if (share > pieces_in(w, ticks, worker, stage + 1)) return -1;
        pieces -= share;
        ticks -= (uint64_t)share * route_unit(w->request->costs, worker, stage + 1);
        spare += pieces_in(w, ticks, worker, stage) - own_pieces(w, worker, come->handed > 0);
    }
    return spare;
}
