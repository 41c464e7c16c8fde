/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.h - a small NCCL proxy: loads a net plugin's .so by path, takes one ABI version and calls
 * it as NCCL's own proxy threads would.
 *
 * braid perf, braid validate, braid info and tests/abi use it.  struct net hides which ABI version
 * is behind it: a call that the version lacks fails, and arguments of old signatures are narrowed
 * as NCCL's wrappers do.
 */
#ifndef BRAID_TOOLS_PROXY_H
#define BRAID_TOOLS_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/abi.h"
#include "plugin/net.h"		/* struct braid_net_props: the union of all versions' fields */

enum { NET_ABI_OLDEST = 5, NET_ABI_NEWEST = 12 };

struct net {				/* a loaded plugin at one ABI version */
	void *dl;
	int abi;
	const void *table;		/* the exported ncclNetPlugin_vN */
	const char *name;
	ncclResult_t (*test)(void *req, int *done, int *sizes);
	void *ctx;			/* v11 and newer */
	bool has_dmabuf, has_finalize, has_vdevice;
};

/*
 * Load `path` and take ABI version `abi` (0: the newest it has).  NULL on failure with a
 * sentence in err.  Does not call init.
 */
struct net *net_load(const char *path, int abi, char *err, size_t err_len);
void net_unload(struct net *net);	/* dlclose; call net_finalize first */

ncclResult_t net_init(struct net *net, uint64_t comm_id, int traffic_class, ncclDebugLogger_t log,
		      ncclProfilerCallback_t prof);
ncclResult_t net_finalize(struct net *net);	/* success if the ABI has no finalize */
/* Calls the plugin's init: from v11 on it makes another context; before v11 *ctx is NULL. */
ncclResult_t net_init_ctx(struct net *net, void **ctx, uint64_t comm_id, int traffic_class,
			  ncclDebugLogger_t log, ncclProfilerCallback_t prof);
ncclResult_t net_finalize_ctx(struct net *net, void *ctx);

ncclResult_t net_devices(struct net *net, int *ndev);
/* makeVDevice: fuse devices.  ncclInvalidUsage if the plugin or its ABI has no makeVDevice. */
ncclResult_t net_fuse(struct net *net, int n, const int *devs, int *ret_dev);
ncclResult_t net_props(struct net *net, int dev, struct braid_net_props *ret);
ncclResult_t net_listen(struct net *net, int dev, void *handle, void **listen_comm);
ncclResult_t net_connect(struct net *net, int dev, void *handle, void **send_comm);
ncclResult_t net_accept(struct net *net, void *listen_comm, void **recv_comm);
ncclResult_t net_reg(struct net *net, void *comm, void *data, size_t size, int type, void **mr);
/* ncclInvalidUsage if the plugin or its ABI has no regMrDmaBuf. */
ncclResult_t net_reg_dmabuf(struct net *net, void *comm, void *data, size_t size, int type,
			    uint64_t offset, int fd, void **mr);
ncclResult_t net_dereg(struct net *net, void *comm, void *mr);
ncclResult_t net_isend(struct net *net, void *comm, void *data, size_t size, int tag, void *mr,
		       void *phandle, void **req);
ncclResult_t net_irecv(struct net *net, void *comm, int n, void **data, size_t *sizes, int *tags,
		       void **mrs, void **phandles, void **req);
ncclResult_t net_iflush(struct net *net, void *comm, int n, void **data, int *sizes, void **mrs,
			void **req);
static inline ncclResult_t net_test(struct net *net, void *req, int *done, int *sizes)
{
	return net->test(req, done, sizes);
}
ncclResult_t net_close_send(struct net *net, void *comm);
ncclResult_t net_close_recv(struct net *net, void *comm);
ncclResult_t net_close_listen(struct net *net, void *comm);

const char *net_result_name(ncclResult_t res);

/* A thread-safe logger for tests and tools: counts WARN lines and keeps the last four. */
void net_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
const char *net_last_warn(void);
bool net_warned(const char *text);	/* is it in one of the last four? */
unsigned net_warn_count(void);
void net_log_verbose(bool on);		/* also print to stderr, prefixed by level */

#endif
