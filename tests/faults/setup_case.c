/* SPDX-License-Identifier: BSD-3-Clause */
/* setup_case.c - one case of the matrix: two ends, a fault, and the checks of each end (setup.h). */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/proto/handle.h"
#include "tests/faults/setup.h"

const char *const step_names[STEPS] = {
	"tcp", "hello", "answer", "proof", "ask", "reply", "ready", "open", "opened", "data",
};
const char *const what_names[WHATS] = {
	"none", "lost", "lost-always", "late", "too-late", "doubled", "reset", "reset-always",
	"killed", "stopped", "paused", "starved", "no-memory", "no-files",
};
const char *const role_names[ROLES] = { "dialler", "accepter" };

/* The ends' parameters, and the deadlines that follow from them: see docs/user/reliability.md. */
enum { CONNECT_S = 3, HANDSHAKE_S = 1, PEER_S = 8, STALL_S = 2, SILENT_S = 3, CLOSE_S = 1, FINALIZE_S = 6 };
enum { LATE_MS = 300, TOO_LATE_MS = 1500, PAUSE_MS = 2000, HOGS = 6, START_S = 60 };

struct scene {				/* a case under way */
	const struct trial *t;
	const struct setup_options *o;
	struct finding *found;
	struct show *show;
	struct relay relay;
	pid_t pid[ROLES], hog[HOGS];
	bool dead[ROLES], closed[ROLES], settled[ROLES];
	uint64_t healed_ns;
	unsigned warns[ROLES];		/* of these the last was looked at */
	struct rlimit files;
};

static void fails(struct scene *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void fails(struct scene *s, const char *fmt, ...)
{
	va_list ap;

	if (strcmp(s->found->verdict, "well") != 0)
		return;
	strcpy(s->found->verdict, "failed");
	va_start(ap, fmt);
	vsnprintf(s->found->why, sizeof(s->found->why), fmt, ap);
	va_end(ap);
}

static bool has_failed(const struct scene *s)
{
	return strcmp(s->found->verdict, "well") != 0;
}

/*
 * UCX ends its process by abort() if it has no descriptor for a worker (ucp_worker.c, "Fatal"), or if
 * the other end's TCP has none (tcp_ep.c, an assertion): seen with 1.13.1.
 */
static bool ended_by_ucx(const struct scene *s, int status)
{
	return s->t->what == NO_FILES && strncmp(s->t->carrier->name, "ucx", 3) == 0 &&
	       WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* -- what happens to a process ---------------------------------------------------------------- */

static void hog(unsigned cpu)
{
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (;;)
		;
}

/* All threads of a process to one CPU, or to all; with the least priority, or with theirs. */
static void place_threads(pid_t pid, int cpu, int policy)
{
	const struct sched_param unused = { 0 };
	struct dirent *e;
	char path[64];
	cpu_set_t set;
	DIR *d;

	CPU_ZERO(&set);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (cpu < 0 || i == (unsigned)cpu)
			CPU_SET(i, &set);
	}
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		pid_t tid = atoi(e->d_name);

		if (tid <= 0)
			continue;
		sched_setaffinity(tid, sizeof(set), &set);
		sched_setscheduler(tid, policy, &unused);
	}
	if (d)
		closedir(d);
}

static void starve(struct scene *s, pid_t pid)
{
	unsigned cpu = (unsigned)sysconf(_SC_NPROCESSORS_ONLN) - 1;

	for (int i = 0; i < HOGS; i++) {
		s->hog[i] = fork();
		if (s->hog[i] == 0)
			hog(cpu);
	}
	place_threads(pid, (int)cpu, SCHED_IDLE);
}

static void feed(struct scene *s, pid_t pid)
{
	for (int i = 0; i < HOGS; i++) {
		kill(s->hog[i], SIGKILL);
		waitpid(s->hog[i], NULL, 0);
	}
	place_threads(pid, -1, SCHED_OTHER);
}

static void take_memory(struct scene *s, struct role *role, bool none)
{
	uint64_t until = now_ns() + 1000000000;

	role->no_memory = none;
	while (role->has_none != none && now_ns() < until)
		usleep(100);
	if (none && !role->has_none)
		fails(s, "the %s does not see that it has no memory", role_names[s->t->who]);
}

/* The victim is stopped once the kernel says so, and not before. */
static void stop(pid_t pid)
{
	int status;

	kill(pid, SIGSTOP);
	waitpid(pid, &status, WUNTRACED);
}

static void strike(void *arg)
{
	struct scene *s = arg;
	pid_t pid = s->pid[s->t->who];
	struct rlimit none;

	switch (s->t->what) {
	case KILLED:		/* it may take long to end, without a CPU: the relay goes on */
		kill(pid, SIGKILL);
		s->dead[s->t->who] = true;
		if (s->t->who == ACCEPTS)	/* another process may get its port */
			relay_hangs_up(&s->relay);
		break;
	case STOPPED:
	case PAUSED:
		stop(pid);
		break;
	case STARVED:
		starve(s, pid);
		break;
	case NO_MEMORY:
		take_memory(s, &s->show->role[s->t->who], true);
		break;
	case NO_FILES:
		prlimit(pid, RLIMIT_NOFILE, NULL, &s->files);
		none = (struct rlimit){ 3, s->files.rlim_max };
		prlimit(pid, RLIMIT_NOFILE, &none, NULL);
		break;
	default:
		break;
	}
}

static void heal(struct scene *s)
{
	pid_t pid = s->pid[s->t->who];

	if (!s->relay.struck_ns || s->healed_ns)
		return;
	s->healed_ns = now_ns();
	if (s->t->what == STOPPED || s->t->what == PAUSED)
		kill(pid, SIGCONT);
	else if (s->t->what == STARVED)
		feed(s, pid);
	else if (s->t->what == NO_MEMORY)
		take_memory(s, &s->show->role[s->t->who], false);
	else if (s->t->what == NO_FILES)
		prlimit(pid, RLIMIT_NOFILE, &s->files, NULL);
}

/* -- the checks of an end ---------------------------------------------------------------------- */

/* Seconds until the call ends, or until a line says what it waits for. */
static double bound(int entry)
{
	switch (entry) {
	case CALL_CONNECT:
		return CONNECT_S + 0.5;
	case CALL_ACCEPT:
		return STALL_S + 1;
	default:
		return SILENT_S + 0.5;
	}
}

static bool lacks(const char *text)
{
	return strstr(text, "out of memory") || strstr(text, "descriptor") || strstr(text, "ulimit") ||
	       strstr(text, "Too many open files") || strstr(text, "Cannot allocate");
}

static bool names_cause(const char *text)
{
	return strstr(text, "device ") || lacks(text);
}

/*
 * The last WARN that names a device, or a thing that this process lacks; "": there is none.  What an
 * accept() waits for it says itself.
 */
static void last_warn(const struct role *role, bool done, char *ret, size_t len)
{
	const char *at = role->end.log, *end = at + role->end.log_len;
	bool waits = !done && role->entry == CALL_ACCEPT;

	*ret = '\0';
	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((nl ? nl : end) - at);
		char line[600];

		snprintf(line, sizeof(line), "%.*s", (int)n, at);
		if (strstr(line, " WARN ") &&
		    (waits ? strstr(line, "accept() has waited") != NULL : names_cause(line)))
			snprintf(ret, len, "%s", strstr(line, " WARN ") + 6);
		at += n + 1;
	}
}

static void id_of(const char *text, char *ret, size_t len)
{
	const char *at = strrchr(text, '[');

	snprintf(ret, len, "%.*s", at ? (int)strcspn(at + 1, "]") : 0, at ? at + 1 : "");
}

/* Does the text name the other end: its process, or an address? */
static bool names_peer(const struct scene *s, unsigned who, const char *text)
{
	char pid[32];

	snprintf(pid, sizeof(pid), "pid %d", (int)s->pid[!who]);
	return strstr(text, pid) || strstr(text, "127.0.0.1");
}

/* The cause that really holds, as far as that end can know it. */
static void check_cause(struct scene *s, unsigned who, const char *text)
{
	bool stopped = strstr(text, "is stopped, by");	/* and not one of several causes */

	if (!names_peer(s, who, text) && !lacks(text))
		fails(s, "the %s names no peer: %s", role_names[who], text);
	else if (s->t->what == STOPPED && who != s->t->who && !strstr(text, "stopped") &&
		 !(s->t->step <= AT_HELLO && who == ACCEPTS))	/* nobody has said a word there */
		fails(s, "the %s does not say that its peer is stopped: %s", role_names[who], text);
	else if (s->t->what != STOPPED && s->t->what != PAUSED && stopped)
		fails(s, "the %s says that its peer is stopped, which is %s: %s", role_names[who],
		      what_names[s->t->what], text);
	else if (s->t->what == KILLED && strstr(text, "gets no CPU"))
		fails(s, "the %s says that its killed peer gets no CPU: %s", role_names[who], text);
	else if (s->t->what == STARVED && who != s->t->who && !strstr(text, "no CPU") &&
		 strstr(text, "no-answer"))
		fails(s, "the %s does not say that its peer gets no CPU: %s", role_names[who], text);
}

/* Has the end's call ended, or has it said what it waits for? */
static bool settles(struct scene *s, unsigned who)
{
	struct role *role = &s->show->role[who];
	bool done = role->phase >= IS_DONE;
	uint64_t from = role->since_ns > s->relay.struck_ns ? role->since_ns : s->relay.struck_ns;
	char text[600], id[48];

	if (done && !role->error && s->relay.struck_ns)
		from = s->relay.struck_ns;
	if (s->healed_ns > from)
		from = s->healed_ns;
	if (s->settled[who] || (!done && (role->entry == CALL_CONNECT || role->end.warns == s->warns[who])))
		return s->settled[who];
	s->warns[who] = role->end.warns;
	last_warn(role, done, text, sizeof(text));
	if (!done && !*text)
		return false;
	s->settled[who] = true;
	s->found->took_s[who] = (double)((done ? role->done_ns : now_ns()) - from) / 1e9;
	if (s->found->took_s[who] < 0 || s->found->took_s[who] > 1e6)
		s->found->took_s[who] = 0;
	if (done && !role->error) {
		snprintf(s->found->how[who], sizeof(s->found->how[who]), "well");
		return true;
	}
	id_of(text, id, sizeof(id));
	snprintf(s->found->how[who], sizeof(s->found->how[who]), "%s: %s%s", call_names[role->entry],
		 done ? "" : "waits, ", *id ? id : "no word");
	if (!*text)
		fails(s, "the %s's %s ended with error %d, and no WARN names a device", role_names[who],
		      call_names[role->entry], role->error);
	else
		check_cause(s, who, text);
	return true;
}

/* -- the play --------------------------------------------------------------------------------- */

/* An end that ended before its time. */
static void look_at_end(struct scene *s, unsigned who)
{
	struct role *role = &s->show->role[who];
	int status;

	if (role->broken[0])
		fails(s, "the %s: %s", role_names[who], role->broken);
	if (waitpid(s->pid[who], &status, WNOHANG) != s->pid[who] || s->dead[who])
		return;			/* it lives, or it was killed */
	s->dead[who] = true;
	if (role->phase == IS_ENDED || role->broken[0])
		return;
	if (!ended_by_ucx(s, status)) {
		fails(s, "the %s ended by itself, with %s %d", role_names[who],
		      WIFSIGNALED(status) ? "signal" : "status",
		      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return;
	}
	strcpy(s->found->verdict, "skipped");
	snprintf(s->found->why, sizeof(s->found->why), "UCX ended the process, for want of descriptors");
}

static void step_on(struct scene *s)
{
	struct show *show = s->show;

	relay_moves(&s->relay, 3);
	if (show->listens && !show->relayed) {
		struct braid_handle h;

		if (braid_handle_unpack(show->handle, &h)) {
			fails(s, "the handle is not Braid's");
			return;
		}
		s->relay.to = h.port;
		h.port = s->relay.port;
		braid_handle_pack(&h, show->handle);
		show->relayed = true;
	}
	for (unsigned i = 0; i < ROLES; i++) {
		bool other = show->role[!i].phase == IS_OPEN || s->relay.struck_ns;

		if (show->role[i].phase != IS_OPEN || !other || show->ordered[i] >= TO_TALK)
			continue;
		if (s->t->step == AT_DATA && !s->relay.struck_ns) {
			s->relay.struck_ns = now_ns();
			strike(s);
		}
		show->ordered[i] = TO_TALK;
	}
	if (s->t->what == PAUSED && s->relay.struck_ns && !s->healed_ns &&
	    now_ns() - s->relay.struck_ns >= PAUSE_MS * 1000000ULL)
		heal(s);
	for (unsigned i = 0; i < ROLES; i++)
		look_at_end(s, i);
}

/* Must the end settle while the fault lasts? */
static bool is_judged(const struct scene *s, unsigned who)
{
	if (s->dead[who])
		return false;
	return who != s->t->who || (s->t->what != STOPPED && s->t->what != STARVED && s->t->what != KILLED);
}

static bool wait_phase(struct scene *s, unsigned who, enum phase phase, unsigned limit_s)
{
	uint64_t until = now_ns() + limit_s * s->o->slow * 1000000000ULL;

	while (!has_failed(s) && s->show->role[who].phase < (int)phase) {
		if (now_ns() > until) {
			const struct end *e = &s->show->role[who].end;
			double s_in = e->call == CALL_NONE ? 0 : (double)(now_ns() - e->call_ns) / 1e9;

			fails(s, "the %s has not come to phase %d within %u s, in %s for %.1f s",
			      role_names[who], (int)phase, limit_s,
			      e->call == CALL_NONE ? "no call" : call_names[e->call], s_in);
		}
		step_on(s);
	}
	return !has_failed(s);
}

/* Does it wait for a signal that may never come, as far as it can know? */
static bool cannot_know(const struct scene *s, unsigned who)
{
	const struct role *role = &s->show->role[who], *other = &s->show->role[!who];
	bool is_gone = s->t->what == KILLED || s->t->what == STOPPED;

	return role->for_word && !(other->phase >= IS_DONE && !other->error) &&
	       !(role->phase >= IS_OPEN && is_gone);
}

/*
 * Waits until the end settles, ten times as long as is promised (--times).  One that cannot know has
 * settled after that time alone.
 */
static void wait_settled(struct scene *s, unsigned who)
{
	uint64_t from = now_ns();

	while (!has_failed(s) && !settles(s, who)) {
		double limit = bound(s->show->role[who].entry) * s->o->slow;
		double waited = (double)(now_ns() - from) / 1e9;

		if (cannot_know(s, who) && waited > limit) {
			s->settled[who] = true;
			strcpy(s->found->how[who], "waits for a signal");
		} else if (waited > limit * s->o->times)
			fails(s, "the %s waits in %s, and after %.0f s no line says for whom", role_names[who],
			      call_names[s->show->role[who].entry], limit);
		step_on(s);
	}
}

static void wait_struck(struct scene *s)
{
	uint64_t until = now_ns() + 20ULL * s->o->slow * 1000000000;

	while (!has_failed(s) && s->t->what != NO_FAULT && !s->relay.struck_ns) {
		if (now_ns() > until)
			fails(s, "the step %s never came", step_names[s->t->step]);
		step_on(s);
	}
}

static void keep_most(double *most, const struct timing *t)
{
	double took = (double)t->wall.max_ns / 1e9;

	if (took > *most)
		*most = took;
}

static void check_end(struct scene *s, unsigned who)
{
	const struct role *role = &s->show->role[who];
	const struct timing *t = role->end.timing;

	if (has_failed(s))
		return;
	keep_most(&s->found->close_s, &t[CALL_CLOSE]);
	keep_most(&s->found->close_s, &t[CALL_FINALIZE]);
	for (int c = 0; c < CALLS; c++) {
		double limit = (c == CALL_FINALIZE ? FINALIZE_S : CLOSE_S) * (double)s->o->times * s->o->slow;
		double took = (double)t[c].wall.max_ns / 1e9;

		if (took > limit && !(who == s->t->who && of_process(s->t->what)))
			fails(s, "a call of %s took the %s %.1f s", call_names[c], role_names[who], took);
	}
	if (role->after.fds > role->before.fds || role->after.threads > role->before.threads ||
	    role->after.blocks > role->before.blocks + s->t->carrier->kept)
		fails(s, "left at the %s: %u descriptors (%u before), %u threads (%u), %ld blocks (%ld)",
		      role_names[who], role->after.fds, role->before.fds, role->after.threads,
		      role->before.threads, role->after.blocks, role->before.blocks);
}

/* One that had no fault that lasts, or that came once, must end well. */
static void check_well(struct scene *s)
{
	/* In an open lane the relay breaks what TCP promises: it has acknowledged what it loses. */
	bool open = s->t->step == AT_OPEN || s->t->step == AT_OPENED;
	bool must = s->t->what == NO_FAULT || s->t->what == LATE || s->t->what == TOO_LATE ||
		    s->t->what == RESET || s->t->what == PAUSED ||
		    ((s->t->what == LOST || s->t->what == DOUBLED) && !open);

	for (unsigned i = 0; must && i < ROLES && !has_failed(s); i++) {
		wait_phase(s, i, IS_DONE, CONNECT_S * (unsigned)s->o->times);
		s->settled[i] = false;
		settles(s, i);
		if (strcmp(s->found->how[i], "well") != 0 && !has_failed(s))
			fails(s, "the %s did not end well, but with %s", role_names[i], s->found->how[i]);
	}
}

static void close_end(struct scene *s, unsigned who)
{
	if (s->closed[who] || s->dead[who] || has_failed(s))
		return;
	s->closed[who] = true;
	s->show->ordered[who] = TO_CLOSE;
	wait_phase(s, who, IS_CLOSED, (CLOSE_S + FINALIZE_S) * (unsigned)s->o->times);
}

static void renew_end(struct scene *s, unsigned who)
{
	if (!s->closed[who] || s->dead[who] || has_failed(s))
		return;
	s->show->ordered[who] = TO_RENEW;
	wait_phase(s, who, IS_ENDED, 60);
	check_end(s, who);
}

static void play(struct scene *s)
{
	bool lasts = s->t->what == STOPPED || s->t->what == STARVED;

	for (unsigned i = 0; i < ROLES; i++)
		wait_phase(s, i, IS_READY, START_S);
	s->show->order = TO_CONNECT;
	wait_struck(s);
	for (unsigned i = 0; i < ROLES; i++) {
		if (is_judged(s, i))
			wait_settled(s, i);
	}
	check_well(s);
	for (unsigned i = 0; i < ROLES; i++) {
		if (is_judged(s, i) && s->settled[i])
			close_end(s, i);
		if (lasts)
			renew_end(s, i);
	}
	heal(s);
	for (unsigned i = 0; i < ROLES; i++) {
		if (!s->dead[i] && !s->closed[i])
			wait_settled(s, i);
		close_end(s, i);
	}
	for (unsigned i = 0; i < ROLES; i++) {
		if (s->show->role[i].phase != IS_ENDED)
			renew_end(s, i);
	}
}

static void set_env(const struct scene *s)
{
	static const struct {
		const char *name;
		int value;
	} all[] = {
		{ "BRAID_CONNECT_TIMEOUT", CONNECT_S }, { "BRAID_HANDSHAKE_TIMEOUT", HANDSHAKE_S },
		{ "BRAID_PEER_TIMEOUT", PEER_S }, { "BRAID_STALL_WARN", STALL_S }, { "BRAID_LANES", 1 },
		{ "BRAID_STAT", 0 },
	};
	char text[16];

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(text, sizeof(text), "%d", all[i].value);
		setenv(all[i].name, text, 1);
	}
	if (s->o->planted)
		setenv("BRAID_STALL_WARN", "0", 1);
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	setenv("BRAID_SOCKET_FAMILY", "AF_INET", 1);
}

void setup_case(const struct trial *t, const struct setup_options *o, struct finding *ret)
{
	struct scene s = { .t = t, .o = o, .found = ret };

	s.show = mmap(NULL, sizeof(*s.show), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	s.relay = (struct relay){ .step = t->step, .what = t->what, .blobs = t->carrier->blobs,
				  .strike = strike, .arg = &s, .late_ns = LATE_MS * 1000000ULL,
				  .too_late_ns = TOO_LATE_MS * 1000000ULL };
	strcpy(ret->verdict, "well");
	if (s.show == MAP_FAILED) {
		fails(&s, "no memory: %s", strerror(errno));
		return;
	}
	s.show->plugin = o->plugin;
	s.show->puts = carrier_puts(t->carrier);
	s.show->counts_memory = true;
	s.show->kept = t->carrier->kept;
	s.show->renews_first = ((unsigned)t->step + (unsigned)t->what) % 2;
	set_env(&s);
	for (unsigned i = 0; i < ROLES; i++) {
		s.pid[i] = fork();
		if (s.pid[i] == 0)
			setup_end(s.show, i);
	}
	if (relay_opens(&s.relay))	/* after the forks, so that no end has its sockets */
		play(&s);
	else
		fails(&s, "no socket for the relay: %s", strerror(errno));
	for (unsigned i = 0; i < ROLES; i++) {
		if (has_failed(&s) || o->verbose)
			printf("# %s, pid %d\n%.*s", role_names[i], (int)s.pid[i],
			       (int)s.show->role[i].end.log_len, s.show->role[i].end.log);
		if (!s.dead[i]) {
			kill(s.pid[i], SIGKILL);
			waitpid(s.pid[i], NULL, 0);
		}
	}
	relay_ends(&s.relay);
}
