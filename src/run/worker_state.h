/* What a worker has; shared by the files of run/worker.h. */
#ifndef RUN_WORKER_STATE_H
#define RUN_WORKER_STATE_H

#include "run/exec.h"
#include "run/go.h"
#include "run/holding.h"
#include "run/inject_self.h"
#include "run/transfer.h"
#include "run/worker.h"

enum worker_phase {
    WORKER_START,
    WORKER_FENCED, /* also: READY, never fenced */
    WORKER_FETCH,  /* some holding is not there yet */
    WORKER_RUN,
    WORKER_IDLE, /* at the last version, or a spare */
    WORKER_LEAVING,
    WORKER_ENDED,
};

enum worker_save_state { SAVE_QUEUED, SAVE_WRITING, SAVE_ANSWERED };

/* A part that the worker was asked for. It stays until the worker is told what became of the version
 * (DURABLE, FORGET), so that a coordinator that takes over hears of it. */
struct worker_save {
    enum worker_save_state state;
    bool told_end; /* forgotten while being written */
    bool ok;       /* ANSWERED */
    uint64_t version, tag;
    uint32_t chunk, part, parts;
    const struct version *held; /* WRITING */
};

struct worker_give { /* what a peer is to be given, and has not begun to be: enum coord_pair_flags */
    uint32_t rank, chunk;
    unsigned flags;
};

struct worker {
    struct worker_env env;
    struct spec spec;
    uint8_t run_id[CKPT_RUN_ID_BYTES];
    enum worker_phase phase;
    struct peers peers;
    struct engine *engine;
    struct adamw_config adamw;
    struct holding **holdings; /* [holding_count], each chunk at most once among those that are not over */
    uint32_t holding_count, holding_room;
    struct holding **planned; /* those of the plan, by chunk */
    uint32_t planned_count;
    struct transfers transfers;
    struct worker_give *gives;
    uint32_t give_count;
    struct go go;  /* of the view; plan null: none */
    bool *reduced; /* [go.chunks] */
    bool *unheard; /* [ranks] neighbours that have not been heard in this view; null before the first GO */
    struct exec exec;
    uint64_t iteration; /* under way, in RUN */
    uint64_t final;     /* version that was begun from or decided on last */
    bool optimistic;    /* is iteration `final`; and its exponent shift */
    int32_t shift;
    struct store *own_store;
    struct ckpt *ckpt;
    uint64_t incarnation; /* that it saves for: of its first GO, or of one that restores; 0: none yet */
    struct worker_save *saves;
    uint32_t save_count, save_room;
    uint64_t save_tag;
    uint64_t save_operations; /* of the engine, when last looked at */
    bool has_durable;
    uint64_t durable;
    struct inject_self *inject; /* null: no fault was added */
    struct inject_targets targets;
    _Atomic uint64_t progress;
    _Atomic bool busy;
    _Atomic uint32_t work;  /* enum coord_work */
    _Atomic uint64_t at[2]; /* worker_at, packed */
};

/* worker.c */
struct holding *worker_find(const struct worker *w, uint32_t chunk); /* not one that is over; null */
pawl_code worker_make_holding(struct worker *w, uint32_t chunk, struct holding **out, struct pawl_error *e);
void worker_set_work(struct worker *w, enum coord_work work);
void worker_note_at(struct worker *w);
void worker_free_over(struct worker *w); /* holdings that are over and that nobody reads */
/* worker_fence.c */
pawl_code worker_fence(struct worker *w, const struct message *m, struct pawl_error *e);
/* worker_go.c */
pawl_code worker_go(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_move_in(struct worker *w, struct pawl_error *e); /* in FETCH: something has come */
/* worker_copy.c: what peers give each other, on GO and ahead of a join */
pawl_code worker_fetch(struct worker *w, struct holding *h, struct coord_pair pair, struct pawl_error *e);
pawl_code worker_give(struct worker *w, struct worker_give give, struct pawl_error *e);
pawl_code worker_prepare(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_transfer_completion(struct worker *w, const struct net_completion *c, struct pawl_error *e);
void worker_cancel_transfers(struct worker *w); /* the network was fenced */
/* worker_greet.c */
pawl_code worker_greet(struct worker *w, struct pawl_error *e); /* the GO is planned */
void worker_greeted(struct worker *w, const struct net_completion *c);
pawl_code worker_accuse(struct worker *w, struct pawl_error *e); /* SUSPECT whom was not heard */
/* worker_step.c */
pawl_code worker_begin(struct worker *w, uint64_t iteration, const uint8_t *done, struct pawl_error *e);
pawl_code worker_advance(struct worker *w, bool *worked, struct pawl_error *e);
pawl_code worker_decide(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_report(struct worker *w, struct holding *h, struct pawl_error *e);
/* worker_load.c: every planned holding gets the version that the GO returns to */
pawl_code worker_load(struct worker *w, struct pawl_error *e);
/* worker_save.c */
pawl_code worker_open_ckpt(struct worker *w, struct pawl_error *e);
pawl_code worker_enter_ckpt(struct worker *w, struct pawl_error *e); /* as the GO at hand says */
pawl_code worker_save(struct worker *w, const struct message *m, struct pawl_error *e);
pawl_code worker_saves_poll(struct worker *w, bool *worked, struct pawl_error *e);
void worker_saves_durable(struct worker *w, uint64_t version);
void worker_saves_forget(struct worker *w, uint64_t version);
bool worker_saves_writing(const struct worker *w);

#endif
