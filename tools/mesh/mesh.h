/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mesh.h - `braid mesh`: every host measured with every other, and what is odd about which host,
 * direction, pair or side.
 *
 * One report holds all; the text, the JSON and the verdict are made of it.
 */
#ifndef BRAID_TOOLS_MESH_H
#define BRAID_TOOLS_MESH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/perf/perf.h"

enum {
	MESH_HOSTS_MAX = 512,
	MESH_FINDINGS_MAX = 256,
	MESH_NAME = 256,
};

/*
 * A process of a measurement polls, so it has a CPU to itself if there is one for it.  Where it had
 * less than this share, the figure says nothing of the path between just two hosts.
 */
#define MESH_CPU 0.8

struct mesh_host {
	char name[MESH_NAME];		/* as in HOSTFILE */
	char address[MESH_NAME];	/* where its listener is dialled, without the port */
	char side[64];			/* its switch, as HOSTFILE says; "" if it does not */
	char where[MESH_NAME + 16];	/* ADDRESS:PORT of its listener; "": this process */
	char host[64], kernel[64];	/* what it says of itself; "": not known */
	char nic[FABRIC_NAME];
	int speed_mbps;
	char why[PERF_TEXT];		/* why it can't be measured, or no more; "": it can */
};

enum mesh_state { MESH_OPEN, MESH_DONE, MESH_FAILED };	/* open: not measured */

struct mesh_cell {			/* from one host to another */
	enum mesh_state state;
	double bytes_s;
	double latency_s;		/* median of half a round trip; the same both ways */
	double least_s;			/* and the least; 0: measured without a CPU of its own */
	double cpu;			/* the share of a CPU that the more starved end had */
	double resent;			/* share of the TCP segments that were sent again */
};

enum mesh_kind {
	MESH_ABSENT,			/* the host can't be asked */
	MESH_SIDE,			/* from one group of hosts to another */
	MESH_HOST_CUT,			/* fails with most others */
	MESH_HOST_LOSSY,
	MESH_HOST_SLOW,
	MESH_HOST_LATE,
	MESH_PAIR_CUT,
	MESH_PAIR_SLOW,
	MESH_PAIR_LATE,
	MESH_KINDS,
};
extern const char *const mesh_kind_names[MESH_KINDS];	/* for JSON */

enum mesh_way { MESH_BOTH, MESH_SENDS, MESH_RECEIVES };	/* of a pair: SENDS is from a to b */

struct mesh_finding {
	enum mesh_kind kind;
	enum mesh_way way;
	int a, b;			/* hosts, or groups of mesh_report.group; b -1: none */
	double value, others;		/* bytes/s or seconds: here, and the median elsewhere */
	double resent, resent_others;
	int failed, tried;		/* HOST_CUT: pairs */
	char text[2048], next[400];	/* what is odd, and what to look at next */
};

struct mesh_report {
	int n;
	struct mesh_host *hosts;
	struct mesh_cell *cells;	/* n * n, by sender and receiver */
	char **why;			/* n * n, of failed pairs a < b; NULL: none */
	int *group;			/* a SIDE finding's group of each host; -1: none */
	int ngroups;
	struct mesh_finding found[MESH_FINDINGS_MAX];
	int nfound, more;		/* more: findings for which there was no room */
	double bytes_s, latency_s;	/* medians of all cells; 0: none */

	char over[FABRIC_NAME];		/* the plugin's name, or "raw TCP" */
	uint64_t size;
	double seconds;			/* of a measurement */
	double took_s;
	int rounds, pairs, done;	/* done: pairs measured or failed */
	bool stopped;			/* by a signal */
};

static inline struct mesh_cell *mesh_cell(const struct mesh_report *r, int from, int to)
{
	return &r->cells[(size_t)from * (size_t)r->n + (size_t)to];
}

int mesh_report_init(struct mesh_report *r, int n);
void mesh_report_fini(struct mesh_report *r);

/* -- HOSTFILE (hosts.c) ------------------------------------------------------------------- */

/* Fills r->n and r->hosts; 0, or 2 after a line that says what is wrong where. */
int mesh_hosts_read(struct mesh_report *r, const char *prog, const char *path);

/* -- the order of the pairs (rounds.c) ---------------------------------------------------- */

/* A round has mesh_seats(n) / 2 pairs, no host twice; all rounds together have each pair once. */
int mesh_seats(int n);
int mesh_rounds(int n);
/* Pair k of a round, *ret_a < *ret_b; false: one host rests in this round, and this is it. */
bool mesh_pair(int n, int round, int k, int *ret_a, int *ret_b);

/* -- listeners by a remote shell (start.c) ------------------------------------------------ */

struct mesh_agent {			/* a remote shell, and what it has printed */
	int pid, in, out;		/* out -1: it has ended */
	int port;
	char line[PERF_TEXT];
	size_t len;
};

enum { MESH_WORDS = 32 };

struct mesh_shell {
	const char *rsh[MESH_WORDS];	/* before the host's name; ends in NULL */
	const char *remote[MESH_WORDS];	/* behind it */
	struct mesh_agent *agents;	/* one for each host */
};

/* Start all, and give each the key; a host that can't be has its `why` set.  Stops at *stop. */
int mesh_start(struct mesh_report *r, struct mesh_shell *sh, const char *key,
	       const volatile sig_atomic_t *stop);
/* Has host i's shell ended?  Then its `why` is set. */
bool mesh_gone(struct mesh_report *r, struct mesh_shell *sh, int i);
void mesh_end(struct mesh_report *r, struct mesh_shell *sh);

/* -- measuring (pair.c, run.c) ------------------------------------------------------------ */

struct mesh_options {
	struct fabric_env env;
	struct perf_key key;
	double seconds, timeout_s;
	uint64_t size;
	int parallel;			/* pairs at once; 0: as many as a round has */
	bool raw;
	struct mesh_shell *shell;	/* NULL: a launcher started the ranks */
	const volatile sig_atomic_t *stop;
};

struct mesh_took {			/* one pair; [0] is from a to b, or of a */
	int rc, unreached;		/* unreached: not from here; 0: both were, 1 or 2 */
	char err[PERF_TEXT * 2];
	double bytes_s[2], resent[2], cpu[2], latency_s, least_s;
	char over[FABRIC_NAME], nic[2][FABRIC_NAME], host[2][64], kernel[2][64];
	int speed_mbps[2];
};

void mesh_pair_measure(const struct mesh_report *r, const struct mesh_options *o, int a, int b,
		       struct mesh_took *ret);
/* All pairs, and those that look odd by themselves a second time. */
void mesh_run(struct mesh_report *r, const struct mesh_options *o);

/* -- what is odd (score.c, verdict.c) ----------------------------------------------------- */

/* Finds kinds, hosts and figures from r->hosts and r->cells alone; replaces r->found. */
void mesh_score(struct mesh_report *r);
void mesh_words(struct mesh_report *r);		/* the findings' texts */
void mesh_speed_text(double bytes_s, char *room, size_t n);
void mesh_time_text(double seconds, char *room, size_t n);

/* -- printing (map.c, json.c) ------------------------------------------------------------- */

void mesh_print(const struct mesh_report *r);
void mesh_print_map(const struct mesh_report *r, int width);
json_t *mesh_json(const struct mesh_report *r);

#endif
