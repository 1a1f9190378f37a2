/* The CUDA kind against a libcudart of the tests: order of copies and of the caller's stream, late
 * completion, pinned staging memory, every function failing, libraries and devices that are not there. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pawl/memory.h>

#include "kit/fake_cudart.h"
#include "kit/saver_kit.h"

#define VERSION 12040
#define DEVICES 2
#define ILLEGAL 700 /* an illegal memory access */

static struct {
    fake_cuda_malloc_function *get;
    fake_cuda_bytes_function *bytes;
    fake_cuda_set_function *set;
    fake_cuda_hold_function *hold;
    fake_cuda_fail_function *break_next;
    fake_cuda_state_function *state;
    fake_cuda_reset_function *reset;
    int (*set_device)(int device);
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
} fake;

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) abort();
    return found;
}

static int load_fake(void **unused) {
    (void)unused;
    void *library = dlopen(FAKE_CUDART, RTLD_NOW);
    if (library == NULL) return -1;
    *(void **)&fake.get = find(library, "fake_cuda_malloc");
    *(void **)&fake.bytes = find(library, "fake_cuda_bytes");
    *(void **)&fake.set = find(library, "fake_cuda_set");
    *(void **)&fake.hold = find(library, "fake_cuda_hold");
    *(void **)&fake.break_next = find(library, "fake_cuda_fail");
    *(void **)&fake.state = find(library, "fake_cuda_state");
    *(void **)&fake.reset = find(library, "fake_cuda_reset");
    *(void **)&fake.set_device = find(library, "cudaSetDevice");
    *(void **)&fake.create = find(library, "cudaStreamCreateWithFlags");
    *(void **)&fake.destroy = find(library, "cudaStreamDestroy");
    return 0;
}

static int reset(void **unused) {
    (void)unused;
    fake.reset(VERSION, DEVICES);
    return 0;
}

static int is_clean(void **unused) {
    (void)unused;
    struct fake_cuda_state now = fake.state();
    return now.streams == 0 && now.events == 0 && now.registered == 0 && now.wrong_device == 0 ? 0 : -1;
}

struct start { /* of a run whose state lies on devices but for its last tensor */
    struct pawl_cuda *cuda[DEVICES];
    struct skit_state *host; /* what the devices' bytes are compared with */
    struct pawl_tensor tensors[SKIT_TENSORS];
    struct pawl_ckpt *c;
    struct pawl_ckpt_state *state;
};

static struct start start_open(const char *path, uint64_t step) {
    struct start s = {.host = skit_state_new(0, 1, 0)};
    struct pawl_ckpt_options o = {.path = path, .chunk_bytes = 4096, .staging_bytes = 16384};
    skit_fill(s.host, step);
    for (int d = 0; d < DEVICES; d++) SKIT_MUST(pawl_cuda_open(FAKE_CUDART, d, &s.cuda[d], e));
    for (uint32_t i = 0; i < s.host->count; i++) {
        s.tensors[i] = s.host->tensors[i];
        if (i + 1 == s.host->count) break;
        s.tensors[i].data = fake.get(s.host->bytes[i]);
        s.tensors[i].memory = pawl_cuda_memory(s.cuda[i % DEVICES]);
        memcpy(fake.bytes(s.tensors[i].data), s.host->tensors[i].data, s.host->bytes[i]);
    }
    SKIT_MUST(pawl_ckpt_open(&o, &s.c, e));
    SKIT_MUST(pawl_ckpt_declare(s.c, s.tensors, s.host->count, &s.state, e));
    return s;
}

static bool start_is(const struct start *s, uint64_t step) {
    for (uint32_t i = 0; i + 1 < s->host->count; i++)
        memcpy(s->host->tensors[i].data, fake.bytes(s->tensors[i].data), s->host->bytes[i]);
    return skit_is(s->host, step);
}

/* `code`: what closing the checkpointer says. */
static void start_close(struct start *s, pawl_code code) {
    assert_int_equal(pawl_ckpt_close(s->c, skit_soon(), NULL), code);
    for (int d = 0; d < DEVICES; d++) pawl_cuda_close(s->cuda[d]);
    skit_state_free(s->host);
}

static uint64_t save(struct start *s, uint64_t step) {
    uint64_t id = 0;
    SKIT_MUST(pawl_ckpt_save(s->c, &(struct pawl_ckpt_save){.state = s->state, .step = step}, &id, e));
    return id;
}

static void saved_from_devices_it_is_resumed_into_others(void **unused) {
    (void)unused;
    char *path = skit_folder();
    (void)fake.set_device(1);
    for (uint64_t start = 0; start < 3; start++) {
        struct start s = start_open(path, start == 0 ? 7 : 1000 + start); /* else something different */
        uint64_t step = 0;
        for (int d = 0; d < DEVICES; d++) SKIT_MUST(pawl_cuda_follow(s.cuda[d], NULL, e));
        SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
        assert_int_equal(step, start == 0 ? 0 : 6 + start);
        assert_true(start_is(&s, 7));
        uint32_t pageable = fake.state().pageable; /* a restore's */
        SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 7 + start), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
        assert_int_equal(fake.state().pageable, pageable);
        assert_true(fake.state().registered > 0);
        assert_int_equal(fake.state().device, 1); /* the caller's stays */
        start_close(&s, PAWL_OK);
    }
    assert_int_equal(fake.state().device, 1);
    assert_true(fake.state().most > 1); /* copies under way at once */
    skit_remove(path);
}

/* One tensor of 4096 bytes on device 0, which `stream` sets to `value` once it is let go. */
struct late {
    struct start s;
    struct pawl_tensor tensor;
    void *stream;
};

static struct late late_open(const char *path, int value) {
    static const uint64_t shape[] = {4096};
    struct late l = {.s = start_open(path, 1)};
    l.tensor = (struct pawl_tensor){.name = "t", .dtype = PAWL_U8, .rank = 1, .shape = shape};
    l.tensor.data = fake.get(shape[0]);
    l.tensor.memory = pawl_cuda_memory(l.s.cuda[0]);
    memset(fake.bytes(l.tensor.data), 1, shape[0]);
    SKIT_MUST(pawl_ckpt_declare(l.s.c, &l.tensor, 1, &l.s.state, e));
    if (fake.create(&l.stream, 1) != 0) abort();
    fake.hold(l.stream, true);
    fake.set(l.stream, l.tensor.data, value, shape[0]);
    return l;
}

static void late_close(struct late *l) {
    fake.hold(l->stream, false);
    start_close(&l->s, PAWL_OK);
    (void)fake.destroy(l->stream);
}

static uint8_t saved_byte(const char *path) {
    static const uint64_t shape[] = {4096};
    uint8_t out[4096];
    struct pawl_tensor t = {.name = "t", .dtype = PAWL_U8, .rank = 1, .shape = shape, .data = out};
    struct pawl_ckpt_reader *r;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &r, e));
    SKIT_MUST(pawl_ckpt_reader_read(r, pawl_ckpt_reader_newest(r), &t, 1, e));
    pawl_ckpt_reader_close(r);
    for (size_t i = 1; i < sizeof out; i++) assert_int_equal(out[i], out[0]);
    return out[0];
}

static void copies_wait_for_the_stream_that_is_followed_and_the_caller_does_not(void **unused) {
    (void)unused;
    for (int follows = 0; follows < 2; follows++) {
        char *path = skit_folder();
        struct late l = late_open(path, 2);
        uint64_t step = 0, copies = fake.state().copies;
        SKIT_MUST(pawl_ckpt_resume(l.s.c, l.s.state, &step, e));
        if (follows) SKIT_MUST(pawl_cuda_follow(l.s.cuda[0], l.stream, e));
        uint64_t id = save(&l.s, 1);
        if (follows) {
            int64_t soon = pawl_now() + SECOND / 20;
            assert_int_equal(pawl_ckpt_fence(l.s.c, soon, NULL), PAWL_TIMEOUT);
            assert_int_equal(fake.state().copies, copies);
            fake.hold(l.stream, false);
        }
        SKIT_MUST(pawl_ckpt_fence(l.s.c, skit_soon(), e));
        fake.set(l.stream, l.tensor.data, 3, 4096); /* after the fence it may change */
        fake.hold(l.stream, false);
        SKIT_MUST(pawl_ckpt_wait(l.s.c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
        late_close(&l);
        assert_int_equal(saved_byte(path), follows ? 2 : 1);
        skit_remove(path);
    }
}

static void copies_that_end_late_hold_the_fence_until_then(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct start s = start_open(path, 5);
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    fake.hold(NULL, true);
    uint64_t id = save(&s, 5);
    assert_int_equal(pawl_ckpt_fence(s.c, pawl_now() + SECOND / 20, NULL), PAWL_TIMEOUT);
    fake.hold(NULL, false);
    SKIT_MUST(pawl_ckpt_fence(s.c, skit_soon(), e));
    SKIT_MUST(pawl_ckpt_wait(s.c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
    start_close(&s, PAWL_OK);
    skit_remove(path);
}

static void memory_that_cannot_be_pinned_is_copied_to_all_the_same(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct start s = start_open(path, 5);
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    fake.break_next("HostRegister", 2, 0);
    fake.break_next("HostRegister", 2, 0);
    SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 5), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
    start_close(&s, PAWL_OK);
    s = start_open(path, 1000);
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    assert_int_equal(step, 5);
    assert_true(start_is(&s, 5));
    start_close(&s, PAWL_OK);
    skit_remove(path);
}

static void function_that_fails_while_copying_fails_the_save_and_the_older_step_stays(void **unused) {
    (void)unused;
    static const char *const names[] = {"GetDevice", "MemcpyAsync", "EventRecord", "EventSynchronize",
                                        "device"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t after = 0; after < 2; after++) {
            char *path = skit_folder();
            struct pawl_error why = {0};
            uint64_t step = 0;
            struct start s = start_open(path, 5);
            SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
            SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 5), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
            fake.break_next(names[i], ILLEGAL, after);
            uint64_t id = save(&s, 6);
            pawl_code code = pawl_ckpt_wait(s.c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why);
            if (code != PAWL_IO) fprintf(stderr, "%s %u: %s\n", names[i], after, why.text);
            assert_int_equal(code, PAWL_IO);
            assert_non_null(strstr(why.text, "cuda:"));
            if (i < 3) assert_non_null(strstr(why.text, names[i]));
            if (i < 3) assert_non_null(strstr(why.text, "an illegal memory access"));
            if (strcmp(names[i], "device") == 0) fake.reset(VERSION, DEVICES); /* a new process */
            start_close(&s, PAWL_OK);
            s = start_open(path, 1000);
            SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
            assert_int_equal(step, 5);
            assert_true(start_is(&s, 5));
            start_close(&s, PAWL_OK);
            skit_remove(path);
        }
}

static void event_that_cannot_be_made_fails_the_save(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    uint64_t step = 0;
    struct start s = start_open(path, 5);
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    fake.break_next("EventCreateWithFlags", 2, 1);
    assert_int_equal(pawl_ckpt_wait(s.c, save(&s, 5), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why),
                     PAWL_MEMORY);
    assert_non_null(strstr(why.text, "cudaEventCreateWithFlags"));
    start_close(&s, PAWL_OK);
    skit_remove(path);
}

static void function_that_fails_while_resuming_is_named(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    uint64_t step = 0;
    struct start s = start_open(path, 5);
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 5), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
    start_close(&s, PAWL_OK);
    s = start_open(path, 1000);
    fake.break_next("MemcpyAsync", ILLEGAL, 0);
    assert_int_not_equal(pawl_ckpt_resume(s.c, s.state, &step, &why), PAWL_OK);
    assert_non_null(strstr(why.text, "cudaMemcpyAsync: an illegal memory access"));
    start_close(&s, PAWL_OK);
    skit_remove(path);
}

static void function_that_fails_at_opening_or_following_is_named_and_leaves_nothing(void **unused) {
    (void)unused;
    static const struct {
        const char *name;
        int error;
        pawl_code code;
    } cases[] = {{"RuntimeGetVersion", ILLEGAL, PAWL_IO},    {"GetDeviceCount", 35, PAWL_UNSUPPORTED},
                 {"GetDeviceCount", 100, PAWL_UNSUPPORTED},  {"GetDevice", 101, PAWL_ARGUMENT},
                 {"StreamCreateWithFlags", 2, PAWL_MEMORY},  {"EventCreateWithFlags", 2, PAWL_MEMORY},
                 {"StreamCreateWithFlags", ILLEGAL, PAWL_IO}};
    struct pawl_cuda *c;
    struct pawl_error why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.break_next(cases[i].name, cases[i].error, 0);
        assert_int_equal(pawl_cuda_open(FAKE_CUDART, 0, &c, &why), cases[i].code);
        assert_null(c);
        assert_non_null(strstr(why.text, cases[i].name));
    }
    for (const char *const *name =
             (const char *const[]){"GetDevice", "SetDevice", "EventRecord", "StreamWaitEvent", NULL};
         *name != NULL; name++) {
        SKIT_MUST(pawl_cuda_open(FAKE_CUDART, 1, &c, e)); /* the current device is 0 */
        fake.break_next(*name, ILLEGAL, 0);
        assert_int_equal(pawl_cuda_follow(c, NULL, &why), PAWL_IO);
        assert_non_null(strstr(why.text, *name));
        assert_non_null(strstr(why.text, "cuda:1"));
        pawl_cuda_close(c);
    }
    pawl_cuda_close(NULL);
}

static void what_is_not_there_is_an_error_that_says_so(void **unused) {
    (void)unused;
    static const struct {
        const char *path, *text;
        int version, devices, device;
        pawl_code code;
    } cases[] = {{"/no/libcudart.so", "/no/libcudart.so", VERSION, 1, 0, PAWL_UNSUPPORTED},
                 {"libm.so.6", "libm.so.6 has no function cuda", VERSION, 1, 0, PAWL_UNSUPPORTED},
                 {FAKE_CUDART, "version 10.2 of CUDA", 10020, 1, 0, PAWL_UNSUPPORTED},
                 {FAKE_CUDART, "version 14.0 of CUDA", 14000, 1, 0, PAWL_UNSUPPORTED},
                 {FAKE_CUDART, "cudaGetDeviceCount", VERSION, 0, 0, PAWL_UNSUPPORTED},
                 {FAKE_CUDART, "no CUDA device 2: there are 2", VERSION, 2, 2, PAWL_ARGUMENT},
                 {FAKE_CUDART, "no CUDA device -1", VERSION, 2, -1, PAWL_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pawl_cuda *c;
        struct pawl_error why = {0};
        fake.reset(cases[i].version, cases[i].devices);
        assert_int_equal(pawl_cuda_open(cases[i].path, cases[i].device, &c, &why), cases[i].code);
        if (strstr(why.text, cases[i].text) == NULL) fprintf(stderr, "%zu: %s\n", i, why.text);
        assert_non_null(strstr(why.text, cases[i].text));
    }
    for (int version = 11000; version < 14000; version += 1000) {
        struct pawl_cuda *c;
        fake.reset(version, 1);
        SKIT_MUST(pawl_cuda_open(FAKE_CUDART, 0, &c, e));
        pawl_cuda_close(c);
    }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, reset, is_clean)
    const struct CMUnitTest tests[] = {
        CASE(saved_from_devices_it_is_resumed_into_others),
        CASE(copies_wait_for_the_stream_that_is_followed_and_the_caller_does_not),
        CASE(copies_that_end_late_hold_the_fence_until_then),
        CASE(memory_that_cannot_be_pinned_is_copied_to_all_the_same),
        CASE(function_that_fails_while_copying_fails_the_save_and_the_older_step_stays),
        CASE(event_that_cannot_be_made_fails_the_save),
        CASE(function_that_fails_while_resuming_is_named),
        CASE(function_that_fails_at_opening_or_following_is_named_and_leaves_nothing),
        CASE(what_is_not_there_is_an_error_that_says_so),
    };
    return cmocka_run_group_tests(tests, load_fake, NULL);
}
