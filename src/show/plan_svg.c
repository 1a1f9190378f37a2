/* The Gantt chart of a plan as SVG.
 *
 *   title                                         Stages from top to bottom, in each a row per pipeline, time
 * to what it costs, who is where                   the right. The window of a stage's iteration (its first
 * start
 *       |<------ period ------>|                  and a period) lies hatched behind its rows, so that what
 * shows 0    5    10   15   20   25               is waiting. A staggered plan leans to the right. stage 0 p0
 * [F0][F1]...                       Kinds of work differ by letter, hatch and lightness, guests by p1 ... an
 * outline and their home's number, shared work by a dashed legend                                        one;
 * tooltips (title elements) say the rest.
 *
 * Plans of more than DETAIL_MAX instructions or ROWS_MAX workers are drawn as a row per stage, of the share
 * of its workers that does what, and say so. Fails when writing does, or MEMORY. Tested in
 * tests/unit/show_plan_svg_test.c and tests/golden/show_plan_test.c. */
#include "show/plan_svg.h"

#include <string.h>

#include "show/show.h"

#define DETAIL_MAX   60000u /* instructions: some 12 MB of SVG, which browsers still bear */
#define ROWS_MAX     512u
#define LEFT         116.0
#define RIGHT        28.0
#define AXIS         58.0 /* height of the period bracket with the axis */
#define BRACKET      20.0 /* of another bracket */
#define LINE         18.0 /* of text */
#define HEAD         58.0 /* to the end of the first line below the title */
#define SLOT_BEST    26.0 /* width of the shortest instruction: a letter and two digits */
#define SLOT_LEAST   7.0
#define PLOT_BEST    1500.0
#define PLOT_LEAST   640.0
#define PLOT_MOST    4000.0
#define LABEL_GAP    70.0  /* least distance of labels on the axis */
#define LABELS_TWICE 500.0 /* height from which the axis has labels below, too */
#define NAMED_MAX    8u

/* The shortest instruction gets room for its label if the whole stays near PLOT_BEST. */
static void set_scale(struct chart *c) {
    const struct view *v = c->v;
    double span = (double)(v->end - v->origin), shortest = v->shortest > 0 ? (double)v->shortest : 1;
    for (uint32_t s = 0; s < v->ir->stages; s++)
        if ((double)(view_end_of_window(v, s) - v->origin) > span)
            span = (double)(view_end_of_window(v, s) - v->origin);
    char longest[16];
    double slots = span / shortest, width = slots * SLOT_BEST;
    if (width > PLOT_BEST) width = slots * SLOT_LEAST > PLOT_BEST ? slots * SLOT_LEAST : PLOT_BEST;
    if (width > PLOT_MOST || c->areas) width = c->areas ? PLOT_BEST : PLOT_MOST;
    if (width < PLOT_LEAST) width = PLOT_LEAST;
    c->plot_width = width;
    c->pixels_per_tick = span > 0 ? width / span : 1;
    snprintf(longest, sizeof longest, "%u", v->ir->microbatches - 1);
    c->labels = svg_width(strlen(longest), SVG_LEAST) <= shortest * c->pixels_per_tick - 1.8;
}

static void set_rows(struct chart *c) {
    uint32_t workers = c->v->workers, stages = c->v->ir->stages;
    if (c->areas) {
        c->row = stages <= 32 ? 44 : stages <= 128 ? 22 : 10;
        c->row_gap = 0;
        c->group = c->row + (stages <= 32 ? 12 : 4);
        return;
    }
    c->row = workers <= 24 ? 24 : workers <= 80 ? 18 : workers <= 200 ? 12 : 8;
    c->row_gap = c->row >= 18 ? 3 : 2;
    c->group = c->v->ir->pipelines * (c->row + c->row_gap) + (c->row >= 12 ? 12 : 6);
}

/* Lines below the title besides the first. */
static uint32_t note_lines(const struct chart *c) {
    const struct pawl_plan *plan = c->v->plan;
    uint32_t lines = c->v->dead > 0 || plan->move_count > 0 ? 1 : 0;
    return lines + (plan->helper_count > 0 ? 1 : 0) + (c->areas ? 1 : 0);
}

static void put_title(const struct chart *c) {
    const struct view *v = c->v;
    svg_text_begin(c->o, "T", 20, 32);
    out_text(c->o, pawl_policy_name(v->plan->summary.policy));
    out_text(c->o, " \xc2\xb7 ");
    out_count(c->o, v->ir->pipelines, "pipeline");
    out_text(c->o, " \xc3\x97 ");
    out_count(c->o, v->ir->stages, "stage");
    out_text(c->o, " \xc3\x97 ");
    out_count(c->o, v->ir->microbatches, "micro-batch");
    if (!view_is_full(v)) out_printf(c->o, " (%u in all)", v->ir->total);
    svg_text_end(c->o);
}

static void put_summary(const struct chart *c) {
    const struct view *v = c->v;
    const struct pawl_plan_summary *s = &v->plan->summary;
    char text[SHOW_TIME];
    svg_text_begin(c->o, "q", 20, HEAD - 6);
    out_printf(c->o, "period %s", show_time(v->plan->times.period, text));
    if (s->unit != NULL && *s->unit != 0) {
        out_char(c->o, ' ');
        out_xml(c->o, s->unit);
    }
    out_printf(c->o, ", bound %.10g", s->lower_bound);
    if (s->proven)
        out_text(c->o, " (optimal)");
    else {
        out_text(c->o, " (gap ");
        out_percent(c->o, s->gap);
        out_text(c->o, " %)");
    }
    if (s->fault_free > 0) out_printf(c->o, " \xc2\xb7 without failures %.10g", s->fault_free);
    out_printf(c->o, " \xc2\xb7 %u of %u %s", v->workers - v->dead, v->workers, view_workers_live(v));
    svg_text_end(c->o);
}

static void put_worker_name(struct out *o, const struct view *v, uint32_t worker) {
    out_printf(o, "%u:%u", view_pipeline(v, worker), view_stage(v, worker));
}

static void put_more(struct out *o, uint64_t count) {
    if (count > NAMED_MAX) out_printf(o, " and %llu more", (unsigned long long)(count - NAMED_MAX));
}

static void put_empty_and_moves(const struct chart *c, double y) {
    const struct view *v = c->v;
    uint32_t named = 0;
    svg_text_begin(c->o, "q", 20, y);
    if (v->dead > 0) out_text(c->o, "nobody plays");
    for (uint32_t w = 0; w < v->workers && named < NAMED_MAX; w++) {
        if (v->ir->workers[w].alive) continue;
        out_text(c->o, named++ > 0 ? ", " : " ");
        put_worker_name(c->o, v, w);
    }
    put_more(c->o, v->dead);
    if (v->dead > 0 && v->plan->move_count > 0) out_text(c->o, " \xc2\xb7 ");
    for (uint32_t i = 0; i < v->plan->move_count && i < NAMED_MAX; i++) {
        if (i > 0) out_text(c->o, ", ");
        put_worker_name(c->o, v, v->plan->moves[i].from);
        out_text(c->o, " becomes ");
        put_worker_name(c->o, v, v->plan->moves[i].to);
    }
    put_more(c->o, v->plan->move_count);
    svg_text_end(c->o);
}

static void put_shared(const struct chart *c, double y) {
    const struct view *v = c->v;
    svg_text_begin(c->o, "q", 20, y);
    for (uint32_t i = 0; i < v->plan->helper_count && i < NAMED_MAX; i++) {
        if (i > 0) out_text(c->o, ", ");
        put_worker_name(c->o, v, v->plan->helpers[i].worker);
        out_printf(c->o, " also holds %s %u", v->ir->chunks == v->ir->stages ? "stage" : "chunk",
                   v->plan->helpers[i].chunk);
    }
    put_more(c->o, v->plan->helper_count);
    svg_text_end(c->o);
}

static void put_notes(const struct chart *c) {
    double y = HEAD - 6 + LINE;
    if (c->v->dead > 0 || c->v->plan->move_count > 0) {
        put_empty_and_moves(c, y);
        y += LINE;
    }
    if (c->v->plan->helper_count > 0) {
        put_shared(c, y);
        y += LINE;
    }
    if (!c->areas) return;
    svg_text_begin(c->o, "q", 20, y);
    out_printf(
        c->o,
        "%llu instructions: too many to draw each; a row is a stage, its height the share of its workers",
        (unsigned long long)c->v->instructions);
    svg_text_end(c->o);
}

/* The bound is not reached: it has a bracket and marks of its own. */
static bool bound_is_apart(const struct chart *c) {
    double bound = c->v->plan->summary.lower_bound * SIM_TICKS;
    return bound > 0 && bound + 0.5 < (double)c->v->plan->times.period;
}

/* |<---- label ---->| from the first start, `ticks` long. */
static void put_bracket(const struct chart *c, const char *line, const char *words, double y, double ticks,
                        const char *label) {
    double x1 = c->left, x2 = c->left + ticks * c->pixels_per_tick;
    svg_line(c->o, line, x1, y - 5, x1, y + 5);
    svg_line(c->o, line, x2, y - 5, x2, y + 5);
    svg_line(c->o, line, x1, y, x2, y);
    double wide = svg_width(out_columns(label), SVG_TEXT) + 12, middle = (x1 + x2) / 2;
    if (middle - wide / 2 < c->left) middle = c->left + wide / 2 + 8;
    svg_rect(c->o, "bg", middle - wide / 2, y - 8, wide, 16);
    svg_text(c->o, words, middle, y + 4, label);
}

static void put_brackets(const struct chart *c) {
    const struct pawl_plan *plan = c->v->plan;
    double bound = plan->summary.lower_bound * SIM_TICKS,
           y = c->top - AXIS - (bound_is_apart(c) ? BRACKET : 0) + 22;
    char time[SHOW_TIME], label[96];
    bool apart = bound_is_apart(c), reached = !apart && bound > 0;
    snprintf(label, sizeof label, "period %s%s", show_time(plan->times.period, time),
             reached ? " = bound" : "");
    put_bracket(c, "pe", "m b", y, (double)plan->times.period, label);
    if (!apart) return;
    snprintf(label, sizeof label, "bound %.10g", plan->summary.lower_bound);
    put_bracket(c, "bo", "m bt", y + BRACKET, bound, label);
}

static void put_axis(const struct chart *c) {
    double bottom = c->top + c->group * c->v->ir->stages - 4, y = c->top - 8;
    double step_ticks = svg_step(LABEL_GAP / c->pixels_per_tick);
    uint64_t step = step_ticks >= 1 ? (uint64_t)(step_ticks + 0.5) : 1;
    char text[SHOW_TIME];
    uint64_t last = c->v->origin + (uint64_t)(c->plot_width / c->pixels_per_tick);
    for (uint64_t at = (c->v->origin + step - 1) / step * step; at <= last; at += step) {
        double x = chart_x(c, at);
        svg_line(c->o, "gr", x, c->top - 4, x, bottom);
        svg_text(c->o, "tk m", x, y, show_time(at, text));
        if (bottom - c->top > LABELS_TWICE) svg_text(c->o, "tk m", x, bottom + 14, text);
    }
    const char *unit = c->v->plan->summary.unit;
    svg_text_begin(c->o, "tk e", c->left - 14, y);
    out_text(c->o, "time");
    if (unit != NULL && *unit != 0) {
        out_text(c->o, ", ");
        out_xml(c->o, unit);
    }
    svg_text_end(c->o);
}

/* Where each stage's iteration ends, and where the bound would have it end. */
static void put_marks(const struct chart *c) {
    double bound = c->v->plan->summary.lower_bound * SIM_TICKS * c->pixels_per_tick;
    for (uint32_t s = 0; s < c->v->ir->stages; s++) {
        double y1 = chart_stage_y(c, s) - 3, y2 = y1 + chart_stage_height(c) + 6;
        uint64_t end = view_end_of_window(c->v, s), first = end - c->v->plan->times.period;
        double x = chart_x(c, end), at_bound = chart_x(c, first) + bound;
        if (bound_is_apart(c)) svg_line(c->o, "bo", at_bound, y1, at_bound, y2);
        svg_line(c->o, "pe", x, y1, x, y2);
    }
}

struct key {
    const char *classes, *words;
    bool shown;
};

static double put_key(const struct chart *c, const struct key *key, double x, double y) {
    if (strcmp(key->classes, "d") == 0) {
        svg_rect(c->o, "d", x, y - 11, 26, 14);
        svg_line(c->o, "dl", x, y - 4, x + 26, y - 4);
    } else if (key->classes[0] == 'S' && c->v->timed_steps == 0) {
        svg_rect(c->o, key->classes, x + 12, y - 11, 2, 14);
    } else if (strchr("RS", key->classes[0]) != NULL) {
        svg_rect(c->o, key->classes, x + 4, y - 8, 18, 7);
    } else if (strchr("OL", key->classes[0]) != NULL) {
        svg_rect(c->o, key->classes, x, y - (key->classes[0] == 'O' ? 2 : 11), 26, 3);
    } else {
        svg_rect(c->o, key->classes, x, y - 11, 26, 14);
    }
    svg_text(c->o, "", x + 32, y, key->words);
    return x + 32 + svg_width(out_columns(key->words), SVG_TEXT) + 22;
}

/* Returns where the legend's last line ends; without `put` it only measures. */
static double legend(const struct chart *c, double y, bool put) {
    const struct view *v = c->v;
    const uint64_t *n = v->counts;
    bool several = v->ir->chunks > v->ir->stages;
    const struct key keys[] = {
        {"F", "F forward", n[IR_F] > 0},
        {"I", "I input-gradient", n[IR_I] > 0},
        {"W", "W weight-gradient", n[IR_W] > 0},
        {"B", "B both gradients", n[IR_B] > 0},
        {"C", "C recompute", n[IR_C] > 0},
        {"F k", "paler: a worker's second chunk", several && !c->areas},
        {"F g", "guest (home : number)", v->guests > 0 && !c->areas},
        {"F h", "another stage's work", v->helped > 0 && !c->areas},
        {"O", "offload", n[IR_O] > 0 && !c->areas},
        {"L", "load", n[IR_L] > 0 && !c->areas},
        {"R", "R reduce", v->timed_reduces > 0 && !c->areas},
        {"S", "S step", n[IR_S] > 0 && !c->areas},
        {"wi", "waits", true},
        {"d", "nobody there", v->dead > 0 && !c->areas},
    };
    double x = c->left;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!keys[i].shown) continue;
        double wide = 32 + svg_width(out_columns(keys[i].words), SVG_TEXT);
        if (x > c->left && x + wide > c->width - RIGHT) {
            x = c->left;
            y += 24;
        }
        if (put) put_key(c, &keys[i], x, y);
        x += wide + 22;
    }
    return y;
}

static void put_frame(const struct chart *c) {
    const struct view *v = c->v;
    char title[160], about[160], time[SHOW_TIME];
    snprintf(title, sizeof title, "%s, %u pipelines x %u stages x %u micro-batches",
             pawl_policy_name(v->plan->summary.policy), v->ir->pipelines, v->ir->stages, v->ir->microbatches);
    snprintf(about, sizeof about, "Schedule of one iteration: period %s, lower bound %.10g, %u of %u %s",
             show_time(v->plan->times.period, time), v->plan->summary.lower_bound, v->workers - v->dead,
             v->workers, view_workers_live(v));
    svg_begin(c->o, c->width, c->height, title, about);
    put_title(c);
    put_summary(c);
    put_notes(c);
    put_axis(c);
    put_brackets(c);
}

static pawl_code put_chart(struct chart *c, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    c->areas = c->v->instructions > DETAIL_MAX || c->v->workers > ROWS_MAX;
    set_scale(c);
    set_rows(c);
    c->left = LEFT;
    c->top = HEAD + note_lines(c) * LINE + AXIS + (bound_is_apart(c) ? BRACKET : 0);
    c->width = LEFT + c->plot_width + RIGHT;
    double legend_y = c->top + c->group * c->v->ir->stages + 32;
    c->height = legend(c, legend_y, false) + 20;
    put_frame(c);
    if (c->areas)
        code = show_areas_put(c, e);
    else
        show_rows_put(c);
    put_marks(c);
    legend(c, legend_y, true);
    svg_end(c->o);
    return code;
}

pawl_code show_plan_svg(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct view v;
    struct out o;
    struct chart c = {.o = &o, .v = &v};
    pawl_code code = view_open(&v, plan, e);
    if (code != PAWL_OK) return code;
    out_begin(&o, file);
    code = put_chart(&c, e);
    view_close(&v);
    return code == PAWL_OK ? out_end(&o, "plan as SVG", e) : code;
}
