/* The evidence file of a hang: what every worker was doing when one was given up, or when nobody got on.
 *
 * Whoever may answer is asked for its stack (SIGUSR2, run/worker_main), everybody is described from outside,
 * and after ANSWER_NS at most the file is written and the one that was given up is killed. A stopped process
 * cannot answer and is killed at once. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "run/evidence.h"
#include "run/launch_state.h"

/* Writing a stack takes a process that runs some milliseconds. */
#define ANSWER_NS INT64_C(200000000)

/* Files a run folder gets at most: what is not learned from these is not learned from more. */
#define FILES_MAX 32u

/* Beats that follow a file's number are those of the next: a run that hangs again and again tells enough. */
static void evidence_path(const struct launch *l, uint32_t number, char *out, size_t size) {
    snprintf(out, size, "%s/evidence-%u.txt", l->spec.run.dir, number);
}

void witness_open(struct launch *l) {
    struct launch_witness *w = &l->witness;
    char full[4096];
    w->texts = calloc(l->ranks, sizeof *w->texts);
    w->pids = calloc(l->ranks, sizeof *w->pids);
    w->asked = calloc(l->ranks, sizeof *w->asked);
    w->victims = calloc(l->ranks, sizeof *w->victims);
    bool memory = w->texts != NULL && w->pids != NULL && w->asked != NULL && w->victims != NULL;
    if (!memory || realpath(l->spec.run.dir, full) == NULL) return; /* then there is no evidence */
    int n = snprintf(w->folder, sizeof w->folder, "%s/.stacks", full);
    if (n < 0 || (size_t)n >= sizeof w->folder) w->folder[0] = 0;
}

void witness_close(struct launch *l) {
    struct launch_witness *w = &l->witness;
    for (uint32_t r = 0; w->texts != NULL && r < l->ranks; r++) bytes_close(&w->texts[r]);
    free(w->texts);
    free(w->pids);
    free(w->asked);
    free(w->victims);
    *w = (struct launch_witness){0};
}

static uint32_t free_number(const struct launch *l) {
    char path[SPEC_TEXT_MAX + 64];
    for (uint32_t n = 1; n <= FILES_MAX; n++) {
        evidence_path(l, n, path, sizeof path);
        if (access(path, F_OK) != 0) return n;
    }
    return 0;
}

static void describe(struct launch *l, uint32_t rank, int64_t now) {
    const struct launch_worker *w = &l->workers[rank];
    struct evidence_worker seen = {.rank = rank,
                                   .pid = w->process.pid,
                                   .pipeline = w->pipeline,
                                   .stage = w->stage,
                                   .busy = w->busy,
                                   .work = w->work,
                                   .at = w->at,
                                   .progress = w->progress,
                                   .progress_age_s = (double)(now - w->progress_ns) / 1e9,
                                   .beat_age_s = (double)(now - w->beat_ns) / 1e9};
    evidence_describe(&seen, &l->witness.texts[rank]);
}

static void stack_path(const struct launch *l, uint32_t rank, char *out, size_t size) {
    snprintf(out, size, "%s/rank-%u.%d", l->witness.folder, rank, (int)l->witness.pids[rank]);
}

static void begin(struct launch *l, const char *why) {
    struct launch_witness *w = &l->witness;
    int64_t now = clock_now_ns();
    if (w->number != 0 || w->folder[0] == 0) return;
    w->number = free_number(l);
    if (w->number == 0) return;
    w->end_ns = now + ANSWER_NS;
    snprintf(w->why, sizeof w->why, "%s", why);
    bool folder = mkdir(w->folder, 0700) == 0 || errno == EEXIST;
    for (uint32_t r = 0; r < l->ranks; r++) {
        const struct launch_process *p = &l->workers[r].process;
        bytes_clear(&w->texts[r]);
        w->asked[r] = false;
        w->pids[r] = p->pid;
        if (p->pid <= 0) continue;
        w->asked[r] = folder && evidence_catches(p->pid, SIGUSR2) && evidence_state(p->pid) != 'T';
        if (w->asked[r]) fleet_signal(p, SIGUSR2);
        describe(l, r, now);
    }
}

static void put_stack(struct launch *l, uint32_t rank, struct bytes *out) {
    struct launch_witness *w = &l->witness;
    char path[sizeof w->folder + 64];
    stack_path(l, rank, path, sizeof path);
    bytes_printf(out, "  its own word:\n");
    if (!w->asked[rank])
        bytes_printf(out, "  none: it was not running, or had not begun\n");
    else if (!evidence_take_file(path, out))
        bytes_printf(out, "  none within %d ms\n", (int)(ANSWER_NS / 1000000));
}

static void finish(struct launch *l) {
    struct launch_witness *w = &l->witness;
    struct bytes out = {0};
    struct pawl_error e;
    char path[SPEC_TEXT_MAX + 64], now[40];
    clock_utc(now, sizeof now);
    bytes_printf(&out, "%s: %s; step %llu\n", now, w->why, (unsigned long long)l->report.final_step);
    for (uint32_t r = 0; r < l->ranks; r++) {
        if (w->texts[r].size == 0) continue;
        bytes_put_u8(&out, '\n');
        bytes_put(&out, w->texts[r].data, w->texts[r].size);
        put_stack(l, r, &out);
    }
    rmdir(w->folder);
    evidence_path(l, w->number, path, sizeof path);
    pawl_code code = out.failed ? error_set(&e, PAWL_MEMORY, 0, "no memory for it")
                                : file_replace(path, &out, "evidence", &e);
    bytes_close(&out);
    w->number = 0;
    struct json *j = progress_begin(l->progress, "evidence");
    json_text(j, "why", w->why);
    json_text(j, "file", path);
    if (code == PAWL_OK)
        progress_end(l->progress, "what every worker was doing: %s", path);
    else
        progress_end(l->progress, "no evidence of the hang: %s", e.text);
}

void witness_look(struct launch *l, const char *why) { begin(l, why); }

void witness_kill(struct launch *l, uint32_t rank, const char *why) {
    char text[256];
    snprintf(text, sizeof text, "worker %u: %s", rank, why);
    begin(l, text);
    struct launch_witness *w = &l->witness;
    bool hears = w->number != 0 && w->asked[rank] && w->pids[rank] == l->workers[rank].process.pid;
    if (hears)
        w->victims[rank] = true;
    else
        fleet_kill(l, rank, why);
}

void witness_exited(struct launch *l, uint32_t rank) {
    if (l->witness.victims != NULL) l->witness.victims[rank] = false;
}

void witness_tick(struct launch *l, int64_t now_ns) {
    struct launch_witness *w = &l->witness;
    if (w->number == 0 || now_ns < w->end_ns) return;
    finish(l);
    for (uint32_t r = 0; r < l->ranks; r++) {
        if (w->victims[r]) fleet_kill(l, r, w->why);
        w->victims[r] = false;
    }
}
