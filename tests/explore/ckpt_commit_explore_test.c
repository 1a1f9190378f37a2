/* The commit core under every order of events: up to three saves of two chunks with failures, begin and
 * durable calls at any moment. Breadth first, so the order printed on a failure is a shortest one.
 *
 * Beside the core stands a model of the disk that knows nothing of the core's reasons: what each slot holds,
 * which record stands, which may stand after a crash. Checked after every event:
 *   - a slot named by a record that may stand is never opened for writing, written, or removed (R1);
 *   - what such a record names was written in full: chunks, flush, header (R2);
 *   - a save is reported OK only when the standing record names it, and it stays named until a newer step is
 * durable or it cannot be needed (R3, R4);
 *   - each save is reported once, with nothing of it under way (R5);
 *   - when nothing is under way, every save has been reported (no stuck job). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/commit.h"

#define SAVES  3u
#define CHUNKS 2u
#define SLOTS  12u
#define DEPTH  64u

enum progress { EMPTY = 0, ALL_CHUNKS = CHUNKS, FLUSHED, COMPLETE };

struct content { /* of a slot, by its place in the core's table */
    uint8_t step, progress;
};

struct record_model {
    uint8_t steps[SLOTS]; /* 0: not named */
};

struct model {
    struct commit core;
    struct content slots[SLOTS];
    struct record_model standing, written; /* durable; being written */
    bool may_stand_too;                    /* a record whose write failed may be found as well */
    struct record_model failed;
    struct commit_action pending[16];
    uint8_t pending_count, begun, durable, reported[SAVES + 1], committed[SAVES + 1];
    uint8_t failures_left;
    uint8_t base; /* new saves are steps base+1, base+2, ...; below they are called 1, 2, ... */
};

struct bounds {
    uint32_t in_flight, keep, old_slots;
    uint64_t resume_step;
    uint8_t saves, failures, forgets;
};

static const char *broken; /* what rule, set by the checks */

static void rule(bool holds, const char *text) {
    if (!holds && broken == NULL) broken = text;
}

static bool names(const struct record_model *r, uint32_t slot) { return r->steps[slot] != 0; }

static bool may_be_read(const struct model *m, uint32_t slot) {
    return names(&m->standing, slot) || (m->may_stand_too && names(&m->failed, slot)) ||
           (m->core.recording && names(&m->written, slot));
}

static void check_record(const struct model *m, const struct record_model *r) {
    for (uint32_t i = 0; i < SLOTS; i++)
        if (r->steps[i] != 0) {
            rule(m->slots[i].step == r->steps[i], "a record names a slot that holds another save");
            rule(m->slots[i].progress == COMPLETE, "a record names a slot that is not complete");
        }
}

/* Is a committed step still needed, by the contract of ckpt_durable? */
static bool needed(const struct model *m, uint8_t step, uint32_t keep) {
    if (m->committed[step] == 3) return false; /* forgotten */
    if (step >= m->durable) return true;
    return keep > 1 && m->committed[step] == 2; /* 2: it was declared durable itself */
}

static void check(const struct model *m, uint32_t keep) {
    check_record(m, &m->standing);
    if (m->may_stand_too) check_record(m, &m->failed);
    if (m->core.recording) check_record(m, &m->written);
    for (uint8_t step = 1; step <= SAVES; step++) {
        if (m->committed[step] == 0 || !needed(m, step, keep)) continue;
        bool found = false, found_next = !m->core.recording, found_failed = !m->may_stand_too;
        for (uint32_t i = 0; i < SLOTS; i++) {
            found = found || m->standing.steps[i] == m->base + step;
            found_next = found_next || m->written.steps[i] == m->base + step;
            found_failed = found_failed || m->failed.steps[i] == m->base + step;
        }
        rule(found && found_next && found_failed, "a committed step that is needed is in no record");
    }
    if (m->pending_count == 0 && m->begun > 0)
        for (uint8_t step = 1; step <= m->begun; step++) rule(m->reported[step] == 1, "a save is stuck");
}

static void perform(struct model *m, const struct commit_action *a) {
    uint8_t step = a->save < COMMIT_SAVES_MAX ? (uint8_t)(m->core.saves[a->save].step - m->base) : 0;
    bool writes = a->what == COMMIT_PREPARE || a->what == COMMIT_CHUNK || a->what == COMMIT_HEADER ||
                  a->what == COMMIT_DISCARD;
    if (writes) rule(a->slot < SLOTS && !may_be_read(m, a->slot), "a slot is touched that a record may name");
    switch (a->what) {
    case COMMIT_PREPARE:
        m->slots[a->slot] = (struct content){(uint8_t)(m->base + step), EMPTY};
        break;
    case COMMIT_RECORD:
        memset(&m->written, 0, sizeof m->written);
        for (uint32_t i = 0; i < m->core.slot_count; i++)
            if (m->core.slots[i].in_record) m->written.steps[i] = (uint8_t)m->core.slots[i].step;
        break;
    case COMMIT_REPORT:
        rule(++m->reported[step] == 1, "a save is reported twice");
        for (uint32_t i = 0; i < m->pending_count; i++)
            rule(m->pending[i].what == COMMIT_RECORD || m->pending[i].save != a->save,
                 "a save is reported while something of it is under way");
        if (a->code != PAWL_OK) return;
        rule(m->standing.steps[a->slot] == m->base + step,
             "a save is reported OK that the standing record does not name");
        m->committed[step] = 1;
        return;
    case COMMIT_DISCARD:
        m->slots[a->slot] = (struct content){0, EMPTY};
        return;
    case COMMIT_CHUNK:
    case COMMIT_FLUSH:
    case COMMIT_HEADER:
        break;
    }
    m->pending[m->pending_count++] = *a;
}

static void pump(struct model *m) {
    struct commit_action a;
    while (commit_next(&m->core, true, &a)) perform(m, &a);
}

/* What the device did for an action that succeeded. */
static void take_effect(struct model *m, const struct commit_action *a) {
    struct content *slot = a->slot < SLOTS ? &m->slots[a->slot] : NULL;
    if (a->what == COMMIT_CHUNK) slot->progress++;
    if (a->what == COMMIT_FLUSH && slot->progress == ALL_CHUNKS) slot->progress = FLUSHED;
    if (a->what == COMMIT_HEADER && slot->progress == FLUSHED) slot->progress = COMPLETE;
    if (a->what != COMMIT_RECORD) return;
    m->standing = m->written;
    m->may_stand_too = false;
}

/* Event numbers: 0 begin, 1..SAVES durable(step), as many forget(step), then 3 per pending action: done,
 * failed IO, failed NO_SPACE. */
#define EVENT_FORGET  (1u + SAVES)
#define EVENT_PENDING (1u + 2 * SAVES)

static bool apply(struct model *m, uint32_t event, const struct bounds *b) {
    if (event == 0) {
        uint32_t save;
        if (m->begun == b->saves || commit_begin(&m->core, m->base + m->begun + 1u, CHUNKS, &save) != PAWL_OK)
            return false;
        m->begun++;
    } else if (event >= EVENT_FORGET && event < EVENT_PENDING) {
        uint8_t step = (uint8_t)(event - EVENT_FORGET + 1);
        if (b->forgets == 0 || m->committed[step] != 1) return false;
        m->committed[step] = 3;
        commit_forget(&m->core, m->base + step);
    } else if (event < EVENT_FORGET) {
        uint8_t step = (uint8_t)event;
        if (m->committed[step] != 1 || step <= m->durable) return false;
        m->durable = step;
        m->committed[step] = 2;
        commit_durable(&m->core, m->base + step);
    } else {
        uint32_t at = (event - EVENT_PENDING) / 3, how = (event - EVENT_PENDING) % 3;
        if (at >= m->pending_count || (how > 0 && m->failures_left == 0)) return false;
        struct commit_action a = m->pending[at];
        if (how == 2 && a.what != COMMIT_PREPARE) return false;
        for (uint32_t i = at + 1; i < m->pending_count; i++) m->pending[i - 1] = m->pending[i];
        m->pending_count--;
        if (how == 0) take_effect(m, &a);
        if (how > 0) m->failures_left--;
        if (how > 0 && a.what == COMMIT_RECORD) {
            m->may_stand_too = true;
            m->failed = m->written;
        }
        commit_tell(&m->core, a.what, a.save, how == 0 ? PAWL_OK : how == 1 ? PAWL_IO : PAWL_NO_SPACE);
    }
    pump(m);
    check(m, b->keep);
    return true;
}

static void start(struct model *m, const struct bounds *b) {
    memset(m, 0, sizeof *m);
    commit_init(&m->core, b->in_flight, b->keep, b->resume_step);
    for (uint32_t i = 0; i < b->old_slots; i++) { /* steps 101, 102, ... of an earlier life */
        (void)commit_load(&m->core, i, true, 101 + i);
        m->slots[i] = (struct content){(uint8_t)(101 + i), COMPLETE};
        m->standing.steps[i] = (uint8_t)(101 + i);
    }
    commit_loaded(&m->core, 1);
    m->failures_left = b->failures;
    m->base = (uint8_t)b->resume_step;
    pump(m);
}

/* ---- breadth first ---- */

struct node {
    uint32_t parent;
    uint8_t event, depth;
};

static struct node *nodes;
static uint32_t node_count, node_room;
static uint64_t *seen; /* open addressing; 0 is empty */
static uint64_t seen_room;

static bool remember(uint64_t key) {
    if (key == 0) key = 1;
    uint64_t at = key & (seen_room - 1);
    while (seen[at] != 0 && seen[at] != key) at = (at + 1) & (seen_room - 1);
    if (seen[at] == key) return false;
    seen[at] = key;
    return true;
}

/* Field by field, since padding differs between equal states. */
static uint8_t flat[4 * sizeof(struct model)];
static size_t flat_size;

static void put(uint64_t v) {
    memcpy(flat + flat_size, &v, sizeof v);
    flat_size += sizeof v;
}

static void put_core(const struct commit *c) {
    const uint64_t scalars[] = {c->in_flight, c->keep,    c->resume_step, c->order,         c->next_number,
                                c->recording, c->cramped, c->abandoned,   c->durable_count, c->declared};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) put(scalars[i]);
    for (uint32_t i = 0; i < c->durable_count; i++) put(c->durable[i]);
    for (uint32_t i = 0; i < c->slot_count; i++) {
        const struct commit_slot *t = &c->slots[i];
        put((uint64_t)t->number << 32 | (uint64_t)t->state << 24 | (uint64_t)t->named << 16 |
            (uint64_t)t->in_record << 8 | t->old);
        put(t->step);
    }
    for (uint32_t i = 0; i < c->in_flight; i++) {
        const struct commit_save *v = &c->saves[i];
        put((uint64_t)v->phase << 32 | v->slot);
        put((uint64_t)v->fresh << 32 | v->outstanding);
        put((uint64_t)v->code);
        put(v->order), put(v->step);
        put(v->chunk_count), put(v->chunk_next), put(v->chunk_done);
    }
}

/* Counters that only grow do not matter to what can happen next: core.counter is left out. */
static uint64_t key_of(const struct model *m) {
    flat_size = 0;
    put_core(&m->core);
    for (uint32_t i = 0; i < m->pending_count; i++) {
        const struct commit_action *a = &m->pending[i];
        put((uint64_t)a->what << 32 | a->save);
        put((uint64_t)a->slot << 32 | (uint64_t)a->code);
        put(a->chunk);
    }
    const uint8_t *parts[] = {(const uint8_t *)m->slots, m->standing.steps, m->written.steps,
                              m->failed.steps,           m->reported,       m->committed};
    const size_t sizes[] = {sizeof m->slots, SLOTS, SLOTS, SLOTS, sizeof m->reported, sizeof m->committed};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(flat + flat_size, parts[i], sizes[i]);
        flat_size += sizes[i];
    }
    const uint64_t tail[] = {m->may_stand_too, m->pending_count, m->begun,
                             m->durable,       m->failures_left, m->base};
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++) put(tail[i]);
    return hash64(flat, flat_size);
}

static void replay(struct model *m, uint32_t node, const struct bounds *b) {
    uint8_t events[DEPTH];
    uint32_t count = nodes[node].depth;
    for (uint32_t at = node, i = count; i > 0; at = nodes[at].parent) events[--i] = nodes[at].event;
    start(m, b);
    for (uint32_t i = 0; i < count; i++) (void)apply(m, events[i], b);
}

static void print_order(uint32_t node, uint32_t last, const struct bounds *b) {
    static const char *const actions[] = {"prepare", "chunk",  "flush",  "header",
                                          "record",  "report", "discard"};
    static const char *const hows[] = {"done", "fails", "has no space"};
    struct model m;
    uint8_t events[DEPTH + 1];
    uint32_t count = nodes[node].depth;
    for (uint32_t at = node, i = count; i > 0; at = nodes[at].parent) events[--i] = nodes[at].event;
    events[count++] = (uint8_t)last;
    start(&m, b);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t event = events[i];
        if (event == 0) print_error("  begin step %u\n", m.begun + 1u);
        if (event > 0 && event < EVENT_FORGET) print_error("  durable step %u\n", event);
        if (event >= EVENT_FORGET && event < EVENT_PENDING)
            print_error("  forget step %u\n", event - EVENT_FORGET + 1);
        if (event >= EVENT_PENDING) {
            const struct commit_action *a = &m.pending[(event - EVENT_PENDING) / 3];
            print_error("  %s of save %d, slot %d: %s\n", actions[a->what], (int)a->save, (int)a->slot,
                        hows[(event - EVENT_PENDING) % 3]);
        }
        (void)apply(&m, event, b);
    }
}

static void add_node(uint32_t parent, uint32_t event) {
    if (node_count == node_room) {
        node_room = node_room == 0 ? 1024 : 2 * node_room;
        nodes = realloc(nodes, node_room * sizeof *nodes);
        assert_non_null(nodes);
    }
    uint8_t depth = node_count == 0 ? 0 : (uint8_t)(nodes[parent].depth + 1);
    assert_true(depth < DEPTH);
    nodes[node_count++] = (struct node){parent, (uint8_t)event, depth};
}

static void explore(const struct bounds *b) {
    static struct model at, next;
    seen_room = 1u << 23;
    seen = calloc(seen_room, sizeof *seen);
    assert_non_null(seen);
    node_count = 0;
    add_node(0, 0);
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < node_count; i++) {
        replay(&at, i, b);
        if (nodes[i].depth > deepest) deepest = nodes[i].depth;
        uint32_t events = EVENT_PENDING + 3u * at.pending_count;
        for (uint32_t event = 0; event < events; event++) {
            next = at;
            if (!apply(&next, event, b)) continue;
            if (broken != NULL) {
                print_error("%s, after:\n", broken);
                print_order(i, event, b);
                fail();
            }
            if (remember(key_of(&next))) add_node(i, event);
            assert_true(node_count < seen_room / 2);
        }
    }
    print_message("in flight %u, kept %u, old slots %u, failures %u: %u states, %u events deep\n",
                  b->in_flight, b->keep, b->old_slots, b->failures, node_count, deepest);
    free(seen);
    free(nodes);
    nodes = NULL;
    node_room = 0;
}

static void no_order_of_events_breaks_a_rule(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .saves = 3, .failures = 2},
        {.in_flight = 2, .keep = 1, .saves = 3, .failures = 1},
        {.in_flight = 2, .keep = 2, .saves = 3, .failures = 1},
        {.in_flight = 3, .keep = 1, .saves = 3, .failures = 0},
        {.in_flight = 3, .keep = 1, .saves = 3, .failures = 2},
        {.in_flight = 3, .keep = 2, .saves = 3, .failures = 2, .forgets = 1},
        {.in_flight = 1, .keep = 2, .saves = 3, .failures = 1, .forgets = 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

/* Old slots retired at open are named until the first record of this life; their reuse is the dangerous part.
 */
static void leftovers_of_an_earlier_life_are_reused_safely(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .saves = 3, .failures = 2, .old_slots = 3, .resume_step = 50},
        {.in_flight = 2, .keep = 1, .saves = 3, .failures = 2, .old_slots = 5, .resume_step = 50},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_events_breaks_a_rule),
        cmocka_unit_test(leftovers_of_an_earlier_life_are_reused_safely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
