/* The state that the guest's writer saves: every byte, and every shape, follows from (seed, step), so that a
 * checker that knows only the seed can tell what each step must hold, after any number of power cuts.
 *
 * Sizes are odd and change with the step: slots that are used again grow and shrink. */
#ifndef GUEST_STATE_H
#define GUEST_STATE_H

#include "kit/ckpt_kit.h"

#define STATE_TENSORS 6u
#define STATE_BLOB    96u

struct state_tensor {
    const char *name;
    enum pawl_dtype dtype;
    uint32_t rank;
    uint64_t shape[3];
};

/* The tensors of a step. About 0.9 MB. */
static inline void state_shapes(uint64_t step, struct state_tensor out[STATE_TENSORS]) {
    const struct state_tensor all[STATE_TENSORS] = {
        {"wte.weight", PAWL_F32, 2, {211 + step % 7 * 13, 257}},
        {"h.0.attn.weight", PAWL_BF16, 3, {5 + step % 3, 31, 701}},
        {"h.0.mlp.weight", PAWL_F32, 2, {64, 1024}}, /* whole pages: written from where it lies */
        {"h.0.ln.bias", PAWL_F64, 1, {13 + step % 2}},
        {"mask", PAWL_BOOL, 1, {5 + step % 11}},
        {"step_count", PAWL_I64, 0, {0}},
    };
    memcpy(out, all, sizeof all);
}

static inline uint64_t state_rows(const struct state_tensor *t) { return t->rank == 0 ? 1 : t->shape[0]; }

static inline uint64_t state_row_bytes(const struct state_tensor *t) {
    uint64_t bytes = pawl_dtype_bits(t->dtype) / 8;
    for (uint32_t i = 1; i < t->rank; i++) bytes *= t->shape[i];
    return bytes;
}

static inline struct pawl_tensor state_view(const struct state_tensor *t) {
    return (struct pawl_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank, .shape = t->shape};
}

/* Bytes from..from+bytes-1 of tensor t. */
static inline void state_fill(uint8_t *out, uint64_t seed, uint64_t step, uint32_t t, uint64_t from,
                              uint64_t bytes) {
    kit_fill(out, step + (seed << 40), t, from, bytes);
}

static inline void state_blob(char out[STATE_BLOB], uint64_t seed, uint64_t step) {
    snprintf(out, STATE_BLOB, "{\"seed\": %" PRIu64 ", \"step\": %" PRIu64 "}", seed, step);
}

struct state_part { /* the rows that one rank saves */
    struct state_tensor shapes[STATE_TENSORS];
    struct pawl_tensor tensors[STATE_TENSORS];
    struct kit_rows rows[STATE_TENSORS];
    uint32_t count;
    uint8_t *memory[STATE_TENSORS];
    size_t bytes[STATE_TENSORS];
    char blob[STATE_BLOB];
};

/* Odd tensors lie at odd addresses, the others on whole pages. */
static inline struct state_part *state_part_new(uint64_t seed, uint64_t step, uint32_t part,
                                                uint32_t part_count) {
    struct state_part *p = calloc(1, sizeof *p);
    if (p == NULL) abort();
    state_shapes(step, p->shapes);
    for (uint32_t i = 0; i < STATE_TENSORS; i++) {
        const struct state_tensor *t = &p->shapes[i];
        uint64_t rows = state_rows(t), begin = rows * part / part_count;
        uint64_t end = rows * (part + 1) / part_count, row_bytes = state_row_bytes(t);
        if (begin == end) continue;
        uint32_t at = p->count++;
        p->bytes[at] = (end - begin) * row_bytes + 1;
        p->memory[at] = mem_alloc(p->bytes[at]);
        if (p->memory[at] == NULL) abort();
        uint8_t *data = p->memory[at] + i % 2;
        state_fill(data, seed, step, i, begin * row_bytes, (end - begin) * row_bytes);
        p->tensors[at] = kit_slice(&p->rows[at], state_view(t), begin, end, data);
    }
    state_blob(p->blob, seed, step);
    return p;
}

static inline void state_part_free(struct state_part *p) {
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->count; i++) mem_free(p->memory[i], p->bytes[i]);
    free(p);
}

/* Reads a tensor of the step at `index` whole and compares; CORRUPT when a byte differs. */
static inline pawl_code state_check_tensor(struct ckpt_set *set, uint32_t index, uint64_t seed,
                                           const struct state_tensor *tensors, uint32_t t,
                                           uint64_t *bytes_read, struct pawl_error *e) {
    uint64_t step = ckpt_set_at(set, index)->step, rows = state_rows(&tensors[t]);
    uint64_t bytes = rows * state_row_bytes(&tensors[t]);
    uint8_t *out = malloc(2 * bytes), *wanted = out + bytes;
    if (out == NULL) abort();
    memset(out, 0xaa, bytes);
    struct pawl_tensor want = state_view(&tensors[t]);
    want.data = out;
    pawl_code code = ckpt_set_read(set, index, &want, e);
    state_fill(wanted, seed, step, t, 0, bytes);
    for (uint64_t i = 0; i < bytes && code == PAWL_OK; i++)
        if (out[i] != wanted[i])
            code = error_set(e, PAWL_CORRUPT, 0,
                             "WRONG BYTES: step %" PRIu64 ", tensor %s, byte %" PRIu64
                             ": wanted 0x%02x, had 0x%02x",
                             step, tensors[t].name, i, wanted[i], out[i]);
    free(out);
    *bytes_read += bytes;
    return code;
}

/* Everything that the step at `index` holds is what its seed and number say, and nothing else is there. */
static inline pawl_code state_check(struct ckpt_set *set, uint32_t index, uint64_t seed, uint64_t *bytes_read,
                                    struct pawl_error *e) {
    struct state_tensor tensors[STATE_TENSORS];
    uint64_t step = ckpt_set_at(set, index)->step;
    state_shapes(step, tensors);
    uint32_t count = ckpt_set_tensor_count(set, index);
    if (count != STATE_TENSORS)
        return error_set(e, PAWL_CORRUPT, 0, "step %" PRIu64 ": wanted %u tensors, had %u", step,
                         STATE_TENSORS, count);
    for (uint32_t t = 0; t < STATE_TENSORS; t++) {
        pawl_code code = state_check_tensor(set, index, seed, tensors, t, bytes_read, e);
        if (code != PAWL_OK) return code;
    }
    const void *blob = NULL;
    size_t bytes = 0;
    char wanted[STATE_BLOB];
    pawl_code code = ckpt_set_blob(set, index, 0, &blob, &bytes, e);
    if (code != PAWL_OK) return code;
    state_blob(wanted, seed, step);
    if (bytes == strlen(wanted) && memcmp(blob, wanted, bytes) == 0) return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0, "WRONG BLOB: step %" PRIu64 ": wanted %s, had %.*s", step, wanted,
                     (int)bytes, (const char *)blob);
}

#endif
