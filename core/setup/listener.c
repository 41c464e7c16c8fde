/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.c - see listener.h. */
#include "core/setup/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/ports.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/setup/bind.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/unpaced.h"
#include "core/setup/ways.h"
#include "core/transport.h"
#include "topo/ips.h"

enum {
	BACKLOG = 65535,		/* so net.core.somaxconn is: 4,096, unless it was set */
	ACCEPTS = 128,			/* in one round, so that a flood does not keep the thread */
	PAUSE_MS = 100,			/* out of descriptors: how long to accept nothing */
	FULL_MS = 10,			/* the same while too many handshakes are under way */
	PORT_TRIES = 8,			/* port numbers tried; each must be free at every address */
	PORTS_MAX = 2 * BRAID_HANDLE_ADDRS,
};

struct braid_list braid_listeners;

static struct braid_log_gate gate_fds, gate_again;

void braid_listeners_init(void)
{
	braid_list_init(&braid_listeners);
}

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

	braid_list_for(p, &braid_listeners, node) {
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

static uint16_t number_of(const union braid_netdev_addr *at)
{
	return ntohs(at->sa.sa_family == AF_INET ? at->in.sin_port : at->in6.sin6_port);
}

/*
 * Port 0: the kernel chooses.  shared: two sockets listen there, one bound to the interface.  With
 * SO_REUSEPORT the kernel lets other processes of this user have a port of BRAID_PORT_RANGE, too:
 * so the first of the two sets it only once it listens.
 */
static int port_listen(struct braid_listener *p, const struct braid_netdev *net, uint16_t number,
		       bool shared)
{
	socklen_t len = p->at.sa.sa_family == AF_INET ? sizeof(p->at.in) : sizeof(p->at.in6);
	bool late = braid_ports_given() && !p->bound;
	int err, one = 1;

	if (p->at.sa.sa_family == AF_INET6) {
		braid_os->setsockopt(p->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
		braid_ports_label(p->fd);
	}
	if (shared && !late)
		braid_os->setsockopt(p->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	err = braid_bind_listener(p->fd, net, p->bound);
	if (err)
		return err;
	braid_socket_unpaced(p->fd, p->dev->congestion);
	err = braid_ports_bind(p->fd, &p->at.sa, len, number);
	if (err)
		return err;
	if (braid_os->listen(p->fd, BACKLOG) || braid_os->getsockname(p->fd, &p->at.sa, &len))
		return -errno;
	if (shared && late)
		braid_os->setsockopt(p->fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	p->port = number_of(&p->at);
	return 0;
}

static int port_new(struct braid_dev *dev, const struct braid_at *at, uint16_t number, bool shared,
		    bool first, bool bound, struct braid_listener **ret)
{
	struct braid_listener *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	*p = (struct braid_listener){ .dev = dev, .first = first, .bound = bound,
				  .at = at->ip.addr };
	p->fd = braid_os->socket(p->at.sa.sa_family, IPPROTO_TCP);
	err = p->fd < 0 ? -errno : port_listen(p, at->net, number, shared);
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
 * Listen at all addresses under one port number; 0: the kernel chooses it.  Returns the number of
 * sockets.  -EADDRINUSE: another socket has that number at some address.  An address that has gone
 * is left out.
 */
static int ports_new(struct braid_dev *dev, const struct braid_at *at, unsigned n,
		     uint16_t number, bool last, struct braid_listener *ret[PORTS_MAX])
{
	unsigned made = 0;
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++) {
		bool shared = braid_bind_listens(&at[i]);

		err = port_new(dev, &at[i], made ? ret[0]->port : number, shared, !made, false,
			       &ret[made]);
		made += !err;
		/* If no bound socket can be had, answers leave as routes decide. */
		if (!err && shared &&
		    !port_new(dev, &at[i], ret[0]->port, true, false, true, &ret[made]))
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
	if (p[0]->first)
		watch_device(p[0], true);
	for (unsigned i = 0; i < n; i++)
		braid_list_add_tail(&braid_listeners, &p[i]->node);
	return 0;
}

/* Listen at the first port that is free at every address; if none is, at some addresses. */
static int ports_find(struct braid_dev *dev, const struct braid_at *at, unsigned naddrs,
		      struct braid_listener *p[PORTS_MAX])
{
	unsigned rounds = braid_ports_given() ? 2 : PORT_TRIES;
	int n = -EADDRINUSE;
	struct braid_ports walk;
	uint16_t number;

	for (unsigned i = 0; i < rounds && n == -EADDRINUSE; i++) {
		braid_ports_begin(&walk);
		while (n == -EADDRINUSE && braid_ports_next(&walk, &number))
			n = ports_new(dev, at, naddrs, number, i + 1 == rounds, p);
	}
	return n;
}

static int ports_open(struct braid_dev *dev)
{
	struct braid_listener *p[PORTS_MAX];
	struct braid_at at[BRAID_HANDLE_ADDRS];
	unsigned naddrs = braid_dev_addrs(dev, at);
	int n = ports_find(dev, at, naddrs, p), err;

	if (n <= 0)
		return n ? n : -EADDRNOTAVAIL;
	err = ports_watch(p, (unsigned)n);
	while (err && n)
		port_free(p[--n]);
	return err;
}

int braid_listener_open(struct braid_dev *dev, bool quiet, struct braid_listener **ret)
{
	int err = first_port(dev) ? 0 : ports_open(dev);
	char why[400];

	braid_svc_assert_locked();
	*ret = first_port(dev);
	if (!err)
		return 0;
	if (quiet && (err == -EMFILE || err == -ENFILE))
		return err;
	if (err == -EADDRINUSE && braid_ports_given()) {
		braid_ports_why(why, sizeof(why));
		return braid_error(err, "device %s: can't listen on %s: %s", dev->net.name,
				   dev->addr, why);
	}
	return braid_error(err, "device %s: can't listen on %s: %s%s "
			   "[cannot-listen]", dev->net.name, dev->addr,
			   strerror(-err), err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
}

static void port_close(struct braid_listener *p)
{
	braid_unwatch(p->fd);
	braid_list_del(&p->node);
	port_free(p);
}

/* The device's socket at an address, not bound to its interface; or NULL. */
static struct braid_listener *port_at(const struct braid_dev *dev, const struct sockaddr *sa)
{
	struct braid_listener *p;

	braid_list_for(p, &braid_listeners, node) {
		if (p->dev == dev && !p->bound && braid_netdev_same_ip(&p->at.sa, sa))
			return p;
	}
	return NULL;
}

static void port_add(const struct braid_listener *first, const struct braid_at *at, bool bound)
{
	struct braid_listener *p;
	int err = port_new(first->dev, at, first->port, braid_bind_listens(at), false, bound,
			   &p);

	if (!err) {
		err = ports_watch(&p, 1);
		if (err)
			port_free(p);
	}
	if (err && !bound && braid_log_gate_open(&gate_again, braid_os->now_ns()))
		braid_warn("device %s: can't listen at its new address: port %u: %s; peers that "
			   "dial it there fail [cannot-listen]", first->dev->net.name, first->port,
			   strerror(-err));
}

void braid_listener_again(struct braid_dev *dev)
{
	struct braid_listener *first = first_port(dev), *p, *tmp;
	struct braid_at at[BRAID_HANDLE_ADDRS];
	unsigned n;

	braid_svc_assert_locked();
	if (!first)
		return;
	n = braid_dev_addrs(dev, at);
	braid_list_for_safe(p, tmp, &braid_listeners, node) {
		if (p->dev != dev)
			continue;
		p->gone = true;
		for (unsigned i = 0; i < n; i++)
			p->gone &= !braid_netdev_same_ip(&at[i].ip.addr.sa, &p->at.sa);
		/* One that is bound may have an interface that was removed and made anew. */
		if (p->bound || (p->gone && !p->first))
			port_close(p);
	}
	for (unsigned i = 0; i < n; i++) {
		if (!port_at(dev, &at[i].ip.addr.sa))
			port_add(first, &at[i], false);
		if (braid_bind_listens(&at[i]))
			port_add(first, &at[i], true);
	}
}

uint16_t braid_listener_port(struct braid_dev *dev)
{
	struct braid_listener *p = NULL;

	return braid_listener_open(dev, true, &p) ? 0 : p->port;
}

static void pause_port(struct braid_listener *p, uint64_t until_ns)
{
	p->paused_until_ns = until_ns;
	braid_watch(EPOLL_CTL_MOD, p->fd, 0, p, BRAID_TAG_PORT);
}

/* No descriptor: true if one could be freed. */
static bool get_descriptor(struct braid_listener *p, uint64_t now)
{
	if (braid_handshake_make_room(now, true))	/* strangers may hold some */
		return true;
	if (braid_log_gate_open(&gate_fds, now))
		braid_warn("device %s: can't accept a peer: %s; trying on. Raise ulimit -n "
			   "[no-descriptors]", p->dev->net.name, strerror(errno));
	pause_port(p, now + PAUSE_MS * MS);
	return false;
}

void braid_listener_event(struct braid_listener *p, const struct braid_conn_owner *owner,
			  uint64_t now)
{
	braid_svc_assert_locked();
	for (int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage sa = { 0 };
		socklen_t len = sizeof(sa);
		int fd;

		if (!braid_handshake_has_room(now)) {
			pause_port(p, now + FULL_MS * MS);
			return;
		}
		fd = braid_os->accept(p->fd, (struct sockaddr *)&sa, &len);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			       errno == ENOBUFS)) {
			/* The kernel says so even if no connection waits: see at the next event. */
			if (i > 0)
				return;
			if (get_descriptor(p, now))
				continue;
			return;
		}
		if (fd < 0)
			return;
		if (braid_handshake_accept(fd, p->dev, owner, &sa, now) == -ENOMEM)
			return;
	}
}

bool braid_listeners_resume(uint64_t now)
{
	bool waiting = false;
	struct braid_listener *p;

	braid_svc_assert_locked();
	braid_list_for(p, &braid_listeners, node) {
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

bool braid_listener_read_events(struct braid_listener *p)
{
	bool more = false;

	for (unsigned i = 0; braid_transports[i]; i++)
		more |= braid_transports[i]->events(p->dev);
	return more;
}

bool braid_listeners_read_events(void)
{
	struct braid_listener *p;
	bool more = false;

	braid_list_for(p, &braid_listeners, node) {
		if (p->first)
			more |= braid_listener_read_events(p);
	}
	return more;
}

void braid_listeners_close(void)
{
	braid_svc_assert_locked();
	while (!braid_list_empty(&braid_listeners)) {
		struct braid_listener *p =
			braid_list_entry(braid_listeners.next, struct braid_listener, node);

		if (p->first)
			watch_device(p, false);
		braid_list_del(&p->node);
		port_free(p);
	}
}
