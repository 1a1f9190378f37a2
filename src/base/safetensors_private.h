/* What the two halves of base/safetensors.h share: the table and its checks, the parser of the text. */
#ifndef BASE_SAFETENSORS_PRIVATE_H
#define BASE_SAFETENSORS_PRIVATE_H

#include "base/safetensors.h"

/* PAWL_DTYPE_COUNT when no dtype has this name. */
enum pawl_dtype st_dtype_of_name(const char *name);

/* Without the search for an earlier pair of this key, which st_header_check does for all at once. */
pawl_code st_header_append_metadata(struct st_header *h, const char *key, const char *value,
                                    struct pawl_error *e);

/* Names and keys differ; tensors lie one after the other from byte 0, *data_bytes in all. */
pawl_code st_header_check(const struct st_header *h, uint64_t *data_bytes, struct pawl_error *e);

#endif
