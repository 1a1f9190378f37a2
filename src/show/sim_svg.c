/* A simulation as SVG: a panel per scenario with the rate of every policy, what it got done, and who was
 * alive.
 *
 * Lines differ by colour and by dashes, ours are bold; each ends at its name with the goodput of the whole
 * time, best first. Light and dark, self-contained. Fails when writing does, or MEMORY. Tested in
 * tests/unit/show_sim_svg_test.c and tests/golden/show_plan_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "show/show.h"
#include "show/sim_curves.h"
#include "show/svg.h"

#define LEFT    78.0
#define PLOT    720.0
#define NAMES   300.0 /* right of the plots: names of lines */
#define WIDTH   (LEFT + PLOT + NAMES)
#define NAME    17.0 /* least distance of the names */
#define HEAD    62.0
#define CAPTION 46.0 /* of a panel, with the heading of its first plot */
#define HEADING 34.0 /* between plots, with the heading of the next */
#define RATE    170.0
#define COUNTED 190.0 /* at least */
#define ALIVE   48.0
#define FOOT    40.0 /* axis below a panel, and distance to the next */

struct curve {
    uint32_t row, style;
    struct series rate, counted;
    double label_y;
};

struct plot { /* one of a panel */
    double top, height, most;
};

struct panel {
    struct out *o;
    const struct pawl_sim *sim;
    struct curve *curves; /* of the scenario's rows that ran, best first */
    uint32_t first, count, silent;
    double seconds;
    struct plot rate, counted, alive;
};

static double x_of(double part) { return LEFT + PLOT * part; }
static double y_of(const struct plot *p, double value) {
    return p->top + p->height * (1 - (p->most > 0 ? value / p->most : 0));
}

static double counted_height(uint32_t curves) {
    double names = curves * NAME;
    return names > COUNTED ? names : COUNTED;
}

static int by_goodput(const void *a, const void *b) {
    const struct curve *x = a, *y = b;
    double d = x->counted.value[SERIES_POINTS] - y->counted.value[SERIES_POINTS];
    if (d != 0) return d > 0 ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void add_curve(struct panel *p, uint32_t row) {
    struct curve *c = &p->curves[p->count++];
    c->row = row;
    c->style = sim_view_style(p->sim, row);
    series_rate(p->sim, row, p->seconds, &c->rate);
    series_counted(p->sim, row, p->seconds, &c->counted);
    p->rate.most = fmax(p->rate.most, series_most(&c->rate));
    p->counted.most = fmax(p->counted.most, series_most(&c->counted));
}

static void panel_fill(struct panel *p) {
    const struct pawl_sim *sim = p->sim;
    double seconds = sim->rows[p->first].seconds;
    p->seconds = seconds > 0 ? seconds : 1;
    for (uint32_t i = p->first; i < sim->row_count; i++) {
        if (!sim_view_same_scenario(sim, i, p->first)) continue;
        for (uint32_t k = 0; k < sim->sample_counts[i]; k++)
            p->alive.most = fmax(p->alive.most, sim->samples[i][k].alive);
        if (sim_view_ran(sim, i))
            add_curve(p, i);
        else
            p->silent++;
    }
    qsort(p->curves, p->count, sizeof *p->curves, by_goodput);
}

static void panel_place(struct panel *p, double y) {
    p->rate.top = y + CAPTION;
    p->rate.height = RATE;
    p->counted.top = p->rate.top + RATE + HEADING;
    p->counted.height = counted_height(p->count);
    p->alive.top = p->counted.top + p->counted.height + HEADING;
    p->alive.height = ALIVE;
}

/* "12k" */
static const char *short_number(double value, char out[24]) {
    double shown = value >= 1e6 ? value / 1e6 : value >= 1e4 ? value / 1e3 : value;
    snprintf(out, 24, "%.4g%s", shown, value >= 1e6 ? "M" : value >= 1e4 ? "k" : "");
    return out;
}

/* Levels of a plot, which then ends at one. */
static void put_levels(const struct panel *p, struct plot *plot) {
    double step = svg_step(plot->most > 0 ? plot->most / 6 : 1);
    char text[24];
    plot->most = ceil(plot->most / step - 1e-9) * step;
    for (int i = 0; i * step <= plot->most * 1.000001; i++) {
        double y = y_of(plot, i * step);
        svg_line(p->o, i == 0 ? "ax" : "gr", LEFT, y, LEFT + PLOT, y);
        svg_text(p->o, "tk e", LEFT - 8, y + 4, short_number(i * step, text));
    }
}

static void put_hours(const struct panel *p) {
    double hours = p->seconds / 3600, step = svg_step(hours / 10), bottom = p->alive.top + ALIVE;
    char text[24];
    for (int i = 0; i * step <= hours * 1.000001; i++) {
        double x = x_of(i * step / hours);
        svg_line(p->o, "gr", x, p->rate.top, x, p->rate.top + RATE);
        svg_line(p->o, "gr", x, p->counted.top, x, p->counted.top + p->counted.height);
        svg_text(p->o, "tk m", x, bottom + 16, short_number(i * step, text));
    }
    svg_text(p->o, "tk", LEFT + PLOT + 16, bottom + 16, "hours");
}

/* A step line from the left edge: along, then up or down, equal neighbours joined. */
static void put_steps(const struct panel *p, const struct plot *plot, const struct series *s) {
    out_pixels(p->o, LEFT);
    out_char(p->o, ' ');
    out_pixels(p->o, y_of(plot, s->value[0]));
    for (uint32_t i = 1; i < s->count; i++) {
        if (s->value[i] == s->value[i - 1]) continue;
        out_char(p->o, 'H');
        out_pixels(p->o, x_of((double)i / s->count));
        out_char(p->o, 'V');
        out_pixels(p->o, y_of(plot, s->value[i]));
    }
    out_char(p->o, 'H');
    out_pixels(p->o, LEFT + PLOT);
}

static void put_line(const struct panel *p, const struct plot *plot, const struct series *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        if (i > 0) out_char(p->o, 'L');
        out_pixels(p->o, x_of((double)i / (s->count - 1)));
        out_char(p->o, ' ');
        out_pixels(p->o, y_of(plot, s->value[i]));
    }
}

static void put_curve(const struct panel *p, const struct curve *c, bool rate) {
    const struct pawl_sim_row *row = &p->sim->rows[c->row];
    out_printf(p->o, "<path class=\"ln c%u\" d=\"M", c->style);
    if (rate)
        put_steps(p, &p->rate, &c->rate);
    else
        put_line(p, &p->counted, &c->counted);
    out_text(p->o, "\"><title>");
    out_xml(p->o, row->policy);
    out_printf(p->o, ": goodput %.4g/s, available %.2f %%</title></path>\n", row->goodput,
               row->availability * 100);
}

/* Names beside the ends of their lines, pushed down where they would overlap, and back up from the bottom. */
static void place_names(struct panel *p) {
    double least = p->counted.top, most = p->counted.top + p->counted.height;
    for (uint32_t i = 0; i < p->count; i++) {
        double y = y_of(&p->counted, p->curves[i].counted.value[SERIES_POINTS]);
        p->curves[i].label_y = y > least ? y : least;
        least = p->curves[i].label_y + NAME;
    }
    for (uint32_t i = p->count; i-- > 0;) {
        if (p->curves[i].label_y > most) p->curves[i].label_y = most;
        most = p->curves[i].label_y - NAME;
    }
}

static void put_name(const struct panel *p, const struct curve *c) {
    const struct pawl_sim_row *row = &p->sim->rows[c->row];
    double x = LEFT + PLOT, end = y_of(&p->counted, c->counted.value[SERIES_POINTS]);
    char classes[16];
    svg_line(p->o, "ld", x + 3, end, x + 20, c->label_y);
    snprintf(classes, sizeof classes, "ln c%u", c->style);
    svg_line(p->o, classes, x + 23, c->label_y, x + 59, c->label_y);
    svg_text_begin(p->o, sim_view_is_ours(row) ? "b" : "", x + 66, c->label_y + 4);
    out_xml(p->o, row->policy);
    out_printf(p->o, " <tspan class=\"q\">%.4g/s", row->goodput);
    if (isfinite(row->relative) && row->relative > 0) out_printf(p->o, ", %.3g %%", row->relative * 100);
    out_text(p->o, "</tspan>");
    svg_text_end(p->o);
}

static uint32_t row_with_samples(const struct pawl_sim *sim, uint32_t first) {
    for (uint32_t i = first; i < sim->row_count; i++)
        if (sim_view_same_scenario(sim, i, first) && sim->sample_counts[i] > 0) return i;
    return first;
}

static void put_alive(const struct panel *p) {
    double bottom = p->alive.top + ALIVE;
    struct series alive;
    char text[24];
    series_alive(p->sim, row_with_samples(p->sim, p->first), p->seconds, &alive);
    out_text(p->o, "<path class=\"ar\" d=\"M");
    put_steps(p, &p->alive, &alive);
    out_char(p->o, 'V');
    out_pixels(p->o, bottom);
    out_char(p->o, 'H');
    out_pixels(p->o, LEFT);
    out_text(p->o, "Z\"><title>live workers</title></path>\n<path class=\"al\" d=\"M");
    put_steps(p, &p->alive, &alive);
    out_text(p->o, "\"/>\n");
    svg_line(p->o, "ax", LEFT, bottom, LEFT + PLOT, bottom);
    svg_text(p->o, "tk e", LEFT - 8, p->alive.top + 5, short_number(p->alive.most, text));
    svg_text(p->o, "tk e", LEFT - 8, bottom + 4, "0");
}

static void put_headings(const struct panel *p) {
    const struct pawl_sim_row *row = &p->sim->rows[p->first];
    svg_text_begin(p->o, "b", LEFT, p->rate.top - 28);
    out_xml(p->o, row->scenario);
    out_text(p->o, " <tspan class=\"q\">");
    out_count(p->o, row->failures, "failure");
    out_text(p->o, ", ");
    out_count(p->o, row->joins, "join");
    out_text(p->o, "</tspan>");
    svg_text_end(p->o);
    svg_text_begin(p->o, "tk", LEFT, p->rate.top - 9);
    out_printf(p->o, "micro-batches per second (mean of %.3g min)", p->seconds / 60 / SERIES_RATES);
    svg_text_end(p->o);
    svg_text(p->o, "tk", LEFT, p->counted.top - 9, "micro-batches that count so far");
    svg_text(p->o, "tk", LEFT, p->alive.top - 9, "live workers");
}

static void put_silent(const struct panel *p, double y) {
    const struct pawl_sim *sim = p->sim;
    for (uint32_t i = p->first; i < sim->row_count; i++) {
        if (!sim_view_same_scenario(sim, i, p->first) || sim_view_ran(sim, i)) continue;
        svg_text_begin(p->o, "q", LEFT, y);
        out_xml(p->o, sim->rows[i].policy);
        out_text(p->o, " did nothing");
        if (sim->rows[i].note != NULL && *sim->rows[i].note != 0) {
            out_text(p->o, " (");
            out_xml(p->o, sim->rows[i].note);
            out_char(p->o, ')');
        }
        svg_text_end(p->o);
        y += NAME;
    }
}

static void put_panel(struct panel *p) {
    put_headings(p);
    put_hours(p);
    put_levels(p, &p->rate);
    put_levels(p, &p->counted);
    put_alive(p);
    for (uint32_t i = p->count; i-- > 0;) { /* the best last, above the others */
        put_curve(p, &p->curves[i], true);
        put_curve(p, &p->curves[i], false);
    }
    place_names(p);
    for (uint32_t i = 0; i < p->count; i++) put_name(p, &p->curves[i]);
    put_silent(p, p->alive.top + ALIVE + 38);
}

/* Draws all panels, or with a null `o` only measures; returns where the last one ends. */
static double put_panels(struct out *o, const struct pawl_sim *sim, struct curve *curves) {
    double y = HEAD;
    for (uint32_t first = 0; first < sim->row_count; first++) {
        if (!sim_view_begins(sim, first)) continue;
        struct panel p = {.o = o, .sim = sim, .curves = curves, .first = first};
        panel_fill(&p);
        panel_place(&p, y);
        if (o != NULL) put_panel(&p);
        y = p.alive.top + ALIVE + FOOT + p.silent * NAME;
    }
    return y + 8;
}

static void put_head(struct out *o, const struct pawl_sim *sim) {
    const struct pawl_sim_request *r = &sim->request;
    svg_text_begin(o, "T", 20, 32);
    out_text(o, "Goodput under failures \xc2\xb7 ");
    out_count(o, r->pipelines, "pipeline");
    out_text(o, " \xc3\x97 ");
    out_count(o, r->stages, "stage");
    out_text(o, " \xc3\x97 ");
    out_count(o, r->microbatches, "micro-batch");
    svg_text_end(o);
    svg_text(
        o, "q", 20, 52,
        "beside each name: micro-batches that counted per second, and the share of what a cluster that never "
        "fails would have done");
}

pawl_code show_sim_svg(const struct pawl_sim *sim, FILE *file, struct pawl_error *e) {
    struct out o;
    struct curve *curves = calloc((size_t)sim->row_count + 1, sizeof *curves);
    if (curves == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u curves", sim->row_count);
    out_begin(&o, file);
    svg_begin(
        &o, WIDTH, put_panels(NULL, sim, curves), "Goodput under failures",
        "Micro-batches per second and in all over time, a line per policy, and the number of live workers");
    put_head(&o, sim);
    put_panels(&o, sim, curves);
    svg_end(&o);
    free(curves);
    return out_end(&o, "simulation as SVG", e);
}
