/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.c - a net plugin as a fabric, called through tools/proxy.h.
 *
 * Nothing here depends on which plugin it is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/fabric.h"
#include "tools/proxy.h"

enum { SIZES = 64 };			/* of the array that NCCL's test() fills for a receive */

struct net_fabric {
	struct fabric super;
	struct net *net;
	int dev;
};

static struct net *net_of(struct fabric *fab)
{
	return ((struct net_fabric *)fab)->net;
}

static int result_errno(ncclResult_t res)
{
	return res == ncclRemoteError ? -ECONNRESET : res == ncclInvalidUsage ? -EINVAL : -EIO;
}

/* The plugin's own last warning says more than its result. */
static int fail(struct fabric *fab, ncclResult_t res, const char *what)
{
	const char *warn = net_last_warn();

	snprintf(fab->err, sizeof(fab->err), "%s: %s%s%s", what, net_result_name(res),
		 warn && *warn ? ": " : "", warn ? warn : "");
	return result_errno(res);
}

/* A device by number or by name; below 0: there is none. */
static int dev_named(struct net_fabric *f, const char *want, int n)
{
	struct braid_net_props props;
	char *end;
	int i = (int)strtol(want, &end, 10);

	if (*want && *end == 0 && i >= 0 && i < n)
		return i;
	for (i = 0; i < n; i++)
		if (net_props(f->net, i, &props) == ncclSuccess && strcmp(props.name, want) == 0)
			return i;
	return -ENODEV;
}

/* One device, or several joined by +, which NCCL calls fusing them. */
static int dev_find(struct net_fabric *f, const char *want, char *err)
{
	char names[FABRIC_ERR], *save = NULL;
	int n = 0, devs[8], ndevs = 0, dev;

	if (net_devices(f->net, &n) != ncclSuccess || n <= 0) {
		snprintf(err, FABRIC_ERR, "%s: no devices%s%s", f->net->name,
			 *net_last_warn() ? ": " : "", net_last_warn());
		return -ENODEV;
	}
	if (!want)
		return 0;
	snprintf(names, sizeof(names), "%s", want);
	for (char *name = strtok_r(names, "+", &save); name && ndevs < 8;
	     name = strtok_r(NULL, "+", &save)) {
		devs[ndevs++] = dev_named(f, name, n);
		if (devs[ndevs - 1] < 0) {
			snprintf(err, FABRIC_ERR, "%s: no device '%s' among its %d", f->net->name,
				 name, n);
			return -ENODEV;
		}
	}
	if (ndevs == 1)
		return devs[0];
	if (net_fuse(f->net, ndevs, devs, &dev) == ncclSuccess)
		return dev;
	snprintf(err, FABRIC_ERR, "%s: can't make one device of '%s'", f->net->name, want);
	return -ENODEV;
}

static int about_fill(struct net_fabric *f, char *err)
{
	struct fabric_about *about = &f->super.about;
	struct braid_net_props props;

	memset(&props, 0, sizeof(props));
	if (net_props(f->net, f->dev, &props) != ncclSuccess) {
		snprintf(err, FABRIC_ERR, "%s: getProperties(%d) failed", f->net->name, f->dev);
		return -EIO;
	}
	snprintf(about->name, sizeof(about->name), "%s", f->net->name);
	snprintf(about->dev, sizeof(about->dev), "%s", props.name ? props.name : "?");
	about->abi = f->net->abi;
	about->speed_mbps = props.speed_mbps;
	return 0;
}

static int net_start(struct net_fabric *f, const struct fabric_env *env, char *err)
{
	ncclResult_t res;
	int rc;

	if (env->dev && strchr(env->dev, '+'))
		setenv("BRAID_FUSE", "any", 0);		/* no NCCL here that needs a PCI path */
	res = net_init(f->net, (uint64_t)getpid(), -1, net_log, NULL);
	if (res != ncclSuccess) {
		fail(&f->super, res, "init");
		snprintf(err, FABRIC_ERR, "%s", f->super.err);
		return -EIO;
	}
	f->dev = dev_find(f, env->dev, err);
	rc = f->dev < 0 ? f->dev : about_fill(f, err);
	if (rc)
		net_finalize(f->net);
	return rc;
}

static int plugin_open(const struct fabric_env *env, struct fabric **ret_fab, char *err)
{
	struct net_fabric *f = calloc(1, sizeof(*f));
	int rc = -ENOMEM;

	if (!f)
		return rc;
	net_log_verbose(env->verbose);
	f->super.ops = &fabric_plugin;
	f->net = net_load(env->plugin, env->abi, err, FABRIC_ERR);
	rc = f->net ? net_start(f, env, err) : -ENOENT;
	if (rc) {
		if (f->net)
			net_unload(f->net);
		free(f);
		return rc;
	}
	*ret_fab = &f->super;
	return 0;
}

static void plugin_close(struct fabric *fab)
{
	net_finalize(net_of(fab));
	net_unload(net_of(fab));
	free(fab);
}

static int plugin_listen(struct fabric *fab, void *handle, void **ret_listen)
{
	ncclResult_t res =
		net_listen(net_of(fab), ((struct net_fabric *)fab)->dev, handle, ret_listen);

	return res == ncclSuccess ? 0 : fail(fab, res, "listen");
}

static int plugin_connect(struct fabric *fab, int peer, int idx, void *handle, void **ret_comm)
{
	ncclResult_t res =
		net_connect(net_of(fab), ((struct net_fabric *)fab)->dev, handle, ret_comm);

	(void)peer, (void)idx;
	return res == ncclSuccess ? 0 : fail(fab, res, "connect");
}

static int plugin_accept(struct fabric *fab, int peer, int idx, void *listen, void **ret_comm)
{
	ncclResult_t res = net_accept(net_of(fab), listen, ret_comm);

	(void)peer, (void)idx;
	return res == ncclSuccess ? 0 : fail(fab, res, "accept");
}

static int plugin_reg(struct fabric *fab, void *comm, void *data, size_t size, void **ret_mr)
{
	ncclResult_t res = net_reg(net_of(fab), comm, data, size, NCCL_PTR_HOST, ret_mr);

	return res == ncclSuccess ? 0 : fail(fab, res, "regMr");
}

static void plugin_dereg(struct fabric *fab, void *comm, void *mr)
{
	net_dereg(net_of(fab), comm, mr);
}

static int plugin_isend(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
			void **ret_req)
{
	ncclResult_t res = net_isend(net_of(fab), comm, data, size, tag, mr, NULL, ret_req);

	return res == ncclSuccess ? 0 : fail(fab, res, "isend");
}

static int plugin_irecv(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
			void **ret_req)
{
	void *phandle = NULL;
	ncclResult_t res;

	*ret_req = NULL;
	res = net_irecv(net_of(fab), comm, 1, &data, &size, &tag, &mr, &phandle, ret_req);
	return res == ncclSuccess ? 0 : fail(fab, res, "irecv");
}

static int plugin_test(struct fabric *fab, void *req, bool *ret_done, size_t *ret_size)
{
	int sizes[SIZES], done = 0;
	ncclResult_t res;

	sizes[0] = 0;
	res = net_test(net_of(fab), req, &done, sizes);
	if (res != ncclSuccess)
		return fail(fab, res, "test");
	*ret_done = done != 0;
	if (done)
		*ret_size = (size_t)sizes[0];
	return 0;
}

static void plugin_close_send(struct fabric *fab, void *comm)
{
	net_close_send(net_of(fab), comm);
}

static void plugin_close_recv(struct fabric *fab, void *comm)
{
	net_close_recv(net_of(fab), comm);
}

static void plugin_close_listen(struct fabric *fab, void *listen)
{
	net_close_listen(net_of(fab), listen);
}

const struct fabric_ops fabric_plugin = {
	.name = "plugin",
	.open = plugin_open,
	.close = plugin_close,
	.listen = plugin_listen,
	.connect = plugin_connect,
	.accept = plugin_accept,
	.reg = plugin_reg,
	.dereg = plugin_dereg,
	.isend = plugin_isend,
	.irecv = plugin_irecv,
	.test = plugin_test,
	.close_send = plugin_close_send,
	.close_recv = plugin_close_recv,
	.close_listen = plugin_close_listen,
};
