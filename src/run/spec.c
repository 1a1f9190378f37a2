/* The table of fields of a specification, and how a spec comes to be: defaults, file, overrides, check.
 *
 * The table is the only place that knows names, types, defaults, ranges, identity and help. Values are read
 * and printed in spec_value.c, YAML is walked in spec_yaml.c, rules that span fields are in spec_check.c, the
 * printed forms in spec_print.c. What a coordinator makes of it is in spec_coord.c. Fails with SPEC (the text
 * is wrong) or what reading the file gives. Tested in tests/unit/run_spec_test.c and
 * tests/fuzz/run_spec_fuzz.c. */
#include "run/spec.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ckpt/ckpt.h"
#include "conf/conf.h"
#include "ir/ir.h"
#include "run/spec_field.h"

/* Larger files are taken for something else than a spec. */
#define SPEC_FILE_BYTES_MAX (1u << 20)
/* Steps that fit JSON readers which hold numbers as doubles. */
#define SPEC_STEPS_MAX ((uint64_t)1 << 53)
/* Workers beat every 0.1 s: two beats may be late. */
#define SPEC_TIMEOUT_MIN_S 0.3
/* 60 of the longest timeouts fit. */
#define SPEC_LIMIT_MAX_S 1e7

static_assert(offsetof(struct spec_record, spec) == 0, "a struct spec is the head of a record");
static_assert(sizeof(enum data_format) == sizeof(uint32_t), "choices are stored as 32 bits");
static_assert(sizeof(enum pawl_policy) == sizeof(uint32_t), "choices are stored as 32 bits");
static_assert(sizeof(enum gradsum_kind) == sizeof(uint32_t), "choices are stored as 32 bits");
static_assert(sizeof(enum spec_engine) == sizeof(uint32_t), "choices are stored as 32 bits");

#define AT(member)       offsetof(struct spec_record, member), sizeof(((struct spec_record *)0)->member)
#define HEAD(s, k, type) .section = #s, .key = #k, type
#define INPUT            SPEC_INPUT
#define BOTH             (SPEC_INPUT | SPEC_IDENTITY)
#define GPT              SPEC_GPT
#define EMULATED         SPEC_EMULATED
#define TORCH            SPEC_TORCH

#define WHOLE(type, s, k, initial, low, high, uses, help)                                                    \
    { #s, #k, type, AT(spec.s.k), initial, low, high, 0, 0, uses, help }
#define REAL(s, k, initial, min, max, uses, help)                                                            \
    { #s, #k, SPEC_F64, AT(spec.s.k), initial, 0, 0, min, max, uses, help }
#define OTHER(type, s, k, initial, uses, help)                                                               \
    { #s, #k, type, AT(spec.s.k), initial, 0, 0, 0, 0, uses, help }

const struct spec_section spec_sections[] = {
    {"run", "The run as a whole."},
    {"model", "The shape of the GPT, and what it starts from."},
    {"data", "What the GPT learns from."},
    {"emulated", "The emulated device: takes the time that a profile says, computes next to nothing."},
    {"torch", "Stages computed by code of your own: PyTorch modules, or another program's "
              "([engines.md](engines.md))."},
    {"parallel", "How the work is laid out: pipelines x stages worker processes."},
    {"optimizer", "AdamW and its learning rate."},
    {"save", "When and how much of the state is made durable."},
    {"net", "How workers talk."},
    {"failure", "When a worker counts as lost, and what is done about it."},
};
const uint32_t spec_section_count = sizeof spec_sections / sizeof spec_sections[0];

/* Upper ends: those of ir/ir.h where the layout is bound by it; float32 decides for the optimizer (below
 * 0.999999 a beta stays below 1 in float32); the rest only keep slips of the pen out. */
const struct spec_field spec_fields[] = {
    OTHER(SPEC_TEXT, run, dir, NULL, INPUT,
          "Folder of the run: its store, logs and report. The same folder resumes the run."),
    WHOLE(SPEC_U64, run, steps, "1000", 1, SPEC_STEPS_MAX, INPUT,
          "Optimizer steps of the whole run, earlier calls included."),
    WHOLE(SPEC_U64, run, seed, "1", 0, UINT64_MAX, BOTH, "Decides initial weights, data order and dropout."),
    OTHER(SPEC_ENGINE, run, engine, "gpt", BOTH,
          "What computes: a GPT in C, the emulated device, or code of your own."),

    WHOLE(SPEC_U32, model, layers, NULL, 1, 100000, BOTH | GPT, "Transformer blocks."),
    WHOLE(SPEC_U32, model, heads, NULL, 1, 65536, BOTH | GPT, "Attention heads; divide the width."),
    WHOLE(SPEC_U32, model, width, NULL, 1, 1048576, BOTH | GPT, "Size of the residual stream."),
    WHOLE(SPEC_U32, model, context, NULL, 1, 1048576, BOTH | GPT, "Tokens a sequence has."),
    WHOLE(SPEC_U32, model, vocabulary, NULL, 2, INT32_MAX, BOTH | GPT, "Number of tokens; bytes need 256."),
    OTHER(SPEC_BOOL, model, tied, "true", BOTH | GPT, "Whether the head shares the token embedding."),
    REAL(model, dropout, "0", 0, 0.99, BOTH | GPT, "Share dropped at embedding, attention and residual."),
    OTHER(SPEC_TEXT, model, weights, "", BOTH | GPT,
          "Start from these GPT-2 weights (a safetensors file, or a folder that holds one); empty: random."),

    OTHER(SPEC_TEXT, data, path, NULL, INPUT | GPT,
          "The file to learn from; it may move, its content may not change."),
    OTHER(SPEC_FORMAT, data, format, "bytes", BOTH | GPT,
          "Plain bytes, or tokens of 16 or 32 bits as nanoGPT and llm.c write them."),
    {"data", "digest", SPEC_TEXT, AT(data_digest), NULL, 0, 0, 0, 0, SPEC_IDENTITY | GPT,
     "the content of data.path (digest)"},

    OTHER(SPEC_TEXT, emulated, profile, NULL, INPUT | EMULATED,
          "How long everything takes: a file (docs/formats/profile.md) with parallel.stages stages."),
    REAL(emulated, unit_s, "0", 0, 1e6, INPUT | EMULATED,
         "Seconds of a unit of the profile; 0: as the profile says, and no time at all if it does not."),
    WHOLE(SPEC_U32, emulated, parameters, "1024", 1, 1u << 30, BOTH | EMULATED,
          "Numbers a stage has for parameters."),
    {"emulated", "chunks", SPEC_U32, AT(chunks), NULL, 1, IR_STAGES_MAX, 0, 0, SPEC_IDENTITY | EMULATED,
     "parallel.stages of an emulated run"},

    OTHER(SPEC_TEXT, torch, module, NULL, INPUT | TORCH,
          "The code: a Python file, or a module by its dotted name. It may be edited between starts, as long "
          "as its parameters and its optimizer stay."),
    OTHER(SPEC_TEXT, torch, python, "", INPUT | TORCH,
          "The interpreter of the workers; empty: the environment's PAWL_PYTHON, else python3."),
    OTHER(SPEC_TEXT, torch, options, "", BOTH | TORCH, "JSON that the code is given; empty: none."),
    WHOLE(SPEC_U32, torch, threads, "1", 1, 1024, BOTH | TORCH,
          "Threads of one operation: the order of its sums, hence the bits, may depend on it."),

    WHOLE(SPEC_U32, parallel, pipelines, "1", 1, IR_PIPELINES_MAX, INPUT,
          "Copies of the model that share the batch; all but one may be lost."),
    WHOLE(SPEC_U32, parallel, stages, "1", 1, IR_STAGES_MAX, INPUT, "Parts the layers are cut into."),
    WHOLE(SPEC_U32, parallel, microbatches, "1", 1, IR_MICROBATCHES_MAX, INPUT,
          "Micro-batches of each pipeline in one step."),
    WHOLE(SPEC_U32, parallel, batch, "1", 1, 65536, BOTH, "Sequences (samples) in a micro-batch."),
    OTHER(SPEC_SCHEDULE, parallel, schedule, "pawl", INPUT,
          "Who does what in which order: a policy of `pawl plan`. The result does not depend on it."),
    OTHER(SPEC_BOOL, parallel, barrier, "false", INPUT,
          "Wait at every step for the decision of all, as synchronous optimizers do."),
    WHOLE(SPEC_U32, parallel, memory, "0", 0, IR_PIPELINES_MAX *IR_MICROBATCHES_MAX, INPUT,
          "Micro-batches that a worker may store at a time; 0: no limit. Where the schedule needs more "
          "after a failure, recycle plans."),
    OTHER(SPEC_TEXT, parallel, profile, "", INPUT,
          "Costs to plan with, a file; empty: emulated.profile, for gpt alike until they are measured."),
    OTHER(
        SPEC_BOOL, parallel, replan, "true", INPUT,
        "Go over to a better plan while training, as speeds are measured and change; false: the same workers "
        "keep their plan."),
    WHOLE(SPEC_U32, parallel, pipelines_max, "0", 0, IR_PIPELINES_MAX, INPUT,
          "Pipelines there may be after workers joined; 0: twice parallel.pipelines."),
    {"parallel", "global_microbatches", SPEC_U64, AT(global_microbatches), NULL, 1,
     (uint64_t)IR_PIPELINES_MAX *IR_MICROBATCHES_MAX, 0, 0, SPEC_IDENTITY,
     "parallel.pipelines times parallel.microbatches"},

    REAL(optimizer, lr, "3e-4", 1e-12, 1e3, BOTH, "Learning rate after the warm-up."),
    REAL(optimizer, lr_min, "0", 0, 1e3, BOTH, "Learning rate at the end of the decay."),
    REAL(optimizer, beta1, "0.9", 0, 0.999999, BOTH, "Decay of the first moment."),
    REAL(optimizer, beta2, "0.95", 0, 0.999999, BOTH, "Decay of the second moment."),
    REAL(optimizer, eps, "1e-8", 1e-30, 1, BOTH, "Added to the root of the second moment."),
    REAL(optimizer, weight_decay, "0.1", 0, 1e3, BOTH, "Decoupled weight decay."),
    REAL(optimizer, clip_norm, "1", 0, 1e30, BOTH, "Largest global norm of the gradient; 0: no clipping."),
    WHOLE(SPEC_U64, optimizer, warmup_steps, "0", 0, SPEC_STEPS_MAX, BOTH,
          "Steps in which the learning rate grows from 0."),
    WHOLE(SPEC_U64, optimizer, decay_steps, "0", 0, SPEC_STEPS_MAX, BOTH,
          "Step at which the cosine decay has reached lr_min; 0: constant after the warm-up."),
    OTHER(SPEC_SUMS, optimizer, sums, "exact", BOTH,
          "Gradients are summed exactly, or in float: then bits depend on the plan (parallel.replan), and on "
          "failures."),

    WHOLE(SPEC_U64, save, every, "1", 0, SPEC_STEPS_MAX, INPUT, "Steps between saves; 0: only at the end."),
    WHOLE(SPEC_U32, save, in_flight, "2", 1, CKPT_IN_FLIGHT_MAX, INPUT,
          "Saves under way at once; each holds one more version of the state in memory."),
    WHOLE(SPEC_U32, save, keep, "2", 1, CKPT_KEEP_MAX, INPUT, "Durable steps kept."),
    WHOLE(SPEC_U32, save, retries, "5", 0, 1000, INPUT,
          "Further tries when the last save fails, after 0.1 s, 0.2 s, 0.4 s, ... 5 s."),
    OTHER(SPEC_TEXT, save, export_dir, "", INPUT,
          "Write the final weights here in the form that transformers opens; empty: no."),

    OTHER(SPEC_TEXT, net, transport, "", INPUT,
          "UCX transports, as in UCX_TLS, but for shared memory; empty: tcp,self."),

    REAL(failure, timeout_s, "10", SPEC_TIMEOUT_MIN_S, 86400, INPUT,
         "Seconds of silence after which a worker is lost; the other limits follow from it."),
    REAL(failure, stall_s, "0", 0, SPEC_LIMIT_MAX_S, INPUT,
         "A worker that beats but gets nowhere in a step is lost after this; 0: 12 times timeout_s."),
    REAL(failure, load_s, "0", 0, SPEC_LIMIT_MAX_S, INPUT,
         "The same while it loads or fetches its state; 0: 60 times timeout_s."),
    REAL(failure, save_s, "0", 0, SPEC_LIMIT_MAX_S, INPUT,
         "The same while it waits for a save; a part that takes longer failed; 0: 60 times timeout_s."),
    REAL(failure, compile_s, "0", 0, SPEC_LIMIT_MAX_S, INPUT,
         "The same while it starts up or prepares to compute; 0: 60 times timeout_s."),
    REAL(failure, eval_s, "0", 0, SPEC_LIMIT_MAX_S, INPUT,
         "The same while it evaluates, which no engine does; 0: 60 times timeout_s."),
    REAL(failure, grace_s, "30", 0, 86400, INPUT,
         "Seconds from a notice (SIGTERM, drain) until the process must be gone."),
    WHOLE(SPEC_U32, failure, respawn, "0", 0, 1000000, INPUT, "Times that a lost worker is started again."),
    REAL(failure, wait_s, "60", 0, SPEC_LIMIT_MAX_S, INPUT,
         "Seconds to wait for workers when too few are left to go on."),
    WHOLE(SPEC_U32, failure, restarts, "3", 0, 1000000, INPUT,
          "Returns to a durable step without a newer one in between, before the run gives up."),
};
const uint32_t spec_field_count = sizeof spec_fields / sizeof spec_fields[0];
#define FIELD_COUNT (sizeof spec_fields / sizeof spec_fields[0])

void spec_defaults(struct spec_record *out) {
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if (field->initial == NULL) continue;
        struct spec_scalar scalar = {field->initial, strlen(field->initial), true};
        pawl_code code = spec_field_read(field, &scalar, out, NULL);
        assert(code == PAWL_OK);
        (void)code;
    }
}

/* What the visitor of a spec file carries. */
struct filling {
    struct spec_record record;
    bool given[FIELD_COUNT];
    bool section_given[sizeof spec_sections / sizeof spec_sections[0]];
};

static pawl_code enter_section(struct filling *f, const char *section, struct pawl_error *e) {
    pawl_code code = spec_section_find(section, e);
    if (code != PAWL_OK) return code;
    uint32_t i = 0;
    while (strcmp(spec_sections[i].name, section) != 0) i++;
    if (f->section_given[i])
        return error_set(e, PAWL_SPEC, 0, "section %s is given twice: join the two", section);
    f->section_given[i] = true;
    return PAWL_OK;
}

static pawl_code fill(void *context, const char *section, const char *key, const struct spec_scalar *value,
                      struct pawl_error *e) {
    struct filling *f = context;
    if (key == NULL) return enter_section(f, section, e);
    const struct spec_field *field;
    pawl_code code = spec_field_find(section, key, SPEC_INPUT, &field, e);
    if (code != PAWL_OK) return code;
    bool *given = &f->given[field - spec_fields];
    if (*given) return error_set(e, PAWL_SPEC, 0, "%s.%s is given twice: remove one", section, key);
    *given = true;
    return spec_field_read(field, value, &f->record, e);
}

/* The text over the defaults, without asking whether anything is missing: overrides may still give it. */
static pawl_code spec_read(const char *text, size_t size, const char *name, struct spec *out,
                           struct pawl_error *e) {
    struct filling *f = calloc(1, sizeof *f);
    if (f == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    spec_defaults(&f->record);
    pawl_code code = spec_yaml_walk(text, size, name, fill, f, e);
    if (code == PAWL_OK) *out = f->record.spec;
    free(f);
    return code;
}

static pawl_code spec_require(const struct spec *spec, const char *name, struct pawl_error *e) {
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & SPEC_INPUT) == 0 || !spec_field_applies(field, spec)) continue;
        if (!spec_field_missing(field, spec)) continue;
        char rule[160];
        spec_field_rule(field, rule, sizeof rule);
        return error_set(e, PAWL_SPEC, 0, "%s%s%s.%s is missing: give %s", name, *name == 0 ? "" : ": ",
                         field->section, field->key, rule);
    }
    return PAWL_OK;
}

pawl_code spec_parse(const char *text, size_t size, const char *name, struct spec *out,
                     struct pawl_error *e) {
    pawl_code code = spec_read(text, size, name, out, e);
    return code == PAWL_OK ? spec_require(out, name, e) : code;
}

pawl_code spec_set(struct spec *spec, const char *assignment, struct pawl_error *e) {
    const char *equals = strchr(assignment, '=');
    const char *dot = equals == NULL ? NULL : memchr(assignment, '.', (size_t)(equals - assignment));
    char shown[96], section[64], key[64];
    conf_quote(assignment, strlen(assignment), shown, sizeof shown);
    if (dot == NULL)
        return error_set(e, PAWL_SPEC, 0, "override %s: write section.key=value, as in run.steps=200", shown);
    snprintf(section, sizeof section, "%.*s", (int)(dot - assignment), assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - dot - 1), dot + 1);
    const struct spec_field *field;
    struct pawl_error inner;
    pawl_code code = spec_section_find(section, &inner);
    if (code == PAWL_OK) code = spec_field_find(section, key, SPEC_INPUT, &field, &inner);
    struct spec_scalar value = {equals + 1, strlen(equals + 1), true};
    if (code == PAWL_OK) code = spec_field_read(field, &value, spec, &inner);
    return code == PAWL_OK ? PAWL_OK : error_set(e, code, 0, "override %s: %s", shown, inner.text);
}

pawl_code spec_load(const char *path, const char *const *sets, uint32_t set_count, struct spec *out,
                    struct pawl_error *e) {
    struct bytes text = {0};
    struct pawl_error inner;
    pawl_code code = file_read(path, SPEC_FILE_BYTES_MAX, "spec", &text, e);
    if (code == PAWL_ARGUMENT) /* too long */
        code = error_set(e, PAWL_SPEC, 0, "%s has more than %u bytes: is it the spec?", path,
                         SPEC_FILE_BYTES_MAX);
    if (code == PAWL_OK) code = spec_read((const char *)text.data, text.size, path, out, e);
    bytes_close(&text);
    for (uint32_t i = 0; code == PAWL_OK && i < set_count; i++) code = spec_set(out, sets[i], e);
    if (code != PAWL_OK) return code;
    code = spec_check(out, &inner);
    return code == PAWL_OK ? PAWL_OK : error_set(e, code, 0, "%s: %s", path, inner.text);
}

struct gpt_config spec_gpt(const struct spec *s) {
    return (struct gpt_config){
        .layers = s->model.layers,
        .heads = s->model.heads,
        .width = s->model.width,
        .context = s->model.context,
        .vocabulary = s->model.vocabulary,
        .batch = s->parallel.batch,
        .tied = s->model.tied,
        .dropout = (float)s->model.dropout,
        .seed = s->run.seed,
    };
}

/* The name, the value in a spec, the value of an engine. */
static pawl_code take_value(struct spec *spec, const char *key, double value, struct pawl_error *e) {
    const struct spec_field *field;
    pawl_code code = spec_field_find("optimizer", key, SPEC_INPUT, &field, e);
    if (code != PAWL_OK) return code;
    double now, usual = strtod(field->initial, NULL);
    char *at = (char *)spec + field->offset;
    memcpy(&now, at, sizeof now);
    if (!(value >= field->min && value <= field->max))
        return error_set(e, PAWL_SPEC, 0,
                         "the optimizer of torch.module has %s %g: wanted a number from %g to %g", key, value,
                         field->min, field->max);
    bool is_usual = !(now < usual) && !(now > usual), is_equal = !(now < value) && !(now > value);
    if (!is_usual && !is_equal)
        return error_set(e, PAWL_SPEC, 0,
                         "optimizer.%s is %g, but %g in the optimizer of torch.module: leave it out here, or "
                         "give both the same value",
                         key, now, value);
    memcpy(at, &value, sizeof value);
    return PAWL_OK;
}

pawl_code spec_take_optimizer(struct spec *spec, const struct pawl_engine_optimizer *o,
                              struct pawl_error *e) {
    pawl_code code = take_value(spec, "lr", o->lr, e);
    if (code == PAWL_OK) code = take_value(spec, "beta1", o->beta1, e);
    if (code == PAWL_OK) code = take_value(spec, "beta2", o->beta2, e);
    if (code == PAWL_OK) code = take_value(spec, "eps", o->eps, e);
    if (code == PAWL_OK) code = take_value(spec, "weight_decay", o->weight_decay, e);
    return code == PAWL_OK ? spec_check_optimizer(spec, e) : code;
}

struct adamw_config spec_adamw(const struct spec *s) {
    return (struct adamw_config){
        .lr = (float)s->optimizer.lr,
        .beta1 = (float)s->optimizer.beta1,
        .beta2 = (float)s->optimizer.beta2,
        .eps = (float)s->optimizer.eps,
        .weight_decay = (float)s->optimizer.weight_decay,
        .warmup_steps = s->optimizer.warmup_steps,
        .decay_steps = s->optimizer.decay_steps,
        .lr_min = (float)s->optimizer.lr_min,
    };
}
