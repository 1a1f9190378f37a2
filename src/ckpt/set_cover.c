/* Which stored boxes serve what is wanted, and which chunks hold them.
 *
 * A wanted box is served by the first stored box that meets it, what is left of it by the next, in the order
 * of preference. What turns out to be damaged is covered anew from the sources behind it: only the rows that
 * have bytes in the damaged chunk. Every such step takes one chunk out of use, so it ends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/set.h"

/* ---- memory of a call ---- */

#define NUMBERS_ROOM ((size_t)8000)

uint64_t *set_call_numbers(struct set_call *call, size_t count) {
    struct set_numbers *block = call->numbers;
    if (block == NULL || block->room - block->used < count) {
        size_t room = count > NUMBERS_ROOM ? count : NUMBERS_ROOM;
        block = malloc(sizeof *block + room * sizeof block->at[0]);
        if (block == NULL) return NULL;
        block->next = call->numbers;
        block->used = 0;
        block->room = room;
        call->numbers = block;
    }
    uint64_t *at = block->at + block->used;
    block->used += count;
    return at;
}

void set_call_close(struct set_call *call) {
    while (call->numbers != NULL) {
        struct set_numbers *next = call->numbers->next;
        free(call->numbers);
        call->numbers = next;
    }
    free(call->wants);
    free(call->pieces);
    free(call->uses);
    free(call->bad);
}

static struct set_piece *add_piece(struct set_call *call) {
    if (call->piece_count == call->piece_room) {
        uint32_t room = call->piece_room == 0 ? 64 : 2 * call->piece_room;
        struct set_piece *pieces =
            room > call->piece_room ? realloc(call->pieces, room * sizeof *pieces) : NULL;
        if (pieces == NULL) return NULL;
        call->pieces = pieces;
        call->piece_room = room;
    }
    return &call->pieces[call->piece_count++];
}

pawl_code set_add_use(struct set_call *call, struct set_use use, struct pawl_error *e) {
    if (call->use_count == call->use_room) {
        size_t room = call->use_room == 0 ? 64 : 2 * call->use_room;
        struct set_use *uses = realloc(call->uses, room * sizeof *uses);
        if (uses == NULL) return set_no_memory(e);
        call->uses = uses;
        call->use_room = room;
    }
    use.store = call->set->parts[use.part].store_index;
    call->uses[call->use_count++] = use;
    return PAWL_OK;
}

/* ---- damage ---- */

pawl_code set_add_bad(struct set_call *call, uint32_t part, uint64_t chunk, const struct pawl_error *why,
                      struct pawl_error *e) {
    struct set_bad *bad = realloc(call->bad, ((size_t)call->bad_count + 1) * sizeof *bad);
    if (bad == NULL) return set_no_memory(e);
    call->bad = bad;
    bad[call->bad_count++] = (struct set_bad){part, chunk, *why};
    return PAWL_OK;
}

const struct set_bad *set_find_bad(const struct set_call *call, uint32_t part, uint64_t chunk) {
    for (uint32_t i = 0; i < call->bad_count; i++)
        if (call->bad[i].part == part && (call->bad[i].chunk == chunk || call->bad[i].chunk == UINT64_MAX))
            return &call->bad[i];
    return NULL;
}

/* ---- places ---- */

uint64_t set_chunk_at(const struct slot_info *s, uint64_t offset) {
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

static void runs_of(const struct set_call *call, uint32_t want, uint32_t ref, struct box x,
                    struct box_runs *runs) {
    const struct set_want *w = &call->wants[want];
    const struct set_ref *r = &call->group->refs[ref];
    const struct st_tensor *t = set_tensor_of(call->set, r);
    box_runs_make(runs, t->dtype, t->rank, x, set_box_of(call->set, r), (struct box){w->begin, w->extent});
    runs->from += t->begin;
}

void set_piece_runs(const struct set_call *call, uint32_t piece, struct box_runs *runs) {
    const struct set_piece *p = &call->pieces[piece];
    runs_of(call, p->want, p->ref, (struct box){p->begin, p->extent}, runs);
}

static bool touches(const struct box_runs *runs, const struct slot_chunk *chunk) {
    uint64_t i = box_runs_after(runs, chunk->offset), from, to;
    if (i == runs->count) return false;
    box_runs_at(runs, i, &from, &to);
    return from < chunk->offset + chunk->bytes;
}

/* Why box x cannot be had from this source; null: it can. */
static const struct set_bad *blocked(const struct set_call *call, uint32_t want, uint32_t ref, struct box x) {
    uint32_t part = call->group->refs[ref].part;
    struct box_runs runs;
    bool made = false;
    for (uint32_t i = call->bad_count; i-- > 0;) { /* the newest first: it is why this is asked */
        const struct set_bad *bad = &call->bad[i];
        if (bad->part != part) continue;
        if (bad->chunk == UINT64_MAX) return bad;
        if (!made) runs_of(call, want, ref, x, &runs);
        made = true;
        if (touches(&runs, &call->set->parts[part].info.chunks[bad->chunk])) return bad;
    }
    return NULL;
}

/* ---- covering ---- */

static bool matches(const struct set_call *call, uint32_t ref, const struct pawl_tensor *want) {
    const struct set_ref *r = &call->group->refs[ref];
    const struct st_tensor *t = set_tensor_of(call->set, r);
    return t->dtype == want->dtype && t->rank == want->rank &&
           (t->rank == 0 ||
            memcmp(set_slice_of(call->set, r)->shape, want->shape, t->rank * sizeof *want->shape) == 0);
}

static pawl_code add_source(struct set_call *call, uint32_t want, uint32_t ref, struct box x,
                            struct pawl_error *e) {
    uint32_t rank = call->wants[want].tensor->rank;
    uint64_t *numbers = set_call_numbers(call, 2 * (size_t)rank);
    struct set_piece *p = numbers != NULL ? add_piece(call) : NULL;
    if (p == NULL) return set_no_memory(e);
    if (rank > 0) memcpy(numbers, x.begin, rank * sizeof *numbers);
    if (rank > 0) memcpy(numbers + rank, x.extent, rank * sizeof *numbers);
    *p = (struct set_piece){want, ref, numbers, numbers + rank};
    return PAWL_OK;
}

/* Takes from source `ref` what it has of the boxes in `rest`, which then hold what is left. */
static pawl_code take_from(struct set_call *call, uint32_t want, uint32_t ref, struct box_list *rest,
                           const struct set_bad **damage, struct pawl_error *e) {
    uint64_t begin[BOX_RANK_MAX], extent[BOX_RANK_MAX];
    struct box x = {begin, extent}, stored = set_box_of(call->set, &call->group->refs[ref]);
    pawl_code code = PAWL_OK;
    /* From the last on: a cut appends what lies outside of this source, and moves down what was looked at. */
    for (uint32_t i = rest->count; i-- > 0 && code == PAWL_OK && !rest->failed;) {
        if (!box_meet(rest->rank, box_list_at(rest, i), stored, begin, extent)) continue;
        const struct set_bad *bad = blocked(call, want, ref, x);
        if (bad != NULL) {
            if (*damage == NULL) *damage = bad;
            continue;
        }
        code = add_source(call, want, ref, x, e);
        if (code == PAWL_OK) box_list_cut(rest, i, x);
    }
    return code;
}

static pawl_code hole(const struct set_call *call, uint32_t want, struct box b, struct pawl_error *e) {
    const struct pawl_tensor *t = call->wants[want].tensor;
    const struct ckpt_step *step = &call->group->step;
    char place[200] = "it";
    size_t at = t->rank == 0 ? 0 : (size_t)snprintf(place, sizeof place, "row %" PRIu64, b.begin[0]);
    for (uint32_t i = 1; i < t->rank && at < sizeof place; i++)
        at += (size_t)snprintf(place + at, sizeof place - at, "%s%" PRIu64, i > 1 ? "," : ", element ",
                               b.begin[i]);
    return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 ", tensor '%.200s': no part holds %s%s%s",
                     step->step, t->name, place, step->missing[0] != 0 ? "; missing: " : "", step->missing);
}

pawl_code set_cover(struct set_call *call, uint32_t want, struct box b, struct pawl_error *e) {
    const struct set_want *w = &call->wants[want];
    struct box_list rest = {.rank = w->tensor->rank};
    const struct set_bad *damage = NULL;
    pawl_code code = PAWL_OK;
    box_list_add(&rest, b);
    for (uint32_t i = w->first; i < w->end && code == PAWL_OK && rest.count > 0 && !rest.failed; i++)
        if (matches(call, i, w->tensor)) code = take_from(call, want, i, &rest, &damage, e);
    if (code == PAWL_OK && rest.failed) code = set_no_memory(e);
    if (code == PAWL_OK && rest.count > 0 && damage != NULL) {
        code = damage->error.code;
        if (e != NULL) *e = damage->error;
    } else if (code == PAWL_OK && rest.count > 0) {
        code = hole(call, want, box_list_at(&rest, 0), e);
    }
    box_list_close(&rest);
    return code;
}

/* Narrows the box x of a stored box to the indices that have bytes in `chunk`: in the first dimension in
 * which these are several, whole bytes of them. */
static void narrow(const struct st_tensor *t, const struct slot_slice *slice, const struct slot_chunk *chunk,
                   uint64_t *begin, uint64_t *extent) {
    uint64_t from = chunk->offset > t->begin ? (chunk->offset - t->begin) * 8 : 0;
    uint64_t to = (chunk->offset + chunk->bytes - t->begin) * 8, step = t->bytes * 8;
    if (to > step) to = step;
    for (uint32_t d = 0; d < t->rank; d++) {
        step /= t->shape[d];
        uint64_t grain = box_grain(t->dtype, t->rank, slice->shape, d), first = slice->begin[d];
        uint64_t low = first + from / step, high = first + (to + step - 1) / step;
        bool single = high - low == 1 && grain == 1;
        low -= low % grain;
        high = (high + grain - 1) / grain * grain;
        uint64_t end = begin[d] + extent[d];
        if (low > begin[d]) begin[d] = low;
        extent[d] = (high < end ? high : end) - begin[d];
        if (!single) return;
        from -= (low - first) * step;
        to -= (low - first) * step;
    }
}

pawl_code set_replace(struct set_call *call, uint32_t piece, uint64_t chunk, struct pawl_error *e) {
    uint64_t begin[BOX_RANK_MAX], extent[BOX_RANK_MAX];
    const struct set_piece *p = &call->pieces[piece];
    const struct set_ref *ref = &call->group->refs[p->ref];
    const struct st_tensor *t = set_tensor_of(call->set, ref);
    if (t->rank > 0) memcpy(begin, p->begin, t->rank * sizeof *begin);
    if (t->rank > 0) memcpy(extent, p->extent, t->rank * sizeof *extent);
    narrow(t, set_slice_of(call->set, ref), &call->set->parts[ref->part].info.chunks[chunk], begin, extent);
    return set_cover(call, p->want, (struct box){begin, extent}, e);
}

/* ---- chunks ---- */

static int in_reading_order(const void *x, const void *y) {
    const struct set_use *a = x, *b = y;
    if (a->store != b->store) return a->store < b->store ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

/* Every chunk that holds bytes of the piece. */
static pawl_code list_piece(struct set_call *call, uint32_t piece, struct pawl_error *e) {
    uint32_t part = call->group->refs[call->pieces[piece].ref].part;
    const struct slot_info *s = &call->set->parts[part].info;
    struct box_runs runs;
    set_piece_runs(call, piece, &runs);
    pawl_code code = PAWL_OK;
    for (uint64_t at = runs.from, from, to; code == PAWL_OK;) {
        uint64_t i = box_runs_after(&runs, at);
        if (i == runs.count) break;
        box_runs_at(&runs, i, &from, &to);
        uint64_t first = from > at ? from : at, chunk = set_chunk_at(s, first);
        code =
            set_add_use(call, (struct set_use){.part = part, .piece = piece, .chunk = chunk, .at = first}, e);
        at = s->chunks[chunk].offset + s->chunks[chunk].bytes;
    }
    return code;
}

void set_sort_uses(struct set_call *call) {
    if (call->use_count > 1) qsort(call->uses, call->use_count, sizeof *call->uses, in_reading_order);
}

pawl_code set_list_uses(struct set_call *call, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    call->use_count = 0;
    for (; call->piece_next < call->piece_count && code == PAWL_OK; call->piece_next++)
        code = list_piece(call, call->piece_next, e);
    set_sort_uses(call);
    return code;
}
