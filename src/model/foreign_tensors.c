/* What an engine says of a stage's parameters: checked, and copied. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/safetensors.h"
#include "model/foreign.h"

/* A save keeps things of its own under these names. */
static const char *const reserved[] = {"exp_avg/", "exp_avg_sq/", "exponent/", "__pawl_", "__metadata__"};

static pawl_code bad(uint32_t stage, uint32_t tensor, const char *name, const char *what,
                     struct pawl_error *e) {
    return error_set(e, PAWL_USER, 0, "stage %u: tensor %u '%.200s': %s", stage, tensor,
                     name != NULL ? name : "", what);
}

static const char *name_problem(const char *name) {
    size_t size = name != NULL ? strnlen(name, FOREIGN_NAME_MAX + 1) : 0;
    if (size == 0) return "it has no name: give it one that is unique in the whole model";
    if (size > FOREIGN_NAME_MAX) return "its name is too long: use at most 1024 bytes";
    if (!st_utf8_valid((const uint8_t *)name, size)) return "its name is not UTF-8";
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)name[i] < 0x20) return "its name holds a control character";
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strncmp(name, reserved[i], strlen(reserved[i])) == 0)
            return "names do not begin with exp_avg/, exp_avg_sq/, exponent/, __pawl_ or __metadata__: a "
                   "save "
                   "keeps its own under them";
    return NULL;
}

static const char *shape_problem(const struct pawl_engine_tensor *t, uint64_t *count) {
    *count = 1;
    if (t->rank > PAWL_ENGINE_RANK_MAX) return "it has more than 8 dimensions: reshape it";
    for (uint32_t d = 0; d < t->rank; d++) {
        if (t->shape[d] == 0) return "it has no elements: leave it out";
        if (!mem_mul(*count, t->shape[d], count) || *count > FOREIGN_FLOATS_MAX)
            return "it has more than 2^48 elements";
    }
    return NULL;
}

static pawl_code copy_tensor(const struct pawl_engine_tensor *from, uint32_t stage, uint32_t tensor,
                             uint64_t *offset, struct stage_tensor *to, struct pawl_error *e) {
    uint64_t count;
    const char *problem = name_problem(from->name);
    if (problem == NULL) problem = shape_problem(from, &count);
    if (problem == NULL && count > FOREIGN_FLOATS_MAX - *offset)
        problem = "the stage has more than 2^48 elements with it";
    if (problem != NULL) return bad(stage, tensor, from->name, problem, e);
    *to = (struct stage_tensor){.name = strdup(from->name),
                                .rank = from->rank,
                                .offset = *offset,
                                .count = count,
                                .flags = from->decay ? STAGE_DECAY : 0};
    if (to->name == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the name of a tensor");
    for (uint32_t d = 0; d < from->rank; d++) to->shape[d] = from->shape[d];
    *offset += count;
    return PAWL_OK;
}

static int by_name(const void *a, const void *b) {
    const struct stage_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static pawl_code check_twins(const struct stage_tensor *tensors, uint32_t count, uint32_t stage,
                             struct pawl_error *e) {
    const struct stage_tensor **sorted = calloc(count, sizeof *sorted);
    if (sorted == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u tensors", count);
    for (uint32_t i = 0; i < count; i++) sorted[i] = &tensors[i];
    qsort(sorted, count, sizeof *sorted, by_name);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 1; i < count && code == PAWL_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            code = bad(stage, (uint32_t)(sorted[i] - tensors), sorted[i]->name,
                       "another tensor of the stage has this name", e);
    free(sorted);
    return code;
}

static pawl_code check_ends(const struct pawl_engine_layout *l, uint32_t stage, uint32_t stages,
                            struct pawl_error *e) {
    bool first = stage == 0, last = stage + 1 == stages;
    const char *wanted = NULL;
    if (first != (l->input_bytes == 0))
        wanted = first ? "0 for input_bytes, as it is the first" : "input_bytes above 0";
    if (last != (l->output_bytes == 0))
        wanted = last ? "0 for output_bytes, as it is the last" : "output_bytes above 0";
    if (l->input_bytes > FOREIGN_BYTES_MAX || l->output_bytes > FOREIGN_BYTES_MAX) wanted = "at most 2^48";
    if (wanted == NULL) return PAWL_OK;
    return error_set(e, PAWL_USER, 0,
                     "stage %u of %u: a micro-batch has %llu input and %llu output bytes: wanted %s", stage,
                     stages, (unsigned long long)l->input_bytes, (unsigned long long)l->output_bytes, wanted);
}

pawl_code foreign_tensors(const struct pawl_engine_layout *layout, uint32_t stage, uint32_t stages,
                          struct stage_tensor **out, struct pawl_error *e) {
    *out = NULL;
    uint32_t count = layout->tensor_count;
    if (count == 0 || count > FOREIGN_TENSORS_MAX || layout->tensors == NULL)
        return error_set(e, PAWL_USER, 0, "stage %u has %u parameters: a stage needs 1 to %u", stage, count,
                         FOREIGN_TENSORS_MAX);
    pawl_code code = check_ends(layout, stage, stages, e);
    if (code != PAWL_OK) return code;
    struct stage_tensor *tensors = calloc(count, sizeof *tensors);
    if (tensors == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u tensors", count);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        code = copy_tensor(&layout->tensors[i], stage, i, &offset, &tensors[i], e);
    if (code == PAWL_OK) code = check_twins(tensors, count, stage, e);
    if (code == PAWL_OK)
        *out = tensors;
    else
        foreign_tensors_free(tensors, count);
    return code;
}

void foreign_tensors_free(struct stage_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; tensors != NULL && i < count; i++) free(tensors[i].name);
    free(tensors);
}
