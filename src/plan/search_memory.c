/* Who should recompute or offload where memory is short (list_aid.c).
 *
 * Whether the second forward or the copies cost less than standing still depends on how busy the worker is,
 * so it is tried, for all workers and then stage by stage, and kept where the period gets shorter; in the end
 * every single one that the period does not need is taken out again. */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

enum { PRUNE_ROUNDS = 1024 };

static bool out_of_rounds(const struct search *s) {
    return s->best->period <= s->options->bound || s->rounds >= s->options->rounds || search_stopped(s);
}

static void allow(struct search *s, uint32_t stage, enum list_aid to) {
    uint32_t stages = s->problem->route->stages;
    for (uint32_t w = stage; w < s->problem->workers; w += stages) s->pass->aid[w] = (uint8_t)to;
}

/* The plain rule with what is allowed now; true: shorter than before. */
static bool attempt(struct search *s) {
    static const struct list_rule plain = {.prefer = LIST_BY_KIND};
    uint64_t before = s->best->period;
    list_forward(s->pass, &plain, &s->trial);
    bool shorter = s->trial.period < before;
    if (shorter)
        search_note(s);
    else
        s->rounds++;
    return shorter;
}

/* For all workers at once, else stage by stage; `before` is [workers]. */
static void try_aid(struct search *s, enum list_aid aid, uint8_t *before) {
    uint32_t stages = s->problem->route->stages;
    memcpy(before, s->pass->aid, s->problem->workers);
    memset(s->pass->aid, aid, s->problem->workers);
    bool all = attempt(s);
    if (!all) memcpy(s->pass->aid, before, s->problem->workers);
    for (uint32_t k = 0; k < stages && !out_of_rounds(s); k++) {
        enum list_aid was = s->pass->aid[k];
        allow(s, k, all ? (enum list_aid)before[k] : aid);
        if (!attempt(s)) allow(s, k, was);
    }
}

void search_memory(struct search *s) {
    uint8_t *before = s->problem->costs->limit ? malloc(s->problem->workers) : NULL;
    if (!before) return; /* nothing is short; or it is, and then the search goes on without */
    list_keys(s->pass, false);
    if (s->options->recompute && !out_of_rounds(s)) try_aid(s, LIST_RECOMPUTE, before);
    if (s->options->offload && !out_of_rounds(s)) try_aid(s, LIST_OFFLOAD, before);
    free(before);
}

/* Try the best schedule with that cell stored whole. */
static bool dispensable(struct search *s, uint32_t cell) {
    const struct list_problem *p = s->problem;
    uint64_t *start = list_start(p, s->best, list_code(cell, LIST_C)), was = *start;
    search_order_from(p, s->best, cell, &s->order);
    *start = LIST_NEVER; /* what search_order_fits goes by */
    bool fits = search_order_fits(&s->order, p, list_host(p, cell), s->best);
    *start = was;
    if (!fits) return false;
    search_order_run(&s->order, s->pass, &s->trial);
    return s->trial.period <= s->best->period;
}

void search_memory_prune(struct search *s) {
    const struct list_problem *p = s->problem;
    uint32_t rounds = 0;
    for (uint32_t cell = 0; cell < p->cells && rounds < PRUNE_ROUNDS && !search_stopped(s); cell++) {
        bool parted = *list_start(p, s->best, list_code(cell, LIST_C)) != LIST_NEVER ||
                      *list_start(p, s->best, list_code(cell, LIST_O)) != LIST_NEVER;
        if (!parted) continue;
        rounds++;
        if (dispensable(s, cell)) list_schedule_copy(p, &s->trial, s->best);
    }
}
