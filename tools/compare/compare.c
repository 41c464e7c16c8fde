/* SPDX-License-Identifier: BSD-3-Clause */
/* compare.c - `braid compare`: the command line, and the order of its steps. */
#include "tools/compare/compare.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/worker.h"
#include "tools/stop.h"
#include "tools/tcp.h"

static const char prog[] = "braid compare";

static const char sizes_default[] = "1,8,64,512,4k,32k,256k,1m,4m,16m,64m";

struct words {				/* options as given */
	const char *patterns, *sizes, *lanes, *over, *base;
	const char *connect, *ssh, *remote_braid, *meet, *key_file;
	const char *json, *csv, *from;
	double seed;
	struct report_to page;
};

struct compare {
	struct words w;
	struct cmp_options o;
	struct cmp_report rep;
	char meet[300];
};

/* -- lists -------------------------------------------------------------------------------- */

/* Call fn() for each word of a comma list; stop at the first result that is not 0. */
static int each(const char *list, int (*fn)(struct compare *c, const char *word), struct compare *c)
{
	char copy[400], *save = NULL, *word;
	int rc = 0;

	snprintf(copy, sizeof(copy), "%s", list);
	for (word = strtok_r(copy, ",", &save); word && !rc; word = strtok_r(NULL, ",", &save))
		rc = fn(c, word);
	return rc;
}

static int pattern_add(struct compare *c, const char *word)
{
	char names[200] = "";
	size_t at = 0;
	int i, k;

	for (i = 0; i < PERF_SETUP; i++) {
		at += (size_t)snprintf(names + at, sizeof(names) - at, " %s", perf_kinds[i].name);
		if (strcmp(word, perf_kinds[i].name) && strcmp(word, "all"))
			continue;
		for (k = 0; k < c->o.npatterns && c->o.patterns[k] != (enum perf_pattern)i;)
			k++;
		if (k == c->o.npatterns)
			c->o.patterns[c->o.npatterns++] = (enum perf_pattern)i;
		if (!strcmp(word, perf_kinds[i].name))
			return 0;
	}
	return !strcmp(word, "all") ? 0 :
	       opt_error(prog, "--patterns '%s' is none of%s all", word, names);
}

static struct cmp_way *way_new(struct compare *c, const char *name)
{
	struct cmp_way *w = &c->rep.ways[c->rep.nways];

	if (c->rep.nways == CMP_WAYS_MAX)
		return NULL;
	c->rep.nways++;
	snprintf(w->name, sizeof(w->name), "%.*s", CMP_NAME - 1, name);
	return w;
}

static const char *const transports[] = { "tcp", "verbs", "smc", "ucx" };

static int check_transport(struct compare *c, const char *word)
{
	unsigned i;

	(void)c;
	for (i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strcmp(word, transports[i]))
			return 0;
	return opt_error(prog, "--over '%s' is none of tcp verbs smc ucx", word);
}

static int tcp_add(struct compare *c, const char *word)
{
	char name[CMP_NAME], *end;
	long lanes = strtol(word, &end, 10);
	struct cmp_way *w;

	if (*end || lanes < 1 || lanes > 16)
		return opt_error(prog, "--lanes takes numbers from 1 to 16, not '%s'", word);
	snprintf(name, sizeof(name), "tcp x%ld", lanes);
	w = way_new(c, name);
	if (!w)
		return opt_error(prog, "--lanes: too many");
	w->way.lanes = (uint32_t)lanes;
	snprintf(w->way.transport, sizeof(w->way.transport), "tcp");
	return 0;
}

static int over_add(struct compare *c, const char *word)
{
	struct cmp_way *w;

	if (!strcmp(word, "tcp"))
		return each(c->w.lanes, tcp_add, c);
	w = way_new(c, word);
	if (w)
		snprintf(w->way.transport, sizeof(w->way.transport), "%s", word);
	return 0;
}

/* A plugin other than Braid is one way, named after it, whichever transports it uses. */
static int other_plugin(struct compare *c)
{
	struct perf_session s;
	struct fabric_about about;
	struct fabric_env env = c->o.perf.env;
	struct cmp_way *w;
	int rc = perf_session_open(&s, &env, 2, false, NULL, 30);

	if (!rc)
		rc = perf_session_load(&s, FABRIC_PLUGIN, NULL, &about);
	perf_session_close(&s);
	if (rc || !strcmp(about.name, "Braid"))
		return 0;
	w = way_new(c, about.name);
	return w ? 1 : 0;
}

static int ways_make(struct compare *c, bool plugin_given)
{
	struct cmp_way *raw;
	int i, rc = 0;

	if (!plugin_given || other_plugin(c) == 0)
		rc = each(c->w.over, over_add, c);
	raw = way_new(c, "raw TCP");
	if (raw) {
		raw->kind = FABRIC_RAW;
		raw->reference = true;
	}
	c->rep.base = -1;
	for (i = 0; c->w.base && i < c->rep.nways && !rc; i++)
		if (!strcmp(c->rep.ways[i].name, c->w.base))
			c->rep.base = i;
	if (!rc && c->w.base && c->rep.base < 0)
		rc = opt_error(prog, "--base '%s' is none of what is compared", c->w.base);
	return rc;
}

/* -- the report --------------------------------------------------------------------------- */

static void describe_ends(struct compare *c)
{
	const struct cmp_place *p = &c->o.place;
	struct utsname u = { .nodename = "?" };

	uname(&u);
	if (p->nprocs)
		snprintf(c->rep.ends, sizeof(c->rep.ends),
			 "braid compare: %d processes of %s; rank 0 on %.60s, %.20s %.60s, %d CPUs",
			 p->nprocs, p->launcher, u.nodename, u.sysname, u.release, perf_cpus());
	else
		snprintf(c->rep.ends, sizeof(c->rep.ends),
			 "braid compare on %.60s, %.20s %.60s, %d CPUs%s%.200s", u.nodename,
			 u.sysname, u.release, perf_cpus(),
			 p->remote ? "; half of the processes at " : "",
			 p->remote ? p->remote : "");
}

static int write_csv(const struct cmp_report *rep, const char *path)
{
	FILE *to = opt_create(prog, path);

	if (!to)
		return 2;
	cmp_print_csv(rep, to);
	return opt_finish(prog, path, to, true);
}

static int write_doc(const struct compare *c)
{
	json_t *doc = cmp_json(&c->rep);
	int rc = report_write(prog, &c->w.page, c->w.json, doc);

	json_decref(doc);
	return rc;
}

static bool wrong(const struct cmp_report *rep)
{
	int i;

	for (i = 0; i < rep->nrows; i++)
		if (rep->rows[i].v[CMP_WRONG] > 0)
			return true;
	return false;
}

/* Write the requested files, and the table unless one of them goes to standard output. */
static int put_all(const struct compare *c)
{
	const struct words *w = &c->w;
	bool taken = opt_is_stdout(w->json) || opt_is_stdout(w->csv) ||
		     report_is_stdout(&w->page);
	int rc = 0;

	if (!taken && (c->rep.nrows || !c->rep.failed[0]))
		cmp_print(&c->rep);
	fflush(stdout);
	if (report_is_wanted(&w->page, w->json))
		rc = write_doc(c);
	if (w->csv && !rc)
		rc = write_csv(&c->rep, w->csv);
	return rc;
}

static int report_result(struct compare *c)
{
	int rc = put_all(c);

	if (c->rep.failed[0] && !rc)
		rc = opt_error(prog, "%s%s [not-measured]", c->rep.failed,
			       c->rep.nrows ? "; what was measured until then is kept" : "");
	if (rc)
		return rc;
	return wrong(&c->rep) ? 1 : c->rep.interrupted ? 128 + SIGINT : 0;
}

/* -- steps -------------------------------------------------------------------------------- */

/* The remote command reads the key from standard input: no other process sees it there. */
static int ssh_start(struct compare *c, const char *plugin, char *err)
{
	char command[1200], quoted[500] = "", key[PERF_KEY_TEXT];

	if (plugin && !strchr(plugin, '\''))
		snprintf(quoted, sizeof(quoted), " --plugin '%.400s'", plugin);
	snprintf(command, sizeof(command), "%.400s perf --listen 0 --key-file - --until-eof%s",
		 c->w.remote_braid, quoted);
	perf_key_new(&c->o.perf.key, key);
	return cmp_ssh(&c->o.place, c->w.ssh, command, key, err);
}

/* Decide where the processes will run; 0, or 2 after a line that says why not. */
static int places(struct compare *c, const char *plugin)
{
	struct cmp_place *p = &c->o.place;
	char err[PERF_TEXT] = "";
	int rc = 0;

	p->remote = c->w.connect;
	if (c->w.ssh)
		rc = ssh_start(c, plugin, err);
	else if (!c->w.connect && p->nprocs)
		rc = cmp_gather(p, c->meet, &c->o.perf.key, c->o.perf.timeout_s, err);
	if (rc)
		return opt_error(prog, "%s [no-meeting]", err[0] ? err : strerror(-rc));
	return 0;
}

static int compare(struct compare *c, const char *plugin)
{
	int rc;

	rc = places(c, plugin);
	stop_on_signals();
	if (!rc)
		rc = ways_make(c, plugin != NULL);
	if (rc)
		goto out;
	if (c->o.reference)
		cmp_tools_find(&c->rep, !c->o.place.nprocs && !c->o.place.remote);
	describe_ends(c);
	if (cmp_probe(&c->rep, &c->o) == 0)
		cmp_measure(&c->rep, &c->o);
	else
		snprintf(c->rep.failed, sizeof(c->rep.failed), "nothing carries: %.1000s",
			 c->rep.ways[0].why);
	if (c->o.place.nprocs)		/* mpirun gives rank 0 a terminal of its own */
		setenv("NO_COLOR", "1", 1);
	rc = report_result(c);
out:
	cmp_place_end(&c->o.place);
	cmp_report_fini(&c->rep);
	return rc;
}

static int serve(struct compare *c)
{
	char err[PERF_TEXT] = "";
	int rc = cmp_serve(&c->o.place, c->meet, &c->o.perf.env, &c->o.perf.key,
			   c->o.perf.timeout_s, err);

	if (rc)
		return opt_error(prog, "rank %d: %s [no-meeting]", c->o.place.rank,
				 err[0] ? err : strerror(-rc));
	return 0;
}

static int again(struct compare *c, bool seeded)
{
	char err[PERF_TEXT];
	int rc = cmp_json_read(&c->rep, c->w.from, err);

	if (rc)
		return opt_error(prog, "%s", err);
	if (seeded)
		c->rep.seed = (uint64_t)c->w.seed;
	rc = put_all(c);
	cmp_report_fini(&c->rep);
	return rc;
}

/* -- the command line --------------------------------------------------------------------- */

static int places_settle(struct compare *c)
{
	struct cmp_place *p = &c->o.place;
	char err[PERF_TEXT];
	union tcp_addr unused;
	int rc;

	if (c->w.connect && c->w.ssh)
		return opt_error(prog, "--connect or --ssh, not both");
	if (c->w.ssh && (c->w.ssh[0] == '-' || c->w.ssh[0] == 0))
		return opt_error(prog, "--ssh takes a host, not '%s'", c->w.ssh);
	if (c->w.connect &&
	    tcp_addr_parse(c->w.connect, true, &unused, err, sizeof(err)) == -EINVAL)
		return opt_error(prog, "--connect: %s", err);
	if (c->w.key_file && !c->w.connect)
		return opt_error(prog, "--key-file is for --connect");
	if (c->w.connect)
		rc = perf_key_need("braid compare", c->w.key_file, c->w.connect, &c->o.perf.key);
	else
		rc = perf_key_read("braid compare", NULL, &c->o.perf.key);
	c->o.perf.env.key = &c->o.perf.key;
	if (rc)
		return rc;
	if (c->w.connect || c->w.ssh || !cmp_launched(p, c->meet, sizeof(c->meet)))
		return c->w.meet ? opt_error(prog, "--meet is for mpirun, srun and torchrun") : 0;
	if (p->nprocs > PERF_PROCS_MAX)
		return opt_error(prog, "%d processes of %s are more than %d", p->nprocs,
				 p->launcher, PERF_PROCS_MAX);
	if (c->w.meet)
		snprintf(c->meet, sizeof(c->meet), "%s", c->w.meet);
	if (!c->meet[0])
		return opt_error(prog, "%s does not say where rank 0 is: --meet HOST:PORT",
				 p->launcher);
	return 0;
}

static int settle(struct compare *c)
{
	struct perf_options *o = &c->o.perf;
	int rc = each(c->w.patterns, pattern_add, c);

	o->nsizes = perf_sizes_parse(c->w.sizes, o->sizes, PERF_SIZES_MAX);
	if (!rc && o->nsizes < 0)
		rc = opt_error(prog, "--sizes takes a list of sizes up to 1g and of ranges, such "
			       "as 8:1m or 8,1k,64k, not '%s'", c->w.sizes);
	if (!rc && c->o.npatterns == 0)
		rc = opt_error(prog, "--patterns needs one");
	if (!rc)
		rc = each(c->w.over, check_transport, c);
	if (!rc && opt_is_stdout(c->w.json) && opt_is_stdout(c->w.csv))
		rc = opt_error(prog, "--json or --csv to standard output, not both");
	return rc ? rc : places_settle(c);
}

static struct compare cmd = {
	.w = { .patterns = "pingpong,oneway,allreduce", .sizes = sizes_default,
	       .lanes = "1,4", .over = "tcp,verbs,smc,ucx", .remote_braid = "braid",
	       .seed = -1 },
	.o = { .perf = { .procs = 4, .comms = 1, .threads = 1, .seconds = 0.03,
			 .warmup = -1, .rounds = 5,
			 .env = { .fabrics = fabric_table, .cpu = -1 } },
	       .stop = &stop_asked },
};

static const struct opt rows[] = {
	{OPT_TEXT, "patterns", "LIST",
	 "pingpong oneway bidir rate allreduce alltoall incast hier sparse all",
	 &cmd.w.patterns, 0, 0},
	{OPT_TEXT, "sizes", "LIST", "1 to 64m in eleven steps, or 8:1m, or 8,1k,64k",
	 &cmd.w.sizes, 0, 0},
	{OPT_TEXT, "over", "LIST", "of tcp,verbs,smc,ucx; all that are there", &cmd.w.over, 0,
	 0},
	{OPT_TEXT, "lanes", "LIST", "of tcp (1,4)", &cmd.w.lanes, 0, 0},
	{OPT_TEXT, "base", "NAME", "what ratios are to (the first that is there)",
	 &cmd.w.base, 0, 0},
	{OPT_INT, "rounds", "N", "each measures everything once, in turn (5)", &cmd.o.perf.rounds,
	 1, CMP_ROUNDS_MAX},
	{OPT_REAL, "seconds", "S", "each measurement lasts so long (0.03)", &cmd.o.perf.seconds,
	 0.001, 60},
	{OPT_INT, "procs", "N", "processes of collectives (4)", &cmd.o.perf.procs, 2,
	 PERF_PROCS_MAX},
	{OPT_FLAG, "reference", NULL, "perftest, Open MPI and Gloo too, where installed",
	 &cmd.o.reference, 0, 0},
	{OPT_TEXT, "ssh", "HOST", "half of the processes there, started by ssh", &cmd.w.ssh,
	 0, 0},
	{OPT_TEXT, "remote-braid", "PATH", "the command there (braid)", &cmd.w.remote_braid,
	 0, 0},
	{OPT_TEXT, "connect", "HOST:PORT", "the same, braid perf --listen runs there",
	 &cmd.w.connect, 0, 0},
	{OPT_TEXT, "key-file", "FILE", PERF_KEY_HELP, &cmd.w.key_file, 0, 0},
	{OPT_TEXT, "meet", "HOST:PORT", "of a launcher: where rank 0 is met", &cmd.w.meet, 0,
	 0},
	{OPT_FLAG, "check", NULL, "verify every byte (slower)", &cmd.o.perf.check, 0, 0},
	{OPT_FLAG, "pin", NULL, "process r runs on CPU r only", &cmd.o.perf.pin, 0, 0},
	{OPT_OUTPUT, "json", "FILE", "also write JSON; -: only that, to standard output",
	 &cmd.w.json, 0, 0},
	{OPT_OUTPUT, "csv", "FILE", "the same as CSV, a row for each round", &cmd.w.csv, 0, 0},
	REPORT_OPTIONS(cmd.w.page),
	{OPT_TEXT, "from", "FILE", "measure nothing, print this JSON again", &cmd.w.from, 0,
	 0},
	{OPT_REAL, "seed", "N", "of the intervals (1)", &cmd.w.seed, 0, 4294967295.0},
	{OPT_REAL, "timeout", "S",
	 "give up when a step takes longer (BRAID_CONNECT_TIMEOUT and 15)", &cmd.o.perf.timeout_s,
	 1, 3600},
	{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so", &cmd.o.perf.env.plugin, 0, 0},
	{OPT_INT, "abi", "V", "its ABI version (the newest)", &cmd.o.perf.env.abi, 5, 12},
	{OPT_FLAG, "verbose", NULL, "print what the plugin logs", &cmd.o.perf.env.verbose, 0, 0},
	OPT_SUCH_AS("braid compare", "two processes, or four, on this host"),
	OPT_SUCH_AS("braid compare --ssh HOST --rounds 9 --json report.json",
		    "half of them on HOST, and a report"),
	OPT_SUCH_AS("BRAID_PERF_KEY=KEY braid compare --connect HOST:7000",
		    "where braid perf --listen 7000 runs, which prints KEY"),
	OPT_SUCH_AS("mpirun -n 8 braid compare --patterns all",
		    "each process is one rank; or srun, or torchrun --no-python"),
	OPT_SUCH_AS("braid compare --from report.json", "the report again"),
	{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
};

int cmd_compare(int argc, char **argv)
{
	enum opt_end end = opt_parse(
		prog, "Measure every transport that both ends have, in turn, and say which wins.",
		rows, argc, argv);
	struct perf_options *o = &cmd.o.perf;
	const char *plugin = o->env.plugin;
	int rc;

	if (end != OPT_RUN)
		return end;
	if (cmd.w.from)
		return again(&cmd, cmd.w.seed >= 0);
	cmd.rep.seed = cmd.w.seed >= 0 ? (uint64_t)cmd.w.seed : 1;
	cmd.rep.rounds = o->rounds;
	if (o->timeout_s <= 0)
		o->timeout_s = perf_connect_s() + 15;
	rc = plugin_find(prog, &o->env.plugin);
	if (!rc)
		rc = settle(&cmd);
	if (rc)
		return rc;
	return cmd.o.place.rank > 0 ? serve(&cmd) : compare(&cmd, plugin);
}
