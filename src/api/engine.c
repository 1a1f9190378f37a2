/* Implementation of the public header pawl/engine.h over run/. */
#include <pawl/engine.h>

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "run/describe.h"
#include "run/engine.h"
#include "run/link.h"
#include "run/worker_main.h"

void pawl_engine_register(const struct pawl_engine *engine) { engine_register(engine); }

int pawl_engine_process(const char *command, int fd) {
    if (command != NULL && strcmp(command, "worker") == 0) return worker_main(fd);
    if (command != NULL && strcmp(command, "describe") == 0) return describe_main(fd);
    if (command != NULL && strcmp(command, "coordinate") == 0) return link_coordinate(fd);
    return pawl_code_exit(PAWL_ARGUMENT);
}
