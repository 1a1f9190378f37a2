/* The life of a worker: start and load, control messages, saves, end. Iterations are in worker_step.c. */
#include "run/worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "model/weights.h"
#include "run/persist.h"
#include "run/worker_state.h"

/* Completions and events handled per poll; more are taken at the next. */
#define BATCH 64

pawl_code worker_new(const struct worker_env *env, struct worker **out, struct pawl_error *e) {
    struct worker *w = calloc(1, sizeof *w);
    if (w == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a worker");
    w->env = *env;
    *out = w;
    return PAWL_OK;
}

static size_t sums_bytes(const struct worker *w) {
    return (w->stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t);
}

void worker_free(struct worker *w, int64_t deadline_ns) {
    if (w == NULL) return;
    ckpt_close(w->ckpt, deadline_ns, NULL);
    store_close(w->own_store);
    if (w->stage != NULL) {
        mem_free(w->sums, sums_bytes(w));
        mem_free(w->grad, w->stage->param_count * sizeof(float));
        exec_close(&w->exec);
        reduce_close(&w->reduce);
        versions_close(&w->versions);
        w->stage->ops->close(w->stage);
    }
    data_close(w->data);
    peers_close(&w->peers);
    ir_plan_free(w->plan);
    free(w->peer_has_grad);
    free(w->saves);
    free(w->injections);
    free(w);
}

static pawl_code open_stage(struct worker *w, struct pawl_error *e) {
    const struct spec *s = &w->spec;
    struct gpt_config gpt = spec_gpt(s);
    w->adamw = spec_adamw(s);
    pawl_code code =
        data_open(s->data.path, s->data.format, gpt.vocabulary, gpt.context, s->run.seed, &w->data, e);
    if (code == PAWL_OK)
        code = gpt_stage_open(&gpt, w->peers.stage, s->parallel.stages, w->data, spec_contributions(s),
                              &w->stage, e);
    /* The base, the tentative one, and one a save in flight. */
    if (code == PAWL_OK) code = versions_init(&w->versions, w->stage, 2 + s->save.in_flight, e);
    if (code == PAWL_OK) code = exec_init(&w->exec, w->stage, &w->peers, s->parallel.microbatches, e);
    if (code == PAWL_OK) code = reduce_init(&w->reduce, w->stage, &w->peers, e);
    if (code != PAWL_OK) return code;
    w->sums = mem_alloc(sums_bytes(w));
    w->grad = mem_alloc(w->stage->param_count * sizeof(float));
    w->peer_has_grad = calloc(w->peers.rank_count, sizeof *w->peer_has_grad);
    w->saves = calloc(s->save.in_flight, sizeof *w->saves);
    w->save_count = s->save.in_flight;
    w->base = versions_take(&w->versions);
    if (w->sums == NULL || w->grad == NULL || w->peer_has_grad == NULL || w->saves == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for the sums of %llu parameters",
                         (unsigned long long)w->stage->param_count);
    return PAWL_OK;
}

static pawl_code start_fresh(struct worker *w, struct pawl_error *e) {
    struct gpt_config gpt = spec_gpt(&w->spec);
    if (w->spec.model.weights[0] != 0)
        return weights_read(w->spec.model.weights, &gpt, w->stage, w->base->params, e);
    w->stage->ops->init_params(w->stage, w->spec.run.seed, w->base->params);
    return PAWL_OK;
}

static pawl_code load_version(struct worker *w, const struct message *m, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    pawl_code code = w->env.open_all(w->env.context, &w->spec, &stores, &count, e);
    if (code == PAWL_OK) code = ckpt_set_open(stores, count, m->run_id, &set, e);
    if (code == PAWL_OK) {
        uint32_t index = persist_find(set, m->version, m->resume_incarnation);
        code = index == UINT32_MAX
                   ? error_set(e, PAWL_CORRUPT, 0, "step %llu is no longer complete in the store",
                               (unsigned long long)m->version)
                   : persist_load(set, index, w->stage, w->base, e);
    }
    ckpt_set_close(set);
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    free(stores);
    return code;
}

static pawl_code open_engine(struct worker *w, const struct message *m, char *why, struct pawl_error *e) {
    pawl_code code = w->env.open_own(w->env.context, &w->spec, w->peers.rank, &w->own_store, why, e);
    if (code != PAWL_OK) return code;
    struct ckpt_config config = {.incarnation = m->incarnation,
                                 .resume_step = m->version,
                                 .in_flight = w->spec.save.in_flight,
                                 .keep = w->spec.save.keep,
                                 .background = w->env.background};
    memcpy(config.run_id, m->run_id, sizeof config.run_id);
    return ckpt_open(&config, w->own_store, &w->ckpt, e);
}

static pawl_code send_address(struct worker *w, struct pawl_error *e) {
    size_t size;
    const void *address = net_address(w->env.net, &size);
    struct message m = {.kind = MESSAGE_ADDRESS, .data = address, .data_bytes = size};
    return channel_send(w->env.channel, &m, e);
}

static pawl_code handle_start(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase != WORKER_START || w->stage != NULL) return error_set(e, PAWL_FORMAT, 0, "started twice");
    pawl_code code = spec_parse(m->text, strlen(m->text), "start message", &w->spec, e);
    if (code != PAWL_OK) return code;
    uint32_t pipelines = w->spec.parallel.pipelines, stages = w->spec.parallel.stages;
    if (m->rank >= spec_ranks(&w->spec)) return error_set(e, PAWL_FORMAT, 0, "started as rank %u", m->rank);
    char why[160] = "";
    code = peers_init(&w->peers, w->env.net, pipelines, stages, m->rank, e);
    if (code == PAWL_OK) code = send_address(w, e);
    if (code == PAWL_OK) code = open_stage(w, e);
    if (code == PAWL_OK) code = m->resume_incarnation == 0 ? start_fresh(w, e) : load_version(w, m, e);
    if (code == PAWL_OK) code = open_engine(w, m, why, e);
    if (code != PAWL_OK) return code;
    w->phase = WORKER_FENCED;
    struct message ready = {.kind = MESSAGE_READY, .version = w->base->number, .text = why};
    return channel_send(w->env.channel, &ready, e);
}

static pawl_code handle_plan(struct worker *w, const struct message *m, struct pawl_error *e) {
    struct ir_plan *plan = NULL;
    pawl_code code = ir_decode(m->data, m->data_bytes, &plan, e);
    if (code == PAWL_OK && (plan->pipelines != w->peers.pipelines || plan->stages != w->peers.stages ||
                            plan->microbatches != w->spec.parallel.microbatches))
        code = error_set(e, PAWL_PLAN, 0, "plan of %u x %u workers and %u micro-batches", plan->pipelines,
                         plan->stages, plan->microbatches);
    if (code == PAWL_OK) code = ir_check(plan, NULL, NULL, e);
    if (code == PAWL_OK) code = exec_runs(plan, e);
    if (code != PAWL_OK) {
        ir_plan_free(plan);
        return code;
    }
    w->exec.list = NULL; /* it pointed into the old plan */
    ir_plan_free(w->plan);
    w->plan = plan;
    w->plan_view = m->view;
    return PAWL_OK;
}

static pawl_code report_save(struct worker *w, struct message m, const struct pawl_error *why,
                             struct pawl_error *e) {
    m.kind = MESSAGE_SAVED;
    m.text = m.code == PAWL_OK ? "" : why->text;
    return channel_send(w->env.channel, &m, e);
}

pawl_code worker_save(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase == WORKER_FETCH && w->early_save.parts == 0) {
        w->early_save = *m;
        return PAWL_OK;
    }
    struct message answer = {.version = m->version, .part = m->part, .parts = m->parts};
    if (w->base->number != m->version || m->part >= m->parts)
        return error_set(e, PAWL_INTERNAL, 0, "told to save version %llu at version %llu",
                         (unsigned long long)m->version, (unsigned long long)w->base->number);
    struct worker_save *place = NULL;
    for (uint32_t i = 0; i < w->save_count; i++)
        if (w->saves[i].version == NULL) place = &w->saves[i];
    struct pawl_error why = {.text = "every place for a save in flight is taken"};
    answer.code = place == NULL ? PAWL_BUSY
                                : persist_save(w->ckpt, &w->spec, w->stage, w->base, m->part, m->parts, &why);
    if (answer.code != PAWL_OK) return report_save(w, answer, &why, e);
    *place = (struct worker_save){w->base, m->part, m->parts};
    versions_hold(&w->versions, w->base);
    return PAWL_OK;
}

static pawl_code handle_inject(struct worker *w, const struct message *m, struct pawl_error *e) {
    enum fault_point point = fault_of_name(m->text);
    struct worker_injection *more = realloc(w->injections, (w->injection_count + 1) * sizeof *more);
    if (point == FAULT_NONE || more == NULL)
        return error_set(e, PAWL_FORMAT, 0, "no fault point named %s", m->text);
    w->injections = more;
    w->injections[w->injection_count++] = (struct worker_injection){m->iteration, point};
    return PAWL_OK;
}

static pawl_code handle(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (m->kind == MESSAGE_START) return handle_start(w, m, e);
    if (m->kind == MESSAGE_FINISH) {
        w->phase = WORKER_ENDED;
        return PAWL_OK;
    }
    if (w->phase == WORKER_START) return error_set(e, PAWL_FORMAT, 0, "control message before the start");
    switch (m->kind) {
    case MESSAGE_PEERS:
        return peers_learn(&w->peers, m, e);
    case MESSAGE_PLAN:
        return handle_plan(w, m, e);
    case MESSAGE_GO:
        return worker_go(w, m, e);
    case MESSAGE_FENCE:
        return worker_fence(w, m, e);
    case MESSAGE_DECIDE:
        return worker_decide(w, m, e);
    case MESSAGE_SAVE:
        return worker_save(w, m, e);
    case MESSAGE_DURABLE:
        ckpt_durable(w->ckpt, m->version);
        return PAWL_OK;
    case MESSAGE_FORGET:
        ckpt_forget(w->ckpt, m->version);
        return PAWL_OK;
    case MESSAGE_INJECT:
        return handle_inject(w, m, e);
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

static pawl_code poll_net(struct worker *w, bool *worked, struct pawl_error *e) {
    struct net_completion done[BATCH];
    uint32_t count = net_poll(w->env.net, done, BATCH);
    for (uint32_t i = 0; i < count; i++) {
        *worked = true;
        pawl_code code = is_lost_send(&done[i]) ? suspect(w, peers_receiver(done[i].cookie), e) : PAWL_OK;
        if (code != PAWL_OK) return code;
        switch (peers_owner_of(done[i].cookie)) {
        case PEERS_REDUCE:
        case PEERS_REDUCE_SEND:
            code = reduce_completion(&w->reduce, &done[i], e);
            break;
        case PEERS_STATE:
        case PEERS_STATE_SEND:
            code = worker_state_completion(w, &done[i], e);
            break;
        default:
            code = exec_completion(&w->exec, &done[i], e);
        }
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code poll_saves(struct worker *w, bool *worked, struct pawl_error *e) {
    struct ckpt_event events[BATCH];
    uint32_t count = ckpt_poll(w->ckpt, events, BATCH);
    uint64_t operations = ckpt_progress(w->ckpt);
    if (operations != w->save_operations) { /* a long save is progress, too */
        w->save_operations = operations;
        atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < count; i++) {
        *worked = true;
        for (uint32_t s = 0; s < w->save_count; s++) {
            struct worker_save *save = &w->saves[s];
            if (save->version == NULL || save->version->number != events[i].step ||
                save->part != events[i].part || save->parts != events[i].part_count)
                continue;
            versions_drop(&w->versions, save->version);
            save->version = NULL;
            break;
        }
        struct message m = {.version = events[i].step,
                            .part = events[i].part,
                            .parts = events[i].part_count,
                            .code = events[i].code,
                            .bytes = events[i].bytes,
                            .write_ns = events[i].total_ns};
        pawl_code code = report_save(w, m, &events[i].error, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code worker_poll(struct worker *w, bool *worked, struct pawl_error *e) {
    *worked = false;
    struct pawl_error local;
    if (e == NULL) e = &local;
    worker_set_busy(w, true);
    pawl_code code = poll_control(w, worked, e);
    if (code == PAWL_OK && w->phase != WORKER_START && w->phase != WORKER_ENDED) {
        code = poll_net(w, worked, e);
        if (code == PAWL_OK) code = poll_saves(w, worked, e);
        if (code == PAWL_OK) code = worker_advance(w, worked, e);
        if (code == PAWL_OK && w->peers.has_lost) code = suspect(w, w->peers.lost, e);
        w->peers.has_lost = false;
    }
    if (*worked) atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
    if (code != PAWL_OK && code != PAWL_PEER_LOST) {
        struct message m = {.kind = MESSAGE_FAILED, .code = code, .text = e->text};
        channel_send(w->env.channel, &m, NULL);
    }
    return code;
}

bool worker_finished(const struct worker *w) { return w->phase == WORKER_ENDED; }
int worker_save_fd(const struct worker *w) { return w->ckpt != NULL ? ckpt_fd(w->ckpt) : -1; }
uint64_t worker_progress(const struct worker *w) {
    return atomic_load_explicit(&w->progress, memory_order_relaxed);
}
bool worker_busy(const struct worker *w) { return atomic_load_explicit(&w->busy, memory_order_relaxed); }
void worker_set_busy(struct worker *w, bool busy) {
    atomic_store_explicit(&w->busy, busy, memory_order_relaxed);
}
const struct version *worker_base(const struct worker *w) { return w->base; }
const struct stage *worker_stage(const struct worker *w) { return w->stage; }
