/* The evidence file of a hang: what every worker was doing when one was given up, or when nobody got on.
 *
 * Whoever may answer is asked for its stack (SIGUSR2, run/worker_stack), everybody is described from outside,
 * and when they have answered, or after ANSWER_NS, the file is written and the one that was given up is
 * killed. A thread does it: looking at many processes takes longer than the others should wait for. Views
 * keep the one that was given up out until then. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "run/evidence.h"
#include "run/launch_state.h"

/* Writing its stacks takes a process that runs some milliseconds, or a hundred when it has threads that do
 * not answer. One that hangs makes everybody's file wait for all of this. */
#define ANSWER_NS INT64_C(500000000)
#define LOOK_US   5000

/* Files a run folder gets at most: what is not learned from these is not learned from more. */
#define FILES_MAX 32u

struct subject {
    struct evidence_worker seen;
    struct launch_process process; /* with a pidfd of its own */
    bool asked;                    /* for its stack */
};

struct witness_work {
    pthread_t thread;
    _Atomic bool done;
    char why[256], folder[SPEC_TEXT_MAX + 64], path[SPEC_TEXT_MAX + 64];
    uint64_t step;
    struct subject *subjects;
    uint32_t count;
    struct pawl_error error; /* code OK: the file is written */
};

void witness_open(struct launch *l) {
    struct launch_witness *w = &l->witness;
    char full[4096];
    w->victims = calloc(l->ranks, sizeof *w->victims);
    if (w->victims == NULL || realpath(l->spec.run.dir, full) == NULL) return; /* then there is no evidence */
    int n = snprintf(w->folder, sizeof w->folder, "%s/.stacks", full);
    if (n < 0 || (size_t)n >= sizeof w->folder) w->folder[0] = 0;
}

static void free_work(struct witness_work *k) {
    for (uint32_t i = 0; k->subjects != NULL && i < k->count; i++) close(k->subjects[i].process.pidfd);
    free(k->subjects);
    free(k);
}

void witness_close(struct launch *l) {
    struct launch_witness *w = &l->witness;
    witness_wait(l);
    free(w->victims);
    *w = (struct launch_witness){0};
}

/* --- in the thread --- */

static void ask(struct witness_work *k) {
    bool folder = mkdir(k->folder, 0700) == 0 || errno == EEXIST;
    for (uint32_t i = 0; i < k->count && folder; i++) {
        struct subject *s = &k->subjects[i];
        s->asked = evidence_catches(s->seen.pid, SIGUSR2) && evidence_state(s->seen.pid) != 'T';
        if (s->asked) fleet_signal(&s->process, SIGUSR2);
    }
}

static void stack_path(const struct witness_work *k, const struct subject *s, char *out, size_t size) {
    snprintf(out, size, "%s/rank-%u.%d", k->folder, s->seen.rank, (int)s->seen.pid);
}

/* A file has its name when it is whole. */
static bool all_answered(const struct witness_work *k) {
    char path[sizeof k->folder + 64];
    for (uint32_t i = 0; i < k->count; i++) {
        stack_path(k, &k->subjects[i], path, sizeof path);
        if (k->subjects[i].asked && access(path, F_OK) != 0) return false;
    }
    return true;
}

static void put_stack(const struct witness_work *k, const struct subject *s, struct bytes *out) {
    char path[sizeof k->folder + 64];
    stack_path(k, s, path, sizeof path);
    bytes_printf(out, "  its own word:\n");
    if (!s->asked)
        bytes_printf(out, "  none: it was stopped, or had not begun\n");
    else if (!evidence_take_file(path, out))
        bytes_printf(out, "  none within %d ms\n", (int)(ANSWER_NS / 1000000));
}

static pawl_code write_file(struct witness_work *k, struct bytes *texts) {
    struct bytes out = {0};
    char now[40];
    clock_utc(now, sizeof now);
    bytes_printf(&out, "%s: %s; step %llu\n", now, k->why, (unsigned long long)k->step);
    for (uint32_t i = 0; i < k->count; i++) {
        bytes_put_u8(&out, '\n');
        bytes_put(&out, texts[i].data, texts[i].size);
        put_stack(k, &k->subjects[i], &out);
    }
    rmdir(k->folder);
    pawl_code code = out.failed ? error_set(&k->error, PAWL_MEMORY, 0, "no memory for it")
                                : file_replace(k->path, &out, "evidence", &k->error);
    bytes_close(&out);
    return code;
}

static void *look(void *argument) {
    struct witness_work *k = argument;
    int64_t end_ns = clock_now_ns() + ANSWER_NS;
    struct bytes *texts = calloc((size_t)k->count + 1, sizeof *texts);
    ask(k);
    for (uint32_t i = 0; i < k->count && texts != NULL; i++)
        evidence_describe(&k->subjects[i].seen, &texts[i]);
    while (!all_answered(k) && clock_now_ns() < end_ns) usleep(LOOK_US);
    if (texts == NULL)
        error_set(&k->error, PAWL_MEMORY, 0, "no memory for %u workers", k->count);
    else if (write_file(k, texts) == PAWL_OK)
        k->error.code = PAWL_OK;
    for (uint32_t i = 0; i < k->count && texts != NULL; i++) bytes_close(&texts[i]);
    free(texts);
    atomic_store(&k->done, true);
    return NULL;
}

/* --- in the loop --- */

/* False: the folder has all it gets. */
static bool name_file(const struct launch *l, struct witness_work *k) {
    for (uint32_t n = 1; n <= FILES_MAX; n++) {
        snprintf(k->path, sizeof k->path, "%s/evidence-%u.txt", l->spec.run.dir, n);
        if (access(k->path, F_OK) != 0) return true;
    }
    return false;
}

static void add_subject(const struct launch *l, uint32_t rank, struct witness_work *k) {
    const struct launch_worker *w = &l->workers[rank];
    int fd = fcntl(w->process.pidfd, F_DUPFD_CLOEXEC, 0);
    if (w->process.pid <= 0 || fd < 0) return;
    int64_t now = clock_now_ns();
    k->subjects[k->count++] =
        (struct subject){.process = {.pid = w->process.pid, .pidfd = fd},
                         .seen = {.rank = rank,
                                  .pid = w->process.pid,
                                  .pipeline = w->pipeline,
                                  .stage = w->stage,
                                  .busy = w->busy,
                                  .work = w->work,
                                  .at = w->at,
                                  .progress = w->progress,
                                  .progress_age_s = (double)(now - w->progress_ns) / 1e9,
                                  .beat_age_s = (double)(now - w->beat_ns) / 1e9}};
}

/* Without memory or a thread there is no evidence, and the run goes on. */
static void begin(struct launch *l, const char *why) {
    struct launch_witness *w = &l->witness;
    if (w->work != NULL || w->folder[0] == 0) return;
    struct witness_work *k = calloc(1, sizeof *k);
    if (k != NULL) k->subjects = calloc(l->ranks, sizeof *k->subjects);
    if (k == NULL || k->subjects == NULL || !name_file(l, k)) {
        if (k != NULL) free_work(k);
        return;
    }
    snprintf(k->why, sizeof k->why, "%s", why);
    snprintf(k->folder, sizeof k->folder, "%s", w->folder);
    k->step = l->report.final_step;
    for (uint32_t r = 0; r < l->ranks; r++) add_subject(l, r, k);
    if (pthread_create(&k->thread, NULL, look, k) == 0)
        w->work = k;
    else
        free_work(k);
}

static void finish(struct launch *l) {
    struct witness_work *k = l->witness.work;
    pthread_join(k->thread, NULL);
    struct json *j = progress_begin(l->progress, "evidence");
    json_text(j, "why", k->why);
    json_text(j, "file", k->path);
    if (k->error.code == PAWL_OK)
        progress_end(l->progress, "what every worker was doing: %s", k->path);
    else
        progress_end(l->progress, "no evidence of the hang: %s", k->error.text);
    l->witness.work = NULL;
    for (uint32_t r = 0; r < l->ranks; r++) {
        if (l->witness.victims[r]) fleet_kill(l, r, k->why);
        l->witness.victims[r] = false;
    }
    free_work(k);
}

void witness_look(struct launch *l, const char *why) { begin(l, why); }

void witness_wait(struct launch *l) {
    if (l->witness.work != NULL) finish(l);
}

void witness_kill(struct launch *l, uint32_t rank, const char *why) {
    char text[256];
    snprintf(text, sizeof text, "worker %u: %s", rank, why);
    begin(l, text);
    if (l->witness.work != NULL)
        l->witness.victims[rank] = true;
    else
        fleet_kill(l, rank, why);
}

void witness_exited(struct launch *l, uint32_t rank) {
    if (l->witness.victims != NULL) l->witness.victims[rank] = false;
}

void witness_tick(struct launch *l, int64_t now_ns) {
    (void)now_ns;
    if (l->witness.work != NULL && atomic_load(&l->witness.work->done)) finish(l);
}
