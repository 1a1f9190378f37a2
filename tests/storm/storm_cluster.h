/* A cluster in one process: places for workers, a launcher that relays, a coordinator that can be replaced, a
 * network, a disk and a clock, all of them simulated and driven from one seed.
 *
 * Frames between launcher and coordinator lie in two queues, as in the two directions of their socket. A
 * frame to many workers is one item, so that it reaches all of them or none; when the coordinator is killed,
 * the front of its queue is still passed on, the rest was never said. */
#ifndef STORM_CLUSTER_H
#define STORM_CLUSTER_H

#include <errno.h>

#include "base/rng.h"
#include "model/adamw.h"
#include "run/conduct.h"
#include "run/go.h"
#include "run/link.h"
#include "run/persist.h"
#include "run/rundir.h"
#include "run/worker_state.h"
#include "storm_reference.h"

#define BEAT_NS 2000000

/* Limits are those of a spec with the shortest timeout there is, this many times shorter: 21 beats. */
#define FASTER 7

struct place {
    struct worker *worker; /* null: no process */
    struct net *net;
    struct channel *mine, *theirs; /* launcher's end, worker's end */
    uint64_t born;                 /* how many processes the cluster had before it */
    bool there;                    /* the launcher has not seen its end yet */
    bool ready, leaving;           /* what the launcher knows of it */
    uint64_t slow;                 /* times as long as others, as it says */
    uint32_t unknown;              /* processes the coordinator was told of and has not confirmed */
    struct bytes hello, readied;   /* its ADDRESS and READY */
    int64_t stopped_until;
    int64_t start_at;   /* the launcher starts one here then; 0: it does not */
    uint64_t *compared; /* [chunks] newest version whose bits were compared, + 1 */
    uint64_t restored;  /* view of the last GO that led back */
};

struct queue { /* of encoded frames */
    struct bytes *items;
    size_t count, room;
};

struct cut { /* between two processes */
    uint32_t a, b;
    uint64_t born_a, born_b;
    int64_t until;
};

enum trouble {
    TROUBLE_KILL,
    TROUBLE_STOP,
    TROUBLE_CUT,
    TROUBLE_POWER,
    TROUBLE_DISK,
    TROUBLE_COORDINATOR,
    TROUBLE_COORDINATOR_STOPS,
    TROUBLE_JOIN,
    TROUBLE_LEAVE,
    TROUBLE_END,
    TROUBLE_COUNT
};

struct totals {
    uint64_t kills, stops, cuts, power_cuts, disks, joins, leaves, takeovers, restores, restarts, stopped;
    uint64_t states, grads, keeps, settled_keeps, helpers, spares, uneven; /* pairs and ranks of all GO */
    uint64_t better, grown, moved, kept, redone, undone, dropped, fences, prepared, measured;
};

struct cluster {
    uint64_t seed;
    struct rng_stream rng;
    struct spec spec;
    uint32_t ranks, chunks;
    struct reference reference;
    struct netsim *netsim;
    struct storesim *disk;
    struct place *places;
    uint64_t processes;
    struct conduct *conduct; /* null: no coordinator */
    struct queue to_coord, from_coord;
    int64_t coord_stopped_until, coord_start_at;
    bool end_said;            /* the coordinator said its last word */
    struct pawl_error failed; /* why the run was stopped: with over, and not finished */
    uint64_t view;            /* newest passed on */
    uint64_t incarnation;
    uint8_t run_id[16];
    uint32_t needed;    /* workers the coordinator asked for that have found no place yet; none after a GO */
    uint64_t find_view; /* 0: nobody asked */
    int64_t find_at;
    bool found;       /* a step was looked for, and no GO passed on since */
    uint64_t durable; /* newest announced; 0: none */
    bool over, finished, stopping;
    bool left; /* somebody was told to leave in this run */
    struct cut *cuts;
    size_t cut_count, cut_room;
    int64_t now_ns, next_beat_ns;
    uint32_t doomed; /* killed in so many actions; UINT32_MAX: nobody */
    uint32_t doom_in;
    uint32_t weights[TROUBLE_COUNT], weight_sum;
    bool calm; /* no trouble any more */
    bool show;
    struct totals total;
};

static void fail_seed(const struct cluster *c, const char *what) {
    fprintf(stderr,
            "storm: seed %llu: %s (at %lld us, view %llu)\n"
            "repeat with: PAWL_STORM_SEED=%llu PAWL_STORM_SEEDS=1 PAWL_STORM_SHOW=1 "
            "%s\n",
            (unsigned long long)c->seed, what, (long long)(c->now_ns / 1000), (unsigned long long)c->view,
            (unsigned long long)c->seed, program_invocation_name);
    exit(1);
}

static bool chance(struct cluster *c, uint32_t one_in) { return rng_below(&c->rng, one_in) == 0; }

static uint32_t any_rank(struct cluster *c) { return (uint32_t)rng_below(&c->rng, c->ranks); }

#define SHOW(c, ...)                                                                                         \
    do {                                                                                                     \
        if ((c)->show) {                                                                                     \
            printf("%8lld us: ", (long long)((c)->now_ns / 1000));                                           \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

/* ---- queues ---- */

static void queue_put(struct queue *q, const struct link_frame *f) {
    if (q->count == q->room) {
        q->room = q->room * 2 + 16;
        q->items = realloc(q->items, q->room * sizeof *q->items);
        assert_non_null(q->items);
    }
    q->items[q->count] = (struct bytes){0};
    link_encode(f, &q->items[q->count]);
    assert_false(q->items[q->count++].failed);
}

/* Keeps the first `count`. */
static void queue_cut(struct queue *q, size_t count) {
    while (q->count > count) bytes_close(&q->items[--q->count]);
}

static bool queue_take(struct queue *q, struct bytes *out) {
    if (q->count == 0) return false;
    *out = q->items[0];
    memmove(q->items, q->items + 1, --q->count * sizeof *q->items);
    return true;
}

static void queue_close(struct queue *q) {
    queue_cut(q, 0);
    free(q->items);
    *q = (struct queue){0};
}

static void decode_link(struct cluster *c, const struct bytes *b, struct link_frame *f) {
    struct pawl_error e;
    if (link_decode(b->data, b->size, f, &e) != PAWL_OK) fail_seed(c, e.text);
}

/* ---- workers ---- */

static void folder_of(uint32_t rank, char *out, size_t size) { snprintf(out, size, "rank-%04u", rank); }

static pawl_code open_own(void *context, const struct spec *spec, uint32_t rank, struct store **out,
                          char *why, struct pawl_error *e) {
    (void)spec;
    struct cluster *c = context;
    char folder[32];
    folder_of(rank, folder, sizeof folder);
    snprintf(why, 160, "simulated");
    return storesim_open(c->disk, folder, false, out, e);
}

static pawl_code open_all(void *context, const struct spec *spec, struct store ***out, uint32_t *count,
                          struct pawl_error *e) {
    struct cluster *c = context;
    (void)spec;
    *out = calloc(c->ranks, sizeof **out);
    *count = 0;
    for (uint32_t r = 0; r < c->ranks; r++) {
        char folder[32];
        folder_of(r, folder, sizeof folder);
        pawl_code code = storesim_open(c->disk, folder, true, &(*out)[*count], e);
        if (code == PAWL_NOT_FOUND) continue; /* the rank never saved anything */
        if (code != PAWL_OK) return code;
        ++*count;
    }
    return PAWL_OK;
}

static void tell_started(struct cluster *c, uint32_t rank) {
    c->places[rank].unknown++;
    queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_STARTED, .rank = rank});
}

static void start_worker(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    struct channel *ends[2];
    struct bytes text = {0};
    p->start_at = 0;
    if (p->there) return;
    assert_int_equal(channel_open_pair(ends, NULL), PAWL_OK);
    p->mine = ends[0];
    p->theirs = ends[1];
    p->net = netsim_open(c->netsim, NULL);
    p->born = c->processes++;
    p->slow = chance(c, 4) ? 2 + rng_below(&c->rng, 3) : 1;
    p->there = true;
    p->ready = p->leaving = false;
    p->stopped_until = 0;
    p->restored = 0;
    memset(p->compared, 0, c->chunks * sizeof *p->compared);
    struct worker_env env = {
        .net = p->net, .channel = p->theirs, .context = c, .open_own = open_own, .open_all = open_all};
    assert_int_equal(worker_new(&env, &p->worker, NULL), PAWL_OK);
    spec_print(&c->spec, &text);
    bytes_put_u8(&text, 0);
    struct message start = {
        .kind = MESSAGE_START, .rank = rank, .ranks = c->ranks, .text = (const char *)text.data};
    memcpy(start.run_id, c->run_id, sizeof start.run_id);
    channel_send(p->mine, &start, NULL);
    bytes_close(&text);
    if (c->conduct != NULL) tell_started(c, rank);
    SHOW(c, "rank %u started", rank);
}

/* The process of `rank` is gone, as after SIGKILL. What it had said can still be read. */
static void kill_worker(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL) return;
    if (p->worker->own_store != NULL) storesim_freeze(c->disk, p->worker->own_store);
    ckpt_close(p->worker->ckpt, 0, NULL);
    p->worker->ckpt = NULL;
    if (p->worker->own_store != NULL) storesim_kill(c->disk, p->worker->own_store);
    p->worker->own_store = NULL;
    netsim_kill(c->netsim, p->net);
    worker_free(p->worker, 0);
    channel_close(p->theirs);
    p->worker = NULL;
    p->theirs = NULL;
    p->net = NULL;
    SHOW(c, "rank %u is gone", rank);
}

/* It ends by itself, after LEAVE. */
static void end_worker(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    worker_free(p->worker, 0);
    netsim_kill(c->netsim, p->net);
    channel_close(p->theirs);
    p->worker = NULL;
    p->theirs = NULL;
    p->net = NULL;
    SHOW(c, "rank %u has ended", rank);
}

static void forget_place(struct place *p) {
    channel_close(p->mine);
    p->mine = NULL;
    p->there = p->ready = p->leaving = false;
    bytes_clear(&p->hello);
    bytes_clear(&p->readied);
}

/* ---- the coordinator's process ---- */

static void hook_send(void *context, const uint32_t *ranks, uint32_t count, const struct message *m) {
    struct cluster *c = context;
    struct bytes frame = {0};
    message_encode(m, &frame);
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_TO,
                                                   .list = ranks,
                                                   .list_count = count,
                                                   .data = frame.data,
                                                   .data_bytes = frame.size});
    bytes_close(&frame);
}

static void hook_kill(void *context, uint32_t rank, const char *why) {
    struct cluster *c = context;
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_KILL, .rank = rank, .text = why});
}

static void hook_find(void *context, uint64_t view) {
    struct cluster *c = context;
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_FIND, .view = view});
}

static void hook_need(void *context, uint32_t count, const char *why) {
    struct cluster *c = context;
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_NEED, .ranks = count, .text = why});
}

static void hook_note(void *context, const struct conduct_note *note) {
    struct cluster *c = context;
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_NOTE, .note = *note});
}

static void say_again(struct cluster *c, uint32_t rank, const struct bytes *frame) {
    if (frame->size > 0)
        queue_put(&c->to_coord,
                  &(struct link_frame){
                      .kind = LINK_FROM, .rank = rank, .data = frame->data, .data_bytes = frame->size});
}

/* What the launcher tells a new one. */
static void introduce_all(struct cluster *c, bool recover) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct place *p = &c->places[r];
        if (!p->there) continue;
        if (!recover || !p->ready) tell_started(c, r);
        say_again(c, r, &p->hello);
        if (!recover) say_again(c, r, &p->readied);
        if (p->leaving) queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_LEAVE, .rank = r});
    }
}

static void make_faster(struct coord_config *config) {
    config->start_ns /= FASTER;
    config->beat_ns /= FASTER;
    config->suspect_ns /= FASTER;
    config->save_ns /= FASTER;
    config->save_pause_ns /= FASTER;
    config->join_ns /= FASTER;
    config->need_ns /= FASTER;
    for (int work = 0; work < COORD_WORK_COUNT; work++) config->stall_ns[work] /= FASTER;
}

static void start_coordinator(struct cluster *c) {
    bool *there = calloc(c->ranks, sizeof *there);
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct place *p = &c->places[r];
        p->unknown = 0;
        there[r] = c->view > 0 && p->there && p->ready;
    }
    struct conduct_config config = {.spec = &c->spec,
                                    .ranks = c->ranks,
                                    .recover = c->view > 0,
                                    .view = c->view,
                                    .there = there,
                                    .incarnation = c->incarnation};
    spec_coord_config(&c->spec, &config.coord);
    make_faster(&config.coord);
    config.coord.save_retries = 1000;
    config.coord.idle_fences_max = 1000;
    struct conduct_hooks hooks = {.context = c,
                                  .send = hook_send,
                                  .kill = hook_kill,
                                  .find = hook_find,
                                  .need = hook_need,
                                  .note = hook_note};
    struct pawl_error e;
    if (conduct_new(&config, hooks, &c->conduct, &e) != PAWL_OK) fail_seed(c, e.text);
    free(there);
    introduce_all(c, config.recover);
    c->coord_start_at = 0;
    c->coord_stopped_until = 0;
    c->end_said = false;
    if (c->stopping) conduct_stop(c->conduct, c->now_ns);
}

static void end_coordinator(struct cluster *c) {
    conduct_free(c->conduct);
    c->conduct = NULL;
    queue_cut(&c->to_coord, 0);
}

/* Its last word, once. */
static void say_end(struct cluster *c) {
    if (c->conduct == NULL || conduct_state(c->conduct) == CONDUCT_RUNNING || c->end_said) return;
    bool finished = conduct_state(c->conduct) == CONDUCT_FINISHED;
    const struct pawl_error *why = conduct_error(c->conduct);
    c->end_said = true;
    queue_put(&c->from_coord, &(struct link_frame){.kind = LINK_END,
                                                   .code = finished ? PAWL_OK : why->code,
                                                   .text = finished ? "" : why->text});
}

/* One frame of the launcher is taken. */
static bool poll_coordinator(struct cluster *c) {
    struct bytes item;
    struct link_frame f;
    if (c->conduct == NULL || c->coord_stopped_until > c->now_ns || !queue_take(&c->to_coord, &item))
        return false;
    decode_link(c, &item, &f);
    struct message m;
    switch (f.kind) {
    case LINK_STARTED:
        conduct_started(c->conduct, f.rank, c->now_ns);
        break;
    case LINK_FROM:
        if (message_decode(f.data, f.data_bytes, &m, NULL) != PAWL_OK) fail_seed(c, "a malformed message");
        conduct_message(c->conduct, f.rank, &m, c->now_ns);
        break;
    case LINK_EXIT:
        conduct_exit(c->conduct, f.rank, c->now_ns);
        break;
    case LINK_FOUND:
        conduct_found(c->conduct, f.view, f.version, f.resume_incarnation, f.incarnation, f.code, f.text,
                      c->now_ns);
        break;
    case LINK_LEAVE:
        conduct_leave(c->conduct, f.rank, c->now_ns);
        break;
    case LINK_STOP:
        conduct_stop(c->conduct, c->now_ns);
        break;
    default:
        fail_seed(c, "a frame that is not for a coordinator");
    }
    link_frame_close(&f);
    bytes_close(&item);
    say_end(c);
    return true;
}

#endif
