/* The table of fields and what acts on one field; private to the spec files of this folder.
 *
 * A field lives at an offset of struct spec_record, whose first member is struct spec, so that a field users
 * may write (SPEC_INPUT) is read and printed in a bare struct spec, too. The others are derived: the
 * identity of a run needs the content of its text and the size of its global batch, not the path and the
 * layout. Every function here fills `e` and never looks at files. */
#ifndef RUN_SPEC_FIELD_H
#define RUN_SPEC_FIELD_H

#include "run/spec.h"

enum spec_type {
    SPEC_U32,
    SPEC_U64,
    SPEC_F64,
    SPEC_BOOL,
    SPEC_TEXT,
    SPEC_FORMAT,
    SPEC_SCHEDULE,
    SPEC_ENGINE,
    SPEC_SUMS
};
enum spec_use {
    SPEC_INPUT = 1,
    SPEC_IDENTITY = 2,
    SPEC_GPT = 4,
    SPEC_EMULATED = 8,
    SPEC_TORCH = 16
}; /* 4, 8, 16: of this engine */

#define SPEC_DIGEST_SIZE 17 /* 16 hexadecimal digits and a 0 */

struct spec_record {
    struct spec spec;
    char data_digest[SPEC_DIGEST_SIZE];
    uint64_t global_microbatches;
    uint32_t chunks; /* of an emulated run: another cut is another model */
};

struct spec_field {
    const char *section, *key;
    enum spec_type type;
    uint32_t offset, size; /* in struct spec_record, bytes */
    const char *initial;   /* the default as text; null: must be given */
    uint64_t low, high;    /* SPEC_U32, SPEC_U64 */
    double min, max;       /* SPEC_F64 */
    unsigned uses;
    const char *help;
};

struct spec_section {
    const char *name, *help;
};

extern const struct spec_field spec_fields[];
extern const uint32_t spec_field_count;
extern const struct spec_section spec_sections[];
extern const uint32_t spec_section_count;

/* A scalar as the YAML file or the command line has it. */
struct spec_scalar {
    const char *text; /* terminated; `size` tells whether a 0 is inside */
    size_t size;
    bool plain; /* without quotes */
};

/* The defaults; fields that must be given are 0 or empty, which no valid value of theirs is. */
void spec_defaults(struct spec_record *out);

/* The field called section.key among those with a bit of `uses`; a SPEC error suggests the nearest name. */
pawl_code spec_field_find(const char *section, const char *key, unsigned uses, const struct spec_field **out,
                          struct pawl_error *e);
pawl_code spec_section_find(const char *section, struct pawl_error *e);

/* Text to value, range checked, and back; `base` is a struct spec_record, or a struct spec for SPEC_INPUT. */
pawl_code spec_field_read(const struct spec_field *field, const struct spec_scalar *scalar, void *base,
                          struct pawl_error *e);
void spec_field_print(const struct spec_field *field, const void *base, struct bytes *out);
/* What may be written: "a whole number from 1 to 1024". */
/* spec_plan.c: the schedule has a plan within the memory when everybody is there; PAWL_SPEC. */
pawl_code spec_check_plan(const struct spec *s, struct pawl_error *e);
void spec_field_rule(const struct spec_field *field, char *out, size_t size);
bool spec_field_missing(const struct spec_field *field, const void *base);
/* Rules of the learning rate alone, when an engine has given it. */
pawl_code spec_check_optimizer(const struct spec *s, struct pawl_error *e);
/* Whether the engine of the spec has this field. */
bool spec_field_applies(const struct spec_field *field, const struct spec *spec);

/* Walks a YAML text of sections of scalars; refuses all else, naming `name`, line and column. `visit` is
 * called at each section (key and value null) and for each key; its error gets the position in front. */
typedef pawl_code spec_visit(void *context, const char *section, const char *key,
                             const struct spec_scalar *value, struct pawl_error *e);
pawl_code spec_yaml_walk(const char *text, size_t size, const char *name, spec_visit *visit, void *context,
                         struct pawl_error *e);

#endif
