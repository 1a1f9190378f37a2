/* pawl_plan_write of pawl/plan.h over show/: the only function of a plan that needs a file. */
#include <pawl/plan.h>

#include "base/error.h"
#include "show/show.h"

pawl_code pawl_plan_write(const struct pawl_plan *plan, enum pawl_plan_format format, FILE *out,
                          struct pawl_error *e) {
    switch (format) {
    case PAWL_PLAN_TEXT:
        return show_plan_text(plan, out, e);
    case PAWL_PLAN_JSON:
        return show_plan_json(plan, out, e);
    case PAWL_PLAN_SVG:
        return show_plan_svg(plan, out, e);
    case PAWL_PLAN_CHROME:
        return show_plan_chrome(plan, out, e);
    case PAWL_PLAN_CSV:
        return show_plan_csv(plan, out, e);
    case PAWL_PLAN_IR:
        return show_plan_ir(plan, out, e);
    default:
        return error_set(e, PAWL_ARGUMENT, 0, "format %d of a plan: there is none", (int)format);
    }
}
