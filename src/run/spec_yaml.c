/* Walks the YAML of a spec: a mapping of sections, each a mapping of scalars, in one document.
 *
 * libyaml knows the syntax; this file knows which of it a spec may use, and where in the file an error is.
 * Anchors, aliases, tags, sequences and deeper nesting are refused on sight, so that no input makes it do
 * more work than its length. Tested in tests/unit/run_spec_test.c and tests/fuzz/run_spec_fuzz.c. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "run/spec_field.h"

/* Longer than any name of ours, so that a name cut here is unknown. */
#define NAME_BYTES 80

struct walk {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name;
    spec_visit *visit;
    void *context;
    struct pawl_error *e;
};

/* An error at the current event. */
static pawl_code refuse(struct walk *w, const char *what) {
    return error_set(w->e, PAWL_SPEC, 0, "%s:%zu:%zu: %s", w->name, w->event.start_mark.line + 1,
                     w->event.start_mark.column + 1, what);
}

static pawl_code syntax_error(struct walk *w) {
    const yaml_parser_t *p = &w->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return error_set(w->e, PAWL_MEMORY, 0, "%s: no memory to read it", w->name);
    yaml_mark_t mark = p->error == YAML_READER_ERROR ? p->mark : p->problem_mark;
    return error_set(w->e, PAWL_SPEC, 0, "%s:%zu:%zu: not YAML: %s%s%s", w->name, mark.line + 1,
                     mark.column + 1, p->problem != NULL ? p->problem : "unreadable",
                     p->context != NULL ? ", " : "", p->context != NULL ? p->context : "");
}

static pawl_code next(struct walk *w) {
    yaml_event_delete(&w->event);
    return yaml_parser_parse(&w->parser, &w->event) != 0 ? PAWL_OK : syntax_error(w);
}

static bool is_empty_scalar(const yaml_event_t *event) {
    return event->type == YAML_SCALAR_EVENT && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           event->data.scalar.length == 0 && event->data.scalar.anchor == NULL &&
           event->data.scalar.tag == NULL;
}

/* The current event must be a mapping without ornaments. */
static pawl_code expect_mapping(struct walk *w, const char *wanted) {
    if (w->event.type != YAML_MAPPING_START_EVENT) return refuse(w, wanted);
    if (w->event.data.mapping_start.anchor != NULL)
        return refuse(w, "an anchor (&) has no use here: remove it");
    if (w->event.data.mapping_start.tag != NULL) return refuse(w, "a tag (!) has no use here: remove it");
    return PAWL_OK;
}

static pawl_code expect_scalar(struct walk *w, const char *wanted) {
    if (w->event.type == YAML_ALIAS_EVENT) return refuse(w, "an alias (*) has no use here: write the value");
    if (w->event.type != YAML_SCALAR_EVENT) return refuse(w, wanted);
    if (w->event.data.scalar.anchor != NULL) return refuse(w, "an anchor (&) has no use here: remove it");
    if (w->event.data.scalar.tag != NULL) return refuse(w, "a tag (!) has no use here: remove it");
    return PAWL_OK;
}

/* The name at the current event, cut to its place; a 0 inside becomes a '?', which no name of ours has. */
static void take_name(const struct walk *w, char out[NAME_BYTES]) {
    size_t size = w->event.data.scalar.length;
    if (size >= NAME_BYTES) size = NAME_BYTES - 1;
    memcpy(out, w->event.data.scalar.value, size);
    for (size_t i = 0; i < size; i++)
        if (out[i] == 0) out[i] = '?';
    out[size] = 0;
}

/* Calls the visitor and puts the position of `mark` before its error. */
static pawl_code visit_at(struct walk *w, yaml_mark_t mark, const char *section, const char *key,
                          const struct spec_scalar *value) {
    struct pawl_error inner = {0};
    pawl_code code = w->visit(w->context, section, key, value, &inner);
    if (code == PAWL_OK) return PAWL_OK;
    return error_set(w->e, code, 0, "%s:%zu:%zu: %s", w->name, mark.line + 1, mark.column + 1, inner.text);
}

static pawl_code walk_value(struct walk *w, yaml_mark_t key_mark, const char *section, const char *key) {
    pawl_code code = next(w);
    char wanted[2 * NAME_BYTES + 64];
    snprintf(wanted, sizeof wanted, "%s.%s is a list or a mapping: write a single value", section, key);
    if (code == PAWL_OK) code = expect_scalar(w, wanted);
    if (code != PAWL_OK) return code;
    struct spec_scalar value = {
        .text = (const char *)w->event.data.scalar.value,
        .size = w->event.data.scalar.length,
        .plain = w->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE,
    };
    return visit_at(w, key_mark, section, key, &value);
}

static pawl_code walk_section(struct walk *w, const char *section) {
    char key[NAME_BYTES], wanted[NAME_BYTES + 64];
    snprintf(wanted, sizeof wanted, "section %s needs its keys indented below it", section);
    pawl_code code = next(w);
    if (code != PAWL_OK || is_empty_scalar(&w->event)) return code;
    code = expect_mapping(w, wanted);
    while (code == PAWL_OK && (code = next(w)) == PAWL_OK && w->event.type != YAML_MAPPING_END_EVENT) {
        code = expect_scalar(w, "a key must be a plain name");
        if (code != PAWL_OK) break;
        take_name(w, key);
        code = walk_value(w, w->event.start_mark, section, key);
    }
    return code;
}

static pawl_code walk_sections(struct walk *w) {
    char section[NAME_BYTES];
    pawl_code code = expect_mapping(w, "the top level must be sections, as in \"run:\"");
    while (code == PAWL_OK && (code = next(w)) == PAWL_OK && w->event.type != YAML_MAPPING_END_EVENT) {
        code = expect_scalar(w, "a section must be a plain name");
        if (code != PAWL_OK) break;
        take_name(w, section);
        code = visit_at(w, w->event.start_mark, section, NULL, NULL);
        if (code == PAWL_OK) code = walk_section(w, section);
    }
    return code;
}

static pawl_code walk_stream(struct walk *w) {
    static const char empty[] =
        "the spec is empty: it needs at least run.dir, data.path and the sizes of the model";
    pawl_code code = next(w); /* stream start */
    if (code == PAWL_OK) code = next(w);
    if (code != PAWL_OK) return code;
    if (w->event.type == YAML_STREAM_END_EVENT) return refuse(w, empty);
    code = next(w); /* the document's root */
    if (code == PAWL_OK && is_empty_scalar(&w->event)) return refuse(w, empty);
    if (code == PAWL_OK) code = walk_sections(w);
    if (code == PAWL_OK) code = next(w); /* document end */
    if (code == PAWL_OK) code = next(w);
    if (code == PAWL_OK && w->event.type != YAML_STREAM_END_EVENT)
        return refuse(w, "a second document begins: a spec is one document");
    return code;
}

/* Before libyaml sees it: its own message for bad UTF-8 has no line. */
static pawl_code check_encoding(const char *text, size_t size, const char *name, struct pawl_error *e) {
    size_t bad = spec_utf8_bad(text, size), line = 1, start = 0;
    if (bad == size) return PAWL_OK;
    for (size_t i = 0; i < bad; i++)
        if (text[i] == '\n') line++, start = i + 1;
    return error_set(e, PAWL_SPEC, 0, "%s:%zu:%zu: byte 0x%02x is not UTF-8: save the file as UTF-8", name,
                     line, bad - start + 1, (unsigned char)text[bad]);
}

pawl_code spec_yaml_walk(const char *text, size_t size, const char *name, spec_visit *visit, void *context,
                         struct pawl_error *e) {
    static const char bom[] = "\xef\xbb\xbf";
    pawl_code code = check_encoding(text, size, name, e);
    if (code != PAWL_OK) return code;
    if (size >= 3 && memcmp(text, bom, 3) == 0) text += 3, size -= 3;
    struct walk w = {.name = name, .visit = visit, .context = context, .e = e};
    if (yaml_parser_initialize(&w.parser) == 0)
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    yaml_parser_set_encoding(&w.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)(size == 0 ? "" : text), size);
    code = walk_stream(&w);
    yaml_event_delete(&w.event);
    yaml_parser_delete(&w.parser);
    return code;
}
