/* Any bytes as the files of a store: no crash, no endless loop, and whatever is told comes out as JSON. The
 * input's first bytes say which file it becomes and which sums are set right, so that what lies behind them
 * is reached; the rest of the store is sound. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "inspect/inspect.h"
#include "inspect/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A commit record for one slot whose header is `header`. */
static void put_log(struct store *s, const uint8_t *header, uint64_t header_bytes, uint64_t file_bytes) {
    static struct record r;
    struct bytes image = {0};
    r = (struct record){.counter = 3, .entry_count = 1};
    r.entries[0] = (struct record_entry){.step = 7,
                                         .incarnation = 1,
                                         .unit_count = 1,
                                         .part_count = 1,
                                         .header_bytes = header_bytes,
                                         .file_bytes = file_bytes,
                                         .counter = 3};
    memset(r.run_id, 0xaa, sizeof r.run_id);
    hash128(header, header_bytes, r.entries[0].header_sum);
    log_image(&r, &image);
    if (!image.failed) (void)store_put(s, "commit-000001.log", image.data, image.size, NULL);
    bytes_close(&image);
}

/* The input as the header's JSON text, padded, one block of data behind it. */
static void put_slot(struct store *s, const uint8_t *data, size_t size) {
    size_t header = (size + 8 + STORE_BLOCK - 1) / STORE_BLOCK * STORE_BLOCK;
    uint8_t *file = calloc(1, header + STORE_BLOCK);
    if (file == NULL) return;
    for (size_t i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)(header - 8) >> 8 * i);
    memset(file + 8, ' ', header - 8);
    memcpy(file + 8, data, size);
    (void)store_put(s, "slot-000000.safetensors", file, header + STORE_BLOCK, NULL);
    put_log(s, file, header, header + STORE_BLOCK);
    free(file);
}

static void put_region(struct store *s, const uint8_t *data, size_t size) {
    uint8_t *log = calloc(1, RECORD_LOG_BYTES);
    if (log == NULL) return;
    memcpy(log, data, size < RECORD_LOG_BYTES ? size : RECORD_LOG_BYTES);
    hash128(log, STORE_BLOCK - RECORD_SUM_BYTES, log + STORE_BLOCK - RECORD_SUM_BYTES);
    (void)store_put(s, "commit-000001.log", log, RECORD_LOG_BYTES, NULL);
    free(log);
}

static void show(struct pawl_inspect *in) {
    struct pawl_inspect_verified done;
    struct pawl_inspect_diff *diff = NULL;
    (void)pawl_inspect_verify(in, PAWL_INSPECT_ALL, &done, NULL);
    char *texts[] = {pawl_inspect_list_json(in), pawl_inspect_info_json(in, 0),
                     pawl_inspect_verify_json(in, &done)};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i] != NULL && !text_is_json(texts[i], strlen(texts[i]))) abort();
        free(texts[i]);
    }
    if (pawl_inspect_diff_new(in, 0, in, 0, &diff, NULL) == PAWL_OK && pawl_inspect_diff_count(diff) != 0)
        abort();
    pawl_inspect_diff_free(diff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > (1u << 20)) return 0;
    (void)text_is_json((const char *)data, size);
    struct storesim *sim = storesim_new(1);
    struct store *s = NULL;
    struct pawl_inspect *in = NULL;
    if (storesim_open(sim, "r0", false, &s, NULL) == PAWL_OK) {
        static const uint8_t run_id[RUN_ID_BYTES] = {0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa,
                                                     0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa};
        if (data[0] % 4 == 0)
            (void)store_put(s, LOG_IDENTITY_NAME, data + 1, size - 1, NULL);
        else
            (void)log_identity_write(s, run_id, NULL);
        if (data[0] % 4 == 1) put_region(s, data + 1, size - 1);
        if (data[0] % 4 >= 2) put_slot(s, data + 1, size - 1);
        struct pawl_inspect_options options = {.unchecked = true};
        if (inspect_new("run", &s, 1, false, &options, &in, NULL) == PAWL_OK &&
            inspect_scan(in, NULL) == PAWL_OK)
            show(in);
        pawl_inspect_close(in);
    }
    store_close(s);
    storesim_free(sim);
    return 0;
}
