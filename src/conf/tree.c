/* libyaml's events made into a tree. See conf.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "conf/conf.h"

/* Longer than any name of ours, so that a name cut here is unknown. */
#define NAME_BYTES 80u

struct build {
    yaml_parser_t parser;
    yaml_event_t event;
    struct conf *conf;
    struct pawl_error *e;
};

static void node_free(struct conf_node *node) {
    while (node != NULL) {
        struct conf_node *next = node->next;
        node_free(node->first); /* at most CONF_DEPTH_MAX deep */
        free(node->key);
        free(node->text);
        free(node);
        node = next;
    }
}

void conf_free(struct conf *conf) {
    if (conf == NULL) return;
    node_free(conf->root);
    free(conf->name);
    free(conf);
}

/* ---- errors ---- */

pawl_code conf_error(const struct conf *conf, const struct conf_node *node, struct pawl_error *e,
                     const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(e, conf->refusal, 0, "%s:%u:%u: %s", conf->name, node->line, node->column, text);
}

/* An error at the current event. */
static pawl_code refuse(struct build *b, const char *what) {
    return error_set(b->e, b->conf->refusal, 0, "%s:%zu:%zu: %s", b->conf->name, b->event.start_mark.line + 1,
                     b->event.start_mark.column + 1, what);
}

static pawl_code no_memory(struct build *b) {
    return error_set(b->e, PAWL_MEMORY, 0, "%s: no memory to read it", b->conf->name);
}

static pawl_code syntax_error(struct build *b) {
    const yaml_parser_t *p = &b->parser;
    if (p->error == YAML_MEMORY_ERROR) return no_memory(b);
    yaml_mark_t mark = p->error == YAML_READER_ERROR ? p->mark : p->problem_mark;
    return error_set(b->e, b->conf->refusal, 0, "%s:%zu:%zu: not YAML: %s%s%s", b->conf->name, mark.line + 1,
                     mark.column + 1, p->problem != NULL ? p->problem : "unreadable",
                     p->context != NULL ? ", " : "", p->context != NULL ? p->context : "");
}

/* ---- events ---- */

static pawl_code next(struct build *b) {
    yaml_event_delete(&b->event);
    return yaml_parser_parse(&b->parser, &b->event) != 0 ? PAWL_OK : syntax_error(b);
}

/* The current event begins a value: no anchor, no tag, no alias. */
static pawl_code check_plain(struct build *b) {
    const yaml_event_t *v = &b->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (v->type == YAML_ALIAS_EVENT) return refuse(b, "an alias (*) has no use here: write the value");
    if (v->type == YAML_SCALAR_EVENT) anchor = v->data.scalar.anchor, tag = v->data.scalar.tag;
    if (v->type == YAML_SEQUENCE_START_EVENT)
        anchor = v->data.sequence_start.anchor, tag = v->data.sequence_start.tag;
    if (v->type == YAML_MAPPING_START_EVENT)
        anchor = v->data.mapping_start.anchor, tag = v->data.mapping_start.tag;
    if (anchor != NULL) return refuse(b, "an anchor (&) has no use here: remove it");
    if (tag != NULL) return refuse(b, "a tag (!) has no use here: remove it");
    return PAWL_OK;
}

static pawl_code take_scalar(struct build *b, struct conf_node *node) {
    const yaml_event_t *v = &b->event;
    node->size = v->data.scalar.length;
    node->plain = v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->text = malloc(node->size + 1);
    if (node->text == NULL) return no_memory(b);
    memcpy(node->text, v->data.scalar.value, node->size);
    node->text[node->size] = 0;
    return PAWL_OK;
}

/* The current event is a key; its text is cut to NAME_BYTES. */
static pawl_code take_key(struct build *b, struct conf_node *node) {
    const yaml_event_t *v = &b->event;
    pawl_code code = check_plain(b);
    if (code != PAWL_OK) return code;
    if (v->type != YAML_SCALAR_EVENT) return refuse(b, "a key must be a plain name");
    size_t size = v->data.scalar.length < NAME_BYTES ? v->data.scalar.length : NAME_BYTES - 1;
    node->key = malloc(size + 1);
    if (node->key == NULL) return no_memory(b);
    memcpy(node->key, v->data.scalar.value, size);
    for (size_t i = 0; i < size; i++)
        if (node->key[i] == 0) node->key[i] = '?';
    node->key[size] = 0;
    node->key_line = (uint32_t)v->start_mark.line + 1;
    node->key_column = (uint32_t)v->start_mark.column + 1;
    return PAWL_OK;
}

static pawl_code read_node(struct build *b, struct conf_node *node, uint32_t depth);

/* The children of a list or a map, up to its end. */
static pawl_code read_children(struct build *b, struct conf_node *node, uint32_t depth) {
    yaml_event_type_t end = node->kind == CONF_LIST ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT;
    struct conf_node **place = &node->first;
    for (;;) {
        pawl_code code = next(b);
        if (code != PAWL_OK || b->event.type == end) return code;
        struct conf_node *child = *place = calloc(1, sizeof *child);
        if (child == NULL) return no_memory(b);
        node->count++;
        place = &child->next;
        if (node->kind == CONF_MAP) {
            code = take_key(b, child);
            if (code == PAWL_OK) code = next(b);
        }
        if (code == PAWL_OK) code = read_node(b, child, depth + 1);
        if (code != PAWL_OK) return code;
    }
}

/* The value that the current event begins. */
static pawl_code read_node(struct build *b, struct conf_node *node, uint32_t depth) {
    node->line = (uint32_t)b->event.start_mark.line + 1;
    node->column = (uint32_t)b->event.start_mark.column + 1;
    pawl_code code = check_plain(b);
    if (code != PAWL_OK) return code;
    if (b->event.type == YAML_SCALAR_EVENT) return take_scalar(b, node);
    if (depth >= CONF_DEPTH_MAX) return refuse(b, "lists and maps are nested too deeply");
    node->kind = b->event.type == YAML_SEQUENCE_START_EVENT ? CONF_LIST : CONF_MAP;
    return read_children(b, node, depth);
}

static pawl_code read_stream(struct build *b) {
    pawl_code code = next(b); /* stream start */
    if (code == PAWL_OK) code = next(b);
    if (code != PAWL_OK || b->event.type == YAML_STREAM_END_EVENT) return code;
    code = next(b); /* the document's root */
    if (code != PAWL_OK) return code;
    b->conf->root = calloc(1, sizeof *b->conf->root);
    if (b->conf->root == NULL) return no_memory(b);
    code = read_node(b, b->conf->root, 0);
    if (code == PAWL_OK) code = next(b); /* document end */
    if (code == PAWL_OK) code = next(b);
    if (code == PAWL_OK && b->event.type != YAML_STREAM_END_EVENT)
        return refuse(b, "a second document begins: there may be one in a file");
    return code;
}

/* Before libyaml sees it: its own message for bad UTF-8 has no line. */
static pawl_code check_encoding(const struct build *b, const char *text, size_t size) {
    size_t bad = conf_utf8_bad(text, size), line = 1, start = 0;
    if (bad == size) return PAWL_OK;
    for (size_t i = 0; i < bad; i++)
        if (text[i] == '\n') line++, start = i + 1;
    return error_set(b->e, b->conf->refusal, 0,
                     "%s:%zu:%zu: byte 0x%02x is not UTF-8: save the file as UTF-8", b->conf->name, line,
                     bad - start + 1, (unsigned char)text[bad]);
}

static pawl_code parse_into(struct build *b, const char *text, size_t size) {
    static const char bom[] = "\xef\xbb\xbf";
    pawl_code code = check_encoding(b, text, size);
    if (code != PAWL_OK) return code;
    if (size >= 3 && memcmp(text, bom, 3) == 0) text += 3, size -= 3;
    if (yaml_parser_initialize(&b->parser) == 0) return no_memory(b);
    yaml_parser_set_encoding(&b->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b->parser, (const unsigned char *)(size == 0 ? "" : text), size);
    code = read_stream(b);
    yaml_event_delete(&b->event);
    yaml_parser_delete(&b->parser);
    return code;
}

pawl_code conf_parse(const char *text, size_t size, const char *name, pawl_code refusal, struct conf **out,
                     struct pawl_error *e) {
    struct build b = {.conf = calloc(1, sizeof *b.conf), .e = e};
    if (b.conf != NULL) b.conf->name = strdup(name);
    if (b.conf == NULL || b.conf->name == NULL) {
        conf_free(b.conf);
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    }
    b.conf->refusal = refusal;
    pawl_code code = parse_into(&b, text, size);
    if (code == PAWL_OK)
        *out = b.conf;
    else
        conf_free(b.conf);
    return code;
}

/* ---- maps ---- */

bool conf_is_empty(const struct conf_node *node) {
    return node->kind == CONF_SCALAR && node->plain && node->size == 0;
}

static pawl_code unknown_key(const struct conf *conf, const struct conf_node *node, const char *what,
                             const char *const *names, uint32_t count, struct pawl_error *e) {
    const char *best = NULL;
    unsigned least = CONF_FAR, distance;
    for (uint32_t i = 0; i < count; i++)
        if (conf_near(names[i], node->key, &distance) && distance < least) best = names[i], least = distance;
    char shown[NAME_BYTES + 8], list[400];
    conf_quote(node->key, strlen(node->key), shown, sizeof shown);
    size_t used = 0;
    for (uint32_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", names[i]);
    return error_set(e, conf->refusal, 0, "%s:%u:%u: %s has no key %s: %s%s%s", conf->name, node->key_line,
                     node->key_column, what, shown, best != NULL ? "did you mean " : "there are ",
                     best != NULL ? best : list, best != NULL ? "?" : "");
}

pawl_code conf_map(const struct conf *conf, const struct conf_node *node, const char *what,
                   const char *const *names, uint32_t count, struct conf_node **place, struct pawl_error *e) {
    for (uint32_t i = 0; i < count; i++) place[i] = NULL;
    if (node->kind != CONF_MAP) return conf_error(conf, node, e, "%s must be keys with values", what);
    for (struct conf_node *n = node->first; n != NULL; n = n->next) {
        uint32_t i = 0;
        while (i < count && strcmp(names[i], n->key) != 0) i++;
        if (i == count) return unknown_key(conf, n, what, names, count, e);
        if (place[i] != NULL)
            return error_set(e, conf->refusal, 0, "%s:%u:%u: %s of %s is given twice: remove one", conf->name,
                             n->key_line, n->key_column, n->key, what);
        place[i] = n;
    }
    return PAWL_OK;
}
