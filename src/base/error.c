/* Implementation of base/error.h and of the public code tables. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct code_row {
    const char *name;
    const char *text;
    pawl_next next;
    int exit_code;
};

static const struct code_row code_rows[] = {
#define X(name, next, exit_code, text) {#name, text, PAWL_NEXT_##next, exit_code},
#include <pawl/error.def>
#undef X
};

static const struct code_row *row_of(pawl_code code) {
    size_t count = sizeof code_rows / sizeof code_rows[0];
    return (size_t)code < count ? &code_rows[code] : &code_rows[PAWL_INTERNAL];
}

const char *pawl_code_name(pawl_code code) { return row_of(code)->name; }
const char *pawl_code_text(pawl_code code) { return row_of(code)->text; }
pawl_next pawl_code_next(pawl_code code) { return row_of(code)->next; }
int pawl_code_exit(pawl_code code) { return row_of(code)->exit_code; }

/* Texts may quote names and files of anybody: an error stays one line, and cannot write to a terminal. */
static void escape_controls(struct pawl_error *e) {
    static const char digits[] = "0123456789abcdef";
    char plain[sizeof e->text];
    size_t used = 0;
    for (const char *at = e->text; *at != 0 && used + 4 < sizeof plain; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte >= 0x20 && byte != 0x7f) {
            plain[used++] = *at;
        } else if (byte == '\n') {
            plain[used++] = '\\';
            plain[used++] = 'n';
        } else {
            plain[used++] = '\\';
            plain[used++] = 'x';
            plain[used++] = digits[byte >> 4];
            plain[used++] = digits[byte & 15];
        }
    }
    plain[used] = 0;
    memcpy(e->text, plain, used + 1);
}

static bool has_controls(const char *text) {
    for (; *text != 0; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

pawl_code error_set(struct pawl_error *e, pawl_code code, int os_errno, const char *format, ...) {
    if (e == NULL) return code;
    e->code = code;
    e->os_errno = os_errno;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    size_t at = used < 0 ? 0 : (size_t)used;
    if (os_errno != 0 && at < sizeof e->text) {
        const char *name = strerrorname_np(os_errno);
        snprintf(e->text + at, sizeof e->text - at, ": %s (%s)", strerrordesc_np(os_errno) ?: "unknown error",
                 name != NULL ? name : "?");
    }
    if (has_controls(e->text)) escape_controls(e);
    return code;
}

pawl_code error_wrap(struct pawl_error *e, const char *format, ...) {
    if (e == NULL) return PAWL_INTERNAL;
    char inner[sizeof e->text];
    memcpy(inner, e->text, sizeof inner);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    size_t at = used < 0 ? 0 : (size_t)used;
    if (at < sizeof e->text) snprintf(e->text + at, sizeof e->text - at, ": %.700s", inner);
    if (has_controls(e->text)) escape_controls(e);
    return e->code;
}

pawl_code error_code_of_errno(int os_errno) {
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
        return PAWL_NO_SPACE;
    case ENOENT:
        return PAWL_NOT_FOUND;
    case ENOMEM:
        return PAWL_MEMORY;
    default:
        return PAWL_IO;
    }
}
