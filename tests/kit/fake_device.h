/* A device with memory that the processor must not touch: its addresses are mapped without access, so that a
 * load from one ends the test. Copies are done by a thread of its own, in an order drawn from a seed, some
 * inside the call, some failing; or they are held until the test lets them go. */
#ifndef KIT_FAKE_DEVICE_H
#define KIT_FAKE_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "ckpt/ckpt.h"

#define DEVICE_COPIES_MAX 4096u

struct device_copy {
    const void *source;
    void *target;
    size_t bytes;
    struct pawl_copy *copy;
    bool in; /* to the device */
};

struct device {
    struct pawl_memory memory; /* to put into tensors */
    uint8_t *window, *bytes;   /* addresses it hands out; what they stand for */
    size_t size, used;
    struct rng_stream random;
    uint32_t refuse_ppm, fail_ppm, inline_ppm; /* of a million copies */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool held, stop;
    struct device_copy queue[DEVICE_COPIES_MAX];
    uint32_t count, most; /* copies under way, and the most at once */
    uint64_t copies, failed;
    uint8_t *pinned; /* the one region that may be a target; null: not pinned */
    size_t pinned_bytes;
    uint32_t pins, unpins, outside; /* calls; copies to places that were not pinned */
};

static inline bool device_draw(struct device *d, uint32_t ppm) {
    return rng_below(&d->random, 1000000) < ppm;
}

static inline void device_carry_out(struct device *d, const struct device_copy *c) {
    if (c->in)
        memcpy(d->bytes + ((uint8_t *)c->target - d->window), c->source, c->bytes);
    else
        memcpy(c->target, d->bytes + ((const uint8_t *)c->source - d->window), c->bytes);
}

static inline pawl_code device_begin(struct device *d, struct device_copy c, struct pawl_error *e) {
    pthread_mutex_lock(&d->mutex);
    bool refused = device_draw(d, d->refuse_ppm), at_once = !d->held && device_draw(d, d->inline_ppm);
    uint8_t *to = c.target;
    d->outside += !c.in && (to < d->pinned || to + c.bytes > d->pinned + d->pinned_bytes);
    d->copies++;
    d->failed += refused;
    if (!refused && !at_once) {
        if (d->count == DEVICE_COPIES_MAX) abort();
        d->queue[d->count++] = c;
        if (d->count > d->most) d->most = d->count;
        pthread_cond_signal(&d->changed);
    }
    pthread_mutex_unlock(&d->mutex);
    if (refused) {
        e->code = PAWL_IO;
        snprintf(e->text, sizeof e->text, "the queue is broken");
        return PAWL_IO;
    }
    if (at_once) {
        device_carry_out(d, &c);
        pawl_copy_done(c.copy, PAWL_OK);
    }
    return PAWL_OK;
}

static inline pawl_code device_copy_out(void *context, const void *source, void *target, size_t bytes,
                                        struct pawl_copy *copy, struct pawl_error *e) {
    return device_begin(context, (struct device_copy){source, target, bytes, copy, false}, e);
}

static inline pawl_code device_copy_in(void *context, const void *source, void *target, size_t bytes,
                                       struct pawl_copy *copy, struct pawl_error *e) {
    return device_begin(context, (struct device_copy){source, target, bytes, copy, true}, e);
}

static inline pawl_code device_pin(void *context, void *base, size_t bytes) {
    struct device *d = context;
    pthread_mutex_lock(&d->mutex);
    d->pins++;
    d->pinned = base;
    d->pinned_bytes = bytes;
    pthread_mutex_unlock(&d->mutex);
    return PAWL_OK;
}

static inline void device_unpin(void *context, void *base, size_t bytes) {
    struct device *d = context;
    memset(base, 0xee, bytes); /* it must still be there */
    d->unpins++;
    d->pinned = NULL;
    d->pinned_bytes = 0;
}

/* Any of the copies under way, out of order. */
static inline void *device_thread(void *arg) {
    struct device *d = arg;
    pthread_mutex_lock(&d->mutex);
    for (;;) {
        while ((d->count == 0 || d->held) && !d->stop) pthread_cond_wait(&d->changed, &d->mutex);
        if (d->stop) break;
        uint32_t i = (uint32_t)rng_below(&d->random, d->count);
        struct device_copy c = d->queue[i];
        d->queue[i] = d->queue[--d->count];
        bool fails = device_draw(d, d->fail_ppm);
        d->failed += fails;
        pthread_mutex_unlock(&d->mutex);
        if (!fails) device_carry_out(d, &c);
        pawl_copy_done(c.copy, fails ? PAWL_IO : PAWL_OK);
        pthread_mutex_lock(&d->mutex);
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static inline struct device *device_new(uint64_t seed, const char *name) {
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL) abort();
    d->size = (size_t)1 << 22;
    d->window = mmap(NULL, d->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    d->bytes = malloc(d->size);
    if (d->window == MAP_FAILED || d->bytes == NULL) abort();
    d->random.state = seed;
    d->memory = (struct pawl_memory){.name = name,
                                     .context = d,
                                     .copy_out = device_copy_out,
                                     .copy_in = device_copy_in,
                                     .pin = device_pin,
                                     .unpin = device_unpin};
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    if (pthread_create(&d->thread, NULL, device_thread, d) != 0) abort();
    return d;
}

static inline void device_free(struct device *d) {
    pthread_mutex_lock(&d->mutex);
    d->stop = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
    munmap(d->window, d->size);
    free(d->bytes);
    free(d);
}

/* Copies begun from now on do not end before the device is let go again. */
static inline void device_hold(struct device *d, bool held) {
    pthread_mutex_lock(&d->mutex);
    d->held = held;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static inline uint32_t device_under_way(struct device *d) {
    pthread_mutex_lock(&d->mutex);
    uint32_t count = d->count;
    pthread_mutex_unlock(&d->mutex);
    return count;
}

/* The tensor's bytes move to the device; `space` bytes stay free before them. */
static inline void device_take(struct device *d, struct pawl_tensor *t, size_t bytes, size_t space) {
    if (d->used + space + bytes > d->size) abort();
    d->used += space;
    memcpy(d->bytes + d->used, t->data, bytes);
    t->data = d->window + d->used;
    t->memory = &d->memory;
    d->used += bytes;
}

#endif
