/* SPDX-License-Identifier: BSD-3-Clause */
/* nic.c - the interfaces that would be used: speed, losses, queues, bonds. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/doctor/doctor.h"

static void duplex(struct doctor *d)
{
	const struct iface *f;
	char text[NAME_LEN];
	bool seen = false;

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++)
		if (f->mbps && (!most || f->mbps > most->mbps))
			most = f;
	if (!most || !doctor_chosen(d, 1)) {
		doctor_skip(d, "not several interfaces");
		return;
	}
	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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

static void mend_cable(struct doctor *d, const struct iface *f)
{
	if (f->physical)
		doctor_mend(d, "sudo ethtool -m %s   # clean or change cable and module", f->name);
	else
		doctor_mend(d, "ip -d -s link show dev %s   # no cable: look at what it is made of",
			    f->name);
}

static void errors(struct doctor *d)
{
	const struct iface *f;
	bool seen = false;

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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
		mend_cable(d, f);
	}
	if (!seen)
		doctor_skip(d, "no interface would be used");
}

static void drops(struct doctor *d)
{
	const struct iface *f;
	bool seen = false;

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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
		mend_cable(d, f);
	}
	if (!seen)
		doctor_skip(d, "no interface tells");
}

static void queues(struct doctor *d)
{
	const struct iface *f;
	struct names all;
	bool seen = false;

	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
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

const struct check doctor_nic[] = {
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
	{ NULL, NULL, NULL, NULL },
};
