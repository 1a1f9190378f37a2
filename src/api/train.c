/* Implementation of the public header pawl/train.h over run/, and what joins it with the planner. */
#include <pawl/train.h>

#include <stdlib.h>

#include "api/train_profile.h"
#include "run/admin.h"
#include "run/link.h"
#include "run/notice.h"
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

int pawl_train_coordinator(int channel) { return link_coordinate(channel); }

const int *pawl_train_notices(size_t *count) {
    *count = NOTICE_COUNT;
    return notice_signals;
}

pawl_code pawl_train_stop(const char *run_dir, char **text, struct pawl_error *e) {
    return admin_ask(run_dir, &(struct admin_frame){.kind = ADMIN_STOP}, text, e);
}

pawl_code pawl_train_drain(const char *run_dir, uint32_t rank, char **text, struct pawl_error *e) {
    return admin_ask(run_dir, &(struct admin_frame){.kind = ADMIN_DRAIN, .rank = rank}, text, e);
}

pawl_code pawl_train_status(const char *run_dir, bool json, char **text, struct pawl_error *e) {
    return admin_ask(run_dir, &(struct admin_frame){.kind = ADMIN_STATUS, .json = json}, text, e);
}

pawl_code pawl_train_join(const char *run_dir, void (*tell)(const char *text), uint32_t *rank, int *channel,
                          char ***argv, struct pawl_error *e) {
    return admin_join(run_dir, tell, rank, channel, argv, e);
}
