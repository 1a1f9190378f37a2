/* The life of an operation, the same for every back end: it takes room for its completion, goes to the back
 * end, ends, and may be polled. Here live the two rules about failed flushes: a file whose flush failed is
 * dead for every operation that ends later, and of one file one flush runs at a time (internal.h says why).
 * Thread: the store's owner. Tested in tests/unit/store_files_test.c and store_faults_test.c. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

void store_op_push(struct store_op_list *list, struct store_op *op) {
    op->next = NULL;
    if (list->last != NULL)
        list->last->next = op;
    else
        list->first = op;
    list->last = op;
    list->count++;
}

struct store_op *store_op_pop(struct store_op_list *list) {
    struct store_op *op = list->first;
    if (op == NULL) return NULL;
    list->first = op->next;
    if (list->first == NULL) list->last = NULL;
    list->count--;
    return op;
}

/* ---- stores and files ---- */

bool store_init(struct store *s, const struct store_table *table, enum store_kind kind, const char *path,
                bool read_only, uint32_t depth) {
    s->table = table;
    s->kind = kind;
    s->read_only = read_only;
    s->depth = s->depth_default = depth;
    s->path = strdup(path);
    return s->path != NULL;
}

void store_deinit(struct store *s) {
    while (s->dead != NULL) store_dead_remove(s, s->dead->name);
    free(s->ready);
    free(s->path);
}

bool store_file_init(struct store_file *f, struct store *s, const char *name) {
    f->store = s;
    f->name = strdup(name);
    return f->name != NULL;
}

void store_file_deinit(struct store_file *f) { free(f->name); }

/* ---- dead names ---- */

void store_dead_remove(struct store *s, const char *name) {
    for (struct store_dead **at = &s->dead; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->name, name) != 0) continue;
        struct store_dead *gone = *at;
        *at = gone->next;
        free(gone);
        return;
    }
}

const struct store_dead *store_dead_find(const struct store *s, const char *name) {
    for (const struct store_dead *d = s->dead; d != NULL; d = d->next)
        if (strcmp(d->name, name) == 0) return d;
    return NULL;
}

/* The code under which an operation fails: it had a file and memory, so that it is the device's fault. */
static pawl_code code_of(int os_errno) {
    if (os_errno == 0) return PAWL_OK;
    pawl_code code = error_code_of_errno(os_errno);
    return code == PAWL_NOT_FOUND || code == PAWL_MEMORY ? PAWL_IO : code;
}

static void dead_add(struct store_file *f, int os_errno) {
    struct store *s = f->store;
    f->dead_code = code_of(os_errno);
    f->dead_errno = os_errno;
    if (store_dead_find(s, f->name) != NULL) return;
    size_t size = strlen(f->name) + 1;
    struct store_dead *d = malloc(sizeof *d + size);
    if (d == NULL) return; /* the handle still knows */
    d->code = f->dead_code;
    d->os_errno = os_errno;
    memcpy(d->name, f->name, size);
    d->next = s->dead;
    s->dead = d;
}

/* ---- operations ---- */

bool store_ready_reserve(struct store *s) {
    uint32_t need = s->in_flight + s->ready_count + 1;
    if (need <= s->ready_capacity) return true;
    uint32_t capacity = s->ready_capacity == 0 ? 16 : 2 * s->ready_capacity;
    struct store_completion *ready = malloc(capacity * sizeof *ready);
    if (ready == NULL) return false;
    for (uint32_t i = 0; i < s->ready_count; i++)
        ready[i] = s->ready[(s->ready_head + i) % s->ready_capacity];
    free(s->ready);
    s->ready = ready;
    s->ready_head = 0;
    s->ready_capacity = capacity;
    return true;
}

static void end(struct store_op *op, int os_errno) {
    struct store_file *f = op->file;
    struct store *s = f->store;
    uint32_t at = (s->ready_head + s->ready_count++) % s->ready_capacity;
    s->ready[at] = (struct store_completion){op->cookie, code_of(os_errno), os_errno};
    s->in_flight--;
    f->in_flight--;
    free(op);
    if (f->closing && f->in_flight == 0) s->table->file_free(f);
}

static void end_all(struct store_op_list *list, int os_errno) {
    for (struct store_op *op = store_op_pop(list); op != NULL; op = store_op_pop(list)) end(op, os_errno);
}

static void flush_start(struct store_op *op) {
    struct store_file *f = op->file;
    if (f->flushing) {
        store_op_push(&f->waiting, op);
        return;
    }
    f->flushing = true;
    store_hand_over(f->store, op);
}

/* Whoever waited shares the next flush: it begins after all of them were submitted. */
static void flush_end(struct store_op *op, int os_errno) {
    struct store_file *f = op->file;
    struct store *s = f->store;
    if (os_errno != 0) dead_add(f, os_errno);
    struct store_op_list ended = f->riders, refused = {0};
    struct store_op *next = NULL;
    f->riders = (struct store_op_list){0};
    f->flushing = false;
    if (os_errno != 0)
        refused = f->waiting;
    else if ((next = store_op_pop(&f->waiting)) != NULL)
        f->riders = f->waiting;
    f->waiting = (struct store_op_list){0};
    end(op, os_errno); /* the file may be gone after the last of these, unless `next` holds it */
    end_all(&ended, os_errno);
    end_all(&refused, os_errno);
    if (next == NULL) return;
    f->flushing = true;
    store_hand_over(s, next);
}

void store_op_start(struct store_op *op) {
    struct store_file *f = op->file;
    f->store->in_flight++;
    f->in_flight++;
    if (f->dead_code != PAWL_OK)
        end(op, f->dead_errno);
    else if (op->kind == STORE_OP_FLUSH)
        flush_start(op);
    else
        store_hand_over(f->store, op);
}

void store_op_finish(struct store_op *op, int os_errno) {
    if (op->file->dead_code != PAWL_OK) os_errno = op->file->dead_errno;
    if (op->kind == STORE_OP_FLUSH)
        flush_end(op, os_errno);
    else
        end(op, os_errno);
}

/* ---- sleeping ---- */

bool store_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) return false;
    bool good = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(cond, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    return good;
}

bool store_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns) {
    struct timespec t = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(cond, mutex, &t) == 0;
}

int64_t store_deadline(int64_t timeout_ns) {
    int64_t now = clock_now_ns();
    return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}
