/* SPDX-License-Identifier: BSD-3-Clause */
/* req.h - test a request, and free it once it is done, as NCCL's test() does. */
#ifndef BRAID_TESTS_REQ_H
#define BRAID_TESTS_REQ_H

#include <stdbool.h>

#include "core/msg/comm.h"

/* 0 and *ret_done, or the comm's error.  sizes: as for braid_comm_finish(). */
static inline int req_test(struct braid_req *req, bool *ret_done, int *sizes)
{
	int res = braid_comm_test(req);

	*ret_done = res > 0;
	if (res <= 0)
		return res;
	braid_comm_finish(req, sizes);
	return 0;
}

#endif
