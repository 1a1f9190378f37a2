/* Whether a call of pawl train ended as the faults that struck it allow. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "run/chaos.h"

static bool fired_now(const struct chaos_run *r, enum inject_kind kind, bool launcher) {
    for (uint32_t i = 0; i < r->plan.faults.count; i++) {
        const struct inject *f = &r->plan.faults.items[i];
        if (f->fired && !r->before[i] && f->kind == kind && (!launcher || f->rank >= INJECT_LAUNCHER))
            return true;
    }
    return false;
}

static bool ever_fired(const struct chaos_run *r, enum inject_kind kind) {
    for (uint32_t i = 0; i < r->plan.faults.count; i++)
        if (r->plan.faults.items[i].fired && r->plan.faults.items[i].kind == kind) return true;
    return false;
}

/* May there have been fewer workers than stages? */
static bool too_few(const struct chaos_run *r) {
    uint32_t lost = 0, ranks = spec_ranks(r->spec);
    for (uint32_t i = 0; i < r->plan.faults.count; i++) {
        const struct inject *f = &r->plan.faults.items[i];
        lost += f->fired && f->rank < INJECT_LAUNCHER &&
                (f->kind == INJECT_KILL || f->kind == INJECT_TERM || f->kind == INJECT_STOP ||
                 f->kind == INJECT_NET);
    }
    return lost + r->aborted + r->spec->parallel.stages > ranks;
}

static void judge_weights(struct chaos_run *r) {
    const struct chaos_reference *want = r->reference;
    struct pawl_error e = {.code = PAWL_OK};
    uint64_t final_step = 0;
    char weights[65] = "";
    if (chaos_read_report(r->dir, &final_step, weights, &e) != PAWL_OK) {
        chaos_problem(&r->seen, "it ended well, but %s", e.text);
    } else if (final_step < want->count) {
        if (!fired_now(r, INJECT_TERM, false))
            chaos_problem(&r->seen, "it ended at step %llu of %llu, told by nobody",
                          (unsigned long long)final_step, (unsigned long long)want->count);
    } else {
        r->seen.finished = true;
        if (strcmp(weights, want->weights_sha256) != 0)
            chaos_problem(&r->seen, "weights %.16s..., undisturbed %.16s...", weights, want->weights_sha256);
        if (r->seen.durable < want->count)
            chaos_problem(&r->seen, "it ended well, but the last step was never told to be durable");
    }
}

/* UCX ends a process whose peer dies while the two connect (src/net/ucx.c): a worker is lost, as by any
 * death, and the job has to survive that. An assertion of ours is a fault of ours. */
static void judge_aborts(struct chaos_run *r, uint32_t ucx_assertions) {
    if (r->seen.aborts > ucx_assertions)
        chaos_problem(&r->seen, "a worker crashed: %s", strsignal(SIGABRT));
    else
        r->aborted += r->seen.aborts;
    r->seen.aborts = 0;
}

void chaos_judge(struct chaos_run *r, const struct chaos_call *call, const struct chaos_end *end) {
    judge_aborts(r, end->ucx_assertions);
    if (end->stuck) {
        chaos_problem(&r->seen, "stuck: no end within %.0f s", call->limit_s);
    } else if (end->orphan) {
        chaos_problem(&r->seen, "a process outlived its launcher");
    } else if (WIFSIGNALED(end->status)) {
        if (WTERMSIG(end->status) != SIGKILL || !fired_now(r, INJECT_KILL, true))
            chaos_problem(&r->seen, "the launcher ended by %s", strsignal(WTERMSIG(end->status)));
    } else if (WEXITSTATUS(end->status) == 0) {
        judge_weights(r);
    } else {
        int code = WEXITSTATUS(end->status);
        bool disk = code == pawl_code_exit(PAWL_IO) && ever_fired(r, INJECT_DISK);
        bool few = code == pawl_code_exit(PAWL_STAGE_LOST) && too_few(r);
        if (!disk && !few) chaos_problem(&r->seen, "exit code %d: %s", code, end->last);
    }
}
