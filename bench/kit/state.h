/* A training state to save: named float32 tensors lying back to back in one block, as version buffers do.
 * Read from a list that the peers read too ({"tensors": [{"name": ..., "shape": [...]}, ...]}), or one tensor
 * of a given size.
 */
#ifndef KIT_STATE_H
#define KIT_STATE_H

#include <pawl/tensor.h>

struct state {
    struct pawl_tensor *tensors; /* their data points into the first version */
    uint64_t *shapes;
    char **names;
    uint64_t *offsets; /* of each tensor in a version, in bytes */
    uint32_t count;
    uint64_t bytes;
    void **versions; /* page-aligned, filled with noise */
    uint32_t version_count;
};

void state_read(struct state *s, const char *path);
void state_flat(struct state *s, uint64_t bytes);
/* Memory for the versions; every page is touched. */
void state_allocate(struct state *s, uint32_t version_count);
/* Addresses of the tensors of a version: data[count]. */
void state_addresses(const struct state *s, uint32_t version, void **data);
void state_close(struct state *s);

#endif
