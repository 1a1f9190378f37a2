/* The version buffers of a worker: a fixed number, each held by whoever still reads it.
 * Holders: the base version, the tentative one, and every save in flight. */
#ifndef RUN_VERSIONS_H
#define RUN_VERSIONS_H

#include "model/stage.h"

struct versions {
    struct version *items;
    uint32_t *holders;
    uint32_t count;
};

pawl_code versions_init(struct versions *v, const struct stage *stage, uint32_t count, struct pawl_error *e);
void versions_close(struct versions *v);
/* A buffer nobody holds, now held once; null when there is none. */
struct version *versions_take(struct versions *v);
void versions_hold(struct versions *v, const struct version *version);
void versions_drop(struct versions *v, const struct version *version); /* accepts null */

#endif
