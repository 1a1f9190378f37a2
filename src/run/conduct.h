/* The launcher's half of the protocol: feeds the coordinator, carries out what it decides.
 *
 * Between the pure coordinator and the outside: translates control messages to events and actions to control
 * messages, makes the plan for the live set (built, then proven by ir_check, then sent with every GO), passes
 * on addresses, and counts. Knows no process and no clock, so the storm drives it too. */
#ifndef RUN_CONDUCT_H
#define RUN_CONDUCT_H

#include "coord/coord.h"
#include "run/message.h"
#include "run/spec.h"

enum conduct_end { CONDUCT_RUNNING, CONDUCT_FINISHED, CONDUCT_LOST, CONDUCT_STOPPED };

struct conduct_hooks {
    void *context;
    /* Make sure the process of `rank` is gone; its exit is reported by conduct_exit. */
    void (*kill)(void *context, uint32_t rank, const char *why);
    /* Every action, after it was carried out; for logs and counters. */
    void (*note)(void *context, const struct coord_action *action);
    /* A message that is for people: SAVED, FAILED, READY, MEASURED. */
    void (*heard)(void *context, uint32_t rank, const struct message *m);
};

struct conduct;

pawl_code conduct_new(const struct spec *spec, const struct coord_config *config, struct conduct_hooks hooks,
                      struct conduct **out, struct pawl_error *e);
void conduct_free(struct conduct *c);
/* The channel to a rank; borrowed until conduct_exit(rank). */
void conduct_attach(struct conduct *c, uint32_t rank, struct channel *channel);
/* Receive and handle what `rank` has sent. */
void conduct_receive(struct conduct *c, uint32_t rank, int64_t now_ns);
void conduct_exit(struct conduct *c, uint32_t rank, int64_t now_ns);
void conduct_tick(struct conduct *c, int64_t now_ns);
void conduct_stop(struct conduct *c, int64_t now_ns); /* the user wants to end: save and finish */

enum conduct_end conduct_state(const struct conduct *c);
const struct pawl_error *conduct_error(const struct conduct *c); /* for CONDUCT_STOPPED and CONDUCT_LOST */
const struct coord *conduct_coord(const struct conduct *c);
/* Iterations begun and thrown away: because a rank died; because a step had been taken too early. */
uint64_t conduct_redone(const struct conduct *c);
uint64_t conduct_undone(const struct conduct *c);

#endif
