/* Every order of events for small sizes, breadth-first: promises 1, 3 and 4 of the coordinator.
 *
 * Each reachable state of (coordinator, workers, channels, disk) is visited once; each move is checked as it
 * is made (coord_moves.h and coord_driver.h say against what). Scopes that are explored whole: no state may
 * be stuck, and no moves may lead back to an earlier state: so every schedule ends, with FINISH, or STOP or
 * too few workers where these are justified. Larger scopes are explored to the depth printed, and from up to
 * 2,000 states at the edge a quiet phase, in which nothing fails any more, has to reach the end. The first
 * failure found has the fewest moves possible, and they are printed.
 *
 * Breadth alone does not get deep where everything may fail. So each scope also has random walks: schedules
 * from a seed, faults and all, then a quiet phase, checked in the same way.
 *
 * Under a sanitizer, and with PAWL_EXPLORE=small, a tenth of the states is visited; PAWL_EXPLORE=large visits
 * four times as many as usual. PAWL_EXPLORE_ONLY=pattern chooses tests. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
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

#define QUIET_PHASES 2000u
#define WALK_MOVES   400u /* at most, before it becomes quiet */

struct node { /* one state */
    uint32_t parent;
    uint16_t depth;
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
    uint64_t ends[COORD_ACTION_COUNT + 1]; /* by action; too few workers is NEED */
    uint64_t tail_moves;
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

static void live_free(struct live *s) {
    if (s == NULL) return;
    coord_free(s->c);
    free(s);
}

/* The first move, counted from the `from`th, that changes anything and is no fault; false if there is none.
 * What was tried is noted in the tail of the way. */
static bool step_quietly(struct live *s, const struct world_scope *scope, uint32_t from, const char **wrong,
                         struct move *made) {
    struct move moves[WORLD_MOVES_MAX];
    uint32_t count = world_moves(&s->world, scope, moves), kept = 0;
    uint64_t before = digest_of(s);
    for (uint32_t i = 0; i < count; i++)
        if (!world_is_fault(moves[i])) moves[kept++] = moves[i];
    for (uint32_t i = 0; i < kept; i++) {
        *made = moves[(i + from) % kept];
        *wrong = world_apply(&s->world, scope, &s->c, *made);
        if (*wrong != NULL || digest_of(s) != before) return true;
    }
    return false;
}

static bool all_run(const struct world *w, const struct world_scope *scope) {
    for (uint32_t rank = 0; rank < scope->first_ranks; rank++)
        if (!w->workers[rank].running) return false;
    return true;
}

static struct live *live_new(const struct world_scope *scope) {
    struct live *s = must_have(calloc(1, sizeof *s));
    struct pawl_error e = {0};
    if (coord_new(&scope->config, &s->c, &e) != PAWL_OK) fail_msg("coord_new: %s", e.text);
    const char *wrong = world_open(&s->world, scope, s->c);
    struct move made;
    while (wrong == NULL && scope->running && !all_run(&s->world, scope))
        if (!step_quietly(s, scope, 0, &wrong, &made)) wrong = "stuck in the start";
    if (wrong != NULL) fail_msg("%s", wrong);
    return s;
}

/* ---- telling of a failure ---- */

static struct {
    uint64_t states, grads, loads, kept, redone, skipped, copied, left, moved, crashed;
} turns; /* moves that took one */

static const struct search *current_search;
static uint32_t current_node;
static struct move current_move;

#define TAIL_MAX 1000u
static struct move tail[TAIL_MAX]; /* moves after the current one: a quiet phase, or a walk */
static uint32_t tail_count;

static void print_and_make(struct live *s, const struct world_scope *scope, struct move move, bool make) {
    char text[160];
    world_print_move(&s->world, move, text, sizeof text);
    fprintf(stderr, "     %s\n", text);
    if (make) world_apply(&s->world, scope, &s->c, move);
}

/* Replay the way to the current node and the move that failed, or what came after it. */
static void print_way(void) {
    const struct search *x = current_search;
    uint32_t length = 0;
    for (uint32_t n = current_node; n != 0; n = x->nodes[n].parent) length++;
    struct move *way = must_have(calloc(length + 1, sizeof *way));
    way[length] = current_move;
    for (uint32_t n = current_node, i = length; n != 0; n = x->nodes[n].parent) way[--i] = x->nodes[n].by;
    struct live *s = live_new(x->scope);
    fprintf(stderr, "the shortest order of events that fails, %u moves:\n", length + 1);
    for (uint32_t i = 0; i <= length && current_move.kind != MOVE_NONE; i++)
        print_and_make(s, x->scope, way[i], i < length || tail_count > 0);
    if (tail_count > 0) fprintf(stderr, "and then:\n");
    for (uint32_t i = 0; i < tail_count; i++) print_and_make(s, x->scope, tail[i], i + 1 < tail_count);
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
    const struct world_holding *h =
        &before->workers[move.rank % WORLD_RANKS].holdings[move.argument % WORLD_CHUNKS];
    turns.states += move.kind == MOVE_FETCH && (h->wait & COORD_FETCH_STATE);
    turns.grads += move.kind == MOVE_FETCH && (h->wait & COORD_FETCH_GRAD);
    turns.loads += move.kind == MOVE_FETCH && (h->wait & COORD_LOAD) && before->go.version > 0;
    turns.skipped += move.kind == MOVE_REDUCE && move.argument % 8 == OUTCOME_NONFINITE;
    turns.copied += move.kind == MOVE_COPY;
    turns.crashed += move.kind == MOVE_CRASH || move.kind == MOVE_TAKEOVER;
    turns.left += after->left > before->left;
    turns.moved += move.kind == MOVE_PLAN && move.argument > 0;
    if (after->go.view == before->go.view) return;
    turns.redone += after->go.shift > before->go.shift;
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++)
        for (uint32_t chunk = 0; chunk < WORLD_CHUNKS; chunk++)
            turns.kept += (after->go.pairs[rank][chunk].flags & COORD_KEEP_WORK) != 0;
}

static struct live *live_copy(const struct live *s) {
    struct live *t = must_have(malloc(sizeof *t));
    t->world = s->world;
    t->c = must_have(coord_copy(s->c));
    return t;
}

/* An end that is not the coordinator's doing: too few are left, and nobody comes. */
static bool has_too_few(const struct world *w, const struct world_scope *scope) {
    uint32_t alive = 0;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        alive += w->workers[rank].alive && !(w->left >> rank & 1);
    return w->needing && alive < world_chunks(scope);
}

static void expand(struct search *x, uint32_t node) {
    struct live *s = x->states[node];
    struct move moves[WORLD_MOVES_MAX];
    uint32_t count = world_moves(&s->world, x->scope, moves), alive = 0; /* moves that are no faults */
    uint64_t here = digest_of(s);
    if (count > WORLD_MOVES_MAX) fail_here("more moves than the model has room for");
    for (uint32_t i = 0; i < count; i++) {
        current_node = node;
        current_move = moves[i];
        struct live *t = live_copy(s);
        const char *wrong = world_apply(&t->world, x->scope, &t->c, moves[i]);
        if (wrong != NULL) fail_here(wrong);
        count_turns(&s->world, &t->world, moves[i]);
        uint64_t digest = digest_of(t);
        bool is_new = false;
        if (digest != here) {
            uint32_t to = enter(x, digest, &is_new);
            alive += !world_is_fault(moves[i]);
            add_edge(x, to);
            if (is_new) {
                x->nodes[to] = (struct node){node, (uint16_t)(x->nodes[node].depth + 1), moves[i]};
                x->states[to] = t;
            }
        }
        if (!is_new) live_free(t);
    }
    bool too_few = s->world.end == 0 && alive == 0 && has_too_few(&s->world, x->scope);
    if (s->world.end != 0) x->ends[s->world.end - 1]++;
    x->ends[COORD_NEED] += too_few;
    if (s->world.end == 0 && alive == 0 && !too_few) {
        current_node = x->nodes[node].parent;
        current_move = x->nodes[node].by;
        fail_here("stuck: after this nothing happens any more");
    }
    live_free(s);
    x->states[node] = NULL;
}

static void count_end(struct search *x, const struct world *w) {
    x->ends[w->end != 0 ? w->end - 1u : COORD_NEED]++;
}

/* Nothing fails any more: one of the orders in which the rest can happen. */
static void be_quiet(struct search *x, struct live *s, uint32_t from) {
    for (uint32_t step = 0; s->world.end == 0; step++) {
        const char *wrong = NULL;
        if (tail_count == TAIL_MAX) fail_here("after this, with nothing failing any more, no end is near");
        bool moved = step_quietly(s, x->scope, from + step, &wrong, &tail[tail_count]);
        tail_count += moved;
        if (wrong != NULL) fail_here(wrong);
        x->tail_moves += moved;
        if (!moved && has_too_few(&s->world, x->scope)) break;
        if (!moved) fail_here("after this nothing happens any more");
    }
    count_end(x, &s->world);
    tail_count = 0;
}

static void quiet_phase(struct search *x, uint32_t node) {
    struct live *s = live_copy(x->states[node]);
    current_node = x->nodes[node].parent;
    current_move = x->nodes[node].by;
    be_quiet(x, s, node);
    live_free(s);
}

/* More than the model has room for may wait in a channel before long. */
static bool is_crowded(const struct world *w) {
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < WORLD_RANKS; rank++) {
        if (w->up[rank].count > most) most = w->up[rank].count;
        if (w->down[rank].count > most) most = w->down[rank].count;
    }
    return most + 6 > WORLD_QUEUE || w->newest_view + 8 > WORLD_VIEWS;
}

/* One random schedule from the start, faults less likely than the rest, and a quiet phase. */
static void walk(struct search *x, struct rng_stream *rng) {
    struct live *s = live_new(x->scope);
    struct move moves[WORLD_MOVES_MAX];
    current_node = 0;
    current_move = (struct move){.kind = MOVE_NONE};
    uint32_t length = (uint32_t)(rng_below(rng, WALK_MOVES));
    for (uint32_t step = 0; s->world.end == 0 && step < length && !is_crowded(&s->world); step++) {
        uint32_t count = world_moves(&s->world, x->scope, moves);
        struct move move = moves[rng_below(rng, count)];
        if (world_is_fault(move) && rng_below(rng, 8) != 0) continue;
        struct world before = s->world;
        uint64_t digest = digest_of(s);
        tail[tail_count++] = move;
        const char *wrong = world_apply(&s->world, x->scope, &s->c, move);
        if (wrong == NULL && digest_of(s) == digest) tail_count--;
        if (wrong != NULL) fail_here(wrong);
        count_turns(&before, &s->world, move);
        x->tail_moves++;
    }
    be_quiet(x, s, 0);
    live_free(s);
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
    uint32_t node = 0;
    enter(&x, digest_of(start), &is_new);
    x.nodes[0] = (struct node){0};
    x.states[0] = start;
    for (; node < x.count && (scope.states == 0 || x.count < scope.states); node++) {
        x.edge_begin[node] = x.edge_count;
        expand(&x, node);
    }
    bool whole = node == x.count;
    x.edge_begin[node] = x.edge_count;
    char depth[32] = "whole";
    if (!whole) snprintf(depth, sizeof depth, "depth %u", x.nodes[node].depth);
    uint32_t stride = (x.count - node) / QUIET_PHASES + 1;
    for (uint32_t edge = node; edge < x.count; edge += stride) quiet_phase(&x, edge);
    struct rng_stream rng = {.state = 1};
    for (uint32_t i = 0; i < scope.walks; i++) walk(&x, &rng);
    printf("%-38s %8u states %9llu moves %9s, %u walks; ends: finish %llu too few %llu stop %llu\n", name,
           x.count, (unsigned long long)(x.edge_count + x.tail_moves), depth, scope.walks,
           (unsigned long long)x.ends[COORD_FINISH], (unsigned long long)x.ends[COORD_NEED],
           (unsigned long long)x.ends[COORD_STOP]);
    fflush(stdout);
    assert_true(x.ends[COORD_FINISH] > 0);
    if (whole) assert_false(has_cycle(&x));
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

static struct world_scope scope_of(uint32_t pipelines, uint32_t chunks, uint64_t final_version) {
    int64_t never = INT64_MAX;
    return (struct world_scope){.config = {.ranks = pipelines * chunks,
                                           .chunks = chunks,
                                           .final_version = final_version,
                                           .save_every = 1,
                                           .saves_max = 2,
                                           .save_retries = 1,
                                           .start_ns = never,
                                           .beat_ns = 1,
                                           .stall_ns = {never, never, never, never, never},
                                           .suspect_ns = never,
                                           .join_ns = never,
                                           .need_ns = never},
                                .first_ranks = pipelines * chunks,
                                .microbatches = (uint8_t)pipelines,
                                .outcomes = OUTCOMES_PLAIN};
}

static void run(const char *name, uint32_t states, struct world_scope scope) {
    scope.states = effort() == SMALL ? states / 10 : effort() == LARGE ? states * 4 : states;
    scope.walks = scope.states / 40;
    explore(name, scope);
}

static void two_replicas_with_two_deaths_and_any_outcome_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.deaths = 2;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("2x1, 2 it., 2 deaths, limit", 100000, scope);
}

static void two_replicas_with_silences_and_failed_writes(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 1);
    scope.deaths = scope.save_failures = 2;
    scope.stoppings = 1;
    scope.silences = true;
    scope.outcomes = OUTCOMES_ALL;
    run("2x1, 1 it., silences, failed writes", 100000, scope);
}

static void two_pipelines_with_two_deaths_and_any_outcome(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = 2;
    scope.outcomes = OUTCOMES_ALL;
    scope.changes = 1;
    run("2x2, 1 it., 2 deaths, moves", 100000, scope);
}

static void two_pipelines_with_a_death_under_a_limit(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.deaths = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    scope.config.save_every = 0;
    scope.running = true;
    run("2x2, 2 it., 1 death, limit", 100000, scope);
}

static void a_place_that_is_taken_again(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.deaths = scope.joins = 1;
    run("2x1, 2 it., death and join", 100000, scope);
}

static void a_pipeline_more(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.first_ranks = 2;
    scope.joins = 2;
    scope.changes = 1;
    scope.running = true;
    run("1x2 to 2x2, 2 it., 2 joins", 100000, scope);
}

static void leaves_and_deaths(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.deaths = scope.leaves = 1;
    scope.changes = 1;
    scope.running = true;
    run("2x2, 1 it., death and leave", 100000, scope);
}

static void the_last_ones_leave(void **state) {
    (void)state;
    struct world_scope scope = scope_of(1, 2, 3);
    scope.leaves = 2;
    scope.joins = 1;
    scope.running = true;
    run("1x2, 3 it., 2 leaves, a join", 100000, scope);
}

static void all_replicas_of_a_chunk_die(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.durable = 1;
    scope.deaths = scope.joins = 2;
    scope.outcomes = 1u << OUTCOME_SMALL | 1u << OUTCOME_OVERFLOW;
    run("2x1, 2nd it., 2 deaths, 2 joins", 100000, scope);
}

static void takeovers_of_two_replicas(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 1, 2);
    scope.takeovers = 2;
    scope.deaths = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    run("2x1, 2 it., 2 takeovers, death, limit", 100000, scope);
}

static void takeovers_of_two_pipelines(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 1);
    scope.takeovers = 1;
    scope.deaths = 1;
    scope.changes = 1;
    scope.running = true;
    run("2x2, 1 it., takeover and death", 100000, scope);
}

static void everything_at_once_in_three_replicas(void **state) {
    (void)state;
    struct world_scope scope = scope_of(3, 1, 2);
    scope.deaths = scope.joins = scope.leaves = scope.takeovers = scope.replans = scope.stoppings = 1;
    scope.save_failures = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.config.clip_norm = LIMIT;
    scope.running = true;
    run("3x1, 2 it., one of everything", 100000, scope);
}

static void everything_at_once_in_two_pipelines(void **state) {
    (void)state;
    struct world_scope scope = scope_of(2, 2, 2);
    scope.deaths = scope.joins = scope.leaves = scope.takeovers = scope.replans = scope.changes = 1;
    scope.outcomes = OUTCOMES_ALL;
    scope.running = true;
    run("2x2, 2 it., one of everything", 100000, scope);
}

static void every_rare_turn_was_taken(void **state) {
    (void)state;
    printf(
        "turns taken: states fetched %llu, gradients fetched %llu, loads of a durable step %llu, kept work "
        "%llu, redone %llu, skipped %llu, copies %llu, left %llu, other plans %llu, takeovers %llu\n",
        (unsigned long long)turns.states, (unsigned long long)turns.grads, (unsigned long long)turns.loads,
        (unsigned long long)turns.kept, (unsigned long long)turns.redone, (unsigned long long)turns.skipped,
        (unsigned long long)turns.copied, (unsigned long long)turns.left, (unsigned long long)turns.moved,
        (unsigned long long)turns.crashed);
    assert_true(turns.states > 0 && turns.grads > 0 && turns.loads > 0 && turns.kept > 0 && turns.redone > 0);
    assert_true(turns.skipped > 0 && turns.copied > 0 && turns.left > 0 && turns.moved > 0 &&
                turns.crashed > 0);
}

int main(void) {
    signal(SIGABRT, on_abort);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_replicas_with_two_deaths_and_any_outcome_under_a_limit),
        cmocka_unit_test(two_replicas_with_silences_and_failed_writes),
        cmocka_unit_test(two_pipelines_with_two_deaths_and_any_outcome),
        cmocka_unit_test(two_pipelines_with_a_death_under_a_limit),
        cmocka_unit_test(a_place_that_is_taken_again),
        cmocka_unit_test(a_pipeline_more),
        cmocka_unit_test(leaves_and_deaths),
        cmocka_unit_test(the_last_ones_leave),
        cmocka_unit_test(all_replicas_of_a_chunk_die),
        cmocka_unit_test(takeovers_of_two_replicas),
        cmocka_unit_test(takeovers_of_two_pipelines),
        cmocka_unit_test(everything_at_once_in_three_replicas),
        cmocka_unit_test(everything_at_once_in_two_pipelines),
        cmocka_unit_test(every_rare_turn_was_taken),
    };
    cmocka_set_test_filter(getenv("PAWL_EXPLORE_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
