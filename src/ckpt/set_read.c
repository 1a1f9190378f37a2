/* Reading bytes out of committed slots, every chunk verified before any of it is handed out.
 *
 * Chunks are read whole, several at once, straight into the caller's buffer where it is aligned. A chunk read
 * for one tensor is kept for the next one in it. Rows that exist in several slots are taken from another one
 * when the first turns out damaged; the damage is listed as a problem. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ckpt/set.h"

/* Large blocks are split so that the device has several to work on. */
#define READ_PIECE_BYTES ((size_t)4 << 20)

static struct store_completion wait_one(struct store *s) {
    struct store_completion done;
    while (store_poll(s, &done, 1) == 0) store_wait(s, 1000000000);
    return done;
}

pawl_code set_open_part(struct set_part *part, struct pawl_error *e) {
    if (part->file != NULL) return PAWL_OK;
    return store_file_open(part->store, part->name, false, 0, &part->file, e);
}

pawl_code set_read_blocks(struct store *s, struct store_file *f, uint64_t offset, void *data, size_t bytes,
                          struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (size_t at = 0; at < bytes && code == PAWL_OK; at += READ_PIECE_BYTES) {
        size_t piece = bytes - at < READ_PIECE_BYTES ? bytes - at : READ_PIECE_BYTES;
        code = store_read(f, offset + at, (uint8_t *)data + at, piece, 0, e);
        if (code != PAWL_OK) break;
        struct store_completion done = wait_one(s);
        if (done.code != PAWL_OK)
            code = error_set(e, done.code, done.os_errno, "cannot read %zu bytes at %" PRIu64, piece,
                             offset + at);
    }
    return code;
}

/* ---- lines ---- */

static struct set_line *line_find(struct ckpt_set *set, uint32_t part, uint64_t chunk) {
    for (uint32_t i = 0; i < SET_LINES; i++) {
        struct set_line *l = &set->lines[i];
        if (l->state != LINE_EMPTY && l->part == part && l->chunk == chunk) return l;
    }
    return NULL;
}

/* The line unused for longest that does not hold a started chunk of this range: first..next-1, fewer than
 * there are lines. */
static struct set_line *line_take(struct ckpt_set *set, uint32_t part, uint64_t first, uint64_t next) {
    struct set_line *best = NULL;
    for (uint32_t i = 0; i < SET_LINES; i++) {
        struct set_line *l = &set->lines[i];
        if (l->state == LINE_READING || l->state == LINE_READ) continue;
        if (l->state == LINE_VERIFIED && l->part == part && l->chunk >= first && l->chunk < next) continue;
        if (best == NULL || l->used < best->used) best = l;
    }
    return best;
}

static bool line_reserve(struct set_line *l, size_t bytes) {
    if (l->room >= bytes) return true;
    mem_free(l->data, l->room);
    l->data = mem_alloc(bytes);
    l->room = l->data != NULL ? bytes : 0;
    return l->data != NULL;
}

struct range { /* what one call reads */
    uint32_t part;
    uint64_t begin, end;  /* in the data */
    uint8_t *out;         /* of begin; null: verify only */
    uint64_t first, last; /* chunks not yet taken */
    uint64_t next;        /* to be started */
    uint32_t in_flight;
};

/* The caller's buffer when the chunk lies in it whole and aligned, else null. */
static uint8_t *direct_target(const struct range *r, const struct slot_chunk *chunk) {
    if (r->out == NULL || chunk->offset < r->begin || chunk->offset + chunk->bytes > r->end) return NULL;
    uint8_t *target = r->out + (chunk->offset - r->begin);
    return (uintptr_t)target % STORE_BLOCK == 0 ? target : NULL;
}

/* False when no line is to be had now. */
static bool start_chunk(struct ckpt_set *set, struct range *r, pawl_code *code, struct pawl_error *e) {
    struct set_part *part = &set->parts[r->part];
    const struct slot_chunk *chunk = &part->info.chunks[r->next];
    if (line_find(set, r->part, r->next) != NULL) { /* kept from before */
        r->next++;
        return true;
    }
    struct set_line *l = line_take(set, r->part, r->first, r->next);
    if (l == NULL) return false;
    l->state = LINE_EMPTY;
    l->target = direct_target(r, chunk);
    if (l->target == NULL && !line_reserve(l, chunk->bytes)) {
        *code = error_set(e, PAWL_MEMORY, 0, "no memory for a chunk of %" PRIu64 " bytes", chunk->bytes);
        return false;
    }
    if (l->target == NULL) l->target = l->data;
    *code = store_read(part->file, part->info.header.data_offset + chunk->offset, l->target, chunk->bytes,
                       (uint64_t)(l - set->lines), e);
    if (*code != PAWL_OK) return false;
    l->state = LINE_READING;
    l->part = r->part;
    l->chunk = r->next++;
    r->in_flight++;
    return true;
}

static void finish_one(struct ckpt_set *set, struct range *r) {
    struct store_completion done = wait_one(set->parts[r->part].store);
    struct set_line *l = &set->lines[done.cookie];
    l->state = LINE_READ;
    l->code = done.code;
    l->os_errno = done.os_errno;
    r->in_flight--;
}

/* The first tensor that has bytes in the chunk, for the message. */
static const char *tensor_in(const struct slot_info *s, const struct slot_chunk *chunk) {
    for (uint32_t i = 0; i < s->header.tensor_count; i++) {
        const struct st_tensor *t = &s->header.tensors[i];
        if (t->begin < chunk->offset + chunk->bytes && t->begin + t->bytes > chunk->offset) return t->name;
    }
    return "";
}

static pawl_code verify_line(struct ckpt_set *set, struct set_line *l, struct pawl_error *e) {
    const struct set_part *part = &set->parts[l->part];
    const struct slot_chunk *chunk = &part->info.chunks[l->chunk];
    if (l->code != PAWL_OK)
        return error_set(e, l->code, l->os_errno,
                         "%s/%s: chunk %" PRIu64 " of tensor '%.200s' and on: cannot read",
                         store_path(part->store), part->name, l->chunk, tensor_in(&part->info, chunk));
    uint8_t sum[SLOT_SUM_BYTES];
    hash128(l->target, chunk->bytes, sum);
    if (memcmp(sum, part->info.sums + l->chunk * SLOT_SUM_BYTES, sizeof sum) == 0) return PAWL_OK;
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%s/%s: chunk %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
        " of the file, tensor '%.200s' and on) does not match its checksum",
        store_path(part->store), part->name, l->chunk, part->info.header.data_offset + chunk->offset,
        part->info.header.data_offset + chunk->offset + chunk->bytes, tensor_in(&part->info, chunk));
}

/* Hands out the part of a verified chunk that the range wants. */
static void copy_out(const struct range *r, const struct slot_chunk *chunk, const struct set_line *l) {
    uint64_t from = chunk->offset > r->begin ? chunk->offset : r->begin;
    uint64_t to = chunk->offset + chunk->bytes < r->end ? chunk->offset + chunk->bytes : r->end;
    if (r->out == NULL || l->target != l->data) return;
    memcpy(r->out + (from - r->begin), l->data + (from - chunk->offset), to - from);
}

static pawl_code take_chunk(struct ckpt_set *set, struct range *r, uint64_t index, struct pawl_error *e) {
    struct set_line *l = line_find(set, r->part, index);
    while (l->state == LINE_READING) finish_one(set, r);
    pawl_code code = l->state == LINE_READ ? verify_line(set, l, e) : PAWL_OK;
    if (code == PAWL_OK) copy_out(r, &set->parts[r->part].info.chunks[index], l);
    /* Only what lies in the line's own memory can be kept. */
    bool keep = code == PAWL_OK && l->target == l->data;
    l->state = keep ? LINE_VERIFIED : LINE_EMPTY;
    l->used = ++set->clock;
    return code;
}

/* The chunk that holds byte `offset` of the data. */
static uint64_t chunk_at(const struct slot_info *s, uint64_t offset) {
    uint64_t low = 0, high = s->chunk_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (s->chunks[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t depth_of(const struct set_part *part, const struct range *r) {
    uint64_t largest = 1;
    for (uint64_t i = r->first; i <= r->last; i++)
        if (part->info.chunks[i].bytes > largest) largest = part->info.chunks[i].bytes;
    uint64_t depth = SET_LINE_BYTES / largest, most = store_depth(part->store);
    if (depth > most) depth = most;
    if (depth > SET_LINES) depth = SET_LINES;
    return depth == 0 ? 1 : depth;
}

pawl_code set_read_range(struct ckpt_set *set, uint32_t part, uint64_t begin, uint64_t bytes, uint8_t *out,
                         struct pawl_error *e) {
    const struct slot_info *s = &set->parts[part].info;
    if (bytes == 0) return PAWL_OK;
    pawl_code code = set_open_part(&set->parts[part], e);
    struct range r = {.part = part, .begin = begin, .end = begin + bytes, .out = out};
    r.first = r.next = chunk_at(s, begin);
    r.last = chunk_at(s, r.end - 1);
    uint64_t depth = depth_of(&set->parts[part], &r);
    for (uint64_t i = r.first; i <= r.last && code == PAWL_OK; i++) {
        bool more = true;
        r.first = i;
        while (more && code == PAWL_OK && r.next <= r.last && r.next < i + depth)
            more = start_chunk(set, &r, &code, e);
        if (code == PAWL_OK) code = take_chunk(set, &r, i, e);
    }
    while (r.in_flight > 0) finish_one(set, &r); /* the buffers are the caller's again */
    for (uint32_t i = 0; i < SET_LINES; i++)
        if (set->lines[i].state == LINE_READ) set->lines[i].state = LINE_EMPTY;
    return code;
}

/* ---- tensors ---- */

uint64_t set_row_bytes(const struct st_tensor *t) {
    uint64_t rows = t->rank == 0 ? 1 : t->shape[0];
    if (rows > 0) return t->bytes / rows;
    uint64_t bytes = st_dtype_bytes(t->dtype);
    for (uint32_t i = 1; i < t->rank; i++) bytes *= t->shape[i]; /* only of interest when 0 */
    return bytes;
}

static void shape_text(char *out, size_t size, enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape,
                       uint64_t rows) {
    size_t at = (size_t)snprintf(out, size, "%s[", st_dtype_name(dtype));
    for (uint32_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i > 0 ? "," : "", i == 0 ? rows : shape[i]);
    if (at < size) snprintf(out + at, size - at, "]");
}

static bool matches(const struct ckpt_set *set, const struct set_ref *ref, const struct pawl_tensor *want) {
    const struct slot_info *s = &set->parts[ref->part].info;
    const struct st_tensor *t = &s->header.tensors[ref->tensor];
    if (t->dtype != want->dtype || t->rank != want->rank) return false;
    if (t->rank > 0 && s->slices[ref->tensor].row_count != want->shape[0]) return false;
    for (uint32_t i = 1; i < t->rank; i++)
        if (t->shape[i] != want->shape[i]) return false;
    return true;
}

/* The refs of one name: [*first, end). */
static uint32_t find_name(const struct set_group *g, const char *name, uint32_t *first) {
    uint32_t low = 0, high = g->ref_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(g->refs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (low < g->ref_count && strcmp(g->refs[low].name, name) == 0) low++;
    return low;
}

static pawl_code check_want(const struct ckpt_set *set, const struct set_group *g,
                            const struct pawl_tensor *want, uint32_t first, uint32_t end,
                            struct pawl_error *e) {
    if (first == end)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 " has no tensor '%.200s'", g->step.step,
                         want->name);
    uint64_t rows = want->rank == 0 ? 1 : want->shape[0];
    for (uint32_t i = first; i < end; i++)
        if (matches(set, &g->refs[i], want)) return PAWL_OK;
    const struct slot_info *s = &set->parts[g->refs[first].part].info;
    const struct st_tensor *t = &s->header.tensors[g->refs[first].tensor];
    char stored[200], wanted[200];
    shape_text(stored, sizeof stored, t->dtype, t->rank, t->shape,
               s->slices[g->refs[first].tensor].row_count);
    shape_text(wanted, sizeof wanted, want->dtype, want->rank, want->shape, rows);
    return error_set(e, PAWL_FORMAT, 0, "step %" PRIu64 ", tensor '%.200s': stored as %s, wanted %s",
                     g->step.step, want->name, stored, wanted);
}

static pawl_code read_rows(struct ckpt_set *set, const struct set_ref *ref, uint64_t from, uint64_t to,
                           uint8_t *out, struct pawl_error *e) {
    const struct slot_info *s = &set->parts[ref->part].info;
    const struct st_tensor *t = &s->header.tensors[ref->tensor];
    uint64_t row_bytes = set_row_bytes(t), skip = from - s->slices[ref->tensor].row_begin;
    return set_read_range(set, ref->part, t->begin + skip * row_bytes, (to - from) * row_bytes, out, e);
}

struct rows { /* of a tensor, being read */
    const struct pawl_tensor *want;
    uint32_t first, end; /* refs */
    uint64_t at, row_end;
    uint8_t *out;
};

/* As many rows from r->at on as the first good source has. */
static pawl_code read_some(struct ckpt_set *set, struct set_group *g, struct rows *r, struct pawl_error *e) {
    pawl_code first_code = PAWL_OK;
    for (uint32_t i = r->first; i < r->end; i++) {
        const struct set_ref *ref = &g->refs[i];
        const struct slot_info *s = &set->parts[ref->part].info;
        const struct slot_slice *slice = &s->slices[ref->tensor];
        if (!matches(set, ref, r->want) || r->at < slice->row_begin || r->at >= slice->row_end) continue;
        uint64_t to = slice->row_end < r->row_end ? slice->row_end : r->row_end;
        struct pawl_error why = {0};
        pawl_code code = read_rows(set, ref, r->at, to, r->out, &why);
        if (code == PAWL_OK) {
            r->out += (to - r->at) * set_row_bytes(&s->header.tensors[ref->tensor]);
            r->at = to;
            return PAWL_OK;
        }
        set_problem(set, "%s", why.text);
        if (first_code == PAWL_OK && e != NULL) *e = why;
        if (first_code == PAWL_OK) first_code = code;
    }
    if (first_code != PAWL_OK) return first_code;
    return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 ", tensor '%.200s': no part holds row %" PRIu64,
                     g->step.step, r->want->name, r->at);
}

static struct set_group *group_at(struct ckpt_set *set, uint32_t index, struct pawl_error *e) {
    if (index < set->group_count) return &set->groups[index];
    error_set(e, PAWL_ARGUMENT, 0, "step %u of %u in the list", index, set->group_count);
    return NULL;
}

/* The rows of a slice that is whole in all other dimensions. */
static pawl_code rows_of(struct rows *r, struct pawl_error *e) {
    const struct pawl_tensor *want = r->want;
    r->row_end = want->rank == 0 ? 1 : want->shape[0];
    for (uint32_t i = 0; i < want->rank; i++) {
        uint64_t begin = want->begin != NULL ? want->begin[i] : 0;
        uint64_t extent = want->extent != NULL ? want->extent[i] : want->shape[i] - begin;
        if (begin > want->shape[i] || extent > want->shape[i] - begin || (i > 0 && extent != want->shape[i]))
            return error_set(e, PAWL_ARGUMENT, 0,
                             "tensor '%.200s', dimension %u: %" PRIu64 " from %" PRIu64 " on of %" PRIu64,
                             want->name, i, extent, begin, want->shape[i]);
        if (i == 0) r->at = begin;
        if (i == 0) r->row_end = begin + extent;
    }
    return PAWL_OK;
}

pawl_code ckpt_set_read(struct ckpt_set *set, uint32_t index, const struct pawl_tensor *want,
                        struct pawl_error *e) {
    struct set_group *g = group_at(set, index, e);
    if (g == NULL) return PAWL_ARGUMENT;
    struct rows r = {.want = want, .out = want->data};
    pawl_code code = rows_of(&r, e);
    if (code != PAWL_OK) return code;
    r.end = find_name(g, want->name, &r.first);
    code = check_want(set, g, want, r.first, r.end, e);
    while (code == PAWL_OK && r.at < r.row_end) code = read_some(set, g, &r, e);
    return code;
}

pawl_code ckpt_set_blob(struct ckpt_set *set, uint32_t index, uint32_t unit, const void **blob, size_t *bytes,
                        struct pawl_error *e) {
    *blob = NULL;
    *bytes = 0;
    const struct set_group *g = group_at(set, index, e);
    if (g == NULL) return PAWL_ARGUMENT;
    for (uint32_t i = 0; i < g->part_count; i++) {
        const struct slot_info *s = &set->parts[g->parts[i]].info;
        if (s->unit != unit || s->part != 0) continue;
        *blob = s->blob;
        *bytes = s->blob_bytes;
        return PAWL_OK;
    }
    return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 ": part 0 of unit %u is missing", g->step.step,
                     unit);
}

/* Every row of every tensor is in some part. */
static pawl_code check_cover(const struct ckpt_set *set, const struct set_group *g,
                             const struct ckpt_tensor *t, struct pawl_error *e) {
    uint32_t first = 0, end = find_name(g, t->name, &first);
    uint64_t rows = t->rank == 0 ? 1 : t->shape[0];
    for (uint64_t at = 0; at < rows;) {
        uint64_t to = at;
        for (uint32_t i = first; i < end; i++) {
            const struct slot_slice *s = &set->parts[g->refs[i].part].info.slices[g->refs[i].tensor];
            if (s->row_begin <= at && s->row_end > to && s->row_count == rows) to = s->row_end;
        }
        if (to == at)
            return error_set(e, PAWL_NOT_FOUND, 0,
                             "step %" PRIu64 ", tensor '%.200s': no part holds row %" PRIu64, g->step.step,
                             t->name, at);
        at = to;
    }
    return PAWL_OK;
}

pawl_code ckpt_set_verify(struct ckpt_set *set, uint32_t index, struct pawl_error *e) {
    struct set_group *g = group_at(set, index, e);
    if (g == NULL) return PAWL_ARGUMENT;
    if (!g->step.complete)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 " is incomplete: %s", g->step.step,
                         g->step.missing);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < g->part_count && code == PAWL_OK; i++) {
        uint32_t part = g->parts[i];
        code = set_read_range(set, part, 0, set->parts[part].info.header.data_bytes, NULL, e);
    }
    for (uint32_t i = 0; i < g->tensor_count && code == PAWL_OK; i++)
        code = check_cover(set, g, &g->tensors[i], e);
    return code;
}
