/* SPDX-License-Identifier: BSD-3-Clause */
/* dial.c - see dial.h. */
#include "core/setup/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/base/ports.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/bind.h"
#include "core/setup/conn.h"
#include "core/setup/cross.h"
#include "core/setup/handshake.h"
#include "core/setup/join.h"
#include "core/setup/lane_count.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/moved.h"
#include "core/setup/offer.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/reverse.h"
#include "core/setup/slow.h"
#include "core/setup/tries.h"
#include "core/setup/unpaced.h"
#include "core/setup/why.h"
#include "topo/ips.h"

enum {
	ATTEMPT_MS = 500,		/* for one dial of a lane that had been up */
	REFUSED_MS = 500,		/* after this a refusal that may be a firewall's is final */
	REFUSED_BOTH_MS = 3000,		/* the same where the peer may dial us */
};

static struct braid_log_gate gate_fds, gate_ports;

struct target {				/* of one dial */
	const struct braid_way *way;
	struct sockaddr_storage from, to;
	socklen_t len;
	bool small_segments;
};

static void set_options(int fd, struct target *t)
{
	char was[BRAID_CONGESTION_SIZE];
	int one = 1, segment = BRAID_SMALL_SEGMENT;

	if (t->from.ss_family == AF_INET6)
		braid_ports_label(fd);
	if (braid_netdev_same_ip((struct sockaddr *)&t->to, (struct sockaddr *)&t->from))
		braid_socket_unpaced(fd, was);
	if (t->from.ss_family == AF_INET && !braid_ports_given())
		braid_os->setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (t->small_segments)
		braid_os->setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
}

/*
 * Start to connect a socket from that port; 0: the kernel chooses.  A descriptor or -errno.  wish:
 * the kernel is to choose that one.
 */
static int dial_from(struct target *t, uint16_t port, uint16_t wish, bool *ret_bound)
{
	int fd = braid_os->socket(t->to.ss_family, IPPROTO_TCP), err = 0;

	if (fd < 0)
		return -errno;
	set_options(fd, t);
	*ret_bound = braid_bind_dialler(fd, t->way);
	if (wish && !braid_ports_ask(fd, wish))
		err = -EADDRINUSE;
	if (!err)
		err = braid_ports_bind(fd, (struct sockaddr *)&t->from, t->len, port);
	if (!err) {
		if (!braid_os->connect(fd, (struct sockaddr *)&t->to, t->len) ||
		    errno == EINPROGRESS)
			return fd;
		/*
		 * bind() has accepted the address: it is local ports that have run out, or this
		 * port that has a connection to the peer.
		 */
		err = errno == EADDRNOTAVAIL ? -EADDRINUSE : -errno;
	}
	braid_os->close(fd);
	return err;
}

/* A socket that connects to its own address and port would meet itself. */
static bool is_itself(const struct target *t, uint16_t port)
{
	struct sockaddr_storage from = t->from;

	braid_ports_set((struct sockaddr *)&from, port);
	return port && !memcmp(&from, &t->to, t->len);
}

/*
 * Start to connect a socket by the path's next way: a descriptor or -errno.  Small segments apply
 * in both directions, since our SYN carries their size.
 */
static int dial_socket(const struct braid_path *path, bool small_segments, uint16_t wish,
		       bool *ret_bound)
{
	struct target t = { .way = &path->ways.way[path->ways.now],
			    .small_segments = small_segments };
	struct braid_ports walk;
	uint16_t port;
	int fd;

	t.len = braid_path_sockaddr(path, &t.to);
	if (!t.len)
		return -EAFNOSUPPORT;
	memcpy(&t.from, &t.way->pair.from.addr, sizeof(t.way->pair.from.addr));
	if (is_itself(&t, wish))
		fd = -EADDRINUSE;
	else if (braid_ports_given())
		fd = dial_from(&t, wish, 0, ret_bound);
	else
		fd = dial_from(&t, 0, wish, ret_bound);
	braid_ports_begin(&walk);
	while (fd == -EADDRINUSE && braid_ports_next(&walk, &port)) {
		if (!is_itself(&t, port))
			fd = dial_from(&t, port, 0, ret_bound);
	}
	return fd;
}

/*
 * The local port to ask for.  A lane's first dial takes one next to those of the link's other
 * lanes; a later one takes a random port, so that switches may choose another path.
 */
static uint16_t wish(struct braid_link *link, const struct braid_lane *lane)
{
	unsigned index = lane ? lane->index : link->nlanes;
	uint16_t base = link->dial.base;

	if (!base || lane)
		braid_os->random(&base, sizeof(base));
	if (!lane)
		link->dial.base = base;
	return braid_ports_wish(base, index);
}

static const struct braid_conn_owner dialling;

/* Fill in the hello, except the counts of a lane (braid_join_close_lane()). */
static void fill_hello(struct braid_conn *c, enum braid_hello_kind kind, struct braid_lane *lane,
		       uint64_t now)
{
	struct braid_link *link = c->link;

	c->mine.kind = (uint8_t)kind;
	c->mine.dev = (uint16_t)link->key.dev->index;
	c->mine.peer_dev = link->key.peer_dev;
	c->mine.traffic_class = link->key.traffic_class;
	braid_paths_announce(c->dev, c->met, &c->mine);
	braid_offer_fill(&c->mine, c->met, now < link->setup.path[c->path].plain_until_ns);
	if (kind == BRAID_HELLO_LINK) {
		c->mine.ident = link->dial.target.listen_id;
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
		memcpy(c->key, link->dial.token, BRAID_KEY_SIZE);
		c->must_be = braid_version_agreed(BRAID_WIRE_MOST, link->dial.target.most);
	} else {
		c->mine.ident = link->setup.id;
		if (kind == BRAID_HELLO_ALIVE) {
			c->mine.lane = braid_link_home(link)->index;
			c->mine.epoch = braid_link_home(link)->recover.dialled;
			/* Only to be heard of: by the number before, no lane is reported lost. */
			if (braid_lane_up(braid_link_home(link)) && link->recover.announce_ns)
				c->mine.epoch--;
		} else {
			c->mine.lane = lane ? lane->index : (uint8_t)link->nlanes;
			/* A new number: the peer may have admitted the dial that failed here. */
			c->mine.epoch = lane ? ++lane->recover.dialled : link->lane_count.dials++;
		}
		memcpy(c->key, link->setup.session, BRAID_KEY_SIZE);
		c->must_be = link->setup.version;
	}
}

/* The handshake on a socket, which this call owns even if it fails; or NULL. */
static struct braid_conn *conn_new(int fd, int *ret_err)
{
	struct braid_conn *c = calloc(1, sizeof(*c));

	*ret_err = c ? braid_conn_init(c, fd, true, &dialling) : -ENOMEM;
	if (!*ret_err)
		return c;
	braid_os->close(fd);
	free(c);
	return NULL;
}

/* Begin a handshake on a socket that connects, or is connected. */
static int dial_on(int fd, bool bound, struct braid_link *link, enum braid_hello_kind kind,
		   struct braid_lane *lane, unsigned path, bool reversed, uint64_t now)
{
	int err;
	struct braid_conn *c = conn_new(fd, &err);

	if (!c)
		return err;
	c->link = link;
	c->path = path;
	c->way = reversed ? BRAID_WAYS_MAX : link->setup.path[path].ways.now;
	c->bound = bound;
	c->reversed = reversed;
	c->began_ns = now;
	c->dev = link->key.dev;
	c->met = link->setup.path[path].dev;
	braid_path_member(&link->setup.path[path], &c->to);
	c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
	if (kind == BRAID_HELLO_LINK)
		c->deadline_ns = now + braid_tries_slice(link, bound, false);
	if (kind == BRAID_HELLO_LINK && c->deadline_ns > link->dial.until_ns)
		c->deadline_ns = link->dial.until_ns;
	if (kind == BRAID_HELLO_ALIVE || lane)
		c->deadline_ns = now + ATTEMPT_MS * MS;
	braid_path_text(link, path, c->addr, sizeof(c->addr));
	fill_hello(c, kind, lane, now);
	c->lane = lane;
	if (lane)
		lane->recover.conn = c;
	else
		link->dial.conn = c;
	return braid_handshake_add(c, EPOLLOUT);
}

static int dial_start(struct braid_link *link, enum braid_hello_kind kind, struct braid_lane *lane,
		      unsigned path, uint64_t now)
{
	/* A request's connection may come to carry home (core/setup/reverse.h). */
	const struct braid_lane *was = kind == BRAID_HELLO_ALIVE ? braid_link_home(link) : lane;
	bool bound = false;
	int fd = dial_socket(&link->setup.path[path], was && braid_redial_again(was, now),
			     wish(link, lane), &bound);

	if (fd == -EADDRNOTAVAIL || fd == -ENODEV)
		braid_moved_perhaps(now);
	return fd < 0 ? fd : dial_on(fd, bound, link, kind, lane, path, false, now);
}

/* --- a new link ---------------------------------------------------------------------------- */

/* Is the peer out of descriptors?  It may have some a moment later. */
static bool peer_is_short(const struct braid_conn *c)
{
	return c && (c->their_setup.err == EMFILE || c->their_setup.err == ENFILE);
}

/* Is it no use to try again? */
static bool is_final(const struct braid_conn *c, enum braid_dial_stage stage, int err)
{
	switch (-err) {
	case ENOMEM:
		return true;
	case EAFNOSUPPORT:
		return stage == BRAID_DIAL_HERE;
	case EPROTONOSUPPORT:
	case EPROTO:
	case ENOKEY:
	case EACCES:			/* at other stages: a route's or firewall's, may pass */
		return stage == BRAID_DIAL_PEER;
	case EREMOTEIO:
		return !peer_is_short(c);
	default:
		return false;
	}
}

/* May the answer be a firewall's, or another host's to which a NAT maps the port? */
static bool by_another(const struct braid_conn *c, enum braid_dial_stage stage, int err)
{
	return err == -ECONNREFUSED || (stage == BRAID_DIAL_PEER && c && !c->known &&
					(err == -EPROTO || err == -EACCES ||
					 err == -EKEYREJECTED));
}

/* A refusal that may be a firewall's is final after a while, unless the peer reaches us. */
static bool is_final_now(struct braid_link *link, const struct braid_conn *c,
			 enum braid_dial_stage stage, int err, uint64_t now)
{
	if (!by_another(c, stage, err))
		return is_final(c, stage, err);
	if (!link->dial.refused_until_ns)
		link->dial.refused_until_ns = now +
			(braid_param.share && braid_listens_left() ? REFUSED_BOTH_MS :
								     REFUSED_MS) * MS;
	return now >= link->dial.refused_until_ns && !braid_cross_is_recent(link, now);
}

/* The dial of a new link failed: try again, wait for the peer's dial, or give up. */
static void dial_failed(struct braid_link *link, struct braid_conn *c, int err, uint64_t now)
{
	bool crossed = err == -EREMOTEIO && c && c->theirs.status == BRAID_HELLO_CROSSED;
	enum braid_dial_stage stage = braid_dial_stage(c, err);
	bool final, proven;
	char why[400];
	int state = atomic_load(&link->state);

	if (state == BRAID_LINK_UP || state == BRAID_LINK_DEAD)
		return;
	if (crossed) {
		braid_cross_refused(link, now);
		return;
	}
	/* An attempt that the caller's deadline cut short explains less than the one before it. */
	if (err == -ETIMEDOUT && link->dial.err && now >= link->dial.until_ns) {
		err = link->dial.err;
		stage = link->dial.stage;
	}
	link->dial.err = err;
	link->dial.stage = (uint8_t)stage;
	final = is_final_now(link, c, stage, err, now);
	/* The peer itself has answered, so it would answer the same at its other addresses. */
	proven = final && c && c->known;
	if (proven || now >= link->dial.until_ns ||
	    !braid_tries_go_on(link, c, err, final, now)) {
		braid_tries_log(link);
		braid_why_dial(link, c, stage, err);
		return;
	}
	if ((err == -EMFILE || err == -ENFILE) && braid_log_gate_open(&gate_fds, now))
		braid_warn("out of file descriptors while connecting; trying on. Raise ulimit -n "
			   "[no-descriptors]");
	if (err == -EADDRINUSE && braid_ports_given() && braid_log_gate_open(&gate_ports, now)) {
		braid_ports_why(why, sizeof(why));
		braid_warn("device %s, peer %s: can't connect yet, trying on: %s",
			   link->key.dev->net.name, link->peer, why);
	}
}

void braid_dial_link(struct braid_link *link, uint64_t now)
{
	int err;

	braid_svc_assert_locked();
	atomic_store(&link->state, BRAID_LINK_DIALING);
	link->dial.at_ns = 0;
	if (!link->setup.path[0].dev)
		braid_path_first(link, &link->dial.target);
	err = dial_start(link, BRAID_HELLO_LINK, NULL, 0, now);
	if (err)
		dial_failed(link, NULL, err, now);
}

void braid_dial_at_once(struct braid_link *link)
{
	if (!braid_ports_given())	/* else there may be many to try */
		braid_dial_link(link, braid_os->now_ns());
	braid_svc_wake();
}

void braid_dial_help(struct braid_link *link)
{
	braid_svc_assert_locked();
	if (atomic_load(&link->state) == BRAID_LINK_DIALING && link->dial.conn)
		braid_handshake_help(link->dial.conn, braid_os->now_ns());
}

int braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now)
{
	unsigned path = braid_path_for(link, lane ? lane->index : link->nlanes, now);

	braid_svc_assert_locked();
	/* The peer closed this lane: it may know of a fault of the path that we don't know yet. */
	if (lane && braid_lane_avoid_path(lane) && path == lane->recover.path)
		path = (path + 1) % link->npaths;
	return dial_start(link, BRAID_HELLO_LANE, lane, path, now);
}

int braid_dial_reversed(struct braid_link *link, struct braid_lane *lane, unsigned path, int fd,
			uint64_t now)
{
	braid_svc_assert_locked();
	return dial_on(fd, false, link, BRAID_HELLO_LANE, lane, path, true, now);
}

int braid_dial_request(struct braid_link *link, unsigned lane, uint64_t now)
{
	braid_svc_assert_locked();
	return dial_start(link, BRAID_HELLO_ALIVE, NULL, braid_path_for(link, lane, now), now);
}

/* --- the handshakes ------------------------------------------------------------------------ */

/* TCP has connected for a new link: the time for the peer's answer begins. */
static void give_time(struct braid_conn *c)
{
	c->deadline_ns = braid_os->now_ns() + braid_tries_slice(c->link, c->bound, true);
	if (c->deadline_ns > c->link->dial.until_ns)
		c->deadline_ns = c->link->dial.until_ns;
}

static int dial_ready(struct braid_conn *c)
{
	if (!c->lane && c->mine.kind == BRAID_HELLO_LINK)
		give_time(c);
	if (!c->lane)
		return 0;
	if (!braid_redial_is_needed(c->lane, c->path))
		return -EALREADY;
	if (braid_lane_up(c->lane) && braid_lane_is_slow(c->lane) && !c->reversed &&
	    braid_slow_refuses(c->lane, braid_since(c->began_ns, braid_os->now_ns()) / MS))
		return -EBUSY;
	return braid_join_close_lane(c);
}

/* The peer says how often it found that data of this lane was changed. */
static int dial_answered(struct braid_conn *c)
{
	struct braid_lane *lane = c->lane;

	if (!lane || lane->recover.peer_corrupt == c->theirs.corrupt)
		return 0;
	lane->recover.peer_corrupt = c->theirs.corrupt;
	return braid_redial_corrupt(lane, braid_os->now_ns()) ? -EALREADY : 0;
}

/* Report the end of a dial to the code that started it. */
static void report_end(struct braid_conn *c, int err, uint64_t now)
{
	if (err != -EALREADY && c->mine.kind == BRAID_HELLO_LANE)
		braid_reverse_dialled(c, err);
	if (c->lane) {
		braid_redial_ended(c->lane, c, err, now);
	} else if (c->mine.kind == BRAID_HELLO_LANE) {
		if (err != -EALREADY)
			braid_path_dialled(c->link, c, err, now);
		braid_lane_count_dialled(c->link, err, now);
	} else if (c->mine.kind == BRAID_HELLO_ALIVE) {
		braid_redial_requested(c->link, c, err, now);
	} else if (err) {
		dial_failed(c->link, c, err, now);
	}
}

static void dial_done(struct braid_conn *c, int err, uint64_t now)
{
	if (!err && c->lane)
		err = braid_join_lane(c->lane, c);
	else if (!err && c->mine.kind == BRAID_HELLO_LANE)
		err = braid_join_new_lane(c->link, c, c->mine.lane);
	else if (!err && c->mine.kind == BRAID_HELLO_LINK)
		err = braid_join_link(c->link, c);
	report_end(c, err, now);
	if (!err && c->mine.kind == BRAID_HELLO_ALIVE)
		braid_reverse_offer(c, now);
}

static const struct braid_conn_owner dialling = {
	.ready = dial_ready, .answered = dial_answered, .setup = braid_join_setup,
	.done = dial_done,
};
