/* Implementation of net/frame.h. */
#include "net/frame.h"

#include <string.h>

#include "base/bytes.h"

static void put_le(uint8_t *out, uint64_t v, unsigned width) {
    for (unsigned i = 0; i < width; i++) out[i] = (uint8_t)(v >> (8 * i));
}

void frame_encode(const struct frame *f, uint8_t *out) {
    put_le(out, FRAME_MAGIC, 4);
    put_le(out + 4, (uint64_t)f->kind, 4);
    put_le(out + 8, f->tag, 8);
    put_le(out + 16, f->total, 8);
    put_le(out + 24, f->send_id, 8);
    put_le(out + 32, f->recv_id, 8);
    put_le(out + 40, f->offset, 8);
}

/* What each kind's fields must satisfy among themselves. */
static bool fields_fit(const struct frame *f) {
    switch (f->kind) {
    case FRAME_EAGER:
        return f->payload_bytes == f->total && f->send_id == 0 && f->recv_id == 0 && f->offset == 0;
    case FRAME_READY: /* the payload is the sender's address, checked when it is used */
        return f->payload_bytes > 0 && f->total > 0 && f->send_id != 0 && f->recv_id == 0 && f->offset == 0;
    case FRAME_CLEAR:
        return f->payload_bytes == 0 && f->send_id != 0 && f->recv_id != 0 && f->offset == 0;
    case FRAME_SKIP:
        return f->payload_bytes == 0 && f->send_id != 0 && f->recv_id == 0 && f->offset == 0;
    case FRAME_DATA:
        return f->payload_bytes > 0 && f->send_id != 0 && f->recv_id != 0 && f->offset <= f->total &&
               f->payload_bytes <= f->total - f->offset;
    case FRAME_KIND_END:
        break;
    }
    return false;
}

bool frame_decode(const void *data, size_t size, struct frame *f) {
    struct reader r = reader_of(data, size);
    uint32_t magic = reader_u32(&r);
    uint32_t kind = reader_u32(&r);
    f->tag = reader_u64(&r);
    f->total = reader_u64(&r);
    f->send_id = reader_u64(&r);
    f->recv_id = reader_u64(&r);
    f->offset = reader_u64(&r);
    if (r.failed || magic != FRAME_MAGIC || kind < FRAME_EAGER || kind >= FRAME_KIND_END) return false;
    f->kind = (enum frame_kind)kind;
    f->payload = r.data + r.at;
    f->payload_bytes = size - r.at;
    return fields_fit(f);
}
