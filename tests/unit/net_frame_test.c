/* Tags, frames and what an endpoint does with frames that nobody should have sent. */
#include "net_world.h"

static void a_tag_has_each_field_in_its_place(void **state) {
    (void)state;
    struct net_tag tag = {.view = 0xabc,
                          .step = 0x123,
                          .kind = NET_REDUCED,
                          .pipeline = 0x456,
                          .stage = 0x2fe,
                          .microbatch = 0x3210};
    /* 101010111100 000100100011 0011 010001010110 1011111110 11001000010000 */
    assert_true(net_tag_encode(tag) == UINT64_C(0xabc1233456bfb210));
    tag.view += 4096;
    tag.step += 2 * 4096;
    assert_true(net_tag_encode(tag) == UINT64_C(0xabc1233456bfb210));
}

static void frames_read_back(void **state) {
    (void)state;
    uint8_t raw[FRAME_HEADER_BYTES + 5] = {0};
    struct frame f = {.kind = FRAME_DATA,
                      .tag = UINT64_C(0x0123456789abcdef),
                      .total = 105,
                      .send_id = 7,
                      .recv_id = 8,
                      .offset = 100};
    frame_encode(&f, raw);
    memcpy(raw + FRAME_HEADER_BYTES, "hello", 5);
    struct frame back;
    assert_true(frame_decode(raw, sizeof raw, &back));
    assert_int_equal(back.kind, FRAME_DATA);
    assert_true(back.tag == f.tag && back.total == 105 && back.send_id == 7 && back.recv_id == 8);
    assert_int_equal(back.offset, 100);
    assert_int_equal(back.payload_bytes, 5);
    assert_memory_equal(back.payload, "hello", 5);
}

struct bad_frame {
    const char *why;
    struct frame f;
    size_t payload;
};

static void frames_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    const struct bad_frame bad[] = {
        {"eager shorter than it says", {.kind = FRAME_EAGER, .total = 5}, 4},
        {"eager longer than it says", {.kind = FRAME_EAGER, .total = 5}, 6},
        {"eager naming a transfer", {.kind = FRAME_EAGER, .total = 5, .send_id = 1}, 5},
        {"announcement without address", {.kind = FRAME_READY, .total = 5, .send_id = 1}, 0},
        {"announcement without name", {.kind = FRAME_READY, .total = 5}, 9},
        {"announcement of nothing", {.kind = FRAME_READY, .send_id = 1}, 9},
        {"clearance without receive", {.kind = FRAME_CLEAR, .total = 5, .send_id = 1}, 0},
        {"clearance with bytes", {.kind = FRAME_CLEAR, .total = 5, .send_id = 1, .recv_id = 2}, 1},
        {"skip with a receive", {.kind = FRAME_SKIP, .total = 5, .send_id = 1, .recv_id = 2}, 0},
        {"data past the end", {.kind = FRAME_DATA, .total = 5, .send_id = 1, .recv_id = 2, .offset = 3}, 3},
        {"data from past the end",
         {.kind = FRAME_DATA, .total = 5, .send_id = 1, .recv_id = 2, .offset = 6},
         1},
        {"data with a wrapping offset",
         {.kind = FRAME_DATA, .total = 5, .send_id = 1, .recv_id = 2, .offset = UINT64_MAX},
         2},
        {"data without bytes", {.kind = FRAME_DATA, .total = 5, .send_id = 1, .recv_id = 2}, 0},
        {"no kind", {.kind = (enum frame_kind)0, .total = 5}, 5},
        {"unknown kind", {.kind = FRAME_KIND_END, .total = 5}, 5},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t raw[FRAME_HEADER_BYTES + 16] = {0};
        struct frame back;
        frame_encode(&bad[i].f, raw);
        if (frame_decode(raw, FRAME_HEADER_BYTES + bad[i].payload, &back))
            fail_msg("accepted: %s", bad[i].why);
    }
    uint8_t raw[FRAME_HEADER_BYTES] = {0};
    struct frame back, empty = {.kind = FRAME_EAGER};
    frame_encode(&empty, raw);
    for (size_t size = 0; size < sizeof raw; size++) assert_false(frame_decode(raw, size, &back));
    assert_true(frame_decode(raw, sizeof raw, &back));
    raw[0] ^= 1;
    assert_false(frame_decode(raw, sizeof raw, &back));
}

static void inject(struct net *net, struct frame f, size_t payload) {
    uint8_t raw[FRAME_HEADER_BYTES + 64] = {0};
    frame_encode(&f, raw);
    net_frame_arrived(net, raw, FRAME_HEADER_BYTES + payload);
}

/* A transfer from 0 to 1 that is cleared but has no data yet; its names at both ends. */
static void begin_transfer(struct world *w, uint8_t *out, uint8_t *in, size_t bytes, struct frame *data) {
    world_recv(w, 1, tag_of(1, 0), in, bytes, 1);
    world_send(w, 0, 1, tag_of(1, 0), out, bytes, 2);
    const struct net_request *r = w->ends[1]->slots[w->ends[1]->slot_count - 1];
    while (r->state != REQUEST_RECEIVING) world_step(w);
    *data = (struct frame){
        .kind = FRAME_DATA, .tag = r->tag, .total = bytes, .send_id = r->remote_id, .recv_id = r->id};
}

static void frames_that_contradict_their_transfer_are_refused(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM_PIECES, 1);
    uint8_t out[300], in[300] = {0};
    fill(out, sizeof out, 1);
    struct frame good, f;
    begin_transfer(w, out, in, sizeof out, &good);
    f = good, f.tag++, inject(w->ends[1], f, 4);
    f = good, f.total++, inject(w->ends[1], f, 4);
    f = good, f.send_id++, inject(w->ends[1], f, 4);
    assert_int_equal(w->ends[1]->counters.frames_refused, 3);
    f = good, f.recv_id += UINT64_C(1) << 32, inject(w->ends[1], f, 4); /* a transfer that has ended */
    f = good, f.recv_id = 0xffffffff, inject(w->ends[1], f, 4);
    f = (struct frame){
        .kind = FRAME_CLEAR, .tag = good.tag, .total = 299, .send_id = good.send_id, .recv_id = 1};
    inject(w->ends[0], f, 0);
    assert_int_equal(w->ends[0]->counters.frames_refused, 1);
    assert_done(world_wait(w, 1), 1, PAWL_OK, sizeof in);
    assert_memory_equal(in, out, sizeof in);
    assert_done(world_wait(w, 0), 2, PAWL_OK, sizeof out);
    world_close(w);
}

static void a_second_clearance_changes_nothing(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM_PIECES, 2);
    uint8_t out[300], in[300] = {0};
    fill(out, sizeof out, 1);
    struct frame good;
    begin_transfer(w, out, in, sizeof out, &good);
    struct frame clear = {.kind = FRAME_CLEAR,
                          .tag = good.tag,
                          .total = sizeof out,
                          .send_id = good.send_id,
                          .recv_id = good.recv_id};
    inject(w->ends[0], clear, 0);
    inject(w->ends[0], clear, 0);
    assert_int_equal(w->ends[0]->counters.frames_refused, 1);
    assert_done(world_wait(w, 1), 1, PAWL_OK, sizeof in);
    assert_memory_equal(in, out, sizeof in);
    world_close(w);
}

static void an_announcement_with_a_damaged_address_is_not_answered(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_SIM_PIECES, 3);
    uint8_t in[300];
    world_recv(w, 1, tag_of(1, 0), in, sizeof in, 1);
    inject(w->ends[1], (struct frame){.kind = FRAME_READY, .tag = tag_of(1, 0), .total = 300, .send_id = 1},
           40);
    world_step(w);
    assert_int_equal(w->ends[1]->counters.frames_refused, 1);
    world_close(w);
}

static void the_table_keeps_the_order_of_equal_keys_while_it_grows(void **state) {
    (void)state;
    struct table t;
    assert_true(table_init(&t));
    enum { KEYS = 97, EACH = 30 };
    struct table_node *nodes = calloc(KEYS * EACH, sizeof *nodes);
    for (size_t i = 0; i < KEYS * EACH; i++) table_put(&t, i % KEYS, &nodes[i]);
    table_remove(&t, &nodes[5]);
    assert_ptr_equal(table_take(&t, 5), &nodes[5 + KEYS]);
    for (size_t round = 0; round < EACH; round++)
        assert_ptr_equal(table_take(&t, 6), &nodes[6 + round * KEYS]);
    assert_null(table_take(&t, 6));
    assert_null(table_take(&t, KEYS));
    free(nodes);
    table_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tag_has_each_field_in_its_place),
        cmocka_unit_test(frames_read_back),
        cmocka_unit_test(frames_that_contradict_themselves_are_refused),
        cmocka_unit_test(frames_that_contradict_their_transfer_are_refused),
        cmocka_unit_test(a_second_clearance_changes_nothing),
        cmocka_unit_test(an_announcement_with_a_damaged_address_is_not_answered),
        cmocka_unit_test(the_table_keeps_the_order_of_equal_keys_while_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
