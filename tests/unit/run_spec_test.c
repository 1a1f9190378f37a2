/* What run/spec.h promises of a text: every slip is one line that names the field. */
#include "kit/spec_kit.h"

static void refused_bytes(const char *text, size_t size, const char *wanted) {
    struct spec spec;
    struct pawl_error e = {0};
    pawl_code code = spec_parse(text, size, "t.yaml", &spec, &e);
    if (code != PAWL_SPEC) fail_msg("%s for \"%s\", %s", pawl_code_name(code), text, e.text);
    assert_int_equal(e.code, PAWL_SPEC);
    assert_one_line_with(&e, wanted);
    assert_one_line_with(&e, "t.yaml");
}

static void refused(const char *text, const char *wanted) { refused_bytes(text, strlen(text), wanted); }

/* A spec that is right but for `more`. */
static void refused_more(const char *more, const char *wanted) {
    char *text = spec_text(more);
    refused(text, wanted);
    free(text);
}

static void refused_value(const char *section, const char *key, const char *value) {
    char more[4096], name[128];
    snprintf(more, sizeof more, "%s:\n  %s: %s\n", section, key, value);
    snprintf(name, sizeof name, "%s.%s is ", section, key);
    refused_more(more, name);
}

static void refused_set(const char *assignment, const char *wanted) {
    struct spec s = valid_spec(), before = s;
    struct pawl_error e = {0};
    assert_int_equal(spec_set(&s, assignment, &e), PAWL_SPEC);
    assert_one_line_with(&e, wanted);
    assert_memory_equal(&s, &before, sizeof s);
}

/* --- the text --- */

static void a_spec_reads_with_defaults_for_what_it_leaves_out(void **state) {
    (void)state;
    struct spec s = valid_spec();
    assert_int_equal(s.model.layers, 8);
    assert_int_equal(s.parallel.pipelines, 1);
    assert_int_equal(s.run.engine, SPEC_ENGINE_GPT);
    assert_int_equal(s.parallel.schedule, PAWL_POLICY_PAWL);
    assert_true(s.parallel.replan && !s.parallel.barrier);
    assert_int_equal(s.failure.restarts, 3);
    assert_int_equal(s.data.format, DATA_BYTES);
    assert_true(s.model.tied);
    assert_true(s.optimizer.beta1 == 0.9);
    assert_true(s.optimizer.eps == 1e-8);
    assert_string_equal(s.save.export_dir, "");
    assert_string_equal(s.data.path, data_path);
}

static void every_way_to_write_a_value_reads(void **state) {
    (void)state;
    static const char more[] = "optimizer: {lr: 1e-3, beta1: .5, eps: 1E-6, clip_norm: +2., lr_min: -0.0}\n"
                               "parallel:\n  schedule: \"gpipe\"\n  stages: 2 # two\n"
                               "net:\nsave:\n  export_dir: ~\nfailure: {timeout_s: 2}\n";
    char *text = spec_text(more);
    struct spec s;
    struct pawl_error e = {0};
    if (spec_parse(text, strlen(text), "t", &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    free(text);
    assert_true(s.optimizer.lr == 1e-3);
    assert_true(s.optimizer.beta1 == 0.5);
    assert_true(s.optimizer.clip_norm == 2.0);
    assert_true(s.optimizer.lr_min == 0.0 && !__builtin_signbit(s.optimizer.lr_min));
    assert_int_equal(s.parallel.schedule, PAWL_POLICY_GPIPE);
    assert_int_equal(s.parallel.stages, 2);
    assert_string_equal(s.save.export_dir, "");
    assert_true(s.failure.timeout_s == 2.0);
}

static void a_byte_order_mark_and_a_document_mark_are_allowed(void **state) {
    (void)state;
    char *text = spec_text(""), *marked = NULL;
    assert_true(asprintf(&marked, "\xef\xbb\xbf---\n%s...\n", text) > 0);
    struct spec s;
    struct pawl_error e = {0};
    if (spec_parse(marked, strlen(marked), "t", &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    free(text);
    free(marked);
}

static void unknown_names_are_refused_with_the_nearest(void **state) {
    (void)state;
    refused_more("optimiser:\n  lr: 1\n", "did you mean optimizer?");
    refused_more("banana:\n  lr: 1\n", "there are run, model, data, emulated, torch, parallel");
    refused_more("parallel:\n  stagse: 2\n", "did you mean parallel.stages?");
    refused_more("optimizer:\n  warmup_step: 2\n", "did you mean optimizer.warmup_steps?");
    refused_more("parallel:\n  lr: 2\n", "did you mean optimizer.lr?");
    refused_more("parallel:\n  banana: 2\n", "section parallel has no key \"banana\"");
    refused_more("parallel:\n  \"a\\nb\\0\": 2\n", "section parallel has no key \"a?b?\"");
    refused_more("save:\n  kepe: 2\n", "did you mean save.keep?");
    refused("data:\n  digest: 2\n", "section data has no key \"digest\"");
    refused_more("parallel:\n  global_microbatches: 2\n", "has no key \"global_microbatches\"");
    refused_more("banana:\n", "there is no section \"banana\"");
    refused_more("parallel:\n  \"\": 2\n", "section parallel has no key \"\"");
}

static void the_place_of_an_error_is_line_and_column(void **state) {
    (void)state;
    refused("run:\n  dir: x\n  sead: 3\n",
            "t.yaml:3:3: section run has no key \"sead\": did you mean run.seed?");
    refused("run:\n  dir: x\n  seed: x\n", "t.yaml:3:3: run.seed is \"x\"");
    refused("run:\n  dir: [x]\n", "t.yaml:2:8: run.dir is a list");
    refused("run:\n  dir: \"x\n", "t.yaml:3:1: not YAML:");
    refused("run:\n dir: x\n  seed: 3\n", "t.yaml:3:7: not YAML:");
}

static void names_given_twice_are_refused(void **state) {
    (void)state;
    refused_more("parallel:\n  stages: 2\n  batch: 1\n  stages: 2\n", "parallel.stages is given twice");
    refused_more("data:\n  format: bytes\n", "section data is given twice");
}

static void whatever_is_no_section_of_scalars_is_refused(void **state) {
    (void)state;
    refused("", "the spec is empty");
    refused("# nothing\n", "the spec is empty");
    refused("---\n", "the spec is empty");
    refused("run\n", "the top level must be sections");
    refused("- run\n", "the top level must be sections");
    refused("run: 5\n", "section run needs its keys");
    refused("run: [5]\n", "section run needs its keys");
    refused("run: {dir: {x: y}}\n", "run.dir is a list or a mapping");
    refused("run: {[a]: 5}\n", "a key must be a plain name");
    refused("? {a: b}\n: 5\n", "a key must be a plain name");
    refused("run: &a {dir: x}\n", "an anchor (&)");
    refused("run: {dir: &a x}\n", "an anchor (&)");
    refused("run: {dir: &a x, seed: *a}\n", "an anchor (&)");
    refused("run: {dir: *a}\n", "an alias (*)");
    refused("run: *a\n", "an alias (*)");
    refused("run: !!map {dir: x}\n", "a tag (!)");
    refused("run: {seed: !!int 5}\n", "a tag (!)");
    refused_more("---\nrun: {}\n", "a second document");
    refused_more("...\n---\n", "a second document");
}

static void what_is_not_utf8_or_not_text_is_refused(void **state) {
    (void)state;
    refused("run:\n  dir: caf\xe9\n", "t.yaml:2:11: byte 0xe9 is not UTF-8");
    refused("run:\n  dir: \xc0\xaf\n", "is not UTF-8");         /* overlong */
    refused("run:\n  dir: \xed\xa0\x80\n", "is not UTF-8");     /* surrogate */
    refused("run:\n  dir: \xf4\x90\x80\x80\n", "is not UTF-8"); /* above U+10FFFF */
    refused("run:\n  dir: \xe2\x82", "is not UTF-8");           /* cut short */
    refused_bytes("run:\n  d\0r: x\n", 14, "not YAML");
    refused_bytes("\xff\xfer\0u\0n\0", 8, "byte 0xff is not UTF-8");
    refused("run:\n  dir: \"a\\0b\"\n", "run.dir has a control character (U+0000)");
    refused("run:\n  dir: \"a\\nb\"\n", "run.dir has a control character (U+000A)");
    refused("run:\n  dir: \"a\\x85b\"\n", "run.dir has a control character (U+0085)");
}

static void numbers_are_read_whole_and_in_range_or_not_at_all(void **state) {
    (void)state;
    static const char *const bad_whole[] = {
        "-1",  "+1",       "1.0",       "1e3", "1_000", "0x10", "010", "abc",
        "5x",  "\"5\"",    "'5'",       "~",   "true",  "",     "1 2", "99999999999999999999",
        "nan", "\"5\\0\"", "4294967297"};
    for (size_t i = 0; i < sizeof bad_whole / sizeof bad_whole[0]; i++)
        refused_value("parallel", "stages", bad_whole[i]);
    static const char *const bad_real[] = {
        "nan", ".nan", "inf", ".inf", "-.inf", "1e400", "1e-400", "0x1p3", "1e",    "e5",  ".",
        "1e+", "1_0",  "1,5", "--1",  "1e-3x", "\"1\"", "",       "1.2.3", "-1e-3", "1e9", "0"};
    for (size_t i = 0; i < sizeof bad_real / sizeof bad_real[0]; i++)
        refused_value("optimizer", "lr", bad_real[i]);
    refused_value("optimizer", "lr_min", "1e-400"); /* not silently 0 */
    refused_set("run.seed=18446744073709551616", "run.seed is ");
    struct spec s = valid_spec();
    assert_int_equal(spec_set(&s, "run.seed=18446744073709551615", NULL), PAWL_OK);
    assert_true(s.run.seed == UINT64_MAX);
    refused_value("parallel", "pipelines", "0");
    refused_value("parallel", "pipelines", "4097");
    refused_value("parallel", "microbatches", "0");
    refused_value("parallel", "microbatches", "16385");
    refused_value("parallel", "stages", "1025");
    refused_value("optimizer", "beta1", "1");
    refused_value("optimizer", "beta2", "-0.1");
    refused_value("save", "keep", "0");
    refused_value("save", "in_flight", "0");
    refused_value("failure", "timeout_s", "0");
    refused_value("failure", "timeout_s", "0.29"); /* beats come every 0.1 s */
    refused_value("failure", "timeout_s", "-1");
}

static void booleans_and_choices_have_their_words_only(void **state) {
    (void)state;
    static const char *const bad[] = {"yes", "True", "1", "on", "\"true\"", "\"true\\0\"", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "model:\n  tied: %s\n", bad[i]);
        refused(text, "model.tied is ");
    }
    refused_value("parallel", "schedule", "1F1B");
    refused_more("parallel:\n  schedule: zb\n", "write gpipe or 1f1b or zb-h1 or zb-h2 or adaptive");
    refused_more("parallel:\n  schedule: interleaved\n", "parallel.schedule is \"interleaved\"");
    refused_more("parallel:\n  schedule: zb-v\n", "parallel.schedule is \"zb-v\"");
    refused("run:\n  engine: jax\n", "run.engine is \"jax\": write gpt or emulated or torch");
    refused("data:\n  format: int8\n", "data.format is \"int8\": write bytes or uint16 or uint32");
    refused("data:\n  format: \"bytes\\0\"\n", "data.format is");
}

static void a_text_too_long_is_refused(void **state) {
    (void)state;
    char text[2000];
    snprintf(text, sizeof text, "run:\n  dir: %01023d\n", 7); /* fits */
    refused(text, "model.layers is missing");
    snprintf(text, sizeof text, "run:\n  dir: %01024d\n", 7);
    refused(text, "run.dir has 1024 bytes: write at most 1023");
    snprintf(text, sizeof text, "run:\n  seed: %0999d\n", 7); /* a long value is cut in the message */
    refused(text, "...\": write a whole number");
    snprintf(text, sizeof text, "%0999d: {}\n", 7);
    refused(text, "there is no section \"000");
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    refused("net: {transport: tcp}\n", "run.dir is missing");
    refused("run: {dir: \"\"}\n", "run.dir is missing");
    refused("run: {dir: x}\n", "model.layers is missing");
    char text[512];
    static const char *const keys[] = {"layers", "heads", "width", "context", "vocabulary"};
    for (size_t i = 0; i < 5; i++) {
        char wanted[64];
        int n = snprintf(text, sizeof text, "run: {dir: x}\ndata: {path: y}\nmodel:\n");
        for (size_t k = 0; k < 5; k++)
            if (k != i) n += snprintf(text + n, sizeof text - (size_t)n, "  %s: 256\n", keys[k]);
        snprintf(wanted, sizeof wanted, "model.%s is missing", keys[i]);
        refused(text, wanted);
    }
    int n = snprintf(text, sizeof text, "run: {dir: x}\n%s", model_text);
    assert_true(n > 0);
    refused(text, "data.path is missing");
    refused("run: {dir: x, engine: emulated}\n", "emulated.profile is missing");
    refused("run: {dir: x, engine: torch}\n", "torch.module is missing");
}

/* --- overrides and files --- */

static void an_override_sets_one_field_or_nothing(void **state) {
    (void)state;
    struct spec s = valid_spec();
    assert_int_equal(spec_set(&s, "run.steps=7", NULL), PAWL_OK);
    assert_int_equal(s.run.steps, 7);
    assert_int_equal(spec_set(&s, "run.dir=a=b.c", NULL), PAWL_OK);
    assert_string_equal(s.run.dir, "a=b.c");
    assert_int_equal(spec_set(&s, "save.export_dir=", NULL), PAWL_OK);
    refused_set("run.steps", "write section.key=value");
    refused_set("steps=5", "write section.key=value");
    refused_set("x=run.steps", "write section.key=value");
    refused_set("", "write section.key=value");
    refused_set("run.stepz=5", "did you mean run.steps?");
    refused_set("rum.steps=5", "did you mean run?");
    refused_set("run.steps= 5", "run.steps is \" 5\"");
    refused_set("run.steps=", "run.steps is \"\"");
    refused_set("data.digest=5", "has no key \"digest\"");
    refused_set("run.dir=\xff", "run.dir is not UTF-8 at byte 0");
    refused_set("run.dir=a\nb", "run.dir has a control character");
    refused_set("parallel.stages=9999", "parallel.stages is \"9999\": write a whole number from 1 to 1024");
}

static void a_file_loads_with_overrides_for_what_it_lacks(void **state) {
    (void)state;
    char path[64], set[128];
    struct spec s;
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/a.yaml", folder);
    snprintf(set, sizeof set, "run.dir=%s/run", folder);
    char text[512];
    snprintf(text, sizeof text, "data:\n  path: %s\n%s", data_path, model_text);
    write_file(path, text, strlen(text));
    assert_int_equal(spec_load(path, NULL, 0, &s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "run.dir is missing");
    assert_one_line_with(&e, path);
    const char *sets[] = {set, "parallel.stages=4", "parallel.stages=2"};
    if (spec_load(path, sets, 3, &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(s.parallel.stages, 2);
    sets[2] = "parallel.stages=9";
    assert_int_equal(spec_load(path, sets, 3, &s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "parallel.stages is 9 but model.layers is 8: use at most 8 stages");
}

static void a_file_that_cannot_be_read_says_so(void **state) {
    (void)state;
    char path[64];
    struct spec s;
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/none.yaml", folder);
    assert_int_equal(spec_load(path, NULL, 0, &s, &e), PAWL_NOT_FOUND);
    assert_one_line_with(&e, path);
    assert_int_equal(spec_load(folder, NULL, 0, &s, &e), PAWL_IO);
    assert_one_line_with(&e, folder);
    assert_int_equal(spec_load("/dev/zero", NULL, 0, &s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "/dev/zero has more than");
    assert_int_equal(spec_load("/dev/null", NULL, 0, &s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "the spec is empty");
}

/* --- rules that span fields --- */

static void a_valid_spec_passes_the_check(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct pawl_error e = {0};
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(access(s.run.dir, F_OK), -1); /* nothing was made */
}

static void fields_that_do_not_fit_together_are_refused(void **state) {
    (void)state;
    REFUSES("parallel.stages is 9 but model.layers is 8: use at most 8 stages", "parallel.stages=9");
    REFUSES("which makes 69632 workers", "parallel.pipelines=4096", "parallel.stages=17", "model.layers=32");
    REFUSES("model.width is 8 but model.heads is 3: use a width that is a multiple of the heads, as 9",
            "model.heads=3");
    REFUSES("model.vocabulary is 255 but data.format is bytes", "model.vocabulary=255");
    REFUSES("optimizer.lr_min is 1 but optimizer.lr is 0.5", "optimizer.lr=0.5", "optimizer.lr_min=1");
    REFUSES("optimizer.warmup_steps is 21 but optimizer.decay_steps is 20", "optimizer.warmup_steps=21",
            "optimizer.decay_steps=20");
    REFUSES("run.steps is 9007199254740992", "run.steps=9007199254740992", "parallel.microbatches=16384",
            "parallel.pipelines=4096", "parallel.batch=65536");
    REFUSES("net.transport is \"tcp sm\"", "net.transport=tcp sm");
    REFUSES("parallel.memory is 3, but parallel.schedule gpipe stores up to 4 micro-batches: use at least 4",
            "parallel.stages=3", "parallel.microbatches=4", "parallel.schedule=gpipe", "parallel.memory=3");
    REFUSES("net.transport: transport posix is shared memory", "net.transport=tcp,posix");
    REFUSES("run.dir is missing", "run.dir=");
    REFUSES("data.path is missing", "data.path=");
}

static void a_warm_up_without_decay_or_as_long_as_it_passes(void **state) {
    (void)state;
    struct spec s = valid_spec();
    struct pawl_error e = {0};
    s.optimizer.warmup_steps = 20;
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
    s.optimizer.decay_steps = 20;
    if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void a_value_set_by_a_program_is_checked_like_one_read(void **state) {
    (void)state;
    struct pawl_error e = {0};
    struct spec s = valid_spec();
    s.parallel.pipelines = 0;
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "parallel.pipelines is \"0\"");
    s = valid_spec();
    s.optimizer.lr = __builtin_nan("");
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "optimizer.lr is ");
    s = valid_spec();
    memset(s.run.dir, 'a', sizeof s.run.dir); /* no end */
    assert_int_equal(spec_check(&s, &e), PAWL_SPEC);
    assert_one_line_with(&e, "run.dir has 1024 bytes");
}

static void folders_and_files_that_cannot_serve_are_refused(void **state) {
    (void)state;
    char set[128], link[64];
    REFUSES("data.path: ", "data.path=/proc/nonexistent/text");
    REFUSES("data.path: ", "data.path=/");
    REFUSES("more than model.context (8192) tokens", "model.context=8192");
    REFUSES("model.weights is \"/proc/nonexistent\"", "model.weights=/proc/nonexistent");
    REFUSES("model.weights is \"/dev/null\"", "model.weights=/dev/null");
    REFUSES("run.dir is \"/dev/null/a/b\"", "run.dir=/dev/null/a/b");
    REFUSES("run.dir is \"/dev/null\": /dev/null is not a folder", "run.dir=/dev/null");
    REFUSES("save.export_dir is \"/dev/null\": /dev/null is not a folder", "save.export_dir=/dev/null");
    if (geteuid() != 0) /* who may write everywhere */
        REFUSES("run.dir is \"/proc/none\": choose a folder that you may write to: /proc",
                "run.dir=/proc/none");
    snprintf(link, sizeof link, "%s/dangling", folder);
    assert_int_equal(symlink("/proc/nonexistent/x", link), 0);
    snprintf(set, sizeof set, "run.dir=%s/a", link);
    REFUSES("is a link to nothing", set);
}

static void a_folder_in_folders_that_do_not_exist_yet_is_fine(void **state) {
    (void)state;
    char cwd[256];
    struct pawl_error e = {0};
    struct spec s = valid_spec();
    static const char *const dirs[] = {"a", "a/b/c", "./a//b/", "a/"};
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < 4; i++) {
        snprintf(s.run.dir, sizeof s.run.dir, "%s", dirs[i]);
        if (spec_check(&s, &e) != PAWL_OK) fail_msg("%s: %s", dirs[i], e.text);
    }
    assert_int_equal(chdir(cwd), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_reads_with_defaults_for_what_it_leaves_out),
        cmocka_unit_test(every_way_to_write_a_value_reads),
        cmocka_unit_test(a_byte_order_mark_and_a_document_mark_are_allowed),
        cmocka_unit_test(unknown_names_are_refused_with_the_nearest),
        cmocka_unit_test(the_place_of_an_error_is_line_and_column),
        cmocka_unit_test(names_given_twice_are_refused),
        cmocka_unit_test(whatever_is_no_section_of_scalars_is_refused),
        cmocka_unit_test(what_is_not_utf8_or_not_text_is_refused),
        cmocka_unit_test(numbers_are_read_whole_and_in_range_or_not_at_all),
        cmocka_unit_test(booleans_and_choices_have_their_words_only),
        cmocka_unit_test(a_text_too_long_is_refused),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(an_override_sets_one_field_or_nothing),
        cmocka_unit_test(a_file_loads_with_overrides_for_what_it_lacks),
        cmocka_unit_test(a_file_that_cannot_be_read_says_so),
        cmocka_unit_test(a_valid_spec_passes_the_check),
        cmocka_unit_test(fields_that_do_not_fit_together_are_refused),
        cmocka_unit_test(a_warm_up_without_decay_or_as_long_as_it_passes),
        cmocka_unit_test(a_value_set_by_a_program_is_checked_like_one_read),
        cmocka_unit_test(folders_and_files_that_cannot_serve_are_refused),
        cmocka_unit_test(a_folder_in_folders_that_do_not_exist_yet_is_fine),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
