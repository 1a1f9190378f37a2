/* `pawl ckpt export` and `diff`: a step for other programs, and two steps compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/amount.h"
#include "cli/ckpt.h"

/* ---- export ---- */

enum { EXPORT_OUTPUT = CKPT_OWN, EXPORT_SHARD, EXPORT_INCLUDE, EXPORT_EXCLUDE, EXPORT_STRIP, EXPORT_FORCE };
static const struct ckpt_flag export_flags[] = {
    {EXPORT_OUTPUT, 'o', "output", "FILE|FOLDER", "Where to; a folder when it ends in / or is one"},
    {EXPORT_SHARD, 0, "max-shard-size", "SIZE",
     "Files of at most so many bytes of tensors (5GB), with an index"},
    {EXPORT_INCLUDE, 0, "include", "NAME",
     "Only tensors that begin so, or match a glob (* ? [); may be given often"},
    {EXPORT_EXCLUDE, 0, "exclude", "NAME", "Not those; may be given often"},
    {EXPORT_STRIP, 0, "strip-prefix", "TEXT", "Take this from the begin of names that have it"},
    {EXPORT_FORCE, 0, "force", NULL, "Replace what is there"},
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

struct export {
    struct pawl_inspect_export options;
    const char **includes, **excludes; /* room for argc each */
};

static void take_export(void *context, int key, const char *value, struct ckpt_args *args) {
    struct export *x = context;
    struct pawl_inspect_export *o = &x->options;
    if (key == EXPORT_OUTPUT) o->output = value;
    if (key == EXPORT_SHARD) (void)ckpt_take_bytes(args, "max-shard-size", value, &o->shard_bytes);
    if (key == EXPORT_INCLUDE) x->includes[o->include_count++] = value;
    if (key == EXPORT_EXCLUDE) x->excludes[o->exclude_count++] = value;
    if (key == EXPORT_STRIP) o->strip_prefix = value;
    if (key == EXPORT_FORCE) o->force = true;
}

static const struct ckpt_usage export_usage = {
    "export",
    "DIR [STEP] -o FILE|FOLDER",
    "Write the tensors of a step (without STEP: the newest complete one) as a safetensors file, or into a\n"
    "folder as Hugging Face lays models out: model.safetensors, or shards with "
    "model.safetensors.index.json.\n"
    "The files appear whole or not at all; what is there is not replaced without --force.\n\n" CLI_BYTES_HELP,
    "  pawl ckpt export runs/a -o weights.safetensors --exclude 'exp_avg*' --exclude exponent/\n"
    "  pawl ckpt export runs/a 400 -o model/ --max-shard-size 5GB\n",
    export_flags,
    take_export,
};

static int run_export(const struct ckpt_args *a, const struct pawl_inspect_export *export) {
    struct ckpt_progress progress;
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    struct pawl_inspect_exported done;
    struct pawl_inspect_options options = ckpt_inspect_options(a, &progress);
    pawl_code code = pawl_inspect_open(a->words[0], &options, &in, &e);
    if (code == PAWL_OK) code = pawl_inspect_export(in, export, &done, &e);
    ckpt_progress_end(&progress);
    pawl_inspect_close(in);
    if (code != PAWL_OK) return ckpt_fail(code, &e);
    if (a->json) return ckpt_put_json(pawl_inspect_export_json(&done));
    char size[32];
    printf("step %" PRIu64 ": %u tensors, %s, in %u %s: ", done.step, done.tensors,
           ckpt_size(done.bytes, size), done.files, done.files == 1 ? "file" : "files");
    ckpt_put(done.path);
    putchar('\n');
    return cli_flush();
}

int cli_ckpt_export(int argc, char **argv) {
    struct ckpt_args a;
    struct export x = {.includes = calloc((size_t)argc + 1, sizeof(char *)),
                       .excludes = calloc((size_t)argc + 1, sizeof(char *))};
    int exit_code = 0;
    if (x.includes == NULL || x.excludes == NULL) {
        exit_code = cli_error(PAWL_MEMORY, "no memory for the arguments");
    } else if (ckpt_parse(&export_usage, argc, argv, &a, &x, &exit_code)) {
        x.options.includes = x.includes;
        x.options.excludes = x.excludes;
        if (a.count == 2) (void)ckpt_take_number(&a, "STEP", a.words[1], &x.options.step);
        if (a.count < 1 || a.count > 2) ckpt_blame(&a, "give one folder, and a step");
        if (x.options.output == NULL || *x.options.output == 0)
            ckpt_blame(&a, "option -o (--output) is missing");
        exit_code = a.problem[0] != 0 ? cli_error(PAWL_ARGUMENT, "%s; see pawl ckpt export --help", a.problem)
                                      : run_export(&a, &x.options);
    }
    free(x.includes);
    free(x.excludes);
    return exit_code;
}

/* ---- diff ---- */

static const struct ckpt_flag diff_flags[] = {
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

static const struct ckpt_usage diff_usage = {
    "diff",
    "DIR [STEP] [DIR] [STEP]",
    "Compare two steps (without STEP: the newest complete one; a word of digits is a step): tensors that "
    "only\n"
    "one has, other types or shapes, elements whose bits differ. Exit code 0: equal, 1: different.",
    "  pawl ckpt diff runs/a runs/b\n"
    "  pawl ckpt diff runs/a 100 runs/b 100\n"
    "  pawl ckpt diff runs/a 100 200\n",
    diff_flags,
    NULL,
};

struct sides {
    const char *dirs[2];
    uint64_t steps[2];
};

/* DIR, then perhaps a step, then perhaps another folder, then perhaps its step. */
static void take_sides(struct ckpt_args *a, struct sides *out) {
    int at = 0, side = 0;
    *out = (struct sides){0};
    if (a->count < 2 || a->count > 4) ckpt_blame(a, "give two things to compare: DIR [STEP] [DIR] [STEP]");
    for (; a->problem[0] == 0 && at < a->count; side++) {
        bool same_dir = side == 1 && ckpt_is_number(a->words[at]);
        if (side > 1) ckpt_blame(a, "\"%s\" is one word too many", a->words[at]);
        if (side > 1) return;
        out->dirs[side] = same_dir ? out->dirs[0] : a->words[at++];
        if (at < a->count && ckpt_is_number(a->words[at]))
            (void)ckpt_take_number(a, "STEP", a->words[at++], &out->steps[side]);
    }
    if (side < 2) ckpt_blame(a, "give two things to compare: DIR [STEP] [DIR] [STEP]");
}

static void print_type(const struct pawl_tensor *t) {
    printf("%s[", pawl_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++) printf("%s%" PRIu64, i > 0 ? "," : "", t->shape[i]);
    putchar(']');
}

static void print_difference(const struct pawl_inspect_difference *d) {
    printf("%-6s  ", pawl_inspect_difference_name(d->kind));
    ckpt_put(d->a.name != NULL ? d->a.name : d->b.name);
    printf("  ");
    if (d->a.name != NULL) print_type(&d->a);
    if (d->kind == PAWL_DIFFERENCE_TYPE) printf(" / ");
    if (d->kind != PAWL_DIFFERENCE_VALUES && d->b.name != NULL) print_type(&d->b);
    if (d->kind == PAWL_DIFFERENCE_VALUES)
        printf("  %" PRIu64 " elements, first %" PRIu64, d->elements, d->first);
    if (d->has_largest) printf(", largest difference %.9g", d->largest);
    if (d->nans > 0) printf(", %" PRIu64 " with NaN", d->nans);
    putchar('\n');
}

static void print_diff(const struct pawl_inspect_diff *diff) {
    for (uint32_t i = 0; i < pawl_inspect_diff_count(diff); i++) {
        struct pawl_inspect_difference d = pawl_inspect_diff_at(diff, i);
        print_difference(&d);
    }
    printf("step %" PRIu64 " and step %" PRIu64 ": %u tensors equal, %u different\n",
           pawl_inspect_diff_step(diff, 0), pawl_inspect_diff_step(diff, 1), pawl_inspect_diff_same(diff),
           pawl_inspect_diff_count(diff));
}

int cli_ckpt_diff(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    struct sides sides;
    int exit_code = 0;
    if (!ckpt_parse(&diff_usage, argc, argv, &a, NULL, &exit_code)) return exit_code;
    take_sides(&a, &sides);
    if (a.problem[0] != 0) return cli_error(PAWL_ARGUMENT, "%s; see pawl ckpt diff --help", a.problem);
    struct pawl_inspect *ins[2] = {NULL, NULL};
    struct pawl_inspect_diff *diff = NULL;
    struct pawl_error e = {0};
    struct pawl_inspect_options options = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_open(sides.dirs[0], &options, &ins[0], &e);
    if (code == PAWL_OK) code = pawl_inspect_open(sides.dirs[1], &options, &ins[1], &e);
    if (code == PAWL_OK)
        code = pawl_inspect_diff_new(ins[0], sides.steps[0], ins[1], sides.steps[1], &diff, &e);
    ckpt_progress_end(&progress);
    pawl_inspect_close(ins[0]);
    pawl_inspect_close(ins[1]);
    if (code != PAWL_OK) return ckpt_fail(code, &e);
    int differs = pawl_inspect_diff_count(diff) > 0;
    if (a.json) {
        exit_code = ckpt_put_json(pawl_inspect_diff_json(diff));
    } else {
        print_diff(diff);
        exit_code = cli_flush();
    }
    pawl_inspect_diff_free(diff);
    return exit_code != 0 ? exit_code : differs;
}
