/* Peers: whom we can reach, what waits to be sent to each, and how it leaves.
 *
 * Each peer has a ready list (sends with a frame to hand over; long messages take turns, so a short one
 * never waits behind a long one) and a window of frames in the transport. A lost peer keeps its number
 * until the caller connects or disconnects it; sends to it end PEER_LOST. */
#include "net/core.h"

#include <stdlib.h>
#include <string.h>

#include "net/address.h"

struct net_peer *peer_of_number(struct net *net, uint32_t number) {
    for (struct net_peer *p = net->peers; p != NULL; p = p->next)
        if (p->named && p->number == number) return p;
    return NULL;
}

static struct net_peer *peer_of_endpoint(struct net *net, uint64_t endpoint) {
    struct net_peer *found = NULL;
    for (struct net_peer *p = net->peers; p != NULL; p = p->next)
        if (p->endpoint == endpoint && (found == NULL || found->lost)) found = p;
    return found;
}

static void mark_dirty(struct net *net, struct net_peer *p) {
    if (p->dirty || p->gone) return;
    p->dirty = true;
    p->dirty_next = net->dirty;
    net->dirty = p;
}

void peer_push_ready(struct net *net, struct net_request *r) {
    struct net_peer *p = r->peer;
    r->ready = true;
    r->ready_prev = p->ready_tail;
    r->ready_next = NULL;
    *(p->ready_tail != NULL ? &p->ready_tail->ready_next : &p->ready_head) = r;
    p->ready_tail = r;
    mark_dirty(net, p);
}

void peer_remove_ready(struct net_request *r) {
    struct net_peer *p = r->peer;
    *(r->ready_prev != NULL ? &r->ready_prev->ready_next : &p->ready_head) = r->ready_next;
    *(r->ready_next != NULL ? &r->ready_next->ready_prev : &p->ready_tail) = r->ready_prev;
    r->ready = false;
}

/* ---- life of a peer ---- */

static void peer_free_if_done(struct net_peer *p) {
    if (!p->gone || p->frames_owned > 0) return;
    free(p->address);
    free(p);
}

/* The link is over: whatever frames of it still come back count no more. */
static void end_link(struct net *net, struct net_peer *p) {
    p->generation++;
    p->frames_window = 0;
    void *link = p->link;
    p->link = NULL;
    if (link != NULL) net->transport->link_close(net, link);
    for (uint32_t i = 0; i < net->slot_count; i++) {
        struct net_request *r = net->slots[i];
        if (r->state >= REQUEST_QUEUED && r->peer == p) request_complete(net, r, PAWL_PEER_LOST, 0);
    }
}

void net_peer_lost(struct net *net, struct net_peer *p) {
    if (p->lost) return;
    p->loss_held = net->muted;
    if (p->loss_held) return;
    p->lost = true;
    end_link(net, p);
}

void peers_let_in(struct net *net) {
    for (struct net_peer *p = net->peers; p != NULL; p = p->next)
        if (p->loss_held) net_peer_lost(net, p);
}

static void peer_remove(struct net *net, struct net_peer *p) {
    for (struct net_peer **at = &net->peers; *at != NULL; at = &(*at)->next) {
        if (*at != p) continue;
        *at = p->next;
        break;
    }
    for (struct net_peer **at = &net->dirty; *at != NULL; at = &(*at)->dirty_next) {
        if (*at != p) continue;
        *at = p->dirty_next;
        break;
    }
    p->gone = true;
    end_link(net, p);
    peer_free_if_done(p);
}

void peers_free(struct net *net) {
    while (net->peers != NULL) peer_remove(net, net->peers);
}

static pawl_code peer_open(struct net *net, struct net_peer *p, struct pawl_error *e) {
    struct address address;
    pawl_code code = address_decode(p->address, p->address_size, &address, e);
    if (code == PAWL_OK)
        code = net->transport->link_open(net, p, address.transport, address.transport_bytes, e);
    p->lost = code != PAWL_OK;
    return code;
}

static pawl_code peer_new(struct net *net, const void *blob, size_t size, struct net_peer **out,
                          struct pawl_error *e) {
    struct address address;
    pawl_code code = address_decode(blob, size, &address, e);
    if (code != PAWL_OK) return code;
    struct net_peer *p = calloc(1, sizeof *p);
    uint8_t *copy = malloc(size);
    if (p == NULL || copy == NULL) {
        free(p);
        free(copy);
        return error_set(e, PAWL_MEMORY, 0, "peer: no memory for an address of %zu bytes", size);
    }
    memcpy(copy, blob, size);
    *p = (struct net_peer){.endpoint = address.endpoint, .address = copy, .address_size = size};
    code = peer_open(net, p, e);
    if (code != PAWL_OK) {
        free(copy);
        free(p);
        return code;
    }
    p->next = net->peers;
    net->peers = p;
    *out = p;
    return PAWL_OK;
}

static bool same_address(const struct net_peer *p, const void *blob, size_t size) {
    return p->address_size == size && memcmp(p->address, blob, size) == 0;
}

static struct net_peer *unnamed_peer(struct net *net, const void *blob, size_t size) {
    for (struct net_peer *p = net->peers; p != NULL; p = p->next)
        if (!p->named && !p->lost && same_address(p, blob, size)) return p;
    return NULL;
}

static pawl_code connect_to(struct net *net, uint32_t number, const void *address, size_t size,
                            struct pawl_error *e) {
    struct net_peer *old = peer_of_number(net, number);
    pawl_code code = PAWL_OK;
    if (old != NULL && same_address(old, address, size)) {
        if (old->lost) code = peer_open(net, old, e);
        if (code != PAWL_OK) error_wrap(e, "connect peer %u", number);
        return code;
    }
    struct net_peer *fresh = unnamed_peer(net, address, size);
    if (fresh == NULL) code = peer_new(net, address, size, &fresh, e);
    if (code != PAWL_OK) {
        error_wrap(e, "connect peer %u", number);
        return code;
    }
    if (old != NULL) peer_remove(net, old);
    fresh->named = true;
    fresh->number = number;
    return PAWL_OK;
}

pawl_code net_connect(struct net *net, uint32_t number, const void *address, size_t size,
                      struct pawl_error *e) {
    net_lock(net);
    pawl_code code = connect_to(net, number, address, size, e);
    progress_notice(net);
    net_unlock(net);
    return code;
}

void net_disconnect(struct net *net, uint32_t number) {
    net_lock(net);
    struct net_peer *p = peer_of_number(net, number);
    if (p != NULL) peer_remove(net, p);
    progress_notice(net);
    net_unlock(net);
}

/* ---- frames out ---- */

/* A frame with its header written and room for the payload behind it; null without memory. */
static struct net_frame *frame_new(struct net_peer *p, const struct frame *f) {
    struct net_frame *frame = malloc(sizeof *frame + FRAME_HEADER_BYTES + f->payload_bytes);
    if (frame == NULL) return NULL;
    *frame = (struct net_frame){
        .peer = p, .peer_generation = p->generation, .size = FRAME_HEADER_BYTES + f->payload_bytes};
    frame_encode(f, frame->bytes);
    if (f->payload_bytes > 0) memcpy(frame->bytes + FRAME_HEADER_BYTES, f->payload, f->payload_bytes);
    return frame;
}

void net_frame_sent(struct net *net, struct net_frame *frame, pawl_code code) {
    struct net_peer *p = frame->peer;
    bool current = frame->peer_generation == p->generation;
    struct net_request *r = frame->request != 0 ? request_find(net, frame->request) : NULL;
    if (current && frame->request != 0) p->frames_window--;
    if (r != NULL && current && code == PAWL_OK) {
        r->frames_open--;
        if (r->state == REQUEST_SENT && r->frames_open == 0) request_complete(net, r, PAWL_OK, r->bytes);
    }
    free(frame);
    p->frames_owned--;
    if (current && code != PAWL_OK) net_peer_lost(net, p);
    if (p->ready_head != NULL) mark_dirty(net, p);
    peer_free_if_done(p);
}

/* The next frame of a send: the whole of a short message, the announcement or a piece of a long one. */
static struct frame next_frame(const struct net *net, const struct net_request *r) {
    size_t room = net->frame_max - FRAME_HEADER_BYTES;
    struct frame f = {.kind = FRAME_EAGER, .tag = r->tag, .total = r->bytes};
    if (r->state == REQUEST_STREAMING) {
        uint64_t left = r->bytes - r->moved;
        f.kind = FRAME_DATA;
        f.offset = r->moved;
        f.payload_bytes = left < room ? (size_t)left : room;
        f.payload = r->data + r->moved;
    } else if (r->bytes > room) {
        f.kind = FRAME_READY;
        f.payload = net->address.data;
        f.payload_bytes = net->address.size;
    } else {
        f.payload = r->data;
        f.payload_bytes = (size_t)r->bytes;
    }
    if (f.kind != FRAME_EAGER) f.send_id = r->id;
    if (f.kind == FRAME_DATA) f.recv_id = r->remote_id;
    return f;
}

/* Hand over one frame of `r`, the head of its peer's ready list; false without memory. */
static bool send_one(struct net *net, struct net_peer *p, struct net_request *r) {
    struct frame f = next_frame(net, r);
    struct net_frame *frame = frame_new(p, &f);
    if (frame == NULL) return false;
    frame->request = r->id;
    peer_remove_ready(r);
    r->frames_open++;
    if (f.kind == FRAME_DATA) r->moved += f.payload_bytes;
    if (f.kind == FRAME_READY) {
        r->state = REQUEST_ANNOUNCED;
    } else if (f.kind == FRAME_EAGER || r->moved == r->bytes) {
        r->state = REQUEST_SENT;
    } else {
        peer_push_ready(net, r); /* to the tail: others get their turn */
    }
    p->frames_owned++;
    p->frames_window++;
    net->transport->frame_send(net, p->link, frame); /* may end r, so it comes last */
    return true;
}

static void pump_peer(struct net *net, struct net_peer *p) {
    while (!p->lost && p->ready_head != NULL && p->frames_window < NET_PEER_WINDOW) {
        if (send_one(net, p, p->ready_head)) continue;
        net->broken = true;
        return;
    }
}

void peer_reply(struct net *net, const struct frame *frame, const uint8_t *address, size_t address_size) {
    struct net_reply *reply = malloc(sizeof *reply + address_size);
    if (reply == NULL) {
        net->broken = true;
        return;
    }
    reply->next = NULL;
    reply->frame = *frame;
    reply->address_size = address_size;
    memcpy(reply->address, address, address_size);
    *net->replies_tail = reply;
    net->replies_tail = &reply->next;
}

/* A reply that cannot be sent is dropped: its receive stays open, as for any message that never comes. */
static void send_reply(struct net *net, const struct net_reply *reply) {
    struct address address;
    if (address_decode(reply->address, reply->address_size, &address, NULL) != PAWL_OK) {
        net->counters.frames_refused++;
        return;
    }
    struct net_peer *p = peer_of_endpoint(net, address.endpoint);
    if (p == NULL && peer_new(net, reply->address, reply->address_size, &p, NULL) != PAWL_OK) return;
    if (p->lost) return;
    struct net_frame *frame = frame_new(p, &reply->frame);
    if (frame == NULL) {
        net->broken = true;
        return;
    }
    p->frames_owned++;
    net->transport->frame_send(net, p->link, frame);
}

void net_pump(struct net *net) {
    if (net->muted) return;
    while (net->replies_head != NULL) {
        struct net_reply *reply = net->replies_head;
        net->replies_head = reply->next;
        if (net->replies_head == NULL) net->replies_tail = &net->replies_head;
        send_reply(net, reply);
        free(reply);
    }
    while (net->dirty != NULL && !net->broken) {
        struct net_peer *p = net->dirty;
        net->dirty = p->dirty_next;
        p->dirty = false;
        pump_peer(net, p);
    }
}
