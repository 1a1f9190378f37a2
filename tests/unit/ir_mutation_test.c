/* The checker against broken plans: every kind of damage at every place of several valid plans.
 *
 * Damage that can never be valid must be found; where it may be (an order that is as good), a brute-force
 * judge that shares no code with the checker decides, and both must agree. */
#include "ir_random.h"

#include <stdio.h>

/* Valid plans of all kinds: both schedules, with and without dead workers, fused and split backwards; and
 * drawn ones: interleaved, a V, helpers that hold a neighbour's chunk, recompute and offload. */
struct subject {
    enum ir_schedule schedule;
    uint32_t pipelines, stages, microbatches;
    uint32_t dead; /* bit p * stages + s */
    int split;     /* -1 fused, else how long W is delayed */
};

static const struct subject subjects[] = {
    {IR_1F1B, 1, 1, 1, 0, -1},     {IR_1F1B, 1, 3, 3, 0, -1},   {IR_1F1B, 2, 2, 3, 0, -1},
    {IR_GPIPE, 2, 2, 2, 0, 1},     {IR_1F1B, 2, 3, 3, 0x1, 0},  {IR_1F1B, 3, 3, 2, 0x82, -1},
    {IR_GPIPE, 3, 2, 2, 0x9, -1},  {IR_1F1B, 3, 2, 3, 0x24, 2}, {IR_1F1B, 2, 4, 2, 0x42, 3},
    {IR_1F1B, 3, 3, 3, 0x113, -1},
};
#define BUILT (sizeof subjects / sizeof subjects[0])

static const struct random_shape drawn[] = {
    {.pipelines = 1, .stages = 2, .chunks = 4, .microbatches = 2},
    {.pipelines = 2, .stages = 2, .chunks = 4, .microbatches = 1, .v = true, .dead = 0x2},
    {.pipelines = 2, .stages = 2, .chunks = 2, .microbatches = 2, .helpers = 2},
    {.pipelines = 1, .stages = 2, .chunks = 2, .microbatches = 2, .memory = true},
    {.pipelines = 2, .stages = 2, .chunks = 4, .microbatches = 1, .helpers = 1, .memory = true, .dead = 0x8},
};
#define DRAWN    (sizeof drawn / sizeof drawn[0])
#define SUBJECTS (BUILT + DRAWN)

static struct ir_plan *subject_plan(size_t i) {
    if (i >= BUILT) return random_plan(1000 + i, &drawn[i - BUILT]);
    const struct subject *s = &subjects[i];
    bool alive[16];
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    for (uint32_t w = 0; w < s->pipelines * s->stages; w++) alive[w] = !(s->dead >> w & 1);
    if (ir_build(s->schedule, s->pipelines, s->stages, s->microbatches, alive, &plan, &e) != PAWL_OK)
        fail_msg("subject %zu: %s", i, e.text);
    if (s->split < 0) return plan;
    struct ir_plan *split = plan_split(plan, (uint32_t)s->split);
    ir_plan_free(plan);
    return split;
}

static void show(const struct ir_plan *plan, const char *what) {
    struct bytes text = {0};
    ir_print(plan, &text);
    fail_msg("%s:\n%.*s", what, (int)text.size, (const char *)text.data);
}

/* Counts, so that a test can tell that its mutations really bit. */
struct tally {
    uint64_t valid, broken, stuck;
};

/* The checker's verdict must be the judge's, and its words must fit. */
static void assert_agree(const struct ir_plan *plan, struct tally *t) {
    struct pawl_error e = {0};
    pawl_code code = ir_check(plan, NULL, NULL, &e);
    enum oracle verdict = oracle_judge(plan);
    if (code != PAWL_OK && code != PAWL_PLAN) fail_msg("unexpected code: %s", e.text);
    if ((code == PAWL_OK) != (verdict == ORACLE_VALID))
        show(plan, code == PAWL_OK ? "the judge finds fault, the checker does not" : e.text);
    bool named = strstr(e.text, "worker (") != NULL || strstr(e.text, "has no live holder") != NULL;
    if (code == PAWL_PLAN && !named) show(plan, e.text);
    if (code == PAWL_PLAN && (strstr(e.text, "cyclic") != NULL) != (verdict == ORACLE_STUCK))
        show(plan, e.text);
    *(verdict == ORACLE_VALID ? &t->valid : verdict == ORACLE_STUCK ? &t->stuck : &t->broken) += 1;
}

static void assert_found(const struct ir_plan *plan, const char *what) {
    struct pawl_error e = {0};
    struct tally t = {0};
    assert_agree(plan, &t);
    if (ir_check(plan, NULL, NULL, &e) != PAWL_PLAN) show(plan, what);
}

/* Calls `mutate` for every instruction of every subject; the callee restores what it changes. */
typedef void mutation(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t);

static struct tally for_each_instruction(mutation *mutate) {
    struct tally t = {0};
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct ir_plan *whole = subject_plan(s);
        struct ir_plan *plan = plan_copy(whole, 4);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
            for (uint32_t i = 0; i < plan->workers[w].count; i++) mutate(plan, w, i, &t);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
            assert_int_equal(plan->workers[w].count, whole->workers[w].count);
            if (plan->workers[w].count > 0)
                assert_memory_equal(plan->workers[w].instructions, whole->workers[w].instructions,
                                    plan->workers[w].count * sizeof(struct ir_instruction));
        }
        ir_plan_free(plan);
        ir_plan_free(whole);
    }
    return t;
}

static void the_subjects_themselves_are_valid(void **state) {
    (void)state;
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct tally t = {0};
        struct ir_plan *plan = subject_plan(s);
        assert_agree(plan, &t);
        assert_int_equal(t.valid, 1);
        ir_plan_free(plan);
    }
}

static void drop(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    struct ir_instruction in = list_remove(&plan->workers[worker], position);
    if (in.op == IR_C) /* what is not dropped need not be recomputed */
        assert_agree(plan, t);
    else
        assert_found(plan, "a dropped instruction went unnoticed");
    list_insert(&plan->workers[worker], position, in);
}

static void a_dropped_instruction_is_found(void **state) {
    (void)state;
    for_each_instruction(drop);
}

static void duplicate(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction in = plan->workers[worker].instructions[position];
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *list = &plan->workers[w];
        for (uint32_t at = 0; at <= list->count; at++) {
            list_insert(list, at, in);
            assert_found(plan, "a second instruction of the same kind went unnoticed");
            list_remove(list, at);
        }
    }
}

/* On every worker at every position, hence also instructions on dead workers. */
static void an_instruction_repeated_anywhere_is_found(void **state) {
    (void)state;
    for_each_instruction(duplicate);
}

static void move_within(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    struct ir_worker *list = &plan->workers[worker];
    for (uint32_t at = 0; at < list->count; at++) {
        if (at == position) continue;
        list_insert(list, at, list_remove(list, position));
        assert_agree(plan, t);
        list_insert(list, position, list_remove(list, at));
    }
}

static void an_instruction_moved_in_its_list_is_judged_rightly(void **state) {
    (void)state;
    struct tally t = for_each_instruction(move_within);
    print_message("moves: %llu valid, %llu broken, %llu stuck\n", (unsigned long long)t.valid,
                  (unsigned long long)t.broken, (unsigned long long)t.stuck);
    assert_true(t.valid > 0 && t.broken > 0 && t.stuck > 0);
}

static void swap_in_list(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    struct ir_instruction *list = plan->workers[worker].instructions;
    for (uint32_t other = position + 1; other < plan->workers[worker].count; other++) {
        struct ir_instruction a = list[position], b = list[other];
        list[position] = b;
        list[other] = a;
        assert_agree(plan, t);
        list[position] = a;
        list[other] = b;
    }
}

static void two_instructions_swapped_in_a_list_are_judged_rightly(void **state) {
    (void)state;
    struct tally t = for_each_instruction(swap_in_list);
    print_message("swaps: %llu valid, %llu broken, %llu stuck\n", (unsigned long long)t.valid,
                  (unsigned long long)t.broken, (unsigned long long)t.stuck);
    assert_true(t.valid > 0 && t.broken > 0 && t.stuck > 0);
}

/* Two random swaps at once reach longer cycles than one. */
static void random_reorderings_are_judged_rightly(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 11};
    struct tally t = {0};
    for (int round = 0; round < 20000; round++) {
        struct ir_plan *whole = subject_plan((size_t)rng_below(&rng, SUBJECTS));
        for (int i = 0; i < 2; i++) {
            struct ir_worker *w = &whole->workers[rng_below(&rng, whole->pipelines * whole->stages)];
            if (w->count < 4) continue;
            uint32_t from = (uint32_t)rng_below(&rng, w->count);
            list_insert(w, (uint32_t)rng_below(&rng, w->count), list_remove(w, from));
        }
        assert_agree(whole, &t);
        ir_plan_free(whole);
    }
    assert_true(t.valid > 0 && t.broken > 0 && t.stuck > 0);
}

static void exchange_between_workers(struct ir_plan *plan, uint32_t worker, uint32_t position,
                                     struct tally *t) {
    struct ir_instruction *here = &plan->workers[worker].instructions[position];
    for (uint32_t w = worker + 1; w < plan->pipelines * plan->stages; w++) {
        for (uint32_t i = 0; i < plan->workers[w].count; i++) {
            struct ir_instruction *there = &plan->workers[w].instructions[i];
            struct ir_instruction a = *here, b = *there;
            if (memcmp(&a, &b, sizeof a) == 0) continue;
            *here = b;
            *there = a;
            assert_agree(plan, t);
            *here = a;
            *there = b;
        }
    }
}

static void two_instructions_exchanged_between_workers_are_judged_rightly(void **state) {
    (void)state;
    struct tally t = for_each_instruction(exchange_between_workers);
    assert_true(t.broken > 0);
}

static void misroute(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction *in = &plan->workers[worker].instructions[position];
    uint32_t *fields[] = {&in->from, &in->to};
    for (int f = 0; f < 2; f++) {
        uint32_t right = *fields[f];
        uint32_t workers = plan->pipelines * plan->stages;
        for (uint32_t w = 0; w <= workers + 1; w++) {
            uint32_t wrong = w == workers + 1 ? IR_NONE : w;
            if (wrong == right) continue;
            *fields[f] = wrong;
            assert_found(plan, "a wrong neighbour went unnoticed");
        }
        *fields[f] = right;
    }
}

static void every_wrong_from_and_to_is_found(void **state) {
    (void)state;
    for_each_instruction(misroute);
}

static void rename_microbatch(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction *in = &plan->workers[worker].instructions[position];
    struct ir_instruction right = *in;
    for (uint32_t home = 0; home <= plan->pipelines + 1; home++) {
        for (uint32_t m = 0; m <= plan->microbatches + 1; m++) {
            in->home = home == plan->pipelines + 1 ? IR_NONE : home;
            in->microbatch = m == plan->microbatches + 1 ? IR_NONE : m;
            if (memcmp(in, &right, sizeof right) == 0) continue;
            assert_found(plan, "a wrong micro-batch went unnoticed");
        }
    }
    *in = right;
}

static void every_wrong_micro_batch_is_found(void **state) {
    (void)state;
    for_each_instruction(rename_microbatch);
}

static void change_op(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction *in = &plan->workers[worker].instructions[position];
    enum ir_op right = in->op;
    for (int op = 0; op <= IR_OP_COUNT; op++) {
        if (op == (int)right) continue;
        in->op = (enum ir_op)op;
        struct pawl_error e = {0};
        if (ir_check(plan, NULL, NULL, &e) != PAWL_PLAN) show(plan, "a wrong op went unnoticed");
        if (strstr(e.text, "worker (") == NULL) show(plan, e.text);
    }
    in->op = right;
}

static void rename_chunk(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction *in = &plan->workers[worker].instructions[position];
    uint32_t right = in->chunk;
    for (uint32_t k = 0; k <= plan->chunks + 1; k++) {
        in->chunk = k == plan->chunks + 1 ? IR_NONE : k;
        if (in->chunk == right) continue;
        assert_found(plan, "a wrong chunk went unnoticed");
    }
    in->chunk = right;
}

static void every_wrong_chunk_is_found(void **state) {
    (void)state;
    for_each_instruction(rename_chunk);
}

/* One chunk more or less, all of them, none, twice, out of order, out of range. */
static void every_change_of_who_holds_what_is_found(void **state) {
    (void)state;
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct ir_plan *whole = subject_plan(s);
        struct ir_plan *plan = plan_copy(whole, 1);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
            struct ir_worker *worker = &plan->workers[w];
            uint32_t *right = worker->holds, count = worker->hold_count;
            for (uint32_t set = 0; set < 1u << plan->chunks; set++) {
                uint32_t holds[8], n = 0;
                for (uint32_t k = 0; k < plan->chunks; k++)
                    if (set >> k & 1) holds[n++] = k;
                if (n == count && (n == 0 || memcmp(holds, right, n * sizeof *holds) == 0)) continue;
                worker->holds = holds;
                worker->hold_count = n;
                assert_found(plan, "a worker that holds something else went unnoticed");
            }
            for (uint32_t i = 0; i < count; i++) {
                uint32_t holds[8];
                memcpy(holds, right, count * sizeof *holds);
                worker->holds = holds;
                worker->hold_count = count;
                for (uint32_t k = 0; k <= plan->chunks; k++) { /* repeated, out of order, out of range */
                    if (k == right[i]) continue;
                    holds[i] = k;
                    assert_found(plan, "a wrong list of chunks went unnoticed");
                }
            }
            for (uint32_t i = 0; i < count;
                 i++) { /* the same chunks, one twice, or two the wrong way round */
                uint32_t holds[9];
                memcpy(holds, right, i * sizeof *holds);
                memcpy(holds + i + 1, right + i, (count - i) * sizeof *holds);
                holds[i] = right[i];
                worker->holds = holds;
                worker->hold_count = count + 1;
                assert_found(plan, "a chunk held twice went unnoticed");
                if (i == 0) continue;
                memcpy(holds, right, count * sizeof *holds);
                holds[i - 1] = right[i];
                holds[i] = right[i - 1];
                worker->hold_count = count;
                assert_found(plan, "chunks out of order went unnoticed");
            }
            worker->holds = right;
            worker->hold_count = count;
        }
        ir_plan_free(plan);
        ir_plan_free(whole);
    }
}

static void every_wrong_op_is_found(void **state) {
    (void)state;
    for_each_instruction(change_op);
}

/* The instruction goes to the same place of another worker: a wrong host, a wrong stage or a dead worker. */
static void move_to_other_worker(struct ir_plan *plan, uint32_t worker, uint32_t position, struct tally *t) {
    (void)t;
    struct ir_instruction in = list_remove(&plan->workers[worker], position);
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *other = &plan->workers[w];
        if (w == worker) continue;
        for (uint32_t at = 0; at <= other->count; at++) {
            list_insert(other, at, in);
            assert_found(plan, "an instruction on another worker went unnoticed");
            list_remove(other, at);
        }
    }
    list_insert(&plan->workers[worker], position, in);
}

static void an_instruction_on_another_worker_is_found(void **state) {
    (void)state;
    for_each_instruction(move_to_other_worker);
}

/* All tasks of one micro-batch to another host, the neighbours still naming the old one. */
static void a_whole_micro_batch_on_another_host_is_found_by_its_neighbours(void **state) {
    (void)state;
    uint32_t tried = 0;
    struct ir_plan *plan = subject_plan(9);
    for (uint32_t cell = 0; cell < 27; cell++) {
        uint32_t home = cell / 9, stage = cell / 3 % 3, microbatch = cell % 3;
        uint32_t host = oracle_host(plan, home, stage, microbatch);
        for (uint32_t p = 0; p < 3; p++) {
            if (p == host / 3) continue;
            struct ir_plan *moved = plan_copy(plan, 2);
            struct ir_worker *from = &moved->workers[host], *to = ir_plan_worker(moved, p, stage);
            uint32_t f = 0, b = 0;
            oracle_find(from, IR_B, stage, home, microbatch, &b);
            list_insert(to, 0, list_remove(from, b));
            oracle_find(from, IR_F, stage, home, microbatch, &f);
            list_insert(to, 0, list_remove(from, f));
            assert_found(moved, "a micro-batch on another host went unnoticed");
            ir_plan_free(moved);
            tried++;
        }
    }
    assert_int_equal(tried, 54);
    ir_plan_free(plan);
}

static void a_worker_called_dead_with_its_list_is_found(void **state) {
    (void)state;
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct ir_plan *plan = subject_plan(s);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
            if (!plan->workers[w].alive) continue;
            plan->workers[w].alive = false;
            assert_found(plan, "a dead worker with instructions went unnoticed");
            plan->workers[w].alive = true;
        }
        ir_plan_free(plan);
    }
}

static void one_micro_batch_less_memory_than_needed_is_found(void **state) {
    (void)state;
    for (size_t s = 0; s < SUBJECTS; s++) {
        struct ir_plan *plan = subject_plan(s);
        uint32_t workers = plan->pipelines * plan->stages;
        uint64_t peak[16], limit[16];
        struct ir_memory memory = {.limit = limit};
        struct pawl_error e = {0};
        assert_int_equal(ir_check(plan, NULL, peak, &e), PAWL_OK);
        memcpy(limit, peak, sizeof limit);
        assert_int_equal(ir_check(plan, &memory, NULL, &e), PAWL_OK);
        for (uint32_t w = 0; w < workers; w++) {
            char name[32];
            if (peak[w] == 0) continue;
            limit[w] = peak[w] - 1;
            assert_int_equal(ir_check(plan, &memory, NULL, &e), PAWL_PLAN);
            snprintf(name, sizeof name, "worker (%u, %u)", w / plan->stages, w % plan->stages);
            assert_non_null(strstr(e.text, name));
            assert_non_null(strstr(e.text, "memory limit"));
            limit[w] = peak[w];
        }
        ir_plan_free(plan);
    }
}

/* Every kind of plan, with sizes of every kind: what is stored is what adding up by hand gives. */
static void drawn_plans_are_valid_and_store_what_their_lists_say(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 17};
    uint32_t offloaded = 0, several = 0;
    for (int round = 0; round < 2000; round++) {
        struct random_shape shape = random_any_shape(&rng);
        struct ir_plan *plan = random_plan(rng_next(&rng), &shape);
        uint64_t size[3][8], peak[16];
        struct ir_memory memory = {size[0], size[1], size[2], NULL};
        struct pawl_error e = {0};
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 8; k++) size[i][k] = rng_below(&rng, 100);
        if (ir_check(plan, &memory, peak, &e) != PAWL_OK) show(plan, e.text);
        if (round % 10 == 0) assert_int_equal(oracle_judge(plan), ORACLE_VALID);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
            assert_int_equal(peak[w], oracle_peak(&plan->workers[w], &memory));
            if (plan->workers[w].hold_count > 1) several++;
            for (uint32_t i = 0; i < plan->workers[w].count; i++)
                if (plan->workers[w].instructions[i].op == IR_O) offloaded++;
        }
        ir_plan_free(plan);
    }
    assert_true(offloaded > 1000 && several > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_subjects_themselves_are_valid),
        cmocka_unit_test(a_dropped_instruction_is_found),
        cmocka_unit_test(an_instruction_repeated_anywhere_is_found),
        cmocka_unit_test(an_instruction_moved_in_its_list_is_judged_rightly),
        cmocka_unit_test(two_instructions_swapped_in_a_list_are_judged_rightly),
        cmocka_unit_test(random_reorderings_are_judged_rightly),
        cmocka_unit_test(two_instructions_exchanged_between_workers_are_judged_rightly),
        cmocka_unit_test(every_wrong_from_and_to_is_found),
        cmocka_unit_test(every_wrong_micro_batch_is_found),
        cmocka_unit_test(every_wrong_op_is_found),
        cmocka_unit_test(every_wrong_chunk_is_found),
        cmocka_unit_test(every_change_of_who_holds_what_is_found),
        cmocka_unit_test(drawn_plans_are_valid_and_store_what_their_lists_say),
        cmocka_unit_test(an_instruction_on_another_worker_is_found),
        cmocka_unit_test(a_whole_micro_batch_on_another_host_is_found_by_its_neighbours),
        cmocka_unit_test(a_worker_called_dead_with_its_list_is_found),
        cmocka_unit_test(one_micro_batch_less_memory_than_needed_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
