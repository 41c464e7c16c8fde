/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.c - what carries the data: is it RDMA where RDMA is promised, and over which port, address,
 * MTU and traffic class?
 *
 * Checks of iWARP and SMC have files of their own; functions that tell kinds of devices apart are
 * here, for all.
 */
#include "tools/validate/far.h"
#include "tools/validate/path.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- which kind of device ----------------------------------------------------------------- */

/* The name and the port of "mlx5_0:1". */
static void port_of(struct validate *v, char *dev, size_t len, int *port)
{
	struct braid_net_props p;

	memset(&p, 0, sizeof(p));
	OK(net_props(v->net, v->dev, &p));
	snprintf(dev, len, "%.*s", (int)strcspn(p.name, ":"), p.name);
	*port = strchr(p.name, ':') ? atoi(strchr(p.name, ':') + 1) : p.port > 0 ? p.port : 1;
}

bool rdma_line(struct validate *v, const char *what, char *ret, size_t len)
{
	char dev[64], path[256];
	int port;
	FILE *f;

	port_of(v, dev, sizeof(dev), &port);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/%s", dev, what);
	f = fopen(path, "re");
	if (!f) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/%s", dev, port,
			 what);
		f = fopen(path, "re");
	}
	*ret = '\0';
	if (f && fgets(ret, (int)len, f))
		ret[strcspn(ret, "\n")] = '\0';
	if (f)
		fclose(f);
	return *ret;
}

bool carried_by(struct validate *v, const char *transport)
{
	return is_braid(v) && strcmp(net_transport(), transport) == 0;
}

bool beforehand(struct validate *v, bool (*ask)(struct validate *v))
{
	int status = 1;
	pid_t pid = fork();

	TRUE(pid >= 0);
	if (pid == 0)
		_exit(ask(v) ? 0 : 1);
	TRUE(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

void needs_rdma(struct validate *v)
{
	char line[64];

	if (!carried_by(v, "verbs") && !rdma_line(v, "node_type", line, sizeof(line)))
		skip(v, "the device is no RDMA device, or --transport does without it");
}

static void rdma_line_or_skip(struct validate *v, const char *what, char *ret, size_t len)
{
	needs_rdma(v);
	if (!rdma_line(v, what, ret, len))
		skip(v, "the system has no %s of this device", what);
}

/* -- sockets: listening, and bytes over TCP ----------------------------------------------- */

int listening(union tcp_addr *ret, int n)
{
	int found = 0;

	for (int fd = 0; fd < 1024 && found < n; fd++) {
		socklen_t len = sizeof(int), alen = sizeof(ret[found]);
		int on = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on &&
		    getsockname(fd, &ret[found].sa, &alen) == 0 &&
		    (ret[found].sa.sa_family == AF_INET || ret[found].sa.sa_family == AF_INET6))
			found++;
	}
	return found;
}

static uint64_t tcp_sent;

/* tcpi_bytes_sent is missing in old headers, and in old kernels. */
static bool add_sent(int fd)
{
	struct {
		struct tcp_info info;
		uint8_t more[256];
	} t;
	socklen_t len = sizeof(t);
	uint64_t acked;

	memset(&t, 0, sizeof(t));
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &len) != 0 || len < 128)
		return false;
	memcpy(&acked, (char *)&t + 120, sizeof(acked));	/* tcpi_bytes_acked */
	tcp_sent += acked;
	return true;
}

uint64_t tcp_bytes(void)
{
	tcp_sent = 0;
	count_streams(add_sent);
	return tcp_sent;
}

/* Move 16 MiB to the other end; how many of these bytes our TCP connections sent. */
uint64_t payload_over_tcp(struct validate *v)
{
	struct msg m[4] = { { .size = 4 << 20 }, { .size = 4 << 20 }, { .size = 4 << 20 },
			    { .size = 4 << 20 } };
	struct conn conn = conn_open(v, true);
	uint64_t before, after;

	move(v, &conn, m, 1, 1, NULL, 0);
	before = tcp_bytes();
	move(v, &conn, m, 4, 1, NULL, 0);
	after = tcp_bytes();
	conn_close(v, &conn);
	return after > before ? after - before : 0;
}

static void payload(struct validate *v)
{
	uint64_t over_tcp;

	both_up(v);
	needs_rdma(v);
	over_tcp = payload_over_tcp(v);
	if (over_tcp > 1 << 20)
		FAIL("of 16 MiB %.1f were sent over TCP", (double)over_tcp / (1 << 20));
	saw(v, "of 16 MiB TCP carried %llu bytes", (unsigned long long)over_tcp);
}

static void transport(struct validate *v)
{
	net_up(v);
	needs_braid(v);
	if (!*net_transport())
		FAIL("nothing was said of the device's transports");
	if (v->ndev && strcmp(net_transport(), "tcp") == 0)
		skip(v, "tcp is the device's only transport, or the one that was asked for");
	saw(v, "%s is the first", net_transport());
}

static void active(struct validate *v)
{
	char line[64];

	net_up(v);
	rdma_line_or_skip(v, "state", line, sizeof(line));
	if (!strstr(line, "ACTIVE"))
		FAIL("the port is '%s'", line);
	saw(v, "%s", line);
}

static void rate(struct validate *v)
{
	char line[64];

	net_up(v);
	rdma_line_or_skip(v, "rate", line, sizeof(line));
	if (atof(line) <= 0)
		FAIL("the port's rate is '%s'", line);
	saw(v, "%s", line);
}

static void gid(struct validate *v)
{
	char line[64], what[64], v2[80] = "";
	bool v4 = false;

	net_up(v);
	rdma_line_or_skip(v, "link_layer", line, sizeof(line));
	if (strcmp(line, "Ethernet") != 0)
		skip(v, "%s is not RoCE", line);
	for (int i = 0; i < 64; i++) {
		snprintf(what, sizeof(what), "gid_attrs/types/%d", i);
		if (!rdma_line(v, what, line, sizeof(line)) || !strstr(line, "RoCE v2"))
			continue;
		snprintf(what, sizeof(what), "gids/%d", i);
		if (rdma_line(v, what, line, sizeof(line))) {
			snprintf(v2, sizeof(v2), "%d: %s", i, line);
			v4 = v4 || strstr(line, "0000:0000:0000:0000:0000:ffff:");
		}
	}
	if (!*v2)
		FAIL("no address of RoCE v2");
	if (!v4)
		note(v, "no IPv4 address of RoCE v2: an address on the interface makes one");
	saw(v, "%s", v2);
}

static void pkey(struct validate *v)
{
	char line[64];
	long key;

	net_up(v);
	rdma_line_or_skip(v, "pkeys/0", line, sizeof(line));
	key = strtol(line, NULL, 16);
	if (!(key & 0x7fff))
		FAIL("the first partition key is %s", line);
	if (!(key & 0x8000))
		note(v, "%s: a limited member, which reaches full members only", line);
	saw(v, "%s", line);
}

static void counters(struct validate *v)
{
	char line[64];
	long long before, after;

	both_up(v);
	rdma_line_or_skip(v, "counters/port_xmit_data", line, sizeof(line));
	before = atoll(line);
	payload_over_tcp(v);
	nap_ms(1100);			/* some drivers read the NIC once a second */
	rdma_line(v, "counters/port_xmit_data", line, sizeof(line));
	after = atoll(line);
	if ((after - before) * 4 < 8 << 20)
		FAIL("20 MiB were sent, and the port counted %lld", (after - before) * 4);
	saw(v, "the port counted %lld bytes", (after - before) * 4);
}

/* Messages around every packet size that a path may have. */
static void mtu(struct validate *v)
{
	static const unsigned mtus[] = { 256, 512, 1024, 1500, 2048, 4096, 9000 };
	struct msg m[21];
	struct conn conn;

	both_up(v);
	for (unsigned i = 0; i < 21; i++)
		m[i] = (struct msg){ .size = mtus[i / 3] + i % 3 - 1 };
	for (int out = 0; out < 2; out++) {
		conn = conn_open(v, out);
		move(v, &conn, m, 21, 1, NULL, 0);
		conn_close(v, &conn);
	}
	saw(v, "sizes about 256 to 9000 bytes");
}

/* A comm whose context asks for a traffic class: our sockets must have it. */
static unsigned with_class, without_class;

static bool count_class(int fd)
{
	int tos = 0;
	socklen_t len = sizeof(tos);

	if (getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &len) != 0)
		return false;
	with_class += (tos & 0xfc) == 0x68;
	without_class += (tos & 0xfc) != 0x68;
	return true;
}

static void traffic_class(struct validate *v)
{
	enum { CLASS = 0x68 };		/* AF31 */
	struct pair p;

	net_up(v);
	needs_abi(v, 10);
	if (is_braid(v) && !carried_by(v, "tcp"))
		skip(v, "%s carries, and its class can be seen on the wire alone", net_transport());
	OK(net_finalize(v->net));
	OK(net_init(v->net, 5, CLASS, net_log, NULL));
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 100000, 1);
	count_streams(count_class);
	pair_close(v->net, &p);
	if (with_class + without_class == 0)
		skip(v, "it has no TCP connections to look at");
	if (!with_class && is_braid(v))
		FAIL("none of %u connections has the class 0x%x that init() was given",
		     without_class, CLASS);
	if (!with_class)
		skip(v, "it does not apply the class of traffic to sockets");
	saw(v, "%u of %u connections have it", with_class, with_class + without_class);
}

static bool has_device(struct validate *v)
{
	char err[512];
	int n = 0;

	v->net = net_load(v->w->plugin, v->abi, err, sizeof(err));
	return v->net && net_init(v->net, 1, -1, net_log, NULL) == ncclSuccess &&
	       net_devices(v->net, &n) == ncclSuccess && n > 0;
}

static void ipv6(struct validate *v)
{
	ipv6_only();
	if (!beforehand(v, has_device))
		skip(v, "no device has an IPv6 address");
	both_up_as(v, FAR_IPV6);
	move_one(v, 100000);
}

static const char port[] = "braid doctor --only rdma looks at ports, addresses and firmware";

const struct vcheck validate_path[] = {
	{ "path-transport", "The device has a faster transport than TCP",
	  "braid info says why RDMA is not used", transport, V_HERE, 0 },
	{ "path-payload", "With RDMA the data does not go over TCP",
	  "braid info and --verbose say why it fell back", payload, 0, 0 },
	{ "path-active", "The port is active", port, active, V_HERE, 0 },
	{ "path-rate", "The port has a rate", port, rate, V_HERE, 0 },
	{ "path-gid", "A RoCE port has an address of RoCE v2", port, gid, V_HERE, 0 },
	{ "path-pkey", "The port is in a partition", port, pkey, V_HERE, 0 },
	{ "path-counters", "The port's counters see the data",
	  "Another port carried it: BRAID_IB_HCA says which to use", counters, 0, 0 },
	{ "path-mtu", "Messages about every size of packet arrive whole",
	  "ping -M do -s SIZE finds the path's MTU; all hops need the same", mtu, V_SOAK, 0 },
	{ "path-class", "The class of traffic of init() is on the connections",
	  "Switches would not tell this traffic from other: report it", traffic_class, V_HERE, 0 },
	{ "path-ipv6", "Data moves over IPv6", REPORT, ipv6, 0, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
