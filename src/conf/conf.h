/* Files that people write: YAML, and JSON, which libyaml reads as well, as a tree that knows where in the
 * file every value stands.
 *
 * libyaml knows the syntax; this module knows which of it such a file may use. Anchors, aliases, tags and
 * deep nesting are refused on sight, so that no input makes a reader do more work than its length. Numbers
 * are plain decimals in every locale, since pawl lives inside other people's programs. Errors are one line
 * that begins "name:line:column: ". Nothing here opens files. Tested in tests/unit/conf_*, and through the
 * spec and the profile in tests/fuzz. */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

#define CONF_DEPTH_MAX 8u /* of nesting: none of our files needs more than 4 */
#define CONF_BYTES_MAX                                                                                       \
    (1u << 24) /* of a file, for whoever reads it: a limit per worker of the largest cluster fits */

enum conf_kind { CONF_SCALAR, CONF_LIST, CONF_MAP };

struct conf_node {
    enum conf_kind kind;
    uint32_t line, column;         /* of the value, from 1 */
    uint32_t key_line, key_column; /* in a map */
    char *key;                     /* in a map; a 0 inside reads as '?'; else null */
    char *text;                    /* scalar: terminated; `size` tells whether a 0 is inside */
    size_t size;
    bool plain;                     /* scalar without quotes */
    uint32_t count;                 /* of children */
    struct conf_node *first, *next; /* first child; next sibling */
};

struct conf {
    char *name;             /* of the file, for errors */
    pawl_code refusal;      /* the code of its errors: FORMAT, SPEC */
    struct conf_node *root; /* null: the text holds nothing */
};

/* Errors: `refusal` (not UTF-8, not YAML, a second document, what is not allowed here), MEMORY. */
pawl_code conf_parse(const char *text, size_t size, const char *name, pawl_code refusal, struct conf **out,
                     struct pawl_error *e);
void conf_free(struct conf *conf); /* accepts null */

/* A scalar that holds nothing: "key:" with nothing behind it. */
bool conf_is_empty(const struct conf_node *node);
/* An error at a node's value; returns conf->refusal. */
pawl_code conf_error(const struct conf *conf, const struct conf_node *node, struct pawl_error *e,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The node is a map whose keys are all among names[0 .. count-1], none twice; place[i] (null: not given)
 * receives the value of names[i]. `what` names the map in errors: "stage 3". */
pawl_code conf_map(const struct conf *conf, const struct conf_node *node, const char *what,
                   const char *const *names, uint32_t count, struct conf_node **place, struct pawl_error *e);

/* ---- scalars ---- */

/* Digits alone, without leading zeros (YAML 1.1 takes 010 for 8); false: it is none, or over UINT64_MAX. */
bool conf_whole(const char *text, uint64_t *out);
/* [+-] digits [. digits] [e [+-] digits]; false: none, or beyond what a double holds. */
bool conf_real(const char *text, double *out);
/* Shortest digits that read back equal, whole numbers below 1e15 without an exponent, with a point whatever
 * the locale; text as a double-quoted scalar of YAML and JSON. */
void conf_print_real(double value, struct bytes *out);
void conf_print_text(const char *text, struct bytes *out);

/* Length of the UTF-8 sequence at `s` and its code point, 0 if there is none (RFC 3629: no surrogates, no
 * overlong forms, nothing above U+10FFFF). */
size_t conf_utf8_next(const unsigned char *s, size_t left, uint32_t *point);
size_t conf_utf8_bad(const char *text,
                     size_t size); /* offset of the first byte that is not UTF-8, or `size` */
bool conf_is_control(uint32_t point);

/* `text` in quotes for a one-line message: control characters become '?', long texts end in "...". */
void conf_quote(const char *text, size_t size, char *out, size_t out_size);

/* Is `wrong` so near to `name` that it may be a slip of the pen? Then *distance is the number of letters that
 * differ. */
bool conf_near(const char *name, const char *wrong, unsigned *distance);
/* Optimal string alignment distance: inserted, lost, changed and swapped letters; at most CONF_FAR. */
#define CONF_FAR 64u
unsigned conf_distance(const char *a, const char *b);

#endif
