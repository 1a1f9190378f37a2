/* What a command says to the launcher of a running job: join, drain, stop, status.
 *
 * A stream socket in the run folder, `admin.sock`, that only its owner may use. One request a connection; the
 * launcher answers with REPLY, or to JOIN with WELCOME. Where that takes time (a place that is held off, a
 * drain), it says WAIT at once, and a command that hears nothing gives up. From WELCOME on the connection is
 * the control channel of the worker that the asking process becomes.
 *
 * Formats: docs/formats/control.md. Every byte is checked. Tested in tests/unit/run_admin_test.c. */
#ifndef RUN_ADMIN_H
#define RUN_ADMIN_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/error.h"

#define ADMIN_SOCKET "admin.sock"

/* A request is some bytes; a status has some hundred bytes a worker. */
#define ADMIN_REQUEST_MAX 64u
#define ADMIN_REPLY_MAX   (16u << 20)

enum admin_kind {
    ADMIN_JOIN = 1,
    ADMIN_DRAIN, /* rank */
    ADMIN_STOP,
    ADMIN_STATUS,  /* json */
    ADMIN_REPLY,   /* code, text */
    ADMIN_WAIT,    /* text */
    ADMIN_WELCOME, /* rank, text = the launcher's working folder, transport, evidence, library, threads,
                      program, module ("": not set) */
    ADMIN_KIND_END
};

struct admin_frame { /* unused fields are 0 or "" */
    enum admin_kind kind;
    uint32_t rank;
    bool json;
    pawl_code code;
    /* of a decoded one: in its bytes */
    const char *text, *transport, *evidence, *library, *threads;
    const char *program, *module; /* the worker's, if it is not pawl's own: `program [-m module] worker FD` */
};

void admin_encode(const struct admin_frame *f, struct bytes *out); /* without the length */
pawl_code admin_decode(const void *data, size_t size, struct admin_frame *out, struct pawl_error *e);

/* The launcher's end: bound in `run_dir`, listening, not blocking. The path may be of any length. */
pawl_code admin_listen(const char *run_dir, int *out, struct pawl_error *e);

/* A command's end. They block. `text` (free it) is what the launcher said.
 * Errors: NOT_FOUND: no run is going on there; TIMEOUT: no first answer within 10 s; else the launcher's
 * own. */
pawl_code admin_ask(const char *run_dir, const struct admin_frame *request, char **text,
                    struct pawl_error *e);
/* Until a place is given: *fd is the worker's control channel. This process is in the launcher's working
 * folder then, with its workers' environment. `tell` (may be null) hears what there is to wait for. *argv:
 * null, or the command line (to be freed, one block, ends with a null) of the program that computes. */
pawl_code admin_join(const char *run_dir, void (*tell)(const char *text), uint32_t *rank, int *fd,
                     char ***argv, struct pawl_error *e);

#endif
