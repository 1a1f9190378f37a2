/* What include/pawl/ckpt.h promises of resuming: whose run, which step, what when something is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "kit/saver_kit.h"

static struct skit_rank open_one(const char *path) {
    struct pawl_ckpt_options o = {.path = path};
    return skit_open(&o, skit_state_new(0, 1, 0));
}

static uint64_t resume(struct skit_rank *r) {
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r->c, r->state, &step, e));
    return step;
}

/* A run that saved these steps, the last one last. */
static void run_of(const char *path, uint32_t keep, uint64_t first, uint64_t last) {
    struct pawl_ckpt_options o = {.path = path, .keep = keep};
    struct skit_rank r = skit_open(&o, skit_state_new(0, 1, 0));
    (void)resume(&r);
    for (uint64_t step = first; step <= last; step++)
        skit_wait(&r, skit_save(&r, step), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
}

static void first_start_resumes_at_step_0(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct skit_rank r = open_one(path);
    assert_int_equal(resume(&r), 0);
    skit_close(&r);
    r = open_one(path); /* nothing was saved meanwhile */
    assert_int_equal(resume(&r), 0);
    skit_close(&r);
    skit_remove(path);
}

static void second_start_has_the_bytes_and_the_blob_of_the_newest_step(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 1, 1, 5);
    struct skit_rank r = open_one(path);
    assert_int_equal(resume(&r), 5);
    assert_true(skit_is(r.memory, 5));
    const void *blob = NULL;
    size_t bytes = 0;
    pawl_ckpt_blob(r.c, &blob, &bytes);
    assert_int_equal(bytes, strlen("step 5"));
    assert_memory_equal(blob, "step 5", bytes);
    skit_close(&r);
    skit_remove(path);
}

/* Saved by three ranks, resumed by one: it has what each of them kept of itself. */
static void blob_of_every_unit_is_there_after_resuming(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct skit_rank r = open_one(path);
    assert_int_equal(pawl_ckpt_stored_step(r.c), 0);
    assert_int_equal(resume(&r), 0);
    assert_int_equal(pawl_ckpt_unit_count(r.c), 0);
    static const char *const blobs[] = {"seed 17", "", "a longer state of a generator"};
    struct skit_state *shards[3];
    for (uint32_t unit = 0; unit < 3; unit++) {
        struct pawl_ckpt_state *state = NULL;
        shards[unit] = skit_state_new(unit, 3, 0);
        skit_fill(shards[unit], 6);
        SKIT_MUST(pawl_ckpt_declare(r.c, shards[unit]->tensors, shards[unit]->count, &state, e));
        struct pawl_ckpt_save s = {.state = state,
                                   .step = 6,
                                   .unit = unit,
                                   .unit_count = 3,
                                   .blob = blobs[unit],
                                   .blob_bytes = strlen(blobs[unit])};
        uint64_t id = 0;
        SKIT_MUST(pawl_ckpt_save(r.c, &s, &id, e));
        skit_wait(&r, id, PAWL_CKPT_UNTIL_COMMITTED);
    }
    skit_close(&r);
    for (uint32_t unit = 0; unit < 3; unit++) skit_state_free(shards[unit]);
    r = open_one(path);
    assert_int_equal(pawl_ckpt_stored_step(r.c), 6);
    assert_int_equal(pawl_ckpt_unit_count(r.c), 0); /* not before */
    assert_int_equal(resume(&r), 6);
    assert_true(skit_is(r.memory, 6));
    assert_int_equal(pawl_ckpt_unit_count(r.c), 3);
    const void *blob = NULL;
    size_t bytes = 0;
    for (uint32_t unit = 0; unit < 3; unit++) {
        SKIT_MUST(pawl_ckpt_unit_blob(r.c, unit, &blob, &bytes, e));
        assert_int_equal(bytes, strlen(blobs[unit]));
        if (bytes > 0) assert_memory_equal(blob, blobs[unit], bytes);
    }
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_unit_blob(r.c, 3, &blob, &bytes, &why), PAWL_ARGUMENT);
    assert_null(blob);
    assert_non_null(strstr(why.text, "3 units"));
    skit_close(&r);
    skit_remove(path);
}

static void save_without_resuming_is_refused_where_steps_are_durable(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 1, 1, 3);
    struct skit_rank r = open_one(path);
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_save(r.c, &(struct pawl_ckpt_save){.state = r.state, .step = 9}, NULL, &why),
                     PAWL_ARGUMENT);
    assert_non_null(strstr(why.text, "step 3"));
    assert_int_equal(resume(&r), 3);
    assert_int_equal(pawl_ckpt_save(r.c, &(struct pawl_ckpt_save){.state = r.state, .step = 3}, NULL, &why),
                     PAWL_ARGUMENT); /* not newer than what was resumed from */
    skit_wait(&r, skit_save(&r, 4), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    skit_remove(path);
}

/* A fresh low step is not older than what an earlier life left. */
static void from_scratch_keeps_old_steps_until_new_ones_count_and_then_prefers_those(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 1, 1000, 1001);
    struct skit_rank r = open_one(path);
    SKIT_MUST(pawl_ckpt_from_scratch(r.c, e));
    skit_close(&r); /* saved nothing */
    r = open_one(path);
    assert_int_equal(resume(&r), 1001);
    skit_close(&r);
    r = open_one(path);
    SKIT_MUST(pawl_ckpt_from_scratch(r.c, e));
    skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
    skit_wait(&r, skit_save(&r, 2), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    struct pawl_ckpt_reader *reader = NULL; /* other tools, which go by the number, see the new ones too */
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    assert_int_equal(pawl_ckpt_reader_step(reader, 0).step, 2);
    pawl_ckpt_reader_close(reader);
    r = open_one(path);
    assert_int_equal(resume(&r), 2);
    assert_true(skit_is(r.memory, 2));
    skit_wait(&r, skit_save(&r, 3), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    r = open_one(path);
    assert_int_equal(resume(&r), 3);
    skit_close(&r);
    skit_remove(path);
}

/* Before any later save has pushed the old steps out of the store: only the lineage tells which is newer. */
static void first_step_of_a_new_life_is_newer_than_all_before_it(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 2, 1000, 1001);
    struct skit_rank r = open_one(path);
    SKIT_MUST(pawl_ckpt_from_scratch(r.c, e));
    skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    struct pawl_ckpt_reader *reader = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    assert_int_equal(pawl_ckpt_reader_step(reader, 0).step, 1001); /* is still there */
    assert_int_equal(pawl_ckpt_reader_step(reader, pawl_ckpt_reader_newest(reader)).step, 1);
    pawl_ckpt_reader_close(reader);
    r = open_one(path);
    assert_int_equal(resume(&r), 1);
    assert_true(skit_is(r.memory, 1));
    skit_close(&r);
    skit_remove(path);
}

static void folder_of_another_run_is_refused_naming_both(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_ckpt_options o = {.path = path};
    memset(o.run_id, 0xab, sizeof o.run_id);
    struct pawl_ckpt *c = NULL;
    struct pawl_error why = {0};
    SKIT_MUST(pawl_ckpt_open(&o, &c, e));
    SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    memset(o.run_id, 0xcd, sizeof o.run_id);
    assert_int_equal(pawl_ckpt_open(&o, &c, &why), PAWL_FOREIGN);
    assert_non_null(strstr(why.text, "abababab"));
    assert_non_null(strstr(why.text, "cdcdcdcd"));
    memset(o.run_id, 0, sizeof o.run_id); /* any */
    SKIT_MUST(pawl_ckpt_open(&o, &c, e));
    struct pawl_ckpt_status status;
    pawl_ckpt_status(c, &status);
    assert_int_equal(status.run_id[3], 0xab);
    SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    skit_remove(path);
}

static void second_writer_is_told_who_holds_the_store(void **unused) {
    (void)unused;
    char *path = skit_folder(), pid[32];
    struct skit_rank r = open_one(path);
    struct pawl_ckpt_options options = {.path = path};
    struct pawl_ckpt *other = NULL;
    struct pawl_error why = {0};
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_int_equal(pawl_ckpt_open(&options, &other, &why), PAWL_BUSY);
    assert_non_null(strstr(why.text, "this process has this store open"));
    pid_t child = fork();
    if (child == 0)
        _exit(pawl_ckpt_open(&options, &other, &why) == PAWL_BUSY && strstr(why.text, pid) != NULL ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    skit_close(&r);
    skit_remove(path);
}

static void must_exist_and_must_be_new_say_what_they_found(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_ckpt *c = NULL;
    struct pawl_error why = {0};
    struct pawl_ckpt_options exist = {.path = path, .must_exist = true},
                             fresh = {.path = path, .must_be_new = true};
    assert_int_equal(pawl_ckpt_open(&exist, &c, &why), PAWL_NOT_FOUND);
    assert_int_equal(pawl_ckpt_open(&fresh, &c, &why), PAWL_OK);
    SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    assert_int_equal(pawl_ckpt_open(&fresh, &c, &why), PAWL_BUSY);
    assert_int_equal(pawl_ckpt_open(&exist, &c, &why), PAWL_OK);
    SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    skit_remove(path);
}

/* ---- damage ---- */

/* Flips a byte in the middle of the slot file that holds `step`. */
static void damage(const char *path, uint64_t step) {
    char folder[512], name[1024], head[8192];
    snprintf(folder, sizeof folder, "%s/store/rank-0000", path);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"pawl.step\":\"%" PRIu64 "\"", step);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    bool found = false;
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) {
        if (strncmp(d->d_name, "slot-", 5) != 0) continue;
        skit_join(name, sizeof name, folder, d->d_name);
        int fd = open(name, O_RDWR);
        ssize_t size = pread(fd, head, sizeof head - 1, 0);
        assert_true(size > 0);
        head[size] = 0;
        if (memmem(head, (size_t)size, wanted, strlen(wanted)) != NULL) {
            struct stat st;
            uint8_t byte;
            assert_int_equal(fstat(fd, &st), 0);
            assert_int_equal(pread(fd, &byte, 1, st.st_size - 9000), 1);
            byte ^= 0x10;
            assert_int_equal(pwrite(fd, &byte, 1, st.st_size - 9000), 1);
            found = true;
        }
        close(fd);
    }
    closedir(dir);
    assert_true(found);
}

static void damaged_steps_are_passed_over_marked_and_told(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 5, 1, 5);
    damage(path, 5);
    damage(path, 4);
    struct skit_rank r = open_one(path);
    assert_int_equal(resume(&r), 3);
    assert_true(skit_is(r.memory, 3));
    struct pawl_ckpt_event events[4];
    assert_int_equal(pawl_ckpt_poll(r.c, events, 4), 2);
    assert_int_equal(events[0].kind, PAWL_CKPT_FAILED);
    assert_int_equal(events[0].step, 5);
    assert_non_null(strstr(events[0].text, "slot-"));
    assert_non_null(strstr(events[0].text, ", 2 steps are computed again"));
    assert_int_equal(events[1].step, 4);
    struct pawl_ckpt_reader *reader = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    uint32_t newest = pawl_ckpt_reader_newest(reader);
    assert_int_equal(pawl_ckpt_reader_step(reader, newest).step, 3);
    assert_true(pawl_ckpt_reader_step(reader, 0).bad);
    assert_true(pawl_ckpt_reader_step(reader, 1).bad);
    assert_false(pawl_ckpt_reader_step(reader, 2).bad);
    pawl_ckpt_reader_close(reader);
    skit_wait(&r, skit_save(&r, 4), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    r = open_one(path);
    assert_int_equal(resume(&r), 4); /* of the new life */
    assert_true(skit_is(r.memory, 4));
    skit_close(&r);
    skit_remove(path);
}

/* A slot that is cut short does not count, and that is told. */
static void shortened_file_is_passed_over_and_told(void **unused) {
    (void)unused;
    char *path = skit_folder(), command[700];
    run_of(path, 3, 1, 3);
    snprintf(command, sizeof command,
             "truncate -s -1 $(grep -l '\"pawl.step\":\"3\"' '%s'/store/rank-0000/slot-*)", path);
    assert_int_equal(system(command), 0);
    struct skit_rank r = open_one(path);
    assert_int_equal(resume(&r), 2);
    assert_true(skit_is(r.memory, 2));
    struct pawl_ckpt_event event;
    assert_int_equal(pawl_ckpt_poll(r.c, &event, 1), 1);
    assert_int_equal(event.kind, PAWL_CKPT_FAILED);
    if (strstr(event.text, "slot-") == NULL || strstr(event.text, "step 3") == NULL ||
        strstr(event.text, ", 1 step is computed again") == NULL)
        fail_msg("%s", event.text);
    assert_non_null(strstr(event.text, pawl_ckpt_problem(r.c, 0)));
    assert_null(pawl_ckpt_problem(r.c, 1));
    skit_close(&r);
    skit_remove(path);
}

static void when_every_step_is_damaged_nothing_starts_from_0(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 1, 1, 1);
    damage(path, 1);
    struct skit_rank r = open_one(path);
    struct pawl_error why = {0};
    uint64_t step = 7;
    assert_int_equal(pawl_ckpt_resume(r.c, r.state, &step, &why), PAWL_CORRUPT);
    assert_int_equal(pawl_ckpt_save(r.c, &(struct pawl_ckpt_save){.state = r.state, .step = 9}, NULL, &why),
                     PAWL_ARGUMENT);
    skit_close(&r);
    r = open_one(path); /* and not the second time either: it is marked bad now */
    assert_int_equal(pawl_ckpt_resume(r.c, r.state, &step, &why), PAWL_CORRUPT);
    SKIT_MUST(pawl_ckpt_from_scratch(r.c, e));
    skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    skit_remove(path);
}

/* All is gone but the memory that there was something. */
static void lost_stores_are_not_a_first_start(void **unused) {
    (void)unused;
    char *path = skit_folder(), store[512];
    run_of(path, 1, 1, 2);
    snprintf(store, sizeof store, "%s/store", path);
    assert_int_equal(nftw(store, skit_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    struct skit_rank r = open_one(path);
    uint64_t step = 7;
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_resume(r.c, r.state, &step, &why), PAWL_CORRUPT);
    assert_int_equal(pawl_ckpt_save(r.c, &(struct pawl_ckpt_save){.state = r.state, .step = 9}, NULL, &why),
                     PAWL_ARGUMENT);
    skit_close(&r);
    skit_remove(path);
}

/* In a child without privileges, since root may read anything. Exit 0: the error was an error. */
static int open_unprivileged(const char *path) {
    if (setgid(65534) != 0 || setuid(65534) != 0) return 77;
    struct pawl_ckpt *c = NULL;
    struct pawl_error why = {0};
    pawl_code code = pawl_ckpt_open(&(struct pawl_ckpt_options){.path = path}, &c, &why);
    if (code == PAWL_IO && strstr(why.text, "rank-0007") != NULL) return 0;
    fprintf(stderr, "%s: %s\n", pawl_code_name(code), why.text);
    return 1;
}

static void unreadable_store_is_an_error_and_not_step_0(void **unused) {
    (void)unused;
    char *path = skit_folder(), store[512], other[512];
    run_of(path, 1, 1, 2);
    snprintf(store, sizeof store, "%s/store/rank-0000", path);
    snprintf(other, sizeof other, "%s/store/rank-0007", path);
    assert_int_equal(rename(store, other), 0); /* so that rank 0's is made anew */
    char command[1100];
    snprintf(command, sizeof command, "chmod -R a+rwX '%s' && chmod 000 '%s'", path, other);
    assert_int_equal(system(command), 0);
    pid_t child = fork();
    if (child == 0) _exit(open_unprivileged(path));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(other, 0700), 0);
    skit_remove(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void folder_of_stores_that_names_no_run_is_refused(void **unused) {
    (void)unused;
    char *path = skit_folder(), file[512];
    run_of(path, 1, 1, 1);
    skit_join(file, sizeof file, path, "RUN");
    assert_int_equal(unlink(file), 0);
    struct pawl_ckpt *c = NULL;
    struct pawl_error why = {0};
    assert_int_equal(pawl_ckpt_open(&(struct pawl_ckpt_options){.path = path}, &c, &why), PAWL_FOREIGN);
    skit_remove(path);
}

static void wrong_shape_and_missing_tensor_are_named_and_change_nothing(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 1, 1, 2);
    struct pawl_ckpt *c = NULL;
    struct pawl_ckpt_state *state = NULL;
    struct pawl_error why = {0};
    uint64_t step = 0, shape[2] = {96, 51};
    float *room = calloc(96 * 51, sizeof *room);
    struct pawl_tensor t = {.name = "w", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = room};
    SKIT_MUST(pawl_ckpt_open(&(struct pawl_ckpt_options){.path = path}, &c, e));
    SKIT_MUST(pawl_ckpt_declare(c, &t, 1, &state, e));
    assert_int_equal(pawl_ckpt_resume(c, state, &step, &why), PAWL_FORMAT);
    assert_non_null(strstr(why.text, "51"));
    t.name = "absent";
    SKIT_MUST(pawl_ckpt_declare(c, &t, 1, &state, e));
    assert_int_equal(pawl_ckpt_resume(c, state, &step, &why), PAWL_NOT_FOUND);
    assert_non_null(strstr(why.text, "absent"));
    SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
    free(room);
    struct skit_rank r = open_one(path);
    assert_int_equal(resume(&r), 2);
    skit_close(&r);
    skit_remove(path);
}

/* ---- resuming by hand ---- */

static void a_step_read_by_a_reader_is_gone_on_from(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 3, 1, 3);
    struct pawl_error why = {0};
    struct skit_rank r = open_one(path);
    assert_int_equal(pawl_ckpt_resume_from(r.c, 0, 0, &why), PAWL_ARGUMENT); /* steps are stored */
    assert_non_null(strstr(why.text, "step 3"));
    assert_int_equal(pawl_ckpt_resume_from(r.c, 3, 9, &why), PAWL_NOT_FOUND); /* of no such start */
    assert_int_equal(pawl_ckpt_resume_from(r.c, 7, 1, &why), PAWL_NOT_FOUND);
    assert_int_equal(pawl_ckpt_mark_bad(r.c, 0, 1, "", &why), PAWL_ARGUMENT);
    SKIT_MUST(pawl_ckpt_mark_bad(r.c, 3, 1, "a bit flipped", e));
    struct pawl_ckpt_event told;
    assert_int_equal(pawl_ckpt_poll(r.c, &told, 1), 1);
    assert_int_equal(told.kind, PAWL_CKPT_FAILED);
    assert_int_equal(told.step, 3);
    assert_non_null(strstr(told.text, "a bit flipped"));
    assert_int_equal(pawl_ckpt_resume_from(r.c, 3, 1, &why), PAWL_NOT_FOUND);
    assert_non_null(strstr(why.text, "marked bad"));
    SKIT_MUST(pawl_ckpt_resume_from(r.c, 2, 1, e));
    struct pawl_ckpt_status status;
    pawl_ckpt_status(r.c, &status);
    assert_int_equal(status.durable_step, 2);
    assert_int_equal(pawl_ckpt_resume_from(r.c, 2, 1, &why), PAWL_ARGUMENT); /* once */
    assert_int_equal(pawl_ckpt_mark_bad(r.c, 2, 1, "too late", &why), PAWL_ARGUMENT);
    skit_wait(&r, skit_save(&r, 4), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    r = open_one(path);
    assert_int_equal(resume(&r), 4);
    skit_close(&r);
    skit_remove(path);
}

static void a_reader_passes_over_what_it_is_told(void **unused) {
    (void)unused;
    char *path = skit_folder();
    run_of(path, 3, 1, 3);
    struct pawl_error why = {0};
    struct pawl_ckpt_reader *reader = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    for (uint64_t step = 3; step >= 1; step--) {
        uint32_t newest = pawl_ckpt_reader_newest(reader);
        assert_int_equal(pawl_ckpt_reader_step(reader, newest).step, step);
        SKIT_MUST(pawl_ckpt_reader_pass_over(reader, newest, e));
        assert_true(pawl_ckpt_reader_step(reader, newest).bad);
    }
    assert_int_equal(pawl_ckpt_reader_newest(reader), UINT32_MAX);
    assert_int_equal(pawl_ckpt_reader_pass_over(reader, 99, &why), PAWL_ARGUMENT);
    pawl_ckpt_reader_close(reader);
    struct skit_rank r = open_one(path); /* nobody else heard of it */
    assert_int_equal(resume(&r), 3);
    skit_close(&r);
    skit_remove(path);
}

static void from_nothing_is_a_loss_where_steps_were_durable_once(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    struct skit_rank r = open_one(path);
    SKIT_MUST(pawl_ckpt_resume_from(r.c, 0, 0, e));
    skit_wait(&r, skit_save(&r, 1), PAWL_CKPT_UNTIL_DURABLE);
    skit_close(&r);
    r = open_one(path);
    SKIT_MUST(pawl_ckpt_mark_bad(r.c, 1, 1, "gone", e));
    skit_close(&r);
    r = open_one(path);
    assert_int_equal(pawl_ckpt_resume_from(r.c, 0, 0, &why), PAWL_CORRUPT);
    skit_close(&r);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_start_resumes_at_step_0),
        cmocka_unit_test(second_start_has_the_bytes_and_the_blob_of_the_newest_step),
        cmocka_unit_test(blob_of_every_unit_is_there_after_resuming),
        cmocka_unit_test(save_without_resuming_is_refused_where_steps_are_durable),
        cmocka_unit_test(from_scratch_keeps_old_steps_until_new_ones_count_and_then_prefers_those),
        cmocka_unit_test(first_step_of_a_new_life_is_newer_than_all_before_it),
        cmocka_unit_test(folder_of_another_run_is_refused_naming_both),
        cmocka_unit_test(second_writer_is_told_who_holds_the_store),
        cmocka_unit_test(must_exist_and_must_be_new_say_what_they_found),
        cmocka_unit_test(damaged_steps_are_passed_over_marked_and_told),
        cmocka_unit_test(shortened_file_is_passed_over_and_told),
        cmocka_unit_test(when_every_step_is_damaged_nothing_starts_from_0),
        cmocka_unit_test(lost_stores_are_not_a_first_start),
        cmocka_unit_test(unreadable_store_is_an_error_and_not_step_0),
        cmocka_unit_test(folder_of_stores_that_names_no_run_is_refused),
        cmocka_unit_test(wrong_shape_and_missing_tensor_are_named_and_change_nothing),
        cmocka_unit_test(a_step_read_by_a_reader_is_gone_on_from),
        cmocka_unit_test(a_reader_passes_over_what_it_is_told),
        cmocka_unit_test(from_nothing_is_a_loss_where_steps_were_durable_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
