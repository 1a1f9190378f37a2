/* Implementation of run/evidence.h. */
#include "run/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/ir.h"

/* Largest file of /proc that is taken; stacks are some hundred bytes. */
#define PROC_BYTES 8192

/* Threads told of: the main one, the beat, the network's, some of the store's. */
#define THREADS_MAX 16

/* True, and the text without its last newline, when the file can be read. errno else. */
static bool read_proc(pid_t pid, const char *name, char *out, size_t size) {
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    errno = 0;
    size_t n = fread(out, 1, size - 1, f);
    int err = errno;
    fclose(f);
    while (n > 0 && out[n - 1] == '\n') n--;
    out[n] = 0;
    errno = err;
    return n > 0 || err == 0;
}

char evidence_state(pid_t pid) {
    char text[1024];
    if (!read_proc(pid, "stat", text, sizeof text)) return 0;
    const char *after = strrchr(text, ')'); /* of the name, which may hold anything */
    return after != NULL && after[1] == ' ' ? after[2] : 0;
}

bool evidence_catches(pid_t pid, int signal) {
    char text[PROC_BYTES];
    if (!read_proc(pid, "status", text, sizeof text)) return false;
    const char *line = strstr(text, "\nSigCgt:");
    unsigned long long mask = line != NULL ? strtoull(line + 8, NULL, 16) : 0;
    return (mask >> (signal - 1) & 1) != 0;
}

static void put_indented(struct bytes *out, const char *text, size_t size, const char *indent) {
    while (size > 0) {
        const char *end = memchr(text, '\n', size);
        size_t line = end != NULL ? (size_t)(end - text) : size;
        bytes_put(out, indent, strlen(indent));
        for (size_t i = 0; i < line;
             i++) /* what cannot be printed may be in a file that another process wrote */
            bytes_put_u8(out, (uint8_t)text[i] >= 0x20 || text[i] == '\t' ? (uint8_t)text[i] : '?');
        bytes_put_u8(out, '\n');
        size -= end != NULL ? line + 1 : line;
        text += end != NULL ? line + 1 : line;
    }
}

static void put_file(struct bytes *out, pid_t pid, const char *thread, const char *file) {
    char name[64], text[PROC_BYTES];
    snprintf(name, sizeof name, "task/%.16s/%s", thread, file);
    bool seen = read_proc(pid, name, text, sizeof text);
    if (!seen) {
        bytes_printf(out, "    %s: not to be seen (%s)\n", file, strerror(errno));
    } else if (strchr(text, '\n') == NULL) {
        bytes_printf(out, "    %s: ", file);
        put_indented(out, text, strlen(text), "");
        if (text[0] == 0) bytes_put_u8(out, '\n');
    } else {
        bytes_printf(out, "    %s:\n", file);
        put_indented(out, text, strlen(text), "      ");
    }
}

static void put_thread(struct bytes *out, pid_t pid, const char *thread) {
    char name[64], text[1024];
    snprintf(name, sizeof name, "task/%.16s/stat", thread);
    if (!read_proc(pid, name, text, sizeof text)) return;
    const char *begin = strchr(text, '('), *after = strrchr(text, ')');
    if (begin == NULL || after == NULL || after[1] != ' ') return;
    bytes_printf(out, "  thread %s (%.*s): state %c\n", thread, (int)(after - begin - 1), begin + 1,
                 after[2]);
    put_file(out, pid, thread, "wchan");
    put_file(out, pid, thread, "syscall");
    put_file(out, pid, thread, "stack");
}

static void put_threads(struct bytes *out, pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *d;
    uint32_t count = 0;
    if (dir == NULL) {
        bytes_printf(out, "  the process is gone\n");
        return;
    }
    while ((d = readdir(dir)) != NULL && count < THREADS_MAX) {
        if (d->d_name[0] == '.') continue;
        put_thread(out, pid, d->d_name);
        count++;
    }
    closedir(dir);
}

void evidence_describe(const struct evidence_worker *w, struct bytes *out) {
    const struct message_at *at = &w->at;
    bytes_printf(out, "worker %u: pid %d", w->rank, (int)w->pid);
    if (w->stage != UINT32_MAX) bytes_printf(out, ", pipeline %u, stage %u", w->pipeline, w->stage);
    bytes_printf(out, ", phase %s, %s\n", coord_work_name(w->work), w->busy ? "busy" : "waiting");
    if (at->op < IR_OP_COUNT)
        bytes_printf(
            out,
            "  last instruction: %s of chunk %u, micro-batch %u of pipeline %u, place %u in the list, "
            "iteration %llu\n",
            ir_op_name((enum ir_op)at->op), at->chunk, at->microbatch, at->home, at->position,
            (unsigned long long)at->iteration);
    else
        bytes_printf(out, "  last instruction: none yet\n");
    bytes_printf(out, "  progress %llu, made %.3f s ago; last beat %.3f s ago\n",
                 (unsigned long long)w->progress, w->progress_age_s, w->beat_age_s);
    put_threads(out, w->pid);
}

bool evidence_take_file(const char *path, struct bytes *out) {
    char text[65536];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return false;
    ssize_t n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, sizeof text) : -1;
    close(fd);
    unlink(path);
    if (n > 0) put_indented(out, text, (size_t)n, "  ");
    return n > 0;
}
