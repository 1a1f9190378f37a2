/* Streams of checkpoints at the same N, T and p by the shape of PCcheck's core, by pawl (staged with a pool
 * of the same size, and from version buffers), and by the raw writer at its best, interleaved; for
 * bench/ckpt_pccheck.py.
 *
 *   bench_ckpt_pccheck --folder F --bytes B --settings N:T:p,N:T:p [--rounds R] [--checkpoints C]
 *
 * Every measurement opens its side anew, runs N + 2 checkpoints that do not count, so that each slot has its
 * blocks and pages, then C that do, until all have ended; pawl's count only if they became durable, and were
 * not overtaken. For pawl T writers per checkpoint are N T operations at the device at once. Prints samples
 * as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit/pccheck.h"
#include "kit/way.h"

#define SETTINGS_MAX 16u

enum side { RAW, CORE, STAGED, VERSIONS, SIDES };
static const char *const side_names[SIDES] = {"raw", "pccheck_core", "pawl_staged", "pawl_versions"};

struct setting {
    uint32_t in_flight, threads, chunk_count;
    struct samples seconds[SIDES], cpu_s[SIDES]; /* of one checkpoint */
};

struct bench {
    const char *folder;
    char core_path[600];
    struct raw_device *raw;
    struct state state;
    struct setting settings[SETTINGS_MAX];
    uint32_t setting_count, rounds, checkpoints;
    double began, cpu_began;
};

static void read_settings(struct bench *b, const char *text) {
    int used = 0;
    for (; text != NULL && *text != 0; text += used + (text[used] == ',')) {
        struct setting *s = &b->settings[b->setting_count++];
        if (b->setting_count > SETTINGS_MAX ||
            sscanf(text, "%u:%u:%u%n", &s->in_flight, &s->threads, &s->chunk_count, &used) != 3 ||
            s->in_flight < 1 || s->in_flight >= PCCHECK_SLOTS_MAX || s->threads < 1 || s->threads > 16 ||
            s->chunk_count < 1)
            measure_stop("settings", "wanted up to 16 times N:T:p, N 1 to 8, T 1 to 16, p from 1");
    }
    if (b->setting_count == 0) measure_stop("settings", "none");
}

static void start_clock(struct bench *b) {
    sync(); /* nobody waits for what another left in the page cache */
    b->began = measure_seconds();
    b->cpu_began = measure_cpu_s();
}

static void stop_clock(struct bench *b, struct setting *s, enum side side, uint64_t durable) {
    if (durable == 0) measure_stop(side_names[side], "not one checkpoint became durable");
    samples_add(&s->seconds[side], (measure_seconds() - b->began) / (double)durable);
    samples_add(&s->cpu_s[side], (measure_cpu_s() - b->cpu_began) / (double)durable);
}

static void measure_raw(struct bench *b, struct setting *s) {
    raw_write(b->raw, b->state.versions[0]);
    start_clock(b);
    for (uint32_t i = 0; i < b->checkpoints; i++) raw_write(b->raw, b->state.versions[0]);
    stop_clock(b, s, RAW, b->checkpoints);
}

static void measure_core(struct bench *b, struct setting *s) {
    struct pccheck core;
    pccheck_open(&core, b->core_path, b->state.versions[0], b->state.bytes, s->in_flight, s->threads,
                 s->chunk_count);
    pccheck_run(&core, s->in_flight + 2);
    start_clock(b);
    pccheck_run(&core, b->checkpoints);
    stop_clock(b, s, CORE, b->checkpoints);
    if (!pccheck_matches(&core)) measure_stop("pccheck core", "its last checkpoint differs from the source");
    pccheck_close(&core);
}

static void measure_pawl(struct bench *b, struct setting *s, enum side side) {
    struct way way;
    char folder[600];
    snprintf(folder, sizeof folder, "%s/n%u-%s", b->folder, s->in_flight, side_names[side]);
    if (mkdir(folder, 0755) != 0 && access(folder, W_OK) != 0) measure_stop(folder, "cannot be made");
    struct way_options options = {.kind = side == STAGED ? WAY_STAGED : WAY_PAWL,
                                  .folder = folder,
                                  .in_flight = s->in_flight,
                                  .writers = s->in_flight * s->threads,
                                  .staging_bytes = side == STAGED ? 2 * b->state.bytes : 0};
    way_open(&way, &options, &b->state);
    for (uint32_t i = 0; i < s->in_flight + 2; i++) way_save(&way, 0);
    way_drain(&way);
    start_clock(b);
    uint64_t before = way_durable_count(&way);
    for (uint32_t i = 0; i < b->checkpoints; i++) way_save(&way, 0);
    way_drain(&way);
    stop_clock(b, s, side, way_durable_count(&way) - before);
    way_close(&way);
}

static void measure(struct bench *b, struct setting *s, enum side side) {
    if (side == RAW)
        measure_raw(b, s);
    else if (side == CORE)
        measure_core(b, s);
    else
        measure_pawl(b, s, side);
}

static void print_setting(struct json *j, struct setting *s) {
    json_object(j, NULL);
    json_u64(j, "N", s->in_flight);
    json_u64(j, "T", s->threads);
    json_u64(j, "p", s->chunk_count);
    for (int side = 0; side < SIDES; side++) {
        json_object(j, side_names[side]);
        samples_print(j, "seconds", &s->seconds[side]);
        samples_print(j, "cpu_s", &s->cpu_s[side]);
        json_end_object(j);
        samples_close(&s->seconds[side]);
        samples_close(&s->cpu_s[side]);
    }
    json_end_object(j);
}

int main(int argc, char **argv) {
    static struct bench b;
    b.folder = measure_option(argc, argv, "folder");
    if (b.folder == NULL) measure_stop("arguments", "--folder");
    b.rounds = (uint32_t)measure_number(argc, argv, "rounds", 5);
    b.checkpoints = (uint32_t)measure_number(argc, argv, "checkpoints", 6);
    if (b.rounds < 1 || b.checkpoints < 1) measure_stop("arguments", "--rounds and --checkpoints at least 1");
    read_settings(&b, measure_option(argc, argv, "settings"));
    uint32_t slots = 0;
    for (uint32_t i = 0; i < b.setting_count; i++)
        if (b.settings[i].in_flight + 1 > slots) slots = b.settings[i].in_flight + 1;
    state_flat(&b.state, measure_number(argc, argv, "bytes", (uint64_t)512 << 20));
    state_allocate(&b.state, 1);
    snprintf(b.core_path, sizeof b.core_path, "%s/pccheck.chk", b.folder);
    b.raw = raw_open(b.folder, b.state.bytes, true);
    pccheck_prepare(b.core_path, b.state.bytes, slots);
    for (uint32_t round = 0; round < b.rounds; round++)
        for (uint32_t i = 0; i < b.setting_count; i++)
            for (uint32_t k = 0; k < SIDES; k++)
                measure(&b, &b.settings[i], (enum side)((k + round) % SIDES));
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_u64(&j, "bytes", b.state.bytes);
    json_array(&j, "settings");
    for (uint32_t i = 0; i < b.setting_count; i++) print_setting(&j, &b.settings[i]);
    json_end_array(&j);
    json_end_object(&j);
    measure_print(&text);
    raw_close(b.raw);
    state_close(&b.state);
    return 0;
}
