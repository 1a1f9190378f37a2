/* What net/net.h promises, on every kind of endpoint: the simulated network with whole messages and with
 * messages in many pieces, UCX over tcp, and that with its progress thread. */
#include "net_world.h"

#include <sched.h>

/* Longer than a frame on every kind but the first simulated one. */
#define LONG_BYTES ((size_t)200 * 1000 + 3)

static struct world *open_world(void **state) { return world_open(*(const enum world_kind *)*state, 42); }

static void messages_find_their_receives_by_tag_alone(void **state) {
    struct world *w = open_world(state);
    uint8_t out[8][64], in[8][64] = {{0}};
    for (uint32_t i = 0; i < 8; i++) fill(out[i], sizeof out[i], i);
    for (uint32_t i = 0; i < 4; i++) world_recv(w, 1, tag_of(1, i), in[i], sizeof in[i], i);
    for (uint32_t i = 8; i-- > 0;) world_send(w, 0, 1, tag_of(1, i), out[i], 10 + i, 100 + i);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(world_wait(w, 0).code, PAWL_OK);
    while (PEEK(w->ends[1], w->ends[1]->arrived.count) < 4)
        world_step(w); /* these come before their receives */
    for (uint32_t i = 4; i < 8; i++) world_recv(w, 1, tag_of(1, i), in[i], sizeof in[i], i);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 8; i++) {
        struct net_completion done = world_wait(w, 1);
        assert_done(done, done.cookie, PAWL_OK, 10 + done.cookie);
        assert_true(holds(in[done.cookie], done.bytes, done.cookie));
        seen |= 1u << done.cookie;
    }
    assert_int_equal(seen, 0xff);
    world_close(w);
}

static void an_empty_message_arrives(void **state) {
    struct world *w = open_world(state);
    world_send(w, 0, 1, tag_of(1, 0), NULL, 0, 5);
    assert_done(world_wait(w, 0), 5, PAWL_OK, 0);
    world_recv(w, 1, tag_of(1, 0), NULL, 0, 6);
    assert_done(world_wait(w, 1), 6, PAWL_OK, 0);
    world_close(w);
}

static void a_large_message_arrives_whole_and_lets_a_small_one_pass(void **state) {
    struct world *w = open_world(state);
    size_t bytes = w->sim == NULL ? (size_t)64 << 20 : LONG_BYTES;
    uint8_t *out = malloc(bytes), *in = calloc(1, bytes), small = 9, small_in = 0;
    fill(out, bytes, 1);
    world_recv(w, 1, tag_of(1, 0), in, bytes, 1);
    world_recv(w, 1, tag_of(1, 1), &small_in, 1, 2);
    world_send(w, 0, 1, tag_of(1, 0), out, bytes, 3);
    world_send(w, 0, 1, tag_of(1, 1), &small, 1, 4);
    if (w->kind != WORLD_SIM) { /* there a message is one frame, and frames overtake by chance */
        assert_done(world_wait(w, 1), 2, PAWL_OK, 1);
        assert_int_equal(small_in, 9);
        assert_done(world_wait(w, 1), 1, PAWL_OK, bytes);
    } else {
        world_wait(w, 1);
        world_wait(w, 1);
    }
    assert_int_equal(world_wait(w, 0).code, PAWL_OK);
    assert_int_equal(world_wait(w, 0).code, PAWL_OK);
    assert_true(holds(in, bytes, 1));
    free(out);
    free(in);
    world_close(w);
}

static void long_messages_pass_both_ways_at_once(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), *in[6];
    fill(out, LONG_BYTES, 77);
    for (uint32_t i = 0; i < 6; i++) {
        in[i] = calloc(1, LONG_BYTES);
        world_send(w, i % 2, 1 - i % 2, tag_of(1, i), out, LONG_BYTES, 100 + i);
    }
    for (uint32_t i = 0; i < 6; i++) world_recv(w, 1 - i % 2, tag_of(1, i), in[i], LONG_BYTES, i);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(world_wait(w, i % 2).code, PAWL_OK);
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(holds(in[i], LONG_BYTES, 77));
        free(in[i]);
    }
    free(out);
    world_close(w);
}

static void a_message_longer_than_its_buffer_is_refused_and_its_sender_goes_on(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), guard[16];
    fill(out, LONG_BYTES, 3);
    memset(guard, 0xee, sizeof guard);
    world_recv(w, 1, tag_of(1, 0), guard, 8, 1);
    world_recv(w, 1, tag_of(1, 1), guard, 8, 2);
    world_send(w, 0, 1, tag_of(1, 0), out, 9, 10);
    world_send(w, 0, 1, tag_of(1, 1), out, LONG_BYTES, 11);
    for (uint32_t i = 0; i < 2; i++) {
        struct net_completion done = world_wait(w, 1);
        assert_done(done, done.cookie, PAWL_FORMAT, done.cookie == 1 ? 9 : LONG_BYTES);
    }
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(world_wait(w, 0).code, PAWL_OK);
    for (uint32_t i = 0; i < sizeof guard; i++) assert_int_equal(guard[i], 0xee);
    free(out);
    world_close(w);
}

static void a_receiver_need_not_have_connected_the_sender(void **state) {
    struct world *w = open_world(state);
    net_disconnect(w->ends[1], 0);
    uint8_t *out = malloc(LONG_BYTES), *in = calloc(1, LONG_BYTES);
    fill(out, LONG_BYTES, 4);
    world_recv(w, 1, tag_of(1, 0), in, LONG_BYTES, 1);
    net_disconnect(w->ends[0], 1);
    world_connect(w, 0, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 2);
    assert_done(world_wait(w, 1), 1, PAWL_OK, LONG_BYTES);
    assert_true(holds(in, LONG_BYTES, 4));
    world_connect(w, 1, 0); /* takes over the link that the announcement made */
    world_send(w, 1, 0, tag_of(1, 1), out, 5, 3);
    world_recv(w, 0, tag_of(1, 1), in, 5, 4);
    assert_done(world_wait(w, 1), 3, PAWL_OK, 5);
    assert_int_equal(world_wait(w, 0).code, PAWL_OK); /* the first send */
    assert_done(world_wait(w, 0), 4, PAWL_OK, 5);
    free(out);
    free(in);
    world_close(w);
}

static void a_fence_drops_open_receives_and_unpolled_completions(void **state) {
    struct world *w = open_world(state);
    uint8_t out[4] = {1, 2, 3, 4}, in[4] = {0}, late[4] = {0};
    world_recv(w, 1, tag_of(1, 0), in, sizeof in, 1);
    world_recv(w, 1, tag_of(1, 1), late, sizeof late, 2);
    world_send(w, 0, 1, tag_of(1, 0), out, sizeof out, 3);
    while (PEEK(w->ends[1], w->ends[1]->done_count) == 0) world_step(w);
    net_fence(w->ends[1], 2);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->done_count), 0);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->posted.count), 0);
    world_send(w, 0, 1, tag_of(1, 1), out, sizeof out, 4); /* of the old view, for a receive that is gone */
    while (PEEK(w->ends[1], w->ends[1]->counters.stale_dropped) == 0) world_step(w);
    struct net_completion done;
    assert_int_equal(net_poll(w->ends[1], &done, 1), 0);
    assert_int_equal(late[0], 0);
    world_close(w);
}

static void a_fence_drops_old_messages_that_have_arrived_and_those_that_come_later(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), in[4] = {0};
    fill(out, LONG_BYTES, 5);
    for (uint32_t i = 0; i < 10; i++) world_send(w, 0, 1, tag_of(1, i), out, i % 2 ? 4 : LONG_BYTES, i);
    while (PEEK(w->ends[1], w->ends[1]->arrived.count) < 10) world_step(w);
    net_fence(w->ends[1], 2);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->arrived.count), 0);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->counters.stale_dropped), 10);
    for (uint32_t i = 0; i < 10; i++) world_send(w, 2, 1, tag_of(1, i), out, i % 2 ? 4 : LONG_BYTES, i);
    while (PEEK(w->ends[1], w->ends[1]->counters.stale_dropped) < 20) world_step(w);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->arrived.count), 0);
    world_recv(w, 1, tag_of(2, 0), in, sizeof in, 9);
    world_send(w, 2, 1, tag_of(2, 0), out, 4, 100);
    assert_done(world_wait(w, 1), 9, PAWL_OK, 4);
    free(out);
    world_close(w);
}

static void messages_of_a_view_that_is_ahead_wait_for_the_fence(void **state) {
    struct world *w = open_world(state);
    uint8_t out[4] = {7, 7, 7, 7}, in[4] = {0}, early[4] = {0};
    net_fence(w->ends[1], 4095);
    world_recv(w, 1, tag_of(4096, 1), early, sizeof early, 1); /* a receive may be ahead, too */
    world_send(w, 0, 1, tag_of(4096, 0), out, sizeof out, 0);  /* view 0 in the tag: 4096 follows 4095 */
    world_send(w, 0, 1, tag_of(4094, 0), out, sizeof out, 0);
    while (PEEK(w->ends[1], w->ends[1]->arrived.count) < 1 ||
           PEEK(w->ends[1], w->ends[1]->counters.stale_dropped) < 1)
        world_step(w);
    net_fence(w->ends[1], 4096);
    world_recv(w, 1, tag_of(4096, 0), in, sizeof in, 2);
    assert_done(world_wait(w, 1), 2, PAWL_OK, 4);
    world_send(w, 0, 1, tag_of(4096, 1), out, sizeof out, 0);
    assert_done(world_wait(w, 1), 1, PAWL_OK, 4);
    world_close(w);
}

/* One end fences in the middle of long transfers; its buffers must then stay as it leaves them. */
static void fence_in_the_middle(struct world *w, uint32_t fencing) {
    uint8_t *out = malloc(LONG_BYTES), *in = malloc(LONG_BYTES);
    fill(out, LONG_BYTES, 5);
    memset(in, 0, LONG_BYTES);
    world_recv(w, 1, tag_of(1, 0), in, LONG_BYTES, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 2);
    while (PEEK(w->ends[1], in[0] == 0 && in[LONG_BYTES - 1] == 0)) world_step(w); /* some of it is there */
    net_fence(w->ends[fencing], 2);
    uint8_t *mine = fencing == 0 ? out : in, *other = fencing == 0 ? in : out;
    memset(mine, 0xab, LONG_BYTES);
    net_fence(w->ends[1 - fencing], 2);
    memset(other, 0xcd, LONG_BYTES);
    world_recv(w, 1, tag_of(2, 0), other, 0, 3); /* a marker behind all that was under way */
    world_send(w, 0, 1, tag_of(2, 0), NULL, 0, 4);
    assert_done(world_wait(w, 1), 3, PAWL_OK, 0);
    assert_done(world_wait(w, 0), 4, PAWL_OK, 0);
    for (uint32_t i = 0; i < 1000; i++) world_step(w);
    for (size_t i = 0; i < LONG_BYTES; i++) assert_int_equal(mine[i], 0xab);
    for (size_t i = 0; i < LONG_BYTES; i++) assert_int_equal(other[i], 0xcd);
    free(out);
    free(in);
}

static void buffers_are_the_callers_again_after_a_fence_in_the_middle_of_a_transfer(void **state) {
    for (uint32_t fencing = 0; fencing < 2; fencing++) {
        struct world *w = open_world(state);
        fence_in_the_middle(w, fencing);
        world_close(w);
    }
}

static void a_restarted_peer_is_reached_under_its_number(void **state) {
    struct world *w = open_world(state);
    uint8_t out[4] = {1, 2, 3, 4}, in[4] = {0};
    if (w->sim != NULL) netsim_kill(w->sim, w->ends[1]);
    net_close(w->ends[1]);
    w->ends[1] = world_open_end(w);
    world_connect(w, 0, 1);
    world_connect(w, 1, 0);
    for (uint32_t i = 0; i < 2; i++) {
        world_recv(w, 1 - i, tag_of(1, i), in, sizeof in, 1);
        world_send(w, i, 1 - i, tag_of(1, i), out, sizeof out, 2);
        assert_done(world_wait(w, 1 - i), 1, PAWL_OK, 4);
        assert_done(world_wait(w, i), 2, PAWL_OK, 4);
    }
    world_close(w);
}

static void connecting_the_same_address_again_changes_nothing(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), *in = malloc(LONG_BYTES);
    fill(out, LONG_BYTES, 8);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 1);
    world_connect(w, 0, 1);
    world_recv(w, 1, tag_of(1, 0), in, LONG_BYTES, 2);
    assert_done(world_wait(w, 1), 2, PAWL_OK, LONG_BYTES);
    assert_done(world_wait(w, 0), 1, PAWL_OK, LONG_BYTES);
    assert_true(holds(in, LONG_BYTES, 8));
    free(out);
    free(in);
    world_close(w);
}

static void disconnecting_ends_open_sends(void **state) {
    struct world *w = open_world(state);
    if (w->kind == WORLD_SIM) { /* a message is one frame: hold it back */
        world_close(w);
        return;
    }
    uint8_t *out = malloc(LONG_BYTES);
    fill(out, LONG_BYTES, 8);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 1); /* stays open: nothing is posted */
    for (uint32_t i = 0; i < 100; i++) world_step(w);
    net_disconnect(w->ends[0], 1);
    assert_done(world_wait(w, 0), 1, PAWL_PEER_LOST, 0);
    struct pawl_error e = {0};
    assert_int_equal(net_send(w->ends[0], 1, tag_of(1, 1), out, 4, 2, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "peer 1"));
    free(out);
    world_close(w);
}

static void a_damaged_address_is_refused(void **state) {
    struct world *w = open_world(state);
    size_t size = 0;
    const void *address = net_address(w->ends[1], &size);
    uint8_t *copy = malloc(size);
    struct pawl_error e = {0};
    for (size_t i = 0; i < size; i++) {
        memcpy(copy, address, size);
        copy[i] ^= 0x10;
        assert_int_equal(net_connect(w->ends[0], 1, copy, size, &e), PAWL_FORMAT);
        assert_int_equal(net_connect(w->ends[0], 1, address, i, &e), PAWL_FORMAT);
    }
    free(copy);
    world_close(w);
}

struct traffic {
    uint8_t *out, *in;
    uint32_t from, to;
    size_t bytes;
};

static void a_thousand_random_messages_arrive_once_and_whole(void **state) {
    struct world *w = open_world(state);
    enum { COUNT = 1000 };
    struct traffic *all = calloc(COUNT, sizeof *all);
    struct rng_stream rng = {99};
    uint32_t open = 0;
    uint8_t seen[2][COUNT] = {{0}};
    for (uint32_t i = 0; i < COUNT; i++) {
        struct traffic *t = &all[i];
        t->from = (uint32_t)rng_below(&rng, WORLD_ENDS);
        t->to = (t->from + 1 + (uint32_t)rng_below(&rng, WORLD_ENDS - 1)) % WORLD_ENDS;
        t->bytes = rng_below(&rng, 8) == 0 ? rng_below(&rng, LONG_BYTES) : rng_below(&rng, 300);
        t->out = malloc(t->bytes + 1);
        t->in = malloc(t->bytes + 1);
        fill(t->out, t->bytes, i);
        bool first = rng_below(&rng, 2) == 0;
        if (first) world_recv(w, t->to, tag_of(1, i), t->in, t->bytes, i);
        world_send(w, t->from, t->to, tag_of(1, i), t->out, t->bytes, COUNT + i);
        if (rng_below(&rng, 4) == 0) world_step(w);
        if (!first) world_recv(w, t->to, tag_of(1, i), t->in, t->bytes, i);
        open += 2;
    }
    while (open > 0) {
        world_step(w);
        for (uint32_t at = 0; at < WORLD_ENDS; at++) {
            struct net_completion done[7];
            uint32_t count = net_poll(w->ends[at], done, 7);
            for (uint32_t k = 0; k < count; k++) {
                const struct traffic *t = &all[done[k].cookie % COUNT];
                bool send = done[k].cookie >= COUNT;
                assert_int_equal(at, send ? t->from : t->to);
                assert_done(done[k], done[k].cookie, PAWL_OK, t->bytes);
                assert_int_equal(seen[send][done[k].cookie % COUNT]++, 0);
                open--;
            }
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(holds(all[i].in, all[i].bytes, i));
        free(all[i].in);
        free(all[i].out);
    }
    free(all);
    world_close(w);
}

/* What `at` has handed to its transport for `to` and not got back. */
static uint32_t frames_to(struct world *w, uint32_t at, uint32_t to) {
    return PEEK(w->ends[at], peer_of_number(w->ends[at], to)->frames_owned);
}

static void steps(struct world *w) {
    for (uint32_t i = 0; i < 1000; i++) world_step(w);
}

static void a_muted_end_says_nothing_and_what_it_hears_counts_later(void **state) {
    struct world *w = open_world(state);
    uint8_t out = 6, in[2] = {0};
    world_recv(w, 0, tag_of(1, 0), &in[0], 1, 1);
    world_recv(w, 1, tag_of(1, 1), &in[1], 1, 2);
    net_mute(w->ends[1], true);
    world_send(w, 1, 0, tag_of(1, 0), &out, 1, 3);
    world_send(w, 0, 1, tag_of(1, 1), &out, 1, 4);
    while (PEEK(w->ends[1], w->ends[1]->held_head) == NULL) world_step(w);
    steps(w);
    assert_int_equal(frames_to(w, 1, 0), 0);
    assert_true(in[0] == 0 && in[1] == 0);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->done_count), 0);
    uint32_t tries = 0;
    while (!net_arm(w->ends[1])) world_step(w), tries++;
    assert_in_range(tries, 0, 1000); /* what waits to be said keeps nobody awake */
    net_mute(w->ends[1], false);
    assert_done(world_wait(w, 0), 4, PAWL_OK, 1);
    assert_done(world_wait(w, 0), 1, PAWL_OK, 1);
    uint64_t seen = world_wait(w, 1).cookie + world_wait(w, 1).cookie;
    assert_int_equal(seen, 5);
    assert_true(in[0] == 6 && in[1] == 6);
    world_close(w);
}

/* One end goes silent in the middle of long transfers both ways; they go on when it is back. */
static void long_messages_survive_a_silence(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), *in[2];
    fill(out, LONG_BYTES, 21);
    for (uint32_t i = 0; i < 2; i++) {
        in[i] = calloc(1, LONG_BYTES);
        world_recv(w, i, tag_of(1, i), in[i], LONG_BYTES, i);
        world_send(w, 1 - i, i, tag_of(1, i), out, LONG_BYTES, 10 + i);
    }
    while (PEEK(w->ends[1], in[1][0] == 0 && in[1][LONG_BYTES - 1] == 0)) world_step(w);
    net_mute(w->ends[1], true);
    steps(w);
    net_mute(w->ends[1], false);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(world_wait(w, i % 2).code, PAWL_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(holds(in[i], LONG_BYTES, 21));
        free(in[i]);
    }
    free(out);
    world_close(w);
}

static void a_fence_in_silence_drops_what_is_heard_of_old_views_afterwards(void **state) {
    struct world *w = open_world(state);
    uint8_t out = 1, in = 0;
    net_mute(w->ends[1], true);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 1);
    while (PEEK(w->ends[1], w->ends[1]->held_head) == NULL) world_step(w);
    net_fence(w->ends[1], 2);
    world_recv(w, 1, tag_of(2, 0), &in, 1, 2);
    net_mute(w->ends[1], false);
    assert_int_equal(PEEK(w->ends[1], w->ends[1]->counters.stale_dropped), 1);
    world_send(w, 0, 1, tag_of(2, 0), &out, 1, 3);
    assert_done(world_wait(w, 1), 2, PAWL_OK, 1);
    world_close(w);
}

static void a_silent_end_learns_of_deaths_afterwards(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), in = 0;
    fill(out, LONG_BYTES, 8);
    world_recv(w, 1, tag_of(1, 1), &in, 1, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 2); /* waits for a receive */
    world_send(w, 0, 1, tag_of(1, 1), out, 1, 3);
    assert_done(world_wait(w, 1), 1, PAWL_OK, 1);
    assert_done(world_wait(w, 0), 3, PAWL_OK, 1);
    net_mute(w->ends[0], true);
    net_close(w->ends[1]);
    w->ends[1] = NULL;
    while (PEEK(w->ends[0], !peer_of_number(w->ends[0], 1)->loss_held)) world_step(w);
    steps(w);
    assert_int_equal(PEEK(w->ends[0], w->ends[0]->done_count), 0);
    net_mute(w->ends[0], false);
    assert_done(world_wait(w, 0), 2, PAWL_PEER_LOST, 0);
    free(out);
    world_close(w);
}

/* Only the sender polls; the receiver's owner is elsewhere from the first byte to the last. */
static void a_transfer_completes_while_the_receiving_owner_computes(void **state) {
    struct world *w = open_world(state);
    size_t bytes = (size_t)64 << 20;
    uint8_t *out = malloc(bytes), *in = calloc(1, bytes);
    fill(out, bytes, 31);
    world_recv(w, 1, tag_of(1, 0), in, bytes, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, bytes, 2);
    struct net_completion done;
    while (net_poll(w->ends[0], &done, 1) == 0) sched_yield();
    assert_done(done, 2, PAWL_OK, bytes);
    while (PEEK(w->ends[1], w->ends[1]->done_count) == 0) sched_yield();
    assert_true(holds(in, bytes, 31));
    assert_int_equal(net_poll(w->ends[1], &done, 1), 1);
    assert_done(done, 1, PAWL_OK, bytes);
    free(out);
    free(in);
    world_close(w);
}

/* The owner may go away while it streams, too: all that leaves is copied from its buffer meanwhile. */
static void a_transfer_completes_while_both_owners_compute(void **state) {
    struct world *w = open_world(state);
    uint8_t *out = malloc(LONG_BYTES), *in = calloc(1, LONG_BYTES);
    fill(out, LONG_BYTES, 32);
    world_recv(w, 1, tag_of(1, 0), in, LONG_BYTES, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, LONG_BYTES, 2);
    for (uint32_t at = 0; at < 2; at++)
        while (PEEK(w->ends[at], w->ends[at]->done_count) == 0) sched_yield();
    assert_true(holds(in, LONG_BYTES, 32));
    free(out);
    free(in);
    world_close(w);
}

static void a_second_thread_is_not_started(void **state) {
    struct world *w = open_world(state);
    struct pawl_error e = {0};
    const struct net_progress *before = w->ends[0]->progress;
    assert_int_equal(net_progress_start(w->ends[0], &e), PAWL_OK);
    assert_ptr_equal(w->ends[0]->progress, before);
    assert_true((before != NULL) == (w->kind == WORLD_TCP_THREAD));
    world_close(w);
}

#define CASES(kind)                                                                                          \
    CASE(kind, messages_find_their_receives_by_tag_alone), CASE(kind, an_empty_message_arrives),             \
        CASE(kind, a_large_message_arrives_whole_and_lets_a_small_one_pass),                                 \
        CASE(kind, long_messages_pass_both_ways_at_once),                                                    \
        CASE(kind, a_message_longer_than_its_buffer_is_refused_and_its_sender_goes_on),                      \
        CASE(kind, a_receiver_need_not_have_connected_the_sender),                                           \
        CASE(kind, a_fence_drops_open_receives_and_unpolled_completions),                                    \
        CASE(kind, a_fence_drops_old_messages_that_have_arrived_and_those_that_come_later),                  \
        CASE(kind, messages_of_a_view_that_is_ahead_wait_for_the_fence),                                     \
        CASE(kind, buffers_are_the_callers_again_after_a_fence_in_the_middle_of_a_transfer),                 \
        CASE(kind, a_restarted_peer_is_reached_under_its_number),                                            \
        CASE(kind, connecting_the_same_address_again_changes_nothing),                                       \
        CASE(kind, disconnecting_ends_open_sends), CASE(kind, a_damaged_address_is_refused),                 \
        CASE(kind, a_thousand_random_messages_arrive_once_and_whole),                                        \
        CASE(kind, a_muted_end_says_nothing_and_what_it_hears_counts_later),                                 \
        CASE(kind, long_messages_survive_a_silence),                                                         \
        CASE(kind, a_fence_in_silence_drops_what_is_heard_of_old_views_afterwards)
#define CASE(kind, test)                                                                                     \
    { #test " (" #kind ")", test, NULL, NULL, &kinds[kind] }

int main(int argc, char **argv) {
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    world_survive_thread_sanitizer(argv);
    static enum world_kind kinds[] = {WORLD_SIM, WORLD_SIM_PIECES, WORLD_TCP, WORLD_TCP_THREAD};
    const struct CMUnitTest tests[] = {
        CASES(WORLD_SIM),
        CASES(WORLD_SIM_PIECES),
        CASES(WORLD_TCP),
        CASES(WORLD_TCP_THREAD),
        CASE(WORLD_TCP, a_silent_end_learns_of_deaths_afterwards),
        CASE(WORLD_TCP_THREAD, a_silent_end_learns_of_deaths_afterwards),
        CASE(WORLD_TCP_THREAD, a_transfer_completes_while_the_receiving_owner_computes),
        CASE(WORLD_TCP_THREAD, a_transfer_completes_while_both_owners_compute),
        CASE(WORLD_SIM, a_second_thread_is_not_started),
        CASE(WORLD_TCP_THREAD, a_second_thread_is_not_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
