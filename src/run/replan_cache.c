/* Answers kept for the same question later: few, the longest unused go first. Tested in
 * tests/unit/run_replan_test.c. */
#include <stdlib.h>
#include <string.h>

#include "run/replan_state.h"

static uint64_t instructions_of(const struct replan_answer *a) {
    uint64_t sum = 0;
    for (uint32_t w = 0; w < a->ir->pipelines * a->ir->stages; w++) sum += a->ir->workers[w].count;
    return sum;
}

static struct replan_kept *find(const struct replan_cache *c, const struct replan_request *q) {
    for (uint32_t i = 0; i < c->count; i++)
        if (replan_request_same(&c->kept[i]->request, q)) return c->kept[i];
    return NULL;
}

bool replan_cache_has(const struct replan_cache *c, const struct replan_request *q) {
    return find(c, q) != NULL;
}

pawl_code replan_cache_find(struct replan_cache *c, const struct replan_request *q, struct replan_answer *out,
                            bool *ahead, struct pawl_error *e) {
    struct replan_kept *k = find(c, q);
    if (k == NULL) return PAWL_NOT_FOUND;
    k->used = ++c->clock;
    *ahead = k->ahead;
    return replan_answer_copy(&k->answer, out, e);
}

static void drop(struct replan_cache *c, uint32_t at) {
    struct replan_kept *k = c->kept[at];
    c->instructions -= instructions_of(&k->answer);
    replan_request_close(&k->request);
    replan_answer_close(&k->answer);
    free(k);
    c->kept[at] = c->kept[--c->count];
}

static void drop_oldest(struct replan_cache *c) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < c->count; i++)
        if (c->kept[i]->used < c->kept[oldest]->used) oldest = i;
    drop(c, oldest);
}

static void drop_same(struct replan_cache *c, const struct replan_request *q) {
    for (uint32_t i = 0; i < c->count; i++) {
        if (!replan_request_same(&c->kept[i]->request, q)) continue;
        drop(c, i);
        return;
    }
}

void replan_cache_put(struct replan_cache *c, struct replan_request *q, struct replan_answer *a, bool ahead) {
    uint64_t size = instructions_of(a);
    struct replan_kept *k = size <= REPLAN_INSTRUCTIONS_MAX ? malloc(sizeof *k) : NULL;
    if (k == NULL) {
        replan_request_close(q);
        replan_answer_close(a);
        return;
    }
    drop_same(c, q);
    while (c->count == REPLAN_KEPT_MAX || (c->count > 0 && c->instructions + size > REPLAN_INSTRUCTIONS_MAX))
        drop_oldest(c);
    *k = (struct replan_kept){*q, *a, ++c->clock, ahead};
    c->kept[c->count++] = k;
    c->instructions += size;
    *q = (struct replan_request){0};
    *a = (struct replan_answer){0};
}

void replan_cache_close(struct replan_cache *c) {
    while (c->count > 0) drop(c, c->count - 1);
}
