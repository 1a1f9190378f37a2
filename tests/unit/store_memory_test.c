/* Registered memory: what is found where, how much the kernel takes at once, and that operations work with
 * any mixture of memory that is registered and not. */
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "kit/store_kit.h"
#include "store/uring_memory.h"

#define PAGES_BYTES ((size_t)2 << 20)

static void ring_begin(struct io_uring *ring) {
    if (io_uring_queue_init(4, ring, 0) != 0) skip();
}

/* As much address space as wanted on two mebibytes of memory. */
static uint8_t *wide_memory(size_t bytes) {
    int fd = memfd_create("wide", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)PAGES_BYTES), 0);
    uint8_t *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += PAGES_BYTES)
        assert_ptr_equal(mmap(base + at, bytes - at < PAGES_BYTES ? bytes - at : PAGES_BYTES,
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                         base + at);
    close(fd);
    return base;
}

static void memory_is_found_by_its_bytes_until_it_is_given_up(void **state) {
    (void)state;
    struct io_uring ring;
    static struct uring_memory m;
    memset(&m, 0, sizeof m);
    ring_begin(&ring);
    uint8_t *a = mem_alloc(16 * STORE_BLOCK), *b = mem_alloc(4 * STORE_BLOCK);
    uring_memory_add(&m, &ring, a, 16 * STORE_BLOCK);
    if (m.refused) skip();
    uring_memory_add(&m, &ring, b, 4 * STORE_BLOCK);
    assert_int_equal(uring_memory_find(&m, a, 16 * STORE_BLOCK), 0);
    assert_int_equal(uring_memory_find(&m, a + 15 * STORE_BLOCK, STORE_BLOCK), 0);
    assert_int_equal(uring_memory_find(&m, a + 15 * STORE_BLOCK, 2 * STORE_BLOCK), -1);
    assert_int_equal(uring_memory_find(&m, a + 16 * STORE_BLOCK, STORE_BLOCK),
                     b == a + 16 * STORE_BLOCK ? 1 : -1);
    assert_int_equal(uring_memory_find(&m, b, 4 * STORE_BLOCK), 1);
    uring_memory_remove(&m, &ring, a);
    assert_int_equal(uring_memory_find(&m, a, STORE_BLOCK), -1);
    assert_int_equal(uring_memory_find(&m, b, STORE_BLOCK), 1);
    uring_memory_add(&m, &ring, a, 16 * STORE_BLOCK); /* the free entry is used again */
    assert_int_equal(uring_memory_find(&m, a, STORE_BLOCK), 0);
    io_uring_queue_exit(&ring);
    mem_free(a, 16 * STORE_BLOCK);
    mem_free(b, 4 * STORE_BLOCK);
}

static void memory_beyond_what_one_entry_holds_takes_several(void **state) {
    (void)state;
    struct io_uring ring;
    static struct uring_memory m;
    memset(&m, 0, sizeof m);
    ring_begin(&ring);
    const size_t bytes = URING_MEMORY_BYTES_MAX + 3 * PAGES_BYTES;
    uint8_t *wide = wide_memory(bytes);
    uring_memory_add(&m, &ring, wide, PAGES_BYTES);
    if (uring_memory_find(&m, wide, PAGES_BYTES) < 0) skip(); /* no table, or no memory may be locked */
    uring_memory_remove(&m, &ring, wide);
    uring_memory_add(&m, &ring, wide, bytes);
    assert_int_equal(uring_memory_find(&m, wide, URING_MEMORY_BYTES_MAX), 0);
    assert_int_equal(uring_memory_find(&m, wide + URING_MEMORY_BYTES_MAX, 3 * PAGES_BYTES), 1);
    assert_int_equal(uring_memory_find(&m, wide + URING_MEMORY_BYTES_MAX - STORE_BLOCK, 2 * STORE_BLOCK), -1);
    uring_memory_remove(&m, &ring, wide);
    assert_int_equal(m.used, 0);
    io_uring_queue_exit(&ring);
    munmap(wide, bytes);
}

static void a_full_table_leaves_the_rest_unregistered(void **state) {
    (void)state;
    struct io_uring ring;
    static struct uring_memory m;
    memset(&m, 0, sizeof m);
    ring_begin(&ring);
    const size_t bytes = (URING_MEMORY_COUNT + 2) * STORE_BLOCK;
    uint8_t *memory = mem_alloc(bytes);
    for (size_t at = 0; at < bytes; at += STORE_BLOCK) uring_memory_add(&m, &ring, memory + at, STORE_BLOCK);
    if (m.refused) skip();
    assert_int_equal(uring_memory_find(&m, memory + (URING_MEMORY_COUNT - 1) * STORE_BLOCK, STORE_BLOCK),
                     URING_MEMORY_COUNT - 1);
    assert_int_equal(uring_memory_find(&m, memory + URING_MEMORY_COUNT * STORE_BLOCK, STORE_BLOCK), -1);
    io_uring_queue_exit(&ring);
    mem_free(memory, bytes);
}

#define BLOCKS 32u
#define BYTES  (BLOCKS * STORE_BLOCK)

/* Pieces of three blocks: inside the registered half, across its end, and outside. */
static void round_trip(struct store *s, struct store_file *f, uint8_t *out, uint8_t *in, uint8_t salt) {
    for (size_t i = 0; i < BYTES; i++) out[i] = (uint8_t)(i * 7 + i / 4096 + salt);
    memset(in, 0, BYTES);
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0;
        for (uint32_t at = 0; at < BLOCKS; at += 3, count++) {
            size_t bytes = (BLOCKS - at < 3 ? BLOCKS - at : 3) * STORE_BLOCK,
                   offset = (size_t)at * STORE_BLOCK;
            pawl_code code = pass == 0 ? store_write(f, offset, out + offset, bytes, at, NULL)
                                       : store_read(f, offset, in + offset, bytes, at, NULL);
            assert_int_equal(code, PAWL_OK);
        }
        while (count-- > 0) (void)kit_next_good(s);
    }
    assert_memory_equal(in, out, BYTES);
}

static void operations_work_in_memory_registered_in_part_and_no_longer(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", BYTES);
    uint8_t *out = mem_alloc(BYTES), *in = mem_alloc(BYTES);
    round_trip(s, f, out, in, 0);
    store_register(s, out, BYTES / 2);
    store_register(s, in, BYTES / 2);
    round_trip(s, f, out, in, 1);
    store_unregister(s, out);
    round_trip(s, f, out, in, 2);
    store_unregister(s, in);
    store_unregister(s, in); /* once more, and never registered: no harm */
    round_trip(s, f, out, in, 3);
    store_register(s, NULL, 5);
    store_register(s, out, 0);
    store_register(s, out, BYTES);
    round_trip(s, f, out, in, 4);
    store_file_close(f);
    store_close(s);
    mem_free(out, BYTES);
    mem_free(in, BYTES);
}

/* What an ordinary user lacks: the right to lock any amount of memory. */
static bool give_up_locking(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    const struct rlimit little = {PAGES_BYTES / 2, PAGES_BYTES / 2}; /* the rings themselves count, too */
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0 || syscall(SYS_capget, &header, data) != 0) return false;
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    return syscall(SYS_capset, &header, data) == 0;
}

static void the_limit_of_locked_memory_changes_nothing_but_speed(void **state) {
    struct place *p = *state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *s = NULL;
        struct io_uring ring;
        static struct uring_memory m;
        if (!give_up_locking() || io_uring_queue_init(4, &ring, 0) != 0) _exit(77);
        uint8_t *out = mem_alloc(PAGES_BYTES), *in = mem_alloc(PAGES_BYTES);
        uring_memory_add(&m, &ring, out, PAGES_BYTES);
        if (uring_memory_find(&m, out, STORE_BLOCK) >= 0) _exit(78); /* or this test shows nothing */
        if (store_open(p->path, STORE_URING, false, &s, NULL, NULL) != PAWL_OK) _exit(77);
        struct store_file *f = kit_file(s, "a", BYTES);
        store_register(s, out, PAGES_BYTES);
        store_register(s, in, PAGES_BYTES);
        round_trip(s, f, out, in, 9);
        store_file_close(f);
        store_close(s);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_found_by_its_bytes_until_it_is_given_up),
        cmocka_unit_test(memory_beyond_what_one_entry_holds_takes_several),
        cmocka_unit_test(a_full_table_leaves_the_rest_unregistered),
        KIT_EVERYWHERE(operations_work_in_memory_registered_in_part_and_no_longer),
        cmocka_unit_test_setup_teardown(the_limit_of_locked_memory_changes_nothing_but_speed, kit_begin_uring,
                                        kit_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
