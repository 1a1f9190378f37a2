/* The plans that the tests of src/show share. All keep the rules of ir_check. */
#ifndef SHOW_PLANS_H
#define SHOW_PLANS_H

#include "kit/show_kit.h"

/* 3 pipelines x 2 stages x 2 micro-batches, worker 1:1 dead, its micro-batches at 0:1 and 2:1. */
static inline struct kit plan_of_guests(void) {
    struct kit k = kit_new(PAWL_POLICY_RECYCLE, 3, 2, 2, 2);
    kit_worker(&k, "F0.0@0-1>1 F0.1@1-2>1 I0.0@3-4<1 W0.0@4-5 I0.1@7-8<1 W0.1@8-9 R@9-9 S@9-9");
    kit_worker(&k, "F0.0@1-2<0 I0.0@2-3>0 F1.0@3-4<2 I1.0@4-5>2 F0.1@5-6<0 I0.1@6-7>0 W0.0@7-8 W1.0@8-9 "
                   "W0.1@9-10 R@10-10 S@10-10");
    kit_worker(&k, "F1.0@0-1>1 F1.1@1-2>5 I1.0@5-6<1 I1.1@6-7<5 W1.0@7-8 W1.1@8-9 R@9-9 S@9-9");
    kit_worker(&k, NULL);
    kit_worker(&k, "F2.0@0-1>5 F2.1@1-2>5 I2.0@3-4<5 W2.0@4-5 I2.1@7-8<5 W2.1@8-9 R@9-9 S@9-9");
    kit_worker(&k, "F2.0@1-2<4 I2.0@2-3>4 F1.1@3-4<2 I1.1@4-5>2 F2.1@5-6<4 I2.1@6-7>4 W2.0@7-8 W1.1@8-9 "
                   "W2.1@9-10 R@10-10 S@10-10");
    k.plan.summary.fault_free = 9;
    kit_plan(&k, 9, 9);
    return k;
}

/* 1 pipeline x 2 stages x 2 micro-batches: worker 0:1 also holds stage 0 and executes 0.1 of it; half units.
 */
static inline struct kit plan_of_a_helper(void) {
    static struct plan_helper helper = {.worker = 1, .chunk = 0, .copied_from = 0};
    struct kit k = kit_new(PAWL_POLICY_PAWL, 1, 2, 2, 2);
    struct pawl_error e = {0};
    kit_worker(&k, "F0.0@0-0.5>1 B0.0@1.5-2<1 R@5-5 S@5-5.5");
    kit_worker(&k, "F0.1/0@0-0.5>1 F0.0@0.5-1<0 B0.0@1-1.5>0 F0.1@1.5-2<1 B0.1@2-3>1 B0.1/0@3-4<1 R@4-4 "
                   "S@4-4.5 R/0@5-5 S/0@5-5.5");
    if (ir_plan_hold(k.plan.ir, 1, 0, &e) != PAWL_OK) fail_msg("%s", e.text);
    k.plan.helpers = &helper;
    k.plan.helper_count = 1;
    k.plan.staggered = false;
    k.plan.costs->chunk[0].state = 1500000000;
    kit_plan(&k, 5.5, 5);
    return k;
}

/* 1 x 1 x 3 with what only memory forces: 0.1 is recomputed, 0.2 waits in the host's memory. */
static inline struct kit plan_of_copies(void) {
    struct kit k = kit_new(PAWL_POLICY_PAWL, 1, 1, 1, 3);
    kit_worker(&k, "F0.0@0-1 F0.1@1-2 F0.2@2-3 O0.2@3-3.5 I0.0@3.5-4.5 W0.0@4.5-5.5 L0.2@5.5-6 C0.1@5.5-6.5 "
                   "I0.1@6.5-7.5 W0.1@7.5-8.5 I0.2@8.5-9.5 W0.2@9.5-10.5 R@10.5-11 S@11-12");
    k.plan.memory_in_bytes = true;
    k.plan.summary.unit = "ms";
    k.plan.times.peak[0] = 2500000000;
    kit_plan(&k, 12, 10);
    return k;
}

/* 1 x 2 x 1 in a V of 4 chunks: worker 0 has chunks 0 and 3, worker 1 chunks 1 and 2. */
static inline struct kit plan_of_a_v(void) {
    struct kit k = kit_new(PAWL_POLICY_ZB_V, 1, 2, 4, 1);
    struct pawl_error e = {0};
    static const uint32_t holds[4][2] = {{0, 0}, {0, 3}, {1, 1}, {1, 2}};
    kit_worker(&k,
               "F0.0/0@0-1>1 F0.0/3@3-4<1 I0.0/3@4-5>1 W0.0/3@5-6 I0.0/0@7-8<1 W0.0/0@8-9 R/0@9-9 S/0@9-9 "
               "R/3@9-9 S/3@9-9");
    kit_worker(&k,
               "F0.0/1@1-2<0>1 F0.0/2@2-3<1>0 I0.0/2@5-6<0>1 I0.0/1@6-7<1>0 W0.0/2@7-8 W0.0/1@8-9 R/1@9-9 "
               "S/1@9-9 R/2@9-9 S/2@9-9");
    for (size_t i = 0; i < 4; i++)
        if (ir_plan_hold(k.plan.ir, holds[i][0], holds[i][1], &e) != PAWL_OK) fail_msg("%s", e.text);
    kit_plan(&k, 9, 6);
    return k;
}

/* A name nobody should give: it must come out harmless. */
#define SHOW_BAD_NAME "a\"b<c>&'d\x01\x1b[31m\xff\xc3\xa9"

#endif
