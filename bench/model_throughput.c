/* Tokens per second of the GPT on one thread: forward, input gradient, weight gradient, reduction to the mean
 * and AdamW, each step one micro-batch. Prints one JSON object with the median step and its parts; the parts
 * are processor time, and tokens_per_cpu_s is by processor time too, for machines that others use as well.
 *
 *   bench_model_throughput [layers heads width context batch vocabulary steps] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/adamw.h"
#include "model/gpt.h"
#include "model/gradsum.h"
#include "model/kernels.h"

enum part { FORWARD, INPUT_GRAD, WEIGHT_GRAD, REDUCE, OPTIMIZER, PARTS };

static const char *const part_names[PARTS] = {"forward_ms", "input_grad_ms", "weight_grad_ms", "reduce_ms",
                                              "optimizer_ms"};

struct run {
    struct gpt_config config;
    struct data *data;
    struct stage *stage;
    struct version from, to;
    int64_t *sums;
    float *mean;
    double *seconds[PARTS + 2]; /* [steps] each; the last two are the whole step, processor and wall time */
    double loss;
};

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

static struct data *text_open(const struct gpt_config *c) {
    char path[] = "/tmp/pawl-bench-XXXXXX";
    struct rng_stream rng = {1};
    struct pawl_error e;
    struct data *d;
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) abort();
    for (uint64_t i = 0; i < (uint64_t)c->context * c->batch * 64 + 1; i++) {
        uint32_t token = (uint32_t)rng_below(&rng, c->vocabulary);
        fwrite(&token, 4, 1, f);
    }
    fclose(f);
    require(data_open(path, DATA_U32, c->vocabulary, c->context, 1, &d, &e), &e);
    unlink(path);
    return d;
}

static int64_t cpu_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void one_step(struct run *r, uint64_t step) {
    struct stage *stage = r->stage;
    struct stage_slot *slot;
    struct pawl_error e;
    int64_t at[PARTS + 1], wall = clock_now_ns();
    memset(r->sums, 0, (stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof *r->sums);
    require(stage->ops->slot_take(stage, r->from.number, 0, &slot, &e), &e);
    at[0] = cpu_now_ns();
    require(stage->ops->forward(stage, &r->from, slot, &e), &e);
    at[1] = cpu_now_ns();
    require(stage->ops->input_grad(stage, &r->from, slot, &e), &e);
    at[2] = cpu_now_ns();
    require(stage->ops->weight_grad(stage, &r->from, slot, r->sums, 0, &e), &e);
    at[3] = cpu_now_ns();
    for (uint32_t t = 0; t < stage->tensor_count; t++)
        gradsum_mean(r->sums + stage->tensors[t].offset, r->mean + stage->tensors[t].offset,
                     stage->tensors[t].count, r->from.exponents[t], 1);
    at[4] = cpu_now_ns();
    static const struct adamw_config adamw = {
        .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};
    adamw_step(stage, &adamw, &r->from, r->mean, 1.0f, &r->to);
    at[5] = cpu_now_ns();
    for (int i = 0; i < PARTS; i++) r->seconds[i][step] = (double)(at[i + 1] - at[i]) * 1e-9;
    r->seconds[PARTS][step] = (double)(at[PARTS] - at[0]) * 1e-9;
    r->seconds[PARTS + 1][step] = (double)(clock_now_ns() - wall) * 1e-9;
    r->loss = slot->loss;
    struct version old = r->from;
    r->from = r->to;
    r->to = old;
    stage->ops->slot_return(stage, slot);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint64_t n) {
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

static void print(struct run *r, uint64_t steps) {
    struct bytes b = {0};
    struct json j = json_begin(&b);
    const struct gpt_config *c = &r->config;
    double cpu = median(r->seconds[PARTS], steps), wall = median(r->seconds[PARTS + 1], steps);
    json_object(&j, NULL);
    json_text(&j, "kernels", kernels_get()->name);
    json_i64(&j, "layers", c->layers);
    json_i64(&j, "heads", c->heads);
    json_i64(&j, "width", c->width);
    json_i64(&j, "context", c->context);
    json_i64(&j, "batch", c->batch);
    json_i64(&j, "vocabulary", c->vocabulary);
    json_u64(&j, "parameters", gpt_param_count(c));
    json_f64(&j, "tokens_per_s", (double)c->batch * c->context / wall);
    json_f64(&j, "tokens_per_cpu_s", (double)c->batch * c->context / cpu);
    json_f64(&j, "step_ms", cpu * 1e3);
    for (int i = 0; i < PARTS; i++) json_f64(&j, part_names[i], median(r->seconds[i], steps) * 1e3);
    json_f64(&j, "loss", r->loss);
    json_end_object(&j);
    printf("%.*s\n", (int)b.size, (const char *)b.data);
    bytes_close(&b);
}

int main(int argc, char **argv) {
    uint32_t n[7] = {6, 6, 384, 256, 4, 256, 10};
    for (int i = 0; i < 7 && i + 1 < argc; i++) n[i] = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    struct run r = {.config = {.layers = n[0],
                               .heads = n[1],
                               .width = n[2],
                               .context = n[3],
                               .batch = n[4],
                               .vocabulary = n[5],
                               .tied = true,
                               .seed = 1}};
    struct pawl_error e;
    uint64_t steps = n[6] > 0 ? n[6] : 1;
    require(gpt_config_check(&r.config, 1, &e), &e);
    r.data = text_open(&r.config);
    require(gpt_stage_open(&r.config, 0, 1, r.data, 1, &r.stage, &e), &e);
    require(version_init(&r.from, r.stage, &e), &e);
    require(version_init(&r.to, r.stage, &e), &e);
    require(r.stage->ops->init_params(r.stage, 1, r.from.params, &e), &e);
    r.sums = zeros(r.stage->param_count + GRADSUM_FOOTER_WORDS, sizeof *r.sums);
    r.mean = zeros(r.stage->param_count, sizeof *r.mean);
    for (int i = 0; i <= PARTS + 1; i++) r.seconds[i] = zeros(steps + 2, sizeof(double));
    for (uint64_t step = 0; step < 2; step++) one_step(&r, step); /* takes all memory */
    for (uint64_t step = 0; step < steps; step++) one_step(&r, step);
    print(&r, steps);
    for (int i = 0; i <= PARTS + 1; i++) free(r.seconds[i]);
    free(r.sums);
    free(r.mean);
    version_close(&r.from);
    version_close(&r.to);
    r.stage->ops->close(r.stage);
    data_close(r.data);
    return 0;
}
