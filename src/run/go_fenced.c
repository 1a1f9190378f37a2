/* Bytes of FENCED (docs/formats/control.md): what a rank has when its view ends. */
#include <stdlib.h>
#include <string.h>

#include "run/go.h"
#include "run/message.h"

/* The shortest pair and save: what a count is checked against before memory is taken for it. */
#define PAIR_BYTES_MIN 33u /* chunk 4, version 8, has_report 1, work 8, shift 4, total 8 */
#define SAVE_BYTES     22u /* version 8, chunk 4, part 4, parts 4, answered 1, ok 1 */
#define TOTAL_MAX      ((uint64_t)IR_PIPELINES_MAX * IR_MICROBATCHES_MAX)

static void put_pair(const struct fenced_pair *f, struct bytes *out) {
    const struct coord_fenced_pair *p = &f->pair;
    bytes_put_u32(out, p->chunk);
    bytes_put_u64(out, p->version);
    bytes_put_u8(out, p->has_report);
    if (p->has_report) message_put_report(out, &p->report);
    bytes_put_u64(out, p->work);
    bytes_put_u32(out, (uint32_t)p->work_shift);
    bytes_put_u64(out, f->total);
    bytes_put(out, f->bits, (size_t)((f->total + 7) / 8));
}

void fenced_encode(const struct fenced *f, struct bytes *out) {
    bytes_put_u8(out, f->has_durable);
    bytes_put_u64(out, f->durable);
    bytes_put_u64(out, f->incarnation);
    bytes_put_u8(out, f->optimistic);
    bytes_put_u32(out, (uint32_t)f->shift);
    bytes_put_u32(out, f->pair_count);
    for (uint32_t i = 0; i < f->pair_count; i++) put_pair(&f->pairs[i], out);
    bytes_put_u32(out, f->save_count);
    for (uint32_t i = 0; i < f->save_count; i++) {
        const struct coord_fenced_save *s = &f->saves[i];
        bytes_put_u64(out, s->version);
        bytes_put_u32(out, s->chunk);
        bytes_put_u32(out, s->part);
        bytes_put_u32(out, s->parts);
        bytes_put_u8(out, s->answered);
        bytes_put_u8(out, s->ok);
    }
}

void fenced_close(struct fenced *f) {
    free(f->pairs);
    free(f->saves);
    *f = (struct fenced){0};
}

static pawl_code malformed(struct pawl_error *e, uint32_t chunk, const char *what) {
    return error_set(e, PAWL_FORMAT, 0, "malformed fenced: chunk %u: %s", chunk, what);
}

static pawl_code take_bits(struct reader *r, struct fenced_pair *f, struct pawl_error *e) {
    uint32_t chunk = f->pair.chunk;
    f->total = reader_u64(r);
    if ((f->pair.work == COORD_NO_WORK) != (f->total == 0) || f->total > TOTAL_MAX)
        return error_set(e, PAWL_FORMAT, 0, "malformed fenced: chunk %u: work of %llu micro-batches", chunk,
                         (unsigned long long)f->total);
    size_t size = (size_t)((f->total + 7) / 8);
    f->bits = reader_take(r, size);
    if (f->bits == NULL) return malformed(e, chunk, "it ends in its contributions");
    if (f->total % 8 != 0 && f->bits[size - 1] >> (f->total % 8) != 0)
        return malformed(e, chunk, "a contribution that its iteration has not");
    return PAWL_OK;
}

static pawl_code take_pair(struct reader *r, struct fenced_pair *f, struct pawl_error *e) {
    struct coord_fenced_pair *p = &f->pair;
    p->chunk = reader_u32(r);
    p->version = reader_u64(r);
    p->has_report = reader_flag(r);
    if (p->has_report) message_take_report(r, &p->report);
    p->work = reader_u64(r);
    p->work_shift = (int32_t)reader_u32(r);
    if (r->failed) return malformed(e, p->chunk, "it ends too early, or a flag is neither 0 nor 1");
    if (p->has_report && p->report.iteration != p->version)
        return error_set(e, PAWL_FORMAT, 0,
                         "malformed fenced: chunk %u: a report of iteration %llu at version %llu", p->chunk,
                         (unsigned long long)p->report.iteration, (unsigned long long)p->version);
    return take_bits(r, f, e);
}

static pawl_code take_pairs(struct reader *r, struct fenced *f, struct pawl_error *e) {
    uint32_t count = reader_u32(r), least = 0;
    if (r->failed || (uint64_t)count * PAIR_BYTES_MIN > r->size - r->at)
        return error_set(e, PAWL_FORMAT, 0, "malformed fenced: %u chunks in %zu bytes", count,
                         r->size - r->at);
    f->pairs = calloc((size_t)count + 1, sizeof *f->pairs);
    if (f->pairs == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u chunks of a rank", count);
    for (; f->pair_count < count; f->pair_count++) {
        struct fenced_pair *p = &f->pairs[f->pair_count];
        pawl_code code = take_pair(r, p, e);
        if (code != PAWL_OK) return code;
        if (p->pair.chunk < least || p->pair.chunk >= IR_CHUNKS_MAX)
            return malformed(e, p->pair.chunk, "it is out of order");
        least = p->pair.chunk + 1;
    }
    return PAWL_OK;
}

static pawl_code take_saves(struct reader *r, struct fenced *f, struct pawl_error *e) {
    uint32_t count = reader_u32(r);
    if (r->failed || (uint64_t)count * SAVE_BYTES > r->size - r->at)
        return error_set(e, PAWL_FORMAT, 0, "malformed fenced: %u saves in %zu bytes", count,
                         r->size - r->at);
    f->saves = calloc((size_t)count + 1, sizeof *f->saves);
    if (f->saves == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u saves of a rank", count);
    for (; f->save_count < count; f->save_count++) {
        struct coord_fenced_save *s = &f->saves[f->save_count];
        s->version = reader_u64(r);
        s->chunk = reader_u32(r);
        s->part = reader_u32(r);
        s->parts = reader_u32(r);
        s->answered = reader_flag(r);
        s->ok = reader_flag(r);
        if (r->failed || s->part >= s->parts || s->chunk >= IR_CHUNKS_MAX || (s->ok && !s->answered))
            return error_set(e, PAWL_FORMAT, 0, "malformed fenced: part %u of %u of a save of chunk %u",
                             s->part, s->parts, s->chunk);
    }
    return PAWL_OK;
}

pawl_code fenced_decode(const void *data, size_t size, struct fenced *out, struct pawl_error *e) {
    *out = (struct fenced){0};
    struct reader r = reader_of(data, size);
    out->has_durable = reader_flag(&r);
    out->durable = reader_u64(&r);
    out->incarnation = reader_u64(&r);
    out->optimistic = reader_flag(&r);
    out->shift = (int32_t)reader_u32(&r);
    if (r.failed || (!out->has_durable && out->durable != 0))
        return error_set(e, PAWL_FORMAT, 0, "malformed fenced: its head");
    pawl_code code = take_pairs(&r, out, e);
    if (code == PAWL_OK) code = take_saves(&r, out, e);
    if (code == PAWL_OK && !reader_done(&r))
        code = error_set(e, PAWL_FORMAT, 0, "malformed fenced: %zu bytes too many", size - r.at);
    return code;
}
