/* Tensors as pawl sees them: a name, a type, a global shape, and the slice of it that lies here in memory.
 *
 * A slice is a box: along each dimension the indices begin .. begin + extent - 1 of the global tensor. Its
 * elements lie in memory row-major (last dimension fastest), without gaps. Nothing here owns what it points
 * to. Source of the types: the safetensors format. */
#ifndef PAWL_TENSOR_H
#define PAWL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

enum pawl_dtype {
#define X(name, bits, text) PAWL_##name,
#include <pawl/dtype.def>
#undef X
    PAWL_DTYPE_COUNT
};

struct pawl_memory;

struct pawl_tensor {
    const char *name; /* UTF-8, 1 to 4096 bytes, unique in its state; not beginning with "__pawl_", not
                         "__metadata__" */
    enum pawl_dtype dtype;
    uint32_t rank;          /* number of dimensions, at most 64; 0 is a scalar */
    const uint64_t *shape;  /* [rank], of the global tensor; dimensions may be 0; unused for a scalar */
    const uint64_t *begin;  /* [rank], first index of the slice in each dimension; null: all 0 */
    const uint64_t *extent; /* [rank], size of the slice in each dimension; null: up to the end */
    void *data;             /* the slice's first element; a save only reads it */
    const struct pawl_memory *memory; /* kind of memory `data` is in; null: the process's own */
};

/* A copy under way between memory of some kind and the process's own. */
struct pawl_copy;

/* A kind of memory that the processor cannot read like its own (an accelerator's). pawl calls copy_out and
 * copy_in from a thread of its own, one call at a time per engine, many copies under way at once. */
struct pawl_memory {
    const char *name; /* for messages: "cuda:0" */
    void *context;    /* passed to each function */
    /* Begin copying `bytes` bytes from `source` (pawl_tensor.data plus an offset) to `target`, which stays
     * valid until the copy is done, then call pawl_copy_done(copy, ...) exactly once: from any thread, in any
     * order with other copies, also before copy_out returns. An error returned here means that nothing was
     * begun and pawl_copy_done will not be called. */
    pawl_code (*copy_out)(void *context, const void *source, void *target, size_t bytes,
                          struct pawl_copy *copy, struct pawl_error *e);
    /* The other way, for restores; null: tensors of this kind cannot be restored into. */
    pawl_code (*copy_in)(void *context, const void *source, void *target, size_t bytes,
                         struct pawl_copy *copy, struct pawl_error *e);
    /* Optional: prepare memory of the process's own for fast copies (pin it), and undo that. A failed pin is
     * no error: copies are only slower. */
    pawl_code (*pin)(void *context, void *base, size_t bytes);
    void (*unpin)(void *context, void *base, size_t bytes);
};

/* The copy has ended: PAWL_OK, or why it failed (the save or restore it belongs to fails with it). Thread:
 * any. */
void pawl_copy_done(struct pawl_copy *copy, pawl_code code);

/* Bits of one element (0 for an unknown type); name in safetensors files ("BF16"; null for an unknown type).
 */
uint32_t pawl_dtype_bits(enum pawl_dtype dtype);
const char *pawl_dtype_name(enum pawl_dtype dtype);

#endif
