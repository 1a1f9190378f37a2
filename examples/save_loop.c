/* Save in a loop: the memory is captured while the next step is computed, written in the background, and the
 * loop stands still only where it would overwrite what is not captured yet.
 *
 *   save_loop FOLDER [STEPS] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pawl/ckpt.h>

#define COUNT (4u << 20) /* parameters: 16 MiB, and as much for their momentum */

static int fail(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->text);
    return pawl_code_exit(e->code);
}

static void print_events(struct pawl_ckpt *c) {
    struct pawl_ckpt_event event;
    while (pawl_ckpt_poll(c, &event, 1) == 1)
        if (event.kind >= PAWL_CKPT_DURABLE)
            printf("step %" PRIu64 " %s: %.1f MB, %.1f ms in the background, %.3f ms in the loop %s\n",
                   event.step, pawl_ckpt_event_name(event.kind), (double)event.bytes * 1e-6,
                   (double)event.total_ns * 1e-6, (double)event.blocked_ns * 1e-6, event.text);
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "save_loop FOLDER [STEPS]\n"), 64;
    uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 50, step = 0, shape[1] = {COUNT};
    float *weights = calloc(COUNT, sizeof *weights), *momentum = calloc(COUNT, sizeof *momentum);
    if (weights == NULL || momentum == NULL) return 71;
    const struct pawl_tensor tensors[] = {
        {.name = "weights", .dtype = PAWL_F32, .rank = 1, .shape = shape, .data = weights},
        {.name = "momentum", .dtype = PAWL_F32, .rank = 1, .shape = shape, .data = momentum},
    };

    struct pawl_error e;
    struct pawl_ckpt *c = NULL;
    struct pawl_ckpt_state *state = NULL;
    const struct pawl_ckpt_options options = {.path = argv[1], .every = 5}; /* 0: by what it costs */
    if (pawl_ckpt_open(&options, &c, &e) != PAWL_OK) return fail("open", &e);
    if (pawl_ckpt_declare(c, tensors, 2, &state, &e) != PAWL_OK) return fail("declare", &e);
    if (pawl_ckpt_resume(c, state, &step, &e) != PAWL_OK) return fail("resume", &e);
    printf("begin at step %" PRIu64 "\n", step);

    while (step < steps) {
        float gradient = 1.0f / (float)(step + 1); /* here the next step is computed ... */
        if (pawl_ckpt_fence(c, PAWL_FOREVER, &e) != PAWL_OK) return fail("fence", &e);
        for (uint32_t i = 0; i < COUNT; i++) { /* ... and here the memory changes */
            momentum[i] = 0.9f * momentum[i] + gradient;
            weights[i] -= 0.1f * momentum[i];
        }
        step++;
        const struct pawl_ckpt_save save = {.state = state, .step = step};
        if (pawl_ckpt_due(c, step) && pawl_ckpt_save(c, &save, NULL, &e) != PAWL_OK) return fail("save", &e);
        print_events(c);
    }
    struct pawl_ckpt_status status;
    pawl_ckpt_status(c, &status);
    if (pawl_ckpt_close(c, PAWL_FOREVER, &e) != PAWL_OK) return fail("close", &e);
    printf("end at step %" PRIu64 ", stood still for %.1f ms; %s\n", step, (double)status.blocked_ns * 1e-6,
           status.backend);
    free(weights);
    free(momentum);
    return 0;
}
