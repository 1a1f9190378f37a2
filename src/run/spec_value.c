/* One field: its text read into its value, its value printed, its name looked up.
 *
 * Numbers are read strictly: what is not wholly a number in range is refused, never cut short, wrapped or
 * rounded to a bound (conf/conf.h). Tested in tests/unit/run_spec_test.c. */
#include <stdio.h>
#include <string.h>

#include "conf/conf.h"
#include "run/spec_field.h"

#define SHOWN_MAX 96 /* of a value in a message */

/* --- names --- */

pawl_code spec_section_find(const char *section, struct pawl_error *e) {
    const char *best = NULL;
    unsigned least = CONF_FAR;
    for (uint32_t i = 0; i < spec_section_count; i++) {
        const char *name = spec_sections[i].name;
        if (strcmp(name, section) == 0) return PAWL_OK;
        unsigned distance;
        if (conf_near(name, section, &distance) && distance < least) best = name, least = distance;
    }
    char shown[SHOWN_MAX];
    conf_quote(section, strlen(section), shown, sizeof shown);
    if (best != NULL)
        return error_set(e, PAWL_SPEC, 0, "there is no section %s: did you mean %s?", shown, best);
    char names[200];
    for (size_t i = 0, used = 0; i < spec_section_count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 spec_sections[i].name);
    return error_set(e, PAWL_SPEC, 0, "there is no section %s: there are %s", shown, names);
}

/* The nearest field: a like key of this section, or the same key of another one. */
static const struct spec_field *nearest_field(const char *section, const char *key, unsigned uses) {
    const struct spec_field *best = NULL;
    unsigned least = CONF_FAR;
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & uses) == 0) continue;
        unsigned distance;
        bool here = strcmp(field->section, section) == 0, like = conf_near(field->key, key, &distance);
        bool good = here ? like : distance == 0;
        if (good && distance < least) best = field, least = distance;
    }
    return best;
}

pawl_code spec_field_find(const char *section, const char *key, unsigned uses, const struct spec_field **out,
                          struct pawl_error *e) {
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & uses) == 0 || strcmp(field->section, section) != 0) continue;
        if (strcmp(field->key, key) != 0) continue;
        *out = field;
        return PAWL_OK;
    }
    const struct spec_field *best = nearest_field(section, key, uses);
    char shown[SHOWN_MAX];
    conf_quote(key, strlen(key), shown, sizeof shown);
    if (best != NULL)
        return error_set(e, PAWL_SPEC, 0, "section %s has no key %s: did you mean %s.%s?", section, shown,
                         best->section, best->key);
    return error_set(e, PAWL_SPEC, 0, "section %s has no key %s: see docs/spec.md, or pawl train --spec-help",
                     section, shown);
}

/* --- values --- */

/* Policies that workers can execute: a worker has one chunk of its own. */
static const enum pawl_policy schedules[] = {
    PAWL_POLICY_GPIPE,    PAWL_POLICY_1F1B,      PAWL_POLICY_ZB_H1,   PAWL_POLICY_ZB_H2,
    PAWL_POLICY_ADAPTIVE, PAWL_POLICY_DECOUPLED, PAWL_POLICY_RECYCLE, PAWL_POLICY_PAWL,
};

const char *spec_engine_name(enum spec_engine engine) {
    static const char *const names[SPEC_ENGINE_COUNT] = {"gpt", "emulated", "torch"};
    return (unsigned)engine < SPEC_ENGINE_COUNT ? names[engine] : "?";
}

static const char *sums_name(enum gradsum_kind kind) {
    static const char *const names[GRADSUM_KIND_COUNT] = {"exact", "float"};
    return (unsigned)kind < GRADSUM_KIND_COUNT ? names[kind] : "?";
}

static bool is_choice(const struct spec_field *field) {
    return field->type == SPEC_FORMAT || field->type == SPEC_SCHEDULE || field->type == SPEC_ENGINE ||
           field->type == SPEC_SUMS;
}

static const char *choice_name(const struct spec_field *field, uint32_t value) {
    if (field->type == SPEC_FORMAT) return data_format_name((enum data_format)value);
    if (field->type == SPEC_ENGINE) return spec_engine_name((enum spec_engine)value);
    if (field->type == SPEC_SUMS) return sums_name((enum gradsum_kind)value);
    return pawl_policy_name((enum pawl_policy)value);
}

static uint32_t choice_count(const struct spec_field *field) {
    if (field->type == SPEC_FORMAT) return DATA_FORMAT_COUNT;
    if (field->type == SPEC_ENGINE) return SPEC_ENGINE_COUNT;
    if (field->type == SPEC_SUMS) return GRADSUM_KIND_COUNT;
    return sizeof schedules / sizeof *schedules;
}

static uint32_t choice_value(const struct spec_field *field, uint32_t index) {
    return field->type == SPEC_SCHEDULE ? (uint32_t)schedules[index] : index;
}

void spec_field_rule(const struct spec_field *field, char *out, size_t size) {
    int used = 0;
    switch (field->type) {
    case SPEC_U32:
    case SPEC_U64:
        snprintf(out, size, "a whole number from %llu to %llu", (unsigned long long)field->low,
                 (unsigned long long)field->high);
        break;
    case SPEC_F64:
        snprintf(out, size, "a number from %g to %g", field->min, field->max);
        break;
    case SPEC_BOOL:
        snprintf(out, size, "true or false");
        break;
    case SPEC_TEXT:
        snprintf(out, size, "a text of at most %u bytes", field->size - 1);
        break;
    default:
        for (uint32_t i = 0; i < choice_count(field) && used >= 0 && (size_t)used < size; i++)
            used += snprintf(out + used, size - (size_t)used, "%s%s", i == 0 ? "" : " or ",
                             choice_name(field, choice_value(field, i)));
    }
}

static bool read_choice(const struct spec_field *field, const char *text, uint32_t *out) {
    for (uint32_t i = 0; i < choice_count(field); i++) {
        *out = choice_value(field, i);
        if (strcmp(choice_name(field, *out), text) == 0) return true;
    }
    return false;
}

static bool read_number(const struct spec_field *field, const char *text, void *at) {
    uint64_t whole = 0;
    if (field->type == SPEC_F64) {
        double value;
        if (!conf_real(text, &value) || !(value >= field->min && value <= field->max)) return false;
        memcpy(at, &value, sizeof value);
        return true;
    }
    if (!conf_whole(text, &whole) || whole < field->low || whole > field->high) return false;
    uint32_t narrow = (uint32_t)whole;
    if (field->type == SPEC_U32)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &whole, sizeof whole);
    return true;
}

static pawl_code read_text(const struct spec_field *field, const struct spec_scalar *scalar, char *at,
                           struct pawl_error *e) {
    static const char *const nulls[] = {"~", "null", "Null", "NULL"};
    const char *text = scalar->text;
    size_t size = scalar->size;
    for (size_t i = 0; scalar->plain && i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(text, nulls[i]) == 0) size = 0;
    if (size >= field->size)
        return error_set(e, PAWL_SPEC, 0, "%s.%s has %zu bytes: write at most %u", field->section, field->key,
                         size, field->size - 1);
    if (conf_utf8_bad(text, size) != size)
        return error_set(e, PAWL_SPEC, 0, "%s.%s is not UTF-8 at byte %zu: rename it", field->section,
                         field->key, conf_utf8_bad(text, size));
    uint32_t point = 0;
    for (size_t i = 0; i < size; i += conf_utf8_next((const unsigned char *)text + i, size - i, &point))
        if (conf_utf8_next((const unsigned char *)text + i, size - i, &point) > 0 && conf_is_control(point))
            return error_set(e, PAWL_SPEC, 0, "%s.%s has a control character (U+%04X) at byte %zu: remove it",
                             field->section, field->key, point, i);
    memset(at, 0, field->size);
    memcpy(at, text, size);
    return PAWL_OK;
}

pawl_code spec_field_read(const struct spec_field *field, const struct spec_scalar *scalar, void *base,
                          struct pawl_error *e) {
    char *at = (char *)base + field->offset;
    const char *text = scalar->text;
    if (field->type == SPEC_TEXT) return read_text(field, scalar, at, e);
    bool whole = strlen(text) == scalar->size, good = false;
    uint32_t choice = 0;
    if (field->type == SPEC_BOOL) {
        bool value = strcmp(text, "true") == 0;
        good = whole && scalar->plain && (value || strcmp(text, "false") == 0);
        if (good) memcpy(at, &value, sizeof value);
    } else if (is_choice(field)) {
        good = whole && read_choice(field, text, &choice);
        if (good) memcpy(at, &choice, sizeof choice);
    } else {
        good = whole && scalar->plain && read_number(field, text, at);
    }
    if (good) return PAWL_OK;
    char shown[SHOWN_MAX], rule[160];
    conf_quote(text, scalar->size, shown, sizeof shown);
    spec_field_rule(field, rule, sizeof rule);
    return error_set(e, PAWL_SPEC, 0, "%s.%s is %s: write %s%s", field->section, field->key, shown, rule,
                     scalar->plain || !whole ? "" : ", without quotes");
}

void spec_field_print(const struct spec_field *field, const void *base, struct bytes *out) {
    const char *at = (const char *)base + field->offset;
    uint32_t narrow = 0;
    uint64_t whole = 0;
    double real = 0;
    switch (field->type) {
    case SPEC_TEXT:
        conf_print_text(at, out);
        break;
    case SPEC_F64:
        memcpy(&real, at, sizeof real);
        conf_print_real(real, out);
        break;
    case SPEC_U64:
        memcpy(&whole, at, sizeof whole);
        bytes_printf(out, "%llu", (unsigned long long)whole);
        break;
    case SPEC_BOOL:
        bytes_printf(out, "%s", *(const bool *)at ? "true" : "false");
        break;
    default:
        memcpy(&narrow, at, sizeof narrow);
        if (field->type == SPEC_U32)
            bytes_printf(out, "%u", narrow);
        else
            bytes_printf(out, "%s", choice_name(field, narrow));
    }
}

bool spec_field_missing(const struct spec_field *field, const void *base) {
    static const char zeros[sizeof(uint64_t)];
    const char *at = (const char *)base + field->offset;
    if (field->initial != NULL) return false;
    return field->type == SPEC_TEXT ? at[0] == 0 : memcmp(at, zeros, field->size) == 0;
}

bool spec_field_applies(const struct spec_field *field, const struct spec *spec) {
    if ((field->uses & SPEC_GPT) != 0) return spec->run.engine == SPEC_ENGINE_GPT;
    if ((field->uses & SPEC_EMULATED) != 0) return spec->run.engine == SPEC_ENGINE_EMULATED;
    if ((field->uses & SPEC_TORCH) != 0) return spec->run.engine == SPEC_ENGINE_TORCH;
    return true;
}
