/* A whole cluster in one process from one seed: the real coordinator, conduct, workers, executor, reduction
 * and checkpoint engine over a simulated network, disk and clock. In the first phase workers are killed,
 * stopped and cut off, disks fail and the power goes; then comes a quiet phase in which the run must finish.
 * Checked all the time: every final version of every worker has the bits of an undisturbed reference, and no
 * step announced as durable is ever lost. PAWL_STORM_SEEDS sets how many seeds run (default 200),
 * PAWL_STORM_SEED the first one (default: fresh); a failure prints the command that repeats it. */
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
#include "base/rng.h"
#include "model/adamw.h"
#include "run/conduct.h"
#include "run/persist.h"
#include "run/rundir.h"
#include "run/worker_state.h"
#include "storm_reference.h"

#define BEAT_NS       2000000
#define STORM_ACTIONS 20000
#define QUIET_ACTIONS 3000000

struct member {
    struct worker *worker; /* null: dead */
    struct net *net;
    struct channel *mine, *theirs; /* launcher's end, worker's end */
    int64_t stopped_until;
    uint64_t checked; /* newest version whose bits were compared, + 1 */
    bool reported;    /* conduct knows of its exit */
};

struct cluster {
    uint64_t seed;
    struct rng_stream rng;
    struct spec spec;
    uint32_t ranks;
    struct reference reference;
    struct netsim *netsim;
    struct storesim *disk;
    struct member *members;
    struct conduct *conduct;
    uint64_t incarnation;
    uint8_t run_id[16];
    bool resumed;
    uint64_t resume_step, resume_incarnation;
    uint64_t durable; /* newest announced; 0: none */
    uint64_t durable_lost_by_fault;
    int64_t now_ns, next_beat_ns;
    uint64_t kills, stops, cuts, blackouts, restarts, redone, undone;
};

static void fail_seed(const struct cluster *c, const char *what) {
    fprintf(stderr,
            "storm: seed %llu: %s (kills %llu stops %llu cuts %llu blackouts %llu)\n"
            "repeat with: PAWL_STORM_SEED=%llu PAWL_STORM_SEEDS=1 build/tests/storm_run_storm_test\n",
            (unsigned long long)c->seed, what, (unsigned long long)c->kills, (unsigned long long)c->stops,
            (unsigned long long)c->cuts, (unsigned long long)c->blackouts, (unsigned long long)c->seed);
    exit(1);
}

static bool chance(struct cluster *c, uint32_t one_in) { return rng_below(&c->rng, one_in) == 0; }

static void folder_of(uint32_t rank, char *out, size_t size) { snprintf(out, size, "rank-%04u", rank); }

static pawl_code open_own(void *context, const struct spec *spec, uint32_t rank, struct store **out,
                          char *why, struct pawl_error *e) {
    (void)spec;
    struct cluster *c = context;
    char folder[32];
    folder_of(rank, folder, sizeof folder);
    snprintf(why, 160, "simulated");
    return storesim_open(c->disk, folder, false, out, e);
}

static pawl_code open_all(void *context, const struct spec *spec, struct store ***out, uint32_t *count,
                          struct pawl_error *e) {
    struct cluster *c = context;
    *out = calloc(spec_ranks(spec), sizeof **out);
    *count = 0;
    for (uint32_t r = 0; r < spec_ranks(spec); r++) {
        char folder[32];
        folder_of(r, folder, sizeof folder);
        pawl_code code = storesim_open(c->disk, folder, true, &(*out)[*count], e);
        if (code == PAWL_NOT_FOUND) continue; /* the rank never saved anything */
        if (code != PAWL_OK) return code;
        ++*count;
    }
    return PAWL_OK;
}

/* The process of `rank` is gone, as after SIGKILL. */
static void kill_member(struct cluster *c, uint32_t rank) {
    struct member *m = &c->members[rank];
    if (m->worker == NULL) return;
    if (m->worker->own_store != NULL) storesim_freeze(c->disk, m->worker->own_store);
    ckpt_close(m->worker->ckpt, 0, NULL);
    m->worker->ckpt = NULL;
    if (m->worker->own_store != NULL) storesim_kill(c->disk, m->worker->own_store);
    m->worker->own_store = NULL;
    netsim_kill(c->netsim, m->net);
    worker_free(m->worker, 0);
    channel_close(m->theirs);
    m->worker = NULL;
    m->theirs = NULL;
    m->net = NULL;
}

static void hook_kill(void *context, uint32_t rank, const char *why) {
    (void)why;
    kill_member(context, rank);
}

static void hook_note(void *context, const struct coord_action *a) {
    struct cluster *c = context;
    if (a->kind == COORD_DURABLE_AT && a->version > c->durable) c->durable = a->version;
}

static void hook_heard(void *context, uint32_t rank, const struct message *m) {
    struct cluster *c = context;
    if (m->kind != MESSAGE_FAILED || m->code == PAWL_CORRUPT || m->code == PAWL_IO ||
        m->code == PAWL_NO_SPACE)
        return;
    fprintf(stderr, "storm: rank %u failed: %s\n", rank, m->text);
    fail_seed(c, "a worker failed");
}

/* As the launcher does before anything is built on a step. */
static void settle_all(struct cluster *c) {
    storesim_set_faults(c->disk, (struct storesim_faults){0}); /* one that cannot do this does not start */
    for (uint32_t r = 0; r < c->ranks; r++) {
        char folder[32];
        struct store *s = NULL;
        struct pawl_error e;
        folder_of(r, folder, sizeof folder);
        pawl_code code = storesim_open(c->disk, folder, false, &s, &e);
        if (code == PAWL_OK) code = ckpt_settle(s, &e);
        if (code != PAWL_OK) fail_seed(c, e.text);
        store_close(s);
    }
}

static void find_resume(struct cluster *c, uint64_t below) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    struct pawl_error e;
    if (open_all(c, &c->spec, &stores, &count, &e) != PAWL_OK) fail_seed(c, e.text);
    if (ckpt_set_open(stores, count, c->run_id, &set, &e) != PAWL_OK) fail_seed(c, e.text);
    c->resumed = false;
    for (uint32_t i = 0; i < ckpt_set_count(set) && !c->resumed; i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (!s->complete || s->step >= below) continue;
        c->resumed = true;
        c->resume_step = s->step;
        c->resume_incarnation = s->incarnation;
    }
    if (getenv("PAWL_STORM_SHOW") != NULL) {
        for (uint32_t i = 0; i < ckpt_set_count(set); i++)
            printf("step %llu incarnation %llu: %s\n", (unsigned long long)ckpt_set_at(set, i)->step,
                   (unsigned long long)ckpt_set_at(set, i)->incarnation,
                   ckpt_set_at(set, i)->complete ? "complete" : ckpt_set_at(set, i)->missing);
        for (uint32_t i = 0; ckpt_set_problem(set, i) != NULL; i++)
            printf("problem: %s\n", ckpt_set_problem(set, i));
    }
    ckpt_set_close(set);
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    free(stores);
    if (c->resumed) settle_all(c);
    if (below == UINT64_MAX && c->durable > 0 && (!c->resumed || c->resume_step < c->durable))
        fail_seed(c, "a step announced as durable is gone");
}

static void start_incarnation(struct cluster *c) {
    struct coord_config config = {.pipelines = c->spec.parallel.pipelines,
                                  .stages = c->spec.parallel.stages,
                                  .first_version = c->resumed ? c->resume_step : 0,
                                  .final_version = c->spec.run.steps,
                                  .save_every = c->spec.save.every,
                                  .saves_max = c->spec.save.in_flight,
                                  .save_retries = 1000,
                                  .clip_norm = c->spec.optimizer.clip_norm,
                                  .start_ns = 10000000000,
                                  .beat_ns = 20 * BEAT_NS,
                                  .stall_ns = 100 * BEAT_NS,
                                  .suspect_ns = 10 * BEAT_NS,
                                  .idle_fences_max = 1000};
    struct conduct_hooks hooks = {.context = c, .kill = hook_kill, .note = hook_note, .heard = hook_heard};
    struct pawl_error e;
    if (conduct_new(&c->spec, &config, hooks, &c->conduct, &e) != PAWL_OK) fail_seed(c, e.text);
    c->incarnation++;
    struct bytes text = {0};
    spec_print(&c->spec, &text);
    bytes_put_u8(&text, 0);
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct member *m = &c->members[r];
        *m = (struct member){0};
        struct channel *ends[2];
        assert_int_equal(channel_open_pair(ends, NULL), PAWL_OK);
        m->mine = ends[0];
        m->theirs = ends[1];
        m->net = netsim_open(c->netsim, NULL);
        struct worker_env env = {
            .net = m->net, .channel = m->theirs, .context = c, .open_own = open_own, .open_all = open_all};
        assert_int_equal(worker_new(&env, &m->worker, NULL), PAWL_OK);
        conduct_attach(c->conduct, r, m->mine);
        struct message start = {.kind = MESSAGE_START,
                                .rank = r,
                                .version = c->resumed ? c->resume_step : 0,
                                .incarnation = c->incarnation,
                                .resume_incarnation = c->resumed ? c->resume_incarnation : 0,
                                .text = (const char *)text.data};
        memcpy(start.run_id, c->run_id, sizeof start.run_id);
        channel_send(m->mine, &start, NULL);
    }
    bytes_close(&text);
}

static void end_incarnation(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        kill_member(c, r);
        channel_close(c->members[r].mine);
        c->members[r].mine = NULL;
    }
    c->redone += conduct_redone(c->conduct);
    c->undone += conduct_undone(c->conduct);
    conduct_free(c->conduct);
    c->conduct = NULL;
}

static void check_bits(struct cluster *c, uint32_t rank) {
    struct member *m = &c->members[rank];
    const struct version *base = worker_base(m->worker);
    if (base == NULL || m->worker->phase == WORKER_START || base->number + 1 == m->checked) return;
    if (base->number + 1 < m->checked) fail_seed(c, "a worker went back behind a final version");
    const struct stage *stage = worker_stage(m->worker);
    const struct version *want = reference_version(&c->reference, stage->index, base->number);
    size_t bytes = stage->param_count * sizeof(float);
    if (memcmp(base->params, want->params, bytes) != 0) fail_seed(c, "parameters differ from the reference");
    if (memcmp(base->exp_avg, want->exp_avg, bytes) != 0 ||
        memcmp(base->exp_avg_sq, want->exp_avg_sq, bytes) != 0)
        fail_seed(c, "moments differ from the reference");
    if (memcmp(base->exponents, want->exponents, stage->tensor_count * sizeof(int32_t)) != 0 ||
        base->updates != want->updates)
        fail_seed(c, "exponents or update count differ from the reference");
    m->checked = base->number + 1;
}

static bool poll_member(struct cluster *c, uint32_t rank) {
    struct member *m = &c->members[rank];
    if (m->worker == NULL || m->stopped_until > c->now_ns) return false;
    bool worked;
    struct pawl_error e = {0};
    pawl_code code = worker_poll(m->worker, &worked, &e);
    if (code != PAWL_OK && code != PAWL_PEER_LOST) {
        conduct_receive(c->conduct, rank, c->now_ns); /* FAILED goes through the hook */
        kill_member(c, rank);
        return true;
    }
    worker_set_busy(m->worker, false);
    check_bits(c, rank);
    return worked;
}

static void listen_to(struct cluster *c, uint32_t rank) {
    struct member *m = &c->members[rank];
    if (m->mine == NULL || m->reported) return;
    if (m->worker != NULL) {
        conduct_receive(c->conduct, rank, c->now_ns);
    } else {
        m->reported = true;
        conduct_exit(c->conduct, rank, c->now_ns);
    }
}

static void pass_time(struct cluster *c, bool idle) {
    c->now_ns += (int64_t)rng_below(&c->rng, 200000);
    int64_t next = netsim_advance(c->netsim, c->now_ns);
    if (idle) {
        /* Nothing can happen before the next delivery or beat. */
        int64_t until = next < c->next_beat_ns ? next : c->next_beat_ns;
        if (until > c->now_ns) c->now_ns = until;
        netsim_advance(c->netsim, c->now_ns);
    }
    if (c->now_ns < c->next_beat_ns) return;
    c->next_beat_ns = c->now_ns + BEAT_NS;
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct member *m = &c->members[r];
        if (m->worker == NULL || m->stopped_until > c->now_ns) continue;
        struct message beat = {
            .kind = MESSAGE_BEAT, .progress = worker_progress(m->worker), .busy = worker_busy(m->worker)};
        channel_send(m->theirs, &beat, NULL);
    }
    conduct_tick(c->conduct, c->now_ns);
}

static void black_out(struct cluster *c) {
    c->blackouts++;
    end_incarnation(c);
    storesim_crash(c->disk);
    find_resume(c, UINT64_MAX);
    start_incarnation(c);
}

static void make_trouble(struct cluster *c) {
    uint32_t rank = (uint32_t)rng_below(&c->rng, c->ranks), other = (uint32_t)rng_below(&c->rng, c->ranks);
    struct member *m = &c->members[rank];
    switch (rng_below(&c->rng, 8)) {
    case 0:
    case 1:
    case 2:
        if (m->worker != NULL) c->kills++;
        kill_member(c, rank);
        break;
    case 3:
        c->stops++;
        m->stopped_until = c->now_ns + (int64_t)rng_below(&c->rng, 60 * (uint64_t)BEAT_NS);
        break;
    case 4:
        c->cuts++;
        if (rank != other && m->net != NULL && c->members[other].net != NULL)
            netsim_cut(c->netsim, m->net, c->members[other].net, true);
        break;
    case 5:
        black_out(c);
        break;
    default:
        storesim_set_faults(c->disk, (struct storesim_faults){.write_eio = chance(c, 2) ? 20000 : 0,
                                                              .flush_eio = chance(c, 2) ? 20000 : 0,
                                                              .no_space = chance(c, 2) ? 20000 : 0,
                                                              .delay = chance(c, 2) ? 300000 : 0});
    }
}

static void heal(struct cluster *c) {
    storesim_set_faults(c->disk, (struct storesim_faults){0});
    for (uint32_t a = 0; a < c->ranks; a++)
        for (uint32_t b = 0; b < a; b++)
            if (c->members[a].net != NULL && c->members[b].net != NULL)
                netsim_cut(c->netsim, c->members[a].net, c->members[b].net, false);
}

/* What the launcher does at the end of an incarnation. True: the run is finished. */
static bool take_end(struct cluster *c) {
    enum conduct_end end = conduct_state(c->conduct);
    if (end == CONDUCT_RUNNING) return false;
    if (end == CONDUCT_FINISHED) return true;
    const struct pawl_error *why = conduct_error(c->conduct);
    if (end == CONDUCT_STOPPED && why->code != PAWL_IO) {
        fprintf(stderr, "storm: stopped: %s\n", why->text);
        fail_seed(c, "the run stopped");
    }
    c->restarts++;
    end_incarnation(c);
    find_resume(c, UINT64_MAX);
    start_incarnation(c);
    return false;
}

static void run_seed(struct cluster *c) {
    uint32_t trouble_every = 10 + (uint32_t)rng_below(&c->rng, 600);
    uint64_t storm = rng_below(&c->rng, STORM_ACTIONS), idle = 0;
    start_incarnation(c);
    for (uint64_t action = 0;; action++) {
        if (action == storm) heal(c);
        if (action > storm + QUIET_ACTIONS) fail_seed(c, "no progress in the quiet phase");
        uint32_t rank = (uint32_t)rng_below(&c->rng, c->ranks);
        bool worked = poll_member(c, rank);
        idle = worked ? 0 : idle + 1;
        if (chance(c, 2)) listen_to(c, (uint32_t)rng_below(&c->rng, c->ranks));
        if (idle > 4 * c->ranks || chance(c, 10)) {
            pass_time(c, idle > 4 * c->ranks);
            if (idle > 4 * c->ranks) idle = 0;
        }
        if (action < storm && chance(c, trouble_every)) make_trouble(c);
        if (take_end(c)) break;
    }
}

static void check_final(struct cluster *c) {
    end_incarnation(c);
    storesim_crash(c->disk); /* what FINISH promised survives even this */
    find_resume(c, UINT64_MAX);
    if (!c->resumed || c->resume_step != c->spec.run.steps)
        fail_seed(c, "the last version is not durable after the end");
}

static void make_spec(struct cluster *c, const char *data) {
    struct spec *s = &c->spec;
    struct pawl_error e;
    char text[4096];
    uint32_t stages = 1 + (uint32_t)rng_below(&c->rng, 4), pipelines = 1 + (uint32_t)rng_below(&c->rng, 3);
    static const char *const clips[] = {"0", "1.0", "0.05"};
    static const char *const rates[] = {"0.001", "0.01", "0.01", "1000.0"};
    snprintf(text, sizeof text,
             "run: {dir: storm, steps: %llu, seed: %llu}\n"
             "model: {layers: %u, heads: 2, width: 8, context: 6, vocabulary: 13, tied: %s, dropout: %s}\n"
             "data: {path: %s, format: uint16}\n"
             "parallel: {pipelines: %u, stages: %u, microbatches: %llu, batch: 2, schedule: %s}\n"
             "optimizer: {lr: %s, clip_norm: %s}\n"
             "save: {every: %llu, in_flight: %llu, keep: %llu}\n",
             (unsigned long long)(3 + rng_below(&c->rng, 10)), (unsigned long long)rng_below(&c->rng, 1000),
             stages + (uint32_t)rng_below(&c->rng, 2), chance(c, 2) ? "true" : "false",
             chance(c, 2) ? "0.1" : "0", data, pipelines, stages,
             (unsigned long long)(1 + rng_below(&c->rng, 4)), chance(c, 4) ? "gpipe" : "1f1b",
             rates[rng_below(&c->rng, 4)], clips[rng_below(&c->rng, 3)],
             (unsigned long long)(1 + rng_below(&c->rng, 3)), (unsigned long long)(1 + rng_below(&c->rng, 3)),
             (unsigned long long)(1 + rng_below(&c->rng, 2)));
    if (spec_parse(text, strlen(text), "storm", s, &e) != PAWL_OK || spec_check(s, &e) != PAWL_OK) {
        fprintf(stderr, "%s\n%s", e.text, text);
        fail_seed(c, "the spec is refused");
    }
    c->ranks = spec_ranks(s);
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

static uint64_t number_from(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void every_seed_ends_with_the_bits_of_the_undisturbed_run(void **state) {
    (void)state;
    uint64_t seeds = number_from("PAWL_STORM_SEEDS", 200);
    uint64_t first = number_from("PAWL_STORM_SEED", (uint64_t)clock_now_ns() % 1000000000);
    char *data = make_data();
    struct cluster total = {0};
    printf("storm: seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + seeds - 1));
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct cluster c = {.seed = seed, .rng = {seed}, .run_id = {1, 2, 3}};
        make_spec(&c, data);
        reference_make(&c.reference, &c.spec);
        c.netsim = netsim_new(seed, (struct netsim_config){.delay_ns_min = 1000, .delay_ns_max = 1000000});
        c.disk = storesim_new(seed);
        c.members = calloc(c.ranks, sizeof *c.members);
        run_seed(&c);
        check_final(&c);
        total.kills += c.kills, total.stops += c.stops, total.cuts += c.cuts;
        total.blackouts += c.blackouts, total.restarts += c.restarts, total.redone += c.redone;
        total.undone += c.undone;
        netsim_free(c.netsim);
        storesim_free(c.disk);
        reference_close(&c.reference);
        free(c.members);
    }
    printf("storm: %llu seeds: %llu kills, %llu stops, %llu cuts, %llu power cuts, %llu restarts, %llu "
           "iterations redone, %llu undone\n",
           (unsigned long long)seeds, (unsigned long long)total.kills, (unsigned long long)total.stops,
           (unsigned long long)total.cuts, (unsigned long long)total.blackouts,
           (unsigned long long)total.restarts, (unsigned long long)total.redone,
           (unsigned long long)total.undone);
    unlink(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_seed_ends_with_the_bits_of_the_undisturbed_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
