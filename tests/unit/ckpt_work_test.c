/* Large reads, which threads verify and hand out: whole in spite of damage where there is a copy, and an
 * error that names it where there is none. What the page cache holds is read from there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kit/ckpt_kit.h"

/* In all 72 MiB: more than is read without threads. */
#define TENSORS     72u
#define TENSOR_MEAN ((uint64_t)1 << 20)
#define CHUNK_BYTES ((uint64_t)1 << 20)
#define STORES      2u
#define FILE_NAME   "slot-000000.safetensors"

struct place {
    char path[256];
    struct store *stores[STORES]; /* each has all of step 1 */
    struct pawl_tensor tensors[TENSORS];
    uint64_t shapes[TENSORS], bytes;
    char names[TENSORS][16];
    uint8_t *saved, *memory;
};

static void point_to(struct place *p, uint8_t *memory) {
    for (uint32_t i = 0; i < TENSORS; i++) {
        p->tensors[i].data = memory;
        memory += p->shapes[i];
    }
}

static void save(struct place *p, struct store *store) {
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.chunk_bytes = CHUNK_BYTES;
    struct ckpt *c = NULL;
    struct ckpt_save s = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = p->tensors, .tensor_count = TENSORS};
    assert_int_equal(ckpt_open(&config, store, &c, NULL), PAWL_OK);
    assert_int_equal(ckpt_save_begin(c, &s, NULL), PAWL_OK);
    assert_int_equal(kit_wait(c, store).code, PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
}

static int begin(void **state) {
    struct place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    snprintf(p->path, sizeof p->path, "%s/work-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(p->path));
    for (uint32_t i = 0; i < TENSORS; i++) {
        snprintf(p->names[i], sizeof p->names[i], "t%02u", i);
        p->shapes[i] = TENSOR_MEAN + i * 37 - TENSORS * 18;
        p->tensors[i] =
            (struct pawl_tensor){.name = p->names[i], .dtype = PAWL_U8, .rank = 1, .shape = &p->shapes[i]};
        p->bytes += p->shapes[i];
    }
    p->saved = malloc(p->bytes);
    p->memory = calloc(1, p->bytes);
    assert_true(p->saved != NULL && p->memory != NULL);
    for (uint64_t i = 0; i < p->bytes; i++) p->saved[i] = (uint8_t)((i * 0x9e3779b97f4a7c15u) >> 56);
    point_to(p, p->saved);
    for (uint32_t i = 0; i < STORES; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%u", p->path, i);
        assert_int_equal(store_open(path, STORE_AUTO, false, &p->stores[i], NULL, NULL), PAWL_OK);
        save(p, p->stores[i]);
    }
    point_to(p, p->memory);
    *state = p;
    return 0;
}

static int end(void **state) {
    struct place *p = *state;
    char command[300];
    for (uint32_t i = 0; i < STORES; i++) store_close(p->stores[i]);
    snprintf(command, sizeof command, "rm -rf '%s'", p->path);
    assert_int_equal(system(command), 0);
    free(p->saved);
    free(p->memory);
    free(p);
    return 0;
}

static int slot_of(const struct place *p, uint32_t store) {
    char path[300];
    snprintf(path, sizeof path, "%s/%u/%s", p->path, store, FILE_NAME);
    int fd = open(path, O_RDWR);
    if (fd < 0) fail_msg("%s: cannot open", path);
    return fd;
}

/* A byte in the middle of this chunk of the data, which ends the file. */
static void flip(const struct place *p, uint32_t store, uint64_t chunk) {
    int fd = slot_of(p, store);
    struct stat st;
    uint8_t byte = 0;
    assert_int_equal(fstat(fd, &st), 0);
    off_t at = st.st_size - (off_t)((p->bytes + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK) +
               (off_t)(chunk * CHUNK_BYTES + CHUNK_BYTES / 2);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static struct ckpt_set *open_set(struct place *p, uint32_t count) {
    struct ckpt_set *set = NULL;
    struct ckpt_set_options options = {.prefer = p->stores[0]};
    assert_int_equal(ckpt_set_open_with(p->stores, count, &options, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 1);
    return set;
}

static uint32_t problems_of(const struct ckpt_set *set) {
    uint32_t count = 0;
    while (ckpt_set_problem(set, count) != NULL) count++;
    return count;
}

static void read_whole(struct place *p, struct ckpt_set *set) {
    struct pawl_error e = {0};
    memset(p->memory, 0, p->bytes);
    if (ckpt_set_read_many(set, 0, p->tensors, TENSORS, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_memory_equal(p->memory, p->saved, p->bytes);
}

static void what_was_saved_is_read(void **state) {
    struct place *p = *state;
    struct ckpt_set *set = open_set(p, 1);
    read_whole(p, set);
    assert_int_equal(problems_of(set), 0);
    ckpt_set_close(set);
}

static void damaged_chunks_come_from_the_copy(void **state) {
    struct place *p = *state;
    for (uint64_t chunk = 0; chunk < 60; chunk += 3) flip(p, 0, chunk);
    for (uint64_t chunk = 1; chunk < 60; chunk += 7) /* others */
        if (chunk % 3 != 0) flip(p, 1, chunk);
    struct ckpt_set *set = open_set(p, STORES);
    read_whole(p, set);
    assert_int_equal(problems_of(set), 20);
    ckpt_set_close(set);
}

static void damage_without_a_copy_is_named(void **state) {
    struct place *p = *state;
    flip(p, 0, 40);
    flip(p, 1, 40);
    struct pawl_error e = {0};
    struct ckpt_set *set = open_set(p, STORES);
    assert_int_equal(ckpt_set_read_many(set, 0, p->tensors, TENSORS, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "chunk 40 "));
    assert_non_null(strstr(e.text, FILE_NAME));
    ckpt_set_close(set);
}

/* A chunk of the page cache that does not match is read again; the device has the last word. */
static void the_page_cache_is_not_believed(void **state) {
    struct place *p = *state;
    flip(p, 0, 5);
    int fd = slot_of(p, 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    struct ckpt_set *set = open_set(p, STORES);
    read_whole(p, set);
    uint64_t data = (p->bytes + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK;
    assert_int_equal(ckpt_set_bytes_read(set, p->stores[0]), data + CHUNK_BYTES);
    assert_int_equal(ckpt_set_bytes_read(set, p->stores[1]), CHUNK_BYTES);
    assert_int_not_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    ckpt_set_close(set);
    munmap(map, (size_t)st.st_size);
    close(fd);
}

/* Every second run of eight MiB of the file is in the page cache, the rest is not. */
static void warm_a_half(const struct place *p) {
    int fd = slot_of(p, 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
    uint8_t *memory = malloc(CHUNK_BYTES);
    assert_non_null(memory);
    for (off_t at = 0; at < st.st_size;
         at += at / (off_t)CHUNK_BYTES % 8 == 7 ? 9 * (off_t)CHUNK_BYTES : (off_t)CHUNK_BYTES)
        assert_true(pread(fd, memory, CHUNK_BYTES, at) > 0);
    free(memory);
    close(fd);
}

/* Tensors wanted whole, and some of them once more in part: bytes that go to two places, and to one. */
static void a_half_of_the_file_in_the_page_cache(void **state) {
    enum { EXTRA = TENSORS / 3, SKIP = 100001 };
    struct place *p = *state;
    struct pawl_tensor want[TENSORS + EXTRA];
    uint64_t begin[1] = {SKIP}, extents[EXTRA], at = 0;
    uint8_t *parts = calloc(EXTRA, 2 * TENSOR_MEAN);
    assert_non_null(parts);
    memcpy(want, p->tensors, sizeof p->tensors);
    for (uint32_t i = 0; i < EXTRA; i++) {
        extents[i] = p->shapes[3 * i] - 2 * SKIP;
        want[TENSORS + i] = p->tensors[3 * i];
        want[TENSORS + i].begin = begin;
        want[TENSORS + i].extent = &extents[i];
        want[TENSORS + i].data = parts + (size_t)i * 2 * TENSOR_MEAN + 1;
    }
    warm_a_half(p);
    struct ckpt_set *set = open_set(p, 1);
    memset(p->memory, 0, p->bytes);
    assert_int_equal(ckpt_set_read_many(set, 0, want, TENSORS + EXTRA, NULL), PAWL_OK);
    assert_memory_equal(p->memory, p->saved, p->bytes);
    for (uint32_t i = 0; i < TENSORS; at += p->shapes[i++])
        if (i % 3 == 0) assert_memory_equal(want[TENSORS + i / 3].data, p->saved + at + SKIP, extents[i / 3]);
    ckpt_set_close(set);
    free(parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_saved_is_read, begin, end),
        cmocka_unit_test_setup_teardown(damaged_chunks_come_from_the_copy, begin, end),
        cmocka_unit_test_setup_teardown(damage_without_a_copy_is_named, begin, end),
        cmocka_unit_test_setup_teardown(the_page_cache_is_not_believed, begin, end),
        cmocka_unit_test_setup_teardown(a_half_of_the_file_in_the_page_cache, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
