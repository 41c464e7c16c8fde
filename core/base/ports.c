/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.c - see ports.h. */
#include "core/base/ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"

enum { TRIES_MAX = 4096 };		/* ports in a row that are taken: the range is full */

static _Atomic uint32_t range;		/* the first port, times 65536, and the last; 0: none */

int braid_ports_choose(const char *text)
{
	unsigned first, last;
	int end = 0;

	atomic_store(&range, 0);
	if (!*text)
		return 0;
	if (strspn(text, "0123456789-") != strlen(text) ||
	    sscanf(text, "%5u-%5u%n", &first, &last, &end) != 2 || text[end] || !first ||
	    first > last || last > UINT16_MAX)
		return -EINVAL;
	atomic_store(&range, first << 16 | last);
	return 0;
}

const char *braid_ports_range(char *text, size_t len)
{
	uint32_t r = atomic_load(&range);

	snprintf(text, len, "%u-%u", r >> 16, r & 0xffff);
	return r ? text : NULL;
}

void braid_ports_begin(struct braid_ports *p, unsigned tries)
{
	uint32_t r = atomic_load(&range), n = (r & 0xffff) - (r >> 16) + 1, random = 0;

	*p = (struct braid_ports){ .left = tries };
	if (!r)
		return;
	braid_os->random(&random, sizeof(random));
	p->now = (uint16_t)((r >> 16) + random % n);
	p->left = n < TRIES_MAX ? n : TRIES_MAX;
}

bool braid_ports_next(struct braid_ports *p, uint16_t *ret)
{
	uint32_t r = atomic_load(&range);

	if (!p->left)
		return false;
	p->left--;
	*ret = p->now;
	if (p->now)
		p->now = p->now == (r & 0xffff) ? (uint16_t)(r >> 16) : (uint16_t)(p->now + 1);
	return true;
}

int braid_ports_bind(int fd, const struct sockaddr *at, socklen_t len)
{
	struct sockaddr_storage sa = { 0 };
	struct braid_ports p;
	uint16_t port;
	int err = -EADDRINUSE;

	memcpy(&sa, at, len);
	braid_ports_begin(&p, 1);
	while (err == -EADDRINUSE && braid_ports_next(&p, &port)) {
		if (sa.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&sa)->sin6_port = htons(port);
		else
			((struct sockaddr_in *)&sa)->sin_port = htons(port);
		err = braid_os->bind(fd, (struct sockaddr *)&sa, len) ? -errno : 0;
	}
	return err;
}
