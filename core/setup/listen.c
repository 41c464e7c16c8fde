/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listen.c - listening sockets, the listens behind them, and the comms that wait to be accepted.
 *
 * A device has one listening socket from its first listen() until the service thread ends; a
 * listen is an id and a token that peers must know.  A comm that a peer opens on a link queues at
 * the listen it names until accept() takes it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/proto/auth.h"
#include "core/setup/bind.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/wakeup.h"
#include "core/msg/open.h"
#include "core/setup/service_int.h"
#include "core/setup/ways.h"

enum {
	BACKLOG = 1024,
	READY_MAX = 1024,		/* comms opened and not accepted, per listen */
	PAUSE_MS = 100,			/* out of descriptors: nothing is accepted for so long */
	POLL_LINKS = 8,			/* links that one accept() moves, at most */
	PORT_TRIES = 8,			/* port numbers tried; each must be free at every address */
	PORTS_MAX = 2 * BRAID_HANDLE_ADDRS,
};

struct braid_listener {			/* a device's listening socket at one of its addresses */
	struct braid_list node;
	struct braid_dev *dev;
	bool first;			/* its device's first; the others have its number */
	bool bound;			/* to its interface, beside an unbound one at the address */
	int fd;
	union braid_netdev_addr at;
	uint16_t port;
	uint64_t paused_until_ns;	/* out of descriptors */
};

static struct braid_list ports;		/* braid_svc.lock */
static struct braid_log_gate gate_fds;

static struct braid_lock lock;		/* the innermost lock; guards the two below */
static struct braid_list listens;
static unsigned nlistens;

void braid_listens_wipe(void)
{
	for (struct braid_list *n = listens.next; n && n != &listens; n = n->next)
		braid_auth_wipe(braid_list_entry(n, struct braid_listen, node)->token,
				BRAID_KEY_SIZE);
}

bool braid_listens_left(void)
{
	bool left;

	braid_lock_wait(&lock);
	left = nlistens;
	braid_unlock(&lock);
	return left;
}

/* --- ports --------------------------------------------------------------------------------- */

/* Edge-triggered: an event that can't be read must not wake the thread again and again. */
static void watch_device(struct braid_listener *p, bool on)
{
	for (unsigned i = 0; braid_transports[i]; i++) {
		int fd = braid_transports[i]->event_fd(p->dev);

		if (fd >= 0 && on)
			braid_watch(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, p, BRAID_TAG_DEVICE);
		else if (fd >= 0)
			braid_unwatch(fd);
	}
}

static struct braid_listener *first_port(const struct braid_dev *dev)
{
	struct braid_listener *p;

	braid_list_for(p, &ports, node) {
		if (p->dev == dev && p->first)
			return p;
	}
	return NULL;
}

static void port_free(struct braid_listener *p)
{
	braid_os->close(p->fd);
	free(p);
}

static uint16_t *number_of(union braid_netdev_addr *at)
{
	return at->sa.sa_family == AF_INET ? &at->in.sin_port : &at->in6.sin6_port;
}

/* Port 0: the kernel chooses.  shared: two sockets listen there, one bound to the interface. */
static int port_listen(struct braid_listener *p, const struct braid_netdev *net, bool shared)
{
	socklen_t len = p->at.sa.sa_family == AF_INET ? sizeof(p->at.in) : sizeof(p->at.in6);
	int err, one = 1;

	if (p->at.sa.sa_family == AF_INET6)
		braid_os->setsockopt(p->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (shared)
		braid_os->setsockopt(p->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	err = braid_bind_listener(p->fd, net, p->bound);
	if (err)
		return err;
	braid_handshake_unpaced(p->fd, p->dev->congestion);
	if (braid_os->bind(p->fd, &p->at.sa, len) || braid_os->listen(p->fd, BACKLOG) ||
	    braid_os->getsockname(p->fd, &p->at.sa, &len))
		return -errno;
	p->port = ntohs(*number_of(&p->at));
	return 0;
}

static int port_new(struct braid_dev *dev, const struct braid_at *at, uint16_t number, bool shared,
		    bool bound, struct braid_listener **ret)
{
	struct braid_listener *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct braid_listener){ .dev = dev, .first = !number, .bound = bound,
				  .at = at->ip.addr };
	*number_of(&p->at) = htons(number);
	p->fd = braid_os->socket(p->at.sa.sa_family, IPPROTO_TCP);
	err = p->fd < 0 ? -errno : port_listen(p, at->net, shared);
	if (!err) {
		*ret = p;
		return 0;
	}
	if (p->fd >= 0)
		braid_os->close(p->fd);
	free(p);
	return err;
}

/*
 * Listen at all addresses under one port number.  Returns the number of sockets.  -EADDRINUSE:
 * another socket has that number at some address.  An address that has gone is left out.
 */
static int ports_new(struct braid_dev *dev, const struct braid_at *at, unsigned n, bool last,
		     struct braid_listener *ret[PORTS_MAX])
{
	unsigned made = 0;
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++) {
		bool shared = braid_bind_listens(&at[i]);

		err = port_new(dev, &at[i], made ? ret[0]->port : 0, shared, false, &ret[made]);
		made += !err;
		/* If no bound socket can be had, answers leave as routes decide. */
		if (!err && shared &&
		    !port_new(dev, &at[i], ret[0]->port, true, true, &ret[made]))
			made++;
		if (err == -EADDRNOTAVAIL && (made || i + 1 < n))
			err = 0;
		if (err == -EADDRINUSE && made && last)	/* last try: fewer addresses */
			err = 0;
	}
	if (!err)
		return (int)made;
	while (made)
		port_free(ret[--made]);
	return err;
}

static int ports_watch(struct braid_listener *const *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int err = braid_watch(EPOLL_CTL_ADD, p[i]->fd, EPOLLIN, p[i], BRAID_TAG_PORT);

		if (!err)
			continue;
		while (i)
			braid_unwatch(p[--i]->fd);
		return err;
	}
	watch_device(p[0], true);
	for (unsigned i = 0; i < n; i++)
		braid_list_add_tail(&ports, &p[i]->node);
	return 0;
}

static int ports_open(struct braid_dev *dev)
{
	struct braid_listener *p[PORTS_MAX];
	struct braid_at at[BRAID_HANDLE_ADDRS];
	unsigned naddrs = braid_dev_addrs(dev, at);
	int n = -EADDRINUSE, err;

	for (unsigned tries = 0; n == -EADDRINUSE && tries < PORT_TRIES; tries++)
		n = ports_new(dev, at, naddrs, tries + 1 == PORT_TRIES, p);
	if (n <= 0)
		return n ? n : -EADDRNOTAVAIL;
	err = ports_watch(p, (unsigned)n);
	while (err && n)
		port_free(p[--n]);
	return err;
}

static int port_open(struct braid_dev *dev, bool quiet, struct braid_listener **ret)
{
	int err = first_port(dev) ? 0 : ports_open(dev);

	*ret = first_port(dev);
	if (!err)
		return 0;
	if (quiet && (err == -EMFILE || err == -ENFILE))
		return err;
	return braid_error(err, "device %s: can't listen on %s: %s%s "
			   "[cannot-listen]", dev->net.name, dev->addr,
			   strerror(-err), err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

uint16_t braid_listener_port(struct braid_dev *dev)
{
	struct braid_listener *p = NULL;

	return port_open(dev, true, &p) ? 0 : p->port;
}

void braid_listener_event(struct braid_listener *p, uint64_t now)
{
	/* A bounded number, so that a flood does not keep the thread here. */
	for (int i = 0; i < 128; i++) {
		struct sockaddr_storage sa = { 0 };
		socklen_t len = sizeof(sa);
		int fd = braid_os->accept(p->fd, (struct sockaddr *)&sa, &len);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			       errno == ENOBUFS)) {
			/* The kernel says so even if no connection waits: see the next event. */
			if (i > 0)
				return;
			if (braid_handshake_make_room())	/* strangers may hold some */
				continue;
			if (braid_log_gate_open(&gate_fds, now))
				braid_warn("device %s: can't accept a peer: %s; trying on. Raise "
					   "ulimit -n [no-descriptors]",
					   p->dev->net.name, strerror(errno));
			p->paused_until_ns = now + PAUSE_MS * MS;
			braid_watch(EPOLL_CTL_MOD, p->fd, 0, p, BRAID_TAG_PORT);
			return;
		}
		if (fd < 0)
			return;
		if (braid_handshake_accept(fd, p->dev, &sa, now) == -ENOMEM)
			return;
	}
}

bool braid_listeners_resume(uint64_t now)
{
	bool waiting = false;
	struct braid_listener *p;

	braid_list_for(p, &ports, node) {
		if (!p->paused_until_ns)
			continue;
		if (now < p->paused_until_ns) {
			waiting = true;
			continue;
		}
		p->paused_until_ns = 0;
		braid_watch(EPOLL_CTL_MOD, p->fd, EPOLLIN, p, BRAID_TAG_PORT);
	}
	return waiting;
}

bool braid_listener_news(struct braid_listener *p)
{
	bool more = false;

	for (unsigned i = 0; braid_transports[i]; i++)
		more |= braid_transports[i]->events(p->dev);
	return more;
}

bool braid_listeners_news(void)
{
	struct braid_listener *p;
	bool more = false;

	braid_list_for(p, &ports, node) {
		if (p->first)
			more |= braid_listener_news(p);
	}
	return more;
}

void braid_listeners_close(void)
{
	while (!braid_list_empty(&ports)) {
		struct braid_listener *p =
			braid_list_entry(ports.next, struct braid_listener, node);

		if (p->first)
			watch_device(p, false);
		braid_list_del(&p->node);
		port_free(p);
	}
}

/* --- listens ------------------------------------------------------------------------------- */

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
	h->flags = braid_self.place;
	h->dev = (uint16_t)l->dev->index;
	h->listen_id = l->id;
	h->port = first->port;
	memcpy(h->process, braid_self.process, sizeof(h->process));
	memcpy(h->token, l->token, sizeof(h->token));
	braid_list_for(p, &ports, node) {
		if (p->dev == first->dev && !p->bound)
			handle_add(h, &p->at);
	}
}

int braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret)
{
	struct braid_listen *l = calloc(1, sizeof(*l));
	struct braid_handle h = { 0 };
	struct braid_listener *p = NULL;
	int err;

	if (!l)
		return braid_no_memory("a listen");
	l->dev = dev;
	braid_os->random(&l->id, sizeof(l->id));
	braid_os->random(l->token, sizeof(l->token));
	braid_list_init(&l->ready);
	braid_list_init(&l->ctx_node);
	pthread_mutex_lock(&braid_svc.lock);
	err = braid_service_start();
	for (unsigned i = dev->nmembers; !err && i--; )
		err = port_open(dev->member[i], false, &p);
	if (!err) {
		braid_lock_wait(&lock);
		braid_list_add_tail(&listens, &l->node);
		nlistens++;
		braid_unlock(&lock);
		handle_fill(&h, l, p);
	}
	pthread_mutex_unlock(&braid_svc.lock);
	if (err) {
		free(l);
		return err;
	}
	braid_handle_pack(&h, handle);
	braid_auth_wipe(&h, sizeof(h));
	*ret = l;
	return 0;
}

static struct braid_listen *listen_by_id(uint64_t id)
{
	struct braid_listen *l;

	braid_list_for(l, &listens, node) {
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

/* With the lock held. */
static int open_check(const struct braid_listen *l, const struct braid_link *link, uint32_t comm,
		      const struct braid_open *open)
{
	uint8_t mac[BRAID_MAC_SIZE];

	if (!l)
		return -ENOENT;
	braid_auth_open(l->token, link->session, comm, l->id, mac);
	if (!braid_auth_equal(mac, open->mac))
		return -EACCES;
	if (l->dev != link->key.dev)
		return -ENOENT;
	return l->nready < READY_MAX ? 0 : -ENOSPC;
}

static int listen_check(const struct braid_link *link, uint32_t comm, const struct braid_open *open)
{
	int err;

	braid_lock_wait(&lock);
	err = open_check(listen_by_id(open->listen_id), link, comm, open);
	braid_unlock(&lock);
	return err;
}

static int listen_offer(struct braid_comm *c, const struct braid_open *open)
{
	struct braid_listen *l;
	int err;

	braid_lock_wait(&lock);
	l = listen_by_id(open->listen_id);
	err = open_check(l, c->link, c->id, open);
	if (!err) {
		c->listen_id = l->id;
		braid_auth_opened(l->token, c->link->session, c->id, l->id, c->opened_mac);
		c->listen = l;
		l->nready++;
		braid_list_add_tail(&l->ready, &c->listen_node);
	}
	braid_unlock(&lock);
	return err;
}

void braid_listens_init(void)
{
	braid_list_init(&ports);
	braid_list_init(&listens);
	braid_comm_hooks.open_check = listen_check;
	braid_comm_hooks.open_offer = listen_offer;
}

static struct braid_comm *listen_take(struct braid_listen *l)
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

/* Move some links of the listen's device; the next call goes on after them. */
static void links_poll(struct braid_listen *l)
{
	struct braid_link *link = NULL;
	unsigned n = 0;

	while ((link = braid_links_next(link))) {
		if (link->number <= l->polled || link->key.dev != l->dev ||
		    atomic_load(&link->state) != BRAID_LINK_UP)
			continue;
		if (n++ == POLL_LINKS) {
			braid_links_leave(link);
			return;
		}
		l->polled = link->number;
		braid_link_progress(link, NULL, NULL);
		if (atomic_load_explicit(&link->control_urgent, memory_order_relaxed))
			braid_link_try_flush_control(link);
	}
	l->polled = 0;
}

struct braid_comm *braid_listen_accept(struct braid_listen *l)
{
	struct braid_comm *c = listen_take(l);

	if (c)
		return c;
	links_poll(l);
	return listen_take(l);
}

void braid_listen_close(struct braid_listen *l)
{
	struct braid_comm *c;

	braid_lock_wait(&lock);
	braid_list_del(&l->node);
	nlistens--;
	braid_unlock(&lock);
	while ((c = listen_take(l)))
		braid_comm_close(c);
	braid_auth_wipe(l->token, sizeof(l->token));
	free(l);
	braid_wake_service();
}

bool braid_listen_withdraw(struct braid_comm *c)
{
	bool waiting;

	braid_lock_wait(&lock);
	waiting = !braid_list_empty(&c->listen_node);
	if (waiting) {
		c->listen->nready--;
		braid_list_del(&c->listen_node);
	}
	braid_unlock(&lock);
	return waiting;
}
