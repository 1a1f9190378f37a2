/* What docs/formats/plan.md promises of the text form. */
#include "ir_random.h"

static pawl_code parse(const char *text, struct ir_plan **plan, struct pawl_error *e) {
    return ir_parse(text, strlen(text), plan, e);
}

static void a_plan_prints_as_documented(void **state) {
    (void)state;
    bool alive[6] = {true, true, true, false, true, true};
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    struct bytes text = {0};
    assert_int_equal(ir_build(IR_1F1B, 3, 2, 2, alive, &plan, &e), PAWL_OK);
    ir_print(plan, &text);
    assert_string_equal((const char *)text.data,
                        "pawl-plan 2 pipelines=3 stages=2 chunks=2 microbatches=2\n"
                        "0.0 [0]: F0:0.0>0.1 F0:0.1>0.1 B0:0.0<0.1 B0:0.1<0.1 R0 S0\n"
                        "0.1 [1]: F1:0.0<0.0 F1:1.0<1.0 F1:0.1<0.0 B1:0.0>0.0 B1:1.0>1.0 B1:0.1>0.0 R1 S1\n"
                        "1.0 [0]: F0:1.0>0.1 F0:1.1>2.1 B0:1.0<0.1 B0:1.1<2.1 R0 S0\n"
                        "1.1: dead\n"
                        "2.0 [0]: F0:2.0>2.1 F0:2.1>2.1 B0:2.0<2.1 B0:2.1<2.1 R0 S0\n"
                        "2.1 [1]: F1:2.0<2.0 F1:2.1<2.0 F1:1.1<1.0 B1:2.0>2.0 B1:2.1>2.0 B1:1.1>1.0 R1 S1\n");
    ir_plan_free(plan);
    bytes_close(&text);
}

static void a_printed_plan_parses_to_the_same_plan(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 5};
    static bool alive[64];
    for (int i = 0; i < 100; i++) {
        uint32_t pipelines = 1 + (uint32_t)rng_below(&rng, 8), stages = 1 + (uint32_t)rng_below(&rng, 8);
        struct ir_plan *fused = NULL, *back = NULL;
        struct pawl_error e = {0};
        struct bytes text = {0}, raw = {0}, raw_back = {0};
        alive_at_random(&rng, pipelines, stages, alive);
        assert_int_equal(ir_build((enum ir_schedule)(i % 2), pipelines, stages,
                                  1 + (uint32_t)rng_below(&rng, 12), alive, &fused, &e),
                         PAWL_OK);
        struct ir_plan *plan = plan_split(fused, (uint32_t)i % 4);
        ir_print(plan, &text);
        if (ir_parse((const char *)text.data, text.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        ir_encode(plan, &raw);
        ir_encode(back, &raw_back);
        assert_int_equal(raw.size, raw_back.size);
        assert_memory_equal(raw.data, raw_back.data, raw.size);
        ir_plan_free(fused);
        ir_plan_free(plan);
        ir_plan_free(back);
        bytes_close(&text);
        bytes_close(&raw);
        bytes_close(&raw_back);
    }
}

static void plans_of_every_kind_parse_to_the_same_plan(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 29};
    for (int i = 0; i < 300; i++) {
        struct random_shape shape = random_any_shape(&rng);
        struct ir_plan *plan = random_plan(rng_next(&rng), &shape), *back = NULL;
        struct pawl_error e = {0};
        struct bytes text = {0};
        ir_print(plan, &text);
        if (ir_parse((const char *)text.data, text.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_same_plan(plan, back);
        ir_plan_free(plan);
        ir_plan_free(back);
        bytes_close(&text);
    }
}

static void version_1_is_taken_and_printed_as_version_2(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    struct bytes text = {0};
    if (parse("pawl-plan 1 pipelines=2 stages=2 microbatches=1\n"
              "0.0: F0.0>1 B0.0<1 R S\n0.1: dead\n1.0: F1.0>1 I1.0<1 W1.0 R S\n"
              "1.1: F1.0<1 F0.0<0 B0.0>0 B1.0>1 R S\n",
              &plan, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    ir_print(plan, &text);
    assert_string_equal((const char *)text.data,
                        "pawl-plan 2 pipelines=2 stages=2 chunks=2 microbatches=1\n"
                        "0.0 [0]: F0:0.0>1.1 B0:0.0<1.1 R0 S0\n"
                        "0.1: dead\n"
                        "1.0 [0]: F0:1.0>1.1 I0:1.0<1.1 W0:1.0 R0 S0\n"
                        "1.1 [1]: F1:1.0<1.0 F1:0.0<0.0 B1:0.0>0.0 B1:1.0>1.0 R1 S1\n");
    ir_plan_free(plan);
    bytes_close(&text);
}

static void blanks_comments_empty_lines_and_crlf_are_taken(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    struct bytes text = {0};
    if (parse("\n# by hand\r\n  pawl-plan\t2 pipelines=1  stages=3 chunks=2\tmicrobatches=1 # small\r\n"
              "\r\n   0.0 \t[0,01]:   F0:0.0>0.0\tL1:0.0 R1 S0  \r\n#F\n0.1: dead# gone\n0.2[]:",
              &plan, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    ir_print(plan, &text);
    assert_string_equal((const char *)text.data, "pawl-plan 2 pipelines=1 stages=3 chunks=2 microbatches=1\n"
                                                 "0.0 [0,1]: F0:0.0>0.0 L1:0.0 R1 S0\n"
                                                 "0.1: dead\n"
                                                 "0.2 []:\n");
    ir_plan_free(plan);
    bytes_close(&text);
}

#define HEADER "pawl-plan 1 pipelines=2 stages=1 microbatches=3\n"
#define CHUNKS "pawl-plan 2 pipelines=2 stages=1 chunks=4 microbatches=3\n"

#define LIMITED "pawl-plan 3 pipelines=3 stages=1 chunks=4 microbatches=3 total=5\n"

static void pipelines_that_are_not_full_are_printed_as_version_3(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    struct bytes text = {0};
    static const char shown[] = LIMITED "0.0 [0]: F0:0.2 F0:1.1 R0 S0\n1.0: dead\n2.0 []:\n";
    if (parse(shown, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(plan->total, 5);
    ir_print(plan, &text);
    assert_string_equal((const char *)text.data, shown);
    ir_plan_free(plan);
    bytes_close(&text);
}

struct refusal {
    const char *text, *words;
};

static void assert_refused(const struct refusal *r) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (parse(r->text, &plan, &e) != PAWL_FORMAT) fail_msg("taken: %s", r->text);
    assert_null(plan);
    if (strstr(e.text, r->words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, r->words);
}

static void a_total_and_what_is_beyond_it_are_named(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {"pawl-plan 3 pipelines=2 stages=1 chunks=1 microbatches=3\n",
         "line 1 column 57: wanted a blank, had end of line"},
        {"pawl-plan 3 pipelines=2 stages=1 chunks=1 microbatches=3 total=6\n",
         "line 1 column 64: wanted a number in 1..5, had '6'"},
        {"pawl-plan 3 pipelines=2 stages=1 chunks=1 microbatches=3 total=0\n",
         "line 1 column 64: wanted a number in 1..5, had '0'"},
        {"pawl-plan 2 pipelines=2 stages=1 chunks=1 microbatches=3 total=5\n",
         "line 1 column 58: wanted the end of the line, had 't'"},
        {LIMITED "0.0 [1]: F1:1.2\n1.0 []:\n", "line 2 column 15: wanted a micro-batch in 0..1, had '2'"},
        {LIMITED "0.0 [1]: F1:2.0\n1.0 []:\n", "line 2 column 13: wanted a home pipeline in 0..1, had '2'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_refused(&cases[i]);
}

static void errors_name_line_and_column(void **state) {
    (void)state;
    static const struct refusal cases[] = {
        {"", "line 1 column 1: wanted `pawl-plan`, had end of text"},
        {"pawl-pain 1", "line 1 column 1: wanted `pawl-plan`, had 'p'"},
        {"pawl-plan 4 pipelines=1 stages=1 microbatches=1",
         "line 1 column 11: wanted a number in 1..3, had '4'"},
        {"pawl-plan 2 pipelines=1 stages=1 microbatches=1", "line 1 column 34: wanted `chunks=`, had 'm'"},
        {"pawl-plan 2 pipelines=1 stages=1 chunks=1025 microbatches=1",
         "line 1 column 41: wanted a number in 1..1024, had '1'"},
        {"pawl-plan 2 pipelines=257 stages=256 chunks=1 microbatches=1",
         "line 1 column 26: wanted at most 65536 workers"},
        {"pawl-plan 2 pipelines=9 stages=9 chunks=1 microbatches=1\n0.0: dead\n",
         "line 1: 81 workers need as many lines"},
        {CHUNKS "0.0: R0\n1.0 []:\n", "line 2 column 6: wanted `dead`, had 'R'"},
        {CHUNKS "0.0 R0\n1.0 []:\n", "line 2 column 5: wanted `[`, had 'R'"},
        {CHUNKS "0.0 [1 2]: R0\n1.0 []:\n", "line 2 column 7: wanted `]`, had byte 0x20"},
        {CHUNKS "0.0 [1,1]: R0\n1.0 []:\n", "line 2 column 8: wanted a chunk in 2..3, had '1'"},
        {CHUNKS "0.0 [1,4]: R0\n1.0 []:\n", "line 2 column 8: wanted a chunk in 2..3, had '4'"},
        {CHUNKS "0.0 [1] R0\n1.0 []:\n", "line 2 column 8: wanted `:`, had byte 0x20"},
        {CHUNKS "0.0 [1]: R4\n1.0 []:\n", "line 2 column 11: wanted a chunk in 0..3, had '4'"},
        {CHUNKS "0.0 [1]: R\n1.0 []:\n", "line 2 column 11: wanted a chunk in 0..3, had end of line"},
        {CHUNKS "0.0 [1]: R1:0.0\n1.0 []:\n",
         "line 2 column 12: wanted a blank or the end of the line, had ':'"},
        {CHUNKS "0.0 [1]: F1\n1.0 []:\n", "line 2 column 12: wanted `:`, had end of line"},
        {CHUNKS "0.0 [1]: F1:0.0>0\n1.0 []:\n", "line 2 column 18: wanted `.`, had end of line"},
        {CHUNKS "0.0 [1]: F1:0.0>0.1\n1.0 []:\n", "line 2 column 19: wanted a stage in 0..0, had '1'"},
        {CHUNKS "0.0 [1]: O1:0.0>0.0\n1.0 []:\n", "line 2 column 10: wanted < and > at F, I and B only"},
        {CHUNKS "0.0 [1]: Q1:0.0\n1.0 []:\n", "line 2 column 10: wanted an op of F I W B R S C O L, had 'Q'"},
        {CHUNKS "0.0 [1]: dead\n1.0 []:\n", "line 2 column 10: wanted an op of F I W B R S C O L, had 'd'"},
        {HEADER "0.0: F1.0>0\n1.0: R\n",
         "line 2 column 6: wanted < and > where there is a stage before and behind"},
        {HEADER "0.0: C1.0\n1.0: R\n", "line 2 column 6: wanted an op of F I W B R S, had 'C'"},
        {"pawl-plan 1 stages=1", "line 1 column 13: wanted `pipelines=`, had 's'"},
        {"pawl-plan 1pipelines=1", "line 1 column 12: wanted a blank, had 'p'"},
        {"pawl-plan 1 pipelines=0 ", "line 1 column 23: wanted a number in 1..4096, had '0'"},
        {"pawl-plan 1 pipelines=4097 ", "line 1 column 23: wanted a number in 1..4096"},
        {"pawl-plan 1 pipelines=18446744073709551617 ",
         "line 1 column 23: wanted a number in 1..4096"}, /* 2^64 + 1 */
        {"pawl-plan 1 pipelines=99999999999999999999999 ", "line 1 column 23: wanted a number in 1..4096"},
        {"pawl-plan 1 pipelines=1 stages=1 microbatches=1 x",
         "line 1 column 49: wanted the end of the line, had 'x'"},
        {"pawl-plan 1 pipelines=9 stages=9 microbatches=1\n0.0:\n", "line 1: 81 workers need as many lines"},
        {HEADER "0.0: F0.0\n1.1: F0.0\n", "line 3 column 1: wanted `1.0:`, had '1'"},
        {HEADER "0.0: F0.0\n\n", "line 4 column 1: wanted `1.0:`, had end of text"},
        {HEADER "0.0: X0.0\n1.0: R\n", "line 2 column 6: wanted an op of F I W B R S, had 'X'"},
        {HEADER "0.0: F2.0\n1.0: R\n", "line 2 column 7: wanted a home pipeline in 0..1, had '2'"},
        {HEADER "0.0: F1.3\n1.0: R\n", "line 2 column 9: wanted a micro-batch in 0..2, had '3'"},
        {HEADER "0.0: F1\n1.0: R\n", "line 2 column 8: wanted `.`, had end of line"},
        {HEADER "0.0: F1.\n1.0: R\n", "line 2 column 9: wanted a micro-batch in 0..2, had end of line"},
        {HEADER "0.0: F1.0<2\n1.0: R\n", "line 2 column 11: wanted a pipeline in 0..1, had '2'"},
        {CHUNKS "0.0 [1]: F1:0.0>0.0<0.0\n1.0 []:\n",
         "line 2 column 20: wanted a blank or the end of the line, had '<'"},
        {HEADER "0.0: F1.0 W1.0<0\n1.0: R\n", "line 2 column 11: wanted < and > at F, I and B only"},
        {HEADER "0.0: R1.0\n1.0: R\n", "line 2 column 7: wanted a blank or the end of the line, had '1'"},
        {HEADER "0.0: R dead\n1.0: R\n", "line 2 column 8: wanted an op of F I W B R S, had 'd'"},
        {HEADER "0.0: dead R\n1.0: R\n", "line 2 column 11: wanted the end of the line, had 'R'"},
        {HEADER "0.0: R\n1.0: R\n2.0: R\n", "line 4 column 1: wanted the end of the text, had '2'"},
        {HEADER "0.0: R\x01\n1.0: R\n",
         "line 2 column 7: wanted a blank or the end of the line, had byte 0x01"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) assert_refused(&cases[i]);
}

static void every_prefix_is_refused_or_whole(void **state) {
    (void)state;
    static const char text[] =
        CHUNKS "0.0 [0,2]: F0:0.0 B0:0.0 O2:0.1 R0 S0\n1.0 [1]: F1:1.0>0.0 I1:1.0<0.0 W1:1.0 R1 S1\n";
    size_t whole = (size_t)(strstr(text, "1.0 [1]:") - text) + 8;
    for (size_t size = 0; size < sizeof text; size++) {
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        char *exact = malloc(size == 0 ? 1 : size);
        assert_non_null(exact);
        memcpy(exact, text, size);
        pawl_code code = ir_parse(exact, size, &plan, &e);
        if (size < whole || size == sizeof text)
            assert_int_equal(code, PAWL_FORMAT); /* the last one ends in a 0 */
        if (size == sizeof text - 1) assert_int_equal(code, PAWL_OK);
        ir_plan_free(plan);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_prints_as_documented),
        cmocka_unit_test(a_printed_plan_parses_to_the_same_plan),
        cmocka_unit_test(plans_of_every_kind_parse_to_the_same_plan),
        cmocka_unit_test(version_1_is_taken_and_printed_as_version_2),
        cmocka_unit_test(blanks_comments_empty_lines_and_crlf_are_taken),
        cmocka_unit_test(pipelines_that_are_not_full_are_printed_as_version_3),
        cmocka_unit_test(a_total_and_what_is_beyond_it_are_named),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(every_prefix_is_refused_or_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
