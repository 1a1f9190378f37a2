/* The calls that read tensors of a step. What serves them is found by set_cover.c, fetched by set_fetch.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/set.h"

/* Large blocks are split so that the device has several to work on. */
#define READ_PIECE_BYTES ((size_t)4 << 20)

/* ---- blocks of headers ---- */

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

/* ---- what is wanted ---- */

static void shape_text(char *out, size_t size, enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape) {
    size_t at = (size_t)snprintf(out, size, "%s[", st_dtype_name(dtype));
    for (uint32_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i > 0 ? "," : "", shape[i]);
    if (at < size) snprintf(out + at, size - at, "]");
}

static pawl_code bad_want(const struct pawl_tensor *t, const char *field, const char *wanted,
                          struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "tensor '%.200s': %s: wanted %s", t->name != NULL ? t->name : "",
                     field, wanted);
}

static pawl_code check_want(struct set_call *call, struct set_want *w, struct pawl_error *e) {
    const struct pawl_tensor *t = w->tensor;
    if (t->name == NULL) return bad_want(t, "name", "an address", e);
    if (pawl_dtype_bits(t->dtype) == 0) return bad_want(t, "dtype", "a known one", e);
    if (t->rank > BOX_RANK_MAX) return bad_want(t, "rank", "at most 64", e);
    if (t->rank > 0 && t->shape == NULL) return bad_want(t, "shape", "an address", e);
    uint64_t *numbers = set_call_numbers(call, 2 * (size_t)t->rank);
    if (numbers == NULL) return set_no_memory(e);
    box_of(t, numbers, numbers + t->rank);
    w->begin = numbers;
    w->extent = numbers + t->rank;
    const char *wanted = NULL;
    const char *field =
        box_check(t->dtype, t->rank, t->shape, (struct box){w->begin, w->extent}, &w->bytes, &wanted);
    if (field != NULL) return bad_want(t, field, wanted, e);
    if (w->bytes > 0 && t->data == NULL) return bad_want(t, "data", "an address", e);
    if (t->memory != NULL && t->memory->copy_in == NULL)
        return bad_want(t, "memory", "one that can be restored into", e);
    return PAWL_OK;
}

/* Is there a tensor of this name, type and shape? */
static pawl_code check_stored(const struct set_call *call, struct set_want *w, struct pawl_error *e) {
    const struct set_group *g = call->group;
    const struct pawl_tensor *t = w->tensor;
    w->end = set_find_name(g, t->name, &w->first);
    if (w->first == w->end)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 " has no tensor '%.200s'%s%s", g->step.step,
                         t->name, g->step.missing[0] != 0 ? "; missing: " : "", g->step.missing);
    char stored[200], wanted[200];
    shape_text(wanted, sizeof wanted, t->dtype, t->rank, t->shape);
    for (uint32_t i = w->first; i < w->end; i++) {
        const struct st_tensor *s = set_tensor_of(call->set, &g->refs[i]);
        const uint64_t *shape = set_slice_of(call->set, &g->refs[i])->shape;
        if (s->dtype == t->dtype && s->rank == t->rank &&
            (t->rank == 0 || memcmp(shape, t->shape, t->rank * sizeof *shape) == 0))
            return PAWL_OK;
        if (i == w->first) shape_text(stored, sizeof stored, s->dtype, s->rank, shape);
    }
    return error_set(e, PAWL_FORMAT, 0, "step %" PRIu64 ", tensor '%.200s': stored as %s, wanted %s",
                     g->step.step, t->name, stored, wanted);
}

static pawl_code add_want(struct set_call *call, const struct pawl_tensor *t, struct pawl_error *e) {
    struct set_want *w = &call->wants[call->want_count];
    *w = (struct set_want){.tensor = t};
    pawl_code code = check_want(call, w, e);
    if (code == PAWL_OK) code = check_stored(call, w, e);
    if (code != PAWL_OK) return code;
    call->want_count++;
    return w->bytes == 0 ? PAWL_OK
                         : set_cover(call, call->want_count - 1, (struct box){w->begin, w->extent}, e);
}

/* ---- calls ---- */

static struct set_group *group_at(struct ckpt_set *set, uint32_t index, struct pawl_error *e) {
    if (index < set->group_count) return &set->groups[index];
    error_set(e, PAWL_ARGUMENT, 0, "step %u of %u in the list", index, set->group_count);
    return NULL;
}

pawl_code ckpt_set_read_many(struct ckpt_set *set, uint32_t index, const struct pawl_tensor *want,
                             uint32_t count, struct pawl_error *e) {
    struct set_call call = {.set = set, .group = group_at(set, index, e)};
    if (call.group == NULL) return PAWL_ARGUMENT;
    call.wants = calloc((size_t)count + 1, sizeof *call.wants);
    pawl_code code = call.wants == NULL ? set_no_memory(e) : PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = add_want(&call, &want[i], e);
    while (code == PAWL_OK && call.piece_next < call.piece_count) { /* once, and again after damage */
        code = set_list_uses(&call, e);
        if (code == PAWL_OK) code = set_fetch(&call, e);
    }
    set_call_close(&call);
    return code;
}

pawl_code ckpt_set_read(struct ckpt_set *set, uint32_t index, const struct pawl_tensor *want,
                        struct pawl_error *e) {
    return ckpt_set_read_many(set, index, want, 1, e);
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

/* ---- verifying ---- */

/* Every chunk of every part, each by itself. */
static pawl_code verify_chunks(struct set_call *call, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < call->group->part_count && code == PAWL_OK; i++) {
        uint32_t part = call->group->parts[i];
        for (uint64_t k = 0; k < call->set->parts[part].info.chunk_count && code == PAWL_OK; k++)
            code = set_add_use(call, (struct set_use){.part = part, .piece = SET_NO_PIECE, .chunk = k}, e);
    }
    if (code == PAWL_OK) set_sort_uses(call);
    return code == PAWL_OK ? set_fetch(call, e) : code;
}

/* Every element of every tensor is in some part. */
static pawl_code verify_cover(struct set_call *call, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    static const uint8_t nowhere; /* nothing is read, so nothing is written there */
    for (uint32_t i = 0; i < call->group->tensor_count && code == PAWL_OK; i++) {
        const struct ckpt_tensor *t = &call->group->tensors[i];
        struct pawl_tensor whole = {.name = t->name,
                                    .dtype = t->dtype,
                                    .rank = t->rank,
                                    .shape = t->shape,
                                    .data = (void *)(uintptr_t)&nowhere};
        call->want_count = call->piece_count = 0;
        code = add_want(call, &whole, e);
    }
    return code;
}

pawl_code ckpt_set_verify(struct ckpt_set *set, uint32_t index, struct pawl_error *e) {
    struct set_call call = {.set = set, .group = group_at(set, index, e)};
    if (call.group == NULL) return PAWL_ARGUMENT;
    if (!call.group->step.complete)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 " is incomplete: %s", call.group->step.step,
                         call.group->step.missing);
    call.wants = calloc(1, sizeof *call.wants);
    pawl_code code = call.wants == NULL ? set_no_memory(e) : verify_chunks(&call, e);
    if (code == PAWL_OK) code = verify_cover(&call, e);
    set_call_close(&call);
    return code;
}
