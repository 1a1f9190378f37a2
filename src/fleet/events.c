/* See fleet.h: the list of events, and warnings as lines. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/events.h"

pawl_code fleet_events_put(struct fleet_events *events, double at_s, uint32_t machine, bool joins,
                           struct pawl_error *e) {
    uint32_t n = events->count;
    if (n == FLEET_EVENTS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "more than %u failures and returns", FLEET_EVENTS_MAX);
    if ((n & (n - 1)) == 0) { /* full at each power of two */
        size_t room = n == 0 ? 1 : 2 * (size_t)n;
        struct fleet_event *more = realloc(events->event, room * sizeof *more);
        if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %zu events", room);
        events->event = more;
    }
    events->event[events->count++] = (struct fleet_event){at_s, machine, joins};
    return PAWL_OK;
}

pawl_code fleet_warn(char **warnings, struct pawl_error *e, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c != 0; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?'; /* one line, whatever a node is called */
    size_t had = *warnings != NULL ? strlen(*warnings) : 0, more = strlen(line);
    char *text = realloc(*warnings, had + more + 2);
    if (text == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a warning");
    memcpy(text + had, line, more);
    memcpy(text + had + more, "\n", 2);
    *warnings = text;
    return PAWL_OK;
}

void fleet_events_close(struct fleet_events *events) {
    free(events->event);
    free(events->warnings);
    *events = (struct fleet_events){0};
}
