/* Shared by the inspector's tests: a run of several ranks on the simulated disk, saved by the engine. */
#ifndef KIT_INSPECT_KIT_H
#define KIT_INSPECT_KIT_H

#include "inspect/inspect.h"
#include "kit/ckpt_kit.h"

#define RUN_RANKS_MAX 4u

struct kit_run {
    struct storesim *sim;
    uint32_t ranks, keep;
    uint64_t incarnation, resume;
    struct store *stores[RUN_RANKS_MAX];
    struct ckpt *engines[RUN_RANKS_MAX];
};

static inline void kit_run_folder(uint32_t rank, char out[8]) { snprintf(out, 8, "r%u", rank % 10); }

/* Opens every rank's store; read_only ones in any number. */
static inline void kit_run_stores(struct kit_run *r, bool read_only) {
    for (uint32_t i = 0; i < r->ranks; i++) {
        char folder[8];
        struct pawl_error e = {0};
        kit_run_folder(i, folder);
        if (storesim_open(r->sim, folder, read_only, &r->stores[i], &e) != PAWL_OK) {
            fprintf(stderr, "%s\n", e.text);
            abort();
        }
    }
}

static inline void kit_run_close_stores(struct kit_run *r) {
    for (uint32_t i = 0; i < r->ranks; i++) {
        store_close(r->stores[i]);
        r->stores[i] = NULL;
    }
}

static inline void kit_run_start(struct kit_run *r) {
    r->incarnation++;
    kit_run_stores(r, false);
    for (uint32_t i = 0; i < r->ranks; i++) {
        struct ckpt_config config = kit_config(r->incarnation, r->resume, 1, r->keep);
        if (ckpt_open(&config, r->stores[i], &r->engines[i], NULL) != PAWL_OK) abort();
    }
}

/* Saves the step by all ranks but `without` (UINT32_MAX: all, and then it is durable). */
static inline void kit_run_save(struct kit_run *r, uint64_t step, uint32_t without) {
    for (uint32_t i = 0; i < r->ranks; i++) {
        if (i == without) continue;
        struct kit_part *part = kit_part_new(step, i, r->ranks);
        struct ckpt_save save = kit_save(part, step, i, r->ranks);
        if (ckpt_save_begin(r->engines[i], &save, NULL) != PAWL_OK) abort();
        if (kit_wait(r->engines[i], r->stores[i]).code != PAWL_OK) abort();
        kit_part_free(part);
    }
    for (uint32_t i = 0; i < r->ranks && without == UINT32_MAX; i++) ckpt_durable(r->engines[i], step);
}

static inline void kit_run_stop(struct kit_run *r) {
    for (uint32_t i = 0; i < r->ranks; i++) {
        if (ckpt_close(r->engines[i], kit_soon(), NULL) != PAWL_OK) abort();
        r->engines[i] = NULL;
    }
    kit_run_close_stores(r);
}

/* Steps 1..last, of which the engine keeps `keep`, everything closed. */
static inline struct kit_run *kit_run_new(uint64_t seed, uint32_t ranks, uint32_t keep, uint64_t last) {
    struct kit_run *r = calloc(1, sizeof *r);
    if (r == NULL) abort();
    *r = (struct kit_run){.sim = storesim_new(seed), .ranks = ranks, .keep = keep};
    kit_run_start(r);
    for (uint64_t step = 1; step <= last; step++) kit_run_save(r, step, UINT32_MAX);
    kit_run_stop(r);
    return r;
}

static inline void kit_run_free(struct kit_run *r) {
    kit_run_close_stores(r);
    storesim_free(r->sim);
    free(r);
}

/* An inventory over the run's open stores. */
static inline pawl_code kit_run_inspect(struct kit_run *r, struct pawl_inspect **out, struct pawl_error *e) {
    pawl_code code = inspect_new("run", r->stores, r->ranks, false, NULL, out, e);
    if (code == PAWL_OK) code = inspect_scan(*out, e);
    if (code == PAWL_OK) return code;
    pawl_inspect_close(*out);
    *out = NULL;
    return code;
}

#endif
