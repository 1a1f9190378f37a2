/* Kinds of memory that pawl brings along, for pawl_tensor.memory.
 *
 * Strided: a tensor of the process's own memory whose elements do not lie row-major without gaps: transposed,
 * channels last, a column of something larger. It is saved and restored in row-major order, as if it were
 * dense: what is stored does not tell how it lay, and another start may lay it out differently. No copy of
 * the whole is made: chunks are gathered into the staging memory (in which any tensor is captured), or
 * scattered out of it.
 *
 *   struct pawl_tensor t = {.name = "w", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = first};
 *   struct pawl_strided *s;
 *   pawl_strided_new(&t, (int64_t[]){1, rows}, &s, &e);      t.data, t.memory: now those of the kind
 *   pawl_ckpt_declare(c, &t, 1, &state, &e);                 also to be read into: pawl_ckpt_reader_read
 *   ...
 *   pawl_ckpt_close(c, PAWL_FOREVER, &e);
 *   pawl_strided_free(s);
 *
 * How strides meet an address plus an offset: t.data becomes a window, a range of addresses without memory,
 * as long as the dense tensor would be. An offset into it counts bytes of the row-major order; a use of it
 * other than through the kind is a fault of the processor. Implemented in src/saver/strided.c, tested in
 * tests/unit/saver_strided_test.c. */
#ifndef PAWL_MEMORY_H
#define PAWL_MEMORY_H

#include <pawl/tensor.h>

struct pawl_strided;

/* `tensor`: as dense, with `data` at the element of index 0, ..., 0 of its slice; `strides` [rank], in
 * elements, may be negative. On OK `data` and `memory` of it are replaced, and valid until pawl_strided_free;
 * it keeps nothing else of the tensor. The elements stay the caller's and must live as long as saves and
 * reads of it. In pawl_ckpt_save.data it goes by the new `data`. Errors: ARGUMENT (elements that overlap, or
 * may; a type of less than a byte; a tensor that has a kind already), MEMORY. Threads: any; several copies
 * may go on at once. */
pawl_code pawl_strided_new(struct pawl_tensor *tensor, const int64_t *strides, struct pawl_strided **out,
                           struct pawl_error *e);
/* When nothing saves it or reads into it any more. Accepts null. */
void pawl_strided_free(struct pawl_strided *s);

#endif
