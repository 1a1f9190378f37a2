/* `pawl ckpt rollback` and `gc`: the two that change a run's folder. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ckpt.h"

enum { CHANGE_DRY = CKPT_OWN, CHANGE_YES, CHANGE_KEEP };

struct change {
    struct pawl_inspect_change_options options;
    bool yes;
};

static void take_change(void *context, int key, const char *value, struct ckpt_args *args) {
    struct change *c = context;
    uint64_t keep = 0;
    if (key == CHANGE_DRY) c->options.dry_run = true;
    if (key == CHANGE_YES) c->yes = true;
    if (key != CHANGE_KEEP || !ckpt_take_number(args, "option --keep", value, &keep)) return;
    c->options.keep = keep < UINT32_MAX ? (uint32_t)keep : UINT32_MAX;
}

static void print_changes(const struct pawl_inspect_changes *changes, bool dry_run) {
    uint64_t bytes = 0;
    char size[32];
    for (uint32_t i = 0; i < pawl_inspect_changes_count(changes); i++) {
        struct pawl_inspect_change c = pawl_inspect_changes_at(changes, i);
        bytes += c.bytes;
        ckpt_put(c.store);
        putchar('/');
        ckpt_put(c.file);
        printf("  %s", ckpt_size(c.bytes, size));
        if (c.kind == PAWL_CHANGE_STEP)
            printf("  step %" PRIu64 ", unit %u, part %u of %u", c.step, c.unit, c.part, c.part_count);
        printf("  (");
        ckpt_put(c.why);
        printf(")\n");
    }
    printf("%s%u files, %s; newest complete step: %" PRIu64 "\n",
           dry_run ? "nothing was changed; would be: " : "", pawl_inspect_changes_count(changes),
           ckpt_size(bytes, size), pawl_inspect_changes_newest(changes));
}

static int print_result(const struct ckpt_args *a, struct pawl_inspect_changes *changes, bool dry_run) {
    int exit_code;
    if (a->json) {
        exit_code = ckpt_put_json(pawl_inspect_changes_json(changes, dry_run));
    } else {
        print_changes(changes, dry_run);
        exit_code = cli_flush();
    }
    pawl_inspect_changes_free(changes);
    return exit_code;
}

/* ---- rollback ---- */

static const struct ckpt_flag rollback_flags[] = {
    {CHANGE_YES, 'y', "yes", NULL, "Do not ask"},
    {CHANGE_DRY, 'n', "dry-run", NULL, "Show what would no longer count; change nothing, lock nothing"},
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

static const struct ckpt_usage rollback_usage = {
    "rollback",
    "DIR STEP",
    "Make STEP the newest: later steps no longer count, and the next start resumes from it. STEP is "
    "verified\n"
    "first, every byte. Refused while the run is using the folder. The slot files stay until they are used\n"
    "again, or until gc. A crash in between loses nothing: give the same command again.",
    "  pawl ckpt rollback runs/a 400 --dry-run\n"
    "  pawl ckpt rollback runs/a 400\n",
    rollback_flags,
    take_change,
};

/* Only "yes" or "y" is a yes. */
static bool confirmed(const char *dir, uint64_t step) {
    char answer[16] = "";
    fprintf(stderr, "Make step %" PRIu64 " the newest in ", step);
    char *safe = pawl_inspect_safe_text(dir, strlen(dir));
    fprintf(stderr, "%s? Later steps will no longer count. [y/N] ", safe != NULL ? safe : "");
    free(safe);
    fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) == NULL) {
        fputc('\n', stderr);
        return false;
    }
    answer[strcspn(answer, "\r\n")] = 0;
    return strcmp(answer, "y") == 0 || strcmp(answer, "yes") == 0;
}

int cli_ckpt_rollback(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    struct change c = {0};
    int exit_code;
    if (!ckpt_parse(&rollback_usage, argc, argv, &a, &c, &exit_code)) return exit_code;
    if (a.count != 2) ckpt_blame(&a, "give one folder and one step: pawl ckpt rollback DIR STEP");
    if (a.count == 2) (void)ckpt_take_number(&a, "STEP", a.words[1], &c.options.step);
    if (a.problem[0] != 0) return cli_error(PAWL_ARGUMENT, "%s", a.problem);
    if (!c.yes && !c.options.dry_run) {
        if (isatty(STDIN_FILENO) != 1)
            return cli_error(PAWL_ARGUMENT,
                             "nobody to ask: give --yes to roll back, or --dry-run to see what it does");
        if (!confirmed(a.words[0], c.options.step)) return cli_error(PAWL_CANCELLED, "nothing was changed");
    }
    struct pawl_inspect_changes *changes = NULL;
    struct pawl_error e = {0};
    c.options.inspect = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_rollback(a.words[0], &c.options, &changes, &e);
    ckpt_progress_end(&progress);
    return code == PAWL_OK ? print_result(&a, changes, c.options.dry_run) : ckpt_fail(code, &e);
}

/* ---- gc ---- */

static const struct ckpt_flag gc_flags[] = {
    {CHANGE_DRY, 'n', "dry-run", NULL, "Show what would be removed; change nothing, lock nothing"},
    {CHANGE_KEEP, 0, "keep", "K", "Remove complete steps beyond the newest K that verify, too"},
    {CKPT_UNCHECKED, 0, "unchecked", NULL, "Accept what was written without checksums"},
    {CKPT_PROGRESS, 0, "progress", NULL, "Show progress also when the standard error output is no terminal"},
    {0, 0, NULL, NULL, NULL},
};

static const struct ckpt_usage gc_usage = {
    "gc",
    "DIR",
    "Remove what nobody will ask for again: slot files that no record names, temporary files left over from "
    "a\n"
    "crash, incomplete steps that can never become complete. The newest complete step always stays, and\n"
    "nothing is removed while there is none. Refused while the run is using the folder.",
    "  pawl ckpt gc runs/a --dry-run\n"
    "  pawl ckpt gc runs/a --keep 2\n",
    gc_flags,
    take_change,
};

int cli_ckpt_gc(int argc, char **argv) {
    struct ckpt_args a;
    struct ckpt_progress progress;
    struct change c = {0};
    int exit_code;
    if (!ckpt_parse(&gc_usage, argc, argv, &a, &c, &exit_code)) return exit_code;
    if (a.count != 1) return cli_error(PAWL_ARGUMENT, "give one folder: pawl ckpt gc DIR");
    struct pawl_inspect_changes *changes = NULL;
    struct pawl_error e = {0};
    c.options.inspect = ckpt_inspect_options(&a, &progress);
    pawl_code code = pawl_inspect_gc(a.words[0], &c.options, &changes, &e);
    ckpt_progress_end(&progress);
    return code == PAWL_OK ? print_result(&a, changes, c.options.dry_run) : ckpt_fail(code, &e);
}
