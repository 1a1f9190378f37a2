/* Saves without end, and checks what a cut left: the program that runs while the power goes.
 *
 *   guest_ckpt_guest write FOLDER [OPTION...]    saves until killed, or --steps N of them
 *   guest_ckpt_guest check FOLDER [OPTION...]    every complete step holds the right bytes
 *
 * --seed S        names the content (default 1)          --ranks R       stores FOLDER/rank-0.. (default 2)
 * --in-flight N   saves at once (default 3)              --at-least K    check: a step K or newer is whole
 * --steps N       write: end after so many               --mark NAME     write: tell this log-writes device
 *
 * The writer prints `resume K`, then `ack K` once step K is durable on all ranks; whoever reads that may
 * rely on it. Chunk size and threads follow from seed and incarnation: starts vary them. The checker
 * prints `checked newest=K complete=C bytes=B problems=P`. Exit 1: a promise was broken; 2: wrong use.
 * Tested in tests/crash/ckpt_guest_test.c; driven in a virtual machine by scripts/guest. */
#include <poll.h>
#include <unistd.h>

#include "guest/guest_dm.h"
#include "guest/guest_state.h"

#define RANKS_MAX 8u

struct options {
    const char *folder, *mark;
    uint64_t seed, at_least, steps;
    uint32_t ranks, in_flight;
};

struct flight { /* a step being saved */
    uint64_t step;
    uint32_t ended; /* ranks that are done with it */
    bool overtaken; /* not saved by all of them */
    struct state_part *parts[RANKS_MAX];
};

struct writer {
    const struct options *o;
    struct store *stores[RANKS_MAX];
    struct ckpt *engines[RANKS_MAX];
    struct flight flights[CKPT_IN_FLIGHT_MAX];
    bool background;
    uint64_t next, durable_count, newest_durable;
};

static _Noreturn void stop(const char *what, const struct pawl_error *e) {
    printf("fail %s: %s\n", what, e->text);
    exit(1);
}

/* The same for every seed: it is the content that has to tell two apart. */
static const uint8_t run_id[CKPT_RUN_ID_BYTES] = "guest-run-000001";

/* The ranks' stores; a reader takes those that exist. */
static uint32_t open_stores(const struct options *o, bool read_only, struct store **out) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < o->ranks; r++) {
        char path[512], why[160] = "";
        struct pawl_error e = {0};
        snprintf(path, sizeof path, "%.400s/rank-%u", o->folder, r);
        pawl_code code = store_open(path, STORE_AUTO, read_only, &out[count], why, &e);
        if (code == PAWL_NOT_FOUND && read_only) continue;
        if (code != PAWL_OK) stop("open", &e);
        if (count++ == 0 && !read_only) printf("store %s\n", why);
    }
    return count;
}

/* ---- check ---- */

struct found {
    uint64_t newest, incarnation, bytes;
    uint32_t complete, problems;
};

/* A cut may tear the record that is being written, the one before it stands. But no record that can be read
 * names a slot that is not whole, nor may a slot be written while one does. */
static void list_problems(const struct ckpt_set *set, bool verify, uint32_t *count) {
    for (const char *text; (text = ckpt_set_problem(set, *count)) != NULL; ++*count) {
        printf("problem %s\n", text);
        if (!verify || strstr(text, "/slot-") == NULL) continue;
        printf("fail ORDER: a record names what is not whole\n");
        exit(1);
    }
}

/* What the stores hold; with verify every complete step is read, and the first wrong one ends the program. */
static struct found look(const struct options *o, struct store *const *stores, uint32_t count, bool verify) {
    struct found out = {0};
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    if (count == 0) return out;
    if (ckpt_set_open(stores, count, run_id, &set, &e) != PAWL_OK) stop("scan", &e);
    list_problems(set, verify, &out.problems);
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) {
        const struct ckpt_step *step = ckpt_set_at(set, i);
        if (step->incarnation > out.incarnation) out.incarnation = step->incarnation;
        if (!step->complete) continue;
        if (verify && state_check(set, i, o->seed, &out.bytes, &e) != PAWL_OK) stop("content", &e);
        if (step->step > out.newest) out.newest = step->step;
        out.complete++;
    }
    ckpt_set_close(set);
    return out;
}

static int check(const struct options *o) {
    struct store *stores[RANKS_MAX];
    uint32_t count = open_stores(o, true, stores);
    struct found found = look(o, stores, count, true);
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    printf("checked newest=%" PRIu64 " complete=%u bytes=%" PRIu64 " problems=%u\n", found.newest,
           found.complete, found.bytes, found.problems);
    if (found.newest >= o->at_least) return 0;
    printf("fail LOST: step %" PRIu64 " was acknowledged, the newest whole one is %" PRIu64 "\n", o->at_least,
           found.newest);
    return 1;
}

/* ---- write ---- */

static void open_engines(struct writer *w) {
    const struct options *o = w->o;
    struct pawl_error e = {0};
    (void)open_stores(o, false, w->stores);
    for (uint32_t r = 0; r < o->ranks; r++)
        if (ckpt_settle(w->stores[r], &e) != PAWL_OK) stop("settle", &e);
    struct found found = look(o, w->stores, o->ranks, false);
    struct ckpt_config config = {.incarnation = found.incarnation + 1,
                                 .resume_step = found.newest,
                                 .in_flight = o->in_flight,
                                 .keep = 2,
                                 .chunk_bytes = (uint64_t)STORE_BLOCK
                                                << (1 + (o->seed + found.incarnation) % 6),
                                 .background = (o->seed / 6 + found.incarnation) % 2 == 0};
    memcpy(config.run_id, run_id, sizeof run_id);
    for (uint32_t r = 0; r < o->ranks; r++)
        if (ckpt_open(&config, w->stores[r], &w->engines[r], &e) != PAWL_OK) stop("engine", &e);
    w->background = config.background;
    w->next = found.newest + 1;
    printf("resume %" PRIu64 "\n", found.newest);
}

static struct flight *flight_of(struct writer *w, uint64_t step) {
    for (uint32_t i = 0; i < w->o->in_flight; i++)
        if (w->flights[i].step == step) return &w->flights[i];
    return NULL;
}

static bool room_for_one(const struct writer *w) {
    for (uint32_t r = 0; r < w->o->ranks; r++)
        if (ckpt_in_flight(w->engines[r]) >= w->o->in_flight) return false;
    return true;
}

static void begin(struct writer *w) {
    struct flight *f = flight_of(w, 0);
    struct pawl_error e = {0};
    f->step = w->next++;
    f->ended = 0;
    f->overtaken = false;
    for (uint32_t r = 0; r < w->o->ranks; r++) {
        struct state_part *p = f->parts[r] = state_part_new(w->o->seed, f->step, r, w->o->ranks);
        struct ckpt_save save = {.step = f->step,
                                 .unit_count = 1,
                                 .part = r,
                                 .part_count = w->o->ranks,
                                 .tensors = p->tensors,
                                 .tensor_count = p->count,
                                 .blob = p->blob,
                                 .blob_bytes = strlen(p->blob)};
        if (ckpt_save_begin(w->engines[r], &save, &e) != PAWL_OK) stop("begin", &e);
    }
}

/* All ranks have it: from here on a cut must not take it away. The mark comes after the fact, as the words
 * on the serial line do. */
static void acknowledge(struct writer *w, struct flight *f) {
    char text[64];
    snprintf(text, sizeof text, "mark ack-%" PRIu64, f->step);
    int result = w->o->mark != NULL ? dm_message(w->o->mark, text) : 0;
    if (result != 0) {
        printf("fail mark on %s: %s\n", w->o->mark, strerror(result));
        exit(1);
    }
    printf("ack %" PRIu64 "\n", f->step);
    for (uint32_t r = 0; r < w->o->ranks; r++) ckpt_durable(w->engines[r], f->step);
    if (f->step > w->newest_durable) w->newest_durable = f->step;
    w->durable_count++;
}

/* One rank's part has ended. Only a step that newer durable ones have overtaken may be given up. */
static void part_ended(struct writer *w, const struct ckpt_event *event) {
    struct flight *f = flight_of(w, event->step);
    bool overtaken = event->code == PAWL_CANCELLED && event->step < w->newest_durable;
    if (event->code != PAWL_OK && !overtaken) stop("save", &event->error);
    f->overtaken = f->overtaken || overtaken;
    if (++f->ended < w->o->ranks) return;
    if (!f->overtaken) acknowledge(w, f);
    for (uint32_t r = 0; r < w->o->ranks; r++) state_part_free(f->parts[r]);
    f->step = 0;
}

static uint32_t take_events(struct writer *w, uint32_t rank) {
    struct ckpt_event events[CKPT_IN_FLIGHT_MAX];
    uint32_t count = ckpt_poll(w->engines[rank], events, CKPT_IN_FLIGHT_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (events[i].kind == CKPT_ENDED) part_ended(w, &events[i]);
    return count;
}

static void wait_for_news(struct writer *w) {
    struct pollfd fds[RANKS_MAX];
    for (uint32_t r = 0; r < w->o->ranks; r++) {
        fds[r] = (struct pollfd){.fd = ckpt_fd(w->engines[r]), .events = POLLIN};
        if (!w->background) store_wait(w->stores[r], 1000000);
    }
    if (w->background) (void)poll(fds, w->o->ranks, 1000);
}

static bool all_idle(const struct writer *w) {
    for (uint32_t i = 0; i < w->o->in_flight; i++)
        if (w->flights[i].step != 0) return false;
    return true;
}

static int write_steps(const struct options *o) {
    struct writer w = {.o = o};
    struct pawl_error e = {0};
    bool enough = false;
    open_engines(&w);
    while (!enough || !all_idle(&w)) {
        while (!enough && room_for_one(&w) && flight_of(&w, 0) != NULL) begin(&w);
        uint32_t news = 0;
        for (uint32_t r = 0; r < o->ranks; r++) news += take_events(&w, r);
        if (news == 0) wait_for_news(&w);
        enough = o->steps != 0 && w.durable_count >= o->steps;
    }
    for (uint32_t r = 0; r < o->ranks; r++) {
        if (ckpt_close(w.engines[r], kit_soon(), &e) != PAWL_OK) stop("close", &e);
        store_close(w.stores[r]);
    }
    return 0;
}

/* ---- words of the command line ---- */

static _Noreturn void usage(const char *word) {
    fprintf(stderr,
            "guest_ckpt_guest: %s; wanted: write|check FOLDER [--seed S] [--ranks R] [--in-flight N] "
            "[--steps N] [--at-least K] [--mark NAME]\n",
            word);
    exit(2);
}

static uint64_t number(const char *word, uint64_t least, uint64_t most) {
    char *end = NULL;
    uint64_t value = strtoull(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end != 0 || value < least || value > most) usage(word);
    return value;
}

static void parse_option(struct options *o, const char *name, const char *value) {
    if (strcmp(name, "--seed") == 0)
        o->seed = number(value, 0, (1u << 24) - 1); /* the content has room for this much */
    else if (strcmp(name, "--at-least") == 0)
        o->at_least = number(value, 0, UINT64_MAX);
    else if (strcmp(name, "--steps") == 0)
        o->steps = number(value, 1, UINT64_MAX);
    else if (strcmp(name, "--ranks") == 0)
        o->ranks = (uint32_t)number(value, 1, RANKS_MAX);
    else if (strcmp(name, "--in-flight") == 0)
        o->in_flight = (uint32_t)number(value, 1, CKPT_IN_FLIGHT_MAX);
    else if (strcmp(name, "--mark") == 0)
        o->mark = value;
    else
        usage(name);
}

int main(int count, char **words) {
    struct options o = {.seed = 1, .ranks = 2, .in_flight = 3};
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line that was printed must not wait in memory */
    if (count < 3) usage("too few words");
    o.folder = words[2];
    for (int i = 3; i < count; i += 2) parse_option(&o, words[i], i + 1 < count ? words[i + 1] : "");
    if (strcmp(words[1], "write") == 0) return write_steps(&o);
    if (strcmp(words[1], "check") == 0) return check(&o);
    usage(words[1]);
}
