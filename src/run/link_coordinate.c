/* The coordinator's process: the conduct at one end of the link, a clock, and nothing else.
 *
 * It holds no file and no worker's channel, so it can be killed at any moment: what it had said whole is
 * passed on by the launcher, the rest was never said. It beats from the loop that does the work: a process
 * that is stopped, or a loop that hangs, is silent, and silence is answered by a new coordinator. It ends by
 * itself when the link does, and is ended by the kernel with its launcher. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/inject_self.h"
#include "run/link.h"
#include "run/notice.h"

/* Deadlines are judged at ticks: a twentieth of the shortest of them, within bounds that keep a coordinator
 * of hundreds of workers idle and one of a test quick. */
#define TICKS_A_TIMEOUT 20
#define TICK_NS_MIN     5000000
#define TICK_NS_MAX     50000000

/* The launcher beats every 50 ms. Silent for longer, it is stopped, and its workers seem silent with it; when
 * it is back, what they said meanwhile comes first. */
#define LAUNCHER_NS 200000000
#define CALM_NS     200000000

/* Time to hand over the last frame when the run has ended. */
#define END_NS 5000000000

struct coordinator {
    struct channel *link;
    struct spec spec;
    struct conduct *conduct; /* null until HELLO */
    int64_t tick_ns;
    int64_t heard_ns; /* of the launcher */
    int64_t calm_ns;  /* nobody is judged before */
    struct inject_self *faults;
};

static void say(struct coordinator *c, const struct link_frame *f) {
    struct bytes out = {0};
    link_encode(f, &out);
    /* A link that is gone is seen by the next receive, no memory by the silence that follows. */
    if (!out.failed) channel_send_frame(c->link, out.data, out.size, NULL);
    bytes_close(&out);
}

static void hook_send(void *context, const uint32_t *ranks, uint32_t count, const struct message *m) {
    struct bytes frame = {0};
    message_encode(m, &frame);
    if (frame.failed) {
        bytes_close(&frame);
        abort(); /* told to nobody: the next coordinator says it again */
    }
    say(context, &(struct link_frame){.kind = LINK_TO,
                                      .list = ranks,
                                      .list_count = count,
                                      .data = frame.data,
                                      .data_bytes = frame.size});
    bytes_close(&frame);
}

static void hook_kill(void *context, uint32_t rank, const char *why) {
    say(context, &(struct link_frame){.kind = LINK_KILL, .rank = rank, .text = why});
}

static void hook_find(void *context, uint64_t view) {
    say(context, &(struct link_frame){.kind = LINK_FIND, .view = view});
}

static void hook_need(void *context, uint32_t count, const char *why) {
    say(context, &(struct link_frame){.kind = LINK_NEED, .ranks = count, .text = why});
}

static void hook_note(void *context, const struct conduct_note *note) {
    struct coordinator *c = context;
    say(c, &(struct link_frame){.kind = LINK_NOTE, .note = *note});
    if (note->kind != CONDUCT_NOTE_ACTION) return;
    if (note->action.kind == COORD_DECIDE) inject_self_at(c->faults, note->action.iteration + 1);
    if (note->action.kind == COORD_GO) inject_self_at(c->faults, note->action.version);
}

static pawl_code there_of(const struct link_frame *f, bool **out, struct pawl_error *e) {
    bool *there = calloc((size_t)f->ranks + 1, sizeof *there);
    if (there == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", f->ranks);
    for (uint32_t i = 0; i < f->list_count; i++) {
        if (f->list[i] >= f->ranks) {
            uint32_t rank = f->list[i];
            free(there);
            return error_set(e, PAWL_FORMAT, 0, "link: rank %u of %u", rank, f->ranks);
        }
        there[f->list[i]] = true;
    }
    *out = there;
    return PAWL_OK;
}

static pawl_code hello(struct coordinator *c, const struct link_frame *f, struct pawl_error *e) {
    if (c->conduct != NULL) return error_set(e, PAWL_FORMAT, 0, "link: a second hello");
    bool *there = NULL;
    pawl_code code = spec_parse((const char *)f->data, f->data_bytes, "hello", &c->spec, e);
    if (code == PAWL_OK && f->ranks != spec_capacity(&c->spec))
        code = error_set(e, PAWL_FORMAT, 0, "link: %u ranks for a spec of %u", f->ranks,
                         spec_capacity(&c->spec));
    if (code == PAWL_OK) code = there_of(f, &there, e);
    if (code == PAWL_OK) code = inject_self_new(c->spec.run.dir, NULL, &c->faults, e);
    if (code != PAWL_OK) {
        free(there);
        return code;
    }
    struct conduct_config config = {.spec = &c->spec,
                                    .ranks = f->ranks,
                                    .background = true,
                                    .recover = f->recover,
                                    .view = f->view,
                                    .there = there,
                                    .incarnation = f->incarnation};
    spec_coord_config(&c->spec, &config.coord);
    struct conduct_hooks hooks = {.context = c,
                                  .send = hook_send,
                                  .kill = hook_kill,
                                  .find = hook_find,
                                  .need = hook_need,
                                  .note = hook_note};
    code = conduct_new(&config, hooks, &c->conduct, e);
    free(there);
    c->tick_ns = config.coord.beat_ns / TICKS_A_TIMEOUT;
    if (c->tick_ns < TICK_NS_MIN) c->tick_ns = TICK_NS_MIN;
    if (c->tick_ns > TICK_NS_MAX) c->tick_ns = TICK_NS_MAX;
    if (code == PAWL_OK && f->stopping) conduct_stop(c->conduct, clock_now_ns());
    return code;
}

/* A worker's frame that cannot be read is the worker's failure. */
static void from_worker(struct coordinator *c, const struct link_frame *f) {
    struct message m;
    if (message_decode(f->data, f->data_bytes, &m, NULL) == PAWL_OK)
        conduct_message(c->conduct, f->rank, &m, clock_now_ns());
    else
        hook_kill(c, f->rank, "sent malformed bytes");
}

static pawl_code add_fault(struct coordinator *c, const struct link_frame *f, struct pawl_error *e) {
    pawl_code code = inject_self_add(c->faults, f->text, e);
    if (code == PAWL_OK) inject_self_at(c->faults, coord_final(conduct_coord(c->conduct)));
    return code;
}

static pawl_code handle(struct coordinator *c, const struct link_frame *f, struct pawl_error *e) {
    int64_t now = clock_now_ns();
    if (f->kind == LINK_HELLO) return hello(c, f, e);
    if (f->kind == LINK_BEAT) return PAWL_OK;
    if (c->conduct == NULL || f->kind >= LINK_TO)
        return error_set(e, PAWL_FORMAT, 0, "link: frame of kind %d is not for a coordinator%s", (int)f->kind,
                         c->conduct == NULL ? " before its hello" : "");
    if (f->rank >= spec_capacity(&c->spec))
        return error_set(e, PAWL_FORMAT, 0, "link: rank %u of %u", f->rank, spec_capacity(&c->spec));
    switch (f->kind) {
    case LINK_STARTED:
        conduct_started(c->conduct, f->rank, now);
        break;
    case LINK_BEGIN:
        conduct_begin(c->conduct, now);
        break;
    case LINK_FROM:
        from_worker(c, f);
        break;
    case LINK_EXIT:
        conduct_exit(c->conduct, f->rank, now);
        break;
    case LINK_FOUND:
        conduct_found(c->conduct, f->view, f->version, f->resume_incarnation, f->incarnation, f->code,
                      f->text, now);
        break;
    case LINK_LEAVE:
        conduct_leave(c->conduct, f->rank, now);
        break;
    case LINK_STOP:
        conduct_stop(c->conduct, now);
        break;
    default: /* LINK_INJECT */
        return add_fault(c, f, e);
    }
    return PAWL_OK;
}

static bool running(const struct coordinator *c) {
    return c->conduct == NULL || conduct_state(c->conduct) == CONDUCT_RUNNING;
}

static pawl_code receive(struct coordinator *c, struct pawl_error *e) {
    while (running(c)) {
        const uint8_t *data;
        size_t size;
        bool got;
        struct link_frame f;
        pawl_code code = channel_receive_frame(c->link, &data, &size, &got, e);
        if (code != PAWL_OK || !got) return code;
        c->heard_ns = clock_now_ns();
        code = link_decode(data, size, &f, e);
        if (code == PAWL_OK) code = handle(c, &f, e);
        link_frame_close(&f);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static void wait_for_news(const struct coordinator *c, int64_t until_ns) {
    int64_t left = until_ns - clock_now_ns();
    struct pollfd fd = {.fd = channel_fd(c->link), .events = POLLIN};
    if (!channel_flush(c->link)) fd.events |= POLLOUT;
    poll(&fd, 1, left > 0 ? (int)(left / 1000000) + 1 : 0);
}

static void tick(struct coordinator *c, int64_t now) {
    if (now - c->heard_ns > LAUNCHER_NS) c->calm_ns = now + CALM_NS;
    if (c->conduct != NULL && now >= c->calm_ns) conduct_tick(c->conduct, now);
    say(c, &(struct link_frame){.kind = LINK_BEAT});
}

static pawl_code run(struct coordinator *c, struct pawl_error *e) {
    int64_t next_tick = 0;
    c->tick_ns = TICK_NS_MAX;
    c->heard_ns = clock_now_ns();
    while (running(c)) {
        pawl_code code = receive(c, e);
        if (code != PAWL_OK) return code;
        int64_t now = clock_now_ns();
        if (now >= next_tick) {
            tick(c, now);
            next_tick = now + c->tick_ns;
        }
        if (running(c)) wait_for_news(c, next_tick);
    }
    return PAWL_OK;
}

static void say_end(struct coordinator *c, pawl_code code, const char *why) {
    say(c, &(struct link_frame){.kind = LINK_END, .code = code, .text = why});
    for (int64_t end = clock_now_ns() + END_NS; !channel_flush(c->link) && clock_now_ns() < end;)
        poll(&(struct pollfd){.fd = channel_fd(c->link), .events = POLLOUT}, 1, 100);
}

int link_coordinate(int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < NOTICE_COUNT; i++) signal(notice_signals[i], SIG_IGN); /* the launcher answers */
    struct coordinator c = {0};
    struct pawl_error e = {0};
    pawl_code code = channel_open_fd(fd, &c.link, &e);
    if (code == PAWL_OK) code = run(&c, &e);
    if (code == PAWL_OK) {
        const struct pawl_error *why = conduct_error(c.conduct);
        bool finished = conduct_state(c.conduct) == CONDUCT_FINISHED;
        say_end(&c, finished ? PAWL_OK : why->code, finished ? "" : why->text);
    } else if (code != PAWL_PEER_LOST && c.link != NULL) {
        say_end(&c, code, e.text);
    }
    conduct_free(c.conduct);
    inject_self_free(c.faults);
    channel_close(c.link);
    return pawl_code_exit(code);
}
