/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma.c - RDMA ports: state, addresses (GIDs), MTU, partition keys, firmware. */
#include "config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "topo/netdev.h"

enum { GIDS_MAX = 256 };

static void state(struct doctor *d)
{
	const struct rdma_port *p;
	char text[NAME_LEN];
	unsigned active = 0;

	if (no_port(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); )
		active += p->active;
	doctor_fact(d, "rdma ports active", "%u", active);
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (!sys_line(d, text, sizeof(text), "%s/state", p->dir))
			snprintf(text, sizeof(text), "unknown");
		if (p->active) {
			doctor_ok(d, "%s is active", p->name);
			continue;
		}
		doctor_find(d, active ? LEVEL_NOTE : LEVEL_FAIL, "%s is not active: %s", p->name,
			    text);
		if (strstr(text, "INIT") && !p->roce && !p->iwarp)
			doctor_mend(d, "sudo sminfo -C %s -P %d   # no answer: no subnet manager "
				    "(opensm, or the switch's) runs", p->dev, p->num);
		else if (*p->netdev)
			doctor_mend(d, "sudo ip link set dev %s up", p->netdev);
		else
			doctor_mend(d, "rdma link show %s/%d   # cable, module, switch port",
				    p->dev, p->num);
	}
}

static int rate(struct doctor *d, const struct rdma_port *p)
{
	char text[NAME_LEN];

	return sys_line(d, text, sizeof(text), "%s/rate", p->dir) ? atoi(text) : 0;
}

/* Cards of one make at different speeds: one of them trained its link badly. */
static void rates(struct doctor *d)
{
	char board[NAME_LEN], other[NAME_LEN], key[NAME_LEN + 32];
	const struct rdma_port *p, *q;
	bool slow = false;

	if (no_port(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		const struct rdma_port *best = p;

		if (!p->active || p->soft ||
		    !sys_line(d, board, sizeof(board), "/sys/class/infiniband/%s/board_id", p->dev))
			continue;
		snprintf(key, sizeof(key), "rate %s", p->name);
		doctor_fact(d, key, "%d", rate(d, p));
		for (unsigned k = 0; next_port(d, &k, &q); )
			if (q->active && rate(d, q) > rate(d, best) &&
			    sys_line(d, other, sizeof(other), "/sys/class/infiniband/%s/board_id",
				     q->dev) && strcmp(board, other) == 0)
				best = q;
		if (best == p)
			continue;
		slow = true;
		doctor_find(d, LEVEL_WARN, "%s runs at %d Gbit/s, %s of the same make at %d",
			    p->name, rate(d, p), best->name, rate(d, best));
		doctor_mend(d, "mlxlink -d %s -p %d   # cable, module, switch port", p->dev,
			    p->num);
	}
	if (!slow)
		doctor_ok(d, "ports of one make have one speed");
}

/* -- GIDs --------------------------------------------------------------------------------- */

struct gid {
	char text[INET6_ADDRSTRLEN];
	bool v2, v4, link_local;
};

/* Read a GID; false: no such entry, or it is empty. */
static bool gid_read(struct doctor *d, const struct rdma_port *p, unsigned i, struct gid *ret)
{
	char text[NAME_LEN];
	struct in6_addr a;

	if (!sys_line(d, text, sizeof(text), "%s/gids/%u", p->dir, i) ||
	    inet_pton(AF_INET6, text, &a) != 1 || IN6_IS_ADDR_UNSPECIFIED(&a))
		return false;
	ret->v4 = IN6_IS_ADDR_V4MAPPED(&a);
	ret->link_local = IN6_IS_ADDR_LINKLOCAL(&a);
	ret->v2 = sys_line(d, text, sizeof(text), "%s/gid_attrs/types/%u", p->dir, i) &&
		  strcmp(text, "RoCE v2") == 0;
	if (ret->v4)
		inet_ntop(AF_INET, a.s6_addr + 12, ret->text, sizeof(ret->text));
	else
		inet_ntop(AF_INET6, &a, ret->text, sizeof(ret->text));
	return true;
}

/* The best entry: RoCE v2 of an IPv4 address, else of a routed IPv6 one; -1: none. */
static int gid_best(struct doctor *d, const struct rdma_port *p)
{
	int v6 = -1;
	struct gid g;

	for (unsigned i = 0; i < GIDS_MAX; i++) {
		if (!gid_read(d, p, i, &g) || !g.v2 || g.link_local)
			continue;
		if (g.v4)
			return (int)i;
		if (v6 < 0)
			v6 = (int)i;
	}
	return v6;
}

static bool no_roce(struct doctor *d)
{
	const struct rdma_port *p;

	for (unsigned i = 0; next_port(d, &i, &p); )
		if (p->roce && p->active)
			return false;
	doctor_skip(d, "no active RoCE port");
	return true;
}

static void gid(struct doctor *d)
{
	char key[NAME_LEN + 32];
	const struct rdma_port *p;
	struct gid g;

	if (no_roce(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		int best = p->roce && p->active ? gid_best(d, p) : -1;

		if (!p->roce || !p->active)
			continue;
		snprintf(key, sizeof(key), "gid index %s", p->name);
		doctor_fact(d, key, "%d", best);
		if (best >= 0 && gid_read(d, p, (unsigned)best, &g)) {
			doctor_ok(d, "%s: GID %d is RoCE v2 of %s", p->name, best, g.text);
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "%s has no GID of RoCE v2 with an address%s%s", p->name,
			    *p->netdev ? ": give one to " : "", p->netdev);
		doctor_mend(d, "sudo ip addr add ADDRESS/PREFIX dev %s",
			    *p->netdev ? p->netdev : "INTERFACE");
	}
}

static void gid_index(struct doctor *d)
{
	static const char single[] = "BRAID_IB_GID";
	const char *all, *name, *text = env_param(d, "ib_gid_index", &all);
	const char *own = env_get(d, single);
	const struct rdma_port *p;
	long long common, index;
	char value[16];
	struct gid g;

	if (no_roce(d))
		return;
	if (!text || !env_number(d, all, &common))
		common = -1;
	if (common < 0 && !own) {
		doctor_ok(d, "the GID is chosen by its address");
		return;
	}
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		int best = p->roce && p->active ? gid_best(d, p) : -1;
		bool there;

		index = own ? braid_netdev_port_number(own, p->dev, (unsigned)p->num) : -1;
		name = index < 0 ? all : single;
		if (index < 0)
			index = common;
		if (!p->roce || !p->active || index < 0)
			continue;
		there = index < GIDS_MAX && gid_read(d, p, (unsigned)index, &g);
		if (there && g.v2 && !g.link_local) {
			doctor_ok(d, "%s: %s=%lld is RoCE v2 of %s", p->name, name, index, g.text);
			continue;
		}
		if (there)
			doctor_find(d, LEVEL_FAIL, "wrong GID: %s=%lld is %s of %s at %s", name,
				    index, g.v2 ? "RoCE v2" : "RoCE v1", g.text, p->name);
		else
			doctor_find(d, LEVEL_FAIL, "wrong GID: %s=%lld is empty at %s", name, index,
				    p->name);
		snprintf(value, sizeof(value), "%d", best);
		doctor_mend_set(d, name, best >= 0 && name == all ? value : NULL);
	}
}

/* -- the rest of a port ------------------------------------------------------------------- */

static void lid(struct doctor *d)
{
	const struct rdma_port *p;
	bool seen = false;
	long long v, sm;

	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (p->roce || p->iwarp || !p->active || !sys_number(d, &v, "%s/lid", p->dir))
			continue;
		seen = true;
		if (v && sys_number(d, &sm, "%s/sm_lid", p->dir) && sm) {
			doctor_ok(d, "%s has LID %lld, the subnet manager %lld", p->name, v, sm);
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "%s has %s", p->name,
			    v ? "no subnet manager" : "no LID: no subnet manager gave one");
		doctor_mend(d, "sudo sminfo -C %s -P %d   # no answer: no subnet manager (opensm, "
			    "or the switch's) runs", p->dev, p->num);
	}
	if (!seen)
		doctor_skip(d, "no active InfiniBand port");
}

/* RoCE takes the largest of 256 ... 4096 that fits into the interface's MTU with its headers. */
static void mtu(struct doctor *d)
{
	const struct rdma_port *p;
	long long v;

	if (no_roce(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (!p->roce || !p->active || !*p->netdev ||
		    !sys_number(d, &v, "/sys/class/net/%s/mtu", p->netdev))
			continue;
		if (v >= 4200) {
			doctor_ok(d, "%s has packets of 4096 bytes (%s: MTU %lld)", p->name,
				  p->netdev, v);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s has packets of %d bytes only: %s has MTU %lld",
			    p->name, v >= 2200 ? 2048 : v >= 1100 ? 1024 : 512, p->netdev, v);
		doctor_mend(d, "ip -d link show dev %s   # its maxmtu; all switches and peers "
			    "first, or nothing passes", p->netdev);
	}
}

static void pkey(struct doctor *d)
{
	const char *name, *text = env_param(d, "ib_pkey", &name);
	long long index = 0, key;
	const struct rdma_port *p;
	bool seen = false;

	if (text)
		env_number(d, name, &index);
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (p->roce || p->iwarp || !p->active)
			continue;
		seen = true;
		if (!sys_number(d, &key, "%s/pkeys/%lld", p->dir, index) || !(key & 0x7fff)) {
			doctor_find(d, LEVEL_FAIL, "%s has no partition key at index %lld", p->name,
				    index);
			doctor_mend_set(d, text ? name : "NCCL_IB_PKEY", NULL);
		} else if (!(key & 0x8000)) {
			doctor_find(d, LEVEL_WARN, "%s is a limited member of partition 0x%llx: "
				    "two limited ones can't talk", p->name, key);
			doctor_mend(d, "grep -n %04llx /etc/opensm/partitions.conf   # make it "
				    "full", key);
		} else {
			doctor_ok(d, "%s is a full member of partition 0x%llx", p->name,
				  key & 0x7fff);
		}
	}
	if (!seen)
		doctor_skip(d, "no active InfiniBand port");
}

/* The file reads "Global tclass=106". */
static void traffic_class(struct doctor *d)
{
	const char *name, *text = env_param(d, "ib_tc", &name), *at;
	const struct rdma_port *p;
	char line[NAME_LEN], value[NAME_LEN];
	long long tc;
	bool bad = false;

	if (no_roce(d))
		return;
	if (!text || !env_number(d, name, &tc) || tc < 0) {
		doctor_ok(d, "no traffic class is asked for");
		return;
	}
	if (tc & 3 || tc > 255) {
		doctor_find(d, LEVEL_WARN, "%s=%lld is no DSCP times 4", name, tc);
		snprintf(value, sizeof(value), "%lld", tc < 64 ? tc * 4 : 104);
		doctor_mend_set(d, name, value);
		return;
	}
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (!p->roce || !sys_line(d, line, sizeof(line),
					  "/sys/class/infiniband/%s/tc/%d/traffic_class", p->dev,
					  p->num))
			continue;
		at = strstr(line, "tclass=");
		if (!at || atoi(at + 7) == tc || atoi(at + 7) < 0)
			continue;
		bad = true;
		doctor_find(d, LEVEL_WARN, "%s=%lld, but %s is set to %d for all", name, tc,
			    p->name, atoi(at + 7));
		snprintf(value, sizeof(value), "%d", atoi(at + 7));
		doctor_mend_set(d, name, value);
	}
	if (!bad)
		doctor_ok(d, "%s=%lld is DSCP %lld", name, tc, tc / 4);
}

static void firmware(struct doctor *d)
{
	char board[NAME_LEN], fw[NAME_LEN], other[NAME_LEN], key[NAME_LEN + 32];
	const struct rdma_port *p, *q;
	bool differ = false;

	if (no_port(d))
		return;
	for (unsigned i = 0; next_port(d, &i, &p); ) {
		if (!sys_line(d, board, sizeof(board), "/sys/class/infiniband/%s/board_id",
			      p->dev) ||
		    !sys_line(d, fw, sizeof(fw), "/sys/class/infiniband/%s/fw_ver", p->dev))
			continue;
		snprintf(key, sizeof(key), "firmware %s", p->dev);
		doctor_fact(d, key, "%s", fw);
		for (unsigned k = i; next_port(d, &k, &q); ) {
			if (!sys_line(d, other, sizeof(other), "/sys/class/infiniband/%s/board_id",
				      q->dev) || strcmp(board, other) != 0 ||
			    !sys_line(d, other, sizeof(other), "/sys/class/infiniband/%s/fw_ver",
				      q->dev) || strcmp(fw, other) == 0)
				continue;
			differ = true;
			doctor_find(d, LEVEL_WARN, "%s has firmware %s, %s of the same make %s",
				    p->dev, fw, q->dev, other);
			doctor_mend(d, "sudo mlxfwmanager --query   # or the maker's own tool; an "
				    "update takes the NIC down");
		}
	}
	if (!differ)
		doctor_ok(d, "cards of one make have one firmware");
}

const struct check doctor_rdma[] = {
	{ "rdma-state", "State of RDMA ports", "A port that is not active carries nothing", state },
	{ "rdma-rate", "Speed of RDMA ports",
	  "It has fewer lanes, or slower ones, than it should: most often the cable", rates },
	{ "rdma-gid", "Addresses (GIDs) of RoCE ports",
	  "Without one packets can't be routed: the first byte times out", gid },
	{ "rdma-gid-index", "The GID that is asked for",
	  "Another entry than the one of the interface's address: the first byte times out "
	  "(error 12)", gid_index },
	{ "rdma-lid", "LIDs of InfiniBand ports",
	  "A subnet manager gives addresses and routes; without it nothing is sent", lid },
	{ "rdma-mtu", "Packet size of RoCE ports",
	  "More packets, and headers, for the same bytes; the smaller one of the two ends counts",
	  mtu },
	{ "rdma-pkey", "Partition keys",
	  "Ports without a common partition do not see each other: the first byte times out",
	  pkey },
	{ "rdma-class", "Traffic class",
	  "Packets go in a queue that is neither lossless nor marked: losses under load",
	  traffic_class },
	{ "rdma-firmware", "Firmware of the cards",
	  "Cards of one make that behave differently are hard to reason about", firmware },
	{ NULL, NULL, NULL, NULL },
};
