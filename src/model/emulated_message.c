/* Implementation of model/emulated_message.h. */
#include "model/emulated_message.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"

#define MAGIC 0x756d6570u /* "pemu" */

static_assert(sizeof(struct emulated_message) == EMULATED_MESSAGE_BYTES, "no padding");

static uint64_t check_of(const struct emulated_message *m) {
    return hash64(m, offsetof(struct emulated_message, check));
}

void emulated_message_write(const struct emulated_message *m, float *buffer) {
    struct emulated_message full = *m;
    full.magic = MAGIC;
    for (uint64_t i = 0; i < EMULATED_FILL_WORDS; i++) full.fill[i] = m->value * (2 * i + 3) ^ i;
    full.check = check_of(&full);
    memcpy(buffer, &full, sizeof full);
}

static const char *kind_name(uint32_t kind) {
    return kind == EMULATED_ACTIVATION ? "activation" : kind == EMULATED_GRADIENT ? "gradient" : "something";
}

pawl_code emulated_message_read(const float *buffer, const struct emulated_message *wanted,
                                struct emulated_message *out, struct pawl_error *e) {
    memcpy(out, buffer, sizeof *out);
    if (out->magic != MAGIC || out->check != check_of(out))
        return error_set(e, PAWL_INTERNAL, 0,
                         "emulated: chunk %u, step %llu, micro-batch %llu: the %s that came is damaged",
                         wanted->chunk, (unsigned long long)wanted->step,
                         (unsigned long long)wanted->microbatch, kind_name(wanted->kind));
    if (out->kind != wanted->kind || out->chunk != wanted->chunk || out->step != wanted->step ||
        out->microbatch != wanted->microbatch)
        return error_set(
            e, PAWL_INTERNAL, 0,
            "emulated: chunk %u wants the %s of step %llu, micro-batch %llu, and got the %s for chunk "
            "%u of step %llu, micro-batch %llu",
            wanted->chunk, kind_name(wanted->kind), (unsigned long long)wanted->step,
            (unsigned long long)wanted->microbatch, kind_name(out->kind), out->chunk,
            (unsigned long long)out->step, (unsigned long long)out->microbatch);
    if (wanted->kind == EMULATED_GRADIENT && out->echo != wanted->echo)
        return error_set(
            e, PAWL_INTERNAL, 0,
            "emulated: chunk %u, step %llu, micro-batch %llu: the gradient answers activation %016llx, "
            "not %016llx",
            wanted->chunk, (unsigned long long)wanted->step, (unsigned long long)wanted->microbatch,
            (unsigned long long)out->echo, (unsigned long long)wanted->echo);
    return PAWL_OK;
}
