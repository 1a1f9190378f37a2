/* The launcher's part: frames from workers to the coordinator and back, who is started where, the search for
 * the newest durable step. */
#ifndef STORM_LAUNCHER_H
#define STORM_LAUNCHER_H

#include "storm_check.h"

/* ---- the newest durable step ---- */

/* As the launcher does before anything is built on a step, and when a run has ended at one that was found;
 * those who live settle their own stores as they load. */
static void settle_dead(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        char folder[32];
        struct store *s = NULL;
        struct pawl_error e;
        if (c->places[r].worker != NULL) continue;
        folder_of(r, folder, sizeof folder);
        pawl_code code = storesim_open(c->disk, folder, false, &s, &e);
        if (code == PAWL_OK) code = ckpt_settle(s, &e);
        if (code != PAWL_OK) fail_seed(c, e.text);
        store_close(s);
    }
}

static void show_steps(const struct ckpt_set *set) {
    for (uint32_t i = 0; i < ckpt_set_count(set); i++)
        printf("step %llu incarnation %llu: %s\n", (unsigned long long)ckpt_set_at(set, i)->step,
               (unsigned long long)ckpt_set_at(set, i)->incarnation,
               ckpt_set_at(set, i)->complete ? "complete" : ckpt_set_at(set, i)->missing);
    for (uint32_t i = 0; ckpt_set_problem(set, i) != NULL; i++)
        printf("problem: %s\n", ckpt_set_problem(set, i));
}

static bool find_newest(struct cluster *c, uint64_t *step, uint64_t *incarnation) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    struct pawl_error e;
    bool found = false;
    storesim_set_faults(c->disk, (struct storesim_faults){0}); /* one that cannot read does not start */
    if (open_all(c, &c->spec, &stores, &count, &e) != PAWL_OK) fail_seed(c, e.text);
    if (ckpt_set_open(stores, count, c->run_id, &set, &e) != PAWL_OK) fail_seed(c, e.text);
    for (uint32_t i = 0; i < ckpt_set_count(set) && !found; i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (!s->complete) continue;
        found = true;
        *step = s->step;
        *incarnation = s->incarnation;
    }
    if (c->show) show_steps(set);
    ckpt_set_close(set);
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    free(stores);
    if (found) settle_dead(c);
    if (c->durable > 0 && (!found || *step < c->durable)) fail_seed(c, "a step announced as durable is gone");
    return found;
}

static void find_now(struct cluster *c) {
    uint64_t step = 0, incarnation = 0;
    find_newest(c, &step, &incarnation);
    c->incarnation++;
    if (c->conduct != NULL)
        queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_FOUND,
                                                     .view = c->find_view,
                                                     .version = step,
                                                     .resume_incarnation = incarnation,
                                                     .incarnation = c->incarnation,
                                                     .text = ""});
    SHOW(c, "found step %llu", (unsigned long long)step);
    c->find_view = 0;
    c->found = true;
}

/* ---- from the coordinator ---- */

/* Who was killed or told to leave keeps its place until its end is seen: each end is looked at again. */
static void start_needed(struct cluster *c) {
    if (c->needed == 0) return;
    uint32_t first = any_rank(c);
    for (uint32_t i = 0; i < c->ranks && c->needed > 0; i++) {
        uint32_t r = (first + i) % c->ranks;
        if (c->places[r].there) continue;
        start_worker(c, r);
        c->needed--;
    }
}

static void doom(struct cluster *c, uint32_t rank, uint32_t within) {
    if (c->calm || c->doomed != UINT32_MAX) return;
    c->doomed = rank;
    c->doom_in = 1 + (uint32_t)rng_below(&c->rng, within);
}

/* Some failures come in the middle of what follows from a message. */
static void tempt(struct cluster *c, const struct message *m, const struct link_frame *f) {
    uint32_t one_in = m->kind == MESSAGE_PREPARE ? 3 : 20;
    bool tempting = m->kind == MESSAGE_FENCE || m->kind == MESSAGE_GO || m->kind == MESSAGE_PREPARE ||
                    m->kind == MESSAGE_SAVE;
    if (tempting && f->list_count > 0 && chance(c, one_in))
        doom(c, f->list[rng_below(&c->rng, f->list_count)], 60);
}

static void pass_on(struct cluster *c, const struct link_frame *f) {
    struct message m;
    if (message_decode(f->data, f->data_bytes, &m, NULL) != PAWL_OK) fail_seed(c, "a malformed message");
    if (m.kind == MESSAGE_GO) check_go(c, &m), c->needed = 0, c->found = false;
    if (m.kind == MESSAGE_PREPARE) c->total.prepared++;
    for (uint32_t i = 0; i < f->list_count; i++) {
        struct place *p = &c->places[f->list[i]];
        if (p->mine != NULL && p->worker != NULL && p->unknown == 0)
            channel_send_frame(p->mine, f->data, f->data_bytes, NULL);
    }
    if (m.kind == MESSAGE_FENCE || m.kind == MESSAGE_GO)
        if (m.view > c->view) c->view = m.view;
    if (m.kind == MESSAGE_FENCE) c->total.fences++;
    if (m.kind == MESSAGE_FINISH) c->over = c->finished = true;
    if (m.kind != MESSAGE_GO)
        SHOW(c, "to %u ranks from %u: kind %d view %llu version %llu", f->list_count,
             f->list_count > 0 ? f->list[0] : 0, (int)m.kind, (unsigned long long)m.view,
             (unsigned long long)m.version);
    tempt(c, &m, f);
}

static void take_action(struct cluster *c, const struct coord_action *a) {
    if (a->kind == COORD_DURABLE_AT && a->version > c->durable) c->durable = a->version;
    if (a->kind == COORD_JOINED) c->total.joins++;
    if (a->kind == COORD_LEAVE) c->total.leaves++;
    if (a->kind == COORD_DIED) SHOW(c, "rank %u died: %s", a->rank, a->why);
    if (a->kind == COORD_DURABLE_AT) SHOW(c, "durable: %llu", (unsigned long long)a->version);
    if (a->kind == COORD_RESTORED) c->total.restores++;
}

static void take_note(struct cluster *c, const struct conduct_note *n) {
    if (n->kind == CONDUCT_NOTE_ACTION) take_action(c, &n->action);
    if (n->kind == CONDUCT_NOTE_KNOWN) c->places[n->action.rank].unknown--;
    if (n->kind == CONDUCT_NOTE_PLAN) c->total.moved += n->moves;
    if (n->kind == CONDUCT_NOTE_FENCE) c->total.better += strcmp(n->why, "better plan") == 0;
    if (n->kind == CONDUCT_NOTE_FENCE) SHOW(c, "fence: %s", n->why);
    if (n->kind != CONDUCT_NOTE_SALVAGE) return;
    if (n->why != NULL && n->why[0] != 0) fail_seed(c, n->why);
    c->total.kept += n->kept;
    c->total.redone += n->redone;
    SHOW(c, "salvage: %llu kept, %llu redone", (unsigned long long)n->kept, (unsigned long long)n->redone);
}

static void take_frame(struct cluster *c, const struct link_frame *f) {
    switch (f->kind) {
    case LINK_TO:
        pass_on(c, f);
        break;
    case LINK_KILL:
        SHOW(c, "rank %u is to be killed: %s", f->rank, f->text);
        if (c->places[f->rank].unknown == 0) kill_worker(c, f->rank);
        break;
    case LINK_FIND:
        c->find_view = f->view;
        c->find_at = c->now_ns + (int64_t)rng_below(&c->rng, 5 * BEAT_NS);
        if (chance(c, 8)) doom(c, any_rank(c), 60);
        break;
    case LINK_NEED:
        SHOW(c, "needs %u: %s", f->ranks, f->text);
        c->needed = f->ranks + (uint32_t)rng_below(&c->rng, 2);
        start_needed(c);
        break;
    case LINK_NOTE:
        take_note(c, &f->note);
        break;
    case LINK_END:
        c->over = true;
        c->finished = c->finished || f->code == PAWL_OK;
        error_set(&c->failed, f->code, 0, "%s", f->text);
        break;
    default:
        fail_seed(c, "a frame that is not for a launcher");
    }
}

static bool poll_launcher(struct cluster *c) {
    struct bytes item;
    struct link_frame f;
    if (!queue_take(&c->from_coord, &item)) return false;
    decode_link(c, &item, &f);
    take_frame(c, &f);
    link_frame_close(&f);
    bytes_close(&item);
    return true;
}

/* What it had written is passed on, a frame that was not written whole is not. */
static void kill_coordinator(struct cluster *c) {
    if (c->conduct == NULL) return;
    if (c->from_coord.count > 0)
        queue_cut(&c->from_coord, (size_t)rng_below(&c->rng, c->from_coord.count + 1));
    SHOW(c, "the coordinator is killed, %zu frames were said", c->from_coord.count);
    end_coordinator(c);
    while (!c->over && poll_launcher(c)) {
    }
    c->total.takeovers++;
    c->coord_start_at = c->now_ns + 1 + (int64_t)rng_below(&c->rng, 5 * BEAT_NS);
}

/* ---- from the workers ---- */

/* Times on this machine are no part of a seed: made up instead. */
static void tell_measured(struct cluster *c, uint32_t rank, const struct message *m) {
    struct measure_report r = {
        .iterations = 5, .state_bytes = 1000, .activation_bytes = 100, .input_bytes = 50};
    for (int k = 0; k < MEASURE_KIND_COUNT; k++) r.ns[k] = 10000000 * c->places[rank].slow;
    struct bytes data = {0}, frame = {0};
    struct message told = *m;
    measure_encode(&r, &data);
    told.data = data.data;
    told.data_bytes = data.size;
    message_encode(&told, &frame);
    queue_put(
        &c->to_coord,
        &(struct link_frame){.kind = LINK_FROM, .rank = rank, .data = frame.data, .data_bytes = frame.size});
    bytes_close(&data);
    bytes_close(&frame);
    c->total.measured++;
}

static void hear_failed(struct cluster *c, uint32_t rank, const struct message *m) {
    SHOW(c, "rank %u failed: %s", rank, m->text);
    if (m->code == PAWL_CORRUPT || m->code == PAWL_IO || m->code == PAWL_NO_SPACE) return;
    fprintf(stderr, "storm: rank %u failed: %s\n", rank, m->text);
    fail_seed(c, "a worker failed");
}

static void hear(struct cluster *c, uint32_t rank, const uint8_t *frame, size_t size) {
    struct place *p = &c->places[rank];
    struct message m;
    if (message_decode(frame, size, &m, NULL) != PAWL_OK) fail_seed(c, "a malformed message");
    if (m.kind == MESSAGE_ADDRESS) bytes_clear(&p->hello), bytes_put(&p->hello, frame, size);
    if (m.kind == MESSAGE_READY)
        bytes_clear(&p->readied), bytes_put(&p->readied, frame, size), p->ready = true;
    if (m.kind == MESSAGE_LEAVING) p->leaving = true;
    if (m.kind != MESSAGE_BEAT)
        SHOW(c, "from rank %u: kind %d view %llu version %llu", rank, (int)m.kind, (unsigned long long)m.view,
             (unsigned long long)m.version);
    if (m.kind == MESSAGE_FAILED) hear_failed(c, rank, &m);
    if (c->conduct == NULL) return; /* the next one is told the state, not what led to it */
    if (m.kind == MESSAGE_MEASURED)
        tell_measured(c, rank, &m);
    else
        queue_put(&c->to_coord,
                  &(struct link_frame){.kind = LINK_FROM, .rank = rank, .data = frame, .data_bytes = size});
}

/* What one worker has said, or that it is gone. */
static bool listen_to(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    bool heard = false;
    while (p->mine != NULL) {
        const uint8_t *frame;
        size_t size;
        bool got;
        pawl_code code = channel_receive_frame(p->mine, &frame, &size, &got, NULL);
        if (code == PAWL_OK && !got) break;
        heard = true;
        if (code == PAWL_OK) {
            hear(c, rank, frame, size);
            continue;
        }
        forget_place(p);
        if (c->conduct != NULL)
            queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_EXIT, .rank = rank});
        if (!c->over) start_needed(c);
        break;
    }
    return heard;
}

#endif
