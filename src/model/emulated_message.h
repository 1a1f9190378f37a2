/* What emulated stages send each other, and how they know that it is the right thing. */
#ifndef MODEL_EMULATED_MESSAGE_H
#define MODEL_EMULATED_MESSAGE_H

#include "model/emulated.h"

enum emulated_kind { EMULATED_ACTIVATION = 1, EMULATED_GRADIENT = 2 };

#define EMULATED_FILL_WORDS 24u

/* Same machine, same program: written and read as it lies in memory. */
struct emulated_message {
    uint32_t magic, kind;
    uint32_t chunk; /* that it is for */
    uint32_t zero;
    uint64_t step, microbatch;
    uint64_t value; /* made from all that came before */
    uint64_t echo;  /* gradient: value of the activation it answers */
    int64_t ready_ns;
    uint64_t fill[EMULATED_FILL_WORDS]; /* follows from value: a torn or mixed message does not fit */
    uint64_t check;                     /* of all before */
};

/* Fills in magic, fill and check. */
void emulated_message_write(const struct emulated_message *m, float *buffer);
/* INTERNAL, naming the first difference from `wanted` in kind, chunk, step, micro-batch, and in echo for a
 * gradient; or damage. */
pawl_code emulated_message_read(const float *buffer, const struct emulated_message *wanted,
                                struct emulated_message *out, struct pawl_error *e);

#endif
