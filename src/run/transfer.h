/* Copies between two workers of what one of them lacks: a version of a chunk, or a reduced gradient.
 *
 * A transfer is a few words (what the bytes are: below) and then the bytes in pieces, some of which are under
 * way at a time, so that neither end's network is taken by it and both see it get on. Both ends know the
 * size. Names of messages: step is the version, stage the chunk; pipeline and micro-batch number the pieces,
 * the words being number 0; a gradient's pipelines begin at TRANSFER_GRAD_PIPELINE.
 *
 * A fence ends all transfers (transfers_drop). Thread: the worker's. Tested in
 * tests/unit/run_transfer_test.c and tests/storm. */
#ifndef RUN_TRANSFER_H
#define RUN_TRANSFER_H

#include "model/stage.h"
#include "run/peers.h"

#define TRANSFER_PIECE_BYTES   (1u << 20)
#define TRANSFER_WINDOW        4u /* pieces under way */
#define TRANSFER_WORDS         5u
#define TRANSFER_GRAD_PIPELINE 2048u

enum transfer_kind { TRANSFER_STATE, TRANSFER_GRAD };

struct transfer {
    uint32_t id;
    bool sends;
    enum transfer_kind kind;
    uint32_t peer, chunk;
    uint64_t version; /* STATE: its number; GRAD: the iteration's */
    uint8_t *data;
    size_t bytes;
    /* STATE: number, updates. GRAD: iteration, squared norm (bits of a double), loss, not finite, overflow */
    uint64_t words[TRANSFER_WORDS];
    void *context;          /* the caller's ... */
    struct version *buffer; /* ... and this, of a STATE: held while it is under way */
    uint64_t next;          /* piece to be begun: 0 is the words */
    uint32_t open;          /* begun and not completed */
};

struct transfers {
    struct transfer **items; /* each stays where it is: the network has pointers into it */
    uint32_t count, room;
    uint32_t last_id;
};

/* Begin one like `what` (id, next and open are set here). */
pawl_code transfers_begin(struct transfers *t, struct peers *p, const struct transfer *what,
                          struct pawl_error *e);
/* A completion whose owner is PEERS_STATE*. *ended: the transfer, when that was its last, taken out: to be
 * freed by the caller; else null. One whose peer is lost ends early: a fence is coming. */
pawl_code transfers_completion(struct transfers *t, struct peers *p, const struct net_completion *c,
                               struct transfer **ended, struct pawl_error *e);
/* Take out one, whatever its state (the network was fenced before); null: there is none. */
struct transfer *transfers_take(struct transfers *t);
void transfers_close(struct transfers *t);

#endif
