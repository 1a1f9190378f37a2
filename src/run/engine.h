/* What a run computes, behind one face: the GPT in C, the emulated device, or an engine that the program of
 * the worker has registered (engine torch).
 *
 * Every stage it makes has a face that can make it slow (run/engine_slow.h), so it is a stage of its own:
 * only its functions lead to the one behind. An engine is opened once a process from the spec (data, shapes,
 * profile); it makes a stage for any chunk, as often as one is to be held. Threads: one. Tested in
 * tests/unit/run_engine_test.c. */
#ifndef RUN_ENGINE_H
#define RUN_ENGINE_H

#include "model/adamw.h"
#include "model/stage.h"
#include "run/spec.h"

struct engine;
struct foreign;

/* pawl_engine_register; null takes it back. One a process. */
void engine_register(const struct pawl_engine *engine);
/* The registered engine, opened for the spec's job; foreign_close. SPEC: there is none. */
pawl_code engine_foreign(const struct spec *spec, struct foreign **out, struct pawl_error *e);

/* `rank` is only for an emulated worker that is slower than others by the profile. Errors: as the spec's. */
pawl_code engine_open(const struct spec *spec, uint32_t rank, struct engine **out, struct pawl_error *e);
void engine_close(struct engine *g); /* after its stages; accepts null */
/* ops->close frees the stage. */
pawl_code engine_stage(struct engine *g, uint32_t chunk, struct stage **out, struct pawl_error *e);
/* Version 0: at random, or from the weights the spec names. */
pawl_code engine_init(struct engine *g, struct stage *stage, struct version *out, struct pawl_error *e);
/* Fault injection: from now on everything computed takes `factor` times as long (by waiting); 1: as it is. */
void engine_slow(struct engine *g, double factor);
/* All tensors of the whole model in canonical order, for digests: names, shapes; to be freed with
 * engine_tensors_free. Those of an engine of the user's are in run.dir/engine.json (run/describe.h). */
pawl_code engine_tensors(const struct spec *spec, struct stage_tensor **out, uint32_t *count,
                         struct pawl_error *e);
void engine_tensors_free(struct stage_tensor *tensors, uint32_t count);

#endif
