/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ifaces.c - the interfaces, and which of them would be used.
 *
 * The plugin's own code chooses.  For a recorded system, or another network namespace, the choice
 * follows NCCL's order of names.
 */
#include "config.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/doctor/doctor_int.h"
#include "topo/ips.h"
#include "topo/netdev.h"

enum { SPEED_MOST = 10000000 };

/* -- the plugin's choice ------------------------------------------------------------------ */

/* Is this process in the network namespace of the process of --pid? */
static bool same_network(struct doctor *d)
{
	char mine[PATH_LEN], its[PATH_LEN];

	return sys_link(d, mine, sizeof(mine), "/proc/self/ns/net") &&
	       sys_link(d, its, sizeof(its), "%s/ns/net", sys_proc(d)) && strcmp(mine, its) == 0;
}

/* The job's parameters as the plugin reads them: an unreadable value has no effect. */
static void read_params(struct doctor *d, struct braid_params *ret)
{
	static const char *const names[] = { "socket_ifname", "socket_family", "address" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *variable, *value = env_param(d, names[i], &variable);

		if (value)
			braid_param_set(ret, names[i], value);
	}
}

static int find_interfaces(const struct braid_params *p, struct braid_netdev *ret, char *why,
			   unsigned len)
{
	braid_ips_choose(p->address);
	return braid_netdev_find(p->socket_ifname, braid_param_family(p->socket_family), "", ret,
				 BRAID_NETDEVS_MAX, why, len);
}

/* The plugin's own choice: the interfaces it would use, and why not the others. */
static json_t *interfaces(struct doctor *d)
{
	static struct braid_netdev found[BRAID_NETDEVS_MAX];
	static struct braid_params p;
	json_t *list = json_array();
	char why[TEXT_LEN] = "";
	bool refused;
	int n;

	if (!same_network(d))
		return list;
	read_params(d, &p);
	n = find_interfaces(&p, found, why, sizeof(why));
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_string(found[i].name));
	refused = n == 0 && *p.address;
	*p.address = '\0';
	refused = refused && find_interfaces(&p, found, NULL, 0) > 0;
	return json_pack("{s:o, s:s, s:b}", "chosen", list, "why", why, "refused", refused);
}

const struct probe probe_interfaces = { "interfaces", interfaces, 4000 };

/* -- the list ----------------------------------------------------------------------------- */

/* Has the interface a route, or an IPv6 address? */
static bool is_addressed(const char *routes, const char *v6, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = routes; p && *p; p = sys_next_line(p))
		if (strncmp(p, name, n) == 0 && isspace((unsigned char)p[n]))
			return true;
	for (const char *p = v6; p && (p = strstr(p, name)); p += n)
		if (p > v6 && p[-1] == ' ' && (p[n] == '\n' || !p[n]))
			return true;
	return false;
}

static void iface_read(struct doctor *d, const char *name, const char *routes, const char *v6)
{
	struct iface *f = &d->ifaces[d->n_ifaces];
	char text[TEXT_LEN];
	long long v;

	*f = (struct iface){ .loopback = strcmp(name, "lo") == 0 };
	snprintf(f->name, sizeof(f->name), "%s", name);
	if (sys_number(d, &v, "/sys/class/net/%s/mtu", name))
		f->mtu = v;
	if (sys_number(d, &v, "/sys/class/net/%s/speed", name) && v > 0 && v < SPEED_MOST &&
	    v != 65535)
		f->mbps = v;
	f->up = sys_line(d, text, sizeof(text), "/sys/class/net/%s/operstate", name) &&
		(strcmp(text, "up") == 0 || strcmp(text, "unknown") == 0);
	f->physical = sys_has(d, "/sys/class/net/%s/device", name);
	f->bond = sys_has(d, "/sys/class/net/%s/bonding", name);
	f->slave = sys_has(d, "/sys/class/net/%s/bonding_slave", name);
	f->addressed = f->loopback || is_addressed(routes, v6, name);
	d->n_ifaces++;
}

/* Mark those that the plugin would use; false: it can't be asked. */
static bool mark_chosen(struct doctor *d)
{
	const char *why;
	const json_t *asked = doctor_probe(d, &probe_interfaces, &why), *name;
	const json_t *list = json_object_get(asked, "chosen");
	size_t k;

	for (unsigned i = 0; i < d->n_ifaces; i++)
		json_array_foreach(list, k, name)
			d->ifaces[i].chosen |= strcmp(d->ifaces[i].name,
						      json_string_value(name)) == 0;
	return list;
}

/* Mark those that come first in NCCL's order of names. */
static void ifaces_choose(struct doctor *d)
{
	struct braid_netdev_filter filter = { .n = 0 };
	unsigned best = UINT_MAX, rank[IFACES_MAX];
	const char *name, *text = env_param(d, "socket_ifname", &name);

	if (text)
		braid_netdev_filter_parse(text, &filter, NULL, 0);
	if (doctor_is_live(d))
		braid_netdev_filter_resolve(&filter);
	for (unsigned i = 0; i < d->n_ifaces; i++) {
		const struct iface *f = &d->ifaces[i];

		rank[i] = UINT_MAX;
		if (f->up && f->addressed && !f->slave &&
		    braid_netdev_filter_match(&filter, f->name))
			rank[i] = braid_netdev_rank(&filter, f->name, f->loopback);
		if (rank[i] < best)
			best = rank[i];
	}
	for (unsigned i = 0; i < d->n_ifaces; i++)
		d->ifaces[i].chosen = best != UINT_MAX && rank[i] == best;
}

unsigned doctor_ifaces(struct doctor *d, const struct iface **ret)
{
	struct names all;

	if (!d->ifaces) {
		char *routes = sys_text(d, NULL, "%s/net/route", d->proc);
		char *v6 = sys_text(d, NULL, "%s/net/if_inet6", d->proc);

		d->ifaces = calloc(IFACES_MAX, sizeof(*d->ifaces));
		sys_names(d, &all, "/sys/class/net");
		for (unsigned i = 0; d->ifaces && i < all.n; i++)
			if (sys_has(d, "/sys/class/net/%s/operstate", all.name[i]))
				iface_read(d, all.name[i], routes, v6);
		free(routes);
		free(v6);
		if (!mark_chosen(d))
			ifaces_choose(d);
	}
	*ret = d->ifaces;
	return d->n_ifaces;
}

const struct iface *doctor_chosen(struct doctor *d, unsigned i)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);

	for (unsigned k = 0; k < n; k++)
		if (f[k].chosen && i-- == 0)
			return &f[k];
	return NULL;
}
