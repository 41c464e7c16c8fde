/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.h - the interface between the simulator and the module node.c: the calls that the module
 * makes into the simulator, and those that the simulator makes into the module.
 */
#ifndef BRAID_TESTS_SIM_NODE_H
#define BRAID_TESTS_SIM_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/msg/comm.h"
#include "core/setup/coll.h"
#include "core/setup/connect.h"
#include "core/setup/listen.h"
#include "core/setup/process.h"
#include "core/setup/service.h"

/* Faults that the module has on demand. */
enum sim_plant {
	SIM_PLANT_NONE,
	SIM_PLANT_EARLY,		/* strong signals overtake */
	SIM_PLANT_TWICE,		/* or are added twice */
	SIM_PLANT_LOST,			/* or not at all */
	SIM_PLANT_DONE,			/* requests are done at once */
	SIM_PLANT_LATE,			/* a window is written after it was closed */
	SIM_PLANTS,
};

/* The libc functions beside braid_os that the simulator must see the product call. */
struct sim_host {
	void *(*alloc)(size_t size);
	void *(*resize)(void *p, size_t size);
	void (*release)(void *p);
	void (*yield)(void);
	int (*pid)(void);
	bool (*plant)(enum sim_plant which);	/* have that fault now? */
	int (*slow_lane)(unsigned nlanes);	/* the lane whose path is slow; -1: none */
	void (*looks)(void);		/* the service thread looks at a link */
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

	int (*coll_listen)(struct braid_dev *dev, void *handle, struct braid_coll **ret);
	int (*coll_connect)(struct braid_coll *coll, void *const *handles, unsigned nranks,
			    unsigned rank);
	void (*coll_close_listen)(struct braid_coll *coll);
	void (*coll_close)(struct braid_coll *coll);
	uint8_t (*coll_order)(struct braid_coll *coll);
	int (*coll_open)(struct braid_coll *coll, const struct braid_mem *mem, bool signals,
			 bool never_reset, struct braid_rma_window **ret);
	int (*coll_close_window)(struct braid_coll *coll, struct braid_rma_window *w);
	int (*coll_put)(struct braid_coll *coll, const struct braid_put *put,
			struct braid_rma_op **ret);
	int (*coll_get)(struct braid_coll *coll, const struct braid_get *get,
			struct braid_rma_op **ret);
	int (*coll_test)(struct braid_coll *coll, struct braid_rma_op *op);
	int (*coll_progress)(struct braid_coll *coll);
};

/* The module's one symbol. */
extern const struct sim_node sim_node;

#endif
