/* The baselines as published, for one pipeline without failures: which worker does what, in which order.
 *
 * GPipe (NeurIPS'19), 1F1B (PipeDream-Flush, ICML'21), interleaved 1F1B (Megatron-LM, SC'21), and of Zero
 * Bubble (ICLR'24 and its sequel on the V) the schedules drawn by hand, in the form that any number of
 * stages and micro-batches has. Some of them are only defined from a number of micro-batches on, or for
 * multiples of the stages: then the order is that of the next number for which they are, without the
 * micro-batches that do not exist. What is left of lists that could be executed can be executed: every wait
 * of it was one before, through what was left out or not. */
#include "plan/baseline.h"

#include <stdlib.h>

#include "base/error.h"

struct order {
    const struct plan_route *route;
    struct ir_plan *plan;
    uint32_t stages, stage;
    uint32_t microbatches;         /* of the full order; those from the route's on are left out */
    uint32_t done[2][IR_OP_COUNT]; /* [first or second chunk] so many of F I W so far */
    pawl_code code;
    struct pawl_error *e;
};

static void add(struct order *o, enum ir_op op, uint32_t chunk, uint32_t microbatch) {
    if (microbatch >= o->route->microbatches || o->code != PAWL_OK) return;
    o->code = ir_plan_append(o->plan, 0, o->stage, plan_route_instruction(o->route, op, 0, chunk, microbatch),
                             o->e);
}

/* The next micro-batch's `op` of the worker's first chunk, or (zb-v) of its second. */
static void next(struct order *o, enum ir_op op, uint32_t second) {
    uint32_t chunk = second ? 2 * o->stages - 1 - o->stage : o->stage;
    add(o, op, chunk, o->done[second][op]++);
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void order_gpipe(struct order *o) {
    for (uint32_t m = 0; m < o->microbatches; m++) next(o, IR_F, 0);
    for (uint32_t m = o->microbatches; m > 0; m--) add(o, IR_B, o->stage, m - 1);
}

static void order_1f1b(struct order *o) {
    uint32_t warm_up = min_u32(o->stages - o->stage - 1, o->microbatches);
    for (uint32_t m = 0; m < warm_up; m++) next(o, IR_F, 0);
    for (uint32_t m = warm_up; m < o->microbatches; m++) {
        next(o, IR_F, 0);
        next(o, IR_B, 0);
    }
    for (uint32_t m = 0; m < warm_up; m++) next(o, IR_B, 0);
}

/* Rounds of as many micro-batches as stages; each goes through all chunks of the worker before the next
 * round, backwards from the last chunk on. */
static void add_interleaved(struct order *o, enum ir_op op, uint32_t index) {
    uint32_t per_stage = o->route->chunks / o->stages;
    uint32_t round = index / (o->stages * per_stage), position = index / o->stages % per_stage;
    if (op != IR_F) position = per_stage - 1 - position;
    add(o, op, position * o->stages + o->stage, round * o->stages + index % o->stages);
}

static void order_interleaved(struct order *o) {
    uint32_t per_stage = o->route->chunks / o->stages;
    uint32_t all = o->microbatches * per_stage;
    uint32_t warm_up = min_u32(2 * (o->stages - o->stage - 1) + (per_stage - 1) * o->stages, all);
    for (uint32_t i = 0; i < warm_up; i++) add_interleaved(o, IR_F, i);
    for (uint32_t i = warm_up; i < all; i++) {
        add_interleaved(o, IR_F, i);
        add_interleaved(o, IR_B, i - warm_up);
    }
    for (uint32_t i = all - warm_up; i < all; i++) add_interleaved(o, IR_B, i);
}

/* ZB-H1 and ZB-H2: `warm_up` forwards, then one I and one F in turn; the W of the first `late` turns come at
 * the end, where the others wait for the last gradients. So at most warm_up + late are stored. */
static void order_zero_bubble(struct order *o, uint32_t warm_up, uint32_t late) {
    for (uint32_t m = 0; m < warm_up; m++) next(o, IR_F, 0);
    for (uint32_t m = 0; m < o->microbatches; m++) {
        next(o, IR_I, 0);
        if (m >= late) next(o, IR_W, 0);
        if (m + warm_up < o->microbatches) next(o, IR_F, 0);
    }
    for (uint32_t m = 0; m < late; m++) next(o, IR_W, 0);
}

static void next_three(struct order *o, uint32_t second) {
    next(o, IR_F, second);
    next(o, IR_I, second);
    next(o, IR_W, second);
}

/* ZB-V: forwards down the V and up again, so that the last worker's two chunks are neighbours and the first
 * worker has the first and the last: it starts the backward pass itself. */
static void order_zb_v(struct order *o) {
    uint32_t up = o->stages - o->stage; /* workers from here to the point of the V */
    for (uint32_t i = 0; i < 2 * up - 1; i++) next(o, IR_F, 0);
    for (uint32_t i = 0; i < o->stage; i++) {
        next(o, IR_F, 1);
        next(o, IR_F, 0);
    }
    for (uint32_t i = 0; i < up; i++) next_three(o, 1);
    while (o->done[1][IR_F] < o->microbatches) {
        if (o->done[0][IR_F] < o->microbatches) next(o, IR_F, 0);
        next(o, IR_I, 0);
        next(o, IR_W, 0);
        next_three(o, 1);
    }
    for (uint32_t i = 0; i < o->stage; i++) {
        next(o, IR_I, 0);
        next(o, IR_I, 1);
    }
    for (uint32_t i = 0; i < up; i++) {
        next(o, IR_I, 0);
        next(o, IR_W, 0);
    }
    for (uint32_t second = 2; second-- > 0;)
        while (o->done[second][IR_W] < o->microbatches) next(o, IR_W, second);
}

/* The least number of micro-batches, not below the wanted, for which the policy's order is defined. */
static uint32_t full_order(enum pawl_policy policy, uint32_t stages, uint32_t wanted) {
    switch (policy) {
    case PAWL_POLICY_INTERLEAVED:
        return (wanted + stages - 1) / stages * stages;
    case PAWL_POLICY_ZB_H1:
        return max_u32(wanted, stages);
    case PAWL_POLICY_ZB_H2:
    case PAWL_POLICY_ZB_V:
        return max_u32(wanted, 2 * stages - 1);
    default:
        return wanted;
    }
}

static void order_stage(struct order *o, enum pawl_policy policy) {
    uint32_t up = o->stages - o->stage;
    if (policy == PAWL_POLICY_GPIPE) order_gpipe(o);
    if (policy == PAWL_POLICY_1F1B) order_1f1b(o);
    if (policy == PAWL_POLICY_INTERLEAVED) order_interleaved(o);
    if (policy == PAWL_POLICY_ZB_H1) order_zero_bubble(o, up, o->stage);
    if (policy == PAWL_POLICY_ZB_H2) order_zero_bubble(o, 2 * up - 1, 2 * o->stage);
    if (policy == PAWL_POLICY_ZB_V) order_zb_v(o);
}

pawl_code baseline_published(enum pawl_policy policy, const struct plan_route *route, struct ir_plan *plan,
                             struct pawl_error *e) {
    uint32_t per_worker = 3 * route->microbatches * (route->chunks / route->stages);
    for (uint32_t s = 0; s < route->stages; s++) {
        struct order o = {.route = route, .plan = plan, .stages = route->stages, .stage = s, .e = e};
        o.microbatches = full_order(policy, route->stages, route->microbatches);
        o.code = ir_plan_reserve(plan, s, per_worker, e);
        if (o.code == PAWL_OK) order_stage(&o, policy);
        if (o.code != PAWL_OK) return o.code;
    }
    return PAWL_OK;
}
