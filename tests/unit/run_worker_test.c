/* What a worker answers, message by message: the test is the coordinator, of one or two workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/rng.h"
#include "run/worker_state.h"

#define RANKS 2

/* A worker alone with the whole model, and two with a chunk each. */
#define ALONE                                                                                                \
    "pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=2\n"                                             \
    "0.0 [0]: F0:0.0 B0:0.0 F0:0.1 B0:0.1 R0 S0\n"
#define PAIR                                                                                                 \
    "pawl-plan 2 pipelines=1 stages=2 chunks=2 microbatches=2\n"                                             \
    "0.0 [0]: F0:0.0>0.1 F0:0.1>0.1 B0:0.0<0.1 B0:0.1<0.1 R0 S0\n"                                           \
    "0.1 [1]: F1:0.0<0.0 B1:0.0>0.0 F1:0.1<0.0 B1:0.1>0.0 R1 S1\n"

struct side {
    struct worker *worker;
    struct net *net;
    struct channel *mine, *theirs;
    struct pawl_error error;
    bool failed;
    uint32_t reduced; /* REDUCED that came, and the last */
    struct coord_report report;
    uint32_t saved;
    pawl_code save_code;
    bool fenced_came;
    struct fenced fenced;
    struct bytes fenced_bytes;
};

struct script {
    struct netsim *sim;
    struct storesim *disk;
    struct side sides[RANKS];
    uint32_t chunks;
    int64_t now_ns;
    uint64_t view;
    struct message beat; /* of rank 0 as it opened what to load from */
};

static pawl_code open_own(void *context, const struct spec *spec, uint32_t rank, struct store **out,
                          char *why, struct pawl_error *e) {
    struct script *s = context;
    (void)spec;
    char folder[32];
    snprintf(folder, sizeof folder, "rank-%u", rank);
    snprintf(why, 160, "simulated");
    return storesim_open(s->disk, folder, false, out, e);
}

static pawl_code open_all(void *context, const struct spec *spec, struct store ***out, uint32_t *count,
                          struct pawl_error *e) {
    struct script *s = context;
    (void)spec;
    *out = NULL;
    *count = 0;
    worker_beat(s->sides[0].worker, &s->beat);
    return error_set(e, PAWL_NOT_FOUND, 0, "nothing is to be loaded in this test");
}

static char *data_path(void) {
    static char path[] = "/tmp/pawl-worker-XXXXXX";
    int fd = mkstemp(path);
    struct rng_stream rng = {7};
    for (int i = 0; i < 1000; i++) {
        uint16_t token = (uint16_t)rng_below(&rng, 13);
        assert_int_equal(write(fd, &token, sizeof token), sizeof token);
    }
    close(fd);
    return path;
}

static void send(struct script *s, uint32_t rank, struct message m) {
    assert_int_equal(channel_send(s->sides[rank].mine, &m, NULL), PAWL_OK);
}

static void hear(struct side *side) {
    struct message m;
    bool got;
    while (channel_receive(side->mine, &m, &got, NULL) == PAWL_OK && got) {
        if (m.kind == MESSAGE_REDUCED) side->reduced++, side->report = m.report;
        if (m.kind == MESSAGE_SAVED) side->saved++, side->save_code = m.code;
        if (m.kind != MESSAGE_FENCED) continue;
        fenced_close(&side->fenced);
        bytes_clear(&side->fenced_bytes);
        bytes_put(&side->fenced_bytes, m.data, m.data_bytes);
        assert_int_equal(fenced_decode(side->fenced_bytes.data, side->fenced_bytes.size, &side->fenced, NULL),
                         PAWL_OK);
        side->fenced_came = true;
    }
}

/* Until nobody has anything to do. */
static void settle(struct script *s) {
    for (int idle = 0; idle < 20;) {
        bool any = false;
        for (uint32_t r = 0; r < RANKS; r++) {
            struct side *side = &s->sides[r];
            bool worked = false;
            if (side->worker == NULL || side->failed) continue;
            side->failed = worker_poll(side->worker, &worked, &side->error) != PAWL_OK;
            hear(side);
            any = any || worked;
        }
        int64_t next = netsim_advance(s->sim, s->now_ns);
        if (next != INT64_MAX && next > s->now_ns) s->now_ns = next, any = true;
        idle = any ? 0 : idle + 1;
    }
}

static void start(struct script *s, uint32_t rank, uint32_t stages) {
    struct side *side = &s->sides[rank];
    struct channel *ends[2];
    char text[1024];
    assert_int_equal(channel_open_pair(ends, NULL), PAWL_OK);
    side->mine = ends[0];
    side->theirs = ends[1];
    side->net = netsim_open(s->sim, NULL);
    struct worker_env env = {
        .net = side->net, .channel = side->theirs, .context = s, .open_own = open_own, .open_all = open_all};
    assert_int_equal(worker_new(&env, &side->worker, NULL), PAWL_OK);
    static char *data;
    if (data == NULL) data = data_path();
    snprintf(text, sizeof text,
             "run: {dir: none, steps: 20, seed: 3}\n"
             "model: {layers: 2, heads: 2, width: 8, context: 6, vocabulary: 13, tied: true}\n"
             "data: {path: %s, format: uint16}\n"
             "parallel: {pipelines: 1, stages: %u, microbatches: 2, batch: 1}\n"
             "optimizer: {lr: 0.01}\n",
             data, stages);
    send(s, rank, (struct message){.kind = MESSAGE_START, .rank = rank, .ranks = RANKS, .text = text});
    settle(s);
}

static void introduce(struct script *s) {
    struct bytes list = {0};
    for (uint32_t r = 0; r < RANKS; r++) {
        if (s->sides[r].net == NULL) continue;
        size_t size;
        const void *address = net_address(s->sides[r].net, &size);
        bytes_put_u32(&list, r);
        bytes_put_u32(&list, (uint32_t)size);
        bytes_put(&list, address, size);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        if (s->sides[r].worker != NULL)
            send(s, r, (struct message){.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size});
    bytes_close(&list);
}

static struct script script_open(uint32_t chunks) {
    return (struct script){
        .sim = netsim_new(1, (struct netsim_config){1, 1000, 0}), .disk = storesim_new(1), .chunks = chunks};
}

static void begin(struct script *s, uint32_t workers) {
    for (uint32_t r = 0; r < workers; r++) start(s, r, s->chunks);
    introduce(s);
}

static void script_close(struct script *s) {
    for (uint32_t r = 0; r < RANKS; r++) {
        struct side *side = &s->sides[r];
        if (side->worker == NULL) continue;
        net_close(side->net);
        worker_free(side->worker, 0);
        channel_close(side->theirs);
        channel_close(side->mine);
        fenced_close(&side->fenced);
        bytes_close(&side->fenced_bytes);
    }
    netsim_free(s->sim);
    storesim_free(s->disk);
}

static void fence(struct script *s) {
    s->view++;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (s->sides[r].worker == NULL) continue;
        s->sides[r].fenced_came = false;
        send(s, r, (struct message){.kind = MESSAGE_FENCE, .view = s->view});
    }
    settle(s);
    for (uint32_t r = 0; r < RANKS; r++)
        if (s->sides[r].worker != NULL) assert_true(s->sides[r].fenced_came);
}

/* The pairs of `go` are filled by the caller: held by the role of the same number unless `swapped`. */
static struct go make_go(struct script *s, const char *plan, bool swapped) {
    struct go g = {.view = s->view,
                   .clip = 1,
                   .optimistic = true,
                   .incarnation = 1,
                   .ranks = RANKS,
                   .chunks = s->chunks};
    struct pawl_error e;
    if (ir_parse(plan, strlen(plan), &g.plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    g.rank_of_role = calloc(RANKS, sizeof *g.rank_of_role);
    g.own = calloc(RANKS, sizeof *g.own);
    g.pairs = calloc((size_t)RANKS * s->chunks, sizeof *g.pairs);
    for (uint32_t r = 0; r < RANKS; r++) g.own[r] = UINT32_MAX;
    for (uint32_t i = 0; i < RANKS * s->chunks; i++) g.pairs[i].source = UINT32_MAX;
    for (uint32_t c = 0; c < s->chunks; c++) {
        uint32_t rank = swapped ? s->chunks - 1 - c : c;
        g.rank_of_role[c] = rank;
        g.own[rank] = c;
        g.pairs[rank * s->chunks + c].held = true;
    }
    return g;
}

static void flag_all(struct go *g, uint8_t flags) {
    for (uint32_t i = 0; i < g->ranks * g->chunks; i++)
        if (g->pairs[i].held) g->pairs[i].flags = flags;
}

/* To the first `ranks`, which do not get to act on it yet; closes it. */
static void post_go(struct script *s, struct go *g, uint32_t ranks) {
    struct bytes data = {0};
    go_encode(g, &data);
    for (uint32_t r = 0; r < ranks; r++)
        if (s->sides[r].worker != NULL)
            send(s, r,
                 (struct message){
                     .kind = MESSAGE_GO, .view = g->view, .data = data.data, .data_bytes = data.size});
    bytes_close(&data);
    go_close(g);
}

static void send_go(struct script *s, struct go *g) {
    post_go(s, g, RANKS);
    settle(s);
}

/* Everybody at version 0. */
static void start_anew(struct script *s, const char *plan) {
    fence(s);
    struct go g = make_go(s, plan, false);
    g.restore = true;
    flag_all(&g, COORD_LOAD);
    send_go(s, &g);
}

static void decide(struct script *s, uint64_t iteration) {
    for (uint32_t r = 0; r < RANKS; r++)
        if (s->sides[r].worker != NULL)
            send(s, r,
                 (struct message){.kind = MESSAGE_DECIDE,
                                  .view = s->view,
                                  .iteration = iteration,
                                  .verdict = COORD_ACCEPT,
                                  .clip = 1,
                                  .optimistic = true});
    settle(s);
}

static const struct fenced_pair *pair_of(const struct script *s, uint32_t rank, uint32_t chunk) {
    const struct fenced *f = &s->sides[rank].fenced;
    for (uint32_t i = 0; i < f->pair_count; i++)
        if (f->pairs[i].pair.chunk == chunk) return &f->pairs[i];
    return NULL;
}

static void it_goes_on_ahead_and_tells_at_a_fence_what_it_has(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    assert_int_equal(s.sides[0].reduced, 1); /* of iteration 0; that of 1 waits for the decision */
    fence(&s);
    const struct fenced_pair *p = pair_of(&s, 0, 0);
    assert_int_equal(p->pair.version, 0);
    assert_true(p->pair.has_report);
    assert_int_equal(p->pair.report.iteration, 0);
    assert_int_equal(p->pair.work, 1); /* of the tentative step */
    assert_int_equal(p->total, 2);
    assert_int_equal(p->bits[0], 3);
    script_close(&s);
}

static void a_redo_drops_the_gradient_and_its_shift_is_of_that_iteration_alone(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    fence(&s);
    struct go redo = make_go(&s, ALONE, false);
    redo.shift = 16;
    post_go(&s, &redo, 1);
    fence(&s); /* before it has done anything */
    const struct fenced_pair *p = pair_of(&s, 0, 0);
    assert_false(p->pair.has_report);
    assert_int_equal(p->pair.work, 0);
    assert_int_equal(p->pair.work_shift, 16);
    struct go again = make_go(&s, ALONE, false);
    again.shift = 16;
    send_go(&s, &again);
    assert_int_equal(s.sides[0].reduced, 2);
    fence(&s);
    p = pair_of(&s, 0, 0);
    assert_true(p->pair.has_report);
    assert_int_equal(p->pair.work, 1);
    assert_int_equal(p->pair.work_shift, 0);
    assert_int_equal(s.sides[0].fenced.shift, 16); /* of iteration 0, for who takes over */
    script_close(&s);
}

/* Others settled iteration 0 and redo iteration 1; this worker could not settle, and has no role any more.
 * Whoever takes over may have to go on from what it has. */
static void a_shift_is_not_told_of_what_is_older(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 2);
    start_anew(&s, ALONE);
    fence(&s);
    struct go redo = make_go(&s, ALONE, false);
    redo.version = 1;
    redo.shift = 16;
    redo.rank_of_role[0] = 1;
    redo.own[0] = UINT32_MAX;
    redo.own[1] = 0;
    redo.pairs[0].held = false;
    redo.pairs[1].held = true;
    post_go(&s, &redo, 1);
    fence(&s);
    if (s.sides[0].failed) fail_msg("%s", s.sides[0].error.text);
    assert_int_equal(pair_of(&s, 0, 0)->pair.version, 0);
    assert_int_equal(s.sides[0].fenced.shift, 0);
    assert_false(s.sides[0].fenced.optimistic);
    script_close(&s);
}

static void going_back_to_the_beginning_leaves_nothing_of_what_was(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    const struct version *first = worker_version(s.sides[0].worker, 0);
    size_t bytes = worker_stage(s.sides[0].worker, 0)->param_count * sizeof(float);
    float *params = malloc(bytes), *zero = calloc(1, bytes);
    memcpy(params, first->params, bytes);
    for (uint64_t i = 0; i < 4; i++) decide(&s, i);
    assert_int_equal(worker_version(s.sides[0].worker, 0)->number, 4);
    fence(&s);
    struct go back = make_go(&s, ALONE, false);
    back.restore = true;
    flag_all(&back, COORD_LOAD);
    send_go(&s, &back);
    const struct version *v = worker_version(s.sides[0].worker, 0);
    assert_int_equal(v->number, 0);
    assert_int_equal(v->updates, 0);
    assert_memory_equal(v->params, params, bytes);
    assert_memory_equal(v->exp_avg, zero, bytes);
    assert_memory_equal(v->exp_avg_sq, zero, bytes);
    free(params);
    free(zero);
    script_close(&s);
}

static void two_that_swap_chunks_keep_the_old_ones_until_the_next_decision(void **state) {
    (void)state;
    struct script s = script_open(2);
    begin(&s, 2);
    start_anew(&s, PAIR);
    decide(&s, 0);
    fence(&s);
    struct go swap = make_go(&s, PAIR, true);
    swap.version = 2; /* iteration 1 has been reduced by both, and is accepted */
    swap.settle = true;
    swap.verdict = COORD_ACCEPT;
    for (uint32_t r = 0; r < 2; r++) {
        swap.pairs[r * 2 + (1 - r)].flags = COORD_FETCH_STATE;
        swap.pairs[r * 2 + (1 - r)].source = 1 - r;
    }
    send_go(&s, &swap);
    for (uint32_t r = 0; r < 2; r++)
        if (s.sides[r].failed) fail_msg("rank %u: %s", r, s.sides[r].error.text);
    fence(&s);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(s.sides[r].fenced.pair_count, 2);
        assert_int_equal(pair_of(&s, r, 1 - r)->pair.version, 2);
        assert_int_equal(pair_of(&s, r, r)->pair.version, 2); /* it has settled, to be a source */
        assert_true(pair_of(&s, r, r)->pair.work == COORD_NO_WORK);
    }
    struct go on = make_go(&s, PAIR, true);
    on.version = 2;
    send_go(&s, &on);
    decide(&s, 2);
    fence(&s);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(s.sides[r].fenced.pair_count, 1);
        assert_int_equal(pair_of(&s, r, 1 - r)->pair.version, 3);
        assert_int_equal(s.sides[r].worker->holding_count, 1); /* and its memory is free */
    }
    script_close(&s);
}

static void a_part_it_was_asked_for_is_told_until_its_version_is_decided_on(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    decide(&s, 0);
    send(&s, 0, (struct message){.kind = MESSAGE_SAVE, .version = 1, .chunk = 0, .part = 0, .parts = 1});
    settle(&s);
    assert_int_equal(s.sides[0].saved, 1);
    assert_int_equal(s.sides[0].save_code, PAWL_OK);
    fence(&s);
    assert_int_equal(s.sides[0].fenced.save_count, 1);
    struct coord_fenced_save save = s.sides[0].fenced.saves[0];
    assert_true(save.version == 1 && save.part == 0 && save.parts == 1 && save.answered && save.ok);
    /* The same again: it is there, and not written twice. */
    send(&s, 0, (struct message){.kind = MESSAGE_SAVE, .version = 1, .chunk = 0, .part = 0, .parts = 1});
    settle(&s);
    assert_int_equal(s.sides[0].saved, 2);
    send(&s, 0, (struct message){.kind = MESSAGE_DURABLE, .version = 1});
    fence(&s);
    assert_int_equal(s.sides[0].fenced.save_count, 0);
    assert_true(s.sides[0].fenced.has_durable && s.sides[0].fenced.durable == 1);
    script_close(&s);
}

static void a_part_of_a_version_that_is_gone_is_answered_as_such(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    decide(&s, 0);
    decide(&s, 1);
    send(&s, 0, (struct message){.kind = MESSAGE_SAVE, .version = 1, .chunk = 0, .part = 0, .parts = 1});
    settle(&s);
    assert_int_equal(s.sides[0].saved, 1);
    assert_int_equal(s.sides[0].save_code, PAWL_CANCELLED);
    script_close(&s);
}

static void what_was_meant_for_the_process_before_it_is_ignored(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    send(&s, 0, (struct message){.kind = MESSAGE_DECIDE, .view = 7, .iteration = 3});
    send(&s, 0, (struct message){.kind = MESSAGE_SAVE, .version = 3, .parts = 1});
    s.view = 7;
    struct go g = make_go(&s, ALONE, false);
    send_go(&s, &g);
    if (s.sides[0].failed) fail_msg("%s", s.sides[0].error.text);
    assert_null(worker_version(s.sides[0].worker, 0));
    start_anew(&s, ALONE);
    assert_int_equal(s.sides[0].reduced, 1);
    script_close(&s);
}

static void refuse(const char *plan, uint8_t flags, const char *words) {
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    fence(&s);
    struct go g = make_go(&s, plan, false);
    flag_all(&g, flags);
    send_go(&s, &g);
    assert_true(s.sides[0].failed);
    assert_string_equal(s.sides[0].error.text, words);
    script_close(&s);
}

static void a_go_that_cannot_be_is_refused(void **state) {
    (void)state;
    refuse("pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n"
           "0.0 [0]: F0:0.0 B0:0.0 R0 S0\n",
           0, "go of 2 ranks, 1 chunks and 1 micro-batches; wanted 2, 1 and 2");
    refuse(ALONE, COORD_KEEP_WORK, "go to version 0: chunk 0 has no sums to keep (version 0, sums of 1)");
}

static void while_it_loads_its_beats_say_so(void **state) {
    (void)state;
    struct script s = script_open(1);
    s.beat.work = COORD_WORK_COUNT;
    begin(&s, 1);
    fence(&s);
    struct go g = make_go(&s, ALONE, false);
    g.restore = true;
    g.resume_incarnation = 1;
    g.version = 4;
    flag_all(&g, COORD_LOAD);
    send_go(&s, &g);
    assert_int_equal(s.beat.work, COORD_WORK_LOAD);
    assert_int_equal(s.sides[0].error.code, PAWL_NOT_FOUND);
    script_close(&s);
}

static void it_leaves_when_its_save_has_ended(void **state) {
    (void)state;
    struct script s = script_open(1);
    begin(&s, 1);
    start_anew(&s, ALONE);
    decide(&s, 0);
    send(&s, 0, (struct message){.kind = MESSAGE_SAVE, .version = 1, .chunk = 0, .part = 0, .parts = 1});
    send(&s, 0, (struct message){.kind = MESSAGE_LEAVE});
    settle(&s);
    assert_int_equal(s.sides[0].saved, 1);
    assert_int_equal(s.sides[0].save_code, PAWL_OK);
    assert_true(worker_finished(s.sides[0].worker));
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_goes_on_ahead_and_tells_at_a_fence_what_it_has),
        cmocka_unit_test(a_redo_drops_the_gradient_and_its_shift_is_of_that_iteration_alone),
        cmocka_unit_test(a_shift_is_not_told_of_what_is_older),
        cmocka_unit_test(going_back_to_the_beginning_leaves_nothing_of_what_was),
        cmocka_unit_test(two_that_swap_chunks_keep_the_old_ones_until_the_next_decision),
        cmocka_unit_test(a_part_it_was_asked_for_is_told_until_its_version_is_decided_on),
        cmocka_unit_test(a_part_of_a_version_that_is_gone_is_answered_as_such),
        cmocka_unit_test(what_was_meant_for_the_process_before_it_is_ignored),
        cmocka_unit_test(a_go_that_cannot_be_is_refused),
        cmocka_unit_test(while_it_loads_its_beats_say_so),
        cmocka_unit_test(it_leaves_when_its_save_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
