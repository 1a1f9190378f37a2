/* What people and other programs see of a plan or a simulation: text, JSON, SVG, Perfetto trace, CSV.
 *
 * Each writer gets a finished object and an open file, writes all of it or says why not (IO with errno). SVG
 * is self-contained, without scripts and outside fonts, readable in black and white, light and dark. JSON:
 * docs/formats/plan-json.md and docs/formats/sim-json.md; numbers are printed so that they read back equal.
 * Pure but for the file. Tested in tests/unit/show_*, tests/e2e/plan_*. */
#ifndef SHOW_SHOW_H
#define SHOW_SHOW_H

#include <stdio.h>

#include "fleet/fleet.h"
#include "plan/plan.h"

pawl_code show_plan_text(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);
pawl_code show_plan_json(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);
pawl_code show_plan_svg(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);
pawl_code show_plan_chrome(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);
pawl_code show_plan_csv(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);
pawl_code show_plan_ir(const struct pawl_plan *plan, FILE *out, struct pawl_error *e);

pawl_code show_sim_text(const struct pawl_sim *sim, FILE *out, struct pawl_error *e);
pawl_code show_sim_json(const struct pawl_sim *sim, FILE *out, struct pawl_error *e);
pawl_code show_sim_svg(const struct pawl_sim *sim, FILE *out, struct pawl_error *e);

/* Ticks as a number of the profile's unit, as short as reads back equal ("27", "0.5"). */
#define SHOW_TIME 32
const char *show_time(uint64_t ticks, char out[SHOW_TIME]);

#endif
