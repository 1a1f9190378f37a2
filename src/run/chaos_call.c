/* One call of `pawl train` in a session of its own: started, waited for with a limit, and followed by a look
 * whether anything of it is left. A session is what neither a launcher nor a worker leaves, so a process that
 * outlives its launcher is found by it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/chaos.h"
#include "run/start.h"

/* ---- arguments ---- */

struct arguments {
    char **items; /* null at the end */
    size_t count;
    bool failed;
};

static void push(struct arguments *a, const char *text) {
    char **more = realloc(a->items, (a->count + 2) * sizeof *more);
    if (more != NULL) a->items = more;
    char *copy = more != NULL ? strdup(text) : NULL;
    if (copy == NULL) {
        a->failed = true;
        return;
    }
    a->items[a->count++] = copy;
    a->items[a->count] = NULL;
}

static void push_pair(struct arguments *a, const char *option, const char *value) {
    push(a, option);
    push(a, value);
}

static void arguments_close(struct arguments *a) {
    for (size_t i = 0; i < a->count; i++) free(a->items[i]);
    free(a->items);
}

/* "a=b c=d": the values drawn have no spaces in them. */
static void push_sets(struct arguments *a, const char *sets) {
    while (*sets != 0) {
        char one[256];
        size_t size = strcspn(sets, " ");
        snprintf(one, sizeof one, "%.*s", (int)size, sets);
        push_pair(a, "--set", one);
        sets += size + strspn(sets + size, " ");
    }
}

static struct arguments make_arguments(const struct chaos_call *c) {
    struct arguments a = {.count = 0};
    char text[SPEC_TEXT_MAX + 16];
    push(&a, c->program);
    push(&a, "train");
    push(&a, c->spec_path);
    push(&a, "--quiet");
    for (uint32_t i = 0; i < c->set_count; i++) push_pair(&a, "--set", c->sets[i]);
    if (c->plan != NULL) push_sets(&a, (const char *)c->plan->sets.data);
    snprintf(text, sizeof text, "run.dir=%s", c->run_dir);
    push_pair(&a, "--set", text);
    push_pair(&a, "--set", "save.export_dir="); /* many runs must not write to one place */
    snprintf(text, sizeof text, "%llu", (unsigned long long)c->steps);
    push_pair(&a, "--steps", text);
    for (uint32_t i = 0; c->plan != NULL && i < c->plan->faults.count; i++)
        push_pair(&a, "--inject", c->plan->faults.items[i].text);
    return a;
}

/* ---- the child ---- */

/* Between fork and exec: only calls that are safe there. */
static void become(const char *image, char *const *arguments, int errors, int report, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(70);
    setsid();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0 ||
        dup2(errors, STDERR_FILENO) < 0)
        _exit(71);
    start_become(image, arguments, report);
}

/* Any process of the session but zombies, which wait for their parent alone. */
static bool session_lives(pid_t session) {
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    bool found = false;
    while (proc != NULL && !found && (entry = readdir(proc)) != NULL) {
        char path[300], text[512], state;
        int parent, group, sid;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL) continue; /* it has just ended */
        size_t size = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[size] = 0;
        const char *after = strrchr(text, ')'); /* a name may hold anything */
        if (after == NULL || sscanf(after + 1, " %c %d %d %d", &state, &parent, &group, &sid) != 4) continue;
        found = sid == session && state != 'Z' && state != 'X';
    }
    if (proc != NULL) closedir(proc);
    return found;
}

static void kill_session(pid_t session) {
    /* One group: neither launchers nor workers make groups of their own. */
    kill(-session, SIGKILL);
}

static bool session_ends(pid_t session, double gone_s) {
    for (int64_t end = clock_now_ns() + (int64_t)(gone_s * 1e9); session_lives(session); usleep(5000))
        if (clock_now_ns() > end) return false;
    return true;
}

/* Its end by the pidfd, or stuck. */
static void wait_for(pid_t child, double limit_s, struct chaos_end *end) {
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    int64_t until = clock_now_ns() + (int64_t)(limit_s * 1e9);
    while (pidfd >= 0) {
        int64_t left = until - clock_now_ns();
        int ready = left > 0 ? poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1,
                                    left < 1000000000 ? (int)(left / 1000000) + 1 : 1000)
                             : 0;
        if (ready > 0 || left <= 0) {
            end->stuck = ready == 0;
            break;
        }
    }
    if (pidfd >= 0) close(pidfd);
    if (end->stuck) kill_session(child);
    while (waitpid(child, &end->status, 0) < 0 && errno == EINTR) {
    }
}

/* The last line that is not empty. */
static void read_last_line(int fd, char *out, size_t size) {
    char text[4096];
    off_t length = lseek(fd, 0, SEEK_END);
    off_t from = length > (off_t)sizeof text - 1 ? length - (off_t)sizeof text + 1 : 0;
    ssize_t got = pread(fd, text, sizeof text - 1, from);
    size_t end = got > 0 ? (size_t)got : 0;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == ' ')) end--;
    text[end] = 0;
    const char *line = strrchr(text, '\n');
    snprintf(out, size, "%.*s", (int)size - 1, line != NULL ? line + 1 : text);
}

static pawl_code start(const struct chaos_call *c, const struct arguments *a, int errors, pid_t *child,
                       struct pawl_error *e) {
    int report[2];
    pawl_code code = start_open(report, e);
    if (code != PAWL_OK) return code;
    pid_t parent = getpid();
    *child = fork();
    if (*child == 0) become(c->image != NULL ? c->image : c->program, a->items, errors, report[1], parent);
    int err = errno;
    code = start_await(report, *child, c->program, e);
    return *child < 0 ? error_set(e, PAWL_IO, err, "cannot start %s", c->program) : code;
}

/* UCX prints `[host:pid:n:thread] file.c:line Assertion `...' failed`; the C library's begin otherwise. */
static uint32_t count_ucx_assertions(int fd) {
    uint32_t count = 0;
    char *line = NULL;
    size_t capacity = 0;
    FILE *f = lseek(fd, 0, SEEK_SET) == 0 ? fdopen(dup(fd), "r") : NULL;
    while (f != NULL && getline(&line, &capacity, f) > 0)
        count += line[0] == '[' && strstr(line, ".c:") != NULL && strstr(line, " Assertion `") != NULL;
    free(line);
    if (f != NULL) fclose(f);
    return count;
}

pawl_code chaos_call(const struct chaos_call *c, struct chaos_end *end, struct pawl_error *e) {
    *end = (struct chaos_end){.stuck = false};
    int errors = (int)syscall(SYS_memfd_create, "errors", 1u /* close on exec */);
    if (errors < 0) return error_set(e, PAWL_IO, errno, "no memory file for what pawl train says");
    struct arguments a = make_arguments(c);
    pid_t child = -1;
    pawl_code code = a.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the arguments") : PAWL_OK;
    if (code == PAWL_OK) code = start(c, &a, errors, &child, e);
    if (code == PAWL_OK) {
        wait_for(child, c->limit_s, end);
        /* Whoever killed the launcher killed it a moment ago: its workers get their own moment. */
        end->orphan = !session_ends(child, c->gone_s);
        if (end->orphan) kill_session(child);
        read_last_line(errors, end->last, sizeof end->last);
        end->ucx_assertions = count_ucx_assertions(errors);
    }
    arguments_close(&a);
    close(errors);
    return code;
}
