/* Where a run may write what was asked for besides its own files: the report, the profile, the log. */
#ifndef RUN_OUTPUTS_H
#define RUN_OUTPUTS_H

#include <pawl/train.h>

#include "run/spec.h"

/* Before any process starts, so that nothing is lost after hours of training, or by the writing. ARGUMENT,
 * naming the option: it names a folder, a socket or nothing; its folder may not be written to; it is what
 * the run reads, a file of this run or of another one, or what another option names. A link counts as what
 * it leads to; a device or pipe is fine. run.dir/report.json must not be something else than a file. */
pawl_code outputs_check(const struct spec *spec, const struct pawl_train_options *options,
                        struct pawl_error *e);

#endif
