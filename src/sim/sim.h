/* How long a plan takes: discrete events over the lists that workers execute.
 *
 * A worker starts an instruction as soon as the one before it has ended and its input is there; sends do not
 * block. Time is counted in ticks, whole numbers, so that results are exact and the same everywhere. A
 * copy to or from the host runs beside the computation, one at a time in each direction and worker.
 *
 * Barrier: an iteration begins everywhere when the one before has ended everywhere; the period is the
 * makespan. Staggered: iteration i+1 is iteration i, `period` later; a chunk's first forward of an iteration
 * waits for the chunk's last step. The period reported is the largest, over stages, of last end minus first
 * start among the live workers of that stage, and over chunks among what was executed for that chunk
 * anywhere: with it iterations can follow each other for ever (facts 2.3). sim_run finds the times that make
 * it least for the given lists: a system of difference constraints whose least period is its largest cycle
 * ratio.
 *
 * Pure: no clock, no I/O, no threads. Tested in tests/unit/sim_*. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "ir/ir.h"

/* A profile's unit of time is this many ticks. */
#define SIM_TICKS 1000000u
/* Sums of times stay below this; costs that could exceed it are refused. */
#define SIM_TICKS_MAX ((uint64_t)1 << 60)

struct sim_chunk {                             /* ticks; bytes or micro-batches (as the limits) */
    uint64_t forward, input_grad, weight_grad; /* B takes the last two together, C as long as the forward */
    uint64_t reduce;                           /* R, once the last holder is there */
    uint64_t step;                             /* S */
    uint64_t send_forward;                     /* to the next chunk's host, where that is another worker */
    uint64_t send_backward;                    /* to the previous chunk's host, likewise */
    uint64_t offload, load;                    /* copies of full - kept to the host and back */
    uint64_t full, kept, after_input; /* stored for a micro-batch: see ir.h; kept = full: cannot be dropped */
    uint64_t state;                   /* weights and optimizer, of a holder (bytes; 0: not known) */
};

struct sim_costs {
    uint32_t pipelines, stages, chunks;
    struct sim_chunk *chunk; /* [chunks] */
    double *slow;            /* [pipelines * stages] factor on compute, > 0; null: all 1 */
    uint64_t *limit;         /* [pipelines * stages] of what is stored for micro-batches; null: none */
};

/* Ticks of an instruction on a worker; R without its wait, O and L as the copy. At least 1 where the chunk's
 * cost is not 0. B is the sum of I and W there. `slow` is for computing: F I W B C S. */
uint64_t sim_duration(const struct sim_costs *costs, uint32_t worker, uint32_t chunk, enum ir_op op);
/* Sizes agree, chunk costs sum up below SIM_TICKS_MAX for `microbatches` per pipeline. ARGUMENT names the
 * chunk and the field. */
pawl_code sim_costs_check(const struct sim_costs *costs, uint32_t microbatches, struct pawl_error *e);

struct sim_noise { /* to ask how a plan bears reality; all zero: none */
    uint64_t seed;
    double jitter;           /* standard deviation of every compute time's factor (lognormal), e.g. 0.05 */
    const double *straggler; /* [workers] one factor more, or null */
};

struct sim_result {
    uint64_t period;
    uint64_t makespan;     /* of one iteration alone, staggered or not */
    uint64_t *start, *end; /* [instructions], worker by worker in list order, see first; of R without its
                            * wait, of O and L the copy: O's begins before the list comes to it */
    uint64_t *first;       /* [workers + 1] index of a worker's first instruction in start and end */
    uint64_t *peak;        /* [workers] most that was stored, see ir_memory */
    uint64_t *busy;        /* [workers] ticks of computing: F I W B C S */
};

/* The plan must have passed ir_check, the costs sim_costs_check. `staggered` false: a barrier. `noise` may be
 * null. The first to start starts at 0. Errors: MEMORY, ARGUMENT, PLAN (lists that wait for each other).
 * O(instructions) and a few passes more. */
pawl_code sim_run(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                  const struct sim_noise *noise, struct sim_result *out, struct pawl_error *e);
void sim_result_close(struct sim_result *r); /* accepts what is empty */

/* `iterations` in a row with fresh noise in each, each worker going on as soon as it may, as the real
 * executor does: ends[i] is when the last step of iteration i ended. Without noise the mean distance tends to
 * the period; to less where workers of a stage, or holders of a chunk, end their last steps at different
 * times, for each of them waits for its own list only. */
pawl_code sim_iterations(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                         const struct sim_noise *noise, uint32_t iterations, uint64_t *ends,
                         struct pawl_error *e);

/* The second opinion: do the given times respect durations, order, messages, one thing at a time, copies, R
 * as a barrier, and the period? Knows nothing of sim_run. PLAN names worker, position and rule. */
pawl_code sim_check(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                    const struct sim_result *times, struct pawl_error *e);

#endif
