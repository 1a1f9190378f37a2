/* The staging pool: chunks are copied here before they are written, when they cannot be written from where
 * they lie or the caller wants its memory back.
 *
 * The process's own memory is copied at once, by the engine's thread. Other kinds of memory copy by
 * themselves, many copies at once, and call pawl_copy_done from wherever they like: that only notes the end
 * in a list and wakes the engine. The pool is taken at open and never grows: who needs a buffer waits until a
 * write gives one back, and writes never wait for buffers, so one buffer is enough to get on. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ckpt/engine.h"

/* ---- opening and closing ---- */

/* A copy's end, in any thread. All of it under the mutex: once that is free again, the engine may be gone. */
static void copy_done(struct pawl_copy *base, pawl_code code) {
    struct engine_copy *copy = (struct engine_copy *)base;
    struct ckpt *c = copy->engine;
    pthread_mutex_lock(&c->mutex);
    copy->code = code;
    copy->next = c->finished;
    c->finished = copy;
    engine_call(c);
    pthread_mutex_unlock(&c->mutex);
}

pawl_code staging_open(struct ckpt *c, struct pawl_error *e) {
    struct engine_pool *p = &c->pool;
    uint64_t count = c->config.staging_bytes / c->config.chunk_bytes;
    if (count == 0) count = 1;
    if (count > UINT32_MAX - 1) count = UINT32_MAX - 1;
    p->count = (uint32_t)count;
    p->bytes = (size_t)(count * c->config.chunk_bytes);
    p->memory = mem_alloc(p->bytes);
    if (p->memory != NULL) p->buffers = calloc(p->count, sizeof *p->buffers);
    p->free_first = ENGINE_NONE;
    p->stalled = (struct engine_list){ENGINE_NONE, ENGINE_NONE};
    if (p->memory == NULL || p->buffers == NULL)
        return error_set(e, PAWL_MEMORY, 0, "%s: no %zu bytes of staging memory", store_path(c->store),
                         p->bytes);
    for (uint32_t i = p->count; i > 0; i--) staging_free(c, i - 1);
    for (uint32_t i = 0; i < ENGINE_COPIES_MAX; i++) {
        p->copies[i].base.done = copy_done;
        p->copies[i].engine = c;
        p->copies[i].next = p->free_copies;
        p->free_copies = &p->copies[i];
    }
    store_register(c->store, p->memory, p->bytes);
    return PAWL_OK;
}

void ckpt_staging(const struct ckpt *c, uint64_t *bytes, uint64_t *used_bytes) {
    *bytes = c->pool.bytes;
    *used_bytes = c->pool.used * c->config.chunk_bytes;
}

void staging_close(struct ckpt *c) {
    struct engine_pool *p = &c->pool;
    for (uint32_t i = 0; i < p->kind_count; i++)
        if (p->kinds[i].unpin != NULL) p->kinds[i].unpin(p->kinds[i].context, p->memory, p->bytes);
    if (p->memory != NULL) store_unregister(c->store, p->memory);
    mem_free(p->memory, p->bytes);
    free(p->buffers);
}

/* Once per kind of memory; a kind is its functions and context, wherever its description lies. */
static void pin(struct engine_pool *p, const struct pawl_memory *memory) {
    for (uint32_t i = 0; i < p->kind_count; i++)
        if (p->kinds[i].context == memory->context && p->kinds[i].copy_out == memory->copy_out) return;
    if (memory->pin == NULL || p->kind_count == ENGINE_KINDS_MAX) return;
    p->kinds[p->kind_count] = *memory;
    if (memory->pin(memory->context, p->memory, p->bytes) != PAWL_OK) p->kinds[p->kind_count].unpin = NULL;
    p->kind_count++;
}

/* ---- lists of buffers ---- */

uint8_t *staging_data(struct ckpt *c, uint32_t buffer) {
    return c->pool.memory + (size_t)buffer * c->config.chunk_bytes;
}

void staging_free(struct ckpt *c, uint32_t buffer) {
    c->pool.buffers[buffer].next = c->pool.free_first;
    c->pool.free_first = buffer;
}

static uint32_t take_free(struct engine_pool *p) {
    uint32_t buffer = p->free_first;
    p->free_first = p->buffers[buffer].next;
    if (buffer >= p->used) p->used = buffer + 1; /* a higher one is taken only when all lower ones are */
    return buffer;
}

static void append(struct engine_pool *p, struct engine_list *list, uint32_t buffer) {
    p->buffers[buffer].next = ENGINE_NONE;
    if (list->first == ENGINE_NONE)
        list->first = buffer;
    else
        p->buffers[list->last].next = buffer;
    list->last = buffer;
}

static uint32_t take_first(struct engine_pool *p, struct engine_list *list) {
    uint32_t buffer = list->first;
    if (buffer != ENGINE_NONE) list->first = p->buffers[buffer].next;
    return buffer;
}

uint32_t staging_take_ready(struct ckpt *c, uint32_t save) {
    return take_first(&c->pool, &c->jobs[save]->ready);
}

void staging_drop(struct ckpt *c, uint32_t save) {
    for (uint32_t buffer = staging_take_ready(c, save); buffer != ENGINE_NONE;
         buffer = staging_take_ready(c, save))
        staging_free(c, buffer);
}

/* ---- copying ---- */

/* Memory of the process's own, in pieces that are still in the cache when their checksum is taken. */
#define PIECE_BYTES ((uint64_t)128 << 10)

static void gather(struct slot_plan *plan, uint64_t number, uint8_t *out, bool sum) {
    const struct slot_chunk *chunk = &plan->chunks[number];
    struct hash_stream stream;
    if (sum) hash_stream_begin(&stream);
    for (uint64_t at = 0; at < chunk->bytes; at += PIECE_BYTES) {
        uint64_t left = chunk->bytes - at;
        struct slot_chunk piece = {chunk->offset + at, left < PIECE_BYTES ? left : PIECE_BYTES, NULL};
        slot_plan_gather(plan, &piece, out + at);
        if (sum) hash_stream_add(&stream, out + at, piece.bytes);
    }
    if (sum) hash_stream_end(&stream, plan->sums + number * SLOT_SUM_BYTES);
}

static void chunk_copied(struct ckpt *c, uint32_t buffer) {
    struct engine_buffer *b = &c->pool.buffers[buffer];
    struct job *job = c->jobs[b->save];
    uint32_t save = b->save;
    pawl_code code = b->code;
    if (code == PAWL_OK) {
        if (job->plan.sums != NULL && job->mixed)
            hash128(staging_data(c, buffer), job->plan.chunks[b->chunk].bytes,
                    job->plan.sums + b->chunk * SLOT_SUM_BYTES);
        append(&c->pool, &job->ready, buffer);
    } else {
        staging_free(c, buffer);
    }
    atomic_fetch_add_explicit(&c->operations, 1, memory_order_relaxed);
    commit_tell(&c->core, COMMIT_COPY, save, code);
}

static void copy_failed(struct ckpt *c, struct engine_buffer *b, const struct pawl_memory *memory,
                        pawl_code code, const char *why) {
    struct pawl_error e = {0};
    if (b->code == PAWL_OK) b->code = code;
    error_set(&e, code, 0, "%.100s: copying failed: %.500s", memory->name != NULL ? memory->name : "memory",
              why);
    engine_note(c->jobs[b->save], &e);
}

/* The part of span `s` that is in the buffer's chunk. */
static void begin_copy(struct ckpt *c, uint32_t buffer, const struct slot_chunk *chunk,
                       const struct slot_span *s) {
    struct engine_pool *p = &c->pool;
    struct engine_copy *copy = p->free_copies;
    uint64_t from = s->begin > chunk->offset ? s->begin : chunk->offset;
    uint64_t end = s->begin + s->bytes, chunk_end = chunk->offset + chunk->bytes;
    uint64_t to = end < chunk_end ? end : chunk_end;
    pin(p, s->memory);
    p->free_copies = copy->next;
    p->buffers[buffer].pending++;
    copy->buffer = buffer;
    copy->memory = s->memory;
    struct pawl_error e = {0};
    pawl_code code =
        s->memory->copy_out(s->memory->context, s->data + (from - s->begin),
                            staging_data(c, buffer) + (from - chunk->offset), to - from, &copy->base, &e);
    if (code == PAWL_OK) return;
    p->buffers[buffer].pending--;
    copy->next = p->free_copies;
    p->free_copies = copy;
    copy_failed(c, &p->buffers[buffer], s->memory, code, e.text[0] != 0 ? e.text : pawl_code_text(code));
}

/* Begins copies of the chunk's spans of other kinds as long as there is room for copies, and not for a save
 * that failed or was given up meanwhile. */
static void begin_copies(struct ckpt *c, uint32_t buffer) {
    struct engine_pool *p = &c->pool;
    struct engine_buffer *b = &p->buffers[buffer];
    const struct slot_plan *plan = &c->jobs[b->save]->plan;
    const struct slot_chunk *chunk = &plan->chunks[b->chunk];
    if (b->code == PAWL_OK) b->code = c->core.saves[b->save].code;
    for (; b->code == PAWL_OK && b->span < plan->span_count; b->span++) {
        const struct slot_span *s = &plan->spans[b->span];
        if (s->begin >= chunk->offset + chunk->bytes) break;
        if (s->memory == NULL) continue;
        if (p->free_copies == NULL) {
            append(p, &p->stalled, buffer);
            return;
        }
        begin_copy(c, buffer, chunk, s);
    }
    b->begun = true;
    if (b->pending == 0) chunk_copied(c, buffer);
}

void staging_copy(struct ckpt *c, uint32_t save) {
    struct job *job = c->jobs[save];
    struct slot_plan *plan = &job->plan;
    while (!job->staged && plan->chunks[job->copy_at].direct != NULL) job->copy_at++;
    const struct slot_chunk *chunk = &plan->chunks[job->copy_at];
    uint32_t buffer = take_free(&c->pool);
    gather(plan, job->copy_at, staging_data(c, buffer), plan->sums != NULL && !job->mixed);
    c->pool.buffers[buffer] =
        (struct engine_buffer){.save = save,
                               .chunk = job->copy_at++,
                               .span = job->mixed ? slot_plan_span(plan, chunk->offset) : plan->span_count};
    begin_copies(c, buffer);
}

static void copy_ended(struct ckpt *c, struct engine_copy *copy) {
    struct engine_buffer *b = &c->pool.buffers[copy->buffer];
    if (copy->code != PAWL_OK) copy_failed(c, b, copy->memory, copy->code, pawl_code_text(copy->code));
    b->pending--;
    copy->next = c->pool.free_copies;
    c->pool.free_copies = copy;
    if (b->begun && b->pending == 0) chunk_copied(c, copy->buffer);
}

bool staging_progress(struct ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    struct engine_copy *finished = c->finished;
    c->finished = NULL;
    pthread_mutex_unlock(&c->mutex);
    if (finished == NULL) return false;
    while (finished != NULL) {
        struct engine_copy *copy = finished;
        finished = copy->next;
        copy_ended(c, copy);
    }
    while (c->pool.stalled.first != ENGINE_NONE && c->pool.free_copies != NULL)
        begin_copies(c, take_first(&c->pool, &c->pool.stalled));
    return true;
}
