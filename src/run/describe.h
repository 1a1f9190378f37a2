/* What an engine's stages consist of, and its optimizer: asked of the engine's program once at every start,
 * kept in run.dir/engine.json (docs/formats/run.md), which whoever needs names and sizes reads.
 *
 * Every number of the text is checked, on either side, as what an engine says in its own process is
 * (model/foreign.h). Two descriptions are of one run when they have the same tensors in the same order, in
 * whatever cut into stages. Thread: caller's. Tested in tests/unit/run_describe_test.c and
 * tests/fuzz/run_describe_fuzz.c. */
#ifndef RUN_DESCRIBE_H
#define RUN_DESCRIBE_H

#include <pawl/engine.h>

#include "base/bytes.h"
#include "model/stage.h"
#include "run/spec.h"

#define DESCRIBE_FILE "engine.json"
/* Text of a description: a million tensors of some 60 bytes. */
#define DESCRIBE_BYTES_MAX (64u << 20)

struct description_stage {
    uint64_t input_bytes, output_bytes;
    struct stage_tensor *tensors;
    uint32_t tensor_count;
};

struct description {
    uint32_t stage_count;
    struct description_stage *stages;
    bool has_optimizer;
    struct pawl_engine_optimizer optimizer;
    uint64_t samples; /* of the data; 0: the engine does not say */
};

void description_close(struct description *d);
/* Of the engine that is registered in this process, which is opened for it, stage after stage, and closed.
 * Errors: USER: what it says; SPEC: there is none. */
pawl_code description_make(const struct spec *spec, struct description *out, struct pawl_error *e);

void description_print(const struct description *d, struct bytes *out); /* JSON, a line */
/* FORMAT: `name` and the field that is wrong. */
pawl_code description_parse(const char *text, size_t size, const char *name, struct description *out,
                            struct pawl_error *e);

/* Ends meet: a stage takes what the one before gives; no name is there twice. USER. */
pawl_code description_check(const struct description *d, struct pawl_error *e);
/* FOREIGN: the first tensor that is not as it was, with both shapes; another number of samples. */
pawl_code description_compare(const struct description *now, const struct description *then,
                              struct pawl_error *e);
/* The same of a number of samples, 0: not said; of a stage that has been opened. */
pawl_code description_compare_samples(const struct description *d, uint64_t samples, struct pawl_error *e);
pawl_code description_compare_stage(const struct description *d, const struct stage *stage,
                                    struct pawl_error *e);

/* run.dir/engine.json. NOT_FOUND: there is none. */
pawl_code description_load(const struct spec *spec, struct description *out, struct pawl_error *e);
pawl_code description_keep(const struct spec *spec, const struct description *d, struct pawl_error *e);

/* Body of `PROGRAM describe FD`: reads the job, answers with the description or with what went wrong. Returns
 * the exit code. */
int describe_main(int fd);

#endif
