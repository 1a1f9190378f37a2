/* A folder with a small text, and a spec that is right and can be changed: for the tests of run/spec.h. */
#ifndef SPEC_KIT_H
#define SPEC_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/spec.h"

static char folder[] = "/tmp/pawl-spec-XXXXXX";
static char data_path[64];

/* Sizes small enough that a short text suffices. */
static const char model_text[] =
    "model:\n  layers: 8\n  heads: 2\n  width: 8\n  context: 16\n  vocabulary: 256\n";

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state) {
    (void)state;
    char text[4096];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 26);
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(data_path, sizeof data_path, "%s/data.txt", folder);
    write_file(data_path, text, sizeof text);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* A valid spec, with `more` sections at its end. */
static char *spec_text(const char *more) {
    char *text = NULL;
    assert_true(asprintf(&text, "run:\n  dir: %s/run\ndata:\n  path: %s\n%s%s", folder, data_path, model_text,
                         more) > 0);
    return text;
}

static struct spec valid_spec(void) {
    struct spec spec;
    struct pawl_error e = {0};
    char *text = spec_text("");
    if (spec_parse(text, strlen(text), "t.yaml", &spec, &e) != PAWL_OK) fail_msg("%s", e.text);
    free(text);
    return spec;
}

static void assert_one_line_with(const struct pawl_error *e, const char *wanted) {
    if (strstr(e->text, wanted) == NULL) fail_msg("wanted \"%s\" in \"%s\"", wanted, e->text);
    for (const char *c = e->text; *c != 0; c++)
        if ((unsigned char)*c < 0x20) fail_msg("not one line: \"%s\"", e->text);
}

/* A valid spec with these overrides, null-ended, is refused by the check. */
static void check_refuses(const char *const *sets, const char *wanted) {
    struct spec s = valid_spec();
    struct pawl_error e = {0};
    for (; *sets != NULL; sets++)
        if (spec_set(&s, *sets, &e) != PAWL_OK) fail_msg("%s", e.text);
    pawl_code code = spec_check(&s, &e);
    if (code != PAWL_SPEC) fail_msg("%s, wanted \"%s\"", pawl_code_name(code), wanted);
    assert_one_line_with(&e, wanted);
}
#define REFUSES(wanted, ...) check_refuses((const char *const[]){__VA_ARGS__, NULL}, wanted)

#endif
