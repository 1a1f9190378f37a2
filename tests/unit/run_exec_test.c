/* What run/exec.h promises of exec_runs: plans that workers can execute, and the words for those that they
 * cannot. How a plan is executed is tested in tests/storm and tests/e2e. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "run/exec.h"

static void built_plans_run_also_with_dead_workers(void **state) {
    (void)state;
    bool alive[6] = {true, true, false, true, true, true};
    for (int schedule = 0; schedule < IR_SCHEDULE_COUNT; schedule++) {
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ir_build((enum ir_schedule)schedule, 2, 3, 4, alive, &plan, &e), PAWL_OK);
        if (exec_runs(plan, &e) != PAWL_OK) fail_msg("%s", e.text);
        ir_plan_free(plan);
    }
}

static void plans_that_are_valid_but_cannot_run_are_refused_in_one_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"pawl-plan 2 pipelines=1 stages=1 chunks=2 microbatches=1\n"
         "0.0 [0,1]: F0:0.0>0.0 F1:0.0<0.0 B1:0.0>0.0 B0:0.0<0.0 R1 S1 R0 S0\n",
         "plan: 2 chunks on 1 stages: a running worker holds one, its stage's"},
        {"pawl-plan 2 pipelines=1 stages=2 chunks=2 microbatches=1\n"
         "0.0 [0,1]: F0:0.0>0.0 F1:0.0<0.0 B1:0.0>0.0 B0:0.0<0.0 R1 S1 R0 S0\n"
         "0.1 [1]: R1 S1\n",
         "plan: worker (0, 0) holds 2 chunks, the first is 0: a running worker holds one, its stage's"},
        {"pawl-plan 2 pipelines=1 stages=2 chunks=2 microbatches=1\n"
         "0.0 [1]: F1:0.0<0.1 B1:0.0>0.1 R1 S1\n"
         "0.1 [0]: F0:0.0>0.0 B0:0.0<0.0 R0 S0\n",
         "plan: worker (0, 0) holds 1 chunks, the first is 1: a running worker holds one, its stage's"},
        {"pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n"
         "0.0 [0]: F0:0.0 C0:0.0 B0:0.0 R0 S0\n",
         "plan: worker (0, 0) position 1: C cannot be run, only planned"},
        {"pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n"
         "0.0 [0]: F0:0.0 O0:0.0 L0:0.0 B0:0.0 R0 S0\n",
         "plan: worker (0, 0) position 1: O cannot be run, only planned"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        if (ir_parse(cases[i].text, strlen(cases[i].text), &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("case %zu: %s", i, e.text);
        assert_int_equal(exec_runs(plan, &e), PAWL_UNSUPPORTED);
        assert_string_equal(e.text, cases[i].words);
        ir_plan_free(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_plans_run_also_with_dead_workers),
        cmocka_unit_test(plans_that_are_valid_but_cannot_run_are_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
