/* The CUDA kind of include/pawl/memory.h. A copy is queued on the stream of this file with an event behind
 * it; one thread waits for the events, oldest first, and says that the copies are done. The functions of
 * libcudart are taken from the library as it is found: their types are written down here, as they have been
 * since version 11. The library is never unloaded: its threads may outlive what used it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <pawl/memory.h>

#include "base/error.h"

/* X(result, name, arguments): every function that is used, by its name in libcudart. */
#define CUDA_FUNCTIONS                                                                                       \
    X(int, RuntimeGetVersion, (int *version))                                                                \
    X(int, GetDeviceCount, (int *count))                                                                     \
    X(int, GetDevice, (int *device))                                                                         \
    X(int, SetDevice, (int device))                                                                          \
    X(const char *, GetErrorString, (int error))                                                             \
    X(int, GetLastError, (void))                                                                             \
    X(int, StreamCreateWithFlags, (void **stream, unsigned flags))                                           \
    X(int, StreamDestroy, (void *stream))                                                                    \
    X(int, StreamSynchronize, (void *stream))                                                                \
    X(int, StreamWaitEvent, (void *stream, void *event, unsigned flags))                                     \
    X(int, EventCreateWithFlags, (void **event, unsigned flags))                                             \
    X(int, EventDestroy, (void *event))                                                                      \
    X(int, EventRecord, (void *event, void *stream))                                                         \
    X(int, EventSynchronize, (void *event))                                                                  \
    X(int, MemcpyAsync, (void *target, const void *source, size_t bytes, int kind, void *stream))            \
    X(int, HostRegister, (void *base, size_t bytes, unsigned flags))                                         \
    X(int, HostUnregister, (void *base))

/* Of cuda_runtime_api.h, the same in versions 11 to 13. */
enum {
    CUDA_OK = 0,
    CUDA_MEMORY_ALLOCATION = 2,
    CUDA_INSUFFICIENT_DRIVER = 35,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING_SYNC = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_TO_DEVICE = 1,
    CUDA_DEVICE_TO_HOST = 2,
    CUDA_HOST_REGISTER_PORTABLE = 1,
    CUDA_VERSION_MIN = 11000,
    CUDA_VERSION_END = 14000
};

static const char *const library_names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                                            "libcudart.so"};
#define LIBRARY_COUNT (sizeof library_names / sizeof *library_names)

struct sent { /* a copy under way, or none: kept with its event for the next one */
    struct sent *next;
    struct pawl_copy *copy;
    void *event;
};

struct pawl_cuda {
    struct pawl_memory memory;
    char name[32];
    int device;
    void *stream, *followed; /* this file's stream; the event that it waits for */
#define X(result, name, arguments) result(*name) arguments;
    CUDA_FUNCTIONS
#undef X
    pthread_mutex_t mutex; /* of what follows, and of `followed` */
    pthread_cond_t changed;
    pthread_t thread;
    bool stop;
    struct sent *first, **last, *unused;
};

/* ---- errors ---- */

static pawl_code code_of(int error) {
    switch (error) {
    case CUDA_OK:
        return PAWL_OK;
    case CUDA_MEMORY_ALLOCATION:
        return PAWL_MEMORY;
    case CUDA_INSUFFICIENT_DRIVER:
    case CUDA_NO_DEVICE:
        return PAWL_UNSUPPORTED;
    case CUDA_INVALID_DEVICE:
        return PAWL_ARGUMENT;
    default:
        return PAWL_IO;
    }
}

/* Also takes note of the error in libcudart, where the program's own calls would find it. */
static pawl_code check(const struct pawl_cuda *c, int error, const char *function, struct pawl_error *e) {
    if (error == CUDA_OK) return PAWL_OK;
    (void)c->GetLastError();
    const char *text = c->GetErrorString(error);
    return error_set(e, code_of(error), 0, "device %s: cuda%s: %s (error %d)", c->name, function,
                     text != NULL ? text : "unknown", error);
}

#define CALL(c, e, function, ...) check(c, (c)->function(__VA_ARGS__), #function, e)

/* ---- the calling thread's current device ---- */

/* What it was goes to `had`, also after an error; -1: it is not known. */
static pawl_code enter(const struct pawl_cuda *c, int *had, struct pawl_error *e) {
    *had = -1;
    pawl_code code = CALL(c, e, GetDevice, had);
    if (code == PAWL_OK && *had != c->device) code = CALL(c, e, SetDevice, c->device);
    return code;
}

static void leave(const struct pawl_cuda *c, int had) {
    if (had >= 0 && had != c->device) (void)c->SetDevice(had);
}

/* ---- copying ---- */

/* With an event; null: why not is in `e`. */
static struct sent *take(struct pawl_cuda *c, struct pawl_error *e) {
    pthread_mutex_lock(&c->mutex);
    struct sent *s = c->unused;
    if (s != NULL) c->unused = s->next;
    pthread_mutex_unlock(&c->mutex);
    if (s != NULL) return s;
    s = calloc(1, sizeof *s);
    if (s == NULL) {
        error_set(e, PAWL_MEMORY, 0, "device %s: no memory for a copy", c->name);
        return NULL;
    }
    unsigned flags = CUDA_EVENT_BLOCKING_SYNC | CUDA_EVENT_DISABLE_TIMING;
    if (CALL(c, e, EventCreateWithFlags, &s->event, flags) == PAWL_OK) return s;
    free(s);
    return NULL;
}

static void give_back(struct pawl_cuda *c, struct sent *s) {
    pthread_mutex_lock(&c->mutex);
    s->next = c->unused;
    c->unused = s;
    pthread_mutex_unlock(&c->mutex);
}

static void append(struct pawl_cuda *c, struct sent *s) {
    pthread_mutex_lock(&c->mutex);
    s->next = NULL;
    *c->last = s;
    c->last = &s->next;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static pawl_code queue(struct pawl_cuda *c, const void *source, void *target, size_t bytes, int kind,
                       struct pawl_copy *copy, struct pawl_error *e) {
    struct pawl_error why = {0};
    struct sent *s = take(c, &why);
    if (s == NULL) return error_set(e, why.code, 0, "%s", why.text);
    pawl_code code = CALL(c, e, MemcpyAsync, target, source, bytes, kind, c->stream);
    if (code == PAWL_OK) {
        code = CALL(c, e, EventRecord, s->event, c->stream);
        if (code != PAWL_OK) (void)c->StreamSynchronize(c->stream); /* it is under way: not after this */
    }
    if (code != PAWL_OK) {
        give_back(c, s);
        return code;
    }
    s->copy = copy;
    append(c, s);
    return PAWL_OK;
}

/* Also called in threads of the program: a resume copies in the caller's. */
static pawl_code begin(struct pawl_cuda *c, const void *source, void *target, size_t bytes, int kind,
                       struct pawl_copy *copy, struct pawl_error *e) {
    int had;
    pawl_code code = enter(c, &had, e);
    if (code == PAWL_OK) code = queue(c, source, target, bytes, kind, copy, e);
    leave(c, had);
    return code;
}

static pawl_code copy_out(void *context, const void *source, void *target, size_t bytes,
                          struct pawl_copy *copy, struct pawl_error *e) {
    return begin(context, source, target, bytes, CUDA_DEVICE_TO_HOST, copy, e);
}

static pawl_code copy_in(void *context, const void *source, void *target, size_t bytes,
                         struct pawl_copy *copy, struct pawl_error *e) {
    return begin(context, source, target, bytes, CUDA_HOST_TO_DEVICE, copy, e);
}

static pawl_code pin(void *context, void *base, size_t bytes) {
    struct pawl_cuda *c = context;
    int had;
    pawl_code code = enter(c, &had, NULL);
    if (code == PAWL_OK) code = CALL(c, NULL, HostRegister, base, bytes, CUDA_HOST_REGISTER_PORTABLE);
    leave(c, had);
    return code;
}

static void unpin(void *context, void *base, size_t bytes) {
    struct pawl_cuda *c = context;
    (void)bytes;
    (void)CALL(c, NULL, HostUnregister, base);
}

/* The oldest copy; null: there is none any more and there will be none. */
static struct sent *oldest(struct pawl_cuda *c) {
    pthread_mutex_lock(&c->mutex);
    while (c->first == NULL && !c->stop) pthread_cond_wait(&c->changed, &c->mutex);
    struct sent *s = c->first;
    if (s != NULL) {
        c->first = s->next;
        if (c->first == NULL) c->last = &c->first;
    }
    pthread_mutex_unlock(&c->mutex);
    return s;
}

static void *wait_for_copies(void *arg) {
    struct pawl_cuda *c = arg;
    (void)c->SetDevice(c->device);
    for (struct sent *s; (s = oldest(c)) != NULL;) {
        pawl_code code = CALL(c, NULL, EventSynchronize, s->event);
        struct pawl_copy *copy = s->copy;
        give_back(c, s); /* once the copy is done everybody may be gone */
        pawl_copy_done(copy, code);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static pawl_code find_functions(struct pawl_cuda *c, void *library, const char *path, struct pawl_error *e) {
    const char *missing = NULL;
    /* POSIX lets the pointers of dlsym be called; ISO C has no cast for it. */
#define X(result, name, arguments)                                                                           \
    *(void **)&c->name = dlsym(library, "cuda" #name);                                                       \
    if (c->name == NULL) missing = "cuda" #name;
    CUDA_FUNCTIONS
#undef X
    if (missing != NULL)
        return error_set(e, PAWL_UNSUPPORTED, 0, "%s has no function %s: it is not libcudart", path, missing);
    int version = 0;
    pawl_code code = CALL(c, e, RuntimeGetVersion, &version);
    if (code == PAWL_OK && (version < CUDA_VERSION_MIN || version >= CUDA_VERSION_END))
        return error_set(e, PAWL_UNSUPPORTED, 0, "%s is version %d.%d of CUDA's runtime, wanted 11 to 13",
                         path, version / 1000, version % 1000 / 10);
    return code;
}

static void *load(const char *library, const char **path) {
    if (library != NULL) {
        *path = library;
        return dlopen(library, RTLD_NOW | RTLD_LOCAL);
    }
    for (int mode = RTLD_NOLOAD;; mode = 0) {
        for (size_t i = 0; i < LIBRARY_COUNT; i++) {
            *path = library_names[i];
            void *found = dlopen(*path, RTLD_NOW | RTLD_LOCAL | mode);
            if (found != NULL) return found;
        }
        if (mode == 0) return NULL;
    }
}

static pawl_code find_library(struct pawl_cuda *c, const char *library, struct pawl_error *e) {
    const char *path;
    void *found = load(library, &path);
    if (found != NULL) return find_functions(c, found, path, e);
    const char *why = dlerror();
    return error_set(
        e, PAWL_UNSUPPORTED, 0,
        "CUDA's runtime (libcudart, version 11 to 13) cannot be loaded: %s. Install it, or give its "
        "path; tensors in the processor's memory need none",
        why != NULL ? why : path);
}

static pawl_code check_device(const struct pawl_cuda *c, struct pawl_error *e) {
    int count = 0;
    pawl_code code = CALL(c, e, GetDeviceCount, &count);
    if (code != PAWL_OK || (c->device >= 0 && c->device < count)) return code;
    return error_set(e, PAWL_ARGUMENT, 0, "there is no CUDA device %d: there are %d, counted from 0",
                     c->device, count);
}

/* With the device as the current one. */
static pawl_code start(struct pawl_cuda *c, struct pawl_error *e) {
    pawl_code code = CALL(c, e, StreamCreateWithFlags, &c->stream, CUDA_STREAM_NON_BLOCKING);
    if (code == PAWL_OK) code = CALL(c, e, EventCreateWithFlags, &c->followed, CUDA_EVENT_DISABLE_TIMING);
    if (code != PAWL_OK) return code;
    int error = pthread_create(&c->thread, NULL, wait_for_copies, c);
    if (error != 0) return error_set(e, PAWL_MEMORY, error, "device %s: no thread", c->name);
    c->memory = (struct pawl_memory){
        .name = c->name, .context = c, .copy_out = copy_out, .copy_in = copy_in, .pin = pin, .unpin = unpin};
    return PAWL_OK;
}

/* Of a device that has no thread, or none any more. */
static void release(struct pawl_cuda *c) {
    for (struct sent *s = c->unused, *next; s != NULL; s = next) {
        next = s->next;
        (void)c->EventDestroy(s->event);
        free(s);
    }
    if (c->followed != NULL) (void)c->EventDestroy(c->followed);
    if (c->stream != NULL) (void)c->StreamDestroy(c->stream);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

pawl_code pawl_cuda_open(const char *library, int device, struct pawl_cuda **out, struct pawl_error *e) {
    *out = NULL;
    struct pawl_cuda *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for CUDA device %d", device);
    c->device = device;
    c->last = &c->first;
    snprintf(c->name, sizeof c->name, "cuda:%d", device);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    pawl_code code = find_library(c, library, e);
    if (code == PAWL_OK) code = check_device(c, e);
    int had = -1;
    if (code == PAWL_OK) code = enter(c, &had, e);
    if (code == PAWL_OK) code = start(c, e);
    leave(c, had);
    if (code == PAWL_OK)
        *out = c;
    else
        release(c);
    return code;
}

const struct pawl_memory *pawl_cuda_memory(const struct pawl_cuda *c) { return &c->memory; }

pawl_code pawl_cuda_follow(struct pawl_cuda *c, void *stream, struct pawl_error *e) {
    int had;
    pawl_code code = enter(c, &had, e);
    pthread_mutex_lock(&c->mutex);
    if (code == PAWL_OK) code = CALL(c, e, EventRecord, c->followed, stream);
    if (code == PAWL_OK) code = CALL(c, e, StreamWaitEvent, c->stream, c->followed, 0);
    pthread_mutex_unlock(&c->mutex);
    leave(c, had);
    return code;
}

void pawl_cuda_close(struct pawl_cuda *c) {
    if (c == NULL) return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    int (*set_device)(int) = c->SetDevice, had, device = c->device;
    (void)enter(c, &had, NULL);
    release(c);
    if (had >= 0 && had != device) (void)set_device(had);
}
