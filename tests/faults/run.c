/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - see run.h. */
#include "tests/faults/run.h"

#include <errno.h>
#include <jansson.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/proxy.h"
#include "tools/rma.h"

enum { TEN = 10, HANG_S = 10, PLENTY_S = 10 };

static const double cpu_promise_s = 0.001, setup_promise_s = 0.005;

static int out_fd, log_fd;		/* of this process's one run */

/* -- verdicts ----------------------------------------------------------------------------- */

static json_t *timings(const struct run *r)
{
	json_t *all = json_object();

	for (int c = 0; c < CALLS; c++) {
		struct timing sum = { 0 };

		for (int e = 0; e < ENDS; e++) {
			spread_merge(&sum.cpu, &r->st->end[e].timing[c].cpu);
			spread_merge(&sum.wall, &r->st->end[e].timing[c].wall);
		}
		json_object_set_new(all, call_names[c], json_pack("{sI sf sf sf sf}",
			"n", (json_int_t)sum.cpu.n,
			"cpu_p999_us", (double)spread_at(&sum.cpu, 0.999) / 1e3,
			"cpu_max_us", (double)sum.cpu.max_ns / 1e3,
			"wall_p999_us", (double)spread_at(&sum.wall, 0.999) / 1e3,
			"wall_max_us", (double)sum.wall.max_ns / 1e3));
	}
	return all;
}

static json_t *seconds(double s)
{
	return s < 0 ? json_null() : json_real(s);
}

/* The end that logged the last WARN, which a user would read. */
static const struct end *speaker(const struct run *r)
{
	const struct end *e = r->st->end;

	return e[END_A].warn_ns >= e[END_B].warn_ns ? &e[END_A] : &e[END_B];
}

static json_t *measured(const struct run *r)
{
	uint64_t messages = 0, bytes = 0;
	int error = r->st->end[END_A].error ? r->st->end[END_A].error : r->st->end[END_B].error;

	for (int f = 0; f < FLOWS; f++) {
		messages += r->st->flow[f].received;
		bytes += r->st->flow[f].bytes;
	}
	return json_pack("{so so so so so so so sf ss ss sI sI si si so}",
			 "setup_s", seconds(r->setup_s), "stall_s", seconds(r->stall_s),
			 "path_s", seconds(r->path_s),
			 "heal_s", seconds(r->back_s), "taken_s", seconds(r->taken_s),
			 "error_s", seconds(r->error_s),
			 "warn_s", seconds(r->warn_s), "late_s", r->late_s,
			 "error", error ? net_result_name((ncclResult_t)error) : "",
			 "warn", speaker(r)->warn, "messages", (json_int_t)messages,
			 "bytes", (json_int_t)bytes, "kills", (int)r->kills,
			 "warns", (int)(r->st->end[END_A].warns + r->st->end[END_B].warns),
			 "calls", timings(r));
}

static void tell_flow(const struct run *r, int f)
{
	const struct flow *flow = &r->st->flow[f];

	dprintf(log_fd, "--- flow %d: limit %llu", f, (unsigned long long)flow->limit);
	for (unsigned i = 0; i < ENDS; i++) {
		unsigned e = i ? !flow_sender((unsigned)f) : flow_sender((unsigned)f);

		dprintf(log_fd, "; %c %s %llu of %llu posted, %s", (int)('A' + e), i ? "received" : "sent",
			(unsigned long long)r->st->end[e].half[f].done,
			(unsigned long long)r->st->end[e].half[f].posted,
			net_result_name((ncclResult_t)r->st->end[e].half[f].error));
	}
	dprintf(log_fd, "; last at %.3f\n",
		((double)flow->last_ns - (double)r->st->born_ns) / 1e9);
}

static void tell_logs(const struct run *r)
{
	for (int e = 0; e < ENDS; e++) {
		const struct end *end = &r->st->end[e];

		dprintf(log_fd, "--- end %c: error %s, %u WARNs; log:\n%.*s", 'A' + e,
			net_result_name((ncclResult_t)end->error), end->warns, (int)end->log_len,
			end->log);
	}
	if (r->st->fault_ns)
		dprintf(log_fd, "--- the fault came at %.3f\n",
			(double)(r->st->fault_ns - r->st->born_ns) / 1e9);
	if (r->heal_ns)
		dprintf(log_fd, "--- and was over at %.3f\n",
			(double)(r->heal_ns - r->st->born_ns) / 1e9);
	for (int f = 0; f < FLOWS; f++)
		tell_flow(r, f);
}

static _Noreturn void end_run(struct run *r, const char *verdict, const char *why)
{
	json_t *line = json_pack("{ss ss ss# si ss ss ss}", "row", r->row->fault, "what", r->row->what,
				 "class", &r->row->class, 1, "seed", (int)r->seed, "verdict", verdict,
				 "why", why, "note", r->note);

	for (int e = 0; e < ENDS; e++) {
		if (r->pid[e] > 0)
			kill(r->pid[e], SIGKILL);
		for (int i = 0; r->st && i < CHILDREN_MAX; i++) {
			if (r->st->end[e].child[i] > 0)
				kill(r->st->end[e].child[i], SIGKILL);
		}
	}
	if (r->st) {
		json_t *m = measured(r);

		json_object_update(line, m);
		json_decref(m);
		tell_logs(r);
	}
	if (r->hosts.wire)
		dprintf(log_fd, "--- wire: %llu passed, %llu lost, %llu reordered, %llu doubled, "
			"%llu damaged, %llu had no room\n", (unsigned long long)r->hosts.wire->passed,
			(unsigned long long)r->hosts.wire->lost,
			(unsigned long long)r->hosts.wire->reordered,
			(unsigned long long)r->hosts.wire->doubled,
			(unsigned long long)r->hosts.wire->damaged,
			(unsigned long long)r->hosts.wire->full);
	json_dumpfd(line, out_fd, JSON_COMPACT | JSON_REAL_PRECISION(6));
	_exit(0);
}

void run_is(struct run *r, const char *verdict, const char *fmt, ...)
{
	char why[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	end_run(r, verdict, why);
}

void must(struct run *r, bool well)
{
	if (!well)
		run_fails(r, "the fault could not be made: %s", hosts_why());
}

void run_note(struct run *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->note, sizeof(r->note), fmt, ap);
	va_end(ap);
}

/* -- chance and time ---------------------------------------------------------------------- */

unsigned run_rnd(struct run *r, unsigned n)
{
	return (unsigned)(mix(r->seed * 1000, r->chance++) % n);
}

static double since(uint64_t ns)
{
	return (double)(now_ns() - ns) / 1e9;
}

/* Ten times the promised time, or PLENTY_S where none is promised. */
static double deadline(const struct run *r, double promise_s)
{
	return (promise_s > 0 ? promise_s * TEN : PLENTY_S) * r->o->slow;
}

static void look_at_end(struct run *r, unsigned who)
{
	struct end *e = &r->st->end[who];
	int call = e->call, status;
	uint64_t from = e->call_ns;

	if (r->dead[who] || r->stopped[who])
		return;
	if (e->lacks_fusion)
		run_skips(r, "the plugin fuses no devices");
	if (e->broken && r->wrong_is_right)
		run_noticed(r, e->text);
	if (e->broken)
		run_fails(r, "end %c: %s", 'A' + who, e->text);
	if (e->error && r->wrong_is_right)
		run_noticed(r, e->warn);
	if (waitpid(r->pid[who], &status, WNOHANG) == r->pid[who]) {
		r->pid[who] = 0;
		if (WIFSIGNALED(status))
			run_fails(r, "end %c died of signal %d", 'A' + who, WTERMSIG(status));
		if (WEXITSTATUS(status))
			run_fails(r, "end %c ended with status %d", 'A' + who, WEXITSTATUS(status));
		r->dead[who] = true;
		return;
	}
	if (e->error && !r->st->errors_ok)
		run_fails(r, "end %c: %s%s", 'A' + who, net_result_name((ncclResult_t)e->error),
			  r->st->fault_ns ? " though it could go on" : " without a fault");
	if (call != CALL_NONE && e->call == call && e->call_ns == from &&
	    since(from) > HANG_S * r->o->slow)
		run_fails(r, "end %c: %s() has not returned for %d s", 'A' + who, call_names[call],
			  HANG_S * (int)r->o->slow);
}

static void look(struct run *r)
{
	uint64_t from = now_ns();

	look_at_end(r, END_A);
	look_at_end(r, END_B);
	usleep(500);
	if (since(from) > r->late_s)
		r->late_s = since(from);
}

void run_wait(struct run *r, unsigned ms)
{
	uint64_t end = now_ns() + ms * 1000000ULL;

	while (now_ns() < end)
		look(r);
}

/* Watches the ends until cond holds; fails the run after seconds_. */
#define UNTIL(r, seconds_, cond, ...)						\
	do {									\
		uint64_t from_ = now_ns();					\
										\
		while (!(cond)) {						\
			if (since(from_) > (seconds_))				\
				run_fails(r, __VA_ARGS__);			\
			look(r);						\
		}								\
	} while (0)

/* -- the beginning ------------------------------------------------------------------------ */

void run_built(char *ret, size_t len, const char *name)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");

	snprintf(ret, len, "%s%s", build ? build : ".", name);
}

void run_sets(const char *setting)
{
	char name[64], path[512];
	size_t len = strcspn(setting, "=");
	const char *value = setting + len + 1;

	snprintf(name, sizeof(name), "%.*s", (int)len, setting);
	if (*value == '@') {
		run_built(path, sizeof(path), value + 1);
		value = path;
	}
	setenv(name, value, 1);
}

static void start_end(struct run *r, unsigned who)
{
	char lanes[32];

	r->pid[who] = fork();
	if (r->pid[who])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!host_enter(&r->hosts, (int)who))
		_exit(1);
	host_own_sysfs();
	if (r->o->lanes) {
		snprintf(lanes, sizeof(lanes), "BRAID_LANES=%d", r->o->lanes);
		run_sets(lanes);
	}
	for (int i = 0; i < ROW_ENV && r->row->env[i]; i++)
		run_sets(r->row->env[i]);
	setenv("BRAID_TEST_FAKE_HOST", who == END_A ? "a" : "b", 1);
	traffic_end(r->st, who);
}

static void make_hosts(struct run *r)
{
	enum wire_kind kind = WIRE_NONE;
	char path[512];

	if (r->row->needs) {
		run_built(path, sizeof(path), r->row->needs);
		if (access(path, R_OK))
			run_skips(r, "%s is not built here", r->row->needs);
	}
	if (r->row->net == WIRED) {
		kind = wire_choose(r->o->wire);
		if (kind == WIRE_NONE)
			run_skips(r, "no wire: %s", hosts_why());
	}
	if (!hosts_make(&r->hosts, kind, r->row->net == TWO_PATHS ? 2 : 1, r->seed) ||
	    (r->row->net == SPARE_AT_A && !hosts_spare(&r->hosts, HOST_A)))
		run_skips(r, "%s", hosts_why());
}

static void start_ends(struct run *r, const struct flow *old)
{
	int nics[ENDS] = { r->row->net >= TWO_PATHS ? 2 : 1, r->row->net == TWO_PATHS ? 2 : 1 };
	struct stage *st;

	st = mmap(NULL, sizeof(*st), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (st == MAP_FAILED)
		run_fails(r, "mmap: %s", strerror(errno));
	st->plugin = r->o->plugin;
	st->abi[END_A] = st->abi[END_B] = r->o->abi;
	if (r->row->arg[0] < 0)		/* the other end has this ABI version */
		st->abi[END_B] = r->o->one_sided ? (int)RMA_ABI_OLDEST : -r->row->arg[0];
	st->one_sided = r->o->one_sided;
	st->seed = r->seed;
	st->born_ns = now_ns();
	st->slots = r->row->slots ? r->row->slots : 8;
	st->max_size = r->row->max_size ? r->row->max_size : 1 << 20;
	st->whole = r->row->whole;
	r->st = st;
	if (old)
		memcpy(st->old, old->handle, sizeof(st->old));
	st->has_old = old;
	st->stdio = r->row->log & STDIO_MASK;
	st->no_logger = r->row->log & NO_LOGGER;
	for (unsigned e = 0; e < ENDS; e++) {
		st->devices[e] = r->row->nic[e] == ALL ? nics[e] : 1;
		st->dev[e] = r->row->nic[e] == SECOND;
		st->end[e].call = CALL_NONE;
		start_end(r, e);
	}
	UNTIL(r, PLENTY_S * r->o->slow, st->end[END_A].state >= ST_LISTENING &&
	      st->end[END_B].state >= ST_LISTENING, "the ends don't even listen");
}

void run_starts(struct run *r)
{
	make_hosts(r);
	start_ends(r, NULL);
}

void run_joins(struct run *r, const struct run *first, uint64_t seed, const struct flow *old)
{
	*r = *first;
	r->seed = seed;
	start_ends(r, old);
}

void run_leaves(struct run *r)
{
	for (unsigned e = 0; e < ENDS; e++) {
		if (!r->dead[e])
			end_signal(r, e, SIGKILL);
	}
	munmap(r->st, sizeof(*r->st));
}

void run_opens(struct run *r)
{
	struct end *e = r->st->end;
	uint64_t last;

	r->go_ns = now_ns();
	r->st->go = true;
	UNTIL(r, PLENTY_S * r->o->slow, e[END_A].state == ST_OPEN && e[END_B].state == ST_OPEN,
	      "no connection after %d s", PLENTY_S * (int)r->o->slow);
	last = e[END_A].open_ns > e[END_B].open_ns ? e[END_A].open_ns : e[END_B].open_ns;
	r->setup_s = last > r->go_ns ? (double)(last - r->go_ns) / 1e9 : 0;
}

void run_connects(struct run *r)
{
	run_starts(r);
	run_opens(r);
}

static void mark(struct run *r)
{
	for (int f = 0; f < FLOWS; f++)
		r->mark[f] = r->st->flow[f].received;
}

static bool all_moved(const struct run *r, unsigned by)
{
	for (int f = 0; f < FLOWS; f++) {
		if (r->st->flow[f].received < r->mark[f] + by)
			return false;
	}
	return true;
}

void run_talks(struct run *r)
{
	mark(r);
	UNTIL(r, PLENTY_S * 2 * r->o->slow, all_moved(r, 4), "no traffic to begin with");
	run_wait(r, 50 + run_rnd(r, 250));
}

void run_begins(struct run *r)
{
	run_connects(r);
	run_talks(r);
}

/* -- the fault, and after ----------------------------------------------------------------- */

void run_faults(struct run *r)
{
	r->st->fault_ns = now_ns();
}

void run_healed(struct run *r)
{
	mark(r);
	r->heal_ns = now_ns();
}

void run_heals(struct run *r)
{
	uint64_t from = now_ns();

	if (!hosts_reach(&r->hosts, 0, PLENTY_S * 3000 * r->o->slow))
		run_fails(r, "the path did not come back when the fault was taken away");
	r->path_s = since(from);
	run_healed(r);
}

static double longest_gap(const struct run *r)
{
	uint64_t most = 0;

	for (int f = 0; f < FLOWS; f++) {
		if (r->st->flow[f].gap_ns > most)
			most = r->st->flow[f].gap_ns;
	}
	return (double)most / 1e9;
}

void run_goes_on(struct run *r)
{
	double most = deadline(r, r->row->heal_s);

	UNTIL(r, most, all_moved(r, 1), "no traffic on every flow %.1f s after the fault was over", most);
	r->back_s = since(r->heal_ns);
	run_wait(r, 100);
}

/* Waits until both ends, or the one that is left, have closed, finalized and exited with 0. */
static void wait_for_ends(struct run *r)
{
	r->st->last_act = true;
	r->st->stop = true;
	UNTIL(r, PLENTY_S * 3 * r->o->slow, r->dead[END_A] && r->dead[END_B],
	      "what was under way has not arrived and closed after %d s", PLENTY_S * 3 * (int)r->o->slow);
	if (r->st->end[END_A].broken || r->st->end[END_B].broken)
		run_fails(r, "%s", r->st->end[r->st->end[END_B].broken ? END_B : END_A].text);
	r->stall_s = longest_gap(r);
}

static void judge_call(struct run *r, unsigned who, enum call call, double promise_s, bool cpu)
{
	const struct timing *t = &r->st->end[who].timing[call];
	double took = (double)(cpu ? spread_at(&t->cpu, 0.999) : t->wall.max_ns) / 1e9;

	/* Where the runner itself got no CPU for late_s, a call may have got none either. */
	if (took > promise_s * TEN * r->o->slow + 2 * r->late_s)
		run_fails(r, "end %c: %s() took %.1f ms (%s)", 'A' + who, call_names[call], took * 1e3,
			  cpu ? "CPU time, p99.9" : "wall time, maximum");
}

static void judge_calls(struct run *r)
{
	for (unsigned e = 0; e < ENDS && !r->row->late; e++) {
		for (int c = CALL_TEST; c <= CALL_IRECV; c++)
			judge_call(r, e, (enum call)c, cpu_promise_s, true);
		for (int c = CALL_CONNECT; c <= CALL_CLOSE; c++)
			judge_call(r, e, (enum call)c, setup_promise_s, false);
	}
}

void run_closes(struct run *r)
{
	wait_for_ends(r);
	for (int f = 0; f < FLOWS; f++) {
		const struct flow *flow = &r->st->flow[f];

		if (flow->received != flow->limit || flow->sent != flow->limit)
			run_fails(r, "flow %d: %llu were sent and %llu received", f,
				  (unsigned long long)flow->sent, (unsigned long long)flow->received);
	}
}

void run_ends_well(struct run *r)
{
	run_closes(r);
	if (r->row->stall_s > 0 && r->stall_s > deadline(r, r->row->stall_s))
		run_fails(r, "stalled for %.2f s", r->stall_s);
	judge_calls(r);
	end_run(r, r->row->class == 'X' ? "no effect" : "recovered", "");
}

void run_recovers(struct run *r)
{
	run_goes_on(r);
	run_ends_well(r);
}

/* Waits for one end's error, on all its flows or on one, and notes the times of error and WARN. */
static void wait_for_error(struct run *r, unsigned who, bool all)
{
	struct end *e = &r->st->end[who];
	double most = deadline(r, r->row->error_s), took;
	uint64_t at;

	UNTIL(r, most, all ? e->errors_ns : e->error_ns, "end %c: no error %.1f s after the fault",
	      'A' + who, most);
	at = all ? e->errors_ns : e->error_ns;
	took = at > r->st->fault_ns ? (double)(at - r->st->fault_ns) / 1e9 : 0;
	if (took > r->error_s)
		r->error_s = took;
	if (e->warn_ns > r->st->fault_ns && r->warn_s < 0)
		r->warn_s = (double)(e->warn_ns - r->st->fault_ns) / 1e9;
}

static void judge_error(struct run *r, unsigned who, double least_s)
{
	const struct end *e = &r->st->end[who];
	double took = ((double)e->error_ns - (double)r->st->fault_ns) / 1e9;

	if (e->error != ncclRemoteError)
		run_fails(r, "end %c: %s instead of ncclRemoteError", 'A' + who,
			  net_result_name((ncclResult_t)e->error));
	if (!e->warns)
		run_fails(r, "end %c: an error, and no WARN says why", 'A' + who);
	if (r->names && !(strstr(e->warn, "w0") && strstr(e->warn, host_address(&r->hosts, !who, 0))))
		run_fails(r, "end %c: the WARN does not name device and peer: %s", 'A' + who, e->warn);
	if (took < least_s)
		run_fails(r, "end %c: given up after %.2f s, before %.2f s were over", 'A' + who, took,
			  least_s);
}

void run_errs(struct run *r, bool all, double least_s)
{
	bool judged[ENDS];

	r->st->errors_ok = true;
	for (unsigned e = 0; e < ENDS; e++) {
		judged[e] = !r->dead[e] && !r->stopped[e];
		if (judged[e])
			wait_for_error(r, e, all);
	}
	r->st->abort[END_A] = r->st->abort[END_B] = true;
	for (unsigned e = 0; e < ENDS; e++) {
		if (r->stopped[e])
			end_signal(r, e, SIGKILL);
	}
	wait_for_ends(r);
	for (unsigned e = 0; e < ENDS; e++) {
		if (judged[e])
			judge_error(r, e, least_s);
	}
	judge_calls(r);
	end_run(r, "right error", "");
}

void run_noticed(struct run *r, const char *by)
{
	end_run(r, "noticed", by);
}

void run_recovers_or_errs(struct run *r, double least_s)
{
	struct end *e = r->st->end;

	mark(r);
	r->heal_ns = r->st->fault_ns;
	r->st->errors_ok = true;
	UNTIL(r, deadline(r, r->row->error_s), all_moved(r, 4) || e[END_A].error || e[END_B].error,
	      "neither traffic nor an error");
	if (e[END_A].error || e[END_B].error)
		run_errs(r, true, least_s);
	r->st->errors_ok = false;
	run_recovers(r);
}

/* -- ends --------------------------------------------------------------------------------- */

void end_signal(struct run *r, unsigned who, int sig)
{
	if (r->pid[who] <= 0 || kill(r->pid[who], sig))
		run_fails(r, "kill: %s", strerror(errno));
	r->stopped[who] = sig == SIGSTOP;
	if (sig == SIGKILL) {
		r->dead[who] = true;
		waitpid(r->pid[who], NULL, 0);
		r->pid[who] = 0;
	}
}

void end_forks(struct run *r, unsigned who, unsigned n, unsigned ms)
{
	r->st->fork_ms = ms;
	r->st->fork_ask[who] += n;
	UNTIL(r, PLENTY_S * r->o->slow, r->st->end[who].forks >= r->st->fork_ask[who],
	      "end %c does not fork", 'A' + who);
}

bool end_warned(const struct run *r, unsigned who, const char *word)
{
	const struct end *e = &r->st->end[who];

	return e->warn_ns > r->st->fault_ns && strstr(e->log, word);
}

void run_act_ends(struct run *r)
{
	struct stage *st = r->st;

	st->errors_ok = true;
	UNTIL(r, PLENTY_S * r->o->slow, st->end[END_A].state == ST_CLOSED &&
	      st->end[END_B].state == ST_CLOSED, "the ends have not closed");
	for (unsigned e = 0; e < ENDS; e++) {
		st->abort[e] = false;
		st->end[e].error = 0;
		st->end[e].error_ns = st->end[e].errors_ns = 0;
		st->end[e].state = ST_BORN;
	}
	for (unsigned f = 0; f < FLOWS; f++) {
		st->flow[f].listening = st->flow[f].final = false;
		st->flow[f].limit = st->flow[f].sent = st->flow[f].received = 0;
	}
	st->errors_ok = false;
	st->go = false;
	st->act++;
	UNTIL(r, PLENTY_S * r->o->slow, st->end[END_A].state >= ST_LISTENING &&
	      st->end[END_B].state >= ST_LISTENING, "the ends don't listen again");
}

/* -- helper processes, and streams that are reset ----------------------------------------- */

pid_t run_helper(struct run *r)
{
	pid_t pid = fork();

	if (pid < 0)
		run_fails(r, "fork: %s", strerror(errno));
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

void run_helper_ends(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

double run_peer_timeout_s(const struct run *r)
{
	for (int i = 0; i < ROW_ENV && r->row->env[i]; i++) {
		if (strncmp(r->row->env[i], "BRAID_PEER_TIMEOUT=", 19) == 0)
			return atof(r->row->env[i] + 19);
	}
	return 240;
}

unsigned run_kills_streams(struct run *r, unsigned host, unsigned least, unsigned most)
{
	static struct inet_diag_sockid ids[SOCKETS_MAX];
	unsigned n, k, killed = 0;

	n = host_sockets(&r->hosts, (int)host, 1U << TCP_ESTABLISHED | 1U << TCP_SYN_SENT, ids, SOCKETS_MAX);
	if (least > n)
		least = n;
	if (most > n)
		most = n;
	k = least + (most > least ? run_rnd(r, most - least + 1) : 0);
	for (unsigned i = 0; i < k; i++) {
		unsigned j = i + run_rnd(r, n - i);
		struct inet_diag_sockid id = ids[j];

		ids[j] = ids[i];
		ids[i] = id;
		killed += host_kill(&r->hosts, (int)host, &id);
	}
	r->kills += killed;
	return n;
}

void run_play(const struct row *row, const struct options *o, unsigned seed, int out, int log)
{
	static struct run r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	out_fd = out;
	log_fd = log;
	r = (struct run){ .row = row, .o = o, .seed = seed, .setup_s = -1, .stall_s = -1, .path_s = -1,
			  .back_s = -1, .taken_s = -1, .error_s = -1, .warn_s = -1 };
	row->play(&r);
	run_fails(&r, "the row has no end");
}
