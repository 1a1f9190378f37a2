/* Implementation of net/address.h. */
#include "net/address.h"

#include "base/hash.h"

void address_encode(uint64_t endpoint, const void *transport, size_t transport_bytes, struct bytes *out) {
    bytes_put_u32(out, ADDRESS_MAGIC);
    bytes_put_u32(out, (uint32_t)transport_bytes);
    bytes_put_u64(out, endpoint);
    bytes_put(out, transport, transport_bytes);
    if (!out->failed) bytes_put_u64(out, hash64(out->data, out->size));
}

pawl_code address_decode(const void *data, size_t size, struct address *out, struct pawl_error *e) {
    struct reader r = reader_of(data, size);
    uint32_t magic = reader_u32(&r);
    uint32_t transport_bytes = reader_u32(&r);
    out->endpoint = reader_u64(&r);
    if (r.failed || magic != ADDRESS_MAGIC)
        return error_set(e, PAWL_FORMAT, 0, "peer address: %zu bytes that do not start with the magic PNA1",
                         size);
    out->transport = reader_take(&r, transport_bytes);
    out->transport_bytes = transport_bytes;
    size_t covered = r.at;
    uint64_t sum = reader_u64(&r);
    if (!reader_done(&r))
        return error_set(e, PAWL_FORMAT, 0, "peer address: wanted %zu bytes, had %zu",
                         (size_t)transport_bytes + 24, size);
    if (sum != hash64(data, covered))
        return error_set(e, PAWL_FORMAT, 0, "peer address: checksum is %016llx, stored is %016llx",
                         (unsigned long long)hash64(data, covered), (unsigned long long)sum);
    return PAWL_OK;
}
