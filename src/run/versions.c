/* Implementation of run/versions.h. */
#include "run/versions.h"

#include <assert.h>
#include <stdlib.h>

pawl_code versions_init(struct versions *v, const struct stage *stage, uint32_t count, struct pawl_error *e) {
    *v = (struct versions){0};
    v->items = calloc(count, sizeof *v->items);
    v->holders = calloc(count, sizeof *v->holders);
    if (v->items == NULL || v->holders == NULL) {
        versions_close(v);
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u version buffers", count);
    }
    for (v->count = 0; v->count < count; v->count++) {
        pawl_code code = version_init(&v->items[v->count], stage, e);
        if (code != PAWL_OK) {
            versions_close(v);
            return code;
        }
    }
    return PAWL_OK;
}

void versions_close(struct versions *v) {
    for (uint32_t i = 0; i < v->count; i++) version_close(&v->items[i]);
    free(v->items);
    free(v->holders);
    *v = (struct versions){0};
}

struct version *versions_take(struct versions *v) {
    for (uint32_t i = 0; i < v->count; i++)
        if (v->holders[i] == 0) {
            v->holders[i] = 1;
            return &v->items[i];
        }
    return NULL;
}

void versions_hold(struct versions *v, const struct version *version) {
    assert(v->holders[version - v->items] > 0);
    v->holders[version - v->items]++;
}

void versions_drop(struct versions *v, const struct version *version) {
    if (version == NULL) return;
    assert(v->holders[version - v->items] > 0);
    v->holders[version - v->items]--;
}
