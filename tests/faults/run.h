/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.h - one run of one row of the fault table: a process of its own, that makes the hosts, sees
 * two ends through one fault, judges, and leaves one line of JSON.
 *
 * A row's play() is a story told in the calls below; each of them ends the run with a verdict if
 * things don't go as they should.  What has a deadline in the table fails at ten times that, and
 * what it really took is always reported.
 */
#ifndef BRAID_TESTS_FAULTS_RUN_H
#define BRAID_TESTS_FAULTS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/faults/hosts.h"
#include "tests/faults/stage.h"

enum { CHECK = 1, SOAK = 2 };		/* where a row is run; it may ask which */

struct run;

struct row {
	const char *fault;		/* as the table numbers it */
	const char *what;
	char class;			/* R recovers, E right error, X no effect */
	unsigned when;			/* CHECK | SOAK */
	void (*play)(struct run *r);
	int arg[3];			/* the row's own */
	enum { ROUTED, WIRED, TWO_PATHS, SPARE_AT_A } net;
	enum { ALL, FIRST, SECOND } nic[ENDS];	/* what it uses; all: as one device */
	unsigned log;			/* STDIO_..., NO_LOGGER */
	const char *env[3];		/* NAME=VALUE for both ends */
	double stall_s, heal_s, error_s;	/* what is promised; 0: nothing */
	size_t max_size;		/* of messages; 0: 1 MiB */
	unsigned slots;			/* in flight per flow; 0: 8 */
	bool late;			/* calls' times say nothing here: CPUs are taken away */
	unsigned limit_s;		/* for all; 0: 60 */
};

extern const struct row rows[];
extern const unsigned n_rows;

struct options {
	const char *plugin, *rows, *what, *json, *wire;
	int abi, seeds, seed, lanes, jobs;
	bool soak, tap, list, verbose, own_machine;
	unsigned slow;			/* a factor on all deadlines */
};

struct run {
	const struct row *row;
	const struct options *o;
	uint64_t seed, chance;
	struct hosts hosts;
	struct stage *st;
	pid_t pid[ENDS];
	bool dead[ENDS], stopped[ENDS];	/* by our hand */
	uint64_t go_ns, heal_ns;	/* 0: not, or not yet */
	uint64_t mark[FLOWS];		/* received when it healed */
	unsigned kills;
	bool names;			/* an error's WARN must name the device and the peer */
	bool wrong_is_right;		/* bytes are damaged on the way: that must be noticed */
	char note[128];			/* which choice the seed made */

	/* what was measured, in seconds; below 0: was not */
	double setup_s, stall_s, path_s, back_s, taken_s, error_s, warn_s;
	double late_s;			/* how long we did not get to look ourselves: the host is busy */
};

_Noreturn void run_play(const struct row *row, const struct options *o, unsigned seed, int out,
			int log);

/* -- verdicts ----------------------------------------------------------------------------- */

_Noreturn void run_is(struct run *r, const char *verdict, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define run_fails(r, ...) run_is(r, "failed", __VA_ARGS__)
#define run_skips(r, ...) run_is(r, "skipped", __VA_ARGS__)
void must(struct run *r, bool well);	/* else the run fails with hosts_why() */
void run_note(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -- chance and time ---------------------------------------------------------------------- */

unsigned run_rnd(struct run *r, unsigned n);	/* below n */
void run_wait(struct run *r, unsigned ms);	/* with an eye on the ends */

/* -- the story ---------------------------------------------------------------------------- */

void run_starts(struct run *r);		/* hosts, and ends that listen */
/* Another job, on the hosts of the first; `old`: handles that it is to try, if not NULL. */
void run_joins(struct run *r, const struct run *first, uint64_t seed, const struct flow *old);
void run_leaves(struct run *r);		/* that job; what is left of it is killed */
void run_opens(struct run *r);		/* the ends connect */
void run_connects(struct run *r);	/* starts and opens */
void run_talks(struct run *r);		/* all flows move, for a seeded moment */
void run_begins(struct run *r);		/* connects and talks: what most rows begin with */

void run_faults(struct run *r);		/* the fault comes now */
void run_heals(struct run *r);		/* taken away: it is over as soon as a packet comes through */
void run_healed(struct run *r);		/* it is over now */
void run_closes(struct run *r);		/* all arrives, all closes */
void run_goes_on(struct run *r);	/* every flow has moved since, in time */
_Noreturn void run_ends_well(struct run *r);	/* closes; times are judged */
_Noreturn void run_recovers(struct run *r);	/* goes on and ends well */
_Noreturn void run_noticed(struct run *r, const char *by);

/* One of both: which one is not said. */
_Noreturn void run_recovers_or_errs(struct run *r, double least_s);

/* Whoever is left has the error on all flows (or on one), not before `least_s`; then all closes. */
_Noreturn void run_errs(struct run *r, bool all, double least_s);

void end_signal(struct run *r, unsigned who, int sig);	/* KILL, STOP and CONT are understood */
void end_forks(struct run *r, unsigned who, unsigned n, unsigned ms);
bool end_warned(const struct run *r, unsigned who, const char *word);	/* since the fault */
void run_act_ends(struct run *r);	/* both have closed: make ready for the next one */

double run_peer_timeout_s(const struct run *r);	/* the row's BRAID_PEER_TIMEOUT */

/* Some of the streams, as ss -K does at one end; returns how many there were. */
unsigned run_kills_streams(struct run *r, unsigned host, unsigned least, unsigned most);

/* A process beside the ends; 0 is returned in it. */
pid_t run_helper(struct run *r);
void run_helper_ends(pid_t pid);

#endif
