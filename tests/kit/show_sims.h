/* Results of simulations made by hand for the tests of src/show. */
#ifndef SHOW_SIMS_H
#define SHOW_SIMS_H

#include "kit/show_kit.h"

static inline struct pawl_sim_row *sim_kit_rows(void) {
    static struct pawl_sim_row rows[6];
    rows[0] = (struct pawl_sim_row){.scenario = "every 6 h",
                                    .policy = "fault-scaled",
                                    .goodput = 9.84,
                                    .relative = 0.984,
                                    .throughput = 9.84,
                                    .availability = 1,
                                    .ettr = 1};
    rows[1] = (struct pawl_sim_row){.scenario = "every 6 h",
                                    .policy = "oobleck",
                                    .goodput = 7.4,
                                    .relative = 0.82,
                                    .throughput = 7.5,
                                    .availability = 0.98,
                                    .ettr = 0.97,
                                    .stopped_s = 60,
                                    .lost_s = 36,
                                    .stops = 1,
                                    .cost = 1.25};
    rows[2] = (struct pawl_sim_row){.scenario = "every 6 h",
                                    .policy = "pawl",
                                    .goodput = 9.9,
                                    .relative = 0.99,
                                    .throughput = 10,
                                    .availability = 0.9986,
                                    .ettr = 0.998,
                                    .stopped_s = 5,
                                    .stops = 1};
    rows[3] = (struct pawl_sim_row){.scenario = "every 2 h",
                                    .policy = "fault-scaled",
                                    .goodput = 9.5,
                                    .relative = 0.95,
                                    .availability = 1,
                                    .ettr = 1};
    rows[4] = (struct pawl_sim_row){.scenario = "every 2 h",
                                    .policy = "pawl",
                                    .goodput = 9.8,
                                    .relative = 0.98,
                                    .availability = 0.99,
                                    .ettr = 0.99};
    rows[5] = (struct pawl_sim_row){.scenario = "every 2 h", .policy = "bamboo", .idle_s = 3600};
    for (int i = 0; i < 6; i++) {
        rows[i].note = i < 5 ? "" : "cannot run: 2 copies of 40 GB do not fit 64 GB";
        rows[i].seconds = 3600;
        rows[i].failures = i < 3 ? 1 : 2;
        rows[i].joins = i < 3 ? 0 : 1;
        rows[i].worker_hours = 31.5;
    }
    return rows;
}

/* Two scenarios; in the second one policy cannot run. Everything is static: nothing to free. */
static inline struct pawl_sim *sim_of_two_scenarios(void) {
    static struct pawl_sim_sample scaled[] = {{0, 32, 10, 0}, {1800, 31, 9.6875, 18000}};
    static struct pawl_sim_sample oobleck[] = {{0, 32, 9, 0}, {1800, 31, 0, 16200}, {1860, 31, 6, 16200}};
    static struct pawl_sim_sample ours[] = {{0, 32, 10, 0}, {1800, 31, 0, 18000}, {1805, 31, 10, 18000}};
    static struct pawl_sim_sample still[] = {{0, 32, 0, 0}};
    static struct pawl_sim_sample *samples[] = {scaled, oobleck, ours, scaled, ours, still};
    static uint32_t counts[] = {2, 3, 3, 2, 3, 1};
    static struct fleet_constant constants[] = {
        {.policy = "oobleck", .name = "stop_s", .unit = "s", .source = "a paper, section \"5\"", .value = 60},
        {.policy = "pawl", .name = "stop_s", .unit = "s", .source = "measured", .value = 5},
    };
    static struct pawl_sim sim;
    sim = (struct pawl_sim){.rows = sim_kit_rows(),
                            .samples = samples,
                            .sample_counts = counts,
                            .row_count = 6,
                            .constants = {.constant = constants, .count = 2}};
    sim.request = (struct pawl_sim_request){
        .pipelines = 16, .stages = 2, .microbatches = 8, .seed = 7, .checkpoint_every_s = 1800};
    return &sim;
}

__attribute__((noinline, unused)) static char *sim_kit_text(pawl_code (*write)(const struct pawl_sim *,
                                                                               FILE *, struct pawl_error *),
                                                            const struct pawl_sim *sim) {
    char *text = NULL;
    size_t size = 0;
    struct pawl_error e = {0};
    FILE *file = open_memstream(&text, &size);
    if (write(sim, file, &e) != PAWL_OK) fail_msg("%s", e.text);
    fclose(file);
    return text;
}

#endif
