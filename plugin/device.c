/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c - the table of devices, and the list of transports to use.
 *
 * A device is an interface that topo/ found usable, with the RDMA port behind it if there is one,
 * or several such interfaces that NCCL has fused.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* secure_getenv */
#endif
#include "config.h"
#include "plugin/device.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/setup/encrypt.h"
#include "core/setup/ways.h"
#include "core/transport.h"
#include "gdr/cuda.h"
#include "plugin/filters.h"
#include "topo/ips.h"
#include "topo/pci.h"

#define BRAID_TRANSPORT(folder, table, ...) extern const struct braid_transport table;
#include "core/base/transports.def"
#undef BRAID_TRANSPORT

static const struct braid_transport *const known[] = {
#define BRAID_TRANSPORT(folder, table, ...) &table,
#include "core/base/transports.def"
#undef BRAID_TRANSPORT
};
enum { KNOWN = sizeof(known) / sizeof(known[0]) };

static struct braid_dev table[BRAID_NETDEVS_MAX];
static unsigned count;

static int family(void)
{
	return braid_param_family(braid_param.socket_family);
}

/* How many RDMA devices are here whose node_type begins with `type`; "" counts all. */
static unsigned count_rdma(const char *type)
{
	DIR *d = opendir("/sys/class/infiniband");
	const struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX], word[16] = "";
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/node_type", e->d_name);
		f = fopen(path, "re");
		if (f && !fgets(word, sizeof(word), f))
			word[0] = '\0';
		if (f)
			fclose(f);
		n += !strncmp(word, type, strlen(type));
	}
	if (d)
		closedir(d);
	return n;
}

/* Could verbs find a NIC on this host? */
static bool has_rdma(void)
{
	return count_rdma("") > 0;
}

bool braid_devices_ib(void)
{
	return count_rdma("1") > 0;	/* "1: CA"; an iWARP NIC is "4: RNIC" */
}

/* Say which transports BRAID_ENCRYPT=require leaves out, unless nobody would miss them. */
static void warn_left_out(const char *names)
{
	if (*names && (strcmp(names, "verbs") != 0 || has_rdma()))
		braid_warn("BRAID_ENCRYPT=require leaves out %s, which Braid can't encrypt. "
			   "If the network does (MACsec, IPsec, PSP), set "
			   "BRAID_FABRIC_ENCRYPTED=1 [cannot-encrypt]", names);
}

/* Choose the transports that BRAID_TRANSPORTS names, in that order. */
static void choose_transports(void)
{
	static const struct braid_transport *chosen[KNOWN + 1];
	const char *p = braid_param.transports;
	char left_out[64] = "";
	size_t at = 0;
	unsigned n = 0;

	while (*p) {
		size_t len = strcspn(p, ",");

		for (unsigned i = 0; i < KNOWN; i++) {
			const char *name = known[i]->name;
			bool fits = len == strlen(name) && !strncmp(p, name, len);

			for (unsigned k = 0; k < n; k++)
				fits &= chosen[k] != known[i];
			if (fits && braid_encrypt_allows(known[i]->id))
				chosen[n++] = known[i];
			else if (fits && at < sizeof(left_out))
				at += (size_t)snprintf(left_out + at, sizeof(left_out) - at,
						       "%s%s", at ? ", " : "", name);
		}
		p += len + (p[len] == ',');
	}
	chosen[n] = NULL;
	warn_left_out(left_out);
	braid_transports_use(chosen);
}

/* Find what each transport can use.  Returns how many devices have a better one than sockets. */
static unsigned probe(void)
{
	unsigned better = 0;

	for (unsigned i = 0; braid_transports[i]; i++) {
		char why[512] = "";

		braid_transports[i]->probe(table, &count, BRAID_NETDEVS_MAX, why, sizeof(why));
		if (why[0])
			braid_info("%s: %s", braid_transports[i]->name, why);
	}
	for (unsigned i = 0; i < count; i++) {
		struct braid_dev *dev = &table[i];

		for (unsigned t = 0; braid_transports[t] && !dev->best; t++) {
			if (dev->port[braid_transports[t]->id])
				dev->best = braid_transports[t];
		}
		better += dev->best && dev->best->ports;
	}
	return better;
}

/*
 * Drop interfaces that no transport can use.  Drop interfaces for sockets alone, too, if the user
 * has not named them, or if other devices have a better transport and the user wants it first.
 */
static void drop_unused(bool better, const bool *extra)
{
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++) {
		bool poor = !table[i].best || !table[i].best->ports;

		if (!table[i].best ||
		    (poor && (extra[i] || (better && braid_transports[0]->ports)))) {
			/* As in NCCL's own code, NCCL_SOCKET_IFNAME's interfaces do handshakes. */
			if (better && !extra[i] && braid_shake_add(&table[i].net))
				braid_info("interfaces: %s is for handshakes of devices with RDMA, "
					   "and for TCP where that fails", table[i].net.name);
			continue;
		}
		if (n != i)
			table[n] = table[i];
		n++;
	}
	count = n;
	for (unsigned i = 0; i < count; i++) {
		table[i].index = i;
		table[i].member[0] = &table[i];
		if (table[i].port[BRAID_TRANSPORT_TCP])
			table[i].port[BRAID_TRANSPORT_TCP] = &table[i];
	}
}

static void log_device(const struct braid_dev *dev)
{
	char names[64] = "";
	size_t len = 0;

	for (unsigned t = 0; braid_transports[t]; t++) {
		if (dev->port[braid_transports[t]->id])
			len += (size_t)snprintf(names + len, sizeof(names) - len, ", %s",
						braid_transports[t]->name);
	}
	braid_info("device %u: %s %s, %d Mbit/s%s%s", dev->index, dev->net.name, dev->addr,
		   dev->net.speed_mbps, dev->net.speed_known ? "" : " (assumed)", names);
}

#define NO_VIRTUAL "^lo,docker,virbr,veth"

static void add_found(const struct braid_netdev *found, int n)
{
	for (int i = 0; i < n && count < BRAID_NETDEVS_MAX; i++) {
		struct braid_dev *dev = &table[count];
		bool there = false;

		for (unsigned k = 0; k < count; k++)
			there |= table[k].net.ifindex == found[i].ifindex;
		if (there)
			continue;
		dev->index = count++;
		dev->net = found[i];
		dev->nmembers = 1;
		dev->member[0] = dev;
		dev->rail = dev->plane = -1;
		braid_ip_text(&dev->net.addr, dev->addr, sizeof(dev->addr));
	}
}

/* Keep our threads near the devices, as far as /sys says which CPUs are near. */
static void pin_near(void)
{
	struct braid_cpus all = { .bits = { 0 } }, some;
	char text[256];

	for (unsigned i = 0; i < count && braid_param.pin; i++) {
		const char *path = table[i].net.pci_path;

		if (!*path || !braid_pci_cpus("", path, &some))
			continue;
		braid_cpus_add(&all, &some);
		table[i].near = some;
	}
	braid_os_near(&all);
	braid_cpus_format(&all, text, sizeof(text));
	if (*text)
		braid_info("the service thread keeps to CPUs %s, which are near the devices, if "
			   "the process may use any of them", text);
}

/* NCCL_NET_FORCE_MERGE, "a,b;c,d": NCCL ends with an error if the plugin refuses a group. */
static void check_merge(const char *list)
{
	for (const char *p = list; p && *p; p += strcspn(p, ",;"), p += *p != '\0') {
		size_t len = strcspn(p, ",;:");

		for (unsigned i = 0; i < count; i++) {
			const char *name = table[i].net.name;

			if (strlen(name) != len || strncmp(name, p, len) != 0 ||
			    *table[i].net.pci_path)
				continue;
			braid_warn("NCCL_NET_FORCE_MERGE names %s, which has no PCI path: joined "
				   "with others no GPU could reach it, so NCCL will not start: "
				   "unset NCCL_NET_FORCE_MERGE [merge-without-path]", name);
			return;
		}
	}
}

/*
 * Find NCCL_SOCKET_IFNAME's interfaces, or, if it is empty, those that lead to other hosts.
 * Returns how many, or a negative errno.
 */
static int find_interfaces(struct braid_netdev found[BRAID_NETDEVS_MAX])
{
	char why[768] = "", name[BRAID_PARAM_VARIABLE];
	int n;

	if (braid_ips_choose(braid_param.address))
		braid_warn("BRAID_ADDRESS=%.200s is not a list of at most 16 subnets such as "
			   "10.0.0.0/8,fd00::/8; it is not used [bad-address]",
			   braid_param.address);
	n = braid_netdev_find(braid_param.socket_ifname, family(), "", found, BRAID_NETDEVS_MAX,
			      why, sizeof(why));
	if (n <= 0)
		braid_warn("%s. Set %s to one that is up and has an address [no-interface]", why,
			   braid_param_variable("socket_ifname", name));
	else if (*why)
		braid_info("interfaces: not offered, since NCCL_SOCKET_IFNAME does not ask for "
			   "them: %s", why);
	return n;
}

int braid_devices_find(void)
{
	static struct braid_netdev found[BRAID_NETDEVS_MAX];
	bool extra[BRAID_NETDEVS_MAX] = { false };
	unsigned asked;
	int n;

	if (count)
		return (int)count;
	if (braid_filters_check())
		return -EINVAL;
	choose_transports();
	n = find_interfaces(found);
	if (n <= 0)
		return n;
	braid_filters_interfaces();
	add_found(found, n);
	/* NCCL_SOCKET_IFNAME does not limit RDMA: other interfaces may have usable ports, too. */
	asked = count;
	if (braid_transports[0] && braid_transports[0]->ports)
		add_found(found, braid_netdev_find(NO_VIRTUAL, family(), "", found,
						   BRAID_NETDEVS_MAX, NULL, 0));
	for (unsigned i = asked; i < count; i++)
		extra[i] = true;
	drop_unused(probe() > 0, extra);
	for (unsigned i = 0; i < count; i++)
		log_device(&table[i]);
	check_merge(secure_getenv("NCCL_NET_FORCE_MERGE"));
	pin_near();
	if (!count)
		braid_warn("none of BRAID_TRANSPORTS=%s can use anything of this machine; "
			   "braid info says why [no-transport]", braid_param.transports);
	return (int)count;
}

/*
 * A fused device can do what all its members can.  DIRECT, which demands a flush, is set if any
 * member has it.
 */
static unsigned gpu_of_all(const struct braid_dev *dev)
{
	unsigned gpu = BRAID_GPU_REG | BRAID_GPU_DMABUF, any = 0;

	for (unsigned i = 0; i < dev->nmembers; i++) {
		gpu &= dev->member[i]->gpu;
		any |= dev->member[i]->gpu & BRAID_GPU_DIRECT;
	}
	return gpu ? gpu | any : 0;
}

static void probe_gpu(struct braid_dev *dev)
{
	char why[512] = "";

	dev->gpu = dev->best->gpu->probe(dev, why, sizeof(why));
	dev->gpu_probed = true;
	braid_info("gpu: memory is %soffered by %s%s: %s", dev->gpu ? "" : "not ", dev->net.name,
		   dev->gpu & BRAID_GPU_DMABUF ? ", also as DMA-BUF" : "", why);
}

void braid_devices_gpu(void)
{
	static bool logged;
	char why[256] = "no context of CUDA is current in the thread that called init";
	unsigned left = 0;

	for (unsigned i = 0; i < count; i++)
		left += table[i].nmembers == 1 && table[i].best->gpu && !table[i].gpu_probed;
	if (!left)
		return;
	if (braid_gpu_load(why, sizeof(why)) || !braid_gpu_current()) {
		if (!logged)
			braid_info("gpu: memory is not offered: %s", why);
		logged = true;
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		if (table[i].nmembers == 1 && table[i].best->gpu && !table[i].gpu_probed)
			probe_gpu(&table[i]);
	}
	for (unsigned i = 0; i < count; i++)
		table[i].gpu = gpu_of_all(&table[i]);
}

static void log_mrs(struct braid_dev *dev)
{
	static uint64_t logged[BRAID_NETDEVS_MAX];
	struct braid_mr_stats s;

	braid_mr_stats(dev, &s);
	if (s.hits + s.misses == logged[dev->index])
		return;
	logged[dev->index] = s.hits + s.misses;
	braid_info("device %u: registrations: %llu hits, %llu misses, %llu refused; at most %u of "
		   "%llu bytes at a time; now %u of %llu bytes", dev->index,
		   (unsigned long long)s.hits, (unsigned long long)s.misses,
		   (unsigned long long)s.refused, s.most_alive, (unsigned long long)s.most_bytes,
		   s.alive, (unsigned long long)s.bytes);
}

static void log_traffic(struct braid_dev *dev)
{
	static uint64_t logged[BRAID_NETDEVS_MAX];
	uint64_t sent = atomic_load(&dev->sent.messages), got = atomic_load(&dev->got.messages);

	if (sent + got == logged[dev->index])
		return;
	logged[dev->index] = sent + got;
	braid_info("device %u: traffic: sent %llu messages of %llu bytes, received %llu of %llu, "
		   "since it was found", dev->index, (unsigned long long)sent,
		   (unsigned long long)atomic_load(&dev->sent.bytes), (unsigned long long)got,
		   (unsigned long long)atomic_load(&dev->got.bytes));
}

void braid_devices_log(void)
{
	for (unsigned i = 0; i < count; i++) {
		log_mrs(&table[i]);
		log_traffic(&table[i]);
	}
}

static bool same_members(const struct braid_dev *a, const struct braid_dev *b)
{
	return a->nmembers == b->nmembers &&
	       !memcmp(a->member, b->member, a->nmembers * sizeof(a->member[0]));
}

/* NCCL finds no path from any GPU to a fused NIC that has no PCI path, and so has no network. */
static bool lacks_path(const struct braid_dev *dev, unsigned n)
{
	if (n < 2 || *dev->net.pci_path || strcmp(braid_param.fuse, "any") == 0)
		return false;
	braid_info("makeVDevice: %s has no PCI path, so NCCL would find no way from a GPU to a "
		   "device that it is part of: it is not made one with others", dev->net.name);
	return true;
}

int braid_devices_fuse(unsigned n, const int *indices)
{
	struct braid_dev dev = { .index = count, .nmembers = n };
	size_t len = 0;

	if (!n || n > BRAID_PATHS_MAX || count == BRAID_NETDEVS_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		dev.member[i] = braid_device(indices[i]);
		if (!dev.member[i] || dev.member[i]->nmembers != 1)
			return -EINVAL;
		if (lacks_path(dev.member[i], n))
			return -EOPNOTSUPP;
		for (unsigned k = 0; k < i; k++) {
			if (dev.member[k] == dev.member[i])
				return -EINVAL;
		}
	}
	for (unsigned i = 0; i < count; i++) {
		if (same_members(&table[i], &dev))
			return (int)i;
	}
	dev.net = dev.member[0]->net;
	dev.best = dev.member[0]->best;
	dev.gpu = gpu_of_all(&dev);
	dev.rail = dev.member[0]->rail;
	dev.plane = dev.member[0]->plane;
	memcpy(dev.addr, dev.member[0]->addr, sizeof(dev.addr));
	for (unsigned i = 0; i < n; i++) {
		const struct braid_netdev *net = &dev.member[i]->net;

		if (dev.member[i]->rail != dev.rail)
			dev.rail = -1;
		if (dev.member[i]->plane != dev.plane)
			dev.plane = -1;
		len += (size_t)snprintf(dev.net.name + len, sizeof(dev.net.name) - len, "%s%s",
					i ? "+" : "", net->name);
		if (i)
			dev.net.speed_mbps += net->speed_mbps;
		dev.net.speed_known &= net->speed_known;
	}
	table[count] = dev;
	braid_info("device %u: %s, %d Mbit/s, made of %u", count, dev.net.name,
		   dev.net.speed_mbps, n);
	return (int)count++;
}

unsigned braid_devices_count(void)
{
	return count;
}

unsigned braid_devices_plain(void)
{
	unsigned n = 0;

	while (n < count && table[n].nmembers == 1)
		n++;
	return n;
}

struct braid_dev *braid_device(int index)
{
	return index >= 0 && (unsigned)index < count ? &table[index] : NULL;
}
