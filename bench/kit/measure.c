/* See measure.h. Figures come from /proc and getrusage; nothing here estimates. */
#include "kit/measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"

_Noreturn void measure_stop(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

double measure_seconds(void) { return (double)clock_now_ns() * 1e-9; }

double measure_cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* A line "VmHWM:    1234 kB" of /proc/self/status. */
static uint64_t status_bytes(const char *field) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (f == NULL) measure_stop("/proc/self/status", strerror(errno));
    size_t length = strlen(field);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, field, length) == 0) sscanf(line + length, ": %llu", &kib);
    fclose(f);
    return (uint64_t)kib << 10;
}

uint64_t measure_rss_bytes(void) { return status_bytes("VmRSS"); }
uint64_t measure_rss_peak_bytes(void) { return status_bytes("VmHWM"); }

void measure_rss_peak_reset(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f == NULL) return;
    fputs("5", f);
    fclose(f);
}

void measure_fill(void *data, size_t bytes, uint64_t seed) {
    uint8_t *p = data;
    uint64_t x = seed * 2 + 1;
    for (size_t i = 0; i < bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(p + i, &x, bytes - i < 8 ? bytes - i : 8);
    }
}

void samples_add(struct samples *s, double value) {
    if (s->count == s->room) {
        s->room = s->room == 0 ? 256 : s->room * 2;
        s->values = realloc(s->values, s->room * sizeof *s->values);
        if (s->values == NULL) measure_stop("samples", "no memory");
    }
    s->values[s->count++] = value;
}

void samples_print(struct json *j, const char *key, const struct samples *s) {
    json_array(j, key);
    for (uint32_t i = 0; i < s->count; i++) json_f64(j, NULL, s->values[i]);
    json_end_array(j);
}

void samples_close(struct samples *s) {
    free(s->values);
    *s = (struct samples){0};
}

void measure_print(struct bytes *text) {
    bytes_put_u8(text, 0);
    if (text->failed) measure_stop("result", "no memory");
    puts((const char *)text->data);
    fflush(stdout);
    bytes_close(text);
}

const char *measure_option(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, name) != 0) continue;
        if (i + 1 == argc) measure_stop(argv[i], "wants a value");
        return argv[i + 1];
    }
    return NULL;
}

uint64_t measure_number(int argc, char **argv, const char *name, uint64_t otherwise) {
    const char *text = measure_option(argc, argv, name);
    if (text == NULL) return otherwise;
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || *text == '-') measure_stop(name, "wants a whole number");
    return value;
}
