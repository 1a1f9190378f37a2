/* Opening, scanning and closing an inventory, its problems, and the getters of the public header. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/ckpt.h"
#include "inspect/inspect.h"

pawl_code inspect_no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "looking at checkpoints: no memory");
}

/* ---- problems ---- */

static char *copy_text(const char *text) { return text != NULL ? strdup(text) : NULL; }

void inspect_problem_add(struct pawl_inspect *in, struct pawl_inspect_problem like, const char *format, ...) {
    struct inspect_problem *more = realloc(in->problems, (in->problem_count + 1) * sizeof *more);
    if (more == NULL) {
        in->problem_lost = true;
        return;
    }
    in->problems = more;
    struct inspect_problem *p = &more[in->problem_count++];
    va_list args;
    va_start(args, format);
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    *p = (struct inspect_problem){like, copy_text(like.store), copy_text(like.file), copy_text(like.tensor),
                                  text};
    p->is.store = p->store;
    p->is.file = p->file;
    p->is.tensor = p->tensor;
    p->is.text = p->text != NULL ? p->text : pawl_code_text(like.code);
}

void inspect_problems_clear(struct pawl_inspect *in, uint32_t from) {
    for (uint32_t i = from; i < in->problem_count; i++) {
        free(in->problems[i].store);
        free(in->problems[i].file);
        free(in->problems[i].tensor);
        free(in->problems[i].text);
    }
    if (from < in->problem_count) in->problem_count = from;
}

struct pawl_inspect_problem inspect_problem_of_slot(const struct pawl_inspect *in,
                                                    const struct inspect_slot *slot,
                                                    enum pawl_inspect_problem_kind kind, pawl_code code) {
    const struct record_entry *t = &slot->entry;
    return (struct pawl_inspect_problem){.kind = kind,
                                         .code = code,
                                         .store = store_path(in->stores[slot->store].store),
                                         .file = slot->file,
                                         .step = t->step,
                                         .incarnation = t->incarnation,
                                         .unit = t->unit,
                                         .part = t->part,
                                         .part_count = t->part_count};
}

const char *pawl_inspect_problem_name(enum pawl_inspect_problem_kind kind) {
    static const char *const names[] = {"store", "identity", "log",  "slot",
                                        "chunk", "tensor",   "step", "start"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

uint32_t pawl_inspect_problem_count(const struct pawl_inspect *in) { return in->problem_count; }

struct pawl_inspect_problem pawl_inspect_problem(const struct pawl_inspect *in, uint32_t problem) {
    return problem < in->problem_count ? in->problems[problem].is : (struct pawl_inspect_problem){0};
}

/* What keeps us from knowing comes before what we know to be bad. */
pawl_code pawl_inspect_outcome(const struct pawl_inspect *in, struct pawl_error *e) {
    if (in->problem_lost) return inspect_no_memory(e);
    const struct pawl_inspect_problem *worst = NULL;
    for (uint32_t i = 0; i < in->problem_count; i++) {
        const struct pawl_inspect_problem *p = &in->problems[i].is;
        bool stops = pawl_code_next(p->code) == PAWL_NEXT_STOP;
        if (worst == NULL || (stops && pawl_code_next(worst->code) != PAWL_NEXT_STOP)) worst = p;
    }
    return worst == NULL ? PAWL_OK : error_set(e, worst->code, 0, "%s", worst->text);
}

void inspect_progress(const struct pawl_inspect *in, const char *what, uint64_t done, uint64_t total) {
    if (in->options.progress != NULL) in->options.progress(in->options.progress_context, what, done, total);
}

/* ---- life ---- */

static void forget_scan(struct pawl_inspect *in) {
    inspect_steps_close(in);
    for (uint32_t i = 0; i < in->slot_count; i++) slot_info_close(&in->slots[i].info);
    in->slot_count = 0;
    inspect_problems_clear(in, in->open_problem_count);
    ckpt_set_close(in->set);
    in->set = NULL;
    in->has_run = false;
}

static pawl_code open_set(struct pawl_inspect *in, struct pawl_error *e) {
    struct store **stores = calloc((size_t)in->store_count + 1, sizeof(struct store *));
    if (stores == NULL) return inspect_no_memory(e);
    for (uint32_t i = 0; i < in->store_count; i++) stores[i] = in->stores[i].store;
    struct ckpt_set_options options = {.unchecked = in->options.unchecked};
    pawl_code code = ckpt_set_open_with(stores, in->store_count, &options, &in->set, e);
    free(stores);
    return code;
}

/* The engine's part that is this slot; false: it saw another state of the store. */
static bool set_has(const struct pawl_inspect *in, const struct inspect_slot *slot) {
    for (uint32_t i = 0; i < ckpt_set_count(in->set); i++) {
        const struct ckpt_step *s = ckpt_set_at(in->set, i);
        if (s->step != slot->entry.step || s->incarnation != slot->entry.incarnation) continue;
        for (uint32_t k = 0; k < ckpt_set_part_count(in->set, i); k++) {
            struct ckpt_part p = ckpt_set_part(in->set, i, k);
            if (p.store == in->stores[slot->store].store && p.counter == slot->entry.counter &&
                strcmp(p.file, slot->file) == 0)
                return true;
        }
    }
    return false;
}

/* A writer that commits between our look and the engine's makes them differ. The slots on which they do are
 * taken for gone, and true is returned. */
static bool differs(struct pawl_inspect *in) {
    uint64_t parts = 0, good = 0;
    for (uint32_t i = 0; i < ckpt_set_count(in->set); i++) parts += ckpt_set_part_count(in->set, i);
    for (uint32_t i = 0; i < in->slot_count; i++) {
        struct inspect_slot *s = &in->slots[i];
        if (s->state != PAWL_INSPECT_GOOD) continue;
        if (!set_has(in, s)) s->gone = true;
        if (!s->gone) good++;
    }
    bool gone = false;
    for (uint32_t i = 0; i < in->slot_count; i++) gone = gone || in->slots[i].gone;
    return gone || good != parts;
}

/* Has a writer committed since we looked? */
static bool moved(const struct pawl_inspect *in) {
    struct record *now = malloc(sizeof *now);
    bool moved = false;
    for (uint32_t i = 0; now != NULL && i < in->store_count && !moved; i++)
        moved = inspect_record_now(in->stores[i].store, now) &&
                (!in->stores[i].any || now->counter != in->stores[i].record.counter);
    free(now);
    return moved;
}

/* Stores are looked at one after the other: while a writer commits, the first may show an older step than the
 * last, and no step complete although one always is. */
static bool has_complete(const struct pawl_inspect *in) {
    for (uint32_t i = 0; i < ckpt_set_count(in->set); i++)
        if (ckpt_set_at(in->set, i)->complete) return true;
    return false;
}

/* Enough for a writer that commits as fast as it can, and an end for one that is faster. */
#define SCAN_TRIES 20

pawl_code inspect_scan(struct pawl_inspect *in, struct pawl_error *e) {
    for (int tries = 1;; tries++) {
        forget_scan(in);
        pawl_code code = inspect_marks_read(in, e);
        if (code == PAWL_OK) code = inspect_group_check(in, e);
        for (uint32_t i = 0; i < in->store_count && code == PAWL_OK; i++) code = inspect_scan_store(in, i, e);
        if (code == PAWL_OK) code = open_set(in, e);
        if (code != PAWL_OK) return code;
        in->unsettled = differs(in) || (!has_complete(in) && moved(in));
        if (!in->unsettled || tries == SCAN_TRIES) return inspect_steps_make(in, e);
    }
}

pawl_code inspect_new(const char *path, struct store *const *stores, uint32_t count, bool owned,
                      const struct pawl_inspect_options *options, struct pawl_inspect **out,
                      struct pawl_error *e) {
    *out = NULL;
    struct pawl_inspect *in = calloc(1, sizeof *in);
    struct inspect_store *room = calloc((size_t)count + 1, sizeof *room);
    char *copy = strdup(path);
    if (in == NULL || room == NULL || copy == NULL) {
        for (uint32_t i = 0; i < count && owned; i++) store_close(stores[i]);
        free(in);
        free(room);
        free(copy);
        return inspect_no_memory(e);
    }
    *in = (struct pawl_inspect){.path = copy, .stores = room, .store_count = count, .owned = owned};
    if (options != NULL) in->options = *options;
    for (uint32_t i = 0; i < count; i++) room[i].store = stores[i];
    *out = in;
    return PAWL_OK;
}

void pawl_inspect_close(struct pawl_inspect *in) {
    if (in == NULL) return;
    in->open_problem_count = 0;
    forget_scan(in);
    for (uint32_t i = 0; i < in->store_count && in->owned; i++) store_close(in->stores[i].store);
    free(in->slots);
    free(in->problems);
    free(in->stores);
    free(in->path);
    free(in->run);
    ckpt_marks_close(&in->marks);
    free(in);
}

struct opened {
    struct store **stores;
    uint32_t count;
};

static pawl_code open_stores(const struct inspect_folders *folders, bool lock, struct opened *out,
                             struct pawl_inspect_problem *bad, char (*texts)[768], uint32_t *bad_count,
                             struct pawl_error *e) {
    for (uint32_t i = 0; i < folders->count; i++) {
        struct pawl_error why = {0};
        pawl_code code = store_open(folders->paths[i], lock ? STORE_PLAIN : STORE_AUTO, !lock,
                                    &out->stores[out->count], NULL, &why);
        if (code == PAWL_OK) {
            out->count++;
            continue;
        }
        if (lock || code == PAWL_MEMORY) {
            if (e != NULL) *e = why;
            return code;
        }
        if (code == PAWL_NOT_FOUND)
            code = PAWL_IO; /* it was in the list a moment ago: a dangling link, say */
        bad[*bad_count] = (struct pawl_inspect_problem){
            .kind = PAWL_PROBLEM_STORE, .code = code, .store = folders->paths[i]};
        memcpy(texts[(*bad_count)++], why.text, sizeof why.text);
    }
    return PAWL_OK;
}

pawl_code inspect_open_folders(const struct inspect_folders *folders, const char *path, bool lock,
                               const struct pawl_inspect_options *options, struct pawl_inspect **out,
                               struct pawl_error *e) {
    *out = NULL;
    size_t room = (size_t)folders->count + 1;
    struct opened opened = {.stores = calloc(room, sizeof(struct store *))};
    struct pawl_inspect_problem *bad = calloc(room, sizeof *bad);
    char(*texts)[768] = calloc(room, sizeof *texts);
    uint32_t bad_count = 0;
    pawl_code code = opened.stores == NULL || bad == NULL || texts == NULL
                         ? inspect_no_memory(e)
                         : open_stores(folders, lock, &opened, bad, texts, &bad_count, e);
    if (code == PAWL_OK) {
        code = inspect_new(path, opened.stores, opened.count, true, options, out, e);
    } else {
        for (uint32_t i = 0; i < opened.count; i++) store_close(opened.stores[i]);
    }
    for (uint32_t i = 0; code == PAWL_OK && i < bad_count; i++)
        inspect_problem_add(*out, bad[i], "%s", texts[i]);
    if (code == PAWL_OK) (*out)->open_problem_count = (*out)->problem_count;
    if (code == PAWL_OK && folders->run != NULL && ((*out)->run = strdup(folders->run)) == NULL)
        code = inspect_no_memory(e);
    if (code == PAWL_OK) code = inspect_scan(*out, e);
    if (code != PAWL_OK) {
        pawl_inspect_close(*out);
        *out = NULL;
    }
    free(opened.stores);
    free(bad);
    free(texts);
    return code;
}

pawl_code pawl_inspect_open(const char *path, const struct pawl_inspect_options *options,
                            struct pawl_inspect **out, struct pawl_error *e) {
    *out = NULL;
    struct inspect_folders folders;
    pawl_code code = inspect_folders_find(path, &folders, e);
    if (code != PAWL_OK) return code;
    code = inspect_open_folders(&folders, path, false, options, out, e);
    inspect_folders_close(&folders);
    if (code != PAWL_OK) return code;
    if ((*out)->problem_count == 0 && (*out)->step_count == 0 && !(*out)->unsettled) {
        pawl_inspect_close(*out);
        *out = NULL;
        return error_set(e, PAWL_NOT_FOUND, 0, "%s: nothing was ever saved here", path);
    }
    return PAWL_OK;
}

/* ---- getters ---- */

struct pawl_inspect_summary pawl_inspect_summary(const struct pawl_inspect *in) {
    struct pawl_inspect_summary s = {.stores = in->store_count, .current = in->current};
    snprintf(s.path, sizeof s.path, "%s", in->path);
    if (in->has_run) hash_hex(in->run_id, RUN_ID_BYTES, s.run);
    for (uint32_t i = 0; i < in->store_count; i++) {
        s.used_bytes += in->stores[i].used_bytes;
        s.unused_bytes += in->stores[i].unused_bytes;
    }
    if (in->store_count > 0 && store_space(in->stores[0].store, &s.free_bytes, NULL) != PAWL_OK)
        s.free_bytes = 0;
    return s;
}

uint32_t pawl_inspect_store_count(const struct pawl_inspect *in) { return in->store_count; }

struct pawl_inspect_store pawl_inspect_store(const struct pawl_inspect *in, uint32_t store) {
    if (store >= in->store_count) return (struct pawl_inspect_store){0};
    const struct inspect_store *s = &in->stores[store];
    return (struct pawl_inspect_store){.path = store_path(s->store),
                                       .readable = s->readable,
                                       .counter = s->record.counter,
                                       .logs = s->logs,
                                       .used = s->used,
                                       .unused = s->unused,
                                       .damaged = s->damaged,
                                       .used_bytes = s->used_bytes,
                                       .unused_bytes = s->unused_bytes};
}

const char *pawl_inspect_state_name(enum pawl_inspect_state state) {
    static const char *const names[] = {"good", "damaged", "missing", "unreadable"};
    return (size_t)state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}
