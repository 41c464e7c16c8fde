/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dial.c - the service thread dials: the first lane of a new link, more lanes of one that is up.
 *
 * A dial that fails is made again until its caller's deadline, unless what came back shows that
 * it can't succeed; then the link is dead, with one line that says why and what to do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/heal.h"
#include "core/log.h"
#include "core/os.h"
#include "core/param.h"
#include "core/pool.h"
#include "core/service_int.h"

enum {
	REDIAL_MS = 20, REDIAL_MAX_MS = 500,
	ATTEMPT_MS = 500,		/* for a lane of a link that had been up */
	SMALL_SEGMENT = 1024,		/* what fits into any tunnel: the kernel's tcp_base_mss */
	REFUSED_MS = 500,		/* a closed port is believed after that: it was open once */
};

static struct braid_log_gate gate_fds;

void braid_dial_addr(const struct braid_link *link, unsigned path, char *ret, size_t len)
{
	struct sockaddr_storage sa;

	if (braid_path_sockaddr(&link->path[path], &sa))
		braid_addr_text(&sa, ret, len);
	else
		snprintf(ret, len, "an address of the other IP version");
}

/*
 * A socket on its way to the peer, from the member's own address: a descriptor or -errno.  Small
 * segments go both ways, for SYN tells the peer.
 */
static int dial_socket(const struct braid_path *path, bool small_segments)
{
	struct sockaddr_storage to, from = { 0 };
	char was[BRAID_CONGESTION_SIZE];
	socklen_t len = braid_path_sockaddr(path, &to);
	int fd, err, one = 1, segment = SMALL_SEGMENT;

	if (!len)
		return -EAFNOSUPPORT;
	fd = braid_os->socket(to.ss_family, IPPROTO_TCP);
	if (fd < 0)
		return -errno;
	memcpy(&from, &path->dev->net.addr, sizeof(path->dev->net.addr));
	if (braid_netdev_same_ip((struct sockaddr *)&to, (struct sockaddr *)&from))
		braid_handshake_unpaced(fd, was);
	if (from.ss_family == AF_INET)
		braid_os->setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (small_segments)
		braid_os->setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
	if (!braid_os->bind(fd, (struct sockaddr *)&from, len) &&
	    (!braid_os->connect(fd, (struct sockaddr *)&to, len) || errno == EINPROGRESS))
		return fd;
	err = -errno;
	braid_os->close(fd);
	return err;
}

static int dial_start(struct braid_link *link, enum braid_hello_kind kind, struct braid_lane *lane,
		      unsigned path, uint64_t now)
{
	struct braid_conn *c = calloc(1, sizeof(*c));
	int fd;

	if (!c)
		return -ENOMEM;
	fd = dial_socket(&link->path[path], lane && braid_heal_again(lane, now));
	if (fd < 0) {
		free(c);
		return fd;
	}
	braid_conn_init(c, fd, true);
	c->link = link;
	c->path = path;
	c->dev = link->key.dev;
	c->met = link->path[path].dev;
	braid_path_sockaddr(&link->path[path], &c->to);
	c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
	if (kind == BRAID_HELLO_LINK && c->deadline_ns > link->dial_until_ns)
		c->deadline_ns = link->dial_until_ns;
	if (kind == BRAID_HELLO_ALIVE || lane)
		c->deadline_ns = now + ATTEMPT_MS * MS;
	braid_dial_addr(link, path, c->addr, sizeof(c->addr));
	c->mine.kind = (uint8_t)kind;
	c->mine.dev = (uint16_t)link->key.dev->index;
	c->mine.peer_dev = link->key.peer_dev;
	c->mine.traffic_class = link->key.traffic_class;
	braid_paths_tell(c->dev, c->met, &c->mine);
	braid_handshake_offer(&c->mine, c->met, now < link->path[path].plain_until_ns);
	if (kind == BRAID_HELLO_LINK) {
		c->mine.ident = link->target.listen_id;
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
		memcpy(c->key, link->target.token, sizeof(c->key));
	} else {
		c->mine.ident = link->id;
		if (kind == BRAID_HELLO_ALIVE) {
			c->mine.lane = braid_link_home(link)->index;
			c->mine.epoch = braid_link_home(link)->dialled;
		} else {
			c->mine.lane = lane ? lane->index : (uint8_t)link->nlanes;
			/* The peer may have taken in the last one, of which we have nothing. */
			c->mine.epoch = lane ? ++lane->dialled : link->grow.dials++;
		}
		memcpy(c->key, link->session, sizeof(c->key));
	}
	c->lane = lane;
	if (lane)
		lane->conn = c;
	else
		link->conn = c;
	return braid_handshake_add(c, EPOLLOUT) ? -ENOMEM : 0;
}

static const char *refusal(const struct braid_conn *c, char *text, size_t len)
{
	braid_handshake_refused(c, text, len);
	if (*text)
		return text;
	switch (c->theirs.status) {
	case BRAID_HELLO_NO_LISTEN:
		return "it no longer listens for this connection; did that rank abort?";
	case BRAID_HELLO_NO_TRANSPORT:
		return "it has no transport in common with us; compare BRAID_TRANSPORTS on both "
		       "hosts";
	default:
		return "it refused";
	}
}

static void dial_failed_for_good(struct braid_link *link, const struct braid_conn *c, int err)
{
	const char *addr = c ? c->addr : "the peer";
	char text[320];

	if (err == -EPROTONOSUPPORT)
		braid_link_fail(link, err,
				"%s speaks Braid's wire versions %u to %u, this library %u to "
				"%u: install the same Braid release on both hosts [wire-version]",
				addr, c ? c->theirs.least : 0, c ? c->theirs.most : 0,
				BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	else if (err == -EPROTO)
		braid_link_fail(link, -EPROTONOSUPPORT,
				"what answers at %s is not Braid (this library "
				"speaks wire version %u): another program took the port, or the "
				"peer runs "
				"another NCCL net plugin [not-braid]",
				addr, BRAID_WIRE_MOST);
	else if (err == -EACCES)
		braid_link_fail(link, -EACCES,
				"%s does not know this connection's token: it is not the "
				"process that made the handle [wrong-token]",
				addr);
	else if (err == -EREMOTEIO)
		braid_link_fail(link, err, "%s answered, but %s [peer-refused]", addr,
				c ? refusal(c, text, sizeof(text)) : "it refused");
	else if (err == -ETIMEDOUT)
		braid_link_fail(link, -EREMOTEIO,
				"no answer within %lld s (BRAID_CONNECT_TIMEOUT): is there a "
				"firewall between the hosts, or is this the wrong interface "
				"(NCCL_SOCKET_IFNAME)? [no-route]",
				(long long)braid_param.connect_timeout);
	else if (err == -EAFNOSUPPORT)
		braid_link_fail(link, -EPROTONOSUPPORT,
				"the two ends have no IP version in common; set "
				"NCCL_SOCKET_FAMILY on both hosts [no-ip-version]");
	else if (err == -ECONNREFUSED)
		braid_link_fail(link, -EREMOTEIO,
				"nobody listens there any more: the peer's process has "
				"ended; look for the first error in that rank's log [peer-ended]");
	else if (err == -ENOTCONN || err == -ECONNRESET || err == -EPIPE)
		braid_link_fail(link, -EREMOTEIO,
				"%s takes connections and closes them at once, for %lld s "
				"(BRAID_CONNECT_TIMEOUT): look for the first error in that rank's "
				"log [peer-hangs-up]",
				addr, (long long)braid_param.connect_timeout);
	else if (err == -ENOMEM || err == -EMFILE || err == -ENFILE)
		braid_link_fail(link, err, "can't connect: %s%s [cannot-connect]", strerror(-err),
				err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
	else			/* no way to the peer: EINVAL is a route that is a blackhole */
		braid_link_fail(link, -EREMOTEIO,
				"no connection within %lld s (BRAID_CONNECT_TIMEOUT): %s; check "
				"the route to that host, or choose another interface "
				"(NCCL_SOCKET_IFNAME) [no-route]",
				(long long)braid_param.connect_timeout, strerror(-err));
}

/* What it lacks it may have a moment later. */
static bool peer_is_short(const struct braid_conn *c)
{
	return c && (c->their_setup.err == EMFILE || c->their_setup.err == ENFILE);
}

/* A dial of a new link did not come through: try again, wait for theirs, or give up. */
void braid_dial_failed(struct braid_link *link, struct braid_conn *c, int err, uint64_t now)
{
	bool crossed = err == -EREMOTEIO && c && c->theirs.status == BRAID_HELLO_CROSSED;
	int before = link->dial_err;
	int state = atomic_load(&link->state);

	if (state == BRAID_LINK_UP || state == BRAID_LINK_DEAD)
		return;
	if (crossed) {			/* theirs is on its way; ask again if it does not come */
		atomic_store(&link->state, BRAID_LINK_WAITING);
		link->dial_at_ns = now + REDIAL_MAX_MS * MS;
		return;
	}
	/* An attempt that the caller's deadline cut short says less than the one before it. */
	if (err == -ETIMEDOUT && before && now >= link->dial_until_ns)
		err = before;
	link->dial_err = err;
	if (err == -ECONNREFUSED && !link->refused_until_ns)
		link->refused_until_ns = now + REFUSED_MS * MS;
	if (err == -EPROTONOSUPPORT || err == -EPROTO || err == -EACCES ||
	    (err == -EREMOTEIO && !peer_is_short(c)) || err == -EAFNOSUPPORT ||
	    err == -ENOMEM || now >= link->dial_until_ns ||
	    (err == -ECONNREFUSED && now >= link->refused_until_ns)) {
		dial_failed_for_good(link, c, err);
		return;
	}
	if ((err == -EMFILE || err == -ENFILE) && braid_log_gate_open(&gate_fds, now))
		braid_warn("out of file descriptors while connecting; trying on. Raise ulimit -n "
			   "[no-descriptors]");
	link->dial_at_ns = now + REDIAL_MS * MS;
}

void braid_dial_link(struct braid_link *link, uint64_t now)
{
	int err;

	atomic_store(&link->state, BRAID_LINK_DIALING);
	link->dial_at_ns = 0;
	err = dial_start(link, BRAID_HELLO_LINK, NULL, 0, now);
	if (err)
		braid_dial_failed(link, NULL, err, now);
}

int braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now)
{
	unsigned path = braid_path_for(link, lane ? lane->index : link->nlanes, now);

	/* Who closed it may know more of that path than we do yet. */
	if (lane && lane->detour && path == lane->path)
		path = (path + 1) % link->npaths;
	if (lane)
		lane->detour = false;
	return dial_start(link, BRAID_HELLO_LANE, lane, path, now);
}

int braid_dial_ask(struct braid_link *link, uint64_t now)
{
	return dial_start(link, BRAID_HELLO_ALIVE, NULL, braid_path_for(link, 0, now), now);
}
