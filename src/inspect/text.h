/* Text of unknown origin made harmless: for a terminal, and as JSON. A fuzz target. */
#ifndef INSPECT_TEXT_H
#define INSPECT_TEXT_H

#include "base/bytes.h"
#include "base/json.h"

/* Appends `text`; control characters, marks that turn the direction of writing, and what is not UTF-8 come
 * out as \xNN or \u{NNNN}. A backslash stays one. */
void text_put_safe(struct bytes *out, const char *text, size_t size);
/* A JSON string: the same characters as \uNNNN, bytes that are not UTF-8 as the four characters \xNN. */
void text_put_json(struct json *j, const char *key, const char *text); /* null: null */
/* A value that is JSON already, put on one line. */
void text_put_raw(struct json *j, const char *key, const char *json, size_t size);
/* One JSON value, strictly by RFC 8259, no NUL, nested at most TEXT_JSON_DEPTH deep. */
#define TEXT_JSON_DEPTH 200
bool text_is_json(const char *text, size_t size);
bool text_is_utf8(const char *text, size_t size);

#endif
