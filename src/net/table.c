/* Implementation of net/table.h. */
#include "net/table.h"

#include <stdlib.h>

#define TABLE_BUCKETS_MIN 64u

static struct table_node **chain_of(struct table *t, uint64_t key) {
    /* Tags differ in few low and middle bits: multiply (Fibonacci hashing) and keep the upper half. */
    return &t->buckets[(size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (t->bucket_count - 1)];
}

bool table_init(struct table *t) {
    *t = (struct table){.bucket_count = TABLE_BUCKETS_MIN};
    t->buckets = calloc(t->bucket_count, sizeof *t->buckets);
    return t->buckets != NULL;
}

void table_close(struct table *t) {
    free(t->buckets);
    *t = (struct table){0};
}

static void append(struct table *t, struct table_node *node) {
    struct table_node **at = chain_of(t, node->key);
    while (*at != NULL) at = &(*at)->next;
    node->next = NULL;
    *at = node;
}

static void grow(struct table *t) {
    struct table wider = {.bucket_count = 2 * t->bucket_count, .count = t->count};
    wider.buckets = calloc(wider.bucket_count, sizeof *wider.buckets);
    if (wider.buckets == NULL) return;
    for (size_t i = 0; i < t->bucket_count; i++) {
        for (struct table_node *node = t->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            append(&wider, node);
        }
    }
    free(t->buckets);
    *t = wider;
}

void table_put(struct table *t, uint64_t key, struct table_node *node) {
    if (t->count >= t->bucket_count) grow(t);
    node->key = key;
    append(t, node);
    t->count++;
}

struct table_node *table_take(struct table *t, uint64_t key) {
    for (struct table_node **at = chain_of(t, key); *at != NULL; at = &(*at)->next) {
        struct table_node *node = *at;
        if (node->key != key) continue;
        *at = node->next;
        t->count--;
        return node;
    }
    return NULL;
}

void table_remove(struct table *t, struct table_node *node) {
    struct table_node **at = chain_of(t, node->key);
    while (*at != node) at = &(*at)->next;
    *at = node->next;
    t->count--;
}

void table_sweep(struct table *t, bool (*match)(const struct table_node *, const void *),
                 void (*drop)(struct table_node *), const void *context) {
    for (size_t i = 0; i < t->bucket_count; i++) {
        for (struct table_node **at = &t->buckets[i]; *at != NULL;) {
            struct table_node *node = *at;
            if (!match(node, context)) {
                at = &node->next;
                continue;
            }
            *at = node->next;
            t->count--;
            drop(node);
        }
    }
}
