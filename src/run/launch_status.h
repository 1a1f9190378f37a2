/* What pawl status shows: who is there, at which step, in which phase, since when without progress. */
#ifndef RUN_LAUNCH_STATUS_H
#define RUN_LAUNCH_STATUS_H

#include "run/launch_state.h"

void status_json(const struct launch *l, struct bytes *out); /* docs/formats/run.md */
void status_text(const struct launch *l, struct bytes *out);

#endif
