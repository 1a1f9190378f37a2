/* A whole cluster in one process from one seed: the real coordinator, conduct, planner, workers, executor,
 * reduction and checkpoint engine over a simulated network, disk, launcher and clock (storm_*.h). Messages
 * between workers are late, overtake each other, and now and then come twice. In the first phase workers are
 * killed (two at once, too), stopped, cut off, told to leave; others come, also to new places; the
 * coordinator is killed and replaced, or stopped; disks fail or are stuck, and the power goes; some failures
 * come in the middle of a fence, a plan, a search, a copy or a save. Then comes a quiet phase in which the
 * run must finish. Checked all the time: every final version of every chunk that anybody holds has the bits
 * of an undisturbed reference, no step announced as durable is ever lost, no contribution counts twice, and
 * none that somebody has who goes on is computed again. PAWL_STORM_SEEDS sets how many seeds run (default
 * 500), PAWL_STORM_SEED the first one (default: fresh); a failure prints the command that repeats it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "storm_trouble.h"

#define STORM_ACTIONS 20000
#define QUIET_ACTIONS 3000000

static void run_seed(struct cluster *c) {
    uint32_t trouble_every = 10 + (uint32_t)rng_below(&c->rng, 600);
    choose_weights(c);
    uint64_t storm = rng_below(&c->rng, STORM_ACTIONS), idle = 0;
    start_run(c);
    for (uint64_t action = 0;; action++) {
        if (action == storm) calm_down(c);
        if (action > storm + QUIET_ACTIONS) fail_seed(c, "no progress in the quiet phase");
        bool worked = poll_worker(c, any_rank(c));
        if (chance(c, 2)) worked = listen_to(c, any_rank(c)) || worked;
        if (chance(c, 2)) worked = poll_coordinator(c) || worked;
        if (chance(c, 2) && !c->over) worked = poll_launcher(c) || worked;
        idle = worked ? 0 : idle + 1;
        if (idle > 4 * c->ranks || chance(c, 10)) {
            pass_time(c, idle > 4 * c->ranks);
            if (idle > 4 * c->ranks) idle = 0;
        }
        take_doom(c);
        if (!c->calm && chance(c, trouble_every)) make_trouble(c);
        if (take_end(c)) break;
    }
}

/* ---- seeds ---- */

static void make_spec(struct cluster *c, const char *data) {
    struct spec *s = &c->spec;
    struct pawl_error e;
    char text[4096];
    static const char *const clips[] = {"0", "1.0", "0.05"};
    static const char *const rates[] = {"0.001", "0.01", "0.01", "1000.0"};
    static const char *const schedules[] = {"gpipe",     "1f1b",    "zb-h1", "zb-h2", "adaptive",
                                            "decoupled", "recycle", "pawl",  "pawl",  "pawl"};
    uint32_t stages = 1 + (uint32_t)rng_below(&c->rng, 4), pipelines = 1 + (uint32_t)rng_below(&c->rng, 3);
    uint32_t more = (uint32_t)rng_below(&c->rng, 3);
    /* Some runs are long enough for a better plan to be worth a fence. */
    uint64_t steps =
        chance(c, 8) ? REPLAN_PAUSE + rng_below(&c->rng, REPLAN_PAUSE) : 3 + rng_below(&c->rng, 10);
    snprintf(text, sizeof text,
             "run: {dir: storm, steps: %llu, seed: %llu}\n"
             "model: {layers: %u, heads: 2, width: 8, context: 6, vocabulary: 13, tied: %s, dropout: %s}\n"
             "data: {path: %s, format: uint16}\n"
             "parallel: {pipelines: %u, stages: %u, microbatches: %llu, batch: 2, schedule: %s, barrier: %s, "
             "pipelines_max: %u}\n"
             "optimizer: {lr: %s, clip_norm: %s}\n"
             "save: {every: %llu, in_flight: %llu, keep: %llu}\n"
             "failure: {timeout_s: 0.3}\n",
             (unsigned long long)steps, (unsigned long long)rng_below(&c->rng, 1000),
             stages + (uint32_t)rng_below(&c->rng, 2), chance(c, 2) ? "true" : "false",
             chance(c, 2) ? "0.1" : "0", data, pipelines, stages,
             (unsigned long long)(1 + rng_below(&c->rng, 4)), schedules[rng_below(&c->rng, 10)],
             chance(c, 6) ? "true" : "false", pipelines + more, rates[rng_below(&c->rng, 4)],
             clips[rng_below(&c->rng, 3)], (unsigned long long)(1 + rng_below(&c->rng, 3)),
             (unsigned long long)(1 + rng_below(&c->rng, 3)),
             (unsigned long long)(1 + rng_below(&c->rng, 2)));
    if (spec_parse(text, strlen(text), "storm", s, &e) != PAWL_OK || spec_check(s, &e) != PAWL_OK) {
        fprintf(stderr, "%s\n%s", e.text, text);
        fail_seed(c, "the spec is refused");
    }
    if (c->show) printf("%s", text);
    c->ranks = spec_capacity(s);
    c->chunks = stages;
}

static char *make_data(void) {
    static char path[] = "/tmp/pawl-storm-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct rng_stream rng = {7};
    for (int i = 0; i < 4000; i++) {
        uint16_t token = (uint16_t)rng_below(&rng, 13);
        assert_int_equal(write(fd, &token, sizeof token), sizeof token);
    }
    close(fd);
    return path;
}

static void open_cluster(struct cluster *c, const char *data) {
    make_spec(c, data);
    reference_make(&c->reference, &c->spec);
    c->netsim = netsim_new(
        c->seed, (struct netsim_config){.delay_ns_min = 1000, .delay_ns_max = 1000000, .twice_in = 20});
    c->disk = storesim_new(c->seed);
    c->places = calloc(c->ranks, sizeof *c->places);
    for (uint32_t r = 0; r < c->ranks; r++)
        c->places[r].compared = calloc(c->chunks, sizeof *c->places[r].compared);
}

static void close_cluster(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        bytes_close(&c->places[r].hello);
        bytes_close(&c->places[r].readied);
        free(c->places[r].compared);
    }
    queue_close(&c->to_coord);
    queue_close(&c->from_coord);
    netsim_free(c->netsim);
    storesim_free(c->disk);
    reference_close(&c->reference);
    free(c->places);
    free(c->cuts);
}

static void add_totals(struct totals *to, const struct totals *t) {
    const uint64_t *from = (const uint64_t *)t;
    for (size_t i = 0; i < sizeof *t / sizeof *from; i++) ((uint64_t *)to)[i] += from[i];
}

static void print_totals(const struct totals *t, uint64_t seeds) {
#define N(field) (unsigned long long)t->field
    printf(
        "storm: %llu seeds: %llu kills, %llu stops, %llu cuts, %llu power cuts, %llu disk troubles, %llu "
        "takeovers, %llu joins (%llu prepared), %llu leaves, %llu ends asked for\n"
        "storm: %llu fences (%llu for a better plan), %llu returns to a durable step, %llu restarts, %llu "
        "undone steps, %llu grown "
        "plans, %llu moves, %llu contributions kept, %llu redone\n"
        "storm: of all GO %llu fetched states, %llu fetched gradients, %llu kept sums (%llu of a tentative "
        "step), %llu helpers, %llu spares, %llu plans with a pipeline that is not full\n",
        (unsigned long long)seeds, N(kills), N(stops), N(cuts), N(power_cuts), N(disks), N(takeovers),
        N(joins), N(prepared), N(leaves), N(stopped), N(fences), N(better), N(restores), N(restarts),
        N(undone), N(grown), N(moved), N(kept), N(redone), N(states), N(grads), N(keeps), N(settled_keeps),
        N(helpers), N(spares), N(uneven));
#undef N
}

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void every_seed_ends_with_the_bits_of_the_undisturbed_run(void **state) {
    (void)state;
    uint64_t seeds = number_from("PAWL_STORM_SEEDS", 500);
    uint64_t first = number_from("PAWL_STORM_SEED", (uint64_t)clock_now_ns() % 1000000000);
    char *data = make_data();
    struct totals total = {0};
    printf("storm: seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + seeds - 1));
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct cluster c = {.seed = seed, .rng = {seed}, .run_id = {1, 2, 3}, .doomed = UINT32_MAX};
        c.show = getenv("PAWL_STORM_SHOW") != NULL;
        if (c.show) setvbuf(stdout, NULL, _IOLBF, 0); /* in order with what ends the process */
        open_cluster(&c, data);
        run_seed(&c);
        add_totals(&total, &c.total);
        close_cluster(&c);
    }
    print_totals(&total, seeds);
    unlink(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_ends_with_the_bits_of_the_undisturbed_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
