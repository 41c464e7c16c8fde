/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * validate.h - what a check of `braid validate` is, and how it reports.
 *
 * A check is a row of its group's table, as in braid doctor, and runs in a process of its own that
 * has not loaded the plugin yet.  It fails by leaving that process: FAIL() and its like (drive.h)
 * pass their sentence to the report.  A crash is a failure, too, and so is a hang when the row's
 * seconds are over.
 */
#ifndef BRAID_TOOLS_VALIDATE_H
#define BRAID_TOOLS_VALIDATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/drive.h"
#include "tools/perf/key.h"
#include "tools/perf/fabric.h"
#include "tools/findings.h"
#include "tools/report/report.h"

enum { VALIDATE_VERSION = 1 };

enum profile { PROFILE_QUICK, PROFILE_FULL, PROFILE_SOAK };

struct options {
	const char *plugin, *dev, *connect, *only, *port_down, *port_up;
	const char *json, *junit, *thresholds;
	struct report_to page;
	const char *key_file;
	struct perf_key key;		/* of the listener, there or here */
	int abi;
	enum profile profile;
	double hours;
	double seed;			/* a whole number; 0: from the clock */
	bool faults, tap;
};

/* When a check is left out. */
enum {
	V_FULL = 1,			/* takes long: not in the quick profile */
	V_FAULT = 2,			/* breaks things: with --faults */
	V_SOAK = 4,			/* repeated by soak */
	V_HERE = 8,			/* both ends are on this host, with --connect as well */
	V_MORE = 16,			/* more than NCCL asks: a plugin may do without */
};

struct validate;

struct vcheck {
	const char *id;			/* "data-zero": the group is the part before the dash */
	const char *title;		/* the promise, in words */
	const char *mend;		/* what to do where it is not kept */
	void (*run)(struct validate *v);
	unsigned flags;
	int seconds;			/* 0: 20 */
};

#define REPORT "Report it to who made the plugin"
#define MORE "Nothing, for NCCL: it does not ask for this"
#define TOO_LATE                                                                    \
	"It was late, not wrong: run it again while the host is idle; if it is late again, " \
	"jobs would hang here: report it"
#define HANGS "Jobs hang, or go on with wrong data: report it"
#define HUNG "NCCL's thread stands still for all its peers: report it"
#define BROKEN                                                                      \
	"Data is not safe over this path. Try --transport tcp to see whose fault it is; " \
	"update firmware and driver; report it"

/* Each table is in the file of its name, and its last row is empty. */
extern const struct vcheck validate_load[], validate_props[], validate_connect[],
	validate_stranger[], validate_data[], validate_comms[], validate_flush[], validate_mr[],
	validate_rma_table[], validate_rma_group[], validate_rma_put[], validate_rma_signal[],
	validate_rma_order[], validate_rma_window[], validate_rma_fault[], validate_path[],
	validate_iwarp[], validate_smc[], validate_fault[], validate_outage[], validate_heal[],
	validate_scale[], validate_perf[];

struct validate {			/* the state of the current check */
	const struct options *w;
	const struct vcheck *check;
	const json_t *limits;		/* of --thresholds; or NULL */
	struct findings findings;
	json_t *figures;
	int out;
	int abi;
	uint64_t seed;
	struct net *net;		/* after net_up() */
	int dev, ndev;
	char nic[64];			/* the device's name */
	int far;			/* the servant's socket */
	pid_t far_pid;			/* 0: on another host */
};

/* -- what a check reports (verdict.c) ----------------------------------------------------- */

/* Report one sentence, without a full stop, that names the thing and its value. */
void saw(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void skip(struct validate *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The current step; the report of a hang names the last one. */
void step(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A figure, with its samples; `least` or `most` of the thresholds may fail it. */
struct figure {
	const char *name, *unit;
	double value;
	bool more_is_better;
	const double *samples;
	unsigned n;
	const double *shares;		/* of a CPU, that the more starved process had; or NULL */
};
void figure(struct validate *v, const struct figure *f);
/* Is there a figure of that name?  If not, *ret_near is the one most like it. */
bool limits_knows(const char *name, const char **ret_near);
enum limit { LIMIT_NONE, LIMIT_KEPT, LIMIT_BROKEN };	/* LIMIT_BROKEN: with a sentence */
enum limit limits_hold(const json_t *limits, const char *nic, const struct figure *f, char *ret,
		       size_t len);

/* -- running checks (verdict.c, checks.c, check.c, run.c) --------------------------------- */

/* In the process that runs v->check: report failures from here on. */
void verdict_begin(struct validate *v);
_Noreturn void verdict_end(struct validate *v);

const struct vcheck *validate_at(unsigned i);		/* NULL: no more */
bool validate_is_selected(const struct options *w, const struct vcheck *c);
const char *validate_profile(const struct vcheck *c);	/* "quick", "full", "faults" */
bool validate_only_is_valid(const char *only, char *ret, size_t len);
void validate_list(void);
/* Run one check; its result, as the report has it. */
json_t *check_run(const struct options *w, const struct vcheck *c, const json_t *limits,
		  uint64_t seed);
/* The result of a check that did not run to its end, or not at all. */
json_t *check_passed_over(const struct vcheck *c, const char *result, const char *why);
/* Run the checks that are asked for and write the reports; returns the exit status. */
int validate_run(const struct options *w);

json_t *host_inventory(const struct options *w);

/* Read a file of thresholds; NULL with a sentence: unreadable, malformed, newer. */
json_t *limits_load(const char *path, char *err, size_t len);

bool report_is_quiet(const struct options *w);	/* stdout is for a file */
/* Print results as checks end, as text or TAP. */
void report_begin(const struct options *w, unsigned n);
void report_check(const struct options *w, const json_t *c, unsigned nth);
/* Write the JSON, if there is a file for it: 0, or 2 after a line on stderr. */
int report_save(const struct options *w, const json_t *report);
/* Write the report's files: 0, or -1 after a line on stderr. */
int report_end(const struct options *w, const json_t *report);

#endif
