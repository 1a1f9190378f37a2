/* Resident memory over thousands of saves, for bench/ckpt_memory.py: a tensor list with odd sizes, saved from
 * version buffers or through a staging memory smaller than the state, the state changed after each.
 *
 *   bench_ckpt_memory --folder F --way pawl|staged --saves S [--bytes B] [--staging BYTES] [--in-flight N]
 *
 * Prints the resident memory after every tenth save and, for the staging memory, its budget and the most ever
 * used. */
#include <stdio.h>
#include <stdlib.h>

#include "kit/way.h"

#define SAMPLE_EVERY 10u

static void make_state(struct state *s, uint64_t bytes) {
    /* Sizes that divide nothing: primes, in turn, until the bytes are used up. */
    static const uint64_t counts[] = {1, 127, 4099, 65537, 13, 262147};
    char path[] = "/tmp/pawl-bench-state-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f == NULL) measure_stop(path, "cannot be made");
    fputs("{\"tensors\": [", f);
    uint64_t used = 0;
    for (uint32_t i = 0; used < bytes; i++) {
        uint64_t count = counts[i % (sizeof counts / sizeof counts[0])];
        fprintf(f, "%s{\"name\": \"t%u\", \"shape\": [%llu]}", i > 0 ? "," : "", i,
                (unsigned long long)count);
        used += count * 4;
    }
    fputs("]}", f);
    fclose(f);
    state_read(s, path);
    remove(path);
}

static void save_one(struct way *s, const struct state *state, uint32_t *version, uint32_t number) {
    bool in_place = s->options.kind == WAY_STAGED;
    if (in_place) way_fence(s);
    uint32_t into = in_place ? 0 : way_free_version(s, *version);
    uint8_t *bytes = state->versions[into];
    for (uint64_t at = 0; at < state->bytes; at += 4096) bytes[at] = (uint8_t)number;
    *version = into;
    way_save(s, into);
}

int main(int argc, char **argv) {
    static struct state state;
    static struct way way;
    const char *folder = measure_option(argc, argv, "folder"), *kind = measure_option(argc, argv, "way");
    if (folder == NULL || kind == NULL) measure_stop("arguments", "--folder and --way");
    struct way_options options = {.kind = way_kind_named(kind),
                                  .folder = folder,
                                  .in_flight = (uint32_t)measure_number(argc, argv, "in-flight", 3),
                                  .staging_bytes = measure_number(argc, argv, "staging", 0)};
    uint64_t saves = measure_number(argc, argv, "saves", 2000);
    make_state(&state, measure_number(argc, argv, "bytes", (uint64_t)16 << 20));
    state_allocate(&state, options.kind == WAY_STAGED ? 1 : options.in_flight + 2);
    uint64_t rss_before = measure_rss_bytes();
    way_open(&way, &options, &state);
    struct samples rss = {0};
    uint32_t version = 0;
    for (uint32_t i = 1; i <= saves; i++) {
        save_one(&way, &state, &version, i);
        if (i % SAMPLE_EVERY == 0) samples_add(&rss, (double)measure_rss_bytes());
    }
    way_drain(&way);
    uint64_t budget, used;
    way_staging(&way, &budget, &used);
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_u64(&j, "bytes", state.bytes);
    json_u64(&j, "tensors", state.count);
    json_u64(&j, "saves", saves);
    json_u64(&j, "sample_every", SAMPLE_EVERY);
    json_u64(&j, "rss_before_bytes", rss_before);
    json_u64(&j, "rss_peak_bytes", measure_rss_peak_bytes());
    json_u64(&j, "staging_bytes", budget);
    json_u64(&j, "staging_used_bytes", used);
    samples_print(&j, "rss_bytes", &rss);
    json_end_object(&j);
    measure_print(&text);
    samples_close(&rss);
    way_close(&way);
    state_close(&state);
    return 0;
}
