/* The group by files, and by a coordinator's table, behind one face; see saver/group.h. */
#include "saver/group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "saver/starts.h"

#define GROUP_FOLDER "group"
/* Between two looks at the others: at first, and at most. A look at many ranks takes longer, hence rarer. */
#define LOOK_NS_MIN      1000000
#define LOOK_NS_PER_RANK 50000
#define LOOK_NS_MAX      200000000
/* Looks of which one is at all files, for ranks that otherwise only look at rank 0's verdict: rank 0 may be
 * the one that is gone while copies make up for it. */
#define LOOKS_PER_FULL 8u

struct group {
    struct group_config config;
    struct pawl_ckpt_group table;
    bool by_files; /* others to look at */
    struct group_file own;
    struct group_file **files;        /* [rank_count]; the own one at its place; null: nothing known */
    char **paths;                     /* [rank_count] */
    int64_t *changed_ns;              /* [rank_count], see group_changed_ns */
    uint64_t open[GROUP_ENTRIES_MAX]; /* undecided steps that this rank has a part in, ascending */
    uint32_t open_count;
    uint64_t newest_durable; /* passed on */
    int64_t next_ns, pause_ns;
    uint32_t looks;
    bool closing; /* every look is at all */
    bool dirty;   /* something new since the last judgement */
    pawl_code note_code;
    struct pawl_error note_error;
};

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory for the group of ranks");
}

static pawl_code make_paths(struct group *g, struct pawl_error *e) {
    uint32_t count = g->config.rank_count;
    g->paths = calloc(count, sizeof *g->paths);
    if (g->paths == NULL) return no_memory(e);
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, RUN_STORE_NAME, i);
        if ((g->paths[i] = run_path(g->config.run, GROUP_FOLDER, name)) == NULL) return no_memory(e);
    }
    return PAWL_OK;
}

/* ---- files ---- */

static pawl_code read_file(const char *path, struct group_file *out, struct pawl_error *e) {
    uint8_t data[GROUP_FILE_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "%.600s: cannot open", path);
    ssize_t size = pread(fd, data, sizeof data, 0);
    int why = errno;
    close(fd);
    if (size < 0) return error_set(e, error_code_of_errno(why), why, "%.600s: cannot read", path);
    pawl_code code = group_decode(data, (size_t)size, out, e);
    return code == PAWL_OK ? code : error_wrap(e, "%.500s", path);
}

/* In place, so that a file system on a network shows it to whoever opens the file next. */
static pawl_code write_file(const char *path, const struct group_file *f, struct pawl_error *e) {
    uint8_t data[GROUP_FILE_BYTES];
    group_encode(f, data);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "%.600s: cannot open", path);
    ssize_t size = pwrite(fd, data, sizeof data, 0);
    int why = size < 0 ? errno : size < (ssize_t)sizeof data ? ENOSPC : 0;
    if (close(fd) != 0 && why == 0) why = errno; /* NFS tells here that it could not be written */
    if (why == 0) return PAWL_OK;
    return error_set(e, error_code_of_errno(why), why, "%.600s: cannot write what this rank committed", path);
}

static bool has_step(const struct group_file *f, uint64_t step) {
    for (uint32_t i = 0; f != NULL && i < f->entry_count; i++)
        if (f->entries[i].step == step) return true;
    return false;
}

static bool knows_all(const struct group *g, const struct group_file *f) {
    for (uint32_t i = 0; i < g->open_count; i++)
        if (!has_step(f, g->open[i])) return false;
    return true;
}

/* Has this rank gone on without the newest step that is undecided here? It will not come back to it. */
static bool is_past(const struct group *g, const struct group_file *f) {
    for (uint32_t i = 0; g->open_count > 0 && i < f->entry_count; i++)
        if (f->entries[i].step > g->open[g->open_count - 1]) return true;
    return false;
}

/* A file that cannot be read or believed now may be so at the next look. */
static void look_at(struct group *g, uint32_t rank) {
    struct group_file *fresh = malloc(sizeof *fresh);
    struct pawl_error why;
    if (fresh == NULL) return;
    if (read_file(g->paths[rank], fresh, &why) != PAWL_OK || fresh->incarnation != g->config.incarnation ||
        fresh->rank != rank || memcmp(fresh->run_id, g->own.run_id, sizeof fresh->run_id) != 0) {
        free(fresh);
        return;
    }
    if (g->files[rank] == NULL || memcmp(g->files[rank], fresh, sizeof *fresh) != 0) {
        g->dirty = true;
        if (!is_past(g, fresh)) g->changed_ns[rank] = clock_now_ns();
    }
    free(g->files[rank]);
    g->files[rank] = fresh;
}

static void look(struct group *g) {
    bool all = g->config.rank == 0 || g->closing || g->looks % LOOKS_PER_FULL == 0;
    g->looks++;
    for (uint32_t i = 0; i < g->config.rank_count; i++)
        if (i != g->config.rank && (i == 0 || (all && !knows_all(g, g->files[i])))) look_at(g, i);
}

static int64_t pause_min(const struct group *g) {
    return LOOK_NS_MIN + (int64_t)g->config.rank_count * LOOK_NS_PER_RANK;
}

/* ---- opening ---- */

pawl_code group_open(const struct group_config *config, struct group **out, struct pawl_error *e) {
    *out = NULL;
    struct group *g = calloc(1, sizeof *g);
    if (g == NULL) return no_memory(e);
    g->config = *config;
    g->by_files = config->table == NULL && config->rank_count > 1;
    if (config->table != NULL) g->table = *config->table;
    if (config->table != NULL) g->config.table = &g->table;
    g->own = (struct group_file){
        .incarnation = config->incarnation, .rank = config->rank, .rank_count = config->rank_count};
    if (config->run != NULL) memcpy(g->own.run_id, config->run->id, sizeof g->own.run_id);
    g->files = calloc(config->rank_count, sizeof(struct group_file *));
    g->changed_ns = calloc(config->rank_count, sizeof *g->changed_ns);
    pawl_code code = g->files == NULL || g->changed_ns == NULL ? no_memory(e) : PAWL_OK;
    if (code == PAWL_OK) g->files[config->rank] = &g->own;
    if (code == PAWL_OK && g->by_files) code = run_folder(config->run, GROUP_FOLDER, e);
    if (code == PAWL_OK && g->by_files) code = make_paths(g, e);
    g->pause_ns = pause_min(g);
    if (code == PAWL_OK)
        *out = g;
    else
        group_close(g);
    return code;
}

void group_close(struct group *g) {
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->config.rank_count; i++) {
        if (g->files != NULL && i != g->config.rank) free(g->files[i]);
        if (g->paths != NULL) free(g->paths[i]);
    }
    free(g->files);
    free(g->paths);
    free(g->changed_ns);
    free(g);
}

pawl_code group_check_fresh(const struct group *g, struct pawl_error *e) {
    struct group_file *f = g->by_files ? malloc(sizeof *f) : NULL;
    if (f == NULL) return g->by_files ? no_memory(e) : PAWL_OK;
    struct pawl_error why;
    pawl_code code = read_file(g->paths[g->config.rank], f, &why);
    bool used = code == PAWL_OK && f->entry_count > 0 && f->incarnation == g->config.incarnation &&
                memcmp(f->run_id, g->own.run_id, sizeof f->run_id) == 0;
    free(f);
    return used ? error_set(e, PAWL_BUSY, 0, "%.600s", g->paths[g->config.rank]) : PAWL_OK;
}

/* ---- this rank ---- */

static void add_open(struct group *g, uint64_t step) {
    uint32_t at = g->open_count;
    while (at > 0 && g->open[at - 1] > step) at--;
    if (at > 0 && g->open[at - 1] == step) return;
    if (g->open_count == GROUP_ENTRIES_MAX) return; /* the keeper allows far fewer */
    memmove(g->open + at + 1, g->open + at, (g->open_count - at) * sizeof g->open[0]);
    g->open[at] = step;
    g->open_count++;
}

static void close_open(struct group *g, uint64_t step) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->open_count; i++)
        if (g->open[i] != step) g->open[kept++] = g->open[i];
    g->open_count = kept;
}

static void publish(struct group *g) {
    if (!g->by_files) return;
    pawl_code code = write_file(g->paths[g->config.rank], &g->own, &g->note_error);
    g->note_code = code;
}

pawl_code group_arrive(struct group *g, struct pawl_error *e) {
    publish(g);
    if (g->note_code != PAWL_OK && e != NULL) *e = g->note_error;
    return g->note_code;
}

void group_note(struct group *g, const struct group_entry *entry, bool last) {
    if (g->config.table != NULL) {
        if (!last) return; /* the table is told of saves, not of their parts */
        void (*tell)(void *, uint64_t) = entry->committed ? g->table.committed : g->table.failed;
        if (entry->committed) add_open(g, entry->step);
        tell(g->table.context, entry->step);
        g->pause_ns = LOOK_NS_MIN;
        g->next_ns = 0;
        return;
    }
    struct group_file *f = &g->own;
    if (f->entry_count == GROUP_ENTRIES_MAX)
        memmove(f->entries, f->entries + 1, --f->entry_count * sizeof f->entries[0]);
    f->entries[f->entry_count++] = *entry;
    if (entry->committed) add_open(g, entry->step);
    g->dirty = true;
    g->pause_ns = pause_min(g);
    g->next_ns = 0;
    if (last) publish(g);
}

bool group_waits(const struct group *g) { return g->open_count > 0 || g->note_code != PAWL_OK; }

int64_t group_next_ns(const struct group *g) { return group_waits(g) ? g->next_ns : INT64_MAX; }

/* ---- news ---- */

static void pause_longer(struct group *g, int64_t now_ns) {
    g->next_ns = now_ns + g->pause_ns;
    g->pause_ns = 2 * g->pause_ns < LOOK_NS_MAX ? 2 * g->pause_ns : LOOK_NS_MAX;
}

static bool poll_table(struct group *g, int64_t now_ns, struct group_news *out) {
    bool more = g->table.poll(g->table.context, &out->durable, &out->given_up);
    if (out->durable <= g->newest_durable) out->durable = 0;
    if (out->durable != 0) g->newest_durable = out->durable;
    for (uint32_t i = g->open_count; i-- > 0;)
        if (g->open[i] <= g->newest_durable || g->open[i] == out->given_up) close_open(g, g->open[i]);
    if (out->given_up != 0) snprintf(out->who, sizeof out->who, "the coordinator gave it up");
    bool news = out->durable != 0 || out->given_up != 0;
    if (news) g->pause_ns = LOOK_NS_MIN;
    if (!more) pause_longer(g, now_ns);
    return news;
}

static void name_culprit(const struct group *g, uint64_t step, char *out, size_t size) {
    for (uint32_t i = 0; i < g->config.rank_count; i++)
        for (uint32_t k = 0; g->files[i] != NULL && k < g->files[i]->entry_count; k++) {
            const struct group_entry *t = &g->files[i]->entries[k];
            if (t->step != step || t->committed) continue;
            snprintf(out, size, "rank %u could not save its part %u of %u of unit %u", i, t->part,
                     t->part_count, t->unit);
            return;
        }
}

static pawl_code check_start(const struct group *g, uint64_t step, struct pawl_error *e) {
    if (g->config.run == NULL || g->config.run->path == NULL) return PAWL_OK;
    uint64_t later = 0;
    pawl_code code = starts_overtaken(g->config.run, g->config.incarnation, &later, e);
    if (code != PAWL_OK || later == 0) return code;
    return error_set(e, PAWL_BUSY, 0,
                     "%.400s: start %" PRIu64 " of the run has begun, this is start %" PRIu64
                     ": step %" PRIu64 " and later ones of this start do not count",
                     g->config.run->path, later, g->config.incarnation, step);
}

static void note_durable(struct group *g, uint64_t step) {
    g->newest_durable = g->own.durable = step;
    for (uint32_t i = 0; i < g->own.entry_count; i++)
        if (g->own.entries[i].step == step && g->own.entries[i].committed) g->own.entries[i].durable = true;
    publish(g);
}

static bool all_arrived(const struct group *g) {
    for (uint32_t i = 0; i < g->config.rank_count; i++)
        if (g->files[i] == NULL) return false;
    return true;
}

/* The oldest undecided step of which something is known now. Every one that is complete is told, not only the
 * newest: `keep` of them stay. An error: nothing may be told. */
static bool judge(struct group *g, struct group_news *out, struct pawl_error *e) {
    for (uint32_t i = 0; i < g->open_count; i++) {
        uint64_t step = g->open[i];
        enum group_verdict v = group_judge(g->files, g->config.rank_count, step);
        bool overtaken = step < g->newest_durable && v != GROUP_NEVER;
        bool early = v == GROUP_COMPLETE && !all_arrived(g) &&
                     !group_seen_durable(g->files, g->config.rank_count, step);
        if ((v == GROUP_OPEN || early) && !overtaken) continue;
        if (v == GROUP_COMPLETE && !overtaken) {
            if (check_start(g, step, e) != PAWL_OK) return false;
            out->durable = step;
            note_durable(g, step);
        } else {
            out->given_up = step;
            out->overtaken = overtaken;
            snprintf(out->who, sizeof out->who, "step %" PRIu64 " is durable", g->newest_durable);
            if (!overtaken) name_culprit(g, step, out->who, sizeof out->who);
        }
        close_open(g, step);
        return true;
    }
    g->dirty = false;
    return false;
}

/* By files: what is known, else what a look at the others brings. */
static bool poll_files(struct group *g, int64_t now_ns, struct group_news *out, struct pawl_error *e) {
    if (g->dirty && judge(g, out, e)) return true;
    if (e->code == PAWL_OK && g->by_files && now_ns >= g->next_ns) {
        look(g);
        if (g->dirty && judge(g, out, e)) {
            g->pause_ns = pause_min(g);
            return true;
        }
        pause_longer(g, now_ns);
    }
    if (e->code != PAWL_OK) pause_longer(g, now_ns);
    return false;
}

bool group_poll(struct group *g, int64_t now_ns, struct group_news *out, struct pawl_error *e) {
    *out = (struct group_news){0};
    e->code = PAWL_OK;
    if (g->note_code != PAWL_OK && now_ns >= g->next_ns) {
        publish(g);
        if (g->note_code != PAWL_OK) {
            *e = g->note_error;
            pause_longer(g, now_ns);
            return false;
        }
    }
    if (g->open_count == 0) return false;
    if (g->config.table != NULL) return now_ns >= g->next_ns && poll_table(g, now_ns, out);
    return poll_files(g, now_ns, out, e);
}

void group_close_begins(struct group *g) {
    g->closing = true;
    g->pause_ns = pause_min(g);
    g->next_ns = 0;
}

int64_t group_changed_ns(const struct group *g) {
    int64_t newest = 0;
    if (g->open_count == 0) return 0;
    for (uint32_t i = 0; i < g->config.rank_count; i++)
        if (!has_step(g->files[i], g->open[g->open_count - 1]) && g->changed_ns[i] > newest)
            newest = g->changed_ns[i];
    return newest;
}

void group_missing(const struct group *g, uint64_t step, char *out, size_t size) {
    size_t used = 0;
    uint32_t named = 0;
    snprintf(out, size, "the group");
    if (g->config.table != NULL || g->open_count == 0) return;
    if (step == 0) step = g->open[0];
    for (uint32_t i = 0; i < g->config.rank_count && used < size; i++) {
        if (has_step(g->files[i], step)) continue;
        if (named == 8) {
            snprintf(out + used, size - used, " ...");
            return;
        }
        used += (size_t)snprintf(out + used, size - used, named == 0 ? "rank %u" : ", %u", i);
        named++;
    }
}
