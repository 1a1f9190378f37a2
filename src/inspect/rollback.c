/* Going back to a step: the commit logs are rewritten without the later ones.
 *
 * Order, each durable before the next: the step is verified, every byte; every log is settled, so that no
 * part of the step hangs on a record that only the machine's memory holds; then store by store a new log
 * takes the place of the old one. A crash in between leaves some stores with later steps and some without:
 * those steps are incomplete, the wanted one is whole, and the same call finishes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspect.h"

/* Later steps in a store that cannot be read could come back with it. */
static pawl_code check_readable(const struct pawl_inspect *in, struct pawl_error *e) {
    for (uint32_t i = 0; i < in->problem_count; i++) {
        const struct pawl_inspect_problem *p = &in->problems[i].is;
        if (p->kind == PAWL_PROBLEM_STORE)
            return error_set(e, p->code, 0, "%s; nothing was changed", p->text);
    }
    for (uint32_t i = 0; i < in->store_count; i++)
        if (!in->stores[i].readable)
            return error_set(e, PAWL_IO, 0, "%s: its commit log cannot be read; nothing was changed",
                             store_path(in->stores[i].store));
    return PAWL_OK;
}

static pawl_code check_step(struct pawl_inspect *in, uint32_t index, struct pawl_error *e) {
    const struct pawl_inspect_step *s = &in->steps[index].is;
    if (!s->complete)
        return error_set(e, PAWL_CORRUPT, 0, "%s: step %" PRIu64 " is incomplete: %s; nothing was changed",
                         in->path, s->step, s->missing);
    struct pawl_inspect_verified verified = {0};
    struct inspect_sweep sweep = {.verified = &verified};
    uint32_t before = in->problem_count;
    pawl_code code = inspect_sweep_step(in, index, &sweep, e);
    if (code == PAWL_OK && in->problem_lost) return inspect_no_memory(e);
    if (code != PAWL_OK || in->problem_count == before) return code;
    const struct pawl_inspect_problem *p = &in->problems[before].is;
    return error_set(e, p->code, 0, "%s; nothing was changed", p->text);
}

/* A resume must take it afterwards, or going back to it was in vain. */
static pawl_code check_taken(const struct pawl_inspect *in, uint32_t index, struct pawl_error *e) {
    const struct pawl_inspect_step *s = &in->steps[index].is;
    if (inspect_newest(in, s->step) == index) return PAWL_OK;
    return error_set(
        e, PAWL_ARGUMENT, 0, "%s: step %" PRIu64 " of start %" PRIu64 "%s; nothing was changed", in->path,
        s->step, s->incarnation,
        s->bad ? " was found damaged by a resume (bad/ in the run's folder), which would pass it over"
               : " is older than a start that began anew (scratch/ in the run's folder)");
}

static pawl_code list_later(struct pawl_inspect *in, uint64_t step, struct pawl_inspect_changes *out,
                            struct pawl_error *e) {
    for (uint32_t i = 0; i < in->slot_count; i++) {
        const struct inspect_slot *slot = &in->slots[i];
        const struct record_entry *t = &slot->entry;
        struct pawl_inspect_change like = {.kind = PAWL_CHANGE_STEP,
                                           .store = store_path(in->stores[slot->store].store),
                                           .file = slot->file,
                                           .step = t->step,
                                           .incarnation = t->incarnation,
                                           .unit = t->unit,
                                           .part = t->part,
                                           .part_count = t->part_count,
                                           .bytes = slot->file_bytes,
                                           .why = "later than the wanted step"};
        if (t->step > step && !slot->gone && !inspect_change_add(out, like)) return inspect_no_memory(e);
    }
    return PAWL_OK;
}

static pawl_code rewrite_store(struct inspect_store *s, uint64_t step, struct pawl_error *e) {
    bool keep[COMMIT_SLOTS_MAX], all = true;
    for (uint32_t i = 0; i < s->record.entry_count; i++) {
        keep[i] = s->record.entries[i].step <= step;
        all = all && keep[i];
    }
    return all ? PAWL_OK : inspect_rewrite(s, keep, e);
}

pawl_code inspect_rollback(struct pawl_inspect *in, uint64_t step, bool dry_run,
                           struct pawl_inspect_changes *out, struct pawl_error *e) {
    uint32_t index;
    pawl_code code = check_readable(in, e);
    if (code == PAWL_OK) code = pawl_inspect_find(in, step, &index, e);
    if (code == PAWL_OK) code = check_step(in, index, e);
    if (code == PAWL_OK) code = check_taken(in, index, e);
    if (code == PAWL_OK) code = list_later(in, step, out, e);
    out->newest = step;
    if (code != PAWL_OK || dry_run) return code;
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        if (in->stores[i].any) code = ckpt_settle(in->stores[i].store, e);
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        if (in->stores[i].any) code = rewrite_store(&in->stores[i], step, e);
    return code;
}
