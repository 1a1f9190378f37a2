/* The front of every store: checks arguments, and calls the back end. */
#include "store/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *store_kind_name(enum store_kind kind) {
    switch (kind) {
    case STORE_AUTO:
        return "automatic";
    case STORE_URING:
        return "io_uring+O_DIRECT";
    case STORE_PLAIN:
        return "plain files";
    case STORE_PMEM:
        return "persistent memory";
    case STORE_SIM:
        return "simulated disk";
    }
    return "unknown";
}

void store_close(struct store *s) {
    if (s == NULL) return;
    while (s->in_flight > 0) {
        s->table->wait(s, store_held_ns(s, 1000000000));
        store_release(s);
        s->table->progress(s);
    }
    s->table->close(s);
}

enum store_kind store_kind_of(const struct store *s) { return s->kind; }
const char *store_path(const struct store *s) { return s->path; }

static pawl_code check_name(const struct store *s, const char *name, struct pawl_error *e) {
    size_t size = strlen(name);
    if (size == 0 || size > STORE_NAME_BYTES_MAX || name[0] == '.' || strchr(name, '/') != NULL)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "%s: file name '%.220s': wanted 1 to %u characters, no '/', no leading '.'", s->path,
                         name, STORE_NAME_BYTES_MAX);
    return PAWL_OK;
}

static pawl_code check_writable(const struct store *s, const char *what, struct pawl_error *e) {
    if (!s->read_only) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s: %s in a store opened read-only", s->path, what);
}

static pawl_code check_alive(const struct store_file *f, struct pawl_error *e) {
    if (f->dead_code == PAWL_OK) return PAWL_OK;
    return error_set(e, f->dead_code, f->dead_errno,
                     "%s/%s: an earlier flush failed, which is final for this file", f->store->path, f->name);
}

pawl_code store_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                          struct store_file **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_name(s, name, e);
    if (code == PAWL_OK && (create || bytes > 0)) code = check_writable(s, "file creation", e);
    if (code == PAWL_OK && (create || bytes > 0)) code = store_fault_check(s, name, e);
    if (code != PAWL_OK) return code;
    if (bytes > INT64_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "%s/%s: size %llu is beyond what files can have", s->path, name,
                         (unsigned long long)bytes);
    const struct store_dead *d = store_dead_find(s, name);
    if (d != NULL)
        return error_set(e, d->code, d->os_errno,
                         "%s/%s: an earlier flush failed, which is final for this file", s->path, name);
    return s->table->file_open(s, name, create, bytes, out, e);
}

void store_file_close(struct store_file *f) {
    if (f == NULL) return;
    if (f->in_flight > 0)
        f->closing = true;
    else
        f->store->table->file_free(f);
}

pawl_code store_file_size(struct store_file *f, uint64_t *bytes, struct pawl_error *e) {
    pawl_code code = check_alive(f, e);
    return code != PAWL_OK ? code : f->store->table->file_size(f, bytes, e);
}

pawl_code store_file_truncate(struct store_file *f, uint64_t bytes, struct pawl_error *e) {
    pawl_code code = check_writable(f->store, "truncation", e);
    if (code == PAWL_OK) code = check_alive(f, e);
    if (code == PAWL_OK) code = store_fault_check(f->store, f->name, e);
    return code != PAWL_OK ? code : f->store->table->file_truncate(f, bytes, e);
}

static pawl_code submit(struct store_file *f, const struct store_op *wanted, struct pawl_error *e) {
    struct store *s = f->store;
    struct store_op *op = malloc(sizeof *op);
    if (op == NULL || !store_ready_reserve(s)) {
        free(op);
        return error_set(e, PAWL_MEMORY, 0, "%s/%s: no memory for an operation", s->path, f->name);
    }
    *op = *wanted;
    op->file = f;
    store_op_start(op);
    return PAWL_OK;
}

static pawl_code check_blocks(const struct store_file *f, const struct store_op *op, struct pawl_error *e) {
    if (op->offset % STORE_BLOCK == 0 && op->bytes % STORE_BLOCK == 0 && op->bytes > 0 &&
        (uintptr_t)op->data % STORE_BLOCK == 0 && op->offset <= INT64_MAX - op->bytes)
        return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "%s/%s: offset %llu, length %zu, address %p: wanted multiples of %u", f->store->path,
                     f->name, (unsigned long long)op->offset, op->bytes, (void *)op->data, STORE_BLOCK);
}

pawl_code store_write(struct store_file *f, uint64_t offset, const void *data, size_t bytes, uint64_t cookie,
                      struct pawl_error *e) {
    struct store_op op = {.kind = STORE_OP_WRITE, .offset = offset, .bytes = bytes, .cookie = cookie};
    memcpy(&op.data, &data, sizeof data); /* one field serves reads and writes; a write only reads it */
    pawl_code code = check_writable(f->store, "write", e);
    if (code == PAWL_OK) code = check_blocks(f, &op, e);
    return code != PAWL_OK ? code : submit(f, &op, e);
}

pawl_code store_read(struct store_file *f, uint64_t offset, void *data, size_t bytes, uint64_t cookie,
                     struct pawl_error *e) {
    struct store_op op = {
        .kind = STORE_OP_READ, .offset = offset, .data = data, .bytes = bytes, .cookie = cookie};
    pawl_code code = check_blocks(f, &op, e);
    return code != PAWL_OK ? code : submit(f, &op, e);
}

bool store_is_cached(struct store_file *f, uint64_t offset, size_t bytes) {
    const struct store_table *table = f->store->table;
    return table->is_cached != NULL && f->dead_code == PAWL_OK && table->is_cached(f, offset, bytes);
}

bool store_read_cached(struct store_file *f, uint64_t offset, void *data, size_t bytes) {
    const struct store_table *table = f->store->table;
    return table->read_cached != NULL && table->read_cached(f, offset, data, bytes);
}

pawl_code store_flush(struct store_file *f, uint64_t cookie, struct pawl_error *e) {
    struct store_op op = {.kind = STORE_OP_FLUSH, .cookie = cookie};
    return submit(f, &op, e); /* also when opened read-only: it changes no byte */
}

uint32_t store_depth(const struct store *s) { return s->depth; }

void store_depth_set(struct store *s, uint32_t depth) {
    if (depth > STORE_DEPTH_MAX) depth = STORE_DEPTH_MAX;
    s->depth = depth == 0 ? s->depth_default : depth;
    if (s->table->depth_changed != NULL) s->table->depth_changed(s);
}

void store_register(struct store *s, void *base, size_t bytes) {
    if (s->table->memory_add != NULL && base != NULL && bytes > 0) s->table->memory_add(s, base, bytes);
}

void store_unregister(struct store *s, void *base) {
    if (s->table->memory_remove != NULL && base != NULL) s->table->memory_remove(s, base);
}

uint32_t store_poll(struct store *s, struct store_completion *out, uint32_t max) {
    store_release(s);
    if (s->in_flight > 0) s->table->progress(s);
    uint32_t count = 0;
    while (count < max && s->ready_count > 0) {
        out[count++] = s->ready[s->ready_head];
        s->ready_head = (s->ready_head + 1) % s->ready_capacity;
        s->ready_count--;
    }
    return count;
}

void store_wait(struct store *s, int64_t timeout_ns) {
    if (s->ready_count == 0) s->table->wait(s, store_held_ns(s, timeout_ns));
}

void store_wake(struct store *s) { s->table->wake(s); }

pawl_code store_get(struct store *s, const char *name, uint8_t **data, size_t *bytes, struct pawl_error *e) {
    *data = NULL;
    *bytes = 0;
    pawl_code code = check_name(s, name, e);
    return code != PAWL_OK ? code : s->table->get(s, name, data, bytes, e);
}

pawl_code store_get_most(struct store *s, const char *name, uint64_t most, uint8_t **data, size_t *bytes,
                         struct pawl_error *e) {
    struct store_file *f = NULL;
    uint64_t size = 0;
    *data = NULL;
    *bytes = 0;
    pawl_code code = store_file_open(s, name, false, 0, &f, e);
    if (code == PAWL_OK) code = store_file_size(f, &size, e);
    store_file_close(f);
    if (code == PAWL_OK && size > most)
        return error_set(e, PAWL_CORRUPT, 0, "%s/%s: %llu bytes long, wanted at most %llu", s->path, name,
                         (unsigned long long)size, (unsigned long long)most);
    return code == PAWL_OK ? store_get(s, name, data, bytes, e) : code;
}

pawl_code store_put(struct store *s, const char *name, const void *data, size_t bytes, struct pawl_error *e) {
    pawl_code code = check_name(s, name, e);
    if (code == PAWL_OK) code = check_writable(s, "replacing a file", e);
    if (code == PAWL_OK) code = store_fault_check(s, name, e);
    if (code == PAWL_OK) code = s->table->put(s, name, data, bytes, e);
    if (code == PAWL_OK) store_dead_remove(s, name); /* another file has the name now */
    return code;
}

pawl_code store_remove(struct store *s, const char *name, struct pawl_error *e) {
    pawl_code code = check_name(s, name, e);
    if (code == PAWL_OK) code = check_writable(s, "removing a file", e);
    if (code == PAWL_OK) code = store_fault_check(s, name, e);
    if (code == PAWL_OK) code = s->table->remove(s, name, e);
    if (code == PAWL_OK) store_dead_remove(s, name);
    return code;
}

bool store_names_add(struct store_names *names, const char *name) {
    if (names->count == names->capacity) {
        uint32_t capacity = names->capacity == 0 ? 16 : 2 * names->capacity;
        char **items = realloc(names->items, capacity * sizeof *items);
        if (items == NULL) return false;
        names->items = items;
        names->capacity = capacity;
    }
    char *copy = strdup(name);
    if (copy == NULL) return false;
    names->items[names->count++] = copy;
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

pawl_code store_list(struct store *s, char ***names, uint32_t *count, struct pawl_error *e) {
    *names = NULL;
    *count = 0;
    pawl_code code = s->table->list(s, names, count, e);
    if (code == PAWL_OK && *count > 1) qsort(*names, *count, sizeof **names, compare_names);
    return code;
}

void store_names_free(char **names, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

pawl_code store_sync_folder(struct store *s, struct pawl_error *e) {
    pawl_code code = store_fault_check(s, "", e);
    return code != PAWL_OK ? code : s->table->sync_folder(s, e);
}

pawl_code store_space(struct store *s, uint64_t *free_bytes, struct pawl_error *e) {
    return s->table->space(s, free_bytes, e);
}
