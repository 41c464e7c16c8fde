/* SPDX-License-Identifier: BSD-3-Clause */
/* moved.c - see moved.h. */
#include "core/setup/moved.h"

#include <errno.h>
#include <ifaddrs.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/ports.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/addr.h"
#include "core/setup/conn.h"
#include "core/setup/due.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/path.h"
#include "core/setup/ways.h"
#include "topo/ips.h"

enum {
	SETTLE_MS = 100,		/* an address removed and added again has not gone */
	PERHAPS_MS = 1000,		/* between two looks that no event asked for */
	ANNOUNCE_S = 10,		/* how long to try to tell the peer our new address */
};

static struct {
	int fd;				/* readable if an address may have changed; -1: none */
	uint64_t due_ns;		/* when to look; 0: nothing has changed */
	uint64_t looked_ns;		/* the last look; 0: none since watching began */
} moved = { .fd = -1 };

void braid_moved_open(void)
{
	braid_svc_assert_locked();
	if (moved.fd >= 0)
		return;
	moved.fd = braid_os->watch_addrs ? braid_os->watch_addrs() : -1;
	if (moved.fd < 0)
		return;
	/* They may have changed before. */
	moved.due_ns = braid_os->now_ns();
	moved.looked_ns = 0;
	if (braid_watch(EPOLL_CTL_ADD, moved.fd, EPOLLIN, NULL, BRAID_TAG_ADDRS))
		braid_moved_close();
}

void braid_moved_close(void)
{
	braid_svc_assert_locked();
	if (moved.fd < 0)
		return;
	braid_unwatch(moved.fd);
	braid_os->close(moved.fd);
	moved.fd = -1;
	moved.due_ns = 0;
}

void braid_moved_event(uint64_t now)
{
	char buf[4096];
	ssize_t n;

	braid_svc_assert_locked();
	/* ENOBUFS: more has come than the socket held.  What it was does not matter. */
	do {
		n = braid_os->recv(moved.fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && (errno == ENOBUFS || errno == EINTR)));
	if (!moved.due_ns)
		moved.due_ns = now + SETTLE_MS * MS;
}

void braid_moved_perhaps(uint64_t now)
{
	braid_svc_assert_locked();
	if (!moved.due_ns && braid_os->getifaddrs)
		moved.due_ns = now + SETTLE_MS * MS > moved.looked_ns + PERHAPS_MS * MS ?
			       now + SETTLE_MS * MS : moved.looked_ns + PERHAPS_MS * MS;
}

/* --- our own addresses --------------------------------------------------------------------- */

static bool take_over(struct braid_dev *dev, const struct ifaddrs *list)
{
	int family = braid_param_family(braid_param.socket_family);
	char was[sizeof(dev->addr)];

	if (!*dev->net.interface || !braid_netdev_again(&dev->net, family, list))
		return false;
	memcpy(was, dev->addr, sizeof(was));
	braid_ip_text(&dev->net.addr, dev->addr, sizeof(dev->addr));
	braid_info("device %s: its address was %s and is now %s (interface %s, index %u)",
		   dev->net.name, was, dev->addr, dev->net.interface, dev->net.ifindex);
	return true;
}

void braid_moved_device(struct braid_dev *dev)
{
	struct ifaddrs *list;

	braid_svc_assert_locked();
	if ((moved.fd >= 0 && moved.looked_ns) || !braid_os->getifaddrs ||
	    braid_os->getifaddrs(&list))
		return;
	for (unsigned i = 0; i < dev->nmembers; i++)
		take_over(dev->member[i], list);
	braid_shakes_again(list);
	braid_os->freeifaddrs(list);
}

struct devs {				/* members of devices that are in use */
	unsigned n;
	struct braid_dev *dev[BRAID_NETDEVS_MAX];
	bool moved[BRAID_NETDEVS_MAX];
};

static void devs_add(struct devs *d, const struct braid_dev *dev)
{
	for (unsigned i = 0; i < dev->nmembers; i++) {
		unsigned k = 0;

		while (k < d->n && d->dev[k] != dev->member[i])
			k++;
		if (k == d->n && d->n < BRAID_NETDEVS_MAX)
			d->dev[d->n++] = dev->member[i];
	}
}

static bool devs_moved(const struct devs *d, const struct braid_dev *dev)
{
	for (unsigned i = 0; i < d->n; i++) {
		if (d->dev[i] == dev)
			return d->moved[i];
	}
	return false;
}

static void find_moved(struct devs *d, const struct ifaddrs *list)
{
	const struct braid_listener *p;
	const struct braid_link *link;
	bool shakes = braid_shakes_again(list);

	braid_list_for(p, &braid_listeners, node)
		devs_add(d, p->dev);
	braid_list_for(link, &braid_svc.links, table.node)
		devs_add(d, link->key.dev);
	for (unsigned i = 0; i < d->n; i++) {
		const struct braid_netdev *nets[1 + BRAID_SHAKES_MAX];

		d->moved[i] = take_over(d->dev[i], list);
		d->moved[i] |= shakes && braid_ways_nets(d->dev[i], nets) > 1;
		if (d->moved[i])
			braid_listener_again(d->dev[i]);
	}
}

/* --- the links that use them --------------------------------------------------------------- */

/* Has this host no more the address that the socket has? */
static bool has_gone(int fd, const struct ifaddrs *list)
{
	union braid_netdev_addr at;
	socklen_t len = sizeof(at);

	return !braid_os->getsockname(fd, &at.sa, &len) && !braid_addr_in(list, &at.sa);
}

/* Lose the lanes whose own address has gone: nothing can come to them.  True: there were some. */
static bool lose_lanes(struct braid_link *link, const struct ifaddrs *list)
{
	bool any = false;

	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		if (!braid_lane_up(lane) || lane->fd < 0 || !has_gone(lane->fd, list))
			continue;
		any = true;
		braid_lock_wait(&link->lock);
		braid_lane_lost(lane, -EADDRNOTAVAIL);
		braid_unlock(&link->lock);
	}
	return any;
}

/* A path's ways get other indices: no dial has one now.  End those that have not connected. */
static void drop_dials(struct braid_link *link, unsigned path)
{
	struct braid_conn *c, *tmp;

	braid_list_for_safe(c, tmp, &braid_handshakes, node) {
		if (!c->dialler || c->link != link || c->path != path)
			continue;
		c->way = BRAID_WAYS_MAX;
		if (c->state == BRAID_CONN_CONNECT &&
		    (c->lane || c->mine.kind == BRAID_HELLO_ALIVE))
			braid_handshake_end(c);
	}
}

static void dial_at_once(struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++)
		link->lane[i]->recover.dial_at_ns = 0;
	link->recover.probe_ns = 0;
	link->recover.probe_wait_ms = 0;
}

/* A peer on this host that was reached at this interface has its new address, too; else NULL. */
static const union braid_netdev_addr *same_for_peer(const struct braid_path *p,
						    const struct ifaddrs *list,
						    union braid_netdev_addr *ret)
{
	const struct braid_pair *last = &p->ways.way[p->ways.now].pair;

	if (!p->ways.n || last->kind != BRAID_PAIR_OWN || braid_addr_in(list, &last->to.sa))
		return NULL;
	*ret = p->dev->net.addr;
	braid_ports_set(&ret->sa, p->to.port);
	return ret;
}

static void up_link_moved(struct braid_link *link, const struct devs *d,
			  const struct ifaddrs *list, uint64_t now)
{
	bool other = false, lost;

	for (unsigned i = 0; i < link->npaths; i++) {
		struct braid_path *p = &link->setup.path[i];
		union braid_netdev_addr to;

		if (!devs_moved(d, p->dev))
			continue;
		other = link->recover.moved = true;
		drop_dials(link, i);
		braid_ways_again(&p->ways, p->dev, same_for_peer(p, list, &to));
		p->bad_until_ns = 0;
	}
	lost = lose_lanes(link, list);
	if (lost)
		link->recover.moved_ns = now;
	if (other && !link->dialler)
		link->recover.announce_ns = now + ANNOUNCE_S * SEC;
	if (other || lost)
		dial_at_once(link);
}

/* A link that is being dialled: begin anew, unless it has connected from an address that stays. */
static void new_link_moved(struct braid_link *link, const struct devs *d,
			   const struct ifaddrs *list)
{
	struct braid_path *p = &link->setup.path[0];
	struct braid_conn *c = link->dial.conn;

	if (!p->dev || !devs_moved(d, p->dev))
		return;
	if (c && (c->state == BRAID_CONN_CONNECT || has_gone(c->fd, list))) {
		braid_handshake_end(c);
		c = NULL;
	}
	if (c)
		braid_ways_again(&p->ways, p->dev, NULL);
	else
		braid_path_first(link, &link->dial.target);
	if (c)				/* the same address of the peer */
		c->way = p->ways.now;
	else if (atomic_load(&link->state) == BRAID_LINK_DIALING)
		link->dial.at_ns = 0;
}

static void look(uint64_t now)
{
	struct devs d = { .n = 0 };
	struct ifaddrs *list;
	struct braid_link *link;

	moved.looked_ns = now;
	if (braid_os->getifaddrs(&list))
		return;
	find_moved(&d, list);
	braid_list_for(link, &braid_svc.links, table.node) {
		int state = atomic_load(&link->state);

		braid_due_now(link);
		if (state == BRAID_LINK_UP)
			up_link_moved(link, &d, list, now);
		else if (state != BRAID_LINK_DEAD)
			new_link_moved(link, &d, list);
	}
	braid_os->freeifaddrs(list);
}

int braid_moved_tick(uint64_t now)
{
	braid_svc_assert_locked();
	if (!moved.due_ns)
		return -1;
	if (now < moved.due_ns)
		return (int)((moved.due_ns - now) / MS) + 1;
	moved.due_ns = 0;
	look(now);
	return -1;
}

/* --- a peer's addresses -------------------------------------------------------------------- */

/* The address that the peer's hello gives for its member at the end of that path; or NULL. */
static const struct braid_addr *announced(const struct braid_path *p, const struct braid_conn *c,
					  const struct braid_addr *from)
{
	if (from->port && p->to.port == from->port)
		return from;
	for (unsigned i = 0; i < BRAID_PATHS_MAX - 1 && c->theirs.more[i].port; i++) {
		if (c->theirs.more[i].port == p->to.port)
			return &c->theirs.more[i];
	}
	return NULL;
}

static void learn(struct braid_link *link, unsigned path, const struct braid_addr *at)
{
	struct braid_path *p = &link->setup.path[path];
	struct sockaddr_storage sa, was;
	union braid_netdev_addr to;
	char text[64];

	braid_addr_to_sockaddr(at, 0, &sa);
	memcpy(&to, &sa, sizeof(to));
	if (!p->ways.n || braid_ways_lead_to(&p->ways, &to))
		return;
	braid_path_sockaddr(p, &was);
	drop_dials(link, path);
	braid_ways_again(&p->ways, p->dev, &to);
	/* A handshake by another interface than the member's own does not name the member. */
	if (!memcmp(p->to.ip, braid_addr_of((struct sockaddr *)&was).ip, sizeof(p->to.ip)))
		p->to = *at;
	p->bad_until_ns = 0;
	dial_at_once(link);
	braid_addr_text(&sa, text, sizeof(text));
	braid_info("device %s, peer %s: it is now at %s, too", link->key.dev->net.name, link->peer,
		   text);
}

void braid_moved_learn(const struct braid_conn *c)
{
	struct braid_link *link = c->link;
	struct braid_addr from = c->from;

	braid_svc_assert_locked();
	from.port = c->theirs.port;
	for (unsigned i = 0; i < link->npaths; i++) {
		const struct braid_addr *at = announced(&link->setup.path[i], c, &from);

		if (at)
			learn(link, i, at);
	}
}
