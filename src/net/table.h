/* A hash from tag to a queue: things filed under the same key come out in the order they went in.
 * Intrusive: the node is the first member of what it files; the table owns only its buckets and never
 * fails after table_init (it then grows when it can and gets slower when it cannot). */
#ifndef NET_TABLE_H
#define NET_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
    uint64_t key;
    struct table_node *next;
};

struct table {
    struct table_node **buckets; /* chains, oldest first among equal keys */
    size_t bucket_count;         /* a power of two */
    size_t count;
};

bool table_init(struct table *t);  /* false without memory */
void table_close(struct table *t); /* accepts all zero; the nodes stay their owners' */
void table_put(struct table *t, uint64_t key, struct table_node *node);
/* Oldest node of `key`, taken out; null if there is none. */
struct table_node *table_take(struct table *t, uint64_t key);
/* Take out exactly this node; it must be in the table. */
void table_remove(struct table *t, struct table_node *node);
/* Take out every node for which `match` says true and give it to `drop`. */
void table_sweep(struct table *t, bool (*match)(const struct table_node *, const void *),
                 void (*drop)(struct table_node *), const void *context);

#endif
