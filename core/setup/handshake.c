/* SPDX-License-Identifier: BSD-3-Clause */
/* handshake.c - see handshake.h. */
#include "core/setup/handshake.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/open.h"
#include "core/proto/auth.h"
#include "core/setup/addr.h"
#include "core/setup/due.h"
#include "core/setup/events.h"
#include "core/setup/links.h"
#include "core/transport.h"

enum {
	READY_MS = 1000,		/* for a transport's set-up; then the socket is used */
	POLLS = 64,			/* handshakes polled in one round, at most */
	HELPS = 8,			/* looked at by one call of accept() */
	YOUNG_MS = 250,			/* a younger stranger is not dropped to make room */
	KNOWN_MS = 2000,		/* the same if its hello, perhaps a replay, fits the key */
	FD_SHARE = 8,			/* strangers hold at most 1/8 of the descriptors */
	ANSWER_MS = 2000,		/* for a peer that must first stop the old lane's RDMA */
};

struct braid_list braid_handshakes;

static struct braid_list ended = { &ended, &ended };
static atomic_uint half_open;		/* accepted connections that have not proved themselves */
static unsigned fd_share;		/* what the limit of descriptors allows of them */
static uint64_t strangers, dropped;
static struct braid_log_gate gate_strangers;

bool braid_handshakes_left(void)
{
	braid_svc_assert_locked();
	return !braid_list_empty(&braid_handshakes);
}

int braid_handshake_add(struct braid_conn *c, uint32_t events)
{
	int err;

	braid_svc_assert_locked();
	if (!c->dialler)
		half_open++;
	braid_list_add_tail(&braid_handshakes, &c->node);
	c->events = events;
	err = braid_watch(EPOLL_CTL_ADD, c->fd, events, c, BRAID_TAG_CONN);
	if (err)
		braid_handshake_end(c);
	return err;
}

void braid_handshake_end(struct braid_conn *c)
{
	braid_svc_assert_locked();
	if (!c->dialler)
		half_open--;
	if (c->link && c->link->dial.conn == c)
		c->link->dial.conn = NULL;
	if (c->link)
		braid_due_now(c->link);
	if (c->lane && c->lane->recover.conn == c)
		c->lane->recover.conn = NULL;
	braid_list_del(&c->node);
	if (c->fd >= 0) {
		braid_unwatch(c->fd);
		braid_os->close(c->fd);
	}
	braid_conn_drop(c);
	braid_pool_unpromise(c->mine.window);	/* 0 if a link has taken the promise over */
	braid_conn_forget_keys(c);
	braid_auth_wipe(c, sizeof(*c));		/* c->owner, too: it has ended */
	braid_list_add_tail(&ended, &c->node);
}

void braid_handshakes_free(void)
{
	struct braid_conn *c, *tmp;

	braid_svc_assert_locked();
	braid_list_for_safe(c, tmp, &ended, node)
		free(c);
	braid_list_init(&ended);
}

void braid_handshakes_close(void)
{
	braid_svc_assert_locked();
	while (!braid_list_empty(&braid_handshakes))
		braid_handshake_end(braid_list_entry(braid_handshakes.next, struct braid_conn,
						     node));
}

/* The service thread frees revoked handshakes later, since it may be handling one of them now. */
static void handshakes_revoke(const struct braid_link *link)
{
	struct braid_conn *c;

	braid_svc_lock();
	braid_list_for(c, &braid_handshakes, node) {
		if (c->link != link || !c->setup.priv || !c->tr->dma ||
		    c->mine_setup.rkey_epoch == braid_link_rkey_epoch(link))
			continue;
		braid_conn_revoke(c);
	}
	braid_svc_unlock();
}

/* NCCL and its programs need descriptors of the same limit. */
static unsigned share_of_fds(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur / FD_SHARE > UINT32_MAX)
		return UINT32_MAX;
	return lim.rlim_cur < FD_SHARE ? 1 : (unsigned)(lim.rlim_cur / FD_SHARE);
}

void braid_handshakes_init(void)
{
	braid_svc_assert_locked();
	braid_list_init(&braid_handshakes);
	fd_share = share_of_fds();
	braid_comm_hooks.revoked = handshakes_revoke;
}

void braid_handshakes_drop(const struct braid_link *link)
{
	struct braid_conn *c, *tmp;

	braid_svc_assert_locked();
	braid_list_for_safe(c, tmp, &braid_handshakes, node) {
		if (c->link == link)
			braid_handshake_end(c);
	}
}

/* --- moving handshakes on ------------------------------------------------------------------ */

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

/* Set the time limits of a handshake, which waits for its socket or for a transport's set-up. */
static void set_limits(struct braid_conn *c, uint64_t now)
{
	uint64_t timeout = (uint64_t)braid_param.handshake_timeout * SEC;

	/* The peer has to stop a queue pair first, which may take long. */
	if (c->dialler && c->lane && c->link->setup.better && !c->answered &&
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
}

/* Is it at a point where a caller moves it as well as the service thread? */
static bool is_callers(const struct braid_conn *c)
{
	return c->dialler ? c->state < BRAID_CONN_ASK_SETUP : c->state == BRAID_CONN_RX_PROOF;
}

static bool is_connected(const struct braid_conn *c)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return !braid_os->getpeername(c->fd, (struct sockaddr *)&peer, &len);
}

static void watch_for(struct braid_conn *c, uint32_t events)
{
	if (events == c->events)
		return;
	c->events = events;
	braid_watch(EPOLL_CTL_MOD, c->fd, events, c, BRAID_TAG_CONN);
	if (c->helped)
		braid_svc_wake();	/* it must look again, in case no call comes */
}

static void move_on(struct braid_conn *c, uint64_t now)
{
	uint32_t events = 0;
	int err = braid_conn_step(c, &events);

	braid_svc_assert_locked();
	if (c->link)
		braid_due_now(c->link);
	if (err == -EAGAIN) {
		set_limits(c, now);
		c->helped &= is_callers(c);
		watch_for(c, c->helped ? 0 : events);
		return;
	}
	if (!c->dialler && (err == -EPROTO || err == -EACCES))
		strangers++;
	c->owner->done(c, err, now);
	braid_handshake_end(c);
}

void braid_handshake_event(struct braid_conn *c, uint64_t now)
{
	if (!c->owner)
		return;
	c->helped = false;
	move_on(c, now);
}

void braid_handshake_help(struct braid_conn *c, uint64_t now)
{
	if (!is_callers(c) || (c->state == BRAID_CONN_CONNECT && !is_connected(c)))
		return;
	c->helped = true;
	move_on(c, now);
}

void braid_handshakes_help(void)
{
	struct braid_conn *c, *some[HELPS];
	unsigned n = 0;

	if (!atomic_load_explicit(&half_open, memory_order_relaxed) || !braid_svc_trylock())
		return;
	braid_list_for(c, &braid_handshakes, node) {
		if (n == HELPS)
			break;
		some[n++] = c;
	}
	for (unsigned i = 0; i < n; i++) {
		c = some[i];
		if (c->owner && !c->dialler)	/* one of the others may have ended it */
			braid_handshake_help(c, braid_os->now_ns());
	}
	braid_svc_unlock();
}

/* --- accepting ----------------------------------------------------------------------------- */

/* Has it had its time?  If nobody lacks room, the handshake's timeout is the limit. */
static bool may_go(const struct braid_conn *c, uint64_t now, bool at_once)
{
	uint64_t ms = c->known ? KNOWN_MS : at_once ? 0 : YOUNG_MS;

	return !c->dialler && braid_since(c->began_ns, now) >= ms * MS;
}

bool braid_handshake_make_room(uint64_t now, bool at_once)
{
	struct braid_conn *c, *victim = NULL;

	braid_svc_assert_locked();
	braid_list_for(c, &braid_handshakes, node) {
		if (!may_go(c, now, at_once))
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

bool braid_handshake_has_room(uint64_t now)
{
	braid_svc_assert_locked();
	return (half_open < (unsigned)braid_param.half_open && half_open < fd_share) ||
	       braid_handshake_make_room(now, false);
}

int braid_handshake_accept(int fd, struct braid_dev *dev, const struct braid_conn_owner *owner,
			   const struct sockaddr_storage *from, uint64_t now)
{
	struct braid_conn *c = calloc(1, sizeof(*c));
	int err, one = 1;

	braid_svc_assert_locked();
	if (!c) {
		braid_os->close(fd);
		return -ENOMEM;
	}
	braid_os->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	err = braid_conn_init(c, fd, false, owner);
	if (err) {
		braid_os->close(fd);
		free(c);
		return err;
	}
	c->dev = c->met = dev;
	c->to = *from;
	c->began_ns = now;
	c->deadline_ns = now + (uint64_t)braid_param.handshake_timeout * SEC;
	braid_addr_text(from, c->addr, sizeof(c->addr));
	c->from = braid_addr_of((const struct sockaddr *)from);
	err = braid_handshake_add(c, EPOLLIN);
	if (!err)
		braid_handshake_event(c, now);
	return err;
}

/* --- time limits and polling --------------------------------------------------------------- */

void braid_handshakes_expire(uint64_t now)
{
	struct braid_conn *c, *tmp;

	braid_svc_assert_locked();
	braid_list_for_safe(c, tmp, &braid_handshakes, node) {
		if (now < c->deadline_ns)
			continue;
		if (c->dialler || c->known)
			c->owner->done(c, -ETIMEDOUT, now);
		if (!c->dialler)
			dropped++;
		braid_handshake_end(c);
	}
}

/* The next handshake whose socket does not say when to go on, not polled in this round. */
static struct braid_conn *next_to_poll(uint64_t round)
{
	struct braid_conn *c;

	braid_list_for(c, &braid_handshakes, node) {
		if (c->polled != round && (!c->events || braid_conn_polls(c)))
			return c;
	}
	return NULL;
}

bool braid_handshakes_poll(uint64_t now)
{
	static uint64_t round;
	struct braid_conn *c;
	bool any = false;

	braid_svc_assert_locked();
	round++;
	/* Search anew each time: one handshake may end others. */
	for (unsigned i = 0; i < POLLS && (c = next_to_poll(round)); i++) {
		any = true;
		c->polled = round;
		braid_list_del(&c->node);
		braid_list_add_tail(&braid_handshakes, &c->node);
		if (waits(c) && c->ready_by_ns && now >= c->ready_by_ns)
			c->mine_setup.err = ETIMEDOUT;
		if (c->helped)		/* the caller may come again */
			c->helped = false;
		else
			braid_handshake_event(c, now);
	}
	return any;
}

void braid_handshakes_log_strangers(uint64_t now)
{
	braid_svc_assert_locked();
	if (strangers + dropped == 0 || !braid_log_gate_open(&gate_strangers, now))
		return;
	braid_info("refused %llu connections of strangers, dropped %llu that proved nothing in "
		   "time",
		   (unsigned long long)strangers, (unsigned long long)dropped);
	strangers = dropped = 0;
}
