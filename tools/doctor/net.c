/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - the interfaces: which would be used, and whether their MTUs match. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/subnet.h"
#include "topo/filter.h"

enum { JUMBO_MBPS = 25000 };

/* The fastest interface with a cable that is up and has an address; NULL: none. */
static const struct iface *best(struct doctor *d)
{
	const struct iface *f, *ret = NULL;
	unsigned n = doctor_ifaces(d, &f);

	for (unsigned i = 0; i < n; i++)
		if ((f[i].physical || f[i].bond) && !f[i].slave && f[i].up && f[i].addressed &&
		    (!ret || f[i].mbps > ret->mbps))
			ret = &f[i];
	return ret;
}

/* Report elements of the filter that match nothing, or that NCCL reads differently. */
static void filter_checked(struct doctor *d, const char *name, const char *text)
{
	bool hit[BRAID_FILTER_NAMES] = { false };
	char missed[TEXT_LEN], plain[BRAID_FILTER_TEXT], why[BRAID_FILTER_TEXT];
	struct braid_netdev_filter f, real;
	const struct iface *face;
	unsigned n = doctor_ifaces(d, &face);

	if (braid_netdev_filter_parse(text, &f, why, sizeof(why))) {
		doctor_find(d, LEVEL_FAIL, "%s=%s can't be read: %s", name, text, why);
		doctor_mend_set(d, name, NULL);
		return;
	}
	real = f;
	if (doctor_is_live(d))
		braid_netdev_filter_resolve(&real);
	for (unsigned i = 0; i < f.n; i++) {
		for (unsigned k = 0; k < n; k++)
			hit[i] |= braid_filter_item_match(&real.item[i], face[k].name, -1);
		if (strcmp(real.item[i].name, f.item[i].name) == 0)
			continue;
		doctor_find(d, LEVEL_WARN, "%s=%s: %s is another name of %s, which NCCL does not "
			    "know", name, text, f.item[i].name, real.item[i].name);
		doctor_mend(d, "ip link show dev %s   # its name is %s", f.item[i].name,
			    real.item[i].name);
	}
	if (braid_filter_missed(&f, hit, missed, sizeof(missed))) {
		doctor_find(d, f.exclude ? LEVEL_NOTE : LEVEL_WARN, "%s=%s: %s matches no "
			    "interface", name, text, missed);
		doctor_mend(d, "ip -br link   # lists them");
	}
	if (f.odd) {
		braid_netdev_filter_format(&f, plain, sizeof(plain));
		doctor_find(d, LEVEL_WARN, "%s=%s: Braid reads %s, NCCL itself something else",
			    name, text, plain);
		doctor_mend_set(d, name, plain);
	}
}

/* No interface would be used: is BRAID_ADDRESS the cause? */
static bool address_refused(struct doctor *d)
{
	const char *why, *name, *address = env_param(d, "address", &name);
	const json_t *asked = doctor_probe(d, &probe_interfaces, &why);

	if (!address || !json_is_true(json_object_get(asked, "refused")))
		return false;
	doctor_find(d, LEVEL_FAIL, "BRAID_ADDRESS=%s leaves no interface that has an address: %s",
		    address, json_string_value(json_object_get(asked, "why")));
	doctor_mend_set(d, "BRAID_ADDRESS", NULL);
	return true;
}

/* The other interfaces, and why they would not be used. */
static void add_left_out(struct doctor *d)
{
	const char *none;
	const json_t *asked = doctor_probe(d, &probe_interfaces, &none);
	const char *why = json_string_value(json_object_get(asked, "why"));

	if (why && *why)
		doctor_fact(d, "interfaces left", "%s", why);
}

/* Is what the kernel says of interfaces not there?  It lists lo at least. */
static bool unreadable(struct doctor *d)
{
	const struct iface *f;
	bool none = !doctor_ifaces(d, &f);

	if (none)
		doctor_skip(d, "/sys/class/net can't be read");
	else if (!sys_has(d, "%s/net/route", sys_proc(d)) &&
		 !sys_has(d, "%s/net/if_inet6", sys_proc(d)))
		doctor_skip(d, "%s/net/route can't be read", sys_proc(d));
	else
		return false;
	return true;
}

static void interface(struct doctor *d)
{
	const char *name, *filter = env_param(d, "socket_ifname", &name);
	const struct iface *f, *good = best(d);
	char list[TEXT_LEN] = "";

	if (unreadable(d))
		return;
	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
		size_t at = strlen(list);

		snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", f->name);
	}
	doctor_fact(d, "interfaces", "%s", *list ? list : "none");
	add_left_out(d);
	if (!*list && address_refused(d))
		return;
	if (!*list && filter) {
		doctor_find(d, LEVEL_FAIL, "%s=%s leaves no interface that is up and has an "
			    "address", name, filter);
		doctor_mend_set(d, name, good ? good->name : NULL);
	} else if (!*list) {
		doctor_find(d, LEVEL_FAIL, "no interface is up and has an address");
		doctor_mend(d, "ip -br addr   # then: sudo ip link set dev INTERFACE up");
	} else if (strcmp(list, "lo") == 0) {
		doctor_find(d, LEVEL_WARN, "only the loopback interface would be used: no other "
			    "host can be reached");
		if (filter && good)
			doctor_mend_set(d, name, good->name);
		else
			doctor_mend(d, "ip -br addr   # then: sudo ip link set dev INTERFACE up");
	} else {
		doctor_ok(d, "%s would be used", list);
	}
	if (filter)
		filter_checked(d, name, filter);
}

static void choice(struct doctor *d)
{
	static const char *const made_up[] = { "docker", "veth", "virbr", "br-", "cni", "flannel",
					       "cali", "tailscale", "wg", "tun", "tap", "usb" };
	const struct iface *f, *good = best(d);
	char value[NAME_LEN + 2];
	bool seen = false;

	for (unsigned i = 0; good && (f = doctor_chosen(d, i)); i++) {
		bool odd = f->loopback;

		seen = true;
		for (unsigned k = 0; k < sizeof(made_up) / sizeof(made_up[0]); k++)
			odd |= strncmp(f->name, made_up[k], strlen(made_up[k])) == 0;
		if (f != good && odd && !f->physical)
			doctor_find(d, LEVEL_WARN, "%s would be used, which leads to no other "
				    "host, but %s does", f->name, good->name);
		else if (f->mbps && good->mbps > 4 * f->mbps)
			doctor_find(d, LEVEL_WARN, "%s would be used with %lld Mbit/s, but %s has "
				    "%lld", f->name, f->mbps, good->name, good->mbps);
		else {
			doctor_ok(d, "%s is a good choice", f->name);
			continue;
		}
		snprintf(value, sizeof(value), "=%s", good->name);
		doctor_mend_set(d, "NCCL_SOCKET_IFNAME", value);
	}
	if (!seen)
		doctor_skip(d, "no physical interface is up and has an address");
}

static void link_up(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f), seen = 0;
	long long flags;

	for (unsigned i = 0; i < n; i++) {
		if (!f[i].physical)
			continue;
		seen++;
		if (f[i].up)
			doctor_ok(d, "%s has a link", f[i].name);
		else if (sys_number(d, &flags, "/sys/class/net/%s/flags", f[i].name) &&
			 !(flags & 1))
			doctor_ok(d, "%s is off", f[i].name);
		else {
			doctor_find(d, LEVEL_NOTE, "%s has no link", f[i].name);
			doctor_mend(d, "sudo ethtool %s   # cable, module, switch port", f[i].name);
		}
	}
	if (!seen)
		doctor_skip(d, "no physical interface");
}

/* Does NCCL_NET_FORCE_MERGE make one device of both?  Its form: "a,b;c,d". */
static bool fused(struct doctor *d, const struct iface *a, const struct iface *b)
{
	const char *at = env_get(d, "NCCL_NET_FORCE_MERGE");
	bool has_a = false, has_b = false;

	for (; at && *at && !(has_a && has_b); at += *at != '\0') {
		size_t n = strcspn(at, ",;:");

		has_a |= strlen(a->name) == n && strncmp(at, a->name, n) == 0;
		has_b |= strlen(b->name) == n && strncmp(at, b->name, n) == 0;
		at += strcspn(at, ",;");
		if (*at != ',' && !(has_a && has_b))
			has_a = has_b = false;
	}
	return has_a && has_b;
}

/* An interface that `f` should share its MTU with, and that has a larger one; NULL: none. */
static const struct iface *larger(struct doctor *d, const struct subnets *s, const struct iface *f,
				  const char **ret_why)
{
	const struct iface *other, *ret = NULL;

	for (unsigned i = 0; (other = doctor_chosen(d, i)); i++) {
		bool near = subnet_in_common(s, f, other);

		if (other->mtu <= (ret ? ret->mtu : f->mtu) || (!near && !fused(d, f, other)))
			continue;
		*ret_why = near ? "in the same subnet" : "joined with it by NCCL_NET_FORCE_MERGE";
		ret = other;
	}
	return ret;
}

/* Only these have an MTU of their own to raise: a VLAN or tunnel has its parent's, less headers. */
static bool is_plugged(const struct iface *f)
{
	return f->physical || f->bond;
}

/* Report two interfaces that should have one MTU. */
static void mtu_differs(struct doctor *d, const struct iface *f, const struct iface *most,
			const char *why)
{
	doctor_find(d, LEVEL_FAIL, "%s has MTU %lld, but %s, %s, has %lld", f->name, f->mtu,
		    most->name, why, most->mtu);
	if (is_plugged(f) && is_plugged(most))
		doctor_mend(d, "sudo ip link set dev %s mtu %lld   # or both to %lld, whichever "
			    "the peers have", f->name, most->mtu, f->mtu);
	else
		doctor_mend(d, "ip -d link show dev %s   # a tunnel's MTU is its carrier's less "
			    "the headers", f->name);
}

static void mtu(struct doctor *d)
{
	const struct iface *f, *most;
	const char *why = NULL;
	struct subnets all;
	bool seen = false;

	subnets_read(d, &all);
	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
		char key[NAME_LEN + 8];

		snprintf(key, sizeof(key), "mtu %s", f->name);
		doctor_fact(d, key, "%lld", f->mtu);
		if (f->loopback)
			continue;
		seen = true;
		most = larger(d, &all, f, &why);
		if (most) {
			mtu_differs(d, f, most, why);
		} else if (f->mbps >= JUMBO_MBPS && f->mtu < 4000 && is_plugged(f)) {
			doctor_find(d, LEVEL_WARN, "%s has MTU %lld at %lld Gbit/s", f->name,
				    f->mtu, f->mbps / 1000);
			doctor_mend(d, "ip -d link show dev %s   # its maxmtu; all switches and "
				    "peers first, or nothing passes", f->name);
		} else {
			doctor_ok(d, "%s has MTU %lld", f->name, f->mtu);
		}
	}
	if (!seen)
		doctor_skip(d, "no interface would be used");
	subnets_free(&all);
}

const struct check doctor_net[] = {
	{ "net-interface", "Which interfaces would be used",
	  "NCCL and Braid connect over these; without one no job of two hosts starts", interface },
	{ "net-choice", "Whether these are the right ones",
	  "NCCL takes interfaces by their names alone", choice },
	{ "net-link", "Links", "A port that was meant to carry traffic does not", link_up },
	{ "net-mtu", "MTUs of the interfaces",
	  "Where sizes differ large packets are lost and small ones pass: connections stall after "
	  "they were made. Small ones cost CPU time at speed", mtu },
	{ NULL, NULL, NULL, NULL },
};
