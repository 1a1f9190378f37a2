/* See way.h. Of pawl this file uses what a stranger would: include/pawl/ckpt.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/way_private.h"

static const char *const kind_names[WAY_KINDS] = {"none", "sync", "checkfreq", "pawl", "staged"};

const char *way_kind_name(enum way_kind kind) { return kind_names[kind]; }

enum way_kind way_kind_named(const char *name) {
    for (int kind = 0; kind < WAY_KINDS; kind++)
        if (strcmp(kind_names[kind], name) == 0) return (enum way_kind)kind;
    measure_stop(name, "wanted none, sync, checkfreq, pawl or staged");
}

static bool is_pawl(const struct way *w) {
    return w->options.kind == WAY_PAWL || w->options.kind == WAY_STAGED;
}

static void must(pawl_code code, const char *what, const struct pawl_error *e) {
    if (code != PAWL_OK) measure_stop(what, e->text);
}

static void open_pawl(struct way *w) {
    char path[600];
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/pawl", w->options.folder);
    struct pawl_ckpt_options options = {.path = path,
                                        .in_flight = w->options.in_flight,
                                        .keep = 1,
                                        .full = PAWL_CKPT_BLOCK,
                                        .writers = w->options.writers,
                                        .chunk_bytes = w->options.chunk_bytes,
                                        .staging_bytes = w->options.staging_bytes,
                                        .unchecked = w->options.unchecked,
                                        .every = 1};
    must(pawl_ckpt_open(&options, &w->ckpt, &e), "open", &e);
    must(pawl_ckpt_declare(w->ckpt, w->state->tensors, w->state->count, &w->declared, &e), "declare", &e);
    must(pawl_ckpt_from_scratch(w->ckpt, &e), "from scratch", &e);
    struct pawl_ckpt_status status;
    pawl_ckpt_status(w->ckpt, &status);
    w->step = status.durable_step;
    w->data = calloc(w->state->count, sizeof *w->data);
    if (w->data == NULL) measure_stop("way", "no memory");
}

void way_open(struct way *w, const struct way_options *options, const struct state *state) {
    *w = (struct way){.options = *options, .state = state};
    if (is_pawl(w))
        open_pawl(w);
    else if (options->kind != WAY_NONE)
        plain_open(w);
}

#define NO_VERSION UINT32_MAX

/* The save gave its version back; when it has ended there is nothing more to wait for either. */
static void release(struct way *w, uint64_t id, bool ended) {
    for (uint32_t i = 0; i < w->begun_count; i++) {
        if (w->begun[i].id != id) continue;
        w->begun[i].version = NO_VERSION;
        if (ended) w->begun[i] = w->begun[--w->begun_count];
        return;
    }
}

/* Takes the news: which versions were given back, which saves have ended. */
static void take_events(struct way *w) {
    struct pawl_ckpt_event events[16];
    uint32_t count;
    do {
        count = pawl_ckpt_poll(w->ckpt, events, 16);
        for (uint32_t i = 0; i < count; i++) {
            const struct pawl_ckpt_event *event = &events[i];
            if (event->kind == PAWL_CKPT_FAILED) measure_stop("save", event->text);
            if (event->kind == PAWL_CKPT_CAPTURED) release(w, event->id, false);
            if (event->kind == PAWL_CKPT_DURABLE || event->kind == PAWL_CKPT_CANCELLED)
                release(w, event->id, true);
        }
    } while (count == 16);
}

static void save_pawl(struct way *w, uint32_t version) {
    struct pawl_error e = {0};
    uint64_t id = 0;
    take_events(w);
    state_addresses(w->state, version, w->data);
    struct pawl_ckpt_save save = {
        .state = w->declared, .step = ++w->step, .data = w->data, .immutable = w->options.kind == WAY_PAWL};
    must(pawl_ckpt_save(w->ckpt, &save, &id, &e), "save", &e);
    if (w->begun_count == WAY_BEGUN_MAX) measure_stop("way", "more saves under way than were allowed");
    w->begun[w->begun_count].id = id;
    w->begun[w->begun_count++].version = save.immutable ? version : NO_VERSION;
}

void way_save(struct way *w, uint32_t version) {
    if (is_pawl(w))
        save_pawl(w, version);
    else if (w->options.kind != WAY_NONE)
        plain_save(w, version);
}

void way_fence(struct way *w) {
    struct pawl_error e = {0};
    if (is_pawl(w))
        must(pawl_ckpt_fence(w->ckpt, PAWL_FOREVER, &e), "fence", &e);
    else
        plain_fence(w);
}

static bool is_held(const struct way *w, uint32_t version) {
    for (uint32_t i = 0; i < w->begun_count; i++)
        if (w->begun[i].version == version) return true;
    return false;
}

static uint64_t oldest_holder(const struct way *w) {
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < w->begun_count; i++)
        if (w->begun[i].version != NO_VERSION && w->begun[i].id < oldest) oldest = w->begun[i].id;
    return oldest;
}

uint32_t way_free_version(struct way *w, uint32_t current) {
    for (;;) {
        if (is_pawl(w)) take_events(w);
        for (uint32_t v = 0; v < w->state->version_count; v++)
            if (v != current && !is_held(w, v)) return v;
        uint64_t id = oldest_holder(w);
        struct pawl_error e = {0};
        if (id == UINT64_MAX) measure_stop("way", "wanted at least two versions");
        must(pawl_ckpt_wait(w->ckpt, id, PAWL_CKPT_UNTIL_CAPTURED, PAWL_FOREVER, &e), "wait", &e);
        release(w, id, false);
    }
}

bool way_is_busy(struct way *w) {
    if (!is_pawl(w)) return plain_is_busy(w);
    struct pawl_ckpt_status status;
    pawl_ckpt_status(w->ckpt, &status);
    return status.in_flight > 0;
}

void way_drain(struct way *w) {
    if (!is_pawl(w)) {
        plain_drain(w);
        return;
    }
    take_events(w);
    while (w->begun_count > 0) {
        struct pawl_error e = {0};
        uint64_t id = w->begun[0].id;
        pawl_code code = pawl_ckpt_wait(w->ckpt, id, PAWL_CKPT_UNTIL_DURABLE, PAWL_FOREVER, &e);
        if (code != PAWL_CANCELLED) must(code, "wait", &e); /* overtaken by a newer one: as good */
        take_events(w);
        release(w, id, true);
    }
}

uint64_t way_durable_count(const struct way *w) {
    if (!is_pawl(w)) return w->plain_count;
    struct pawl_ckpt_status status;
    pawl_ckpt_status(w->ckpt, &status);
    return status.committed;
}

void way_staging(const struct way *w, uint64_t *budget, uint64_t *used) {
    struct pawl_ckpt_status status = {0};
    if (w->ckpt != NULL) pawl_ckpt_status(w->ckpt, &status);
    *budget = status.staging_bytes;
    *used = status.staging_used_bytes;
}

void way_close(struct way *w) {
    struct pawl_error e = {0};
    if (is_pawl(w))
        must(pawl_ckpt_close(w->ckpt, PAWL_FOREVER, &e), "close", &e);
    else if (w->options.kind != WAY_NONE)
        plain_close(w);
    free(w->data);
}
