/* Bytes of control messages. One table says which fields a kind has, and both directions follow it. */
#include "run/message.h"

#include <string.h>

#include "ir/ir.h"

enum field {
    F_RANK = 1 << 0,
    F_RANKS = 1 << 1,
    F_PEER = 1 << 2,
    F_CHUNK = 1 << 3,
    F_VIEW = 1 << 4,
    F_VERSION = 1 << 5,
    F_ITERATION = 1 << 6,
    F_RUN_ID = 1 << 7,
    F_VERDICT = 1 << 8, /* verdict, clip */
    F_OPTIMISTIC = 1 << 9,
    F_BUSY = 1 << 10, /* progress, busy, work */
    F_AT = 1 << 11,
    F_PART = 1 << 12, /* part, parts */
    F_REPORT = 1 << 13,
    F_CODE = 1 << 14,
    F_WRITTEN = 1 << 15, /* bytes, write_ns */
    F_TEXT = 1 << 16,
    F_DATA = 1 << 17,
};

static const uint32_t kind_fields[MESSAGE_KIND_END] = {
    [MESSAGE_START] = F_RANK | F_RANKS | F_RUN_ID | F_TEXT,
    [MESSAGE_PEERS] = F_DATA,
    [MESSAGE_GO] = F_VIEW | F_DATA,
    [MESSAGE_FENCE] = F_VIEW,
    [MESSAGE_DECIDE] = F_VIEW | F_ITERATION | F_VERDICT | F_OPTIMISTIC,
    [MESSAGE_SAVE] = F_CHUNK | F_VERSION | F_PART,
    [MESSAGE_DURABLE] = F_VERSION,
    [MESSAGE_FORGET] = F_VERSION,
    [MESSAGE_PREPARE] = F_RANK | F_PEER | F_CHUNK | F_VIEW | F_VERSION,
    [MESSAGE_INJECT] = F_ITERATION | F_TEXT,
    [MESSAGE_LEAVE] = 0,
    [MESSAGE_FINISH] = 0,
    [MESSAGE_ADDRESS] = F_DATA,
    [MESSAGE_READY] = F_TEXT,
    [MESSAGE_FAILED] = F_CODE | F_TEXT,
    [MESSAGE_BEAT] = F_BUSY | F_AT,
    [MESSAGE_REDUCED] = F_CHUNK | F_VIEW | F_REPORT,
    [MESSAGE_FENCED] = F_VIEW | F_DATA,
    [MESSAGE_PREPARED] = F_CHUNK | F_VERSION,
    [MESSAGE_SAVED] = F_CHUNK | F_VERSION | F_PART | F_CODE | F_WRITTEN | F_TEXT,
    [MESSAGE_SUSPECT] = F_PEER,
    [MESSAGE_LEAVING] = 0,
    [MESSAGE_MEASURED] = F_CHUNK | F_DATA,
    [MESSAGE_DESCRIBE] = F_TEXT,
    [MESSAGE_DESCRIBED] = F_DATA,
};

void message_put_report(struct bytes *out, const struct coord_report *report) {
    bytes_put_u64(out, report->iteration);
    bytes_put_f64(out, report->norm2);
    bytes_put_i64(out, report->loss);
    bytes_put_u64(out, report->nonfinite);
    bytes_put_u64(out, report->overflow);
}

static void put_verdict(struct bytes *out, const struct message *m) {
    bytes_put_u8(out, (uint8_t)m->verdict);
    bytes_put_f32(out, m->clip);
}

static void put_busy(struct bytes *out, const struct message *m) {
    bytes_put_u64(out, m->progress);
    bytes_put_u8(out, m->busy);
    bytes_put_u8(out, (uint8_t)m->work);
}

static void put_at(struct bytes *out, const struct message_at *at) {
    bytes_put_u64(out, at->iteration);
    bytes_put_u32(out, at->position);
    bytes_put_u8(out, at->op);
    bytes_put_u32(out, at->chunk);
    bytes_put_u32(out, at->home);
    bytes_put_u32(out, at->microbatch);
}

void message_encode(const struct message *m, struct bytes *out) {
    uint32_t fields = kind_fields[m->kind];
    bytes_put_u8(out, (uint8_t)m->kind);
    if (fields & F_RANK) bytes_put_u32(out, m->rank);
    if (fields & F_RANKS) bytes_put_u32(out, m->ranks);
    if (fields & F_PEER) bytes_put_u32(out, m->peer);
    if (fields & F_CHUNK) bytes_put_u32(out, m->chunk);
    if (fields & F_VIEW) bytes_put_u64(out, m->view);
    if (fields & F_VERSION) bytes_put_u64(out, m->version);
    if (fields & F_ITERATION) bytes_put_u64(out, m->iteration);
    if (fields & F_RUN_ID) bytes_put(out, m->run_id, sizeof m->run_id);
    if (fields & F_VERDICT) put_verdict(out, m);
    if (fields & F_OPTIMISTIC) bytes_put_u8(out, m->optimistic);
    if (fields & F_BUSY) put_busy(out, m);
    if (fields & F_AT) put_at(out, &m->at);
    if (fields & F_PART) bytes_put_u32(out, m->part), bytes_put_u32(out, m->parts);
    if (fields & F_REPORT) message_put_report(out, &m->report);
    if (fields & F_CODE) bytes_put_u32(out, (uint32_t)m->code);
    if (fields & F_WRITTEN) bytes_put_u64(out, m->bytes), bytes_put_i64(out, m->write_ns);
    if (fields & F_TEXT) bytes_put_string(out, m->text);
    if (fields & F_DATA) bytes_put_blob(out, m->data, m->data_bytes);
}

static void take_verdict(struct reader *r, struct message *m) {
    m->verdict = (enum coord_verdict)reader_u8_below(r, COORD_SKIP + 1);
    m->clip = reader_f32(r);
}

static void take_run_id(struct reader *r, struct message *m) {
    const uint8_t *id = reader_take(r, sizeof m->run_id);
    if (id != NULL) memcpy(m->run_id, id, sizeof m->run_id);
}

static void take_busy(struct reader *r, struct message *m) {
    m->progress = reader_u64(r);
    m->busy = reader_flag(r);
    m->work = (enum coord_work)reader_u8_below(r, COORD_WORK_COUNT);
}

static void take_at(struct reader *r, struct message_at *at) {
    at->iteration = reader_u64(r);
    at->position = reader_u32(r);
    at->op = reader_u8(r);
    if (at->op >= IR_OP_COUNT && at->op != UINT8_MAX) r->failed = true;
    at->chunk = reader_u32(r);
    at->home = reader_u32(r);
    at->microbatch = reader_u32(r);
}

void message_take_report(struct reader *r, struct coord_report *report) {
    report->iteration = reader_u64(r);
    report->norm2 = reader_f64(r);
    report->loss = reader_i64(r);
    report->nonfinite = reader_u64(r);
    report->overflow = reader_u64(r);
}

static void take_tail(struct reader *r, uint32_t fields, struct message *m) {
    if (fields & F_CODE) m->code = (pawl_code)reader_u32_below(r, PAWL_INTERNAL + 1);
    if (fields & F_WRITTEN) m->bytes = reader_u64(r), m->write_ns = reader_i64(r);
    if (fields & F_TEXT) m->text = reader_string(r);
    if (fields & F_DATA) m->data = reader_blob(r, &m->data_bytes);
}

pawl_code message_decode(const void *data, size_t size, struct message *m, struct pawl_error *e) {
    *m = (struct message){.text = ""};
    struct reader r = reader_of(data, size);
    uint8_t kind = reader_u8(&r);
    if (r.failed || kind == 0 || kind >= MESSAGE_KIND_END)
        return error_set(e, PAWL_FORMAT, 0, "control message of unknown kind %u", kind);
    uint32_t fields = kind_fields[kind];
    m->kind = (enum message_kind)kind;
    if (fields & F_RANK) m->rank = reader_u32(&r);
    if (fields & F_RANKS) m->ranks = reader_u32(&r);
    if (fields & F_PEER) m->peer = reader_u32(&r);
    if (fields & F_CHUNK) m->chunk = reader_u32(&r);
    if (fields & F_VIEW) m->view = reader_u64(&r);
    if (fields & F_VERSION) m->version = reader_u64(&r);
    if (fields & F_ITERATION) m->iteration = reader_u64(&r);
    if (fields & F_RUN_ID) take_run_id(&r, m);
    if (fields & F_VERDICT) take_verdict(&r, m);
    if (fields & F_OPTIMISTIC) m->optimistic = reader_flag(&r);
    if (fields & F_BUSY) take_busy(&r, m);
    if (fields & F_AT) take_at(&r, &m->at);
    if (fields & F_PART) m->part = reader_u32(&r), m->parts = reader_u32(&r);
    if (fields & F_REPORT) message_take_report(&r, &m->report);
    take_tail(&r, fields, m);
    if (!reader_done(&r)) return error_set(e, PAWL_FORMAT, 0, "malformed control message of kind %u", kind);
    return PAWL_OK;
}
