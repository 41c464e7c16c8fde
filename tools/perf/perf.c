/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf.c - `braid perf` and `rawtcp`: read the options and run one pattern over a list of sizes.
 *
 * The plugin and raw TCP are measured in turn, in the same processes; print.c prints the rows.
 */
#include "tools/perf/perf.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/pattern.h"
#include "tools/perf/stat.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"

/* A measurement may take so many times its --seconds, whose iterations are an estimate. */
enum { RUN_TIMES = 10 };

struct perf {				/* one invocation */
	const char *prog;
	struct perf_options opt;
	struct perf_session s;
	struct perf_report rep;
	uint64_t iters[PERF_SIZES_MAX][FABRIC_KINDS];	/* 0: not yet known */
	bool tty;
};

/* -- one measurement ---------------------------------------------------------------------- */

static double bounce(const struct perf *p)
{
	if (!p->opt.pin || p->opt.remote || perf_cpus() < 2)
		return 0;
	return perf_bounce_ns(perf_cpu_nth(0), perf_cpu_nth(1));
}

static void progress(const struct perf *p, enum fabric_kind kind, uint64_t size, int round)
{
	char room[24];

	if (p->tty)
		fprintf(stderr, "\r\033[K%s %s over %s, round %d of %d",
			perf_kinds[p->opt.pattern].name, perf_size_name(size, room),
			p->rep.about[kind].name, round + 1, p->opt.rounds);
}

static void progress_end(const struct perf *p)
{
	if (p->tty)
		fputs("\r\033[K", stderr);
}

static int measure(struct perf *p, enum fabric_kind kind, int at, int round)
{
	uint64_t size = p->opt.sizes[at], *iters = &p->iters[at][kind];
	struct perf_row row;
	double before, after;
	int rc;

	progress(p, kind, size, round);
	rc = perf_warm_up(&p->s, &p->opt, kind, size, iters);
	if (rc)
		return rc;
	before = bounce(p);
	rc = perf_measure(&p->s, &p->opt, kind, size, iters, &row);
	if (rc)
		return rc;
	after = bounce(p);
	row.round = round;
	row.bounce_ns = fmax(before, after);
	row.regime_moved = row.bounce_ns > 1.5 * fmin(before, after);
	return perf_row_add(&p->rep, &row);
}

/* -- ending the rounds early -------------------------------------------------------------- */

static volatile sig_atomic_t no_more, interrupted;

static void stop(int sig)
{
	no_more = 1;
	interrupted |= sig == SIGINT;
}

/* SIGTERM ends the rounds after the current one, Ctrl-C at once; a second signal the process. */
static void stop_on_signals(const struct perf_options *o)
{
	struct sigaction sa = { .sa_handler = stop, .sa_flags = SA_RESTART | (int)SA_RESETHAND };

	if (o->rounds > 1)
		sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
}

/* -- all rows ----------------------------------------------------------------------------- */

/*
 * The samples of a size are spread over the whole run: a host that is busy for a second spoils one
 * of each size, and no size's median.
 */
static int round_run(struct perf *p, int round)
{
	enum fabric_kind kind;
	int i, rc;

	for (i = 0; i < p->opt.nsizes; i++) {
		for (kind = 0; kind < FABRIC_KINDS; kind++) {
			if (!p->rep.have[kind])
				continue;
			rc = measure(p, kind, i, round);
			if (rc)
				return rc;
		}
		progress_end(p);
		if (p->opt.csv || p->opt.rounds == 1)	/* medians are there at the end */
			perf_print_more(&p->rep);
	}
	return 0;
}

static int patterns_run(struct perf *p)
{
	int round, rc = 0;

	for (round = 0; round < p->opt.rounds && !rc && (!round || !no_more); round++)
		rc = round_run(p, round);
	return rc;
}

/* Set up comm after comm; then close all. */
static int setup_run(struct perf *p)
{
	struct perf_row row;
	enum fabric_kind kind;
	int idx, rc = 0;

	for (kind = 0; kind < FABRIC_KINDS && !rc; kind++) {
		for (idx = 0; p->rep.have[kind] && idx < p->opt.comms && !rc; idx++) {
			row = (struct perf_row){ .kind = kind, .iters = (uint64_t)idx + 1 };
			rc = perf_session_link(&p->s, kind, 0, 1, idx, &row.linked);
			if (!rc)
				rc = perf_row_add(&p->rep, &row);
		}
		if (p->rep.have[kind] && !rc)
			rc = perf_session_unlink(&p->s, kind, &p->rep.close_ns[kind]);
	}
	return rc;
}

/* Make room for the largest size before the comms, as NCCL registers its buffers once. */
static int arena_make(struct perf *p)
{
	uint64_t most = 1;
	struct perf_run run;
	int i;

	for (i = 0; i < p->opt.nsizes; i++)
		if (p->opt.sizes[i] > most)
			most = p->opt.sizes[i];
	run = perf_run_of(&p->opt, FABRIC_RAW, most, 1);
	return perf_session_arena(&p->s, perf_arena_bytes(&run, p->opt.procs));
}

static int fabrics_open(struct perf *p)
{
	enum fabric_kind kind;
	int rc = arena_make(p);

	for (kind = 0; kind < FABRIC_KINDS && !rc; kind++) {
		if (kind != perf_first(&p->opt) && kind != perf_base(&p->opt))
			continue;
		p->rep.have[kind] = true;
		rc = perf_session_load(&p->s, kind, NULL, &p->rep.about[kind]);
		if (!rc && p->opt.pattern != PERF_SETUP)
			rc = perf_session_link_all(&p->s, kind, p->opt.pattern, p->opt.comms);
	}
	return rc;
}

static bool all_right(const struct perf_report *rep)
{
	int i;

	for (i = 0; i < rep->nrows; i++)
		if (rep->rows[i].wrong)
			return false;
	return true;
}

/* What goes wrong once Ctrl-C was pressed is not reported: a worker may have left, too. */
static int perf_end(struct perf *p, int rc)
{
	bool has = !rc || (p->rep.nrows && p->opt.pattern != PERF_SETUP);
	int bad = 0;

	progress_end(p);
	if (rc && !interrupted)
		opt_fail(p->prog, "[not-measured]", "%s", p->s.err[0] ? p->s.err : strerror(-rc));
	if (has)			/* the rows so far, if it was stopped */
		bad = perf_print_end(p->prog, &p->rep);
	if (rc && interrupted)
		opt_fail(p->prog, "[stopped-early]",
			 has ? "stopped; what is above was measured before" : "stopped");
	if (!rc)
		return bad ? bad : !all_right(&p->rep);
	return interrupted ? 128 + SIGINT : 2;
}

static int perf_run(struct perf *p)
{
	int rc;

	p->tty = isatty(STDERR_FILENO);
	p->rep.opt = &p->opt;
	stop_on_signals(&p->opt);
	rc = perf_session_open(&p->s, &p->opt.env, p->opt.procs, p->opt.pin, p->opt.remote,
			       p->opt.timeout_s);
	p->s.stop = &interrupted;
	p->s.run_s = p->opt.iters > 0 ? 0 : RUN_TIMES * p->opt.seconds;
	if (!rc)
		rc = fabrics_open(p);
	if (!rc)
		rc = p->opt.pattern == PERF_SETUP ? setup_run(p) : patterns_run(p);
	rc = perf_end(p, rc);
	perf_session_close(&p->s);
	free(p->rep.rows);
	return rc;
}

/* -- the command line --------------------------------------------------------------------- */

struct words {				/* options as given */
	const char *pattern, *sizes, *listen, *one_sided;
	bool once, until_eof;
};

/* The fabric that --one-sided names.  A put lands at the offset it came from: no --check. */
static int one_sided_find(const char *prog, struct perf_options *o, const char *word)
{
	enum fabric_kind kind = FABRIC_PUT;
	bool streams = o->pattern <= PERF_RATE || o->pattern == PERF_ALLTOALL ||
		       o->pattern == PERF_INCAST;

	if (!word)
		return 0;
	while (kind < FABRIC_KINDS && strcmp(word, o->env.fabrics[kind]->name) != 0)
		kind++;
	if (kind == FABRIC_KINDS)
		return opt_error(prog, "--one-sided '%s' is none of put, putsignal, get", word);
	if (!streams || (kind == FABRIC_GET && o->pattern == PERF_PINGPONG))
		return opt_error(prog, "--one-sided %s has no --pattern %s", word,
				 perf_kinds[o->pattern].name);
	if (o->check)
		return opt_error(prog, "--one-sided or --check, not both");
	o->one_sided = kind;
	return 0;
}

static int pattern_find(const char *prog, const char *name, enum perf_pattern *ret)
{
	char names[200] = "";
	size_t at = 0;
	int i;

	for (i = 0; i < PERF_DDP; i++) {
		if (strcmp(name, perf_kinds[i].name) == 0) {
			*ret = (enum perf_pattern)i;
			return 0;
		}
		at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", i ? ", " : "",
				       perf_kinds[i].name);
	}
	return opt_error(prog, "--pattern '%s' is none of %s", name, names);
}

/* Defaults come from the pattern's row.  2: options do not fit together. */
static int options_settle(const char *prog, struct perf_options *o, const struct words *w)
{
	const struct perf_kind *kind;
	int rc = pattern_find(prog, w->pattern, &o->pattern);

	if (rc)
		return rc;
	kind = &perf_kinds[o->pattern];
	if (o->procs == 0)
		o->procs = kind->procs;
	if (o->inflight == 0)
		o->inflight = kind->inflight;
	if (o->comms == 0)
		o->comms = o->pattern == PERF_SETUP ? 8 : o->threads;
	if (o->procs < kind->procs_least || o->procs > kind->procs_most)
		return opt_error(prog, "--pattern %s is for %d to %d processes, not %d", kind->name,
				 kind->procs_least, kind->procs_most, o->procs);
	if (o->threads > o->comms)
		return opt_error(prog, "%d threads need at least as many comms, not %d", o->threads,
				 o->comms);
	o->nsizes = perf_sizes_parse(w->sizes ? w->sizes : kind->sizes, o->sizes, PERF_SIZES_MAX);
	if (o->nsizes < 0)
		return opt_error(prog,
				 "--sizes takes a list of sizes up to 1g and of ranges, such as "
				 "8:1m or 8,1k,64k, not '%s'",
				 w->sizes);
	if (o->env.asks && o->pattern != PERF_PINGPONG)
		return opt_error(prog, "--asked is for --pattern pingpong");
	rc = one_sided_find(prog, o, w->one_sided);
	if (rc)
		return rc;
	if (o->json && o->csv)
		return opt_error(prog, "--json or --csv, not both");
	if ((o->json || o->csv) && report_is_stdout(&o->page))
		return opt_error(prog, "--json, --csv or a page to standard output, not two");
	if (o->env.verbose && o->raw_only)
		return opt_error(prog, "--verbose is for a plugin");
	return 0;
}

/* Only a malformed address is a usage error; a host that does not answer is not. */
static int remote_check(const char *prog, const struct perf_options *o, const struct words *w)
{
	char err[PERF_TEXT];
	union tcp_addr unused;

	if (o->remote && w->listen)
		return opt_error(prog, "--listen or --connect, not both");
	if (w->once && !w->listen)
		return opt_error(prog, "--once is for --listen");
	if (w->until_eof && !w->listen)
		return opt_error(prog, "--until-eof is for --listen");
	if (o->key_file && !w->listen && !o->remote)
		return opt_error(prog, "--key-file is for --listen and --connect");
	if (o->remote && tcp_addr_parse(o->remote, true, &unused, err, sizeof(err)) == -EINVAL)
		return opt_error(prog, "--connect: %s", err);
	if (w->listen && tcp_addr_parse(w->listen, false, &unused, err, sizeof(err)) == -EINVAL)
		return opt_error(prog, "--listen: %s", err);
	return 0;
}

static int serve(const char *prog, struct perf_options *o, const struct words *w)
{
	char err[PERF_TEXT] = "";
	char text[PERF_KEY_TEXT];
	int port, rc, fd = perf_worker_listen(w->listen, &port, err);

	if (fd < 0)
		return opt_fail(prog, "[not-served]", "%s", err), 2;
	perf_listen_print(prog, fd, port, perf_key_made(&o->key, text));
	/* Standard input is of a program: that reports, and may not read what a listener says. */
	rc = perf_worker_serve(w->until_eof ? NULL : prog, fd, &o->env, perf_worker_main, o->pin,
			       w->once, w->until_eof ? STDIN_FILENO : -1);
	close(fd);
	return rc;
}

static struct perf cmd;
static struct words given = { .pattern = "pingpong" };

static const struct opt common_rows[] = {
	{OPT_TEXT, "pattern", "NAME",
	 "pingpong oneway bidir rate allreduce alltoall incast hier sparse setup",
	 &given.pattern, 0, 0},
	{OPT_TEXT, "sizes", "LIST", "8:1m by doubling, or 8,1k,64k; k, m, g", &given.sizes, 0,
	 0},
	{OPT_INT, "inflight", "K", "messages posted and not done, per comm", &cmd.opt.inflight,
	 1, PERF_INFLIGHT_MAX},
	{OPT_INT, "comms", "N", "comms from one rank to another", &cmd.opt.comms, 1,
	 PERF_COMMS_MAX},
	{OPT_INT, "threads", "N", "threads a process drives them with", &cmd.opt.threads, 1,
	 PERF_THREADS_MAX},
	{OPT_INT, "procs", "N", "processes", &cmd.opt.procs, 2, PERF_PROCS_MAX},
	{OPT_REAL, "seconds", "S", "each measurement lasts so long (0.5)", &cmd.opt.seconds,
	 0.001, 3600},
	{OPT_REAL, "iters", "N", "this many iterations instead", &cmd.opt.iters, 1, 2e9},
	{OPT_REAL, "warmup", "N", "iterations before (a tenth)", &cmd.opt.warmup, 0, 2e9},
	{OPT_INT, "rounds", "N", "measure so often, fabrics in turn; medians", &cmd.opt.rounds,
	 1, 1000},
	{OPT_FLAG, "check", NULL, "verify every byte (slower)", &cmd.opt.check, 0, 0},
	{OPT_FLAG, "pin", NULL, "process r runs on CPU r only", &cmd.opt.pin, 0, 0},
	{OPT_FLAG, "spin", NULL, "keep the CPU while nothing moves, as perftest does",
	 &cmd.opt.env.spin, 0, 0},
	{OPT_TEXT, "dev", "DEV", "device, by number or name; a+b: both, fused",
	 &cmd.opt.env.dev, 0, 0},
	{OPT_TEXT, "listen", "[ADDR:]PORT",
	 "serve --connect of another host, by IPv4 and IPv6, and print its key",
	 &given.listen, 0, 0},
	{OPT_FLAG, "once", NULL, "with --listen: serve one session", &given.once, 0, 0},
	{OPT_FLAG, "until-eof", NULL, "with --listen: serve until standard input ends",
	 &given.until_eof, 0, 0},
	{OPT_TEXT, "connect", "HOST:PORT", "half of the processes run there", &cmd.opt.remote, 0,
	 0},
	{OPT_TEXT, "key-file", "FILE", PERF_KEY_HELP, &cmd.opt.key_file, 0, 0},
	{OPT_REAL, "timeout", "S",
	 "give up when a step takes longer (BRAID_CONNECT_TIMEOUT and 15)",
	 &cmd.opt.timeout_s, 1, 3600},
	{OPT_FLAG, "json", NULL, "print JSON", &cmd.opt.json, 0, 0},
	{OPT_FLAG, "csv", NULL, "print CSV", &cmd.opt.csv, 0, 0},
	REPORT_OPTIONS(cmd.opt.page),
};

static const struct opt plugin_rows[] = {
	{OPT_FLAG, "raw", NULL, "the same over raw TCP, and the ratio", &cmd.opt.raw, 0, 0},
	{OPT_TEXT, "one-sided", "WORD",
	 "by the plugin's RMA: put, putsignal or get, and the ratio to messages",
	 &given.one_sided, 0, 0},
	{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so", &cmd.opt.env.plugin, 0, 0},
	{OPT_INT, "abi", "V", "its ABI version (the newest)", &cmd.opt.env.abi, 5, 12},
	{OPT_FLAG, "verbose", NULL, "print what the plugin logs", &cmd.opt.env.verbose, 0, 0},
	OPT_SUCH_AS("braid perf --raw --pin --rounds 5 --sizes 8:512k",
		    "beside raw TCP on this machine, five rounds"),
	OPT_SUCH_AS("braid perf --one-sided putsignal --pattern alltoall --procs 8 --sizes 8:8k",
		    "many small puts with signals, as expert dispatch does"),
	OPT_SUCH_AS("braid perf --listen 5201", "on one host, and on another"),
	OPT_SUCH_AS("BRAID_PERF_KEY=KEY braid perf --connect host1:5201 --pattern oneway",
		    "bandwidth between the two; the listener prints KEY"),
	{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
};

static const struct opt raw_rows[] = {
	{OPT_FLAG, "asked", NULL, "a header, and an answer, before each message; pingpong only",
	 &cmd.opt.env.asks, 0, 0},
	{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
};

enum {
	COMMON_ROWS = sizeof(common_rows) / sizeof(common_rows[0]),
	PLUGIN_ROWS = sizeof(plugin_rows) / sizeof(plugin_rows[0]),
};

static enum opt_end parse(const char *prog, bool raw_only, int argc, char **argv)
{
	struct opt rows[COMMON_ROWS + PLUGIN_ROWS] = { 0 };

	memcpy(rows, common_rows, sizeof(common_rows));
	if (raw_only)
		memcpy(rows + COMMON_ROWS, raw_rows, sizeof(raw_rows));
	else
		memcpy(rows + COMMON_ROWS, plugin_rows, sizeof(plugin_rows));
	return opt_parse(prog, raw_only ? "Plain TCP, measured as braid perf measures plugins." :
				"Measure a NCCL net plugin, by default Braid, between processes.",
			 rows, argc, argv);
}

int perf_main(const char *prog, const struct fabric_ops *const *fabrics, int argc, char **argv)
{
	struct perf_options *o = &cmd.opt;
	enum opt_end end;
	int rc;

	cmd.prog = prog;
	o->threads = o->rounds = 1;
	o->seconds = 0.5;
	o->warmup = -1;
	o->timeout_s = perf_connect_s() + 15;
	o->env.cpu = -1;
	o->env.fabrics = fabrics;
	o->raw_only = !fabrics[FABRIC_PLUGIN];
	end = parse(prog, o->raw_only, argc, argv);
	if (end != OPT_RUN)
		return end;
	rc = o->raw_only ? 0 : plugin_find(prog, &o->env.plugin);
	if (!rc)
		rc = options_settle(prog, o, &given);
	if (!rc)
		rc = remote_check(prog, o, &given);
	if (rc)
		return rc;
	o->env.key = &o->key;
	if (o->remote)
		rc = perf_key_need(prog, o->key_file, o->remote, &o->key);
	else if (given.listen)
		rc = perf_key_read(prog, o->key_file, &o->key);
	if (rc)
		return rc;
	return given.listen ? serve(prog, o, &given) : perf_run(&cmd);
}

int cmd_perf(int argc, char **argv)
{
	return perf_main("braid perf", fabric_table, argc, argv);
}
