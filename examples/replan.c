/* Plans around dead workers: replan PIPELINES STAGES MICROBATCHES [PIPELINE:STAGE ...]
 *
 *   cc -o replan examples/replan.c $(pkg-config --cflags --libs pawl_plan)
 *   ./replan 3 4 6 1:2
 *
 * Prints how long an iteration takes and what each worker executes first. The plan is only read here; a
 * program that trains would hand each worker its list. */
#include <stdio.h>
#include <stdlib.h>

#include <pawl/plan.h>

#define DEAD_MAX 64

static void print_worker(const struct pawl_plan *plan, uint32_t pipeline, uint32_t stage) {
    struct pawl_plan_worker w;
    if (pawl_plan_worker(plan, pipeline, stage, &w, NULL) != PAWL_OK) return;
    printf("%u:%u %3u instructions, at most %g micro-batches:", pipeline, stage, w.instruction_count,
           w.peak_memory);
    for (uint32_t i = 0; i < w.instruction_count && i < 8; i++) {
        const struct pawl_instruction *in = &w.instructions[i];
        printf(" %c%u.%u", in->op, in->home, in->microbatch); /* op, whose micro-batch, which */
    }
    puts(w.alive ? "" : " nobody there");
}

/* "1:2" */
static int parse_worker(const char *text, struct pawl_worker_at *out) {
    char rest;
    return sscanf(text, "%u:%u%c", &out->pipeline, &out->stage, &rest) == 2;
}

int main(int argc, char **argv) {
    struct pawl_worker_at dead[DEAD_MAX];
    if (argc < 4 || argc - 4 > DEAD_MAX) {
        fprintf(stderr, "usage: replan PIPELINES STAGES MICROBATCHES [PIPELINE:STAGE ...]\n");
        return 64;
    }
    struct pawl_plan_request request = {
        .pipelines = (uint32_t)strtoul(argv[1], NULL, 10),
        .stages = (uint32_t)strtoul(argv[2], NULL, 10),
        .microbatches = (uint32_t)strtoul(argv[3], NULL, 10),
        .policy = PAWL_POLICY_RECYCLE,
        .dead = dead,
        .dead_count = (uint32_t)(argc - 4),
    };
    for (int i = 4; i < argc; i++)
        if (!parse_worker(argv[i], &dead[i - 4])) {
            fprintf(stderr, "replan: %s is not PIPELINE:STAGE\n", argv[i]);
            return 64;
        }
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    if (pawl_plan_make(&request, &plan, &e) != PAWL_OK) {
        fprintf(stderr, "replan: %s\n", e.text);
        return pawl_code_exit(e.code);
    }
    const struct pawl_plan_summary *s = pawl_plan_summary(plan);
    printf("%u of %u workers, an iteration takes %g, no less than %g is possible\n", s->alive,
           s->pipelines * s->stages, s->period, s->lower_bound);
    for (uint32_t p = 0; p < s->pipelines; p++)
        for (uint32_t stage = 0; stage < s->stages; stage++) print_worker(plan, p, stage);
    pawl_plan_free(plan);
    return 0;
}
