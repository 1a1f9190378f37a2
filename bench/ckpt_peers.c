/* pawl's side of bench/ckpt_peers.py: holds a state, saves it when told to, says what each save took.
 *
 *   bench_ckpt_peers --folder F --state LIST.json --way pawl|staged|checkfreq|sync [--staging BYTES]
 * [--unchecked 1]
 *
 * One line "save" on stdin is one save, answered by one line of JSON: {"durable_s", "blocked_s", "call_s",
 * "cpu_s", "extra_bytes"}. blocked_s is what a caller waits who does nothing between saving and wanting to
 * change the state in place; for immutable versions it is the call alone, since the next version goes into
 * another buffer. extra_bytes is the peak of the resident memory above what the program held before there was
 * a way: the state. The end of stdin ends it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kit/way.h"

struct peer {
    struct state state;
    struct way way;
    uint64_t rss_before;
};

static void save_once(struct peer *p) {
    measure_rss_peak_reset();
    double cpu = measure_cpu_s(), began = measure_seconds();
    way_save(&p->way, 0);
    double called = measure_seconds();
    if (p->way.options.kind != WAY_PAWL) way_fence(&p->way);
    double free_again = measure_seconds();
    way_drain(&p->way);
    double durable = measure_seconds();
    uint64_t peak = measure_rss_peak_bytes(), budget, used;
    way_staging(&p->way, &budget, &used);
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_f64(&j, "durable_s", durable - began);
    json_f64(&j, "blocked_s", free_again - began);
    json_f64(&j, "call_s", called - began);
    json_f64(&j, "cpu_s", measure_cpu_s() - cpu);
    json_u64(&j, "extra_bytes", peak > p->rss_before ? peak - p->rss_before : 0);
    json_u64(&j, "staging_bytes", budget);
    json_u64(&j, "staging_used_bytes", used);
    json_end_object(&j);
    measure_print(&text);
}

int main(int argc, char **argv) {
    static struct peer p;
    const char *folder = measure_option(argc, argv, "folder"), *list = measure_option(argc, argv, "state");
    const char *kind = measure_option(argc, argv, "way");
    if (folder == NULL || list == NULL || kind == NULL) measure_stop("arguments", "--folder --state --way");
    struct way_options options = {.kind = way_kind_named(kind),
                                  .folder = folder,
                                  .in_flight = 1,
                                  .staging_bytes = measure_number(argc, argv, "staging", 0),
                                  .unchecked = measure_number(argc, argv, "unchecked", 0) != 0};
    state_read(&p.state, list);
    state_allocate(&p.state, 1);
    p.rss_before = measure_rss_bytes();
    way_open(&p.way, &options, &p.state);
    printf("{\"ready\": true, \"bytes\": %llu}\n", (unsigned long long)p.state.bytes);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "save\n") != 0) measure_stop("stdin", "wanted a line: save");
        save_once(&p);
    }
    way_close(&p.way);
    state_close(&p.state);
    return 0;
}
