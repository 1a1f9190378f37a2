/* Verdicts: what the chunks' reports of one iteration mean.
 *
 * Replicas of a chunk hold equal bits, so one report per chunk is kept and every other is held against it.
 * A verdict depends on the chunks' reports only, never on which ranks are live or who came first: that
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

static bool plausible(const struct coord *c, uint32_t chunk, const struct coord_report *report) {
    if (report->loss != 0 && chunk != c->config.chunks - 1) return false;
    if (report->nonfinite > 0 || report->overflow > 0) return true;
    return report->norm2 >= 0 && report->norm2 <= NORM2_MAX; /* false for a NaN */
}

bool coord_report_enter(struct coord *c, uint32_t chunk, const struct coord_report *report) {
    struct coord_chunk *known = &c->chunks[chunk];
    if (report->iteration != c->final)
        coord_stop(c, PAWL_INTERNAL, "a report of an impossible iteration");
    else if (!plausible(c, chunk, report))
        coord_stop(c, PAWL_INTERNAL, "a report with an impossible norm or loss");
    else if (known->known && !same_report(&known->report, report))
        coord_stop(c, PAWL_DIVERGED, "replicas of a chunk report different gradients");
    if (coord_over(c)) return false;
    known->known = true;
    known->report = *report;
    return true;
}

void coord_reports_clear(struct coord *c) {
    size_t pairs = (size_t)c->config.ranks * c->config.chunks;
    for (size_t pair = 0; pair < pairs; pair++) c->holdings[pair].reported = false;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        struct coord_chunk *s = &c->chunks[chunk];
        *s = (struct coord_chunk){.held = s->held};
    }
}

struct coord_outcome coord_judge(const struct coord *c) {
    bool nonfinite = false, overflow = false;
    double norm2 = 0;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        const struct coord_chunk *s = &c->chunks[chunk];
        COORD_MUST(s->known && s->report.iteration == c->final);
        nonfinite = nonfinite || s->report.nonfinite > 0;
        overflow = overflow || s->report.overflow > 0;
        norm2 += s->report.norm2;
    }
    struct coord_outcome outcome = {.verdict = COORD_ACCEPT,
                                    .clip = 1.0f,
                                    .norm = sqrt(norm2),
                                    .loss = c->chunks[c->config.chunks - 1].report.loss};
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
    return !c->config.barrier && (c->config.clip_norm == 0 || outcome->verdict == COORD_ACCEPT);
}

bool coord_first_optimistic(const struct coord *c) { return !c->config.barrier && c->config.clip_norm == 0; }

void coord_make_final(struct coord *c, const struct coord_outcome *outcome) {
    COORD_MUST(!outcome->redo && c->final < c->target);
    struct coord_action *decided = coord_push(c, COORD_DECIDED);
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
    size_t pairs = (size_t)c->config.ranks * c->config.chunks;
    for (size_t pair = 0; pair < pairs; pair++)
        if (c->pairs[pair].held && !c->holdings[pair].reported) return false;
    return true;
}

/* A worker that went on optimistically has nothing to undo after accept alone. */
static void decide(struct coord *c) {
    struct coord_outcome outcome = coord_judge(c);
    if (outcome.redo || (c->optimistic && outcome.verdict != COORD_ACCEPT)) {
        c->fence_now = true;
        return;
    }
    struct coord_action *action = coord_push(c, COORD_DECIDE);
    action->iteration = c->final;
    action->version = c->final + 1;
    action->verdict = outcome.verdict;
    action->clip = outcome.clip;
    action->optimistic = coord_next_optimistic(c, &outcome);
    coord_make_final(c, &outcome);
    coord_joins_copy(c);
}

void coord_on_reduced(struct coord *c, const struct coord_event *event) {
    if (event->view < c->view) return;
    if (event->view > c->view || c->phase != PHASE_RUNNING) {
        coord_stop(c, PAWL_INTERNAL, "a report of a view that has not begun");
        return;
    }
    if (event->chunk >= c->config.chunks || !c->pairs[coord_pair_at(c, event->rank, event->chunk)].held) {
        coord_stop(c, PAWL_INTERNAL, "a report of a chunk that its rank does not hold");
        return;
    }
    struct coord_holding *holding = &c->holdings[coord_pair_at(c, event->rank, event->chunk)];
    if (holding->reported) {
        coord_stop(c, PAWL_INTERNAL, "a second report of one iteration");
        return;
    }
    if (!coord_report_enter(c, event->chunk, &event->report)) return;
    holding->reported = true;
    coord_progress(c, event->rank);
    if (!all_reported(c)) return;
    c->whole = true;
    if (c->final < c->target) decide(c);
}
