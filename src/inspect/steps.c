/* Steps of an inventory: the engine's list, which alone says what is complete, joined with the slots of the
 * inventory, so that damaged ones stand with their step; and steps of which nothing counts any more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "inspect/inspect.h"

static bool same_group(const struct pawl_inspect_step *s, const struct record_entry *t) {
    return s->step == t->step && s->incarnation == t->incarnation && s->units == t->unit_count;
}

static struct inspect_step *find_step(struct pawl_inspect *in, const struct record_entry *t) {
    for (uint32_t i = 0; i < in->step_count; i++)
        if (same_group(&in->steps[i].is, t)) return &in->steps[i];
    return NULL;
}

/* Newest first, as the engine orders them. */
static int by_age(const void *x, const void *y) {
    const struct pawl_inspect_step *a = &((const struct inspect_step *)x)->is,
                                   *b = &((const struct inspect_step *)y)->is;
    if (a->step != b->step) return a->step > b->step ? -1 : 1;
    if (a->incarnation != b->incarnation) return a->incarnation > b->incarnation ? -1 : 1;
    return a->units < b->units ? -1 : a->units > b->units;
}

/* Slots of ours that are parts of this step of the engine's. */
static uint32_t count_slots(const struct pawl_inspect *in, const struct ckpt_step *s) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < in->slot_count; i++) {
        const struct inspect_slot *slot = &in->slots[i];
        count += slot->state == PAWL_INSPECT_GOOD && !slot->gone && slot->entry.step == s->step &&
                 slot->entry.incarnation == s->incarnation && slot->entry.unit_count == s->unit_count;
    }
    return count;
}

/* A step of which we saw less than the engine was committed meanwhile: it will be there next time. */
static void take_set_steps(struct pawl_inspect *in) {
    for (uint32_t i = 0; i < ckpt_set_count(in->set); i++) {
        const struct ckpt_step *s = ckpt_set_at(in->set, i);
        if (count_slots(in, s) != ckpt_set_part_count(in->set, i)) continue;
        struct inspect_step *step = &in->steps[in->step_count++];
        *step = (struct inspect_step){.set_index = i};
        step->is.step = s->step;
        step->is.incarnation = s->incarnation;
        step->is.units = s->unit_count;
        step->is.complete = s->complete;
        memcpy(step->is.missing, s->missing, sizeof step->is.missing);
    }
}

static void take_lost_steps(struct pawl_inspect *in) {
    for (uint32_t i = 0; i < in->slot_count; i++) {
        const struct record_entry *t = &in->slots[i].entry;
        if (in->slots[i].gone || in->slots[i].state == PAWL_INSPECT_GOOD || find_step(in, t) != NULL)
            continue;
        struct inspect_step *step = &in->steps[in->step_count++];
        *step = (struct inspect_step){.set_index = UINT32_MAX};
        step->is.step = t->step;
        step->is.incarnation = t->incarnation;
        step->is.units = t->unit_count;
        snprintf(step->is.missing, sizeof step->is.missing, "no part of it counts");
    }
}

static bool add_slot(struct pawl_inspect *in, struct inspect_step *step, uint32_t slot) {
    uint32_t *more = realloc(step->slots, (step->slot_count + 1u) * sizeof *more);
    if (more == NULL) return false;
    step->slots = more;
    more[step->slot_count++] = slot;
    const struct inspect_slot *s = &in->slots[slot];
    if (s->state != PAWL_INSPECT_GOOD) {
        step->is.damaged++;
        return true;
    }
    step->is.parts++;
    step->is.bytes += s->info.header.data_bytes;
    step->is.unchecked = step->is.unchecked || s->info.sums == NULL;
    if (s->committed_s > step->is.committed_s) step->is.committed_s = s->committed_s;
    return true;
}

/* Slots come store by store; within a step they are wanted by unit and part. */
static int by_part(const void *x, const void *y, void *context) {
    const struct inspect_slot *slots = context;
    const struct record_entry *a = &slots[*(const uint32_t *)x].entry,
                              *b = &slots[*(const uint32_t *)y].entry;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->part_count != b->part_count) return a->part_count < b->part_count ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return *(const uint32_t *)x < *(const uint32_t *)y ? -1 : 1;
}

pawl_code inspect_steps_make(struct pawl_inspect *in, struct pawl_error *e) {
    size_t most = (size_t)ckpt_set_count(in->set) + in->slot_count + 1;
    in->steps = calloc(most, sizeof *in->steps);
    if (in->steps == NULL) return inspect_no_memory(e);
    take_set_steps(in);
    take_lost_steps(in);
    qsort(in->steps, in->step_count, sizeof *in->steps, by_age);
    for (uint32_t i = 0; i < in->slot_count; i++) {
        struct inspect_step *step = in->slots[i].gone ? NULL : find_step(in, &in->slots[i].entry);
        if (step != NULL && !add_slot(in, step, i)) return inspect_no_memory(e);
    }
    inspect_marks_apply(in);
    in->current = inspect_newest(in, UINT64_MAX);
    if (in->current != PAWL_INSPECT_NONE) in->steps[in->current].is.current = true;
    for (uint32_t i = 0; i < in->step_count; i++) {
        struct inspect_step *step = &in->steps[i];
        if (step->slot_count > 1)
            qsort_r(step->slots, step->slot_count, sizeof *step->slots, by_part, in->slots);
    }
    return PAWL_OK;
}

void inspect_steps_close(struct pawl_inspect *in) {
    for (uint32_t i = 0; i < in->step_count; i++) {
        free(in->steps[i].slots);
        free(in->steps[i].refs);
    }
    free(in->steps);
    in->steps = NULL;
    in->step_count = 0;
    in->current = PAWL_INSPECT_NONE;
}

bool inspect_step_is_gone(struct pawl_inspect *in, uint32_t index) {
    bool gone = false;
    for (uint32_t i = 0; i < in->steps[index].slot_count; i++)
        gone = inspect_slot_is_gone(in, &in->slots[in->steps[index].slots[i]]) || gone;
    return gone;
}

bool inspect_is_gone(struct pawl_inspect *in, uint32_t index, pawl_code code) {
    bool damage = code == PAWL_CORRUPT || code == PAWL_IO || code == PAWL_NOT_FOUND;
    return damage && inspect_step_is_gone(in, index);
}

pawl_code inspect_gone(const struct pawl_inspect *in, struct pawl_error *e) {
    return error_set(e, PAWL_BUSY, 0, "%s: a writer used the slots again before they were read", in->path);
}

/* ---- getters ---- */

uint32_t pawl_inspect_step_count(const struct pawl_inspect *in) { return in->step_count; }

struct pawl_inspect_step pawl_inspect_step(const struct pawl_inspect *in, uint32_t index) {
    return index < in->step_count ? in->steps[index].is : (struct pawl_inspect_step){0};
}

/* "12, 9, 4": the complete steps, as many as fit. */
static void list_complete(const struct pawl_inspect *in, char *out, size_t size) {
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < in->step_count; i++) {
        char number[32];
        if (!in->steps[i].is.complete) continue;
        int used = snprintf(number, sizeof number, "%s%" PRIu64, at > 0 ? ", " : "", in->steps[i].is.step);
        if (at + (size_t)used + 5 > size) {
            snprintf(out + at, size - at, " ...");
            return;
        }
        memcpy(out + at, number, (size_t)used + 1);
        at += (size_t)used;
    }
    if (at == 0) snprintf(out, size, "none");
}

/* Nothing is complete: because of damage, or since something is missing, or nothing was ever saved. */
static pawl_code none_complete(const struct pawl_inspect *in, struct pawl_error *e) {
    if (pawl_inspect_outcome(in, e) != PAWL_OK) return pawl_inspect_outcome(in, NULL);
    if (in->unsettled)
        return error_set(e, PAWL_BUSY, 0, "%s: a writer commits faster than the stores can be looked at",
                         in->path);
    if (in->step_count == 0)
        return error_set(e, PAWL_NOT_FOUND, 0, "%s: nothing was ever saved here", in->path);
    const struct pawl_inspect_step *s = &in->steps[0].is;
    if (s->complete)
        return error_set(
            e, PAWL_CORRUPT, 0,
            "%s: a resume found every complete step damaged (bad/ in the run's folder), step %" PRIu64
            " last",
            in->path, s->step);
    return error_set(e, PAWL_CORRUPT, 0, "%s: no step is complete: step %" PRIu64 " lacks %s", in->path,
                     s->step, s->missing);
}

pawl_code pawl_inspect_find(const struct pawl_inspect *in, uint64_t step, uint32_t *index,
                            struct pawl_error *e) {
    *index = in->current;
    if (step == 0) return in->current != PAWL_INSPECT_NONE ? PAWL_OK : none_complete(in, e);
    *index = PAWL_INSPECT_NONE;
    for (uint32_t i = 0; i < in->step_count; i++) {
        const struct pawl_inspect_step *s = &in->steps[i].is;
        if (s->step != step ||
            (*index != PAWL_INSPECT_NONE && (in->steps[*index].is.complete || !s->complete)))
            continue;
        *index = i;
    }
    if (*index != PAWL_INSPECT_NONE) return PAWL_OK;
    char complete[200];
    list_complete(in, complete, sizeof complete);
    return error_set(e, PAWL_NOT_FOUND, 0, "%s: no step %" PRIu64 "; complete ones: %s", in->path, step,
                     complete);
}

static const struct inspect_step *step_at(const struct pawl_inspect *in, uint32_t index) {
    return index < in->step_count ? &in->steps[index] : NULL;
}

uint32_t pawl_inspect_part_count(const struct pawl_inspect *in, uint32_t index) {
    const struct inspect_step *step = step_at(in, index);
    return step != NULL ? step->slot_count : 0;
}

struct pawl_inspect_part pawl_inspect_part(const struct pawl_inspect *in, uint32_t index, uint32_t part) {
    const struct inspect_step *step = step_at(in, index);
    if (step == NULL || part >= step->slot_count) return (struct pawl_inspect_part){0};
    const struct inspect_slot *s = &in->slots[step->slots[part]];
    return (struct pawl_inspect_part){.store = store_path(in->stores[s->store].store),
                                      .file = s->file,
                                      .unit = s->entry.unit,
                                      .part = s->entry.part,
                                      .part_count = s->entry.part_count,
                                      .state = s->state,
                                      .file_bytes = s->file_bytes,
                                      .data_bytes = s->info.header.data_bytes,
                                      .counter = s->entry.counter,
                                      .committed_s = s->committed_s};
}

/* ---- tensors and slices ---- */

uint32_t pawl_inspect_tensor_count(const struct pawl_inspect *in, uint32_t index) {
    const struct inspect_step *step = step_at(in, index);
    return step != NULL && step->set_index != UINT32_MAX ? ckpt_set_tensor_count(in->set, step->set_index)
                                                         : 0;
}

struct pawl_tensor pawl_inspect_tensor(const struct pawl_inspect *in, uint32_t index, uint32_t tensor) {
    if (tensor >= pawl_inspect_tensor_count(in, index)) return (struct pawl_tensor){0};
    const struct ckpt_tensor *t = ckpt_set_tensor(in->set, in->steps[index].set_index, tensor);
    return (struct pawl_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank, .shape = t->shape};
}

static int by_numbers(const uint64_t *a, const uint64_t *b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* By name, then place in the tensor: equal boxes, which are copies, stand together. */
static int by_name(const void *x, const void *y) {
    const struct inspect_ref *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    if (order == 0 && a->rank != b->rank) order = a->rank < b->rank ? -1 : 1;
    if (order == 0) order = by_numbers(a->begin, b->begin, a->rank);
    if (order == 0) order = by_numbers(a->extent, b->extent, a->rank);
    return order != 0 ? order : a->part < b->part ? -1 : a->part > b->part;
}

uint64_t inspect_whole_elements(const struct slot_info *s, uint32_t tensor) {
    const struct st_tensor *t = &s->header.tensors[tensor];
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        if (!mem_mul(n, s->slices[tensor].shape[d], &n)) return UINT64_MAX;
    return n;
}

pawl_code inspect_step_index(struct pawl_inspect *in, uint32_t index, struct pawl_error *e) {
    struct inspect_step *step = &in->steps[index];
    if (step->refs != NULL) return PAWL_OK;
    size_t count = 0;
    for (uint32_t p = 0; p < step->slot_count; p++)
        count += in->slots[step->slots[p]].info.header.tensor_count;
    step->refs = calloc(count + 1, sizeof *step->refs);
    if (step->refs == NULL) return inspect_no_memory(e);
    for (uint32_t p = 0; p < step->slot_count; p++) {
        const struct slot_info *s = &in->slots[step->slots[p]].info;
        for (uint32_t i = 0; i < s->header.tensor_count; i++) {
            const struct st_tensor *t = &s->header.tensors[i];
            if (s->slices[i].name != NULL)
                step->refs[step->ref_count++] =
                    (struct inspect_ref){s->slices[i].name, p, i, t->rank, s->slices[i].begin, t->shape};
        }
    }
    qsort(step->refs, step->ref_count, sizeof *step->refs, by_name);
    return PAWL_OK;
}

/* The refs of the tensor's name: *first and how many. */
static uint32_t find_refs(struct pawl_inspect *in, uint32_t index, uint32_t tensor, uint32_t *first) {
    const char *name = pawl_inspect_tensor(in, index, tensor).name;
    *first = 0;
    if (name == NULL || inspect_step_index(in, index, NULL) != PAWL_OK) return 0;
    const struct inspect_step *step = &in->steps[index];
    uint32_t low = 0, high = step->ref_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(step->refs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    while (low < step->ref_count && strcmp(step->refs[low].name, name) == 0) low++;
    return low - *first;
}

uint32_t pawl_inspect_slice_count(struct pawl_inspect *in, uint32_t index, uint32_t tensor) {
    uint32_t first;
    return find_refs(in, index, tensor, &first);
}

struct pawl_inspect_slice pawl_inspect_slice(struct pawl_inspect *in, uint32_t index, uint32_t tensor,
                                             uint32_t slice) {
    uint32_t first, count = find_refs(in, index, tensor, &first);
    if (slice >= count) return (struct pawl_inspect_slice){0};
    const struct inspect_ref *r = &in->steps[index].refs[first + slice];
    return (struct pawl_inspect_slice){r->part, r->begin, r->extent};
}

pawl_code pawl_inspect_blob(struct pawl_inspect *in, uint32_t index, uint32_t unit, const void **blob,
                            size_t *bytes, struct pawl_error *e) {
    *blob = NULL;
    *bytes = 0;
    const struct inspect_step *step = step_at(in, index);
    if (step == NULL || step->set_index == UINT32_MAX)
        return error_set(e, PAWL_NOT_FOUND, 0, "%s: no part of the step can be read", in->path);
    return ckpt_set_blob(in->set, step->set_index, unit, blob, bytes, e);
}
