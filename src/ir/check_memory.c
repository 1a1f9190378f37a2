/* The independent checker: what every worker stores, instruction by instruction.
 *
 * The lists are proven already, so an instruction alone tells what changes: at I, B, C and L the activation
 * is there in full or comes back in full. Only F has to know whether a C follows. Sums are exact; one that 64
 * bits cannot hold is over any limit.
 * Tested in tests/unit/ir_check_test.c and tests/unit/ir_mutation_test.c. */
#include "base/mem.h"
#include "ir/check.h"

/* What one micro-batch of a chunk takes. */
struct sizes {
    uint64_t full, kept, after_input;
};

static struct sizes sizes_of(const struct ir_memory *m, uint32_t chunk) {
    uint64_t full = m->full == NULL ? 1 : m->full[chunk];
    return (struct sizes){.full = full,
                          .kept = m->kept == NULL ? full : m->kept[chunk],
                          .after_input = m->after_input == NULL ? full : m->after_input[chunk]};
}

/* What the instruction frees and takes; of a micro-batch what it held before and holds after. */
static void change_of(const struct check *c, const struct ir_instruction *in, struct sizes size,
                      uint64_t *before, uint64_t *after) {
    *before = *after = 0;
    switch (in->op) {
    case IR_F:
        *after = c->state[check_cell(c, in)] & CHECK_C ? size.kept : size.full;
        break;
    case IR_C:
    case IR_L:
        *before = size.kept;
        *after = size.full;
        break;
    case IR_O:
        *before = size.full;
        *after = size.kept;
        break;
    case IR_I:
        *before = size.full;
        *after = size.after_input;
        break;
    case IR_W:
        *before = size.after_input;
        break;
    case IR_B:
        *before = size.full;
        break;
    default:
        break;
    }
}

/* Not even its forward is needed. What is stored for one that is needed in part goes where it goes in the
 * whole plan, at the latest. */
static bool check_is_idle(const struct check *c, const struct ir_instruction *in) {
    return in->op != IR_R && in->op != IR_S && c->needed != NULL && !(c->needed[check_cell(c, in)] & CHECK_F);
}

static pawl_code check_worker(const struct check *c, const struct ir_memory *memory, uint32_t worker,
                              uint64_t *peak) {
    uint64_t stored = 0, limit = memory->limit == NULL ? UINT64_MAX : memory->limit[worker];
    *peak = 0;
    for (uint32_t i = 0; i < c->plan->workers[worker].count; i++) {
        const struct ir_instruction *in = check_at(c, worker, i);
        uint64_t before, after;
        change_of(c, in, sizes_of(memory, in->chunk), &before, &after);
        if (check_is_idle(c, in)) before = after = 0;
        stored -= before;
        if (!mem_add(stored, after, &stored))
            return check_fail(c, worker, i, "stores more than 64 bits can count");
        if (stored > *peak) *peak = stored;
        if (stored > limit)
            return check_fail(c, worker, i, "%s stores %llu, the memory limit is %llu", ir_op_name(in->op),
                              (unsigned long long)stored, (unsigned long long)limit);
    }
    return PAWL_OK;
}

pawl_code check_memory(const struct check *c, const struct ir_memory *memory, uint64_t *peak) {
    static const struct ir_memory counted = {0};
    if (memory == NULL && peak == NULL) return PAWL_OK;
    for (uint32_t w = 0; w < c->workers; w++) {
        uint64_t most;
        pawl_code code = check_worker(c, memory == NULL ? &counted : memory, w, &most);
        if (code != PAWL_OK) return code;
        if (peak != NULL) peak[w] = most;
    }
    return PAWL_OK;
}
