/* SPDX-License-Identifier: BSD-3-Clause */
/* why.c - see why.h. */
#include "core/setup/why.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/ports.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/setup/addr.h"
#include "core/setup/conn.h"
#include "core/setup/declined.h"
#include "core/setup/encrypt.h"
#include "core/setup/job_key.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/stopped.h"
#include "topo/ips.h"
#include "topo/neigh.h"

/* --- a dial that failed -------------------------------------------------------------------- */

enum braid_dial_stage braid_dial_stage(const struct braid_conn *c, int err)
{
	if (!c)				/* a connect() on this host may be answered at once */
		return err == -ECONNREFUSED ? BRAID_DIAL_TCP : BRAID_DIAL_HERE;
	return c->state == BRAID_CONN_CONNECT ? BRAID_DIAL_TCP : BRAID_DIAL_PEER;
}

struct ended {				/* what is known about the last dial */
	const struct braid_conn *c;	/* NULL: there was no connection */
	const struct braid_dev *from;
	union braid_netdev_addr to;
	char addr[64];			/* `to`, as text */
	int err;
};

static bool is_loopback(const union braid_netdev_addr *a)
{
	return a->sa.sa_family == AF_INET ? ntohl(a->in.sin_addr.s_addr) >> 24 == 127 :
					    IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

/* The setting that chose the interface, as a user would write it. */
static void chooser(char *ret, size_t len)
{
	char name[BRAID_PARAM_VARIABLE];

	if (braid_param.socket_ifname[0])
		snprintf(ret, len, "%s=%s", braid_param_variable("socket_ifname", name),
			 braid_param.socket_ifname);
	else
		snprintf(ret, len, "no NCCL_SOCKET_IFNAME");
}

static enum braid_neigh neigh(const struct ended *e)
{
	return braid_neigh_get(&e->to.sa, e->from->net.ifindex);
}

static void describe_refused(const struct ended *e, char *ret, size_t len)
{
	char name[IF_NAMESIZE], by[BRAID_PARAM_STR_MAX + BRAID_PARAM_VARIABLE];
	bool own = braid_addr_is_own(&e->to.sa, name);

	chooser(by, sizeof(by));
	if (is_loopback(&e->to))
		snprintf(ret, len, "%s refuses: that is a loopback address (%s chose %s here), "
			 "which leads to this host alone. If the peer is on another host, choose "
			 "another interface there; if it is on this host, it has ended "
			 "[own-address]", e->addr, by, e->from->net.name);
	else if (own)
		snprintf(ret, len, "%s refuses: that is this host's own address, of %s (%s chose "
			 "%s here). If the peer is on another host, both have that address: choose "
			 "another interface on both; if it is on this host, it has ended "
			 "[own-address]", e->addr, name, by, e->from->net.name);
	else
		snprintf(ret, len, "%s refuses: the peer has ended, or a firewall or NAT answers "
			 "in its place. Look for the first error in that rank's log, and see braid "
			 "doctor --peer HOST [connection-refused]", e->addr);
}

static void describe_unreachable(const struct ended *e, char *ret, size_t len)
{
	switch (neigh(e)) {
	case BRAID_NEIGH_SILENT:
		snprintf(ret, len, "no host has the address %s on %s's network (nobody answers ARP "
			 "or neighbour discovery): that host is down, or on another network "
			 "[no-route]", e->addr, e->from->net.name);
		break;
	case BRAID_NEIGH_ANSWERS:
		snprintf(ret, len, "%s is there, and a firewall rejects the connection (by an ICMP "
			 "message): let TCP between these hosts through [firewall-rejects]",
			 e->addr);
		break;
	default:
		snprintf(ret, len, "%s can't be reached: a firewall or a router on the way says so "
			 "(by an ICMP message), or the gateway is down. Let TCP between these "
			 "hosts through, and see ip route get [firewall-rejects]", e->addr);
	}
}

static void describe_dropped(const struct ended *e, char *ret, size_t len)
{
	if (neigh(e) == BRAID_NEIGH_ANSWERS)
		snprintf(ret, len, "%s is there and does not answer TCP: a firewall drops it, or "
			 "it does not know the way back to %s [no-route]", e->addr, e->from->addr);
	else
		snprintf(ret, len, "no answer from %s: is there a firewall between the hosts, or "
			 "is this the wrong interface (NCCL_SOCKET_IFNAME)? [no-route]", e->addr);
}

static void describe_no_route(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "%s: %s; check the route to that host, or choose another interface "
		 "(NCCL_SOCKET_IFNAME) [no-route]", e->addr, strerror(-e->err));
}

static void describe_forbidden(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "this host forbids connections to %s (%s): a route of type prohibit, a "
		 "firewall's rule or a security policy does so [forbidden-here]", e->addr,
		 strerror(-e->err));
}

static void describe_ports(const struct ended *e, char *ret, size_t len)
{
	if (braid_ports_given()) {
		size_t used = (size_t)snprintf(ret, len, "%s can't be dialled: ", e->addr);

		if (used < len)
			braid_ports_why(ret + used, len - used);
		return;
	}
	snprintf(ret, len, "every local port towards %s is taken (%s): ss -tan shows by what; "
		 "net.ipv4.ip_local_port_range has the range, which may be widened "
		 "[no-local-port]", e->addr, strerror(-e->err));
}

static void describe_gone(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "%s does not have the address %s any more, or, of IPv6, not yet (%s): "
		 "see ip address [address-gone]", e->from->net.name, e->from->addr,
		 strerror(-e->err));
}

static void describe_no_answer(const struct ended *e, char *ret, size_t len)
{
	char how[BRAID_STOPPED_TEXT];

	if (e->c && e->c->known)
		snprintf(ret, len, "%s (%s, pid %u) began to answer, and then no more: %s "
			 "[no-answer]", e->addr, e->c->theirs.host, e->c->theirs.pid,
			 braid_stopped_peer(e->c->theirs.host, e->c->theirs.pid, how));
	else
		snprintf(ret, len, "%s takes the connection, and nothing answers it: the peer's "
			 "process is stopped (SIGSTOP, a debugger) or gets no CPU, or a proxy "
			 "takes connections in its place; ss -ltnp on its host names the process, "
			 "and ps -L -o stat,comm -p PID tells T, stopped, from R, no CPU "
			 "[no-answer]", e->addr);
}

static void describe_hangs_up(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "%s takes connections and closes them at once: the peer is ending, %sor "
		 "a proxy takes them in its place; look for the first error in that rank's log "
		 "[peer-hangs-up]", e->addr, !braid_job_key_is_set() ? "" :
		 "or is an older Braid that knows no secret (BRAID_SECRET_FILE), ");
}

static void describe_local(const struct ended *e, char *ret, size_t len)
{
	if (e->err == -ENOSPC)		/* epoll_ctl() */
		snprintf(ret, len, "can't connect: this user's epoll sets hold as many descriptors "
			 "as the kernel allows: see sysctl fs.epoll.max_user_watches "
			 "[cannot-connect]");
	else
		snprintf(ret, len, "can't connect: %s%s [cannot-connect]", strerror(-e->err),
			 e->err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

static void describe_version(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "%s speaks Braid's wire versions %u to %u, this library %u to %u: "
		 "install the same Braid release on both hosts [wire-version]", e->addr,
		 e->c->theirs.least, e->c->theirs.most, BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
}

static void describe_stranger(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "what answers at %s is not Braid (this library speaks wire version %u): "
		 "another program took the port, or the peer runs another NCCL net plugin "
		 "[not-braid]", e->addr, BRAID_WIRE_MOST);
}

static void describe_token(const struct ended *e, char *ret, size_t len)
{
	snprintf(ret, len, "%s does not know this connection's token: it is not the process that "
		 "made the handle [wrong-token]", e->addr);
}

static void describe_encrypt(const struct ended *e, char *ret, size_t len)
{
	char why[256];

	braid_encrypt_why(e->c, why, sizeof(why));
	snprintf(ret, len, "%s (%s, pid %u) %s", e->addr, e->c->theirs.host, e->c->theirs.pid, why);
}

static void describe_secret(const struct ended *e, char *ret, size_t len)
{
	const char *how = e->c ? braid_job_key_differs(e->c) : NULL;

	snprintf(ret, len, "%s %s: every process needs the same BRAID_SECRET_FILE; braid doctor "
		 "checks it [secret-mismatch]", e->addr,
		 how ? how : "has another secret of the job than this process, or none");
}

static void describe_family(const struct ended *e, char *ret, size_t len)
{
	(void)e;
	snprintf(ret, len, "the two ends have no IP version in common; set NCCL_SOCKET_FAMILY on "
		 "both hosts [no-ip-version]");
}

static void describe_turned_away(const struct ended *e, char *ret, size_t len)
{
	char text[320];
	const char *why = text;

	braid_declined_text(e->c, text, sizeof(text));
	if (!*text && e->c->theirs.status == BRAID_HELLO_NO_LISTEN)
		why = "it no longer listens for this connection: did that rank call "
		      "ncclCommAbort?";
	else if (!*text && e->c->theirs.status == BRAID_HELLO_NO_TRANSPORT)
		why = "it has no transport in common with us; compare BRAID_TRANSPORTS on both "
		      "hosts";
	else if (!*text)
		why = "it refused";
	snprintf(ret, len, "%s answered, but %s [peer-refused]", e->addr, why);
}

/* Causes by stage and errno; the row with err 0 stands for all other errors of its stage. */
static const struct row {
	enum braid_dial_stage stage;
	int err;
	int ret;			/* the error for NCCL; 0: the dial's own */
	bool waited;			/* the dial was repeated until BRAID_CONNECT_TIMEOUT */
	void (*say)(const struct ended *e, char *ret, size_t len);
} rows[] = {
	{ BRAID_DIAL_HERE, EAFNOSUPPORT,    -EPROTONOSUPPORT, false, describe_family },
	{ BRAID_DIAL_HERE, EADDRINUSE,      0,                true,  describe_ports },
	{ BRAID_DIAL_HERE, EADDRNOTAVAIL,   0,                true,  describe_gone },
	{ BRAID_DIAL_HERE, EACCES,          -EPERM,           true,  describe_forbidden },
	{ BRAID_DIAL_HERE, EPERM,           0,                true,  describe_forbidden },
	{ BRAID_DIAL_HERE, ENOMEM,          0,                false, describe_local },
	{ BRAID_DIAL_HERE, EMFILE,          0,                true,  describe_local },
	{ BRAID_DIAL_HERE, ENFILE,          0,                true,  describe_local },
	{ BRAID_DIAL_HERE, ENOSPC,          0,                true,  describe_local },
	{ BRAID_DIAL_HERE, 0,               -EREMOTEIO,       true,  describe_no_route },

	{ BRAID_DIAL_TCP,  ECONNREFUSED,    -EREMOTEIO,       false, describe_refused },
	{ BRAID_DIAL_TCP,  ETIMEDOUT,       -EREMOTEIO,       true,  describe_dropped },
	{ BRAID_DIAL_TCP,  EHOSTUNREACH,    -EREMOTEIO,       true,  describe_unreachable },
	{ BRAID_DIAL_TCP,  EACCES,          -EREMOTEIO,       true,  describe_unreachable },
	{ BRAID_DIAL_TCP,  EPERM,           -EREMOTEIO,       true,  describe_unreachable },
	{ BRAID_DIAL_TCP,  0,               -EREMOTEIO,       true,  describe_no_route },

	{ BRAID_DIAL_PEER, EPROTONOSUPPORT, 0,                false, describe_version },
	{ BRAID_DIAL_PEER, EPROTO,          -EPROTONOSUPPORT, false, describe_stranger },
	{ BRAID_DIAL_PEER, EBADMSG,         -EPROTONOSUPPORT, true,  describe_stranger },
	{ BRAID_DIAL_PEER, EACCES,          0,                false, describe_token },
	{ BRAID_DIAL_PEER, ENOKEY,          -EPROTONOSUPPORT, false, describe_encrypt },
	{ BRAID_DIAL_PEER, EKEYREJECTED,    -EACCES,          false, describe_secret },
	{ BRAID_DIAL_PEER, EREMOTEIO,       0,                false, describe_turned_away },
	{ BRAID_DIAL_PEER, ETIMEDOUT,       -EREMOTEIO,       true,  describe_no_answer },
	{ BRAID_DIAL_PEER, ENOTCONN,        -EREMOTEIO,       true,  describe_hangs_up },
	{ BRAID_DIAL_PEER, ECONNRESET,      -EREMOTEIO,       true,  describe_hangs_up },
	{ BRAID_DIAL_PEER, EPIPE,           -EREMOTEIO,       true,  describe_hangs_up },
	{ BRAID_DIAL_PEER, ENOMEM,          0,                false, describe_local },
	{ BRAID_DIAL_PEER, EMFILE,          0,                true,  describe_local },
	{ BRAID_DIAL_PEER, ENFILE,          0,                true,  describe_local },
	{ BRAID_DIAL_PEER, 0,               -EREMOTEIO,       true,  describe_no_route },
};

static const struct row *row_of(enum braid_dial_stage stage, int err)
{
	const struct row *r = rows;

	while (r->stage != stage || (r->err && r->err != -err))
		r++;
	return r;
}

void braid_why_dial(struct braid_link *link, const struct braid_conn *c,
		    enum braid_dial_stage stage, int err)
{
	struct ended e = { .c = c, .from = c ? c->met : link->setup.path[0].dev, .err = err };
	const struct row *r = row_of(stage, err);
	const struct braid_ways *w = &link->setup.path[0].ways;
	struct sockaddr_storage to = { 0 };
	char why[BRAID_LOG_MAX];
	int n = 0;

	if (w->n)
		e.to = w->way[c ? c->way : w->now].pair.to;
	memcpy(&to, &e.to, sizeof(e.to));
	braid_addr_text(&to, e.addr, sizeof(e.addr));
	if (r->waited)
		n = snprintf(why, sizeof(why), "no connection within %lld s "
			     "(BRAID_CONNECT_TIMEOUT)%s: ",
			     (long long)braid_param.connect_timeout,
			     stage == BRAID_DIAL_TCP && braid_param.share ?
			     ", neither ours nor one of the peer's, which would do" : "");
	r->say(&e, why + n, sizeof(why) - (size_t)n);
	braid_link_fail(link, r->ret ? r->ret : err, "%s", why);
}

void braid_why_mtu(const struct braid_link *link, unsigned size)
{
	braid_warn("device %s, peer %s: packets with %u bytes were all lost, and ones with %d "
		   "arrive: is the MTU on the way smaller than that of %s, and no router says so? "
		   "Compare ip link on both hosts; ping -M do -s SIZE finds what "
		   "the path carries. Until then packets are small, and TCP is slow "
		   "[mtu-black-hole]",
		   link->key.dev->net.name, link->peer, size, BRAID_SMALL_SEGMENT,
		   link->key.dev->net.name);
}
