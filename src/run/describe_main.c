/* `PROGRAM describe FD`: one job in, one answer out. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/describe.h"
#include "run/message.h"

/* The launcher has sent the job before the program began, and reads while it waits. */
#define PATIENCE_NS INT64_C(10000000000)

static pawl_code await_job(struct channel *c, struct message *m, struct pawl_error *e) {
    int64_t end_ns = clock_now_ns() + PATIENCE_NS;
    for (bool got = false;;) {
        pawl_code code = channel_receive(c, m, &got, e);
        if (code != PAWL_OK) return code;
        if (got) break;
        if (clock_now_ns() > end_ns) return error_set(e, PAWL_TIMEOUT, 0, "describe: no job has come");
        poll(&(struct pollfd){.fd = channel_fd(c), .events = POLLIN}, 1, 100);
    }
    if (m->kind == MESSAGE_DESCRIBE) return PAWL_OK;
    return error_set(e, PAWL_FORMAT, 0, "describe: a message of kind %d is no job", (int)m->kind);
}

static pawl_code answer(struct channel *c, const char *text, struct pawl_error *e) {
    struct spec *spec = calloc(1, sizeof *spec);
    struct description d = {0};
    struct bytes out = {0};
    if (spec == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a spec");
    pawl_code code = spec_parse(text, strlen(text), "job", spec, e);
    if (code == PAWL_OK) code = description_make(spec, &d, e);
    if (code == PAWL_OK) description_print(&d, &out);
    if (code == PAWL_OK && (out.failed || out.size > DESCRIBE_BYTES_MAX))
        code = error_set(e, PAWL_MEMORY, 0, "the description of the stages has %zu bytes", out.size);
    struct message m = {.kind = MESSAGE_DESCRIBED, .data = out.data, .data_bytes = out.size};
    if (code == PAWL_OK) code = channel_send(c, &m, e);
    description_close(&d);
    bytes_close(&out);
    free(spec);
    return code;
}

int describe_main(int fd) {
    struct channel *c = NULL;
    struct message m;
    struct pawl_error e = {0};
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the launcher's to answer, which ends this process */
    pawl_code code = channel_open_fd(fd, &c, &e);
    if (code != PAWL_OK) return pawl_code_exit(code);
    code = await_job(c, &m, &e);
    if (code == PAWL_OK) code = answer(c, m.text, &e);
    if (code != PAWL_OK)
        channel_send(c, &(struct message){.kind = MESSAGE_FAILED, .code = code, .text = e.text}, NULL);
    for (int64_t end = clock_now_ns() + PATIENCE_NS; !channel_flush(c) && clock_now_ns() < end;)
        poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
    channel_close(c);
    return pawl_code_exit(code);
}
