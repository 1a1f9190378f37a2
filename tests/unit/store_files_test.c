/* What store/store.h promises of every back end: plain files, io_uring with O_DIRECT, persistent memory,
 * the simulated disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "kit/store_kit.h"

static void must(struct store *s, uint64_t cookie) { assert_int_equal(kit_next_good(s), cookie); }

#define BLOCKS 40u

static void what_is_written_is_read_back(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", (uint64_t)BLOCKS * STORE_BLOCK);
    uint8_t *out = mem_alloc(BLOCKS * STORE_BLOCK), *in = mem_alloc(BLOCKS * STORE_BLOCK);
    for (size_t i = 0; i < BLOCKS * STORE_BLOCK; i++) out[i] = (uint8_t)(i * 7 + i / 4096);
    bool seen[BLOCKS] = {0};
    for (uint32_t i = 0; i < BLOCKS; i++) /* more than the ring holds */
        assert_int_equal(store_write(f, i * STORE_BLOCK, out + i * STORE_BLOCK, STORE_BLOCK, i, NULL),
                         PAWL_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct store_completion c = kit_next(s);
        assert_int_equal(c.code, PAWL_OK);
        assert_in_range(c.cookie, 0, BLOCKS - 1);
        assert_false(seen[c.cookie]);
        seen[c.cookie] = true;
    }
    assert_int_equal(store_flush(f, 99, NULL), PAWL_OK);
    must(s, 99);
    assert_int_equal(store_read(f, 0, in, BLOCKS * STORE_BLOCK, 5, NULL), PAWL_OK);
    must(s, 5);
    assert_memory_equal(in, out, BLOCKS * STORE_BLOCK);
    store_file_close(f);
    store_close(s);
    mem_free(out, BLOCKS * STORE_BLOCK);
    mem_free(in, BLOCKS * STORE_BLOCK);
}

static void write_all(struct store *s, struct store_file *f, uint8_t *memory, uint8_t byte) {
    memset(memory, byte, BLOCKS * STORE_BLOCK);
    assert_int_equal(store_write(f, 0, memory, BLOCKS * STORE_BLOCK, 1, NULL), PAWL_OK);
    must(s, 1);
    assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
    must(s, 2);
}

/* Brings the file into the page cache as another program would. */
static void read_plainly(const struct place *p, uint8_t *memory) {
    char path[300];
    snprintf(path, sizeof path, "%s/a", p->path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, memory, BLOCKS * STORE_BLOCK, 0), BLOCKS * STORE_BLOCK);
    close(fd);
}

static bool read_cached(struct store_file *f, uint64_t offset, void *data, size_t bytes) {
    return store_is_cached(f, offset, bytes) && store_read_cached(f, offset, data, bytes);
}

static void cached_bytes_are_those_written_last_or_none(void **state) {
    const struct place *p = *state;
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", (uint64_t)BLOCKS * STORE_BLOCK);
    uint8_t *memory = mem_alloc(BLOCKS * STORE_BLOCK);
    bool files = p->kind == STORE_PLAIN || p->kind == STORE_URING;
    for (uint8_t byte = 1; byte <= 3; byte++) {
        write_all(s, f, memory, byte);
        uint8_t odd[3 * STORE_BLOCK + 7] = {0};
        bool had = read_cached(f, STORE_BLOCK - 3, odd + 1, sizeof odd - 1);
        for (size_t i = 1; had && i < sizeof odd; i++) assert_int_equal(odd[i], byte);
        if (!files) assert_false(had);
        if (files) read_plainly(p, memory);
        if (files) assert_true(read_cached(f, STORE_BLOCK - 3, odd + 1, sizeof odd - 1));
        for (size_t i = 1; files && i < sizeof odd; i++) assert_int_equal(odd[i], byte);
    }
    assert_false(read_cached(f, BLOCKS * STORE_BLOCK - 1, memory, 2)); /* past the end */
    store_file_close(f);
    store_close(s);
    mem_free(memory, BLOCKS * STORE_BLOCK);
}

static void a_read_past_the_end_is_an_error(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    uint8_t *in = mem_alloc(2 * STORE_BLOCK);
    assert_int_equal(store_read(f, 0, in, 2 * STORE_BLOCK, 1, NULL), PAWL_OK);
    assert_int_equal(kit_next(s).code, PAWL_IO);
    store_file_close(f);
    store_close(s);
    mem_free(in, 2 * STORE_BLOCK);
}

static void unaligned_operations_are_refused(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", 2 * STORE_BLOCK);
    uint8_t *data = mem_alloc(2 * STORE_BLOCK);
    struct pawl_error e = {0};
    assert_int_equal(store_write(f, 1, data, STORE_BLOCK, 1, &e), PAWL_ARGUMENT);
    assert_int_equal(store_write(f, 0, data, 512, 1, &e), PAWL_ARGUMENT);
    assert_int_equal(store_write(f, 0, data + 512, STORE_BLOCK, 1, &e), PAWL_ARGUMENT);
    assert_int_equal(store_read(f, 0, data, 0, 1, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "multiples of 4096"));
    store_file_close(f);
    store_close(s);
    mem_free(data, 2 * STORE_BLOCK);
}

static void a_file_grows_and_is_cut_but_opening_never_shrinks_it(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", 3 * STORE_BLOCK);
    uint64_t bytes = 0;
    store_file_close(f);
    f = kit_file(s, "a", STORE_BLOCK);
    assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 3 * STORE_BLOCK);
    assert_int_equal(store_file_truncate(f, 2 * STORE_BLOCK, NULL), PAWL_OK);
    assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 2 * STORE_BLOCK);
    store_file_close(f);
    store_close(s);
}

static void a_small_file_is_replaced_as_a_whole(void **state) {
    struct store *s = kit_open(*state, false);
    uint8_t *data = NULL;
    size_t bytes = 0;
    assert_int_equal(store_get(s, "m", &data, &bytes, NULL), PAWL_NOT_FOUND);
    assert_int_equal(store_put(s, "m", "first", 5, NULL), PAWL_OK);
    assert_int_equal(store_put(s, "m", "2nd", 3, NULL), PAWL_OK);
    assert_int_equal(store_get(s, "m", &data, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(data, "2nd", 3);
    free(data);
    assert_int_equal(store_put(s, "empty", "", 0, NULL), PAWL_OK);
    assert_int_equal(store_get(s, "empty", &data, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 0);
    free(data);
    store_close(s);
}

static void names_are_listed_sorted_without_the_stores_own(void **state) {
    struct store *s = kit_open(*state, false);
    assert_int_equal(store_put(s, "b", "x", 1, NULL), PAWL_OK);
    assert_int_equal(store_put(s, "a", "x", 1, NULL), PAWL_OK);
    assert_int_equal(store_put(s, "c", "x", 1, NULL), PAWL_OK);
    assert_int_equal(store_remove(s, "b", NULL), PAWL_OK);
    assert_int_equal(store_remove(s, "b", NULL), PAWL_NOT_FOUND);
    char **names = NULL;
    uint32_t count = 0;
    assert_int_equal(store_list(s, &names, &count, NULL), PAWL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[1], "c");
    store_names_free(names, count);
    store_close(s);
}

static void names_that_leave_the_folder_are_refused(void **state) {
    struct store *s = kit_open(*state, false);
    const char *bad[] = {"", "a/b", "../x", ".lock", "/etc/passwd"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, bad[i], true, 0, &f, NULL), PAWL_ARGUMENT);
        assert_int_equal(store_put(s, bad[i], "x", 1, NULL), PAWL_ARGUMENT);
        assert_int_equal(store_remove(s, bad[i], NULL), PAWL_ARGUMENT);
    }
    store_close(s);
}

static void a_second_writer_is_told_that_it_is_busy(void **state) {
    struct place *p = *state;
    struct store *s = kit_open(p, false), *second = NULL;
    struct pawl_error e = {0};
    assert_int_equal(kit_try_open(p, false, &second, &e), PAWL_BUSY);
    assert_null(second);
    assert_non_null(strstr(e.text, p->path));
    if (p->kind != STORE_SIM) assert_non_null(strstr(e.text, "this process has this store open already"));
    struct store *reader = kit_open(p, true);
    store_close(reader);
    store_close(s);
    s = kit_open(p, false);
    store_close(s);
}

static void a_read_only_store_changes_nothing(void **state) {
    struct place *p = *state;
    struct store *s = kit_open(p, false);
    uint8_t block[1] = {1};
    assert_int_equal(store_put(s, "a", block, 1, NULL), PAWL_OK);
    struct store_file *made = kit_file(s, "b", STORE_BLOCK);
    store_file_close(made);
    store_close(s);
    s = kit_open(p, true);
    struct store_file *f = NULL;
    assert_int_equal(store_put(s, "a", block, 1, NULL), PAWL_ARGUMENT);
    assert_int_equal(store_remove(s, "a", NULL), PAWL_ARGUMENT);
    assert_int_equal(store_file_open(s, "z", true, 0, &f, NULL), PAWL_ARGUMENT);
    assert_int_equal(store_file_open(s, "z", false, 0, &f, NULL), PAWL_NOT_FOUND);
    store_close(s);
}

static void a_missing_folder_is_not_made_for_a_reader(void **state) {
    struct place *p = *state;
    struct place other = *p;
    snprintf(other.path, sizeof other.path, "%.200s-missing", p->path);
    struct store *s = NULL;
    assert_int_equal(kit_try_open(&other, true, &s, NULL), PAWL_NOT_FOUND);
}

static void closing_a_file_waits_for_nothing_and_loses_nothing(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", 8 * STORE_BLOCK);
    uint8_t *data = mem_alloc(8 * STORE_BLOCK);
    memset(data, 7, 8 * STORE_BLOCK);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(store_write(f, i * STORE_BLOCK, data, STORE_BLOCK, i, NULL), PAWL_OK);
    store_file_close(f);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(kit_next(s).code, PAWL_OK);
    f = kit_file(s, "a", 0);
    memset(data, 0, 8 * STORE_BLOCK);
    assert_int_equal(store_read(f, 0, data, 8 * STORE_BLOCK, 1, NULL), PAWL_OK);
    must(s, 1);
    assert_int_equal(data[8 * STORE_BLOCK - 1], 7);
    store_file_close(f);
    store_close(s);
    mem_free(data, 8 * STORE_BLOCK);
}

static void automatic_choice_says_in_one_line_what_it_chose(void **state) {
    struct place *p = *state;
    char path[300], why[160] = "";
    snprintf(path, sizeof path, "%s/deep/er", p->path);
    struct store *s = NULL;
    struct pawl_error e = {0};
    if (store_open(path, STORE_AUTO, false, &s, why, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_non_null(strstr(why, store_kind_name(store_kind_of(s))));
    assert_null(strchr(why, '\n'));
    print_message("%s\n", why);
    store_close(s);
    setenv("PAWL_STORE", "plain", 1);
    assert_int_equal(store_open(path, STORE_AUTO, false, &s, why, NULL), PAWL_OK);
    unsetenv("PAWL_STORE");
    assert_int_equal(store_kind_of(s), STORE_PLAIN);
    assert_non_null(strstr(why, "PAWL_STORE"));
    store_close(s);
}

static void tmpfs_falls_back_to_plain_files_and_says_why(void **state) {
    (void)state;
    char path[] = "/dev/shm/pawl-store-XXXXXX", why[160] = "";
    struct store *s = NULL;
    if (mkdtemp(path) == NULL) skip();
    assert_int_equal(store_open(path, STORE_AUTO, false, &s, why, NULL), PAWL_OK);
    enum store_kind kind = store_kind_of(s);
    struct pawl_error e = {0};
    struct store *forced = NULL;
    store_close(s);
    pawl_code code = store_open(path, STORE_URING, false, &forced, NULL, &e);
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(kind, STORE_PLAIN);
    assert_non_null(strstr(why, "tmpfs"));
    assert_int_equal(code, PAWL_IO);
    assert_non_null(strstr(e.text, "tmpfs"));
}

/* As container runtimes do it. False when this machine does not allow filters. */
static bool deny_io_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void without_io_uring_plain_files_serve_and_the_reason_is_told(void **state) {
    const struct place *p = *state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *s = NULL;
        char why[160] = "";
        if (!deny_io_uring()) _exit(77);
        if (store_open(p->path, STORE_AUTO, false, &s, why, NULL) != PAWL_OK) _exit(1);
        if (store_kind_of(s) == STORE_PMEM) _exit(77); /* needs no ring in the first place */
        if (store_kind_of(s) != STORE_PLAIN || strstr(why, "io_uring is not permitted") == NULL) _exit(2);
        if (store_put(s, "a", "x", 1, NULL) != PAWL_OK) _exit(3);
        store_close(s);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_full_file_system_is_an_error_of_preallocation(void **state) {
    struct place *p = *state;
    char path[300];
    snprintf(path, sizeof path, "%s/small", p->path);
    assert_int_equal(mkdir(path, 0777), 0);
    if (mount("none", path, "tmpfs", 0, "size=1m") != 0) skip();
    struct store *s = NULL;
    struct store_file *f = NULL;
    struct pawl_error e = {0};
    assert_int_equal(store_open(path, STORE_PLAIN, false, &s, NULL, NULL), PAWL_OK);
    pawl_code code = store_file_open(s, "big", true, 8u << 20, &f, &e);
    pawl_code small = store_file_open(s, "big", true, 64u << 10, &f, NULL); /* nothing was left behind */
    store_file_close(f);
    store_close(s);
    umount(path);
    assert_int_equal(code, PAWL_NO_SPACE);
    assert_int_equal(e.os_errno, ENOSPC);
    assert_non_null(strstr(e.text, "8388608"));
    assert_non_null(strstr(e.text, "are free"));
    assert_int_equal(small, PAWL_OK);
}

/* The system takes what fits below the limit, and refuses the rest. */
static void a_write_that_meets_a_limit_half_way_is_an_error(void **state) {
    struct place *p = *state;
    store_close(kit_open(p, false)); /* skips where there is none */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit limit = {5 * STORE_BLOCK, 5 * STORE_BLOCK};
        struct store *s = NULL;
        struct store_file *f = NULL;
        uint8_t *data = mem_alloc(8 * STORE_BLOCK);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(77);
        if (kit_try_open(p, false, &s, NULL) != PAWL_OK) _exit(1);
        if (store_file_open(s, "a", true, 0, &f, NULL) != PAWL_OK) _exit(2);
        if (store_write(f, 0, data, 8 * STORE_BLOCK, 1, NULL) != PAWL_OK) _exit(3);
        struct store_completion c = kit_next(s);
        if (c.code != PAWL_IO || c.os_errno != EFBIG) _exit(4);
        if (store_write(f, 0, data, 2 * STORE_BLOCK, 2, NULL) != PAWL_OK) _exit(5);
        if (kit_next(s).code != PAWL_OK) _exit(6);
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

#define ON_FILES(test)                                                                                       \
    {#test " (plain)", test, kit_begin_plain, kit_end, NULL},                                                \
        {#test " (io_uring)", test, kit_begin_uring, kit_end, NULL}, {                                       \
#test " (persistent memory)", test, kit_begin_pmem, kit_end, NULL                                    \
    }

/* 32 bits would bring them back to the beginning of the file. */
static void offsets_beyond_4_gib_are_their_own(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    const uint64_t far = (UINT64_C(5) << 30) + STORE_BLOCK; /* the file is sparse */
    uint8_t *data = mem_alloc(2 * STORE_BLOCK), *in = data + STORE_BLOCK;
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) { /* first near, then far */
        memset(data, i + 1, STORE_BLOCK);
        assert_int_equal(store_write(f, i == 0 ? 0 : far, data, STORE_BLOCK, 1, NULL), PAWL_OK);
        must(s, 1);
    }
    assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
    must(s, 2);
    for (int i = 0; i < 2; i++) {
        memset(data, i + 1, STORE_BLOCK);
        assert_int_equal(store_read(f, i == 0 ? 0 : far, in, STORE_BLOCK, 3, NULL), PAWL_OK);
        must(s, 3);
        assert_memory_equal(in, data, STORE_BLOCK);
    }
    assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, far + STORE_BLOCK);
    store_file_close(f);
    store_close(s);
    mem_free(data, 2 * STORE_BLOCK);
}

/* Workers that load data are forked from programs that have a store open, and live on. */
static pid_t fork_a_sleeper(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    assert_true(child > 0);
    return child;
}

static void end(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_forked_child_does_not_keep_a_closed_store_locked(void **state) {
    struct place *p = *state;
    struct store *s = kit_open(p, false), *again = NULL;
    struct pawl_error e = {0};
    pid_t child = fork_a_sleeper();
    assert_int_equal(kit_try_open(p, false, &again, &e), PAWL_BUSY);
    store_close(s);
    pawl_code code = kit_try_open(p, false, &again, &e);
    end(child);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    store_close(again);
}

/* A process opens the store, forks, and is killed when the child runs, which tells its number. */
static pid_t orphan_of_a_killed_owner(struct place *p) {
    int tell[2];
    pid_t child = 0;
    assert_int_equal(pipe(tell), 0);
    pid_t owner = fork();
    if (owner == 0) {
        struct store *s = kit_open(p, false);
        if (s != NULL && fork() == 0) child = getpid();
        if (child != 0 && write(tell[1], &child, sizeof child) != sizeof child) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(tell[0], &child, sizeof child), sizeof child);
    close(tell[0]);
    close(tell[1]);
    end(owner);
    return child;
}

static void a_forked_child_does_not_keep_the_store_of_a_killed_process_locked(void **state) {
    struct place *p = *state;
    struct store *again = NULL;
    struct pawl_error e = {0};
    pid_t child = orphan_of_a_killed_owner(p);
    pawl_code code = kit_try_open(p, false, &again, &e);
    assert_int_equal(kill(child, SIGKILL), 0);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    store_close(again);
}

static void a_forked_child_that_closes_the_store_leaves_it_locked(void **state) {
    struct place *p = *state;
    struct store *s = kit_open(p, false), *again = NULL;
    pid_t child = fork();
    if (child == 0) {
        store_close(s);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(kit_try_open(p, false, &again, NULL), PAWL_BUSY);
    store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        KIT_EVERYWHERE(what_is_written_is_read_back),
        KIT_EVERYWHERE(cached_bytes_are_those_written_last_or_none),
        KIT_EVERYWHERE(a_read_past_the_end_is_an_error),
        KIT_EVERYWHERE(unaligned_operations_are_refused),
        KIT_EVERYWHERE(a_file_grows_and_is_cut_but_opening_never_shrinks_it),
        KIT_EVERYWHERE(a_small_file_is_replaced_as_a_whole),
        KIT_EVERYWHERE(names_are_listed_sorted_without_the_stores_own),
        KIT_EVERYWHERE(names_that_leave_the_folder_are_refused),
        KIT_EVERYWHERE(a_second_writer_is_told_that_it_is_busy),
        KIT_EVERYWHERE(a_read_only_store_changes_nothing),
        KIT_EVERYWHERE(a_missing_folder_is_not_made_for_a_reader),
        KIT_EVERYWHERE(closing_a_file_waits_for_nothing_and_loses_nothing),
        ON_FILES(a_write_that_meets_a_limit_half_way_is_an_error),
        cmocka_unit_test_setup_teardown(offsets_beyond_4_gib_are_their_own, kit_begin_plain, kit_end),
        {"offsets_beyond_4_gib_are_their_own (io_uring)", offsets_beyond_4_gib_are_their_own, kit_begin_uring,
         kit_end, NULL},
        ON_FILES(a_forked_child_does_not_keep_a_closed_store_locked),
        ON_FILES(a_forked_child_does_not_keep_the_store_of_a_killed_process_locked),
        ON_FILES(a_forked_child_that_closes_the_store_leaves_it_locked),
        cmocka_unit_test_setup_teardown(automatic_choice_says_in_one_line_what_it_chose, kit_begin_plain,
                                        kit_end),
        cmocka_unit_test(tmpfs_falls_back_to_plain_files_and_says_why),
        cmocka_unit_test_setup_teardown(without_io_uring_plain_files_serve_and_the_reason_is_told,
                                        kit_begin_plain, kit_end),
        cmocka_unit_test_setup_teardown(a_full_file_system_is_an_error_of_preallocation, kit_begin_plain,
                                        kit_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
