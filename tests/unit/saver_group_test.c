/* What src/saver promises of several ranks: which start, who resumes where, when a step is durable, and that
 * nobody waits for a rank that is gone. All ranks live in this process, each with a store of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>

#include "kit/saver_world.h"

/* ---- one rank's file ---- */

static struct group_file sample(void) {
    struct group_file f = {.incarnation = 9, .rank = 2, .rank_count = 5, .durable = 40, .entry_count = 3};
    memset(f.run_id, 0x5a, sizeof f.run_id);
    f.entries[0] = (struct group_entry){40, 0, 2, 1, 3, 2, true, true};
    f.entries[1] = (struct group_entry){50, 0, 2, 1, 3, 2, true, false};
    f.entries[2] = (struct group_entry){60, 1, 2, 0, 1, 1, false, false};
    return f;
}

static void rank_file_reads_back_and_every_flipped_bit_is_refused(void **unused) {
    (void)unused;
    struct group_file f = sample(), back;
    uint8_t bytes[GROUP_FILE_BYTES];
    struct pawl_error why = {0};
    group_encode(&f, bytes);
    assert_int_equal(group_decode(bytes, sizeof bytes, &back, &why), PAWL_OK);
    assert_memory_equal(&back, &f, sizeof f);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit += 3) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(group_decode(bytes, sizeof bytes, &back, &why), PAWL_CORRUPT);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(group_decode(bytes, sizeof bytes - 1, &back, &why), PAWL_CORRUPT);
}

/* ---- judging ---- */

static struct group_file with(struct group_entry a) {
    struct group_file f = {.rank_count = 4, .entry_count = 1};
    f.entries[0] = a;
    return f;
}

static struct group_entry part(uint32_t unit, uint32_t unit_count, uint32_t number, uint32_t of,
                               bool committed) {
    return (struct group_entry){10, unit, unit_count, number, of, 1, committed, false};
}

static void step_is_complete_when_each_unit_has_all_parts_of_one_number(void **unused) {
    (void)unused;
    struct group_file a = with(part(0, 2, 0, 2, true)), b = with(part(0, 2, 1, 2, true)),
                      c = with(part(1, 2, 0, 1, true)), d = with(part(1, 2, 1, 3, true));
    struct group_file *all[] = {&a, &b, &c, NULL}, *no_unit[] = {&a, &b, NULL, NULL},
                      *no_part[] = {&a, NULL, &c, NULL}, *other_number[] = {&a, &b, &d, NULL},
                      *none[] = {NULL, NULL, NULL, NULL};
    assert_int_equal(group_judge(all, 4, 10), GROUP_COMPLETE);
    assert_int_equal(group_judge(all, 4, 11), GROUP_OPEN);
    assert_int_equal(group_judge(no_unit, 4, 10), GROUP_OPEN);
    assert_int_equal(group_judge(no_part, 4, 10), GROUP_OPEN);
    assert_int_equal(group_judge(other_number, 4, 10), GROUP_OPEN);
    assert_int_equal(group_judge(none, 4, 10), GROUP_OPEN);
}

static void part_that_nobody_will_have_gives_the_step_up_and_a_copy_saves_it(void **unused) {
    (void)unused;
    struct group_file a = with(part(0, 1, 0, 2, true)), b = with(part(0, 1, 1, 2, false)),
                      copy = with(part(0, 1, 1, 2, true));
    struct group_file *lost[] = {&a, &b, NULL}, *saved[] = {&a, &b, &copy};
    assert_int_equal(group_judge(lost, 3, 10), GROUP_NEVER);
    b.entries[0].copies = 2; /* somebody else writes it too */
    assert_int_equal(group_judge(lost, 3, 10), GROUP_OPEN);
    assert_int_equal(group_judge(saved, 3, 10), GROUP_COMPLETE);
    copy.entries[0].committed = false;
    copy.entries[0].copies = 2;
    assert_int_equal(group_judge(saved, 3, 10), GROUP_NEVER);
}

/* ---- several ranks ---- */

static uint32_t count_slots(const char *path, uint32_t rank) {
    char folder[512];
    uint32_t count = 0;
    snprintf(folder, sizeof folder, "%s/store/rank-%04u", path, rank);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) count += strncmp(d->d_name, "slot-", 5) == 0;
    closedir(dir);
    return count;
}

static void ranks_agree_on_durable_steps_and_resume_at_the_same_one(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = world_open(path, "a", RANKS, 0);
    assert_int_equal(resume_all(&w), 0);
    for (uint64_t step = 1; step <= 12; step++) save_all(&w, step);
    for (uint32_t i = 0; i < RANKS; i++) assert_int_equal(status_of(&w, i).durable_step, 12);
    world_close(&w);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_true(count_slots(path, i) <= 2 + 1 + 1); /* in flight, kept, spare */
    w = world_open(path, "b", RANKS, 0);
    assert_int_equal(resume_all(&w), 12);
    save_all(&w, 13);
    world_close(&w);
    skit_remove(path);
}

/* Nobody blocks, the step does not count, and what waits is bounded. */
static void step_without_one_rank_is_not_durable_and_the_others_go_on(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = world_open(path, "a", RANKS, 0);
    w.options.in_flight = 2;
    (void)resume_all(&w);
    save_all(&w, 1);
    uint64_t second = save_rank(&w, 0, 2), id = second; /* rank 1 has stopped */
    (void)save_rank(&w, 2, 2);
    skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_wait(w.ranks[0].c, id, PAWL_CKPT_UNTIL_DURABLE, pawl_now(), &why),
                     PAWL_TIMEOUT);
    uint64_t step = 3;
    while (status_of(&w, 0).skipped == 0 && step < 100) {
        id = save_rank(&w, 0, step++);
        if (id != 0) skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
    }
    assert_true(step < 12); /* 2 in flight: 6 wait at most */
    struct pawl_ckpt_event events[64];
    uint32_t count = pawl_ckpt_poll(w.ranks[0].c, events, 64);
    assert_int_equal(events[count - 1].kind, PAWL_CKPT_SKIPPED);
    if (strstr(events[count - 1].text, "rank 1") == NULL)
        fail_msg("does not name rank 1: %s", events[count - 1].text);
    assert_int_equal(status_of(&w, 0).durable_step, 1);
    assert_int_equal(status_of(&w, 2).durable_step, 1);
    /* Rank 1 comes back: what all have counts. */
    uint64_t late = save_rank(&w, 1, 2);
    skit_wait(&w.ranks[1], late, PAWL_CKPT_UNTIL_DURABLE);
    skit_wait(&w.ranks[0], second, PAWL_CKPT_UNTIL_DURABLE); /* it has room again when it has heard, too */
    save_all(&w, 200);
    for (uint32_t i = 0; i < RANKS; i++) assert_int_equal(status_of(&w, i).durable_step, 200);
    world_close(&w);
    skit_remove(path);
}

static void rank_that_fails_or_skips_makes_the_others_give_the_step_up(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = world_open(path, "a", RANKS, 0);
    (void)resume_all(&w);
    save_all(&w, 1);
    uint64_t first = save_rank(&w, 0, 2), second = save_rank(&w, 1, 2);
    /* Rank 2 says that it never will have its part. */
    struct group_entry never = {2, 2, 3, 0, 1, 1, false, false};
    struct group_config config = {
        .run = &w.ranks[2].c->run, .incarnation = w.ranks[2].c->incarnation, .rank = 2, .rank_count = 3};
    struct group *g = NULL;
    SKIT_MUST(group_open(&config, &g, e));
    group_note(g, &never, true);
    group_close(g);
    struct pawl_error why = {0};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(
            pawl_ckpt_wait(w.ranks[i].c, i == 0 ? first : second, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why),
            PAWL_PEER_LOST);
        if (strstr(why.text, "rank 2") == NULL) fail_msg("does not name rank 2: %s", why.text);
        assert_int_equal(status_of(&w, i).durable_step, 1);
    }
    save_all(&w, 3);
    world_close(&w);
    skit_remove(path);
}

/* Nobody waits for what was never begun: a skipped save is told like a failed one. */
static void rank_that_skips_a_save_makes_the_others_give_the_step_up(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = {.path = path, .count = RANKS, .options = {.in_flight = 1}};
    snprintf(w.start, sizeof w.start, "a");
    for (uint32_t i = 0; i < RANKS; i++) open_rank(&w, i);
    (void)resume_all(&w);
    save_all(&w, 1);
    uint64_t id = 1, step = 1;
    while (id != 0) { /* rank 2 runs ahead until nothing more may wait for the others */
        id = save_rank(&w, 2, ++step);
        if (id != 0) skit_wait(&w.ranks[2], id, PAWL_CKPT_UNTIL_COMMITTED);
        assert_true(step < 12);
    }
    struct pawl_error why = {0};
    uint64_t ids[2];
    for (uint32_t i = 0; i < 2; i++) ids[i] = save_rank(&w, i, step);
    for (uint32_t i = 0; i < 2; i++) {
        pawl_code code = pawl_ckpt_wait(w.ranks[i].c, ids[i], PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why);
        assert_string_equal(pawl_code_name(code), pawl_code_name(PAWL_PEER_LOST));
        if (strstr(why.text, "rank 2") == NULL) fail_msg("does not name rank 2: %s", why.text);
    }
    (void)abandon(&w, 2, pawl_now(), &why); /* its older steps are not decided */
    world_close(&w);
    skit_remove(path);
}

/* Written over the file of rank 1, at the same numbers: by a run whose folder was copied, say. */
static void rank_file_of_another_run_tells_nothing(void **unused) {
    (void)unused;
    char *path = skit_folder(), file[512];
    struct world w = world_open(path, "a", 2, 0);
    (void)resume_all(&w);
    save_all(&w, 1);
    struct group_file *f = calloc(1, sizeof *f);
    uint8_t bytes[GROUP_FILE_BYTES];
    struct pawl_error why = {0};
    snprintf(file, sizeof file, "%s/group/rank-0001", path);
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    assert_int_equal(fread(bytes, 1, sizeof bytes, stream), sizeof bytes);
    assert_int_equal(group_decode(bytes, sizeof bytes, f, &why), PAWL_OK);
    f->entries[f->entry_count++] = (struct group_entry){2, 1, 2, 0, 1, 1, true, true};
    for (int own = 0; own < 2; own++) {
        f->run_id[5] ^= 1; /* another run's, then ours again */
        if (own == 0) assert_memory_not_equal(f->run_id, w.ranks[0].c->run.id, sizeof f->run_id);
        group_encode(f, bytes);
        rewind(stream);
        assert_int_equal(fwrite(bytes, 1, sizeof bytes, stream), sizeof bytes);
        assert_int_equal(fflush(stream), 0);
        if (own == 0) {
            uint64_t id = save_rank(&w, 0, 2);
            skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
            assert_int_equal(
                pawl_ckpt_wait(w.ranks[0].c, id, PAWL_CKPT_UNTIL_DURABLE, pawl_now() + SECOND / 10, &why),
                PAWL_TIMEOUT);
        }
    }
    while (status_of(&w, 0).durable_step != 2) sched_yield(); /* the same words of our own run are believed */
    fclose(stream);
    free(f);
    world_close(&w);
    skit_remove(path);
}

static void with_two_copies_a_step_counts_without_any_one_rank(void **unused) {
    (void)unused;
    char *path = skit_folder(), gone[512];
    struct world w = world_open(path, "a", RANKS, 2);
    (void)resume_all(&w);
    save_all(&w, 1);
    uint64_t a = save_rank(&w, 0, 2), c = save_rank(&w, 2, 2);
    skit_wait(&w.ranks[0], a, PAWL_CKPT_UNTIL_DURABLE);
    skit_wait(&w.ranks[2], c, PAWL_CKPT_UNTIL_DURABLE);
    world_close(&w);
    /* And it is loaded without any one store. */
    snprintf(gone, sizeof gone, "%s/store/rank-0002", path);
    assert_int_equal(nftw(gone, skit_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    w = world_open(path, "b", RANKS, 2);
    assert_int_equal(resume_all(&w), 1); /* step 2 lived on ranks 0 and 2; rank 1's older copy remains */
    world_close(&w);
    skit_remove(path);
}

/* With copies a step is whole without rank 2; but what rank 2 is still to read must not be pushed out by it.
 */
static void nothing_becomes_durable_before_the_slowest_rank_has_resumed(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = world_open(path, "a", RANKS, 2);
    (void)resume_all(&w);
    save_all(&w, 1);
    world_close(&w);
    w = world_open(path, "b", RANKS, 2);
    uint64_t ids[2], step = 0;
    struct pawl_error why = {0};
    for (uint32_t i = 0; i < 2; i++) SKIT_MUST(pawl_ckpt_resume(w.ranks[i].c, w.ranks[i].state, &step, e));
    for (uint64_t next = 2; next <= 4; next++) {
        for (uint32_t i = 0; i < 2; i++) ids[i] = save_rank(&w, i, next);
        for (uint32_t i = 0; i < 2; i++) skit_wait(&w.ranks[i], ids[i], PAWL_CKPT_UNTIL_COMMITTED);
    }
    assert_int_equal(
        pawl_ckpt_wait(w.ranks[0].c, ids[0], PAWL_CKPT_UNTIL_DURABLE, pawl_now() + SECOND / 10, &why),
        PAWL_TIMEOUT);
    assert_int_equal(status_of(&w, 0).durable_step, 1);
    SKIT_MUST(pawl_ckpt_resume(w.ranks[2].c, w.ranks[2].state, &step, e));
    assert_int_equal(step, 1);
    assert_true(skit_is(w.ranks[2].memory, 1));
    for (uint32_t i = 0; i < 2; i++) skit_wait(&w.ranks[i], ids[i], PAWL_CKPT_UNTIL_DURABLE);
    world_close(&w);
    skit_remove(path);
}

static void other_number_of_ranks_resumes_with_its_own_slices(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = world_open(path, "a", RANKS, 0);
    (void)resume_all(&w);
    save_all(&w, 1);
    save_all(&w, 2);
    world_close(&w);
    w = world_open(path, "b", 2, 0);
    assert_int_equal(resume_all(&w), 2);
    save_all(&w, 3);
    world_close(&w);
    w = world_open(path, "c", 1, 0);
    assert_int_equal(resume_all(&w), 3);
    save_all(&w, 4);
    world_close(&w);
    w = world_open(path, "d", RANKS, 0);
    assert_int_equal(resume_all(&w), 4);
    world_close(&w);
    skit_remove(path);
}

/* ---- starts ---- */

static pawl_code try_open(const char *path, const char *start, uint32_t rank, uint32_t count,
                          struct pawl_error *why) {
    struct pawl_ckpt *c = NULL;
    struct pawl_ckpt_options o = {.path = path, .start = start, .rank = rank, .rank_count = count};
    pawl_code code = pawl_ckpt_open(&o, &c, why);
    if (code == PAWL_OK) SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    return code;
}

static void several_ranks_need_a_name_for_their_start(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    static const char *const names[] = {"PAWL_START", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    for (size_t i = 0; i < 3; i++) unsetenv(names[i]);
    assert_int_equal(try_open(path, NULL, 0, 2, &why), PAWL_ARGUMENT);
    assert_non_null(strstr(why.text, "PAWL_START"));
    assert_int_equal(try_open(path, "two\nlines", 0, 2, &why), PAWL_ARGUMENT);
    assert_int_equal(try_open(path, "", 0, 2, &why), PAWL_ARGUMENT);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    assert_int_equal(try_open(path, NULL, 0, 2, &why), PAWL_ARGUMENT);
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 3; k++) unsetenv(names[k]);
        setenv(names[i], "job", 1);
        assert_int_equal(try_open(path, NULL, 0, 2, &why), PAWL_OK);
    }
    for (size_t k = 0; k < 3; k++) unsetenv(names[k]);
    assert_int_equal(try_open(path, NULL, 0, 1, &why), PAWL_OK); /* one rank needs none */
    skit_remove(path);
}

static void name_of_a_start_that_saved_before_is_refused(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    struct world w = world_open(path, "a", 2, 0);
    (void)resume_all(&w);
    assert_int_equal(try_open(path, "a", 0, 3, &why), PAWL_BUSY);
    save_all(&w, 1);
    world_close(&w);
    assert_int_equal(try_open(path, "a", 1, 2, &why), PAWL_ARGUMENT);
    assert_non_null(strstr(why.text, "new name"));
    assert_int_equal(try_open(path, "b", 1, 2, &why), PAWL_OK);
    assert_int_equal(try_open(path, "b", 0, 3, &why), PAWL_ARGUMENT); /* another number of ranks */
    skit_remove(path);
}

static void *open_as_thread(void *arg) {
    struct {
        struct world *w;
        uint32_t rank;
    } *a = arg;
    open_rank(a->w, a->rank);
    return NULL;
}

static void ranks_that_come_at_once_get_one_incarnation_and_later_starts_larger_ones(void **unused) {
    (void)unused;
    char *path = skit_folder();
    uint64_t before = 0;
    /* The thread sanitizer cannot see that the kernel orders uses of a ring's memory by different threads. */
    setenv("PAWL_STORE", "plain", 1);
    for (uint32_t round = 0; round < 10; round++) {
        struct world w = {.path = path, .count = RANKS};
        struct {
            struct world *w;
            uint32_t rank;
        } args[RANKS];
        pthread_t threads[RANKS];
        snprintf(w.start, sizeof w.start, "round %u", round);
        for (uint32_t i = 0; i < RANKS; i++) {
            args[i].w = &w;
            args[i].rank = i;
            assert_int_equal(pthread_create(&threads[i], NULL, open_as_thread, &args[i]), 0);
        }
        for (uint32_t i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
        for (uint32_t i = 1; i < RANKS; i++)
            assert_int_equal(w.ranks[i].c->incarnation, w.ranks[0].c->incarnation);
        assert_true(w.ranks[0].c->incarnation > before);
        before = w.ranks[0].c->incarnation;
        assert_int_equal(resume_all(&w), round);
        save_all(&w, round + 1);
        world_close(&w);
    }
    char starts[512];
    skit_join(starts, sizeof starts, path, "starts");
    DIR *dir = opendir(starts);
    uint32_t files = 0;
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) files += d->d_name[0] != '.';
    closedir(dir);
    assert_int_equal(files, 2); /* the newest start and its decision */
    unsetenv("PAWL_STORE");
    skit_remove(path);
}

/* A rank of an earlier start that is still alive declares nothing any more. */
static void step_of_an_overtaken_start_does_not_become_durable(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world old = world_open(path, "old", 2, 0);
    (void)resume_all(&old);
    save_all(&old, 1);
    uint64_t id = save_rank(&old, 0, 2);
    skit_wait(&old.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
    struct saver_run run;
    struct start start;
    struct run_open how = {.must_exist = true};
    SKIT_MUST(run_open(path, &how, &run, e));
    /* Another start comes and takes its number, while rank 1 has not committed. */
    SKIT_MUST(run_make(&run, "starts", "999", "pawl start 1\nranks 2\ntoken new\n", e));
    uint64_t late = save_rank(&old, 1, 2);
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_wait(old.ranks[1].c, late, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why),
                     PAWL_BUSY);
    assert_non_null(strstr(why.text, "start 999"));
    assert_int_equal(pawl_ckpt_wait(old.ranks[0].c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why),
                     PAWL_BUSY);
    assert_int_equal(status_of(&old, 0).durable_step, 1);
    assert_int_equal(
        pawl_ckpt_save(old.ranks[0].c,
                       &(struct pawl_ckpt_save){.state = old.ranks[0].state, .step = 3, .unit_count = 2},
                       NULL, &why),
        PAWL_BUSY);
    for (uint32_t i = 0; i < 2; i++) {
        (void)pawl_ckpt_close(old.ranks[i].c, skit_soon(), &why);
        skit_state_free(old.ranks[i].memory);
    }
    (void)start;
    run_close(&run);
    skit_remove(path);
}

static void damage_met_by_one_rank_sends_the_next_start_to_an_older_step(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct world w = {.path = path, .count = 2, .options = {.keep = 3}};
    snprintf(w.start, sizeof w.start, "a");
    for (uint32_t i = 0; i < 2; i++) open_rank(&w, i);
    (void)resume_all(&w);
    for (uint64_t step = 1; step <= 3; step++) save_all(&w, step);
    world_close(&w);
    struct pawl_ckpt_reader *reader = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    assert_int_equal(pawl_ckpt_reader_step(reader, pawl_ckpt_reader_newest(reader)).step, 3);
    pawl_ckpt_reader_close(reader);
    /* Rank 1's data of step 3 lie in the last slot it wrote. */
    char command[600];
    snprintf(command, sizeof command,
             "f=$(grep -l '\"pawl.step\":\"3\"' '%s'/store/rank-0001/slot-*) && "
             "printf 'XXXXXXXX' | dd of=\"$f\" bs=1 seek=8192 conv=notrunc status=none",
             path);
    assert_int_equal(system(command), 0);
    snprintf(w.start, sizeof w.start, "b");
    for (uint32_t i = 0; i < 2; i++) open_rank(&w, i);
    uint64_t step = 0;
    struct pawl_error why = {0};
    SKIT_MUST(pawl_ckpt_resume(w.ranks[0].c, w.ranks[0].state, &step, e));
    assert_int_equal(step, 3);
    assert_int_equal(pawl_ckpt_resume(w.ranks[1].c, w.ranks[1].state, &step, &why), PAWL_CORRUPT);
    assert_non_null(strstr(why.text, "marked bad"));
    world_close(&w);
    snprintf(w.start, sizeof w.start, "c");
    for (uint32_t i = 0; i < 2; i++) open_rank(&w, i);
    assert_int_equal(resume_all(&w), 2);
    save_all(&w, 3);
    world_close(&w);
    snprintf(w.start, sizeof w.start, "d");
    for (uint32_t i = 0; i < 2; i++) open_rank(&w, i);
    assert_int_equal(resume_all(&w), 3); /* saved again by a later start: not what was marked */
    world_close(&w);
    skit_remove(path);
}

/* ---- a coordinator instead of files ---- */

struct coordinator { /* counts what ranks tell it; a stand-in for one behind a network */
    pthread_mutex_t mutex;
    uint32_t committed[16], failed[16], files_touched;
};
struct member {
    struct coordinator *all;
    uint64_t durable_told, given_up_told;
};

static void tell_committed(void *context, uint64_t step) {
    struct coordinator *all = ((struct member *)context)->all;
    pthread_mutex_lock(&all->mutex);
    all->committed[step]++;
    pthread_mutex_unlock(&all->mutex);
}

static void tell_failed(void *context, uint64_t step) {
    struct coordinator *all = ((struct member *)context)->all;
    pthread_mutex_lock(&all->mutex);
    all->failed[step]++;
    pthread_mutex_unlock(&all->mutex);
}

static bool ask(void *context, uint64_t *durable, uint64_t *given_up) {
    struct member *m = context;
    *durable = *given_up = 0;
    pthread_mutex_lock(&m->all->mutex);
    for (uint64_t step = 1; step < 16; step++) {
        if (m->all->committed[step] == 2) *durable = step;
        if (m->all->failed[step] > 0 && step > m->given_up_told && *given_up == 0) *given_up = step;
    }
    pthread_mutex_unlock(&m->all->mutex);
    if (*given_up != 0) m->given_up_told = *given_up;
    bool news = *durable > m->durable_told || *given_up != 0;
    m->durable_told = *durable;
    return news;
}

static void coordinator_decides_instead_of_files(void **unused) {
    (void)unused;
    char *path = skit_folder(), group_folder[512];
    struct coordinator all = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct member members[2] = {{.all = &all}, {.all = &all}};
    struct world w = {.path = path, .count = 2};
    for (uint32_t i = 0; i < 2; i++) {
        struct pawl_ckpt_group table = {&members[i], tell_committed, tell_failed, ask, 1, 0};
        w.options.group = &table;
        open_rank(&w, i);
    }
    assert_int_equal(resume_all(&w), 0);
    save_all(&w, 1);
    uint64_t id = save_rank(&w, 0, 2);
    skit_wait(&w.ranks[0], id, PAWL_CKPT_UNTIL_COMMITTED);
    tell_failed(&members[1], 2);
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_wait(w.ranks[0].c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why),
                     PAWL_PEER_LOST);
    save_all(&w, 3);
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(status_of(&w, i).durable_step, 3);
    world_close(&w);
    skit_join(group_folder, sizeof group_folder, path, "group");
    assert_int_not_equal(access(group_folder, F_OK), 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct pawl_ckpt_group table = {&members[i], tell_committed, tell_failed, ask, 2, 3};
        w.options.group = &table;
        open_rank(&w, i);
    }
    assert_int_equal(resume_all(&w), 3);
    world_close(&w);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_file_reads_back_and_every_flipped_bit_is_refused),
        cmocka_unit_test(step_is_complete_when_each_unit_has_all_parts_of_one_number),
        cmocka_unit_test(part_that_nobody_will_have_gives_the_step_up_and_a_copy_saves_it),
        cmocka_unit_test(ranks_agree_on_durable_steps_and_resume_at_the_same_one),
        cmocka_unit_test(step_without_one_rank_is_not_durable_and_the_others_go_on),
        cmocka_unit_test(rank_that_fails_or_skips_makes_the_others_give_the_step_up),
        cmocka_unit_test(rank_that_skips_a_save_makes_the_others_give_the_step_up),
        cmocka_unit_test(rank_file_of_another_run_tells_nothing),
        cmocka_unit_test(with_two_copies_a_step_counts_without_any_one_rank),
        cmocka_unit_test(nothing_becomes_durable_before_the_slowest_rank_has_resumed),
        cmocka_unit_test(other_number_of_ranks_resumes_with_its_own_slices),
        cmocka_unit_test(several_ranks_need_a_name_for_their_start),
        cmocka_unit_test(name_of_a_start_that_saved_before_is_refused),
        cmocka_unit_test(ranks_that_come_at_once_get_one_incarnation_and_later_starts_larger_ones),
        cmocka_unit_test(step_of_an_overtaken_start_does_not_become_durable),
        cmocka_unit_test(damage_met_by_one_rank_sends_the_next_start_to_an_older_step),
        cmocka_unit_test(coordinator_decides_instead_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
