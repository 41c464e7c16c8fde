/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_plan.c - what one seed does: a network, parameters, processes, comms, and faults out of a
 * table.  When the last fault is over everything must come to its end within a bound.
 */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <string.h>

enum {
	COMMS_MAX = 4, FAULTS_MAX = 6,
	BOUND_MS = 3000,		/* for all that is left when the last fault is over */
	EXIT_MS = 3000,			/* for a process to end */
	WATCH_US = 500,
};

static struct braid_params params;
static uint64_t quiet_at;		/* when the last fault is over */
static unsigned faults_left;

/* --- faults -------------------------------------------------------------------------------- */

static void lasts_until(uint64_t when)
{
	if (when > quiet_at)
		quiet_at = when;
}

static unsigned any_place(void)
{
	return (unsigned)sim_below(&sim.plan, sim.nprocs);
}

static void fault_slow(void)
{
	uint64_t until = sim.now + sim_between(&sim.plan, MS, 300 * MS);
	uint64_t more = sim_between(&sim.plan, 100 * US, 50 * MS);

	sim_net_delay(any_place(), any_place(), more, until);
	lasts_until(until + more);
}

static void blackhole(bool both, uint64_t ns)
{
	unsigned a = any_place(), b = any_place();

	sim_net_blackhole(a, b, sim.now + ns);
	if (both)
		sim_net_blackhole(b, a, sim.now + ns);
	lasts_until(sim.now + ns);
}

static void fault_blackhole(void)
{
	blackhole(true, sim_between(&sim.plan, MS, 3 * SEC));
}

static void fault_one_way(void)
{
	blackhole(false, sim_between(&sim.plan, MS, 3 * SEC));
}

static void cont(void *arg, uint64_t life, uint64_t unused)
{
	struct sim_proc *p = arg;

	(void)unused;
	if (p->alive && p->life == life && p->stopped)
		sim_proc_cont(p);
}

static void fault_stop(void)
{
	struct sim_proc *p = &sim.proc[any_place()];
	uint64_t until = sim.now + sim_between(&sim.plan, MS, 2 * SEC);

	if (!p->alive || p->stopped)
		return;
	sim_proc_stop(p);
	sim_at(until, cont, p, p->life, 0);
	lasts_until(until);
}

static void place_start(unsigned i)
{
	struct sim_proc *p = sim_proc_start(i, sim_proc_main);

	*p->node->param = params;
	memset(&p->dev, 0, sizeof(p->dev));
	snprintf(p->dev.net.name, sizeof(p->dev.net.name), "sim%u", i);
	snprintf(p->dev.addr, sizeof(p->dev.addr), "place %u", i);
	sim_net_addr(i, &p->dev.net.addr);
	p->dev.net.speed_mbps = 10000;
	p->dev.net.prefix = 24;
	p->dev.nmembers = 1;
	p->dev.member[0] = &p->dev;
}

static void restart(void *arg, uint64_t a, uint64_t b)
{
	struct sim_proc *p = arg;
	unsigned other = (p->index + 1 + (unsigned)sim_below(&sim.plan, sim.nprocs - 1)) % sim.nprocs;

	(void)a, (void)b;
	faults_left--;
	place_start(p->index);
	lasts_until(sim.now);
	if (!sim.proc[other].alive)
		return;
	sim_comm_add(p->index, other, sim.now);
	if (sim_chance(&sim.plan, 500))
		sim_comm_add(other, p->index, sim.now);
}

static void fault_kill(void)
{
	struct sim_proc *p = &sim.proc[any_place()];

	if (!p->alive)
		return;
	sim_comms_doom(p->index);
	sim_proc_kill(p);
	lasts_until(sim.now);
	if (sim_chance(&sim.plan, 500)) {
		faults_left++;
		sim_at(sim.now + sim_between(&sim.plan, 0, 100 * MS), restart, p, 0, 0);
	}
}

static void cut(enum sim_cut how)
{
	sim_net_cut(sim_next(&sim.plan), how);
	lasts_until(sim.now);
}

static void fault_abort(void)
{
	cut(SIM_CUT_ABORT);
}

static void fault_reset(void)
{
	cut(SIM_CUT_RESET);
}

static void fault_half(void)
{
	cut(SIM_CUT_HALF);
}

static void fault_silent(void)
{
	cut(SIM_CUT_SILENT);
}

/* All connections at once. */
static void fault_storm(void)
{
	for (unsigned n = sim_net_connections(); n; n--)
		cut(sim_chance(&sim.plan, 500) ? SIM_CUT_ABORT : SIM_CUT_RESET);
}

static void fault_none(void)
{
}

static const struct {
	const char *name;
	unsigned weight;
	void (*strike)(void);
} faults[] = {
	{ "none", 1, fault_none },
	{ "slow", 2, fault_slow },
	{ "blackhole", 2, fault_blackhole },
	{ "one-way", 2, fault_one_way },
	{ "stop", 2, fault_stop },
	{ "kill", 2, fault_kill },
	{ "abort", 6, fault_abort },
	{ "reset", 4, fault_reset },
	{ "half", 4, fault_half },
	{ "silent", 2, fault_silent },
	{ "storm", 1, fault_storm },
};

enum { KINDS = sizeof(faults) / sizeof(faults[0]) };

static unsigned choose_kind(void)
{
	unsigned sum = 0, k, i;

	for (i = 0; i < KINDS; i++)
		sum += faults[i].weight;
	k = (unsigned)sim_below(&sim.plan, sum);
	for (i = 0; k >= faults[i].weight; i++)
		k -= faults[i].weight;
	return i;
}

static void strike(void *arg, uint64_t kind, uint64_t unused)
{
	(void)arg, (void)unused;
	faults_left--;
	sim_event("fault", kind, 0, 0);
	if (sim.verbose)
		fprintf(stderr, "%12.6f ms  fault: %s\n", (double)sim.now / 1e6, faults[kind].name);
	faults[kind].strike();
}

static void choose_faults(void)
{
	uint64_t span = sim_between(&sim.plan, 5 * MS, 300 * MS);

	if (sim_chance(&sim.plan, 250))
		return;
	faults_left = 1 + (unsigned)sim_between(&sim.plan, 0, FAULTS_MAX - 1);
	for (unsigned i = 0; i < faults_left; i++)
		sim_at(sim.now + sim_below(&sim.plan, span), strike, NULL, choose_kind(), 0);
}

/* --- choices ------------------------------------------------------------------------------- */

static uint64_t one_of(const uint64_t *of, unsigned n)
{
	return of[sim_below(&sim.plan, n)];
}

#define ONE_OF(...) one_of((const uint64_t[]){ __VA_ARGS__ }, \
			   sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

static struct sim_weather choose_weather(void)
{
	struct sim_weather w = {
		.latency_ns = ONE_OF(10 * US, 50 * US, 200 * US, 2 * MS, 20 * MS),
		.jitter_ns = ONE_OF(0, 5 * US, 100 * US, MS),
		.ns_per_byte = (double)ONE_OF(0, 1, 8, 40) / 10,
		.sndbuf = ONE_OF(4 << 10, 16 << 10, 64 << 10, 256 << 10),
		.rcvbuf = ONE_OF(4 << 10, 16 << 10, 64 << 10, 256 << 10),
		.segment = ONE_OF(1448, 9000, 64 << 10),
		.partial = (unsigned)ONE_OF(0, 0, 10, 300),
		.eintr = (unsigned)ONE_OF(0, 0, 20),
		.same_host = sim_chance(&sim.plan, 150),
	};
	size_t far = w.latency_ns > MS ? 64 << 10 : 0;

	if (w.sndbuf < far)
		w.sndbuf = far;
	if (w.rcvbuf < far)
		w.rcvbuf = far;
	return w;
}

static void choose_params(void)
{
	params = *sim.proc[0].node->param;
	params.lanes = (int64_t)ONE_OF(0, 1, 1, 2, 3, 4);
	params.lanes_max = (int64_t)ONE_OF(1, 2, 4, 8);
	params.eager = (int64_t)ONE_OF(0, 1000, 65536, 65536, 1 << 20);
	params.window = (int64_t)ONE_OF(0, 20000, 524288);
	params.chunk = (int64_t)ONE_OF(4096, 65536, 524288);
	params.connect_timeout = (int64_t)ONE_OF(20, 60);
	params.handshake_timeout = (int64_t)ONE_OF(1, 2);
	params.link_idle = (int64_t)ONE_OF(0, 0, 0, 1);
	params.links_idle = (int64_t)ONE_OF(0, 1, 256);
	params.share = (int64_t)ONE_OF(0, 1, 1, 1);
	params.peer_timeout = (int64_t)ONE_OF(6, 20, 240);
}

/* --- a run --------------------------------------------------------------------------------- */

static bool anybody_left(void)
{
	for (unsigned i = 0; i < sim.nprocs; i++) {
		if (sim.proc[i].alive)
			return true;
	}
	return false;
}

static void watch(void *arg, uint64_t finished_at, uint64_t unused)
{
	(void)arg, (void)unused;
	if (finished_at && !anybody_left()) {
		sim.over = true;
		return;
	}
	if (finished_at && sim.now > finished_at + EXIT_MS * MS)
		sim_fail("a process does not end");
	if (sim_model_moved > quiet_at)
		quiet_at = sim_model_moved;
	if (!finished_at && !faults_left && sim.now > quiet_at + BOUND_MS * MS)
		sim_fail("nothing moves, %d s after the last fault", BOUND_MS / 1000);
	if (!finished_at && !faults_left && sim.now >= quiet_at && sim_comms_over()) {
		sim_model_finish = true;
		finished_at = sim.now;
	}
	sim_at(sim.now + WATCH_US * US, watch, NULL, finished_at, 0);
}

int sim_seed(uint64_t seed)
{
	struct sim_weather weather;
	unsigned ncomms;

	sim_world_begin(seed);
	weather = choose_weather();
	choose_params();
	sim.preempt = (unsigned)ONE_OF(0, 10, 100);
	sim.nprocs = 2 + sim_chance(&sim.plan, 400);
	sim_net_begin(&weather);
	sim_model_begin();
	quiet_at = sim.now;
	faults_left = 0;
	for (unsigned i = 0; i < sim.nprocs; i++)
		place_start(i);
	ncomms = 1 + (unsigned)sim_below(&sim.plan, COMMS_MAX);
	for (unsigned i = 0; i < ncomms; i++) {
		uint64_t start = sim_chance(&sim.plan, 500) ? 0 : sim_between(&sim.plan, 0, 50 * MS);
		unsigned from = any_place();
		unsigned to = sim_chance(&sim.plan, 50) ? from :
			      (from + 1 + (unsigned)sim_below(&sim.plan, sim.nprocs - 1)) % sim.nprocs;

		sim_comm_add(from, to, sim.now + start);
	}
	choose_faults();
	watch(NULL, 0, 0);
	sim_run();
	if (sim.failure[0] && sim.verbose)
		sim_comms_tell();
	sim_world_end();
	sim_net_end();
	sim_model_end();
	return sim.failure[0] ? -1 : 0;
}
