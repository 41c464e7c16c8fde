/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the interface between the simulator and the module node.c: the calls that the module
 * makes into the simulator, and those that the simulator makes into the module.
 */
#ifndef BRAID_TESTS_SIM_NODE_H
#define BRAID_TESTS_SIM_NODE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/msg/comm.h"
#include "core/setup/connect.h"
#include "core/setup/listen.h"
#include "core/setup/process.h"
#include "core/setup/service.h"

/* The libc functions beside braid_os that the simulator must see the product call. */
struct sim_host {
	void *(*alloc)(size_t size);
	void *(*resize)(void *p, size_t size);
	void (*release)(void *p);
	void (*yield)(void);
	int (*pid)(void);
};

struct sim_node {
	const struct braid_os **os;
	struct braid_params *param;
	const struct sim_host **host;

	void (*log_to)(braid_log_sink sink);
	int (*service_init)(void);
	void (*service_get)(void);
	void (*service_put)(void);
	int (*listen)(struct braid_dev *dev, void *handle, struct braid_listen **ret);
	struct braid_comm *(*accept)(struct braid_listen *l);
	void (*close_listen)(struct braid_listen *l);
	int (*connect)(struct braid_dev *dev, int traffic_class, void *handle,
		       struct braid_rma *rma, struct braid_comm **ret);
	int (*isend)(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
		     struct braid_mr *mr, struct braid_req **ret);
	int (*irecv)(struct braid_comm *c, unsigned n, void *const *data, const size_t *sizes,
		     const int *tags, struct braid_mr *const *mrs, struct braid_req **ret);
	int (*test)(struct braid_req *req, bool *ret_done, int *sizes);
	void (*close)(struct braid_comm *c);
};

/* The module's one symbol. */
extern const struct sim_node sim_node;

#endif
