/* What the workers of a run measured, as a profile that the planner reads. */
#ifndef API_TRAIN_PROFILE_H
#define API_TRAIN_PROFILE_H

#include <pawl/plan.h>

#include "run/launch.h"

pawl_code train_profile_make(const struct launch_measured *measured, struct pawl_profile **out,
                             struct pawl_error *e);
pawl_code train_profile_write(const struct launch_measured *measured, const char *path, struct pawl_error *e);

#endif
