/* Returning to a durable step: every planned holding gets the version that the GO names, from the stores of
 * all ranks, or anew where nothing was saved yet. */
#include <stdlib.h>

#include "base/fault.h"
#include "run/persist.h"
#include "run/worker_state.h"

static pawl_code load_one(struct worker *w, struct ckpt_set *set, uint32_t index, struct holding *h,
                          struct pawl_error *e) {
    struct version *version;
    holding_forget(h);
    pawl_code code = versions_take(&h->versions, true, &version, e);
    if (code != PAWL_OK) return code;
    h->base = version;
    version_reset(version, h->stage);
    if (set != NULL) return persist_load(set, index, h->stage, version, &w->progress, e);
    return engine_init(w->engine, h->stage, version, e);
}

static pawl_code load_all(struct worker *w, struct ckpt_set *set, struct pawl_error *e) {
    uint32_t index = 0;
    if (set != NULL) {
        index = persist_find(set, w->go.version, w->go.resume_incarnation);
        if (index == UINT32_MAX)
            return error_set(e, PAWL_CORRUPT, 0, "step %llu is no longer complete in the store",
                             (unsigned long long)w->go.version);
    }
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++)
        code = load_one(w, set, index, w->planned[i], e);
    return code;
}

static pawl_code load_stored(struct worker *w, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    pawl_code code = w->env.open_all(w->env.context, &w->spec, &stores, &count, e);
    if (code == PAWL_OK) code = ckpt_set_open(stores, count, w->run_id, &set, e);
    if (code == PAWL_OK) code = load_all(w, set, e);
    ckpt_set_close(set);
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    free(stores);
    return code;
}

pawl_code worker_load(struct worker *w, struct pawl_error *e) {
    worker_set_work(w, COORD_WORK_LOAD);
    fault_arrive(FAULT_LOAD);
    pawl_code code = w->go.resume_incarnation != 0 ? load_stored(w, e) : load_all(w, NULL, e);
    worker_set_work(w, COORD_WORK_STEP);
    return code;
}
