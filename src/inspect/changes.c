/* What rollback and gc share: the list of changes, the durable rewriting of a commit log, the opening of a
 * run's folder under all its locks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspect.h"

bool inspect_change_add(struct pawl_inspect_changes *c, struct pawl_inspect_change like) {
    if (c->count == c->room) {
        uint32_t room = c->room == 0 ? 16 : 2 * c->room;
        struct inspect_change *more = realloc(c->items, room * sizeof *more);
        if (more == NULL) return false;
        c->items = more;
        c->room = room;
    }
    struct inspect_change *item = &c->items[c->count];
    *item = (struct inspect_change){like, strdup(like.store), strdup(like.file)};
    if (item->store == NULL || item->file == NULL) {
        free(item->store);
        free(item->file);
        return false;
    }
    item->is.store = item->store;
    item->is.file = item->file;
    c->count++;
    return true;
}

void pawl_inspect_changes_free(struct pawl_inspect_changes *changes) {
    if (changes == NULL) return;
    for (uint32_t i = 0; i < changes->count; i++) {
        free(changes->items[i].store);
        free(changes->items[i].file);
    }
    free(changes->items);
    free(changes);
}

uint32_t pawl_inspect_changes_count(const struct pawl_inspect_changes *changes) { return changes->count; }

struct pawl_inspect_change pawl_inspect_changes_at(const struct pawl_inspect_changes *changes, uint32_t i) {
    return i < changes->count ? changes->items[i].is : (struct pawl_inspect_change){0};
}

uint64_t pawl_inspect_changes_newest(const struct pawl_inspect_changes *changes) { return changes->newest; }

const char *pawl_inspect_change_name(enum pawl_inspect_change_kind kind) {
    static const char *const names[] = {"step", "slot", "temporary"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

/* ---- the log ---- */

static void filter(const struct record *from, const bool *keep, struct record *to) {
    *to = *from;
    to->entry_count = 0;
    for (uint32_t i = 0; i < from->entry_count; i++)
        if (keep[i]) to->entries[to->entry_count++] = from->entries[i];
}

/* Both regions hold the record, one with the next counter, so that damage to either leaves it standing. */
static bool make_image(struct record *r, struct bytes *out) {
    for (uint32_t region = 0; region < 2; region++) {
        size_t begin = out->size;
        r->counter++;
        record_encode(r, out);
        if (!out->failed) record_put_zeros(out, RECORD_REGION_BYTES - (out->size - begin));
    }
    return !out->failed;
}

/* Older logs say nothing any more. They would only be read, and never stand. */
static pawl_code remove_other_logs(struct inspect_store *s, const char *name, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0, log;
    pawl_code code = store_list(s->store, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        if (record_log_of_name(names[i], &log) && strcmp(names[i], name) != 0)
            code = store_remove(s->store, names[i], e);
    store_names_free(names, count);
    return code == PAWL_OK ? store_sync_folder(s->store, e) : code;
}

pawl_code inspect_rewrite(struct inspect_store *s, const bool *keep, struct pawl_error *e) {
    char name[RECORD_NAME_BYTES];
    uint32_t again = 0, number = s->last_log + 1;
    record_log_name(number, name);
    if (!record_log_of_name(name, &again) || again != number || s->record.counter > UINT64_MAX / 2)
        return error_set(e, PAWL_CORRUPT, 0, "%s: log number %u or record counter %llu is beyond any use",
                         store_path(s->store), s->last_log, (unsigned long long)s->record.counter);
    struct record *r = malloc(sizeof *r);
    struct bytes image = {0};
    pawl_code code = PAWL_OK;
    if (r != NULL) filter(&s->record, keep, r);
    if (r == NULL || !make_image(r, &image)) code = inspect_no_memory(e);
    if (code == PAWL_OK) code = store_put(s->store, name, image.data, image.size, e);
    if (code == PAWL_OK) {
        s->record = *r;
        s->last_log = number;
        code = remove_other_logs(s, name, e);
    }
    bytes_close(&image);
    free(r);
    return code;
}

/* ---- under lock ---- */

struct locked {
    struct store *run; /* the launcher of `pawl train` locks the run's folder itself */
    struct pawl_inspect *in;
};

static pawl_code open_locked(const char *path, const struct pawl_inspect_change_options *o,
                             struct locked *out, struct pawl_error *e) {
    *out = (struct locked){0};
    struct inspect_folders folders;
    pawl_code code = inspect_folders_find(path, &folders, e);
    if (code != PAWL_OK) return code;
    if (folders.run != NULL && !o->dry_run)
        code = store_open(folders.run, STORE_PLAIN, false, &out->run, NULL, e);
    if (code == PAWL_OK) code = inspect_open_folders(&folders, path, !o->dry_run, &o->inspect, &out->in, e);
    inspect_folders_close(&folders);
    return code;
}

static void close_locked(struct locked *l) {
    pawl_inspect_close(l->in);
    store_close(l->run);
}

static pawl_code change(const char *path, const struct pawl_inspect_change_options *o, bool rollback,
                        struct pawl_inspect_changes **out, struct pawl_error *e) {
    struct locked l;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return inspect_no_memory(e);
    pawl_code code = open_locked(path, o, &l, e);
    if (code == PAWL_OK)
        code = rollback ? inspect_rollback(l.in, o->step, o->dry_run, *out, e)
                        : inspect_gc(l.in, o->keep, o->dry_run, *out, e);
    close_locked(&l);
    if (code != PAWL_OK) {
        pawl_inspect_changes_free(*out);
        *out = NULL;
    }
    return code;
}

pawl_code pawl_inspect_rollback(const char *path, const struct pawl_inspect_change_options *options,
                                struct pawl_inspect_changes **out, struct pawl_error *e) {
    *out = NULL;
    if (options->step == 0) return error_set(e, PAWL_ARGUMENT, 0, "rollback: name the step to go back to");
    return change(path, options, true, out, e);
}

pawl_code pawl_inspect_gc(const char *path, const struct pawl_inspect_change_options *options,
                          struct pawl_inspect_changes **out, struct pawl_error *e) {
    return change(path, options, false, out, e);
}
