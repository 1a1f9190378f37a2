/* What run/spec.h promises of what follows from a spec: limits of time, engines, what is printed reads back,
 * and a run is known by what decides its weights. */
#include "kit/spec_kit.h"

#include <locale.h>
#include <math.h>

#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "ir/ir.h"

/* --- limits that follow --- */

static void times_that_break_the_order_are_refused_by_its_name(void **state) {
    (void)state;
    REFUSES("failure.stall_s is 10 but failure.timeout_s is 10: the order is timeout_s < stall_s",
            "failure.stall_s=10");
    REFUSES("failure.load_s is 100 but failure.stall_s is 120: the order is timeout_s < stall_s <= load_s",
            "failure.load_s=100");
    REFUSES("failure.save_s is 6 but failure.stall_s is 7: the order is timeout_s < stall_s <= save_s",
            "failure.timeout_s=5", "failure.stall_s=7", "failure.save_s=6");
    REFUSES("stall_s <= compile_s: use at least 120, or 0", "failure.compile_s=1");
    REFUSES("stall_s <= eval_s: use at least 120, or 0", "failure.eval_s=1");
}

static void limits_not_given_follow_from_the_one_timeout(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct coord_config c;
    spec_coord_config(&s, &c);
    int64_t timeout_ns = 10 * INT64_C(1000000000);
    assert_int_equal(c.beat_ns, timeout_ns - 100000000); /* so that it is told within the timeout */
    assert_int_equal(c.stall_ns[COORD_WORK_STEP], 12 * timeout_ns);
    for (int work = COORD_WORK_LOAD; work < COORD_WORK_COUNT; work++)
        assert_int_equal(c.stall_ns[work], 60 * timeout_ns);
    assert_int_equal(c.suspect_ns * 2, timeout_ns);
    assert_int_equal(c.need_ns, 60 * INT64_C(1000000000));
    s.failure.stall_s = 1000; /* above 60 timeouts: the phases follow, none has less than a step */
    s.failure.eval_s = 2000;
    struct pawl_error e = {0};
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    spec_coord_config(&s, &c);
    assert_int_equal(c.stall_ns[COORD_WORK_SAVE], c.stall_ns[COORD_WORK_STEP]);
    assert_int_equal(c.stall_ns[COORD_WORK_EVAL], 2 * c.stall_ns[COORD_WORK_STEP]);
}

static void the_coordinator_gets_what_the_spec_says(void **state) {
    (void)state;
    static const char *const sets[] = {
        "parallel.pipelines=3", "parallel.stages=4", "parallel.barrier=true", "run.steps=77",
        "save.every=5",         "save.in_flight=4",  "save.retries=9",        "optimizer.clip_norm=2"};
    struct spec s = valid_spec();
    struct coord_config c;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        assert_int_equal(spec_set(&s, sets[i], NULL), PAWL_OK);
    spec_coord_config(&s, &c);
    assert_int_equal(c.ranks, 24);
    assert_int_equal(c.chunks, 4);
    assert_int_equal(c.final_version, 77);
    assert_int_equal(c.save_every, 5);
    assert_int_equal(c.saves_max, 4);
    assert_int_equal(c.save_retries, 9);
    assert_int_equal(c.save_pause_ns, 100000000);
    assert_true(c.clip_norm == 2 && c.barrier);
    assert_true(c.start_ns > 0 && c.join_ns > 0 && c.save_ns > 0 && c.idle_fences_max > 0);
}

static void there_is_room_for_twice_the_pipelines_unless_said(void **state) {
    (void)state;
    struct spec s = valid_spec();
    s.parallel.pipelines = 3;
    assert_int_equal(spec_pipelines_max(&s), 6);
    s.parallel.pipelines = 3000;
    assert_int_equal(spec_pipelines_max(&s), IR_PIPELINES_MAX);
    s.parallel.stages = 32;
    assert_int_equal(spec_pipelines_max(&s), IR_WORKERS_MAX / 32);
    s.parallel.pipelines_max = 3001;
    assert_int_equal(spec_pipelines_max(&s), 3001);
    REFUSES("parallel.pipelines_max is 2 but parallel.pipelines is 3: use at least 3", "parallel.pipelines=3",
            "parallel.pipelines_max=2");
    REFUSES("makes 69632 workers: use at most 3855 pipelines", "parallel.pipelines_max=4096",
            "parallel.stages=17", "model.layers=32");
}

/* --- the emulated engine --- */

static void write_profile(const char *path, int stages) {
    char text[256];
    int n = snprintf(text, sizeof text,
                     "pawl_profile: 1\nunit: ms\nunit_s: 0.001\nstages:\n"
                     "  - {forward: 1, input_grad: 1, weight_grad: 1, repeat: %d}\n",
                     stages);
    write_file(path, text, (size_t)n);
}

static struct spec emulated_spec(int stages) {
    char text[512], path[64];
    struct spec s;
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/profile.yaml", folder);
    write_profile(path, stages);
    snprintf(text, sizeof text,
             "run: {dir: %s/run, engine: emulated}\nemulated: {profile: %s}\nparallel: {stages: 4}\n", folder,
             path);
    if (spec_parse(text, strlen(text), "t.yaml", &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    return s;
}

static void an_emulated_run_needs_a_profile_and_no_model(void **state) {
    (void)state;
    struct spec s = emulated_spec(4);
    struct pawl_error e = {0};
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(s.emulated.parameters, 1024);
    assert_string_equal(spec_plan_profile(&s), s.emulated.profile);
    strcpy(s.parallel.profile, "other");
    assert_string_equal(spec_plan_profile(&s), "other");
    strcpy(s.save.export_dir, folder);
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "only the engine gpt has weights to export");
    s.save.export_dir[0] = 0;
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "parallel.profile: ");
    struct spec gpt = valid_spec();
    assert_string_equal(spec_plan_profile(&gpt), "");
}

static void a_profile_of_other_stages_or_none_is_refused(void **state) {
    (void)state;
    struct pawl_error e = {0};
    struct spec s = emulated_spec(5);
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "which has 5 stages, but parallel.stages is 4");
    strcpy(s.emulated.profile, "/proc/nonexistent/p.yaml");
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "emulated.profile: opening profile /proc/nonexistent/p.yaml");
}

static void an_emulated_run_resumes_as_the_same_one_only(void **state) {
    (void)state;
    struct spec s = emulated_spec(4), other;
    struct bytes identity = {0};
    struct pawl_error e = {0};
    spec_identity(&s, &identity);
    assert_false(identity.failed);
    bytes_put_u8(&identity, 0); /* for the search */
    assert_null(strstr((char *)identity.data, "model:"));
    identity.size--;
    other = s;
    other.emulated.unit_s = 5;
    strcpy(other.emulated.profile, "elsewhere");
    if (spec_identity_check(&other, (char *)identity.data, identity.size, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    other.emulated.parameters = 7;
    assert_int_equal(spec_identity_check(&other, (char *)identity.data, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e, "emulated.parameters is 7 but this run began with 1024");
    other = s;
    other.parallel.stages = 2;
    assert_int_equal(spec_identity_check(&other, (char *)identity.data, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e, "parallel.stages of an emulated run is 2 but this run began with 4");
    other = valid_spec();
    assert_int_equal(spec_identity_check(&other, (char *)identity.data, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e, "run.engine is gpt but this run began with emulated");
    bytes_close(&identity);
}

/* --- printed and read back --- */

static void random_text(struct rng_stream *r, char *out) {
    static const char *const parts[] = {"a",
                                        "/",
                                        " ",
                                        "\"",
                                        "\\",
                                        "'",
                                        "#",
                                        ": ",
                                        "- ",
                                        "{",
                                        "ä",
                                        "€",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x80\xa8",
                                        "\xef\xbb\xbf",
                                        "\xef\xbf\xbf",
                                        "%",
                                        "~",
                                        "null"};
    out[0] = 0;
    for (uint64_t n = rng_below(r, 20); n > 0; n--)
        strcat(out, parts[rng_below(r, sizeof parts / sizeof parts[0])]);
    strcat(out, "x"); /* never empty, never null */
}

static double random_real(struct rng_stream *r, double low, double high) {
    double u = (double)(rng_next(r) >> 11) * 0x1p-53;
    return low + u * (high - low);
}

static struct spec random_spec(struct rng_stream *r) {
    struct spec s;
    memset(&s, 0, sizeof s);
    random_text(r, s.run.dir);
    random_text(r, s.model.weights);
    random_text(r, s.data.path);
    random_text(r, s.save.export_dir);
    s.run.steps = 1 + rng_below(r, UINT64_C(1) << 53);
    s.run.seed = rng_next(r);
    s.model.layers = 1 + (uint32_t)rng_below(r, 100000);
    s.model.heads = 1 + (uint32_t)rng_below(r, 65536);
    s.model.width = 1 + (uint32_t)rng_below(r, 1048576);
    s.model.context = 1 + (uint32_t)rng_below(r, 1048576);
    s.model.vocabulary = 2 + (uint32_t)rng_below(r, INT32_MAX - 1);
    s.model.tied = rng_below(r, 2) == 1;
    s.model.dropout = random_real(r, 0, 0.99);
    s.data.format = (enum data_format)rng_below(r, DATA_FORMAT_COUNT);
    s.parallel.pipelines = 1 + (uint32_t)rng_below(r, IR_PIPELINES_MAX);
    s.parallel.stages = 1 + (uint32_t)rng_below(r, IR_STAGES_MAX);
    s.parallel.microbatches = 1 + (uint32_t)rng_below(r, IR_MICROBATCHES_MAX);
    s.parallel.batch = 1 + (uint32_t)rng_below(r, 65536);
    static const enum pawl_policy schedules[] = {
        PAWL_POLICY_GPIPE,    PAWL_POLICY_1F1B,      PAWL_POLICY_ZB_H1,   PAWL_POLICY_ZB_H2,
        PAWL_POLICY_ADAPTIVE, PAWL_POLICY_DECOUPLED, PAWL_POLICY_RECYCLE, PAWL_POLICY_PAWL};
    s.run.engine = (enum spec_engine)rng_below(r, SPEC_ENGINE_COUNT);
    random_text(r, s.emulated.profile);
    s.emulated.unit_s = random_real(r, 0, 1e6);
    s.emulated.parameters = 1 + (uint32_t)rng_below(r, 1u << 30);
    random_text(r, s.torch.module);
    random_text(r, s.torch.python);
    random_text(r, s.torch.options);
    s.torch.threads = 1 + (uint32_t)rng_below(r, 1024);
    s.parallel.schedule = schedules[rng_below(r, 8)];
    s.parallel.barrier = rng_below(r, 2) == 1;
    s.parallel.memory = (uint32_t)rng_below(r, 1000);
    random_text(r, s.parallel.profile);
    s.parallel.replan = rng_below(r, 2) == 1;
    s.parallel.pipelines_max = (uint32_t)rng_below(r, IR_PIPELINES_MAX + 1);
    s.optimizer.lr = random_real(r, 1e-12, 1e-3);
    s.optimizer.lr_min = random_real(r, 0, 1e3);
    s.optimizer.beta1 = random_real(r, 0, 0.999999);
    s.optimizer.beta2 = random_real(r, 0.9, 0.999999);
    s.optimizer.eps = random_real(r, 1e-30, 1e-7);
    s.optimizer.weight_decay = random_real(r, 0, 1);
    s.optimizer.clip_norm = random_real(r, 0, 1e30);
    s.optimizer.warmup_steps = rng_below(r, UINT64_C(1) << 53);
    s.optimizer.decay_steps = rng_below(r, 1000);
    s.optimizer.sums = (enum gradsum_kind)rng_below(r, GRADSUM_KIND_COUNT);
    s.save.every = rng_below(r, 1000);
    s.save.in_flight = 1 + (uint32_t)rng_below(r, CKPT_IN_FLIGHT_MAX);
    s.save.keep = 1 + (uint32_t)rng_below(r, CKPT_KEEP_MAX);
    s.save.retries = (uint32_t)rng_below(r, 1001);
    snprintf(s.net.transport, sizeof s.net.transport, "tcp,%llu", (unsigned long long)rng_next(r));
    s.failure.timeout_s = random_real(r, 0.3, 86400);
    double *const limits[] = {&s.failure.stall_s,   &s.failure.load_s, &s.failure.save_s,
                              &s.failure.compile_s, &s.failure.eval_s, &s.failure.wait_s};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) *limits[i] = random_real(r, 0, 1e7);
    s.failure.grace_s = random_real(r, 0, 86400);
    s.failure.respawn = (uint32_t)rng_below(r, 1000001);
    s.failure.restarts = (uint32_t)rng_below(r, 1000001);
    if (rng_below(r, 4) == 0) { /* what the other engine needs may be missing */
        memset(&s.model, 0, sizeof s.model);
        memset(&s.data, 0, sizeof s.data);
        s.run.engine = SPEC_ENGINE_EMULATED;
    } else if (rng_below(r, 4) == 0) {
        memset(s.emulated.profile, 0, sizeof s.emulated.profile);
        s.run.engine = SPEC_ENGINE_GPT;
    }
    return s;
}

/* --- an engine of the user's --- */

static struct spec torch_spec(const char *more) {
    char text[512];
    struct spec s;
    struct pawl_error e = {0};
    snprintf(text, sizeof text, "run: {dir: %s/run, engine: torch}\ntorch: {module: a.b%s}\n", folder, more);
    if (spec_parse(text, strlen(text), "t.yaml", &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    return s;
}

static void a_run_of_the_user_s_stages_needs_its_module_alone(void **state) {
    (void)state;
    struct pawl_error e = {0};
    struct spec s = torch_spec(", options: '{\"width\": [1, 2]}'");
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_string_equal(s.torch.options, "{\"width\": [1, 2]}");
    assert_int_equal(s.torch.threads, 1);
    assert_int_equal(spec_tokens(&s), 1);
    s = torch_spec(", options: '{width: 3}'");
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "torch.options is {width: 3}: write JSON");
    s = torch_spec(", options: '{} {}'");
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    s = torch_spec("");
    snprintf(s.torch.module, sizeof s.torch.module, "%s/none.py", folder);
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "none.py\": name a Python file that can be read");
    write_file(s.torch.module, "", 0);
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    strcpy(s.save.export_dir, folder);
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
}

static void the_code_may_move_but_not_its_options_or_threads(void **state) {
    (void)state;
    struct spec s = torch_spec("");
    struct bytes identity = {0};
    struct pawl_error e = {0};
    spec_identity(&s, &identity);
    assert_false(identity.failed);
    strcpy(s.torch.module, "elsewhere");
    strcpy(s.torch.python, "/opt/python");
    s.parallel.stages = 3;
    const char *text = (const char *)identity.data;
    assert_int_equal(spec_identity_check(&s, text, identity.size, &e), PAWL_OK);
    s.torch.threads = 2;
    assert_int_equal(spec_identity_check(&s, text, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e, "torch.threads is 2 but this run began with 1");
    s = torch_spec(", options: '3'");
    assert_int_equal(spec_identity_check(&s, text, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e, "torch.options is");
    bytes_close(&identity);
}

static void take_refuses(const char *set, struct pawl_engine_optimizer o, const char *wanted) {
    struct spec s = torch_spec("");
    struct pawl_error e = {0};
    if (spec_set(&s, set, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(spec_take_optimizer(&s, &o, &e), PAWL_SPEC);
    assert_one_line_with(&e, wanted);
}

static void an_engine_s_optimizer_goes_before_the_defaults(void **state) {
    (void)state;
    const struct pawl_engine_optimizer o = {.lr = 0.002, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-7};
    struct spec s = torch_spec("");
    struct pawl_error e = {0};
    assert_int_equal(spec_set(&s, "optimizer.beta1=0.8", &e), PAWL_OK); /* the same is no contradiction */
    if (spec_take_optimizer(&s, &o, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_true(s.optimizer.lr == 0.002 && s.optimizer.beta1 == 0.8 && s.optimizer.beta2 == 0.99);
    assert_true(s.optimizer.eps == 1e-7 && s.optimizer.weight_decay == 0);
    if (spec_take_optimizer(&s, &o, &e) != PAWL_OK) fail_msg("%s", e.text);
    take_refuses("optimizer.lr=0.001", o,
                 "optimizer.lr is 0.001, but 0.002 in the optimizer of torch.module");
    take_refuses("optimizer.weight_decay=0.2", o, "optimizer.weight_decay is 0.2, but 0 in");
    take_refuses("optimizer.lr_min=0.003", o, "optimizer.lr_min is 0.003 but optimizer.lr is 0.002");
    struct pawl_engine_optimizer bad = o;
    bad.beta2 = 1;
    take_refuses("run.seed=1", bad, "has beta2 1: wanted a number from 0 to");
    bad.beta2 = NAN;
    take_refuses("run.seed=1", bad, "has beta2 nan: wanted");
}

static void any_spec_reads_back_as_it_was_printed(void **state) {
    (void)state;
    struct rng_stream r = {.state = 20};
    for (int i = 0; i < 2000; i++) {
        struct spec s = random_spec(&r), back;
        struct bytes text = {0};
        struct pawl_error e = {0};
        memset(&back, 0, sizeof back);
        spec_print(&s, &text);
        assert_false(text.failed);
        pawl_code code = spec_parse((char *)text.data, text.size, "printed", &back, &e);
        if (code != PAWL_OK) fail_msg("%s in\n%.*s", e.text, (int)text.size, (char *)text.data);
        struct bytes again = {0};
        spec_print(&back, &again);
        assert_int_equal(text.size, again.size);
        assert_memory_equal(text.data, again.data, text.size);
        assert_true(back.optimizer.lr == s.optimizer.lr && back.failure.timeout_s == s.failure.timeout_s);
        assert_true(back.run.seed == s.run.seed && back.model.tied == s.model.tied);
        assert_string_equal(back.run.dir, s.run.dir);
        assert_string_equal(back.net.transport, s.net.transport);
        assert_int_equal(back.parallel.schedule, s.parallel.schedule);
        assert_int_equal(back.save.retries, s.save.retries);
        assert_int_equal(back.run.engine, s.run.engine);
        assert_true(back.parallel.barrier == s.parallel.barrier && back.parallel.replan == s.parallel.replan);
        assert_true(back.failure.stall_s == s.failure.stall_s && back.failure.eval_s == s.failure.eval_s);
        assert_string_equal(back.emulated.profile, s.emulated.profile);
        bytes_close(&text);
        bytes_close(&again);
    }
}

static void the_locale_of_the_program_changes_nothing(void **state) {
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    bool set = false;
    for (size_t i = 0; i < 4 && !set; i++) set = setlocale(LC_NUMERIC, commas[i]) != NULL;
    if (!set) skip(); /* no such locale is installed */
    struct spec s = valid_spec(), back;
    assert_int_equal(spec_set(&s, "optimizer.lr=0.25", NULL), PAWL_OK);
    struct bytes text = {0};
    spec_print(&s, &text);
    pawl_code code = spec_parse((char *)text.data, text.size, "printed", &back, NULL);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(code, PAWL_OK);
    assert_true(back.optimizer.lr == 0.25);
    bytes_close(&text);
}

/* --- identity --- */

static void identity_after(const char *const *sets, pawl_code wanted, const char *text) {
    struct spec s = valid_spec();
    struct bytes identity = {0};
    struct pawl_error e = {0};
    spec_identity(&s, &identity);
    assert_false(identity.failed);
    for (; *sets != NULL; sets++) assert_int_equal(spec_set(&s, *sets, &e), PAWL_OK);
    pawl_code code = spec_identity_check(&s, (char *)identity.data, identity.size, &e);
    if (code != wanted) fail_msg("%s %s, wanted %s", pawl_code_name(code), e.text, pawl_code_name(wanted));
    if (code != PAWL_OK) assert_one_line_with(&e, text);
    bytes_close(&identity);
}
#define RESUMES(...)       identity_after((const char *const[]){__VA_ARGS__, NULL}, PAWL_OK, "")
#define FOREIGN(text, ...) identity_after((const char *const[]){__VA_ARGS__, NULL}, PAWL_FOREIGN, text)

static void a_resume_may_change_what_decides_no_weights(void **state) {
    (void)state;
    char copy[64], set[96], bytes[4096];
    RESUMES("run.steps=2000", "run.dir=elsewhere");
    RESUMES("parallel.stages=4", "parallel.schedule=gpipe", "parallel.barrier=true", "parallel.replan=false");
    RESUMES("emulated.parameters=5", "emulated.unit_s=5"); /* of the other engine */
    RESUMES("save.every=9", "save.keep=9", "save.in_flight=9", "save.retries=9", "save.export_dir=x");
    RESUMES("net.transport=tcp", "failure.timeout_s=3");
    snprintf(copy, sizeof copy, "%s/moved.txt", folder);
    FILE *f = fopen(data_path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), sizeof bytes);
    fclose(f);
    write_file(copy, bytes, sizeof bytes);
    snprintf(set, sizeof set, "data.path=%s", copy);
    RESUMES(set);
    bytes[0] ^= 1;
    write_file(copy, bytes, sizeof bytes);
    FOREIGN("the content of data.path (digest) is ", set);
}

static void a_resume_with_another_shape_seed_or_optimizer_is_foreign(void **state) {
    (void)state;
    FOREIGN("model.layers is 9 but this run began with 8: put it back to resume, or give another run.dir",
            "model.layers=9");
    FOREIGN("model.heads is ", "model.heads=4");
    FOREIGN("model.width is ", "model.width=16");
    FOREIGN("model.context is ", "model.context=15");
    FOREIGN("model.vocabulary is ", "model.vocabulary=300");
    FOREIGN("model.tied is false but this run began with true", "model.tied=false");
    FOREIGN("model.dropout is 0.1", "model.dropout=0.1");
    FOREIGN("model.weights is ", "model.weights=x");
    FOREIGN("run.seed is 2 ", "run.seed=2");
    FOREIGN("parallel.batch is 2 ", "parallel.batch=2");
    FOREIGN("optimizer.lr is 0.001 but this run began with 0.0003", "optimizer.lr=1e-3");
    FOREIGN("optimizer.lr_min is ", "optimizer.lr_min=1e-5");
    FOREIGN("optimizer.beta1 is ", "optimizer.beta1=0.8");
    FOREIGN("optimizer.beta2 is ", "optimizer.beta2=0.8");
    FOREIGN("optimizer.eps is ", "optimizer.eps=1e-7");
    FOREIGN("optimizer.weight_decay is ", "optimizer.weight_decay=0");
    FOREIGN("optimizer.clip_norm is ", "optimizer.clip_norm=2");
    FOREIGN("optimizer.warmup_steps is ", "optimizer.warmup_steps=2");
    FOREIGN("optimizer.decay_steps is ", "optimizer.decay_steps=2");
    FOREIGN("data.format is uint16", "data.format=uint16");
}

static void the_layout_may_change_while_the_global_batch_stays(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct bytes identity = {0};
    struct pawl_error e = {0};
    s.parallel.pipelines = 2;
    s.parallel.microbatches = 6;
    spec_identity(&s, &identity);
    s.parallel.pipelines = 3;
    s.parallel.microbatches = 4;
    if (spec_identity_check(&s, (char *)identity.data, identity.size, &e) != PAWL_OK) fail_msg("%s", e.text);
    s.parallel.microbatches = 5;
    assert_int_equal(spec_identity_check(&s, (char *)identity.data, identity.size, &e), PAWL_FOREIGN);
    assert_one_line_with(&e,
                         "parallel.pipelines times parallel.microbatches is 15 but this run began with 12");
    bytes_close(&identity);
}

static void a_damaged_identity_is_no_identity(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct bytes identity = {0};
    struct pawl_error e = {0};
    spec_identity(&s, &identity);
    assert_false(identity.failed);
    size_t whole = identity.size;
    bytes_put_u8(&identity, 0); /* for the search */
    size_t cut = (size_t)(strstr((char *)identity.data, "layers") - (char *)identity.data);
    assert_int_equal(spec_identity_check(&s, (char *)identity.data, cut, &e), PAWL_FORMAT);
    assert_one_line_with(&e, "lacks model.layers");
    assert_int_equal(spec_identity_check(&s, "", 0, &e), PAWL_FORMAT);
    assert_one_line_with(&e, "identity of the run");
    assert_int_equal(e.code, PAWL_FORMAT);
    identity.data[whole - 1] = 0xff;
    assert_int_equal(spec_identity_check(&s, (char *)identity.data, whole, &e), PAWL_FORMAT);
    static const char newer[] = "run:\n  seed: 1\n  unheard_of: 5\n";
    assert_int_equal(spec_identity_check(&s, newer, sizeof newer - 1, &e), PAWL_FORMAT);
    assert_one_line_with(&e, "unheard_of");
    bytes_close(&identity);
}

static void a_field_that_an_older_identity_lacks_stands_for_its_default(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct bytes identity = {0};
    struct pawl_error e = {0};
    spec_identity(&s, &identity);
    bytes_put_u8(&identity, 0); /* for the search */
    char *line = strstr((char *)identity.data, "  weight_decay: 0.1\n"), *rest = strchr(line, '\n') + 1;
    memmove(line, rest, strlen(rest) + 1);
    size_t size = strlen((char *)identity.data);
    if (spec_identity_check(&s, (char *)identity.data, size, &e) != PAWL_OK) fail_msg("%s", e.text);
    s.optimizer.weight_decay = 0;
    assert_int_equal(spec_identity_check(&s, (char *)identity.data, size, &e), PAWL_FOREIGN);
    bytes_close(&identity);
}

static void an_identity_without_readable_data_fails(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct bytes identity = {0};
    struct pawl_error e = {0};
    strcpy(s.data.path, "/proc/nonexistent/text");
    spec_identity(&s, &identity);
    assert_true(identity.failed);
    bytes_close(&identity);
    assert_int_not_equal(spec_identity_check(&s, "run: {}", 7, &e), PAWL_OK);
    assert_one_line_with(&e, "/proc/nonexistent/text");
}

/* --- what it is for --- */

static void sizes_and_optimizer_reach_the_model(void **state) {
    (void)state;
    struct spec s = valid_spec();
    assert_int_equal(spec_set(&s, "model.dropout=0.25", NULL), PAWL_OK);
    assert_int_equal(spec_set(&s, "parallel.batch=3", NULL), PAWL_OK);
    assert_int_equal(spec_set(&s, "run.seed=99", NULL), PAWL_OK);
    assert_int_equal(spec_set(&s, "optimizer.warmup_steps=7", NULL), PAWL_OK);
    struct gpt_config g = spec_gpt(&s);
    assert_int_equal(g.layers, 8);
    assert_int_equal(g.heads, 2);
    assert_int_equal(g.width, 8);
    assert_int_equal(g.context, 16);
    assert_int_equal(g.vocabulary, 256);
    assert_int_equal(g.batch, 3);
    assert_true(g.tied && g.dropout == 0.25f && g.seed == 99);
    struct adamw_config a = spec_adamw(&s);
    assert_true(a.lr == 3e-4f && a.beta1 == 0.9f && a.beta2 == 0.95f && a.eps == 1e-8f &&
                a.weight_decay == 0.1f);
    assert_true(a.warmup_steps == 7 && a.decay_steps == 0 && a.lr_min == 0);
}

static void the_documentation_is_the_table(void **state) {
    (void)state;
    struct bytes help = {0}, file = {0};
    spec_help(&help);
    FILE *f = fopen(PAWL_SOURCE_DIR "/docs/spec.md", "rb");
    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;) bytes_put_u8(&file, (uint8_t)c);
    fclose(f);
    bytes_put_u8(&help, 0);
    bytes_put_u8(&file, 0);
    /* where they differ: pawl train --spec-help > docs/spec.md */
    assert_string_equal((const char *)file.data, (const char *)help.data);
    bytes_close(&help);
    bytes_close(&file);
}

static void the_examples_parse(void **state) {
    (void)state;
    struct spec s;
    struct pawl_error e = {0};
    char set[128];
    snprintf(set, sizeof set, "data.path=%s", data_path);
    const char *sets[] = {set};
    if (spec_load(PAWL_SOURCE_DIR "/examples/text.yaml", sets, 1, &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(spec_ranks(&s), 8);
    assert_int_equal(spec_contributions(&s), 16);
    const char *profile[] = {"emulated.profile=" PAWL_SOURCE_DIR "/examples/emulated-profile.yaml"};
    if (spec_load(PAWL_SOURCE_DIR "/examples/emulated.yaml", profile, 1, &s, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    assert_int_equal(spec_ranks(&s), 32);
    if (spec_load(PAWL_SOURCE_DIR "/examples/engine.yaml", NULL, 0, &s, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    assert_int_equal(spec_ranks(&s), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_that_break_the_order_are_refused_by_its_name),
        cmocka_unit_test(limits_not_given_follow_from_the_one_timeout),
        cmocka_unit_test(the_coordinator_gets_what_the_spec_says),
        cmocka_unit_test(there_is_room_for_twice_the_pipelines_unless_said),
        cmocka_unit_test(an_emulated_run_needs_a_profile_and_no_model),
        cmocka_unit_test(a_profile_of_other_stages_or_none_is_refused),
        cmocka_unit_test(an_emulated_run_resumes_as_the_same_one_only),
        cmocka_unit_test(a_run_of_the_user_s_stages_needs_its_module_alone),
        cmocka_unit_test(the_code_may_move_but_not_its_options_or_threads),
        cmocka_unit_test(an_engine_s_optimizer_goes_before_the_defaults),
        cmocka_unit_test(any_spec_reads_back_as_it_was_printed),
        cmocka_unit_test(the_locale_of_the_program_changes_nothing),
        cmocka_unit_test(a_resume_may_change_what_decides_no_weights),
        cmocka_unit_test(a_resume_with_another_shape_seed_or_optimizer_is_foreign),
        cmocka_unit_test(the_layout_may_change_while_the_global_batch_stays),
        cmocka_unit_test(a_damaged_identity_is_no_identity),
        cmocka_unit_test(a_field_that_an_older_identity_lacks_stands_for_its_default),
        cmocka_unit_test(an_identity_without_readable_data_fails),
        cmocka_unit_test(sizes_and_optimizer_reach_the_model),
        cmocka_unit_test(the_documentation_is_the_table),
        cmocka_unit_test(the_examples_parse),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
