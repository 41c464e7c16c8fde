/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.c - NCCL's calls over core/: check arguments, keep contexts, turn errno into ncclResult_t
 * (here and nowhere else), and report to NCCL's profiler.
 */
#include "plugin/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/msg/comm.h"
#include "core/mem/flush.h"
#include "core/mem/later.h"
#include "core/link/link.h"
#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/setup/service.h"
#include "gdr/cuda.h"
#include "plugin/device.h"

/* Upper half: the owner of the event types (1 and 2: NCCL); lower half: their data's version. */
enum { PROFILER_ID = 'B' << 16 | 1 };

struct context {
	uint64_t comm_id;
	int traffic_class;
	ncclProfilerCallback_t prof;
	struct braid_list comms, listens;	/* what finalize must close if NCCL did not */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* contexts and their lists */
static _Atomic(ncclDebugLogger_t) logger;
static struct context *shared;		/* for ABIs without contexts */
static int failed;			/* why there are no devices, for those ABIs */

static BRAID_APART ncclResult_t failure(int err)
{
	switch (-err) {
	case EREMOTEIO:
	case ECONNREFUSED:
	case ECONNRESET:
	case ENOTCONN:
	case EPIPE:
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return ncclRemoteError;
	case EMSGSIZE:
	case EPROTONOSUPPORT:
	case EACCES:
		return ncclInvalidUsage;
	case EINVAL:
	case ECANCELED:
		return ncclInternalError;
	default:
		return ncclSystemError;
	}
}

static ncclResult_t result(int err)
{
	return err ? failure(err) : ncclSuccess;
}

static bool forked(void)
{
	return atomic_load_explicit(&braid_forked, memory_order_relaxed);
}

static ncclResult_t misuse(const char *what)
{
	braid_warn("%s: NCCL called the plugin in a way that its ABI does not allow "
		   "[bad-call]", what);
	return ncclInternalError;
}

/* A negative int from an old ABI arrives sign-extended, and is printed as it was. */
static ncclResult_t bad_size(const char *call, size_t size)
{
	braid_warn("%s of %lld bytes: a message has 0 to %llu [bad-size]", call, (long long)size,
		   (unsigned long long)BRAID_MSG_MAX);
	return ncclInvalidUsage;
}

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
	int err;

	if (log) {
		atomic_store(&logger, log);
		braid_log_to(to_nccl);
	}
	if (forked())
		return -EPERM;
	err = braid_param_load();
	if (!err)
		err = braid_service_init();
	if (!err)
		err = braid_devices_find();
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
	pthread_mutex_lock(&lock);
	err = start(log);
	pthread_mutex_unlock(&lock);
	if (err)
		return err == -EINVAL ? ncclInvalidUsage : result(err);
	ctx = context_new(comm_id, traffic_class, prof);
	if (!ctx)
		return ncclSystemError;
	braid_service_get();
	*ret = ctx;
	return ncclSuccess;
}

void braid_net_init_shared(ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	pthread_mutex_lock(&lock);
	failed = start(log);
	if (!failed && !shared)
		shared = context_new(0, NCCL_NET_TRAFFIC_CLASS_UNDEF, prof);
	if (!failed && !shared)
		failed = -ENOMEM;
	if (shared && prof)
		shared->prof = prof;
	pthread_mutex_unlock(&lock);
}

static struct braid_listen *first_listen(struct context *ctx)
{
	struct braid_listen *l = NULL;

	pthread_mutex_lock(&lock);
	if (!braid_list_empty(&ctx->listens)) {
		l = braid_list_entry(ctx->listens.next, struct braid_listen, ctx_node);
		braid_list_del(&l->ctx_node);
	}
	pthread_mutex_unlock(&lock);
	return l;
}

static struct braid_comm *first_comm(struct context *ctx)
{
	struct braid_comm *c = NULL;

	pthread_mutex_lock(&lock);
	if (!braid_list_empty(&ctx->comms)) {
		c = braid_list_entry(ctx->comms.next, struct braid_comm, ctx_node);
		braid_list_del(&c->ctx_node);
	}
	pthread_mutex_unlock(&lock);
	return c;
}

/* Close a comm, and free the registrations that NCCL left, unless a NIC may still use them. */
static void comm_end(struct braid_comm *c)
{
	const struct braid_dev *dev = c->link->key.dev;
	struct braid_list mrs;
	struct braid_mr *mr, *tmp;

	braid_list_init(&mrs);
	pthread_mutex_lock(&lock);
	braid_list_for_safe(mr, tmp, &c->mrs, node) {
		braid_list_del(&mr->node);
		braid_list_add_tail(&mrs, &mr->node);
	}
	pthread_mutex_unlock(&lock);
	braid_flush_forget(c);
	braid_comm_close(c);
	if (braid_list_empty(&mrs) || braid_stops_wait(dev))
		return;
	braid_list_for_safe(mr, tmp, &mrs, node)
		braid_mr_free(mr);
}

/* A context's last comm is gone: log the totals of all devices. */
static void tell(void)
{
	pthread_mutex_lock(&lock);
	braid_devices_tell();
	pthread_mutex_unlock(&lock);
}

ncclResult_t braid_net_finalize(void *opaque)
{
	struct context *ctx = opaque;
	struct braid_listen *l;
	struct braid_comm *c;

	if (!ctx)
		return ncclSuccess;
	if (forked())
		return ncclSystemError;
	while ((c = first_comm(ctx)))
		comm_end(c);
	while ((l = first_listen(ctx)))
		braid_listen_close(l);
	tell();
	free(ctx);
	braid_service_put();
	return ncclSuccess;
}

/* --- devices ------------------------------------------------------------------------------- */

ncclResult_t braid_net_devices(int *ret_ndev)
{
	*ret_ndev = failed || forked() ? 0 : (int)braid_devices_count();
	return ncclSuccess;
}

/* The PCI path by which NCCL finds the distance to GPUs; of a fused device, its first member's. */
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
		return misuse("getProperties of a device that does not exist");
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

	if (forked())
		return ncclSystemError;
	if (!ret_dev || !devs || n < 1)
		return misuse("makeVDevice");
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

	if (forked())
		return ncclSystemError;
	if (!ctx || !dev || !handle || !ret_listen)
		return misuse("listen");
	*ret_listen = NULL;
	err = braid_listen_new(dev, handle, &l);
	if (err)
		return result(err);
	pthread_mutex_lock(&lock);
	l->ctx = ctx;
	braid_list_add_tail(&ctx->listens, &l->ctx_node);
	pthread_mutex_unlock(&lock);
	*ret_listen = l;
	return ncclSuccess;
}

static void adopt(struct context *ctx, struct braid_comm *c)
{
	pthread_mutex_lock(&lock);
	c->ctx = ctx;
	braid_list_add_tail(&ctx->comms, &c->ctx_node);
	pthread_mutex_unlock(&lock);
}

ncclResult_t braid_net_connect(void *opaque, int index, int traffic_class, void *handle,
			       void **ret_send)
{
	struct context *ctx = opaque ? opaque : shared;
	struct braid_dev *dev = braid_device(index);
	struct braid_comm *c = NULL;
	int err;

	if (forked())
		return ncclSystemError;
	if (!ctx || !dev || !handle || !ret_send)
		return misuse("connect");
	*ret_send = NULL;
	if (traffic_class == NCCL_NET_TRAFFIC_CLASS_UNDEF)
		traffic_class = ctx->traffic_class;
	err = braid_connect(dev, traffic_class < 0 ? -1 : traffic_class & 0xff, handle, &c);
	if (err)
		return result(err);
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

	if (forked())
		return ncclSystemError;
	if (!l || !ret_recv)
		return misuse("accept");
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
	if (forked())
		return ncclSystemError;
	pthread_mutex_lock(&lock);
	ctx = c->ctx;
	braid_list_del(&c->ctx_node);
	last = braid_list_empty(&ctx->comms);
	pthread_mutex_unlock(&lock);
	comm_end(c);
	if (last)
		tell();
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
	if (forked())
		return ncclSystemError;
	pthread_mutex_lock(&lock);
	braid_list_del(&l->ctx_node);
	pthread_mutex_unlock(&lock);
	braid_listen_close(l);
	return ncclSuccess;
}

/* --- memory -------------------------------------------------------------------------------- */

/* Memory registered as CUDA's may be pinned memory of the host: then it is treated as that. */
static void look(struct braid_mem *mem)
{
	struct braid_gpu_mem gpu;
	int err = braid_gpu_look(mem->data, mem->size, &gpu);

	mem->gpu = err != -EINVAL;
	mem->gpu_index = err ? -1 : gpu.gpu;
	mem->gpu_id = err ? 0 : gpu.id;
}

static ncclResult_t reg(struct braid_comm *c, struct braid_mem *mem, int type, void **ret_mr)
{
	const struct braid_dev *dev = c->link->key.dev;
	struct braid_mr *mr;
	int err;

	*ret_mr = NULL;
	if (type == NCCL_PTR_CUDA && !dev->gpu) {
		braid_warn("device %s: memory of a GPU was to be registered, which its properties "
			   "do not offer. If a topology file (NCCL_TOPO_FILE) says gdr=\"1\" of "
			   "this NIC, NCCL believes that: take it out there "
			   "[gpu-memory-not-offered]",
			   dev->net.name);
		return ncclInternalError;
	}
	if (type != NCCL_PTR_HOST && type != NCCL_PTR_CUDA) {
		braid_warn("device %s: memory of type %d, which its properties do not offer "
			   "[bad-memory-type]",
			   dev->net.name, type);
		return ncclInternalError;
	}
	if (type == NCCL_PTR_CUDA)
		look(mem);
	err = braid_mr_new(c, mem, &mr);
	if (err)
		return result(err);
	pthread_mutex_lock(&lock);
	braid_list_add_tail(&mr->comm->mrs, &mr->node);
	pthread_mutex_unlock(&lock);
	*ret_mr = mr;
	return ncclSuccess;
}

ncclResult_t braid_net_reg(void *comm, void *data, size_t size, int type, void **ret_mr)
{
	struct braid_mem mem = { .data = data, .size = size, .fd = -1 };

	if (forked())
		return ncclSystemError;
	return comm && ret_mr ? reg(comm, &mem, type, ret_mr) : misuse("regMr");
}

ncclResult_t braid_net_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				  int fd, void **ret_mr)
{
	struct braid_mem mem = { .data = data, .size = size, .fd = fd, .offset = offset };

	if (forked())
		return ncclSystemError;
	return comm && ret_mr ? reg(comm, &mem, type, ret_mr) : misuse("regMrDmaBuf");
}

ncclResult_t braid_net_dereg(void *comm, void *opaque)
{
	struct braid_mr *mr = opaque;
	int err;

	if (forked())
		return ncclSystemError;
	if (!comm || !mr)
		return ncclSuccess;
	braid_flush_cancel(comm, mr);
	braid_comm_cancel(comm, mr);
	/* The NIC of a lost lane may still read the memory, also of sends that are done. */
	err = braid_stops_wait(mr->comm->link->key.dev);
	if (err)
		return result(err);
	pthread_mutex_lock(&lock);
	braid_list_del(&mr->node);
	pthread_mutex_unlock(&lock);
	braid_mr_free(mr);
	return ncclSuccess;
}

/* --- data ---------------------------------------------------------------------------------- */

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

	if (forked())
		return ncclSystemError;
	if (!c || !ret_req || !c->sender || (size && !data))
		return misuse("isend");
	*ret_req = NULL;
	if (size > BRAID_MSG_MAX)
		return bad_size("isend", size);
	err = braid_comm_isend(c, data, size, tag, mr, &req);
	if (!err && req) {
		prof_start(c, req, 0, phandle);
		*ret_req = req;
	}
	return result(err);
}

BRAID_HOT ncclResult_t braid_net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
				       void **mrs, void **phandles, void **ret_req)
{
	struct braid_comm *c = comm;
	struct braid_req *req;
	int err;

	if (forked())
		return ncclSystemError;
	if (!c || !ret_req || c->sender || n < 1 || n > BRAID_RECVS_MAX || !data || !sizes || !tags)
		return misuse("irecv");
	*ret_req = NULL;
	for (int i = 0; i < n; i++) {
		if (sizes[i] > BRAID_MSG_MAX)
			return bad_size("irecv", sizes[i]);
	}
	err = braid_comm_irecv(c, (unsigned)n, data, sizes, tags, (struct braid_mr *const *)mrs,
			       &req);
	if (err || !req)
		return result(err);
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

	if (forked())
		return ncclSystemError;
	if (!comm || !ret_req || n > BRAID_RECVS_MAX || (n > 0 && (!data || !sizes || !mrs)))
		return misuse("iflush");
	*ret_req = NULL;
	if (n > 0 && braid_param.gpu_flush)
		err = braid_flush_start(comm, (unsigned)n, data, sizes,
					(struct braid_mr *const *)mrs, &req);
	*ret_req = req;
	return result(err);
}

static BRAID_APART ncclResult_t test_flush(struct braid_req *req, int *done)
{
	bool is_done;
	int err = braid_flush_test(req, &is_done);

	*done = !err && is_done;
	return result(err);
}

BRAID_HOT ncclResult_t braid_net_test(void *opaque, int *done, int *sizes)
{
	struct braid_req *req = opaque;
	const struct context *ctx;
	int res;

	if (forked())
		return ncclSystemError;
	if (!req || !done)
		return misuse("test");
	*done = 0;
	if (req->flush)
		return test_flush(req, done);
	res = braid_comm_ask(req);
	if (res <= 0)
		return result(res);
	ctx = req->comm->ctx;
	if (ctx->prof)
		prof_stop(ctx, req);
	braid_comm_finish(req, sizes);
	*done = 1;
	return ncclSuccess;
}
