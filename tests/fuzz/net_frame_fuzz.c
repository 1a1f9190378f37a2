/* Any bytes may arrive as a frame or as an address: an endpoint with transfers under way must survive them.
 * The input is a row of pieces (one byte kind, two bytes length, bytes); ids of the open transfers are
 * patched in on request, so that the fuzzer gets past the look-up. */
#include <stdlib.h>
#include <string.h>

#include "net/address.h"
#include "net/core.h"
#include "net/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void aim(struct net *net, uint8_t *frame, size_t size) {
    if (size < FRAME_HEADER_BYTES || net->slot_count == 0) return;
    struct net_request *r = net->slots[net->slot_count - 1 - frame[24] % 2];
    memcpy(frame + 8, &r->tag, 8);
    memcpy(frame + 24, r->peer != NULL ? &r->id : &r->remote_id, 8);
    memcpy(frame + 32, r->peer != NULL ? &r->remote_id : &r->id, 8);
    uint64_t total = r->peer != NULL ? r->bytes : r->total;
    memcpy(frame + 16, &total, 8);
}

static void arrive(struct net *net, const uint8_t *bytes, size_t size, uint8_t kind) {
    uint8_t *copy = malloc(size + 1); /* exact size, so that address sanitizer sees every byte too far */
    if (copy == NULL) return;
    memcpy(copy, bytes, size);
    if (kind & 1) aim(net, copy, size);
    if (kind & 2)
        net_connect(net, 2, copy, size, NULL);
    else
        net_frame_arrived(net, copy, size);
    if (kind & 4) net_fence(net, net->view + 1);
    free(copy);
    net_poll(net, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 5, 0});
    netsim_limit_frames(sim, 100);
    struct net *a = netsim_open(sim, NULL), *b = netsim_open(sim, NULL);
    size_t address_size;
    const void *address = net_address(b, &address_size);
    net_connect(a, 1, address, address_size, NULL);
    uint8_t out[300] = {0}, in[300];
    net_recv(a, 5, in, sizeof in, 1, NULL);
    net_send(a, 1, 6, out, sizeof out, 2, NULL);
    int64_t now = 0;
    for (size_t at = 0; at + 3 <= size;) {
        size_t length = (size_t)data[at + 1] | (size_t)(data[at + 2] & 3) << 8;
        if (length > size - at - 3) length = size - at - 3;
        arrive(a, data + at + 3, length, data[at]);
        at += 3 + length;
        netsim_advance(sim, now += 3);
    }
    netsim_free(sim);
    return 0;
}
