/* Compute times that vary: a lognormal factor of mean 1 on each, and a straggler's factor.
 *
 * Random numbers are counted, not drawn in a row: an instruction's factor depends on (seed, iteration, its
 * index) alone, so that results do not depend on the order in which anything is computed. */
#include "sim/noise.h"

#include <math.h>

#include "base/error.h"
#include "base/rng.h"

/* Above this the normal number behind a factor is beyond 6 deviations for usual jitters; it keeps times
 * finite. */
#define FACTOR_MAX 1e3

bool noise_is_none(const struct sim_noise *noise) {
    return noise == NULL || (noise->jitter == 0 && noise->straggler == NULL);
}

pawl_code noise_check(const struct sim_noise *noise, uint32_t workers, struct pawl_error *e) {
    if (noise == NULL) return PAWL_OK;
    if (!isfinite(noise->jitter) || noise->jitter < 0 || noise->jitter > 10)
        return error_set(e, PAWL_ARGUMENT, 0, "noise: jitter is %g, not 0 to 10", noise->jitter);
    for (uint32_t w = 0; noise->straggler != NULL && w < workers; w++)
        if (!isfinite(noise->straggler[w]) || noise->straggler[w] <= 0 || noise->straggler[w] > FACTOR_MAX)
            return error_set(e, PAWL_ARGUMENT, 0,
                             "noise: the straggler factor of worker %u is %g, not above 0 "
                             "and at most %g",
                             w, noise->straggler[w], FACTOR_MAX);
    return PAWL_OK;
}

/* A normal number of deviation 1 (Box and Muller), from two uniform ones of (0, 1] and [0, 1). */
static double normal(uint64_t seed, uint32_t iteration, uint32_t index) {
    struct rng_block block = rng_philox(seed, index, iteration);
    uint64_t a = (uint64_t)block.v[0] << 32 | block.v[1], b = (uint64_t)block.v[2] << 32 | block.v[3];
    double u = ((double)(a >> 11) + 1) * 0x1p-53, v = (double)(b >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

static uint64_t varied(uint64_t ticks, double factor) {
    if (ticks == 0) return 0;
    double scaled = (double)ticks * factor + 0.5;
    return scaled < 1 ? 1 : scaled < (double)SIM_TICKS_MAX ? (uint64_t)scaled : SIM_TICKS_MAX;
}

pawl_code noise_apply(const struct sim_noise *noise, uint32_t iteration, struct graph *g,
                      struct pawl_error *e) {
    /* A lognormal number exp(mean + deviation z) has mean 1 and standard deviation `jitter` with these: */
    double variance = log1p(noise->jitter * noise->jitter);
    double deviation = sqrt(variance), mean = -variance / 2;
    uint64_t sum = 0;
    for (uint32_t w = 0; w < g->workers; w++) {
        const struct ir_worker *list = &g->plan->workers[w];
        double straggler = noise->straggler == NULL ? 1 : noise->straggler[w];
        for (uint32_t i = 0; i < list->count; i++) {
            const struct ir_instruction *in = &list->instructions[i];
            if (!op_computes(in->op)) continue;
            uint32_t index = g->first[w] + i;
            double factor = straggler;
            if (deviation > 0) factor *= exp(mean + deviation * normal(noise->seed, iteration, index));
            if (factor > FACTOR_MAX) factor = FACTOR_MAX;
            uint64_t ticks = varied(sim_duration(g->costs, w, in->chunk, in->op), factor);
            g->node[g->of[index]].duration = ticks;
            sum += ticks;
            if (sum >= SIM_TICKS_MAX)
                return error_set(e, PAWL_ARGUMENT, 0, "noise: with it all times are %llu ticks or more",
                                 (unsigned long long)SIM_TICKS_MAX);
        }
    }
    return PAWL_OK;
}
