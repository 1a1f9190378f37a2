/* The calls of net/net.h that belong to no single part: tags, sending, polling, the fence, construction. */
#undef NDEBUG /* a tag out of range would silently name another message */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "net/address.h"
#include "net/core.h"

_Static_assert(NET_VIEW_BITS + NET_STEP_BITS + NET_KIND_BITS + NET_PIPELINE_BITS + NET_STAGE_BITS +
                       NET_MICROBATCH_BITS ==
                   64,
               "a tag fills 64 bits");
_Static_assert(NET_KIND_COUNT <= 1 << NET_KIND_BITS, "every kind has a value in the tag");

/* Rounds of progress in one net_poll at most, so that a peer that streams does not keep the caller. */
#define POLL_ROUNDS_MAX 8u

/* While a tcp connection waits for an answer of its peer, UCX leaves the wake-up descriptor readable: whoever
 * sleeps on it would spin until the peer answers. After this many armings in a row that led to nothing,
 * each further one costs a nap. */
#define FRUITLESS_ARMS_MAX 16u
#define NAP_US             200u

static uint64_t pack(uint64_t tag, unsigned bits, uint64_t value) {
    assert(value >> bits == 0);
    return tag << bits | value;
}

uint64_t net_tag_encode(struct net_tag tag) {
    assert(tag.kind < NET_KIND_COUNT);
    uint64_t out = tag.view & ((1u << NET_VIEW_BITS) - 1);
    out = pack(out, NET_STEP_BITS, tag.step & ((1u << NET_STEP_BITS) - 1));
    out = pack(out, NET_KIND_BITS, (uint64_t)tag.kind);
    out = pack(out, NET_PIPELINE_BITS, tag.pipeline);
    out = pack(out, NET_STAGE_BITS, tag.stage);
    return pack(out, NET_MICROBATCH_BITS, tag.microbatch);
}

struct net *net_new(const struct transport *transport, size_t frame_max, uint64_t endpoint,
                    const void *address, size_t address_size) {
    struct net *net = calloc(1, sizeof *net);
    if (net == NULL) return NULL;
    net->transport = transport;
    net->endpoint = endpoint;
    net->replies_tail = &net->replies_head;
    net->held_tail = &net->held_head;
    address_encode(endpoint, address, address_size, &net->address);
    size_t announcement = FRAME_HEADER_BYTES + net->address.size; /* must fit into one frame */
    net->frame_max = frame_max > announcement ? frame_max : announcement;
    if (!table_init(&net->posted) || !table_init(&net->arrived) || net->address.failed) {
        net_free(net);
        return NULL;
    }
    return net;
}

static bool any_node(const struct table_node *node, const void *context) {
    (void)context;
    return node != NULL;
}

static void free_message(struct table_node *node) { free(node); } /* the node is its first member */

void net_free(struct net *net) {
    if (net->arrived.buckets != NULL) table_sweep(&net->arrived, any_node, free_message, NULL);
    table_close(&net->arrived);
    table_close(&net->posted);
    for (struct net_reply *reply = net->replies_head, *next; reply != NULL; reply = next) {
        next = reply->next;
        free(reply);
    }
    frames_held_free(net);
    for (uint32_t i = 0; i < net->slot_count; i++) free(net->slots[i]);
    free(net->slots);
    free(net->slots_free);
    free(net->done);
    bytes_close(&net->address);
    free(net);
}

void net_close(struct net *net) {
    if (net == NULL) return;
    progress_stop(net);
    peers_free(net);
    net->transport->close(net);
    net_free(net);
}

const void *net_address(const struct net *net, size_t *size) {
    *size = net->address.size;
    return net->address.data;
}

static pawl_code send_to(struct net *net, uint32_t peer, struct net_request what, struct pawl_error *e) {
    if (net->broken)
        return error_set(e, PAWL_MEMORY, 0, "send: an earlier message was lost for want of memory");
    struct net_peer *p = peer_of_number(net, peer);
    if (p == NULL)
        return error_set(e, PAWL_NOT_FOUND, 0, "send of %zu bytes: peer %u is not connected",
                         (size_t)what.bytes, peer);
    struct net_request *r = request_new(net, what.tag, what.data, what.bytes, what.cookie);
    if (r == NULL)
        return error_set(e, PAWL_MEMORY, 0, "send of %zu bytes: no memory for a request", (size_t)what.bytes);
    r->state = REQUEST_QUEUED;
    r->peer = p;
    if (p->lost) {
        request_complete(net, r, PAWL_PEER_LOST, 0);
        return PAWL_OK;
    }
    peer_push_ready(net, r);
    net_pump(net);
    return PAWL_OK;
}

pawl_code net_send(struct net *net, uint32_t peer, uint64_t tag, const void *data, size_t bytes,
                   uint64_t cookie, struct pawl_error *e) {
    net_lock(net);
    struct net_request what = {.tag = tag,
                               .data = (void *)(uintptr_t)data,
                               .bytes = bytes,
                               .cookie = cookie}; /* data is only read */
    pawl_code code = send_to(net, peer, what, e);
    progress_notice(net);
    net_unlock(net);
    return code;
}

bool net_move(struct net *net) {
    bool moved = net->transport->progress(net);
    net_pump(net);
    if (moved) net->fruitless_arms = 0;
    return moved;
}

uint32_t net_poll(struct net *net, struct net_completion *out, uint32_t max) {
    net_lock(net);
    progress_owner_polls(net);
    uint32_t rounds = 0;
    while (rounds < POLL_ROUNDS_MAX && net_move(net)) rounds++;
    if (rounds > 0) progress_notice(net);
    if (net->broken) requests_fail_all(net);
    uint32_t count = 0;
    while (count < max && net->done_count > 0) {
        out[count++] = net->done[net->done_first].completion;
        net->done_first = (net->done_first + 1) % net->done_capacity;
        net->done_count--;
    }
    net_unlock(net);
    return count;
}

static bool message_is_stale(const struct table_node *node, const void *context) {
    const struct net *net = context;
    return view_is_older(tag_view(node->key), net->view);
}

void net_fence(struct net *net, uint64_t view) {
    net_lock(net);
    net->fenced = true;
    net->view = view & ((1u << NET_VIEW_BITS) - 1);
    requests_drop_other_views(net, net->view);
    size_t before = net->arrived.count;
    table_sweep(&net->arrived, message_is_stale, free_message, net);
    net->counters.stale_dropped += before - net->arrived.count;
    net_unlock(net);
}

void net_mute(struct net *net, bool mute) {
    net_lock(net);
    net->muted = mute;
    if (!mute) {
        frames_let_in(net);
        peers_let_in(net);
        net_pump(net);
        progress_notice(net);
    }
    net_unlock(net);
}

int net_fd(const struct net *net) {
    int fd = progress_fd(net);
    return fd >= 0 ? fd : net->transport->fd(net);
}

bool net_has_frames(const struct net *net) {
    return !net->muted && !net->broken && (net->replies_head != NULL || net->dirty != NULL);
}

bool net_arm_transport(struct net *net, uint32_t *nap_us) {
    if (!net->transport->arm(net)) return false;
    *nap_us = net->fruitless_arms++ >= FRUITLESS_ARMS_MAX ? NAP_US : 0;
    return true;
}

bool net_arm(struct net *net) {
    uint32_t nap_us = 0;
    net_lock(net);
    bool failing = net->broken && net->slots_free_count < net->slot_count;
    bool armed = net->done_count == 0 && !failing && !net_has_frames(net) &&
                 (progress_owner_sleeps(net) || net_arm_transport(net, &nap_us));
    net_unlock(net);
    if (nap_us > 0 && net_fd(net) >= 0) usleep(nap_us);
    return armed;
}
