/* What ir/ir.h promises of ir_check: its words, its limits, and plans written by hand. */
#include "ir_oracle.h"

/* Members in the order of struct ir_memory, for one chunk. */
#define MEMORY(f, k, a, l)                                                                                   \
    &(struct ir_memory) {                                                                                    \
        (const uint64_t[]){f}, (const uint64_t[]){k}, (const uint64_t[]){a}, (const uint64_t[]) { l }        \
    }

static struct ir_plan *parse(const char *text) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (ir_parse(text, strlen(text), &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static void assert_refused(const char *text, const char *words) {
    struct ir_plan *plan = parse(text);
    struct pawl_error e = {0};
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    if (strstr(e.text, words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, words);
    ir_plan_free(plan);
}

static void a_wait_of_two_workers_for_each_other_is_found(void **state) {
    (void)state;
    assert_refused("pawl-plan 1 pipelines=1 stages=2 microbatches=2\n"
                   "0.0: F0.0>0 B0.0<0 F0.1>0 B0.1<0 R S\n"
                   "0.1: F0.0<0 F0.1<0 B0.0>0 B0.1>0 R S\n",
                   "cyclic wait of 2 workers");
}

/* (0, 0) waits for (0, 1), that for (1, 0), that for (1, 1), and that for (0, 0). */
static void a_wait_of_four_workers_in_a_circle_is_found(void **state) {
    (void)state;
    assert_refused("pawl-plan 1 pipelines=2 stages=2 microbatches=2\n"
                   "0.0: F0.0>0 B0.0<0 F0.1>1 B0.1<1 R S\n"
                   "0.1: F1.1<1 F0.0<0 B1.1>1 B0.0>0 R S\n"
                   "1.0: F1.0>1 B1.0<1 F1.1>0 B1.1<0 R S\n"
                   "1.1: F0.1<0 F1.0<1 B0.1>0 B1.0>1 R S\n",
                   "cyclic wait of 4 workers");
}

static void micro_batches_may_be_hosted_by_any_live_peer(void **state) {
    (void)state;
    struct ir_plan *plan = parse("pawl-plan 1 pipelines=2 stages=2 microbatches=1\n"
                                 "0.0: F0.0>1 B0.0<1 R S\n"
                                 "0.1: R S\n"
                                 "1.0: F1.0>1 I1.0<1 W1.0 R S\n"
                                 "1.1: F1.0<1 F0.0<0 I0.0>0 B1.0>1 W0.0 R S\n");
    uint64_t peak[4];
    struct pawl_error e = {0};
    if (ir_check(plan, NULL, peak, &e) != PAWL_OK) fail_msg("%s", e.text);
    static const uint64_t want[] = {1, 0, 1, 2};
    assert_memory_equal(peak, want, sizeof want);
    ir_plan_free(plan);
}

/* Held means F done and W not done: I alone frees nothing. */
static void a_micro_batch_is_held_until_its_weight_gradient(void **state) {
    (void)state;
    struct ir_plan *plan = parse("pawl-plan 1 pipelines=1 stages=1 microbatches=2\n"
                                 "0.0: F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 R S\n");
    uint64_t peak = 0, limit = 1;
    struct ir_memory memory = {.limit = &limit};
    struct pawl_error e = {0};
    assert_int_equal(ir_check(plan, NULL, &peak, &e), PAWL_OK);
    assert_int_equal(peak, 2);
    assert_int_equal(ir_check(plan, &memory, NULL, &e), PAWL_PLAN);
    assert_string_equal(e.text, "plan: worker (0, 0) position 2: F stores 2, the memory limit is 1");
    ir_plan_free(plan);
}

static void every_rule_has_its_words(void **state) {
    (void)state;
    static const struct {
        const char *list, *words;
    } cases[] = {
        {"F0.0 B0.0 R S", "position 4: F of micro-batch 0.1 of chunk 0 is nowhere"},
        {"F0.0 F0.1 B0.0 R S", "I of micro-batch 0.1 of chunk 0 is nowhere"},
        {"F0.0 F0.1 B0.0 I0.1 R S", "W of micro-batch 0.1 of chunk 0 is nowhere"},
        {"F0.0 F0.0 B0.0 B0.1 R S",
         "position 1: F of micro-batch 0.0 of chunk 0, but its F was on worker (0, 0) already"},
        {"B0.0 F0.0 F0.1 B0.1 R S",
         "position 0: B of micro-batch 0.0 of chunk 0 without its F earlier on this worker"},
        {"F0.0 B0.0 F0.1 B0.1 B0.1 R S", "position 4: B of micro-batch 0.1 of chunk 0 after its I"},
        {"F0.0 B0.0 F0.1 W0.1 I0.1 R S", "position 3: W of micro-batch 0.1 of chunk 0 without its I"},
        {"F0.0 B0.0 F0.1 R B0.1 S", "position 4: B of micro-batch 0.1 after the R of its chunk 0"},
        {"F0.0 B0.0 F0.1 B0.1 S R", "position 4: S of chunk 0 before its R"},
        {"F0.0 B0.0 F0.1 B0.1 R S S", "position 6: S of chunk 0 after its S"},
        {"F0.0 B0.0 F0.1 B0.1 R", "position 5: the list ends without S of chunk 0"},
        {"F0.0 B0.0 F0.1 B0.1", "position 4: the list ends without R of chunk 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes text = {0};
        bytes_printf(&text, "pawl-plan 1 pipelines=1 stages=1 microbatches=2\n0.0: %s\n", cases[i].list);
        assert_refused((const char *)text.data, cases[i].words);
        bytes_close(&text);
    }
}

#define THREE "pawl-plan 3 pipelines=2 stages=1 chunks=1 microbatches=2 total=3\n"

static void pipelines_that_are_not_full_need_what_they_have_and_no_more(void **state) {
    (void)state;
    struct pawl_error e = {0};
    struct ir_plan *plan = parse(THREE "0.0 [0]: F0:0.0 B0:0.0 F0:0.1 B0:0.1 R0 S0\n"
                                       "1.0 [0]: F0:1.0 B0:1.0 R0 S0\n");
    if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t w = 0; w < 2; w++) /* any instruction's micro-batch becomes the one that is not there */
        for (uint32_t i = 0; i < plan->workers[w].count - 2; i++) {
            struct ir_instruction *in = &plan->workers[w].instructions[i], was = *in;
            in->home = in->microbatch = 1;
            assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
            assert_non_null(strstr(e.text, "of micro-batch 1.1 of 2, but there are 3 in all"));
            *in = was;
        }
    plan->total = 4;
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "F of micro-batch 1.1 of chunk 0 is nowhere"));
    plan->total = 5;
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_string_equal(e.text, "plan: 5 micro-batches in all: not in 1..4 for 2 pipelines of 2");
    ir_plan_free(plan);
    assert_refused(THREE "0.0 [0]: F0:0.0 B0:0.0 F0:0.1 B0:0.1 R0 S0\n1.0 [0]: R0 S0\n",
                   "F of micro-batch 1.0 of chunk 0 is nowhere");
}

/* 4096 x 1024 x 16384 micro-batches would need 200 GB of tables; the lists show at once that they are not
 * there. */
static void a_plan_far_larger_than_its_lists_is_refused_without_memory(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_plan_new_chunks(IR_PIPELINES_MAX, 16, IR_CHUNKS_MAX, IR_MICROBATCHES_MAX, &plan, &e),
                     PAWL_OK);
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "68719476736"));
    ir_plan_free(plan);
}

static void sizes_that_no_plan_has_are_refused(void **state) {
    (void)state;
    uint32_t hold = 0;
    struct ir_worker worker = {.alive = true, .hold_count = 1, .holds = &hold};
    struct ir_plan plan = {1, 1, 1, 1, 1, &worker};
    uint32_t *fields[] = {&plan.pipelines, &plan.stages, &plan.chunks, &plan.microbatches, &plan.total};
    struct pawl_error e = {0};
    for (int f = 0; f < 5; f++) {
        *fields[f] = 0;
        assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
        *fields[f] = UINT32_MAX;
        assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
        *fields[f] = 1;
    }
    plan.workers = NULL;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
    worker.count = 4; /* and no list */
    plan.workers = &worker;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "4 instructions, but no list"));
    worker.holds = NULL;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "holds 1 chunks, but there is no list"));
    plan.pipelines = IR_WORKERS_MAX / 512 + 1;
    plan.stages = 512;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "129 pipelines x 512 stages"));
}

/* Two workers, each with two chunks: (0, 0) holds 0 and 3, (0, 1) holds 1 and 2, as in a V. */
#define V_HEADER "pawl-plan 2 pipelines=1 stages=2 chunks=4 microbatches=1\n"
#define V_FIRST  "0.0 [0,3]: F0:0.0>0.1 F3:0.0<0.1 B3:0.0>0.1 R3 S3 B0:0.0<0.1 R0 S0\n"
#define V_SECOND "0.1 [1,2]: F1:0.0<0.0>0.1 F2:0.0<0.1>0.0 B2:0.0<0.0>0.1 B1:0.0<0.1>0.0 R1 S1 R2 S2\n"

static void a_worker_may_hold_several_chunks_and_send_to_itself(void **state) {
    (void)state;
    struct ir_plan *plan = parse(V_HEADER V_FIRST V_SECOND);
    uint64_t peak[2], full[] = {10, 20, 30, 40};
    struct ir_memory memory = {.full = full};
    struct pawl_error e = {0};
    if (ir_check(plan, &memory, peak, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(peak[0], 50);
    assert_int_equal(peak[1], 50);
    ir_plan_free(plan);
}

static void every_rule_on_chunks_has_its_words(void **state) {
    (void)state;
    static const struct {
        const char *first, *second, *words;
    } cases[] = {
        {"0.0 [0,1,3]: F0:0.0>0.1 F3:0.0<0.1 B3:0.0>0.1 R3 S3 B0:0.0<0.1 R0 S0\n", V_SECOND,
         "worker (0, 0) position 8: the list ends without R of chunk 1"},
        {"0.0 [0]: F0:0.0>0.1 F3:0.0<0.1 B3:0.0>0.1 R3 S3 B0:0.0<0.1 R0 S0\n", V_SECOND,
         "plan: chunk 3 has no live holder"},
        {"0.0: dead\n", "0.1 [0,1,2,3]: F0:0.0>0.0 B0:0.0<0.0 R0 S0\n",
         "position 4: the list ends without R"},
        {"0.0: dead\n", "0.1 [0,1,2,3]: R0 S0 R1 S1 R2 S2 R3 S3\n",
         "worker (0, 1) position 8: F of micro-batch 0.0 of chunk 0 is nowhere"},
        {V_FIRST, "0.1 [1,2]: F1:0.0<0.0>0.1 F2:0.0<0.1>0.0 R2 B2:0.0<0.0>0.1 B1:0.0<0.1>0.0 R1 S1 S2\n",
         "worker (0, 1) position 3: B of micro-batch 0.0 after the R of its chunk 2"},
        {V_FIRST, "0.1 [1,2]: F2:0.0<0.1>0.0 F1:0.0<0.0>0.1 B2:0.0<0.0>0.1 B1:0.0<0.1>0.0 R1 S1 R2 S2\n",
         "cyclic wait of one worker: F of micro-batch 0.0 of chunk 2 waits for what stands behind it"},
        {"0.0 [0,3]: F0:0.0>0.1 F3:0.0<0.1 F1:0.0<0.0>0.1 B3:0.0>0.1 R3 S3 B0:0.0<0.1 R0 S0\n", V_SECOND,
         "position 2: F of chunk 1, which this worker does not hold"},
        {V_FIRST, "0.1 [1,2]: F1:0.0<0.0>0.0 F2:0.0<0.1>0.0 B2:0.0<0.0>0.1 B1:0.0<0.1>0.0 R1 S1 R2 S2\n",
         "worker (0, 1) position 0: F: `to` is worker (0, 0), the host there is worker (0, 1)"},
        {"0.0 [0,3]: F0:0.0<0.0>0.1 F3:0.0<0.1 B3:0.0>0.1 R3 S3 B0:0.0<0.1 R0 S0\n", V_SECOND,
         "worker (0, 0) position 0: F: `from` is worker (0, 0), the host there is nobody"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes text = {0};
        bytes_printf(&text, V_HEADER "%s%s", cases[i].first, cases[i].second);
        assert_refused((const char *)text.data, cases[i].words);
        bytes_close(&text);
    }
}

static void the_dead_hold_and_do_nothing(void **state) {
    (void)state;
    struct ir_plan *plan = parse(V_HEADER V_FIRST V_SECOND);
    struct pawl_error e = {0};
    plan->workers[1].alive = false;
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_string_equal(e.text, "plan: worker (0, 1) position 0: a dead worker holds 2 chunks");
    ir_plan_free(plan);
    plan = parse("pawl-plan 2 pipelines=2 stages=1 chunks=1 microbatches=1\n"
                 "0.0 [0]: F0:0.0 B0:0.0 F0:1.0 B0:1.0 R0 S0\n1.0 [0]: R0 S0\n");
    plan->workers[1].alive = false;
    plan->workers[1].hold_count = 0;
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_string_equal(e.text, "plan: worker (1, 0) position 0: a dead worker has instructions");
    ir_plan_free(plan);
}

static void a_list_of_chunks_that_is_not_ascending_or_out_of_range_is_named(void **state) {
    (void)state;
    static const struct {
        uint32_t holds[2];
        const char *words;
    } cases[] = {
        {{1, 1}, "plan: worker (0, 1) position 0: holds chunk 1 behind chunk 1: not ascending"},
        {{2, 1}, "plan: worker (0, 1) position 0: holds chunk 1 behind chunk 2: not ascending"},
        {{1, 4}, "plan: worker (0, 1) position 0: holds chunk 4, but there are 4"},
    };
    struct ir_plan *plan = parse(V_HEADER V_FIRST V_SECOND);
    struct pawl_error e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(plan->workers[1].holds, cases[i].holds, sizeof cases[i].holds);
        assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
        assert_string_equal(e.text, cases[i].words);
    }
    ir_plan_free(plan);
}

/* Two holders of two chunks, each with its own work; one reduces chunk 0 first, the other chunk 1. */
static void reductions_in_crossed_order_wait_for_each_other(void **state) {
    (void)state;
#define CROSSED                                                                                              \
    "pawl-plan 2 pipelines=2 stages=1 chunks=2 microbatches=1\n"                                             \
    "0.0 [0,1]: F0:0.0>0.0 F1:0.0<0.0 B1:0.0>0.0 B0:0.0<0.0 R0 S0 R1 S1\n"                                   \
    "1.0 [0,1]: F0:1.0>1.0 F1:1.0<1.0 B1:1.0>1.0 B0:1.0<1.0 "
    assert_refused(CROSSED "R1 S1 R0 S0\n", "cyclic wait of 2 workers: R of chunk");
    struct pawl_error e = {0};
    struct ir_plan *plan = parse(CROSSED "R0 R1 S1 S0\n");
    if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    ir_plan_free(plan);
}

/* (0, 0) comes to R of chunk 1 early, but (1, 0) only after a forward that waits for (0, 0) behind its R. */
static void a_reduction_before_what_another_holder_waits_for_is_found(void **state) {
    (void)state;
    assert_refused(
        "pawl-plan 2 pipelines=2 stages=1 chunks=2 microbatches=1\n"
        "0.0 [0,1]: F0:0.0>0.0 F1:0.0<0.0 B1:0.0>0.0 B0:0.0<0.0 R1 S1 F0:1.0>1.0 B0:1.0<1.0 R0 S0\n"
        "1.0 [0,1]: F1:1.0<0.0 B1:1.0>0.0 R1 S1 R0 S0\n",
        "cyclic wait of 2 workers");
}

static void recompute_and_offload_have_their_places(void **state) {
    (void)state;
    static const struct {
        const char *list, *words;
    } cases[] = {
        {"F0:0.0 C0:0.0 B0:0.0 R0 S0", NULL},
        {"F0:0.0 O0:0.0 L0:0.0 I0:0.0 W0:0.0 R0 S0", NULL},
        {"C0:0.0 F0:0.0 B0:0.0 R0 S0", "position 0: C of micro-batch 0.0 of chunk 0 without its F"},
        {"F0:0.0 B0:0.0 C0:0.0 R0 S0", "position 2: C of micro-batch 0.0 of chunk 0 after its I"},
        {"F0:0.0 I0:0.0 C0:0.0 W0:0.0 R0 S0", "position 2: C of micro-batch 0.0 of chunk 0 after its I"},
        {"F0:0.0 C0:0.0 C0:0.0 B0:0.0 R0 S0", "position 2: C of micro-batch 0.0 of chunk 0 after its C"},
        {"F0:0.0 O0:0.0 B0:0.0 R0 S0", "position 2: B of micro-batch 0.0 of chunk 0 between its O and its L"},
        {"F0:0.0 O0:0.0 I0:0.0 L0:0.0 W0:0.0 R0 S0",
         "position 2: I of micro-batch 0.0 of chunk 0 between its O"},
        {"F0:0.0 L0:0.0 B0:0.0 R0 S0", "position 1: L of micro-batch 0.0 of chunk 0 without its O"},
        {"F0:0.0 L0:0.0 O0:0.0 B0:0.0 R0 S0", "position 1: L of micro-batch 0.0 of chunk 0 without its O"},
        {"F0:0.0 O0:0.0 C0:0.0 L0:0.0 B0:0.0 R0 S0",
         "position 2: C of micro-batch 0.0 of chunk 0 after its O"},
        {"F0:0.0 C0:0.0 O0:0.0 L0:0.0 B0:0.0 R0 S0",
         "position 2: O of micro-batch 0.0 of chunk 0 after its C"},
        {"F0:0.0 O0:0.0 L0:0.0 L0:0.0 B0:0.0 R0 S0",
         "position 3: L of micro-batch 0.0 of chunk 0 after its L"},
        {"F0:0.0 I0:0.0 O0:0.0 L0:0.0 W0:0.0 R0 S0",
         "position 2: O of micro-batch 0.0 of chunk 0 after its I"},
        {"F0:0.0 B0:0.0 R0 S0 O0:0.0", "position 4: O of micro-batch 0.0 after the R of its chunk 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes text = {0};
        bytes_printf(&text, "pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n0.0 [0]: %s\n",
                     cases[i].list);
        if (cases[i].words != NULL) {
            assert_refused((const char *)text.data, cases[i].words);
        } else {
            struct ir_plan *plan = parse((const char *)text.data);
            struct pawl_error e = {0};
            if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("%s: %s", cases[i].list, e.text);
            ir_plan_free(plan);
        }
        bytes_close(&text);
    }
}

/* full 100, kept 10, after_input 60: the most that is stored by each list of two micro-batches. */
static void what_is_stored_follows_each_instruction(void **state) {
    (void)state;
    static const struct {
        const char *list;
        uint64_t peak;
    } cases[] = {
        {"F0:0.0 B0:0.0 F0:0.1 B0:0.1 R0 S0", 100},
        {"F0:0.0 F0:0.1 B0:0.0 B0:0.1 R0 S0", 200},
        {"F0:0.0 I0:0.0 F0:0.1 B0:0.1 W0:0.0 R0 S0", 160},
        {"F0:0.0 F0:0.1 B0:0.1 C0:0.0 B0:0.0 R0 S0", 110},
        {"F0:0.0 F0:0.1 C0:0.0 B0:0.0 B0:0.1 R0 S0", 200},
        {"F0:0.0 O0:0.0 F0:0.1 B0:0.1 L0:0.0 B0:0.0 R0 S0", 110},
        {"F0:0.0 O0:0.0 F0:0.1 L0:0.0 B0:0.1 B0:0.0 R0 S0", 200},
        {"F0:0.0 F0:0.1 C0:0.0 I0:0.0 C0:0.1 I0:0.1 W0:0.0 W0:0.1 R0 S0", 160},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes text = {0};
        struct pawl_error e = {0};
        uint64_t peak = 0;
        bytes_printf(&text, "pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=2\n0.0 [0]: %s\n",
                     cases[i].list);
        struct ir_plan *plan = parse((const char *)text.data);
        if (ir_check(plan, MEMORY(100, 10, 60, cases[i].peak), &peak, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (peak != cases[i].peak)
            fail_msg("%s: stored %llu, wanted %llu", cases[i].list, (unsigned long long)peak,
                     (unsigned long long)cases[i].peak);
        assert_int_equal(ir_check(plan, MEMORY(100, 10, 60, cases[i].peak - 1), NULL, &e), PAWL_PLAN);
        assert_non_null(strstr(e.text, "memory limit"));
        ir_plan_free(plan);
        bytes_close(&text);
    }
}

static void sums_that_64_bits_cannot_hold_are_refused(void **state) {
    (void)state;
    struct ir_plan *plan = parse("pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=2\n"
                                 "0.0 [0]: F0:0.0 F0:0.1 B0:0.0 B0:0.1 R0 S0\n");
    struct pawl_error e = {0};
    uint64_t peak = 0;
    assert_int_equal(ir_check(plan, MEMORY(UINT64_MAX / 2, 0, 0, UINT64_MAX), &peak, &e), PAWL_OK);
    assert_true(peak == UINT64_MAX - 1);
    assert_int_equal(ir_check(plan, MEMORY(UINT64_MAX / 2 + 1, 0, 0, UINT64_MAX), &peak, &e), PAWL_PLAN);
    assert_string_equal(e.text, "plan: worker (0, 0) position 1: stores more than 64 bits can count");
    ir_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_of_two_workers_for_each_other_is_found),
        cmocka_unit_test(a_wait_of_four_workers_in_a_circle_is_found),
        cmocka_unit_test(micro_batches_may_be_hosted_by_any_live_peer),
        cmocka_unit_test(a_micro_batch_is_held_until_its_weight_gradient),
        cmocka_unit_test(every_rule_has_its_words),
        cmocka_unit_test(pipelines_that_are_not_full_need_what_they_have_and_no_more),
        cmocka_unit_test(a_plan_far_larger_than_its_lists_is_refused_without_memory),
        cmocka_unit_test(sizes_that_no_plan_has_are_refused),
        cmocka_unit_test(a_worker_may_hold_several_chunks_and_send_to_itself),
        cmocka_unit_test(every_rule_on_chunks_has_its_words),
        cmocka_unit_test(the_dead_hold_and_do_nothing),
        cmocka_unit_test(a_list_of_chunks_that_is_not_ascending_or_out_of_range_is_named),
        cmocka_unit_test(reductions_in_crossed_order_wait_for_each_other),
        cmocka_unit_test(a_reduction_before_what_another_holder_waits_for_is_found),
        cmocka_unit_test(recompute_and_offload_have_their_places),
        cmocka_unit_test(what_is_stored_follows_each_instruction),
        cmocka_unit_test(sums_that_64_bits_cannot_hold_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
