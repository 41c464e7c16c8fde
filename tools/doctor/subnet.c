/* SPDX-License-Identifier: BSD-3-Clause */
/* subnet.c - see subnet.h. */
#include "config.h"

#include "tools/doctor/subnet.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIXES_MAX = 16 };

struct prefix {
	int version;			/* of IP */
	unsigned bits;
	uint8_t ip[16];
};

void subnets_read(struct doctor *d, struct subnets *ret)
{
	ret->routes = sys_text(d, NULL, "%s/net/route", sys_proc(d));
	ret->v6 = sys_text(d, NULL, "%s/net/if_inet6", sys_proc(d));
}

void subnets_free(struct subnets *s)
{
	free(s->routes);
	free(s->v6);
}

/* A line of the routing table, hexadecimal: a subnet without a gateway. */
static bool prefix4(const char *line, const char *name, struct prefix *ret)
{
	unsigned to, gateway, mask = UINT_MAX;
	size_t n = strlen(name);

	if (strncmp(line, name, n) != 0 ||
	    sscanf(line + n, "%x %x %*s %*s %*s %*s %x", &to, &gateway, &mask) < 2 || !to ||
	    gateway)
		return false;
	*ret = (struct prefix){ .version = 4, .bits = (unsigned)__builtin_popcount(mask) };
	memcpy(ret->ip, &to, sizeof(to));
	return true;
}

/* A line of the list of IPv6 addresses: one that is neither link-local nor alone in its subnet. */
static bool prefix6(const char *line, const char *name, struct prefix *ret)
{
	char digits[33], device[NAME_LEN];
	unsigned bits, scope;

	if (sscanf(line, "%32s %*x %x %x %*x %63s", digits, &bits, &scope, device) != 4 ||
	    strcmp(device, name) != 0 || scope || !bits || bits >= 128 || strlen(digits) != 32)
		return false;
	*ret = (struct prefix){ .version = 6, .bits = bits };
	for (unsigned i = 0; i < sizeof(ret->ip); i++)
		if (sscanf(digits + 2 * i, "%2hhx", &ret->ip[i]) != 1)
			return false;
	return true;
}

static unsigned prefixes(const struct subnets *s, const char *name, struct prefix *ret)
{
	unsigned n = 0;

	for (const char *p = s->routes; p && *p && n < PREFIXES_MAX; p = sys_next_line(p))
		n += prefix4(p, name, &ret[n]);
	for (const char *p = s->v6; p && *p && n < PREFIXES_MAX; p = sys_next_line(p))
		n += prefix6(p, name, &ret[n]);
	return n;
}

static bool meet(const struct prefix *a, const struct prefix *b)
{
	unsigned bits = a->bits < b->bits ? a->bits : b->bits;

	if (a->version != b->version)
		return false;
	for (unsigned i = 0; i < bits; i++)
		if ((a->ip[i / 8] ^ b->ip[i / 8]) & (0x80 >> i % 8))
			return false;
	return true;
}

int subnet_in_common(const struct subnets *s, const struct iface *a, const struct iface *b)
{
	struct prefix x[PREFIXES_MAX], y[PREFIXES_MAX];
	unsigned n = prefixes(s, a->name, x), m = prefixes(s, b->name, y);

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < m; k++)
			if (meet(&x[i], &y[k]))
				return x[i].version;
	return 0;
}
