/* What workers say, on its way to the coordinator: logged, counted, kept for whoever takes over. */
#include <string.h>

#include "base/clock.h"
#include "run/launch_state.h"

static void keep(struct bytes *to, const void *frame, size_t size) {
    bytes_clear(to);
    bytes_put(to, frame, size);
}

/* The event of a failed save has begun. The first cause is told and kept: what follows from it (no room for
 * another save, say) is not why. */
void tell_save_failed(struct launch *l, uint32_t rank, pawl_code code, const char *why) {
    l->report.saves_failed++;
    if (l->saves_failing) {
        progress_end(l->progress, NULL);
        return;
    }
    l->saves_failing = true;
    error_set(&l->save_failure, code, 0, "worker %u: %s", rank, why);
    if (l->has_durable)
        progress_end(l->progress,
                     "cannot save: worker %u: %s; training goes on, the newest durable step stays %llu", rank,
                     why, (unsigned long long)l->report.last_durable_step);
    else
        progress_end(l->progress, "cannot save: worker %u: %s; training goes on, nothing is durable yet",
                     rank, why);
}

static void hear_saved(struct launch *l, uint32_t rank, const struct message *m) {
    bool overtaken = m->code == PAWL_CANCELLED; /* by newer durable steps: nobody needs it */
    struct json *j = progress_begin(l->progress, m->code == PAWL_OK ? "saved"
                                                 : overtaken        ? "save_overtaken"
                                                                    : "save_failed");
    json_i64(j, "rank", rank);
    json_i64(j, "step", (int64_t)m->version);
    json_i64(j, "bytes", (int64_t)m->bytes);
    json_f64(j, "seconds", (double)m->write_ns / 1e9);
    if (m->code == PAWL_OK || overtaken) {
        progress_end(l->progress, NULL);
        return;
    }
    json_text(j, "error", m->text);
    tell_save_failed(l, rank, m->code, m->text);
}

/* What the newest durable step holds cannot be loaded, though it looks whole: go back to one before it. */
static void walk_back(struct launch *l, uint32_t rank) {
    if (!l->resumed || l->report.final_step != l->resume_step) return;
    l->workers[rank].spoiled = true;
    if (l->find_below <= l->resume_step) return;
    l->find_below = l->resume_step;
    l->found_first = false;
    json_i64(progress_begin(l->progress, "walk_back"), "step", (int64_t)l->resume_step);
    progress_end(l->progress, "step %llu cannot be restored; trying an older one",
                 (unsigned long long)l->resume_step);
}

static void hear_failed(struct launch *l, uint32_t rank, const struct message *m) {
    struct json *j = progress_begin(l->progress, "worker_failed");
    json_i64(j, "rank", rank);
    json_text(j, "code", pawl_code_name(m->code));
    json_text(j, "error", m->text);
    progress_end(l->progress, "worker %u failed: %s", rank, m->text);
    if (l->failure.code == PAWL_OK) error_set(&l->failure, m->code, 0, "worker %u failed: %s", rank, m->text);
    if (m->code == PAWL_CORRUPT) walk_back(l, rank);
}

static void hear_ready(struct launch *l, uint32_t rank, const struct message *m) {
    l->workers[rank].ready = true;
    if (m->text[0] == 0 || l->store_mode[0] != 0) return;
    strncpy(l->store_mode, m->text, sizeof l->store_mode - 1);
    json_text(progress_begin(l->progress, "store"), "mode", m->text);
    progress_end(l->progress, "checkpoints: %s", m->text);
}

static void hear_beat(struct launch *l, uint32_t rank, const struct message *m) {
    struct launch_worker *w = &l->workers[rank];
    w->beat_ns = clock_now_ns();
    if (m->progress != w->progress) w->progress_ns = w->beat_ns;
    w->progress = m->progress;
    w->busy = m->busy;
    w->work = m->work;
    w->at = m->at;
    tell_progress(l, rank, false);
}

/* A signal that everybody was sent is the launcher's to answer, also when a worker was quicker: the run ends
 * with all of them. */
static bool hear_leaving(struct launch *l, uint32_t rank) {
    stop_signals(l);
    if (l->stopping) return false;
    if (l->workers[rank].leaving) return true;
    l->workers[rank].leaving = true;
    json_i64(progress_begin(l->progress, "leaving"), "rank", rank);
    progress_end(l->progress, "worker %u was told to end: its work is planned anew, then it leaves", rank);
    return true;
}

static void hear_prepared(struct launch *l, uint32_t rank, const struct message *m) {
    struct json *j = progress_begin(l->progress, "prepared");
    json_i64(j, "rank", rank);
    json_i64(j, "chunk", m->chunk);
    json_i64(j, "step", (int64_t)m->version);
    progress_end(l->progress, NULL);
}

static void hear_measured(struct launch *l, uint32_t rank, const struct message *m) {
    struct measure_report *r = &l->measured[rank];
    if (l->workers[rank].stage != m->chunk) return; /* of a chunk that it helps with */
    if (measure_decode(m->data, m->data_bytes, r, NULL) != PAWL_OK) *r = (struct measure_report){0};
}

bool hear_worker(struct launch *l, uint32_t rank, const void *frame, size_t size) {
    struct message m;
    if (message_decode(frame, size, &m, NULL) != PAWL_OK) return true; /* the coordinator has it ended */
    switch (m.kind) {
    case MESSAGE_ADDRESS:
        keep(&l->workers[rank].hello, frame, size);
        break;
    case MESSAGE_READY:
        keep(&l->workers[rank].readied, frame, size);
        hear_ready(l, rank, &m);
        break;
    case MESSAGE_REDUCED:
        tell_progress(l, rank, true);
        break;
    case MESSAGE_BEAT:
        hear_beat(l, rank, &m);
        break;
    case MESSAGE_SAVED:
        hear_saved(l, rank, &m);
        break;
    case MESSAGE_FAILED:
        hear_failed(l, rank, &m);
        break;
    case MESSAGE_PREPARED:
        hear_prepared(l, rank, &m);
        break;
    case MESSAGE_MEASURED:
        hear_measured(l, rank, &m);
        break;
    case MESSAGE_LEAVING:
        return hear_leaving(l, rank);
    default:
        break;
    }
    return true;
}
