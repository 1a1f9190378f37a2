/* See state.h. */
#include "kit/state.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kit/measure.h"

#define RANK_MAX 8

static void *must(void *memory) {
    if (memory == NULL) measure_stop("state", "no memory");
    return memory;
}

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) measure_stop(path, strerror(errno));
    long size = ftell(f);
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0) measure_stop(path, strerror(errno));
    char *text = must(calloc(1, (size_t)size + 1));
    if (fread(text, 1, (size_t)size, f) != (size_t)size) measure_stop(path, "cannot be read");
    fclose(f);
    return text;
}

static void room_for(struct state *s, uint32_t count) {
    s->tensors = must(calloc(count, sizeof *s->tensors));
    s->shapes = must(calloc(count, RANK_MAX * sizeof *s->shapes));
    s->names = must(calloc(count, sizeof *s->names));
    s->offsets = must(calloc(count, sizeof *s->offsets));
}

static void add(struct state *s, const char *name, const uint64_t *shape, uint32_t rank) {
    uint64_t *own = s->shapes + (size_t)s->count * RANK_MAX, bytes = 4;
    for (uint32_t i = 0; i < rank; i++) bytes *= own[i] = shape[i];
    s->names[s->count] = must(strdup(name));
    s->offsets[s->count] = s->bytes;
    s->tensors[s->count] =
        (struct pawl_tensor){.name = s->names[s->count], .dtype = PAWL_F32, .rank = rank, .shape = own};
    s->bytes += bytes;
    s->count++;
}

void state_read(struct state *s, const char *path) {
    char *text = read_text(path);
    cJSON *root = cJSON_Parse(text), *list = cJSON_GetObjectItem(root, "tensors"), *item = NULL;
    if (!cJSON_IsArray(list)) measure_stop(path, "wanted an array `tensors`");
    room_for(s, (uint32_t)cJSON_GetArraySize(list) + 1);
    cJSON_ArrayForEach(item, list) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));
        cJSON *shape = cJSON_GetObjectItem(item, "shape"), *extent = NULL;
        uint64_t extents[RANK_MAX];
        uint32_t rank = 0;
        if (name == NULL || !cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > RANK_MAX)
            measure_stop(path, "a tensor wants a name and a shape of at most 8 dimensions");
        cJSON_ArrayForEach(extent, shape) extents[rank++] = (uint64_t)cJSON_GetNumberValue(extent);
        add(s, name, extents, rank);
    }
    cJSON_Delete(root);
    free(text);
}

void state_flat(struct state *s, uint64_t bytes) {
    room_for(s, 1);
    add(s, "state", (uint64_t[]){bytes / 4}, 1);
}

void state_allocate(struct state *s, uint32_t version_count) {
    s->versions = must(calloc(version_count, sizeof *s->versions));
    for (; s->version_count < version_count; s->version_count++) {
        void *block = must(mem_alloc(s->bytes));
        if (s->version_count == 0)
            measure_fill(block, s->bytes, 1);
        else
            memcpy(block, s->versions[0], s->bytes);
        s->versions[s->version_count] = block;
    }
    for (uint32_t i = 0; i < s->count; i++) s->tensors[i].data = (uint8_t *)s->versions[0] + s->offsets[i];
}

void state_addresses(const struct state *s, uint32_t version, void **data) {
    for (uint32_t i = 0; i < s->count; i++) data[i] = (uint8_t *)s->versions[version] + s->offsets[i];
}

void state_close(struct state *s) {
    for (uint32_t i = 0; i < s->version_count; i++) mem_free(s->versions[i], s->bytes);
    for (uint32_t i = 0; i < s->count; i++) free(s->names[i]);
    free(s->versions);
    free(s->offsets);
    free(s->names);
    free(s->shapes);
    free(s->tensors);
}
