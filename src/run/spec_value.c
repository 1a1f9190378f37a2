/* One field: its text read into its value, its value printed, its name looked up.
 *
 * Numbers are read strictly: what is not wholly a number in range is refused, never cut short, wrapped or
 * rounded to a bound. Reading and printing do not depend on the process's locale, since pawl lives
 * inside other people's programs. Tested in tests/unit/run_spec_test.c. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/spec_field.h"

#define NAME_MAX_BYTES 64 /* longer names are nobody's slip of the pen for ours */
#define SHOWN_MAX      96 /* of a value in a message */

/* Length of the UTF-8 sequence at `s` and its code point, 0 if there is none (RFC 3629: no surrogates, no
 * overlong forms, nothing above U+10FFFF). */
static size_t utf8_next(const unsigned char *s, size_t left, uint32_t *point) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;
    if (n == 0 || n > left) return 0;
    uint32_t p = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        p = p << 6 | (s[i] & 0x3fu);
    }
    if (p < least[n] || p > 0x10ffff || (p >= 0xd800 && p <= 0xdfff)) return 0;
    *point = p;
    return n;
}

size_t spec_utf8_bad(const char *text, size_t size) {
    size_t at = 0;
    uint32_t point;
    while (at < size) {
        size_t n = utf8_next((const unsigned char *)text + at, size - at, &point);
        if (n == 0) break;
        at += n;
    }
    return at;
}

static bool is_control(uint32_t point) { return point < 0x20 || (point >= 0x7f && point < 0xa0); }
/* What a double-quoted YAML scalar would fold or refuse. */
static bool needs_escape(uint32_t point) {
    return point == 0x2028 || point == 0x2029 || point == 0xfeff || (point & 0xfffe) == 0xfffe;
}

void spec_quote(const char *text, size_t size, char *out, size_t out_size) {
    size_t used = 0, at = 0;
    out[used++] = '"';
    while (at < size) {
        uint32_t point = 0;
        size_t n = utf8_next((const unsigned char *)text + at, size - at, &point);
        bool shown = n > 0 && !is_control(point);
        size_t width = shown ? n : 1;
        if (used + width + sizeof "...\"" > out_size) break;
        if (shown)
            memcpy(out + used, text + at, n);
        else
            out[used] = '?';
        used += width;
        at += n == 0 ? 1 : n;
    }
    memcpy(out + used, at < size ? "...\"" : "\"", at < size ? 5 : 2);
}

/* --- names --- */

/* Optimal string alignment distance: inserted, lost, changed and swapped letters. */
static unsigned edit_distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m > NAME_MAX_BYTES || n > NAME_MAX_BYTES) return NAME_MAX_BYTES;
    unsigned d[3][NAME_MAX_BYTES + 1];
    for (size_t j = 0; j <= n; j++) d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        unsigned *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && up2[j - 2] + 1 < best) best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[m % 3][n];
}

/* A suggestion is worth its place when at most a third of the name, and a letter or two, has to change. */
static bool near(unsigned distance, const char *name) {
    size_t third = strlen(name) / 3;
    return distance <= (third < 1 ? 1 : third);
}

pawl_code spec_section_find(const char *section, struct pawl_error *e) {
    const char *best = NULL;
    unsigned least = NAME_MAX_BYTES;
    for (uint32_t i = 0; i < spec_section_count; i++) {
        const char *name = spec_sections[i].name;
        if (strcmp(name, section) == 0) return PAWL_OK;
        unsigned distance = edit_distance(name, section);
        if (near(distance, name) && distance < least) best = name, least = distance;
    }
    char shown[SHOWN_MAX];
    spec_quote(section, strlen(section), shown, sizeof shown);
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
    unsigned least = NAME_MAX_BYTES;
    for (uint32_t i = 0; i < spec_field_count; i++) {
        const struct spec_field *field = &spec_fields[i];
        if ((field->uses & uses) == 0) continue;
        unsigned distance = edit_distance(field->key, key);
        bool here = strcmp(field->section, section) == 0;
        bool good = here ? near(distance, field->key) : distance == 0;
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
    spec_quote(key, strlen(key), shown, sizeof shown);
    if (best != NULL)
        return error_set(e, PAWL_SPEC, 0, "section %s has no key %s: did you mean %s.%s?", section, shown,
                         best->section, best->key);
    return error_set(e, PAWL_SPEC, 0, "section %s has no key %s: see docs/spec.md, or pawl train --spec-help",
                     section, shown);
}

/* --- values --- */

static const char *choice_name(const struct spec_field *field, uint32_t index) {
    if (field->type == SPEC_FORMAT) return data_format_name((enum data_format)index);
    return ir_schedule_name((enum ir_schedule)index);
}

static uint32_t choice_count(const struct spec_field *field) {
    return field->type == SPEC_FORMAT ? (uint32_t)DATA_FORMAT_COUNT : (uint32_t)IR_SCHEDULE_COUNT;
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
                             choice_name(field, i));
    }
}

static bool read_whole(const char *text, uint64_t *out) {
    uint64_t value = 0;
    if (text[0] == 0 || (text[0] == '0' && text[1] != 0)) return false; /* YAML 1.1 takes 010 for 8 */
    for (; *text != 0; text++) {
        if (*text < '0' || *text > '9') return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

static const char *skip_digits(const char *s) { return s + strspn(s, "0123456789"); }

/* [+-] digits [. digits] [e [+-] digits], a digit before or after the dot; no hexadecimal, no names. */
static bool looks_real(const char *s) {
    if (*s == '+' || *s == '-') s++;
    const char *whole = s;
    s = skip_digits(s);
    size_t digits = (size_t)(s - whole);
    if (*s == '.') {
        const char *part = s + 1;
        s = skip_digits(part);
        digits += (size_t)(s - part);
    }
    if (digits == 0) return false;
    if (*s == 'e' || *s == 'E') {
        s += s[1] == '+' || s[1] == '-' ? 2 : 1;
        if (*s < '0' || *s > '9') return false;
        s = skip_digits(s);
    }
    return *s == 0;
}

/* strtod of the C locale: the host program's may want a comma. */
static double to_double(const char *text) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    errno = 0;
    double value = c == (locale_t)0 ? strtod(text, NULL) : strtod_l(text, NULL, c);
    if (errno == ERANGE) value = NAN;
    if (c != (locale_t)0) freelocale(c);
    return value + 0.0; /* -0 reads as 0 */
}

static bool read_choice(const struct spec_field *field, const char *text, uint32_t *out) {
    for (*out = 0; *out < choice_count(field); (*out)++)
        if (strcmp(choice_name(field, *out), text) == 0) return true;
    return false;
}

static bool read_number(const struct spec_field *field, const char *text, void *at) {
    uint64_t whole = 0;
    if (field->type == SPEC_F64) {
        double value = looks_real(text) ? to_double(text) : NAN;
        if (!(value >= field->min && value <= field->max)) return false;
        memcpy(at, &value, sizeof value);
        return true;
    }
    if (!read_whole(text, &whole) || whole < field->low || whole > field->high) return false;
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
    if (spec_utf8_bad(text, size) != size)
        return error_set(e, PAWL_SPEC, 0, "%s.%s is not UTF-8 at byte %zu: rename it", field->section,
                         field->key, spec_utf8_bad(text, size));
    uint32_t point = 0;
    for (size_t i = 0; i < size; i += utf8_next((const unsigned char *)text + i, size - i, &point))
        if (utf8_next((const unsigned char *)text + i, size - i, &point) > 0 && is_control(point))
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
    } else if (field->type == SPEC_FORMAT || field->type == SPEC_SCHEDULE) {
        good = whole && read_choice(field, text, &choice);
        if (good) memcpy(at, &choice, sizeof choice);
    } else {
        good = whole && scalar->plain && read_number(field, text, at);
    }
    if (good) return PAWL_OK;
    char shown[SHOWN_MAX], rule[160];
    spec_quote(text, scalar->size, shown, sizeof shown);
    spec_field_rule(field, rule, sizeof rule);
    return error_set(e, PAWL_SPEC, 0, "%s.%s is %s: write %s%s", field->section, field->key, shown, rule,
                     scalar->plain || !whole ? "" : ", without quotes");
}

static void print_text(const char *text, struct bytes *out) {
    size_t size = strlen(text);
    bytes_put_u8(out, '"');
    for (size_t at = 0; at < size;) {
        uint32_t point = 0xfffd;
        size_t n = utf8_next((const unsigned char *)text + at, size - at, &point);
        if (n == 0) n = 1; /* only a spec not made by the reader holds such a byte */
        if (is_control(point) || needs_escape(point))
            bytes_printf(out, "\\U%08X", point);
        else if (point == '"' || point == '\\')
            bytes_printf(out, "\\%c", (char)point);
        else
            bytes_put(out, text + at, n);
        at += n;
    }
    bytes_put_u8(out, '"');
}

/* The shortest digits that read back to the same value, with a point whatever the locale. */
static void print_real(double value, struct bytes *out) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        for (char *c = text; *c != 0; c++)
            if (*c == ',') *c = '.';
        if (to_double(text) == value) break;
    }
    bytes_put(out, text, strlen(text));
}

void spec_field_print(const struct spec_field *field, const void *base, struct bytes *out) {
    const char *at = (const char *)base + field->offset;
    uint32_t narrow = 0;
    uint64_t whole = 0;
    double real = 0;
    switch (field->type) {
    case SPEC_TEXT:
        print_text(at, out);
        break;
    case SPEC_F64:
        memcpy(&real, at, sizeof real);
        print_real(real, out);
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
