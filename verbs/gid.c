/* SPDX-License-Identifier: BSD-3-Clause */
/* gid.c - see gid.h. */
#include "verbs/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };

const char *braid_gid_type_name(enum braid_gid_type type)
{
	return type == BRAID_GID_ROCE_V2 ? "RoCE v2" : type == BRAID_GID_ROCE_V1 ? "RoCE v1" : "IB";
}

static bool is_v4(const uint8_t *raw)
{
	return !memcmp(raw, v4_prefix, sizeof(v4_prefix));
}

void braid_gid_text(const uint8_t *raw, char *ret, size_t len)
{
	if (is_v4(raw))
		inet_ntop(AF_INET, raw + 12, ret, (socklen_t)len);
	else
		inet_ntop(AF_INET6, raw, ret, (socklen_t)len);
}

static bool is_link_local(const uint8_t *raw)
{
	return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
}

static bool is_zero(const uint8_t *raw)
{
	static const uint8_t zero[16];

	return !memcmp(raw, zero, sizeof(zero));
}

bool braid_gid_is_addr(const uint8_t *raw, const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return is_v4(raw) &&
		       !memcmp(raw + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return sa->sa_family == AF_INET6 &&
	       !memcmp(raw, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
}

int braid_gid_pref_parse(int family, const char *range, struct braid_gid_pref *ret)
{
	struct braid_gid_pref w = { .family = family };
	char text[INET6_ADDRSTRLEN], *end;
	size_t len = strcspn(range, "/");
	unsigned long bits;
	bool v4;

	*ret = w;
	if (!*range)
		return 0;
	if (len >= sizeof(text) || !range[len])
		return -EINVAL;
	snprintf(text, sizeof(text), "%.*s", (int)len, range);
	bits = strtoul(range + len + 1, &end, 10);
	v4 = inet_pton(AF_INET, text, w.range + 12) == 1;
	if (v4)
		memcpy(w.range, v4_prefix, sizeof(v4_prefix));
	else if (inet_pton(AF_INET6, text, w.range) != 1)
		return -EINVAL;
	if (end == range + len + 1 || *end || bits > (v4 ? 32 : 128))
		return -EINVAL;
	w.bits = (unsigned)bits + (v4 ? 96 : 0);
	w.has_range = true;
	*ret = w;
	return 0;
}

static bool is_wanted(const uint8_t *raw, const struct braid_gid_pref *w)
{
	if (w->family != AF_UNSPEC && is_v4(raw) != (w->family == AF_INET))
		return false;
	for (unsigned i = 0; w->has_range && i < w->bits; i++) {
		if ((raw[i / 8] ^ w->range[i / 8]) >> (7 - i % 8) & 1)
			return false;
	}
	return true;
}

/* 0: the entry can't be used; else a higher score is better.  *why: what speaks against it. */
static int score(const struct braid_gid *g, const struct sockaddr *addr, unsigned ifindex,
		 const struct braid_gid_pref *pref, const char **why)
{
	bool has_pref = pref && (pref->has_range || pref->family != AF_UNSPEC);
	int more = 0;

	if (is_zero(g->raw)) {
		*why = "empty";
		return 0;
	}
	if (has_pref && is_wanted(g->raw, pref))
		more = 10;
	if ((g->foreign || (g->ifindex && g->ifindex != ifindex)) && more && pref->has_range)
		return more;
	if (g->foreign) {
		*why = "not an address of this network namespace";
		return 0;
	}
	if (g->ifindex && g->ifindex != ifindex) {
		*why = "another interface's";
		return 0;
	}
	if (braid_gid_is_addr(g->raw, addr)) {
		*why = "not of the family or range that is asked for";
		return more + 5;
	}
	*why = "not the address in use";
	if (is_link_local(g->raw))
		return more + 1;
	/* The address family in use comes first. */
	return more + (is_v4(g->raw) == (addr->sa_family == AF_INET) ? 3 : 2);
}

static void add_reason(char *why, size_t len, const struct braid_gid *g, const char *reason)
{
	size_t at = why ? strlen(why) : 0;
	char text[INET6_ADDRSTRLEN];

	if (!why || at + 1 >= len)
		return;
	braid_gid_text(g->raw, text, sizeof(text));
	snprintf(why + at, len - at, "%s%u %s %s: %s", at ? "; " : "", g->index,
		 braid_gid_type_name(g->type), text, reason);
}

int braid_gid_choose(const struct braid_gid *table, unsigned n, enum braid_gid_type type,
		     const struct sockaddr *addr, unsigned ifindex, int forced,
		     const struct braid_gid_pref *pref, char *why, size_t len)
{
	int best = BRAID_GID_NONE, best_score = 0;

	if (why && len)
		why[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		const char *reason = "a better one is there";
		int s;

		if (forced != BRAID_GID_NONE) {
			if (table[i].index == (unsigned)forced && table[i].type == type)
				return (int)i;
			continue;
		}
		if (table[i].type != type)
			continue;
		s = score(&table[i], addr, ifindex, pref, &reason);
		if (s > best_score) {
			if (best != BRAID_GID_NONE)
				add_reason(why, len, &table[best], "a better one is there");
			best = (int)i;
			best_score = s;
		} else if (!is_zero(table[i].raw)) {
			add_reason(why, len, &table[i], reason);
		}
	}
	return best;
}
