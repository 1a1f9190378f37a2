/* The newest durable step, from the stores alone: at the start, and when a stage has lost every replica.
 *
 * While a run goes on the look is a thread's: stores may be large, and a store of a worker that was just
 * killed stays locked until the kernel has torn its memory down. Meanwhile the loop passes frames on. What
 * the look had to say is said by the loop afterwards. A look for a fence that was overtaken is made again:
 * the dead are others then. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"

/* How long a killed worker may take to be gone: 253 ms were measured for 4 GiB of small pages. */
#define LEAVE_NS 30000000000

struct launch_find {
    const struct spec *spec;
    const uint8_t *run_id;
    uint64_t below; /* only steps strictly below */
    bool *alive;    /* [ranks] whose stores are in use: their owners settle them when they open them. Nobody
                       takes a place that was empty when the look began until it is over (find_holds) */
    uint32_t ranks;
    bool needs_one; /* nothing found is an error */
    /* the answer */
    pawl_code code;
    struct pawl_error error;
    bool found;
    uint64_t step, incarnation;
    struct ckpt_step *skipped; /* unfinished ones that are newer */
    uint32_t skipped_count;
    char **problems;
    uint32_t problem_count;
    /* while a run goes on */
    uint64_t view;      /* asked for */
    uint64_t look_view; /* the look under way is for it */
    bool running;
    _Atomic bool stop; /* the run ends: do not wait */
    pthread_t thread;
    int fd; /* eventfd; -1: no thread was ever needed */
};

static void forget_answer(struct launch_find *f) {
    for (uint32_t i = 0; i < f->problem_count; i++) free(f->problems[i]);
    free(f->problems);
    free(f->skipped);
    f->problems = NULL;
    f->skipped = NULL;
    f->problem_count = f->skipped_count = 0;
    f->found = false;
    f->code = PAWL_OK;
}

/* The run folder's lock is ours, so a lock on a dead rank's store can be its memory's only: wait. */
static pawl_code open_left_store(const struct launch_find *f, const char *path, struct store **out,
                                 struct pawl_error *e) {
    for (int64_t end = clock_now_ns() + LEAVE_NS;; usleep(1000)) {
        pawl_code code = store_open(path, STORE_PLAIN, false, out, NULL, e);
        if (code != PAWL_BUSY || clock_now_ns() > end || atomic_load(&f->stop)) return code;
    }
}

static bool is_alive(const struct launch_find *f, const char *path) {
    const char *name = strrchr(path, '/');
    unsigned rank;
    return name != NULL && sscanf(name, "/rank-%u", &rank) == 1 && rank < f->ranks && f->alive[rank];
}

/* What is built on must survive a power cut, also in the store of a rank that does not get to open it. */
static pawl_code settle(const struct launch_find *f, const char *path, struct pawl_error *e) {
    struct store *s = NULL;
    pawl_code code = open_left_store(f, path, &s, e);
    if (code == PAWL_OK) code = ckpt_settle(s, e);
    store_close(s);
    return code;
}

static pawl_code keep_problems(struct launch_find *f, const struct ckpt_set *set, struct pawl_error *e) {
    uint32_t count = 0;
    while (ckpt_set_problem(set, count) != NULL) count++;
    f->problems = calloc((size_t)count + 1, sizeof *f->problems);
    f->skipped = calloc((size_t)ckpt_set_count(set) + 1, sizeof *f->skipped);
    if (f->problems == NULL || f->skipped == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory");
    for (uint32_t i = 0; i < count; i++) {
        f->problems[i] = strdup(ckpt_set_problem(set, i));
        if (f->problems[i] == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory");
        f->problem_count++;
    }
    return PAWL_OK;
}

static void choose(struct launch_find *f, const struct ckpt_set *set) {
    for (uint32_t i = 0; i < ckpt_set_count(set) && !f->found; i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (s->step >= f->below) continue;
        if (!s->complete) {
            f->skipped[f->skipped_count++] = *s;
            continue;
        }
        f->found = true;
        f->step = s->step;
        f->incarnation = s->incarnation;
    }
}

static pawl_code look(struct launch_find *f, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    forget_answer(f);
    pawl_code code = rundir_open_stores(f->spec, &stores, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        if (!is_alive(f, store_path(stores[i]))) code = settle(f, store_path(stores[i]), e);
    if (code == PAWL_OK && count > 0) code = ckpt_set_open(stores, count, f->run_id, &set, e);
    if (code == PAWL_OK && set != NULL) {
        code = keep_problems(f, set, e);
        if (code == PAWL_OK) choose(f, set);
    }
    ckpt_set_close(set);
    rundir_close_stores(stores, count);
    if (code != PAWL_OK || f->found || !f->needs_one) return code;
    char damage[512] = "";
    if (f->problem_count > 0) snprintf(damage, sizeof damage, " (first damage: %.400s)", f->problems[0]);
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%s had durable steps, but none can be read now%s: bring them back, or start again from step 0 with "
        "--from-scratch",
        f->spec->run.dir, damage);
}

static void say(struct launch *l, const struct launch_find *f) {
    for (uint32_t i = 0; i < f->problem_count; i++) {
        json_text(progress_begin(l->progress, "damaged"), "problem", f->problems[i]);
        progress_end(l->progress, "damaged: %s", f->problems[i]);
    }
    for (uint32_t i = 0; i < f->skipped_count; i++) {
        struct json *j = progress_begin(l->progress, "unfinished");
        json_i64(j, "step", (int64_t)f->skipped[i].step);
        json_text(j, "missing", f->skipped[i].missing);
        progress_end(l->progress, "skipped the unfinished save of step %llu: %s",
                     (unsigned long long)f->skipped[i].step, f->skipped[i].missing);
    }
}

static void take(struct launch *l, const struct launch_find *f) {
    l->resumed = f->found;
    l->resume_step = f->step;
    l->resume_incarnation = f->incarnation;
}

static pawl_code open_find(struct launch *l, struct pawl_error *e) {
    if (l->find != NULL) return PAWL_OK;
    struct launch_find *f = calloc(1, sizeof *f);
    bool *alive = calloc(l->ranks, sizeof *alive);
    if (f == NULL || alive == NULL) {
        free(f);
        free(alive);
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", l->ranks);
    }
    *f = (struct launch_find){
        .spec = &l->spec, .run_id = l->dir.run_id, .alive = alive, .ranks = l->ranks, .fd = -1};
    l->find = f;
    return PAWL_OK;
}

/* Another spec's run that never made a step durable becomes this one's. A whole step, though nobody noted it,
 * and what may be a damaged one, are not given up. */
static pawl_code take_over(struct launch *l, const struct launch_find *f, struct pawl_error *e) {
    if (f->found || f->problem_count > 0) {
        if (e != NULL) *e = l->dir.foreign;
        return l->dir.foreign.code;
    }
    json_text(progress_begin(l->progress, "anew"), "why", l->dir.foreign.text);
    progress_end(l->progress, "no step of the run in %s was durable: it begins anew with this spec",
                 l->spec.run.dir);
    return rundir_take_over(&l->dir, &l->spec, e);
}

pawl_code find_first(struct launch *l, uint64_t below, struct pawl_error *e) {
    pawl_code code = open_find(l, e);
    if (code != PAWL_OK) return code;
    struct launch_find *f = l->find;
    memset(f->alive, 0, l->ranks * sizeof *f->alive);
    f->below = below;
    f->needs_one = l->dir.had_durable && !l->options->from_scratch;
    code = look(f, e);
    say(l, f);
    take(l, f);
    if (code == PAWL_OK && l->dir.foreign.code != PAWL_OK) code = take_over(l, f, e);
    l->found_first = code == PAWL_OK;
    return code;
}

/* --- while a run goes on --- */

static void answer(struct launch *l, uint64_t view, pawl_code code, const char *why) {
    struct pawl_error e;
    if (code == PAWL_OK) {
        code = rundir_begin(&l->dir, &e);
        if (code != PAWL_OK) why = e.text;
    }
    relay_say(l, &(struct link_frame){.kind = LINK_FOUND,
                                      .view = view,
                                      .version = l->resumed ? l->resume_step : 0,
                                      .incarnation = l->dir.incarnation,
                                      .resume_incarnation = l->resumed ? l->resume_incarnation : 0,
                                      .code = code,
                                      .text = why});
}

static void *look_thread(void *argument) {
    struct launch_find *f = argument;
    f->code = look(f, &f->error);
    uint64_t one = 1;
    while (write(f->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    return NULL;
}

static pawl_code start_look(struct launch *l, struct pawl_error *e) {
    struct launch_find *f = l->find;
    for (uint32_t r = 0; r < l->ranks; r++)
        f->alive[r] = l->workers[r].process.pid > 0 && !l->workers[r].gone;
    f->below = l->find_below;
    f->needs_one = l->has_durable || (l->dir.had_durable && !l->options->from_scratch);
    f->look_view = f->view;
    if (f->fd < 0) {
        f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (f->fd < 0) return error_set(e, PAWL_IO, errno, "cannot watch for what is found");
        pawl_code code = fleet_watch(l, f->fd, WATCH_FOUND, 0, e);
        if (code != PAWL_OK) return code;
    }
    int rc = pthread_create(&f->thread, NULL, look_thread, f);
    if (rc != 0) return error_set(e, PAWL_IO, rc, "cannot look for the newest durable step");
    f->running = true;
    l->at_found = true;
    return PAWL_OK;
}

/* Returns without a newer durable step in between are counted: what comes again each time is no machine. */
static bool may_restore(struct launch *l) {
    if (l->restoring) return true;                /* still the same one: nobody has begun since */
    if (l->find_below != UINT64_MAX) return true; /* an older step each time: that ends */
    l->restoring = true;
    bool newer = l->has_durable && l->report.last_durable_step > l->restores_at;
    if (newer) l->restores = 0;
    l->restores_at = l->report.last_durable_step;
    return ++l->restores <= l->spec.failure.restarts;
}

void find_begin(struct launch *l, uint64_t view) {
    if (l->found_first && !l->going) {
        answer(l, view, PAWL_OK, "");
        return;
    }
    struct launch_find *f = l->find;
    struct pawl_error e;
    f->view = view;
    if (f->running) return; /* it is made again for this view when it ends */
    if (!may_restore(l)) {
        error_set(&e, PAWL_STAGE_LOST, 0,
                  "a stage has lost every replica again, after %u returns to a durable step without a newer "
                  "one in between (failure.restarts); lost last: %s",
                  l->spec.failure.restarts, l->last_lost);
        answer(l, view, PAWL_STAGE_LOST, e.text);
        return;
    }
    pawl_code code = start_look(l, &e);
    if (code != PAWL_OK) answer(l, view, code, e.text);
}

bool find_holds(const struct launch *l, uint32_t rank) {
    const struct launch_find *f = l->find;
    return f != NULL && f->running && !f->alive[rank];
}

void find_done(struct launch *l) {
    struct launch_find *f = l->find;
    uint64_t count;
    struct pawl_error e;
    if (read(f->fd, &count, sizeof count) != sizeof count || !f->running) return;
    pthread_join(f->thread, NULL);
    f->running = false;
    if (f->view != f->look_view) {
        pawl_code code = start_look(l, &e);
        if (code != PAWL_OK) answer(l, f->view, code, e.text);
        return;
    }
    say(l, f);
    if (f->code == PAWL_OK) take(l, f);
    answer(l, f->view, f->code, f->error.text);
    places_tick(l, clock_now_ns()); /* the places it held */
}

pawl_code find_settle(struct launch *l, struct pawl_error *e) {
    if (!l->at_found) return PAWL_OK;
    struct store **stores = NULL;
    uint32_t count = 0;
    pawl_code code = rundir_open_stores(&l->spec, &stores, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = settle(l->find, store_path(stores[i]), e);
    rundir_close_stores(stores, count);
    return code;
}

void find_close(struct launch *l) {
    struct launch_find *f = l->find;
    if (f == NULL) return;
    atomic_store(&f->stop, true);
    if (f->running) pthread_join(f->thread, NULL);
    if (f->fd >= 0) close(f->fd);
    forget_answer(f);
    free(f->alive);
    free(f);
    l->find = NULL;
}
