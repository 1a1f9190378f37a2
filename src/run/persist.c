/* Implementation of run/persist.h. */
#include "run/persist.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/weights.h"
#include "run/engine.h"

#define SECTIONS 3 /* parameters and the two moments */

/* Read at once by a load: a fraction of a second on any device that is not stuck. */
#define LOAD_BATCH_BYTES (64u << 20)

/* Chunks of a small model; larger ones are the engine's to choose, whose defaults are worth it. */
#define SMALL_BYTES_MAX   (32u << 20)
#define SMALL_CHUNK_BYTES (1u << 20)

static const char *const section_prefix[SECTIONS] = {"", "exp_avg/", "exp_avg_sq/"};

static float *section_of(const struct version *v, int section) {
    return section == 0 ? v->params : section == 1 ? v->exp_avg : v->exp_avg_sq;
}

/* To be freed; null without memory. */
static char *stored_name(const char *prefix, const struct stage_tensor *t) {
    char *name;
    return asprintf(&name, "%s%s", prefix, t->name) < 0 ? NULL : name;
}

pawl_code persist_sizes(const struct spec *spec, struct ckpt_config *config, struct pawl_error *e) {
    struct stage_tensor *tensors = NULL;
    uint32_t count = 0;
    uint64_t bytes = 0;
    pawl_code code = engine_tensors(spec, &tensors, &count, e);
    for (uint32_t i = 0; i < count; i++) bytes += (tensors[i].count + 1) * SECTIONS * sizeof(float);
    engine_tensors_free(tensors, count);
    uint64_t all = mem_round_up(bytes, STORE_BLOCK) * spec->save.in_flight;
    if (code != PAWL_OK || all > SMALL_BYTES_MAX) return code;
    uint64_t chunk = mem_round_up(bytes, STORE_BLOCK);
    config->chunk_bytes = chunk < SMALL_CHUNK_BYTES ? chunk : SMALL_CHUNK_BYTES;
    config->staging_bytes = (all + config->chunk_bytes - 1) / config->chunk_bytes * config->chunk_bytes;
    return PAWL_OK;
}

/* ---- what a version consists of ---- */

struct tensor_list {
    struct pawl_tensor *tensors;
    uint32_t count;
    bool failed; /* no memory */
};

static void list_close(struct tensor_list *list) {
    for (uint32_t i = 0; i < list->count; i++) free((char *)(uintptr_t)list->tensors[i].name);
    free(list->tensors);
}

static void list_add(struct tensor_list *list, const char *prefix, const struct stage_tensor *t,
                     struct pawl_tensor tensor) {
    tensor.name = stored_name(prefix, t);
    list->failed = list->failed || tensor.name == NULL;
    list->tensors[list->count++] = tensor;
}

/* Section after section, as they lie in memory: neighbours there are written as one. */
static pawl_code list_make(struct tensor_list *list, const struct stage *stage, const struct version *version,
                           bool with_copies, struct pawl_error *e) {
    size_t most = (size_t)stage->tensor_count * (SECTIONS + 1);
    *list = (struct tensor_list){.tensors = calloc(most + 1, sizeof *list->tensors)};
    list->failed = list->tensors == NULL;
    for (int s = 0; s <= SECTIONS && !list->failed; s++) {
        for (uint32_t i = 0; i < stage->tensor_count; i++) {
            const struct stage_tensor *t = &stage->tensors[i];
            if (!with_copies && (t->flags & STAGE_SHARED_COPY)) continue;
            if (s < SECTIONS)
                list_add(list, section_prefix[s], t,
                         (struct pawl_tensor){.dtype = PAWL_F32,
                                              .rank = t->rank,
                                              .shape = t->shape,
                                              .data = section_of(version, s) + t->offset});
            else
                list_add(list, "exponent/", t,
                         (struct pawl_tensor){.dtype = PAWL_I32, .data = &version->exponents[i]});
        }
    }
    return list->failed ? error_set(e, PAWL_MEMORY, 0, "no memory to list %zu tensors of a version", most)
                        : PAWL_OK;
}

/* ---- saving ---- */

static pawl_code make_blob(const struct spec *spec, const struct version *version, struct bytes *blob,
                           struct pawl_error *e) {
    struct json j = json_begin(blob);
    json_object(&j, NULL);
    json_i64(&j, "step", (int64_t)version->number);
    json_i64(&j, "updates", (int64_t)version->updates);
    json_i64(&j, "samples", (int64_t)(version->number * spec_contributions(spec) * spec->parallel.batch));
    json_end_object(&j);
    return blob->failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the extra data of a save") : PAWL_OK;
}

pawl_code persist_save(struct ckpt *c, const struct spec *spec, const struct stage *stage,
                       const struct version *version, struct persist_part part, struct pawl_error *e) {
    struct tensor_list list;
    struct ckpt_share share = {0};
    struct bytes blob = {0};
    pawl_code code = list_make(&list, stage, version, false, e);
    if (code == PAWL_OK) code = make_blob(spec, version, &blob, e);
    if (code == PAWL_OK) code = ckpt_share_init(list.tensors, list.count, part.part, part.parts, &share, e);
    if (code == PAWL_OK) {
        struct ckpt_save save = {.step = version->number,
                                 .tag = part.tag,
                                 .unit = stage->index,
                                 .unit_count = stage->stage_count,
                                 .part = part.part,
                                 .part_count = part.parts,
                                 .tensors = share.tensors,
                                 .tensor_count = share.count,
                                 .blob = blob.data,
                                 .blob_bytes = blob.size};
        code = ckpt_save_begin(c, &save, e);
    }
    ckpt_share_close(&share);
    list_close(&list);
    bytes_close(&blob);
    return code;
}

/* ---- loading ---- */

static pawl_code read_whole(struct ckpt_set *set, uint32_t index, const char *prefix,
                            const struct stage_tensor *t, struct pawl_tensor want, void *out,
                            struct pawl_error *e) {
    char *name = stored_name(prefix, t);
    if (name == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to read %s", t->name);
    want.name = name;
    want.data = out;
    pawl_code code = ckpt_set_read(set, index, &want, e);
    free(name);
    return code;
}

static pawl_code load_blob(struct ckpt_set *set, uint32_t index, struct version *version,
                           struct pawl_error *e) {
    const void *blob;
    size_t bytes;
    pawl_code code = ckpt_set_blob(set, index, 0, &blob, &bytes, e);
    if (code != PAWL_OK) return code;
    cJSON *json = cJSON_ParseWithLength(blob, bytes);
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    const cJSON *updates = cJSON_GetObjectItemCaseSensitive(json, "updates");
    uint64_t stored = ckpt_set_at(set, index)->step;
    bool good = cJSON_IsNumber(step) && cJSON_IsNumber(updates) && step->valuedouble == (double)stored &&
                updates->valuedouble >= 0 && updates->valuedouble <= (double)stored;
    if (good) version->updates = (uint64_t)updates->valuedouble;
    cJSON_Delete(json);
    version->number = stored;
    return good ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0, "step %llu: its extra data holds no step and updates that fit",
                            (unsigned long long)stored);
}

static uint64_t bytes_of(const struct pawl_tensor *t) {
    uint64_t count = 1; /* stage tensors and scalars: no product overflows, the version was allocated */
    for (uint32_t d = 0; d < t->rank; d++) count *= t->shape[d];
    return count * 4;
}

/* In batches of neighbours, so that whoever watches the progress sees a long load get on. */
static pawl_code read_list(struct ckpt_set *set, uint32_t index, const struct tensor_list *list,
                           _Atomic uint64_t *progress, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t at = 0, count; at < list->count && code == PAWL_OK; at += count) {
        uint64_t bytes = 0;
        for (count = 0; at + count < list->count && (count == 0 || bytes < LOAD_BATCH_BYTES); count++)
            bytes += bytes_of(&list->tensors[at + count]);
        code = ckpt_set_read_many(set, index, list->tensors + at, count, e);
        if (progress != NULL) atomic_fetch_add_explicit(progress, 1, memory_order_relaxed);
    }
    return code;
}

pawl_code persist_load(struct ckpt_set *set, uint32_t index, const struct stage *stage,
                       struct version *version, _Atomic uint64_t *progress, struct pawl_error *e) {
    struct tensor_list list = {0};
    pawl_code code = load_blob(set, index, version, e);
    if (code == PAWL_OK) code = list_make(&list, stage, version, true, e);
    if (code == PAWL_OK) code = read_list(set, index, &list, progress, e);
    list_close(&list);
    return code;
}

uint32_t persist_find(const struct ckpt_set *set, uint64_t step, uint64_t incarnation) {
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (s->complete && s->step == step && s->incarnation == incarnation) return i;
    }
    return UINT32_MAX;
}

static pawl_code read_all(struct ckpt_set *set, uint32_t index, const struct stage_tensor *tensors,
                          uint32_t count, float **values, struct pawl_error *e) {
    for (uint32_t t = 0; t < count; t++) {
        values[t] = mem_alloc(tensors[t].count * sizeof(float));
        if (values[t] == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %s", tensors[t].name);
        struct pawl_tensor want = {.dtype = PAWL_F32, .rank = tensors[t].rank, .shape = tensors[t].shape};
        pawl_code code = read_whole(set, index, "", &tensors[t], want, values[t], e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code export_weights(const struct spec *spec, const char *dir, float *const *values,
                                struct pawl_error *e) {
    if (spec->run.engine != SPEC_ENGINE_GPT)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "save.export_dir: only the weights of a GPT can be exported");
    struct gpt_config config = spec_gpt(spec);
    return weights_write(dir, &config, (const float *const *)values, e);
}

pawl_code persist_digest(struct ckpt_set *set, uint32_t index, const struct spec *spec,
                         const char *export_dir, char digest[65], struct pawl_error *e) {
    struct stage_tensor *tensors = NULL;
    uint32_t count = 0;
    pawl_code code = engine_tensors(spec, &tensors, &count, e);
    if (code != PAWL_OK) return code;
    float **values = calloc(count, sizeof *values);
    struct hash_sha256 *h = hash_sha256_new();
    if (values == NULL || h == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for the digest of the weights");
    else
        code = read_all(set, index, tensors, count, values, e);
    if (code == PAWL_OK) {
        for (uint32_t t = 0; t < count; t++) {
            hash_sha256_add(h, tensors[t].name, strlen(tensors[t].name) + 1);
            hash_sha256_add(h, values[t], tensors[t].count * sizeof(float));
        }
        if (export_dir[0] != 0) code = export_weights(spec, export_dir, values, e);
    }
    char unused[65];
    if (h != NULL) hash_sha256_finish(h, code == PAWL_OK ? digest : unused);
    for (uint32_t t = 0; values != NULL && t < count; t++)
        mem_free(values[t], tensors[t].count * sizeof(float));
    free(values);
    engine_tensors_free(tensors, count);
    return code;
}
