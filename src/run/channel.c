/* The framed channel of run/message.h, over a stream socket or between two ends in one process. */
#include "run/message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct channel {
    int fd;               /* -1: an end of a pair */
    struct channel *end;  /* the other end of a pair, null once it is closed */
    pthread_mutex_t lock; /* guards `out` and writing */
    struct bytes out;
    size_t out_at;
    struct bytes in;
    size_t in_at;
    uint32_t in_max; /* bytes of a frame */
    bool lost;
};

static pawl_code channel_new(int fd, struct channel **out, struct pawl_error *e) {
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a control channel");
    c->fd = fd;
    c->in_max = MESSAGE_BYTES_MAX;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return PAWL_OK;
}

pawl_code channel_open_fd(int fd, struct channel **out, struct pawl_error *e) {
    int flags = fcntl(fd, F_GETFL);
    /* Programs that code of the user's starts are not to hold the channel open. */
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return error_set(e, PAWL_IO, errno, "control channel (descriptor %d)", fd);
    return channel_new(fd, out, e);
}

pawl_code channel_open_pair(struct channel *out[2], struct pawl_error *e) {
    out[0] = out[1] = NULL;
    pawl_code code = channel_new(-1, &out[0], e);
    if (code == PAWL_OK) code = channel_new(-1, &out[1], e);
    if (code != PAWL_OK) {
        channel_close(out[0]);
        return code;
    }
    out[0]->end = out[1];
    out[1]->end = out[0];
    return PAWL_OK;
}

void channel_limit(struct channel *c, uint32_t bytes_max) { c->in_max = bytes_max; }

void channel_close(struct channel *c) {
    if (c == NULL) return;
    if (c->end != NULL) {
        c->end->end = NULL;
        c->end->lost = true;
    }
    if (c->fd >= 0) close(c->fd);
    pthread_mutex_destroy(&c->lock);
    bytes_close(&c->out);
    bytes_close(&c->in);
    free(c);
}

int channel_fd(const struct channel *c) { return c->fd; }

/* Called with the lock held. */
static bool write_queued(struct channel *c) {
    while (c->out_at < c->out.size && !c->lost) {
        ssize_t n = send(c->fd, c->out.data + c->out_at, c->out.size - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (n < 0)
            c->lost = true;
        else
            c->out_at += (size_t)n;
    }
    bytes_clear(&c->out);
    c->out_at = 0;
    return true;
}

static void append_size(struct bytes *to, size_t start) {
    uint32_t size = (uint32_t)(to->size - start - 4);
    for (int i = 0; i < 4; i++) to->data[start + (size_t)i] = (uint8_t)(size >> (8 * i));
}

/* Either a message or the bytes of one. A frame that does not fit as a whole leaves nothing behind. */
static pawl_code append_frame(struct bytes *to, const struct message *m, const void *frame, size_t size) {
    size_t start = to->size;
    bytes_put_u32(to, 0);
    if (m != NULL)
        message_encode(m, to);
    else
        bytes_put(to, frame, size);
    pawl_code code = to->failed                                 ? PAWL_MEMORY
                     : to->size - start - 4 > MESSAGE_BYTES_MAX ? PAWL_ARGUMENT
                                                                : PAWL_OK;
    if (code == PAWL_OK)
        append_size(to, start);
    else
        to->size = start;
    return code;
}

static pawl_code send_either(struct channel *c, const struct message *m, const void *frame, size_t size,
                             struct pawl_error *e) {
    pthread_mutex_lock(&c->lock);
    pawl_code code = PAWL_OK;
    if (c->fd < 0) {
        if (c->end != NULL) code = append_frame(&c->end->in, m, frame, size);
    } else if (!c->lost) {
        code = append_frame(&c->out, m, frame, size);
        if (code == PAWL_OK) write_queued(c);
    }
    bool lost = c->lost;
    pthread_mutex_unlock(&c->lock);
    if (code == PAWL_MEMORY) return error_set(e, code, 0, "no memory for a control message");
    if (code != PAWL_OK) return error_set(e, code, 0, "control message over %u bytes", MESSAGE_BYTES_MAX);
    return lost ? error_set(e, PAWL_PEER_LOST, 0, "control channel closed") : PAWL_OK;
}

pawl_code channel_send(struct channel *c, const struct message *m, struct pawl_error *e) {
    return send_either(c, m, NULL, 0, e);
}

pawl_code channel_send_frame(struct channel *c, const void *frame, size_t size, struct pawl_error *e) {
    return send_either(c, NULL, frame, size, e);
}

bool channel_flush(struct channel *c) {
    if (c->fd < 0) return true;
    pthread_mutex_lock(&c->lock);
    bool done = write_queued(c);
    pthread_mutex_unlock(&c->lock);
    return done;
}

/* Only before more is read: frames that have come are not moved for each that is taken. */
static void drop_consumed(struct channel *c) {
    if (c->in_at == 0) return;
    memmove(c->in.data, c->in.data + c->in_at, c->in.size - c->in_at);
    c->in.size -= c->in_at;
    c->in_at = 0;
}

static void read_available(struct channel *c) {
    uint8_t raw[65536];
    drop_consumed(c);
    while (c->fd >= 0 && !c->in.failed && c->in.size <= (size_t)c->in_max + 4) {
        ssize_t n = read(c->fd, raw, sizeof raw);
        if (n > 0) bytes_put(&c->in, raw, (size_t)n);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) c->lost = true;
        if (n < (ssize_t)sizeof raw && !(n < 0 && errno == EINTR)) return;
    }
}

/* Size of the next frame without its length; false: it has not come as a whole. */
static bool next_frame(const struct channel *c, uint32_t *size) {
    *size = 0;
    if (c->in.size == c->in_at) return false;
    struct reader r = reader_of(c->in.data + c->in_at, c->in.size - c->in_at);
    *size = reader_u32(&r);
    return !r.failed && (*size > c->in_max || *size <= r.size - r.at);
}

pawl_code channel_receive_frame(struct channel *c, const uint8_t **frame, size_t *size, bool *got,
                                struct pawl_error *e) {
    *got = false;
    uint32_t bytes;
    bool whole = next_frame(c, &bytes);
    if (!whole) {
        read_available(c);
        whole = next_frame(c, &bytes);
    }
    if (whole && bytes > c->in_max)
        return error_set(e, PAWL_FORMAT, 0, "control frame of %u bytes: over the limit", bytes);
    if (c->in.failed) return error_set(e, PAWL_MEMORY, 0, "no memory for a control message");
    if (!whole) return c->lost ? error_set(e, PAWL_PEER_LOST, 0, "control channel closed") : PAWL_OK;
    *frame = c->in.data + c->in_at + 4;
    *size = bytes;
    *got = true;
    c->in_at += 4 + (size_t)bytes;
    return PAWL_OK;
}

pawl_code channel_receive(struct channel *c, struct message *m, bool *got, struct pawl_error *e) {
    const uint8_t *frame;
    size_t size;
    pawl_code code = channel_receive_frame(c, &frame, &size, got, e);
    return code == PAWL_OK && *got ? message_decode(frame, size, m, e) : code;
}
