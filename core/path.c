/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - see path.h. */
#include "core/path.h"

#include <string.h>

#include "core/flight.h"
#include "core/link.h"
#include "core/service_int.h"

enum {
	HOLD_MS = 2000, HOLD_MAX_MS = 60000,
	LASTS_MS = 10000,		/* lost sooner than that: it flaps */
};

static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };

static bool is_v4(const struct braid_addr *a)
{
	return !memcmp(a->ip, v4_prefix, sizeof(v4_prefix));
}

static struct braid_addr addr_v4(const void *ip, uint16_t port)
{
	struct braid_addr a = { .port = port };

	memcpy(a.ip, v4_prefix, sizeof(v4_prefix));
	memcpy(a.ip + sizeof(v4_prefix), ip, 4);
	return a;
}

static struct braid_addr addr_v6(const void *ip, uint16_t port)
{
	struct braid_addr a = { .port = port };

	memcpy(a.ip, ip, sizeof(a.ip));
	return a;
}

struct braid_addr braid_addr_of(const struct sockaddr *sa)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	return sa->sa_family == AF_INET ? addr_v4(&in->sin_addr, ntohs(in->sin_port)) :
					  addr_v6(&in6->sin6_addr, ntohs(in6->sin6_port));
}

socklen_t braid_path_sockaddr(const struct braid_path *p, struct sockaddr_storage *ret)
{
	const struct braid_netdev *net = &p->dev->net;

	memset(ret, 0, sizeof(*ret));
	if (!p->to.port || is_v4(&p->to) != (net->addr.sa.sa_family == AF_INET))
		return 0;
	if (is_v4(&p->to)) {
		struct sockaddr_in *in = (struct sockaddr_in *)ret;

		in->sin_family = AF_INET;
		in->sin_port = htons(p->to.port);
		memcpy(&in->sin_addr, p->to.ip + 12, 4);
		return sizeof(*in);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(p->to.port);
		memcpy(&in6->sin6_addr, p->to.ip, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			in6->sin6_scope_id = net->ifindex;
		return sizeof(*in6);
	}
}

/* --- which there are ----------------------------------------------------------------------- */

void braid_path_first(struct braid_link *link, const struct braid_handle *to)
{
	struct braid_path *p = &link->path[0];

	link->npaths = 1;
	p->dev = link->key.dev->member[0];
	if (to->has4 && p->dev->net.addr.sa.sa_family == AF_INET)
		p->to = addr_v4(to->addr4, to->port);
	else if (to->has6 && p->dev->net.addr.sa.sa_family == AF_INET6)
		p->to = addr_v6(to->addr6, to->port);
}

static bool same_subnet(const struct braid_dev *dev, const struct braid_addr *a)
{
	struct braid_addr ours = braid_addr_of(&dev->net.addr.sa);
	unsigned bits = dev->net.prefix + (is_v4(&ours) ? 96 : 0);

	if (is_v4(&ours) != is_v4(a) || memcmp(ours.ip, a->ip, bits / 8))
		return false;
	return !(bits % 8) || !((ours.ip[bits / 8] ^ a->ip[bits / 8]) >> (8 - bits % 8));
}

static bool is_near(const struct braid_path *p)
{
	return same_subnet(p->dev, &p->to);
}

/*
 * A member of the peer's in none of our subnets is left alone, if others are in one: sockets go by
 * routes, and get there all the same; what goes out of an RDMA port need not.
 */
static void drop_far(struct braid_link *link)
{
	unsigned n = 0;

	for (unsigned i = 0; i < link->npaths; i++) {
		if (is_near(&link->path[i]))
			link->path[n++] = link->path[i];
	}
	if (n)
		link->npaths = n;
}

void braid_paths_all(struct braid_link *link, const struct braid_addr *at,
		     const struct braid_hello *theirs)
{
	const struct braid_dev *dev = link->key.dev;
	struct braid_addr to[BRAID_PATHS_MAX] = { *at };
	unsigned n = 1;

	for (unsigned i = 0; i < BRAID_PATHS_MAX - 1 && theirs->more[i].port; i++)
		to[n++] = theirs->more[i];
	link->npaths = dev->nmembers > n ? dev->nmembers : n;
	for (unsigned i = 0; i < link->npaths; i++) {
		struct braid_path *p = &link->path[i];

		*p = (struct braid_path){ .dev = dev->member[i % dev->nmembers], .to = to[i % n] };
		/*
		 * The longer row is gone through; of the other the one in the same subnet, and of
		 * several there the one of the same place: ports may share an address.
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
}

void braid_paths_tell(struct braid_dev *dev, const struct braid_dev *met, struct braid_hello *h)
{
	unsigned n = 0;

	for (unsigned i = 0; i < dev->nmembers; i++) {
		struct braid_dev *m = dev->member[i];
		uint16_t port = braid_port(m);

		if (m == met) {
			h->port = port;
		} else if (port && n < BRAID_PATHS_MAX - 1) {
			h->more[n] = braid_addr_of(&m->net.addr.sa);
			h->more[n++].port = port;
		}
	}
}

/* --- which of them works ------------------------------------------------------------------- */

unsigned braid_path_for(const struct braid_link *link, unsigned lane, uint64_t now)
{
	unsigned best = lane % link->npaths;

	for (unsigned i = 0; i < link->npaths; i++) {
		unsigned p = (lane + i) % link->npaths;

		if (now >= link->path[p].bad_until_ns)
			return p;
		if (link->path[p].bad_until_ns < link->path[best].bad_until_ns)
			best = p;
	}
	return best;
}

void braid_path_bad(struct braid_link *link, unsigned path, uint64_t now)
{
	struct braid_path *p = &link->path[path];

	if (link->npaths < 2)
		return;
	if (!p->hold_ms || (p->back_ns && now - p->back_ns > LASTS_MS * MS))
		p->hold_ms = HOLD_MS;
	else if (p->back_ns && p->hold_ms < HOLD_MAX_MS)
		p->hold_ms *= 2;
	p->back_ns = 0;
	p->bad_until_ns = now + p->hold_ms * MS;
}

void braid_path_good(struct braid_link *link, unsigned path, uint64_t now)
{
	struct braid_path *p = &link->path[path];

	if (p->bad_until_ns)
		p->back_ns = now;
	p->bad_until_ns = 0;
}

void braid_path_plain(struct braid_link *link, unsigned path, bool worse, unsigned least_s,
		      uint64_t now)
{
	struct braid_path *p = &link->path[path];

	if (now < p->plain_until_ns)	/* another lane, the same fault */
		return;
	if (!p->plain_ms || now - p->plain_until_ns > LASTS_MS * MS)
		p->plain_ms = HOLD_MS;
	else if (worse && p->plain_ms < HOLD_MAX_MS)
		p->plain_ms *= 2;
	p->plain_until_ns = now + p->plain_ms * MS;
	if (p->plain_until_ns < now + least_s * SEC)
		p->plain_until_ns = now + least_s * SEC;
	braid_event(BRAID_EVENT_PLAIN, link->number, BRAID_FLIGHT_NONE, path,
		    (int64_t)((p->plain_until_ns - now) / MS));
}
