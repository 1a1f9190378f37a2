/* Saves: which versions are asked for, and when one is durable.
 *
 * A version's chunk is split among the ranks whose own it is; it is durable when every part was reported
 * written. An attempt that lost a part is kept until the members have answered, or its time is over, so that
 * the number of attempts outstanding is what the ranks really hold. Only the last version is tried again: the
 * run may end with nothing less, and after a pause that grows. While a part of that is still being written it
 * is not asked for anew, however long it takes, for its late answer could not be told from the new one: each
 * time save_ns passes counts as a failed write. SAVE is never sent during a fence, when a rank may not have
 * the version yet; answers are taken at any time, for they carry no view. */
#include "coord/state.h"

#include <stdlib.h>

/* The longest pause between two tries, in first ones: 5 s after 0.1 s. */
#define SAVE_PAUSES_MAX 50

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
    return (c->has_durable && c->durable == c->target) || (c->found > 0 && c->found == c->target);
}

static struct coord_save *new_save(struct coord *c, uint64_t version) {
    void *list = c->saves;
    if (!coord_grow(c, &list, &c->save_room, c->save_count, sizeof *c->saves)) return NULL;
    c->saves = list;
    struct coord_save *save = &c->saves[c->save_count];
    *save = (struct coord_save){.version = version, .since = c->now_ns};
    save->part_of_rank = calloc(c->config.ranks, sizeof *save->part_of_rank);
    if (save->part_of_rank == NULL) {
        c->no_memory = true;
        return NULL;
    }
    c->save_count++;
    return save;
}

static void ask_for_chunk(struct coord *c, struct coord_save *save, uint32_t chunk) {
    uint32_t parts = 0, place = 0;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) parts += c->ranks[rank].own == chunk;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        if (c->ranks[rank].own != chunk) continue;
        save->part_of_rank[rank] = (struct coord_part){chunk, place++, parts, PART_ASKED};
        save->waiting++;
    }
}

static void issue(struct coord *c) {
    COORD_MUST(c->phase == PHASE_RUNNING && find_save(c, c->final) == NULL);
    struct coord_save *save = new_save(c, c->final);
    if (save == NULL) return;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) ask_for_chunk(c, save, chunk);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_part *part = &save->part_of_rank[rank];
        if (part->state != PART_ASKED) continue;
        struct coord_action *action = coord_push(c, COORD_SAVE);
        action->rank = rank;
        action->version = save->version;
        action->chunk = part->chunk;
        action->part = part->part;
        action->parts = part->parts;
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
    coord_push(c, COORD_DURABLE)->version = version;
    coord_push(c, COORD_DURABLE_AT)->version = version;
}

static void count_failure(struct coord *c) {
    if (c->save_failures == c->config.save_retries)
        coord_stop(c, PAWL_IO, "the last version could not be saved");
    else
        c->save_failures++;
    c->save_failed_at = c->now_ns;
    c->save_pauses = c->config.save_pause_ns > 0;
}

static void end_pause(struct coord *c) {
    int64_t most = c->config.save_pause_ns * SAVE_PAUSES_MAX, pause = c->config.save_pause_ns;
    for (uint32_t i = 1; i < c->save_failures && pause < most; i++) pause *= 2;
    if (coord_elapsed(c, c->save_failed_at) >= (pause < most ? pause : most)) c->save_pauses = false;
}

/* Everybody who can has answered, or the time is over. */
static void end_save(struct coord *c, struct coord_save *save) {
    uint64_t version = save->version;
    bool failed = save->failed, whole = !save->failed && !save->lost;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        c->ranks[rank].late += save->part_of_rank[rank].state == PART_ASKED;
    coord_save_close(save);
    c->save_count--;
    for (size_t i = (size_t)(save - c->saves); i < c->save_count; i++) c->saves[i] = c->saves[i + 1];
    if (whole)
        make_durable(c, version);
    else
        coord_push(c, COORD_FORGET)->version = version;
    if (failed && version == c->target) count_failure(c);
}

void coord_on_saved(struct coord *c, const struct coord_event *event) {
    if (c->recovering && !c->ranks[event->rank].fenced) return; /* its answer to the fence will tell */
    struct coord_save *save = find_save(c, event->version);
    struct coord_part *part = save != NULL ? &save->part_of_rank[event->rank] : NULL;
    if (part == NULL || part->state != PART_ASKED || part->chunk != event->chunk ||
        part->part != event->part || part->parts != event->parts) {
        if (c->ranks[event->rank].late > 0)
            c->ranks[event->rank].late--;
        else if (!c->config.recover) /* who took over does not know what was given up before */
            coord_stop(c, PAWL_INTERNAL, "an answer to a save that was not asked for");
        return;
    }
    part->state = event->ok ? PART_OK : PART_LOST;
    if (!event->ok) save->failed = true;
    c->idle_fences = 0;
    coord_progress(c, event->rank);
    if (--save->waiting == 0 && !c->recovering) end_save(c, save);
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
            if (--save->waiting == 0 && !c->recovering) end_save(c, save);
        }
        if (c->save_count == before) i++;
    }
}

bool coord_saves_awaited(const struct coord *c, uint32_t rank) {
    for (size_t i = 0; i < c->save_count; i++)
        if (c->saves[i].part_of_rank[rank].state == PART_ASKED) return true;
    return false;
}

static void tell_late(struct coord *c, const struct coord_save *save) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        if (save->part_of_rank[rank].state != PART_ASKED) continue;
        struct coord_action *late = coord_push(c, COORD_LATE);
        late->rank = rank;
        late->version = save->version;
    }
}

void coord_saves_judge(struct coord *c) {
    size_t i = 0;
    if (c->save_pauses) end_pause(c);
    while (c->config.save_ns > 0 && !c->recovering && i < c->save_count && !coord_over(c)) {
        struct coord_save *save = &c->saves[i];
        if (coord_elapsed(c, save->since) < c->config.save_ns) {
            i++;
            continue;
        }
        tell_late(c, save);
        if (save->version == c->target) {
            save->since = c->now_ns;
            count_failure(c);
            i++;
        } else {
            save->failed = true;
            end_save(c, save);
        }
    }
}

void coord_saves_drop(struct coord *c) {
    for (size_t i = 0; i < c->save_count; i++) {
        for (uint32_t rank = 0; rank < c->config.ranks; rank++)
            c->ranks[rank].late += c->saves[i].part_of_rank[rank].state == PART_ASKED;
        coord_save_close(&c->saves[i]);
    }
    c->save_count = 0;
    c->save_failures = 0;
    c->save_pauses = false;
}

/* ---- takeover ---- */

void coord_saves_recover(struct coord *c, uint32_t rank, const struct coord_fenced_save *told) {
    struct coord_save *save = find_save(c, told->version);
    if (told->chunk >= c->config.chunks || told->part >= told->parts ||
        (save != NULL && save->part_of_rank[rank].state != PART_NONE)) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence with an impossible part of a save");
        return;
    }
    if (save == NULL && c->save_count == c->config.saves_max) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence with more saves than are ever outstanding");
        return;
    }
    if (save == NULL) save = new_save(c, told->version);
    if (save == NULL) return;
    enum coord_part_state state = told->ok ? PART_OK : PART_LOST;
    if (!told->answered) state = PART_ASKED;
    save->part_of_rank[rank] = (struct coord_part){told->chunk, told->part, told->parts, state};
    save->waiting += state == PART_ASKED;
    if (state == PART_LOST) save->failed = true;
}

/* Does somebody have part `part` of `parts` of the chunk, written or under way? */
static bool part_exists(const struct coord *c, const struct coord_save *save, uint32_t chunk, uint32_t part,
                        uint32_t parts) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_part *p = &save->part_of_rank[rank];
        bool there = p->state == PART_OK || p->state == PART_ASKED;
        if (there && p->chunk == chunk && p->part == part && p->parts == parts) return true;
    }
    return false;
}

static bool chunk_exists(const struct coord *c, const struct coord_save *save, uint32_t chunk) {
    uint32_t parts = 0;
    for (uint32_t rank = 0; rank < c->config.ranks && parts == 0; rank++)
        if (save->part_of_rank[rank].chunk == chunk) parts = save->part_of_rank[rank].parts;
    if (parts > c->config.ranks) return false;
    for (uint32_t part = 0; part < parts; part++)
        if (!part_exists(c, save, chunk, part, parts)) return false;
    return parts > 0;
}

void coord_saves_recovered(struct coord *c) {
    size_t i = 0;
    while (i < c->save_count && !coord_over(c)) {
        struct coord_save *save = &c->saves[i];
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
            save->lost = save->lost || !chunk_exists(c, save, chunk);
        bool never_was = save->version > c->final; /* settled, but nobody got as far */
        save->lost = save->lost || never_was;
        if (save->waiting == 0 || never_was)
            end_save(c, save);
        else
            i++;
    }
}

/* ---- the end ---- */

void coord_on_stopping(struct coord *c) {
    c->stopping = true;
    if (c->running_once && !c->recovering && c->final < c->target) c->target = c->final + 1;
}

void coord_saves_advance(struct coord *c) {
    if (c->phase == PHASE_STARTING || c->recovering || !c->running_once || c->final != c->target) return;
    if (last_is_durable(c)) {
        coord_finish(c);
        return;
    }
    if (c->phase != PHASE_RUNNING || find_save(c, c->final) != NULL) return;
    if (c->save_count < c->config.saves_max && !c->save_pauses) issue(c);
}
