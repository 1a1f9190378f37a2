/* The few requests of the kernel's device mapper that the guest needs; there is no dmsetup in it. The
 * interface is linux/dm-ioctl.h. */
#ifndef GUEST_DM_H
#define GUEST_DM_H

#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DM_ROOM 2048u /* of one request with its arguments */

union dm_request {
    struct dm_ioctl head;
    uint64_t align;
    char room[DM_ROOM];
};

static inline void dm_request_init(union dm_request *r, const char *name) {
    memset(r, 0, sizeof *r);
    r->head.version[0] = DM_VERSION_MAJOR;
    r->head.data_size = sizeof *r;
    r->head.data_start = sizeof r->head;
    snprintf(r->head.name, sizeof r->head.name, "%s", name);
}

/* 0 or an errno. */
static inline int dm_call(unsigned long what, union dm_request *r) {
    int fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = ioctl(fd, what, r) == 0 ? 0 : errno;
    close(fd);
    return result;
}

/* A device of one target. Its node is /dev/dm-0 for the first. */
static inline int dm_create(const char *name, const char *target, uint64_t sectors, const char *arguments) {
    union dm_request r;
    dm_request_init(&r, name);
    int result = dm_call(DM_DEV_CREATE, &r);
    if (result != 0) return result;
    dm_request_init(&r, name);
    struct dm_target_spec spec = {.length = sectors};
    snprintf(spec.target_type, sizeof spec.target_type, "%s", target);
    size_t at = sizeof r.head, length = strlen(arguments) + 1;
    if (at + sizeof spec + length > sizeof r.room) return E2BIG;
    spec.next = (uint32_t)((sizeof spec + length + 7) & ~(size_t)7);
    memcpy(r.room + at, &spec, sizeof spec);
    memcpy(r.room + at + sizeof spec, arguments, length);
    r.head.target_count = 1;
    result = dm_call(DM_TABLE_LOAD, &r);
    if (result != 0) return result;
    dm_request_init(&r, name);
    return dm_call(DM_DEV_SUSPEND, &r); /* without the suspend flag it resumes: the table gets alive */
}

static inline int dm_message(const char *name, const char *text) {
    union dm_request r;
    dm_request_init(&r, name);
    size_t at = sizeof r.head + sizeof(struct dm_target_msg), length = strlen(text) + 1;
    if (at + length > sizeof r.room) return E2BIG;
    memcpy(r.room + at, text, length); /* its head, the sector, stays 0 */
    return dm_call(DM_TARGET_MSG, &r);
}

static inline int dm_remove(const char *name) {
    union dm_request r;
    dm_request_init(&r, name);
    return dm_call(DM_DEV_REMOVE, &r);
}

#endif
