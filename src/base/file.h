/* Small files as a whole: read with a limit, replaced in one step. `what` names the file's part in errors:
 * "opening spec a.yaml". Stores have their own way (store/store.h). */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <sys/types.h>

#include "base/bytes.h"
#include "base/error.h"

/* Appends the file to `out`. Errors: NOT_FOUND, IO, MEMORY; ARGUMENT: it has more than `most` bytes. */
pawl_code file_read(const char *path, size_t most, const char *what, struct bytes *out, struct pawl_error *e);
/* Temporary file beside `path`, fsync, rename, fsync of the folder: the former content, or the new one,
 * whole. A symbolic link stays one: what it leads to is replaced, in its own folder. A device or pipe is not
 * replaced but written to; a pipe that nobody reads, or not for 10 s, is an error. Errors: NOT_FOUND,
 * NO_SPACE, IO, MEMORY. */
pawl_code file_replace(const char *path, const struct bytes *text, const char *what, struct pawl_error *e);

/* What `path` names when the symbolic links at its end are followed; it need not be there. From malloc; null
 * with errno. */
char *file_followed(const char *path);
/* write(2) that raises no SIGPIPE and is not ended by other signals. */
ssize_t file_write_unsignalled(int fd, const void *data, size_t size);

#endif
