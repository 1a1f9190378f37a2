/* Any number of ranks and stages loads what any other number saved: the same bytes, each rank reading hardly
 * more than its own; and nothing is ever filled with zeros for want of a part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "kit/ckpt_kit.h"

#define LAYERS     15u
#define KINDS      4u                   /* of tensors a layer: a matrix and its two moments, a bias */
#define TENSORS    (LAYERS * KINDS + 2) /* and two scalars, of the first and the last stage */
#define ROWS       96u
#define COLUMNS    768u
#define STORES_MAX 64u
#define CHUNK      4096u

struct state { /* of the whole model */
    struct pawl_tensor tensors[TENSORS];
    char names[TENSORS][40];
    uint32_t layer[TENSORS];
    uint64_t bytes[TENSORS], total;
};

static const uint64_t matrix[2] = {ROWS, COLUMNS}, bias[1] = {COLUMNS};

static struct state *state_new(void) {
    static const char *const kinds[KINDS] = {"weight", "exp_avg", "exp_avg_sq", "bias"};
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (uint32_t i = 0; i < TENSORS; i++) {
        bool scalar = i >= LAYERS * KINDS, is_bias = i % KINDS == 3;
        struct pawl_tensor *t = &s->tensors[i];
        if (scalar)
            snprintf(s->names[i], sizeof s->names[i], "scalar.%u", i);
        else
            snprintf(s->names[i], sizeof s->names[i], "h.%u.%s", i / KINDS, kinds[i % KINDS]);
        s->layer[i] = !scalar ? i / KINDS : i == LAYERS * KINDS ? 0 : LAYERS - 1;
        *t = (struct pawl_tensor){.name = s->names[i],
                                  .dtype = PAWL_F32,
                                  .rank = scalar    ? 0
                                          : is_bias ? 1
                                                    : 2,
                                  .shape = is_bias ? bias : matrix};
        s->bytes[i] = 4 * (scalar ? 1 : is_bias ? COLUMNS : ROWS * COLUMNS);
        s->total += s->bytes[i];
        t->data = malloc(s->bytes[i]);
        assert_non_null(t->data);
        kit_fill(t->data, 1, i, 0, s->bytes[i]);
    }
    return s;
}

static void state_free(struct state *s) {
    for (uint32_t i = 0; i < TENSORS; i++) free(s->tensors[i].data);
    free(s);
}

struct split { /* of layers over stages, and of a stage's state over replicas */
    uint32_t stages, replicas;
    uint32_t layers[8]; /* of each stage */
};

static uint32_t stage_of(const struct split *split, uint32_t layer) {
    uint32_t stage = 0;
    for (uint32_t end = split->layers[0]; layer >= end; end += split->layers[++stage])
        ;
    return stage;
}

/* Tensors of one stage; memory null: as in `s`, else one after the other there, as a training program that
 * keeps its state in one buffer has them. */
static uint32_t tensors_of(const struct state *s, const struct split *split, uint32_t stage,
                           struct pawl_tensor *out, uint32_t *index) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TENSORS; i++) {
        if (stage_of(split, s->layer[i]) != stage) continue;
        index[count] = i;
        out[count++] = s->tensors[i];
    }
    return count;
}

struct cluster {
    struct storesim *sim;
    struct store *stores[STORES_MAX];
    uint32_t count;
};

/* Saves from the bytes in `s`: `copies` times as many stores when replicas save the whole stage each. */
static struct cluster *save_with(const struct state *s, const struct split *split, bool whole_each) {
    struct cluster *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->sim = storesim_new(9);
    for (uint32_t stage = 0; stage < split->stages; stage++) {
        struct pawl_tensor tensors[TENSORS];
        uint32_t index[TENSORS], count = tensors_of(s, split, stage, tensors, index);
        for (uint32_t r = 0; r < split->replicas; r++) {
            char folder[32];
            struct store *store = NULL;
            struct ckpt *engine = NULL;
            struct ckpt_share share;
            struct pawl_error e = {0};
            uint32_t part = whole_each ? 0 : r, parts = whole_each ? 1 : split->replicas;
            snprintf(folder, sizeof folder, "s%ur%u", stage, r);
            assert_int_equal(storesim_open(c->sim, folder, false, &store, NULL), PAWL_OK);
            struct ckpt_config config = kit_config(1, 0, 1, 1);
            config.chunk_bytes = CHUNK;
            assert_int_equal(ckpt_share_init(tensors, count, part, parts, &share, NULL), PAWL_OK);
            assert_int_equal(ckpt_open(&config, store, &engine, NULL), PAWL_OK);
            struct ckpt_save save = {.step = 7,
                                     .unit = stage,
                                     .unit_count = split->stages,
                                     .part = part,
                                     .part_count = parts,
                                     .tensors = share.tensors,
                                     .tensor_count = share.count};
            if (ckpt_save_begin(engine, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
            assert_int_equal(kit_wait(engine, store).code, PAWL_OK);
            assert_int_equal(ckpt_close(engine, kit_soon(), NULL), PAWL_OK);
            ckpt_share_close(&share);
            c->stores[c->count++] = store;
        }
    }
    return c;
}

static void cluster_free(struct cluster *c) {
    for (uint32_t i = 0; i < c->count; i++) store_close(c->stores[i]);
    storesim_free(c->sim);
    free(c);
}

/* Every rank of `split` loads its share into a fresh state, with a set of its own; returned is the sum of
 * bytes read. */
static uint64_t load_with(struct cluster *c, const struct state *like, const struct split *split,
                          struct state *into) {
    uint64_t sum = 0;
    for (uint32_t stage = 0; stage < split->stages; stage++) {
        struct pawl_tensor tensors[TENSORS];
        uint32_t index[TENSORS], count = tensors_of(into, split, stage, tensors, index);
        for (uint32_t r = 0; r < split->replicas; r++) {
            struct ckpt_share share;
            struct ckpt_set *set = NULL;
            struct pawl_error e = {0};
            assert_int_equal(ckpt_share_init(tensors, count, r, split->replicas, &share, NULL), PAWL_OK);
            assert_int_equal(ckpt_set_open(c->stores, c->count, NULL, &set, NULL), PAWL_OK);
            assert_true(ckpt_set_at(set, 0)->complete);
            if (ckpt_set_read_many(set, 0, share.tensors, share.count, &e) != PAWL_OK) fail_msg("%s", e.text);
            uint64_t read = ckpt_set_bytes_read(set, NULL);
            if ((double)read > 1.02 * (double)share.bytes)
                fail_msg("stage %u, rank %u: %" PRIu64 " bytes read for %" PRIu64, stage, r, read,
                         share.bytes);
            assert_true(read >= share.bytes);
            sum += read;
            ckpt_set_close(set);
            ckpt_share_close(&share);
        }
    }
    for (uint32_t i = 0; i < TENSORS; i++)
        assert_memory_equal(into->tensors[i].data, like->tensors[i].data, like->bytes[i]);
    return sum;
}

static void forget(struct state *s) {
    for (uint32_t i = 0; i < TENSORS; i++) memset(s->tensors[i].data, 0xEE, s->bytes[i]);
}

static void any_number_of_ranks_loads_what_four_saved(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 6, 8};
    struct state *s = state_new(), *back = state_new();
    for (uint32_t replicas = 1; replicas <= 3; replicas++) {
        struct split saved = {.stages = 4, .replicas = replicas, .layers = {5, 4, 3, 3}};
        struct cluster *c = save_with(s, &saved, false);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct split loaded = {.stages = 1, .replicas = counts[i], .layers = {LAYERS}};
            forget(back);
            uint64_t sum = load_with(c, s, &loaded, back);
            assert_in_range(sum, s->total, s->total * 102 / 100);
        }
        cluster_free(c);
    }
    state_free(s);
    state_free(back);
}

static void four_uneven_stages_become_two_and_then_three(void **state) {
    (void)state;
    static const struct split splits[] = {{.stages = 4, .replicas = 2, .layers = {5, 4, 3, 3}},
                                          {.stages = 2, .replicas = 3, .layers = {8, 7}},
                                          {.stages = 3, .replicas = 1, .layers = {4, 6, 5}},
                                          {.stages = 4, .replicas = 2, .layers = {5, 4, 3, 3}}};
    struct state *s = state_new(), *now = state_new();
    struct cluster *c = save_with(s, &splits[0], false);
    for (size_t i = 1; i < sizeof splits / sizeof splits[0]; i++) {
        forget(now);
        load_with(c, s, &splits[i], now);
        cluster_free(c);
        c = save_with(now, &splits[i], false);
    }
    cluster_free(c);
    state_free(s);
    state_free(now);
}

static void a_rank_that_comes_back_reads_from_its_own_store_only(void **state) {
    (void)state;
    struct state *s = state_new();
    struct split split = {.stages = 4, .replicas = 2, .layers = {5, 4, 3, 3}};
    for (int whole_each = 0; whole_each < 2; whole_each++) { /* shares, and full copies with `prefer` */
        struct cluster *c = save_with(s, &split, whole_each);
        for (uint32_t rank = 0; rank < c->count; rank++) {
            struct pawl_tensor tensors[TENSORS];
            struct ckpt_set *set = NULL;
            struct ckpt_share share;
            struct pawl_error e = {0};
            uint32_t index[TENSORS], count = tensors_of(s, &split, rank / 2, tensors, index);
            for (uint32_t i = 0; i < count; i++) tensors[i].data = malloc(s->bytes[index[i]]);
            assert_int_equal(
                ckpt_share_init(tensors, count, whole_each ? 0 : rank % 2, whole_each ? 1 : 2, &share, NULL),
                PAWL_OK);
            struct ckpt_set_options options = {.prefer = whole_each ? c->stores[rank] : NULL};
            assert_int_equal(ckpt_set_open_with(c->stores, c->count, &options, &set, NULL), PAWL_OK);
            if (ckpt_set_read_many(set, 0, share.tensors, share.count, &e) != PAWL_OK) fail_msg("%s", e.text);
            for (uint32_t other = 0; other < c->count; other++)
                if (other != rank) assert_int_equal(ckpt_set_bytes_read(set, c->stores[other]), 0);
            assert_int_equal(ckpt_set_bytes_read(set, c->stores[rank]), ckpt_set_bytes_read(set, NULL));
            ckpt_set_close(set);
            ckpt_share_close(&share);
            for (uint32_t i = 0; i < count; i++) free(tensors[i].data);
        }
        cluster_free(c);
    }
    state_free(s);
}

static void a_missing_shard_is_an_error_that_names_it(void **state) {
    (void)state;
    struct state *s = state_new(), *back = state_new();
    struct split split = {.stages = 2, .replicas = 2, .layers = {8, 7}};
    for (uint32_t lost = 0; lost < 4; lost++) {
        struct cluster *c = save_with(s, &split, false);
        assert_int_equal(store_remove(c->stores[lost], "slot-000000.safetensors", NULL), PAWL_OK);
        struct ckpt_set *set = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ckpt_set_open(c->stores, c->count, NULL, &set, NULL), PAWL_OK);
        char wanted[80];
        snprintf(wanted, sizeof wanted, "unit %u of 2: part %u of 2", lost / 2, lost % 2);
        const struct ckpt_step *step = ckpt_set_at(set, 0);
        assert_false(step->complete);
        assert_string_equal(step->missing, wanted);
        assert_non_null(strstr(ckpt_set_problem(set, 0), "slot-000000.safetensors"));
        forget(back);
        assert_int_equal(ckpt_set_read_many(set, 0, back->tensors, TENSORS, &e), PAWL_NOT_FOUND);
        if (strstr(e.text, wanted) == NULL) fail_msg("%s", e.text);
        for (uint32_t i = 0; i < TENSORS; i++) /* above all no zeros: nothing was begun */
            assert_int_equal(((uint8_t *)back->tensors[i].data)[0], 0xEE);
        ckpt_set_close(set);
        cluster_free(c);
    }
    state_free(s);
    state_free(back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_loads_what_four_saved),
        cmocka_unit_test(four_uneven_stages_become_two_and_then_three),
        cmocka_unit_test(a_rank_that_comes_back_reads_from_its_own_store_only),
        cmocka_unit_test(a_missing_shard_is_an_error_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
