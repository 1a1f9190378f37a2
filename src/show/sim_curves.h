/* What the chart of a simulation draws of a row: its rate, what counted, who lived, as evenly spaced values.
 *
 * A policy's rate falls to nothing at every stop, often for less than a pixel; the mean over a part of the
 * time is what it got done there, and can be read. Tested in tests/unit/show_sim_svg_test.c. */
#ifndef SHOW_SIM_CURVES_H
#define SHOW_SIM_CURVES_H

#include "show/sim_view.h"

#define SERIES_RATES  72u  /* parts of the time for rates: 10 pixels each */
#define SERIES_POINTS 240u /* for the rest: 3 pixels */

struct series {
    uint32_t count;
    double value[SERIES_POINTS + 1];
};

/* [SERIES_RATES] means over the parts. `seconds` > 0 is the length of all. */
void series_rate(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out);
/* [SERIES_POINTS] means of the number of live workers. */
void series_alive(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out);
/* [SERIES_POINTS + 1] micro-batches that count, at the ends of the parts. */
void series_counted(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out);
double series_most(const struct series *s);

#endif
