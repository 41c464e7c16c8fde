/* SPDX-License-Identifier: BSD-3-Clause */
/* socket.c - TCP: the options of a lane's socket; the rest is the stream engine. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/proto/aead.h"
#include "core/transport.h"
#include "socket/ktls.h"
#include "socket/stream.h"
#include "socket/zerocopy.h"
#include "topo/ips.h"

#ifndef TCP_NOTSENT_LOWAT
#define TCP_NOTSENT_LOWAT 25
#endif
#ifndef TCP_RTO_MAX_MS			/* Linux 6.15 */
#define TCP_RTO_MAX_MS 44
#endif

/*
 * TCP_INFO, of which netinet/tcp.h may have only the first part: indexes of tcpi_bytes_acked,
 * tcpi_notsent_bytes and, from Linux 5.4 on, tcpi_snd_wnd of linux/tcp.h.
 */
union full_tcp_info {
	struct tcp_info info;
	uint64_t words[32];
	uint32_t halves[64];
};
enum { BYTES_ACKED = 120 / 8, NOTSENT = 144 / 4, SND_WND = 228 / 4 };

enum { RTO_MAX_MS = 1000, GRACE_S = 10 };

static void set_int(int fd, int level, int name, int64_t value)
{
	int v = (int)value;

	braid_os->setsockopt(fd, level, name, &v, sizeof(v));	/* best effort */
}

/* The TOS byte: the parameter's DSCP, else NCCL's traffic class, which is such a byte; or -1. */
static int dscp_byte(const struct braid_link *link)
{
	if (braid_param.dscp >= 0)
		return (int)braid_param.dscp << 2;
	return link->key.traffic_class >= 0 ? link->key.traffic_class & 0xfc : -1;
}

/* Both ends have the same address: the path is within this host. */
static bool same_host(int fd)
{
	union braid_netdev_addr a = { 0 }, b = { 0 };
	socklen_t alen = sizeof(a), blen = sizeof(b);

	return !braid_os->getsockname(fd, &a.sa, &alen) &&
	       !braid_os->getpeername(fd, &b.sa, &blen) && braid_netdev_same_ip(&a.sa, &b.sa);
}

enum { LOCAL_FLIGHT = 2 << 20 };	/* more would leave the CPU's caches before they are read */

/* Sockets may begin with reno: see braid_socket_unpaced().  Within a host they keep it. */
static void set_congestion(struct braid_lane *lane, const char *name)
{
	if (!braid_os->setsockopt(lane->fd, IPPROTO_TCP, TCP_CONGESTION, name,
				  (socklen_t)strlen(name)) || lane->index)
		return;
	braid_warn("device %s: the kernel has no congestion control %s (%s); it keeps its own. "
		   "See net.ipv4.tcp_available_congestion_control [no-congestion-control]",
		   lane->link->key.dev->net.name, name, strerror(errno));
}

static bool is_ip6(int fd)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);

	return !braid_os->getsockname(fd, (struct sockaddr *)&sa, &len) &&
	       sa.ss_family == AF_INET6;
}

static int tcp_open(struct braid_lane *lane)
{
	const char *given_up = lane->link->key.dev->member[0]->congestion;
	int tos = dscp_byte(lane->link), err = braid_stream_encrypt(lane);

	if (err)
		return err;
	((struct braid_stream *)lane)->fd = lane->fd;
	lane->local = same_host(lane->fd);
	set_int(lane->fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (braid_param.notsent)
		set_int(lane->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, braid_param.notsent);
	if (braid_param.sndbuf)
		set_int(lane->fd, SOL_SOCKET, SO_SNDBUF, braid_param.sndbuf);
	if (braid_param.rcvbuf)
		set_int(lane->fd, SOL_SOCKET, SO_RCVBUF, braid_param.rcvbuf);
	if (braid_param.busy_poll)
		set_int(lane->fd, SOL_SOCKET, SO_BUSY_POLL, braid_param.busy_poll);
	/* core/setup/recover.c decides when a peer is lost, not the kernel. */
	set_int(lane->fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
		(braid_param.peer_timeout + GRACE_S) * 1000);
	set_int(lane->fd, IPPROTO_TCP, TCP_RTO_MAX_MS, RTO_MAX_MS);
	if (tos >= 0) {
		bool ip6 = is_ip6(lane->fd);

		set_int(lane->fd, ip6 ? IPPROTO_IPV6 : IPPROTO_IP, ip6 ? IPV6_TCLASS : IP_TOS, tos);
	}
	if (braid_param.congestion[0])
		set_congestion(lane, braid_param.congestion);
	else if (given_up[0] && !lane->local)
		set_congestion(lane, given_up);
	lane->flight_max = lane->local ? LOCAL_FLIGHT : 0;
	if (braid_param.zerocopy && !lane->local && !lane->keys)
		((struct braid_stream *)lane)->zerocopy = braid_zerocopy_new(lane);
	return 0;
}

static void tcp_fence(struct braid_lane *lane)
{
	struct braid_stream *s = (struct braid_stream *)lane;

	if (s->zerocopy)
		braid_zerocopy_fence(lane, s->zerocopy);
}

/* A notification that has not been read would wake the service thread at once. */
static bool tcp_arm(struct braid_lane *lane)
{
	struct braid_stream *s = (struct braid_stream *)lane;

	if (s->zerocopy)
		braid_zerocopy_collect(lane, s->zerocopy);
	return true;
}

/* Does nothing leave, although the peer's host would take it?  As if its window were closed. */
static bool is_held_back(const union full_tcp_info *t)
{
	return t->halves[NOTSENT] && !t->info.tcpi_unacked &&
	       t->halves[SND_WND] >= t->info.tcpi_snd_mss;
}

/* A closed window is no loss as long as the peer's host answers window probes. */
static int tcp_health(struct braid_lane *lane, struct braid_health *ret)
{
	union full_tcp_info got = { .words = { 0 } };
	const struct tcp_info *info = &got.info;
	socklen_t len = sizeof(got);

	if (braid_os->getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &got, &len))
		return -errno;
	ret->held_back = is_held_back(&got);
	ret->unacked = info->tcpi_unacked || info->tcpi_probes || ret->held_back;
	ret->resent = info->tcpi_retransmits + info->tcpi_probes;
	ret->rtt_ms = info->tcpi_rtt / 1000;
	ret->segment = info->tcpi_snd_mss;
	ret->acked = got.words[BYTES_ACKED];
	ret->old_key = ((struct braid_stream *)lane)->seal.old_key;
	return 0;
}

static const char *tcp_state(unsigned state)
{
	static const char *const names[] = {
		[TCP_ESTABLISHED] = "established", [TCP_SYN_SENT] = "SYN sent",
		[TCP_SYN_RECV] = "SYN received", [TCP_FIN_WAIT1] = "FIN sent",
		[TCP_FIN_WAIT2] = "half closed here", [TCP_TIME_WAIT] = "in TIME-WAIT",
		[TCP_CLOSE] = "closed", [TCP_CLOSE_WAIT] = "half closed by the peer",
		[TCP_LAST_ACK] = "closing", [TCP_CLOSING] = "closing",
	};

	return state < sizeof(names) / sizeof(names[0]) && names[state] ? names[state] : "?";
}

/* What of a stream is done by the kernel. */
static const char *by_kernel(const struct braid_stream *s)
{
	if (s->seal.kernel)
		return s->unseal.kernel ? " (kernel)" : " (kernel seals)";
	return s->unseal.kernel ? " (kernel opens)" : "";
}

static void tcp_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct braid_stream *s = (struct braid_stream *)lane;
	union full_tcp_info got = { .words = { 0 } };
	const struct tcp_info *info = &got.info;
	socklen_t len = sizeof(got);

	if (braid_os->getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &got, &len))
		return;
	ret->resent = info->tcpi_total_retrans;
	snprintf(ret->text, sizeof(ret->text), "%s, rtt %u us, window of %u packets, "
		 "%u not acknowledged, %u lost%s, %s%s%s", tcp_state(info->tcpi_state),
		 info->tcpi_rtt, info->tcpi_snd_cwnd, info->tcpi_unacked, info->tcpi_lost,
		 !info->tcpi_probes ? "" : is_held_back(&got) ? ", nothing leaves this host" :
							       ", peer's window is closed",
		 s->cipher ? braid_aead_name(s->cipher) : "not encrypted", by_kernel(s),
		 atomic_load(&lane->lends) ? ", sends without a copy" : "");
}

/* TCP can use every interface. */
static int tcp_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len)
{
	(void)max, (void)why, (void)len;
	braid_ktls_init();
	for (unsigned i = 0; i < *count; i++)
		table[i].port[BRAID_TRANSPORT_TCP] = &table[i];
	return 0;
}

const struct braid_transport braid_tcp = {
	.name = "tcp",
	.id = BRAID_TRANSPORT_TCP,
	.copies = true,
	.lane_size = sizeof(struct braid_stream),
	.probe = tcp_probe,
	.usable = braid_always,
	.keeps_key = braid_ktls_keeps_key,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.setup = braid_no_setup,
	.setup_peer = braid_no_setup_peer,
	.setup_ready = braid_no_setup_ready,
	.setup_drop = braid_no_setup_drop,
	.lane_open = tcp_open,
	.lane_attach = braid_stream_attach,
	.lane_detach = braid_stream_detach,
	.lane_close = braid_stream_close,
	.lane_fence = tcp_fence,
	.arm = tcp_arm,
	.push = braid_stream_push,
	.poll = braid_stream_poll,
	.health = tcp_health,
	.describe = tcp_describe,
};
