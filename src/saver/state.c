/* Declared states: tensors copied with names and shapes, and the shares that replicas write of them. */
#include <stdlib.h>
#include <string.h>

#include "saver/saver.h"

static void share_free(struct saver_share *s) {
    ckpt_layout_release(s->layout);
    ckpt_share_close(&s->share);
    free(s);
}

static void state_free(struct pawl_ckpt_state *s) {
    while (s->shares != NULL) {
        struct saver_share *gone = s->shares;
        s->shares = gone->next;
        share_free(gone);
    }
    free(s->tensors);
    free(s->numbers);
    free(s->names);
    free(s);
}

void saver_states_free(struct pawl_ckpt *c) {
    while (c->states != NULL) {
        struct pawl_ckpt_state *gone = c->states;
        c->states = gone->next;
        state_free(gone);
    }
}

/* ---- copying ---- */

static const uint64_t *copy_numbers(uint64_t **room, const uint64_t *numbers, uint32_t rank) {
    if (numbers == NULL) return NULL;
    uint64_t *at = *room;
    if (rank > 0) memcpy(at, numbers, rank * sizeof *at);
    *room += rank;
    return at;
}

/* What the layout's checks accepted. */
static bool copy_tensors(struct pawl_ckpt_state *s, const struct pawl_tensor *tensors, uint32_t count) {
    size_t numbers = 1, names = 1;
    for (uint32_t i = 0; i < count; i++) {
        numbers += 3 * (size_t)tensors[i].rank;
        names += strlen(tensors[i].name) + 1;
    }
    s->tensors = calloc((size_t)count + 1, sizeof *s->tensors);
    s->numbers = calloc(numbers, sizeof *s->numbers);
    s->names = calloc(names, 1);
    if (s->tensors == NULL || s->numbers == NULL || s->names == NULL) return false;
    uint64_t *number = s->numbers;
    char *name = s->names;
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_tensor *t = &s->tensors[i];
        *t = tensors[i];
        t->name = strcpy(name, tensors[i].name);
        name += strlen(name) + 1;
        t->shape = copy_numbers(&number, t->rank > 0 ? t->shape : NULL, t->rank);
        t->begin = copy_numbers(&number, t->begin, t->rank);
        t->extent = copy_numbers(&number, t->extent, t->rank);
    }
    s->count = count;
    return true;
}

/* ---- shares ---- */

static pawl_code plan_share(const struct pawl_ckpt_state *state, struct saver_share *s,
                            struct pawl_error *e) {
    s->count = state->count;
    if (s->part_count == 1) return ckpt_layout_new(state->tensors, state->count, &s->layout, e);
    pawl_code code = ckpt_share_init(state->tensors, state->count, s->part, s->part_count, &s->share, e);
    if (code != PAWL_OK) return code;
    s->count = s->share.count;
    return ckpt_layout_new(s->share.tensors, s->share.count, &s->layout, e);
}

pawl_code saver_share_of(struct pawl_ckpt_state *state, uint32_t part, uint32_t part_count,
                         const struct saver_share **out, struct pawl_error *e) {
    for (const struct saver_share *s = state->shares; s != NULL; s = s->next)
        if (s->part == part && s->part_count == part_count) {
            *out = s;
            return PAWL_OK;
        }
    struct saver_share *s = calloc(1, sizeof *s);
    if (s == NULL) return saver_no_memory(state->owner, e);
    s->part = part;
    s->part_count = part_count;
    pawl_code code = plan_share(state, s, e);
    if (code != PAWL_OK) {
        share_free(s);
        return code;
    }
    s->next = state->shares;
    *out = state->shares = s;
    return PAWL_OK;
}

pawl_code pawl_ckpt_declare(struct pawl_ckpt *c, const struct pawl_tensor *tensors, uint32_t count,
                            struct pawl_ckpt_state **out, struct pawl_error *e) {
    *out = NULL;
    struct ckpt_layout *checked = NULL;
    pthread_mutex_lock(&c->mutex);
    struct pawl_error pending = c->pending;
    c->pending.code = PAWL_OK;
    if (pending.code != PAWL_OK) c->untold.code = PAWL_OK;
    pthread_mutex_unlock(&c->mutex);
    if (pending.code != PAWL_OK) {
        if (e != NULL) *e = pending;
        return pending.code;
    }
    pawl_code code = ckpt_layout_new(tensors, count, &checked, e);
    if (code != PAWL_OK) return code;
    ckpt_layout_release(checked);
    struct pawl_ckpt_state *s = calloc(1, sizeof *s);
    const struct saver_share *whole = NULL;
    if (s != NULL) s->owner = c;
    if (s == NULL || !copy_tensors(s, tensors, count))
        code = saver_no_memory(c, e);
    else
        code = saver_share_of(s, 0, 1, &whole, e);
    if (code != PAWL_OK) {
        if (s != NULL) state_free(s);
        return code;
    }
    s->next = c->states;
    *out = c->states = s;
    return PAWL_OK;
}
