/* What stages cost and how fast ranks are: from a profile, or as told by the ranks.
 *
 * A stage takes the median of what those who compute it have told; a rank's speed is its own over that.
 * Speeds are judged by several reports in a row, and measured costs are taken over only when they differ in
 * earnest: on a busy machine each report is a little different. Tested in tests/unit/run_replan_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/replan_state.h"

#define NS_OF_MS 1e-6 /* measured times are given in ms */
#define MS_S     1e-3

static pawl_code no_memory(uint32_t ranks, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory for the costs of %u ranks", ranks);
}

/* The profile's workers are those of the start: rank = pipeline * stages + stage. */
static void take_workers(struct replan_costs *c, uint32_t stages, uint32_t ranks) {
    for (uint32_t i = 0; i < c->profile->worker_count; i++) {
        const struct pawl_worker_cost *w = &c->profile->worker[i];
        uint64_t rank = (uint64_t)w->pipeline * stages + w->stage;
        if (w->stage >= stages || rank >= ranks) continue;
        c->rank[rank].slow_profile = w->slow;
        c->rank[rank].memory = w->memory_bytes;
    }
    c->profile->worker_count = 0;
}

pawl_code replan_costs_open(struct replan_costs *c, const struct spec *spec, uint32_t ranks,
                            struct pawl_error *e) {
    *c = (struct replan_costs){.stages = spec->parallel.stages, .generation = 1};
    const char *path = spec_plan_profile(spec);
    c->rank = calloc(ranks, sizeof *c->rank);
    if (c->rank == NULL) return no_memory(ranks, e);
    pawl_code code = path[0] != 0 ? pawl_profile_read(path, &c->profile, e)
                                  : pawl_profile_uniform(spec->parallel.stages, 1, 1, 1, 0, &c->profile, e);
    if (code != PAWL_OK) return code;
    bool emulated = spec->parallel.profile[0] == 0 && spec->emulated.unit_s > 0;
    c->unit_s = emulated ? spec->emulated.unit_s : c->profile->unit_s;
    take_workers(c, spec->parallel.stages, ranks);
    return PAWL_OK;
}

void replan_costs_close(struct replan_costs *c) {
    pawl_profile_free(c->profile);
    free(c->rank);
    *c = (struct replan_costs){0};
}

static double slow_of(const struct replan_rank *r) {
    if (r->slow > 0) return r->slow;
    return r->slow_profile > 0 ? r->slow_profile : 1;
}

double replan_slow(const struct replan_costs *c, uint32_t rank) { return slow_of(&c->rank[rank]); }

bool replan_alike(const struct replan_costs *c, uint32_t a, uint32_t b) {
    return !(fabs(replan_slow(c, a) - replan_slow(c, b)) > 0) && c->rank[a].memory == c->rank[b].memory;
}

void replan_costs_forget(struct replan_costs *c, uint32_t rank) {
    double was = replan_slow(c, rank);
    /* The place may be taken by another process, on another machine; an emulated one is as the profile has
     * it. */
    c->rank[rank] =
        (struct replan_rank){.slow_profile = c->rank[rank].slow_profile, .memory = c->rank[rank].memory};
    if (fabs(replan_slow(c, rank) - was) > 0) c->generation++;
}

/* ---- medians ---- */

static uint64_t micro_batch_ns(const struct measure_report *m) {
    return m->ns[MEASURE_FORWARD] + m->ns[MEASURE_INPUT_GRAD] + m->ns[MEASURE_WEIGHT_GRAD];
}

/* Says how long all three parts take, and that is more than noise. */
static bool is_whole(const struct measure_report *m) {
    return m->ns[MEASURE_FORWARD] > 0 && m->ns[MEASURE_INPUT_GRAD] > 0 && m->ns[MEASURE_WEIGHT_GRAD] > 0 &&
           micro_batch_ns(m) >= REPLAN_TIME_MIN_NS;
}

static int by_value(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

struct told { /* reports of those who compute a chunk */
    const struct replan_costs *costs;
    const uint32_t *own;
    uint32_t ranks;
    uint64_t *sorted; /* [ranks] */
};

/* The lower median of a kind, or of all three that make a micro-batch (MEASURE_KIND_COUNT). 0: nobody told.
 */
static uint64_t median(const struct told *t, uint32_t chunk, int kind) {
    size_t count = 0;
    for (uint32_t r = 0; r < t->ranks; r++) {
        const struct replan_rank *rank = &t->costs->rank[r];
        if (t->own[r] != chunk || !rank->told) continue;
        t->sorted[count++] = kind == MEASURE_KIND_COUNT ? micro_batch_ns(&rank->last) : rank->last.ns[kind];
    }
    if (count == 0) return 0;
    qsort(t->sorted, count, sizeof *t->sorted, by_value);
    return t->sorted[(count - 1) / 2];
}

/* ---- speeds ---- */

/* True: another speed than before. */
static bool judge(struct replan_rank *r, double factor) {
    bool over = factor > REPLAN_SLOW_MIN;
    r->over = over ? r->over + 1 : 0;
    r->under = over ? 0 : r->under + 1;
    double was = slow_of(r);
    /* Between two steps a factor would go to and fro: only a whole one counts. */
    bool moved = r->slow == 0 || fabs(factor - was) >= 1 / REPLAN_SLOW_STEPS;
    if (r->over >= REPLAN_SLOW_REPORTS && moved)
        r->slow = round(factor * REPLAN_SLOW_STEPS) / REPLAN_SLOW_STEPS;
    if (r->under >= REPLAN_SLOW_REPORTS) r->slow = 1;
    return fabs(slow_of(r) - was) > 0;
}

/* ---- stages ---- */

static double in_ms(uint64_t ns) { return (double)ns * NS_OF_MS; }

/* Times alone: what is stored stays as the profile has it. */
static void measure_stage(const struct told *t, uint32_t chunk, struct pawl_stage_cost *out) {
    out->forward = in_ms(median(t, chunk, MEASURE_FORWARD));
    out->input_grad = in_ms(median(t, chunk, MEASURE_INPUT_GRAD));
    out->weight_grad = in_ms(median(t, chunk, MEASURE_WEIGHT_GRAD));
    out->reduce = in_ms(median(t, chunk, MEASURE_REDUCE));
    out->step = in_ms(median(t, chunk, MEASURE_STEP));
    out->send_forward = in_ms(median(t, chunk, MEASURE_SEND_FORWARD));
    out->send_backward = in_ms(median(t, chunk, MEASURE_SEND_BACKWARD));
}

/* Of as many stages as the plan; null without memory, or where the profile is cut otherwise. */
static struct pawl_profile *measure_all(const struct replan_costs *c, const struct told *t) {
    struct pawl_profile *p = NULL;
    if (c->profile->stages != c->stages || pawl_profile_uniform(c->stages, 1, 1, 1, 0, &p, NULL) != PAWL_OK)
        return NULL;
    memcpy(p->stage, c->profile->stage, c->stages * sizeof *p->stage);
    p->memory_bytes = c->profile->memory_bytes;
    p->link_bps = c->profile->link_bps;
    p->host_bps = c->profile->host_bps;
    for (uint32_t s = 0; s < c->stages; s++) measure_stage(t, s, &p->stage[s]);
    if (pawl_profile_check(p, NULL) == PAWL_OK) return p;
    pawl_profile_free(p);
    return NULL;
}

static double sum_of(const struct pawl_stage_cost *s) { return s->forward + s->input_grad + s->weight_grad; }

static bool differ(const struct pawl_profile *a, const struct pawl_profile *b) {
    for (uint32_t s = 0; s < a->stages; s++) {
        double x = sum_of(&a->stage[s]), y = sum_of(&b->stage[s]);
        if (fabs(x - y) > REPLAN_COSTS_CHANGE * x) return true;
    }
    return false;
}

static bool all_told(const struct replan_costs *c, const uint32_t *own, uint32_t ranks) {
    bool any = false;
    for (uint32_t r = 0; r < ranks; r++) {
        if (own[r] == UINT32_MAX) continue;
        if (!c->rank[r].told) return false;
        any = true;
    }
    return any;
}

/* Takes over what was measured, if all have told and it matters. */
static void measure_stages(struct replan_costs *c, const struct told *t) {
    struct pawl_profile *profile = all_told(c, t->own, t->ranks) ? measure_all(c, t) : NULL;
    if (profile == NULL) return;
    if (c->measured && !differ(c->profile, profile)) {
        pawl_profile_free(profile);
        return;
    }
    pawl_profile_free(c->profile);
    c->profile = profile;
    c->unit_s = MS_S;
    c->measured = true;
    c->generation++;
}

void replan_costs_told(struct replan_costs *c, const uint32_t *own, uint32_t ranks, uint32_t rank,
                       const struct measure_report *m) {
    struct told t = {.costs = c, .own = own, .ranks = ranks};
    if (own[rank] == UINT32_MAX || !is_whole(m)) return;
    c->rank[rank].told = true;
    c->rank[rank].last = *m;
    t.sorted = malloc(ranks * sizeof *t.sorted);
    if (t.sorted == NULL) return; /* costs stay as they were */
    double usual = (double)median(&t, own[rank], MEASURE_KIND_COUNT);
    if (judge(&c->rank[rank], (double)micro_batch_ns(m) / usual)) c->generation++;
    measure_stages(c, &t);
    free(t.sorted);
}
