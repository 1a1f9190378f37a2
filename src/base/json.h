/* Writes JSON text into a `struct bytes`, streaming, so that large output needs no tree. Commas are
 * placed by the writer. Non-finite numbers become null. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/bytes.h"

struct json {
    struct bytes *out;
    bool need_comma;
};

struct json json_begin(struct bytes *out);
/* `key` null inside arrays and at the top. */
void json_object(struct json *j, const char *key);
void json_array(struct json *j, const char *key);
void json_end_object(struct json *j);
void json_end_array(struct json *j);
void json_text(struct json *j, const char *key, const char *value);
void json_i64(struct json *j, const char *key, int64_t value);
void json_u64(struct json *j, const char *key, uint64_t value);
void json_f64(struct json *j, const char *key, double value); /* shortest text that reads back equal */
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

#endif
