/* Implementation of saver/starts.h. */
#include "saver/starts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"

#define STARTS_FOLDER "starts"
#define RESUME_SUFFIX ".resume"
#define START_FORMAT  "pawl start 1\nranks %u\ntoken %s\n"
#define RESUME_FORMAT "pawl resume 1\nstep %" PRIu64 "\nincarnation %" PRIu64 "\n"
/* Numbers taken by others while we look for ours, at most: more is a file system that lies. */
#define CLAIMS_MAX 10000u
/* For the rank that decides, before another does; between two looks for its decision. */
#define DECIDE_PATIENCE_NS 5000000000ll
#define PAUSE_NS_MIN       500000
#define PAUSE_NS_MAX       50000000

/* ---- the token ---- */

static const char *environment(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value != NULL && value[0] != 0 ? value : otherwise;
}

static bool is_plain(const char *token) {
    for (const char *at = token; *at != 0; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f) return false;
    return token[0] != 0 && strlen(token) < STARTS_TOKEN_BYTES;
}

static int token_of_environment(char *out) {
    const char *own = environment("PAWL_START", NULL), *torch = environment("TORCHELASTIC_RUN_ID", NULL),
               *slurm = environment("SLURM_JOB_ID", NULL);
    if (own != NULL) return snprintf(out, STARTS_TOKEN_BYTES, "%s", own);
    if (torch != NULL && strcmp(torch, "none") != 0) /* torchrun's way to say that it was given none */
        return snprintf(out, STARTS_TOKEN_BYTES, "torchrun %s %s", torch,
                        environment("TORCHELASTIC_RESTART_COUNT", "0"));
    if (slurm != NULL && torch == NULL)
        return snprintf(out, STARTS_TOKEN_BYTES, "slurm %s %s %s", slurm,
                        environment("SLURM_RESTART_COUNT", "0"), environment("SLURM_STEP_ID", "-"));
    return 0;
}

pawl_code starts_token(const char *given, uint32_t rank_count, char *out, struct pawl_error *e) {
    int size = 0;
    if (rank_count == 1) {
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != sizeof random)
            return error_set(e, PAWL_IO, 0, "no random bytes to name this start");
        size = snprintf(out, STARTS_TOKEN_BYTES, "single %016" PRIx64 "%016" PRIx64, random[0], random[1]);
    } else if (given != NULL) {
        size = snprintf(out, STARTS_TOKEN_BYTES, "%s", given);
    } else {
        size = token_of_environment(out);
    }
    if (size == 0 && given == NULL)
        return error_set(
            e, PAWL_ARGUMENT, 0,
            "%u ranks, and nothing names this start: set options.start or PAWL_START to a text "
            "that is the same on all ranks and new at every start, or use torchrun with --rdzv-id "
            "or Slurm",
            rank_count);
    if (size < 0 || size >= (int)STARTS_TOKEN_BYTES || !is_plain(out))
        return error_set(e, PAWL_ARGUMENT, 0,
                         "the name of this start: wanted 1 to %u bytes of text in one line, had %d",
                         STARTS_TOKEN_BYTES - 1, size);
    return PAWL_OK;
}

/* ---- files ---- */

/* "12" or "12.resume"; 0 for other names. */
static uint64_t number_of(const char *name) {
    char *end = NULL;
    uint64_t number = name[0] >= '1' && name[0] <= '9' ? strtoull(name, &end, 10) : 0;
    return number != 0 && (*end == 0 || strcmp(end, RESUME_SUFFIX) == 0) ? number : 0;
}

/* Names of starts, with possible numbers: the next start takes a larger one. */
static pawl_code list_starts(const struct saver_run *run, char ***names, uint32_t *count,
                             struct pawl_error *e) {
    pawl_code code = run_list(run, STARTS_FOLDER, names, count, e);
    for (uint32_t i = 0; i < *count && code == PAWL_OK; i++)
        code = run_check_number(run, STARTS_FOLDER, (*names)[i], number_of((*names)[i]), e);
    return code;
}

struct claim {
    uint32_t ranks;
    char token[STARTS_TOKEN_BYTES];
};

static pawl_code damaged(const struct saver_run *run, const char *name, const char *text,
                         struct pawl_error *e) {
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%.500s/%s/%s: not a file of a start: '%.60s'; remove it when no process of the run lives", run->path,
        STARTS_FOLDER, name, text);
}

static pawl_code read_claim(const struct saver_run *run, const char *name, struct claim *out,
                            struct pawl_error *e) {
    char *text = NULL, again[STARTS_TOKEN_BYTES + 64];
    pawl_code code = run_read(run, STARTS_FOLDER, name, &text, e);
    if (code != PAWL_OK) return code;
    *out = (struct claim){0};
    int got = sscanf(text, "pawl start 1\nranks %u\ntoken %255[^\n]\n", &out->ranks, out->token);
    snprintf(again, sizeof again, START_FORMAT, out->ranks, out->token);
    if (got != 2 || strcmp(again, text) != 0) code = damaged(run, name, text, e);
    free(text);
    return code;
}

static pawl_code read_resume(const struct saver_run *run, const char *name, struct start *out,
                             struct pawl_error *e) {
    char *text = NULL, again[128];
    pawl_code code = run_read(run, STARTS_FOLDER, name, &text, e);
    if (code != PAWL_OK) return code;
    int got = sscanf(text, RESUME_FORMAT, &out->step, &out->step_incarnation);
    snprintf(again, sizeof again, RESUME_FORMAT, out->step, out->step_incarnation);
    if (got != 2 || strcmp(again, text) != 0) code = damaged(run, name, text, e);
    free(text);
    return code;
}

struct found {
    uint64_t ours, largest; /* 0: none */
};

/* Newest names are looked at first: ours is nearly always the last one. */
static pawl_code find(const struct saver_run *run, const char *token, uint32_t rank_count, struct found *out,
                      struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0;
    *out = (struct found){0};
    pawl_code code = list_starts(run, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        uint64_t number = number_of(names[i]);
        if (number > out->largest) out->largest = number;
        if (number == 0 || strchr(names[i], '.') != NULL) continue;
        struct claim claim;
        struct pawl_error why = {0};
        code = read_claim(run, names[i], &claim, &why);
        if (code == PAWL_NOT_FOUND) { /* cleaned up meanwhile */
            code = PAWL_OK;
            continue;
        }
        if (code != PAWL_OK) {
            if (e != NULL) *e = why;
        } else if (strcmp(claim.token, token) == 0) {
            out->ours = number;
            if (claim.ranks != rank_count)
                code = error_set(e, PAWL_ARGUMENT, 0, "start '%s' was begun with %u ranks, this one says %u",
                                 token, claim.ranks, rank_count);
        }
    }
    store_names_free(names, count);
    return code;
}

/* Finds or makes the claim of this start; *made: it is ours to decide. */
static pawl_code claim(const struct saver_run *run, const char *token, uint32_t rank_count, uint64_t above,
                       uint64_t *number, bool *made, struct pawl_error *e) {
    char name[RUN_NUMBER_BYTES], text[STARTS_TOKEN_BYTES + 64];
    snprintf(text, sizeof text, START_FORMAT, rank_count, token);
    *made = false;
    for (uint32_t tries = 0; tries < CLAIMS_MAX; tries++) {
        struct found found;
        pawl_code code = find(run, token, rank_count, &found, e);
        if (code != PAWL_OK) return code;
        *number = found.ours;
        if (found.ours != 0) return PAWL_OK;
        *number = (found.largest > above ? found.largest : above) + 1;
        snprintf(name, sizeof name, "%" PRIu64, *number);
        code = run_make(run, STARTS_FOLDER, name, text, e);
        *made = code == PAWL_OK;
        if (code != PAWL_BUSY) return code;
    }
    return error_set(e, PAWL_IO, 0, "%.600s/%s: no number can be had for this start", run->path,
                     STARTS_FOLDER);
}

/* Whoever took the number is looking right now. Others give it some time: a thousand ranks that all look into
 * a thousand stores would keep each other from it. */
static pawl_code await_decision(const struct saver_run *run, const char *name, struct start *out,
                                struct pawl_error *e) {
    int64_t until = clock_now_ns() + DECIDE_PATIENCE_NS;
    for (int64_t pause = PAUSE_NS_MIN;; pause = 2 * pause < PAUSE_NS_MAX ? 2 * pause : PAUSE_NS_MAX) {
        pawl_code code = read_resume(run, name, out, e);
        if (code != PAWL_NOT_FOUND || clock_now_ns() >= until) return code;
        struct timespec t = {0, pause};
        nanosleep(&t, NULL);
    }
}

/* The decision of this start; made if nobody has. */
static pawl_code decide(const struct saver_run *run, uint64_t number, bool mine,
                        const struct starts_look *look, struct start *out, struct pawl_error *e) {
    char name[RUN_NUMBER_BYTES], text[128];
    struct pawl_error why = {0};
    struct start seen = {0};
    snprintf(name, sizeof name, "%" PRIu64 RESUME_SUFFIX, number);
    pawl_code code = mine ? PAWL_NOT_FOUND : await_decision(run, name, out, &why);
    if (code == PAWL_NOT_FOUND) {
        code = look->look(look->context, &seen, e);
        if (code != PAWL_OK) return code;
        snprintf(text, sizeof text, RESUME_FORMAT, seen.step, seen.step_incarnation);
        code = run_make(run, STARTS_FOLDER, name, text, &why);
        if (code == PAWL_OK || code == PAWL_BUSY) code = read_resume(run, name, out, &why);
    }
    out->incarnation = number;
    if (code != PAWL_OK && e != NULL) *e = why;
    return code;
}

pawl_code starts_join(const struct saver_run *run, const char *token, uint32_t rank_count,
                      const struct starts_look *look, struct start *out, struct pawl_error *e) {
    *out = (struct start){0};
    struct start stored = {0};
    struct found found;
    uint64_t number = 0;
    bool made = false;
    pawl_code code = find(run, token, rank_count, &found, e);
    /* Where somebody removed the files of starts, what is stored still tells the numbers used. */
    if (code == PAWL_OK && found.largest == 0) code = look->look(look->context, &stored, e);
    if (code == PAWL_OK) code = claim(run, token, rank_count, stored.incarnation, &number, &made, e);
    return code == PAWL_OK ? decide(run, number, made, look, out, e) : code;
}

pawl_code starts_any_other(const struct saver_run *run, const char *token, bool *any, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0;
    *any = false;
    pawl_code code = list_starts(run, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        struct claim claim;
        if (number_of(names[i]) == 0 || strchr(names[i], '.') != NULL) continue;
        code = read_claim(run, names[i], &claim, e);
        if (code == PAWL_OK && strcmp(claim.token, token) != 0) *any = true;
    }
    store_names_free(names, count);
    return code;
}

pawl_code starts_overtaken(const struct saver_run *run, uint64_t incarnation, uint64_t *later,
                           struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0;
    *later = 0;
    pawl_code code = list_starts(run, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        if (number_of(names[i]) > incarnation) *later = number_of(names[i]);
    store_names_free(names, count);
    return code;
}

void starts_clean(const struct saver_run *run, uint64_t incarnation) {
    char **names = NULL;
    uint32_t count = 0;
    if (run_list(run, STARTS_FOLDER, &names, &count, NULL) != PAWL_OK) return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = number_of(names[i]);
        if (number != 0 && number < incarnation) run_remove(run, STARTS_FOLDER, names[i]);
    }
    store_names_free(names, count);
}
