/* Tensors cut into boxes that fit into memory, names chosen by patterns, and floating-point elements as
 * numbers.
 *
 * A box is what the reader takes: whole in the last dimensions, a range in one, one index in those before it.
 * Such boxes, one after the other, are the tensor's bytes in order. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "inspect/inspect.h"

uint64_t inspect_elements(const struct pawl_tensor *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
    return n;
}

pawl_code inspect_tensor_bytes(const struct pawl_tensor *t, uint64_t *bytes, struct pawl_error *e) {
    *bytes = pawl_dtype_bits(t->dtype) / 8;
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->shape[d] == 0) return *bytes = 0, PAWL_OK;
    for (uint32_t d = 0; d < t->rank; d++)
        if (!mem_mul(*bytes, t->shape[d], bytes))
            return error_set(e, PAWL_CORRUPT, 0, "tensor '%.200s': its shape is beyond any file", t->name);
    return PAWL_OK;
}

bool inspect_same_type(const struct pawl_tensor *a, const struct pawl_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* The dimension along which to cut: the first one whose single index fits into `most` elements; *inner is
 * what one index of it holds. */
static uint32_t cut_dimension(const struct pawl_tensor *t, uint64_t most, uint64_t *inner) {
    *inner = inspect_elements(t);
    for (uint32_t d = 0; d < t->rank; d++) {
        *inner /= t->shape[d];
        if (*inner <= most || d + 1 == t->rank) return d;
    }
    return 0;
}

bool inspect_piece_at(const struct pawl_tensor *t, uint64_t first, uint64_t most, struct inspect_piece *out) {
    uint64_t total = inspect_elements(t), bytes = pawl_dtype_bits(t->dtype) / 8;
    if (first >= total || bytes == 0) return false;
    *out = (struct inspect_piece){.first = first, .elements = 1};
    uint64_t limit = most / bytes > 0 ? most / bytes : 1, inner = 1;
    uint32_t cut = t->rank > 0 ? cut_dimension(t, limit, &inner) : 0;
    uint64_t rest = first, size = total;
    for (uint32_t d = 0; d < t->rank; d++) {
        size /= t->shape[d];
        out->begin[d] = rest / size;
        rest %= size;
        out->extent[d] = d > cut ? t->shape[d] : 1;
        if (d == cut) {
            uint64_t fit = limit / inner > 0 ? limit / inner : 1, left = t->shape[d] - out->begin[d];
            out->extent[d] = fit < left ? fit : left;
        }
        out->elements *= out->extent[d];
    }
    out->bytes = out->elements * bytes;
    return true;
}

bool inspect_name_matches(const char *name, const char *const *patterns, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool glob = strpbrk(patterns[i], "*?[") != NULL;
        if (glob ? fnmatch(patterns[i], name, 0) == 0 : strncmp(name, patterns[i], strlen(patterns[i])) == 0)
            return true;
    }
    return false;
}

/* ---- numbers ---- */

bool inspect_dtype_is_float(enum pawl_dtype dtype) {
    return dtype == PAWL_F8_E5M2 || dtype == PAWL_F8_E4M3 || dtype == PAWL_F16 || dtype == PAWL_BF16 ||
           dtype == PAWL_F32 || dtype == PAWL_F64;
}

/* Sign, `exponent_bits` of exponent, `mantissa_bits` of mantissa, as IEEE 754 lays them out. */
static double small_float(uint32_t bits, uint32_t exponent_bits, uint32_t mantissa_bits) {
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1), top = (1u << exponent_bits) - 1;
    uint32_t exponent = bits >> mantissa_bits & top;
    int bias = (int)(top >> 1);
    double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1.0 : 1.0;
    if (exponent == top) return mantissa != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - (int)mantissa_bits);
    return sign * ldexp(mantissa + (1u << mantissa_bits), (int)exponent - bias - (int)mantissa_bits);
}

/* E4M3 as machine learning has it ("fn"): no infinities, all ones is the only NaN. */
static double e4m3(uint32_t bits) {
    if ((bits & 0x7f) == 0x7f) return NAN;
    if ((bits & 0x78) == 0x78) return (bits & 0x80 ? -1.0 : 1.0) * ldexp((bits & 7) + 8, 5);
    return small_float(bits, 4, 3);
}

static uint32_t two_bytes(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }

double inspect_float_at(enum pawl_dtype dtype, const uint8_t *data, uint64_t index) {
    float single;
    double number;
    switch (dtype) {
    case PAWL_F8_E5M2:
        return small_float(data[index], 5, 2);
    case PAWL_F8_E4M3:
        return e4m3(data[index]);
    case PAWL_F16:
        return small_float(two_bytes(data + 2 * index), 5, 10);
    case PAWL_BF16:
        return small_float(two_bytes(data + 2 * index), 8, 7);
    case PAWL_F32:
        memcpy(&single, data + 4 * index, sizeof single);
        return (double)single;
    case PAWL_F64:
        memcpy(&number, data + 8 * index, sizeof number);
        return number;
    default:
        return NAN;
    }
}
