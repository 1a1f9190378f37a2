/* What peers lack arrives byte for byte, whatever its size and however its pieces overtake each other; who is
 * not sent what it was promised says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "run/transfer.h"
#include "run_world.h"

struct end {
    struct world_rank *rank;
    struct transfers transfers;
    uint32_t ended;
    struct transfer last; /* that ended */
    pawl_code code;
    struct pawl_error error;
};

static struct transfer copy_of(bool sends, enum transfer_kind kind, uint8_t *data, size_t bytes) {
    return (struct transfer){.sends = sends,
                             .kind = kind,
                             .peer = sends ? 1 : 0,
                             .chunk = 2,
                             .version = 9,
                             .data = data,
                             .bytes = bytes,
                             .words = {sends ? 9 : 0, 7, 1, 2, 3}};
}

static void poll_end(struct end *x) {
    struct net_completion done[8];
    uint32_t count = net_poll(x->rank->net, done, 8);
    for (uint32_t i = 0; i < count && x->code == PAWL_OK; i++) {
        struct transfer *t;
        x->code = transfers_completion(&x->transfers, &x->rank->peers, &done[i], &t, &x->error);
        if (t == NULL) continue;
        x->last = *t;
        x->ended++;
        free(t);
    }
}

static void run(struct world *w, struct end ends[2], uint32_t wanted) {
    for (int polls = 0; polls < 100000; polls++) {
        world_advance(w);
        poll_end(&ends[0]);
        poll_end(&ends[1]);
        if (ends[0].ended == wanted && ends[1].ended == wanted) return;
        if (ends[0].code != PAWL_OK || ends[1].code != PAWL_OK) return;
    }
    fail_msg("%u and %u of %u transfers ended", ends[0].ended, ends[1].ended, wanted);
}

static void open_ends(struct world *w, struct end ends[2]) {
    *w = world_open(5, 2, 1, 1);
    world_fence(w, 1);
    for (int i = 0; i < 2; i++) ends[i] = (struct end){.rank = &w->rank[i]};
}

static void close_ends(struct world *w, struct end ends[2]) {
    for (int i = 0; i < 2; i++) transfers_close(&ends[i].transfers);
    world_close(w);
}

static uint8_t *any_bytes(size_t bytes, uint64_t seed) {
    uint8_t *data = malloc(bytes + 1);
    struct rng_stream rng = {seed};
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)rng_next(&rng);
    return data;
}

static void state_and_gradient_of_any_size_arrive_side_by_side(void **state) {
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   TRANSFER_PIECE_BYTES - 1,
                                   TRANSFER_PIECE_BYTES,
                                   TRANSFER_PIECE_BYTES + 1,
                                   11 * (size_t)TRANSFER_PIECE_BYTES + 5};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct world w;
        struct end ends[2];
        open_ends(&w, ends);
        uint8_t *have[2] = {any_bytes(sizes[s], 1), any_bytes(sizes[s], 2)};
        uint8_t *got[2] = {calloc(1, sizes[s] + 1), calloc(1, sizes[s] + 1)};
        for (int kind = 0; kind < 2; kind++) {
            struct transfer give = copy_of(true, (enum transfer_kind)kind, have[kind], sizes[s]);
            struct transfer take = copy_of(false, (enum transfer_kind)kind, got[kind], sizes[s]);
            WORLD_OK(transfers_begin(&ends[0].transfers, &ends[0].rank->peers, &give, world_e));
            WORLD_OK(transfers_begin(&ends[1].transfers, &ends[1].rank->peers, &take, world_e));
        }
        run(&w, ends, 2);
        assert_int_equal(ends[1].code, PAWL_OK);
        for (int kind = 0; kind < 2; kind++) {
            assert_memory_equal(got[kind], have[kind], sizes[s]);
            free(got[kind]);
            free(have[kind]);
        }
        static const uint64_t words[TRANSFER_WORDS] = {9, 7, 1, 2, 3};
        assert_memory_equal(ends[1].last.words, words, sizeof words);
        close_ends(&w, ends);
    }
}

static void a_window_of_pieces_is_under_way_and_no_more(void **state) {
    (void)state;
    struct world w;
    struct end ends[2];
    open_ends(&w, ends);
    size_t bytes = 20 * (size_t)TRANSFER_PIECE_BYTES;
    uint8_t *data = any_bytes(bytes, 1);
    struct transfer give = copy_of(true, TRANSFER_STATE, data, bytes);
    WORLD_OK(transfers_begin(&ends[0].transfers, &ends[0].rank->peers, &give, world_e));
    assert_int_equal(ends[0].transfers.items[0]->open, TRANSFER_WINDOW);
    close_ends(&w, ends);
    free(data);
}

/* A single message of a transfer that is not what was expected. */
static void refused(const struct transfer *give, const char *words) {
    struct world w;
    struct end ends[2];
    open_ends(&w, ends);
    uint8_t got[100];
    struct transfer take = copy_of(false, TRANSFER_STATE, got, 50);
    WORLD_OK(transfers_begin(&ends[0].transfers, &ends[0].rank->peers, give, world_e));
    WORLD_OK(transfers_begin(&ends[1].transfers, &ends[1].rank->peers, &take, world_e));
    run(&w, ends, 1);
    assert_int_equal(ends[1].code, PAWL_FORMAT);
    assert_string_equal(ends[1].error.text, words);
    close_ends(&w, ends);
}

static void another_version_or_size_than_promised_is_refused(void **state) {
    (void)state;
    uint8_t data[100] = {1};
    struct transfer other = copy_of(true, TRANSFER_STATE, data, 50);
    other.words[0] = 8;
    refused(&other, "state of chunk 2 from rank 0: version 8, expected 9");
    struct transfer shorter = copy_of(true, TRANSFER_STATE, data, 49);
    refused(&shorter, "state of chunk 2 from rank 0: a piece of 49 bytes, expected 50");
}

static void what_no_tag_can_name_is_refused_before_it_is_begun(void **state) {
    (void)state;
    struct world w;
    struct end ends[2];
    open_ends(&w, ends);
    uint8_t byte = 0;
    size_t most = ((size_t)TRANSFER_GRAD_PIPELINE << NET_MICROBATCH_BITS) * TRANSFER_PIECE_BYTES;
    struct transfer huge = copy_of(true, TRANSFER_STATE, &byte, most);
    struct pawl_error e = {0};
    assert_int_equal(transfers_begin(&ends[0].transfers, &ends[0].rank->peers, &huge, &e), PAWL_UNSUPPORTED);
    assert_string_equal(e.text, "35184372088832 bytes of chunk 2: too many to be sent to a peer");
    close_ends(&w, ends);
}

static void a_transfer_to_a_peer_that_is_lost_ends(void **state) {
    (void)state;
    struct world w;
    struct end ends[2];
    open_ends(&w, ends);
    size_t bytes = 20 * (size_t)TRANSFER_PIECE_BYTES;
    uint8_t *data = any_bytes(bytes, 1);
    struct transfer give = copy_of(true, TRANSFER_STATE, data, bytes);
    WORLD_OK(transfers_begin(&ends[0].transfers, &ends[0].rank->peers, &give, world_e));
    uint64_t cookie = peers_cookie(PEERS_STATE_SEND, UINT64_C(1) << 32 | ends[0].transfers.items[0]->id);
    struct transfer *over = NULL;
    for (uint32_t piece = 0; piece < TRANSFER_WINDOW; piece++) {
        assert_null(over);
        struct net_completion lost = {.cookie = cookie, .code = PAWL_PEER_LOST};
        WORLD_OK(transfers_completion(&ends[0].transfers, &ends[0].rank->peers, &lost, &over, world_e));
    }
    assert_non_null(over);
    assert_int_equal(ends[0].transfers.count, 0);
    free(over);
    close_ends(&w, ends);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_and_gradient_of_any_size_arrive_side_by_side),
        cmocka_unit_test(a_window_of_pieces_is_under_way_and_no_more),
        cmocka_unit_test(another_version_or_size_than_promised_is_refused),
        cmocka_unit_test(a_transfer_to_a_peer_that_is_lost_ends),
        cmocka_unit_test(what_no_tag_can_name_is_refused_before_it_is_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
