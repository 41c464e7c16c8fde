/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.h - one measurement as braid perf and braid compare ask for it, and its rows. */
#ifndef BRAID_TOOLS_PERF_H
#define BRAID_TOOLS_PERF_H

#include "tools/perf/fabric.h"
#include "tools/perf/key.h"
#include "tools/perf/session.h"
#include "tools/report/report.h"

struct perf_options {
	enum perf_pattern pattern;
	struct fabric_env env;
	int procs, comms, threads, inflight;
	uint64_t sizes[PERF_SIZES_MAX];
	int nsizes;
	double seconds;
	double iters, warmup;		/* iters 0: as many as fill `seconds` */
	int rounds;
	double timeout_s;		/* by default 15 more than perf_connect_s() */
	bool check, raw, raw_only, pin, json, csv;
	enum fabric_kind one_sided;	/* FABRIC_PLUGIN: no */
	const char *remote, *key_file;
	struct report_to page;
	struct perf_key key;		/* of the listener, there or here */
};

struct perf_row {			/* one size over one fabric, all workers together */
	enum fabric_kind kind;
	int round;
	uint64_t size, iters;
	double seconds;
	double bytes, messages;
	double gbit_s, msg_s, cpu_s_per_gb;
	double bounce_ns;		/* the greater of before and after; 0: not measured */
	bool regime_moved;		/* before and after differ by half or more */
	double cpu_share;		/* part of a CPU that the most starved process had */
	uint64_t values, wrong;
	double resent;			/* share of the busiest sender's TCP segments sent again */
	struct perf_latency lat;
	struct perf_linked linked;	/* setup: of comm number `iters` */
};

struct perf_report {
	const struct perf_options *opt;
	struct fabric_about about[FABRIC_KINDS];
	bool have[FABRIC_KINDS];
	struct perf_row *rows;
	int nrows, room;
	int printed;			/* of the rows; 0: the heading neither */
	uint64_t close_ns[FABRIC_KINDS];
};

/* NULL: it was not measured. */
const struct perf_row *perf_row_find(const struct perf_report *rep, enum fabric_kind kind,
				     uint64_t size, int round);
/* The fabric to measure, and the one to compare with; FABRIC_KINDS: compare with none. */
enum fabric_kind perf_first(const struct perf_options *o);
enum fabric_kind perf_base(const struct perf_options *o);

/* -- one row (row.c) ---------------------------------------------------------------------- */

struct perf_run perf_run_of(const struct perf_options *o, enum fabric_kind kind, uint64_t size,
			    uint64_t iters);
int perf_once(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
	      uint64_t size, uint64_t iters, struct perf_row *ret);
/*
 * If *iters is 0, find how many fill o->seconds (or take o->iters), which warms everything up;
 * otherwise run o->warmup iterations, or a tenth of *iters.
 */
int perf_warm_up(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters);
/* How many iterations fill o->seconds as fast as `row` was. */
uint64_t perf_pace(const struct perf_options *o, const struct perf_row *row);
/*
 * As perf_once(); then adapt *iters to the pace, because a count found while another program had
 * the CPU is too small later.  A measurement shorter than a quarter of o->seconds is repeated, at
 * most twice.
 */
int perf_measure(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters, struct perf_row *ret);

/* -- the command (size.c, perf.c, print.c) ------------------------------------------------ */

int perf_sizes_parse(const char *text, uint64_t *sizes, int max);	/* how many, or -EINVAL */
const char *perf_size_name(uint64_t size, char room[24]);
/* `fabrics` as in fabric_env; without FABRIC_PLUGIN, options for plugins are left out. */
int perf_main(const char *prog, const struct fabric_ops *const *fabrics, int argc, char **argv);
/* Print the rows since the last call, if the format is a list of rows. */
void perf_print_more(struct perf_report *rep);
/* The rest, and the pages; 0, or 2 if one could not be written. */
int perf_print_end(const char *prog, struct perf_report *rep);
int perf_row_add(struct perf_report *rep, const struct perf_row *row);

#endif
