/* What model/emulated.h promises: the same bits whoever computes what in which order, no message taken for
 * another, time and memory as the profile says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/adamw.h"
#include "model/emulated.h"
#include "model/emulated_message.h"
#include "model/gradsum.h"
#include "model/weights.h"

#define CHUNKS       3u
#define MICROBATCHES 4u
#define PARAMETERS   101u
#define SUMS         (PARAMETERS + GRADSUM_FOOTER_WORDS)

struct place { /* a worker: its device, and a stage of every chunk */
    struct emulated_device device;
    struct stage *stages[CHUNKS];
};

struct model {
    struct place places[2];
    struct version versions[CHUNKS];
    int64_t sums[CHUNKS][SUMS];
};

static const struct emulated_config config = {
    .seed = 5, .stage_count = CHUNKS, .parameters = PARAMETERS, .contributions = MICROBATCHES};
/* So long that a test which slept would never end. */
static const struct emulated_cost endless = {1e12, 1e12, 1e12, 1e12, 1e12, 1e12, 1e12, 0, 0, 0};

static void place_open(struct place *p, const struct emulated_cost *cost, struct emulated_device device) {
    struct pawl_error e = {0};
    p->device = device;
    for (uint32_t c = 0; c < CHUNKS; c++)
        if (emulated_stage_open(&config, cost, &p->device, c, &p->stages[c], &e) != PAWL_OK)
            fail_msg("%s", e.text);
}

static void place_close(struct place *p) {
    for (uint32_t c = 0; c < CHUNKS; c++) p->stages[c]->ops->close(p->stages[c]);
    assert_int_equal(p->device.used_bytes, 0);
    assert_int_equal(p->device.used_microbatches, 0);
}

static struct model *model_open(void) {
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    for (int p = 0; p < 2; p++) place_open(&m->places[p], &endless, (struct emulated_device){.slow = 1});
    for (uint32_t c = 0; c < CHUNKS; c++) {
        struct stage *stage = m->places[0].stages[c];
        assert_int_equal(version_init(&m->versions[c], stage, NULL), PAWL_OK);
        assert_int_equal(stage->ops->init_params(stage, config.seed, m->versions[c].params, NULL), PAWL_OK);
    }
    return m;
}

static void model_close(struct model *m) {
    for (int p = 0; p < 2; p++) place_close(&m->places[p]);
    for (uint32_t c = 0; c < CHUNKS; c++) version_close(&m->versions[c]);
    free(m);
}

static struct stage_slot *take(struct stage *stage, uint64_t step, uint64_t microbatch) {
    struct stage_slot *slot = NULL;
    struct pawl_error e = {0};
    if (stage->ops->slot_take(stage, step, microbatch, &slot, &e) != PAWL_OK) fail_msg("%s", e.text);
    return slot;
}

static void move(float *to, const float *from) { memcpy(to, from, EMULATED_MESSAGE_BYTES); }

/* What the neighbours of a chunk would have sent it: an activation, the gradient of what it gave. */
static void bring(struct stage_slot *slot, uint32_t chunk) {
    struct emulated_message m = {
        .kind = EMULATED_ACTIVATION, .chunk = chunk, .step = slot->step, .microbatch = slot->microbatch};
    emulated_message_write(&m, slot->input);
}

static void answer(struct stage_slot *slot, uint32_t chunk) {
    struct emulated_message m = {
        .kind = EMULATED_GRADIENT, .chunk = chunk, .step = slot->step, .microbatch = slot->microbatch};
    struct emulated_message given;
    memcpy(&given, slot->output, sizeof given);
    m.echo = given.value;
    emulated_message_write(&m, slot->grad_in);
}

/* A micro-batch through all chunks; bit c of `who` says at which place chunk c is computed. */
static void run_microbatch(struct model *m, uint64_t step, uint64_t microbatch, uint32_t who) {
    struct stage *at[CHUNKS];
    struct stage_slot *slots[CHUNKS];
    for (uint32_t c = 0; c < CHUNKS; c++) {
        at[c] = m->places[who >> c & 1].stages[c];
        slots[c] = take(at[c], step, microbatch);
        if (c > 0) move(slots[c]->input, slots[c - 1]->output);
        assert_int_equal(at[c]->ops->forward(at[c], &m->versions[c], slots[c], NULL), PAWL_OK);
    }
    for (uint32_t c = CHUNKS; c-- > 0;) {
        if (c + 1 < CHUNKS) move(slots[c]->grad_in, slots[c + 1]->grad_out);
        assert_int_equal(at[c]->ops->input_grad(at[c], &m->versions[c], slots[c], NULL), PAWL_OK);
    }
    for (uint32_t c = 0; c < CHUNKS; c++) {
        assert_int_equal(at[c]->ops->weight_grad(at[c], &m->versions[c], slots[c], m->sums[c], 0, NULL),
                         PAWL_OK);
        at[c]->ops->slot_return(at[c], slots[c]);
    }
}

/* --- content --- */

static void the_sums_are_the_same_whoever_computes_what_in_which_order(void **state) {
    (void)state;
    struct model *a = model_open(), *b = model_open();
    for (uint32_t c = 0; c < CHUNKS; c++) a->sums[c][PARAMETERS - 1] = 42; /* nothing is counted there yet */
    for (uint64_t i = 0; i < MICROBATCHES; i++) {
        run_microbatch(a, 0, i, 0);
        run_microbatch(b, 0, MICROBATCHES - 1 - i, (uint32_t)(3 * i + 1));
    }
    assert_memory_equal(a->sums, b->sums, sizeof a->sums);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const int64_t *footer = a->sums[c] + PARAMETERS;
        assert_int_equal(footer[GRADSUM_COUNT], 2 * MICROBATCHES);
        assert_int_equal(footer[GRADSUM_NONFINITE], 0);
        assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
        assert_int_equal(footer[GRADSUM_LOSS] != 0, c + 1 == CHUNKS);
    }
    model_close(a);
    model_close(b);
}

/* What a fault would change must change the sums: else the weights would prove nothing. */
static void sums_after(uint64_t step, uint64_t microbatch, uint64_t version, float first, uint64_t *out) {
    struct model *m = model_open();
    m->versions[1].number = version;
    m->versions[1].params[0] += first;
    run_microbatch(m, step, microbatch, 0);
    for (uint32_t c = 0; c < CHUNKS; c++) out[c] = (uint64_t)m->sums[c][0];
    model_close(m);
}

static void another_step_microbatch_or_version_gives_another_gradient(void **state) {
    (void)state;
    uint64_t base[CHUNKS], other[4][CHUNKS];
    sums_after(0, 0, 0, 0, base);
    sums_after(1, 0, 0, 0, other[0]);
    sums_after(0, 1, 0, 0, other[1]);
    sums_after(0, 0, 1, 0, other[2]); /* of the middle chunk: reaches the last by F, the first by I */
    sums_after(0, 0, 0, 1, other[3]);
    for (int i = 0; i < 4; i++)
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (base[c] == other[i][c]) fail_msg("change %d leaves chunk %u as it was", i, c);
}

static void assert_says(pawl_code code, const struct pawl_error *e, const char *wanted) {
    assert_int_equal(code, PAWL_INTERNAL);
    if (strstr(e->text, wanted) == NULL) fail_msg("wanted \"%s\" in \"%s\"", wanted, e->text);
}

/* Runs a micro-batch in which the middle chunk gets its input or its gradient made otherwise. */
static void assert_refused(void (*spoil)(struct stage_slot *slot, struct stage_slot *other), bool gradient,
                           const char *wanted) {
    struct pawl_error e = {0};
    struct model *m = model_open();
    struct stage **at = m->places[0].stages, *stage = at[1];
    struct stage_slot *first = take(at[0], 3, 1), *second = take(at[0], 3, 2), *slot = take(stage, 3, 1);
    struct stage_slot *last = take(at[2], 3, 1), *slot_second = take(stage, 3, 2);
    assert_int_equal(at[0]->ops->forward(at[0], &m->versions[0], first, NULL), PAWL_OK);
    assert_int_equal(at[0]->ops->forward(at[0], &m->versions[0], second, NULL), PAWL_OK);
    move(slot->input, first->output);
    move(slot_second->input, second->output);
    if (!gradient) {
        spoil(slot, slot_second);
        assert_says(stage->ops->forward(stage, &m->versions[1], slot, &e), &e, wanted);
        model_close(m);
        return;
    }
    assert_int_equal(stage->ops->forward(stage, &m->versions[1], slot, NULL), PAWL_OK);
    assert_int_equal(stage->ops->forward(stage, &m->versions[1], slot_second, NULL), PAWL_OK);
    move(last->input, slot->output);
    assert_int_equal(at[2]->ops->forward(at[2], &m->versions[2], last, NULL), PAWL_OK);
    assert_int_equal(at[2]->ops->input_grad(at[2], &m->versions[2], last, NULL), PAWL_OK);
    move(slot->grad_in, last->grad_out);
    spoil(slot, slot_second);
    assert_says(stage->ops->input_grad(stage, &m->versions[1], slot, &e), &e, wanted);
    model_close(m);
}

static void float_sums_are_what_the_device_made_of_its_one_microbatch(void **state) {
    (void)state;
    struct model *m = model_open(), *exact = model_open();
    for (uint32_t c = 0; c < CHUNKS; c++) m->places[0].stages[c]->sums = GRADSUM_FLOAT;
    run_microbatch(m, 0, 1, 0);
    run_microbatch(exact, 0, 1, 0);
    uint64_t words = gradsum_words(GRADSUM_FLOAT, PARAMETERS);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const float *had = gradsum_at(GRADSUM_FLOAT, m->sums[c], 0);
        assert_memory_equal(m->sums[c] + words, exact->sums[c] + PARAMETERS, GRADSUM_FOOTER_WORDS * 8);
        int32_t x = exact->versions[c].exponents[0];
        for (uint64_t i = 0; i < PARAMETERS; i++)
            assert_true(had[i] == (float)ldexp((double)exact->sums[c][i], -x));
    }
    model_close(m);
    model_close(exact);
}

static void take_other_input(struct stage_slot *slot, struct stage_slot *other) {
    move(slot->input, other->input);
}
static void damage_input(struct stage_slot *slot, struct stage_slot *other) {
    (void)other;
    ((uint8_t *)slot->input)[100] ^= 4;
}
static void no_input(struct stage_slot *slot, struct stage_slot *other) {
    (void)other;
    memset(slot->input, 0, EMULATED_MESSAGE_BYTES);
}
static void take_activation(struct stage_slot *slot, struct stage_slot *other) {
    (void)other;
    move(slot->grad_in, slot->output);
}

static void a_message_for_another_is_refused_and_named(void **state) {
    (void)state;
    assert_refused(
        take_other_input, false,
        "chunk 1 wants the activation of step 3, micro-batch 1, and got the activation for chunk 1 of "
        "step 3, micro-batch 2");
    assert_refused(damage_input, false,
                   "chunk 1, step 3, micro-batch 1: the activation that came is damaged");
    assert_refused(no_input, false, "the activation that came is damaged");
    assert_refused(take_activation, true,
                   "chunk 1 wants the gradient of step 3, micro-batch 1, and got the activation for chunk 2");
}

static void a_gradient_that_answers_another_activation_is_refused(void **state) {
    (void)state;
    struct model *m = model_open();
    struct stage **at = m->places[0].stages;
    struct stage_slot *slots[2] = {take(at[1], 0, 0), take(at[2], 0, 0)}, *first = take(at[0], 0, 0);
    assert_int_equal(at[0]->ops->forward(at[0], &m->versions[0], first, NULL), PAWL_OK);
    move(slots[0]->input, first->output);
    assert_int_equal(at[1]->ops->forward(at[1], &m->versions[1], slots[0], NULL), PAWL_OK);
    move(slots[1]->input, slots[0]->output);
    m->versions[1].number++; /* the chunk starts over from another version, the gradient is of the old one */
    assert_int_equal(at[1]->ops->forward(at[1], &m->versions[1], slots[0], NULL), PAWL_OK);
    assert_int_equal(at[2]->ops->forward(at[2], &m->versions[2], slots[1], NULL), PAWL_OK);
    assert_int_equal(at[2]->ops->input_grad(at[2], &m->versions[2], slots[1], NULL), PAWL_OK);
    move(slots[0]->grad_in, slots[1]->grad_out);
    struct pawl_error e = {0};
    assert_says(at[1]->ops->input_grad(at[1], &m->versions[1], slots[0], &e), &e,
                "the gradient answers activation");
    model_close(m);
}

/* --- tensors --- */

static void the_list_of_the_model_is_that_of_its_stages(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 4, 101, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct emulated_config c = config;
        struct emulated_device device = {.slow = 1};
        struct stage_tensor *all;
        uint32_t count, at = 0;
        c.parameters = sizes[i];
        assert_int_equal(emulated_list(&c, &all, &count, NULL), PAWL_OK);
        for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
            struct stage *stage;
            uint64_t floats = 0;
            assert_int_equal(emulated_stage_open(&c, &endless, &device, chunk, &stage, NULL), PAWL_OK);
            for (uint32_t t = 0; t < stage->tensor_count; t++, at++) {
                assert_true(at < count);
                assert_string_equal(all[at].name, stage->tensors[t].name);
                assert_int_equal(stage->tensors[t].offset, floats);
                assert_true(stage->tensors[t].count > 0);
                assert_int_equal(all[at].shape[0], stage->tensors[t].count);
                floats += stage->tensors[t].count;
            }
            assert_int_equal(floats, sizes[i]);
            assert_int_equal(stage->param_count, floats);
            stage->ops->close(stage);
        }
        assert_int_equal(at, count);
        weights_list_free(all, count);
    }
}

static void sizes_of_nothing_are_refused(void **state) {
    (void)state;
    struct emulated_device device = {.slow = 1};
    struct stage *stage;
    assert_int_equal(emulated_stage_open(&config, &endless, &device, CHUNKS, &stage, NULL), PAWL_ARGUMENT);
    struct emulated_config none = config;
    none.parameters = 0;
    assert_int_equal(emulated_stage_open(&none, &endless, &device, 0, &stage, NULL), PAWL_ARGUMENT);
    assert_int_equal(device.used_bytes, 0);
}

/* --- memory --- */

static void one_microbatch_too_many_is_told(void **state) {
    (void)state;
    struct place p;
    struct version v;
    struct stage_slot *slots[3];
    place_open(&p, &endless, (struct emulated_device){.slow = 1, .microbatches_max = 2});
    struct stage *stage = p.stages[0];
    assert_int_equal(version_init(&v, stage, NULL), PAWL_OK);
    for (uint64_t i = 0; i < 3; i++) slots[i] = take(stage, 0, i); /* what is only posted is not stored */
    assert_int_equal(stage->ops->forward(stage, &v, slots[0], NULL), PAWL_OK);
    assert_int_equal(stage->ops->forward(stage, &v, slots[1], NULL), PAWL_OK);
    assert_int_equal(p.device.used_microbatches, 2);
    stage->ops->slot_return(stage, slots[1]);
    assert_int_equal(p.device.used_microbatches, 1);
    slots[1] = take(stage, 0, 1);
    assert_int_equal(stage->ops->forward(stage, &v, slots[1], NULL), PAWL_OK);
    struct pawl_error e = {0};
    assert_says(stage->ops->forward(stage, &v, slots[2], &e), &e, "micro-batch 2: 3 micro-batches");
    assert_int_equal(p.device.peak_microbatches, 3);
    version_close(&v);
    place_close(&p);
}

static void bytes_count_beside_the_state_until_the_weight_gradient(void **state) {
    (void)state;
    struct emulated_cost cost = {.state_bytes = 100, .activation_bytes = 50, .weight_grad_bytes = 20};
    struct place p;
    struct version v;
    int64_t sums[SUMS] = {0};
    place_open(&p, &cost, (struct emulated_device){.slow = 1, .memory_bytes = CHUNKS * 100 + 70});
    struct stage *first = p.stages[0];
    assert_int_equal(version_init(&v, first, NULL), PAWL_OK);
    struct stage_slot *a = take(first, 0, 0), *b = take(first, 0, 1);
    assert_int_equal(first->ops->forward(first, &v, a, NULL), PAWL_OK);
    assert_int_equal(p.device.used_bytes, CHUNKS * 100 + 50);
    answer(a, 0);
    assert_int_equal(first->ops->input_grad(first, &v, a, NULL), PAWL_OK);
    assert_int_equal(p.device.used_bytes, CHUNKS * 100 + 20);
    assert_int_equal(first->ops->forward(first, &v, b, NULL), PAWL_OK); /* exactly what is allowed */
    assert_int_equal(p.device.used_bytes, CHUNKS * 100 + 70);
    assert_int_equal(first->ops->weight_grad(first, &v, a, sums, 0, NULL), PAWL_OK);
    assert_int_equal(p.device.used_bytes, CHUNKS * 100 + 50);
    version_close(&v);
    place_close(&p);
}

static void nothing_is_stored_for_what_is_not_computed_later(void **state) {
    (void)state;
    struct place p;
    struct version v;
    place_open(&p, &endless, (struct emulated_device){.slow = 1});
    struct stage *stage = p.stages[CHUNKS - 1];
    assert_int_equal(version_init(&v, stage, NULL), PAWL_OK);
    struct stage_slot *only_forward = take(stage, 0, 0), *no_weights = take(stage, 0, 1);
    only_forward->no_input_grad = only_forward->no_weight_grad = true;
    no_weights->no_weight_grad = true;
    bring(only_forward, CHUNKS - 1);
    bring(no_weights, CHUNKS - 1);
    assert_int_equal(stage->ops->forward(stage, &v, only_forward, NULL), PAWL_OK);
    assert_int_equal(p.device.used_microbatches, 0);
    assert_int_equal(p.device.peak_microbatches, 1); /* while it was computed */
    assert_int_equal(stage->ops->forward(stage, &v, no_weights, NULL), PAWL_OK);
    assert_int_equal(p.device.used_microbatches, 1);
    assert_int_equal(stage->ops->input_grad(stage, &v, no_weights, NULL), PAWL_OK);
    assert_int_equal(p.device.used_microbatches, 0);
    stage->ops->slot_return(stage, no_weights);
    version_close(&v);
    place_close(&p);
}

static void a_slot_that_comes_back_is_as_new(void **state) {
    (void)state;
    struct place p;
    place_open(&p, &endless, (struct emulated_device){.slow = 1});
    struct stage *stage = p.stages[0];
    struct stage_slot *slot = take(stage, 0, 0);
    slot->no_input_grad = slot->no_weight_grad = true;
    stage->ops->slot_return(stage, slot);
    struct stage_slot *again = take(stage, 0, 1);
    assert_ptr_equal(again, slot);
    assert_false(again->no_input_grad || again->no_weight_grad);
    place_close(&p);
}

/* --- time --- */

/* Nanoseconds that `op` took at least; sleeping may take longer, never less. */
static int64_t time_of(struct stage *stage, int op, const struct version *v, struct stage_slot *slot,
                       int64_t *sums) {
    int64_t begin = clock_now_ns();
    switch (op) {
    case 0:
        assert_int_equal(stage->ops->forward(stage, v, slot, NULL), PAWL_OK);
        break;
    case 1:
        assert_int_equal(stage->ops->input_grad(stage, v, slot, NULL), PAWL_OK);
        break;
    case 2:
        assert_int_equal(stage->ops->weight_grad(stage, v, slot, sums, 0, NULL), PAWL_OK);
        break;
    default:
        stage->ops->pause(stage, op == 3 ? STAGE_PAUSE_REDUCE : STAGE_PAUSE_STEP);
    }
    return clock_now_ns() - begin;
}

static void every_operation_takes_its_time_on_a_slow_worker_longer(void **state) {
    (void)state;
    static const struct emulated_cost cost = {
        .forward = 2, .input_grad = 3, .weight_grad = 4, .reduce = 5, .step = 6};
    static const int64_t slowed_us[] = {3000, 4500, 6000, 5000, 9000};
    struct place p;
    struct version v;
    int64_t sums[SUMS] = {0};
    place_open(&p, &cost, (struct emulated_device){.slow = 1.5, .ns_per_unit = 1e6});
    struct stage *stage = p.stages[0];
    assert_int_equal(version_init(&v, stage, NULL), PAWL_OK);
    struct stage_slot *slot = take(stage, 0, 0);
    for (int op = 0; op < 5; op++) {
        if (op == 1) answer(slot, 0);
        int64_t took = time_of(stage, op, &v, slot, sums);
        if (took < slowed_us[op] * 1000)
            fail_msg("operation %d took %lld ns, at least %lld us are right", op, (long long)took,
                     (long long)slowed_us[op]);
    }
    version_close(&v);
    place_close(&p);
}

static void a_message_is_not_there_before_its_send_time(void **state) {
    (void)state;
    static const struct emulated_cost cost = {.forward = 1, .send_forward = 4, .send_backward = 5};
    struct place p;
    struct version v;
    place_open(&p, &cost, (struct emulated_device){.slow = 1, .ns_per_unit = 1e6});
    struct stage **at = p.stages;
    assert_int_equal(version_init(&v, at[0], NULL), PAWL_OK);
    struct stage_slot *first = take(at[0], 0, 0), *second = take(at[1], 0, 0);
    int64_t begin = clock_now_ns();
    assert_int_equal(at[0]->ops->forward(at[0], &v, first, NULL), PAWL_OK);
    move(second->input, first->output);
    assert_int_equal(at[1]->ops->forward(at[1], &v, second, NULL), PAWL_OK);
    int64_t took = clock_now_ns() - begin;
    if (took < 6000000)
        fail_msg("two forwards and a send took %lld ns, at least 6 ms are right", (long long)took);
    answer(second, 1);
    begin = clock_now_ns();
    assert_int_equal(at[1]->ops->input_grad(at[1], &v, second, NULL), PAWL_OK);
    move(first->grad_in, second->grad_out);
    assert_int_equal(at[0]->ops->input_grad(at[0], &v, first, NULL), PAWL_OK);
    took = clock_now_ns() - begin;
    if (took < 5000000) fail_msg("a gradient was there after %lld ns, not 5 ms", (long long)took);
    version_close(&v);
    place_close(&p);
}

static void without_a_unit_nothing_takes_time(void **state) {
    (void)state;
    alarm(300); /* an operation that slept would take 31,000 years */
    struct model *m = model_open();
    run_microbatch(m, 0, 0, 0);
    struct stage *stage = m->places[0].stages[0];
    stage->ops->pause(stage, STAGE_PAUSE_REDUCE);
    stage->ops->pause(stage, STAGE_PAUSE_STEP);
    model_close(m);
    alarm(0);
}

/* --- with the rest --- */

static void training_with_it_stays_finite_and_is_not_clipped(void **state) {
    (void)state;
    struct model *m = model_open();
    struct adamw_config adamw = {
        .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    float grad[PARAMETERS];
    double most = 0;
    for (uint64_t step = 0; step < 20; step++) {
        memset(m->sums, 0, sizeof m->sums);
        for (uint64_t i = 0; i < MICROBATCHES; i++) run_microbatch(m, step, i, 0);
        double norm2 = 0;
        for (uint32_t c = 0; c < CHUNKS; c++) {
            struct stage *stage = m->places[0].stages[c];
            struct version next;
            assert_int_equal(m->sums[c][PARAMETERS + GRADSUM_OVERFLOW], 0);
            for (uint32_t t = 0; t < stage->tensor_count; t++)
                gradsum_mean(m->sums[c] + stage->tensors[t].offset, grad + stage->tensors[t].offset,
                             stage->tensors[t].count, m->versions[c].exponents[t], MICROBATCHES);
            assert_int_equal(version_init(&next, stage, NULL), PAWL_OK);
            norm2 += adamw_norm2(stage, grad);
            adamw_step(stage, &adamw, &m->versions[c], grad, 1, &next);
            version_close(&m->versions[c]);
            m->versions[c] = next;
        }
        if (norm2 > most) most = norm2;
    }
    assert_true(most > 0 && most < 0.25); /* the default limit of 1 does not clip */
    for (uint32_t c = 0; c < CHUNKS; c++)
        for (uint32_t i = 0; i < PARAMETERS; i++) assert_true(isfinite(m->versions[c].params[i]));
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sums_are_the_same_whoever_computes_what_in_which_order),
        cmocka_unit_test(another_step_microbatch_or_version_gives_another_gradient),
        cmocka_unit_test(a_message_for_another_is_refused_and_named),
        cmocka_unit_test(a_gradient_that_answers_another_activation_is_refused),
        cmocka_unit_test(the_list_of_the_model_is_that_of_its_stages),
        cmocka_unit_test(sizes_of_nothing_are_refused),
        cmocka_unit_test(one_microbatch_too_many_is_told),
        cmocka_unit_test(nothing_is_stored_for_what_is_not_computed_later),
        cmocka_unit_test(a_slot_that_comes_back_is_as_new),
        cmocka_unit_test(bytes_count_beside_the_state_until_the_weight_gradient),
        cmocka_unit_test(every_operation_takes_its_time_on_a_slow_worker_longer),
        cmocka_unit_test(a_message_is_not_there_before_its_send_time),
        cmocka_unit_test(without_a_unit_nothing_takes_time),
        cmocka_unit_test(float_sums_are_what_the_device_made_of_its_one_microbatch),
        cmocka_unit_test(training_with_it_stays_finite_and_is_not_clipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
