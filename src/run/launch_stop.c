/* The end on request: SIGTERM, SIGINT, SIGUSR1, the stop file, pawl stop. The step under way is finished and
 * saved within failure.grace_s; if that cannot be held, the newest durable step is what remains, and that is
 * said beforehand, as soon as an iteration and a save have been measured. Meanwhile no worker is started, and
 * none leaves because it was sent the same signal. */
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"

/* Signals closer together than this are one: tools signal a process and then its group, and mean it once. */
#define SIGNAL_ONCE_NS 1000000000

static void stop_path(const struct launch *l, char *out, size_t size) {
    snprintf(out, size, "%s/STOP", l->spec.run.dir);
}

static bool fits(const struct launch *l) {
    return (double)(l->iteration_ns + l->save_ns) / 1e9 <= l->spec.failure.grace_s;
}

void stop_measured(struct launch *l) {
    if (l->grace_told || l->iteration_ns == 0 || l->save_ns == 0) return;
    if (fits(l)) return;
    l->grace_told = true;
    struct json *j = progress_begin(l->progress, "grace_too_short");
    json_f64(j, "grace_s", l->spec.failure.grace_s);
    json_f64(j, "iteration_s", (double)l->iteration_ns / 1e9);
    json_f64(j, "save_s", (double)l->save_ns / 1e9);
    progress_end(
        l->progress,
        "failure.grace_s is %.3g, but an iteration takes %.1f s and a save %.1f s: told to end, this run "
        "may leave no newer step than the newest durable one",
        l->spec.failure.grace_s, (double)l->iteration_ns / 1e9, (double)l->save_ns / 1e9);
}

static void end_now(struct launch *l, pawl_code code, const char *why) {
    if (l->has_durable)
        fleet_give_up(l, code, "%s; the newest durable step is %llu", why,
                      (unsigned long long)l->report.last_durable_step);
    else
        fleet_give_up(l, code, "%s; nothing is durable yet", why);
}

/* No step was made in this call, and there is none to go on from: the next one is not worth a wait. */
static bool nothing_done(const struct launch *l) {
    return !l->has_durable && l->report.final_step == l->report.first_step;
}

void stop_begin(struct launch *l, const char *why) {
    if (l->stopping) return;
    l->stopping = true;
    l->stop_end_ns = clock_now_ns() + (int64_t)(l->spec.failure.grace_s * 1e9);
    json_text(progress_begin(l->progress, "signal"), "why", why);
    if (nothing_done(l)) {
        progress_end(l->progress, "%s: ending at once, as no step is done yet", why);
        end_now(l, PAWL_CANCELLED, "told to end before the first step was done");
        return;
    }
    progress_end(l->progress, "%s: saving the next step, then ending, within %.3g s", why,
                 l->spec.failure.grace_s);
    relay_say(l, &(struct link_frame){.kind = LINK_STOP});
}

void stop_signals(struct launch *l) {
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
        int64_t now = clock_now_ns();
        if (l->signals > 0 && now - l->signal_ns < SIGNAL_ONCE_NS) continue;
        l->signal_ns = now;
        if (l->signals++ == 0) {
            char why[128];
            snprintf(why, sizeof why, "%s (again: end at once)", strsignal((int)info.ssi_signo));
            stop_begin(l, why);
        } else {
            end_now(l, PAWL_USER, "ended by a second signal");
        }
    }
}

void stop_tick(struct launch *l, int64_t now_ns) {
    char path[SPEC_TEXT_MAX + 16];
    stop_path(l, path, sizeof path);
    if (access(path, F_OK) == 0) {
        bool removed = unlink(path) == 0;
        stop_begin(l, removed ? "the stop file" : "the stop file, which cannot be removed");
    }
    /* With a durable step the coordinator ends the run there. */
    if (l->stopping && l->filling && !l->has_durable && !places_awaited(l) && !l->over)
        end_now(l, PAWL_CANCELLED, "told to end, and too few workers are left to save the next step");
    if (l->stopping && now_ns > l->stop_end_ns && !l->over)
        end_now(l, PAWL_CANCELLED, "told to end, and the grace (failure.grace_s) is over");
}
