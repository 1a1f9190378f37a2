/* The report of a run as JSON: the fields of struct pawl_train_report by their names. */
#ifndef RUN_REPORT_H
#define RUN_REPORT_H

#include <pawl/train.h>

#include "base/bytes.h"
#include "base/error.h"

/* resumed_from is null in the JSON when the run began at step 0; losses are null when no iteration ran. The
 * text ends with a newline. */
void report_json(const struct pawl_train_report *report, struct bytes *out);
/* As file_replace of base/file.h. Errors: NOT_FOUND, NO_SPACE, IO, MEMORY. */
pawl_code report_write(const struct pawl_train_report *report, const char *path, struct pawl_error *e);

#endif
