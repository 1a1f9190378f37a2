/* Small files as a whole: read with a limit, replaced in one step. `what` names the file's part in errors:
 * "opening spec a.yaml". Stores have their own way (store/store.h). */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/bytes.h"
#include "base/error.h"

/* Appends the file to `out`. Errors: NOT_FOUND, IO, MEMORY; ARGUMENT: it has more than `most` bytes. */
pawl_code file_read(const char *path, size_t most, const char *what, struct bytes *out, struct pawl_error *e);
/* Temporary file beside `path`, fsync, rename, fsync of the folder: the former content, or the new one,
 * whole. Errors: NOT_FOUND, NO_SPACE, IO, MEMORY. */
pawl_code file_replace(const char *path, const struct bytes *text, const char *what, struct pawl_error *e);

#endif
