/* A description as JSON, and back: every field is asked for, and every number is in its range. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/foreign.h"
#include "run/describe.h"

#define FORMAT 1
/* Doubles hold whole numbers up to here, and no size is larger. */
#define WHOLE_MAX 0x1p53

static const char *const optimizer_names[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
#define OPTIMIZER_COUNT (sizeof optimizer_names / sizeof optimizer_names[0])

static double *optimizer_at(struct pawl_engine_optimizer *o, size_t i) {
    double *const all[OPTIMIZER_COUNT] = {&o->lr, &o->beta1, &o->beta2, &o->eps, &o->weight_decay};
    return all[i];
}

/* ---- writing ---- */

static void print_stage(const struct description_stage *s, struct json *j) {
    json_object(j, NULL);
    json_u64(j, "input_bytes", s->input_bytes);
    json_u64(j, "output_bytes", s->output_bytes);
    json_array(j, "tensors");
    for (uint32_t i = 0; i < s->tensor_count; i++) {
        const struct stage_tensor *t = &s->tensors[i];
        json_object(j, NULL);
        json_text(j, "name", t->name);
        json_array(j, "shape");
        for (uint32_t d = 0; d < t->rank; d++) json_u64(j, NULL, t->shape[d]);
        json_end_array(j);
        json_bool(j, "decay", (t->flags & STAGE_DECAY) != 0);
        json_end_object(j);
    }
    json_end_array(j);
    json_end_object(j);
}

void description_print(const struct description *d, struct bytes *out) {
    struct json j = json_begin(out);
    struct pawl_engine_optimizer o = d->optimizer;
    json_object(&j, NULL);
    json_i64(&j, "format", FORMAT);
    if (d->has_optimizer) {
        json_object(&j, "optimizer");
        for (size_t i = 0; i < OPTIMIZER_COUNT; i++) json_f64(&j, optimizer_names[i], *optimizer_at(&o, i));
        json_end_object(&j);
    } else {
        json_null(&j, "optimizer");
    }
    if (d->samples > 0)
        json_u64(&j, "samples", d->samples);
    else
        json_null(&j, "samples");
    json_array(&j, "stages");
    for (uint32_t s = 0; s < d->stage_count; s++) print_stage(&d->stages[s], &j);
    json_end_array(&j);
    json_end_object(&j);
    bytes_put_u8(out, '\n');
}

/* ---- reading ---- */

struct in {
    const char *name;
    pawl_code code; /* of the first field that was wrong */
    struct pawl_error *e;
};

static void wrong(struct in *in, const char *field, const char *wanted) {
    if (in->code == PAWL_OK)
        in->code = error_set(in->e, PAWL_FORMAT, 0, "%s: %s: wanted %s", in->name, field, wanted);
}

static const cJSON *field_of(const cJSON *object, const char *field) {
    return cJSON_GetObjectItemCaseSensitive(object, field);
}

static uint64_t whole(struct in *in, const cJSON *item, const char *field, double most) {
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (v >= 0 && v <= most && floor(v) == v) return (uint64_t)v;
    wrong(in, field, "a whole number in its range");
    return 0;
}

/* Number of items; -1: it is no list, or too long. */
static int64_t length_of(const cJSON *list, uint64_t most) {
    uint64_t count = 0;
    const cJSON *item;
    if (!cJSON_IsArray(list)) return -1;
    cJSON_ArrayForEach(item, list) if (++count > most) return -1;
    return (int64_t)count;
}

static void read_tensor(struct in *in, const cJSON *item, struct pawl_engine_tensor *out) {
    const cJSON *name = field_of(item, "name"), *shape = field_of(item, "shape"), *dim;
    const cJSON *decay = field_of(item, "decay");
    int64_t rank = length_of(shape, PAWL_ENGINE_RANK_MAX);
    if (!cJSON_IsString(name)) wrong(in, "tensor.name", "a text");
    if (!cJSON_IsBool(decay)) wrong(in, "tensor.decay", "true or false");
    if (rank < 0) {
        wrong(in, "tensor.shape", "a list of at most 8 numbers");
        return;
    }
    *out = (struct pawl_engine_tensor){.name = cJSON_IsString(name) ? name->valuestring : NULL,
                                       .decay = cJSON_IsTrue(decay)};
    cJSON_ArrayForEach(dim, shape) out->shape[out->rank++] = whole(in, dim, "tensor.shape", WHOLE_MAX);
}

static void read_stage(struct in *in, const cJSON *item, uint32_t index, uint32_t stages,
                       struct description_stage *out) {
    const cJSON *list = field_of(item, "tensors"), *t;
    int64_t count = length_of(list, FOREIGN_TENSORS_MAX);
    struct pawl_engine_layout layout = {
        .input_bytes = whole(in, field_of(item, "input_bytes"), "input_bytes", WHOLE_MAX),
        .output_bytes = whole(in, field_of(item, "output_bytes"), "output_bytes", WHOLE_MAX)};
    if (count < 1) wrong(in, "tensors", "a list of tensors");
    struct pawl_engine_tensor *tensors = count < 1 ? NULL : calloc((size_t)count, sizeof *tensors);
    if (count >= 1 && tensors == NULL && in->code == PAWL_OK)
        in->code = error_set(in->e, PAWL_MEMORY, 0, "no memory for %lld tensors", (long long)count);
    layout.tensors = tensors;
    if (tensors != NULL) cJSON_ArrayForEach(t, list) read_tensor(in, t, &tensors[layout.tensor_count++]);
    struct pawl_error inner = {0};
    if (in->code == PAWL_OK) {
        pawl_code code = foreign_tensors(&layout, index, stages, &out->tensors, &inner);
        if (code == PAWL_MEMORY)
            in->code = error_set(in->e, code, 0, "%s", inner.text);
        else if (code != PAWL_OK)
            in->code = error_set(in->e, PAWL_FORMAT, 0, "%s: %s", in->name, inner.text);
        else
            *out = (struct description_stage){layout.input_bytes, layout.output_bytes, out->tensors,
                                              layout.tensor_count};
    }
    free(tensors);
}

static void read_optimizer(struct in *in, const cJSON *item, struct description *out) {
    if (cJSON_IsNull(item)) return;
    if (!cJSON_IsObject(item)) {
        wrong(in, "optimizer", "an object, or null");
        return;
    }
    out->has_optimizer = true;
    for (size_t i = 0; i < OPTIMIZER_COUNT; i++) {
        const cJSON *v = field_of(item, optimizer_names[i]);
        if (cJSON_IsNumber(v) && isfinite(v->valuedouble))
            *optimizer_at(&out->optimizer, i) = v->valuedouble;
        else
            wrong(in, optimizer_names[i], "a number");
    }
}

/* Missing is null: what does not know the field does not say. */
static void read_samples(struct in *in, const cJSON *item, struct description *out) {
    if (item == NULL || cJSON_IsNull(item)) return;
    out->samples = whole(in, item, "samples", (double)FOREIGN_SAMPLES_MAX);
    if (out->samples == 0) wrong(in, "samples", "a number from 1, or null");
}

static void read_all(struct in *in, const cJSON *root, struct description *out) {
    const cJSON *stages = field_of(root, "stages"), *item;
    int64_t count = length_of(stages, FOREIGN_STAGES_MAX);
    if (whole(in, field_of(root, "format"), "format", FORMAT) != FORMAT) wrong(in, "format", "1");
    read_optimizer(in, field_of(root, "optimizer"), out);
    read_samples(in, field_of(root, "samples"), out);
    if (count < 1) wrong(in, "stages", "a list of stages");
    if (in->code != PAWL_OK) return;
    out->stages = calloc((size_t)count, sizeof *out->stages);
    if (out->stages == NULL) {
        in->code = error_set(in->e, PAWL_MEMORY, 0, "no memory for %lld stages", (long long)count);
        return;
    }
    cJSON_ArrayForEach(item, stages) {
        if (in->code != PAWL_OK) return;
        uint32_t index = out->stage_count++;
        read_stage(in, item, index, (uint32_t)count, &out->stages[index]);
    }
}

pawl_code description_parse(const char *text, size_t size, const char *name, struct description *out,
                            struct pawl_error *e) {
    struct in in = {.name = name, .code = PAWL_OK, .e = e};
    *out = (struct description){0};
    cJSON *root = size <= DESCRIBE_BYTES_MAX ? cJSON_ParseWithLength(text, size) : NULL;
    if (cJSON_IsObject(root))
        read_all(&in, root, out);
    else
        in.code = error_set(e, PAWL_FORMAT, 0, "%s: %zu bytes that are no JSON object", name, size);
    cJSON_Delete(root);
    struct pawl_error inner = {0};
    if (in.code == PAWL_OK && description_check(out, &inner) != PAWL_OK)
        in.code = error_set(e, inner.code == PAWL_MEMORY ? PAWL_MEMORY : PAWL_FORMAT, 0, "%s: %s", name,
                            inner.text);
    if (in.code != PAWL_OK) description_close(out);
    return in.code;
}
