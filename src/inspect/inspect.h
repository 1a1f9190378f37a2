/* Inside the inspector: an inventory of stores, whose every file and record is looked at, beside the engine's
 * own view of the same stores (ckpt_set), which alone decides which steps are complete.
 *
 * The inventory knows what the engine passes over: damaged slots with their step, both regions of every log,
 * files that no record names. It is made from open stores, so that tests run it on the simulated disk. Public
 * contract: include/pawl/inspect.h. Tested in tests/unit/inspect_*, tests/crash/inspect_*,
 * tests/fuzz/inspect_*, tests/e2e/ckpt_test.py. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include <pawl/inspect.h>

#include "ckpt/log.h"
#include "ckpt/marks.h"
#include "ckpt/slot.h"

/* Memory for reading data: verify, export and diff take pieces of at most this, or one chunk. */
#define INSPECT_PIECE_BYTES ((uint64_t)32 << 20)

struct inspect_store {
    struct store *store;
    bool readable;
    struct record record; /* the one that stands; no entries without */
    bool any;             /* there is one */
    uint32_t logs, last_log;
    uint32_t used, unused, damaged;
    uint64_t used_bytes, unused_bytes;
};

struct inspect_slot { /* an entry of a standing record, and what its file turned out to be */
    struct record_entry entry;
    uint32_t store;
    char file[RECORD_NAME_BYTES];
    enum pawl_inspect_state state;
    pawl_code code;
    char why[320];
    struct slot_info info; /* of a good one */
    uint64_t file_bytes;
    int64_t committed_s;
    bool gone; /* no longer named by the record, looked at again after damage was met */
};

struct inspect_ref { /* a stored slice */
    const char *name;
    uint32_t part, tensor; /* place in the step's parts; in its slot's header */
    uint32_t rank;
    const uint64_t *begin, *extent;
};

struct inspect_step {
    struct pawl_inspect_step is;
    uint32_t set_index; /* UINT32_MAX: the engine does not see it, since no part of it counts */
    uint32_t *slots, slot_count;
    struct inspect_ref *refs; /* by name, then box; made when first asked for */
    uint32_t ref_count;
};

struct inspect_problem {
    struct pawl_inspect_problem is;
    char *store, *file, *tensor, *text;
};

struct pawl_inspect {
    struct pawl_inspect_options options;
    char *path, *run; /* run: the run's folder, where known */
    struct ckpt_marks marks;
    struct inspect_store *stores;
    uint32_t store_count;
    bool owned; /* close the stores at the end */
    bool has_run;
    uint8_t run_id[RUN_ID_BYTES];
    char run_source[256]; /* the file that said so first */
    struct inspect_slot *slots;
    uint32_t slot_count, slot_room;
    struct inspect_step *steps;
    uint32_t step_count, current;
    struct inspect_problem *problems;
    uint32_t problem_count, open_problem_count; /* in all; of folders that could not be opened, which stay */
    bool problem_lost;                          /* for lack of memory */
    struct ckpt_set *set;
    bool unsettled; /* a writer commits faster than we can look */
};

/* ---- folders (find.c) ---- */
struct inspect_folders {
    char **paths; /* of stores, sorted by rank */
    uint32_t count;
    char *run; /* the run's own folder: the path, or above it; null: unknown */
};
/* NOT_FOUND, IO. An empty list is possible: a run that has not begun to save. */
pawl_code inspect_folders_find(const char *path, struct inspect_folders *out, struct pawl_error *e);
void inspect_folders_close(struct inspect_folders *folders);
/* By what is in it: a store's files; or what says that it is a run's. Cannot be listed: none of these. */
enum inspect_folder_kind { INSPECT_FOLDER_OTHER, INSPECT_FOLDER_STORE, INSPECT_FOLDER_RUN };
enum inspect_folder_kind inspect_folder_kind(const char *path);
/* Seconds since 1970 of the file's last change; 0: unknown. */
int64_t inspect_file_time(const struct store *s, const char *file);
/* Regular files in the folder of `s` that begin with a dot and are left over from a crash; sorted. */
pawl_code inspect_temporaries(const struct store *s, char ***names, uint32_t *count, struct pawl_error *e);
pawl_code inspect_temporary_remove(const struct store *s, const char *name, struct pawl_error *e);
/* False: not there, or not a file but a folder, a link, a device. */
bool inspect_file_bytes(struct store *s, const char *file, uint64_t *bytes);

/* ---- which step a resume takes (marks.c) ---- */
/* Problems are added; IO, MEMORY. None where the run's folder is not known. */
pawl_code inspect_marks_read(struct pawl_inspect *in, struct pawl_error *e);
void inspect_marks_apply(struct pawl_inspect *in);
/* Of the steps up to `most`; PAWL_INSPECT_NONE: none. The same rule as the engine's users have. */
uint32_t inspect_newest(const struct pawl_inspect *in, uint64_t most);

/* ---- the run's own files (group.c, run_json.c): problems are added; FOREIGN, MEMORY ---- */
pawl_code inspect_group_check(struct pawl_inspect *in, struct pawl_error *e);
pawl_code inspect_run_json_check(struct pawl_inspect *in, struct pawl_error *e); /* part of it */

/* ---- inventory ---- */
/* `stores` are borrowed unless `owned`, then closed with it or on failure. */
pawl_code inspect_new(const char *path, struct store *const *stores, uint32_t count, bool owned,
                      const struct pawl_inspect_options *options, struct pawl_inspect **out,
                      struct pawl_error *e);
/* Opens every store, each with the writer's lock when `lock`. A folder that cannot be opened becomes a
 * problem, or with `lock` an error. */
pawl_code inspect_open_folders(const struct inspect_folders *folders, const char *path, bool lock,
                               const struct pawl_inspect_options *options, struct pawl_inspect **out,
                               struct pawl_error *e);
/* Looks at everything anew (scan.c, steps.c). FOREIGN, MEMORY. */
pawl_code inspect_scan(struct pawl_inspect *in, struct pawl_error *e);
pawl_code inspect_scan_store(struct pawl_inspect *in, uint32_t store, struct pawl_error *e);
/* The file at `path` says whose all of this is: FOREIGN when another said something else. */
pawl_code inspect_take_run(struct pawl_inspect *in, const char *path, const uint8_t *run_id,
                           struct pawl_error *e);
pawl_code inspect_steps_make(struct pawl_inspect *in, struct pawl_error *e);
void inspect_steps_close(struct pawl_inspect *in);
pawl_code inspect_step_index(struct pawl_inspect *in, uint32_t index, struct pawl_error *e);
/* Elements of the whole tensor of which a slot holds a slice. */
uint64_t inspect_whole_elements(const struct slot_info *s, uint32_t tensor);
/* The record that stands now; false: none can be read. For memory reasons `out` is large: not on the stack.
 */
bool inspect_record_now(struct store *s, struct record *out);
/* True: every region of every log can be judged, and no record in them names the slot, whichever stands. */
bool inspect_slot_is_free(struct store *s, uint32_t slot);
/* Looks again at the records: true when a slot of the step, or this slot, is no longer named. */
bool inspect_slot_is_gone(struct pawl_inspect *in, struct inspect_slot *slot);
bool inspect_step_is_gone(struct pawl_inspect *in, uint32_t index);
/* Reading the step ended with `code`, and that because a writer used its slots again. */
bool inspect_is_gone(struct pawl_inspect *in, uint32_t index, pawl_code code);
pawl_code inspect_gone(const struct pawl_inspect *in, struct pawl_error *e); /* BUSY */
bool inspect_record_names(const struct record *r, const struct record_entry *entry);

pawl_code inspect_no_memory(struct pawl_error *e);
/* Adds a problem; `like` holds all but the text, its strings are copied. Without memory it is lost, but
 * counted as MEMORY by pawl_inspect_outcome. */
void inspect_problem_add(struct pawl_inspect *in, struct pawl_inspect_problem like, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void inspect_problems_clear(struct pawl_inspect *in, uint32_t from);
struct pawl_inspect_problem inspect_problem_of_slot(const struct pawl_inspect *in,
                                                    const struct inspect_slot *slot,
                                                    enum pawl_inspect_problem_kind kind, pawl_code code);

/* ---- bytes ---- */
/* Whole blocks, several operations at once. */
pawl_code inspect_read(struct store *s, struct store_file *f, uint64_t offset, void *data, uint64_t bytes,
                       struct pawl_error *e);
void inspect_progress(const struct pawl_inspect *in, const char *what, uint64_t done, uint64_t total);

struct inspect_room { /* memory for pieces and chunks; all zero is empty */
    uint8_t *data;
    uint64_t bytes;
};
bool inspect_reserve(struct inspect_room *room, uint64_t bytes); /* what was in it is lost */
void inspect_room_close(struct inspect_room *room);

struct inspect_sweep { /* memory and counts of a verification */
    struct inspect_room room;
    uint64_t done, total;
    struct pawl_inspect_verified *verified;
};
/* Verify every chunk of the slots of one step, or of all: problems are added. MEMORY is the only error. */
pawl_code inspect_sweep_step(struct pawl_inspect *in, uint32_t index, struct inspect_sweep *sweep,
                             struct pawl_error *e);
pawl_code inspect_sweep_all(struct pawl_inspect *in, struct inspect_sweep *sweep, struct pawl_error *e);

/* Cuts a tensor into boxes of at most `most` bytes that lie one behind the other in row-major order. */
#define INSPECT_RANK_MAX 64u
struct inspect_piece {
    uint64_t begin[INSPECT_RANK_MAX], extent[INSPECT_RANK_MAX];
    uint64_t elements, first; /* of the box; index of its first element */
    uint64_t bytes;
};
/* The piece at or behind element `first`; false at the end. Larger than `most` where it cannot be cut finer:
 * one element, or elements that share bytes. */
bool inspect_piece_at(const struct pawl_tensor *t, uint64_t first, uint64_t most, struct inspect_piece *out);
uint64_t inspect_elements(const struct pawl_tensor *t); /* of one whose bytes can be counted */
/* CORRUPT, naming it: more than a file can hold. To be asked before anything is cut or counted. */
pawl_code inspect_tensor_bytes(const struct pawl_tensor *t, uint64_t *bytes, struct pawl_error *e);
bool inspect_same_type(const struct pawl_tensor *a, const struct pawl_tensor *b);

/* `pattern` is a glob when it has one of * ? [, else a prefix. */
bool inspect_name_matches(const char *name, const char *const *patterns, uint32_t count);

/* ---- numbers ---- */
bool inspect_dtype_is_float(enum pawl_dtype dtype);
/* The pattern of an element; where several share a byte the first one has the lowest bits. */
uint64_t inspect_element_bits(enum pawl_dtype dtype, const uint8_t *data, uint64_t index);
/* Absolute difference of two elements of a floating-point type; NaN when one is no number. */
double inspect_distance(enum pawl_dtype dtype, const uint8_t *a, const uint8_t *b, uint64_t index);
double inspect_float_at(enum pawl_dtype dtype, const uint8_t *data, uint64_t index);

/* ---- output files (target.c, output.c) ---- */
#define INSPECT_INDEX_NAME "model.safetensors.index.json"
/* May a file take this name? ARGUMENT: something that is no regular file is there, or a checkpoint's file is
 * or could be. NOT_FOUND, IO: there is no such folder. */
pawl_code inspect_target_check(const char *path, struct pawl_error *e);
struct inspect_output {
    char *final, *temporary;
    int fd;
    bool force;
};
pawl_code inspect_output_open(struct inspect_output *o, const char *path, bool force, struct pawl_error *e);
pawl_code inspect_output_write(struct inspect_output *o, const void *data, size_t size, struct pawl_error *e);
/* Flush and close, still under the temporary name; then take the name. */
pawl_code inspect_output_finish(struct inspect_output *o, struct pawl_error *e);
pawl_code inspect_output_publish(struct inspect_output *o, struct pawl_error *e);
void inspect_output_close(struct inspect_output *o); /* removes what was not published */
pawl_code inspect_sync_folder_of(const char *path, struct pawl_error *e);

/* ---- changes ---- */
struct inspect_change {
    struct pawl_inspect_change is;
    char *store, *file;
};
struct pawl_inspect_changes {
    struct inspect_change *items;
    uint32_t count, room;
    uint64_t newest;
};
bool inspect_change_add(struct pawl_inspect_changes *c, struct pawl_inspect_change like);
/* A new log for the store whose record holds the entries for which `keep[i]` (by place in the standing
 * record): durable when it returns OK; before that the old record stands. */
pawl_code inspect_rewrite(struct inspect_store *s, const bool *keep, struct pawl_error *e);

/* On an inventory whose stores are open for writing, or with dry_run in any way. */
pawl_code inspect_rollback(struct pawl_inspect *in, uint64_t step, bool dry_run,
                           struct pawl_inspect_changes *out, struct pawl_error *e);
pawl_code inspect_gc(struct pawl_inspect *in, uint32_t keep, bool dry_run, struct pawl_inspect_changes *out,
                     struct pawl_error *e);

#endif
