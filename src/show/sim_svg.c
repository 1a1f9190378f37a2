/* Goodput over time as SVG: a panel per scenario, in it a line per policy, and below it who is alive.
 *
 * A policy's rate falls to nothing at every stop, often for less than a pixel, so a line shows the mean over
 * a few pixels' worth of time, which is what it got done. Lines differ by colour and by dashes, and each ends
 * at its name with the goodput of the whole time, which lost work has lowered. Light and dark,
 * self-contained. Fails when writing does, or MEMORY. Tested in tests/unit/show_sim_svg_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "show/show.h"
#include "show/sim_view.h"
#include "show/svg.h"

#define LEFT    78.0
#define PLOT    720.0
#define LABELS  300.0 /* right of the plot: names of lines */
#define WIDTH   (LEFT + PLOT + LABELS)
#define BINS    96u  /* of a line: 7.5 pixels each, so that short stops lower it rather than tear it */
#define ALIVES  360u /* of the live workers */
#define LABEL   17.0 /* least distance of the names */
#define ALIVE   56.0 /* height of the area of live workers */
#define HEAD    76.0
#define CAPTION 30.0 /* of a panel */
#define BETWEEN 20.0 /* rates and live workers */
#define FOOT    44.0 /* axis below a panel, and distance to the next */
#define PANEL   230.0

struct steps { /* a step function: the mean of something in each equal part of the time */
    uint32_t count;
    double value[ALIVES];
};

struct curve {
    uint32_t row, policy;
    struct steps rate;
    double label_y;
};

struct panel {
    struct out *o;
    const struct pawl_sim *sim;
    struct curve *curves; /* of the scenario's rows that ran */
    uint32_t count, silent;
    double top, height; /* of the plot of rates */
    double seconds, most;
    uint32_t alive_most;
};

/* Adds to bins the integral of a step function's piece. */
static void add_piece(struct steps *s, double seconds, double from, double to, double value) {
    double wide = seconds / s->count;
    if (!(from < seconds)) return;
    for (size_t bin = from > 0 ? (size_t)(from / wide) : 0; bin < s->count; bin++) {
        double low = (double)bin * wide, high = low + wide;
        if (low >= to) return;
        double part = (to < high ? to : high) - (from > low ? from : low);
        if (part > 0) s->value[bin] += value * part / wide;
    }
}

static void means_of(const struct pawl_sim *sim, uint32_t row, double seconds, bool alive,
                     struct steps *out) {
    const struct pawl_sim_sample *samples = sim->samples[row];
    uint32_t count = sim->sample_counts[row];
    *out = (struct steps){.count = alive ? ALIVES : BINS};
    for (uint32_t i = 0; i < count; i++) {
        double to = i + 1 < count ? samples[i + 1].at_s : seconds;
        add_piece(out, seconds, samples[i].at_s, to, alive ? samples[i].alive : samples[i].rate);
    }
}

static double last_of(const struct curve *c) { return c->rate.value[BINS - 1]; }

/* The curves of a scenario; `count` and `silent` say how many rows there are of each kind. */
static void panel_fill(struct panel *p, uint32_t first) {
    const struct pawl_sim *sim = p->sim;
    p->seconds = sim->rows[first].seconds > 0 ? sim->rows[first].seconds : 1;
    for (uint32_t i = first; i < sim->row_count; i++) {
        if (!sim_view_same_scenario(sim, i, first)) continue;
        for (uint32_t k = 0; k < sim->sample_counts[i]; k++)
            if (sim->samples[i][k].alive > p->alive_most) p->alive_most = sim->samples[i][k].alive;
        if (!sim_view_ran(sim, i)) {
            p->silent++;
            continue;
        }
        struct curve *c = &p->curves[p->count++];
        *c = (struct curve){.row = i, .policy = sim_view_policy(sim, i)};
        means_of(sim, i, p->seconds, false, &c->rate);
        for (size_t bin = 0; bin < BINS; bin++)
            if (c->rate.value[bin] > p->most) p->most = c->rate.value[bin];
    }
}

static double panel_height(uint32_t curves) {
    double names = (curves + 1) * LABEL;
    return names > PANEL ? names : PANEL;
}

static double y_of(const struct panel *p, double rate) {
    return p->top + p->height * (1 - (p->most > 0 ? rate / p->most : 0));
}

static void put_rates_axis(const struct panel *p, double step) {
    char text[32];
    for (int i = 0; i * step <= p->most * 1.000001; i++) {
        double y = y_of(p, i * step);
        svg_line(p->o, "gr", LEFT, y, LEFT + PLOT, y);
        snprintf(text, sizeof text, "%.4g", i * step);
        svg_text(p->o, "tk e", LEFT - 8, y + 4, text);
    }
}

static void put_hours(const struct panel *p, double bottom) {
    double hours = p->seconds / 3600, step = svg_step(hours / 10);
    char text[32];
    for (int i = 0; i * step <= hours * 1.000001; i++) {
        double x = LEFT + PLOT * i * step / hours;
        svg_line(p->o, "gr", x, p->top, x, bottom);
        snprintf(text, sizeof text, "%.4g", i * step);
        svg_text(p->o, "tk m", x, bottom + 16, text);
    }
    svg_text(p->o, "tk", LEFT + PLOT + 12, bottom + 16, "hours");
}

/* From where the pen is: along, then up or down, equal neighbours joined. */
static void put_steps(const struct panel *p, const struct steps *s,
                      double (*y)(const struct panel *, double)) {
    out_pixels(p->o, LEFT);
    out_char(p->o, ' ');
    out_pixels(p->o, y(p, s->value[0]));
    for (size_t i = 1; i < s->count; i++) {
        if (s->value[i] == s->value[i - 1]) continue;
        out_char(p->o, 'H');
        out_pixels(p->o, LEFT + PLOT / s->count * (double)i);
        out_char(p->o, 'V');
        out_pixels(p->o, y(p, s->value[i]));
    }
    out_char(p->o, 'H');
    out_pixels(p->o, LEFT + PLOT);
}

static void put_curve(const struct panel *p, const struct curve *c) {
    const struct pawl_sim_row *row = &p->sim->rows[c->row];
    out_printf(p->o, "<path class=\"ln c%u\" d=\"M", c->policy % SVG_COLOURS);
    put_steps(p, &c->rate, y_of);
    out_text(p->o, "\"><title>");
    out_xml(p->o, row->policy);
    out_printf(p->o, ": %.4g micro-batches per second that counted, available %.2f %%</title></path>\n",
               row->goodput, row->availability * 100);
}

static int by_end(const void *a, const void *b) {
    const struct curve *x = a, *y = b;
    if (last_of(x) != last_of(y)) return last_of(x) > last_of(y) ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Names where their lines end, pushed down where they would overlap, and back up from the bottom. */
static void place_labels(struct panel *p) {
    double least = p->top + 4;
    qsort(p->curves, p->count, sizeof *p->curves, by_end);
    for (uint32_t i = 0; i < p->count; i++) {
        double y = y_of(p, last_of(&p->curves[i]));
        p->curves[i].label_y = y > least ? y : least;
        least = p->curves[i].label_y + LABEL;
    }
    double most = p->top + p->height;
    for (uint32_t i = p->count; i-- > 0;) {
        if (p->curves[i].label_y > most) p->curves[i].label_y = most;
        most = p->curves[i].label_y - LABEL;
    }
}

static void put_label(const struct panel *p, const struct curve *c) {
    const struct pawl_sim_row *row = &p->sim->rows[c->row];
    double x = LEFT + PLOT, end = y_of(p, last_of(c));
    char classes[16];
    snprintf(classes, sizeof classes, "ld c%u", c->policy % SVG_COLOURS);
    svg_line(p->o, classes, x + 2, end, x + 22, c->label_y);
    snprintf(classes, sizeof classes, "ln c%u", c->policy % SVG_COLOURS);
    svg_line(p->o, classes, x + 22, c->label_y, x + 50, c->label_y);
    svg_text_begin(p->o, "", x + 56, c->label_y + 4);
    out_xml(p->o, row->policy);
    out_printf(p->o, " <tspan class=\"q\">%.4g/s", row->goodput);
    if (isfinite(row->relative) && row->relative > 0) out_printf(p->o, ", %.3g %%", row->relative * 100);
    out_text(p->o, "</tspan>");
    svg_text_end(p->o);
}

static double alive_y(const struct panel *p, double alive) {
    double top = p->top + p->height + BETWEEN;
    return top + ALIVE * (1 - (p->alive_most > 0 ? alive / p->alive_most : 0));
}

static uint32_t row_with_samples(const struct pawl_sim *sim, uint32_t first) {
    for (uint32_t i = first; i < sim->row_count; i++)
        if (sim_view_same_scenario(sim, i, first) && sim->sample_counts[i] > 0) return i;
    return first;
}

static void put_alive(const struct panel *p, uint32_t first) {
    double bottom = alive_y(p, 0);
    struct steps alive;
    char text[32];
    means_of(p->sim, row_with_samples(p->sim, first), p->seconds, true, &alive);
    out_text(p->o, "<path class=\"ar\" d=\"M");
    put_steps(p, &alive, alive_y);
    out_char(p->o, 'V');
    out_pixels(p->o, bottom);
    out_char(p->o, 'H');
    out_pixels(p->o, LEFT);
    out_text(p->o, "Z\"><title>live workers</title></path>\n");
    out_text(p->o, "<path class=\"al\" d=\"M");
    put_steps(p, &alive, alive_y);
    out_text(p->o, "\"/>\n");
    svg_line(p->o, "ax", LEFT, bottom, LEFT + PLOT, bottom);
    snprintf(text, sizeof text, "%u", p->alive_most);
    svg_text(p->o, "tk e", LEFT - 8, alive_y(p, p->alive_most) + 5, text);
    svg_text(p->o, "tk e", LEFT - 8, bottom + 4, "0");
    svg_text(p->o, "", LEFT + PLOT + 12, (alive_y(p, p->alive_most) + bottom) / 2 + 4, "live workers");
}

static void put_caption(const struct panel *p, uint32_t first) {
    const struct pawl_sim_row *row = &p->sim->rows[first];
    svg_text_begin(p->o, "b", LEFT, p->top - 12);
    out_xml(p->o, row->scenario);
    out_printf(p->o, " <tspan class=\"q\">%llu failures, %llu joins</tspan>",
               (unsigned long long)row->failures, (unsigned long long)row->joins);
    svg_text_end(p->o);
}

static void put_silent(const struct panel *p, uint32_t first, double y) {
    const struct pawl_sim *sim = p->sim;
    for (uint32_t i = first; i < sim->row_count; i++) {
        if (!sim_view_same_scenario(sim, i, first) || sim_view_ran(sim, i)) continue;
        svg_text_begin(p->o, "q", LEFT, y);
        out_xml(p->o, sim->rows[i].policy);
        out_text(p->o, " did nothing");
        if (sim->rows[i].note != NULL && *sim->rows[i].note != 0) {
            out_text(p->o, " (");
            out_xml(p->o, sim->rows[i].note);
            out_char(p->o, ')');
        }
        svg_text_end(p->o);
        y += LABEL;
    }
}

/* Returns where the next panel may begin. */
static double put_panel(struct panel *p, uint32_t first) {
    panel_fill(p, first);
    p->height = panel_height(p->count);
    double step = svg_step(p->most > 0 ? p->most / 6 : 1);
    p->most = ceil(p->most / step - 1e-9) * step; /* the axis ends at a label */
    double bottom = p->top + p->height + BETWEEN + ALIVE;
    put_caption(p, first);
    put_hours(p, bottom);
    put_rates_axis(p, step);
    put_alive(p, first);
    svg_line(p->o, "ax", LEFT, p->top + p->height, LEFT + PLOT, p->top + p->height);
    for (uint32_t i = 0; i < p->count; i++) put_curve(p, &p->curves[i]);
    place_labels(p);
    for (uint32_t i = 0; i < p->count; i++) put_label(p, &p->curves[i]);
    put_silent(p, first, bottom + 38);
    return bottom + FOOT + p->silent * LABEL;
}

/* The same arithmetic as put_panel's, before anything is written. */
static double measure(const struct pawl_sim *sim) {
    double y = HEAD;
    for (uint32_t first = 0; first < sim->row_count; first++) {
        uint32_t curves = 0, silent = 0;
        if (!sim_view_begins(sim, first)) continue;
        for (uint32_t i = first; i < sim->row_count; i++) {
            if (!sim_view_same_scenario(sim, i, first)) continue;
            curves += sim_view_ran(sim, i);
            silent += !sim_view_ran(sim, i);
        }
        y += CAPTION + panel_height(curves) + BETWEEN + ALIVE + FOOT + silent * LABEL;
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
    svg_text_begin(o, "q", 20, 52);
    out_printf(
        o,
        "micro-batches per second, averaged over 1/%u of the time shown; at the right what counted in the "
        "end, and its share of a cluster that never fails",
        BINS);
    svg_text_end(o);
}

static pawl_code put_panels(struct out *o, const struct pawl_sim *sim, struct pawl_error *e) {
    struct curve *curves = calloc((size_t)sim->row_count + 1, sizeof *curves);
    if (curves == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u curves", sim->row_count);
    double y = HEAD;
    for (uint32_t first = 0; first < sim->row_count; first++) {
        if (!sim_view_begins(sim, first)) continue;
        struct panel p = {.o = o, .sim = sim, .curves = curves, .top = y + CAPTION};
        y = put_panel(&p, first);
    }
    free(curves);
    return PAWL_OK;
}

pawl_code show_sim_svg(const struct pawl_sim *sim, FILE *file, struct pawl_error *e) {
    struct out o;
    out_begin(&o, file);
    svg_begin(&o, WIDTH, measure(sim), "Goodput under failures",
              "Micro-batches per second over time, a line per policy, and the number of live workers");
    put_head(&o, sim);
    pawl_code code = put_panels(&o, sim, e);
    svg_end(&o);
    return code == PAWL_OK ? out_end(&o, "simulation as SVG", e) : code;
}
