/* Making a slot: order of the pieces, header of fixed size, chunks.
 *
 * safetensors allows no holes, so pieces lie back to back and most of them would be unaligned. Consecutive
 * pieces that also lie back to back in memory form a run. Order: (A) large page-aligned runs of whole blocks;
 * (B) the largest other large page-aligned run, since its begin is still aligned; (C) all other pieces, wider
 * types first, so that each tensor's place is a multiple of its element size (readers view it in place). A
 * and the whole blocks of B are written straight from memory; the rest of B, C and filler are gathered. */
#include "ckpt/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define RANK_MAX       64u /* torch and numpy stop there */
#define NAME_BYTES_MAX 4096u

struct planned { /* one piece with what is derived from it */
    const struct pawl_tensor *piece;
    uint64_t bytes, row_begin, row_end, row_count;
    uint32_t index;
    uint32_t run;
    bool renamed; /* another piece of the same tensor comes before it */
};

struct run {
    uint32_t first, count;
    uint64_t bytes;
    const uint8_t *data;
    bool direct; /* placed in A or B */
};

struct builder {
    struct planned *pieces;
    struct run *runs;
    uint32_t piece_count, run_count;
    uint32_t filler_count;
    uint64_t at; /* end of what is placed */
    struct bytes slices;
    struct slot_plan *plan;
    struct pawl_error *e;
};

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "save: no memory for its plan");
}

/* ---- checks ---- */

static pawl_code bad_piece(const struct planned *p, struct pawl_error *e, const char *field,
                           const char *wanted) {
    return error_set(e, PAWL_ARGUMENT, 0, "save: tensor %u '%.200s': %s: wanted %s", p->index,
                     p->piece->name != NULL ? p->piece->name : "", field, wanted);
}

static pawl_code check_rows(struct planned *p, struct pawl_error *e) {
    const struct pawl_tensor *piece = p->piece;
    if (piece->rank > RANK_MAX) return bad_piece(p, e, "rank", "at most 64");
    if (piece->rank > 0 && piece->shape == NULL) return bad_piece(p, e, "shape", "an address");
    p->row_count = piece->rank == 0 ? 1 : piece->shape[0];
    p->row_end = p->row_count;
    for (uint32_t i = 0; i < piece->rank; i++) {
        uint64_t begin = piece->begin != NULL ? piece->begin[i] : 0;
        if (begin > piece->shape[i]) return bad_piece(p, e, "begin", "at most the shape");
        uint64_t extent = piece->extent != NULL ? piece->extent[i] : piece->shape[i] - begin;
        if (extent > piece->shape[i] - begin) return bad_piece(p, e, "extent", "begin + extent <= shape");
        if (i > 0 && extent != piece->shape[i])
            return bad_piece(p, e, "extent", "the whole of all dimensions but the first");
        if (i == 0) p->row_begin = begin;
        if (i == 0) p->row_end = begin + extent;
    }
    return PAWL_OK;
}

static pawl_code check_piece(struct planned *p, struct pawl_error *e) {
    const struct pawl_tensor *piece = p->piece;
    if (piece->name == NULL || piece->name[0] == 0 || strlen(piece->name) > NAME_BYTES_MAX ||
        strncmp(piece->name, SLOT_OWN_PREFIX, strlen(SLOT_OWN_PREFIX)) == 0)
        return bad_piece(p, e, "name", "1 to 4096 bytes, not beginning with " SLOT_OWN_PREFIX);
    p->bytes = st_dtype_bytes(piece->dtype);
    if (p->bytes == 0) return bad_piece(p, e, "dtype", "a known one");
    pawl_code code = check_rows(p, e);
    if (code != PAWL_OK) return code;
    bool fits = mem_mul(p->bytes, p->row_end - p->row_begin, &p->bytes);
    for (uint32_t i = 1; i < piece->rank; i++) fits = fits && mem_mul(p->bytes, piece->shape[i], &p->bytes);
    if (!fits || p->bytes > INT64_MAX) return bad_piece(p, e, "shape", "a size that fits 63 bits");
    if (p->bytes > 0 && piece->data == NULL) return bad_piece(p, e, "data", "an address");
    return PAWL_OK;
}

static int by_name_and_row(const void *a, const void *b) {
    const struct planned *x = *(struct planned *const *)a, *y = *(struct planned *const *)b;
    int order = strcmp(x->piece->name, y->piece->name);
    if (order != 0) return order;
    if (x->row_begin != y->row_begin) return x->row_begin < y->row_begin ? -1 : 1;
    if (x->row_end != y->row_end) return x->row_end < y->row_end ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static bool same_tensor(const struct pawl_tensor *a, const struct pawl_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* Pieces of one name are disjoint rows of one tensor; all but the first get another name in the file. */
static pawl_code check_names(struct builder *b) {
    struct planned **sorted = calloc((size_t)b->piece_count + 1, sizeof *sorted);
    if (sorted == NULL) return no_memory(b->e);
    for (uint32_t i = 0; i < b->piece_count; i++) sorted[i] = &b->pieces[i];
    qsort(sorted, b->piece_count, sizeof *sorted, by_name_and_row);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 1; i < b->piece_count && code == PAWL_OK; i++) {
        const struct planned *before = sorted[i - 1], *piece = sorted[i];
        if (strcmp(before->piece->name, piece->piece->name) != 0) continue;
        if (!same_tensor(before->piece, piece->piece))
            code =
                bad_piece(sorted[i], b->e, "dtype and shape", "the same as in the piece before of this name");
        else if (piece->row_begin < before->row_end || piece->row_begin == before->row_begin)
            code = bad_piece(sorted[i], b->e, "rows", "no overlap with another piece of this name");
        sorted[i]->renamed = true;
    }
    free(sorted);
    return code;
}

/* ---- runs ---- */

static void make_runs(struct builder *b) {
    for (uint32_t i = 0; i < b->piece_count; i++) {
        struct planned *p = &b->pieces[i];
        const uint8_t *data = p->piece->data;
        struct run *last = b->run_count > 0 ? &b->runs[b->run_count - 1] : NULL;
        bool joins = last != NULL && p->bytes > 0 && last->bytes > 0 && last->data + last->bytes == data &&
                     b->pieces[last->first].piece->memory == p->piece->memory &&
                     last->bytes % st_dtype_bytes(p->piece->dtype) == 0;
        if (!joins) {
            last = &b->runs[b->run_count++];
            *last = (struct run){.first = i, .data = data};
        }
        last->count++;
        last->bytes += p->bytes;
        p->run = b->run_count - 1;
    }
}

static bool is_large_and_aligned(const struct builder *b, const struct run *r) {
    return b->pieces[r->first].piece->memory == NULL && r->bytes >= SLOT_DIRECT_BYTES &&
           (uintptr_t)r->data % STORE_BLOCK == 0;
}

/* ---- placing ---- */

static pawl_code add_tensor(struct builder *b, const char *name, enum pawl_dtype dtype, uint32_t rank,
                            const uint64_t *shape) {
    pawl_code code = st_header_add(&b->plan->header, name, dtype, rank, shape, b->at, b->e);
    return code == PAWL_FORMAT && b->e != NULL ? (b->e->code = PAWL_ARGUMENT) : code;
}

static pawl_code place_filler(struct builder *b, uint64_t bytes) {
    if (bytes == 0) return PAWL_OK;
    char name[32];
    snprintf(name, sizeof name, SLOT_OWN_PREFIX "filler_%u__", b->filler_count++);
    pawl_code code = add_tensor(b, name, PAWL_U8, 1, &bytes);
    b->at += bytes;
    return code;
}

static pawl_code place_piece(struct builder *b, const struct planned *p) {
    const struct pawl_tensor *piece = p->piece;
    uint64_t shape[RANK_MAX];
    if (piece->rank > 0) memcpy(shape, piece->shape, piece->rank * sizeof *shape);
    if (piece->rank > 0) shape[0] = p->row_end - p->row_begin;
    char name[NAME_BYTES_MAX + 32];
    snprintf(name, sizeof name, "%s", piece->name);
    if (p->renamed) snprintf(name + strlen(name), 32, "@%" PRIu64, p->row_begin);
    if (p->renamed || p->row_begin != 0 || p->row_end != p->row_count)
        bytes_printf(&b->slices, "%u %" PRIu64 " %" PRIu64 "%s\n", b->plan->header.tensor_count, p->row_begin,
                     p->row_count, p->renamed ? " @" : "");
    pawl_code code = add_tensor(b, name, piece->dtype, piece->rank, shape);
    if (p->bytes > 0)
        b->plan->spans[b->plan->span_count++] =
            (struct slot_span){b->at, p->bytes, piece->data, piece->memory};
    if (!mem_add(b->at, p->bytes, &b->at) || b->at > INT64_MAX / 2)
        return error_set(b->e, PAWL_ARGUMENT, 0, "save: all pieces together exceed 62 bits");
    return code;
}

static pawl_code place_run(struct builder *b, struct run *r) {
    pawl_code code = PAWL_OK;
    r->direct = true;
    for (uint32_t i = 0; i < r->count && code == PAWL_OK; i++)
        code = place_piece(b, &b->pieces[r->first + i]);
    return code;
}

static void add_chunks(struct slot_plan *plan, uint64_t begin, uint64_t end, uint64_t chunk_bytes,
                       const uint8_t *direct) {
    for (uint64_t at = begin; at < end; at += chunk_bytes) {
        uint64_t bytes = end - at < chunk_bytes ? end - at : chunk_bytes;
        plan->chunks[plan->chunk_count++] =
            (struct slot_chunk){at, bytes, direct != NULL ? direct + (at - begin) : NULL};
    }
}

/* A, then B; *direct_end is where gathering begins. */
static pawl_code place_direct(struct builder *b, uint64_t chunk_bytes, uint64_t *direct_end) {
    struct run *largest = NULL;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < b->run_count && code == PAWL_OK; i++) {
        struct run *r = &b->runs[i];
        if (!is_large_and_aligned(b, r)) continue;
        if (r->bytes % STORE_BLOCK != 0) {
            if (largest == NULL || r->bytes > largest->bytes) largest = r;
            continue;
        }
        uint64_t begin = b->at;
        code = place_run(b, r);
        add_chunks(b->plan, begin, b->at, chunk_bytes, r->data);
    }
    *direct_end = b->at;
    if (largest == NULL || code != PAWL_OK) return code;
    uint64_t begin = b->at;
    code = place_run(b, largest);
    *direct_end = b->at - b->at % STORE_BLOCK;
    add_chunks(b->plan, begin, *direct_end, chunk_bytes, largest->data);
    return code;
}

static int by_width(const void *a, const void *b) {
    const struct planned *x = *(struct planned *const *)a, *y = *(struct planned *const *)b;
    uint32_t wide_x = st_dtype_bytes(x->piece->dtype), wide_y = st_dtype_bytes(y->piece->dtype);
    if (wide_x != wide_y) return wide_x > wide_y ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static pawl_code place_rest(struct builder *b) {
    struct planned **rest = calloc((size_t)b->piece_count + 1, sizeof *rest);
    if (rest == NULL) return no_memory(b->e);
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->piece_count; i++)
        if (!b->runs[b->pieces[i].run].direct) rest[count++] = &b->pieces[i];
    qsort(rest, count, sizeof *rest, by_width);
    pawl_code code = PAWL_OK;
    if (count > 0) {
        uint32_t width = st_dtype_bytes(rest[0]->piece->dtype);
        code = place_filler(b, mem_round_up(b->at, width) - b->at);
    }
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = place_piece(b, rest[i]);
    free(rest);
    if (code == PAWL_OK) code = place_filler(b, mem_round_up(b->at, STORE_BLOCK) - b->at);
    return code;
}

/* ---- the header ---- */

static pawl_code set_number(struct st_header *h, const char *key, uint64_t value, struct pawl_error *e) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return st_header_set(h, key, text, e);
}

static pawl_code set_blob(struct st_header *h, const struct ckpt_save *save, struct pawl_error *e) {
    char *text = malloc(2 * save->blob_bytes + 1);
    if (text == NULL) return no_memory(e);
    if (save->blob_bytes > 0) memcpy(text, save->blob, save->blob_bytes);
    text[save->blob_bytes] = 0;
    pawl_code code = PAWL_FORMAT;
    if (memchr(text, 0, save->blob_bytes) == NULL) code = st_header_set(h, "pawl.blob", text, e);
    if (code == PAWL_FORMAT) { /* no text: in hexadecimal */
        hash_hex(save->blob, save->blob_bytes, text);
        code = st_header_set(h, "pawl.blob_hex", text, e);
    }
    free(text);
    return code;
}

static pawl_code set_sums(struct slot_plan *plan, struct pawl_error *e) {
    size_t bytes = plan->chunk_count * SLOT_SUM_BYTES;
    char *text = malloc(2 * bytes + 1);
    if (text == NULL) return no_memory(e);
    hash_hex(plan->sums, bytes, text);
    pawl_code code = st_header_set(&plan->header, "pawl.sums", text, e);
    free(text);
    return code;
}

/* "3*4194304,1*65536": chunks in order, equal neighbours counted. */
static pawl_code set_chunks(struct slot_plan *plan, struct pawl_error *e) {
    struct bytes text = {0};
    for (uint64_t i = 0, same; i < plan->chunk_count; i += same) {
        same = 1;
        while (i + same < plan->chunk_count && plan->chunks[i + same].bytes == plan->chunks[i].bytes) same++;
        bytes_printf(&text, "%s%" PRIu64 "*%" PRIu64, i > 0 ? "," : "", same, plan->chunks[i].bytes);
    }
    bytes_put_u8(&text, 0);
    pawl_code code =
        text.failed ? no_memory(e) : st_header_set(&plan->header, "pawl.chunks", (char *)text.data, e);
    bytes_close(&text);
    return code;
}

static pawl_code set_metadata(struct builder *b, const struct ckpt_config *config,
                              const struct ckpt_save *save) {
    struct st_header *h = &b->plan->header;
    char run_id[2 * CKPT_RUN_ID_BYTES + 1];
    hash_hex(config->run_id, CKPT_RUN_ID_BYTES, run_id);
    bytes_put_u8(&b->slices, 0);
    if (b->slices.failed) return no_memory(b->e);
    pawl_code code = set_number(h, "pawl.format", 1, b->e);
    if (code == PAWL_OK) code = st_header_set(h, "pawl.run", run_id, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.incarnation", config->incarnation, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.step", save->step, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.unit", save->unit, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.units", save->unit_count, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.part", save->part, b->e);
    if (code == PAWL_OK) code = set_number(h, "pawl.parts", save->part_count, b->e);
    if (code == PAWL_OK) code = set_blob(h, save, b->e);
    if (code == PAWL_OK) code = st_header_set(h, "pawl.slices", (char *)b->slices.data, b->e);
    if (code == PAWL_OK) code = set_chunks(b->plan, b->e);
    return code;
}

pawl_code slot_plan_header(struct slot_plan *plan, struct bytes *out, struct pawl_error *e) {
    pawl_code code = set_sums(plan, e);
    return code != PAWL_OK ? code : st_header_write(&plan->header, STORE_BLOCK, out, e);
}

/* Sums have a fixed width, so the header's size is known before they are. */
static pawl_code measure_header(struct builder *b) {
    struct bytes text = {0};
    pawl_code code = slot_plan_header(b->plan, &text, b->e);
    b->plan->header_bytes = text.size;
    bytes_close(&text);
    if (code == PAWL_FORMAT && b->e != NULL) b->e->code = PAWL_ARGUMENT;
    return code == PAWL_FORMAT ? PAWL_ARGUMENT : code;
}

/* ---- the plan ---- */

static pawl_code reserve_chunks(struct builder *b, uint64_t chunk_bytes) {
    uint64_t total = 0, most = 4; /* the ends of B, of C */
    for (uint32_t i = 0; i < b->piece_count; i++)
        if (!mem_add(total, b->pieces[i].bytes, &total)) total = UINT64_MAX;
    if (total > INT64_MAX / 2)
        return error_set(b->e, PAWL_ARGUMENT, 0, "save: all pieces together exceed 62 bits");
    for (uint32_t i = 0; i < b->run_count; i++) most += is_large_and_aligned(b, &b->runs[i]);
    most += total / chunk_bytes;
    b->plan->chunks = calloc(most, sizeof *b->plan->chunks);
    b->plan->spans = calloc((size_t)b->piece_count + 1, sizeof *b->plan->spans);
    b->plan->sums = calloc(most, SLOT_SUM_BYTES);
    return b->plan->chunks == NULL || b->plan->spans == NULL || b->plan->sums == NULL ? no_memory(b->e)
                                                                                      : PAWL_OK;
}

static pawl_code check_save(const struct ckpt_save *save, struct pawl_error *e) {
    if (save->step == 0 || save->unit >= save->unit_count || save->part >= save->part_count)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "save: step %" PRIu64 ", unit %u of %u, part %u of %u: wanted step > 0 and "
                         "indexes below their counts",
                         save->step, save->unit, save->unit_count, save->part, save->part_count);
    if (save->blob_bytes > ST_HEADER_BYTES_MAX / 4)
        return error_set(e, PAWL_ARGUMENT, 0, "save: blob has %zu bytes, wanted at most %u", save->blob_bytes,
                         ST_HEADER_BYTES_MAX / 4);
    return PAWL_OK;
}

static pawl_code build(struct builder *b, const struct ckpt_config *config, const struct ckpt_save *save) {
    b->pieces = calloc((size_t)save->tensor_count + 1, sizeof *b->pieces);
    b->runs = calloc((size_t)save->tensor_count + 1, sizeof *b->runs);
    if (b->pieces == NULL || b->runs == NULL) return no_memory(b->e);
    b->piece_count = save->tensor_count;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < b->piece_count && code == PAWL_OK; i++) {
        b->pieces[i] = (struct planned){.piece = &save->tensors[i], .index = i};
        code = check_piece(&b->pieces[i], b->e);
    }
    if (code == PAWL_OK) code = check_names(b);
    if (code != PAWL_OK) return code;
    make_runs(b);
    uint64_t direct_end = 0;
    code = reserve_chunks(b, config->chunk_bytes);
    if (code == PAWL_OK) code = place_direct(b, config->chunk_bytes, &direct_end);
    if (code == PAWL_OK) code = place_rest(b);
    if (code != PAWL_OK) return code;
    b->plan->data_bytes = b->at;
    add_chunks(b->plan, direct_end, b->at, config->chunk_bytes, NULL);
    code = set_metadata(b, config, save);
    return code != PAWL_OK ? code : measure_header(b);
}

pawl_code slot_plan_make(const struct ckpt_config *config, const struct ckpt_save *save,
                         struct slot_plan *out, struct pawl_error *e) {
    *out = (struct slot_plan){0};
    struct pawl_error own = {0}; /* codes are corrected in it, so there must be one */
    struct builder b = {.plan = out, .e = e != NULL ? e : &own};
    pawl_code code = check_save(save, b.e);
    if (code == PAWL_OK) code = build(&b, config, save);
    free(b.pieces);
    free(b.runs);
    bytes_close(&b.slices);
    if (code != PAWL_OK) slot_plan_close(out);
    return code;
}

void slot_plan_close(struct slot_plan *plan) {
    st_header_close(&plan->header);
    free(plan->spans);
    free(plan->chunks);
    free(plan->sums);
    *plan = (struct slot_plan){0};
}

/* The first span that ends after `offset`. */
static uint32_t find_span(const struct slot_plan *plan, uint64_t offset) {
    uint32_t low = 0, high = plan->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->spans[middle].begin + plan->spans[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void slot_plan_gather(const struct slot_plan *plan, const struct slot_chunk *chunk, uint8_t *out) {
    uint64_t at = chunk->offset, end = chunk->offset + chunk->bytes;
    for (uint32_t i = find_span(plan, at); i < plan->span_count && plan->spans[i].begin < end; i++) {
        const struct slot_span *s = &plan->spans[i];
        if (s->begin > at) {
            memset(out + (at - chunk->offset), 0, s->begin - at);
            at = s->begin;
        }
        uint64_t stop = s->begin + s->bytes < end ? s->begin + s->bytes : end;
        if (s->memory == NULL) memcpy(out + (at - chunk->offset), s->data + (at - s->begin), stop - at);
        at = stop;
    }
    memset(out + (at - chunk->offset), 0, end - at);
}
