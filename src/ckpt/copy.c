/* The end of a copy, handed to whoever began it. See ckpt/copy.h. */
#include "ckpt/copy.h"

void pawl_copy_done(struct pawl_copy *copy, pawl_code code) { copy->done(copy, code); }
