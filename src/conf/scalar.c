/* Scalars of such files: numbers, texts, names; read and printed the same in every locale. See conf.h. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"

size_t conf_utf8_next(const unsigned char *s, size_t left, uint32_t *point) {
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

size_t conf_utf8_bad(const char *text, size_t size) {
    size_t at = 0;
    uint32_t point;
    while (at < size) {
        size_t n = conf_utf8_next((const unsigned char *)text + at, size - at, &point);
        if (n == 0) break;
        at += n;
    }
    return at;
}

bool conf_is_control(uint32_t point) { return point < 0x20 || (point >= 0x7f && point < 0xa0); }
/* What a double-quoted YAML scalar would fold or refuse. */
static bool needs_escape(uint32_t point) {
    return point == 0x2028 || point == 0x2029 || point == 0xfeff || (point & 0xfffe) == 0xfffe;
}

void conf_quote(const char *text, size_t size, char *out, size_t out_size) {
    size_t used = 0, at = 0;
    out[used++] = '"';
    while (at < size) {
        uint32_t point = 0;
        size_t n = conf_utf8_next((const unsigned char *)text + at, size - at, &point);
        bool shown = n > 0 && !conf_is_control(point);
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

/* ---- names ---- */

unsigned conf_distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m > CONF_FAR || n > CONF_FAR) return CONF_FAR;
    unsigned d[3][CONF_FAR + 1];
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
bool conf_near(const char *name, const char *wrong, unsigned *distance) {
    size_t third = strlen(name) / 3;
    *distance = conf_distance(name, wrong);
    return *distance <= (third < 1 ? 1 : third);
}

/* ---- numbers ---- */

bool conf_whole(const char *text, uint64_t *out) {
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

bool conf_real(const char *text, double *out) {
    if (!looks_real(text)) return false;
    *out = to_double(text);
    return isfinite(*out);
}

/* ---- printing ---- */

void conf_print_text(const char *text, struct bytes *out) {
    size_t size = strlen(text);
    bytes_put_u8(out, '"');
    for (size_t at = 0; at < size;) {
        uint32_t point = 0xfffd;
        size_t n = conf_utf8_next((const unsigned char *)text + at, size - at, &point);
        if (n == 0) n = 1; /* only a text not made by a reader holds such a byte */
        if (conf_is_control(point) || needs_escape(point))
            bytes_printf(out, "\\U%08X", point);
        else if (point == '"' || point == '\\')
            bytes_printf(out, "\\%c", (char)point);
        else
            bytes_put(out, text + at, n);
        at += n;
    }
    bytes_put_u8(out, '"');
}

/* Below it every whole number is a double of its own, so that all its digits are meant. */
#define WHOLE_MAX 1e15

/* The shortest digits that read back to the same value, with a point whatever the locale; %g alone would say
 * 6e+02 where people write 600. */
void conf_print_real(double value, struct bytes *out) {
    char text[40];
    if (fabs(value) < WHOLE_MAX && value == floor(value)) {
        bytes_printf(out, "%lld", (long long)value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        for (char *c = text; *c != 0; c++)
            if (*c == ',') *c = '.';
        if (to_double(text) == value) break;
    }
    bytes_put(out, text, strlen(text));
}
