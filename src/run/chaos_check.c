/* What the run folder of a chaotic run says, against what was promised.
 *
 * The log is read as a user's tools would read it. A step that is told twice must have told the same, to the
 * bit of its loss and norm, as the undisturbed run; a step that was acknowledged as durable bounds from below
 * what any later start or return goes back to; a worker may end by SIGKILL or in peace, never by a crash, and
 * never because it was told something wrong: a plan that its own check refuses shows here. A line that a kill
 * tore is skipped. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/chaos.h"

void chaos_reference_close(struct chaos_reference *r) {
    free(r->steps);
    *r = (struct chaos_reference){.count = 0};
}

void chaos_problem(struct chaos_seen *seen, const char *format, ...) {
    if (seen->problem[0] != 0) return; /* the first one is the cause */
    va_list args;
    va_start(args, format);
    vsnprintf(seen->problem, sizeof seen->problem, format, args);
    va_end(args);
}

/* ---- one event ---- */

static bool number_of(const cJSON *event, const char *key, double *out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, key);
    if (!cJSON_IsNumber(item)) return false;
    *out = item->valuedouble;
    return true;
}

static const char *text_of(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

struct reading {
    struct chaos_seen *seen;
    const struct chaos_reference *reference; /* null: it is being made */
    struct chaos_reference *fill;
};

/* Equal as numbers, or both not numbers: a loss that is not finite is told as null. */
static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void see_step(struct reading *r, const cJSON *event) {
    double step, loss = NAN, norm = NAN;
    uint64_t count = r->reference != NULL ? r->reference->count : r->fill->count;
    if (!number_of(event, "step", &step) || step < 1 || step > (double)count) {
        chaos_problem(r->seen, "the log tells of a step that cannot be");
        return;
    }
    number_of(event, "loss", &loss);
    number_of(event, "grad_norm", &norm);
    size_t at = (size_t)step - 1;
    if (r->reference == NULL) {
        r->fill->steps[at] = (struct chaos_step){loss, norm, true};
        return;
    }
    const struct chaos_step *want = &r->reference->steps[at];
    if (want->known && (!same(want->loss, loss) || !same(want->norm, norm)))
        chaos_problem(r->seen, "step %zu: loss %.17g and norm %.17g, undisturbed %.17g and %.17g", at + 1,
                      loss, norm, want->loss, want->norm);
}

/* Everybody goes on from `step`, which no acknowledged step may be newer than. */
static void see_return(struct reading *r, const char *what, double step) {
    if (step < (double)r->seen->durable)
        chaos_problem(r->seen, "%s from step %.0f, though step %llu had been told to be durable", what, step,
                      (unsigned long long)r->seen->durable);
}

static void see_failed(struct reading *r, const cJSON *event) {
    static const char *const wrong[] = {"INTERNAL", "PLAN",     "DIVERGED", "FORMAT",
                                        "FOREIGN",  "ARGUMENT", "SPEC"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (strcmp(text_of(event, "code"), wrong[i]) == 0)
            chaos_problem(r->seen, "a worker failed with %s: %s", wrong[i], text_of(event, "error"));
}

static void see(struct reading *r, const cJSON *event) {
    const char *kind = text_of(event, "event");
    double value = 0;
    if (strcmp(kind, "step") == 0) {
        see_step(r, event);
    } else if (strcmp(kind, "durable") == 0) {
        if (number_of(event, "step", &value) && value > (double)r->seen->durable)
            r->seen->durable = (uint64_t)value;
    } else if (strcmp(kind, "start") == 0) {
        number_of(event, "resumed_from", &value); /* null: from the beginning */
        see_return(r, "the run was resumed", value);
    } else if (strcmp(kind, "restored") == 0) {
        if (number_of(event, "step", &value)) see_return(r, "a lost stage was restored", value);
        r->seen->restored++;
    } else if (strcmp(kind, "kill") == 0) {
        if (strstr(text_of(event, "why"), "malformed") != NULL)
            chaos_problem(r->seen, "a worker was not understood: %s", text_of(event, "why"));
    } else if (strcmp(kind, "walk_back") == 0) {
        chaos_problem(r->seen, "a durable step could not be restored");
    } else if (strcmp(kind, "worker_lost") == 0) {
        r->seen->lost++;
    } else if (strcmp(kind, "joined") == 0) {
        r->seen->joined++;
    } else if (strcmp(kind, "worker_failed") == 0) {
        see_failed(r, event);
    } else if (strcmp(kind, "worker_exit") == 0 || strcmp(kind, "worker_crashed") == 0) {
        if (!number_of(event, "signal", &value) || value == SIGKILL) return;
        if (value == SIGABRT)
            r->seen->aborts++; /* chaos_judge knows whose assertion it was */
        else
            chaos_problem(r->seen, "a worker crashed: %s", strsignal((int)value));
    }
}

/* ---- files ---- */

static FILE *open_in(const char *run_dir, const char *name, struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    FILE *f = fopen(path, "r");
    if (f == NULL) error_set(e, error_code_of_errno(errno), errno, "cannot read %s", path);
    return f;
}

pawl_code chaos_read_log(const char *run_dir, struct chaos_seen *seen,
                         const struct chaos_reference *reference, struct chaos_reference *fill,
                         struct pawl_error *e) {
    struct reading r = {seen, reference, fill};
    struct pawl_error why = {.code = PAWL_OK};
    FILE *f = open_in(run_dir, "log.jsonl", &why);
    if (f == NULL && why.code == PAWL_NOT_FOUND) return PAWL_OK; /* ended before it began */
    if (f == NULL) return error_set(e, why.code, 0, "%s", why.text);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    fseek(f, seen->log_at, SEEK_SET);
    while ((size = getline(&line, &capacity, f)) > 0) {
        if (line[size - 1] != '\n') break; /* torn: what is added comes behind it */
        cJSON *event = cJSON_ParseWithLength(line, (size_t)size);
        if (event != NULL) see(&r, event);
        cJSON_Delete(event);
        seen->log_at = ftell(f);
    }
    free(line);
    fclose(f);
    return PAWL_OK;
}

pawl_code chaos_read_report(const char *run_dir, uint64_t *final_step, char *weights, struct pawl_error *e) {
    struct pawl_error why = {.code = PAWL_OK};
    char text[16384];
    FILE *f = open_in(run_dir, "report.json", &why);
    if (f == NULL) return error_set(e, why.code, 0, "%s", why.text);
    size_t size = fread(text, 1, sizeof text, f);
    fclose(f);
    cJSON *report = cJSON_ParseWithLength(text, size);
    double step = -1;
    bool good =
        number_of(report, "final_step", &step) && step >= 0 && strlen(text_of(report, "weights_sha256")) < 65;
    if (good) {
        *final_step = (uint64_t)step;
        snprintf(weights, 65, "%s", text_of(report, "weights_sha256"));
    }
    cJSON_Delete(report);
    return good ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0, "%s/report.json holds no final_step and weights_sha256",
                            run_dir);
}
