/* The version buffers of a held chunk, each held by whoever still reads it.
 * Holders: the base version, the tentative one, every save in flight, every copy being sent to a peer.
 * Two are there from the start; the others are made when first needed, up to a limit, and then stay. The step
 * loop waits at the limit; only a decision, which cannot wait, goes beyond it. */
#ifndef RUN_VERSIONS_H
#define RUN_VERSIONS_H

#include "model/stage.h"

struct versions_item {
    struct version version; /* the first member: a version is its item */
    uint32_t holders;
};

struct versions {
    const struct stage *stage;    /* borrowed */
    struct versions_item **items; /* each stays where it is */
    uint32_t count, room, limit;
};

pawl_code versions_init(struct versions *v, const struct stage *stage, uint32_t limit, struct pawl_error *e);
void versions_close(struct versions *v);
/* A buffer nobody holds, now held once. OK and null at the limit (not with `beyond`); MEMORY. */
pawl_code versions_take(struct versions *v, bool beyond, struct version **out, struct pawl_error *e);
void versions_hold(const struct version *version);
void versions_drop(const struct version *version); /* accepts null */
bool versions_in_use(const struct versions *v);    /* anybody holds one */

#endif
