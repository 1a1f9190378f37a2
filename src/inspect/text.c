/* Implementation of inspect/text.h. */
#include "inspect/text.h"

#include <string.h>

/* ---- UTF-8 ---- */

/* Length of the character at `at` and its code point; 0: these bytes are no character. */
static size_t next_point(const unsigned char *at, size_t left, uint32_t *point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = at[0];
    size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > left) return 0;
    uint32_t value = size == 1 ? first : first & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (at[i] >> 6 != 2) return 0;
        value = value << 6 | (at[i] & 0x3f);
    }
    *point = value;
    bool surrogate = value >= 0xd800 && value < 0xe000;
    return value < least[size] || surrogate || value > 0x10ffff ? 0 : size;
}

/* Would change the terminal, or the order in which what is around it is read. */
static bool is_harmful(uint32_t point) {
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || (point >= 0x200e && point <= 0x200f) ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
}

bool text_is_utf8(const char *text, size_t size) {
    uint32_t point;
    for (size_t at = 0, n; at < size; at += n) {
        n = next_point((const unsigned char *)text + at, size - at, &point);
        if (n == 0) return false;
    }
    return true;
}

void text_put_safe(struct bytes *out, const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        uint32_t point = 0;
        size_t n = next_point((const unsigned char *)text + at, size - at, &point);
        if (n == 0)
            bytes_printf(out, "\\x%02x", (unsigned char)text[at]);
        else if (is_harmful(point))
            bytes_printf(out, point < 0x80 ? "\\x%02x" : "\\u{%04x}", point);
        else
            bytes_put(out, text + at, n);
        at += n > 0 ? n : 1;
    }
}

/* ---- writing JSON ---- */

static void begin_value(struct json *j, const char *key) {
    if (j->need_comma) bytes_put_u8(j->out, ',');
    j->need_comma = true;
    if (key != NULL) bytes_printf(j->out, "\"%s\":", key); /* keys are ours */
}

/* Space between tokens may hold line ends, strings may hold what would move a terminal's cursor. */
void text_put_raw(struct json *j, const char *key, const char *json, size_t size) {
    begin_value(j, key);
    for (size_t at = 0; at < size;) {
        uint32_t point = 0;
        size_t n = next_point((const unsigned char *)json + at, size - at, &point);
        if (point == '\n' || point == '\r' || point == '\t')
            bytes_put_u8(j->out, ' ');
        else if (n > 0 && is_harmful(point))
            bytes_printf(j->out, "\\u%04x", point);
        else
            bytes_put(j->out, json + at, n > 0 ? n : 1);
        at += n > 0 ? n : 1;
    }
}

void text_put_json(struct json *j, const char *key, const char *text) {
    begin_value(j, key);
    size_t size = text != NULL ? strlen(text) : 0;
    bytes_printf(j->out, text != NULL ? "\"" : "null");
    for (size_t at = 0; at < size;) {
        uint32_t point = 0;
        size_t n = next_point((const unsigned char *)text + at, size - at, &point);
        if (n == 0)
            bytes_printf(j->out, "\\\\x%02x", (unsigned char)text[at]);
        else if (is_harmful(point))
            bytes_printf(j->out, "\\u%04x", point);
        else if (point == '"' || point == '\\')
            bytes_printf(j->out, "\\%c", (char)point);
        else
            bytes_put(j->out, text + at, n);
        at += n > 0 ? n : 1;
    }
    if (text != NULL) bytes_put_u8(j->out, '"');
}

/* ---- checking JSON ---- */

struct scanner {
    const char *at, *end;
    int depth;
};

static char peek(const struct scanner *s) { return s->at < s->end ? *s->at : 0; }

static void skip_space(struct scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

static bool take(struct scanner *s, char c) {
    if (peek(s) != c || s->at == s->end) return false;
    s->at++;
    return true;
}

static bool take_word(struct scanner *s, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, word, size) != 0) return false;
    s->at += size;
    return true;
}

static bool take_digits(struct scanner *s) {
    const char *begin = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    return s->at > begin;
}

static bool take_number(struct scanner *s) {
    (void)take(s, '-');
    if (!take(s, '0') && !take_digits(s)) return false;
    if (take(s, '.') && !take_digits(s)) return false;
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+')) (void)take(s, '-');
        return take_digits(s);
    }
    return true;
}

static bool take_hex(struct scanner *s) {
    for (int i = 0; i < 4; i++) {
        char c = peek(s);
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return false;
        s->at++;
    }
    return true;
}

static bool take_string(struct scanner *s) {
    if (!take(s, '"')) return false;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20) return false;
        if (*s->at++ != '\\') continue;
        char c = peek(s);
        if (c == 0 || strchr("\"\\/bfnrtu", c) == NULL) return false;
        s->at++;
        if (c == 'u' && !take_hex(s)) return false;
    }
    return take(s, '"');
}

static bool take_value(struct scanner *s);

static bool take_members(struct scanner *s, char close, bool keys) {
    s->at++;
    skip_space(s);
    if (take(s, close)) return true;
    do {
        skip_space(s);
        if (keys) {
            if (!take_string(s)) return false;
            skip_space(s);
            if (!take(s, ':')) return false;
        }
        if (!take_value(s)) return false;
    } while (take(s, ','));
    return take(s, close);
}

/* With the space on both sides. */
static bool take_value(struct scanner *s) {
    if (++s->depth > TEXT_JSON_DEPTH) return false;
    skip_space(s);
    char c = peek(s);
    bool good = c == '{'   ? take_members(s, '}', true)
                : c == '[' ? take_members(s, ']', false)
                : c == '"' ? take_string(s)
                : c == 't' ? take_word(s, "true")
                : c == 'f' ? take_word(s, "false")
                : c == 'n' ? take_word(s, "null")
                           : take_number(s);
    s->depth--;
    skip_space(s);
    return good;
}

bool text_is_json(const char *text, size_t size) {
    struct scanner s = {text, text + size, 0};
    return size > 0 && memchr(text, 0, size) == NULL && text_is_utf8(text, size) && take_value(&s) &&
           s.at == s.end;
}
