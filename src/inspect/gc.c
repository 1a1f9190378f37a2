/* Collecting what nobody will ask for again.
 *
 * What must hold: the newest complete step stays, whatever else is damaged; nothing goes while no step is
 * complete; steps go only when every store can be read, since a part that cannot be seen may complete them; a
 * slot file goes only when the record that does not name it is durable. Order: all logs settled, logs
 * rewritten without what goes, then files removed: a crash leaves at worst files that the next call removes.
 * New logs need room. Where there is none, those files go first that no record names which could stand after
 * a power cut, in either region of any log: that needs nothing settled. When more is to go, the logs are
 * tried again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspect.h"

struct plan {
    struct pawl_inspect *in;
    struct pawl_inspect_changes *out;
    const char **why; /* [steps]; null: stays */
};

static bool all_readable(const struct pawl_inspect *in) {
    for (uint32_t i = 0; i < in->problem_count; i++)
        if (in->problems[i].is.kind == PAWL_PROBLEM_STORE) return false;
    for (uint32_t i = 0; i < in->store_count; i++)
        if (!in->stores[i].readable) return false;
    return true;
}

/* ---- which steps go ---- */

static void drop_incomplete(struct plan *p) {
    const struct pawl_inspect *in = p->in;
    uint64_t newest_start = 0;
    for (uint32_t i = 0; i < in->step_count; i++)
        if (in->steps[i].is.incarnation > newest_start) newest_start = in->steps[i].is.incarnation;
    for (uint32_t i = 0; i < in->step_count; i++) {
        const struct pawl_inspect_step *s = &in->steps[i].is;
        if (s->complete) continue;
        if (s->step < in->steps[in->current].is.step)
            p->why[i] = "incomplete, and older than the newest complete step";
        else if (s->incarnation < newest_start)
            p->why[i] = "incomplete, of an earlier start of the run";
    }
}

/* Only steps that verify count as kept: damage must not push out the last good one. */
static pawl_code drop_old(struct plan *p, uint32_t keep, struct pawl_error *e) {
    struct pawl_inspect *in = p->in;
    uint32_t good = 0;
    for (uint32_t i = 0; i < in->step_count; i++) {
        const struct pawl_inspect_step *s = &in->steps[i].is;
        /* What a resume would pass over neither counts nor goes: somebody has to look at it. */
        if (!s->complete || s->bad || inspect_newest(in, s->step) != i) continue;
        if (good >= keep) {
            p->why[i] = "complete, but newer ones are enough";
            continue;
        }
        struct pawl_inspect_verified verified = {0};
        struct inspect_sweep sweep = {.verified = &verified};
        uint32_t before = in->problem_count;
        pawl_code code = inspect_sweep_step(in, i, &sweep, e);
        if (code != PAWL_OK) return code;
        if (in->problem_lost) return inspect_no_memory(e);
        if (in->problem_count == before) good++;
    }
    return PAWL_OK;
}

/* Why the slot's step goes; null: it stays. */
static const char *why_of(const struct plan *p, const struct record_entry *t) {
    for (uint32_t i = 0; i < p->in->step_count; i++) {
        const struct pawl_inspect_step *s = &p->in->steps[i].is;
        if (s->step == t->step && s->incarnation == t->incarnation && s->units == t->unit_count)
            return p->why[i];
    }
    return NULL;
}

static pawl_code list_parts(struct plan *p, struct pawl_error *e) {
    for (uint32_t i = 0; i < p->in->slot_count; i++) {
        const struct inspect_slot *slot = &p->in->slots[i];
        const struct record_entry *t = &slot->entry;
        struct pawl_inspect_change like = {.kind = PAWL_CHANGE_STEP,
                                           .store = store_path(p->in->stores[slot->store].store),
                                           .file = slot->file,
                                           .step = t->step,
                                           .incarnation = t->incarnation,
                                           .unit = t->unit,
                                           .part = t->part,
                                           .part_count = t->part_count,
                                           .bytes = slot->file_bytes,
                                           .why = slot->gone ? NULL : why_of(p, t)};
        if (like.why != NULL && !inspect_change_add(p->out, like)) return inspect_no_memory(e);
    }
    return PAWL_OK;
}

/* ---- which files go ---- */

static bool is_named(const struct inspect_store *s, uint32_t number) {
    for (uint32_t i = 0; i < s->record.entry_count; i++)
        if (s->record.entries[i].slot == number) return true;
    return false;
}

static pawl_code list_unnamed(struct plan *p, struct inspect_store *s, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0, number;
    if (!s->any) return PAWL_OK; /* without a record nobody knows what counts */
    pawl_code code = store_list(s->store, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        struct pawl_inspect_change like = {.kind = PAWL_CHANGE_SLOT,
                                           .store = store_path(s->store),
                                           .file = names[i],
                                           .why = "no record names it"};
        bool goes = record_slot_of_name(names[i], &number) && !is_named(s, number) &&
                    inspect_file_bytes(s->store, names[i], &like.bytes);
        if (goes && !inspect_change_add(p->out, like)) code = inspect_no_memory(e);
    }
    store_names_free(names, count);
    return code;
}

static pawl_code list_temporaries(struct plan *p, struct inspect_store *s, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0;
    pawl_code code = inspect_temporaries(s->store, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        struct pawl_inspect_change like = {.kind = PAWL_CHANGE_TEMPORARY,
                                           .store = store_path(s->store),
                                           .file = names[i],
                                           .why = "left over from a crash"};
        (void)inspect_file_bytes(s->store, names[i], &like.bytes);
        if (!inspect_change_add(p->out, like)) code = inspect_no_memory(e);
    }
    store_names_free(names, count);
    return code;
}

/* ---- doing it ---- */

static pawl_code rewrite_store(const struct plan *p, struct inspect_store *s, struct pawl_error *e) {
    bool keep[COMMIT_SLOTS_MAX], all = true;
    for (uint32_t i = 0; i < s->record.entry_count; i++) {
        keep[i] = why_of(p, &s->record.entries[i]) == NULL;
        all = all && keep[i];
    }
    return all ? PAWL_OK : inspect_rewrite(s, keep, e);
}

static struct inspect_store *store_of(const struct pawl_inspect *in, const char *path) {
    for (uint32_t i = 0; i < in->store_count; i++)
        if (strcmp(store_path(in->stores[i].store), path) == 0) return &in->stores[i];
    return NULL;
}

static pawl_code remove_file(const struct pawl_inspect_change *c, struct inspect_store *s,
                             struct pawl_error *e) {
    uint64_t bytes;
    if (c->kind == PAWL_CHANGE_TEMPORARY) return inspect_temporary_remove(s->store, c->file, e);
    if (!inspect_file_bytes(s->store, c->file, &bytes)) return PAWL_OK; /* a damaged part may have no file */
    return store_remove(s->store, c->file, e);
}

static pawl_code put_logs(struct plan *p, struct pawl_error *e) {
    struct pawl_inspect *in = p->in;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        if (in->stores[i].any) code = ckpt_settle(in->stores[i].store, e);
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        if (in->stores[i].any) code = rewrite_store(p, &in->stores[i], e);
    return code;
}

static pawl_code sync_folders(const struct plan *p, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < p->in->store_count && code == PAWL_OK; i++)
        if (p->in->stores[i].any) code = store_sync_folder(p->in->stores[i].store, e);
    return code;
}

/* No record names it that stands now, or that would stand if the last write of the log were lost. */
static bool is_free(struct plan *p, const struct pawl_inspect_change *c) {
    uint32_t number;
    if (c->kind == PAWL_CHANGE_TEMPORARY) return true;
    return c->kind == PAWL_CHANGE_SLOT && record_slot_of_name(c->file, &number) &&
           inspect_slot_is_free(store_of(p->in, c->store)->store, number);
}

/* The disk is full, and `cause` says so: whatever goes without a new log. */
static pawl_code make_room(struct plan *p, struct pawl_error *cause) {
    uint32_t count = 0;
    uint64_t bytes = 0;
    pawl_code code = PAWL_OK;
    struct pawl_error why = {0};
    for (uint32_t i = 0; i < p->out->count && code == PAWL_OK; i++) {
        const struct pawl_inspect_change *c = &p->out->items[i].is;
        if (!is_free(p, c)) continue;
        code = remove_file(c, store_of(p->in, c->store), &why);
        count += code == PAWL_OK;
        bytes += code == PAWL_OK ? c->bytes : 0;
    }
    if (code == PAWL_OK) code = sync_folders(p, &why);
    if (code == PAWL_OK && count == p->out->count) return PAWL_OK; /* no log needs to change */
    if (code == PAWL_OK && count > 0) code = put_logs(p, &why);
    if (code == PAWL_OK && count > 0) return PAWL_OK;
    if (code == PAWL_OK) why = *cause;
    if (code == PAWL_OK) code = PAWL_NO_SPACE;
    return error_set(cause, code, 0, "%.500s; %u files (%" PRIu64 " bytes) were removed before that",
                     why.text, count, bytes);
}

static pawl_code apply(struct plan *p, struct pawl_error *e) {
    struct pawl_inspect *in = p->in;
    struct pawl_error why = {0};
    pawl_code code = put_logs(p, &why);
    if (code == PAWL_NO_SPACE) code = make_room(p, &why);
    if (code != PAWL_OK && e != NULL) *e = why;
    for (uint32_t i = 0; i < p->out->count && code == PAWL_OK; i++) {
        const struct pawl_inspect_change *c = &p->out->items[i].is;
        code = remove_file(c, store_of(in, c->store), e);
    }
    return code == PAWL_OK ? sync_folders(p, e) : code;
}

pawl_code inspect_gc(struct pawl_inspect *in, uint32_t keep, bool dry_run, struct pawl_inspect_changes *out,
                     struct pawl_error *e) {
    uint32_t index;
    pawl_code code = pawl_inspect_find(in, 0, &index, e);
    if (code != PAWL_OK) return code;
    struct plan p = {in, out, calloc((size_t)in->step_count + 1, sizeof *p.why)};
    if (p.why == NULL) return inspect_no_memory(e);
    out->newest = in->steps[index].is.step;
    if (all_readable(in)) {
        drop_incomplete(&p);
        if (keep > 0) code = drop_old(&p, keep, e);
    }
    p.why[index] = NULL;
    if (code == PAWL_OK) code = list_parts(&p, e);
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        code = list_unnamed(&p, &in->stores[i], e);
    for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++)
        code = list_temporaries(&p, &in->stores[i], e);
    if (code == PAWL_OK && !dry_run && out->count > 0) code = apply(&p, e);
    free(p.why);
    return code;
}
