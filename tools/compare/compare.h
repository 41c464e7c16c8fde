/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * compare.h - `braid compare`: every transport that both ends have, measured in turn.
 *
 * A *way* is one transport with a number of lanes, or a reference beside them.  Each way has
 * processes of its own, all alive at the same time.  A round measures one size over each of them,
 * so a change on the hosts meanwhile hits all alike.  The result is a report, which is printed,
 * stored as JSON and read back without loss.
 */
#ifndef BRAID_TOOLS_COMPARE_H
#define BRAID_TOOLS_COMPARE_H

#include <signal.h>
#include <stdio.h>

#include "tools/perf/perf.h"
#include "tools/report/report.h"

enum {
	CMP_WAYS_MAX = 24,
	CMP_ROUNDS_MAX = 99,
	CMP_NOTES_MAX = 16,
	CMP_NAME = 24,
	CMP_SURE_ROUNDS = 5,		/* fewer can't give an interval of 95 % */
};

/* -- the report (json.c) ------------------------------------------------------------------ */

enum cmp_value {
	CMP_P50, CMP_P90, CMP_P99, CMP_P999, CMP_MAX, CMP_JITTER, CMP_OP_US, CMP_ALG, CMP_BUS,
	CMP_GBIT, CMP_MSG, CMP_CPU, CMP_ITERS, CMP_SECONDS, CMP_CPU_SHARE, CMP_CHECKED, CMP_WRONG,
	CMP_VALUES,
};

extern const char *const cmp_value_names[CMP_VALUES];	/* in JSON and CSV */

struct cmp_way {
	char name[CMP_NAME];		/* "tcp x4", "verbs", "raw TCP" */
	struct perf_way way;
	enum fabric_kind kind;
	bool reference;			/* is measured, but does not compete */
	bool there;
	const struct cmp_tool *tool;	/* another program measures it; or NULL */
	struct fabric_about about;
	char why[PERF_TEXT];		/* the reason why it can't be measured */
};

struct cmp_row {
	enum perf_pattern pattern;
	int way, round;
	uint64_t size;
	double v[CMP_VALUES];
};

struct cmp_report {
	uint64_t seed;
	int rounds, base;		/* base: the way that ratios compare with; -1: none */
	int procs[PERF_PATTERNS];	/* 0: not measured */
	struct cmp_way ways[CMP_WAYS_MAX];
	int nways;
	struct cmp_row *rows;
	int nrows, room;
	char ends[PERF_TEXT];		/* names of the two ends, for the title */
	char notes[CMP_NOTES_MAX][PERF_TEXT];
	int nnotes;
	json_t *stamp;			/* of --from: when and where it was made; or NULL */
	bool interrupted;
	char failed[PERF_TEXT];		/* the error that ended it; or "" */
};

/* No latency is taken in a pattern of bandwidth, say; what has a 0 of its own was measured. */
static inline bool cmp_is_measured(const struct cmp_row *r, enum cmp_value what)
{
	return r->v[what] > 0 || what == CMP_WRONG || what == CMP_CHECKED || what == CMP_CPU;
}

int cmp_row_add(struct cmp_report *rep, const struct cmp_row *row);
void cmp_note(struct cmp_report *rep, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

json_t *cmp_json(const struct cmp_report *rep);
/* 0, or -errno with a sentence.  cmp_report_fini() frees what was read. */
int cmp_json_read(struct cmp_report *rep, const char *path, char *err);
void cmp_report_fini(struct cmp_report *rep);

/* -- statistics (stat.c) ------------------------------------------------------------------ */

struct cmp_ratio {
	double mid, lo, hi;		/* how many times as good; 95 % lie between lo and hi */
	int n;				/* number of rounds it comes from */
};

/* 1: better, -1: worse, 0: not shown to be either. */
int cmp_ratio_verdict(const struct cmp_ratio *r);

/* The ratio a[i] / b[i], both of round i: its median, and the bootstrap interval of that. */
void cmp_bootstrap(const double *a, const double *b, int n, uint64_t seed, struct cmp_ratio *ret);

/* The figure that judges a pattern, turned so that more is better. */
double cmp_merit(const struct cmp_row *r);
/* A way's median over the rounds of one size (CMP_MAX: the greatest); false: never measured. */
bool cmp_value_of(const struct cmp_report *rep, enum perf_pattern pattern, int way, uint64_t size,
		  enum cmp_value what, double *ret);
bool cmp_ratio_of(const struct cmp_report *rep, enum perf_pattern pattern, int way, int other,
		  uint64_t size, struct cmp_ratio *ret);
/* The sizes of a pattern in order; returns how many. */
int cmp_sizes(const struct cmp_report *rep, enum perf_pattern pattern, uint64_t *sizes);

struct cmp_win {			/* the best way at one size */
	uint64_t size;
	int way, next;			/* the best, and the best of another transport */
	bool sure;
	struct cmp_ratio by;
};

/* Find the winner at each size at which two competing ways were measured; returns how many. */
int cmp_wins(const struct cmp_report *rep, enum perf_pattern pattern, struct cmp_win *wins);

/* -- words (summary.c) -------------------------------------------------------------------- */

enum { CMP_SUMMARY = 2048 };

/* Which way wins at which sizes, in a sentence or two; "" if nothing can be said. */
void cmp_summary(const struct cmp_report *rep, enum perf_pattern pattern, char *ret);
void cmp_ratio_text(double x, char *room, size_t n);	/* four columns at most */

/* -- printing (print.c) ------------------------------------------------------------------- */

void cmp_print(const struct cmp_report *rep);
void cmp_print_csv(const struct cmp_report *rep, FILE *to);

/* -- other programs as references (tool.c) ------------------------------------------------ */

/* Append to rep->ways every tool that is known, with the reason if it can't be used. */
void cmp_tools_find(struct cmp_report *rep, bool here);
bool cmp_tool_fits(const struct cmp_tool *tool, enum perf_pattern pattern, uint64_t size);
int cmp_tool_measure(const struct cmp_way *way, enum perf_pattern pattern, uint64_t size, double *v,
		     char *err);

/* -- where the processes are (launch.c) --------------------------------------------------- */

struct cmp_place {
	int nprocs;			/* the launcher's number; 0: we choose it */
	int rank;			/* of this process among them */
	char launcher[32];
	bool one_host;			/* all ranks are on this host */
	bool by_file;			/* rank 0 has put their key in a file */
	const char *remote;		/* HOST:PORT of braid perf --listen; or NULL */
	char host[PERF_HOST];		/* this host's name */
	char addr[PERF_PROCS_MAX][80];	/* of each rank but 0 */
	char names[PERF_PROCS_MAX][PERF_HOST];	/* of each rank's host */
	bool elsewhere[PERF_PROCS_MAX];	/* on another host */
	int fds[PERF_PROCS_MAX];	/* the ranks serve us while these are open */
	int ssh_pid, ssh_in;
	FILE *ssh_out;
	char remote_text[300];
};

/* Has a launcher started us?  `meet` is where to meet rank 0; "" if it must be given. */
bool cmp_launched(struct cmp_place *p, char *meet, size_t n);
/* Rank 0: wait for the others.  Others: serve rank 0 until it ends; an exit status. */
int cmp_gather(struct cmp_place *p, const char *meet, struct perf_key *key, double timeout_s,
	       char *err);
int cmp_serve(struct cmp_place *p, const char *meet, const struct fabric_env *env,
	      struct perf_key *key, double timeout_s, char *err);
/* Start `braid perf --listen` on `host` by ssh, and pass it the key. */
int cmp_ssh(struct cmp_place *p, const char *host, const char *command, const char *key, char *err);
/* Addresses for the n ranks of a session; two ranks are on two hosts if possible. */
void cmp_where(const struct cmp_place *p, int n, const char **where);
void cmp_place_end(struct cmp_place *p);

/* The key of a launcher's ranks (key.c).  cmp_key_again() reads the file that rank 0 makes. */
int cmp_key_first(struct cmp_place *p, const char *meet, struct perf_key *ret, char *err);
bool cmp_key_again(const struct cmp_place *p, const char *meet, struct perf_key *ret);
void cmp_key_end(const struct cmp_place *p, const char *meet);

/* -- measuring (run.c) -------------------------------------------------------------------- */

struct cmp_options {
	struct perf_options perf;	/* env, seconds, timeout_s, check, pin */
	enum perf_pattern patterns[PERF_PATTERNS];
	int npatterns;
	bool reference;
	const volatile sig_atomic_t *stop;		/* set by SIGINT */
	struct cmp_place place;
};

/* Find out which of rep->ways exist here and carry messages. */
int cmp_probe(struct cmp_report *rep, struct cmp_options *o);
/* Measure all rounds; an error goes to rep->failed. */
void cmp_measure(struct cmp_report *rep, struct cmp_options *o);

#endif
