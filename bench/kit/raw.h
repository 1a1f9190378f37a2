/* The device by itself (bench/raw_device.h) as a thing to open, write and close: the yardstick for rates, and
 * the fastest writer that the synchronous and the CheckFreq-like way can have. */
#ifndef KIT_RAW_H
#define KIT_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raw_device;

/* Ends the program where O_DIRECT or io_uring is not to be had. choose: try shapes (writes the bytes two
 * dozen times) and keep the fastest; else 8 pieces of 4 MiB in flight. */
struct raw_device *raw_open(const char *folder, size_t bytes, bool choose);
/* Into the next of its files. `data` is page-aligned and usable up to the next whole page; durable at the
 * end. */
void raw_write(struct raw_device *r, const void *data);
/* The files go too. */
void raw_close(struct raw_device *r);

#endif
