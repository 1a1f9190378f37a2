/* Promise 1 on the simulated disk: a scenario of overlapping saves is cut at EVERY mutating operation, with
 * many draws of what an unflushed disk keeps; then the step that was last acknowledged by all parts, or a
 * newer one, must read back byte for byte, no wrong byte may ever be returned, and the run must be able to go
 * on from there.
 *
 * A scenario is a history of lives: each opens the stores of all parts, resumes from the newest complete
 * step, saves some steps in several parts with several in flight, in place or staged through a pool of one
 * chunk or more, and ends by a close, a process kill or the power cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kit/ckpt_kit.h"

#define PARTS_MAX 3u
#define STEPS_MAX 64u

enum staging { IN_PLACE, STAGED, MIXED };

struct scenario {
    uint32_t in_flight, keep, parts, lives, steps_per_life;
    enum staging staging;
    uint32_t pool_blocks; /* 0: as the kit has it */
    struct storesim_faults faults;
};

struct world {
    struct scenario scenario;
    struct storesim *sim;
    struct store *stores[PARTS_MAX];
    struct ckpt *engines[PARTS_MAX];
    struct kit_part *buffers[PARTS_MAX][STEPS_MAX]; /* stay put until reported */
    uint64_t saved[PARTS_MAX][STEPS_MAX];           /* incarnation that committed this part */
    uint64_t incarnation, next_step[PARTS_MAX];
    uint64_t acknowledged; /* newest step committed by all parts of one incarnation */
    struct rng_stream random;
    bool broken; /* something failed: the cut, or an injected fault */
};

static void folder_name(uint32_t part, char out[8]) { snprintf(out, 8, "r%u", part % 10); }

static bool open_stores(struct world *w) {
    for (uint32_t p = 0; p < w->scenario.parts; p++) {
        char folder[8];
        folder_name(p, folder);
        if (storesim_open(w->sim, folder, false, &w->stores[p], NULL) != PAWL_OK) return false;
    }
    return true;
}

static void drop_buffers(struct world *w) {
    for (uint32_t p = 0; p < PARTS_MAX; p++)
        for (uint32_t step = 0; step < STEPS_MAX; step++) {
            kit_part_free(w->buffers[p][step]);
            w->buffers[p][step] = NULL;
        }
}

/* The process dies: operations under way may or may not have happened. */
static void kill_world(struct world *w) {
    for (uint32_t p = 0; p < w->scenario.parts; p++) {
        if (w->stores[p] == NULL) continue;
        storesim_freeze(w->sim, w->stores[p]);
        (void)ckpt_close(w->engines[p], 0, NULL);
        w->engines[p] = NULL;
        storesim_kill(w->sim, w->stores[p]);
        w->stores[p] = NULL;
    }
    drop_buffers(w);
}

static void close_world(struct world *w) {
    for (uint32_t p = 0; p < w->scenario.parts; p++) {
        if (ckpt_close(w->engines[p], kit_soon(), NULL) != PAWL_OK) w->broken = true;
        w->engines[p] = NULL;
        store_close(w->stores[p]);
        w->stores[p] = NULL;
    }
    drop_buffers(w);
}

static void begin_saves(struct world *w, uint32_t p, uint64_t last) {
    while (w->next_step[p] <= last && ckpt_in_flight(w->engines[p]) < w->scenario.in_flight) {
        uint64_t step = w->next_step[p]++;
        w->buffers[p][step] = kit_part_new(step, p, w->scenario.parts);
        struct ckpt_save save = kit_save(w->buffers[p][step], step, p, w->scenario.parts);
        enum staging staging = w->scenario.staging;
        save.staged = save.want_captured = staging == STAGED || (staging == MIXED && step % 3 > 0);
        assert_int_equal(ckpt_save_begin(w->engines[p], &save, NULL), PAWL_OK);
    }
}

/* The group's rule: durable once every part of one incarnation is. */
static void note_commit(struct world *w, uint32_t part, uint64_t step) {
    w->saved[part][step] = w->incarnation;
    for (uint32_t p = 0; p < w->scenario.parts; p++)
        if (w->saved[p][step] != w->incarnation) return;
    if (step <= w->acknowledged) return;
    w->acknowledged = step;
    for (uint32_t p = 0; p < w->scenario.parts; p++)
        if (w->engines[p] != NULL) ckpt_durable(w->engines[p], step);
}

static void poll_part(struct world *w, uint32_t p) {
    struct ckpt_event event;
    if (ckpt_poll(w->engines[p], &event, 1) == 0) {
        ckpt_wait(w->engines[p], 1);
        return;
    }
    kit_part_free(w->buffers[p][event.step]); /* captured: it is ours again */
    w->buffers[p][event.step] = NULL;
    if (event.kind == CKPT_CAPTURED) return;
    if (event.code == PAWL_OK)
        note_commit(w, p, event.step);
    else if (event.code != PAWL_CANCELLED || event.step >= w->acknowledged)
        w->broken = true;
}

static uint64_t unreported(const struct world *w, uint64_t last) {
    uint64_t count = 0;
    for (uint32_t p = 0; p < w->scenario.parts; p++)
        count += ckpt_in_flight(w->engines[p]) + (last + 1 - w->next_step[p]);
    return count;
}

/* One life up to its planned end, or until something breaks, or for that many turns. False: could not even
 * open. */
static bool live(struct world *w, uint64_t resume, bool stop_when_broken, uint64_t turns) {
    w->incarnation++;
    for (uint32_t p = 0; p < w->scenario.parts; p++) {
        struct ckpt_config config =
            kit_config(w->incarnation, resume, w->scenario.in_flight, w->scenario.keep);
        if (w->scenario.pool_blocks > 0)
            config.staging_bytes = (uint64_t)w->scenario.pool_blocks * STORE_BLOCK;
        if (ckpt_open(&config, w->stores[p], &w->engines[p], NULL) != PAWL_OK) return false;
        w->next_step[p] = resume + 1;
    }
    uint64_t last = resume + w->scenario.steps_per_life;
    assert_true(last < STEPS_MAX);
    for (; unreported(w, last) > 0 && !(w->broken && stop_when_broken) && turns > 0; turns--) {
        uint32_t p = (uint32_t)rng_below(&w->random, w->scenario.parts);
        begin_saves(w, p, last);
        poll_part(w, p);
    }
    return true;
}

/* What is on the disk now must hold the last acknowledged step or a newer one. Returns the newest. */
static uint64_t recover(struct world *w, uint64_t seed, uint64_t cut) {
    struct store *readers[PARTS_MAX] = {0};
    uint32_t count = 0, damaged = 0;
    for (uint32_t p = 0; p < w->scenario.parts; p++) {
        char folder[8];
        folder_name(p, folder);
        if (storesim_open(w->sim, folder, true, &readers[count], NULL) == PAWL_OK) count++;
    }
    uint64_t newest = count > 0 ? kit_newest(readers, count, &damaged) : 0;
    for (uint32_t i = 0; i < count; i++) store_close(readers[i]);
    if (newest < w->acknowledged)
        fail_msg("seed %" PRIu64 ", cut %" PRIu64 ": step %" PRIu64 " was acknowledged, %" PRIu64
                 " was recovered",
                 seed, cut, w->acknowledged, newest);
    if (damaged > 0)
        fail_msg("seed %" PRIu64 ", cut %" PRIu64 ": a complete step does not read back", seed, cut);
    return newest;
}

/* Lives of the scenario one after the other; `cut` 0: none. True when the cut was reached. */
static bool run(struct world *w, uint64_t seed, uint64_t cut) {
    if (cut > 0) storesim_stop_after(w->sim, cut);
    uint64_t resume = 0;
    for (uint32_t life = 0; life < w->scenario.lives; life++) {
        bool killed = life % 2 == 1; /* in the middle of everything */
        uint64_t turns = killed ? 1 + rng_below(&w->random, 40 * w->scenario.parts) : UINT64_MAX;
        bool opened = open_stores(w) && live(w, resume, cut > 0, turns);
        if (!opened || (w->broken && cut > 0)) return true;
        if (killed)
            kill_world(w);
        else
            close_world(w);
        if (cut > 0 && (w->broken || storesim_ops(w->sim) >= cut)) return true; /* maybe nobody noticed yet */
        resume = recover(w, seed, cut);
    }
    return false;
}

static void world_begin(struct world *w, const struct scenario *scenario, uint64_t seed) {
    *w = (struct world){.scenario = *scenario, .sim = storesim_new(seed), .random = {seed * 77 + 1}};
    storesim_set_faults(w->sim, scenario->faults);
}

/* Cut, power loss, recovery, and two more lives on what is left. */
static bool cut_once(const struct scenario *scenario, uint64_t seed, uint64_t cut) {
    static struct world w;
    world_begin(&w, scenario, seed);
    bool reached = run(&w, seed, cut);
    kill_world(&w);
    storesim_crash(w.sim);
    uint64_t resume = recover(&w, seed, cut);
    storesim_set_faults(w.sim, (struct storesim_faults){0});
    w.broken = false;
    w.scenario.steps_per_life = 3;
    for (int more = 0; more < 2; more++) {
        if (!open_stores(&w) || !live(&w, resume, false, UINT64_MAX) || w.broken)
            fail_msg("seed %" PRIu64 ", cut %" PRIu64 ": cannot go on after recovery", seed, cut);
        close_world(&w);
        if (more == 1) storesim_crash(w.sim);
        uint64_t newest = recover(&w, seed, cut);
        assert_int_equal(newest, resume + 3);
        resume = newest;
    }
    storesim_free(w.sim);
    return reached;
}

static uint64_t count_ops(const struct scenario *scenario, uint64_t seed) {
    static struct world w;
    world_begin(&w, scenario, seed);
    (void)run(&w, seed, 0);
    uint64_t ops = storesim_ops(w.sim);
    kill_world(&w);
    storesim_free(w.sim);
    return ops;
}

static void cut_everywhere(const struct scenario *scenario, uint64_t seeds) {
    uint64_t points = 0, reached = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t ops = count_ops(scenario, seed);
        for (uint64_t cut = 1; cut <= ops; cut++, points++) reached += cut_once(scenario, seed, cut);
    }
    static const char *const how[] = {"in place", "staged", "mixed"};
    print_message("in flight %u, kept %u, parts %u, %s: %" PRIu64 " cut points\n", scenario->in_flight,
                  scenario->keep, scenario->parts, how[scenario->staging], points);
    assert_true(reached >= points - seeds); /* only the very last operation lets a history end by itself */
}

static void one_save_at_a_time_survives_every_cut(void **state) {
    (void)state;
    for (int staging = IN_PLACE; staging <= STAGED; staging++) {
        struct scenario scenario = {.in_flight = 1,
                                    .keep = 1,
                                    .parts = 1,
                                    .lives = 4,
                                    .steps_per_life = 5,
                                    .staging = (enum staging)staging};
        cut_everywhere(&scenario, 2);
    }
}

static void overlapping_saves_survive_every_cut(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= 8; n++) {
        struct scenario scenario = {.in_flight = n,
                                    .keep = 1 + n % 2,
                                    .parts = 1,
                                    .lives = 3,
                                    .steps_per_life = 4 + n / 2,
                                    .staging = n < 4        ? IN_PLACE
                                               : n % 2 == 0 ? STAGED
                                                            : MIXED,
                                    .pool_blocks = n % 3 == 0 ? 1 : 8,
                                    .faults = {.delay = 300000}};
        cut_everywhere(&scenario, 2);
    }
}

static void parts_in_several_stores_survive_every_cut(void **state) {
    (void)state;
    for (uint32_t parts = 2; parts <= 3; parts++) {
        struct scenario scenario = {.in_flight = 2,
                                    .keep = 1,
                                    .parts = parts,
                                    .lives = 3,
                                    .steps_per_life = 4,
                                    .staging = MIXED,
                                    .pool_blocks = parts,
                                    .faults = {.delay = 300000}};
        cut_everywhere(&scenario, 2);
    }
}

/* Devices that also fail by themselves, before the power goes. */
static void failing_devices_survive_every_cut(void **state) {
    (void)state;
    struct scenario scenario = {
        .in_flight = 2,
        .keep = 1,
        .parts = 1,
        .lives = 1,
        .steps_per_life = 12,
        .faults = {.write_eio = 20000, .flush_eio = 40000, .no_space = 20000, .delay = 300000}};
    uint64_t points = 0;
    for (uint64_t seed = 1; seed <= 100; seed++)
        for (uint64_t cut = 1 + seed % 7; cut < 120; cut += 7, points++) {
            static struct world w;
            scenario.staging = (enum staging)(seed % 3);
            world_begin(&w, &scenario, seed);
            storesim_stop_after(w.sim, cut);
            if (open_stores(&w)) (void)live(&w, 0, false, UINT64_MAX);
            kill_world(&w);
            storesim_crash(w.sim);
            (void)recover(&w, seed, cut);
            storesim_free(w.sim);
        }
    print_message("failing devices: %" PRIu64 " cut points\n", points);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_save_at_a_time_survives_every_cut),
        cmocka_unit_test(overlapping_saves_survive_every_cut),
        cmocka_unit_test(parts_in_several_stores_survive_every_cut),
        cmocka_unit_test(failing_devices_survive_every_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
