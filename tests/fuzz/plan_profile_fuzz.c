/* Any bytes as a profile and as limits of memory: no crash; what is accepted passes the check; what is
 * refused has one line that says so. */
#include <stdlib.h>

#include "plan/profile_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int ok) {
    if (!ok) abort();
}

static void expect_one_line(const struct pawl_error *e) {
    expect(e->text[0] != 0);
    for (const char *c = e->text; *c != 0; c++) expect((unsigned char)*c >= 0x20);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pawl_error e = {0};
    struct pawl_profile *profile = NULL;
    if (profile_parse((const char *)data, size, "fuzz", &profile, &e) == PAWL_OK)
        expect(pawl_profile_check(profile, &e) == PAWL_OK);
    else
        expect_one_line(&e);
    pawl_profile_free(profile);

    double *limits = NULL;
    bool in_bytes;
    struct limits_size sizes = {2, 3};
    e = (struct pawl_error){0};
    if (limits_parse((const char *)data, size, "fuzz", sizes, &limits, &in_bytes, &e) == PAWL_OK)
        for (int i = 0; i < 6; i++) expect(limits[i] > 0);
    else
        expect_one_line(&e);
    free(limits);
    return 0;
}
