/* Verified chunks to where they are wanted: where one can be read to as it is; the process's own memory by
 * plain copies; memory of another kind by its own, which end whenever they like, on any thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "ckpt/set_fetch.h"

/* Copies into other kinds of memory under way at once. */
#define COPIES_MAX 64u
/* Less is not worth a system call. */
#define POPULATE_BYTES_MIN ((uint64_t)64 << 10)
/* Of a chunk that is streamed: what is read, summed and handed out together stays in a processor's own cache.
 */
#define STREAM_BYTES ((uint64_t)256 << 10)

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

struct span { /* bytes of a slot's data that are in memory */
    uint64_t begin, end;
    const uint8_t *bytes;
};

struct parts {
    struct box_runs runs;
    uint64_t next;
    struct span span;
    uint8_t *data; /* of what is wanted */
};

static struct span span_of(const struct set_call *call, const struct set_line *l) {
    const struct slot_chunk *chunk = &call->set->parts[l->part].info.chunks[l->chunk];
    return (struct span){chunk->offset, chunk->offset + chunk->bytes, l->data};
}

static struct parts parts_of(const struct set_call *call, struct span span, uint32_t piece) {
    struct parts p = {.span = span, .data = call->wants[call->pieces[piece].want].tensor->data};
    set_piece_runs(call, piece, &p.runs);
    p.next = box_runs_after(&p.runs, span.begin);
    return p;
}

static bool parts_next(struct parts *p, struct part *out) {
    uint64_t begin = p->span.begin, end = p->span.end, from, to;
    if (p->next >= p->runs.count) return false;
    box_runs_at(&p->runs, p->next++, &from, &to);
    if (from >= end) return false;
    uint64_t first = from > begin ? from : begin;
    uint64_t stop_at = from + p->runs.bytes < end ? from + p->runs.bytes : end;
    *out = (struct part){p->data + to + (first - from), p->span.bytes + (first - begin), stop_at - first};
    return true;
}

static const struct pawl_memory *memory_of(const struct set_call *call, uint32_t piece) {
    return call->wants[call->pieces[piece].want].tensor->memory;
}

/* Pages that were never touched come one by one, each by an interrupt, unless they are asked for together.
 * Only a hint: older kernels do not know it, and pages that are there cost nothing. */
static void populate(const uint8_t *target, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    uintptr_t begin = (uintptr_t)target & ~(uintptr_t)(STORE_BLOCK - 1), end = (uintptr_t)target + bytes;
    if (bytes >= POPULATE_BYTES_MIN) (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
#else
    (void)target;
    (void)bytes;
#endif
}

bool fetch_is_plain(const struct set_call *call, size_t first) {
    for (size_t i = first, end = fetch_uses_end(call, first); i < end; i++)
        if (call->uses[i].piece != SET_NO_PIECE && memory_of(call, call->uses[i].piece) != NULL) return false;
    return true;
}

/* What is wanted of the span, of the uses [first, end) of its chunk. */
static void copy_plain(const struct set_call *call, size_t first, size_t end, struct span span) {
    for (size_t i = first; i < end && call->uses[i].at < span.end; i++) {
        if (call->uses[i].piece == SET_NO_PIECE) continue;
        struct parts parts = parts_of(call, span, call->uses[i].piece);
        for (struct part p; parts_next(&parts, &p);) {
            populate(p.target, p.bytes);
            memcpy(p.target, p.source, p.bytes);
        }
    }
}

bool fetch_deliver_plain(const struct set_call *call, const struct set_line *l) {
    if (!fetch_is_plain(call, l->job)) return false;
    copy_plain(call, l->job, fetch_uses_end(call, l->job), span_of(call, l));
    return true;
}

/* The place for the whole span where it goes to one as it is; null: it goes to several, or in parts. */
static uint8_t *whole_target(const struct set_call *call, size_t first, size_t end, struct span span) {
    uint8_t *target = NULL;
    for (size_t i = first; i < end && call->uses[i].at < span.end; i++) {
        struct parts parts = parts_of(call, span, call->uses[i].piece);
        struct part p;
        if (!parts_next(&parts, &p)) continue;
        if (target != NULL || p.bytes < span.end - span.begin) return NULL;
        target = p.target;
    }
    return target;
}

bool fetch_stream(const struct set_call *call, const struct set_line *l) {
    const struct set_part *part = &call->set->parts[l->part];
    const struct slot_chunk *chunk = &part->info.chunks[l->chunk];
    size_t end = fetch_uses_end(call, l->job);
    bool own = l->target == l->data;
    struct hash_stream hash;
    hash_stream_begin(&hash);
    for (uint64_t at = 0, bytes; at < chunk->bytes; at += bytes) {
        bytes = chunk->bytes - at < STREAM_BYTES ? chunk->bytes - at : STREAM_BYTES;
        struct span span = {chunk->offset + at, chunk->offset + at + bytes, l->data};
        uint8_t *place = own ? whole_target(call, l->job, end, span) : l->target + at;
        uint8_t *to = place != NULL ? place : l->data;
        if (place != NULL) populate(place, bytes);
        if (!store_read_cached(part->file, part->info.header.data_offset + span.begin, to, bytes))
            return false;
        hash_stream_add(&hash, to, bytes);
        if (place == NULL) copy_plain(call, l->job, end, span);
    }
    uint8_t sum[SLOT_SUM_BYTES];
    hash_stream_end(&hash, sum);
    return memcmp(sum, part->info.sums + l->chunk * SLOT_SUM_BYTES, sizeof sum) == 0;
}

/* The bytes of one piece that are in a verified chunk. */
static void deliver(struct fetch *f, struct set_line *l, uint32_t piece) {
    const struct pawl_memory *memory = memory_of(f->call, piece);
    struct parts parts = parts_of(f->call, span_of(f->call, l), piece);
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
