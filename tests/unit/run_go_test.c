/* GO and FENCED: what was written reads back, and whatever cannot be is refused with its reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "run/go.h"

#define RANKS  6u
#define CHUNKS 2u

/* Two pipelines of two stages; rank 1 plays role (1, 0), role (0, 1) is dead; ranks 4 and 5 are spares. */
struct sample {
    struct go go;
    uint32_t rank_of_role[4];
    struct coord_pair pairs[RANKS * CHUNKS];
    uint32_t own[RANKS];
    uint8_t done[CHUNKS];
};

static void sample_make(struct sample *s) {
    bool alive[4] = {true, false, true, true};
    *s = (struct sample){.rank_of_role = {0, UINT32_MAX, 1, 3}, .done = {0x05, 0x0f}};
    struct ir_plan *plan = NULL;
    assert_int_equal(ir_build(IR_1F1B, 2, 2, 2, alive, &plan, NULL), PAWL_OK);
    plan->total = 4;
    for (uint32_t i = 0; i < RANKS * CHUNKS; i++) s->pairs[i].source = UINT32_MAX;
    for (uint32_t r = 0; r < RANKS; r++) s->own[r] = UINT32_MAX;
    s->pairs[0 * CHUNKS + 0] = (struct coord_pair){true, COORD_KEEP_WORK, UINT32_MAX};
    s->pairs[1 * CHUNKS + 0] = (struct coord_pair){true, COORD_FETCH_STATE | COORD_FETCH_GRAD, 0};
    s->pairs[3 * CHUNKS + 1] = (struct coord_pair){true, 0, UINT32_MAX};
    s->own[0] = s->own[1] = 0;
    s->own[3] = 1;
    s->go = (struct go){.view = 9,
                        .version = 41,
                        .optimistic = true,
                        .clip = 0.25f,
                        .shift = 16,
                        .incarnation = 3,
                        .durable = 40,
                        .ranks = RANKS,
                        .chunks = CHUNKS,
                        .plan = plan,
                        .rank_of_role = s->rank_of_role,
                        .pairs = s->pairs,
                        .own = s->own,
                        .done = s->done};
}

static pawl_code decode_of(const struct go *go, struct go *back, struct pawl_error *e) {
    struct bytes b = {0};
    go_encode(go, &b);
    assert_false(b.failed);
    pawl_code code = go_decode(b.data, b.size, back, e);
    bytes_close(&b);
    return code;
}

static void assert_refused(const struct go *go, const char *reason) {
    struct go back;
    struct pawl_error e;
    assert_int_equal(decode_of(go, &back, &e), PAWL_FORMAT);
    if (strstr(e.text, reason) == NULL) assert_string_equal(e.text, reason);
    go_close(&back);
}

static void a_go_reads_back_as_it_was_sent(void **state) {
    (void)state;
    struct sample s;
    struct go back;
    struct pawl_error e = {0};
    sample_make(&s);
    if (decode_of(&s.go, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(back.version, 41);
    assert_int_equal(back.shift, 16);
    assert_true(back.clip == 0.25f);
    assert_int_equal(back.durable, 40);
    assert_int_equal(back.plan->total, 4);
    assert_memory_equal(back.rank_of_role, s.rank_of_role, sizeof s.rank_of_role);
    assert_memory_equal(back.own, s.own, sizeof s.own);
    assert_memory_equal(back.done, s.done, sizeof s.done);
    for (uint32_t i = 0; i < RANKS * CHUNKS; i++) {
        assert_int_equal(back.pairs[i].held, s.pairs[i].held);
        assert_int_equal(back.pairs[i].flags, s.pairs[i].flags);
        assert_int_equal(back.pairs[i].source, s.pairs[i].source);
    }
    struct bytes first = {0}, second = {0};
    go_encode(&s.go, &first);
    go_encode(&back, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    bytes_close(&first);
    bytes_close(&second);
    go_close(&back);
    ir_plan_free(s.go.plan);
}

static void a_go_that_settles_or_restores_reads_back(void **state) {
    (void)state;
    struct sample s;
    struct go back;
    sample_make(&s);
    s.go.done = NULL;
    s.go.settle = true;
    s.go.verdict = COORD_CLIP;
    s.pairs[1 * CHUNKS] = (struct coord_pair){true, COORD_FETCH_GRAD, 0};
    s.pairs[3 * CHUNKS + 1] = (struct coord_pair){true, COORD_FETCH_STATE, 4}; /* gives it away */
    assert_int_equal(decode_of(&s.go, &back, NULL), PAWL_OK);
    assert_int_equal(back.verdict, COORD_CLIP);
    assert_null(back.done);
    go_close(&back);
    s.go.settle = false;
    s.go.verdict = COORD_UNDECIDED;
    s.go.restore = true;
    s.go.resume_incarnation = 2;
    for (uint32_t i = 0; i < RANKS * CHUNKS; i++)
        if (s.pairs[i].held) s.pairs[i] = (struct coord_pair){true, COORD_LOAD, UINT32_MAX};
    assert_int_equal(decode_of(&s.go, &back, NULL), PAWL_OK);
    assert_int_equal(back.resume_incarnation, 2);
    go_close(&back);
    ir_plan_free(s.go.plan);
}

static void what_cannot_be_is_refused_with_its_reason(void **state) {
    (void)state;
    struct sample s;
    sample_make(&s);
    struct sample good = s;
#define REFUSED(change, reason)                                                                              \
    do {                                                                                                     \
        struct go go = s.go;                                                                                 \
        change;                                                                                              \
        assert_refused(&go, reason);                                                                         \
        memcpy(s.pairs, good.pairs, sizeof s.pairs);                                                         \
        memcpy(s.own, good.own, sizeof s.own);                                                               \
        memcpy(s.rank_of_role, good.rank_of_role, sizeof s.rank_of_role);                                    \
        memcpy(s.done, good.done, sizeof s.done);                                                            \
    } while (0)
    REFUSED(go.verdict = COORD_ACCEPT, "verdict 1 with settle 0");
    REFUSED(go.settle = true, "verdict 0 with settle 1");
    REFUSED((go.settle = true, go.verdict = COORD_SKIP, go.version = 0), "cannot be");
    REFUSED((go.settle = true, go.verdict = COORD_SKIP), "fetches both");
    REFUSED(go.incarnation = 0, "no incarnation");
    REFUSED(go.resume_incarnation = 1, "without a return");
    REFUSED(go.restore = true, "does not load");
    REFUSED(s.pairs[0].flags = COORD_LOAD, "loads");
    REFUSED(s.pairs[0].flags = 16, "unknown flags");
    REFUSED(s.pairs[1 * CHUNKS].flags |= COORD_KEEP_WORK, "keeps work");
    REFUSED(s.pairs[1 * CHUNKS].source = 1, "source");
    REFUSED(s.pairs[1 * CHUNKS].source = RANKS, "source");
    REFUSED(s.pairs[0].source = 1, "source");
    REFUSED((s.pairs[0].flags = COORD_FETCH_GRAD, s.pairs[0].source = 1), "which fetches it");
    REFUSED(s.pairs[0].held = false, "does not hold chunk 0 of role 0");
    REFUSED((s.pairs[0].held = false, s.pairs[3 * CHUNKS + 1].held = false), "1 pairs, but 2 chunks");
    REFUSED((s.pairs[0].held = false, s.pairs[5 * CHUNKS].held = true), "does not hold chunk 0 of role 0");
    REFUSED(s.pairs[5 * CHUNKS].held = true, "4 pairs, but");
    REFUSED(s.own[4] = 1, "its own chunk");
    REFUSED(s.own[4] = CHUNKS, "as its own");
    REFUSED(s.rank_of_role[1] = 4, "role 1 (dead)");
    REFUSED(s.rank_of_role[0] = UINT32_MAX, "role 0 (live)");
    REFUSED(s.rank_of_role[2] = 0, "role 2 (live) is played by rank 0");
    REFUSED(s.rank_of_role[2] = RANKS, "role 2 (live)");
    REFUSED(s.done[1] = 0x10, "that no iteration has");
#undef REFUSED
    struct go back;
    assert_int_equal(decode_of(&s.go, &back, NULL), PAWL_OK); /* all changes were taken back */
    go_close(&back);
    ir_plan_free(s.go.plan);
}

static void a_cut_or_longer_go_is_refused(void **state) {
    (void)state;
    struct sample s;
    struct bytes b = {0};
    struct go back;
    sample_make(&s);
    go_encode(&s.go, &b);
    for (size_t size = 0; size < b.size; size++) {
        assert_int_equal(go_decode(b.data, size, &back, NULL), PAWL_FORMAT);
        go_close(&back);
    }
    bytes_put_u8(&b, 0);
    assert_int_equal(go_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
    go_close(&back);
    bytes_close(&b);
    ir_plan_free(s.go.plan);
}

static const uint8_t bits_of_chunk[2] = {0x41, 0x02};

static struct fenced fenced_sample(struct fenced_pair pairs[2], struct coord_fenced_save *save) {
    pairs[0] = (struct fenced_pair){
        .pair = {.chunk = 1, .version = 7, .work = 8, .work_shift = 16}, .total = 10, .bits = bits_of_chunk};
    pairs[1] = (struct fenced_pair){.pair = {.chunk = 3,
                                             .version = 7,
                                             .has_report = true,
                                             .work = COORD_NO_WORK,
                                             .report = {.iteration = 7, .norm2 = 0.5, .loss = -3}}};
    *save = (struct coord_fenced_save){6, 1, 0, 2, true, false};
    return (struct fenced){.pairs = pairs,
                           .pair_count = 2,
                           .saves = save,
                           .save_count = 1,
                           .has_durable = true,
                           .durable = 5,
                           .incarnation = 4,
                           .optimistic = true,
                           .shift = 16};
}

static void an_answer_to_a_fence_reads_back_as_it_was_sent(void **state) {
    (void)state;
    struct fenced_pair pairs[2];
    struct coord_fenced_save save;
    struct fenced f = fenced_sample(pairs, &save), back;
    struct bytes b = {0}, again = {0};
    fenced_encode(&f, &b);
    assert_int_equal(fenced_decode(b.data, b.size, &back, NULL), PAWL_OK);
    assert_int_equal(back.pair_count, 2);
    assert_int_equal(back.pairs[0].total, 10);
    assert_memory_equal(back.pairs[0].bits, bits_of_chunk, 2);
    assert_int_equal(back.pairs[0].pair.work_shift, 16);
    assert_int_equal(back.pairs[1].pair.report.loss, -3);
    assert_int_equal(back.saves[0].parts, 2);
    assert_true(back.saves[0].answered && !back.saves[0].ok);
    assert_int_equal(back.durable, 5);
    assert_int_equal(back.incarnation, 4);
    fenced_encode(&back, &again);
    assert_int_equal(again.size, b.size);
    assert_memory_equal(again.data, b.data, b.size);
    fenced_close(&back);
    for (size_t size = 0; size < b.size; size++) {
        assert_int_equal(fenced_decode(b.data, size, &back, NULL), PAWL_FORMAT);
        fenced_close(&back);
    }
    bytes_put_u8(&b, 0);
    assert_int_equal(fenced_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
    fenced_close(&back);
    bytes_close(&b);
    bytes_close(&again);
}

static void an_answer_that_cannot_be_is_refused(void **state) {
    (void)state;
    struct fenced_pair pairs[2];
    struct coord_fenced_save save;
#define REFUSED(change)                                                                                      \
    do {                                                                                                     \
        struct fenced f = fenced_sample(pairs, &save), back;                                                 \
        struct bytes b = {0};                                                                                \
        change;                                                                                              \
        fenced_encode(&f, &b);                                                                               \
        assert_int_equal(fenced_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);                           \
        fenced_close(&back);                                                                                 \
        bytes_close(&b);                                                                                     \
    } while (0)
    REFUSED(pairs[1].pair.chunk = 1);            /* twice the same */
    REFUSED(pairs[1].pair.report.iteration = 6); /* not of its version */
    REFUSED(pairs[0].total = 9);                 /* the tenth bit is set */
    REFUSED(pairs[0].pair.work = COORD_NO_WORK); /* bits of nothing */
    REFUSED((pairs[1].pair.work = 7));           /* nothing of something */
    REFUSED(pairs[1].pair.chunk = IR_CHUNKS_MAX);
    REFUSED((pairs[0].bits = NULL, pairs[0].total = 0));
    REFUSED(save.part = 2);
    REFUSED((save.answered = false, save.ok = true));
    REFUSED(f.has_durable = false);
#undef REFUSED
}

/* Every single damaged byte is refused, or gives something that encodes to those bytes. */
static void no_damaged_byte_is_taken_for_something_else(void **state) {
    (void)state;
    struct rng_stream rng = {11};
    struct fenced_pair pairs[2];
    struct coord_fenced_save save;
    struct fenced f = fenced_sample(pairs, &save), back;
    struct bytes b = {0};
    fenced_encode(&f, &b);
    for (int round = 0; round < 20000; round++) {
        size_t at = (size_t)rng_below(&rng, b.size);
        uint8_t was = b.data[at];
        b.data[at] = (uint8_t)rng_next(&rng);
        if (fenced_decode(b.data, b.size, &back, NULL) == PAWL_OK) {
            struct bytes again = {0};
            fenced_encode(&back, &again);
            assert_int_equal(again.size, b.size);
            assert_memory_equal(again.data, b.data, b.size);
            bytes_close(&again);
        }
        fenced_close(&back);
        b.data[at] = was;
    }
    bytes_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_go_reads_back_as_it_was_sent),
        cmocka_unit_test(a_go_that_settles_or_restores_reads_back),
        cmocka_unit_test(what_cannot_be_is_refused_with_its_reason),
        cmocka_unit_test(a_cut_or_longer_go_is_refused),
        cmocka_unit_test(an_answer_to_a_fence_reads_back_as_it_was_sent),
        cmocka_unit_test(an_answer_that_cannot_be_is_refused),
        cmocka_unit_test(no_damaged_byte_is_taken_for_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
