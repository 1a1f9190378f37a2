/* The specification of a run: a YAML file, with overrides, checked as a whole before any process starts.
 *
 * Two levels: section, key. Every key has a default except run.dir and what the engine needs: data.path and
 * the sizes of the model for gpt, emulated.profile for emulated, torch.module for torch. Keys of the other
 * engines are ignored.
 * Unknown sections and keys, duplicates, wrong types, values out of range and sets that do not fit
 * together (stages > layers, unreadable text, ...) are SPEC errors of one line that name the field
 * ("parallel.stages"), what it says, and the fix. Relative paths are relative to the working folder.
 * Messages from a file begin with file:line:column, those of spec_check with the field.
 * The table of fields in spec.c is the only place that knows names, types, defaults, ranges and help; the
 * parser, the printer, `--set`, the identity check and docs/spec.md follow from it. */
#ifndef RUN_SPEC_H
#define RUN_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "coord/coord.h"
#include "model/adamw.h"
#include "model/data.h"
#include "model/gpt.h"
#include <pawl/engine.h>
#include <pawl/plan.h>

#define SPEC_TEXT_MAX 1024 /* longest path or name */

#define SPEC_OPTIONS_MAX 4096 /* of torch.options */

enum spec_engine { SPEC_ENGINE_GPT, SPEC_ENGINE_EMULATED, SPEC_ENGINE_TORCH, SPEC_ENGINE_COUNT };
const char *spec_engine_name(enum spec_engine engine); /* "gpt" */

struct spec {
    struct {
        char dir[SPEC_TEXT_MAX]; /* store, logs and report live here */
        uint64_t steps;
        uint64_t seed; /* weights, data order, dropout */
        enum spec_engine engine;
    } run;
    struct {
        char profile[SPEC_TEXT_MAX]; /* how long what takes */
        double unit_s;       /* seconds of the profile's unit; 0: as it says, and nothing if it does not */
        uint32_t parameters; /* floats of a chunk */
    } emulated;
    struct {
        char module[SPEC_TEXT_MAX]; /* a file, or a dotted name */
        char python[SPEC_TEXT_MAX]; /* the interpreter; empty: PAWL_PYTHON, else python3 */
        char options[SPEC_OPTIONS_MAX];
        uint32_t threads; /* of one operation */
    } torch;
    struct {
        uint32_t layers, heads, width, context, vocabulary;
        bool tied;
        double dropout;
        char weights[SPEC_TEXT_MAX]; /* start from these (safetensors); empty: random */
    } model;
    struct {
        char path[SPEC_TEXT_MAX];
        enum data_format format;
    } data;
    struct {
        uint32_t pipelines, stages, microbatches; /* micro-batches per pipeline and iteration */
        uint32_t batch;                           /* sequences per micro-batch */
        enum pawl_policy schedule;
        bool barrier;                /* never step before the decision */
        uint32_t memory;             /* micro-batches a worker may store; 0: no limit */
        char profile[SPEC_TEXT_MAX]; /* planner's costs; empty: emulated.profile, else measured */
        bool replan;                 /* change the plan while it goes when a better one is found */
        uint32_t pipelines_max;      /* 0: twice the pipelines: spec_pipelines_max */
    } parallel;
    struct {
        double lr, lr_min, beta1, beta2, eps, weight_decay, clip_norm; /* clip_norm 0: none */
        uint64_t warmup_steps, decay_steps;                            /* decay_steps 0: constant */
        enum gradsum_kind sums;                                        /* how gradients are summed */
    } optimizer;
    struct {
        uint64_t every;                 /* steps between saves; 0: only at the end */
        uint32_t in_flight;             /* saves at once = extra version buffers */
        uint32_t keep;                  /* durable steps kept */
        uint32_t retries;               /* of the last save */
        char export_dir[SPEC_TEXT_MAX]; /* write the final weights here for transformers; empty: no */
    } save;
    struct {
        char transport[64]; /* UCX_TLS list; empty: the default */
    } net;
    struct {
        double timeout_s; /* the one knob: silence after which a worker is dead; others derive from it */
        double stall_s, load_s, save_s, compile_s, eval_s; /* 0: derived (spec_stall_ns) */
        double grace_s;                                    /* from a notice to the end of the process */
        uint32_t respawn;                                  /* times a dead worker is started again */
        double wait_s;                                     /* for workers when there are too few */
        uint32_t restarts; /* returns to a durable step without a newer one in between */
    } failure;
};

/* spec_load: parse a file, apply "section.key=value" overrides (the last of a field counts), spec_check.
 * spec_parse: parse a text called `name` in messages; nothing required is missing, spec_check is the
 * caller's. spec_set: one override. On error *out is unspecified, spec_set leaves *spec as it was. */
pawl_code spec_load(const char *path, const char *const *sets, uint32_t set_count, struct spec *out,
                    struct pawl_error *e);
pawl_code spec_parse(const char *text, size_t size, const char *name, struct spec *out, struct pawl_error *e);
pawl_code spec_set(struct spec *spec, const char *assignment, struct pawl_error *e);
/* The optimizer of an engine goes before the spec's: its values are put into *spec. SPEC, naming both: the
 * spec has another one that is not the default; or a value is out of range. */
pawl_code spec_take_optimizer(struct spec *spec, const struct pawl_engine_optimizer *o, struct pawl_error *e);
/* Every rule that spans fields, and that the text and start weights can be read. */
pawl_code spec_check(const struct spec *spec, struct pawl_error *e);

/* The whole spec as YAML that parses back to the same values. */
void spec_print(const struct spec *spec, struct bytes *out);
/* A YAML of the fields a resume must not change (sizes, seed, data, optimizer, ...), and the comparison of
 * such a text with a spec: FOREIGN, naming the first field that differs with both values and what to do. The
 * data counts by its format and content, the layout by its global number of micro-batches, so that a file may
 * move and the layout may change. Both open data.path; where that fails, out->failed is set by the first and
 * the cause returned by the second. FORMAT when the text is no identity. */
void spec_identity(const struct spec *spec, struct bytes *out);
pawl_code spec_identity_check(const struct spec *spec, const char *text, size_t size, struct pawl_error *e);
/* docs/spec.md: the table of fields, as `pawl train --spec-help` prints it. */
void spec_help(struct bytes *out);

/* Workers at the start, and the most there can ever be: spec_pipelines_max pipelines of them. */
static inline uint32_t spec_ranks(const struct spec *s) { return s->parallel.pipelines * s->parallel.stages; }
uint32_t spec_pipelines_max(const struct spec *s);
static inline uint32_t spec_capacity(const struct spec *s) {
    return spec_pipelines_max(s) * s->parallel.stages;
}
/* Micro-batches of the global batch. */
static inline uint64_t spec_contributions(const struct spec *s) {
    return (uint64_t)s->parallel.pipelines * s->parallel.microbatches;
}
/* The profile plans begin with: parallel.profile, else that of the emulated device; "": none. */
const char *spec_plan_profile(const struct spec *s);
/* How long a busy worker may make no progress in a phase, given or derived; no phase has less than a step. */
int64_t spec_stall_ns(const struct spec *s, enum coord_work work);
/* Every limit and count of the coordinator that follows from the spec; not what recovery knows. */
void spec_coord_config(const struct spec *s, struct coord_config *out);
/* Tokens of a step; a sequence of an engine without tokens counts as one. */
static inline uint64_t spec_tokens(const struct spec *s) {
    return spec_contributions(s) * s->parallel.batch *
           (s->run.engine == SPEC_ENGINE_GPT ? s->model.context : 1);
}
struct gpt_config spec_gpt(const struct spec *s);
struct adamw_config spec_adamw(const struct spec *s);

#endif
