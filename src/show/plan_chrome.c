/* A plan as trace events, the JSON that ui.perfetto.dev and chrome://tracing open.
 *
 * A process per pipeline, a thread per stage; copies to and from the host run beside the computation and get
 * a thread of their own. Arrows are messages between workers; in large plans only those that leave their
 * pipeline, which are the ones that re-routing made. Trace time is microseconds: a unit that names a
 * duration (s, ms, us, ns) is converted, any other counts as a millisecond, and `otherData` says which. Fails
 * only when writing does. Tested in tests/unit/show_plan_chrome_test.c. */
#include <string.h>

#include "show/view.h"
#include "show/show.h"

#define ALL_ARROWS_MAX 50000u /* instructions: some 20 MB of trace */

struct trace {
    struct out *o;
    const struct view *v;
    uint64_t ticks_per_us; /* a power of ten */
    bool all_arrows;
};

static void set_unit(struct trace *t) {
    static const struct {
        const char *name;
        uint64_t ticks_per_us;
    } units[] = {{"s", SIM_TICKS / 1000000u},
                 {"us", SIM_TICKS},
                 {"\xc2\xb5s", SIM_TICKS},
                 {"ns", SIM_TICKS * (uint64_t)1000}};
    const char *unit = t->v->plan->summary.unit != NULL ? t->v->plan->summary.unit : "";
    t->ticks_per_us = SIM_TICKS / 1000;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(units[i].name, unit) == 0) t->ticks_per_us = units[i].ticks_per_us;
}

static void put_us(struct trace *t, uint64_t ticks) {
    out_u64(t->o, ticks / t->ticks_per_us);
    uint64_t rest = ticks % t->ticks_per_us;
    if (rest > 0) out_char(t->o, '.');
    for (uint64_t place = t->ticks_per_us / 10; rest > 0; place /= 10) {
        out_char(t->o, (char)('0' + rest / place));
        rest %= place;
    }
}

static void put_name(struct trace *t, const char *kind, uint32_t pid, uint32_t tid, const char *name) {
    out_printf(t->o, ",\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
               kind, pid, tid, name);
}

static void put_names(struct trace *t) {
    const struct view *v = t->v;
    char name[64];
    for (uint32_t p = 0; p < v->ir->pipelines; p++) {
        snprintf(name, sizeof name, "pipeline %u", p);
        put_name(t, "process_name", p, 0, name);
        for (uint32_t s = 0; s < v->ir->stages; s++) {
            bool alive = v->ir->workers[p * v->ir->stages + s].alive;
            snprintf(name, sizeof name, "stage %u%s", s, alive ? "" : " (dead)");
            put_name(t, "thread_name", p, s, name);
            if (v->offloaded == 0) continue;
            snprintf(name, sizeof name, "stage %u copies", s);
            put_name(t, "thread_name", p, v->ir->stages + s, name);
        }
    }
}

static uint32_t thread_of(const struct view *v, uint32_t w, const struct ir_instruction *in) {
    return view_stage(v, w) + (in->op == IR_O || in->op == IR_L ? v->ir->stages : 0);
}

static void put_slice(struct trace *t, uint32_t w, uint32_t i) {
    const struct view *v = t->v;
    const struct ir_instruction *in = &v->ir->workers[w].instructions[i];
    uint64_t start = view_start(v, w, i), end = view_end(v, w, i);
    out_text(t->o, ",\n{\"ph\":\"X\",\"name\":\"");
    out_text(t->o, ir_op_name(in->op));
    if (in->home != IR_NONE) out_printf(t->o, " %u:%u", in->home, in->microbatch);
    out_text(t->o, "\",\"cat\":\"");
    out_text(t->o, view_op_words(in->op));
    if (view_is_guest(v, w, in)) out_text(t->o, ",guest");
    if (view_is_helper(v, w, in->chunk)) out_text(t->o, ",shared");
    out_printf(t->o, "\",\"pid\":%u,\"tid\":%u,\"ts\":", view_pipeline(v, w), thread_of(v, w, in));
    put_us(t, start);
    out_text(t->o, ",\"dur\":");
    put_us(t, end - start);
    out_printf(t->o, ",\"args\":{\"chunk\":%u", in->chunk);
    if (in->home != IR_NONE) out_printf(t->o, ",\"home\":%u,\"microbatch\":%u", in->home, in->microbatch);
    out_text(t->o, "}}");
}

/* `out`: the sending end. Both ends derive the same number from the chunk that sends. */
static void put_arrow(struct trace *t, uint32_t w, uint32_t i, bool out) {
    const struct view *v = t->v;
    const struct ir_instruction *in = &v->ir->workers[w].instructions[i];
    uint32_t peer = out ? in->to : in->from;
    if (peer == IR_NONE || peer == w) return;
    if (!t->all_arrows && view_pipeline(v, peer) == view_pipeline(v, w)) return;
    bool forward = in->op == IR_F;
    uint32_t chunk = out ? in->chunk : forward ? in->chunk - 1 : in->chunk + 1;
    uint64_t id = ((uint64_t)in->home * v->ir->chunks + chunk) * v->ir->microbatches + in->microbatch;
    out_printf(t->o, ",\n{\"ph\":\"%s\",\"name\":\"%s\",\"cat\":\"message\",\"id\":", out ? "s" : "f",
               forward ? "activation" : "gradient");
    out_u64(t->o, id * 2 + !forward);
    out_printf(t->o, "%s,\"pid\":%u,\"tid\":%u,\"ts\":", out ? "" : ",\"bp\":\"e\"", view_pipeline(v, w),
               view_stage(v, w));
    put_us(t, out ? view_end(v, w, i) : view_start(v, w, i));
    out_char(t->o, '}');
}

static void put_head(struct trace *t) {
    const struct pawl_plan *plan = t->v->plan;
    out_text(t->o, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"policy\":");
    out_json(t->o, pawl_policy_name(plan->summary.policy));
    out_text(t->o, ",\"unit\":");
    out_json(t->o, plan->summary.unit != NULL ? plan->summary.unit : "");
    out_text(t->o, ",\"us_per_unit\":");
    out_f64(t->o, (double)SIM_TICKS / (double)t->ticks_per_us);
    out_text(t->o, ",\"period\":");
    out_time(t->o, plan->times.period);
    out_text(t->o, ",\"lower_bound\":");
    out_f64(t->o, plan->summary.lower_bound);
    out_text(t->o, "},\n\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"trace_name\",\"pid\":0,\"tid\":0,"
                   "\"args\":{\"name\":\"pawl plan\"}}");
}

pawl_code show_plan_chrome(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct view v;
    struct out o;
    pawl_code code = view_open(&v, plan, e);
    if (code != PAWL_OK) return code;
    struct trace t = {.o = &o, .v = &v, .all_arrows = v.instructions <= ALL_ARROWS_MAX};
    out_begin(&o, file);
    set_unit(&t);
    put_head(&t);
    put_names(&t);
    for (uint32_t w = 0; w < v.workers; w++) {
        for (uint32_t i = 0; i < plan->ir->workers[w].count; i++) {
            put_slice(&t, w, i);
            put_arrow(&t, w, i, false);
            put_arrow(&t, w, i, true);
        }
    }
    out_text(&o, "\n]}\n");
    view_close(&v);
    return out_end(&o, "plan as a trace", e);
}
