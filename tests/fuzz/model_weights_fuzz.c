/* Any bytes as the files of a weights folder: read or refused. The first byte says which file they are; the
 * rest of the folder is whole, so that what the bytes name is there to be opened. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct gpt_config config = {
    .layers = 2, .heads = 1, .width = 2, .context = 3, .vocabulary = 4, .batch = 1, .tied = true};

static char folder[64];
static struct stage stage; /* its middle: needs no text */
static float params[256];

static void put(const char *name, const void *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    close(fd);
}

static void drop(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void put_model(uint32_t count) {
    const float *values[64];
    for (uint32_t i = 0; i < count; i++) values[i] = params;
    if (weights_write(folder, &config, values, NULL) != PAWL_OK) abort();
}

static void begin(void) {
    struct stage_tensor *tensors;
    uint32_t count;
    snprintf(folder, sizeof folder, "/dev/shm/pawl-fuzz-XXXXXX");
    if (mkdtemp(folder) == NULL || weights_list(&config, &tensors, &count, NULL) != PAWL_OK) abort();
    stage = (struct stage){.tensors = tensors, .tensor_count = count};
    const struct stage_tensor *last = &tensors[count - 1];
    if (last->offset + last->count > sizeof params / sizeof *params) abort();
}

static void end(void) {
    drop("model.safetensors");
    drop("model.safetensors.index.json");
    drop("config.json");
    drop("a");
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "model.safetensors",
                                        "a"};
    if (folder[0] == 0) {
        begin();
        atexit(end);
    }
    if (size == 0) return 0;
    for (int i = 0; i < 4; i++) drop(names[i]);
    const char *name = names[data[0] % 4];
    static const char index[] = "{\"weight_map\":{\"x\":\"a\"}}";
    if (strcmp(name, "config.json") == 0) put_model(stage.tensor_count);
    if (strcmp(name, "a") == 0) put("model.safetensors.index.json", index, sizeof index - 1);
    put(name, data + 1, size - 1);
    struct pawl_error e = {0};
    if (weights_read(folder, &config, &stage, params, &e) != PAWL_OK && e.text[0] == 0) abort();
    return 0;
}
