/* SPDX-License-Identifier: BSD-3-Clause */
/* slowest.c - see slowest.h. */
#include "tools/watch/slowest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hist.h"
#include "tools/text.h"
#include "tools/watch/process.h"

enum {
	LEAST = 10,			/* fewer times say nothing */
	WRAPPED = 4,
};

enum what { LARGE, SMALL, LANE, NIC, WHATS };

struct entry {
	enum what what;
	char key[160];			/* the same in each report */
	char name[400], brief[300];	/* for people */
	struct braid_hist h;
};

struct slowest {
	struct entry *e;
	size_t n, room;
};

struct slowest *slowest_new(void)
{
	return calloc(1, sizeof(struct slowest));
}

void slowest_free(struct slowest *s)
{
	if (s)
		free(s->e);
	free(s);
}

/* -- what reports say ------------------------------------------------------------------------- */

static const struct entry *find(const struct slowest *s, const struct entry *e, size_t near)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct entry *x = &s->e[(near + i) % s->n];

		if (x->what == e->what && strcmp(x->key, e->key) == 0)
			return x;
	}
	return NULL;
}

/* A NIC has the times of all its lanes. */
static void add(struct slowest *s, const struct entry *e)
{
	const struct entry *same = e->what == NIC ? find(s, e, 0) : NULL;
	size_t room = s->room ? 2 * s->room : 16;
	struct entry *more;

	if (!e->h.count)
		return;
	if (same) {
		braid_hist_merge(&s->e[same - s->e].h, &e->h);
		return;
	}
	if (s->n == s->room) {
		more = realloc(s->e, room * sizeof(*more));
		if (!more)
			return;
		s->e = more;
		s->room = room;
	}
	s->e[s->n++] = *e;
}

static void add_lane(struct slowest *s, const struct process *p, const json_t *report,
		     const json_t *link, const json_t *lane)
{
	long long number = report_number(link, "link"), index = report_number(lane, "lane");
	const char *nic = report_text(lane, "nic"), *host = report_text(report, "host");
	struct entry e = { .what = LANE };

	report_times(lane, "acks", &e.h);
	snprintf(e.key, sizeof(e.key), "%s %lld %lld", p->path, number, index);
	snprintf(e.name, sizeof(e.name), "%lld of link %lld of process %d, over %s to %s", index,
		 number, (int)p->pid, nic, report_text(link, "peer"));
	snprintf(e.brief, sizeof(e.brief), "%lld of link %lld of process %d", index, number,
		 (int)p->pid);
	add(s, &e);
	if (!*nic)
		return;
	e.what = NIC;
	snprintf(e.key, sizeof(e.key), "%.60s %.60s", host, nic);
	snprintf(e.name, sizeof(e.name), "%s of %s", nic, host);
	snprintf(e.brief, sizeof(e.brief), "%s", nic);
	add(s, &e);
}

static void add_link(struct slowest *s, const struct process *p, const json_t *report,
		     const json_t *link)
{
	static const char *const members[] = { [LARGE] = "large_sends", [SMALL] = "small_sends" };
	const char *peer = report_text(link, "peer");
	json_t *lane;
	size_t i;

	if (!*peer)
		return;			/* it is busy: the next report has it */
	for (enum what what = LARGE; what <= SMALL; what++) {
		struct entry e = { .what = what };

		report_times(link, members[what], &e.h);
		snprintf(e.key, sizeof(e.key), "%s %lld", p->path, report_number(link, "link"));
		snprintf(e.name, sizeof(e.name), "%s, link %lld of process %d", peer,
			 report_number(link, "link"), (int)p->pid);
		snprintf(e.brief, sizeof(e.brief), "%s", peer);
		add(s, &e);
	}
	json_array_foreach(json_object_get(link, "lanes"), i, lane)
		add_lane(s, p, report, link, lane);
}

void slowest_add(struct slowest *s, const struct process *p, const json_t *report)
{
	json_t *link;
	size_t i;

	json_array_foreach(json_object_get(report, "links"), i, link)
		add_link(s, p, report, link);
}

struct slowest *slowest_since(const struct slowest *s, const struct slowest *was)
{
	struct slowest *ret = slowest_new();

	for (size_t i = 0; ret && i < s->n; i++) {
		const struct entry *before = find(was, &s->e[i], i);
		struct entry e = s->e[i];

		e.h.count = 0;
		e.h.max_ns = UINT64_MAX;
		for (unsigned k = 0; k < BRAID_HIST_BUCKETS; k++) {
			if (before && e.h.n[k] >= before->h.n[k])
				e.h.n[k] -= before->h.n[k];
			e.h.count += e.h.n[k];
		}
		add(ret, &e);
	}
	return ret;
}

/* -- which is it ------------------------------------------------------------------------------ */

struct verdict {
	const struct entry *slow;	/* NULL: nothing was timed often enough */
	uint64_t p50, median;		/* its own; of the others: */
	size_t others;
};

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static struct verdict verdict_of(const struct slowest *s, enum what what)
{
	uint64_t *p50 = calloc(s->n + 1, sizeof(*p50));
	struct verdict v = { 0 };
	size_t n = 0;

	for (size_t i = 0; p50 && i < s->n; i++) {
		const struct entry *e = &s->e[i];

		if (e->what != what || e->h.count < LEAST)
			continue;
		p50[n] = braid_hist_percentile(&e->h, 50);
		if (!v.slow || p50[n] > v.p50) {
			v.slow = e;
			v.p50 = p50[n];
		}
		n++;
	}
	if (n > 1) {
		v.others = n - 1;	/* the slowest is the last, once they are in order */
		qsort(p50, n, sizeof(*p50), by_size);
		v.median = p50[v.others / 2];
	}
	free(p50);
	return v;
}

static const struct {
	const char *name, *names, *took, *none;
} words[WHATS] = {
	[LARGE] = { "peer", "peers", "sends of more than 8 KiB took",
		    "to none were 10 sends timed" },
	[SMALL] = { "peer", "peers", "sends of up to 8 KiB took", "to none were 10 sends timed" },
	[LANE] = { "lane", "lanes", "frames were acknowledged after",
		   "on none were 10 frames of more than 8 KiB timed" },
	[NIC] = { "NIC", "NICs", "frames were acknowledged after",
		  "over none were 10 frames of more than 8 KiB timed" },
};

/* "the median of the 3 other lanes is 12 us, 4.2 times less". */
static void compared(const struct verdict *v, char *ret, size_t len)
{
	const char *one = words[v->slow->what].name, *many = words[v->slow->what].names;
	double times = v->median ? (double)v->p50 / (double)v->median : 1;
	char which[64], than[64];

	if (!v->others) {
		snprintf(ret, len, "there is no other %s to compare it with", one);
		return;
	}
	snprintf(which, sizeof(which), "the median of the %zu other %s", v->others, many);
	snprintf(than, sizeof(than), "%.3g times less", times);
	snprintf(ret, len, "%s%s is %s, %s", v->others > 1 ? which : "that of the other ",
		 v->others > 1 ? "" : one, report_time(v->median),
		 times < 1.3 ? "about the same" : than);	/* no more than a bucket apart */
}

/* A line, which only a terminal cuts: scripts look for it. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n >= 0 && isatty(STDOUT_FILENO))
		text_wrap(text, WRAPPED, WRAPPED);
	else if (n >= 0)
		puts(text);
	if (n >= 0)
		free(text);
}

static void print_one(const struct slowest *s, enum what what)
{
	struct verdict v = verdict_of(s, what);
	char than[160];

	if (what == LARGE && !v.slow)
		v = verdict_of(s, SMALL);
	if (!v.slow) {
		say("slowest %s: not known: %s", words[what].name, words[what].none);
		return;
	}
	compared(&v, than, sizeof(than));
	say("slowest %s: %s: %s %s (p50), %s (p99), %s at most; %s", words[what].name,
	    v.slow->name, words[v.slow->what].took, report_time(v.p50),
	    report_time(braid_hist_percentile(&v.slow->h, 99)), report_time(v.slow->h.max_ns),
	    than);
}

void slowest_print(const struct slowest *s)
{
	print_one(s, LARGE);
	print_one(s, LANE);
	print_one(s, NIC);
}

static void brief(FILE *f, const struct slowest *s, enum what what)
{
	struct verdict v = verdict_of(s, what);

	if (what == LARGE && !v.slow)
		v = verdict_of(s, SMALL);
	if (!v.slow)
		return;
	fprintf(f, "%s %s %s: p50 %s, p99 %s", ftell(f) ? ";" : "", words[what].name,
		v.slow->brief, report_time(v.p50),
		report_time(braid_hist_percentile(&v.slow->h, 99)));
	if (v.others)
		fprintf(f, ", others %s", report_time(v.median));
	else
		fputs(", no other", f);
}

void slowest_print_short(const struct slowest *s)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	brief(f, s, LARGE);
	brief(f, s, LANE);
	brief(f, s, NIC);
	if (fclose(f) == 0)
		text_lines(0, WRAPPED, "slowest:%s", len ? text : " not known: to no peer were 10 "
			   "sends timed meanwhile");
	free(text);
}
