/* The chart of a large plan: a row per stage, stacked by what share of its live workers does what. */
#include "show/plan_svg.h"

#include <stdlib.h>

#define BINS 320u /* of time, across the plot */

enum layer { LAYER_F, LAYER_I, LAYER_W, LAYER_B, LAYER_C, LAYER_COUNT };
static const char *const layer_class[LAYER_COUNT] = {"F", "I", "W", "B", "C"};

struct areas {
    double bin_ticks;
    double share[LAYER_COUNT][BINS]; /* of the live workers' time in a bin */
};

static int layer_of(enum ir_op op) {
    if (op <= IR_B) return (int)op - (int)IR_F;
    return op == IR_C ? LAYER_C : -1;
}

/* Adds [start, end), in ticks from the origin, each bin its part. */
static void add_span(struct areas *a, int layer, double start, double end, double weight) {
    for (size_t bin = (size_t)(start / a->bin_ticks); bin < BINS; bin++) {
        double from = (double)bin * a->bin_ticks, to = from + a->bin_ticks;
        if (from >= end) return;
        double part = (end < to ? end : to) - (start > from ? start : from);
        if (part > 0) a->share[layer][bin] += part / a->bin_ticks * weight;
    }
}

static uint32_t add_stage(const struct view *v, uint32_t s, struct areas *a) {
    uint32_t live = 0;
    for (uint32_t p = 0; p < v->ir->pipelines; p++) live += v->ir->workers[p * v->ir->stages + s].alive;
    for (uint32_t p = 0; p < v->ir->pipelines; p++) {
        uint32_t w = p * v->ir->stages + s;
        for (uint32_t i = 0; i < v->ir->workers[w].count; i++) {
            int layer = layer_of(v->ir->workers[w].instructions[i].op);
            if (layer >= 0)
                add_span(a, layer, (double)(view_start(v, w, i) - v->origin),
                         (double)(view_end(v, w, i) - v->origin), 1.0 / live);
        }
    }
    return live;
}

static void put_point(const struct chart *c, double x, double y) {
    out_char(c->o, ' ');
    out_pixels(c->o, x);
    out_char(c->o, ' ');
    out_pixels(c->o, y);
}

/* The band between `below` and that plus the layer; `below` grows by it. */
static void put_layer(const struct chart *c, const struct areas *a, int layer, double y, double *below) {
    double bin = c->plot_width / BINS, full = c->row;
    double most = 0;
    for (size_t i = 0; i < BINS; i++) most = a->share[layer][i] > most ? a->share[layer][i] : most;
    if (most == 0) return;
    out_printf(c->o, "<path class=\"%s\" d=\"M", layer_class[layer]);
    for (size_t i = 0; i < BINS; i++) {
        double top = y + full * (1 - below[i] - a->share[layer][i]);
        put_point(c, c->left + bin * (double)i, top);
        put_point(c, c->left + bin * (double)(i + 1), top);
    }
    for (size_t i = BINS; i-- > 0;) {
        put_point(c, c->left + bin * (double)(i + 1), y + full * (1 - below[i]));
        put_point(c, c->left + bin * (double)i, y + full * (1 - below[i]));
        below[i] += a->share[layer][i];
    }
    out_printf(c->o, "Z\"><title>%s</title></path>\n",
               view_op_words(layer == LAYER_C ? IR_C : (enum ir_op)layer));
}

static void put_stage(const struct chart *c, uint32_t s, struct areas *a) {
    const struct view *v = c->v;
    double y = chart_stage_y(c, s), below[BINS] = {0};
    uint64_t end = view_end_of_window(v, s);
    double x = chart_x(c, end - v->plan->times.period);
    uint32_t live = add_stage(v, s, a);
    svg_rect(c->o, "wi", x, y, chart_x(c, end) - x, c->row);
    for (int layer = 0; layer < LAYER_COUNT; layer++) put_layer(c, a, layer, y, below);
    svg_text_begin(c->o, "b", 20, y + c->row / 2 + (c->row >= 40 ? -2 : 4));
    out_printf(c->o, "stage %u", s);
    svg_text_end(c->o);
    if (c->row < 40) return;
    svg_text_begin(c->o, "tk", 20, y + c->row / 2 + 13);
    out_printf(c->o, "%u live", live);
    svg_text_end(c->o);
}

pawl_code show_areas_put(const struct chart *c, struct pawl_error *e) {
    struct areas *a = malloc(sizeof *a);
    if (a == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the areas of the chart");
    for (uint32_t s = 0; s < c->v->ir->stages; s++) {
        *a = (struct areas){.bin_ticks = c->plot_width / c->pixels_per_tick / BINS};
        put_stage(c, s, a);
    }
    free(a);
    return PAWL_OK;
}
