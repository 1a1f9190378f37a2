/* Asks the program that brings the engine what its stages consist of, before anything is started or kept.
 *
 * The program writes to our standard error output, through us: the last line is the cause when it dies
 * without an answer. It has the time of a start (failure.compile_s): libraries like PyTorch take seconds to
 * load. What it says is checked like any other input (run/describe.h). A signal ends it, and the call. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"
#include "run/notice.h"

/* Frame of the answer: the text, and the fields around it. */
#define ANSWER_BYTES_MAX (DESCRIBE_BYTES_MAX + 1024u)

/* A signal to the whole group may reach us after it has ended the program: how long that is waited for. */
#define GROUP_MS 1000

/* From the end of the channel until the process must be gone. */
#define EXIT_NS INT64_C(2000000000)

#define LINE_MAX_BYTES 400u

struct asking {
    struct launch *l;
    struct launch_process process;
    int output;                                      /* read end of what it prints */
    char line[LINE_MAX_BYTES], last[LINE_MAX_BYTES]; /* the one that is being printed, the last whole one */
    size_t used;
    int status;
};

/* ---- what it prints ---- */

static void keep_text(struct asking *a, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\n') {
            if (a->used + 1 < sizeof a->line) a->line[a->used++] = text[i];
            continue;
        }
        a->line[a->used] = 0;
        if (strspn(a->line, " \t\r") < a->used) memcpy(a->last, a->line, a->used + 1);
        a->used = 0;
    }
}

/* What is there now. */
static void pass_output(struct asking *a) {
    char text[4096];
    ssize_t n;
    while ((n = read(a->output, text, sizeof text)) > 0) {
        keep_text(a, text, (size_t)n);
        for (ssize_t at = 0, w; at < n; at += w) {
            w = write(STDERR_FILENO, text + at, (size_t)(n - at));
            if (w <= 0) break; /* nobody reads it */
        }
    }
}

static const char *last_line(struct asking *a) {
    keep_text(a, "\n", 1);
    return a->last;
}

/* ---- its end ---- */

static bool reaped(struct asking *a) {
    pid_t pid = waitpid(a->process.pid, &a->status, WNOHANG);
    return pid == a->process.pid || (pid < 0 && errno != EINTR);
}

/* Its own end, or ours for it. */
static void end_program(struct asking *a, int64_t grace_ns) {
    int64_t end_ns = clock_now_ns() + grace_ns;
    while (!reaped(a)) {
        pass_output(a);
        if (clock_now_ns() >= end_ns) fleet_signal(&a->process, SIGKILL);
        poll(&(struct pollfd){.fd = a->process.pidfd, .events = POLLIN}, 1, 20);
    }
    pass_output(a);
}

static pawl_code failed_with(const struct asking *a, const char *why, struct pawl_error *e) {
    return error_set(e, PAWL_SPEC, 0, "torch.module \"%.200s\": %s", a->l->spec.torch.module, why);
}

/* We have been: nobody waits for the answer any more. CANCELLED. */
static bool told_to_end(struct asking *a, struct pawl_error *e) {
    struct signalfd_siginfo info;
    if (read(a->l->signal_fd, &info, sizeof info) != sizeof info) return false;
    a->l->signals++;
    error_set(e, PAWL_CANCELLED, 0,
              "told to end (%s) while %.200s was asked what the stages of %.200s consist of: nothing was "
              "begun",
              strsignal((int)info.ssi_signo), a->l->worker[0], a->l->spec.torch.module);
    return true;
}

/* Its channel has ended, without an answer. */
static bool told_both(struct asking *a, struct pawl_error *e) {
    sigset_t set = notice_set();
    end_program(a, EXIT_NS);
    bool by_notice = WIFSIGNALED(a->status) && sigismember(&set, WTERMSIG(a->status)) == 1;
    if (by_notice) poll(&(struct pollfd){.fd = a->l->signal_fd, .events = POLLIN}, 1, GROUP_MS);
    return told_to_end(a, e);
}

/* It has ended without an answer. */
static pawl_code explain_end(struct asking *a, struct pawl_error *e) {
    const char *program = a->l->worker[0], *line = last_line(a);
    char why[LINE_MAX_BYTES + 256];
    bool lacks_pawl =
        strstr(line, "No module named pawl") != NULL || strstr(line, "No module named 'pawl") != NULL;
    if (lacks_pawl)
        return error_set(e, PAWL_SPEC, 0,
                         "%s has no package pawl: pip install ./python, or name another interpreter "
                         "(torch.python, or PAWL_PYTHON)",
                         program);
    if (WIFSIGNALED(a->status))
        snprintf(why, sizeof why, "%.200s ended by signal %d (%s)%s%s", program, WTERMSIG(a->status),
                 strsignal(WTERMSIG(a->status)), line[0] != 0 ? ": " : "", line);
    else
        snprintf(why, sizeof why, "%.200s ended with %d without an answer%s%s", program,
                 WEXITSTATUS(a->status), line[0] != 0 ? ": " : "", line);
    return failed_with(a, why, e);
}

/* ---- asking ---- */

static pawl_code take_answer(struct asking *a, const struct message *m, struct pawl_error *e) {
    struct pawl_error inner = {0};
    if (m->kind == MESSAGE_FAILED) return failed_with(a, m->text, e);
    if (m->kind != MESSAGE_DESCRIBED) return failed_with(a, "an answer that is none", e);
    pawl_code code =
        description_parse((const char *)m->data, m->data_bytes, "its description", &a->l->described, &inner);
    if (code == PAWL_OK && a->l->described.stage_count != a->l->spec.parallel.stages) {
        code = error_set(&inner, PAWL_SPEC, 0, "it describes %u stages, but parallel.stages is %u",
                         a->l->described.stage_count, a->l->spec.parallel.stages);
        description_close(&a->l->described);
    }
    return code == PAWL_OK ? code : failed_with(a, inner.text, e);
}

static pawl_code await_answer(struct asking *a, struct pawl_error *e) {
    int64_t limit_ns = spec_stall_ns(&a->l->spec, COORD_WORK_COMPILE), end_ns = clock_now_ns() + limit_ns;
    struct channel *c = a->process.channel;
    for (;;) {
        struct message m;
        bool got;
        struct pawl_error inner = {0};
        channel_flush(c);
        pass_output(a);
        if (told_to_end(a, e)) return PAWL_CANCELLED;
        pawl_code code = channel_receive(c, &m, &got, &inner);
        if (code == PAWL_OK && got) return take_answer(a, &m, e);
        if (code == PAWL_PEER_LOST) return told_both(a, e) ? PAWL_CANCELLED : explain_end(a, e);
        if (code != PAWL_OK) return failed_with(a, inner.text, e);
        if (clock_now_ns() >= end_ns) {
            char why[128];
            snprintf(why, sizeof why, "no answer within %.3g s (failure.compile_s)", (double)limit_ns / 1e9);
            return failed_with(a, why, e);
        }
        struct pollfd fds[] = {{.fd = channel_fd(c), .events = POLLIN},
                               {.fd = a->output, .events = POLLIN},
                               {.fd = a->l->signal_fd, .events = POLLIN}};
        poll(fds, 3, 50);
    }
}

static pawl_code send_job(struct asking *a, struct pawl_error *e) {
    struct bytes text = {0};
    spec_print(&a->l->spec, &text);
    bytes_put_u8(&text, 0);
    struct message m = {.kind = MESSAGE_DESCRIBE, .text = (const char *)text.data};
    pawl_code code = text.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the spec")
                                 : channel_send(a->process.channel, &m, e);
    bytes_close(&text);
    return code == PAWL_PEER_LOST ? PAWL_OK : code; /* its end tells more */
}

static pawl_code ask(struct launch *l, struct pawl_error *e) {
    struct asking a = {.l = l, .output = -1};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return error_set(e, PAWL_IO, errno, "no pipe for %s", l->worker[0]);
    a.output = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pawl_code code = fleet_spawn(l, l->worker, "describe", ends[1], &a.process, e);
    close(ends[1]);
    if (code == PAWL_OK) {
        channel_limit(a.process.channel, ANSWER_BYTES_MAX);
        code = send_job(&a, e);
        if (code == PAWL_OK) code = await_answer(&a, e);
        bool answered = code == PAWL_OK;
        if (a.process.pid > 0) end_program(&a, answered ? EXIT_NS : 0);
        fleet_forget(&a.process);
    }
    close(a.output);
    return code;
}

static void tell(const struct launch *l) {
    struct progress *p = NULL;
    if (progress_open(NULL, NULL, l->options->quiet, &p, NULL) != PAWL_OK) return; /* costs a line */
    progress_begin(p, "describe");
    progress_end(p, "asking %s what the stages of %s consist of", l->worker[0], l->spec.torch.module);
    progress_close(p);
}

pawl_code describe_engine(struct launch *l, struct pawl_error *e) {
    if (l->spec.run.engine != SPEC_ENGINE_TORCH) return PAWL_OK;
    tell(l);
    pawl_code code = ask(l, e);
    if (code == PAWL_OK && l->described.has_optimizer)
        code = spec_take_optimizer(&l->spec, &l->described.optimizer, e);
    return code;
}

pawl_code describe_settle(struct launch *l, struct pawl_error *e) {
    if (l->spec.run.engine != SPEC_ENGINE_TORCH) return PAWL_OK;
    struct description before;
    pawl_code code = l->resumed ? description_load(&l->spec, &before, e) : PAWL_OK;
    if (code == PAWL_NOT_FOUND)
        return error_set(e, code, 0,
                         "%s/" DESCRIBE_FILE
                         " is gone, which says what the stages of this run consist of: bring "
                         "it back, or give another run.dir",
                         l->spec.run.dir);
    if (code != PAWL_OK) return code;
    if (l->resumed) {
        code = description_compare(&l->described, &before, e);
        description_close(&before);
        if (code != PAWL_OK) return error_wrap(e, "torch.module \"%.200s\"", l->spec.torch.module);
    }
    uint64_t tensors = 0, parameters = 0;
    for (uint32_t s = 0; s < l->described.stage_count; s++) {
        const struct description_stage *at = &l->described.stages[s];
        tensors += at->tensor_count;
        for (uint32_t i = 0; i < at->tensor_count; i++) parameters += at->tensors[i].count;
    }
    struct json *j = progress_begin(l->progress, "engine");
    json_u64(j, "stages", l->described.stage_count);
    json_u64(j, "tensors", tensors);
    json_u64(j, "parameters", parameters);
    progress_end(l->progress, "%u stages, %llu tensors, %llu parameters", l->described.stage_count,
                 (unsigned long long)tensors, (unsigned long long)parameters);
    return description_keep(&l->spec, &l->described, e);
}
