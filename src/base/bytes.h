/* Little-endian bytes: a growable output buffer and a bounds-checked reader.
 *
 * Everything pawl puts on disk or wire goes through here, so that no struct layout or host order leaks
 * out. A writer that ran out of memory and a reader that ran past its end stay in a failed state that
 * is asked for once at the end; a failed reader returns zeros. Thread: caller's. Tested in
 * tests/unit/base_bytes_test.c. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes { /* all zero is empty and valid */
    uint8_t *data;
    size_t size;
    size_t capacity;
    bool failed;
};

void bytes_close(struct bytes *b);
void bytes_clear(struct bytes *b); /* keeps the memory */
void bytes_put(struct bytes *b, const void *data, size_t size);
void bytes_put_u8(struct bytes *b, uint8_t v);
void bytes_put_u16(struct bytes *b, uint16_t v);
void bytes_put_u32(struct bytes *b, uint32_t v);
void bytes_put_u64(struct bytes *b, uint64_t v);
void bytes_put_i64(struct bytes *b, int64_t v);
void bytes_put_f32(struct bytes *b, float v);
void bytes_put_f64(struct bytes *b, double v);
void bytes_put_text(struct bytes *b, const char *text); /* u32 length, then the characters, no 0 */
/* u32 length with the 0, the characters and the 0: a reader can point into it. Null: "". */
void bytes_put_string(struct bytes *b, const char *text);
void bytes_put_blob(struct bytes *b, const void *data, size_t size); /* u64 size, then the bytes */
void bytes_printf(struct bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bytes_pad(struct bytes *b, size_t alignment, uint8_t fill);

struct reader {
    const uint8_t *data;
    size_t size;
    size_t at;
    bool failed;
};

struct reader reader_of(const void *data, size_t size);
uint8_t reader_u8(struct reader *r);
uint16_t reader_u16(struct reader *r);
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
int64_t reader_i64(struct reader *r);
float reader_f32(struct reader *r);
double reader_f64(struct reader *r);
bool reader_flag(struct reader *r); /* a byte; fails if it is neither 0 nor 1 */
/* Fail from `end` on, and are 0 then. */
uint8_t reader_u8_below(struct reader *r, uint8_t end);
uint32_t reader_u32_below(struct reader *r, uint32_t end);
/* A pointer to `size` bytes inside the input, or null (and failed) if fewer are left. */
const uint8_t *reader_take(struct reader *r, size_t size);
/* A length-prefixed text copied into `out` and terminated; fails if it has a 0 inside or needs more
 * than out_size bytes with its terminator. */
void reader_text(struct reader *r, char *out, size_t out_size);
/* What bytes_put_string wrote, inside the input; fails, and is "", unless the only 0 is the last byte. */
const char *reader_string(struct reader *r);
/* What bytes_put_blob wrote, inside the input; null, of size 0 and failed if fewer bytes are left. */
const uint8_t *reader_blob(struct reader *r, size_t *size);
/* True when nothing failed and every byte was read. */
bool reader_done(const struct reader *r);

#endif
