/* Implementation of run/conduct.h. */
#include "run/conduct.h"

#include <stdlib.h>
#include <string.h>

#include "run/exec.h"

struct conduct {
    const struct spec *spec;
    struct conduct_hooks hooks;
    struct coord *coord;
    uint32_t ranks;
    struct channel **channels; /* null: none (yet, or any more) */
    struct bytes *addresses;
    bool *introduced; /* has been sent its peers' addresses */
    struct ir_plan *plan;
    struct bytes plan_bytes;
    bool *plan_live; /* the live set the plan was made for */
    uint64_t redone, undone, last_go_view;
    bool died; /* a rank, since the last GO */
    enum conduct_end end;
    struct pawl_error error;
};

pawl_code conduct_new(const struct spec *spec, const struct coord_config *config, struct conduct_hooks hooks,
                      struct conduct **out, struct pawl_error *e) {
    struct conduct *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the coordinator");
    c->spec = spec;
    c->hooks = hooks;
    c->ranks = spec_ranks(spec);
    c->channels = calloc(c->ranks, sizeof *c->channels);
    c->addresses = calloc(c->ranks, sizeof *c->addresses);
    c->introduced = calloc(c->ranks, sizeof *c->introduced);
    c->plan_live = calloc(c->ranks, sizeof *c->plan_live);
    pawl_code code = PAWL_OK;
    if (c->channels == NULL || c->addresses == NULL || c->introduced == NULL || c->plan_live == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", c->ranks);
    if (code == PAWL_OK) code = coord_new(config, &c->coord, e);
    if (code != PAWL_OK) {
        conduct_free(c);
        return code;
    }
    *out = c;
    return PAWL_OK;
}

void conduct_free(struct conduct *c) {
    if (c == NULL) return;
    for (uint32_t r = 0; c->addresses != NULL && r < c->ranks; r++) bytes_close(&c->addresses[r]);
    coord_free(c->coord);
    ir_plan_free(c->plan);
    bytes_close(&c->plan_bytes);
    free(c->channels);
    free(c->addresses);
    free(c->introduced);
    free(c->plan_live);
    free(c);
}

void conduct_attach(struct conduct *c, uint32_t rank, struct channel *channel) {
    c->channels[rank] = channel;
}

static void stop(struct conduct *c, enum conduct_end end, pawl_code code, const char *why) {
    if (c->end != CONDUCT_RUNNING) return;
    c->end = end;
    error_set(&c->error, code, 0, "%s", why);
}

static void tell(struct conduct *c, uint32_t rank, const struct message *m) {
    /* A channel that is gone shows up as the rank's exit; nothing to do here. */
    if (c->channels[rank] != NULL) channel_send(c->channels[rank], m, NULL);
}

/* Builds and proves the plan for the live set, unless the one at hand is for the same set. */
static bool make_plan(struct conduct *c) {
    const bool *live = coord_live(c->coord);
    if (c->plan != NULL && memcmp(live, c->plan_live, c->ranks * sizeof *live) == 0) return true;
    struct ir_plan *plan = NULL;
    const struct spec *s = c->spec;
    struct pawl_error e;
    pawl_code code = ir_build(s->parallel.schedule, s->parallel.pipelines, s->parallel.stages,
                              s->parallel.microbatches, live, &plan, &e);
    if (code == PAWL_OK) code = ir_check(plan, NULL, NULL, &e);
    if (code == PAWL_OK) code = exec_runs(plan, &e);
    bytes_clear(&c->plan_bytes);
    if (code == PAWL_OK) ir_encode(plan, &c->plan_bytes);
    if (code == PAWL_OK && c->plan_bytes.failed) code = error_set(&e, PAWL_MEMORY, 0, "no memory for a plan");
    ir_plan_free(c->plan);
    c->plan = plan;
    memcpy(c->plan_live, live, c->ranks * sizeof *live);
    if (code != PAWL_OK) stop(c, CONDUCT_STOPPED, code, e.text);
    return code == PAWL_OK;
}

static void introduce(struct conduct *c, uint32_t rank) {
    if (c->introduced[rank]) return;
    c->introduced[rank] = true;
    struct bytes list = {0};
    for (uint32_t r = 0; r < c->ranks; r++) {
        if (c->addresses[r].size == 0) continue;
        bytes_put_u32(&list, r);
        bytes_put_u32(&list, (uint32_t)c->addresses[r].size);
        bytes_put(&list, c->addresses[r].data, c->addresses[r].size);
    }
    struct message m = {.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size};
    if (list.failed)
        stop(c, CONDUCT_STOPPED, PAWL_MEMORY, "no memory for the addresses of the workers");
    else
        tell(c, rank, &m);
    bytes_close(&list);
}

static void send_go(struct conduct *c, const struct coord_action *a) {
    if (!make_plan(c)) return;
    introduce(c, a->rank);
    if (a->view != c->last_go_view) {
        if (c->last_go_view != 0) (*(c->died ? &c->redone : &c->undone))++;
        c->last_go_view = a->view;
        c->died = false;
    }
    struct message plan = {
        .kind = MESSAGE_PLAN, .view = a->view, .data = c->plan_bytes.data, .data_bytes = c->plan_bytes.size};
    tell(c, a->rank, &plan);
    const bool *live = coord_live(c->coord), *has_grad = coord_has_grad(c->coord);
    struct bytes flags = {0};
    for (uint32_t r = 0; r < c->ranks; r++) bytes_put_u8(&flags, live[r]);
    for (uint32_t r = 0; r < c->ranks; r++) bytes_put_u8(&flags, has_grad[r]);
    struct message go = {.kind = MESSAGE_GO,
                         .view = a->view,
                         .version = a->version,
                         .verdict = a->verdict,
                         .clip = a->clip,
                         .shift = a->shift,
                         .optimistic = a->optimistic,
                         .settle = a->settle,
                         .data = flags.data,
                         .data_bytes = flags.size};
    tell(c, a->rank, &go);
    bytes_close(&flags);
}

static void carry_out(struct conduct *c, const struct coord_action *a) {
    struct message m = {.view = a->view,
                        .version = a->version,
                        .iteration = a->iteration,
                        .verdict = a->verdict,
                        .clip = a->clip,
                        .optimistic = a->optimistic,
                        .part = a->part,
                        .parts = a->parts};
    switch (a->kind) {
    case COORD_GO:
        send_go(c, a);
        return;
    case COORD_FENCE:
        m.kind = MESSAGE_FENCE;
        break;
    case COORD_DECIDE:
        m.kind = MESSAGE_DECIDE;
        break;
    case COORD_SAVE:
        m.kind = MESSAGE_SAVE;
        break;
    case COORD_DURABLE:
        m.kind = MESSAGE_DURABLE;
        break;
    case COORD_FORGET:
        m.kind = MESSAGE_FORGET;
        break;
    case COORD_FINISH:
        m.kind = MESSAGE_FINISH;
        if (c->end == CONDUCT_RUNNING) c->end = CONDUCT_FINISHED;
        break;
    case COORD_DIED:
        c->died = true;
        return;
    case COORD_KILL:
        c->hooks.kill(c->hooks.context, a->rank, a->why);
        return;
    case COORD_LOST:
        stop(c, CONDUCT_LOST, PAWL_STAGE_LOST, a->why != NULL ? a->why : "a stage has lost every replica");
        return;
    case COORD_STOP:
        stop(c, CONDUCT_STOPPED, a->code, a->why != NULL ? a->why : "the run cannot go on");
        return;
    default:
        return;
    }
    tell(c, a->rank, &m);
}

static void step(struct conduct *c, const struct coord_event *event) {
    const struct coord_action *actions;
    size_t count = coord_step(c->coord, event, &actions);
    for (size_t i = 0; i < count; i++) {
        carry_out(c, &actions[i]);
        c->hooks.note(c->hooks.context, &actions[i]);
    }
}

/* A failure that would happen on every worker alike is the run's, not the worker's. */
static void failed(struct conduct *c, uint32_t rank, const struct message *m) {
    c->hooks.heard(c->hooks.context, rank, m);
    pawl_next next = pawl_code_next(m->code);
    if (next == PAWL_NEXT_REJECT || next == PAWL_NEXT_ROLLBACK || m->code == PAWL_USER)
        stop(c, CONDUCT_STOPPED, m->code, m->text);
}

static void translate(struct conduct *c, uint32_t rank, const struct message *m, int64_t now_ns) {
    struct coord_event event = {.now_ns = now_ns,
                                .rank = rank,
                                .peer = m->peer,
                                .view = m->view,
                                .version = m->version,
                                .progress = m->progress,
                                .busy = m->busy,
                                .part = m->part,
                                .parts = m->parts,
                                .ok = m->code == PAWL_OK,
                                .has_report = m->has_report,
                                .report = m->report};
    switch (m->kind) {
    case MESSAGE_ADDRESS:
        bytes_clear(&c->addresses[rank]);
        bytes_put(&c->addresses[rank], m->data, m->data_bytes);
        return;
    case MESSAGE_READY:
        c->hooks.heard(c->hooks.context, rank, m);
        event.kind = COORD_READY;
        break;
    case MESSAGE_FAILED:
        failed(c, rank, m);
        return;
    case MESSAGE_BEAT:
        event.kind = COORD_BEAT;
        break;
    case MESSAGE_REDUCED:
        event.kind = COORD_REDUCED;
        break;
    case MESSAGE_FENCED:
        event.kind = COORD_FENCED;
        break;
    case MESSAGE_SAVED:
        c->hooks.heard(c->hooks.context, rank, m);
        event.kind = COORD_SAVED;
        break;
    case MESSAGE_MEASURED:
        c->hooks.heard(c->hooks.context, rank, m);
        return;
    case MESSAGE_SUSPECT:
        event.kind = COORD_SUSPECT;
        break;
    default:
        c->hooks.kill(c->hooks.context, rank, "sent a message that is not a worker's");
        return;
    }
    step(c, &event);
}

void conduct_receive(struct conduct *c, uint32_t rank, int64_t now_ns) {
    while (c->channels[rank] != NULL) {
        struct message m;
        bool got;
        struct pawl_error e;
        pawl_code code = channel_receive(c->channels[rank], &m, &got, &e);
        if (code == PAWL_FORMAT || code == PAWL_MEMORY)
            c->hooks.kill(c->hooks.context, rank, "sent malformed bytes");
        if (code != PAWL_OK || !got) return; /* the end of the stream is followed by the exit */
        translate(c, rank, &m, now_ns);
    }
}

void conduct_exit(struct conduct *c, uint32_t rank, int64_t now_ns) {
    conduct_receive(c, rank, now_ns); /* what it said before it went still counts */
    c->channels[rank] = NULL;
    step(c, &(struct coord_event){.kind = COORD_EXIT, .now_ns = now_ns, .rank = rank});
}

void conduct_tick(struct conduct *c, int64_t now_ns) {
    step(c, &(struct coord_event){.kind = COORD_TICK, .now_ns = now_ns});
}

void conduct_stop(struct conduct *c, int64_t now_ns) {
    step(c, &(struct coord_event){.kind = COORD_STOPPING, .now_ns = now_ns});
}

enum conduct_end conduct_state(const struct conduct *c) { return c->end; }
const struct pawl_error *conduct_error(const struct conduct *c) { return &c->error; }
const struct coord *conduct_coord(const struct conduct *c) { return c->coord; }
uint64_t conduct_redone(const struct conduct *c) { return c->redone; }
uint64_t conduct_undone(const struct conduct *c) { return c->undone; }
