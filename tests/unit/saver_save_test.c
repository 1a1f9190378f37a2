/* What include/pawl/ckpt.h promises of saves: policies, errors, waiting, cancelling, events. The disk is
 * simulated where it has to fail; a kind of memory whose copies wait for the test stands for a slow device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/saver_kit.h"
#include "saver/saver.h"

/* ---- a simulated disk ---- */

struct sim {
    struct storesim *disk;
};

static pawl_code sim_own(void *context, struct store **out, char *why, struct pawl_error *e) {
    snprintf(why, 160, "simulated disk");
    return storesim_open(((struct sim *)context)->disk, "r0", false, out, e);
}

static pawl_code sim_all(void *context, struct saver_stores *out, struct pawl_error *e) {
    *out = (struct saver_stores){.stores = calloc(1, sizeof *out->stores),
                                 .names = calloc(1, sizeof *out->names)};
    out->names[0] = strdup("r0");
    pawl_code code = storesim_open(((struct sim *)context)->disk, "r0", true, &out->stores[0], e);
    out->count = code == PAWL_OK;
    return code;
}

static struct skit_rank open_sim(struct sim *sim, const struct pawl_ckpt_options *given) {
    struct pawl_ckpt_options o = *given;
    struct saver_disk disk = {sim, sim_own, sim_all};
    struct skit_rank r = {.memory = skit_state_new(0, 1, 0)};
    o.path = "simulated";
    memset(o.run_id, 7, sizeof o.run_id);
    SKIT_MUST(saver_open(&o, &disk, &r.c, e));
    SKIT_MUST(pawl_ckpt_declare(r.c, r.memory->tensors, r.memory->count, &r.state, e));
    return r;
}

static struct sim sim_new(void) { return (struct sim){storesim_new(11)}; }

static void break_writes(struct sim *sim, bool broken) {
    storesim_set_faults(sim->disk, (struct storesim_faults){.write_eio = broken ? 1000000 : 0});
}

static struct pawl_ckpt_status status_of(const struct skit_rank *r) {
    struct pawl_ckpt_status s;
    pawl_ckpt_status(r->c, &s);
    return s;
}

/* The code that the save ends with. */
static pawl_code end_of(struct skit_rank *r, uint64_t id, struct pawl_error *why) {
    return pawl_ckpt_wait(r->c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), why);
}

/* Waits for the save to end without being told its error. */
static void outlive(struct skit_rank *r, uint64_t failed) {
    while (status_of(r).failed < failed)
        if (status_of(r).failed < failed) sched_yield();
}

static pawl_code save_again(struct skit_rank *r, uint64_t step, uint64_t *id, struct pawl_error *why) {
    skit_fill(r->memory, step);
    return pawl_ckpt_save(r->c, &(struct pawl_ckpt_save){.state = r->state, .step = step}, id, why);
}

/* ---- errors ---- */

static void failure_is_returned_by_the_next_save_once_and_the_one_after_succeeds(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    struct pawl_error why = {0};
    uint64_t id = 0;
    skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
    break_writes(&sim, true);
    (void)skit_save(&r, 2);
    outlive(&r, 1);
    break_writes(&sim, false);
    assert_int_equal(save_again(&r, 3, &id, &why), PAWL_IO);
    assert_non_null(strstr(why.text, "step 2"));
    assert_int_equal(id, 0);
    assert_int_equal(save_again(&r, 3, &id, &why), PAWL_OK);
    assert_int_equal(end_of(&r, id, &why), PAWL_OK);
    struct pawl_ckpt_status s = status_of(&r);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.failed_in_row, 0);
    assert_true(s.staging_used_bytes > 0 && s.staging_used_bytes <= s.staging_bytes);
    assert_true(s.progress_ns > 0 && s.progress_ns <= pawl_now());
    assert_int_equal(status_of(&r).durable_step, 3);
    struct pawl_ckpt_event events[32];
    uint32_t count = pawl_ckpt_poll(r.c, events, 32), failed = 0;
    for (uint32_t i = 0; i < count; i++) failed += events[i].kind == PAWL_CKPT_FAILED && events[i].step == 2;
    assert_int_equal(failed, 1);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void tolerated_failures_are_events_only_and_one_more_is_an_error(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.tolerate = 2});
    struct pawl_error why = {0};
    uint64_t id = 0;
    break_writes(&sim, true);
    for (uint64_t step = 1; step <= 2; step++) {
        assert_int_equal(save_again(&r, step, &id, &why), PAWL_OK);
        outlive(&r, step);
    }
    break_writes(&sim, false);
    assert_int_equal(save_again(&r, 3, &id, &why), PAWL_OK);
    assert_int_equal(end_of(&r, id, &why), PAWL_OK);
    assert_int_equal(status_of(&r).failed, 2);
    break_writes(&sim, true);
    for (uint64_t step = 4; step <= 6; step++) {
        assert_int_equal(save_again(&r, step, &id, &why), PAWL_OK);
        outlive(&r, step - 1);
    }
    break_writes(&sim, false);
    assert_int_equal(save_again(&r, 7, &id, &why), PAWL_IO);
    assert_non_null(strstr(why.text, "step 6"));
    assert_int_equal(save_again(&r, 7, &id, &why), PAWL_OK);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void failure_that_nobody_asked_for_is_returned_by_close(void **unused) {
    (void)unused;
    for (uint32_t tolerate = 0; tolerate <= 3; tolerate += 3) {
        struct sim sim = sim_new();
        struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.tolerate = tolerate});
        struct pawl_error why = {0};
        break_writes(&sim, true);
        (void)skit_save(&r, 1);
        assert_int_equal(pawl_ckpt_close(r.c, skit_soon(), &why), PAWL_IO);
        assert_non_null(strstr(why.text, "step 1"));
        skit_state_free(r.memory);
        storesim_free(sim.disk);
    }
}

static void close_finishes_what_was_asked_for(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    storesim_set_faults(sim.disk, (struct storesim_faults){.delay = 500000});
    for (uint64_t first = 1; first < 40; first += 3) {
        struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.in_flight = 3});
        uint64_t step = 0;
        SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
        assert_int_equal(step, first - 1);
        for (step = first; step < first + 3; step++) (void)skit_save(&r, step);
        skit_close(&r); /* and nobody waited for them */
    }
    storesim_free(sim.disk);
}

static void failure_that_was_returned_is_not_returned_by_close_again(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    struct pawl_error why = {0};
    break_writes(&sim, true);
    uint64_t id = skit_save(&r, 1);
    assert_int_equal(end_of(&r, id, &why), PAWL_IO);
    assert_int_equal(end_of(&r, id, &why), PAWL_IO); /* it stays the save's own */
    break_writes(&sim, false);
    skit_wait(&r, skit_save(&r, 2), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void arguments_are_refused_by_name(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    struct pawl_error why = {0};
    const struct {
        struct pawl_ckpt_save save;
        const char *named;
    } cases[] = {
        {{.state = r.state, .step = 0}, "step is 0"},
        {{.state = NULL, .step = 1}, "state"},
        {{.state = r.state, .step = 1, .unit = 2, .unit_count = 2}, "unit is 2"},
        {{.state = r.state, .step = 1, .replica = 1}, "replica is 1"},
        {{.state = r.state, .step = 1, .replica_count = 2, .copies = 3}, "copies is 3"},
        {{.state = r.state, .step = 1, .blob_bytes = 4}, "blob"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(pawl_ckpt_save(r.c, &cases[i].save, NULL, &why), PAWL_ARGUMENT);
        if (strstr(why.text, cases[i].named) == NULL)
            fail_msg("'%s' does not name %s", why.text, cases[i].named);
    }
    skit_wait(&r, skit_save(&r, 5), PAWL_CKPT_UNTIL_DURABLE);
    assert_int_equal(save_again(&r, 5, NULL, &why), PAWL_ARGUMENT);
    assert_int_equal(save_again(&r, 4, NULL, &why), PAWL_ARGUMENT);
    uint64_t id = 0;
    assert_int_equal(pawl_ckpt_wait(r.c, 99, PAWL_CKPT_UNTIL_DURABLE, 0, &why), PAWL_NOT_FOUND);
    assert_int_equal(pawl_ckpt_wait(r.c, id, PAWL_CKPT_UNTIL_DURABLE, 0, &why), PAWL_NOT_FOUND);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void options_are_refused_by_name_and_stay_the_callers(void **unused) {
    (void)unused;
    char *path = skit_folder();
    char *empty = strdup(""); /* freed by the test: pawl may not */
    const struct pawl_ckpt_group group = {.incarnation = UINT64_MAX};
    const struct {
        struct pawl_ckpt_options options;
        const char *named;
    } cases[] = {
        {{.path = NULL}, "options.path"},
        {{.path = empty}, "options.path"},
        {{.path = path, .rank = 1}, "options.rank"},
        {{.path = path, .keep = 65}, "options.keep"},
        {{.path = path, .staging_bytes = 1}, "options.staging_bytes"},
        {{.path = path, .staging_bytes = 8192, .chunk_bytes = 12288}, "options.staging_bytes"},
        {{.path = path, .group = &group}, "options.group->incarnation"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pawl_ckpt *c = NULL;
        struct pawl_error why = {0};
        assert_int_equal(pawl_ckpt_open(&cases[i].options, &c, &why), PAWL_ARGUMENT);
        assert_null(c);
        if (strstr(why.text, cases[i].named) == NULL)
            fail_msg("'%s' does not name %s", why.text, cases[i].named);
    }
    free(empty);
    skit_remove(path);
}

static void staging_memory_given_is_never_exceeded(void **unused) {
    (void)unused;
    static const uint64_t given[] = {4096, 8192, 10000, 1 << 20, 100 << 20};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        char *path = skit_folder();
        struct skit_rank r = skit_open(&(struct pawl_ckpt_options){.path = path, .staging_bytes = given[i]},
                                       skit_state_new(0, 1, 0));
        skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
        struct pawl_ckpt_status s;
        pawl_ckpt_status(r.c, &s);
        assert_in_range(s.staging_bytes, 4096, given[i]);
        assert_in_range(s.staging_used_bytes, 1, s.staging_bytes);
        skit_close(&r);
        r = skit_open(&(struct pawl_ckpt_options){.path = path}, skit_state_new(0, 1, 0));
        uint64_t step = 0;
        SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
        assert_true(skit_is(r.memory, 1));
        skit_close(&r);
        skit_remove(path);
    }
}

static void tensor_without_an_address_is_refused_by_save_and_an_empty_one_is_not(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    uint64_t two = 2, none = 0;
    int32_t bytes[2] = {7, 8};
    const struct pawl_tensor tensors[] = {
        {.name = "there", .dtype = PAWL_I32, .rank = 1, .shape = &two, .data = bytes},
        {.name = "empty", .dtype = PAWL_I32, .rank = 1, .shape = &none},
        {.name = "lost", .dtype = PAWL_I32, .rank = 1, .shape = &two}};
    struct pawl_ckpt_state *state = NULL;
    SKIT_MUST(pawl_ckpt_declare(r.c, tensors, 3, &state, e));
    void *data[3] = {bytes, NULL, bytes}, *holes[3] = {NULL, NULL, bytes};
    struct pawl_ckpt_save save = {.state = state, .step = 1};
    struct pawl_error why = {0};
    uint64_t id = 0;
    assert_int_equal(pawl_ckpt_save(r.c, &save, &id, &why), PAWL_ARGUMENT);
    if (strstr(why.text, "'lost'") == NULL) fail_msg("%s", why.text);
    save.data = holes;
    assert_int_equal(pawl_ckpt_save(r.c, &save, &id, &why), PAWL_ARGUMENT);
    if (strstr(why.text, "'there'") == NULL) fail_msg("%s", why.text);
    save.data = data;
    SKIT_MUST(pawl_ckpt_save(r.c, &save, &id, e));
    skit_wait(&r, id, PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void name_of_the_formats_own_data_is_refused_as_such(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    const struct pawl_tensor tensor = {.name = "__metadata__", .dtype = PAWL_I32, .data = &sim};
    struct pawl_ckpt_state *state = NULL;
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_declare(r.c, &tensor, 1, &state, &why), PAWL_ARGUMENT);
    if (strstr(why.text, "safetensors") == NULL || strstr(why.text, "__pawl_") != NULL)
        fail_msg("%s", why.text);
    skit_close(&r);
    storesim_free(sim.disk);
}

/* ---- a device that waits for the test ---- */

struct gate {
    pthread_mutex_t mutex;
    bool open;
    uint32_t count; /* copies held back */
    struct {
        struct pawl_copy *copy;
        const void *source;
        void *target;
        size_t bytes;
    } held[256];
};

static pawl_code gate_copy(void *context, const void *source, void *target, size_t bytes,
                           struct pawl_copy *copy, struct pawl_error *e) {
    (void)e;
    struct gate *g = context;
    pthread_mutex_lock(&g->mutex);
    bool open = g->open;
    if (!open) {
        assert_true(g->count < 256);
        g->held[g->count].copy = copy;
        g->held[g->count].source = source;
        g->held[g->count].target = target;
        g->held[g->count].bytes = bytes;
        g->count++;
    }
    pthread_mutex_unlock(&g->mutex);
    if (!open) return PAWL_OK;
    memcpy(target, source, bytes);
    pawl_copy_done(copy, PAWL_OK);
    return PAWL_OK;
}

static void gate_open(struct gate *g) {
    pthread_mutex_lock(&g->mutex);
    g->open = true;
    while (g->count > 0) { /* in the other order */
        g->count--;
        memcpy(g->held[g->count].target, g->held[g->count].source, g->held[g->count].bytes);
        pawl_copy_done(g->held[g->count].copy, PAWL_OK);
    }
    pthread_mutex_unlock(&g->mutex);
}

struct gated {
    struct sim sim;
    struct gate gate;
    struct pawl_memory memory;
    struct skit_rank r;
};

static struct gated *gated_new(const struct pawl_ckpt_options *o) {
    struct gated *g = calloc(1, sizeof *g);
    pthread_mutex_init(&g->gate.mutex, NULL);
    g->memory = (struct pawl_memory){.name = "gate", .context = &g->gate, .copy_out = gate_copy};
    g->sim = sim_new();
    g->r = open_sim(&g->sim, o);
    for (uint32_t i = 0; i < g->r.memory->count; i++) g->r.memory->tensors[i].memory = &g->memory;
    SKIT_MUST(pawl_ckpt_declare(g->r.c, g->r.memory->tensors, g->r.memory->count, &g->r.state, e));
    return g;
}

static void gated_free(struct gated *g) {
    storesim_free(g->sim.disk);
    pthread_mutex_destroy(&g->gate.mutex);
    free(g);
}

static void full_skips_by_policy_counted_and_told(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){.full = PAWL_CKPT_SKIP, .in_flight = 2});
    struct pawl_error why = {0};
    uint64_t id[4] = {0};
    for (uint64_t step = 1; step <= 4; step++)
        assert_int_equal(save_again(&g->r, step, &id[step - 1], &why), PAWL_OK);
    assert_true(id[0] != 0 && id[1] != 0);
    assert_int_equal(id[2], 0);
    assert_int_equal(id[3], 0);
    assert_int_equal(status_of(&g->r).skipped, 2);
    assert_int_equal(status_of(&g->r).in_flight, 2);
    gate_open(&g->gate);
    assert_int_equal(end_of(&g->r, id[1], &why), PAWL_OK);
    skit_close(&g->r);
    gated_free(g);
}

static void *open_gate_when_blocked(void *arg) {
    struct gated *g = arg;
    for (bool waits = false; !waits;) { /* the caller stands in pawl_ckpt_save once the id was handed out */
        pthread_mutex_lock(&g->r.c->mutex);
        waits = g->r.c->in_flight == 1;
        pthread_mutex_unlock(&g->r.c->mutex);
        sched_yield();
    }
    gate_open(&g->gate);
    return NULL;
}

static void full_blocks_by_default_until_one_ended(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){.in_flight = 1});
    struct pawl_error why = {0};
    uint64_t first = 0, second = 0;
    pthread_t helper;
    assert_int_equal(save_again(&g->r, 1, &first, &why), PAWL_OK);
    assert_int_equal(pthread_create(&helper, NULL, open_gate_when_blocked, g), 0);
    struct pawl_ckpt_save save = {.state = g->r.state, .step = 2}; /* the memory is not ours to fill yet */
    assert_int_equal(pawl_ckpt_save(g->r.c, &save, &second, &why), PAWL_OK);
    assert_int_equal(end_of(&g->r, first, &why), PAWL_OK); /* at the latest now */
    assert_int_equal(end_of(&g->r, second, &why), PAWL_OK);
    pthread_join(helper, NULL);
    assert_true(status_of(&g->r).skipped == 0);
    assert_true(status_of(&g->r).blocked_ns > 0);
    skit_close(&g->r);
    gated_free(g);
}

static void fence_and_wait_time_out_naming_the_step_and_then_succeed(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){0});
    struct pawl_error why = {0};
    uint64_t id = 0;
    SKIT_MUST(pawl_ckpt_fence(g->r.c, 0, e)); /* nothing is being saved */
    assert_int_equal(save_again(&g->r, 6, &id, &why), PAWL_OK);
    assert_int_equal(pawl_ckpt_fence(g->r.c, pawl_now(), &why), PAWL_TIMEOUT);
    assert_non_null(strstr(why.text, "step 6"));
    assert_int_equal(pawl_ckpt_wait(g->r.c, id, PAWL_CKPT_UNTIL_CAPTURED, 0, &why), PAWL_TIMEOUT);
    assert_int_equal(pawl_ckpt_wait(g->r.c, id, PAWL_CKPT_UNTIL_DURABLE, 0, &why), PAWL_TIMEOUT);
    gate_open(&g->gate);
    SKIT_MUST(pawl_ckpt_fence(g->r.c, skit_soon(), e));
    SKIT_MUST(pawl_ckpt_wait(g->r.c, id, PAWL_CKPT_UNTIL_CAPTURED, 0, e));
    assert_int_equal(end_of(&g->r, id, &why), PAWL_OK);
    assert_int_equal(pawl_ckpt_wait(g->r.c, id, PAWL_CKPT_UNTIL_COMMITTED, 0, &why), PAWL_OK);
    skit_close(&g->r);
    gated_free(g);
}

static void *open_gate_when_cancelled(void *arg) {
    struct gated *g = arg;
    for (bool passed = false; !passed;) {
        pthread_mutex_lock(&g->r.c->mutex);
        passed = g->r.c->tasks == NULL || g->r.c->tasks->cancel_passed;
        pthread_mutex_unlock(&g->r.c->mutex);
        sched_yield();
    }
    gate_open(&g->gate);
    return NULL;
}

static void cancelled_save_ends_as_such_and_is_no_failure(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){.in_flight = 2});
    struct pawl_error why = {0};
    uint64_t id = 0;
    pthread_t helper;
    assert_int_equal(save_again(&g->r, 1, &id, &why), PAWL_OK);
    pawl_ckpt_cancel(g->r.c, id);
    assert_int_equal(pthread_create(&helper, NULL, open_gate_when_cancelled, g), 0);
    assert_int_equal(end_of(&g->r, id, &why), PAWL_CANCELLED);
    pthread_join(helper, NULL);
    assert_int_equal(status_of(&g->r).cancelled, 1);
    assert_int_equal(status_of(&g->r).failed, 0);
    assert_int_equal(save_again(&g->r, 2, &id, &why), PAWL_OK);
    assert_int_equal(end_of(&g->r, id, &why), PAWL_OK);
    pawl_ckpt_cancel(g->r.c, id); /* no effect */
    pawl_ckpt_cancel(g->r.c, 12345);
    skit_close(&g->r);
    gated_free(g);
}

static void *open_gate_when_closing(void *arg) {
    struct gated *g = arg;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&g->r.c->mutex);
        stop = g->r.c->stop;
        pthread_mutex_unlock(&g->r.c->mutex);
        sched_yield();
    }
    gate_open(&g->gate);
    return NULL;
}

static void close_gives_up_at_its_deadline_and_says_so(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){0});
    struct pawl_error why = {0};
    pthread_t helper;
    assert_int_equal(save_again(&g->r, 3, NULL, &why), PAWL_OK);
    assert_int_equal(pthread_create(&helper, NULL, open_gate_when_closing, g), 0);
    assert_int_equal(pawl_ckpt_close(g->r.c, pawl_now(), &why), PAWL_TIMEOUT);
    assert_non_null(strstr(why.text, "step 3"));
    pthread_join(helper, NULL);
    skit_state_free(g->r.memory);
    gated_free(g);
}

/* ---- events ---- */

struct heard {
    pthread_t thread;
    uint32_t count;
    enum pawl_ckpt_event_kind kinds[64];
    uint64_t steps[64];
    bool foreign_thread;
};

static void hear(void *context, const struct pawl_ckpt_event *event) {
    struct heard *h = context;
    if (pthread_equal(pthread_self(), h->thread)) h->foreign_thread = true;
    if (h->count < 64) {
        h->kinds[h->count] = event->kind;
        h->steps[h->count] = event->step;
    }
    h->count++;
}

static void callback_and_poll_hear_the_same_events_in_order(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct heard heard = {.thread = pthread_self()};
    struct skit_rank r =
        open_sim(&sim, &(struct pawl_ckpt_options){.on_event = hear, .on_event_context = &heard});
    for (uint64_t step = 1; step <= 3; step++) skit_wait(&r, skit_save(&r, step), PAWL_CKPT_UNTIL_DURABLE);
    struct pawl_ckpt_event events[64];
    uint32_t count = pawl_ckpt_poll(r.c, events, 64);
    skit_close(&r);
    static const enum pawl_ckpt_event_kind life[] = {PAWL_CKPT_BEGUN, PAWL_CKPT_CAPTURED, PAWL_CKPT_COMMITTED,
                                                     PAWL_CKPT_DURABLE};
    assert_int_equal(count, 12);
    assert_int_equal(heard.count, 12);
    assert_false(heard.foreign_thread);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(events[i].kind, life[i % 4]);
        assert_int_equal(events[i].step, 1 + i / 4);
        assert_int_equal(heard.kinds[i], life[i % 4]);
        assert_int_equal(heard.steps[i], 1 + i / 4);
    }
    assert_true(events[2].bytes > 96 * 50 * 4);
    assert_true(events[2].total_ns >= events[2].capture_ns);
    storesim_free(sim.disk);
}

static void ring_keeps_the_newest_1024_events(void **unused) {
    (void)unused;
    struct gated *g = gated_new(&(struct pawl_ckpt_options){.full = PAWL_CKPT_SKIP, .in_flight = 1});
    struct pawl_error why = {0};
    uint64_t last = 2000;
    struct pawl_ckpt_event begun;
    struct pawl_ckpt_save first = {.state = g->r.state, .step = 1};
    assert_int_equal(pawl_ckpt_save(g->r.c, &first, NULL, &why), PAWL_OK);
    while (pawl_ckpt_poll(g->r.c, &begun, 1) == 0) sched_yield();
    for (uint64_t step = 2; step <= last; step++) {
        struct pawl_ckpt_save save = {.state = g->r.state, .step = step};
        assert_int_equal(pawl_ckpt_save(g->r.c, &save, NULL, &why), PAWL_OK);
    }
    struct pawl_ckpt_event *events = calloc(2048, sizeof *events);
    assert_int_equal(pawl_ckpt_poll(g->r.c, events, 2048), 1024);
    assert_int_equal(events[1023].kind, PAWL_CKPT_SKIPPED);
    assert_int_equal(events[1023].step, last);
    assert_int_equal(events[0].step, last - 1023);
    assert_int_equal(pawl_ckpt_poll(g->r.c, events, 2048), 0);
    assert_int_equal(status_of(&g->r).skipped, last - 1);
    free(events);
    gate_open(&g->gate);
    skit_close(&g->r);
    gated_free(g);
}

/* ---- the memory is the caller's after the fence ---- */

static void overwriting_everything_after_the_fence_changes_no_save(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.in_flight = 3, .keep = 2});
    uint64_t id = 0;
    for (uint64_t step = 1; step <= 1000; step++) {
        id = skit_save(&r, step); /* waits for the fence of the save before, fills, begins */
        if (step % 10 != 0) continue;
        SKIT_MUST(pawl_ckpt_fence(r.c, skit_soon(), e));
        skit_fill(r.memory, UINT64_MAX - step); /* at once */
        skit_wait(&r, id, PAWL_CKPT_UNTIL_DURABLE);
        struct saver_stores stores;
        struct ckpt_set *set = NULL;
        SKIT_MUST(sim_all(&sim, &stores, e));
        SKIT_MUST(ckpt_set_open(stores.stores, stores.count, NULL, &set, e));
        assert_int_equal(ckpt_set_at(set, 0)->step, step);
        SKIT_MUST(ckpt_set_read_many(set, 0, r.memory->tensors, r.memory->count, e));
        assert_true(skit_is(r.memory, step));
        char text[32];
        const void *blob = NULL;
        size_t bytes = 0;
        snprintf(text, sizeof text, "step %" PRIu64, step);
        SKIT_MUST(ckpt_set_blob(set, 0, 0, &blob, &bytes, e));
        assert_int_equal(bytes, strlen(text));
        assert_memory_equal(blob, text, bytes);
        ckpt_set_close(set);
        saver_stores_close(&stores);
    }
    skit_close(&r);
    storesim_free(sim.disk);
}

/* Loaders of data are forked in the middle of everything. The children have copies of our memory, and of the
 * descriptors; nobody in them looks after either. */
static void saves_go_on_while_the_process_forks(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct skit_rank r = skit_open(
        &(struct pawl_ckpt_options){.path = path, .in_flight = 3, .keep = 2, .staging_bytes = 1 << 16},
        skit_state_new(0, 1, 0));
    for (uint64_t step = 1; step <= 40; step++) {
        uint64_t id = skit_save(&r, step);
        pid_t child = fork();
        if (child == 0) {
            skit_fill(r.memory, UINT64_MAX - step); /* its own copy, whatever the kernel shares until now */
            _exit(0);
        }
        assert_true(child > 0);
        if (step % 8 == 0) skit_wait(&r, id, PAWL_CKPT_UNTIL_DURABLE);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(status_of(&r).failed, 0);
    skit_close(&r);
    r = skit_open(&(struct pawl_ckpt_options){.path = path}, skit_state_new(0, 1, 0));
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
    assert_int_equal(step, 40);
    assert_true(skit_is(r.memory, 40));
    skit_close(&r);
    skit_remove(path);
}

static void immutable_versions_are_saved_from_the_addresses_given(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    struct skit_state *version = skit_state_new(0, 1, 0);
    void *data[SKIT_TENSORS];
    skit_fill(r.memory, 77); /* not to be saved */
    skit_fill(version, 4);
    for (uint32_t i = 0; i < version->count; i++) data[i] = version->tensors[i].data;
    uint64_t id = 0;
    struct pawl_ckpt_save save = {.state = r.state, .step = 4, .data = data, .immutable = true};
    SKIT_MUST(pawl_ckpt_save(r.c, &save, &id, e));
    skit_wait(&r, id, PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
    assert_int_equal(step, 4);
    assert_true(skit_is(r.memory, 4));
    skit_close(&r);
    skit_state_free(version);
    storesim_free(sim.disk);
}

/* ---- state groups ---- */

static void step_of_two_state_groups_is_durable_with_both_and_not_with_one(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.tolerate = 5});
    struct skit_state *critic = skit_state_new(0, 1, 0);
    struct pawl_ckpt_state *other = NULL;
    static const char *const names[] = {"cw", "cm", "ch", "ccount"};
    struct pawl_tensor renamed[SKIT_TENSORS];
    for (uint32_t i = 0; i < SKIT_TENSORS; i++) {
        renamed[i] = critic->tensors[i];
        renamed[i].name = names[i];
    }
    SKIT_MUST(pawl_ckpt_declare(r.c, renamed, SKIT_TENSORS, &other, e));
    struct pawl_error why = {0};
    uint64_t actor_id = 0, critic_id = 0;
    for (uint64_t step = 1; step <= 2; step++) {
        SKIT_MUST(pawl_ckpt_fence(r.c, skit_soon(), e));
        skit_fill(r.memory, step);
        skit_fill(critic, step);
        struct pawl_ckpt_save save = {.state = r.state, .step = step, .unit = 0, .unit_count = 2};
        SKIT_MUST(pawl_ckpt_save(r.c, &save, &actor_id, e));
        skit_wait(&r, actor_id, PAWL_CKPT_UNTIL_COMMITTED);
        assert_int_equal(status_of(&r).durable_step, step - 1);
        if (step == 2) break_writes(&sim, true);
        save.state = other;
        save.unit = 1;
        SKIT_MUST(pawl_ckpt_save(r.c, &save, &critic_id, e));
        pawl_code code = end_of(&r, critic_id, &why);
        assert_int_equal(code, step == 1 ? PAWL_OK : PAWL_IO);
    }
    break_writes(&sim, false);
    assert_int_equal(end_of(&r, actor_id, &why), PAWL_PEER_LOST); /* told that the other half is missing */
    assert_int_equal(status_of(&r).durable_step, 1);
    skit_close(&r);
    r = open_sim(&sim, &(struct pawl_ckpt_options){0});
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
    assert_int_equal(step, 1);
    skit_close(&r);
    skit_state_free(critic);
    storesim_free(sim.disk);
}

/* ---- cadence ---- */

static void fixed_interval_is_due_every_so_many_steps(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.every = 4});
    uint32_t saved = 0;
    for (uint64_t step = 1; step <= 20; step++) {
        if (!pawl_ckpt_due(r.c, step)) continue;
        skit_wait(&r, skit_save(&r, step), PAWL_CKPT_UNTIL_DURABLE);
        assert_int_equal(step % 4, 0);
        saved++;
    }
    assert_int_equal(saved, 5);
    assert_int_equal(status_of(&r).every, 4);
    skit_close(&r);
    storesim_free(sim.disk);
}

static void interval_by_overhead_follows_what_saves_cost_and_tells(void **unused) {
    (void)unused;
    struct sim sim = sim_new();
    struct skit_rank r = open_sim(&sim, &(struct pawl_ckpt_options){.overhead = 0.05});
    uint64_t before = status_of(&r).every, intervals = 0;
    struct pawl_ckpt_event event;
    assert_true(before > 0);
    for (uint64_t step = 1; step <= 4000 && intervals == 0; step++) {
        if (pawl_ckpt_due(r.c, step)) skit_wait(&r, skit_save(&r, step), PAWL_CKPT_UNTIL_DURABLE);
        while (pawl_ckpt_poll(r.c, &event, 1) == 1) intervals += event.kind == PAWL_CKPT_INTERVAL;
    }
    assert_true(intervals > 0); /* iterations take no time here, so that saves cost more than is allowed */
    assert_true(status_of(&r).every > before);
    assert_true(status_of(&r).save_s > 0);
    skit_close(&r);
    storesim_free(sim.disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_is_returned_by_the_next_save_once_and_the_one_after_succeeds),
        cmocka_unit_test(tolerated_failures_are_events_only_and_one_more_is_an_error),
        cmocka_unit_test(failure_that_nobody_asked_for_is_returned_by_close),
        cmocka_unit_test(close_finishes_what_was_asked_for),
        cmocka_unit_test(failure_that_was_returned_is_not_returned_by_close_again),
        cmocka_unit_test(arguments_are_refused_by_name),
        cmocka_unit_test(options_are_refused_by_name_and_stay_the_callers),
        cmocka_unit_test(staging_memory_given_is_never_exceeded),
        cmocka_unit_test(tensor_without_an_address_is_refused_by_save_and_an_empty_one_is_not),
        cmocka_unit_test(name_of_the_formats_own_data_is_refused_as_such),
        cmocka_unit_test(full_skips_by_policy_counted_and_told),
        cmocka_unit_test(full_blocks_by_default_until_one_ended),
        cmocka_unit_test(fence_and_wait_time_out_naming_the_step_and_then_succeed),
        cmocka_unit_test(cancelled_save_ends_as_such_and_is_no_failure),
        cmocka_unit_test(close_gives_up_at_its_deadline_and_says_so),
        cmocka_unit_test(callback_and_poll_hear_the_same_events_in_order),
        cmocka_unit_test(ring_keeps_the_newest_1024_events),
        cmocka_unit_test(overwriting_everything_after_the_fence_changes_no_save),
        cmocka_unit_test(saves_go_on_while_the_process_forks),
        cmocka_unit_test(immutable_versions_are_saved_from_the_addresses_given),
        cmocka_unit_test(step_of_two_state_groups_is_durable_with_both_and_not_with_one),
        cmocka_unit_test(fixed_interval_is_due_every_so_many_steps),
        cmocka_unit_test(interval_by_overhead_follows_what_saves_cost_and_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
