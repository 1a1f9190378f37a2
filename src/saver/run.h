/* The run's folder: whose it is, and the small files by which its ranks and starts agree.
 *
 *   RUN                  whose run                       store/rank-NNNN/   one store a rank (src/ckpt)
 *   SAVED                a step was durable once         group/rank-NNNN    what a rank has committed
 * (group.h) starts/NUMBER        a start of all ranks            starts/NUMBER.resume   where it resumes
 *   bad/STEP-NUMBER      a step not to resume from       scratch/NUMBER     a start that began anew
 *
 * Files are made exclusively, by link(2) from a temporary name, with their content flushed before and the
 * folder after: whoever sees one sees all of it, and the first of several makers wins, also on a shared file
 * system. Layouts and checks: docs/formats/group.md. Blocks. Tested in tests/unit/saver_run_test.c. */
#ifndef SAVER_RUN_H
#define SAVER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/ckpt.h>

#include "base/error.h"
#include "ckpt/marks.h"
#include "store/store.h"

#define RUN_NUMBER_BYTES 48u

struct saver_run {
    char *path; /* null: there is none */
    uint8_t id[PAWL_RUN_ID_BYTES];
};

struct run_open {
    bool must_exist;
    uint8_t id[PAWL_RUN_ID_BYTES]; /* zeros: as found, or fresh */
};
/* NOT_FOUND, FOREIGN, CORRUPT, FORMAT, IO, NO_SPACE. */
pawl_code run_open(const char *path, const struct run_open *how, struct saver_run *out, struct pawl_error *e);
void run_close(struct saver_run *run);

/* "PATH/NAME" into malloc'ed memory; null without any. */
char *run_path(const struct saver_run *run, const char *folder, const char *name);

/* Makes FOLDER, durable; there already is as good. */
pawl_code run_folder(const struct saver_run *run, const char *folder, struct pawl_error *e);
/* Makes FOLDER/NAME with this text, durable. BUSY: it exists. */
pawl_code run_make(const struct saver_run *run, const char *folder, const char *name, const char *text,
                   struct pawl_error *e);
/* The text of FOLDER/NAME, into malloc'ed memory, a terminator behind it. NOT_FOUND; CORRUPT: too long. */
pawl_code run_read(const struct saver_run *run, const char *folder, const char *name, char **out,
                   struct pawl_error *e);
/* Is the number that FOLDER/NAME names a possible one? CORRUPT, naming the file. */
pawl_code run_check_number(const struct saver_run *run, const char *folder, const char *name, uint64_t number,
                           struct pawl_error *e);
void run_remove(const struct saver_run *run, const char *folder, const char *name);
/* Names in FOLDER that do not begin with a dot, sorted; none when there is no such folder. For
 * store_names_free. */
pawl_code run_list(const struct saver_run *run, const char *folder, char ***names, uint32_t *count,
                   struct pawl_error *e);
/* A step was durable once: an empty store is a loss from now on, not a first start. */
pawl_code run_note_saved(const struct saver_run *run, struct pawl_error *e);
pawl_code run_was_saved(const struct saver_run *run, bool *saved, struct pawl_error *e);

/* ---- marks: steps not to resume from ---- */

/* Without a folder there are none. */
pawl_code run_marks(const struct saver_run *run, struct ckpt_marks *out, struct pawl_error *e);
/* Already there is as good. */
pawl_code run_mark_bad(const struct saver_run *run, uint64_t step, uint64_t incarnation, const char *why,
                       struct pawl_error *e);
pawl_code run_mark_scratch(const struct saver_run *run, uint64_t incarnation, struct pawl_error *e);

/* ---- stores by folder ---- */

struct saver_stores {
    struct store **stores;
    char **names; /* of the folders: "rank-0003" */
    uint32_t count;
    char *run; /* the run's folder, null when `path` is not in one */
};
#define RUN_STORE_NAME "rank-%04u"
/* `path`: a run's folder, its store folder, or one rank's store. Read-only. NOT_FOUND: nothing of the kind.
 * `none_is_ok`: a run's folder without a store yet gives none. */
pawl_code saver_stores_open(const char *path, bool none_is_ok, struct saver_stores *out,
                            struct pawl_error *e);
void saver_stores_close(struct saver_stores *s);

#endif
