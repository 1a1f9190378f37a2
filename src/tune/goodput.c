/* See goodput.h. Numbers are those that PCcheck's authors measured and published. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "tune/goodput.h"

const uint32_t goodput_every[GOODPUT_INTERVALS] = {0, 10, 25, 50};

/* Iterations per second without failures. */
static const double throughput[][GOODPUT_INTERVALS] = {
    [GOODPUT_CHECKFREQ] = {15.742874314174914, 2.938627628113705, 7.042363043171207, 12.18658951925483},
    [GOODPUT_GPM] = {15.756049145422713, 6.651017406282624, 10.387977578704326, 12.998492611136836},
    [GOODPUT_PCCHECK] = {15.769409833983385, 6.3503108341382175, 14.2728865888275, 15.52581113138962},
};
/* PCcheck's Tw with its 4 in flight; the last median its logs print. At 10 its exact
 * value does not matter: 4 intervals are shorter. */
static const double write_s[GOODPUT_INTERVALS] = {0, 5.996, 3.4304383993148804, 2.0806734561920166};
#define WRITE_IN_FLIGHT 4
#define LOAD_S          0.8778302669525 /* file to GPU */

const char *goodput_name(enum goodput_system system) {
    static const char *const names[] = {"CheckFreq", "GPM", "PCcheck", "Ideal"};
    return (unsigned)system < GOODPUT_SYSTEMS ? names[system] : "unknown";
}

/* Work lost on the average, and loading. */
static double loss_s(enum goodput_system system, uint32_t at) {
    double every = goodput_every[at];
    switch (system) {
    case GOODPUT_CHECKFREQ:
        return every / throughput[GOODPUT_CHECKFREQ][0] + LOAD_S;
    case GOODPUT_GPM:
        return every / throughput[GOODPUT_GPM][0] / 2 + LOAD_S;
    case GOODPUT_IDEAL:
        return every / throughput[GOODPUT_PCCHECK][0] / 2 + LOAD_S;
    case GOODPUT_PCCHECK:
    case GOODPUT_SYSTEMS:
        break;
    }
    double t = 1 / throughput[GOODPUT_PCCHECK][0];
    return LOAD_S + every * t / 2 + t * fmin(write_s[at] / t, WRITE_IN_FLIGHT * every) / 2;
}

double goodput_formula(enum goodput_system system, uint32_t at, uint32_t failures, double seconds) {
    double rate = system == GOODPUT_IDEAL ? throughput[GOODPUT_PCCHECK][0] : throughput[system][at];
    return fmax(0, rate * (1 - failures * loss_s(system, at) / seconds));
}

/* ---- replay ---- */

const char *goodput_policy_name(enum goodput_policy policy) {
    static const char *const names[] = {"sync", "CheckFreq-like", "Gemini-like", "pawl",
                                        "pawl, overhead 3 %"};
    return (unsigned)policy < POLICIES ? names[policy] : "unknown";
}

struct goodput_job goodput_vgg16(void) {
    struct goodput_job job = {
        .iteration_s = 1 / throughput[GOODPUT_PCCHECK][0],
        .bytes = 276715088.0 * 4, /* float32 */
        .network_bps = 15e9 / 8,  /* between two such machines */
        .copy_bps = 12e9,         /* GPU to pinned memory */
        .load_s = LOAD_S,
        .in_flight = WRITE_IN_FLIGHT,
    };
    /* Every 50 iterations a save is alone, every 10 always 4 are in flight: 0.53 and 0.74 GB/s. */
    job.disk_bps = job.bytes / write_s[3];
    job.speedup = WRITE_IN_FLIGHT * write_s[3] / write_s[1];
    return job;
}

static struct replay_config configure(const struct goodput_job *job, enum goodput_policy policy) {
    struct replay_config c = {.iteration_s = job->iteration_s,
                              .service_s = job->bytes / job->disk_bps,
                              .stall_s = job->bytes / job->copy_bps,
                              .load_s = job->load_s,
                              .in_flight = 1};
    if (policy == POLICY_SYNC) c.synchronous = true;
    if (policy == POLICY_GEMINI) { /* straight to the peer, and back from it */
        c.service_s = job->bytes / job->network_bps;
        c.load_s = c.service_s;
        c.stall_s = 0; /* sent in pieces between the training's own messages */
    }
    if (policy == POLICY_PAWL || policy == POLICY_PAWL_ADAPTIVE) {
        c.in_flight = job->in_flight;
        c.speedup = job->speedup;
        /* A capture has the forward and backward pass for it: what is left stalls. */
        c.stall_s = fmax(0, job->bytes / job->copy_bps - job->iteration_s);
    }
    return c;
}

pawl_code goodput_replay(const struct goodput_job *job, enum goodput_policy policy, uint64_t every,
                         const struct trace *trace, struct replay_result *out, struct pawl_error *e) {
    struct replay_config c = configure(job, policy);
    double *drops = NULL;
    struct pawl_cadence_config cadence = {.in_flight = c.in_flight, .speedup = c.speedup, .load_s = c.load_s};
    pawl_code code = trace_drops(trace, &drops, &c.failure_count, &c.seconds, e);
    if (code == PAWL_OK && policy == POLICY_PAWL_ADAPTIVE) code = pawl_cadence_new(&cadence, &c.cadence, e);
    c.failures = drops;
    c.every = every;
    if (code == PAWL_OK) code = replay_run(&c, out, e);
    pawl_cadence_free(c.cadence);
    free(drops);
    return code;
}
