/* Implementation of model/data.h. */
#include "model/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

/* llm.c's header: 256 words of 32 bits, of which three are used: magic, version, number of tokens. */
#define HEADER_BYTES   1024u
#define MAGIC_GPT2     20240520u
#define MAGIC_LLAMA3   20240801u
#define IDENTITY_BYTES 65536u /* of each end of the file */

struct data {
    int fd;
    char *path;
    uint32_t width; /* bytes a token */
    uint32_t vocabulary;
    uint32_t context;
    uint64_t seed;
    uint64_t file_bytes;
    uint64_t first; /* offset of token 0 */
    uint64_t token_count;
    uint64_t window_count;
    uint64_t identity;
};

static const struct {
    const char *name;
    uint32_t width;
} formats[DATA_FORMAT_COUNT] = {
    [DATA_BYTES] = {"bytes", 1},
    [DATA_U16] = {"uint16", 2},
    [DATA_U32] = {"uint32", 4},
};

const char *data_format_name(enum data_format format) {
    return (uint32_t)format < DATA_FORMAT_COUNT ? formats[format].name : "unknown";
}

static pawl_code read_at(const struct data *d, uint64_t offset, void *out, size_t size,
                         struct pawl_error *e) {
    for (size_t had = 0; had < size;) {
        ssize_t n = pread(d->fd, (uint8_t *)out + had, size - had, (off_t)(offset + had));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return error_set(e, PAWL_IO, errno, "%s: reading %zu bytes at offset %llu", d->path, size,
                             (unsigned long long)offset);
        if (n == 0)
            return error_set(e, PAWL_IO, 0, "%s: ends at offset %llu, it had %llu bytes when it was opened",
                             d->path, (unsigned long long)(offset + had), (unsigned long long)d->file_bytes);
        had += (size_t)n;
    }
    return PAWL_OK;
}

static pawl_code read_header(struct data *d, struct pawl_error *e) {
    uint8_t raw[12];
    if (d->width == 1 || d->file_bytes < HEADER_BYTES) return PAWL_OK;
    pawl_code code = read_at(d, 0, raw, sizeof raw, e);
    if (code != PAWL_OK) return code;
    struct reader r = reader_of(raw, sizeof raw);
    uint32_t magic = reader_u32(&r), version = reader_u32(&r), count = reader_u32(&r);
    if (magic != MAGIC_GPT2 && magic != MAGIC_LLAMA3) return PAWL_OK;
    if (magic == MAGIC_GPT2 ? version != 1 && version != 2 : version != 7)
        return error_set(e, PAWL_FORMAT, 0, "%s: offset 4: token file version %u is not known", d->path,
                         version);
    uint64_t bytes = d->file_bytes - HEADER_BYTES;
    if (bytes != (uint64_t)count * d->width)
        return error_set(
            e, PAWL_FORMAT, 0,
            "%s: offset 8: the header tells of %u tokens, %llu bytes at %u a token, but %llu bytes follow",
            d->path, count, (unsigned long long)count * d->width, d->width, (unsigned long long)bytes);
    d->first = HEADER_BYTES;
    return PAWL_OK;
}

static pawl_code measure(struct data *d, enum data_format format, struct pawl_error *e) {
    uint64_t bytes = d->file_bytes - d->first;
    if (bytes % d->width != 0)
        return error_set(e, PAWL_FORMAT, 0, "%s: %llu bytes are no whole number of %s tokens", d->path,
                         (unsigned long long)bytes, data_format_name(format));
    d->token_count = bytes / d->width;
    d->window_count = d->token_count == 0 ? 0 : (d->token_count - 1) / d->context;
    if (d->window_count == 0)
        return error_set(e, PAWL_SPEC, 0, "%s: has %llu tokens, one sample takes context + 1 = %llu", d->path,
                         (unsigned long long)d->token_count, (unsigned long long)d->context + 1);
    return PAWL_OK;
}

/* Hash of: size, width, first bytes, last bytes. */
static pawl_code identify(struct data *d, struct pawl_error *e) {
    struct bytes b = {0};
    uint64_t size = d->file_bytes < IDENTITY_BYTES ? d->file_bytes : IDENTITY_BYTES;
    uint8_t *raw = malloc((size_t)size);
    pawl_code code = raw == NULL ? PAWL_MEMORY : PAWL_OK;
    bytes_put_u64(&b, d->file_bytes);
    bytes_put_u32(&b, d->width);
    for (int end = 0; end < 2 && code == PAWL_OK; end++) {
        code = read_at(d, end == 0 ? 0 : d->file_bytes - size, raw, (size_t)size, e);
        if (code == PAWL_OK) bytes_put(&b, raw, (size_t)size);
    }
    if (b.failed) code = PAWL_MEMORY;
    if (code == PAWL_MEMORY) error_set(e, code, 0, "%s: no memory to read its ends", d->path);
    if (code == PAWL_OK) d->identity = hash64(b.data, b.size);
    free(raw);
    bytes_close(&b);
    return code;
}

static pawl_code open_file(struct data *d, struct pawl_error *e) {
    struct stat info;
    d->fd =
        open(d->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe is refused, not waited for */
    if (d->fd < 0 || fstat(d->fd, &info) != 0) {
        int error = errno;
        return error_set(e, error_code_of_errno(error), error, "training text %s", d->path);
    }
    if (!S_ISREG(info.st_mode))
        return error_set(e, PAWL_FORMAT, 0, "training text %s: not a regular file", d->path);
    d->file_bytes = (uint64_t)info.st_size;
    return PAWL_OK;
}

pawl_code data_open(const char *path, enum data_format format, uint32_t vocabulary, uint32_t context,
                    uint64_t seed, struct data **out, struct pawl_error *e) {
    *out = NULL;
    if ((uint32_t)format >= DATA_FORMAT_COUNT || vocabulary == 0 || context == 0 || vocabulary > INT32_MAX)
        return error_set(e, PAWL_SPEC, 0,
                         "training text %s: format %d, vocabulary %u or context %u is out of range", path,
                         (int)format, vocabulary, context);
    struct data *d = calloc(1, sizeof *d);
    if (d == NULL) return error_set(e, PAWL_MEMORY, 0, "training text %s: no memory", path);
    d->fd = -1;
    d->path = strdup(path);
    d->width = formats[format].width;
    d->vocabulary = vocabulary;
    d->context = context;
    d->seed = seed;
    pawl_code code =
        d->path != NULL ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "training text %s: no memory", path);
    if (code == PAWL_OK) code = open_file(d, e);
    if (code == PAWL_OK) code = read_header(d, e);
    if (code == PAWL_OK) code = measure(d, format, e);
    if (code == PAWL_OK) code = identify(d, e);
    if (code != PAWL_OK) {
        data_close(d);
        return code;
    }
    *out = d;
    return PAWL_OK;
}

void data_close(struct data *d) {
    if (d == NULL) return;
    if (d->fd >= 0) close(d->fd);
    free(d->path);
    free(d);
}

uint64_t data_token_count(const struct data *d) { return d->token_count; }
uint64_t data_window_count(const struct data *d) { return d->window_count; }
uint64_t data_identity(const struct data *d) { return d->identity; }
uint32_t data_context(const struct data *d) { return d->context; }
uint32_t data_vocabulary(const struct data *d) { return d->vocabulary; }

static uint32_t token_of(const uint8_t *raw, uint32_t width) {
    uint32_t token = 0;
    for (uint32_t i = 0; i < width; i++) token |= (uint32_t)raw[i] << (8 * i);
    return token;
}

/* Tokens are read in pieces of this many, so that no memory is taken however long the context. */
#define PIECE_TOKENS 1024u

/* Token i of the window is tokens[i] and targets[i-1]. */
static pawl_code read_window(const struct data *d, uint64_t begin, int32_t *tokens, int32_t *targets,
                             struct pawl_error *e) {
    uint8_t raw[PIECE_TOKENS * 4];
    uint64_t wanted = (uint64_t)d->context + 1;
    for (uint64_t at = 0; at < wanted; at += PIECE_TOKENS) {
        uint64_t n = wanted - at < PIECE_TOKENS ? wanted - at : PIECE_TOKENS;
        uint64_t offset = d->first + (begin + at) * d->width;
        pawl_code code = read_at(d, offset, raw, (size_t)n * d->width, e);
        if (code != PAWL_OK) return code;
        for (uint64_t i = 0; i < n; i++) {
            uint32_t token = token_of(raw + i * d->width, d->width);
            if (token >= d->vocabulary)
                return error_set(e, PAWL_FORMAT, 0, "%s: offset %llu: token %u, the vocabulary has %u",
                                 d->path, (unsigned long long)(offset + i * d->width), token, d->vocabulary);
            if (at + i < d->context) tokens[at + i] = (int32_t)token;
            if (at + i > 0) targets[at + i - 1] = (int32_t)token;
        }
    }
    return PAWL_OK;
}

pawl_code data_sample(const struct data *d, uint64_t n, int32_t *tokens, int32_t *targets,
                      struct pawl_error *e) {
    uint64_t epoch = n / d->window_count;
    uint64_t window = rng_permute(d->seed + epoch, n % d->window_count, d->window_count);
    return read_window(d, window * d->context, tokens, targets, e);
}
