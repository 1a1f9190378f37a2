/* Any bytes as a spec and as an override: no crash; what is accepted prints and reads back to
 * the same text; what is refused has one line that says so. */
#include <stdlib.h>
#include <string.h>

#include "run/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int ok) {
    if (!ok) abort();
}

static void expect_one_line(const struct pawl_error *e) {
    expect(e->text[0] != 0);
    for (const char *c = e->text; *c != 0; c++) expect((unsigned char)*c >= 0x20);
}

static void reads_back(const struct spec *spec) {
    struct bytes text = {0}, again = {0};
    struct spec back;
    struct pawl_error e;
    spec_print(spec, &text);
    expect(spec_parse((const char *)text.data, text.size, "printed", &back, &e) == PAWL_OK);
    spec_print(&back, &again);
    expect(text.size == again.size && memcmp(text.data, again.data, text.size) == 0);
    bytes_close(&text);
    bytes_close(&again);
}

/* An override may take away what the engine needs. */
static int is_whole(const struct spec *spec) {
    return (spec->run.engine == SPEC_ENGINE_GPT ? spec->data.path : spec->emulated.profile)[0] != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct spec spec;
    struct pawl_error e = {0};
    if (spec_parse((const char *)data, size, "fuzz", &spec, &e) == PAWL_OK)
        reads_back(&spec);
    else
        expect_one_line(&e);

    static const char base[] = "run: {dir: x}\ndata: {path: /dev/null}\n"
                               "model: {layers: 1, heads: 1, width: 4, context: 4, vocabulary: 256}\n";
    expect(spec_parse(base, sizeof base - 1, "base", &spec, &e) == PAWL_OK);
    char *text = malloc(size + 1);
    expect(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = 0;
    if (spec_set(&spec, text, &e) != PAWL_OK)
        expect_one_line(&e);
    else if (spec.run.dir[0] != 0 && is_whole(&spec))
        reads_back(&spec);
    free(text);
    return 0;
}
