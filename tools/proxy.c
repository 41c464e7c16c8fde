/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.c - calls a net plugin as NCCL's proxy threads would, at one ABI version.
 *
 * Each call uses the newest prototype that is not newer than the table's version.
 * From v6 on, the members up to closeListen have the same offsets as in v12 (abi.h asserts it), so
 * a table is read through the first version that had the prototype; v5 alone is one slot shorter.
 * Arguments that an old version lacks are dropped, sizes beyond int are refused before the plugin
 * sees them, and missing properties get the values NCCL's own wrappers give them.
 */
#include "tools/proxy.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct proxy {
	struct net net;
	ncclNetCommConfig_v10_t config;	/* kept after init: v10 passes it to connect */
};

/* The table seen as version V's. */
#define TABLE(V) ((const ncclNet_v##V##_t *)net->table)
/* A member whose prototype never changed: at v5's offset, or at that of all later versions. */
#define MEMBER(m) (net->abi >= 6 ? TABLE(6)->m : TABLE(5)->m)

/* -- loading ------------------------------------------------------------------------------ */

static const void *table_find(void *dl, int abi, int *ret_abi)
{
	int oldest = abi ? abi : NET_ABI_OLDEST;
	int newest = abi ? abi : NET_ABI_NEWEST;

	for (int v = newest; v >= oldest; v--) {
		char symbol[32];
		const void *table;

		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		table = dlsym(dl, symbol);
		if (table) {
			*ret_abi = v;
			return table;
		}
	}
	return NULL;
}

struct net *net_load(const char *path, int abi, char *err, size_t err_len)
{
	struct proxy *proxy;
	struct net *net;
	void *dl;

	if (abi && (abi < NET_ABI_OLDEST || abi > NET_ABI_NEWEST)) {
		snprintf(err, err_len, "no ABI version %d: %d to %d are known", abi,
			 NET_ABI_OLDEST, NET_ABI_NEWEST);
		return NULL;
	}
	dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		snprintf(err, err_len, "%s", dlerror());
		return NULL;
	}
	proxy = calloc(1, sizeof(*proxy));
	if (!proxy) {
		snprintf(err, err_len, "out of memory");
		goto close_dl;
	}
	net = &proxy->net;
	net->dl = dl;
	net->table = table_find(dl, abi, &net->abi);
	if (!net->table) {
		if (abi)
			snprintf(err, err_len, "%s has no ncclNetPlugin_v%d", path, abi);
		else
			snprintf(err, err_len, "%s has no ncclNetPlugin_v%d to v%d", path,
				 NET_ABI_OLDEST, NET_ABI_NEWEST);
		goto free_proxy;
	}
	net->name = MEMBER(name);
	net->test = MEMBER(test);
	net->has_dmabuf = net->abi >= 6 && TABLE(6)->regMrDmaBuf;
	net->has_vdevice = net->abi >= 9 && TABLE(9)->makeVDevice;
	net->has_finalize = net->abi >= 11;
	proxy->config.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF;
	return net;

free_proxy:
	free(proxy);
close_dl:
	dlclose(dl);
	return NULL;
}

void net_unload(struct net *net)
{
	if (!net)
		return;
	dlclose(net->dl);
	free(net);			/* frees the struct proxy that begins with it */
}

/* -- life --------------------------------------------------------------------------------- */

ncclResult_t net_init_ctx(struct net *net, void **ctx, uint64_t comm_id, int traffic_class,
			  ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	struct proxy *proxy = (struct proxy *)net;

	*ctx = NULL;
	if (net->abi >= 11) {
		ncclNetCommConfig_v10_t config = { .trafficClass = traffic_class };

		return TABLE(11)->init(ctx, comm_id, &config, log, prof);
	}
	proxy->config.trafficClass = traffic_class;
	return net->abi == 10 ? TABLE(10)->init(log, prof) : MEMBER(init)(log);
}

ncclResult_t net_finalize_ctx(struct net *net, void *ctx)
{
	return net->abi >= 11 ? TABLE(11)->finalize(ctx) : ncclSuccess;
}

ncclResult_t net_init(struct net *net, uint64_t comm_id, int traffic_class, ncclDebugLogger_t log,
		      ncclProfilerCallback_t prof)
{
	return net_init_ctx(net, &net->ctx, comm_id, traffic_class, log, prof);
}

ncclResult_t net_finalize(struct net *net)
{
	void *ctx = net->ctx;

	net->ctx = NULL;
	return net_finalize_ctx(net, ctx);
}

/* -- devices ------------------------------------------------------------------------------ */

ncclResult_t net_devices(struct net *net, int *ndev)
{
	return MEMBER(devices)(ndev);
}

#define FUSE(V)									\
	do {									\
		ncclNetVDeviceProps_v##V##_t p = { .ndevs = n };		\
										\
		memcpy(p.devs, devs, (size_t)n * sizeof(*devs));		\
		return TABLE(V)->makeVDevice(ret_dev, &p);			\
	} while (0)

ncclResult_t net_fuse(struct net *net, int n, const int *devs, int *ret_dev)
{
	if (!net->has_vdevice || n < 1 || n > (net->abi < 12 ? 4 : 8))
		return ncclInvalidUsage;
	if (net->abi < 12)
		FUSE(9);
	FUSE(12);
}

/* The fields every version has, then those each version added; abi.c does the reverse. */
#define FIELDS_V5								\
	q.name = p.name;							\
	q.pci_path = p.pciPath;							\
	q.guid = p.guid;							\
	q.ptr_support = p.ptrSupport;						\
	q.speed_mbps = p.speed;							\
	q.port = p.port;							\
	q.latency_us = p.latency;						\
	q.max_comms = p.maxComms;						\
	q.max_recvs = p.maxRecvs;
#define FIELDS_V8 FIELDS_V5 q.reg_is_global = p.regIsGlobal;
#define FIELDS_V9 FIELDS_V8							\
	q.force_flush = p.forceFlush;						\
	q.ndevs = p.vProps.ndevs;						\
	memcpy(q.devs, p.vProps.devs, sizeof(p.vProps.devs));			\
	q.max_p2p_bytes = p.maxP2pBytes;					\
	q.max_coll_bytes = p.maxCollBytes;
#define FIELDS_V11 FIELDS_V9 q.max_multi_request = p.maxMultiRequestSize;
#define FIELDS_V12 FIELDS_V11							\
	q.rail = p.railId;							\
	q.plane = p.planeId;

#define PROPS(V, FIELDS)							\
	static ncclResult_t props_v##V(const struct net *net, int dev,		\
				       struct braid_net_props *ret)		\
	{									\
		struct braid_net_props q = *ret;				\
		ncclNetProperties_v##V##_t p;					\
		ncclResult_t res;						\
										\
		memset(&p, 0, sizeof(p));					\
		res = TABLE(V)->getProperties(dev, &p);				\
		if (res == ncclSuccess) {					\
			FIELDS							\
			*ret = q;						\
		}								\
		return res;							\
	}

PROPS(5, FIELDS_V5)
PROPS(6, FIELDS_V5)
PROPS(7, FIELDS_V5)
PROPS(8, FIELDS_V8)
PROPS(9, FIELDS_V9)
PROPS(11, FIELDS_V11)
PROPS(12, FIELDS_V12)

ncclResult_t net_props(struct net *net, int dev, struct braid_net_props *ret)
{
	static ncclResult_t (*const by_abi[])(const struct net *, int,
					      struct braid_net_props *) = {
		[5] = props_v5, [6] = props_v6,	 [7] = props_v7,   [8] = props_v8,
		[9] = props_v9, [10] = props_v9, [11] = props_v11, [12] = props_v12,
	};
	struct braid_net_props q = {	/* NCCL's values for fields that a version lacks */
		.ndevs = 1,
		.devs = { dev },
		.max_p2p_bytes = (size_t)1 << 30,
		.max_coll_bytes = (size_t)1 << 29,
		.max_multi_request = 1,
		.rail = NCCL_NET_ID_UNDEF,
		.plane = NCCL_NET_ID_UNDEF,
	};
	ncclResult_t res = by_abi[net->abi](net, dev, &q);

	if (res == ncclSuccess)
		*ret = q;
	return res;
}

/* -- connections -------------------------------------------------------------------------- */

ncclResult_t net_listen(struct net *net, int dev, void *handle, void **listen_comm)
{
	if (net->abi >= 11)
		return TABLE(11)->listen(net->ctx, dev, handle, listen_comm);
	return MEMBER(listen)(dev, handle, listen_comm);
}

ncclResult_t net_connect(struct net *net, int dev, void *handle, void **send_comm)
{
	struct proxy *proxy = (struct proxy *)net;
	ncclNetDeviceHandle_v7_t *offload = NULL;

	if (net->abi >= 11)
		return TABLE(11)->connect(net->ctx, dev, handle, send_comm, &offload);
	if (net->abi == 10)
		return TABLE(10)->connect(dev, &proxy->config, handle, send_comm, &offload);
	if (net->abi >= 7)
		return TABLE(7)->connect(dev, handle, send_comm, &offload);
	return MEMBER(connect)(dev, handle, send_comm);
}

ncclResult_t net_accept(struct net *net, void *listen_comm, void **recv_comm)
{
	ncclNetDeviceHandle_v7_t *offload = NULL;

	if (net->abi >= 7)
		return TABLE(7)->accept(listen_comm, recv_comm, &offload);
	return MEMBER(accept)(listen_comm, recv_comm);
}

ncclResult_t net_close_send(struct net *net, void *comm)
{
	return MEMBER(closeSend)(comm);
}

ncclResult_t net_close_recv(struct net *net, void *comm)
{
	return MEMBER(closeRecv)(comm);
}

ncclResult_t net_close_listen(struct net *net, void *comm)
{
	return MEMBER(closeListen)(comm);
}

/* -- memory ------------------------------------------------------------------------------- */

ncclResult_t net_reg(struct net *net, void *comm, void *data, size_t size, int type, void **mr)
{
	if (net->abi >= 8)
		return TABLE(8)->regMr(comm, data, size, type, mr);
	if (size > INT_MAX)
		return ncclInternalError;
	return MEMBER(regMr)(comm, data, (int)size, type, mr);
}

ncclResult_t net_reg_dmabuf(struct net *net, void *comm, void *data, size_t size, int type,
			    uint64_t offset, int fd, void **mr)
{
	if (!net->has_dmabuf)
		return ncclInvalidUsage;
	return TABLE(6)->regMrDmaBuf(comm, data, size, type, offset, fd, mr);
}

ncclResult_t net_dereg(struct net *net, void *comm, void *mr)
{
	return MEMBER(deregMr)(comm, mr);
}

/* -- data --------------------------------------------------------------------------------- */

ncclResult_t net_isend(struct net *net, void *comm, void *data, size_t size, int tag, void *mr,
		       void *phandle, void **req)
{
	if (net->abi >= 10)
		return TABLE(10)->isend(comm, data, size, tag, mr, phandle, req);
	if (net->abi == 9)
		return TABLE(9)->isend(comm, data, size, tag, mr, req);
	if (size > INT_MAX)
		return ncclInternalError;
	return MEMBER(isend)(comm, data, (int)size, tag, mr, req);
}

/* For v8 and older, which do not know the "optional" marker that *req may hold. */
static ncclResult_t irecv_narrow(struct net *net, void *comm, int n, void **data,
				 const size_t *sizes, int *tags, void **mrs, void **req)
{
	int narrow[64];

	if (*req == NCCL_NET_OPTIONAL_RECV_COMPLETION)
		*req = NULL;
	if (n > 64)
		return ncclInternalError;
	for (int i = 0; i < n; i++) {
		if (sizes[i] > INT_MAX)
			return ncclInternalError;
		narrow[i] = (int)sizes[i];
	}
	return MEMBER(irecv)(comm, n, data, narrow, tags, mrs, req);
}

ncclResult_t net_irecv(struct net *net, void *comm, int n, void **data, size_t *sizes, int *tags,
		       void **mrs, void **phandles, void **req)
{
	if (net->abi >= 10)
		return TABLE(10)->irecv(comm, n, data, sizes, tags, mrs, phandles, req);
	if (net->abi == 9)
		return TABLE(9)->irecv(comm, n, data, sizes, tags, mrs, req);
	return irecv_narrow(net, comm, n, data, sizes, tags, mrs, req);
}

ncclResult_t net_iflush(struct net *net, void *comm, int n, void **data, int *sizes, void **mrs,
			void **req)
{
	if (!MEMBER(iflush)) {		/* some plugins have nothing to flush */
		*req = NULL;
		return ncclSuccess;
	}
	return MEMBER(iflush)(comm, n, data, sizes, mrs, req);
}

/* -- words -------------------------------------------------------------------------------- */

const char *net_result_name(ncclResult_t res)
{
	static const char *const names[] = {
		[ncclSuccess] = "ncclSuccess",
		[ncclUnhandledCudaError] = "ncclUnhandledCudaError",
		[ncclSystemError] = "ncclSystemError",
		[ncclInternalError] = "ncclInternalError",
		[ncclInvalidArgument] = "ncclInvalidArgument",
		[ncclInvalidUsage] = "ncclInvalidUsage",
		[ncclRemoteError] = "ncclRemoteError",
		[ncclInProgress] = "ncclInProgress",
		[ncclTimeout] = "ncclTimeout",
	};

	if ((unsigned)res < sizeof(names) / sizeof(names[0]))
		return names[res];
	return "not an ncclResult_t";
}

/* -- a logger ----------------------------------------------------------------------------- */

enum { LINE_MAX_BYTES = 1024, KEPT = 4 };

static struct {
	pthread_mutex_t lock;
	char warn[KEPT][LINE_MAX_BYTES];	/* under lock; the next is warns % KEPT */
	atomic_uint warns;
	atomic_bool verbose;
} logged = { .lock = PTHREAD_MUTEX_INITIALIZER };

void net_log_verbose(bool on)
{
	logged.verbose = on;
}

unsigned net_warn_count(void)
{
	return logged.warns;
}

/* Each thread has its own copy, so that another thread's WARN can't change it meanwhile. */
const char *net_last_warn(void)
{
	static _Thread_local char copy[LINE_MAX_BYTES];

	pthread_mutex_lock(&logged.lock);
	memcpy(copy, logged.warn[(logged.warns - 1) % KEPT], sizeof(copy));
	pthread_mutex_unlock(&logged.lock);
	return copy;
}

bool net_warned(const char *text)
{
	bool found = false;

	pthread_mutex_lock(&logged.lock);
	for (unsigned i = 0; i < KEPT; i++)
		found |= strstr(logged.warn[i], text) != NULL;
	pthread_mutex_unlock(&logged.lock);
	return found;
}

static const char *level_name(int level)
{
	switch (level) {
	case NCCL_LOG_WARN:
		return "WARN";
	case NCCL_LOG_INFO:
		return "INFO";
	case NCCL_LOG_TRACE:
		return "TRACE";
	default:
		return "LOG";
	}
}

void net_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	va_list ap;

	(void)flags;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);

	if (level == NCCL_LOG_WARN) {
		pthread_mutex_lock(&logged.lock);
		memcpy(logged.warn[logged.warns++ % KEPT], text, sizeof(text));
		pthread_mutex_unlock(&logged.lock);
	}
	if (logged.verbose)
		fprintf(stderr, "%s %s:%d %s\n", level_name(level), file ? file : "?", line, text);
}
