/* Tensors cut into boxes that fit into memory, names chosen by patterns, and floating-point elements as
 * numbers.
 *
 * A box is what the reader takes: whole in the last dimensions, a range in one, one index in those before it.
 * Such boxes, one after the other, are the tensor's bytes in order. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/box.h"
#include "inspect/inspect.h"

uint64_t inspect_elements(const struct pawl_tensor *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->rank; d++) n *= t->shape[d];
    return n;
}

pawl_code inspect_tensor_bytes(const struct pawl_tensor *t, uint64_t *bytes, struct pawl_error *e) {
    uint64_t bits = pawl_dtype_bits(t->dtype);
    *bytes = 0;
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->shape[d] == 0) return PAWL_OK;
    bool good = true;
    for (uint32_t d = 0; d < t->rank && good; d++) good = mem_mul(bits, t->shape[d], &bits);
    *bytes = bits / 8;
    return good && bits % 8 == 0
               ? PAWL_OK
               : error_set(e, PAWL_CORRUPT, 0, "tensor '%.200s': its shape is beyond any file", t->name);
}

bool inspect_same_type(const struct pawl_tensor *a, const struct pawl_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* The dimension along which to cut: the first one of which `grain` indices fit into `most` elements; *inner
 * is what one index of it holds. Where elements share bytes only whole bytes are cut off. */
static uint32_t cut_dimension(const struct pawl_tensor *t, uint64_t most, uint64_t *inner, uint64_t *grain) {
    *inner = inspect_elements(t);
    for (uint32_t d = 0;; d++) {
        *inner /= t->shape[d];
        *grain = box_grain(t->dtype, t->rank, t->shape, d);
        bool deeper = d + 1 < t->rank && box_grain(t->dtype, t->rank, t->shape, d) == 1;
        if (*inner <= most / *grain || !deeper) return d;
    }
}

bool inspect_piece_at(const struct pawl_tensor *t, uint64_t first, uint64_t most, struct inspect_piece *out) {
    uint64_t total = inspect_elements(t), bits = pawl_dtype_bits(t->dtype);
    if (first >= total || bits == 0) return false;
    *out = (struct inspect_piece){.first = first, .elements = 1};
    uint64_t limit = most * 8 / bits, inner = 1, grain = 1;
    uint32_t cut = t->rank > 0 ? cut_dimension(t, limit, &inner, &grain) : 0;
    uint64_t rest = first, size = total;
    for (uint32_t d = 0; d < t->rank; d++) {
        size /= t->shape[d];
        out->begin[d] = rest / size;
        rest %= size;
        out->extent[d] = d > cut ? t->shape[d] : 1;
        if (d == cut) {
            uint64_t fit = limit / inner / grain * grain, left = t->shape[d] - out->begin[d];
            if (fit < grain) fit = grain;
            if (t->shape[d] % grain != 0) fit = left; /* it ends within a byte: only whole */
            out->extent[d] = fit < left ? fit : left;
        }
        out->elements *= out->extent[d];
    }
    out->bytes = out->elements * bits / 8;
    return true;
}

bool inspect_reserve(struct inspect_room *room, uint64_t bytes) {
    if (room->bytes >= bytes) return true;
    inspect_room_close(room);
    room->data = mem_alloc(bytes);
    room->bytes = room->data != NULL ? bytes : 0;
    return room->data != NULL;
}

void inspect_room_close(struct inspect_room *room) {
    mem_free(room->data, room->bytes);
    *room = (struct inspect_room){0};
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
    switch (dtype) {
    case PAWL_F8_E5M2:
    case PAWL_F8_E4M3:
    case PAWL_F16:
    case PAWL_BF16:
    case PAWL_F32:
    case PAWL_F64:
    case PAWL_F8_E8M0:
    case PAWL_F4:
    case PAWL_F6_E2M3:
    case PAWL_F6_E3M2:
    case PAWL_F8_E4M3FNUZ:
    case PAWL_F8_E5M2FNUZ:
    case PAWL_C64:
        return true;
    default:
        return false;
    }
}

uint64_t inspect_element_bits(enum pawl_dtype dtype, const uint8_t *data, uint64_t index) {
    uint32_t bits = pawl_dtype_bits(dtype);
    uint64_t value = 0, at = index * bits;
    if (bits >= 8) {
        memcpy(&value, data + at / 8, bits / 8); /* little-endian, as the file */
        return value;
    }
    for (uint32_t i = 0; i < bits; i++, at++) value |= (uint64_t)(data[at / 8] >> at % 8 & 1) << i;
    return value;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they lie");

/* Sign, exponent, mantissa; every pattern is a number. */
struct layout {
    uint32_t exponent_bits, mantissa_bits;
    int bias;
};

static double finite_of(uint64_t bits, struct layout l) {
    uint64_t mantissa = bits & ((UINT64_C(1) << l.mantissa_bits) - 1);
    uint64_t exponent = bits >> l.mantissa_bits & ((UINT64_C(1) << l.exponent_bits) - 1);
    double sign = bits >> (l.exponent_bits + l.mantissa_bits) & 1 ? -1.0 : 1.0;
    if (exponent == 0) return sign * ldexp((double)mantissa, 1 - l.bias - (int)l.mantissa_bits);
    mantissa |= UINT64_C(1) << l.mantissa_bits;
    return sign * ldexp((double)mantissa, (int)exponent - l.bias - (int)l.mantissa_bits);
}

/* As IEEE 754 has it: the largest exponent is infinity or no number. */
static double ieee_of(uint64_t bits, struct layout l) {
    uint64_t mantissa = bits & ((UINT64_C(1) << l.mantissa_bits) - 1),
             top = (UINT64_C(1) << l.exponent_bits) - 1;
    if ((bits >> l.mantissa_bits & top) != top) return finite_of(bits, l);
    if (mantissa != 0) return NAN;
    return bits >> (l.exponent_bits + l.mantissa_bits) & 1 ? -INFINITY : INFINITY;
}

/* Sources: OCP 8-bit floating point 1.0 (E5M2, E4M3 without infinities), OCP microscaling 1.0 (E8M0, FP6,
 * FP4), and the "fnuz" variants, whose only special pattern is that of minus zero. */
double inspect_float_at(enum pawl_dtype dtype, const uint8_t *data, uint64_t index) {
    uint64_t bits = inspect_element_bits(dtype, data, index);
    float single;
    double number;
    switch (dtype) {
    case PAWL_F8_E5M2:
        return ieee_of(bits, (struct layout){5, 2, 15});
    case PAWL_F8_E4M3:
        return (bits & 0x7f) == 0x7f ? NAN : finite_of(bits, (struct layout){4, 3, 7});
    case PAWL_F16:
        return ieee_of(bits, (struct layout){5, 10, 15});
    case PAWL_BF16:
        return ieee_of(bits, (struct layout){8, 7, 127});
    case PAWL_F8_E8M0:
        return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
    case PAWL_F4:
        return finite_of(bits, (struct layout){2, 1, 1});
    case PAWL_F6_E2M3:
        return finite_of(bits, (struct layout){2, 3, 1});
    case PAWL_F6_E3M2:
        return finite_of(bits, (struct layout){3, 2, 3});
    case PAWL_F8_E4M3FNUZ:
        return bits == 0x80 ? NAN : finite_of(bits, (struct layout){4, 3, 8});
    case PAWL_F8_E5M2FNUZ:
        return bits == 0x80 ? NAN : finite_of(bits, (struct layout){5, 2, 16});
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

double inspect_distance(enum pawl_dtype dtype, const uint8_t *a, const uint8_t *b, uint64_t index) {
    enum pawl_dtype part = dtype == PAWL_C64 ? PAWL_F32 : dtype;
    uint64_t parts = dtype == PAWL_C64 ? 2 : 1;
    double distances[2] = {0, 0};
    for (uint64_t i = 0; i < parts; i++) {
        double x = inspect_float_at(part, a, parts * index + i),
               y = inspect_float_at(part, b, parts * index + i);
        if (isnan(x) || isnan(y)) return NAN;
        distances[i] = x == y ? 0 : fabs(x - y); /* equal infinities, and 0 beside -0 */
    }
    return parts == 1 ? distances[0] : hypot(distances[0], distances[1]);
}
