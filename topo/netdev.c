/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev.c - choose among the machine's network interfaces, and say what they are.
 *
 * Three steps.  collect() folds getifaddrs()'s list, an entry per address, into one candidate per
 * interface with the addresses it has.  choose() sorts the usable ones into groups by name and
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
#include <time.h>
#include <unistd.h>

#include "topo/ips.h"
#include "topo/links.h"
#include "topo/pci.h"
#include "topo/sys.h"

enum {
	SPEED_GUESS = 10000,		/* Mb/s */
	SPEED_MOST = 10000000,		/* more is a driver's way to say that it does not know */
	SPEED_NONE_16 = 65535,		/* so is this, of older ones */
	LOWERS_MAX = 16,
	DEPTH_MAX = 4,			/* a VLAN on a bond of paravirtual interfaces needs three */
	FN_MAX = 8,			/* PCI functions of a device */
	NAP_NS = 100000000, NAPS_MAX = 31,	/* duplicate address detection takes 1 s or 2 */
	PORT_MOST = 0xffff,
};

/* NCCL's order of interfaces if the user names none; with a filter only two groups matter. */
enum group { GROUP_IB, GROUP_PLAIN, GROUP_DOCKER, GROUP_LOOPBACK, GROUP_VIRBR, GROUP_NONE };

struct cand {
	char name[BRAID_NETDEV_NAME];
	const char *left;		/* why it is left out though usable; or NULL */
	struct braid_lead_info where;
	unsigned flags;			/* IFF_* */
	unsigned ifindex;
	struct braid_ips ips;
};

struct search {
	const char *sysroot;
	const char *filter_text;
	struct braid_netdev_filter filter;
	int family;
	struct braid_v6_flags *v6;
	struct braid_links *links;
	struct cand *cands;
	size_t n_cands;
};

struct lowers {
	unsigned n;
	bool one_at_a_time;		/* a bond that uses one slave at a time */
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
	return c;
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
		if (e->ifa_addr && e->ifa_addr->sa_family == AF_PACKET)
			c->ifindex = (unsigned)((struct sockaddr_ll *)e->ifa_addr)->sll_ifindex;
		else if (e->ifa_addr)
			braid_ips_add(&c->ips, s->family, s->v6, c->name, e->ifa_addr,
				      e->ifa_netmask);
	}
	for (size_t i = 0; i < s->n_cands; i++) {
		struct cand *c = &s->cands[i];

		braid_ips_done(&c->ips);
		if (!c->ifindex && !*s->sysroot)	/* it has no hardware address */
			c->ifindex = if_nametoindex(c->name);
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
	if (!c->ips.n) {
		return c->ips.refused ? "has no address that BRAID_ADDRESS allows" :
		       s->family == AF_INET ? "has no IPv4 address" :
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

/* What an interface stands on: a bond's slaves; for others the lower device, if it has just one. */
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

/* In Mb/s; 0: unknown. */
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
 * A number for this boot of this machine, which goes into guids.  NCCL may join hosts into one
 * graph (MNNVL); two machines with cards in the same slots must not seem to share these cards.
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

/* ------------------------------------------------------------------------------------ choose */

/* Can the candidate be used, is it in that group, and not left out? */
static bool is_in(const struct search *s, const struct cand *c, unsigned group)
{
	return !c->left && !cand_fault(s, c) && cand_group(s, c) == group;
}

static unsigned first_group(const struct search *s)
{
	unsigned first = GROUP_NONE;

	for (size_t i = 0; i < s->n_cands; i++) {
		unsigned g = cand_group(s, &s->cands[i]);

		if (!cand_fault(s, &s->cands[i]) && g < first)
			first = g;
	}
	return first;
}

static const char *is_port(const struct cand *c)
{
	return !c->where.port_of ? NULL : *c->where.port_of == 'b' ? "is a port of a bridge" :
								      "is a port of a team";
}

static const char *is_link_local(const struct cand *c)
{
	return c->ips.link_local ? "has a link-local address only" : NULL;
}

static const char *is_inside(const struct cand *c)
{
	return c->where.lead != BRAID_LEADS_NOWHERE ? NULL :
	       c->where.tunnel ? "is a tunnel" : "is virtual, with no hardware below it";
}

static const char *is_virtual(const struct cand *c)
{
	return c->where.lead == BRAID_LEADS_OUT ? "is virtual, while others are hardware" :
						  is_inside(c);
}

/* Leave out those for which why() names a reason, unless that would leave none. */
static void leave(struct search *s, unsigned group, const char *(*why)(const struct cand *c))
{
	bool others = false;

	for (size_t i = 0; i < s->n_cands; i++)
		others |= is_in(s, &s->cands[i], group) && !why(&s->cands[i]);
	for (size_t i = 0; others && i < s->n_cands; i++) {
		if (is_in(s, &s->cands[i], group))
			s->cands[i].left = why(&s->cands[i]);
	}
}

static bool any_leads(const struct search *s, unsigned group, enum braid_lead lead)
{
	for (size_t i = 0; i < s->n_cands; i++) {
		if (is_in(s, &s->cands[i], group) && s->cands[i].where.lead == lead)
			return true;
	}
	return false;
}

/* Leave out those whose names come later in NCCL's order; loopback needs no reason. */
static void leave_later(struct search *s, unsigned group)
{
	static const char *const why[] = {
		[GROUP_PLAIN] = "is not named ib, as others are",
		[GROUP_DOCKER] = "is Docker's by its name",
		[GROUP_VIRBR] = "is libvirt's by its name",
		[GROUP_NONE] = NULL,
	};

	for (size_t i = 0; i < s->n_cands; i++) {
		struct cand *c = &s->cands[i];

		if (!cand_fault(s, c) && cand_group(s, c) > group)
			c->left = why[cand_group(s, c)];
	}
}

/* The user has named no interface: leave out those that don't lead to other hosts. */
static void leave_useless(struct search *s, unsigned group)
{
	for (size_t i = 0; i < s->n_cands; i++) {
		struct cand *c = &s->cands[i];

		if (is_in(s, c, group))
			braid_link_leads(s->links, s->sysroot, c->name, c->ifindex,
					 sysfs_is_ours(s, c), &c->where);
	}
	leave(s, group, is_port);
	leave(s, group, is_link_local);
	if (any_leads(s, group, BRAID_LEADS_TO_HARDWARE))
		leave(s, group, is_virtual);
	else if (any_leads(s, group, BRAID_LEADS_OUT))
		leave(s, group, is_inside);
}

/* Move the usable candidates of the first group that has any to the front; returns how many. */
static size_t choose(struct search *s)
{
	unsigned first = first_group(s);
	size_t n = 0;

	if (!s->filter.n && first != GROUP_NONE) {
		leave_later(s, first);
		leave_useless(s, first);
	}
	for (size_t i = 0; i < s->n_cands && first != GROUP_NONE; i++) {
		struct cand c = s->cands[i];

		if (!is_in(s, &c, first))
			continue;
		s->cands[i] = s->cands[n];
		s->cands[n++] = c;
	}
	return n;
}

/* ---------------------------------------------------------------------------------- describe */

static void give_scope(union braid_netdev_addr *a, unsigned ifindex)
{
	if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr) &&
	    !a->in6.sin6_scope_id)
		a->in6.sin6_scope_id = ifindex;
}

static void describe(const struct search *s, const struct cand *c, struct braid_netdev *ret)
{
	struct braid_netdev dev = {
		.addr = c->ips.ip[0].addr,
		.prefix = c->ips.ip[0].prefix,
		.nmore = c->ips.n - 1,
		.ifindex = c->ifindex ? c->ifindex : if_nametoindex(c->name),
		.loopback = c->flags & IFF_LOOPBACK,
		.vrf = braid_link_vrf(s->links, c->ifindex),
	};

	memcpy(dev.name, c->name, sizeof(c->name));
	memcpy(dev.more, &c->ips.ip[1], dev.nmore * sizeof(dev.more[0]));
	give_scope(&dev.addr, dev.ifindex);
	for (unsigned i = 0; i < dev.nmore; i++)
		give_scope(&dev.more[i].addr, dev.ifindex);
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
		say(w, " for the filter '%.200s'", s->filter_text);
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

static void say_left(struct says *w, const struct search *s, size_t n)
{
	size_t left = 0;

	for (size_t i = n; i < s->n_cands; i++)
		left += s->cands[i].left != NULL;
	for (size_t i = n; left && i < s->n_cands; i++) {
		const struct cand *c = &s->cands[i];

		if (!c->left)
			continue;
		if (w->used + strlen(c->name) + strlen(c->left) + sizeof(",  , and 9999 more") >
		    w->len) {
			say(w, "%s%zu more", w->used ? ", and " : "", left);
			break;
		}
		say(w, "%s%s %s", w->used ? ", " : "", c->name, c->left);
		left--;
	}
}

/* Fill s with all candidates; on failure, say why. */
static int look(struct search *s, struct says *w)
{
	char why[BRAID_FILTER_TEXT] = "";
	struct ifaddrs *list;
	int err;

	err = braid_netdev_filter_parse(s->filter_text, &s->filter, why, sizeof(why));
	if (err) {
		say(w, "the interface filter '%.200s' can't be read: %s", s->filter_text, why);
		return err;
	}
	if (!*s->sysroot)
		braid_netdev_filter_resolve(&s->filter);
	if (s->family != AF_UNSPEC && s->family != AF_INET && s->family != AF_INET6) {
		say(w, "address family %d is neither IPv4 nor IPv6", s->family);
		return -EAFNOSUPPORT;
	}
	err = s->family == AF_INET ? 0 : braid_v6_flags_load(s->sysroot, &s->v6);
	if (!err && getifaddrs(&list))
		err = -errno;
	if (!err) {
		err = collect(s, list);
		freeifaddrs(list);
		s->links = *s->sysroot ? NULL : braid_links_load();
	}
	if (err) {
		errno = -err;
		say(w, "the list of network interfaces cannot be read: %m");
	}
	return err;
}

/* Does the kernel still check all its routable addresses (duplicate address detection)? */
static bool is_waited_for(const struct search *s, const struct cand *c)
{
	return c->ips.tentative && !c->ips.routable && (c->flags & IFF_UP) &&
	       (c->flags & IFF_RUNNING) && !(c->flags & IFF_SLAVE) &&
	       braid_netdev_filter_match(&s->filter, c->name);
}

static void forget(struct search *s)
{
	free(s->cands);
	braid_v6_flags_free(s->v6);
	braid_links_free(s->links);
	s->links = NULL;
	s->cands = NULL;
	s->v6 = NULL;
	s->n_cands = 0;
}

/* look(), repeated while the kernel still checks addresses that are waited for. */
static int look_patiently(struct search *s, struct says *w)
{
	static const struct timespec nap = { .tv_nsec = NAP_NS };
	bool waits = true;
	int err = 0;

	for (unsigned i = 0; waits && i < NAPS_MAX; i++) {
		if (i)
			nanosleep(&nap, NULL);
		forget(s);
		err = look(s, w);
		waits = false;
		for (size_t k = 0; !err && k < s->n_cands; k++)
			waits |= is_waited_for(s, &s->cands[k]);
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
	err = look_patiently(&s, &w);
	if (!err) {
		n = choose(&s);
		if (n)
			say_left(&w, &s, n);
		else
			say_why_none(&w, &s);
		if (n > max)
			n = max;
		for (size_t i = 0; i < n; i++)
			describe(&s, &s.cands[i], &ret[i]);
	}
	forget(&s);
	return err ? err : (int)n;
}

unsigned braid_netdev_ips(const struct braid_netdev *net,
			  struct braid_netdev_ip ret[BRAID_NETDEV_IPS])
{
	unsigned n = net->nmore < BRAID_NETDEV_IPS ? net->nmore : BRAID_NETDEV_IPS - 1;

	ret[0] = (struct braid_netdev_ip){ .addr = net->addr, .prefix = net->prefix };
	memcpy(&ret[1], net->more, n * sizeof(ret[0]));
	return n + 1;
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
