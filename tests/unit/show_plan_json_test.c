/* What docs/formats/plan-json.md promises, read back by a parser that is not ours. */
#include "kit/show_plans.h"

#include <cjson/cJSON.h>

static cJSON *json_of(const struct pawl_plan *plan) {
    char *text = kit_text(show_plan_json, plan);
    cJSON *json = cJSON_Parse(text);
    if (json == NULL) fail_msg("no JSON: %s", text);
    free(text);
    return json;
}

static cJSON *at(cJSON *json, const char *key) {
    cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (item == NULL) fail_msg("no key %s", key);
    return item;
}

static void assert_number(cJSON *json, const char *key, double wanted) {
    if (!cJSON_IsNumber(at(json, key)) || at(json, key)->valuedouble != wanted)
        fail_msg("%s: wanted %g, had %g", key, wanted, at(json, key)->valuedouble);
}

static void assert_text(cJSON *json, const char *key, const char *wanted) {
    assert_true(cJSON_IsString(at(json, key)));
    assert_string_equal(at(json, key)->valuestring, wanted);
}

static void the_summary_has_the_documented_keys(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    cJSON *json = json_of(&k.plan);
    assert_number(json, "pawl_plan", 1);
    assert_text(json, "policy", "recycle");
    assert_number(json, "pipelines", 3);
    assert_number(json, "stages", 2);
    assert_number(json, "chunks", 2);
    assert_number(json, "microbatches", 2);
    assert_number(json, "alive", 5);
    assert_number(json, "period", 9);
    assert_number(json, "makespan", 10);
    assert_number(json, "lower_bound", 9);
    assert_number(json, "gap", 0);
    assert_number(json, "fault_free", 9);
    assert_number(json, "planning_ms", 1.25);
    assert_number(json, "instructions", 46);
    assert_text(json, "memory_unit", "microbatches");
    assert_true(cJSON_IsTrue(at(json, "proven")) && cJSON_IsTrue(at(json, "staggered")));
    assert_true(cJSON_IsNull(at(json, "exact")));
    assert_null(cJSON_GetObjectItem(json, "total_microbatches")); /* all are full */
    assert_int_equal(cJSON_GetArraySize(at(json, "warnings")), 0);
    assert_int_equal(cJSON_GetArraySize(at(json, "peak_memory")), 6);
    cJSON_Delete(json);
    kit_free(&k);
}

static void pipelines_that_are_not_full_give_a_total(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    k.plan.ir->total--;
    cJSON *json = json_of(&k.plan);
    assert_number(json, "total_microbatches", 5);
    cJSON_Delete(json);
    kit_free(&k);
}

static void instructions_have_their_times_and_their_peers(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    cJSON *json = json_of(&k.plan), *worker = cJSON_GetArrayItem(at(json, "workers"), 1);
    assert_number(worker, "pipeline", 0);
    assert_number(worker, "stage", 1);
    assert_number(worker, "busy", 9);
    assert_int_equal(cJSON_GetArraySize(at(worker, "instructions")), 11);
    cJSON *guest = cJSON_GetArrayItem(at(worker, "instructions"), 2);
    assert_text(guest, "op", "F");
    assert_number(guest, "home", 1);
    assert_number(guest, "microbatch", 0);
    assert_number(guest, "start", 3);
    assert_number(guest, "end", 4);
    assert_number(guest, "from", 2);
    assert_null(cJSON_GetObjectItem(guest, "to"));
    assert_null(cJSON_GetObjectItem(guest, "chunk"));
    cJSON *step = cJSON_GetArrayItem(at(worker, "instructions"), 10);
    assert_text(step, "op", "S");
    assert_true(cJSON_IsNull(at(step, "home")) && cJSON_IsNull(at(step, "microbatch")));
    cJSON *dead = cJSON_GetArrayItem(at(json, "workers"), 3);
    assert_true(cJSON_IsFalse(at(dead, "alive")));
    assert_int_equal(cJSON_GetArraySize(at(dead, "instructions")), 0);
    cJSON_Delete(json);
    kit_free(&k);
}

static void a_shared_stage_names_worker_chunk_source_and_bytes(void **state) {
    (void)state;
    struct kit k = plan_of_a_helper();
    cJSON *json = json_of(&k.plan), *shared = cJSON_GetArrayItem(at(json, "shared"), 0);
    assert_number(at(shared, "worker"), "stage", 1);
    assert_number(at(shared, "copied_from"), "stage", 0);
    assert_number(shared, "chunk", 0);
    assert_number(shared, "bytes", 1500000000);
    cJSON *worker = cJSON_GetArrayItem(at(json, "workers"), 1);
    assert_int_equal(cJSON_GetArraySize(at(worker, "holds")), 2);
    cJSON *helped = cJSON_GetArrayItem(at(worker, "instructions"), 0);
    assert_number(helped, "chunk", 0);
    assert_number(helped, "end", 0.5);
    assert_number(json, "gap", (5.5 - 5) / 5);
    cJSON_Delete(json);
    kit_free(&k);
}

static void a_move_names_roles_and_the_bytes_of_the_new_one(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    struct plan_move move = {.from = 3, .to = 4};
    k.plan.costs->chunk[0].state = 700;
    k.plan.moves = &move;
    k.plan.move_count = 1;
    cJSON *json = json_of(&k.plan), *first = cJSON_GetArrayItem(at(json, "moves"), 0);
    assert_number(at(first, "from"), "pipeline", 1);
    assert_number(at(first, "from"), "stage", 1);
    assert_number(at(first, "to"), "pipeline", 2);
    assert_number(at(first, "to"), "stage", 0);
    assert_number(first, "bytes", 700);
    cJSON_Delete(json);
    kit_free(&k);
}

static void a_move_does_not_copy_what_the_role_only_helps_with(void **state) {
    (void)state;
    struct kit k = plan_of_a_helper(); /* worker 1 holds chunk 0 besides its own */
    struct plan_move move = {.from = 0, .to = 1};
    k.plan.costs->chunk[1].state = 200;
    k.plan.moves = &move;
    k.plan.move_count = 1;
    cJSON *json = json_of(&k.plan);
    assert_number(cJSON_GetArrayItem(at(json, "moves"), 0), "bytes", 200);
    cJSON_Delete(json);
    kit_free(&k);
}

static void memory_counts_a_stage_of_several_chunks_as_one_microbatch(void **state) {
    (void)state;
    struct kit k = plan_of_a_v(); /* two chunks of 1 each a stage */
    k.plan.costs->limit = calloc(2, sizeof(uint64_t));
    k.plan.costs->limit[0] = 3;
    k.plan.costs->limit[1] = 4;
    cJSON *json = json_of(&k.plan);
    assert_int_equal(k.plan.times.peak[0], 2);
    assert_true(cJSON_GetArrayItem(at(json, "peak_memory"), 0)->valuedouble == 1);
    assert_true(cJSON_GetArrayItem(at(at(json, "costs"), "memory_limit"), 0)->valuedouble == 1.5);
    assert_true(cJSON_IsNull(at(at(json, "costs"), "slow")));
    assert_number(cJSON_GetArrayItem(at(at(json, "costs"), "chunks"), 3), "full", 0.5);
    cJSON_Delete(json);
    kit_free(&k);
}

static void copies_and_recomputation_are_counted_and_timed(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    cJSON *json = json_of(&k.plan);
    cJSON *list = at(cJSON_GetArrayItem(at(json, "workers"), 0), "instructions");
    assert_number(json, "recomputed", 1);
    assert_number(json, "offloaded", 1);
    assert_text(json, "unit", "ms");
    assert_text(json, "memory_unit", "bytes");
    assert_text(cJSON_GetArrayItem(list, 3), "op", "O");
    assert_number(cJSON_GetArrayItem(list, 3), "end", 3.5);
    assert_text(cJSON_GetArrayItem(list, 6), "op", "L");
    assert_text(cJSON_GetArrayItem(list, 7), "op", "C");
    assert_true(cJSON_GetArrayItem(at(json, "peak_memory"), 0)->valuedouble == 2500000000.0);
    cJSON_Delete(json);
    kit_free(&k);
}

static void names_with_quotes_and_control_characters_stay_json(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    k.plan.summary.unit = SHOW_BAD_NAME;
    k.plan.warnings = (char *)"profile '" SHOW_BAD_NAME "' is old\nsecond";
    cJSON *json = json_of(&k.plan);
    assert_text(json, "unit", "a\"b<c>&'d\x01\x1b[31m\xef\xbf\xbd\xc3\xa9");
    assert_int_equal(cJSON_GetArraySize(at(json, "warnings")), 2);
    assert_string_equal(cJSON_GetArrayItem(at(json, "warnings"), 1)->valuestring, "second");
    cJSON_Delete(json);
    kit_free(&k);
}

static void a_solver_is_named_with_its_time_and_bound(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    k.plan.summary.exact = true;
    k.plan.summary.exact_s = 2.5;
    k.plan.summary.exact_bound = 11;
    cJSON *json = json_of(&k.plan);
    assert_number(at(json, "exact"), "seconds", 2.5);
    assert_number(at(json, "exact"), "bound", 11);
    cJSON_Delete(json);
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_has_the_documented_keys),
        cmocka_unit_test(pipelines_that_are_not_full_give_a_total),
        cmocka_unit_test(instructions_have_their_times_and_their_peers),
        cmocka_unit_test(a_shared_stage_names_worker_chunk_source_and_bytes),
        cmocka_unit_test(a_move_names_roles_and_the_bytes_of_the_new_one),
        cmocka_unit_test(a_move_does_not_copy_what_the_role_only_helps_with),
        cmocka_unit_test(memory_counts_a_stage_of_several_chunks_as_one_microbatch),
        cmocka_unit_test(copies_and_recomputation_are_counted_and_timed),
        cmocka_unit_test(names_with_quotes_and_control_characters_stay_json),
        cmocka_unit_test(a_solver_is_named_with_its_time_and_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
