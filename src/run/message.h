/* What coordinator and worker say to each other (through the launcher, run/link.h): one flat struct, its
 * bytes, and a framed channel.
 *
 * A frame is u32 length (of what follows), u8 kind, then the fields of that kind (docs/formats/control.md).
 * A channel is one end of a stream socket, or of an in-memory pair in tests; frames arrive in the order sent.
 * Every received byte is checked: a malformed frame is FORMAT and ends the channel. Sending is safe from two
 * threads (the heartbeat has its own); receiving belongs to one. Tested in tests/unit/run_message_test.c. */
#ifndef RUN_MESSAGE_H
#define RUN_MESSAGE_H

#include "base/bytes.h"
#include "base/error.h"
#include "coord/coord.h"

/* Largest frame: a plan of the largest run, and the addresses of all its ranks, fit many times. */
#define MESSAGE_BYTES_MAX (1u << 30)

enum message_kind {
    /* to a worker */
    MESSAGE_START = 1, /* rank, ranks, run_id, text = spec */
    MESSAGE_PEERS,   /* data = for some ranks: u32 rank, u32 size, address; replaces what was known of them */
    MESSAGE_GO,      /* view, data = struct go (run/go.h) */
    MESSAGE_FENCE,   /* view */
    MESSAGE_DECIDE,  /* view, iteration, verdict, clip, optimistic */
    MESSAGE_SAVE,    /* version, chunk, part, parts */
    MESSAGE_DURABLE, /* version */
    MESSAGE_FORGET,  /* version */
    MESSAGE_PREPARE, /* rank = who takes, peer = from whom, chunk, view, version: told to both; one that is
                        not a member yet hears of the view only so */
    MESSAGE_INJECT,  /* iteration, text = what (run/inject.h) */
    MESSAGE_LEAVE,   /* nothing is left for you to do: end saves, go, exit code 0 */
    MESSAGE_FINISH,
    /* from a worker */
    MESSAGE_ADDRESS,  /* data = this worker's network address */
    MESSAGE_READY,    /* text = how its store is written */
    MESSAGE_FAILED,   /* code, text: the worker cannot go on and ends */
    MESSAGE_BEAT,     /* progress, busy, work, at (for people: what it last did) */
    MESSAGE_REDUCED,  /* view, chunk, report */
    MESSAGE_FENCED,   /* view, data = struct fenced (run/go.h) */
    MESSAGE_PREPARED, /* chunk, version: the copy is complete */
    MESSAGE_SAVED,    /* version, chunk, part, parts, code, bytes, write_ns, text = what went wrong */
    MESSAGE_SUSPECT,  /* peer */
    MESSAGE_LEAVING,  /* told to end (SIGTERM): wants to go without loss */
    MESSAGE_MEASURED, /* chunk, data = measure_report: now and then, and at the last version */
    /* to and from a program that describes its engine, which answers with FAILED otherwise */
    MESSAGE_DESCRIBE,  /* text = spec */
    MESSAGE_DESCRIBED, /* data = JSON (run/describe.h) */
    MESSAGE_KIND_END
};

/* What a worker last did, for evidence and status: packed into one word that a signal handler may read. */
struct message_at {
    uint64_t iteration;
    uint32_t position; /* in its instruction list */
    uint8_t op;        /* enum ir_op; 255: none */
    uint32_t chunk, home, microbatch;
};

struct message { /* unused fields are 0; pointers point into the channel until the next receive */
    enum message_kind kind;
    uint32_t rank, ranks, peer, chunk;
    uint64_t view, version, iteration;
    uint8_t run_id[16];
    enum coord_verdict verdict;
    float clip;
    bool optimistic, busy;
    enum coord_work work;
    struct message_at at;
    uint32_t part, parts;
    struct coord_report report;
    pawl_code code;
    uint64_t progress, bytes;
    int64_t write_ns;
    const char *text; /* terminated; "" when absent */
    const uint8_t *data;
    size_t data_bytes;
};

void message_encode(const struct message *m, struct bytes *out); /* without the frame's length */
/* `text` and `data` of the result point into `data` (text is checked to be terminated there). */
pawl_code message_decode(const void *data, size_t size, struct message *m, struct pawl_error *e);

/* A report as REDUCED and FENCED carry it. */
void message_put_report(struct bytes *out, const struct coord_report *report);
void message_take_report(struct reader *r, struct coord_report *report);

struct channel;
/* Takes over a connected stream socket, made non-blocking. */
pawl_code channel_open_fd(int fd, struct channel **out, struct pawl_error *e);
/* Two ends in this process; closing one closes the other for receiving after what was sent. */
pawl_code channel_open_pair(struct channel *out[2], struct pawl_error *e);
/* Longer frames are FORMAT from here on (MESSAGE_BYTES_MAX before); no more is held of what comes. */
void channel_limit(struct channel *c, uint32_t bytes_max);
void channel_close(struct channel *c);   /* accepts null */
int channel_fd(const struct channel *c); /* -1 for a pair */
/* Queue a frame and write what the socket takes; PEER_LOST when the other end is gone. */
pawl_code channel_send(struct channel *c, const struct message *m, struct pawl_error *e);
/* Write what is queued. True when nothing is left. */
bool channel_flush(struct channel *c);
/* The next frame: OK and *got, or OK and not *got when there is none now; PEER_LOST at the end of the stream.
 */
pawl_code channel_receive(struct channel *c, struct message *m, bool *got, struct pawl_error *e);
/* The same without looking inside: a relay passes frames on. `frame` (without its length) is the channel's
 * until the next receive. */
pawl_code channel_receive_frame(struct channel *c, const uint8_t **frame, size_t *size, bool *got,
                                struct pawl_error *e);
pawl_code channel_send_frame(struct channel *c, const void *frame, size_t size, struct pawl_error *e);

#endif
