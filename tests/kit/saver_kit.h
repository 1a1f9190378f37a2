/* Shared by the tests of the checkpointer: run folders, and a state whose every byte follows from (step,
 * tensor, global index), so that what is loaded can be judged without what was saved. */
#ifndef KIT_SAVER_KIT_H
#define KIT_SAVER_KIT_H

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pawl/ckpt.h>

#define SECOND 1000000000ll
/* Long enough for a busy machine; only a hang takes so long. */
static inline int64_t skit_soon(void) { return pawl_now() + 60 * SECOND; }

/* ---- folders ---- */

static inline char *skit_folder(void) {
    const char *base = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/pawl-saver-XXXXXX", base != NULL ? base : "/tmp") < 0 || mkdtemp(path) == NULL)
        abort();
    return path;
}

static inline int skit_remove_one(const char *path, const struct stat *st, int kind, struct FTW *f) {
    (void)st, (void)kind, (void)f;
    return remove(path);
}

static inline void skit_remove(char *path) {
    (void)nftw(path, skit_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

static inline void skit_join(char *out, size_t size, const char *folder, const char *name) {
    int n = snprintf(out, size, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= size) abort();
}

/* ---- a state: two matrices, a vector of halves, a scalar ---- */

#define SKIT_TENSORS 4u
static const char *const skit_names[SKIT_TENSORS] = {"w", "m", "h", "count"};
static const enum pawl_dtype skit_types[SKIT_TENSORS] = {PAWL_F32, PAWL_F64, PAWL_BF16, PAWL_I64};
static const uint32_t skit_ranks[SKIT_TENSORS] = {2, 2, 1, 0};
static const uint64_t skit_shapes[SKIT_TENSORS][2] = {{96, 50}, {24, 8}, {1001, 0}, {0, 0}};

struct skit_slice {
    uint64_t begin[2], extent[2];
};
struct skit_state {
    struct pawl_tensor tensors[SKIT_TENSORS];
    struct skit_slice slices[SKIT_TENSORS];
    uint32_t count;
    size_t bytes[SKIT_TENSORS];
};

static inline uint32_t skit_number(const char *name) {
    uint32_t t = 0;
    while (strcmp(skit_names[t], name) != 0) t++;
    return t;
}

static inline size_t skit_elements(const struct pawl_tensor *t) {
    size_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= (size_t)(t->extent != NULL ? t->extent[i] : t->shape[i]);
    return n;
}

/* Column c of row r of tensor t after `step` steps; a vector's elements are rows of one column. */
static inline uint8_t skit_byte(uint64_t step, uint32_t t, uint64_t r, uint64_t c, uint64_t byte) {
    uint64_t x = (step * 1000003u + t * 7919u + r * 131071u + c * 31u + byte + 1) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(x >> 56);
}

/* Fills (or, with `check`, compares; false: differs) one slice as of `step`. */
static inline bool skit_each(const struct pawl_tensor *t, uint64_t step, bool check) {
    uint32_t number = skit_number(t->name);
    size_t width = pawl_dtype_bits(t->dtype) / 8;
    uint64_t rows = t->rank > 0 ? t->extent[0] : 1, columns = t->rank > 1 ? t->extent[1] : 1;
    uint64_t row0 = t->rank > 0 ? t->begin[0] : 0, column0 = t->rank > 1 ? t->begin[1] : 0;
    uint8_t *at = t->data;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            for (size_t b = 0; b < width; b++, at++) {
                uint8_t value = skit_byte(step, number, row0 + r, column0 + c, b);
                if (!check)
                    *at = value;
                else if (*at != value)
                    return false;
            }
    return true;
}

static inline void skit_fill(struct skit_state *s, uint64_t step) {
    for (uint32_t i = 0; i < s->count; i++) (void)skit_each(&s->tensors[i], step, false);
}

static inline bool skit_is(const struct skit_state *s, uint64_t step) {
    for (uint32_t i = 0; i < s->count; i++)
        if (!skit_each(&s->tensors[i], step, true)) return false;
    return true;
}

/* Rows dealt to `of` shards along dimension `along` (0 or 1 where there is one); the scalar is shard 0's. */
static inline struct skit_state *skit_state_new(uint32_t shard, uint32_t of, uint32_t along) {
    struct skit_state *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    for (uint32_t t = 0; t < SKIT_TENSORS; t++) {
        struct skit_slice *slice = &s->slices[t];
        uint32_t cut = along < skit_ranks[t] ? along : 0;
        for (uint32_t d = 0; d < skit_ranks[t]; d++) {
            uint64_t all = skit_shapes[t][d];
            slice->begin[d] = d == cut ? all * shard / of : 0;
            slice->extent[d] = d == cut ? all * (shard + 1) / of - slice->begin[d] : all;
        }
        if (skit_ranks[t] == 0 && shard != 0) continue;
        struct pawl_tensor *tensor = &s->tensors[s->count];
        *tensor = (struct pawl_tensor){.name = skit_names[t],
                                       .dtype = skit_types[t],
                                       .rank = skit_ranks[t],
                                       .shape = skit_shapes[t],
                                       .begin = slice->begin,
                                       .extent = slice->extent};
        s->bytes[s->count] = skit_elements(tensor) * (pawl_dtype_bits(tensor->dtype) / 8);
        if ((tensor->data = calloc(1, s->bytes[s->count] + 1)) == NULL) abort();
        s->count++;
    }
    return s;
}

static inline void skit_state_free(struct skit_state *s) {
    for (uint32_t i = 0; i < s->count; i++) free(s->tensors[i].data);
    free(s);
}

/* ---- a rank: a checkpointer with its state ---- */

struct skit_rank {
    struct pawl_ckpt *c;
    struct pawl_ckpt_state *state;
    struct skit_state *memory;
};

#define SKIT_MUST(call)                                                                                      \
    do {                                                                                                     \
        struct pawl_error must_e = {0};                                                                      \
        struct pawl_error *e = &must_e;                                                                      \
        if ((call) != PAWL_OK) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, e->text);                                     \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static inline struct skit_rank skit_open(const struct pawl_ckpt_options *o, struct skit_state *memory) {
    struct skit_rank r = {.memory = memory};
    SKIT_MUST(pawl_ckpt_open(o, &r.c, e));
    SKIT_MUST(pawl_ckpt_declare(r.c, memory->tensors, memory->count, &r.state, e));
    return r;
}

/* Fills the state with `step` and begins a save of it. */
static inline uint64_t skit_save(struct skit_rank *r, uint64_t step) {
    uint64_t id = 0;
    char blob[32];
    SKIT_MUST(pawl_ckpt_fence(r->c, skit_soon(), e));
    skit_fill(r->memory, step);
    int n = snprintf(blob, sizeof blob, "step %" PRIu64, step);
    struct pawl_ckpt_save save = {.state = r->state, .step = step, .blob = blob, .blob_bytes = (size_t)n};
    SKIT_MUST(pawl_ckpt_save(r->c, &save, &id, e));
    return id;
}

static inline void skit_wait(struct skit_rank *r, uint64_t id, enum pawl_ckpt_until until) {
    SKIT_MUST(pawl_ckpt_wait(r->c, id, until, skit_soon(), e));
}

static inline void skit_close(struct skit_rank *r) {
    SKIT_MUST(pawl_ckpt_close(r->c, skit_soon(), e));
    skit_state_free(r->memory);
    *r = (struct skit_rank){0};
}

#endif
