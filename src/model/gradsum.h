/* Sums of gradients that do not depend on who adds what in which order: 64-bit fixed point.
 *
 * Tensor t of a stage has an exponent x_t; a contribution g is added as llrint(g * 2^x_t). Integer
 * addition is associative, so any routing, any order and any grouping over workers gives the same
 * bits (promise 3). Range: a contribution is accepted up to 2^(62 - x_t) / contributions; beyond, the
 * overflow count rises, and a NaN or infinity raises the non-finite count. Both are sums too, hence
 * equal everywhere. Exponents for step k+1 come from the largest reduced gradient of step k
 * (gradsum_exponent), are part of the versioned state, and are lowered by `shift` when a step is
 * redone because of overflow. Cost: about 0.45 ns per parameter and micro-batch. Thread: caller's.
 *
 * Plain float sums are the other kind, for comparison and for those who need no equal bits: half the
 * memory, no exponents; the result depends on who added what in which order, and what is not finite stays in
 * the sums instead of being counted.
 * Tested in tests/unit/model_gradsum_test.c. */
#ifndef MODEL_GRADSUM_H
#define MODEL_GRADSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gradsum_kind { GRADSUM_EXACT, GRADSUM_FLOAT, GRADSUM_KIND_COUNT };

/* A stage's sums lie in one array of 64-bit words: those of the parameters, one a word or two, then the
 * footer. */
uint64_t gradsum_words(enum gradsum_kind kind, uint64_t parameters);
size_t gradsum_bytes(enum gradsum_kind kind); /* of one parameter's sum */
/* The sum of parameter `at`. */
void *gradsum_at(enum gradsum_kind kind, const int64_t *sums, uint64_t at);

/* Words after the parameter sums of a stage; summed over workers like them. */
enum gradsum_footer {
    GRADSUM_LOSS, /* sum over micro-batches of mean loss, fixed point with exponent GRADSUM_LOSS_EXPONENT */
    GRADSUM_NONFINITE, /* contributions with a NaN or infinity */
    GRADSUM_OVERFLOW,  /* contributions out of range */
    GRADSUM_COUNT,     /* tensor contributions added: checks that each came exactly once */
    GRADSUM_FOOTER_WORDS
};
#define GRADSUM_LOSS_EXPONENT 40

/* Exponent before any gradient is known, for `contributions` = micro-batches of the global batch (twice
 * that for a tensor with two uses): accepts |g| < 2^10. */
int32_t gradsum_exponent_first(uint64_t contributions);
/* Exponent that leaves a factor of 2^16 above largest |mean gradient| `peak` (0: the first exponent). */
int32_t gradsum_exponent(float peak, uint64_t contributions);

/* sum[i] += round(g[i] * 2^exponent); updates footer[NONFINITE, OVERFLOW, COUNT]. */
void gradsum_add(int64_t *sum, const float *g, uint64_t count, int32_t exponent, uint64_t contributions,
                 int64_t *footer);
/* The same in parts, for a gradient that is made slice by slice: flags of all parts are or-ed and counted
 * once. A number out of range adds nothing. */
enum gradsum_part { GRADSUM_PART_NONFINITE = 1, GRADSUM_PART_OVERFLOW = 2 };
uint32_t gradsum_add_part(int64_t *sum, const float *g, uint64_t count, int32_t exponent,
                          uint64_t contributions);
void gradsum_count(int64_t *footer, uint32_t flags);

/* sum[i] += g[i] */
void gradsum_add_float(float *sum, const float *g, uint64_t count);

/* What adding to sums of 0 makes of them, without reading them. */
uint32_t gradsum_store_part(int64_t *sum, const float *g, uint64_t count, int32_t exponent,
                            uint64_t contributions);
void gradsum_store_float(float *sum, const float *g, uint64_t count);

/* Was nothing counted in the footer yet? Then there are no sums: the words of the parameters may be anything,
 * and the first contribution is stored. */
bool gradsum_empty(enum gradsum_kind kind, const int64_t *sums, uint64_t parameters);
/* Sums of 0 where there are none yet: before they are read, or only some are added to. */
void gradsum_clear_empty(enum gradsum_kind kind, int64_t *sums, uint64_t parameters);

/* Adds one micro-batch's mean loss, at most 2^22 / contributions (a NaN or an infinity is counted instead);
 * gradsum_loss is the mean over `divisor` of them. */
void gradsum_add_loss(int64_t *footer, double loss, uint64_t contributions);
double gradsum_loss(const int64_t *footer, uint64_t divisor);

/* a[i] += b[i] */
void gradsum_merge(int64_t *a, const int64_t *b, uint64_t count);
/* out[i] = sum[i] * 2^-exponent / divisor, rounded once to float. */
void gradsum_mean(const int64_t *sum, float *out, uint64_t count, int32_t exponent, uint64_t divisor);
/* out[i] = sum[i] / divisor */
void gradsum_mean_float(const float *sum, float *out, uint64_t count, uint64_t divisor);
/* Are all of them numbers? */
bool gradsum_finite(const float *g, uint64_t count);

#endif
