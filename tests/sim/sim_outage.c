/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_outage.c - the network between two processes fails for hours, by the virtual clock.
 *
 * If BRAID_PEER_TIMEOUT is longer, everything then completes within the plan's bound; if not, every
 * comm fails at its time.  Meanwhile few connections are dialled, a process warns once of each link and
 * then once a minute at most, and after the first half hour it holds as much as at the end.
 */
#include "tests/sim/sim.h"

#include <string.h>

enum {
	STRUCK_S = 10,
	SETTLED_S = 1800,
	DIALS = 2000,			/* in the first minutes */
	LINKS = 2,			/* at most, between two processes that share links */
};

static struct {
	unsigned files, blocks;
	uint64_t bytes;
} held[SIM_PROCS];

static void count(unsigned i, unsigned *ret_files, unsigned *ret_blocks)
{
	const struct sim_proc *p = &sim.proc[i];
	const struct braid_list *b;

	*ret_files = sim_net_open_files(p);
	*ret_blocks = 0;
	for (b = p->blocks.next; b != &p->blocks; b = b->next)
		++*ret_blocks;
}

static void settled(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	for (unsigned i = 0; i < sim.nprocs; i++)
		count(i, &held[i].files, &held[i].blocks);
}

/* Connections that are being dialled come and go: one to a lane, and one that asks for dials. */
static void compare(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	for (unsigned i = 0; i < sim.nprocs; i++) {
		unsigned files, blocks, slack = LINKS * (BRAID_LANES_MAX + 1);

		count(i, &files, &blocks);
		if (files > held[i].files + slack || blocks > held[i].blocks + 3 * slack)
			sim_fail("process %u held %u descriptors and %u pieces of memory early in the "
				 "outage, and %u and %u late", i, held[i].files, held[i].blocks, files,
				 blocks);
	}
}

static void doom(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	sim_comms_doom(0, 1);
}

/* What did not need the network any more when the outage began is over by now. */
static void find_struck(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	sim.struck = !sim_comms_over();
}

uint64_t sim_outage_begin(void)
{
	uint64_t end = sim.now + sim.outage_s * SEC;

	sim.struck = false;
	sim_at(sim.now + STRUCK_S * SEC, find_struck, NULL, 0, 0);
	sim.lossy = true;
	sim.dials = sim.silences = 0;
	for (unsigned rail = 0; rail < SIM_RAILS; rail++) {
		sim_net_blackhole(0, 1, rail, end);
		sim_net_blackhole(1, 0, rail, end);
	}
	if (sim.timeout_s <= sim.outage_s) {
		sim_at(sim.now + sim.timeout_s * SEC - SEC, doom, NULL, 0, 0);
		return sim.now + sim.timeout_s * SEC + SEC;
	}
	sim_at(sim.now + SETTLED_S * SEC, settled, NULL, 0, 0);
	sim_at(end - SEC, compare, NULL, 0, 0);
	return end;
}

void sim_outage_end(void)
{
	uint64_t s = sim.timeout_s < sim.outage_s ? sim.timeout_s : sim.outage_s;

	/* Both ends of a link dial once in 2.5 s; one that does not back off dials twice a second. */
	if (sim.dials > DIALS + LINKS * s)
		sim_fail("%u connections were dialled in %llu s", sim.dials, (unsigned long long)s);
	if (sim.silences > sim.nprocs * (LINKS + s / 60))
		sim_fail("processes warned of a silent peer %u times", sim.silences);
	if (sim.struck && !sim.silences)
		sim_fail("no process warned of a silent peer");
}
