/* Is a text well-formed XML, as far as our drawings use it: elements closed in order, attributes quoted and
 * once, known entities, no stray < or &, no control characters. Says where it is not. */
#ifndef XML_KIT_H
#define XML_KIT_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct xml_kit {
    const char *at;
    char open[32][24]; /* names of the elements around */
    int depth;
    uint64_t elements;
};

static inline bool xml_is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ':';
}

static inline void xml_fail(const struct xml_kit *x, const char *what) {
    fail_msg("%s at: %.60s", what, x->at);
}

static inline void xml_name(struct xml_kit *x, char out[24]) {
    size_t size = 0;
    while (xml_is_name(x->at[size])) size++;
    if (size == 0 || size > 23) xml_fail(x, "no name");
    memcpy(out, x->at, size);
    out[size] = 0;
    x->at += size;
}

static inline void xml_character(struct xml_kit *x) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    unsigned char c = (unsigned char)*x->at;
    if ((c < 0x20 && c != '\n') || c == 0x7f) xml_fail(x, "control character");
    if (c != '&') {
        x->at++;
        return;
    }
    for (size_t i = 0; i < 5; i++) {
        if (strncmp(x->at, entities[i], strlen(entities[i])) != 0) continue;
        x->at += strlen(entities[i]);
        return;
    }
    xml_fail(x, "unknown entity");
}

static inline void xml_attributes(struct xml_kit *x) {
    char names[12][24];
    int count = 0;
    while (*x->at == ' ') {
        x->at++;
        if (count == 12) xml_fail(x, "too many attributes");
        xml_name(x, names[count]);
        for (int i = 0; i < count; i++)
            if (strcmp(names[i], names[count]) == 0) xml_fail(x, "attribute twice");
        count++;
        if (strncmp(x->at, "=\"", 2) != 0) xml_fail(x, "no value");
        for (x->at += 2; *x->at != '"'; xml_character(x))
            if (*x->at == '<' || *x->at == 0) xml_fail(x, "bad value");
        x->at++;
    }
}

static inline void xml_tag(struct xml_kit *x) {
    char name[24];
    if (strncmp(x->at, "</", 2) == 0) {
        x->at += 2;
        xml_name(x, name);
        if (x->depth == 0 || strcmp(x->open[x->depth - 1], name) != 0) xml_fail(x, "closes what is not open");
        x->depth--;
        if (*x->at++ != '>') xml_fail(x, "no >");
        return;
    }
    x->at++;
    xml_name(x, name);
    xml_attributes(x);
    x->elements++;
    if (strncmp(x->at, "/>", 2) == 0) {
        x->at += 2;
        return;
    }
    if (*x->at++ != '>') xml_fail(x, "no >");
    if (x->depth == 32) xml_fail(x, "too deep");
    strcpy(x->open[x->depth++], name);
}

/* Returns the number of elements. */
static inline uint64_t xml_check(const char *text) {
    static const char head[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    struct xml_kit x = {.at = text};
    if (strncmp(text, head, sizeof head - 1) != 0) xml_fail(&x, "no declaration");
    x.at += sizeof head - 1;
    xml_tag(&x);
    while (x.depth > 0) {
        if (*x.at == 0) xml_fail(&x, "ends early");
        if (*x.at == '<')
            xml_tag(&x);
        else
            xml_character(&x);
    }
    if (strcmp(x.at, "\n") != 0) xml_fail(&x, "more after the end");
    return x.elements;
}

#endif
