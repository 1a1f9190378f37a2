/* Weight files as they lie on disk: what weights_read.c needs of weights_source.c. */
#ifndef MODEL_WEIGHTS_PRIVATE_H
#define MODEL_WEIGHTS_PRIVATE_H

#include "base/safetensors.h"
#include "model/weights.h"

struct weights_file {
    int fd;
    char *path;
    struct st_header header;
};

struct weights_source { /* one file, or the files of a sharded set */
    struct weights_file *files;
    uint32_t file_count;
};

/* `path` is a .safetensors file, a folder with model.safetensors or with model.safetensors.index.json.
 * Errors: NOT_FOUND, IO, FORMAT, MEMORY. */
pawl_code weights_source_open(const char *path, struct weights_source *s, struct pawl_error *e);
void weights_source_close(struct weights_source *s);

/* The tensor of this name, with or without "transformer." before it; *tensor is null when there is none.
 * Errors: FORMAT when it is there twice. */
pawl_code weights_source_find(const struct weights_source *s, const char *name,
                              const struct weights_file **file, const struct st_tensor **tensor,
                              struct pawl_error *e);

/* Reads count numbers of a tensor as float, from number `first` on. The dtype is F32, F16 or BF16. */
pawl_code weights_file_read(const struct weights_file *file, const struct st_tensor *tensor, uint64_t first,
                            uint64_t count, float *out, struct pawl_error *e);

/* The whole of a small text file, terminated; freed by the caller. */
pawl_code weights_text_read(const char *path, char **text, struct pawl_error *e);

#endif
