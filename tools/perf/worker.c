/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.c - a process that obeys a coordinator: it loads the fabric, makes comms, runs patterns
 * and answers, one message at a time.
 *
 * A coordinator on another host has proved that it knows the listener's key (key.h).  Its numbers
 * are bounded all the same before they are used.  Which plugin to load and which device to take is
 * decided in this process alone (fabric_env).
 */
#include "tools/perf/worker.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/base/param.h"
#include "tools/perf/ctl.h"
#include "tools/perf/pump.h"
#include "tools/perf/stat.h"

enum { HELLO_MS = 5000, ASK_MS = 600000 };
enum { LINK_MORE_S = 5 };		/* seconds beyond the plugin's own time limit */
enum { LOOK_NS = 100000000 };		/* look so often whether the coordinator is there */

struct worker {
	int fd;
	int rank, nprocs;
	struct fabric_env env;
	struct fabric *fab[FABRIC_KINDS];
	struct perf_ends ends[FABRIC_KINDS];
	struct perf_arena arena;
	void *listen;			/* of the comm being made */
	bool listened[FABRIC_KINDS];
	bool probed;			/* a way may be missing here: no error of the session */
	bool failed;			/* a request has */
	char dev[FABRIC_NAME];		/* the plugin's device, which raw TCP uses too */
};

/* -- answers ------------------------------------------------------------------------------ */

static int answer(struct worker *w, struct perf_ctl *m)
{
	m->status = 0;
	return perf_ctl_send(w->fd, m);
}

static int refuse(struct worker *w, struct perf_ctl *m, int err, const char *text)
{
	char copy[PERF_TEXT];

	snprintf(copy, sizeof(copy), "%s", text);
	if (w->env.verbose)		/* the coordinator prints the text of one rank only */
		fprintf(stderr, "rank %d: %s\n", w->rank, copy);
	if (!w->failed)			/* the first is the cause of others */
		perf_session_why(copy);
	w->failed = true;
	memcpy(m->text, copy, sizeof(copy));
	m->status = err;
	return perf_ctl_send(w->fd, m);
}

static uint32_t entries(const char *dir)
{
	DIR *d = opendir(dir);
	uint32_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* -- fabrics and comms -------------------------------------------------------------------- */

/* The coordinator's text goes no further: only a known name and a small number do. */
static int apply_way(const struct perf_way *way)
{
	static const char *const names[] = { "tcp", "verbs", "smc", "ucx" };
	char lanes[16];
	unsigned i;

	if (way->transport[0] == 0)
		return 0;
	for (i = 0; strncmp(way->transport, names[i], sizeof(way->transport)) != 0;)
		if (++i == sizeof(names) / sizeof(names[0]))
			return -EINVAL;
	if (way->lanes > 16)
		return -EINVAL;
	snprintf(lanes, sizeof(lanes), "%u", way->lanes);
	if (setenv("BRAID_TRANSPORTS", names[i], 1) != 0 ||
	    (way->lanes && setenv("BRAID_LANES", lanes, 1) != 0))
		return -errno;
	return 0;
}

static int on_load(struct worker *w, struct perf_ctl *m)
{
	const struct fabric_ops *ops = w->env.fabrics[m->fabric];
	struct fabric_env env = w->env;
	char err[FABRIC_ERR] = "";
	int rc;

	if (!ops || w->fab[m->fabric])
		return refuse(w, m, -EINVAL, "that fabric can't be loaded here");
	w->probed |= m->way.transport[0] != 0;
	if (apply_way(&m->way) != 0)
		return refuse(w, m, -EINVAL, "there is no such transport");
	if (m->fabric == FABRIC_RAW && w->dev[0])
		env.dev = w->dev;
	rc = ops->open(&env, &w->fab[m->fabric], err);
	if (rc)
		return refuse(w, m, rc, err[0] ? err : strerror(-rc));
	w->ends[m->fabric].fab = w->fab[m->fabric];
	m->about = w->fab[m->fabric]->about;
	if (m->fabric == FABRIC_PLUGIN)
		snprintf(w->dev, sizeof(w->dev), "%s", m->about.dev);
	return answer(w, m);
}

static int on_listen(struct worker *w, struct perf_ctl *m)
{
	struct fabric *fab = w->fab[m->fabric];
	int rc;

	if (w->listen)
		return refuse(w, m, -EBUSY, "a listen is under way");
	memset(m->handle, 0, sizeof(m->handle));
	w->listened[m->fabric] = true;
	rc = fab->ops->listen(fab, m->handle, &w->listen);
	return rc ? refuse(w, m, rc, fab->err) : answer(w, m);
}

/* Make room in the table, and register the arena, as NCCL does before the first message. */
static int end_add(struct worker *w, uint32_t kind, struct perf_end *e)
{
	struct perf_ends *t = &w->ends[kind];
	struct perf_end *v;
	int rc;

	if (t->n == t->room) {
		v = realloc(t->v, (size_t)(t->room + 16) * sizeof(*v));
		if (!v)
			return -ENOMEM;
		t->v = v;
		t->room += 16;
	}
	if (w->arena.size) {
		rc = t->fab->ops->reg(t->fab, e->comm, w->arena.base, w->arena.size, &e->mr);
		if (rc)
			return rc;
	}
	t->v[t->n++] = *e;
	return 0;
}

static bool end_there(const struct perf_ends *t, int peer, int idx, bool is_send)
{
	int i;

	for (i = 0; i < t->n; i++)
		if (t->v[i].peer == peer && t->v[i].idx == idx && t->v[i].is_send == is_send)
			return true;
	return false;
}

static int step(struct fabric *fab, struct perf_end *e, void *handle, void *listen)
{
	return e->is_send ? fab->ops->connect(fab, e->peer, e->idx, handle, &e->comm) :
			    fab->ops->accept(fab, e->peer, e->idx, listen, &e->comm);
}

unsigned perf_connect_s(void)
{
	const char *text = getenv("BRAID_CONNECT_TIMEOUT");
	struct braid_params p = braid_param;

	if (text)
		braid_param_set(&p, "connect_timeout", text);
	return (unsigned)p.connect_timeout;
}

/* Call again until the comm is up, as NCCL's service thread does, but not for ever. */
static int link_make(struct worker *w, struct fabric *fab, struct perf_end *e, void *handle)
{
	unsigned limit_s = perf_connect_s() + LINK_MORE_S;
	uint64_t now = perf_now_ns(), end_ns = now + (uint64_t)limit_s * 1000000000;
	uint64_t look_ns = now + LOOK_NS;
	const char *what = e->is_send ? "connect to" : "accept from";
	int rc;

	while (!e->comm) {
		rc = step(fab, e, handle, w->listen);
		if (rc)
			return rc;
		if (e->comm)
			break;
		now = perf_now_ns();
		if (now > end_ns) {
			snprintf(fab->err, sizeof(fab->err),
				 "%s rank %d, comm %d: not there after %u s", what, e->peer,
				 e->idx, limit_s);
			return -ETIMEDOUT;
		}
		sched_yield();
		if (now < look_ns)
			continue;
		look_ns = now + LOOK_NS;
		if (perf_ctl_ended(w->fd)) {
			snprintf(fab->err, sizeof(fab->err),
				 "%s rank %d, comm %d: the --connect end left meanwhile", what,
				 e->peer, e->idx);
			return -EPIPE;
		}
	}
	return 0;
}

/* As a rank of NCCL's does, listen before connecting.  A failure shows where somebody accepts. */
static void listen_once(struct worker *w, uint32_t kind)
{
	uint8_t handle[FABRIC_HANDLE] __attribute__((aligned(16))) = { 0 };
	struct fabric *fab = w->fab[kind];
	void *listen = NULL;

	if (!w->listened[kind] && !fab->ops->listen(fab, handle, &listen) && listen)
		fab->ops->close_listen(fab, listen);
	w->listened[kind] = true;
}

static int on_link(struct worker *w, struct perf_ctl *m)
{
	struct fabric *fab = w->fab[m->fabric];
	struct perf_end e = {
		.peer = m->peer, .idx = m->idx, .is_send = m->type == PERF_CTL_CONNECT};
	uint8_t handle[FABRIC_HANDLE] __attribute__((aligned(16)));
	uint64_t start;
	int rc;

	if (m->peer < 0 || m->peer >= w->nprocs || m->idx < 0 || m->idx >= PERF_COMMS_MAX ||
	    end_there(&w->ends[m->fabric], m->peer, m->idx, e.is_send) ||
	    (!e.is_send && !w->listen))
		return refuse(w, m, -EINVAL, "no such comm");
	if (e.is_send)
		listen_once(w, m->fabric);
	memcpy(handle, m->handle, sizeof(handle));
	start = perf_now_ns();
	rc = link_make(w, fab, &e, handle);
	m->ns = perf_now_ns() - start;
	if (!e.is_send) {
		fab->ops->close_listen(fab, w->listen);
		w->listen = NULL;
	}
	if (!rc)
		rc = end_add(w, m->fabric, &e);
	m->fds = entries("/proc/self/fd");
	m->threads = entries("/proc/self/task");
	return rc ? refuse(w, m, rc, fab->err) : answer(w, m);
}

/* deregMr before close, as NCCL does. */
static void ends_close(struct worker *w, uint32_t kind)
{
	struct perf_ends *t = &w->ends[kind];
	struct fabric *fab = t->fab;
	struct perf_end *e;

	for (e = t->v; e < t->v + t->n; e++) {
		if (e->mr)
			fab->ops->dereg(fab, e->comm, e->mr);
		if (e->is_send)
			fab->ops->close_send(fab, e->comm);
		else
			fab->ops->close_recv(fab, e->comm);
	}
	t->n = 0;
}

static int on_close(struct worker *w, struct perf_ctl *m)
{
	uint64_t start = perf_now_ns();

	ends_close(w, m->fabric);
	m->ns = perf_now_ns() - start;
	return answer(w, m);
}

/* -- memory ------------------------------------------------------------------------------- */

static int arena_reg(struct worker *w, struct perf_ends *t)
{
	struct perf_end *e;
	int rc;

	for (e = t->v; e < t->v + t->n; e++) {
		if (e->mr)
			t->fab->ops->dereg(t->fab, e->comm, e->mr);
		e->mr = NULL;
		rc = t->fab->ops->reg(t->fab, e->comm, w->arena.base, w->arena.size, &e->mr);
		if (rc)
			return rc;
	}
	return 0;
}

/*
 * Every page is written once, so that none is missing when the clock runs.  Huge pages, where the
 * kernel has them: else 64 messages of 512 KiB measure how a virtual machine walks page tables.
 */
static int arena_new(struct worker *w, uint64_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	madvise(p, bytes, MADV_HUGEPAGE);
	w->arena.base = p;
	w->arena.size = bytes;
	memset(p, 0, bytes);
	return 0;
}

static int on_arena(struct worker *w, struct perf_ctl *m)
{
	struct perf_arena old = w->arena;
	uint64_t bytes = (m->bytes + 4095) & ~UINT64_C(4095);
	unsigned kind;
	int rc;

	if (m->bytes == 0 || m->bytes > PERF_ARENA_MAX)
		return refuse(w, m, -E2BIG, "more memory than a worker may take");
	if (bytes > old.size) {
		if (!perf_room(old.size + bytes))
			return refuse(w, m, -E2BIG, "more memory than this listener may take");
		rc = arena_new(w, bytes);
		if (rc)
			return refuse(w, m, rc, "no memory for the messages");
		for (kind = 0; kind < FABRIC_KINDS; kind++) {
			rc = arena_reg(w, &w->ends[kind]);
			if (rc)
				return refuse(w, m, rc, w->fab[kind]->err);
		}
		if (old.base)
			munmap(old.base, old.size);
		perf_room(bytes);
	}
	return answer(w, m);
}

/* -- running ------------------------------------------------------------------------------ */

static bool run_is_sane(const struct worker *w, const struct perf_run *r)
{
	return r->fabric < FABRIC_KINDS && w->fab[r->fabric] && r->pattern < PERF_PATTERNS &&
	       r->comms >= 1 && r->comms <= PERF_COMMS_MAX && r->threads >= 1 &&
	       r->threads <= PERF_THREADS_MAX && r->inflight >= 1 &&
	       r->inflight <= PERF_INFLIGHT_MAX && r->size <= PERF_SIZE_MAX && r->stall_s >= 0.1 &&
	       r->stall_s <= 3600 && perf_arena_bytes(r, w->nprocs) <= w->arena.size;
}

static int ready_go(void *arg)
{
	struct worker *w = arg;
	struct perf_ctl m = { .type = PERF_CTL_READY };
	int rc = answer(w, &m);

	if (!rc)
		rc = perf_ctl_recv(w->fd, &m, ASK_MS);
	if (rc || m.type == PERF_CTL_GO)
		return rc;
	return m.type == PERF_CTL_QUIT ? -ESHUTDOWN : -EPROTO;
}

static int on_run(struct worker *w, struct perf_ctl *m)
{
	struct perf_run run = m->run;
	struct perf_result res;
	char err[PERF_TEXT] = "";
	int rc;

	if (!run_is_sane(w, &run))
		return refuse(w, m, -EINVAL, "a run that makes no sense here");
	rc = perf_pattern_run(&run, w->rank, w->nprocs, &w->ends[run.fabric], &w->arena, w->fd,
			      ready_go, w, &res, err);
	if (rc && !err[0])
		return rc;		/* the coordinator is gone, or wants no more */
	if (rc)
		return refuse(w, m, rc, err);
	m->result = res;
	return answer(w, m);
}

/* -- the worker's life -------------------------------------------------------------------- */

static int on_hello(struct worker *w, struct perf_ctl *m)
{
	struct utsname u;

	if (m->nprocs < 2 || m->nprocs > PERF_PROCS_MAX || m->rank < 0 || m->rank >= m->nprocs)
		return refuse(w, m, -EINVAL, "a rank that can't be");
	w->rank = m->rank;
	w->nprocs = m->nprocs;
	m->idx = (int32_t)getpid();
	memset(m->text, 0, sizeof(m->text));
	gethostname(m->text, PERF_HOST);
	if (uname(&u) == 0)
		snprintf(m->text + PERF_HOST, PERF_HOST, "%.60s", u.release);
	return answer(w, m);
}

static int on_quit(struct worker *w, struct perf_ctl *m)
{
	(void)w, (void)m;
	return -ESHUTDOWN;
}

static int obey(struct worker *w, struct perf_ctl *m)
{
	static const struct {
		int (*fn)(struct worker *w, struct perf_ctl *m);
		bool fabric;		/* it must be loaded */
	} rows[] = {
		[PERF_CTL_HELLO] = { on_hello, false },	  [PERF_CTL_LOAD] = { on_load, false },
		[PERF_CTL_LISTEN] = { on_listen, true },  [PERF_CTL_CONNECT] = { on_link, true },
		[PERF_CTL_ACCEPT] = { on_link, true },	  [PERF_CTL_ARENA] = { on_arena, false },
		[PERF_CTL_RUN] = { on_run, false },	  [PERF_CTL_CLOSE] = { on_close, true },
		[PERF_CTL_QUIT] = { on_quit, false },
	};

	if (m->type >= sizeof(rows) / sizeof(rows[0]) || !rows[m->type].fn ||
	    m->fabric >= FABRIC_KINDS || (rows[m->type].fabric && !w->fab[m->fabric]) ||
	    (w->nprocs == 0 && m->type != PERF_CTL_HELLO))
		return -EPROTO;
	return rows[m->type].fn(w, m);
}

static void worker_fini(struct worker *w)
{
	unsigned kind;

	for (kind = 0; kind < FABRIC_KINDS; kind++) {
		if (!w->fab[kind])
			continue;
		ends_close(w, kind);
		if (w->listen)
			w->fab[kind]->ops->close_listen(w->fab[kind], w->listen);
		w->listen = NULL;
		w->fab[kind]->ops->close(w->fab[kind]);
		free(w->ends[kind].v);
	}
	if (w->arena.base)
		munmap(w->arena.base, w->arena.size);
}

int perf_worker_main(int fd, const struct fabric_env *env)
{
	struct worker w = { .fd = fd, .env = *env };
	struct perf_ctl m;
	int rc;

	signal(SIGPIPE, SIG_IGN);	/* a peer that has gone is an error code, as in Python */
	perf_cpu_pin(env->cpu);
	pump_spin(env->spin);
	do {
		rc = perf_ctl_recv(fd, &m, w.nprocs ? ASK_MS : HELLO_MS);
		if (!rc)
			rc = obey(&w, &m);
	} while (!rc);
	worker_fini(&w);
	return w.probed || (rc == -ESHUTDOWN && !w.failed) ? 0 : 1;
}
