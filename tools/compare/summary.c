/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * summary.c - which way wins where, in words.
 *
 * A way is not called a winner if its interval has 1 in it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/compare/compare.h"

struct text {
	char *at;
	size_t left;
};

static void add_text(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_text(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->at, t->left, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= t->left)
		n = t->left ? (int)t->left - 1 : 0;
	t->at += n;
	t->left -= (size_t)n;
}

void cmp_ratio_text(double x, char *room, size_t n)
{
	snprintf(room, n, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
}

static bool same_transport(const struct cmp_report *rep, int a, int b)
{
	return a == b || !strcmp(rep->ways[a].way.transport, rep->ways[b].way.transport);
}

/* Do two neighbouring sizes have the same result?  Between transports, lanes do not matter. */
static bool alike(const struct cmp_report *rep, const struct cmp_win *a, const struct cmp_win *b)
{
	if (a->sure != b->sure)
		return false;
	if (!a->sure)
		return true;
	if (same_transport(rep, a->way, a->next))
		return a->way == b->way;
	return same_transport(rep, a->way, b->way) && !same_transport(rep, b->way, b->next);
}

static void add_where(struct text *t, const struct cmp_win *w, int n, int all_before, int all_after)
{
	char a[24], b[24];

	perf_size_name(w[0].size, a);
	perf_size_name(w[n - 1].size, b);
	if (!all_before && !all_after)
		add_text(t, n > 1 ? "at every size" : "at %s", a);
	else if (n == 1)
		add_text(t, "at %s", a);
	else if (!all_before)
		add_text(t, "up to %s", b);
	else if (!all_after)
		add_text(t, "from %s on", a);
	else
		add_text(t, "from %s to %s", a, b);
}

/* The name for a range of sizes: with its lanes, if one way wins throughout. */
static const char *name_of(const struct cmp_report *rep, const struct cmp_win *w, int n)
{
	int i;

	for (i = 1; i < n; i++)
		if (w[i].way != w[0].way)
			return rep->ways[w[0].way].way.transport;
	return rep->ways[w[0].way].name;
}

static void add_range(struct text *t, const struct cmp_report *rep, const struct cmp_win *w, int n,
		      int before, int after)
{
	const struct cmp_win *most = w;
	char mid[8], lo[8], hi[8], size[24];
	int i;

	if (!w[0].sure) {
		add_text(t, "nobody is surely ahead ");
		if (n > 1 && !before && !after)
			add_text(t, "at any size");
		else
			add_where(t, w, n, before, after);
		return;
	}
	for (i = 1; i < n; i++)
		if (w[i].by.mid > most->by.mid)
			most = &w[i];
	cmp_ratio_text(most->by.mid, mid, sizeof(mid));
	cmp_ratio_text(most->by.lo, lo, sizeof(lo));
	cmp_ratio_text(most->by.hi, hi, sizeof(hi));
	add_text(t, "%s is ahead ", name_of(rep, w, n));
	add_where(t, w, n, before, after);
	add_text(t, ", %s%sx [%s..%s] %s", n > 1 ? "at most " : "", mid, lo, hi,
		 rep->ways[most->next].name);
	if (n > 1)
		add_text(t, " (at %s)", perf_size_name(most->size, size));
}

/* The sizes between which another transport takes the lead. */
static void add_crossings(struct text *t, const struct cmp_report *rep, const struct cmp_win *w,
			  int n)
{
	const struct cmp_win *last = NULL;
	char a[24], b[24];
	int i;

	for (i = 0; i < n; i++) {
		if (!w[i].sure)
			continue;
		if (last && !same_transport(rep, last->way, w[i].way))
			add_text(t, " The winner changes between %s and %s: %s, then %s.",
				 perf_size_name(last->size, a), perf_size_name(w[i].size, b),
				 rep->ways[last->way].way.transport,
				 rep->ways[w[i].way].way.transport);
		last = &w[i];
	}
}

void cmp_summary(const struct cmp_report *rep, enum perf_pattern pattern, char *ret)
{
	struct text t = { ret, CMP_SUMMARY };
	struct cmp_win w[PERF_SIZES_MAX];
	int i, from, n = cmp_wins(rep, pattern, w);

	*ret = 0;
	if (n == 0)
		return;
	add_text(&t, "%s: ", perf_kinds[pattern].name);
	for (from = 0; from < n; from = i) {
		for (i = from + 1; i < n && alike(rep, &w[from], &w[i]);)
			i++;
		if (from)
			add_text(&t, "; ");
		add_range(&t, rep, w + from, i - from, from, n - i);
	}
	add_text(&t, ".");
	add_crossings(&t, rep, w, n);
}
