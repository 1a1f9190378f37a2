/* Writes a model for transformers: config.json first, then model.safetensors, which counts. Each goes to a
 * temporary file, is flushed, and takes its name by a rename, so that a reader finds the old or the new
 * whole, never a part. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/safetensors.h"
#include "model/weights.h"

struct target {
    char *final, *temporary;
    int fd;
};

static pawl_code target_open(struct target *t, const char *folder, const char *name, struct pawl_error *e) {
    *t = (struct target){.fd = -1};
    if (asprintf(&t->final, "%s/%s", folder, name) < 0) t->final = NULL;
    if (t->final == NULL || asprintf(&t->temporary, "%s.%ld.tmp", t->final, (long)getpid()) < 0) {
        t->temporary = NULL;
        return error_set(e, PAWL_MEMORY, 0, "weights: no memory for a path");
    }
    t->fd = open(t->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = errno;
    return t->fd >= 0 ? PAWL_OK
                      : error_set(e, error_code_of_errno(error), error, "weights: creating %s", t->temporary);
}

static pawl_code target_write(struct target *t, const void *data, size_t size, struct pawl_error *e) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(t->fd, (const uint8_t *)data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int error = errno;
            return error_set(e, error_code_of_errno(error), error, "weights: writing %zu bytes to %s", size,
                             t->temporary);
        }
        done += (size_t)n;
    }
    return PAWL_OK;
}

/* Flush and rename when all went well so far, remove otherwise. */
static pawl_code target_close(struct target *t, pawl_code code, struct pawl_error *e) {
    int error = 0;
    const char *what = "syncing";
    if (code == PAWL_OK && fsync(t->fd) != 0) error = errno;
    if (t->fd >= 0 && close(t->fd) != 0 && code == PAWL_OK && error == 0) error = errno;
    if (code == PAWL_OK && error == 0 && rename(t->temporary, t->final) != 0) {
        error = errno;
        what = "renaming";
    }
    if (error != 0)
        code = error_set(e, error_code_of_errno(error), error, "weights: %s %s", what, t->temporary);
    if (code != PAWL_OK && t->fd >= 0) unlink(t->temporary);
    free(t->final);
    free(t->temporary);
    return code;
}

static pawl_code sync_folder(const char *folder, struct pawl_error *e) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = errno;
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0 && !good) error = errno;
    if (fd >= 0) close(fd);
    return good ? PAWL_OK
                : error_set(e, error_code_of_errno(error), error, "weights: syncing folder %s", folder);
}

/* --- config.json --- */

static void put_config(struct json *j, const struct gpt_config *c) {
    json_object(j, NULL);
    json_array(j, "architectures");
    json_text(j, NULL, "GPT2LMHeadModel");
    json_end_array(j);
    json_text(j, "model_type", "gpt2");
    json_text(j, "activation_function", "gelu_new");
    json_i64(j, "vocab_size", c->vocabulary);
    json_i64(j, "n_positions", c->context);
    json_i64(j, "n_ctx", c->context);
    json_i64(j, "n_embd", c->width);
    json_i64(j, "n_layer", c->layers);
    json_i64(j, "n_head", c->heads);
    json_null(j, "n_inner");
    json_f64(j, "layer_norm_epsilon", 1e-5);
    json_f64(j, "initializer_range", 0.02);
    json_f64(j, "embd_pdrop", (double)c->dropout);
    json_f64(j, "attn_pdrop", (double)c->dropout);
    json_f64(j, "resid_pdrop", (double)c->dropout);
    json_bool(j, "scale_attn_weights", true);
    json_bool(j, "scale_attn_by_inverse_layer_idx", false);
    json_bool(j, "reorder_and_upcast_attn", false);
    json_bool(j, "tie_word_embeddings", c->tied);
    /* transformers' default for both, 50256, would lie outside a smaller vocabulary. */
    if (c->vocabulary <= 50256) {
        json_null(j, "bos_token_id");
        json_null(j, "eos_token_id");
    }
    json_text(j, "torch_dtype", "float32");
    json_end_object(j);
}

static pawl_code write_config(const char *folder, const struct gpt_config *c, struct pawl_error *e) {
    struct bytes b = {0};
    struct target t;
    struct json j = json_begin(&b);
    put_config(&j, c);
    bytes_put_u8(&b, '\n');
    if (b.failed) {
        bytes_close(&b);
        return error_set(e, PAWL_MEMORY, 0, "weights: no memory for config.json");
    }
    pawl_code code = target_open(&t, folder, "config.json", e);
    if (code == PAWL_OK) code = target_write(&t, b.data, b.size, e);
    bytes_close(&b);
    return target_close(&t, code, e);
}

/* --- model.safetensors --- */

static pawl_code make_header(const struct stage_tensor *tensors, uint32_t count, struct bytes *out,
                             struct pawl_error *e) {
    struct st_header h = {0};
    uint64_t at = 0;
    pawl_code code = st_header_set(&h, "format", "pt", e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        char name[128];
        bool head = strcmp(tensors[i].name, "lm_head.weight") == 0;
        snprintf(name, sizeof name, "%s%s", head ? "" : "transformer.", tensors[i].name);
        code = st_header_add(&h, name, PAWL_F32, tensors[i].rank, tensors[i].shape, at, e);
        at += tensors[i].count * sizeof(float);
    }
    if (code == PAWL_OK) code = st_header_write(&h, 64, out, e);
    st_header_close(&h);
    return code;
}

static pawl_code write_tensors(const char *folder, const struct stage_tensor *tensors, uint32_t count,
                               const float *const *values, struct pawl_error *e) {
    struct bytes header = {0};
    struct target t;
    pawl_code code = make_header(tensors, count, &header, e);
    if (code == PAWL_OK) {
        code = target_open(&t, folder, "model.safetensors", e);
        if (code == PAWL_OK) code = target_write(&t, header.data, header.size, e);
        for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
            code = target_write(&t, values[i], (size_t)tensors[i].count * sizeof(float), e);
        code = target_close(&t, code, e);
    }
    bytes_close(&header);
    return code;
}

pawl_code weights_write(const char *path, const struct gpt_config *config, const float *const *values,
                        struct pawl_error *e) {
    struct stage_tensor *tensors;
    uint32_t count;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        int error = errno;
        return error_set(e, error_code_of_errno(error), error, "weights: making folder %s", path);
    }
    pawl_code code = weights_list(config, &tensors, &count, e);
    if (code != PAWL_OK) return code;
    code = write_config(path, config, e);
    if (code == PAWL_OK) code = write_tensors(path, tensors, count, values, e);
    if (code == PAWL_OK) code = sync_folder(path, e);
    weights_list_free(tensors, count);
    return code;
}
