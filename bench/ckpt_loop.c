/* A training loop that saves, for bench/ckpt_loop.py and bench/ckpt_throttled.py: stretches of iterations at
 * each interval in turn, beside stretches that save nothing, in one process.
 *
 *   bench_ckpt_loop --folder F --way KIND --bytes B --step-us T --intervals 0,10,1 [--rounds R]
 *       [--iterations I] [--saves S] [--in-flight N] [--staging BYTES] [--calibrate C] [--products P]
 *
 * The length of an iteration is calibrated to T, or taken over from an earlier run as its number of products.
 * A stretch at interval f has at least I iterations and S saves, whole multiples of f. First the time of a
 * save is measured by itself (Tw, with N in flight back to back, C of them after the pipeline has filled).
 * Prints one object: samples as they are, for the scripts to judge. */
#include <stdlib.h>
#include <string.h>

#include "kit/loop.h"

#define INTERVALS_MAX 16u

struct bench {
    struct state state;
    struct way way;
    struct loop loop;
    uint32_t intervals[INTERVALS_MAX], interval_count;
    uint32_t iterations, saves, rounds;
    double save_s, step_s; /* Tw; one iteration without saves */
    struct json j;
};

static void read_intervals(struct bench *b, const char *text) {
    while (text != NULL && *text != 0) {
        char *end = NULL;
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || value > 100000 || b->interval_count == INTERVALS_MAX)
            measure_stop("intervals", "wanted at most 16 whole numbers and commas");
        b->intervals[b->interval_count++] = (uint32_t)value;
        text = *end == ',' ? end + 1 : end;
    }
    if (b->interval_count == 0) measure_stop("intervals", "none");
}

/* Seconds from begin to durable of a save while as many are under way as may be; every version stays as it
 * is. */
static double time_of_save(struct bench *b, uint32_t count) {
    uint32_t in_flight = b->way.options.in_flight;
    if (b->way.options.kind == WAY_NONE || count == 0) return 0;
    for (uint32_t i = 0; i < in_flight + 1; i++) way_save(&b->way, b->loop.current);
    double began = measure_seconds();
    uint64_t before = way_durable_count(&b->way), after;
    for (uint32_t i = 0; i < count || way_durable_count(&b->way) == before; i++)
        way_save(&b->way, b->loop.current);
    after = way_durable_count(&b->way);
    double took = measure_seconds() - began;
    way_drain(&b->way);
    /* While N are under way all the time, each takes N times what passes between two that end. */
    return took / (double)(after - before) * in_flight;
}

static uint32_t at_least(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

/* Where saves pile up, the stretch before the first full pipeline is no sample of what follows. */
static uint32_t warm_of(const struct bench *b, uint32_t interval) {
    if (interval == 0) return 1;
    bool piles_up = b->save_s > b->way.options.in_flight * interval * b->step_s * 0.8;
    return interval * (piles_up ? b->way.options.in_flight + 1 : 1);
}

static void run_stretch(struct bench *b, uint32_t round, uint32_t interval) {
    struct loop_segment s;
    uint32_t iterations =
        interval == 0 ? b->iterations : interval * at_least(b->saves, divide_up(b->iterations, interval));
    double cpu = measure_cpu_s();
    uint64_t durable = way_durable_count(&b->way);
    loop_run(&b->loop, &b->way, warm_of(b, interval), iterations, interval, &s);
    cpu = measure_cpu_s() - cpu;
    way_drain(&b->way);
    json_object(&b->j, NULL);
    json_u64(&b->j, "round", round);
    json_u64(&b->j, "interval", interval);
    json_u64(&b->j, "iterations", s.iterations);
    json_u64(&b->j, "saves", s.saves);
    json_u64(&b->j, "durable", way_durable_count(&b->way) - durable); /* with those of the warm-up */
    json_f64(&b->j, "seconds", s.seconds);
    json_f64(&b->j, "cpu_s", cpu);
    samples_print(&b->j, "step_s", &s.step_s);
    samples_print(&b->j, "inside", &s.inside);
    samples_print(&b->j, "blocked_s", &s.blocked_s);
    json_end_object(&b->j);
    loop_segment_close(&s);
}

static void run(struct bench *b, double step_s, uint32_t products, uint32_t calibrate) {
    if (products > 0)
        b->loop.products = products;
    else
        loop_calibrate(&b->loop, step_s);
    struct loop_segment plain;
    struct way nothing;
    way_open(&nothing, &(struct way_options){.kind = WAY_NONE}, &b->state);
    loop_run(&b->loop, &nothing, 2, 10, 0, &plain);
    b->step_s = plain.seconds / plain.iterations;
    loop_segment_close(&plain);
    way_close(&nothing);
    for (uint32_t i = 0; i < 2 * b->way.options.in_flight + 2; i++) /* every slot once */
        way_save(&b->way, b->loop.current);
    way_drain(&b->way);
    b->save_s = time_of_save(b, calibrate);
    json_f64(&b->j, "step_s", b->step_s);
    json_f64(&b->j, "save_s", b->save_s);
    json_u64(&b->j, "products", b->loop.products);
    json_array(&b->j, "stretches");
    for (uint32_t round = 0; round < b->rounds; round++)
        for (uint32_t i = 0; i < b->interval_count; i++) run_stretch(b, round, b->intervals[i]);
    json_end_array(&b->j);
}

int main(int argc, char **argv) {
    static struct bench b;
    const char *folder = measure_option(argc, argv, "folder"), *kind = measure_option(argc, argv, "way");
    if (folder == NULL || kind == NULL) measure_stop("arguments", "--folder and --way");
    struct way_options options = {.kind = way_kind_named(kind),
                                  .folder = folder,
                                  .in_flight = (uint32_t)measure_number(argc, argv, "in-flight", 1),
                                  .staging_bytes = measure_number(argc, argv, "staging", 0)};
    bool in_place = options.kind != WAY_PAWL;
    b.iterations = (uint32_t)measure_number(argc, argv, "iterations", 30);
    b.saves = (uint32_t)measure_number(argc, argv, "saves", 2);
    b.rounds = (uint32_t)measure_number(argc, argv, "rounds", 1);
    if (options.in_flight < 1 || options.in_flight > 32 || b.iterations < 1 || b.saves < 1)
        measure_stop("arguments", "--in-flight 1 to 32, --iterations and --saves at least 1");
    read_intervals(&b, measure_option(argc, argv, "intervals"));
    state_flat(&b.state, measure_number(argc, argv, "bytes", (uint64_t)256 << 20));
    state_allocate(&b.state, in_place ? 1 : options.in_flight + 2);
    loop_open(&b.loop, &b.state, in_place);
    way_open(&b.way, &options, &b.state);
    struct bytes text = {0};
    b.j = json_begin(&text);
    json_object(&b.j, NULL);
    json_text(&b.j, "way", kind);
    json_u64(&b.j, "in_flight", options.in_flight);
    json_u64(&b.j, "bytes", b.state.bytes);
    run(&b, (double)measure_number(argc, argv, "step-us", 100000) * 1e-6,
        (uint32_t)measure_number(argc, argv, "products", 0),
        (uint32_t)measure_number(argc, argv, "calibrate", 4));
    json_end_object(&b.j);
    measure_print(&text);
    way_close(&b.way);
    loop_close(&b.loop);
    state_close(&b.state);
    return 0;
}
