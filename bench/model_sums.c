/* What exact sums cost beyond float ones, part by part, where a busy machine hides it in whole runs: the
 * least processor time of N turns, both kinds in each turn. One stage, one thread, a micro-batch of `batch`
 * sequences; the first micro-batch of an iteration is stored in the sums, later ones are added to them; the
 * own slice of two members as src/run/reduce.c adds it. The bytes of the reduction are not in
 * it: bench_net_stream.
 *
 *   bench_model_sums [layers heads width context batch turns] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/gpt.h"
#include "model/gradsum.h"

#define VOCABULARY 256u
#define BLOCK      4096u
#define COOL       ((size_t)128 << 20) /* beyond the last cache */

enum part { FIRST, LATER, OWN_SLICE, PARTS };

static void require(pawl_code code, const struct pawl_error *e) {
    if (code == PAWL_OK) return;
    fprintf(stderr, "%s: %s\n", pawl_code_name(code), e->text);
    exit(pawl_code_exit(code));
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void least(double *value, double begin) {
    double took = cpu_ms() - begin;
    if (*value == 0 || took < *value) *value = took;
}

static struct data *text_open(uint32_t context, uint32_t batch) {
    char path[] = "/tmp/pawl-bench-XXXXXX";
    struct rng_stream rng = {1};
    struct pawl_error e;
    struct data *d;
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) abort();
    for (uint64_t i = 0; i < (uint64_t)context * batch * 8 + 1; i++)
        fputc((int)rng_below(&rng, VOCABULARY), f);
    fclose(f);
    require(data_open(path, DATA_BYTES, VOCABULARY, context, 1, &d, &e), &e);
    unlink(path);
    return d;
}

/* The mean over `own` and `in`, block by block. */
static void sum_slice(enum gradsum_kind kind, const int64_t *own, const int64_t *in, float *out,
                      uint64_t count) {
    static int64_t block[BLOCK];
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        memcpy(block, gradsum_at(kind, own, at), n * gradsum_bytes(kind));
        if (kind == GRADSUM_FLOAT) {
            gradsum_add_float(gradsum_at(kind, block, 0), gradsum_at(kind, in, at), n);
            gradsum_mean_float(gradsum_at(kind, block, 0), out + at, n, 8);
        } else {
            gradsum_merge(block, in + at, n);
            gradsum_mean(block, out + at, n, 40, 8);
        }
    }
}

struct buffers {
    int64_t *sums, *in;
    float *mean;
    uint8_t *cool;
};

/* The sums leave the caches, as they do while a forward pass and its input gradient are computed. */
static void cool(struct buffers *b) {
    for (size_t i = 0; i < COOL; i += 64) b->cool[i]++;
}

static void turn(struct stage *stage, const struct version *v, struct stage_slot *slot, struct buffers *b,
                 double times[PARTS]) {
    struct pawl_error e;
    memset(b->sums + gradsum_words(stage->sums, stage->param_count), 0, GRADSUM_FOOTER_WORDS * 8);
    for (enum part p = FIRST; p <= LATER; p++) {
        cool(b);
        double begin = cpu_ms();
        require(stage->ops->weight_grad(stage, v, slot, b->sums, 0, &e), &e);
        least(&times[p], begin);
    }
    double begin = cpu_ms();
    sum_slice(stage->sums, b->sums, b->in, b->mean, stage->param_count / 2);
    least(&times[OWN_SLICE], begin);
}

int main(int argc, char **argv) {
    uint32_t n[6] = {4, 4, 256, 256, 4, 15};
    for (int i = 1; i < argc && i <= 6; i++) n[i - 1] = (uint32_t)strtoul(argv[i], NULL, 10);
    struct gpt_config c = {.layers = n[0],
                           .heads = n[1],
                           .width = n[2],
                           .context = n[3],
                           .batch = n[4],
                           .vocabulary = VOCABULARY,
                           .tied = true,
                           .seed = 1};
    struct pawl_error e = {0};
    struct stage *stage;
    struct version v;
    struct stage_slot *slot;
    struct data *data = text_open(c.context, c.batch);
    require(gpt_stage_open(&c, 0, 1, data, 8, &stage, &e), &e);
    require(version_init(&v, stage, &e), &e);
    require(stage->ops->init_params(stage, 1, v.params, &e), &e);
    require(stage->ops->slot_take(stage, 0, 0, &slot, &e), &e);
    uint64_t words = stage->param_count + GRADSUM_FOOTER_WORDS;
    struct buffers b = {mem_alloc(words * 8), mem_alloc(words * 8), mem_alloc(words * 4), mem_alloc(COOL)};
    if (b.sums == NULL || b.in == NULL || b.mean == NULL || b.cool == NULL) return 1;
    double others = 0, times[GRADSUM_KIND_COUNT][PARTS] = {{0}};
    for (uint32_t i = 0; i < n[5]; i++) {
        double begin = cpu_ms();
        require(stage->ops->forward(stage, &v, slot, &e), &e);
        require(stage->ops->input_grad(stage, &v, slot, &e), &e);
        least(&others, begin);
        for (uint32_t k = 0; k < GRADSUM_KIND_COUNT; k++) {
            stage->sums = (enum gradsum_kind)k;
            turn(stage, &v, slot, &b, times[k]);
        }
    }
    printf("%llu parameters, forward and input gradient %.1f ms\n", (unsigned long long)stage->param_count,
           others);
    for (uint32_t k = 0; k < GRADSUM_KIND_COUNT; k++)
        printf(
            "%s: weight gradient of the first micro-batch %.2f ms, of a later one %.2f ms, own slice of two "
            "%.2f ms\n",
            k == GRADSUM_EXACT ? "exact" : "float", times[k][FIRST], times[k][LATER], times[k][OWN_SLICE]);
    return 0;
}
