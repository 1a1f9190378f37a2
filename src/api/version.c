/* The version of the library, set by the build. */
#include <pawl/train.h>

const char *pawl_version(void) { return PAWL_VERSION; }
