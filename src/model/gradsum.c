/* Implementation of model/gradsum.h. A contribution is scanned in blocks that stay in the first cache: a
 * block without anything unusual takes the vector path, any other is added number by number with the same
 * result for what is in range. What is not in range adds nothing, the footer tells of it. */
#include "model/gradsum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "model/kernels.h"

/* Floats a block: 8 KiB of them and 16 KiB of sums, within a 32 KiB first cache. */
#define BLOCK 2048u

/* All sums stay below 2^62 in size. */
#define RANGE_BITS 62

/* Beyond 2^149 a float has no more bits to give: its smallest difference is 2^-149. */
#define EXPONENT_MAX 149

#define FLOAT_INFINITY_BITS 0x7f800000u

size_t gradsum_bytes(enum gradsum_kind kind) {
    return kind == GRADSUM_FLOAT ? sizeof(float) : sizeof(int64_t);
}

uint64_t gradsum_words(enum gradsum_kind kind, uint64_t parameters) {
    return kind == GRADSUM_FLOAT ? (parameters + 1) / 2 : parameters;
}

void *gradsum_at(enum gradsum_kind kind, const int64_t *sums, uint64_t at) {
    return (uint8_t *)(uintptr_t)sums + at * gradsum_bytes(kind);
}

static int32_t ceil_log2(uint64_t n) {
    int32_t bits = 0;
    while (bits < 63 && ((uint64_t)1 << bits) < n) bits++;
    return bits;
}

int32_t gradsum_exponent_first(uint64_t contributions) { return RANGE_BITS - 10 - ceil_log2(contributions); }

int32_t gradsum_exponent(float peak, uint64_t contributions) {
    if (!(peak > 0) || !isfinite(peak)) return gradsum_exponent_first(contributions);
    int peak_exponent; /* peak < 2^peak_exponent */
    (void)frexpf(peak, &peak_exponent);
    int32_t exponent = RANGE_BITS - 16 - ceil_log2(contributions) - peak_exponent;
    return exponent < EXPONENT_MAX ? exponent : EXPONENT_MAX;
}

static uint32_t add_slowly(int64_t *sum, const float *g, uint64_t count, double scale, double limit) {
    uint32_t flags = 0;
    for (uint64_t i = 0; i < count; i++) {
        double scaled = (double)g[i] * scale;
        if (!isfinite(g[i]))
            flags |= GRADSUM_PART_NONFINITE;
        else if (fabs(scaled) > limit)
            flags |= GRADSUM_PART_OVERFLOW;
        else
            sum[i] += llrint(scaled);
    }
    return flags;
}

struct scaling {
    int32_t exponent;
    uint64_t contributions;
};

static uint32_t put_part(int64_t *sum, const float *g, uint64_t count, struct scaling by, bool store) {
    const struct kernels *k = kernels_get();
    void (*put)(int64_t *, const float *, uint64_t, double) = store ? k->fixed_store : k->fixed_add;
    double scale = ldexp(1.0, by.exponent);
    double limit = ldexp(1.0, RANGE_BITS) / (double)by.contributions;
    double fast_limit = limit < 0x1p51 ? limit : 0x1p51 - 1;
    uint32_t flags = 0;
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        uint32_t bits = k->peak_bits(g + at, n);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        if (bits < FLOAT_INFINITY_BITS && (double)peak * scale <= fast_limit) {
            put(sum + at, g + at, n, scale);
            continue;
        }
        if (store) memset(sum + at, 0, n * sizeof *sum);
        flags |= add_slowly(sum + at, g + at, n, scale, limit);
    }
    return flags;
}

uint32_t gradsum_add_part(int64_t *sum, const float *g, uint64_t count, int32_t exponent,
                          uint64_t contributions) {
    return put_part(sum, g, count, (struct scaling){exponent, contributions}, false);
}

uint32_t gradsum_store_part(int64_t *sum, const float *g, uint64_t count, int32_t exponent,
                            uint64_t contributions) {
    return put_part(sum, g, count, (struct scaling){exponent, contributions}, true);
}

void gradsum_count(int64_t *footer, uint32_t flags) {
    footer[GRADSUM_NONFINITE] += (flags & GRADSUM_PART_NONFINITE) != 0;
    footer[GRADSUM_OVERFLOW] += (flags & GRADSUM_PART_OVERFLOW) != 0;
    footer[GRADSUM_COUNT]++;
}

void gradsum_add(int64_t *sum, const float *g, uint64_t count, int32_t exponent, uint64_t contributions,
                 int64_t *footer) {
    gradsum_count(footer, gradsum_add_part(sum, g, count, exponent, contributions));
}

void gradsum_add_float(float *sum, const float *g, uint64_t count) { kernels_get()->add(sum, g, count); }

void gradsum_store_float(float *sum, const float *g, uint64_t count) { kernels_get()->store(sum, g, count); }

bool gradsum_empty(enum gradsum_kind kind, const int64_t *sums, uint64_t parameters) {
    return sums[gradsum_words(kind, parameters) + GRADSUM_COUNT] == 0;
}

void gradsum_clear_empty(enum gradsum_kind kind, int64_t *sums, uint64_t parameters) {
    if (gradsum_empty(kind, sums, parameters))
        memset(sums, 0, gradsum_words(kind, parameters) * sizeof *sums);
}

void gradsum_add_loss(int64_t *footer, double loss, uint64_t contributions) {
    /* Clamped, not counted as overflow: a redo with other exponents could not help, and the loss is told, not
     * learned from. */
    double scaled = ldexp(loss, GRADSUM_LOSS_EXPONENT),
           limit = floor(ldexp(1.0, RANGE_BITS) / (double)contributions);
    if (!isfinite(loss))
        footer[GRADSUM_NONFINITE]++;
    else
        footer[GRADSUM_LOSS] += llrint(fmax(-limit, fmin(limit, scaled)));
}

double gradsum_loss(const int64_t *footer, uint64_t divisor) {
    return ldexp((double)footer[GRADSUM_LOSS], -GRADSUM_LOSS_EXPONENT) / (double)divisor;
}

void gradsum_merge(int64_t *a, const int64_t *b, uint64_t count) { kernels_get()->fixed_merge(a, b, count); }

void gradsum_mean(const int64_t *sum, float *out, uint64_t count, int32_t exponent, uint64_t divisor) {
    kernels_get()->fixed_mean(sum, out, count, ldexp(1.0, -exponent), (double)divisor);
}

void gradsum_mean_float(const float *sum, float *out, uint64_t count, uint64_t divisor) {
    kernels_get()->float_mean(sum, out, count, (float)divisor);
}

bool gradsum_finite(const float *g, uint64_t count) {
    return kernels_get()->peak_bits(g, count) < FLOAT_INFINITY_BITS;
}
