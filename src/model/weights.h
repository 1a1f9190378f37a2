/* Weights in and out as safetensors under Hugging Face's GPT-2 names, so that a model trained here opens
 * with transformers and the reverse. Reads F32, F16 and BF16, one file or a sharded set with its
 * model.safetensors.index.json, names with or without "transformer."; writes F32, atomically
 * (temporary file, fsync, rename, fsync of the directory). */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "model/gpt.h"

/* Fill the parameters of one stage from `path` (a .safetensors file or a folder that holds one). Every
 * tensor of the stage must be there with its shape: NOT_FOUND / FORMAT name it otherwise. */
pawl_code weights_read(const char *path, const struct gpt_config *config, const struct stage *stage,
                       float *params, struct pawl_error *e);

/* Names, shapes and order of the whole model's tensors (canonical order: wte, wpe, h.0..., ln_f, lm_head
 * if untied). `tensors` is owned by the caller, freed by weights_list_free. */
pawl_code weights_list(const struct gpt_config *config, struct stage_tensor **tensors, uint32_t *count,
                       struct pawl_error *e);
void weights_list_free(struct stage_tensor *tensors, uint32_t count);

/* Write model.safetensors and config.json (transformers' GPT2LMHeadModel) into folder `path`, made if
 * missing. values[i] belongs to tensor i of weights_list. */
pawl_code weights_write(const char *path, const struct gpt_config *config, const float *const *values,
                        struct pawl_error *e);

#endif
