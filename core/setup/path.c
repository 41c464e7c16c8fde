/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - see path.h. */
#include "core/setup/path.h"

#include <netinet/in.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/setup/addr.h"
#include "core/setup/bind.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/ways.h"
#include "core/transport.h"
#include "topo/ips.h"
#include "topo/netdev.h"

enum {
	HOLD_MS = 2000, HOLD_MAX_MS = 60000,
	LASTS_MS = 10000,		/* a path that fails sooner again flaps */
	REPORT_MS = 3000,		/* bad for so long: log a WARN */
	CORRUPT = 3,			/* so many losses with wrong checksums ... */
	CORRUPT_S = 60,			/* ... within this time: the path is left */
	LEFT_S = 10, LEFT_MAX_S = 320,
};

void braid_path_member(const struct braid_path *p, struct sockaddr_storage *ret)
{
	braid_addr_to_sockaddr(&p->to, p->dev->net.ifindex, ret);
}

socklen_t braid_path_sockaddr(const struct braid_path *p, struct sockaddr_storage *ret)
{
	const union braid_netdev_addr *to = &p->ways.way[p->ways.now].pair.to;

	memset(ret, 0, sizeof(*ret));
	if (!p->ways.n)
		return 0;
	memcpy(ret, to, sizeof(*to));
	return to->sa.sa_family == AF_INET ? sizeof(to->in) : sizeof(to->in6);
}

void braid_path_text(const struct braid_link *link, unsigned path, char *ret, size_t len)
{
	union braid_netdev_addr at[BRAID_HANDLE_ADDRS];
	struct sockaddr_storage sa = { 0 };

	if (!braid_path_sockaddr(&link->setup.path[path], &sa) &&
	    braid_handle_addrs(&link->dial.target, at))
		memcpy(&sa, &at[0], sizeof(at[0]));
	braid_addr_text(&sa, ret, len);
}

/* --- finding paths ------------------------------------------------------------------------- */

/* The peer device's own address, which its handle lists first: of our IP version if it has one. */
static struct braid_addr members(const struct braid_dev *dev, const union braid_netdev_addr *to,
				 unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (to[i].sa.sa_family == dev->net.addr.sa.sa_family)
			return braid_addr_of(&to[i].sa);
	}
	return braid_addr_of(&to[0].sa);
}

void braid_path_first(struct braid_link *link, const struct braid_handle *to)
{
	braid_svc_assert_locked();
	union braid_netdev_addr at[BRAID_HANDLE_ADDRS];
	unsigned n = braid_handle_addrs(to, at);
	struct braid_path *p = &link->setup.path[0];

	link->npaths = 1;
	p->dev = link->key.dev->member[0];
	braid_ways_find(&p->ways, p->dev, at, n, braid_handle_peer(to), false);
	p->to = p->ways.n ? members(p->dev, at, n) : (struct braid_addr){ .port = 0 };
}

static bool same_subnet(const struct braid_dev *dev, const struct braid_addr *a)
{
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	unsigned n = braid_netdev_ips(&dev->net, ip);
	struct sockaddr_storage sa;
	bool near = false;

	braid_addr_to_sockaddr(a, 0, &sa);
	for (unsigned i = 0; i < n; i++)
		near |= braid_ip_near(&ip[i], (struct sockaddr *)&sa);
	return near;
}

static bool is_near(const struct braid_path *p)
{
	return same_subnet(p->dev, &p->to);
}

/*
 * Leave out paths whose peer member is in none of our member's subnets, unless all are so.
 * Sockets would reach such a member by routes, but the packets of an RDMA port may not.
 */
static void drop_far(struct braid_link *link)
{
	unsigned n = 0;

	for (unsigned i = 0; i < link->npaths; i++) {
		if (is_near(&link->setup.path[i]))
			link->setup.path[n++] = link->setup.path[i];
	}
	if (n)
		link->npaths = n;
}

/*
 * The path whose dial made the link keeps its ways, and the one that worked.  Any other path leads
 * to the address of its peer member.  If the way that worked used an interface for handshakes, the
 * path also leads to the address that worked, at the port of its peer member.
 */
static void find_ways(struct braid_path *p, const struct braid_path *first,
		      const struct braid_addr *at, uint16_t first_port)
{
	const struct braid_way *way = &first->ways.way[first->ways.now];
	bool shaken = first->ways.n && braid_shake_is(way->pair.net);
	struct braid_addr to[2] = { p->to, *at };
	struct sockaddr_storage sa;
	union braid_netdev_addr list[2];

	if (first->ways.n && p->dev == first->dev && p->to.port == first_port) {
		p->ways = first->ways;
		return;
	}
	to[1].port = p->to.port;
	for (unsigned i = 0; i < 2; i++) {
		braid_addr_to_sockaddr(&to[i], 0, &sa);
		memcpy(&list[i], &sa, sizeof(list[i]));
	}
	braid_ways_find(&p->ways, p->dev, list, shaken ? 2 : 1, BRAID_PEER_UNKNOWN, shaken);
}

void braid_paths_all(struct braid_link *link, const struct braid_addr *at,
		     const struct braid_hello *theirs)
{
	const struct braid_dev *dev = link->key.dev;
	struct braid_path first = link->setup.path[0];
	bool own = first.to.port && dev->member[0]->best && dev->member[0]->best->blob;
	struct braid_addr to[BRAID_PATHS_MAX] = { own ? first.to : *at };
	unsigned n = 1;

	braid_svc_assert_locked();
	for (unsigned i = 0; i < BRAID_PATHS_MAX - 1 && theirs->more[i].port; i++)
		to[n++] = theirs->more[i];
	link->npaths = dev->nmembers > n ? dev->nmembers : n;
	for (unsigned i = 0; i < link->npaths; i++) {
		struct braid_path *p = &link->setup.path[i];

		*p = (struct braid_path){ .dev = dev->member[i % dev->nmembers], .to = to[i % n] };
		/*
		 * Each entry of the longer list has a path.  Its partner from the other list is
		 * in the same subnet, preferably at the same index, since ports may share an
		 * address.
		 */
		for (unsigned k = 0; dev->nmembers >= n && k < n; k++) {
			if (!same_subnet(p->dev, &p->to) && same_subnet(p->dev, &to[k]))
				p->to = to[k];
		}
		for (unsigned k = 0; dev->nmembers < n && k < dev->nmembers; k++) {
			if (!same_subnet(p->dev, &p->to) && same_subnet(dev->member[k], &p->to))
				p->dev = dev->member[k];
		}
	}
	if (dev->member[0]->best && dev->member[0]->best->blob)
		drop_far(link);
	for (unsigned i = 0; i < link->npaths; i++)
		find_ways(&link->setup.path[i], &first, at, to[0].port);
}

void braid_paths_announce(struct braid_dev *dev, const struct braid_dev *met,
			  struct braid_hello *h)
{
	unsigned n = 0;

	for (unsigned i = 0; i < dev->nmembers; i++) {
		struct braid_dev *m = dev->member[i];
		uint16_t port = braid_listener_port(m);

		if (m == met) {
			h->port = port;
		} else if (port && n < BRAID_PATHS_MAX - 1) {
			h->more[n] = braid_addr_of(&m->net.addr.sa);
			h->more[n++].port = port;
		}
	}
}

/* --- which paths work ---------------------------------------------------------------------- */

static uint64_t avoided_until(const struct braid_link *link, unsigned path)
{
	const struct braid_path *p = &link->setup.path[path];

	return p->bad_until_ns > p->left[0].until_ns ? p->bad_until_ns : p->left[0].until_ns;
}

unsigned braid_path_for(const struct braid_link *link, unsigned lane, uint64_t now)
{
	unsigned best = lane % link->npaths;

	braid_svc_assert_locked();
	for (unsigned i = 0; i < link->npaths; i++) {
		unsigned p = (lane + i) % link->npaths;

		if (now >= avoided_until(link, p))
			return p;
		if (avoided_until(link, p) < avoided_until(link, best))
			best = p;
	}
	return best;
}

void braid_path_bad(struct braid_link *link, unsigned path, uint64_t now)
{
	struct braid_path *p = &link->setup.path[path];

	braid_svc_assert_locked();
	if (link->npaths < 2)
		return;
	if (!p->hold_ms || (p->back_ns && braid_since(p->back_ns, now) > LASTS_MS * MS))
		p->hold_ms = HOLD_MS;
	else if (p->back_ns && p->hold_ms < HOLD_MAX_MS)
		p->hold_ms *= 2;
	p->back_ns = 0;
	if (!p->bad_until_ns)
		p->bad_since_ns = now;
	p->bad_until_ns = now + p->hold_ms * MS;
}

void braid_path_good(struct braid_link *link, unsigned path, uint64_t now)
{
	struct braid_path *p = &link->setup.path[path];

	braid_svc_assert_locked();
	if (p->bad_until_ns)
		p->back_ns = now;
	p->bad_until_ns = 0;
	if (p->reported)
		braid_info("device %s, peer %s: %s works again after %llu s",
			   link->key.dev->net.name, link->peer, p->dev->net.name,
			   (unsigned long long)seconds(braid_since(p->bad_since_ns, now)));
	p->reported = false;
}

static bool carries(const struct braid_link *link, unsigned path)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_up(link->lane[i]) && link->lane[i]->recover.path == path)
			return true;
	}
	return false;
}

static void report(struct braid_link *link, unsigned path, uint64_t now)
{
	/* One line is enough where thousands of links share a dead NIC. */
	static struct braid_log_gate gate[BRAID_NETDEVS_MAX];
	struct braid_path *p = &link->setup.path[path];
	const char *nic = p->dev->net.name;
	struct sockaddr_storage sa;
	char to[64];

	p->reported = true;
	braid_path_member(p, &sa);
	braid_addr_text(&sa, to, sizeof(to));
	if (braid_log_gate_open(&gate[p->dev->index % BRAID_NETDEVS_MAX], now))
		braid_warn("device %s, peer %s: no connection over %s to %s for %llu s: %s; the "
			   "other interfaces carry its share meanwhile [path-down]",
			   link->key.dev->net.name, link->peer, nic, to,
			   (unsigned long long)seconds(braid_since(p->bad_since_ns, now)),
			   braid_netdev_is_down(nic) ?
				   "that interface of this host is down, or has no carrier" :
				   "the path, or the peer's interface, is down");
}

void braid_paths_report(struct braid_link *link, uint64_t now)
{
	bool up = braid_lane_up(braid_link_home(link));

	braid_svc_assert_locked();
	for (unsigned i = 0; link->npaths > 1 && i < link->npaths; i++) {
		struct braid_path *p = &link->setup.path[i];

		if (!p->bad_until_ns || p->reported)
			continue;
		if (!up)			/* all are down: the silence is reported */
			p->bad_since_ns = now;
		else if (!carries(link, i) && braid_since(p->bad_since_ns, now) >= REPORT_MS * MS)
			report(link, i, now);
	}
}

void braid_path_plain(struct braid_link *link, unsigned path, bool worse, unsigned least_s,
		      uint64_t now)
{
	struct braid_path *p = &link->setup.path[path];
	bool first;

	braid_svc_assert_locked();
	if (now < p->plain_until_ns)	/* another lane met the same fault */
		return;
	first = !p->plain_ms || braid_since(p->plain_until_ns, now) > LASTS_MS * MS;
	if (first)
		p->plain_ms = HOLD_MS;
	else if (worse && p->plain_ms < HOLD_MAX_MS)
		p->plain_ms *= 2;
	p->plain_until_ns = now + p->plain_ms * MS;
	if (p->plain_until_ns < now + least_s * SEC)
		p->plain_until_ns = now + least_s * SEC;
	if (first || worse)		/* not of each try in a long outage */
		braid_event(BRAID_EVENT_PLAIN, link->number, BRAID_FLIGHT_NONE, path,
			    (int64_t)((p->plain_until_ns - now) / MS));
}

unsigned braid_path_corrupt(struct braid_link *link, unsigned path, bool better, uint64_t now)
{
	struct braid_path *p = &link->setup.path[path];
	struct braid_left *l = &p->left[better];

	braid_svc_assert_locked();
	if (now < l->until_ns)		/* there was no other way, or it is another lane */
		return 0;
	if (l->pause_s && braid_since(l->until_ns, now) <= CORRUPT_S * SEC) {
		l->pause_s = l->pause_s < LEFT_MAX_S ? l->pause_s * 2 : LEFT_MAX_S;
	} else {
		if (braid_since(l->first_ns, now) > CORRUPT_S * SEC)
			l->n = 0;
		if (!l->n++)
			l->first_ns = now;
		if (l->n < CORRUPT)
			return 0;
		l->pause_s = LEFT_S;
	}
	l->n = 0;
	l->until_ns = now + l->pause_s * SEC;
	if (better && p->plain_until_ns < l->until_ns) {
		p->plain_until_ns = l->until_ns;
		braid_event(BRAID_EVENT_PLAIN, link->number, BRAID_FLIGHT_NONE, path,
			    (int64_t)l->pause_s * 1000);
	}
	return l->pause_s;
}

static bool all_bad(const struct braid_link *link, uint64_t now)
{
	for (unsigned i = 0; i < link->npaths; i++) {
		if (now >= avoided_until(link, i))
			return false;
	}
	return true;
}

bool braid_path_dialled(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now)
{
	struct braid_path *p = &link->setup.path[c->path];

	braid_svc_assert_locked();
	if (c->way >= p->ways.n)
		return true;
	if (!err) {
		braid_way_worked(&p->ways, c->way);
		if (p->ways.way[c->way].loose)
			braid_bind_failed(link, &p->ways.way[c->way]);
		return false;
	}
	braid_way_failed(&p->ways, c->way, c->bound, c->state != BRAID_CONN_CONNECT, err);
	/* Another path is better than another way of this path, which may use a lesser network. */
	if (link->npaths > 1 && !all_bad(link, now))
		return true;
	return braid_ways_next(&p->ways, c->way);
}
