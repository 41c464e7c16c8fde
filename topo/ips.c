/* SPDX-License-Identifier: BSD-3-Clause */
/* ips.c - see ips.h. */
#include "topo/ips.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBNETS_MAX = 16 };

/* The flags of /proc/net/if_inet6, from linux/if_addr.h, which clashes with net/if.h. */
enum {
	V6_TEMPORARY = 0x01,
	V6_OPTIMISTIC = 0x04,
	V6_DADFAILED = 0x08,
	V6_DEPRECATED = 0x20,
	V6_TENTATIVE = 0x40,
};

/* How good an address is; less is better. */
enum rank {
	RANK_V4,
	RANK_V4_HOST,
	RANK_V6,
	RANK_V6_TEMPORARY,		/* expires within days; a job may run longer */
	RANK_V6_LOCAL,
	RANK_V6_LOCAL_TEMPORARY,
	RANK_V6_HOST,
	RANK_V4_LINK_LOCAL,		/* from here on not routable */
	RANK_V6_LINK_LOCAL,
	RANK_LOOPBACK,
	RANK_NONE,
};

struct v6_row {
	struct in6_addr addr;
	char name[BRAID_NETDEV_NAME];
	unsigned flags;
};

struct braid_v6_flags {
	size_t n;
	struct v6_row *row;
};

struct subnet {
	int family;
	uint8_t ip[16];
	unsigned bits;
};

static struct {
	bool exclude;
	unsigned n;
	struct subnet subnet[SUBNETS_MAX];
} wanted;

/* --- the kernel's flags -------------------------------------------------------------------- */

/* 32 hex digits, as in /proc/net/if_inet6. */
static void parse_v6(const char *hex, struct in6_addr *ret)
{
	for (int i = 0; i < 16; i++) {
		char pair[3] = { hex[2 * i], hex[2 * i + 1] };

		ret->s6_addr[i] = (uint8_t)strtoul(pair, NULL, 16);
	}
}

static int flags_add(struct braid_v6_flags *f, const struct v6_row *row, size_t *room)
{
	struct v6_row *grown;

	if (f->n == *room) {
		*room = *room ? 2 * *room : 16;
		grown = realloc(f->row, *room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		f->row = grown;
	}
	f->row[f->n++] = *row;
	return 0;
}

int braid_v6_flags_load(const char *sysroot, struct braid_v6_flags **ret)
{
	struct braid_v6_flags *f = calloc(1, sizeof(*f));
	char path[PATH_MAX], line[256], hex[33];
	struct v6_row row;
	size_t room = 0;
	int err = 0;
	FILE *file;

	if (!f)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/proc/net/if_inet6", sysroot);
	file = fopen(path, "re");
	while (file && !err && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%32[0-9a-fA-F] %*x %*x %*x %x %15s", hex, &row.flags,
			   row.name) != 3 || strlen(hex) != 32)
			continue;
		parse_v6(hex, &row.addr);
		err = flags_add(f, &row, &room);
	}
	if (file)
		fclose(file);
	if (err) {
		braid_v6_flags_free(f);
		return err;
	}
	*ret = f;
	return 0;
}

void braid_v6_flags_free(struct braid_v6_flags *f)
{
	if (f)
		free(f->row);
	free(f);
}

static unsigned flags_of(const struct braid_v6_flags *f, const char *name,
			 const struct in6_addr *addr)
{
	for (size_t i = 0; f && i < f->n; i++) {
		if (!strcmp(f->row[i].name, name) &&
		    !memcmp(&f->row[i].addr, addr, sizeof(*addr)))
			return f->row[i].flags;
	}
	return 0;
}

/* --- subnets that the user asked for ------------------------------------------------------- */

static const void *bytes_of(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET ?
		       (const void *)&((const struct sockaddr_in *)sa)->sin_addr :
		       (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	return !memcmp(a, b, bits / 8) &&
	       (bits % 8 == 0 || !((a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8)));
}

static int subnet_parse(const char *text, size_t len, struct subnet *ret)
{
	char word[64], *slash, *end = NULL;
	unsigned long bits = 0;

	if (!len || len >= sizeof(word))
		return -EINVAL;
	memcpy(word, text, len);
	word[len] = '\0';
	slash = strchr(word, '/');
	if (slash)
		*slash++ = '\0';
	memset(ret, 0, sizeof(*ret));
	ret->family = strchr(word, ':') ? AF_INET6 : AF_INET;
	ret->bits = ret->family == AF_INET ? 32 : 128;
	if (inet_pton(ret->family, word, ret->ip) != 1)
		return -EINVAL;
	if (slash) {
		bits = strtoul(slash, &end, 10);
		if (*slash < '0' || *slash > '9' || *end || bits > ret->bits)
			return -EINVAL;
		ret->bits = (unsigned)bits;
	}
	return 0;
}

int braid_ips_choose(const char *text)
{
	__typeof__(wanted) w = { .n = 0 };

	text += strspn(text, " \t");
	w.exclude = *text == '^';
	text += w.exclude;
	while (*(text += strspn(text, " \t,"))) {
		size_t len = strcspn(text, " \t,");

		if (w.n == SUBNETS_MAX || subnet_parse(text, len, &w.subnet[w.n++]))
			return -EINVAL;
		text += len;
	}
	wanted = w;
	return 0;
}

/* The position of the address's subnet in the user's list; -1: the user does not want it. */
static int place_of(const struct sockaddr *sa)
{
	unsigned i;

	for (i = 0; i < wanted.n; i++) {
		const struct subnet *s = &wanted.subnet[i];

		if (s->family == sa->sa_family && same_bits(s->ip, bytes_of(sa), s->bits))
			break;
	}
	if (!wanted.n || (wanted.exclude && i == wanted.n))
		return 0;
	return wanted.exclude || i == wanted.n ? -1 : (int)i;
}

/* --- the list ------------------------------------------------------------------------------ */

static enum rank rank_v4(const struct sockaddr *sa, unsigned prefix)
{
	uint32_t a = ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr);

	if (a == INADDR_ANY)
		return RANK_NONE;
	if (a >> 24 == 127)
		return RANK_LOOPBACK;
	if (a >> 16 == 0xa9fe)
		return RANK_V4_LINK_LOCAL;
	return prefix == 32 ? RANK_V4_HOST : RANK_V4;
}

static enum rank rank_v6(const struct sockaddr *sa, unsigned prefix, unsigned flags)
{
	const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;
	bool temporary = flags & V6_TEMPORARY;

	if (IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_MULTICAST(a) || IN6_IS_ADDR_V4MAPPED(a) ||
	    flags & (V6_DEPRECATED | V6_DADFAILED))
		return RANK_NONE;
	if (IN6_IS_ADDR_LOOPBACK(a))
		return RANK_LOOPBACK;
	if (IN6_IS_ADDR_LINKLOCAL(a))
		return RANK_V6_LINK_LOCAL;
	if (prefix == 128)
		return RANK_V6_HOST;
	if ((a->s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_SITELOCAL(a))
		return temporary ? RANK_V6_LOCAL_TEMPORARY : RANK_V6_LOCAL;
	return temporary ? RANK_V6_TEMPORARY : RANK_V6;
}

static unsigned prefix_of(const struct sockaddr *mask)
{
	const uint8_t *p = mask ? bytes_of(mask) : NULL;
	unsigned n = !mask ? 0 : mask->sa_family == AF_INET ? 32 :
		     mask->sa_family == AF_INET6 ? 128 : 0, bits = 0;

	while (bits < n && p[bits / 8] >> (7 - bits % 8) & 1)
		bits++;
	return bits;
}

bool braid_netdev_same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	union braid_netdev_addr x, y;
	size_t len = a->sa_family == AF_INET ? sizeof(x.in) : sizeof(x.in6);

	if (a->sa_family != b->sa_family)
		return false;
	memcpy(&x, a, len);
	memcpy(&y, b, len);
	if (a->sa_family == AF_INET)
		return x.in.sin_addr.s_addr == y.in.sin_addr.s_addr;
	return !memcmp(&x.in6.sin6_addr, &y.in6.sin6_addr, sizeof(x.in6.sin6_addr));
}

const char *braid_ip_text(const union braid_netdev_addr *a, char *ret, size_t len)
{
	if (!inet_ntop(a->sa.sa_family,
		       a->sa.sa_family == AF_INET ? (const void *)&a->in.sin_addr :
						    (const void *)&a->in6.sin6_addr,
		       ret, (socklen_t)len))
		snprintf(ret, len, "?");
	return ret;
}

void braid_ip_give_scope(union braid_netdev_addr *a, unsigned ifindex)
{
	if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr) &&
	    !a->in6.sin6_scope_id)
		a->in6.sin6_scope_id = ifindex;
}

static void insert(struct braid_ips *ips, int rank, const struct braid_netdev_ip *ip)
{
	unsigned at = 0;

	for (unsigned i = 0; i < ips->n; i++) {
		if (braid_netdev_same_ip(&ips->ip[i].addr.sa, &ip->addr.sa))
			return;
	}
	while (at < ips->n && ips->rank[at] <= rank)
		at++;
	if (at == BRAID_NETDEV_IPS)
		return;
	if (ips->n < BRAID_NETDEV_IPS)
		ips->n++;
	for (unsigned i = ips->n - 1; i > at; i--) {
		ips->ip[i] = ips->ip[i - 1];
		ips->rank[i] = ips->rank[i - 1];
	}
	ips->ip[at] = *ip;
	ips->rank[at] = rank;
}

void braid_ips_add(struct braid_ips *ips, int family, const struct braid_v6_flags *flags,
		   const char *name, const struct sockaddr *sa, const struct sockaddr *mask)
{
	struct braid_netdev_ip ip = { .prefix = prefix_of(mask) };
	enum rank rank;
	unsigned f;
	int place;

	if ((sa->sa_family != AF_INET && sa->sa_family != AF_INET6) ||
	    (family != AF_UNSPEC && sa->sa_family != family))
		return;
	place = place_of(sa);
	if (sa->sa_family == AF_INET) {
		ip.addr.in = *(const struct sockaddr_in *)sa;
		rank = rank_v4(sa, ip.prefix);
	} else {
		ip.addr.in6 = *(const struct sockaddr_in6 *)sa;
		f = flags_of(flags, name, &ip.addr.in6.sin6_addr);
		rank = rank_v6(sa, ip.prefix, f);
		if (rank != RANK_NONE && f & V6_TENTATIVE && !(f & V6_OPTIMISTIC)) {
			ips->tentative |= place >= 0 && rank < RANK_V4_LINK_LOCAL;
			return;
		}
	}
	ips->refused |= rank != RANK_NONE && place < 0;
	if (rank == RANK_NONE || place < 0)
		return;
	/* The user's order decides first, but addresses that are not routable stay last. */
	insert(ips, (int)rank + RANK_NONE * (place + (rank < RANK_V4_LINK_LOCAL ? 0 : SUBNETS_MAX)),
	       &ip);
}

void braid_ips_done(struct braid_ips *ips)
{
	int first = ips->n ? ips->rank[0] % RANK_NONE : RANK_NONE;

	ips->routable = first < RANK_V4_LINK_LOCAL;
	ips->link_local = first == RANK_V4_LINK_LOCAL || first == RANK_V6_LINK_LOCAL;
	while (ips->n) {
		int last = ips->rank[ips->n - 1] % RANK_NONE;

		if (!(ips->routable && last >= RANK_V4_LINK_LOCAL) &&
		    !(ips->link_local && last == RANK_LOOPBACK))
			break;
		ips->n--;
	}
}

bool braid_ip_near(const struct braid_netdev_ip *ip, const struct sockaddr *sa)
{
	return ip->prefix && sa->sa_family == ip->addr.sa.sa_family &&
	       same_bits(bytes_of(&ip->addr.sa), bytes_of(sa), ip->prefix);
}
