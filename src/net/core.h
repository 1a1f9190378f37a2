/* What the two transports share: requests, matching, peers and the message protocol of net/frame.h; and who
 * may touch them when (net/progress.c).
 *
 * A transport moves frames (whole, reliable, in any order) and reports lost links; everything that net.h
 * promises is made here, once, so that the simulated network tests the very code that runs over UCX.
 * Every frame is copied into memory of its own before a transport sees it: the fence can drop any request
 * at once, whatever the peer does, and never waits.
 * Callbacks from a transport only change state; frames leave in net_pump, outside of any callback.
 * With a progress thread everything here happens under the net's lock; without one there is no lock. */
#ifndef NET_CORE_H
#define NET_CORE_H

#include "base/bytes.h"
#include "net/frame.h"
#include "net/net.h"
#include "net/table.h"

/* Frames on their way to one peer at most: enough to fill a socket (16 x 60 KiB is about 1 MiB), and the
 * bound of what a peer that takes nothing makes us hold. Replies are not counted; each answers a READY. */
#define NET_PEER_WINDOW 16u

/* Frame in flight: owned by the transport from frame_send to net_frame_sent. */
struct net_frame {
    struct net_frame *prev, *next; /* for the transport, as is owner */
    void *owner;
    struct net_peer *peer;
    uint64_t peer_generation; /* tells frames of an earlier link apart */
    uint64_t request;         /* id of the send it belongs to; 0 for a reply */
    size_t size;
    uint8_t bytes[];
};

struct transport {
    /* Make a link to the peer of this address. Errors: ARGUMENT, IO, MEMORY. */
    pawl_code (*link_open)(struct net *net, struct net_peer *peer, const void *address, size_t size,
                           struct pawl_error *e);
    /* Never blocks. Frames of the link may still end in net_frame_sent; net_peer_lost no longer comes. */
    void (*link_close)(struct net *net, void *link);
    /* May call net_frame_sent before it returns. */
    void (*frame_send)(struct net *net, void *link, struct net_frame *frame);
    bool (*progress)(struct net *net); /* true when something happened; bounded */
    int (*fd)(const struct net *net);  /* -1: nothing happens but by the caller's own calls */
    bool (*arm)(struct net *net);   /* true: nothing to do until the descriptor is readable; does not sleep */
    void (*close)(struct net *net); /* ends every frame; frees net->transport_state */
};

enum request_state {
    REQUEST_FREE,
    REQUEST_POSTED,    /* receive: no message yet */
    REQUEST_RECEIVING, /* receive: cleared, DATA frames come */
    REQUEST_QUEUED,    /* send: first frame not yet handed over */
    REQUEST_ANNOUNCED, /* send: READY handed over */
    REQUEST_STREAMING, /* send: cleared, DATA frames leave */
    REQUEST_SENT       /* send: all frames handed over, not all have left */
};

struct net_request {
    struct table_node node; /* receive: filed under its tag while POSTED */
    struct net_request *ready_prev, *ready_next;
    enum request_state state;
    uint64_t id; /* generation << 32 | slot; never 0 */
    uint64_t tag;
    uint64_t cookie;
    struct net_peer *peer; /* send */
    uint8_t *data;
    uint64_t bytes;     /* room of a receive, size of a send */
    uint64_t total;     /* receive: size of the message being received */
    uint64_t moved;     /* bytes copied out of or into `data` so far */
    uint64_t remote_id; /* the other end's name of this transfer */
    uint32_t frames_open;
    bool ready; /* in its peer's ready list */
};

struct net_reply { /* CLEAR or SKIP that waits to be sent */
    struct net_reply *next;
    struct frame frame;
    size_t address_size;
    uint8_t address[]; /* where to: the address blob that came with READY */
};

struct net_peer {
    struct net_peer *next;
    struct net_peer *dirty_next;
    uint64_t endpoint; /* the remote endpoint's random name */
    uint32_t number;
    bool named; /* net_connect gave it its number; otherwise it is known from a READY only */
    bool lost;
    bool loss_held; /* it is lost, which shall not count before the net is heard again */
    bool gone;      /* out of the list, waiting for its frames to end */
    bool dirty;
    uint64_t generation;
    void *link;
    uint32_t frames_owned;  /* frames of any generation the transport holds */
    uint32_t frames_window; /* of this generation, replies not counted */
    struct net_request *ready_head, *ready_tail;
    size_t address_size;
    uint8_t *address; /* blob, for comparing */
};

struct net_message { /* arrived before its receive was posted */
    struct table_node node;
    struct frame frame; /* its payload points to `payload` */
    uint8_t payload[];
};

struct net_held { /* arrived while the net was muted */
    struct net_held *next;
    size_t size;
    uint8_t bytes[];
};

struct net_done {
    struct net_completion completion;
    uint64_t tag;
};

struct net_counters {
    uint64_t frames_refused; /* malformed or naming no open transfer in an impossible way */
    uint64_t stale_dropped;  /* messages of older views thrown away on arrival or by a fence */
};

struct net {
    const struct transport *transport;
    void *transport_state;
    size_t frame_max; /* bytes of a frame at most, header included */
    uint64_t endpoint;
    struct bytes address;
    bool fenced; /* `view` means something */
    bool muted;  /* nothing leaves, what arrives is held */
    bool broken; /* a frame was lost for want of memory: nothing may be promised any more */
    uint64_t view;
    struct net_peer *peers;
    struct net_peer *dirty;
    struct net_reply *replies_head, **replies_tail;
    struct net_held *held_head, **held_tail;
    struct net_request **slots;
    uint32_t slot_count;
    uint32_t *slots_free;
    uint32_t slots_free_count;
    struct table posted;
    struct table arrived;
    struct net_done *done; /* ring */
    size_t done_capacity, done_first, done_count;
    struct net_counters counters;
    struct net_progress *progress; /* null: no thread */
    uint32_t fruitless_arms;       /* in a row, without anything that moved */
};

/* ---- net.c: construction, for the transports ---- */
/* `endpoint` is the random name of this end, `address` what the transport needs to reach it. */
struct net *net_new(const struct transport *transport, size_t frame_max, uint64_t endpoint,
                    const void *address, size_t address_size);
void net_free(struct net *net);             /* after the transport is closed */
bool net_move(struct net *net);             /* one round of progress; true when something moved */
bool net_has_frames(const struct net *net); /* that wait to be handed over, and may be */
/* Arm the transport before sleeping on its descriptor; *nap_us says how long to sleep first in any case. */
bool net_arm_transport(struct net *net, uint32_t *nap_us);

/* ---- progress.c: all do nothing without a thread ---- */
void net_lock(struct net *net);
void net_unlock(struct net *net);
void progress_notice(struct net *net);      /* the owner has used the transport: wake the thread if need be */
void progress_owner_polls(struct net *net); /* the owner is awake */
bool progress_owner_sleeps(struct net *net); /* false: no thread, so arm the transport */
int progress_fd(const struct net *net);      /* -1 without a thread */
void progress_stop(struct net *net);

/* ---- request.c ---- */
struct net_request *request_new(struct net *net, uint64_t tag, void *data, uint64_t bytes, uint64_t cookie);
struct net_request *request_find(struct net *net, uint64_t id); /* null when it has ended */
void request_free(struct net *net, struct net_request *r);
void request_complete(struct net *net, struct net_request *r, pawl_code code, uint64_t bytes);
void requests_fail_all(struct net *net); /* with MEMORY: what to do when the net is broken */
void requests_drop_other_views(struct net *net, uint64_t view);
bool view_is_older(uint64_t view, uint64_t than); /* both modulo 2^NET_VIEW_BITS */
uint64_t tag_view(uint64_t tag);

/* ---- peer.c ---- */
struct net_peer *peer_of_number(struct net *net, uint32_t number);
void peers_free(struct net *net); /* links closed, peers freed as far as no frame holds them */
void peer_push_ready(struct net *net, struct net_request *r);
void peer_remove_ready(struct net_request *r);
void peer_reply(struct net *net, const struct frame *frame, const uint8_t *address, size_t address_size);
void net_pump(struct net *net); /* hand frames to the transport as far as windows allow */

/* ---- from the transport ---- */
void net_frame_arrived(struct net *net, const void *data, size_t size); /* receive.c */
void frames_let_in(struct net *net); /* receive.c: what was held is heard now */
void frames_held_free(struct net *net);
void peers_let_in(struct net *net); /* peer.c: losses that were held count now */
void net_frame_sent(struct net *net, struct net_frame *frame, pawl_code code); /* peer.c; frees the frame */
void net_peer_lost(struct net *net, struct net_peer *peer);                    /* peer.c; closes the link */

#endif
