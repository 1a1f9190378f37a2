/* A plan's text form (docs/formats/plan.md), as ir_print makes it. */
#include "show/out.h"
#include "show/show.h"

pawl_code show_plan_ir(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct bytes text = {0};
    struct out o;
    ir_print(plan->ir, &text);
    if (text.failed) {
        bytes_close(&text);
        return error_set(e, PAWL_MEMORY, 0, "no memory for the text form of the plan");
    }
    out_begin(&o, file);
    out_raw(&o, (const char *)text.data, text.size);
    bytes_close(&text);
    return out_end(&o, "plan in its text form", e);
}
