/* A device mapper device by hand, in the guest:
 *
 *   guest_base_dm create NAME TARGET SECTORS "ARGUMENTS"
 *   guest_base_dm message NAME TEXT
 *   guest_base_dm remove NAME
 *
 * Run by tests/guest/init. Exit 1 with the kernel's error. */
#include "guest/guest_dm.h"

#include <stdlib.h>

static int usage(void) {
    fprintf(stderr, "wanted: create NAME TARGET SECTORS ARGUMENTS | message NAME TEXT | remove NAME\n");
    return 2;
}

int main(int count, char **words) {
    int result;
    if (count == 6 && strcmp(words[1], "create") == 0)
        result = dm_create(words[2], words[3], strtoull(words[4], NULL, 10), words[5]);
    else if (count == 4 && strcmp(words[1], "message") == 0)
        result = dm_message(words[2], words[3]);
    else if (count == 3 && strcmp(words[1], "remove") == 0)
        result = dm_remove(words[2]);
    else
        return usage();
    if (result == 0) return 0;
    fprintf(stderr, "device mapper: %s %s: %s\n", words[1], words[2], strerror(result));
    return 1;
}
