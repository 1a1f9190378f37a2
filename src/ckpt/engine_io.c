/* Doing what the commit core asks: opening slots, writing chunks, headers and records, flushing.
 *
 * Never waits for the device, except where a file is made, resized or removed. A chunk lying in memory as the
 * file wants it is written from there; others are gathered into the pool. Checksums are taken of exactly the
 * bytes handed to the device. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "ckpt/engine.h"

#define NONE ENGINE_NONE

void engine_note(struct job *job, const struct pawl_error *e) {
    if (job->event.error.code == PAWL_OK) job->event.error = *e;
}

static void tell(struct ckpt *c, enum commit_do what, uint32_t save, const struct pawl_error *e) {
    if (e->code != PAWL_OK && save != NONE) engine_note(c->jobs[save], e);
    if (e->code != PAWL_OK && what == COMMIT_RECORD) c->log.error = *e;
    commit_tell(&c->core, what, save, e->code);
}

/* ---- operations ---- */

static uint32_t op_new(struct ckpt *c, enum op_stage stage, uint32_t save, uint32_t buffer) {
    uint32_t i = 0;
    while (c->ops[i].stage != OP_FREE) i++; /* there are as many as can be busy */
    c->ops[i] = (struct engine_op){stage, save, buffer};
    c->ops_busy++;
    c->chunks_busy += stage == OP_CHUNK;
    return i;
}

static void op_free(struct ckpt *c, uint32_t i) {
    struct engine_op *op = &c->ops[i];
    if (op->buffer != NONE) staging_free(c, op->buffer);
    c->chunks_busy -= op->stage == OP_CHUNK;
    c->ops_busy--;
    atomic_fetch_add_explicit(&c->operations, 1, memory_order_relaxed);
    op->stage = OP_FREE;
}

static enum commit_do action_of(enum op_stage stage) {
    switch (stage) {
    case OP_HEADER:
        return COMMIT_HEADER;
    case OP_FLUSH:
        return COMMIT_FLUSH;
    case OP_RECORD_WRITE:
    case OP_RECORD_FLUSH:
        return COMMIT_RECORD;
    case OP_FREE:
    case OP_CHUNK:
        break;
    }
    return COMMIT_WRITE;
}

static struct store_file *file_of(struct ckpt *c, uint32_t save) {
    return c->slots[c->core.saves[save].slot].file;
}

static void give_up_log(struct ckpt *c) {
    store_file_close(c->log.file);
    c->log.file = NULL;
}

/* The operation could not even be submitted, or its device refused it. */
static void op_failed(struct ckpt *c, uint32_t i, const struct pawl_error *e) {
    struct engine_op op = c->ops[i];
    op_free(c, i);
    if (action_of(op.stage) == COMMIT_RECORD) give_up_log(c);
    tell(c, action_of(op.stage), op.save, e);
}

static void submit_flush(struct ckpt *c, struct store_file *f, enum op_stage stage, uint32_t save) {
    struct pawl_error e = {0};
    uint32_t i = op_new(c, stage, save, NONE);
    if (store_flush(f, i, &e) != PAWL_OK) op_failed(c, i, &e);
}

/* ---- actions ---- */

static pawl_code size_file(struct ckpt *c, struct engine_slot *slot, const char *name, uint64_t wanted,
                           struct pawl_error *e) {
    uint64_t size = 0;
    if (slot->file != NULL) {
        pawl_code code = store_file_size(slot->file, &size, e);
        if (code != PAWL_OK) return code;
    }
    if (slot->file == NULL || size < wanted) { /* opening is what preallocates */
        store_file_close(slot->file);
        slot->file = NULL;
        pawl_code code = store_file_open(c->store, name, true, wanted, &slot->file, e);
        if (code == PAWL_OK) code = store_file_size(slot->file, &size, e);
        if (code != PAWL_OK) return code;
    }
    return size > wanted ? store_file_truncate(slot->file, wanted, e) : PAWL_OK;
}

static void do_prepare(struct ckpt *c, const struct commit_action *a) {
    const struct slot_plan *plan = &c->jobs[a->save]->plan;
    struct engine_slot *slot = &c->slots[a->slot];
    bool fresh = c->core.saves[a->save].fresh;
    char name[RECORD_NAME_BYTES];
    record_slot_name(c->core.slots[a->slot].number, name);
    if (fresh)
        slot->file = NULL;
    else
        fault_arrive(FAULT_SAVE_RECYCLE);
    struct pawl_error e = {0};
    pawl_code code = size_file(c, slot, name, plan->header_bytes + plan->data_bytes, &e);
    if (code == PAWL_OK && fresh) code = store_sync_folder(c->store, &e);
    if (code == PAWL_OK) fault_arrive(FAULT_SAVE_BEGIN);
    /* The core may try again in another slot, so this is not yet the save's error. */
    if (code == PAWL_NO_SPACE && fresh) commit_tell(&c->core, COMMIT_PREPARE, a->save, code);
    if (code == PAWL_NO_SPACE && fresh && c->core.saves[a->save].phase != SAVE_WAITS)
        engine_note(c->jobs[a->save], &e);
    if (code == PAWL_NO_SPACE && fresh) return;
    tell(c, COMMIT_PREPARE, a->save, &e);
}

/* Takes the checksum of the next chunk that was handed out from its place; false when none lacks it. */
static bool sum_next(struct job *job) {
    const struct slot_plan *plan = &job->plan;
    while (job->sum_at < job->direct_at && plan->chunks[job->sum_at].direct == NULL) job->sum_at++;
    if (plan->sums == NULL || job->staged || job->sum_at == job->direct_at) return false;
    const struct slot_chunk *chunk = &plan->chunks[job->sum_at];
    hash128(chunk->direct, chunk->bytes, plan->sums + job->sum_at++ * SLOT_SUM_BYTES);
    return true;
}

static bool sum_any(struct ckpt *c) {
    for (uint32_t i = 0; i < c->config.in_flight; i++)
        if (c->jobs[i] != NULL && c->core.saves[i].code == PAWL_OK && sum_next(c->jobs[i])) return true;
    return false;
}

/* A copied chunk if there is one, so that its buffer gets free; else the next that lies in place. The
 * checksum of that is taken while the device already works, and at the latest for the header: which is made
 * in the round that hands out the last chunk, so before that is known to be written and the memory may
 * change. */
static void do_write(struct ckpt *c, const struct commit_action *a) {
    struct job *job = c->jobs[a->save];
    uint32_t buffer = staging_take_ready(c, a->save);
    uint64_t number = buffer != NONE ? c->pool.buffers[buffer].chunk : job->direct_at;
    while (buffer == NONE && job->plan.chunks[number].direct == NULL) number++;
    const struct slot_chunk *chunk = &job->plan.chunks[number];
    const uint8_t *data = buffer != NONE ? staging_data(c, buffer) : chunk->direct;
    struct pawl_error e = {0};
    uint32_t i = op_new(c, OP_CHUNK, a->save, buffer);
    if (store_write(file_of(c, a->save), job->plan.header_bytes + chunk->offset, data, chunk->bytes, i, &e) !=
        PAWL_OK) {
        op_failed(c, i, &e);
        return;
    }
    if (buffer != NONE) return;
    job->direct_at = number + 1;
}

static pawl_code make_header(struct job *job, struct pawl_error *e) {
    struct bytes text = {0};
    pawl_code code = slot_plan_header(&job->plan, &text, e);
    if (code == PAWL_OK && text.size != job->plan.header_bytes)
        code = error_set(e, PAWL_INTERNAL, 0, "slot header has %zu bytes, %llu were reserved", text.size,
                         (unsigned long long)job->plan.header_bytes);
    if (code == PAWL_OK) {
        memcpy(job->header, text.data, text.size);
        hash128(job->header, text.size, job->entry.header_sum);
    }
    bytes_close(&text);
    return code;
}

static void do_header(struct ckpt *c, const struct commit_action *a) {
    struct job *job = c->jobs[a->save];
    struct pawl_error e = {0};
    while (sum_next(job)) {
    }
    if (make_header(job, &e) != PAWL_OK) {
        tell(c, COMMIT_HEADER, a->save, &e);
        return;
    }
    uint32_t i = op_new(c, OP_HEADER, a->save, NONE);
    if (store_write(file_of(c, a->save), 0, job->header, job->plan.header_bytes, i, &e) != PAWL_OK)
        op_failed(c, i, &e);
}

static void compose_record(struct ckpt *c) {
    struct record *r = &c->record;
    r->counter = c->core.counter;
    memcpy(r->run_id, c->config.run_id, sizeof r->run_id);
    r->entry_count = 0;
    for (uint32_t i = 0; i < c->config.in_flight; i++) {
        if (c->core.saves[i].phase != SAVE_RECORDING) continue;
        struct engine_slot *slot = &c->slots[c->core.saves[i].slot];
        slot->entry = c->jobs[i]->entry;
        slot->entry.slot = c->core.slots[c->core.saves[i].slot].number;
        slot->entry.counter = r->counter;
    }
    for (uint32_t i = 0; i < c->core.slot_count; i++)
        if (c->core.slots[i].in_record) r->entries[r->entry_count++] = c->slots[i].entry;
}

/* After a log's flush failed nothing in it can be trusted to arrive: the record goes into a new file, as a
 * whole. */
static void start_log(struct ckpt *c) {
    struct bytes image = {0};
    struct pawl_error e = {0};
    char name[RECORD_NAME_BYTES];
    c->log.number = ++c->log.last_number;
    c->log.region = 1;
    record_log_name(c->log.number, name);
    log_image(&c->record, &image);
    pawl_code code = image.failed ? error_set(&e, PAWL_MEMORY, 0, "%s: no memory for a record", name)
                                  : store_put(c->store, name, image.data, image.size, &e);
    if (code == PAWL_OK) code = store_file_open(c->store, name, false, 0, &c->log.file, &e);
    bytes_close(&image);
    tell(c, COMMIT_RECORD, NONE, &e);
}

static void do_record(struct ckpt *c) {
    compose_record(c);
    if (c->log.file == NULL) {
        start_log(c);
        return;
    }
    struct pawl_error e = {0};
    struct bytes text = {0};
    record_encode(&c->record, &text);
    if (text.failed) {
        error_set(&e, PAWL_MEMORY, 0, "%s: no memory for a commit record", store_path(c->store));
        tell(c, COMMIT_RECORD, NONE, &e);
        return;
    }
    size_t bytes = text.size;
    memcpy(c->log.block, text.data, bytes);
    bytes_close(&text);
    uint32_t i = op_new(c, OP_RECORD_WRITE, NONE, NONE);
    if (store_write(c->log.file, (uint64_t)c->log.region * RECORD_REGION_BYTES, c->log.block, bytes, i, &e) !=
        PAWL_OK)
        op_failed(c, i, &e);
}

static void explain(struct ckpt *c, struct ckpt_event *event) {
    if (event->code == PAWL_TIMEOUT)
        error_set(&event->error, event->code, 0, "abandoned at close");
    else if (event->code == PAWL_CANCELLED)
        error_set(&event->error, event->code, 0, "given up on request, or overtaken by newer durable steps");
    else if (c->log.error.code == event->code)
        event->error = c->log.error;
    else
        error_set(&event->error, event->code, 0, "%s: no slot is left", store_path(c->store));
}

static void do_report(struct ckpt *c, const struct commit_action *a) {
    struct job *job = c->jobs[a->save];
    struct ckpt_event *event = &job->event;
    staging_drop(c, a->save);
    c->jobs[a->save] = NULL;
    event->code = a->code;
    event->total_ns = clock_now_ns() - job->begin_ns;
    if (a->code != PAWL_OK) {
        if (event->error.code != a->code) explain(c, event);
        event->error.code = a->code;
        error_wrap(&event->error, "save of step %" PRIu64 ", part %u of %u", event->step, event->part,
                   event->part_count);
    }
    engine_event(c, job, CKPT_ENDED);
    job_free(job);
}

static void do_captured(struct ckpt *c, const struct commit_action *a) {
    struct job *job = c->jobs[a->save];
    job->event.capture_ns = clock_now_ns() - job->begin_ns;
    fault_arrive(FAULT_SAVE_CAPTURED);
    if (job->want_captured) engine_event(c, job, CKPT_CAPTURED);
}

static void do_discard(struct ckpt *c, const struct commit_action *a) {
    struct engine_slot *slot = &c->slots[a->slot];
    char name[RECORD_NAME_BYTES];
    record_slot_name(c->core.slots[a->slot].number, name);
    store_file_close(slot->file);
    slot->file = NULL;
    /* A file that stays is found free at the next open; no save depends on its absence. */
    (void)store_remove(c->store, name, NULL);
}

static void perform(struct ckpt *c, const struct commit_action *a) {
    switch (a->what) {
    case COMMIT_PREPARE:
        do_prepare(c, a);
        break;
    case COMMIT_COPY:
        staging_copy(c, a->save);
        break;
    case COMMIT_WRITE:
        do_write(c, a);
        break;
    case COMMIT_CAPTURED:
        do_captured(c, a);
        break;
    case COMMIT_FLUSH:
        fault_arrive(FAULT_SAVE_DATA_DONE);
        submit_flush(c, file_of(c, a->save), OP_FLUSH, a->save);
        break;
    case COMMIT_HEADER:
        do_header(c, a);
        break;
    case COMMIT_RECORD:
        do_record(c);
        break;
    case COMMIT_REPORT:
        do_report(c, a);
        break;
    case COMMIT_DISCARD:
        do_discard(c, a);
        break;
    }
}

/* ---- completions ---- */

static void chunk_ended(struct ckpt *c, uint32_t save) {
    const struct commit_save *s = &c->core.saves[save];
    if (s->written < s->request.chunk_count)
        fault_arrive(FAULT_SAVE_DATA_PART);
    else
        c->jobs[save]->event.write_ns = clock_now_ns() - c->jobs[save]->begin_ns;
}

static void record_ended(struct ckpt *c) {
    c->log.region = 1 - c->log.region;
    fault_arrive(FAULT_SAVE_COMMITTED);
}

static void op_done(struct ckpt *c, uint32_t i) {
    static const struct pawl_error ok = {0};
    struct engine_op op = c->ops[i];
    op_free(c, i);
    switch (op.stage) {
    case OP_CHUNK:
        tell(c, COMMIT_WRITE, op.save, &ok);
        if (c->jobs[op.save] != NULL) chunk_ended(c, op.save);
        break;
    case OP_HEADER:
        fault_arrive(FAULT_SAVE_HEADER);
        tell(c, COMMIT_HEADER, op.save, &ok);
        break;
    case OP_FLUSH:
        fault_arrive(FAULT_SAVE_FLUSHED);
        tell(c, COMMIT_FLUSH, op.save, &ok);
        break;
    case OP_RECORD_WRITE:
        submit_flush(c, c->log.file, OP_RECORD_FLUSH, NONE);
        break;
    case OP_RECORD_FLUSH:
        record_ended(c);
        tell(c, COMMIT_RECORD, NONE, &ok);
        break;
    case OP_FREE:
        break;
    }
}

static const char *stage_text(enum op_stage stage) {
    switch (stage) {
    case OP_CHUNK:
        return "writing data";
    case OP_HEADER:
        return "writing the header";
    case OP_FLUSH:
        return "flushing";
    case OP_RECORD_WRITE:
        return "writing the commit record";
    case OP_RECORD_FLUSH:
        return "flushing the commit record";
    case OP_FREE:
        break;
    }
    return "working";
}

static void completed(struct ckpt *c, const struct store_completion *done) {
    uint32_t i = (uint32_t)done->cookie;
    if (done->code == PAWL_OK) {
        op_done(c, i);
        return;
    }
    char name[RECORD_NAME_BYTES];
    const struct engine_op *op = &c->ops[i];
    if (op->save == NONE)
        record_log_name(c->log.number, name);
    else
        record_slot_name(c->core.slots[c->core.saves[op->save].slot].number, name);
    struct pawl_error e = {0};
    error_set(&e, done->code, done->os_errno, "%s/%s: %s failed", store_path(c->store), name,
              stage_text(op->stage));
    op_failed(c, i, &e);
}

/* One round, so that a caller who polls a store that works while it is polled gets the time in small pieces:
 * for the same reason it ends with a chunk copied, or its checksum taken, by this thread. */
bool engine_pump(struct ckpt *c) {
    struct store_completion done[16];
    uint32_t count = c->ops_busy > 0 ? store_poll(c->store, done, 16) : 0;
    for (uint32_t i = 0; i < count; i++) completed(c, &done[i]);
    bool any = staging_progress(c) || count > 0;
    c->more = false;
    for (struct commit_action a; !c->more; any = true) {
        struct commit_room room = {c->pool.free_first != ENGINE_NONE, c->chunks_busy < c->chunks_max};
        if (!commit_next(&c->core, room, &a)) break;
        perform(c, &a);
        c->more = a.what == COMMIT_COPY;
    }
    if (!c->more) c->more = sum_any(c);
    return any || c->more;
}
