/* Saves: which versions are asked for, and when one is durable.
 *
 * A version's stage is split among the stage's live ranks; it is durable when every part was reported
 * written. An attempt that lost a part is kept until the live ranks have answered, so that the number of
 * attempts outstanding is what the ranks really hold. Nothing is cancelled. Only the last version is tried
 * again: the run may end with nothing less. SAVE is never sent during a fence, when a rank may not have
 * the version yet; answers are taken at any time, for they carry no view. */
#include "coord/state.h"

#include <stdlib.h>

void coord_save_close(struct coord_save *save) {
    free(save->part_of_rank);
    save->part_of_rank = NULL;
}

static struct coord_save *find_save(struct coord *c, uint64_t version) {
    for (size_t i = 0; i < c->save_count; i++)
        if (c->saves[i].version == version) return &c->saves[i];
    return NULL;
}

static bool last_is_durable(const struct coord *c) {
    if (c->has_durable && c->durable == c->target) return true;
    return c->target == c->config.first_version && c->target > 0; /* resumed from it */
}

static struct coord_save *new_save(struct coord *c) {
    void *list = c->saves;
    if (!coord_grow(c, &list, &c->save_room, c->save_count, sizeof *c->saves)) return NULL;
    c->saves = list;
    struct coord_save *save = &c->saves[c->save_count];
    *save = (struct coord_save){.version = c->final};
    save->part_of_rank = calloc(c->rank_count, sizeof *save->part_of_rank);
    if (save->part_of_rank == NULL) {
        c->no_memory = true;
        return NULL;
    }
    c->save_count++;
    return save;
}

static void ask_stage(struct coord *c, struct coord_save *save, uint32_t stage) {
    uint32_t place = 0;
    for (uint32_t rank = stage; rank < c->rank_count; rank += c->config.stages) {
        if (!c->live[rank]) continue;
        save->part_of_rank[rank] = (struct coord_part){place++, c->stages[stage].live, PART_ASKED};
        save->waiting++;
    }
}

static void issue(struct coord *c) {
    COORD_MUST(c->phase == PHASE_RUNNING && find_save(c, c->final) == NULL);
    struct coord_save *save = new_save(c);
    if (save == NULL) return;
    for (uint32_t stage = 0; stage < c->config.stages; stage++) ask_stage(c, save, stage);
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        if (!c->live[rank]) continue;
        struct coord_action *action = coord_push(c, COORD_SAVE);
        action->rank = rank;
        action->version = save->version;
        action->part = save->part_of_rank[rank].part;
        action->parts = save->part_of_rank[rank].parts;
    }
}

void coord_saves_due(struct coord *c) {
    if (c->final == c->target) return; /* coord_saves_advance */
    if (c->config.save_every == 0 || c->final % c->config.save_every != 0) return;
    if (c->save_count < c->config.saves_max)
        issue(c);
    else
        coord_push(c, COORD_SKIPPED)->version = c->final;
}

static void make_durable(struct coord *c, uint64_t version) {
    if (c->has_durable && version <= c->durable) return;
    c->has_durable = true;
    c->durable = version;
    coord_push_live(c, (struct coord_action){.kind = COORD_DURABLE, .version = version});
    coord_push(c, COORD_DURABLE_AT)->version = version;
}

/* Everybody who can has answered. */
static void end_save(struct coord *c, struct coord_save *save) {
    uint64_t version = save->version;
    bool failed = save->failed, whole = !save->failed && !save->lost;
    coord_save_close(save);
    c->save_count--;
    for (size_t i = (size_t)(save - c->saves); i < c->save_count; i++) c->saves[i] = c->saves[i + 1];
    if (whole)
        make_durable(c, version);
    else
        coord_push_live(c, (struct coord_action){.kind = COORD_FORGET, .version = version});
    if (!failed || version != c->target) return;
    if (c->save_failures == c->config.save_retries)
        coord_stop(c, PAWL_IO, "the last version could not be saved");
    else
        c->save_failures++;
}

void coord_on_saved(struct coord *c, const struct coord_event *event) {
    struct coord_save *save = find_save(c, event->version);
    struct coord_part *part = save != NULL ? &save->part_of_rank[event->rank] : NULL;
    if (part == NULL || part->state != PART_ASKED || part->part != event->part ||
        part->parts != event->parts) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a save that was not asked for");
        return;
    }
    part->state = event->ok ? PART_OK : PART_LOST;
    if (!event->ok) save->failed = true;
    c->idle_fences = 0;
    coord_progress(c, event->rank);
    if (--save->waiting == 0) end_save(c, save);
}

void coord_saves_died(struct coord *c, uint32_t rank) {
    size_t i = 0;
    while (i < c->save_count && !coord_over(c)) {
        struct coord_save *save = &c->saves[i];
        struct coord_part *part = &save->part_of_rank[rank];
        size_t before = c->save_count;
        if (part->state == PART_ASKED) {
            part->state = PART_LOST;
            save->lost = true;
            if (--save->waiting == 0) end_save(c, save);
        }
        if (c->save_count == before) i++;
    }
}

void coord_on_stopping(struct coord *c) {
    if (c->final < c->target) c->target = c->final + 1;
}

void coord_saves_advance(struct coord *c) {
    if (c->final != c->target) return;
    if (last_is_durable(c) && c->phase != PHASE_STARTING) {
        coord_push_live(c, (struct coord_action){.kind = COORD_FINISH, .version = c->final});
        c->phase = PHASE_OVER;
        return;
    }
    if (c->phase != PHASE_RUNNING || find_save(c, c->final) != NULL) return;
    if (c->save_count < c->config.saves_max) issue(c);
}
