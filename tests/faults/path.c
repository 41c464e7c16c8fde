/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - F16 to F21, F31 and F42: what becomes of packets on their way; see play.h. */
#include "tests/faults/play.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- F16 to F18: a bad wire --------------------------------------------------------------- */

static const struct wire_trouble troubles[] = {
	[LOSS_01] = { .loss = 1000, .burst = 3 },
	[LOSS_1] = { .loss = 10000, .burst = 3 },
	[LOSS_5] = { .loss = 50000, .burst = 3 },
	[LOSS_30] = { .loss = 300000, .burst = 3 },
	[OVERTAKEN] = { .reorder = 250000, .reorder_us = 3000 },
	[DOUBLED] = { .twice = 100000 },
	[JITTER] = { .jitter_us = 50000 },
	[DAMAGED] = { .damage = 10000 },
	[FORGED] = { .forge = 1000 },
};

void play_bad_wire(struct run *r)
{
	struct wire_trouble none = { 0 };

	run_begins(r);
	run_faults(r);
	must(r, hosts_trouble(&r->hosts, &troubles[r->row->arg[0]]));
	run_wait(r, (unsigned)r->row->arg[r->o->soak ? 2 : 1]);
	must(r, hosts_trouble(&r->hosts, &none));
	run_heals(r);
	run_recovers(r);
}

/*
 * A payload bit is changed and TCP's checksum made to agree.  Only a plugin with a checksum of its own
 * could notice, so this mostly tests that the runner itself finds wrong bytes.
 */
void play_forged(struct run *r)
{
	run_begins(r);
	if (r->hosts.kind != WIRE_TAP)
		run_skips(r, "only the wire between TAP devices can forge");
	r->st->errors_ok = true;
	r->wrong_is_right = true;
	run_faults(r);
	must(r, hosts_trouble(&r->hosts, &troubles[r->row->arg[0]]));
	run_wait(r, 3000);
	if (r->hosts.wire->damaged)
		run_fails(r, "bytes were changed, and nobody has noticed");
	run_skips(r, "nothing was changed");
}

/* -- F19, F21, F31: outages --------------------------------------------------------------- */

static struct trouble_at outage_of(struct run *r)
{
	return (struct trouble_at){ .what = r->row->arg[0], .side = run_rnd(r, 3) };
}

static void nic(struct run *r, const char *what)
{
	char program[512], line[768];

	run_built(program, sizeof(program), "/tests/fake/fakectl");
	snprintf(line, sizeof(line), "%s '%s'", program, what);
	if (system(line))
		run_fails(r, "%s failed", line);
}

void path_outage(struct run *r, struct trouble_at t, bool begins)
{
	struct wire_trouble cut = { .cut = t.side == 2 ? 3 : 1U << t.side }, none = { 0 };
	const char *what = begins ? "add" : "del";
	struct hosts *h = &r->hosts;

	switch (t.what) {
	case DOWN_A:
	case DOWN_B:
		must(r, host_link(h, t.what, "w0", !begins) &&
			(begins || host_route(h, t.what, 0)));
		break;
	case DOWN_MIDDLE:
		must(r, host_link(h, HOST_M, t.side ? "a0" : "b0", !begins));
		break;
	case HOLE_A:
	case HOLE_B:
		must(r, host_ip(h, t.what == HOLE_A ? HOST_A : HOST_B, "route %s blackhole %s/32\n",
				what, host_address(h, t.what == HOLE_A ? HOST_B : HOST_A, 0)));
		break;
	case HOLE_MIDDLE:
		for (unsigned i = 0; i < 2; i++) {
			if (t.side == 2 || t.side == i)
				must(r, host_ip(h, HOST_M, "route %s blackhole %s/32\n", what,
						host_address(h, (int)i, 0)));
		}
		break;
	case CUT:
		must(r, hosts_trouble(h, begins ? &cut : &none));
		break;
	case NIC_DOWN:
		nic(r, begins ? "port b/nic0/1 down" : "port b/nic0/1 up");
		break;
	case NIC_HOLE:
		nic(r, begins ? "drop b/nic0/1 1" : "drop b/nic0/1 0");
		break;
	}
}

static _Noreturn void outage_lasts(struct run *r, struct trouble_at t, unsigned ms)
{
	path_outage(r, t, true);
	run_faults(r);
	run_wait(r, ms);
	path_outage(r, t, false);
	run_heals(r);
	run_recovers(r);
}

void play_outage(struct run *r)
{
	static const unsigned soak_ms[] = { 10, 100, 1000, 3000, 10000, 30000, 120000 };
	struct trouble_at t = outage_of(r);
	unsigned ms = (unsigned)r->row->arg[1];

	if (r->o->soak)
		ms = soak_ms[r->seed % (sizeof(soak_ms) / sizeof(soak_ms[0]))];
	run_note(r, "%u ms, side %u", ms, t.side);
	run_begins(r);
	outage_lasts(r, t, ms);
}

/* The outage begins while comms connect and lanes are opened. */
void play_outage_early(struct run *r)
{
	struct trouble_at t = outage_of(r);
	unsigned us = run_rnd(r, 8000), ms = 300 + run_rnd(r, 1000);

	run_note(r, "after %u us for %u ms, side %u", us, ms, t.side);
	run_starts(r);
	r->st->go = true;
	usleep(us);
	outage_lasts(r, t, ms);
}

void play_flap(struct run *r)
{
	unsigned times = 5 + run_rnd(r, r->o->soak ? 50 : 5);

	run_note(r, "%u times", times);
	run_begins(r);
	run_faults(r);
	for (unsigned i = 0; i < times; i++) {
		struct trouble_at t = { .what = (int)run_rnd(r, CUT), .side = run_rnd(r, 3) };

		path_outage(r, t, true);
		run_wait(r, 10 + run_rnd(r, 150));
		path_outage(r, t, false);
		run_wait(r, 10 + run_rnd(r, 150));
	}
	run_heals(r);
	run_recovers(r);
}

void play_path_dies(struct run *r)
{
	struct trouble_at t = outage_of(r);

	run_begins(r);
	path_outage(r, t, true);
	run_faults(r);
	r->names = true;
	run_errs(r, true, run_peer_timeout_s(r) * 0.8);
}

/* The other host vanishes without a FIN, an RST or an ICMP error. */
void play_power_loss(struct run *r)
{
	run_begins(r);
	must(r, host_ip(&r->hosts, HOST_B, "link set w0 netns /proc/%d/fd/%d\n", getpid(),
			r->hosts.ns[HOST_NOWHERE]));
	run_faults(r);
	run_errs(r, true, run_peer_timeout_s(r) * 0.8);
}

/* -- F43: how long a packet may be -------------------------------------------------------- */

/*
 * A tunnel on the way has a smaller MTU than both ends, and its ICMP errors are dropped.  Small frames
 * come through, so a plugin that looks only for signs of life sees no fault.
 */
void play_pmtu(struct run *r)
{
	static const char *const probing[] = { "0", "1", "2" };

	run_starts(r);
	if (r->hosts.kind != WIRE_TAP)
		run_skips(r, "only the wire between TAP devices drops by length");
	for (int host = HOST_A; host <= HOST_B; host++)
		must(r, host_sysctl(&r->hosts, host, "ipv4/tcp_mtu_probing",
				    probing[r->row->arg[0]]));
	run_opens(r);
	run_talks(r);
	run_faults(r);
	must(r, hosts_trouble(&r->hosts, &(struct wire_trouble){ .mtu = 1400 }));
	run_healed(r);			/* the MTU stays small: only probing can help */
	run_recovers(r);
}

/* B's MTU is smaller than the router's, so B drops longer packets as they arrive. */
void play_mtu_mismatch(struct run *r)
{
	run_begins(r);
	run_faults(r);
	must(r, host_ip(&r->hosts, HOST_B, "link set w0 mtu 1400\n"));
	run_healed(r);
	run_recovers(r);
}

/* A firewall on the way forgets idle connections, and drops their packets silently. */
void play_forgotten(struct run *r)
{
	run_begins(r);
	if (r->hosts.kind != WIRE_TAP)
		run_skips(r, "only the wire between TAP devices can forget");
	r->st->idle = run_rnd(r, 2);
	run_note(r, r->st->idle ? "idle" : "busy");
	run_wait(r, 300);
	run_faults(r);
	must(r, hosts_trouble(&r->hosts, &(struct wire_trouble){ .forget = 1 }));
	r->st->idle = false;
	run_healed(r);
	run_recovers(r);
}

/* A host gets a new address, as from DHCP.  Open sockets keep the old one, which no longer works. */
void play_new_address(struct run *r)
{
	unsigned who = run_rnd(r, 2);

	run_begins(r);
	must(r, host_ip(&r->hosts, (int)who, "addr del %s/24 dev w0\n" "addr add 10.77.%u.77/24 dev w0\n",
			host_address(&r->hosts, (int)who, 0), who + 1) && host_route(&r->hosts, (int)who, 0));
	run_faults(r);
	run_recovers_or_errs(r, run_peer_timeout_s(r) * 0.8);
}

/* -- F20: one of two paths ---------------------------------------------------------------- */

/* Waits until 1 MiB more has come in over `dev`, which was dead. */
static void wait_for_use(struct run *r, const char *dev)
{
	uint64_t from = now_ns(), bytes = host_received(&r->hosts, HOST_B, dev) + (1 << 20);

	while (host_received(&r->hosts, HOST_B, dev) < bytes) {
		if ((double)(now_ns() - from) / 1e9 > 50.0 * r->o->slow)
			run_fails(r, "%s is back, and nothing goes over it after 50 s", dev);
		run_wait(r, 5);
	}
	r->taken_s = (double)(now_ns() - from) / 1e9;
}

void play_one_path_dies(struct run *r)
{
	bool comes_back = r->row->arg[0];
	unsigned path = run_rnd(r, 2), side = run_rnd(r, 2);
	char dev[] = { side ? 'b' : 'a', path ? '1' : '0', '\0' };
	bool used;

	run_note(r, "%s", dev);
	run_begins(r);
	used = host_received(&r->hosts, HOST_B, path ? "w1" : "w0") > 1 << 20;
	run_faults(r);
	must(r, host_link(&r->hosts, HOST_M, dev, false));
	run_healed(r);			/* the other path works */
	if (comes_back) {
		run_goes_on(r);
		run_wait(r, 500 + run_rnd(r, 1000));
		must(r, host_link(&r->hosts, HOST_M, dev, true) && hosts_reach(&r->hosts, (int)path, 10000));
		if (used)
			wait_for_use(r, path ? "w1" : "w0");
		run_wait(r, 200);
		run_ends_well(r);
	}
	run_recovers(r);
}

/* -- all of it together ------------------------------------------------------------------- */

static void one_more(struct run *r, struct trouble_at *t, bool *out)
{
	unsigned who = run_rnd(r, 2);

	switch (run_rnd(r, 6)) {
	case 0:
		if (*out) {
			path_outage(r, *t, false);
		} else {
			*t = (struct trouble_at){ .what = (int)run_rnd(r, CUT), .side = run_rnd(r, 3) };
			path_outage(r, *t, true);
		}
		*out = !*out;
		break;
	case 1:
		run_kills_streams(r, who, UINT_MAX, UINT_MAX);
		break;
	case 2:
		run_kills_streams(r, who, 1, UINT_MAX);
		break;
	case 3:
		end_signal(r, who, SIGSTOP);
		run_wait(r, run_rnd(r, 600));
		end_signal(r, who, SIGCONT);
		break;
	case 4:
		r->st->idle = !r->st->idle;
		break;
	case 5:
		end_forks(r, who, 1, run_rnd(r, 300));
		break;
	}
}

void play_chaos(struct run *r)
{
	uint64_t end = now_ns() + (unsigned)r->row->arg[r->o->soak ? 1 : 0] * 1000000ULL;
	struct trouble_at t = { 0 };
	bool out = false;

	run_begins(r);
	run_faults(r);
	while (now_ns() < end) {
		one_more(r, &t, &out);
		run_wait(r, run_rnd(r, 200));
	}
	if (out)
		path_outage(r, t, false);
	r->st->idle = false;
	run_note(r, "%u kills", r->kills);
	run_heals(r);
	run_recovers(r);
}
