/* The planner's answers are asked for once and kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "kit/fleet_kit.h"

struct asked {
    uint32_t times;
    bool fails;
};

static pawl_code answer(void *context, enum pawl_policy policy, const uint32_t *holes,
                        struct fleet_period *out, struct pawl_error *e) {
    struct asked *a = context;
    a->times++;
    if (a->fails) return error_set(e, PAWL_MEMORY, 0, "no");
    out->ns = 1 + (uint64_t)policy * 1000000 + holes[0] * 10000 + holes[1] * 100 + holes[2];
    memcpy(out->holes, holes, 3 * sizeof *holes);
    return PAWL_OK;
}

static void every_question_is_asked_once_and_answers_stay(void **state) {
    (void)state;
    struct asked asked = {0};
    struct fleet_periods *p = NULL;
    static const struct fleet_period *kept[2][1000];
    assert_int_equal(fleet_periods_open(3, answer, &asked, &p, NULL), PAWL_OK);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 1000; i++)
            for (uint32_t k = 0; k < 2; k++) {
                enum pawl_policy policy = k == 0 ? PAWL_POLICY_RECYCLE : PAWL_POLICY_PAWL;
                uint32_t holes[3] = {i / 100, i / 10 % 10, i % 10};
                const struct fleet_period *got = NULL;
                assert_int_equal(fleet_periods_get(p, policy, holes, &got, NULL), PAWL_OK);
                assert_int_equal(got->ns, 1 + (uint64_t)policy * 1000000 + holes[0] * 10000 + holes[1] * 100 +
                                              holes[2]);
                assert_memory_equal(got->holes, holes, sizeof holes);
                if (round == 0) kept[k][i] = got;
                assert_ptr_equal(got, kept[k][i]);
            }
    assert_int_equal(asked.times, 2000);
    assert_int_equal(fleet_periods_asked(p), 2000);
    fleet_periods_close(p);
}

static void a_failed_question_is_asked_again(void **state) {
    (void)state;
    struct asked asked = {.fails = true};
    struct fleet_periods *p = NULL;
    const struct fleet_period *got = NULL;
    uint32_t holes[3] = {1, 0, 0};
    assert_int_equal(fleet_periods_open(3, answer, &asked, &p, NULL), PAWL_OK);
    assert_int_equal(fleet_periods_get(p, PAWL_POLICY_PAWL, holes, &got, NULL), PAWL_MEMORY);
    asked.fails = false;
    assert_int_equal(fleet_periods_get(p, PAWL_POLICY_PAWL, holes, &got, NULL), PAWL_OK);
    assert_int_equal(asked.times, 2);
    assert_int_equal(fleet_periods_asked(p), 1);
    fleet_periods_close(p);
    fleet_periods_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_question_is_asked_once_and_answers_stay),
        cmocka_unit_test(a_failed_question_is_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
