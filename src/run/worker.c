/* The life of a worker: start, control messages, polling, end. */
#include <stdlib.h>
#include <string.h>

#include "run/worker_state.h"

/* Completions handled per poll; more are taken at the next. */
#define BATCH 64

pawl_code worker_new(const struct worker_env *env, struct worker **out, struct pawl_error *e) {
    struct worker *w = calloc(1, sizeof *w);
    if (w == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a worker");
    w->env = *env;
    w->peers.rank = UINT32_MAX;
    w->targets.net = env->net;
    w->at[1] = 255;
    *out = w;
    return PAWL_OK;
}

void worker_free(struct worker *w, int64_t deadline_ns) {
    if (w == NULL) return;
    inject_self_free(w->inject);
    ckpt_close(w->ckpt, deadline_ns, NULL);
    store_close(w->own_store);
    exec_close(&w->exec);
    transfers_close(&w->transfers);
    for (uint32_t i = 0; i < w->holding_count; i++) holding_free(w->holdings[i]);
    free(w->holdings);
    free(w->planned);
    engine_close(w->engine);
    peers_close(&w->peers);
    go_close(&w->go);
    free(w->reduced);
    free(w->unheard);
    free(w->gives);
    free(w->saves);
    free(w);
}

struct holding *worker_find(const struct worker *w, uint32_t chunk) {
    for (uint32_t i = 0; i < w->holding_count; i++)
        if (w->holdings[i]->use != HOLDING_OVER && holding_chunk(w->holdings[i]) == chunk)
            return w->holdings[i];
    return NULL;
}

pawl_code worker_make_holding(struct worker *w, uint32_t chunk, struct holding **out, struct pawl_error *e) {
    if (w->holding_count == w->holding_room) {
        uint32_t room = w->holding_room * 2 + 2;
        struct holding **more = realloc(w->holdings, room * sizeof *more);
        if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u chunks", room);
        w->holdings = more;
        w->holding_room = room;
    }
    struct stage *stage = NULL;
    worker_set_work(w, COORD_WORK_COMPILE);
    pawl_code code = engine_stage(w->engine, chunk, &stage, e);
    if (code == PAWL_OK) code = holding_new(stage, w->spec.save.in_flight, &w->peers, out, e);
    worker_set_work(w, COORD_WORK_STEP);
    if (code == PAWL_OK) w->holdings[w->holding_count++] = *out;
    return code;
}

void worker_free_over(struct worker *w) {
    for (uint32_t i = w->holding_count; i-- > 0;) {
        struct holding *h = w->holdings[i];
        if (h->use != HOLDING_OVER || versions_in_use(&h->versions) || h->grad_sends > 0 ||
            h->reduce.giving > 0)
            continue;
        holding_free(h);
        w->holdings[i] = w->holdings[--w->holding_count];
    }
}

/* ---- control messages ---- */

static pawl_code send_address(struct worker *w, struct pawl_error *e) {
    size_t size;
    const void *address = net_address(w->env.net, &size);
    struct message m = {.kind = MESSAGE_ADDRESS, .data = address, .data_bytes = size};
    return channel_send(w->env.channel, &m, e);
}

static pawl_code handle_start(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase != WORKER_START) return error_set(e, PAWL_FORMAT, 0, "started twice");
    if (m->rank >= m->ranks || m->ranks > IR_WORKERS_MAX)
        return error_set(e, PAWL_FORMAT, 0, "started as rank %u of %u", m->rank, m->ranks);
    pawl_code code = spec_parse(m->text, strlen(m->text), "start message", &w->spec, e);
    if (code != PAWL_OK) return code;
    memcpy(w->run_id, m->run_id, sizeof w->run_id);
    w->adamw = spec_adamw(&w->spec);
    char why[160] = "";
    code = peers_init(&w->peers, w->env.net, m->ranks, m->rank, e);
    if (code == PAWL_OK) code = send_address(w, e);
    exec_init(&w->exec, &w->peers);
    worker_set_work(w, COORD_WORK_COMPILE);
    if (code == PAWL_OK) code = engine_open(&w->spec, m->rank, &w->engine, e);
    worker_set_work(w, COORD_WORK_STEP);
    if (code == PAWL_OK) code = w->env.open_own(w->env.context, &w->spec, m->rank, &w->own_store, why, e);
    if (code == PAWL_OK) code = worker_open_ckpt(w, e);
    if (code != PAWL_OK) return code;
    w->targets.engine = w->engine;
    w->targets.store = w->own_store;
    w->phase = WORKER_FENCED;
    struct message ready = {.kind = MESSAGE_READY, .text = why};
    return channel_send(w->env.channel, &ready, e);
}

static pawl_code handle_inject(struct worker *w, const struct message *m, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    if (w->inject == NULL) code = inject_self_new(w->spec.run.dir, &w->targets, &w->inject, e);
    return code == PAWL_OK ? inject_self_add(w->inject, m->text, e) : code;
}

/* Said to the process that had this place before, while the coordinator did not know that it is gone. */
static bool is_for_another(const struct worker *w, const struct message *m) {
    bool of_members = m->kind == MESSAGE_GO || m->kind == MESSAGE_DECIDE || m->kind == MESSAGE_SAVE;
    return w->go.plan == NULL && of_members && (m->kind != MESSAGE_GO || m->view != w->peers.view);
}

static pawl_code handle(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (m->kind == MESSAGE_START) return handle_start(w, m, e);
    if (m->kind == MESSAGE_FINISH) {
        w->phase = WORKER_ENDED;
        return PAWL_OK;
    }
    if (w->phase == WORKER_START) return error_set(e, PAWL_FORMAT, 0, "control message before the start");
    if (is_for_another(w, m)) return PAWL_OK;
    switch (m->kind) {
    case MESSAGE_PEERS:
        return peers_learn(&w->peers, m, e);
    case MESSAGE_GO:
        return worker_go(w, m, e);
    case MESSAGE_FENCE:
        return worker_fence(w, m, e);
    case MESSAGE_DECIDE:
        return worker_decide(w, m, e);
    case MESSAGE_PREPARE:
        return worker_prepare(w, m, e);
    case MESSAGE_SAVE:
        return worker_save(w, m, e);
    case MESSAGE_DURABLE:
        worker_saves_durable(w, m->version);
        return PAWL_OK;
    case MESSAGE_FORGET:
        worker_saves_forget(w, m->version);
        return PAWL_OK;
    case MESSAGE_INJECT:
        return handle_inject(w, m, e);
    case MESSAGE_LEAVE:
        /* Who never was a member has nothing that anybody needs. A copy under way is dropped: its source may
         * be ending, too, and a connection that breaks while it is made is what UCX 1.13 dies of. */
        w->phase = w->go.plan == NULL ? WORKER_ENDED : WORKER_LEAVING;
        return PAWL_OK;
    default:
        return error_set(e, PAWL_FORMAT, 0, "control message of kind %d is not for workers", (int)m->kind);
    }
}

static pawl_code poll_control(struct worker *w, bool *worked, struct pawl_error *e) {
    channel_flush(w->env.channel);
    for (;;) {
        struct message m;
        bool got;
        pawl_code code = channel_receive(w->env.channel, &m, &got, e);
        if (code != PAWL_OK || !got) return code;
        *worked = true;
        code = handle(w, &m, e);
        if (code != PAWL_OK || w->phase == WORKER_ENDED) return code;
    }
}

/* ---- completions ---- */

/* A peer that cannot be reached: the coordinator knows, or finds out, whether it is dead. */
static pawl_code suspect(struct worker *w, uint32_t peer, struct pawl_error *e) {
    struct message m = {.kind = MESSAGE_SUSPECT, .peer = peer};
    return channel_send(w->env.channel, &m, e);
}

static bool is_lost_send(const struct net_completion *c) {
    enum peers_owner owner = peers_owner_of(c->cookie);
    return c->code == PAWL_PEER_LOST &&
           (owner == PEERS_EXEC_SEND || owner == PEERS_REDUCE_SEND || owner == PEERS_STATE_SEND);
}

static pawl_code reduction_completion(struct worker *w, const struct net_completion *c,
                                      struct pawl_error *e) {
    uint32_t chunk = reduce_chunk_of(c->cookie);
    for (uint32_t i = 0; i < w->planned_count; i++)
        if (holding_chunk(w->planned[i]) == chunk) return reduce_completion(&w->planned[i]->reduce, c, e);
    return error_set(e, PAWL_INTERNAL, 0, "completion of a reduction of chunk %u, which is not held", chunk);
}

static pawl_code completion(struct worker *w, const struct net_completion *c, struct pawl_error *e) {
    pawl_code code = is_lost_send(c) ? suspect(w, peers_receiver(c->cookie), e) : PAWL_OK;
    if (code != PAWL_OK) return code;
    switch (peers_owner_of(c->cookie)) {
    case PEERS_REDUCE:
    case PEERS_REDUCE_SEND:
        return reduction_completion(w, c, e);
    case PEERS_STATE:
    case PEERS_STATE_SEND:
        return worker_transfer_completion(w, c, e);
    case PEERS_GREETING:
    case PEERS_GREETING_SEND:
        worker_greeted(w, c);
        return PAWL_OK;
    default:
        return exec_completion(&w->exec, c, e);
    }
}

static pawl_code poll_net(struct worker *w, bool *worked, struct pawl_error *e) {
    struct net_completion done[BATCH];
    uint32_t count = net_poll(w->env.net, done, BATCH);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = completion(w, &done[i], e);
    *worked = *worked || count > 0;
    return code;
}

/* ---- polling ---- */

static void end_if_left(struct worker *w) {
    if (w->phase != WORKER_LEAVING) return;
    worker_set_work(w, COORD_WORK_SAVE);
    if (!worker_saves_writing(w) && w->transfers.count == 0) w->phase = WORKER_ENDED;
}

static pawl_code poll_all(struct worker *w, bool *worked, struct pawl_error *e) {
    if (w->inject != NULL) inject_self_poll(w->inject);
    pawl_code code = poll_net(w, worked, e);
    if (code == PAWL_OK) code = worker_saves_poll(w, worked, e);
    if (code == PAWL_OK) code = worker_advance(w, worked, e);
    if (code == PAWL_OK && w->peers.has_lost) code = suspect(w, w->peers.lost, e);
    w->peers.has_lost = false;
    worker_free_over(w);
    end_if_left(w);
    return code;
}

pawl_code worker_poll(struct worker *w, bool *worked, struct pawl_error *e) {
    *worked = false;
    struct pawl_error local;
    if (e == NULL) e = &local;
    worker_set_busy(w, true);
    pawl_code code = poll_control(w, worked, e);
    if (code == PAWL_OK && w->phase != WORKER_START && w->phase != WORKER_ENDED)
        code = poll_all(w, worked, e);
    if (*worked) atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
    if (code != PAWL_OK && code != PAWL_PEER_LOST) {
        struct message m = {.kind = MESSAGE_FAILED, .code = code, .text = e->text};
        channel_send(w->env.channel, &m, NULL);
    }
    return code;
}

/* ---- what others see ---- */

void worker_set_work(struct worker *w, enum coord_work work) {
    atomic_store_explicit(&w->work, (uint32_t)work, memory_order_relaxed);
}

/* iteration 40 bits, position 24; op 8 bits, chunk 12, home 16, micro-batch 16: each is below its limit */
void worker_note_at(struct worker *w) {
    struct message_at at = exec_at(&w->exec);
    uint64_t what =
        (uint64_t)at.op | (uint64_t)at.chunk << 8 | (uint64_t)at.home << 20 | (uint64_t)at.microbatch << 36;
    atomic_store_explicit(&w->at[0], at.iteration << 24 | (at.position & 0xffffff), memory_order_relaxed);
    atomic_store_explicit(&w->at[1], what, memory_order_relaxed);
}

struct message_at worker_at(const struct worker *w) {
    uint64_t where = atomic_load_explicit(&w->at[0], memory_order_relaxed);
    uint64_t what = atomic_load_explicit(&w->at[1], memory_order_relaxed);
    return (struct message_at){.iteration = where >> 24,
                               .position = where & 0xffffff,
                               .op = (uint8_t)what,
                               .chunk = what >> 8 & 0xfff,
                               .home = what >> 20 & 0xffff,
                               .microbatch = what >> 36 & 0xffff};
}

void worker_beat(const struct worker *w, struct message *beat) {
    *beat = (struct message){
        .kind = MESSAGE_BEAT,
        .progress = atomic_load_explicit(&w->progress, memory_order_relaxed),
        .busy = atomic_load_explicit(&w->busy, memory_order_relaxed),
        .work = (enum coord_work)atomic_load_explicit(&w->work, memory_order_relaxed),
        .at = worker_at(w),
    };
}

void worker_set_busy(struct worker *w, bool busy) {
    atomic_store_explicit(&w->busy, busy, memory_order_relaxed);
}

bool worker_finished(const struct worker *w) { return w->phase == WORKER_ENDED; }
int worker_save_fd(const struct worker *w) { return w->ckpt != NULL ? ckpt_fd(w->ckpt) : -1; }
uint32_t worker_rank(const struct worker *w) { return w->peers.rank; }

const struct version *worker_version(const struct worker *w, uint32_t chunk) {
    const struct holding *h = worker_find(w, chunk);
    return h != NULL ? h->base : NULL;
}

const struct stage *worker_stage(const struct worker *w, uint32_t chunk) {
    const struct holding *h = worker_find(w, chunk);
    return h != NULL ? h->stage : NULL;
}
