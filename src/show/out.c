/* Implementation of show/out.h. */
#include "show/out.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "show/show.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void out_begin(struct out *o, FILE *file) {
    o->file = file;
    o->os_errno = 0;
    o->used = 0;
}

static void spill(struct out *o) {
    if (o->os_errno == 0 && o->used > 0) {
        errno = 0;
        if (fwrite(o->room, 1, o->used, o->file) != o->used) o->os_errno = errno != 0 ? errno : EIO;
    }
    o->used = 0;
}

pawl_code out_end(struct out *o, const char *what, struct pawl_error *e) {
    spill(o);
    errno = 0;
    if (fflush(o->file) != 0 && o->os_errno == 0) o->os_errno = errno != 0 ? errno : EIO;
    if (o->os_errno == 0) return PAWL_OK;
    return error_set(e, PAWL_IO, o->os_errno, "cannot write the %s", what);
}

void out_char(struct out *o, char c) {
    if (o->used == OUT_ROOM) spill(o);
    o->room[o->used++] = c;
}

void out_raw(struct out *o, const char *data, size_t size) {
    while (size > 0) {
        if (o->used == OUT_ROOM) spill(o);
        size_t part = OUT_ROOM - o->used < size ? OUT_ROOM - o->used : size;
        memcpy(o->room + o->used, data, part);
        o->used += part;
        data += part;
        size -= part;
    }
}

void out_text(struct out *o, const char *text) { out_raw(o, text, strlen(text)); }

void out_pad(struct out *o, char c, size_t count) {
    for (size_t i = 0; i < count; i++) out_char(o, c);
}

/* Writes the digits so that they end before `end`; returns where they begin. */
static char *digits_before(char *end, uint64_t value) {
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return end;
}

void out_u64(struct out *o, uint64_t value) {
    char text[24];
    char *end = text + sizeof text, *start = digits_before(end, value);
    out_raw(o, start, (size_t)(end - start));
}

const char *show_time(uint64_t ticks, char out[SHOW_TIME]) {
    char text[24];
    char *end = text + sizeof text, *start = digits_before(end, ticks / SIM_TICKS);
    size_t size = (size_t)(end - start);
    memcpy(out, start, size);
    uint64_t rest = ticks % SIM_TICKS;
    if (rest > 0) out[size++] = '.';
    for (uint64_t place = SIM_TICKS / 10; rest > 0; place /= 10) {
        out[size++] = (char)('0' + rest / place);
        rest %= place;
    }
    out[size] = 0;
    return out;
}

void out_time(struct out *o, uint64_t ticks) {
    char text[SHOW_TIME];
    out_text(o, show_time(ticks, text));
}

void out_f64(struct out *o, double value) {
    char text[40];
    if (!isfinite(value)) {
        out_text(o, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    out_text(o, text);
}

void out_pixels(struct out *o, double value) {
    if (value < 0) out_char(o, '-');
    uint64_t hundredths = (uint64_t)(fabs(value) * 100 + 0.5);
    out_u64(o, hundredths / 100);
    if (hundredths % 100 == 0) return;
    out_char(o, '.');
    out_char(o, (char)('0' + hundredths / 10 % 10));
    if (hundredths % 10 > 0) out_char(o, (char)('0' + hundredths % 10));
}

void out_count(struct out *o, uint64_t count, const char *noun) {
    out_u64(o, count);
    out_char(o, ' ');
    out_text(o, noun);
    if (count != 1) out_text(o, strcmp(noun + strlen(noun) - 2, "ch") == 0 ? "es" : "s");
}

void out_printf(struct out *o, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size > 0) out_raw(o, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}

/* Bytes of the character that begins at `s` (not its end); 0: not UTF-8 (overlong, a surrogate, cut). */
static size_t character_size(const unsigned char *s) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t code = size < 2 ? *s : *s & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (s[i] >> 6 != 2) return 0; /* also the terminator */
        code = code << 6 | (s[i] & 0x3fu);
    }
    if (size == 0 || code < least[size] || code > 0x10ffff || code >> 11 == 0xd800 >> 11) return 0;
    return size;
}

static bool is_control(const unsigned char *s, size_t size) {
    if (size == 1) return *s < 0x20 || *s == 0x7f;
    if (size == 2) return *s == 0xc2 && s[1] < 0xa0;                    /* C1 */
    if (size == 3) return s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe; /* U+FFFE, U+FFFF: not XML */
    return false;
}

static const char *entity_of(char c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void out_xml(struct out *o, const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        size_t size = character_size(s);
        const char *entity = entity_of((char)*s);
        if (entity != NULL)
            out_text(o, entity);
        else if (size == 0 || is_control(s, size))
            out_text(o, REPLACEMENT);
        else
            out_raw(o, (const char *)s, size);
        s += size > 0 ? size : 1;
    }
}

void out_plain(struct out *o, const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        size_t size = character_size(s);
        if (size == 0 || is_control(s, size))
            out_text(o, REPLACEMENT);
        else
            out_raw(o, (const char *)s, size);
        s += size > 0 ? size : 1;
    }
}

void out_json(struct out *o, const char *text) {
    if (text == NULL) {
        out_text(o, "null");
        return;
    }
    out_char(o, '"');
    for (const unsigned char *s = (const unsigned char *)text; *s != 0;) {
        size_t size = character_size(s);
        if (*s == '"' || *s == '\\')
            out_printf(o, "\\%c", *s);
        else if (size == 0)
            out_text(o, "\\ufffd");
        else if (size == 1 && is_control(s, size))
            out_printf(o, "\\u%04x", *s);
        else
            out_raw(o, (const char *)s, size);
        s += size > 0 ? size : 1;
    }
    out_char(o, '"');
}

void out_key(struct out *o, const char *key) {
    out_text(o, ",\"");
    out_text(o, key);
    out_text(o, "\":");
}

void out_key_u64(struct out *o, const char *key, uint64_t value) {
    out_key(o, key);
    out_u64(o, value);
}

void out_key_f64(struct out *o, const char *key, double value) {
    out_key(o, key);
    out_f64(o, value);
}

void out_key_time(struct out *o, const char *key, uint64_t ticks) {
    out_key(o, key);
    out_time(o, ticks);
}

void out_key_bool(struct out *o, const char *key, bool value) {
    out_key(o, key);
    out_text(o, value ? "true" : "false");
}

void out_key_text(struct out *o, const char *key, const char *text) {
    out_key(o, key);
    out_json(o, text != NULL ? text : "");
}

void out_key_lines(struct out *o, const char *key, const char *text) {
    char line[OUT_LINE];
    out_key(o, key);
    out_char(o, '[');
    for (bool first = true; out_next_line(&text, line); first = false) {
        if (!first) out_char(o, ',');
        out_json(o, line);
    }
    out_char(o, ']');
}

bool out_next_line(const char **text, char line[OUT_LINE]) {
    if (*text == NULL || **text == 0) return false;
    size_t size = strcspn(*text, "\n"), kept = size < OUT_LINE ? size : OUT_LINE - 1;
    memcpy(line, *text, kept);
    line[kept] = 0;
    *text += size + ((*text)[size] == '\n');
    return true;
}

size_t out_columns(const char *text) {
    size_t columns = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s != 0; columns++) {
        size_t size = character_size(s);
        s += size > 0 ? size : 1;
    }
    return columns;
}
