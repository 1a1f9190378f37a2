/* The file of a run's folder that a start of `pawl train` insists on: run.json, which says whose it is.
 * Damaged, or missing beside the run's log, nothing resumes, although the stores may be whole. Only what is
 * written there is looked at, not whether a spec fits it. Layout: docs/formats/run.md. A copy of the stores
 * alone has no log, and lacks nothing. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "inspect/inspect.h"

#define RUN_JSON_FORMAT 1
/* Of a spec some lines: beyond that somebody else wrote the file, and a start does not read it either. */
#define RUN_JSON_BYTES_MAX ((size_t)16 << 20)

static pawl_code check_fields(const char *path, const cJSON *json, uint8_t id[RUN_ID_BYTES],
                              struct pawl_error *e) {
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(json, "format");
    const cJSON *run = cJSON_GetObjectItemCaseSensitive(json, "run_id");
    const cJSON *incarnation = cJSON_GetObjectItemCaseSensitive(json, "incarnation");
    if (cJSON_IsNumber(format) && format->valuedouble != RUN_JSON_FORMAT)
        return error_set(e, PAWL_FORMAT, 0, "%.600s: format %g, wanted %d", path, format->valuedouble,
                         RUN_JSON_FORMAT);
    const char *bad = NULL;
    if (!cJSON_IsNumber(format)) bad = "format";
    if (!cJSON_IsString(run) || !hash_unhex(run->valuestring, id, RUN_ID_BYTES)) bad = "run_id";
    if (!cJSON_IsNumber(incarnation) || !(incarnation->valuedouble >= 0 && incarnation->valuedouble < 0x1p53))
        bad = "incarnation";
    if (!cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(json, "had_durable"))) bad = "had_durable";
    if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(json, "identity"))) bad = "identity";
    if (json == NULL) bad = "JSON";
    if (bad == NULL) return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0,
                     "%.600s: damaged (no %s), so that nothing can resume: bring it back from a copy", path,
                     bad);
}

static pawl_code check_file(const char *path, uint8_t id[RUN_ID_BYTES], struct pawl_error *e) {
    struct bytes text = {0};
    pawl_code code = file_read(path, RUN_JSON_BYTES_MAX, "run.json", &text, e);
    if (code == PAWL_ARGUMENT) code = error_set(e, PAWL_CORRUPT, 0, "%.600s: too large to be a run's", path);
    if (code == PAWL_OK) {
        cJSON *json = cJSON_ParseWithLength((const char *)text.data, text.size);
        code = check_fields(path, json, id, e);
        cJSON_Delete(json);
    }
    bytes_close(&text);
    return code;
}

/* There is no such file, or no file of that name. */
static pawl_code check_absent(const char *path, int why, bool logged, struct pawl_error *e) {
    if (why == 0) return error_set(e, PAWL_CORRUPT, 0, "%.600s: not a file", path);
    if (why != ENOENT) return error_set(e, error_code_of_errno(why), why, "%.600s: cannot look at it", path);
    if (!logged) return PAWL_OK;
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%.600s: missing beside log.jsonl, so that nothing can resume: bring it back from a copy", path);
}

static pawl_code check_at(struct pawl_inspect *in, const char *path, bool logged, struct pawl_error *e) {
    struct pawl_error why = {0};
    struct stat st;
    uint8_t id[RUN_ID_BYTES];
    int gone = stat(path, &st) == 0 ? 0 : errno;
    bool here = gone == 0 && S_ISREG(st.st_mode);
    pawl_code code = here ? check_file(path, id, &why) : check_absent(path, gone, logged, &why);
    if (code == PAWL_OK) return here ? inspect_take_run(in, path, id, e) : PAWL_OK;
    if (code == PAWL_MEMORY) return inspect_no_memory(e);
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_IDENTITY, .code = code, .store = in->run, .file = "run.json"};
    inspect_problem_add(in, like, "%s", why.text);
    return PAWL_OK;
}

pawl_code inspect_run_json_check(struct pawl_inspect *in, struct pawl_error *e) {
    char *path = NULL, *log = NULL;
    struct stat st;
    if (in->run == NULL) return PAWL_OK;
    if (asprintf(&path, "%s/run.json", in->run) < 0) path = NULL;
    if (asprintf(&log, "%s/log.jsonl", in->run) < 0) log = NULL;
    pawl_code code =
        path == NULL || log == NULL ? inspect_no_memory(e) : check_at(in, path, stat(log, &st) == 0, e);
    free(path);
    free(log);
    return code;
}
