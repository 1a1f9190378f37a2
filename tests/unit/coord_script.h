/* Scripts for the coordinator's tests: one call per event, the actions back as one line of text.
 *
 * Equal actions to several ranks are joined: "FENCE view=2; LEAVE[3]; DIED[2] its process ended ...". So an
 * assertion compares everything the coordinator said, in order, and prints both sides. The driver's part is a
 * plan that keeps who is there at its chunk and gives a new rank the chunk that fewest have. */
#ifndef TESTS_UNIT_COORD_SCRIPT_H
#define TESTS_UNIT_COORD_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coord/coord.h"

#define SECOND       INT64_C(1000000000)
#define SCRIPT_PAIRS 64

struct script {
    struct coord *c;
    struct coord_config config;
    int64_t now_ns;
    uint32_t own[SCRIPT_PAIRS]; /* of the last plan */
    bool holds[SCRIPT_PAIRS];
    char text[16384], pairs[4096];
};

static inline struct coord_config script_config(uint32_t ranks, uint32_t chunks, uint64_t final_version) {
    return (struct coord_config){
        .ranks = ranks,
        .chunks = chunks,
        .final_version = final_version,
        .saves_max = 2,
        .save_retries = 1,
        .start_ns = 60 * SECOND,
        .beat_ns = 5 * SECOND,
        .stall_ns = {20 * SECOND, 100 * SECOND, 110 * SECOND, 120 * SECOND, 130 * SECOND},
        .suspect_ns = 2 * SECOND,
        .join_ns = 30 * SECOND,
        .need_ns = 40 * SECOND,
        .idle_fences_max = 2};
}

static inline void script_open(struct script *s, struct coord_config config) {
    struct pawl_error e = {0};
    memset(s, 0, sizeof *s);
    s->config = config;
    for (uint32_t rank = 0; rank < SCRIPT_PAIRS; rank++) s->own[rank] = UINT32_MAX;
    assert_true((uint64_t)config.ranks * config.chunks <= SCRIPT_PAIRS);
    if (coord_new(&config, &s->c, &e) != PAWL_OK) fail_msg("coord_new: %s", e.text);
}

static inline void script_close(struct script *s) {
    coord_free(s->c);
    s->c = NULL;
}

__attribute__((format(printf, 2, 3))) static inline void script_say(struct script *s, const char *format,
                                                                    ...) {
    size_t used = strlen(s->text);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(s->text + used, sizeof s->text - used, format, args);
    va_end(args);
    if (more < 0 || used + (size_t)more >= sizeof s->text) fail_msg("the script's text is full");
}

static inline const char *script_verdict(enum coord_verdict verdict) {
    static const char *const names[] = {"undecided", "accept", "clip", "skip"};
    return names[verdict];
}

/* What the action says beside its ranks. */
static inline void script_tail(const struct coord_action *a, char *out, size_t size) {
    unsigned long long view = a->view, version = a->version, iteration = a->iteration;
    const char *next = a->optimistic ? "optimistic" : "careful";
    const char *verdict = script_verdict(a->verdict);
    switch (a->kind) {
    case COORD_FENCE:
    case COORD_FIND:
    case COORD_PLAN:
        snprintf(out, size, " view=%llu", view);
        return;
    case COORD_GO:
        if (a->settle)
            snprintf(out, size, " view=%llu v=%llu settle %s %g %s shift=%d", view, version, verdict,
                     (double)a->clip, next, a->shift);
        else
            snprintf(out, size, " view=%llu v=%llu%s %s shift=%d", view, version,
                     a->restore ? " restore" : "", next, a->shift);
        return;
    case COORD_DECIDE:
        snprintf(out, size, " view=%llu i=%llu %s %g %s", view, iteration, verdict, (double)a->clip, next);
        return;
    case COORD_SAVE:
        snprintf(out, size, " v=%llu %u/%u", version, a->part, a->parts);
        return;
    case COORD_PREPARE:
        snprintf(out, size, " v=%llu chunk %u from %u", version, a->chunk, a->peer);
        return;
    case COORD_DECIDED:
        snprintf(out, size, " i=%llu %s norm=%g loss=%lld", iteration, verdict, a->norm, (long long)a->loss);
        return;
    case COORD_NEED:
        snprintf(out, size, " %u: %s", a->need, a->why);
        return;
    case COORD_STOP:
        snprintf(out, size, " %s: %s", pawl_code_name(a->code), a->why);
        return;
    case COORD_KILL:
    case COORD_DIED:
        snprintf(out, size, " %s", a->why);
        return;
    case COORD_RESTORED:
        snprintf(out, size, " v=%llu from %llu", version, (unsigned long long)a->from);
        return;
    case COORD_PREPARE_FOR:
    case COORD_LEAVE:
    case COORD_JOINED:
    case COORD_LEFT:
        out[0] = 0;
        return;
    default:
        snprintf(out, size, " v=%llu", version);
    }
}

static inline bool script_has_rank(const struct coord_action *a) {
    return a->rank != UINT32_MAX && a->kind != COORD_STOP;
}

static inline const char *script_step(struct script *s, struct coord_event event) {
    static const char *const names[] = {
        "FENCE",       "FIND",    "PLAN", "GO",       "DECIDE",  "SAVE", "DURABLE",   "FORGET",
        "PREPARE_FOR", "PREPARE", "KILL", "LEAVE",    "FINISH",  "NEED", "STOP",      "DECIDED",
        "DIED",        "JOINED",  "LEFT", "RESTORED", "SKIPPED", "LATE", "DURABLE_AT"};
    _Static_assert(sizeof names / sizeof names[0] == COORD_ACTION_COUNT, "a name for each action");
    event.now_ns = s->now_ns;
    const struct coord_action *a;
    size_t count = coord_step(s->c, &event, &a);
    s->text[0] = 0;
    for (size_t i = 0, end; i < count; i = end) {
        char tail[900], other[900];
        if (a[i].kind == COORD_SAVE) assert_int_equal(a[i].chunk, s->own[a[i].rank]);
        script_tail(&a[i], tail, sizeof tail);
        script_say(s, "%s%s", i > 0 ? "; " : "", names[a[i].kind]);
        if (script_has_rank(&a[i])) script_say(s, "[%u", a[i].rank);
        for (end = i + 1; end < count && a[end].kind == a[i].kind && script_has_rank(&a[i]); end++) {
            script_tail(&a[end], other, sizeof other);
            if (strcmp(tail, other) != 0) break;
            script_say(s, " %u", a[end].rank);
        }
        script_say(s, "%s%s", script_has_rank(&a[i]) ? "]" : "", tail);
    }
    return s->text;
}

static inline const char *script_of(struct script *s, enum coord_event_kind kind, uint32_t rank) {
    return script_step(s, (struct coord_event){.kind = kind, .rank = rank});
}

static inline const char *script_started(struct script *s, uint32_t rank) {
    return script_of(s, COORD_STARTED, rank);
}
static inline const char *script_ready(struct script *s, uint32_t rank) {
    return script_of(s, COORD_READY, rank);
}
static inline const char *script_exit(struct script *s, uint32_t rank) {
    return script_of(s, COORD_EXIT, rank);
}
static inline const char *script_leaving(struct script *s, uint32_t rank) {
    return script_of(s, COORD_LEAVING, rank);
}
static inline const char *script_stopping(struct script *s) { return script_of(s, COORD_STOPPING, 0); }
static inline const char *script_tick(struct script *s) { return script_of(s, COORD_TICK, 0); }

static inline const char *script_beat_at(struct script *s, uint32_t rank, uint64_t progress, bool busy,
                                         enum coord_work work) {
    return script_step(
        s, (struct coord_event){
               .kind = COORD_BEAT, .rank = rank, .progress = progress, .busy = busy, .work = work});
}

static inline const char *script_beat(struct script *s, uint32_t rank, uint64_t progress, bool busy) {
    return script_beat_at(s, rank, progress, busy, COORD_WORK_STEP);
}

static inline const char *script_suspect(struct script *s, uint32_t rank, uint32_t peer) {
    return script_step(s, (struct coord_event){.kind = COORD_SUSPECT, .rank = rank, .peer = peer});
}

/* A second passes, `seconds` times, with a TICK each; returns what the last one said, and fails if an
 * earlier one said anything. Ranks in `beating` (one bit each) beat, busy if also in `busy`, their progress
 * frozen. */
static inline const char *script_wait(struct script *s, uint32_t seconds, uint64_t beating, uint64_t busy) {
    for (uint32_t i = 0; i < seconds; i++) {
        s->now_ns += SECOND;
        for (uint32_t rank = 0; rank < s->config.ranks; rank++)
            if (beating >> rank & 1) script_beat(s, rank, 1, busy >> rank & 1);
        const char *said = script_tick(s);
        if (i + 1 < seconds) assert_string_equal(said, "");
    }
    return s->text;
}

/* ---- the driver's answers ---- */

static inline const char *script_found(struct script *s, uint64_t version) {
    return script_step(s, (struct coord_event){
                              .kind = COORD_FOUND, .view = coord_view(s->c), .version = version, .ok = true});
}

static inline const char *script_planned_as(struct script *s) {
    return script_step(
        s,
        (struct coord_event){
            .kind = COORD_PLANNED, .view = coord_view(s->c), .ok = true, .holds = s->holds, .own = s->own});
}

static inline const char *script_no_plan(struct script *s) {
    return script_step(
        s, (struct coord_event){
               .kind = COORD_PLANNED, .view = coord_view(s->c), .code = PAWL_STAGE_LOST, .why = "too few"});
}

static inline uint32_t script_scarcest(const struct script *s) {
    uint32_t least = 0, count_of[SCRIPT_PAIRS] = {0};
    for (uint32_t rank = 0; rank < s->config.ranks; rank++)
        if (s->own[rank] != UINT32_MAX) count_of[s->own[rank]]++;
    for (uint32_t chunk = 1; chunk < s->config.chunks; chunk++)
        if (count_of[chunk] < count_of[least]) least = chunk;
    return least;
}

/* Who is a candidate keeps its chunk, others take the one that fewest have. */
static inline void script_make_plan(struct script *s) {
    const bool *candidates = coord_candidates(s->c);
    for (uint32_t rank = 0; rank < s->config.ranks; rank++)
        if (!candidates[rank]) s->own[rank] = UINT32_MAX;
    for (uint32_t rank = 0; rank < s->config.ranks; rank++)
        if (candidates[rank] && s->own[rank] == UINT32_MAX) s->own[rank] = script_scarcest(s);
    memset(s->holds, 0, sizeof s->holds);
    for (uint32_t rank = 0; rank < s->config.ranks; rank++)
        if (s->own[rank] != UINT32_MAX) s->holds[rank * s->config.chunks + s->own[rank]] = true;
}

static inline const char *script_planned(struct script *s) {
    script_make_plan(s);
    return script_planned_as(s);
}

/* ---- the ranks' reports ---- */

static inline struct coord_report script_report(const struct script *s, uint32_t chunk, uint64_t iteration,
                                                double norm2) {
    return (struct coord_report){
        .iteration = iteration, .norm2 = norm2, .loss = chunk == s->config.chunks - 1 ? 7 : 0};
}

static inline const char *script_reduced_as(struct script *s, uint32_t rank, struct coord_report report) {
    return script_step(s, (struct coord_event){.kind = COORD_REDUCED,
                                               .rank = rank,
                                               .chunk = s->own[rank],
                                               .view = coord_view(s->c),
                                               .report = report});
}

static inline const char *script_reduced(struct script *s, uint32_t rank, uint64_t iteration, double norm2) {
    return script_reduced_as(s, rank, script_report(s, s->own[rank], iteration, norm2));
}

static inline const char *script_fenced_all(struct script *s, uint32_t rank, struct coord_fenced fenced) {
    return script_step(s,
                       (struct coord_event){
                           .kind = COORD_FENCED, .rank = rank, .view = coord_view(s->c), .fenced = &fenced});
}

static inline const char *script_fenced_with(struct script *s, uint32_t rank, struct coord_fenced_pair pair) {
    return script_fenced_all(s, rank, (struct coord_fenced){.pairs = &pair, .pair_count = 1});
}

static inline const char *script_fenced_empty(struct script *s, uint32_t rank) {
    return script_fenced_all(s, rank, (struct coord_fenced){0});
}

static inline const char *script_fenced_as(struct script *s, uint32_t rank, struct coord_report report) {
    return script_fenced_with(s, rank,
                              (struct coord_fenced_pair){.chunk = s->own[rank],
                                                         .version = report.iteration,
                                                         .has_report = true,
                                                         .work = COORD_NO_WORK,
                                                         .report = report});
}

/* Fenced at `version` of its own chunk, holding the gradient of norm `norm2`, or none if it is negative. */
static inline const char *script_fenced(struct script *s, uint32_t rank, uint64_t version, double norm2) {
    if (norm2 >= 0) return script_fenced_as(s, rank, script_report(s, s->own[rank], version, norm2));
    return script_fenced_with(
        s, rank,
        (struct coord_fenced_pair){.chunk = s->own[rank], .version = version, .work = COORD_NO_WORK});
}

static inline const char *script_saved(struct script *s, uint32_t rank, uint64_t version, uint32_t part,
                                       uint32_t parts, bool ok) {
    return script_step(s, (struct coord_event){.kind = COORD_SAVED,
                                               .rank = rank,
                                               .version = version,
                                               .chunk = s->own[rank],
                                               .part = part,
                                               .parts = parts,
                                               .ok = ok});
}

/* Everybody is started and ready, nothing was saved before; returns what the plan causes. */
static inline const char *script_start(struct script *s) {
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) script_started(s, rank);
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) script_ready(s, rank);
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) script_fenced_empty(s, rank);
    script_found(s, 0);
    return script_planned(s);
}

/* Every pair reports; returns what the last report caused, and fails if an earlier one did anything. */
static inline const char *script_iterate(struct script *s, uint64_t iteration, double norm2) {
    const char *said = "";
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) {
        if (!coord_members(s->c)[rank] || s->own[rank] == UINT32_MAX) continue;
        assert_string_equal(said, "");
        said = script_reduced(s, rank, iteration, norm2);
    }
    return said;
}

/* The last answer to a fence was given; returns what the plan that is asked for causes. */
static inline const char *script_go(struct script *s, const char *said) {
    if (strstr(said, "PLAN view=") == NULL) fail_msg("wanted a plan to be asked for, had: %s", said);
    return script_planned(s);
}

/* Every member answers the fence, holding the gradient or none; returns what the plan causes. */
static inline const char *script_fence_all(struct script *s, uint64_t version, double norm2) {
    const char *said = "";
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) {
        if (!coord_members(s->c)[rank]) continue;
        assert_string_equal(said, "");
        said = s->own[rank] == UINT32_MAX ? script_fenced_empty(s, rank)
                                          : script_fenced(s, rank, version, norm2);
    }
    return script_go(s, said);
}

/* What the last GO says of each pair that is held. */
static inline const char *script_pairs(struct script *s) {
    s->pairs[0] = 0;
    for (uint32_t rank = 0; rank < s->config.ranks; rank++)
        for (uint32_t chunk = 0; chunk < s->config.chunks; chunk++) {
            const struct coord_pair *p = &coord_pairs(s->c)[rank * s->config.chunks + chunk];
            if (!p->held) continue;
            size_t used = strlen(s->pairs);
            char from[32] = "";
            if (p->source != UINT32_MAX) snprintf(from, sizeof from, " from %u", p->source);
            snprintf(s->pairs + used, sizeof s->pairs - used, "%s%u:%u%s%s%s%s%s", used > 0 ? "; " : "", rank,
                     chunk, p->flags & COORD_FETCH_STATE ? " state" : "",
                     p->flags & COORD_FETCH_GRAD ? " grad" : "", p->flags & COORD_LOAD ? " load" : "", from,
                     p->flags & COORD_KEEP_WORK ? " work" : "");
        }
    return s->pairs;
}

#endif
