/* Opens weight files and reads numbers from them. */
#include <errno.h>
#include <fcntl.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/weights_private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor bytes are read as they lie in the file");

/* Index and configuration files: far more than any has. */
#define TEXT_BYTES_MAX ((off_t)64 << 20)

static pawl_code read_at(const struct weights_file *f, uint64_t offset, void *out, size_t size,
                         struct pawl_error *e) {
    for (size_t had = 0; had < size;) {
        ssize_t n = pread(f->fd, (uint8_t *)out + had, size - had, (off_t)(offset + had));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return error_set(e, PAWL_IO, errno, "%s: reading %zu bytes at offset %llu", f->path, size,
                             (unsigned long long)offset);
        if (n == 0)
            return error_set(e, PAWL_FORMAT, 0, "%s: ends at offset %llu, wanted %zu bytes from offset %llu",
                             f->path, (unsigned long long)(offset + had), size, (unsigned long long)offset);
        had += (size_t)n;
    }
    return PAWL_OK;
}

static pawl_code open_readable(const char *path, int *fd, off_t *size, struct pawl_error *e) {
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe is refused, not waited for */
    if (*fd >= 0 && fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *size = info.st_size;
        return PAWL_OK;
    }
    int error = errno;
    bool irregular = *fd >= 0 && !S_ISREG(info.st_mode);
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return irregular ? error_set(e, PAWL_FORMAT, 0, "weights: %s is not a regular file", path)
                     : error_set(e, error_code_of_errno(error), error, "weights: %s", path);
}

pawl_code weights_text_read(const char *path, char **text, struct pawl_error *e) {
    struct weights_file f = {.path = strdup(path)};
    off_t size;
    *text = NULL;
    if (f.path == NULL) return error_set(e, PAWL_MEMORY, 0, "weights: no memory to read %s", path);
    pawl_code code = open_readable(path, &f.fd, &size, e);
    if (code == PAWL_OK && size > TEXT_BYTES_MAX)
        code = error_set(e, PAWL_FORMAT, 0, "%s: has %lld bytes, at most %lld are read", path,
                         (long long)size, (long long)TEXT_BYTES_MAX);
    if (code == PAWL_OK) {
        *text = calloc(1, (size_t)size + 1);
        code = *text != NULL ? read_at(&f, 0, *text, (size_t)size, e)
                             : error_set(e, PAWL_MEMORY, 0, "weights: no memory to read %s", path);
    }
    if (code != PAWL_OK) {
        free(*text);
        *text = NULL;
    }
    if (f.fd >= 0) close(f.fd);
    free(f.path);
    return code;
}

static pawl_code read_header(struct weights_file *f, uint64_t file_bytes, struct pawl_error *e) {
    uint8_t first[8];
    pawl_code code = read_at(f, 0, first, sizeof first, e);
    if (code != PAWL_OK) return code;
    uint64_t size = st_header_size(first);
    if (size == 0 || size > file_bytes)
        return error_set(e, PAWL_FORMAT, 0, "%s: its first 8 bytes are no safetensors header length",
                         f->path);
    uint8_t *raw = malloc((size_t)size);
    if (raw == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory for its header", f->path);
    code = read_at(f, 0, raw, (size_t)size, e);
    if (code == PAWL_OK) {
        code = st_header_parse(raw, (size_t)size, file_bytes, &f->header, e);
        if (code != PAWL_OK) error_wrap(e, "%s", f->path);
    }
    free(raw);
    return code;
}

/* Appends a file to the source. */
static pawl_code add_file(struct weights_source *s, const char *path, struct pawl_error *e) {
    struct weights_file *files = realloc(s->files, (s->file_count + 1) * sizeof *files);
    if (files == NULL) return error_set(e, PAWL_MEMORY, 0, "weights: no memory to open %s", path);
    s->files = files;
    struct weights_file *f = &files[s->file_count];
    off_t size;
    *f = (struct weights_file){.fd = -1, .path = strdup(path)};
    if (f->path == NULL) return error_set(e, PAWL_MEMORY, 0, "weights: no memory to open %s", path);
    s->file_count++;
    pawl_code code = open_readable(path, &f->fd, &size, e);
    return code == PAWL_OK ? read_header(f, (uint64_t)size, e) : code;
}

static pawl_code join(const char *folder, const char *name, char **out, struct pawl_error *e) {
    return asprintf(out, "%s/%s", folder, name) >= 0
               ? PAWL_OK
               : error_set(e, PAWL_MEMORY, 0, "weights: no memory for a path");
}

static bool is_open(const struct weights_source *s, const char *path) {
    for (uint32_t i = 0; i < s->file_count; i++)
        if (strcmp(s->files[i].path, path) == 0) return true;
    return false;
}

/* Opens each file that the index names. A name must stay within the folder. */
static pawl_code add_indexed(struct weights_source *s, const char *folder, const cJSON *map,
                             struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (const cJSON *entry = map->child; entry != NULL && code == PAWL_OK; entry = entry->next) {
        char *path;
        if (!cJSON_IsString(entry) || strchr(entry->valuestring, '/') != NULL || entry->valuestring[0] == '.')
            return error_set(
                e, PAWL_FORMAT, 0,
                "%s/model.safetensors.index.json: weight_map \"%.100s\": wanted the name of a file in this "
                "folder",
                folder, entry->string);
        code = join(folder, entry->valuestring, &path, e);
        if (code != PAWL_OK) return code;
        if (!is_open(s, path)) code = add_file(s, path, e);
        free(path);
    }
    return code;
}

static pawl_code open_index(struct weights_source *s, const char *folder, const char *index,
                            struct pawl_error *e) {
    char *text;
    pawl_code code = weights_text_read(index, &text, e);
    if (code != PAWL_OK) return code;
    cJSON *tree = cJSON_Parse(text);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(tree, "weight_map");
    if (cJSON_IsObject(map) && map->child != NULL)
        code = add_indexed(s, folder, map, e);
    else
        code = error_set(e, PAWL_FORMAT, 0, "%s: wanted a JSON object with a weight_map that names files",
                         index);
    cJSON_Delete(tree);
    free(text);
    return code;
}

static pawl_code open_folder(struct weights_source *s, const char *folder, struct pawl_error *e) {
    char *single = NULL, *index = NULL;
    pawl_code code = join(folder, "model.safetensors", &single, e);
    if (code == PAWL_OK) code = join(folder, "model.safetensors.index.json", &index, e);
    if (code == PAWL_OK) {
        if (access(single, F_OK) == 0)
            code = add_file(s, single, e);
        else if (access(index, F_OK) == 0)
            code = open_index(s, folder, index, e);
        else
            code = error_set(e, PAWL_NOT_FOUND, 0,
                             "weights: %s has neither model.safetensors nor model.safetensors.index.json",
                             folder);
    }
    free(single);
    free(index);
    return code;
}

pawl_code weights_source_open(const char *path, struct weights_source *s, struct pawl_error *e) {
    struct stat info;
    *s = (struct weights_source){0};
    if (stat(path, &info) != 0) {
        int error = errno;
        return error_set(e, error_code_of_errno(error), error, "weights: %s", path);
    }
    pawl_code code = S_ISDIR(info.st_mode) ? open_folder(s, path, e) : add_file(s, path, e);
    if (code != PAWL_OK) weights_source_close(s);
    return code;
}

void weights_source_close(struct weights_source *s) {
    for (uint32_t i = 0; i < s->file_count; i++) {
        if (s->files[i].fd >= 0) close(s->files[i].fd);
        free(s->files[i].path);
        st_header_close(&s->files[i].header);
    }
    free(s->files);
    *s = (struct weights_source){0};
}

pawl_code weights_source_find(const struct weights_source *s, const char *name,
                              const struct weights_file **file, const struct st_tensor **tensor,
                              struct pawl_error *e) {
    char prefixed[128];
    snprintf(prefixed, sizeof prefixed, "transformer.%s", name);
    *tensor = NULL;
    for (uint32_t i = 0; i < s->file_count; i++) {
        for (int form = 0; form < 2; form++) {
            const struct st_tensor *t = st_header_find(&s->files[i].header, form == 0 ? name : prefixed);
            if (t == NULL) continue;
            if (*tensor != NULL)
                return error_set(e, PAWL_FORMAT, 0, "%s: tensor %s is there twice, also as %s in %s",
                                 s->files[i].path, t->name, (*tensor)->name, (*file)->path);
            *tensor = t;
            *file = &s->files[i];
        }
    }
    return PAWL_OK;
}

/* --- numbers --- */

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float float_of_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return sign != 0 ? -small : small;
}

/* 16-bit numbers are read in pieces of this many, so that no memory is taken however large the tensor. */
#define PIECE 4096u

static pawl_code read_16(const struct weights_file *f, const struct st_tensor *t, uint64_t first,
                         uint64_t count, float *out, struct pawl_error *e) {
    uint16_t raw[PIECE];
    for (uint64_t at = 0; at < count; at += PIECE) {
        uint64_t n = count - at < PIECE ? count - at : PIECE;
        uint64_t offset = f->header.data_offset + t->begin + (first + at) * sizeof *raw;
        pawl_code code = read_at(f, offset, raw, (size_t)n * sizeof *raw, e);
        if (code != PAWL_OK) return code;
        for (uint64_t i = 0; i < n; i++)
            out[at + i] =
                t->dtype == PAWL_F16 ? float_of_half(raw[i]) : float_of_bits((uint32_t)raw[i] << 16);
    }
    return PAWL_OK;
}

pawl_code weights_file_read(const struct weights_file *f, const struct st_tensor *t, uint64_t first,
                            uint64_t count, float *out, struct pawl_error *e) {
    if (t->dtype == PAWL_F16 || t->dtype == PAWL_BF16) return read_16(f, t, first, count, out, e);
    if (t->dtype != PAWL_F32)
        return error_set(e, PAWL_FORMAT, 0, "%s: tensor %s is %s, wanted F32, F16 or BF16", f->path, t->name,
                         st_dtype_name(t->dtype));
    return read_at(f, f->header.data_offset + t->begin + first * sizeof *out, out,
                   (size_t)count * sizeof *out, e);
}
