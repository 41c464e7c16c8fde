/* SPDX-License-Identifier: BSD-3-Clause */
/* port.h - a device as UCX uses it: a context that is bound to it. */
#ifndef BRAID_UCX_PORT_H
#define BRAID_UCX_PORT_H

#include "core/dev.h"
#include "ucx/lib.h"

struct braid_ucx_port {
	ucp_context_h ctx;
	char nets[256];			/* UCX's names of the device and its ports */
	bool rdma;			/* one of `nets` is an RDMA port, or may be */
	bool gpu;			/* UCX takes memory of GPUs as it is */
};

extern const struct braid_gpu braid_ucx_gpu;

int braid_ucx_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len);

static inline struct braid_ucx_port *braid_ucx_port_of(const struct braid_dev *dev)
{
	return dev->port[BRAID_TRANSPORT_UCX];
}

/* WARN once if UCX, whose first worker is being made, listens on TCP ports of its own. */
void braid_ucx_warn_listens(void);

#endif
