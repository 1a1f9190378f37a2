/* Implementation of run/versions.h. */
#include "run/versions.h"

#include <assert.h>
#include <stdlib.h>

static struct versions_item *item_of(const struct version *version) {
    return (struct versions_item *)(uintptr_t)version;
}

static pawl_code make_one(struct versions *v, struct pawl_error *e) {
    if (v->count == v->room) {
        uint32_t room = v->room * 2 + 4;
        struct versions_item **items = realloc(v->items, room * sizeof *items);
        if (items == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u version buffers", room);
        v->items = items;
        v->room = room;
    }
    struct versions_item *item = calloc(1, sizeof *item);
    if (item == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a version buffer");
    pawl_code code = version_init(&item->version, v->stage, e);
    if (code == PAWL_OK)
        v->items[v->count++] = item;
    else
        free(item);
    return code;
}

pawl_code versions_init(struct versions *v, const struct stage *stage, uint32_t limit, struct pawl_error *e) {
    *v = (struct versions){.stage = stage, .limit = limit};
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < 2 && code == PAWL_OK; i++) code = make_one(v, e);
    if (code != PAWL_OK) versions_close(v);
    return code;
}

void versions_close(struct versions *v) {
    for (uint32_t i = 0; i < v->count; i++) {
        version_close(&v->items[i]->version);
        free(v->items[i]);
    }
    free(v->items);
    *v = (struct versions){0};
}

pawl_code versions_take(struct versions *v, bool beyond, struct version **out, struct pawl_error *e) {
    *out = NULL;
    uint32_t i = 0;
    while (i < v->count && v->items[i]->holders > 0) i++;
    if (i == v->count && i >= v->limit && !beyond) return PAWL_OK;
    pawl_code code = i == v->count ? make_one(v, e) : PAWL_OK;
    if (code != PAWL_OK) return code;
    v->items[i]->holders = 1;
    *out = &v->items[i]->version;
    return PAWL_OK;
}

void versions_hold(const struct version *version) {
    assert(item_of(version)->holders > 0);
    item_of(version)->holders++;
}

void versions_drop(const struct version *version) {
    if (version == NULL) return;
    assert(item_of(version)->holders > 0);
    item_of(version)->holders--;
}

bool versions_in_use(const struct versions *v) {
    for (uint32_t i = 0; i < v->count; i++)
        if (v->items[i]->holders > 0) return true;
    return false;
}
