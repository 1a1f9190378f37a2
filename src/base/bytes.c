/* Implementation of base/bytes.h. */
#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bytes_close(struct bytes *b) {
    free(b->data);
    *b = (struct bytes){0};
}

void bytes_clear(struct bytes *b) {
    b->size = 0;
    b->failed = false;
}

static bool bytes_reserve(struct bytes *b, size_t more) {
    if (b->failed || more > SIZE_MAX / 2 - b->size) {
        b->failed = true;
        return false;
    }
    size_t need = b->size + more;
    if (need <= b->capacity) return true;
    size_t capacity = b->capacity < 64 ? 64 : b->capacity;
    while (capacity < need) capacity *= 2;
    uint8_t *data = realloc(b->data, capacity);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void bytes_put(struct bytes *b, const void *data, size_t size) {
    if (size == 0 || !bytes_reserve(b, size)) return;
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_le(struct bytes *b, uint64_t v, size_t width) {
    uint8_t raw[8];
    for (size_t i = 0; i < width; i++) raw[i] = (uint8_t)(v >> (8 * i));
    bytes_put(b, raw, width);
}

void bytes_put_u8(struct bytes *b, uint8_t v) { put_le(b, v, 1); }
void bytes_put_u16(struct bytes *b, uint16_t v) { put_le(b, v, 2); }
void bytes_put_u32(struct bytes *b, uint32_t v) { put_le(b, v, 4); }
void bytes_put_u64(struct bytes *b, uint64_t v) { put_le(b, v, 8); }
void bytes_put_i64(struct bytes *b, int64_t v) { put_le(b, (uint64_t)v, 8); }

void bytes_put_f32(struct bytes *b, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bytes_put_u32(b, bits);
}

void bytes_put_f64(struct bytes *b, double v) {
    uint64_t raw;
    memcpy(&raw, &v, sizeof raw);
    put_le(b, raw, 8);
}

void bytes_put_text(struct bytes *b, const char *text) {
    size_t size = strlen(text);
    if (size > UINT32_MAX) {
        b->failed = true;
        return;
    }
    bytes_put_u32(b, (uint32_t)size);
    bytes_put(b, text, size);
}

void bytes_put_string(struct bytes *b, const char *text) {
    const char *s = text != NULL ? text : "";
    bytes_put_u32(b, (uint32_t)strlen(s) + 1);
    bytes_put(b, s, strlen(s) + 1);
}

void bytes_put_blob(struct bytes *b, const void *data, size_t size) {
    bytes_put_u64(b, size);
    bytes_put(b, data, size);
}

void bytes_printf(struct bytes *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0 || !bytes_reserve(b, (size_t)need + 1)) {
        b->failed = true;
    } else {
        vsnprintf((char *)b->data + b->size, (size_t)need + 1, format, again);
        b->size += (size_t)need;
    }
    va_end(again);
}

void bytes_pad(struct bytes *b, size_t alignment, uint8_t fill) {
    while (!b->failed && b->size % alignment != 0) bytes_put_u8(b, fill);
}

struct reader reader_of(const void *data, size_t size) {
    return (struct reader){.data = data, .size = size};
}

const uint8_t *reader_take(struct reader *r, size_t size) {
    if (r->failed || size > r->size - r->at) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->data + r->at;
    r->at += size;
    return p;
}

static uint64_t take_le(struct reader *r, size_t width) {
    const uint8_t *p = reader_take(r, width);
    uint64_t v = 0;
    for (size_t i = 0; p != NULL && i < width; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t reader_u8(struct reader *r) { return (uint8_t)take_le(r, 1); }
uint16_t reader_u16(struct reader *r) { return (uint16_t)take_le(r, 2); }
uint32_t reader_u32(struct reader *r) { return (uint32_t)take_le(r, 4); }
uint64_t reader_u64(struct reader *r) { return take_le(r, 8); }
int64_t reader_i64(struct reader *r) { return (int64_t)take_le(r, 8); }

float reader_f32(struct reader *r) {
    uint32_t bits = reader_u32(r);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

uint32_t reader_u32_below(struct reader *r, uint32_t end) {
    uint32_t v = reader_u32(r);
    if (v < end) return v;
    r->failed = true;
    return 0;
}

uint8_t reader_u8_below(struct reader *r, uint8_t end) {
    uint8_t v = reader_u8(r);
    if (v < end) return v;
    r->failed = true;
    return 0;
}

bool reader_flag(struct reader *r) { return reader_u8_below(r, 2) == 1; }

double reader_f64(struct reader *r) {
    uint64_t raw = take_le(r, 8);
    double v;
    memcpy(&v, &raw, sizeof v);
    return v;
}

void reader_text(struct reader *r, char *out, size_t out_size) {
    out[0] = 0;
    uint32_t size = reader_u32(r);
    const uint8_t *p = reader_take(r, size);
    if (p == NULL) return;
    if (size >= out_size || memchr(p, 0, size) != NULL) {
        r->failed = true;
        return;
    }
    memcpy(out, p, size);
    out[size] = 0;
}

const char *reader_string(struct reader *r) {
    uint32_t size = reader_u32(r);
    const uint8_t *p = reader_take(r, size);
    if (p != NULL && size > 0 && memchr(p, 0, size) == p + size - 1) return (const char *)p;
    r->failed = true;
    return "";
}

const uint8_t *reader_blob(struct reader *r, size_t *size) {
    uint64_t wanted = reader_u64(r);
    const uint8_t *p = wanted <= r->size ? reader_take(r, (size_t)wanted) : NULL;
    if (p == NULL) r->failed = true;
    *size = p != NULL ? (size_t)wanted : 0;
    return p;
}

bool reader_done(const struct reader *r) { return !r->failed && r->at == r->size; }
