/* Who should recompute or offload where memory is short (list_aid.c).
 *
 * Whether the second forward or the copies cost less than standing still depends on how busy a worker is:
 * each kind of help is tried for all workers; from those whom the best of them does not serve it is taken
 * away again, stage by stage. After the search every single recomputation and offload that the period does
 * not need goes. */
#include "plan/search.h"

enum { PRUNE_ROUNDS = 1024 };

static void allow(struct search *s, uint32_t stage, enum list_aid to) {
    uint32_t stages = s->problem->route->stages;
    for (uint32_t w = stage; w < s->problem->workers; w += stages) s->pass->aid[w] = (uint8_t)to;
}

static void allow_all(struct search *s, enum list_aid to) {
    for (uint32_t k = 0; k < s->problem->route->stages; k++) allow(s, k, to);
}

/* The plain rule with what is allowed now; true: not worse than the best, which it becomes. */
static bool attempt(struct search *s) {
    static const struct list_rule rule = {.prefer = LIST_BY_KIND};
    list_forward(s->pass, &rule, &s->trial);
    s->rounds++;
    if (s->trial.period > s->best->period || s->trial.period == LIST_NEVER) return false;
    list_schedule_copy(s->problem, &s->trial, s->best);
    return true;
}

bool search_memory(struct search *s) {
    enum list_aid chosen = LIST_NO_AID;
    s->best->period = LIST_NEVER; /* the caller keeps it */
    list_keys(s->pass, false);
    for (int aid = LIST_RECOMPUTE_LATE; aid <= LIST_OFFLOAD; aid++) {
        bool allowed = aid == LIST_OFFLOAD ? s->options->offload : s->options->recompute;
        if (!allowed || search_stopped(s)) continue;
        allow_all(s, (enum list_aid)aid);
        if (attempt(s)) chosen = (enum list_aid)aid;
    }
    allow_all(s, chosen);
    for (uint32_t k = 0; k < s->problem->route->stages && !search_finished(s); k++) {
        allow(s, k, LIST_NO_AID);
        if (!attempt(s)) allow(s, k, chosen);
    }
    return chosen != LIST_NO_AID;
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
