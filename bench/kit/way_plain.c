/* The synchronous and the CheckFreq-like way; see way.h. Both write to files in turn, so that one whole
 * checkpoint is there at any time, and both are as fast as the device: no format, no checksums. */
#include <string.h>

#include "base/mem.h"
#include "kit/way_private.h"

/* Captures when asked to, tells, writes, tells. */
static void *checkfreq_thread(void *context) {
    struct way *w = context;
    struct way_background *b = &w->background;
    pthread_mutex_lock(&b->mutex);
    for (;;) {
        while (b->source == NULL && !b->stop) pthread_cond_wait(&b->changed, &b->mutex);
        if (b->source == NULL) break;
        const void *source = b->source;
        pthread_mutex_unlock(&b->mutex);
        memcpy(b->copy, source, w->state->bytes);
        pthread_mutex_lock(&b->mutex);
        b->source = NULL;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->mutex);
        raw_write(w->raw, b->copy);
        pthread_mutex_lock(&b->mutex);
        w->plain_count++;
        b->writing = false;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

void plain_open(struct way *w) {
    w->raw = raw_open(w->options.folder, w->state->bytes, false);
    if (w->options.kind != WAY_CHECKFREQ) return;
    struct way_background *b = &w->background;
    b->copy = mem_alloc(w->state->bytes);
    if (b->copy == NULL) measure_stop("checkfreq", "no memory for the copy");
    memset(b->copy, 1, w->state->bytes);
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, checkfreq_thread, w) != 0) measure_stop("checkfreq", "no thread");
}

void plain_save(struct way *w, uint32_t version) {
    struct way_background *b = &w->background;
    if (w->options.kind == WAY_SYNC) {
        raw_write(w->raw, w->state->versions[version]);
        w->plain_count++;
        return;
    }
    pthread_mutex_lock(&b->mutex);
    while (b->writing) pthread_cond_wait(&b->changed, &b->mutex);
    b->source = w->state->versions[version];
    b->writing = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

void plain_fence(struct way *w) {
    struct way_background *b = &w->background;
    if (w->options.kind != WAY_CHECKFREQ) return;
    pthread_mutex_lock(&b->mutex);
    while (b->source != NULL) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

bool plain_is_busy(struct way *w) {
    struct way_background *b = &w->background;
    if (w->options.kind != WAY_CHECKFREQ) return false;
    pthread_mutex_lock(&b->mutex);
    bool busy = b->writing;
    pthread_mutex_unlock(&b->mutex);
    return busy;
}

void plain_drain(struct way *w) {
    struct way_background *b = &w->background;
    if (w->options.kind != WAY_CHECKFREQ) return;
    pthread_mutex_lock(&b->mutex);
    while (b->writing) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
}

void plain_close(struct way *w) {
    struct way_background *b = &w->background;
    if (w->options.kind == WAY_CHECKFREQ) {
        pthread_mutex_lock(&b->mutex);
        b->stop = true;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->mutex);
        pthread_join(b->thread, NULL);
        pthread_cond_destroy(&b->changed);
        pthread_mutex_destroy(&b->mutex);
        mem_free(b->copy, w->state->bytes);
    }
    raw_close(w->raw);
}
