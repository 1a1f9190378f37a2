/* Implementation of the public header pawl/train.h over run/. */
#include <pawl/train.h>

#include "run/launch.h"
#include "run/worker_main.h"

pawl_code pawl_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                     struct pawl_error *e) {
    return launch_train(options, report, e);
}

int pawl_train_worker(int channel) { return worker_main(channel); }
