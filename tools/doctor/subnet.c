/* SPDX-License-Identifier: BSD-3-Clause */
/* subnet.c - which interfaces are in one subnet, and the problems that causes. */
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

/* Parse a line of the routing table, in hexadecimal: a subnet without a gateway. */
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

/* Parse a line of the list of IPv6 addresses: not link-local, and not alone in its subnet. */
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

/* May packets leave by the interface, chosen or not? */
static bool carries(const struct iface *f)
{
	return f->up && f->addressed && !f->slave && !f->loopback;
}

static void subnets(struct doctor *d)
{
	const struct iface *f, *a;
	unsigned n = doctor_ifaces(d, &f), others = 0;
	bool found = false;
	struct subnets all;
	int version;

	subnets_read(d, &all);
	for (unsigned i = 0; i < n; i++)
		others += carries(&f[i]);
	for (unsigned i = 0; others > 1 && (a = doctor_chosen(d, i)); i++) {
		for (unsigned k = 0; k < n; k++) {
			const struct iface *b = &f[k];

			/* A pair of chosen interfaces comes up twice; take it once. */
			if (b == a || !carries(b) || (b->chosen && b < a) ||
			    !(version = subnet_in_common(&all, a, b)))
				continue;
			found = true;
			doctor_find(d, LEVEL_WARN, "%s and %s are in one subnet: routes send all "
				    "by one of them%s", a->name, b->name,
				    version == 4 ? ", and each answers ARP for both" : "");
			doctor_mend(d, "ip route show dev %s   # a subnet of its own, or policy "
				    "routing (ip rule)", b->name);
		}
	}
	if (others < 2)
		doctor_skip(d, "not several interfaces");
	else if (!found)
		doctor_ok(d, "each interface has a subnet of its own");
	subnets_free(&all);
}

static void rp_filter(struct doctor *d)
{
	const struct iface *f;
	long long all = 0, own;
	bool seen = false;

	if (!doctor_chosen(d, 1)) {
		doctor_skip(d, "not several interfaces");
		return;
	}
	sys_number(d, &all, "/proc/sys/net/ipv4/conf/all/rp_filter");
	for (unsigned i = 0; (f = doctor_chosen(d, i)); i++) {
		if (!sys_number(d, &own, "/proc/sys/net/ipv4/conf/%s/rp_filter", f->name))
			continue;
		seen = true;
		if ((own > all ? own : all) != 1) {
			doctor_ok(d, "%s takes packets from any path", f->name);
			continue;
		}
		doctor_find(d, LEVEL_WARN, "%s drops what came by another path than it would "
			    "answer", f->name);
		doctor_mend(d, "sudo sysctl -w net.ipv4.conf.%s.rp_filter=2", f->name);
	}
	if (!seen)
		doctor_skip(d, "the kernel does not tell");
}

const struct check doctor_subnet[] = {
	{ "net-subnet", "Subnets of the interfaces",
	  "The kernel answers for all of them by any, and sends by the first route", subnets },
	{ "net-path-filter", "Reverse path filter",
	  "With several interfaces, what comes by the second may be dropped without a word",
	  rp_filter },
	{ NULL, NULL, NULL, NULL },
};
