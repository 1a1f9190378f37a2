/* Runs our GPT on given weights and tokens and writes what it computed as safetensors, for comparison with
 * another implementation:
 *
 *   e2e_model_dump IN OUT TOKENS layers heads width context vocabulary batch tied stages steps
 *
 * IN is a folder of weights, TOKENS a file of uint16 of exactly `batch` windows' length each step. Without
 * steps (0) OUT/gradients.safetensors gets every gradient of the first micro-batch and its metadata the loss;
 * with steps, as many AdamW updates are made on that micro-batch and the weights go to folder OUT. The order
 * of samples in the text is ours (a permutation), so the tokens used are written too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/safetensors.h"
#include "model/adamw.h"
#include "model/gpt.h"
#include "model/gradsum.h"
#include "model/weights.h"

#define STAGES_MAX 64u

struct dump {
    struct gpt_config config;
    uint32_t stage_count;
    struct data *data;
    struct stage *stages[STAGES_MAX];
    struct version versions[STAGES_MAX];
    int64_t *sums[STAGES_MAX];
    float *means[STAGES_MAX];
    struct stage_slot *slots[STAGES_MAX];
};

static const struct adamw_config adamw = {
    .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};

static void require(pawl_code code, const struct pawl_error *e) {
    if (code == PAWL_OK) return;
    fprintf(stderr, "%s: %s\n", pawl_code_name(code), e->text);
    exit(pawl_code_exit(code));
}

static void *zeros(uint64_t count, size_t size) {
    void *p = calloc(count, size);
    if (p == NULL) abort();
    return p;
}

static void open_stages(struct dump *d, const char *weights) {
    struct pawl_error e;
    for (uint32_t s = 0; s < d->stage_count; s++) {
        require(gpt_stage_open(&d->config, s, d->stage_count, d->data, 1, &d->stages[s], &e), &e);
        require(version_init(&d->versions[s], d->stages[s], &e), &e);
        require(weights_read(weights, &d->config, d->stages[s], d->versions[s].params, &e), &e);
        d->sums[s] = zeros(d->stages[s]->param_count + GRADSUM_FOOTER_WORDS, sizeof(int64_t));
        d->means[s] = zeros(d->stages[s]->param_count, sizeof(float));
    }
}

static double run_microbatch(struct dump *d) {
    struct pawl_error e;
    uint32_t last = d->stage_count - 1;
    for (uint32_t s = 0; s <= last; s++) {
        struct stage *stage = d->stages[s];
        require(stage->ops->slot_take(stage, 0, 0, &d->slots[s], &e), &e);
        if (s > 0) memcpy(d->slots[s]->input, d->slots[s - 1]->output, stage->input_bytes);
        require(stage->ops->forward(stage, &d->versions[s], d->slots[s], &e), &e);
    }
    for (uint32_t s = last + 1; s-- > 0;) {
        struct stage *stage = d->stages[s];
        if (s < last) memcpy(d->slots[s]->grad_in, d->slots[s + 1]->grad_out, stage->output_bytes);
        require(stage->ops->input_grad(stage, &d->versions[s], d->slots[s], &e), &e);
        memset(d->sums[s], 0, (stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t));
        require(stage->ops->weight_grad(stage, &d->versions[s], d->slots[s], d->sums[s], 0, &e), &e);
        stage->ops->slot_return(stage, d->slots[s]);
    }
    return d->slots[last]->loss;
}

static void reduce(struct dump *d) {
    uint32_t last = d->stage_count - 1;
    if (d->config.tied && last > 0) {
        const struct stage_tensor *b = &d->stages[last]->tensors[d->stages[last]->tensor_count - 1];
        gradsum_merge(d->sums[0], d->sums[last] + b->offset, b->count);
        memcpy(d->sums[last] + b->offset, d->sums[0], b->count * sizeof(int64_t));
    }
    for (uint32_t s = 0; s <= last; s++)
        for (uint32_t t = 0; t < d->stages[s]->tensor_count; t++) {
            const struct stage_tensor *tensor = &d->stages[s]->tensors[t];
            gradsum_mean(d->sums[s] + tensor->offset, d->means[s] + tensor->offset, tensor->count,
                         d->versions[s].exponents[t], 1);
        }
}

static void step(struct dump *d) {
    struct pawl_error e;
    for (uint32_t s = 0; s < d->stage_count; s++) {
        struct version next;
        require(version_init(&next, d->stages[s], &e), &e);
        adamw_step(d->stages[s], &adamw, &d->versions[s], d->means[s], 1.0f, &next);
        version_close(&d->versions[s]);
        d->versions[s] = next;
    }
}

/* Values of the whole model in canonical order: from means (gradients) or parameters. */
static const float **gather(const struct dump *d, bool gradients, struct stage_tensor **tensors,
                            uint32_t *count) {
    struct pawl_error e;
    require(weights_list(&d->config, tensors, count, &e), &e);
    const float **values = zeros(*count, sizeof *values);
    for (uint32_t i = 0; i < *count; i++)
        for (uint32_t s = 0; s < d->stage_count; s++)
            for (uint32_t t = 0; t < d->stages[s]->tensor_count; t++) {
                const struct stage_tensor *tensor = &d->stages[s]->tensors[t];
                if (strcmp(tensor->name, (*tensors)[i].name) != 0 || (tensor->flags & STAGE_SHARED_COPY) != 0)
                    continue;
                values[i] = (gradients ? d->means[s] : d->versions[s].params) + tensor->offset;
            }
    return values;
}

static void write_file(const char *folder, const char *name, const struct bytes *b) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(b->data, 1, b->size, f) != b->size || fclose(f) != 0) {
        perror(path);
        exit(74);
    }
}

static void write_gradients(const struct dump *d, const char *folder, double loss) {
    struct stage_tensor *tensors;
    struct pawl_error e;
    struct st_header h = {0};
    struct bytes b = {0};
    uint32_t count;
    uint64_t at = 0, rows = (uint64_t)d->config.batch * d->config.context;
    char text[64];
    const float **values = gather(d, true, &tensors, &count);
    int32_t *samples[2] = {zeros(rows, 4), zeros(rows, 4)};
    for (uint32_t row = 0; row < d->config.batch; row++)
        require(data_sample(d->data, row, samples[0] + row * d->config.context,
                            samples[1] + row * d->config.context, &e),
                &e);
    snprintf(text, sizeof text, "%.17g", loss);
    require(st_header_set(&h, "loss", text, &e), &e);
    for (uint32_t i = 0; i < count; at += tensors[i].count * 4, i++)
        require(st_header_add(&h, tensors[i].name, PAWL_F32, tensors[i].rank, tensors[i].shape, at, &e), &e);
    for (int i = 0; i < 2; i++, at += rows * 4)
        require(st_header_add(&h, i == 0 ? "tokens" : "targets", PAWL_I32, 2,
                              (uint64_t[]){d->config.batch, d->config.context}, at, &e),
                &e);
    require(st_header_write(&h, 8, &b, &e), &e);
    for (uint32_t i = 0; i < count; i++) bytes_put(&b, values[i], tensors[i].count * sizeof(float));
    for (int i = 0; i < 2; i++) bytes_put(&b, samples[i], rows * 4);
    mkdir(folder, 0777);
    write_file(folder, "gradients.safetensors", &b);
    for (int i = 0; i < 2; i++) free(samples[i]);
    free(values);
    weights_list_free(tensors, count);
    st_header_close(&h);
    bytes_close(&b);
}

static void write_weights(const struct dump *d, const char *folder) {
    struct stage_tensor *tensors;
    struct pawl_error e;
    uint32_t count;
    const float **values = gather(d, false, &tensors, &count);
    require(weights_write(folder, &d->config, values, &e), &e);
    free(values);
    weights_list_free(tensors, count);
}

static void close_all(struct dump *d) {
    for (uint32_t s = 0; s < d->stage_count; s++) {
        version_close(&d->versions[s]);
        free(d->sums[s]);
        free(d->means[s]);
        d->stages[s]->ops->close(d->stages[s]);
    }
    data_close(d->data);
}

int main(int argc, char **argv) {
    if (argc != 13) {
        fprintf(stderr,
                "usage: %s IN OUT TOKENS layers heads width context vocabulary batch tied stages steps\n",
                argv[0]);
        return 64;
    }
    uint32_t n[9];
    for (int i = 0; i < 9; i++) n[i] = (uint32_t)strtoul(argv[4 + i], NULL, 10);
    struct dump d = {.config = {.layers = n[0],
                                .heads = n[1],
                                .width = n[2],
                                .context = n[3],
                                .vocabulary = n[4],
                                .batch = n[5],
                                .tied = n[6] != 0},
                     .stage_count = n[7]};
    struct pawl_error e;
    if (d.stage_count == 0 || d.stage_count > STAGES_MAX) return 64;
    require(data_open(argv[3], DATA_U16, d.config.vocabulary, d.config.context, 1, &d.data, &e), &e);
    open_stages(&d, argv[1]);
    double loss = run_microbatch(&d);
    reduce(&d);
    if (n[8] == 0) write_gradients(&d, argv[2], loss);
    for (uint32_t i = 0; i < n[8]; i++) {
        step(&d);
        if (i + 1 == n[8]) break;
        run_microbatch(&d);
        reduce(&d);
    }
    if (n[8] > 0) write_weights(&d, argv[2]);
    close_all(&d);
    return 0;
}
