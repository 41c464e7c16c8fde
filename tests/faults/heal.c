/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heal.c - how soon a path that was down carries as much as before, and what a thousand flaps leave
 * behind; see play.h.
 *
 * A path's rate is bounded by a shaper, a NIC's by the pace of the senders, so that the figures
 * depend on the machine as little as possible.  They are printed: a run fails only at ten times the
 * promised time.
 */
#include "tests/faults/play.h"

#include <dirent.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/rates.h"

enum {
	STEADY_S = 20,			/* at most, until the rate before is steady */
	BEFORE_MS = 3000,		/* the rate before is measured for so long */
	MORE_KIB = 8192,		/* of memory; less may be queues that fill up to their limits */
	CALM_S = 20,			/* after the last flap, at most: until dials are over */
};

static uint64_t arrived_bytes(const struct run *r)
{
	uint64_t sum = 0;

	for (int f = 0; f < FLOWS; f++)
		sum += r->st->flow[f].bytes;
	return sum;
}

/* Mbit/s that arrive at both ends together, over so many ms. */
static double rate_for(struct run *r, unsigned ms)
{
	uint64_t from = now_ns(), bytes = arrived_bytes(r);

	run_wait(r, ms);
	return (double)(arrived_bytes(r) - bytes) * 8e3 / (double)(now_ns() - from);
}

/* The rate before the outage, once the number of lanes has settled. */
static double rate_before(struct run *r)
{
	unsigned steady = 0;
	double last = 0;

	for (int i = 0; i < STEADY_S && !rates_steady(rate_for(r, 1000), &last, &steady); i++)
		;
	return rate_for(r, BEFORE_MS);
}

/* -- after -------------------------------------------------------------------------------- */

static struct rates after;

static double sample_s(const struct run *r, unsigned i)
{
	return (double)(after.at[i].ns - r->heal_ns) / 1e9;
}

static void say_rates(const struct run *r)
{
	enum { EACH = 500 / RATES_LOOK_MS };

	for (unsigned i = 0; r->o->verbose && i + EACH < after.n; i += EACH)
		fprintf(stderr, "# %.2f s after the path was back: %.1f Mbit/s\n", sample_s(r, i),
			rates_from(&after, i, EACH * RATES_LOOK_MS));
}

/* Follows the rate until it is back to stay.  Returns the rate then. */
static double rate_after(struct run *r, double before)
{
	double most = r->row->heal_s * 10 * r->o->slow, now = 0;

	after.n = after.i = 0;
	do {
		run_wait(r, RATES_LOOK_MS);
		rates_add(&after, now_ns(), arrived_bytes(r));
		if (after.i < after.n && sample_s(r, after.i) > most)
			run_fails(r, "%.1f Mbit/s %.1f s after the path was back, %.1f before", now,
				  sample_s(r, after.i), before);
	} while (!rates_back(&after, before, &now));
	r->back_s = sample_s(r, after.i);
	say_rates(r);
	return now;
}

/* -- the path, and what passes ------------------------------------------------------------ */

/* Each new connection gets a cap of its own. */
static void caps(struct run *r)
{
	unsigned mbit = r->row->cap_mbit;

	must(r, hosts_cap(&r->hosts, mbit));
	if (run_helper(r))
		return;
	for (;;) {
		hosts_cap_new(&r->hosts, mbit);
		usleep(20000);
	}
}

static void begins(struct run *r)
{
	run_starts(r);
	if (r->row->mbit)
		must(r, hosts_shape(&r->hosts, r->row->mbit));
	if (r->row->cap_mbit)
		caps(r);
	r->st->pace = r->row->pace_mbit * 1000000 / 8 / FLOWS_EACH_WAY;
	run_opens(r);
	run_talks(r);
}

void play_heal(struct run *r)
{
	struct trouble_at t = { .what = r->row->arg[0], .side = 2 };
	unsigned ms = (unsigned)r->row->arg[1];
	double before, during, again;

	begins(r);
	before = rate_before(r);
	path_outage(r, t, true);
	run_faults(r);
	run_wait(r, ms / 2);
	during = rate_for(r, ms - ms / 2);
	path_outage(r, t, false);
	run_heals(r);
	again = rate_after(r, before);
	run_note(r, "Mbit/s %.1f before, %.1f during, %.1f after: %.3f of before", before, during, again,
		 again / before);
	run_ends_well(r);
}

/* -- flap after flap ---------------------------------------------------------------------- */

struct held {				/* by both ends */
	unsigned files, threads, streams;
	long rss_kib, heap_kib;
};

static unsigned entries(pid_t pid, const char *what)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static long resident_kib(pid_t pid)
{
	char path[64];
	long all, rss = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "%ld %ld", &all, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return rss * (sysconf(_SC_PAGESIZE) / 1024);
}

static struct held count(struct run *r)
{
	static struct inet_diag_sockid ids[SOCKETS_MAX];
	struct held h = { 0 };
	unsigned asked = ++r->st->heap_ask;

	for (unsigned e = 0; e < ENDS; e++) {
		while (r->st->end[e].heap_answered < asked)
			run_wait(r, 1);
		h.files += entries(r->pid[e], "fd");
		h.threads += entries(r->pid[e], "task");
		h.rss_kib += resident_kib(r->pid[e]);
		h.heap_kib += (long)(r->st->end[e].heap / 1024);
	}
	h.streams = host_sockets(&r->hosts, HOST_A, 1U << TCP_ESTABLISHED, ids, SOCKETS_MAX);
	return h;
}

static void flap(struct run *r)
{
	bool nic = r->row->arg[1];
	int what = nic ? NIC_DOWN + (int)run_rnd(r, 2) : (int)run_rnd(r, CUT);
	struct trouble_at t = { .what = what, .side = run_rnd(r, 3) };

	path_outage(r, t, true);
	run_faults(r);
	run_wait(r, 20 + run_rnd(r, 700));
	path_outage(r, t, false);
	run_heals(r);
	run_goes_on(r);
	run_wait(r, run_rnd(r, 300));
}

static void say_held(const struct run *r, unsigned i, const struct held *h)
{
	if (r->o->verbose)
		fprintf(stderr, "# %u flaps: %u descriptors, %u threads, %u streams, %ld KiB resident, "
			"%ld KiB allocated\n", i, h->files, h->threads, h->streams, h->rss_kib, h->heap_kib);
}

static void most(struct held *h, const struct held *now)
{
#define MOST(what) h->what = now->what > h->what ? now->what : h->what
	MOST(files);
	MOST(threads);
	MOST(streams);
	MOST(rss_kib);
	MOST(heap_kib);
#undef MOST
}

/* A lane that was home once keeps a larger queue; MORE_KIB allows for lanes that become home late. */
static bool has_grown(const struct held *then, const struct held *now)
{
	return now->files > then->files || now->threads > then->threads || now->streams > then->streams ||
	       now->rss_kib > then->rss_kib + MORE_KIB || now->heap_kib > then->heap_kib + MORE_KIB;
}

void play_flaps(struct run *r)
{
	unsigned n = r->o->flaps ? (unsigned)r->o->flaps : (unsigned)r->row->arg[0];
	unsigned half = n / 2;		/* by then caches are full */
	struct held then = { 0 }, now = { 0 };

	begins(r);
	then = count(r);
	for (unsigned i = 1; i <= n; i++) {
		flap(r);
		if (i != half && i != n && i % 50)
			continue;
		run_wait(r, 2000);
		now = count(r);
		say_held(r, i, &now);
		if (i <= half)
			most(&then, &now);
	}
	for (unsigned i = 0; i < CALM_S && has_grown(&then, &now); i++) {
		run_wait(r, 1000);	/* a lane that is being dialled has more */
		now = count(r);
	}
	run_note(r, "%u flaps, after %u and %u: descriptors %u %u, threads %u %u, streams %u %u, RSS %ld %ld, "
		 "heap %ld %ld KiB", n, half, n, then.files, now.files, then.threads, now.threads,
		 then.streams, now.streams, then.rss_kib, now.rss_kib, then.heap_kib, now.heap_kib);
	if (has_grown(&then, &now) && r->o->slow == 1)	/* sanitizers keep what was freed */
		run_fails(r, "it holds more after more flaps");
	run_ends_well(r);
}
