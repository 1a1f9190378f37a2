/* Making a slot from a layout: where the bytes lie this time, the chunks, the text of the header. What
 * depends on neither addresses nor the save was made before: ckpt/layout.h. */
#include "ckpt/slot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/layout.h"

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "save: no memory for its plan");
}

static pawl_code check_save(const struct ckpt_save *save, struct pawl_error *e) {
    if (save->step == 0 || save->unit >= save->unit_count || save->part >= save->part_count)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "save: step %" PRIu64 ", unit %u of %u, part %u of %u: wanted step > 0 and "
                         "indexes below their counts",
                         save->step, save->unit, save->unit_count, save->part, save->part_count);
    if (save->blob_bytes > ST_HEADER_BYTES_MAX / 4)
        return error_set(e, PAWL_ARGUMENT, 0, "save: blob has %zu bytes, wanted at most %u", save->blob_bytes,
                         ST_HEADER_BYTES_MAX / 4);
    return PAWL_OK;
}

/* ---- spans ---- */

/* Neighbours in the data that are neighbours in memory too are one span. */
static void add_span(struct slot_plan *plan, struct slot_span s) {
    struct slot_span *last = plan->span_count > 0 ? &plan->spans[plan->span_count - 1] : NULL;
    if (last != NULL && last->memory == s.memory && last->begin + last->bytes == s.begin &&
        last->data + last->bytes == s.data)
        last->bytes += s.bytes;
    else
        plan->spans[plan->span_count++] = s;
}

static void add_spans(struct slot_plan *plan, const struct ckpt_layout *layout, void *const *data) {
    for (uint32_t i = 0; i < plan->order->place_count; i++) {
        const struct layout_place *p = &plan->order->places[i];
        const struct layout_tensor *t = &layout->tensors[p->tensor];
        add_span(plan, (struct slot_span){p->begin, t->bytes, layout_data(layout, data, p->tensor),
                                          t->tensor.memory});
    }
}

/* ---- chunks ---- */

static void add_chunks(struct slot_plan *plan, uint64_t begin, uint64_t end, uint64_t chunk_bytes,
                       const uint8_t *direct) {
    for (uint64_t at = begin; at < end; at += chunk_bytes) {
        uint64_t bytes = end - at < chunk_bytes ? end - at : chunk_bytes;
        plan->chunks[plan->chunk_count++] =
            (struct slot_chunk){at, bytes, direct != NULL ? direct + (at - begin) : NULL};
    }
}

/* The whole blocks of each direct run; its last, broken block is gathered, with the filler behind it. */
static void cut(struct slot_plan *plan, const struct ckpt_layout *layout, void *const *data,
                uint64_t chunk_bytes) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < plan->order->direct_count; i++) {
        const struct layout_run *r = &plan->order->runs[plan->order->direct[i]];
        uint64_t whole = r->begin + r->bytes / STORE_BLOCK * STORE_BLOCK;
        add_chunks(plan, r->begin, whole, chunk_bytes, layout_data(layout, data, r->first));
        at = mem_round_up(r->begin + r->bytes, STORE_BLOCK);
        add_chunks(plan, whole, at, chunk_bytes, NULL);
    }
    add_chunks(plan, at, plan->data_bytes, chunk_bytes, NULL);
}

static pawl_code reserve(struct slot_plan *plan, const struct ckpt_config *config, struct pawl_error *e) {
    uint64_t most = 2 * (uint64_t)plan->order->direct_count + 2 + plan->data_bytes / config->chunk_bytes;
    if (most > SLOT_CHUNKS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "save: up to %" PRIu64 " chunks of %" PRIu64
                         " bytes, wanted at most %u: larger chunks",
                         most, config->chunk_bytes, SLOT_CHUNKS_MAX);
    plan->chunks = malloc(most * sizeof *plan->chunks);
    plan->spans = malloc(((size_t)plan->order->place_count + 1) * sizeof *plan->spans);
    if (!config->unchecked) plan->sums = calloc(most, SLOT_SUM_BYTES);
    bool good = plan->chunks != NULL && plan->spans != NULL && (config->unchecked || plan->sums != NULL);
    return good ? PAWL_OK : no_memory(e);
}

/* ---- the header ---- */

static void put_number(struct json *j, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    json_text(j, key, text);
}

/* As text when it is some, else in hexadecimal. */
static bool put_blob(struct json *j, const struct ckpt_save *save) {
    char *text = malloc(2 * save->blob_bytes + 1);
    if (text == NULL) return false;
    if (save->blob_bytes > 0) memcpy(text, save->blob, save->blob_bytes);
    text[save->blob_bytes] = 0;
    bool is_text =
        memchr(text, 0, save->blob_bytes) == NULL && st_utf8_valid((const uint8_t *)text, save->blob_bytes);
    if (!is_text) hash_hex(save->blob, save->blob_bytes, text);
    json_text(j, is_text ? "pawl.blob" : "pawl.blob_hex", text);
    free(text);
    return true;
}

static char *put_digits(char *end, uint64_t value) { /* backwards */
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return end;
}

/* "3*4194304,1*65536": chunks in order, equal neighbours counted. Called for every save, so without printf.
 */
static void put_chunks(struct slot_plan *plan) {
    char text[48], *const end = text + sizeof text;
    static const char key[] = ",\"pawl.chunks\":\"";
    bytes_put(&plan->metadata, key, strlen(key));
    for (uint64_t i = 0, same; i < plan->chunk_count; i += same) {
        same = 1;
        while (i + same < plan->chunk_count && plan->chunks[i + same].bytes == plan->chunks[i].bytes) same++;
        char *at = put_digits(end, plan->chunks[i].bytes);
        *--at = '*';
        at = put_digits(at, same);
        if (i > 0) *--at = ',';
        bytes_put(&plan->metadata, at, (size_t)(end - at));
    }
    bytes_put_u8(&plan->metadata, '"');
}

/* All of the header that is known before the data is written. */
static pawl_code make_metadata(struct slot_plan *plan, const struct ckpt_config *config,
                               const struct ckpt_save *save, struct pawl_error *e) {
    char run_id[2 * CKPT_RUN_ID_BYTES + 1];
    hash_hex(config->run_id, CKPT_RUN_ID_BYTES, run_id);
    struct json j = json_begin(&plan->metadata);
    json_object(&j, NULL);
    json_object(&j, "__metadata__");
    put_number(&j, "pawl.format", 1);
    json_text(&j, "pawl.run", run_id);
    put_number(&j, "pawl.incarnation", config->incarnation);
    put_number(&j, "pawl.step", save->step);
    put_number(&j, "pawl.unit", save->unit);
    put_number(&j, "pawl.units", save->unit_count);
    put_number(&j, "pawl.part", save->part);
    put_number(&j, "pawl.parts", save->part_count);
    bool good = put_blob(&j, save);
    bytes_put(&plan->metadata, plan->order->slices.data, plan->order->slices.size);
    put_chunks(plan);
    if (config->unchecked) json_text(&j, "pawl.checksum", "none");
    return good && !plan->metadata.failed ? PAWL_OK : no_memory(e);
}

#define SUMS_KEY ",\"pawl.sums\":\""

/* Sums have a fixed width, so the header's size is known before they are. */
static pawl_code measure_header(struct slot_plan *plan, struct pawl_error *e) {
    uint64_t sums = plan->sums != NULL ? strlen(SUMS_KEY) + plan->chunk_count * SLOT_SUM_BYTES * 2 + 1 : 0;
    uint64_t bytes = 8 + plan->metadata.size + sums + 2 + plan->order->tensors.size;
    plan->header_bytes = mem_round_up(bytes, STORE_BLOCK);
    if (plan->header_bytes - 8 <= ST_HEADER_BYTES_MAX) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "save: its header has %" PRIu64
                     " bytes, readers accept at most %u: fewer tensors, larger "
                     "chunks or a smaller blob",
                     plan->header_bytes, ST_HEADER_BYTES_MAX);
}

static void put_sums(const struct slot_plan *plan, struct bytes *out) {
    char digits[2 * SLOT_SUM_BYTES + 1];
    bytes_put(out, SUMS_KEY, strlen(SUMS_KEY));
    for (uint64_t i = 0; i < plan->chunk_count; i++) {
        hash_hex(plan->sums + i * SLOT_SUM_BYTES, SLOT_SUM_BYTES, digits);
        bytes_put(out, digits, 2 * SLOT_SUM_BYTES);
    }
    bytes_put_u8(out, '"');
}

pawl_code slot_plan_header(struct slot_plan *plan, struct bytes *out, struct pawl_error *e) {
    size_t start = out->size;
    bytes_put_u64(out, plan->header_bytes - 8);
    bytes_put(out, plan->metadata.data, plan->metadata.size);
    if (plan->sums != NULL) put_sums(plan, out);
    bytes_put_u8(out, '}');
    bytes_put(out, plan->order->tensors.data, plan->order->tensors.size);
    bytes_put_u8(out, '}');
    static const char spaces[] = "                                                                ";
    while (!out->failed && out->size - start < plan->header_bytes) {
        uint64_t left = plan->header_bytes - (out->size - start);
        bytes_put(out, spaces, left < strlen(spaces) ? left : strlen(spaces));
    }
    return out->failed ? error_set(e, PAWL_MEMORY, 0, "save: no memory for its header") : PAWL_OK;
}

/* ---- the plan ---- */

static pawl_code build(struct slot_plan *plan, const struct ckpt_config *config, const struct ckpt_save *save,
                       struct ckpt_layout *layout, struct pawl_error *e) {
    void *const *data = save->layout != NULL ? save->data : NULL;
    pawl_code code = layout_order_get(layout, data, &plan->order, e);
    if (code != PAWL_OK) return code;
    plan->data_bytes = plan->order->data_bytes;
    code = reserve(plan, config, e);
    if (code != PAWL_OK) return code;
    add_spans(plan, layout, data);
    cut(plan, layout, data, config->chunk_bytes);
    code = make_metadata(plan, config, save, e);
    return code == PAWL_OK ? measure_header(plan, e) : code;
}

pawl_code slot_plan_make(const struct ckpt_config *config, const struct ckpt_save *save,
                         struct slot_plan *out, struct pawl_error *e) {
    *out = (struct slot_plan){0};
    struct ckpt_layout *layout = (struct ckpt_layout *)(uintptr_t)save->layout, *own = NULL;
    pawl_code code = check_save(save, e);
    if (code == PAWL_OK && layout == NULL) code = ckpt_layout_new(save->tensors, save->tensor_count, &own, e);
    if (code == PAWL_OK) code = build(out, config, save, layout != NULL ? layout : own, e);
    ckpt_layout_release(own);
    if (code != PAWL_OK) slot_plan_close(out);
    return code;
}

void slot_plan_close(struct slot_plan *plan) {
    layout_order_release(plan->order);
    free(plan->spans);
    free(plan->chunks);
    free(plan->sums);
    bytes_close(&plan->metadata);
    *plan = (struct slot_plan){0};
}

/* ---- gathering ---- */

uint32_t slot_plan_span(const struct slot_plan *plan, uint64_t offset) {
    uint32_t low = 0, high = plan->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->spans[middle].begin + plan->spans[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void slot_plan_gather(const struct slot_plan *plan, const struct slot_chunk *chunk, uint8_t *out) {
    uint64_t at = chunk->offset, end = chunk->offset + chunk->bytes;
    for (uint32_t i = slot_plan_span(plan, at); i < plan->span_count && plan->spans[i].begin < end; i++) {
        const struct slot_span *s = &plan->spans[i];
        if (s->begin > at) {
            memset(out + (at - chunk->offset), 0, s->begin - at);
            at = s->begin;
        }
        uint64_t stop = s->begin + s->bytes < end ? s->begin + s->bytes : end;
        if (s->memory == NULL) memcpy(out + (at - chunk->offset), s->data + (at - s->begin), stop - at);
        at = stop;
    }
    memset(out + (at - chunk->offset), 0, end - at);
}
