/* Which steps there are, which of them are complete, what is in them. A step is complete by the files alone;
 * see ckpt/ckpt.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/set.h"

static int by_group(const struct slot_info *a, const struct slot_info *b) {
    if (a->step != b->step) return a->step > b->step ? -1 : 1; /* newest first */
    if (a->incarnation != b->incarnation) return a->incarnation > b->incarnation ? -1 : 1;
    if (a->unit_count != b->unit_count) return a->unit_count < b->unit_count ? -1 : 1;
    return 0;
}

/* Within a group: unit, then fewest parts, then part, then the latest commit. */
static int by_part(const void *x, const void *y) {
    const struct set_part *p = x, *q = y;
    const struct slot_info *a = &p->info, *b = &q->info;
    int order = by_group(a, b);
    if (order != 0) return order;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->part_count != b->part_count) return a->part_count < b->part_count ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return p->counter > q->counter ? -1 : p->counter < q->counter;
}

/* Is there an n with all parts 0..n-1 of n? The parts from `at` on are those of `unit` if it has any; moves
 * `at` behind them. `missing` says what the most complete try lacks. */
static bool unit_is_complete(const struct ckpt_set *set, const struct set_group *g, uint32_t unit,
                             uint32_t *at, char *missing, size_t missing_size) {
    bool complete = false;
    snprintf(missing, missing_size, "unit %u of %u: no part", unit, g->step.unit_count);
    while (*at < g->part_count && set->parts[g->parts[*at]].info.unit == unit) {
        uint32_t n = set->parts[g->parts[*at]].info.part_count, next = 0;
        for (; *at < g->part_count; ++*at) {
            const struct slot_info *s = &set->parts[g->parts[*at]].info;
            if (s->unit != unit || s->part_count != n) break;
            if (s->part == next) next++;
        }
        if (next == n) complete = true;
        if (next != n && !complete)
            snprintf(missing, missing_size, "unit %u of %u: part %u of %u", unit, g->step.unit_count, next,
                     n);
    }
    return complete;
}

static void judge_group(const struct ckpt_set *set, struct set_group *g) {
    uint32_t at = 0;
    g->step.complete = true;
    for (uint32_t unit = 0; unit < g->step.unit_count && g->step.complete; unit++) {
        char missing[sizeof g->step.missing];
        if (unit_is_complete(set, g, unit, &at, missing, sizeof missing)) continue;
        g->step.complete = false;
        memcpy(g->step.missing, missing, sizeof missing);
    }
}

/* ---- tensors of a group ---- */

static int by_name(const void *x, const void *y) {
    const struct set_ref *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    if (order != 0) return order;
    if (a->preferred != b->preferred) return a->preferred ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1; /* parts are in order of preference */
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static pawl_code index_refs(const struct ckpt_set *set, struct set_group *g, struct pawl_error *e) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < g->part_count; i++) count += set->parts[g->parts[i]].info.header.tensor_count;
    g->refs = calloc(count + 1, sizeof *g->refs);
    if (g->refs == NULL || count > UINT32_MAX) return set_no_memory(e);
    for (uint32_t i = 0; i < g->part_count; i++) {
        const struct slot_info *s = &set->parts[g->parts[i]].info;
        for (uint32_t k = 0; k < s->header.tensor_count; k++)
            if (s->slices[k].name != NULL)
                g->refs[g->ref_count++] = (struct set_ref){s->slices[k].name, g->parts[i], k,
                                                           set->parts[g->parts[i]].store == set->prefer};
    }
    qsort(g->refs, g->ref_count, sizeof *g->refs, by_name);
    return PAWL_OK;
}

static int by_unit(const void *x, const void *y) {
    const struct ckpt_tensor *a = x, *b = y;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void add_tensor(const struct ckpt_set *set, struct set_group *g, const struct set_ref *ref) {
    const struct st_tensor *t = set_tensor_of(set, ref);
    g->tensors[g->tensor_count++] = (struct ckpt_tensor){
        ref->name, t->dtype, t->rank, set_slice_of(set, ref)->shape, set->parts[ref->part].info.unit};
}

static bool same_entry(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return a->unit == b->unit && strcmp(a->name, b->name) == 0;
}

/* One of each name and unit: all of them, sorted, then the repeated ones dropped. */
static pawl_code index_tensors(const struct ckpt_set *set, struct set_group *g, struct pawl_error *e) {
    g->tensors = calloc((size_t)g->ref_count + 1, sizeof *g->tensors);
    if (g->tensors == NULL) return set_no_memory(e);
    for (uint32_t i = 0; i < g->ref_count; i++) add_tensor(set, g, &g->refs[i]);
    qsort(g->tensors, g->tensor_count, sizeof *g->tensors, by_unit);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (kept == 0 || !same_entry(&g->tensors[kept - 1], &g->tensors[i]))
            g->tensors[kept++] = g->tensors[i];
    g->tensor_count = kept;
    return PAWL_OK;
}

static pawl_code make_group(struct ckpt_set *set, uint32_t first, uint32_t count, struct pawl_error *e) {
    const struct slot_info *s = &set->parts[first].info;
    struct set_group *g = &set->groups[set->group_count++];
    g->step = (struct ckpt_step){.step = s->step, .incarnation = s->incarnation, .unit_count = s->unit_count};
    g->parts = calloc(count, sizeof *g->parts);
    if (g->parts == NULL) return set_no_memory(e);
    g->part_count = count;
    for (uint32_t i = 0; i < count; i++) g->parts[i] = first + i;
    judge_group(set, g);
    pawl_code code = index_refs(set, g, e);
    return code == PAWL_OK ? index_tensors(set, g, e) : code;
}

pawl_code set_make_groups(struct ckpt_set *set, struct pawl_error *e) {
    if (set->part_count > 1) qsort(set->parts, set->part_count, sizeof *set->parts, by_part);
    set->groups = calloc((size_t)set->part_count + 1, sizeof *set->groups);
    if (set->groups == NULL) return set_no_memory(e);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0, count; i < set->part_count && code == PAWL_OK; i += count) {
        count = 1;
        while (i + count < set->part_count && by_group(&set->parts[i].info, &set->parts[i + count].info) == 0)
            count++;
        code = make_group(set, i, count, e);
    }
    return code;
}

void set_group_close(struct set_group *g) {
    free(g->tensors);
    free(g->refs);
    free(g->parts);
}

uint32_t set_find_name(const struct set_group *g, const char *name, uint32_t *first) {
    uint32_t low = 0, high = g->ref_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(g->refs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (low < g->ref_count && strcmp(g->refs[low].name, name) == 0) low++;
    return low;
}
