/* Every order of events for small sizes, breadth-first: promises 1, 3 and 4 of the coordinator.
 *
 * Each reachable state of (coordinator, workers, channels) is visited once; each move is checked as it is
 * made (tests/explore/coord_moves.h says against what). No state may be stuck, and no moves may lead back to
 * an earlier state: so every schedule ends, with FINISH, LOST or STOP where these are justified. The first
 * failure found has the fewest moves possible, and they are printed.
 *
 * Under a sanitizer, and with PAWL_EXPLORE=small, the smaller scopes alone run; PAWL_EXPLORE=large adds
 * larger ones that take minutes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "coord_moves.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                                   \
    __has_feature(undefined_behavior_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

struct node { /* one state */
    uint32_t parent;
    struct move by;
};

struct live { /* what is needed to go on from it; freed when it has been expanded */
    struct world world;
    struct coord *c;
};

struct search {
    const struct world_scope *scope;
    struct node *nodes;
    struct live **states;
    uint64_t *edge_begin; /* per node, into edges: its successors; [count] is the end */
    uint32_t count, room;
    uint32_t *edges;
    uint64_t edge_count, edge_room;
    uint64_t *seen_digest; /* open addressing */
    uint32_t *seen_node;
    uint64_t seen_room;
    uint64_t ends[COORD_ACTION_COUNT + 1];
};

static void *must_have(void *p) {
    if (p == NULL) {
        fputs("no memory for the exploration\n", stderr);
        exit(1);
    }
    return p;
}

static uint64_t digest_of(const struct live *s) {
    uint64_t both[2] = {hash64(&s->world, sizeof s->world), coord_digest(s->c)};
    uint64_t digest = hash64(both, sizeof both);
    return digest != 0 ? digest : 1;
}

static void seen_grow(struct search *x) {
    uint64_t room = x->seen_room == 0 ? 1u << 16 : x->seen_room * 2;
    uint64_t *digests = must_have(calloc(room, sizeof *digests));
    uint32_t *nodes = must_have(calloc(room, sizeof *nodes));
    for (uint64_t i = 0; i < x->seen_room; i++) {
        if (x->seen_digest[i] == 0) continue;
        uint64_t at = x->seen_digest[i] & (room - 1);
        while (digests[at] != 0) at = (at + 1) & (room - 1);
        digests[at] = x->seen_digest[i];
        nodes[at] = x->seen_node[i];
    }
    free(x->seen_digest);
    free(x->seen_node);
    x->seen_digest = digests;
    x->seen_node = nodes;
    x->seen_room = room;
}

/* The node of this digest; a new one if there is none. */
static uint32_t enter(struct search *x, uint64_t digest, bool *is_new) {
    if ((uint64_t)x->count * 2 >= x->seen_room) seen_grow(x);
    uint64_t at = digest & (x->seen_room - 1);
    while (x->seen_digest[at] != 0 && x->seen_digest[at] != digest) at = (at + 1) & (x->seen_room - 1);
    *is_new = x->seen_digest[at] == 0;
    if (!*is_new) return x->seen_node[at];
    if (x->count + 1 >= x->room) {
        x->room = x->room == 0 ? 1u << 12 : x->room * 2;
        x->nodes = must_have(reallocarray(x->nodes, x->room, sizeof *x->nodes));
        x->states = must_have(reallocarray(x->states, x->room, sizeof *x->states));
        x->edge_begin = must_have(reallocarray(x->edge_begin, x->room, sizeof *x->edge_begin));
    }
    x->seen_digest[at] = digest;
    x->seen_node[at] = x->count;
    return x->count++;
}

static void add_edge(struct search *x, uint32_t to) {
    if (x->edge_count == x->edge_room) {
        x->edge_room = x->edge_room == 0 ? 1u << 16 : x->edge_room * 2;
        x->edges = must_have(reallocarray(x->edges, x->edge_room, sizeof *x->edges));
    }
    x->edges[x->edge_count++] = to;
}

static struct live *live_new(const struct world_scope *scope) {
    struct live *s = must_have(calloc(1, sizeof *s));
    struct pawl_error e = {0};
    if (coord_new(&scope->config, &s->c, &e) != PAWL_OK) fail_msg("coord_new: %s", e.text);
    world_open(&s->world, scope);
    return s;
}

static void live_free(struct live *s) {
    if (s == NULL) return;
    coord_free(s->c);
    free(s);
}

/* ---- telling of a failure ---- */

static struct { uint64_t fetched, behind, redone, skipped; } turns; /* moves that took one */

static const struct search *current_search;
static uint32_t current_node;
static struct move current_move;

/* Replay the way to the current node and the move that failed. */
static void print_way(void) {
    const struct search *x = current_search;
    uint32_t length = 0;
    for (uint32_t n = current_node; n != 0; n = x->nodes[n].parent) length++;
    struct move *way = must_have(calloc(length + 1, sizeof *way));
    way[length] = current_move;
    for (uint32_t n = current_node, i = length; n != 0; n = x->nodes[n].parent) way[--i] = x->nodes[n].by;
    struct live *s = live_new(x->scope);
    fprintf(stderr, "the shortest order of events that fails, %u moves:\n", length + 1);
    for (uint32_t i = 0; i <= length; i++) {
        char text[160];
        world_print_move(&s->world, way[i], text, sizeof text);
        fprintf(stderr, "%4u %s\n", i + 1, text);
        if (i < length) world_apply(&s->world, x->scope, s->c, way[i]);
    }
    live_free(s);
    free(way);
}

/* The coordinator aborts when it breaks its own rules. */
static void on_abort(int signal_number) {
    (void)signal_number;
    signal(SIGABRT, SIG_DFL);
    if (current_search != NULL) print_way();
}

static void fail_here(const char *what) {
    print_way();
    current_search = NULL;
    fail_msg("%s", what);
}

/* ---- the search ---- */

static void count_turns(const struct world *before, const struct world *after, struct move move) {
    turns.fetched += move.kind == MOVE_FETCH;
    turns.behind += after->killed_behind != before->killed_behind;
    turns.redone +=
        move.kind == MOVE_DOWN && after->workers[move.rank].shift > before->workers[move.rank].shift;
    turns.skipped += move.kind == MOVE_REDUCE && move.argument == OUTCOME_NONFINITE;
}

static void expand(struct search *x, uint32_t node) {
    struct live *s = x->states[node];
    struct move moves[WORLD_MOVES_MAX];
    uint32_t count = world_moves(&s->world, x->scope, moves);
    uint32_t alive = 0; /* moves that are no deaths */
    for (uint32_t i = 0; i < count; i++) {
        current_node = node;
        current_move = moves[i];
        alive += moves[i].kind != MOVE_DIE && moves[i].kind != MOVE_SILENCE &&
                 moves[i].kind != MOVE_STOPPING && moves[i].kind != MOVE_FAILED;
        struct live *t = must_have(malloc(sizeof *t));
        t->world = s->world;
        t->c = must_have(coord_copy(s->c));
        const char *wrong = world_apply(&t->world, x->scope, t->c, moves[i]);
        if (wrong != NULL) fail_here(wrong);
        count_turns(&s->world, &t->world, moves[i]);
        bool is_new;
        uint32_t to = enter(x, digest_of(t), &is_new);
        add_edge(x, to);
        if (is_new) {
            x->nodes[to] = (struct node){.parent = node, .by = moves[i]};
            x->states[to] = t;
        } else {
            live_free(t);
        }
    }
    if (s->world.end != 0) x->ends[s->world.end - 1]++;
    if (s->world.end == 0 && alive == 0) {
        current_node = x->nodes[node].parent;
        current_move = x->nodes[node].by;
        fail_here("stuck: after this nothing happens any more");
    }
    live_free(s);
    x->states[node] = NULL;
}

/* Take away nodes without predecessors until none is left; what is left is a cycle. */
static bool has_cycle(const struct search *x) {
    uint32_t *in = must_have(calloc(x->count, sizeof *in));
    uint32_t *ready = must_have(calloc(x->count, sizeof *ready));
    uint32_t taken = 0, found = 1; /* node 0 is the start */
    for (uint64_t i = 0; i < x->edge_count; i++) in[x->edges[i]]++;
    while (taken < found) {
        uint32_t node = ready[taken++];
        for (uint64_t i = x->edge_begin[node]; i < x->edge_begin[node + 1]; i++)
            if (--in[x->edges[i]] == 0) ready[found++] = x->edges[i];
    }
    free(in);
    free(ready);
    return taken != x->count;
}

static void close_search(struct search *x) {
    for (uint32_t i = 0; i < x->count; i++) live_free(x->states[i]);
    free(x->nodes);
    free(x->states);
    free(x->edge_begin);
    free(x->edges);
    free(x->seen_digest);
    free(x->seen_node);
}

static void explore(const char *name, struct world_scope scope) {
    struct search x = {.scope = &scope};
    current_search = &x;
    struct live *start = live_new(&scope);
    bool is_new;
    enter(&x, digest_of(start), &is_new);
    x.nodes[0] = (struct node){0};
    x.states[0] = start;
    for (uint32_t node = 0; node < x.count; node++) {
        x.edge_begin[node] = x.edge_count;
        expand(&x, node);
    }
    x.edge_begin[x.count] = x.edge_count;
    printf("%-34s %9u states %10llu moves; ends: finish %llu lost %llu stop %llu\n", name, x.count,
           (unsigned long long)x.edge_count, (unsigned long long)x.ends[COORD_FINISH],
           (unsigned long long)x.ends[COORD_LOST], (unsigned long long)x.ends[COORD_STOP]);
    fflush(stdout);
    assert_true(x.ends[COORD_FINISH] > 0);
    assert_false(has_cycle(&x));
    current_search = NULL;
    close_search(&x);
}

enum effort { SMALL, NORMAL, LARGE };

static enum effort effort(void) {
    const char *asked = getenv("PAWL_EXPLORE");
    if (asked != NULL && strcmp(asked, "small") == 0) return SMALL;
    if (asked != NULL && strcmp(asked, "large") == 0) return LARGE;
    return SANITIZED ? SMALL : NORMAL;
}

#define OUTCOMES_PLAIN (1u << OUTCOME_SMALL)
#define OUTCOMES_ALL                                                                                         \
    (1u << OUTCOME_SMALL | 1u << OUTCOME_LARGE | 1u << OUTCOME_NONFINITE | 1u << OUTCOME_OVERFLOW)

#define LIMIT 3.0 /* between the norms of a small and of a large outcome */

static struct world_scope scope_of(uint32_t pipelines, uint32_t stages, uint64_t final_version) {
    return (struct world_scope){.config = {.pipelines = pipelines,
                                           .stages = stages,
                                           .final_version = final_version,
                                           .save_every = 1,
                                           .saves_max = 2,
                                           .save_retries = 1,
                                           .start_ns = INT64_MAX,
                                           .beat_ns = 1,
                                           .stall_ns = INT64_MAX,
                                           .suspect_ns = INT64_MAX},
                                .outcomes = OUTCOMES_PLAIN};
}

/* Every test: breadth-first over all orders. `least` is the effort from which on it runs. */
static void run(const char *name, enum effort least, struct world_scope scope) {
    if (effort() < least) {
        print_message("left out at this effort: %s\n", name);
        return;
    }
    explore(name, scope);
}

static void one_iteration_of_2x2_with_a_death(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = 1;
    run("2x2, 1 iteration, 1 death", SMALL, scope);
}

static void one_iteration_of_2x2_with_two_deaths_and_any_outcome(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = 2;
    scope.outcomes = OUTCOMES_ALL;
    run("2x2, 1 iteration, 2 deaths, all", NORMAL, scope);
}

static void the_same_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = 2;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("2x2, 1 it., 2 deaths, limit", LARGE, scope);
}

static void one_iteration_of_2x2_with_two_deaths_or_silences(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = 2;
    scope.silences = true;
    run("2x2, 1 it., 2 deaths or silences", NORMAL, scope);
}

static void two_iterations_of_2x1_with_a_death_or_silence_and_saves(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.deaths = 1;
    scope.silences = true;
    scope.outcomes = OUTCOMES_ALL;
    run("2x1, 2 it., 1 death or silence", SMALL, scope);
}

static void two_iterations_of_2x2_with_two_deaths(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.deaths = 2;
    scope.config.save_every = 0;
    run("2x2, 2 iterations, 2 deaths", NORMAL, scope);
}

static void two_iterations_of_2x2_with_a_death_and_any_outcome_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.deaths = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    scope.config.save_every = 0;
    run("2x2, 2 it., 1 death, limit", NORMAL, scope);
}

static void two_iterations_of_2x2_with_a_death_and_saves_in_flight(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.deaths = 1;
    run("2x2, 2 iterations, 1 death, saves", LARGE, scope);
}

static void two_iterations_of_2x1_with_two_deaths_saves_and_any_outcome_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.deaths = 2;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("2x1, 2 it., 2 deaths, saves, limit", NORMAL, scope);
}

static void three_iterations_of_2x1_with_a_death_and_any_outcome_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 3);
    scope.deaths = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    scope.config.save_every = 0;
    run("2x1, 3 it., 1 death, limit", SMALL, scope);
}

static void three_iterations_of_2x1_with_two_deaths_and_one_save_at_a_time(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 3);
    scope.deaths = 2;
    scope.config.saves_max = 1;
    run("2x1, 3 it., 2 deaths, 1 save", SMALL, scope);
}

static void three_replicas_with_two_deaths_and_any_outcome_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(3, 1, 1);
    scope.deaths = 2;
    scope.stoppings = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("3x1, 1 it., 2 deaths, stop, limit", NORMAL, scope);
}

static void three_replicas_with_a_death_and_saves_in_flight(void **state) {
    (void)state;
    struct world_scope scope = scope_of(3, 1, 2);
    scope.deaths = 1;
    run("3x1, 2 iterations, 1 death, saves", NORMAL, scope);
}

static void failed_writes_with_two_deaths_and_a_stop(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 1);
    scope.deaths = 2;
    scope.save_failures = 2;
    scope.stoppings = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("2x1, 1 it., 2 deaths, 2 failed", SMALL, scope);
}

static void failed_writes_and_a_stop_in_a_pipeline_without_replicas(void **state) {
    (void)state;
    struct world_scope scope = scope_of(1, 2, 2);
    scope.save_failures = 2;
    scope.stoppings = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.saves_max = 1;
    scope.config.clip_norm = LIMIT;
    run("1x2, 2 it., 2 failed, stop, limit", NORMAL, scope);
}

static void every_rare_turn_was_taken(void **state) {
    (void)state;
    printf("turns taken: gradients fetched %llu, ranks fenced too early %llu, redone %llu, skipped %llu\n",
           (unsigned long long)turns.fetched, (unsigned long long)turns.behind,
           (unsigned long long)turns.redone, (unsigned long long)turns.skipped);
    assert_true(turns.redone > 0 && turns.skipped > 0);
    if (effort() >= NORMAL) assert_true(turns.fetched > 0 && turns.behind > 0);
}

int main(void) {
    signal(SIGABRT, on_abort);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_iteration_of_2x2_with_a_death),
        cmocka_unit_test(one_iteration_of_2x2_with_two_deaths_and_any_outcome),
        cmocka_unit_test(the_same_under_a_limit),
        cmocka_unit_test(one_iteration_of_2x2_with_two_deaths_or_silences),
        cmocka_unit_test(two_iterations_of_2x1_with_a_death_or_silence_and_saves),
        cmocka_unit_test(two_iterations_of_2x2_with_two_deaths),
        cmocka_unit_test(two_iterations_of_2x2_with_a_death_and_any_outcome_under_a_limit),
        cmocka_unit_test(two_iterations_of_2x2_with_a_death_and_saves_in_flight),
        cmocka_unit_test(two_iterations_of_2x1_with_two_deaths_saves_and_any_outcome_under_a_limit),
        cmocka_unit_test(three_iterations_of_2x1_with_a_death_and_any_outcome_under_a_limit),
        cmocka_unit_test(three_iterations_of_2x1_with_two_deaths_and_one_save_at_a_time),
        cmocka_unit_test(three_replicas_with_two_deaths_and_any_outcome_under_a_limit),
        cmocka_unit_test(three_replicas_with_a_death_and_saves_in_flight),
        cmocka_unit_test(failed_writes_with_two_deaths_and_a_stop),
        cmocka_unit_test(failed_writes_and_a_stop_in_a_pipeline_without_replicas),
        cmocka_unit_test(every_rare_turn_was_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
