/* Equal pieces of work on workers that are not equal, and turns at even distances.
 *
 * Filling: within a time t a worker with `load` ticks takes (t - load) / unit pieces; the least t that takes
 * all pieces is found by bisection, exactly. At that t fewer pieces are too many than there are workers
 * that end exactly at t, so taking one back from each of the last of these leaves none that could end
 * earlier. */
#include "plan/route.h"

#include "plan/ticks.h"

uint64_t route_unit(const struct sim_costs *costs, uint32_t worker, uint32_t chunk) {
    uint64_t unit = ticks_add(
        sim_duration(costs, worker, chunk, IR_F),
        ticks_add(sim_duration(costs, worker, chunk, IR_I), sim_duration(costs, worker, chunk, IR_W)));
    return unit > 0 ? unit : 1; /* work that costs nothing is spread as if it cost a tick */
}

uint64_t route_once(const struct sim_costs *costs, uint32_t worker, uint32_t chunk) {
    return ticks_add(sim_duration(costs, worker, chunk, IR_R), sim_duration(costs, worker, chunk, IR_S));
}

/* Pieces that fit by `time`; never more than `enough`, so that sums do not overflow. */
static uint64_t fits(const struct route_taker *takers, uint32_t count, uint64_t time, uint64_t enough) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count && sum < enough; i++) {
        uint64_t take = ticks_less(time, takers[i].load) / takers[i].unit;
        sum = take >= enough - sum ? enough : sum + take;
    }
    return sum;
}

uint64_t route_fill_time(const struct route_taker *takers, uint32_t count, uint64_t pieces) {
    if (pieces == 0) return 0;
    if (count == 0) return TICKS_NEVER;
    uint64_t low = 0, high = TICKS_NEVER; /* all by the first alone is enough time */
    for (uint32_t i = 0; i < count; i++) {
        uint64_t alone = ticks_add(takers[i].load, ticks_mul(pieces, takers[i].unit));
        if (alone < high) high = alone;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (fits(takers, count, middle, pieces) >= pieces)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void route_fill(struct route_taker *takers, uint32_t count, uint64_t pieces) {
    uint64_t time = route_fill_time(takers, count, pieces);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        takers[i].take = pieces == 0 ? 0 : ticks_less(time, takers[i].load) / takers[i].unit;
        sum = ticks_add(sum, takers[i].take);
    }
    for (uint32_t i = count; i-- > 0 && sum > pieces;) {
        struct route_taker *t = &takers[i];
        bool last_to_end = t->take > 0 && t->load + t->take * t->unit == time;
        if (!last_to_end) continue;
        t->take--;
        sum--;
    }
}

/* When the next of its pieces is due, as a share of all: (2 had + 1) / (2 share). */
static bool is_due_before(const struct route_turn *a, const struct route_turn *b) {
    uint64_t left = (2 * a->had + 1) * b->share, right = (2 * b->had + 1) * a->share;
    return left != right ? left < right : a->worker < b->worker;
}

static void turns_sink(struct route_turns *t, uint32_t i) {
    for (;;) {
        uint32_t least = i, left = 2 * i + 1, right = left + 1;
        if (left < t->count && is_due_before(&t->turn[left], &t->turn[least])) least = left;
        if (right < t->count && is_due_before(&t->turn[right], &t->turn[least])) least = right;
        if (least == i) return;
        struct route_turn swap = t->turn[i];
        t->turn[i] = t->turn[least];
        t->turn[least] = swap;
        i = least;
    }
}

void route_turns_init(struct route_turns *t, struct route_turn *turn, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (turn[i].share > 0) turn[kept++] = (struct route_turn){turn[i].worker, turn[i].share, 0};
    *t = (struct route_turns){turn, kept};
    for (uint32_t i = kept / 2; i-- > 0;) turns_sink(t, i);
}

uint32_t route_turns_next(struct route_turns *t) {
    if (t->count == 0) return IR_NONE;
    uint32_t worker = t->turn[0].worker;
    if (++t->turn[0].had == t->turn[0].share) t->turn[0] = t->turn[--t->count];
    turns_sink(t, 0);
    return worker;
}

static uint32_t orphans_of(const struct plan_route *r, uint32_t chunk, uint32_t microbatch) {
    uint32_t count = 0;
    for (uint32_t h = 0; h < r->pipelines; h++)
        if (r->host[plan_route_cell(r, h, chunk, microbatch)] == IR_NONE) count++;
    return count;
}

uint64_t route_orphans(const struct plan_route *route, uint32_t chunk, struct route_orphan *out) {
    uint64_t first = 0;
    for (uint32_t m = 0; m < route->microbatches; m++) {
        uint32_t count = orphans_of(route, chunk, m);
        for (uint32_t h = 0, k = 0; k < count; h++) {
            if (route->host[plan_route_cell(route, h, chunk, m)] != IR_NONE) continue;
            out[first + (k + m) % count] = (struct route_orphan){h, m};
            k++;
        }
        first += count;
    }
    return first;
}
