/* A cluster over hours and days: machines fail and come back, and each policy does with them what it does.
 *
 *   trace or rates ─► events (which machine goes, comes, when) ─► policy model ─► rate, stops, lost work ─►
 * rows
 *
 * Every policy is a table of functions over the same events (facts 9): membership in, iteration time and stop
 * out. The models of recycle and pawl ask the planner for the period of the very failure set; the others
 * follow their published rules. Each constant has a name, a value, a unit and a source, and can be
 * overridden; none is tuned. Pure and deterministic, but for `stop` and progress. pawl/plan.h has the
 * contract of what users call (pawl_sim_*), show/show.h draws. Tested in tests/unit/fleet_*. */
#ifndef FLEET_FLEET_H
#define FLEET_FLEET_H

#include <pawl/plan.h>

/* ---- events ---- */

struct fleet_event {
    double at_s;
    uint32_t machine; /* 0 .. machines-1 */
    bool joins;       /* else it is lost */
};
struct fleet_events { /* times ascending; a machine is lost only while it is there and joins only while it is
                         not */
    struct fleet_event *event;
    uint32_t count;
    uint32_t machines; /* numbers used; at the start all of 0 .. present-1 are there */
    uint32_t present;
    double seconds; /* length of what was recorded */
    char *warnings; /* lines: what was odd in the file and what was done; or null */
};
/* Named nodes `milliseconds,add|remove,node`, counts `index,Time,GPUs`, and `YYYY-MM-DD, HH:MM:SS, count`;
 * told apart by their first lines. Victims of counts are drawn with `seed`. Out of order: sorted, with a
 * warning; a node added or removed twice: ignored, with a warning; anything else: FORMAT with file and line.
 * A cut last line is FORMAT, too. Nodes beyond `machines` wait as spares until there is room; a trace that
 * has fewer than `machines` at once starts when the first burst of additions ends. */
pawl_code fleet_events_read(const char *path, uint32_t machines, uint64_t seed, struct fleet_events *out,
                            struct pawl_error *e);
struct fleet_rates {
    uint32_t machines;
    double seconds;
    double every_s;    /* evenly; or */
    double mtbf_s;     /* of one machine, Poisson; or */
    double dead_share; /* from the start on: so many drawn at random, rounded to the nearest, at least 1; the
                          same seed draws the same ones first, so that more dead include the fewer */
    double repair_s;   /* 0: nobody returns */
    uint32_t burst;
    uint64_t seed;
    const bool *stop; /* CANCELLED when it is set; or null */
};
pawl_code fleet_events_draw(const struct fleet_rates *rates, struct fleet_events *out, struct pawl_error *e);
void fleet_events_close(struct fleet_events *events);

/* ---- constants (docs/formats/stops.md) ---- */

struct fleet_constant {
    const char *policy, *name, *unit, *source;
    double value;
};
struct fleet_constants {
    struct fleet_constant *constant;
    uint32_t count;
};
pawl_code fleet_constants_default(struct fleet_constants *out, struct pawl_error *e);
pawl_code fleet_constants_read(struct fleet_constants *c, const char *path, struct pawl_error *e);
pawl_code fleet_constants_set(struct fleet_constants *c, const char *assignment, struct pawl_error *e);
double fleet_constant(const struct fleet_constants *c, const char *policy, const char *name);
void fleet_constants_close(struct fleet_constants *c);

/* ---- the opaque result of pawl/plan.h ---- */

struct pawl_sim {
    struct pawl_sim_row *rows;
    struct pawl_sim_sample **samples; /* [rows] */
    uint32_t *sample_counts;
    uint32_t row_count;
    struct fleet_constants constants; /* that were used: printed with the result */
    struct pawl_sim_request request;  /* sizes only; no pointers of the caller's */
    char *warnings;
};

#endif
