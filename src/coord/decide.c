/* Verdicts: what the stages' reports of one iteration mean.
 *
 * Replicas of a stage hold equal bits, so one report per stage is kept and every other is held against it.
 * A verdict depends on the stages' reports only, never on which ranks are live or who came first: that
 * is what makes a run with failures end in the bits of a run without. */
#include "coord/state.h"

#include <math.h>
#include <string.h>

/* As torch.nn.utils.clip_grad_norm_ adds it. */
#define CLIP_EPSILON 1e-6

/* Squares of at most 2^64 finite floats, each below 2^128: a larger norm2 cannot be. */
#define NORM2_MAX 0x1p320

static bool same_report(const struct coord_report *a, const struct coord_report *b) {
    return a->iteration == b->iteration && memcmp(&a->norm2, &b->norm2, sizeof a->norm2) == 0 &&
           a->loss == b->loss && a->nonfinite == b->nonfinite && a->overflow == b->overflow;
}

static bool plausible(const struct coord *c, uint32_t rank, const struct coord_report *report) {
    if (report->loss != 0 && coord_stage_of(c, rank) != c->config.stages - 1) return false;
    if (report->nonfinite > 0 || report->overflow > 0) return true;
    return report->norm2 >= 0 && report->norm2 <= NORM2_MAX; /* false for a NaN */
}

bool coord_report_enter(struct coord *c, uint32_t rank, const struct coord_report *report) {
    struct coord_stage *stage = &c->stages[coord_stage_of(c, rank)];
    if (report->iteration != c->final)
        coord_stop(c, PAWL_INTERNAL, "a report of an impossible iteration");
    else if (!plausible(c, rank, report))
        coord_stop(c, PAWL_INTERNAL, "a report with an impossible norm or loss");
    else if (stage->known && !same_report(&stage->report, report))
        coord_stop(c, PAWL_DIVERGED, "replicas of a stage report different gradients");
    if (coord_over(c)) return false;
    stage->known = true;
    stage->report = *report;
    return true;
}

void coord_reports_clear(struct coord *c) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++) c->members[rank].reported = false;
    for (uint32_t stage = 0; stage < c->config.stages; stage++) {
        c->stages[stage].known = false;
        c->stages[stage].report = (struct coord_report){0};
    }
}

struct coord_outcome coord_judge(const struct coord *c) {
    bool nonfinite = false, overflow = false;
    double norm2 = 0;
    for (uint32_t stage = 0; stage < c->config.stages; stage++) {
        const struct coord_stage *s = &c->stages[stage];
        COORD_MUST(s->known && s->report.iteration == c->final);
        nonfinite = nonfinite || s->report.nonfinite > 0;
        overflow = overflow || s->report.overflow > 0;
        norm2 += s->report.norm2;
    }
    struct coord_outcome outcome = {.verdict = COORD_ACCEPT,
                                    .clip = 1.0f,
                                    .norm = sqrt(norm2),
                                    .loss = c->stages[c->config.stages - 1].report.loss};
    double limit = c->config.clip_norm;
    if (nonfinite) {
        outcome.verdict = COORD_SKIP;
    } else if (overflow) {
        outcome.verdict = COORD_UNDECIDED;
        outcome.redo = true;
    } else if (limit > 0 && outcome.norm > limit) {
        outcome.verdict = COORD_CLIP;
        outcome.clip = (float)(limit / (outcome.norm + CLIP_EPSILON));
    }
    return outcome;
}

bool coord_next_optimistic(const struct coord *c, const struct coord_outcome *outcome) {
    return c->config.clip_norm == 0 || outcome->verdict == COORD_ACCEPT;
}

void coord_make_final(struct coord *c, const struct coord_outcome *outcome) {
    COORD_MUST(!outcome->redo && c->final < c->target);
    struct coord_action *decided = coord_push(c, COORD_DECIDED);
    decided->view = c->view;
    decided->iteration = c->final;
    decided->version = c->final + 1;
    decided->verdict = outcome->verdict;
    decided->clip = outcome->clip;
    decided->shift = c->shift;
    decided->norm = outcome->norm;
    decided->loss = outcome->loss;
    c->optimistic = coord_next_optimistic(c, outcome);
    c->final++;
    c->shift = 0;
    c->idle_fences = 0;
    coord_reports_clear(c);
    coord_saves_due(c);
}

static bool all_reported(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
        if (c->live[rank] && !c->members[rank].reported) return false;
    return true;
}

/* A worker that went on optimistically has nothing to undo after accept alone. */
static void decide(struct coord *c) {
    struct coord_outcome outcome = coord_judge(c);
    if (outcome.redo || (c->optimistic && outcome.verdict != COORD_ACCEPT)) {
        coord_fence_start(c);
        return;
    }
    coord_push_live(c, (struct coord_action){.kind = COORD_DECIDE,
                                             .view = c->view,
                                             .iteration = c->final,
                                             .version = c->final + 1,
                                             .verdict = outcome.verdict,
                                             .clip = outcome.clip,
                                             .optimistic = coord_next_optimistic(c, &outcome)});
    coord_make_final(c, &outcome);
}

void coord_on_reduced(struct coord *c, const struct coord_event *event) {
    if (event->view < c->view) return;
    struct coord_member *member = &c->members[event->rank];
    if (event->view > c->view || c->phase != PHASE_RUNNING) {
        coord_stop(c, PAWL_INTERNAL, "a report of a view that has not begun");
        return;
    }
    if (member->reported) {
        coord_stop(c, PAWL_INTERNAL, "a second report of one iteration");
        return;
    }
    if (!coord_report_enter(c, event->rank, &event->report)) return;
    member->reported = true;
    member->fetching = false;
    coord_progress(c, event->rank);
    if (c->final < c->target && all_reported(c)) decide(c);
}
