/* Chunks from the devices to where they are wanted: a call succeeds once every one of them was verified.
 *
 * Chunks are read whole, in the order in which they lie in the files, several at once and from all stores at
 * the same time: straight into the caller's memory where a chunk goes there as one aligned piece, else into a
 * line, from which its bytes are copied. Lines are bounded in number and memory; verified ones are kept for
 * calls to come. Memory of another kind is filled by its own copies, from lines. A damaged chunk is listed as
 * a problem and replaced from other sources; see set_cover.c. What the page cache has is taken from there, in
 * large reads by the threads that verify, a piece at a time and straight to where it goes; but the device has
 * the last word: a cached chunk that does not match is read again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ckpt/set_fetch.h"

/* How long to sleep for one store while others, or copies, may have news; and when there is nothing else. */
#define LOOK_NS 1000000
#define WAIT_NS 1000000000

/* ---- lines ---- */

static struct set_line *line_find(struct ckpt_set *set, uint32_t part, uint64_t chunk) {
    for (uint32_t i = 0; i < SET_LINES; i++) {
        struct set_line *l = &set->lines[i];
        if (l->state == LINE_VERIFIED && l->part == part && l->chunk == chunk) return l;
    }
    return NULL;
}

static bool is_idle(const struct set_line *l) { return l->state == LINE_EMPTY || l->state == LINE_VERIFIED; }

/* Of the lines that can be given up the one that was unused for longest, empty ones first, of those with
 * memory when that is what is needed. */
static struct set_line *line_take(struct ckpt_set *set, bool with_memory) {
    struct set_line *best = NULL;
    for (uint32_t i = 0; i < SET_LINES; i++) {
        struct set_line *l = &set->lines[i];
        if (!is_idle(l) || (with_memory && l->room == 0)) continue;
        if (best == NULL || l->state < best->state || (l->state == best->state && l->used < best->used))
            best = l;
    }
    return best;
}

static void line_drop(struct ckpt_set *set, struct set_line *l) {
    mem_free(l->data, l->room);
    set->line_bytes -= l->room;
    l->data = NULL;
    l->room = 0;
    l->state = LINE_EMPTY;
}

/* A line with room for `bytes`; null when there is none now. A line that has room already costs nothing. */
static struct set_line *line_with_room(struct fetch *f, uint64_t bytes) {
    struct ckpt_set *set = f->set;
    struct set_line *l = line_take(set, true);
    if (l != NULL && l->room >= bytes) return l;
    while (l != NULL && set->line_bytes + bytes > SET_LINE_BYTES) {
        line_drop(set, l);
        l = line_take(set, true);
    }
    bool alone = f->in_flight == 0 && f->read == 0 && f->copies_busy == 0 && f->work.busy == 0;
    if (set->line_bytes + bytes > SET_LINE_BYTES && !alone) return NULL;
    l = line_take(set, false);
    if (l == NULL) return NULL;
    if (l->room > 0) line_drop(set, l);
    l->data = mem_alloc(bytes);
    if (l->data == NULL) {
        fetch_stop(f,
                   error_set(&f->error, PAWL_MEMORY, 0, "no memory for a chunk of %" PRIu64 " bytes", bytes));
        return NULL;
    }
    l->room = bytes;
    set->line_bytes += bytes;
    return l;
}

/* ---- damage ---- */

/* Not tried again in this call, told as a problem, and what of it is wanted is looked for elsewhere. */
static void damaged(struct fetch *f, size_t first, const struct pawl_error *why) {
    struct set_call *call = f->call;
    const struct set_use use = call->uses[first];
    fetch_work_quiesce(f); /* what is wanted changes */
    if (why->code != PAWL_CORRUPT && why->code != PAWL_IO && why->code != PAWL_NOT_FOUND) {
        if (f->code == PAWL_OK) f->error = *why;
        fetch_stop(f, why->code);
        return;
    }
    if (set_find_bad(call, use.part, use.chunk) == NULL) {
        fetch_stop(f, set_add_bad(call, use.part, use.chunk, why, &f->error));
        set_problem(f->set, (struct ckpt_cost){0}, "%s", why->text);
    }
    for (size_t i = first, end = fetch_uses_end(call, first); i < end && f->code == PAWL_OK; i++) {
        if (call->uses[i].piece == SET_NO_PIECE) {
            f->error = *why;
            fetch_stop(f, why->code);
        } else {
            fetch_stop(f, set_replace(call, call->uses[i].piece, use.chunk, &f->error));
        }
    }
}

/* The first tensor that has bytes in the chunk, for the message. */
static const char *tensor_in(const struct slot_info *s, const struct slot_chunk *chunk) {
    for (uint32_t i = 0; i < s->header.tensor_count; i++) {
        const struct st_tensor *t = &s->header.tensors[i];
        if (t->begin < chunk->offset + chunk->bytes && t->begin + t->bytes > chunk->offset) return t->name;
    }
    return "";
}

pawl_code fetch_verify(const struct ckpt_set *set, const struct set_line *l, struct pawl_error *e) {
    *e = (struct pawl_error){0};
    const struct set_part *part = &set->parts[l->part];
    const struct slot_chunk *chunk = &part->info.chunks[l->chunk];
    if (l->code != PAWL_OK)
        return error_set(e, l->code, l->os_errno,
                         "%s/%s: chunk %" PRIu64 " of tensor '%.200s' and on: cannot read",
                         store_path(part->store), part->name, l->chunk, tensor_in(&part->info, chunk));
    if (part->info.sums == NULL) return PAWL_OK; /* accepted when the set was opened */
    uint8_t sum[SLOT_SUM_BYTES];
    hash128(l->target, chunk->bytes, sum);
    if (memcmp(sum, part->info.sums + l->chunk * SLOT_SUM_BYTES, sizeof sum) == 0) return PAWL_OK;
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%s/%s: chunk %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
        " of the file, tensor '%.200s' and on) does not match its checksum",
        store_path(part->store), part->name, l->chunk, part->info.header.data_offset + chunk->offset,
        part->info.header.data_offset + chunk->offset + chunk->bytes, tensor_in(&part->info, chunk));
}

/* ---- reading ---- */

static void to_device(struct fetch *f, struct set_line *l) {
    const struct set_part *part = &f->set->parts[l->part];
    const struct slot_chunk *chunk = &part->info.chunks[l->chunk];
    struct set_store *s = &f->set->stores[part->store_index];
    l->cached = l->streamed = false;
    l->state = LINE_READING;
    pawl_code code = store_read(part->file, part->info.header.data_offset + chunk->offset, l->target,
                                chunk->bytes, (uint64_t)(l - f->set->lines), &f->error);
    if (code != PAWL_OK) {
        l->state = LINE_EMPTY;
        fetch_stop(f, code);
        return;
    }
    s->bytes_read += chunk->bytes;
    s->in_flight++;
    f->in_flight++;
}

static bool from_cache(struct fetch *f, struct set_line *l) {
    const struct set_part *part = &f->set->parts[l->part];
    const struct slot_chunk *chunk = &part->info.chunks[l->chunk];
    uint64_t at = part->info.header.data_offset + chunk->offset;
    bool verifies = f->call->uses[l->job].piece == SET_NO_PIECE; /* the device is what is in question */
    if (verifies || part->info.sums == NULL ||                   /* nothing would tell that it is old */
        !store_is_cached(part->file, at, chunk->bytes))
        return false;
    l->streamed = f->work.thread_count > 0 && fetch_is_plain(f->call, l->job);
    if (!l->streamed && !store_read_cached(part->file, at, l->target, chunk->bytes)) return false;
    l->cached = true;
    l->state = LINE_READ;
    l->used = ++f->set->clock;
    l->code = PAWL_OK;
    f->set->stores[part->store_index].bytes_read += chunk->bytes;
    f->read++;
    f->cached++;
    return true;
}

/* The line was verified, and its bytes were handed out already or are to be. */
static void line_done(struct fetch *f, struct set_line *l) {
    bool own = l->target == l->data, good = l->why.code == PAWL_OK;
    if (f->code != PAWL_OK) {
        l->state = LINE_EMPTY;
        return;
    }
    if (!good && l->cached) {
        to_device(f, l);
        return;
    }
    l->used = ++f->set->clock;
    if (!good)
        damaged(f, l->job, &l->why);
    else if (own && !l->delivered)
        fetch_deliver(f, l, l->job);
    /* Only what lies whole in the line's own memory can be kept. */
    if (!good || !own || l->streamed)
        l->state = LINE_EMPTY;
    else if (l->copies == 0)
        l->state = LINE_VERIFIED;
}

/* Notes what has been read; nothing is done with it yet, so that the device gets more to do first. */
static void poll_store(struct fetch *f, struct set_store *s) {
    struct store_completion done[16];
    uint32_t count = store_poll(s->store, done, sizeof done / sizeof done[0]);
    for (uint32_t i = 0; i < count; i++) {
        struct set_line *l = &f->set->lines[done[i].cookie];
        f->in_flight--;
        s->in_flight--;
        l->state = LINE_READ;
        l->used = ++f->set->clock;
        l->code = done[i].code;
        l->os_errno = done[i].os_errno;
        f->read++;
    }
}

/* Verifies and hands out what has been read first, or has it done. */
static void take_one(struct fetch *f) {
    struct set_line *first = NULL;
    for (uint32_t i = 0; i < SET_LINES; i++) {
        struct set_line *l = &f->set->lines[i];
        if (l->state == LINE_READ && (first == NULL || l->used < first->used)) first = l;
    }
    f->read--;
    if (first->cached) f->cached--;
    first->state = LINE_COPYING; /* it must not be given up meanwhile */
    if (f->code == PAWL_OK && fetch_work_add(f, first)) return;
    if (f->code == PAWL_OK) fetch_work_on(f, first);
    line_done(f, first);
}

static void cannot_open(struct fetch *f, size_t first, const struct pawl_error *why) {
    const struct set_part *part = &f->set->parts[f->call->uses[first].part];
    struct pawl_error named = *why;
    error_wrap(&named, "%s/%s", store_path(part->store), part->name);
    if (set_find_bad(f->call, f->call->uses[first].part, UINT64_MAX) == NULL) {
        fetch_stop(f, set_add_bad(f->call, f->call->uses[first].part, UINT64_MAX, &named, &f->error));
        set_problem(f->set, (struct ckpt_cost){0}, "%s", named.text);
    }
    damaged(f, first, &named);
}

static void submit(struct fetch *f, struct set_line *l, size_t first, uint8_t *target) {
    const struct set_use *use = &f->call->uses[first];
    l->part = use->part;
    l->chunk = use->chunk;
    l->job = first;
    l->target = target != NULL ? target : l->data;
    if (!from_cache(f, l)) to_device(f, l);
}

/* The chunk of the next use of this lane. False: not now, there is no line for it. */
static bool start_next(struct fetch *f, struct lane *lane) {
    size_t first = lane->next;
    const struct set_use *use = &f->call->uses[first];
    struct set_part *part = &f->set->parts[use->part];
    const struct slot_chunk *chunk = &part->info.chunks[use->chunk];
    struct set_line *l = line_find(f->set, use->part, use->chunk);
    struct pawl_error why = {0};
    const struct set_bad *bad = set_find_bad(f->call, use->part, use->chunk);
    if (l != NULL) {
        l->state = LINE_COPYING;
        l->used = ++f->set->clock;
        fetch_deliver(f, l, first);
        if (l->copies == 0) l->state = LINE_VERIFIED;
    } else if (bad != NULL) {
        why = bad->error;
        damaged(f, first, &why);
    } else if (set_open_part(part, &why) != PAWL_OK) {
        cannot_open(f, first, &why);
    } else {
        uint8_t *target = fetch_direct_target(f, first, chunk);
        l = target != NULL ? line_take(f->set, false) : line_with_room(f, chunk->bytes);
        if (l == NULL) return false;
        submit(f, l, first, target);
    }
    lane->next = fetch_uses_end(f->call, first);
    return true;
}

/* As many reads as each device takes and lines there are, shared out among the stores. */
static bool start_some(struct fetch *f, uint32_t active) {
    bool any = false;
    uint32_t most = SET_LINES / (active == 0 ? 1 : active);
    if (most == 0) most = 1;
    for (uint32_t i = 0; i < f->set->store_count; i++) {
        struct set_store *s = &f->set->stores[i];
        uint32_t depth = store_depth(s->store);
        if (depth > most) depth = most;
        while (f->code == PAWL_OK && f->lanes[i].next < f->lanes[i].end && s->in_flight < depth &&
               f->cached == 0 && start_next(f, &f->lanes[i]))
            any = true;
    }
    return any;
}

/* One step of what is under way; false: there is no news. */
static bool step(struct fetch *f) {
    uint32_t copies = f->copies_busy;
    struct set_line *done = fetch_work_take(f);
    if (done != NULL) line_done(f, done);
    for (uint32_t i = 0; i < f->set->store_count; i++)
        if (f->set->stores[i].in_flight > 0) poll_store(f, &f->set->stores[i]);
    if (f->copies_busy > 0) fetch_collect_copies(f, false);
    if (f->read == 0) return done != NULL || f->copies_busy < copies;
    take_one(f);
    return true;
}

/* Until a device or a copy may have news. */
static void sleep_some(struct fetch *f) {
    uint32_t active = 0;
    struct store *busiest = NULL;
    for (uint32_t i = 0; i < f->set->store_count; i++) {
        if (f->set->stores[i].in_flight == 0) continue;
        busiest = f->set->stores[i].store;
        active++;
    }
    if (f->work.busy > 0 && f->copies_busy == 0)
        fetch_work_wait(f, busiest, active > 1 ? LOOK_NS : WAIT_NS);
    else if (busiest != NULL)
        store_wait(busiest, active > 1 || f->copies_busy > 0 ? LOOK_NS : WAIT_NS);
    else if (f->copies_busy > 0)
        fetch_collect_copies(f, true);
}

static uint32_t make_lanes(struct fetch *f) {
    uint32_t active = 0;
    for (size_t i = 0; i < f->call->use_count; i++) {
        struct lane *lane = &f->lanes[f->call->uses[i].store];
        if (lane->end == 0) {
            lane->next = i;
            active++;
        }
        lane->end = i + 1;
    }
    return active;
}

static uint64_t bytes_of(const struct set_call *call) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < call->use_count; i = fetch_uses_end(call, i))
        bytes += call->set->parts[call->uses[i].part].info.chunks[call->uses[i].chunk].bytes;
    return bytes;
}

static bool is_done(const struct fetch *f) {
    if (f->in_flight > 0 || f->read > 0 || f->copies_busy > 0 || f->work.busy > 0) return false;
    for (uint32_t i = 0; i < f->set->store_count && f->code == PAWL_OK; i++)
        if (f->lanes[i].next < f->lanes[i].end) return false;
    return true;
}

pawl_code set_fetch(struct set_call *call, struct pawl_error *e) {
    struct fetch f = {.call = call, .set = call->set};
    if (call->use_count == 0) return PAWL_OK;
    f.lanes = calloc((size_t)call->set->store_count + 1, sizeof *f.lanes);
    if (f.lanes == NULL) return set_no_memory(e);
    pthread_mutex_init(&f.mutex, NULL);
    pthread_cond_init(&f.ended, NULL);
    uint32_t active = make_lanes(&f);
    fetch_work_begin(&f, bytes_of(call));
    while (!is_done(&f)) { /* to the end of what is under way in any case: buffers are the caller's again */
        bool any = start_some(&f, active);
        any |= step(&f);
        if (!any && !is_done(&f)) sleep_some(&f);
    }
    fetch_work_end(&f);
    pthread_cond_destroy(&f.ended);
    pthread_mutex_destroy(&f.mutex);
    free(f.copies);
    free(f.lanes);
    if (f.code != PAWL_OK && e != NULL) *e = f.error;
    return f.code;
}
