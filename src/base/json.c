/* Implementation of base/json.h. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_string(struct bytes *out, const char *s) {
    bytes_put_u8(out, '"');
    for (; *s != 0; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            bytes_printf(out, "\\%c", c);
        else if (c < 0x20)
            bytes_printf(out, "\\u%04x", c);
        else
            bytes_put_u8(out, c);
    }
    bytes_put_u8(out, '"');
}

static void open_value(struct json *j, const char *key) {
    if (j->need_comma) bytes_put_u8(j->out, ',');
    j->need_comma = true;
    if (key == NULL) return;
    put_string(j->out, key);
    bytes_put_u8(j->out, ':');
}

struct json json_begin(struct bytes *out) {
    return (struct json){.out = out};
}

static void open_group(struct json *j, const char *key, char bracket) {
    open_value(j, key);
    bytes_put_u8(j->out, (uint8_t)bracket);
    j->need_comma = false;
}

static void close_group(struct json *j, char bracket) {
    bytes_put_u8(j->out, (uint8_t)bracket);
    j->need_comma = true;
}

void json_object(struct json *j, const char *key) { open_group(j, key, '{'); }
void json_array(struct json *j, const char *key) { open_group(j, key, '['); }
void json_end_object(struct json *j) { close_group(j, '}'); }
void json_end_array(struct json *j) { close_group(j, ']'); }

void json_text(struct json *j, const char *key, const char *value) {
    open_value(j, key);
    put_string(j->out, value);
}

void json_i64(struct json *j, const char *key, int64_t value) {
    open_value(j, key);
    bytes_printf(j->out, "%lld", (long long)value);
}

void json_u64(struct json *j, const char *key, uint64_t value) {
    open_value(j, key);
    bytes_printf(j->out, "%llu", (unsigned long long)value);
}

void json_f64(struct json *j, const char *key, double value) {
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    open_value(j, key);
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    bytes_put(j->out, text, strlen(text));
}

void json_bool(struct json *j, const char *key, bool value) {
    open_value(j, key);
    bytes_printf(j->out, "%s", value ? "true" : "false");
}

void json_null(struct json *j, const char *key) {
    open_value(j, key);
    bytes_printf(j->out, "null");
}
