/* The parts of a plan's text that draw or tabulate workers; plan_text.c has the summary. */
#ifndef SHOW_PLAN_TEXT_H
#define SHOW_PLAN_TEXT_H

#include "show/view.h"

/* A row of characters per worker. False, and nothing written, if it does not fit `columns`. */
bool show_timeline_put(struct out *o, const struct view *v, uint32_t columns, struct pawl_error *e,
                       pawl_code *code);
/* A line per stage. */
void show_table_put(struct out *o, const struct view *v);

#endif
