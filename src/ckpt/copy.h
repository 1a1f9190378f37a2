/* What stands behind pawl_copy_done: whoever begins copies embeds this and is called back. */
#ifndef CKPT_COPY_H
#define CKPT_COPY_H

#include <pawl/tensor.h>

struct pawl_copy {
    /* Called by pawl_copy_done, from any thread, once. */
    void (*done)(struct pawl_copy *copy, pawl_code code);
};

#endif
