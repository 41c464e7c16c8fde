/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h - questions about the device, for path.c, iwarp.c, smc.c, fault.c and stranger.c. */
#ifndef BRAID_TOOLS_VALIDATE_PATH_H
#define BRAID_TOOLS_VALIDATE_PATH_H

#include "tools/tcp.h"
#include "tools/validate/validate.h"

/* Is that Braid's first transport of the device? */
bool carried_by(struct validate *v, const char *transport);
/* Ask in a process that ends, because this one has not loaded the plugin yet. */
bool beforehand(struct validate *v, bool (*ask)(struct validate *v));
void needs_rdma(struct validate *v);	/* else the check is skipped */
/* Read a file of the device, or of its port, in /sys/class/infiniband. */
bool rdma_line(struct validate *v, const char *what, char *ret, size_t len);
/* The addresses of our own listening TCP sockets, at most n; returns how many. */
int listening(union tcp_addr *ret, int n);
uint64_t tcp_bytes(void);		/* sent by our TCP connections */
/* Move 16 MiB; how many of these bytes went over TCP. */
uint64_t payload_over_tcp(struct validate *v);

#endif
