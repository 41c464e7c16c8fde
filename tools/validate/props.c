/* SPDX-License-Identifier: BSD-3-Clause */
/* props.c - is what the plugin reports of its devices true? */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/info/info.h"
#include "tools/validate/far.h"

enum { DEVS = 64 };

/* Read all devices' properties; returns how many. */
static int all(struct validate *v, struct braid_net_props *ret)
{
	net_up(v);
	for (int i = 0; i < v->ndev && i < DEVS; i++) {
		memset(&ret[i], 0, sizeof(ret[i]));
		OK(net_props(v->net, i, &ret[i]));
	}
	return v->ndev < DEVS ? v->ndev : DEVS;
}

static void devices(struct validate *v)
{
	net_up(v);
	saw(v, "%d", v->ndev);
}

static void names(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++) {
		if (!p[i].name || !*p[i].name)
			FAIL("device %d has no name", i);
		for (int k = 0; k < i; k++)
			if (strcmp(p[i].name, p[k].name) == 0)
				FAIL("devices %d and %d are both %s", k, i, p[i].name);
		saw(v, "%s", p[i].name);
	}
}

static void pci(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p), virtual = 0;

	for (int i = 0; i < n; i++) {
		if (!p[i].pci_path) {
			virtual++;
			continue;
		}
		if (access(p[i].pci_path, F_OK) != 0)
			FAIL("%s: its path %s: %s", p[i].name, p[i].pci_path, strerror(errno));
		saw(v, "%s: %s", p[i].name, p[i].pci_path);
	}
	if (virtual == n)
		skip(v, "no device has a path: all are virtual");
}

/* The speed of an interface or port in /sys, in Mbit/s; 0: unknown. */
static long sysfs_speed(const char *name)
{
	char path[256], dev[64];
	int port = 1;
	long speed = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/%.64s/speed", name);
	f = fopen(path, "re");
	if (!f) {
		snprintf(dev, sizeof(dev), "%.*s", (int)strcspn(name, ":"), name);
		if (strchr(name, ':'))
			port = atoi(strchr(name, ':') + 1);
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/rate", dev, port);
		f = fopen(path, "re");
		if (f && fscanf(f, "%ld", &speed) == 1)
			speed *= 1000;
	} else if (fscanf(f, "%ld", &speed) != 1) {
		speed = 0;
	}
	if (f)
		fclose(f);
	return speed > 0 ? speed : 0;
}

static void speed(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++) {
		long want = sysfs_speed(p[i].name);

		if (p[i].speed_mbps <= 0)
			FAIL("%s: %d Mbit/s", p[i].name, p[i].speed_mbps);
		if (want && labs(want - p[i].speed_mbps) > want / 20)
			FAIL("%s: it says %d Mbit/s, the system %ld", p[i].name, p[i].speed_mbps,
			     want);
		saw(v, "%s: %d Mbit/s%s", p[i].name, p[i].speed_mbps,
		    want ? ", as the system says" : "; the system does not say");
	}
}

static void guid(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++)
		for (int k = 0; k < i; k++)
			if (p[i].guid == p[k].guid && p[i].port == p[k].port)
				FAIL("%s and %s have guid 0x%llx and port %d both", p[k].name,
				     p[i].name, (unsigned long long)p[i].guid, p[i].port);
	saw(v, "%d devices", n);
}

static void port(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++)
		if (p[i].port < 0 || p[i].port > 254)
			FAIL("%s: port %d", p[i].name, p[i].port);
	saw(v, "%d devices", n);
}

static void host_memory(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);
	struct pair pair;
	struct buf b;

	for (int i = 0; i < n; i++) {
		if (!(p[i].ptr_support & NCCL_PTR_HOST))
			FAIL("%s does not say that it has host memory", p[i].name);
		on_device(i);
		step(v, "device %s", p[i].name);
		pair_open(v->net, &pair);
		b = buf_new(v->net, pair.send, 1 << 20, 0);
		buf_free(v->net, &b);
		pair_close(v->net, &pair);
	}
	saw(v, "1 MiB was registered at each of %d devices", n);
}

static void cuda(struct validate *v)
{
	struct braid_net_props p[DEVS];
	bool gpu = info_bring_gpu();
	int n = all(v, p), capable = 0;

	for (int i = 0; i < n; i++)
		capable += (p[i].ptr_support & NCCL_PTR_CUDA) != 0;
	if (capable && !gpu)
		FAIL("%d of %d devices say that they have memory of GPUs, and there is no driver "
		     "of a GPU here", capable, n);
	if (!capable)
		skip(v, "no device says that it has memory of GPUs");
	saw(v, "%d of %d devices; flush-gpu moves data there", capable, n);
}

static void dmabuf(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n, capable = 0;

	info_bring_gpu();
	n = all(v, p);
	for (int i = 0; i < n; i++) {
		if (!(p[i].ptr_support & NCCL_PTR_DMABUF))
			continue;
		capable++;
		if (!v->net->has_dmabuf)
			FAIL("%s says that it has DMA-BUF, and there is no regMrDmaBuf",
			     p[i].name);
	}
	if (!capable)
		skip(v, "no device says that it has DMA-BUF");
	saw(v, "%d of %d devices", capable, n);
}

static void max_comms(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++) {
		if (p[i].max_comms < 1)
			FAIL("%s: %d comms", p[i].name, p[i].max_comms);
		saw(v, "%s: %d", p[i].name, p[i].max_comms);
	}
}

static void max_recvs(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	for (int i = 0; i < n; i++) {
		if (p[i].max_recvs < 1 || p[i].max_recvs > 8)
			FAIL("%s: %d grouped receives; NCCL has from 1 to 8", p[i].name,
			     p[i].max_recvs);
		saw(v, "%s: %d", p[i].name, p[i].max_recvs);
	}
}

static void sizes(struct validate *v)
{
	struct braid_net_props p[DEVS];
	int n = all(v, p);

	needs_abi(v, 9);
	for (int i = 0; i < n; i++)
		if (p[i].max_p2p_bytes < 1 << 20 || p[i].max_coll_bytes < 1 << 20)
			FAIL("%s: %zu bytes, %zu for collectives: less than NCCL's pieces",
			     p[i].name, p[i].max_p2p_bytes, p[i].max_coll_bytes);
	saw(v, "%zu bytes, %zu for collectives", p[0].max_p2p_bytes, p[0].max_coll_bytes);
}

static void stable(struct validate *v)
{
	struct braid_net_props p[DEVS], q;
	int n = all(v, p);

	for (int i = 0; i < n; i++) {
		memset(&q, 0, sizeof(q));
		OK(net_props(v->net, i, &q));
		if (strcmp(q.name, p[i].name) != 0 || q.speed_mbps != p[i].speed_mbps ||
		    q.guid != p[i].guid || q.ptr_support != p[i].ptr_support ||
		    q.max_recvs != p[i].max_recvs)
			FAIL("%s: another answer at the second call", p[i].name);
	}
	saw(v, "%d devices", n);
}

static void versions(struct validate *v)
{
	struct braid_net_props p[DEVS], q;
	int n = all(v, p), seen = 0, devs;
	char err[512];

	for (int abi = NET_ABI_OLDEST; abi <= NET_ABI_NEWEST; abi++) {
		struct net *net = net_load(v->w->plugin, abi, err, sizeof(err));

		if (!net || abi == v->abi)
			continue;
		OK(net_init(net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, net_log, NULL));
		OK(net_devices(net, &devs));
		if (devs != v->ndev)
			FAIL("version %d has %d devices, version %d %d", abi, devs, v->abi,
			     v->ndev);
		for (int i = 0; i < n; i++) {
			memset(&q, 0, sizeof(q));
			OK(net_props(net, i, &q));
			if (strcmp(q.name, p[i].name) != 0 || q.speed_mbps != p[i].speed_mbps)
				FAIL("device %d is %s, %d Mbit/s in version %d, %s, %d in %d", i,
				     q.name, q.speed_mbps, abi, p[i].name, p[i].speed_mbps,
				     v->abi);
		}
		seen++;
	}
	if (!seen)
		skip(v, "it has version %d alone", v->abi);
	saw(v, "%d versions", seen + 1);
}

static void bounds(struct validate *v)
{
	struct braid_net_props p;

	net_up(v);
	memset(&p, 0, sizeof(p));
	if (net_props(v->net, -1, &p) == ncclSuccess)
		FAIL("getProperties(-1) is a success");
	if (net_props(v->net, v->ndev, &p) == ncclSuccess)
		FAIL("getProperties(%d) of %d devices is a success", v->ndev, v->ndev);
}

static void fused(struct validate *v)
{
	struct braid_net_props p[DEVS], q;
	int n = all(v, p), devs[2] = { 0, 1 }, dev = -1;

	if (!v->net->has_vdevice)
		skip(v, "it has no makeVDevice");
	if (n < 2)
		skip(v, "it has one device");
	if (net_fuse(v->net, 2, devs, &dev) != ncclSuccess)
		skip(v, "it does not join %s and %s", p[0].name, p[1].name);
	memset(&q, 0, sizeof(q));
	OK(net_props(v->net, dev, &q));
	if (q.ndevs != 2 || q.devs[0] != 0 || q.devs[1] != 1)
		FAIL("what was made of devices 0 and 1 has %d devices", q.ndevs);
	saw(v, "%s", q.name);
}

const struct vcheck validate_props[] = {
	{ "props-devices", "It has a device",
	  "braid doctor says what keeps it from having one", devices, V_HERE, 0 },
	{ "props-name", "Every device has a name of its own", REPORT,
	  names, V_HERE, 0 },
	{ "props-pci", "A device's PCI path is there",
	  "NCCL finds no GPU near that NIC: is /sys mounted in this container?", pci, V_HERE, 0 },
	{ "props-speed", "A device's speed is what the system says",
	  "NCCL's choice of rings goes by it: ethtool says what the link has come up with", speed,
	  V_HERE, 0 },
	{ "props-guid", "No two devices have the same guid and port",
	  "NCCL takes them for one NIC: report it", guid, V_HERE, 0 },
	{ "props-port", "Ports have numbers that can be", REPORT, port,
	  V_HERE, 0 },
	{ "props-host", "Host memory can be registered at every device",
	  "ulimit -l unlimited, and see braid doctor --only limits", host_memory, V_HERE, 0 },
	{ "props-cuda", "Who says that he has memory of GPUs has a GPU's driver",
	  "nvidia-smi must work in this container; else report it", cuda, V_HERE, 0 },
	{ "props-dmabuf", "Who says that he has DMA-BUF has the call for it",
	  REPORT, dmabuf, V_HERE, 0 },
	{ "props-comms", "Comms can be made", REPORT, max_comms, V_HERE,
	  0 },
	{ "props-recvs", "Grouped receives are as many as NCCL has",
	  REPORT, max_recvs, V_HERE, 0 },
	{ "props-sizes", "Messages may be as large as NCCL makes them",
	  REPORT, sizes, V_HERE, 0 },
	{ "props-stable", "The second answer is the first", REPORT,
	  stable, V_HERE, 0 },
	{ "props-versions", "All versions have the same devices",
	  REPORT, versions, V_HERE, 0 },
	{ "props-bounds", "A device that is not there is an error",
	  REPORT, bounds, V_HERE, 0 },
	{ "props-fused", "Two devices can be joined, and say so",
	  "Set NCCL_NET_MERGE_LEVEL=LOC, and report it", fused, V_HERE, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
