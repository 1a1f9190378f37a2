/* Dropout masks of the GPT. A mask is never stored: it is drawn again wherever it is needed, keyed by what is
 * computed and not by who computes it. */
#include "base/rng.h"
#include "model/gpt_private.h"

/* Tells these draws from any other made with the same seed. */
#define DROP_DOMAIN 0x64726f706f757400u /* "dropout\0" */

static uint64_t low64(struct rng_block b) { return (uint64_t)b.v[1] << 32 | b.v[0]; }

uint64_t gpt_drop_key(const struct gpt *m, const struct gpt_slot *slot, uint32_t layer, enum gpt_drop which) {
    uint64_t batch_key =
        low64(rng_philox(m->config.seed ^ DROP_DOMAIN, slot->base.step, slot->base.microbatch));
    return low64(rng_philox(batch_key, (uint64_t)m->part.first_layer + layer, (uint64_t)which));
}

void gpt_drop_rows(const struct gpt *m, const struct gpt_slot *slot, uint32_t layer, enum gpt_drop which,
                   float *x) {
    if (m->config.dropout > 0)
        m->k->dropout(x, m->rows * m->config.width, 0, gpt_drop_key(m, slot, layer, which),
                      m->config.dropout);
}
