/* Implementation of run/engine.h. Every stage is handed out behind a face that can make it slow. */
#include "run/engine.h"

#include <stdlib.h>

#include "model/data.h"
#include "model/emulated.h"
#include "model/gpt.h"
#include "model/weights.h"
#include "run/engine_slow.h"

struct engine {
    struct spec spec;
    struct data *data;            /* of a gpt */
    struct pawl_profile *profile; /* of an emulated device */
    struct emulated_device device;
    double factor; /* by fault injection */
};

/* Of the worker that plays this role at the start; it keeps its speed whatever it computes later. */
static const struct pawl_worker_cost *worker_cost(const struct engine *g, uint32_t rank) {
    const struct pawl_profile *p = g->profile;
    for (uint32_t i = 0; i < p->worker_count; i++)
        if (p->worker[i].pipeline == rank / p->stages && p->worker[i].stage == rank % p->stages)
            return &p->worker[i];
    return NULL;
}

static pawl_code open_device(struct engine *g, uint32_t rank, struct pawl_error *e) {
    pawl_code code = pawl_profile_read(g->spec.emulated.profile, &g->profile, e);
    if (code != PAWL_OK) return code;
    if (g->profile->stages != g->spec.parallel.stages)
        return error_set(e, PAWL_SPEC, 0, "emulated.profile has %u stages, but parallel.stages is %u",
                         g->profile->stages, g->spec.parallel.stages);
    const struct pawl_worker_cost *own = worker_cost(g, rank);
    double unit_s = g->spec.emulated.unit_s > 0 ? g->spec.emulated.unit_s : g->profile->unit_s;
    g->device = (struct emulated_device){
        .ns_per_unit = unit_s * 1e9,
        .slow = own != NULL && own->slow > 0 ? own->slow : 1,
        .memory_bytes = own != NULL && own->memory_bytes > 0 ? own->memory_bytes : g->profile->memory_bytes,
        .microbatches_max = g->spec.parallel.memory,
    };
    return PAWL_OK;
}

static pawl_code open_data(struct engine *g, struct pawl_error *e) {
    const struct spec *s = &g->spec;
    return data_open(s->data.path, s->data.format, s->model.vocabulary, s->model.context, s->run.seed,
                     &g->data, e);
}

pawl_code engine_open(const struct spec *spec, uint32_t rank, struct engine **out, struct pawl_error *e) {
    *out = NULL;
    struct engine *g = calloc(1, sizeof *g);
    if (g == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for what computes");
    g->spec = *spec;
    g->factor = 1;
    pawl_code code = spec->run.engine == SPEC_ENGINE_GPT ? open_data(g, e) : open_device(g, rank, e);
    if (code == PAWL_OK)
        *out = g;
    else
        engine_close(g);
    return code;
}

void engine_close(struct engine *g) {
    if (g == NULL) return;
    data_close(g->data);
    pawl_profile_free(g->profile);
    free(g);
}

void engine_slow(struct engine *g, double factor) { g->factor = factor; }

static struct emulated_config emulated_of(const struct spec *s) {
    return (struct emulated_config){.seed = s->run.seed,
                                    .stage_count = s->parallel.stages,
                                    .parameters = s->emulated.parameters,
                                    .contributions = spec_contributions(s)};
}

static struct emulated_cost cost_of(const struct pawl_stage_cost *c) {
    return (struct emulated_cost){
        .forward = c->forward,
        .input_grad = c->input_grad,
        .weight_grad = c->weight_grad,
        .reduce = c->reduce,
        .step = c->step,
        .send_forward = c->send_forward,
        .send_backward = c->send_backward,
        .state_bytes = c->state_bytes,
        .activation_bytes = c->activation_bytes,
        .weight_grad_bytes = c->weight_grad_bytes,
    };
}

pawl_code engine_stage(struct engine *g, uint32_t chunk, struct stage **out, struct pawl_error *e) {
    const struct spec *s = &g->spec;
    struct stage *stage = NULL;
    pawl_code code = PAWL_OK;
    *out = NULL;
    if (chunk >= s->parallel.stages)
        return error_set(e, PAWL_ARGUMENT, 0, "chunk %u of a model of %u", chunk, s->parallel.stages);
    if (s->run.engine == SPEC_ENGINE_GPT) {
        struct gpt_config gpt = spec_gpt(s);
        code = gpt_stage_open(&gpt, chunk, s->parallel.stages, g->data, spec_contributions(s), &stage, e);
    } else {
        struct emulated_config config = emulated_of(s);
        struct emulated_cost cost = cost_of(&g->profile->stage[chunk]);
        code = emulated_stage_open(&config, &cost, &g->device, chunk, &stage, e);
    }
    if (code != PAWL_OK) return code;
    stage->sums = s->optimizer.sums;
    return engine_slow_face(stage, &g->factor, out, e);
}

pawl_code engine_init(struct engine *g, struct stage *stage, struct version *out, struct pawl_error *e) {
    const struct spec *s = &g->spec;
    if (s->run.engine == SPEC_ENGINE_GPT && s->model.weights[0] != 0) {
        struct gpt_config gpt = spec_gpt(s);
        return weights_read(s->model.weights, &gpt, stage, out->params, e);
    }
    stage->ops->init_params(stage, s->run.seed, out->params);
    return PAWL_OK;
}

pawl_code engine_tensors(const struct spec *spec, struct stage_tensor **out, uint32_t *count,
                         struct pawl_error *e) {
    if (spec->run.engine == SPEC_ENGINE_GPT) {
        struct gpt_config gpt = spec_gpt(spec);
        return weights_list(&gpt, out, count, e);
    }
    struct emulated_config config = emulated_of(spec);
    return emulated_list(&config, out, count, e);
}

void engine_tensors_free(struct stage_tensor *tensors, uint32_t count) { weights_list_free(tensors, count); }
