/* What a way of saving is worth on a recorded trace: PCcheck's closed formula, and a replay of the events.
 *
 * The formula (ASPLOS'25, the authors' goodput model) takes every change of the number of machines for a
 * failure, the start from none and additions too, and an average loss for each. The replay takes drops only
 * and what was really lost since the newest durable state (replay.h). Pure. Tested in
 * tests/golden/tune_goodput_test.c; printed by bench/tune_goodput.c. */
#ifndef TUNE_GOODPUT_H
#define TUNE_GOODPUT_H

#include "tune/replay.h"
#include "tune/trace.h"

enum goodput_system { GOODPUT_CHECKFREQ, GOODPUT_GPM, GOODPUT_PCCHECK, GOODPUT_IDEAL, GOODPUT_SYSTEMS };
const char *goodput_name(enum goodput_system system);
#define GOODPUT_INTERVALS 4u

/* Measured by PCcheck's authors: VGG16 on one A100 and a network disk. */
extern const uint32_t goodput_every[GOODPUT_INTERVALS]; /* 0: no saves */

/* Goodput in iterations per second at interval `at`. */
double goodput_formula(enum goodput_system system, uint32_t at, uint32_t failures, double seconds);

/* Policies of the replay, all on the same device and with the same copy rate. */
enum goodput_policy {
    POLICY_SYNC,
    POLICY_CHECKFREQ,
    POLICY_GEMINI,
    POLICY_PAWL,
    POLICY_PAWL_ADAPTIVE,
    POLICIES
};
const char *goodput_policy_name(enum goodput_policy policy);

struct goodput_job { /* the same for all policies */
    double iteration_s;
    double bytes;
    double disk_bps, network_bps, copy_bps; /* one save alone, to a peer's memory, GPU to host */
    double speedup;                         /* of the disk by in_flight saves at once */
    double load_s;                          /* from disk */
    uint32_t in_flight;                     /* of pawl */
};
/* PCcheck's VGG16 run: iteration time, size and rates from its logs. */
struct goodput_job goodput_vgg16(void);

/* `every` is ignored by the adaptive policy. */
pawl_code goodput_replay(const struct goodput_job *job, enum goodput_policy policy, uint64_t every,
                         const struct trace *trace, struct replay_result *out, struct pawl_error *e);

#endif
