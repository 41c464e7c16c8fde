/* SPDX-License-Identifier: BSD-3-Clause */
/* net_data.c - NCCL's sends, receives and flushes, reported to its profiler. */
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/msg/flush.h"
#include "core/msg/comm.h"
#include "plugin/net_int.h"

/* Upper half: the owner of the event types (1 and 2: NCCL); lower half: their data's version. */
enum { PROFILER_ID = 'B' << 16 | 1 };

/* A negative int from an old ABI arrives sign-extended, and is printed as the int that it was. */
static ncclResult_t bad_size(const char *call, size_t size)
{
	braid_warn("%s of %lld bytes: a message has 0 to %llu [bad-size]", call, (long long)size,
		   (unsigned long long)BRAID_MSG_MAX);
	return ncclInvalidUsage;
}

/* Start the profiler's event of part i.  Without one, req->user[i] stays NULL. */
static void prof_start(const struct braid_comm *c, struct braid_req *req, unsigned i, void *phandle)
{
	const struct context *ctx = c->ctx;

	if (phandle && ctx->prof)
		ctx->prof(&req->user[i], NCCL_PROFILER_START, phandle, PROFILER_ID, NULL);
}

static BRAID_APART void prof_stop(const struct context *ctx, struct braid_req *req)
{
	for (unsigned i = 0; i < req->n; i++) {
		if (req->user[i])
			ctx->prof(&req->user[i], NCCL_PROFILER_STOP, NULL, PROFILER_ID, NULL);
		req->user[i] = NULL;
	}
}

BRAID_HOT ncclResult_t braid_net_isend(void *comm, void *data, size_t size, int tag, void *mr,
				       void *phandle, void **ret_req)
{
	struct braid_comm *c = comm;
	struct braid_req *req;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!c || !ret_req || !c->sender || (size && !data))
		return braid_net_misuse("isend");
	*ret_req = NULL;
	if (size > BRAID_MSG_MAX)
		return bad_size("isend", size);
	err = braid_comm_isend(c, data, size, tag, mr, &req);
	if (!err && req) {
		prof_start(c, req, 0, phandle);
		*ret_req = req;
	}
	return braid_net_result(err);
}

BRAID_HOT ncclResult_t braid_net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
				       void **mrs, void **phandles, void **ret_req)
{
	struct braid_comm *c = comm;
	struct braid_req *req;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!c || !ret_req || c->sender || n < 1 || n > BRAID_RECVS_MAX || !data || !sizes || !tags)
		return braid_net_misuse("irecv");
	*ret_req = NULL;
	for (int i = 0; i < n; i++) {
		if (sizes[i] > BRAID_MSG_MAX)
			return bad_size("irecv", sizes[i]);
	}
	err = braid_comm_irecv(c, (unsigned)n, data, sizes, tags, (struct braid_mr *const *)mrs,
			       &req);
	if (err || !req)
		return braid_net_result(err);
	for (int i = 0; phandles && i < n; i++)
		prof_start(c, req, (unsigned)i, phandles[i]);
	*ret_req = req;
	return ncclSuccess;
}

ncclResult_t braid_net_iflush(void *comm, int n, void **data, int *sizes, void **mrs,
			      void **ret_req)
{
	struct braid_req *req = NULL;
	int err = 0;

	if (braid_net_forked())
		return ncclSystemError;
	if (!comm || !ret_req || n > BRAID_RECVS_MAX || (n > 0 && (!data || !sizes || !mrs)))
		return braid_net_misuse("iflush");
	*ret_req = NULL;
	if (n > 0 && braid_param.gpu_flush)
		err = braid_flush_start(comm, (unsigned)n, data, sizes,
					(struct braid_mr *const *)mrs, &req);
	*ret_req = req;
	return braid_net_result(err);
}

static BRAID_APART ncclResult_t test_flush(struct braid_req *req, int *done)
{
	bool is_done;
	int err = braid_flush_test(req, &is_done);

	*done = !err && is_done;
	return braid_net_result(err);
}

BRAID_HOT ncclResult_t braid_net_test(void *opaque, int *done, int *sizes)
{
	struct braid_req *req = opaque;
	const struct context *ctx;
	int res;

	if (braid_net_forked())
		return ncclSystemError;
	if (!req || !done)
		return braid_net_misuse("test");
	*done = 0;
	if (req->flush)
		return test_flush(req, done);
	res = braid_comm_test(req);
	if (res <= 0)
		return braid_net_result(res);
	ctx = req->comm->ctx;
	if (ctx->prof)
		prof_stop(ctx, req);
	braid_comm_finish(req, sizes);
	*done = 1;
	return ncclSuccess;
}
