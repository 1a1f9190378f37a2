/* The planner and the simulator: the best schedule for a cluster and any set of failures, with proof of how
 * good it is, and what failures cost over time under one policy or another. How to use it: docs/planning.md.
 *
 * A cluster has D pipelines (data-parallel replicas) of P stages; worker (p, s) is one machine or one
 * tensor-parallel group. Each pipeline runs M micro-batches an iteration. Times are in the unit of the
 * profile (uniform costs: F = I = W = 1), memory in bytes, or in micro-batches where the profile knows no
 * bytes.
 *
 * Nothing here is global: calls from several threads do not disturb each other; one object is used by one
 * thread at a time, and a finished plan or result only read by any number. Nothing is printed. Everything is
 * deterministic for a seed, as far as no time limit ends a search. Sources: ReCycle (SOSP'24), Zero Bubble
 * (ICLR'24), Megatron-LM (SC'21), Oobleck (SOSP'23), Bamboo (NSDI'23), Varuna (EuroSys'22). */
#ifndef PAWL_PLAN_H
#define PAWL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <pawl/error.h>

/* ---- profile: how long things take, how much they need (docs/formats/profile.md) ---- */

struct pawl_stage_cost { /* of one stage and one micro-batch, unless said; 0: nothing, or not known */
    double forward, input_grad, weight_grad;
    double reduce, step; /* per iteration: gradient all-reduce of the stage, optimizer update */
    double send_forward,
        send_backward; /* transfer of the activation to the next stage, of the gradient to the one before */
    uint64_t state_bytes;       /* weights and optimizer state of a worker */
    uint64_t activation_bytes;  /* from forward to input-gradient */
    uint64_t weight_grad_bytes; /* of them, needed until the weight-gradient; 0: all */
    uint64_t input_bytes;       /* needed to compute the forward again; 0: it cannot be */
    uint32_t layers;            /* 0: not known */
};
struct pawl_worker_cost { /* a worker that differs */
    uint32_t pipeline, stage;
    double slow;           /* factor on its compute times; 0: 1 */
    uint64_t memory_bytes; /* of the device; 0: as the profile says */
};
struct pawl_profile { /* made by the functions below; may be changed in place, arrays from malloc */
    char *name;
    char *unit;    /* of all times, "ms" or "" */
    double unit_s; /* seconds in one unit; 0: not known */
    uint32_t stages;
    struct pawl_stage_cost *stage;
    uint64_t memory_bytes; /* of a device; 0: no limit known */
    double link_bps;       /* bytes per second between workers, for copying state; 0: not known */
    double host_bps;       /* ... to the host's memory, for offloading; 0: not possible */
    uint32_t worker_count;
    struct pawl_worker_cost *worker;
};

pawl_code pawl_profile_uniform(uint32_t stages, double forward, double input_grad, double weight_grad,
                               double comm, struct pawl_profile **out, struct pawl_error *e);
/* A YAML or JSON file; every field is checked; errors (FORMAT) name file, line and field. */
pawl_code pawl_profile_read(const char *path, struct pawl_profile **out, struct pawl_error *e);
/* Built in, by stated formulas (docs/planning.md), cut into `stages`; NOT_FOUND lists the names.
 * Letter case aside. pawl_profile_names: null-ended, static. */
pawl_code pawl_profile_builtin(const char *name, uint32_t stages, struct pawl_profile **out,
                               struct pawl_error *e);
const char *const *pawl_profile_names(void);
/* YAML that pawl_profile_read takes; replaced in one step. A symbolic link stays one, and what it leads to is
 * replaced; a device or pipe is written to (IO: nobody reads it). */
pawl_code pawl_profile_write(const struct pawl_profile *profile, const char *path, struct pawl_error *e);
pawl_code pawl_profile_check(const struct pawl_profile *profile, struct pawl_error *e);
void pawl_profile_free(struct pawl_profile *profile);

/* Memory limits from a YAML or JSON file, as pawl_plan_request.worker_memory takes them: one number a stage,
 * or one a worker, flat or pipeline by pipeline (docs/formats/profile.md). *in_bytes: amounts like 24GiB were
 * given. *out is [pipelines * stages], to be freed. Errors (FORMAT) name file and line. */
pawl_code pawl_plan_limits_read(const char *path, uint32_t pipelines, uint32_t stages, double **out,
                                bool *in_bytes, struct pawl_error *e);

/* ---- planning ---- */

enum pawl_policy {
    PAWL_POLICY_GPIPE,
    PAWL_POLICY_1F1B,
    PAWL_POLICY_INTERLEAVED,
    PAWL_POLICY_ZB_H1,
    PAWL_POLICY_ZB_H2,
    PAWL_POLICY_ZB_V,
    PAWL_POLICY_ADAPTIVE,  /* re-routing; fused backward, barrier */
    PAWL_POLICY_DECOUPLED, /* + input- and weight-gradient apart */
    PAWL_POLICY_RECYCLE,   /* + staggered steps */
    PAWL_POLICY_PAWL,      /* + work shared beyond the stage, by speed, search */
    PAWL_POLICY_COUNT
};
const char *pawl_policy_name(enum pawl_policy policy); /* "zb-h1" */
pawl_code pawl_policy_parse(const char *name, enum pawl_policy *out, struct pawl_error *e);

struct pawl_worker_at {
    uint32_t pipeline, stage; /* from 0 */
};

/* Most that can be planned and simulated; what a plan of all of them would be is refused by its size. */
#define PAWL_PIPELINES_MAX    4096u
#define PAWL_STAGES_MAX       1024u
#define PAWL_MICROBATCHES_MAX 16384u
#define PAWL_WORKERS_MAX      65536u
#define PAWL_CHUNKS_MAX       64u /* of one stage */

struct pawl_plan_request {
    uint32_t pipelines, stages, microbatches;
    uint32_t total_microbatches;        /* of the iteration: the last pipelines have fewer; 0: all are full */
    const struct pawl_profile *profile; /* null: all costs 1 */
    enum pawl_policy policy;
    uint32_t chunks_per_stage; /* interleaved; 0: 2 */
    const struct pawl_worker_at *dead;
    uint32_t dead_count;
    uint32_t failures; /* more of them, placed where they cost least */
    bool no_move;      /* nobody takes over another worker's stage, no stage is shared */
    double min_gain;   /* a move, or more helpers, must shorten the period by this share; 0: 0.02, 0.005 */
    /* Limits on what is stored for micro-batches, one for all, or [pipelines * stages]; in micro-batches, or
     * in bytes (of activations alone). 0 and null: the profile's device memory minus the state, or none. */
    double memory;
    const double *worker_memory;
    bool memory_in_bytes;
    bool recompute, offload; /* may be used where memory is short, with a profile that knows their cost */
    bool exact;              /* prove it, by a solver, for small cases */
    const char *engine;      /* "z3", "cbc"; null: z3 */
    double time_limit_s;     /* of the exact solver; 0: 60 */
    double search_s;         /* of the local search, and where stages may share, of searching other numbers of
                              * helpers; 0: short, by the size, of one; negative: none */
    uint64_t seed;
    void (*progress)(void *context, double period, double bound, double seconds); /* null: none */
    void *context;
    const bool *stop; /* set to true by a signal handler: end soon with the best plan so far; null: none */
};

struct pawl_plan_summary {
    enum pawl_policy policy;
    uint32_t pipelines, stages, chunks, microbatches;
    uint32_t alive;     /* live workers (roles) */
    double period;      /* time from iteration to iteration, in the profile's unit */
    double makespan;    /* of one iteration alone */
    double lower_bound; /* no plan of this policy for these dead, moves and limits is shorter */
    double gap;         /* (period - lower_bound) / lower_bound */
    double fault_free;  /* the same without failures: a bound on it, or the period of a baseline; for
                           comparison */
    double planning_ms; /* all of it: bound and check included */
    double check_ms;    /* of it, the independent checker */
    bool proven;        /* period = lower_bound, or a solver proved it: of all that the policy may do */
    bool exact;         /* an exact engine ran */
    double exact_s, exact_bound; /* of the order for who executes what in this plan */
    const char *engine;          /* "rule", "list", "list+search", "z3", "cbc" */
    uint64_t instructions;
    uint32_t move_count, shared_count;
    uint32_t recomputed, offloaded; /* micro-batches */
    const char *unit;               /* of time */
    const char *memory_unit;        /* "bytes" or "microbatches" */
};
struct pawl_plan_move {
    struct pawl_worker_at from, to; /* who plays `from` plays `to` from now on */
    uint64_t bytes;                 /* of state to copy; 0: not known */
};
struct pawl_plan_shared { /* a worker that holds one more chunk */
    struct pawl_worker_at worker;
    uint32_t chunk;
    uint64_t bytes;
};
struct pawl_instruction {
    char op; /* F I W B R S, and C (recompute) O (offloaded) L (load) */
    uint32_t
        chunk; /* of the model; in plans of one chunk a stage the worker's stage, unless it helps another */
    uint32_t home; /* UINT32_MAX for R and S, as the next two may be */
    uint32_t microbatch;
    uint32_t from, to; /* workers (pipeline * stages + stage) of its messages */
    double start, end;
};
struct pawl_plan_worker {
    bool alive;
    uint32_t instruction_count;
    const struct pawl_instruction *instructions; /* of the plan; in order */
    double peak_memory, busy;
};

struct pawl_plan; /* immutable */
/* Errors: ARGUMENT (names the field), STAGE_LOST (names the stage without a live worker), PLAN (memory below
 * what one micro-batch needs), UNSUPPORTED (engine not built in), MEMORY. Blocks as long as its limits say.
 */
pawl_code pawl_plan_make(const struct pawl_plan_request *request, struct pawl_plan **out,
                         struct pawl_error *e);
void pawl_plan_free(struct pawl_plan *plan);
const struct pawl_plan_summary *pawl_plan_summary(const struct pawl_plan *plan);
const char *pawl_plan_warnings(const struct pawl_plan *plan); /* lines; "" if there are none */
/* Valid until the plan is freed. ARGUMENT: no such worker. */
pawl_code pawl_plan_worker(const struct pawl_plan *plan, uint32_t pipeline, uint32_t stage,
                           struct pawl_plan_worker *out, struct pawl_error *e);
const struct pawl_plan_move *pawl_plan_moves(const struct pawl_plan *plan);    /* [move_count] */
const struct pawl_plan_shared *pawl_plan_shares(const struct pawl_plan *plan); /* [shared_count] */

enum pawl_plan_format { /* docs/formats/plan-json.md; csv: as torch.distributed.pipelining reads; ir:
                           docs/formats/plan.md */
                        PAWL_PLAN_TEXT,
                        PAWL_PLAN_JSON,
                        PAWL_PLAN_SVG,
                        PAWL_PLAN_CHROME,
                        PAWL_PLAN_CSV,
                        PAWL_PLAN_IR,
                        PAWL_PLAN_FORMAT_COUNT
};
const char *pawl_plan_format_name(enum pawl_plan_format format); /* "json" */
/* UNSUPPORTED: csv of a plan with re-routed micro-batches, which that format cannot say. IO. */
pawl_code pawl_plan_write(const struct pawl_plan *plan, enum pawl_plan_format format, FILE *out,
                          struct pawl_error *e);

/* ---- simulating failures over time ---- */

struct pawl_sim_request {
    uint32_t pipelines, stages, microbatches;
    const struct pawl_profile
        *profile;                /* null: a built-in one of that many stages; its unit_s must be known */
    const char *const *policies; /* "fault-scaled", "drop-replica", "checkpoint-restart", "oobleck", "bamboo",
                                  * "varuna", "recycle", "pawl"; pawl_sim_policies() */
    uint32_t policy_count;
    /* One of: a trace, rates, a mean time between failures, a share that is dead throughout. */
    const char *trace_path;
    const double *every_s; /* one scenario each: a failure every so many seconds, evenly */
    uint32_t every_count;
    double mtbf_s;            /* of one worker, Poisson */
    const double *dead_share; /* one scenario each; somebody must live; more dead include the fewer */
    uint32_t dead_share_count;
    double hours;    /* simulated; 0: the trace's length, or 24 */
    double repair_s; /* a lost worker is back after so long; 0: not at all; with rates and mtbf alone */
    uint32_t burst;  /* failures come so many at once; 0: 1; likewise */
    /* Saving: */
    double checkpoint_every_s;                    /* 0: each policy's own in the stops file */
    double checkpoint_write_s, checkpoint_load_s; /* 0: likewise */
    const char *stops_path;  /* constants of every policy, over the built-in ones; null: those */
    const char *const *sets; /* "policy.constant=value", over the file */
    uint32_t set_count;
    uint64_t seed;
    void (*progress)(void *context, double share, const char *what);
    void *context;
    const bool *stop;
};
const char *const *pawl_sim_policies(void); /* null-ended, static */
/* The built-in constants as a stops file, with where each comes from. */
pawl_code pawl_sim_stops(FILE *out, struct pawl_error *e);

struct pawl_sim_row { /* one policy in one scenario */
    const char *scenario, *policy;
    double seconds;  /* simulated */
    double goodput;  /* micro-batches that counted, per second */
    double relative; /* ... over the fastest of the same policy: with everybody there, or ever in this row */
    double throughput;   /* per second of running: without stops and lost work */
    double availability; /* share of the time in which it ran */
    double ettr;         /* useful time over all time: 1 - stops, lost work, saving */
    double lost_s, stopped_s, saving_s,
        idle_s; /* worked and lost; stood still; slowed by saving; too few workers */
    uint64_t failures, joins, stops, rollbacks;
    double worker_hours, cost; /* cost per 10^6 micro-batches at the price of the stops file */
    const char *note;          /* "cannot run: ..." or "" */
};
struct pawl_sim_sample { /* the state of a row from `at_s` on */
    double at_s;
    uint32_t alive;
    double rate;      /* micro-batches per second; 0 while stopped */
    uint64_t counted; /* micro-batches so far */
};
struct pawl_sim; /* a finished simulation */
/* Errors: ARGUMENT, FORMAT (names file and line), NOT_FOUND, MEMORY, CANCELLED (stop was set). */
pawl_code pawl_sim_run(const struct pawl_sim_request *request, struct pawl_sim **out, struct pawl_error *e);
void pawl_sim_free(struct pawl_sim *sim);
uint32_t pawl_sim_row_count(const struct pawl_sim *sim);
const struct pawl_sim_row *pawl_sim_rows(const struct pawl_sim *sim);
const struct pawl_sim_sample *pawl_sim_samples(const struct pawl_sim *sim, uint32_t row, uint32_t *count);
const char *pawl_sim_warnings(const struct pawl_sim *sim);
enum pawl_sim_format { PAWL_SIM_TEXT, PAWL_SIM_JSON, PAWL_SIM_SVG, PAWL_SIM_FORMAT_COUNT };
const char *pawl_sim_format_name(enum pawl_sim_format format);
pawl_code pawl_sim_write(const struct pawl_sim *sim, enum pawl_sim_format format, FILE *out,
                         struct pawl_error *e);

#endif
