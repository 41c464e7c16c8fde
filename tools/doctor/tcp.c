/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp.c - the kernel's TCP: buffers, options, ports, and its counters. */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/doctor/doctor.h"

enum { PORTS_FEW = 32 };		/* of a range, for all processes of a host */

#define MIB (1LL << 20)

/* The speed of the fastest interface that would be used; 0: unknown. */
static long long fastest(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);
	long long most = 0;

	for (unsigned i = 0; i < n; i++)
		if (f[i].chosen && f[i].mbps > most)
			most = f[i].mbps;
	return most;
}

/* The third number of tcp_rmem or tcp_wmem is the most that a stream's buffer may grow to. */
static void buffers(struct doctor *d)
{
	static const char *const names[] = { "tcp_rmem", "tcp_wmem" };
	long long mbps = fastest(d), want, least, def, most;
	char text[TEXT_LEN];

	want = mbps >= 100000 ? 64 * MIB : mbps >= 25000 ? 16 * MIB : 4 * MIB;
	for (unsigned i = 0; i < 2; i++) {
		if (!sys_line(d, text, sizeof(text), "/proc/sys/net/ipv4/%s", names[i]) ||
		    sscanf(text, "%lld %lld %lld", &least, &def, &most) != 3) {
			doctor_skip(d, "/proc/sys/net/ipv4/%s can't be read", names[i]);
			continue;
		}
		doctor_fact(d, names[i], "%lld", most);
		if (most >= want) {
			doctor_ok(d, "%s lets a stream have %lld KiB", names[i], most / 1024);
			continue;
		}
		doctor_find(d, mbps >= 25000 ? LEVEL_WARN : LEVEL_NOTE,
			    "%s lets a stream have %lld KiB; for %lld Gbit/s take %lld MiB",
			    names[i], most / 1024, mbps / 1000, want / MIB);
		doctor_mend(d, "sudo sysctl -w net.ipv4.%s='%lld %lld %lld'", names[i], least, def,
			    want);
	}
}

static void options(struct doctor *d)
{
	static const char *const names[] = { "tcp_window_scaling", "tcp_sack", "tcp_timestamps" };
	long long on;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!sys_number(d, &on, "/proc/sys/net/ipv4/%s", names[i])) {
			doctor_skip(d, "/proc/sys/net/ipv4/%s can't be read", names[i]);
		} else if (on) {
			doctor_ok(d, "%s is on", names[i]);
		} else {
			doctor_find(d, i == 0 ? LEVEL_FAIL : i == 1 ? LEVEL_WARN : LEVEL_NOTE,
				    "%s is off", names[i]);
			doctor_mend(d, "sudo sysctl -w net.ipv4.%s=1", names[i]);
		}
	}
}

static void congestion(struct doctor *d)
{
	char now[NAME_LEN], all[TEXT_LEN] = "";
	const char *wish, *name;

	if (!sys_line(d, now, sizeof(now), "/proc/sys/net/ipv4/tcp_congestion_control")) {
		doctor_skip(d, "/proc/sys/net/ipv4/tcp_congestion_control can't be read");
		return;
	}
	doctor_fact(d, "tcp congestion control", "%s", now);
	sys_line(d, all, sizeof(all), "/proc/sys/net/ipv4/tcp_available_congestion_control");
	wish = env_param(d, "congestion", &name);
	if (wish && *all && !strstr(all, wish)) {
		doctor_find(d, LEVEL_WARN, "%s asks for %s, which the kernel has not loaded (%s)",
			    name, wish, all);
		doctor_mend(d, "sudo modprobe tcp_%s", wish);
	} else {
		doctor_ok(d, "congestion control is %s", wish ? wish : now);
	}
}

static void ports(struct doctor *d)
{
	char text[NAME_LEN];
	int first, last;

	if (!sys_line(d, text, sizeof(text), "/proc/sys/net/ipv4/ip_local_port_range") ||
	    sscanf(text, "%d %d", &first, &last) != 2) {
		doctor_skip(d, "/proc/sys/net/ipv4/ip_local_port_range can't be read");
	} else if (last - first < 10000) {
		doctor_find(d, LEVEL_WARN, "only %d ports are there for connections, %d to %d",
			    last - first + 1, first, last);
		doctor_mend(d, "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
	} else {
		doctor_ok(d, "%d ports are there for connections", last - first + 1);
	}
}

/* Of BRAID_PORT_RANGE.  Other programs' connections take ports that the kernel may choose. */
static void range(struct doctor *d)
{
	const char *name, *text = env_param(d, "port_range", &name);
	char kept[NAME_LEN] = "", local[NAME_LEN] = "";
	int first = 0, last = 0, low = 0, high = 0, n;
	struct braid_params p = braid_param;

	if (!text || !*text) {
		doctor_ok(d, "BRAID_PORT_RANGE is not set: the kernel chooses ports");
		return;
	}
	sys_line(d, kept, sizeof(kept), "/proc/sys/net/ipv4/ip_local_reserved_ports");
	sys_line(d, local, sizeof(local), "/proc/sys/net/ipv4/ip_local_port_range");
	sscanf(local, "%d %d", &first, &last);
	if (braid_param_set(&p, "port_range", text) == 0)
		sscanf(text, "%d-%d", &low, &high);
	n = high - low + 1;
	if (!high) {
		doctor_find(d, LEVEL_FAIL, "%s is '%s', but must be LOW-HIGH, two ports", name,
			    text);
	} else if (n < PORTS_FEW) {
		doctor_find(d, LEVEL_WARN, "%s=%s has only %d port%s: each process listens on one "
			    "for each device, and each lane to a peer has another", name, text, n,
			    n == 1 ? "" : "s");
	} else if (low <= last && high >= first && !strstr(kept, text)) {
		doctor_find(d, LEVEL_NOTE, "%s=%s has ports that the kernel gives other programs' "
			    "connections (%d to %d)", name, text, first, last);
		doctor_mend(d, "sudo sysctl -w net.ipv4.ip_local_reserved_ports=%s%s%s", kept,
			    *kept ? "," : "", text);
	} else {
		doctor_ok(d, "%s=%s has %d ports", name, text, n);
	}
}

static void backlog(struct doctor *d)
{
	long long most, lost = 0;

	if (!sys_number(d, &most, "/proc/sys/net/core/somaxconn")) {
		doctor_skip(d, "/proc/sys/net/core/somaxconn can't be read");
		return;
	}
	sys_snmp(d, "netstat", "TcpExt", "ListenOverflows", &lost);
	if (most < 1024 || lost > 1000) {
		doctor_find(d, most < 1024 ? LEVEL_WARN : LEVEL_NOTE,
			    "%lld connections may wait to be accepted; %lld were dropped since "
			    "boot", most, lost);
		doctor_mend(d, "sudo sysctl -w net.core.somaxconn=4096");
	} else {
		doctor_ok(d, "%lld connections may wait to be accepted", most);
	}
}

static void retransmits(struct doctor *d)
{
	long long sent, again;

	if (!sys_snmp(d, "snmp", "Tcp", "OutSegs", &sent) ||
	    !sys_snmp(d, "snmp", "Tcp", "RetransSegs", &again)) {
		doctor_skip(d, "%s/net/snmp can't be read", sys_proc(d));
	} else if (sent < 100000) {
		doctor_ok(d, "only %lld segments were sent since boot", sent);
	} else if (again > sent / 1000) {
		doctor_find(d, again > sent / 100 ? LEVEL_WARN : LEVEL_NOTE,
			    "%.2f %% of TCP segments were sent again since boot",
			    (double)again * 100 / (double)sent);
		doctor_mend(d, "nstat -az TcpRetransSegs TcpExtTCPTimeouts   # grows now?");
	} else {
		doctor_ok(d, "%.3f %% of TCP segments were sent again since boot",
			  (double)again * 100 / (double)sent);
	}
}

/* One line per CPU, in hexadecimal: packets, dropped, times the budget was used up. */
static void softnet(struct doctor *d)
{
	char *text = sys_text(d, NULL, "%s/net/softnet_stat", sys_proc(d)), *rest = text, *line;
	unsigned long long all = 0, dropped = 0;
	long long backlog_now = 1000;

	if (!text) {
		doctor_skip(d, "%s/net/softnet_stat can't be read", sys_proc(d));
		return;
	}
	while ((line = strsep(&rest, "\n"))) {
		unsigned a, b;

		if (sscanf(line, "%x %x", &a, &b) == 2) {
			all += a;
			dropped += b;
		}
	}
	free(text);
	sys_number(d, &backlog_now, "/proc/sys/net/core/netdev_max_backlog");
	if (dropped > 100 && dropped > all / 100000) {
		doctor_find(d, LEVEL_WARN, "the kernel dropped %llu packets that no CPU took in "
			    "time", dropped);
		doctor_mend(d, "sudo sysctl -w net.core.netdev_max_backlog=%lld", backlog_now * 10);
	} else {
		doctor_ok(d, "%llu packets of %llu were dropped for want of a CPU", dropped, all);
	}
}

static void conntrack(struct doctor *d)
{
	long long now, most;

	if (!sys_number(d, &now, "/proc/sys/net/netfilter/nf_conntrack_count") ||
	    !sys_number(d, &most, "/proc/sys/net/netfilter/nf_conntrack_max")) {
		doctor_skip(d, "connections are not tracked");
	} else if (now > most - most / 5) {
		doctor_find(d, LEVEL_WARN, "%lld connections of at most %lld are tracked", now,
			    most);
		doctor_mend(d, "sudo sysctl -w net.netfilter.nf_conntrack_max=%lld", most * 4);
	} else {
		doctor_ok(d, "%lld connections of at most %lld are tracked", now, most);
	}
}

const struct check doctor_tcp[] = {
	{ "tcp-buffers", "How far a stream's buffers may grow",
	  "A stream has at most one buffer in flight per round trip", buffers },
	{ "tcp-options", "Window scaling, SACK, time stamps",
	  "Without window scaling a stream has 64 KiB in flight; without SACK each loss costs a "
	  "round trip", options },
	{ "tcp-congestion", "Congestion control",
	  "The wish has no effect: streams have the system's", congestion },
	{ "tcp-ports", "Ports for connections",
	  "All-to-all takes many; when there are none left connect fails with \"cannot assign "
	  "requested address\"", ports },
	{ "tcp-range", "Ports that BRAID_PORT_RANGE names",
	  "Other programs may take them, and a process that gets none can't listen or connect",
	  range },
	{ "tcp-backlog", "Connections that may wait",
	  "All ranks connect at once as a job starts; who is dropped tries again a second later",
	  backlog },
	{ "tcp-retransmits", "Segments that were sent again",
	  "Packets are lost: a bad cable, a full queue, a wrong MTU", retransmits },
	{ "tcp-softnet", "Packets that no CPU took",
	  "They are lost, and each costs a retransmission", softnet },
	{ "tcp-conntrack", "Connections the firewall tracks",
	  "Beyond its table new connections are dropped without a word", conntrack },
	{ NULL, NULL, NULL, NULL },
};
