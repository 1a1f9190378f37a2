/* Resume exactly: kill it whenever you like, start it again, and it ends with the same number as a run that
 * was never killed. What a step needs besides the tensors, the state of the random numbers, is the blob that
 * is frozen with it.
 *
 *   resume FOLDER [STEPS]              until ./resume f 500; do :; done & kill -9 its process, again and
 * again */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/ckpt.h>

#define COUNT 65536u

struct frozen { /* as long as the program is its only reader, any bytes will do */
    uint64_t random;
    double loss;
};

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int fail(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->text);
    return pawl_code_exit(e->code);
}

/* The optimizer's step depends on all steps before it and on the random numbers drawn so far. */
static void train(double *weights, struct frozen *f) {
    f->loss = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        double sample = (double)(next_random(&f->random) >> 11) * 0x1p-53;
        weights[i] += 0.01 * (sample - weights[i]);
        f->loss += (sample - weights[i]) * (sample - weights[i]) / COUNT;
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "resume FOLDER [STEPS]\n"), 64;
    uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 500, step = 0, shape[1] = {COUNT};
    struct frozen now = {.random = 42};
    double *weights = calloc(COUNT, sizeof *weights);
    if (weights == NULL) return 71;
    const struct pawl_tensor tensor = {
        .name = "weights", .dtype = PAWL_F64, .rank = 1, .shape = shape, .data = weights};

    struct pawl_error e;
    struct pawl_ckpt *c = NULL;
    struct pawl_ckpt_state *state = NULL;
    const struct pawl_ckpt_options options = {.path = argv[1], .in_flight = 3};
    if (pawl_ckpt_open(&options, &c, &e) != PAWL_OK) return fail("open", &e);
    if (pawl_ckpt_declare(c, &tensor, 1, &state, &e) != PAWL_OK) return fail("declare", &e);
    if (pawl_ckpt_resume(c, state, &step, &e) != PAWL_OK) return fail("resume", &e);
    const void *blob;
    size_t bytes;
    pawl_ckpt_blob(c, &blob, &bytes);
    if (bytes == sizeof now) memcpy(&now, blob, sizeof now);
    fprintf(stderr, "begin at step %" PRIu64 "\n", step);

    while (step < steps) {
        if (pawl_ckpt_fence(c, PAWL_FOREVER, &e) != PAWL_OK) return fail("fence", &e);
        train(weights, &now);
        step++;
        const struct pawl_ckpt_save save = {
            .state = state, .step = step, .blob = &now, .blob_bytes = sizeof now};
        if (pawl_ckpt_save(c, &save, NULL, &e) != PAWL_OK) return fail("save", &e);
    }
    if (pawl_ckpt_close(c, PAWL_FOREVER, &e) != PAWL_OK) return fail("close", &e);

    double sum = 0;
    for (uint32_t i = 0; i < COUNT; i++) sum += weights[i];
    printf("step %" PRIu64 ": loss %.17g, sum of weights %.17g\n", step, now.loss, sum);
    free(weights);
    return 0;
}
