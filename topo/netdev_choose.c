/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev_choose.c - which of the machine's interfaces are used.
 *
 * Usable interfaces are sorted into groups by name and filter.  The first group that is not empty
 * is used, as in NCCL.  If the user has not named any interface, those of the group that do not
 * lead to other hosts are left out, unless none would be left.
 */
#include <net/if.h>
#include <string.h>

#include "topo/netdev_int.h"

/* NCCL's order of interfaces if the user names none; with a filter only two groups matter. */
enum group { GROUP_IB, GROUP_PLAIN, GROUP_DOCKER, GROUP_LOOPBACK, GROUP_VIRBR, GROUP_NONE };

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Why an interface can't be used; NULL: it can. */
const char *braid_cand_fault(const struct braid_search *s, const struct braid_cand *c)
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

static unsigned cand_group(const struct braid_search *s, const struct braid_cand *c)
{
	return braid_netdev_rank(&s->filter, c->name, c->flags & IFF_LOOPBACK);
}

/* Can the candidate be used, is it in that group, and has it not been left out? */
static bool is_in(const struct braid_search *s, const struct braid_cand *c, unsigned group)
{
	return !c->left && !braid_cand_fault(s, c) && cand_group(s, c) == group;
}

static unsigned first_group(const struct braid_search *s)
{
	unsigned first = GROUP_NONE;

	for (size_t i = 0; i < s->n_cands; i++) {
		unsigned g = cand_group(s, &s->cands[i]);

		if (!braid_cand_fault(s, &s->cands[i]) && g < first)
			first = g;
	}
	return first;
}

static const char *is_port(const struct braid_cand *c)
{
	return !c->where.port_of ? NULL : *c->where.port_of == 'b' ? "is a port of a bridge" :
								      "is a port of a team";
}

static const char *is_link_local(const struct braid_cand *c)
{
	return c->ips.link_local ? "has a link-local address only" : NULL;
}

static const char *is_inside(const struct braid_cand *c)
{
	return c->where.lead != BRAID_LEADS_NOWHERE ? NULL :
	       c->where.tunnel ? "is a tunnel" : "is virtual, with no hardware below it";
}

static const char *is_virtual(const struct braid_cand *c)
{
	return c->where.lead == BRAID_LEADS_OUT ? "is virtual, while others are hardware" :
						  is_inside(c);
}

/* Leaves out the candidates for which why() has a reason, unless none would be left. */
static void leave(struct braid_search *s, unsigned group,
		  const char *(*why)(const struct braid_cand *c))
{
	bool others = false;

	for (size_t i = 0; i < s->n_cands; i++)
		others |= is_in(s, &s->cands[i], group) && !why(&s->cands[i]);
	for (size_t i = 0; others && i < s->n_cands; i++) {
		if (is_in(s, &s->cands[i], group))
			s->cands[i].left = why(&s->cands[i]);
	}
}

static bool any_leads(const struct braid_search *s, unsigned group, enum braid_lead lead)
{
	for (size_t i = 0; i < s->n_cands; i++) {
		if (is_in(s, &s->cands[i], group) && s->cands[i].where.lead == lead)
			return true;
	}
	return false;
}

/* Leaves out candidates of later groups.  Loopback is left out without a reason. */
static void leave_later(struct braid_search *s, unsigned group)
{
	static const char *const why[] = {
		[GROUP_PLAIN] = "is not named ib, as others are",
		[GROUP_DOCKER] = "is Docker's by its name",
		[GROUP_VIRBR] = "is libvirt's by its name",
		[GROUP_NONE] = NULL,
	};

	for (size_t i = 0; i < s->n_cands; i++) {
		struct braid_cand *c = &s->cands[i];

		if (!braid_cand_fault(s, c) && cand_group(s, c) > group)
			c->left = why[cand_group(s, c)];
	}
}

/* The user has named no interface: leave out those that don't lead to other hosts. */
static void leave_useless(struct braid_search *s, unsigned group)
{
	for (size_t i = 0; i < s->n_cands; i++) {
		struct braid_cand *c = &s->cands[i];

		if (is_in(s, c, group))
			braid_link_leads(s->links, s->sysroot, c->name, c->ifindex,
					 braid_netdev_sysfs_is_ours(s, c), &c->where);
	}
	leave(s, group, is_port);
	leave(s, group, is_link_local);
	if (any_leads(s, group, BRAID_LEADS_TO_HARDWARE))
		leave(s, group, is_virtual);
	else if (any_leads(s, group, BRAID_LEADS_OUT))
		leave(s, group, is_inside);
}

/* Move the usable candidates of the first group that has any to the front; returns how many. */
size_t braid_netdev_choose(struct braid_search *s)
{
	unsigned first = first_group(s);
	size_t n = 0;

	if (!s->filter.n && first != GROUP_NONE) {
		leave_later(s, first);
		leave_useless(s, first);
	}
	for (size_t i = 0; i < s->n_cands && first != GROUP_NONE; i++) {
		struct braid_cand c = s->cands[i];

		if (!is_in(s, &c, first))
			continue;
		s->cands[i] = s->cands[n];
		s->cands[n++] = c;
	}
	return n;
}
