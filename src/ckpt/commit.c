/* Implementation of ckpt/commit.h. */
#include "ckpt/commit.h"

#include <string.h>

void commit_init(struct commit *c, uint32_t in_flight, uint32_t keep, uint64_t resume_step) {
    memset(c, 0, sizeof *c);
    c->in_flight = in_flight;
    c->keep = keep;
    c->resume_step = resume_step;
    if (resume_step != 0) c->durable[c->durable_count++] = resume_step;
}

/* ---- which slots are still needed ---- */

static bool is_durable(const struct commit *c, uint64_t step) {
    for (uint32_t i = 0; i < c->durable_count; i++)
        if (c->durable[i] == step) return true;
    return false;
}

/* Older than all of the `keep` newest durable steps. */
static bool below_kept(const struct commit *c, uint64_t step) {
    return c->durable_count >= c->keep && step < c->durable[c->keep - 1];
}

/* How many different steps of old slots lie above `step`, up to the one resumed from. */
static uint32_t old_steps_above(const struct commit *c, uint64_t step) {
    uint32_t count = 0;
    uint64_t above = step;
    for (;;) { /* the next higher step each time */
        uint64_t next = UINT64_MAX;
        for (uint32_t i = 0; i < c->slot_count; i++) {
            const struct commit_slot *s = &c->slots[i];
            if (s->state == SLOT_COMMITTED && s->old && s->step > above && s->step <= c->resume_step &&
                s->step < next)
                next = s->step;
        }
        if (next == UINT64_MAX) return count;
        above = next;
        count++;
    }
}

/* Slots of an earlier life: which of their steps were durable is not known here, only that the one resumed
 * from was. Newer ones are leftovers. Of older ones the best alternative stays until a newer step is durable.
 * For a life that begins anew the first durable step replaces all of them, whatever the numbers. */
static bool old_is_needed(const struct commit *c, uint64_t step) {
    if (c->resume_step != 0 && step > c->resume_step) return false;
    if (c->declared > 0) return !c->anew && !below_kept(c, step);
    if (c->resume_step == 0) return true;
    return old_steps_above(c, step) < (c->keep < 2 ? 2 : c->keep);
}

static bool is_needed(const struct commit *c, const struct commit_slot *s) {
    if (s->old) return old_is_needed(c, s->step);
    return c->durable_count == 0 || s->step > c->durable[0] || is_durable(c, s->step);
}

static void retire(struct commit *c) {
    for (uint32_t i = 0; i < c->slot_count; i++)
        if (c->slots[i].state == SLOT_COMMITTED && !is_needed(c, &c->slots[i]))
            c->slots[i].state = SLOT_RETIRED;
}

/* Retired slots that nothing names any more can be written again. */
static void release(struct commit *c) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct commit_slot *s = &c->slots[i];
        if (s->state == SLOT_RETIRED && !s->named && !s->in_record) s->state = SLOT_FREE;
    }
}

void commit_forget(struct commit *c, uint64_t step) {
    if (is_durable(c, step)) return;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct commit_slot *s = &c->slots[i];
        if (s->state == SLOT_COMMITTED && !s->old && s->step == step) s->state = SLOT_RETIRED;
    }
    release(c);
}

/* ---- opening ---- */

bool commit_load(struct commit *c, uint32_t number, bool named, uint64_t step) {
    if (c->slot_count == COMMIT_SLOTS_MAX) return false;
    c->slots[c->slot_count++] = (struct commit_slot){.number = number,
                                                     .state = named ? SLOT_COMMITTED : SLOT_FREE,
                                                     .named = named,
                                                     .old = true,
                                                     .step = step};
    if (number >= c->next_number) c->next_number = number + 1;
    return true;
}

void commit_loaded(struct commit *c, uint64_t counter) {
    c->counter = counter;
    retire(c);
}

void commit_resume(struct commit *c, uint64_t resume_step) {
    c->resume_step = resume_step;
    c->durable[0] = resume_step;
    c->durable_count = 1;
    retire(c);
}

/* ---- saves ---- */

uint32_t commit_unreported(const struct commit *c) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->in_flight; i++) count += c->saves[i].phase != SAVE_IDLE;
    return count;
}

/* The slot of a save that failed or was given up. Its file is as good as before unless something went wrong
 * with it. */
static void give_back(struct commit *c, const struct commit_save *s) {
    if (s->slot == UINT32_MAX) return;
    struct commit_slot *slot = &c->slots[s->slot];
    if (s->spoiled)
        slot->state = SLOT_DEAD;
    else
        slot->state = s->fresh && s->phase == SAVE_PREPARE ? SLOT_GONE : SLOT_FREE;
}

/* Once nothing of a failed save is under way, its slot goes back and it can be reported. */
static void settle(struct commit *c, struct commit_save *s) {
    if (s->code == PAWL_OK || s->outstanding > 0 || s->phase == SAVE_DONE || s->phase == SAVE_IDLE) return;
    give_back(c, s);
    s->phase = SAVE_DONE;
}

static void fail(struct commit *c, struct commit_save *s, pawl_code code) {
    if (s->code == PAWL_OK) s->code = code;
    settle(c, s);
}

static bool can_give_up(const struct commit_save *s) {
    return s->phase != SAVE_IDLE && s->phase != SAVE_DONE && s->phase != SAVE_RECORDING;
}

void commit_cancel(struct commit *c, uint32_t save) {
    if (can_give_up(&c->saves[save])) fail(c, &c->saves[save], PAWL_CANCELLED);
}

pawl_code commit_begin(struct commit *c, const struct commit_request *request, uint32_t *save) {
    for (uint32_t i = 0; i < c->in_flight; i++) {
        struct commit_save *s = &c->saves[i];
        if (s->phase != SAVE_IDLE) continue;
        *s = (struct commit_save){
            .phase = SAVE_WAITS, .slot = UINT32_MAX, .order = ++c->order, .request = *request};
        if (below_kept(c, request->step)) commit_cancel(c, i);
        *save = i;
        return PAWL_OK;
    }
    return PAWL_BUSY;
}

void commit_durable(struct commit *c, uint64_t step) {
    if (step == 0 || (c->durable_count > 0 && step <= c->durable[0])) return;
    if (c->durable_count == c->keep) c->durable_count--;
    memmove(c->durable + 1, c->durable, c->durable_count * sizeof c->durable[0]);
    c->durable[0] = step;
    c->durable_count++;
    c->declared++;
    for (uint32_t i = 0; i < c->in_flight; i++) /* overtaken */
        if (below_kept(c, c->saves[i].request.step)) commit_cancel(c, i);
    retire(c);
    release(c);
}

void commit_abandon(struct commit *c, pawl_code code) {
    c->abandoned = true;
    for (uint32_t i = 0; i < c->in_flight; i++) {
        struct commit_save *s = &c->saves[i];
        if (can_give_up(s)) fail(c, s, code);
    }
}

static uint32_t count_slots(const struct commit *c, enum commit_slot_state state) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->slot_count; i++) count += c->slots[i].state == state;
    return count;
}

static uint32_t slots_wanted(const struct commit *c) { return c->in_flight + c->keep + 1; }

static uint32_t slots_alive(const struct commit *c) {
    return c->slot_count - count_slots(c, SLOT_GONE) - count_slots(c, SLOT_DEAD);
}

static uint32_t slot_in(const struct commit *c, enum commit_slot_state state) {
    uint32_t i = 0;
    while (i < c->slot_count && c->slots[i].state != state) i++;
    return i;
}

static void take(struct commit *c, struct commit_save *s, uint32_t slot, bool fresh) {
    c->slots[slot].state = SLOT_TAKEN;
    c->slots[slot].old = false;
    c->slots[slot].step = s->request.step;
    s->slot = slot;
    s->fresh = fresh;
    s->phase = SAVE_PREPARE;
}

static void take_fresh(struct commit *c, struct commit_save *s) {
    uint32_t slot = slot_in(c, SLOT_GONE);
    if (slot == COMMIT_SLOTS_MAX) {
        fail(c, s, PAWL_NO_SPACE);
        return;
    }
    if (slot == c->slot_count) c->slot_count++;
    c->slots[slot] = (struct commit_slot){.number = c->next_number++};
    take(c, s, slot, true);
}

/* The oldest save in `phase` that goes on, or that is done; in_flight when there is none. */
static uint32_t oldest(const struct commit *c, enum commit_phase phase) {
    uint32_t best = c->in_flight;
    for (uint32_t i = 0; i < c->in_flight; i++) {
        const struct commit_save *s = &c->saves[i];
        if (s->phase != phase || (s->code != PAWL_OK && phase != SAVE_DONE)) continue;
        if (best == c->in_flight || s->order < c->saves[best].order) best = i;
    }
    return best;
}

/* Slots for those who wait: a free one; else one more file; else (see commit_next) a record that frees one.
 */
static void assign(struct commit *c) {
    for (;;) {
        uint32_t i = oldest(c, SAVE_WAITS);
        if (i == c->in_flight) return;
        uint32_t slot = slot_in(c, SLOT_FREE);
        if (slot < c->slot_count) {
            take(c, &c->saves[i], slot, false);
            continue;
        }
        bool full = c->cramped || slots_alive(c) >= slots_wanted(c);
        if (full && count_slots(c, SLOT_RETIRED) > 0) return;
        take_fresh(c, &c->saves[i]);
    }
}

/* ---- actions ---- */

static bool act(struct commit *c, enum commit_do what, uint32_t save, enum commit_phase next,
                struct commit_action *out) {
    struct commit_save *s = &c->saves[save];
    *out = (struct commit_action){.what = what, .save = save, .slot = s->slot};
    s->phase = (uint8_t)next;
    s->outstanding++;
    return true;
}

static bool next_record(struct commit *c, struct commit_action *out) {
    if (c->recording || c->abandoned) return false;
    bool to_commit = oldest(c, SAVE_RECORD) < c->in_flight;
    bool to_free = oldest(c, SAVE_WAITS) < c->in_flight && count_slots(c, SLOT_RETIRED) > 0;
    if (!to_commit && !to_free) return false;
    for (uint32_t i = 0; i < c->slot_count; i++) c->slots[i].in_record = c->slots[i].state == SLOT_COMMITTED;
    for (uint32_t i = 0; i < c->in_flight; i++) {
        struct commit_save *s = &c->saves[i];
        if (s->phase != SAVE_RECORD) continue;
        s->phase = SAVE_RECORDING;
        s->outstanding++;
        c->slots[s->slot].in_record = true;
    }
    c->recording = true;
    c->counter++;
    *out = (struct commit_action){.what = COMMIT_RECORD, .save = UINT32_MAX, .slot = UINT32_MAX};
    return true;
}

/* Files that failed, and free ones beyond what saves in flight and kept steps can use. */
static bool next_discard(struct commit *c, struct commit_action *out) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct commit_slot *s = &c->slots[i];
        bool surplus = s->state == SLOT_FREE && slots_alive(c) > slots_wanted(c);
        if ((s->state != SLOT_DEAD && !surplus) || s->named || s->in_record) continue;
        s->state = SLOT_GONE;
        *out = (struct commit_action){.what = COMMIT_DISCARD, .save = UINT32_MAX, .slot = i};
        return true;
    }
    return false;
}

static bool next_report(struct commit *c, struct commit_action *out) {
    uint32_t i = oldest(c, SAVE_DONE);
    if (i == c->in_flight) return false;
    *out = (struct commit_action){
        .what = COMMIT_REPORT, .save = i, .slot = c->saves[i].slot, .code = c->saves[i].code};
    c->saves[i].phase = SAVE_IDLE;
    return true;
}

/* Chunks that could be written now: in place, or copied. */
static bool has_chunk(const struct commit_save *s) {
    uint64_t in_place = s->request.chunk_count - s->request.copy_count;
    return s->phase == SAVE_WRITING && s->code == PAWL_OK && s->write_next < in_place + s->copied;
}

/* Copies do not wait for a slot: the caller may be waiting for them. */
static bool has_copy(const struct commit_save *s) {
    return s->phase >= SAVE_WAITS && s->phase <= SAVE_WRITING && s->code == PAWL_OK &&
           s->copy_next < s->request.copy_count;
}

/* With all chunks handed out their checksums are known. */
static bool has_header(const struct commit_save *s) {
    return s->phase == SAVE_WRITING && s->code == PAWL_OK && s->header == HEADER_OPEN &&
           s->write_next == s->request.chunk_count;
}

static bool has_capture(const struct commit_save *s) {
    const struct commit_request *r = &s->request;
    return s->phase >= SAVE_WAITS && !s->captured && s->code == PAWL_OK && s->copied == r->copy_count &&
           (r->copy_count == r->chunk_count || s->written == r->chunk_count);
}

static uint32_t oldest_that(const struct commit *c, bool (*holds)(const struct commit_save *s)) {
    uint32_t best = c->in_flight;
    for (uint32_t i = 0; i < c->in_flight; i++)
        if (holds(&c->saves[i]) && (best == c->in_flight || c->saves[i].order < c->saves[best].order))
            best = i;
    return best;
}

static bool next_capture(struct commit *c, struct commit_action *out) {
    uint32_t i = oldest_that(c, has_capture);
    if (i == c->in_flight) return false;
    c->saves[i].captured = true;
    *out = (struct commit_action){.what = COMMIT_CAPTURED, .save = i, .slot = c->saves[i].slot};
    return true;
}

static bool next_transfer(struct commit *c, struct commit_room room, struct commit_action *out) {
    uint32_t i = oldest_that(c, has_header);
    if (i < c->in_flight) {
        c->saves[i].header = HEADER_WRITING;
        return act(c, COMMIT_HEADER, i, SAVE_WRITING, out);
    }
    i = room.write ? oldest_that(c, has_chunk) : c->in_flight;
    if (i < c->in_flight) {
        c->saves[i].write_next++;
        return act(c, COMMIT_WRITE, i, SAVE_WRITING, out);
    }
    i = room.copy ? oldest_that(c, has_copy) : c->in_flight;
    if (i == c->in_flight) return false;
    c->saves[i].copy_next++;
    return act(c, COMMIT_COPY, i, (enum commit_phase)c->saves[i].phase, out);
}

bool commit_next(struct commit *c, struct commit_room room, struct commit_action *out) {
    if (!c->abandoned) assign(c);
    if (next_capture(c, out)) return true;
    if (next_report(c, out)) return true;
    if (next_record(c, out)) return true;
    uint32_t i = oldest(c, SAVE_FLUSH);
    if (i < c->in_flight) return act(c, COMMIT_FLUSH, i, SAVE_FLUSHING, out);
    i = oldest(c, SAVE_PREPARE);
    if (i < c->in_flight) return act(c, COMMIT_PREPARE, i, SAVE_PREPARING, out);
    if (next_transfer(c, room, out)) return true;
    return !c->abandoned && next_discard(c, out);
}

/* ---- outcomes ---- */

static void record_ended(struct commit *c, pawl_code code) {
    c->recording = false;
    for (uint32_t i = 0; i < c->in_flight; i++) {
        struct commit_save *s = &c->saves[i];
        if (s->phase == SAVE_RECORDING) {
            s->outstanding--;
            if (code == PAWL_OK) {
                c->slots[s->slot].state = SLOT_COMMITTED;
                s->phase = SAVE_DONE;
            }
        }
        /* Who waits for a slot that this record would have freed must not wait for ever. */
        if (code == PAWL_OK || (s->phase != SAVE_RECORDING && s->phase != SAVE_WAITS)) continue;
        s->spoiled = s->phase == SAVE_RECORDING;
        fail(c, s, code);
    }
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct commit_slot *s = &c->slots[i];
        /* After a failure either record may be the one that a reader finds. */
        s->named = code == PAWL_OK ? s->in_record : s->named || s->in_record;
        s->in_record = false;
    }
    retire(c);
    release(c);
}

static void prepared(struct commit *c, struct commit_save *s, pawl_code code) {
    if (code == PAWL_OK) {
        s->phase = SAVE_WRITING;
    } else if (code == PAWL_NO_SPACE && s->fresh && s->code == PAWL_OK && count_slots(c, SLOT_RETIRED) > 0) {
        c->cramped = true;
        c->slots[s->slot].state = SLOT_DEAD;
        s->slot = UINT32_MAX;
        s->phase = SAVE_WAITS;
    }
}

/* Does this failure leave the slot's file in doubt? An existing one without room to grow is as it was. */
static bool spoils(const struct commit_save *s, enum commit_do what, pawl_code code) {
    if (what == COMMIT_COPY) return false;
    return what != COMMIT_PREPARE || code != PAWL_NO_SPACE || s->fresh;
}

static void advance(struct commit_save *s, enum commit_do what) {
    if (what == COMMIT_COPY) s->copied++;
    if (what == COMMIT_WRITE) s->written++;
    if (what == COMMIT_HEADER) s->header = HEADER_WRITTEN;
    if (what == COMMIT_FLUSH) s->phase = SAVE_RECORD;
    if (s->phase == SAVE_WRITING && s->header == HEADER_WRITTEN && s->written == s->request.chunk_count)
        s->phase = SAVE_FLUSH;
}

void commit_tell(struct commit *c, enum commit_do what, uint32_t save, pawl_code code) {
    if (what == COMMIT_RECORD) {
        record_ended(c, code);
        return;
    }
    struct commit_save *s = &c->saves[save];
    s->outstanding--;
    if (what == COMMIT_PREPARE) {
        prepared(c, s, code);
        if (s->phase == SAVE_WAITS) return;
    }
    if (code != PAWL_OK) {
        s->spoiled = s->spoiled || spoils(s, what, code);
        fail(c, s, code);
        return;
    }
    advance(s, what);
    settle(c, s);
}
