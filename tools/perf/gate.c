/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gate.c - admits clients that prove a listener's key: see key.h.
 *
 * Connections that have proved nothing are kept in a small table, for a few seconds at most, and
 * get no process of their own.  If the table is full, the oldest connection of the address that has
 * most of them is closed.  So an address that fills the table shuts out only itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/key_int.h"
#include "tools/perf/stat.h"

enum { HALVES = 64, OF_ONE_SOURCE = 32, CLAIM_MS = 3000, FULL_MS = 100 };

struct half {				/* a connection that has proved nothing yet */
	int fd;				/* -1: free */
	uint64_t until_ns;
	uint8_t source[8];		/* the IPv4 address, or the IPv6 network (/64) */
	uint8_t nonce[GATE_NONCE];
	struct gate_claim claim;
	size_t have;
};

struct perf_gate {
	int listen_fd;
	uint8_t key[PERF_KEY];
	uint64_t full_ns;		/* no descriptor was left: accept none until then */
	struct half half[HALVES];
};

struct perf_gate *perf_gate_new(int listen_fd, const struct perf_key *key)
{
	struct perf_gate *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	if (fcntl(listen_fd, F_SETFL, O_NONBLOCK) != 0) {
		free(g);
		return NULL;
	}
	g->listen_fd = listen_fd;
	memcpy(g->key, key->bytes, sizeof(g->key));
	for (int i = 0; i < HALVES; i++)
		g->half[i].fd = -1;
	return g;
}

static void half_close(struct half *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}

void perf_gate_free(struct perf_gate *g)
{
	if (!g)
		return;
	for (int i = 0; i < HALVES; i++)
		half_close(&g->half[i]);
	sodium_memzero(g, sizeof(*g));
	free(g);
}

/* -- room in the table -------------------------------------------------------------------- */

static void source_of(const struct sockaddr_storage *sa, uint8_t ret[8])
{
	const struct sockaddr_in6 *in6 = (const void *)sa;
	const struct sockaddr_in *in = (const void *)sa;

	memset(ret, 0, 8);
	if (sa->ss_family == AF_INET)
		memcpy(ret, &in->sin_addr, 4);
	else if (sa->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(ret, &in6->sin6_addr.s6_addr[12], 4);
	else if (sa->ss_family == AF_INET6)
		memcpy(ret, &in6->sin6_addr, 8);
}

static int count_of(const struct perf_gate *g, const uint8_t source[8])
{
	int n = 0;

	for (int i = 0; i < HALVES; i++)
		n += g->half[i].fd >= 0 && memcmp(g->half[i].source, source, 8) == 0;
	return n;
}

static struct half *oldest_of(struct perf_gate *g, const uint8_t source[8])
{
	struct half *ret = NULL, *h;

	for (h = g->half; h < g->half + HALVES; h++) {
		if (h->fd >= 0 && memcmp(h->source, source, 8) == 0 &&
		    (!ret || h->until_ns < ret->until_ns))
			ret = h;
	}
	return ret;
}

static struct half *crowd_oldest(struct perf_gate *g)
{
	int most = 0, n, at = 0;

	for (int i = 0; i < HALVES; i++) {
		n = count_of(g, g->half[i].source);
		if (n > most) {
			most = n;
			at = i;
		}
	}
	return oldest_of(g, g->half[at].source);
}

static struct half *room_for(struct perf_gate *g, const uint8_t source[8])
{
	struct half *h;

	if (count_of(g, source) >= OF_ONE_SOURCE) {
		h = oldest_of(g, source);
		half_close(h);
		return h;
	}
	for (h = g->half; h < g->half + HALVES; h++) {
		if (h->fd < 0)
			return h;
	}
	h = crowd_oldest(g);
	half_close(h);
	return h;
}

/* -- a stranger --------------------------------------------------------------------------- */

/* Connections that wait keep the listening socket readable, so poll() must not watch it. */
static void no_descriptor(struct perf_gate *g)
{
	struct half *h = crowd_oldest(g);

	if (h)
		half_close(h);		/* a new connection may have the key */
	else
		g->full_ns = perf_now_ns() + FULL_MS * UINT64_C(1000000);
}

static void accept_half(struct perf_gate *g)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int fd = accept4(g->listen_fd, (struct sockaddr *)&sa, &len, SOCK_CLOEXEC);
	struct gate_greet greet;
	uint8_t source[8];
	struct half *h;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			no_descriptor(g);
		return;
	}
	source_of(&sa, source);
	h = room_for(g, source);
	*h = (struct half){ .fd = fd, .until_ns = perf_now_ns() + CLAIM_MS * UINT64_C(1000000) };
	memcpy(h->source, source, sizeof(h->source));
	randombytes_buf(h->nonce, sizeof(h->nonce));
	memcpy(greet.magic, gate_magic, GATE_MAGIC);
	memcpy(greet.nonce, h->nonce, GATE_NONCE);
	if (send(fd, &greet, sizeof(greet), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(greet))
		half_close(h);
}

/* The claim is complete: return its socket if it proves the key, else -1. */
static int answer_claim(struct perf_gate *g, struct half *h, bool busy)
{
	struct gate_grant grant = { .status = { busy ? GATE_BUSY : GATE_SERVES } };
	uint8_t mac[PERF_KEY];
	bool proved;
	int fd = h->fd;

	gate_claim_mac(g->key, h->nonce, &h->claim, mac);
	proved = memcmp(h->claim.magic, gate_magic, GATE_MAGIC) == 0 &&
		 perf_mac_equal(mac, h->claim.mac);
	memcpy(grant.magic, gate_magic, GATE_MAGIC);
	if (proved)
		gate_grant_mac(g->key, h->nonce, &h->claim, &grant, grant.mac);
	else
		grant.status[0] = GATE_REFUSES;
	h->fd = -1;
	if (send(fd, &grant, sizeof(grant), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(grant) &&
	    proved && !busy)
		return fd;
	close(fd);
	return -1;
}

static int read_claim(struct perf_gate *g, struct half *h, bool busy)
{
	ssize_t n = recv(h->fd, (char *)&h->claim + h->have, sizeof(h->claim) - h->have,
			 MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		half_close(h);
	if (n <= 0)
		return -1;
	h->have += (size_t)n;
	return h->have == sizeof(h->claim) ? answer_claim(g, h, busy) : -1;
}

/* poll() refuses more entries than the limit on descriptors, so free slots are left out. */
static nfds_t to_watch(struct perf_gate *g, uint64_t now, struct pollfd *p, struct half **polled)
{
	nfds_t n = 0;

	for (struct half *h = g->half; h < g->half + HALVES; h++) {
		if (h->fd >= 0 && now > h->until_ns)
			half_close(h);
		if (h->fd < 0)
			continue;
		polled[n] = h;
		p[n++] = (struct pollfd){ .fd = h->fd, .events = POLLIN };
	}
	polled[n] = NULL;
	p[n] = (struct pollfd){ .fd = now < g->full_ns ? -1 : g->listen_fd, .events = POLLIN };
	return n + 1;
}

int perf_gate_next(struct perf_gate *g, bool busy, int timeout_ms)
{
	uint64_t now, end_ns = perf_now_ns() + (uint64_t)timeout_ms * 1000000;
	struct half *polled[HALVES + 1];
	struct pollfd p[HALVES + 1];
	nfds_t n;
	int fd;

	while ((now = perf_now_ns()) < end_ns) {
		n = to_watch(g, now, p, polled);
		if (poll(p, n, (int)((end_ns - now) / 1000000) + 1) <= 0)
			continue;
		for (nfds_t i = 0; i < n; i++) {
			if (!p[i].revents)
				continue;
			fd = polled[i] ? read_claim(g, polled[i], busy) : (accept_half(g), -1);
			if (fd >= 0)
				return fd;
		}
	}
	return -1;
}
