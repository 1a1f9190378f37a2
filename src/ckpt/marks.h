/* Which of the complete steps a resume takes, and the marks that have a say: a step found damaged is not
 * taken again, and what a start that began anew has saved is newer than all before it. One rule for whoever
 * resumes and whoever only looks. Marks are names of files (docs/formats/group.md); listing them is the
 * caller's. Tested in tests/unit/ckpt_marks_test.c. */
#ifndef CKPT_MARKS_H
#define CKPT_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Of starts: no run ever comes near it, and one more than it still is a number. */
#define CKPT_START_MAX 1000000000000000000ull

struct ckpt_mark {
    uint64_t step; /* not to be resumed; 0: start `incarnation` began anew */
    uint64_t incarnation;
};
struct ckpt_marks { /* all zero: none */
    struct ckpt_mark *items;
    uint32_t count;
};

#define CKPT_MARK_BAD     "bad"     /* folder of STEP-INCARNATION */
#define CKPT_MARK_SCRATCH "scratch" /* folder of INCARNATION */

/* The mark that FOLDER/NAME is, if it is one: decimal numbers without leading zeros; other names are passed
 * over. CORRUPT: a number that no start has, `run` and the file named; MEMORY. */
pawl_code ckpt_marks_add_name(struct ckpt_marks *m, const char *run, const char *folder, const char *name,
                              struct pawl_error *e);
pawl_code ckpt_marks_add(struct ckpt_marks *m, struct ckpt_mark mark, struct pawl_error *e);
bool ckpt_marks_bad(const struct ckpt_marks *m, uint64_t step, uint64_t incarnation);
void ckpt_marks_close(struct ckpt_marks *m);

/* A step in a list that is sorted newest first. */
struct ckpt_candidate {
    uint64_t step, incarnation;
    bool complete;
};
/* The place of the newest complete step up to `most` that is not marked bad, or UINT32_MAX. Steps of the
 * newest start that began anew and later ones come first, whatever their numbers; as long as it has
 * saved nothing, the older steps are what there is. */
uint32_t ckpt_newest(const struct ckpt_marks *m, uint32_t count,
                     struct ckpt_candidate (*at)(const void *context, uint32_t index), const void *context,
                     uint64_t most);

#endif
