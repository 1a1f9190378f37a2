/* What docs/formats/sim-json.md promises, read back by a parser that is not ours. */
#include "kit/show_sims.h"
#include "kit/show_plans.h"

#include <cjson/cJSON.h>
#include <math.h>

static cJSON *json_of(const struct pawl_sim *sim) {
    char *text = sim_kit_text(show_sim_json, sim);
    cJSON *json = cJSON_Parse(text);
    if (json == NULL) fail_msg("no JSON: %s", text);
    free(text);
    return json;
}

static void assert_number(const cJSON *json, const char *key, double wanted) {
    const cJSON *item = cJSON_GetObjectItem(json, key);
    if (!cJSON_IsNumber(item) || item->valuedouble != wanted)
        fail_msg("%s: wanted %g, had %g", key, wanted, item != NULL ? item->valuedouble : NAN);
}

static void assert_text(const cJSON *json, const char *key, const char *wanted) {
    const cJSON *item = cJSON_GetObjectItem(json, key);
    assert_true(cJSON_IsString(item));
    assert_string_equal(item->valuestring, wanted);
}

static void the_request_and_every_constant_are_there(void **state) {
    (void)state;
    cJSON *json = json_of(sim_of_two_scenarios());
    assert_number(json, "pawl_sim", 1);
    assert_number(json, "pipelines", 16);
    assert_number(json, "stages", 2);
    assert_number(json, "microbatches", 8);
    assert_number(json, "seed", 7);
    assert_number(json, "checkpoint_every_s", 1800);
    cJSON *constants = cJSON_GetObjectItem(json, "constants");
    assert_int_equal(cJSON_GetArraySize(constants), 2);
    assert_text(cJSON_GetArrayItem(constants, 0), "policy", "oobleck");
    assert_text(cJSON_GetArrayItem(constants, 0), "name", "stop_s");
    assert_text(cJSON_GetArrayItem(constants, 0), "unit", "s");
    assert_text(cJSON_GetArrayItem(constants, 0), "source", "a paper, section \"5\"");
    assert_number(cJSON_GetArrayItem(constants, 0), "value", 60);
    cJSON_Delete(json);
}

static void a_row_has_its_figures_and_all_samples(void **state) {
    (void)state;
    cJSON *json = json_of(sim_of_two_scenarios()), *rows = cJSON_GetObjectItem(json, "rows");
    assert_int_equal(cJSON_GetArraySize(rows), 6);
    cJSON *row = cJSON_GetArrayItem(rows, 1);
    assert_text(row, "scenario", "every 6 h");
    assert_text(row, "policy", "oobleck");
    assert_number(row, "goodput", 7.4);
    assert_number(row, "relative", 0.82);
    assert_number(row, "availability", 0.98);
    assert_number(row, "stopped_s", 60);
    assert_number(row, "lost_s", 36);
    assert_number(row, "stops", 1);
    assert_number(row, "cost", 1.25);
    cJSON *samples = cJSON_GetObjectItem(row, "samples");
    assert_int_equal(cJSON_GetArraySize(samples), 3);
    cJSON *last = cJSON_GetArrayItem(samples, 2);
    static const double wanted[] = {1860, 31, 6, 16200};
    assert_int_equal(cJSON_GetArraySize(last), 4);
    for (int i = 0; i < 4; i++) assert_true(cJSON_GetArrayItem(last, i)->valuedouble == wanted[i]);
    cJSON_Delete(json);
}

static void what_is_no_number_is_null_and_bad_names_stay_json(void **state) {
    (void)state;
    struct pawl_sim *sim = sim_of_two_scenarios();
    struct pawl_sim_row rows[6];
    memcpy(rows, sim->rows, sizeof rows);
    rows[0].scenario = rows[0].note = SHOW_BAD_NAME;
    rows[0].relative = NAN;
    sim->rows = rows;
    sim->warnings = (char *)"line 3: \"add\" twice\nline 9";
    cJSON *json = json_of(sim), *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "rows"), 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(row, "relative")));
    assert_text(row, "scenario", "a\"b<c>&'d\x01\x1b[31m\xef\xbf\xbd\xc3\xa9");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "warnings")), 2);
    cJSON_Delete(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_request_and_every_constant_are_there),
        cmocka_unit_test(a_row_has_its_figures_and_all_samples),
        cmocka_unit_test(what_is_no_number_is_null_and_bad_names_stay_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
