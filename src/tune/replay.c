/* See replay.h. Time moves from event to event: the end of a save, a failure, or what the job waits for. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "tune/replay.h"

struct flight {
    uint64_t step;
    double left;    /* of service_s */
    double state_s; /* when the state it holds was reached */
};

struct job {
    const struct replay_config *config;
    struct replay_result result;
    double now_s;
    uint64_t step, last_begun;
    uint64_t durable_step;
    double durable_state_s; /* when the durable state was reached: training from there on is lost */
    struct flight saves[REPLAY_SAVES_MAX];
    uint32_t in_flight, next_failure;
    bool failed; /* since the iteration began */
};

/* ---- the device ---- */

static double rate_of_each(const struct job *j) {
    const struct replay_config *c = j->config;
    double speedup = c->speedup > 0 ? c->speedup : 1, share = 0;
    if (c->in_flight > 1) share = (j->in_flight - 1.0) / (c->in_flight - 1.0);
    double device = c->device != NULL ? c->device(c->context, j->now_s) : 1;
    return device * (1 + (speedup - 1) * share) / j->in_flight;
}

static void end_save(struct job *j, uint32_t at) {
    struct flight save = j->saves[at];
    memmove(&j->saves[at], &j->saves[at + 1], (j->in_flight - at - 1) * sizeof save);
    j->in_flight--;
    j->result.durable++;
    if (save.step > j->durable_step) {
        j->durable_step = save.step;
        j->durable_state_s = save.state_s;
    }
    if (j->config->cadence != NULL) pawl_cadence_ended(j->config->cadence, save.step, j->now_s, true);
}

static uint32_t first_to_end(const struct job *j) {
    uint32_t first = 0;
    for (uint32_t i = 1; i < j->in_flight; i++)
        if (j->saves[i].left < j->saves[first].left) first = i;
    return first;
}

static void fail(struct job *j) {
    double lost = j->now_s - j->durable_state_s + j->config->load_s;
    j->result.failures++;
    j->result.redone += j->step - j->durable_step;
    j->result.lost_s += lost;
    j->result.lost_s_max = fmax(j->result.lost_s_max, lost);
    for (; j->in_flight > 0; j->in_flight--)
        if (j->config->cadence != NULL)
            pawl_cadence_ended(j->config->cadence, j->saves[j->in_flight - 1].step, j->now_s, false);
    if (j->config->cadence != NULL) pawl_cadence_rewind(j->config->cadence, j->durable_step);
    j->step = j->last_begun = j->durable_step;
    j->now_s += j->config->load_s;
    j->durable_state_s = j->now_s; /* the state that training goes on from */
    j->failed = true;
}

/* To `until_s`, or to the end of a save or a failure before that. True when a save ended. */
static bool advance(struct job *j, double until_s) {
    const struct replay_config *c = j->config;
    double failure_s = j->next_failure < c->failure_count ? c->failures[j->next_failure] : INFINITY;
    double target_s = fmin(until_s, failure_s), rate = j->in_flight > 0 ? rate_of_each(j) : 0;
    uint32_t first = first_to_end(j);
    bool ends = j->in_flight > 0 && rate > 0 && j->now_s + j->saves[first].left / rate <= target_s;
    double end_s = ends ? j->now_s + j->saves[first].left / rate : target_s;
    for (uint32_t i = 0; i < j->in_flight; i++) j->saves[i].left -= rate * (end_s - j->now_s);
    j->now_s = fmax(j->now_s, end_s); /* a failure while loading is one at its end */
    if (ends)
        end_save(j, first);
    else if (failure_s <= until_s) {
        j->next_failure++;
        fail(j);
    }
    return ends;
}

static void pass(struct job *j, double seconds) {
    double until_s = j->now_s + seconds;
    while (!j->failed && j->now_s < until_s) (void)advance(j, until_s);
}

/* A hanging device is asked again after this many iterations. */
#define WAIT_ITERATIONS 0.25

static void wait_below(struct job *j, uint32_t in_flight) {
    double begun_s = j->now_s, end_s = j->config->seconds;
    while (!j->failed && j->in_flight >= in_flight && j->now_s < end_s)
        (void)advance(j, j->now_s + WAIT_ITERATIONS * j->config->iteration_s);
    j->result.held_s += j->now_s - begun_s;
}

/* ---- the job ---- */

static void begin_save(struct job *j) {
    const struct replay_config *c = j->config;
    double held_s = j->result.held_s, reached_s = j->now_s;
    wait_below(j, c->in_flight);
    if (j->failed || j->now_s >= c->seconds) return;
    double size = c->noise != NULL ? c->noise(c->context) : 1;
    j->saves[j->in_flight++] = (struct flight){j->step, c->service_s * size, reached_s};
    if (j->in_flight > j->result.in_flight_max) j->result.in_flight_max = j->in_flight;
    j->last_begun = j->step;
    j->result.saves++;
    if (c->cadence != NULL) pawl_cadence_begun(c->cadence, j->step, j->now_s);
    double copy_s = j->now_s;
    pass(j, c->stall_s);
    j->result.held_s += j->now_s - copy_s;
    if (c->synchronous) wait_below(j, 1);
    if (c->cadence != NULL) pawl_cadence_stall(c->cadence, j->result.held_s - held_s);
}

static bool is_due(const struct job *j) {
    if (j->config->cadence != NULL) return pawl_cadence_due(j->config->cadence, j->step);
    return j->step - j->last_begun >= j->config->every;
}

static void iterate(struct job *j) {
    const struct replay_config *c = j->config;
    double took_s = c->iteration_s * (c->iteration != NULL ? c->iteration(c->context, j->now_s) : 1);
    j->failed = false;
    pass(j, took_s);
    if (j->failed || j->now_s > c->seconds) return;
    j->step++;
    if (c->cadence != NULL) pawl_cadence_iteration(c->cadence, j->now_s, took_s);
    if (is_due(j)) begin_save(j);
}

static pawl_code check(const struct replay_config *c, struct pawl_error *e) {
    if (!(c->seconds > 0 && isfinite(c->seconds)) || !(c->iteration_s > 0) || !(c->service_s > 0))
        return error_set(e, PAWL_ARGUMENT, 0, "replay: seconds, iteration_s and service_s must be above 0");
    if (!(c->stall_s >= 0) || !(c->load_s >= 0))
        return error_set(e, PAWL_ARGUMENT, 0, "replay: stall_s and load_s must not be below 0");
    if (c->in_flight < 1 || c->in_flight > REPLAY_SAVES_MAX || (c->every == 0 && c->cadence == NULL))
        return error_set(e, PAWL_ARGUMENT, 0, "replay: in_flight is 1 to %u, every 1 or more",
                         REPLAY_SAVES_MAX);
    for (uint32_t i = 1; i < c->failure_count; i++)
        if (c->failures[i] < c->failures[i - 1])
            return error_set(e, PAWL_ARGUMENT, 0, "replay: failure %u comes before the one before it", i);
    return PAWL_OK;
}

pawl_code replay_run(const struct replay_config *config, struct replay_result *out, struct pawl_error *e) {
    struct job j = {.config = config};
    pawl_code code = check(config, e);
    if (code != PAWL_OK) return code;
    while (j.now_s < config->seconds) iterate(&j);
    j.result.iterations = j.step;
    j.result.goodput = (double)j.step / config->seconds;
    uint64_t computed = j.step + j.result.redone;
    j.result.slowdown = computed > 0 ? config->seconds / ((double)computed * config->iteration_s) : INFINITY;
    *out = j.result;
    return PAWL_OK;
}
