/* Plans made by hand for the tests of src/show: a line of text per worker says what it executes and when.
 *
 *   F0.1@2-3>1     forward of micro-batch 1 of pipeline 0, from 2 to 3, sent on to worker 1
 *   I0.1/5@3.5-4<1 input-gradient of chunk 5 (else the worker's stage), its gradient from worker 1
 *   R@8-8 S@8-9    no micro-batch
 *
 * Costs are one unit for everything but R (0); every F stores 1 micro-batch; peaks and busy times follow from
 * the lists. What cannot be parsed fails the test. */
#ifndef SHOW_KIT_H
#define SHOW_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "show/show.h"

struct kit {
    struct pawl_plan plan;
    uint64_t room, filled; /* instructions in times */
    uint32_t next;         /* worker */
};

static inline struct kit kit_new(enum pawl_policy policy, uint32_t pipelines, uint32_t stages,
                                 uint32_t chunks, uint32_t microbatches) {
    struct kit k = {0};
    uint64_t workers = (uint64_t)pipelines * stages;
    struct pawl_error e = {0};
    pawl_code code = chunks == stages
                         ? ir_plan_new(pipelines, stages, microbatches, &k.plan.ir, &e)
                         : ir_plan_new_chunks(pipelines, stages, chunks, microbatches, &k.plan.ir, &e);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    k.plan.costs = calloc(1, sizeof *k.plan.costs);
    *k.plan.costs = (struct sim_costs){.pipelines = pipelines, .stages = stages, .chunks = chunks};
    k.plan.costs->chunk = calloc(chunks, sizeof *k.plan.costs->chunk);
    for (uint32_t c = 0; c < chunks; c++)
        k.plan.costs->chunk[c] = (struct sim_chunk){.forward = SIM_TICKS,
                                                    .input_grad = SIM_TICKS,
                                                    .weight_grad = SIM_TICKS,
                                                    .step = SIM_TICKS,
                                                    .full = 1,
                                                    .kept = 1,
                                                    .after_input = 1};
    k.plan.times.first = calloc(workers + 1, sizeof(uint64_t));
    k.plan.times.peak = calloc(workers, sizeof(uint64_t));
    k.plan.times.busy = calloc(workers, sizeof(uint64_t));
    k.plan.staggered = true;
    k.plan.summary = (struct pawl_plan_summary){.policy = policy,
                                                .pipelines = pipelines,
                                                .stages = stages,
                                                .chunks = chunks,
                                                .microbatches = microbatches,
                                                .engine = "list",
                                                .unit = "",
                                                .memory_unit = "microbatches",
                                                .planning_ms = 1.25,
                                                .check_ms = 0.25};
    return k;
}

static inline uint64_t kit_ticks(double time) { return (uint64_t)(time * SIM_TICKS + 0.5); }

static inline void kit_time(struct kit *k, uint64_t start, uint64_t end) {
    if (k->filled == k->room) {
        k->room = k->room * 2 + 64;
        k->plan.times.start = realloc(k->plan.times.start, k->room * sizeof(uint64_t));
        k->plan.times.end = realloc(k->plan.times.end, k->room * sizeof(uint64_t));
    }
    k->plan.times.start[k->filled] = start;
    k->plan.times.end[k->filled++] = end;
    if (end > k->plan.times.makespan) k->plan.times.makespan = end;
}

static inline uint32_t kit_number(const char **at) {
    char *end = NULL;
    unsigned long value = strtoul(*at, &end, 10);
    if (end == *at) fail_msg("no number at '%s'", *at);
    *at = end;
    return (uint32_t)value;
}

static inline enum ir_op kit_op(char letter) {
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (*ir_op_name((enum ir_op)op) == letter) return (enum ir_op)op;
    fail_msg("no op '%c'", letter);
    return IR_F;
}

static inline void kit_instruction(struct kit *k, uint32_t p, uint32_t s, const char *at) {
    struct ir_instruction in = {.op = kit_op(*at++),
                                .chunk = s,
                                .home = IR_NONE,
                                .microbatch = IR_NONE,
                                .from = IR_NONE,
                                .to = IR_NONE};
    struct pawl_error e = {0};
    double start = 0, end = 0;
    int size = 0;
    if (*at >= '0' && *at <= '9') {
        in.home = kit_number(&at);
        at++;
        in.microbatch = kit_number(&at);
    }
    if (*at == '/') {
        at++;
        in.chunk = kit_number(&at);
    }
    if (sscanf(at, "@%lf-%lf%n", &start, &end, &size) != 2) fail_msg("no times at '%s'", at);
    for (at += size; *at == '<' || *at == '>';) {
        uint32_t *peer = *at++ == '<' ? &in.from : &in.to;
        *peer = kit_number(&at);
    }
    if (*at != 0) fail_msg("cannot read '%s'", at);
    if (ir_plan_append(k->plan.ir, p, s, in, &e) != PAWL_OK) fail_msg("%s", e.text);
    kit_time(k, kit_ticks(start), kit_ticks(end));
}

/* Workers in the order of their numbers; null: dead. */
static inline void kit_worker(struct kit *k, const char *line) {
    uint32_t w = k->next++, p = w / k->plan.ir->stages, s = w % k->plan.ir->stages;
    uint64_t stored = 0;
    if (line == NULL) ir_plan_kill(k->plan.ir, w);
    char *words = strdup(line != NULL ? line : ""), *rest = NULL;
    for (char *word = strtok_r(words, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest))
        kit_instruction(k, p, s, word);
    free(words);
    k->plan.times.first[w + 1] = k->filled;
    for (uint32_t i = 0; i < k->plan.ir->workers[w].count; i++) {
        enum ir_op op = k->plan.ir->workers[w].instructions[i].op;
        uint64_t at = k->plan.times.first[w] + i;
        if (op <= IR_B || op == IR_C)
            k->plan.times.busy[w] += k->plan.times.end[at] - k->plan.times.start[at];
        stored += op == IR_F;
        if (stored > k->plan.times.peak[w]) k->plan.times.peak[w] = stored;
        stored -= op == IR_W || op == IR_B;
    }
}

/* The plan is whole. */
static inline struct pawl_plan *kit_plan(struct kit *k, double period, double bound) {
    struct pawl_plan *plan = &k->plan;
    plan->times.period = kit_ticks(period);
    plan->summary.period = period;
    plan->summary.makespan = (double)plan->times.makespan / SIM_TICKS;
    plan->summary.lower_bound = bound;
    plan->summary.gap = (period - bound) / bound;
    plan->summary.proven = period <= bound;
    return plan;
}

static inline void kit_free(struct kit *k) {
    ir_plan_free(k->plan.ir);
    free(k->plan.costs->chunk);
    free(k->plan.costs->limit);
    free(k->plan.costs->slow);
    free(k->plan.costs);
    free(k->plan.times.start);
    free(k->plan.times.end);
    free(k->plan.times.first);
    free(k->plan.times.peak);
    free(k->plan.times.busy);
}

/* What a writer prints; fails the test if it fails. The caller frees. Not inlined: gcc 12 would take the
 * result for the address of `text`. */
__attribute__((noinline, unused)) static char *kit_text(pawl_code (*write)(const struct pawl_plan *, FILE *,
                                                                           struct pawl_error *),
                                                        const struct pawl_plan *plan) {
    char *text = NULL;
    size_t size = 0;
    struct pawl_error e = {0};
    FILE *file = open_memstream(&text, &size);
    if (write(plan, file, &e) != PAWL_OK) fail_msg("%s", e.text);
    fclose(file);
    return text;
}

static inline void assert_holds(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("wanted <%s> in:\n%s", part, text);
}

static inline void assert_lacks(const char *text, const char *part) {
    if (strstr(text, part) != NULL) fail_msg("did not want <%s> in:\n%s", part, text);
}

#endif
