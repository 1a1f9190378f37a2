/* What the inspector knows, as JSON: one object, one line. Keys are documented in docs/ckpt-command.md and
 * only ever added to. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "inspect/inspect.h"
#include "inspect/text.h"

/* The buffer's memory as a terminated text, or null when it failed. */
static char *text_of(struct bytes *b) {
    bytes_put(b, "\n", 2);
    if (!b->failed) return (char *)b->data;
    bytes_close(b);
    return NULL;
}

char *pawl_inspect_safe_text(const void *text, size_t size) {
    struct bytes out = {0};
    text_put_safe(&out, text, size);
    bytes_put_u8(&out, 0);
    if (!out.failed) return (char *)out.data;
    bytes_close(&out);
    return NULL;
}

static void put_time(struct json *j, const char *key, int64_t seconds) {
    if (seconds != 0)
        json_i64(j, key, seconds);
    else
        json_null(j, key);
}

/* ---- parts shared by several ---- */

static void put_step_fields(struct json *j, const struct pawl_inspect_step *s) {
    json_u64(j, "step", s->step);
    json_u64(j, "incarnation", s->incarnation);
    json_bool(j, "complete", s->complete);
    json_bool(j, "current", s->current);
    text_put_json(j, "missing", s->complete ? NULL : s->missing);
    json_u64(j, "units", s->units);
    json_u64(j, "parts", s->parts);
    json_u64(j, "damaged", s->damaged);
    json_u64(j, "bytes", s->bytes);
    put_time(j, "committed_at", s->committed_s);
    json_bool(j, "unchecked", s->unchecked);
    json_bool(j, "bad", s->bad);
}

static void put_problem(struct json *j, const struct pawl_inspect_problem *p) {
    json_object(j, NULL);
    json_text(j, "kind", pawl_inspect_problem_name(p->kind));
    json_text(j, "code", pawl_code_name(p->code));
    text_put_json(j, "store", p->store);
    text_put_json(j, "file", p->file);
    if (p->step != 0) {
        json_u64(j, "step", p->step);
        json_u64(j, "incarnation", p->incarnation);
    }
    if (p->part_count != 0) {
        json_u64(j, "unit", p->unit);
        json_u64(j, "part", p->part);
        json_u64(j, "parts", p->part_count);
    }
    if (p->kind == PAWL_PROBLEM_LOG) json_u64(j, "region", p->region);
    if (p->kind == PAWL_PROBLEM_CHUNK) {
        json_u64(j, "chunk", p->chunk);
        json_u64(j, "offset", p->offset);
        json_u64(j, "bytes", p->bytes);
    }
    text_put_json(j, "tensor", p->tensor);
    text_put_json(j, "text", p->text);
    json_end_object(j);
}

static void put_problems(struct json *j, const struct pawl_inspect *in) {
    json_array(j, "problems");
    for (uint32_t i = 0; i < in->problem_count; i++) put_problem(j, &in->problems[i].is);
    json_end_array(j);
}

static void put_folder(struct json *j, const struct pawl_inspect *in) {
    struct pawl_inspect_summary s = pawl_inspect_summary(in);
    text_put_json(j, "path", in->path);
    text_put_json(j, "run", s.run[0] != 0 ? s.run : NULL);
    json_u64(j, "stores", s.stores);
    if (s.current != PAWL_INSPECT_NONE)
        json_u64(j, "current", in->steps[s.current].is.step);
    else
        json_null(j, "current");
    json_u64(j, "used_bytes", s.used_bytes);
    json_u64(j, "unused_bytes", s.unused_bytes);
    json_u64(j, "free_bytes", s.free_bytes);
}

/* ---- ls ---- */

char *pawl_inspect_list_json(const struct pawl_inspect *in) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    put_folder(&j, in);
    json_array(&j, "steps");
    for (uint32_t i = 0; i < in->step_count; i++) {
        json_object(&j, NULL);
        put_step_fields(&j, &in->steps[i].is);
        json_end_object(&j);
    }
    json_end_array(&j);
    put_problems(&j, in);
    json_end_object(&j);
    return text_of(&out);
}

/* ---- info ---- */

static void put_numbers(struct json *j, const char *key, const uint64_t *numbers, uint32_t count) {
    json_array(j, key);
    for (uint32_t i = 0; i < count; i++) json_u64(j, NULL, numbers[i]);
    json_end_array(j);
}

static void put_tensor(struct json *j, struct pawl_inspect *in, uint32_t index, uint32_t tensor) {
    struct pawl_tensor t = pawl_inspect_tensor(in, index, tensor);
    uint64_t bytes = 0;
    if (inspect_tensor_bytes(&t, &bytes, NULL) != PAWL_OK) bytes = UINT64_MAX;
    json_object(j, NULL);
    text_put_json(j, "name", t.name);
    json_text(j, "dtype", pawl_dtype_name(t.dtype));
    put_numbers(j, "shape", t.shape, t.rank);
    json_u64(j, "bytes", bytes);
    json_array(j, "slices");
    for (uint32_t i = 0; i < pawl_inspect_slice_count(in, index, tensor); i++) {
        struct pawl_inspect_slice s = pawl_inspect_slice(in, index, tensor, i);
        json_object(j, NULL);
        json_u64(j, "part", s.part);
        put_numbers(j, "begin", s.begin, t.rank);
        put_numbers(j, "extent", s.extent, t.rank);
        json_end_object(j);
    }
    json_end_array(j);
    json_end_object(j);
}

static void put_part(struct json *j, const struct pawl_inspect_part *p) {
    json_object(j, NULL);
    text_put_json(j, "store", p->store);
    text_put_json(j, "file", p->file);
    json_u64(j, "unit", p->unit);
    json_u64(j, "part", p->part);
    json_u64(j, "parts", p->part_count);
    json_text(j, "state", pawl_inspect_state_name(p->state));
    json_u64(j, "file_bytes", p->file_bytes);
    json_u64(j, "data_bytes", p->data_bytes);
    json_u64(j, "counter", p->counter);
    put_time(j, "committed_at", p->committed_s);
    json_end_object(j);
}

static void put_hex(struct json *j, const char *key, const void *data, size_t size) {
    char *text = malloc(2 * size + 1);
    if (text == NULL) {
        j->out->failed = true;
        return;
    }
    hash_hex(data, size, text);
    json_text(j, key, text);
    free(text);
}

/* As JSON when it is, else as text when it is, else in hexadecimal. */
static void put_blob(struct json *j, struct pawl_inspect *in, uint32_t index, uint32_t unit) {
    const void *blob = NULL;
    size_t bytes = 0;
    json_object(j, NULL);
    json_u64(j, "unit", unit);
    if (pawl_inspect_blob(in, index, unit, &blob, &bytes, NULL) == PAWL_OK) {
        json_u64(j, "bytes", bytes);
        char *text = malloc(bytes + 1);
        if (text != NULL && bytes > 0) memcpy(text, blob, bytes);
        if (text != NULL) text[bytes] = 0;
        if (text == NULL)
            j->out->failed = true;
        else if (text_is_json(text, bytes))
            text_put_raw(j, "json", text, bytes);
        else if (strlen(text) == bytes && text_is_utf8(text, bytes))
            text_put_json(j, "text", text);
        else
            put_hex(j, "hex", text, bytes);
        free(text);
    }
    json_end_object(j);
}

static void put_store(struct json *j, const struct pawl_inspect_store *s) {
    json_object(j, NULL);
    text_put_json(j, "path", s->path);
    json_bool(j, "readable", s->readable);
    json_u64(j, "counter", s->counter);
    json_u64(j, "logs", s->logs);
    json_u64(j, "used", s->used);
    json_u64(j, "unused", s->unused);
    json_u64(j, "damaged", s->damaged);
    json_u64(j, "used_bytes", s->used_bytes);
    json_u64(j, "unused_bytes", s->unused_bytes);
    json_end_object(j);
}

/* A step claims any number of units; only those with a part have something to show. */
static void put_blobs(struct json *j, struct pawl_inspect *in, uint32_t index) {
    json_array(j, "blobs");
    uint64_t next = 0;
    for (uint32_t i = 0; i < pawl_inspect_part_count(in, index); i++) {
        struct pawl_inspect_part p = pawl_inspect_part(in, index, i);
        if (p.unit < next || p.state != PAWL_INSPECT_GOOD) continue;
        put_blob(j, in, index, p.unit);
        next = (uint64_t)p.unit + 1;
    }
    json_end_array(j);
}

char *pawl_inspect_info_json(struct pawl_inspect *in, uint32_t index) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    struct pawl_inspect_step step = pawl_inspect_step(in, index);
    json_object(&j, NULL);
    put_folder(&j, in);
    json_object(&j, "step");
    put_step_fields(&j, &step);
    json_end_object(&j);
    json_array(&j, "ranks");
    for (uint32_t i = 0; i < in->store_count; i++) {
        struct pawl_inspect_store s = pawl_inspect_store(in, i);
        put_store(&j, &s);
    }
    json_end_array(&j);
    json_array(&j, "parts");
    for (uint32_t i = 0; i < pawl_inspect_part_count(in, index); i++) {
        struct pawl_inspect_part p = pawl_inspect_part(in, index, i);
        put_part(&j, &p);
    }
    json_end_array(&j);
    json_array(&j, "tensors");
    for (uint32_t i = 0; i < pawl_inspect_tensor_count(in, index); i++) put_tensor(&j, in, index, i);
    json_end_array(&j);
    put_blobs(&j, in, index);
    put_problems(&j, in);
    json_end_object(&j);
    return text_of(&out);
}

/* ---- verify, export, diff, changes ---- */

char *pawl_inspect_verify_json(const struct pawl_inspect *in, const struct pawl_inspect_verified *done) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    put_folder(&j, in);
    json_bool(&j, "valid", pawl_inspect_outcome(in, NULL) == PAWL_OK);
    json_u64(&j, "verified_steps", done->steps);
    json_u64(&j, "verified_slots", done->slots);
    json_u64(&j, "verified_bytes", done->bytes);
    json_u64(&j, "gone_slots", done->gone);
    json_array(&j, "incomplete");
    for (uint32_t i = 0; i < in->step_count; i++) {
        if (in->steps[i].is.complete) continue;
        json_object(&j, NULL);
        put_step_fields(&j, &in->steps[i].is);
        json_end_object(&j);
    }
    json_end_array(&j);
    put_problems(&j, in);
    json_end_object(&j);
    return text_of(&out);
}

char *pawl_inspect_export_json(const struct pawl_inspect_exported *done) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    json_u64(&j, "step", done->step);
    json_u64(&j, "incarnation", done->incarnation);
    json_u64(&j, "tensors", done->tensors);
    json_u64(&j, "files", done->files);
    json_u64(&j, "bytes", done->bytes);
    text_put_json(&j, "path", done->path);
    json_end_object(&j);
    return text_of(&out);
}

static void put_type(struct json *j, const char *key, const struct pawl_tensor *t) {
    if (t->name == NULL) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_text(j, "dtype", pawl_dtype_name(t->dtype));
    put_numbers(j, "shape", t->shape, t->rank);
    json_end_object(j);
}

static void put_difference(struct json *j, const struct pawl_inspect_difference *d) {
    json_object(j, NULL);
    json_text(j, "kind", pawl_inspect_difference_name(d->kind));
    text_put_json(j, "name", d->a.name != NULL ? d->a.name : d->b.name);
    put_type(j, "a", &d->a);
    put_type(j, "b", &d->b);
    if (d->kind == PAWL_DIFFERENCE_VALUES) {
        json_u64(j, "elements", d->elements);
        json_u64(j, "first", d->first);
        if (d->has_largest)
            json_f64(j, "largest", d->largest);
        else
            json_null(j, "largest");
        json_u64(j, "nans", d->nans);
    }
    json_end_object(j);
}

char *pawl_inspect_diff_json(const struct pawl_inspect_diff *diff) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    json_u64(&j, "step_a", pawl_inspect_diff_step(diff, 0));
    json_u64(&j, "step_b", pawl_inspect_diff_step(diff, 1));
    json_bool(&j, "equal", pawl_inspect_diff_count(diff) == 0);
    json_u64(&j, "same", pawl_inspect_diff_same(diff));
    json_array(&j, "differences");
    for (uint32_t i = 0; i < pawl_inspect_diff_count(diff); i++) {
        struct pawl_inspect_difference d = pawl_inspect_diff_at(diff, i);
        put_difference(&j, &d);
    }
    json_end_array(&j);
    json_end_object(&j);
    return text_of(&out);
}

static void put_change(struct json *j, const struct pawl_inspect_change *c) {
    json_object(j, NULL);
    json_text(j, "kind", pawl_inspect_change_name(c->kind));
    text_put_json(j, "store", c->store);
    text_put_json(j, "file", c->file);
    if (c->kind == PAWL_CHANGE_STEP) {
        json_u64(j, "step", c->step);
        json_u64(j, "incarnation", c->incarnation);
        json_u64(j, "unit", c->unit);
        json_u64(j, "part", c->part);
        json_u64(j, "parts", c->part_count);
    }
    json_u64(j, "bytes", c->bytes);
    text_put_json(j, "why", c->why);
    json_end_object(j);
}

char *pawl_inspect_changes_json(const struct pawl_inspect_changes *changes, bool dry_run) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < changes->count; i++) bytes += changes->items[i].is.bytes;
    json_object(&j, NULL);
    json_bool(&j, "dry_run", dry_run);
    json_u64(&j, "newest", changes->newest);
    json_u64(&j, "bytes", bytes);
    json_array(&j, "changes");
    for (uint32_t i = 0; i < changes->count; i++) put_change(&j, &changes->items[i].is);
    json_end_array(&j);
    json_end_object(&j);
    return text_of(&out);
}
