/* Results in files: written beside, flushed, renamed, so that a reader never meets half of one. Tested in
 * tests/e2e/plan_test.py. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static int refuse(const struct cli_file *f, const char *what, int os_errno) {
    pawl_code code = os_errno == ENOENT ? PAWL_NOT_FOUND : os_errno == ENOSPC ? PAWL_NO_SPACE : PAWL_IO;
    return cli_error(code, "option -o: %s %s: %s", what, f->path, strerror(os_errno));
}

/* A device or a pipe cannot be replaced, and /dev/stdout is asked for: it is written to. */
static bool is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

int cli_file_open(struct cli_file *f, const char *path) {
    *f = (struct cli_file){.path = path, .out = stdout};
    if (path == NULL) return 0;
    if (!is_special(path) && asprintf(&f->beside, "%s.%d.tmp", path, (int)getpid()) < 0)
        return cli_error(PAWL_MEMORY, "no memory to write %s", path);
    const char *target = f->beside != NULL ? f->beside : path;
    f->out = fopen(target, f->beside != NULL ? "wxe" : "we");
    if (f->out != NULL) return 0;
    int code = refuse(f, "making", errno);
    free(f->beside);
    return code;
}

int cli_file_close(struct cli_file *f, bool written) {
    if (f->path == NULL) return written ? cli_flush() : 0;
    int code = 0;
    if (written && (fflush(f->out) != 0 || (f->beside != NULL && fsync(fileno(f->out)) != 0)))
        code = refuse(f, "writing", errno);
    if (fclose(f->out) != 0 && code == 0 && written) code = refuse(f, "closing", errno);
    if (f->beside != NULL && written && code == 0 && rename(f->beside, f->path) != 0)
        code = refuse(f, "renaming to", errno);
    if (f->beside != NULL && (!written || code != 0)) unlink(f->beside);
    free(f->beside);
    f->beside = NULL;
    return code;
}
