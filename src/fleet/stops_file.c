/* Reads a stops file (docs/formats/stops.md): YAML, a mapping of policies, each a mapping of numbers.
 *
 * libyaml knows the syntax; anything beyond two levels of plain mappings is refused on sight, so that no
 * input makes this do more work than its length. Tested in tests/unit/fleet_constants_test.c and
 * tests/fuzz/fleet_stops_fuzz.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/error.h"
#include "fleet/constants.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
/* Longer than any name of ours or number that fits it, so that what is cut here is unknown. */
#define WORD_BYTES 80

struct walk {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name;
    struct fleet_constants *constants;
    bool *seen; /* [constants] */
    struct pawl_error *e;
};

static pawl_code refuse_at(struct walk *w, yaml_mark_t mark, const char *what) {
    return error_set(w->e, PAWL_FORMAT, 0, "%s:%zu:%zu: %s", w->name, mark.line + 1, mark.column + 1, what);
}

static pawl_code refuse(struct walk *w, const char *what) { return refuse_at(w, w->event.start_mark, what); }

static pawl_code next(struct walk *w) {
    const yaml_parser_t *p = &w->parser;
    yaml_event_delete(&w->event);
    if (yaml_parser_parse(&w->parser, &w->event) != 0) return PAWL_OK;
    if (p->error == YAML_MEMORY_ERROR)
        return error_set(w->e, PAWL_MEMORY, 0, "%s: no memory to read it", w->name);
    char what[200];
    snprintf(what, sizeof what, "not YAML: %s", p->problem != NULL ? p->problem : "unreadable");
    return refuse_at(w, p->error == YAML_READER_ERROR ? p->mark : p->problem_mark, what);
}

/* The current event must be a word, copied here; cut if it is too long, and a 0 in it becomes '?'. */
static pawl_code take_word(struct walk *w, const char *wanted, char out[WORD_BYTES]) {
    const yaml_event_t *v = &w->event;
    if (v->type != YAML_SCALAR_EVENT || v->data.scalar.anchor != NULL || v->data.scalar.tag != NULL)
        return refuse(w, wanted);
    size_t size = v->data.scalar.length < WORD_BYTES - 1 ? v->data.scalar.length : WORD_BYTES - 1;
    memcpy(out, v->data.scalar.value, size);
    for (size_t i = 0; i < size; i++)
        if (out[i] == 0) out[i] = '?';
    out[size] = 0;
    return PAWL_OK;
}

static bool is_mapping(const struct walk *w) {
    return w->event.type == YAML_MAPPING_START_EVENT && w->event.data.mapping_start.anchor == NULL &&
           w->event.data.mapping_start.tag == NULL;
}

static pawl_code take_constant(struct walk *w, const char *policy) {
    char name[WORD_BYTES], value[WORD_BYTES], what[640];
    struct pawl_error inner = {0};
    yaml_mark_t mark = w->event.start_mark;
    pawl_code code = take_word(w, "a constant must be a plain name", name);
    if (code == PAWL_OK) code = next(w);
    if (code == PAWL_OK) code = take_word(w, "a constant's value must be one number", value);
    if (code != PAWL_OK) return code;
    code = fleet_constants_put(w->constants, policy, name, value, &inner);
    if (code != PAWL_OK) return refuse_at(w, mark, inner.text);
    size_t i = (size_t)(fleet_constant_find(w->constants, policy, name) - w->constants->constant);
    if (w->seen[i]) {
        snprintf(what, sizeof what, "%s.%s is there twice", policy, name);
        return refuse_at(w, mark, what);
    }
    w->seen[i] = true;
    return PAWL_OK;
}

static pawl_code take_policy(struct walk *w) {
    char policy[WORD_BYTES], what[WORD_BYTES + 80];
    pawl_code code = take_word(w, "a policy must be a plain name", policy);
    if (code == PAWL_OK) code = next(w);
    if (code != PAWL_OK) return code;
    snprintf(what, sizeof what, "policy \"%s\" needs its constants below it, as in \"  detect_s: 5\"",
             policy);
    if (!is_mapping(w)) return refuse(w, what);
    while ((code = next(w)) == PAWL_OK && w->event.type != YAML_MAPPING_END_EVENT) {
        code = take_constant(w, policy);
        if (code != PAWL_OK) return code;
    }
    return code;
}

static pawl_code take_document(struct walk *w) {
    pawl_code code = next(w); /* stream start */
    if (code == PAWL_OK) code = next(w);
    if (code != PAWL_OK || w->event.type == YAML_STREAM_END_EVENT) return code; /* nothing in it */
    code = next(w);
    if (code == PAWL_OK && !is_mapping(w))
        return refuse(w, "the top level must be policies, as in \"oobleck:\"");
    while (code == PAWL_OK && (code = next(w)) == PAWL_OK && w->event.type != YAML_MAPPING_END_EVENT)
        code = take_policy(w);
    if (code == PAWL_OK) code = next(w); /* document end */
    if (code == PAWL_OK) code = next(w);
    if (code == PAWL_OK && w->event.type != YAML_STREAM_END_EVENT)
        return refuse(w, "a second document begins: a stops file is one document");
    return code;
}

pawl_code fleet_constants_parse(struct fleet_constants *c, const char *text, size_t size, const char *name,
                                struct pawl_error *e) {
    struct walk w = {.name = name, .constants = c, .e = e};
    w.seen = calloc(c->count, sizeof *w.seen);
    if (w.seen == NULL || yaml_parser_initialize(&w.parser) == 0) {
        free(w.seen);
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    }
    yaml_parser_set_encoding(&w.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)(size == 0 ? "" : text), size);
    pawl_code code = take_document(&w);
    yaml_event_delete(&w.event);
    yaml_parser_delete(&w.parser);
    free(w.seen);
    return code;
}

pawl_code fleet_file_read(const char *path, size_t most, char **out, size_t *size, struct pawl_error *e) {
    FILE *in = fopen(path, "rbe");
    if (in == NULL) return error_set(e, error_code_of_errno(errno), errno, "%s: cannot be opened", path);
    char *text = malloc(most + 1);
    pawl_code code = text == NULL ? error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", path) : PAWL_OK;
    if (code == PAWL_OK) {
        *size = fread(text, 1, most + 1, in);
        if (ferror(in)) code = error_set(e, PAWL_IO, errno, "%s: cannot be read", path);
        if (code == PAWL_OK && *size > most)
            code = error_set(e, PAWL_FORMAT, 0, "%s: more than %zu bytes", path, most);
    }
    fclose(in);
    if (code == PAWL_OK)
        *out = text;
    else
        free(text);
    return code;
}

pawl_code fleet_constants_read(struct fleet_constants *c, const char *path, struct pawl_error *e) {
    char *text = NULL;
    size_t size = 0;
    pawl_code code = fleet_file_read(path, FILE_BYTES_MAX, &text, &size, e);
    if (code == PAWL_OK) code = fleet_constants_parse(c, text, size, path, e);
    free(text);
    return code;
}
