/* Errors: a code that says what to do next, and the innermost cause in words.
 *
 * Every fallible function returns a pawl_code and takes a `struct pawl_error *` last; the error is
 * written only when the code is not PAWL_OK, and a null pointer is allowed. The library never prints
 * and never exits. Thread: a pawl_error belongs to its caller. Tested in tests/unit/base_error_test.c. */
#ifndef PAWL_ERROR_H
#define PAWL_ERROR_H

#include <stdint.h>

typedef enum pawl_code {
#define X(name, next, exit_code, text) PAWL_##name,
#include <pawl/error.def>
#undef X
} pawl_code;

/* What the caller does next. */
typedef enum pawl_next {
    PAWL_NEXT_NONE,
    PAWL_NEXT_RETRY,
    PAWL_NEXT_REROUTE,
    PAWL_NEXT_ROLLBACK,
    PAWL_NEXT_REJECT,
    PAWL_NEXT_STOP
} pawl_next;

struct pawl_error {
    pawl_code code;
    int os_errno; /* 0 where the operating system had no part in it */
    char text[768];
};

/* Name of the code ("NO_SPACE"), its short text, its class, its process exit code.
 * An unknown code reads as PAWL_INTERNAL. */
const char *pawl_code_name(pawl_code code);
const char *pawl_code_text(pawl_code code);
pawl_next pawl_code_next(pawl_code code);
int pawl_code_exit(pawl_code code);

#endif
