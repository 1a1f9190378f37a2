/* The program that saves and checks in the virtual machine (tests/guest/ckpt_guest.c) notices what it is
 * there to notice. Here on the host, by one process after the other; scripts/guest cuts the power. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM PAWL_BINARY_DIR "/tests/guest_ckpt_guest"

struct place {
    char folder[256], said[4096];
};

/* Runs the program; its exit code, what it said in p->said. */
static int program(struct place *p, const char *verb, const char *options) {
    char command[700];
    snprintf(command, sizeof command, PROGRAM " %s '%s' %s", verb, p->folder, options);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    p->said[fread(p->said, 1, sizeof p->said - 1, f)] = 0;
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void must_say(const struct place *p, const char *wanted) {
    if (strstr(p->said, wanted) == NULL) fail_msg("wanted \"%s\", had:\n%s", wanted, p->said);
}

static int begin(void **state) {
    struct place *p = calloc(1, sizeof *p);
    if (p == NULL) return -1;
    snprintf(p->folder, sizeof p->folder, "%s/guest-XXXXXX", PAWL_BINARY_DIR);
    *state = p;
    return mkdtemp(p->folder) != NULL ? 0 : -1;
}

static int end(void **state) {
    struct place *p = *state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", p->folder);
    int result = system(command);
    free(p);
    return result;
}

static uint64_t newest_of(const struct place *p) {
    const char *at = strstr(p->said, "checked newest=");
    assert_non_null(at);
    return strtoull(at + strlen("checked newest="), NULL, 10);
}

static void what_was_saved_is_found_whole(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 20"), 0);
    must_say(p, "resume 0\n");
    must_say(p, "ack 1\n");
    assert_int_equal(program(p, "check", "--at-least 20"), 0);
    must_say(p, "problems=0");
}

static void a_second_start_goes_on_from_the_first(void **state) {
    struct place *p = *state;
    char wanted[64];
    for (int start = 0; start < 8; start++) { /* all chunk sizes, with and without a thread */
        assert_int_equal(program(p, "check", ""), 0);
        snprintf(wanted, sizeof wanted, "resume %llu\n", (unsigned long long)newest_of(p));
        assert_int_equal(program(p, "write", "--steps 5"), 0);
        must_say(p, wanted);
    }
    assert_int_equal(program(p, "check", "--at-least 40"), 0);
}

static void a_folder_without_stores_holds_step_0(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "check", ""), 0);
    must_say(p, "checked newest=0 complete=0");
    assert_int_equal(program(p, "check", "--at-least 1"), 1);
    must_say(p, "LOST");
}

static void a_missing_step_is_told(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 6"), 0);
    assert_int_equal(program(p, "check", "--at-least 60"), 1);
    must_say(p, "LOST: step 60 was acknowledged");
}

/* Checksums match and the bytes are still not those of the step: only the pattern can tell. */
static void other_content_is_told(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 6 --seed 4"), 0);
    assert_int_equal(program(p, "check", "--seed 4"), 0);
    assert_int_equal(program(p, "check", "--seed 5"), 1);
    must_say(p, "WRONG BYTES");
}

/* Flips a byte of the first file whose name begins so. */
static void damage(const struct place *p, const char *rank, const char *begin_of_name, off_t offset) {
    char path[600] = "", folder[300];
    snprintf(folder, sizeof folder, "%s/%s", p->folder, rank);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (strncmp(entry->d_name, begin_of_name, strlen(begin_of_name)) == 0)
            snprintf(path, sizeof path, "%.290s/%.255s", folder, entry->d_name);
    closedir(d);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    uint8_t byte = 0;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void a_byte_that_changed_in_a_slot_is_told(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 1 --in-flight 1"), 0);
    damage(p, "rank-1", "slot-", 20000);
    assert_int_equal(program(p, "check", "--at-least 1"), 1);
    must_say(p, "fail content");
}

static void a_record_of_a_damaged_slot_is_told(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 1 --in-flight 1"), 0);
    damage(p, "rank-0", "slot-", 100);
    assert_int_equal(program(p, "check", "--at-least 1"), 1);
    must_say(p, "problem ");
    must_say(p, "fail ORDER");
}

static void a_torn_record_is_passed_by(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "write", "--steps 1 --in-flight 1"), 0);
    damage(p, "rank-0", "commit-", 100);
    damage(p, "rank-0", "commit-", 65536 + 100);
    assert_int_equal(program(p, "check", "--at-least 1"), 1);
    must_say(p, "problem ");
    must_say(p, "LOST: step 1 was acknowledged, the newest whole one is 0");
}

static void a_lost_rank_loses_the_steps(void **state) {
    struct place *p = *state;
    char command[300];
    assert_int_equal(program(p, "write", "--steps 6"), 0);
    snprintf(command, sizeof command, "rm -r '%s/rank-1'", p->folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(program(p, "check", "--at-least 6"), 1);
    must_say(p, "LOST");
}

static void wrong_words_are_refused(void **state) {
    struct place *p = *state;
    assert_int_equal(program(p, "check", "--seed 2>/dev/null"), 2);
    assert_int_equal(program(p, "check", "--ranks 9 2>/dev/null"), 2);
    assert_int_equal(program(p, "save", "2>/dev/null"), 2);
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLACED(what_was_saved_is_found_whole),
        PLACED(a_second_start_goes_on_from_the_first),
        PLACED(a_folder_without_stores_holds_step_0),
        PLACED(a_missing_step_is_told),
        PLACED(other_content_is_told),
        PLACED(a_byte_that_changed_in_a_slot_is_told),
        PLACED(a_record_of_a_damaged_slot_is_told),
        PLACED(a_torn_record_is_passed_by),
        PLACED(a_lost_rank_loses_the_steps),
        PLACED(wrong_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
