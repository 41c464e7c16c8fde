/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.c - the coordinator: starts workers, sends requests, and waits for the answers.
 *
 * Everything has a deadline.  When one worker dies, the others soon report errors of their own; so
 * before an error is reported, look for a worker that died: that is the cause.
 */
#include "tools/perf/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/perf/ctl.h"
#include "tools/perf/key.h"
#include "tools/perf/stat.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"
#include "tools/text.h"

enum { DIAL_MS = 10000, DEATH_MS = 300, QUIT_MS = 3000, STOP_MS = 100 };

static int fail(struct perf_session *s, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct perf_session *s, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->err, sizeof(s->err), fmt, ap);
	va_end(ap);
	return err;
}

/* -- starting ----------------------------------------------------------------------------- */

static void worker_child(struct perf_session *s, int rank, int fd, const struct fabric_env *env,
			 bool pin)
{
	struct fabric_env mine = *env;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);	/* the coordinator ends it */
	for (i = 0; i < PERF_PROCS_MAX; i++)
		if (s->w[i].fd >= 0)
			close(s->w[i].fd);
	if (pin)
		mine.cpu = perf_cpu_nth(rank);
	_exit(perf_worker_main(fd, &mine));
}

static int worker_fork(struct perf_session *s, int rank, const struct fabric_env *env, bool pin)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return fail(s, -errno, "socketpair: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		close(pair[0]);
		close(pair[1]);
		return fail(s, -errno, "fork: %s", strerror(errno));
	}
	if (pid == 0) {
		close(pair[0]);
		worker_child(s, rank, pair[1], env, pin);
	}
	close(pair[1]);
	s->w[rank].fd = pair[0];
	s->w[rank].pid = pid;
	return 0;
}

static int worker_dial(struct perf_session *s, int rank, const char *remote,
		       const struct perf_key *key)
{
	union tcp_addr a;
	char err[PERF_TEXT];
	int fd, rc;

	rc = tcp_addr_parse(remote, true, &a, err, sizeof(err));
	if (rc)
		return fail(s, rc, "%s", err);
	fd = tcp_dial(&a, DIAL_MS);
	if (fd < 0)
		return fail(s, fd, "connect to %s: %s", remote, strerror(-fd));
	rc = perf_prove(fd, key, DIAL_MS);
	if (rc) {
		close(fd);
		return fail(s, rc, "the listener at %s: %s", remote, perf_prove_why(rc));
	}
	s->w[rank].fd = fd;
	return 0;
}

/* -- asking ------------------------------------------------------------------------------- */

/* Report how a worker ended that has closed its socket. */
static int death(struct perf_session *s, int rank)
{
	struct perf_worker *w = &s->w[rank];
	int status, tries;

	for (tries = 0; w->pid && tries < 100; tries++, usleep(2000)) {
		if (waitpid(w->pid, &status, WNOHANG) != w->pid)
			continue;
		w->pid = 0;
		if (WIFSIGNALED(status))
			return fail(s, -EPIPE, "%s died: %s", w->where,
				    strsignal(WTERMSIG(status)));
		return fail(s, -EPIPE, "%s left with exit status %d", w->where,
			    WEXITSTATUS(status));
	}
	return fail(s, -EPIPE, "%s is gone", w->where);
}

/* If a worker has died, that is the error; else `rc` and s->err stay. */
static int cause(struct perf_session *s, int rc)
{
	struct pollfd p[PERF_PROCS_MAX];
	int i;
	char c;

	for (i = 0; i < s->nprocs; i++)
		p[i] = (struct pollfd){ .fd = s->w[i].fd, .events = POLLRDHUP };
	poll(p, (nfds_t)s->nprocs, DEATH_MS);
	for (i = 0; i < s->nprocs; i++)
		if (p[i].revents && recv(p[i].fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
			return death(s, i);
	return rc;
}

static int send_ctl(struct perf_session *s, int rank, struct perf_ctl *m)
{
	int rc = perf_ctl_send(s->w[rank].fd, m);

	if (!rc)
		return 0;
	return rc == -EPIPE ? death(s, rank)
			    : fail(s, rc, "%s: %s", s->w[rank].where, strerror(-rc));
}

/* Turn *m, received from `rank`, into an error if it is one. */
static int judge(struct perf_session *s, int rank, int rc, const struct perf_ctl *m)
{
	if (rc == -EPIPE)
		return death(s, rank);
	if (rc == -EPROTO)
		return fail(s, rc, "%s does not speak as this version does", s->w[rank].where);
	if (rc)
		return fail(s, rc, "%s: %s", s->w[rank].where, strerror(-rc));
	if (m->status == 0)
		return 0;
	fail(s, m->status, "%s: %.*s", s->w[rank].where, PERF_TEXT, m->text);
	return cause(s, m->status);
}

/* Take the first answer of any worker; a worker's death ends the wait. */
static int answers(struct perf_session *s, bool *waiting, struct perf_ctl *ret)
{
	uint64_t end_ns = perf_now_ns() + (uint64_t)(s->timeout_s * 1e9);
	struct pollfd p[PERF_PROCS_MAX];
	int i, n, rc;

	for (;;) {
		for (i = n = 0; i < s->nprocs; i++) {
			p[i] = (struct pollfd){.fd = waiting[i] ? s->w[i].fd : -1,
					       .events = POLLIN};
			n += waiting[i];
		}
		if (n == 0)
			return 0;
		if (s->stop && *s->stop)
			return fail(s, -EINTR, "stopped");
		if (perf_now_ns() >= end_ns ||
		    (poll(p, (nfds_t)s->nprocs, 1000) < 0 && errno != EINTR))
			break;
		for (i = 0; i < s->nprocs; i++) {
			if (!p[i].revents)
				continue;
			rc = judge(s, i, perf_ctl_recv(s->w[i].fd, &ret[i], DEATH_MS), &ret[i]);
			if (rc)
				return rc;
			waiting[i] = false;
		}
	}
	for (i = 0; !waiting[i];)
		i++;
	return fail(s, -ETIMEDOUT, "%s has not answered for %.0f s (--timeout)", s->w[i].where,
		    s->timeout_s);
}

static int call_all(struct perf_session *s, const struct perf_ctl *m, struct perf_ctl *ret)
{
	bool waiting[PERF_PROCS_MAX] = { false };
	struct perf_ctl copy = *m;
	int i, rc;

	for (i = 0; i < s->nprocs; i++) {
		copy.rank = i;
		rc = send_ctl(s, i, &copy);
		if (rc)
			return rc;
		waiting[i] = true;
	}
	return answers(s, waiting, ret);
}

static int call_one(struct perf_session *s, int rank, struct perf_ctl *m)
{
	bool waiting[PERF_PROCS_MAX] = { [0] = false };
	struct perf_ctl ret[PERF_PROCS_MAX];
	int rc = send_ctl(s, rank, m);

	if (rc)
		return rc;
	waiting[rank] = true;
	rc = answers(s, waiting, ret);
	if (!rc)
		*m = ret[rank];
	return rc;
}

/* -- requests ----------------------------------------------------------------------------- */

/* Start remote workers first: local ones' raw TCP then uses the address that reaches them. */
static int workers_start(struct perf_session *s, const struct fabric_env *env, bool pin,
			 const char *const *where)
{
	struct fabric_env mine = *env;
	char addr[FABRIC_NAME];
	int i, rc = 0;

	for (i = 0; i < s->nprocs && !rc; i++) {
		if (!where[i])
			continue;
		rc = worker_dial(s, i, where[i], env->key);
		if (rc || mine.addr == addr)
			continue;
		tcp_addr_local(s->w[i].fd, addr, sizeof(addr));
		mine.addr = addr;
	}
	for (i = 0; i < s->nprocs && !rc; i++)
		if (!where[i])
			rc = worker_fork(s, i, &mine, pin);
	return rc;
}

/* What a worker's answer to HELLO says of its host. */
static void worker_about(struct perf_worker *w, int rank, struct perf_ctl *m)
{
	m->text[PERF_HOST - 1] = 0;
	text_clean(m->text + PERF_HOST, PERF_HOST, "");
	snprintf(w->host, sizeof(w->host), "%.63s", m->text);
	snprintf(w->kernel, sizeof(w->kernel), "%.63s", m->text + PERF_HOST);
	snprintf(w->where, sizeof(w->where), "rank %d (pid %d on %.40s)", rank, (int)m->idx,
		 w->host);
}

int perf_session_open(struct perf_session *s, const struct fabric_env *env, int nprocs, bool pin,
		      const char *remote, double timeout_s)
{
	const char *where[PERF_PROCS_MAX] = { NULL };
	int i;

	for (i = nprocs / 2; i < nprocs; i++)
		where[i] = remote;
	return perf_session_open_at(s, env, nprocs, pin, where, timeout_s);
}

int perf_session_open_at(struct perf_session *s, const struct fabric_env *env, int nprocs, bool pin,
			 const char *const *where, double timeout_s)
{
	struct perf_ctl m = { .type = PERF_CTL_HELLO, .nprocs = nprocs };
	struct perf_ctl ret[PERF_PROCS_MAX];
	int i, rc;

	*s = (struct perf_session){ .timeout_s = timeout_s, .nprocs = nprocs };
	for (i = 0; i < PERF_PROCS_MAX; i++) {
		s->w[i].fd = -1;
		snprintf(s->w[i].where, sizeof(s->w[i].where), "rank %d", i);
	}
	rc = workers_start(s, env, pin, where);
	if (!rc)
		rc = call_all(s, &m, ret);
	for (i = 0; !rc && i < nprocs; i++)
		worker_about(&s->w[i], i, &ret[i]);
	return rc;
}

int perf_session_load(struct perf_session *s, enum fabric_kind kind, const struct perf_way *way,
		      struct fabric_about *ret)
{
	struct perf_ctl m = { .type = PERF_CTL_LOAD, .fabric = kind };
	struct perf_ctl all[PERF_PROCS_MAX];
	int i, rc;

	if (way)
		m.way = *way;
	rc = call_all(s, &m, all);
	for (i = 0; !rc && i < s->nprocs; i++) {
		text_clean(all[i].about.name, sizeof(all[i].about.name), "");
		text_clean(all[i].about.dev, sizeof(all[i].about.dev), "");
		s->w[i].about = all[i].about;
	}
	if (!rc)
		*ret = all[0].about;
	return rc;
}

int perf_session_link(struct perf_session *s, enum fabric_kind kind, int src, int dst, int idx,
		      struct perf_linked *ret)
{
	struct perf_ctl m = { .type = PERF_CTL_LISTEN, .fabric = kind };
	struct perf_ctl all[PERF_PROCS_MAX];
	bool waiting[PERF_PROCS_MAX] = { false };
	int rc = call_one(s, dst, &m);

	if (rc)
		return rc;
	waiting[src] = waiting[dst] = true;
	m.idx = idx;
	m.type = PERF_CTL_ACCEPT;
	m.peer = src;
	rc = send_ctl(s, dst, &m);
	m.type = PERF_CTL_CONNECT;
	m.peer = dst;
	if (!rc)
		rc = send_ctl(s, src, &m);
	if (!rc)
		rc = answers(s, waiting, all);
	if (rc)
		return rc;
	*ret = (struct perf_linked){
		.connect_ns = all[src].ns,
		.accept_ns = all[dst].ns,
		.fds = {all[src].fds, all[dst].fds},
		.threads = {all[src].threads, all[dst].threads},
	};
	return 0;
}

int perf_session_link_all(struct perf_session *s, enum fabric_kind kind, enum perf_pattern pattern,
			  int comms)
{
	struct perf_linked unused;
	int src, dst, idx, rc;

	for (idx = 0; idx < comms; idx++)
		for (src = 0; src < s->nprocs; src++)
			for (dst = 0; dst < s->nprocs; dst++) {
				if (src == dst || !perf_kinds[pattern].edge(s->nprocs, src, dst))
					continue;
				rc = perf_session_link(s, kind, src, dst, idx, &unused);
				if (rc)
					return rc;
			}
	return 0;
}

int perf_session_arena(struct perf_session *s, uint64_t bytes)
{
	struct perf_ctl m = { .type = PERF_CTL_ARENA, .bytes = bytes };
	struct perf_ctl all[PERF_PROCS_MAX];

	return call_all(s, &m, all);
}

int perf_session_run(struct perf_session *s, const struct perf_run *run, struct perf_result *ret)
{
	struct perf_ctl m = { .type = PERF_CTL_RUN, .fabric = run->fabric, .run = *run };
	struct perf_ctl all[PERF_PROCS_MAX];
	int i, rc;

	rc = call_all(s, &m, all);
	m.type = PERF_CTL_GO;
	s->timeout_s += s->run_s;
	if (!rc)
		rc = call_all(s, &m, all);
	s->timeout_s -= s->run_s;
	for (i = 0; !rc && i < s->nprocs; i++)
		ret[i] = all[i].result;
	return rc;
}

int perf_session_unlink(struct perf_session *s, enum fabric_kind kind, uint64_t *ret_ns)
{
	struct perf_ctl m = { .type = PERF_CTL_CLOSE, .fabric = kind };
	struct perf_ctl all[PERF_PROCS_MAX];
	int i, rc = call_all(s, &m, all);

	*ret_ns = 0;
	for (i = 0; !rc && i < s->nprocs; i++)
		if (all[i].ns > *ret_ns)
			*ret_ns = all[i].ns;
	return rc;
}

/* Ask all workers to quit at once, so that they close together; kill those that are late. */
void perf_session_close(struct perf_session *s)
{
	struct perf_ctl m = { .type = PERF_CTL_QUIT };
	int i, late_ms = s->stop && *s->stop ? STOP_MS : QUIT_MS;
	uint64_t end_ns = perf_now_ns() + (uint64_t)late_ms * 1000000;

	for (i = 0; i < s->nprocs; i++) {
		if (s->w[i].fd < 0)
			continue;
		perf_ctl_send(s->w[i].fd, &m);
		shutdown(s->w[i].fd, SHUT_WR);
	}
	for (i = 0; i < s->nprocs; i++) {
		while (s->w[i].pid && waitpid(s->w[i].pid, NULL, WNOHANG) == 0) {
			if (perf_now_ns() > end_ns)
				kill(s->w[i].pid, SIGKILL);
			usleep(1000);
		}
		if (s->w[i].fd >= 0)
			close(s->w[i].fd);
	}
	s->nprocs = 0;
}
