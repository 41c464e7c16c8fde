/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faults.c - the fault runner: every row of the fault table over real sockets, against any net
 * plugin's .so.  A run is a row and a seed; it is a process of its own (run.h), and what it leaves
 * is one line of JSON.  At the end a table, and 1 if something failed, 77 if all was skipped.
 *
 *	tests/faults/faults --plugin PATH [--rows F19,F26] [--seeds N] [--soak] [--one-sided]
 *	tests/faults/faults --plugin PATH --heal [--what TEXT]
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/run.h"
#include "tools/opt.h"

enum { JOBS_MAX = 16, LIMIT_S = 60, OPTIONS_MAX = 60 };

struct job {				/* a run under way */
	const struct row *row;
	unsigned seed;
	pid_t pid;
	int out, log;
	uint64_t from_ns;
};

struct tally {				/* of one row */
	unsigned runs, failed, skipped;
	double stall_s, heal_s, error_s, cpu_us, setup_us;
};

static struct {
	struct options o;
	FILE *json;
	struct tally *rows;		/* as many as there are in the table */
	double calls[CALLS][4];		/* the worst of each entry, in the order of spans[] */
	unsigned n, failed, skipped;
	char why[256];			/* why the last skipped run was skipped */
	char **argv;
	const char *inside;		/* row,seed,fd,fd: this process is that run */
} all;

static const char *const spans[4] = { "cpu_p999_us", "cpu_max_us", "wall_p999_us", "wall_max_us" };

/* -- the result of a run ------------------------------------------------------------------ */

static char *text_of(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)len + 1);

	if (text && pread(fd, text, (size_t)len, 0) != len)
		text[0] = '\0';
	return text;
}

static void keep_most(double *most, json_t *value)
{
	double x = json_is_number(value) ? json_number_value(value) : -1;

	if (x > *most)
		*most = x;
}

static void tally(struct tally *t, json_t *line)
{
	static const char *const data[] = { "test", "isend", "irecv" };
	static const char *const setup[] = { "connect", "accept", "close" };
	json_t *calls = json_object_get(line, "calls");

	keep_most(&t->stall_s, json_object_get(line, "stall_s"));
	keep_most(&t->heal_s, json_object_get(line, "heal_s"));
	keep_most(&t->error_s, json_object_get(line, "error_s"));
	for (int i = 0; i < 3; i++) {
		keep_most(&t->cpu_us, json_object_get(json_object_get(calls, data[i]), "cpu_p999_us"));
		keep_most(&t->setup_us, json_object_get(json_object_get(calls, setup[i]), "wall_max_us"));
	}
}

/* Leaves out rows that take the CPUs away: calls are slow there for that reason. */
static void tally_calls(const struct row *row, json_t *calls)
{
	for (int c = 0; c < CALLS && !row->late; c++) {
		for (int i = 0; i < 4; i++)
			keep_most(&all.calls[c][i], json_object_get(json_object_get(calls, call_names[c]),
								    spans[i]));
	}
}

static const char *member(json_t *line, const char *name)
{
	const char *text = json_string_value(json_object_get(line, name));

	return text ? text : "";
}

static void say_figures(json_t *line)
{
	static const char *const names[] = { "setup_s", "stall_s", "path_s", "heal_s", "taken_s", "error_s",
					     "warn_s", "late_s" };

	for (int i = 0; i < 8; i++) {
		json_t *v = json_object_get(line, names[i]);

		if (json_is_number(v))
			printf(" %.*s %.3f s", (int)strlen(names[i]) - 2, names[i], json_number_value(v));
	}
}

static void report(const struct job *j, json_t *line)
{
	const char *verdict = member(line, "verdict"), *why = member(line, "why");
	bool failed = strcmp(verdict, "failed") == 0, skipped = strcmp(verdict, "skipped") == 0;
	struct tally *t = &all.rows[j->row - rows];

	all.n++;
	t->runs++;
	t->failed += failed;
	all.failed += failed;
	t->skipped += skipped;
	all.skipped += skipped;
	tally(t, line);
	tally_calls(j->row, json_object_get(line, "calls"));
	if (failed || all.o.verbose) {
		char *log = text_of(j->log);

		printf("%s\n", log ? log : "");
		free(log);
	}
	if (skipped)
		snprintf(all.why, sizeof(all.why), "%s", why);
	if (all.o.tap)
		printf("%s %u - ", failed ? "not ok" : "ok", all.n);
	printf("%s seed %u: %s", j->row->fault, j->seed, j->row->what);
	if (*member(line, "note"))
		printf(" (%s)", member(line, "note"));
	if (skipped && all.o.tap)
		printf(" # SKIP %s", why);
	else
		printf(": %s%s%s;", verdict, *why ? ": " : "", why);
	if (!skipped)
		say_figures(line);
	printf("\n");
	fflush(stdout);
	if (all.json) {
		json_dumpf(line, all.json, JSON_COMPACT | JSON_REAL_PRECISION(6));
		fputc('\n', all.json);
		fflush(all.json);
	}
}

/* The fabric of NICs in memory: a file and a directory. */
static void fabric_of(pid_t pid, char *ret, size_t len)
{
	snprintf(ret, len, "/dev/shm/braid-faults-%d", (int)pid);
}

static void remove_fabric(pid_t pid)
{
	char path[64], line[160];

	fabric_of(pid, path, sizeof(path));
	if (access(path, F_OK))
		return;
	snprintf(line, sizeof(line), "rm -rf %s %s.d", path, path);
	if (system(line))
		printf("# %s is left\n", path);
}

static void end_job(struct job *j, int status, bool too_long)
{
	char *text = text_of(j->out), why[128];
	json_t *line = text ? json_loads(text, 0, NULL) : NULL;

	kill(-j->pid, SIGKILL);		/* processes of the run that are left */
	remove_fabric(j->pid);
	if (!line) {
		if (too_long)
			snprintf(why, sizeof(why), "the run did not end in time");
		else
			snprintf(why, sizeof(why), "the run itself ended with status %d", status);
		line = json_pack("{ss ss ss# si ss ss}", "row", j->row->fault, "what", j->row->what,
				 "class", &j->row->class, 1, "seed", (int)j->seed, "verdict", "failed",
				 "why", why);
	}
	report(j, line);
	json_decref(line);
	free(text);
	close(j->out);
	close(j->log);
	j->pid = 0;
}

/* -- running ------------------------------------------------------------------------------ */

/* What the loader reads only as a process begins. */
static bool is_loaders(const char *setting)
{
	return setting && strncmp(setting, "LD_", 3) == 0;
}

/* A run with libraries of its own is a new process, to which --inside names the run. */
static void start_anew(const struct row *row, unsigned seed, int out, int log)
{
	char what[64], *args[OPTIONS_MAX + 3];
	bool anew = false;
	int n = 0;

	for (int i = 0; i < ROW_ENV; i++) {
		if (is_loaders(row->env[i])) {
			run_sets(row->env[i]);
			anew = true;
		}
	}
	if (!anew)
		return;
	for (; all.argv[n] && n < OPTIONS_MAX; n++)
		args[n] = all.argv[n];
	snprintf(what, sizeof(what), "%u,%u,%d,%d", (unsigned)(row - rows), seed, dup(out), dup(log));
	args[n++] = (char *)"--inside";
	args[n++] = what;
	args[n] = NULL;
	execv("/proc/self/exe", args);
}

static _Noreturn void play(const struct row *row, unsigned seed, int out, int log)
{
	char path[64];

	fabric_of(getpid(), path, sizeof(path));
	setenv("BRAID_TEST_FAKE_FABRIC", path, 1);
	if (!all.inside)
		start_anew(row, seed, out, log);
	run_play(row, &all.o, seed, out, log);
}

static bool start_job(struct job *j, const struct row *row, unsigned seed)
{
	*j = (struct job){ .row = row, .seed = seed, .from_ns = now_ns() };
	j->out = memfd_create("out", MFD_CLOEXEC);
	j->log = memfd_create("log", MFD_CLOEXEC);
	fflush(stdout);
	j->pid = fork();
	if (j->pid == 0)
		play(row, seed, j->out, j->log);
	return j->out >= 0 && j->log >= 0 && j->pid > 0;
}

static void look_at_job(struct job *j)
{
	unsigned limit = (j->row->limit_s ? j->row->limit_s : LIMIT_S) * all.o.slow;
	int status;

	if (waitpid(j->pid, &status, WNOHANG) == j->pid) {
		end_job(j, status, false);
	} else if (now_ns() - j->from_ns > limit * 1000000000ULL) {
		kill(-j->pid, SIGKILL);
		waitpid(j->pid, &status, 0);
		end_job(j, status, true);
	}
}

/* One-sided operations use no device that is made of several, and post no receive. */
static bool is_one_sided(const struct row *row)
{
	return !row->posted && !(row->net >= TWO_PATHS && row->nic[END_A] == ALL) &&
	       !(row->net == TWO_PATHS && row->nic[END_B] == ALL);
}

static unsigned mode(void)
{
	return all.o.brief ? BRIEF : all.o.heal ? HEAL : all.o.soak ? SOAK : CHECK;
}

static bool wanted(const struct row *row)
{
	const char *list = all.o.rows, *at;
	size_t len = strlen(row->fault);

	if (!(row->when & mode()))
		return false;
	if (all.o.one_sided && !is_one_sided(row))
		return false;
	if (!strcasestr(row->what, all.o.what))
		return false;
	if (!*list)
		return true;
	for (at = list; (at = strcasestr(at, row->fault)); at += len) {
		if ((at == list || at[-1] == ',') && (at[len] == '\0' || at[len] == ','))
			return true;
	}
	return false;
}

/* A row that takes CPUs away would slow other runs down, and they would slow down one that measures. */
static bool is_alone(const struct row *row)
{
	return row->late || row->alone;
}

static void run_all(void)
{
	struct job jobs[JOBS_MAX] = { 0 };
	unsigned next = 0, seed = 0, under_way = 0;
	bool alone = false;

	while (next < n_rows || under_way) {
		while (next < n_rows && !wanted(&rows[next])) {
			next++;
			seed = 0;
		}
		for (int i = 0; i < all.o.jobs && next < n_rows; i++) {
			if (jobs[i].pid || alone || (is_alone(&rows[next]) && under_way))
				continue;
			if (!start_job(&jobs[i], &rows[next], (unsigned)all.o.seed + seed)) {
				perror("faults");
				exit(99);
			}
			under_way++;
			alone = is_alone(&rows[next]);
			if (++seed == (unsigned)all.o.seeds) {
				next++;
				seed = 0;
			}
			break;
		}
		for (int i = 0; i < all.o.jobs; i++) {
			if (!jobs[i].pid)
				continue;
			look_at_job(&jobs[i]);
			if (!jobs[i].pid) {
				under_way--;
				alone = false;
			}
		}
		usleep(2000);
	}
}

/* -- the table ---------------------------------------------------------------------------- */

/* Prints a time in seconds, with a ! if it is more than was promised. */
static void figure(double x, double promised)
{
	if (x > 0)
		printf(" %7.3f%c", x, promised > 0 && x > promised ? '!' : ' ');
	else
		printf(" %8s", "-");
}

static void print_table(void)
{
	printf("# the worst of each row, seconds; test, isend, irecv: ms of CPU at p99.9; "
	       "connect, accept, close: ms at most;"
	       " ! is more than was promised\n");
	printf("# %-4s %-42s %5s %4s %4s %4s %8s %8s %8s %8s %8s\n", "row", "fault", "class", "runs",
	       "fail", "skip", "stall", "heal", "error", "data", "set-up");
	for (unsigned i = 0; i < n_rows; i++) {
		const struct tally *t = &all.rows[i];

		if (!t->runs)
			continue;
		printf("# %-4s %-42s %5c %4u %4u %4u", rows[i].fault, rows[i].what, rows[i].class, t->runs,
		       t->failed, t->skipped);
		figure(t->stall_s, rows[i].stall_s);
		figure(t->heal_s, rows[i].heal_s);
		figure(t->error_s, rows[i].error_s * 1.1);
		figure(t->cpu_us / 1e3, 1);
		figure(t->setup_us / 1e3, 5);
		printf("\n");
	}
	printf("# %-8s %14s %14s %14s %14s\n", "call, ms", "CPU p99.9", "CPU maximum", "wall p99.9",
	       "wall maximum");
	for (int c = 0; c < CALLS; c++)
		printf("# %-8s %14.3f %14.3f %14.3f %14.3f\n", call_names[c], all.calls[c][0] / 1e3,
		       all.calls[c][1] / 1e3, all.calls[c][2] / 1e3, all.calls[c][3] / 1e3);
	printf("# %u runs: %u as they should, %u failed, %u skipped\n", all.n,
	       all.n - all.failed - all.skipped, all.failed, all.skipped);
}

static void list_rows(void)
{
	for (unsigned i = 0; i < n_rows; i++)
		printf("%-4s %c %-5s %s\n", rows[i].fault, rows[i].class,
		       rows[i].when == CHECK ? "check" : rows[i].when == SOAK ? "soak" :
		       rows[i].when & HEAL ? "heal" : "both",
		       rows[i].what);
}

static bool take_options(int argc, char **argv, int *ret_rc)
{
	struct options *o = &all.o;
	const char *slow = getenv("BRAID_TEST_SLOW");
	const struct opt opts[] = {
		{ OPT_TEXT, "plugin", "PATH", "the .so (BRAID_TEST_PLUGIN)", &o->plugin, 0, 0 },
		{ OPT_INT, "abi", "N", "its ABI version; 0: the newest it has", &o->abi, 0, 16 },
		{ OPT_TEXT, "rows", "LIST", "such as F19,F26; else all", &o->rows, 0, 0 },
		{ OPT_TEXT, "what", "TEXT", "only those whose name has this in it", &o->what, 0, 0 },
		{ OPT_INT, "seeds", "N", "runs of each row (1)", &o->seeds, 1, 1e6 },
		{ OPT_INT, "seed", "N", "the first seed (1)", &o->seed, 0, 1e9 },
		{ OPT_INT, "lanes", "N", "BRAID_LANES (4)", &o->lanes, 0, 16 },
		{ OPT_INT, "jobs", "N", "runs at the same time (1)", &o->jobs, 1, JOBS_MAX },
		{ OPT_INT, "flaps", "N", "of a row that flaps (20)", &o->flaps, 1, 1e6 },
		{ OPT_TEXT, "inside", "RUN", "for its own use", &all.inside, 0, 0 },
		{ OPT_TEXT, "wire", "KIND", "what damages packets: tap, netem or auto (auto)", &o->wire, 0, 0 },
		{ OPT_TEXT, "json", "FILE", "a line of JSON for each run", &o->json, 0, 0 },
		{ OPT_FLAG, "one-sided", NULL, "puts, signals and gets instead of messages", &o->one_sided,
		  0, 0 },
		{ OPT_FLAG, "soak", NULL, "the long variants of the rows", &o->soak, 0, 0 },
		{ OPT_FLAG, "heal", NULL, "the rows that measure the rate after a fault", &o->heal, 0, 0 },
		{ OPT_FLAG, "brief", NULL, "some of these", &o->brief, 0, 0 },
		{ OPT_FLAG, "own-machine", NULL, "nobody else is on it: its clock may be set", &o->own_machine,
		  0, 0 },
		{ OPT_FLAG, "tap", NULL, "print TAP", &o->tap, 0, 0 },
		{ OPT_FLAG, "list", NULL, "name the rows and end", &o->list, 0, 0 },
		{ OPT_FLAG, "verbose", NULL, "print what both ends logged, of all runs", &o->verbose, 0, 0 },
		{ .type = OPT_END },
	};

	*o = (struct options){ .plugin = getenv("BRAID_TEST_PLUGIN"), .rows = "", .what = "", .wire = "auto",
			       .json = "", .seeds = 1, .seed = 1, .lanes = 4, .jobs = 1, .slow = 1 };
	if (slow && atoi(slow) > 1)
		o->slow = (unsigned)atoi(slow);
	switch (opt_parse("faults", "Brings every fault of the table about under traffic.", opts, argc,
			  argv)) {
	case OPT_HELPED:
		*ret_rc = 0;
		return false;
	case OPT_BAD:
		*ret_rc = 2;
		return false;
	case OPT_RUN:
		break;
	}
	if (!o->list && !o->plugin) {
		*ret_rc = opt_error("faults", "which plugin? --plugin PATH");
		return false;
	}
	return true;
}

/* Tries in a process of its own, as a run would be, whether hosts can be made; all.why: why not. */
static bool can_run(void)
{
	int fds[2], status = -1;
	ssize_t n;
	pid_t pid;

	if (pipe(fds))
		return false;
	pid = fork();
	if (pid == 0) {
		struct hosts h;
		bool well = hosts_make(&h, WIRE_NONE, 1, 0);

		dprintf(fds[1], "%s", well ? "" : hosts_why());
		_exit(well ? 0 : 1);
	}
	close(fds[1]);
	n = read(fds[0], all.why, sizeof(all.why) - 1);
	all.why[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void play_inside(void)
{
	unsigned row, seed;
	int out, log;

	if (sscanf(all.inside, "%u,%u,%d,%d", &row, &seed, &out, &log) == 4 && row < n_rows)
		play(&rows[row], seed, out, log);
}

int main(int argc, char **argv)
{
	int rc;

	all.argv = argv;
	if (!take_options(argc, argv, &rc))
		return rc;
	if (all.o.list) {
		list_rows();
		return 0;
	}
	if (all.inside)
		play_inside();
	if (*all.o.json) {
		all.json = fopen(all.o.json, "w");
		if (!all.json)
			return opt_error("faults", "%s: %s", all.o.json, strerror(errno));
	}
	if (!can_run()) {
		printf(all.o.tap ? "1..0 # SKIP %s\n" : "skip: %s\n", all.why);
		return all.o.tap ? 0 : 77;
	}
	all.rows = calloc(n_rows, sizeof(*all.rows));
	if (!all.rows)
		return 99;
	run_all();
	print_table();
	if (all.json)
		fclose(all.json);
	free(all.rows);
	if (all.o.tap)
		printf("1..%u\n", all.n);
	if (all.failed)
		return 1;
	if (all.n == all.skipped && !all.o.tap) {
		printf("skip: %s\n", all.why);
		return 77;
	}
	return 0;
}
