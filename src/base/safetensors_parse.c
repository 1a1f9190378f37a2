/* Reads the text of a safetensors header. The grammar is fixed and shallow (an object of tensors, each
 * an object of three known keys), so it is read by its own strict parser: no recursion, no numbers
 * through double, no key that silently wins over another of the same name. Every refusal names the
 * byte of the file where it happened. */
#include <stdlib.h>
#include <string.h>

#include "base/safetensors_private.h"

/* torch and numpy stop at 64 dimensions. */
#define RANK_MAX 64u

struct parser {
    const uint8_t *text;
    size_t size;
    size_t at;
    struct bytes key; /* the string read last, terminated; reused */
    struct bytes value;
    struct pawl_error *e;
};

static pawl_code refuse(const struct parser *p, const char *wanted) {
    if (p->at >= p->size)
        return error_set(p->e, PAWL_FORMAT, 0, "safetensors header ends at byte %zu: wanted %s", p->at + 8,
                         wanted);
    return error_set(p->e, PAWL_FORMAT, 0, "safetensors header, byte %zu: wanted %s, had 0x%02x", p->at + 8,
                     wanted, p->text[p->at]);
}

static void skip_space(struct parser *p) {
    while (p->at < p->size && memchr(" \t\r\n", p->text[p->at], 4) != NULL) p->at++;
}

static bool take(struct parser *p, char c) {
    skip_space(p);
    if (p->at >= p->size || p->text[p->at] != (uint8_t)c) return false;
    p->at++;
    return true;
}

/* --- strings --- */

static pawl_code hex4(struct parser *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        uint8_t c = p->at < p->size ? p->text[p->at] : 0;
        uint32_t digit = c >= '0' && c <= '9'   ? c - (uint32_t)'0'
                         : c >= 'a' && c <= 'f' ? c - (uint32_t)'a' + 10
                         : c >= 'A' && c <= 'F' ? c - (uint32_t)'A' + 10
                                                : 16;
        if (digit == 16) return refuse(p, "a hexadecimal digit");
        *out = *out << 4 | digit;
    }
    return PAWL_OK;
}

static void put_point(struct bytes *out, uint32_t c) {
    if (c < 0x80) {
        bytes_put_u8(out, (uint8_t)c);
    } else if (c < 0x800) {
        bytes_put_u8(out, (uint8_t)(0xC0 | c >> 6));
    } else if (c < 0x10000) {
        bytes_put_u8(out, (uint8_t)(0xE0 | c >> 12));
        bytes_put_u8(out, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
    } else {
        bytes_put_u8(out, (uint8_t)(0xF0 | c >> 18));
        bytes_put_u8(out, (uint8_t)(0x80 | (c >> 12 & 0x3F)));
        bytes_put_u8(out, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
    }
    if (c >= 0x80) bytes_put_u8(out, (uint8_t)(0x80 | (c & 0x3F)));
}

/* After "\u": one code point, from two escapes if it is above U+FFFF. */
static pawl_code parse_point(struct parser *p, struct bytes *out) {
    uint32_t c, low;
    pawl_code code = hex4(p, &c);
    if (code != PAWL_OK) return code;
    if (c >= 0xD800 && c < 0xDC00) {
        if (p->size - p->at < 2 || p->text[p->at] != '\\' || p->text[p->at + 1] != 'u')
            return refuse(p, "the second half of a surrogate pair");
        p->at += 2;
        code = hex4(p, &low);
        if (code != PAWL_OK) return code;
        if (low < 0xDC00 || low >= 0xE000) return refuse(p, "a low surrogate before this");
        c = 0x10000 + ((c - 0xD800) << 10 | (low - 0xDC00));
    } else if (c == 0 || (c >= 0xDC00 && c < 0xE000)) {
        return refuse(p, "a character other than NUL or half a surrogate pair before this");
    }
    put_point(out, c);
    return PAWL_OK;
}

static pawl_code parse_escape(struct parser *p, struct bytes *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    uint8_t c = p->at < p->size ? p->text[p->at] : 0;
    const char *found = c != 0 ? strchr(names, c) : NULL;
    if (found == NULL && c != 'u') return refuse(p, "an escape");
    p->at++;
    if (c == 'u') return parse_point(p, out);
    bytes_put_u8(out, (uint8_t)values[found - names]);
    return PAWL_OK;
}

static pawl_code parse_string(struct parser *p, struct bytes *out) {
    if (!take(p, '"')) return refuse(p, "a string");
    bytes_clear(out);
    while (p->at < p->size && p->text[p->at] != '"') {
        size_t run = p->at;
        while (p->at < p->size && p->text[p->at] >= 0x20 && p->text[p->at] != '"' && p->text[p->at] != '\\')
            p->at++;
        if (!st_utf8_valid(p->text + run, p->at - run)) {
            p->at = run;
            return refuse(p, "UTF-8 in the string from here");
        }
        bytes_put(out, p->text + run, p->at - run);
        if (p->at < p->size && p->text[p->at] < 0x20) return refuse(p, "no control character in a string");
        if (p->at < p->size && p->text[p->at] == '\\') {
            p->at++;
            pawl_code code = parse_escape(p, out);
            if (code != PAWL_OK) return code;
        }
    }
    if (!take(p, '"')) return refuse(p, "the end of a string");
    bytes_put_u8(out, 0);
    return out->failed ? error_set(p->e, PAWL_MEMORY, 0, "safetensors header: no memory for a string")
                       : PAWL_OK;
}

static const char *text_of(const struct bytes *b) { return (const char *)b->data; }

/* --- numbers --- */

static pawl_code parse_u64(struct parser *p, uint64_t *out) {
    skip_space(p);
    size_t start = p->at;
    *out = 0;
    for (; p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
        uint64_t digit = p->text[p->at] - (uint64_t)'0';
        if (__builtin_mul_overflow(*out, (uint64_t)10, out) || __builtin_add_overflow(*out, digit, out))
            return refuse(p, "a number below 2^64");
    }
    if (p->at == start) return refuse(p, "an unsigned whole number");
    if (p->text[start] == '0' && p->at - start > 1) {
        p->at = start;
        return refuse(p, "a number without a leading zero");
    }
    return PAWL_OK;
}

static pawl_code parse_u64_array(struct parser *p, uint64_t *out, uint32_t max, uint32_t *count) {
    *count = 0;
    if (!take(p, '[')) return refuse(p, "[");
    if (take(p, ']')) return PAWL_OK;
    do {
        if (*count == max) return refuse(p, "the end of the array: it has too many numbers");
        pawl_code code = parse_u64(p, &out[(*count)++]);
        if (code != PAWL_OK) return code;
    } while (take(p, ','));
    return take(p, ']') ? PAWL_OK : refuse(p, "] or a comma");
}

/* --- the object --- */

struct entry { /* one tensor's fields, as they come */
    enum pawl_dtype dtype;
    uint32_t rank;
    uint64_t shape[RANK_MAX];
    uint64_t place[2];
    bool has_dtype, has_shape, has_place;
};

static pawl_code parse_dtype(struct parser *p, struct entry *t, const char *name) {
    struct bytes *text = &p->value;
    pawl_code code = parse_string(p, text);
    if (code != PAWL_OK) return code;
    t->dtype = st_dtype_of_name(text_of(text));
    if (t->dtype == PAWL_DTYPE_COUNT)
        return error_set(p->e, PAWL_FORMAT, 0, "tensor \"%.200s\": unknown dtype \"%.40s\"", name,
                         text_of(text));
    return PAWL_OK;
}

static pawl_code parse_field(struct parser *p, struct entry *t, const char *name) {
    pawl_code code = parse_string(p, &p->value);
    if (code != PAWL_OK) return code;
    const char *key = text_of(&p->value);
    bool *seen = strcmp(key, "dtype") == 0          ? &t->has_dtype
                 : strcmp(key, "shape") == 0        ? &t->has_shape
                 : strcmp(key, "data_offsets") == 0 ? &t->has_place
                                                    : NULL;
    if (seen == NULL || *seen)
        return error_set(p->e, PAWL_FORMAT, 0, "tensor \"%.200s\": %s key \"%.40s\"", name,
                         seen == NULL ? "unknown" : "repeated", key);
    *seen = true;
    if (!take(p, ':')) return refuse(p, "a colon");
    if (seen == &t->has_dtype) return parse_dtype(p, t, name);
    if (seen == &t->has_shape) return parse_u64_array(p, t->shape, RANK_MAX, &t->rank);
    uint32_t count;
    code = parse_u64_array(p, t->place, 2, &count);
    return code == PAWL_OK && count != 2 ? refuse(p, "two data_offsets before this") : code;
}

static pawl_code parse_tensor(struct parser *p, struct st_header *h, const char *name) {
    struct entry t = {.dtype = PAWL_DTYPE_COUNT};
    pawl_code code;
    if (!take(p, '{')) return refuse(p, "{");
    do {
        code = parse_field(p, &t, name);
        if (code != PAWL_OK) return code;
    } while (take(p, ','));
    if (!take(p, '}')) return refuse(p, "} or a comma");
    if (!t.has_dtype || !t.has_shape || !t.has_place)
        return error_set(p->e, PAWL_FORMAT, 0, "tensor \"%.200s\": no %s", name,
                         !t.has_dtype   ? "dtype"
                         : !t.has_shape ? "shape"
                                        : "data_offsets");
    code = st_header_add(h, name, t.dtype, t.rank, t.shape, t.place[0], p->e);
    if (code != PAWL_OK) return code;
    uint64_t bytes = h->tensors[h->tensor_count - 1].bytes;
    if (t.place[1] < t.place[0] || t.place[1] - t.place[0] != bytes)
        return error_set(p->e, PAWL_FORMAT, 0,
                         "tensor \"%.200s\": data_offsets %llu..%llu, but dtype and shape make %llu bytes",
                         name, (unsigned long long)t.place[0], (unsigned long long)t.place[1],
                         (unsigned long long)bytes);
    return PAWL_OK;
}

static pawl_code parse_metadata(struct parser *p, struct st_header *h) {
    if (!take(p, '{')) return refuse(p, "{");
    if (take(p, '}')) return PAWL_OK;
    do {
        pawl_code code = parse_string(p, &p->key);
        if (code != PAWL_OK) return code;
        if (!take(p, ':')) return refuse(p, "a colon");
        code = parse_string(p, &p->value);
        if (code != PAWL_OK) return code;
        code = st_header_append_metadata(h, text_of(&p->key), text_of(&p->value), p->e);
        if (code != PAWL_OK) return code;
    } while (take(p, ','));
    return take(p, '}') ? PAWL_OK : refuse(p, "} or a comma");
}

static pawl_code parse_entry(struct parser *p, struct st_header *h, bool *metadata_seen) {
    pawl_code code = parse_string(p, &p->key);
    if (code != PAWL_OK) return code;
    if (!take(p, ':')) return refuse(p, "a colon");
    if (strcmp(text_of(&p->key), "__metadata__") != 0) return parse_tensor(p, h, text_of(&p->key));
    if (*metadata_seen)
        return error_set(p->e, PAWL_FORMAT, 0, "safetensors header: __metadata__ comes twice");
    *metadata_seen = true;
    return parse_metadata(p, h);
}

static pawl_code parse_header(struct parser *p, struct st_header *h) {
    bool metadata_seen = false;
    if (p->size == 0 || p->text[0] != '{') return refuse(p, "{ as its first character");
    p->at = 1;
    if (!take(p, '}')) {
        do {
            pawl_code code = parse_entry(p, h, &metadata_seen);
            if (code != PAWL_OK) return code;
        } while (take(p, ','));
        if (!take(p, '}')) return refuse(p, "} or a comma");
    }
    skip_space(p);
    return p->at == p->size ? PAWL_OK : refuse(p, "nothing but spaces after the object");
}

uint64_t st_header_size(const uint8_t first[8]) {
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)first[i] << (8 * i);
    return length < 2 || length > ST_HEADER_BYTES_MAX ? 0 : length + 8;
}

pawl_code st_header_parse(const void *data, size_t size, uint64_t file_bytes, struct st_header *h,
                          struct pawl_error *e) {
    *h = (struct st_header){0};
    if (size < 8 || file_bytes < 8)
        return error_set(e, PAWL_FORMAT, 0, "safetensors: a file has at least 8 bytes, had %llu",
                         (unsigned long long)(size < file_bytes ? size : file_bytes));
    uint64_t wanted = st_header_size(data);
    if (wanted == 0)
        return error_set(e, PAWL_FORMAT, 0, "safetensors: the first 8 bytes are no header length");
    if (wanted > size || wanted > file_bytes)
        return error_set(e, PAWL_FORMAT, 0, "safetensors: header of %llu bytes wanted, had %llu",
                         (unsigned long long)wanted, (unsigned long long)(wanted > size ? size : file_bytes));
    struct parser p = {.text = (const uint8_t *)data + 8, .size = (size_t)wanted - 8, .e = e};
    pawl_code code = parse_header(&p, h);
    if (code == PAWL_OK) code = st_header_check(h, &h->data_bytes, e);
    h->data_offset = wanted;
    if (code == PAWL_OK && h->data_bytes != file_bytes - wanted)
        code = error_set(e, PAWL_FORMAT, 0, "safetensors: tensors make %llu bytes of data, the file has %llu",
                         (unsigned long long)h->data_bytes, (unsigned long long)(file_bytes - wanted));
    bytes_close(&p.key);
    bytes_close(&p.value);
    if (code != PAWL_OK) st_header_close(h);
    return code;
}
