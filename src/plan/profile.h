/* The fields of a profile as a table, from which it is read, checked, written and documented; private to the
 * profile's files. Format: docs/formats/profile.md. */
#ifndef PLAN_PROFILE_H
#define PLAN_PROFILE_H

#include <pawl/plan.h>

#include "base/error.h"

enum profile_type {
    PROFILE_COST,   /* double, a time that must be there */
    PROFILE_TIME,   /* double, 0: nothing */
    PROFILE_FACTOR, /* double, 0: 1, in memory alone: no file says 0 */
    PROFILE_RATE,   /* double, 0: not known */
    PROFILE_BYTES,  /* uint64_t, whole or an amount like 24GiB */
    PROFILE_COUNT,  /* uint32_t */
};
struct profile_field {
    const char *name;
    enum profile_type type;
    size_t offset;
};
extern const struct profile_field profile_stage_fields[], profile_worker_fields[], profile_top_fields[];
#define PROFILE_STAGE_FIELDS  12u
#define PROFILE_WORKER_FIELDS 4u
#define PROFILE_TOP_FIELDS    4u

/* Bounds of a time: one tick at least where it must be there; a micro-batch of 30 years in milliseconds. */
#define PROFILE_TIME_MIN    1e-6
#define PROFILE_TIME_MAX    1e12
#define PROFILE_SLOW_MIN    1e-3
#define PROFILE_SLOW_MAX    1e3
#define PROFILE_RATE_MAX    1e18
#define PROFILE_BYTES_MAX   ((uint64_t)1 << 53) /* exact in every reader of JSON */
#define PROFILE_TEXT_MAX    100u
#define PROFILE_WORKERS_MAX 4096u /* that differ: duplicates are found by looking at all pairs */

struct profile_problem {
    const char *field; /* where it is, or null: none */
    char text[240];    /* "is -1: give ..." */
};
/* All zero but the name, the unit and the number of stages. */
pawl_code profile_new(const char *name, const char *unit, uint32_t stages, struct pawl_profile **out,
                      struct pawl_error *e);
/* Whether the values of one struct are in range and fit together. False: *p says what is wrong. */
bool profile_stage_good(const struct pawl_stage_cost *stage, struct profile_problem *p);
bool profile_worker_good(const struct pawl_profile *profile, uint32_t index, struct profile_problem *p);
bool profile_top_good(const struct pawl_profile *profile, struct profile_problem *p);

#endif
