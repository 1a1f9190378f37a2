/* What the command prints besides the library's progress: errors, exit codes, the summary of a run. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_error(pawl_code code, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c != 0; c++)
        if ((unsigned char)*c < 0x20) *c = ' '; /* one line, whatever a file name holds */
    fflush(stdout);
    fprintf(stderr, "pawl: error: %s\n", *text != 0 ? text : pawl_code_text(code));
    return pawl_code_exit(code);
}

static const pawl_code all_codes[] = {
#define X(name, next, exit_code, text) PAWL_##name,
#include <pawl/error.def>
#undef X
};

/* The texts of one exit code, joined. */
static void print_exit_code(FILE *out, int exit_code) {
    bool first = true;
    for (size_t i = 0; i < sizeof all_codes / sizeof all_codes[0]; i++) {
        if (pawl_code_exit(all_codes[i]) != exit_code) continue;
        if (first)
            fprintf(out, "  %3d  %s", exit_code, pawl_code_text(all_codes[i]));
        else
            fprintf(out, "; %s", pawl_code_text(all_codes[i]));
        first = false;
    }
    if (!first) fputc('\n', out);
}

char *cli_exit_codes(void) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    fprintf(out, "Exit codes:\n");
    for (int code = 0; code < 256; code++) print_exit_code(out, code);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* Of a skipped step: nan. Without any step: a dash. */
static void print_loss(double loss, bool skipped, char *out, size_t size) {
    if (isfinite(loss))
        snprintf(out, size, "%.4f", loss);
    else
        snprintf(out, size, skipped ? "nan" : "-");
}

void cli_summary(const struct pawl_train_report *r, const char *report_path, FILE *out) {
    char first[32], last[32];
    print_loss(r->loss_first, r->steps_skipped > 0, first, sizeof first);
    print_loss(r->loss_last, r->steps_skipped > 0, last, sizeof last);
    fprintf(out, "step               %" PRIu64 ", from %" PRIu64 "%s, in %.1f s\n", r->final_step,
            r->first_step, r->resumed ? " (resumed)" : "", r->seconds);
    fprintf(out, "loss               %s -> %s\n", first, last);
    if (r->steps_skipped > 0)
        fprintf(out, "skipped            %" PRIu64 " steps: loss or gradient not finite\n", r->steps_skipped);
    fprintf(out, "tokens/s           %.0f\n", r->tokens_per_s);
    fprintf(out, "failures survived  %" PRIu64 ", joins %" PRIu64 ", leaves %" PRIu64 "\n", r->failures,
            r->joins, r->leaves);
    fprintf(out, "done again         %" PRIu64 " iterations, %" PRIu64 " micro-batches; kept %" PRIu64 "\n",
            r->iterations_redone, r->contributions_redone, r->contributions_kept);
    if (r->restores > 0 || r->lost_iterations > 0)
        fprintf(out, "lost               %" PRIu64 " iterations, %.1f s of work, in %" PRIu64 " returns\n",
                r->lost_iterations, r->lost_seconds, r->restores);
    if (r->coordinator_restarts > 0)
        fprintf(out, "coordinators       %" PRIu64 " replaced\n", r->coordinator_restarts);
    fprintf(out, "saves              %" PRIu64 ", skipped %" PRIu64 ", failed %" PRIu64 "\n", r->saves,
            r->saves_skipped, r->saves_failed);
    fprintf(out, "newest durable     step %" PRIu64 "\n", r->last_durable_step);
    fprintf(out, "weights sha256     %s\n", r->weights_sha256);
    if (report_path != NULL) fprintf(out, "report             %s\n", report_path);
}

int cli_argp_help(const struct argp *parser, const char *name, const char *examples, FILE *out) {
    char *codes = cli_exit_codes(), own[64]; /* argp wants it writable */
    snprintf(own, sizeof own, "%s", name);
    argp_help(parser, out, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, own);
    fprintf(out, "%s%s", examples, codes != NULL ? codes : "");
    free(codes);
    return fflush(out) == 0 ? 0 : cli_error(PAWL_IO, "writing the help: %s", strerror(errno));
}

int cli_flush(void) {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return 0;
    return cli_error(PAWL_IO, "writing to the standard output: %s", strerror(errno));
}
