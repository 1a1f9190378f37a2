/* Who should recompute: workers that would otherwise stand still for lack of memory run forwards of which
 * they keep only the input (list_pass.c). Whether the second forward costs less than standing still depends
 * on how busy the worker is, so it is tried, stage by stage, and kept where the period gets shorter. */
#include "plan/search.h"

#include <string.h>

enum { PRUNE_ROUNDS = 512 };

static bool out_of_rounds(const struct search *s) {
    return s->best->period <= s->options->bound || s->rounds >= s->options->rounds || search_stopped(s);
}

static void allow(struct search *s, uint32_t stage, bool to) {
    uint32_t stages = s->problem->route->stages;
    for (uint32_t w = stage; w < s->problem->workers; w += stages) s->pass->recompute[w] = to;
}

/* The plain rule with what is allowed now; true: it is the new best. */
static bool attempt(struct search *s) {
    static const struct list_rule plain = {.prefer = LIST_BY_KIND};
    uint64_t before = s->best->period;
    list_forward(s->pass, &plain, &s->trial);
    if (s->trial.period >= before) {
        s->rounds++;
        return false;
    }
    search_note(s);
    return true;
}

void search_memory(struct search *s) {
    uint32_t stages = s->problem->route->stages;
    if (!s->problem->costs->limit) return;
    list_keys(s->pass, false);
    for (uint32_t k = 0; k < stages; k++) allow(s, k, true);
    bool all = attempt(s);
    for (uint32_t k = 0; k < stages && !all; k++) allow(s, k, false);
    for (uint32_t k = 0; k < stages && !out_of_rounds(s); k++) {
        allow(s, k, !all);
        if (!attempt(s)) allow(s, k, all);
    }
}

/* Without the recomputation at `at`: the list gets shorter by one. */
static void take_out(struct search_order *o, uint32_t workers, uint32_t worker, uint32_t at) {
    memmove(o->code + at, o->code + at + 1, (o->first[workers] - at - 1) * sizeof *o->code);
    for (uint32_t w = worker + 1; w <= workers; w++) o->first[w]--;
}

static void put_back(struct search_order *o, uint32_t workers, uint32_t worker, uint32_t at, uint32_t code) {
    memmove(o->code + at + 1, o->code + at, (o->first[workers] - at) * sizeof *o->code);
    o->code[at] = code;
    for (uint32_t w = worker + 1; w <= workers; w++) o->first[w]++;
}

static bool dispensable(struct search *s, uint32_t worker, uint32_t at) {
    const struct list_problem *p = s->problem;
    uint32_t code = s->order.code[at];
    uint64_t *start = list_start(p, s->best, code), was = *start;
    take_out(&s->order, p->workers, worker, at);
    *start = LIST_NEVER; /* what search_order_fits goes by */
    bool fits = search_order_fits(&s->order, p, worker, s->best);
    *start = was;
    if (fits) search_order_run(&s->order, s->pass, &s->trial);
    if (fits && s->trial.period <= s->best->period) return true;
    put_back(&s->order, p->workers, worker, at, code);
    return false;
}

void search_memory_prune(struct search *s) {
    const struct list_problem *p = s->problem;
    uint32_t rounds = 0;
    search_order_from(p, s->best, &s->order);
    for (uint32_t w = 0; w < p->workers; w++)
        for (uint32_t i = s->order.first[w]; i < s->order.first[w + 1] && rounds < PRUNE_ROUNDS;) {
            bool gone = list_op_of(s->order.code[i]) == LIST_C && !search_stopped(s) &&
                        (rounds++, dispensable(s, w, i));
            if (gone)
                list_schedule_copy(p, &s->trial, s->best);
            else
                i++;
        }
}
