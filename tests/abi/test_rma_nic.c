/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_nic.c - one-sided traffic over RDMA while ports go down and bits are changed: it goes
 * over TCP meanwhile and comes back, and every byte and signal arrives once.
 */
#include "tests/abi/nics.h"
#include "tests/abi/onesided.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 60, FAULTS = 4 };

static const char *down, *up;		/* the fault, and its end; NULL: it passes by itself */

struct getter {				/* gets of one window, one after the other */
	struct window from, to;
	void *req;
	unsigned done;
};

static void getter_new(struct getter *x, struct group *g)
{
	*x = (struct getter){ .from = window_new(g, 300000), .to = window_new(g, 300000) };
	fill(x->from.data, x->from.size, g->rank);
	together(g->r);
}

/* False: one is outstanding. */
static bool getter_step(struct getter *x, struct group *g, unsigned peer, bool more)
{
	if (x->req && req_done(g, x->req)) {
		filled(x->to.data, x->to.size, peer);
		x->req = NULL;
		x->done++;
	}
	if (!x->req && more) {
		blank(x->to.data, x->to.size);
		x->req = get_post(g, 0, peer, &x->from, 0, x->from.size, &x->to, 0);
	}
	return !x->req;
}

/* Flows on two contexts, and gets, while rank 0 makes faults. */
static void faulty(struct rank *r)
{
	struct group *g = group_new(r, 2);
	unsigned peer = 1 - r->rank, made = 0;
	struct getter gets;
	uint64_t end = deadline_ms(80000), next = now_us() + 300000;
	struct flow *f[2];
	bool all = false, is_down = false;

	warns_expected();		/* lesser-transport, corrupt-data */
	f[0] = flow_new(g, 0, peer, ROUNDS * 10, 1);
	f[1] = flow_new(g, 1, peer, ROUNDS * 10, 2);
	getter_new(&gets, g);
	while (!all || is_down || (r->rank == 0 && made < FAULTS)) {
		bool more;

		all = flow_step(f[0]);
		all = flow_step(f[1]) && all;
		more = !all || is_down || (r->rank == 0 && made < FAULTS);
		all = getter_step(&gets, g, peer, more) && all;
		if (r->rank == 0 && now_us() >= next && (is_down || made < FAULTS)) {
			ctl(is_down ? up : down);
			made += !is_down;
			is_down = up && !is_down;
			next = now_us() + 400000;
		}
		wait_tick(end, __FILE__, __LINE__, "all rounds");
	}
	TRUE(gets.done > 0);
	together(r);
	window_free(g, &gets.to);
	window_free(g, &gets.from);
	flow_free(f[1]);
	flow_free(f[0]);
	groups_close(r);
}

static void faults(struct abi *t, const char *kind, const char *lanes, const char *begin,
		   const char *stop)
{
	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	down = begin;
	up = stop;
	ranks_run(t, 2, faulty);
}

static void port_down(struct abi *t)
{
	faults(t, "rocev2", "1", "port nic0 down", "port nic0 up");
}

static void port_down_lanes(struct abi *t)
{
	faults(t, "ib", "4", "port nic0 down", "port nic0 up");
}

static void black_hole(struct abi *t)
{
	faults(t, "rocev2", "4", "drop nic0 1", "drop nic0 0");
}

static void port_down_iwarp(struct abi *t)
{
	faults(t, "iwarp", "1", "port nic0 down", "port nic0 up");
}

static void flips_sends(struct abi *t)
{
	setenv("BRAID_CHECKSUM", "on", 1);
	faults(t, "rocev2", "2", "flip nic0 sends 1", NULL);
}

static void flips_writes(struct abi *t)
{
	setenv("BRAID_CHECKSUM", "on", 1);
	faults(t, "rocev2", "2", "flip nic0 writes 1", NULL);
}

/* Windows are closed under a NIC that holds their keys, while others go on. */
static void closes(struct rank *r)
{
	struct group *g = group_new(r, 2);
	struct flow *f = flow_new(g, 0, 1 - r->rank, ROUNDS * 5, 1);
	uint64_t end = deadline_ms(80000);

	for (unsigned i = 0; i < 10; i++) {
		struct window w = window_new(g, 1 << 20);

		memset(w.data, 7, w.size);
		for (unsigned k = 0; k < 20; k++)
			flow_step(f);
		window_free(g, &w);
	}
	while (!flow_step(f))
		wait_tick(end, __FILE__, __LINE__, "all rounds");
	together(r);
	flow_free(f);
	groups_close(r);
}

static void windows_closed(struct abi *t)
{
	nic("rocev2", "");
	ranks_run(t, 2, closes);
}

static bool has_imm;			/* the NIC */

/*
 * Rank 1 puts 1 MiB to rank 0 and gets it again.  True if NICs wrote and read all of it, and
 * immediate data announced what was written, where there is such.
 */
static bool is_by_nic(struct group *g, const struct window *from, const struct window *to,
		      const struct window *back)
{
	enum { FEW = 40 };		/* messages; without keys it takes 256 */
	long messages = ctl("count messages"), reads = ctl("count reads"), imms = ctl("count imms");

	fill(from->data, from->size, (uint64_t)messages);
	PUT(g, .src = from, .dst = to, .size = from->size, .rank = 0);
	flush_run(g, 0, back, 0);
	req_wait(g, get_post(g, 0, 0, to, 0, back->size, back, 0));
	TRUE(ctl("count reads") >= reads);
	TRUE(has_imm || ctl("count imms") == 0);
	return ctl("count messages") - messages < FEW && ctl("count reads") > reads &&
	       (ctl("count imms") > imms || !has_imm);
}

static void by_nic(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window from = window_new(g, 1 << 20), to = window_new(g, 1 << 20);
	struct window back = window_new(g, 1 << 20), other = window_new(g, 64);
	uint64_t end = deadline_ms(20000);

	for (unsigned i = 0; i < 2; i++) {
		while (r->rank == 1 && !is_by_nic(g, &from, &to, &back))
			wait_tick(end, __FILE__, __LINE__, "all bytes by NICs");
		together(r);
		if (r->rank == 1)
			TRUE(!memcmp(back.data, from.data, back.size));
		together(r);
		if (!i)			/* makes the queue pairs anew, and their keys void */
			window_free(g, &other);
	}
	window_free(g, &back);
	window_free(g, &to);
	window_free(g, &from);
	groups_close(r);
}

static void by_nic_roce(struct abi *t)
{
	nic("rocev2", "");
	has_imm = true;
	setenv("BRAID_CHECKSUM", "off", 1);
	ranks_run(t, 2, by_nic);
}

static void by_nic_iwarp(struct abi *t)
{
	nic("iwarp", "");
	setenv("BRAID_CHECKSUM", "off", 1);
	ranks_run(t, 2, by_nic);
}

static const struct abi_case cases[] = {
	CASE("NICs write puts and read gets, also once a window was closed", by_nic_roce, ONCE,
	     .seconds = 100),
	CASE("and over iWARP", by_nic_iwarp, ONCE, .seconds = 100),
	CASE("one-sided traffic outlives a port that goes down", port_down, ONCE, .seconds = 200),
	CASE("one-sided traffic of four queue pairs outlives it", port_down_lanes, ONCE, .seconds = 200),
	CASE("one-sided traffic outlives a black hole", black_hole, ONCE, .seconds = 200),
	CASE("one-sided traffic over iWARP outlives a port that goes down", port_down_iwarp, ONCE,
	     .seconds = 200),
	CASE("changed bits in messages are found and sent again", flips_sends, ONCE, .seconds = 200),
	CASE("changed bits in writes are found and sent again", flips_writes, ONCE, .seconds = 200),
	CASE("windows are closed while a NIC writes to others", windows_closed, ONCE, .seconds = 200),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
