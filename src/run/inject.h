/* Fault injections as the user writes them: "kill:RANK@STEP[:POINT]", "kill:all@STEP".
 *
 * STEP counts optimizer steps done: the fault strikes in the iteration that follows them. POINT is a name of
 * base/fault.def (default "forward": in the middle of the iteration). kill:all ends every worker and the
 * launcher, as a power cut would. Each fires once in a run's life, so that the same command resumes. */
#ifndef RUN_INJECT_H
#define RUN_INJECT_H

#include "base/error.h"
#include "base/fault.h"

#define INJECT_ALL UINT32_MAX

struct inject {
    const char *text; /* as given; borrowed */
    uint32_t rank;    /* or INJECT_ALL */
    uint64_t step;
    enum fault_point point;
};

pawl_code inject_parse(const char *text, uint32_t rank_count, struct inject *out, struct pawl_error *e);

#endif
