/* Which start of the run this is, and from which step it resumes: agreed by files between ranks that know
 * nothing of each other but a text that names the start.
 *
 * The first rank that comes makes starts/NUMBER, NUMBER being one more than any before: that is the
 * incarnation. Only then does it look which step is complete, and makes starts/NUMBER.resume; the first to do
 * so decides for all, whoever that is. Since the number is taken before looking, and ranks of an earlier
 * start look for higher numbers before they declare a step durable (starts_overtaken), no step becomes
 * durable behind the back of a later start. */
#ifndef SAVER_STARTS_H
#define SAVER_STARTS_H

#include "saver/run.h"

#define STARTS_TOKEN_BYTES 256u

struct start {
    uint64_t incarnation;
    uint64_t step, step_incarnation; /* to resume from; 0: none */
};

/* The text that names this start into out[STARTS_TOKEN_BYTES]: as given, or of the environment (PAWL_START;
 * torchrun; Slurm); for a single rank a fresh one. ARGUMENT. */
pawl_code starts_token(const char *given, uint32_t rank_count, char *out, struct pawl_error *e);

/* Looks which step is newest and complete, and the largest incarnation of what is stored. */
struct starts_look {
    void *context;
    pawl_code (*look)(void *context, struct start *out, struct pawl_error *e);
};
pawl_code starts_join(const struct saver_run *run, const char *token, uint32_t rank_count,
                      const struct starts_look *look, struct start *out, struct pawl_error *e);
/* Has a start other than the one named by `token` ever been made? */
pawl_code starts_any_other(const struct saver_run *run, const char *token, bool *any, struct pawl_error *e);
/* Has a later start begun? Then *later is its number, else 0. */
pawl_code starts_overtaken(const struct saver_run *run, uint64_t incarnation, uint64_t *later,
                           struct pawl_error *e);
/* Removes what earlier starts left; a step of this one is durable. */
void starts_clean(const struct saver_run *run, uint64_t incarnation);

#endif
