/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gidtab.c - the GID table of a port, and which entries belong to this network namespace.
 *
 * An RDMA device may serve several network namespaces; its table has their addresses together.  The
 * index of an interface has a meaning only in the interface's own namespace; elsewhere the same
 * index may belong to another interface.  So an entry is ours only if the interface that has this
 * index here has the entry's address.
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>

#include "verbs/port.h"

/* Reads the entry's file in /sys; false: there is none, or it is empty. */
static bool read_sysfs(const struct braid_ibport *p, const char *what, unsigned i, char *ret,
		       size_t len)
{
	char path[IBV_SYSFS_PATH_MAX + 64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/ports/%u/gid_attrs/%s/%u", p->ctx->device->ibdev_path,
		 p->num, what, i);
	f = fopen(path, "re");
	if (!f || !fgets(ret, (int)len, f))
		ret[0] = '\0';
	if (f)
		fclose(f);
	ret[strcspn(ret, "\n")] = '\0';
	return ret[0];
}

static bool type_from_sysfs(const struct braid_ibport *p, struct braid_gid *g)
{
	char text[64] = "";

	read_sysfs(p, "types", g->index, text, sizeof(text));
	g->type = strstr(text, "v2") ? BRAID_GID_ROCE_V2 :
		  text[0] ? BRAID_GID_ROCE_V1 : BRAID_GID_IB;
	return text[0];
}

/* Is this the GID that each RoCE port makes of its MAC address (EUI-64)? */
static bool is_of_mac(const uint8_t *raw, const struct sockaddr *sa)
{
	struct sockaddr_ll ll;
	const uint8_t *mac = ll.sll_addr;

	if (sa->sa_family != AF_PACKET)
		return false;
	memcpy(&ll, sa, sizeof(ll));
	return ll.sll_halen == 6 && raw[0] == 0xfe && raw[1] == 0x80 &&
	       raw[8] == (mac[0] ^ 2) && !memcmp(raw + 9, mac + 1, 2) && raw[11] == 0xff &&
	       raw[12] == 0xfe && !memcmp(raw + 13, mac + 3, 3);
}

static bool is_here(const struct braid_ibport *p, const struct braid_gid *g,
		    const struct ifaddrs *list)
{
	char name[IF_NAMESIZE] = "", other[64];

	if (g->ifindex && !if_indextoname(g->ifindex, name))
		return false;
	for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
		if (!a->ifa_addr || (name[0] && strcmp(a->ifa_name, name)) ||
		    (!braid_gid_is_addr(g->raw, a->ifa_addr) && !is_of_mac(g->raw, a->ifa_addr)))
			continue;
		if (!read_sysfs(p, "ndevs", g->index, other, sizeof(other)) ||
		    !strcmp(other, a->ifa_name))
			return true;
	}
	return false;
}

/* False: there is no such entry. */
static bool read_entry(const struct braid_ibport *p, unsigned i, struct braid_gid *ret)
{
	struct ibv_gid_entry e = { 0 };
	union ibv_gid gid;

	*ret = (struct braid_gid){ .index = i };
	if (!braid_ibv.query_gid_ex) {
		if (braid_ibv.query_gid(p->ctx, p->num, (int)i, &gid) ||
		    (p->fabric == BRAID_FABRIC_ROCE && !type_from_sysfs(p, ret)))
			return false;
		memcpy(ret->raw, gid.raw, sizeof(ret->raw));
		return true;
	}
	/* The call fails for empty entries and for those of other namespaces. */
	if (braid_ibv.query_gid_ex(p->ctx, p->num, i, &e, 0, sizeof(e)))
		return false;
	memcpy(ret->raw, e.gid.raw, sizeof(ret->raw));
	ret->type = e.gid_type == IBV_GID_TYPE_ROCE_V2 ? BRAID_GID_ROCE_V2 :
		    e.gid_type == IBV_GID_TYPE_ROCE_V1 ? BRAID_GID_ROCE_V1 : BRAID_GID_IB;
	ret->ifindex = e.ndev_ifindex;
	return true;
}

unsigned braid_ibport_gids(const struct braid_ibport *p, struct braid_gid *ret, unsigned max)
{
	struct ibv_port_attr attr = { 0 };
	struct ifaddrs *list = NULL;
	unsigned n = 0;

	if (braid_ibv.query_port(p->ctx, p->num, &attr))
		return 0;
	for (unsigned i = 0; i < (unsigned)attr.gid_tbl_len && n < max; i++)
		n += read_entry(p, i, &ret[n]);
	if (p->fabric != BRAID_FABRIC_ROCE || !n || getifaddrs(&list) < 0)
		return n;
	for (unsigned i = 0; i < n; i++)
		ret[i].foreign = !is_here(p, &ret[i], list);
	freeifaddrs(list);
	return n;
}
