/* A knob of the simulated network for this module's own tests; its public face is in net/net.h. */
#ifndef NET_SIM_H
#define NET_SIM_H

#include "net/net.h"

/* Frames of endpoints opened from now on hold this many bytes at most (raised to what an announcement
 * needs), so that small messages travel in many pieces. Without this call every message is one frame. */
void netsim_limit_frames(struct netsim *sim, size_t frame_bytes);

#endif
