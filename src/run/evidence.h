/* What can be seen of a process from outside, for the file that is written when a worker hangs.
 *
 * State, what it waits for in the kernel, its system call and kernel stack, from /proc; what this user may
 * not see is said to be so. Nothing here waits. Tested in tests/unit/run_evidence_test.c. */
#ifndef RUN_EVIDENCE_H
#define RUN_EVIDENCE_H

#include <sys/types.h>

#include "base/bytes.h"
#include "run/message.h"

struct evidence_worker {
    uint32_t rank;
    pid_t pid;
    uint32_t pipeline, stage; /* UINT32_MAX: no role */
    bool busy;
    enum coord_work work;
    struct message_at at;
    uint64_t progress;
    double progress_age_s, beat_age_s;
};

/* A paragraph: who it is, what it said last, what the kernel says of each of its threads. */
void evidence_describe(const struct evidence_worker *w, struct bytes *out);
/* The state letter of /proc/PID/stat ('T' stopped, 'D' in the kernel, ...); 0: there is no such process. */
char evidence_state(pid_t pid);
/* Whether the process has a handler for the signal: to others it would be the end. */
bool evidence_catches(pid_t pid, int signal);
/* Appends the file's text, each line behind two spaces, and removes the file; false: there is none (yet). */
bool evidence_take_file(const char *path, struct bytes *out);

#endif
