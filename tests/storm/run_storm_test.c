/* A whole cluster in one process from one seed: the real coordinator, conduct, planner, workers, executor,
 * reduction and checkpoint engine over a simulated network, disk, launcher and clock (storm_*.h). In the
 * first phase workers are killed (two at once, too), stopped, cut off, told to leave; others come, also to
 * new places; the coordinator is killed and replaced, or stopped; disks fail or are stuck, and the power
 * goes; some failures come in the middle of a fence, a plan, a search, a copy or a save. Then comes a quiet
 * phase in which the run must finish. Checked all the time: every final version of every chunk that anybody
 * holds has the bits of an undisturbed reference, no step announced as durable is ever lost, no contribution
 * counts twice, and none that somebody has who goes on is computed again. PAWL_STORM_SEEDS sets how many
 * seeds run (default 500), PAWL_STORM_SEED the first one (default: fresh); a failure prints the command that
 * repeats it. */
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
#include "storm_launcher.h"

#define STORM_ACTIONS 20000
#define QUIET_ACTIONS 3000000
#define FOR_EVER      INT64_MAX

/* ---- the life of a run ---- */

/* All processes are gone at once: the run was ended, or the machine was. */
static void end_run(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        kill_worker(c, r);
        forget_place(&c->places[r]);
        c->places[r].start_at = 0;
    }
    end_coordinator(c);
    queue_cut(&c->from_coord, 0);
    c->view = c->find_view = 0;
    c->coord_start_at = 0;
    c->cut_count = 0;
    c->doomed = UINT32_MAX;
}

static void start_run(struct cluster *c) {
    uint64_t step, incarnation;
    c->over = c->finished = c->stopping = c->left = false;
    find_newest(c, &step, &incarnation);
    start_coordinator(c);
    for (uint32_t r = 0; r < spec_ranks(&c->spec); r++) start_worker(c, r);
}

static void black_out(struct cluster *c) {
    c->total.power_cuts++;
    SHOW(c, "power cut");
    end_run(c);
    storesim_crash(c->disk);
    start_run(c);
}

/* What FINISH promised survives even a power cut. True: it was the end of the training, too. */
static bool check_finished(struct cluster *c) {
    uint64_t step = 0, incarnation = 0;
    bool stopped = c->stopping || c->left; /* a run that cannot spare who leaves ends with it */
    end_run(c);
    storesim_crash(c->disk);
    if (!find_newest(c, &step, &incarnation)) fail_seed(c, "nothing is durable after the end");
    if (step == c->spec.run.steps) return true;
    if (!stopped) fail_seed(c, "the last version is not durable after the end");
    return false;
}

/* True: the training has ended. */
static bool take_end(struct cluster *c) {
    if (c->finished) {
        if (check_finished(c)) return true;
        start_run(c);
        return false;
    }
    if (!c->over) return false;
    SHOW(c, "stopped: %s", c->failed.text);
    if (c->failed.code != PAWL_IO && c->failed.code != PAWL_NO_SPACE) {
        fprintf(stderr, "storm: stopped: %s\n", c->failed.text);
        fail_seed(c, "the run stopped");
    }
    c->total.restarts++;
    end_run(c);
    start_run(c);
    return false;
}

/* ---- what goes on ---- */

static bool poll_worker(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL || p->stopped_until > c->now_ns) return false;
    bool worked;
    struct pawl_error e = {0};
    pawl_code code = worker_poll(p->worker, &worked, &e);
    if (code != PAWL_OK) {
        if (code == PAWL_PEER_LOST) fail_seed(c, "a worker lost its launcher");
        kill_worker(c, rank); /* what it has said of it is still to be heard */
        return true;
    }
    worker_set_busy(p->worker, false);
    check_bits(c, rank);
    if (worker_finished(p->worker) && !c->finished) end_worker(c, rank);
    return worked;
}

static void beat(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct place *p = &c->places[r];
        if (p->worker == NULL || p->stopped_until > c->now_ns) continue;
        struct message m = {.kind = MESSAGE_BEAT, .text = ""};
        worker_beat(p->worker, &m);
        channel_send(p->theirs, &m, NULL);
    }
    if (c->conduct == NULL || c->coord_stopped_until > c->now_ns) return;
    conduct_tick(c->conduct, c->now_ns);
    say_end(c);
}

static void earlier(int64_t *until, int64_t at) {
    if (at > 0 && at < *until) *until = at;
}

static void heal_cuts(struct cluster *c, bool all) {
    for (size_t i = c->cut_count; i-- > 0;) {
        struct cut *cut = &c->cuts[i];
        if (!all && cut->until > c->now_ns) continue;
        struct place *a = &c->places[cut->a], *b = &c->places[cut->b];
        bool same = a->net != NULL && b->net != NULL && a->born == cut->born_a && b->born == cut->born_b;
        if (same) netsim_cut(c->netsim, a->net, b->net, false);
        *cut = c->cuts[--c->cut_count];
    }
}

static void pass_time(struct cluster *c, bool idle) {
    c->now_ns += (int64_t)rng_below(&c->rng, 200000);
    int64_t until = netsim_advance(c->netsim, c->now_ns);
    if (idle) { /* nothing can happen before the next delivery, beat, or delayed doing of the launcher */
        earlier(&until, c->next_beat_ns);
        if (c->find_view != 0) earlier(&until, c->find_at);
        earlier(&until, c->coord_start_at);
        if (until > c->now_ns) c->now_ns = until;
        netsim_advance(c->netsim, c->now_ns);
    }
    if (c->find_view != 0 && c->find_at <= c->now_ns) find_now(c);
    if (c->coord_start_at != 0 && c->coord_start_at <= c->now_ns) start_coordinator(c);
    for (uint32_t r = 0; r < c->ranks; r++)
        if (c->places[r].start_at != 0 && c->places[r].start_at <= c->now_ns) start_worker(c, r);
    heal_cuts(c, false);
    if (c->now_ns < c->next_beat_ns) return;
    c->next_beat_ns = c->now_ns + BEAT_NS;
    beat(c);
}

/* ---- trouble ---- */

static int64_t some_beats(struct cluster *c, uint64_t most) {
    return (int64_t)rng_below(&c->rng, most * BEAT_NS);
}

static void strike(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL) return;
    c->total.kills++;
    kill_worker(c, rank);
    if (chance(c, 2)) p->start_at = c->now_ns + 1 + some_beats(c, 60);
}

static void cut_off(struct cluster *c, uint32_t a, uint32_t b) {
    struct place *pa = &c->places[a], *pb = &c->places[b];
    if (a == b || pa->net == NULL || pb->net == NULL) return;
    if (c->cut_count == c->cut_room) {
        c->cut_room = c->cut_room * 2 + 8;
        c->cuts = realloc(c->cuts, c->cut_room * sizeof *c->cuts);
        assert_non_null(c->cuts);
    }
    c->cuts[c->cut_count++] =
        (struct cut){a, b, pa->born, pb->born, chance(c, 3) ? FOR_EVER : c->now_ns + some_beats(c, 100)};
    netsim_cut(c->netsim, pa->net, pb->net, true);
    c->total.cuts++;
}

static void leave(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL || !p->ready || p->leaving) return;
    c->left = true;
    if (chance(c, 2)) {
        struct message m = {.kind = MESSAGE_LEAVING, .text = ""};
        channel_send(p->theirs, &m, NULL); /* as a worker that was sent SIGTERM */
        return;
    }
    p->leaving = true;
    if (c->conduct != NULL) queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_LEAVE, .rank = rank});
}

static void trouble_disk(struct cluster *c) {
    bool stuck = chance(c, 4);
    c->total.disks++;
    storesim_set_faults(c->disk, (struct storesim_faults){.write_eio = chance(c, 2) ? 20000 : 0,
                                                          .flush_eio = chance(c, 2) ? 20000 : 0,
                                                          .no_space = chance(c, 2) ? 20000 : 0,
                                                          .delay = stuck          ? 999000
                                                                   : chance(c, 2) ? 300000
                                                                                  : 0});
}

static void ask_to_stop(struct cluster *c) {
    if (c->conduct == NULL || c->view == 0 || !chance(c, 4)) return;
    c->stopping = true;
    c->total.stopped++;
    queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_STOP});
}

static void do_trouble(struct cluster *c, enum trouble kind) {
    uint32_t rank = any_rank(c);
    switch (kind) {
    case TROUBLE_KILL:
        strike(c, rank);
        if (chance(c, 4)) strike(c, any_rank(c));
        break;
    case TROUBLE_STOP:
        c->total.stops++;
        c->places[rank].stopped_until = c->now_ns + some_beats(c, 60);
        break;
    case TROUBLE_CUT:
        cut_off(c, rank, any_rank(c));
        break;
    case TROUBLE_POWER:
        black_out(c);
        break;
    case TROUBLE_DISK:
        trouble_disk(c);
        break;
    case TROUBLE_COORDINATOR:
        kill_coordinator(c);
        break;
    case TROUBLE_COORDINATOR_STOPS:
        c->coord_stopped_until = c->now_ns + some_beats(c, 60);
        break;
    case TROUBLE_JOIN:
        start_worker(c, rank);
        break;
    case TROUBLE_LEAVE:
        leave(c, rank);
        break;
    default:
        ask_to_stop(c);
    }
}

static void make_trouble(struct cluster *c) {
    uint64_t pick = rng_below(&c->rng, c->weight_sum);
    uint32_t kind = 0;
    while (pick >= c->weights[kind]) pick -= c->weights[kind++];
    do_trouble(c, (enum trouble)kind);
}

/* A seed has some kinds of trouble more than others, and some not at all. */
static void choose_weights(struct cluster *c) {
    static const uint32_t usual[TROUBLE_COUNT] = {5, 2, 2, 1, 2, 2, 1, 4, 1, 1};
    c->weight_sum = 0;
    for (uint32_t k = 0; k < TROUBLE_COUNT; k++) {
        c->weights[k] = usual[k] * (uint32_t)rng_below(&c->rng, 4);
        c->weight_sum += c->weights[k];
    }
    if (c->weight_sum == 0) c->weight_sum = c->weights[TROUBLE_KILL] = 1;
}

static void calm_down(struct cluster *c) {
    c->calm = true;
    c->doomed = UINT32_MAX;
    SHOW(c, "--- quiet");
    storesim_set_faults(c->disk, (struct storesim_faults){0});
    heal_cuts(c, true);
}

/* Those that were to die in the middle of something. */
static void take_doom(struct cluster *c) {
    if (c->doomed == UINT32_MAX || --c->doom_in > 0) return;
    uint32_t rank = c->doomed;
    c->doomed = UINT32_MAX;
    if (chance(c, 4))
        kill_coordinator(c);
    else
        strike(c, rank);
}

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
    c->netsim = netsim_new(c->seed, (struct netsim_config){.delay_ns_min = 1000, .delay_ns_max = 1000000});
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
