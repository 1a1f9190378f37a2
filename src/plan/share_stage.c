/* What one stage of the walk can do within T: its own chunk, what its helpers do of the neighbours', and
 * what is left. A helper's time is cut into whole micro-batches of two chunks; helpers on one side share
 * evenly, so far as each can. */
#include "plan/share_walk.h"
#include "plan/ticks.h"

/* Whole micro-batches in so many ticks; no more than there are. */
static int64_t pieces_in(const struct walk *w, uint64_t ticks, uint32_t worker, uint32_t chunk) {
    uint64_t pieces = ticks / walk_unit(w, worker, chunk);
    return pieces < (uint64_t)w->all ? (int64_t)pieces : w->all;
}

static uint64_t own_ticks(const struct walk *w, uint32_t worker) {
    return ticks_less(w->time, walk_once(w, worker, worker % w->stages));
}

static uint64_t right_ticks(const struct walk *w, uint32_t worker) {
    return ticks_less(own_ticks(w, worker), walk_once(w, worker, worker % w->stages + 1));
}

/* A stage begins, and ends, later than the one before by so much; `shifted`: more than this is early. */
static uint64_t later_by(const struct walk *w, uint32_t stage, bool shifted) {
    return shifted ? ticks_add(w->late[stage], w->late[stage - 1]) : w->late[stage];
}

/* A left helper whose second chunk is the last to be reduced has it reduced before its own window ends. */
static uint64_t left_ticks(const struct walk *w, uint32_t worker, const struct walk_come *come) {
    uint32_t stage = worker % w->stages;
    uint64_t ticks = ticks_less(own_ticks(w, worker), walk_once(w, worker, stage - 1));
    return come->order == WALK_NEXT_FIRST ? ticks_less(ticks, later_by(w, stage, come->shifted)) : ticks;
}

static int64_t own_pieces(const struct walk *w, uint32_t worker, uint64_t early) {
    return pieces_in(w, ticks_less(own_ticks(w, worker), early), worker, worker % w->stages);
}

/* ---- who reduces first ---- */

struct walk_early walk_early(const struct walk_come *come, int64_t hand_on, enum walk_order order) {
    struct walk_early early = {WALK_NONE, WALK_NONE};
    if (come->handed != 0 && come->order == WALK_NEXT_FIRST) early.in = come->shifted ? WALK_MOST : WALK_MORE;
    if (come->handed > 0 && come->order == WALK_THIS_FIRST) early.in = WALK_LESS;
    if (hand_on != 0 && order == WALK_THIS_FIRST) early.out = hand_on > 0 ? WALK_MORE : WALK_LESS;
    return early;
}

/* Windows of later stages begin and end later, by what a forward needs to come there. A stage that reduces
 * before the one before it must be done by R and S of that and this distance before the end of its window;
 * one that reduces before the next only as far as the distance is too short for R and S of the next, but
 * where the helper's own window ends all at once. */
uint64_t walk_early_ticks(const struct walk *w, uint32_t stage, struct walk_early early) {
    uint64_t in = 0, out = 0;
    if (early.in == WALK_LESS) in = w->late[stage];
    if (early.in >= WALK_MORE) in = ticks_add(w->tail[stage - 1], later_by(w, stage, early.in == WALK_MOST));
    if (early.out == WALK_LESS) out = ticks_less(w->tail[stage + 1], w->late[stage + 1]);
    if (early.out == WALK_MORE) out = w->tail[stage + 1];
    return in > out ? in : out;
}

bool walk_may(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on,
              enum walk_order order) {
    if (order == WALK_TOGETHER && (hand_on > 0 || w->tail[stage + 1] > w->late[stage + 1])) return false;
    if (come->handed == 0) return true;
    return (come->order == WALK_NEXT_FIRST) == (order == WALK_THIS_FIRST);
}

/* ---- helpers ---- */

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

uint32_t walk_lefts(const struct walk *w, uint32_t stage, const struct walk_come *come) {
    uint32_t lefts = 0;
    int64_t pieces = -come->handed;
    for (uint32_t k = 0; k < w->count[stage] && pieces > 0; k++) {
        uint32_t worker = walk_worker(w, stage, k);
        if (!has_room(w, worker, stage - 1)) continue;
        pieces -= pieces_in(w, left_ticks(w, worker, come), worker, stage - 1);
        lefts++;
    }
    return pieces > 0 ? IR_NONE : lefts;
}

/* Change of the stage's own capacity when its left helpers do what was handed to it. */
static int64_t after_lefts(const struct walk *w, uint32_t stage, const struct walk_come *come,
                           uint64_t early) {
    int64_t change = 0, pieces = -come->handed;
    uint32_t lefts = come->lefts;
    for (uint32_t i = 0; i < lefts; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_LEFT, lefts, i);
        uint64_t ticks = left_ticks(w, worker, come);
        int64_t most = pieces_in(w, ticks, worker, stage - 1), share = (pieces + lefts - i - 1) / (lefts - i);
        int64_t rest_can = 0; /* what those after it cannot do it must */
        for (uint32_t k = i + 1; k < lefts; k++) {
            uint32_t later = walk_helper(w, stage, WALK_LEFT, lefts, k);
            rest_can += pieces_in(w, left_ticks(w, later, come), later, stage - 1);
        }
        if (share < pieces - rest_can) share = pieces - rest_can;
        if (share > most) share = most;
        pieces -= share;
        ticks -= (uint64_t)share * walk_unit(w, worker, stage - 1);
        change += pieces_in(w, ticks, worker, stage) - own_pieces(w, worker, early);
    }
    return change;
}

int64_t walk_rights(const struct walk *w, uint32_t stage, const struct walk_come *come, uint32_t rights,
                    enum walk_order order) {
    struct walk_early kind = walk_early(come, 1, order);
    uint64_t early = walk_early_ticks(w, stage, kind);
    int64_t done = 0, spare = walk_spare(w, stage, come, kind);
    uint32_t lefts = come->lefts;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, lefts, i);
        if (worker == IR_NONE) return -1;
        spare -= own_pieces(w, worker, early);
    }
    int64_t lack = spare < 0 ? -spare : 0; /* without them: so much of their own they must do */
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, lefts, i);
        uint64_t ticks = right_ticks(w, worker);
        int64_t most = pieces_in(w, ticks, worker, stage), own = (lack + rights - i - 1) / (rights - i);
        if (own > most) own = most;
        lack -= own;
        ticks -= (uint64_t)own * walk_unit(w, worker, stage);
        done += pieces_in(w, ticks, worker, stage + 1);
    }
    if (lack > 0 || done <= 0) return -1;
    return done < w->all ? done : w->all;
}

static int64_t *capacity_of(const struct walk *w, uint32_t stage, struct walk_early early) {
    return &w->capacity[((size_t)stage * WALK_SIZES + early.in) * WALK_SIZES + early.out];
}

int64_t walk_spare(const struct walk *w, uint32_t stage, const struct walk_come *come,
                   struct walk_early early) {
    int64_t spare = *capacity_of(w, stage, early) - w->all;
    if (come->handed >= 0) return spare + come->handed;
    return spare + after_lefts(w, stage, come, walk_early_ticks(w, stage, early));
}

static int64_t capacity_with(const struct walk *w, uint32_t stage, struct walk_early early) {
    bool outside = (early.in != WALK_NONE && stage == 0) || (early.in == WALK_MOST && stage == 1) ||
                   (early.out != WALK_NONE && stage + 1 == w->stages);
    if (outside) return 0;
    int64_t capacity = 0;
    uint64_t ticks = walk_early_ticks(w, stage, early);
    for (uint32_t k = 0; k < w->count[stage]; k++) capacity += own_pieces(w, walk_worker(w, stage, k), ticks);
    return capacity;
}

void walk_capacities(struct walk *w, uint64_t time) {
    w->time = time;
    for (uint32_t s = 0; s < w->stages; s++)
        for (unsigned in = 0; in < WALK_SIZES; in++)
            for (unsigned out = 0; out < WALK_SIZES; out++) {
                struct walk_early early = {(uint8_t)in, (uint8_t)out};
                *capacity_of(w, s, early) = capacity_with(w, s, early);
            }
}

int64_t walk_right_least(const struct walk *w, uint32_t stage) {
    int64_t least = w->all;
    for (uint32_t k = 0; k < w->count[stage]; k++) {
        uint32_t worker = walk_worker(w, stage, k);
        int64_t can = pieces_in(w, right_ticks(w, worker), worker, stage + 1);
        if (can < least) least = can;
    }
    return least;
}

int64_t walk_left_over(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on) {
    int64_t by_others = (come->handed > 0 ? come->handed : 0) + (hand_on < 0 ? -hand_on : 0);
    bool too_few = come->handed < 0 && walk_lefts(w, stage, come) > come->lefts;
    if (too_few || by_others > w->all) return -1;
    struct walk_early kind = walk_early(come, hand_on, w->order[stage]);
    int64_t spare = walk_spare(w, stage, come, kind), pieces = hand_on;
    uint64_t early = walk_early_ticks(w, stage, kind);
    uint32_t rights = hand_on > 0 ? w->used[stage] : 0;
    if (hand_on < 0) return spare - hand_on;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = walk_helper(w, stage, WALK_RIGHT, come->lefts, i);
        uint64_t ticks = right_ticks(w, worker);
        int64_t share = (pieces + rights - i - 1) / (rights - i);
        if (share > pieces_in(w, ticks, worker, stage + 1)) return -1;
        pieces -= share;
        ticks -= (uint64_t)share * walk_unit(w, worker, stage + 1);
        spare += pieces_in(w, ticks, worker, stage) - own_pieces(w, worker, early);
    }
    return spare;
}
