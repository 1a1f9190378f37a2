/* Which back end is chosen where: each kind of file system that can be made here is made, and a store in it
 * works and says its mode in one line. What cannot be set up is skipped with a word. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "kit/store_kit.h"

#define IMAGE_BYTES ((off_t)300 << 20) /* XFS wants that much; sparse */

/* ---- file systems ---- */

static bool run(const char *command, const char *argument) {
    char line[700];
    snprintf(line, sizeof line, "%s '%s' >/dev/null 2>&1", command, argument);
    int status = system(line);
    return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void skip_because(const char *what) {
    print_message("%s: %s\n", what, strerror(errno));
    skip();
}

/* A loop device over a sparse file, with sectors of that size; freed when its last user is gone. */
static int loop_make(const char *image, uint32_t sector, char device[32]) {
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (control >= 0) close(control);
    if (number < 0) return -1;
    snprintf(device, 32, "/dev/loop%d", number);
    int backing = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600), loop = open(device, O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (uint32_t)backing, .block_size = sector};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    bool good = backing >= 0 && loop >= 0 && ftruncate(backing, IMAGE_BYTES) == 0 &&
                ioctl(loop, LOOP_CONFIGURE, &config) == 0;
    int result = errno;
    if (backing >= 0) close(backing);
    if (good) return loop;
    if (loop >= 0) close(loop);
    errno = result;
    return -1;
}

/* ---- what every store must do ---- */

static void check_works(struct store *s) {
    enum { BYTES = 9 * STORE_BLOCK };
    struct store_file *f = kit_file(s, "a", BYTES);
    uint8_t *out = mem_alloc(BYTES), *in = mem_alloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) out[i] = (uint8_t)(i * 7 + i / 4096);
    assert_int_equal(store_write(f, 0, out, BYTES, 1, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 1);
    assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 2);
    assert_int_equal(store_read(f, 0, in, BYTES, 3, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 3);
    assert_memory_equal(in, out, BYTES);
    store_file_close(f);
    assert_int_equal(store_put(s, "m", "text", 4, NULL), PAWL_OK);
    assert_int_equal(store_sync_folder(s, NULL), PAWL_OK);
    mem_free(out, BYTES);
    mem_free(in, BYTES);
}

static void open_and_check(const char *path, enum store_kind *kind, char why[160]) {
    struct store *s = NULL;
    struct pawl_error e = {0};
    if (store_open(path, STORE_AUTO, false, &s, why, &e) != PAWL_OK) fail_msg("%s", e.text);
    *kind = store_kind_of(s);
    assert_ptr_equal(strstr(why, store_kind_name(*kind)), why);
    assert_null(strchr(why, '\n'));
    print_message("%s: %s\n", strrchr(path, '/') + 1, why);
    check_works(s);
    store_close(s);
    assert_int_equal(store_open(path, STORE_AUTO, true, &s, NULL, &e), PAWL_OK);
    store_close(s);
}

static void mounted_path(const struct place *p, char path[300], const char *name) {
    snprintf(path, 300, "%.250s/%s", p->path, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void on_loop_device(const struct place *p, const char *type, const char *make, uint32_t sector) {
    char path[300], image[300], device[32], why[160] = "";
    mounted_path(p, path, type);
    snprintf(image, sizeof image, "%.250s/image", p->path);
    int loop = loop_make(image, sector, device);
    if (loop < 0) skip_because("no loop device");
    bool made = run(make, device), mounted = made && mount(device, path, type, 0, NULL) == 0;
    close(loop);
    if (!made) print_message("no %s\n", make);
    if (!mounted) skip();
    enum store_kind kind = STORE_SIM;
    open_and_check(path, &kind, why);
    umount(path);
    assert_string_equal(store_kind_name(kind), store_kind_name(STORE_URING));
}

static void sectors_of_4096_bytes_take_direct_io(void **state) {
    on_loop_device(*state, "ext4", "mkfs.ext4 -q -F", 4096);
}
static void sectors_of_512_bytes_take_direct_io(void **state) {
    on_loop_device(*state, "ext4", "mkfs.ext4 -q -F", 512);
}
static void xfs_takes_direct_io(void **state) { on_loop_device(*state, "xfs", "mkfs.xfs -q -f", 4096); }
static void btrfs_takes_direct_io(void **state) { on_loop_device(*state, "btrfs", "mkfs.btrfs -q -f", 4096); }

static void tmpfs_takes_plain_files(void **state) {
    char path[300], why[160] = "";
    enum store_kind kind = STORE_SIM;
    mounted_path(*state, path, "tmpfs");
    if (mount("none", path, "tmpfs", 0, "size=8m") != 0) skip_because("no tmpfs");
    open_and_check(path, &kind, why);
    umount(path);
    assert_int_equal(kind, STORE_PLAIN);
    assert_string_equal(why, "plain files: tmpfs has no direct I/O");
}

/* Direct or not: what the folder beneath can do decides. */
static void overlayfs_takes_what_lies_beneath(void **state) {
    struct place *p = *state;
    char path[300], base[300], folder[320], options[1100], why[160] = "";
    enum store_kind kind = STORE_SIM;
    mounted_path(p, path, "overlayfs");
    mounted_path(p, base, "base");
    if (mount("none", base, "tmpfs", 0, "size=8m") != 0) skip_because("no tmpfs");
    const char *const names[] = {"lower", "upper", "work"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(folder, sizeof folder, "%s/%s", base, names[i]);
        assert_int_equal(mkdir(folder, 0777), 0);
    }
    snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", base, base,
             base);
    bool mounted = mount("overlay", path, "overlay", 0, options) == 0;
    int result = errno;
    if (mounted) open_and_check(path, &kind, why), umount(path);
    umount(base);
    errno = result;
    if (!mounted) skip_because("no overlayfs");
    assert_true(kind == STORE_PLAIN || kind == STORE_URING);
}

static void a_read_only_file_system_is_read_and_refuses_writers(void **state) {
    char path[300];
    struct store *s = NULL;
    struct pawl_error e = {0};
    mounted_path(*state, path, "read-only");
    if (mount("none", path, "tmpfs", 0, "size=8m") != 0) skip_because("no tmpfs");
    pawl_code made = store_open(path, STORE_PLAIN, false, &s, NULL, &e), put = PAWL_OK, read = PAWL_OK;
    if (made == PAWL_OK) put = store_put(s, "m", "text", 4, NULL);
    store_close(s);
    pawl_code writer = PAWL_OK;
    if (mount("none", path, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0) {
        uint8_t *data = NULL;
        size_t bytes = 0;
        writer = store_open(path, STORE_AUTO, false, &s, NULL, &e);
        store_close(s);
        read = store_open(path, STORE_AUTO, true, &s, NULL, NULL);
        if (read == PAWL_OK) read = store_get(s, "m", &data, &bytes, NULL);
        store_close(s);
        free(data);
    }
    umount(path);
    assert_int_equal(made, PAWL_OK);
    assert_int_equal(put, PAWL_OK);
    assert_int_equal(writer, PAWL_IO);
    assert_int_equal(e.os_errno, EROFS);
    assert_non_null(strstr(e.text, "read-only/.lock"));
    assert_int_equal(read, PAWL_OK);
}

/* A disk that fills up while files grow that were not preallocated. */
static void a_full_disk_is_an_error_of_the_write_on_every_back_end(void **state) {
    struct place *p = *state;
    char path[300], image[300], device[32];
    enum { CHUNK = 1 << 20 };
    mounted_path(p, path, "small");
    snprintf(image, sizeof image, "%.250s/image", p->path);
    int loop = loop_make(image, 4096, device);
    if (loop < 0) skip_because("no loop device");
    char make[64];
    snprintf(make, sizeof make, "mkfs.ext4 -q -F");
    bool mounted = run(make, device) && mount(device, path, "ext4", 0, NULL) == 0;
    close(loop);
    if (!mounted) skip_because("no ext4");
    uint8_t *data = mem_alloc(CHUNK);
    const enum store_kind kinds[] = {STORE_PLAIN, STORE_URING, STORE_PMEM};
    pawl_code codes[3] = {PAWL_NO_SPACE, PAWL_NO_SPACE, PAWL_NO_SPACE};
    for (size_t k = 0; k < 3; k++) {
        struct store *s = NULL;
        struct store_file *f = NULL;
        if (store_open(path, kinds[k], false, &s, NULL, NULL) != PAWL_OK) continue;
        if (store_file_open(s, "grows", true, 0, &f, NULL) == PAWL_OK) {
            codes[k] = PAWL_OK;
            for (uint64_t at = 0; at < (uint64_t)IMAGE_BYTES && codes[k] == PAWL_OK; at += CHUNK) {
                codes[k] = store_write(f, at, data, CHUNK, at, NULL);
                if (codes[k] == PAWL_OK) codes[k] = kit_next(s).code;
            }
            store_file_close(f);
            (void)store_remove(s, "grows", NULL);
        }
        store_close(s);
    }
    mem_free(data, CHUNK);
    umount(path);
    for (size_t k = 0; k < 3; k++) assert_string_equal(pawl_code_name(codes[k]), "NO_SPACE");
}

static void two_processes_do_not_write_to_one_store(void **state) {
    struct place *p = *state;
    int ready[2], done[2];
    char byte = 0, pid_text[32];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *own = NULL;
        if (store_open(p->path, STORE_AUTO, false, &own, NULL, NULL) != PAWL_OK) _exit(1);
        close(done[1]);
        if (write(ready[1], "x", 1) != 1 || read(done[0], &byte, 1) != 0) _exit(2);
        _exit(0); /* as killed: the lock goes with the process */
    }
    close(done[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    struct store *s = NULL;
    struct pawl_error e = {0};
    assert_int_equal(store_open(p->path, STORE_AUTO, false, &s, NULL, &e), PAWL_BUSY);
    snprintf(pid_text, sizeof pid_text, "process %ld", (long)pid);
    if (strstr(e.text, pid_text) == NULL) fail_msg("'%s' does not name %s", e.text, pid_text);
    assert_int_equal(store_open(p->path, STORE_AUTO, true, &s, NULL, NULL), PAWL_OK); /* a reader may */
    store_close(s);
    close(done[1]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(store_open(p->path, STORE_AUTO, false, &s, NULL, NULL), PAWL_OK);
    store_close(s);
    close(ready[0]), close(ready[1]);
}

static void trying_leaves_nothing_behind(void **state) {
    struct place *p = *state;
    struct store *s = NULL;
    assert_int_equal(store_open(p->path, STORE_AUTO, false, &s, NULL, NULL), PAWL_OK);
    char command[400];
    snprintf(command, sizeof command, "test \"$(ls -A '%s')\" = .lock", p->path);
    assert_int_equal(system(command), 0);
    store_close(s);
}

#define HERE(test) cmocka_unit_test_setup_teardown(test, kit_begin_plain, kit_end)

int main(void) {
    const struct CMUnitTest tests[] = {
        HERE(sectors_of_4096_bytes_take_direct_io),
        HERE(sectors_of_512_bytes_take_direct_io),
        HERE(xfs_takes_direct_io),
        HERE(btrfs_takes_direct_io),
        HERE(tmpfs_takes_plain_files),
        HERE(overlayfs_takes_what_lies_beneath),
        HERE(a_read_only_file_system_is_read_and_refuses_writers),
        HERE(a_full_disk_is_an_error_of_the_write_on_every_back_end),
        HERE(two_processes_do_not_write_to_one_store),
        HERE(trying_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
