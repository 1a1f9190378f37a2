/* pawl_sim_write of pawl/plan.h over show/. */
#include <pawl/plan.h>

#include "base/error.h"
#include "show/show.h"

pawl_code pawl_sim_write(const struct pawl_sim *sim, enum pawl_sim_format format, FILE *out,
                         struct pawl_error *e) {
    switch (format) {
    case PAWL_SIM_TEXT:
        return show_sim_text(sim, out, e);
    case PAWL_SIM_JSON:
        return show_sim_json(sim, out, e);
    case PAWL_SIM_SVG:
        return show_sim_svg(sim, out, e);
    default:
        return error_set(e, PAWL_ARGUMENT, 0, "format %d of a simulation: there is none", (int)format);
    }
}
