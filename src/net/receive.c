/* Frames that arrive, and the receives they belong to. Whatever a frame says is checked against the
 * transfer it names; one that names a transfer which has ended is normal after a fence and is ignored. */
#include "net/core.h"

#include <stdlib.h>
#include <string.h>

static void answer(struct net *net, const struct net_request *r, const struct frame *ready,
                   enum frame_kind kind) {
    struct frame f = {.kind = kind, .tag = ready->tag, .total = ready->total, .send_id = ready->send_id};
    if (kind == FRAME_CLEAR) f.recv_id = r->id;
    peer_reply(net, &f, ready->payload, ready->payload_bytes);
}

/* A message (EAGER or READY) has met its receive, which is in no table any more. */
static void deliver(struct net *net, struct net_request *r, const struct frame *f) {
    bool fits = f->total <= r->bytes;
    if (f->kind == FRAME_READY) answer(net, r, f, fits ? FRAME_CLEAR : FRAME_SKIP);
    if (!fits) {
        request_complete(net, r, PAWL_FORMAT, f->total);
    } else if (f->kind == FRAME_EAGER) {
        if (f->total > 0) memcpy(r->data, f->payload, f->payload_bytes);
        request_complete(net, r, PAWL_OK, f->total);
    } else {
        r->state = REQUEST_RECEIVING;
        r->total = f->total;
        r->remote_id = f->send_id;
    }
}

static void keep(struct net *net, const struct frame *f) {
    struct net_message *m = malloc(sizeof *m + f->payload_bytes);
    if (m == NULL) {
        net->broken = true;
        return;
    }
    m->frame = *f;
    m->frame.payload = m->payload;
    if (f->payload_bytes > 0) memcpy(m->payload, f->payload, f->payload_bytes);
    table_put(&net->arrived, f->tag, &m->node);
}

static void on_message(struct net *net, const struct frame *f) {
    if (net->fenced && view_is_older(tag_view(f->tag), net->view)) {
        net->counters.stale_dropped++;
        return;
    }
    struct net_request *r = (struct net_request *)table_take(&net->posted, f->tag);
    if (r == NULL) {
        keep(net, f);
        return;
    }
    r->state = REQUEST_RECEIVING; /* out of the table */
    deliver(net, r, f);
}

/* CLEAR or SKIP: the receiver's word on a message that we announced. */
static void on_answer(struct net *net, const struct frame *f) {
    struct net_request *r = request_find(net, f->send_id);
    if (r == NULL) return;
    if (r->state != REQUEST_ANNOUNCED || r->tag != f->tag || r->bytes != f->total) {
        net->counters.frames_refused++;
    } else if (f->kind == FRAME_SKIP) {
        request_complete(net, r, PAWL_OK, r->bytes);
    } else {
        r->state = REQUEST_STREAMING;
        r->remote_id = f->recv_id;
        peer_push_ready(net, r);
    }
}

static void on_data(struct net *net, const struct frame *f) {
    struct net_request *r = request_find(net, f->recv_id);
    if (r == NULL) return;
    if (r->state != REQUEST_RECEIVING || r->tag != f->tag || r->total != f->total ||
        r->remote_id != f->send_id || f->payload_bytes > r->total - r->moved) {
        net->counters.frames_refused++;
        return;
    }
    memcpy(r->data + f->offset, f->payload, f->payload_bytes);
    r->moved += f->payload_bytes;
    if (r->moved == r->total) request_complete(net, r, PAWL_OK, r->total);
}

static void hold(struct net *net, const void *data, size_t size) {
    struct net_held *held = malloc(sizeof *held + size);
    if (held == NULL) {
        net->broken = true;
        return;
    }
    held->next = NULL;
    held->size = size;
    memcpy(held->bytes, data, size);
    *net->held_tail = held;
    net->held_tail = &held->next;
}

static struct net_held *take_held(struct net *net) {
    struct net_held *held = net->held_head;
    if (held == NULL) return NULL;
    net->held_head = held->next;
    if (net->held_head == NULL) net->held_tail = &net->held_head;
    return held;
}

void frames_let_in(struct net *net) {
    for (struct net_held *held; (held = take_held(net)) != NULL; free(held))
        net_frame_arrived(net, held->bytes, held->size);
}

void frames_held_free(struct net *net) {
    for (struct net_held *held; (held = take_held(net)) != NULL;) free(held);
}

void net_frame_arrived(struct net *net, const void *data, size_t size) {
    if (net->muted) {
        hold(net, data, size);
        return;
    }
    struct frame f;
    if (!frame_decode(data, size, &f)) {
        net->counters.frames_refused++;
        return;
    }
    switch (f.kind) {
    case FRAME_EAGER:
    case FRAME_READY:
        on_message(net, &f);
        break;
    case FRAME_CLEAR:
    case FRAME_SKIP:
        on_answer(net, &f);
        break;
    case FRAME_DATA:
        on_data(net, &f);
        break;
    case FRAME_KIND_END:
        break;
    }
}

static pawl_code receive(struct net *net, struct net_request what, struct pawl_error *e) {
    if (net->broken)
        return error_set(e, PAWL_MEMORY, 0, "receive: an earlier message was lost for want of memory");
    struct net_request *r = request_new(net, what.tag, what.data, what.bytes, what.cookie);
    if (r == NULL)
        return error_set(e, PAWL_MEMORY, 0, "receive of %zu bytes: no memory for a request",
                         (size_t)what.bytes);
    struct net_message *m = (struct net_message *)table_take(&net->arrived, r->tag);
    if (m == NULL) {
        r->state = REQUEST_POSTED;
        table_put(&net->posted, r->tag, &r->node);
        return PAWL_OK;
    }
    r->state = REQUEST_RECEIVING;
    deliver(net, r, &m->frame);
    free(m);
    net_pump(net);
    progress_notice(net);
    return PAWL_OK;
}

pawl_code net_recv(struct net *net, uint64_t tag, void *data, size_t bytes, uint64_t cookie,
                   struct pawl_error *e) {
    net_lock(net);
    pawl_code code =
        receive(net, (struct net_request){.tag = tag, .data = data, .bytes = bytes, .cookie = cookie}, e);
    net_unlock(net);
    return code;
}
