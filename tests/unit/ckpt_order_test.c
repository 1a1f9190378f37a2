/* The order of what really reaches the operating system: the calls of this program that write, flush and
 * rename pass through here and are noted, each with its begin and its end. Then, of a run with several saves
 * in flight on plain files:
 *   - a record is not begun before every byte of the slots new in it was written, then flushed;
 *   - a slot that a record names, one that stands or one being written, is not written;
 *   - a save is reported after the record that names it was written, then flushed;
 *   - a small file gets its name after its bytes were flushed, and the name is flushed at once;
 *   - a new folder is flushed in its parent, a new slot in its folder, before anything names it.
 * io_uring's calls do not pass here; what it does in their place is in tests/unit/store_fuse_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/record.h"
#include "kit/ckpt_kit.h"

#define NOTES_MAX 4096u
#define STEPS     12u

enum what { WRITE, FLUSH, FLUSH_FOLDER, RENAME, REPORT };

struct note {
    enum what what;
    bool end; /* else begin */
    char name[RECORD_NAME_BYTES + 16];
    uint64_t from, to; /* of a write; of a report the step is `from` */
    uint8_t *data;     /* of a write to a log, at its begin */
};

static struct {
    pthread_mutex_t mutex;
    bool on;
    char folder[256];
    struct note notes[NOTES_MAX];
    uint32_t count;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool is_log(const char *name) { return strncmp(name, "commit-", 7) == 0; }
static bool is_slot(const char *name) { return strncmp(name, "slot-", 5) == 0; }

static void note(struct note n, const void *data) {
    pthread_mutex_lock(&seen.mutex);
    if (seen.on && seen.count < NOTES_MAX) {
        if (data != NULL && (n.data = malloc(n.to - n.from)) != NULL) memcpy(n.data, data, n.to - n.from);
        seen.notes[seen.count++] = n;
    }
    pthread_mutex_unlock(&seen.mutex);
}

/* The file's name in the folder, "." for the folder, ".." for its parent; empty: elsewhere. */
static void name_of(int fd, char *out, size_t size) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    size_t own = strlen(seen.folder);
    out[0] = 0;
    if (own == 0) return;
    if (strncmp(path, seen.folder, own) == 0 && (path[own] == '/' || path[own] == 0))
        snprintf(out, size, "%s", path[own] == 0 ? "." : path + own + 1);
    else if (strncmp(path, seen.folder, strlen(path)) == 0 && seen.folder[strlen(path)] == '/' &&
             strchr(seen.folder + strlen(path) + 1, '/') == NULL)
        snprintf(out, size, "..");
}

static ssize_t noted_write(int fd, const void *data, size_t bytes, int64_t offset) {
    struct note n = {.what = WRITE, .from = offset < 0 ? 0 : (uint64_t)offset};
    name_of(fd, n.name, sizeof n.name);
    n.to = n.from + bytes;
    if (n.name[0] != 0) note(n, is_log(n.name) ? data : NULL);
    ssize_t moved =
        offset < 0 ? syscall(SYS_write, fd, data, bytes) : syscall(SYS_pwrite64, fd, data, bytes, offset);
    n.end = true;
    n.to = n.from + (moved > 0 ? (uint64_t)moved : 0);
    if (n.name[0] != 0) note(n, NULL);
    return moved;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    return noted_write(fd, data, bytes, offset);
}
ssize_t write(int fd, const void *data, size_t bytes) { return noted_write(fd, data, bytes, -1); }

static int noted_flush(int fd, long call) {
    struct note n = {.what = FLUSH};
    name_of(fd, n.name, sizeof n.name);
    if (n.name[0] == '.' && (n.name[1] == 0 || n.name[1] == '.')) n.what = FLUSH_FOLDER;
    if (n.name[0] != 0) note(n, NULL);
    int result = (int)syscall(call, fd);
    n.end = true;
    if (n.name[0] != 0 && result == 0) note(n, NULL);
    return result;
}

int fdatasync(int fd) { return noted_flush(fd, SYS_fdatasync); }
int fsync(int fd) { return noted_flush(fd, SYS_fsync); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    struct note n = {.what = RENAME};
    snprintf(n.name, sizeof n.name, "%s", from);
    note(n, NULL);
    int result = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
    n.end = true;
    note(n, NULL);
    return result;
}

/* ---- looking at the notes ---- */

static bool is(const struct note *n, enum what what, bool end, const char *name) {
    return n->what == what && n->end == end && strcmp(n->name, name) == 0;
}

/* The last such note before `before`; -1: none. */
static int last(int before, enum what what, bool end, const char *name) {
    for (int i = before - 1; i >= 0; i--)
        if (is(&seen.notes[i], what, end, name)) return i;
    return -1;
}

static int next(int from, enum what what, bool end, const char *name) {
    for (int i = from; i < (int)seen.count; i++)
        if (is(&seen.notes[i], what, end, name)) return i;
    return (int)seen.count;
}

static void decode(const struct note *n, struct record *r) {
    struct pawl_error e = {0};
    assert_non_null(n->data);
    if (record_decode(n->data, n->to - n->from, r, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static bool names(const struct record *r, const char *slot) {
    char name[RECORD_NAME_BYTES];
    for (uint32_t i = 0; i < r->entry_count; i++) {
        record_slot_name(r->entries[i].slot, name);
        if (strcmp(name, slot) == 0) return true;
    }
    return false;
}

/* What was written to the slot from `begin` to `end` covers its file. */
static void expect_covered(const char *slot, int begin, int end, uint64_t bytes) {
    uint64_t at = 0;
    for (bool moved = true; at < bytes && moved;) {
        moved = false;
        for (int i = begin; i < end; i++) {
            const struct note *n = &seen.notes[i];
            if (!is(n, WRITE, true, slot) || n->from > at || n->to <= at) continue;
            at = n->to;
            moved = true;
        }
    }
    if (at < bytes)
        fail_msg("%s: byte %" PRIu64 " of %" PRIu64 " was not flushed before its record", slot, at, bytes);
}

/* `at`: the begin of the record's write. */
static void expect_slot_flushed(const struct record_entry *t, int at, int previous) {
    char slot[RECORD_NAME_BYTES];
    record_slot_name(t->slot, slot);
    int flushed = last(at, FLUSH, true, slot), begun = last(flushed, FLUSH, false, slot);
    if (begun < 0) fail_msg("%s was not flushed before its record", slot);
    int written = last(at, WRITE, true, slot), writing = last(at, WRITE, false, slot);
    if (written > begun || writing > begun) fail_msg("%s was written after its last flush began", slot);
    expect_covered(slot, previous, begun, t->file_bytes);
}

struct slot_life { /* of each slot, the note where what a record says of it began to count */
    int since[64];
};

static void expect_records_in_order(void) {
    static struct record r, standing, writing;
    static struct slot_life lives;
    memset(&lives, 0, sizeof lives);
    memset(&standing, 0, sizeof standing);
    bool has_writing = false;
    uint32_t records = 0;
    for (int i = 0; i < (int)seen.count; i++) {
        const struct note *n = &seen.notes[i];
        if (n->what == WRITE && !n->end && is_slot(n->name)) {
            if (names(&standing, n->name) || (has_writing && names(&writing, n->name)))
                fail_msg("note %d: %s is written while a record names it", i, n->name);
        }
        if (n->what == WRITE && !n->end && is_log(n->name)) {
            decode(n, &r);
            for (uint32_t k = 0; k < r.entry_count; k++) {
                assert_true(r.entries[k].slot < 64);
                if (r.entries[k].counter != r.counter) continue;
                expect_slot_flushed(&r.entries[k], i, lives.since[r.entries[k].slot]);
                lives.since[r.entries[k].slot] = i;
            }
            writing = r;
            has_writing = true;
            records++;
        }
        if (n->what == FLUSH && n->end && is_log(n->name)) {
            assert_true(has_writing);
            assert_true(last(i, WRITE, true, n->name) < last(i, FLUSH, false, n->name));
            standing = writing;
            has_writing = false;
        }
    }
    assert_true(records > STEPS / 4);
}

/* Reported after a record that names the step was written, and then flushed. */
static void expect_reports_after_records(uint32_t wanted) {
    static struct record r;
    uint32_t reports = 0;
    for (int i = 0; i < (int)seen.count; i++) {
        const struct note *n = &seen.notes[i];
        if (n->what != REPORT) continue;
        bool good = false;
        for (int k = 0; k < i && !good; k++) {
            const struct note *w = &seen.notes[k];
            if (w->what != WRITE || w->end || !is_log(w->name)) continue;
            decode(w, &r);
            bool has = false;
            for (uint32_t t = 0; t < r.entry_count; t++) has = has || r.entries[t].step == n->from;
            int written = next(k, WRITE, true, w->name), begun = next(written, FLUSH, false, w->name);
            good = has && next(begun, FLUSH, true, w->name) < i;
        }
        if (!good) fail_msg("step %" PRIu64 " was reported before its record was flushed", n->from);
        reports++;
    }
    assert_int_equal(reports, wanted);
}

static void expect_names_after_bytes(void) {
    uint32_t renames = 0;
    for (int i = 0; i < (int)seen.count; i++) {
        const struct note *n = &seen.notes[i];
        if (n->what != RENAME || n->end) continue;
        int written = last(i, WRITE, true, n->name), begun = last(i, FLUSH, false, n->name);
        if (begun < written || last(i, FLUSH, true, n->name) < begun)
            fail_msg("%s got its name before its bytes were flushed", n->name);
        int renamed = next(i, RENAME, true, n->name), flushed = next(renamed, FLUSH_FOLDER, true, ".");
        for (int k = renamed + 1; k < flushed; k++) /* nothing may build on the name before */
            if (seen.notes[k].what != FLUSH_FOLDER) fail_msg("the new name of %s was not flushed", n->name);
        assert_true(flushed < (int)seen.count);
        renames++;
    }
    assert_true(renames >= 2); /* whose store it is, and the first log */
}

static void expect_folders_flushed(void) {
    assert_in_range(next(0, FLUSH_FOLDER, true, ".."), 0, next(0, FLUSH_FOLDER, false, ".") - 1);
    uint32_t names = 0, flushes = 0, slots = 0;
    for (int i = 0; i < (int)seen.count; i++) {
        const struct note *n = &seen.notes[i];
        flushes += is(n, FLUSH_FOLDER, true, ".");
        names += n->what == RENAME && n->end;
        bool first = n->what == WRITE && !n->end && is_slot(n->name) && last(i, WRITE, false, n->name) < 0;
        slots += first;
        if (first && flushes < names + slots) fail_msg("the new name of %s was not flushed", n->name);
    }
    assert_in_range(slots, 2, STEPS - 1); /* some are used again */
}

/* ---- the run ---- */

/* How many counted: a slow one may be overtaken by a step declared durable. */
static uint32_t save_steps(struct store *s) {
    static struct kit_part *parts[STEPS + 1];
    struct ckpt_config config = kit_config(1, 0, 3, 1);
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    if (ckpt_open(&config, s, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    uint32_t counted = 0;
    for (uint64_t begun = 0, done = 0; done < STEPS; done++) {
        for (; begun < STEPS && ckpt_in_flight(c) < 3; begun++) {
            parts[begun] = kit_part_new(begun + 1, 0, 1);
            struct ckpt_save save = kit_save(parts[begun], begun + 1, 0, 1);
            save.staged = begun % 2 == 0;
            if (ckpt_save_begin(c, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
        }
        struct ckpt_event event = kit_next(c);
        if (event.code == PAWL_CANCELLED) continue;
        if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
        note((struct note){.what = REPORT, .end = true, .name = "step", .from = event.step}, NULL);
        if (event.step % 3 == 0) ckpt_durable(c, event.step);
        counted++;
    }
    if (ckpt_close(c, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < STEPS; i++) kit_part_free(parts[i]);
    assert_true(counted > STEPS / 2);
    return counted;
}

static void everything_is_flushed_before_anything_builds_on_it(void **state) {
    (void)state;
    char path[200], command[PATH_MAX];
    struct store *s = NULL;
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/order-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(path));
    assert_non_null(realpath(path, command));
    snprintf(seen.folder, sizeof seen.folder, "%.200s/new", command);
    seen.on = true;
    if (store_open(seen.folder, STORE_PLAIN, false, &s, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    uint32_t counted = save_steps(s);
    seen.on = false;
    store_close(s);
    assert_true(seen.count < NOTES_MAX);
    expect_records_in_order();
    expect_reports_after_records(counted);
    expect_names_after_bytes();
    expect_folders_flushed();
    for (uint32_t i = 0; i < seen.count; i++) free(seen.notes[i].data);
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_flushed_before_anything_builds_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
