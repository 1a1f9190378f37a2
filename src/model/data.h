/* Training text: a file of tokens with O(1) access to any sample.
 *
 * Formats: bytes (vocabulary 256), or token files of little-endian uint16/uint32 with or without the
 * 1024-byte header that llm.c writes (magic 20240520 version 1 or 2, or 20240801 version 7, then the number
 * of tokens; nanoGPT's have none). The stream is cut into windows
 * of context+1 tokens that overlap by one; sample n of the run (n = step * global batch + row) is the
 * window rng_permute(seed + epoch, n mod windows): each window once an epoch, any n found at once, the
 * position is n alone. The file is read with pread, so that one cut short is an error and not
 * a signal; its size and a digest of its first and last bytes are its identity. Errors: NOT_FOUND, IO, FORMAT
 * (names file, offset and what is wrong), SPEC (too short). Tested in tests/unit/model_data_test.c. */
#ifndef MODEL_DATA_H
#define MODEL_DATA_H

#include <stdint.h>

#include "base/error.h"

enum data_format { DATA_BYTES, DATA_U16, DATA_U32, DATA_FORMAT_COUNT };
const char *data_format_name(enum data_format format); /* "bytes", "uint16", "uint32" */

struct data;
pawl_code data_open(const char *path, enum data_format format, uint32_t vocabulary, uint32_t context,
                    uint64_t seed, struct data **out, struct pawl_error *e);
void data_close(struct data *d);
uint64_t data_token_count(const struct data *d);
uint64_t data_window_count(const struct data *d);
uint64_t data_identity(const struct data *d);
uint32_t data_context(const struct data *d);
uint32_t data_vocabulary(const struct data *d);

/* Sample n: tokens[context] and targets[context] (the next token of each). Errors: IO when the file cannot be
 * read or became shorter, FORMAT when a token is not below the vocabulary (names its offset). */
pawl_code data_sample(const struct data *d, uint64_t n, int32_t *tokens, int32_t *targets,
                      struct pawl_error *e);

#endif
