/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_table.c - the table of one-sided operations, its init, and what it says of devices. */
#include <string.h>

#include "tools/validate/ranks.h"

/* -- the table ---------------------------------------------------------------------------- */

/* Call f() with each version that the plugin has. */
static void each_version(struct validate *v, void (*f)(struct validate *v, struct rma *rma))
{
	unsigned n = 0;

	for (int i = RMA_ABI_OLDEST; i <= RMA_ABI_NEWEST; i++) {
		struct rma *rma;
		char err[512];

		if (!rma_is_offered(v->w->plugin, i))
			continue;
		rma = rma_load(v->w->plugin, i, err, sizeof(err));
		if (!rma)
			FAIL("%s", err);
		f(v, rma);
		rma_unload(rma);
		n++;
	}
	if (!n)
		skip(v, "it offers no one-sided operations: no ncclRmaPlugin_v%d to v%d",
		     RMA_ABI_OLDEST, RMA_ABI_NEWEST);
}

static void one_table(struct validate *v, struct rma *rma)
{
	saw(v, "ncclRmaPlugin_v%d, \"%.40s\"", rma->abi, rma->name ? rma->name : "");
}

static void load(struct validate *v)
{
	each_version(v, one_table);
}

static void one_name(struct validate *v, struct rma *rma)
{
	static char first[64];

	(void)v;
	if (!rma->name || !*rma->name)
		FAIL("ncclRmaPlugin_v%d has no name", rma->abi);
	if (!*first)
		snprintf(first, sizeof(first), "%s", rma->name);
	if (strncmp(rma->name, first, sizeof(first) - 1) != 0)
		FAIL("ncclRmaPlugin_v%d is named \"%.60s\", and another \"%s\"", rma->abi,
		     rma->name, first);
}

static void name(struct validate *v)
{
	each_version(v, one_name);
}

static void one_members(struct validate *v, struct rma *rma)
{
	(void)v;
	if (!rma->has_get || !rma->has_flush)
		FAIL("ncclRmaPlugin_v%d has no %s", rma->abi, rma->has_get ? "iflush" : "iget");
}

static void members(struct validate *v)
{
	each_version(v, one_members);
}

static void one_exchange(struct rank *r)
{
	struct group *g = group_new(r, 1);

	at(r, "version %d of the table", r->rma->abi);
	all_to_all(g, 1);
	groups_close(r);
}

static void versions(struct validate *v)
{
	needs_rma(v);
	for (int i = RMA_ABI_OLDEST; i <= RMA_ABI_NEWEST; i++)
		if (rma_is_offered(v->w->plugin, i))
			ranks_run_version(v, i, 2, one_exchange);
}

/* -- init --------------------------------------------------------------------------------- */

static void two_inits(struct rank *r)
{
	struct group *g;
	void *second;

	at(r, "a second init with the commId of the first");
	OK(rma_init(r->rma, &second, 42, net_log));
	at(r, "after the second init");
	g = group_new(r, 1);
	all_to_all(g, 1);
	at(r, "finalize of the second");
	OK(rma_finalize(r->rma, second));
	at(r, "after finalize of the second");
	all_to_all(g, 1);
	groups_close(r);
}

static void init_twice(struct validate *v)
{
	ranks_run(v, 2, two_inits);
}

enum { AGAIN = 50 };

static void inits_again(struct rank *r)
{
	struct counts before = counts_now(), after;

	for (int i = 0; i < AGAIN; i++) {
		void *ctx;

		OK(rma_init(r->rma, &ctx, (uint64_t)i, net_log));
		OK(rma_finalize(r->rma, ctx));
	}
	after = counts_now();
	if (after.fds > before.fds + 4 || after.threads > before.threads + 4)
		FAIL("after %d times init and finalize, %u descriptors became %u, and %u threads "
		     "%u", AGAIN, before.fds, after.fds, before.threads, after.threads);
	rank_saw("%d times: %u descriptors, %u threads", AGAIN, after.fds, after.threads);
}

static void init_again(struct validate *v)
{
	ranks_run(v, 1, inits_again);
}

/* -- devices ------------------------------------------------------------------------------ */

static void each_device(struct rank *r, void (*f)(struct rank *r, int dev,
						  const ncclNetProperties_v12_t *p))
{
	ncclNetProperties_v12_t p;
	int n = 0;

	OK(rma_devices(r->rma, &n));
	for (int i = 0; i < n; i++) {
		OK(rma_props(r->rma, i, &p));
		f(r, i, &p);
	}
}

static void is_proxy(struct rank *r, int dev, const ncclNetProperties_v12_t *p)
{
	(void)r;
	if (p->netDeviceType != NCCL_NET_DEVICE_GIN_PROXY)
		FAIL("device %d has netDeviceType %d, and GIN_PROXY is %d", dev,
		     (int)p->netDeviceType, NCCL_NET_DEVICE_GIN_PROXY);
}

static void proxies(struct rank *r)
{
	each_device(r, is_proxy);
}

static void props(struct validate *v)
{
	ranks_run(v, 1, proxies);
}

static struct net *net;

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* NCCL has one node for a device, whichever table told it of the device. */
static void is_in_net(struct rank *r, int dev, const ncclNetProperties_v12_t *p)
{
	struct braid_net_props q;
	int n = 0;

	(void)r;
	OK(net_devices(net, &n));
	for (int i = 0; i < n; i++) {
		OK(net_props(net, i, &q));
		if (!same(p->name, q.name))
			continue;
		if (!same(p->pciPath, q.pci_path))
			FAIL("device %d, %.40s, has PCI path %.100s, and %.100s in the net table",
			     dev, p->name, p->pciPath ? p->pciPath : "none",
			     q.pci_path ? q.pci_path : "none");
		return;
	}
	FAIL("device %d is named \"%.60s\", and none in the net table", dev,
	     p->name ? p->name : "");
}

static void net_names(struct rank *r)
{
	char err[512];

	net = net_load(r->v->w->plugin, 0, err, sizeof(err));
	if (!net)
		rank_skip("it has no net table");
	OK(net_init(net, 42, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
	each_device(r, is_in_net);
	OK(net_finalize(net));
	net_unload(net);
}

static void names(struct validate *v)
{
	ranks_run(v, 1, net_names);
}

static void has_budget(struct rank *r, int dev, const ncclNetProperties_v12_t *p)
{
	(void)r;
	if (p->maxRecvs < 1 || p->maxRecvs > RECVS_MAX)
		FAIL("device %d has maxRecvs %d: of 1 to %d", dev, p->maxRecvs, RECVS_MAX);
	rank_saw("%d requests for each target and context", 32 * p->maxRecvs);
}

static void budgets(struct rank *r)
{
	each_device(r, has_budget);
}

static void budget(struct validate *v)
{
	ranks_run(v, 1, budgets);
}

static void has_dmabuf_call(struct rank *r, int dev, const ncclNetProperties_v12_t *p)
{
	if (p->ptrSupport & NCCL_PTR_DMABUF && !r->rma->has_dmabuf)
		FAIL("device %d says that it has DMA-BUF, and there is no regMrSymDmaBuf", dev);
}

static void dmabufs(struct rank *r)
{
	each_device(r, has_dmabuf_call);
}

static void dmabuf(struct validate *v)
{
	ranks_run(v, 1, dmabufs);
}

static void outside(struct rank *r)
{
	ncclNetProperties_v12_t p;
	int n = 0, again = 0;

	OK(rma_devices(r->rma, &n));
	OK(rma_devices(r->rma, &again));
	if (n != again)
		FAIL("it had %d devices, and has %d", n, again);
	if (rma_props(r->rma, -1, &p) == ncclSuccess)
		FAIL("device -1 has properties");
	if (rma_props(r->rma, n, &p) == ncclSuccess)
		FAIL("device %d of %d has properties", n, n);
}

static void bounds(struct validate *v)
{
	ranks_run(v, 1, outside);
}

static void ask_flushes(struct rank *r)
{
	struct group *g;
	bool yes;

	if (r->rma->abi < 16)
		rank_skip("it is about version 16 of the table, and this is %d", r->rma->abi);
	g = group_new(r, 1);
	OK(rma_flushes_all(r->rma, g->coll, &yes));
	rank_saw("a signal %s", yes ? "shows the puts of all ranks" : "shows those of its rank");
	groups_close(r);
}

static void flushes(struct validate *v)
{
	ranks_run(v, 2, ask_flushes);
}

const struct vcheck validate_rma_table[] = {
	{ "rma-load", "Its tables lack no call that NCCL makes unasked",
	  "NCCL calls them without looking, and crashes: report it", load, V_HERE, 0 },
	{ "rma-name", "All its RMA tables have one name",
	  "NCCL's log would name another plugin: report it", name, V_HERE, 0 },
	{ "rma-members", "It has gets and flushes",
	  "Kernels that get or flush fail with ncclInvalidUsage without: report it", members,
	  V_HERE, 0 },
	{ "rma-versions", "Every version of its table carries data",
	  "Some release of NCCL takes the broken one: report it", versions, V_HERE, 0 },
	{ "rma-init-twice", "A second init with the same id is another context",
	  "NCCL makes two for each communicator, one for GIN: no one-sided operations else",
	  init_twice, V_HERE, 0 },
	{ "rma-init-again", "50 times init and finalize leave nothing behind",
	  "Jobs that make many communicators run out of it: report it", init_again, V_HERE, 0 },
	{ "rma-props", "Devices are of the type GIN_PROXY",
	  "NCCL would do without symmetric memory across nodes: report it", props, V_HERE, 0 },
	{ "rma-names", "Devices are named as in the net table",
	  "NCCL would not find which NIC is near which GPU: report it", names, V_HERE, 0 },
	{ "rma-budget", "maxRecvs, from which NCCL sizes its queues, can be",
	  "NCCL's queues of requests would have no room: report it", budget, V_HERE, 0 },
	{ "rma-dmabuf", "Who says that he has DMA-BUF has the call for it",
	  "NCCL calls it and crashes: report it", dmabuf, V_HERE, 0 },
	{ "rma-bounds", "A device that is not there is an error",
	  "NCCL would use memory that is none: report it", bounds, V_HERE, 0 },
	{ "rma-flushes-all", "It says what a signal shows",
	  "NCCL asks when it makes a barrier, and gives up on an error: report it", flushes,
	  V_HERE, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
