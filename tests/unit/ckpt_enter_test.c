/* An engine that is opened before the start it serves is known: one that comes while others go on keeps parts
 * that may yet count, one that goes back to a step does not keep newer ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/ckpt_kit.h"

#define KEEP 1

static void save(struct ckpt *c, uint64_t step) {
    struct kit_part *part = kit_part_new(step, 0, 1);
    struct ckpt_save s = kit_save(part, step, 0, 1);
    struct pawl_error e = {0};
    if (ckpt_save_begin(c, &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    struct ckpt_event event = kit_next(c);
    if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
    kit_part_free(part);
}

static struct ckpt *open_engine(struct store *s, uint64_t incarnation) {
    struct ckpt_config config = kit_config(incarnation, 0, 1, KEEP);
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    if (ckpt_open(&config, s, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    return c;
}

/* Incarnation of the newest complete part of `step` that reads back whole; 0: there is none. */
static uint64_t incarnation_of(struct store *s, uint64_t step) {
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    if (ckpt_set_open(&s, 1, NULL, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    uint64_t found = 0;
    for (uint32_t i = 0; i < ckpt_set_count(set) && found == 0; i++)
        if (ckpt_set_at(set, i)->complete && ckpt_set_at(set, i)->step == step &&
            kit_check_step(set, i, &e) == PAWL_OK)
            found = ckpt_set_at(set, i)->incarnation;
    ckpt_set_close(set);
    return found;
}

/* A process of incarnation 3 saved steps 5 and 6, heard that 5 is durable, and died. */
static struct store *left_by_another(struct storesim *disk) {
    struct store *s = NULL;
    assert_int_equal(storesim_open(disk, "store", false, &s, NULL), PAWL_OK);
    struct ckpt *c = open_engine(s, 3);
    save(c, 5);
    ckpt_durable(c, 5);
    save(c, 6);
    ckpt_close(c, kit_soon(), NULL);
    return s;
}

static void who_comes_while_others_go_on_keeps_what_may_yet_be_durable(void **state) {
    (void)state;
    struct storesim *disk = storesim_new(1);
    struct store *s = left_by_another(disk);
    struct ckpt *c = open_engine(s, 0);
    ckpt_enter(c, 3, 0);
    ckpt_durable(c, 5);
    for (uint64_t step = 7; step < 10; step++) {
        save(c, step);
        if (incarnation_of(s, 6) != 3) fail_msg("step 6 went when step %d was saved", (int)step);
        assert_int_equal(incarnation_of(s, step), 3);
    }
    ckpt_durable(c, 9); /* now it is of no use */
    save(c, 10);
    save(c, 11);
    assert_int_equal(incarnation_of(s, 6), 0);
    assert_int_equal(incarnation_of(s, 9), 3);
    ckpt_close(c, kit_soon(), NULL);
    store_close(s);
    storesim_free(disk);
}

static void who_goes_back_to_a_step_keeps_it_and_nothing_newer(void **state) {
    (void)state;
    struct storesim *disk = storesim_new(1);
    struct store *s = left_by_another(disk);
    struct ckpt *c = open_engine(s, 0);
    ckpt_enter(c, 4, 5);
    save(c, 6);
    save(c, 7);
    assert_int_equal(incarnation_of(s, 6), 4);
    assert_int_equal(incarnation_of(s, 7), 4);
    assert_int_equal(incarnation_of(s, 5), 3);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    for (uint32_t i = 0; i < ckpt_set_count(set); i++)
        if (ckpt_set_at(set, i)->step == 6) assert_int_equal(ckpt_set_at(set, i)->incarnation, 4);
    ckpt_set_close(set);
    ckpt_close(c, kit_soon(), NULL);
    store_close(s);
    storesim_free(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_while_others_go_on_keeps_what_may_yet_be_durable),
        cmocka_unit_test(who_goes_back_to_a_step_keeps_it_and_nothing_newer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
