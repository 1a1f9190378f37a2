/* What model/weights.h promises: what is written reads back in any cut, files as transformers writes them are
 * read, and whatever does not fit is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/safetensors.h"
#include "model/weights.h"
#include "model_pipeline.h"

static struct gpt_config config_of(bool tied) {
    return (struct gpt_config){.layers = 3,
                               .heads = 3,
                               .width = 12,
                               .context = 9,
                               .vocabulary = 17,
                               .batch = 1,
                               .tied = tied,
                               .seed = 7};
}

struct folder {
    char path[64];
};

static struct folder folder_new(void) {
    struct folder f = {"/tmp/pawl-weights-XXXXXX"};
    assert_non_null(mkdtemp(f.path));
    return f;
}

static int name_count(const struct folder *f) {
    DIR *d = opendir(f->path);
    int names = -2; /* "." and ".." */
    assert_non_null(d);
    while (readdir(d) != NULL) names++;
    closedir(d);
    return names;
}

static void folder_remove(const struct folder *f) {
    DIR *d = opendir(f->path);
    char name[400];
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        snprintf(name, sizeof name, "%s/%s", f->path, entry->d_name);
        if (entry->d_name[0] != '.') unlink(name);
    }
    closedir(d);
    rmdir(f->path);
}

static void file_write(const struct folder *f, const char *name, const void *data, size_t size) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    close(fd);
}

/* --- a model as its tensors, and files made of some of them --- */

struct model {
    struct gpt_config config;
    struct stage_tensor *tensors;
    uint32_t count;
    float **values;
};

static struct model model_new(bool tied) {
    struct model m = {.config = config_of(tied)};
    assert_int_equal(weights_list(&m.config, &m.tensors, &m.count, NULL), PAWL_OK);
    m.values = calloc(m.count, sizeof *m.values);
    for (uint32_t i = 0; i < m.count; i++) {
        m.values[i] = calloc(m.tensors[i].count, sizeof(float));
        /* Small whole multiples of 1/8 are the same number in every dtype. */
        for (uint64_t k = 0; k < m.tensors[i].count; k++)
            m.values[i][k] = (float)((i * 31 + k * 7) % 61) / 8 - 3;
    }
    return m;
}

static void model_free(struct model *m) {
    for (uint32_t i = 0; i < m->count; i++) free(m->values[i]);
    free(m->values);
    weights_list_free(m->tensors, m->count);
}

static uint16_t half_of(float f) { /* exact numbers only */
    int exponent;
    float fraction = frexpf(fabsf(f), &exponent);
    uint32_t bits = f == 0 ? 0 : (uint32_t)(exponent + 14) << 10 | ((uint32_t)(fraction * 2048) & 1023);
    return (uint16_t)(bits | (f < 0 ? 0x8000u : 0));
}

struct file_kind {
    enum pawl_dtype dtype;
    const char *prefix;
    uint32_t first, end; /* tensors of the list */
    const char *skip;    /* a tensor left out */
    const char *extra;   /* one more name for the values of tensor 0 */
};

static struct bytes file_of(const struct model *m, struct file_kind kind) {
    struct st_header h = {0};
    struct bytes b = {0}, data = {0};
    for (uint32_t i = kind.first; i < kind.end + (kind.extra != NULL); i++) {
        uint32_t from = i < kind.end ? i : 0;
        const struct stage_tensor *t = &m->tensors[from];
        char name[128];
        snprintf(name, sizeof name, "%s%s", i < kind.end ? kind.prefix : "",
                 i < kind.end ? t->name : kind.extra);
        if (kind.skip != NULL && strcmp(t->name, kind.skip) == 0) continue;
        assert_int_equal(st_header_add(&h, name, kind.dtype, t->rank, t->shape, data.size, NULL), PAWL_OK);
        for (uint64_t k = 0; k < t->count; k++) {
            float f = m->values[from][k];
            uint32_t bits;
            memcpy(&bits, &f, sizeof bits);
            if (kind.dtype == PAWL_F32) bytes_put_u32(&data, bits);
            if (kind.dtype == PAWL_I32) bytes_put_u32(&data, bits);
            if (kind.dtype == PAWL_BF16) bytes_put_u16(&data, (uint16_t)(bits >> 16));
            if (kind.dtype == PAWL_F16) bytes_put_u16(&data, half_of(f));
        }
    }
    assert_int_equal(st_header_write(&h, 8, &b, NULL), PAWL_OK);
    bytes_put(&b, data.data, data.size);
    bytes_close(&data);
    st_header_close(&h);
    return b;
}

static void file_put(const struct folder *f, const char *name, const struct model *m, struct file_kind kind) {
    struct bytes b = file_of(m, kind);
    file_write(f, name, b.data, b.size);
    bytes_close(&b);
}

/* --- reading all stages of a cut --- */

static pawl_code read_cut(const char *path, const struct gpt_config *c, uint32_t stages,
                          const struct model *wanted, struct pawl_error *e) {
    struct data *data = pipe_data(c->vocabulary, c->context, 1);
    pawl_code code = PAWL_OK;
    for (uint32_t s = 0; s < stages && code == PAWL_OK; s++) {
        struct stage *stage;
        assert_int_equal(gpt_stage_open(c, s, stages, data, 1, &stage, e), PAWL_OK);
        float *params = calloc(stage->param_count, sizeof *params);
        code = weights_read(path, c, stage, params, e);
        for (uint32_t t = 0; t < stage->tensor_count && code == PAWL_OK; t++)
            for (uint32_t i = 0; i < wanted->count; i++)
                if (strcmp(stage->tensors[t].name, wanted->tensors[i].name) == 0)
                    assert_memory_equal(params + stage->tensors[t].offset, wanted->values[i],
                                        stage->tensors[t].count * sizeof *params);
        free(params);
        stage->ops->close(stage);
    }
    data_close(data);
    return code;
}

static void assert_reads(const char *path, const struct model *m, uint32_t stages) {
    struct pawl_error e = {0};
    pawl_code code = read_cut(path, &m->config, stages, m, &e);
    if (code != PAWL_OK) fail_msg("%u stages: %s \"%s\"", stages, pawl_code_name(code), e.text);
}

static void assert_refused(const char *path, const struct gpt_config *c, pawl_code wanted,
                           const char *cause) {
    struct pawl_error e = {0};
    struct model none = {0};
    pawl_code code = read_cut(path, c, 1, &none, &e);
    if (code != wanted || strstr(e.text, cause) == NULL)
        fail_msg("%s \"%s\", wanted %s \"%s\"", pawl_code_name(code), e.text, pawl_code_name(wanted), cause);
}

static void what_is_written_reads_back_in_any_cut(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct model m = model_new(tied != 0);
        struct folder f = folder_new();
        assert_int_equal(weights_write(f.path, &m.config, (const float *const *)m.values, NULL), PAWL_OK);
        assert_int_equal(weights_write(f.path, &m.config, (const float *const *)m.values, NULL), PAWL_OK);
        for (uint32_t stages = 1; stages <= 3; stages++) assert_reads(f.path, &m, stages);
        char path[200];
        snprintf(path, sizeof path, "%s/model.safetensors", f.path);
        assert_reads(path, &m, 2);
        assert_int_equal(name_count(&f), 2); /* nothing temporary stays */
        folder_remove(&f);
        model_free(&m);
    }
}

static void the_list_is_canonical_and_complete(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct model m = model_new(tied != 0);
        uint64_t floats = 0;
        for (uint32_t i = 0; i < m.count; i++) floats += m.tensors[i].count;
        assert_int_equal(floats, gpt_param_count(&m.config));
        assert_string_equal(m.tensors[0].name, "wte.weight");
        assert_string_equal(m.tensors[1].name, "wpe.weight");
        assert_string_equal(m.tensors[2].name, "h.0.ln_1.weight");
        assert_string_equal(m.tensors[m.count - 1].name, tied ? "ln_f.bias" : "lm_head.weight");
        model_free(&m);
    }
}

static void every_dtype_and_both_forms_of_names_are_read(void **state) {
    (void)state;
    static const enum pawl_dtype dtypes[] = {PAWL_F32, PAWL_F16, PAWL_BF16};
    struct model m = model_new(true);
    for (int d = 0; d < 3; d++) {
        for (int form = 0; form < 2; form++) {
            struct folder f = folder_new();
            file_put(&f, "model.safetensors", &m,
                     (struct file_kind){
                         .dtype = dtypes[d], .prefix = form == 0 ? "" : "transformer.", .end = m.count});
            assert_reads(f.path, &m, 2);
            folder_remove(&f);
        }
    }
    model_free(&m);
}

static void half_precision_specials_are_kept(void **state) {
    (void)state;
    /* Smallest subnormal, largest subnormal, smallest normal, largest, infinities, NaN, negative zero. */
    static const uint16_t halves[] = {0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x8000, 0x8001};
    static const float wanted[] = {0x1p-24f, 1023 * 0x1p-24f, 0x1p-14f, 65504.0f, INFINITY, -INFINITY,
                                   NAN,      -0.0f,           -0x1p-24f};
    struct model m = model_new(true);
    struct folder f = folder_new();
    struct bytes b = file_of(&m, (struct file_kind){.dtype = PAWL_F16, .prefix = "", .end = m.count});
    uint64_t data = st_header_size(b.data);
    for (size_t i = 0; i < 9; i++) {
        b.data[data + 2 * i] = (uint8_t)halves[i];
        b.data[data + 2 * i + 1] = (uint8_t)(halves[i] >> 8);
    }
    file_write(&f, "model.safetensors", b.data, b.size);
    struct pipe p = pipe_open(m.config, 1, 1);
    float *params = p.versions[0].params;
    assert_int_equal(weights_read(f.path, &m.config, p.stages[0], params, NULL), PAWL_OK);
    for (size_t i = 0; i < 9; i++) {
        assert_true(isnan(wanted[i]) ? isnan(params[i]) : params[i] == wanted[i]);
        assert_int_equal(signbit(params[i]) != 0, signbit(wanted[i]) != 0);
    }
    pipe_close(&p);
    bytes_close(&b);
    folder_remove(&f);
    model_free(&m);
}

static void a_sharded_set_is_read_through_its_index(void **state) {
    (void)state;
    struct model m = model_new(false);
    struct folder f = folder_new();
    file_put(&f, "a.safetensors", &m, (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = 10});
    file_put(&f, "b.safetensors", &m,
             (struct file_kind){.dtype = PAWL_BF16, .prefix = "", .first = 10, .end = m.count});
    static const char index[] =
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"wte.weight\":\"a.safetensors\","
        "\"wpe.weight\":\"a.safetensors\",\"lm_head.weight\":\"b.safetensors\"}}";
    file_write(&f, "model.safetensors.index.json", index, strlen(index));
    assert_reads(f.path, &m, 3);
    file_put(&f, "b.safetensors", &m,
             (struct file_kind){.dtype = PAWL_BF16, .prefix = "", .first = 9, .end = m.count});
    assert_refused(f.path, &m.config, PAWL_FORMAT, "is there twice");
    static const char *const bad[] = {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}",
                                      "{\"weight_map\":{\"x\":\"b/a.safetensors\"}}",
                                      "{\"weight_map\":{\"x\":\".a\"}}",
                                      "{\"weight_map\":{\"x\":1}}",
                                      "{\"weight_map\":{}}",
                                      "[]",
                                      "{",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        file_write(&f, "model.safetensors.index.json", bad[i], strlen(bad[i]));
        assert_refused(f.path, &m.config, PAWL_FORMAT, "weight_map");
    }
    folder_remove(&f);
    model_free(&m);
}

static void what_is_missing_or_misshapen_is_named(void **state) {
    (void)state;
    struct model m = model_new(true);
    struct folder f = folder_new();
    assert_refused("/tmp/pawl-weights-none", &m.config, PAWL_NOT_FOUND, "ENOENT");
    assert_refused(f.path, &m.config, PAWL_NOT_FOUND, "neither model.safetensors nor");
    file_put(
        &f, "model.safetensors", &m,
        (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = m.count, .skip = "h.1.mlp.c_fc.bias"});
    assert_refused(f.path, &m.config, PAWL_NOT_FOUND, "no tensor h.1.mlp.c_fc.bias");
    file_put(&f, "model.safetensors", &m,
             (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = m.count});
    struct gpt_config other = m.config;
    other.context = 8;
    assert_refused(f.path, &other, PAWL_FORMAT,
                   "tensor wpe.weight has shape [9, 12], the model wants [8, 12]");
    other = m.config;
    other.tied = false;
    assert_refused(f.path, &other, PAWL_NOT_FOUND, "no tensor lm_head.weight");
    file_put(&f, "model.safetensors", &m,
             (struct file_kind){.dtype = PAWL_I32, .prefix = "", .end = m.count});
    assert_refused(f.path, &m.config, PAWL_FORMAT, "is I32, wanted F32, F16 or BF16");
    struct bytes b = file_of(&m, (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = m.count});
    file_write(&f, "model.safetensors", b.data, b.size - 1);
    assert_refused(f.path, &m.config, PAWL_FORMAT, "bytes of data, the file has");
    file_write(&f, "model.safetensors", b.data, 7);
    assert_refused(f.path, &m.config, PAWL_FORMAT, "ends at offset 7");
    bytes_close(&b);
    folder_remove(&f);
    f = folder_new();
    char pipe[sizeof f.path + 32];
    snprintf(pipe, sizeof pipe, "%s/model.safetensors", f.path);
    assert_int_equal(mkfifo(pipe, 0666), 0); /* nobody writes: it is not to be waited for */
    assert_refused(f.path, &m.config, PAWL_FORMAT, "model.safetensors is not a regular file");
    folder_remove(&f);
    model_free(&m);
}

static void a_tied_model_takes_only_a_head_that_is_its_embedding(void **state) {
    (void)state;
    struct model m = model_new(true), untied = model_new(false);
    struct folder f = folder_new();
    file_put(&f, "model.safetensors", &m,
             (struct file_kind){
                 .dtype = PAWL_F32, .prefix = "transformer.", .end = m.count, .extra = "lm_head.weight"});
    assert_reads(f.path, &m, 2);
    file_put(&f, "model.safetensors", &untied,
             (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = untied.count});
    assert_refused(f.path, &m.config, PAWL_FORMAT, "set tied to false");
    folder_remove(&f);
    model_free(&m);
    model_free(&untied);
}

static void a_config_that_computes_something_else_is_refused(void **state) {
    (void)state;
    struct model m = model_new(true);
    struct folder f = folder_new();
    file_put(&f, "model.safetensors", &m,
             (struct file_kind){.dtype = PAWL_F32, .prefix = "", .end = m.count});
    static const char *const bad[][2] = {
        {"{\"n_head\":4}", "n_head is 4, the model has 3"},
        {"{\"n_inner\":12}", "n_inner is 12, the model has 48"},
        {"{\"activation_function\":\"relu\"}", "activation_function is \"relu\""},
        {"{\"layer_norm_epsilon\":1e-6}", "layer_norm_epsilon"},
        {"{\"scale_attn_by_inverse_layer_idx\":true}", "scale_attn_by_inverse_layer_idx"},
        {"{\"n_head\":", "wanted a JSON object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        file_write(&f, "config.json", bad[i][0], strlen(bad[i][0]));
        assert_refused(f.path, &m.config, PAWL_FORMAT, bad[i][1]);
    }
    static const char good[] = "{\"n_head\":3,\"n_inner\":null,\"layer_norm_epsilon\":1e-05}";
    file_write(&f, "config.json", good, strlen(good));
    assert_reads(f.path, &m, 1);
    folder_remove(&f);
    model_free(&m);
}

static void a_folder_that_cannot_be_written_is_named(void **state) {
    (void)state;
    struct model m = model_new(true);
    struct pawl_error e;
    assert_int_equal(weights_write("/tmp/pawl-none/deeper", &m.config, (const float *const *)m.values, &e),
                     PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/tmp/pawl-none/deeper"));
    assert_int_equal(weights_write("/proc/self/status", &m.config, (const float *const *)m.values, &e),
                     PAWL_IO);
    model_free(&m);
}

static void a_write_that_fails_half_way_leaves_what_was_there(void **state) {
    (void)state;
    struct model m = model_new(true);
    struct folder f = folder_new();
    struct pawl_error e;
    const float *const *values = (const float *const *)m.values;
    assert_int_equal(weights_write(f.path, &m.config, values, &e), PAWL_OK);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 8192; /* config.json fits, the weights do not */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    pawl_code code = weights_write(f.path, &m.config, values, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(code, PAWL_IO);
    assert_non_null(strstr(e.text, "EFBIG"));
    assert_int_equal(name_count(&f), 2);
    assert_reads(f.path, &m, 2);
    folder_remove(&f);
    model_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back_in_any_cut),
        cmocka_unit_test(the_list_is_canonical_and_complete),
        cmocka_unit_test(every_dtype_and_both_forms_of_names_are_read),
        cmocka_unit_test(half_precision_specials_are_kept),
        cmocka_unit_test(a_sharded_set_is_read_through_its_index),
        cmocka_unit_test(what_is_missing_or_misshapen_is_named),
        cmocka_unit_test(a_tied_model_takes_only_a_head_that_is_its_embedding),
        cmocka_unit_test(a_config_that_computes_something_else_is_refused),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_named),
        cmocka_unit_test(a_write_that_fails_half_way_leaves_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
