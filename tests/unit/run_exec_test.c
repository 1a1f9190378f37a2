/* What run/exec.h promises: whatever a valid plan says, whoever plays its roles, however often it is broken
 * off and whatever is salvaged, each contribution is entered exactly once and the sums have the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ir_random.h"
#include "run_world.h"

#define CHUNKS_MAX 8
#define WORDS      (WORLD_PARAMETERS + GRADSUM_FOOTER_WORDS)

struct cast { /* a plan, and who plays it */
    struct ir_plan *plan;
    uint32_t *rank_of_role; /* UINT32_MAX: nobody */
};

static struct cast make_cast(struct rng_stream *rng, const struct random_shape *shape, uint32_t ranks) {
    struct cast c = {.plan = random_plan(rng_next(rng), shape)};
    uint32_t roles = shape->pipelines * shape->stages;
    c.rank_of_role = malloc(roles * sizeof *c.rank_of_role);
    bool *taken = calloc(ranks, sizeof *taken);
    for (uint32_t w = 0; w < roles; w++) {
        c.rank_of_role[w] = UINT32_MAX;
        if (!c.plan->workers[w].alive) continue;
        uint32_t r = rng_below(rng, 4) > 0 ? w : (uint32_t)rng_below(rng, ranks);
        while (taken[r]) r = (r + 1) % ranks;
        taken[r] = true;
        c.rank_of_role[w] = r;
    }
    free(taken);
    return c;
}

static void end_cast(struct cast *c) {
    ir_plan_free(c->plan);
    free(c->rank_of_role);
}

struct player { /* one role being played */
    struct exec exec;
    struct world_rank *rank;
    struct holding *holdings[CHUNKS_MAX];
    uint32_t count;
    uint64_t peak; /* micro-batches that the plan has it store at most */
    bool whole;    /* nothing is done of it yet */
    bool ended;
};

/* A device refuses to store more than the plan says. */
static struct player *begin(struct world *w, const struct cast *c, const uint8_t *done) {
    uint32_t roles = c->plan->pipelines * c->plan->stages;
    struct player *players = calloc(roles, sizeof *players);
    uint64_t *peak = calloc(roles, sizeof *peak);
    WORLD_OK(ir_check(c->plan, NULL, peak, world_e));
    for (uint32_t role = 0; role < roles; role++) {
        struct player *p = &players[role];
        p->ended = c->rank_of_role[role] == UINT32_MAX;
        if (p->ended) continue;
        p->rank = &w->rank[c->rank_of_role[role]];
        p->rank->device.microbatches_max = (uint32_t)peak[role];
        p->peak = peak[role];
        p->whole = done == NULL;
        const struct ir_worker *worker = &c->plan->workers[role];
        for (uint32_t i = 0; i < worker->hold_count; i++) {
            struct holding *h = p->rank->holdings[worker->holds[i]];
            p->holdings[p->count++] = h;
            h->keeps_work = done != NULL && h->work != COORD_NO_WORK;
            holding_begin(h, 0);
            if (gradsum_empty(GRADSUM_EXACT, h->sums, WORLD_PARAMETERS))
                memset(h->sums, 0xa5, WORLD_PARAMETERS * sizeof *h->sums);
        }
        exec_init(&p->exec, &p->rank->peers);
        WORLD_OK(exec_plan(&p->exec, c->plan, c->rank_of_role, role, p->holdings, world_e));
        exec_begin(&p->exec, w->version, 0, done);
    }
    free(peak);
    return players;
}

static bool advance(struct player *p) {
    struct net_completion completions[16];
    uint32_t count = net_poll(p->rank->net, completions, 16);
    for (uint32_t i = 0; i < count; i++) WORLD_OK(exec_completion(&p->exec, &completions[i], world_e));
    enum exec_state state;
    WORLD_OK(exec_tick(&p->exec, &state, world_e));
    if (state == EXEC_AT_REDUCE || state == EXEC_AT_STEP) exec_pass(&p->exec);
    p->ended = state == EXEC_ENDED;
    return count > 0 || state != EXEC_WAITING;
}

/* Until all have ended or `most` polls were made; false: nobody can go on. */
static bool play(struct world *w, struct rng_stream *rng, struct player *players, uint32_t roles,
                 uint64_t most) {
    uint64_t idle = 0;
    for (uint64_t polls = 0; polls < most; polls++) {
        uint32_t role = (uint32_t)rng_below(rng, roles), left = 0;
        for (uint32_t r = 0; r < roles; r++) left += !players[r].ended;
        if (left == 0) return true;
        if (players[role].ended) continue;
        idle = advance(&players[role]) ? 0 : idle + 1;
        world_advance(w);
        if (idle > 10000) return false;
    }
    return true;
}

/* As a fence: whoever is no player any more, or is not one for the chunk, loses what he had. What each stored
 * was measured as the plan has it. */
static void end(struct world *w, struct player *players, uint32_t roles, uint64_t view) {
    world_fence(w, view);
    for (uint32_t r = 0; r < roles; r++) {
        struct player *p = &players[r];
        if (p->rank == NULL) continue;
        if (p->whole && p->ended)
            assert_int_equal(p->exec.peak, p->peak);
        else
            assert_in_range(p->exec.peak, 0, p->peak);
        exec_close(&p->exec);
    }
    free(players);
}

static bool holds(const struct cast *c, uint32_t rank, uint32_t chunk) {
    for (uint32_t w = 0; w < c->plan->pipelines * c->plan->stages; w++)
        if (c->rank_of_role[w] == rank) return ir_plan_holds(c->plan, w, chunk);
    return false;
}

/* What those that hold the same chunk in the next cast have done; the others' work is dropped. */
static uint8_t *salvage(struct world *w, const struct cast *next, uint64_t *kept) {
    size_t row = (size_t)(w->contributions + 7) / 8;
    uint8_t *done = calloc(w->chunks, row);
    for (uint32_t r = 0; r < w->ranks; r++)
        for (uint32_t c = 0; c < w->chunks; c++) {
            struct holding *h = w->rank[r].holdings[c];
            if (!holds(next, r, c)) holding_drop_work(h);
            for (size_t i = 0; h->work != COORD_NO_WORK && i < row; i++) {
                assert_int_equal(done[c * row + i] & h->bits[i], 0);
                done[c * row + i] |= h->bits[i];
                *kept += (uint64_t)__builtin_popcount(h->bits[i]);
            }
        }
    return done;
}

static void sum_up(struct world *w, const struct cast *c, uint32_t chunk, int64_t *total) {
    memset(total, 0, WORDS * sizeof *total);
    for (uint32_t r = 0; r < w->ranks; r++) {
        int64_t *sums = w->rank[r].holdings[chunk]->sums;
        if (!holds(c, r, chunk)) continue;
        gradsum_clear_empty(GRADSUM_EXACT, sums, WORLD_PARAMETERS);
        gradsum_merge(total, sums, WORDS);
    }
}

/* The same iteration by one worker that holds everything, in the plain order. */
static void reference(const struct random_shape *shape, uint64_t contributions,
                      int64_t totals[CHUNKS_MAX][WORDS]) {
    struct world w = world_open(1, 1, shape->chunks, contributions);
    struct stage_slot *slots[CHUNKS_MAX];
    for (uint32_t c = 0; c < shape->chunks; c++) holding_begin(w.rank[0].holdings[c], 0);
    for (uint64_t m = 0; m < contributions; m++) {
        for (uint32_t c = 0; c < shape->chunks; c++) {
            struct holding *h = w.rank[0].holdings[c];
            WORLD_OK(h->stage->ops->slot_take(h->stage, w.version, m, &slots[c], world_e));
            if (c > 0) memcpy(slots[c]->input, slots[c - 1]->output, h->stage->input_bytes);
            assert_int_equal(h->stage->ops->forward(h->stage, h->base, slots[c], NULL), PAWL_OK);
        }
        for (uint32_t c = shape->chunks; c-- > 0;) {
            struct holding *h = w.rank[0].holdings[c];
            if (c + 1 < shape->chunks)
                memcpy(slots[c]->grad_in, slots[c + 1]->grad_out, h->stage->output_bytes);
            assert_int_equal(h->stage->ops->input_grad(h->stage, h->base, slots[c], NULL), PAWL_OK);
            assert_int_equal(h->stage->ops->weight_grad(h->stage, h->base, slots[c], h->sums, 0, NULL),
                             PAWL_OK);
            h->stage->ops->slot_return(h->stage, slots[c]);
        }
    }
    for (uint32_t c = 0; c < shape->chunks; c++)
        memcpy(totals[c], w.rank[0].holdings[c]->sums, WORDS * sizeof(int64_t));
    world_close(&w);
}

static struct random_shape any_shape(struct rng_stream *rng, const struct random_shape *like) {
    struct random_shape s = random_any_shape(rng);
    s.memory = false;
    if (like == NULL) return s;
    /* The model and the global batch are as before; pipelines, routes, helpers and the dead are not. */
    while (s.stages != like->stages || s.chunks != like->chunks) s = random_any_shape(rng);
    s.memory = false;
    s.microbatches = like->microbatches;
    uint32_t total = like->total > 0 ? like->total : like->pipelines * like->microbatches;
    while (s.pipelines * s.microbatches < total) s.microbatches++;
    s.total = total;
    return s;
}

struct tally {
    uint64_t kept, broken;
};

/* One iteration, broken off up to three times, each time gone on with by another cast. */
static void run_seed(uint64_t seed, struct tally *tally) {
    struct rng_stream rng = {seed};
    struct random_shape shape = any_shape(&rng, NULL);
    uint64_t contributions = shape.total > 0 ? shape.total : shape.pipelines * shape.microbatches;
    uint32_t ranks = 16 + 1, breaks = (uint32_t)rng_below(&rng, 4);
    static int64_t want[CHUNKS_MAX][WORDS];
    reference(&shape, contributions, want);
    struct world w = world_open(seed, ranks, shape.chunks, contributions);
    struct cast cast = make_cast(&rng, &shape, ranks);
    uint8_t *done = NULL;
    for (uint64_t view = 1;; view++) {
        struct pawl_error error;
        if (ir_check(cast.plan, NULL, NULL, &error) != PAWL_OK) fail_msg("%s", error.text);
        if (done != NULL && ir_check_rest(cast.plan, NULL, done, NULL, &error) != PAWL_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
        uint32_t roles = cast.plan->pipelines * cast.plan->stages;
        world_fence(&w, view);
        struct player *players = begin(&w, &cast, done);
        bool last = view > breaks;
        if (!play(&w, &rng, players, roles, last ? UINT64_MAX : rng_below(&rng, 1000)))
            fail_msg("seed %llu: nobody can go on in view %llu", (unsigned long long)seed,
                     (unsigned long long)view);
        end(&w, players, roles, view);
        free(done);
        if (last) break;
        struct random_shape next = any_shape(&rng, &shape);
        end_cast(&cast);
        cast = make_cast(&rng, &next, ranks);
        done = salvage(&w, &cast, &tally->kept);
        tally->broken++;
    }
    for (uint32_t c = 0; c < shape.chunks; c++) {
        int64_t total[WORDS];
        sum_up(&w, &cast, c, total);
        for (uint32_t i = 0; i < WORDS; i++)
            if (total[i] != want[c][i])
                fail_msg("seed %llu, chunk %u, word %u: %lld, wanted %lld", (unsigned long long)seed, c, i,
                         (long long)total[i], (long long)want[c][i]);
    }
    for (uint32_t r = 0; r < w.ranks; r++) assert_int_equal(w.rank[r].device.used_microbatches, 0);
    end_cast(&cast);
    world_close(&w);
}

static void any_plan_broken_off_anywhere_and_gone_on_with_by_others_has_the_same_sums(void **state) {
    (void)state;
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) run_seed(seed, &tally);
    printf("%llu iterations broken off, %llu contributions kept\n", (unsigned long long)tally.broken,
           (unsigned long long)tally.kept);
    assert_true(tally.broken > 100 && tally.kept > 100);
}

static void a_contribution_that_is_there_is_not_entered_again(void **state) {
    (void)state;
    struct world w = world_open(1, 1, 1, 9);
    struct holding *h = w.rank[0].holdings[0];
    struct pawl_error e = {0};
    holding_begin(h, 0);
    assert_int_equal(holding_enter(h, 8, &e), PAWL_OK);
    assert_int_equal(holding_enter(h, 8, &e), PAWL_INTERNAL);
    assert_string_equal(e.text, "second contribution of micro-batch 8 to chunk 0");
    assert_int_equal(holding_enter(h, 9, &e), PAWL_INTERNAL);
    world_close(&w);
}

static void built_plans_run_also_with_dead_workers(void **state) {
    (void)state;
    bool alive[6] = {true, true, false, true, true, true};
    for (int schedule = 0; schedule < IR_SCHEDULE_COUNT; schedule++) {
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ir_build((enum ir_schedule)schedule, 2, 3, 4, alive, &plan, &e), PAWL_OK);
        if (exec_runs(plan, &e) != PAWL_OK) fail_msg("%s", e.text);
        ir_plan_free(plan);
    }
}

static void plans_that_are_valid_but_cannot_run_are_refused_in_one_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n"
         "0.0 [0]: F0:0.0 C0:0.0 B0:0.0 R0 S0\n",
         "plan: worker (0, 0) position 1: C cannot be run, only planned"},
        {"pawl-plan 2 pipelines=1 stages=1 chunks=1 microbatches=1\n"
         "0.0 [0]: F0:0.0 O0:0.0 L0:0.0 B0:0.0 R0 S0\n",
         "plan: worker (0, 0) position 1: O cannot be run, only planned"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        if (ir_parse(cases[i].text, strlen(cases[i].text), &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("case %zu: %s", i, e.text);
        assert_int_equal(exec_runs(plan, &e), PAWL_UNSUPPORTED);
        assert_string_equal(e.text, cases[i].words);
        ir_plan_free(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_plan_broken_off_anywhere_and_gone_on_with_by_others_has_the_same_sums),
        cmocka_unit_test(a_contribution_that_is_there_is_not_entered_again),
        cmocka_unit_test(built_plans_run_also_with_dead_workers),
        cmocka_unit_test(plans_that_are_valid_but_cannot_run_are_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
