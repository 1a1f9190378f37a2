/* No schedule is shorter: what one worker's work, and its place in the pipeline, force.
 *
 * Take a worker that executes n micro-batches of chunk s alone, its stage's window [0, T] of an iteration
 * (staggered; with a barrier all share one window). Everything else may be as lucky as it likes:
 *
 *        head(r,s)                 work                           tail(r,s)
 *   |--------------|===early===|..idle..|=== I, W, F ===|=late=|
 *   chunk r's first F          chunk s's first I        its last I ─► I of s-1 .. r ─► W of r ─► R, S
 *
 *  - Load: its F, I and W, one after the other, then R and S.
 *  - Early: before the first gradient is back, F + the way down to the last chunk and up again, it can only
 * do as many forwards as its memory holds. What is not filled by them is idle.
 *  - Late: its last I comes before the I's of the chunks below, the W of chunk r and that chunk's R and S,
 *    all of them in the window of chunk r, which began head(r,s) before. After that I only W's are left,
 *    as many as its memory can put off. So T >= head(r,s) + idle + load - late + tail(r,s) for every r < s.
 *  - Helped: if a worker of stage r < s holds chunk s too, the chunk's R is also in the window of that stage,
 *    which begins head(r,s) before: T >= head(r,s) + idle + load (bound_way_holds_before).
 *  - Stay: a micro-batch lies in memory from its F to its W, through the whole way down and up; all of them
 *    together fit into limit * T, less what cannot be filled while the first come and the last go.
 *
 * Fused backward: I and W are one, nothing is late. Recompute and offload make room for more early forwards,
 * never less work. A worker with several chunks has its load, and early and late as its first chunk without
 * a limit. Times of the way are the least over those who execute a chunk. Facts 2.4 are the case of equal
 * stages without limits. Tested in tests/unit/plan_bound_test.c against all schedules of tiny cases. */
#include "plan/bound.h"

#include <stdlib.h>

#include "plan/route.h"
#include "plan/ticks.h"

pawl_code bound_way_init(struct bound_way *way, const struct sim_costs *costs,
                         const struct plan_list_options *options) {
    *way = (struct bound_way){.costs = costs, .options = options};
    way->chunk = calloc((size_t)costs->chunks + 1, sizeof *way->chunk);
    if (way->chunk == NULL) return PAWL_MEMORY;
    for (uint32_t c = 0; c < costs->chunks; c++) {
        struct bound_chunk *b = &way->chunk[c];
        b->forward = b->back = b->weight = b->once = TICKS_NEVER;
        b->held_before = c;
        b->send_forward = costs->chunk[c].send_forward;
        b->send_backward = costs->chunk[c].send_backward;
    }
    return PAWL_OK;
}

void bound_way_close(struct bound_way *way) { free(way->chunk); }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool is_fused(const struct bound_way *way) { return way->options->backward == PLAN_FUSED; }

void bound_way_executes(struct bound_way *way, uint32_t worker, uint32_t chunk) {
    struct bound_chunk *b = &way->chunk[chunk];
    b->forward = least(b->forward, sim_duration(way->costs, worker, chunk, IR_F));
    b->back = least(b->back, sim_duration(way->costs, worker, chunk, is_fused(way) ? IR_B : IR_I));
    b->weight = least(b->weight, is_fused(way) ? 0 : sim_duration(way->costs, worker, chunk, IR_W));
    b->once = least(b->once, route_once(way->costs, worker, chunk));
}

/* What is between two chunks of one worker costs nothing to send. */
void bound_way_is_near(struct bound_way *way, uint32_t chunk) {
    way->chunk[chunk].send_forward = 0;
    way->chunk[chunk + 1].send_backward = 0;
}

void bound_way_holds_before(struct bound_way *way, uint32_t chunk, uint32_t stage) {
    if (stage < way->chunk[chunk].held_before) way->chunk[chunk].held_before = stage;
}

void bound_way_finish(struct bound_way *way) {
    uint32_t count = way->costs->chunks;
    uint64_t down = 0, up = 0; /* from chunk 0 to the chunk's F, and from its I to the I of chunk 0 */
    bool staggered = way->options->staggered;
    uint64_t outer = 0; /* most over r of tail(r,s), and head where windows differ; less what is common */
    for (uint32_t c = 0; c < count; c++) {
        struct bound_chunk *b = &way->chunk[c];
        b->head = staggered ? 0 : down;
        b->outer = c == 0 ? 0 : outer + (staggered ? 0 : down);
        b->down = down;
        b->up = up;
        if (c + 1 == count) break;
        uint64_t step_down = b->forward + b->send_forward,
                 step_up = b->back + way->chunk[c + 1].send_backward;
        outer = most(outer, b->weight + b->once) + step_up + (staggered ? step_down : 0);
        down += step_down;
        up += step_up;
    }
    const struct bound_chunk *last = &way->chunk[count - 1];
    for (uint32_t c = 0; c < count; c++) {
        struct bound_chunk *b = &way->chunk[c];
        b->away = last->down - b->down - b->forward + last->forward + last->up - b->up - b->back + last->back;
    }
}

/* ---- a worker's memory ---- */

/* Micro-batches whose forward it can do before the first gradient is back. */
static uint64_t early_count(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t n) {
    const struct sim_chunk *c = &way->costs->chunk[chunk];
    bool can_drop = way->options->recompute || way->options->offload;
    uint64_t each = can_drop ? least(c->kept, c->full) : c->full;
    if (way->costs->limit == NULL || each == 0) return n;
    return least(n, way->costs->limit[worker] / each);
}

/* Weight gradients that it can put off until after its last I: the last one is whole before that I. */
static uint64_t late_count(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t n) {
    if (is_fused(way)) return 0;
    const struct sim_chunk *c = &way->costs->chunk[chunk];
    if (way->costs->limit == NULL || c->after_input == 0) return n;
    return least(n, 1 + ticks_less(way->costs->limit[worker], c->full) / c->after_input);
}

__extension__ typedef unsigned __int128 area; /* bytes x ticks */

/* Memory not yet used while the first `count` micro-batches come, or no longer while the last go, each `unit`
 * ticks after the other. */
static area ramp(uint64_t limit, uint64_t full, uint64_t unit, uint64_t count) {
    if (count < 2) return 0;
    area unused = (area)(count - 1) * limit - (area)full * ((area)(count - 1) * count / 2);
    return unused * unit;
}

/* The least window in which n micro-batches can stay as long as they must. */
static uint64_t stay_time(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t n) {
    const struct sim_chunk *c = &way->costs->chunk[chunk];
    bool can_drop = way->options->recompute || way->options->offload;
    if (way->costs->limit == NULL || c->full == 0 || can_drop) return 0;
    uint64_t limit = way->costs->limit[worker];
    if (limit < c->full) return 0;
    uint64_t forward = sim_duration(way->costs, worker, chunk, IR_F);
    uint64_t back = sim_duration(way->costs, worker, chunk, is_fused(way) ? IR_B : IR_I);
    uint64_t weight = is_fused(way) ? 0 : sim_duration(way->costs, worker, chunk, IR_W);
    area sum =
        n * ((area)c->full * (forward + way->chunk[chunk].away + back) + (area)c->after_input * weight);
    uint64_t count = least(n, limit / c->full); /* so the two ramps do not overlap */
    sum += ramp(limit, c->full, forward, count) + ramp(limit, c->full, is_fused(way) ? back : weight, count);
    return (uint64_t)((sum + limit - 1) / limit);
}

/* ---- a worker's bound ---- */

static uint64_t bound_of(const struct bound_chunk *b, uint64_t idle, const struct bound_load *l) {
    uint64_t own = ticks_add(ticks_add(b->head, idle), ticks_add(l->work, l->once));
    uint64_t fused_tail = ticks_add(ticks_add(b->outer, idle), ticks_less(l->work, l->late));
    return most(own, fused_tail);
}

uint64_t bound_single(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t n) {
    const struct bound_chunk *b = &way->chunk[chunk];
    uint64_t forward = sim_duration(way->costs, worker, chunk, IR_F);
    uint64_t weight = sim_duration(way->costs, worker, chunk, IR_W);
    struct bound_load l = {.chunk = chunk,
                           .work = ticks_mul(n, route_unit(way->costs, worker, chunk)),
                           .late = ticks_mul(late_count(way, worker, chunk, n), weight),
                           .once = route_once(way->costs, worker, chunk)};
    if (n == 0) return l.once;
    uint64_t early = ticks_mul(early_count(way, worker, chunk, n), forward);
    uint64_t idle = ticks_less(forward + b->away, early);
    uint64_t stay = ticks_add(ticks_add(b->head, l.once), stay_time(way, worker, chunk, n));
    uint64_t before = way->options->staggered ? b->down - way->chunk[b->held_before].down : b->head;
    uint64_t helped = ticks_add(ticks_add(before, idle), ticks_add(l.work, b->once));
    return most(most(bound_of(b, idle, &l), helped), stay);
}

uint64_t bound_several(const struct bound_way *way, const struct bound_load *load) {
    if (load->work == 0) return load->once;
    return bound_of(&way->chunk[load->chunk], 0, load);
}
