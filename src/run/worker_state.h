/* What a worker holds; shared by worker.c (life) and worker_step.c (iterations). */
#ifndef RUN_WORKER_STATE_H
#define RUN_WORKER_STATE_H

#include "run/worker.h"

enum worker_phase {
    WORKER_START,
    WORKER_FENCED,
    WORKER_FETCH,
    WORKER_RUN,
    WORKER_HOLD, /* gradient reduced, waiting for the decision */
    WORKER_IDLE, /* at the last version */
    WORKER_ENDED,
};

struct worker_save {
    const struct version *version; /* held; null: place is free */
    uint32_t part, parts;
};

struct worker_injection {
    uint64_t iteration;
    uint32_t point;
};

struct worker {
    struct worker_env env;
    struct spec spec;
    enum worker_phase phase;
    struct peers peers;
    struct data *data;
    struct stage *stage;
    struct adamw_config adamw;
    struct versions versions;
    struct version *base, *tentative;
    int64_t *sums;
    float *grad;
    bool has_grad; /* grad is iteration base->number's, complete */
    struct coord_report report;
    struct ir_plan *plan;
    uint64_t plan_view;
    struct exec exec;
    struct reduce reduce;
    int64_t reduce_ns;          /* when the sum under way began */
    bool *peer_has_grad;        /* [ranks], from GO */
    uint32_t state_pending;     /* sends or the receive of a gradient between peers */
    enum coord_verdict verdict; /* of the GO under way */
    float clip;
    bool optimistic;
    int32_t shift;
    struct store *own_store;
    struct ckpt *ckpt;
    struct worker_save *saves; /* [save_count] */
    uint32_t save_count;
    uint64_t save_operations;  /* of the engine, when last looked at */
    struct message early_save; /* came while the version to save is still being fetched; parts 0: none */
    struct worker_injection *injections;
    uint32_t injection_count;
    _Atomic uint64_t progress;
    _Atomic bool busy;
};

/* worker.c: start the save that the coordinator asked for */
pawl_code worker_save(struct worker *w, const struct message *m, struct pawl_error *e);
/* worker_step.c */
pawl_code worker_advance(struct worker *w, bool *worked, struct pawl_error *e);
pawl_code worker_fence(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_go(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_decide(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_state_completion(struct worker *w, const struct net_completion *c, struct pawl_error *e);

#endif
