/* The tables that exist; which of them a processor can run is known to kernels.c alone. */
#ifndef MODEL_KERNELS_PRIVATE_H
#define MODEL_KERNELS_PRIVATE_H

#include "model/kernels.h"

extern const struct kernels kernels_generic;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif

#endif
