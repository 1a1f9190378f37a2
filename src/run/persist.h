/* A stage's version as checkpoint pieces, and back.
 *
 * Stored names: the tensor's own for the parameters, "exp_avg/NAME" and "exp_avg_sq/NAME" for the moments,
 * "exponent/NAME" (I32 scalar) for the gradient exponent. They know nothing of stages or ranks, so any cut
 * into stages can load them. The blob is JSON: {"step", "updates", "samples"}. A part of n takes its share
 * of all of them (ckpt_share_init), so each row is in exactly one part. */
#ifndef RUN_PERSIST_H
#define RUN_PERSIST_H

#include <stdatomic.h>

#include "ckpt/ckpt.h"
#include "model/stage.h"
#include "run/spec.h"

/* Memory of the engine for what cannot be written from its place: all of the model and no more, where that is
 * less than the engine's default. */
pawl_code persist_sizes(const struct spec *spec, struct ckpt_config *config, struct pawl_error *e);

/* Which part of a chunk a save writes; the engine's events carry `tag`. */
struct persist_part {
    uint32_t part, parts;
    uint64_t tag;
};
/* Start saving `version`; BUSY when the engine is full. The version must be held until the save is reported.
 */
pawl_code persist_save(struct ckpt *c, const struct spec *spec, const struct stage *stage,
                       const struct version *version, struct persist_part part, struct pawl_error *e);
/* Fill `version` of a stage from step `index` of the set. `progress` (may be null) grows as it gets on. */
pawl_code persist_load(struct ckpt_set *set, uint32_t index, const struct stage *stage,
                       struct version *version, _Atomic uint64_t *progress, struct pawl_error *e);
/* Place of a complete step in the set, or UINT32_MAX. */
uint32_t persist_find(const struct ckpt_set *set, uint64_t step, uint64_t incarnation);
/* SHA-256 over name (with its terminating 0) and float32 bytes of every tensor of the whole model, canonical
 * order; export_dir not empty: also written there for transformers (UNSUPPORTED: not a GPT). */
pawl_code persist_digest(struct ckpt_set *set, uint32_t index, const struct spec *spec,
                         const char *export_dir, char digest[65], struct pawl_error *e);

#endif
