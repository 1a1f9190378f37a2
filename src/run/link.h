/* Between the launcher and the coordinator's process: frames over one stream socket.
 *
 * The launcher holds the channels of all workers and passes frames on, so a coordinator can die and be
 * started again without any worker noticing but by a fence. A frame that goes to many ranks is one frame
 * here: the launcher passes on whole frames only, so that a dying coordinator tells all of them or none. When
 * the coordinator is gone the launcher first passes on what it had said; then it starts another one, telling
 * it the newest view it has passed on (of FENCE and GO), who is there, and the newest incarnation.
 *
 * Formats: docs/formats/control.md. Every byte is checked. Tested in tests/unit/run_link_test.c. */
#ifndef RUN_LINK_H
#define RUN_LINK_H

#include "run/conduct.h"

enum link_kind {
    /* to the coordinator */
    LINK_HELLO = 1, /* data = spec text; ranks, recover, view, incarnation, there (in list), stopping */
    LINK_STARTED,   /* rank */
    LINK_BEGIN,
    LINK_FROM,  /* rank, data = a worker's frame */
    LINK_EXIT,  /* rank */
    LINK_FOUND, /* view, version, resume_incarnation, incarnation, code, text */
    LINK_LEAVE, /* rank */
    LINK_STOP,
    LINK_INJECT, /* text: a fault for the coordinator (run/inject.h) */
    /* to the launcher */
    LINK_TO,   /* list of ranks, data = a frame for each of them */
    LINK_KILL, /* rank, text */
    LINK_FIND, /* view */
    LINK_NEED, /* ranks, text */
    LINK_NOTE, /* note */
    LINK_BEAT, /* both ways. The coordinator is alive: silence is answered by a new one. The launcher is:
                  while it is stopped, nobody can be heard, and the coordinator judges nobody */
    LINK_END,  /* finished (code OK), or stopped: code, text */
    LINK_KIND_END
};

struct link_frame { /* unused fields are 0; pointers point into the channel until the next receive */
    enum link_kind kind;
    uint32_t rank, ranks;
    bool recover, stopping;
    uint64_t view, version, incarnation, resume_incarnation;
    const uint32_t *list; /* malloc'ed by decode: link_frame_close */
    uint32_t list_count;
    pawl_code code;
    const char *text;
    struct conduct_note note;
    const uint8_t *data;
    size_t data_bytes;
};

void link_encode(const struct link_frame *f, struct bytes *out);
pawl_code link_decode(const void *data, size_t size, struct link_frame *out, struct pawl_error *e);
void link_frame_close(struct link_frame *f);

/* The coordinator's process, `pawl coordinate FD`: until FINISHED or STOPPED, or the link ends. Exit code. */
int link_coordinate(int fd);

#endif
