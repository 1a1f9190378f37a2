/* The commit core under every order of events: up to three saves with failures, begin, cancel, durable and
 * forget calls at any moment, chunks in place or copied through a pool of one or two buffers. Breadth first,
 * so the order printed on a failure is a shortest one.
 *
 * Beside the core stands a model of the disk that knows nothing of the core's reasons: what each slot holds,
 * which record stands, which may stand after a crash. Checked after every event:
 *   - a slot named by a record that may stand is never opened for writing, written, or removed, and no save
 * writes into a slot that another has taken (R1);
 *   - what such a record names was written in full, then flushed: chunks and header (R2);
 *   - a save is reported OK only when the standing record names it, and it stays named until a newer step is
 * durable or it cannot be needed (R3, R4);
 *   - each save is reported once, with nothing of it under way (R5), and captured at most once, before, with
 * every chunk copied or written (R6);
 *   - a save given up or overtaken before a record named it is not reported OK, nobody else is CANCELLED, and
 * its slot is not lost;
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

#define SAVES 3u
#define SLOTS 12u
#define DEPTH 80u

struct content { /* of a slot, by its place in the core's table */
    uint8_t step, written, header;
    uint8_t covered; /* a flush was begun with everything written */
    uint8_t complete;
};

struct record_model {
    uint8_t steps[SLOTS]; /* 0: not named */
};

struct pending {
    struct commit_action action;
    uint8_t step;
    bool copied; /* of a write: the chunk came from a buffer */
};

struct saving {                             /* of one step */
    uint8_t copies, ready, copied, written; /* chunks to copy; copied and not being written; ... */
    uint8_t captured, reported, committed;
    bool asked, must_not_count; /* to be cancelled; before a record named it */
};

struct model {
    struct commit core;
    struct content slots[SLOTS];
    struct record_model standing, written; /* durable; being written */
    bool may_stand_too;                    /* a record whose write failed may be found as well */
    struct record_model failed;
    struct pending pending[16];
    struct saving saves[SAVES + 1];
    uint8_t pending_count, begun, durable, buffers_used;
    uint8_t failures_left, cancels_left;
    uint8_t base; /* new saves are steps base+1, base+2, ...; below they are called 1, 2, ... */
};

struct bounds {
    uint32_t in_flight, keep, old_slots;
    uint64_t resume_step;
    uint8_t saves, chunks, buffers, failures, forgets, cancels;
    bool in_place, mixed, copied; /* kinds of saves to begin */
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
            rule(m->slots[i].complete, "a record names a slot that is not complete");
        }
}

/* Is a committed step still needed, by the contract of ckpt_durable? */
static bool needed(const struct model *m, uint8_t step, uint32_t keep) {
    uint8_t committed = m->saves[step].committed;
    if (committed == 3) return false; /* forgotten */
    if (step >= m->durable) return true;
    return keep > 1 && committed == 2; /* 2: it was declared durable itself */
}

/* Older than the `keep` newest durable steps. */
static bool is_overtaken(const struct model *m, uint8_t step, uint32_t keep) {
    uint32_t newer = 0;
    for (uint8_t i = (uint8_t)(step + 1); i <= SAVES; i++) newer += m->saves[i].committed == 2;
    return newer >= keep;
}

static void check(const struct model *m, uint32_t keep) {
    check_record(m, &m->standing);
    if (m->may_stand_too) check_record(m, &m->failed);
    if (m->core.recording) check_record(m, &m->written);
    for (uint8_t step = 1; step <= SAVES; step++) {
        if (m->saves[step].committed == 0 || !needed(m, step, keep)) continue;
        bool found = false, found_next = !m->core.recording, found_failed = !m->may_stand_too;
        for (uint32_t i = 0; i < SLOTS; i++) {
            found = found || m->standing.steps[i] == m->base + step;
            found_next = found_next || m->written.steps[i] == m->base + step;
            found_failed = found_failed || m->failed.steps[i] == m->base + step;
        }
        rule(found && found_next && found_failed, "a committed step that is needed is in no record");
    }
    if (m->pending_count == 0 && m->begun > 0)
        for (uint8_t step = 1; step <= m->begun; step++)
            rule(m->saves[step].reported == 1, "a save is stuck");
}

static void check_report(struct model *m, const struct commit_action *a, uint8_t step,
                         const struct bounds *b) {
    struct saving *s = &m->saves[step];
    rule(++s->reported == 1, "a save is reported twice");
    for (uint32_t i = 0; i < m->pending_count; i++)
        rule(m->pending[i].action.what == COMMIT_RECORD || m->pending[i].action.save != a->save,
             "a save is reported while something of it is under way");
    m->buffers_used = (uint8_t)(m->buffers_used - s->ready);
    s->ready = 0;
    if (a->code == PAWL_OK) {
        rule(m->standing.steps[a->slot] == m->base + step,
             "a save is reported OK that the standing record does not name");
        rule(s->captured == 1, "a save is reported OK and was never captured");
        rule(!s->must_not_count, "a save counts that was given up in time");
        s->committed = 1;
    }
    if (a->code != PAWL_CANCELLED) return;
    for (uint32_t i = 0; i < SLOTS; i++)
        rule(m->standing.steps[i] != m->base + step, "a save is said to be given up and counts");
    rule(s->asked || is_overtaken(m, step, b->keep), "a save is given up for no reason");
    if (m->failures_left == b->failures && a->slot != UINT32_MAX)
        rule(m->core.slots[a->slot].state != SLOT_DEAD, "the slot of a save that was given up is lost");
}

static void check_capture(struct model *m, uint8_t step, uint8_t chunks) {
    struct saving *s = &m->saves[step];
    rule(++s->captured == 1, "a save is captured twice");
    rule(s->reported == 0, "a save is captured after its end");
    rule(s->copied == s->copies && (s->copies == chunks || s->written == chunks),
         "a save is captured before all of it was copied or written");
}

static void perform(struct model *m, const struct commit_action *a, const struct bounds *b) {
    uint8_t step = a->save < COMMIT_SAVES_MAX ? (uint8_t)(m->core.saves[a->save].request.step - m->base) : 0;
    struct saving *s = &m->saves[step];
    struct content *slot = a->slot < SLOTS ? &m->slots[a->slot] : NULL;
    struct pending doing = {.action = *a, .step = step};
    bool writes = a->what == COMMIT_PREPARE || a->what == COMMIT_WRITE || a->what == COMMIT_HEADER ||
                  a->what == COMMIT_DISCARD;
    if (writes) rule(slot != NULL && !may_be_read(m, a->slot), "a slot is touched that a record may name");
    if (a->what != COMMIT_REPORT && a->what != COMMIT_CAPTURED && step > 0)
        rule(m->core.saves[a->save].code == PAWL_OK, "something is begun for a save that has failed");
    switch (a->what) {
    case COMMIT_PREPARE:
        for (uint32_t i = 0; i < m->pending_count; i++)
            rule(m->pending[i].action.slot != a->slot || m->pending[i].step == 0 ||
                     m->pending[i].step == step,
                 "a slot is taken while something of another save is under way in it");
        *slot = (struct content){.step = (uint8_t)(m->base + step)};
        break;
    case COMMIT_COPY:
        rule(m->buffers_used++ < b->buffers, "a copy without a buffer");
        break;
    case COMMIT_WRITE:
        doing.copied = s->ready > 0;
        if (doing.copied) s->ready--;
        break;
    case COMMIT_FLUSH:
        slot->covered = slot->written == b->chunks && slot->header;
        break;
    case COMMIT_RECORD:
        memset(&m->written, 0, sizeof m->written);
        for (uint32_t i = 0; i < m->core.slot_count; i++)
            if (m->core.slots[i].in_record) m->written.steps[i] = (uint8_t)m->core.slots[i].step;
        break;
    case COMMIT_CAPTURED:
        check_capture(m, step, b->chunks);
        return;
    case COMMIT_REPORT:
        check_report(m, a, step, b);
        return;
    case COMMIT_DISCARD:
        *slot = (struct content){0};
        return;
    case COMMIT_HEADER:
        break;
    }
    m->pending[m->pending_count++] = doing;
}

static void pump(struct model *m, const struct bounds *b) {
    struct commit_action a;
    while (commit_next(&m->core, (struct commit_room){m->buffers_used < b->buffers, true}, &a))
        perform(m, &a, b);
}

/* What the device did for an action that succeeded. */
static void take_effect(struct model *m, const struct pending *p) {
    struct content *slot = p->action.slot < SLOTS ? &m->slots[p->action.slot] : NULL;
    struct saving *s = &m->saves[p->step];
    if (p->action.what == COMMIT_COPY) s->ready++, s->copied++;
    if (p->action.what == COMMIT_WRITE) slot->written++, s->written++;
    if (p->action.what == COMMIT_HEADER) slot->header = 1;
    if (p->action.what == COMMIT_FLUSH) slot->complete = slot->covered;
    if (p->step > 0 && slot != NULL && p->action.what != COMMIT_COPY)
        rule(slot->step == m->base + p->step, "a save writes into the slot of another");
    if (p->action.what != COMMIT_RECORD) return;
    m->standing = m->written;
    m->may_stand_too = false;
}

static void give_back_buffer(struct model *m, const struct pending *p, bool done) {
    bool held = p->action.what == COMMIT_COPY ? !done : p->action.what == COMMIT_WRITE && p->copied;
    if (held) m->buffers_used--;
}

/* From here on the save must not count, unless a record that names it is being written or stands. */
static void given_up(struct model *m, uint8_t step) {
    bool named = false;
    for (uint32_t i = 0; i < SLOTS; i++)
        named = named || m->standing.steps[i] == m->base + step ||
                (m->core.recording && m->written.steps[i] == m->base + step);
    if (!named && m->saves[step].reported == 0) m->saves[step].must_not_count = true;
}

/* Event numbers: 0 to 2 begin (in place, mixed, copied), then for each save durable, forget, cancel, then 3
 * per pending action: done, failed IO, failed NO_SPACE. */
#define EVENT_DURABLE 3u
#define EVENT_FORGET  (EVENT_DURABLE + SAVES)
#define EVENT_CANCEL  (EVENT_FORGET + SAVES)
#define EVENT_PENDING (EVENT_CANCEL + SAVES)

static bool begin(struct model *m, uint32_t kind, const struct bounds *b) {
    uint32_t save;
    if ((kind == 0 && !b->in_place) || (kind == 1 && !b->mixed) || (kind == 2 && !b->copied)) return false;
    uint8_t copies = kind == 0 ? 0 : kind == 1 ? 1 : b->chunks;
    struct commit_request request = {m->base + m->begun + 1u, b->chunks, copies};
    if (m->begun == b->saves || commit_begin(&m->core, &request, &save) != PAWL_OK) return false;
    m->saves[++m->begun].copies = copies;
    return true;
}

static bool declare(struct model *m, uint8_t step, const struct bounds *b) {
    if (m->saves[step].committed != 1 || step <= m->durable) return false;
    m->durable = step;
    m->saves[step].committed = 2;
    for (uint8_t i = 1; i <= m->begun; i++)
        if (is_overtaken(m, i, b->keep)) given_up(m, i);
    commit_durable(&m->core, m->base + step);
    return true;
}

static bool forget(struct model *m, uint8_t step, const struct bounds *b) {
    if (b->forgets == 0 || m->saves[step].committed != 1) return false;
    m->saves[step].committed = 3;
    commit_forget(&m->core, m->base + step);
    return true;
}

static bool cancel(struct model *m, uint8_t step) {
    struct saving *s = &m->saves[step];
    if (m->cancels_left == 0 || step > m->begun || s->reported > 0 || s->asked) return false;
    m->cancels_left--;
    s->asked = true;
    given_up(m, step);
    for (uint32_t i = 0; i < m->core.in_flight; i++)
        if (m->core.saves[i].phase != SAVE_IDLE && m->core.saves[i].request.step == m->base + step)
            commit_cancel(&m->core, i);
    return true;
}

static bool end(struct model *m, uint32_t at, uint32_t how) {
    if (at >= m->pending_count || (how > 0 && m->failures_left == 0)) return false;
    struct pending p = m->pending[at];
    if (how == 2 && p.action.what != COMMIT_PREPARE) return false;
    for (uint32_t i = at + 1; i < m->pending_count; i++) m->pending[i - 1] = m->pending[i];
    m->pending_count--;
    give_back_buffer(m, &p, how == 0);
    if (how == 0) take_effect(m, &p);
    if (how > 0) m->failures_left--;
    if (how > 0 && p.action.what == COMMIT_RECORD) {
        m->may_stand_too = true;
        m->failed = m->written;
    }
    commit_tell(&m->core, p.action.what, p.action.save,
                how == 0   ? PAWL_OK
                : how == 1 ? PAWL_IO
                           : PAWL_NO_SPACE);
    return true;
}

static bool apply(struct model *m, uint32_t event, const struct bounds *b) {
    bool happened;
    if (event < EVENT_DURABLE)
        happened = begin(m, event, b);
    else if (event < EVENT_FORGET)
        happened = declare(m, (uint8_t)(event - EVENT_DURABLE + 1), b);
    else if (event < EVENT_CANCEL)
        happened = forget(m, (uint8_t)(event - EVENT_FORGET + 1), b);
    else if (event < EVENT_PENDING)
        happened = cancel(m, (uint8_t)(event - EVENT_CANCEL + 1));
    else
        happened = end(m, (event - EVENT_PENDING) / 3, (event - EVENT_PENDING) % 3);
    if (!happened) return false;
    pump(m, b);
    check(m, b->keep);
    return true;
}

static void start(struct model *m, const struct bounds *b) {
    memset(m, 0, sizeof *m);
    commit_init(&m->core, b->in_flight, b->keep, b->resume_step);
    for (uint32_t i = 0; i < b->old_slots; i++) { /* steps 101, 102, ... of an earlier life */
        (void)commit_load(&m->core, i, true, 101 + i);
        m->slots[i] = (struct content){.step = (uint8_t)(101 + i), .complete = 1};
        m->standing.steps[i] = (uint8_t)(101 + i);
    }
    commit_loaded(&m->core, 1);
    m->failures_left = b->failures;
    m->cancels_left = b->cancels;
    m->base = (uint8_t)b->resume_step;
    pump(m, b);
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
        put((uint64_t)v->fresh << 32 | (uint64_t)v->spoiled << 16 | v->captured);
        put((uint64_t)v->header << 32 | v->outstanding);
        put((uint64_t)v->code);
        put(v->order), put(v->request.step), put(v->request.copy_count);
        put(v->copy_next << 16 | v->copied), put(v->write_next << 16 | v->written);
    }
}

/* Counters that only grow do not matter to what can happen next: core.counter is left out. */
static uint64_t key_of(const struct model *m) {
    flat_size = 0;
    put_core(&m->core);
    for (uint32_t i = 0; i < m->pending_count; i++) {
        const struct commit_action *a = &m->pending[i].action;
        put((uint64_t)a->what << 32 | a->save);
        put((uint64_t)a->slot << 32 | (uint64_t)m->pending[i].copied << 16 | m->pending[i].step);
    }
    for (uint32_t i = 1; i <= SAVES; i++) {
        const struct saving *s = &m->saves[i];
        put((uint64_t)s->copies << 32 | (uint64_t)s->ready << 16 | s->copied);
        put((uint64_t)s->written << 32 | (uint64_t)s->captured << 16 | s->reported);
        put((uint64_t)s->committed << 32 | (uint64_t)s->asked << 16 | s->must_not_count);
    }
    const uint8_t *parts[] = {(const uint8_t *)m->slots, m->standing.steps, m->written.steps,
                              m->failed.steps};
    const size_t sizes[] = {sizeof m->slots, SLOTS, SLOTS, SLOTS};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(flat + flat_size, parts[i], sizes[i]);
        flat_size += sizes[i];
    }
    const uint64_t tail[] = {m->may_stand_too, m->pending_count, m->begun,        m->durable,
                             m->failures_left, m->cancels_left,  m->buffers_used, m->base};
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
    static const char *const actions[] = {"prepare", "copy",    "write",  "header", "flush",
                                          "record",  "capture", "report", "discard"};
    static const char *const kinds[] = {"in place", "mixed", "copied"};
    static const char *const hows[] = {"done", "fails", "has no space"};
    struct model m;
    uint8_t events[DEPTH + 1];
    uint32_t count = nodes[node].depth;
    for (uint32_t at = node, i = count; i > 0; at = nodes[at].parent) events[--i] = nodes[at].event;
    events[count++] = (uint8_t)last;
    start(&m, b);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t event = events[i];
        if (event < EVENT_DURABLE) print_error("  begin step %u, %s\n", m.begun + 1u, kinds[event]);
        if (event >= EVENT_DURABLE && event < EVENT_FORGET)
            print_error("  durable step %u\n", event - EVENT_DURABLE + 1);
        if (event >= EVENT_FORGET && event < EVENT_CANCEL)
            print_error("  forget step %u\n", event - EVENT_FORGET + 1);
        if (event >= EVENT_CANCEL && event < EVENT_PENDING)
            print_error("  cancel step %u\n", event - EVENT_CANCEL + 1);
        if (event >= EVENT_PENDING) {
            const struct commit_action *a = &m.pending[(event - EVENT_PENDING) / 3].action;
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
    print_message("in flight %u, kept %u, old slots %u, failures %u, cancels %u, buffers %u: %u states, %u "
                  "events deep\n",
                  b->in_flight, b->keep, b->old_slots, b->failures, b->cancels, b->buffers, node_count,
                  deepest);
    free(seen);
    free(nodes);
    nodes = NULL;
    node_room = 0;
}

#define IN_PLACE .saves = 3, .chunks = 2, .in_place = true

static void no_order_of_events_breaks_a_rule(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .failures = 2, IN_PLACE},
        {.in_flight = 2, .keep = 1, .failures = 1, IN_PLACE},
        {.in_flight = 2, .keep = 2, .failures = 1, IN_PLACE},
        {.in_flight = 3, .keep = 1, .failures = 0, IN_PLACE},
        {.in_flight = 3, .keep = 1, .failures = 2, IN_PLACE},
        {.in_flight = 3, .keep = 2, .failures = 2, .forgets = 1, IN_PLACE},
        {.in_flight = 1, .keep = 2, .failures = 1, .forgets = 1, IN_PLACE},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

static void saves_given_up_at_any_moment_break_no_rule(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .failures = 1, .cancels = 2, IN_PLACE},
        {.in_flight = 2, .keep = 1, .failures = 1, .cancels = 2, IN_PLACE},
        {.in_flight = 3, .keep = 2, .failures = 0, .cancels = 2, IN_PLACE},
        {.in_flight = 3, .keep = 1, .failures = 1, .cancels = 1, .forgets = 1, IN_PLACE},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

#define COPIED .saves = 3, .copied = true

static void copies_through_a_small_pool_break_no_rule(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .chunks = 3, .buffers = 1, .failures = 2, .cancels = 1, COPIED},
        {.in_flight = 2, .keep = 1, .chunks = 2, .buffers = 1, .failures = 1, .cancels = 1, COPIED},
        {.in_flight = 2, .keep = 2, .chunks = 2, .buffers = 2, .failures = 1, .cancels = 1, COPIED},
        {.in_flight = 3, .keep = 1, .chunks = 2, .buffers = 1, .failures = 1, .cancels = 1, COPIED},
        {.in_flight = 3, .keep = 1, .chunks = 2, .buffers = 2, .failures = 1, .cancels = 0, COPIED},
        {.in_flight = 2,
         .keep = 1,
         .chunks = 2,
         .buffers = 1,
         .failures = 1,
         .in_place = true,
         .mixed = true,
         COPIED},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

/* Old slots retired at open are named until the first record of this life; their reuse is the dangerous part.
 */
static void leftovers_of_an_earlier_life_are_reused_safely(void **state) {
    (void)state;
    static const struct bounds all[] = {
        {.in_flight = 1, .keep = 1, .failures = 2, .old_slots = 3, .resume_step = 50, .cancels = 1, IN_PLACE},
        {.in_flight = 2, .keep = 1, .failures = 2, .old_slots = 5, .resume_step = 50, IN_PLACE},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) explore(&all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_of_events_breaks_a_rule),
        cmocka_unit_test(saves_given_up_at_any_moment_break_no_rule),
        cmocka_unit_test(copies_through_a_small_pool_break_no_rule),
        cmocka_unit_test(leftovers_of_an_earlier_life_are_reused_safely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
