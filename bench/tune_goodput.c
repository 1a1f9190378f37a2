/* What ways of saving are worth on recorded failures: PCcheck's goodput table by its own formula, and a
 * replay of the same trace, event by event, with what is really lost. Text tables and one JSON object, or
 * only that.
 *
 *   bench_tune_goodput [--json] [TRACE.csv] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tune/goodput.h"

#define TEXT_MAX ((size_t)4 << 20)

static const uint64_t intervals[] = {1, 5, 10, 25, 50, 100};
#define INTERVALS (sizeof intervals / sizeof intervals[0])

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "tune_goodput: %s: %s\n", what, why);
    exit(1);
}

static struct trace load(const char *path) {
    struct trace t;
    struct pawl_error e = {0};
    FILE *in = fopen(path, "rb");
    char *text = malloc(TEXT_MAX);
    if (in == NULL || text == NULL) stop(path, "cannot be read");
    size_t size = fread(text, 1, TEXT_MAX, in);
    fclose(in);
    if (trace_parse(text, size, &t, &e) != PAWL_OK) stop(path, e.text);
    free(text);
    return t;
}

static void formula_text(const struct trace *t) {
    printf("PCcheck's formula: every change counts as failures (%u), average losses; iterations/s\n\n",
           trace_changes(t));
    printf("| every | CheckFreq | GPM | PCcheck | Ideal |\n|---|---|---|---|---|\n");
    for (uint32_t at = 0; at < GOODPUT_INTERVALS; at++) {
        printf("| %u |", goodput_every[at]);
        for (int system = 0; system < GOODPUT_SYSTEMS; system++)
            printf(" %.3f |",
                   goodput_formula((enum goodput_system)system, at, trace_changes(t), trace_seconds(t)));
        printf("\n");
    }
}

static void formula_json(struct json *j, const struct trace *t) {
    json_object(j, "formula");
    for (int system = 0; system < GOODPUT_SYSTEMS; system++) {
        json_array(j, goodput_name((enum goodput_system)system));
        for (uint32_t at = 0; at < GOODPUT_INTERVALS; at++)
            json_f64(j, NULL,
                     goodput_formula((enum goodput_system)system, at, trace_changes(t), trace_seconds(t)));
        json_end_array(j);
    }
    json_end_object(j);
}

static struct replay_result replay(const struct trace *t, enum goodput_policy policy, uint64_t every) {
    struct goodput_job job = goodput_vgg16();
    struct replay_result r;
    struct pawl_error e = {0};
    if (goodput_replay(&job, policy, every, t, &r, &e) != PAWL_OK) stop("replay", e.text);
    return r;
}

/* The adaptive policy has no interval: one row. */
static size_t rows_of(enum goodput_policy policy) { return policy == POLICY_PAWL_ADAPTIVE ? 1 : INTERVALS; }

static void replay_text(const struct trace *t) {
    struct replay_result r = replay(t, POLICY_SYNC, 10);
    printf("\nReplay: %lu drops, real losses; iterations/s that counted, and seconds lost by a failure "
           "(mean, most)\n\n",
           (unsigned long)r.failures);
    printf("| policy | every | iterations/s | slow-down | lost, mean | lost, most "
           "|\n|---|---|---|---|---|---|\n");
    for (int policy = 0; policy < POLICIES; policy++)
        for (size_t i = 0; i < rows_of((enum goodput_policy)policy); i++) {
            char every[24] = "adapted";
            r = replay(t, (enum goodput_policy)policy, intervals[i]);
            if (rows_of((enum goodput_policy)policy) > 1)
                snprintf(every, sizeof every, "%lu", (unsigned long)intervals[i]);
            printf("| %s | %s | %.3f | %.3f | %.2f | %.2f |\n",
                   goodput_policy_name((enum goodput_policy)policy), every, r.goodput, r.slowdown,
                   r.failures > 0 ? r.lost_s / (double)r.failures : 0, r.lost_s_max);
        }
}

static void replay_json(struct json *j, const struct trace *t) {
    json_array(j, "replay");
    for (int policy = 0; policy < POLICIES; policy++)
        for (size_t i = 0; i < rows_of((enum goodput_policy)policy); i++) {
            struct replay_result r = replay(t, (enum goodput_policy)policy, intervals[i]);
            json_object(j, NULL);
            json_text(j, "policy", goodput_policy_name((enum goodput_policy)policy));
            json_u64(j, "every", rows_of((enum goodput_policy)policy) > 1 ? intervals[i] : 0);
            json_f64(j, "goodput", r.goodput);
            json_f64(j, "slowdown", r.slowdown);
            json_u64(j, "failures", r.failures);
            json_u64(j, "redone", r.redone);
            json_f64(j, "lost_s", r.lost_s);
            json_f64(j, "lost_s_max", r.lost_s_max);
            json_u64(j, "in_flight_max", r.in_flight_max);
            json_end_object(j);
        }
    json_end_array(j);
}

static void print_json(const struct trace *t, const char *path) {
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_text(&j, "trace", path);
    json_f64(&j, "seconds", trace_seconds(t));
    json_u64(&j, "changes", trace_changes(t));
    formula_json(&j, t);
    replay_json(&j, t);
    json_end_object(&j);
    bytes_put_u8(&text, 0);
    if (text.failed) stop("memory", "none");
    puts((const char *)text.data);
    bytes_close(&text);
}

int main(int argc, char **argv) {
    int at = 1;
    bool only_json = at < argc && strcmp(argv[at], "--json") == 0;
    if (only_json) at++;
    const char *path = at < argc ? argv[at] : "bench/traces/gpus_trace.csv";
    struct trace t = load(path);
    if (!only_json) {
        formula_text(&t);
        replay_text(&t);
        printf("\n");
    }
    print_json(&t, path);
    trace_free(&t);
    return 0;
}
