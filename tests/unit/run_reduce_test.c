/* The reduction gives the same bits for any distribution of contributions over any holders, whoever holds
 * both ends of a tied embedding, and whichever end's gradient was there before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/reduce.h"

#define CHUNKS        3
#define CONTRIBUTIONS 12
#define RANKS_MAX     6

#define B_COUNT (2 * REDUCE_BLOCK + 5)

/* Odd sizes: slices that are empty, tensors that span slices and blocks, a shared tensor between others, and
 * not at the same place on both ends. */
static struct stage_tensor first_tensors[] = {
    {.name = (char *)"a", .offset = 0, .count = 37},
    {.name = (char *)"wte", .offset = 37, .count = 101, .flags = STAGE_SHARED},
    {.name = (char *)"b", .offset = 138, .count = B_COUNT},
};
/* What a chunk between the ends has in its place: an own tensor. */
static struct stage_tensor middle_tensors[] = {
    {.name = (char *)"a", .offset = 0, .count = 37},
    {.name = (char *)"c", .offset = 37, .count = 101},
    {.name = (char *)"b", .offset = 138, .count = B_COUNT},
};
static struct stage_tensor last_tensors[] = {
    {.name = (char *)"b", .offset = 0, .count = B_COUNT},
    {.name = (char *)"wte", .offset = B_COUNT, .count = 101, .flags = STAGE_SHARED | STAGE_SHARED_COPY},
    {.name = (char *)"a", .offset = B_COUNT + 101, .count = 37},
};
static struct stage_tensor *const chunk_tensors[CHUNKS] = {first_tensors, middle_tensors, last_tensors};
#define PARAMS    (B_COUNT + 138)
#define WTE_FIRST 37
#define WTE_LAST  B_COUNT
#define WTE_COUNT 101

struct part { /* a chunk as one rank holds it */
    struct stage stage;
    struct version version;
    struct reduce reduce;
    bool held, given_before; /* its gradient was there already */
    int64_t sums[PARAMS + GRADSUM_FOOTER_WORDS];
    float grad[PARAMS];
};

struct node {
    struct net *net;
    struct peers peers;
    struct part parts[CHUNKS];
};

/* How sums are made; with `coarse` numbers float sums are exact. And another order in which messages arrive.
 */
static enum gradsum_kind kind;
static bool coarse;
static uint64_t arrival;

static int32_t exponents[CHUNKS][3] = {{30, 34, 28}, {30, 34, 28}, {28, 34, 30}};

static int64_t *footer_of(struct part *p) { return p->sums + gradsum_words(kind, PARAMS); }

static void contribute(struct part *p, uint64_t microbatch) {
    struct rng_stream rng = {p->stage.index * 1000 + microbatch};
    for (int t = 0; t < 3; t++) {
        const struct stage_tensor *tensor = &p->stage.tensors[t];
        float g[B_COUNT];
        for (uint64_t i = 0; i < tensor->count; i++) {
            double value = (double)(int32_t)rng_next(&rng) * 0x1p-33;
            g[i] = (float)(coarse ? round(value * 1024) / 1024 : value);
        }
        int64_t *footer = footer_of(p);
        void *sum = gradsum_at(kind, p->sums, tensor->offset);
        if (kind == GRADSUM_EXACT) {
            gradsum_add(sum, g, tensor->count, exponents[p->stage.index][t], 2 * CONTRIBUTIONS, footer);
        } else {
            gradsum_add_float(sum, g, tensor->count);
            gradsum_count(footer, 0);
        }
    }
    footer_of(p)[GRADSUM_LOSS] += (int64_t)microbatch;
}

static void node_open(struct node *n, struct netsim *sim, uint32_t ranks, uint32_t rank) {
    *n = (struct node){.net = netsim_open(sim, NULL)};
    assert_int_equal(peers_init(&n->peers, n->net, ranks, rank, NULL), PAWL_OK);
    peers_fence(&n->peers, 1);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        struct part *p = &n->parts[c];
        p->stage = (struct stage){.index = c,
                                  .stage_count = CHUNKS,
                                  .tensors = chunk_tensors[c],
                                  .tensor_count = 3,
                                  .param_count = PARAMS,
                                  .contributions = CONTRIBUTIONS,
                                  .sums = kind};
        p->version = (struct version){.number = 5, .exponents = exponents[c]};
        reduce_init(&p->reduce, &p->stage, &n->peers, p->sums, p->grad);
    }
}

static void node_close(struct node *n) {
    for (uint32_t c = 0; c < CHUNKS; c++) reduce_close(&n->parts[c].reduce);
    peers_close(&n->peers);
    net_close(n->net);
}

static void introduce(struct node *nodes, uint32_t ranks) {
    struct bytes list = {0};
    for (uint32_t r = 0; r < ranks; r++) {
        size_t size;
        const void *address = net_address(nodes[r].net, &size);
        bytes_put_u32(&list, r);
        bytes_put_u32(&list, (uint32_t)size);
        bytes_put(&list, address, size);
    }
    struct message m = {.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size};
    for (uint32_t r = 0; r < ranks; r++) assert_int_equal(peers_learn(&nodes[r].peers, &m, NULL), PAWL_OK);
    bytes_close(&list);
}

/* Who holds what, and which chunks' gradients are there. */
struct layout {
    uint32_t ranks;
    bool held[RANKS_MAX][CHUNKS];
    bool reduced[CHUNKS];
};

static void arm(struct node *nodes, const struct layout *l) {
    struct coord_pair pairs[RANKS_MAX * CHUNKS] = {{0}};
    for (uint32_t r = 0; r < l->ranks; r++)
        for (uint32_t c = 0; c < CHUNKS; c++) pairs[r * CHUNKS + c].held = l->held[r][c];
    struct reduce_holders holders = {pairs, l->ranks, CHUNKS, l->reduced};
    for (uint32_t r = 0; r < l->ranks; r++) {
        struct part *p = nodes[r].parts;
        for (uint32_t c = 0; c < CHUNKS; c++) {
            p[c].held = l->held[r][c];
            p[c].given_before = l->reduced[c];
            if (p[c].held) assert_int_equal(reduce_members(&p[c].reduce, &holders, NULL), PAWL_OK);
        }
        if (!p[0].held || !p[CHUNKS - 1].held) continue;
        p[0].reduce.other = &p[CHUNKS - 1].reduce;
        p[CHUNKS - 1].reduce.other = &p[0].reduce;
    }
}

static struct part *part_of(struct node *n, uint64_t cookie) { return &n->parts[reduce_chunk_of(cookie)]; }

/* One poll of one rank: at most one reduction is begun, in an order of its own. */
static bool poll_node(struct node *n, struct rng_stream *rng, bool begun[CHUNKS]) {
    struct net_completion done[64];
    uint32_t count = net_poll(n->net, done, 64);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(reduce_completion(&part_of(n, done[i].cookie)->reduce, &done[i], NULL), PAWL_OK);
    uint32_t c = (uint32_t)rng_below(rng, CHUNKS);
    struct part *p = &n->parts[c];
    if (p->held && !begun[c]) {
        begun[c] = true;
        assert_int_equal(p->given_before ? reduce_give(&p->reduce, 5, NULL)
                                         : reduce_begin(&p->reduce, &p->version, 0, NULL),
                         PAWL_OK);
    }
    bool all = true;
    for (c = 0; c < CHUNKS; c++) {
        p = &n->parts[c];
        if (!p->held) continue;
        if (!p->given_before) assert_int_equal(reduce_tick(&p->reduce, NULL), PAWL_OK);
        all = all && begun[c] && p->reduce.giving == 0 && (p->given_before || p->reduce.phase == REDUCE_DONE);
    }
    return all;
}

static void run_all(struct node *nodes, const struct layout *l, struct netsim *sim, struct rng_stream *rng) {
    bool begun[RANKS_MAX][CHUNKS] = {{false}};
    int64_t now = 0;
    for (uint32_t left = 1, polls = 0; left > 0; polls++) {
        left = 0;
        int64_t next = netsim_advance(sim, now);
        if (next != INT64_MAX && next > now) now = next;
        for (uint32_t r = 0; r < l->ranks; r++) left += !poll_node(&nodes[r], rng, begun[r]);
        if (polls > 100000) fail_msg("%u ranks wait for ever", left);
    }
    for (uint32_t r = 0; r < l->ranks; r++)
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (nodes[r].parts[c].held && !l->reduced[c]) reduce_end(&nodes[r].parts[c].reduce);
}

struct outcome {
    float grad[CHUNKS][PARAMS];
    int64_t footer[CHUNKS][GRADSUM_FOOTER_WORDS];
};

static void compare(const struct part *p, const struct outcome *want, uint64_t seed) {
    uint32_t c = p->stage.index;
    for (uint32_t i = 0; i < PARAMS; i++)
        if (memcmp(&p->grad[i], &want->grad[c][i], sizeof(float)) != 0)
            fail_msg("seed %llu, chunk %u, parameter %u: %a, wanted %a", (unsigned long long)seed, c, i,
                     (double)p->grad[i], (double)want->grad[c][i]);
    for (int i = 0; i < GRADSUM_FOOTER_WORDS && !p->given_before; i++)
        if (p->reduce.footer[i] != want->footer[c][i])
            fail_msg("seed %llu, chunk %u, footer %d: %lld, wanted %lld", (unsigned long long)seed, c, i,
                     (long long)p->reduce.footer[i], (long long)want->footer[c][i]);
}

/* Contributions are dealt at random to the holders of chunks that are to be summed. Whoever gets none has
 * what was there before in its sums. */
static void deal(struct node *nodes, const struct layout *l, const struct outcome *want,
                 struct rng_stream *rng) {
    for (uint32_t c = 0; c < CHUNKS; c++) {
        for (uint64_t m = 0; m < CONTRIBUTIONS && !l->reduced[c]; m++) {
            uint32_t r = (uint32_t)rng_below(rng, l->ranks);
            while (!l->held[r][c]) r = (r + 1) % l->ranks;
            contribute(&nodes[r].parts[c], m);
        }
        for (uint32_t r = 0; r < l->ranks; r++)
            if (gradsum_empty(kind, nodes[r].parts[c].sums, PARAMS))
                memset(nodes[r].parts[c].sums, 0xa5, gradsum_words(kind, PARAMS) * sizeof(int64_t));
        for (uint32_t r = 0; r < l->ranks; r++)
            if (l->reduced[c] && l->held[r][c])
                memcpy(nodes[r].parts[c].grad, want->grad[c], sizeof want->grad[c]);
    }
}

/* want null: the outcome is taken into `out`. */
static void run_case(uint64_t seed, const struct layout *l, const struct outcome *want, struct outcome *out) {
    struct rng_stream rng = {seed};
    struct netsim *sim = netsim_new(seed ^ arrival, (struct netsim_config){1, 1000, 16});
    struct node *nodes = calloc(l->ranks, sizeof *nodes);
    for (uint32_t r = 0; r < l->ranks; r++) node_open(&nodes[r], sim, l->ranks, r);
    introduce(nodes, l->ranks);
    arm(nodes, l);
    deal(nodes, l, want, &rng);
    run_all(nodes, l, sim, &rng);
    for (uint32_t r = 0; r < l->ranks; r++)
        for (uint32_t c = 0; c < CHUNKS; c++) {
            struct part *p = &nodes[r].parts[c];
            if (!p->held) continue;
            if (want != NULL) {
                compare(p, want, seed);
                continue;
            }
            memcpy(out->grad[c], p->grad, sizeof p->grad);
            memcpy(out->footer[c], p->reduce.footer, sizeof p->reduce.footer);
        }
    for (uint32_t r = 0; r < l->ranks; r++) node_close(&nodes[r]);
    free(nodes);
    netsim_free(sim);
}

static struct outcome plain_outcome(void) {
    struct layout plain = {.ranks = CHUNKS, .held = {{true}, {false, true}, {false, false, true}}};
    struct outcome out;
    run_case(1, &plain, NULL, &out);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        assert_int_equal(out.footer[c][GRADSUM_COUNT], 3 * CONTRIBUTIONS);
        assert_int_equal(out.footer[c][GRADSUM_LOSS], CONTRIBUTIONS * (CONTRIBUTIONS - 1) / 2);
    }
    return out;
}

static struct layout any_layout(struct rng_stream *rng) {
    struct layout l = {.ranks = 1 + (uint32_t)rng_below(rng, RANKS_MAX)};
    for (uint32_t c = 0; c < CHUNKS; c++) {
        for (uint32_t r = 0; r < l.ranks; r++) l.held[r][c] = rng_below(rng, 2) == 0;
        l.held[rng_below(rng, l.ranks)][c] = true;
    }
    return l;
}

static void any_distribution_over_any_holders_gives_the_same_bits(void **state) {
    (void)state;
    struct outcome want = plain_outcome();
    struct rng_stream rng = {99};
    for (uint64_t seed = 2; seed < 200; seed++) {
        struct layout l = any_layout(&rng);
        run_case(seed, &l, &want, NULL);
    }
}

static void one_worker_may_hold_both_ends(void **state) {
    (void)state;
    struct outcome want = plain_outcome();
    struct layout all = {.ranks = 1, .held = {{true, true, true}}};
    run_case(2, &all, &want, NULL);
    struct layout twice = {.ranks = 3,
                           .held = {{true, false, true}, {true, true, true}, {false, true, false}}};
    run_case(3, &twice, &want, NULL);
}

static void an_end_whose_gradient_is_there_gives_the_embedding_to_the_other(void **state) {
    (void)state;
    struct outcome want = plain_outcome();
    struct rng_stream rng = {7};
    for (uint64_t seed = 2; seed < 200; seed++) {
        struct layout l = any_layout(&rng);
        for (uint32_t c = 0; c < CHUNKS; c++) l.reduced[c] = rng_below(&rng, 2) == 0;
        run_case(seed, &l, &want, NULL);
    }
}

static void the_tied_embedding_sums_both_ends_and_the_middle_chunk_is_left_alone(void **state) {
    (void)state;
    struct outcome got = plain_outcome();
    assert_memory_equal(got.grad[0] + WTE_FIRST, got.grad[2] + WTE_LAST, WTE_COUNT * sizeof(float));
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 1, 0});
    struct node alone;
    node_open(&alone, sim, 1, 0);
    for (uint32_t c = 0; c < CHUNKS; c++)
        for (uint64_t m = 0; m < CONTRIBUTIONS; m++) contribute(&alone.parts[c], m);
    int64_t sum = alone.parts[0].sums[WTE_FIRST] + alone.parts[2].sums[WTE_LAST];
    float want[2];
    gradsum_mean(&sum, &want[0], 1, exponents[0][1], CONTRIBUTIONS);
    gradsum_mean(&alone.parts[1].sums[37], &want[1], 1, exponents[1][1], CONTRIBUTIONS);
    if (got.grad[0][WTE_FIRST] != want[0] || got.grad[1][37] != want[1])
        fail_msg("%a and %a, wanted %a and %a", (double)got.grad[0][WTE_FIRST], (double)got.grad[1][37],
                 (double)want[0], (double)want[1]);
    node_close(&alone);
    netsim_free(sim);
}

static int with_floats(void **state) {
    (void)state;
    kind = GRADSUM_FLOAT;
    coarse = true;
    return 0;
}

static int as_before(void **state) {
    (void)state;
    kind = GRADSUM_EXACT;
    coarse = false;
    arrival = 0;
    return 0;
}

static void float_sums_do_not_depend_on_what_arrives_first(void **state) {
    (void)state;
    coarse = false;
    struct layout l = {.ranks = 4, .held = {{true}, {true, true}, {true, false, true}, {true}}};
    struct outcome want;
    run_case(1, &l, NULL, &want);
    for (arrival = 1; arrival < 100; arrival++) run_case(1, &l, &want, NULL);
}

static void a_float_sum_that_is_not_finite_is_counted_and_its_gradient_cleared(void **state) {
    (void)state;
    struct netsim *sim = netsim_new(1, (struct netsim_config){1, 1, 0});
    struct node n;
    node_open(&n, sim, 1, 0);
    struct layout all = {.ranks = 1, .held = {{true, true, true}}};
    arm(&n, &all);
    for (uint32_t c = 0; c < CHUNKS; c++) contribute(&n.parts[c], 0);
    float bad = NAN;
    gradsum_add_float(gradsum_at(kind, n.parts[1].sums, 40), &bad, 1);
    struct rng_stream rng = {1};
    run_all(&n, &all, sim, &rng);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        assert_int_equal(n.parts[c].reduce.footer[GRADSUM_NONFINITE], c == 1);
        assert_true((n.parts[c].grad[40] == 0) == (c == 1));
    }
    node_close(&n);
    netsim_free(sim);
}

#define FLOATS(test) cmocka_unit_test_setup_teardown(test, with_floats, as_before)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_distribution_over_any_holders_gives_the_same_bits),
        cmocka_unit_test(one_worker_may_hold_both_ends),
        cmocka_unit_test(an_end_whose_gradient_is_there_gives_the_embedding_to_the_other),
        cmocka_unit_test(the_tied_embedding_sums_both_ends_and_the_middle_chunk_is_left_alone),
        FLOATS(any_distribution_over_any_holders_gives_the_same_bits),
        FLOATS(one_worker_may_hold_both_ends),
        FLOATS(an_end_whose_gradient_is_there_gives_the_embedding_to_the_other),
        FLOATS(float_sums_do_not_depend_on_what_arrives_first),
        FLOATS(a_float_sum_that_is_not_finite_is_counted_and_its_gradient_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
