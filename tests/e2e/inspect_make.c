/* Makes and continues run folders for tests/e2e/ckpt_test.py, with the engine itself:
 *
 *   inspect_make DIR RUN PARTS KEEP START:RESUME STEP...
 *
 * RUN is one letter, repeated to a run id; PARTS ranks each write one part of the kit's model; START is the
 * incarnation, RESUME the step it resumed from (0: none). A STEP like 41-2 is saved without part 2. With
 * STEP "hold", the stores stay open, with "holding" on the standard output, until the standard input ends.
 * With "loop", steps are saved one after the other until then. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kit/ckpt_kit.h"

#define PARTS_MAX 64u

struct maker {
    uint32_t parts;
    struct store *stores[PARTS_MAX];
    struct ckpt *engines[PARTS_MAX];
    uint64_t step; /* the last one saved */
};

static void stop(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "inspect_make: %s: %s\n", what, e->text);
    exit(pawl_code_exit(e->code) != 0 ? pawl_code_exit(e->code) : 1);
}

static void save_part(struct maker *m, uint64_t step, uint32_t part) {
    struct pawl_error e = {0};
    struct kit_part *data = kit_part_new(step, part, m->parts);
    struct ckpt_save save = kit_save(data, step, part, m->parts);
    if (ckpt_save_begin(m->engines[part], &save, &e) != PAWL_OK) stop("save", &e);
    struct ckpt_event event = kit_wait(m->engines[part], m->stores[part]);
    if (event.code != PAWL_OK) stop("save", &event.error);
    kit_part_free(data);
}

static void save_step(struct maker *m, uint64_t step, uint32_t without) {
    for (uint32_t p = 0; p < m->parts; p++)
        if (p != without) save_part(m, step, p);
    for (uint32_t p = 0; p < m->parts && without >= m->parts; p++) ckpt_durable(m->engines[p], step);
    m->step = step;
}

static bool input_ended(void) {
    struct pollfd f = {STDIN_FILENO, POLLIN, 0};
    return poll(&f, 1, 0) > 0;
}

static void take_word(struct maker *m, const char *word) {
    char c;
    if (strcmp(word, "hold") == 0) {
        puts("holding");
        fflush(stdout);
        while (read(STDIN_FILENO, &c, 1) > 0) continue;
    } else if (strcmp(word, "loop") == 0) {
        puts("looping");
        fflush(stdout);
        while (!input_ended()) save_step(m, m->step + 1, UINT32_MAX);
    } else if (strcmp(word, "unchecked") != 0) {
        char *end = NULL;
        uint64_t step = strtoull(word, &end, 10);
        save_step(m, step, *end == '-' ? (uint32_t)strtoul(end + 1, NULL, 10) : UINT32_MAX);
    }
}

static void open_rank(struct maker *m, char **argv, uint32_t p) {
    struct pawl_error e = {0};
    char path[4096];
    char *resume = NULL;
    uint64_t start = strtoull(argv[5], &resume, 10);
    snprintf(path, sizeof path, "%s/store/rank-%04u", argv[1], p);
    if (store_open(path, STORE_AUTO, false, &m->stores[p], NULL, &e) != PAWL_OK) stop("store", &e);
    struct ckpt_config config =
        kit_config(start, *resume == ':' ? strtoull(resume + 1, NULL, 10) : 0, 1, (uint32_t)atoi(argv[4]));
    for (char **word = argv; *word != NULL; word++) config.unchecked |= strcmp(*word, "unchecked") == 0;
    memset(config.run_id, argv[2][0], sizeof config.run_id);
    if (ckpt_open(&config, m->stores[p], &m->engines[p], &e) != PAWL_OK) stop("engine", &e);
}

int main(int argc, char **argv) {
    static struct maker m;
    struct pawl_error e = {0};
    if (argc < 6) return 64;
    m.parts = (uint32_t)atoi(argv[3]);
    if (m.parts == 0 || m.parts > PARTS_MAX) return 64;
    for (uint32_t p = 0; p < m.parts; p++) open_rank(&m, argv, p);
    for (int i = 6; i < argc; i++) take_word(&m, argv[i]);
    for (uint32_t p = 0; p < m.parts; p++) {
        if (ckpt_close(m.engines[p], kit_soon(), &e) != PAWL_OK) stop("close", &e);
        store_close(m.stores[p]);
    }
    return 0;
}
