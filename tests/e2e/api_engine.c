/* examples/engine.c with faults, for foreign_test.py. The environment says which:
 *   PAWL_TEST_ERROR=FUNCTION:STAGE:STEP   that function fails there
 *   PAWL_TEST_NAN=STEP      the loss of micro-batch 0 of that step is not a number
 *   PAWL_TEST_WIDTH=N       the layers between are so wide
 *   PAWL_TEST_LR=X          the engine has an optimizer, with this learning rate
 *   PAWL_TEST_SAMPLES=N[,M] the data has N samples, in a worker M
 *   PAWL_TEST_SLOW=SECONDS  a worker takes so long to start, to open the engine, to open a stage
 *   PAWL_TEST_PRINT=TEXT    every stage prints it when it is opened
 *   PAWL_TEST_TWIN=1        all stages have a parameter of one name
 *   PAWL_TEST_DESCRIBE=HOW  what `describe` does instead: crash, exit, rubbish, huge, empty, hang */
#include <signal.h>
#include <sys/socket.h>

int example_main(int argc, char **argv);
#define main example_main
#include "../../examples/engine.c"
#undef main

static bool fails(const char *function, const struct pawl_engine_call *c) {
    const char *at = getenv("PAWL_TEST_ERROR");
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s:%u:%llu", function, c->stage, (unsigned long long)c->step);
    return at != NULL && strcmp(at, wanted) == 0;
}

static pawl_code test_forward(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    if (fails("forward", c)) return fail(e, PAWL_FORMAT, "ValueError: the shoe does not fit\nat line 3");
    pawl_code code = forward(context, c, e);
    const char *nan_at = getenv("PAWL_TEST_NAN");
    if (nan_at != NULL && c->step == strtoull(nan_at, NULL, 10) && c->microbatch == 0) c->loss = NAN;
    return code;
}

static pawl_code test_input_grad(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    if (fails("input_grad", c)) return PAWL_INTERNAL; /* and gives no reason */
    return input_grad(context, c, e);
}

static pawl_code test_weight_grad(void *context, struct pawl_engine_call *c, struct pawl_error *e) {
    if (fails("weight_grad", c)) return fail(e, PAWL_MEMORY, "out of memory: no tensor is left");
    return weight_grad(context, c, e);
}

static void take_time(void) {
    const char *slow = getenv("PAWL_TEST_SLOW");
    if (slow != NULL) usleep((useconds_t)(strtod(slow, NULL) * 1e6));
}

static pawl_code test_stage_open(void *context, uint32_t index, struct pawl_engine_layout *out,
                                 struct pawl_error *e) {
    pawl_code code = stage_open(context, index, out, e);
    const char *text = getenv("PAWL_TEST_PRINT");
    if (text != NULL) printf("%s\n", text), fflush(stdout);
    take_time();
    if (code == PAWL_OK && getenv("PAWL_TEST_TWIN") != NULL)
        strcpy(stages[index].names[0], "0.weight"); /* the tensors point to it */
    return code;
}

static pawl_code test_open(void *context, const struct pawl_engine_job *j, struct pawl_error *e) {
    take_time();
    return engine_open(context, j, e);
}

static pawl_code test_optimizer(void *context, struct pawl_engine_optimizer *out, struct pawl_error *e) {
    (void)context;
    (void)e;
    *out = (struct pawl_engine_optimizer){.lr = strtod(getenv("PAWL_TEST_LR"), NULL),
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .weight_decay = 0};
    return PAWL_OK;
}

static bool in_worker;

static pawl_code test_samples(void *context, uint64_t *out, struct pawl_error *e) {
    (void)context;
    (void)e;
    char *rest;
    *out = strtoull(getenv("PAWL_TEST_SAMPLES"), &rest, 10);
    if (in_worker && *rest == ',') *out = strtoull(rest + 1, NULL, 10);
    return PAWL_OK;
}

static void send_bytes(int fd, const void *data, size_t size, size_t times) {
    for (size_t i = 0; i < times; i++)
        if (send(fd, data, size, MSG_NOSIGNAL) < 0) _exit(9);
}

static int misbehave(const char *how, int fd) {
    static const unsigned char junk[4096] = {7, 0, 0, 0, 25, 'n', 'o', 't', ' ', 'o', 'n'};
    static const unsigned char endless[4] = {255, 255, 255, 63};
    if (strcmp(how, "crash") == 0) raise(SIGSEGV);
    if (strcmp(how, "exit") == 0) return fprintf(stderr, "Traceback: ...\nImportError: no shoes\n"), 3;
    if (strcmp(how, "rubbish") == 0) send_bytes(fd, junk, sizeof junk, 1);
    if (strcmp(how, "huge") == 0) {
        send_bytes(fd, endless, sizeof endless, 1);
        send_bytes(fd, junk, sizeof junk, 1u << 18);
    }
    if (strcmp(how, "hang") == 0) pause();
    return 0;
}

int main(int argc, char **argv) {
    const char *wide = getenv("PAWL_TEST_WIDTH"), *how = getenv("PAWL_TEST_DESCRIBE");
    if (wide != NULL) width = (uint32_t)strtoul(wide, NULL, 10);
    if (getenv("PAWL_TEST_LR") != NULL) engine.optimizer = test_optimizer;
    if (getenv("PAWL_TEST_SAMPLES") != NULL) engine.samples = test_samples;
    engine.forward = test_forward;
    engine.input_grad = test_input_grad;
    engine.weight_grad = test_weight_grad;
    engine.open = test_open;
    engine.stage_open = test_stage_open;
    if (argc == 3 && how != NULL && strcmp(argv[1], "describe") == 0) return misbehave(how, atoi(argv[2]));
    in_worker = argc == 3 && strcmp(argv[1], "worker") == 0;
    if (in_worker) take_time();
    return example_main(argc, argv);
}
