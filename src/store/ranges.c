/* Implementation of store/ranges.h. */
#include "store/ranges.h"

#include <string.h>

static void join_with_next(struct ranges *r, uint32_t at) {
    struct range *item = &r->items[at];
    if (item[1].end > item->end) item->end = item[1].end;
    r->count--;
    memmove(item + 1, item + 2, (r->count - at - 1) * sizeof *item);
}

static uint32_t nearest(const struct ranges *r) {
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < r->count; i++)
        if (r->items[i + 1].begin - r->items[i].end < r->items[best + 1].begin - r->items[best].end) best = i;
    return best;
}

void ranges_add(struct ranges *r, uint64_t begin, uint64_t end) {
    uint32_t at = 0;
    while (at < r->count && r->items[at].begin <= begin) at++;
    memmove(&r->items[at + 1], &r->items[at], (r->count - at) * sizeof r->items[0]);
    r->items[at] = (struct range){begin, end};
    r->count++;
    if (at > 0 && r->items[at - 1].end >= begin) at--, join_with_next(r, at);
    while (at + 1 < r->count && r->items[at].end >= r->items[at + 1].begin) join_with_next(r, at);
    if (r->count > RANGES_MAX) join_with_next(r, nearest(r));
}
