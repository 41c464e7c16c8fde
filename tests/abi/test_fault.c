/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fault.c - each of the plugin's calls into the C library fails once.
 *
 * A life is all that NCCL does with a plugin: init, devices, listen, connect and accept, regMr,
 * messages of all kinds, close, finalize.  It is repeated, each time in a process of its own in
 * which the next of the plugin's calls into the C library fails: memory, sockets, descriptors,
 * threads, files.  The life succeeds all the same, or ends with an error and a WARN that names the
 * cause.  Nothing hangs, crashes or leaks.  The next life in that process, in which no call fails,
 * succeeds.
 */
#include "tests/abi/abi.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fault.h"
#include "tools/rma.h"

enum { SMALL = 1000, EAGER = 40000, LARGE = 1000000, K_MAX = 2000, LIFE_S = 150, SOON_MS = 30000,
       JOBS = 12,
       ALONE_MS = 8000 };		/* longer than the other end's BRAID_CONNECT_TIMEOUT of 3 s */
enum { EXIT_BAD = 1, EXIT_NO_CALL, EXIT_NO_WAY };	/* how a life ended; 0: well */

/* --- what the plugin says ------------------------------------------------------------------ */

static struct lines warns;

__attribute__((format(printf, 5, 6)))
static void listen_to(int level, unsigned long flags, const char *file, int line, const char *fmt,
		      ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	abi_log(level, flags, file, line, "%s", text);
	if (level == NCCL_LOG_WARN)
		lines_add(&warns, text);
}

static bool warned_of(int err)
{
	return strstr(warns.text, strerror(err)) ||
	       (err == ENOMEM && strstr(warns.text, "out of memory"));
}

/* --- a life -------------------------------------------------------------------------------- */

static ncclResult_t look(struct net *net)
{
	struct braid_net_props props;
	int ndev = 0;
	ncclResult_t res = net_devices(net, &ndev);

	if (res == ncclSuccess && !ndev)
		return ncclSystemError;		/* this ABI version has no other way to report an error */
	return res ? res : net_props(net, 0, &props);
}

/*
 * connect() has succeeded, but accept() finds no comm: the link was lost in between.  NCCL's first
 * send then fails, and NCCL aborts both ends.
 */
static ncclResult_t left_alone(struct net *net, void *send)
{
	static char byte;
	void *req = NULL;
	int done = 0;
	ncclResult_t res = net_isend(net, send, &byte, 1, 0, NULL, NULL, &req);

	return res || !req ? res : net_test(net, req, &done, NULL);
}

static ncclResult_t meet_up(struct net *net, struct pair *p)
{
	uint64_t soon = deadline_ms(ALONE_MS), end = deadline_ms(SOON_MS);
	ncclResult_t res = net_listen(net, 0, p->handle, &p->listen);

	while (!res && !(p->send && p->recv)) {
		if (!p->send)
			res = net_connect(net, 0, p->handle, &p->send);
		if (!res && !p->recv)
			res = net_accept(net, p->listen, &p->recv);
		if (!res && p->send && !p->recv && now_us() > soon)
			res = left_alone(net, p->send);
		wait_tick(end, __FILE__, __LINE__, "connect and accept");
	}
	return res;
}

/* Waits until all operations are done, or one has failed: then NCCL closes everything. */
static ncclResult_t settle(struct op *ops, size_t n)
{
	uint64_t end = deadline_ms(SOON_MS);

	while (!ops_step(ops, n)) {
		for (size_t i = 0; i < n; i++) {
			if (ops[i].res)
				return ops[i].res;
		}
		wait_tick(end, __FILE__, __LINE__, "messages");
	}
	for (size_t i = 0; i < n; i++) {
		if (ops[i].res)
			return ops[i].res;
	}
	return ncclSuccess;
}

/* Moves one message; `early`: it is sent before its receive is posted. */
static ncclResult_t message(struct net *net, struct pair *p, size_t size, bool early)
{
	struct buf from = buf_new(net, NULL, size, 0), to = buf_new(net, NULL, size, 0);
	ncclResult_t res = net_reg(net, p->send, from.data, size, NCCL_PTR_HOST, &from.mr);
	uint64_t until = now_us() + 3000;
	struct op ops[2];

	if (!res)
		res = net_reg(net, p->recv, to.data, size, NCCL_PTR_HOST, &to.mr);
	fill(from.data, size, size);
	ops[0] = op_send(net, p->send, &from, size, 0);
	ops[1] = op_recv(net, p->recv, &to, size, 0);
	if (!res && early) {
		while (!ops_step(ops, 1) && now_us() < until)
			sched_yield();
		res = ops[0].res;
	}
	if (!res)
		res = settle(ops, 2);
	if (!res)
		filled(to.data, size, size);
	OK(net_dereg(net, p->send, from.mr));
	OK(net_dereg(net, p->recv, to.mr));
	buf_free(net, &from);
	buf_free(net, &to);
	return res;
}

static ncclResult_t talk(struct net *net, struct pair *p)
{
	static const struct {
		size_t size;
		bool early;
	} all[] = {
		{ SMALL, false }, { SMALL, true }, { EAGER, true }, { EAGER, false },
		{ LARGE, true }, { LARGE, false },
	};
	ncclResult_t res = ncclSuccess;

	for (size_t i = 0; !res && i < sizeof(all) / sizeof(all[0]); i++)
		res = message(net, p, all[i].size, all[i].early);
	return res;
}

static bool shut_it(int fd)
{
	return !shutdown(fd, SHUT_RDWR);
}

/* `in_middle`, if given, is called between messages, before all connections are lost. */
static ncclResult_t life(struct net *net, void (*in_middle)(void))
{
	ncclResult_t res = net_init(net, 1, -1, listen_to, NULL);
	struct pair p = { 0 };

	if (res)
		return res;
	res = look(net);
	if (!res)
		res = meet_up(net, &p);
	if (!res)
		res = talk(net, &p);
	if (!res && in_middle) {
		in_middle();
		count_streams(shut_it);
		res = talk(net, &p);
	}
	pair_close(net, &p);
	nap_ms(120);			/* an idle link frees memory, and must allocate it again */
	if (!res)
		res = meet_up(net, &p);
	if (!res)
		res = message(net, &p, LARGE, false);
	pair_close(net, &p);
	OK(net_finalize(net));
	return res;
}

static struct abi *living;

/* --- the same with one-sided operations ---------------------------------------------------- */

enum { RANKS = 2, WORD = 8 };

struct side {				/* one of two ranks in this process */
	void *listen, *coll, *ctx, *mem, *words;
	uint8_t *data;
	uint64_t word[WORD];
};

static ncclResult_t side_open(struct rma *rma, void *ctx, struct side *s, void *handles[],
			      unsigned rank)
{
	ncclResult_t res = rma_connect(rma, ctx, handles, RANKS, (int)rank, s->listen, &s->coll);

	if (!res)
		res = rma_context(rma, s->coll, 1, -1, 1, &s->ctx);
	if (!res)
		res = rma_reg(rma, s->coll, s->data, LARGE, NCCL_PTR_HOST, 0, &s->mem);
	if (!res)
		res = rma_reg(rma, s->coll, s->word, sizeof(s->word), NCCL_PTR_HOST,
			      NCCL_RMA_FORCE_SO, &s->words);
	return res;
}

static void side_close(struct rma *rma, struct side *s)
{
	if (s->ctx)
		rma_context_end(rma, s->ctx);
	if (s->mem)
		rma_dereg(rma, s->coll, s->mem);
	if (s->words)
		rma_dereg(rma, s->coll, s->words);
	if (s->coll)
		rma_close_coll(rma, s->coll);
	if (s->listen)
		rma_close_listen(rma, s->listen);
	free(s->data);
	*s = (struct side){ 0 };
}

/* Waits for a request; the other rank goes on meanwhile. */
static ncclResult_t done_with(struct rma *rma, struct side *s, struct side *other, void *req)
{
	uint64_t end = deadline_ms(SOON_MS);
	ncclResult_t res = ncclSuccess;
	int done = 0;

	while (!res && !done) {
		res = rma_test(rma, s->coll, req, &done);
		if (!res)
			res = rma_progress(rma, other->ctx);
		wait_tick(end, __FILE__, __LINE__, "a request");
	}
	return res;
}

static ncclResult_t put_to(struct rma *rma, struct side *s, struct side *other, unsigned rank,
			   size_t size)
{
	uint64_t was = other->word[0], end = deadline_ms(SOON_MS);
	void *req = NULL;
	ncclResult_t res;

	fill(s->data, size, size);
	res = rma_iput_signal(rma, s->ctx, 0, 0, s->mem, size, 0, other->mem ? s->mem : NULL, rank, 0,
			      s->words, 1, NCCL_RMA_SIGNAL_ADD, true, 0, &req);
	if (!res)
		res = done_with(rma, s, other, req);
	while (!res && __atomic_load_n(&other->word[0], __ATOMIC_ACQUIRE) == was) {
		res = rma_progress(rma, other->ctx);
		wait_tick(end, __FILE__, __LINE__, "a signal");
	}
	if (!res)
		filled(other->data, size, size);
	return res;
}

static ncclResult_t sides_talk(struct rma *rma, struct side *s)
{
	ncclResult_t res = ncclSuccess;
	void *req = NULL;

	for (unsigned i = 0; !res && i < 2; i++) {
		res = put_to(rma, &s[i], &s[!i], !i, SMALL);
		if (!res)
			res = put_to(rma, &s[i], &s[!i], !i, LARGE);
	}
	if (!res)
		res = rma_iget(rma, s[0].ctx, 0, 0, s[0].mem, LARGE, 0, s[0].mem, 1, 0, &req);
	return res ? res : done_with(rma, &s[0], &s[1], req);
}

static ncclResult_t one_sided_life(struct net *net)
{
	uint8_t handle[RANKS][NCCL_NET_HANDLE_MAXSIZE] = { { 0 } };
	void *handles[RANKS] = { handle[0], handle[1] }, *ctx = NULL;
	struct side s[RANKS] = { { 0 } };
	char err[256];
	struct rma *rma = rma_load(living->plugin, 0, err, sizeof(err));
	ncclResult_t res;
	int ndev = 0;

	(void)net;
	if (!rma)
		FAIL("%s", err);
	res = rma_init(rma, &ctx, 1, listen_to);
	if (!res)
		res = rma_devices(rma, &ndev);
	if (!res && !ndev)
		res = ncclSystemError;
	for (unsigned i = 0; i < RANKS; i++) {
		s[i].data = calloc(1, LARGE);
		if (!res)
			res = rma_listen(rma, ctx, 0, handle[i], &s[i].listen);
	}
	for (unsigned i = 0; !res && i < RANKS; i++)
		res = side_open(rma, ctx, &s[i], handles, i);
	if (!res)
		res = sides_talk(rma, s);
	for (unsigned i = 0; i < RANKS; i++)
		side_close(rma, &s[i]);
	if (ctx)
		OK(rma_finalize(rma, ctx));
	rma_unload(rma);
	return res;
}

/* --- again and again ----------------------------------------------------------------------- */

struct usage {
	unsigned fds, threads;
	long blocks;
};

/*
 * Where the ABI has no finalize, the service thread ends once it has nothing to do.  And a thread
 * that was joined is listed in /proc for a moment longer.
 */
static void quiet(const struct usage *empty)
{
	WAIT_FOR(count_threads() <= empty->threads && count_fds() <= empty->fds);
}

static void no_more_than(const struct usage *want, const char *what)
{
	if (count_threads() > want->threads || count_fds() > want->fds ||
	    fault_blocks() > want->blocks)
		FAIL("%s failed: %u descriptors, %u threads, %ld blocks are left; %u, %u and %ld "
		     "should be", what, count_fds(), count_threads(), fault_blocks(), want->fds,
		     want->threads, want->blocks);
}

struct run {
	struct abi *t;
	enum fault_kind kind;
	enum fault_how how;
	unsigned k;
	int err;			/* errno of the failing call; 0: a likely one for that call */
	bool may_fail;
	bool lossy;			/* calls fail only after connections are lost */
	bool one_sided;			/* puts, signals and gets in place of messages */
	struct seen {			/* shared by all runs */
		long blocks;		/* left after two good lives, in the run with k = 0 */
		char name[JOBS][32];	/* of the call that failed */
		struct fault_trace good;	/* the calls of the run with k = 0 */
	} *seen;
	char *name;			/* this run's entry of seen->name */
};


static const struct run *running;

static void arm(void)
{
	fault_arm(running->kind, running->k, running->how);
}

/* The body of the process in which call k fails. */
static _Noreturn void run_one(const struct run *r)
{
	char err[256], what[128];
	struct usage empty;
	struct net *net = net_load(r->t->plugin, r->t->abi, err, sizeof(err));
	ncclResult_t res;
	const char *name;

	if (!net)
		FAIL("%s", err);
	if (!fault_install(net->dl))
		_exit(EXIT_NO_WAY);
	empty = (struct usage){ count_fds(), count_threads(), 0 };
	fault_errno(r->err);
	fault_note(r->name, sizeof(r->seen->name[0]));
	running = r;
	fault_trace(r->k ? NULL : &r->seen->good);
	if (!r->lossy)
		arm();
	living = r->t;
	res = r->one_sided ? one_sided_life(net) : life(net, r->lossy ? arm : NULL);
	fault_trace(NULL);
	name = fault_name();
	snprintf(what, sizeof(what), "call %u, %s,", r->k, name ? name : "none");
	if (res && (!name || !r->may_fail))
		FAIL("%s failed: the life ended with %s: %s", what, net_result_name(res), warns.text);
	/* With FAULT_IO any WARN will do: a connection lost in its handshake may have other effects. */
	if (res && (r->kind == FAULT_IO ? !warns.text[0] : !warned_of(fault_err())))
		FAIL("%s failed with '%s', which no WARN says: '%s'", what,
		     strerror(fault_err()), warns.text);
	fault_arm(r->kind, 0, FAULT_ONCE);
	quiet(&empty);
	lines_clear(&warns);
	res = r->one_sided ? one_sided_life(net) : life(net, NULL);
	if (res)
		FAIL("%s failed, and the life after that ended with %s: %s", what,
		     net_result_name(res), warns.text);
	quiet(&empty);
	if (!r->k)
		r->seen->blocks = fault_blocks();
	empty.blocks = r->seen->blocks;
	no_more_than(&empty, what);
	net_unload(net);
	fflush(NULL);
	exit(r->k && !name ? EXIT_NO_CALL : 0);
}

/*
 * Is call k to fail?  All calls with BRAID_TEST_VERSIONS=all.  Else the first on each path through the
 * code, the first three of each name and every sixth after that, and calls that a good life lacks.
 */
static bool is_wanted(const struct fault_trace *good, unsigned k)
{
	unsigned of_name = 0, of_path = 0;

	if (abi_versions_all() || k > K_MAX || !good->name[k - 1][0])
		return true;
	for (unsigned i = 0; i < k - 1; i++) {
		of_name += !strcmp(good->name[i], good->name[k - 1]);
		of_path += good->path[i] == good->path[k - 1];
	}
	return !of_path || of_name < 3 || of_name % 6 == 0;
}

/* Starts the life in which call k fails. */
static pid_t run_start(struct run *r, unsigned k)
{
	pid_t pid = fork();

	TRUE(pid >= 0);
	if (pid)
		return pid;
	alarm((unsigned)((deadline_ms(LIFE_S * 1000) - now_us()) / 1000000));
	r->k = k;
	r->name = r->seen->name[k % JOBS];
	run_one(r);
}

/* Waits for that life, which has printed its own errors. */
static int run_end(const struct run *r, pid_t pid, unsigned k)
{
	int status;

	TRUE(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_WAY)
		skip_because("no way to reach the plugin's calls on this machine");
	if (WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == EXIT_NO_CALL))
		return WEXITSTATUS(status);
	fprintf(stderr, "  that was call %u, %s: %s\n", k, r->seen->name[k % JOBS],
		WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
	return EXIT_BAD;
}

/* Sets a time limit of the plugin, longer on a slow machine. */
static void seconds(const char *name, unsigned s)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", s * drive_slow());
	setenv(name, text, 1);
}

/* Runs several lives at a time, since they mostly wait. */
static void run_these(struct abi *t, struct run r, unsigned most)
{
	unsigned bad = 0, failed = 0, left_out = 0, k, next = 1;
	pid_t pid[JOBS];
	bool last = false;

	r.t = t;
	r.seen = mmap(NULL, sizeof(*r.seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	TRUE(r.seen != MAP_FAILED);
	warns_expected();
	setenv("BRAID_LANES", "2", 1);
	setenv("BRAID_CHUNK", "128k", 1);		/* LARGE is several */
	setenv("BRAID_LINK_IDLE", t->abi < 11 ? "0" : "1", 1);
	seconds("BRAID_CONNECT_TIMEOUT", 3);
	seconds("BRAID_HANDSHAKE_TIMEOUT", 2);
	seconds("BRAID_PEER_TIMEOUT", 4);
	TRUE(!run_end(&r, run_start(&r, 0), 0));	/* nothing fails, to compare with */
	for (k = 1; k < next || !last; k++) {
		int end;

		for (; !last && next <= most && next < k + JOBS; next++)
			pid[next % JOBS] = is_wanted(&r.seen->good, next) ?
						   run_start(&r, next) : 0;
		if (k == next)
			break;
		if (!pid[k % JOBS]) {
			left_out++;
			continue;
		}
		end = run_end(&r, pid[k % JOBS], k);
		bad += end == EXIT_BAD;
		failed += !end;
		last |= end == EXIT_NO_CALL;
	}
	munmap(r.seen, sizeof(*r.seen));
	if (bad)
		FAIL("%u of %u lives were bad", bad, k - 1);
	printf("# v%d: %u calls failed, one in each life; %u like others were left out\n", t->abi,
	       failed, left_out);
}

static void setup_once(struct abi *t)
{
	run_these(t, (struct run){ .kind = FAULT_SETUP, .how = FAULT_ONCE, .may_fail = true },
		  K_MAX);
}

static void setup_on(struct abi *t)
{
	run_these(t, (struct run){ .kind = FAULT_SETUP, .how = FAULT_ON, .may_fail = true }, K_MAX);
}

static void one_sided(struct abi *t)
{
	setenv("BRAID_RMA", "on", 1);
	run_these(t, (struct run){ .kind = FAULT_SETUP, .how = FAULT_ONCE, .may_fail = true,
				   .one_sided = true }, K_MAX);
}

static void no_port(struct abi *t)
{
	fault_only("listen");
	run_these(t, (struct run){ .kind = FAULT_SETUP, .how = FAULT_ON, .may_fail = true }, 1);
}

static void recovery(struct abi *t)
{
	run_these(t, (struct run){ .kind = FAULT_SETUP, .how = FAULT_ONCE, .may_fail = true,
				   .lossy = true }, K_MAX);
}

static void io_reset(struct abi *t)
{
	run_these(t, (struct run){ .kind = FAULT_IO, .how = FAULT_ONCE, .err = ECONNRESET,
				   .may_fail = true }, 60);
}

static void io_interrupted(struct abi *t)
{
	run_these(t, (struct run){ .kind = FAULT_IO, .how = FAULT_ONCE, .err = EINTR }, 60);
}

/* --- two processes --------------------------------------------------------------------------- */

enum { ROUNDS = 8, ROUND_CALLS = 400 };

static ncclResult_t both_ways(struct net *net, struct pair *p)
{
	struct buf out = buf_new(net, NULL, LARGE, 0), in = buf_new(net, NULL, LARGE, 0);
	ncclResult_t res = net_reg(net, p->send, out.data, LARGE, NCCL_PTR_HOST, &out.mr);
	struct op ops[2];

	if (!res)
		res = net_reg(net, p->recv, in.data, LARGE, NCCL_PTR_HOST, &in.mr);
	for (unsigned i = 0; !res && i < ROUNDS; i++) {
		fill(out.data, LARGE, i);
		ops[0] = op_send(net, p->send, &out, LARGE, 0);
		ops[1] = op_recv(net, p->recv, &in, LARGE, 0);
		res = settle(ops, 2);
		if (!res)
			filled(in.data, LARGE, i);
	}
	OK(net_dereg(net, p->send, out.mr));
	OK(net_dereg(net, p->recv, in.mr));
	buf_free(net, &out);
	buf_free(net, &in);
	return res;
}

static void dialled(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	struct pair p = { 0 };

	p.recv = recv_from(net, fd);
	p.send = send_to(net, fd);
	warns_expected();
	OK(both_ways(net, &p));
	meet(fd);
	pair_close(net, &p);
	abi_down(net);
}

static ncclResult_t dial(struct net *net, struct pair *p, int fd)
{
	uint64_t soon = deadline_ms(ALONE_MS), end = deadline_ms(SOON_MS);
	ncclResult_t res = ncclSuccess;

	take(fd, p->handle, sizeof(p->handle));
	while (!res && !p->send) {
		res = net_connect(net, 0, p->handle, &p->send);
		wait_tick(end, __FILE__, __LINE__, "connect");
	}
	memset(p->handle, 0, sizeof(p->handle));
	if (!res)
		res = net_listen(net, 0, p->handle, &p->listen);
	if (!res)
		give(fd, p->handle, sizeof(p->handle));
	while (!res && !p->recv) {
		res = net_accept(net, p->listen, &p->recv);
		if (!res && !p->recv && now_us() > soon)	/* the peer may wait for our send */
			res = left_alone(net, p->send);
		wait_tick(end, __FILE__, __LINE__, "accept");
	}
	return res;
}

/* Dials the peer while call k of this process fails.  False: there is no such call. */
static bool dialler(struct abi *t, unsigned k)
{
	struct peer peer = peer_start(t, dialled);
	struct pair p = { 0 };
	struct net *net;
	const char *failed;
	ncclResult_t res;
	char err[256];

	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	if (!fault_install(net->dl))
		_exit(EXIT_NO_WAY);
	OK(net_init(net, 1, -1, listen_to, NULL));
	OK(look(net));
	fault_arm(FAULT_SETUP, k, FAULT_ONCE);
	res = dial(net, &p, peer.fd);
	if (!res)
		res = both_ways(net, &p);
	failed = fault_name();
	if (res && (!failed || !warned_of(fault_err())))
		FAIL("call %u, %s, failed: it ended with %s: %s", k, failed ? failed : "none",
		     net_result_name(res), warns.text);
	if (res) {
		peer_kill(&peer);
		return true;
	}
	fault_arm(FAULT_SETUP, 0, FAULT_ONCE);
	meet(peer.fd);
	pair_close(net, &p);
	OK(net_finalize(net));
	peer_join(&peer);
	return failed;
}

/* Each call of that name (NULL: of any name) fails in a life of its own.  Returns their number. */
static unsigned each_call(struct abi *t, const char *name)
{
	unsigned k;
	int status = 0;

	warns_expected();
	fault_only(name);
	setenv("BRAID_LANES", "2", 1);
	seconds("BRAID_CONNECT_TIMEOUT", 3);
	for (k = 1; !status; k++) {
		pid_t pid = fork();

		TRUE(pid >= 0);
		if (!pid)
			_exit(dialler(t, k) ? 0 : EXIT_NO_CALL);
		TRUE(waitpid(pid, &status, 0) == pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_WAY)
			skip_because("no way to reach the plugin's calls on this machine");
		if (status && (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_NO_CALL))
			FAIL("call %u: status %x", k, status);
		TRUE(k < ROUND_CALLS);
	}
	printf("v%d: %u calls failed, one in each life\n", t->abi, k - 2);
	fflush(stdout);
	return k - 2;
}

/* A lane can't be set up at the end that dials it; the other end has it, and may have used it. */
static void half_a_lane(struct abi *t)
{
	TRUE(each_call(t, NULL) > 18);
}

/* Calls of one name come in the same order: so a lane's and its ring's fail in each run. */
static void half_a_lane_no_ring(struct abi *t)
{
	TRUE(each_call(t, "malloc") > 2);
	TRUE(each_call(t, "calloc") > 2);
}

static const struct abi_case cases[] = {
	CASE("whichever call of set-up fails, the job ends well or the log says why", setup_once,
	     .since = 12, .seconds = 300, .warns = "no-memory"),
	CASE("whichever call of set-up fails, without finalize: ends well or the log says why",
	     setup_once,
	     .since = 10, .until = 10, .seconds = 300),
	CASE("whichever call of set-up and all later ones fail: ends well or the log says why",
	     setup_on, .since = 12,
	     .seconds = 300, .warns = "no-memory"),
	CASE("whichever call of one-sided operations fails: ends well or the log says why", one_sided,
	     .since = 12, .seconds = 300),
	CASE("without a port the job ends and the log says why", no_port, .since = 12,
	     .warns = "cannot-listen"),
	CASE("whichever call fails after connections are lost: ends well or the log says why",
	     recovery, .since = 12,
	     .seconds = 300, .warns = "no-redial"),
	CASE("whichever call of one of two processes fails, both have a lane or neither",
	     half_a_lane, .since = 12, .seconds = 300),
	CASE("whichever lane or ring of two processes can't be allocated: both have it or neither",
	     half_a_lane_no_ring,
	     .since = 12, .seconds = 300, .warns = "no-lane no-link"),
	CASE("whichever send or receive of two processes fails: both have a lane or neither",
	     io_reset, .since = 12),
	CASE("whichever send or receive is interrupted, nothing fails", io_interrupted,
	     .since = 12),
};

ABI_MAIN(cases)
