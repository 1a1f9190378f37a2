/* A buffered writer that remembers its first failure: all writers of this module print through it.
 *
 * Streams, so that a plan of a million instructions needs no memory; formats whole numbers by itself, since
 * printf would take most of the time. Nothing is checked in between: out_end tells whether every byte went
 * out. Thread: caller's. Tested in tests/unit/show_out_test.c. */
#ifndef SHOW_OUT_H
#define SHOW_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define OUT_ROOM 65536u

struct out {
    FILE *file;
    int os_errno; /* of the first failure; 0: none */
    size_t used;
    char room[OUT_ROOM];
};

void out_begin(struct out *o, FILE *file);
/* Flushes; IO with errno if any byte could not be written. `what` names what was written. */
pawl_code out_end(struct out *o, const char *what, struct pawl_error *e);

void out_char(struct out *o, char c);
void out_raw(struct out *o, const char *data, size_t size);
void out_text(struct out *o, const char *text);
void out_pad(struct out *o, char c, size_t count);
void out_u64(struct out *o, uint64_t value);
void out_time(struct out *o, uint64_t ticks); /* as show_time */
void out_f64(struct out *o, double value);    /* shortest that reads back equal; "null" if not finite */
void out_pixels(struct out *o, double value); /* two decimals at most, for drawings */
/* "1 stage", "2 stages". */
void out_count(struct out *o, uint64_t count, const char *noun);
void out_printf(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text of unknown origin, made harmless: control characters and what is not UTF-8 come out as U+FFFD, but as
 * \u00NN in JSON, which can say them. XML: & < > " ' as entities. JSON: with its quotes; null: null. Plain:
 * for a terminal. */
void out_xml(struct out *o, const char *text);
void out_json(struct out *o, const char *text);
void out_plain(struct out *o, const char *text);

/* A JSON member that is not the first of its object: comma, key, value. Keys are ours and need no escapes. */
void out_key(struct out *o, const char *key);
void out_key_u64(struct out *o, const char *key, uint64_t value);
void out_key_f64(struct out *o, const char *key, double value);
void out_key_time(struct out *o, const char *key, uint64_t ticks);
void out_key_bool(struct out *o, const char *key, bool value);
void out_key_text(struct out *o, const char *key, const char *text);  /* null: "" */
void out_key_lines(struct out *o, const char *key, const char *text); /* an array, of its lines; null: none */

/* The next line of a text (null: none), cut to OUT_LINE; false: there is none. */
#define OUT_LINE 1024u
bool out_next_line(const char **text, char line[OUT_LINE]);

/* Characters that a terminal shows for UTF-8 text, taking each as one column wide. */
size_t out_columns(const char *text);

#endif
