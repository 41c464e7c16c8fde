/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h - what path.c can tell iwarp.c, smc.c and fault.c of the device. */
#ifndef BRAID_TOOLS_VALIDATE_PATH_H
#define BRAID_TOOLS_VALIDATE_PATH_H

#include "tools/tcp.h"
#include "tools/validate/validate.h"

/* Braid's first transport of the device is that. */
bool carried_by(struct validate *v, const char *transport);
/* Ask in a process that ends: this one has not loaded the plugin yet. */
bool beforehand(struct validate *v, bool (*ask)(struct validate *v));
void needs_rdma(struct validate *v);	/* or the check is skipped */
/* A file of the device's, or of its port's, in /sys/class/infiniband. */
bool rdma_line(struct validate *v, const char *what, char *ret, size_t len);
/* Our own listening sockets over TCP: at most n addresses; how many. */
int listening(union tcp_addr *ret, int n);
uint64_t tcp_bytes(void);		/* our TCP connections have sent */
/* 16 MiB are moved; how many bytes of it went over TCP. */
uint64_t payload_over_tcp(struct validate *v);

#endif
