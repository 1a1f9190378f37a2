/* Implementation of the public header pawl/train.h over run/, and what joins it with the planner. */
#include <pawl/train.h>

#include <stdlib.h>

#include "api/train_profile.h"
#include "run/worker_main.h"

pawl_code pawl_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                     struct pawl_error *e) {
    struct launch_measured measured = {.reports = NULL};
    pawl_code code = launch_train(options, report, &measured, e);
    if (code == PAWL_OK && options->profile_path != NULL)
        code = train_profile_write(&measured, options->profile_path, e);
    free(measured.reports);
    return code;
}

int pawl_train_worker(int channel) { return worker_main(channel); }
