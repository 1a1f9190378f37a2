/* A step as safetensors files for others: one file, or shards with an index as Hugging Face lays them out.
 *
 * First the choice: tensors by name, their new names, the file of each; nothing is written before all of that
 * is known to be good. Then each file is written through a bounded piece of memory under a temporary name;
 * when all are flushed they take their names, the index last. The index is what a loader looks for, so a
 * crash in between leaves files that nobody takes for a model. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "inspect/inspect.h"

struct item { /* a tensor to export */
    struct pawl_tensor tensor;
    const char *name; /* in the file */
    uint64_t bytes;
    uint32_t shard;
};

struct job {
    struct pawl_inspect *in;
    const struct pawl_inspect_export *options;
    uint32_t index;
    struct item *items;
    uint32_t item_count, shard_count;
    bool folder;
    char **paths;                 /* of the shards */
    struct inspect_output *files; /* one more than shards: the index, when there is one */
    uint32_t file_count;
    struct inspect_room room;
    uint64_t done, total;
};

/* ---- choice ---- */

static const char *stripped(const char *name, const char *prefix) {
    size_t size = prefix != NULL ? strlen(prefix) : 0;
    return size > 0 && strncmp(name, prefix, size) == 0 ? name + size : name;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct item *)x)->name, ((const struct item *)y)->name);
}

static bool chosen(const struct pawl_inspect_export *o, const char *name) {
    if (o->include_count > 0 && !inspect_name_matches(name, o->includes, o->include_count)) return false;
    return !inspect_name_matches(name, o->excludes, o->exclude_count);
}

/* The same tensor in two units (a tied embedding) is one; two tensors must not get one name. */
static pawl_code drop_doubles(struct job *j, struct pawl_error *e) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < j->item_count; i++) {
        struct item *last = kept > 0 ? &j->items[kept - 1] : NULL;
        bool same = last != NULL && strcmp(last->name, j->items[i].name) == 0;
        if (same && strcmp(last->tensor.name, j->items[i].tensor.name) != 0)
            return error_set(e, PAWL_ARGUMENT, 0,
                             "tensors '%.200s' and '%.200s' would both be named '%.200s'", last->tensor.name,
                             j->items[i].tensor.name, last->name);
        if (same && !inspect_same_type(&last->tensor, &j->items[i].tensor))
            return error_set(e, PAWL_FORMAT, 0, "tensor '%.200s' is stored with different types or shapes",
                             last->tensor.name);
        if (!same) j->items[kept++] = j->items[i];
    }
    j->item_count = kept;
    return PAWL_OK;
}

static pawl_code choose(struct job *j, struct pawl_error *e) {
    uint32_t count = pawl_inspect_tensor_count(j->in, j->index);
    j->items = calloc((size_t)count + 1, sizeof *j->items);
    if (j->items == NULL) return inspect_no_memory(e);
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_tensor t = pawl_inspect_tensor(j->in, j->index, i);
        if (!chosen(j->options, t.name)) continue;
        const char *name = stripped(t.name, j->options->strip_prefix);
        if (*name == 0)
            return error_set(e, PAWL_ARGUMENT, 0, "tensor '%.200s' would have no name left", t.name);
        uint64_t bytes;
        pawl_code code = inspect_tensor_bytes(&t, &bytes, e);
        if (code != PAWL_OK) return code;
        j->items[j->item_count++] = (struct item){t, name, bytes, 0};
    }
    if (j->item_count == 0)
        return error_set(e, PAWL_NOT_FOUND, 0, "step %" PRIu64 ": none of its %u tensors is chosen",
                         j->in->steps[j->index].is.step, count);
    qsort(j->items, j->item_count, sizeof *j->items, by_name);
    return drop_doubles(j, e);
}

/* Within a file wider types come first, so that every tensor lies aligned, as readers that map files want it.
 */
static int by_place(const void *x, const void *y) {
    const struct item *a = x, *b = y;
    uint32_t wide_a = st_dtype_width(a->tensor.dtype), wide_b = st_dtype_width(b->tensor.dtype);
    if (a->shard != b->shard) return a->shard < b->shard ? -1 : 1;
    return wide_a != wide_b ? (wide_a > wide_b ? -1 : 1) : by_name(x, y);
}

static void deal_shards(struct job *j) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < j->item_count; i++) {
        struct item *t = &j->items[i];
        uint64_t most = j->options->shard_bytes;
        if (most > 0 && used > 0 && (t->bytes > most || used > most - t->bytes)) {
            j->shard_count++;
            used = 0;
        }
        t->shard = j->shard_count;
        used += t->bytes;
        j->total += t->bytes;
    }
    j->shard_count++;
    qsort(j->items, j->item_count, sizeof *j->items, by_place);
}

/* ---- places ---- */

static bool is_folder(const char *path) {
    struct stat st;
    size_t size = strlen(path);
    return (size > 0 && path[size - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static void shard_name(const struct job *j, uint32_t shard, char out[64]) {
    if (j->shard_count == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05u-of-%05u.safetensors", shard + 1, j->shard_count);
}

static pawl_code make_folder(const char *path, bool *made, struct pawl_error *e) {
    *made = mkdir(path, 0777) == 0;
    if (*made || errno == EEXIST) return PAWL_OK;
    int error = errno;
    return error_set(e, error_code_of_errno(error), error, "%s: cannot make the folder", path);
}

static pawl_code place(struct job *j, struct pawl_error *e) {
    j->folder = j->options->shard_bytes > 0 || is_folder(j->options->output);
    j->file_count = j->shard_count + (j->folder && j->shard_count > 1 ? 1u : 0u);
    j->paths = calloc(j->file_count, sizeof(char *));
    j->files = calloc(j->file_count, sizeof *j->files);
    if (j->paths == NULL || j->files == NULL) return inspect_no_memory(e);
    for (uint32_t i = 0; i < j->file_count; i++) j->files[i].fd = -1;
    bool made = false;
    pawl_code code = j->folder ? make_folder(j->options->output, &made, e) : PAWL_OK;
    for (uint32_t i = 0; i < j->file_count && code == PAWL_OK; i++) {
        char name[64] = INSPECT_INDEX_NAME;
        if (i < j->shard_count) shard_name(j, i, name);
        int size = j->folder ? asprintf(&j->paths[i], "%s/%s", j->options->output, name)
                             : asprintf(&j->paths[i], "%s", j->options->output);
        if (size < 0) {
            j->paths[i] = NULL;
            return inspect_no_memory(e);
        }
        code = inspect_output_open(&j->files[i], j->paths[i], j->options->force, e);
    }
    if (code != PAWL_OK && made) (void)rmdir(j->options->output); /* nothing of ours is to be seen */
    return code;
}

/* ---- writing ---- */

static pawl_code make_header(const struct job *j, uint32_t shard, struct bytes *out, struct pawl_error *e) {
    struct st_header h = {0};
    uint64_t at = 0;
    char step[32];
    snprintf(step, sizeof step, "%" PRIu64, j->in->steps[j->index].is.step);
    pawl_code code = st_header_set(&h, "format", "pt", e); /* transformers insists */
    if (code == PAWL_OK) code = st_header_set(&h, "pawl.step", step, e);
    for (uint32_t i = 0; i < j->item_count && code == PAWL_OK; i++) {
        const struct item *t = &j->items[i];
        if (t->shard != shard) continue;
        code = st_header_add(&h, t->name, t->tensor.dtype, t->tensor.rank, t->tensor.shape, at, e);
        at += t->bytes;
    }
    if (code == PAWL_OK) code = st_header_write(&h, 64, out, e);
    st_header_close(&h);
    return code;
}

static pawl_code write_tensor(struct job *j, const struct item *item, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    struct inspect_piece piece;
    for (uint64_t at = 0; code == PAWL_OK && inspect_piece_at(&item->tensor, at, INSPECT_PIECE_BYTES, &piece);
         at += piece.elements) {
        struct pawl_tensor want = item->tensor;
        if (!inspect_reserve(&j->room, piece.bytes)) return inspect_no_memory(e);
        want.begin = piece.begin;
        want.extent = piece.extent;
        want.data = j->room.data;
        code = ckpt_set_read(j->in->set, j->in->steps[j->index].set_index, &want, e);
        if (code == PAWL_OK)
            code = inspect_output_write(&j->files[item->shard], j->room.data, piece.bytes, e);
        j->done += piece.bytes;
        inspect_progress(j->in, "export", j->done, j->total);
    }
    return code;
}

static pawl_code write_shard(struct job *j, uint32_t shard, struct pawl_error *e) {
    struct bytes header = {0};
    pawl_code code = make_header(j, shard, &header, e);
    if (code == PAWL_OK) code = inspect_output_write(&j->files[shard], header.data, header.size, e);
    bytes_close(&header);
    for (uint32_t i = 0; i < j->item_count && code == PAWL_OK; i++)
        if (j->items[i].shard == shard) code = write_tensor(j, &j->items[i], e);
    return code == PAWL_OK ? inspect_output_finish(&j->files[shard], e) : code;
}

static pawl_code write_index(struct job *j, struct pawl_error *e) {
    struct bytes out = {0};
    struct json json = json_begin(&out);
    json_object(&json, NULL);
    json_object(&json, "metadata");
    json_u64(&json, "total_size", j->total);
    json_end_object(&json);
    json_object(&json, "weight_map");
    for (uint32_t i = 0; i < j->item_count; i++) {
        char name[64];
        shard_name(j, j->items[i].shard, name);
        json_text(&json, j->items[i].name, name);
    }
    json_end_object(&json);
    json_end_object(&json);
    bytes_put_u8(&out, '\n');
    struct inspect_output *file = &j->files[j->shard_count];
    pawl_code code = out.failed ? inspect_no_memory(e) : inspect_output_write(file, out.data, out.size, e);
    bytes_close(&out);
    return code == PAWL_OK ? inspect_output_finish(file, e) : code;
}

static pawl_code write_all(struct job *j, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < j->shard_count && code == PAWL_OK; i++) code = write_shard(j, i, e);
    if (code == PAWL_OK && j->file_count > j->shard_count) code = write_index(j, e);
    for (uint32_t i = 0; i < j->file_count && code == PAWL_OK; i++) {
        bool index = i == j->shard_count;
        if (index) code = inspect_sync_folder_of(j->paths[i], e); /* the shards' names before the index's */
        if (code == PAWL_OK) code = inspect_output_publish(&j->files[i], e);
    }
    return code == PAWL_OK ? inspect_sync_folder_of(j->paths[0], e) : code;
}

static void job_close(struct job *j) {
    for (uint32_t i = 0; j->files != NULL && i < j->file_count; i++) inspect_output_close(&j->files[i]);
    for (uint32_t i = 0; j->paths != NULL && i < j->file_count; i++) free(j->paths[i]);
    free(j->files);
    free(j->paths);
    free(j->items);
    inspect_room_close(&j->room);
}

static pawl_code export_once(struct pawl_inspect *in, uint32_t index,
                             const struct pawl_inspect_export *options, struct pawl_inspect_exported *out,
                             struct pawl_error *e) {
    struct job j = {.in = in, .options = options, .index = index};
    pawl_code code = choose(&j, e);
    if (code == PAWL_OK) deal_shards(&j);
    if (code == PAWL_OK) code = place(&j, e);
    if (code == PAWL_OK) code = write_all(&j, e);
    if (code == PAWL_OK) {
        const struct pawl_inspect_step *s = &in->steps[index].is;
        *out =
            (struct pawl_inspect_exported){s->step, s->incarnation, j.total, j.item_count, j.file_count, ""};
        snprintf(out->path, sizeof out->path, "%s", j.paths[j.file_count - 1]);
    }
    job_close(&j);
    return code;
}

static pawl_code find_whole(const struct pawl_inspect *in, uint64_t step, uint32_t *index,
                            struct pawl_error *e) {
    pawl_code code = pawl_inspect_find(in, step, index, e);
    if (code != PAWL_OK || in->steps[*index].is.complete) return code;
    return error_set(e, PAWL_CORRUPT, 0, "%s: step %" PRIu64 " is incomplete: %s", in->path,
                     in->steps[*index].is.step, in->steps[*index].is.missing);
}

pawl_code pawl_inspect_export(struct pawl_inspect *in, const struct pawl_inspect_export *options,
                              struct pawl_inspect_exported *out, struct pawl_error *e) {
    *out = (struct pawl_inspect_exported){0};
    uint32_t index = 0;
    if (options->output == NULL || options->output[0] == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "export: no output is named");
    pawl_code code = find_whole(in, options->step, &index, e);
    if (code != PAWL_OK) return code;
    for (int tries = 1;; tries++) {
        code = export_once(in, index, options, out, e);
        if (!inspect_is_gone(in, index, code)) return code;
        if (tries == 2) return inspect_gone(in, e);
        code = inspect_scan(in, e); /* once more, on what is there now */
        if (code == PAWL_OK) code = find_whole(in, options->step, &index, e);
        if (code != PAWL_OK) return code;
    }
}
