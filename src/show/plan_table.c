/* The two forms of a plan's workers in text: a row of characters each, or a line per stage.
 *
 *   0:1  .F0F1F2f3I0F3W0 ...     F I W B  forward, input-gradient, weight-gradient, both; C recompute
 *   1:1  empty                   small letters: a guest, or another stage's work; . waits
 *
 * The drawing's column is the shortest instruction, or a half or a third of it where there is room, and the
 * digits after a letter are the micro-batch's number where it has room for them. Copies (O, L) run beside the
 * computation, and R and S are short or wait: they are not drawn. Tested in
 * tests/unit/show_plan_text_test.c. */
#include "show/plan_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "show/show.h"

#define ROWS_MAX 64u /* beyond, a drawing is no overview */

static size_t digits_of(uint64_t number) {
    size_t digits = 1;
    for (; number >= 10; number /= 10) digits++;
    return digits;
}

/* How many columns the shortest instruction gets, 4 at most; 0: the drawing cannot fit `room` columns. */
static uint64_t columns_each(const struct view *v, uint32_t room) {
    for (uint64_t part = 4; part >= 1 && v->shortest > 0; part--)
        if ((v->end - v->origin) * part / v->shortest < room) return part;
    return 0;
}

struct scale { /* `part` columns take v->shortest ticks */
    const struct view *v;
    uint64_t part;
};

static size_t column_of(const struct scale *s, uint64_t at) {
    return (size_t)(((at - s->v->origin) * s->part + s->v->shortest / 2) / s->v->shortest);
}

static void draw_instruction(char *row, size_t from, size_t to, char letter, uint32_t number) {
    char text[12];
    if (to <= from) return;
    memset(row + from, letter, to - from);
    int size = snprintf(text, sizeof text, "%u", number);
    if ((size_t)size >= to - from) return; /* the letter must stay */
    memset(row + from + 1, '-', to - from - 1);
    memcpy(row + from + 1, text, (size_t)size);
}

/* Dots in the worker's own iteration alone, work over them; no blanks at the end. */
static void draw_worker(const struct scale *scale, uint32_t w, char *row, size_t columns) {
    const struct view *v = scale->v;
    const struct ir_worker *worker = &v->ir->workers[w];
    uint64_t window_end = view_end_of_window(v, view_stage(v, w));
    size_t first = column_of(scale, window_end - v->plan->times.period), last = column_of(scale, window_end);
    memset(row, ' ', columns);
    if (last > columns) last = columns;
    if (first < last) memset(row + first, '.', last - first);
    for (uint32_t i = 0; i < worker->count; i++) {
        const struct ir_instruction *in = &worker->instructions[i];
        if (in->op > IR_B && in->op != IR_C) continue;
        bool other = view_is_guest(v, w, in) || view_is_helper(v, w, in->chunk);
        char letter = *ir_op_name(in->op);
        draw_instruction(row, column_of(scale, view_start(v, w, i)), column_of(scale, view_end(v, w, i)),
                         other ? (char)tolower(letter) : letter, in->microbatch);
    }
    while (columns > 0 && row[columns - 1] == ' ') columns--;
    row[columns] = 0;
}

static void put_key_line(struct out *o, const struct scale *scale) {
    const struct view *v = scale->v;
    out_printf(o, scale->part == 1 ? "a column is " : "%u columns are ", (uint32_t)scale->part);
    out_time(o, v->shortest);
    out_text(o, ": F forward");
    if (v->counts[IR_I] > 0) out_text(o, ", I input-gradient, W weight-gradient");
    if (v->counts[IR_B] > 0) out_text(o, ", B both gradients");
    if (v->counts[IR_C] > 0) out_text(o, ", C recompute");
    if (v->guests + v->helped > 0) out_text(o, ", small letters: another pipeline's or stage's");
    out_text(o, ", . waits\n");
}

bool show_timeline_put(struct out *o, const struct view *v, uint32_t columns, struct pawl_error *e,
                       pawl_code *code) {
    size_t head = digits_of(v->ir->pipelines - 1) + digits_of(v->ir->stages - 1) + 3;
    struct scale scale = {.v = v};
    if (v->workers > ROWS_MAX || columns <= head + 1) return false;
    scale.part = columns_each(v, columns - (uint32_t)head - 1);
    if (scale.part == 0) return false;
    size_t wide = column_of(&scale, v->end);
    char *row = malloc(wide + 1);
    if (row == NULL) {
        *code = error_set(e, PAWL_MEMORY, 0, "no memory for a row of %zu characters", wide);
        return false;
    }
    for (uint32_t s = 0; s < v->ir->stages; s++) {
        for (uint32_t p = 0; p < v->ir->pipelines; p++) {
            uint32_t w = p * v->ir->stages + s;
            out_printf(o, "%*u:%u", (int)digits_of(v->ir->pipelines - 1), p, s);
            out_pad(o, ' ', 2 + digits_of(v->ir->stages - 1) - digits_of(s));
            draw_worker(&scale, w, row, wide);
            out_text(o, v->ir->workers[w].alive ? row : "empty");
            out_char(o, '\n');
        }
    }
    free(row);
    put_key_line(o, &scale);
    return true;
}

struct stage_row { /* over the live workers of a stage */
    uint32_t live;
    uint64_t forwards_min, forwards_max, guests, busy_min, busy_max;
    uint32_t fullest;
};

static void add_worker(const struct view *v, uint32_t w, struct stage_row *row) {
    const struct ir_worker *worker = &v->ir->workers[w];
    uint64_t forwards = 0, busy = v->plan->times.busy[w];
    if (!worker->alive) return;
    for (uint32_t i = 0; i < worker->count; i++) {
        forwards += worker->instructions[i].op == IR_F;
        row->guests += worker->instructions[i].op == IR_F && view_is_guest(v, w, &worker->instructions[i]);
    }
    bool first = row->live++ == 0;
    if (first || forwards < row->forwards_min) row->forwards_min = forwards;
    if (forwards > row->forwards_max) row->forwards_max = forwards;
    if (first || busy < row->busy_min) row->busy_min = busy;
    if (busy > row->busy_max) row->busy_max = busy;
    if (first || v->plan->times.peak[w] > v->plan->times.peak[row->fullest]) row->fullest = w;
}

static void put_percent(struct out *o, uint64_t part, uint64_t whole) {
    out_printf(o, "%5.1f", whole > 0 ? 100.0 * (double)part / (double)whole : 0.0);
}

static void put_stage(struct out *o, const struct view *v, uint32_t s) {
    struct stage_row row = {0};
    char text[SHOW_TIME];
    for (uint32_t p = 0; p < v->ir->pipelines; p++) add_worker(v, p * v->ir->stages + s, &row);
    out_printf(o, "%5u %5u %6llu..%-6llu %6llu  ", s, row.live, (unsigned long long)row.forwards_min,
               (unsigned long long)row.forwards_max, (unsigned long long)row.guests);
    put_percent(o, row.busy_min, v->plan->times.period);
    out_text(o, "..");
    put_percent(o, row.busy_max, v->plan->times.period);
    out_printf(o, "  %12s ", show_time(v->stage_first[s], text));
    out_printf(o, "%12s  ", show_time(v->stage_last[s], text));
    out_memory(o, v, v->plan->times.peak[row.fullest]);
    out_char(o, '\n');
}

void show_table_put(struct out *o, const struct view *v) {
    out_text(o,
             "stage  live forwards each guests      busy in %          from           to  memory at most\n");
    for (uint32_t s = 0; s < v->ir->stages; s++) put_stage(o, v, s);
}
