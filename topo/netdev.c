/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev.c - see netdev.h.
 *
 * collect() folds getifaddrs()'s list, an entry per address, into one candidate per interface with
 * the addresses it has.  netdev_choose.c chooses among them; netdev_sys.c describes the few that
 * are left.
 */
#include "topo/netdev.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "topo/netdev_int.h"
#include "topo/text.h"

enum { NAP_NS = 100000000, NAPS_MAX = 31 };	/* duplicate address detection takes 1 s or 2 */

/* --- gathering ----------------------------------------------------------------------------- */

/* The candidate for an entry's name; for an alias such as "eth0:1", that of its interface. */
static struct braid_cand *cand_get(struct braid_search *s, const char *entry)
{
	size_t len = strcspn(entry, ":");
	struct braid_cand *c;

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

static int collect(struct braid_search *s, const struct ifaddrs *list)
{
	size_t n = 0;

	for (const struct ifaddrs *e = list; e; e = e->ifa_next)
		n++;
	s->cands = calloc(n ? n : 1, sizeof(*s->cands));
	if (!s->cands)
		return -ENOMEM;
	for (const struct ifaddrs *e = list; e; e = e->ifa_next) {
		struct braid_cand *c = cand_get(s, e->ifa_name);

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
		struct braid_cand *c = &s->cands[i];

		braid_ips_done(&c->ips);
		if (!c->ifindex && !*s->sysroot)	/* no AF_PACKET entry had it */
			c->ifindex = if_nametoindex(c->name);
	}
	return 0;
}

/* --- why none was found, or some were left out --------------------------------------------- */

static void add_why_none(struct braid_topo_text *w, const struct braid_search *s)
{
	braid_topo_add(w, "no usable network interface");
	if (s->filter.n)
		braid_topo_add(w, " for the filter '%.200s'", s->filter_text);
	for (size_t i = 0; i < s->n_cands; i++) {
		const char *name = s->cands[i].name, *fault = braid_cand_fault(s, &s->cands[i]);

		size_t need = strlen(name) + strlen(fault) + sizeof(",  , and 9999 more");

		/* A list that does not fit ends with how many it leaves out. */
		if (w->used + need > w->len) {
			braid_topo_add(w, i ? ", and %zu more" : " among %zu", s->n_cands - i);
			break;
		}
		braid_topo_add(w, "%s %s %s", i ? "," : ":", name, fault);
	}
	if (!s->n_cands)
		braid_topo_add(w, ": there is none at all");
}

static void add_left_out(struct braid_topo_text *w, const struct braid_search *s, size_t n)
{
	size_t left = 0;

	for (size_t i = n; i < s->n_cands; i++)
		left += s->cands[i].left != NULL;
	for (size_t i = n; left && i < s->n_cands; i++) {
		const struct braid_cand *c = &s->cands[i];

		if (!c->left)
			continue;
		if (w->used + strlen(c->name) + strlen(c->left) + sizeof(",  , and 9999 more") >
		    w->len) {
			braid_topo_add(w, "%s%zu more", w->used ? ", and " : "", left);
			break;
		}
		braid_topo_add(w, "%s%s %s", w->used ? ", " : "", c->name, c->left);
		left--;
	}
}

/* --- finding interfaces -------------------------------------------------------------------- */

/* Fill s with all candidates; on failure, say why. */
static int find_candidates(struct braid_search *s, struct braid_topo_text *w)
{
	char why[BRAID_FILTER_TEXT] = "";
	struct ifaddrs *list;
	int err;

	err = braid_netdev_filter_parse(s->filter_text, &s->filter, why, sizeof(why));
	if (err) {
		braid_topo_add(w, "the interface filter '%.200s' can't be read: %s",
			       s->filter_text, why);
		return err;
	}
	if (!*s->sysroot)
		braid_netdev_filter_resolve(&s->filter);
	if (s->family != AF_UNSPEC && s->family != AF_INET && s->family != AF_INET6) {
		braid_topo_add(w, "address family %d is neither IPv4 nor IPv6", s->family);
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
		braid_topo_add(w, "the list of network interfaces cannot be read: %m");
	}
	return err;
}

/* Has a wanted interface routable addresses, all of which the kernel still checks (DAD)? */
static bool is_waited_for(const struct braid_search *s, const struct braid_cand *c)
{
	return c->ips.tentative && !c->ips.routable && (c->flags & IFF_UP) &&
	       (c->flags & IFF_RUNNING) && !(c->flags & IFF_SLAVE) &&
	       braid_netdev_filter_match(&s->filter, c->name);
}

static void forget(struct braid_search *s)
{
	free(s->cands);
	braid_v6_flags_free(s->v6);
	braid_links_free(s->links);
	s->links = NULL;
	s->cands = NULL;
	s->v6 = NULL;
	s->n_cands = 0;
}

/* Calls find_candidates() again while the kernel still checks addresses that we wait for. */
static int find_stable(struct braid_search *s, struct braid_topo_text *w)
{
	static const struct timespec nap = { .tv_nsec = NAP_NS };
	bool waits = true;
	int err = 0;

	for (unsigned i = 0; waits && i < NAPS_MAX; i++) {
		if (i)
			nanosleep(&nap, NULL);
		forget(s);
		err = find_candidates(s, w);
		waits = false;
		for (size_t k = 0; !err && k < s->n_cands; k++)
			waits |= is_waited_for(s, &s->cands[k]);
	}
	return err;
}

int braid_netdev_find(const char *filter, int family, const char *sysroot, struct braid_netdev *ret,
		      unsigned max, char *why, unsigned why_len)
{
	struct braid_search s = { .sysroot = sysroot, .filter_text = filter ? filter : "",
			    .family = family };
	struct braid_topo_text w = { .text = why, .len = why_len };
	size_t n = 0;
	int err;

	if (why && why_len)
		*why = '\0';
	err = find_stable(&s, &w);
	if (!err) {
		n = braid_netdev_choose(&s);
		if (n)
			add_left_out(&w, &s, n);
		else
			add_why_none(&w, &s);
		if (n > max)
			n = max;
		for (size_t i = 0; i < n; i++)
			braid_netdev_describe(&s, &s.cands[i], &ret[i]);
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

bool braid_netdev_is_down(const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_flags = 0 };
	bool down;

	if (fd < 0)
		return false;
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	down = !ioctl(fd, SIOCGIFFLAGS, &r) && !(r.ifr_flags & IFF_RUNNING);
	close(fd);
	return down;
}
