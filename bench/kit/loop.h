/* A training loop without the training: real memory traffic and real arithmetic per iteration, of a length
 * that is calibrated in the run. Each iteration multiplies matrices (forward and backward), then updates the
 * whole state: out of place into a free version, as pawl's own trainer does, or in place after a fence, as
 * PyTorch does. One thread computes; where there is another core, saving has that one. */
#ifndef KIT_LOOP_H
#define KIT_LOOP_H

#include "kit/way.h"

struct loop {
    const struct state *state;
    bool in_place;
    uint32_t current;  /* version of the state */
    float *matrices;   /* three, of LOOP_MATRIX rows and columns */
    float *gradient;   /* small, read over and over */
    uint32_t products; /* per iteration */
};

void loop_open(struct loop *l, const struct state *state, bool in_place);
/* Chooses the number of products so that an iteration takes about `seconds`; it is then measured by those who
 * run it. At least one product: a state too large for its time makes longer iterations, which the result
 * shows. */
void loop_calibrate(struct loop *l, double seconds);
void loop_close(struct loop *l);

struct loop_segment { /* what a stretch of iterations took */
    uint32_t iterations, saves;
    double seconds;
    struct samples step_s;    /* of every iteration */
    struct samples inside;    /* of every iteration: 1 when a save was under way in it, else 0 */
    struct samples blocked_s; /* of every save: in the call, and until the next update could write */
};
/* `warm` iterations that do not count, then `iterations` that do; a save after every `interval` (0: none).
 * Does not wait for the last saves: with a warm-up that fills the pipeline, the stretch is one of many alike.
 */
void loop_run(struct loop *l, struct way *way, uint32_t warm, uint32_t iterations, uint32_t interval,
              struct loop_segment *out);
void loop_segment_close(struct loop_segment *s);

#endif
