/* The address blob that peers exchange: the endpoint's random name, and what its transport needs to reach
 * it, with a checksum, because a transport trusts the bytes it is given. Drawn in docs/formats/wire.md. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

#define ADDRESS_MAGIC 0x31414e50u /* "PNA1" read as little-endian */

struct address {
    uint64_t endpoint;
    const uint8_t *transport; /* into the decoded bytes */
    size_t transport_bytes;
};

void address_encode(uint64_t endpoint, const void *transport, size_t transport_bytes, struct bytes *out);
/* Errors: FORMAT. */
pawl_code address_decode(const void *data, size_t size, struct address *out, struct pawl_error *e);

#endif
