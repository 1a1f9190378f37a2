/* A place for a store of every back end, for tests of what store/store.h promises of all of them. */
#ifndef TESTS_STORE_KIT_H
#define TESTS_STORE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"

struct place {
    enum store_kind kind;
    char path[256];
    struct storesim *sim;
};

static inline int kit_begin(void **state, enum store_kind kind) {
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->kind = kind;
    snprintf(p->path, sizeof p->path, "%s/store-XXXXXX", PAWL_BINARY_DIR);
    if (kind == STORE_SIM)
        p->sim = storesim_new(1);
    else
        assert_non_null(mkdtemp(p->path));
    *state = p;
    return 0;
}
static inline int kit_begin_plain(void **state) { return kit_begin(state, STORE_PLAIN); }
static inline int kit_begin_uring(void **state) { return kit_begin(state, STORE_URING); }
static inline int kit_begin_pmem(void **state) { return kit_begin(state, STORE_PMEM); }
static inline int kit_begin_sim(void **state) { return kit_begin(state, STORE_SIM); }

static inline int kit_end(void **state) {
    struct place *p = *state;
    if (p->kind != STORE_SIM) {
        char command[300];
        snprintf(command, sizeof command, "rm -rf '%s'", p->path);
        assert_int_equal(system(command), 0);
    }
    storesim_free(p->sim);
    free(p);
    return 0;
}

static inline pawl_code kit_try_open(struct place *p, bool read_only, struct store **out,
                                     struct pawl_error *e) {
    if (p->kind == STORE_SIM) return storesim_open(p->sim, p->path, read_only, out, e);
    return store_open(p->path, p->kind, read_only, out, NULL, e);
}

/* Skips the test where this machine or this build lacks the back end. */
static inline struct store *kit_open(struct place *p, bool read_only) {
    struct store *s = NULL;
    struct pawl_error e = {0};
    pawl_code code = kit_try_open(p, read_only, &s, &e);
    if (code == PAWL_IO && (p->kind == STORE_URING || p->kind == STORE_PMEM)) {
        print_message("%s\n", e.text);
        skip();
    }
    if (code != PAWL_OK) fail_msg("%s", e.text);
    return s;
}

static inline struct store_file *kit_file(struct store *s, const char *name, uint64_t bytes) {
    struct store_file *f = NULL;
    struct pawl_error e = {0};
    if (store_file_open(s, name, true, bytes, &f, &e) != PAWL_OK) fail_msg("%s", e.text);
    return f;
}

static inline struct store_completion kit_next(struct store *s) {
    struct store_completion c = {0};
    while (store_poll(s, &c, 1) == 0) store_wait(s, 1000000000);
    return c;
}

/* The cookie of the next completion, which must be a good one. */
static inline uint64_t kit_next_good(struct store *s) {
    struct store_completion c = kit_next(s);
    if (c.code != PAWL_OK) fail_msg("operation %llu: %s", (unsigned long long)c.cookie, strerror(c.os_errno));
    return c.cookie;
}

#define KIT_EVERYWHERE(test)                                                                                 \
    {#test " (plain)", test, kit_begin_plain, kit_end, NULL},                                                \
        {#test " (io_uring)", test, kit_begin_uring, kit_end, NULL},                                         \
        {#test " (persistent memory)", test, kit_begin_pmem, kit_end, NULL}, {                               \
#test " (simulated)", test, kit_begin_sim, kit_end, NULL                                             \
    }

#endif
