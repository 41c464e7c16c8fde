/* SPDX-License-Identifier: BSD-3-Clause */
/* listen.c - see listen.h. */
#include "core/setup/listen.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/self.h"
#include "core/base/wakeup.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"
#include "core/msg/open.h"
#include "core/rma/rma.h"
#include "core/proto/auth.h"
#include "core/proto/handle.h"
#include "core/setup/conn.h"
#include "core/setup/handshake.h"
#include "core/setup/keypair.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/moved.h"
#include "core/setup/service.h"

enum {
	READY_MAX = 1024,		/* comms opened and not accepted, per listen */
	BUCKETS = 1024,
	POLL_LINKS = 8,			/* links that one accept() moves, at most */
	LOOK_LINKS = 16,		/* and looks at */
};

static struct braid_lock lock;		/* the innermost lock; guards the two below */
static struct braid_list listens[BUCKETS];	/* by id */
static unsigned nlistens;

bool braid_listens_left(void)
{
	bool left;

	braid_lock_wait(&lock);
	left = nlistens;
	braid_unlock(&lock);
	return left;
}

/* Add an address at which the device listens, in the order in which they were opened. */
static void handle_add(struct braid_handle *h, const union braid_netdev_addr *at)
{
	static const uint8_t none[4];
	unsigned n = 0;

	if (at->sa.sa_family == AF_INET6) {
		if (!h->has6)
			memcpy(h->addr6, &at->in6.sin6_addr, sizeof(h->addr6));
		h->has6 = 1;
	} else if (!h->has4) {
		memcpy(h->addr4, &at->in.sin_addr, sizeof(h->addr4));
		h->has4 = 1;
	} else {
		while (n < BRAID_HANDLE_MORE && memcmp(h->more4[n], none, sizeof(none)))
			n++;
		if (n < BRAID_HANDLE_MORE)
			memcpy(h->more4[n], &at->in.sin_addr, sizeof(h->more4[n]));
	}
}

static void handle_fill(struct braid_handle *h, const struct braid_listen *l,
			const struct braid_listener *first)
{
	const struct braid_listener *p;

	h->least = BRAID_WIRE_LEAST;
	h->most = BRAID_WIRE_MOST;
	h->place = braid_self.place;
	h->dev = (uint16_t)l->dev->index;
	h->listen_id = l->id;
	h->port = first->port;
	memcpy(h->process, braid_self.process, sizeof(h->process));
	memcpy(h->token, l->token, BRAID_KEY_SIZE);
	braid_list_for(p, &braid_listeners, node) {
		if (p->dev == first->dev && !p->bound && !p->gone)
			handle_add(h, &p->at);
	}
}

static void listen_free(struct braid_listen *l)
{
	if (l)
		braid_secret_free(l->token);
	free(l);
}

/* A listen with an id and a token. */
static int listen_make(struct braid_dev *dev, struct braid_listen **ret)
{
	struct braid_listen *l = calloc(1, sizeof(*l));
	int err;

	if (l)
		l->token = braid_secret_new();
	if (!l || !l->token) {
		listen_free(l);
		return braid_no_memory("a listen");
	}
	err = braid_os->random(&l->id, sizeof(l->id));
	if (!err)
		err = braid_os->random(l->token, BRAID_KEY_SIZE);
	if (err) {
		listen_free(l);
		return braid_no_random(err);
	}
	l->dev = dev;
	braid_list_init(&l->ready);
	braid_list_init(&l->ctx_node);
	*ret = l;
	return 0;
}

int braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret)
{
	struct braid_listen *l = NULL;
	struct braid_handle h = { 0 };
	struct braid_listener *p = NULL;
	int err = listen_make(dev, &l);

	if (err)
		return err;
	braid_svc_lock();
	braid_moved_device(dev);
	err = braid_service_start();
	if (!err)
		braid_moved_open();
	for (unsigned i = dev->nmembers; !err && i--; )
		err = braid_listener_open(dev->member[i], false, &p);
	if (!err) {
		braid_lock_wait(&lock);
		braid_list_add_tail(&listens[l->id % BUCKETS], &l->node);
		nlistens++;
		braid_unlock(&lock);
		handle_fill(&h, l, p);
	}
	braid_svc_unlock();
	if (err) {
		listen_free(l);
		return err;
	}
	braid_keypairs_begin();
	braid_handle_pack(&h, handle);
	braid_auth_wipe(&h, sizeof(h));
	*ret = l;
	return 0;
}

void braid_listen_for(struct braid_listen *l, struct braid_rma *rma)
{
	braid_lock_wait(&lock);
	l->rma = rma;
	braid_unlock(&lock);
}

static struct braid_listen *listen_by_id(uint64_t id)
{
	struct braid_listen *l;

	braid_list_for(l, &listens[id % BUCKETS], node) {
		if (l->id == id)
			return l;
	}
	return NULL;
}

static bool has_member(const struct braid_dev *dev, const struct braid_dev *member)
{
	for (unsigned i = 0; i < dev->nmembers; i++) {
		if (dev->member[i] == member)
			return true;
	}
	return false;
}

bool braid_listen_token(uint64_t id, struct braid_dev **dev, uint8_t *ret)
{
	struct braid_listen *l;
	bool found;

	braid_lock_wait(&lock);
	l = listen_by_id(id);
	found = l && has_member(l->dev, *dev);
	if (found) {
		*dev = l->dev;
		memcpy(ret, l->token, BRAID_KEY_SIZE);
	}
	braid_unlock(&lock);
	return found;
}

/* Has a comm of this connect() come over another link? */
static bool is_taken(const struct braid_listen *l, uint64_t connect)
{
	for (unsigned i = 0; connect && i < l->ntaken && i < BRAID_TAKEN_MAX; i++) {
		if (l->taken[i] == connect)
			return true;
	}
	return false;
}

/* With the lock held. */
static int open_check(const struct braid_listen *l, const struct braid_link *link, uint32_t comm,
		      const struct braid_open *open)
{
	uint8_t mac[BRAID_MAC_SIZE];

	braid_assert_locked(&lock);
	if (!l)
		return -ENOENT;
	braid_auth_open(l->token, link->setup.session, comm, l->id, mac);
	if (!braid_auth_equal(mac, open->mac))
		return -EACCES;
	if (l->dev != link->key.dev)
		return -ENOENT;
	if (is_taken(l, open->connect))
		return -EALREADY;
	return l->nready < READY_MAX ? 0 : -ENOSPC;
}

static int listen_check(const struct braid_link *link, uint32_t comm, const struct braid_open *open)
{
	int err;

	braid_assert_locked(&link->lock);
	braid_lock_wait(&lock);
	err = open_check(listen_by_id(open->listen_id), link, comm, open);
	braid_unlock(&lock);
	return err;
}

static int listen_offer(struct braid_comm *c, const struct braid_open *open)
{
	struct braid_listen *l;
	int err;

	braid_assert_locked(&c->link->lock);
	braid_lock_wait(&lock);
	l = listen_by_id(open->listen_id);
	err = open_check(l, c->link, c->id, open);
	if (!err) {
		c->listen_id = l->id;
		braid_auth_opened(l->token, c->link->setup.session, c->id, l->id, c->opened_mac);
		if (l->rma && braid_rma_channel_new(l->rma, c))
			err = braid_no_memory("a connection");
	}
	if (!err && !l->rma) {
		c->listen = l;
		l->nready++;
		braid_list_add_tail(&l->ready, &c->listen_node);
	}
	if (!err && open->connect)
		l->taken[l->ntaken++ % BRAID_TAKEN_MAX] = open->connect;
	braid_unlock(&lock);
	return err;
}

void braid_listens_init(void)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		braid_list_init(&listens[i]);
	braid_comm_hooks.open_check = listen_check;
	braid_comm_hooks.open_offer = listen_offer;
}

static struct braid_comm *listen_pop(struct braid_listen *l)
{
	struct braid_comm *c = NULL;

	braid_lock_wait(&lock);
	if (!braid_list_empty(&l->ready)) {
		c = braid_list_entry(l->ready.next, struct braid_comm, listen_node);
		braid_list_del(&c->listen_node);
		c->listen = NULL;
		l->nready--;
	}
	braid_unlock(&lock);
	return c;
}

/*
 * Move some links of the listen's device; the next call, of any listen, goes on after them.  Where
 * there are more, the service thread moves those that it watches: a call of ours would end that.
 */
static void links_poll(const struct braid_listen *l)
{
	unsigned all = braid_links_count(), n = 0;
	struct braid_link *link = NULL;

	for (unsigned i = 0; i < all && i < LOOK_LINKS && n < POLL_LINKS; i++) {
		link = braid_links_turn(link);
		if (!link)
			return;
		if (link->key.dev != l->dev || atomic_load(&link->state) != BRAID_LINK_UP ||
		    (all > POLL_LINKS && braid_link_is_watched(link)))
			continue;
		n++;
		braid_link_progress(link, NULL, NULL);
		if (braid_link_is_urgent(link))
			braid_link_try_flush_control(link);
	}
	braid_links_leave(link);
}

static void report_wait(struct braid_listen *l)
{
	struct braid_awaited w;

	if (!braid_awaited_is_due(&l->awaited))
		return;
	braid_lock_wait(&lock);
	w = l->awaited;
	braid_unlock(&lock);
	braid_awaited_report(&w, l->dev, l->id);
}

struct braid_comm *braid_listen_accept(struct braid_listen *l)
{
	struct braid_comm *c = listen_pop(l);

	if (!c) {
		braid_handshakes_help();
		links_poll(l);
		c = listen_pop(l);
	}
	if (c)
		l->awaited.since_ns = 0;
	else
		report_wait(l);
	return c;
}

void braid_listen_came(const struct braid_conn *c, int err, uint32_t link, uint64_t now)
{
	struct braid_listen *l;

	braid_lock_wait(&lock);
	l = listen_by_id(c->theirs.ident);
	if (l)
		braid_awaited_came(&l->awaited, c, err, link, now);
	braid_unlock(&lock);
}

void braid_listen_close(struct braid_listen *l)
{
	struct braid_comm *c;

	braid_lock_wait(&lock);
	braid_list_del(&l->node);
	nlistens--;
	braid_unlock(&lock);
	while ((c = listen_pop(l)))
		braid_comm_close(c);
	listen_free(l);
	braid_wake_service();
}

bool braid_listen_withdraw(struct braid_comm *c)
{
	bool waiting;

	braid_assert_locked(&c->link->lock);
	braid_lock_wait(&lock);
	waiting = !braid_list_empty(&c->listen_node);
	if (waiting) {
		c->listen->nready--;
		braid_list_del(&c->listen_node);
	}
	braid_unlock(&lock);
	return waiting;
}
