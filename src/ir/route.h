/* Who hosts which micro-batch when workers are dead (plain re-routing).
 *
 * A live worker hosts its own pipeline's micro-batches. The orphans of a stage, ordered by micro-batch and
 * then by dead pipeline, go round robin over the stage's live workers in pipeline order: no two hosts of
 * a stage differ by more than one guest, and the guests of one host are spread evenly over the iteration. */
#ifndef IR_ROUTE_H
#define IR_ROUTE_H

#include "ir/ir.h"

struct ir_route {
    uint32_t pipelines;
    uint32_t stages;
    uint32_t microbatches;
    uint32_t *live_count; /* [stages] */
    uint32_t *live;       /* [stages * pipelines]: the live pipelines of a stage in order, live_count used */
    uint32_t *rank;       /* [stages * pipelines]: a worker's place among the live, or among the dead */
    bool *alive;          /* [stages * pipelines] */
};

/* `alive` as in ir_build. Errors: STAGE_LOST, MEMORY. On error nothing has to be closed. */
pawl_code ir_route_init(struct ir_route *route, const struct ir_plan *plan, const bool *alive,
                        struct pawl_error *e);
void ir_route_close(struct ir_route *route);

/* The pipeline whose worker executes (home, microbatch) at `stage`. */
uint32_t ir_route_host(const struct ir_route *route, uint32_t home, uint32_t stage, uint32_t microbatch);
/* Micro-batches of other pipelines that live worker (pipeline, stage) executes. */
uint32_t ir_route_guests(const struct ir_route *route, uint32_t pipeline, uint32_t stage);

#endif
