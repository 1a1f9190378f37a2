/* The coordinator's half of the protocol, with workers that only answer: what it tells whom, what it keeps of
 * a broken iteration, and which failures end the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/conduct.h"
#include "run/go.h"

#define PLACES 6u /* of which four work: two pipelines of two stages */
#define CHUNKS 2u
#define TOTAL  8u

struct heard { /* by a worker */
    uint32_t count[MESSAGE_KIND_END];
    uint32_t addresses; /* in the last PEERS */
};

struct world {
    struct spec spec;
    struct conduct *conduct;
    struct heard heard[PLACES];
    struct go go; /* the last one sent */
    uint32_t go_receivers;
    uint64_t view; /* of the last FENCE */
    uint64_t find_view;
    uint32_t killed; /* times */
    char kill_why[128];
    struct conduct_note salvage, plan;
    char fence_why[32], salvage_why[128];
    uint32_t salvages;
    int64_t now_ns;
};

static void count_addresses(struct heard *h, const struct message *m) {
    struct reader r = reader_of(m->data, m->data_bytes);
    h->addresses = 0;
    while (r.at < r.size) {
        reader_u32(&r);
        reader_take(&r, reader_u32(&r));
        assert_false(r.failed);
        h->addresses++;
    }
}

static void hook_send(void *context, const uint32_t *ranks, uint32_t count, const struct message *m) {
    struct world *w = context;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(ranks[i] < PLACES);
        w->heard[ranks[i]].count[m->kind]++;
        if (m->kind == MESSAGE_PEERS) count_addresses(&w->heard[ranks[i]], m);
    }
    if (m->kind == MESSAGE_FENCE) w->view = m->view;
    if (m->kind != MESSAGE_GO) return;
    struct pawl_error e;
    go_close(&w->go);
    if (go_decode(m->data, m->data_bytes, &w->go, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(m->view, w->go.view);
    w->go_receivers = count;
}

static void hook_kill(void *context, uint32_t rank, const char *why) {
    struct world *w = context;
    (void)rank;
    w->killed++;
    snprintf(w->kill_why, sizeof w->kill_why, "%s", why);
}

static void hook_find(void *context, uint64_t view) { ((struct world *)context)->find_view = view; }

static void hook_need(void *context, uint32_t count, const char *why) {
    (void)context, (void)count, (void)why;
}

static void hook_note(void *context, const struct conduct_note *note) {
    struct world *w = context;
    if (note->kind == CONDUCT_NOTE_PLAN) w->plan = *note;
    if (note->kind == CONDUCT_NOTE_FENCE) snprintf(w->fence_why, sizeof w->fence_why, "%s", note->why);
    if (note->kind != CONDUCT_NOTE_SALVAGE) return;
    w->salvage = *note;
    w->salvages++;
    snprintf(w->salvage_why, sizeof w->salvage_why, "%s", note->why != NULL ? note->why : "");
}

static void world_spec(struct world *w) {
    static const char text[] = "run: {dir: none, steps: 10}\n"
                               "model: {layers: 2, heads: 2, width: 8, context: 6, vocabulary: 13}\n"
                               "data: {path: none, format: uint16}\n"
                               "parallel: {pipelines: 2, stages: 2, microbatches: 4, batch: 1}\n"
                               "save: {every: 0}\n";
    struct pawl_error e;
    if (spec_parse(text, sizeof text - 1, "test", &w->spec, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void world_conduct(struct world *w, bool recover, const bool *there) {
    struct conduct_config config = {.spec = &w->spec,
                                    .ranks = PLACES,
                                    .recover = recover,
                                    .view = w->view,
                                    .there = there,
                                    .incarnation = recover ? 7 : 0};
    spec_coord_config(&w->spec, &config.coord);
    struct conduct_hooks hooks = {.context = w,
                                  .send = hook_send,
                                  .kill = hook_kill,
                                  .find = hook_find,
                                  .need = hook_need,
                                  .note = hook_note};
    struct pawl_error e;
    if (conduct_new(&config, hooks, &w->conduct, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void say(struct world *w, uint32_t rank, struct message m) {
    if (m.text == NULL) m.text = "";
    conduct_message(w->conduct, rank, &m, ++w->now_ns);
}

static void come(struct world *w, uint32_t rank) {
    uint8_t address[9] = {(uint8_t)rank, 1, 2};
    conduct_started(w->conduct, rank, ++w->now_ns);
    say(w, rank, (struct message){.kind = MESSAGE_ADDRESS, .data = address, .data_bytes = sizeof address});
    say(w, rank, (struct message){.kind = MESSAGE_READY});
}

/* What a rank answers: one chunk or none, the contributions it has, or the gradient. */
struct answer {
    uint32_t chunk; /* UINT32_MAX: it has nothing */
    uint64_t incarnation;
    uint64_t version;
    bool has_grad;
    uint8_t bits; /* of iteration `version`; 0: none */
    uint64_t overflow;
};

static void answer(struct world *w, uint32_t rank, struct answer a) {
    bool work = a.bits != 0;
    struct fenced_pair pair = {.pair = {.chunk = a.chunk,
                                        .version = a.version,
                                        .has_report = a.has_grad,
                                        .report = {.iteration = a.version, .overflow = a.overflow},
                                        .work = work ? a.version : COORD_NO_WORK},
                               .total = work ? TOTAL : 0,
                               .bits = &a.bits};
    struct fenced f = {.pairs = &pair,
                       .pair_count = a.chunk != UINT32_MAX,
                       .incarnation = a.incarnation,
                       .optimistic = true};
    struct bytes b = {0};
    fenced_encode(&f, &b);
    say(w, rank,
        (struct message){.kind = MESSAGE_FENCED, .view = w->view, .data = b.data, .data_bytes = b.size});
    bytes_close(&b);
}

/* Four workers come, nobody has anything, everything is made anew. */
static void world_start(struct world *w) {
    *w = (struct world){.view = 0};
    world_spec(w);
    world_conduct(w, false, NULL);
    for (uint32_t r = 0; r < 4; r++) conduct_started(w->conduct, r, ++w->now_ns);
    for (uint32_t r = 0; r < 4; r++) {
        uint8_t address[9] = {(uint8_t)r, 1, 2};
        say(w, r, (struct message){.kind = MESSAGE_ADDRESS, .data = address, .data_bytes = sizeof address});
        say(w, r, (struct message){.kind = MESSAGE_READY});
    }
    assert_string_equal(w->fence_why, "start");
    for (uint32_t r = 0; r < 4; r++) answer(w, r, (struct answer){.chunk = UINT32_MAX});
    assert_int_equal(w->find_view, w->view);
    conduct_found(w->conduct, w->view, 0, 0, 3, PAWL_OK, "", ++w->now_ns);
}

static void world_end(struct world *w) {
    conduct_free(w->conduct);
    go_close(&w->go);
}

static uint32_t chunk_of(const struct world *w, uint32_t rank) {
    for (uint32_t k = 0; k < CHUNKS; k++)
        if (w->go.pairs[rank * CHUNKS + k].held) return k;
    return UINT32_MAX;
}

/* The lowest rank that holds the chunk but `not`. */
static uint32_t holder(const struct world *w, uint32_t chunk, uint32_t not ) {
    for (uint32_t r = 0; r < PLACES; r++)
        if (r != not &&w->go.pairs[r * CHUNKS + chunk].held) return r;
    return UINT32_MAX;
}

static void a_start_loads_everything_and_introduces_everybody(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    assert_int_equal(w.go_receivers, 4);
    assert_true(w.go.restore);
    assert_int_equal(w.go.incarnation, 3);
    assert_int_equal(w.go.version, 0);
    assert_null(w.go.done);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(w.heard[r].addresses, 4);
        assert_int_equal(w.heard[r].count[MESSAGE_GO], 1);
        uint32_t chunk = chunk_of(&w, r);
        assert_int_not_equal(chunk, UINT32_MAX);
        assert_int_equal(w.go.pairs[r * CHUNKS + chunk].flags, COORD_LOAD);
    }
    assert_int_equal(w.plan.live, 4);
    assert_int_equal(w.plan.spares, 0);
    assert_int_equal(w.salvages, 0);
    world_end(&w);
}

/* The second holder of chunk 0 dies; its peer has done four, both others three together. */
static void what_survivors_have_done_counts_and_the_rest_is_told_to_be_redone(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    uint32_t position = w.go.plan->workers[0].count;
    for (uint32_t role = 0; role < 4; role++)
        if (w.go.rank_of_role[role] == dead) position = w.go.plan->workers[role].count - 2; /* its R */
    say(&w, dead, (struct message){.kind = MESSAGE_BEAT, .at = {.position = position, .op = IR_R}});
    conduct_exit(w.conduct, dead, ++w.now_ns);
    assert_string_equal(w.fence_why, "a worker died");
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x0f});
    answer(&w, a, (struct answer){.chunk = 1, .bits = 0x03});
    answer(&w, b, (struct answer){.chunk = 1, .bits = 0x80});
    assert_int_equal(w.go_receivers, 3);
    assert_false(w.go.restore);
    assert_non_null(w.go.done);
    assert_int_equal(w.go.done[0], 0x0f);
    assert_int_equal(w.go.done[1], 0x83);
    assert_int_equal(w.go.pairs[left * CHUNKS].flags, COORD_KEEP_WORK);
    assert_int_equal(w.salvage.kept, 7);
    assert_int_equal(w.salvage.redone, 4); /* all of its share, as it said last */
    assert_string_equal(w.salvage_why, "");
    world_end(&w);
}

/* What the dead had to do in the plan that is used, but for what was done before it. */
static uint32_t to_do(const struct world *w, uint32_t rank, uint32_t *position) {
    const struct ir_plan *plan = w->go.plan;
    uint32_t role = 0, count = 0;
    while (w->go.rank_of_role[role] != rank) role++;
    *position = plan->workers[role].count;
    for (uint32_t i = 0; i < *position; i++) {
        const struct ir_instruction *in = &plan->workers[role].instructions[i];
        uint64_t m = (uint64_t)in->home * plan->microbatches + in->microbatch;
        count += (in->op == IR_W || in->op == IR_B) && (w->go.done[in->chunk] >> m & 1) == 0;
    }
    return count;
}

static void what_was_done_before_the_plan_of_the_dead_is_not_told_to_be_redone_by_it(void **state) {
    (void)state;
    struct world w;
    uint32_t position;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x3f});
    answer(&w, a, (struct answer){.chunk = 1, .bits = 0x0f});
    answer(&w, b, (struct answer){.chunk = 1, .bits = 0x70});
    uint32_t redone = to_do(&w, b, &position);
    assert_in_range(redone, 1, 3); /* of eight: the last of chunk 1, two of chunk 0 if it helps there */
    say(&w, b, (struct message){.kind = MESSAGE_BEAT, .at = {.position = position, .op = IR_R}});
    conduct_exit(w.conduct, b, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x3f});
    answer(&w, a, (struct answer){.chunk = 1, .bits = 0x0f});
    assert_int_equal(w.salvage.kept, 10);
    assert_int_equal(w.salvage.redone, redone);
    world_end(&w);
}

static void a_contribution_claimed_twice_costs_all_work_and_no_bits(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x0f});
    answer(&w, a, (struct answer){.chunk = 1, .bits = 0x03});
    answer(&w, b, (struct answer){.chunk = 1, .bits = 0x06});
    assert_int_equal(w.go_receivers, 3);
    assert_null(w.go.done);
    for (uint32_t i = 0; i < PLACES * CHUNKS; i++) assert_int_equal(w.go.pairs[i].flags & COORD_KEEP_WORK, 0);
    assert_int_equal(w.salvage.kept, 0);
    assert_int_equal(w.salvage.redone, 8);
    assert_string_equal(w.salvage_why, "two workers claim the same contribution");
    world_end(&w);
}

static void a_chunk_whose_gradient_is_held_needs_nothing_more(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x01});
    answer(&w, a, (struct answer){.chunk = 1, .has_grad = true, .bits = 0x0f});
    answer(&w, b, (struct answer){.chunk = 1, .bits = 0xf0});
    assert_false(w.go.settle);
    assert_int_equal(w.go.done[0], 0x01);
    assert_int_equal(w.go.done[1], 0xff);
    assert_int_equal(w.go.pairs[b * CHUNKS + 1].flags & COORD_FETCH_GRAD, COORD_FETCH_GRAD);
    assert_int_equal(w.salvage.redone, 0);
    world_end(&w);
}

/* All gradients are there, but one overflowed: they are dropped, and so is what was added with their
 * exponents. */
static void nothing_is_kept_of_an_iteration_that_is_done_again_with_other_exponents(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .has_grad = true, .overflow = 1, .bits = 0xff});
    answer(&w, a, (struct answer){.chunk = 1, .has_grad = true, .bits = 0x0f});
    answer(&w, b, (struct answer){.chunk = 1, .has_grad = true, .bits = 0xf0});
    assert_false(w.go.settle);
    assert_int_equal(w.go.shift, 16);
    assert_null(w.go.done);
    assert_int_equal(w.salvage.redone, 16);
    world_end(&w);
}

/* The run is to end at version 1, which is made; its ranks went on and have all gradients of iteration 1 when
 * one dies. There is no version 2, so the gradients are dropped: what was done is what is left in the sums.
 */
static void at_the_end_a_gradient_that_is_dropped_does_not_count_as_done(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    conduct_stop(w.conduct, ++w.now_ns);
    for (uint32_t r = 0; r < 4; r++)
        say(&w, r, (struct message){.kind = MESSAGE_REDUCED, .view = w.view, .chunk = chunk_of(&w, r)});
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, left, (struct answer){.chunk = 0, .version = 1, .has_grad = true, .bits = 0x0f});
    answer(&w, a, (struct answer){.chunk = 1, .version = 1, .has_grad = true});
    answer(&w, b, (struct answer){.chunk = 1, .version = 1, .has_grad = true, .bits = 0xf0});
    assert_false(w.go.settle);
    assert_int_equal(w.go.version, 1);
    assert_int_equal(w.go.pairs[left * CHUNKS].flags, COORD_KEEP_WORK);
    assert_int_equal(w.go.pairs[a * CHUNKS + 1].flags, 0);
    assert_int_equal(w.go.pairs[b * CHUNKS + 1].flags, COORD_KEEP_WORK);
    assert_int_equal(w.go.done[0], 0x0f); /* the other half was in the sums of the dead */
    assert_int_equal(w.go.done[1], 0xf0);
    assert_int_equal(w.salvage.kept, 8);
    world_end(&w);
}

/* A rank that answered, died and came again has nothing, whatever the one before it had said. */
static void what_was_claimed_in_an_older_fence_does_not_count(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint32_t left = holder(&w, 0, UINT32_MAX), dead = holder(&w, 0, left);
    uint32_t a = holder(&w, 1, UINT32_MAX), b = holder(&w, 1, a);
    come(&w, 4);
    conduct_exit(w.conduct, dead, ++w.now_ns);
    answer(&w, b, (struct answer){.chunk = 1, .has_grad = true, .bits = 0xf0});
    conduct_exit(w.conduct, b, ++w.now_ns);
    come(&w, b);
    conduct_exit(w.conduct, 4, ++w.now_ns); /* takes b in */
    answer(&w, left, (struct answer){.chunk = 0, .bits = 0x01});
    answer(&w, a, (struct answer){.chunk = 1, .bits = 0x02});
    answer(&w, b, (struct answer){.chunk = UINT32_MAX});
    assert_int_equal(w.go_receivers, 3);
    assert_int_equal(w.go.done[0], 0x01);
    assert_int_equal(w.go.done[1], 0x02);
    world_end(&w);
}

static void who_comes_hears_of_all_and_the_others_only_of_who_came(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    come(&w, 4);
    for (uint32_t r = 0; r < 4; r++) assert_int_equal(w.heard[r].count[MESSAGE_PEERS], 1);
    conduct_exit(w.conduct, 3, ++w.now_ns); /* any fence takes in who is ready */
    for (uint32_t r = 0; r < 5; r++)
        if (r != 3) answer(&w, r, (struct answer){.chunk = r < 4 ? chunk_of(&w, r) : UINT32_MAX, .bits = 0});
    assert_int_equal(w.go_receivers, 4);
    assert_int_equal(w.heard[4].addresses, 4);
    assert_int_equal(w.heard[0].addresses, 1);
    assert_int_equal(w.heard[3].count[MESSAGE_PEERS], 1);
    world_end(&w);
}

/* The launcher has begun incarnation 7 for a search whose coordinator died; the members save for 3 still, and
 * so must the one that comes: parts of two incarnations never make a step. */
static void a_new_coordinator_fences_and_goes_on_from_the_answers(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    uint64_t view = w.view;
    uint32_t chunk[4];
    for (uint32_t r = 0; r < 4; r++) chunk[r] = chunk_of(&w, r);
    conduct_free(w.conduct);
    bool there[PLACES] = {true, true, true, true, true};
    world_conduct(&w, true, there);
    conduct_tick(w.conduct, ++w.now_ns);
    assert_int_equal(w.view, view + 1);
    assert_string_equal(w.fence_why, "takeover");
    uint8_t address[9] = {5};
    for (uint32_t r = 0; r < 5; r++)
        say(&w, r, (struct message){.kind = MESSAGE_ADDRESS, .data = address, .data_bytes = sizeof address});
    for (uint32_t r = 0; r < 4; r++)
        answer(
            &w, r,
            (struct answer){
                .chunk = chunk[r], .incarnation = 3, .version = 5, .bits = (uint8_t)(r < 2 ? 0x03 : 0x0c)});
    answer(&w, 4, (struct answer){.chunk = UINT32_MAX});
    assert_int_equal(w.go_receivers, 5);
    assert_int_equal(w.go.version, 5);
    assert_false(w.go.restore);
    assert_int_equal(w.go.incarnation, 3);
    assert_int_equal(w.salvage.kept, 8);
    world_end(&w);
}

static void bytes_that_are_no_answer_end_their_sender(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    conduct_exit(w.conduct, 3, ++w.now_ns);
    say(&w, 0, (struct message){.kind = MESSAGE_FENCED, .view = w.view});
    assert_int_equal(w.killed, 1);
    say(&w, 1, (struct message){.kind = MESSAGE_MEASURED});
    assert_int_equal(w.killed, 2);
    say(&w, 1, (struct message){.kind = MESSAGE_GO});
    assert_int_equal(w.killed, 3);
    assert_string_equal(w.kill_why, "sent a message that is not a worker's");
    assert_int_equal(conduct_state(w.conduct), CONDUCT_RUNNING);
    world_end(&w);
}

static void a_failure_that_all_would_have_stops_the_run_and_any_other_only_when_it_comes_again(void **state) {
    (void)state;
    struct world w;
    world_start(&w);
    say(&w, 0, (struct message){.kind = MESSAGE_FAILED, .code = PAWL_SPEC, .text = "model.width: 7"});
    assert_int_equal(conduct_state(w.conduct), CONDUCT_STOPPED);
    assert_string_equal(conduct_error(w.conduct)->text, "model.width: 7");
    world_end(&w);
    world_start(&w);
    say(&w, 0, (struct message){.kind = MESSAGE_FAILED, .code = PAWL_IO, .text = "disk"});
    say(&w, 1, (struct message){.kind = MESSAGE_FAILED, .code = PAWL_IO, .text = "disk"});
    assert_int_equal(conduct_state(w.conduct), CONDUCT_RUNNING); /* machines have disks */
    say(&w, 0, (struct message){.kind = MESSAGE_FAILED, .code = PAWL_USER, .text = "loss()"});
    assert_int_equal(conduct_state(w.conduct), CONDUCT_RUNNING);
    say(&w, 1, (struct message){.kind = MESSAGE_FAILED, .code = PAWL_USER, .text = "loss()"});
    assert_int_equal(conduct_state(w.conduct), CONDUCT_STOPPED);
    assert_int_equal(conduct_error(w.conduct)->code, PAWL_USER);
    assert_string_equal(conduct_error(w.conduct)->text, "loss() (twice at step 0: it is not tried again)");
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_loads_everything_and_introduces_everybody),
        cmocka_unit_test(what_survivors_have_done_counts_and_the_rest_is_told_to_be_redone),
        cmocka_unit_test(what_was_done_before_the_plan_of_the_dead_is_not_told_to_be_redone_by_it),
        cmocka_unit_test(a_contribution_claimed_twice_costs_all_work_and_no_bits),
        cmocka_unit_test(a_chunk_whose_gradient_is_held_needs_nothing_more),
        cmocka_unit_test(at_the_end_a_gradient_that_is_dropped_does_not_count_as_done),
        cmocka_unit_test(nothing_is_kept_of_an_iteration_that_is_done_again_with_other_exponents),
        cmocka_unit_test(what_was_claimed_in_an_older_fence_does_not_count),
        cmocka_unit_test(who_comes_hears_of_all_and_the_others_only_of_who_came),
        cmocka_unit_test(a_new_coordinator_fences_and_goes_on_from_the_answers),
        cmocka_unit_test(bytes_that_are_no_answer_end_their_sender),
        cmocka_unit_test(a_failure_that_all_would_have_stops_the_run_and_any_other_only_when_it_comes_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
