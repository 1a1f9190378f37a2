/* The cadence: from what saves and iterations took to the interval, up and down. See include/pawl/tune.h.
 *
 * What is estimated, each as the median of a window, of stalls a trimmed mean:
 * - t: all iterations; without those beside saves when these are slower.
 * - s, device time per save with N in flight: the time a save took over the number that were in flight
 *   meanwhile (its mean over time), corrected by the measured speed-up of concurrency. Unlike the bare time
 *   it does not depend on the interval itself, which would make interval and time chase each other.
 * - the cost of a save to training: stalls, and iterations slowed down beside it, where the difference to
 *   quiet iterations is above their noise.
 * The interval is then pawl_tune_interval's. It changes when the present one is out of bounds by more than
 * the noise of the medians, or too long by a margin above that noise, twice in a row; it is then set with
 * some room, so that the next small deviation changes nothing. A failed save tells nothing. A disk that hangs
 * changes nothing either: no more than N saves are in flight anyway, nobody waits, and the next save should
 * begin when it goes on. Tested in tests/unit/tune_cadence_test.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tune/cadence.h"
#include "tune/tune.h"

/* Half of them must change before the median follows. */
#define ITERATION_WINDOW 33u
/* Of the iterations that are compared, beside saves and not: more, since their difference is what counts. */
#define BESIDE_WINDOW WINDOW_MAX
/* Saves; at least 2 N + 1, so that the N which a hanging disk held up are a minority. */
#define SAVE_WINDOW_MIN 17u
#define ITERATIONS_MIN  8u
#define SAVES_MIN       3u
/* Quiet iterations half of which are older than this many are no longer what training takes. */
#define QUIET_AGE (16 * ITERATION_WINDOW)
/* Iterations beside saves are slower only when by so many standard errors. */
#define BESIDE_ERRORS 5
/* A new interval is set this much longer than needed. */
#define ROOM 0.05
/* It is too long when 10 % more than that, and the noise, would still do. */
#define SHORTEN         0.15
#define SHORTEN_ERRORS  5
#define LENGTHEN_ERRORS 2
/* However wild the values: thrice the interval needed is always seen to be too long. */
#define NOISE_MAX 0.35
#define CONFIRM   2
/* Iterations from one look at the interval to the next where no save ends. */
#define LOOK_ITERATIONS 8u
/* A save hangs when it takes this many times what saves take. */
#define HANGS 4

/* ---- life ---- */

static pawl_code check(const struct pawl_cadence_config *config, struct pawl_error *e) {
    if (config->in_flight < 1 || config->in_flight > CADENCE_SAVES_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "in_flight is %u, wanted 1 to %u", config->in_flight,
                         CADENCE_SAVES_MAX);
    if (config->speedup != 0 && !(config->speedup >= 1 && config->speedup <= config->in_flight))
        return error_set(e, PAWL_ARGUMENT, 0, "speedup is %g, wanted 1 to in_flight, %u", config->speedup,
                         config->in_flight);
    struct pawl_tune_rates rates = {.iteration_s = 1,
                                    .write_s = 1,
                                    .in_flight = 1,
                                    .overhead = config->overhead,
                                    .mtbf_s = config->mtbf_s,
                                    .load_s = config->load_s};
    return tune_rates_check(&rates, e);
}

static void init(struct pawl_cadence *c, const struct pawl_cadence_config *config) {
    uint32_t saves = 2 * config->in_flight + 1;
    if (saves < SAVE_WINDOW_MIN) saves = SAVE_WINDOW_MIN;
    c->config = *config;
    if (c->config.overhead == 0) c->config.overhead = PAWL_TUNE_OVERHEAD;
    if (c->config.speedup == 0) c->config.speedup = 1;
    if (c->config.warmup == 0) c->config.warmup = 5;
    c->every = config->every > 0 ? config->every : config->first > 0 ? config->first : 10;
    if (config->every == 0 && config->longest > 0 && c->every > config->longest) c->every = config->longest;
    c->ended_s = -INFINITY;
    window_init(&c->all, ITERATION_WINDOW);
    window_init(&c->quiet, BESIDE_WINDOW);
    window_init(&c->quiet_at, BESIDE_WINDOW);
    window_init(&c->busy, BESIDE_WINDOW);
    window_init(&c->service, saves);
    window_init(&c->spread, WINDOW_MAX);
    window_init(&c->stalls, saves);
    window_init(&c->beside, saves);
}

_Static_assert(2 * CADENCE_SAVES_MAX + 1 <= WINDOW_MAX, "a window holds 2 N + 1 saves");

pawl_code pawl_cadence_new(const struct pawl_cadence_config *config, struct pawl_cadence **out,
                           struct pawl_error *e) {
    pawl_code code = check(config, e);
    if (code != PAWL_OK) return code;
    struct pawl_cadence *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the cadence");
    init(c, config);
    *out = c;
    return PAWL_OK;
}

void pawl_cadence_free(struct pawl_cadence *c) { free(c); }

/* ---- estimates ---- */

/* By how much iterations beside saves are slower, beyond doubt. */
static double slower_beside(const struct pawl_cadence *c) {
    bool enough = c->quiet.count == c->quiet.size && c->busy.count == c->busy.size;
    if (!enough || (double)c->iterations - window_median(&c->quiet_at) > QUIET_AGE) return 0;
    double slower = window_median(&c->busy) - window_median(&c->quiet);
    double noise = hypot(window_error(&c->busy), window_error(&c->quiet));
    return slower > BESIDE_ERRORS * noise ? slower : 0;
}

static const struct window *iteration_window(const struct pawl_cadence *c) {
    return slower_beside(c) > 0 ? &c->quiet : &c->all;
}

/* What slower iterations beside a save cost in all, per save. */
static double beside_cost(const struct pawl_cadence *c) {
    return slower_beside(c) * window_median(&c->beside);
}

/* Iterations and saves seen are enough to judge by. */
static bool knows(const struct pawl_cadence *c) {
    return c->all.count >= ITERATIONS_MIN && c->service.count >= SAVES_MIN && c->usual_s > 0;
}

/* The rates, with the cost of saving times `factor`. */
static struct pawl_tune_rates rates_of(const struct pawl_cadence *c, double factor) {
    return (struct pawl_tune_rates){.iteration_s = window_median(iteration_window(c)),
                                    .write_s = c->usual_s * c->config.in_flight * factor,
                                    .in_flight = c->config.in_flight,
                                    .stall_s = (window_trimmed_mean(&c->stalls) + beside_cost(c)) * factor,
                                    .overhead = c->config.overhead,
                                    .mtbf_s = c->config.mtbf_s,
                                    .load_s = c->config.load_s};
}

/* Relative, of the quotient of save and iteration time. A window of few saves knows its own spread badly;
 * that of many saves, each about what the median was then, is steadier and does not mind a step of the level.
 */
static double noise_of(const struct pawl_cadence *c) {
    const struct window *t = iteration_window(c);
    double save = WINDOW_MEDIAN_ERROR * window_median(&c->spread) / sqrt(c->service.count);
    return fmin(NOISE_MAX, hypot(save, window_error(t) / window_median(t)));
}

/* ---- changes ---- */

static void tell(struct pawl_cadence *c, uint64_t before, enum pawl_tune_bound bound, const char *why) {
    /* Not asked for in time: from the interval last asked for, with the newest reason. */
    if (c->has_change) before = c->change.before;
    c->change = (struct pawl_cadence_change){
        .before = before, .after = c->every, .bound = bound, .stalled = c->stalled};
    snprintf(c->change.why, sizeof c->change.why, "%s", why);
    c->has_change = true;
}

static void tell_interval(struct pawl_cadence *c, uint64_t before, enum pawl_tune_bound bound) {
    char t[PAWL_AMOUNT_TEXT], s[PAWL_AMOUNT_TEXT], stall[PAWL_AMOUNT_TEXT], why[sizeof c->change.why];
    struct pawl_tune_rates r = rates_of(c, 1);
    snprintf(why, sizeof why,
             "saving every %" PRIu64 " iterations, was %" PRIu64 " (%s): an iteration takes %s, a save %s of "
             "the device and %s of training",
             c->every, before, pawl_tune_bound_name(bound), pawl_seconds_text(r.iteration_s, t),
             pawl_seconds_text(r.write_s / r.in_flight, s), pawl_seconds_text(r.stall_s, stall));
    tell(c, before, bound, why);
}

static uint64_t wanted(const struct pawl_cadence *c, double factor, enum pawl_tune_bound *bound) {
    struct pawl_tune_rates rates = rates_of(c, factor);
    struct pawl_tune_interval interval;
    if (pawl_tune_interval(&rates, &interval, NULL) != PAWL_OK) return c->every;
    if (bound != NULL) *bound = interval.bound;
    if (c->config.longest > 0 && interval.every > c->config.longest) return c->config.longest;
    return interval.every;
}

static int direction(const struct pawl_cadence *c, double noise) {
    if (wanted(c, 1 - LENGTHEN_ERRORS * noise, NULL) > c->every) return 1;
    if (wanted(c, 1 + SHORTEN + SHORTEN_ERRORS * noise, NULL) < c->every) return -1;
    return 0;
}

/* Look at the interval again. */
static void evaluate(struct pawl_cadence *c) {
    if (c->config.every > 0 || !knows(c)) return;
    double noise = noise_of(c);
    int way = direction(c, noise);
    c->confirm = way == 0 ? 0 : way * c->confirm > 0 ? c->confirm + way : way;
    if (abs(c->confirm) < CONFIRM) return;
    enum pawl_tune_bound bound = PAWL_BOUND_NONE;
    uint64_t before = c->every, after = wanted(c, 1 + ROOM, &bound);
    c->confirm = 0;
    if ((way > 0) != (after > before) || after == before) return;
    c->every = after;
    tell_interval(c, before, bound);
}

bool pawl_cadence_changed(struct pawl_cadence *c, struct pawl_cadence_change *out) {
    if (!c->has_change) return false;
    c->has_change = false;
    *out = c->change;
    return true;
}

/* ---- events ---- */

static void advance(struct pawl_cadence *c, double now_s) {
    if (now_s > c->now_s) {
        c->area += c->in_flight * (now_s - c->now_s);
        c->now_s = now_s;
    }
}

/* Of the device with `in_flight` at once over the rate with one: linear between one and N. */
static double speedup_at(const struct pawl_cadence *c, double in_flight) {
    if (c->config.in_flight == 1) return 1;
    double share = (fmin(in_flight, c->config.in_flight) - 1) / (c->config.in_flight - 1);
    return 1 + (c->config.speedup - 1) * fmax(0, share);
}

static double service_of(const struct pawl_cadence *c, const struct cadence_save *save) {
    double took = c->now_s - save->begun_s, beside = (c->area - save->area) / took;
    return took / beside * speedup_at(c, beside) / c->config.speedup;
}

/* Has the oldest save in flight been there for much longer than its share of the device would take? */
static void look_for_stall(struct pawl_cadence *c) {
    bool hangs = false;
    double usual = c->usual_s * c->config.in_flight;
    char took[PAWL_AMOUNT_TEXT], usually[PAWL_AMOUNT_TEXT], why[sizeof c->change.why];
    double longest = 0;
    for (uint32_t i = 0; i < c->in_flight; i++) longest = fmax(longest, c->now_s - c->saves[i].begun_s);
    if (c->service.count >= SAVES_MIN) hangs = longest > HANGS * usual;
    if (hangs == c->stalled) return;
    c->stalled = hangs;
    if (hangs)
        snprintf(why, sizeof why, "a save has been in flight for %s, usually %s: the disk hangs or is busy",
                 pawl_seconds_text(longest, took), pawl_seconds_text(usual, usually));
    else
        snprintf(why, sizeof why, "saves get on again");
    tell(c, c->every, PAWL_BOUND_NONE, why);
}

enum company { QUIET, MIXED, BESIDE };

/* Were saves in flight during the `seconds` up to now: none, some of the time, all the time? A long iteration
 * is likelier to see a save end than a short one, so the mixed ones would make those beside saves look long.
 */
static enum company company_of(const struct pawl_cadence *c, double seconds) {
    double slack_s = seconds * 1e-3, began_s = c->now_s - seconds; /* the clock was read twice */
    for (uint32_t i = 0; i < c->in_flight; i++)
        if (c->saves[i].begun_s <= began_s + slack_s) return BESIDE;
    for (uint32_t i = 0; i < c->in_flight; i++)
        if (c->saves[i].begun_s < c->now_s) return MIXED;
    return c->ended_s > began_s + slack_s ? MIXED : QUIET;
}

void pawl_cadence_iteration(struct pawl_cadence *c, double now_s, double seconds) {
    advance(c, now_s);
    look_for_stall(c);
    if (++c->iterations <= c->config.warmup || !isfinite(seconds) || seconds <= 0) return;
    window_add(&c->all, seconds);
    enum company company = company_of(c, seconds);
    if (company == QUIET) {
        window_add(&c->quiet, seconds);
        window_add(&c->quiet_at, (double)c->iterations);
    }
    if (company == BESIDE) window_add(&c->busy, seconds);
    if (company != QUIET) c->beside_count++;
    if (c->iterations % LOOK_ITERATIONS == 0) evaluate(c);
}

void pawl_cadence_stall(struct pawl_cadence *c, double seconds) {
    if (isfinite(seconds) && seconds > 0) c->stall_s += seconds;
}

bool pawl_cadence_due(const struct pawl_cadence *c, uint64_t step) {
    if (c->config.every > 0) return step > 0 && step % c->every == 0;
    if (c->in_flight >= c->config.in_flight) return false;
    if (!c->any_begun) return step >= c->every;
    return step > c->last_step && step - c->last_step >= c->every;
}

void pawl_cadence_begun(struct pawl_cadence *c, uint64_t step, double now_s) {
    advance(c, now_s);
    if (c->any_begun && c->iterations > c->config.warmup) { /* what the save before this one cost */
        window_add(&c->stalls, c->stall_s);
        window_add(&c->beside, c->beside_count);
    }
    c->stall_s = 0;
    c->beside_count = 0;
    c->any_begun = true;
    c->last_step = step;
    if (c->in_flight == CADENCE_SAVES_MAX) return;
    c->saves[c->in_flight++] = (struct cadence_save){step, now_s, c->area};
}

static void add_service(struct pawl_cadence *c, double seconds) {
    if (c->service.count >= SAVES_MIN) window_add(&c->spread, fabs(seconds / c->usual_s - 1));
    window_add(&c->service, seconds);
    c->usual_s = window_median(&c->service);
}

void pawl_cadence_ended(struct pawl_cadence *c, uint64_t step, double now_s, bool durable) {
    uint32_t i = 0;
    while (i < c->in_flight && c->saves[i].step != step) i++;
    if (i == c->in_flight) return;
    advance(c, now_s);
    struct cadence_save save = c->saves[i];
    memmove(&c->saves[i], &c->saves[i + 1], (c->in_flight - i - 1) * sizeof save);
    c->in_flight--;
    c->ended_s = c->now_s;
    if (durable && c->now_s > save.begun_s) add_service(c, service_of(c, &save));
    look_for_stall(c);
    evaluate(c);
}

void pawl_cadence_rewind(struct pawl_cadence *c, uint64_t step) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->in_flight; i++)
        if (c->saves[i].step <= step) c->saves[kept++] = c->saves[i];
    c->in_flight = kept;
    if (c->last_step > step) c->last_step = step;
}

void pawl_cadence_state(const struct pawl_cadence *c, struct pawl_cadence_state *out) {
    *out = (struct pawl_cadence_state){.every = c->every, .in_flight = c->in_flight, .stalled = c->stalled};
    out->iteration_s = window_median(iteration_window(c));
    out->write_s = c->usual_s * c->config.in_flight;
    out->stall_s = window_trimmed_mean(&c->stalls) + beside_cost(c);
    if (!knows(c)) return;
    struct pawl_tune_rates rates = rates_of(c, 1);
    out->slowdown = fmax(1, pawl_tune_slowdown(&rates, c->every));
    out->lost_mean_s = pawl_tune_lost_mean_s(&rates, c->every);
    out->lost_worst_s = pawl_tune_lost_worst_s(&rates, c->every);
}
