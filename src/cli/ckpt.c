/* `pawl ckpt`: finds the subcommand and hands over. */
#include <string.h>

#include "cli/cli.h"

int cli_ckpt(int argc, char **argv) {
    if (argc < 2) return cli_error(PAWL_ARGUMENT, "a subcommand is missing: pawl ckpt tune | bench DIR");
    if (strcmp(argv[1], "tune") == 0) return cli_ckpt_tune(argc - 1, argv + 1);
    if (strcmp(argv[1], "bench") == 0) return cli_ckpt_bench(argc - 1, argv + 1);
    return cli_error(PAWL_ARGUMENT, "there is no command \"ckpt %s\": give tune or bench", argv[1]);
}
