/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counters.c - RDMA ports' counters since boot: losses, retransmissions, and whether the fabric is
 * lossless (PFC) or marks (ECN).  Names are those of the kernel and of mlx5; a port that has none
 * of them is skipped.
 */
#include "config.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"

/* The sum of counters; *ret_known: at least one of them is there. */
static long long add(struct doctor *d, const struct rdma_port *p, const char *dir,
		     const char *const *names, bool *ret_known)
{
	long long all = 0, v;

	for (; *names; names++) {
		if (sys_number(d, &v, "%s/%s/%s", p->dir, dir, *names)) {
			all += v;
			*ret_known = true;
		}
	}
	return all;
}

static long long one(struct doctor *d, const struct rdma_port *p, const char *dir, const char *name)
{
	const char *const names[] = { name, NULL };
	bool known = false;

	return add(d, p, dir, names, &known);
}

static void link_errors(struct doctor *d)
{
	static const char *const names[] = { "symbol_error", "link_error_recovery", "link_downed",
					     "port_rcv_errors", "local_link_integrity_errors",
					     NULL };
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		bool known = false;
		long long bad = add(d, p, "counters", names, &known);
		long long all = one(d, p, "counters", "port_rcv_packets");

		seen += known;
		if (known && bad > 10 && bad > all / 10000000) {
			doctor_find(d, LEVEL_WARN, "%s: %lld errors of the link since boot, %lld "
				    "times down", p->name, bad,
				    one(d, p, "counters", "link_downed"));
			doctor_mend(d, "mlxlink -d %s -p %d -c   # clean or change the cable",
				    p->dev, p->num);
		} else if (known) {
			doctor_ok(d, "%s: %lld errors of the link since boot", p->name, bad);
		}
	}
	if (!seen)
		doctor_skip(d, "no RDMA port that counts");
}

static void retransmits(struct doctor *d)
{
	static const char *const names[] = { "packet_seq_err", "local_ack_timeout_err",
					     "out_of_sequence", "implied_nak_seq_err", NULL };
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		bool known = false;
		long long bad = add(d, p, "hw_counters", names, &known);
		long long all = one(d, p, "counters", "port_xmit_packets") +
				one(d, p, "counters", "port_rcv_packets");

		seen += known;
		if (known && bad > 100 && bad > all / 1000000) {
			doctor_find(d, bad > all / 10000 ? LEVEL_FAIL : LEVEL_WARN,
				    "%s: %lld packets were lost or late, of %lld", p->name, bad,
				    all);
			doctor_mend(d, "rdma statistic show link %s/%d   # grows now? then PFC or "
				    "ECN", p->dev, p->num);
		} else if (known) {
			doctor_ok(d, "%s: %lld packets were lost or late, of %lld", p->name, bad,
				  all);
		}
	}
	if (!seen)
		doctor_skip(d, "no RDMA port that counts");
}

static void rnr(struct doctor *d)
{
	static const char *const names[] = { "rnr_nak_retry_err", NULL };
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		bool known = false;
		long long bad = add(d, p, "hw_counters", names, &known);

		seen += known;
		if (bad) {
			doctor_find(d, LEVEL_WARN, "%s: %lld times a receiver was not ready",
				    p->name, bad);
			doctor_mend(d, "rdma statistic show link %s/%d   # which job makes it "
				    "grow?",
				    p->dev, p->num);
		} else if (known) {
			doctor_ok(d, "%s: receivers were ready", p->name);
		}
	}
	if (!seen)
		doctor_skip(d, "no RDMA port that counts");
}

static void ecn(struct doctor *d)
{
	static const char *const names[] = { "np_ecn_marked_roce_packets", "np_cnp_sent",
					     "rp_cnp_handled", NULL };
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		bool known = false;
		long long marks, lost;

		if (!p->roce)
			continue;
		marks = add(d, p, "hw_counters", names, &known);
		lost = one(d, p, "hw_counters", "out_of_sequence");
		seen += known;
		if (known && !marks && lost > 1000) {
			doctor_find(d, LEVEL_WARN, "%s: packets are lost, but none was ever marked",
				    p->name);
			doctor_mend(d, "grep . /sys/class/net/%s/ecn/roce_np/enable/*   # 1 for "
				    "the priority in use; the switches must mark too",
				    *p->netdev ? p->netdev : "INTERFACE");
		} else if (known) {
			doctor_ok(d, "%s: %lld marks and notices of congestion", p->name, marks);
		}
	}
	if (!seen)
		doctor_skip(d, "no RoCE port that counts");
}

static int send_request(int fd, const char *name, void *request)
{
	struct ifreq r = { .ifr_data = request };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%.*s", IFNAMSIZ - 1, name);
	return ioctl(fd, SIOCETHTOOL, &r);
}

/* The counters of pauses, and of packets that were dropped. */
static json_t *nic_stats(int fd, const char *name, unsigned n)
{
	struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)n * ETH_GSTRING_LEN);
	struct ethtool_stats *values = calloc(1, sizeof(*values) + n * sizeof(values->data[0]));
	json_t *o = json_object();

	if (!names || !values)
		goto out;
	*names = (struct ethtool_gstrings){ .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS,
					    .len = n };
	*values = (struct ethtool_stats){ .cmd = ETHTOOL_GSTATS, .n_stats = n };
	if (send_request(fd, name, names) < 0 || send_request(fd, name, values) < 0)
		goto out;
	for (unsigned i = 0; i < n; i++) {
		char key[ETH_GSTRING_LEN + 1];

		snprintf(key, sizeof(key), "%.*s", ETH_GSTRING_LEN,
			 (const char *)names->data + (size_t)i * ETH_GSTRING_LEN);
		if (strstr(key, "pause") || strstr(key, "discard") || strstr(key, "out_of_buffer"))
			json_object_set_new(o, key, json_integer((json_int_t)values->data[i]));
	}
out:
	free(names);
	free(values);
	return o;
}

static json_t *ethtool(struct doctor *d)
{
	const struct iface *f;
	unsigned n = doctor_ifaces(d, &f);
	json_t *all = json_object();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (; fd >= 0 && n; n--, f++) {
		struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };

		if (!f->physical || send_request(fd, f->name, &info) < 0)
			continue;
		json_object_set_new(all, f->name,
				    json_pack("{s:s, s:s, s:o}", "driver", info.driver, "firmware",
					      info.fw_version, "stats",
					      nic_stats(fd, f->name, info.n_stats)));
	}
	return all;
}

static const struct probe probe_ethtool = { "ethtool", ethtool, 1000 };

/* The NIC's own statistics, by ethtool: pauses, and packets it had no room for. */
static void pfc(struct doctor *d)
{
	const char *why;
	const json_t *all = doctor_probe(d, &probe_ethtool, &why), *x;
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		long long pauses = 0, dropped = 0, v;
		const char *key;
		json_t *value;

		if (!p->roce || !*p->netdev)
			continue;
		x = json_object_get(json_object_get(all, p->netdev), "stats");
		if (!json_object_size(x))
			continue;
		seen++;
		json_object_foreach((json_t *)x, key, value) {
			v = json_integer_value(value);
			if (strstr(key, "prio") && strstr(key, "pause") && !strstr(key, "duration"))
				pauses += v;
			else if (strstr(key, "discard") || strstr(key, "out_of_buffer"))
				dropped += v;
		}
		if (dropped > 1000 && !pauses) {
			doctor_find(d, LEVEL_WARN, "%s (%s): %lld packets were dropped and no "
				    "pause was ever sent: not lossless", p->netdev, p->name,
				    dropped);
			doctor_mend(d, "sudo mlnx_qos -i %s   # --pfc 0,0,0,1,0,0,0,0 is for "
				    "switches that have it too", p->netdev);
		} else {
			doctor_ok(d, "%s: %lld pauses, %lld packets dropped", p->netdev, pauses,
				  dropped);
		}
	}
	if (!seen)
		doctor_skip(d, all ? "no RoCE port whose NIC tells" : "ethtool: %s", why);
}

static void congestion(struct doctor *d)
{
	const struct rdma_port *p;
	unsigned n = doctor_ports(d, &p), seen = 0;

	for (; n; n--, p++) {
		static const char *const names[] = { "port_xmit_discards", NULL };
		bool known = false;
		long long bad = add(d, p, "counters", names, &known);

		seen += known;
		if (bad > 100) {
			doctor_find(d, LEVEL_WARN, "%s: %lld packets were given up unsent", p->name,
				    bad);
			doctor_mend(d, "perfquery -x %s %d   # which switch port holds it up?",
				    p->dev, p->num);
		} else if (known) {
			doctor_ok(d, "%s: %lld packets were given up unsent", p->name, bad);
		}
	}
	if (!seen)
		doctor_skip(d, "no RDMA port that counts");
}

const struct check doctor_counters[] = {
	{ "counters-link", "Errors of RDMA links",
	  "A bad cable, module or connector; links that go down break jobs", link_errors },
	{ "counters-loss", "RDMA packets that were lost",
	  "RDMA sends all from the lost packet on again: a loss of 0.1 % may take half of the "
	  "bandwidth", retransmits },
	{ "counters-not-ready", "Receivers that were not ready",
	  "A receiver falls behind; with iWARP that ends the connection", rnr },
	{ "counters-ecn", "Marks of congestion (ECN)",
	  "Switches or this NIC do not mark: senders are not told to slow down, and packets are "
	  "lost", ecn },
	{ "counters-pfc", "Pauses (PFC)",
	  "Without pauses for its priority RoCE loses packets in each burst", pfc },
	{ "counters-unsent", "Packets that were given up unsent",
	  "The fabric held the port up for too long", congestion },
	{ NULL, NULL, NULL, NULL },
};
