/* Verification: every chunk of a slot read from the device and compared with its checksum. Consecutive chunks
 * are read together, up to INSPECT_PIECE_BYTES, several operations at once. A chunk that differs is damage
 * only while the record, looked at again, still names the slot: else a writer has used it again. */
#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "inspect/inspect.h"

#define OPERATION_BYTES ((uint64_t)1 << 20)

pawl_code inspect_read(struct store *s, struct store_file *f, uint64_t offset, void *data, uint64_t bytes,
                       struct pawl_error *e) {
    uint64_t submitted = 0;
    uint32_t in_flight = 0, depth = store_depth(s);
    pawl_code code = PAWL_OK;
    int os_errno = 0;
    while (in_flight > 0 || (submitted < bytes && code == PAWL_OK)) {
        while (code == PAWL_OK && submitted < bytes && in_flight < depth) {
            uint64_t piece = bytes - submitted < OPERATION_BYTES ? bytes - submitted : OPERATION_BYTES;
            code = store_read(f, offset + submitted, (uint8_t *)data + submitted, piece, 0, e);
            if (code != PAWL_OK) break;
            submitted += piece;
            in_flight++;
        }
        struct store_completion done;
        if (in_flight == 0 || store_poll(s, &done, 1) == 0) {
            if (in_flight > 0) store_wait(s, 1000000000);
            continue;
        }
        in_flight--;
        if (done.code == PAWL_OK || code != PAWL_OK) continue;
        code = done.code;
        os_errno = done.os_errno;
        error_set(e, code, os_errno, "cannot read %" PRIu64 " bytes at %" PRIu64, bytes, offset);
    }
    return code;
}

/* The first tensor that has bytes in the chunk. */
static const char *tensor_in(const struct slot_info *s, const struct slot_chunk *chunk) {
    for (uint32_t i = 0; i < s->header.tensor_count; i++) {
        const struct st_tensor *t = &s->header.tensors[i];
        if (t->begin < chunk->offset + chunk->bytes && t->begin + t->bytes > chunk->offset)
            return s->slices[i].name != NULL ? s->slices[i].name : t->name;
    }
    return NULL;
}

static void chunk_problem(struct pawl_inspect *in, const struct inspect_slot *slot, uint64_t index,
                          pawl_code code, const char *cause) {
    const struct slot_chunk *chunk = &slot->info.chunks[index];
    struct pawl_inspect_problem like = inspect_problem_of_slot(in, slot, PAWL_PROBLEM_CHUNK, code);
    like.tensor = tensor_in(&slot->info, chunk);
    like.chunk = index;
    like.offset = slot->info.header.data_offset + chunk->offset;
    like.bytes = chunk->bytes;
    inspect_problem_add(in, like,
                        "%s/%s: step %" PRIu64 ": chunk %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
                        ", tensor '%s' and on) %s",
                        like.store, like.file, like.step, index, like.offset, like.offset + like.bytes,
                        like.tensor != NULL ? like.tensor : "", cause);
}

static bool chunk_is_good(const struct slot_info *s, uint64_t index, const uint8_t *data) {
    uint8_t sum[SLOT_SUM_BYTES];
    if (s->sums == NULL) return true; /* it can be read, which is all there is to know */
    hash128(data, s->chunks[index].bytes, sum);
    return memcmp(sum, s->sums + index * SLOT_SUM_BYTES, sizeof sum) == 0;
}

struct sweeping { /* one slot */
    struct pawl_inspect *in;
    struct inspect_slot *slot;
    struct store *store;
    struct store_file *file;
    struct inspect_sweep *sweep;
};

/* A batch that could not be read as a whole is read chunk by chunk, to name the bad one. */
static void sweep_alone(struct sweeping *w, uint64_t index) {
    const struct slot_info *s = &w->slot->info;
    const struct slot_chunk *chunk = &s->chunks[index];
    struct pawl_error why = {0};
    pawl_code code = inspect_read(w->store, w->file, s->header.data_offset + chunk->offset,
                                  w->sweep->room.data, chunk->bytes, &why);
    if (code != PAWL_OK && !inspect_slot_is_gone(w->in, w->slot))
        chunk_problem(w->in, w->slot, index, code, why.text);
    if (code == PAWL_OK && !chunk_is_good(s, index, w->sweep->room.data) &&
        !inspect_slot_is_gone(w->in, w->slot))
        chunk_problem(w->in, w->slot, index, PAWL_CORRUPT, "does not match its checksum");
}

static void sweep_batch(struct sweeping *w, uint64_t first, uint64_t end, uint64_t bytes) {
    const struct slot_info *s = &w->slot->info;
    uint64_t begin = s->chunks[first].offset;
    pawl_code code =
        inspect_read(w->store, w->file, s->header.data_offset + begin, w->sweep->room.data, bytes, NULL);
    for (uint64_t i = first; i < end && code == PAWL_OK && !w->slot->gone; i++)
        if (!chunk_is_good(s, i, w->sweep->room.data + (s->chunks[i].offset - begin)) &&
            !inspect_slot_is_gone(w->in, w->slot))
            chunk_problem(w->in, w->slot, i, PAWL_CORRUPT, "does not match its checksum");
    for (uint64_t i = first; i < end && code != PAWL_OK && !w->slot->gone; i++) sweep_alone(w, i);
}

static pawl_code sweep_chunks(struct sweeping *w, struct pawl_error *e) {
    const struct slot_info *s = &w->slot->info;
    for (uint64_t first = 0, end; first < s->chunk_count && !w->slot->gone; first = end) {
        uint64_t bytes = s->chunks[first].bytes;
        for (end = first + 1; end < s->chunk_count && bytes + s->chunks[end].bytes <= INSPECT_PIECE_BYTES;
             end++)
            bytes += s->chunks[end].bytes;
        if (!inspect_reserve(&w->sweep->room, bytes)) return inspect_no_memory(e);
        sweep_batch(w, first, end, bytes);
        w->sweep->done += bytes;
        w->sweep->verified->bytes += bytes;
        inspect_progress(w->in, "verify", w->sweep->done, w->sweep->total);
    }
    return PAWL_OK;
}

/* A slot that does not count was told by the scan already. */
static pawl_code sweep_slot(struct pawl_inspect *in, struct inspect_slot *slot, struct inspect_sweep *sweep,
                            struct pawl_error *e) {
    if (slot->state != PAWL_INSPECT_GOOD || slot->gone) return PAWL_OK;
    struct sweeping w = {in, slot, in->stores[slot->store].store, NULL, sweep};
    struct pawl_error why = {0};
    pawl_code code = store_file_open(w.store, slot->file, false, 0, &w.file, &why);
    if (code == PAWL_OK) {
        code = sweep_chunks(&w, e);
    } else if (!inspect_slot_is_gone(in, slot)) {
        pawl_code told = code == PAWL_NOT_FOUND ? PAWL_CORRUPT : code;
        inspect_problem_add(in, inspect_problem_of_slot(in, slot, PAWL_PROBLEM_SLOT, told), "%s", why.text);
        code = code == PAWL_MEMORY ? inspect_no_memory(e) : PAWL_OK;
    } else {
        code = PAWL_OK;
    }
    store_file_close(w.file);
    sweep->verified->slots++;
    if (slot->gone) sweep->verified->gone++;
    return code;
}

/* ---- is every element of every tensor somewhere? ---- */

static uint64_t box_elements(const struct inspect_ref *r) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < r->rank; d++) n *= r->extent[d];
    return n;
}

static bool same_box(const struct inspect_ref *a, const struct inspect_ref *b) {
    return a->rank == b->rank &&
           (a->rank == 0 || (memcmp(a->begin, b->begin, a->rank * sizeof *a->begin) == 0 &&
                             memcmp(a->extent, b->extent, a->rank * sizeof *a->extent) == 0));
}

/* Copies are equal boxes. Boxes of another number of parts may overlap, so that this finds every hole where
 * only one cut is stored, which is the rule. */
static void check_tensor(struct pawl_inspect *in, uint32_t index, uint32_t first, uint32_t end) {
    const struct inspect_step *step = &in->steps[index];
    const struct inspect_ref *r = &step->refs[first];
    const struct slot_info *s = &in->slots[step->slots[r->part]].info;
    uint64_t wanted = inspect_whole_elements(s, r->tensor), held = 0;
    for (uint32_t i = first; i < end; i++)
        if (i == first || !same_box(&step->refs[i - 1], &step->refs[i])) held += box_elements(&step->refs[i]);
    if (held >= wanted) return;
    struct pawl_inspect_problem like = {.kind = PAWL_PROBLEM_TENSOR,
                                        .code = PAWL_CORRUPT,
                                        .tensor = r->name,
                                        .step = step->is.step,
                                        .incarnation = step->is.incarnation};
    inspect_problem_add(in, like,
                        "step %" PRIu64 ": tensor '%s': %" PRIu64 " of %" PRIu64 " elements are in no part",
                        step->is.step, r->name, wanted - held, wanted);
}

static pawl_code check_cover(struct pawl_inspect *in, uint32_t index, struct pawl_error *e) {
    pawl_code code = inspect_step_index(in, index, e);
    const struct inspect_step *step = &in->steps[index];
    for (uint32_t first = 0, end; code == PAWL_OK && first < step->ref_count; first = end) {
        for (end = first + 1;
             end < step->ref_count && strcmp(step->refs[end].name, step->refs[first].name) == 0;)
            end++;
        check_tensor(in, index, first, end);
    }
    return code;
}

/* ---- steps ---- */

/* Not whole, or, as the newest one where a resume finds none to take, marked bad. */
static void missing_problem(struct pawl_inspect *in, uint32_t index) {
    const struct pawl_inspect_step *s = &in->steps[index].is;
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_STEP, .code = PAWL_CORRUPT, .step = s->step, .incarnation = s->incarnation};
    if (s->complete)
        inspect_problem_add(in, like,
                            "%s: a resume found every complete step damaged (bad/ in the run's folder), step "
                            "%" PRIu64 " last",
                            in->path, s->step);
    else
        inspect_problem_add(in, like, "%s: step %" PRIu64 " is incomplete: %s", in->path, s->step,
                            s->missing);
}

static uint64_t step_bytes(const struct pawl_inspect *in, uint32_t index) {
    return in->steps[index].is.bytes;
}

static pawl_code sweep_slots(struct pawl_inspect *in, uint32_t index, struct inspect_sweep *sweep,
                             struct pawl_error *e) {
    const struct inspect_step *step = &in->steps[index];
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < step->slot_count && code == PAWL_OK; i++)
        code = sweep_slot(in, &in->slots[step->slots[i]], sweep, e);
    sweep->verified->steps++;
    if (code == PAWL_OK && step->is.complete) code = check_cover(in, index, e);
    return code;
}

pawl_code inspect_sweep_step(struct pawl_inspect *in, uint32_t index, struct inspect_sweep *sweep,
                             struct pawl_error *e) {
    sweep->total = step_bytes(in, index);
    if (!in->steps[index].is.complete) missing_problem(in, index);
    pawl_code code = sweep_slots(in, index, sweep, e);
    inspect_room_close(&sweep->room);
    return code;
}

pawl_code inspect_sweep_all(struct pawl_inspect *in, struct inspect_sweep *sweep, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < in->step_count; i++) sweep->total += step_bytes(in, i);
    for (uint32_t i = 0; i < in->step_count && code == PAWL_OK; i++) code = sweep_slots(in, i, sweep, e);
    if (in->current == PAWL_INSPECT_NONE && in->step_count > 0 && !in->unsettled) missing_problem(in, 0);
    inspect_room_close(&sweep->room);
    return code;
}

static pawl_code sweep_once(struct pawl_inspect *in, uint64_t step, struct pawl_inspect_verified *out,
                            struct pawl_error *e) {
    *out = (struct pawl_inspect_verified){0};
    struct inspect_sweep sweep = {.verified = out};
    uint32_t index = PAWL_INSPECT_NONE;
    if (step == PAWL_INSPECT_ALL) return inspect_sweep_all(in, &sweep, e);
    /* Without a complete step the newest incomplete one tells what is missing. */
    pawl_code code = pawl_inspect_find(in, step, &index, e);
    if (step == 0 && index == PAWL_INSPECT_NONE && in->step_count > 0 && code != PAWL_BUSY) {
        index = 0;
        if (in->steps[0].is.complete) missing_problem(in, 0);
    }
    return index != PAWL_INSPECT_NONE ? inspect_sweep_step(in, index, &sweep, e) : code;
}

pawl_code pawl_inspect_verify(struct pawl_inspect *in, uint64_t step, struct pawl_inspect_verified *out,
                              struct pawl_error *e) {
    pawl_code code = sweep_once(in, step, out, e);
    if (code == PAWL_OK && out->gone > 0) { /* once more, on what is there now */
        code = inspect_scan(in, e);
        if (code == PAWL_OK) code = sweep_once(in, step, out, e);
    }
    if (code == PAWL_OK) code = pawl_inspect_outcome(in, e);
    if (code == PAWL_OK && out->gone > 0 && step != PAWL_INSPECT_ALL) return inspect_gone(in, e);
    return code;
}
