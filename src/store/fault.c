/* A device that fails or hangs on purpose: what changes files is answered with an error, or does not end.
 *
 * Reads go on: whoever restores opens a store of its own. Operations that hang are kept before the back end,
 * in order, so that nothing of them happens until the device moves again. Tested in
 * tests/unit/store_stuck_test.c. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "store/internal.h"

#define STUCK (-1)

/* How often a call that hangs looks whether it is over. */
#define LOOK_NS 5000000

static void begin(struct store *s, int fault, int64_t ns) {
    atomic_store(&s->fault_until_ns, ns > 0 ? store_deadline(ns) : INT64_MAX);
    atomic_store(&s->fault, fault);
    s->table->wake(s); /* what it holds from a former fault may go now */
}

void store_fail(struct store *s, int os_errno, int64_t ns) { begin(s, os_errno, ns); }
void store_stick(struct store *s, int64_t ns) { begin(s, STUCK, ns); }

/* 0, STUCK, or an errno. */
static int fault_now(struct store *s) {
    int fault = atomic_load_explicit(&s->fault, memory_order_relaxed);
    if (fault == 0) return 0;
    return clock_now_ns() < atomic_load(&s->fault_until_ns) ? fault : 0;
}

void store_hand_over(struct store *s, struct store_op *op) {
    int fault = op->kind == STORE_OP_READ ? 0 : fault_now(s);
    if (fault == STUCK || (fault == 0 && s->held.count > 0 && op->kind != STORE_OP_READ))
        store_op_push(&s->held, op); /* behind those that wait already */
    else if (fault != 0)
        store_op_finish(op, fault);
    else
        s->table->submit(s, op);
}

void store_release(struct store *s) {
    if (s->held.count == 0 || fault_now(s) == STUCK) return;
    struct store_op_list held = s->held;
    s->held = (struct store_op_list){0};
    for (struct store_op *op = store_op_pop(&held); op != NULL; op = store_op_pop(&held))
        store_hand_over(s, op);
}

int64_t store_held_ns(struct store *s, int64_t timeout_ns) {
    if (s->held.count == 0) return timeout_ns;
    int64_t left = atomic_load(&s->fault_until_ns) - clock_now_ns();
    return left < 0 ? 0 : left < timeout_ns ? left : timeout_ns;
}

pawl_code store_fault_check(struct store *s, const char *name, struct pawl_error *e) {
    int fault;
    while ((fault = fault_now(s)) == STUCK) nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    if (fault == 0) return PAWL_OK;
    pawl_code code = error_code_of_errno(fault);
    return error_set(e, code == PAWL_NO_SPACE ? code : PAWL_IO, fault, "%s/%s: fault injection", s->path,
                     name);
}
