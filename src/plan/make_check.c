/* Is the request possible at all? Every refusal is one line that names the field and what it is. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

static_assert(PAWL_PIPELINES_MAX == IR_PIPELINES_MAX && PAWL_STAGES_MAX == IR_STAGES_MAX &&
                  PAWL_MICROBATCHES_MAX == IR_MICROBATCHES_MAX && PAWL_WORKERS_MAX == IR_WORKERS_MAX &&
                  PAWL_CHUNKS_MAX == PLAN_CHUNKS_MAX,
              "what is told to callers is what is checked");

/* Micro-batches times workers: some 13 million instructions and a gigabyte of memory. */
#define CELLS_MAX ((uint64_t)1 << 22)

void make_warn(struct make *m, const char *format, ...) {
    if (m->warnings.size > PLAN_WARNINGS_MAX) return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    bytes_printf(&m->warnings, "%s\n", line);
}

static pawl_code refuse(struct make *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static pawl_code refuse(struct make *m, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(m->e, PAWL_ARGUMENT, 0, "%s", text);
}

static pawl_code check_size(struct make *m, const char *name, uint32_t value, uint32_t most) {
    if (value >= 1 && value <= most) return PAWL_OK;
    return refuse(m, "%s: %u: give 1 to %u", name, value, most);
}

static pawl_code check_sizes(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    pawl_code code = check_size(m, "pipelines", r->pipelines, IR_PIPELINES_MAX);
    if (code == PAWL_OK) code = check_size(m, "stages", r->stages, IR_STAGES_MAX);
    if (code == PAWL_OK) code = check_size(m, "microbatches", r->microbatches, IR_MICROBATCHES_MAX);
    if (code != PAWL_OK) return code;
    uint64_t workers = (uint64_t)r->pipelines * r->stages;
    if (workers > IR_WORKERS_MAX)
        return refuse(m, "%u pipelines of %u stages are %llu workers: at most %u can be planned",
                      r->pipelines, r->stages, (unsigned long long)workers, IR_WORKERS_MAX);
    if (r->policy == PAWL_POLICY_INTERLEAVED && r->chunks_per_stage > PLAN_CHUNKS_MAX)
        return refuse(m, "chunks_per_stage: %u: give 1 to %u", r->chunks_per_stage, PLAN_CHUNKS_MAX);
    uint32_t chunks = plan_chunks_per_stage(r);
    if ((uint64_t)chunks * r->stages > IR_CHUNKS_MAX)
        return refuse(m, "%u chunks in each of %u stages: at most %u can be planned", chunks, r->stages,
                      IR_CHUNKS_MAX);
    if (workers * chunks * r->microbatches > CELLS_MAX)
        return refuse(m,
                      "%llu workers of %u micro-batches are too many: at most %llu together can be planned",
                      (unsigned long long)workers * chunks, r->microbatches, (unsigned long long)CELLS_MAX);
    uint64_t all = (uint64_t)r->pipelines * r->microbatches;
    if (r->total_microbatches > all)
        return refuse(m, "total_microbatches: %u: %u pipelines of %u micro-batches have %llu at most",
                      r->total_microbatches, r->pipelines, r->microbatches, (unsigned long long)all);
    m->batch = (struct plan_batch){r->microbatches, r->total_microbatches < all ? r->total_microbatches : 0};
    m->worker_count = (uint32_t)workers;
    return PAWL_OK;
}

static pawl_code check_number(struct make *m, const char *name, double value, double low, double high) {
    if (value >= low && value <= high) return PAWL_OK; /* false for NaN */
    return refuse(m, "%s: %g: give a number from %g to %g", name, value, low, high);
}

/* Less than one micro-batch is a slip, whatever the profile; too few bytes for one are found with the costs.
 */
static pawl_code check_limit(struct make *m, const char *name, double limit) {
    pawl_code code = check_number(m, name, limit, 0, 0x1p53);
    if (code != PAWL_OK || limit == 0 || limit >= 1) return code;
    if (m->request->memory_in_bytes) return refuse(m, "%s: %g of a byte: give whole ones", name, limit);
    return refuse(m, "%s: %g of a micro-batch: a worker must have room for at least 1", name, limit);
}

static pawl_code check_memory(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    bool any = r->memory != 0;
    pawl_code code = check_limit(m, "memory", r->memory);
    for (uint32_t w = 0; code == PAWL_OK && r->worker_memory != NULL && w < m->worker_count; w++) {
        char name[48];
        snprintf(name, sizeof name, "memory of worker %u:%u", w / r->stages, w % r->stages);
        code = check_limit(m, name, r->worker_memory[w]);
        any |= r->worker_memory[w] != 0;
    }
    if (code == PAWL_OK && any && r->memory_in_bytes && !plan_costs_in_bytes(r))
        return refuse(m, "memory in bytes needs a profile that gives activation_bytes of every stage: give "
                         "it, or memory in micro-batches");
    return code;
}

static bool known_engine(const char *name) {
    return name == NULL || strcmp(name, "z3") == 0 || strcmp(name, "cbc") == 0;
}

static pawl_code check_search(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    pawl_code code = check_number(m, "min_gain", r->min_gain, 0, 1);
    if (code == PAWL_OK) code = check_number(m, "search_s", r->search_s, -1e6, 1e6);
    if (code == PAWL_OK) code = check_number(m, "time_limit_s", r->time_limit_s, 0, 1e6);
    if (code != PAWL_OK) return code;
    if (!known_engine(r->engine)) return refuse(m, "engine: \"%.40s\": there are z3 and cbc", r->engine);
    if (r->exact && !plan_is_listed(r->policy))
        return refuse(m, "exact: policy %s has an order of its own: use adaptive, decoupled, recycle or pawl",
                      pawl_policy_name(r->policy));
    m->min_gain = r->min_gain == 0 ? PLAN_MIN_GAIN : r->min_gain;
    m->help_gain = r->min_gain == 0 ? PLAN_HELP_GAIN : r->min_gain;
    return PAWL_OK;
}

/* Every dead worker is one of the plan, once; no stage has lost all of them: who should have its state? */
static pawl_code check_dead(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    uint32_t *lost = calloc(r->stages, sizeof *lost);
    m->dead = calloc(m->worker_count, sizeof *m->dead);
    if (lost == NULL || m->dead == NULL) {
        free(lost);
        return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    }
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; code == PAWL_OK && i < r->dead_count; i++) {
        uint32_t p = r->dead[i].pipeline, s = r->dead[i].stage;
        if (p >= r->pipelines || s >= r->stages) {
            code = refuse(m, "dead: there is no worker %u:%u among %u pipelines of %u stages, both from 0", p,
                          s, r->pipelines, r->stages);
        } else if (m->dead[p * r->stages + s]) {
            code = refuse(m, "dead: worker %u:%u is named twice", p, s);
        } else {
            m->dead[p * r->stages + s] = true;
            if (++lost[s] == r->pipelines)
                code = error_set(m->e, PAWL_STAGE_LOST, 0,
                                 "stage %u has no live worker: all %u are dead, nobody holds its weights", s,
                                 r->pipelines);
        }
    }
    free(lost);
    return code;
}

static pawl_code check_failures(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    uint64_t dead = (uint64_t)r->dead_count + r->failures;
    uint64_t most = (uint64_t)r->stages * (r->pipelines - 1);
    if (dead <= most) return PAWL_OK;
    return error_set(m->e, PAWL_STAGE_LOST, 0,
                     "%llu failures are more than the %llu that leave every one of %u stages a live worker",
                     (unsigned long long)dead, (unsigned long long)most, r->stages);
}

pawl_code make_check(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    if ((unsigned)r->policy >= PAWL_POLICY_COUNT)
        return refuse(m, "policy: %d: there is none", (int)r->policy);
    pawl_code code = check_sizes(m);
    if (code == PAWL_OK && r->profile != NULL) code = pawl_profile_check(r->profile, m->e);
    if (code == PAWL_OK) code = check_memory(m);
    if (code == PAWL_OK) code = check_search(m);
    if (code == PAWL_OK) code = check_dead(m);
    if (code == PAWL_OK) code = check_failures(m);
    return code;
}
