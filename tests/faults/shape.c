/* SPDX-License-Identifier: BSD-3-Clause */
/* shape.c - how much passes between the hosts: of a path in all, or of each connection (hosts.h). */
#include "tests/faults/hosts.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

enum { CAPPED_MAX = 4000 };		/* connections in a run, with a class each */

static const char sides[] = { 'a', 'b' };	/* frames to A leave the router by a0, those to B by b0 */

bool hosts_shape(const struct hosts *h, unsigned mbit)
{
	bool well = true;

	for (int p = 0; p < h->paths; p++) {
		for (unsigned i = 0; i < 2; i++)
			well = well && host_tc(h, HOST_M, "qdisc replace dev %c%d root tbf rate %umbit "
					       "burst 128k limit 1m\n", sides[i], p, mbit);
	}
	return well;
}

bool hosts_cap(const struct hosts *h, unsigned mbit)
{
	bool well = true;

	for (unsigned i = 0; i < 2; i++)
		well = well && host_tc(h, HOST_M, "qdisc replace dev %c0 root handle 1: htb default fff\n"
				       "class add dev %c0 parent 1: classid 1:fff htb rate %umbit "
				       "burst 128k cburst 128k quantum 64000\n", sides[i], sides[i], mbit);
	return well;
}

static bool is_known(const struct inet_diag_sockid *id)
{
	static struct inet_diag_sockid seen[CAPPED_MAX];
	static unsigned n;

	for (unsigned i = 0; i < n; i++) {
		if (seen[i].idiag_sport == id->idiag_sport && seen[i].idiag_dport == id->idiag_dport)
			return true;
	}
	if (n < CAPPED_MAX)
		seen[n++] = *id;
	return n == CAPPED_MAX;
}

static bool cap_one(const struct hosts *h, unsigned class, unsigned b_port, unsigned a_port, unsigned mbit)
{
	bool well = true;

	for (unsigned i = 0; i < 2; i++)
		well = well && host_tc(h, HOST_M, "class add dev %c0 parent 1: classid 1:%x htb rate %umbit "
				       "burst 70k cburst 70k quantum 64000\n"
				       "qdisc add dev %c0 parent 1:%x bfifo limit 200k\n"
				       "filter add dev %c0 parent 1: protocol ip prio 1 u32 "
				       "match ip sport %u 0xffff match ip dport %u 0xffff flowid 1:%x\n",
				       sides[i], class, mbit, sides[i], class, sides[i], i ? a_port : b_port,
				       i ? b_port : a_port, class);
	return well;
}

/* As B sees them: the runner itself asks A. */
bool hosts_cap_new(const struct hosts *h, unsigned mbit)
{
	static struct inet_diag_sockid ids[SOCKETS_MAX];
	static unsigned classes;
	bool well = true;
	unsigned n;

	n = host_sockets(h, HOST_B, 1U << TCP_ESTABLISHED | 1U << TCP_SYN_SENT | 1U << TCP_SYN_RECV, ids,
			 SOCKETS_MAX);
	for (unsigned i = 0; i < n; i++) {
		if (is_known(&ids[i]))
			continue;
		classes++;
		well &= cap_one(h, 0x1000 + classes, ntohs(ids[i].idiag_sport), ntohs(ids[i].idiag_dport),
				mbit);
	}
	return well;
}
