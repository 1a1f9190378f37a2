/* What is damaged in the run's files, as resuming tells it. Noted when it is met, the first time before the
 * engine mends its own log; told once the step gone on from is known, so that the telling says how much is
 * lost. Tested in tests/unit/saver_resume_test.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "saver/saver.h"

/* Events, of the damaged files that scans met; the rest is for `pawl ckpt verify`. */
#define TOLD_PROBLEMS_MAX 16u

/* Under the mutex. Without memory it is lost: it is told nowhere else, and stops nothing. */
static void add(struct pawl_ckpt *c, const struct saver_damage *d) {
    for (uint32_t i = 0; i < c->damage_count; i++)
        if (!d->passed_over && strcmp(c->damage[i].text, d->text) == 0) return;
    struct saver_damage *more = realloc(c->damage, (c->damage_count + 1) * sizeof *more);
    if (more == NULL) return;
    c->damage = more;
    more[c->damage_count++] = *d;
}

void saver_note_problems(struct pawl_ckpt *c, const struct ckpt_set *set) {
    const char *problem;
    pthread_mutex_lock(&c->mutex);
    for (uint32_t i = 0; (problem = ckpt_set_problem(set, i)) != NULL; i++) {
        struct saver_damage d = {.cost = ckpt_set_problem_cost(set, i), .code = PAWL_CORRUPT};
        snprintf(d.text, sizeof d.text, "%.600s", problem);
        add(c, &d);
    }
    pthread_mutex_unlock(&c->mutex);
}

void saver_note_passed_over(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation,
                            const struct pawl_error *why) {
    struct saver_damage d = {.cost = {true, step, incarnation}, .code = why->code, .passed_over = true};
    snprintf(d.text, sizeof d.text, "%.600s", why->text);
    pthread_mutex_lock(&c->mutex);
    add(c, &d);
    pthread_mutex_unlock(&c->mutex);
}

/* ---- what it cost ---- */

static struct ckpt_candidate candidate(const void *damage, uint32_t index) {
    const struct saver_damage *d = damage;
    return (struct ckpt_candidate){d[index].cost.step, d[index].cost.incarnation, true};
}

/* Would the step have been taken, whole, instead of `step`? */
static bool is_lost(const struct saver_damage *d, const struct ckpt_marks *marks, uint64_t step) {
    if (!d->cost.any) return false;
    if (d->cost.step == 0) return true;
    return d->cost.step > step && (d->passed_over || ckpt_newest(marks, 1, candidate, d, UINT64_MAX) == 0);
}

static void say_cost(struct saver_damage *d, uint64_t step) {
    size_t used = strlen(d->text);
    uint64_t again = d->cost.step - step;
    if (d->cost.step == 0)
        snprintf(d->text + used, sizeof d->text - used,
                 "; if it named steps later than %" PRIu64 ", these are computed again", step);
    else
        snprintf(d->text + used, sizeof d->text - used, ", %" PRIu64 " step%s computed again", again,
                 again == 1 ? " is" : "s are");
}

void saver_settle_damage(struct pawl_ckpt *c, uint64_t step) {
    struct ckpt_marks marks;
    if (c->damage_count == 0 || run_marks(&c->run, &marks, NULL) != PAWL_OK) return;
    pthread_mutex_lock(&c->mutex);
    for (uint32_t i = 0; i < c->damage_count; i++) {
        struct saver_damage *d = &c->damage[i];
        d->lost = is_lost(d, &marks, step);
        if (d->lost) say_cost(d, step);
    }
    pthread_mutex_unlock(&c->mutex);
    ckpt_marks_close(&marks);
}

/* ---- telling ---- */

void saver_tell_damage(struct pawl_ckpt *c) {
    uint32_t problems = 0;
    for (uint32_t i = 0; i < c->damage_count; i++) {
        struct saver_damage *d = &c->damage[i];
        bool much = !d->passed_over && problems++ >= TOLD_PROBLEMS_MAX, told = d->told;
        d->told = true;
        if (much || told) continue;
        struct pawl_ckpt_event event = {.kind = PAWL_CKPT_FAILED, .code = d->code};
        if (d->passed_over) {
            event.step = d->cost.step;
            snprintf(event.text, sizeof event.text, "resume: step %" PRIu64 " is passed over: %s",
                     d->cost.step, d->text);
        } else
            snprintf(event.text, sizeof event.text, "resume: does not count: %s", d->text);
        saver_event(c, event);
    }
}

const char *pawl_ckpt_problem(const struct pawl_ckpt *c, uint32_t index) {
    for (uint32_t i = 0; i < c->damage_count; i++)
        if (c->damage[i].lost && !c->damage[i].passed_over && index-- == 0) return c->damage[i].text;
    return NULL;
}
