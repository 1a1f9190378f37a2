/* A simulation in words: per scenario a table of policies, then how ours compare with each of the others.
 *
 * The ratio is to the first policy of the scenario; hours are of the simulated time. Fails only when writing
 * does. Tested in tests/unit/show_sim_text_test.c. */
#include <math.h>
#include <string.h>

#include "show/show.h"
#include "show/sim_view.h"

static int policy_columns(const struct pawl_sim *sim) {
    size_t widest = strlen("policy");
    for (uint32_t i = 0; i < sim->row_count; i++) {
        size_t columns = out_columns(sim->rows[i].policy);
        if (columns > widest) widest = columns;
    }
    return (int)widest;
}

static void put_title(struct out *o, const struct pawl_sim *sim) {
    const struct pawl_sim_request *r = &sim->request;
    out_count(o, r->pipelines, "pipeline");
    out_text(o, " x ");
    out_count(o, r->stages, "stage");
    out_text(o, " x ");
    out_count(o, r->microbatches, "micro-batch");
    out_printf(o, ", seed %llu\n", (unsigned long long)r->seed);
}

static void put_scenario(struct out *o, const struct pawl_sim_row *row, int wide) {
    out_char(o, '\n');
    out_plain(o, row->scenario);
    out_printf(o, ": %.4g h, ", row->seconds / 3600);
    out_count(o, row->failures, "failure");
    out_text(o, ", ");
    out_count(o, row->joins, "join");
    out_char(o, '\n');
    out_printf(o, "%-*s %10s %8s %7s %7s %6s %8s %7s %8s %7s %6s %9s\n", wide, "policy", "goodput/s",
               "of ideal", "ratio", "avail.", "ettr", "stopped", "lost h", "saving h", "idle h", "stops",
               "cost");
}

static void put_number(struct out *o, const char *format, double value, int wide) {
    char text[48];
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    else
        snprintf(text, sizeof text, "-");
    out_printf(o, " %*s", wide, text);
}

/* Written out: the compiler checks no format that is passed on. */
static void put_row(struct out *o, const struct pawl_sim_row *row, double first, int wide) {
    out_plain(o, row->policy);
    out_pad(o, ' ', (size_t)wide - out_columns(row->policy));
    put_number(o, "%.4g", row->goodput, 10);
    put_number(o, "%.3f", row->relative, 8);
    put_number(o, "%.3f", first > 0 ? row->goodput / first : NAN, 7);
    put_number(o, "%.4f", row->availability, 7);
    put_number(o, "%.3f", row->ettr, 6);
    put_number(o, "%.2f", row->stopped_s / 3600, 8);
    put_number(o, "%.2f", row->lost_s / 3600, 7);
    put_number(o, "%.2f", row->saving_s / 3600, 8);
    put_number(o, "%.2f", row->idle_s / 3600, 7);
    out_printf(o, " %6llu", (unsigned long long)row->stops);
    put_number(o, "%.4g", row->cost > 0 ? row->cost : NAN, 9);
    if (row->note != NULL && *row->note != 0) {
        out_text(o, "  ");
        out_plain(o, row->note);
    }
    out_char(o, '\n');
}

/* "pawl: 1.46 x oobleck, 1.64 x bamboo" */
static void put_ratios(struct out *o, const struct pawl_sim *sim, uint32_t ours) {
    bool first = true;
    if (!sim_view_ran(sim, ours) || !sim_view_is_ours(&sim->rows[ours])) return;
    for (uint32_t i = 0; i < sim->row_count; i++) {
        if (i == ours || !sim_view_same_scenario(sim, i, ours)) continue;
        if (first) out_plain(o, sim->rows[ours].policy);
        out_text(o, first ? ": " : ", ");
        first = false;
        if (sim_view_ran(sim, i)) {
            out_printf(o, "%.3f x ", sim->rows[ours].goodput / sim->rows[i].goodput);
            out_plain(o, sim->rows[i].policy);
        } else {
            out_plain(o, sim->rows[i].policy);
            out_text(o, " did nothing");
        }
    }
    if (!first) out_char(o, '\n');
}

static void put_table(struct out *o, const struct pawl_sim *sim, uint32_t first, int wide) {
    put_scenario(o, &sim->rows[first], wide);
    for (uint32_t i = first; i < sim->row_count; i++)
        if (sim_view_same_scenario(sim, i, first)) put_row(o, &sim->rows[i], sim->rows[first].goodput, wide);
    for (uint32_t i = first; i < sim->row_count; i++)
        if (sim_view_same_scenario(sim, i, first)) put_ratios(o, sim, i);
}

static void put_warnings(struct out *o, const char *text) {
    char line[OUT_LINE];
    while (out_next_line(&text, line)) {
        out_text(o, "warning: ");
        out_plain(o, line);
        out_char(o, '\n');
    }
}

pawl_code show_sim_text(const struct pawl_sim *sim, FILE *file, struct pawl_error *e) {
    struct out o;
    out_begin(&o, file);
    put_title(&o, sim);
    for (uint32_t i = 0; i < sim->row_count; i++)
        if (sim_view_begins(sim, i)) put_table(&o, sim, i, policy_columns(sim));
    if (sim->row_count > 0)
        out_text(&o,
                 "\ngoodput: micro-batches that counted per second; of ideal: over the same policy without "
                 "failures;\nratio: to the first policy; ettr: useful time over all time; cost: per million "
                 "micro-batches\n");
    put_warnings(&o, sim->warnings);
    return out_end(&o, "simulation as text", e);
}
