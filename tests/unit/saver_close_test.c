/* A program of several ranks that ends well has its last step: what closing waits for, and what it returns
 * when a rank is late, gone, or could not save. All ranks live in this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "kit/saver_world.h"

static void assert_says(pawl_code code, pawl_code wanted, const struct pawl_error *why, const char *one,
                        const char *other) {
    if (code != wanted || strstr(why->text, one) == NULL || strstr(why->text, other) == NULL)
        fail_msg("wanted %s with '%s' and '%s', had %s: %s", pawl_code_name(wanted), one, other,
                 pawl_code_name(code), code != PAWL_OK ? why->text : "");
}

static void *save_last_as_thread(void *arg) {
    (void)save_rank(arg, 1, 2);
    return NULL;
}

static void close_waits_until_the_others_have_the_last_step(void **unused) {
    (void)unused;
    char *path = skit_folder();
    setenv("PAWL_STORE", "plain", 1); /* a ring must not be used by two threads that the sanitizer sees */
    struct world w = world_open(path, "a", 2, 0);
    (void)resume_all(&w);
    save_all(&w, 1);
    (void)save_rank(&w, 0, 2);
    pthread_t late;
    assert_int_equal(pthread_create(&late, NULL, save_last_as_thread, &w), 0);
    skit_close(&w.ranks[0]);
    pthread_join(late, NULL);
    world_close(&w);
    unsetenv("PAWL_STORE");
    w = world_open(path, "b", 2, 0);
    assert_int_equal(resume_all(&w), 2);
    world_close(&w);
    skit_remove(path);
}

static void close_names_the_step_and_the_rank_it_waited_for_in_vain(void **unused) {
    (void)unused;
    for (int forever = 0; forever < 2; forever++) {
        char *path = skit_folder();
        struct world w = world_open(path, "a", RANKS, 0);
        (void)resume_all(&w);
        save_all(&w, 1);
        for (uint32_t rank = 0; rank < RANKS; rank += 2)
            skit_wait(&w.ranks[rank], save_rank(&w, rank, 2), PAWL_CKPT_UNTIL_COMMITTED);
        for (uint32_t rank = 0; rank < RANKS; rank += 2) {
            struct pawl_error why = {0};
            w.ranks[rank].c->patience_ns = SECOND / 10;
            int64_t deadline = forever ? PAWL_FOREVER : pawl_now() + SECOND / 10;
            pawl_code code = abandon(&w, rank, deadline, &why);
            assert_says(code, forever ? PAWL_PEER_LOST : PAWL_TIMEOUT, &why, "step 2", "for rank 1");
            assert_null(strstr(why.text, "rank 1,"));
        }
        world_close(&w); /* rank 1 has nothing undecided */
        skit_remove(path);
    }
}

/* In its file, as rank 2's process would say. */
static void never(const struct world *w, const uint64_t *steps, uint32_t count) {
    struct group_config config = {
        .run = &w->ranks[0].c->run, .incarnation = w->ranks[0].c->incarnation, .rank = 2, .rank_count = 3};
    struct group *g = NULL;
    SKIT_MUST(group_open(&config, &g, e));
    for (uint32_t i = 0; i < count; i++) {
        struct group_entry entry = {steps[i], 2, 3, 0, 1, 1, false, false};
        group_note(g, &entry, i + 1 == count);
    }
    group_close(g);
}

static void step_that_another_rank_could_not_save_is_an_error_of_the_next_save_and_of_close(void **unused) {
    (void)unused;
    static const uint64_t steps[] = {2, 3};
    for (uint32_t tolerate = 0; tolerate < 3; tolerate++) {
        char *path = skit_folder();
        struct world w = {.path = path, .count = RANKS, .options = {.tolerate = tolerate}};
        snprintf(w.start, sizeof w.start, "a");
        for (uint32_t i = 0; i < RANKS; i++) open_rank(&w, i);
        (void)resume_all(&w);
        save_all(&w, 1);
        (void)save_rank(&w, 0, 2);
        (void)save_rank(&w, 0, 3);
        never(&w, steps, 2);
        while (status_of(&w, 0).failed < 2) sched_yield();
        assert_int_equal(status_of(&w, 0).failed_in_row, 2);
        struct pawl_error why = {0};
        struct pawl_ckpt_save save = {.state = w.ranks[0].state, .step = 4, .unit_count = RANKS};
        if (tolerate < 2) /* of the two the one that was committed here last: saves may overtake each other */
            assert_says(pawl_ckpt_save(w.ranks[0].c, &save, NULL, &why), PAWL_PEER_LOST, &why, "step",
                        "rank 2");
        assert_says(abandon(&w, 0, skit_soon(), &why), tolerate == 0 ? PAWL_OK : PAWL_PEER_LOST, &why, "step",
                    "rank 2");
        world_close(&w);
        skit_remove(path);
    }
}

static void tolerated_loss_of_a_peer_is_forgotten_with_a_later_durable_step(void **unused) {
    (void)unused;
    static const uint64_t step = 2;
    char *path = skit_folder();
    struct world w = {.path = path, .count = RANKS, .options = {.tolerate = 1}};
    snprintf(w.start, sizeof w.start, "a");
    for (uint32_t i = 0; i < RANKS; i++) open_rank(&w, i);
    (void)resume_all(&w);
    for (uint32_t i = 0; i < 2; i++) (void)save_rank(&w, i, 2);
    never(&w, &step, 1);
    for (uint32_t i = 0; i < 2; i++)
        while (status_of(&w, i).failed_in_row < 1) sched_yield();
    save_all(&w, 3);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(status_of(&w, i).failed_in_row, 0);
    world_close(&w);
    skit_remove(path);
}

/* News come late: an older step that becomes durable does not make up for a newer one that was lost. */
static void loss_of_the_last_step_outlives_the_older_one_that_becomes_durable_after_it(void **unused) {
    (void)unused;
    static const uint64_t lost = 3;
    char *path = skit_folder();
    struct world w = {.path = path, .count = RANKS, .options = {.tolerate = 1}};
    snprintf(w.start, sizeof w.start, "a");
    for (uint32_t i = 0; i < RANKS; i++) open_rank(&w, i);
    (void)resume_all(&w);
    uint64_t id = save_rank(&w, 0, 2);
    (void)save_rank(&w, 0, lost);
    never(&w, &lost, 1);
    while (status_of(&w, 0).failed < 1) sched_yield();
    for (uint32_t i = 1; i < RANKS; i++) (void)save_rank(&w, i, 2);
    skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_DURABLE);
    struct pawl_error why = {0};
    assert_says(abandon(&w, 0, skit_soon(), &why), PAWL_PEER_LOST, &why, "step 3", "rank 2");
    world_close(&w);
    skit_remove(path);
}

static void saves_skipped_at_the_end_because_of_another_rank_are_returned_by_close(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = {.path = path, .count = 2, .options = {.in_flight = 1}};
    snprintf(w.start, sizeof w.start, "a");
    for (uint32_t i = 0; i < 2; i++) open_rank(&w, i);
    (void)resume_all(&w);
    uint64_t id = 1, last = 0, ids[16];
    while (id != 0) {
        ids[last] = id = save_rank(&w, 0, last + 1);
        last++;
        if (id != 0) skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
        assert_true(last < 12);
    }
    /* Rank 1 comes after all with what rank 0 has; only the skipped step is lost. */
    for (uint64_t step = 1; step < last; step++) (void)save_rank(&w, 1, step);
    skit_wait(&w.ranks[0], ids[last - 2], PAWL_CKPT_UNTIL_DURABLE);
    struct pawl_error why = {0};
    char step[32];
    snprintf(step, sizeof step, "step %" PRIu64 " was skipped", last);
    assert_says(abandon(&w, 0, skit_soon(), &why), PAWL_PEER_LOST, &why, step, "rank 1");
    world_close(&w);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_waits_until_the_others_have_the_last_step),
        cmocka_unit_test(close_names_the_step_and_the_rank_it_waited_for_in_vain),
        cmocka_unit_test(step_that_another_rank_could_not_save_is_an_error_of_the_next_save_and_of_close),
        cmocka_unit_test(tolerated_loss_of_a_peer_is_forgotten_with_a_later_durable_step),
        cmocka_unit_test(loss_of_the_last_step_outlives_the_older_one_that_becomes_durable_after_it),
        cmocka_unit_test(saves_skipped_at_the_end_because_of_another_rank_are_returned_by_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
