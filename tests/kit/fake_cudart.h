/* What tests tell the libcudart of fake_cudart.c, and ask it. Found by dlsym in the library: no test links
 * it. */
#ifndef KIT_FAKE_CUDART_H
#define KIT_FAKE_CUDART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_cuda_state {
    uint32_t streams, events;      /* that live */
    uint32_t registered, pageable; /* regions pinned now; copies from or to memory that was not */
    uint32_t copies, wrong_device; /* done; calls on a stream or event of another than the current device */
    uint32_t under_way, most;      /* copies, now and at most */
    int device;                    /* the calling thread's current one */
};

/* Memory of the device: addresses that a processor's load from ends the test; and what stands for it. */
typedef void *fake_cuda_malloc_function(size_t bytes);
typedef void *fake_cuda_bytes_function(void *address);
/* Memory of the processor counts as the device's from now on, without that protection. */
typedef void fake_cuda_adopt_function(void *address, size_t bytes);
/* Queue: the device sets `bytes` bytes at `address` to `value`. */
typedef void fake_cuda_set_function(void *stream, void *address, int value, size_t bytes);
/* While held, streams carry out nothing. Null: all streams. */
typedef void fake_cuda_hold_function(void *stream, bool held);
/* The call number `after` from now (0: the next) of the function `name` ("MemcpyAsync") returns `error`,
 * once. With the name "device": everything does, from the copy number `after` on, for ever. */
typedef void fake_cuda_fail_function(const char *name, int error, uint32_t after);
typedef struct fake_cuda_state fake_cuda_state_function(void);
/* Everything as at the beginning: the failures, the version (`version`), the number of devices. */
typedef void fake_cuda_reset_function(int version, int devices);

#endif
