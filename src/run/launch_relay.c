/* The coordinator's process, and the frames between it and the workers.
 *
 * A frame is passed on whole and to everybody it is for, before the next one is looked at: a dying
 * coordinator has told all of them or none. When it is gone, what it had said is passed on first; then
 * another one is started, which fences and learns the rest from the answers. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"

/* Coordinators in a row without a decided step between them: whatever ends them comes with the run, then. */
#define LOSSES_MAX 5u

/* Until its first word: a loaded machine takes its time to start a process. */
#define START_TIMEOUTS 10

void relay_say(struct launch *l, const struct link_frame *f) {
    if (l->relay.process.channel == NULL) return; /* the next one is told the state, not what led to it */
    struct bytes out = {0};
    link_encode(f, &out);
    if (out.failed)
        fleet_give_up(l, PAWL_MEMORY, "no memory for a frame to the coordinator");
    else
        channel_send_frame(l->relay.process.channel, out.data, out.size, NULL); /* its exit is seen */
    bytes_close(&out);
}

void relay_started(struct launch *l, uint32_t rank) {
    if (l->relay.process.channel != NULL) l->workers[rank].unknown++;
    relay_say(l, &(struct link_frame){.kind = LINK_STARTED, .rank = rank});
}

static void say_again(struct launch *l, uint32_t rank, const struct bytes *frame) {
    if (frame->size > 0)
        relay_say(l, &(struct link_frame){
                         .kind = LINK_FROM, .rank = rank, .data = frame->data, .data_bytes = frame->size});
}

/* What a coordinator cannot learn from a fence: who is there and how to reach them, who wants to leave. */
static void introduce(struct launch *l, bool recover) {
    for (uint32_t r = 0; r < l->ranks; r++) {
        struct launch_worker *w = &l->workers[r];
        if (w->process.pid <= 0 || w->gone) continue;
        if (!recover || !w->ready) relay_started(l, r);
        say_again(l, r, &w->hello);
        if (!recover) say_again(l, r, &w->readied);
        if (w->leaving) relay_say(l, &(struct link_frame){.kind = LINK_LEAVE, .rank = r});
    }
    const struct inject *fault;
    uint32_t at = 0;
    inject_set_read(&l->injects, l->spec.run.dir, NULL); /* not again what ended the last one */
    while ((fault = inject_for_coord(&l->injects, &at)) != NULL)
        relay_say(l, &(struct link_frame){.kind = LINK_INJECT, .text = fault->text});
}

static pawl_code greet(struct launch *l, struct pawl_error *e) {
    bool recover = l->relay.view > 0;
    uint32_t *there = malloc(l->ranks * sizeof *there), count = 0;
    if (there == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", l->ranks);
    for (uint32_t r = 0; r < l->ranks; r++) {
        struct launch_worker *w = &l->workers[r];
        w->unknown = 0;
        if (recover && w->process.pid > 0 && !w->gone && w->ready) there[count++] = r;
    }
    relay_say(l, &(struct link_frame){.kind = LINK_HELLO,
                                      .ranks = l->ranks,
                                      .recover = recover,
                                      .stopping = l->stopping,
                                      .view = l->relay.view,
                                      .incarnation = l->dir.incarnation,
                                      .list = there,
                                      .list_count = count,
                                      .data = l->spec_text.data,
                                      .data_bytes = l->spec_text.size - 1});
    free(there);
    introduce(l, recover);
    return PAWL_OK;
}

pawl_code relay_start(struct launch *l, struct pawl_error *e) {
    l->relay.broken = l->relay.begun = false;
    pawl_code code = fleet_spawn(l, l->coordinator, "coordinate", -1, &l->relay.process, e);
    if (code == PAWL_OK) code = fleet_watch(l, l->relay.process.pidfd, WATCH_COORDINATOR, 0, e);
    if (code == PAWL_OK) code = fleet_watch(l, channel_fd(l->relay.process.channel), WATCH_LINK, 0, e);
    if (code == PAWL_OK) code = greet(l, e);
    l->relay.heard_ns = l->relay.looked_ns = clock_now_ns();
    return code;
}

/* --- what it says --- */

static void pass_on(struct launch *l, const struct link_frame *f) {
    struct message m;
    if (message_decode(f->data, f->data_bytes, &m, NULL) != PAWL_OK) {
        fleet_signal(&l->relay.process, SIGKILL);
        return;
    }
    if (m.kind == MESSAGE_FENCE) faults_at(l, FAULT_LAUNCH_FENCE);
    if (m.kind == MESSAGE_GO) faults_at(l, FAULT_LAUNCH_GO);
    for (uint32_t i = 0; i < f->list_count; i++) {
        struct launch_worker *w = f->list[i] < l->ranks ? &l->workers[f->list[i]] : NULL;
        if (w == NULL || w->process.channel == NULL || w->gone || w->unknown > 0) continue;
        channel_send_frame(w->process.channel, f->data, f->data_bytes, NULL);
        if (m.kind == MESSAGE_LEAVE) w->left = true;
    }
    if ((m.kind == MESSAGE_FENCE || m.kind == MESSAGE_GO) && m.view > l->relay.view) l->relay.view = m.view;
    if (m.kind == MESSAGE_FINISH) l->relay.finished = l->over = true;
    tell_passed(l, &m, f->list, f->list_count);
}

static void end(struct launch *l, const struct link_frame *f) {
    if (f->code == PAWL_OK)
        l->relay.finished = l->over = true;
    else
        fleet_give_up(l, f->code, "%s", f->text);
}

static void kill_rank(struct launch *l, uint32_t rank, const char *why) {
    if (rank >= l->ranks || l->workers[rank].process.pid <= 0 || l->workers[rank].unknown > 0) return;
    if (l->workers[rank].gone)
        fleet_signal(&l->workers[rank].process, SIGKILL);
    else
        witness_kill(l, rank, why);
}

static void confirm(struct launch *l, uint32_t rank) {
    if (rank < l->ranks && l->workers[rank].unknown > 0) l->workers[rank].unknown--;
}

static void handle(struct launch *l, const struct link_frame *f) {
    l->relay.heard_ns = clock_now_ns();
    l->relay.begun = true;
    switch (f->kind) {
    case LINK_TO:
        pass_on(l, f);
        break;
    case LINK_KILL:
        kill_rank(l, f->rank, f->text);
        break;
    case LINK_FIND:
        find_begin(l, f->view);
        break;
    case LINK_NEED:
        places_need(l, f->ranks, f->text);
        break;
    case LINK_NOTE:
        if (f->note.kind == CONDUCT_NOTE_KNOWN) confirm(l, f->note.action.rank);
        tell_note(l, &f->note);
        break;
    case LINK_BEAT:
        break;
    case LINK_END:
        end(l, f);
        break;
    default: /* not a coordinator's */
        fleet_signal(&l->relay.process, SIGKILL);
    }
}

void relay_receive(struct launch *l) {
    struct channel *link = l->relay.process.channel;
    while (link != NULL && !l->relay.broken && !l->over) {
        const uint8_t *data;
        size_t size;
        bool got;
        struct link_frame f;
        struct pawl_error why;
        pawl_code code = channel_receive_frame(link, &data, &size, &got, &why);
        if (code == PAWL_OK && !got) return;
        if (code == PAWL_OK) code = link_decode(data, size, &f, &why);
        if (code == PAWL_OK) {
            handle(l, &f);
            link_frame_close(&f);
            continue;
        }
        /* Gone, or not to be understood: its pidfd tells when it is over. */
        l->relay.broken = true;
        epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, channel_fd(link), NULL);
        fleet_signal(&l->relay.process, SIGKILL);
        return;
    }
}

/* --- its end --- */

static void tell_lost(struct launch *l, int status) {
    struct json *j = progress_begin(l->progress, "coordinator_lost");
    json_i64(j, "view", (int64_t)l->relay.view);
    json_i64(j, WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (WIFSIGNALED(status))
        progress_end(l->progress, "the coordinator was lost (%s): another one takes over",
                     strsignal(WTERMSIG(status)));
    else
        progress_end(l->progress, "the coordinator was lost (it ended with %d): another one takes over",
                     WEXITSTATUS(status));
}

void relay_exited(struct launch *l) {
    struct launch_relay *r = &l->relay;
    relay_receive(l); /* what it had said, first */
    int status = 0;
    while (waitpid(r->process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    fleet_forget(&r->process);
    if (l->over) return;
    tell_lost(l, status);
    l->report.coordinator_restarts++;
    if (++r->losses > LOSSES_MAX) {
        fleet_give_up(l, PAWL_INTERNAL,
                      "the coordinator was lost %u times without a step in between: gave up", r->losses);
        return;
    }
    struct pawl_error e;
    tell_missed(l);
    pawl_code code = relay_start(l, &e);
    if (code != PAWL_OK) fleet_give_up(l, code, "cannot start another coordinator: %s", e.text);
}

/* A gap between two looks was our own stop: everybody may have been stopped with us. */
void relay_tick(struct launch *l, int64_t now_ns) {
    struct launch_relay *r = &l->relay;
    int64_t limit_ns = (int64_t)(l->spec.failure.timeout_s * 1e9) * (r->begun ? 1 : START_TIMEOUTS);
    if (now_ns - r->looked_ns > limit_ns / 2) r->heard_ns = now_ns;
    r->looked_ns = now_ns;
    relay_say(l, &(struct link_frame){.kind = LINK_BEAT});
    if (r->process.pid <= 0 || now_ns - r->heard_ns <= limit_ns) return;
    progress_begin(l->progress, "coordinator_silent");
    progress_end(l->progress, "the coordinator has said nothing for %.1f s: it is ended",
                 (double)(now_ns - r->heard_ns) / 1e9);
    fleet_signal(&r->process, SIGKILL);
    r->heard_ns = now_ns;
}
