/* One state over several processes, each holding some rows of it; and then over another number of them. Every
 * process opens the same folder with its rank, saves its rows and asks for its rows: how they were cut when
 * they were saved does not matter.
 *
 *   shards FOLDER PROCESSES STEPS */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pawl/ckpt.h>

#define ROWS        1000u
#define COLUMNS     300u
#define PATIENCE_NS 60000000000ll

static int fail(uint32_t rank, const char *what, const struct pawl_error *e) {
    fprintf(stderr, "rank %u: %s: %s\n", rank, what, e->text);
    return pawl_code_exit(e->code);
}

/* After s steps element (r, c) is s * (r + c), whoever holds it. */
static int check(const int64_t *rows, uint64_t begin, uint64_t count, uint64_t step) {
    for (uint64_t i = 0; i < count * COLUMNS; i++)
        if (rows[i] != (int64_t)(step * (begin + i / COLUMNS + i % COLUMNS))) return 0;
    return 1;
}

static int work(const char *folder, const char *start, uint32_t rank, uint32_t count, uint64_t steps) {
    uint64_t shape[2] = {ROWS, COLUMNS}, begin[2] = {(uint64_t)ROWS * rank / count, 0};
    uint64_t extent[2] = {(uint64_t)ROWS * (rank + 1) / count - begin[0], COLUMNS}, step = 0, id = 0;
    int64_t *rows = calloc(extent[0] * COLUMNS + 1, sizeof *rows);
    if (rows == NULL) return 71;
    const struct pawl_tensor mine = {.name = "matrix",
                                     .dtype = PAWL_I64,
                                     .rank = 2,
                                     .shape = shape,
                                     .begin = begin,
                                     .extent = extent,
                                     .data = rows};
    struct pawl_error e;
    struct pawl_ckpt *c = NULL;
    struct pawl_ckpt_state *state = NULL;
    const struct pawl_ckpt_options options = {
        .path = folder, .rank = rank, .rank_count = count, .start = start};
    if (pawl_ckpt_open(&options, &c, &e) != PAWL_OK) return fail(rank, "open", &e);
    if (pawl_ckpt_declare(c, &mine, 1, &state, &e) != PAWL_OK) return fail(rank, "declare", &e);
    if (pawl_ckpt_resume(c, state, &step, &e) != PAWL_OK) return fail(rank, "resume", &e);
    printf("rank %u of %u begins at step %" PRIu64 "\n", rank, count, step);
    if (!check(rows, begin[0], extent[0], step)) return fprintf(stderr, "rank %u: wrong rows\n", rank), 70;

    for (uint64_t last = step + steps; step < last;) {
        if (pawl_ckpt_fence(c, PAWL_FOREVER, &e) != PAWL_OK) return fail(rank, "fence", &e);
        for (uint64_t i = 0; i < extent[0] * COLUMNS; i++)
            rows[i] += (int64_t)(begin[0] + i / COLUMNS + i % COLUMNS);
        step++;
        /* Ranks keep step: none is more than one save ahead of what all have. A rank that is gone ends this.
         */
        if (id != 0 &&
            pawl_ckpt_wait(c, id, PAWL_CKPT_UNTIL_DURABLE, pawl_now() + PATIENCE_NS, &e) != PAWL_OK)
            return fail(rank, "wait", &e);
        const struct pawl_ckpt_save save = {.state = state, .step = step, .unit = rank, .unit_count = count};
        if (pawl_ckpt_save(c, &save, &id, &e) != PAWL_OK) return fail(rank, "save", &e);
    }
    /* OK: the parts of all ranks are there. */
    if (pawl_ckpt_close(c, PAWL_FOREVER, &e) != PAWL_OK) return fail(rank, "close", &e);
    printf("rank %u of %u ends at step %" PRIu64 "\n", rank, count, step);
    free(rows);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "shards FOLDER PROCESSES STEPS\n"), 64;
    uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
    char
        start[64]; /* the same in all processes, and new at every start; torchrun and Slurm bring their own */
    snprintf(start, sizeof start, "%ld %" PRId64, (long)getpid(), pawl_now());
    for (uint32_t rank = 0; rank < count; rank++)
        if (fork() == 0) exit(work(argv[1], start, rank, count, strtoull(argv[3], NULL, 10)));
    int status, worst = 0;
    while (wait(&status) > 0)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 1;
    return worst;
}
