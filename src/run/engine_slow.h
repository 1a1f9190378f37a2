/* A stage that takes longer than it needs, for fault injection: a face before any other stage. */
#ifndef RUN_ENGINE_SLOW_H
#define RUN_ENGINE_SLOW_H

#include "model/stage.h"

/* *out owns `inner`, also after an error; computing takes *factor times as long from call to call (by
 * sleeping; 1 or less: as it is, and nobody asks for the time). `factor` outlives the stage. */
pawl_code engine_slow_face(struct stage *inner, const double *factor, struct stage **out,
                           struct pawl_error *e);

#endif
