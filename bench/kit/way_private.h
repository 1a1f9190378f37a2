/* The parts of a way that are a file of their own: the two ways that are not pawl's. */
#ifndef KIT_WAY_PRIVATE_H
#define KIT_WAY_PRIVATE_H

#include "kit/way.h"

void plain_open(struct way *w);
void plain_save(struct way *w, uint32_t version);
void plain_fence(struct way *w);
bool plain_is_busy(struct way *w);
void plain_drain(struct way *w);
void plain_close(struct way *w);

#endif
