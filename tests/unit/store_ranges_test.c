/* Ranges of written bytes against a map of single blocks: never a byte less, and not one more while they fit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "store/ranges.h"

#define WIDTH 1000u

static void check_order(const struct ranges *r) {
    assert_in_range(r->count, 0, RANGES_MAX);
    for (uint32_t i = 0; i < r->count; i++) {
        assert_true(r->items[i].begin < r->items[i].end);
        if (i > 0) assert_true(r->items[i - 1].end < r->items[i].begin);
    }
}

static uint32_t covered(const struct ranges *r, uint32_t at) {
    uint32_t times = 0;
    for (uint32_t i = 0; i < r->count; i++) times += r->items[i].begin <= at && at < r->items[i].end;
    return times;
}

static void fill(struct rng_stream *random, uint32_t adds, uint32_t longest, bool exact) {
    struct ranges r = {0};
    bool written[WIDTH] = {0};
    for (uint32_t n = 0; n < adds; n++) {
        uint64_t begin = rng_below(random, WIDTH - longest), end = begin + 1 + rng_below(random, longest);
        memset(written + begin, true, end - begin);
        ranges_add(&r, begin, end);
        check_order(&r);
    }
    for (uint32_t at = 0; at < WIDTH; at++) {
        if (written[at]) assert_int_equal(covered(&r, at), 1);
        if (exact && !written[at]) assert_int_equal(covered(&r, at), 0);
    }
}

static void up_to_the_bound_ranges_are_exact(void **state) {
    (void)state;
    struct rng_stream random = {1};
    for (uint32_t round = 0; round < 500; round++) fill(&random, RANGES_MAX, 1 + round % 40, true);
}

static void beyond_the_bound_nothing_is_lost(void **state) {
    (void)state;
    struct rng_stream random = {2};
    for (uint32_t round = 0; round < 500; round++) fill(&random, 5 * RANGES_MAX, 1 + round % 3, false);
}

static void the_nearest_two_are_joined(void **state) {
    (void)state;
    struct ranges r = {0};
    for (uint32_t i = 0; i < RANGES_MAX; i++) ranges_add(&r, 100 * i, 100 * i + 10);
    assert_int_equal(r.count, RANGES_MAX);
    ranges_add(&r, 1020, 1030); /* ten from its neighbour, the others are ninety apart */
    assert_int_equal(r.count, RANGES_MAX);
    assert_int_equal(r.items[10].begin, 1000);
    assert_int_equal(r.items[10].end, 1030);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_to_the_bound_ranges_are_exact),
        cmocka_unit_test(beyond_the_bound_nothing_is_lost),
        cmocka_unit_test(the_nearest_two_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
