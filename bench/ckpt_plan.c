/* What planning costs when many ranks save again and again: the metadata of RANKS ranks, each with a share of
 * one state, planned the first time (declared), the second time (from the layout) and without a layout; one
 * JSON object on stdout. No bytes of tensors are touched: their addresses are made up.
 *
 * The time that a save takes is put beside it as that of writing the rank's bytes at the rate given.
 *
 *   bench_ckpt_plan [RANKS] [TENSORS] [MIB_OF_A_RANK] [MB_PER_S] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "ckpt/layout.h"

#define CHUNK_BYTES ((uint64_t)4 << 20)

struct state {
    struct pawl_tensor *tensors;
    uint64_t (*shapes)[2];
    char (*names)[48];
    uint32_t count;
};

struct times {
    int64_t declare_ns, first_ns, second_ns, without_ns, header_ns;
    uint64_t tensors, header_bytes, orders;
};

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "ckpt_plan: %s: %s\n", what, why);
    exit(1);
}

/* Of all ranks together: one buffer a rank would be cut from it by ckpt_share_init. */
static void state_init(struct state *s, uint32_t count, uint64_t bytes) {
    s->count = count;
    s->tensors = calloc(count, sizeof *s->tensors);
    s->shapes = calloc(count, sizeof *s->shapes);
    s->names = calloc(count, sizeof *s->names);
    if (s->tensors == NULL || s->shapes == NULL || s->names == NULL) stop("memory", "none");
    uintptr_t at = (uintptr_t)1 << 44; /* never read */
    for (uint32_t i = 0; i < count; i++) {
        snprintf(s->names[i], sizeof s->names[i], "model.layers.%u.mlp.gate_proj.weight", i);
        s->shapes[i][0] = 1024;
        s->shapes[i][1] = bytes / count / 4096 + 1;
        s->tensors[i] = (struct pawl_tensor){
            .name = s->names[i], .dtype = PAWL_F32, .rank = 2, .shape = s->shapes[i], .data = (void *)at};
        at += s->shapes[i][0] * s->shapes[i][1] * 4 + 4096 * (i % 3); /* some neighbours, some not */
    }
}

static void plan_once(const struct ckpt_save *save, int64_t *ns, struct times *t) {
    static const struct ckpt_config config = {.chunk_bytes = CHUNK_BYTES};
    struct slot_plan plan;
    struct pawl_error e = {0};
    int64_t begin = clock_now_ns();
    if (slot_plan_make(&config, save, &plan, &e) != PAWL_OK) stop("plan", e.text);
    *ns += clock_now_ns() - begin;
    if (ns == &t->second_ns) {
        struct bytes text = {0};
        begin = clock_now_ns();
        if (slot_plan_header(&plan, &text, &e) != PAWL_OK) stop("header", e.text);
        t->header_ns += clock_now_ns() - begin;
        t->header_bytes += text.size;
        bytes_close(&text);
    }
    slot_plan_close(&plan);
}

/* One rank: declares its share and saves it twice, the second time from another buffer laid out alike. */
static void rank_plans(const struct state *s, uint32_t rank, uint32_t rank_count, struct times *t) {
    struct ckpt_share share;
    struct ckpt_layout *layout = NULL;
    struct pawl_error e = {0};
    int64_t begin = clock_now_ns();
    if (ckpt_share_init(s->tensors, s->count, rank, rank_count, &share, &e) != PAWL_OK) stop("share", e.text);
    if (ckpt_layout_new(share.tensors, share.count, &layout, &e) != PAWL_OK) stop("layout", e.text);
    t->declare_ns += clock_now_ns() - begin;
    void **data = calloc((size_t)share.count + 1, sizeof *data);
    if (data == NULL) stop("memory", "none");
    for (uint32_t i = 0; i < share.count; i++) data[i] = (uint8_t *)share.tensors[i].data + ((size_t)1 << 40);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part = rank, .part_count = rank_count, .layout = layout};
    plan_once(&save, &t->first_ns, t);
    save.step = 2;
    save.data = data;
    plan_once(&save, &t->second_ns, t);
    t->tensors += share.count;
    t->orders += layout->orders_made;
    struct ckpt_save without = {.step = 2,
                                .unit_count = 1,
                                .part = rank,
                                .part_count = rank_count,
                                .tensors = share.tensors,
                                .tensor_count = share.count};
    plan_once(&without, &t->without_ns, t);
    free(data);
    ckpt_layout_release(layout);
    ckpt_share_close(&share);
}

static double number(int argc, char **argv, int at, double otherwise) {
    return argc > at ? strtod(argv[at], NULL) : otherwise;
}

int main(int argc, char **argv) {
    uint32_t ranks = (uint32_t)number(argc, argv, 1, 1000), tensors = (uint32_t)number(argc, argv, 2, 100000);
    double mib = number(argc, argv, 3, 512), rate = number(argc, argv, 4, 4000);
    if (ranks < 1 || tensors < 1 || mib <= 0 || rate <= 0) stop("arguments", "wanted numbers above 0");
    struct state s;
    struct times t = {0};
    state_init(&s, tensors, (uint64_t)(mib * 1048576.0) * ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) rank_plans(&s, rank, ranks, &t);
    double each = 1e-3 / ranks, save_us = mib * 1048576.0 / rate;
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_i64(&j, "ranks", ranks);
    json_f64(&j, "tensors_of_a_rank", (double)t.tensors / ranks);
    json_f64(&j, "orders_of_a_rank", (double)t.orders / ranks);
    json_f64(&j, "header_kib_of_a_rank", (double)t.header_bytes / ranks / 1024);
    json_f64(&j, "declare_us", (double)t.declare_ns * each);
    json_f64(&j, "first_plan_us", (double)t.first_ns * each);
    json_f64(&j, "second_plan_us", (double)t.second_ns * each);
    json_f64(&j, "second_plan_ns_per_tensor", (double)t.second_ns / (double)t.tensors);
    json_f64(&j, "header_us", (double)t.header_ns * each);
    json_f64(&j, "plan_without_layout_us", (double)t.without_ns * each);
    json_f64(&j, "save_us", save_us);
    json_f64(&j, "second_plan_to_save", (double)(t.second_ns + t.header_ns) * each / save_us);
    json_end_object(&j);
    bytes_put_u8(&text, 0);
    if (!text.failed) puts((const char *)text.data);
    bytes_close(&text);
    free(s.tensors);
    free(s.shapes);
    free(s.names);
    return 0;
}
