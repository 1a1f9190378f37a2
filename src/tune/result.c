/* What was measured, as JSON: for people's scripts and for dir/tune.json (docs/formats/tune.md).
 *
 * Reading checks every field: a missing one, one of another type or out of range is FORMAT and named; text
 * that is no JSON is CORRUPT. The choice in the file is for readers: the points and the need decide. Tested
 * in tests/unit/tune_result_test.c and tests/fuzz/tune_result_fuzz.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "tune/tune.h"

#define VERSION 1
/* A file has at most PAWL_TUNE_POINTS_MAX points of some hundred bytes. */
#define FILE_BYTES_MAX ((size_t)1 << 20)

/* ---- writing ---- */

static void put_device(struct json *j, const struct pawl_device *d) {
    json_object(j, "device");
    json_text(j, "mode", d->mode);
    json_u64(j, "depth", d->depth);
    json_u64(j, "piece_bytes", d->piece_bytes);
    json_f64(j, "write_bps", d->write_bps);
    json_f64(j, "read_bps", d->read_bps);
    json_end_object(j);
}

static void put_need(struct json *j, const struct pawl_tune_need *n) {
    json_object(j, "need");
    json_u64(j, "bytes", n->bytes);
    json_f64(j, "iteration_s", n->iteration_s);
    json_f64(j, "overhead", n->overhead);
    json_u64(j, "memory_bytes", n->memory_bytes);
    json_u64(j, "storage_bytes", n->storage_bytes);
    json_u64(j, "keep", n->keep);
    json_u64(j, "spare_slots", n->spare_slots);
    json_f64(j, "mtbf_s", n->mtbf_s);
    json_f64(j, "load_s", n->load_s);
    json_bool(j, "staged", n->staged);
    json_end_object(j);
}

static void put_point(struct json *j, const struct pawl_tune_point *p) {
    json_u64(j, "in_flight", p->in_flight);
    json_u64(j, "writers", p->writers);
    json_u64(j, "chunk_bytes", p->chunk_bytes);
    json_f64(j, "write_s", p->write_s);
    json_f64(j, "stall_s", p->stall_s);
}

static void put_choice(struct json *j, const struct pawl_tune_choice *c) {
    const struct pawl_tune_interval *i = &c->interval;
    json_object(j, "choice");
    json_u64(j, "every", i->every);
    put_point(j, &c->point);
    json_text(j, "bound", pawl_tune_bound_name(i->bound));
    json_f64(j, "bandwidth_min", i->bandwidth_min);
    json_f64(j, "stall_min", i->stall_min);
    json_f64(j, "young_s", i->young_s);
    json_f64(j, "daly_s", i->daly_s);
    json_f64(j, "slowdown", i->slowdown);
    json_f64(j, "lost_mean_s", i->lost_mean_s);
    json_f64(j, "lost_worst_s", i->lost_worst_s);
    json_u64(j, "storage_bytes", c->storage_bytes);
    json_u64(j, "memory_bytes", c->memory_bytes);
    json_f64(j, "expected_stall_s", c->stall_s);
    json_f64(j, "speedup", c->speedup);
    json_text(j, "why", c->why);
    json_end_object(j);
}

static char *text_of(struct bytes *b) {
    bytes_put(b, "\n", 2); /* and its 0 */
    if (!b->failed) return (char *)b->data;
    bytes_close(b);
    return NULL;
}

char *pawl_tune_json(const struct pawl_tune_result *r) {
    struct bytes b = {0};
    struct json j = json_begin(&b);
    json_object(&j, NULL);
    json_i64(&j, "pawl_tune", VERSION);
    json_u64(&j, "bytes", r->bytes);
    json_u64(&j, "probe_bytes", r->probe_bytes);
    json_text(&j, "store", r->store);
    json_bool(&j, "uring_direct", r->uring_direct);
    json_text(&j, "note", r->note);
    put_device(&j, &r->device);
    json_f64(&j, "copy_bps", r->copy_bps);
    put_need(&j, &r->need);
    json_array(&j, "points");
    for (uint32_t i = 0; i < r->point_count; i++) {
        json_object(&j, NULL);
        put_point(&j, &r->points[i]);
        json_end_object(&j);
    }
    json_end_array(&j);
    if (r->stopped_by == 0) put_choice(&j, &r->choice);
    json_end_object(&j);
    return text_of(&b);
}

char *pawl_bench_json(const struct pawl_bench_result *r) {
    struct bytes b = {0};
    struct json j = json_begin(&b);
    json_object(&j, NULL);
    json_u64(&j, "bytes", r->bytes);
    json_u64(&j, "rounds", r->rounds);
    json_u64(&j, "in_flight", r->in_flight);
    json_text(&j, "store", r->store);
    json_f64(&j, "write_mbps", r->write_bps * 1e-6);
    json_f64(&j, "save_mbps", r->save_bps * 1e-6);
    json_f64(&j, "device_write_mbps", r->device.write_bps * 1e-6);
    json_f64(&j, "write_ratio", r->write_ratio);
    json_f64(&j, "save_ratio", r->save_ratio);
    json_f64(&j, "restore_mbps", r->restore_bps * 1e-6);
    json_f64(&j, "device_read_mbps", r->device.read_bps * 1e-6);
    json_f64(&j, "restore_ratio", r->restore_ratio);
    json_f64(&j, "cpu_s_per_gb", r->cpu_s_per_gb);
    json_f64(&j, "restore_cpu_s_per_gb", r->restore_cpu_s_per_gb);
    json_f64(&j, "device_cpu_s_per_gb", r->device_cpu_s_per_gb);
    json_f64(&j, "blocked_us", r->blocked_s * 1e6);
    json_f64(&j, "durable_ms", r->write_s * 1e3);
    put_device(&j, &r->device);
    json_end_object(&j);
    return text_of(&b);
}

/* ---- reading ---- */

struct in {
    const cJSON *object;
    const char *name; /* of the object, for messages */
    pawl_code code;   /* of the first field that was wrong */
    struct pawl_error *e;
};

static void wrong(struct in *in, const char *field, const char *wanted) {
    if (in->code != PAWL_OK) return;
    in->code = error_set(in->e, PAWL_FORMAT, 0, TUNE_FILE ": %s%s%s: wanted %s", in->name,
                         in->name[0] != 0 ? "." : "", field, wanted);
}

static double get_f64(struct in *in, const char *field) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(in->object, field);
    if (cJSON_IsNumber(item) && isfinite(item->valuedouble) && item->valuedouble >= 0)
        return item->valuedouble;
    wrong(in, field, "a number not below 0");
    return 0;
}

/* Doubles hold whole numbers to 2^53: more than any size here. */
static uint64_t get_u64(struct in *in, const char *field, uint64_t least, uint64_t most) {
    double value = get_f64(in, field);
    if (value == floor(value) && value >= (double)least && value <= fmin(0x1p53, (double)most))
        return (uint64_t)value;
    wrong(in, field, "a whole number in its range");
    return 0;
}

static bool get_bool(struct in *in, const char *field) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(in->object, field);
    if (!cJSON_IsBool(item)) wrong(in, field, "true or false");
    return cJSON_IsTrue(item);
}

static void get_text(struct in *in, const char *field, char *out, size_t size) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(in->object, field);
    if (cJSON_IsString(item) && strlen(item->valuestring) < size)
        memcpy(out, item->valuestring, strlen(item->valuestring) + 1);
    else
        wrong(in, field, "a text that is not too long");
}

static struct in inner(struct in *in, const char *field) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(in->object, field);
    if (!cJSON_IsObject(item)) wrong(in, field, "an object");
    return (struct in){.object = item, .name = field, .code = in->code, .e = in->e};
}

static void get_device(struct in *outer, struct pawl_device *d) {
    struct in in = inner(outer, "device");
    get_text(&in, "mode", d->mode, sizeof d->mode);
    d->depth = (uint32_t)get_u64(&in, "depth", 1, UINT32_MAX);
    d->piece_bytes = get_u64(&in, "piece_bytes", 1, UINT64_MAX);
    d->write_bps = get_f64(&in, "write_bps");
    d->read_bps = get_f64(&in, "read_bps");
    outer->code = in.code;
}

static void get_need(struct in *outer, struct pawl_tune_need *n) {
    struct in in = inner(outer, "need");
    n->bytes = get_u64(&in, "bytes", 1, UINT64_MAX);
    n->iteration_s = get_f64(&in, "iteration_s");
    n->overhead = get_f64(&in, "overhead");
    n->memory_bytes = get_u64(&in, "memory_bytes", 0, UINT64_MAX);
    n->storage_bytes = get_u64(&in, "storage_bytes", 0, UINT64_MAX);
    n->keep = (uint32_t)get_u64(&in, "keep", 0, UINT32_MAX);
    n->spare_slots = (uint32_t)get_u64(&in, "spare_slots", 0, UINT32_MAX);
    n->mtbf_s = get_f64(&in, "mtbf_s");
    n->load_s = get_f64(&in, "load_s");
    n->staged = get_bool(&in, "staged");
    outer->code = in.code;
}

static void get_points(struct in *outer, struct pawl_tune_result *r) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(outer->object, "points"), *item;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > (int)PAWL_TUNE_POINTS_MAX) {
        wrong(outer, "points", "a list that is not too long");
        return;
    }
    cJSON_ArrayForEach(item, list) {
        struct in in = {.object = item, .name = "points", .code = outer->code, .e = outer->e};
        struct pawl_tune_point *p = &r->points[r->point_count++];
        p->in_flight = (uint32_t)get_u64(&in, "in_flight", 1, UINT32_MAX);
        p->writers = (uint32_t)get_u64(&in, "writers", 1, UINT32_MAX);
        p->chunk_bytes = get_u64(&in, "chunk_bytes", 1, UINT64_MAX);
        p->write_s = get_f64(&in, "write_s");
        p->stall_s = get_f64(&in, "stall_s");
        outer->code = in.code;
    }
}

static pawl_code get_result(const cJSON *root, struct pawl_tune_result *r, struct pawl_error *e) {
    struct in in = {.object = root, .name = "", .code = PAWL_OK, .e = e};
    if (!cJSON_IsObject(root)) return error_set(e, PAWL_CORRUPT, 0, TUNE_FILE ": not a JSON object");
    (void)get_u64(&in, "pawl_tune", VERSION, VERSION);
    r->bytes = get_u64(&in, "bytes", 1, UINT64_MAX);
    r->probe_bytes = get_u64(&in, "probe_bytes", 1, UINT64_MAX);
    get_text(&in, "store", r->store, sizeof r->store);
    r->uring_direct = get_bool(&in, "uring_direct");
    get_text(&in, "note", r->note, sizeof r->note);
    get_device(&in, &r->device);
    r->copy_bps = get_f64(&in, "copy_bps");
    get_need(&in, &r->need);
    get_points(&in, r);
    return in.code;
}

pawl_code tune_parse(const char *text, size_t size, struct pawl_tune_result *out, struct pawl_error *e) {
    *out = (struct pawl_tune_result){0};
    if (size > FILE_BYTES_MAX)
        return error_set(e, PAWL_FORMAT, 0, TUNE_FILE ": %zu bytes are too many", size);
    cJSON *root = cJSON_ParseWithLength(text, size);
    pawl_code code = get_result(root, out, e);
    cJSON_Delete(root);
    if (code == PAWL_OK) code = pawl_tune_choose(&out->need, out->points, out->point_count, &out->choice, e);
    return code;
}

/* ---- the file ---- */

pawl_code tune_keep(const char *dir, const struct pawl_tune_result *result, struct pawl_error *e) {
    struct store *s = NULL;
    char *text = pawl_tune_json(result);
    if (text == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %s/" TUNE_FILE, dir);
    pawl_code code = store_open(dir, STORE_PLAIN, false, &s, NULL, e);
    if (code == PAWL_OK) code = store_put(s, TUNE_FILE, text, strlen(text), e);
    store_close(s);
    free(text);
    return code;
}

pawl_code pawl_tune_load(const char *dir, struct pawl_tune_result *out, struct pawl_error *e) {
    struct store *s = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    pawl_code code = store_open(dir, STORE_PLAIN, true, &s, NULL, e);
    if (code == PAWL_OK) code = store_get_most(s, TUNE_FILE, FILE_BYTES_MAX, &text, &size, e);
    if (code == PAWL_OK) code = tune_parse((const char *)text, size, out, e);
    if (code != PAWL_OK && text != NULL) error_wrap(e, "%s", dir);
    free(text);
    store_close(s);
    return code;
}
