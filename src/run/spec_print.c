/* A spec in words: as YAML, as the identity of a run with its comparison, as the help text.
 *
 * The identity is a YAML of the fields that decide the bits of the weights. It is written when a run begins
 * and compared at each resume, so that a run is never continued as another one. A field that a later version
 * adds is absent from older identities and then stands for its default. Tested in
 * tests/unit/run_spec_follow_test.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/spec_field.h"

/* What has not been given is not printed, so that the text reads back. */
static void print_fields(const void *base, unsigned uses, struct bytes *out) {
    const char *section = "";
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & uses) == 0 || spec_field_missing(field, base)) continue;
        if (uses == SPEC_IDENTITY && !spec_field_applies(field, base)) continue;
        if (strcmp(section, field->section) != 0) bytes_printf(out, "%s:\n", field->section);
        section = field->section;
        bytes_printf(out, "  %s: ", field->key);
        spec_field_print(field, base, out);
        bytes_put_u8(out, '\n');
    }
}

void spec_print(const struct spec *spec, struct bytes *out) { print_fields(spec, SPEC_INPUT, out); }

/* --- identity --- */

/* The spec with its derived fields; reads the head and tail of the data file, if there is one. */
static pawl_code derive(const struct spec *spec, struct spec_record *out, struct pawl_error *e) {
    struct data *data = NULL;
    out->spec = *spec;
    out->global_microbatches = spec_contributions(spec);
    out->chunks = spec->parallel.stages;
    if (spec->run.engine != SPEC_ENGINE_GPT) return PAWL_OK;
    pawl_code code = data_open(spec->data.path, spec->data.format, spec->model.vocabulary,
                               spec->model.context, spec->run.seed, &data, e);
    if (code != PAWL_OK) return code;
    snprintf(out->data_digest, sizeof out->data_digest, "%016llx", (unsigned long long)data_identity(data));
    data_close(data);
    return PAWL_OK;
}

void spec_identity(const struct spec *spec, struct bytes *out) {
    struct spec_record *record = calloc(1, sizeof *record);
    if (record == NULL || derive(spec, record, NULL) != PAWL_OK)
        out->failed = true;
    else
        print_fields(record, SPEC_IDENTITY, out);
    free(record);
}

static pawl_code fill_identity(void *context, const char *section, const char *key,
                               const struct spec_scalar *value, struct pawl_error *e) {
    const struct spec_field *field;
    if (key == NULL) return spec_section_find(section, e);
    pawl_code code = spec_field_find(section, key, SPEC_IDENTITY, &field, e);
    return code == PAWL_OK ? spec_field_read(field, value, context, e) : code;
}

static pawl_code compare_field(const struct spec_field *field, const struct spec_record *now,
                               const struct spec_record *then, struct pawl_error *e) {
    struct bytes a = {0}, b = {0};
    char name[128];
    if ((field->uses & SPEC_INPUT) != 0)
        snprintf(name, sizeof name, "%s.%s", field->section, field->key);
    else
        snprintf(name, sizeof name, "%s", field->help);
    spec_field_print(field, now, &a);
    spec_field_print(field, then, &b);
    pawl_code code = PAWL_OK;
    if (a.failed || b.failed)
        code = error_set(e, PAWL_MEMORY, 0, "no memory to compare %s", name);
    else if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0)
        code = error_set(
            e, PAWL_FOREIGN, 0,
            "%s is %.*s but this run began with %.*s: put it back to resume, or give another run.dir to "
            "begin a new run",
            name, (int)a.size, (char *)a.data, (int)b.size, (char *)b.data);
    bytes_close(&a);
    bytes_close(&b);
    return code;
}

static pawl_code compare(const struct spec_record *now, const struct spec_record *then,
                         struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; code == PAWL_OK && i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & SPEC_IDENTITY) == 0 || !spec_field_applies(field, &now->spec)) continue;
        if (spec_field_missing(field, then))
            code = error_set(e, PAWL_FORMAT, 0, "identity of the run: it lacks %s.%s: was it cut short?",
                             field->section, field->key);
        else
            code = compare_field(field, now, then, e);
    }
    return code;
}

pawl_code spec_identity_check(const struct spec *spec, const char *text, size_t size, struct pawl_error *e) {
    struct spec_record *both = calloc(2, sizeof *both);
    if (both == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to compare the run's identity");
    struct pawl_error inner = {0};
    pawl_code code = derive(spec, &both[0], e);
    if (code == PAWL_OK) {
        spec_defaults(&both[1]);
        code = spec_yaml_walk(text, size, "identity of the run", fill_identity, &both[1], &inner);
        if (code == PAWL_SPEC) code = PAWL_FORMAT;
        if (code != PAWL_OK)
            error_set(e, code, 0, "%s", inner.text);
        else
            code = compare(&both[0], &both[1], e);
    }
    free(both);
    return code;
}

/* --- help --- */

static void help_field(const struct spec_field *field, struct bytes *out) {
    char rule[160];
    spec_field_rule(field, rule, sizeof rule);
    bytes_printf(out, "- `%s.%s`: %s; ", field->section, field->key, rule);
    if (field->initial == NULL)
        bytes_printf(out, "must be given%s",
                     (field->uses & SPEC_GPT) != 0        ? " for the engine gpt"
                     : (field->uses & SPEC_EMULATED) != 0 ? " for the engine emulated"
                     : (field->uses & SPEC_TORCH) != 0    ? " for the engine torch"
                                                          : "");
    else
        bytes_printf(out, "default `%s`", field->initial[0] == 0 ? "\"\"" : field->initial);
    bytes_printf(out, "%s.\n  %s\n", (field->uses & SPEC_IDENTITY) != 0 ? "; *fixed*" : "", field->help);
}

void spec_help(struct bytes *out) {
    bytes_printf(
        out,
        "# The specification of a run\n\n"
        "A YAML file of sections and keys, as in `examples/text.yaml`. `pawl train SPEC.yaml` reads it,\n"
        "`--set section.key=value` overrides it. Relative paths start at the working folder. A resume\n"
        "must not change the fields marked *fixed*, nor the product of `parallel.pipelines` and\n"
        "`parallel.microbatches`, nor the content of the file at `data.path`, nor `parallel.stages` of an\n"
        "emulated run: they decide the bits of the weights.\n\n"
        "What belongs to one engine (`model`, `data`: gpt; `emulated`; `torch`) is ignored with another. An\n"
        "engine of your own may bring an optimizer ([engines.md](engines.md)): its values are then those of\n"
        "the run, and a value here that is neither the same nor the default is refused.\n\n"
        "The limits of time keep an order: `timeout_s` < `stall_s` <= `load_s`, `save_s`, `compile_s`,\n"
        "`eval_s`; a set that does not is refused.\n");
    for (uint32_t s = 0; s < spec_section_count; s++) {
        bytes_printf(out, "\n## %s\n\n%s\n\n", spec_sections[s].name, spec_sections[s].help);
        for (uint32_t i = 0; i < spec_field_count; i++) {
            const struct spec_field *field = &spec_fields[i];
            if ((field->uses & SPEC_INPUT) == 0 || strcmp(field->section, spec_sections[s].name) != 0)
                continue;
            help_field(field, out);
        }
    }
}
