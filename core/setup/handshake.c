/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * handshake.c - handshakes under way in both directions, and the links and lanes they end in.
 *
 * core/setup/conn.c exchanges the messages.  This file decides what they are about: which listen or
 * link a peer's hello names, whether the peer is admitted, and what becomes of the socket when the
 * handshake is over.  Everything here is called with the service's lock held.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/proto/auth.h"
#include "core/setup/bind.h"
#include "core/setup/cross.h"
#include "core/base/flight.h"
#include "core/setup/lane_count.h"
#include "core/setup/recover.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/msg/open.h"
#include "core/setup/service_int.h"
#include "core/transport.h"
#include "core/setup/tries.h"

enum {
	READY_MS = 1000,		/* for a transport's set-up; then the socket is used */
	POLLS = 64,			/* handshakes polled in one round, at most */
	ANSWER_MS = 2000,		/* for a peer that must first stop the old lane's RDMA */
};

static struct braid_list conns;
static unsigned half_open;		/* accepted connections that have not proved themselves */
static uint64_t strangers, dropped;
static struct braid_log_gate gate_strangers, gate_version;

bool braid_handshakes_left(void)
{
	return !braid_list_empty(&conns);
}

/*
 * A socket that came up with bbr goes on pacing, by timers, whatever it is given later; within a
 * host that can cost three quarters of the rate.  So such sockets begin with reno, which every
 * kernel has and which does not pace.
 */
void braid_handshake_unpaced(int fd, char ret[BRAID_CONGESTION_SIZE])
{
	socklen_t len = BRAID_CONGESTION_SIZE - 1;

	memset(ret, 0, BRAID_CONGESTION_SIZE);
	if (braid_param.congestion[0] ||
	    braid_os->getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, ret, &len) ||
	    strncmp(ret, "bbr", 3) ||
	    braid_os->setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4))
		ret[0] = '\0';
}

int braid_handshake_add(struct braid_conn *c, uint32_t events)
{
	int err;

	if (!c->dialler)
		half_open++;
	braid_list_add_tail(&conns, &c->node);
	err = braid_watch(EPOLL_CTL_ADD, c->fd, events, c, BRAID_TAG_CONN);
	if (err)
		braid_handshake_end(c);
	return err;
}

void braid_handshake_end(struct braid_conn *c)
{
	if (!c->dialler)
		half_open--;
	if (c->link && c->link->conn == c)
		c->link->conn = NULL;
	if (c->lane && c->lane->conn == c)
		c->lane->conn = NULL;
	braid_list_del(&c->node);
	if (c->fd >= 0) {
		braid_unwatch(c->fd);
		braid_os->close(c->fd);
	}
	braid_conn_drop(c);
	braid_pool_unpromise(c->mine.window);	/* 0 if a link has taken it over */
	braid_auth_wipe(c, sizeof(*c));
	free(c);
}

void braid_handshakes_close(void)
{
	while (!braid_list_empty(&conns))
		braid_handshake_end(braid_list_entry(conns.next, struct braid_conn, node));
}

/* The service thread frees them later, for it may be handling an event of one of them now. */
static void handshakes_revoke(const struct braid_link *link)
{
	struct braid_conn *c;

	pthread_mutex_lock(&braid_svc.lock);
	braid_list_for(c, &conns, node) {
		if (c->link != link || !c->setup.priv || !c->tr->dma ||
		    c->mine_setup.rkey_epoch == link->rkey_epoch)
			continue;
		braid_conn_revoke(c);
	}
	pthread_mutex_unlock(&braid_svc.lock);
}

void braid_handshakes_init(void)
{
	braid_list_init(&conns);
	braid_comm_hooks.revoked = handshakes_revoke;
}

void braid_handshakes_drop(const struct braid_link *link)
{
	struct braid_conn *c, *tmp;

	braid_list_for_safe(c, tmp, &conns, node) {
		if (c->link == link)
			braid_handshake_end(c);
	}
}

/* --- what a hello is about ----------------------------------------------------------------- */

static bool has_socket(const struct braid_dev *dev)
{
	return braid_transport_find(BRAID_TRANSPORT_TCP) && dev->port[BRAID_TRANSPORT_TCP];
}

void braid_handshake_offer(struct braid_hello *h, const struct braid_dev *met, bool plain)
{
	unsigned n = 0;

	h->lanes_max = (uint8_t)(braid_param.lanes ? braid_param.lanes : braid_param.lanes_max);
	for (unsigned i = 0; braid_transports[i] && n < BRAID_TRANSPORTS_MAX; i++) {
		const struct braid_transport *tr = braid_transports[i];

		if (met->port[tr->id] && !(plain && tr->blob && has_socket(met)))
			h->transports[n++] = tr->id;
	}
}

static void key_of_hello(const struct braid_conn *c, struct braid_link_key *ret)
{
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->process, c->theirs.process, sizeof(ret->process));
	ret->dev = c->dev;
	ret->peer_dev = c->theirs.dev;
	ret->traffic_class = c->theirs.traffic_class;
	ret->self_accepted = !memcmp(ret->process, braid_self.process, sizeof(ret->process));
}

/* Is the hello a recorded one, or of a dial that was given up?  Only a lane's last dial counts. */
static bool hello_is_old(const struct braid_conn *c)
{
	return c->theirs.kind == BRAID_HELLO_LANE && c->theirs.lane < c->link->nlanes &&
	       (int16_t)(c->theirs.epoch - c->link->lane[c->theirs.lane]->dialled) <= 0;
}

/* The handshake of a link that is up at its dialler, whose proof is still on its way; or NULL. */
static struct braid_conn *link_coming(uint64_t id)
{
	struct braid_conn *c;

	braid_list_for(c, &conns, node) {
		if (!c->dialler && c->state == BRAID_CONN_RX_PROOF &&
		    c->theirs.kind == BRAID_HELLO_LINK && c->mine.ident == id)
			return c;
	}
	return NULL;
}

int braid_conn_find(struct braid_conn *c)
{
	struct braid_conn *coming;
	struct braid_link *link;

	c->mine.kind = c->theirs.kind;
	c->mine.status = BRAID_HELLO_OK;
	c->mine.lane = c->theirs.lane;
	c->mine.epoch = c->theirs.epoch;
	c->mine.peer_dev = c->theirs.dev;
	c->mine.traffic_class = c->theirs.traffic_class;
	braid_handshake_offer(&c->mine, c->met, false);
	if (c->theirs.kind == BRAID_HELLO_LINK) {
		if (!braid_listen_token(c->theirs.ident, &c->dev, c->key))
			c->mine.status = BRAID_HELLO_NO_LISTEN;
		else
			braid_paths_tell(c->dev, c->met, &c->mine);
		c->mine.dev = (uint16_t)c->dev->index;
		return 0;
	}
	braid_list_for(link, &braid_svc.links, node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP || link->id != c->theirs.ident ||
		    link->dialler != (c->theirs.kind == BRAID_HELLO_ALIVE))
			continue;
		memcpy(c->key, link->session, sizeof(c->key));
		c->link = link;
		return hello_is_old(c) ? -EACCES : 0;
	}
	coming = link_coming(c->theirs.ident);
	if (coming && c->theirs.lane)
		return -EALREADY;
	if (coming)
		braid_conn_session(coming, c->key);
	else
		c->mine.status = BRAID_HELLO_NO_LINK;
	return 0;
}

/* Fence the lane whose socket `c` replaces, and put its counts into our hello.  0, or -EAGAIN. */
static int lane_close_for(struct braid_conn *c)
{
	struct braid_lane *lane = c->lane;
	int err = braid_lane_shut(lane);

	if (err)
		return err;
	braid_lock_wait(&lane->link->lock);
	c->mine.frames = lane->rx_frames;
	c->mine.first = lane->tx.f_acked;
	braid_unlock(&lane->link->lock);
	return 0;
}

/* TCP has connected for a new link: the time for the peer's answer begins. */
static void give_time(struct braid_conn *c)
{
	c->deadline_ns = braid_os->now_ns() + braid_tries_slice(c->link, c->bound, true);
	if (c->deadline_ns > c->link->dial_until_ns)
		c->deadline_ns = c->link->dial_until_ns;
}

int braid_conn_ready(struct braid_conn *c)
{
	if (!c->lane && c->mine.kind == BRAID_HELLO_LINK)
		give_time(c);
	if (!c->lane)
		return 0;
	if (!braid_recover_wants(c->lane, c->path))
		return -EALREADY;
	return lane_close_for(c);
}

/* Drop earlier dials of a lane that is not up here yet; false: `c` itself is not the last one. */
static bool last_dial(const struct braid_conn *c)
{
	struct braid_conn *k, *tmp;

	braid_list_for_safe(k, tmp, &conns, node) {
		if (k == c || k->dialler || k->link != c->link ||
		    k->theirs.kind != BRAID_HELLO_LANE || k->theirs.lane != c->theirs.lane)
			continue;
		if ((int16_t)(c->theirs.epoch - k->theirs.epoch) <= 0)
			return false;
		braid_handshake_end(k);
	}
	return true;
}

static int admit_lane(struct braid_conn *c)
{
	struct braid_link *link = c->link;

	if (c->lane)			/* called again: the lane is being closed */
		return c->lane->dialled == c->theirs.epoch ? lane_close_for(c) : -EALREADY;
	if (!link) {			/* its first lane was lost before the proof was read */
		braid_handshake_end(link_coming(c->theirs.ident));
		c->mine.status = BRAID_HELLO_NO_LINK;
	} else if (c->theirs.kind == BRAID_HELLO_LANE && !c->tr) {
		c->mine.status = BRAID_HELLO_NO_ROOM;	/* no common transport now; perhaps later */
	} else if (c->theirs.kind == BRAID_HELLO_ALIVE) {
		braid_recover_wanted(link, c->theirs.lane, c->theirs.epoch);
	} else if (c->theirs.lane < link->nlanes) {
		c->lane = link->lane[c->theirs.lane];
		c->lane->dialled = c->theirs.epoch;
		return lane_close_for(c);
	} else if (c->theirs.lane != link->nlanes || !last_dial(c)) {
		c->mine.status = BRAID_HELLO_NO_ROOM;	/* out of turn, or a later dial is here */
	}
	return 0;
}

int braid_conn_admit(struct braid_conn *c)
{
	struct braid_link_key key;
	struct braid_link *link;

	if (c->theirs.kind != BRAID_HELLO_LINK)
		return admit_lane(c);
	key_of_hello(c, &key);
	link = key.self_accepted || !braid_param.share ? NULL : braid_link_find(&key, true);
	if (!c->tr) {
		c->mine.status = BRAID_HELLO_NO_TRANSPORT;
	} else if (link && braid_cross_refuse(link, braid_os->now_ns())) {
		c->mine.status = BRAID_HELLO_CROSSED;
	} else {
		braid_os->random(&c->mine.ident, sizeof(c->mine.ident));
		c->mine.window = (uint32_t)braid_pool_promise((size_t)braid_param.window);
	}
	return 0;
}

void braid_conn_setup(struct braid_conn *c)
{
	const struct braid_link *link = c->link;

	c->setup.dev = c->met;
	c->setup.lane = c->mine.lane;
	c->setup.traffic_class = c->mine.traffic_class;
	c->setup.dialler = c->dialler;
	c->setup.to = (const struct sockaddr *)&c->to;
	c->mine_setup.rkey_epoch = link ? link->rkey_epoch : 0;
	for (unsigned i = 0; link && i < link->key.dev->nmembers; i++) {
		if (link->key.dev->member[i] == c->met)
			c->mine_setup.member = (uint8_t)i;
	}
	/* Decline the transport that has just failed on this lane. */
	c->mine_setup.err = c->lane && c->lane->carrier_failed && !c->dialler ? EIO : 0;
	if (c->lane)
		c->lane->carrier_failed = false;
}

/* --- what becomes of its socket ------------------------------------------------------------ */

/* The lane owns the socket now.  If the link was watched, the next tick watches this socket too. */
static void taken(struct braid_lane *lane, struct braid_conn *c)
{
	c->fd = -1;
	c->setup.priv = NULL;
	lane->path = (uint8_t)c->path;
	atomic_store(&lane->link->watched, false);
}

static struct braid_carrier carrier(const struct braid_conn *c)
{
	return (struct braid_carrier){
		.tr = c->tr, .fd = c->fd, .priv = c->setup.priv,
		.epoch = c->dialler ? c->mine.epoch : c->theirs.epoch,
		.member = c->mine_setup.member, .peer_member = c->their_setup.member,
		.rkey_epoch = c->mine_setup.rkey_epoch,
		.peer_rkey_epoch = c->their_setup.rkey_epoch,
	};
}

/* Text for the error of a set-up. */
static const char *setup_text(int err)
{
	switch (err) {
	case EPROTOTYPE:
		return "the two ports are of different kinds: InfiniBand, RoCE or iWARP";
	case EADDRNOTAVAIL:
		return "no GID of a type that the other has too: is NCCL_IB_GID_INDEX right "
		       "there, or BRAID_IB_GID?";
	case ENOPROTOOPT:
		return "what came up is plain TCP: that end's log says why";
	case ENETDOWN:
		return "its port is down, or has just failed";
	case EBUSY:
		return "its NIC does not answer commands";
	default:
		return strerror(err);
	}
}

static int setup_err(const struct braid_conn *c)
{
	return c->mine_setup.err ? c->mine_setup.err : c->their_setup.err;
}

void braid_handshake_refused(const struct braid_conn *c, char *ret, size_t len)
{
	const char *call = c->mine_setup.err ? c->setup.failed : NULL;

	*ret = '\0';
	if (c->refused)
		snprintf(ret, len, "%s can't have %s (%s%s%s)",
			 c->mine_setup.err ? "this end" : "the peer", c->refused->name,
			 call ? call : "", call ? ": " : "",
			 c->setup.why[0] ? c->setup.why : setup_text(setup_err(c)));
}

/* Don't try again: ports of different kinds stay so, and a NIC that hangs delays every new lane. */
static bool is_final(const struct braid_conn *c, int err)
{
	return err == EPROTOTYPE || err == EALREADY ||
	       (err == ETIMEDOUT && c->refused && c->refused->rest_s);
}

/* Note the transport agreed on.  A dialler that was refused the better one tries it again later. */
static void agreed_on(struct braid_link *link, const struct braid_conn *c, unsigned index)
{
	uint64_t now = braid_os->now_ns();
	int err = setup_err(c);
	bool final = is_final(c, err);
	const struct braid_transport *best = link->key.dev->best;
	char why[320];

	link->better |= c->tr->blob || (err && !final);
	if (link->dialler && (c->tr->blob || err))
		link->path[c->path].better = !final;
	if (err && link->dialler)	/* EIO: that transport had come up before, and failed */
		braid_path_plain(link, c->path, err != ENETDOWN,
				 c->refused && err != EIO ? c->refused->rest_s : 0, now);
	/* No WARN: a peer that closes the lane once more while it returns refuses as well. */
	if ((c->lane && err == ECONNREFUSED) || err == EALREADY)
		return;
	braid_handshake_refused(c, why, sizeof(why));
	if (err && !link->told_plain)
		braid_warn("device %s, peer %s: %s carries lane %u: %s%s [lesser-transport]",
			   link->key.dev->net.name, link->peer, c->tr->name, index, why,
			   final ? "" : "; it is tried again now and then");
	else if (!err && best && c->tr != best && !link->told_plain && !link->better)
		braid_warn("device %s, peer %s: %s carries this link: the peer does not offer %s; "
			   "braid info on its host says why "
			   "[peer-lacks-transport]", link->key.dev->net.name, link->peer,
			   c->tr->name, best->name);
	else
		return;
	link->told_plain = true;
}

/* The peer has proved itself in `c`: its socket becomes a lane. */
static int link_take_conn(struct braid_link *link, struct braid_conn *c, unsigned index)
{
	struct braid_carrier carried = carrier(c);
	int err;

	braid_unwatch(c->fd);
	err = braid_link_add_lane(link, index, &carried);
	if (err == -EALREADY)
		return err;
	if (err)
		return braid_error(err, "device %s, peer %s: can't open lane %u: %s [no-lane]",
				   link->key.dev->net.name, link->peer, index, strerror(-err));
	taken(link->lane[index], c);
	agreed_on(link, c, index);
	return 0;
}

/* The same for a lane that exists and has lost its socket. */
static int lane_take_conn(struct braid_lane *lane, struct braid_conn *c)
{
	struct braid_link *link = lane->link;
	struct braid_carrier carried = carrier(c);
	int err;

	if (!c->dialler && c->theirs.epoch != lane->dialled)
		return -EALREADY;		/* a later dial has come in between */
	braid_unwatch(c->fd);
	err = braid_lane_resume(lane, &carried, c->theirs.frames, c->theirs.first);
	if (err == -EALREADY)
		return err;
	if (err) {
		braid_link_fail(link, -EREMOTEIO, "lane %u can't be taken up again: %s "
				"[broken-link]",
				lane->index,
				err == -EPROTO ? "the two ends do not agree on what went over it" :
						 strerror(-err));
		return err;
	}
	taken(lane, c);
	agreed_on(link, c, lane->index);
	braid_info("device %s, peer %s: lane %u is back (opened %u times)",
		   link->key.dev->net.name, link->peer, lane->index,
		   atomic_load(&lane->back) + 1);
	braid_recover_resumed(lane, braid_os->now_ns());
	braid_link_move(link);
	return 0;
}

/* Find the paths to the peer.  The accepting end asks for a dial by them if all lanes are lost. */
static void find_paths(struct braid_link *link, const struct braid_conn *c)
{
	struct braid_addr at = c->from;
	struct sockaddr_storage sa;

	at.port = c->theirs.port;
	if (c->dialler) {
		braid_path_dialled(link, c, 0, 0);
		braid_path_sockaddr(&link->path[c->path], &sa);
		at = braid_addr_of((struct sockaddr *)&sa);
	}
	braid_paths_all(link, &at, &c->theirs);
}

/* The first lane makes the link.  A link without memory fails, and its connects get the error. */
static int link_up(struct braid_link *link, struct braid_conn *c)
{
	int err;

	braid_conn_session(c, link->session);
	braid_lock_wait(&link->lock);	/* core/watch/view.c may be reading it */
	link->dialler = c->dialler;
	snprintf(link->peer, sizeof(link->peer), "%s (pid %u, %s)", c->theirs.host, c->theirs.pid,
		 c->addr);
	link->peer_pid = !strcmp(c->theirs.host, braid_self.host) ? c->theirs.pid : 0;
	braid_unlock(&link->lock);
	link->id = c->dialler ? c->theirs.ident : c->mine.ident;
	link->next_comm = c->dialler ? 0 : 1;
	link->tx_window = c->theirs.window;
	link->lanes_max = c->theirs.lanes_max < c->mine.lanes_max ? c->theirs.lanes_max :
								    c->mine.lanes_max;
	link->rx_window = c->mine.window;
	c->mine.window = 0;
	find_paths(link, c);
	err = link_take_conn(link, c, 0);
	if (err)
		return err;
	err = braid_link_attach(link);
	if (err) {
		braid_link_fail(link, err, "can't bring the link up: %s [no-link]", strerror(-err));
		return err;
	}
	braid_auth_wipe(link->target.token, BRAID_KEY_SIZE);
	atomic_store(&link->state, BRAID_LINK_UP);
	braid_lane_count_start(link);
	braid_recover_start(link, braid_os->now_ns());
	braid_event(BRAID_EVENT_LINK_UP, link->number, BRAID_FLIGHT_NONE, link->lanes_max, 0);
	braid_info("device %s: link to %s is up, %s", link->key.dev->net.name, link->peer,
		   link->dialler ? "dialled" : "accepted");
	if (link->dialler)
		braid_tries_tell(link);
	return 0;
}

/* The dialler has proved itself: make the link, or give the socket to a link that waits for it. */
static int accepted(struct braid_conn *c)
{
	struct braid_link_key key;
	struct braid_link *link;
	int err;

	if (c->theirs.kind == BRAID_HELLO_ALIVE)
		return 0;
	braid_bind_accepted(c);
	if (c->theirs.kind == BRAID_HELLO_LANE)
		return c->lane ? lane_take_conn(c->lane, c) :
				 link_take_conn(c->link, c, c->theirs.lane);
	key_of_hello(c, &key);
	link = key.self_accepted ? NULL : braid_link_find(&key, true);
	if (link && !braid_param.share && atomic_load(&link->state) == BRAID_LINK_DIALING)
		link = NULL;
	if (link) {
		if (link->conn)
			braid_handshake_end(link->conn);
		return link_up(link, c);
	}
	link = braid_link_new(&key);
	if (!link)
		return braid_no_memory("a link");
	braid_link_number(link);
	err = link_up(link, c);
	if (err) {
		braid_link_free(link);
		return err;
	}
	braid_link_list(link);
	return 0;
}

/* Report the end of a dial to the code that started it. */
static void dial_over(struct braid_conn *c, int err, uint64_t now)
{
	if (c->lane) {
		braid_recover_dialled(c->lane, c, err, now);
	} else if (c->mine.kind == BRAID_HELLO_LANE) {
		if (err != -EALREADY)
			braid_path_dialled(c->link, c, err, now);
		braid_lane_count_dialled(c->link, err, now);
	} else if (c->mine.kind == BRAID_HELLO_ALIVE) {
		braid_recover_asked(c->link, c, err, now);
	} else if (err) {
		braid_dial_failed(c->link, c, err, now);
	}
}

/* When to give a set-up up.  A new link that can't use the socket waits until its deadline. */
static uint64_t ready_by(const struct braid_conn *c, uint64_t now, uint64_t timeout)
{
	if (c->mine.kind == BRAID_HELLO_LINK && !braid_conn_socket_will_do(c))
		return UINT64_MAX;
	return now + (c->tr->slow ? timeout / 2 : READY_MS * MS);
}

/* Does the handshake wait for this end's own part of the set-up? */
static bool waits(const struct braid_conn *c)
{
	return c->making || c->state == BRAID_CONN_WAIT_READY;
}

void braid_handshake_event(struct braid_conn *c, uint64_t now)
{
	struct braid_link *link = c->link;
	uint64_t timeout = (uint64_t)braid_param.handshake_timeout * SEC;
	uint32_t events = 0;
	int err = braid_conn_step(c, &events);

	if (err == -EAGAIN) {
		/* The peer has to stop a queue pair first, which may take long. */
		if (c->dialler && c->lane && link->better && !c->answered &&
		    c->state > BRAID_CONN_CONNECT) {
			c->answered = true;
			c->deadline_ns = now + ANSWER_MS * MS;
		}
		if (!waits(c) && c->ready_by_ns) {
			c->ready_by_ns = 0;	/* it is the peer's turn */
			c->patient = false;
		}
		if (c->state >= BRAID_CONN_ASK_SETUP && c->tr && c->tr->blob && !c->patient) {
			c->patient = true;
			c->deadline_ns = now + timeout;
		}
		if (waits(c) && !c->ready_by_ns)
			c->ready_by_ns = ready_by(c, now, timeout);
		braid_watch(EPOLL_CTL_MOD, c->fd, events, c, BRAID_TAG_CONN);
		return;
	}
	if (!err && !c->dialler) {
		accepted(c);
		braid_handshake_end(c);
		return;
	}
	if (!err && c->lane)
		err = lane_take_conn(c->lane, c);
	else if (!err && c->mine.kind == BRAID_HELLO_LANE)
		err = link_take_conn(link, c, c->mine.lane);
	else if (!err && c->mine.kind == BRAID_HELLO_LINK)
		err = link_up(link, c);
	if (c->dialler)
		dial_over(c, err, now);
	if (!c->dialler && (err == -EPROTO || err == -EACCES))
		strangers++;
	if (!c->dialler && err == -EPROTONOSUPPORT && braid_log_gate_open(&gate_version, now))
		braid_warn("device %s: %s speaks Braid's wire versions %u to %u, this library %u "
			   "to %u: "
			   "refused. Install the same Braid release on both hosts [wire-version]",
			   c->dev->net.name, c->addr, c->theirs.least, c->theirs.most,
			   BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	braid_handshake_end(c);
}

/* --- accepting ----------------------------------------------------------------------------- */

void braid_addr_text(const struct sockaddr_storage *sa, char *text, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(text, len, "%s:%u", ip, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		snprintf(text, len, "[%s]:%u", ip, ntohs(in6->sin6_port));
	}
}

/* Prefers one that has not shown the key. */
bool braid_handshake_make_room(void)
{
	struct braid_conn *c, *victim = NULL;

	braid_list_for(c, &conns, node) {
		if (c->dialler)
			continue;
		if (!victim || !c->known)
			victim = c;
		if (!c->known)
			break;
	}
	if (!victim)
		return false;
	dropped++;
	braid_handshake_end(victim);
	return true;
}

int braid_handshake_accept(int fd, struct braid_dev *dev, const struct sockaddr_storage *from,
			   uint64_t now)
{
	struct braid_conn *c = calloc(1, sizeof(*c));
	int err, one = 1;

	if (!c) {
		braid_os->close(fd);
		return -ENOMEM;
	}
	if (half_open >= (unsigned)braid_param.half_open)
		braid_handshake_make_room();
	braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	braid_conn_init(c, fd, false);
	c->dev = c->met = dev;
	c->to = *from;
	c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
	braid_addr_text(from, c->addr, sizeof(c->addr));
	c->from = braid_addr_of((const struct sockaddr *)from);
	err = braid_handshake_add(c, EPOLLIN);
	if (!err)
		braid_handshake_event(c, now);
	return err;
}

/* --- as time goes by ----------------------------------------------------------------------- */

void braid_handshakes_expire(uint64_t now)
{
	struct braid_conn *c, *tmp;

	braid_list_for_safe(c, tmp, &conns, node) {
		if (now < c->deadline_ns)
			continue;
		if (c->dialler)
			dial_over(c, -ETIMEDOUT, now);
		else
			dropped++;
		braid_handshake_end(c);
	}
}

/* The next handshake that waits for something other than its socket, not polled in this round. */
static struct braid_conn *next_to_poll(uint64_t round)
{
	struct braid_conn *c;

	braid_list_for(c, &conns, node) {
		if (c->polled != round && braid_conn_polls(c))
			return c;
	}
	return NULL;
}

bool braid_handshakes_poll(uint64_t now)
{
	static uint64_t round;
	struct braid_conn *c;
	bool any = false;

	round++;
	/* Search anew each time: one handshake may end others. */
	for (unsigned i = 0; i < POLLS && (c = next_to_poll(round)); i++) {
		any = true;
		c->polled = round;
		braid_list_del(&c->node);
		braid_list_add_tail(&conns, &c->node);
		if (waits(c) && c->ready_by_ns && now >= c->ready_by_ns)
			c->mine_setup.err = ETIMEDOUT;
		braid_handshake_event(c, now);
	}
	return any;
}

void braid_handshakes_tell(uint64_t now)
{
	if (strangers + dropped == 0 || !braid_log_gate_open(&gate_strangers, now))
		return;
	braid_info("refused %llu connections of strangers, dropped %llu that proved nothing in "
		   "time",
		   (unsigned long long)strangers, (unsigned long long)dropped);
	strangers = dropped = 0;
}
