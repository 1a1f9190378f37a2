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

/* CUDA: tensors in the memory of an NVIDIA device, dense, that its runtime (libcudart, version 11 to 13)
 * copies. pawl is not built against it: the library is looked for when a device is opened. Copies run on a
 * stream of their own, into staging memory that is pinned, and end when an event behind them does: a save
 * waits for no copy, and the device computes on. What the caller's stream still computes has to be over
 * first:
 *
 *   pawl_cuda_open(NULL, 0, &cuda, &e);
 *   t.data = device_address;  t.memory = pawl_cuda_memory(cuda);
 *   ...
 *   pawl_cuda_follow(cuda, stream, &e);     before each save and resume: behind all that is queued there now
 *   pawl_ckpt_save(c, &save, &id, &e);      fence before the device changes the tensors, as with any memory
 *   ...
 *   pawl_ckpt_close(c, PAWL_FOREVER, &e);
 *   pawl_cuda_close(cuda);
 *
 * Implemented in src/saver/cuda.c; tested in tests/unit/saver_cuda_test.c against a libcudart of the tests
 * (tests/kit/fake_cudart.c), which says in what order and with which errors things end. */
struct pawl_cuda;

/* `library`: path of libcudart; null: one that the process has loaded already, else the system's. Errors:
 * UNSUPPORTED (no such library, one of another version, no device or driver), ARGUMENT (no device of that
 * number), MEMORY, IO. The calling thread's current device stays what it was; so for the other calls. */
pawl_code pawl_cuda_open(const char *library, int device, struct pawl_cuda **out, struct pawl_error *e);
/* For pawl_tensor.memory; valid until pawl_cuda_close. Its copies end with IO when the device reports an
 * error. */
const struct pawl_memory *pawl_cuda_memory(const struct pawl_cuda *c);
/* Copies begun from now on wait for what is queued on `stream` (a cudaStream_t of the device; null: the
 * default one) now. Does not block. Errors: IO, MEMORY. Threads: any. */
pawl_code pawl_cuda_follow(struct pawl_cuda *c, void *stream, struct pawl_error *e);
/* Waits for copies under way. When no pawl_ckpt or reader uses its memory any more. Accepts null. */
void pawl_cuda_close(struct pawl_cuda *c);

#endif
