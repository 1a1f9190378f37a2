/* The chart's rows: one per worker, every instruction a box with its tooltip. */
#include "show/plan_svg.h"

#include <string.h>

#include "show/show.h"

#define BOX_GAP    0.8 /* between boxes, taken from their width */
#define MARK_WIDTH 2.0 /* of a step that takes no time */
#define COPY       3.0 /* height of a copy's bar */

static double font_of(const struct chart *c) {
    return c->row >= 24 ? 11 : c->row >= 18 ? 10 : c->row >= 12 ? SVG_LEAST : 0;
}

static void put_tooltip(const struct chart *c, uint32_t w, const struct ir_instruction *in, uint64_t start,
                        uint64_t end) {
    char text[SHOW_TIME];
    out_text(c->o, "<title>");
    out_text(c->o, view_op_words(in->op));
    if (in->home != IR_NONE) out_printf(c->o, " of %u:%u", in->home, in->microbatch);
    if (in->chunk != view_stage(c->v, w)) out_printf(c->o, ", chunk %u", in->chunk);
    out_printf(c->o, ", %s", show_time(start, text));
    out_printf(c->o, "\xe2\x80\x93%s</title>", show_time(end, text));
}

/* The longest label that fits, and its size: kind and name, name, a smaller name. A guest's name is its
 * home's number, too. Returns 0 if none fits. */
static double label_of(const struct chart *c, uint32_t w, const struct ir_instruction *in, double width,
                       char out[32]) {
    bool guest = view_is_guest(c->v, w, in);
    for (int shortened = 0; shortened < 3; shortened++) {
        const char *letter = shortened == 0 ? ir_op_name(in->op) : "";
        double font = shortened < 2 ? font_of(c) : SVG_LEAST;
        if (guest)
            snprintf(out, 32, "%s%u:%u", letter, in->home, in->microbatch);
        else
            snprintf(out, 32, "%s%u", letter, in->microbatch);
        if (svg_width(strlen(out), font) <= width - 1) return font;
    }
    return 0;
}

static void put_box(const struct chart *c, uint32_t w, uint32_t i, double y) {
    const struct view *v = c->v;
    const struct ir_instruction *in = &v->ir->workers[w].instructions[i];
    uint64_t start = view_start(v, w, i), end = view_end(v, w, i);
    bool guest = view_is_guest(v, w, in), helper = view_is_helper(v, w, in->chunk);
    double x = chart_x(c, start), width = chart_x(c, end) - x - BOX_GAP;
    double inset = guest || helper ? 0.8 : 0; /* the outline stays inside */
    char classes[16], label[32];
    if (end == start) return;
    snprintf(classes, sizeof classes, "%s%s%s%s", ir_op_name(in->op), guest && !helper ? " g" : "",
             helper ? " h" : "", view_lap(v, in->chunk) % 2 == 1 && !helper ? " k" : "");
    out_printf(c->o, "<rect class=\"%s\"", classes);
    svg_attribute(c->o, "x", x + inset);
    svg_attribute(c->o, "y", y + inset);
    svg_attribute(c->o, "width", width > 2 * inset + 0.6 ? width - 2 * inset : 0.6);
    svg_attribute(c->o, "height", c->row - 2 * inset);
    if (width > 8) out_text(c->o, " rx=\"2\"");
    out_char(c->o, '>');
    put_tooltip(c, w, in, start, end);
    out_text(c->o, "</rect>\n");
    double font = c->labels && font_of(c) > 0 ? label_of(c, w, in, width, label) : 0;
    if (font == 0) return;
    svg_text(c->o,
             font >= 11   ? "n s"
             : font >= 10 ? "n t"
                          : "n u",
             x + width / 2, y + c->row / 2 + font * 0.36, label);
}

/* R, S, O and L: bars thinner than work. */
static void put_bar(const struct chart *c, uint32_t w, uint32_t i, double y) {
    const struct ir_instruction *in = &c->v->ir->workers[w].instructions[i];
    uint64_t start = view_start(c->v, w, i), end = view_end(c->v, w, i);
    double x = chart_x(c, start), width = chart_x(c, end) - x, height = c->row;
    if (in->op == IR_R && end == start) return;
    if (in->op == IR_R || (in->op == IR_S && end > start)) {
        y += c->row * 0.28;
        height = c->row * 0.44;
    } else if (in->op != IR_S) {
        if (in->op == IR_O) y += c->row - COPY;
        height = COPY;
    }
    if (width < MARK_WIDTH) width = MARK_WIDTH;
    out_printf(c->o, "<rect class=\"%s\"", ir_op_name(in->op));
    svg_attribute(c->o, "x", x);
    svg_attribute(c->o, "y", y);
    svg_attribute(c->o, "width", width);
    svg_attribute(c->o, "height", height);
    out_char(c->o, '>');
    put_tooltip(c, w, in, start, end);
    out_text(c->o, "</rect>\n");
}

static void put_dead(const struct chart *c, double x, double width, double y) {
    double middle = y + c->row / 2;
    svg_rect(c->o, "d", x, y, width, c->row);
    svg_line(c->o, "dl", x, middle, x + width, middle);
    if (c->row < 12) return;
    svg_rect(c->o, "d", x + 8, y + 1, 50, c->row - 2);
    svg_text(c->o, "dt", x + 18, middle + 4, "dead");
}

static bool was_taken_over(const struct view *v, uint32_t worker) {
    for (uint32_t i = 0; i < v->plan->move_count; i++)
        if (v->plan->moves[i].to == worker) return true;
    return false;
}

static void put_worker(const struct chart *c, uint32_t w, double y) {
    const struct view *v = c->v;
    uint32_t s = view_stage(v, w);
    uint64_t end = view_end_of_window(v, s);
    double x = chart_x(c, end - v->plan->times.period), width = chart_x(c, end) - x;
    if (c->row >= 12) {
        svg_text_begin(c->o, "tk e", c->left - 8, y + c->row / 2 + 4);
        out_printf(c->o, "p%u%s", view_pipeline(v, w), was_taken_over(v, w) ? "*" : "");
        svg_text_end(c->o);
    }
    if (!v->ir->workers[w].alive) {
        put_dead(c, x, width, y);
        return;
    }
    svg_rect(c->o, "wi", x, y, width, c->row);
    for (uint32_t i = 0; i < v->ir->workers[w].count; i++) {
        enum ir_op op = v->ir->workers[w].instructions[i].op;
        if (op <= IR_B || op == IR_C) put_box(c, w, i, y);
    }
    for (uint32_t i = 0; i < v->ir->workers[w].count; i++) {
        enum ir_op op = v->ir->workers[w].instructions[i].op;
        if (op > IR_B && op != IR_C) put_bar(c, w, i, y);
    }
}

void show_rows_put(const struct chart *c) {
    for (uint32_t s = 0; s < c->v->ir->stages; s++) {
        double y = chart_stage_y(c, s);
        svg_text_begin(c->o, "b", 20, y + chart_stage_height(c) / 2 + 4);
        out_printf(c->o, c->v->ir->pipelines > 1 || c->row >= 12 ? "stage %u" : "%u", s);
        svg_text_end(c->o);
        for (uint32_t p = 0; p < c->v->ir->pipelines; p++)
            put_worker(c, p * c->v->ir->stages + s, y + p * (c->row + c->row_gap));
    }
}
