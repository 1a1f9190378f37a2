/* A profile as YAML, such that pawl_profile_read gives it back equal. See docs/formats/profile.md. Tested in
 * tests/unit/plan_profile_test.c. */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "conf/conf.h"
#include "plan/profile.h"

/* ", name: value", or at the begin of a map without the comma; fields that are 0 are left out. */
static void print_field(const struct profile_field *field, const void *base, const char *before,
                        const char *after, struct bytes *out) {
    const char *at = (const char *)base + field->offset;
    uint64_t whole = 0;
    uint32_t narrow = 0;
    double real = 0;
    if (field->type == PROFILE_BYTES) {
        memcpy(&whole, at, sizeof whole);
        if (whole != 0) bytes_printf(out, "%s%s: %" PRIu64 "%s", before, field->name, whole, after);
    } else if (field->type == PROFILE_COUNT) {
        memcpy(&narrow, at, sizeof narrow);
        if (narrow != 0) bytes_printf(out, "%s%s: %u%s", before, field->name, narrow, after);
    } else {
        memcpy(&real, at, sizeof real);
        if (real == 0) return;
        bytes_printf(out, "%s%s: ", before, field->name);
        conf_print_real(real, out);
        bytes_printf(out, "%s", after);
    }
}

static void print_stages(const struct pawl_profile *p, struct bytes *out) {
    bytes_printf(out, "stages:\n");
    for (uint32_t i = 0; i < p->stages; i++) {
        bytes_printf(out, "  - # stage %u\n", i);
        for (uint32_t f = 0; f < PROFILE_STAGE_FIELDS; f++)
            print_field(&profile_stage_fields[f], &p->stage[i], "    ", "\n", out);
    }
}

static void print_workers(const struct pawl_profile *p, struct bytes *out) {
    if (p->worker_count > 0) bytes_printf(out, "workers:\n");
    for (uint32_t i = 0; i < p->worker_count; i++) {
        const struct pawl_worker_cost *w = &p->worker[i];
        bytes_printf(out, "  - {pipeline: %u, stage: %u", w->pipeline, w->stage);
        for (uint32_t f = 2; f < PROFILE_WORKER_FIELDS; f++)
            print_field(&profile_worker_fields[f], w, ", ", "", out);
        bytes_printf(out, "}\n");
    }
}

static void print_profile(const struct pawl_profile *p, struct bytes *out) {
    bytes_printf(out, "pawl_profile: 1\nname: ");
    conf_print_text(p->name, out);
    bytes_printf(out, "\nunit: ");
    conf_print_text(p->unit, out);
    bytes_printf(out, "\n");
    for (uint32_t f = 0; f < PROFILE_TOP_FIELDS; f++) print_field(&profile_top_fields[f], p, "", "\n", out);
    print_stages(p, out);
    print_workers(p, out);
}

pawl_code pawl_profile_write(const struct pawl_profile *profile, const char *path, struct pawl_error *e) {
    pawl_code code = pawl_profile_check(profile, e);
    if (code != PAWL_OK) return code;
    struct bytes text = {0};
    print_profile(profile, &text);
    code = file_replace(path, &text, "profile", e);
    bytes_close(&text);
    return code;
}
