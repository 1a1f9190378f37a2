/* The trace of a plan: slices where the times say, names, arrows whose two ends agree. */
#include "kit/show_plans.h"

#include <cjson/cJSON.h>

struct trace {
    cJSON *json, *events;
};

static struct trace trace_of(const struct pawl_plan *plan) {
    char *text = kit_text(show_plan_chrome, plan);
    struct trace t = {.json = cJSON_Parse(text)};
    if (t.json == NULL) fail_msg("no JSON: %s", text);
    t.events = cJSON_GetObjectItem(t.json, "traceEvents");
    free(text);
    return t;
}

static double number(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(event, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

static const char *text(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(event, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static const cJSON *slice(const struct trace *t, double pid, double tid, const char *name) {
    const cJSON *event;
    cJSON_ArrayForEach(event, t->events) {
        if (strcmp(text(event, "ph"), "X") == 0 && number(event, "pid") == pid &&
            number(event, "tid") == tid && strcmp(text(event, "name"), name) == 0)
            return event;
    }
    fail_msg("no slice %s", name);
    return NULL;
}

static void slices_are_where_the_times_say_and_guests_are_marked(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    struct trace t = trace_of(&k.plan);
    const cJSON *guest = slice(&t, 0, 1, "F 1:0");
    assert_true(number(guest, "ts") == 3000 && number(guest, "dur") == 1000); /* a unit without name: 1 ms */
    assert_string_equal(text(guest, "cat"), "forward,guest");
    assert_string_equal(text(slice(&t, 0, 1, "F 0:0"), "cat"), "forward");
    cJSON_Delete(t.json);
    kit_free(&k);
}

static void processes_are_pipelines_and_threads_are_stages(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    struct trace t = trace_of(&k.plan);
    uint32_t processes = 0, threads = 0, dead = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, t.events) {
        processes += strcmp(text(event, "name"), "process_name") == 0;
        threads += strcmp(text(event, "name"), "thread_name") == 0;
        dead += strcmp(text(cJSON_GetObjectItem(event, "args"), "name"), "stage 1 (dead)") == 0;
    }
    assert_int_equal(processes, 3);
    assert_int_equal(threads, 6);
    assert_int_equal(dead, 1);
    cJSON_Delete(t.json);
    kit_free(&k);
}

static void both_ends_of_every_arrow_agree(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    struct trace t = trace_of(&k.plan);
    uint32_t begun = 0, ended = 0;
    const cJSON *event, *other;
    cJSON_ArrayForEach(event, t.events) {
        if (strcmp(text(event, "ph"), "s") != 0) continue;
        uint32_t ends = 0;
        begun++;
        cJSON_ArrayForEach(other, t.events) {
            if (strcmp(text(other, "ph"), "f") != 0 || number(other, "id") != number(event, "id")) continue;
            assert_true(number(other, "ts") >= number(event, "ts"));
            assert_string_equal(text(other, "name"), text(event, "name"));
            ends++;
        }
        assert_int_equal(ends, 1);
    }
    cJSON_ArrayForEach(event, t.events) ended += strcmp(text(event, "ph"), "f") == 0;
    assert_int_equal(begun, 12); /* 6 micro-batches, there and back */
    assert_int_equal(ended, 12);
    cJSON_Delete(t.json);
    kit_free(&k);
}

static void a_message_to_oneself_is_no_arrow(void **state) {
    (void)state;
    struct kit k = plan_of_a_v();
    struct trace t = trace_of(&k.plan);
    uint32_t arrows = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, t.events) arrows += strcmp(text(event, "ph"), "s") == 0;
    assert_int_equal(arrows, 4); /* 0 to 1, 2 to 3, and back; 1 and 2 are one worker's */
    cJSON_Delete(t.json);
    kit_free(&k);
}

static void units_that_name_a_duration_are_converted(void **state) {
    (void)state;
    const struct {
        const char *unit;
        double us;
    } cases[] = {{"s", 1e6},   {"ms", 1e3},    {"us", 1},  {"\xc2\xb5s", 1},
                 {"ns", 1e-3}, {"steps", 1e3}, {NULL, 1e3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kit k = plan_of_copies();
        k.plan.summary.unit = cases[i].unit;
        struct trace t = trace_of(&k.plan);
        assert_true(number(slice(&t, 0, 0, "I 0:0"), "ts") == 3.5 * cases[i].us);
        assert_true(number(cJSON_GetObjectItem(t.json, "otherData"), "us_per_unit") == cases[i].us);
        cJSON_Delete(t.json);
        kit_free(&k);
    }
}

static void copies_have_a_thread_of_their_own(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    struct trace t = trace_of(&k.plan);
    assert_true(number(slice(&t, 0, 1, "L 0:2"), "ts") == 5500);
    assert_true(number(slice(&t, 0, 0, "C 0:1"), "ts") == 5500);
    cJSON_Delete(t.json);
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_where_the_times_say_and_guests_are_marked),
        cmocka_unit_test(processes_are_pipelines_and_threads_are_stages),
        cmocka_unit_test(both_ends_of_every_arrow_agree),
        cmocka_unit_test(a_message_to_oneself_is_no_arrow),
        cmocka_unit_test(units_that_name_a_duration_are_converted),
        cmocka_unit_test(copies_have_a_thread_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
