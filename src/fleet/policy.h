/* Private to fleet: the job that is simulated, and what a policy answers when its cluster changes.
 *
 * A policy is a table of functions over the same events. `start` sees who is there at the beginning (which
 * costs nothing), `change` who was lost and who came since; both answer how fast the job goes from then on
 * and what the change costs. The engine turns answers into time lines; policies know no clock.
 *
 * The rivals' iteration times are 1F1B's by formula: a micro-batch goes through all stages (fill), then the
 * slowest stage sets the pace, then the longest reduce and step. Transfers count in the fill alone, which is
 * generous to them. Times are whole nanoseconds. Tested in tests/unit/fleet_policy_test.c. */
#ifndef FLEET_POLICY_H
#define FLEET_POLICY_H

#include "fleet/fleet.h"

#define FLEET_NONE   UINT32_MAX
#define FLEET_NS_MAX ((uint64_t)1 << 60)
#define FLEET_NS     1e-9 /* seconds */
/* A model has hundreds of layers; the limit bounds what a profile can make us compute. */
#define FLEET_LAYERS_MAX 1024u

/* ---- the job ---- */

struct fleet_layer {                   /* of one micro-batch; a stage's costs spread evenly over its layers */
    uint64_t forward, compute;         /* ns; compute: all three passes */
    uint64_t tail;                     /* ns per iteration: its share of reduce and step */
    uint64_t state, activation, input; /* bytes */
};

struct fleet_pipe {                     /* a pipeline of some depth */
    uint64_t fill, slowest;             /* ns: one micro-batch through all stages; the busiest stage */
    uint64_t fill_again, slowest_again; /* the same with every forward computed twice */
    uint64_t tail;
    uint64_t state;                    /* bytes, of the fullest stage */
    bool fits, fits_twice, fits_again; /* device memory: 1F1B; with two states; with recomputation */
};

struct fleet_periods;
struct fleet_job {
    uint32_t pipelines, stages, microbatches;
    uint64_t batch; /* micro-batches of an iteration, the same for every policy */
    uint32_t layer_count;
    struct fleet_layer *layer;
    uint32_t *own_cut;       /* [stages + 1] first layer of each stage, as the profile has it */
    struct fleet_pipe *pipe; /* [layer_count + 1] by depth; 0 unused */
    uint64_t hop;            /* ns: activation and gradient across one boundary */
    double link_bps, storage_bps;
    struct pawl_profile profile; /* the caller's arrays; workers are alike in it */
    const struct fleet_constants *constants;
    struct fleet_periods *periods; /* of the planner; see period.h */
    char *warnings;                /* or null */
};
/* The profile's unit_s must be known; its arrays are used as long as the job. ARGUMENT names what does not
 * fit. */
pawl_code fleet_job_init(const struct pawl_sim_request *request, const struct pawl_profile *profile,
                         const struct fleet_constants *constants, struct fleet_job *out,
                         struct pawl_error *e);
void fleet_job_close(struct fleet_job *job);

/* First layers of the stages of a pipeline of that depth, [depth + 1]: the profile's own where it has as
 * many, else such that the busiest stage is least busy. */
void fleet_job_cut(const struct fleet_job *job, uint32_t depth, uint32_t *cut);
/* ns of an iteration in which one pipeline of that depth has so many micro-batches. */
uint64_t fleet_pipe_ns(const struct fleet_pipe *pipe, uint64_t microbatches);
/* `pipelines` equal ones of the profile's own depth share the batch. */
uint64_t fleet_job_ns(const struct fleet_job *job, uint32_t pipelines);
double fleet_job_constant(const struct fleet_job *job, const char *policy, const char *name);

/* How a policy saves. */
struct fleet_saving {
    double every_s; /* of work, from one to the next; 0: never */
    double stall_s; /* training stands still */
    double write_s; /* from its begin until it is durable */
    double load_s;
};
struct fleet_saving fleet_job_saving(const struct fleet_job *job, const char *policy, double iteration_s);

/* ---- policies ---- */

struct fleet_change {
    const uint32_t *lost, *joined; /* machines; one that is in both was replaced */
    uint32_t lost_count, joined_count;
};
struct fleet_answer {
    uint64_t iteration_ns;  /* from now on, after the stop; 0: it cannot run */
    double stop_s;          /* everybody stands still first */
    double lost_iterations; /* of the iteration time until now: what was under way is lost */
    bool rollback;          /* the state is lost: back to the newest durable checkpoint */
    bool saved;             /* a checkpoint was made before the stop, whose time `stop_s` includes */
    const char *note;       /* static; why it cannot run, or null */
};

struct fleet_policy {
    const char *name;
    pawl_code (*start)(const struct fleet_job *job, const bool *alive, void **state, struct fleet_answer *out,
                       struct pawl_error *e);
    pawl_code (*change)(void *state, const struct fleet_change *change, struct fleet_answer *out,
                        struct pawl_error *e);
    void (*close)(void *state); /* accepts null */
    /* Of a state with everybody there: ns of an iteration of the fastest layout that it could have; null:
     * that of `start`. */
    uint64_t (*best_ns)(void *state);
};
extern const struct fleet_policy fleet_fault_scaled, fleet_drop_replica, fleet_checkpoint_restart,
    fleet_oobleck, fleet_bamboo, fleet_varuna, fleet_recycle, fleet_pawl;
const struct fleet_policy *fleet_policy_find(const char *name); /* null: none */

/* ---- roles: which machine plays which worker, for policies that keep the layout ---- */

struct fleet_roles {
    uint32_t pipelines, stages;
    uint32_t *machine; /* [pipelines * stages] or FLEET_NONE */
    uint32_t *role;    /* [machines] or FLEET_NONE */
    uint32_t *holes;   /* [stages] roles that nobody plays */
    uint32_t empty;    /* their sum */
};
pawl_code fleet_roles_init(const struct fleet_job *job, const bool *alive, struct fleet_roles *out,
                           struct pawl_error *e);
void fleet_roles_close(struct fleet_roles *r);
/* The machine's role becomes empty; false: it had none. */
bool fleet_roles_leave(struct fleet_roles *r, uint32_t machine);
void fleet_roles_take(struct fleet_roles *r, uint32_t machine, uint32_t role);
uint32_t fleet_roles_alive(const struct fleet_roles *r);

/* ---- running it ---- */

/* Looked at and called during a run, at least every few thousand changes. */
struct fleet_watch {
    const bool *stop;                              /* or null */
    void (*progress)(void *context, double share); /* of the simulated time; or null */
    void *context;
};
/* One policy over the events; row, samples. `job` serves any number of runs; `watch` may be null. */
struct fleet_run {
    struct pawl_sim_row row; /* scenario is left empty */
    struct pawl_sim_sample *samples;
    uint32_t sample_count;
};
pawl_code fleet_engine_run(const struct fleet_job *job, const struct fleet_policy *policy,
                           const struct fleet_events *events, double seconds, const struct fleet_watch *watch,
                           struct fleet_run *out, struct pawl_error *e);

#endif
