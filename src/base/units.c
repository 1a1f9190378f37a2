/* Amounts as people write and read them: "512MiB", "60ms", "3%".
 *
 * Numbers are plain decimals in every locale; signs, exponents, hexadecimal and infinities are refused, since
 * in an amount they are slips. Tested in tests/unit/tune_units_test.c. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <pawl/tune.h>

#include "base/error.h"

struct unit {
    const char *name;
    double scale;
};

static const struct unit byte_units[] = {
    {"", 1},       {"b", 1},        {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},
    {"m", 0x1p20}, {"mib", 0x1p20}, {"mb", 1e6},     {"g", 0x1p30},   {"gib", 0x1p30},
    {"gb", 1e9},   {"t", 0x1p40},   {"tib", 0x1p40}, {"tb", 1e12},
};
static const struct unit time_units[] = {
    {"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400},
};
static const struct unit share_units[] = {{"", 1}, {"%", 0.01}};

/* The decimal number at *text, which moves past it; false: there is none. Digits are exact up to 2^53. */
static bool parse_decimal(const char **text, double *out) {
    double whole = 0, place = 1;
    bool any = false, point = false;
    for (;; (*text)++) {
        if (**text == '.' && !point) {
            point = true;
        } else if (isdigit((unsigned char)**text)) {
            whole = whole * 10 + (**text - '0');
            if (point) place *= 10;
            any = true;
        } else {
            *out = whole / place;
            return any && isfinite(*out);
        }
    }
}

static pawl_code parse(const char *text, const struct unit *units, size_t count, double *out,
                       const char *example, struct pawl_error *e) {
    const char *at = text;
    double number;
    if (!parse_decimal(&at, &number))
        return error_set(e, PAWL_ARGUMENT, 0, "\"%s\" is not an amount: write it like %s", text, example);
    while (*at == ' ') at++;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(at, units[i].name) != 0) continue;
        *out = number * units[i].scale;
        return PAWL_OK;
    }
    return error_set(e, PAWL_ARGUMENT, 0, "\"%s\": there is no unit \"%s\": write it like %s", text, at,
                     example);
}

#define PARSE(units, example) parse(text, units, sizeof(units) / sizeof(units)[0], &value, example, e)

pawl_code pawl_parse_bytes(const char *text, uint64_t *bytes, struct pawl_error *e) {
    double value = 0;
    pawl_code code = PARSE(byte_units, "512MiB or 1.5GB");
    if (code != PAWL_OK) return code;
    if (value >= 0x1p63) return error_set(e, PAWL_ARGUMENT, 0, "\"%s\" is more than can be stored", text);
    *bytes = (uint64_t)value;
    return PAWL_OK;
}

pawl_code pawl_parse_seconds(const char *text, double *seconds, struct pawl_error *e) {
    double value = 0;
    pawl_code code = PARSE(time_units, "60ms, 2s or 8h");
    if (code == PAWL_OK) *seconds = value;
    return code;
}

pawl_code pawl_parse_share(const char *text, double *share, struct pawl_error *e) {
    double value = 0;
    pawl_code code = PARSE(share_units, "3% or 0.03");
    if (code == PAWL_OK) *share = value;
    return code;
}

/* `value` in the largest of the units (ascending) that it reaches, three or four digits. */
static const char *amount_text(double value, const struct unit *units, size_t count, char *out) {
    size_t i = count - 1;
    while (i > 0 && value < units[i].scale * 0.9995) i--;
    double shown = value / units[i].scale;
    int decimals = shown >= 99.95 || shown == floor(shown) ? 0 : shown >= 9.995 ? 1 : 2;
    snprintf(out, PAWL_AMOUNT_TEXT, "%.*f %s", decimals, shown, units[i].name);
    return out;
}

const char *pawl_bytes_text(uint64_t bytes, char out[PAWL_AMOUNT_TEXT]) {
    static const struct unit units[] = {
        {"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    return amount_text((double)bytes, units, sizeof units / sizeof units[0], out);
}

const char *pawl_seconds_text(double seconds, char out[PAWL_AMOUNT_TEXT]) {
    static const struct unit units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                                        {"min", 60},  {"h", 3600},  {"d", 86400}};
    if (seconds == 0) return strcpy(out, "0 s");
    return amount_text(seconds, units, sizeof units / sizeof units[0], out);
}
