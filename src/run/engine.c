/* Implementation of run/engine.h. Every stage is handed out behind a face that can make it slow. */
#include "run/engine.h"

#include <stdlib.h>

#include <string.h>

#include "model/data.h"
#include "model/emulated.h"
#include "model/foreign.h"
#include "model/gpt.h"
#include "model/weights.h"
#include "run/describe.h"
#include "run/engine_slow.h"

struct engine {
    struct spec spec;
    struct data *data;            /* of a gpt */
    struct pawl_profile *profile; /* of an emulated device */
    struct emulated_device device;
    struct foreign *foreign; /* of the program's own */
    struct description described;
    double factor; /* by fault injection */
};

static const struct pawl_engine *registered;

void engine_register(const struct pawl_engine *engine) { registered = engine; }

pawl_code engine_foreign(const struct spec *s, struct foreign **out, struct pawl_error *e) {
    struct pawl_engine_job job = {.module = s->torch.module,
                                  .options = s->torch.options,
                                  .seed = s->run.seed,
                                  .stages = s->parallel.stages,
                                  .batch = s->parallel.batch,
                                  .contributions = spec_contributions(s),
                                  .threads = s->torch.threads};
    *out = NULL;
    if (s->run.engine != SPEC_ENGINE_TORCH)
        return error_set(e, PAWL_SPEC, 0, "run.engine is %s: this program's own is asked for with torch",
                         spec_engine_name(s->run.engine));
    if (registered == NULL)
        return error_set(e, PAWL_SPEC, 0,
                         "run.engine is torch, but this program has registered no engine: start the worker "
                         "with python -m pawl.worker, or with a program that calls pawl_engine_register");
    return foreign_open(registered, &job, out, e);
}

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

static pawl_code open_foreign(struct engine *g, struct pawl_error *e) {
    uint64_t samples = 0;
    pawl_code code = description_load(&g->spec, &g->described, e);
    if (code == PAWL_OK) code = engine_foreign(&g->spec, &g->foreign, e);
    if (code == PAWL_OK) code = foreign_samples(g->foreign, &samples, e);
    return code == PAWL_OK ? description_compare_samples(&g->described, samples, e) : code;
}

static pawl_code open_any(struct engine *g, uint32_t rank, struct pawl_error *e) {
    if (g->spec.run.engine == SPEC_ENGINE_GPT) return open_data(g, e);
    return g->spec.run.engine == SPEC_ENGINE_TORCH ? open_foreign(g, e) : open_device(g, rank, e);
}

pawl_code engine_open(const struct spec *spec, uint32_t rank, struct engine **out, struct pawl_error *e) {
    *out = NULL;
    struct engine *g = calloc(1, sizeof *g);
    if (g == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for what computes");
    g->spec = *spec;
    g->factor = 1;
    pawl_code code = open_any(g, rank, e);
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
    foreign_close(g->foreign);
    description_close(&g->described);
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

/* As it was described at the start, or the code has changed since. */
static pawl_code foreign_stage(struct engine *g, uint32_t chunk, struct stage **out, struct pawl_error *e) {
    struct stage *stage = NULL;
    pawl_code code = foreign_stage_open(g->foreign, chunk, &stage, e);
    if (code == PAWL_OK) code = description_compare_stage(&g->described, stage, e);
    if (code == PAWL_OK)
        *out = stage;
    else if (stage != NULL)
        stage->ops->close(stage);
    return code;
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
    } else if (s->run.engine == SPEC_ENGINE_TORCH) {
        code = foreign_stage(g, chunk, &stage, e);
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
    return stage->ops->init_params(stage, s->run.seed, out->params, e);
}

/* Stage after stage; the tensors move over. */
static pawl_code described_tensors(const struct spec *spec, struct stage_tensor **out, uint32_t *count,
                                   struct pawl_error *e) {
    struct description d;
    uint64_t all = 0;
    pawl_code code = description_load(spec, &d, e);
    if (code != PAWL_OK) return code;
    for (uint32_t s = 0; s < d.stage_count; s++) all += d.stages[s].tensor_count;
    struct stage_tensor *list = all <= UINT32_MAX ? calloc((size_t)all, sizeof *list) : NULL;
    *count = 0;
    if (list == NULL) code = error_set(e, PAWL_MEMORY, 0, "no memory for the list of tensors");
    for (uint32_t s = 0; list != NULL && s < d.stage_count; s++) {
        struct description_stage *from = &d.stages[s];
        memcpy(list + *count, from->tensors, from->tensor_count * sizeof *list);
        *count += from->tensor_count;
        free(from->tensors);
        from->tensors = NULL;
        from->tensor_count = 0;
    }
    description_close(&d);
    *out = list;
    return code;
}

pawl_code engine_tensors(const struct spec *spec, struct stage_tensor **out, uint32_t *count,
                         struct pawl_error *e) {
    if (spec->run.engine == SPEC_ENGINE_TORCH) return described_tensors(spec, out, count, e);
    if (spec->run.engine == SPEC_ENGINE_GPT) {
        struct gpt_config gpt = spec_gpt(spec);
        return weights_list(&gpt, out, count, e);
    }
    struct emulated_config config = emulated_of(spec);
    return emulated_list(&config, out, count, e);
}

void engine_tensors_free(struct stage_tensor *tensors, uint32_t count) { weights_list_free(tensors, count); }
