/* What the parts of the GPT share: its tensors, the memory of a micro-batch, scratch memory.
 *
 * Names used throughout: R rows = batch * context, C width, H heads, S head size, T context, V vocabulary.
 * A layer computes, row-major,
 *
 *   a1 = norm1(x)  qkv = a1 Wqkv + b  y = attention(qkv)  x1 = x + drop(y Wo + b)
 *   a2 = norm2(x1)   h = a2 Wfc + b   g = gelu(h)         x' = x1 + drop(g Wp + b)
 *
 * The input-gradient pass overwrites what only it needs with what the weight gradient needs: qkv becomes
 * dqkv, h becomes dh, and with dropout dx' and dx1 become their masked forms. */
#ifndef MODEL_GPT_PRIVATE_H
#define MODEL_GPT_PRIVATE_H

#include "model/gpt.h"
#include "model/kernels.h"

enum gpt_layer_tensor {
    GPT_NORM1_GAMMA,
    GPT_NORM1_BETA,
    GPT_QKV,
    GPT_QKV_BIAS,
    GPT_OUT,
    GPT_OUT_BIAS,
    GPT_NORM2_GAMMA,
    GPT_NORM2_BETA,
    GPT_FC,
    GPT_FC_BIAS,
    GPT_PROJ,
    GPT_PROJ_BIAS,
    GPT_LAYER_TENSORS
};

/* Which tensors a list holds: those of some layers, and those of either end. */
struct gpt_part {
    uint32_t first_layer, layer_count;
    bool has_embedding;
    bool has_head;    /* the final norm */
    bool head_weight; /* the head's matrix too: untied, or the copy of a tied one */
};

struct gpt_part gpt_part_of(const struct gpt_config *config, uint32_t index, uint32_t stage_count);

/* Indices of a part's tensors that are not a layer's; those of layer l follow layer_base + 12 l. */
struct gpt_places {
    uint32_t token_embedding, position_embedding, layer_base, final_gamma, final_beta, head;
};

/* Tensors in canonical order, offsets one after the other; `places` may be null. Errors: MEMORY. */
pawl_code gpt_tensors_make(const struct gpt_config *config, const struct gpt_part *part,
                           struct stage_tensor **tensors, uint32_t *count, struct gpt_places *places,
                           struct pawl_error *e);
void gpt_tensors_free(struct stage_tensor *tensors, uint32_t count);

/* Deviation of the initial weights; negative: the tensor starts as all ones (norms), 0: as zeros. */
float gpt_init_deviation(const struct gpt_config *config, const struct stage_tensor *tensor);

struct gpt_layer_memory {
    float *a1, *qkv, *y, *x1, *a2, *h, *g; /* R x C, 3C, C, C, C, 4C, 4C */
    float *lse;                            /* [batch][H][T]: log of each softmax row's sum */
    float *mean1, *rstd1, *mean2, *rstd2;  /* R */
    float *dx1, *da1, *da2;                /* R x C, made by the input gradient */
};

struct gpt_slot {
    struct stage_slot base; /* first: the executor's view */
    struct gpt_slot *next_free, *next;
    void *region;
    size_t bytes;
    int32_t *tokens, *targets; /* R */
    float **x, **dx;           /* [layers + 1] values and gradients between layers, R x C each */
    struct gpt_layer_memory *layers;
    float *final, *mean, *rstd; /* the final norm's output R x C and statistics */
    float *dlogits;             /* R x V: made by the forward pass together with the loss */
    float *dfinal;              /* R x C */
};

struct gpt_scratch {
    void *region;
    size_t bytes;
    float *wide;                       /* R x 4C */
    float *narrow[2];                  /* R x C */
    float *gradient;                   /* GPT_SLAB_FLOATS, or one row of the longest kind */
    float *scores, *dscores, *dropped; /* GPT_QUERY_ROWS x padded T */
    float *dqkv;                       /* T x 3S */
    float *delta;                      /* GPT_QUERY_ROWS */
    int32_t *token_first, *row_next;   /* V and R: lists of the rows of each token */
};

struct gpt {
    struct stage stage; /* first */
    struct gpt_config config;
    struct gpt_part part;
    struct gpt_places places;
    uint64_t rows;
    const struct kernels *k;
    const struct data *data;
    struct gpt_slot *slots, *free_slots;
    struct gpt_scratch scratch;
};

/* Query rows of attention done at once: what fits in the second cache together with their scores. */
#define GPT_QUERY_ROWS 64u

/* Weight gradients are made and added in slabs of about this many floats, so that a slab is still in cache
 * when it is added to the sums. */
#define GPT_SLAB_FLOATS ((uint64_t)1 << 20)

static inline struct gpt *gpt_of(struct stage *stage) { return (struct gpt *)stage; }

static inline const float *gpt_param(const struct gpt *m, const struct version *v, uint32_t tensor) {
    return v->params + m->stage.tensors[tensor].offset;
}

/* Index of tensor `which` of this stage's layer `l`. */
static inline uint32_t gpt_layer_index(const struct gpt *m, uint32_t l, enum gpt_layer_tensor which) {
    return m->places.layer_base + l * GPT_LAYER_TENSORS + (uint32_t)which;
}

static inline const float *gpt_layer_param(const struct gpt *m, const struct version *v, uint32_t l,
                                           enum gpt_layer_tensor which) {
    return gpt_param(m, v, gpt_layer_index(m, l, which));
}

/* The matrix of the head: its own, the copy, or with one stage the token embedding itself. */
static inline uint32_t gpt_head_index(const struct gpt *m) {
    return m->part.head_weight ? m->places.head : m->places.token_embedding;
}

/* Floats of a score row with its padding. */
static inline uint64_t gpt_score_stride(const struct gpt_config *c) {
    return ((uint64_t)c->context + KERNELS_STRIDE - 1) / KERNELS_STRIDE * KERNELS_STRIDE;
}

/* --- memory (gpt_memory.c) --- */
pawl_code gpt_scratch_open(struct gpt *m, struct pawl_error *e);
void gpt_scratch_close(struct gpt *m);
pawl_code gpt_slot_new(struct gpt *m, struct gpt_slot **out, struct pawl_error *e);
void gpt_slot_free(struct gpt_slot *slot);

/* --- dropout (gpt_dropout.c) --- */
enum gpt_drop { GPT_DROP_EMBEDDING, GPT_DROP_ATTENTION, GPT_DROP_OUT, GPT_DROP_PROJ };
/* Key of one mask: the same for any cut and any worker. `layer` counts within this stage. */
uint64_t gpt_drop_key(const struct gpt *m, const struct gpt_slot *slot, uint32_t layer, enum gpt_drop which);
/* x, R x C, is masked and scaled; nothing is done when the model has no dropout. */
void gpt_drop_rows(const struct gpt *m, const struct gpt_slot *slot, uint32_t layer, enum gpt_drop which,
                   float *x);

/* --- attention (gpt_attention.c), over one layer of a slot --- */
void gpt_attention_forward(struct gpt *m, struct gpt_slot *slot, uint32_t layer);
/* qkv becomes dqkv; dy is the gradient of y. */
void gpt_attention_grad(struct gpt *m, struct gpt_slot *slot, uint32_t layer, const float *dy);

/* --- the three passes --- */
/* None fails. */
pawl_code gpt_forward(struct stage *stage, const struct version *v, struct stage_slot *slot,
                      struct pawl_error *e);
pawl_code gpt_input_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e);
pawl_code gpt_weight_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                          int64_t *sums, int32_t exponent_shift, struct pawl_error *e);

#endif
