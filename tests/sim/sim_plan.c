/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_plan.c - what one seed does: a network, parameters, processes, comms, and faults from a
 * table.  After the last fault, everything must complete within a bound.
 */
#include "core/proto/record.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_net.h"

#include <stdio.h>
#include <string.h>

enum {
	COMMS_MAX = 4, FEW = 6, MANY = 60,	/* faults */
	BOUND_MS = 6000,		/* after the last fault, for one message on a slow path */
	/* A bit of a record's length was flipped: what else comes has to fill the record first. */
	BOUND_RECORD_MS = 60000,
	BOUND_LEFT_MS = 17000,		/* a lane was left for 10 s, and another only looked well */
	EXIT_MS = 3000,			/* for a process to end */
	WATCH_US = 500, WATCH_OUTAGE_US = 100000,
	SHORT_TIMEOUT_S = 6,		/* longest peer timeout that a plan outlasts */
};

static struct braid_params params;
static unsigned rails;			/* how many a device is made of */
static uint64_t quiet_at;		/* when the last fault is over */
static unsigned faults_left;
static unsigned mover, moves;		/* whose addresses change; how often */
static bool gives_up;			/* some process will give another up */
static bool barred;			/* no connection comes through from one process to another */
static bool keeps_key[SIM_PROCS];	/* that place can't change the key by which it receives */

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

static unsigned any_rail(void)
{
	return (unsigned)sim_below(&sim.plan, rails);
}

static void fault_slow(void)
{
	uint64_t until = sim.now + sim_between(&sim.plan, MS, 300 * MS);
	uint64_t more = sim_between(&sim.plan, 100 * US, 50 * MS);

	sim.lossy = true;		/* limits of time do not hold */
	sim_net_delay(any_place(), any_place(), any_rail(), more, until);
	lasts_until(until + more);
}

/* Lanes are found slow, and are to take other paths. */
static void fault_path(void)
{
	sim.proc[any_place()].slow_paths += 1 + (unsigned)sim_below(&sim.plan, 3);
}

static void blackhole(unsigned a, unsigned b, unsigned rail, uint64_t ns)
{
	sim.lossy = true;
	sim_net_blackhole(a, b, rail, sim.now + ns);
	lasts_until(sim.now + ns);
}

static void fault_one_way(void)
{
	blackhole(any_place(), any_place(), any_rail(), sim_between(&sim.plan, MS, 3 * SEC));
}

static void fault_rail(void)
{
	unsigned a = any_place(), b = any_place(), rail = any_rail();
	uint64_t ns = sim_between(&sim.plan, MS, 3 * SEC);

	blackhole(a, b, rail, ns);
	blackhole(b, a, rail, ns);
}

static void all_rails(unsigned a, unsigned b, uint64_t ns)
{
	for (unsigned rail = 0; rail < rails; rail++) {
		blackhole(a, b, rail, ns);
		blackhole(b, a, rail, ns);
	}
}

static void fault_blackhole(void)
{
	all_rails(any_place(), any_place(), sim_between(&sim.plan, MS, 3 * SEC));
}

static void doom(void *arg, uint64_t a, uint64_t b)
{
	(void)arg;
	sim_comms_doom((unsigned)a, (unsigned)b);
}

/* No comm may fail before nine tenths of the timeout; all must soon after the timeout. */
static uint64_t beyond_peer_timeout(unsigned a, unsigned b)
{
	uint64_t timeout = (uint64_t)params.peer_timeout * SEC;

	gives_up = true;
	sim_at(sim.now + timeout - timeout / 10, doom, NULL, a, b);
	return timeout + timeout / 2;
}

static void fault_cut_off(void)
{
	unsigned a = any_place(), b = any_place();

	if (params.peer_timeout <= SHORT_TIMEOUT_S && !moves && !barred)
		all_rails(a, b, beyond_peer_timeout(a, b));
}

static void cont(void *arg, uint64_t life, uint64_t unused)
{
	struct sim_proc *p = arg;

	(void)unused;
	if (p->alive && p->life == life && p->stopped)
		sim_proc_cont(p);
}

static void stop(struct sim_proc *p, uint64_t ns)
{
	if (!p->alive || p->stopped)
		return;
	sim.lossy = true;
	sim_proc_stop(p);
	sim_at(sim.now + ns, cont, p, p->life, 0);
	lasts_until(sim.now + ns);
}

static void fault_stop(void)
{
	stop(&sim.proc[any_place()], sim_between(&sim.plan, MS, 2 * SEC));
}

static void fault_freeze(void)
{
	unsigned a = any_place();
	uint64_t ns = 0;

	if (params.peer_timeout > SHORT_TIMEOUT_S || moves || barred)
		return;
	for (unsigned b = 0; b < sim.nprocs; b++)
		ns = beyond_peer_timeout(a, b);
	stop(&sim.proc[a], ns);
}

void sim_place_start(unsigned i, const struct braid_params *with, unsigned nrails,
		     void *(*fn)(void *))
{
	struct sim_proc *p = sim_proc_start(i, fn);

	if (with)
		*p->node->param = *with;
	for (unsigned rail = 0; rail < SIM_RAILS; rail++) {
		struct braid_dev *d = &p->rail[rail];

		memset(d, 0, sizeof(*d));
		snprintf(d->net.name, sizeof(d->net.name), "p%urail%u", i, rail);
		snprintf(d->net.interface, sizeof(d->net.interface), "rail%u", rail);
		snprintf(d->addr, sizeof(d->addr), "10.%u.0.%u", rail, i + 1);
		sim_net_addr(i, rail, &d->net.addr);
		d->net.speed_mbps = 10000;
		d->net.prefix = 16;
		d->index = rail;
		d->nmembers = 1;
		d->member[0] = d;
		d->port[BRAID_TRANSPORT_TCP] = d;
	}
	p->fused = p->rail[0];
	p->fused.index = SIM_RAILS;
	p->fused.nmembers = SIM_RAILS;
	for (unsigned rail = 0; rail < SIM_RAILS; rail++)
		p->fused.member[rail] = &p->rail[rail];
	p->dev = nrails > 1 ? &p->fused : &p->rail[0];
}

static void place_start(unsigned i)
{
	sim_place_start(i, &params, rails, sim_proc_main);
	if (keeps_key[i])
		strcpy(sim.proc[i].node->param->encrypt_by, "kernel-receive");
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
	if (sim.rma && sim_chance(&sim.plan, 500))
		sim_rma_add(sim.now);
	sim_comm_add(p->index, other, sim.now);
	if (sim_chance(&sim.plan, 500))
		sim_comm_add(other, p->index, sim.now);
}

static void fault_kill(void)
{
	struct sim_proc *p = &sim.proc[any_place()];

	if (!p->alive || barred || (moves && p->index == mover))
		return;
	sim_comms_killed(p->index);
	sim_proc_kill(p);
	lasts_until(sim.now);
	if (sim_chance(&sim.plan, 500)) {
		faults_left++;
		sim_at(sim.now + sim_between(&sim.plan, 0, 100 * MS), restart, p, 0, 0);
	}
}

static void cut(enum sim_cut how)
{
	sim.cut = true;
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
	sim.lossy = true;
	cut(SIM_CUT_HALF);
}

static void fault_silent(void)
{
	sim.lossy = true;
	cut(SIM_CUT_SILENT);
}

/* All connections at once. */
static void fault_storm(void)
{
	for (unsigned n = sim_net_connections(); n; n--)
		cut(sim_chance(&sim.plan, 500) ? SIM_CUT_ABORT : SIM_CUT_RESET);
}

/* A bit of a stream changes.  Without checksums nobody would notice. */
static void fault_flip(void)
{
	if (strcmp(params.checksum, "on") != 0)
		return;
	sim.cut = true;
	for (uint64_t n = sim_between(&sim.plan, 1, 64); n; n--)
		sim_net_flip(sim_next(&sim.plan), sim_between(&sim.plan, 1, 1 << 20) - 1);
	lasts_until(sim.now);
}

/* One of the next allocations of a process fails. */
static void fault_memory(void)
{
	/* Nobody at the old address, or behind the firewall, learns that such a link has ended. */
	if (moves || barred)
		return;
	gives_up = true;
	sim.proc[any_place()].short_in = (unsigned)sim_between(&sim.plan, 1, 64);
	lasts_until(sim.now);
}

/*
 * A process gets other addresses.  It is always the same process: if two did so at once, neither
 * would know where the other is.  Comms that are not yet open have the address before in their handle.
 * The model of one-sided operations knows nothing of that, so they have no such fault.
 * Where a process gives another up, that one's port does not refuse its dials: nobody is there.
 */
static void doom_unopened(void *arg, uint64_t until, uint64_t unused)
{
	(void)arg, (void)unused;
	if (sim_comms_moved(mover))
		lasts_until(sim.now + (uint64_t)params.connect_timeout * SEC + SEC);
	/* It may take the process a moment to notice, longer if it is stopped. */
	if (sim.now < until)
		sim_at(sim.now + 20 * MS, doom_unopened, NULL, until, 0);
}

static void fault_move(void)
{
	const struct sim_proc *p = &sim.proc[mover];

	if (sim.rma || sim_weather.same_host || !p->alive || p->stopped || p->life > 1 || gives_up ||
	    barred)
		return;
	sim.lossy = true;
	moves++;
	sim.moved = true;
	lasts_until(sim.now + SEC);	/* whoever ends before the other has heard is not missed */
	sim_net_move(mover, any_rail());
	doom_unopened(NULL, sim.now + 300 * MS, 0);
}

/*
 * A firewall comes in: for good, and for one direction.  Comms that are open go on, whatever else
 * happens to their connections; if it drops.  If it refuses as a process that has ended does, they
 * may fail.  Nobody may end meanwhile, as the others might never learn of it.
 */
static void fault_firewall(void)
{
	unsigned a = any_place(), b = any_place();
	enum sim_bar how = sim_chance(&sim.plan, 700) ? SIM_BAR_DROP : SIM_BAR_REFUSE;

	if (sim.rma || barred || gives_up || moves || a == b)
		return;
	for (unsigned i = 0; i < sim.nprocs; i++) {
		if (!sim.proc[i].alive || sim.proc[i].life > 1)
			return;
	}
	barred = sim.lossy = true;
	for (unsigned rail = 0; rail < rails; rail++)
		sim_net_bar(a, b, rail, how);
	if (how == SIM_BAR_REFUSE)
		sim_comms_doom(a, b);
	else if (sim_comms_barred(a, b))
		lasts_until(sim.now + (uint64_t)params.connect_timeout * SEC + SEC);
	lasts_until(sim.now + SEC);
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
	{ "rail", 2, fault_rail },
	{ "cut-off", 1, fault_cut_off },
	{ "stop", 2, fault_stop },
	{ "freeze", 1, fault_freeze },
	{ "kill", 2, fault_kill },
	{ "abort", 6, fault_abort },
	{ "reset", 4, fault_reset },
	{ "half", 4, fault_half },
	{ "silent", 2, fault_silent },
	{ "storm", 1, fault_storm },
	{ "memory", 3, fault_memory },
	{ "flip", 12, fault_flip },
	{ "move", 4, fault_move },
	{ "path", 4, fault_path },
	{ "firewall", 6, fault_firewall },
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
	faults_left = 1 + (unsigned)sim_below(&sim.plan, sim_chance(&sim.plan, 50) ? MANY : FEW);
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
	size_t far = sim.large ? 2 << 20 : w.latency_ns > MS ? 256 << 10 : 0;

	if (w.sndbuf < far)
		w.sndbuf = far;
	if (w.rcvbuf < far)
		w.rcvbuf = far;
	if (sim.large)
		w.partial = w.same_host = 0;
	return w;
}

/* They take the longest frame and all that is under way, so each new key brings the lane on. */
static int64_t fewest_records(const struct sim_weather *w)
{
	int64_t most = params.eager > params.chunk ? params.eager : params.chunk;

	return (most + (int64_t)(w->sndbuf + w->rcvbuf)) / BRAID_RECORD_DATA_MAX + 4;
}

static void choose_params(const struct sim_weather *w)
{
	params = *sim.proc[0].node->param;
	params.stat = 0;		/* it would start a thread of the real system */
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
	params.peer_timeout = (int64_t)ONE_OF(SHORT_TIMEOUT_S, 20, 240);
	params.threads = (int64_t)ONE_OF(0, 1, 2, 3, 4) - 1;
	if (sim.large)
		params.eager = params.window = params.chunk = 1 << 20;
	params.zerocopy = sim.seed % 3 != 0;
	sim.encrypted = sim.seed % 4 == 0;	/* and then it copies */
	strcpy(params.encrypt, sim.encrypted ? "require" : "off");
	strcpy(params.encrypt_by, "auto");
	params.key_records = fewest_records(w) + (int64_t)ONE_OF(0, 0, 10, 8000000);
	for (unsigned i = 0; i < SIM_PROCS; i++)
		keeps_key[i] = sim.encrypted && sim_chance(&sim.plan, 500);
	strcpy(params.checksum, sim_chance(&sim.plan, 500) && !sim.sabotage ? "on" : "off");
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
	unsigned bound_ms = sim.encrypted && sim.flipped ? BOUND_RECORD_MS :
			    sim.left ? BOUND_LEFT_MS : BOUND_MS;
	/* Nobody refuses dials at an address that a process had before it ended, or that are dropped. */
	uint64_t exit_ms = moves || barred ? (uint64_t)params.peer_timeout * 1000 + EXIT_MS : EXIT_MS;

	(void)arg, (void)unused;
	if (finished_at && !anybody_left()) {
		sim.over = true;
		return;
	}
	if (finished_at && sim.now > finished_at + exit_ms * MS)
		sim_fail("a process does not end");
	if (sim_model_moved > quiet_at)
		quiet_at = sim_model_moved;
	if (!finished_at && !faults_left && sim.now > quiet_at + bound_ms * MS)
		sim_fail("nothing moves, %u s after the last fault", bound_ms / 1000);
	if (!finished_at && !faults_left && sim.now >= quiet_at && sim_comms_over()) {
		sim_model_finish = true;
		finished_at = sim.now;
	}
	sim_at(sim.now + (sim.outage_s ? WATCH_OUTAGE_US : WATCH_US) * US, watch, NULL, finished_at, 0);
}

/* Not before all comms are open: connect() has a time limit of its own. */
static void strike_outage(void *arg, uint64_t a, uint64_t b)
{
	(void)arg, (void)a, (void)b;
	if (!sim_comms_open()) {
		sim_at(sim.now + 20 * US, strike_outage, NULL, 0, 0);
		return;
	}
	faults_left = 0;
	quiet_at = sim_outage_begin();
}

int sim_seed(uint64_t seed)
{
	struct sim_weather weather;
	unsigned ncomms;

	sim_world_begin(seed);
	sim.large = seed % 5 == 0 && !sim.outage_s;
	weather = choose_weather();
	choose_params(&weather);
	sim.preempt = (unsigned)ONE_OF(0, 10, 100);
	sim.nprocs = 2 + sim_chance(&sim.plan, 400);
	if (sim.outage_s) {
		sim.nprocs = 2;
		params.share = 1;
		params.peer_timeout = (int64_t)sim.timeout_s;
	}
	sim.lossy = sim.cut = sim.short_of_memory = false;
	sim.planted = sim.left = sim.moved = false;
	sim.flipped = sim.found = sim.renewed = sim.repathed = 0;
	sim.threads_sent = sim.threads_received = sim.lent = 0;
	moves = 0;
	gives_up = barred = false;
	mover = (unsigned)sim_below(&sim.plan, sim.nprocs);
	rails = 1 + sim_chance(&sim.plan, 250);
	sim_net_begin(&weather);
	sim_model_begin();
	quiet_at = sim.now;
	faults_left = 0;
	for (unsigned i = 0; i < sim.nprocs; i++)
		place_start(i);
	ncomms = 1 + (unsigned)sim_below(&sim.plan, COMMS_MAX);
	for (unsigned i = 0; i < ncomms; i++) {
		uint64_t start = sim_chance(&sim.plan, 500) ? 0 :
				 sim_between(&sim.plan, 0, (sim_chance(&sim.plan, 200) ? 500 : 50) * MS);
		unsigned from = any_place();
		unsigned to = sim_chance(&sim.plan, 50) ? from :
			      (from + 1 + (unsigned)sim_below(&sim.plan, sim.nprocs - 1)) % sim.nprocs;

		sim_comm_add(from, to, sim.now + start);
	}
	if (sim.rma)
		sim_rma_add(sim.now + sim_between(&sim.plan, 0, 20 * MS));
	if (sim.outage_s) {
		faults_left = 1;
		sim_at(sim.now + 20 * US, strike_outage, NULL, 0, 0);
	} else {
		choose_faults();
	}
	watch(NULL, 0, 0);
	sim_run();
	if (sim.outage_s)
		sim_outage_end();
	for (unsigned i = 0; i < sim.nprocs; i++)
		sim.found += (unsigned)atomic_load(&sim.proc[i].dev->corrupt);
	if (sim.failure[0] && sim.verbose)
		sim_comms_tell();
	sim.doomed = sim_comms_doomed();
	sim_world_end();
	sim_net_end();
	sim_model_end();
	return sim.failure[0] ? -1 : 0;
}
