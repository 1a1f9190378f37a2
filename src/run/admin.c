/* Bytes of run/admin.h, and the launcher's socket. */
#include "run/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum field { F_RANK = 1 << 0, F_JSON = 1 << 1, F_CODE = 1 << 2, F_TEXT = 1 << 3, F_ENVIRONMENT = 1 << 4 };

static const uint32_t kind_fields[ADMIN_KIND_END] = {
    [ADMIN_JOIN] = 0,
    [ADMIN_DRAIN] = F_RANK,
    [ADMIN_STOP] = 0,
    [ADMIN_STATUS] = F_JSON,
    [ADMIN_REPLY] = F_CODE | F_TEXT,
    [ADMIN_WAIT] = F_TEXT,
    [ADMIN_WELCOME] = F_RANK | F_TEXT | F_ENVIRONMENT,
};

static void put_environment(struct bytes *out, const struct admin_frame *f) {
    bytes_put_string(out, f->transport);
    bytes_put_string(out, f->evidence);
    bytes_put_string(out, f->library);
    bytes_put_string(out, f->threads);
    bytes_put_string(out, f->program);
    bytes_put_string(out, f->module);
}

static void take_environment(struct reader *r, struct admin_frame *f) {
    f->transport = reader_string(r);
    f->evidence = reader_string(r);
    f->library = reader_string(r);
    f->threads = reader_string(r);
    f->program = reader_string(r);
    f->module = reader_string(r);
}

void admin_encode(const struct admin_frame *f, struct bytes *out) {
    uint32_t fields = kind_fields[f->kind];
    bytes_put_u8(out, (uint8_t)f->kind);
    if (fields & F_RANK) bytes_put_u32(out, f->rank);
    if (fields & F_JSON) bytes_put_u8(out, f->json);
    if (fields & F_CODE) bytes_put_u32(out, (uint32_t)f->code);
    if (fields & F_TEXT) bytes_put_string(out, f->text);
    if (fields & F_ENVIRONMENT) put_environment(out, f);
}

pawl_code admin_decode(const void *data, size_t size, struct admin_frame *f, struct pawl_error *e) {
    *f = (struct admin_frame){.text = "",
                              .transport = "",
                              .evidence = "",
                              .library = "",
                              .threads = "",
                              .program = "",
                              .module = ""};
    struct reader r = reader_of(data, size);
    uint8_t kind = reader_u8(&r);
    if (r.failed || kind == 0 || kind >= ADMIN_KIND_END)
        return error_set(e, PAWL_FORMAT, 0, "admin frame of unknown kind %u", kind);
    uint32_t fields = kind_fields[kind];
    f->kind = (enum admin_kind)kind;
    if (fields & F_RANK) f->rank = reader_u32(&r);
    if (fields & F_JSON) f->json = reader_flag(&r);
    if (fields & F_CODE) f->code = (pawl_code)reader_u32_below(&r, PAWL_INTERNAL + 1);
    if (fields & F_TEXT) f->text = reader_string(&r);
    if (fields & F_ENVIRONMENT) take_environment(&r, f);
    return reader_done(&r) ? PAWL_OK : error_set(e, PAWL_FORMAT, 0, "malformed admin frame of kind %u", kind);
}

/* A socket's path has 107 characters at most, a run folder's any number: by the folder's descriptor. */
static pawl_code bind_in(int folder, int fd, struct pawl_error *e) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/" ADMIN_SOCKET, folder);
    unlinkat(folder, ADMIN_SOCKET, 0); /* of a launcher that was killed: the folder's lock is ours */
    if (fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        fchmodat(folder, ADMIN_SOCKET, 0600, 0) != 0 || listen(fd, 16) != 0)
        return error_set(e, PAWL_IO, errno, "socket %s", ADMIN_SOCKET);
    return PAWL_OK;
}

pawl_code admin_listen(const char *run_dir, int *out, struct pawl_error *e) {
    int folder = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    pawl_code code = folder < 0 || fd < 0
                         ? error_set(e, PAWL_IO, errno, "socket %s in %s", ADMIN_SOCKET, run_dir)
                         : bind_in(folder, fd, e);
    if (folder >= 0) close(folder);
    if (code == PAWL_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return code;
}
