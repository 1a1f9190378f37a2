/* The process around a worker: network, files, heartbeat, sleep. */
#ifndef RUN_WORKER_MAIN_H
#define RUN_WORKER_MAIN_H

/* Exit code of the process; `fd` is the control channel. */
int worker_main(int fd);

#endif
