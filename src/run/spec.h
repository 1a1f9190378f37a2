/* The specification of a run: a YAML file, with overrides, checked as a whole before any process starts.
 *
 * Two levels: section, key. Every key has a default except run.dir, data.path and the sizes of the model.
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
#include "ir/ir.h"
#include "model/adamw.h"
#include "model/data.h"
#include "model/gpt.h"

#define SPEC_TEXT_MAX 1024 /* longest path or name */

struct spec {
    struct {
        char dir[SPEC_TEXT_MAX]; /* store, logs and report live here */
        uint64_t steps;
        uint64_t seed; /* weights, data order, dropout */
    } run;
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
        enum ir_schedule schedule;
    } parallel;
    struct {
        double lr, lr_min, beta1, beta2, eps, weight_decay, clip_norm; /* clip_norm 0: none */
        uint64_t warmup_steps, decay_steps;                            /* decay_steps 0: constant */
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
    } failure;
};

/* spec_load: parse a file, apply "section.key=value" overrides (the last of a field counts), spec_check.
 * spec_parse: parse a text called `name` in messages; nothing required is missing, spec_check is the
 * caller's. spec_set: one override. On error *out is unspecified, spec_set leaves *spec as it was. */
pawl_code spec_load(const char *path, const char *const *sets, uint32_t set_count, struct spec *out,
                    struct pawl_error *e);
pawl_code spec_parse(const char *text, size_t size, const char *name, struct spec *out, struct pawl_error *e);
pawl_code spec_set(struct spec *spec, const char *assignment, struct pawl_error *e);
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

static inline uint32_t spec_ranks(const struct spec *s) { return s->parallel.pipelines * s->parallel.stages; }
/* Micro-batches of the global batch. */
static inline uint64_t spec_contributions(const struct spec *s) {
    return (uint64_t)s->parallel.pipelines * s->parallel.microbatches;
}
struct gpt_config spec_gpt(const struct spec *s);
struct adamw_config spec_adamw(const struct spec *s);

#endif
