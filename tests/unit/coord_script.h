/* Scripts for the coordinator's tests: one call per event, the actions back as one line of text.
 *
 * Equal actions to several ranks are joined: "FENCE[0 1 3] view=2; DIED[2] its process ended ...". So an
 * assertion compares everything the coordinator said, in order, and prints both sides. */
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

#define SECOND INT64_C(1000000000)

struct script {
    struct coord *c;
    struct coord_config config;
    int64_t now_ns;
    char text[16384];
};

static inline struct coord_config script_config(uint32_t pipelines, uint32_t stages, uint64_t final_version) {
    return (struct coord_config){.pipelines = pipelines,
                                 .stages = stages,
                                 .final_version = final_version,
                                 .saves_max = 2,
                                 .save_retries = 1,
                                 .start_ns = 60 * SECOND,
                                 .beat_ns = 5 * SECOND,
                                 .stall_ns = 20 * SECOND,
                                 .suspect_ns = 2 * SECOND,
                                 .idle_fences_max = 2};
}

static inline void script_open(struct script *s, struct coord_config config) {
    struct pawl_error e = {0};
    memset(s, 0, sizeof *s);
    s->config = config;
    if (coord_new(&config, &s->c, &e) != PAWL_OK) fail_msg("coord_new: %s", e.text);
}

static inline void script_close(struct script *s) {
    coord_free(s->c);
    s->c = NULL;
}

static inline uint32_t script_ranks(const struct script *s) { return s->config.pipelines * s->config.stages; }

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
        snprintf(out, size, " view=%llu", view);
        return;
    case COORD_GO:
        if (a->settle)
            snprintf(out, size, " view=%llu v=%llu settle %s %g %s shift=%d", view, version, verdict,
                     (double)a->clip, next, a->shift);
        else
            snprintf(out, size, " view=%llu v=%llu %s shift=%d", view, version, next, a->shift);
        return;
    case COORD_DECIDE:
        snprintf(out, size, " view=%llu i=%llu %s %g %s", view, iteration, verdict, (double)a->clip, next);
        return;
    case COORD_SAVE:
        snprintf(out, size, " v=%llu %u/%u", version, a->part, a->parts);
        return;
    case COORD_DECIDED:
        snprintf(out, size, " i=%llu %s norm=%g loss=%lld", iteration, verdict, a->norm, (long long)a->loss);
        return;
    case COORD_LOST:
        snprintf(out, size, " stage=%u", a->stage);
        return;
    case COORD_STOP:
        snprintf(out, size, " %s: %s", pawl_code_name(a->code), a->why);
        return;
    case COORD_KILL:
    case COORD_DIED:
        snprintf(out, size, " %s", a->why);
        return;
    default:
        snprintf(out, size, " v=%llu", version);
    }
}

static inline bool script_has_rank(enum coord_action_kind kind) {
    return kind != COORD_LOST && kind != COORD_STOP && kind != COORD_DECIDED && kind != COORD_SKIPPED &&
           kind != COORD_DURABLE_AT;
}

static inline const char *script_step(struct script *s, struct coord_event event) {
    static const char *const names[] = {"FENCE",   "GO",   "DECIDE",  "SAVE",      "DURABLE",
                                        "FORGET",  "KILL", "FINISH",  "LOST",      "STOP",
                                        "DECIDED", "DIED", "SKIPPED", "DURABLE_AT"};
    event.now_ns = s->now_ns;
    const struct coord_action *a;
    size_t count = coord_step(s->c, &event, &a);
    s->text[0] = 0;
    for (size_t i = 0, end; i < count; i = end) {
        char tail[160], other[160];
        script_tail(&a[i], tail, sizeof tail);
        script_say(s, "%s%s", i > 0 ? "; " : "", names[a[i].kind]);
        if (script_has_rank(a[i].kind)) script_say(s, "[%u", a[i].rank);
        for (end = i + 1; end < count && a[end].kind == a[i].kind && script_has_rank(a[i].kind); end++) {
            script_tail(&a[end], other, sizeof other);
            if (strcmp(tail, other) != 0) break;
            script_say(s, " %u", a[end].rank);
        }
        script_say(s, "%s%s", script_has_rank(a[i].kind) ? "]" : "", tail);
    }
    return s->text;
}

static inline const char *script_ready(struct script *s, uint32_t rank) {
    return script_step(s, (struct coord_event){.kind = COORD_READY, .rank = rank});
}

static inline const char *script_exit(struct script *s, uint32_t rank) {
    return script_step(s, (struct coord_event){.kind = COORD_EXIT, .rank = rank});
}

static inline const char *script_beat(struct script *s, uint32_t rank, uint64_t progress, bool busy) {
    return script_step(
        s, (struct coord_event){.kind = COORD_BEAT, .rank = rank, .progress = progress, .busy = busy});
}

static inline const char *script_suspect(struct script *s, uint32_t rank, uint32_t peer) {
    return script_step(s, (struct coord_event){.kind = COORD_SUSPECT, .rank = rank, .peer = peer});
}

static inline const char *script_stopping(struct script *s) {
    return script_step(s, (struct coord_event){.kind = COORD_STOPPING});
}

static inline const char *script_tick(struct script *s) {
    return script_step(s, (struct coord_event){.kind = COORD_TICK});
}

/* A second passes, `seconds` times, with a TICK each; returns what the last one said, and fails if an
 * earlier one said anything. Ranks in `beating` (one bit each) beat, busy if also in `busy`, their progress
 * frozen. */
static inline const char *script_wait(struct script *s, uint32_t seconds, uint64_t beating, uint64_t busy) {
    for (uint32_t i = 0; i < seconds; i++) {
        s->now_ns += SECOND;
        for (uint32_t rank = 0; rank < script_ranks(s); rank++)
            if (beating >> rank & 1) script_beat(s, rank, 1, busy >> rank & 1);
        const char *said = script_tick(s);
        if (i + 1 < seconds) assert_string_equal(said, "");
    }
    return s->text;
}

static inline struct coord_report script_report(const struct script *s, uint32_t rank, uint64_t iteration,
                                                double norm2) {
    bool last = rank % s->config.stages == s->config.stages - 1;
    return (struct coord_report){.iteration = iteration, .norm2 = norm2, .loss = last ? 7 : 0};
}

static inline const char *script_reduced_as(struct script *s, uint32_t rank, struct coord_report report) {
    return script_step(s,
                       (struct coord_event){
                           .kind = COORD_REDUCED, .rank = rank, .view = coord_view(s->c), .report = report});
}

static inline const char *script_reduced(struct script *s, uint32_t rank, uint64_t iteration, double norm2) {
    return script_reduced_as(s, rank, script_report(s, rank, iteration, norm2));
}

static inline const char *script_fenced_as(struct script *s, uint32_t rank, struct coord_report report) {
    return script_step(s, (struct coord_event){.kind = COORD_FENCED,
                                               .rank = rank,
                                               .view = coord_view(s->c),
                                               .version = report.iteration,
                                               .has_report = true,
                                               .report = report});
}

/* Fenced at `version`, holding the gradient of norm `norm2`, or none if it is negative. */
static inline const char *script_fenced(struct script *s, uint32_t rank, uint64_t version, double norm2) {
    if (norm2 >= 0) return script_fenced_as(s, rank, script_report(s, rank, version, norm2));
    return script_step(s,
                       (struct coord_event){
                           .kind = COORD_FENCED, .rank = rank, .view = coord_view(s->c), .version = version});
}

static inline const char *script_saved(struct script *s, uint32_t rank, uint64_t version, uint32_t part,
                                       uint32_t parts, bool ok) {
    return script_step(
        s,
        (struct coord_event){
            .kind = COORD_SAVED, .rank = rank, .version = version, .part = part, .parts = parts, .ok = ok});
}

/* Everybody is ready; returns what the last one caused. */
static inline const char *script_start(struct script *s) {
    for (uint32_t rank = 0; rank < script_ranks(s); rank++) script_ready(s, rank);
    return s->text;
}

/* Every live rank reports; returns what the last report caused, and fails if an earlier one did anything. */
static inline const char *script_iterate(struct script *s, uint64_t iteration, double norm2) {
    const char *said = "";
    for (uint32_t rank = 0; rank < script_ranks(s); rank++) {
        if (!coord_live(s->c)[rank]) continue;
        assert_string_equal(said, "");
        said = script_reduced(s, rank, iteration, norm2);
    }
    return said;
}

/* Every live rank answers the fence, holding the gradient or none. */
static inline const char *script_fence_all(struct script *s, uint64_t version, double norm2) {
    const char *said = "";
    for (uint32_t rank = 0; rank < script_ranks(s); rank++) {
        if (!coord_live(s->c)[rank]) continue;
        assert_string_equal(said, "");
        said = script_fenced(s, rank, version, norm2);
    }
    return said;
}

#endif
