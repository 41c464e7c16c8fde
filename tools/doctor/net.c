/* SPDX-License-Identifier: BSD-3-Clause */
/* net.c - the interfaces: which would be used, and what is wrong with these. */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/subnet.h"
#include "topo/filter.h"

enum { JUMBO_MBPS = 25000 };

/* The fastest that is plugged into something, up and addressed; NULL: none. */
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

/* The i-th of those that would be used, NULL: no more. */
static const struct iface *chosen(struct doctor *d, unsigned i)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);

	for (unsigned k = 0; k < n; k++)
		if (f[k].chosen && i-- == 0)
			return &f[k];
	return NULL;
}

/* What of the filter matches nothing, or means something else to NCCL. */
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

/* None would be used: BRAID_ADDRESS is why. */
static bool address_refused(struct doctor *d)
{
	const char *why, *name, *address = env_param(d, "address", &name);
	const json_t *asked = doctor_probe(d, "interfaces", &why);

	if (!address || !json_is_true(json_object_get(asked, "refused")))
		return false;
	doctor_find(d, LEVEL_FAIL, "BRAID_ADDRESS=%s leaves no interface that has an address: %s",
		    address, json_string_value(json_object_get(asked, "why")));
	doctor_mend_set(d, "BRAID_ADDRESS", NULL);
	return true;
}

/* What else there is, and why it would not be used. */
static void left_fact(struct doctor *d)
{
	const char *none;
	const json_t *asked = doctor_probe(d, "interfaces", &none);
	const char *why = json_string_value(json_object_get(asked, "why"));

	if (why && *why)
		doctor_fact(d, "interfaces left", "%s", why);
}

static void interface(struct doctor *d)
{
	const char *name, *filter = env_param(d, "socket_ifname", &name);
	const struct iface *f, *good = best(d);
	char list[TEXT_LEN] = "";

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		size_t at = strlen(list);

		snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", f->name);
	}
	doctor_fact(d, "interfaces", "%s", *list ? list : "none");
	left_fact(d);
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

	for (unsigned i = 0; good && (f = chosen(d, i)); i++) {
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

/* What `f` should have one MTU with, and has a smaller one than; NULL: nothing. */
static const struct iface *larger(struct doctor *d, const struct subnets *s, const struct iface *f,
				  const char **ret_why)
{
	const struct iface *other, *ret = NULL;

	for (unsigned i = 0; (other = chosen(d, i)); i++) {
		bool near = subnet_in_common(s, f, other);

		if (other->mtu <= (ret ? ret->mtu : f->mtu) || (!near && !fused(d, f, other)))
			continue;
		*ret_why = near ? "in the same subnet" : "joined with it by NCCL_NET_FORCE_MERGE";
		ret = other;
	}
	return ret;
}

/* What is made of others has its MTU from them, less its own headers: it is never to be raised. */
static bool is_plugged(const struct iface *f)
{
	return f->physical || f->bond;
}

/* Two that should have one MTU. */
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
	for (unsigned i = 0; (f = chosen(d, i)); i++) {
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

static void duplex(struct doctor *d)
{
	const struct iface *f;
	char text[NAME_LEN];
	bool seen = false;

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		if (!f->physical ||
		    !sys_line(d, text, sizeof(text), "/sys/class/net/%s/duplex", f->name))
			continue;
		seen = true;
		if (strcmp(text, "half") != 0) {
			doctor_ok(d, "%s: duplex %s, %lld Mbit/s", f->name, text, f->mbps);
			continue;
		}
		doctor_find(d, LEVEL_FAIL, "%s runs half duplex at %lld Mbit/s", f->name, f->mbps);
		doctor_mend(d, "sudo ethtool -s %s autoneg on", f->name);
	}
	if (!seen)
		doctor_skip(d, "no interface tells");
}

static void speeds(struct doctor *d)
{
	const struct iface *f, *most = NULL;
	char value[NAME_LEN + 2];
	bool slow = false;

	for (unsigned i = 0; (f = chosen(d, i)); i++)
		if (f->mbps && (!most || f->mbps > most->mbps))
			most = f;
	if (!most || !chosen(d, 1)) {
		doctor_skip(d, "not several interfaces");
		return;
	}
	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		if (!f->mbps || f->mbps == most->mbps)
			continue;
		slow = true;
		doctor_find(d, LEVEL_WARN, "%s has %lld Mbit/s, %s has %lld", f->name, f->mbps,
			    most->name, most->mbps);
		snprintf(value, sizeof(value), "=%s", most->name);
		doctor_mend_set(d, "NCCL_SOCKET_IFNAME", value);
	}
	if (!slow)
		doctor_ok(d, "all have %lld Mbit/s", most->mbps);
}

static long long stat(struct doctor *d, const struct iface *f, const char *name)
{
	long long v = 0;

	sys_number(d, &v, "/sys/class/net/%s/statistics/%s", f->name, name);
	return v;
}

static void errors(struct doctor *d)
{
	const struct iface *f;
	bool seen = false;

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		long long all = stat(d, f, "rx_packets"), bad = stat(d, f, "rx_crc_errors") +
				stat(d, f, "rx_frame_errors") + stat(d, f, "tx_carrier_errors");

		if (f->loopback)
			continue;
		seen = true;
		if (bad <= 10 || bad <= all / 10000000) {
			doctor_ok(d, "%s: %lld damaged of %lld packets", f->name, bad, all);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s: %lld packets of %lld were damaged", f->name, bad,
			    all);
		doctor_mend(d, "sudo ethtool -m %s   # clean or change cable and module", f->name);
	}
	if (!seen)
		doctor_skip(d, "no interface would be used");
}

static void drops(struct doctor *d)
{
	const struct iface *f;
	bool seen = false;

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		long long all = stat(d, f, "rx_packets"), bad = stat(d, f, "rx_missed_errors") +
				stat(d, f, "rx_fifo_errors");

		if (f->loopback)
			continue;
		seen = true;
		if (bad <= 100 || bad <= all / 100000) {
			doctor_ok(d, "%s: %lld dropped of %lld packets", f->name, bad, all);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s: the NIC had no room for %lld packets of %lld",
			    f->name, bad, all);
		doctor_mend(d, "sudo ethtool -g %s   # its most, for ethtool -G %s rx MOST; the "
			    "link goes down for a moment", f->name, f->name);
	}
	if (!seen)
		doctor_skip(d, "no interface would be used");
}

static void flaps(struct doctor *d)
{
	enum { OFTEN = 4 };
	const struct iface *f;
	bool seen = false;
	long long n;

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		if (f->loopback ||
		    !sys_number(d, &n, "/sys/class/net/%s/carrier_down_count", f->name))
			continue;
		seen = true;
		if (n < OFTEN) {
			doctor_ok(d, "%s lost its link %lld times since boot", f->name, n);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s flaps: its link was lost %lld times since boot",
			    f->name, n);
		doctor_mend(d, "sudo ethtool -m %s   # clean or change cable and module", f->name);
	}
	if (!seen)
		doctor_skip(d, "no interface tells");
}

static void queues(struct doctor *d)
{
	const struct iface *f;
	struct names all;
	bool seen = false;

	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		unsigned n = 0;

		if (!f->physical || f->mbps < 10000)
			continue;
		sys_names(d, &all, "/sys/class/net/%s/queues", f->name);
		for (unsigned k = 0; k < all.n; k++)
			n += strncmp(all.name[k], "rx-", 3) == 0;
		seen |= n > 0;
		if (n > 1) {
			doctor_ok(d, "%s has %u receive queues", f->name, n);
		} else if (n) {
			doctor_find(d, LEVEL_WARN, "%s has one receive queue at %lld Gbit/s",
				    f->name, f->mbps / 1000);
			doctor_mend(d, "sudo ethtool -l %s   # its most, for ethtool -L %s "
				    "combined MOST; the link goes down for a moment", f->name,
				    f->name);
		}
	}
	if (!seen)
		doctor_skip(d, "no fast interface tells its queues");
}

static void bonds(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f), seen = 0;
	char text[TEXT_LEN], state[NAME_LEN], *rest, *slave;

	for (unsigned i = 0; i < n; i++) {
		if (!f[i].bond)
			continue;
		seen++;
		if (!sys_line(d, text, sizeof(text), "/sys/class/net/%s/bonding/slaves", f[i].name))
			continue;
		for (rest = text; (slave = strsep(&rest, " ")); ) {
			if (!*slave || !sys_line(d, state, sizeof(state),
						 "/sys/class/net/%s/operstate", slave))
				continue;
			if (strcmp(state, "up") == 0) {
				doctor_ok(d, "%s of %s is up", slave, f[i].name);
				continue;
			}
			doctor_find(d, LEVEL_WARN, "%s of the bond %s is %s", slave, f[i].name,
				    state);
			doctor_mend(d, "sudo ethtool %s   # cable, module, switch port", slave);
		}
		if (sys_line(d, text, sizeof(text), "/sys/class/net/%s/bonding/mode", f[i].name) &&
		    strncmp(text, "active-backup", 13) == 0) {
			doctor_find(d, LEVEL_NOTE, "%s uses one of its links at a time (%s)",
				    f[i].name, text);
			doctor_mend(d, "cat /proc/net/bonding/%s   # 802.3ad is for switches that "
				    "are set up for it", f[i].name);
		}
	}
	if (!seen)
		doctor_skip(d, "no bond");
}

/* One that packets may leave by, whether it would be chosen or not. */
static bool carries(const struct iface *f)
{
	return f->up && f->addressed && !f->slave && !f->loopback;
}

static void subnets(struct doctor *d)
{
	const struct iface *f, *a;
	unsigned n = doctor_ifaces(d, &f), others = 0;
	bool found = false;
	struct subnets all;
	int version;

	subnets_read(d, &all);
	for (unsigned i = 0; i < n; i++)
		others += carries(&f[i]);
	for (unsigned i = 0; others > 1 && (a = chosen(d, i)); i++) {
		for (unsigned k = 0; k < n; k++) {
			const struct iface *b = &f[k];

			/* A pair that is chosen is met twice. */
			if (b == a || !carries(b) || (b->chosen && b < a) ||
			    !(version = subnet_in_common(&all, a, b)))
				continue;
			found = true;
			doctor_find(d, LEVEL_WARN, "%s and %s are in one subnet: routes send all "
				    "by one of them%s", a->name, b->name,
				    version == 4 ? ", and each answers ARP for both" : "");
			doctor_mend(d, "ip route show dev %s   # a subnet of its own, or policy "
				    "routing (ip rule)", b->name);
		}
	}
	if (others < 2)
		doctor_skip(d, "not several interfaces");
	else if (!found)
		doctor_ok(d, "each interface has a subnet of its own");
	subnets_free(&all);
}

static void rp_filter(struct doctor *d)
{
	const struct iface *f;
	long long all = 0, own;
	bool seen = false;

	if (!chosen(d, 1)) {
		doctor_skip(d, "not several interfaces");
		return;
	}
	sys_number(d, &all, "/proc/sys/net/ipv4/conf/all/rp_filter");
	for (unsigned i = 0; (f = chosen(d, i)); i++) {
		if (!sys_number(d, &own, "/proc/sys/net/ipv4/conf/%s/rp_filter", f->name))
			continue;
		seen = true;
		if ((own > all ? own : all) != 1) {
			doctor_ok(d, "%s takes packets from any path", f->name);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s drops what came by another path than it would "
			    "answer", f->name);
		doctor_mend(d, "sudo sysctl -w net.ipv4.conf.%s.rp_filter=2", f->name);
	}
	if (!seen)
		doctor_skip(d, "the kernel does not tell");
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
	{ "net-duplex", "Duplex",
	  "The two ends disagree about autonegotiation; throughput is a fraction", duplex },
	{ "net-speed", "Speeds of the interfaces",
	  "NCCL spreads channels equally, so the slowest sets the pace", speeds },
	{ "net-errors", "Damaged packets",
	  "A bad cable, module or connector; each one is sent again", errors },
	{ "net-drops", "Packets the NIC had no room for",
	  "The receive ring is short, or its CPU is busy elsewhere", drops },
	{ "net-flaps", "Links that come and go",
	  "Each time connections stall or break; most often a module or cable", flaps },
	{ "net-queues", "Receive queues",
	  "One queue is served by one CPU: 10 to 30 Gbit/s", queues },
	{ "net-bond", "Bonds", "A bond with a member down has less than its speed", bonds },
	{ "net-subnet", "Subnets of the interfaces",
	  "The kernel answers for all of them by any, and sends by the first route", subnets },
	{ "net-path-filter", "Reverse path filter",
	  "With several interfaces, what comes by the second may be dropped without a word",
	  rp_filter },
	{ NULL, NULL, NULL, NULL },
};
