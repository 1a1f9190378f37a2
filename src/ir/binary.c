/* The binary form of a plan; docs/formats/plan.md draws it byte by byte.
 *
 * Everything is little-endian and packed: a header, per worker a flag, two counts, its chunks and its
 * instructions, then the hash of all bytes before it. Version 2 is written, or version 3 if the pipelines are
 * not all full; version 1, which knew one chunk a stage, is read too. Decoding takes memory only for what the
 * input is long enough to hold, and refuses every byte that encoding would not have written, so decode and
 * encode of versions 2 and 3 are inverse both ways. Tested in tests/unit/ir_binary_test.c,
 * tests/golden/ir_golden_test.c and tests/fuzz/ir_decode_fuzz.c. */
#include "ir/ir.h"

#include <string.h>

#include "base/hash.h"
#include "ir/shape.h"

#define MAGIC        "PAWLPLAN"
#define MAGIC_BYTES  8u
#define VERSION      3u  /* newest */
#define SIZE_OFFSET  24u /* where the header holds the size of the whole */
#define HEADER_BYTES 32u /* of both: magic 8, version 4, three sizes 4 each, total size 8 */
#define CHUNKS_BYTES 4u  /* from version 2: behind the header, the number of chunks */
#define TOTAL_BYTES  4u  /* from version 3: behind that, the number of micro-batches in all */
#define HASH_BYTES   8u
#define HOLD_BYTES   2u
#define NONE16       UINT16_MAX /* IR_NONE; no limit of ir.h reaches it */

/* Version 1: alive 1, count 4; op 1, home, micro-batch, from, to 2 each.
 * From version 2: alive 1, hold count 2, count 4; op 1, chunk, home, micro-batch 2 each, from, to 4 each. */
static const uint32_t worker_bytes[VERSION + 1] = {0, 5, 7, 7};
static const uint32_t instruction_bytes[VERSION + 1] = {0, 9, 15, 15};

_Static_assert(IR_PIPELINES_MAX < NONE16 && IR_MICROBATCHES_MAX < NONE16 && IR_CHUNKS_MAX < NONE16,
               "16 bits hold every index but those of workers");

/* ir_shape_fault has refused what 16 bits cannot hold. */
static void put_index(struct bytes *out, uint32_t v) {
    bytes_put_u16(out, v == IR_NONE ? NONE16 : (uint16_t)v);
}

static void put_instruction(const struct ir_plan *plan, const struct ir_instruction *in, struct bytes *out) {
    if (ir_shape_fault(plan, in) != NULL) out->failed = true;
    bytes_put_u8(out, (uint8_t)in->op);
    put_index(out, in->chunk);
    put_index(out, in->home);
    put_index(out, in->microbatch);
    bytes_put_u32(out, in->from);
    bytes_put_u32(out, in->to);
}

static bool holds_are_sound(const struct ir_plan *plan, const struct ir_worker *worker) {
    for (uint32_t i = 0; i < worker->hold_count; i++)
        if (worker->holds[i] >= plan->chunks || (i > 0 && worker->holds[i] <= worker->holds[i - 1]))
            return false;
    return true;
}

static void put_worker(const struct ir_plan *plan, const struct ir_worker *worker, struct bytes *out) {
    if (!worker->alive && (worker->count > 0 || worker->hold_count > 0)) out->failed = true;
    if (!holds_are_sound(plan, worker)) out->failed = true;
    bytes_put_u8(out, worker->alive ? 1 : 0);
    bytes_put_u16(out, (uint16_t)worker->hold_count);
    bytes_put_u32(out, worker->count);
    for (uint32_t i = 0; i < worker->hold_count; i++) bytes_put_u16(out, (uint16_t)worker->holds[i]);
    for (uint32_t i = 0; i < worker->count; i++) put_instruction(plan, &worker->instructions[i], out);
}

static uint32_t version_of(const struct ir_plan *plan) {
    return plan->total == plan->pipelines * plan->microbatches ? 2 : 3;
}

static uint64_t encoded_size(const struct ir_plan *plan) {
    uint64_t size = HEADER_BYTES + CHUNKS_BYTES + HASH_BYTES;
    if (version_of(plan) > 2) size += TOTAL_BYTES;
    for (uint32_t w = 0; w < ir_worker_count(plan); w++)
        size += worker_bytes[VERSION] + (uint64_t)plan->workers[w].hold_count * HOLD_BYTES +
                (uint64_t)plan->workers[w].count * instruction_bytes[VERSION];
    return size;
}

void ir_encode(const struct ir_plan *plan, struct bytes *out) {
    size_t start = out->size;
    bytes_put(out, MAGIC, MAGIC_BYTES);
    bytes_put_u32(out, version_of(plan));
    bytes_put_u32(out, plan->pipelines);
    bytes_put_u32(out, plan->stages);
    bytes_put_u32(out, plan->microbatches);
    bytes_put_u64(out, encoded_size(plan));
    bytes_put_u32(out, plan->chunks);
    if (version_of(plan) > 2) bytes_put_u32(out, plan->total);
    if (plan->total == 0 || plan->total > plan->pipelines * plan->microbatches) out->failed = true;
    for (uint32_t w = 0; w < ir_worker_count(plan); w++) put_worker(plan, &plan->workers[w], out);
    if (out->failed) return;
    bytes_put_u64(out, hash64(out->data + start, out->size - start));
}

/* What is being read. */
struct decode {
    struct reader r; /* up to the hash */
    uint32_t version;
    struct ir_plan *plan;
    struct pawl_error *e;
};

static pawl_code malformed(struct pawl_error *e, size_t offset, const char *what, uint64_t had,
                           uint64_t wanted) {
    return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: %s is %llu, wanted %llu", offset, what,
                     (unsigned long long)had, (unsigned long long)wanted);
}

/* Magic, version, length and checksum: after this the bytes are those that some encoder wrote, or made to
 * look so; every field is still checked. */
static pawl_code check_envelope(const uint8_t *data, size_t size, uint32_t *version, struct pawl_error *e) {
    if (size < HEADER_BYTES + HASH_BYTES)
        return error_set(e, PAWL_FORMAT, 0, "plan: %zu bytes, the shortest plan has %u", size,
                         HEADER_BYTES + worker_bytes[1] + HASH_BYTES);
    if (memcmp(data, MAGIC, MAGIC_BYTES) != 0)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset 0: the magic is not \"%s\"", MAGIC);
    struct reader r = {.data = data, .size = size, .at = MAGIC_BYTES};
    *version = reader_u32(&r);
    if (*version == 0 || *version > VERSION)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %u: version is %u, wanted 1..%u", MAGIC_BYTES,
                         *version, VERSION);
    r.at = SIZE_OFFSET;
    uint64_t total = reader_u64(&r);
    if (total != size) return malformed(e, SIZE_OFFSET, "size in bytes", total, size);
    r.at = size - HASH_BYTES;
    uint64_t had = reader_u64(&r);
    uint64_t wanted = hash64(data, size - HASH_BYTES);
    if (had != wanted)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: checksum is %016llx, the bytes give %016llx",
                         size - HASH_BYTES, (unsigned long long)had, (unsigned long long)wanted);
    return PAWL_OK;
}

static uint32_t take_index(struct reader *r) {
    uint16_t v = reader_u16(r);
    return v == NONE16 ? IR_NONE : v;
}

/* Null, or the rule that is broken. */
static const char *take_fields(struct decode *d, uint32_t worker, struct ir_instruction *in) {
    bool first = d->version == 1;
    in->op = (enum ir_op)reader_u8(&d->r);
    if (!first) in->chunk = take_index(&d->r);
    in->home = take_index(&d->r);
    in->microbatch = take_index(&d->r);
    in->from = first ? take_index(&d->r) : reader_u32(&d->r);
    in->to = first ? take_index(&d->r) : reader_u32(&d->r);
    return first ? ir_shape_upgrade(d->plan, worker % d->plan->stages, in) : ir_shape_fault(d->plan, in);
}

static pawl_code take_instructions(struct decode *d, uint32_t worker, uint32_t count) {
    uint32_t stages = d->plan->stages;
    pawl_code code = ir_plan_reserve(d->plan, worker, count, d->e);
    for (uint32_t i = 0; code == PAWL_OK && i < count; i++) {
        size_t offset = d->r.at;
        struct ir_instruction in = {0};
        const char *fault = take_fields(d, worker, &in);
        if (fault != NULL) return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: %s", offset, fault);
        code = ir_plan_append(d->plan, worker / stages, worker % stages, in, d->e);
    }
    return code;
}

static pawl_code take_holds(struct decode *d, uint32_t worker, uint32_t count) {
    pawl_code code = PAWL_OK;
    uint32_t least = 0;
    for (uint32_t i = 0; code == PAWL_OK && i < count; i++) {
        size_t offset = d->r.at;
        uint32_t chunk = reader_u16(&d->r);
        if (chunk < least || chunk >= d->plan->chunks)
            return error_set(d->e, PAWL_FORMAT, 0,
                             "plan: offset %zu: chunk is %u, wanted one from %u and below %u", offset, chunk,
                             least, d->plan->chunks);
        least = chunk + 1;
        code = ir_plan_hold(d->plan, worker, chunk, d->e);
    }
    return code;
}

static pawl_code take_worker(struct decode *d, uint32_t worker) {
    size_t offset = d->r.at;
    uint8_t alive = reader_u8(&d->r);
    uint32_t hold_count = d->version == 1 ? 0 : reader_u16(&d->r);
    size_t count_offset = d->r.at;
    uint32_t count = reader_u32(&d->r);
    if (d->r.failed) return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: ends inside a worker", offset);
    if (alive > 1)
        return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: alive is %u, wanted 0 or 1", offset, alive);
    if (!alive && hold_count > 0)
        return malformed(d->e, offset + 1, "number of chunks of a dead worker", hold_count, 0);
    if (!alive && count > 0) return malformed(d->e, count_offset, "count of a dead worker", count, 0);
    uint64_t left = d->r.size - d->r.at, hold_bytes = (uint64_t)hold_count * HOLD_BYTES;
    if (hold_bytes > left)
        return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: %u chunks, but %llu bytes are left",
                         offset + 1, hold_count, (unsigned long long)left);
    uint64_t room = (left - hold_bytes) / instruction_bytes[d->version];
    if (count > room)
        return error_set(d->e, PAWL_FORMAT, 0,
                         "plan: offset %zu: count is %u, but %llu instructions are left", count_offset, count,
                         (unsigned long long)room);
    if (count > IR_LIST_MAX)
        return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: count is %u, at most %u can be valid",
                         count_offset, count, IR_LIST_MAX);
    if (!alive) ir_plan_kill(d->plan, worker);
    pawl_code code = take_holds(d, worker, hold_count);
    return code == PAWL_OK ? take_instructions(d, worker, count) : code;
}

/* Version 3 says that the last pipelines are not full: else it would be version 2. */
static pawl_code take_total(struct decode *d, uint32_t total) {
    uint32_t full = d->plan->pipelines * d->plan->microbatches;
    if (d->version < 3) return PAWL_OK;
    if (total == 0 || total >= full)
        return error_set(d->e, PAWL_FORMAT, 0,
                         "plan: offset %u: micro-batches in all are %u, wanted one from 1 and below %u",
                         HEADER_BYTES + CHUNKS_BYTES, total, full);
    return ir_plan_limit(d->plan, total, d->e);
}

/* The plan's sizes; the workers must fit into the bytes that are left before memory is taken for them. */
static pawl_code take_sizes(struct decode *d) {
    struct reader *r = &d->r;
    uint32_t pipelines = reader_u32(r);
    uint32_t stages = reader_u32(r);
    uint32_t microbatches = reader_u32(r);
    (void)reader_u64(r); /* the total size, checked with the envelope */
    uint32_t chunks = d->version == 1 ? stages : reader_u32(r);
    uint32_t total = d->version < 3 ? 0 : reader_u32(r);
    if (r->failed) return error_set(d->e, PAWL_FORMAT, 0, "plan: offset %zu: ends inside the header", r->at);
    uint64_t workers = (uint64_t)pipelines * stages;
    uint64_t room = (r->size - r->at) / worker_bytes[d->version];
    if (workers > room)
        return error_set(d->e, PAWL_FORMAT, 0,
                         "plan: offset 12: %u x %u workers, the bytes have room for %llu", pipelines, stages,
                         (unsigned long long)room);
    pawl_code code = d->version == 1
                         ? ir_plan_new(pipelines, stages, microbatches, &d->plan, d->e)
                         : ir_plan_new_chunks(pipelines, stages, chunks, microbatches, &d->plan, d->e);
    if (code == PAWL_OK) return take_total(d, total);
    if (code != PAWL_ARGUMENT) return code;
    return error_set(d->e, PAWL_FORMAT, 0,
                     "plan: offset 12: sizes %u x %u x %u and %u chunks are not in 1..%u x 1..%u x 1..%u, at "
                     "most %u workers, 1..%u chunks",
                     pipelines, stages, microbatches, chunks, IR_PIPELINES_MAX, IR_STAGES_MAX,
                     IR_MICROBATCHES_MAX, IR_WORKERS_MAX, IR_CHUNKS_MAX);
}

pawl_code ir_decode(const void *data, size_t size, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    struct decode d = {.e = e};
    pawl_code code = check_envelope(data, size, &d.version, e);
    if (code != PAWL_OK) return code;
    d.r = (struct reader){.data = data, .size = size - HASH_BYTES, .at = MAGIC_BYTES + 4};
    code = take_sizes(&d);
    for (uint32_t w = 0; code == PAWL_OK && w < ir_worker_count(d.plan); w++) code = take_worker(&d, w);
    if (code == PAWL_OK && !reader_done(&d.r))
        code = error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: %zu bytes after the last worker", d.r.at,
                         d.r.size - d.r.at);
    if (code == PAWL_OK)
        *out = d.plan;
    else
        ir_plan_free(d.plan);
    return code;
}
