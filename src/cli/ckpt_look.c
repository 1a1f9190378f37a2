/* `pawl ckpt ls`, `info` and `verify`: what is stored, and is it good. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ckpt.h"

/* ---- shared ---- */

static void print_folder(const struct pawl_inspect *in) {
    struct pawl_inspect_summary s = pawl_inspect_summary(in);
    char used[32], unused[32], left[32];
    printf("run %s, %u %s, %s in use, %s in slots that nothing names, %s free on the disk\n",
           s.run[0] != 0 ? s.run : "unknown", s.stores, s.stores == 1 ? "rank" : "ranks",
           ckpt_size(s.used_bytes, used), ckpt_size(s.unused_bytes, unused), ckpt_size(s.free_bytes, left));
}

static void print_problems(const struct pawl_inspect *in) {
    for (uint32_t i = 0; i < pawl_inspect_problem_count(in); i++) {
        printf("bad: ");
        ckpt_put(pawl_inspect_problem(in, i).text);
        putchar('\n');
    }
}

static void print_step(const struct pawl_inspect_step *s) {
    char size[32], when[32];
    printf("%c %10" PRIu64 "  %5" PRIu64 "  %-10s  %5u  %5u  %8s  %-19s", s->current ? '*' : ' ', s->step,
           s->incarnation, s->complete ? "complete" : "incomplete", s->units, s->parts,
           ckpt_size(s->bytes, size), ckpt_time(s->committed_s, when));
    if (s->unchecked) printf("  no checksums");
    if (s->bad) printf("  marked bad by a resume");
    if (s->damaged > 0) printf("  %u bad", s->damaged);
    if (!s->complete) {
        printf("  lacks ");
        ckpt_put(s->missing);
    }
    putchar('\n');
}

static void print_steps(const struct pawl_inspect *in) {
    printf("        step  start  state       units  parts      size  committed\n");
    for (uint32_t i = 0; i < pawl_inspect_step_count(in); i++) {
        struct pawl_inspect_step s = pawl_inspect_step(in, i);
        print_step(&s);
    }
}

/* Damage is the outcome; a folder without a complete step is one, too. */
static pawl_code outcome(const struct pawl_inspect *in, struct pawl_error *e) {
    uint32_t index;
    pawl_code code = pawl_inspect_outcome(in, e);
    return code == PAWL_OK ? pawl_inspect_find(in, 0, &index, e) : code;
}

/* ---- ls ---- */

static const struct ckpt_flag ls_flags[] = {
    {CKPT_OWN, 0, "verify", NULL, "Read every byte first, so that damaged data shows, too"},
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

static void take_flag(void *context, int key, const char *value, struct ckpt_args *args) {
    (void)value, (void)args;
    if (key == CKPT_OWN) *(bool *)context = true;
}

static const struct ckpt_usage ls_usage = {
    "ls",
    "DIR",
    "List the steps that are stored, newest first: the step, the start of the run that saved it, whether it\n"
    "is complete or what it lacks, and when its last part was committed (the time of the file). * marks the\n"
    "one that a resume takes. What is damaged follows below.",
    "  pawl ckpt ls runs/a\n"
    "  pawl ckpt ls runs/a --json | jq .current\n",
    ls_flags,
    take_flag,
};

int cli_ckpt_ls(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    bool verify = false;
    int exit_code;
    if (!ckpt_parse(&ls_usage, argc, argv, &a, &verify, &exit_code)) return exit_code;
    if (a.count != 1) return cli_error(PAWL_ARGUMENT, "give one folder: pawl ckpt ls DIR");
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    struct pawl_inspect_options options = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_open(a.words[0], &options, &in, &e);
    if (code != PAWL_OK) return ckpt_fail(code, &e);
    struct pawl_inspect_verified done;
    if (verify) (void)pawl_inspect_verify(in, PAWL_INSPECT_ALL, &done, &e);
    ckpt_progress_end(&progress);
    code = outcome(in, &e);
    if (a.json) {
        exit_code = ckpt_put_json(pawl_inspect_list_json(in));
    } else {
        print_folder(in);
        print_steps(in);
        print_problems(in);
        exit_code = cli_flush();
    }
    pawl_inspect_close(in);
    return exit_code != 0 ? exit_code : ckpt_end(code, &e);
}

/* ---- info ---- */

static const struct ckpt_flag info_flags[] = {
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {0, 0, NULL, NULL, NULL},
};

static const struct ckpt_usage info_usage = {
    "info",
    "DIR [STEP]",
    "Show what is in a step (without STEP: the newest complete one): its files, its tensors with type, "
    "shape\n"
    "and the files that hold them, its extra data; and what each rank's store holds.",
    "  pawl ckpt info runs/a\n"
    "  pawl ckpt info runs/a 400 --json | jq '.tensors[].name'\n",
    info_flags,
    take_flag,
};

static void print_numbers(const uint64_t *numbers, uint32_t count) {
    putchar('[');
    for (uint32_t i = 0; i < count; i++) printf("%s%" PRIu64, i > 0 ? "," : "", numbers[i]);
    putchar(']');
}

static void print_stores(const struct pawl_inspect *in) {
    char used[32], unused[32];
    printf("\nstores:\n");
    for (uint32_t i = 0; i < pawl_inspect_store_count(in); i++) {
        struct pawl_inspect_store s = pawl_inspect_store(in, i);
        printf("  ");
        ckpt_put(s.path);
        printf(": %u slots in use (%s), %u unused (%s), %u bad, record %" PRIu64 "%s\n", s.used,
               ckpt_size(s.used_bytes, used), s.unused, ckpt_size(s.unused_bytes, unused), s.damaged,
               s.counter, s.readable ? "" : ", its commit log cannot be read");
    }
}

static void print_parts(const struct pawl_inspect *in, uint32_t index) {
    char size[32], when[32];
    printf("\nparts:\n");
    for (uint32_t i = 0; i < pawl_inspect_part_count(in, index); i++) {
        struct pawl_inspect_part p = pawl_inspect_part(in, index, i);
        printf("  #%u unit %u, part %u of %u: %s, %s, %s, ", i, p.unit, p.part, p.part_count,
               pawl_inspect_state_name(p.state), ckpt_size(p.data_bytes, size),
               ckpt_time(p.committed_s, when));
        ckpt_put(p.store);
        putchar('/');
        ckpt_put(p.file);
        putchar('\n');
    }
}

/* A tensor that is whole in one file needs no numbers. */
static void print_tensor(struct pawl_inspect *in, uint32_t index, uint32_t tensor) {
    struct pawl_tensor t = pawl_inspect_tensor(in, index, tensor);
    uint32_t slices = pawl_inspect_slice_count(in, index, tensor);
    printf("  ");
    ckpt_put(t.name);
    printf("  %s", pawl_dtype_name(t.dtype));
    print_numbers(t.shape, t.rank);
    printf("  in");
    for (uint32_t i = 0; i < slices; i++) {
        struct pawl_inspect_slice s = pawl_inspect_slice(in, index, tensor, i);
        printf(" #%u", s.part);
        if (slices == 1 || t.rank == 0) continue;
        print_numbers(s.begin, t.rank);
        putchar('+');
        print_numbers(s.extent, t.rank);
    }
    putchar('\n');
}

#define BLOB_SHOWN 2000

static void print_blobs(struct pawl_inspect *in, uint32_t index) {
    for (uint32_t i = 0; i < pawl_inspect_part_count(in, index); i++) {
        struct pawl_inspect_part p = pawl_inspect_part(in, index, i);
        const void *blob;
        size_t bytes;
        if (p.part != 0 || p.state != PAWL_INSPECT_GOOD) continue;
        if (pawl_inspect_blob(in, index, p.unit, &blob, &bytes, NULL) != PAWL_OK || bytes == 0) continue;
        char *safe = pawl_inspect_safe_text(blob, bytes < BLOB_SHOWN ? bytes : BLOB_SHOWN);
        printf("\nextra data of unit %u, %zu bytes%s:\n%s\n", p.unit, bytes,
               bytes > BLOB_SHOWN ? ", its begin" : "", safe != NULL ? safe : "");
        free(safe);
    }
}

static void print_info(struct pawl_inspect *in, uint32_t index) {
    struct pawl_inspect_step s = pawl_inspect_step(in, index);
    print_folder(in);
    printf("        step  start  state       units  parts      size  committed\n");
    print_step(&s);
    print_stores(in);
    print_parts(in, index);
    printf("\ntensors:\n");
    for (uint32_t i = 0; i < pawl_inspect_tensor_count(in, index); i++) print_tensor(in, index, i);
    print_blobs(in, index);
    print_problems(in);
}

int cli_ckpt_info(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    bool unused;
    int exit_code;
    uint64_t step = 0;
    if (!ckpt_parse(&info_usage, argc, argv, &a, &unused, &exit_code)) return exit_code;
    if (a.count < 1 || a.count > 2)
        return cli_error(PAWL_ARGUMENT, "give one folder, and a step: pawl ckpt info DIR [STEP]");
    if (a.count == 2 && !ckpt_take_number(&a, "STEP", a.words[1], &step))
        return cli_error(PAWL_ARGUMENT, "%s", a.problem);
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    struct pawl_inspect_options options = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_open(a.words[0], &options, &in, &e);
    uint32_t index = 0;
    if (code == PAWL_OK) code = pawl_inspect_find(in, step, &index, &e);
    if (code != PAWL_OK) {
        pawl_inspect_close(in);
        return ckpt_fail(code, &e);
    }
    if (a.json)
        exit_code = ckpt_put_json(pawl_inspect_info_json(in, index));
    else
        print_info(in, index);
    code = pawl_inspect_outcome(in, &e);
    pawl_inspect_close(in);
    return a.json && exit_code != 0 ? exit_code : ckpt_end(code, &e);
}

/* ---- verify ---- */

enum { VERIFY_ALL = CKPT_OWN };
static const struct ckpt_flag verify_flags[] = {
    {VERIFY_ALL, 0, "all", NULL, "Every slot that counts, instead of one step"},
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

static const struct ckpt_usage verify_usage = {
    "verify",
    "DIR [STEP]",
    "Read every byte of a step (without STEP: the newest complete one) and compare it with its checksum; "
    "look\n"
    "at every commit log and slot header, too. Names each damaged file, chunk and tensor, and what is "
    "missing.",
    "  pawl ckpt verify runs/a\n"
    "  pawl ckpt verify /mnt/copy-of-runs-a --all --json\n",
    verify_flags,
    take_flag,
};

static void print_verified(const struct pawl_inspect *in, const struct pawl_inspect_verified *done,
                           bool valid) {
    char size[32];
    print_problems(in);
    for (uint32_t i = 0; i < pawl_inspect_step_count(in); i++) {
        struct pawl_inspect_step s = pawl_inspect_step(in, i);
        if (s.complete) continue;
        printf("incomplete: step %" PRIu64 " of start %" PRIu64 " lacks ", s.step, s.incarnation);
        ckpt_put(s.missing);
        putchar('\n');
    }
    if (done->gone > 0) printf("%u slots were used again by a writer meanwhile\n", done->gone);
    struct pawl_inspect_summary s = pawl_inspect_summary(in);
    if (s.current != PAWL_INSPECT_NONE)
        printf("newest complete step: %" PRIu64 "\n", pawl_inspect_step(in, s.current).step);
    printf("%s: %u %s, %u slots, %s read\n", valid ? "valid" : "NOT VALID", done->steps,
           done->steps == 1 ? "step" : "steps", done->slots, ckpt_size(done->bytes, size));
}

int cli_ckpt_verify(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    bool all = false;
    int exit_code = 0;
    uint64_t step = 0;
    if (!ckpt_parse(&verify_usage, argc, argv, &a, &all, &exit_code)) return exit_code;
    if (a.count < 1 || a.count > 2 || (all && a.count == 2))
        return cli_error(PAWL_ARGUMENT, "give one folder, and a step or --all: pawl ckpt verify DIR [STEP]");
    if (a.count == 2 && !ckpt_take_number(&a, "STEP", a.words[1], &step))
        return cli_error(PAWL_ARGUMENT, "%s", a.problem);
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    struct pawl_inspect_options options = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_open(a.words[0], &options, &in, &e);
    if (code != PAWL_OK) return ckpt_fail(code, &e);
    struct pawl_inspect_verified done;
    code = pawl_inspect_verify(in, all ? PAWL_INSPECT_ALL : step, &done, &e);
    ckpt_progress_end(&progress);
    if (a.json)
        exit_code = ckpt_put_json(pawl_inspect_verify_json(in, &done));
    else
        print_verified(in, &done, code == PAWL_OK);
    pawl_inspect_close(in);
    return exit_code != 0 ? exit_code : ckpt_end(code, &e);
}
