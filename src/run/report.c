/* Implementation of run/report.h. A report replaces the former one whole or not at all: it is written beside
 * it, flushed and renamed. Tested in tests/unit/run_report_test.c. */
#include "run/report.h"

#include "base/file.h"
#include "base/json.h"

static void put_u64(struct json *j, const char *key, uint64_t value) {
    if (value <= INT64_MAX)
        json_i64(j, key, (int64_t)value);
    else
        json_f64(j, key, (double)value);
}

void report_json(const struct pawl_train_report *r, struct bytes *out) {
    struct json j = json_begin(out);
    json_object(&j, NULL);
    put_u64(&j, "first_step", r->first_step);
    put_u64(&j, "final_step", r->final_step);
    json_bool(&j, "resumed", r->resumed);
    if (r->resumed)
        put_u64(&j, "resumed_from", r->resumed_from);
    else
        json_null(&j, "resumed_from");
    json_text(&j, "weights_sha256", r->weights_sha256);
    json_f64(&j, "loss_first", r->loss_first);
    json_f64(&j, "loss_last", r->loss_last);
    json_f64(&j, "tokens_per_s", r->tokens_per_s);
    put_u64(&j, "tokens", r->tokens);
    put_u64(&j, "failures", r->failures);
    put_u64(&j, "joins", r->joins);
    put_u64(&j, "leaves", r->leaves);
    put_u64(&j, "iterations_redone", r->iterations_redone);
    put_u64(&j, "iterations_undone", r->iterations_undone);
    put_u64(&j, "steps_skipped", r->steps_skipped);
    put_u64(&j, "last_durable_step", r->last_durable_step);
    put_u64(&j, "saves", r->saves);
    put_u64(&j, "saves_skipped", r->saves_skipped);
    put_u64(&j, "saves_failed", r->saves_failed);
    put_u64(&j, "restores", r->restores);
    put_u64(&j, "lost_iterations", r->lost_iterations);
    json_f64(&j, "lost_seconds", r->lost_seconds);
    put_u64(&j, "contributions_kept", r->contributions_kept);
    put_u64(&j, "contributions_redone", r->contributions_redone);
    put_u64(&j, "coordinator_restarts", r->coordinator_restarts);
    put_u64(&j, "replans", r->replans);
    json_f64(&j, "seconds", r->seconds);
    json_end_object(&j);
    bytes_put_u8(out, '\n');
}

pawl_code report_write(const struct pawl_train_report *report, const char *path, struct pawl_error *e) {
    struct bytes text = {0};
    report_json(report, &text);
    pawl_code code = file_replace(path, &text, "report", e);
    bytes_close(&text);
    return code;
}
