/* The reduction gives the same bits for any distribution of contributions over any number of replicas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/reduce.h"

#define STAGES        3
#define CONTRIBUTIONS 12
#define PIPELINES_MAX 5

/* Odd sizes: slices that are empty, tensors that span slices, a shared tensor between others. */
static struct stage_tensor tensors[] = {
    {.name = (char *)"a", .offset = 0, .count = 37},
    {.name = (char *)"wte", .offset = 37, .count = 101, .flags = STAGE_SHARED},
    {.name = (char *)"b", .offset = 138, .count = 5},
};
/* What a stage between the ends has in its place: an own tensor. */
static struct stage_tensor middle_tensors[] = {
    {.name = (char *)"a", .offset = 0, .count = 37},
    {.name = (char *)"c", .offset = 37, .count = 101},
    {.name = (char *)"b", .offset = 138, .count = 5},
};
#define PARAMS 143

struct node {
    struct net *net;
    struct peers peers;
    struct stage stage;
    struct version version;
    struct reduce reduce;
    int64_t sums[PARAMS + GRADSUM_FOOTER_WORDS];
    float grad[PARAMS];
};

static int32_t exponents[3] = {30, 34, 28};

static void contribute(struct node *n, uint32_t stage, uint64_t microbatch) {
    struct rng_stream rng = {stage * 1000 + microbatch};
    for (int t = 0; t < 3; t++) {
        float g[101];
        for (uint64_t i = 0; i < tensors[t].count; i++)
            g[i] = (float)((double)(int32_t)rng_next(&rng) * 0x1p-33);
        gradsum_add(n->sums + tensors[t].offset, g, tensors[t].count, exponents[t], 2 * CONTRIBUTIONS,
                    n->sums + PARAMS);
    }
    n->sums[PARAMS + GRADSUM_LOSS] += (int64_t)microbatch;
}

static void node_open(struct node *n, struct netsim *sim, uint32_t pipelines, uint32_t rank) {
    *n = (struct node){.net = netsim_open(sim, NULL)};
    assert_int_equal(peers_init(&n->peers, n->net, pipelines, STAGES, rank, NULL), PAWL_OK);
    n->peers.view = 1;
    n->stage = (struct stage){.index = rank % STAGES,
                              .stage_count = STAGES,
                              .tensors = rank % STAGES == 1 ? middle_tensors : tensors,
                              .tensor_count = 3,
                              .param_count = PARAMS,
                              .contributions = CONTRIBUTIONS};
    n->version = (struct version){.number = 5, .exponents = exponents};
    assert_int_equal(reduce_init(&n->reduce, &n->stage, &n->peers, NULL), PAWL_OK);
}

static void introduce(struct node *nodes, uint32_t ranks, const bool *live) {
    struct bytes list = {0};
    for (uint32_t r = 0; r < ranks; r++) {
        size_t size;
        const void *address = net_address(nodes[r].net, &size);
        bytes_put_u32(&list, r);
        bytes_put_u32(&list, (uint32_t)size);
        bytes_put(&list, address, size);
    }
    struct message m = {.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size};
    for (uint32_t r = 0; r < ranks; r++) {
        assert_int_equal(peers_learn(&nodes[r].peers, &m, NULL), PAWL_OK);
        memcpy(nodes[r].peers.live, live, ranks * sizeof *live);
        if (live[r]) assert_int_equal(reduce_members(&nodes[r].reduce, NULL), PAWL_OK);
    }
    bytes_close(&list);
}

static void run_all(struct node *nodes, uint32_t ranks, const bool *live, struct netsim *sim) {
    for (uint32_t r = 0; r < ranks; r++)
        if (live[r])
            assert_int_equal(
                reduce_begin(&nodes[r].reduce, &nodes[r].version, nodes[r].sums, 0, nodes[r].grad, NULL),
                PAWL_OK);
    int64_t now = 0;
    for (uint32_t left = 1; left > 0;) {
        left = 0;
        int64_t next = netsim_advance(sim, now);
        if (next != INT64_MAX && next > now) now = next;
        for (uint32_t r = 0; r < ranks; r++) {
            if (!live[r]) continue;
            struct net_completion done[64];
            uint32_t count = net_poll(nodes[r].net, done, 64);
            for (uint32_t i = 0; i < count; i++)
                assert_int_equal(reduce_completion(&nodes[r].reduce, &done[i], NULL), PAWL_OK);
            assert_int_equal(reduce_tick(&nodes[r].reduce, NULL), PAWL_OK);
            if (nodes[r].reduce.phase != REDUCE_DONE) left++;
        }
    }
}

struct outcome {
    float grad[STAGES][PARAMS];
    int64_t footer[STAGES][GRADSUM_FOOTER_WORDS];
};

static void run_case(uint64_t seed, uint32_t pipelines, const bool *live, struct outcome *out) {
    uint32_t ranks = pipelines * STAGES;
    struct rng_stream rng = {seed};
    struct netsim *sim = netsim_new(seed, (struct netsim_config){1, 1000});
    struct node *nodes = calloc(ranks, sizeof *nodes);
    for (uint32_t r = 0; r < ranks; r++) node_open(&nodes[r], sim, pipelines, r);
    introduce(nodes, ranks, live);
    for (uint32_t s = 0; s < STAGES; s++)
        for (uint64_t m = 0; m < CONTRIBUTIONS; m++) {
            uint32_t p = (uint32_t)rng_below(&rng, pipelines);
            while (!live[p * STAGES + s]) p = (p + 1) % pipelines;
            contribute(&nodes[p * STAGES + s], s, m);
        }
    run_all(nodes, ranks, live, sim);
    bool seen[STAGES] = {0};
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t s = r % STAGES;
        if (live[r] && seen[s]) {
            assert_memory_equal(nodes[r].grad, out->grad[s], sizeof out->grad[s]);
            assert_memory_equal(nodes[r].reduce.footer, out->footer[s], sizeof out->footer[s]);
        } else if (live[r]) {
            seen[s] = true;
            memcpy(out->grad[s], nodes[r].grad, sizeof out->grad[s]);
            memcpy(out->footer[s], nodes[r].reduce.footer, sizeof out->footer[s]);
        }
        reduce_close(&nodes[r].reduce);
        peers_close(&nodes[r].peers);
        net_close(nodes[r].net);
    }
    free(nodes);
    netsim_free(sim);
}

static void any_distribution_over_any_live_replicas_gives_the_same_bits(void **state) {
    (void)state;
    bool live[PIPELINES_MAX * STAGES];
    memset(live, 1, sizeof live);
    struct outcome want, got;
    run_case(1, 1, live, &want);
    struct rng_stream rng = {99};
    for (uint64_t seed = 2; seed < 60; seed++) {
        uint32_t pipelines = 1 + (uint32_t)rng_below(&rng, PIPELINES_MAX);
        for (uint32_t r = 0; r < pipelines * STAGES; r++) live[r] = rng_below(&rng, 3) != 0;
        for (uint32_t s = 0; s < STAGES; s++) live[(uint32_t)rng_below(&rng, pipelines) * STAGES + s] = true;
        run_case(seed, pipelines, live, &got);
        for (uint32_t s = 0; s < STAGES; s++) {
            assert_memory_equal(got.footer[s], want.footer[s], sizeof want.footer[s]);
            for (int i = 0; i < PARAMS; i++)
                if (memcmp(&got.grad[s][i], &want.grad[s][i], sizeof(float)) != 0)
                    fail_msg("stage %u parameter %d: %a, wanted %a", s, i, (double)got.grad[s][i],
                             (double)want.grad[s][i]);
        }
    }
}

static void the_tied_embedding_sums_both_ends_and_the_middle_stage_is_left_alone(void **state) {
    (void)state;
    bool live[STAGES] = {true, true, true};
    struct outcome got;
    run_case(1, 1, live, &got);
    assert_memory_equal(got.grad[0] + 37, got.grad[2] + 37, 101 * sizeof(float));
    struct node alone[STAGES];
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 1});
    int64_t sum = 0;
    for (uint32_t s = 0; s < STAGES; s++) {
        node_open(&alone[s], sim, 1, s);
        for (uint64_t m = 0; m < CONTRIBUTIONS; m++) contribute(&alone[s], s, m);
        if (s != 1) sum += alone[s].sums[37];
    }
    float want;
    gradsum_mean(&sum, &want, 1, exponents[1], CONTRIBUTIONS);
    assert_memory_equal(&got.grad[0][37], &want, sizeof want);
    for (uint32_t s = 0; s < STAGES; s++) {
        reduce_close(&alone[s].reduce);
        peers_close(&alone[s].peers);
        net_close(alone[s].net);
    }
    netsim_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_distribution_over_any_live_replicas_gives_the_same_bits),
        cmocka_unit_test(the_tied_embedding_sums_both_ends_and_the_middle_stage_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
