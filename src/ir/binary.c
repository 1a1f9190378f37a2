/* The binary form of a plan, version 1; docs/formats/plan.md draws it byte by byte.
 *
 * Everything is little-endian and packed: a header, per worker a flag, a count and its instructions of
 * INSTRUCTION_BYTES each, then the hash of all bytes before it. Decoding takes memory only for what
 * the input is long enough to hold, and refuses every byte that encoding would not have written, so
 * decode and encode are inverse both ways. Tested in tests/unit/ir_binary_test.c,
 * tests/golden/ir_golden_test.c and tests/fuzz/ir_decode_fuzz.c. */
#include "ir/ir.h"

#include <string.h>

#include "base/hash.h"
#include "ir/shape.h"

#define MAGIC             "PAWLPLAN"
#define MAGIC_BYTES       8u
#define VERSION           1u
#define SIZE_OFFSET       24u /* where the header holds the size of the whole */
#define HEADER_BYTES      32u /* magic 8, version 4, three sizes 4 each, total size 8 */
#define WORKER_BYTES      5u  /* alive 1, count 4 */
#define INSTRUCTION_BYTES 9u  /* op 1, home, micro-batch, from, to 2 each */
#define HASH_BYTES        8u
#define NONE16            UINT16_MAX /* IR_NONE; no limit of ir.h reaches it */

_Static_assert(IR_PIPELINES_MAX < NONE16 && IR_MICROBATCHES_MAX < NONE16, "16 bits hold every index");

/* ir_shape_fault has refused what 16 bits cannot hold. */
static void put_index(struct bytes *out, uint32_t v) {
    bytes_put_u16(out, v == IR_NONE ? NONE16 : (uint16_t)v);
}

static void put_instruction(const struct ir_plan *plan, const struct ir_instruction *in, struct bytes *out) {
    if (ir_shape_fault(plan, in) != NULL) out->failed = true;
    bytes_put_u8(out, (uint8_t)in->op);
    put_index(out, in->home);
    put_index(out, in->microbatch);
    put_index(out, in->from);
    put_index(out, in->to);
}

static void put_worker(const struct ir_plan *plan, const struct ir_worker *worker, struct bytes *out) {
    if (!worker->alive && worker->count > 0) out->failed = true;
    bytes_put_u8(out, worker->alive ? 1 : 0);
    bytes_put_u32(out, worker->count);
    for (uint32_t i = 0; i < worker->count; i++) put_instruction(plan, &worker->instructions[i], out);
}

static uint64_t encoded_size(const struct ir_plan *plan) {
    uint64_t size = HEADER_BYTES + HASH_BYTES;
    uint64_t worker_count = ir_worker_count(plan);
    for (uint64_t w = 0; w < worker_count; w++)
        size += WORKER_BYTES + (uint64_t)plan->workers[w].count * INSTRUCTION_BYTES;
    return size;
}

void ir_encode(const struct ir_plan *plan, struct bytes *out) {
    size_t start = out->size;
    bytes_put(out, MAGIC, MAGIC_BYTES);
    bytes_put_u32(out, VERSION);
    bytes_put_u32(out, plan->pipelines);
    bytes_put_u32(out, plan->stages);
    bytes_put_u32(out, plan->microbatches);
    bytes_put_u64(out, encoded_size(plan));
    uint64_t worker_count = ir_worker_count(plan);
    for (uint64_t w = 0; w < worker_count; w++) put_worker(plan, &plan->workers[w], out);
    if (out->failed) return;
    bytes_put_u64(out, hash64(out->data + start, out->size - start));
}

static pawl_code malformed(struct pawl_error *e, size_t offset, const char *what, uint64_t had,
                           uint64_t wanted) {
    return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: %s is %llu, wanted %llu", offset, what,
                     (unsigned long long)had, (unsigned long long)wanted);
}

/* Magic, version, length and checksum: after this the bytes are those that some encoder wrote, or made to
 * look so; every field is still checked. */
static pawl_code check_envelope(const uint8_t *data, size_t size, struct pawl_error *e) {
    if (size < HEADER_BYTES + HASH_BYTES)
        return error_set(e, PAWL_FORMAT, 0, "plan: %zu bytes, the shortest plan has %u", size,
                         HEADER_BYTES + WORKER_BYTES + HASH_BYTES);
    if (memcmp(data, MAGIC, MAGIC_BYTES) != 0)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset 0: the magic is not \"%s\"", MAGIC);
    struct reader r = {.data = data, .size = size, .at = MAGIC_BYTES};
    uint32_t version = reader_u32(&r);
    if (version != VERSION) return malformed(e, MAGIC_BYTES, "version", version, VERSION);
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

static pawl_code take_instruction(struct reader *r, struct ir_plan *plan, uint64_t worker,
                                  struct pawl_error *e) {
    size_t offset = r->at;
    uint8_t op = reader_u8(r);
    if (op >= IR_OP_COUNT)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: op is %u, wanted 0..%d", offset, op,
                         IR_OP_COUNT - 1);
    struct ir_instruction in = {.op = (enum ir_op)op};
    in.home = take_index(r);
    in.microbatch = take_index(r);
    in.from = take_index(r);
    in.to = take_index(r);
    const char *fault = ir_shape_fault(plan, &in);
    if (fault != NULL) return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: %s", offset, fault);
    return ir_plan_append(plan, (uint32_t)(worker / plan->stages), (uint32_t)(worker % plan->stages), in, e);
}

static pawl_code take_worker(struct reader *r, struct ir_plan *plan, uint64_t worker, struct pawl_error *e) {
    size_t offset = r->at;
    uint8_t alive = reader_u8(r);
    uint32_t count = reader_u32(r);
    if (r->failed) return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: ends inside a worker", offset);
    if (alive > 1)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: alive is %u, wanted 0 or 1", offset, alive);
    if (!alive && count > 0) return malformed(e, offset + 1, "count of a dead worker", count, 0);
    uint64_t room = (r->size - r->at) / INSTRUCTION_BYTES;
    if (count > room)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: count is %u, but %llu instructions are left",
                         offset + 1, count, (unsigned long long)room);
    if (count > IR_LIST_MAX)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: count is %u, at most %u can be valid",
                         offset + 1, count, IR_LIST_MAX);
    plan->workers[worker].alive = alive;
    for (uint32_t i = 0; i < count; i++) {
        pawl_code code = take_instruction(r, plan, worker, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

/* The plan's sizes; the workers must fit into the bytes that are left before memory is taken for them. */
static pawl_code take_sizes(struct reader *r, struct ir_plan **plan, struct pawl_error *e) {
    uint32_t pipelines = reader_u32(r);
    uint32_t stages = reader_u32(r);
    uint32_t microbatches = reader_u32(r);
    (void)reader_u64(r); /* the total size, checked with the envelope */
    uint64_t workers = (uint64_t)pipelines * stages;
    uint64_t room = (r->size - r->at) / WORKER_BYTES;
    if (workers > room)
        return error_set(e, PAWL_FORMAT, 0, "plan: offset 12: %u x %u workers, the bytes have room for %llu",
                         pipelines, stages, (unsigned long long)room);
    pawl_code code = ir_plan_new(pipelines, stages, microbatches, plan, e);
    if (code != PAWL_ARGUMENT) return code;
    return error_set(e, PAWL_FORMAT, 0,
                     "plan: offset 12: sizes %u x %u x %u are not in 1..%u x 1..%u x 1..%u", pipelines,
                     stages, microbatches, IR_PIPELINES_MAX, IR_STAGES_MAX, IR_MICROBATCHES_MAX);
}

pawl_code ir_decode(const void *data, size_t size, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    struct ir_plan *plan = NULL;
    pawl_code code = check_envelope(data, size, e);
    if (code != PAWL_OK) return code;
    struct reader r = {.data = data, .size = size - HASH_BYTES, .at = MAGIC_BYTES + 4};
    code = take_sizes(&r, &plan, e);
    for (uint64_t w = 0; code == PAWL_OK && w < ir_worker_count(plan); w++)
        code = take_worker(&r, plan, w, e);
    if (code == PAWL_OK && !reader_done(&r))
        code = error_set(e, PAWL_FORMAT, 0, "plan: offset %zu: %zu bytes after the last worker", r.at,
                         r.size - r.at);
    if (code == PAWL_OK)
        *out = plan;
    else
        ir_plan_free(plan);
    return code;
}
