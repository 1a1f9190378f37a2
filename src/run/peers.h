/* The other workers as seen from one: how to reach them, tags and sends. A rank is a place (run/go.h); which
 * role it plays is no business of this file.
 * Connections are made at the first send, so that a worker of a large run holds only those it uses. */
#ifndef RUN_PEERS_H
#define RUN_PEERS_H

#include "net/net.h"
#include "run/message.h"

/* Who waits for a completion: the top byte of a cookie; the rest is the waiter's own, of a send its receiver
 * (22 bits hold every rank) and 32 bits of the waiter's. */
enum peers_owner {
    PEERS_EXEC_INPUT = 1,
    PEERS_EXEC_GRAD,
    PEERS_EXEC_SEND,
    PEERS_REDUCE,
    PEERS_REDUCE_SEND,
    PEERS_STATE,
    PEERS_STATE_SEND,
    PEERS_GREETING, /* own: the rank it is from */
    PEERS_GREETING_SEND
};
static inline uint64_t peers_cookie(enum peers_owner owner, uint64_t own) {
    return (uint64_t)owner << 56 | own;
}
static inline enum peers_owner peers_owner_of(uint64_t cookie) { return (enum peers_owner)(cookie >> 56); }
static inline uint64_t peers_own(uint64_t cookie) { return cookie & (((uint64_t)1 << 56) - 1); }

static inline uint32_t peers_receiver(uint64_t cookie) { return (uint32_t)(peers_own(cookie) >> 32); }
/* What the waiter of a send gave as its own. */
static inline uint32_t peers_sent(uint64_t cookie) { return (uint32_t)cookie; }

struct peers {
    struct net *net; /* borrowed */
    uint32_t rank_count;
    uint32_t rank; /* this worker */
    uint64_t view;
    bool *connected;       /* [rank_count] */
    struct bytes *address; /* [rank_count] */
    bool has_lost;         /* a connection could not be made: to be told to the coordinator */
    uint32_t lost;
};

pawl_code peers_init(struct peers *p, struct net *net, uint32_t rank_count, uint32_t rank,
                     struct pawl_error *e);
void peers_close(struct peers *p);
/* Take a MESSAGE_PEERS. Errors: FORMAT, MEMORY. */
pawl_code peers_learn(struct peers *p, const struct message *m, struct pawl_error *e);
/* From now on messages are of `view`: those of older ones end without a completion. */
void peers_fence(struct peers *p, uint64_t view);

/* Send to / receive under a tag of the current view. `pipeline` and `stage` as docs/formats/wire.md says. */
struct peers_name {
    uint64_t step;
    enum net_kind kind;
    uint32_t pipeline, stage, microbatch;
};
/* A peer that cannot be connected to is noted (has_lost), and the send just stays open: whether the peer is
 * dead is for the coordinator to say, and its fence ends the send. */
struct peers_data {
    const void *data;
    size_t bytes;
};
pawl_code peers_send(struct peers *p, uint32_t to, struct peers_name name, struct peers_data data,
                     enum peers_owner owner, uint32_t own, struct pawl_error *e);
pawl_code peers_recv(struct peers *p, struct peers_name name, void *data, size_t bytes, uint64_t cookie,
                     struct pawl_error *e);

#endif
