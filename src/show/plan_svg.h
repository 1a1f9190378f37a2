/* The chart of a plan: where things are on it. plan_svg.c has the frame, plan_rows.c a row per worker,
 * plan_areas.c a row per stage of what is too large for that. */
#ifndef SHOW_PLAN_SVG_H
#define SHOW_PLAN_SVG_H

#include "show/svg.h"
#include "show/view.h"

struct chart {
    struct out *o;
    const struct view *v;
    bool areas;  /* a row per stage, else per worker */
    bool labels; /* the shortest instruction has room for any number */
    double pixels_per_tick;
    double left, top, plot_width; /* of the plot */
    double row, row_gap, group;   /* heights: of a row, between rows, of a stage with the gap below it */
    double width, height;         /* of the picture */
};

static inline double chart_x(const struct chart *c, uint64_t ticks) {
    return c->left + (double)(ticks - c->v->origin) * c->pixels_per_tick;
}
static inline double chart_stage_y(const struct chart *c, uint32_t stage) {
    return c->top + c->group * stage;
}
static inline double chart_stage_height(const struct chart *c) {
    return c->areas ? c->row : c->v->ir->pipelines * (c->row + c->row_gap) - c->row_gap;
}

void show_rows_put(const struct chart *c);
pawl_code show_areas_put(const struct chart *c, struct pawl_error *e);

#endif
