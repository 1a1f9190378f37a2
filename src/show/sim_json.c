/* A simulation as JSON, for programs: every key is in docs/formats/sim-json.md.
 *
 * With every constant that was used and every sample, so that the pictures can be drawn anew elsewhere. Fails
 * only when writing does. Tested in tests/unit/show_sim_json_test.c. */
#include "show/show.h"
#include "show/out.h"

#define VERSION 1u

static void put_request(struct out *o, const struct pawl_sim_request *r) {
    out_text(o, "{\"pawl_sim\":");
    out_u64(o, VERSION);
    out_key_u64(o, "pipelines", r->pipelines);
    out_key_u64(o, "stages", r->stages);
    out_key_u64(o, "microbatches", r->microbatches);
    out_key_u64(o, "seed", r->seed);
    out_key_f64(o, "hours", r->hours);
    out_key_f64(o, "mtbf_s", r->mtbf_s);
    out_key_f64(o, "repair_s", r->repair_s);
    out_key_u64(o, "burst", r->burst);
    out_key_f64(o, "checkpoint_every_s", r->checkpoint_every_s);
    out_key_f64(o, "checkpoint_write_s", r->checkpoint_write_s);
    out_key_f64(o, "checkpoint_load_s", r->checkpoint_load_s);
}

static void put_constants(struct out *o, const struct fleet_constants *constants) {
    out_key(o, "constants");
    out_char(o, '[');
    for (uint32_t i = 0; i < constants->count; i++) {
        const struct fleet_constant *c = &constants->constant[i];
        out_text(o, i > 0 ? ",\n  {\"policy\":" : "\n  {\"policy\":");
        out_json(o, c->policy != NULL ? c->policy : "");
        out_key_text(o, "name", c->name);
        out_key_f64(o, "value", c->value);
        out_key_text(o, "unit", c->unit);
        out_key_text(o, "source", c->source);
        out_char(o, '}');
    }
    out_char(o, ']');
}

static void put_samples(struct out *o, const struct pawl_sim_sample *samples, uint32_t count) {
    out_key(o, "samples");
    out_char(o, '[');
    for (uint32_t i = 0; i < count; i++) {
        out_text(o, i > 0 ? ",[" : "[");
        out_f64(o, samples[i].at_s);
        out_char(o, ',');
        out_u64(o, samples[i].alive);
        out_char(o, ',');
        out_f64(o, samples[i].rate);
        out_char(o, ',');
        out_u64(o, samples[i].counted);
        out_char(o, ']');
    }
    out_char(o, ']');
}

static void put_figures(struct out *o, const struct pawl_sim_row *row) {
    out_key_f64(o, "seconds", row->seconds);
    out_key_f64(o, "goodput", row->goodput);
    out_key_f64(o, "relative", row->relative);
    out_key_f64(o, "throughput", row->throughput);
    out_key_f64(o, "availability", row->availability);
    out_key_f64(o, "ettr", row->ettr);
    out_key_f64(o, "lost_s", row->lost_s);
    out_key_f64(o, "stopped_s", row->stopped_s);
    out_key_f64(o, "saving_s", row->saving_s);
    out_key_f64(o, "idle_s", row->idle_s);
    out_key_u64(o, "failures", row->failures);
    out_key_u64(o, "joins", row->joins);
    out_key_u64(o, "stops", row->stops);
    out_key_u64(o, "rollbacks", row->rollbacks);
    out_key_f64(o, "worker_hours", row->worker_hours);
    out_key_f64(o, "cost", row->cost);
    out_key_text(o, "note", row->note);
}

static void put_rows(struct out *o, const struct pawl_sim *sim) {
    out_key(o, "rows");
    out_char(o, '[');
    for (uint32_t i = 0; i < sim->row_count; i++) {
        out_text(o, i > 0 ? ",\n  {\"scenario\":" : "\n  {\"scenario\":");
        out_json(o, sim->rows[i].scenario);
        out_key_text(o, "policy", sim->rows[i].policy);
        put_figures(o, &sim->rows[i]);
        put_samples(o, sim->samples[i], sim->sample_counts[i]);
        out_char(o, '}');
    }
    out_char(o, ']');
}

pawl_code show_sim_json(const struct pawl_sim *sim, FILE *file, struct pawl_error *e) {
    struct out o;
    out_begin(&o, file);
    put_request(&o, &sim->request);
    out_text(&o, "\n ");
    out_key_lines(&o, "warnings", sim->warnings);
    out_text(&o, "\n ");
    put_constants(&o, &sim->constants);
    out_text(&o, "\n ");
    put_rows(&o, sim);
    out_text(&o, "}\n");
    return out_end(&o, "simulation as JSON", e);
}
