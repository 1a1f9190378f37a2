/* What launcher and worker say to each other: one flat struct, its bytes, and a framed channel.
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
    /* launcher to worker */
    MESSAGE_START = 1, /* rank, version, incarnation, resume_incarnation, run_id, text = spec */
    MESSAGE_PEERS,     /* data = for every live rank: u32 rank, u32 size, address */
    MESSAGE_PLAN,      /* view, data = the plan's binary form: for the GO that follows */
    MESSAGE_GO,        /* view, version, verdict, clip, shift, optimistic, settle, flags = live, has_grad */
    MESSAGE_FENCE,     /* view */
    MESSAGE_DECIDE,    /* view, iteration, verdict, clip, optimistic */
    MESSAGE_SAVE,      /* version, part, parts */
    MESSAGE_DURABLE,   /* version */
    MESSAGE_FINISH,
    MESSAGE_FORGET, /* version */
    MESSAGE_INJECT, /* iteration, text = fault point name */
    /* worker to launcher */
    MESSAGE_ADDRESS,  /* data = this worker's network address */
    MESSAGE_READY,    /* version, text = how its store is written */
    MESSAGE_FAILED,   /* code, text: the worker cannot go on and ends */
    MESSAGE_BEAT,     /* progress, busy */
    MESSAGE_REDUCED,  /* view, report */
    MESSAGE_FENCED,   /* view, version, has_report, report */
    MESSAGE_SAVED,    /* version, part, parts, code, bytes, write_ns, text = what went wrong */
    MESSAGE_SUSPECT,  /* peer */
    MESSAGE_MEASURED, /* data = measure_report: at the last version */
    MESSAGE_KIND_END
};

struct message { /* unused fields are 0; pointers point into the channel until the next receive */
    enum message_kind kind;
    uint32_t rank, peer;
    uint64_t view, version, iteration;
    uint64_t incarnation, resume_incarnation;
    uint8_t run_id[16];
    enum coord_verdict verdict;
    float clip;
    int32_t shift;
    bool optimistic, settle, busy, has_report;
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

struct channel;
/* Takes over a connected stream socket, made non-blocking. */
pawl_code channel_open_fd(int fd, struct channel **out, struct pawl_error *e);
/* Two ends in this process; closing one closes the other for receiving after what was sent. */
pawl_code channel_open_pair(struct channel *out[2], struct pawl_error *e);
void channel_close(struct channel *c);   /* accepts null */
int channel_fd(const struct channel *c); /* -1 for a pair */
/* Queue a frame and write what the socket takes; PEER_LOST when the other end is gone. */
pawl_code channel_send(struct channel *c, const struct message *m, struct pawl_error *e);
/* Write what is queued. True when nothing is left. */
bool channel_flush(struct channel *c);
/* The next frame: OK and *got, or OK and not *got when there is none now; PEER_LOST at the end of the stream.
 */
pawl_code channel_receive(struct channel *c, struct message *m, bool *got, struct pawl_error *e);

#endif
