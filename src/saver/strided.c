/* The strided kind of include/pawl/memory.h: runs of bytes that lie together in both orders, found from an
 * offset by division once per copy and counted on from there. Copies are done inside the call. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pawl/memory.h>

#include "base/error.h"
#include "base/mem.h"

#define RANK_MAX 64u /* of include/pawl/tensor.h */

struct dimension {
    uint64_t count;
    int64_t step; /* bytes */
};

struct pawl_strided {
    struct pawl_memory memory;
    uint8_t *data, *window;
    uint64_t bytes, run; /* of the tensor; that lie together */
    uint32_t rank;
    struct dimension dimensions[RANK_MAX]; /* over runs, the last one fastest */
};

/* ---- copying ---- */

struct cursor {
    const struct pawl_strided *s;
    int64_t at; /* of the run at `index`, from the first element, in bytes */
    uint64_t index[RANK_MAX];
};

static struct cursor cursor_at(const struct pawl_strided *s, uint64_t run) {
    struct cursor c = {.s = s};
    for (uint32_t d = s->rank; d-- > 0;) {
        c.index[d] = run % s->dimensions[d].count;
        run /= s->dimensions[d].count;
        c.at += (int64_t)c.index[d] * s->dimensions[d].step;
    }
    return c;
}

/* By `runs`, no more than are left of the last dimension. */
static void advance(struct cursor *c, uint64_t runs) {
    for (uint32_t d = c->s->rank; d-- > 0; runs = 1) {
        const struct dimension *at = &c->s->dimensions[d];
        c->index[d] += runs;
        c->at += (int64_t)runs * at->step;
        if (c->index[d] < at->count) return;
        c->at -= (int64_t)at->count * at->step;
        c->index[d] = 0;
    }
}

#define COPY_RUNS(width)                                                                                     \
    for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, width)

/* The widths of elements are worth loops of their own: a copy of constant size is one instruction. */
static void copy_runs(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step, int64_t count,
                      uint64_t bytes) {
    switch (bytes) {
    case 1:
        COPY_RUNS(1);
        break;
    case 2:
        COPY_RUNS(2);
        break;
    case 4:
        COPY_RUNS(4);
        break;
    case 8:
        COPY_RUNS(8);
        break;
    default:
        COPY_RUNS(bytes);
    }
}

static void copy(const struct pawl_strided *s, uint64_t offset, uint8_t *dense, uint64_t bytes, bool out) {
    struct cursor c = cursor_at(s, offset / s->run);
    uint64_t within = offset % s->run, width = s->run, runs;
    for (uint64_t done = 0; done < bytes; done += runs * width, dense += runs * width, within = 0) {
        const struct dimension *last = s->rank > 0 ? &s->dimensions[s->rank - 1] : NULL;
        int64_t step = last != NULL ? last->step : 0;
        runs = (bytes - done) / s->run;
        width = s->run;
        if (within > 0 || runs == 0) { /* the first or the last one, broken by a chunk's end */
            width = s->run - within < bytes - done ? s->run - within : bytes - done;
            runs = 1;
        } else if (last == NULL || runs > last->count - c.index[s->rank - 1]) {
            runs = last == NULL ? 1 : last->count - c.index[s->rank - 1];
        }
        uint8_t *strided = s->data + (c.at + (int64_t)within);
        if (out)
            copy_runs(dense, (int64_t)width, strided, step, (int64_t)runs, width);
        else
            copy_runs(strided, step, dense, (int64_t)width, (int64_t)runs, width);
        advance(&c, runs);
    }
}

static pawl_code check_range(const struct pawl_strided *s, uintptr_t at, size_t bytes, struct pawl_error *e) {
    uintptr_t window = (uintptr_t)s->window;
    if (at >= window && at - window <= s->bytes && bytes <= s->bytes - (at - window)) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "%zu bytes at an address outside of the %" PRIu64
                     " of the strided tensor: it goes by the `data` that pawl_strided_new gave it",
                     bytes, s->bytes);
}

static pawl_code copy_out(void *context, const void *source, void *target, size_t bytes,
                          struct pawl_copy *done, struct pawl_error *e) {
    const struct pawl_strided *s = context;
    pawl_code code = check_range(s, (uintptr_t)source, bytes, e);
    if (code != PAWL_OK) return code;
    copy(s, (uintptr_t)source - (uintptr_t)s->window, target, bytes, true);
    pawl_copy_done(done, PAWL_OK);
    return PAWL_OK;
}

static pawl_code copy_in(void *context, const void *source, void *target, size_t bytes,
                         struct pawl_copy *done, struct pawl_error *e) {
    const struct pawl_strided *s = context;
    pawl_code code = check_range(s, (uintptr_t)target, bytes, e);
    if (code != PAWL_OK) return code;
    /* Only read from. */
    copy(s, (uintptr_t)target - (uintptr_t)s->window, (uint8_t *)(uintptr_t)source, bytes, false);
    pawl_copy_done(done, PAWL_OK);
    return PAWL_OK;
}

/* ---- making one ---- */

static uint64_t size_of_step(int64_t step) { return step < 0 ? 0 - (uint64_t)step : (uint64_t)step; }

static int by_step(const void *x, const void *y) {
    uint64_t a = size_of_step(((const struct dimension *)x)->step);
    uint64_t b = size_of_step(((const struct dimension *)y)->step);
    return a < b ? -1 : a > b;
}

/* Enough, not necessary: taken from the smallest step, each one passes all that the smaller ones reach. */
static bool is_apart(const struct dimension *dimensions, uint32_t rank, uint64_t width) {
    struct dimension sorted[RANK_MAX];
    uint64_t reach = width;
    if (rank > 0) memcpy(sorted, dimensions, rank * sizeof *sorted);
    qsort(sorted, rank, sizeof *sorted, by_step);
    for (uint32_t d = 0; d < rank; d++) {
        uint64_t step = size_of_step(sorted[d].step), all;
        if (step < reach) return false;
        if (!mem_mul(step, sorted[d].count, &all) || all > INT64_MAX - reach) return false;
        reach += all - step;
    }
    return true;
}

/* Dimensions of one index go; one that goes on where the next one ends is one with it. */
static void merge(struct pawl_strided *s, uint64_t width) {
    uint32_t kept = 0;
    for (uint32_t d = 0; d < s->rank; d++) {
        struct dimension at = s->dimensions[d];
        if (at.count == 1) continue;
        struct dimension *before = kept > 0 ? &s->dimensions[kept - 1] : NULL;
        if (before != NULL && before->step == at.step * (int64_t)at.count)
            *before = (struct dimension){before->count * at.count, at.step};
        else
            s->dimensions[kept++] = at;
    }
    s->rank = kept;
    s->run = width;
    if (kept == 0 || s->dimensions[kept - 1].step != (int64_t)width) return;
    s->run = s->dimensions[kept - 1].count * width;
    s->rank--;
}

static pawl_code measure(struct pawl_strided *s, const struct pawl_tensor *t, const int64_t *strides,
                         struct pawl_error *e) {
    const uint64_t *extent = t->extent;
    uint64_t width = pawl_dtype_bits(t->dtype) / 8;
    bool fits = true;
    s->bytes = width;
    for (uint32_t d = 0; d < t->rank; d++) {
        uint64_t from = t->begin != NULL ? t->begin[d] : 0;
        if (extent == NULL && from > t->shape[d]) fits = false;
        uint64_t count = extent != NULL ? extent[d] : fits ? t->shape[d] - from : 0;
        int64_t step = 0;
        fits = fits && mem_mul(s->bytes, count, &s->bytes) && s->bytes <= INT64_MAX;
        if (count > 1) fits = fits && !__builtin_mul_overflow(strides[d], (int64_t)width, &step);
        s->dimensions[d] = (struct dimension){count, step};
    }
    s->rank = t->rank;
    if (!fits)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "tensor '%.300s': its shape, slice and strides reach beyond any memory", t->name);
    if (s->bytes == 0) return PAWL_OK;
    uint32_t kept = 0; /* of dimensions of one index the stride says nothing */
    for (uint32_t d = 0; d < s->rank; d++)
        if (s->dimensions[d].count > 1) s->dimensions[kept++] = s->dimensions[d];
    s->rank = kept;
    if (!is_apart(s->dimensions, s->rank, width))
        return error_set(e, PAWL_ARGUMENT, 0,
                         "tensor '%.300s': by its strides elements may overlap: save what it is a view of",
                         t->name);
    merge(s, width);
    return PAWL_OK;
}

static pawl_code check_tensor(const struct pawl_tensor *t, struct pawl_error *e) {
    const char *name = t->name != NULL ? t->name : "";
    uint32_t bits = pawl_dtype_bits(t->dtype);
    if (t->rank > RANK_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "tensor '%.300s': rank %u, wanted 0 to %u", name, t->rank,
                         RANK_MAX);
    if (bits == 0 || bits % 8 != 0)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "tensor '%.300s': elements of %u bits have no strides, wanted whole bytes", name,
                         bits);
    if (t->memory == NULL) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "tensor '%.300s' is in memory of kind %.100s: strided is for the process's own", name,
                     t->memory->name != NULL ? t->memory->name : "without name");
}

pawl_code pawl_strided_new(struct pawl_tensor *tensor, const int64_t *strides, struct pawl_strided **out,
                           struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_tensor(tensor, e);
    if (code != PAWL_OK) return code;
    struct pawl_strided *s = calloc(1, sizeof *s);
    if (s == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a strided tensor");
    code = measure(s, tensor, strides, e);
    if (code == PAWL_OK && s->bytes > 0 && tensor->data == NULL)
        code = error_set(e, PAWL_ARGUMENT, 0, "tensor '%.300s': no address of its data", tensor->name);
    if (code == PAWL_OK && s->bytes > 0) {
        s->window = mmap(NULL, s->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s->window == MAP_FAILED) {
            s->window = NULL;
            code = error_set(e, PAWL_MEMORY, 0, "tensor '%.300s': no %" PRIu64 " addresses for its window",
                             tensor->name, s->bytes);
        }
    }
    if (code != PAWL_OK) {
        pawl_strided_free(s);
        return code;
    }
    s->data = tensor->data;
    s->memory =
        (struct pawl_memory){.name = "strided", .context = s, .copy_out = copy_out, .copy_in = copy_in};
    if (s->bytes > 0) tensor->data = s->window;
    tensor->memory = &s->memory;
    *out = s;
    return PAWL_OK;
}

void pawl_strided_free(struct pawl_strided *s) {
    if (s == NULL) return;
    if (s->window != NULL) munmap(s->window, s->bytes);
    free(s);
}
