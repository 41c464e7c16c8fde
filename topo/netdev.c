/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev.c - choose among the machine's network interfaces, and say what they are.
 *
 * Three steps.  collect() folds getifaddrs()'s list, an entry per address, into one candidate per
 * interface with the best address it has.  choose() sorts the usable ones into groups by name and
 * filter and keeps the first group that is not empty: that is all of NCCL's order.  describe()
 * reads sysfs for the few that are left.
 *
 * The interface an address is on need not be the one that is plugged into PCI: a VLAN, a bond or
 * a paravirtual interface stands on lower ones.  speed() and find_pci() walk down until one knows.
 */
#include "topo/netdev.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/pci.h"
#include "topo/sys.h"

enum {
	SPEED_GUESS = 10000,		/* Mb/s */
	SPEED_MOST = 10000000,		/* more is a driver's way to say that it does not know */
	SPEED_NONE_16 = 65535,		/* so is this, of older ones */
	LOWERS_MAX = 16,
	DEPTH_MAX = 4,			/* a VLAN on a bond of paravirtual interfaces needs three */
	FN_MAX = 8,			/* PCI functions of a device */
	PORT_MOST = 0xffff,
};

/* The flags of /proc/net/if_inet6, from linux/if_addr.h, which clashes with net/if.h. */
enum {
	V6_TEMPORARY = 0x01,
	V6_DADFAILED = 0x08,
	V6_DEPRECATED = 0x20,
	V6_TENTATIVE = 0x40,
};

/* How good an address is; less is better. */
enum rank {
	RANK_V4,
	RANK_V4_LINK_LOCAL,
	RANK_V6,
	RANK_V6_TEMPORARY,		/* will go in a day or so; a job may stay longer */
	RANK_V6_LOCAL,
	RANK_V6_LOCAL_TEMPORARY,
	RANK_V6_LINK_LOCAL,
	RANK_NONE,
};

/* NCCL's order of interfaces if it isn't told which; with a filter only two of them matter. */
enum group { GROUP_IB, GROUP_PLAIN, GROUP_DOCKER, GROUP_LOOPBACK, GROUP_VIRBR, GROUP_NONE };

struct v6_row {
	struct in6_addr addr;
	char name[BRAID_NETDEV_NAME];
	unsigned flags;
};

struct cand {
	char name[BRAID_NETDEV_NAME];
	unsigned flags;			/* IFF_* */
	unsigned ifindex;
	enum rank rank;
	union braid_netdev_addr addr;	/* unless RANK_NONE */
	unsigned prefix;
};

struct search {
	const char *sysroot;
	const char *filter_text;
	struct braid_netdev_filter filter;
	int family;
	struct v6_row *v6;
	size_t n_v6;
	struct cand *cands;
	size_t n_cands;
};

struct lowers {
	unsigned n;
	bool one_at_a_time;		/* a bond that keeps the others in reserve */
	char names[LOWERS_MAX][BRAID_NETDEV_NAME];
};

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ------------------------------------------------------------------------------------ filter */

int braid_netdev_port_number(const char *list, const char *name, unsigned num)
{
	size_t len = strlen(name);

	for (; *list; list += strcspn(list, ","), list += *list == ',') {
		const char *p = list + len;

		if (strncmp(list, name, len) || (*p == ':' && strtoul(p + 1, NULL, 10) != num))
			continue;
		if (*p == ':')
			p += strcspn(p, "=,");
		if (*p == '=')
			return atoi(p + 1);
	}
	return -1;
}

/* --------------------------------------------------------------------------------- addresses */

/* 32 hex digits, as in /proc/net/if_inet6. */
static void parse_v6(const char *hex, struct in6_addr *ret)
{
	for (int i = 0; i < 16; i++) {
		char pair[3] = { hex[2 * i], hex[2 * i + 1] };

		ret->s6_addr[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
}

/* Read the IPv6 address flags, which getifaddrs() leaves out.  Without the file there are none. */
static int load_v6(struct search *s)
{
	char path[PATH_MAX], line[256], hex[33];
	struct v6_row row, *grown;
	size_t room = 0;
	int err = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/net/if_inet6", s->sysroot);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%32[0-9a-fA-F] %*x %*x %*x %x %15s", hex, &row.flags,
			   row.name) != 3 || strlen(hex) != 32)
			continue;
		parse_v6(hex, &row.addr);
		if (s->n_v6 == room) {
			room = room ? 2 * room : 16;
			grown = realloc(s->v6, room * sizeof(row));
			if (!grown) {
				err = -ENOMEM;
				break;
			}
			s->v6 = grown;
		}
		s->v6[s->n_v6++] = row;
	}
	fclose(file);
	return err;
}

static unsigned v6_flags(const struct search *s, const char *name, const struct in6_addr *addr)
{
	for (size_t i = 0; i < s->n_v6; i++) {
		if (strcmp(s->v6[i].name, name) == 0 &&
		    memcmp(&s->v6[i].addr, addr, sizeof(*addr)) == 0)
			return s->v6[i].flags;
	}
	return 0;
}

static enum rank rank_v4(const struct sockaddr_in *in)
{
	uint32_t a = ntohl(in->sin_addr.s_addr);

	if (a == INADDR_ANY)
		return RANK_NONE;
	return a >> 16 == 0xa9fe ? RANK_V4_LINK_LOCAL : RANK_V4;
}

static enum rank rank_v6(const struct in6_addr *a, unsigned flags)
{
	bool temporary = flags & V6_TEMPORARY;

	if (flags & (V6_TENTATIVE | V6_DEPRECATED | V6_DADFAILED) || IN6_IS_ADDR_UNSPECIFIED(a) ||
	    IN6_IS_ADDR_MULTICAST(a) || IN6_IS_ADDR_V4MAPPED(a))
		return RANK_NONE;
	if (IN6_IS_ADDR_LINKLOCAL(a))
		return RANK_V6_LINK_LOCAL;
	if ((a->s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_SITELOCAL(a))
		return temporary ? RANK_V6_LOCAL_TEMPORARY : RANK_V6_LOCAL;
	return temporary ? RANK_V6_TEMPORARY : RANK_V6;
}

/* -------------------------------------------------------------------------------- candidates */

/* The candidate for an entry's name; that of an alias, "eth0:1", is its interface. */
static struct cand *cand_get(struct search *s, const char *entry)
{
	size_t len = strcspn(entry, ":");
	struct cand *c;

	if (len >= BRAID_NETDEV_NAME)
		return NULL;
	for (c = s->cands; c < s->cands + s->n_cands; c++) {
		if (strncmp(c->name, entry, len) == 0 && !c->name[len])
			return c;
	}
	s->n_cands++;
	memcpy(c->name, entry, len);
	c->rank = RANK_NONE;
	return c;
}

static unsigned prefix_of(const struct sockaddr *mask)
{
	const uint8_t *p = NULL;
	unsigned n = 0, bits = 0;

	if (mask && mask->sa_family == AF_INET) {
		p = (const uint8_t *)&((const struct sockaddr_in *)mask)->sin_addr;
		n = 4;
	} else if (mask && mask->sa_family == AF_INET6) {
		p = (const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr;
		n = 16;
	}
	while (bits < 8 * n && p[bits / 8] >> (7 - bits % 8) & 1)
		bits++;
	return bits;
}

static void cand_offer(const struct search *s, struct cand *c, const struct sockaddr *sa,
		       const struct sockaddr *mask)
{
	union braid_netdev_addr addr = { .sa.sa_family = sa->sa_family };
	enum rank rank = RANK_NONE;

	if (sa->sa_family == AF_PACKET)
		c->ifindex = (unsigned)((const struct sockaddr_ll *)sa)->sll_ifindex;
	if (s->family != AF_UNSPEC && sa->sa_family != s->family)
		return;
	if (sa->sa_family == AF_INET) {
		addr.in = *(const struct sockaddr_in *)sa;
		rank = rank_v4(&addr.in);
	} else if (sa->sa_family == AF_INET6) {
		addr.in6 = *(const struct sockaddr_in6 *)sa;
		rank = rank_v6(&addr.in6.sin6_addr,
			       v6_flags(s, c->name, &addr.in6.sin6_addr));
	}
	if (rank < c->rank) {
		c->rank = rank;
		c->addr = addr;
		c->prefix = prefix_of(mask);
	}
}

static int collect(struct search *s, const struct ifaddrs *list)
{
	size_t n = 0;

	for (const struct ifaddrs *e = list; e; e = e->ifa_next)
		n++;
	s->cands = calloc(n ? n : 1, sizeof(*s->cands));
	if (!s->cands)
		return -ENOMEM;
	for (const struct ifaddrs *e = list; e; e = e->ifa_next) {
		struct cand *c = cand_get(s, e->ifa_name);

		if (!c)
			continue;
		c->flags = e->ifa_flags;
		if (e->ifa_addr)
			cand_offer(s, c, e->ifa_addr, e->ifa_netmask);
	}
	return 0;
}

/* Why an interface can't be used; NULL: it can. */
static const char *cand_fault(const struct search *s, const struct cand *c)
{
	if (!braid_netdev_filter_match(&s->filter, c->name))
		return "is not in the filter";
	if (!(c->flags & IFF_UP))
		return "is down";
	if (!(c->flags & IFF_RUNNING))
		return "has no carrier";
	if (c->flags & IFF_SLAVE)
		return "is the slave of another";
	if (c->rank == RANK_NONE) {
		return s->family == AF_INET ? "has no IPv4 address" :
		       s->family == AF_INET6 ? "has no usable IPv6 address" : "has no IP address";
	}
	return NULL;
}

unsigned braid_netdev_rank(const struct braid_netdev_filter *f, const char *name, bool loopback)
{
	if (f->n)
		return loopback && f->exclude ? GROUP_LOOPBACK : GROUP_PLAIN;
	return loopback ? GROUP_LOOPBACK :
	       has_prefix(name, "ib") ? GROUP_IB :
	       has_prefix(name, "docker") ? GROUP_DOCKER :
	       has_prefix(name, "virbr") ? GROUP_VIRBR : GROUP_PLAIN;
}

static unsigned cand_group(const struct search *s, const struct cand *c)
{
	return braid_netdev_rank(&s->filter, c->name, c->flags & IFF_LOOPBACK);
}

/* Move the usable candidates of the first group that has any to the front; returns how many. */
static size_t choose(struct search *s)
{
	unsigned first = GROUP_NONE;
	size_t n = 0;

	for (size_t i = 0; i < s->n_cands; i++) {
		unsigned g = cand_group(s, &s->cands[i]);

		if (!cand_fault(s, &s->cands[i]) && g < first)
			first = g;
	}
	for (size_t i = 0; i < s->n_cands && first != GROUP_NONE; i++) {
		if (!cand_fault(s, &s->cands[i]) && cand_group(s, &s->cands[i]) == first)
			s->cands[n++] = s->cands[i];
	}
	return n;
}

/* ------------------------------------------------------------------------------------- sysfs */

static void net_path(const struct search *s, const char *name, const char *file, char *ret)
{
	snprintf(ret, PATH_MAX, "%s/sys/class/net/%s/%s", s->sysroot, name, file);
}

static bool net_read(const struct search *s, const char *name, const char *file, char *ret,
		     size_t len)
{
	char path[PATH_MAX];

	net_path(s, name, file, path);
	return braid_sys_line(path, ret, len);
}

/* A number of 0 to most, else 0. */
static int net_number(const struct search *s, const char *name, const char *file, long most)
{
	char text[32];
	long v;

	if (!net_read(s, name, file, text, sizeof(text)))
		return 0;
	v = strtol(text, NULL, 10);
	return v < 0 || v > most ? 0 : (int)v;
}

static void lowers_add(struct lowers *l, const char *name)
{
	if (l->n < LOWERS_MAX && strlen(name) < BRAID_NETDEV_NAME)
		memcpy(l->names[l->n++], name, strlen(name) + 1);
}

static bool find_slaves(const struct search *s, const char *bond, struct lowers *ret)
{
	char text[LOWERS_MAX * BRAID_NETDEV_NAME + 1], mode[32];
	char *rest = text, *name;

	if (!net_read(s, bond, "bonding/slaves", text, sizeof(text)))
		return false;
	while ((name = strtok_r(rest, " ", &rest)))
		lowers_add(ret, name);
	ret->one_at_a_time = net_read(s, bond, "bonding/mode", mode, sizeof(mode)) &&
			     has_prefix(mode, "active-backup");
	return true;
}

/* What an interface stands on: the slaves of a bond; for others the one lower device, if one. */
static void find_lowers(const struct search *s, const char *name, struct lowers *ret)
{
	static const char prefix[] = "lower_";
	char path[PATH_MAX];
	struct dirent *e;
	DIR *dir;

	*ret = (struct lowers){ .n = 0 };
	if (find_slaves(s, name, ret))
		return;
	net_path(s, name, "", path);
	dir = opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir))) {
		if (has_prefix(e->d_name, prefix))
			lowers_add(ret, e->d_name + sizeof(prefix) - 1);
	}
	closedir(dir);
	if (ret->n > 1)				/* a bridge: any of them, or none */
		ret->n = 0;
}

/* In Mb/s; 0 if nobody knows. */
static int speed(const struct search *s, const char *name, unsigned depth)
{
	int v = net_number(s, name, "speed", SPEED_MOST);
	struct lowers l;

	if (v > 0 && v != SPEED_NONE_16)
		return v;
	if (depth == 0)
		return 0;
	v = 0;
	find_lowers(s, name, &l);
	for (unsigned i = 0; i < l.n; i++) {
		int lower = speed(s, l.names[i], depth - 1);

		if (l.one_at_a_time)
			v = lower > v ? lower : v;
		else
			v += lower;
	}
	return v > SPEED_MOST ? SPEED_MOST : v;
}

/* The last 8 bytes of the hardware address: all of an Ethernet one, the port's GUID of IPoIB's. */
static uint64_t mac(const struct search *s, const char *name)
{
	char text[3 * 32];
	uint64_t v = 0;

	if (!net_read(s, name, "address", text, sizeof(text)))
		return 0;
	for (char *p = text, *end; isxdigit((unsigned char)*p); p = *end ? end + 1 : end)
		v = v << 8 | (strtoul(p, &end, 16) & 0xff);
	return v;
}

/*
 * A number of this boot of this machine, for guids: NCCL joins hosts into one graph (MNNVL), and
 * there two machines with their cards in the same slots must not look as if they shared them.
 */
static uint64_t host_salt(const struct search *s)
{
	uint64_t hash = 0xcbf29ce484222325u;	/* FNV-1a */
	char path[PATH_MAX], text[64];

	snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", s->sysroot);
	if (!braid_sys_line(path, text, sizeof(text)))
		return 0;
	for (const char *p = text; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
	return hash;
}

/* A guid out of something that is only known to be unique on this host; never 0. */
static uint64_t host_guid(const struct search *s, uint64_t kind, uint64_t id)
{
	uint64_t x = (kind << 56 | id) ^ host_salt(s);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;	/* splitmix64's last steps: one to one */
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return x ? x : 1;
}

/* Path, port and guid of the PCI device at the bottom of an interface; false: it isn't on one. */
static bool find_pci(const struct search *s, const char *name, unsigned depth,
		     struct braid_netdev *dev)
{
	struct braid_pci_addr card;
	char path[PATH_MAX];
	struct lowers l;

	/* braid_pci_find() puts the sysroot before it. */
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
	if (braid_pci_find(s->sysroot, path, dev->pci_path, sizeof(dev->pci_path)) == 0 &&
	    braid_pci_physfn(s->sysroot, dev->pci_path, &card) == 0) {
		dev->port = FN_MAX * net_number(s, name, "dev_port", PORT_MOST) + card.fn;
		dev->guid = host_guid(s, 'p', (uint64_t)card.domain << 16 |
				      (uint64_t)card.bus << 8 | (uint64_t)card.dev << 3);
		return true;
	}
	if (depth == 0)
		return false;
	find_lowers(s, name, &l);
	return l.n && find_pci(s, l.names[0], depth - 1, dev);
}

/* False if /sys shows another network namespace, whose eth0 is not ours. */
static bool sysfs_is_ours(const struct search *s, const struct cand *c)
{
	int ifindex = net_number(s, c->name, "ifindex", INT_MAX);

	return ifindex == 0 || (unsigned)ifindex == c->ifindex;
}

static void describe(const struct search *s, const struct cand *c, struct braid_netdev *ret)
{
	struct braid_netdev dev = {
		.addr = c->addr,
		.prefix = c->prefix,
		.ifindex = c->ifindex ? c->ifindex : if_nametoindex(c->name),
		.loopback = c->flags & IFF_LOOPBACK,
	};

	memcpy(dev.name, c->name, sizeof(c->name));
	if (c->rank == RANK_V6_LINK_LOCAL && !dev.addr.in6.sin6_scope_id)
		dev.addr.in6.sin6_scope_id = dev.ifindex;
	if (sysfs_is_ours(s, c)) {
		dev.speed_mbps = speed(s, c->name, DEPTH_MAX);
		if (!find_pci(s, c->name, DEPTH_MAX, &dev)) {
			dev.port = FN_MAX * net_number(s, c->name, "dev_port", PORT_MOST);
			dev.guid = mac(s, c->name);
		}
	}
	if (!dev.guid)
		dev.guid = host_guid(s, 'i', dev.ifindex);
	dev.speed_known = dev.speed_mbps > 0;
	if (!dev.speed_known)
		dev.speed_mbps = SPEED_GUESS;
	*ret = dev;
}

/* -------------------------------------------------------------------------------------- find */

/* Text that grows until it is full; nothing is written if there is no room at all. */
struct says {
	char *text;
	size_t len, used;
};

__attribute__((format(printf, 2, 3)))
static void say(struct says *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!w->text || w->used + 1 >= w->len)
		return;
	va_start(ap, fmt);
	n = vsnprintf(w->text + w->used, w->len - w->used, fmt, ap);
	va_end(ap);
	w->used += n > 0 ? (size_t)n : 0;
}

static void say_why_none(struct says *w, const struct search *s)
{
	say(w, "no usable network interface");
	if (s->filter.n)
		say(w, " for the filter '%s'", s->filter_text);
	for (size_t i = 0; i < s->n_cands; i++) {
		const char *name = s->cands[i].name, *fault = cand_fault(s, &s->cands[i]);

		size_t need = strlen(name) + strlen(fault) + sizeof(",  , and 9999 more");

		/* A list that does not fit ends with how many it leaves out. */
		if (w->used + need > w->len) {
			say(w, i ? ", and %zu more" : " among %zu", s->n_cands - i);
			break;
		}
		say(w, "%s %s %s", i ? "," : ":", name, fault);
	}
	if (!s->n_cands)
		say(w, ": there is none at all");
}

/* Fill s with the candidates there are; say why not. */
static int look(struct search *s, struct says *w)
{
	char why[BRAID_FILTER_TEXT] = "";
	struct ifaddrs *list;
	int err;

	err = braid_netdev_filter_parse(s->filter_text, &s->filter, why, sizeof(why));
	if (err) {
		say(w, "the interface filter '%s' can't be read: %s", s->filter_text, why);
		return err;
	}
	if (!*s->sysroot)
		braid_netdev_filter_resolve(&s->filter);
	if (s->family != AF_UNSPEC && s->family != AF_INET && s->family != AF_INET6) {
		say(w, "address family %d is neither IPv4 nor IPv6", s->family);
		return -EAFNOSUPPORT;
	}
	err = s->family == AF_INET ? 0 : load_v6(s);
	if (!err && getifaddrs(&list))
		err = -errno;
	if (!err) {
		err = collect(s, list);
		freeifaddrs(list);
	}
	if (err) {
		errno = -err;
		say(w, "the list of network interfaces cannot be read: %m");
	}
	return err;
}

int braid_netdev_find(const char *filter, int family, const char *sysroot, struct braid_netdev *ret,
		      unsigned max, char *why, unsigned why_len)
{
	struct search s = { .sysroot = sysroot, .filter_text = filter ? filter : "",
			    .family = family };
	struct says w = { .text = why, .len = why_len };
	size_t n = 0;
	int err;

	if (why && why_len)
		*why = '\0';
	err = look(&s, &w);
	if (!err) {
		n = choose(&s);
		if (!n)
			say_why_none(&w, &s);
		if (n > max)
			n = max;
		for (size_t i = 0; i < n; i++)
			describe(&s, &s.cands[i], &ret[i]);
	}
	free(s.cands);
	free(s.v6);
	return err ? err : (int)n;
}

bool braid_netdev_same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	union braid_netdev_addr x, y;
	size_t len = a->sa_family == AF_INET ? sizeof(x.in) : sizeof(x.in6);

	if (a->sa_family != b->sa_family)
		return false;
	memcpy(&x, a, len);
	memcpy(&y, b, len);
	if (a->sa_family == AF_INET)
		return x.in.sin_addr.s_addr == y.in.sin_addr.s_addr;
	return !memcmp(&x.in6.sin6_addr, &y.in6.sin6_addr, sizeof(x.in6.sin6_addr));
}
