/* See pccheck.h. */
#include "kit/pccheck.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#define PAGE       ((size_t)16 << 10) /* its unit of metadata */
#define STEP       512u
#define POOL_RATIO 2u /* of the checkpoint's size, its default */
#define META_BYTES 64u

/* Root and metadata of every slot, then the slots. */
static size_t slot_offset(const struct pccheck *p, uint32_t slot) {
    return PAGE * (PCCHECK_SLOTS_MAX + 1) + p->slot_bytes * slot;
}

static size_t file_bytes(size_t slot_bytes, uint32_t slots) {
    return PAGE * (PCCHECK_SLOTS_MAX + 1) + slot_bytes * slots;
}

void pccheck_prepare(const char *path, size_t bytes, uint32_t slots_max) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) measure_stop(path, strerror(errno));
    int error = posix_fallocate(fd, 0, (off_t)file_bytes(mem_round_up(bytes + 1, MEM_ALIGN), slots_max));
    if (error != 0) measure_stop(path, strerror(error));
    close(fd);
}

void pccheck_open(struct pccheck *p, const char *path, const void *source, size_t bytes, uint32_t in_flight,
                  uint32_t threads, uint32_t chunk_count) {
    *p = (struct pccheck){.in_flight = in_flight,
                          .threads = threads,
                          .chunk_count = chunk_count,
                          .bytes = bytes,
                          .chunk_bytes = (bytes + chunk_count - 1) / chunk_count,
                          .source = source,
                          .slot_bytes = mem_round_up(bytes + 1, MEM_ALIGN),
                          .root_slot = in_flight};
    if (in_flight + 1 > PCCHECK_SLOTS_MAX) measure_stop("pccheck", "too many in flight");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) measure_stop(path, strerror(errno));
    p->map_bytes = file_bytes(p->slot_bytes, in_flight + 1);
    p->map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p->map == MAP_FAILED) measure_stop(path, strerror(errno));
    close(fd);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (uint32_t i = 0; i < in_flight; i++)
        p->free_slots[p->free_slot_count++] = i; /* the last: "initial" */
    p->pool_count = p->pool_free = POOL_RATIO * chunk_count;
    p->pool = calloc(p->pool_count, sizeof *p->pool);
    for (uint32_t i = 0; p->pool != NULL && i < p->pool_count; i++) {
        p->pool[i] = mem_alloc(p->chunk_bytes);
        if (p->pool[i] == NULL) measure_stop("pccheck", "no memory for its pool");
        memset(p->pool[i], 1, p->chunk_bytes);
    }
}

struct slice { /* one writer thread's part of a chunk */
    pthread_t thread;
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

static void *copy_slice(void *context) {
    struct slice *s = context;
    for (size_t at = 0; at < s->bytes; at += STEP)
        memcpy(s->to + at, s->from + at, s->bytes - at < STEP ? s->bytes - at : STEP);
    return NULL;
}

static void start(pthread_t *thread, void *(*body)(void *), void *context) {
    int error = pthread_create(thread, NULL, body, context);
    if (error != 0) measure_stop("pccheck", strerror(error));
}

/* T fresh threads, as there. */
static void copy_by_threads(const struct pccheck *p, uint8_t *to, const uint8_t *from, size_t bytes) {
    struct slice slices[64];
    size_t share = mem_round_up((bytes + p->threads - 1) / p->threads, STEP), at = 0;
    uint32_t count = 0;
    for (; at < bytes; at += share, count++) {
        slices[count] = (struct slice){
            .to = to + at, .from = from + at, .bytes = bytes - at < share ? bytes - at : share};
        start(&slices[count].thread, copy_slice, &slices[count]);
    }
    for (uint32_t i = 0; i < count; i++) pthread_join(slices[i].thread, NULL);
}

struct checkpoint {
    struct pccheck *p;
    uint64_t counter;
    uint32_t slot, copied; /* chunks that are in the pool or beyond: chunk k waits for k */
};

struct chunk {
    pthread_t thread;
    struct checkpoint *of;
    uint32_t number;
};

static uint8_t *take_buffer(struct chunk *c) {
    struct pccheck *p = c->of->p;
    pthread_mutex_lock(&p->mutex);
    while (c->of->copied < c->number || p->pool_free == 0) pthread_cond_wait(&p->changed, &p->mutex);
    uint8_t *buffer = p->pool[--p->pool_free];
    pthread_mutex_unlock(&p->mutex);
    return buffer;
}

static void *run_chunk(void *context) {
    struct chunk *c = context;
    struct pccheck *p = c->of->p;
    size_t begin = p->chunk_bytes * c->number;
    if (begin > p->bytes) begin = p->bytes;
    size_t bytes = p->bytes - begin < p->chunk_bytes ? p->bytes - begin : p->chunk_bytes;
    uint8_t *buffer = take_buffer(c);
    memcpy(buffer, p->source + begin, bytes); /* stands for the copy from the device */
    pthread_mutex_lock(&p->mutex);
    c->of->copied = c->number + 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    copy_by_threads(p, p->map + slot_offset(p, c->of->slot) + begin, buffer, bytes);
    pthread_mutex_lock(&p->mutex);
    p->pool[p->pool_free++] = buffer;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void sync_range(const struct pccheck *p, size_t begin, size_t bytes) {
    size_t from = begin & ~((size_t)MEM_ALIGN - 1);
    if (msync(p->map + from, begin + bytes - from, MS_SYNC) != 0) measure_stop("msync", strerror(errno));
}

/* Flush, then swap the root unless a newer one is there; the slot that lost is free again. */
static void commit(struct checkpoint *c) {
    struct pccheck *p = c->p;
    size_t meta = PAGE * (c->slot + 1);
    sync_range(p, slot_offset(p, c->slot), p->bytes);
    memcpy(p->map + meta, &c->counter, sizeof c->counter);
    sync_range(p, meta, META_BYTES);
    pthread_mutex_lock(&p->mutex);
    uint32_t freed = c->slot;
    if (c->counter > p->committed) {
        freed = p->root_slot;
        p->committed = c->counter;
        p->root_slot = c->slot;
        memcpy(p->map, &c->slot, sizeof c->slot);
    }
    p->free_slots[p->free_slot_count++] = freed;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

/* False when the batch has all it wants. */
static bool begin_checkpoint(struct checkpoint *c) {
    struct pccheck *p = c->p;
    pthread_mutex_lock(&p->mutex);
    bool more = p->begun < p->wanted;
    p->begun += more;
    while (more && p->free_slot_count == 0) pthread_cond_wait(&p->changed, &p->mutex);
    if (more) {
        c->slot = p->free_slots[0]; /* first in, first out */
        memmove(p->free_slots, p->free_slots + 1, --p->free_slot_count * sizeof *p->free_slots);
        c->counter = ++p->counter;
        c->copied = 0;
    }
    pthread_mutex_unlock(&p->mutex);
    return more;
}

static void *drive(void *context) {
    struct checkpoint c = {.p = context};
    struct pccheck *p = c.p;
    struct chunk *chunks = calloc(p->chunk_count, sizeof *chunks);
    if (chunks == NULL) measure_stop("pccheck", "no memory");
    while (begin_checkpoint(&c)) {
        for (uint32_t i = 0; i < p->chunk_count; i++) {
            chunks[i] = (struct chunk){.of = &c, .number = i};
            start(&chunks[i].thread, run_chunk, &chunks[i]);
        }
        for (uint32_t i = 0; i < p->chunk_count; i++) pthread_join(chunks[i].thread, NULL);
        commit(&c);
    }
    free(chunks);
    return NULL;
}

void pccheck_run(struct pccheck *p, uint64_t count) {
    pthread_t drivers[PCCHECK_SLOTS_MAX];
    p->wanted = count;
    p->begun = 0;
    for (uint32_t i = 0; i < p->in_flight; i++) start(&drivers[i], drive, p);
    for (uint32_t i = 0; i < p->in_flight; i++) pthread_join(drivers[i], NULL);
}

bool pccheck_matches(const struct pccheck *p) {
    return p->committed > 0 && memcmp(p->map + slot_offset(p, p->root_slot), p->source, p->bytes) == 0;
}

void pccheck_close(struct pccheck *p) {
    munmap(p->map, p->map_bytes);
    for (uint32_t i = 0; i < p->pool_count; i++) mem_free(p->pool[i], p->chunk_bytes);
    free(p->pool);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
}
