/* How modules raise a pawl_error: one call that formats the cause and returns the code. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <pawl/error.h>

/* Fill `e` (may be null) and return `code`. `os_errno` 0 adds nothing; otherwise the errno's name and
 * text are appended to the formatted cause. Control characters, which what is quoted may hold, are escaped
 * (\n, \x1b): the text is one line. */
pawl_code error_set(struct pawl_error *e, pawl_code code, int os_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Put "context: " before the cause that `e` already holds; returns e's code. */
pawl_code error_wrap(struct pawl_error *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Code for a failed file operation: ENOSPC and EDQUOT are NO_SPACE, ENOENT is NOT_FOUND, ENOMEM is
 * MEMORY, all else is IO. */
pawl_code error_code_of_errno(int os_errno);

#endif
