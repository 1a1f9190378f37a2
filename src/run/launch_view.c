/* What the launcher learns from messages as it passes them on: who plays which role, who finishes, how long
 * an outage lasted. */
#include <stdlib.h>

#include "base/clock.h"
#include "run/go.h"
#include "run/launch_state.h"

/* Everybody's role by a GO. Without memory for it the roles are not known, and not said. */
static void learn_roles(struct launch *l, const struct message *m) {
    struct go go;
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].pipeline = l->workers[r].stage = LAUNCH_NONE;
    if (go_decode(m->data, m->data_bytes, &go, NULL) == PAWL_OK && go.ranks == l->ranks)
        for (uint32_t role = 0; role < go.plan->pipelines * go.plan->stages; role++) {
            uint32_t rank = go.rank_of_role[role];
            if (rank >= l->ranks) continue;
            l->workers[rank].pipeline = role / go.plan->stages;
            l->workers[rank].stage = role % go.plan->stages;
        }
    go_close(&go);
}

static void outage_goes(struct launch *l) {
    struct launch_outage *o = &l->outage;
    if (o->began_ns == 0) return;
    if (o->progress == NULL) o->progress = calloc(l->ranks, sizeof *o->progress);
    for (uint32_t r = 0; r < l->ranks && o->progress != NULL; r++) o->progress[r] = l->workers[r].progress;
    o->go_ns = clock_now_ns();
}

static void passed_go(struct launch *l, const struct message *m, const uint32_t *ranks, uint32_t count) {
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].member = false;
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] < l->ranks) l->workers[ranks[i]].member = !l->workers[ranks[i]].gone;
    learn_roles(l, m);
    if (l->first_go_ns == 0) l->first_go_ns = clock_now_ns();
    if (!l->going || l->restoring) l->since_ns = clock_now_ns();
    l->going = true;
    l->restoring = l->filling = false;
    outage_goes(l);
    struct json *j = progress_begin(l->progress, "go");
    json_i64(j, "view", (int64_t)m->view);
    json_i64(j, "live", tell_live(l));
    if (l->fence == LAUNCH_UNDO) json_bool(j, "undo", true);
    progress_end(l->progress, NULL);
}

static void passed_prepare(struct launch *l, const struct message *m) {
    struct json *j = progress_begin(l->progress, "prepare");
    json_i64(j, "rank", m->rank);
    json_i64(j, "from", m->peer);
    json_i64(j, "chunk", m->chunk);
    json_i64(j, "step", (int64_t)m->version);
    progress_end(l->progress, NULL);
}

void tell_passed(struct launch *l, const struct message *m, const uint32_t *ranks, uint32_t count) {
    if (m->kind == MESSAGE_GO) passed_go(l, m, ranks, count);
    if (m->kind == MESSAGE_PREPARE) passed_prepare(l, m);
    for (uint32_t i = 0; m->kind == MESSAGE_FINISH && i < count; i++)
        if (ranks[i] < l->ranks) l->workers[ranks[i]].finishing = true;
}

void tell_progress(struct launch *l, uint32_t rank, bool surely) {
    struct launch_outage *o = &l->outage;
    const struct launch_worker *w = &l->workers[rank];
    if (o->go_ns == 0 || !w->member || o->progress == NULL) return;
    if (!surely && w->progress == o->progress[rank]) return;
    int64_t now = clock_now_ns();
    struct json *j = progress_begin(l->progress, "resumed");
    json_f64(j, "go_ms", (double)(o->go_ns - o->began_ns) / 1e6);
    json_f64(j, "progress_ms", (double)(now - o->began_ns) / 1e6);
    progress_end(l->progress, NULL);
    o->began_ns = o->go_ns = 0;
}
