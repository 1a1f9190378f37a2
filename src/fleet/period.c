/* See period.h: a table of answers by policy and holes, open addressing. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "fleet/period.h"

struct entry {
    uint32_t *key;               /* policy, holes; null: empty */
    struct fleet_period *period; /* stays where it is when the table grows */
};

struct fleet_periods {
    uint32_t stages;
    fleet_ask *ask;
    void *context;
    struct entry *entry;
    uint32_t room, count; /* room: a power of two, at least half empty */
};

static void close_period(struct fleet_period *p) {
    if (p == NULL) return;
    free(p->holes);
    free(p);
}

pawl_code fleet_periods_open(uint32_t stages, fleet_ask *ask, void *context, struct fleet_periods **out,
                             struct pawl_error *e) {
    struct fleet_periods *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for periods");
    *p = (struct fleet_periods){.stages = stages, .ask = ask, .context = context, .room = 64};
    p->entry = calloc(p->room, sizeof *p->entry);
    return p->entry == NULL ? error_set(e, PAWL_MEMORY, 0, "no memory for periods") : PAWL_OK;
}

void fleet_periods_close(struct fleet_periods *p) {
    if (p == NULL) return;
    for (uint32_t i = 0; p->entry != NULL && i < p->room; i++) {
        free(p->entry[i].key);
        close_period(p->entry[i].period);
    }
    free(p->entry);
    free(p);
}

uint32_t fleet_periods_asked(const struct fleet_periods *p) { return p->count; }

static size_t key_bytes(const struct fleet_periods *p) { return ((size_t)p->stages + 1) * sizeof(uint32_t); }

/* Where the key is, or the empty place where it belongs. */
static struct entry *find(const struct fleet_periods *p, const uint32_t *key) {
    uint32_t at = (uint32_t)hash64(key, key_bytes(p)) & (p->room - 1);
    while (p->entry[at].key != NULL && memcmp(p->entry[at].key, key, key_bytes(p)) != 0)
        at = (at + 1) & (p->room - 1);
    return &p->entry[at];
}

static pawl_code grow(struct fleet_periods *p, struct pawl_error *e) {
    if (2 * (p->count + 1) <= p->room) return PAWL_OK;
    struct fleet_periods more = *p;
    more.room = 2 * p->room;
    more.entry = calloc(more.room, sizeof *more.entry);
    if (more.entry == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for periods");
    for (uint32_t i = 0; i < p->room; i++)
        if (p->entry[i].key != NULL) *find(&more, p->entry[i].key) = p->entry[i];
    free(p->entry);
    *p = more;
    return PAWL_OK;
}

static pawl_code ask(struct fleet_periods *p, const uint32_t *key, struct fleet_period **out,
                     struct pawl_error *e) {
    struct fleet_period *period = calloc(1, sizeof *period);
    if (period != NULL) period->holes = calloc(p->stages, sizeof *period->holes);
    pawl_code code = period == NULL || period->holes == NULL
                         ? error_set(e, PAWL_MEMORY, 0, "no memory for a period")
                         : p->ask(p->context, (enum pawl_policy)key[0], key + 1, period, e);
    if (code != PAWL_OK) close_period(period), period = NULL;
    *out = period;
    return code;
}

pawl_code fleet_periods_get(struct fleet_periods *p, enum pawl_policy policy, const uint32_t *holes,
                            const struct fleet_period **out, struct pawl_error *e) {
    pawl_code code = grow(p, e);
    uint32_t *key = malloc(key_bytes(p));
    if (code == PAWL_OK && key == NULL) code = error_set(e, PAWL_MEMORY, 0, "no memory for a period");
    if (code != PAWL_OK) return free(key), code;
    key[0] = (uint32_t)policy;
    memcpy(key + 1, holes, p->stages * sizeof *holes);
    struct entry *entry = find(p, key);
    if (entry->key == NULL) {
        code = ask(p, key, &entry->period, e);
        if (code == PAWL_OK) entry->key = key, key = NULL, p->count++;
    }
    free(key);
    *out = entry->period;
    return code;
}
