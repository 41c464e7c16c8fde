/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c - one-sided puts and gets for NCCL, over core/setup/coll.h.
 *
 * Arguments are checked here.  NCCL's "group" (collComm) is a communicator of core/setup/coll.h, a
 * registration one of its windows, and a context a range of orders.
 */
#include "plugin/rma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/link/reads.h"
#include "core/proto/frame.h"
#include "core/setup/coll.h"
#include "plugin/device.h"
#include "plugin/net_int.h"

enum { CONTEXTS_MAX = 4096 };		/* of one call; NCCL makes a few */

struct rma_context {			/* what NCCL holds for all contexts of one call */
	struct rma_context *next;
	struct braid_coll *coll;
	int n;
	uint8_t order[];
};

static struct rma_context *contexts;	/* all that live, under braid_net_lock */

ncclResult_t braid_rma_init(void **ret_ctx, uint64_t comm_id, ncclDebugLogger_t log)
{
	return braid_net_init(ret_ctx, comm_id, NCCL_NET_TRAFFIC_CLASS_UNDEF, log, NULL);
}

ncclResult_t braid_rma_finalize(void *ctx)
{
	return braid_net_finalize(ctx);
}

/* --- devices ------------------------------------------------------------------------------- */

/* NULL: NCCL may use Braid for RMA; else why not. */
static const char *declined(void)
{
	if (!strcmp(braid_param.rma, "off"))
		return "BRAID_RMA=off";
	if (!strcmp(braid_param.rma, "auto") && !braid_param.ib_disable && braid_devices_ib())
		return "NCCL's own RMA serves the InfiniBand or RoCE port that is here; with "
		       "BRAID_RMA=on Braid does";
	return NULL;
}

ncclResult_t braid_rma_devices(int *ret_ndev)
{
	static bool logged;
	const char *why;

	*ret_ndev = 0;
	if (braid_net_forked())
		return ncclSuccess;
	why = declined();
	if (!why) {
		*ret_ndev = (int)braid_devices_plain();
		braid_reads_allow();
	}
	pthread_mutex_lock(&braid_net_lock);
	if (why && !logged)
		braid_info("one-sided operations (RMA) are not offered to NCCL: %s", why);
	logged |= why != NULL;
	pthread_mutex_unlock(&braid_net_lock);
	return ncclSuccess;
}

ncclResult_t braid_rma_props(int dev, struct braid_net_props *ret)
{
	return braid_net_props(dev, ret);
}

/* --- communicators ------------------------------------------------------------------------- */

ncclResult_t braid_rma_listen(void *ctx, int index, void *handle, void **ret_listen)
{
	struct braid_dev *dev = braid_device(index);
	struct braid_coll *coll = NULL;
	int err;

	(void)ctx;
	if (braid_net_forked())
		return ncclSystemError;
	if (!dev || !handle || !ret_listen)
		return braid_net_misuse("RMA listen");
	err = braid_coll_listen(dev, handle, &coll);
	*ret_listen = coll;
	return braid_net_result(err);
}

ncclResult_t braid_rma_connect(void *const *handles, int nranks, int rank, void *listen,
			       void **ret_coll)
{
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!handles || nranks < 1 || rank < 0 || rank >= nranks || !listen || !ret_coll)
		return braid_net_misuse("RMA connect");
	err = braid_coll_connect(listen, handles, (unsigned)nranks, (unsigned)rank);
	*ret_coll = err ? NULL : listen;
	return braid_net_result(err);
}

ncclResult_t braid_rma_context(void *coll, int n, int traffic_class, int rank_stride,
			       void **ret_ctx)
{
	struct rma_context *ctx;

	(void)rank_stride;		/* no rank costs anything before it is used */
	if (braid_net_forked())
		return ncclSystemError;
	if (!coll || n < 1 || n > CONTEXTS_MAX || !ret_ctx)
		return braid_net_misuse("RMA createContext");
	*ret_ctx = NULL;
	ctx = calloc(1, sizeof(*ctx) + (size_t)n);
	if (!ctx)
		return braid_net_result(braid_no_memory("a context"));
	ctx->coll = coll;
	ctx->n = n;
	for (int i = 0; i < n; i++)
		ctx->order[i] = braid_coll_order(coll);
	if (traffic_class >= 0)
		braid_coll_set_class(coll, traffic_class & 0xff);
	pthread_mutex_lock(&braid_net_lock);
	ctx->next = contexts;
	contexts = ctx;
	pthread_mutex_unlock(&braid_net_lock);
	*ret_ctx = ctx;
	return ncclSuccess;
}

/* Free one context, or with `ctx` NULL all of `coll`: NCCL may close it with contexts left. */
static void contexts_free(const void *ctx, const struct braid_coll *coll)
{
	struct rma_context **at = &contexts, *c;

	pthread_mutex_lock(&braid_net_lock);
	while ((c = *at)) {
		if (ctx ? c != ctx : c->coll != coll) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
	pthread_mutex_unlock(&braid_net_lock);
}

ncclResult_t braid_rma_context_end(void *ctx)
{
	if (braid_net_forked())
		return ncclSystemError;
	if (ctx)
		contexts_free(ctx, NULL);
	return ncclSuccess;
}

ncclResult_t braid_rma_close_coll(void *coll)
{
	if (braid_net_forked())
		return ncclSystemError;
	if (coll) {
		contexts_free(NULL, coll);
		braid_coll_close(coll);
	}
	return ncclSuccess;
}

ncclResult_t braid_rma_close_listen(void *listen)
{
	if (braid_net_forked())
		return ncclSystemError;
	if (listen)
		braid_coll_close_listen(listen);
	return ncclSuccess;
}

/* --- memory -------------------------------------------------------------------------------- */

static ncclResult_t reg(struct braid_coll *coll, struct braid_mem *mem, int type, uint64_t flags,
			void **ret_mh)
{
	struct braid_rma_window *w = NULL;
	int err;

	*ret_mh = NULL;
	if (mem->size > BRAID_MSG_MAX || (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA))
		return braid_net_misuse("RMA regMrSym");
	if (type == NCCL_PTR_CUDA)
		braid_net_find_gpu(mem);
	err = braid_coll_open(coll, mem, flags & NCCL_RMA_FORCE_SO, flags & NCCL_RMA_NEVER_RESET,
			      &w);
	*ret_mh = w;
	return braid_net_result(err);
}

ncclResult_t braid_rma_reg(void *coll, void *data, size_t size, int type, uint64_t flags,
			   void **ret_mh)
{
	struct braid_mem mem = { .data = data, .size = size, .readable = true, .fd = -1 };

	if (braid_net_forked())
		return ncclSystemError;
	return coll && ret_mh ? reg(coll, &mem, type, flags, ret_mh) :
				braid_net_misuse("RMA regMrSym");
}

ncclResult_t braid_rma_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset,
				  int fd, uint64_t flags, void **ret_mh)
{
	struct braid_mem mem = {
		.data = data, .size = size, .readable = true, .fd = fd, .offset = offset,
	};

	if (braid_net_forked())
		return ncclSystemError;
	return coll && ret_mh ? reg(coll, &mem, type, flags, ret_mh) :
				braid_net_misuse("RMA regMrSymDmaBuf");
}

ncclResult_t braid_rma_dereg(void *coll, void *mh)
{
	if (braid_net_forked())
		return ncclSystemError;
	if (!coll || !mh)
		return ncclSuccess;
	return braid_net_result(braid_coll_close_window(coll, mh));
}

/* --- operations ---------------------------------------------------------------------------- */

static bool is_context(const struct rma_context *ctx, int i)
{
	return ctx && i >= 0 && i < ctx->n;
}

ncclResult_t braid_rma_put(void *opaque, int context, const struct braid_rma_put *put,
			   void **ret_req)
{
	struct rma_context *ctx = opaque;
	struct braid_rma_op *op = NULL;
	struct braid_put p;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!is_context(ctx, context) || !ret_req || (put->has_signal && !put->signal))
		return braid_net_misuse("RMA iput");
	*ret_req = NULL;
	p = (struct braid_put){
		.rank = put->rank, .order = ctx->order[context],
		.src = put->src, .dst = put->dst, .src_off = put->src_off,
		.dst_off = put->dst_off, .size = put->size,
		.word = put->has_signal ? put->signal : NULL, .word_off = put->signal_off,
		.value = put->op == NCCL_RMA_SIGNAL_INC ? 1 : put->value,
		.strong = put->strong, .more = put->flags & NCCL_RMA_AGGREGATE,
	};
	err = braid_coll_put(ctx->coll, &p, &op);
	*ret_req = op;
	return err == -EINVAL ? braid_net_misuse("RMA iput") : braid_net_result(err);
}

ncclResult_t braid_rma_get(void *opaque, int context, uint64_t remote_off, void *remote,
			   size_t size, uint64_t local_off, void *local, uint32_t rank,
			   uint32_t flags, void **ret_req)
{
	struct rma_context *ctx = opaque;
	struct braid_rma_op *op = NULL;
	struct braid_get g;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!is_context(ctx, context) || !ret_req || !remote || !local)
		return braid_net_misuse("RMA iget");
	*ret_req = NULL;
	g = (struct braid_get){
		.rank = rank, .order = ctx->order[context], .remote = remote, .local = local,
		.remote_off = remote_off, .local_off = local_off, .size = size,
		.more = flags & NCCL_RMA_AGGREGATE,
	};
	err = braid_coll_get(ctx->coll, &g, &op);
	*ret_req = op;
	return err == -EINVAL ? braid_net_misuse("RMA iget") : braid_net_result(err);
}

ncclResult_t braid_rma_flush(void *opaque, int context, void *mh, uint32_t rank, void **ret_req)
{
	struct rma_context *ctx = opaque;
	struct braid_rma_op *op = NULL;
	int err = 0;

	(void)rank;			/* all that NICs wrote, whoever sent it */
	if (braid_net_forked())
		return ncclSystemError;
	if (!is_context(ctx, context) || !ret_req)
		return braid_net_misuse("RMA iflush");
	if (mh && braid_param.gpu_flush)
		err = braid_coll_flush(ctx->coll, mh, &op);
	*ret_req = op;
	return braid_net_result(err);
}

ncclResult_t braid_rma_test(void *coll, void *req, int *done)
{
	int res;

	if (braid_net_forked())
		return ncclSystemError;
	if (!coll || !req || !done)
		return braid_net_misuse("RMA test");
	res = braid_coll_test(coll, req);
	*done = res > 0;
	return res < 0 ? braid_net_result(res) : ncclSuccess;
}

ncclResult_t braid_rma_progress(void *opaque)
{
	struct rma_context *ctx = opaque;

	if (braid_net_forked())
		return ncclSystemError;
	return ctx ? braid_net_result(braid_coll_progress(ctx->coll)) :
		     braid_net_misuse("rmaProgress");
}

ncclResult_t braid_rma_last_error(void *opaque, bool *ret_failed)
{
	const struct rma_context *ctx = opaque;

	if (!ctx || !ret_failed)
		return braid_net_misuse("RMA queryLastError");
	*ret_failed = braid_coll_error(ctx->coll) != 0;
	return ncclSuccess;
}
