/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far.c - the other end of a check: a servant that does call by call what it is told, here or on
 * another host, and what a check tells it.
 *
 * The servant is a loop: take an order if there is one, else move what is under way.  An order
 * that takes longer is answered when it is done; meanwhile no other is taken.  Who gives orders
 * from another host has proved that it knows the listener's key; what they ask for is bounded, and
 * what to load is its own host's business.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/perf/ctl.h"
#include "tools/perf/pattern.h"
#include "tools/perf/worker.h"
#include "tools/tcp.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

enum { SLOWEST = 32000 };		/* bytes in a millisecond, looked at as well */
enum { JOBS_MAX = 64, COMMS_MAX = 4096, ANSWER_MS = 15000, DIAL_MS = 5000, WAIT_MS = 8000 };
#define FAR_SIZE_MAX (UINT64_C(5) << 30)

static const uint32_t MAGIC = 0xb5000000u | (uint32_t)VALIDATE_VERSION << 16 | sizeof(struct order);

/* -- the plugin --------------------------------------------------------------------------- */

static char transport[32];

const char *net_transport(void)
{
	return transport;
}

/* "braid: device 0: eth0 10.0.0.1, 25000 Mbit/s (assumed), verbs, tcp" */
static void hear(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
static void hear(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char unit[] = " Mbit/s";
	char text[1024], head[40];
	const char *at;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	net_log(level, flags, file, line, "%s", text);
	snprintf(head, sizeof(head), "device %d: ", the_device());
	at = strstr(text, head) ? strstr(text, unit) : NULL;
	at = at ? strchr(at, ',') : NULL;
	if (at) {
		at += strspn(at, ", ");
		snprintf(transport, sizeof(transport), "%.*s", (int)strcspn(at, ","), at);
	}
}

/* A device by number or by name; 0 where none is asked for. */
static int device(struct net *net, const char *want, int n)
{
	struct braid_net_props props;
	char *end;
	long i = want ? strtol(want, &end, 10) : 0;

	if (!want || (*want && !*end && i >= 0 && i < n))
		return (int)i;
	for (i = 0; i < n; i++)
		if (net_props(net, (int)i, &props) == ncclSuccess && props.name &&
		    strcmp(props.name, want) == 0)
			return (int)i;
	FAIL("no device '%s' among its %d", want, n);
}

void net_up(struct validate *v)
{
	struct braid_net_props props;
	const char *dev = v->w->dev;
	char err[512];

	step(v, "loading the plugin");
	v->net = net_load(v->w->plugin, v->abi, err, sizeof(err));
	if (!v->net)
		FAIL("%s", err);
	v->abi = v->net->abi;
	if (dev && *dev >= '0' && *dev <= '9')
		on_device(atoi(dev));
	step(v, "init");
	OK(net_init(v->net, (uint64_t)getpid(), NCCL_NET_TRAFFIC_CLASS_UNDEF, hear, NULL));
	OK(net_devices(v->net, &v->ndev));
	if (v->ndev < 1)
		FAIL("it has no device%s%s", *net_last_warn() ? ": " : "", net_last_warn());
	v->dev = device(v->net, dev, v->ndev);
	on_device(v->dev);
	memset(&props, 0, sizeof(props));
	OK(net_props(v->net, v->dev, &props));
	snprintf(v->nic, sizeof(v->nic), "%s", props.name ? props.name : "?");
}

bool is_braid(const struct validate *v)
{
	return strcmp(v->net->name, "Braid") == 0;
}

void needs_braid(struct validate *v)
{
	if (!is_braid(v))
		skip(v, "it is about what Braid alone has, and this is %s", v->net->name);
}

void needs_abi(struct validate *v, int abi)
{
	if (v->abi < abi)
		skip(v, "it is about version %d of the interface, and this is %d", abi, v->abi);
}

/* -- the servant -------------------------------------------------------------------------- */

struct servant {
	struct validate v;
	int fd;
	struct order now;		/* to be answered */
	bool busy;
	uint64_t until;			/* ... or given up */
	uint64_t hold;			/* until then nothing is moved */
	void *listens[COMMS_MAX], *comms[COMMS_MAX];
	bool sends[COMMS_MAX];
	int n_listens, n_comms;
	void *fresh;			/* being connected or accepted */
	struct job jobs[JOBS_MAX];
	int n_jobs;
	uint64_t bytes;			/* of their buffers */
};

static int order_move(int fd, struct order *o, bool out, int ms)
{
	o->magic = out ? MAGIC : 0;
	return perf_ctl_move(fd, (char *)o, sizeof(*o), out, ms);
}

static void answer(struct servant *s)
{
	s->busy = false;
	if (order_move(s->fd, &s->now, true, ANSWER_MS) != 0)
		_exit(1);
}

static struct servant *servant;		/* of this process */

static void servant_failed(const char *file, int line, const char *text)
{
	(void)file, (void)line;
	servant->now.status = -1;
	snprintf(servant->now.text, sizeof(servant->now.text), "%s%s%.150s", text,
		 *net_last_warn() ? "; its last warning: " : "", net_last_warn());
	answer(servant);
}

static void refuse(struct servant *s, const char *why)
{
	(void)s;
	FAIL("%s", why);
}

static void on_hello(struct servant *s)
{
	if (s->v.net)
		refuse(s, "a second hello");
	if (s->now.flags & FAR_TCP)
		setenv("BRAID_TRANSPORTS", "tcp", 1);
	s->v.abi = s->now.abi;
	net_up(&s->v);
	snprintf(s->now.text, sizeof(s->now.text), "%s", s->v.net->name);
	answer(s);
}

static void on_listen(struct servant *s)
{
	if (s->n_listens == COMMS_MAX)
		refuse(s, "too many listens");
	memset(s->now.handle, 0, sizeof(s->now.handle));
	OK(net_listen(s->v.net, s->v.dev, s->now.handle, &s->listens[s->n_listens]));
	s->now.comm = s->n_listens++;
	answer(s);
}

static void on_touch(struct servant *s)
{
	void *half = NULL;

	OK(net_connect(s->v.net, s->v.dev, s->now.handle, &half));
	if (half)
		OK(net_close_send(s->v.net, half));
	answer(s);
}

static void on_post(struct servant *s)
{
	const struct order *o = &s->now;
	struct msg m[RECVS_MAX];
	uint64_t bytes = s->bytes;

	if (s->n_jobs == JOBS_MAX || o->n < 1 || o->n > RECVS_MAX || o->comm < 0 ||
	    o->comm >= s->n_comms || !s->comms[o->comm])
		refuse(s, "messages that can't be");
	for (int i = 0; i < o->n; i++) {
		m[i] = (struct msg){ o->size[i], o->room[i], o->tag[i], o->skew[i], o->seed[i] };
		if (m[i].size > FAR_SIZE_MAX || m[i].room > FAR_SIZE_MAX || m[i].skew > 4096)
			refuse(s, "messages that can't be");
		bytes += m[i].size > m[i].room ? m[i].size : m[i].room;
	}
	if (!perf_room(bytes))
		refuse(s, "more memory than this listener may take");
	s->bytes = bytes;
	job_begin(&s->v, &s->jobs[s->n_jobs], s->comms[o->comm], !s->sends[o->comm], m, o->n);
	s->jobs[s->n_jobs].op.no_sizes = o->flags & MOVE_NO_SIZES;
	s->jobs[s->n_jobs].op.optional = o->flags & MOVE_OPTIONAL;
	s->jobs[s->n_jobs].flush = o->flags & MOVE_FLUSH ? 1 : 0;
	s->n_jobs++;
	answer(s);
}

static void on_close(struct servant *s)
{
	int i = s->now.comm;

	if (i < 0 || i >= s->n_comms || !s->comms[i])
		refuse(s, "no such comm");
	OK(s->sends[i] ? net_close_send(s->v.net, s->comms[i]) :
			 net_close_recv(s->v.net, s->comms[i]));
	s->comms[i] = NULL;
	answer(s);
}

static void on_hold(struct servant *s)
{
	s->hold = now_us() + (s->now.ms > 60000 ? 60000 : s->now.ms) * 1000;
	answer(s);
}

/* Stopped, all its threads, and woken by another process, that no one has to wait for. */
static void on_freeze(struct servant *s)
{
	unsigned ms = s->now.ms > 60000 ? 60000 : (unsigned)s->now.ms;
	pid_t me = getpid();

	answer(s);
	if (fork() == 0) {
		nap_ms(ms);
		kill(me, SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
}

static void on_die(struct servant *s)
{
	(void)s;
	raise(SIGKILL);
}

static void on_count(struct servant *s)
{
	struct counts c = counts_now();

	s->now.fds = c.fds;
	s->now.threads = c.threads;
	answer(s);
}

static void on_quit(struct servant *s)
{
	answer(s);
	_exit(0);
}

/* What takes longer: begun here, gone on with by slow(). */
static void on_slow(struct servant *s)
{
	s->until = deadline_ms(s->now.ms ? (unsigned)s->now.ms : WAIT_MS);
	if (s->now.what == FAR_ACCEPT && (s->now.comm < 0 || s->now.comm >= s->n_listens))
		refuse(s, "no such listen");
	if (s->now.what != FAR_WAIT && s->n_comms == COMMS_MAX)
		refuse(s, "too many comms");
}

static void comm_there(struct servant *s, bool sends)
{
	if (!sends) {
		OK(net_close_listen(s->v.net, s->listens[s->now.comm]));
		s->listens[s->now.comm] = NULL;
	}
	s->now.comm = s->n_comms;
	s->sends[s->n_comms] = sends;
	s->comms[s->n_comms++] = s->fresh;
	s->fresh = NULL;
	answer(s);
}

static void jobs_there(struct servant *s)
{
	*s->now.text = '\0';
	for (int i = 0; i < s->n_jobs; i++) {
		if (!*s->now.text)
			snprintf(s->now.text, sizeof(s->now.text), "%s", s->jobs[i].bad);
		job_end(&s->v, &s->jobs[i]);
	}
	s->n_jobs = 0;
	s->bytes = 0;
	perf_room(0);
	answer(s);
}

static void slow(struct servant *s)
{
	static const char *const what[] = { [FAR_ACCEPT] = "accept", [FAR_CONNECT] = "connect" };
	bool late = now_us() > s->until;

	switch (s->now.what) {
	case FAR_ACCEPT:
		if (accept_step(s->v.net, s->listens[s->now.comm], &s->fresh))
			comm_there(s, false);
		break;
	case FAR_CONNECT:
		if (connect_step(s->v.net, s->now.handle, &s->fresh))
			comm_there(s, true);
		break;
	default:
		if (jobs_step(s->jobs, (size_t)s->n_jobs))
			jobs_there(s);
		for (int i = 0; s->busy && late && i < s->n_jobs; i++)
			if (!s->jobs[i].over)
				FAIL("a %s of %zu bytes, tag %d, is not over after %u s",
				     s->jobs[i].op.is_recv ? "receive" : "send",
				     s->jobs[i].msg[0].size, s->jobs[i].op.tag[0],
				     (unsigned)s->now.ms / 1000);
	}
	if (s->busy && late)
		FAIL("%s: not there after %d s", what[s->now.what], WAIT_MS / 1000);
}

static void obey(struct servant *s)
{
	static void (*const rows[])(struct servant *s) = {
		[FAR_HELLO] = on_hello, [FAR_LISTEN] = on_listen, [FAR_ACCEPT] = on_slow,
		[FAR_CONNECT] = on_slow, [FAR_TOUCH] = on_touch, [FAR_POST] = on_post,
		[FAR_WAIT] = on_slow, [FAR_CLOSE] = on_close, [FAR_HOLD] = on_hold,
		[FAR_FREEZE] = on_freeze, [FAR_DIE] = on_die, [FAR_COUNT] = on_count,
		[FAR_QUIT] = on_quit,
	};

	if (order_move(s->fd, &s->now, false, ANSWER_MS) != 0 || s->now.magic != MAGIC)
		_exit(0);
	s->busy = true;
	s->now.status = 0;
	if (s->now.what >= sizeof(rows) / sizeof(rows[0]) || !rows[s->now.what] ||
	    (!s->v.net && s->now.what != FAR_HELLO && s->now.what != FAR_QUIT))
		refuse(s, "an order that is not known");
	rows[s->now.what](s);
}

static _Noreturn void serve(int fd, const struct wishes *w)
{
	struct servant *s = calloc(1, sizeof(*s));
	struct pollfd p = { .fd = fd, .events = POLLIN };
	bool idle = true;

	if (!s)
		_exit(1);
	servant = s;
	drive_set(servant_failed, 1);
	s->fd = fd;
	s->v.w = w;
	s->v.out = -1;
	for (;;) {
		if (!s->busy && poll(&p, 1, idle ? -1 : 0) > 0)
			obey(s);
		if (now_us() < s->hold) {
			nap_ms(1);
			continue;
		}
		if (s->busy)
			slow(s);
		else if (s->n_jobs)
			jobs_step(s->jobs, (size_t)s->n_jobs);
		idle = !s->busy && !s->n_jobs;
		if (!idle)
			sched_yield();
	}
}

int validate_worker(int fd, const struct fabric_env *env)
{
	struct wishes w = { .plugin = env->plugin, .dev = env->dev };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint32_t magic = 0;

	if (poll(&p, 1, DIAL_MS) != 1 || recv(fd, &magic, sizeof(magic), MSG_PEEK) != sizeof(magic))
		return 0;
	if (magic != MAGIC)
		return perf_worker_main(fd, env);
	serve(fd, &w);
}

/* -- what a check tells it ---------------------------------------------------------------- */

static bool gone_is_fine;

void far_gone_is_fine(bool fine)
{
	gone_is_fine = fine;
}

static _Noreturn void gone(struct validate *v)
{
	if (v->far_pid)
		FAIL("the other process has ended");
	FAIL("the peer %s has gone", v->w->connect);
}

void far_send(struct validate *v, struct order *o)
{
	if (order_move(v->far, o, true, ANSWER_MS) != 0 && !gone_is_fine)
		gone(v);
}

bool far_answer(struct validate *v, struct order *ret, int ms)
{
	struct pollfd p = { .fd = v->far, .events = POLLIN };

	if (poll(&p, 1, ms) != 1)
		return false;
	if (order_move(v->far, ret, false, ANSWER_MS) != 0) {
		if (gone_is_fine)
			return true;
		gone(v);
	}
	text_clean(ret->text, sizeof(ret->text), "");
	if (ret->magic != MAGIC)
		FAIL("the peer is of another version");
	if (ret->status)
		FAIL("the other end: %.390s", ret->text);
	return true;
}

void far_ask(struct validate *v, struct order *o)
{
	far_send(v, o);
	if (!far_answer(v, o, ANSWER_MS))
		FAIL("the other end has not answered for %d s", ANSWER_MS / 1000);
}

void far_ask_stepping(struct validate *v, struct order *o, bool (*ours)(void *), void *arg)
{
	unsigned ms = o->ms ? (unsigned)o->ms : WAIT_MS;
	uint64_t end = deadline_ms(ms);
	bool done = false, answered = false;

	far_send(v, o);
	while (!done || !answered) {
		if (!done)
			done = ours(arg);
		if (!answered)
			answered = far_answer(v, o, done ? 10 : 0);
		if (now_us() > end)
			FAIL("%s end is not done after %u s%s%.200s", done ? "the other" : "this",
			     ms / 1000, *net_last_warn() ? ": " : "", net_last_warn());
		if (!done)
			sched_yield();
	}
}

static void far_start(struct validate *v)
{
	union tcp_addr a;
	char err[400];
	int fds[2], rc;

	if (v->w->connect) {
		if (tcp_addr_parse(v->w->connect, true, &a, err, sizeof(err)) != 0)
			FAIL("%s", err);
		v->far = tcp_dial(&a, DIAL_MS);
		if (v->far < 0)
			FAIL("connect to %s: %s", v->w->connect, strerror(-v->far));
		rc = perf_prove(v->far, &v->w->key, DIAL_MS);
		if (rc)
			FAIL("the listener at %s: %s", v->w->connect, perf_prove_why(rc));
		return;
	}
	TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	v->far_pid = fork();
	TRUE(v->far_pid >= 0);
	if (v->far_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		close(v->out);
		serve(fds[1], v->w);
	}
	close(fds[1]);
	v->far = fds[0];
}

void both_up_as(struct validate *v, unsigned flags)
{
	struct order o = { .what = FAR_HELLO, .abi = v->abi, .flags = flags };

	far_start(v);
	step(v, "the other end's init");
	far_ask(v, &o);
	net_up(v);
}

void both_up(struct validate *v)
{
	both_up_as(v, 0);
}

/* -- comms -------------------------------------------------------------------------------- */

struct ours {
	struct validate *v;
	struct order order;
	void *listen;
	struct way *way;
};

static bool ours_step(void *arg)
{
	struct ours *o = arg;

	return o->way->out ? connect_step(o->v->net, o->order.handle, &o->way->comm) :
			     accept_step(o->v->net, o->listen, &o->way->comm);
}

struct way way_open(struct validate *v, bool out)
{
	struct way way = { .out = out };
	struct ours o = { .v = v, .way = &way };
	struct order ask = { .what = out ? FAR_LISTEN : FAR_CONNECT };

	step(v, out ? "connecting to the other end" : "the other end connects");
	if (out) {
		far_ask(v, &ask);
		o.order = ask;
		ask.what = FAR_ACCEPT;
	} else {
		OK(net_listen(v->net, v->dev, ask.handle, &o.listen));
	}
	far_ask_stepping(v, &ask, ours_step, &o);
	way.far = ask.comm;
	if (!out)
		OK(net_close_listen(v->net, o.listen));
	return way;
}

void way_close(struct validate *v, struct way *way)
{
	struct order o = { .what = FAR_CLOSE, .comm = way->far };

	step(v, "closing");
	OK(way->out ? net_close_send(v->net, way->comm) : net_close_recv(v->net, way->comm));
	far_ask(v, &o);
	way->comm = NULL;
}

/* -- messages ----------------------------------------------------------------------------- */

static void far_post(struct validate *v, const struct way *way, const struct msg *m, int n,
		     unsigned how)
{
	struct order o = { .what = FAR_POST, .comm = way->far, .n = n, .flags = how };

	for (int i = 0; i < n; i++) {
		o.size[i] = m[i].size;
		o.room[i] = m[i].room;
		o.tag[i] = m[i].tag;
		o.skew[i] = m[i].skew;
		o.seed[i] = m[i].seed;
	}
	far_ask(v, &o);
}

struct jobs {
	struct job v[REQS_MAX];
	size_t n;
	bool moving;
};

static bool jobs_go(void *arg)
{
	struct jobs *j = arg;

	return jobs_step(j->v, j->n);
}

/* All of one end: its receives by groups, its sends one by one. */
static void post_end(struct validate *v, struct jobs *ours, const struct way *way, bool here,
		     const struct msg *m, int n, int group, unsigned how)
{
	bool is_recv = here != way->out;

	for (int i = 0; i < n; i += group) {
		int k = n - i < group ? n - i : group;

		if (!here) {
			far_post(v, way, m + i, k, how);
			continue;
		}
		job_begin(v, &ours->v[ours->n], way->comm, is_recv, m + i, k);
		ours->v[ours->n].op.no_sizes = how & MOVE_NO_SIZES;
		ours->v[ours->n].op.optional = is_recv && how & MOVE_OPTIONAL;
		ours->v[ours->n].flush = is_recv && how & MOVE_FLUSH ? 1 : 0;
		ours->n++;
	}
}

static void jobs_for(struct jobs *ours, unsigned ms)
{
	uint64_t end = now_us() + ms * 1000ull;

	while (now_us() < end) {
		jobs_step(ours->v, ours->n);
		sched_yield();
	}
}

const char *move(struct validate *v, struct way *way, const struct msg *m, int n, int group,
		 const unsigned *order, unsigned how)
{
	struct order wait = { .what = FAR_WAIT };
	struct msg sent[REQS_MAX], got[REQS_MAX];
	static struct jobs ours;
	static char bad[256];

	TRUE(n >= 1 && n <= REQS_MAX && group >= 1 && group <= RECVS_MAX);
	wait.ms = WAIT_MS;
	for (int i = 0; i < n; i++) {
		sent[i] = m[i];
		wait.ms += m[i].size / SLOWEST;
		if (!sent[i].seed)
			sent[i].seed = chance(v, UINT64_MAX) | 1;
	}
	for (int i = 0; i < n; i++)
		got[i] = sent[order ? order[i] : (unsigned)i];
	step(v, "%d messages of %zu bytes and the like, %s", n, m[0].size,
	     way->out ? "to the other end" : "from the other end");
	ours.n = 0;
	if (!way->out)				/* what is sent there begins at once */
		post_end(v, &ours, way, true, got, n, group, how);
	if (how & MOVE_SEND_FIRST && way->out) {
		post_end(v, &ours, way, true, sent, n, 1, how & ~(unsigned)MOVE_OPTIONAL);
		jobs_for(&ours, 20);
	}
	if (!(how & MOVE_SEND_FIRST) && !way->out)
		jobs_for(&ours, 1);
	post_end(v, &ours, way, false, way->out ? got : sent, n, way->out ? group : 1,
		 way->out ? how : how & ~(unsigned)(MOVE_OPTIONAL | MOVE_FLUSH));
	if (!(how & MOVE_SEND_FIRST) && way->out)
		post_end(v, &ours, way, true, sent, n, 1, how & ~(unsigned)MOVE_OPTIONAL);
	if (how & MOVE_SEND_FIRST && !way->out)
		nap_ms(20);
	far_ask_stepping(v, &wait, jobs_go, &ours);
	snprintf(bad, sizeof(bad), "%.250s", wait.text);
	for (size_t i = 0; i < ours.n; i++) {
		if (*ours.v[i].bad)
			snprintf(bad, sizeof(bad), "%s", ours.v[i].bad);
		job_end(v, &ours.v[i]);
	}
	if (*bad && (!(how & MOVE_ERROR_OK) || strncmp(bad, "a message", 9) == 0))
		FAIL("%s", bad);		/* wrong data is never fine */
	return bad;
}

void move_one(struct validate *v, size_t size)
{
	struct msg m = { .size = size };

	for (int out = 0; out < 2; out++) {
		struct way way = way_open(v, out);

		move(v, &way, &m, 1, 1, NULL, 0);
		way_close(v, &way);
	}
}

/* -- time and chance ---------------------------------------------------------------------- */

uint64_t chance(struct validate *v, uint64_t below)
{
	v->seed += 0x9e3779b97f4a7c15;
	return mix(v->seed) % below;
}

struct counts counts_now(void)
{
	return (struct counts){ count_fds(), count_threads() };
}

void not_grown(struct validate *v, struct counts a, struct counts b, int rounds)
{
	if (b.fds > a.fds + 4)
		FAIL("%u descriptors became %u in %d rounds", a.fds, b.fds, rounds);
	if (b.threads > a.threads + 4)
		FAIL("%u threads became %u in %d rounds", a.threads, b.threads, rounds);
	saw(v, "%d rounds: %u descriptors, %u threads", rounds, b.fds, b.threads);
}

static uint64_t clock_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* What this thread has waited for a CPU. */
static uint64_t queued_us(void)
{
	unsigned long long ran, queued = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "re");

	if (f && fscanf(f, "%llu %llu", &ran, &queued) != 2)
		queued = 0;
	if (f)
		fclose(f);
	return queued / 1000;
}

void watch_begin(struct watch *w)
{
	w->queued = queued_us();
	w->cpu = clock_us(CLOCK_THREAD_CPUTIME_ID);
	w->wall = clock_us(CLOCK_MONOTONIC);
}

double watch_blocked_us(const struct watch *w)
{
	double wall = (double)(clock_us(CLOCK_MONOTONIC) - w->wall);
	double cpu = (double)(clock_us(CLOCK_THREAD_CPUTIME_ID) - w->cpu);

	return wall < 1000 ? 0 : wall - cpu - (double)(queued_us() - w->queued);
}
