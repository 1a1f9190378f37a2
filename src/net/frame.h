/* The envelope of everything that travels between two endpoints; drawn in docs/formats/wire.md.
 *
 * A short message is one EAGER frame. A longer one is announced by READY; the receiver answers CLEAR when
 * a buffer is posted under the tag (or SKIP when that buffer is too small), and the bytes follow as DATA
 * frames, in any order. So a sender's buffer is read only for a receive that exists, and an end that
 * forgets a transfer just ignores the frames that still name it: nothing in the transport ever refers to
 * memory of the caller. Decoding refuses frames whose length does not fit their kind.
 * Tested in tests/unit/net_frame_test.c. */
#ifndef NET_FRAME_H
#define NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAGIC        0x31464e50u /* "PNF1" read as little-endian */
#define FRAME_HEADER_BYTES 48u

enum frame_kind { FRAME_EAGER = 1, FRAME_READY, FRAME_CLEAR, FRAME_SKIP, FRAME_DATA, FRAME_KIND_END };

struct frame {
    enum frame_kind kind;
    uint64_t tag;
    uint64_t total;   /* bytes of the whole message */
    uint64_t send_id; /* the sender's name for the transfer; 0 in EAGER */
    uint64_t recv_id; /* the receiver's name for it; 0 in EAGER, READY and SKIP */
    uint64_t offset;  /* of this frame's payload in the message; 0 but in DATA */
    const uint8_t *payload;
    size_t payload_bytes;
};

/* Write the header of `f` into FRAME_HEADER_BYTES bytes. */
void frame_encode(const struct frame *f, uint8_t *out);
/* Check and read a frame; its payload points into `data`. False leaves *f undefined. */
bool frame_decode(const void *data, size_t size, struct frame *f);

#endif
