/* Reading from text in memory: what the files' readers call, and tests and the fuzzer. */
#ifndef PLAN_PROFILE_READ_H
#define PLAN_PROFILE_READ_H

#include <pawl/plan.h>

pawl_code profile_parse(const char *text, size_t size, const char *name, struct pawl_profile **out,
                        struct pawl_error *e);

struct limits_size {
    uint32_t pipelines, stages;
};
pawl_code limits_parse(const char *text, size_t size, const char *name, struct limits_size sizes,
                       double **out, bool *in_bytes, struct pawl_error *e);

#endif
