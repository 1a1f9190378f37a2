/* An engine of your own under pawl's executor: a small network that learns a made-up function, cut into any
 * number of stages up to LAYERS. See docs/engines.md.
 *
 *   example_engine examples/engine.yaml        trains; kill its workers as you like: the weights stay the
 * same example_engine worker|describe|coordinate FD   is how pawl starts it again
 *
 * What is random is keyed by (seed, sample), so that a micro-batch is the same wherever it is computed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pawl/engine.h>
#include <pawl/train.h>

#define LAYERS 4u
#define INPUTS 4u
#define WIDTH  8u

static uint32_t width = WIDTH; /* of the layers between */
static struct pawl_engine_job job;

/* ---- the network: tanh between linear layers ---- */

static uint32_t inputs_of(uint32_t layer) { return layer == 0 ? INPUTS : width; }
static uint32_t outputs_of(uint32_t layer) { return layer + 1 == LAYERS ? 1 : width; }

struct stage {
    uint32_t first, count; /* layers */
    char names[2 * LAYERS][16];
    struct pawl_engine_tensor tensors[2 * LAYERS]; /* weight, bias, weight, bias, ... */
    float *grads[2 * LAYERS];
    struct kept *kept; /* micro-batches in flight */
};

struct kept { /* what a micro-batch needs until its weight-gradient */
    struct kept *next;
    uint64_t slot;
    float
        *at[LAYERS + 1]; /* [batch][inputs_of(layer)] what goes into each layer; at the end what comes out */
    float *grad[LAYERS + 1]; /* the gradients of the same */
    float memory[];
};

static struct stage *stages; /* [job.stages] */

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static float uniform(uint64_t key, uint64_t index) { /* in [-1, 1) */
    return (float)(mix(mix(job.seed ^ key) + index) >> 40) / (float)(1u << 23) - 1.0f;
}

/* Row `row` of a micro-batch: its inputs, or what is to be learned of them. */
static void sample(const struct pawl_engine_call *c, uint32_t row, float *x, float *target) {
    uint64_t number = (c->step * job.contributions + c->microbatch) * job.batch + row;
    float sum = 0;
    for (uint32_t i = 0; i < INPUTS; i++) {
        float v = uniform(1, number * INPUTS + i);
        if (x != NULL) x[i] = v;
        sum += v;
    }
    *target = sinf(sum);
}

/* ---- opening ---- */

static pawl_code fail(struct pawl_error *e, pawl_code code, const char *text) {
    e->code = code;
    snprintf(e->text, sizeof e->text, "%s", text);
    return code;
}

static pawl_code engine_open(void *context, const struct pawl_engine_job *j, struct pawl_error *e) {
    (void)context;
    job = *j;
    if (j->stages > LAYERS) return fail(e, PAWL_SPEC, "the network has 4 layers: use at most 4 stages");
    stages = calloc(j->stages, sizeof *stages);
    return stages != NULL ? PAWL_OK : fail(e, PAWL_MEMORY, "no memory for the stages");
}

static void engine_close(void *context) {
    (void)context;
    free(stages);
    stages = NULL;
}

static void stage_close(void *context, uint32_t index) {
    (void)context;
    for (uint32_t t = 0; t < 2 * LAYERS; t++) free(stages[index].grads[t]);
    memset(&stages[index], 0, sizeof stages[index]);
}

static pawl_code stage_open(void *context, uint32_t index, struct pawl_engine_layout *out,
                            struct pawl_error *e) {
    struct stage *s = &stages[index];
    s->first = index * LAYERS / job.stages;
    s->count = (index + 1) * LAYERS / job.stages - s->first;
    for (uint32_t t = 0; t < 2 * s->count; t++) {
        uint32_t layer = s->first + t / 2, in = inputs_of(layer), outs = outputs_of(layer);
        bool weight = t % 2 == 0;
        snprintf(s->names[t], sizeof s->names[t], "%u.%s", layer, weight ? "weight" : "bias");
        s->tensors[t] = (struct pawl_engine_tensor){
            .name = s->names[t], .rank = weight ? 2 : 1, .shape = {outs, weight ? in : 0}, .decay = weight};
        s->grads[t] = calloc((size_t)outs * (weight ? in : 1), sizeof(float));
        if (s->grads[t] == NULL) {
            stage_close(context, index);
            return fail(e, PAWL_MEMORY, "no memory for the gradients");
        }
    }
    size_t row = job.batch * sizeof(float);
    *out = (struct pawl_engine_layout){.tensors = s->tensors,
                                       .tensor_count = 2 * s->count,
                                       .input_bytes = index == 0 ? 0 : inputs_of(s->first) * row,
                                       .output_bytes = index + 1 == job.stages ? 0 : width * row};
    return PAWL_OK;
}

static pawl_code init(void *context, uint32_t index, float *params, const uint64_t *offsets,
                      struct pawl_error *e) {
    (void)context;
    (void)e;
    const struct stage *s = &stages[index];
    for (uint32_t t = 0; t < 2 * s->count; t++) {
        uint32_t layer = s->first + t / 2, in = inputs_of(layer);
        uint64_t count = (uint64_t)outputs_of(layer) * (t % 2 == 0 ? in : 1);
        for (uint64_t i = 0; i < count; i++)
            params[offsets[t] + i] = uniform(2 + 2 * layer + t % 2, i) / sqrtf((float)in);
    }
    return PAWL_OK;
}

/* ---- micro-batches ---- */

static struct kept *kept_find(const struct stage *s, uint64_t slot) {
    struct kept *k = s->kept;
    while (k != NULL && k->slot != slot) k = k->next;
    return k;
}

static struct kept *kept_new(struct stage *s, uint64_t slot, uint64_t *bytes) {
    size_t floats = 0;
    for (uint32_t l = 0; l <= s->count; l++) floats += 2 * (size_t)job.batch * (width + INPUTS);
    *bytes = sizeof(struct kept) + floats * sizeof(float);
    struct kept *k = calloc(1, *bytes);
    if (k == NULL) return NULL;
    float *at = k->memory;
    for (uint32_t l = 0; l <= s->count; l++) {
        k->at[l] = at;
        k->grad[l] = at + (size_t)job.batch * (width + INPUTS);
        at += 2 * (size_t)job.batch * (width + INPUTS);
    }
    k->slot = slot;
    k->next = s->kept;
    s->kept = k;
    return k;
}

static void drop(void *context, uint32_t index, uint64_t slot) {
    (void)context;
    for (struct kept **k = &stages[index].kept; *k != NULL; k = &(*k)->next) {
        if ((*k)->slot != slot) continue;
        struct kept *gone = *k;
        *k = gone->next;
        free(gone);
        return;
    }
}

/* y = W x + b, and tanh of it but after the last layer of all */
static void layer_forward(uint32_t layer, const float *w, const float *b, const float *x, float *y) {
    uint32_t in = inputs_of(layer), outs = outputs_of(layer);
    for (uint32_t row = 0; row < job.batch; row++)
        for (uint32_t o = 0; o < outs; o++) {
            float sum = b[o];
            for (uint32_t i = 0; i < in; i++) sum += w[o * in + i] * x[row * in + i];
            y[row * outs + o] = layer + 1 == LAYERS ? sum : tanhf(sum);
        }
}

static pawl_code forward(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    (void)context;
    struct stage *s = &stages[c->stage];
    struct kept *k = kept_new(s, c->slot, &c->kept_bytes);
    float target;
    if (k == NULL) return fail(e, PAWL_MEMORY, "no memory for a micro-batch");
    if (c->input != NULL) memcpy(k->at[0], c->input, job.batch * inputs_of(s->first) * sizeof(float));
    for (uint32_t row = 0; c->input == NULL && row < job.batch; row++)
        sample(c, row, k->at[0] + row * INPUTS, &target);
    for (uint32_t l = 0; l < s->count; l++)
        layer_forward(s->first + l, c->params + c->offsets[2 * l], c->params + c->offsets[2 * l + 1],
                      k->at[l], k->at[l + 1]);
    if (c->output != NULL) {
        memcpy(c->output, k->at[s->count], job.batch * width * sizeof(float));
        return PAWL_OK;
    }
    double loss = 0;
    for (uint32_t row = 0; row < job.batch; row++) {
        sample(c, row, NULL, &target);
        float error = k->at[s->count][row] - target;
        k->grad[s->count][row] = 2 * error / (float)job.batch;
        loss += (double)error * (double)error;
    }
    c->loss = loss / job.batch;
    return PAWL_OK;
}

/* grad[l + 1], of what the layer gave, becomes that of its sum; grad[l] is that of what went into it */
static void layer_back(uint32_t layer, const float *w, const float *y, float *dy, float *dx) {
    uint32_t in = inputs_of(layer), outs = outputs_of(layer);
    for (uint32_t row = 0; row < job.batch; row++) {
        for (uint32_t o = 0; o < outs && layer + 1 < LAYERS; o++)
            dy[row * outs + o] *= 1 - y[row * outs + o] * y[row * outs + o];
        for (uint32_t i = 0; i < in; i++) {
            float sum = 0;
            for (uint32_t o = 0; o < outs; o++) sum += w[o * in + i] * dy[row * outs + o];
            dx[row * in + i] = sum;
        }
    }
}

static pawl_code input_grad(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    (void)context;
    const struct stage *s = &stages[c->stage];
    const struct kept *k = kept_find(s, c->slot);
    if (k == NULL) return fail(e, PAWL_INTERNAL, "a gradient without its forward");
    if (c->grad_in != NULL) memcpy(k->grad[s->count], c->grad_in, job.batch * width * sizeof(float));
    for (uint32_t l = s->count; l-- > 0;)
        layer_back(s->first + l, c->params + c->offsets[2 * l], k->at[l + 1], k->grad[l + 1], k->grad[l]);
    if (c->grad_out != NULL) memcpy(c->grad_out, k->grad[0], job.batch * inputs_of(s->first) * sizeof(float));
    return PAWL_OK;
}

static pawl_code weight_grad(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    (void)context;
    struct stage *s = &stages[c->stage];
    const struct kept *k = kept_find(s, c->slot);
    if (k == NULL) return fail(e, PAWL_INTERNAL, "a gradient without its forward");
    for (uint32_t l = 0; l < s->count; l++) {
        uint32_t in = inputs_of(s->first + l), outs = outputs_of(s->first + l);
        float *dw = s->grads[2 * l], *db = s->grads[2 * l + 1];
        memset(dw, 0, (size_t)outs * in * sizeof *dw);
        memset(db, 0, outs * sizeof *db);
        for (uint32_t row = 0; row < job.batch; row++)
            for (uint32_t o = 0; o < outs; o++) {
                float dy = k->grad[l + 1][row * outs + o];
                db[o] += dy;
                for (uint32_t i = 0; i < in; i++) dw[o * in + i] += dy * k->at[l][row * in + i];
            }
        c->grads[2 * l] = dw;
        c->grads[2 * l + 1] = db;
    }
    return PAWL_OK;
}

static struct pawl_engine engine = {.open = engine_open,
                                    .stage_open = stage_open,
                                    .stage_close = stage_close,
                                    .init = init,
                                    .forward = forward,
                                    .input_grad = input_grad,
                                    .weight_grad = weight_grad,
                                    .drop = drop,
                                    .close = engine_close};

/* ---- the program ---- */

static int train(const char *spec_path) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    self[n] = 0;
    struct pawl_train_options options = {.spec_path = spec_path, .worker_program = self};
    struct pawl_train_report report;
    struct pawl_error e;
    pawl_code code = pawl_train(&options, &report, &e);
    if (code != PAWL_OK) {
        fprintf(stderr, "%s\n", e.text);
        return pawl_code_exit(code);
    }
    printf("step %llu, loss %.6f, weights %s\n", (unsigned long long)report.final_step, report.loss_last,
           report.weights_sha256);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) return train(argv[1]);
    if (argc != 3) {
        fprintf(stderr, "usage: %s SPEC.yaml\n", argv[0]);
        return pawl_code_exit(PAWL_ARGUMENT);
    }
    pawl_engine_register(&engine);
    return pawl_engine_process(argv[1], atoi(argv[2]));
}
