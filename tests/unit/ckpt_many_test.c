/* Reading a lot at once: every chunk once, all stores at the same time, into any kind of memory; what is
 * damaged in one copy comes from another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "ckpt/set.h"
#include "kit/box_kit.h"

#define SLOT "slot-000000.safetensors"

static struct ckpt_set *set_of(struct world *w, const struct ckpt_set_options *options) {
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    if (ckpt_set_open_with(w->stores, w->rank_count, options, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    return set;
}

static const struct ckpt_set_options none;

/* Whole tensors, each into fresh memory. */
static struct pawl_tensor *wants_of(const struct world *w) {
    struct pawl_tensor *wants = calloc(w->global_count, sizeof *wants);
    assert_non_null(wants);
    for (uint32_t i = 0; i < w->global_count; i++) {
        wants[i] = tensor_of(&w->globals[i], NULL, NULL, NULL);
        wants[i].data = calloc(w->globals[i].bytes + 1, 1);
        assert_non_null(wants[i].data);
    }
    return wants;
}

static bool equal_to_saved(const struct world *w, const struct pawl_tensor *wants) {
    for (uint32_t i = 0; i < w->global_count; i++)
        if (memcmp(wants[i].data, w->globals[i].data, w->globals[i].bytes) != 0) return false;
    return true;
}

static void wants_free(const struct world *w, struct pawl_tensor *wants) {
    for (uint32_t i = 0; i < w->global_count; i++) free(wants[i].data);
    free(wants);
}

/* Tensors of many sizes, cut into boxes, `copies` times over the ranks: each time cut otherwise. */
static struct world *world_with(uint64_t seed, uint32_t ranks, uint32_t copies, uint64_t chunk_bytes) {
    struct world *w = world_new(seed, ranks);
    for (uint32_t i = 0; i < BOX_KIT_TENSORS; i++) {
        uint64_t shape[3] = {1 + rng_below(&w->random, 40), 1 + rng_below(&w->random, 30),
                             4 * (1 + rng_below(&w->random, 8))};
        add_global(w, i % 3 == 0 ? PAWL_F4 : i % 3 == 1 ? PAWL_F32 : PAWL_U8, 1 + i % 3, shape + 2 - i % 3);
    }
    for (uint32_t copy = 0; copy < copies; copy++) {
        uint32_t before = w->piece_count;
        for (uint32_t i = 0; i < w->global_count; i++)
            scatter(w, i, w->globals[i].zeros, w->globals[i].shape, 4);
        for (uint32_t i = before; i < w->piece_count; i++) /* boxes of one copy never overlap within a rank */
            w->pieces[i].rank = w->pieces[i].rank / copies * copies + copy;
    }
    save_all(w, chunk_bytes);
    return w;
}

/* ---- once, and from everywhere ---- */

static void every_chunk_is_read_once_by_a_call(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world *w = world_with(seed, 1 + (uint32_t)(seed % 5), 1, 4096);
        struct ckpt_set *set = set_of(w, &none);
        struct pawl_tensor *wants = wants_of(w);
        struct pawl_error e = {0};
        if (ckpt_set_read_many(set, 0, wants, w->global_count, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_true(equal_to_saved(w, wants));
        uint64_t bytes = 0;
        assert_int_equal(ckpt_set_part_count(set, 0), w->rank_count);
        for (uint32_t i = 0; i < w->rank_count; i++) {
            struct ckpt_part part = ckpt_set_part(set, 0, i);
            assert_int_equal(part.part, i);
            assert_int_equal(part.part_count, w->rank_count);
            assert_string_equal(part.file, SLOT);
            assert_ptr_equal(part.store, w->stores[i]);
            assert_false(part.unchecked);
            assert_true(part.file_bytes > part.data_bytes);
            assert_int_equal(ckpt_set_bytes_read(set, part.store), part.data_bytes);
            bytes += part.data_bytes;
        }
        assert_int_equal(ckpt_set_bytes_read(set, NULL), bytes);
        assert_null(ckpt_set_part(set, 0, w->rank_count).file);
        wants_free(w, wants);
        ckpt_set_close(set);
        world_free(w);
    }
}

static uint64_t room_of_lines(const struct ckpt_set *set) {
    uint64_t room = 0;
    for (uint32_t i = 0; i < SET_LINES; i++) room += set->lines[i].room;
    return room;
}

/* Small chunks that fill it, then large ones, for which some of them have to go, then small ones again. */
static void memory_for_chunks_stays_within_its_bound(void **state) {
    (void)state;
    static const uint64_t sizes[2] = {(64u << 20) + 12288, 49u << 20}, chunks[2] = {1u << 20, 16u << 20};
    struct world *w = world_new(1, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct ckpt_config config = kit_config(1, 0, 1, 1);
        config.chunk_bytes = chunks[rank];
        add_global(w, PAWL_U8, 1, &sizes[rank]);
        add_box(w, rank, rank, w->globals[rank].zeros, w->globals[rank].shape);
        save_rank(w, rank, &config, 1);
    }
    struct ckpt_set *set = set_of(w, &none);
    uint8_t *memory = malloc(sizes[0] + 1);
    assert_non_null(memory);
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t *out = memory + ((uintptr_t)memory % STORE_BLOCK == 0); /* never aligned */
        struct pawl_tensor want = tensor_of(&w->globals[i % 2], NULL, NULL, out);
        assert_int_equal(ckpt_set_read(set, 0, &want, NULL), PAWL_OK);
        assert_true(memcmp(out, w->globals[i % 2].data, sizes[i % 2]) == 0);
        assert_in_range(set->line_bytes, 1, SET_LINE_BYTES);
        assert_int_equal(room_of_lines(set), set->line_bytes);
    }
    free(memory);
    ckpt_set_close(set);
    world_free(w);
}

/* Neighbours in the file that are neighbours in memory are read into it as they are. */
static void what_lies_side_by_side_is_read_in_place_and_nothing_beside_it_is_touched(void **state) {
    (void)state;
    enum { COUNT = 8, BYTES = 2048 };
    struct world *w = world_new(1, 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        add_global(w, PAWL_U8, 1, (uint64_t[]){BYTES});
        add_box(w, 0 + i, 0, w->globals[i].zeros, w->globals[i].shape);
    }
    save_all(w, 4096);
    uint8_t *memory = mem_alloc((COUNT + 2) * BYTES);
    assert_non_null(memory);
    static const struct {
        uint32_t count, tensor[COUNT], place[COUNT]; /* place: in units of a tensor */
        bool in_place;
    } cases[] = {
        {COUNT, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}, true},
        {COUNT, {7, 6, 5, 4, 3, 2, 1, 0}, {7, 6, 5, 4, 3, 2, 1, 0}, true},
        {COUNT, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 3, 2, 1, 4, 7, 6, 5}, false}, /* halves of a chunk apart */
        {2, {0, 0}, {0, 0}, false},                                         /* the same half twice */
        {1, {0}, {0}, false},                                               /* half of a chunk only */
        {1, {1}, {1}, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct ckpt_set *set = set_of(w, &none);
        struct pawl_tensor wants[COUNT];
        bool filled[COUNT + 2] = {false};
        memset(memory, 0xA5, (COUNT + 2) * BYTES);
        for (uint32_t i = 0; i < cases[c].count; i++)
            wants[i] =
                tensor_of(&w->globals[cases[c].tensor[i]], NULL, NULL, memory + cases[c].place[i] * BYTES);
        assert_int_equal(ckpt_set_read_many(set, 0, wants, cases[c].count, NULL), PAWL_OK);
        for (uint32_t i = 0; i < cases[c].count; i++) {
            assert_memory_equal(wants[i].data, w->globals[cases[c].tensor[i]].data, BYTES);
            filled[cases[c].place[i]] = true;
        }
        for (uint32_t i = 0; i < (COUNT + 2) * BYTES; i++)
            if (!filled[i / BYTES]) assert_int_equal(memory[i], 0xA5);
        assert_int_equal(set->line_bytes == 0, cases[c].in_place); /* no memory but the caller's was needed */
        ckpt_set_close(set);
    }
    mem_free(memory, (COUNT + 2) * BYTES);
    world_free(w);
}

/* ---- damage ---- */

static void flip(struct world *w, uint32_t rank, uint64_t byte) {
    char folder[16];
    snprintf(folder, sizeof folder, "r%u", rank);
    storesim_flip(w->sim, folder, SLOT, byte, 0x10);
}

static uint64_t data_begin(const struct ckpt_set *set, uint32_t part) {
    struct ckpt_part p = ckpt_set_part(set, 0, part);
    return p.file_bytes - p.data_bytes;
}

static void whatever_is_damaged_in_one_copy_comes_from_the_other(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world *w = world_with(seed, 2 + 2 * (uint32_t)(seed % 3), 2, 4096);
        struct ckpt_set *set = set_of(w, &none);
        uint32_t copy = (uint32_t)(seed / 3 % 2); /* of the two, anything in the ranks of this one */
        uint64_t flips = 1 + rng_below(&w->random, 6);
        for (uint64_t i = 0; i < flips; i++) {
            uint32_t rank = copy + 2 * (uint32_t)rng_below(&w->random, w->rank_count / 2);
            uint64_t data_bytes = ckpt_set_part(set, 0, rank).data_bytes;
            if (data_bytes > 0) flip(w, rank, data_begin(set, rank) + rng_below(&w->random, data_bytes));
        }
        struct pawl_tensor *wants = wants_of(w);
        struct pawl_error e = {0};
        if (ckpt_set_read_many(set, 0, wants, w->global_count, &e) != PAWL_OK)
            fail_msg("seed %" PRIu64 ": %s", seed, e.text);
        assert_true(equal_to_saved(w, wants));
        for (uint32_t i = 0; ckpt_set_problem(set, i) != NULL; i++)
            assert_non_null(strstr(ckpt_set_problem(set, i), "does not match its checksum"));
        wants_free(w, wants);
        ckpt_set_close(set);
        world_free(w);
    }
}

static bool told(const struct ckpt_set *set, const char *what) {
    for (uint32_t i = 0; ckpt_set_problem(set, i) != NULL; i++)
        if (strstr(ckpt_set_problem(set, i), what) != NULL) return true;
    return false;
}

/* A tensor of 64 rows, one chunk each, whole in both stores. */
static struct world *two_copies(void) {
    struct world *w = world_new(1, 2);
    add_global(w, PAWL_F32, 2, (uint64_t[]){64, 1024});
    for (uint32_t rank = 0; rank < 2; rank++) add_box(w, 0, rank, w->globals[0].zeros, w->globals[0].shape);
    save_all(w, 4096);
    return w;
}

static void copies_damaged_in_different_places_make_up_a_whole(void **state) {
    (void)state;
    struct world *w = two_copies();
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    struct pawl_error e = {0};
    for (uint32_t row = 0; row < 64; row += 3)
        flip(w, row / 3 % 2, data_begin(set, row / 3 % 2) + 4096 * row);
    if (ckpt_set_read_many(set, 0, wants, 1, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_true(equal_to_saved(w, wants));
    assert_true(told(set, "r0/" SLOT ": chunk 0 (bytes ")); /* each by name; those of r1 need not be met */
    assert_true(told(set, "r0/" SLOT ": chunk 60 (bytes "));
    assert_false(told(set, "r0/" SLOT ": chunk 3 (bytes "));
    ckpt_set_close(set);
    set = set_of(w, &none);
    flip(w, 0, data_begin(set, 0) + 4096 * 9 + 1); /* now row 9 is damaged in both */
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "chunk 9 (bytes "));
    uint64_t begin[2] = {10, 0}, extent[2] = {54, 1024};
    wants[0].begin = begin;
    wants[0].extent = extent;
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_OK); /* the rest is as good as before */
    assert_memory_equal(wants[0].data, w->globals[0].data + 40960, 54 * 4096);
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

static void a_file_that_vanished_is_replaced_by_its_copy(void **state) {
    (void)state;
    struct world *w = two_copies();
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    for (uint32_t i = 0; i < set->part_count; i++) { /* as after a restart of the reader's file system */
        store_file_close(set->parts[i].file);
        set->parts[i].file = NULL;
    }
    assert_int_equal(store_remove(w->stores[0], SLOT, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, NULL), PAWL_OK);
    assert_true(equal_to_saved(w, wants));
    assert_non_null(strstr(ckpt_set_problem(set, 0), "r0/" SLOT));
    assert_null(ckpt_set_problem(set, 1)); /* told once */
    assert_int_equal(ckpt_set_bytes_read(set, w->stores[0]), 0);
    ckpt_set_close(set);
    set = set_of(w, &none); /* missing from the start */
    assert_int_equal(ckpt_set_part_count(set, 0), 1);
    struct pawl_error e = {0};
    assert_false(ckpt_set_at(set, 0)->complete);
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_OK);
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

static void a_device_that_cannot_read_is_an_error_with_its_cause(void **state) {
    (void)state;
    struct world *w = two_copies();
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    struct pawl_error e = {0};
    storesim_set_faults(w->sim, (struct storesim_faults){.read_eio = 1000000});
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_IO);
    assert_non_null(strstr(e.text, "EIO"));
    assert_non_null(strstr(e.text, "'g0'"));
    storesim_set_faults(w->sim, (struct storesim_faults){0}); /* it was not the file's fault for ever */
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_OK);
    assert_true(equal_to_saved(w, wants));
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

/* ---- without checksums ---- */

static void slots_without_checksums_are_read_on_request_only(void **state) {
    (void)state;
    struct world *w = world_new(1, 2);
    add_global(w, PAWL_F32, 2, (uint64_t[]){64, 1024});
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct ckpt_config config = kit_config(1, 0, 1, 1);
        config.unchecked = rank == 1;
        add_box(w, 0, rank, (uint64_t[]){32 * rank, 0}, (uint64_t[]){32, 1024});
        save_rank(w, rank, &config, 1);
    }
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    struct pawl_error e = {0};
    assert_false(ckpt_set_at(set, 0)->complete);
    assert_string_equal(ckpt_set_at(set, 0)->missing, "unit 0 of 1: part 1 of 2");
    assert_non_null(strstr(ckpt_set_problem(set, 0), "without checksums; the option 'unchecked'"));
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_NOT_FOUND);
    ckpt_set_close(set);
    set = set_of(w, &(struct ckpt_set_options){.unchecked = true});
    assert_true(ckpt_set_at(set, 0)->complete);
    assert_null(ckpt_set_problem(set, 0));
    assert_false(ckpt_set_part(set, 0, 0).unchecked);
    assert_true(ckpt_set_part(set, 0, 1).unchecked);
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_OK);
    assert_true(equal_to_saved(w, wants));
    flip(w, 0, data_begin(set, 0) + 5); /* what has checksums is verified all the same */
    ckpt_set_close(set);
    set = set_of(w, &(struct ckpt_set_options){.unchecked = true});
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_CORRUPT);
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

/* ---- memory of another kind ---- */

/* Addresses of the device are not of this process: touching them is a crash. */
#define FAR          ((uintptr_t)1 << 60)
#define PENDING_MOST 64u

struct device {
    struct pawl_memory memory;
    pthread_mutex_t mutex;
    pthread_cond_t more;
    pthread_t thread;
    struct {
        const void *source;
        void *target;
        size_t bytes;
        struct pawl_copy *copy;
    } pending[PENDING_MOST];
    uint32_t count, most, stores_most;
    bool stop;
    uint64_t copies, fail_at, refuse_at; /* the how-manieth copy fails, is refused; 0: none */
    const struct ckpt_set *set;
};

/* Takes the newest first, and waits a moment for more, so that copies end late and out of order. */
static void *device_main(void *arg) {
    struct device *d = arg;
    pthread_mutex_lock(&d->mutex);
    while (!d->stop || d->count > 0) {
        struct timespec soon;
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 500000;
        if (soon.tv_nsec >= 1000000000) soon = (struct timespec){soon.tv_sec + 1, soon.tv_nsec - 1000000000};
        if (d->count < 4 && pthread_cond_timedwait(&d->more, &d->mutex, &soon) == 0) continue;
        if (d->count == 0) continue;
        d->count--;
        struct pawl_copy *copy = d->pending[d->count].copy;
        memcpy(d->pending[d->count].target, d->pending[d->count].source, d->pending[d->count].bytes);
        pawl_code code = ++d->copies == d->fail_at ? PAWL_IO : PAWL_OK;
        pthread_mutex_unlock(&d->mutex);
        pawl_copy_done(copy, code);
        pthread_mutex_lock(&d->mutex);
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static pawl_code device_copy_in(void *context, const void *source, void *target, size_t bytes,
                                struct pawl_copy *copy, struct pawl_error *e) {
    struct device *d = context;
    uint32_t reading = 0;
    for (uint32_t i = 0; d->set != NULL && i < d->set->store_count; i++)
        reading += d->set->stores[i].in_flight > 0;
    pthread_mutex_lock(&d->mutex);
    if (reading > d->stores_most) d->stores_most = reading;
    bool refuse = d->refuse_at != 0 && d->copies + d->count + 1 >= d->refuse_at;
    if (!refuse) {
        assert_true(d->count < PENDING_MOST);
        d->pending[d->count].source = source;
        d->pending[d->count].target = (void *)((uintptr_t)target - FAR);
        d->pending[d->count].bytes = bytes;
        d->pending[d->count++].copy = copy;
        if (d->count > d->most) d->most = d->count;
    }
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->mutex);
    return refuse ? error_set(e, PAWL_ARGUMENT, 0, "no such page") : PAWL_OK;
}

static struct device *device_new(void) {
    struct device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->memory = (struct pawl_memory){.name = "fake:0", .context = d, .copy_in = device_copy_in};
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->more, NULL);
    assert_int_equal(pthread_create(&d->thread, NULL, device_main, d), 0);
    return d;
}

static void device_free(struct device *d) {
    pthread_mutex_lock(&d->mutex);
    d->stop = true;
    pthread_cond_signal(&d->more);
    pthread_mutex_unlock(&d->mutex);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->more);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

/* Every other tensor, or all, to the device. */
static void move_to_device(const struct world *w, struct pawl_tensor *wants, struct device *d,
                           uint32_t each) {
    for (uint32_t i = 0; i < w->global_count; i += each) {
        wants[i].memory = &d->memory;
        wants[i].data = (void *)((uintptr_t)wants[i].data + FAR);
    }
}

static void move_back(const struct world *w, struct pawl_tensor *wants) {
    for (uint32_t i = 0; i < w->global_count; i++) {
        if (wants[i].memory != NULL) wants[i].data = (void *)((uintptr_t)wants[i].data - FAR);
        wants[i].memory = NULL;
    }
}

static void a_device_that_copies_late_and_out_of_order_gets_the_same_bytes(void **state) {
    (void)state;
    uint32_t most = 0, stores_most = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world *w = world_with(seed, 4, 2, 4096);
        struct ckpt_set *set = set_of(w, &none);
        struct device *d = device_new();
        struct pawl_tensor *wants = wants_of(w);
        struct pawl_error e = {0};
        d->set = set;
        if (seed % 2 == 0 && ckpt_set_part(set, 0, 0).data_bytes > 0) flip(w, 0, data_begin(set, 0));
        move_to_device(w, wants, d, 1 + (uint32_t)(seed % 2));
        if (ckpt_set_read_many(set, 0, wants, w->global_count, &e) != PAWL_OK) fail_msg("%s", e.text);
        move_back(w, wants);
        assert_true(equal_to_saved(w, wants));
        for (uint32_t i = 0; i < SET_LINES; i++) assert_int_equal(set->lines[i].copies, 0);
        if (d->most > most) most = d->most;
        if (d->stores_most > stores_most) stores_most = d->stores_most;
        device_free(d);
        wants_free(w, wants);
        ckpt_set_close(set);
        world_free(w);
    }
    assert_in_range(most, 4, PENDING_MOST);
    assert_in_range(stores_most, 2, 4); /* several stores were reading while copies went on */
}

static void a_copy_that_fails_or_is_refused_ends_the_call_when_all_others_have_ended(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world *w = world_with(seed, 3, 1, 4096);
        struct ckpt_set *set = set_of(w, &none);
        struct device *d = device_new();
        struct pawl_tensor *wants = wants_of(w);
        struct pawl_error e = {0};
        if (seed % 2 == 0)
            d->fail_at = 1 + seed / 2;
        else
            d->refuse_at = 1 + seed / 2;
        move_to_device(w, wants, d, 1);
        pawl_code code = ckpt_set_read_many(set, 0, wants, w->global_count, &e);
        assert_int_equal(code, seed % 2 == 0 ? PAWL_IO : PAWL_ARGUMENT);
        if (strstr(e.text, "fake:0: copying in failed") == NULL) fail_msg("%s", e.text);
        if (seed % 2 != 0) assert_non_null(strstr(e.text, "no such page"));
        pthread_mutex_lock(&d->mutex);
        assert_int_equal(d->count, 0); /* nothing writes to the memory any more */
        pthread_mutex_unlock(&d->mutex);
        device_free(d);
        move_back(w, wants);
        wants_free(w, wants);
        ckpt_set_close(set);
        world_free(w);
    }
}

static void memory_that_cannot_be_restored_into_is_refused_by_name(void **state) {
    (void)state;
    static const struct pawl_memory one_way = {.name = "one-way"};
    struct world *w = two_copies();
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    struct pawl_error e = {0};
    wants[0].memory = &one_way;
    assert_int_equal(ckpt_set_read_many(set, 0, wants, 1, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "'g0': memory"));
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

static void one_wrong_tensor_among_many_is_named_before_anything_is_read(void **state) {
    (void)state;
    struct world *w = world_with(5, 2, 1, 4096);
    struct ckpt_set *set = set_of(w, &none);
    struct pawl_tensor *wants = wants_of(w);
    struct pawl_error e = {0};
    uint32_t last = w->global_count - 1;
    enum pawl_dtype dtype = wants[last].dtype;
    wants[last].dtype = PAWL_F64;
    assert_int_equal(ckpt_set_read_many(set, 0, wants, w->global_count, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, w->globals[last].name));
    assert_non_null(strstr(e.text, "wanted F64["));
    wants[last].dtype = dtype;
    wants[last].name = "nobody";
    assert_int_equal(ckpt_set_read_many(set, 0, wants, w->global_count, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "'nobody'"));
    wants[last].name = w->globals[last].name;
    void *data = wants[last].data;
    wants[last].data = NULL;
    assert_int_equal(ckpt_set_read_many(set, 0, wants, w->global_count, &e), PAWL_ARGUMENT);
    wants[last].data = data;
    assert_int_equal(ckpt_set_bytes_read(set, NULL), 0);
    assert_int_equal(ckpt_set_read_many(set, 0, NULL, 0, &e), PAWL_OK);
    assert_int_equal(ckpt_set_read_many(set, 1, wants, 1, &e), PAWL_ARGUMENT);
    wants_free(w, wants);
    ckpt_set_close(set);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_is_read_once_by_a_call),
        cmocka_unit_test(memory_for_chunks_stays_within_its_bound),
        cmocka_unit_test(what_lies_side_by_side_is_read_in_place_and_nothing_beside_it_is_touched),
        cmocka_unit_test(whatever_is_damaged_in_one_copy_comes_from_the_other),
        cmocka_unit_test(copies_damaged_in_different_places_make_up_a_whole),
        cmocka_unit_test(a_file_that_vanished_is_replaced_by_its_copy),
        cmocka_unit_test(a_device_that_cannot_read_is_an_error_with_its_cause),
        cmocka_unit_test(slots_without_checksums_are_read_on_request_only),
        cmocka_unit_test(a_device_that_copies_late_and_out_of_order_gets_the_same_bytes),
        cmocka_unit_test(a_copy_that_fails_or_is_refused_ends_the_call_when_all_others_have_ended),
        cmocka_unit_test(memory_that_cannot_be_restored_into_is_refused_by_name),
        cmocka_unit_test(one_wrong_tensor_among_many_is_named_before_anything_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
