/* Implementation of model/kernels.h: which table this processor can run. */
#include "model/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "model/kernels_private.h"

const struct kernels *kernels_at(uint32_t n) {
    const struct kernels *usable[3];
    uint32_t count = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("fma"))
        usable[count++] = &kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable[count++] = &kernels_avx2;
#endif
    usable[count++] = &kernels_generic;
    return n < count ? usable[n] : NULL;
}

const struct kernels *kernels_get(void) {
    const char *asked = getenv("PAWL_KERNELS");
    for (uint32_t i = 0; asked != NULL && kernels_at(i) != NULL; i++)
        if (strcmp(kernels_at(i)->name, asked) == 0) return kernels_at(i);
    return kernels_at(0);
}
