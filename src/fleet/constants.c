/* See fleet.h: the constants of every policy, where each comes from, and how it is overridden.
 *
 * Values are taken over from what the systems publish; where nothing is published the value is said to be
 * assumed, and where a range is known the end that favours the rival is taken. None is fitted to a result.
 * Tested in tests/unit/fleet_constants_test.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "conf/conf.h"
#include "fleet/constants.h"

/* The sources, in the words that are printed. */
#define TORCHFT   "torchft: heartbeat timeout of its lighthouse"
#define BAMBOO    "Bamboo's simulator"
#define VARUNA    "Varuna's manager"
#define MOVER     "TrainMover: a restart of 388 s less 94 s of loading"
#define HALF      "mean of a failure at any time of an iteration"
#define EVERY     "assumed: below the usual half hour to three hours"
#define DERIVED   "0: the state of the fullest worker over common.storage_bps"
#define SYNC      "training waits for the save"
#define REJOIN    "assumed: as long as another restart of running processes"
#define OWN_SPEC  "pawl: default of failure.timeout_s"
#define OWN_BOUND "pawl: bound that its own benchmark keeps to"

/* Saves that training waits for; what differs is said after it. */
#define SAVES(policy, every, iterations, in_flight, stall, slowdown, source)                                 \
    {policy, "checkpoint_every_s", "s", source, every},                                                      \
        {policy, "checkpoint_every_iterations", "iterations", "used where checkpoint_every_s is 0",          \
         iterations},                                                                                        \
        {policy, "checkpoint_write_s", "s", DERIVED, 0}, {policy, "checkpoint_load_s", "s", DERIVED, 0},     \
        {policy, "checkpoint_in_flight", "saves",                                                            \
         "saves under way at once; one begins at most every write/it", in_flight},                           \
        {policy, "checkpoint_stall", "of the write", SYNC, stall}, {                                         \
        policy, "checkpoint_slowdown", "of the time", "while saves go on beside it", slowdown                \
    }

static const struct fleet_constant defaults[] = {
    {"common", "node_ready_s", "s", BAMBOO ": usable after its creation", 45},
    {"common", "notice_s", "s", "warning before a machine goes; 0: a failure, not a preemption", 0},
    {"common", "price_per_hour", "per worker", BAMBOO ": on demand, dollars", 3.06},
    {"common", "link_bps", "bytes/s", "assumed: 100 Gbit/s; only where the profile knows none", 12.5e9},
    {"common", "storage_bps", "bytes/s", "PCcheck's artifact: 0.8 to 2 GB/s a machine", 1e9},
    {"common", "layers_per_stage", "layers", "assumed: only where the profile knows none", 4},

    {"drop-replica", "detect_s", "s", TORCHFT, 5},
    {"drop-replica", "quorum_s", "s", "torchft: 5 to 60 s, the least", 5},
    {"drop-replica", "regroup", "0 or 1", "1: machines of broken replicas form whole ones again", 0},
    {"drop-replica", "restart_s", "s", MOVER, 294},
    {"drop-replica", "lost_iterations", "iterations", HALF, 0.5},
    SAVES("drop-replica", 600, 0, 1, 1, 0, EVERY),

    {"checkpoint-restart", "detect_s", "s", "as torchft; collective timeouts are far longer", 5},
    {"checkpoint-restart", "restart_s", "s", MOVER, 294},
    SAVES("checkpoint-restart", 600, 0, 1, 1, 0, EVERY),

    {"oobleck", "detect_s", "s", "Oobleck: a closed connection is seen at once", 0},
    {"oobleck", "rendezvous_s", "s", "derived: 30 to 120 s with all groups built anew, the least", 30},
    {"oobleck", "restart_s", "s", REJOIN, 30},
    {"oobleck", "fault_threshold", "pipelines", "Oobleck: its examples; so many and one are kept", 3},
    {"oobleck", "lost_iterations", "iterations", HALF, 0.5},
    SAVES("oobleck", 600, 0, 1, 1, 0, EVERY),

    {"bamboo", "depth", "of the stages", "Bamboo: 1.5 times the depth on demand", 1.5},
    {"bamboo", "redundant_forward", "of the time", "derived: 0.1 to 0.2 is not hidden, the middle", 0.15},
    {"bamboo", "slow_after_loss", "of the time", BAMBOO ": until it is reconfigured", 1.5},
    {"bamboo", "reconfigure_share", "of the workers", BAMBOO ": 2 overloaded / active above it", 0.05},
    {"bamboo", "pause_s", "s", "derived: the shadow takes over", 5},
    {"bamboo", "rendezvous_s", "s", BAMBOO ": local, GPT-2 and BERT", 20},
    {"bamboo", "restart_s", "s", BAMBOO ": global rendezvous", 30},
    {"bamboo", "lost_iterations", "iterations", "Bamboo: the shadow merges both lists", 0},
    SAVES("bamboo", 600, 0, 1, 1, 0, EVERY),

    {"varuna", "stop_s", "s", VARUNA ": 120 to 300 s for stopping and launching, the least", 120},
    SAVES("varuna", 600, 0, 1, 1, 0, EVERY),

    {"recycle", "detect_s", "s", "as torchft; its own is not known", 5},
    {"recycle", "rebuild_s", "s", "derived: a stop of 5 to 15 s in all", 5},
    {"recycle", "join_s", "s", "as rebuild_s, at the end of an iteration", 5},
    {"recycle", "restart_s", "s", REJOIN, 30},
    {"recycle", "lost_iterations", "iterations", HALF, 0.5},
    {"recycle", "ceiling", "0 or 1", "1: never faster than 1F1B without failures, which it runs then", 1},
    {"recycle", "min_gain", "of the period", "a move of a worker must gain so much", 0.02},
    SAVES("recycle", 600, 0, 1, 1, 0, EVERY),

    {"pawl", "detect_s", "s", OWN_SPEC, 10},
    {"pawl", "replan_s", "s", "pawl: bound for 1,536 workers", 1},
    {"pawl", "rebuild_s", "s", "assumed: neighbours are connected beforehand", 1},
    {"pawl", "join_s", "s", "assumed: state is sent while training goes on", 1},
    {"pawl", "restart_s", "s", REJOIN, 30},
    {"pawl", "lost_iterations", "iterations", HALF "; nothing of it is kept", 0.5},
    {"pawl", "min_gain", "of the period", "a move of a worker must gain so much", 0.02},
    SAVES("pawl", 0, 10, 2, 0, 0.01, OWN_BOUND),
};
#define DEFAULTS (sizeof defaults / sizeof defaults[0])

pawl_code fleet_constants_default(struct fleet_constants *out, struct pawl_error *e) {
    out->constant = malloc(sizeof defaults);
    if (out->constant == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for constants");
    memcpy(out->constant, defaults, sizeof defaults);
    out->count = DEFAULTS;
    return PAWL_OK;
}

void fleet_constants_close(struct fleet_constants *c) {
    free(c->constant);
    *c = (struct fleet_constants){0};
}

struct fleet_constant *fleet_constant_find(const struct fleet_constants *c, const char *policy,
                                           const char *name) {
    const char *other =
        NULL; /* the newest policy that is not meant: most of its constants share the pointer */
    for (uint32_t i = 0; i < c->count; i++) {
        struct fleet_constant *x = &c->constant[i];
        if (x->policy == other) continue;
        if (strcmp(x->policy, policy) != 0)
            other = x->policy;
        else if (strcmp(x->name, name) == 0)
            return x;
    }
    return NULL;
}

double fleet_constant(const struct fleet_constants *c, const char *policy, const char *name) {
    const struct fleet_constant *constant = fleet_constant_find(c, policy, name);
    return constant != NULL ? constant->value : 0;
}

/* ---- changing them ---- */

static bool is(const struct fleet_constant *c, const char *name) { return strcmp(c->name, name) == 0; }

/* What a value must be for the simulation to make sense; null: nothing is wrong. */
static const char *objection(const struct fleet_constant *c, double value) {
    if (value < 0) return "must not be negative";
    if (value > 1e15) return "is too large: at most 1e15";
    if (is(c, "link_bps") || is(c, "storage_bps")) return value < 1 ? "must be 1 or more" : NULL;
    if (is(c, "layers_per_stage"))
        return value < 1 || value > 64 || value != floor(value) ? "must be a whole number from 1 to 64"
                                                                : NULL;
    if (is(c, "fault_threshold"))
        return value > 65535 || value != floor(value) ? "must be a whole number up to 65535" : NULL;
    if (is(c, "depth")) return value < 1 || value > 16 ? "must be from 1 to 16" : NULL;
    if (is(c, "slow_after_loss")) return value < 1 ? "must be 1 or more" : NULL;
    if (is(c, "checkpoint_in_flight")) return value < 1 ? "must be 1 or more" : NULL;
    if (is(c, "regroup") || is(c, "ceiling")) return value != 0 && value != 1 ? "must be 0 or 1" : NULL;
    if (is(c, "lost_iterations") || is(c, "checkpoint_stall") || is(c, "checkpoint_slowdown") ||
        is(c, "reconfigure_share") || is(c, "min_gain") || is(c, "redundant_forward"))
        return value > 1 ? "must be from 0 to 1" : NULL;
    return NULL;
}

static pawl_code unknown_name(const struct fleet_constants *c, const char *policy, const char *name,
                              struct pawl_error *e) {
    char names[512];
    size_t used = 0;
    names[0] = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct fleet_constant *x = &c->constant[i];
        if (strcmp(x->policy, policy) != 0 || used + strlen(x->name) + 3 > sizeof names) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", x->name);
    }
    if (used == 0)
        return error_set(
            e, PAWL_ARGUMENT, 0,
            "there is no policy \"%s\" with constants: there are common, drop-replica, checkpoint-restart, "
            "oobleck, bamboo, varuna, recycle, pawl",
            policy);
    return error_set(e, PAWL_ARGUMENT, 0, "%s has no constant \"%s\": it has %s", policy, name, names);
}

pawl_code fleet_constants_put(struct fleet_constants *c, const char *policy, const char *name,
                              const char *text, struct pawl_error *e) {
    struct fleet_constant *constant = fleet_constant_find(c, policy, name);
    double value;
    if (constant == NULL) return unknown_name(c, policy, name, e);
    if (!conf_real(text, &value))
        return error_set(e, PAWL_ARGUMENT, 0, "%s.%s: \"%.60s\" is not a number", policy, name, text);
    const char *why = objection(constant, value);
    if (why != NULL) return error_set(e, PAWL_ARGUMENT, 0, "%s.%s: %.60s %s", policy, name, text, why);
    constant->value = value;
    constant->source = "as given";
    return PAWL_OK;
}

pawl_code fleet_constants_set(struct fleet_constants *c, const char *assignment, struct pawl_error *e) {
    char text[160];
    char *dot = NULL, *equals = NULL;
    size_t size = strlen(assignment);
    if (size < sizeof text) {
        memcpy(text, assignment, size + 1);
        equals = strchr(text, '=');
        dot = strchr(text, '.');
    }
    if (equals == NULL || dot == NULL || dot > equals)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "\"%.120s\": wanted policy.constant=value, like oobleck.detect_s=5", assignment);
    *dot = *equals = 0;
    return fleet_constants_put(c, text, dot + 1, equals + 1, e);
}

/* ---- printing ---- */

pawl_code fleet_constants_print(const struct fleet_constants *c, FILE *out, struct pawl_error *e) {
    const char *policy = "";
    struct bytes text = {0};
    bytes_printf(&text, "# Constants of the simulated policies: docs/formats/stops.md\n");
    for (uint32_t i = 0; i < c->count; i++) {
        const struct fleet_constant *x = &c->constant[i];
        if (strcmp(policy, x->policy) != 0) bytes_printf(&text, "%s:\n", x->policy);
        policy = x->policy;
        bytes_printf(&text, "  %s: ", x->name);
        conf_print_real(x->value, &text);
        bytes_printf(&text, " # %s; %s\n", x->unit, x->source);
    }
    pawl_code code = text.failed ? error_set(e, PAWL_MEMORY, 0, "no memory to write the constants") : PAWL_OK;
    if (code == PAWL_OK && (fwrite(text.data, 1, text.size, out) != text.size || fflush(out) != 0))
        code = error_set(e, PAWL_IO, errno, "writing the constants");
    bytes_close(&text);
    return code;
}

pawl_code pawl_sim_stops(FILE *out, struct pawl_error *e) {
    struct fleet_constants c = {0};
    pawl_code code = fleet_constants_default(&c, e);
    if (code == PAWL_OK) code = fleet_constants_print(&c, out, e);
    fleet_constants_close(&c);
    return code;
}
