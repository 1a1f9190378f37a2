/* Plans, addresses and GO: everything that is told to all before they go on. */
#include <stdlib.h>
#include <string.h>

#include "run/conduct_state.h"

/* ---- addresses ---- */

static void put_address(struct conduct *c, uint32_t rank, uint64_t since, struct bytes *list) {
    const struct conduct_rank *r = &c->rank[rank];
    if (r->address_stamp <= since) return;
    bytes_put_u32(list, rank);
    bytes_put_u32(list, (uint32_t)r->address.size);
    bytes_put(list, r->address.data, r->address.size);
}

/* One message to those in the list that know all addresses up to `since`. */
static void introduce_alike(struct conduct *c, uint64_t since, const uint32_t *ranks, uint32_t count) {
    uint32_t *alike = malloc(count * sizeof *alike), alike_count = 0;
    struct bytes list = {0};
    for (uint32_t r = 0; r < c->ranks; r++) put_address(c, r, since, &list);
    for (uint32_t i = 0; alike != NULL && i < count; i++)
        if (c->rank[ranks[i]].told_stamp == since) alike[alike_count++] = ranks[i];
    if (list.failed || alike == NULL) {
        conduct_end_with(c, CONDUCT_STOPPED, PAWL_MEMORY, "no memory for the addresses of the workers");
    } else if (list.size > 0) {
        struct message m = {.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size};
        conduct_tell(c, alike, alike_count, &m);
    }
    for (uint32_t i = 0; i < alike_count; i++) c->rank[alike[i]].told_stamp = c->stamp;
    free(alike);
    bytes_close(&list);
}

void conduct_introduce(struct conduct *c, const uint32_t *ranks, uint32_t count) {
    for (uint32_t i = 0; i < count && c->end == CONDUCT_RUNNING; i++)
        if (c->rank[ranks[i]].told_stamp < c->stamp)
            introduce_alike(c, c->rank[ranks[i]].told_stamp, ranks, count);
}

/* ---- plans ---- */

void conduct_plan(struct conduct *c, struct coord_event *planned, struct pawl_error *e) {
    struct replan_question question = {coord_candidates(c->coord), coord_has_state(c->coord)};
    replan_plan_free(c->plan);
    c->plan = NULL;
    c->need = 0;
    pawl_code code = replan_make(c->replan, &question, &c->plan, &c->need, e);
    planned->kind = COORD_PLANNED;
    planned->view = coord_view(c->coord);
    planned->ok = code == PAWL_OK;
    planned->code = code;
    planned->why = code == PAWL_OK ? NULL : e->text;
    if (code != PAWL_OK) return;
    planned->holds = c->plan->holds;
    planned->own = c->plan->own;
}

/* ---- go ---- */

static pawl_code fill_go(struct conduct *c, const struct coord_action *a, struct go *go,
                         struct pawl_error *e) {
    uint64_t durable = 0;
    if (c->plan == NULL) return error_set(e, PAWL_INTERNAL, 0, "go without a plan");
    *go = (struct go){.view = a->view,
                      .version = a->version,
                      .settle = a->settle,
                      .optimistic = a->optimistic,
                      .restore = a->restore,
                      .verdict = a->settle ? a->verdict : COORD_UNDECIDED,
                      .clip = a->clip,
                      .shift = a->shift,
                      .incarnation = a->restore || c->entered == 0 ? c->incarnation : c->entered,
                      .resume_incarnation = a->restore ? c->resume_incarnation : 0,
                      .durable = coord_durable(c->coord, &durable) ? durable : 0,
                      .ranks = c->ranks,
                      .chunks = c->chunks,
                      .plan = c->plan->ir,
                      .rank_of_role = c->plan->rank_of_role,
                      .own = c->plan->own};
    size_t bytes = (size_t)c->ranks * c->chunks * sizeof *go->pairs;
    go->pairs = malloc(bytes);
    if (go->pairs == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", c->ranks);
    memcpy(go->pairs, coord_pairs(c->coord), bytes);
    return PAWL_OK;
}

static void note_plan(struct conduct *c, const struct go *go, uint32_t members) {
    struct conduct_note note = {.kind = CONDUCT_NOTE_PLAN,
                                .view = go->view,
                                .moves = c->plan->moves,
                                .period = c->plan->period,
                                .period_s = c->plan->period_s,
                                .planning_ms = c->plan->planning_ms,
                                .ahead = c->plan->ahead,
                                .why = c->plan->instead};
    for (uint32_t w = 0; w < go->plan->pipelines * go->plan->stages; w++)
        note.live += go->rank_of_role[w] != UINT32_MAX;
    note.spares = members > note.live ? members - note.live : 0;
    c->hooks.note(c->hooks.context, &note);
}

static void note_salvage(struct conduct *c, const struct go *go, const struct conduct_salvage *salvage) {
    if (salvage->kept == 0 && salvage->redone == 0 && salvage->refused == NULL) return;
    struct conduct_note note = {.kind = CONDUCT_NOTE_SALVAGE,
                                .view = go->view,
                                .kept = salvage->kept,
                                .redone = salvage->redone,
                                .why = salvage->refused};
    c->hooks.note(c->hooks.context, &note);
}

/* The plan is in use from now on. */
static void take_into_use(struct conduct *c, struct go *go) {
    const bool *members = coord_members(c->coord);
    for (uint32_t r = 0; r < c->ranks; r++) c->rank[r].had_go = members[r];
    c->since = (struct conduct_since){0};
    replan_used(c->replan, c->plan);
    replan_plan_free(c->used);
    free(c->used_done);
    c->used = c->plan;
    c->used_done = go->done;
    c->used_version = go->version;
    c->plan = NULL;
    go->done = NULL;
}

static pawl_code send_go(struct conduct *c, struct go *go, const uint32_t *ranks, uint32_t count,
                         struct pawl_error *e) {
    struct bytes data = {0};
    go_encode(go, &data);
    pawl_code code = PAWL_OK;
    if (data.failed) code = error_set(e, PAWL_MEMORY, 0, "no memory for a go to %u ranks", count);
    if (code == PAWL_OK) {
        struct message m = {.kind = MESSAGE_GO, .view = go->view, .data = data.data, .data_bytes = data.size};
        conduct_introduce(c, ranks, count);
        conduct_tell(c, ranks, count, &m);
    }
    bytes_close(&data);
    return code;
}

void conduct_go(struct conduct *c, const struct coord_action *a, const uint32_t *ranks, uint32_t count) {
    struct go go = {0};
    struct conduct_salvage salvage = {0};
    struct pawl_error e;
    pawl_code code = fill_go(c, a, &go, &e);
    if (code == PAWL_OK) code = conduct_salvage(c, &go, &salvage, &e);
    /* Promise 5: what is sent has been proven, as a whole and for what is left of it. */
    if (code == PAWL_OK) code = ir_check_rest(go.plan, NULL, go.done, NULL, &e);
    if (code == PAWL_OK) {
        note_plan(c, &go, count);
        note_salvage(c, &go, &salvage);
        code = send_go(c, &go, ranks, count, &e);
    }
    if (code == PAWL_OK)
        take_into_use(c, &go);
    else
        conduct_end_with(c, CONDUCT_STOPPED, code, e.text);
    free(go.pairs);
    free(go.done);
}
