/* The texts of include/pawl/train.h: a report as JSON, the help of the spec, the folder of a run. Each
 * hands over what src/run makes. Tested in tests/unit/api_train_text_test.c. */
#include <pawl/train.h>

#include <stdlib.h>
#include <string.h>

#include "run/report.h"
#include "run/spec.h"

/* The buffer's memory as a terminated text, or null when it failed. */
static char *text_of(struct bytes *b) {
    bytes_put_u8(b, 0);
    if (!b->failed) return (char *)b->data;
    bytes_close(b);
    return NULL;
}

char *pawl_train_report_json(const struct pawl_train_report *report) {
    struct bytes out = {0};
    report_json(report, &out);
    return text_of(&out);
}

char *pawl_train_spec_help(void) {
    struct bytes out = {0};
    spec_help(&out);
    return text_of(&out);
}

char *pawl_train_run_dir(const struct pawl_train_options *options, struct pawl_error *e) {
    struct spec spec;
    if (spec_load(options->spec_path, options->sets, options->set_count, &spec, e) != PAWL_OK) return NULL;
    char *dir = strdup(spec.run.dir);
    if (dir == NULL) error_set(e, PAWL_MEMORY, 0, "no memory for the name of run.dir");
    return dir;
}
