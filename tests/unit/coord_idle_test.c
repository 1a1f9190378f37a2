/* A view in which nothing moved: whom the others have not heard falls before anything is planned; what is
 * said of one in any other fence counts for nothing. */
#include "coord_script.h"

#define ALL4   0xfu
#define SILENT "its peers hear nothing from it"

/* Everybody is there and idle for as long as it takes: the fence has been told. */
static void open_idle(struct script *s) {
    script_open(s, script_config(4, 2, 9));
    script_start(s);
    script_wait(s, 1, ALL4, 0);
    assert_string_equal(script_wait(s, 20, ALL4, 0), "FENCE view=2");
}

static void whom_nobody_hears_falls_and_not_those_it_does_not_hear(void **state) {
    (void)state;
    struct script s;
    open_idle(&s);
    assert_string_equal(script_suspect(&s, 0, 1), "");
    assert_string_equal(script_suspect(&s, 1, 0), "");
    assert_string_equal(script_suspect(&s, 1, 3), "");
    assert_string_equal(script_suspect(&s, 3, 1), "");
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_fenced(&s, rank, 0, -1), "");
    assert_string_equal(script_fenced(&s, 3, 0, -1), "KILL[1] " SILENT "; DIED[1] " SILENT "; FENCE view=3");
    assert_string_equal(script_fenced(&s, 0, 0, -1), "");
    assert_string_equal(script_fenced(&s, 2, 0, -1), "");
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=3");
    assert_string_equal(script_planned(&s), "GO view=3 v=0 optimistic shift=0");
    script_close(&s);
}

static void without_an_accusation_everybody_goes_on(void **state) {
    (void)state;
    struct script s;
    open_idle(&s);
    for (uint32_t rank = 0; rank < 3; rank++) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=2");
    script_close(&s);
}

static void a_fence_for_another_reason_hears_no_accusations(void **state) {
    (void)state;
    struct script s;
    open_idle(&s);
    script_fence_all(&s, 0, -1); /* the idle fence is over ... */
    script_exit(&s, 2);          /* ... and this one comes too soon to have heard everybody */
    assert_string_equal(script_suspect(&s, 0, 1), "");
    assert_string_equal(script_suspect(&s, 3, 1), "");
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=3");
    script_planned(&s);
    assert_string_equal(script_wait(&s, 3, 0xb, 0), ""); /* nor do they count in the view that follows */
    script_close(&s);
}

static void a_death_in_the_midst_of_it_forgets_what_was_said(void **state) {
    (void)state;
    struct script s;
    open_idle(&s);
    script_suspect(&s, 0, 1);
    script_suspect(&s, 3, 1);
    script_fenced(&s, 0, 0, -1);
    script_exit(&s, 1); /* it was the one */
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 2, 0, -1);
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=3");
    script_close(&s);
}

static void of_two_accused_as_often_the_one_that_can_be_spared_falls(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(3, 2, 9)); /* chunk 0 is held by 0 and 2 */
    script_start(&s);
    script_wait(&s, 1, 7, 0);
    assert_string_equal(script_wait(&s, 20, 7, 0), "FENCE view=2");
    script_suspect(&s, 1, 2);
    script_suspect(&s, 2, 1);
    for (uint32_t rank = 0; rank < 2; rank++) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_fenced(&s, 2, 0, -1), "KILL[2] " SILENT "; DIED[2] " SILENT "; FENCE view=3");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_nobody_hears_falls_and_not_those_it_does_not_hear),
        cmocka_unit_test(without_an_accusation_everybody_goes_on),
        cmocka_unit_test(a_fence_for_another_reason_hears_no_accusations),
        cmocka_unit_test(a_death_in_the_midst_of_it_forgets_what_was_said),
        cmocka_unit_test(of_two_accused_as_often_the_one_that_can_be_spared_falls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
