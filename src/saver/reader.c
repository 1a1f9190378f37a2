/* Reading without writing: include/pawl/ckpt.h's reader over the sets of src/ckpt. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "saver/saver.h"

/* A tensor cut over several units is one tensor here. Found out for a step when it is asked for. */
struct names {
    uint32_t *firsts; /* places in the set, of the first tensor of each name, in the set's order */
    uint32_t count;
    bool known;
};

struct pawl_ckpt_reader {
    struct saver_stores stores;
    struct saver_run run; /* borrowed path; null: none known */
    struct ckpt_marks marks;
    struct ckpt_set *set;
    struct names *names; /* [steps] */
};

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory for reading checkpoints");
}

static pawl_code find_preferred(const struct pawl_ckpt_reader *r, const char *prefer,
                                const struct store **out, struct pawl_error *e) {
    for (uint32_t i = 0; prefer != NULL && i < r->stores.count; i++)
        if (strcmp(r->stores.names[i], prefer) == 0) *out = r->stores.stores[i];
    if (prefer == NULL || *out != NULL) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "options.prefer: there is no store '%.200s' among %u", prefer,
                     r->stores.count);
}

static pawl_code open_reader(struct pawl_ckpt_reader *r, const char *path,
                             const struct pawl_ckpt_reader_options *options, struct pawl_error *e) {
    static const uint8_t any[PAWL_RUN_ID_BYTES];
    struct ckpt_set_options how = {.unchecked = options->unchecked};
    if (memcmp(options->run_id, any, sizeof any) != 0) how.run_id = options->run_id;
    pawl_code code = saver_stores_open(path, false, &r->stores, e);
    if (code != PAWL_OK) return code;
    r->run.path = r->stores.run;
    code = find_preferred(r, options->prefer, &how.prefer, e);
    if (code == PAWL_OK) code = run_marks(&r->run, &r->marks, e);
    if (code == PAWL_OK) code = ckpt_set_open_with(r->stores.stores, r->stores.count, &how, &r->set, e);
    if (code != PAWL_OK) return code;
    r->names = calloc((size_t)ckpt_set_count(r->set) + 1, sizeof *r->names);
    return r->names != NULL ? PAWL_OK : no_memory(e);
}

pawl_code pawl_ckpt_reader_open(const char *path, const struct pawl_ckpt_reader_options *options,
                                struct pawl_ckpt_reader **out, struct pawl_error *e) {
    static const struct pawl_ckpt_reader_options defaults;
    *out = NULL;
    struct pawl_ckpt_reader *r = calloc(1, sizeof *r);
    if (r == NULL) return no_memory(e);
    pawl_code code = open_reader(r, path, options != NULL ? options : &defaults, e);
    if (code == PAWL_OK)
        *out = r;
    else
        pawl_ckpt_reader_close(r);
    return code;
}

void pawl_ckpt_reader_close(struct pawl_ckpt_reader *r) {
    if (r == NULL) return;
    for (uint32_t i = 0; r->names != NULL && i < ckpt_set_count(r->set); i++) free(r->names[i].firsts);
    free(r->names);
    ckpt_set_close(r->set);
    ckpt_marks_close(&r->marks);
    saver_stores_close(&r->stores);
    free(r);
}

/* ---- steps ---- */

uint32_t pawl_ckpt_reader_step_count(const struct pawl_ckpt_reader *r) { return ckpt_set_count(r->set); }

struct pawl_ckpt_step pawl_ckpt_reader_step(const struct pawl_ckpt_reader *r, uint32_t index) {
    struct pawl_ckpt_step out = {0};
    const struct ckpt_step *s = ckpt_set_at(r->set, index);
    if (s == NULL) return out;
    out = (struct pawl_ckpt_step){.step = s->step,
                                  .incarnation = s->incarnation,
                                  .unit_count = s->unit_count,
                                  .complete = s->complete,
                                  .bad = ckpt_marks_bad(&r->marks, s->step, s->incarnation)};
    for (uint32_t i = 0; i < ckpt_set_part_count(r->set, index); i++)
        out.bytes += ckpt_set_part(r->set, index, i).data_bytes;
    memcpy(out.missing, s->missing, sizeof out.missing);
    return out;
}
_Static_assert(sizeof((struct pawl_ckpt_step *)0)->missing == sizeof((struct ckpt_step *)0)->missing,
               "what is missing fits");

const char *pawl_ckpt_reader_problem(const struct pawl_ckpt_reader *r, uint32_t index) {
    return ckpt_set_problem(r->set, index);
}

uint32_t pawl_ckpt_reader_newest(const struct pawl_ckpt_reader *r) { return saver_newest(r->set, &r->marks); }

/* ---- tensors ---- */

struct named {
    const char *name;
    uint32_t place;
};

static int by_name(const void *x, const void *y) {
    const struct named *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : a->place < b->place ? -1 : a->place > b->place;
}

static int by_place(const void *x, const void *y) {
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* Without memory nothing is known, as of a step without tensors. */
static const struct names *names_of(const struct pawl_ckpt_reader *r, uint32_t index) {
    static const struct names none;
    if (index >= ckpt_set_count(r->set)) return &none;
    struct names *n = &r->names[index];
    uint32_t count = ckpt_set_tensor_count(r->set, index);
    if (n->known) return n;
    struct named *all = calloc((size_t)count + 1, sizeof *all);
    n->firsts = calloc((size_t)count + 1, sizeof *n->firsts);
    if (all != NULL && n->firsts != NULL) {
        for (uint32_t i = 0; i < count; i++)
            all[i] = (struct named){ckpt_set_tensor(r->set, index, i)->name, i};
        qsort(all, count, sizeof *all, by_name);
        for (uint32_t i = 0; i < count; i++)
            if (i == 0 || strcmp(all[i - 1].name, all[i].name) != 0) n->firsts[n->count++] = all[i].place;
        qsort(n->firsts, n->count, sizeof *n->firsts, by_place);
        n->known = true;
    }
    free(all);
    return n;
}

uint32_t pawl_ckpt_reader_tensor_count(const struct pawl_ckpt_reader *r, uint32_t index) {
    return names_of(r, index)->count;
}

static struct pawl_tensor tensor_at(const struct pawl_ckpt_reader *r, uint32_t index, uint32_t place) {
    const struct ckpt_tensor *t = ckpt_set_tensor(r->set, index, place);
    return (struct pawl_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank, .shape = t->shape};
}

struct pawl_tensor pawl_ckpt_reader_tensor(const struct pawl_ckpt_reader *r, uint32_t index,
                                           uint32_t tensor) {
    const struct names *n = names_of(r, index);
    return tensor < n->count ? tensor_at(r, index, n->firsts[tensor]) : (struct pawl_tensor){0};
}

static pawl_code check_index(const struct pawl_ckpt_reader *r, uint32_t index, struct pawl_error *e) {
    if (index < ckpt_set_count(r->set)) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "there is no step number %u in the list of %u", index,
                     ckpt_set_count(r->set));
}

pawl_code pawl_ckpt_reader_pass_over(struct pawl_ckpt_reader *r, uint32_t index, struct pawl_error *e) {
    pawl_code code = check_index(r, index, e);
    if (code != PAWL_OK) return code;
    const struct ckpt_step *s = ckpt_set_at(r->set, index);
    return ckpt_marks_add(&r->marks, (struct ckpt_mark){s->step, s->incarnation}, e);
}

pawl_code pawl_ckpt_reader_read(struct pawl_ckpt_reader *r, uint32_t index, const struct pawl_tensor *tensors,
                                uint32_t count, struct pawl_error *e) {
    pawl_code code = check_index(r, index, e);
    return code == PAWL_OK ? ckpt_set_read_many(r->set, index, tensors, count, e) : code;
}

static pawl_code size_of(const struct pawl_tensor *t, uint64_t *bytes, struct pawl_error *e) {
    uint64_t elements = 1, bits = 0;
    bool fits = true;
    for (uint32_t i = 0; i < t->rank; i++) fits = fits && mem_mul(elements, t->shape[i], &elements);
    fits = fits && mem_mul(elements, pawl_dtype_bits(t->dtype), &bits) && bits / 8 < SIZE_MAX - MEM_ALIGN;
    *bytes = bits / 8;
    return fits ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0, "tensor '%.300s' is larger than memory can be", t->name);
}

pawl_code pawl_ckpt_reader_load(struct pawl_ckpt_reader *r, uint32_t index, const char *name,
                                struct pawl_tensor *out, void **memory, struct pawl_error *e) {
    *memory = NULL;
    pawl_code code = check_index(r, index, e);
    if (code != PAWL_OK) return code;
    uint32_t count = ckpt_set_tensor_count(r->set, index), at = 0;
    while (at < count && strcmp(ckpt_set_tensor(r->set, index, at)->name, name) != 0) at++;
    if (at == count)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 " has no tensor '%.300s'",
                         ckpt_set_at(r->set, index)->step, name);
    struct pawl_tensor tensor = tensor_at(r, index, at);
    uint64_t bytes = 0;
    code = size_of(&tensor, &bytes, e);
    if (code != PAWL_OK) return code;
    /* On pages of its own, so that the device can read into it. */
    tensor.data = aligned_alloc(MEM_ALIGN, (size_t)mem_round_up(bytes + (bytes == 0), MEM_ALIGN));
    if (tensor.data == NULL) return no_memory(e);
    code = ckpt_set_read_many(r->set, index, &tensor, 1, e);
    if (code != PAWL_OK) {
        free(tensor.data);
        return code;
    }
    *out = tensor;
    *memory = tensor.data;
    return PAWL_OK;
}

pawl_code pawl_ckpt_reader_blob(struct pawl_ckpt_reader *r, uint32_t index, uint32_t unit, const void **blob,
                                size_t *bytes, struct pawl_error *e) {
    pawl_code code = check_index(r, index, e);
    return code == PAWL_OK ? ckpt_set_blob(r->set, index, unit, blob, bytes, e) : code;
}

uint64_t pawl_ckpt_reader_bytes_read(const struct pawl_ckpt_reader *r) {
    return ckpt_set_bytes_read(r->set, NULL);
}
