/* random:SEED:RATE: faults drawn so that the job can go on where it is.
 *
 * Each step gets RATE/100 faults on average, of every kind that one call of pawl train survives: kill, term,
 * stop, slow, net, disk, coord, join. Faults that may cost a worker its life (kill, term, and stop and net,
 * which may outlast the timeout) never meet the ranks of one pipeline, drawn first, so that a replica of each
 * stage stays whatever else is lost. What is not for ever is over within seconds, so that the run can save at
 * its end. The same text, ranks and steps give the same faults. */
#include <stdio.h>

#include "base/rng.h"
#include "run/inject.h"

/* Shorter and longer than timeouts that people set for small runs: both a hiccup and a death happen. */
#define SECONDS_TENTHS_MAX 40u

static enum fault_point draw_point(struct rng_stream *rng, enum fault_who who) {
    for (;;) {
        enum fault_point point = (enum fault_point)(1 + rng_below(rng, FAULT_COUNT - 1));
        if (fault_who(point) == who) return point;
    }
}

static uint32_t draw_mortal(struct rng_stream *rng, const struct inject_limits *limits, uint32_t kept) {
    for (;;) {
        uint32_t rank = (uint32_t)rng_below(rng, limits->pipelines * limits->stages);
        if (rank / limits->stages != kept) return rank;
    }
}

static bool costs_a_life(enum inject_kind kind) {
    return kind == INJECT_KILL || kind == INJECT_TERM || kind == INJECT_STOP || kind == INJECT_NET;
}

static void draw_text(struct rng_stream *rng, enum inject_kind kind, uint32_t rank, uint64_t step,
                      char *out) {
    static const char *const errnos[] = {"ENOSPC", "EIO", "stuck"};
    unsigned long long at = step;
    double seconds = (double)(1 + rng_below(rng, SECONDS_TENTHS_MAX)) / 10;
    const char *point = fault_name(draw_point(rng, FAULT_WHO_WORKER));
    uint64_t more = rng_next(rng);
    switch (kind) {
    case INJECT_KILL:
    case INJECT_TERM:
        snprintf(out, INJECT_TEXT_BYTES, "%s:%u@%llu:%s", kind == INJECT_KILL ? "kill" : "term", rank, at,
                 point);
        break;
    case INJECT_STOP:
    case INJECT_NET:
        snprintf(out, INJECT_TEXT_BYTES, "%s:%u@%llu:%.1f:%s", kind == INJECT_STOP ? "stop" : "net", rank, at,
                 seconds, point);
        break;
    case INJECT_SLOW:
        snprintf(out, INJECT_TEXT_BYTES, "slow:%u@%llu:%u", rank, at, 2 + (unsigned)(more % 3));
        break;
    case INJECT_DISK:
        snprintf(out, INJECT_TEXT_BYTES, "disk:%u@%llu:%s:%.1f:%s", rank, at, errnos[more % 3], seconds,
                 point);
        break;
    case INJECT_COORD:
        snprintf(out, INJECT_TEXT_BYTES, "coord@%llu:%s", at, fault_name(draw_point(rng, FAULT_WHO_COORD)));
        break;
    default:
        snprintf(out, INJECT_TEXT_BYTES, "join@%llu:%s", at, fault_name(draw_point(rng, FAULT_WHO_LAUNCH)));
    }
}

static pawl_code draw_one(struct inject_set *set, struct rng_stream *rng, const struct inject_limits *limits,
                          uint64_t step, uint32_t kept) {
    enum inject_kind kind = (enum inject_kind)rng_below(rng, INJECT_KIND_COUNT);
    if (costs_a_life(kind) && limits->pipelines == 1) kind = INJECT_COORD; /* nobody is to spare */
    uint32_t rank = costs_a_life(kind) ? draw_mortal(rng, limits, kept)
                                       : (uint32_t)rng_below(rng, limits->pipelines * limits->stages);
    char text[INJECT_TEXT_BYTES];
    struct inject one;
    draw_text(rng, kind, rank, step, text);
    pawl_code code = inject_parse(text, limits, &one, NULL);
    return code == PAWL_OK ? inject_set_add(set, &one, NULL) : code;
}

pawl_code inject_draw(struct inject_set *set, uint64_t seed, double rate, const struct inject_limits *limits,
                      struct pawl_error *e) {
    struct rng_stream rng = {seed};
    uint32_t kept = (uint32_t)rng_below(&rng, limits->pipelines);
    uint64_t threshold = (uint64_t)(rate / 100 * 0x1p32);
    pawl_code code = PAWL_OK;
    for (uint64_t step = 1; step <= limits->steps && code == PAWL_OK; step++)
        if (rng_next(&rng) >> 32 < threshold) code = draw_one(set, &rng, limits, step, kept);
    return code == PAWL_OK ? PAWL_OK
                           : error_set(e, code, 0, "cannot draw faults for %llu steps",
                                       (unsigned long long)limits->steps);
}
