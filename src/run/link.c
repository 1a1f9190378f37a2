/* Bytes of the frames between launcher and coordinator. One table says which fields a kind has, and both
 * directions follow it. */
#include "run/link.h"

#include <stdlib.h>
#include <string.h>

enum field {
    F_RANK = 1 << 0,
    F_RANKS = 1 << 1,
    F_RECOVER = 1 << 2, /* recover, stopping */
    F_VIEW = 1 << 3,
    F_VERSION = 1 << 4,
    F_INCARNATION = 1 << 5,
    F_RESUME = 1 << 6,
    F_LIST = 1 << 7,
    F_CODE = 1 << 8,
    F_TEXT = 1 << 9,
    F_NOTE = 1 << 10,
    F_DATA = 1 << 11,
};

static const uint32_t kind_fields[LINK_KIND_END] = {
    [LINK_HELLO] = F_RANKS | F_RECOVER | F_VIEW | F_INCARNATION | F_LIST | F_DATA,
    [LINK_STARTED] = F_RANK,
    [LINK_BEGIN] = 0,
    [LINK_FROM] = F_RANK | F_DATA,
    [LINK_EXIT] = F_RANK,
    [LINK_FOUND] = F_VIEW | F_VERSION | F_INCARNATION | F_RESUME | F_CODE | F_TEXT,
    [LINK_LEAVE] = F_RANK,
    [LINK_STOP] = 0,
    [LINK_INJECT] = F_TEXT,
    [LINK_TO] = F_LIST | F_DATA,
    [LINK_KILL] = F_RANK | F_TEXT,
    [LINK_FIND] = F_VIEW,
    [LINK_NEED] = F_RANKS | F_TEXT,
    [LINK_NOTE] = F_NOTE,
    [LINK_BEAT] = 0,
    [LINK_END] = F_CODE | F_TEXT,
};

static void put_action(struct bytes *out, const struct coord_action *a) {
    bytes_put_u8(out, (uint8_t)a->kind);
    bytes_put_u32(out, a->rank);
    bytes_put_u32(out, a->peer);
    bytes_put_u32(out, a->chunk);
    bytes_put_u64(out, a->view);
    bytes_put_u64(out, a->version);
    bytes_put_u64(out, a->from);
    bytes_put_u64(out, a->iteration);
    bytes_put_u8(out, (uint8_t)a->verdict);
    bytes_put_f32(out, a->clip);
    bytes_put_u32(out, (uint32_t)a->shift);
    bytes_put_u8(out, a->optimistic);
    bytes_put_u8(out, a->settle);
    bytes_put_u8(out, a->restore);
    bytes_put_u32(out, a->part);
    bytes_put_u32(out, a->parts);
    bytes_put_u32(out, a->need);
    bytes_put_f64(out, a->norm);
    bytes_put_i64(out, a->loss);
    bytes_put_u32(out, (uint32_t)a->code);
    bytes_put_string(out, a->why);
}

static void put_note(struct bytes *out, const struct conduct_note *n) {
    bytes_put_u8(out, (uint8_t)n->kind);
    put_action(out, &n->action);
    bytes_put_u64(out, n->view);
    bytes_put_u32(out, n->live);
    bytes_put_u32(out, n->spares);
    bytes_put_u32(out, n->moves);
    bytes_put_f64(out, n->period);
    bytes_put_f64(out, n->period_s);
    bytes_put_f64(out, n->planning_ms);
    bytes_put_u8(out, n->ahead);
    bytes_put_u64(out, n->kept);
    bytes_put_u64(out, n->redone);
    bytes_put_string(out, n->why);
}

void link_encode(const struct link_frame *f, struct bytes *out) {
    uint32_t fields = kind_fields[f->kind];
    bytes_put_u8(out, (uint8_t)f->kind);
    if (fields & F_RANK) bytes_put_u32(out, f->rank);
    if (fields & F_RANKS) bytes_put_u32(out, f->ranks);
    if (fields & F_RECOVER) bytes_put_u8(out, f->recover), bytes_put_u8(out, f->stopping);
    if (fields & F_VIEW) bytes_put_u64(out, f->view);
    if (fields & F_VERSION) bytes_put_u64(out, f->version);
    if (fields & F_INCARNATION) bytes_put_u64(out, f->incarnation);
    if (fields & F_RESUME) bytes_put_u64(out, f->resume_incarnation);
    if (fields & F_LIST) {
        bytes_put_u32(out, f->list_count);
        for (uint32_t i = 0; i < f->list_count; i++) bytes_put_u32(out, f->list[i]);
    }
    if (fields & F_CODE) bytes_put_u32(out, (uint32_t)f->code);
    if (fields & F_TEXT) bytes_put_string(out, f->text);
    if (fields & F_NOTE) put_note(out, &f->note);
    if (fields & F_DATA) bytes_put_blob(out, f->data, f->data_bytes);
}

static void take_action(struct reader *r, struct coord_action *a) {
    a->kind = (enum coord_action_kind)reader_u8_below(r, COORD_ACTION_COUNT);
    a->rank = reader_u32(r);
    a->peer = reader_u32(r);
    a->chunk = reader_u32(r);
    a->view = reader_u64(r);
    a->version = reader_u64(r);
    a->from = reader_u64(r);
    a->iteration = reader_u64(r);
    a->verdict = (enum coord_verdict)reader_u8_below(r, COORD_SKIP + 1);
    a->clip = reader_f32(r);
    a->shift = (int32_t)reader_u32(r);
    a->optimistic = reader_flag(r);
    a->settle = reader_flag(r);
    a->restore = reader_flag(r);
    a->part = reader_u32(r);
    a->parts = reader_u32(r);
    a->need = reader_u32(r);
    a->norm = reader_f64(r);
    a->loss = reader_i64(r);
    a->code = (pawl_code)reader_u32_below(r, PAWL_INTERNAL + 1);
    a->why = reader_string(r);
}

static void take_note(struct reader *r, struct conduct_note *n) {
    n->kind = (enum conduct_note_kind)reader_u8_below(r, CONDUCT_NOTE_KNOWN + 1);
    take_action(r, &n->action);
    n->view = reader_u64(r);
    n->live = reader_u32(r);
    n->spares = reader_u32(r);
    n->moves = reader_u32(r);
    n->period = reader_f64(r);
    n->period_s = reader_f64(r);
    n->planning_ms = reader_f64(r);
    n->ahead = reader_flag(r);
    n->kept = reader_u64(r);
    n->redone = reader_u64(r);
    n->why = reader_string(r);
}

/* The count is believed only as far as there are bytes for it. False: no memory. */
static bool take_list(struct reader *r, struct link_frame *f) {
    uint32_t count = reader_u32(r);
    if (r->failed || count > (r->size - r->at) / 4) {
        r->failed = true;
        return true;
    }
    uint32_t *list = malloc(((size_t)count + 1) * sizeof *list);
    if (list == NULL) return false;
    for (uint32_t i = 0; i < count; i++) list[i] = reader_u32(r);
    f->list = list;
    f->list_count = count;
    return true;
}

pawl_code link_decode(const void *data, size_t size, struct link_frame *f, struct pawl_error *e) {
    *f = (struct link_frame){.text = ""};
    struct reader r = reader_of(data, size);
    uint8_t kind = reader_u8(&r);
    if (r.failed || kind == 0 || kind >= LINK_KIND_END)
        return error_set(e, PAWL_FORMAT, 0, "link frame of unknown kind %u", kind);
    uint32_t fields = kind_fields[kind];
    bool memory = true;
    f->kind = (enum link_kind)kind;
    if (fields & F_RANK) f->rank = reader_u32(&r);
    if (fields & F_RANKS) f->ranks = reader_u32(&r);
    if (fields & F_RECOVER) f->recover = reader_flag(&r), f->stopping = reader_flag(&r);
    if (fields & F_VIEW) f->view = reader_u64(&r);
    if (fields & F_VERSION) f->version = reader_u64(&r);
    if (fields & F_INCARNATION) f->incarnation = reader_u64(&r);
    if (fields & F_RESUME) f->resume_incarnation = reader_u64(&r);
    if (fields & F_LIST) memory = take_list(&r, f);
    if (fields & F_CODE) f->code = (pawl_code)reader_u32_below(&r, PAWL_INTERNAL + 1);
    if (fields & F_TEXT) f->text = reader_string(&r);
    if (fields & F_NOTE) take_note(&r, &f->note);
    if (fields & F_DATA) f->data = reader_blob(&r, &f->data_bytes);
    if (memory && reader_done(&r)) return PAWL_OK;
    link_frame_close(f);
    return memory ? error_set(e, PAWL_FORMAT, 0, "malformed link frame of kind %u", kind)
                  : error_set(e, PAWL_MEMORY, 0, "no memory for a link frame");
}

void link_frame_close(struct link_frame *f) {
    free((void *)(uintptr_t)f->list);
    f->list = NULL;
    f->list_count = 0;
}
