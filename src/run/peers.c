/* Implementation of run/peers.h. */
#include "run/peers.h"

#include <stdlib.h>

pawl_code peers_init(struct peers *p, struct net *net, uint32_t rank_count, uint32_t rank,
                     struct pawl_error *e) {
    *p = (struct peers){.net = net, .rank_count = rank_count, .rank = rank};
    p->connected = calloc(rank_count, sizeof *p->connected);
    p->address = calloc(rank_count, sizeof *p->address);
    if (p->connected == NULL || p->address == NULL) {
        peers_close(p);
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u peers", rank_count);
    }
    return PAWL_OK;
}

void peers_close(struct peers *p) {
    if (p->address != NULL)
        for (uint32_t r = 0; r < p->rank_count; r++) bytes_close(&p->address[r]);
    free(p->connected);
    free(p->address);
    *p = (struct peers){0};
}

void peers_fence(struct peers *p, uint64_t view) {
    net_fence(p->net, view);
    p->view = view;
    p->has_lost = false;
}

pawl_code peers_learn(struct peers *p, const struct message *m, struct pawl_error *e) {
    struct reader r = reader_of(m->data, m->data_bytes);
    while (!r.failed && r.at < r.size) {
        uint32_t rank = reader_u32(&r), size = reader_u32(&r);
        const uint8_t *address = reader_take(&r, size);
        if (address == NULL || rank >= p->rank_count)
            return error_set(e, PAWL_FORMAT, 0, "malformed list of peer addresses");
        bytes_clear(&p->address[rank]);
        bytes_put(&p->address[rank], address, size);
        if (p->address[rank].failed) return error_set(e, PAWL_MEMORY, 0, "no memory for a peer's address");
        p->connected[rank] = false;
    }
    return r.failed ? error_set(e, PAWL_FORMAT, 0, "malformed list of peer addresses") : PAWL_OK;
}

static uint64_t tag_of(const struct peers *p, struct peers_name name) {
    return net_tag_encode((struct net_tag){.view = p->view,
                                           .step = name.step,
                                           .kind = name.kind,
                                           .pipeline = name.pipeline,
                                           .stage = name.stage,
                                           .microbatch = name.microbatch});
}

pawl_code peers_send(struct peers *p, uint32_t to, struct peers_name name, struct peers_data data,
                     enum peers_owner owner, uint32_t own, struct pawl_error *e) {
    if (!p->connected[to]) {
        struct bytes *address = &p->address[to];
        if (address->size == 0) return error_set(e, PAWL_INTERNAL, 0, "no address of rank %u", to);
        if (net_connect(p->net, to, address->data, address->size, e) != PAWL_OK) {
            p->has_lost = true;
            p->lost = to;
            return PAWL_OK;
        }
        p->connected[to] = true;
    }
    uint64_t cookie = peers_cookie(owner, (uint64_t)to << 32 | own);
    return net_send(p->net, to, tag_of(p, name), data.data, data.bytes, cookie, e);
}

pawl_code peers_recv(struct peers *p, struct peers_name name, void *data, size_t bytes, uint64_t cookie,
                     struct pawl_error *e) {
    return net_recv(p->net, tag_of(p, name), data, bytes, cookie, e);
}
