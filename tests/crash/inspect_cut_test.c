/* Rollback and gc cut at EVERY mutating operation of the simulated disk, with many draws of what an unflushed
 * disk keeps: the step that was asked for, or the newest complete one, reads back byte for byte afterwards,
 * and the same call, given again, finishes the work. Also with a commit that a killed writer never flushed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/inspect_kit.h"

enum action { ROLLBACK, ROLLBACK_NEWEST, GC, GC_KEEP };
enum history { CLOSED, KILLED, KILLED_LATE };

#define LAST   5u
#define TARGET 3u

static void kill_engines(struct kit_run *r) {
    for (uint32_t i = 0; i < 2; i++) {
        storesim_freeze(r->sim, r->stores[i]);
        (void)ckpt_close(r->engines[i], 0, NULL);
        storesim_kill(r->sim, r->stores[i]);
        r->engines[i] = NULL;
        r->stores[i] = NULL;
    }
}

/* A save of this rank, abandoned after some turns; its memory, which the engine may read until it dies. */
static struct kit_part *save_and_die(struct kit_run *r, uint32_t rank, uint64_t step, uint64_t turns) {
    struct ckpt_event event;
    struct kit_part *part = kit_part_new(step, rank, 2);
    struct ckpt_save save = kit_save(part, step, rank, 2);
    assert_int_equal(ckpt_save_begin(r->engines[rank], &save, NULL), PAWL_OK);
    for (; turns > 0 && ckpt_poll(r->engines[rank], &event, 1) == 0; turns--) store_wait(r->stores[rank], 1);
    return part;
}

/* The same run every time: steps up to 5, then an incomplete one. KILLED: the last writer was killed with its
 * last commit in the machine's memory only, as far as the disk allows. KILLED_LATE: one rank's was, when the
 * other was already past the next step. */
static struct kit_run *make(uint64_t seed, enum history history) {
    struct kit_run *r = kit_run_new(seed, 2, 3, LAST);
    uint64_t turns = seed * 5 % 23;
    r->resume = LAST;
    kit_run_start(r);
    kit_run_save(r, LAST + 1, 1);
    if (history == CLOSED) {
        kit_run_stop(r);
        return r;
    }
    struct kit_part *parts[2] = {NULL, NULL};
    if (history == KILLED_LATE) {
        kit_run_save(r, LAST + 2, 1);
        kit_run_save(r, LAST + 3, 1);
    } else {
        parts[0] = save_and_die(r, 0, LAST + 2, turns);
    }
    parts[1] = save_and_die(r, 1, LAST + 2, turns);
    kill_engines(r);
    kit_part_free(parts[0]);
    kit_part_free(parts[1]);
    return r;
}

static pawl_code act(struct kit_run *r, enum action action, uint64_t target) {
    struct pawl_inspect *in = NULL;
    struct pawl_inspect_changes *changes = calloc(1, sizeof *changes);
    assert_non_null(changes);
    kit_run_stores(r, false);
    pawl_code code = kit_run_inspect(r, &in, NULL);
    if (code == PAWL_OK)
        code = action <= ROLLBACK_NEWEST ? inspect_rollback(in, target, false, changes, NULL)
                                         : inspect_gc(in, action == GC_KEEP ? 1 : 0, false, changes, NULL);
    pawl_inspect_changes_free(changes);
    pawl_inspect_close(in);
    kit_run_close_stores(r);
    return code;
}

/* Reads the step back, byte for byte; kit_check_step ends the process on a wrong byte. */
static bool reads_back(struct kit_run *r, uint64_t step) {
    struct ckpt_set *set = NULL;
    bool good = false;
    kit_run_stores(r, true);
    assert_int_equal(ckpt_set_open(r->stores, r->ranks, NULL, &set, NULL), PAWL_OK);
    for (uint32_t i = 0; i < ckpt_set_count(set) && !good; i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        good = s->complete && s->step == step && kit_check_step(set, i, NULL) == PAWL_OK;
    }
    ckpt_set_close(set);
    kit_run_close_stores(r);
    return good;
}

static uint64_t newest(struct kit_run *r) {
    kit_run_stores(r, true);
    uint64_t found = kit_newest(r->stores, r->ranks, NULL);
    kit_run_close_stores(r);
    return found;
}

static void go_on(struct kit_run *r, uint64_t from) {
    r->resume = from;
    kit_run_start(r);
    kit_run_save(r, from + 1, UINT32_MAX);
    kit_run_stop(r);
    assert_int_equal(newest(r), from + 1);
}

/* What must read back whatever happens: the step to go back to; for gc, one that had been acknowledged. */
static uint64_t cut_once(enum action action, uint64_t seed, enum history history, uint64_t cut) {
    struct kit_run *r = make(seed, history);
    uint64_t before = newest(r), begin = storesim_ops(r->sim);
    bool back = action <= ROLLBACK_NEWEST;
    uint64_t target = action == ROLLBACK ? TARGET : before;
    uint64_t wanted = action == ROLLBACK ? TARGET : LAST;
    assert_true(before >= LAST);
    if (cut > 0) storesim_stop_after(r->sim, begin + cut);
    pawl_code code = act(r, action, target);
    uint64_t ops = storesim_ops(r->sim) - begin;
    storesim_crash(r->sim);
    uint64_t after = newest(r);
    if (!reads_back(r, wanted) && after <= wanted)
        fail_msg("action %d, seed %" PRIu64 ", cut %" PRIu64 ": step %" PRIu64 " is lost, %" PRIu64
                 " is left",
                 action, seed, cut, wanted, after);
    if (code == PAWL_OK && (back ? after != target : after < before))
        fail_msg("action %d, seed %" PRIu64 ", cut %" PRIu64 ": done, then step %" PRIu64
                 " is the newest, wanted %" PRIu64,
                 action, seed, cut, after, back ? target : before);
    if (action == ROLLBACK_NEWEST) target = after; /* what the cut made of a commit that never was durable */
    code = act(r, action, target);
    if (code != PAWL_OK)
        fail_msg("action %d, seed %" PRIu64 ", cut %" PRIu64 ": cannot be done again: %s", action, seed, cut,
                 pawl_code_name(code));
    storesim_crash(r->sim);
    after = newest(r);
    if (after < wanted || (back && after != target))
        fail_msg("action %d, seed %" PRIu64 ", cut %" PRIu64 ": step %" PRIu64 " is the newest in the end",
                 action, seed, cut, after);
    go_on(r, after);
    kit_run_free(r);
    return ops;
}

static void cut_everywhere(enum action action, enum history history, uint64_t seeds) {
    uint64_t points = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t ops = cut_once(action, seed, history, 0);
        for (uint64_t cut = 1; cut <= ops; cut++, points++) (void)cut_once(action, seed, history, cut);
    }
    print_message("%" PRIu64 " cut points\n", points);
    assert_true(points > 10 * seeds);
}

static void rollback_never_loses_its_step_and_can_be_repeated(void **state) {
    (void)state;
    cut_everywhere(ROLLBACK, CLOSED, 6);
}

static void rollback_after_a_killed_writer_survives_every_cut(void **state) {
    (void)state;
    cut_everywhere(ROLLBACK, KILLED, 9);
}

static void rollback_to_a_commit_that_was_never_flushed_makes_it_durable_first(void **state) {
    (void)state;
    cut_everywhere(ROLLBACK_NEWEST, KILLED_LATE, 12);
}

static void gc_never_loses_the_newest_complete_step(void **state) {
    (void)state;
    cut_everywhere(GC, CLOSED, 6);
    cut_everywhere(GC_KEEP, CLOSED, 6);
}

static void gc_after_a_killed_writer_survives_every_cut(void **state) {
    (void)state;
    cut_everywhere(GC_KEEP, KILLED, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rollback_never_loses_its_step_and_can_be_repeated),
        cmocka_unit_test(rollback_after_a_killed_writer_survives_every_cut),
        cmocka_unit_test(rollback_to_a_commit_that_was_never_flushed_makes_it_durable_first),
        cmocka_unit_test(gc_never_loses_the_newest_complete_step),
        cmocka_unit_test(gc_after_a_killed_writer_survives_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
