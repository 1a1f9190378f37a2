/* What only the simulated network does: one seed gives one run, messages overtake, deaths and cuts. */
#include "net_world.h"

#define COUNT 64u

/* Sends COUNT messages from 0 to 1 and writes down the order of everything that is reported. */
static void record(uint64_t seed, uint64_t order[2 * COUNT]) {
    struct world *w = world_open(WORLD_SIM, seed);
    uint8_t in[COUNT], out = 1;
    for (uint32_t i = 0; i < COUNT; i++) world_recv(w, 1, tag_of(1, i), &in[i], 1, i);
    for (uint32_t i = 0; i < COUNT; i++) world_send(w, 0, 1, tag_of(1, i), &out, 1, COUNT + i);
    for (uint32_t n = 0; n < 2 * COUNT;) {
        struct net_completion done;
        for (uint32_t at = 0; at < 2; at++)
            while (net_poll(w->ends[at], &done, 1) == 1) order[n++] = done.cookie;
        world_step(w);
    }
    world_close(w);
}

static void the_same_seed_gives_the_same_order_and_another_seed_another(void **state) {
    (void)state;
    uint64_t a[2 * COUNT], b[2 * COUNT], c[2 * COUNT];
    record(7, a);
    record(7, b);
    record(8, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    bool overtaken = false, late = false;
    for (uint32_t i = 1, last = 0; i < 2 * COUNT; i++) {
        if (a[i] >= COUNT)
            late |= i > COUNT; /* a send that completed after some receives */
        else
            overtaken |= a[i] < last, last = (uint32_t)a[i];
    }
    assert_true(overtaken);
    assert_true(late);
}

static void delays_stay_within_their_bounds_and_time_only_moves_when_told(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM, 3);
    uint8_t in, out = 1;
    world_recv(w, 1, tag_of(1, 0), &in, 1, 1);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 2);
    int64_t next = netsim_advance(w->sim, 0);
    assert_in_range(next, 10, 5000);
    assert_int_equal(netsim_advance(w->sim, 9), next);
    assert_int_equal(w->ends[1]->done_count, 0);
    assert_int_equal(netsim_advance(w->sim, 5000), INT64_MAX);
    assert_int_equal(w->ends[1]->done_count, 1);
    world_close(w);
}

static void deliveries_happen_in_the_order_of_their_times(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM, 4);
    uint8_t in[COUNT], out = 1;
    for (uint32_t i = 0; i < COUNT; i++) world_recv(w, 1, tag_of(1, i), &in[i], 1, i);
    for (uint32_t i = 0; i < COUNT; i++) world_send(w, 0, 1, tag_of(1, i), &out, 1, COUNT + i);
    uint32_t moments = 0;
    for (int64_t next = netsim_advance(w->sim, 0), last = 0; next != INT64_MAX; moments++) {
        assert_in_range(next, last + 1, 100000); /* windows make some wait for others */
        last = next;
        next = netsim_advance(w->sim, next);
    }
    assert_in_range(moments, COUNT / 2, 2 * COUNT);
    world_close(w);
}

static void run_out(struct world *w) {
    while (netsim_advance(w->sim, w->now) != INT64_MAX) w->now += 1000;
}

static void a_cut_holds_messages_back_until_it_heals(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM, 5);
    uint8_t in[3] = {0}, out = 9;
    for (uint32_t i = 0; i < 3; i++) world_recv(w, 1, tag_of(1, i), &in[i], 1, i);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 10); /* on its way when the cut comes */
    netsim_cut(w->sim, w->ends[1], w->ends[0], true);
    world_send(w, 0, 1, tag_of(1, 1), &out, 1, 11);
    world_send(w, 2, 1, tag_of(1, 2), &out, 1, 12); /* another way */
    run_out(w);
    assert_int_equal(w->ends[1]->done_count, 1);
    assert_int_equal(in[2], 9);
    netsim_cut(w->sim, w->ends[0], w->ends[1], false);
    run_out(w);
    assert_int_equal(w->ends[1]->done_count, 3);
    assert_true(in[0] == 9 && in[1] == 9);
    world_close(w);
}

struct fates {
    uint32_t delivered, lost;             /* what the killed one had sent */
    uint32_t reported, silent;            /* sends to it */
    uint32_t waiting_ended, waiting_open; /* announced sends to it */
    uint32_t late_reported, late_silent;  /* sends over a connection made after its death */
};

static void one_death(uint64_t seed, struct fates *f) {
    struct world *w = world_open(WORLD_SIM_PIECES, seed);
    uint8_t in = 0, out[300] = {1};
    world_send(w, 0, 1, tag_of(1, 1), out, sizeof out, 1); /* announced, waits for a receive */
    run_out(w);
    world_recv(w, 0, tag_of(1, 0), &in, 1, 2);
    world_send(w, 1, 0, tag_of(1, 0), out, 1, 3);
    netsim_kill(w->sim, w->ends[1]);
    run_out(w);
    struct net_completion done[4];
    bool received = false, ended = false;
    for (uint32_t n = net_poll(w->ends[0], done, 4); n-- > 0;) {
        received |= done[n].cookie == 2;
        ended |= done[n].cookie == 1 && done[n].code == PAWL_PEER_LOST;
    }
    *(received ? &f->delivered : &f->lost) += 1;
    *(ended ? &f->waiting_ended : &f->waiting_open) += 1;
    world_send(w, 2, 1, tag_of(1, 2), out, 1, 4);
    run_out(w);
    assert_int_equal(net_poll(w->ends[2], done, 4), 1);
    *(done[0].code == PAWL_PEER_LOST ? &f->reported : &f->silent) += 1;
    net_disconnect(w->ends[3], 1);
    world_connect(w, 3, 1);
    world_send(w, 3, 1, tag_of(1, 3), out, 1, 5);
    run_out(w);
    assert_int_equal(net_poll(w->ends[3], done, 4), 1);
    *(done[0].code == PAWL_PEER_LOST ? &f->late_reported : &f->late_silent) += 1;
    world_close(w);
}

static void a_death_is_seen_or_not_and_its_last_words_arrive_or_not(void **state) {
    (void)state;
    struct fates f = {0};
    for (uint64_t seed = 0; seed < 40; seed++) one_death(seed, &f);
    assert_in_range(f.delivered, 5, 35);
    assert_in_range(f.reported, 5, 39);
    assert_in_range(f.waiting_ended, 5, 35);
    assert_int_not_equal(f.silent, 0);
    assert_in_range(f.late_reported, 5, 35);
}

static void a_silent_end_learns_of_a_death_afterwards(void **state) {
    (void)state;
    uint32_t told = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct world *w = world_open(WORLD_SIM, seed);
        net_mute(w->ends[0], true);
        netsim_kill(w->sim, w->ends[1]);
        run_out(w);
        const struct net_peer *dead = peer_of_number(w->ends[0], 1);
        assert_false(dead->lost);
        bool held = dead->loss_held;
        net_mute(w->ends[0], false);
        assert_int_equal(dead->lost, held);
        told += held;
        world_close(w);
    }
    assert_in_range(told, 5, 35);
}

static void nothing_reaches_a_killed_endpoint(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM, 6);
    uint8_t in = 0, out = 1;
    world_recv(w, 1, tag_of(1, 0), &in, 1, 1);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 2);
    netsim_kill(w->sim, w->ends[1]);
    run_out(w);
    assert_int_equal(in, 0);
    assert_int_equal(net_poll(w->ends[1], NULL, 0), 0);
    assert_int_equal(w->ends[1]->done_count, 0);
    world_close(w);
}

static void a_message_that_comes_twice_ends_one_receive_and_the_fence_drops_the_other(void **state) {
    (void)state;
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 1000, 1});
    struct pawl_error e;
    struct net *a = netsim_open(sim, &e), *b = netsim_open(sim, &e);
    size_t size;
    uint8_t in[COUNT], out[COUNT];
    uint32_t ended = 0, found = 0;
    const void *address = net_address(b, &size);
    assert_int_equal(net_connect(a, 1, address, size, &e), PAWL_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        out[i] = (uint8_t)(i + 1);
        if (i % 2 == 0) assert_int_equal(net_recv(b, tag_of(1, i), &in[i], 1, i, &e), PAWL_OK);
        assert_int_equal(net_send(a, 1, tag_of(1, i), &out[i], 1, i, &e), PAWL_OK);
    }
    while (netsim_advance(sim, 1000000) != INT64_MAX) {
    }
    for (uint32_t i = 1; i < COUNT; i += 2)
        assert_int_equal(net_recv(b, tag_of(1, i), &in[i], 1, i, &e), PAWL_OK);
    for (struct net_completion done; net_poll(b, &done, 1) == 1; ended++) found |= 1u << (done.cookie % 32);
    assert_int_equal(ended, COUNT);
    assert_int_equal(found, UINT32_MAX);
    assert_memory_equal(in, out, sizeof in);
    net_fence(b, 2);
    assert_int_equal(b->counters.stale_dropped, COUNT);
    netsim_free(sim);
}

static void it_cannot_be_slept_on(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM, 6);
    assert_int_equal(net_fd(w->ends[0]), -1);
    world_close(w);
}

static void freeing_the_simulation_closes_what_is_open(void **state) {
    (void)state;
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 9, 0});
    struct pawl_error e;
    struct net *a = netsim_open(sim, &e), *b = netsim_open(sim, &e);
    size_t size;
    const void *address = net_address(b, &size);
    assert_int_equal(net_connect(a, 1, address, size, &e), PAWL_OK);
    uint8_t out[100] = {0};
    for (uint32_t i = 0; i < 50; i++) net_send(a, 1, tag_of(1, i), out, sizeof out, i, &e);
    netsim_cut(sim, a, b, true);
    netsim_advance(sim, 5);
    netsim_free(sim); /* leak sanitizer watches */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_order_and_another_seed_another),
        cmocka_unit_test(delays_stay_within_their_bounds_and_time_only_moves_when_told),
        cmocka_unit_test(deliveries_happen_in_the_order_of_their_times),
        cmocka_unit_test(a_cut_holds_messages_back_until_it_heals),
        cmocka_unit_test(a_death_is_seen_or_not_and_its_last_words_arrive_or_not),
        cmocka_unit_test(a_silent_end_learns_of_a_death_afterwards),
        cmocka_unit_test(nothing_reaches_a_killed_endpoint),
        cmocka_unit_test(a_message_that_comes_twice_ends_one_receive_and_the_fence_drops_the_other),
        cmocka_unit_test(it_cannot_be_slept_on),
        cmocka_unit_test(freeing_the_simulation_closes_what_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
