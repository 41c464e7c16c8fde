/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.c - see ports.h. */
#include "core/base/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/words.h"
#include "topo/sys.h"

#ifndef IPV6_AUTOFLOWLABEL
#define IPV6_AUTOFLOWLABEL 70
#endif
#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

/*
 * The kernel's local ports by default: a multiple of 16, from one on.  If an administrator chose
 * others, the kernel takes no notice of a wish outside them.
 */
enum { FIRST_LOCAL = 32768, LAST_LOCAL = 60991 };

/* States of a socket in /proc/net/tcp. */
enum { TIME_WAIT = 0x06, LISTENING = 0x0a };

/* --- the range ----------------------------------------------------------------------------- */

static bool range(uint16_t *low, uint16_t *high)
{
	const char *text = braid_param.port_range;

	return braid_ports_parse(text, low, high);
}

bool braid_ports_given(void)
{
	return *braid_param.port_range;
}

/* --- one port after the other -------------------------------------------------------------- */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

void braid_ports_begin(struct braid_ports *p)
{
	uint32_t r[2] = { 0 };
	uint16_t low, high;

	*p = (struct braid_ports){ .n = 1, .left = 1, .step = 1 };
	if (!range(&low, &high))
		return;
	braid_os->random(r, sizeof(r));		/* a failure costs only some collisions */
	p->first = low;
	p->n = p->left = (uint32_t)high - low + 1u;
	p->at = r[0] % p->n;
	p->step = r[1] % p->n + 1;
	while (common_divisor(p->step, p->n) != 1)
		p->step = p->step % p->n + 1;
}

bool braid_ports_next(struct braid_ports *p, uint16_t *ret)
{
	if (!p->left)
		return false;
	p->left--;
	*ret = (uint16_t)(p->first + p->at);
	p->at = (p->at + p->step) % p->n;
	return true;
}

unsigned braid_ports_bits(unsigned lane)
{
	/* Of two in a row all bits differ; of four, all pairs of neighbouring bits; and so on. */
	static const uint8_t bits[16] = { 0, 15, 5, 10, 3, 12, 6, 9, 1, 14, 4, 11, 2, 13, 7, 8 };

	return bits[lane % 16];
}

uint16_t braid_ports_wish(uint16_t base, unsigned lane)
{
	uint16_t low = FIRST_LOCAL, high = LAST_LOCAL, wish;

	range(&low, &high);
	wish = (uint16_t)(base ^ braid_ports_bits(lane));
	return (uint16_t)(low + wish % ((unsigned)high - low + 1u));
}

bool braid_ports_ask(int fd, uint16_t port)
{
	uint32_t only = (uint32_t)port << 16 | port;

	return !braid_os->setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &only, sizeof(only));
}

void braid_ports_label(int fd)
{
	int one = 1;

	braid_os->setsockopt(fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &one, sizeof(one));
}

void braid_ports_set(struct sockaddr *sa, uint16_t port)
{
	if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)sa)->sin_port = htons(port);
}

int braid_ports_bind(int fd, struct sockaddr *sa, socklen_t len, uint16_t port)
{
	int one = 1;

	braid_ports_set(sa, port);
	if (port && braid_ports_given())
		braid_os->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!braid_os->bind(fd, sa, len))
		return 0;
	return port && errno == EACCES ? -EADDRINUSE : -errno;
}

/* --- no port is left ----------------------------------------------------------------------- */

struct holders {
	unsigned listening, closing, connected;	/* sockets whose port is of the range */
	unsigned uid;			/* of the first that listens */
};

/* Add up the sockets of this network namespace, from one of the kernel's tables. */
static void count_holders(const char *path, unsigned low, unsigned high, struct holders *h)
{
	FILE *f = fopen(path, "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned port, state, uid;

		/* 0: ADDRESS:PORT ADDRESS:PORT STATE QUEUES TIMER RETRANSMITS UID */
		if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %u", &port, &state,
			   &uid) != 3 || port < low || port > high)
			continue;
		if (state == LISTENING && !h->listening++)
			h->uid = uid;
		h->closing += state == TIME_WAIT;
		h->connected += state != LISTENING && state != TIME_WAIT;
	}
	if (f)
		fclose(f);
}

void braid_ports_why(char *ret, size_t len)
{
	char name[BRAID_PARAM_VARIABLE], root[64] = "", user[40] = "";
	struct holders h = { 0 };
	uint16_t low = 0, high = 0;
	long start = 0;			/* the least port that every user may have */

	braid_sys_number("/proc/sys/net/ipv4/ip_unprivileged_port_start", 0, UINT16_MAX, &start);
	range(&low, &high);
	count_holders("/proc/self/net/tcp", low, high, &h);
	count_holders("/proc/self/net/tcp6", low, high, &h);
	if (low < start)
		snprintf(root, sizeof(root), "; below %ld only root may", start);
	if (h.listening)
		snprintf(user, sizeof(user), " (user %u)", h.uid);
	snprintf(ret, len, "no port of %s=%s is left: %u listen%s, %u connected, %u in "
		 "TIME-WAIT%s. Widen it, or end what ss -tanp shows [port-range]",
		 braid_param_variable("port_range", name), braid_param.port_range, h.listening,
		 user, h.connected, h.closing, root);
}
