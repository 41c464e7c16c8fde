/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * serve.c - a listener: starts a worker for each coordinator that proves the key, in a process of
 * its own, and reports those that fail.  All workers of a listener together have a bound on memory.
 */
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/opt.h"
#include "tools/perf/key.h"
#include "tools/perf/pattern.h"
#include "tools/perf/stat.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"

enum { SESSIONS_MAX = 64 };

/* -- shared with the workers -------------------------------------------------------------- */

static struct ledger {
	uint64_t most;			/* of memory, all workers together */
	_Atomic uint64_t bytes[SESSIONS_MAX];
	char why[SESSIONS_MAX][PERF_TEXT];	/* an error of the session; or "" */
} *ledger;

static int own_slot;			/* of this worker, where there is a ledger */

/* The bound is half of the memory that is free when the listener starts. */
static void ledger_make(void)
{
	uint64_t free_bytes = perf_memory_free();
	void *p = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);

	ledger = p == MAP_FAILED ? NULL : p;
	if (ledger)
		ledger->most = free_bytes ? free_bytes / 2 : PERF_ARENA_MAX;
}

bool perf_room(uint64_t bytes)
{
	uint64_t old, sum = 0;

	if (!ledger)
		return true;
	old = atomic_exchange(&ledger->bytes[own_slot], bytes);
	for (int i = 0; i < SESSIONS_MAX; i++)
		sum += atomic_load(&ledger->bytes[i]);
	if (sum <= ledger->most || bytes <= old)
		return true;
	atomic_store(&ledger->bytes[own_slot], old);
	return false;
}

void perf_session_why(const char *why)
{
	if (ledger)
		snprintf(ledger->why[own_slot], PERF_TEXT, "%s", why);
}

/* -- sessions ----------------------------------------------------------------------------- */

struct sessions {
	const char *prog;		/* begins a message; NULL: print none */
	pid_t pid[SESSIONS_MAX];	/* 0: free */
	int n;
	bool failed;			/* a session has failed */
};

static int serve_one(int fd, const struct fabric_env *env, perf_worker_fn *worker, bool pin,
		     int nth)
{
	struct fabric_env mine = *env;
	char addr[FABRIC_NAME];
	int one = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	tcp_tune(fd);
	tcp_addr_local(fd, addr, sizeof(addr));
	mine.addr = addr;
	if (pin)
		mine.cpu = perf_cpu_nth(nth);
	return worker(fd, &mine);
}

static void failed(struct sessions *s, int slot, int status)
{
	const char *why = ledger ? ledger->why[slot] : "";

	s->failed = true;
	if (!s->prog)
		return;
	if (WIFSIGNALED(status))
		why = strsignal(WTERMSIG(status));
	opt_fail(s->prog, "[not-served]", "a session failed: %s",
		 *why ? why : "the --connect end left before it was over");
}

/* Collect the children that have ended, without waiting. */
static void reap(struct sessions *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (int i = 0; i < SESSIONS_MAX; i++) {
			if (s->pid[i] != pid)
				continue;
			s->pid[i] = 0;
			s->n--;
			if (status)
				failed(s, i, status);
			if (ledger)
				atomic_store(&ledger->bytes[i], 0);
		}
	}
}

static void serve_in_child(struct sessions *s, struct perf_gate *g, int listen_fd, int fd,
			   const struct fabric_env *env, perf_worker_fn *worker, bool pin)
{
	int slot = 0;
	pid_t pid;

	while (s->pid[slot])
		slot++;
	if (ledger)
		ledger->why[slot][0] = 0;
	pid = fork();
	if (pid == 0) {
		own_slot = slot;
		perf_gate_free(g);
		close(listen_fd);
		_exit(serve_one(fd, env, worker, pin, s->n));
	}
	if (pid > 0) {
		s->pid[slot] = pid;
		s->n++;
	}
}

static bool at_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char unused[64];

	return fd >= 0 && poll(&p, 1, 0) == 1 && read(fd, unused, sizeof(unused)) <= 0;
}

int perf_worker_serve(const char *prog, int listen_fd, const struct fabric_env *env,
		      perf_worker_fn *worker, bool pin, bool once, int until_fd)
{
	struct perf_gate *g = env->key ? perf_gate_new(listen_fd, env->key) : NULL;
	struct sessions s = { .prog = prog };
	bool served = false;
	int fd;

	if (!g)
		return 1;
	ledger_make();
	while ((!once || s.n > 0 || !served) && !at_end(until_fd)) {
		reap(&s);
		fd = perf_gate_next(g, s.n >= SESSIONS_MAX, 100);
		if (fd < 0)
			continue;
		serve_in_child(&s, g, listen_fd, fd, env, worker, pin);
		close(fd);
		served = true;
	}
	perf_gate_free(g);
	return s.failed ? 1 : 0;
}

/* -- listening ---------------------------------------------------------------------------- */

int perf_worker_listen(const char *addr, int *ret_port, char *err)
{
	union tcp_addr a;
	int fd, rc;

	rc = tcp_addr_parse(addr, false, &a, err, PERF_TEXT);
	if (rc)
		return rc;
	fd = tcp_listen(&a);
	if (fd < 0) {
		snprintf(err, PERF_TEXT, "listen on %s: %s", addr, strerror(-fd));
		return fd;
	}
	*ret_port = ntohs(a.sa.sa_family == AF_INET ? a.in.sin_port : a.in6.sin6_port);
	return fd;
}

/* The address that the socket is bound to; this host's name if that is the wildcard. */
static void own_name(int fd, char *room, size_t n)
{
	char text[64];

	tcp_addr_local(fd, text, sizeof(text));
	if (strcmp(text, "0.0.0.0") != 0 && strcmp(text, "::") != 0) {
		snprintf(room, n, strchr(text, ':') ? "[%s]" : "%s", text);
		return;
	}
	snprintf(room, n, "HOST");
	gethostname(room, n - 1);
}

void perf_listen_print(const char *prog, int fd, int port, const char *key)
{
	char name[256] = "";

	own_name(fd, name, sizeof(name));
	fprintf(stderr, "listening on port %d\n", port);
	if (key)
		fprintf(stderr, "on the other host: BRAID_PERF_KEY=%s %s --connect %s:%d\n", key,
			prog, name, port);
	else
		fprintf(stderr, "on the other host, with the same key: %s --connect %s:%d\n", prog,
			name, port);
}
