/* A libcudart over the processor's memory: the functions that src/saver/cuda.c takes, with streams that carry
 * out what is queued on them on threads of their own, in order, when the test lets them. It checks what the
 * real one leaves undefined (streams used under another device), and fails as told. It is a shared library.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_cudart.h"

#define EXPORT       __attribute__((visibility("default")))
#define FAILURES_MAX 8u

struct event {
    int device;
    uint64_t recorded, done; /* times */
};

struct operation {
    struct operation *next;
    enum { COPY, SET, RECORD, WAIT } kind;
    void *target;
    const void *source;
    size_t bytes;
    int value;
    struct event *event;
    uint64_t time;
};

struct stream {
    struct stream *next;
    int device;
    bool held, stop, busy;
    struct operation *first, **last;
    pthread_t thread;
};

struct region {
    struct region *next;
    uint8_t *window, *bytes; /* `bytes` null: pinned memory of the processor */
    size_t size;
};

struct failure {
    char name[32];
    int error;
    uint32_t after;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream *streams, default_stream;
static struct region *regions;
static struct failure failures[FAILURES_MAX];
static struct fake_cuda_state state;
static bool held;
static int version = 12040, devices = 2, dead;
static _Thread_local int current;

/* ---- failures: under the mutex ---- */

static int fails(const char *name) {
    if (dead != 0) return dead;
    for (uint32_t i = 0; i < FAILURES_MAX; i++) {
        struct failure *f = &failures[i];
        if (f->error == 0 || strcmp(f->name, name) != 0 || f->after-- > 0) continue;
        int error = f->error;
        f->error = 0;
        return error;
    }
    return 0;
}

static int enter(const char *name) {
    pthread_mutex_lock(&mutex);
    return fails(name);
}

static int leave(int error) {
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return error;
}

/* ---- memory ---- */

static struct region *region_of(const void *address, size_t bytes, bool device) {
    const uint8_t *at = address;
    for (struct region *r = regions; r != NULL; r = r->next)
        if ((r->bytes != NULL) == device && at >= r->window && at + bytes <= r->window + r->size) return r;
    return NULL;
}

static void *real(const void *address, size_t bytes) {
    struct region *r = region_of(address, bytes, true);
    if (r != NULL) return r->bytes + ((const uint8_t *)address - r->window);
    state.pageable += region_of(address, bytes, false) == NULL;
    return (void *)(uintptr_t)address;
}

static void add_region(void *window, void *bytes, size_t size) {
    struct region *r = calloc(1, sizeof *r);
    if (r == NULL) abort();
    *r = (struct region){regions, window, bytes, size};
    regions = r;
}

EXPORT fake_cuda_malloc_function fake_cuda_malloc;
void *fake_cuda_malloc(size_t bytes) {
    void *window = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
         *memory = calloc(1, bytes);
    if (window == MAP_FAILED || memory == NULL) abort();
    pthread_mutex_lock(&mutex);
    add_region(window, memory, bytes);
    pthread_mutex_unlock(&mutex);
    return window;
}

EXPORT fake_cuda_adopt_function fake_cuda_adopt;
void fake_cuda_adopt(void *address, size_t bytes) {
    pthread_mutex_lock(&mutex);
    add_region(address, address, bytes);
    pthread_mutex_unlock(&mutex);
}

EXPORT fake_cuda_bytes_function fake_cuda_bytes;
void *fake_cuda_bytes(void *address) {
    pthread_mutex_lock(&mutex);
    void *found = real(address, 1);
    pthread_mutex_unlock(&mutex);
    return found;
}

/* ---- streams ---- */

static struct stream *stream_of(void *stream) { return stream != NULL ? stream : &default_stream; }

static void carry_out(struct operation *o) {
    if (o->kind == COPY && dead == 0) dead = fails("device");
    if (o->kind == COPY) state.under_way--;
    if (dead != 0) {
        /* the device does nothing any more; who waits is told */
    } else if (o->kind == COPY) {
        memcpy(real(o->target, o->bytes), real(o->source, o->bytes), o->bytes);
        state.copies++;
    } else if (o->kind == SET) {
        memset(real(o->target, o->bytes), o->value, o->bytes);
    }
    if (o->kind == RECORD) o->event->done = o->time;
}

static bool is_ready(const struct stream *s) {
    const struct operation *o = s->first;
    if (o == NULL || ((held || s->held) && dead == 0)) return false;
    return o->kind != WAIT || o->event->done >= o->time || dead != 0;
}

static void *stream_thread(void *arg) {
    struct stream *s = arg;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!is_ready(s) && !(s->stop && s->first == NULL)) pthread_cond_wait(&changed, &mutex);
        struct operation *o = s->first;
        if (o == NULL) break;
        carry_out(o);
        s->first = o->next;
        if (s->first == NULL) s->last = &s->first;
        free(o);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void start(struct stream *s, int device) {
    s->device = device;
    s->last = &s->first;
    if (pthread_create(&s->thread, NULL, stream_thread, s) != 0) abort();
}

static void queue(void *stream, struct operation like) {
    struct stream *s = stream_of(stream);
    struct operation *o = malloc(sizeof *o);
    if (o == NULL) abort();
    *o = like;
    o->next = NULL;
    if (s->last == NULL) start(s, current);
    state.wrong_device += s != &default_stream && s->device != current; /* that one every device has */
    *s->last = o;
    s->last = &o->next;
    if (o->kind == COPY && ++state.under_way > state.most) state.most = state.under_way;
}

EXPORT fake_cuda_set_function fake_cuda_set;
void fake_cuda_set(void *stream, void *address, int value, size_t bytes) {
    pthread_mutex_lock(&mutex);
    int was = current;
    current = stream_of(stream)->device;
    queue(stream, (struct operation){.kind = SET, .target = address, .value = value, .bytes = bytes});
    current = was;
    (void)leave(0);
}

EXPORT fake_cuda_hold_function fake_cuda_hold;
void fake_cuda_hold(void *stream, bool on) {
    pthread_mutex_lock(&mutex);
    if (stream == NULL)
        held = on;
    else
        ((struct stream *)stream)->held = on;
    (void)leave(0);
}

EXPORT fake_cuda_fail_function fake_cuda_fail;
void fake_cuda_fail(const char *name, int error, uint32_t after) {
    pthread_mutex_lock(&mutex);
    struct failure *f = failures;
    while (f < failures + FAILURES_MAX && f->error != 0) f++;
    if (f == failures + FAILURES_MAX || strlen(name) >= sizeof f->name) abort();
    strcpy(f->name, name);
    f->error = error;
    f->after = after;
    (void)leave(0);
}

EXPORT fake_cuda_state_function fake_cuda_state;
struct fake_cuda_state fake_cuda_state(void) {
    pthread_mutex_lock(&mutex);
    struct fake_cuda_state now = state;
    now.device = current;
    pthread_mutex_unlock(&mutex);
    return now;
}

EXPORT fake_cuda_reset_function fake_cuda_reset;
void fake_cuda_reset(int new_version, int new_devices) {
    pthread_mutex_lock(&mutex);
    memset(failures, 0, sizeof failures);
    version = new_version;
    devices = new_devices;
    dead = 0;
    held = false;
    current = 0;
    state.copies = state.pageable = state.wrong_device = state.most = 0;
    (void)leave(0);
}

/* ---- libcudart: as src/saver/cuda.c has the types ---- */

EXPORT int cudaRuntimeGetVersion(int *out);
EXPORT int cudaGetDeviceCount(int *count);
EXPORT int cudaGetDevice(int *device);
EXPORT int cudaSetDevice(int device);
EXPORT const char *cudaGetErrorString(int error);
EXPORT int cudaGetLastError(void);
EXPORT int cudaStreamCreateWithFlags(void **out, unsigned flags);
EXPORT int cudaStreamSynchronize(void *stream);
EXPORT int cudaStreamDestroy(void *stream);
EXPORT int cudaEventCreateWithFlags(void **out, unsigned flags);
EXPORT int cudaEventDestroy(void *event);
EXPORT int cudaEventRecord(void *event, void *stream);
EXPORT int cudaEventSynchronize(void *event);
EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
EXPORT int cudaMemcpyAsync(void *target, const void *source, size_t bytes, int kind, void *stream);
EXPORT int cudaHostRegister(void *base, size_t bytes, unsigned flags);
EXPORT int cudaHostUnregister(void *base);

#define BEGIN(name)                                                                                          \
    int error = enter(name);                                                                                 \
    if (error != 0) return leave(error)

int cudaRuntimeGetVersion(int *out) {
    BEGIN("RuntimeGetVersion");
    *out = version;
    return leave(0);
}

int cudaGetDeviceCount(int *count) {
    BEGIN("GetDeviceCount");
    *count = devices;
    return leave(devices > 0 ? 0 : 100);
}

int cudaGetDevice(int *device) {
    BEGIN("GetDevice");
    *device = current;
    return leave(0);
}

int cudaSetDevice(int device) {
    BEGIN("SetDevice");
    if (device < 0 || device >= devices) return leave(101);
    current = device;
    return leave(0);
}

const char *cudaGetErrorString(int error) {
    return error == 700 ? "an illegal memory access was encountered" : "an error of the test";
}

int cudaGetLastError(void) { return 0; }

int cudaStreamCreateWithFlags(void **out, unsigned flags) {
    BEGIN("StreamCreateWithFlags");
    if (flags != 1) abort(); /* it would wait for the default stream */
    struct stream *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    start(s, current);
    s->next = streams;
    streams = s;
    state.streams++;
    *out = s;
    return leave(0);
}

int cudaStreamSynchronize(void *stream) {
    BEGIN("StreamSynchronize");
    struct stream *s = stream_of(stream);
    while (s->first != NULL) pthread_cond_wait(&changed, &mutex);
    return leave(dead);
}

int cudaStreamDestroy(void *stream) {
    struct stream *s = stream;
    pthread_mutex_lock(&mutex);
    for (struct stream **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    s->stop = true;
    state.streams--;
    (void)leave(0);
    pthread_join(s->thread, NULL);
    free(s);
    return 0;
}

int cudaEventCreateWithFlags(void **out, unsigned flags) {
    BEGIN("EventCreateWithFlags");
    if ((flags & 2u) == 0) abort(); /* timing is not wanted */
    struct event *e = calloc(1, sizeof *e);
    if (e == NULL) abort();
    e->device = current;
    state.events++;
    *out = e;
    return leave(0);
}

int cudaEventDestroy(void *event) {
    struct event *e = event;
    pthread_mutex_lock(&mutex);
    while (e->done < e->recorded) pthread_cond_wait(&changed, &mutex);
    state.events--;
    (void)leave(0);
    free(e);
    return 0;
}

int cudaEventRecord(void *event, void *stream) {
    BEGIN("EventRecord");
    struct event *e = event;
    state.wrong_device += e->device != current;
    queue(stream, (struct operation){.kind = RECORD, .event = e, .time = ++e->recorded});
    return leave(0);
}

int cudaEventSynchronize(void *event) {
    BEGIN("EventSynchronize");
    struct event *e = event;
    for (uint64_t time = e->recorded; e->done < time && dead == 0;) pthread_cond_wait(&changed, &mutex);
    return leave(dead);
}

int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
    BEGIN("StreamWaitEvent");
    struct event *e = event;
    if (flags != 0) abort();
    queue(stream, (struct operation){.kind = WAIT, .event = e, .time = e->recorded});
    return leave(0);
}

int cudaMemcpyAsync(void *target, const void *source, size_t bytes, int kind, void *stream) {
    BEGIN("MemcpyAsync");
    bool to = region_of(target, bytes, true) != NULL, from = region_of(source, bytes, true) != NULL;
    if (to != (kind == 1) || from != (kind == 2)) return leave(1); /* invalid value */
    queue(stream, (struct operation){.kind = COPY, .target = target, .source = source, .bytes = bytes});
    return leave(0);
}

int cudaHostRegister(void *base, size_t bytes, unsigned flags) {
    BEGIN("HostRegister");
    if (flags != 1) abort(); /* not portable: of one device only */
    if (region_of(base, bytes, false) != NULL) return leave(712);
    add_region(base, NULL, bytes);
    state.registered++;
    return leave(0);
}

int cudaHostUnregister(void *base) {
    BEGIN("HostUnregister");
    for (struct region **at = &regions; *at != NULL; at = &(*at)->next) {
        struct region *r = *at;
        if (r->bytes != NULL || r->window != base) continue;
        *at = r->next;
        free(r);
        state.registered--;
        return leave(0);
    }
    return leave(713);
}
