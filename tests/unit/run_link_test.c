/* Frames between launcher and coordinator: every kind reads back as it was, and no damaged frame is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "run/link.h"

static const uint8_t payload[5] = {9, 8, 7, 6, 5};
static const uint32_t ranks[3] = {0, 7, 3};

static struct link_frame sample(enum link_kind kind) {
    return (struct link_frame){.kind = kind,
                               .rank = 3,
                               .ranks = 8,
                               .recover = true,
                               .stopping = true,
                               .view = 1ull << 40,
                               .version = 77,
                               .incarnation = 5,
                               .resume_incarnation = 4,
                               .list = ranks,
                               .list_count = 3,
                               .code = PAWL_STAGE_LOST,
                               .text = "no replica",
                               .note = {.kind = CONDUCT_NOTE_SALVAGE,
                                        .action = {.kind = COORD_DECIDED,
                                                   .rank = UINT32_MAX,
                                                   .peer = 2,
                                                   .chunk = 1,
                                                   .view = 6,
                                                   .version = 41,
                                                   .from = 43,
                                                   .iteration = 40,
                                                   .verdict = COORD_CLIP,
                                                   .clip = 0.25f,
                                                   .shift = -16,
                                                   .optimistic = true,
                                                   .restore = true,
                                                   .part = 1,
                                                   .parts = 2,
                                                   .need = 3,
                                                   .norm = 0.1,
                                                   .loss = -9,
                                                   .code = PAWL_IO,
                                                   .why = "a worker died"},
                                        .view = 6,
                                        .live = 7,
                                        .spares = 1,
                                        .moves = 2,
                                        .period = 12.5,
                                        .period_s = 0.125,
                                        .planning_ms = 3.5,
                                        .ahead = true,
                                        .kept = 20,
                                        .redone = 4,
                                        .why = "refused"},
                               .data = payload,
                               .data_bytes = sizeof payload};
}

static void every_kind_reads_back_as_it_was_sent(void **state) {
    (void)state;
    for (int kind = 1; kind < LINK_KIND_END; kind++) {
        struct link_frame f = sample((enum link_kind)kind), back;
        struct bytes first = {0}, second = {0};
        link_encode(&f, &first);
        assert_int_equal(link_decode(first.data, first.size, &back, NULL), PAWL_OK);
        assert_int_equal(back.kind, kind);
        link_encode(&back, &second);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        link_frame_close(&back);
        bytes_close(&first);
        bytes_close(&second);
    }
}

static void a_hello_says_all_that_a_coordinator_which_takes_over_must_know(void **state) {
    (void)state;
    struct link_frame f = sample(LINK_HELLO), back;
    struct bytes b = {0};
    link_encode(&f, &b);
    assert_int_equal(link_decode(b.data, b.size, &back, NULL), PAWL_OK);
    assert_int_equal(back.ranks, 8);
    assert_true(back.recover);
    assert_true(back.stopping);
    assert_int_equal(back.view, 1ull << 40);
    assert_int_equal(back.incarnation, 5);
    assert_int_equal(back.list_count, 3);
    assert_memory_equal(back.list, ranks, sizeof ranks);
    assert_int_equal(back.data_bytes, sizeof payload);
    assert_memory_equal(back.data, payload, sizeof payload);
    link_frame_close(&back);
    bytes_close(&b);
}

static void a_note_carries_what_is_logged(void **state) {
    (void)state;
    struct link_frame f = sample(LINK_NOTE), back;
    struct bytes b = {0};
    link_encode(&f, &b);
    assert_int_equal(link_decode(b.data, b.size, &back, NULL), PAWL_OK);
    const struct coord_action *a = &back.note.action;
    assert_int_equal(a->kind, COORD_DECIDED);
    assert_int_equal(a->iteration, 40);
    assert_int_equal(a->from, 43);
    assert_int_equal(a->shift, -16);
    assert_true(a->clip > 0.2499f && a->clip < 0.2501f);
    assert_string_equal(a->why, "a worker died");
    assert_int_equal(back.note.redone, 4);
    assert_true(back.note.ahead);
    assert_string_equal(back.note.why, "refused");
    link_frame_close(&back);
    bytes_close(&b);
}

static void a_frame_cut_short_or_too_long_is_refused(void **state) {
    (void)state;
    for (int kind = 1; kind < LINK_KIND_END; kind++) {
        struct link_frame f = sample((enum link_kind)kind), back;
        struct bytes b = {0};
        link_encode(&f, &b);
        for (size_t size = 0; size < b.size; size++)
            assert_int_equal(link_decode(b.data, size, &back, NULL), PAWL_FORMAT);
        bytes_put_u8(&b, 0);
        assert_int_equal(link_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
        bytes_close(&b);
    }
}

static void refuses(const struct link_frame *f, size_t at, uint8_t value) {
    struct link_frame back;
    struct bytes b = {0};
    link_encode(f, &b);
    assert_true(at < b.size);
    b.data[at] = value;
    if (link_decode(b.data, b.size, &back, NULL) == PAWL_OK)
        fail_msg("kind %d: byte %zu was taken as %u", (int)f->kind, at, value);
    bytes_close(&b);
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    struct link_frame hello = sample(LINK_HELLO), note = sample(LINK_NOTE), end = sample(LINK_END);
    refuses(&hello, 0, 0);
    refuses(&hello, 0, LINK_KIND_END);
    refuses(&hello, 5, 2);    /* recover */
    refuses(&hello, 6, 2);    /* stopping */
    refuses(&hello, 23, 200); /* more ranks in the list than bytes */
    refuses(&note, 1, CONDUCT_NOTE_KNOWN + 1);
    refuses(&note, 2, COORD_ACTION_COUNT);
    refuses(&note, 47, COORD_SKIP + 1);
    refuses(&end, 1, 200); /* code */
    refuses(&end, 9, 0);   /* text with a 0 inside */
}

/* Whatever is inside, an answer comes and what was taken can be said again. */
static void random_damage_is_refused_or_harmless(void **state) {
    (void)state;
    struct rng_stream rng = {7};
    for (uint32_t round = 0; round < 20000; round++) {
        struct link_frame f = sample((enum link_kind)(1 + round % (LINK_KIND_END - 1))), back;
        struct bytes b = {0}, again = {0};
        link_encode(&f, &b);
        b.data[rng_below(&rng, b.size)] ^= (uint8_t)(1 + rng_below(&rng, 255));
        if (link_decode(b.data, b.size, &back, NULL) == PAWL_OK) {
            link_encode(&back, &again);
            assert_int_equal(again.size, b.size);
            link_frame_close(&back);
        }
        bytes_close(&b);
        bytes_close(&again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_reads_back_as_it_was_sent),
        cmocka_unit_test(a_hello_says_all_that_a_coordinator_which_takes_over_must_know),
        cmocka_unit_test(a_note_carries_what_is_logged),
        cmocka_unit_test(a_frame_cut_short_or_too_long_is_refused),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(random_damage_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
