/* Several ranks of one run in one process, each with a store of its own: for tests of what they agree on. */
#ifndef KIT_SAVER_WORLD_H
#define KIT_SAVER_WORLD_H

#include "kit/saver_kit.h"
#include "saver/saver.h"

#define RANKS 3u

struct world {
    char *path;
    char start[32];
    uint32_t count, copies;
    struct pawl_ckpt_options options;
    struct skit_rank ranks[RANKS];
};

static inline void open_rank(struct world *w, uint32_t rank) {
    struct pawl_ckpt_options o = w->options;
    o.path = w->path;
    o.start = w->start;
    o.rank = rank;
    o.rank_count = w->count;
    w->ranks[rank] =
        skit_open(&o, w->copies > 0 ? skit_state_new(0, 1, 0) : skit_state_new(rank, w->count, 0));
}

static inline struct world world_open(char *path, const char *start, uint32_t count, uint32_t copies) {
    struct world w = {.path = path, .count = count, .copies = copies};
    snprintf(w.start, sizeof w.start, "%s", start);
    for (uint32_t i = 0; i < count; i++) open_rank(&w, i);
    return w;
}

static inline void world_close(struct world *w) {
    for (uint32_t i = 0; i < w->count; i++)
        if (w->ranks[i].c != NULL) skit_close(&w->ranks[i]);
}

/* Ends a rank of which something stays undecided; the code, and what it says. */
static inline pawl_code abandon(struct world *w, uint32_t rank, int64_t deadline_ns, struct pawl_error *why) {
    struct skit_rank *r = &w->ranks[rank];
    pawl_code code = pawl_ckpt_close(r->c, deadline_ns, why);
    skit_state_free(r->memory);
    *r = (struct skit_rank){0};
    return code;
}

static inline uint64_t resume_all(struct world *w) {
    uint64_t first = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        uint64_t step = 0;
        SKIT_MUST(pawl_ckpt_resume(w->ranks[i].c, w->ranks[i].state, &step, e));
        if (i == 0) first = step;
        assert_int_equal(step, first);
        if (step != 0) assert_true(skit_is(w->ranks[i].memory, step));
    }
    return first;
}

/* Each rank is a unit of its own slices' replica: with copies all hold the same state and share it. */
static inline uint64_t save_rank(struct world *w, uint32_t rank, uint64_t step) {
    struct skit_rank *r = &w->ranks[rank];
    uint64_t id = 0;
    SKIT_MUST(pawl_ckpt_fence(r->c, skit_soon(), e));
    skit_fill(r->memory, step);
    struct pawl_ckpt_save save = {.state = r->state, .step = step};
    if (w->copies > 0) {
        save.replica = rank;
        save.replica_count = w->count;
        save.copies = w->copies;
    } else {
        save.unit = rank;
        save.unit_count = w->count;
    }
    SKIT_MUST(pawl_ckpt_save(r->c, &save, &id, e));
    return id;
}

static inline void save_all(struct world *w, uint64_t step) {
    uint64_t ids[RANKS];
    for (uint32_t i = 0; i < w->count; i++) ids[i] = save_rank(w, i, step);
    for (uint32_t i = 0; i < w->count; i++) skit_wait(&w->ranks[i], ids[i], PAWL_CKPT_UNTIL_DURABLE);
}

static inline struct pawl_ckpt_status status_of(const struct world *w, uint32_t rank) {
    struct pawl_ckpt_status s;
    pawl_ckpt_status(w->ranks[rank].c, &s);
    return s;
}

#endif
