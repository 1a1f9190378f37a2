/* Fault injections as the user writes them: "kill:RANK@STEP[:POINT]", "kill:all@STEP".
 *
 * STEP is an optimizer step, from 1 to the run's last (0 is taken for the first). kill:RANK strikes while
 * that step is being computed, at POINT, a name of base/fault.def (default "forward": in the middle).
 * kill:all ends every worker and the launcher, as a power cut would, when the step has been taken. Each fires
 * once in a run's life, so that the same command resumes. */
#ifndef RUN_INJECT_H
#define RUN_INJECT_H

#include "base/error.h"
#include "base/fault.h"

#define INJECT_ALL UINT32_MAX

struct inject {
    const char *text; /* as given; borrowed */
    uint32_t rank;    /* or INJECT_ALL */
    uint64_t step;    /* as given */
    enum fault_point point;
};

pawl_code inject_parse(const char *text, uint32_t rank_count, uint64_t steps, struct inject *out,
                       struct pawl_error *e);

#endif
