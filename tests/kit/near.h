/* Doubles compared as doubles, both sides printed; cmocka's own go through float. */
#ifndef KIT_NEAR_H
#define KIT_NEAR_H

#include <math.h>

#define assert_double(got, want, within)                                                                     \
    do {                                                                                                     \
        double got_ = (got), want_ = (want);                                                                 \
        if (!(fabs(got_ - want_) <= (within))) fail_msg("%s is %.17g, wanted %.17g", #got, got_, want_);     \
    } while (0)

#endif
