/* Reads a stops file (docs/formats/stops.md): a mapping of policies, each a mapping of numbers, over the
 * constants that there are. Tested in tests/unit/fleet_constants_test.c and tests/fuzz/fleet_stops_fuzz.c. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "conf/conf.h"
#include "fleet/constants.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

static pawl_code take_constant(struct fleet_constants *c, const struct conf *conf, const char *policy,
                               const struct conf_node *node, struct pawl_error *e) {
    struct pawl_error inner = {0};
    if (node->kind != CONF_SCALAR || strlen(node->text) != node->size)
        return conf_error(conf, node, e, "%s.%s: wanted one number", policy, node->key);
    pawl_code code = fleet_constants_put(c, policy, node->key, node->text, &inner);
    return code == PAWL_OK ? PAWL_OK : conf_error(conf, node, e, "%s", inner.text);
}

/* Slips in what is overridden are refused, and so is what is there twice: which of them is meant? */
static pawl_code check_twice(const struct conf *conf, const struct conf_node *map, struct pawl_error *e) {
    for (const struct conf_node *a = map->first; a != NULL; a = a->next)
        for (const struct conf_node *b = map->first; b != a; b = b->next)
            if (strcmp(a->key, b->key) == 0) return conf_error(conf, a, e, "%s is there twice", a->key);
    return PAWL_OK;
}

/* No policy has more constants, so that the check above does not take long. */
#define KEYS_MAX 64u

static pawl_code check_map(const struct conf *conf, const struct conf_node *node, const char *what,
                           struct pawl_error *e) {
    if (node->kind != CONF_MAP) return conf_error(conf, node, e, "%s", what);
    if (node->count > KEYS_MAX) return conf_error(conf, node, e, "more than %u keys", KEYS_MAX);
    return check_twice(conf, node, e);
}

static pawl_code take_policy(struct fleet_constants *c, const struct conf *conf, const struct conf_node *node,
                             struct pawl_error *e) {
    pawl_code code =
        check_map(conf, node, "a policy needs its constants below it, as in \"  detect_s: 5\"", e);
    for (const struct conf_node *n = node->first; n != NULL && code == PAWL_OK; n = n->next)
        code = take_constant(c, conf, node->key, n, e);
    return code;
}

pawl_code fleet_constants_parse(struct fleet_constants *c, const char *text, size_t size, const char *name,
                                struct pawl_error *e) {
    struct conf *conf = NULL;
    pawl_code code = conf_parse(text, size, name, PAWL_FORMAT, &conf, e);
    if (code != PAWL_OK || conf->root == NULL) {
        conf_free(conf);
        return code;
    }
    code = check_map(conf, conf->root, "wanted policies, as in \"oobleck:\"", e);
    for (const struct conf_node *n = conf->root->first; n != NULL && code == PAWL_OK; n = n->next)
        code = take_policy(c, conf, n, e);
    conf_free(conf);
    return code;
}

pawl_code fleet_constants_read(struct fleet_constants *c, const char *path, struct pawl_error *e) {
    struct bytes text = {0};
    pawl_code code = file_read(path, FILE_BYTES_MAX, "stops file", &text, e);
    const char *data = text.size > 0 ? (const char *)text.data : "";
    if (code == PAWL_OK) code = fleet_constants_parse(c, data, text.size, path, e);
    bytes_close(&text);
    return code;
}
