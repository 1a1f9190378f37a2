/* Verified chunks to where they are wanted: where one can be read to as it is; the process's own memory by
 * plain copies; memory of another kind by its own, which end whenever they like, on any thread. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/set_fetch.h"

/* Copies into other kinds of memory under way at once. */
#define COPIES_MAX 64u

/* ---- uses of a chunk ---- */

size_t fetch_uses_end(const struct set_call *call, size_t first) {
    size_t i = first;
    while (i < call->use_count && call->uses[i].part == call->uses[first].part &&
           call->uses[i].chunk == call->uses[first].chunk)
        i++;
    return i;
}

/* Where a chunk would begin in memory if all of it went where the piece has its bytes of it, of which there
 * are *bytes; null: they are not one run, or of another kind of memory. */
static uint8_t *place_of(const struct set_call *call, uint32_t piece, const struct slot_chunk *chunk,
                         uint64_t *bytes) {
    const struct pawl_tensor *want = call->wants[call->pieces[piece].want].tensor;
    uint64_t end = chunk->offset + chunk->bytes, from, to;
    struct box_runs runs;
    if (want->memory != NULL) return NULL;
    set_piece_runs(call, piece, &runs);
    uint64_t i = box_runs_after(&runs, chunk->offset);
    box_runs_at(&runs, i, &from, &to); /* there is one: the chunk is listed for its sake */
    if (from + runs.bytes < end && i + 1 < runs.count) {
        uint64_t next, unused;
        box_runs_at(&runs, i + 1, &next, &unused);
        if (next < end) return NULL;
    }
    uint64_t first = from > chunk->offset ? from : chunk->offset;
    *bytes = (from + runs.bytes < end ? from + runs.bytes : end) - first;
    /* As numbers: the place may lie before the tensor's own memory. */
    uintptr_t place = (uintptr_t)want->data + to;
    return (uint8_t *)(chunk->offset < from ? place - (from - chunk->offset)
                                            : place + (chunk->offset - from));
}

uint8_t *fetch_direct_target(const struct fetch *f, size_t first, const struct slot_chunk *chunk) {
    const struct set_call *call = f->call;
    uint8_t *target = NULL;
    uint64_t at = chunk->offset, bytes = 0;
    for (size_t i = first, end = fetch_uses_end(call, first); i < end; i++) {
        if (call->uses[i].piece == SET_NO_PIECE || call->uses[i].at != at) return NULL;
        uint8_t *place = place_of(call, call->uses[i].piece, chunk, &bytes);
        if (place == NULL || (uintptr_t)place % STORE_BLOCK != 0 || (i > first && place != target))
            return NULL;
        target = place;
        at += bytes;
    }
    return at == chunk->offset + chunk->bytes ? target : NULL; /* filler goes nowhere */
}

/* ---- copies into other kinds of memory ---- */

static void copy_done(struct pawl_copy *base, pawl_code code) {
    struct fetch_copy *copy = (struct fetch_copy *)base;
    struct fetch *f = copy->fetch;
    pthread_mutex_lock(&f->mutex);
    copy->code = code;
    copy->next = f->finished;
    f->finished = copy;
    pthread_cond_signal(&f->ended);
    pthread_mutex_unlock(&f->mutex);
}

static void copy_failed(struct fetch *f, const struct pawl_memory *memory, pawl_code code, const char *why) {
    if (f->code != PAWL_OK) return;
    fetch_stop(f, error_set(&f->error, code, 0, "%.100s: copying in failed: %.500s",
                            memory->name != NULL ? memory->name : "memory", why));
}

void fetch_collect_copies(struct fetch *f, bool wait) {
    pthread_mutex_lock(&f->mutex);
    while (wait && f->finished == NULL) pthread_cond_wait(&f->ended, &f->mutex);
    struct fetch_copy *copy = f->finished;
    f->finished = NULL;
    pthread_mutex_unlock(&f->mutex);
    while (copy != NULL) {
        struct fetch_copy *next = copy->next;
        struct set_line *l = &f->set->lines[copy->line];
        if (copy->code != PAWL_OK) copy_failed(f, copy->memory, copy->code, pawl_code_text(copy->code));
        f->copies_busy--;
        if (--l->copies == 0 && l->state == LINE_COPYING) l->state = LINE_VERIFIED;
        copy->next = f->free_copies;
        f->free_copies = copy;
        copy = next;
    }
}

static bool have_copies(struct fetch *f) {
    if (f->copies != NULL) return true;
    f->copies = calloc(COPIES_MAX, sizeof *f->copies);
    for (uint32_t i = 0; f->copies != NULL && i < COPIES_MAX; i++) {
        f->copies[i] = (struct fetch_copy){.base.done = copy_done, .fetch = f, .next = f->free_copies};
        f->free_copies = &f->copies[i];
    }
    if (f->copies == NULL) fetch_stop(f, set_no_memory(&f->error));
    return f->copies != NULL;
}

static void copy_in(struct fetch *f, struct set_line *l, const struct pawl_memory *memory, uint8_t *target,
                    const uint8_t *source, uint64_t bytes) {
    if (!have_copies(f)) return;
    while (f->free_copies == NULL) fetch_collect_copies(f, true);
    if (f->code != PAWL_OK) return;
    struct fetch_copy *copy = f->free_copies;
    f->free_copies = copy->next;
    copy->line = (uint32_t)(l - f->set->lines);
    copy->memory = memory;
    l->copies++;
    f->copies_busy++;
    struct pawl_error e = {0};
    pawl_code code = memory->copy_in(memory->context, source, target, bytes, &copy->base, &e);
    if (code == PAWL_OK) return;
    l->copies--;
    f->copies_busy--;
    copy->next = f->free_copies;
    f->free_copies = copy;
    copy_failed(f, memory, code, e.text[0] != 0 ? e.text : pawl_code_text(code));
}

/* ---- handing out ---- */

struct part { /* of a piece, in one chunk */
    uint8_t *target;
    const uint8_t *source;
    uint64_t bytes;
};

struct parts {
    struct box_runs runs;
    uint64_t next;
    const struct slot_chunk *chunk;
    const struct set_line *line;
    uint8_t *data; /* of what is wanted */
};

static struct parts parts_of(const struct set_call *call, const struct set_line *l, uint32_t piece) {
    const struct slot_chunk *chunk = &call->set->parts[l->part].info.chunks[l->chunk];
    struct parts p = {.chunk = chunk, .line = l, .data = call->wants[call->pieces[piece].want].tensor->data};
    set_piece_runs(call, piece, &p.runs);
    p.next = box_runs_after(&p.runs, chunk->offset);
    return p;
}

static bool parts_next(struct parts *p, struct part *out) {
    uint64_t end = p->chunk->offset + p->chunk->bytes, from, to;
    if (p->next >= p->runs.count) return false;
    box_runs_at(&p->runs, p->next++, &from, &to);
    if (from >= end) return false;
    uint64_t first = from > p->chunk->offset ? from : p->chunk->offset;
    uint64_t stop_at = from + p->runs.bytes < end ? from + p->runs.bytes : end;
    *out = (struct part){p->data + to + (first - from), p->line->data + (first - p->chunk->offset),
                         stop_at - first};
    return true;
}

static const struct pawl_memory *memory_of(const struct set_call *call, uint32_t piece) {
    return call->wants[call->pieces[piece].want].tensor->memory;
}

bool fetch_deliver_plain(const struct set_call *call, const struct set_line *l) {
    size_t end = fetch_uses_end(call, l->job);
    for (size_t i = l->job; i < end; i++) {
        uint32_t piece = call->uses[i].piece;
        if (piece != SET_NO_PIECE && memory_of(call, piece) != NULL) return false;
    }
    for (size_t i = l->job; i < end; i++) {
        if (call->uses[i].piece == SET_NO_PIECE) continue;
        struct parts parts = parts_of(call, l, call->uses[i].piece);
        for (struct part p; parts_next(&parts, &p);) memcpy(p.target, p.source, p.bytes);
    }
    return true;
}

/* The bytes of one piece that are in a verified chunk. */
static void deliver(struct fetch *f, struct set_line *l, uint32_t piece) {
    const struct pawl_memory *memory = memory_of(f->call, piece);
    struct parts parts = parts_of(f->call, l, piece);
    for (struct part p; f->code == PAWL_OK && parts_next(&parts, &p);)
        if (memory == NULL)
            memcpy(p.target, p.source, p.bytes);
        else
            copy_in(f, l, memory, p.target, p.source, p.bytes);
}

void fetch_deliver(struct fetch *f, struct set_line *l, size_t first) {
    for (size_t i = first, end = fetch_uses_end(f->call, first); i < end && f->code == PAWL_OK; i++)
        if (f->call->uses[i].piece != SET_NO_PIECE) deliver(f, l, f->call->uses[i].piece);
}
