/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer.c - F10, F11, F25 to F32 and F44: what the other process does, or has done to it, and what
 * becomes of the streams to it; see play.h.
 */
#include "tests/faults/play.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

void play_nothing(struct run *r)
{
	run_begins(r);
	run_faults(r);
	run_wait(r, (unsigned)r->row->arg[1]);
	run_healed(r);
	run_recovers(r);
}

/* -- F10, F11: while connecting ----------------------------------------------------------- */

void play_kill_connecting(struct run *r)
{
	unsigned us = run_rnd(r, 6000);

	run_starts(r);
	r->st->errors_ok = true;
	r->st->go = true;
	usleep(us);
	run_note(r, "%u us after the start", us);
	run_faults(r);
	end_signal(r, END_B, SIGKILL);
	run_errs(r, false, 0);
}

void play_dead_port(struct run *r)
{
	run_starts(r);
	r->st->errors_ok = true;
	run_faults(r);
	if (r->row->arg[0])
		must(r, host_ip(&r->hosts, HOST_M, "route add blackhole %s/32\n",
				host_address(&r->hosts, HOST_B, 0)));
	else
		end_signal(r, END_B, SIGKILL);
	r->st->go = true;
	run_errs(r, false, 0);
}

/* The NIC that one end uses leads nowhere. */
void play_no_way(struct run *r)
{
	run_starts(r);
	run_faults(r);
	r->st->errors_ok = true;
	r->st->go = true;
	run_errs(r, false, 0);
}

/* -- F25: late ---------------------------------------------------------------------------- */

void play_late(struct run *r)
{
	unsigned late = run_rnd(r, 2);

	run_begins(r);
	run_faults(r);
	r->st->hold[late] = true;
	run_wait(r, (unsigned)r->row->arg[r->o->soak ? 1 : 0]);
	if (!end_warned(r, !late, "late") && !strstr(r->st->end[!late].log, "late"))
		run_fails(r, "no line says that the peer is late");
	r->st->hold[late] = false;
	run_healed(r);
	run_recovers(r);
}

/* -- F26, F27: streams reset -------------------------------------------------------------- */

void play_reset_some(struct run *r)
{
	unsigned n;

	run_begins(r);
	run_faults(r);
	n = run_kills_streams(r, run_rnd(r, 2), 1, r->row->arg[0] ? UINT_MAX : 1);
	run_note(r, "%u of %u", r->kills, n);
	run_healed(r);
	run_recovers(r);
}

void play_reset_all(struct run *r)
{
	unsigned first = run_rnd(r, 2);

	run_begins(r);
	r->st->idle = r->row->arg[0] == IDLE;
	run_wait(r, r->st->idle ? 300 : 0);
	run_faults(r);
	run_kills_streams(r, first, UINT_MAX, UINT_MAX);
	if (run_rnd(r, 2))		/* at the other end too */
		run_kills_streams(r, !first, UINT_MAX, UINT_MAX);
	run_note(r, "%u kills", r->kills);
	run_wait(r, r->st->idle ? run_rnd(r, 300) : 0);
	r->st->idle = false;
	run_healed(r);
	run_recovers(r);
}

/* Streams are reset again and again, also in the middle of a recovery. */
void play_reset_often(struct run *r)
{
	unsigned all = (unsigned)r->row->arg[r->o->soak ? 1 : 0];

	run_begins(r);
	run_faults(r);
	while (r->kills < all) {
		if (run_rnd(r, 4))
			run_kills_streams(r, run_rnd(r, 2), 1, UINT_MAX);
		else
			run_kills_streams(r, run_rnd(r, 2), UINT_MAX, UINT_MAX);
		run_wait(r, run_rnd(r, 40));
	}
	run_note(r, "%u kills", r->kills);
	run_healed(r);
	run_recovers(r);
}

/* -- F28 to F30: the other process -------------------------------------------------------- */

void play_kill(struct run *r)
{
	unsigned dead = run_rnd(r, 2);

	run_begins(r);
	if (r->row->arg[0])
		end_forks(r, dead, 3, 60000);
	r->st->errors_ok = true;
	run_faults(r);
	end_signal(r, dead, SIGKILL);
	run_errs(r, true, 0);
}

/* Waits for a WARN that contains `word`, ten times as long as promised. */
static void wait_for_line(struct run *r, unsigned who, const char *word, double promise_s)
{
	while (!end_warned(r, who, word)) {
		double s = (double)(now_ns() - r->st->fault_ns) / 1e9;

		if (s > promise_s * 10 * r->o->slow)
			run_fails(r, "no WARN says '%s' after %.0f s", word, s);
		run_wait(r, 5);
	}
	r->warn_s = (double)(r->st->end[who].warn_ns - r->st->fault_ns) / 1e9;
}

void play_stop(struct run *r)
{
	unsigned ms = (unsigned)r->row->arg[r->o->soak ? 1 : 0], who = run_rnd(r, 2);
	bool warned;

	run_begins(r);
	run_faults(r);
	end_signal(r, who, SIGSTOP);
	run_wait(r, ms);
	warned = end_warned(r, !who, "stopped");
	if (warned)
		r->warn_s = (double)(r->st->end[!who].warn_ns - r->st->fault_ns) / 1e9;
	end_signal(r, who, SIGCONT);
	run_healed(r);
	run_goes_on(r);
	if (!warned)
		run_fails(r, "no WARN said that the process is stopped");
	run_ends_well(r);
}

void play_stop_for_ever(struct run *r)
{
	unsigned who = run_rnd(r, 2);

	run_begins(r);
	run_faults(r);
	end_signal(r, who, SIGSTOP);
	r->st->errors_ok = true;
	wait_for_line(r, !who, "stopped", 5);
	run_errs(r, true, run_peer_timeout_s(r) * 0.8);
}

/* -- F32: aborts -------------------------------------------------------------------------- */

void play_abort(struct run *r)
{
	unsigned acts = (unsigned)r->row->arg[r->o->soak ? 1 : 0];

	run_connects(r);
	run_faults(r);
	for (unsigned i = 0; i < acts; i++) {
		unsigned first = run_rnd(r, 2);

		usleep(run_rnd(r, 20000));
		r->st->errors_ok = true;
		r->st->abort[first] = true;
		usleep(run_rnd(r, 2) ? run_rnd(r, 20000) : 0);
		r->st->abort[!first] = true;
		run_act_ends(r);
		run_opens(r);
	}
	run_note(r, "%u times", acts);
	run_healed(r);
	run_recovers(r);
}
