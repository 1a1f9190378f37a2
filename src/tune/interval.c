/* From rates to the interval: the least one within the limits, or the best one for a failure rate.
 *
 * Limits: Tw/(N f t) <= q (the device keeps up) and stall/(f t) <= q - 1 (the caller is not held up). With an
 * MTBF the cost of an interval is its slow-down plus what a failure loses, over the time between failures.
 * That cost has two arms which meet at f = Tw/(N t): below, the device is the bottleneck and cost falls
 * with Tw/(N f t); above, only the stall counts. Each arm is a/f + b f, least at sqrt(a/b); so the best f
 * is one of: the limit, where the arms meet, or an arm's least, rounded either way. Young's and Daly's
 * intervals (with Ts the stall, not Tw: training goes on while it is written) are tried, too; they are the
 * second arm's. Losses per failure: half an interval, half of what is in flight, and loading
 * (docs/tuning.md). Tested in tests/unit/tune_interval_test.c. */
#include <math.h>

#include "base/error.h"
#include "tune/tune.h"

static double overhead_of(const struct pawl_tune_rates *r) {
    return r->overhead > 0 ? r->overhead : PAWL_TUNE_OVERHEAD;
}

/* Training time that passes while one save is written: no more than N intervals, since then it is waited for.
 */
static double in_flight_s(const struct pawl_tune_rates *r, double every) {
    return fmin(r->write_s, r->in_flight * every * r->iteration_s);
}

double pawl_tune_slowdown(const struct pawl_tune_rates *r, uint64_t every) {
    double interval = (double)every * r->iteration_s;
    return fmax(1 + r->stall_s / interval, r->write_s / (r->in_flight * interval));
}

double pawl_tune_lost_mean_s(const struct pawl_tune_rates *r, uint64_t every) {
    return r->load_s + ((double)every * r->iteration_s + in_flight_s(r, (double)every)) / 2;
}

double pawl_tune_lost_worst_s(const struct pawl_tune_rates *r, uint64_t every) {
    return r->load_s + (double)every * r->iteration_s + in_flight_s(r, (double)every);
}

const char *pawl_tune_bound_name(enum pawl_tune_bound bound) {
    static const char *const names[] = {"none", "bandwidth", "stall", "failures"};
    return (unsigned)bound < sizeof names / sizeof names[0] ? names[bound] : "unknown";
}

static pawl_code check(const char *name, double value, bool zero, struct pawl_error *e) {
    if (isfinite(value) && (value > 0 || (zero && value == 0))) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s is %g, wanted a number %s 0", name, value,
                     zero ? "not below" : "above");
}

pawl_code tune_rates_check(const struct pawl_tune_rates *r, struct pawl_error *e) {
    const struct {
        const char *name;
        double value;
        bool zero;
    } fields[] = {
        {"iteration_s", r->iteration_s, false}, {"write_s", r->write_s, false}, {"stall_s", r->stall_s, true},
        {"overhead", r->overhead, true},        {"mtbf_s", r->mtbf_s, true},    {"load_s", r->load_s, true}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        pawl_code code = check(fields[i].name, fields[i].value, fields[i].zero, e);
        if (code != PAWL_OK) return code;
    }
    if (r->in_flight < 1) return error_set(e, PAWL_ARGUMENT, 0, "in_flight is 0, wanted 1 or more");
    return PAWL_OK;
}

/* Iterations beyond this are as good as never; keeps the arithmetic below exact. */
#define EVERY_MAX 1e15

static uint64_t whole(double iterations) {
    /* A hair above a whole number is that number: the quotient of measured times has no such precision. */
    double up = ceil(iterations - 1e-9 * fabs(iterations));
    return up <= 1 ? 1 : (uint64_t)fmin(up, EVERY_MAX);
}

/* Time lost per second of training: by saving and, on the average, by failures. */
static double cost(const struct pawl_tune_rates *r, uint64_t every) {
    return pawl_tune_slowdown(r, every) - 1 + pawl_tune_lost_mean_s(r, every) / r->mtbf_s;
}

static void try_around(const struct pawl_tune_rates *r, double iterations, uint64_t least, uint64_t *best) {
    uint64_t up = whole(iterations);
    for (uint64_t every = up > 1 ? up - 1 : 1; every <= up; every++)
        if (every >= least && cost(r, every) < cost(r, *best)) *best = every;
}

/* The cheapest interval of `least` iterations or more. */
static uint64_t cheapest(const struct pawl_tune_rates *r, const struct pawl_tune_interval *interval,
                         uint64_t least) {
    double t = r->iteration_s, meet_s = r->write_s / r->in_flight;
    uint64_t best = least;
    try_around(r, meet_s / t, least, &best);
    /* First arm: meet_s/(f t) + f t (1 + N)/(2 Tf). */
    try_around(r, sqrt(2 * r->mtbf_s * meet_s / (1 + r->in_flight)) / t, least, &best);
    try_around(r, interval->young_s / t, least, &best);
    try_around(r, interval->daly_s / t, least, &best);
    /* Between (meet_s - Ts)/t and meet_s/t the stall counts already, and saves still queue. */
    try_around(r, (meet_s - r->stall_s) / t, least, &best);
    try_around(r, sqrt(2 * r->mtbf_s * r->stall_s / (1 + r->in_flight)) / t, least, &best);
    return best;
}

pawl_code pawl_tune_interval(const struct pawl_tune_rates *r, struct pawl_tune_interval *out,
                             struct pawl_error *e) {
    pawl_code code = tune_rates_check(r, e);
    if (code != PAWL_OK) return code;
    double q = 1 + overhead_of(r), ts = r->stall_s;
    struct pawl_tune_interval i = {.bandwidth_min = r->write_s / (r->in_flight * q * r->iteration_s),
                                   .stall_min = ts / (overhead_of(r) * r->iteration_s)};
    uint64_t least = whole(fmax(i.bandwidth_min, i.stall_min));
    i.every = least;
    i.bound = least == 1 ? PAWL_BOUND_NONE
                         : (i.stall_min > i.bandwidth_min ? PAWL_BOUND_STALL : PAWL_BOUND_BANDWIDTH);
    if (r->mtbf_s > 0) {
        i.young_s = sqrt(2 * ts * r->mtbf_s);
        i.daly_s = ts + sqrt(2 * (r->mtbf_s + r->load_s) * ts + ts * ts);
        i.every = cheapest(r, &i, least);
        if (i.every > least) i.bound = PAWL_BOUND_FAILURES;
    }
    i.slowdown = fmax(1, pawl_tune_slowdown(r, i.every));
    i.lost_mean_s = pawl_tune_lost_mean_s(r, i.every);
    i.lost_worst_s = pawl_tune_lost_worst_s(r, i.every);
    *out = i;
    return PAWL_OK;
}
