/* Messages between workers: UCX in the product, a simulated network in tests, behind this header.
 *
 * A message is named by its tag, and by nothing else: receives are posted ahead under the exact tag, and
 * nothing depends on the order of sends. Tags carry the view; net_fence drops everything of older views.
 * All calls are non-blocking and made from one thread (the owner of the endpoint). With net_progress_start
 * messages move while the owner computes; calls then wait for a round of that at most (some frames copied,
 * never a peer), and buffers are read and written at any time until their request has ended.
 * Buffers belong to the caller and must stay put until the request's completion is reported by net_poll (or
 * until net_fence or net_close has returned, which end every older request at once). Failure of a peer: sends
 * to it complete with PEER_LOST or are reported lost later, receives from it just stay open; the coordinator
 * decides who is dead. Delivery is reliable between live peers. Tested in tests/unit/net_*: the same cases
 * run on both implementations. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

/* Tag, most significant first: view 12 | step 12 | kind 4 | pipeline 12 | stage 10 | micro-batch 14 bits.
 * View and step are taken modulo 4096: never that many are in flight. */
#define NET_VIEW_BITS       12
#define NET_STEP_BITS       12
#define NET_KIND_BITS       4
#define NET_PIPELINE_BITS   12
#define NET_STAGE_BITS      10
#define NET_MICROBATCH_BITS 14

enum net_kind {
    NET_ACTIVATION, /* pipeline = home, stage = receiver's stage */
    NET_GRADIENT,   /* pipeline = home, stage = receiver's stage */
    NET_SUMS,       /* reduce-scatter: pipeline = sender, stage = sender's stage, micro-batch = group */
    NET_REDUCED,    /* all-gather: pipeline = sender, stage = sender's stage, micro-batch = group */
    NET_STATE,      /* what a peer lacks after a failure */
    NET_GREETING,   /* pipeline and stage = sender's rank: that it can be heard in this view */
    NET_KIND_COUNT
};

struct net_tag {
    uint64_t view;
    uint64_t step;
    enum net_kind kind;
    uint32_t pipeline;
    uint32_t stage;
    uint32_t microbatch;
};
uint64_t net_tag_encode(struct net_tag tag);

struct net;

/* One finished request. `bytes` is the size received or sent; a message longer than the buffer is FORMAT
 * with the size it wanted, and the buffer is untouched. A send that is OK has left this process (a long
 * one: has been asked for by a posted receive and has left); it may still be lost with its peer. */
struct net_completion {
    uint64_t cookie;
    pawl_code code;
    size_t bytes;
};

/* Address to give to peers (opaque bytes; copied out by the caller). */
const void *net_address(const struct net *net, size_t *size);
/* Make `peer` (any number the caller chooses) reachable, replacing an earlier address of it: open sends to
 * that one end PEER_LOST. The same address again changes nothing, unless the peer was lost: then the
 * connection is made anew. Errors: FORMAT (the address is damaged), NOT_FOUND (simulated), IO, MEMORY. */
pawl_code net_connect(struct net *net, uint32_t peer, const void *address, size_t size, struct pawl_error *e);
void net_disconnect(struct net *net, uint32_t peer); /* forget it; open sends to it end PEER_LOST */

/* A request to a lost peer completes with PEER_LOST. `data` may be null when `bytes` is 0.
 * Errors: NOT_FOUND (send: the peer is not connected), MEMORY (also when an earlier message was dropped for
 * want of memory; all open requests then complete with MEMORY). */
pawl_code net_send(struct net *net, uint32_t peer, uint64_t tag, const void *data, size_t bytes,
                   uint64_t cookie, struct pawl_error *e);
pawl_code net_recv(struct net *net, uint64_t tag, void *data, size_t bytes, uint64_t cookie,
                   struct pawl_error *e);

/* Start a thread that moves messages on whatever the owner does, and sleeps while there is nothing to move.
 * What it completes is reported by net_poll alone, as ever; the descriptor of net_fd changes. Ends in
 * net_close. A second call does nothing, nor does any for the simulated network, which moves only when told.
 * Errors: IO (no descriptor or thread to be had), MEMORY. */
pawl_code net_progress_start(struct net *net, struct pawl_error *e);

/* Make progress; write up to `max` completions; returns how many. The amount of progress is bounded:
 * poll until it returns 0 and net_arm says true before sleeping. */
uint32_t net_poll(struct net *net, struct net_completion *out, uint32_t max);

/* From now on only tags of `view` (modulo 4096) are live: open requests of other views are cancelled without
 * a completion, their completions not yet polled are dropped, messages of older views are dropped whether
 * they have arrived or arrive later. A message or request of a newer view (up to 2047 ahead) is kept for
 * the fence that makes it live, so nobody needs to fence first. Requests of `view` itself go on.
 * Never blocks and never touches the transport, whatever the peers do: frames in flight are copies, at
 * most 16 of 60 KiB for each peer. */
void net_fence(struct net *net, uint64_t view);

/* A fault to inject: while muted nothing more is handed to the transport, and what arrives, messages and the
 * loss of peers alike, is held back as if it were still under way. All other calls work; heard again, the
 * net goes on from there. Frames handed over before may still leave. */
void net_mute(struct net *net, bool mute);

/* A descriptor that becomes readable when net_poll may have work, and the call that must precede
 * sleeping on it: false means poll again first. The simulated network has none (-1). It may be readable
 * without cause while a connection is being made; without a progress thread net_arm then takes 0.2 ms, so
 * that a loop over it does not spin. */
int net_fd(const struct net *net);
bool net_arm(struct net *net);

void net_close(struct net *net); /* accepts null; waits for the transport to let go, 1 s at most */

/* ---- UCX ---- */
/* transports: comma list as UCX_TLS takes it ("tcp,self", "rc,tcp,self", ...), or null for UCX_TLS of the
 * environment or else "tcp,self", which announces the death of peers. Other UCX_ variables are honoured;
 * UCX's log is silenced and its signal handlers are taken out. A machine with nothing but `lo` will do.
 * Errors: ARGUMENT (shared memory: a death can go unnoticed there), IO, MEMORY. */
pawl_code net_open_ucx(const char *transports, struct net **out, struct pawl_error *e);
/* The part of that which can be told beforehand: OK or ARGUMENT. */
pawl_code net_check_transports(const char *transports, struct pawl_error *e);

/* ---- Simulated network: many endpoints in one process, delays and losses from one seed ---- */
struct netsim;
struct netsim_config {
    uint64_t delay_ns_min, delay_ns_max; /* per message, uniform: messages overtake each other */
    uint32_t twice_in; /* one message in so many (of those that need one frame) comes twice; 0: none */
};
struct netsim *netsim_new(uint64_t seed, struct netsim_config config);
void netsim_free(struct netsim *sim); /* closes the endpoints that are still open; accepts null */
/* A new endpoint; its address is fresh, so a restarted worker is another endpoint. */
struct net *netsim_open(struct netsim *sim, struct pawl_error *e);
/* The endpoint is gone as after SIGKILL: its undelivered sends are lost or delivered, and those connected to
 * it notice or do not, by a coin of the seed. It is still to be closed; until then its calls do nothing. */
void netsim_kill(struct netsim *sim, struct net *net);
/* Messages between a and b are held back until healed. */
void netsim_cut(struct netsim *sim, struct net *a, struct net *b, bool cut);
/* Virtual time; deliver what is due. Returns the time of the next delivery, or INT64_MAX. */
int64_t netsim_advance(struct netsim *sim, int64_t now_ns);

#endif
