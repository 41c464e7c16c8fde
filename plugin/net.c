/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.c - NCCL's calls over core/: contexts, devices and connections.
 *
 * Arguments are checked here.  A context lists its comms and listens; when it ends, it closes those
 * that NCCL has left open.
 */
#include "plugin/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/link/link.h"
#include "core/mem/later.h"
#include "core/mem/mrcache.h"
#include "core/msg/comm.h"
#include "core/msg/flush.h"
#include "core/setup/connect.h"
#include "core/setup/encrypt.h"
#include "core/setup/job_key.h"
#include "core/setup/listen.h"
#include "core/setup/process.h"
#include "core/setup/service.h"
#include "core/watch/stat.h"
#include "git-hash.h"
#include "plugin/device.h"
#include "plugin/net_int.h"

pthread_mutex_t braid_net_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(ncclDebugLogger_t) logger;
static struct context *shared;		/* for ABIs without contexts */
static int failed;			/* ABIs without contexts: the errno of init; 0: success */

static void to_nccl(enum braid_log_level level, const char *file, int line, const char *text)
{
	ncclDebugLogger_t log = atomic_load(&logger);

	if (log)
		log(level == BRAID_LOG_WARN ? NCCL_LOG_WARN :
		    level == BRAID_LOG_INFO ? NCCL_LOG_INFO : NCCL_LOG_TRACE,
		    NCCL_INIT | NCCL_NET, file, line, "%s", text);
}

/* --- contexts ------------------------------------------------------------------------------ */

static int start(ncclDebugLogger_t log)
{
	static const struct braid_service_hooks hooks = {
		.started = braid_stat_start, .ending = braid_stat_stop, .stalled = braid_stat_dump,
	};
	static bool logged;
	int err;

	if (log) {
		atomic_store(&logger, log);
		braid_log_to(to_nccl);
	}
	if (!logged)
		braid_info("version " BRAID_VERSION);
	logged = true;
	if (braid_net_forked())
		return -EPERM;
	err = braid_param_load();
	if (!err)
		err = braid_service_init(&hooks);
	if (!err)
		err = braid_job_key_load();
	if (!err) {
		braid_encrypt_start();
		err = braid_devices_find();
	}
	if (err > 0)
		braid_devices_gpu();
	return err < 0 ? err : 0;
}

static struct context *context_new(uint64_t comm_id, int traffic_class, ncclProfilerCallback_t prof)
{
	struct context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx) {
		braid_no_memory("a context");
		return NULL;
	}
	ctx->comm_id = comm_id;
	ctx->traffic_class = traffic_class;
	ctx->prof = prof;
	braid_list_init(&ctx->comms);
	braid_list_init(&ctx->listens);
	return ctx;
}

ncclResult_t braid_net_init(void **ret, uint64_t comm_id, int traffic_class, ncclDebugLogger_t log,
			    ncclProfilerCallback_t prof)
{
	struct context *ctx;
	int err;

	*ret = NULL;
	pthread_mutex_lock(&braid_net_lock);
	err = start(log);
	pthread_mutex_unlock(&braid_net_lock);
	if (err)
		return err == -EINVAL ? ncclInvalidUsage : braid_net_result(err);
	ctx = context_new(comm_id, traffic_class, prof);
	if (!ctx)
		return ncclSystemError;
	braid_service_get();
	*ret = ctx;
	return ncclSuccess;
}

void braid_net_init_shared(ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	pthread_mutex_lock(&braid_net_lock);
	failed = start(log);
	if (!failed && !shared)
		shared = context_new(0, NCCL_NET_TRAFFIC_CLASS_UNDEF, prof);
	if (!failed && !shared)
		failed = -ENOMEM;
	if (shared && prof)
		shared->prof = prof;
	pthread_mutex_unlock(&braid_net_lock);
}

static struct braid_listen *first_listen(struct context *ctx)
{
	struct braid_listen *l = NULL;

	pthread_mutex_lock(&braid_net_lock);
	if (!braid_list_empty(&ctx->listens)) {
		l = braid_list_entry(ctx->listens.next, struct braid_listen, ctx_node);
		braid_list_del(&l->ctx_node);
	}
	pthread_mutex_unlock(&braid_net_lock);
	return l;
}

static struct braid_comm *first_comm(struct context *ctx)
{
	struct braid_comm *c = NULL;

	pthread_mutex_lock(&braid_net_lock);
	if (!braid_list_empty(&ctx->comms)) {
		c = braid_list_entry(ctx->comms.next, struct braid_comm, ctx_node);
		braid_list_del(&c->ctx_node);
	}
	pthread_mutex_unlock(&braid_net_lock);
	return c;
}

/* Close a comm, and free the registrations that NCCL left, unless a NIC may still use them. */
static void comm_end(struct braid_comm *c)
{
	const struct braid_dev *dev = c->link->key.dev;
	struct braid_list mrs;
	struct braid_mr *mr, *tmp;

	braid_list_init(&mrs);
	pthread_mutex_lock(&braid_net_lock);
	braid_list_for_safe(mr, tmp, &c->mrs, node) {
		braid_list_del(&mr->node);
		braid_list_add_tail(&mrs, &mr->node);
	}
	pthread_mutex_unlock(&braid_net_lock);
	braid_flush_forget(c);
	braid_comm_close(c);
	if (braid_list_empty(&mrs) || braid_stops_wait(dev))
		return;
	braid_list_for_safe(mr, tmp, &mrs, node)
		braid_mr_free(mr);
}

/* A context's last comm is gone: log the totals of all devices. */
static void log_totals(void)
{
	pthread_mutex_lock(&braid_net_lock);
	braid_devices_log();
	pthread_mutex_unlock(&braid_net_lock);
}

ncclResult_t braid_net_finalize(void *opaque)
{
	struct context *ctx = opaque;
	struct braid_listen *l;
	struct braid_comm *c;

	if (!ctx)
		return ncclSuccess;
	if (braid_net_forked())
		return ncclSystemError;
	while ((c = first_comm(ctx)))
		comm_end(c);
	while ((l = first_listen(ctx)))
		braid_listen_close(l);
	log_totals();
	free(ctx);
	braid_service_put();
	return ncclSuccess;
}

/* --- devices ------------------------------------------------------------------------------- */

ncclResult_t braid_net_devices(int *ret_ndev)
{
	*ret_ndev = failed || braid_net_forked() ? 0 : (int)braid_devices_count();
	return ncclSuccess;
}

/* The PCI path by which NCCL finds the distance to GPUs; for a fused device, its first member's. */
static char *pci_path(struct braid_dev *dev)
{
	struct braid_dev *first = dev->member[0];
	char *path = first->gpu & BRAID_GPU_DIRECT && first->direct[0] ? first->direct :
									 first->net.pci_path;

	return path[0] ? path : NULL;
}

ncclResult_t braid_net_props(int index, struct braid_net_props *ret)
{
	struct braid_dev *dev = braid_device(index);

	if (!dev)
		return braid_net_misuse("getProperties of a device that does not exist");
	memset(ret, 0, sizeof(*ret));
	ret->name = dev->net.name;
	ret->pci_path = pci_path(dev);
	ret->guid = dev->net.guid;
	ret->ptr_support = NCCL_PTR_HOST | (dev->gpu & BRAID_GPU_REG ? NCCL_PTR_CUDA : 0) |
			   (dev->gpu & BRAID_GPU_DMABUF ? NCCL_PTR_DMABUF : 0);
	ret->force_flush = (dev->gpu && braid_param.gpu_flush == 2) ||
			   (dev->gpu & BRAID_GPU_DIRECT && braid_param.gpu_flush);
	ret->speed_mbps = dev->net.speed_mbps;
	ret->port = dev->net.port;
	ret->max_comms = 65536;
	ret->max_recvs = BRAID_RECVS_MAX;
	ret->ndevs = (int)dev->nmembers;
	for (unsigned i = 0; i < dev->nmembers; i++)
		ret->devs[i] = (int)dev->member[i]->index;
	ret->max_p2p_bytes = BRAID_MSG_MAX;
	ret->max_coll_bytes = BRAID_MSG_MAX;
	ret->max_multi_request = 1;
	ret->rail = dev->rail;
	ret->plane = dev->plane;
	return ncclSuccess;
}

ncclResult_t braid_net_fuse(int *ret_dev, int n, const int *devs)
{
	int index;

	if (braid_net_forked())
		return ncclSystemError;
	if (!ret_dev || !devs || n < 1)
		return braid_net_misuse("makeVDevice");
	index = braid_devices_fuse((unsigned)n, devs);
	if (index == -EINVAL) {
		braid_info("makeVDevice: %d devices can't be made one; at most %d that are there, "
			   "and not made of others themselves", n, BRAID_PATHS_MAX);
	}
	if (index < 0)
		return ncclInvalidUsage;
	*ret_dev = index;
	return ncclSuccess;
}

/* --- connections --------------------------------------------------------------------------- */

ncclResult_t braid_net_listen(void *opaque, int index, void *handle, void **ret_listen)
{
	struct context *ctx = opaque ? opaque : shared;
	struct braid_dev *dev = braid_device(index);
	struct braid_listen *l = NULL;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!ctx || !dev || !handle || !ret_listen)
		return braid_net_misuse("listen");
	*ret_listen = NULL;
	err = braid_listen_new(dev, handle, &l);
	if (err)
		return braid_net_result(err);
	pthread_mutex_lock(&braid_net_lock);
	l->ctx = ctx;
	braid_list_add_tail(&ctx->listens, &l->ctx_node);
	pthread_mutex_unlock(&braid_net_lock);
	*ret_listen = l;
	return ncclSuccess;
}

static void adopt(struct context *ctx, struct braid_comm *c)
{
	pthread_mutex_lock(&braid_net_lock);
	c->ctx = ctx;
	braid_list_add_tail(&ctx->comms, &c->ctx_node);
	pthread_mutex_unlock(&braid_net_lock);
}

ncclResult_t braid_net_connect(void *opaque, int index, int traffic_class, void *handle,
			       void **ret_send)
{
	struct context *ctx = opaque ? opaque : shared;
	struct braid_dev *dev = braid_device(index);
	struct braid_comm *c = NULL;
	int err;

	if (braid_net_forked())
		return ncclSystemError;
	if (!ctx || !dev || !handle || !ret_send)
		return braid_net_misuse("connect");
	*ret_send = NULL;
	if (traffic_class == NCCL_NET_TRAFFIC_CLASS_UNDEF)
		traffic_class = ctx->traffic_class;
	err = braid_connect(dev, traffic_class < 0 ? -1 : traffic_class & 0xff, handle, NULL,
			    &c);
	if (err)
		return braid_net_result(err);
	if (c) {
		adopt(ctx, c);
		*ret_send = c;
	}
	return ncclSuccess;
}

ncclResult_t braid_net_accept(void *listen_comm, void **ret_recv)
{
	struct braid_listen *l = listen_comm;
	struct braid_comm *c;

	if (braid_net_forked())
		return ncclSystemError;
	if (!l || !ret_recv)
		return braid_net_misuse("accept");
	c = braid_listen_accept(l);
	if (c)
		adopt(l->ctx, c);
	*ret_recv = c;
	return ncclSuccess;
}

static ncclResult_t close_comm(struct braid_comm *c)
{
	const struct context *ctx;
	bool last;

	if (!c)
		return ncclSuccess;
	if (braid_net_forked())
		return ncclSystemError;
	pthread_mutex_lock(&braid_net_lock);
	ctx = c->ctx;
	braid_list_del(&c->ctx_node);
	last = braid_list_empty(&ctx->comms);
	pthread_mutex_unlock(&braid_net_lock);
	comm_end(c);
	if (last)
		log_totals();
	return ncclSuccess;
}

ncclResult_t braid_net_close_send(void *comm)
{
	return close_comm(comm);
}

ncclResult_t braid_net_close_recv(void *comm)
{
	return close_comm(comm);
}

ncclResult_t braid_net_close_listen(void *listen_comm)
{
	struct braid_listen *l = listen_comm;

	if (!l)
		return ncclSuccess;
	if (braid_net_forked())
		return ncclSystemError;
	pthread_mutex_lock(&braid_net_lock);
	braid_list_del(&l->ctx_node);
	pthread_mutex_unlock(&braid_net_lock);
	braid_listen_close(l);
	return ncclSuccess;
}
