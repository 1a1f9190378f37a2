/* Implementation of run/inject.h. */
#include "run/inject.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool take_number(const char **at, uint64_t *out) {
    if (**at < '0' || **at > '9') return false;
    char *end;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

static pawl_code malformed(const char *text, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0,
                     "--inject %s: expected kill:RANK@STEP, kill:RANK@STEP:POINT or kill:all@STEP", text);
}

static pawl_code take_point(const char *name, struct inject *out, struct pawl_error *e) {
    out->point = fault_of_name(name);
    if (out->point != FAULT_NONE && out->rank != INJECT_ALL) return PAWL_OK;
    if (out->rank == INJECT_ALL)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: kill:all takes no point", out->text);
    char names[512] = "";
    for (uint32_t p = 1; p < FAULT_COUNT; p++) {
        strncat(names, p > 1 ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, fault_name((enum fault_point)p), sizeof names - strlen(names) - 1);
    }
    return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: no point named %s; there are %s", out->text, name,
                     names);
}

pawl_code inject_parse(const char *text, uint32_t rank_count, uint64_t steps, struct inject *out,
                       struct pawl_error *e) {
    *out = (struct inject){.text = text, .point = FAULT_AFTER_FORWARD};
    if (strncmp(text, "kill:", 5) != 0) return malformed(text, e);
    const char *at = text + 5;
    uint64_t rank = INJECT_ALL;
    if (strncmp(at, "all", 3) == 0)
        at += 3;
    else if (!take_number(&at, &rank))
        return malformed(text, e);
    else if (rank >= rank_count)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: rank %llu, but the spec has ranks 0 to %u", text,
                         (unsigned long long)rank, rank_count - 1);
    out->rank = (uint32_t)rank;
    if (*at++ != '@' || !take_number(&at, &out->step)) return malformed(text, e);
    if (out->step > steps)
        return error_set(e, PAWL_ARGUMENT, 0, "--inject %s: step %llu never comes, the run has %llu steps",
                         text, (unsigned long long)out->step, (unsigned long long)steps);
    if (*at == ':') return take_point(at + 1, out, e);
    return *at == 0 ? PAWL_OK : malformed(text, e);
}
