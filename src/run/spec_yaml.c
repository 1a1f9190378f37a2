/* Walks the tree of a spec: a map of sections, each a map of scalars.
 *
 * conf/conf.h reads the text; this file knows which shape a spec has. Tested in tests/unit/run_spec_test.c
 * and tests/fuzz/run_spec_fuzz.c. */
#include <stdio.h>

#include "conf/conf.h"
#include "run/spec_field.h"

struct walk {
    struct conf *conf;
    spec_visit *visit;
    void *context;
    struct pawl_error *e;
};

/* Calls the visitor and puts the position of the node's key before its error. */
static pawl_code visit_at(struct walk *w, const struct conf_node *at, const char *section, const char *key,
                          const struct spec_scalar *value) {
    struct pawl_error inner = {0};
    pawl_code code = w->visit(w->context, section, key, value, &inner);
    if (code == PAWL_OK) return PAWL_OK;
    return error_set(w->e, code, 0, "%s:%u:%u: %s", w->conf->name, at->key_line, at->key_column, inner.text);
}

static pawl_code walk_section(struct walk *w, const struct conf_node *section) {
    if (conf_is_empty(section)) return PAWL_OK;
    if (section->kind != CONF_MAP)
        return conf_error(w->conf, section, w->e, "section %s needs its keys indented below it",
                          section->key);
    for (const struct conf_node *n = section->first; n != NULL; n = n->next) {
        if (n->kind != CONF_SCALAR)
            return conf_error(w->conf, n, w->e, "%s.%s is a list or a mapping: write a single value",
                              section->key, n->key);
        struct spec_scalar value = {.text = n->text, .size = n->size, .plain = n->plain};
        pawl_code code = visit_at(w, n, section->key, n->key, &value);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code walk_sections(struct walk *w, const struct conf_node *root) {
    if (root == NULL || conf_is_empty(root))
        return error_set(w->e, PAWL_SPEC, 0,
                         "%s:1:1: the spec is empty: it needs at least run.dir, data.path and the sizes of "
                         "the model",
                         w->conf->name);
    if (root->kind != CONF_MAP)
        return conf_error(w->conf, root, w->e, "the top level must be sections, as in \"run:\"");
    pawl_code code = PAWL_OK;
    for (const struct conf_node *n = root->first; code == PAWL_OK && n != NULL; n = n->next) {
        code = visit_at(w, n, n->key, NULL, NULL);
        if (code == PAWL_OK) code = walk_section(w, n);
    }
    return code;
}

pawl_code spec_yaml_walk(const char *text, size_t size, const char *name, spec_visit *visit, void *context,
                         struct pawl_error *e) {
    struct walk w = {.visit = visit, .context = context, .e = e};
    pawl_code code = conf_parse(text, size, name, PAWL_SPEC, &w.conf, e);
    if (code == PAWL_OK) code = walk_sections(&w, w.conf->root);
    conf_free(w.conf);
    return code;
}
