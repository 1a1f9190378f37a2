/* Inside of the list scheduler: what its files share.
 *
 *   list.c          entry: builds the problem, one pass or the search, emits the plan
 *   list_problem.c  the route and the costs, flat
 *   list_pass.c     what a list schedule needs: events, ready queues
 *   list_forward.c  one in time order, with admission by memory
 *   list_aid.c      recomputation and offload in it
 *   list_back.c     the same with time reversed, from the last weight-gradient to the first forward
 *   list_time.c     times of a given order; how good it is
 *   list_emit.c     a schedule as ir_plan, with R and S
 *   search.c        many passes with changed priorities
 *
 * A cell is a (home, chunk, micro-batch), numbered as in plan_route; the worker that executes it is known.
 * A schedule is a log: codes (cell and operation) in an order in which they may start, and their times.
 * Everything is allocated once, before the first pass. */
#ifndef PLAN_LIST_H
#define PLAN_LIST_H

#include "plan/plan.h"

enum list_op {
    LIST_F,
    LIST_I,
    LIST_W,
    LIST_C,
    LIST_O,
    LIST_L,
    LIST_OPS,
    LIST_ARRIVAL_F,
    LIST_ARRIVAL_I,
    LIST_WAKE
};
#define LIST_CELLS_MAX (1u << 28) /* four bits of a code are the operation */
#define LIST_NEVER     UINT64_MAX
static inline uint32_t list_code(uint32_t cell, enum list_op op) { return cell << 4 | (uint32_t)op; }
static inline uint32_t list_cell(uint32_t code) { return code >> 4; }
static inline enum list_op list_op_of(uint32_t code) { return (enum list_op)(code & 15); }

struct list_problem {
    const struct plan_route *route;
    const struct sim_costs *costs;
    const struct plan_list_options *options;
    uint32_t workers, chunks, microbatches;
    uint32_t cells;       /* those that there are not, too: list_is_there */
    bool split;           /* I and W are apart; else I stands for B and there is no W */
    uint32_t kinds;       /* operations with a start time of their own: 3, or LIST_OPS */
    uint16_t *chunk_of;   /* [cells] */
    uint64_t *ticks;      /* [chunks * LIST_OPS] on a worker of speed 1 */
    bool *plain;          /* [workers] of speed 1 */
    uint32_t *first;      /* [workers + 1] where a worker's share of [cells] begins */
    uint32_t *cells_at;   /* [cells] the cells of worker 0, of worker 1, ... ascending */
    bool *several;        /* [workers] executes more than one chunk */
    struct ir_plan *plan; /* without instructions; says who holds what */
    uint64_t *tail;       /* [workers] R and S of all it holds */
    uint64_t *chunk_tail; /* [chunks] R and the slowest S */
    uint64_t *over;       /* [chunks] by how much its work should end before the last work of all */
    uint64_t *reserve;    /* [cells] room an F leaves for later chunks of its worker; null: none anywhere */
};
pawl_code list_problem_open(const struct plan_route *route, const struct sim_costs *costs,
                            const struct plan_list_options *options, struct list_problem *out,
                            struct pawl_error *e);
void list_problem_close(struct list_problem *p);

static inline uint32_t list_host(const struct list_problem *p, uint32_t cell) { return p->route->host[cell]; }
static inline bool list_is_there(const struct list_problem *p, uint32_t cell) {
    return p->route->host[cell] != PLAN_ABSENT;
}
static inline const struct sim_chunk *list_chunk(const struct list_problem *p, uint32_t cell) {
    return &p->costs->chunk[p->chunk_of[cell]];
}
/* What a cell occupies until its last gradient, seen so that it never grows after F. */
static inline uint64_t list_need(const struct sim_chunk *c) {
    return c->full > c->after_input ? c->full : c->after_input;
}
uint64_t list_ticks_slow(const struct list_problem *p, uint32_t worker, uint32_t chunk, enum list_op op);
static inline uint64_t list_ticks(const struct list_problem *p, uint32_t cell, enum list_op op) {
    uint32_t worker = list_host(p, cell), chunk = p->chunk_of[cell];
    return p->plain[worker] ? p->ticks[chunk * LIST_OPS + op] : list_ticks_slow(p, worker, chunk, op);
}
static inline uint64_t list_limit(const struct list_problem *p, uint32_t worker) {
    return p->costs->limit ? p->costs->limit[worker] : UINT64_MAX;
}
/* Delay of a cell's activation to the next chunk, and of its gradient to the one before. */
static inline uint64_t list_delay_forward(const struct list_problem *p, uint32_t cell) {
    return list_host(p, cell) == list_host(p, cell + p->microbatches) ? 0 : list_chunk(p, cell)->send_forward;
}
static inline uint64_t list_delay_back(const struct list_problem *p, uint32_t cell) {
    return list_host(p, cell) == list_host(p, cell - p->microbatches) ? 0
                                                                      : list_chunk(p, cell)->send_backward;
}
static inline bool list_last_chunk(const struct list_problem *p, uint32_t cell) {
    return p->chunk_of[cell] + 1u == p->chunks;
}

struct list_schedule {
    uint32_t *log; /* [count] codes; a code's worker executes them in this order */
    uint32_t count, room;
    uint64_t *start; /* [cells * kinds] */
    uint64_t period; /* by these times; LIST_NEVER: the pass got stuck */
    uint64_t excess; /* second criterion: by how much workers are over the pass's target, summed up */
};
pawl_code list_schedule_open(const struct list_problem *p, struct list_schedule *out, struct pawl_error *e);
void list_schedule_close(struct list_schedule *s);
void list_schedule_copy(const struct list_problem *p, const struct list_schedule *from,
                        struct list_schedule *to);
static inline uint64_t *list_start(const struct list_problem *p, const struct list_schedule *s,
                                   uint32_t code) {
    return &s->start[(uint64_t)list_cell(code) * p->kinds + list_op_of(code)];
}
static inline uint64_t list_end(const struct list_problem *p, const struct list_schedule *s, uint32_t code) {
    return *list_start(p, s, code) + list_ticks(p, list_cell(code), list_op_of(code));
}

/* What a worker prefers where several operations are ready. */
enum list_prefer {
    LIST_BY_KIND, /* I, then F, then W; within a kind the lowest key */
    LIST_BY_KEY,  /* the lowest key of all */
};
struct list_rule {
    enum list_prefer prefer;
    bool forward_first;     /* by kind: F before I (in time order only) */
    bool free_memory_first; /* by kind: where only memory keeps an F from running, W comes before I */
    bool guests_first;      /* order of the keys that list_keys makes */
};

/* Queues of a worker: of F, I, W by list_op, and */
enum {
    LIST_ARRIVED_QUEUE = 3,   /* reversed: arrived before its W */
    LIST_RECOMPUTE_QUEUE = 3, /* to be recomputed */
    LIST_PARKABLE = 3,        /* no heap: forwards whose copy to the host may be waited for, oldest first */
    LIST_FIRST_QUEUE = 4,     /* F of chunk 0, where a worker of several chunks has a limit */
    LIST_LOAD_QUEUE = 5,      /* offloaded, and the gradient is there */
    LIST_PARKED_QUEUE = 6,    /* offloaded */
    LIST_QUEUES = 7
};
struct list_queue_worker {
    uint64_t used;
    uint64_t parted_bytes;                /* what is kept of the forwards that are not stored whole now ... */
    uint32_t parted;                      /* ... and how many they are */
    uint64_t out_free, in_free, out_last; /* copies to and from the host: engines; end of the last F parked */
    uint64_t wake_at;
    uint32_t waiting[LIST_QUEUES];
    bool busy, dirty;
};
enum list_aid { LIST_NO_AID, LIST_RECOMPUTE_LATE, LIST_RECOMPUTE_EARLY, LIST_OFFLOAD };
enum list_state { LIST_WHOLE, LIST_DROPPED, LIST_PARKED, LIST_LOADING, LIST_BACK, LIST_HERE = 8 };
enum list_reached {
    LIST_ARRIVED = 1,
    LIST_LOADED = 2,
    LIST_RAN = 4
}; /* bits, reversed: of I, W begun, done */
struct list_event {
    uint64_t at;
    uint32_t code;
};
struct list_pass { /* workspace */
    const struct list_problem *problem;
    uint32_t *key[3];             /* [cells] of F, I, W: lower first */
    uint64_t *queue[LIST_QUEUES]; /* [cells] heaps of key << 32 | cell, a worker's at first[worker] */
    struct list_queue_worker *worker;
    struct list_event *event; /* heap */
    uint32_t event_count;
    uint32_t *dirty; /* [workers] to look at before time goes on */
    uint32_t dirty_count;
    uint8_t *state;    /* [cells] */
    uint64_t *release; /* [workers] not before */
    uint8_t *aid;      /* [workers] list_aid where memory is short, in time order */
    uint64_t *scratch; /* [2 * (workers + stages) + 3 * chunks] of list_time.c */
    uint64_t target;   /* period to come below next */
    const bool *stop;  /* raised: passes may end early, as stuck; null: they may not */
    struct list_rule rule;
    struct list_schedule *out;
};
pawl_code list_pass_open(const struct list_problem *p, struct list_pass *out, struct pawl_error *e);
void list_pass_close(struct list_pass *s);
void list_keys(struct list_pass *s, bool guests_first);
/* Fill `out`. A pass that gets stuck (chunks that wait for each other's memory) has period LIST_NEVER. */
void list_forward(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out);
void list_backward(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out);
/* Micro-batch after micro-batch: never stuck. PLAN: does not fit even so; names the worker. */
pawl_code list_serial(struct list_pass *s, struct list_schedule *out, struct pawl_error *e);

/* Shared by both directions (list_pass.c). */
void list_heap_push(uint64_t *heap, uint32_t *count, uint64_t item);
uint64_t list_heap_pop(uint64_t *heap, uint32_t *count);
uint64_t list_heap_take(uint64_t *heap, uint32_t *count, uint32_t at);
void list_event_push(struct list_pass *s, uint64_t at, uint32_t code);
void list_queue(struct list_pass *s, uint32_t queue, enum list_op key, uint32_t cell);
void list_begin(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out);
void list_end_op(struct list_pass *s, uint32_t worker);
void list_log_op(struct list_pass *s, uint32_t code, uint64_t now);
void list_start_op(struct list_pass *s, uint32_t worker, uint32_t code, uint64_t now);
static inline uint64_t list_room(const struct list_pass *s, uint32_t worker) {
    return list_limit(s->problem, worker) - s->worker[worker].used;
}
static inline uint64_t list_reserve(const struct list_problem *p, uint32_t cell) {
    return p->reserve ? p->reserve[cell] : 0;
}
static inline bool list_forward_waits(const struct list_queue_worker *w) {
    return w->waiting[LIST_F] + w->waiting[LIST_FIRST_QUEUE] > 0;
}
struct list_direction {
    void (*choose)(struct list_pass *s, uint32_t worker, uint64_t now);
    void (*arrive)(struct list_pass *s, enum list_op arrival, uint32_t cell);
    void (*ended)(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now);
};
void list_run(struct list_pass *s, const struct list_direction *d);
void list_send(struct list_pass *s, const struct list_direction *d, uint64_t at, uint64_t delay,
               uint32_t code);

/* list_aid.c, of a worker that may: recompute or offload instead of standing still; true: look again. */
bool list_aid(struct list_pass *s, uint32_t worker, uint64_t now);
bool list_aid_fits(const struct list_pass *s, uint32_t worker, uint32_t cell); /* a forward that comes back */
bool list_drops(const struct list_pass *s, uint32_t worker, uint32_t cell); /* keeps only its input anyway */
void list_drop(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now);
void list_recompute(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now);
void list_load_arrived(struct list_pass *s, uint32_t worker, uint64_t now);
void list_may_park(struct list_pass *s, uint32_t worker, uint32_t cell);
bool list_is_here(struct list_pass *s, uint32_t cell); /* the gradient has come; false: its forward has not */
void list_loaded(struct list_pass *s, uint32_t cell);

/* Earliest times of the log's order. */
void list_retime(struct list_pass *s, struct list_schedule *out);
/* Period and excess by the times. */
void list_evaluate(struct list_pass *s, struct list_schedule *out);

/* Hands out the problem's plan, filled. */
pawl_code list_emit(struct list_problem *p, const struct list_schedule *s, struct ir_plan **out,
                    struct pawl_error *e);

/* The best schedule that the options' time and rounds find, into `best`. */
pawl_code list_search(struct list_pass *s, struct list_schedule *best, struct pawl_error *e);

#endif
