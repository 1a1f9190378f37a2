/* A plan in words: what was asked, what it costs, how good that is, what to look at.
 *
 * First a line per question that people ask of a plan, then a drawing of it when it fits the width of the
 * terminal (100 columns where there is none), else a line per stage, then the warnings. Fails only when
 * writing does, or MEMORY. Tested in tests/unit/show_plan_text_test.c and tests/golden/show_plan_test.c. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "show/plan_text.h"
#include "show/show.h"

#define COLUMNS_ELSE 100u
#define NAMED_MAX    12u /* workers, moves named in one line; the others are counted */

static void put_key(struct out *o, const char *key) {
    out_text(o, key);
    out_pad(o, ' ', 11 - strlen(key));
}

static void put_worker(struct out *o, const struct view *v, uint32_t worker) {
    out_u64(o, view_pipeline(v, worker));
    out_char(o, ':');
    out_u64(o, view_stage(v, worker));
}

static void put_more(struct out *o, uint64_t count) {
    if (count <= NAMED_MAX) return;
    out_text(o, " and ");
    out_u64(o, count - NAMED_MAX);
    out_text(o, " more");
}

static void put_title(struct out *o, const struct view *v) {
    out_text(o, pawl_policy_name(v->plan->summary.policy));
    out_text(o, ": ");
    out_count(o, v->ir->pipelines, "pipeline");
    out_text(o, " x ");
    out_count(o, v->ir->stages, "stage");
    out_text(o, " x ");
    out_count(o, v->ir->microbatches, "micro-batch");
    if (!view_is_full(v)) out_printf(o, " (%u in all)", v->ir->total);
    if (v->ir->chunks != v->ir->stages) out_printf(o, ", %u chunks of the model", v->ir->chunks);
    out_printf(o, ", %u of %u %s\n", v->workers - v->dead, v->workers, view_workers_live(v));
}

static void put_dead(struct out *o, const struct view *v) {
    uint32_t named = 0;
    if (v->dead == 0) return;
    put_key(o, "empty");
    for (uint32_t w = 0; w < v->workers && named < NAMED_MAX; w++) {
        if (v->ir->workers[w].alive) continue;
        if (named++ > 0) out_char(o, ' ');
        put_worker(o, v, w);
    }
    put_more(o, v->dead);
    out_text(o, "  (pipeline:stage)\n");
}

static void put_moves(struct out *o, const struct view *v) {
    uint64_t bytes = 0;
    if (v->plan->move_count == 0) return;
    put_key(o, "moves");
    for (uint32_t i = 0; i < v->plan->move_count; i++) {
        const struct plan_move *move = &v->plan->moves[i];
        bytes += view_state(v, move->to);
        if (i >= NAMED_MAX) continue;
        if (i > 0) out_text(o, ", ");
        put_worker(o, v, move->from);
        out_text(o, " becomes ");
        put_worker(o, v, move->to);
    }
    put_more(o, v->plan->move_count);
    if (bytes > 0) {
        out_text(o, "; copies ");
        out_bytes(o, (double)bytes);
    }
    out_char(o, '\n');
}

static void put_shared(struct out *o, const struct view *v) {
    uint64_t bytes = 0;
    if (v->plan->helper_count == 0) return;
    put_key(o, "shared");
    for (uint32_t i = 0; i < v->plan->helper_count; i++) {
        const struct plan_helper *helper = &v->plan->helpers[i];
        bytes += view_chunk_state(v, helper->chunk);
        if (i >= NAMED_MAX) continue;
        if (i > 0) out_text(o, ", ");
        put_worker(o, v, helper->worker);
        out_printf(o, " also holds %s %u", v->ir->chunks == v->ir->stages ? "stage" : "chunk", helper->chunk);
    }
    put_more(o, v->plan->helper_count);
    if (bytes > 0) {
        out_text(o, "; copies ");
        out_bytes(o, (double)bytes);
    }
    out_char(o, '\n');
}

static void put_period(struct out *o, const struct view *v) {
    const struct pawl_plan_summary *s = &v->plan->summary;
    char text[SHOW_TIME];
    put_key(o, "period");
    out_text(o, show_time(v->plan->times.period, text));
    if (s->unit != NULL && *s->unit != 0) {
        out_char(o, ' ');
        out_plain(o, s->unit);
    }
    out_text(o, v->plan->staggered ? ", steps staggered" : ", one step for all");
    if (v->plan->times.makespan != v->plan->times.period)
        out_printf(o, " (one iteration alone %s)", show_time(v->plan->times.makespan, text));
    out_text(o, "\n");
    put_key(o, "bound");
    out_printf(o, "%.10g", s->lower_bound);
    if (s->proven) {
        out_text(o, s->gap > 0 ? ", the plan is proven optimal" : ", reached: no plan is shorter");
    } else {
        out_text(o, ", the plan is at most ");
        out_percent(o, s->gap);
        out_text(o, " % longer than need be");
    }
    out_char(o, '\n');
}

static void put_fault_free(struct out *o, const struct view *v) {
    double base = v->plan->summary.fault_free, period = (double)v->plan->times.period / SIM_TICKS;
    if (!(base > 0)) return;
    put_key(o, "no failure");
    out_printf(o, "%.10g", base);
    if (v->dead == 0) {
        out_char(o, '\n');
        return;
    }
    if (period > base) {
        out_text(o, ": the failures cost ");
        out_percent(o, period / base - 1);
        out_text(o, " % of the time");
    } else {
        out_text(o, ": the failures cost nothing");
    }
    out_text(o, ", and ");
    out_percent(o, (double)v->dead / v->workers);
    out_text(o, " % of the workers are missing\n");
}

static void put_memory(struct out *o, const struct view *v) {
    const struct sim_result *times = &v->plan->times;
    uint32_t worst = 0;
    for (uint32_t w = 1; w < v->workers; w++)
        if (times->peak[w] > times->peak[worst]) worst = w;
    put_key(o, "memory");
    out_text(o, "at most ");
    out_memory(o, v, times->peak[worst]);
    out_text(o, " at ");
    put_worker(o, v, worst);
    if (v->plan->costs != NULL && v->plan->costs->limit != NULL) {
        out_text(o, ", where the limit is ");
        out_memory(o, v, v->plan->costs->limit[worst]);
    }
    if (v->recomputed > 0) out_printf(o, "; %llu recomputed", (unsigned long long)v->recomputed);
    if (v->offloaded > 0) out_printf(o, "; %llu offloaded", (unsigned long long)v->offloaded);
    out_char(o, '\n');
}

static void put_work(struct out *o, const struct view *v) {
    uint64_t busy = 0, live = v->workers - v->dead;
    for (uint32_t w = 0; w < v->workers; w++) busy += v->plan->times.busy[w];
    put_key(o, "work");
    out_printf(o, "%llu instructions", (unsigned long long)v->instructions);
    if (v->guests > 0) {
        out_text(o, ", ");
        out_count(o, v->guests, "micro-batch");
        out_text(o, v->guests == 1 ? " as guest" : " as guests");
    }
    if (v->helped > 0) out_printf(o, ", %llu for another stage", (unsigned long long)v->helped);
    if (live > 0 && v->plan->times.period > 0) {
        out_text(o, ", workers busy ");
        out_percent(o, (double)busy / (double)live / (double)v->plan->times.period);
        out_text(o, " % of the period");
    }
    out_char(o, '\n');
}

static void put_planning(struct out *o, const struct view *v) {
    const struct pawl_plan_summary *s = &v->plan->summary;
    put_key(o, "planned");
    out_text(o, "in ");
    out_milliseconds(o, s->planning_ms);
    out_printf(o, " by %s, of it ", s->engine != NULL ? s->engine : "list");
    out_milliseconds(o, s->check_ms);
    out_text(o, " checking\n");
    if (!s->exact) return;
    put_key(o, "solver");
    out_printf(o, "%.2f s, %s, bound %.10g\n", s->exact_s, s->proven ? "proven" : "not proven",
               s->exact_bound);
}

static void put_warnings(struct out *o, const char *text) {
    char line[OUT_LINE];
    while (out_next_line(&text, line)) {
        put_key(o, "warning");
        out_plain(o, line);
        out_char(o, '\n');
    }
}

static uint32_t columns_of(FILE *file) {
    struct winsize size = {0};
    int descriptor = fileno(file);
    if (descriptor < 0 || isatty(descriptor) != 1) return COLUMNS_ELSE;
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return COLUMNS_ELSE;
    return size.ws_col;
}

pawl_code show_plan_text(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct view v;
    struct out o;
    pawl_code code = view_open(&v, plan, e);
    if (code != PAWL_OK) return code;
    out_begin(&o, file);
    put_title(&o, &v);
    put_dead(&o, &v);
    put_moves(&o, &v);
    put_shared(&o, &v);
    put_period(&o, &v);
    put_fault_free(&o, &v);
    put_memory(&o, &v);
    put_work(&o, &v);
    put_planning(&o, &v);
    put_warnings(&o, plan->warnings);
    out_char(&o, '\n');
    if (!show_timeline_put(&o, &v, columns_of(file), e, &code) && code == PAWL_OK) show_table_put(&o, &v);
    view_close(&v);
    return code == PAWL_OK ? out_end(&o, "plan as text", e) : code;
}
