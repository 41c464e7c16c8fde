/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * run.h - one run of one row of the fault table: a process of its own, that makes the hosts, sees
 * two ends through one fault, judges, and leaves one line of JSON.
 *
 * A row's play() is a sequence of the calls below; each of them ends the run with a verdict if
 * something goes wrong.  What has a deadline in the table fails at ten times that, and the time that
 * it really took is always reported.
 */
#ifndef BRAID_TESTS_FAULTS_RUN_H
#define BRAID_TESTS_FAULTS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/faults/hosts.h"
#include "tests/faults/stage.h"

enum { CHECK = 1, SOAK = 2, HEAL = 4, BRIEF = 8 };	/* in which mode a row is run, as a mask */
enum { ROW_ENV = 6 };

struct run;

struct row {
	const char *fault;		/* as the table numbers it */
	const char *what;
	char class;			/* R recovers, E right error, X no effect */
	unsigned when;			/* CHECK | SOAK */
	void (*play)(struct run *r);
	int arg[3];			/* the row's own */
	enum { ROUTED, WIRED, TWO_PATHS, SPARE_AT_A } net;
	enum { ALL, FIRST, SECOND } nic[ENDS];	/* which NICs an end uses; ALL: fused */
	unsigned log;			/* STDIO_..., NO_LOGGER */
	const char *env[ROW_ENV];	/* NAME=VALUE for both ends; VALUE @...: below the build's directory */
	const char *needs;		/* a file there; without it the row is skipped */
	double stall_s, heal_s, error_s;	/* what is promised; 0: nothing */
	size_t max_size;		/* of messages; 0: 1 MiB */
	bool whole;			/* all messages have that size */
	unsigned slots;			/* in flight per flow; 0: 8 */
	unsigned mbit;			/* what passes each way of a path; 0: all that can */
	unsigned cap_mbit;		/* what passes each way of a connection */
	unsigned pace_mbit;		/* what each end sends at most */
	bool posted;			/* concerns receives that are posted: no one-sided row */
	bool late;			/* calls' times say nothing here: CPUs are taken away */
	bool alone;			/* no other run beside it */
	unsigned limit_s;		/* for all; 0: 60 */
};

extern const struct row rows[];
extern const unsigned n_rows;

struct options {
	const char *plugin, *rows, *what, *json, *wire;
	int abi, seeds, seed, lanes, jobs, flaps;
	bool soak, heal, brief, tap, list, verbose, own_machine, one_sided;
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
	uint64_t mark[FLOWS];		/* messages received when the fault was over */
	unsigned kills;
	bool names;			/* an error's WARN must name the device and the peer */
	bool wrong_is_right;		/* the wire changes bytes: the run must notice that */
	char note[256];			/* what the seed chose in this run */

	/* measured times in seconds; below 0: not measured */
	double setup_s, stall_s, path_s, back_s, taken_s, error_s, warn_s;
	double late_s;			/* the longest time for which this process got no CPU */
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
void run_wait(struct run *r, unsigned ms);	/* fails if an end fails meanwhile */

/* -- the story ---------------------------------------------------------------------------- */

void run_starts(struct run *r);		/* hosts, and ends that listen */
/* Starts another job on the hosts of the first.  It tries the handles in `old`, unless NULL. */
void run_joins(struct run *r, const struct run *first, uint64_t seed, const struct flow *old);
void run_leaves(struct run *r);		/* ends that job, and kills its processes */
void run_opens(struct run *r);		/* the ends connect */
void run_connects(struct run *r);	/* starts and opens */
void run_talks(struct run *r);		/* all flows move, for a seeded moment */
void run_begins(struct run *r);		/* connects and talks: what most rows begin with */

void run_faults(struct run *r);		/* the fault comes now */
void run_heals(struct run *r);		/* the cause is gone; the fault is over once a packet comes through */
void run_healed(struct run *r);		/* the fault is over now */
void run_closes(struct run *r);		/* every message arrives, every comm is closed */
void run_goes_on(struct run *r);	/* every flow has moved since the fault, in time */
_Noreturn void run_ends_well(struct run *r);	/* closes; times are judged */
_Noreturn void run_recovers(struct run *r);	/* goes on and ends well */
_Noreturn void run_noticed(struct run *r, const char *by);

/* Either is right: the flows go on, or they get an error, not before `least_s`. */
_Noreturn void run_recovers_or_errs(struct run *r, double least_s);

/* The ends that are left get an error on all flows (or on one), not before `least_s`, and close. */
_Noreturn void run_errs(struct run *r, bool all, double least_s);

void end_signal(struct run *r, unsigned who, int sig);	/* KILL, STOP and CONT are understood */
void end_forks(struct run *r, unsigned who, unsigned n, unsigned ms);
bool end_warned(const struct run *r, unsigned who, const char *word);	/* since the fault */
void run_act_ends(struct run *r);	/* both ends have closed: prepares the next act */

/* Sets a row's NAME=VALUE in this process. */
void run_sets(const char *setting);
/* A file of the build; name: /tests/... */
void run_built(char *ret, size_t len, const char *name);
double run_peer_timeout_s(const struct run *r);	/* the row's BRAID_PEER_TIMEOUT */

/* Resets `least` to `most` streams at one end, as ss -K does.  Returns how many streams there were. */
unsigned run_kills_streams(struct run *r, unsigned host, unsigned least, unsigned most);

/* Forks a process beside the ends, which the run's end kills; returns 0 in it. */
pid_t run_helper(struct run *r);
void run_helper_ends(pid_t pid);

#endif
