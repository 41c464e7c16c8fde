/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup.c - the matrix of faults of set-up (setup.h): every step, fault, end and carrier that can be
 * had without hardware.  It prints a line for each case, and a table of counts.
 *
 *	tests/faults/setup --plugin PATH [--carriers tcp,roce2] [--what killed] [--step hello] [--short]
 *
 * Each carrier is a process of its own, with the environment that it needs, and each case another.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config.h"

#include "tests/faults/setup.h"
#include "tools/opt.h"

enum { JOBS_MAX = 16, CASE_S = 300, EVERY = 37 };

#ifdef HAVE_UCX
#define UCX NULL
#else
#define UCX "/built-with-ucx"		/* there is no such file */
#endif
#define PUTS "BRAID_RMA=on"
#define FAKE_NIC "LD_LIBRARY_PATH=@/tests/fake/.libs"

static const struct carrier carriers[] = {
	{ "tcp", false, false, 0, { "BRAID_TRANSPORTS=tcp" }, NULL },
	{ "encrypted", false, false, 0, { "BRAID_TRANSPORTS=tcp", "BRAID_ENCRYPT=require" }, NULL },
	{ "roce2", true, true, 6, { FAKE_NIC, "BRAID_TEST_FAKE_DEVICES=roce0:rocev2,netdev=lo",
				 "BRAID_TRANSPORTS=verbs,tcp" }, "/tests/fake/.libs/libibverbs.so.1" },
	{ "iwarp", true, true, 6, { FAKE_NIC, "BRAID_TEST_FAKE_DEVICES=iw0:iwarp,netdev=lo",
				 "BRAID_TRANSPORTS=verbs,tcp" }, "/tests/fake/.libs/libibverbs.so.1" },
	{ "ucx-tcp", true, true, 0, { "BRAID_TRANSPORTS=ucx,tcp", "UCX_TLS=tcp,self" }, UCX },
	{ "ucx-shm", true, true, 0, { "BRAID_TRANSPORTS=ucx,tcp", "UCX_TLS=shm,self" }, UCX },
	{ "smc", true, true, 0, { "BRAID_TRANSPORTS=smc,tcp", "LD_PRELOAD=@/tests/fakesmc/.libs/smc.so",
			       "FAKE_SMC=smcr" }, "/tests/fakesmc/.libs/smc.so" },
	{ "puts-tcp", false, false, 0, { "BRAID_TRANSPORTS=tcp", PUTS }, NULL },
	{ "puts-roce2", true, true, 6, { FAKE_NIC, "BRAID_TEST_FAKE_DEVICES=roce0:rocev2,netdev=lo",
		"BRAID_TRANSPORTS=verbs,tcp", PUTS }, "/tests/fake/.libs/libibverbs.so.1" },
	{ "puts-iwarp", true, true, 6, { FAKE_NIC, "BRAID_TEST_FAKE_DEVICES=iw0:iwarp,netdev=lo",
		"BRAID_TRANSPORTS=verbs,tcp", PUTS }, "/tests/fake/.libs/libibverbs.so.1" },
};
enum { CARRIERS = sizeof(carriers) / sizeof(carriers[0]) };

struct counts {
	unsigned well, failed, skipped;
};

static struct {
	struct setup_options o;
	const char *carriers, *what, *step, *inside, *build;
	int jobs;
	bool brief, tap;
	struct counts of[CARRIERS][WHATS];
	unsigned n;
} all;

/* -- which cases ------------------------------------------------------------------------------ */

static bool in_list(const char *list, const char *word)
{
	size_t len = strlen(word);

	if (!*list)
		return true;
	for (const char *at = list; (at = strstr(at, word)); at += len) {
		if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	}
	return false;
}

/* Is there such a case? */
static bool is_case(const struct trial *t)
{
	bool blob_step = t->step >= AT_ASK && t->step <= AT_READY;
	bool open_step = t->step == AT_OPEN || t->step == AT_OPENED;

	if (t->what == NO_FAULT)
		return t->step == AT_DATA && !t->who;
	if ((blob_step && !t->carrier->blobs) || (open_step && t->carrier->own_open))
		return false;
	if (!of_process(t->what) && (t->step == AT_DATA || t->who))
		return false;
	return !(t->step == AT_TCP && t->what == DOUBLED);
}

/*
 * The short form has one of so many, others over each carrier, and none that takes CPUs away.  Of
 * puts it has one.
 */
static bool is_wanted(const struct trial *t, unsigned number)
{
	if (!is_case(t) || !in_list(all.what, what_names[t->what]) ||
	    !in_list(all.step, step_names[t->step]))
		return false;
	if (all.brief && carrier_puts(t->carrier))
		return t->step == AT_HELLO && t->what == NO_MEMORY && t->who == ACCEPTS;
	return !all.brief || (number % EVERY == 0 && t->what != STARVED);
}

/* -- cases of one carrier: in a process with its environment ---------------------------------- */

struct slot {
	pid_t pid;
	struct trial t;
	struct finding *found;
	char fabric[64];
	uint64_t from_ns;
	FILE *log;
};

static void say(const struct slot *s)
{
	const struct finding *f = s->found;
	char name[64];

	snprintf(name, sizeof(name), "%s %s %s%s%s", s->t.carrier->name, step_names[s->t.step],
		 what_names[s->t.what], of_process(s->t.what) ? " " : "",
		 of_process(s->t.what) ? role_names[s->t.who] : "");
	if (strcmp(f->verdict, "failed") == 0 || all.o.verbose) {
		char line[1024];

		rewind(s->log);
		while (fgets(line, sizeof(line), s->log))
			printf("#   %s", line);
	}
	printf("=%u\t%u\t%s\t%s\t%s\t%.2f\t%s\t%.2f\t%.2f\t%s\n", (unsigned)(s->t.carrier - carriers),
	       (unsigned)s->t.what, f->verdict, name, f->how[DIALS], f->took_s[DIALS], f->how[ACCEPTS],
	       f->took_s[ACCEPTS], f->close_s, f->why);
	fflush(stdout);
}

static void start(struct slot *s, const struct trial *t)
{
	static unsigned n;

	s->t = *t;
	s->from_ns = now_ns();
	s->log = tmpfile();
	memset(s->found, 0, sizeof(*s->found));
	snprintf(s->fabric, sizeof(s->fabric), "/dev/shm/braid-setup-%d-%u", (int)getpid(), n++);
	fflush(stdout);
	s->pid = fork();
	if (s->pid)
		return;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("BRAID_TEST_FAKE_FABRIC", s->fabric, 1);
	if (s->log)
		dup2(fileno(s->log), STDOUT_FILENO);
	setup_case(&s->t, &all.o, s->found);
	fflush(stdout);
	_exit(0);
}

static void look(struct slot *s)
{
	char path[96];

	if (waitpid(s->pid, NULL, WNOHANG) != s->pid) {
		if (now_ns() - s->from_ns < CASE_S * all.o.slow * 1000000000ULL)
			return;
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
		strcpy(s->found->verdict, "failed");
		snprintf(s->found->why, sizeof(s->found->why), "the case did not end in time");
	}
	kill(-s->pid, SIGKILL);
	if (!s->found->verdict[0]) {
		strcpy(s->found->verdict, "failed");
		snprintf(s->found->why, sizeof(s->found->why), "the case itself ended");
	}
	say(s);
	if (s->log)
		fclose(s->log);
	unlink(s->fabric);
	snprintf(path, sizeof(path), "rm -rf %s.d", s->fabric);
	if (system(path))
		printf("# %s is left\n", s->fabric);
	s->pid = 0;
}

static void inside(const struct carrier *c)
{
	struct slot slots[JOBS_MAX] = { 0 };
	unsigned cases = STEPS * WHATS * ROLES, next = 0, under_way = 0;

	for (int i = 0; i < all.jobs; i++)
		slots[i].found = mmap(NULL, sizeof(struct finding), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while (next < cases || under_way) {
		for (int i = 0; i < all.jobs; i++) {
			struct trial t = { .carrier = c };

			if (slots[i].pid)
				look(&slots[i]);
			if (slots[i].pid || next >= cases)
				continue;
			t.step = next / (WHATS * ROLES);
			t.what = next / ROLES % WHATS;
			t.who = next % ROLES;
			if (is_wanted(&t, next++ + 3 * (unsigned)(c - carriers)))
				start(&slots[i], &t);
		}
		under_way = 0;
		for (int i = 0; i < all.jobs; i++)
			under_way += slots[i].pid != 0;
		usleep(2000);
	}
}

/* -- all carriers ----------------------------------------------------------------------------- */

static void set_env(const struct carrier *c)
{
	for (unsigned i = 0; i < 8 && c->env[i]; i++) {
		char text[512], *at, *value;

		snprintf(text, sizeof(text), "%s", c->env[i]);
		value = strchr(text, '=');
		*value++ = '\0';
		at = *value == '@' ? value + 1 : value;
		if (*value == '@') {
			char path[768];

			snprintf(path, sizeof(path), "%s%s", all.build, at);
			setenv(text, path, 1);
		} else {
			setenv(text, value, 1);
		}
	}
}

/* A line of a carrier's process: a case's, or one to pass on. */
static void take_line(char *line)
{
	char *part[10] = { NULL };
	struct counts *n;

	line[strcspn(line, "\n")] = '\0';
	if (*line != '=') {
		printf("%s\n", line);
		return;
	}
	part[0] = line + 1;
	for (int i = 1; i < 10 && part[i - 1]; i++) {
		part[i] = strchr(part[i - 1], '\t');
		if (part[i])
			*part[i]++ = '\0';
	}
	if (!part[9])
		return;
	n = &all.of[atoi(part[0])][atoi(part[1])];
	all.n++;
	if (strcmp(part[2], "failed") == 0)
		n->failed++;
	else if (strcmp(part[2], "skipped") == 0)
		n->skipped++;
	else
		n->well++;
	if (all.tap)
		printf("%s %u - ", strcmp(part[2], "failed") ? "ok" : "not ok", all.n);
	printf("%s: dialler %s after %s s, accepter %s after %s s, closed in %s s", part[3], part[4],
	       part[5], part[6], part[7], part[8]);
	if (strcmp(part[2], "skipped") == 0)
		printf(" # SKIP %s\n", part[9]);
	else
		printf("%s%s\n", *part[9] ? ": FAILED: " : "", part[9]);
	fflush(stdout);
}

static void skip(const struct carrier *c, const char *why)
{
	all.n++;
	all.of[c - carriers][NO_FAULT].skipped++;
	if (all.tap)
		printf("ok %u - %s # SKIP %s\n", all.n, c->name, why);
	else
		printf("%s: skipped: %s\n", c->name, why);
}

static void play_carrier(const struct carrier *c, char **argv)
{
	char path[768], line[2048];
	int fds[2], n = 0;
	char *args[64];
	pid_t pid;
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", all.build, c->needs ? c->needs : "");
	if (c->needs && access(path, R_OK)) {
		skip(c, "its library is not built here");
		return;
	}
	for (; argv[n] && n < 60; n++)
		args[n] = argv[n];
	args[n++] = (char *)"--inside";
	args[n++] = (char *)c->name;
	args[n] = NULL;
	if (pipe(fds))
		return;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		set_env(c);
		execv("/proc/self/exe", args);
		_exit(99);
	}
	close(fds[1]);
	f = fdopen(fds[0], "r");
	while (f && fgets(line, sizeof(line), f))
		take_line(line);
	if (f)
		fclose(f);
	waitpid(pid, NULL, 0);
}

static unsigned print_table(void)
{
	unsigned failed = 0, well = 0, skipped = 0;

	printf("# as they should / failed / skipped\n# %-14s", "fault");
	for (unsigned c = 0; c < CARRIERS; c++)
		printf(" %10s", carriers[c].name);
	printf("\n");
	for (unsigned w = 0; w < WHATS; w++) {
		printf("# %-14s", what_names[w]);
		for (unsigned c = 0; c < CARRIERS; c++) {
			const struct counts *n = &all.of[c][w];
			char text[32];

			snprintf(text, sizeof(text), "%u/%u/%u", n->well, n->failed, n->skipped);
			if (!n->well && !n->failed)
				strcpy(text, n->skipped ? "skipped" : "-");
			skipped += n->skipped;
			printf(" %10s", text);
			failed += n->failed;
			well += n->well;
		}
		printf("\n");
	}
	printf("# %u cases: %u as they should, %u failed, %u skipped\n", well + failed + skipped, well,
	       failed, skipped);
	return failed;
}

static int options(int argc, char **argv)
{
	const struct opt opts[] = {
		{ OPT_TEXT, "plugin", "PATH", "the .so (BRAID_TEST_PLUGIN)", &all.o.plugin, 0, 0 },
		{ OPT_TEXT, "carriers", "LIST", "such as tcp,roce2; else all", &all.carriers, 0, 0 },
		{ OPT_TEXT, "what", "LIST", "faults, such as killed,lost; else all", &all.what, 0, 0 },
		{ OPT_TEXT, "step", "LIST", "steps, such as hello,data; else all", &all.step, 0, 0 },
		{ OPT_TEXT, "inside", "NAME", "for its own use", &all.inside, 0, 0 },
		{ OPT_INT, "jobs", "N", "cases at the same time (6)", &all.jobs, 1, JOBS_MAX },
		{ OPT_INT, "times", "N", "a case fails at so many times a deadline (10)", &all.o.times, 1,
		  100 },
		{ OPT_FLAG, "planted", NULL, "without the deadline of accept(): cases must fail",
		  &all.o.planted, 0, 0 },
		{ OPT_FLAG, "short", NULL, "some cases of each kind", &all.brief, 0, 0 },
		{ OPT_FLAG, "tap", NULL, "print TAP", &all.tap, 0, 0 },
		{ OPT_FLAG, "verbose", NULL, "print what both ends logged, of all cases", &all.o.verbose,
		  0, 0 },
		{ .type = OPT_END },
	};

	return (int)opt_parse("setup", "Brings faults about at every step of set-up.", opts, argc, argv);
}

int main(int argc, char **argv)
{
	const char *slow = getenv("BRAID_TEST_SLOW");
	int rc;

	all.o = (struct setup_options){ .plugin = getenv("BRAID_TEST_PLUGIN"), .slow = 1 };
	all.carriers = all.what = all.step = all.inside = "";
	all.jobs = 6;
	all.o.times = 10;
	all.build = getenv("BRAID_TEST_BUILDDIR");
	if (!all.build)
		all.build = ".";
	if (slow && atoi(slow) > 1)
		all.o.slow = (unsigned)atoi(slow);
	rc = options(argc, argv);
	if (rc != OPT_RUN)
		return rc;
	if (!all.o.plugin)
		return opt_error("setup", "which plugin? --plugin PATH");
	for (unsigned c = 0; c < CARRIERS; c++) {
		if (*all.inside && strcmp(all.inside, carriers[c].name) == 0)
			inside(&carriers[c]);
		else if (!*all.inside && in_list(all.carriers, carriers[c].name) &&
			 !(all.brief && carrier_puts(&carriers[c]) && carriers[c].needs))
			play_carrier(&carriers[c], argv);
	}
	if (*all.inside)
		return 0;
	rc = print_table() != 0;
	if (all.tap)
		printf("1..%u\n", all.n);
	return rc;
}
