/* The calls of net/net.h that belong to no single part: tags, sending, polling, the fence, construction. */
#undef NDEBUG /* a tag out of range would silently name another message */
#include <assert.h>
#include <stdlib.h>

#include "net/address.h"
#include "net/core.h"

_Static_assert(NET_VIEW_BITS + NET_STEP_BITS + NET_KIND_BITS + NET_PIPELINE_BITS + NET_STAGE_BITS +
                       NET_MICROBATCH_BITS ==
                   64,
               "a tag fills 64 bits");
_Static_assert(NET_KIND_COUNT <= 1 << NET_KIND_BITS, "every kind has a value in the tag");

/* Rounds of progress in one net_poll at most, so that a peer that streams does not keep the caller. */
#define POLL_ROUNDS_MAX 8u

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
    for (uint32_t i = 0; i < net->slot_count; i++) free(net->slots[i]);
    free(net->slots);
    free(net->slots_free);
    free(net->done);
    bytes_close(&net->address);
    free(net);
}

void net_close(struct net *net) {
    if (net == NULL) return;
    peers_free(net);
    net->transport->close(net);
    net_free(net);
}

const void *net_address(const struct net *net, size_t *size) {
    *size = net->address.size;
    return net->address.data;
}

pawl_code net_send(struct net *net, uint32_t peer, uint64_t tag, const void *data, size_t bytes,
                   uint64_t cookie, struct pawl_error *e) {
    if (net->broken)
        return error_set(e, PAWL_MEMORY, 0, "send: an earlier message was lost for want of memory");
    struct net_peer *p = peer_of_number(net, peer);
    if (p == NULL)
        return error_set(e, PAWL_NOT_FOUND, 0, "send of %zu bytes: peer %u is not connected", bytes, peer);
    struct net_request *r = request_new(net, tag, (void *)(uintptr_t)data, bytes, cookie); /* only read */
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "send of %zu bytes: no memory for a request", bytes);
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

uint32_t net_poll(struct net *net, struct net_completion *out, uint32_t max) {
    for (uint32_t round = 0; round < POLL_ROUNDS_MAX; round++) {
        bool moved = net->transport->progress(net);
        net_pump(net);
        if (!moved) break;
    }
    if (net->broken) requests_fail_all(net);
    uint32_t count = 0;
    while (count < max && net->done_count > 0) {
        out[count++] = net->done[net->done_first].completion;
        net->done_first = (net->done_first + 1) % net->done_capacity;
        net->done_count--;
    }
    return count;
}

static bool message_is_stale(const struct table_node *node, const void *context) {
    const struct net *net = context;
    return view_is_older(tag_view(node->key), net->view);
}

void net_fence(struct net *net, uint64_t view) {
    net->fenced = true;
    net->view = view & ((1u << NET_VIEW_BITS) - 1);
    requests_drop_other_views(net, net->view);
    size_t before = net->arrived.count;
    table_sweep(&net->arrived, message_is_stale, free_message, net);
    net->counters.stale_dropped += before - net->arrived.count;
}

int net_fd(const struct net *net) { return net->transport->fd(net); }

bool net_arm(struct net *net) {
    if (net->done_count > 0 || net->replies_head != NULL || net->dirty != NULL) return false;
    return net->transport->arm(net);
}
