/* A profile, or limits of memory, from a YAML or JSON file. Every error is FORMAT and says where in the file;
 * ranges are those of profile.c. Formats: docs/formats/profile.md. Tested in
 * tests/unit/plan_profile_test.c, tests/fuzz/plan_profile_fuzz.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/tune.h>

#include "base/file.h"
#include "conf/conf.h"
#include "ir/ir.h"
#include "plan/profile.h"
#include "plan/profile_read.h"

#define NAMES_MAX 24u
static_assert(PROFILE_STAGE_FIELDS + 1 <= NAMES_MAX && PROFILE_TOP_FIELDS + 5 <= NAMES_MAX, "room for names");

/* ---- values ---- */

static pawl_code wrong_value(const struct conf *conf, const struct conf_node *n, const char *what,
                             const char *wanted, struct pawl_error *e) {
    char shown[80] = "a list or a map";
    if (n->kind == CONF_SCALAR) conf_quote(n->text, n->size, shown, sizeof shown);
    return conf_error(conf, n, e, "%s is %s: write %s", what, shown, wanted);
}

static bool is_text(const struct conf_node *n) {
    return n->kind == CONF_SCALAR && strlen(n->text) == n->size;
}

/* A whole number without quotes, or an amount with a unit, which JSON cannot write without them. Parts of a
 * byte are slips, but for those that a larger unit leaves: 1.1GiB is no whole number of them. */
static bool read_amount(const struct conf_node *n, uint64_t *bytes) {
    const char *unit = n->text + strspn(n->text, "0123456789. ");
    if (*unit == 0) return n->plain && conf_whole(n->text, bytes);
    bool larger = strpbrk(unit, "kKmMgGtT") != NULL;
    if (!larger && strchr(n->text, '.') != NULL) return false;
    return pawl_parse_bytes(n->text, bytes, NULL) == PAWL_OK;
}

static pawl_code read_field(const struct conf *conf, const struct conf_node *n,
                            const struct profile_field *field, void *base, struct pawl_error *e) {
    char *at = (char *)base + field->offset;
    uint64_t whole = 0;
    double real = 0;
    if (field->type == PROFILE_BYTES) {
        if (!is_text(n) || !read_amount(n, &whole))
            return wrong_value(conf, n, field->name, "a whole number of bytes, like 1048576 or 24GiB", e);
        memcpy(at, &whole, sizeof whole);
    } else if (field->type == PROFILE_COUNT) {
        if (!is_text(n) || !n->plain || !conf_whole(n->text, &whole) || whole > UINT32_MAX)
            return wrong_value(conf, n, field->name, "a whole number", e);
        uint32_t narrow = (uint32_t)whole;
        memcpy(at, &narrow, sizeof narrow);
    } else {
        if (!is_text(n) || !n->plain || !conf_real(n->text, &real))
            return wrong_value(conf, n, field->name, "a number", e);
        if (field->type == PROFILE_FACTOR && real == 0)
            return wrong_value(conf, n, field->name, "a number from 0.001 to 1000", e);
        memcpy(at, &real, sizeof real);
    }
    return PAWL_OK;
}

/* What profile_*_good found, at the field in the file, or at the map if the field is not given. */
static pawl_code place_problem(const struct conf *conf, const struct conf_node *map, const char *what,
                               const struct profile_problem *p, struct pawl_error *e) {
    for (const struct conf_node *n = map->first; n != NULL; n = n->next)
        if (strcmp(n->key, p->field) == 0)
            return conf_error(conf, n, e, "%s: %s %s", what, p->field, p->text);
    return conf_error(conf, map, e, "%s: %s is missing", what, p->field);
}

static void names_of(const struct profile_field *fields, uint32_t count, const char **names) {
    for (uint32_t i = 0; i < count; i++) names[i] = fields[i].name;
}

static pawl_code read_fields(const struct conf *conf, struct conf_node *const *place,
                             const struct profile_field *fields, uint32_t count, void *base,
                             struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; code == PAWL_OK && i < count; i++)
        if (place[i] != NULL) code = read_field(conf, place[i], &fields[i], base, e);
    return code;
}

/* ---- stages ---- */

static pawl_code read_stage(const struct conf *conf, const struct conf_node *n, uint32_t number,
                            struct pawl_stage_cost *out, uint32_t *repeat, struct pawl_error *e) {
    static const struct profile_field repeated = {"repeat", PROFILE_COUNT, 0};
    const char *names[NAMES_MAX];
    struct conf_node *place[NAMES_MAX];
    char what[32];
    snprintf(what, sizeof what, "stage %u", number);
    names_of(profile_stage_fields, PROFILE_STAGE_FIELDS, names);
    names[PROFILE_STAGE_FIELDS] = repeated.name;
    pawl_code code = conf_map(conf, n, what, names, PROFILE_STAGE_FIELDS + 1, place, e);
    if (code == PAWL_OK) code = read_fields(conf, place, profile_stage_fields, PROFILE_STAGE_FIELDS, out, e);
    *repeat = 1;
    const struct conf_node *r = place[PROFILE_STAGE_FIELDS];
    if (code == PAWL_OK && r != NULL) code = read_field(conf, r, &repeated, repeat, e);
    if (code == PAWL_OK && r != NULL && (*repeat == 0 || *repeat > IR_STAGES_MAX))
        code = wrong_value(conf, r, "repeat", "how many stages are like this one", e);
    struct profile_problem p = {0};
    if (code == PAWL_OK && !profile_stage_good(out, &p)) code = place_problem(conf, n, what, &p, e);
    return code;
}

static pawl_code read_stages(const struct conf *conf, const struct conf_node *list, struct pawl_profile *out,
                             struct pawl_error *e) {
    if (list->kind != CONF_LIST || list->count == 0)
        return conf_error(conf, list, e, "stages must be a list with an entry for every stage");
    out->stage = calloc(IR_STAGES_MAX, sizeof *out->stage);
    if (out->stage == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", conf->name);
    for (const struct conf_node *n = list->first; n != NULL; n = n->next) {
        struct pawl_stage_cost stage = {0};
        uint32_t repeat;
        pawl_code code = read_stage(conf, n, out->stages, &stage, &repeat, e);
        if (code != PAWL_OK) return code;
        if (repeat > IR_STAGES_MAX - out->stages)
            return conf_error(conf, n, e, "there are more than %u stages", IR_STAGES_MAX);
        while (repeat-- > 0) out->stage[out->stages++] = stage;
    }
    return PAWL_OK;
}

/* ---- workers ---- */

static pawl_code read_worker(const struct conf *conf, const struct conf_node *n, struct pawl_profile *out,
                             struct pawl_error *e) {
    const char *names[NAMES_MAX];
    struct conf_node *place[NAMES_MAX];
    char what[40];
    uint32_t index = out->worker_count;
    snprintf(what, sizeof what, "workers entry %u", index);
    names_of(profile_worker_fields, PROFILE_WORKER_FIELDS, names);
    pawl_code code = conf_map(conf, n, what, names, PROFILE_WORKER_FIELDS, place, e);
    if (code == PAWL_OK && (place[0] == NULL || place[1] == NULL))
        return conf_error(conf, n, e, "%s: %s is missing", what, names[place[0] == NULL ? 0 : 1]);
    if (code == PAWL_OK)
        code = read_fields(conf, place, profile_worker_fields, PROFILE_WORKER_FIELDS, &out->worker[index], e);
    if (code != PAWL_OK) return code;
    out->worker_count++;
    struct profile_problem p = {0};
    return profile_worker_good(out, index, &p) ? PAWL_OK : place_problem(conf, n, what, &p, e);
}

static pawl_code read_workers(const struct conf *conf, const struct conf_node *list, struct pawl_profile *out,
                              struct pawl_error *e) {
    if (conf_is_empty(list)) return PAWL_OK;
    if (list->kind != CONF_LIST || list->count > PROFILE_WORKERS_MAX)
        return conf_error(conf, list, e, "workers must be a list of at most %u entries", PROFILE_WORKERS_MAX);
    if (list->count == 0) return PAWL_OK;
    out->worker = calloc(list->count, sizeof *out->worker);
    if (out->worker == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", conf->name);
    pawl_code code = PAWL_OK;
    for (const struct conf_node *n = list->first; code == PAWL_OK && n != NULL; n = n->next)
        code = read_worker(conf, n, out, e);
    return code;
}

/* ---- the whole ---- */

enum { TOP_VERSION = PROFILE_TOP_FIELDS, TOP_NAME, TOP_UNIT, TOP_STAGES, TOP_WORKERS, TOP_COUNT };

static pawl_code read_version(const struct conf *conf, const struct conf_node *root,
                              const struct conf_node *n, struct pawl_error *e) {
    if (n == NULL)
        return conf_error(conf, root, e, "pawl_profile is missing: begin with \"pawl_profile: 1\"");
    if (is_text(n) && n->plain && strcmp(n->text, "1") == 0) return PAWL_OK;
    return wrong_value(conf, n, "pawl_profile", "1, the version that this pawl knows", e);
}

static pawl_code read_text(const struct conf *conf, const struct conf_node *n, const char *what,
                           const char *otherwise, char **out, struct pawl_error *e) {
    if (n != NULL && !is_text(n)) return wrong_value(conf, n, what, "a text", e);
    *out = strdup(n != NULL ? n->text : otherwise);
    return *out != NULL ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", conf->name);
}

static pawl_code read_top(const struct conf *conf, const struct conf_node *root, struct pawl_profile *out,
                          struct pawl_error *e) {
    const char *names[NAMES_MAX];
    struct conf_node *place[NAMES_MAX];
    names_of(profile_top_fields, PROFILE_TOP_FIELDS, names);
    names[TOP_VERSION] = "pawl_profile";
    names[TOP_NAME] = "name";
    names[TOP_UNIT] = "unit";
    names[TOP_STAGES] = "stages";
    names[TOP_WORKERS] = "workers";
    struct profile_problem p = {0};
    pawl_code code = conf_map(conf, root, "the profile", names, TOP_COUNT, place, e);
    if (code == PAWL_OK) code = read_version(conf, root, place[TOP_VERSION], e);
    if (code == PAWL_OK) code = read_fields(conf, place, profile_top_fields, PROFILE_TOP_FIELDS, out, e);
    if (code == PAWL_OK) code = read_text(conf, place[TOP_NAME], "name", "unnamed", &out->name, e);
    if (code == PAWL_OK) code = read_text(conf, place[TOP_UNIT], "unit", "", &out->unit, e);
    if (code == PAWL_OK && !profile_top_good(out, &p)) code = place_problem(conf, root, "the profile", &p, e);
    if (code == PAWL_OK && place[TOP_STAGES] == NULL)
        code = conf_error(conf, root, e, "stages is missing: a list with an entry for every stage");
    if (code == PAWL_OK) code = read_stages(conf, place[TOP_STAGES], out, e);
    if (code == PAWL_OK && place[TOP_WORKERS] != NULL) code = read_workers(conf, place[TOP_WORKERS], out, e);
    return code;
}

pawl_code profile_parse(const char *text, size_t size, const char *name, struct pawl_profile **out,
                        struct pawl_error *e) {
    struct conf *conf = NULL;
    pawl_code code = conf_parse(text, size, name, PAWL_FORMAT, &conf, e);
    if (code != PAWL_OK) return code;
    struct pawl_profile *p = calloc(1, sizeof *p);
    if (p == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    else if (conf->root == NULL || conf_is_empty(conf->root))
        code = error_set(e, PAWL_FORMAT, 0, "%s:1:1: the profile is empty", name);
    else
        code = read_top(conf, conf->root, p, e);
    conf_free(conf);
    if (code == PAWL_OK)
        *out = p;
    else
        pawl_profile_free(p);
    return code;
}

static pawl_code read_file(const char *path, const char *what, struct bytes *text, struct pawl_error *e) {
    pawl_code code = file_read(path, CONF_BYTES_MAX, what, text, e);
    if (code != PAWL_ARGUMENT) return code;
    return error_set(e, PAWL_FORMAT, 0, "%s has more than %u bytes: is it the %s?", path, CONF_BYTES_MAX,
                     what);
}

pawl_code pawl_profile_read(const char *path, struct pawl_profile **out, struct pawl_error *e) {
    struct bytes text = {0};
    pawl_code code = read_file(path, "profile", &text, e);
    if (code == PAWL_OK) code = profile_parse((const char *)text.data, text.size, path, out, e);
    bytes_close(&text);
    return code;
}

/* ---- limits of memory ---- */

struct limits {
    const struct conf *conf;
    uint32_t pipelines, stages;
    double *out;
    uint64_t filled;
    int unit; /* of the first: 0 not known yet, 1 micro-batches, 2 bytes */
};

static pawl_code read_limit(struct limits *l, const struct conf_node *n, double *out, struct pawl_error *e) {
    uint64_t bytes = 0;
    bool number = is_text(n) && n->plain && conf_real(n->text, out);
    bool amount = !number && is_text(n) && read_amount(n, &bytes);
    int unit = amount ? 2 : 1;
    if (!number && !amount)
        return wrong_value(l->conf, n, "a limit",
                           "a number of micro-batches, without quotes, or an amount like 24GiB", e);
    if (amount) *out = (double)bytes;
    if (!(*out >= 1 && *out <= (double)PROFILE_BYTES_MAX))
        return wrong_value(l->conf, n, "a limit", "at least 1, micro-batch or byte, and at most 2^53", e);
    if (l->unit != 0 && l->unit != unit)
        return conf_error(l->conf, n, e,
                          "some limits are micro-batches, and this one is %s: give all in one unit",
                          unit == 2 ? "bytes" : "micro-batches, the others bytes");
    l->unit = unit;
    return PAWL_OK;
}

/* A flat list of P or D*P limits. */
static pawl_code read_flat(struct limits *l, const struct conf_node *list, struct pawl_error *e) {
    uint64_t workers = (uint64_t)l->pipelines * l->stages, at = 0;
    if (list->count != l->stages && list->count != workers)
        return conf_error(
            l->conf, list, e,
            "%u limits: give %u, one a stage, or %llu, one a worker (%u pipelines of %u stages)", list->count,
            l->stages, (unsigned long long)workers, l->pipelines, l->stages);
    pawl_code code = PAWL_OK;
    for (const struct conf_node *n = list->first; code == PAWL_OK && n != NULL; n = n->next)
        code = read_limit(l, n, &l->out[at++], e);
    if (code == PAWL_OK && at == l->stages)
        for (uint64_t w = l->stages; w < workers; w++) l->out[w] = l->out[w % l->stages];
    return code;
}

/* A list of D lists of P limits. */
static pawl_code read_nested(struct limits *l, const struct conf_node *list, struct pawl_error *e) {
    if (list->count != l->pipelines)
        return conf_error(l->conf, list, e, "%u lists of limits: give %u, one a pipeline", list->count,
                          l->pipelines);
    pawl_code code = PAWL_OK;
    uint64_t at = 0;
    for (const struct conf_node *row = list->first; code == PAWL_OK && row != NULL; row = row->next) {
        if (row->kind != CONF_LIST || row->count != l->stages)
            return conf_error(l->conf, row, e, "give a list of %u limits, one a stage", l->stages);
        for (const struct conf_node *n = row->first; code == PAWL_OK && n != NULL; n = n->next)
            code = read_limit(l, n, &l->out[at++], e);
    }
    return code;
}

static pawl_code read_list(struct limits *l, const struct conf_node *list, struct pawl_error *e) {
    if (list->kind != CONF_LIST || list->count == 0)
        return conf_error(l->conf, list, e, "give a list of limits: one a stage, or one a worker");
    return list->first->kind == CONF_LIST ? read_nested(l, list, e) : read_flat(l, list, e);
}

static pawl_code read_limits(struct limits *l, const struct conf_node *root, struct pawl_error *e) {
    static const char *const names[] = {"stages", "workers"};
    struct conf_node *place[2];
    if (root->kind != CONF_MAP) return read_list(l, root, e);
    pawl_code code = conf_map(l->conf, root, "the file of limits", names, 2, place, e);
    if (code != PAWL_OK) return code;
    if ((place[0] == NULL) == (place[1] == NULL))
        return conf_error(l->conf, root, e, "give the limits of either stages or workers");
    if (place[0] != NULL && (place[0]->kind != CONF_LIST || place[0]->count != l->stages))
        return conf_error(l->conf, place[0], e, "stages must be a list of %u limits", l->stages);
    return read_list(l, place[0] != NULL ? place[0] : place[1], e);
}

pawl_code limits_parse(const char *text, size_t size, const char *name, struct limits_size sizes,
                       double **out, bool *in_bytes, struct pawl_error *e) {
    struct conf *conf = NULL;
    pawl_code code = conf_parse(text, size, name, PAWL_FORMAT, &conf, e);
    if (code != PAWL_OK) return code;
    struct limits l = {.conf = conf, .pipelines = sizes.pipelines, .stages = sizes.stages};
    l.out = calloc((size_t)sizes.pipelines * sizes.stages, sizeof *l.out);
    if (l.out == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", name);
    else if (conf->root == NULL || conf_is_empty(conf->root))
        code = error_set(e, PAWL_FORMAT, 0, "%s:1:1: the file holds no limits", name);
    else
        code = read_limits(&l, conf->root, e);
    conf_free(conf);
    if (code == PAWL_OK) {
        *out = l.out;
        *in_bytes = l.unit == 2;
    } else {
        free(l.out);
    }
    return code;
}

pawl_code pawl_plan_limits_read(const char *path, uint32_t pipelines, uint32_t stages, double **out,
                                bool *in_bytes, struct pawl_error *e) {
    if (pipelines == 0 || pipelines > IR_PIPELINES_MAX || stages == 0 || stages > IR_STAGES_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "%u pipelines of %u stages: give 1 to %u of 1 to %u", pipelines,
                         stages, IR_PIPELINES_MAX, IR_STAGES_MAX);
    struct bytes text = {0};
    struct limits_size sizes = {pipelines, stages};
    pawl_code code = read_file(path, "file of limits", &text, e);
    if (code == PAWL_OK)
        code = limits_parse((const char *)text.data, text.size, path, sizes, out, in_bytes, e);
    bytes_close(&text);
    return code;
}
