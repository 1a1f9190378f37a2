/* Control messages: every kind reads back as it was, and no damaged frame is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/rng.h"
#include "ir/ir.h"
#include "run/message.h"

static const uint8_t payload[5] = {9, 8, 7, 6, 5};

static struct message sample(enum message_kind kind) {
    return (struct message){.kind = kind,
                            .rank = 3,
                            .ranks = 8,
                            .peer = 4,
                            .chunk = 5,
                            .view = 1ull << 40,
                            .version = 77,
                            .iteration = 76,
                            .run_id = {1, 2, 3},
                            .verdict = COORD_CLIP,
                            .clip = 0.3f,
                            .optimistic = true,
                            .busy = true,
                            .work = COORD_WORK_SAVE,
                            .at = {75, 6, 1, 5, 7, 9},
                            .part = 1,
                            .parts = 2,
                            .report = {76, 0.1, -5, 6, 7},
                            .code = PAWL_NO_SPACE,
                            .progress = 12,
                            .bytes = 13,
                            .write_ns = 14,
                            .text = "disk full",
                            .data = payload,
                            .data_bytes = sizeof payload};
}

static void every_kind_reads_back_as_it_was_sent(void **state) {
    (void)state;
    for (int kind = 1; kind < MESSAGE_KIND_END; kind++) {
        struct message m = sample((enum message_kind)kind), back;
        struct bytes first = {0}, second = {0};
        message_encode(&m, &first);
        assert_int_equal(message_decode(first.data, first.size, &back, NULL), PAWL_OK);
        message_encode(&back, &second);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        bytes_close(&first);
        bytes_close(&second);
    }
}

static void a_message_carries_what_its_kind_has(void **state) {
    (void)state;
    struct message m = sample(MESSAGE_SAVED), back;
    struct bytes b = {0};
    message_encode(&m, &b);
    assert_int_equal(message_decode(b.data, b.size, &back, NULL), PAWL_OK);
    assert_int_equal(back.chunk, 5);
    assert_int_equal(back.version, 77);
    assert_int_equal(back.parts, 2);
    assert_int_equal(back.code, PAWL_NO_SPACE);
    assert_string_equal(back.text, "disk full");
    assert_int_equal(back.rank, 0); /* the launcher knows from whom it is */
    bytes_clear(&b);
    m = sample(MESSAGE_BEAT);
    message_encode(&m, &b);
    assert_int_equal(message_decode(b.data, b.size, &back, NULL), PAWL_OK);
    assert_int_equal(back.work, COORD_WORK_SAVE);
    assert_memory_equal(&back.at.position, &m.at.position, sizeof m.at.position);
    assert_int_equal(back.at.iteration, 75);
    assert_int_equal(back.at.microbatch, 9);
    bytes_close(&b);
}

/* Flags are 0 or 1, a verdict, a phase and an instruction are ones that exist. */
static void a_value_that_cannot_be_is_refused(void **state) {
    (void)state;
    static const struct {
        enum message_kind kind;
        size_t offset;
        uint8_t most;
    } cases[] = {{MESSAGE_DECIDE, 17, COORD_SKIP},
                 {MESSAGE_DECIDE, 22, 1},
                 {MESSAGE_BEAT, 9, 1},
                 {MESSAGE_BEAT, 10, COORD_WORK_COUNT - 1},
                 {MESSAGE_BEAT, 23, IR_OP_COUNT - 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct message m = sample(cases[i].kind), back;
        struct bytes b = {0};
        message_encode(&m, &b);
        b.data[cases[i].offset] = cases[i].most;
        assert_int_equal(message_decode(b.data, b.size, &back, NULL), PAWL_OK);
        b.data[cases[i].offset] = (uint8_t)(cases[i].most + 1);
        assert_int_equal(message_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
        bytes_close(&b);
    }
}

static void a_relay_passes_frames_on_as_they_are(void **state) {
    (void)state;
    struct channel *left[2], *right[2];
    assert_int_equal(channel_open_pair(left, NULL), PAWL_OK);
    assert_int_equal(channel_open_pair(right, NULL), PAWL_OK);
    struct message m = sample(MESSAGE_SAVED), back;
    const uint8_t *frame;
    size_t size;
    bool got;
    for (int i = 0; i < 3; i++) assert_int_equal(channel_send(left[0], &m, NULL), PAWL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(channel_receive_frame(left[1], &frame, &size, &got, NULL), PAWL_OK);
        assert_true(got);
        assert_int_equal(channel_send_frame(right[0], frame, size, NULL), PAWL_OK);
    }
    assert_int_equal(channel_receive_frame(left[1], &frame, &size, &got, NULL), PAWL_OK);
    assert_false(got);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(channel_receive(right[1], &back, &got, NULL), PAWL_OK);
        assert_true(got);
        assert_string_equal(back.text, "disk full");
    }
    for (int i = 0; i < 2; i++) channel_close(left[i]), channel_close(right[i]);
}

static void a_frame_over_the_limit_is_neither_sent_nor_taken(void **state) {
    (void)state;
    int fd[2];
    struct channel *c;
    struct message m;
    bool got;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(channel_open_fd(fd[0], &c, NULL), PAWL_OK);
    const uint8_t length[4] = {1, 0, 0, 0x40}; /* MESSAGE_BYTES_MAX + 1 */
    assert_int_equal(write(fd[1], length, 4), 4);
    assert_int_equal(channel_receive(c, &m, &got, NULL), PAWL_FORMAT);
    channel_close(c);
    close(fd[1]);
}

static void a_cut_or_longer_frame_is_refused(void **state) {
    (void)state;
    for (int kind = 1; kind < MESSAGE_KIND_END; kind++) {
        struct message m = sample((enum message_kind)kind), back;
        struct bytes b = {0};
        message_encode(&m, &b);
        for (size_t size = 0; size < b.size; size++)
            assert_int_equal(message_decode(b.data, size, &back, NULL), PAWL_FORMAT);
        bytes_put_u8(&b, 0);
        assert_int_equal(message_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
        bytes_close(&b);
    }
}

static void random_bytes_never_break_the_decoder(void **state) {
    (void)state;
    struct rng_stream rng = {42};
    for (int round = 0; round < 100000; round++) {
        uint8_t raw[64];
        size_t size = rng_below(&rng, sizeof raw + 1);
        for (size_t i = 0; i < size; i++) raw[i] = (uint8_t)rng_next(&rng);
        if (size > 0) raw[0] = (uint8_t)(1 + rng_below(&rng, MESSAGE_KIND_END));
        struct message m;
        struct pawl_error e;
        pawl_code code = message_decode(raw, size, &m, &e);
        assert_true(code == PAWL_OK || code == PAWL_FORMAT);
    }
}

static void frames_arrive_whole_and_in_order_however_the_stream_is_cut(void **state) {
    (void)state;
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    struct channel *c;
    assert_int_equal(channel_open_fd(fd[0], &c, NULL), PAWL_OK);
    struct bytes stream = {0};
    for (uint64_t i = 0; i < 3; i++) {
        struct message m = sample(MESSAGE_GO);
        m.view = i;
        struct bytes b = {0};
        message_encode(&m, &b);
        bytes_put_u32(&stream, (uint32_t)b.size);
        bytes_put(&stream, b.data, b.size);
        bytes_close(&b);
    }
    uint64_t seen = 0;
    for (size_t i = 0; i < stream.size; i++) {
        assert_int_equal(write(fd[1], stream.data + i, 1), 1);
        struct message m;
        bool got;
        assert_int_equal(channel_receive(c, &m, &got, NULL), PAWL_OK);
        if (got) assert_int_equal(m.view, seen++);
    }
    assert_int_equal(seen, 3);
    close(fd[1]);
    struct message m;
    bool got;
    assert_int_equal(channel_receive(c, &m, &got, NULL), PAWL_PEER_LOST);
    channel_close(c);
    bytes_close(&stream);
}

static void a_pair_delivers_what_was_sent_before_the_other_end_closed(void **state) {
    (void)state;
    struct channel *end[2];
    assert_int_equal(channel_open_pair(end, NULL), PAWL_OK);
    struct message m = sample(MESSAGE_FENCE), back;
    assert_int_equal(channel_send(end[0], &m, NULL), PAWL_OK);
    channel_close(end[0]);
    bool got;
    assert_int_equal(channel_receive(end[1], &back, &got, NULL), PAWL_OK);
    assert_true(got);
    assert_int_equal(back.kind, MESSAGE_FENCE);
    assert_int_equal(channel_receive(end[1], &back, &got, NULL), PAWL_PEER_LOST);
    channel_close(end[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_reads_back_as_it_was_sent),
        cmocka_unit_test(a_message_carries_what_its_kind_has),
        cmocka_unit_test(a_value_that_cannot_be_is_refused),
        cmocka_unit_test(a_relay_passes_frames_on_as_they_are),
        cmocka_unit_test(a_frame_over_the_limit_is_neither_sent_nor_taken),
        cmocka_unit_test(a_cut_or_longer_frame_is_refused),
        cmocka_unit_test(random_bytes_never_break_the_decoder),
        cmocka_unit_test(frames_arrive_whole_and_in_order_however_the_stream_is_cut),
        cmocka_unit_test(a_pair_delivers_what_was_sent_before_the_other_end_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
