/* Shared by the tests of boxes: tensors whose every element follows from their name, cut into boxes at
 * random, saved by several ranks into stores of a simulated disk, and a plain reference that takes elements
 * out one by one. */
#ifndef KIT_BOX_KIT_H
#define KIT_BOX_KIT_H

#include "base/rng.h"
#include "ckpt/box.h"
#include "kit/ckpt_kit.h"

#define BOX_KIT_RANKS   8u
#define BOX_KIT_TENSORS 12u
#define BOX_KIT_BOXES   600u
#define BOX_KIT_DIMS    6u

struct global {
    char name[16];
    enum pawl_dtype dtype;
    uint32_t rank;
    uint64_t shape[BOX_KIT_DIMS], zeros[BOX_KIT_DIMS];
    uint64_t elements, bytes;
    uint8_t *data;
};

struct piece { /* a box of one of them, in memory of its own */
    uint32_t global, rank;
    uint64_t begin[BOX_KIT_DIMS], extent[BOX_KIT_DIMS];
    uint64_t bytes;
    uint8_t *memory, *data;
};

struct world {
    struct global globals[BOX_KIT_TENSORS];
    uint32_t global_count;
    struct piece pieces[BOX_KIT_BOXES];
    uint32_t piece_count, rank_count;
    struct storesim *sim;
    struct store *stores[BOX_KIT_RANKS];
    struct rng_stream random;
};

/* ---- the reference ---- */

static inline void bits_copy(uint8_t *to, uint64_t to_bit, const uint8_t *from, uint64_t from_bit,
                             uint64_t bits) {
    for (uint64_t i = 0; i < bits; i++) {
        uint64_t f = from_bit + i, t = to_bit + i;
        uint8_t bit = (uint8_t)(from[f / 8] >> (f % 8) & 1);
        to[t / 8] = (uint8_t)((to[t / 8] & ~(1u << (t % 8))) | (unsigned)bit << (t % 8));
    }
}

/* The box's elements, row-major, one after the other. */
static inline void box_take(const struct global *g, const uint64_t *begin, const uint64_t *extent,
                            uint8_t *out) {
    uint64_t bits = pawl_dtype_bits(g->dtype), count = 1;
    for (uint32_t d = 0; d < g->rank; d++) count *= extent[d];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t rest = i, place = 0, step = 1;
        for (uint32_t d = g->rank; d-- > 0;) {
            place += (begin[d] + rest % extent[d]) * step;
            rest /= extent[d];
            step *= g->shape[d];
        }
        if (bits % 8 == 0)
            memcpy(out + i * bits / 8, g->data + place * bits / 8, bits / 8);
        else
            bits_copy(out, i * bits, g->data, place * bits, bits);
    }
}

static inline uint64_t box_bytes(const struct global *g, const uint64_t *extent) {
    uint64_t bits = pawl_dtype_bits(g->dtype);
    for (uint32_t d = 0; d < g->rank; d++) bits *= extent[d];
    return bits / 8;
}

/* ---- tensors and boxes ---- */

static inline struct global *add_global(struct world *w, enum pawl_dtype dtype, uint32_t rank,
                                        const uint64_t *shape) {
    struct global *g = &w->globals[w->global_count];
    snprintf(g->name, sizeof g->name, "g%u", w->global_count++);
    g->dtype = dtype;
    g->rank = rank;
    g->elements = 1;
    for (uint32_t d = 0; d < rank; d++) g->elements *= g->shape[d] = shape[d];
    g->bytes = g->elements * pawl_dtype_bits(dtype) / 8;
    g->data = malloc(g->bytes + 8);
    if (g->data == NULL) abort();
    struct rng_stream content = {rng_next(&w->random)};
    for (uint64_t i = 0; i < g->bytes; i++) g->data[i] = (uint8_t)rng_next(&content);
    return g;
}

static inline bool can_cut(const struct global *g, uint32_t d) {
    return g->shape[d] % box_grain(g->dtype, g->rank, g->shape, d) == 0;
}

static inline void add_box(struct world *w, uint32_t global, uint32_t rank, const uint64_t *begin,
                           const uint64_t *extent) {
    if (w->piece_count == BOX_KIT_BOXES) abort();
    struct piece *p = &w->pieces[w->piece_count++];
    const struct global *g = &w->globals[global];
    p->global = global;
    p->rank = rank;
    for (uint32_t d = 0; d < g->rank; d++) {
        p->begin[d] = begin[d];
        p->extent[d] = extent[d];
    }
    p->bytes = box_bytes(g, extent);
    p->memory = malloc(p->bytes + 4);
    if (p->memory == NULL) abort();
    p->data = p->memory + rng_below(&w->random, 4);
    box_take(g, begin, extent, p->data);
}

/* Cuts the box in two, at random, again and again; each part goes to a rank. */
static inline void scatter(struct world *w, uint32_t global, const uint64_t *begin, const uint64_t *extent,
                           uint32_t depth) {
    const struct global *g = &w->globals[global];
    uint32_t d = g->rank > 0 ? (uint32_t)rng_below(&w->random, g->rank) : 0;
    uint64_t grain = g->rank > 0 ? box_grain(g->dtype, g->rank, g->shape, d) : 1;
    if (depth == 0 || g->rank == 0 || rng_below(&w->random, 5) == 0 || !can_cut(g, d)) {
        add_box(w, global, (uint32_t)rng_below(&w->random, w->rank_count), begin, extent);
        return;
    }
    uint64_t first[BOX_KIT_DIMS], second[BOX_KIT_DIMS], middle[BOX_KIT_DIMS];
    for (uint32_t i = 0; i < g->rank; i++) {
        first[i] = second[i] = extent[i];
        middle[i] = begin[i];
    }
    first[d] = grain * rng_below(&w->random, extent[d] / grain + 1);
    second[d] = extent[d] - first[d];
    middle[d] = begin[d] + first[d];
    scatter(w, global, begin, first, depth - 1);
    scatter(w, global, middle, second, depth - 1);
}

/* A box at random, of whole bytes. */
static inline void random_box(struct world *w, const struct global *g, uint64_t *begin, uint64_t *extent) {
    for (uint32_t d = 0; d < g->rank; d++) {
        uint64_t grain = box_grain(g->dtype, g->rank, g->shape, d);
        begin[d] = 0;
        extent[d] = g->shape[d];
        if (!can_cut(g, d) || rng_below(&w->random, 3) == 0) continue;
        begin[d] = grain * rng_below(&w->random, g->shape[d] / grain + 1);
        extent[d] = grain * rng_below(&w->random, (g->shape[d] - begin[d]) / grain + 1);
    }
}

static inline struct pawl_tensor tensor_of(const struct global *g, const uint64_t *begin,
                                           const uint64_t *extent, void *data) {
    return (struct pawl_tensor){.name = g->name,
                                .dtype = g->dtype,
                                .rank = g->rank,
                                .shape = g->shape,
                                .begin = begin,
                                .extent = extent,
                                .data = data};
}

/* ---- saving and reading ---- */

static inline struct world *world_new(uint64_t seed, uint32_t rank_count) {
    struct world *w = calloc(1, sizeof *w);
    if (w == NULL) abort();
    w->random.state = seed;
    w->rank_count = rank_count;
    w->sim = storesim_new(seed);
    for (uint32_t r = 0; r < rank_count; r++) {
        char folder[16];
        snprintf(folder, sizeof folder, "r%u", r);
        if (storesim_open(w->sim, folder, false, &w->stores[r], NULL) != PAWL_OK) abort();
    }
    return w;
}

static inline void world_free(struct world *w) {
    for (uint32_t r = 0; r < w->rank_count; r++) store_close(w->stores[r]);
    storesim_free(w->sim);
    for (uint32_t i = 0; i < w->global_count; i++) free(w->globals[i].data);
    for (uint32_t i = 0; i < w->piece_count; i++) free(w->pieces[i].memory);
    free(w);
}

/* Rank `rank` saves its boxes as a part. */
static inline void save_rank(struct world *w, uint32_t rank, const struct ckpt_config *config,
                             uint64_t step) {
    struct pawl_tensor *tensors = calloc(BOX_KIT_BOXES, sizeof *tensors);
    struct pawl_error e = {0};
    struct ckpt *c = NULL;
    uint32_t count = 0;
    if (tensors == NULL) abort();
    for (uint32_t i = 0; i < w->piece_count; i++) {
        const struct piece *p = &w->pieces[i];
        if (p->rank == rank)
            tensors[count++] = tensor_of(&w->globals[p->global], p->begin, p->extent, p->data);
    }
    struct ckpt_save save = {.step = step,
                             .unit_count = 1,
                             .part = rank,
                             .part_count = w->rank_count,
                             .tensors = tensors,
                             .tensor_count = count};
    pawl_code code = ckpt_open(config, w->stores[rank], &c, &e);
    if (code == PAWL_OK) code = ckpt_save_begin(c, &save, &e);
    if (code == PAWL_OK) code = kit_wait(c, w->stores[rank]).code;
    if (code == PAWL_OK) code = ckpt_close(c, kit_soon(), &e);
    if (code != PAWL_OK) {
        fprintf(stderr, "save of rank %u: %s\n", rank, e.text);
        abort();
    }
    free(tensors);
}

static inline void save_all(struct world *w, uint64_t chunk_bytes) {
    struct ckpt_config config = kit_config(1, 0, 1, 2);
    config.chunk_bytes = chunk_bytes;
    for (uint32_t r = 0; r < w->rank_count; r++) save_rank(w, r, &config, 1);
}

#endif
