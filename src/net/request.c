/* Requests: slots named by (generation, slot), so that a late frame of a forgotten transfer finds nothing;
 * and the queue of completions, in which room is reserved when a request starts, so that finishing one
 * never fails. */
#include "net/core.h"

#include <stdlib.h>

#define SLOTS_MIN 64u

uint64_t tag_view(uint64_t tag) { return tag >> (64 - NET_VIEW_BITS); }

bool view_is_older(uint64_t view, uint64_t than) {
    uint64_t mask = (1u << NET_VIEW_BITS) - 1;
    uint64_t behind = (than - view) & mask;
    return behind != 0 && behind <= mask / 2;
}

static bool reserve_done(struct net *net) {
    size_t open = net->slot_count - net->slots_free_count;
    size_t wanted = net->done_count + open + 1;
    if (wanted <= net->done_capacity) return true;
    size_t capacity = wanted < SLOTS_MIN ? SLOTS_MIN : 2 * wanted;
    struct net_done *wider = calloc(capacity, sizeof *wider);
    if (wider == NULL) return false;
    for (size_t i = 0; i < net->done_count; i++)
        wider[i] = net->done[(net->done_first + i) % net->done_capacity];
    free(net->done);
    net->done = wider;
    net->done_capacity = capacity;
    net->done_first = 0;
    return true;
}

static bool grow_slots(struct net *net) {
    uint32_t count = net->slot_count == 0 ? SLOTS_MIN : 2 * net->slot_count;
    struct net_request **slots = realloc(net->slots, count * sizeof(struct net_request *));
    if (slots == NULL) return false;
    net->slots = slots;
    uint32_t *slots_free = realloc(net->slots_free, count * sizeof *slots_free);
    if (slots_free == NULL) return false;
    net->slots_free = slots_free;
    while (net->slot_count < count) {
        struct net_request *r = calloc(1, sizeof *r);
        if (r == NULL) return net->slots_free_count > 0;
        r->id = (UINT64_C(1) << 32) | net->slot_count;
        net->slots_free[net->slots_free_count++] = net->slot_count;
        net->slots[net->slot_count++] = r;
    }
    return true;
}

struct net_request *request_new(struct net *net, uint64_t tag, void *data, uint64_t bytes, uint64_t cookie) {
    if (!reserve_done(net)) return NULL;
    if (net->slots_free_count == 0 && !grow_slots(net)) return NULL;
    struct net_request *r = net->slots[net->slots_free[--net->slots_free_count]];
    *r = (struct net_request){.id = r->id, .tag = tag, .data = data, .bytes = bytes, .cookie = cookie};
    return r;
}

struct net_request *request_find(struct net *net, uint64_t id) {
    uint32_t slot = (uint32_t)id;
    if (slot >= net->slot_count) return NULL;
    struct net_request *r = net->slots[slot];
    return r->id == id && r->state != REQUEST_FREE ? r : NULL;
}

void request_free(struct net *net, struct net_request *r) {
    if (r->ready) peer_remove_ready(r);
    if (r->state == REQUEST_POSTED) table_remove(&net->posted, &r->node);
    r->state = REQUEST_FREE;
    r->id += UINT64_C(1) << 32; /* wraps after 2^32 uses of one slot */
    if (r->id >> 32 == 0) r->id += UINT64_C(1) << 32;
    net->slots_free[net->slots_free_count++] = (uint32_t)r->id;
}

void request_complete(struct net *net, struct net_request *r, pawl_code code, uint64_t bytes) {
    size_t at = (net->done_first + net->done_count++) % net->done_capacity;
    net->done[at] = (struct net_done){.completion = {r->cookie, code, (size_t)bytes}, .tag = r->tag};
    request_free(net, r);
}

void requests_fail_all(struct net *net) {
    for (uint32_t i = 0; i < net->slot_count; i++) {
        struct net_request *r = net->slots[i];
        if (r->state != REQUEST_FREE) request_complete(net, r, PAWL_MEMORY, 0);
    }
}

void requests_drop_other_views(struct net *net, uint64_t view) {
    for (uint32_t i = 0; i < net->slot_count; i++) {
        struct net_request *r = net->slots[i];
        if (r->state != REQUEST_FREE && tag_view(r->tag) != view) request_free(net, r);
    }
    size_t kept = 0;
    for (size_t i = 0; i < net->done_count; i++) {
        struct net_done done = net->done[(net->done_first + i) % net->done_capacity];
        if (tag_view(done.tag) == view) net->done[(net->done_first + kept++) % net->done_capacity] = done;
    }
    net->done_count = kept;
}
