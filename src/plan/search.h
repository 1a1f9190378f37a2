/* Inside of the local search: search.c decides what to try, search_order.c moves operations in lists,
 * search_memory.c asks who should recompute or offload. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "base/rng.h"
#include "plan/list.h"

struct search_order {       /* the workers' lists, and what executing them needs */
    uint32_t *code;         /* [operations] worker by worker */
    uint32_t *first;        /* [workers + 1] */
    uint32_t *next, *stack; /* [workers] */
    bool *queued;           /* [workers] */
    uint64_t *free_at;      /* [workers] */
    uint64_t *copies_free;  /* [2 * workers] engines to and from the host; these three null without copies */
    uint64_t *copied_at;    /* [cells] end of the last copy of what is offloaded */
    bool *parks;            /* [cells] is offloaded */
};
struct search_move {
    uint32_t from, to; /* in search_order.code */
};

struct search {
    struct list_pass *pass;
    const struct list_problem *problem;
    const struct plan_list_options *options;
    struct rng_stream rng;
    struct list_schedule *best;
    struct list_schedule current, trial, plain; /* plain: the best without recompute and offload */
    struct search_order order;
    uint32_t rounds, rounds_end; /* so far, and of this part */
    int64_t until_ns;
    uint64_t step;  /* a fraction of the shortest operation */
    unsigned shift; /* of times as keys */
    uint64_t reach; /* of changes of keys */
};
bool search_better(const struct list_schedule *a, const struct list_schedule *b);
bool search_finished(const struct search *s);
bool search_stopped(const struct search *s);
/* One more round, of s->trial: keeps it if it is the best. */
void search_note(struct search *s);

pawl_code search_order_open(const struct list_problem *p, const struct list_schedule *like,
                            struct search_order *out, struct pawl_error *e);
void search_order_close(struct search_order *o);
/* `whole` (a cell, or UINT32_MAX) is neither recomputed nor offloaded. */
void search_order_from(const struct list_problem *p, const struct list_schedule *from, uint32_t whole,
                       struct search_order *out);
/* Earliest times and the period; LIST_NEVER: a cyclic wait. */
void search_order_run(struct search_order *o, struct list_pass *pass, struct list_schedule *out);
/* Move an operation of a worker that the rng picks; false: nothing was changed. */
bool search_order_move(struct search_order *o, const struct list_problem *p, struct rng_stream *rng,
                       uint32_t worker, const struct list_schedule *like, struct search_move *out);
void search_order_undo(struct search_order *o, const struct search_move *m);
/* Do the worker's list and the recomputations that `like` has respect its memory? */
bool search_order_fits(const struct search_order *o, const struct list_problem *p, uint32_t worker,
                       const struct list_schedule *like);

/* Who should recompute or offload where memory is short; the best becomes one that does. False: none can. */
bool search_memory(struct search *s);
/* Take out of the best schedule what does not shorten it. */
void search_memory_prune(struct search *s);

#endif
