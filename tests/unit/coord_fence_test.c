/* What coord.h promises of fence, find, plan and go. */
#include "coord_script.h"

#define DIED_OF_EXIT "its process ended or its channel closed"

static void open_running(struct script *s, uint32_t ranks, uint32_t chunks) {
    script_open(s, script_config(ranks, chunks, 9));
    script_start(s);
}

static void the_start_loads_what_was_found(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    for (uint32_t rank = 0; rank < 4; rank++) assert_string_equal(script_started(&s, rank), "");
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_ready(&s, rank), "");
    assert_string_equal(script_ready(&s, 3), "FENCE view=1");
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_fenced_empty(&s, rank), "");
    assert_string_equal(script_fenced_empty(&s, 3), "FIND view=1");
    assert_string_equal(script_found(&s, 4), "PLAN view=1");
    assert_string_equal(script_planned(&s), "GO view=1 v=4 restore optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0 load; 1:1 load; 2:0 load; 3:1 load");
    assert_string_equal(script_iterate(&s, 4, 1.0),
                        "DECIDE view=1 i=4 accept 1 optimistic; DECIDED i=4 accept "
                        "norm=1.41421 loss=7");
    script_close(&s);
}

static void a_death_fences_and_the_iteration_starts_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    assert_string_equal(script_exit(&s, 2), "DIED[2] " DIED_OF_EXIT "; FENCE view=2");
    assert_string_equal(script_fenced(&s, 0, 0, 1.0), "");
    assert_string_equal(script_fenced(&s, 1, 0, -1), "");
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=2");
    assert_string_equal(script_planned(&s), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 1:1; 3:1");
    assert_string_equal(script_iterate(&s, 0, 1.0),
                        "DECIDE view=2 i=0 accept 1 optimistic; DECIDED i=0 accept "
                        "norm=1.41421 loss=7");
    script_close(&s);
}

static void with_the_gradient_of_every_chunk_the_iteration_is_settled(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 2);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 3, 0, 8.0);
    script_fenced(&s, 4, 0, 8.0);
    assert_string_equal(script_fenced(&s, 5, 0, 8.0), "PLAN view=2");
    assert_string_equal(script_planned(&s),
                        "GO view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=4 loss=7");
    assert_string_equal(script_pairs(&s), "0:0 grad from 4; 1:1 grad from 3; 3:1; 4:0; 5:1");
    script_close(&s);
}

static void a_lost_chunk_sends_everybody_back(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 1);
    assert_string_equal(script_exit(&s, 3), "DIED[3] " DIED_OF_EXIT "; FENCE view=3");
    script_fenced(&s, 0, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 1, -1), "FIND view=3");
    assert_string_equal(script_found(&s, 0), "PLAN view=3");
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "RESTORED v=0 from 1; GO view=3 v=0 restore optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0 load; 2:1 load");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_start_loads_what_was_found),
        cmocka_unit_test(a_death_fences_and_the_iteration_starts_again),
        cmocka_unit_test(with_the_gradient_of_every_chunk_the_iteration_is_settled),
        cmocka_unit_test(a_lost_chunk_sends_everybody_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
