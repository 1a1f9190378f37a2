/* The rules of a spec that span fields, and those that ask the file system; none changes anything.
 *
 * They run before any process starts, so that a slip costs a second and one line. Every message names the
 * field, what it is, and what to write instead. What only the running system can tell (a full disk, a
 * transport that UCX does not know) is left to it. Tested in tests/unit/run_spec_test.c. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "ir/ir.h"
#include "net/net.h"
#include "run/spec_field.h"

/* A spec may come from elsewhere than the reader: every value must lie in its range. */
static pawl_code check_values(const struct spec *s, struct pawl_error *e) {
    struct spec_record *copy = calloc(1, sizeof *copy);
    if (copy == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to check the spec");
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; code == PAWL_OK && i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & SPEC_INPUT) == 0) continue;
        if (!spec_field_applies(field, s) && spec_field_missing(field, s)) continue;
        struct bytes text = {0};
        char rule[160];
        spec_field_rule(field, rule, sizeof rule);
        bool is_text = field->type == SPEC_TEXT;
        if (is_text)
            bytes_put(&text, (const char *)s + field->offset,
                      strnlen((const char *)s + field->offset, field->size));
        else
            spec_field_print(field, s, &text);
        bytes_put_u8(&text, 0);
        if (text.failed)
            code = error_set(e, PAWL_MEMORY, 0, "no memory to check the spec");
        else if (spec_field_missing(field, s))
            code = error_set(e, PAWL_SPEC, 0, "%s.%s is missing: give %s", field->section, field->key, rule);
        else
            code = spec_field_read(field, &(struct spec_scalar){(char *)text.data, text.size - 1, !is_text},
                                   copy, e);
        bytes_close(&text);
    }
    free(copy);
    return code;
}

static pawl_code check_model(const struct spec *s, struct pawl_error *e) {
    if (s->parallel.stages > s->model.layers)
        return error_set(e, PAWL_SPEC, 0,
                         "parallel.stages is %u but model.layers is %u: use at most %u stages",
                         s->parallel.stages, s->model.layers, s->model.layers);
    if (s->model.width % s->model.heads != 0)
        return error_set(
            e, PAWL_SPEC, 0,
            "model.width is %u but model.heads is %u: use a width that is a multiple of the heads, "
            "as %llu",
            s->model.width, s->model.heads,
            ((unsigned long long)s->model.width / s->model.heads + 1) * s->model.heads);
    if (s->data.format == DATA_BYTES && s->model.vocabulary < 256)
        return error_set(e, PAWL_SPEC, 0,
                         "model.vocabulary is %u but data.format is bytes: use a vocabulary of at least 256",
                         s->model.vocabulary);
    struct gpt_config config = spec_gpt(s);
    return gpt_config_check(&config, s->parallel.stages, e);
}

static pawl_code check_growth(const struct spec *s, struct pawl_error *e) {
    uint32_t most = s->parallel.pipelines_max;
    if (most == 0) return PAWL_OK;
    if (most < s->parallel.pipelines)
        return error_set(e, PAWL_SPEC, 0,
                         "parallel.pipelines_max is %u but parallel.pipelines is %u: use at least %u, or 0",
                         most, s->parallel.pipelines, s->parallel.pipelines);
    if ((uint64_t)most * s->parallel.stages <= IR_WORKERS_MAX) return PAWL_OK;
    return error_set(
        e, PAWL_SPEC, 0,
        "parallel.pipelines_max is %u and parallel.stages %u, which makes %llu workers: use at most "
        "%u pipelines",
        most, s->parallel.stages, (unsigned long long)most * s->parallel.stages,
        IR_WORKERS_MAX / s->parallel.stages);
}

static pawl_code check_workers(const struct spec *s, struct pawl_error *e) {
    uint64_t workers = (uint64_t)s->parallel.pipelines * s->parallel.stages;
    if (workers <= IR_WORKERS_MAX) return check_growth(s, e);
    return error_set(
        e, PAWL_SPEC, 0,
        "parallel.pipelines is %u and parallel.stages %u, which makes %llu workers: use at most %u",
        s->parallel.pipelines, s->parallel.stages, (unsigned long long)workers, IR_WORKERS_MAX);
}

/* Sample numbers (step x global batch) must fit 64 bits. */
static pawl_code check_samples(const struct spec *s, struct pawl_error *e) {
    uint64_t samples = 0;
    bool fits = mem_mul(spec_contributions(s), s->parallel.batch, &samples) &&
                mem_mul(samples, s->run.steps, &samples) && samples <= INT64_MAX;
    if (fits) return PAWL_OK;
    return error_set(e, PAWL_SPEC, 0,
                     "run.steps is %llu: with %llu micro-batches of %u sequences that is too many "
                     "samples to number: use fewer steps",
                     (unsigned long long)s->run.steps, (unsigned long long)spec_contributions(s),
                     s->parallel.batch);
}

pawl_code spec_check_optimizer(const struct spec *s, struct pawl_error *e) {
    if (s->optimizer.lr_min > s->optimizer.lr)
        return error_set(e, PAWL_SPEC, 0, "optimizer.lr_min is %g but optimizer.lr is %g: use at most %g",
                         s->optimizer.lr_min, s->optimizer.lr, s->optimizer.lr);
    if (s->optimizer.decay_steps > 0 && s->optimizer.warmup_steps > s->optimizer.decay_steps)
        return error_set(
            e, PAWL_SPEC, 0,
            "optimizer.warmup_steps is %llu but optimizer.decay_steps is %llu: warm up in at most %llu "
            "steps, or decay later",
            (unsigned long long)s->optimizer.warmup_steps, (unsigned long long)s->optimizer.decay_steps,
            (unsigned long long)s->optimizer.decay_steps);
    return PAWL_OK;
}

/* Silence is noticed before a stall, a stall of a step before that of a phase that may take longer. */
static pawl_code check_times(const struct spec *s, struct pawl_error *e) {
    static const char *const names[COORD_WORK_COUNT] = {
        [COORD_WORK_STEP] = "stall_s",      [COORD_WORK_LOAD] = "load_s", [COORD_WORK_SAVE] = "save_s",
        [COORD_WORK_COMPILE] = "compile_s", [COORD_WORK_EVAL] = "eval_s",
    };
    double stall_s = (double)spec_stall_ns(s, COORD_WORK_STEP) * 1e-9;
    if (stall_s <= s->failure.timeout_s)
        return error_set(
            e, PAWL_SPEC, 0,
            "failure.stall_s is %g but failure.timeout_s is %g: the order is timeout_s < stall_s: use "
            "more than %g, or 0",
            s->failure.stall_s, s->failure.timeout_s, s->failure.timeout_s);
    for (int work = 0; work < COORD_WORK_COUNT; work++) {
        double limit_s = (double)spec_stall_ns(s, (enum coord_work)work) * 1e-9;
        if (limit_s < stall_s)
            return error_set(
                e, PAWL_SPEC, 0,
                "failure.%s is %g but failure.stall_s is %g: the order is timeout_s < stall_s <= %s: "
                "use at least %g, or 0",
                names[work], limit_s, stall_s, names[work], stall_s);
    }
    return PAWL_OK;
}

static pawl_code check_profile(const struct spec *s, const char *field, const char *path,
                               struct pawl_error *e) {
    struct pawl_profile *profile = NULL;
    struct pawl_error inner = {0};
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe gives its bytes once */
        return error_set(e, PAWL_SPEC, 0,
                         "%s is \"%s\", which is not a regular file: name one, as every process reads it",
                         field, path);
    pawl_code code = pawl_profile_read(path, &profile, &inner);
    uint32_t stages = code == PAWL_OK ? profile->stages : 0;
    pawl_profile_free(profile);
    if (code == PAWL_MEMORY) return error_set(e, code, 0, "%s: %s", field, inner.text);
    if (code != PAWL_OK)
        return error_set(e, PAWL_SPEC, 0, "%s: %s: name a profile that can be read", field, inner.text);
    if (stages == s->parallel.stages) return PAWL_OK;
    return error_set(e, PAWL_SPEC, 0,
                     "%s is \"%s\", which has %u stages, but parallel.stages is %u: use a profile of as many",
                     field, path, stages, s->parallel.stages);
}

static pawl_code check_profiles(const struct spec *s, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    if (s->run.engine == SPEC_ENGINE_EMULATED)
        code = check_profile(s, "emulated.profile", s->emulated.profile, e);
    if (code == PAWL_OK && s->parallel.profile[0] != 0)
        code = check_profile(s, "parallel.profile", s->parallel.profile, e);
    return code;
}

static pawl_code check_transport(const struct spec *s, struct pawl_error *e) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_,^:";
    size_t n = strspn(s->net.transport, good);
    struct pawl_error why = {0};
    if (s->net.transport[n] == 0 && net_check_transports(s->net.transport, &why) != PAWL_OK)
        return error_set(e, PAWL_SPEC, 0, "net.transport: %s", why.text);
    if (s->net.transport[n] == 0) return PAWL_OK;
    return error_set(e, PAWL_SPEC, 0,
                     "net.transport is \"%s\": write names joined by commas, as \"rc,tcp,self\"",
                     s->net.transport);
}

/* Cut `path` to the folder that holds it: "a/b" to "a", "a" to ".", "/a" to "/". */
static void cut_to_parent(char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    path[n] = 0;
    if (n == 0) strcpy(path, ".");
}

/* The folder, or the nearest parent that exists, must be one that we may write to. */
static pawl_code check_folder(const char *field, const char *path, struct pawl_error *e) {
    char at[SPEC_TEXT_MAX];
    struct stat st;
    snprintf(at, sizeof at, "%s", path);
    while (stat(at, &st) != 0) {
        int err = errno;
        struct stat link;
        bool dangling = err == ENOENT && lstat(at, &link) == 0;
        if (err != ENOENT || dangling || strcmp(at, ".") == 0)
            return error_set(e, PAWL_SPEC, err, "%s is \"%s\": choose a folder that can be made: %s%s", field,
                             path, at, dangling ? " is a link to nothing" : "");
        cut_to_parent(at);
    }
    if (!S_ISDIR(st.st_mode))
        return error_set(e, PAWL_SPEC, 0, "%s is \"%s\": %s is not a folder: choose another", field, path,
                         at);
    if (faccessat(AT_FDCWD, at, W_OK | X_OK, AT_EACCESS) != 0)
        return error_set(e, PAWL_SPEC, errno, "%s is \"%s\": choose a folder that you may write to: %s",
                         field, path, at);
    return PAWL_OK;
}

static pawl_code check_weights(const struct spec *s, struct pawl_error *e) {
    const char *path = s->model.weights;
    struct stat st;
    if (*path == 0) return PAWL_OK;
    bool there = stat(path, &st) == 0 && faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0;
    if (!there)
        return error_set(
            e, PAWL_SPEC, errno,
            "model.weights is \"%s\": name a safetensors file, or leave it empty to start at random", path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return error_set(e, PAWL_SPEC, 0, "model.weights is \"%s\": it is neither a file nor a folder", path);
    return PAWL_OK;
}

static pawl_code check_data(const struct spec *s, struct pawl_error *e) {
    struct data *data = NULL;
    struct pawl_error inner = {0};
    pawl_code code = data_open(s->data.path, s->data.format, s->model.vocabulary, s->model.context,
                               s->run.seed, &data, &inner);
    data_close(data);
    if (code == PAWL_OK) return PAWL_OK;
    /* Whatever the cause, it is the spec that has to change. */
    if (code != PAWL_MEMORY) code = PAWL_SPEC;
    return error_set(e, code, 0,
                     "data.path: %s: name a readable file of %s with more than model.context (%u) tokens",
                     inner.text, data_format_name(s->data.format), s->model.context);
}

static bool is_json(const char *text) {
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithOpts(text, &end, true);
    bool good = json != NULL;
    cJSON_Delete(json);
    return good;
}

static pawl_code check_torch(const struct spec *s, struct pawl_error *e) {
    const char *module = s->torch.module, *suffix = strrchr(module, '.');
    bool is_file = suffix != NULL && strcmp(suffix, ".py") == 0;
    if (is_file && faccessat(AT_FDCWD, module, R_OK, AT_EACCESS) != 0)
        return error_set(e, PAWL_SPEC, errno,
                         "torch.module is \"%s\": name a Python file that can be read, or a module by its "
                         "dotted name",
                         module);
    if (s->torch.options[0] == 0 || is_json(s->torch.options)) return PAWL_OK;
    return error_set(e, PAWL_SPEC, 0,
                     "torch.options is %.200s: write JSON in single quotes, as '{\"width\": 64}', or nothing",
                     s->torch.options);
}

pawl_code spec_check(const struct spec *s, struct pawl_error *e) {
    bool gpt = s->run.engine == SPEC_ENGINE_GPT;
    pawl_code code = check_values(s, e);
    if (code == PAWL_OK && gpt) code = check_model(s, e);
    if (code == PAWL_OK) code = check_workers(s, e);
    if (code == PAWL_OK) code = check_samples(s, e);
    if (code == PAWL_OK) code = spec_check_optimizer(s, e);
    if (code == PAWL_OK) code = check_times(s, e);
    if (code == PAWL_OK) code = check_transport(s, e);
    if (code == PAWL_OK) code = check_folder("run.dir", s->run.dir, e);
    if (code == PAWL_OK && *s->save.export_dir != 0 && !gpt)
        code = error_set(e, PAWL_SPEC, 0,
                         "save.export_dir is \"%s\", but only the engine gpt has weights to export",
                         s->save.export_dir);
    if (code == PAWL_OK && *s->save.export_dir != 0)
        code = check_folder("save.export_dir", s->save.export_dir, e);
    if (code == PAWL_OK) code = check_profiles(s, e);
    if (code == PAWL_OK) code = spec_check_plan(s, e);
    if (code == PAWL_OK && gpt) code = check_weights(s, e);
    if (code == PAWL_OK && gpt) code = check_data(s, e);
    if (code == PAWL_OK && s->run.engine == SPEC_ENGINE_TORCH) code = check_torch(s, e);
    return code;
}
