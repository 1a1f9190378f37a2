/* Private to fleet: what the constants' files share. fleet.h has their contract. */
#ifndef FLEET_CONSTANTS_H
#define FLEET_CONSTANTS_H

#include <stdio.h>

#include "fleet/fleet.h"

struct fleet_constant *fleet_constant_find(const struct fleet_constants *c, const char *policy,
                                           const char *name); /* null: none */
/* ARGUMENT: no such policy or constant, not a number, out of its range. */
pawl_code fleet_constants_put(struct fleet_constants *c, const char *policy, const char *name,
                              const char *text, struct pawl_error *e);
/* As a stops file. */
pawl_code fleet_constants_print(const struct fleet_constants *c, FILE *out, struct pawl_error *e);
/* `name` is the file's, for messages. FORMAT: name, line, column. */
pawl_code fleet_constants_parse(struct fleet_constants *c, const char *text, size_t size, const char *name,
                                struct pawl_error *e);

#endif
