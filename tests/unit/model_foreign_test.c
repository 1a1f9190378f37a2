/* What model/foreign.h promises: what an engine says is checked, what it computes is added once, its slots
 * come and go, and what it fails with is told with stage, step and micro-batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/foreign.h"

#define STAGES 2u
#define FLOATS 5u /* of the three tensors below */
#define BYTES  24u

/* An engine that does as the test says, and keeps count of what is asked of it. */
struct fake {
    struct pawl_engine_tensor tensors[3];
    struct pawl_engine_layout layout;
    const char *fails; /* this function */
    const char *text;  /* what with; null: it fills in nothing */
    double loss;
    bool silent; /* it sets no loss */
    uint64_t kept_bytes, samples;
    const float *grads[3];
    uint32_t opens, closes, stage_opens, stage_closes, drops, held;
    uint64_t dropped;             /* the last one */
    struct pawl_engine_call call; /* the last one */
    char job_module[16];
};

static pawl_code answer(struct fake *f, const char *function, struct pawl_error *e) {
    if (f->fails == NULL || strcmp(f->fails, function) != 0) return PAWL_OK;
    if (f->text != NULL) snprintf(e->text, sizeof e->text, "%s", f->text);
    return PAWL_FORMAT;
}

static pawl_code fake_open(void *context, const struct pawl_engine_job *job, struct pawl_error *e) {
    struct fake *f = context;
    f->opens++;
    snprintf(f->job_module, sizeof f->job_module, "%s", job->module);
    return answer(f, "open", e);
}

static pawl_code fake_stage_open(void *context, uint32_t stage, struct pawl_engine_layout *out,
                                 struct pawl_error *e) {
    struct fake *f = context;
    f->stage_opens++;
    *out = f->layout;
    out->input_bytes = stage == 0 ? 0 : f->layout.input_bytes;
    out->output_bytes = stage + 1 == STAGES ? 0 : f->layout.output_bytes;
    return answer(f, "stage_open", e);
}

static void fake_stage_close(void *context, uint32_t stage) {
    (void)stage;
    ((struct fake *)context)->stage_closes++;
}

static pawl_code fake_init(void *context, uint32_t stage, float *params, const uint64_t *offsets,
                           struct pawl_error *e) {
    struct fake *f = context;
    for (uint32_t i = 0; i < FLOATS; i++) params[i] = (float)stage + 1;
    params[offsets[2]] = f->loss > 1e30 ? INFINITY : 7;
    return answer(f, "init", e);
}

static pawl_code fake_forward(void *context, struct pawl_engine_call *call, struct pawl_error *e) {
    struct fake *f = context;
    f->held++;
    call->kept_bytes = f->kept_bytes;
    if (call->output == NULL && !f->silent) call->loss = f->loss;
    if (call->output != NULL) memset(call->output, 0x5a, BYTES);
    f->call = *call;
    return answer(f, "forward", e);
}

static pawl_code fake_input_grad(void *context, struct pawl_engine_call *call, struct pawl_error *e) {
    struct fake *f = context;
    f->call = *call;
    return answer(f, "input_grad", e);
}

static pawl_code fake_weight_grad(void *context, struct pawl_engine_call *call, struct pawl_error *e) {
    struct fake *f = context;
    for (int i = 0; i < 3; i++) call->grads[i] = f->grads[i];
    f->call = *call;
    return answer(f, "weight_grad", e);
}

static void fake_drop(void *context, uint32_t stage, uint64_t slot) {
    struct fake *f = context;
    (void)stage;
    f->drops++;
    f->held--;
    f->dropped = slot;
}

static void fake_close(void *context) { ((struct fake *)context)->closes++; }

static struct pawl_engine engine_of(struct fake *f) {
    return (struct pawl_engine){.context = f,
                                .open = fake_open,
                                .stage_open = fake_stage_open,
                                .stage_close = fake_stage_close,
                                .init = fake_init,
                                .forward = fake_forward,
                                .input_grad = fake_input_grad,
                                .weight_grad = fake_weight_grad,
                                .drop = fake_drop,
                                .close = fake_close};
}

static const struct pawl_engine_job job = {
    .module = "m", .options = "", .seed = 3, .stages = STAGES, .batch = 2, .contributions = 4, .threads = 1};

static void fake_init_tensors(struct fake *f) {
    *f = (struct fake){.tensors = {{.name = "a", .rank = 2, .shape = {1, 3}, .decay = true},
                                   {.name = "b", .rank = 1, .shape = {1}},
                                   {.name = "c"}},
                       .layout = {.tensor_count = 3, .input_bytes = BYTES, .output_bytes = BYTES},
                       .loss = 1.5};
    f->layout.tensors = f->tensors;
}

struct world {
    struct fake fake;
    struct pawl_engine engine;
    struct foreign *foreign;
    struct stage *stage;
    struct version v;
    int64_t sums[FLOATS + GRADSUM_FOOTER_WORDS];
};

static void open_world(struct world *w, uint32_t index) {
    struct pawl_error e = {0};
    memset(w, 0, sizeof *w);
    fake_init_tensors(&w->fake);
    w->engine = engine_of(&w->fake);
    if (foreign_open(&w->engine, &job, &w->foreign, &e) != PAWL_OK ||
        foreign_stage_open(w->foreign, index, &w->stage, &e) != PAWL_OK ||
        version_init(&w->v, w->stage, &e) != PAWL_OK)
        fail_msg("%s", e.text);
}

static void close_world(struct world *w) {
    version_close(&w->v);
    w->stage->ops->close(w->stage);
    foreign_close(w->foreign);
    assert_int_equal(w->fake.stage_opens, w->fake.stage_closes);
    assert_int_equal(w->fake.opens, w->fake.closes);
    assert_int_equal(w->fake.held, 0);
}

static struct stage_slot *take(struct world *w, uint64_t step, uint64_t microbatch) {
    struct stage_slot *slot = NULL;
    assert_int_equal(w->stage->ops->slot_take(w->stage, step, microbatch, &slot, NULL), PAWL_OK);
    return slot;
}

static void assert_text(const struct pawl_error *e, const char *wanted) {
    if (strstr(e->text, wanted) == NULL) fail_msg("wanted \"%s\" in \"%s\"", wanted, e->text);
}

/* ---- what an engine says ---- */

static void a_stage_has_the_tensors_one_behind_the_other(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 1);
    static const uint64_t offsets[] = {0, 3, 4}, counts[] = {3, 1, 1};
    assert_int_equal(w.stage->tensor_count, 3);
    assert_int_equal(w.stage->param_count, FLOATS);
    for (uint32_t t = 0; t < 3; t++) {
        assert_int_equal(w.stage->tensors[t].offset, offsets[t]);
        assert_int_equal(w.stage->tensors[t].count, counts[t]);
        assert_int_equal(w.stage->tensors[t].flags, t == 0 ? STAGE_DECAY : 0);
    }
    assert_int_equal(w.stage->input_bytes, BYTES);
    assert_int_equal(w.stage->output_bytes, 0);
    assert_string_equal(w.fake.job_module, "m");
    w.fake.tensors[0].name = "changed"; /* what was said is copied */
    assert_string_equal(w.stage->tensors[0].name, "a");
    close_world(&w);
}

static void refuse(struct fake *f, const char *wanted) {
    struct pawl_engine engine = engine_of(f);
    struct foreign *foreign = NULL;
    struct stage *stage = NULL;
    struct pawl_error e = {0};
    assert_int_equal(foreign_open(&engine, &job, &foreign, &e), PAWL_OK);
    assert_int_equal(foreign_stage_open(foreign, 1, &stage, &e), PAWL_USER);
    assert_null(stage);
    assert_text(&e, wanted);
    assert_int_equal(f->stage_closes, f->stage_opens - (f->fails != NULL));
    foreign_close(foreign);
}

#define REFUSED(wanted, ...)                                                                                 \
    do {                                                                                                     \
        struct fake f;                                                                                       \
        fake_init_tensors(&f);                                                                               \
        __VA_ARGS__;                                                                                         \
        refuse(&f, wanted);                                                                                  \
    } while (0)

static char long_name[FOREIGN_NAME_MAX + 2];

static void a_layout_that_cannot_be_is_refused_by_stage_and_tensor(void **state) {
    (void)state;
    memset(long_name, 'x', FOREIGN_NAME_MAX + 1);
    REFUSED("stage 1: tensor 1 '': it has no name", f.tensors[1].name = NULL);
    REFUSED("stage 1: tensor 2 '': it has no name", f.tensors[2].name = "");
    REFUSED("its name is too long", f.tensors[0].name = long_name);
    REFUSED("its name is not UTF-8", f.tensors[0].name = "\xff");
    REFUSED("its name holds a control character", f.tensors[0].name = "a\tb");
    REFUSED("tensor 0 'exp_avg/x': names do not begin with", f.tensors[0].name = "exp_avg/x");
    REFUSED("names do not begin with", f.tensors[0].name = "__pawl_x");
    REFUSED("tensor 2 'a': another tensor of the stage has this name", f.tensors[2].name = "a");
    REFUSED("tensor 0 'a': it has more than 8 dimensions", f.tensors[0].rank = 9);
    REFUSED("tensor 0 'a': it has no elements", f.tensors[0].shape[1] = 0);
    REFUSED("it has more than 2^48 elements", f.tensors[0].shape[1] = UINT64_MAX);
    REFUSED("it has more than 2^48 elements", f.tensors[0].shape[0] = 1u << 31,
            f.tensors[0].shape[1] = 1u << 31);
    REFUSED("the stage has more than 2^48 elements", f.tensors[1].shape[0] = (uint64_t)1 << 48);
    REFUSED("stage 1 has 0 parameters", f.layout.tensor_count = 0);
    REFUSED("stage 1 has 4294967295 parameters", f.layout.tensor_count = UINT32_MAX);
    REFUSED("stage 1 has 3 parameters", f.layout.tensors = NULL);
    REFUSED("wanted input_bytes above 0", f.layout.input_bytes = 0);
    REFUSED("wanted at most 2^48", f.layout.input_bytes = UINT64_MAX);
    REFUSED("stage 1: no such layer", f.fails = "stage_open", f.text = "no such layer");
}

static void an_engine_without_a_function_is_refused(void **state) {
    (void)state;
    struct fake f;
    fake_init_tensors(&f);
    struct pawl_engine engine = engine_of(&f);
    struct foreign *foreign;
    struct pawl_error e = {0};
    engine.weight_grad = NULL;
    assert_int_equal(foreign_open(&engine, &job, &foreign, &e), PAWL_ARGUMENT);
    assert_text(&e, "the engine has no function weight_grad");
    assert_int_equal(f.opens, 0);
    engine = engine_of(&f);
    f.fails = "open";
    f.text = "ImportError: x";
    assert_int_equal(foreign_open(&engine, &job, &foreign, &e), PAWL_USER);
    assert_text(&e, "ImportError: x");
    assert_int_equal(f.closes, 0);
    foreign_close(NULL);
}

static void a_stage_held_twice_is_opened_once_and_has_keys_of_its_own(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 1);
    struct stage *again = NULL;
    struct stage_slot *first = take(&w, 0, 0), *second;
    assert_int_equal(foreign_stage_open(w.foreign, 1, &again, NULL), PAWL_OK);
    assert_int_equal(w.fake.stage_opens, 1);
    assert_int_equal(again->ops->slot_take(again, 0, 0, &second, NULL), PAWL_OK);
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, first, NULL), PAWL_OK);
    uint64_t key = w.fake.call.slot;
    assert_int_not_equal(key, 0);
    assert_int_equal(again->ops->forward(again, &w.v, second, NULL), PAWL_OK);
    assert_int_not_equal(w.fake.call.slot, key);
    again->ops->close(again);
    assert_int_equal(w.fake.stage_closes, 0);
    assert_int_equal(w.fake.held, 1);
    close_world(&w);
}

/* ---- slots and calls ---- */

static void a_slot_is_dropped_when_it_comes_back_and_only_if_it_was_used(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 1);
    struct stage_slot *slot = take(&w, 4, 1), *unused = take(&w, 4, 2);
    assert_int_equal((uintptr_t)slot->input % 64, 0);
    assert_non_null(slot->grad_out);
    assert_null(slot->output);
    assert_null(slot->grad_in);
    w.fake.kept_bytes = 1000;
    assert_int_equal(w.stage->slot_bytes, 2 * BYTES);
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_int_equal(w.stage->slot_bytes, 2 * BYTES + 1000);
    assert_int_equal(w.fake.call.step, 4);
    assert_int_equal(w.fake.call.microbatch, 1);
    assert_ptr_equal(w.fake.call.params, w.v.params);
    assert_int_equal(w.fake.call.offsets[2], 4);
    uint64_t key = w.fake.call.slot;
    w.stage->ops->slot_return(w.stage, unused);
    assert_int_equal(w.fake.drops, 0);
    w.stage->ops->slot_return(w.stage, slot);
    assert_int_equal(w.fake.drops, 1);
    assert_int_equal(w.fake.dropped, key);
    w.fake.kept_bytes = UINT64_MAX; /* nobody has so much: it is not believed */
    slot = take(&w, 5, 1);
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_int_equal(w.stage->slot_bytes, 2 * BYTES + 1000);
    close_world(&w);
    assert_int_equal(w.fake.drops, 2); /* a slot under way, too */
}

static void a_gradient_nobody_wants_has_no_place(void **state) {
    (void)state;
    struct world w;
    open_world(&w, 1);
    struct stage_slot *slot = take(&w, 0, 0);
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_false(w.fake.call.no_input_grad);
    assert_null(w.fake.call.grad_out);
    assert_int_equal(w.stage->ops->input_grad(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_ptr_equal(w.fake.call.grad_out, slot->grad_out);
    w.stage->ops->slot_return(w.stage, slot);
    slot = take(&w, 0, 1);
    slot->no_input_grad = slot->no_weight_grad = true;
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_true(w.fake.call.no_input_grad && w.fake.call.no_weight_grad);
    close_world(&w);
    open_world(&w, 0);
    slot = take(&w, 0, 0);
    assert_int_equal(w.stage->ops->forward(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_true(w.fake.call.no_input_grad); /* there is nobody before the first */
    assert_non_null(w.fake.call.output);
    assert_int_equal(w.stage->ops->input_grad(w.stage, &w.v, slot, NULL), PAWL_OK);
    assert_ptr_equal(w.fake.call.grad_in, slot->grad_in);
    assert_null(w.fake.call.grad_out);
    close_world(&w);
}

static void run_slot(struct world *w, uint64_t microbatch) {
    struct stage_slot *slot = take(w, 0, microbatch);
    assert_int_equal(w->stage->ops->forward(w->stage, &w->v, slot, NULL), PAWL_OK);
    assert_int_equal(w->stage->ops->input_grad(w->stage, &w->v, slot, NULL), PAWL_OK);
    assert_int_equal(w->stage->ops->weight_grad(w->stage, &w->v, slot, w->sums, 0, NULL), PAWL_OK);
    w->stage->ops->slot_return(w->stage, slot);
}

static void gradients_are_added_where_the_engine_has_them(void **state) {
    (void)state;
    static const float a[] = {1, -2, 0.5f}, c[] = {8};
    struct world w;
    open_world(&w, 1);
    w.fake.grads[0] = a;
    w.fake.grads[2] = c;                                   /* b has none: zeros */
    for (uint32_t i = 0; i < FLOATS; i++) w.sums[i] = -77; /* nothing is counted: of no account */
    run_slot(&w, 0);
    run_slot(&w, 1);
    const double scale = ldexp(1, w.v.exponents[0]), wanted[FLOATS] = {2, -4, 1, 0, 16};
    for (uint32_t i = 0; i < FLOATS; i++) assert_true((double)w.sums[i] == wanted[i] * scale);
    const int64_t *footer = w.sums + FLOATS;
    assert_int_equal(footer[GRADSUM_COUNT], 6);
    assert_int_equal(footer[GRADSUM_NONFINITE], 0);
    assert_true(gradsum_loss(footer, 2) == 1.5);
    close_world(&w);
    open_world(&w, 1);
    w.stage->sums = GRADSUM_FLOAT;
    w.fake.grads[0] = a;
    memset(w.sums, 0xa5, gradsum_words(GRADSUM_FLOAT, FLOATS) * 8);
    run_slot(&w, 0);
    const float *sums = gradsum_at(GRADSUM_FLOAT, w.sums, 0);
    assert_memory_equal(sums, a, sizeof a);
    assert_true(sums[3] == 0 && sums[4] == 0);
    assert_int_equal(w.sums[gradsum_words(GRADSUM_FLOAT, FLOATS) + GRADSUM_COUNT], 3);
    close_world(&w);
}

static void what_is_not_finite_is_counted_and_a_loss_that_was_not_set_is_none(void **state) {
    (void)state;
    static const float bad[] = {1, NAN, 0.5f};
    struct world w;
    open_world(&w, 1);
    w.fake.grads[0] = bad;
    run_slot(&w, 0);
    assert_int_equal(w.sums[FLOATS + GRADSUM_NONFINITE], 1);
    w.fake.grads[0] = NULL;
    w.fake.loss = NAN;
    run_slot(&w, 1);
    assert_int_equal(w.sums[FLOATS + GRADSUM_NONFINITE], 2);
    w.fake.loss = 4;
    w.fake.silent = true;
    run_slot(&w, 2);
    assert_int_equal(w.sums[FLOATS + GRADSUM_NONFINITE], 3);
    assert_true(gradsum_loss(w.sums + FLOATS, 1) == 1.5);
    close_world(&w);
}

/* ---- failures ---- */

static void an_error_is_told_with_stage_step_and_microbatch(void **state) {
    (void)state;
    struct world w;
    struct pawl_error e = {0};
    open_world(&w, 1);
    struct stage_slot *slot = take(&w, 12, 3);
    const struct stage_ops *ops = w.stage->ops;
    w.fake.fails = "forward";
    w.fake.text = "ValueError: no";
    assert_int_equal(ops->forward(w.stage, &w.v, slot, &e), PAWL_USER);
    assert_string_equal(e.text, "stage 1, step 12, micro-batch 3: forward: ValueError: no");
    w.fake.text = NULL;
    w.fake.fails = "input_grad";
    assert_int_equal(ops->input_grad(w.stage, &w.v, slot, &e), PAWL_USER);
    assert_string_equal(e.text, "stage 1, step 12, micro-batch 3: input_grad: it gives no reason");
    w.fake.fails = "weight_grad";
    assert_int_equal(ops->weight_grad(w.stage, &w.v, slot, w.sums, 0, &e), PAWL_USER);
    assert_text(&e, "micro-batch 3: weight_grad: ");
    for (uint32_t i = 0; i < FLOATS + GRADSUM_FOOTER_WORDS; i++) assert_int_equal(w.sums[i], 0);
    w.fake.fails = "init";
    assert_int_equal(ops->init_params(w.stage, 3, w.v.params, &e), PAWL_USER);
    assert_text(&e, "stage 1: init: ");
    close_world(&w); /* the slot of the forward that failed is dropped */
}

static void initial_values_are_numbers(void **state) {
    (void)state;
    struct world w;
    struct pawl_error e = {0};
    open_world(&w, 1);
    assert_int_equal(w.stage->ops->init_params(w.stage, 3, w.v.params, &e), PAWL_OK);
    assert_true(w.v.params[0] == 2 && w.v.params[4] == 7);
    w.fake.loss = 1e31;
    assert_int_equal(w.stage->ops->init_params(w.stage, 3, w.v.params, &e), PAWL_USER);
    assert_text(&e, "stage 1: init: a value of c is not finite");
    close_world(&w);
}

static pawl_code give_optimizer(void *context, struct pawl_engine_optimizer *out, struct pawl_error *e) {
    out->lr = 0.5;
    return answer(context, "optimizer", e);
}

static void the_optimizer_is_the_engine_s_if_it_has_one(void **state) {
    (void)state;
    struct world w;
    struct pawl_engine_optimizer o;
    struct pawl_error e = {0};
    bool given;
    open_world(&w, 0);
    assert_int_equal(foreign_optimizer(w.foreign, &given, &o, &e), PAWL_OK);
    assert_false(given);
    w.engine.optimizer = give_optimizer;
    assert_int_equal(foreign_optimizer(w.foreign, &given, &o, &e), PAWL_OK);
    assert_true(given && o.lr == 0.5);
    w.fake.fails = "optimizer";
    w.fake.text = "not AdamW";
    assert_int_equal(foreign_optimizer(w.foreign, &given, &o, &e), PAWL_USER);
    assert_text(&e, "optimizer: not AdamW");
    close_world(&w);
}

static pawl_code give_samples(void *context, uint64_t *out, struct pawl_error *e) {
    *out = ((struct fake *)context)->samples;
    return answer(context, "samples", e);
}

static void the_number_of_samples_is_told_and_in_its_range(void **state) {
    (void)state;
    struct world w;
    struct pawl_error e = {0};
    uint64_t n = 3;
    open_world(&w, 0);
    assert_int_equal(foreign_samples(w.foreign, &n, &e), PAWL_OK);
    assert_int_equal(n, 0);
    w.engine.samples = give_samples;
    static const uint64_t cases[] = {1, FOREIGN_SAMPLES_MAX, 0, FOREIGN_SAMPLES_MAX + 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        w.fake.samples = cases[i];
        assert_int_equal(foreign_samples(w.foreign, &n, &e), i < 2 ? PAWL_OK : PAWL_USER);
        if (i < 2)
            assert_int_equal(n, cases[i]);
        else
            assert_text(&e, "wanted 1 to 2^53");
    }
    w.fake.fails = "samples";
    w.fake.text = "len() says no";
    assert_int_equal(foreign_samples(w.foreign, &n, &e), PAWL_USER);
    assert_text(&e, "samples: len() says no");
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_has_the_tensors_one_behind_the_other),
        cmocka_unit_test(a_layout_that_cannot_be_is_refused_by_stage_and_tensor),
        cmocka_unit_test(an_engine_without_a_function_is_refused),
        cmocka_unit_test(a_stage_held_twice_is_opened_once_and_has_keys_of_its_own),
        cmocka_unit_test(a_slot_is_dropped_when_it_comes_back_and_only_if_it_was_used),
        cmocka_unit_test(a_gradient_nobody_wants_has_no_place),
        cmocka_unit_test(gradients_are_added_where_the_engine_has_them),
        cmocka_unit_test(what_is_not_finite_is_counted_and_a_loss_that_was_not_set_is_none),
        cmocka_unit_test(an_error_is_told_with_stage_step_and_microbatch),
        cmocka_unit_test(initial_values_are_numbers),
        cmocka_unit_test(the_optimizer_is_the_engine_s_if_it_has_one),
        cmocka_unit_test(the_number_of_samples_is_told_and_in_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
