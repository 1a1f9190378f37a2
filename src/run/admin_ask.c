/* A command's end of run/admin.h. Reads exactly what is the launcher's answer: what follows a WELCOME is the
 * worker's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "run/admin.h"

/* For the first answer: a launcher that is not stopped gives it at once, and says then what there is to wait
 * for. */
#define ANSWER_S 10

static pawl_code no_answer(struct pawl_error *e) {
    return error_set(
        e, PAWL_TIMEOUT, 0,
        "the launcher has not answered within %d s: it stands still, and may do what was asked when "
        "it goes on: see pawl status, or ask again",
        ANSWER_S);
}

/* 0: none. */
static pawl_code limit_wait(int fd, int seconds, struct pawl_error *e) {
    struct timeval limit = {.tv_sec = seconds};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0)
        return PAWL_OK;
    return error_set(e, PAWL_IO, errno, "asking the launcher");
}

static pawl_code connect_to(const char *run_dir, int *out, struct pawl_error *e) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int folder = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return error_set(e, PAWL_NOT_FOUND, errno, "run folder %s", run_dir);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" ADMIN_SOCKET, folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && limit_wait(fd, ANSWER_S, e) != PAWL_OK) {
        close(fd);
        close(folder);
        return PAWL_IO;
    }
    int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&address, sizeof address), err = errno;
    close(folder);
    if (rc == 0) {
        *out = fd;
        return PAWL_OK;
    }
    if (fd >= 0) close(fd);
    if (err == EAGAIN) return no_answer(e); /* its queue is full */
    if (err == ENOENT || err == ECONNREFUSED)
        return error_set(e, PAWL_NOT_FOUND, 0, "no run is going on in %s: start it with pawl train", run_dir);
    return error_set(e, PAWL_IO, err, "%s/" ADMIN_SOCKET, run_dir);
}

static pawl_code write_all(int fd, const uint8_t *data, size_t size, struct pawl_error *e) {
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EPIPE) return PAWL_OK; /* why it closed is there to be read, or that it ended */
        if (n < 0) return error_set(e, PAWL_PEER_LOST, errno, "asking the launcher");
        data += n;
        size -= (size_t)n;
    }
    return PAWL_OK;
}

static pawl_code read_all(int fd, uint8_t *data, size_t size, struct pawl_error *e) {
    while (size > 0) {
        ssize_t n = recv(fd, data, size, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return no_answer(e);
        if (n < 0 && errno != ECONNRESET)
            return error_set(e, PAWL_PEER_LOST, errno, "reading the launcher's answer");
        if (n <= 0) return error_set(e, PAWL_PEER_LOST, 0, "the run has ended");
        data += n;
        size -= (size_t)n;
    }
    return PAWL_OK;
}

static pawl_code send_frame(int fd, const struct admin_frame *f, struct pawl_error *e) {
    struct bytes out = {0};
    bytes_put_u32(&out, 0);
    admin_encode(f, &out);
    if (out.failed) {
        bytes_close(&out);
        return error_set(e, PAWL_MEMORY, 0, "no memory for a request");
    }
    uint32_t size = (uint32_t)(out.size - 4);
    for (size_t i = 0; i < 4; i++) out.data[i] = (uint8_t)(size >> (8 * i));
    pawl_code code = write_all(fd, out.data, out.size, e);
    bytes_close(&out);
    return code;
}

/* The frame points into *data, to be freed. */
static pawl_code receive_frame(int fd, uint8_t **data, struct admin_frame *f, struct pawl_error *e) {
    uint8_t head[4];
    *data = NULL;
    pawl_code code = read_all(fd, head, sizeof head, e);
    if (code != PAWL_OK) return code;
    struct reader r = reader_of(head, sizeof head);
    uint32_t size = reader_u32(&r);
    if (size > ADMIN_REPLY_MAX) return error_set(e, PAWL_FORMAT, 0, "an answer of %u bytes", size);
    *data = malloc((size_t)size + 1);
    if (*data == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for an answer of %u bytes", size);
    code = read_all(fd, *data, size, e);
    return code == PAWL_OK ? admin_decode(*data, size, f, e) : code;
}

/* The answer, after WAITs: from the first of them on it takes as long as it takes. */
static pawl_code receive_answer(int fd, void (*tell)(const char *text), uint8_t **data, struct admin_frame *f,
                                struct pawl_error *e) {
    for (;;) {
        pawl_code code = receive_frame(fd, data, f, e);
        if (code != PAWL_OK || f->kind != ADMIN_WAIT) return code;
        if (tell != NULL) tell(f->text);
        free(*data);
        *data = NULL;
        code = limit_wait(fd, 0, e);
        if (code != PAWL_OK) return code;
    }
}

pawl_code admin_ask(const char *run_dir, const struct admin_frame *request, char **text,
                    struct pawl_error *e) {
    int fd = -1;
    uint8_t *data = NULL;
    struct admin_frame f;
    *text = NULL;
    pawl_code code = connect_to(run_dir, &fd, e);
    if (code == PAWL_OK) code = send_frame(fd, request, e);
    if (code == PAWL_OK) code = receive_answer(fd, NULL, &data, &f, e);
    if (code == PAWL_OK && f.kind != ADMIN_REPLY)
        code = error_set(e, PAWL_FORMAT, 0, "an answer of kind %d", (int)f.kind);
    if (code == PAWL_OK && f.code != PAWL_OK) code = error_set(e, f.code, 0, "%s", f.text);
    if (code == PAWL_OK) {
        *text = strdup(f.text);
        if (*text == NULL) code = error_set(e, PAWL_MEMORY, 0, "no memory for the answer");
    }
    free(data);
    if (fd >= 0) close(fd);
    return code;
}

static pawl_code move_in(const struct admin_frame *f, struct pawl_error *e) {
    if (chdir(f->text) != 0)
        return error_set(e, PAWL_IO, errno, "the launcher works in %s, and its paths may be relative to it",
                         f->text);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", f->threads[0] != 0 ? f->threads : "1", 1);
    if (f->library[0] != 0) setenv("PAWL_LIBRARY_TRAIN", f->library, 0);
    if (f->transport[0] != 0) setenv("PAWL_TRANSPORT", f->transport, 1);
    if (f->evidence[0] != 0) setenv("PAWL_EVIDENCE", f->evidence, 1);
    return PAWL_OK;
}

/* program, [-m, module,] worker, FD: pointers and texts in one block. */
static pawl_code command_line(const struct admin_frame *f, int fd, char ***out, struct pawl_error *e) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    const char *words[5] = {f->program};
    size_t count = 1, bytes = 0;
    if (f->module[0] != 0) words[count++] = "-m", words[count++] = f->module;
    words[count++] = "worker";
    words[count++] = number;
    for (size_t i = 0; i < count; i++) bytes += strlen(words[i]) + 1;
    char **line = malloc((count + 1) * sizeof *line + bytes);
    if (line == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the worker's command line");
    char *text = (char *)(line + count + 1);
    for (size_t i = 0; i < count; i++) {
        line[i] = text;
        text = stpcpy(text, words[i]) + 1;
    }
    line[count] = NULL;
    *out = line;
    return PAWL_OK;
}

static pawl_code await_welcome(int fd, void (*tell)(const char *text), uint32_t *rank, char ***argv,
                               struct pawl_error *e) {
    uint8_t *data;
    struct admin_frame f;
    pawl_code code = receive_answer(fd, tell, &data, &f, e);
    if (code == PAWL_OK && f.kind == ADMIN_REPLY) code = error_set(e, f.code, 0, "%s", f.text);
    if (code == PAWL_OK && f.kind == ADMIN_WELCOME) {
        *rank = f.rank;
        code = limit_wait(fd, 0, e); /* it is a worker's channel now */
        if (code == PAWL_OK) code = move_in(&f, e);
        if (code == PAWL_OK && f.program[0] != 0) code = command_line(&f, fd, argv, e);
    }
    free(data);
    return code;
}

pawl_code admin_join(const char *run_dir, void (*tell)(const char *text), uint32_t *rank, int *fd,
                     char ***argv, struct pawl_error *e) {
    *fd = -1;
    *argv = NULL;
    pawl_code code = connect_to(run_dir, fd, e);
    if (code == PAWL_OK) code = send_frame(*fd, &(struct admin_frame){.kind = ADMIN_JOIN}, e);
    if (code == PAWL_OK) code = await_welcome(*fd, tell, rank, argv, e);
    if (code == PAWL_OK || *fd < 0) return code;
    close(*fd);
    *fd = -1;
    return code;
}
