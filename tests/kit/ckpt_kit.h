/* Shared by the checkpoint tests: a small model whose every byte follows from (step, tensor, place), its
 * parts as pieces, and a check of what a set of stores gives back. */
#ifndef KIT_CKPT_KIT_H
#define KIT_CKPT_KIT_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/ckpt.h"

#define KIT_TENSORS 7u

struct kit_tensor {
    const char *name;
    enum pawl_dtype dtype;
    uint32_t rank;
    uint64_t shape[3];
};

static const struct kit_tensor kit_tensors[KIT_TENSORS] = {
    {"wte.weight", PAWL_F32, 2, {37, 33}}, {"h.0.attn.weight", PAWL_BF16, 3, {12, 16, 17}},
    {"h.0.ln.bias", PAWL_F64, 1, {13}},    {"flags", PAWL_BOOL, 1, {5}},
    {"step_count", PAWL_I64, 0, {0}},      {"empty", PAWL_F32, 2, {0, 8}},
    {"big", PAWL_F32, 2, {64, 64}},
};

static inline uint8_t kit_byte(uint64_t step, uint32_t tensor, uint64_t place) {
    uint64_t x = (step * 1000003u + tensor * 7919u + place / 8 + 1) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(x >> (8 * (place % 8)));
}

/* Bytes from..from+bytes-1 of the tensor. A word at a time: crash tests do this millions of times. */
static inline void kit_fill(uint8_t *out, uint64_t step, uint32_t tensor, uint64_t from, uint64_t bytes) {
    uint64_t i = 0;
    for (; i < bytes && (from + i) % 8 != 0; i++) out[i] = kit_byte(step, tensor, from + i);
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word = (step * 1000003u + tensor * 7919u + (from + i) / 8 + 1) * 0x9e3779b97f4a7c15u;
        memcpy(out + i, &word, 8); /* kit_byte counts from the low end, as this machine does */
    }
    for (; i < bytes; i++) out[i] = kit_byte(step, tensor, from + i);
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "kit_fill copies words");

static inline uint64_t kit_rows(uint32_t t) { return kit_tensors[t].rank == 0 ? 1 : kit_tensors[t].shape[0]; }

static inline uint64_t kit_row_bytes(uint32_t t) {
    uint64_t bytes = pawl_dtype_bits(kit_tensors[t].dtype) / 8;
    for (uint32_t i = 1; i < kit_tensors[t].rank; i++) bytes *= kit_tensors[t].shape[i];
    return bytes;
}

struct kit_rows { /* where a slice of rows keeps its numbers */
    uint64_t begin[8], extent[8];
};

/* Rows from..to-1 of `tensor`, at `data`. */
static inline struct pawl_tensor kit_slice(struct kit_rows *rows, struct pawl_tensor tensor, uint64_t from,
                                           uint64_t to, void *data) {
    for (uint32_t i = 0; i < tensor.rank; i++) {
        rows->begin[i] = i == 0 ? from : 0;
        rows->extent[i] = i == 0 ? to - from : tensor.shape[i];
    }
    tensor.begin = rows->begin;
    tensor.extent = rows->extent;
    tensor.data = data;
    return tensor;
}

static inline struct pawl_tensor kit_tensor(uint32_t t) {
    return (struct pawl_tensor){.name = kit_tensors[t].name,
                                .dtype = kit_tensors[t].dtype,
                                .rank = kit_tensors[t].rank,
                                .shape = kit_tensors[t].shape};
}

/* Of the slice. */
static inline uint64_t kit_bytes(const struct pawl_tensor *t) {
    uint64_t bytes = pawl_dtype_bits(t->dtype) / 8;
    for (uint32_t d = 0; d < t->rank; d++) bytes *= t->extent[d];
    return bytes;
}

struct kit_part { /* the tensors of part p of n, with memory of their own */
    struct pawl_tensor tensors[KIT_TENSORS];
    struct kit_rows rows[KIT_TENSORS];
    uint32_t count;
    uint8_t *memory[KIT_TENSORS];
    char blob[64];
};

/* Rows are dealt out as evenly as they go; a tensor of one row belongs to part 0. Addresses are odd on
 * purpose. */
static inline struct kit_part *kit_part_new(uint64_t step, uint32_t part, uint32_t part_count) {
    struct kit_part *p = calloc(1, sizeof *p);
    if (p == NULL) abort();
    for (uint32_t t = 0; t < KIT_TENSORS; t++) {
        uint64_t rows = kit_rows(t), begin = rows * part / part_count, end = rows * (part + 1) / part_count;
        if (rows <= 1) {
            begin = 0;
            end = part == 0 ? rows : 0;
        }
        if (rows <= 1 && part != 0) continue;
        uint64_t row_bytes = kit_row_bytes(t), bytes = (end - begin) * row_bytes;
        uint8_t *memory = malloc(bytes + 1 + t), *data = memory + t % 3;
        if (memory == NULL) abort();
        kit_fill(data, step, t, begin * row_bytes, bytes);
        p->memory[p->count] = memory;
        p->tensors[p->count] = kit_slice(&p->rows[p->count], kit_tensor(t), begin, end, data);
        p->count++;
    }
    snprintf(p->blob, sizeof p->blob, "{\"step\": %" PRIu64 ", \"part\": %u}", step, part);
    return p;
}

static inline void kit_part_free(struct kit_part *p) {
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->count; i++) free(p->memory[i]);
    free(p);
}

static inline struct ckpt_save kit_save(const struct kit_part *p, uint64_t step, uint32_t part,
                                        uint32_t part_count) {
    return (struct ckpt_save){.step = step,
                              .unit_count = 1,
                              .part = part,
                              .part_count = part_count,
                              .tensors = p->tensors,
                              .tensor_count = p->count,
                              .blob = p->blob,
                              .blob_bytes = strlen(p->blob)};
}

static inline struct ckpt_config kit_config(uint64_t incarnation, uint64_t resume_step, uint32_t n,
                                            uint32_t k) {
    struct ckpt_config c = {
        .incarnation = incarnation, .resume_step = resume_step, .in_flight = n, .keep = k};
    memcpy(c.run_id, "kit-run-12345678", CKPT_RUN_ID_BYTES);
    c.chunk_bytes = 2 * STORE_BLOCK;
    c.staging_bytes = 8 * STORE_BLOCK;
    return c;
}

/* Reads every tensor of the step at `index` and compares. OK, or the read's error; wrong bytes end the
 * process, since nothing may ever return them. */
static inline pawl_code kit_check_step(struct ckpt_set *set, uint32_t index, struct pawl_error *e) {
    uint64_t step = ckpt_set_at(set, index)->step;
    for (uint32_t t = 0; t < KIT_TENSORS; t++) {
        uint64_t rows = kit_rows(t), bytes = rows * kit_row_bytes(t);
        uint8_t *out = malloc(2 * bytes + 1), *wanted = out + bytes;
        if (out == NULL) abort();
        struct pawl_tensor want = kit_tensor(t);
        want.data = out;
        pawl_code code = ckpt_set_read(set, index, &want, e);
        kit_fill(wanted, step, t, 0, bytes);
        if (code == PAWL_OK && memcmp(out, wanted, bytes) != 0) {
            fprintf(stderr, "WRONG BYTES: step %" PRIu64 ", tensor %s\n", step, kit_tensors[t].name);
            abort();
        }
        free(out);
        if (code != PAWL_OK) return code;
    }
    const void *blob = NULL;
    size_t blob_bytes = 0;
    pawl_code code = ckpt_set_blob(set, index, 0, &blob, &blob_bytes, e);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "{\"step\": %" PRIu64 ", \"part\": 0}", step);
    if (code == PAWL_OK && (blob_bytes != strlen(wanted) || memcmp(blob, wanted, blob_bytes) != 0)) abort();
    return code;
}

/* The newest complete step that reads back whole; 0 when there is none. */
static inline uint64_t kit_newest(struct store *const *stores, uint32_t count, uint32_t *damaged) {
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    if (ckpt_set_open(stores, count, NULL, &set, &e) != PAWL_OK) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    uint64_t newest = 0;
    for (uint32_t i = 0; i < ckpt_set_count(set) && newest == 0; i++) {
        if (!ckpt_set_at(set, i)->complete) continue;
        if (kit_check_step(set, i, &e) == PAWL_OK)
            newest = ckpt_set_at(set, i)->step;
        else if (damaged != NULL)
            ++*damaged;
    }
    ckpt_set_close(set);
    return newest;
}

/* Polls until the oldest event is there. */
static inline struct ckpt_event kit_next(struct ckpt *c) {
    struct ckpt_event event;
    while (ckpt_poll(c, &event, 1) == 0) ckpt_wait(c, INT64_C(1000000000));
    return event;
}

static inline struct ckpt_event kit_wait(struct ckpt *c, struct store *s) {
    (void)s;
    return kit_next(c);
}

static inline int64_t kit_soon(void) { return clock_now_ns() + INT64_C(60000000000); }

#endif
