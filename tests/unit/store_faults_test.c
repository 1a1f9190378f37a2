/* Devices that fail, cut short and hang, on real files: the system calls of this program pass through here
 * and misbehave as told. io_uring's do not pass here; tests/unit/store_fuse_test.c has a file system for
 * that.
 *
 * Runs a second time with PMEM2_FORCE_GRANULARITY=CACHE_LINE, which libpmem2 reads when a program starts. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "kit/store_kit.h"

#define SYNCS_MAX 16u

static struct {
    atomic_size_t write_most, read_most;            /* bytes a call moves; 0: all */
    atomic_int write_errno, read_errno, sync_errno; /* for the next call alone */
    atomic_bool writes_nothing;
    atomic_uint interrupts;              /* calls from now on that end with EINTR */
    atomic_bool hold_writes, hold_syncs; /* at the gates below */
    sem_t write_gate, write_entered, sync_gate, sync_entered;
    atomic_uint writes_inside, writes_inside_most; /* at the gate */
    atomic_uint fdatasyncs, msyncs, fsyncs;
    struct {
        size_t address, bytes;
    } synced[SYNCS_MAX];
    atomic_llong size_lie; /* added to every size that is asked for */
    atomic_bool no_threads;
} fault;

static bool interrupted(void) {
    unsigned left = atomic_load(&fault.interrupts);
    while (left > 0 && !atomic_compare_exchange_weak(&fault.interrupts, &left, left - 1)) continue;
    return left > 0;
}

static void hold_write(void) {
    unsigned inside = atomic_fetch_add(&fault.writes_inside, 1) + 1;
    if (inside > atomic_load(&fault.writes_inside_most)) atomic_store(&fault.writes_inside_most, inside);
    sem_post(&fault.write_entered);
    sem_wait(&fault.write_gate);
    atomic_fetch_sub(&fault.writes_inside, 1);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    int wanted = atomic_exchange(&fault.write_errno, 0);
    if (interrupted()) wanted = EINTR;
    if (wanted != 0) return errno = wanted, -1;
    if (atomic_load(&fault.hold_writes)) hold_write();
    if (atomic_load(&fault.writes_nothing)) return 0;
    size_t most = atomic_load(&fault.write_most);
    return syscall(SYS_pwrite64, fd, data, most > 0 && most < bytes ? most : bytes, offset);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    int wanted = atomic_exchange(&fault.read_errno, 0);
    if (interrupted()) wanted = EINTR;
    if (wanted != 0) return errno = wanted, -1;
    size_t most = atomic_load(&fault.read_most);
    return syscall(SYS_pread64, fd, data, most > 0 && most < bytes ? most : bytes, offset);
}

static int sync_fault(void) {
    if (atomic_load(&fault.hold_syncs)) {
        sem_post(&fault.sync_entered);
        sem_wait(&fault.sync_gate);
    }
    return atomic_exchange(&fault.sync_errno, 0);
}

int fdatasync(int fd) {
    atomic_fetch_add(&fault.fdatasyncs, 1);
    int wanted = sync_fault();
    if (wanted != 0) return errno = wanted, -1;
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    atomic_fetch_add(&fault.fsyncs, 1);
    return (int)syscall(SYS_fsync, fd);
}

int msync(void *address, size_t bytes, int flags) {
    unsigned at = atomic_fetch_add(&fault.msyncs, 1);
    if (at < SYNCS_MAX) fault.synced[at].address = (size_t)address, fault.synced[at].bytes = bytes;
    int wanted = sync_fault();
    if (wanted != 0) return errno = wanted, -1;
    return (int)syscall(SYS_msync, address, bytes, flags);
}

int fstat(int fd, struct stat *st) {
    int result = fstatat(fd, "", st, AT_EMPTY_PATH);
    st->st_size += atomic_load(&fault.size_lie);
    return result;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED /* the sanitizers have their own */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &found, sizeof real);
    return atomic_load(&fault.no_threads) ? EAGAIN : real(thread, attributes, start, argument);
}
#endif

static int begin(void **state, enum store_kind kind) {
    memset(&fault, 0, sizeof fault);
    sem_init(&fault.write_gate, 0, 0);
    sem_init(&fault.write_entered, 0, 0);
    sem_init(&fault.sync_gate, 0, 0);
    sem_init(&fault.sync_entered, 0, 0);
    return kit_begin(state, kind);
}
static int begin_plain(void **state) { return begin(state, STORE_PLAIN); }
static int begin_pmem(void **state) { return begin(state, STORE_PMEM); }

static int end(void **state) {
    memset(&fault, 0, sizeof fault);
    return kit_end(state);
}

#define BLOCKS 16u
#define BYTES  (BLOCKS * STORE_BLOCK)

struct scene {
    struct store *s;
    struct store_file *f;
    uint8_t *out, *in;
};

static struct scene scene_begin(struct place *p) {
    struct scene c = {.s = kit_open(p, false), .out = mem_alloc(BYTES), .in = mem_alloc(BYTES)};
    c.f = kit_file(c.s, "a", BYTES);
    for (size_t i = 0; i < BYTES; i++) c.out[i] = (uint8_t)(i * 7 + i / 4096);
    return c;
}

static void scene_end(struct scene *c) {
    store_file_close(c->f);
    store_close(c->s);
    mem_free(c->out, BYTES);
    mem_free(c->in, BYTES);
}

static void submit_write(struct scene *c, uint32_t block, uint32_t count, uint64_t cookie) {
    assert_int_equal(store_write(c->f, (uint64_t)block * STORE_BLOCK, c->out + (size_t)block * STORE_BLOCK,
                                 (size_t)count * STORE_BLOCK, cookie, NULL),
                     PAWL_OK);
}

static struct store_completion write_all(struct scene *c) {
    submit_write(c, 0, BLOCKS, 1);
    return kit_next(c->s);
}

static struct store_completion read_all(struct scene *c) {
    assert_int_equal(store_read(c->f, 0, c->in, BYTES, 2, NULL), PAWL_OK);
    return kit_next(c->s);
}

static void expect(struct store_completion c, pawl_code code, int os_errno) {
    assert_string_equal(pawl_code_name(c.code), pawl_code_name(code));
    assert_int_equal(c.os_errno, os_errno);
}

/* ---- transfers ---- */

static void a_transfer_cut_short_or_interrupted_goes_on(void **state) {
    struct scene c = scene_begin(*state);
    fault.write_most = 1000;
    fault.read_most = 777;
    fault.interrupts = 3;
    expect(write_all(&c), PAWL_OK, 0);
    fault.interrupts = 3;
    expect(read_all(&c), PAWL_OK, 0);
    assert_memory_equal(c.in, c.out, BYTES);
    scene_end(&c);
}

static void a_write_that_moves_nothing_is_an_error_and_not_an_endless_loop(void **state) {
    struct scene c = scene_begin(*state);
    fault.writes_nothing = true;
    expect(write_all(&c), PAWL_IO, EIO);
    fault.writes_nothing = false;
    scene_end(&c);
}

static void a_failed_transfer_says_what_the_system_said_and_the_next_one_works(void **state) {
    struct scene c = scene_begin(*state);
    bool plain = store_kind_of(c.s) == STORE_PLAIN;
    if (plain) {
        fault.write_errno = EIO;
        expect(write_all(&c), PAWL_IO, EIO);
        fault.write_errno = ENOSPC;
        expect(write_all(&c), PAWL_NO_SPACE, ENOSPC);
    }
    expect(write_all(&c), PAWL_OK, 0);
    fault.read_errno = EIO;
    expect(read_all(&c), PAWL_IO, EIO);
    expect(read_all(&c), PAWL_OK, 0);
    assert_memory_equal(c.in, c.out, BYTES);
    scene_end(&c);
}

#ifndef SANITIZED
static void without_any_thread_the_owner_does_the_work(void **state) {
    struct scene c = scene_begin(*state);
    fault.no_threads = true;
    expect(write_all(&c), PAWL_OK, 0);
    assert_int_equal(store_flush(c.f, 3, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c.s), 3);
    expect(read_all(&c), PAWL_OK, 0);
    assert_memory_equal(c.in, c.out, BYTES);
    fault.no_threads = false;
    expect(write_all(&c), PAWL_OK, 0);
    scene_end(&c);
}
#endif

/* ---- flushes ---- */

static void a_failed_flush_is_final_until_the_name_is_given_up(void **state) {
    struct scene c = scene_begin(*state);
    expect(write_all(&c), PAWL_OK, 0);
    fault.sync_errno = EIO;
    assert_int_equal(store_flush(c.f, 3, NULL), PAWL_OK);
    expect(kit_next(c.s), PAWL_IO, EIO);
    assert_int_equal(store_flush(c.f, 4, NULL), PAWL_OK);
    expect(kit_next(c.s), PAWL_IO, EIO);
    expect(write_all(&c), PAWL_IO, EIO);
    expect(read_all(&c), PAWL_IO, EIO);
    struct store_file *again = NULL;
    struct pawl_error e = {0};
    assert_int_equal(store_file_open(c.s, "a", false, 0, &again, &e), PAWL_IO);
    assert_non_null(strstr(e.text, "an earlier flush failed"));
    store_file_close(c.f);
    assert_int_equal(store_remove(c.s, "a", NULL), PAWL_OK);
    c.f = kit_file(c.s, "a", BYTES);
    expect(write_all(&c), PAWL_OK, 0);
    assert_int_equal(store_flush(c.f, 5, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c.s), 5);
    scene_end(&c);
}

/* The system reports a lost page once: of two flushes side by side the second would say that all is well. */
static void of_flushes_submitted_together_none_survives_the_failure_of_one(void **state) {
    struct scene c = scene_begin(*state);
    expect(write_all(&c), PAWL_OK, 0);
    fault.sync_errno = EIO;
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(store_flush(c.f, i, NULL), PAWL_OK);
    for (uint32_t i = 0; i < 5; i++) expect(kit_next(c.s), PAWL_IO, EIO);
    scene_end(&c);
}

static void a_transfer_that_ends_after_its_file_died_is_no_success(void **state) {
    struct scene c = scene_begin(*state);
    expect(write_all(&c), PAWL_OK, 0);
    fault.hold_writes = true;
    submit_write(&c, 0, 1, 8);
    fault.sync_errno = EIO;
    assert_int_equal(store_flush(c.f, 9, NULL), PAWL_OK);
    struct store_completion flush = kit_next(c.s);
    assert_int_equal(flush.cookie, 9);
    expect(flush, PAWL_IO, EIO);
    sem_post(&fault.write_gate);
    struct store_completion late = kit_next(c.s);
    assert_int_equal(late.cookie, 8);
    expect(late, PAWL_IO, EIO);
    fault.hold_writes = false;
    scene_end(&c);
}

static void flushes_that_come_while_one_is_under_way_share_the_next(void **state) {
    struct scene c = scene_begin(*state);
    expect(write_all(&c), PAWL_OK, 0);
    fault.hold_syncs = true;
    assert_int_equal(store_flush(c.f, 0, NULL), PAWL_OK);
    sem_wait(&fault.sync_entered);
    for (uint32_t i = 1; i < 6; i++) assert_int_equal(store_flush(c.f, i, NULL), PAWL_OK);
    fault.hold_syncs = false;
    sem_post(&fault.sync_gate);
    bool seen[6] = {0};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t cookie = kit_next_good(c.s);
        assert_in_range(cookie, 0, 5);
        assert_false(seen[cookie]);
        seen[cookie] = true;
    }
    assert_int_equal(fault.fdatasyncs, 2);
    scene_end(&c);
}

static void the_owner_polls_and_submits_while_a_transfer_hangs(void **state) {
    struct scene c = scene_begin(*state);
    fault.hold_writes = true;
    submit_write(&c, 0, 1, 1);
    struct store_completion none;
    assert_int_equal(store_poll(c.s, &none, 1), 0);
    assert_int_equal(store_read(c.f, 0, c.in, STORE_BLOCK, 2, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c.s), 2); /* past the one that hangs */
    fault.hold_writes = false;
    sem_post(&fault.write_gate);
    assert_int_equal(kit_next_good(c.s), 1);
    scene_end(&c);
}

static void as_many_threads_write_as_the_depth_says(void **state) {
    struct scene c = scene_begin(*state);
    const uint32_t depths[] = {5, 1, 3};
    fault.hold_writes = true;
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
        store_depth_set(c.s, depths[d]);
        fault.writes_inside_most = 0;
        for (uint32_t i = 0; i < BLOCKS; i++) submit_write(&c, i, 1, i);
        for (uint32_t i = 0; i < depths[d]; i++) sem_wait(&fault.write_entered);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            sem_post(&fault.write_gate);
            if (i + depths[d] < BLOCKS) sem_wait(&fault.write_entered);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) (void)kit_next_good(c.s);
        assert_int_equal(fault.writes_inside_most, depths[d]);
    }
    fault.hold_writes = false;
    scene_end(&c);
}

static void *open_gate_later(void *arg) {
    struct place *p = arg;
    while (access(p->path, F_OK) == 0 && atomic_load(&fault.hold_syncs)) sched_yield();
    sem_post(&fault.write_gate);
    return NULL;
}

static void closing_waits_for_what_is_in_flight(void **state) {
    struct place *p = *state;
    struct scene c = scene_begin(p);
    pthread_t thread;
    fault.hold_syncs = true; /* here: the thread is to wait */
    fault.hold_writes = true;
    submit_write(&c, 0, 1, 1);
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, p), 0);
    store_file_close(c.f);
    c.f = NULL;
    fault.hold_syncs = false;
    store_close(c.s);
    pthread_join(thread, NULL);
    c.s = kit_open(p, true);
    assert_int_equal(store_file_open(c.s, "a", false, 0, &c.f, NULL), PAWL_OK);
    assert_int_equal(store_read(c.f, 0, c.in, STORE_BLOCK, 2, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c.s), 2);
    assert_memory_equal(c.in, c.out, STORE_BLOCK);
    scene_end(&c);
}

/* ---- persistent memory ---- */

static bool by_cache_line(void) { return getenv("PMEM2_FORCE_GRANULARITY") != NULL; }

static void reset_counts(void) { fault.fdatasyncs = fault.msyncs = fault.fsyncs = 0; }

static void flush_now(struct scene *c) {
    assert_int_equal(store_flush(c->f, 77, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c->s), 77);
}

static void a_flush_writes_back_what_was_written_and_nothing_more(void **state) {
    struct scene c = scene_begin(*state);
    submit_write(&c, 3, 1, 1);
    assert_int_equal(kit_next_good(c.s), 1);
    submit_write(&c, 9, 1, 2);
    assert_int_equal(kit_next_good(c.s), 2);
    submit_write(&c, 4, 1, 3);
    assert_int_equal(kit_next_good(c.s), 3);
    reset_counts();
    flush_now(&c);
    assert_int_equal(fault.fdatasyncs + fault.fsyncs, 0);
    if (by_cache_line()) {
        assert_int_equal(fault.msyncs, 0);
    } else {
        assert_int_equal(fault.msyncs, 2);
        assert_int_equal(fault.synced[0].bytes, 2 * STORE_BLOCK);
        assert_int_equal(fault.synced[1].bytes, STORE_BLOCK);
        assert_int_equal(fault.synced[1].address - fault.synced[0].address, 6 * STORE_BLOCK);
    }
    reset_counts();
    flush_now(&c);
    assert_int_equal(fault.msyncs + fault.fdatasyncs, 0);
    scene_end(&c);
}

static void what_another_process_left_unflushed_is_flushed_by_a_handle_that_wrote_nothing(void **state) {
    struct scene c = scene_begin(*state);
    reset_counts();
    flush_now(&c);
    assert_int_equal(fault.fdatasyncs, 1);
    scene_end(&c);
}

static void a_file_made_larger_is_durable_before_its_first_write_ends(void **state) {
    struct scene c = scene_begin(*state);
    reset_counts();
    expect(write_all(&c), PAWL_OK, 0);
    assert_int_equal(fault.fsyncs, 0); /* the opening did it */
    assert_int_equal(store_write(c.f, BYTES, c.out, BYTES, 5, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(c.s), 5);
    assert_int_equal(fault.fsyncs, 1);
    uint64_t bytes = 0;
    assert_int_equal(store_file_size(c.f, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 2 * BYTES);
    assert_int_equal(store_file_truncate(c.f, STORE_BLOCK, NULL), PAWL_OK);
    flush_now(&c);
    expect(write_all(&c), PAWL_OK, 0);
    expect(read_all(&c), PAWL_OK, 0);
    assert_memory_equal(c.in, c.out, BYTES);
    scene_end(&c);
}

static void a_file_cut_behind_our_back_is_an_error_of_the_write(void **state) {
    struct place *p = *state;
    struct scene c = scene_begin(p);
    char path[300];
    snprintf(path, sizeof path, "%s/a", p->path);
    expect(write_all(&c), PAWL_OK, 0);
    assert_int_equal(truncate(path, STORE_BLOCK), 0);
    expect(write_all(&c), PAWL_IO, EIO);
    submit_write(&c, 0, 1, 4);
    assert_int_equal(kit_next_good(c.s), 4);
    scene_end(&c);
}

/* As if it had been cut between the look at its size and the copy. */
static void a_page_that_is_not_there_is_an_error_and_no_signal(void **state) {
    struct place *p = *state;
    struct scene c = scene_begin(p);
    char path[300];
    snprintf(path, sizeof path, "%s/a", p->path);
    expect(write_all(&c), PAWL_OK, 0);
    void *page = mmap(NULL, STORE_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool asks = madvise(page, STORE_BLOCK, 23 /* MADV_POPULATE_WRITE, from 5.14 on */) == 0;
    munmap(page, STORE_BLOCK);
    if (asks) {
        assert_int_equal(truncate(path, STORE_BLOCK), 0);
        fault.size_lie = BYTES - STORE_BLOCK;
        expect(write_all(&c), PAWL_IO, EIO);
        fault.size_lie = 0;
    }
    scene_end(&c);
    if (!asks) skip();
}

static void a_sparse_file_on_a_full_disk_is_refused_when_it_is_opened(void **state) {
    struct place *p = *state;
    char path[300], name[320];
    snprintf(path, sizeof path, "%.250s/small", p->path);
    snprintf(name, sizeof name, "%s/big", path);
    assert_int_equal(mkdir(path, 0777), 0);
    if (mount("none", path, "tmpfs", 0, "size=1m") != 0) skip();
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8 << 20), 0);
    close(fd);
    struct store *s = NULL;
    struct store_file *f = NULL;
    struct pawl_error e = {0};
    pawl_code opened = store_open(path, STORE_PMEM, false, &s, NULL, &e), code = PAWL_OK, write = PAWL_OK;
    uint8_t *data = mem_alloc(STORE_BLOCK);
    if (opened == PAWL_OK) {
        code = store_file_open(s, "big", false, 8 << 20, &f, NULL);
        /* Not asked to preallocate, the file is found out by its first write. */
        if (store_file_open(s, "big", false, 0, &f, NULL) == PAWL_OK &&
            store_write(f, 4 << 20, data, STORE_BLOCK, 1, NULL) == PAWL_OK)
            write = kit_next(s).code;
        store_file_close(f);
        store_close(s);
    }
    mem_free(data, STORE_BLOCK);
    umount(path);
    if (opened != PAWL_OK) skip();
    assert_string_equal(pawl_code_name(code), "NO_SPACE");
    assert_string_equal(pawl_code_name(write), "NO_SPACE");
}

static void the_chosen_mode_names_the_granularity(void **state) {
    struct place *p = *state;
    struct store *s = NULL;
    char why[160] = "";
    store_close(kit_open(p, false)); /* skips where there is none */
    setenv("PAWL_STORE", "pmem", 1);
    pawl_code code = store_open(p->path, STORE_AUTO, false, &s, why, NULL);
    unsetenv("PAWL_STORE");
    assert_int_equal(code, PAWL_OK);
    assert_string_equal(why, by_cache_line() ? "persistent memory (PAWL_STORE): granularity cache line"
                                             : "persistent memory (PAWL_STORE): granularity page");
    store_close(s);
    /* By itself it is not taken for persistent memory, whatever the library is told to say. */
    assert_int_equal(store_open(p->path, STORE_AUTO, false, &s, why, NULL), PAWL_OK);
    print_message("%s\n", why);
    assert_int_not_equal(store_kind_of(s), STORE_PMEM);
    store_close(s);
}

static atomic_bool watching;
static atomic_uint elsewhere;

static void *watch_folder(void *arg) {
    const struct stat *home = arg;
    struct stat now;
    while (atomic_load(&watching))
        if (stat(".", &now) != 0 || now.st_ino != home->st_ino || now.st_dev != home->st_dev)
            atomic_fetch_add(&elsewhere, 1);
    return NULL;
}

static void mapping_leaves_the_working_directory_of_other_threads_alone(void **state) {
    struct store *s = kit_open(*state, false);
    struct stat home;
    pthread_t thread;
    uint8_t *data = mem_alloc(STORE_BLOCK);
    assert_int_equal(stat(".", &home), 0);
    watching = true;
    elsewhere = 0;
    assert_int_equal(pthread_create(&thread, NULL, watch_folder, &home), 0);
    for (uint32_t i = 0; i < 300; i++) {
        struct store_file *f = kit_file(s, "a", STORE_BLOCK);
        assert_int_equal(store_write(f, 0, data, STORE_BLOCK, i, NULL), PAWL_OK);
        assert_int_equal(kit_next_good(s), i);
        store_file_close(f);
    }
    watching = false;
    pthread_join(thread, NULL);
    assert_int_equal(elsewhere, 0);
    store_close(s);
    mem_free(data, STORE_BLOCK);
}

#define PLAIN(test)                                                                                          \
    { #test " (plain)", test, begin_plain, end, NULL }
#define PMEM(test)                                                                                           \
    { #test " (persistent memory)", test, begin_pmem, end, NULL }

static int run_again_by_cache_line(void) {
    pid_t pid = fork();
    if (pid == 0) {
        setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE", 1);
        execl("/proc/self/exe", "store_faults_test", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void) {
    const struct CMUnitTest anywhere[] = {
        PLAIN(a_transfer_cut_short_or_interrupted_goes_on),
        PLAIN(a_write_that_moves_nothing_is_an_error_and_not_an_endless_loop),
        PLAIN(a_failed_transfer_says_what_the_system_said_and_the_next_one_works),
        PLAIN(a_failed_flush_is_final_until_the_name_is_given_up),
        PLAIN(of_flushes_submitted_together_none_survives_the_failure_of_one),
        PLAIN(a_transfer_that_ends_after_its_file_died_is_no_success),
        PLAIN(flushes_that_come_while_one_is_under_way_share_the_next),
        PLAIN(the_owner_polls_and_submits_while_a_transfer_hangs),
        PLAIN(as_many_threads_write_as_the_depth_says),
        PLAIN(closing_waits_for_what_is_in_flight),
        PMEM(a_failed_flush_is_final_until_the_name_is_given_up),
        PMEM(of_flushes_submitted_together_none_survives_the_failure_of_one),
#ifndef SANITIZED
        PLAIN(without_any_thread_the_owner_does_the_work),
#endif
    };
    const struct CMUnitTest mapped[] = {
        PMEM(a_failed_transfer_says_what_the_system_said_and_the_next_one_works),
        PMEM(a_flush_writes_back_what_was_written_and_nothing_more),
        PMEM(what_another_process_left_unflushed_is_flushed_by_a_handle_that_wrote_nothing),
        PMEM(a_file_made_larger_is_durable_before_its_first_write_ends),
        PMEM(a_file_cut_behind_our_back_is_an_error_of_the_write),
        PMEM(a_page_that_is_not_there_is_an_error_and_no_signal),
        PMEM(a_sparse_file_on_a_full_disk_is_refused_when_it_is_opened),
        PMEM(the_chosen_mode_names_the_granularity),
        PMEM(mapping_leaves_the_working_directory_of_other_threads_alone),
    };
    if (by_cache_line()) return cmocka_run_group_tests_name("by cache line", mapped, NULL, NULL);
    int failed = cmocka_run_group_tests(anywhere, NULL, NULL);
    failed += cmocka_run_group_tests_name("by page", mapped, NULL, NULL);
    return failed + run_again_by_cache_line();
}
