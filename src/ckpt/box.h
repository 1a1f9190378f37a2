/* Boxes: along each dimension of a tensor, indices begin .. begin + extent - 1. See pawl/tensor.h.
 *
 * Promises: intersection and difference of boxes, and the runs of bytes that a box has in common in two
 * arrays. A box whose elements share bytes with elements outside of it cannot be moved as bytes, so box_check
 * refuses it: with `inner` bits below one index of a dimension that the box cuts, begin, extent and shape are
 * multiples of 8 / gcd(8, inner). Boxes that keep this rule keep it when they are intersected, and their runs
 * are whole bytes in both arrays. Knows nothing of files. Pure. Tested in tests/unit/ckpt_box_test.c. */
#ifndef CKPT_BOX_H
#define CKPT_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include <pawl/tensor.h>

#define BOX_RANK_MAX 64u /* torch and numpy stop there */

struct box {
    const uint64_t *begin, *extent; /* [rank] each */
};

/* Fills begin and extent, [rank] each, from a tensor's, which may be null. */
void box_of(const struct pawl_tensor *t, uint64_t *begin, uint64_t *extent);
/* Null, or the field that is wrong; *wanted then says what it should be. */
const char *box_check(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, struct box b,
                      uint64_t *bytes, const char **wanted);
/* How many indices of dimension d lie in whole bytes together: cuts are made at multiples of it. */
uint64_t box_grain(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, uint32_t d);
bool box_is_empty(uint32_t rank, struct box b);
/* The intersection; false when it is empty. */
bool box_meet(uint32_t rank, struct box a, struct box b, uint64_t *begin, uint64_t *extent);

/* A list of boxes of one rank. Zero it, set rank; `failed` is no memory. */
struct box_list {
    uint64_t *numbers; /* begin, extent of each */
    uint32_t rank, count, room;
    bool failed;
};
void box_list_close(struct box_list *list);
void box_list_add(struct box_list *list, struct box b);
struct box box_list_at(const struct box_list *list, uint32_t i);
/* Removes box i and adds what of it lies outside `cut`, a part of it. */
void box_list_cut(struct box_list *list, uint32_t i, struct box cut);

/* The runs of bytes that box x has in common in two arrays that hold the boxes `from` and `to`, x within both
 * and not empty; in ascending order of their places in `from`. */
struct box_runs {
    uint64_t bytes, count; /* of a run; of runs */
    uint64_t from, to;     /* the first run */
    uint32_t dims;         /* inner ones first */
    uint64_t size[BOX_RANK_MAX], from_step[BOX_RANK_MAX], to_step[BOX_RANK_MAX];
};
void box_runs_make(struct box_runs *r, enum pawl_dtype dtype, uint32_t rank, struct box x, struct box from,
                   struct box to);
/* Places of run i. */
void box_runs_at(const struct box_runs *r, uint64_t i, uint64_t *from, uint64_t *to);
/* First run that ends after byte `at` of `from`; r->count when there is none. */
uint64_t box_runs_after(const struct box_runs *r, uint64_t at);

#endif
