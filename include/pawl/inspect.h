/* Looking at checkpoints, and putting them in order, without the program that made them.
 *
 *   struct pawl_inspect *in;
 *   pawl_inspect_open("runs/a", NULL, &in, &e);
 *   for (uint32_t i = 0; i < pawl_inspect_step_count(in); i++) ... pawl_inspect_step(in, i) ...
 *   pawl_inspect_close(in);
 *
 * A path is a run's folder, the folder of its stores, or the store of one rank; also a copy, read-only, or in
 * use by a writer. Opening, listing, verifying, comparing and exporting take no lock and change nothing. A
 * slot that a writer uses again while it is being read is told as gone, not as damage: what was asked for is
 * tried once more on what is there then. pawl_inspect_rollback and _gc change a run's folder: they take the
 * lock of every writer (BUSY) and survive a power cut at any moment.
 *
 * Nothing unreadable is taken for nothing: what is damaged, missing or cannot be read is a problem, with its
 * code (CORRUPT and FORMAT: damaged, IO: cannot be read), and the first one is the outcome. Everything that
 * is returned by pointer belongs to the handle. Thread: one at a time per handle. Text of names comes from
 * the files, and may hold anything but NUL; the JSON functions return valid UTF-8 (what is not, as \xNN), one
 * object on one line, for free(); null without memory. Their keys: docs/ckpt-command.md. */
#ifndef PAWL_INSPECT_H
#define PAWL_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>
#include <pawl/tensor.h>

#define PAWL_INSPECT_NONE UINT32_MAX

struct pawl_inspect_options { /* all zero is valid */
    bool unchecked;           /* accept what was written without checksums */
    /* Told now and then during long work: bytes done, and in all. */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total);
    void *progress_context;
};

struct pawl_inspect;
/* NOT_FOUND: no store there, or none that was ever used. FOREIGN: stores of several runs, both named. IO. */
pawl_code pawl_inspect_open(const char *path, const struct pawl_inspect_options *options,
                            struct pawl_inspect **out, struct pawl_error *e);
void pawl_inspect_close(struct pawl_inspect *in); /* accepts null */

struct pawl_inspect_summary {
    char path[512];                    /* as given, cut */
    char run[33];                      /* run id in hexadecimal; empty: no file says */
    uint32_t stores;                   /* ranks with a folder */
    uint32_t current;                  /* the newest complete step; PAWL_INSPECT_NONE: none */
    uint64_t used_bytes, unused_bytes; /* of slot files that count, and of the others */
    uint64_t free_bytes;               /* on the first store's file system */
};
struct pawl_inspect_summary pawl_inspect_summary(const struct pawl_inspect *in);

struct pawl_inspect_store {
    const char *path;
    bool readable;    /* its commit log is */
    uint64_t counter; /* of the record that stands */
    uint32_t logs;    /* log files */
    uint32_t used, unused,
        damaged; /* slot files that count, those no record names, entries that do not count */
    uint64_t used_bytes, unused_bytes;
};
uint32_t pawl_inspect_store_count(const struct pawl_inspect *in);
struct pawl_inspect_store pawl_inspect_store(const struct pawl_inspect *in, uint32_t store);

struct pawl_inspect_step { /* newest first */
    uint64_t step, incarnation;
    uint32_t units, parts;  /* parts that count */
    uint32_t damaged;       /* parts that a record names and that do not count */
    bool complete, current; /* current: what a resume takes */
    bool unchecked;         /* some part was written without checksums */
    bool bad;               /* marked by a resume that found it damaged (docs/formats/group.md) */
    uint64_t bytes;         /* of data in parts that count */
    int64_t committed_s;    /* seconds since 1970, by the times of the files; 0: unknown */
    char missing[160];      /* of an incomplete one: what, in words */
};
uint32_t pawl_inspect_step_count(const struct pawl_inspect *in);
struct pawl_inspect_step pawl_inspect_step(const struct pawl_inspect *in, uint32_t index);
/* Place of a step in the list, the complete one if several have the number; step 0: the newest complete one.
 * NOT_FOUND, which names the steps there are; CORRUPT when none is complete though something was saved. */
pawl_code pawl_inspect_find(const struct pawl_inspect *in, uint64_t step, uint32_t *index,
                            struct pawl_error *e);

enum pawl_inspect_state {
    PAWL_INSPECT_GOOD,
    PAWL_INSPECT_DAMAGED,
    PAWL_INSPECT_MISSING,   /* the file is not there */
    PAWL_INSPECT_UNREADABLE /* the system refuses to read it */
};
const char *pawl_inspect_state_name(enum pawl_inspect_state state); /* "damaged" */
struct pawl_inspect_part {
    const char *store; /* path */
    const char *file;  /* name in it */
    uint32_t unit, part, part_count;
    enum pawl_inspect_state state;
    uint64_t file_bytes, data_bytes, counter;
    int64_t committed_s;
};
/* Parts of a step that a record names, damaged ones too. */
uint32_t pawl_inspect_part_count(const struct pawl_inspect *in, uint32_t index);
struct pawl_inspect_part pawl_inspect_part(const struct pawl_inspect *in, uint32_t index, uint32_t part);

/* Tensors of a step, by unit, then name; and where their slices lie. */
uint32_t pawl_inspect_tensor_count(const struct pawl_inspect *in, uint32_t index);
struct pawl_tensor pawl_inspect_tensor(const struct pawl_inspect *in, uint32_t index, uint32_t tensor);
struct pawl_inspect_slice {
    uint32_t part;                  /* place in the step's parts */
    const uint64_t *begin, *extent; /* one per dimension */
};
uint32_t pawl_inspect_slice_count(struct pawl_inspect *in, uint32_t index, uint32_t tensor);
struct pawl_inspect_slice pawl_inspect_slice(struct pawl_inspect *in, uint32_t index, uint32_t tensor,
                                             uint32_t slice);
pawl_code pawl_inspect_blob(struct pawl_inspect *in, uint32_t index, uint32_t unit, const void **blob,
                            size_t *bytes, struct pawl_error *e);

enum pawl_inspect_problem_kind {
    PAWL_PROBLEM_STORE,    /* a folder */
    PAWL_PROBLEM_IDENTITY, /* the file STORE, or RUN in the run's folder */
    PAWL_PROBLEM_LOG,      /* a region of a commit log */
    PAWL_PROBLEM_SLOT,     /* size, header or absence of a slot */
    PAWL_PROBLEM_CHUNK,    /* data of a slot */
    PAWL_PROBLEM_TENSOR,   /* elements that no part holds */
    PAWL_PROBLEM_STEP,     /* a part that is missing, or no step that a resume would take */
    PAWL_PROBLEM_START     /* a file in starts/ of the run's folder */
};
const char *pawl_inspect_problem_name(enum pawl_inspect_problem_kind kind); /* "chunk" */
struct pawl_inspect_problem {
    enum pawl_inspect_problem_kind kind;
    pawl_code code;
    const char *store, *file, *tensor; /* null: does not apply */
    uint64_t step, incarnation;        /* 0: does not apply */
    uint32_t unit, part, part_count;
    uint32_t region;               /* LOG */
    uint64_t chunk, offset, bytes; /* CHUNK: its number, its place in the file */
    const char *text;              /* all of that on one line */
};
uint32_t pawl_inspect_problem_count(const struct pawl_inspect *in);
struct pawl_inspect_problem pawl_inspect_problem(const struct pawl_inspect *in, uint32_t problem);
/* The code of the first problem that matters most: MEMORY, IO, then what is damaged; OK without. */
pawl_code pawl_inspect_outcome(const struct pawl_inspect *in, struct pawl_error *e);

#define PAWL_INSPECT_ALL UINT64_MAX
struct pawl_inspect_verified {
    uint32_t steps, slots;
    uint64_t bytes;
    uint32_t gone; /* slots that a writer used again meanwhile */
};
/* Read every byte of the slots of `step` (0: the newest complete one; PAWL_INSPECT_ALL: every slot that
 * counts) and look for the step's missing parts. What it finds is added to the problems; the outcome is
 * returned. May scan the folder anew: indices found before are then of no meaning. */
pawl_code pawl_inspect_verify(struct pawl_inspect *in, uint64_t step, struct pawl_inspect_verified *out,
                              struct pawl_error *e);

/* ---- Export ---- */

struct pawl_inspect_export { /* all zero but output is valid */
    uint64_t step;           /* 0: the newest complete one */
    const char *output;      /* a file; or a folder, when it ends in '/', is one, or shards are asked for */
    uint64_t shard_bytes;    /* at most so many bytes of tensors a file, in a folder; 0: one file */
    const char *const *includes; /* prefixes of names, or globs (* ? [); none: all */
    const char *const *excludes; /* taken out again */
    uint32_t include_count, exclude_count;
    const char *strip_prefix; /* taken from the begin of names that have it */
    bool force;               /* replace what is there */
};
struct pawl_inspect_exported {
    uint64_t step, incarnation, bytes;
    uint32_t tensors, files;
    char path[512]; /* the file, or the index, or the only file in the folder; cut */
};
/* Write the tensors as safetensors files that others read. Memory is bounded whatever the size. Everything
 * goes to temporary names, is flushed, then renamed, the index last: a reader finds all or, without force,
 * nothing. BUSY when something is there and force is not given; NOT_FOUND when no tensor is chosen;
 * ARGUMENT when two get one name. */
pawl_code pawl_inspect_export(struct pawl_inspect *in, const struct pawl_inspect_export *options,
                              struct pawl_inspect_exported *out, struct pawl_error *e);

/* ---- Difference ---- */

enum pawl_inspect_difference_kind {
    PAWL_DIFFERENCE_ONLY_A,
    PAWL_DIFFERENCE_ONLY_B,
    PAWL_DIFFERENCE_TYPE, /* other dtype or shape */
    PAWL_DIFFERENCE_VALUES
};
const char *pawl_inspect_difference_name(enum pawl_inspect_difference_kind kind); /* "values" */
struct pawl_inspect_difference {
    enum pawl_inspect_difference_kind kind;
    struct pawl_tensor a, b; /* as stored; name null where it is not */
    uint64_t elements;       /* VALUES: that differ in any bit */
    uint64_t first;          /* index of the first of them, row-major */
    bool has_largest;        /* of a floating-point type, with a pair of numbers that differ */
    double largest;          /* absolute difference of such a pair */
    uint64_t nans;           /* pairs of which one or both are no number */
};
struct pawl_inspect_diff;
/* Steps as in pawl_inspect_find. `a` and `b` may be the same. */
pawl_code pawl_inspect_diff_new(struct pawl_inspect *a, uint64_t step_a, struct pawl_inspect *b,
                                uint64_t step_b, struct pawl_inspect_diff **out, struct pawl_error *e);
void pawl_inspect_diff_free(struct pawl_inspect_diff *diff);
uint64_t pawl_inspect_diff_step(const struct pawl_inspect_diff *diff, uint32_t side); /* 0: a, 1: b */
uint32_t pawl_inspect_diff_same(const struct pawl_inspect_diff *diff);                /* tensors equal */
uint32_t pawl_inspect_diff_count(const struct pawl_inspect_diff *diff);
struct pawl_inspect_difference pawl_inspect_diff_at(const struct pawl_inspect_diff *diff, uint32_t i);

/* ---- Changes ---- */

enum pawl_inspect_change_kind {
    PAWL_CHANGE_STEP,     /* a part of a step that no longer counts */
    PAWL_CHANGE_SLOT,     /* a slot file removed: no record names it */
    PAWL_CHANGE_TEMPORARY /* left over from a crash */
};
const char *pawl_inspect_change_name(enum pawl_inspect_change_kind kind); /* "slot" */
struct pawl_inspect_change {
    enum pawl_inspect_change_kind kind;
    const char *store, *file;
    uint64_t step, incarnation; /* STEP */
    uint32_t unit, part, part_count;
    uint64_t bytes;  /* of the file */
    const char *why; /* in words */
};
struct pawl_inspect_changes; /* what was done, or with dry_run would be */
void pawl_inspect_changes_free(struct pawl_inspect_changes *changes);
uint32_t pawl_inspect_changes_count(const struct pawl_inspect_changes *changes);
struct pawl_inspect_change pawl_inspect_changes_at(const struct pawl_inspect_changes *changes, uint32_t i);
/* The step that is the newest complete one afterwards; 0: none. */
uint64_t pawl_inspect_changes_newest(const struct pawl_inspect_changes *changes);

struct pawl_inspect_change_options { /* all zero is valid */
    struct pawl_inspect_options inspect;
    bool dry_run;  /* change nothing, take no lock */
    uint64_t step; /* rollback: the one to go back to; required */
    uint32_t keep; /* gc: complete steps to keep, verified ones only; 0: all */
};
/* Make `step` the newest: later ones no longer count. It is verified first, every byte (CORRUPT). The slot
 * files stay until a writer uses them again, or gc. A crash in between leaves a state in which `step` is
 * whole and the same call finishes the work. Errors: NOT_FOUND, CORRUPT (damaged or incomplete), BUSY, IO. */
pawl_code pawl_inspect_rollback(const char *path, const struct pawl_inspect_change_options *options,
                                struct pawl_inspect_changes **out, struct pawl_error *e);
/* Free space: slot files that no record names, temporary files, incomplete steps that can never become
 * complete (of an older start than the newest, or older than the newest complete step), and with `keep`
 * complete steps beyond the newest so many that verify. Never the newest complete step, never anything while
 * there is no complete step, never in a store whose log or slots cannot all be read. */
pawl_code pawl_inspect_gc(const char *path, const struct pawl_inspect_change_options *options,
                          struct pawl_inspect_changes **out, struct pawl_error *e);

/* ---- The same as text ---- */

/* Text that may hold anything, for a terminal: control characters and the like as \xNN or \u{NNNN}; free().
 */
char *pawl_inspect_safe_text(const void *text, size_t size);

char *pawl_inspect_list_json(const struct pawl_inspect *in);
char *pawl_inspect_info_json(struct pawl_inspect *in, uint32_t index);
char *pawl_inspect_verify_json(const struct pawl_inspect *in, const struct pawl_inspect_verified *done);
char *pawl_inspect_export_json(const struct pawl_inspect_exported *done);
char *pawl_inspect_diff_json(const struct pawl_inspect_diff *diff);
char *pawl_inspect_changes_json(const struct pawl_inspect_changes *changes, bool dry_run);

#endif
