/* The builders of ir.h: GPipe (Huang et al., NeurIPS'19) and 1F1B (PipeDream-Flush, Narayanan et al.,
 * ICML'21), with the orphaned micro-batches of dead workers on their peers.
 *
 * All workers' lists are made together by one simulation in unit times (F 1, B 2, messages 0): an idle
 * worker starts the best of its ready tasks, and each start is appended to its list. Whatever was started
 * had its inputs from tasks that ended before, so the lists, executed in order, cannot wait in a circle:
 * the simulated start times are an order of all tasks that every list and every message respects.
 *
 * The simulation itself cannot get stuck. GPipe: forwards wait for forwards only, then backwards for
 * backwards. 1F1B starts a forward while fewer than `cap` >= 1 micro-batches are held, else a backward if
 * one is ready. Assume nothing can start. No micro-batch has begun its backward pass, else its
 * next backward is ready. Of those that are under way take one that has come farthest, through stage d. If d
 * is the last stage its backward is ready. If not, its forward is ready at stage d + 1, whose host
 * must be at its cap, so holds one that came through d + 1: farther than the farthest. And if none is under
 * way, the first stage is free to start one. So caps decide speed and memory, never progress.
 *
 * Forwards before backwards, under a cap, is what keeps a host with guests at one forward per backward:
 * there backwards arrive as fast as they can be done, and taken first they would starve the forwards and
 * leave the stages behind idle until the end.
 *
 * Without dead workers the result is the classic order (asserted by tests/unit/ir_build_test.c). */
#include "ir/ir.h"

#include <stdlib.h>

#include "ir/route.h"

#define FORWARD_TIME  1u
#define BACKWARD_TIME 2u
#define RING          (BACKWARD_TIME + 1u) /* a task ends at most BACKWARD_TIME after now */

/* A ready task as a number that orders the tasks of one worker: micro-batch, then the distance of its home
 * from the host's pipeline, so own before guest. 14 + 12 bits suffice for IR_*_MAX. */
#define HOME_BITS 12u

struct heap { /* the smallest first; room for all micro-batches of its worker */
    uint32_t *keys;
    uint32_t count;
};

enum activity { IDLE, FORWARD, BACKWARD };

struct host {
    struct heap forward;
    struct heap backward;
    uint32_t forwards_left;
    uint32_t held; /* forward done, backward not */
    uint32_t cap;
    uint32_t home, microbatch; /* of the running task */
    enum activity activity;
    bool touched;  /* on the list of workers that may have something to start */
    uint32_t next; /* in its list of workers that end at the same time */
};

struct build {
    enum ir_schedule schedule;
    bool all_alive;
    struct ir_plan *plan;
    struct ir_route route;
    struct host *hosts; /* [pipelines * stages] */
    uint32_t *keys;     /* memory of all heaps */
    uint32_t *touched;  /* [pipelines * stages], touched_count used */
    uint32_t touched_count;
    uint32_t ending[RING]; /* heads of lists of workers by end time, or IR_NONE */
    uint32_t running;
};

static void heap_push(struct heap *h, uint32_t key) {
    uint32_t i = h->count++;
    for (; i > 0 && h->keys[(i - 1) / 2] > key; i = (i - 1) / 2) h->keys[i] = h->keys[(i - 1) / 2];
    h->keys[i] = key;
}

static uint32_t heap_pop(struct heap *h) {
    uint32_t top = h->keys[0];
    uint32_t key = h->keys[--h->count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && h->keys[child + 1] < h->keys[child]) child++;
        if (h->keys[child] >= key) break;
        h->keys[i] = h->keys[child];
        i = child;
    }
    h->keys[i] = key;
    return top;
}

/* GPipe runs backwards from the last micro-batch to the first. */
static uint32_t ordinal(const struct build *b, enum activity activity, uint32_t microbatch) {
    bool reversed = activity == BACKWARD && b->schedule == IR_GPIPE;
    return reversed ? b->plan->microbatches - 1 - microbatch : microbatch;
}

static void touch(struct build *b, uint32_t worker) {
    if (b->hosts[worker].touched) return;
    b->hosts[worker].touched = true;
    b->touched[b->touched_count++] = worker;
}

/* The worker that executes (home, microbatch) at `stage`; the stage is its chunk. */
static uint32_t host_of(const struct build *b, uint32_t home, uint32_t stage, uint32_t microbatch) {
    return ir_route_host(&b->route, home, stage, microbatch) * b->plan->stages + stage;
}

/* Make the task ready at its host. */
static void make_ready(struct build *b, enum activity activity, uint32_t home, uint32_t stage,
                       uint32_t microbatch) {
    uint32_t pipelines = b->plan->pipelines;
    uint32_t worker = host_of(b, home, stage, microbatch);
    uint32_t distance = (home + pipelines - worker / b->plan->stages) % pipelines;
    uint32_t key = ordinal(b, activity, microbatch) << HOME_BITS | distance;
    struct host *host = &b->hosts[worker];
    heap_push(activity == FORWARD ? &host->forward : &host->backward, key);
    touch(b, worker);
}

static struct ir_instruction instruction_of(const struct build *b, uint32_t worker) {
    const struct host *host = &b->hosts[worker];
    uint32_t stage = worker % b->plan->stages, home = host->home, microbatch = host->microbatch;
    uint32_t before = stage == 0 ? IR_NONE : host_of(b, home, stage - 1, microbatch);
    uint32_t after = stage + 1 == b->plan->stages ? IR_NONE : host_of(b, home, stage + 1, microbatch);
    bool forward = host->activity == FORWARD;
    return (struct ir_instruction){.op = forward ? IR_F : IR_B,
                                   .chunk = stage,
                                   .home = home,
                                   .microbatch = microbatch,
                                   .from = forward ? before : after,
                                   .to = forward ? after : before};
}

/* What an idle worker does next. */
static enum activity choose(const struct build *b, const struct host *host) {
    if (host->forward.count > 0 && host->held < host->cap) return FORWARD;
    bool backward_allowed = b->schedule != IR_GPIPE || host->forwards_left == 0;
    return host->backward.count > 0 && backward_allowed ? BACKWARD : IDLE;
}

/* Takes the first ready task from its heap. */
static void take_task(const struct build *b, uint32_t worker, struct host *host) {
    bool forward = host->activity == FORWARD;
    uint32_t key = heap_pop(forward ? &host->forward : &host->backward);
    uint32_t distance = key & ((1u << HOME_BITS) - 1);
    host->home = (worker / b->plan->stages + distance) % b->plan->pipelines;
    host->microbatch = ordinal(b, host->activity, key >> HOME_BITS);
    if (!forward) return;
    host->forwards_left--;
    host->held++;
}

static pawl_code start(struct build *b, uint32_t worker, uint64_t now, struct pawl_error *e) {
    struct host *host = &b->hosts[worker];
    if (host->activity != IDLE) return PAWL_OK;
    host->activity = choose(b, host);
    if (host->activity == IDLE) return PAWL_OK;
    take_task(b, worker, host);
    uint64_t slot = (now + (host->activity == FORWARD ? FORWARD_TIME : BACKWARD_TIME)) % RING;
    host->next = b->ending[slot];
    b->ending[slot] = worker;
    b->running++;
    return ir_plan_append(b->plan, worker / b->plan->stages, worker % b->plan->stages,
                          instruction_of(b, worker), e);
}

static pawl_code start_all(struct build *b, uint64_t now, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < b->touched_count && code == PAWL_OK; i++) {
        b->hosts[b->touched[i]].touched = false;
        code = start(b, b->touched[i], now, e);
    }
    b->touched_count = 0;
    return code;
}

static void end(struct build *b, uint32_t worker) {
    struct host *host = &b->hosts[worker];
    uint32_t stage = worker % b->plan->stages;
    if (host->activity == FORWARD && stage + 1 < b->plan->stages)
        make_ready(b, FORWARD, host->home, stage + 1, host->microbatch);
    else if (host->activity == FORWARD)
        make_ready(b, BACKWARD, host->home, stage, host->microbatch);
    else if (stage > 0)
        make_ready(b, BACKWARD, host->home, stage - 1, host->microbatch);
    if (host->activity == BACKWARD) host->held--;
    host->activity = IDLE;
    b->running--;
    touch(b, worker);
}

static void end_all(struct build *b, uint64_t now) {
    uint32_t worker = b->ending[now % RING];
    b->ending[now % RING] = IR_NONE;
    while (worker != IR_NONE) {
        uint32_t next = b->hosts[worker].next;
        end(b, worker);
        worker = next;
    }
}

static pawl_code simulate(struct build *b, struct pawl_error *e) {
    const struct ir_plan *plan = b->plan;
    for (uint32_t p = 0; p < plan->pipelines; p++)
        for (uint32_t m = 0; m < plan->microbatches; m++) make_ready(b, FORWARD, p, 0, m);
    pawl_code code = start_all(b, 0, e);
    for (uint64_t now = 1; b->running > 0 && code == PAWL_OK; now++) {
        end_all(b, now);
        code = start_all(b, now, e);
    }
    return code;
}

/* 1F1B holds stages - stage micro-batches: as many as start during the round trip of one to the last stage
 * and back. Guests add their share of that, rounded up, on the host. Where anybody is dead, messages of
 * different pipelines meet in the same host and arrive less evenly; one more everywhere keeps that from
 * stalling others (4 x 8 x 32, last stage: 150 units of time instead of 160). */
static uint32_t cap_of(const struct build *b, uint32_t stage, uint32_t guests) {
    if (b->schedule == IR_GPIPE) return UINT32_MAX;
    uint64_t own = b->plan->stages - stage;
    uint64_t share = (own * guests + b->plan->microbatches - 1) / b->plan->microbatches;
    uint64_t cap = own + share + (b->all_alive ? 0 : 1);
    return cap > UINT32_MAX ? UINT32_MAX : (uint32_t)cap;
}

/* Sizes every live worker's heaps and list; the dead keep none. */
static pawl_code place_hosts(struct build *b, struct pawl_error *e) {
    struct ir_plan *plan = b->plan;
    uint32_t *keys = b->keys;
    pawl_code code = PAWL_OK;
    for (uint32_t p = 0; p < plan->pipelines; p++) {
        for (uint32_t s = 0; s < plan->stages && code == PAWL_OK; s++) {
            if (!ir_plan_worker(plan, p, s)->alive) continue;
            uint32_t guests = ir_route_guests(&b->route, p, s);
            uint32_t load = plan->microbatches + guests;
            struct host *host = &b->hosts[(uint64_t)p * plan->stages + s];
            host->forwards_left = load;
            host->cap = cap_of(b, s, guests);
            host->forward.keys = keys;
            host->backward.keys = keys + load;
            keys += (size_t)load * 2;
            code = ir_plan_reserve(plan, p * plan->stages + s, load * 2 + 2, e); /* F and B, R and S */
        }
    }
    return code;
}

static pawl_code build_init(struct build *b, const bool *alive, struct pawl_error *e) {
    struct ir_plan *plan = b->plan;
    pawl_code code = ir_route_init(&b->route, plan, alive, e);
    if (code != PAWL_OK) return code;
    uint32_t workers = plan->pipelines * plan->stages;
    b->all_alive = true;
    for (uint32_t w = 0; alive != NULL && w < workers; w++) {
        if (alive[w]) continue;
        ir_plan_kill(plan, w);
        b->all_alive = false;
    }
    for (uint32_t i = 0; i < RING; i++) b->ending[i] = IR_NONE;
    b->hosts = calloc(workers, sizeof *b->hosts);
    b->touched = calloc(workers, sizeof *b->touched);
    b->keys = calloc((size_t)workers * plan->microbatches, 2 * sizeof *b->keys);
    if (b->hosts == NULL || b->touched == NULL || b->keys == NULL)
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory to build %u x %u x %u", plan->pipelines,
                         plan->stages, plan->microbatches);
    return place_hosts(b, e);
}

static void build_close(struct build *b) {
    ir_route_close(&b->route);
    free(b->hosts);
    free(b->touched);
    free(b->keys);
    ir_plan_free(b->plan);
}

static pawl_code finish_lists(struct ir_plan *plan, struct pawl_error *e) {
    static const enum ir_op last[] = {IR_R, IR_S};
    for (uint32_t p = 0; p < plan->pipelines; p++) {
        for (uint32_t s = 0; s < plan->stages; s++) {
            for (size_t i = 0; i < 2 && ir_plan_worker(plan, p, s)->alive; i++) {
                struct ir_instruction in = {last[i], s, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
                pawl_code code = ir_plan_append(plan, p, s, in, e);
                if (code != PAWL_OK) return code;
            }
        }
    }
    return PAWL_OK;
}

pawl_code ir_build(enum ir_schedule schedule, uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                   const bool *alive, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    if ((unsigned)schedule >= IR_SCHEDULE_COUNT)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: no schedule has number %u", (unsigned)schedule);
    struct build b = {.schedule = schedule};
    pawl_code code = ir_plan_new(pipelines, stages, microbatches, &b.plan, e);
    if (code == PAWL_OK) code = build_init(&b, alive, e);
    if (code == PAWL_OK) code = simulate(&b, e);
    if (code == PAWL_OK) code = finish_lists(b.plan, e);
    if (code == PAWL_OK) {
        *out = b.plan;
        b.plan = NULL;
    }
    build_close(&b);
    return code;
}
