/* Which bytes of a file were written since the last flush, for mappings that must be flushed page by page. A
 * bounded set: when it is full the two nearest ranges become one, which flushes more than was written but
 * never less. Tested in tests/unit/store_ranges_test.c. */
#ifndef STORE_RANGES_H
#define STORE_RANGES_H

#include <stdint.h>

#define RANGES_MAX 64u

struct range {
    uint64_t begin, end;
};

struct ranges { /* all zero is empty; sorted, neither overlapping nor touching */
    uint32_t count;
    struct range items[RANGES_MAX + 1];
};

void ranges_add(struct ranges *r, uint64_t begin, uint64_t end);

#endif
