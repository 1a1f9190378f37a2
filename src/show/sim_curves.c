/* Implementation of show/sim_curves.h. */
#include "show/sim_curves.h"

/* Adds a piece of a step function to the means of the parts it touches. */
static void add_piece(struct series *s, double seconds, double from, double to, double value) {
    double wide = seconds / s->count;
    if (!(from < seconds)) return;
    for (size_t i = from > 0 ? (size_t)(from / wide) : 0; i < s->count; i++) {
        double low = (double)i * wide, high = low + wide;
        if (low >= to) return;
        double part = (to < high ? to : high) - (from > low ? from : low);
        if (part > 0) s->value[i] += value * part / wide;
    }
}

/* When the state of a sample ends. */
static double end_of(const struct pawl_sim *sim, uint32_t row, uint32_t i, double seconds) {
    return i + 1 < sim->sample_counts[row] ? sim->samples[row][i + 1].at_s : seconds;
}

void series_rate(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out) {
    *out = (struct series){.count = SERIES_RATES};
    for (uint32_t i = 0; i < sim->sample_counts[row]; i++)
        add_piece(out, seconds, sim->samples[row][i].at_s, end_of(sim, row, i, seconds),
                  sim->samples[row][i].rate);
}

void series_alive(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out) {
    *out = (struct series){.count = SERIES_POINTS};
    for (uint32_t i = 0; i < sim->sample_counts[row]; i++)
        add_piece(out, seconds, sim->samples[row][i].at_s, end_of(sim, row, i, seconds),
                  sim->samples[row][i].alive);
}

void series_counted(const struct pawl_sim *sim, uint32_t row, double seconds, struct series *out) {
    const struct pawl_sim_sample *samples = sim->samples[row];
    uint32_t last = 0, count = sim->sample_counts[row];
    *out = (struct series){.count = SERIES_POINTS + 1};
    for (uint32_t i = 0; i < out->count && count > 0; i++) {
        double at = seconds * i / SERIES_POINTS;
        while (last + 1 < count && samples[last + 1].at_s <= at) last++;
        double since = at - samples[last].at_s;
        out->value[i] = (double)samples[last].counted + (since > 0 ? since * samples[last].rate : 0);
    }
}

double series_most(const struct series *s) {
    double most = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->value[i] > most) most = s->value[i];
    return most;
}
