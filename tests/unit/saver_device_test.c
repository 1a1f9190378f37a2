/* Tensors in memory that the processor must not touch, through the whole checkpointer: saved from one device,
 * resumed into another, with copies that end out of order on another thread, and copies that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/fake_device.h"
#include "kit/saver_kit.h"

#define NAME_OF_DEVICE "fake:0"

struct start { /* of a run whose state lies on a device but for its last tensor */
    struct device *device;
    struct skit_state *host; /* what the device's bytes are compared with; its own tensors */
    struct pawl_tensor tensors[SKIT_TENSORS];
    struct pawl_ckpt *c;
    struct pawl_ckpt_state *state;
};

static struct start start_open(const char *path, uint64_t seed, uint64_t step) {
    struct start s = {.device = device_new(seed, NAME_OF_DEVICE), .host = skit_state_new(0, 1, 0)};
    struct pawl_ckpt_options o = {.path = path, .chunk_bytes = 4096, .staging_bytes = 16384};
    s.device->inline_ppm = 300000;
    skit_fill(s.host, step);
    for (uint32_t i = 0; i < s.host->count; i++) {
        s.tensors[i] = s.host->tensors[i];
        if (i + 1 < s.host->count) device_take(s.device, &s.tensors[i], s.host->bytes[i], 24);
    }
    SKIT_MUST(pawl_ckpt_open(&o, &s.c, e));
    SKIT_MUST(pawl_ckpt_declare(s.c, s.tensors, s.host->count, &s.state, e));
    return s;
}

/* The device's bytes come back into the host's tensors. */
static bool start_is(const struct start *s, uint64_t step) {
    const struct device *d = s->device;
    for (uint32_t i = 0; i + 1 < s->host->count; i++)
        memcpy(s->host->tensors[i].data, d->bytes + ((uint8_t *)s->tensors[i].data - d->window),
               s->host->bytes[i]);
    return skit_is(s->host, step);
}

static void start_free(struct start *s) {
    device_free(s->device);
    skit_state_free(s->host);
}

static uint64_t save(struct start *s, uint64_t step) {
    uint64_t id = 0;
    SKIT_MUST(pawl_ckpt_save(s->c, &(struct pawl_ckpt_save){.state = s->state, .step = step}, &id, e));
    return id;
}

static void saved_from_one_device_it_is_resumed_into_another(void **unused) {
    (void)unused;
    char *path = skit_folder();
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct start s = start_open(path, seed, seed == 1 ? 8 : 1000 + seed); /* else something different */
        uint64_t step = 0;
        SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
        assert_int_equal(step, seed == 1 ? 0 : 6 + seed);
        assert_true(start_is(&s, 8));
        SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 7 + seed), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
        assert_true(s.device->copies > 0);
        assert_int_equal(s.device->outside, 0);
        SKIT_MUST(pawl_ckpt_close(s.c, skit_soon(), e));
        assert_int_equal(s.device->pins, s.device->unpins);
        start_free(&s);
    }
    skit_remove(path);
}

static void failing_copy_fails_the_save_or_the_resume_and_the_older_step_stays(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct pawl_error why = {0};
    uint64_t step = 0;
    struct start s = start_open(path, 1, 8);
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    SKIT_MUST(pawl_ckpt_wait(s.c, save(&s, 8), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
    s.device->refuse_ppm = 1000000;
    assert_int_equal(pawl_ckpt_wait(s.c, save(&s, 9), PAWL_CKPT_UNTIL_DURABLE, skit_soon(), &why), PAWL_IO);
    assert_non_null(strstr(why.text, NAME_OF_DEVICE));
    (void)pawl_ckpt_close(s.c, skit_soon(), NULL); /* has been told */
    start_free(&s);
    s = start_open(path, 2, 1000);
    s.device->refuse_ppm = 1000000;
    assert_int_not_equal(pawl_ckpt_resume(s.c, s.state, &step, &why), PAWL_OK);
    assert_non_null(strstr(why.text, NAME_OF_DEVICE));
    SKIT_MUST(pawl_ckpt_close(s.c, skit_soon(), e));
    start_free(&s);
    s = start_open(path, 3, 1000);
    SKIT_MUST(pawl_ckpt_resume(s.c, s.state, &step, e));
    assert_int_equal(step, 8);
    assert_true(start_is(&s, 8));
    SKIT_MUST(pawl_ckpt_close(s.c, skit_soon(), e));
    start_free(&s);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_from_one_device_it_is_resumed_into_another),
        cmocka_unit_test(failing_copy_fails_the_save_or_the_resume_and_the_older_step_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
