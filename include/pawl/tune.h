/* How often to save and with what settings: measured on the device, chosen by rule, followed at run time.
 *
 * Symbols, after PCcheck (ASPLOS'25): m bytes of one save, t seconds of an iteration without saving, N saves
 * in flight, Tw(N) seconds from the begin of a save to its being durable while N run, f iterations from save
 * to save, q = 1 + overhead the slow-down allowed. N f iterations take max(Tw, N (f t + stall)), so that the
 * slow-down is max(1 + stall/(f t), Tw/(N f t)). Rates are per second, bytes are bytes, times are seconds.
 *
 * The choosing, the interval and the cadence are pure: no clock, no I/O, no threads; the same input gives the
 * same output. pawl_tune and pawl_bench do real I/O and block. How to use it: docs/tuning.md. */
#ifndef PAWL_TUNE_H
#define PAWL_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

/* ---- amounts as people write them ---- */

/* "512MiB", "1.5GB", "4096", "2T": a decimal number and a unit, letter case aside; K, M, G, T alone and with
 * iB are powers of 1024, with B powers of 1000. Fractions of a byte are cut off. ARGUMENT says what is wrong.
 */
pawl_code pawl_parse_bytes(const char *text, uint64_t *bytes, struct pawl_error *e);
/* "60ms", "2s", "1.5 h", "250us", "3d"; a number alone is seconds. */
pawl_code pawl_parse_seconds(const char *text, double *seconds, struct pawl_error *e);
/* "3%" or "0.03". */
pawl_code pawl_parse_share(const char *text, double *share, struct pawl_error *e);
/* "512 MiB", "1.5 GiB", "100 B" and "63.4 ms", "2 s", "8 h" into `out`; returns it. */
#define PAWL_AMOUNT_TEXT 32
const char *pawl_bytes_text(uint64_t bytes, char out[PAWL_AMOUNT_TEXT]);
const char *pawl_seconds_text(double seconds, char out[PAWL_AMOUNT_TEXT]);

/* ---- the interval ---- */

#define PAWL_TUNE_OVERHEAD 0.03 /* allowed slow-down by default */

struct pawl_tune_rates {
    double iteration_s; /* t > 0 */
    double write_s;     /* Tw(N) > 0 */
    uint32_t in_flight; /* N >= 1 */
    double stall_s;     /* training is held up for this long by one save */
    double overhead;    /* q - 1; 0: PAWL_TUNE_OVERHEAD */
    double mtbf_s;      /* mean time between failures; 0: not known */
    double load_s;      /* from a failure to training again: detect, restart, read back */
};

enum pawl_tune_bound {                       /* what decided the interval */
                       PAWL_BOUND_NONE,      /* every iteration may be saved */
                       PAWL_BOUND_BANDWIDTH, /* Tw/(N q t) */
                       PAWL_BOUND_STALL,     /* stall/(overhead t) */
                       PAWL_BOUND_FAILURES   /* longer pays, failures being rare */
};
const char *pawl_tune_bound_name(enum pawl_tune_bound bound);

struct pawl_tune_interval {
    uint64_t every; /* f */
    enum pawl_tune_bound bound;
    double bandwidth_min, stall_min; /* iterations that the limits ask for, before rounding up */
    double young_s, daly_s; /* sqrt(2 Ts Tf) and Ts + sqrt(2 (Tf + Tr) Ts + Ts^2), Ts the stall; 0: no MTBF */
    double slowdown;        /* expected, 1 is none */
    double lost_mean_s, lost_worst_s; /* by one failure, loading included */
};

/* The least interval within the limits; with an MTBF, of all intervals within them the one that loses the
 * least time (saving and failures together). */
pawl_code pawl_tune_interval(const struct pawl_tune_rates *rates, struct pawl_tune_interval *out,
                             struct pawl_error *e);
/* Slow-down and loss when saving every `every` iterations. */
double pawl_tune_slowdown(const struct pawl_tune_rates *rates, uint64_t every);
double pawl_tune_lost_mean_s(const struct pawl_tune_rates *rates, uint64_t every);
double pawl_tune_lost_worst_s(const struct pawl_tune_rates *rates, uint64_t every);

/* ---- the choice ---- */

struct pawl_tune_point { /* one way to save, measured */
    uint32_t in_flight;
    uint32_t writers; /* operations that the device is given at once */
    uint64_t chunk_bytes;
    double write_s; /* Tw(N) */
    double stall_s;
};

struct pawl_tune_need {
    uint64_t bytes; /* m of one save on this device */
    double iteration_s;
    double overhead;        /* 0: PAWL_TUNE_OVERHEAD */
    uint64_t memory_bytes;  /* for saves in flight, beyond the state itself; 0: no limit */
    uint64_t storage_bytes; /* 0: no limit */
    uint32_t keep;          /* K durable saves kept; 0: 1 */
    uint32_t spare_slots;   /* slots besides in flight and kept; PAWL_TUNE_SPARE_SLOTS for pawl's engine */
    double mtbf_s, load_s;
    /* The state is overwritten in place, so that a save in flight is (partly) a copy; otherwise it holds on
     * to an immutable version. */
    bool staged;
};
/* The engine's slot of a save that no longer counts, until a commit record says so. */
#define PAWL_TUNE_SPARE_SLOTS 1u

struct pawl_tune_choice {
    struct pawl_tune_point point;
    struct pawl_tune_interval interval;
    uint64_t storage_bytes; /* (N + K + spare) m */
    uint64_t memory_bytes;  /* N m of versions; staged (N + 1) m / 2, or the limit when that is less */
    double stall_s;         /* of the point, and of waiting for memory where that is short */
    double speedup;         /* rate with N in flight over the best rate with one; 1 where that is not known */
    char why[640];
};

/* Of the points within the limits the one with the least Tw/N; of those within PAWL_TUNE_TIE of it, the one
 * with the fewest saves in flight, then writers, then the larger chunk: it needs less of everything.
 * NO_SPACE, MEMORY: not even one save in flight fits; ARGUMENT names the field. */
#define PAWL_TUNE_TIE 0.02
pawl_code pawl_tune_choose(const struct pawl_tune_need *need, const struct pawl_tune_point *points,
                           uint32_t count, struct pawl_tune_choice *out, struct pawl_error *e);

/* ---- the cadence at run time ---- */

/* Says when a save is due and follows iteration time, write time and stalls in both directions: medians over
 * windows, and an interval that changes only when the medians left it by more than their own noise. One rank
 * decides for a group: the others are told which steps to save. Times are read by the caller, from any clock
 * that does not go back. Thread: its owner's. */
struct pawl_cadence;

struct pawl_cadence_config {
    uint64_t every;     /* k > 0: every k steps, whatever it costs; 0: by overhead */
    double overhead;    /* 0: PAWL_TUNE_OVERHEAD */
    uint32_t in_flight; /* N */
    /* Rate with N in flight over the rate with one, 1 to N, as measured by pawl_tune; 0: 1, one save alone
     * keeps the device busy. */
    double speedup;
    uint64_t first;   /* interval until enough is known; 0: 10 */
    uint64_t longest; /* the interval never exceeds this; 0: no limit */
    uint32_t warmup;  /* first iterations, which tell nothing; 0: 5 */
    double mtbf_s, load_s;
};

/* The configuration that begins with what was chosen. */
struct pawl_cadence_config pawl_cadence_of(const struct pawl_tune_need *need,
                                           const struct pawl_tune_choice *choice);
pawl_code pawl_cadence_new(const struct pawl_cadence_config *config, struct pawl_cadence **out,
                           struct pawl_error *e);
void pawl_cadence_free(struct pawl_cadence *c);

/* An iteration ended at `now_s` and took `seconds`, without what it was held up by saves. */
void pawl_cadence_iteration(struct pawl_cadence *c, double now_s, double seconds);
/* Training was held up for `seconds` more by the newest save: copying, waiting for room or for a fence. */
void pawl_cadence_stall(struct pawl_cadence *c, double seconds);
/* Is step `step` to be saved? By overhead, never while N are in flight: it is then due at the first step
 * after one has ended, and nobody waits. By `every` also then: what follows is the engine's policy. */
bool pawl_cadence_due(const struct pawl_cadence *c, uint64_t step);
/* A save began (at most 32 at once are followed), ended: durable, or failed or given up, which tells nothing
 * about the device. */
void pawl_cadence_begun(struct pawl_cadence *c, uint64_t step, double now_s);
void pawl_cadence_ended(struct pawl_cadence *c, uint64_t step, double now_s, bool durable);
/* The job went back to `step`, after a failure: saves of later steps are followed no longer. */
void pawl_cadence_rewind(struct pawl_cadence *c, uint64_t step);

struct pawl_cadence_change {
    uint64_t before, after; /* intervals; equal when a disk that hangs, or goes on, is all there is to say */
    enum pawl_tune_bound bound;
    bool stalled;
    char why[256];
};
/* True once after every change. */
bool pawl_cadence_changed(struct pawl_cadence *c, struct pawl_cadence_change *out);

struct pawl_cadence_state { /* zeros: not known yet */
    uint64_t every;
    uint32_t in_flight;
    double iteration_s; /* without saves in flight, where these slow it down */
    double write_s;     /* as if N were in flight */
    double stall_s;     /* of one save: held up, and iterations slowed down beside it */
    double slowdown, lost_mean_s, lost_worst_s;
    bool stalled; /* a save takes many times what saves take */
};
void pawl_cadence_state(const struct pawl_cadence *c, struct pawl_cadence_state *out);

/* ---- measuring ---- */

#define PAWL_TUNE_POINTS_MAX 128u

struct pawl_device { /* the yardstick: a raw reader and writer of the same bytes, without commits or sums */
    char mode[64];   /* "io_uring+O_DIRECT", "O_DIRECT", "page cache" */
    uint32_t depth;  /* of the fastest writer tried */
    uint64_t piece_bytes;
    double write_bps, read_bps;
};

struct pawl_tune_options {
    const char *dir;            /* exists; a scratch folder in it is made and removed again */
    struct pawl_tune_need need; /* storage_bytes 0: what is free; load_s 0: reading at the measured rate */
    uint64_t probe_bytes;   /* of the saves made; 0: need.bytes, or less where memory, disk or time demand */
    uint32_t in_flight_max; /* 0: 8 */
    uint32_t rounds;        /* per point; 0: 3 */
    double seconds;         /* time to aim at; 0: 60 */
    bool keep_result;       /* write dir/tune.json (docs/formats/tune.md) */
    bool quiet;             /* no progress on the standard error output */
};

struct pawl_tune_result {
    char store[160]; /* how saves are written, and after a fallback why */
    char note[256];  /* what was not measured as asked, in words; may be empty */
    bool uring_direct;
    uint64_t bytes, probe_bytes;
    struct pawl_device device;
    double copy_bps; /* memory to memory, one thread: staging */
    uint32_t point_count;
    struct pawl_tune_point points[PAWL_TUNE_POINTS_MAX]; /* scaled to `bytes` */
    struct pawl_tune_need need;                          /* with what was filled in */
    struct pawl_tune_choice choice;
    /* SIGINT, SIGTERM, or a SIGPIPE that would have killed the process ended it: everything was removed,
     * there is no choice; 0: no */
    int stopped_by;
};

/* Measures real saves through the real engine, and chooses. Blocks for about options->seconds. While it runs
 * SIGINT and SIGTERM make it clean up and return early. NO_SPACE says need and have; BUSY: keep_result and
 * another process has `dir` open as its store. One at a time in a process. */
pawl_code pawl_tune(const struct pawl_tune_options *options, struct pawl_tune_result *out,
                    struct pawl_error *e);
/* As one JSON object, with a newline; malloc'ed, null without memory. Also what dir/tune.json holds. */
char *pawl_tune_json(const struct pawl_tune_result *result);
/* What pawl_tune kept in `dir`. NOT_FOUND, FORMAT (field named), CORRUPT (not such a file). The choice is
 * made anew from the points and the need. */
pawl_code pawl_tune_load(const char *dir, struct pawl_tune_result *out, struct pawl_error *e);

struct pawl_bench_options {
    const char *dir;
    uint64_t bytes;     /* of one save; 0: 512 MiB */
    uint32_t rounds;    /* 0: 5 */
    uint32_t in_flight; /* 0: 2 */
    bool quiet;
};

struct pawl_bench_result { /* medians of interleaved rounds */
    char store[160];
    struct pawl_device device; /* write_bps, read_bps: in these rounds */
    uint64_t bytes;
    uint32_t rounds, in_flight;
    double write_bps;                              /* a stream of saves, each durable */
    double save_bps;                               /* one save at a time */
    double restore_bps;                            /* verified */
    double write_ratio, save_ratio, restore_ratio; /* to the device; medians of the rounds' ratios */
    double cpu_s_per_gb, restore_cpu_s_per_gb, device_cpu_s_per_gb;
    double blocked_s; /* the caller, in beginning a save */
    double write_s;   /* one save alone: begin to durable */
    int stopped_by;
};

/* The engine beside the device by itself: same bytes, same number of files in rotation, rounds interleaved.
 * Errors and signals as for pawl_tune; CORRUPT when what is read back is not what was written. */
pawl_code pawl_bench(const struct pawl_bench_options *options, struct pawl_bench_result *out,
                     struct pawl_error *e);
char *pawl_bench_json(const struct pawl_bench_result *result);

#endif
