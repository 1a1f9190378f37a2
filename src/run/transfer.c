/* Implementation of run/transfer.h. */
#include "run/transfer.h"

#include <stdlib.h>
#include <string.h>

static uint64_t piece_count(const struct transfer *t) {
    return 1 + (t->bytes + TRANSFER_PIECE_BYTES - 1) / TRANSFER_PIECE_BYTES;
}

static size_t piece_at(const struct transfer *t, uint64_t piece, uint8_t **data) {
    if (piece == 0) {
        *data = (uint8_t *)t->words;
        return sizeof t->words;
    }
    size_t offset = (size_t)(piece - 1) * TRANSFER_PIECE_BYTES, left = t->bytes - offset;
    *data = t->data + offset;
    return left < TRANSFER_PIECE_BYTES ? left : TRANSFER_PIECE_BYTES;
}

static struct peers_name name_of(const struct transfer *t, uint64_t piece) {
    uint32_t first = t->kind == TRANSFER_GRAD ? TRANSFER_GRAD_PIPELINE : 0;
    return (struct peers_name){.step = t->version,
                               .kind = NET_STATE,
                               .pipeline = first + (uint32_t)(piece >> NET_MICROBATCH_BITS),
                               .stage = t->chunk,
                               .microbatch = (uint32_t)piece & ((1u << NET_MICROBATCH_BITS) - 1)};
}

static pawl_code begin_piece(struct transfer *t, struct peers *p, struct pawl_error *e) {
    uint64_t piece = t->next++;
    uint8_t *data;
    size_t bytes = piece_at(t, piece, &data);
    t->open++;
    if (t->sends)
        return peers_send(p, t->peer, name_of(t, piece), (struct peers_data){data, bytes}, PEERS_STATE_SEND,
                          t->id, e);
    /* 32 bits of the cookie name the transfer; the rest is what is expected, less than 2^24 */
    return peers_recv(p, name_of(t, piece), data, bytes,
                      peers_cookie(PEERS_STATE, (uint64_t)bytes << 32 | t->id), e);
}

static pawl_code move_on(struct transfer *t, struct peers *p, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK && t->open < TRANSFER_WINDOW && t->next < piece_count(t))
        code = begin_piece(t, p, e);
    return code;
}

pawl_code transfers_begin(struct transfers *t, struct peers *p, const struct transfer *what,
                          struct pawl_error *e) {
    if (piece_count(what) >> NET_MICROBATCH_BITS >= TRANSFER_GRAD_PIPELINE)
        return error_set(e, PAWL_UNSUPPORTED, 0, "%zu bytes of chunk %u: too many to be sent to a peer",
                         what->bytes, what->chunk);
    if (t->count == t->room) {
        uint32_t room = t->room * 2 + 4;
        struct transfer **items = realloc(t->items, room * sizeof *items);
        if (items == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u transfers", room);
        t->items = items;
        t->room = room;
    }
    struct transfer *one = malloc(sizeof *one);
    if (one == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a transfer");
    *one = *what;
    one->id = ++t->last_id;
    one->next = one->open = 0;
    t->items[t->count++] = one;
    return move_on(one, p, e);
}

pawl_code transfers_completion(struct transfers *t, struct peers *p, const struct net_completion *c,
                               struct transfer **ended, struct pawl_error *e) {
    *ended = NULL;
    uint32_t id = peers_sent(c->cookie), i = 0;
    while (i < t->count && t->items[i]->id != id) i++;
    if (i == t->count) return error_set(e, PAWL_INTERNAL, 0, "completion of transfer %u that is over", id);
    struct transfer *one = t->items[i];
    if (one->sends && c->code != PAWL_OK) one->next = piece_count(one); /* its peer is lost: no more of it */
    size_t expected = (size_t)(peers_own(c->cookie) >> 32);
    if (!one->sends && (c->code != PAWL_OK || c->bytes != expected))
        return error_set(e, PAWL_FORMAT, 0,
                         "state of chunk %u from rank %u: a piece of %zu bytes, expected %zu", one->chunk,
                         one->peer, c->bytes, expected);
    one->open--;
    pawl_code code = move_on(one, p, e);
    if (code != PAWL_OK || one->open > 0) return code;
    if (!one->sends && one->words[0] != one->version)
        return error_set(e, PAWL_FORMAT, 0, "state of chunk %u from rank %u: version %llu, expected %llu",
                         one->chunk, one->peer, (unsigned long long)one->words[0],
                         (unsigned long long)one->version);
    t->items[i] = t->items[--t->count];
    *ended = one;
    return PAWL_OK;
}

struct transfer *transfers_take(struct transfers *t) {
    return t->count > 0 ? t->items[--t->count] : NULL;
}

void transfers_close(struct transfers *t) {
    for (struct transfer *one; (one = transfers_take(t)) != NULL;) free(one);
    free(t->items);
    *t = (struct transfers){0};
}
