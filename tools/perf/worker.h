/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.h - the worker's end of a session (worker.c), and listeners (serve.c). */
#ifndef BRAID_TOOLS_PERF_WORKER_H
#define BRAID_TOOLS_PERF_WORKER_H

#include "tools/perf/fabric.h"

/* Obey the coordinator at `fd` until it ends; the process should then exit with the result. */
int perf_worker_main(int fd, const struct fabric_env *env);
/* Listen at addr ("[ADDR:]PORT"): a socket and its port, or -errno and a sentence. */
int perf_worker_listen(const char *addr, int *ret_port, char *err);
/* Print the port, and the line to type on the other host; key: its text, or NULL. */
void perf_listen_print(const char *prog, int fd, int port, const char *key);
/* May this worker's buffers take so many bytes?  All workers of a listener share one bound. */
bool perf_room(uint64_t bytes);
/* For a worker that will exit with an error: the listener is to report this reason. */
void perf_session_why(const char *why);
/*
 * Serve coordinators that know env->key, each by `worker` in a process of its own, until killed.
 * `once`: serve the first only.  until_fd >= 0: stop when that reaches its end.  prog: report each
 * session that fails; NULL: do not.
 */
typedef int perf_worker_fn(int fd, const struct fabric_env *env);
int perf_worker_serve(const char *prog, int listen_fd, const struct fabric_env *env,
		      perf_worker_fn *worker, bool pin, bool once, int until_fd);

/* Seconds after which the plugin gives up a peer that can't be connected to. */
unsigned perf_connect_s(void);

#endif
