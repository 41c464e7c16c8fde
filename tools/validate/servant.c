/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * servant.c - the other end of a check: a process that does call by call what the check orders.
 *
 * The servant is a loop: take an order if there is one, else move messages.  An order
 * that takes longer is answered when it is done; meanwhile no other is taken.  A check on another
 * host has proved that it knows the listener's key; the sizes in its orders are bounded, and which
 * plugin to load is this host's business.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/perf/worker.h"
#include "tools/validate/far.h"

enum { JOBS_MAX = 64, COMMS_MAX = 4096, DIAL_MS = 5000 };
#define FAR_SIZE_MAX (UINT64_C(5) << 30)

struct servant {
	struct validate v;
	int fd;
	struct order now;		/* the order that is not answered yet */
	bool busy;
	uint64_t from, until;		/* when it came; when it is given up */
	uint64_t hold;			/* until then the servant moves nothing */
	void *listens[COMMS_MAX], *comms[COMMS_MAX];
	bool sends[COMMS_MAX];
	int n_listens, n_comms;
	void *fresh;			/* a comm being connected or accepted */
	struct job jobs[JOBS_MAX];
	int n_jobs;
	uint64_t bytes;			/* size of their buffers */
	struct stream stream;		/* of FAR_STREAM */
};

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
	servant->now.flags = drive_late ? FAR_LATE : 0;
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
	if (s->now.flags & FAR_IPV6)
		ipv6_only();
	drive_any_order(s->now.flags & FAR_ANY_ORDER);
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

/* Stop all threads of this process.  A child resumes it later, so the check need not. */
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

/* Begin an order that takes longer; slow() continues it. */
static void on_slow(struct servant *s)
{
	s->until = deadline_ms(s->now.ms ? (unsigned)s->now.ms : WAIT_MS);
	if (s->now.what == FAR_ACCEPT && (s->now.comm < 0 || s->now.comm >= s->n_listens))
		refuse(s, "no such listen");
	if (s->now.what != FAR_WAIT && s->n_comms == COMMS_MAX)
		refuse(s, "too many comms");
}

/* Receive message after message of a comm. */
static void on_stream(struct servant *s)
{
	int i = s->now.comm;

	if (i < 0 || i >= s->n_comms || !s->comms[i] || s->sends[i])
		refuse(s, "no such comm");
	if (!perf_room(STREAM_SLOTS * STREAM_SIZE))
		refuse(s, "more memory than this listener may take");
	s->until = deadline_ms((unsigned)s->now.ms);
	stream_begin(&s->v, &s->stream, s->comms[i], true, s->now.seed[0]);
}

static void stream_there(struct servant *s)
{
	snprintf(s->now.text, sizeof(s->now.text), "%s", s->stream.bad);
	if (!*s->now.text)
		stream_end(&s->stream);
	perf_room(0);
	answer(s);
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
	static const char *const what[] = { [FAR_ACCEPT] = "accept", [FAR_CONNECT] = "connect",
					    [FAR_STREAM] = "a stream's end" };
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
	case FAR_STREAM:
		if (stream_step(&s->stream))
			stream_there(s);
		break;
	default:
		if (jobs_step(s->jobs, (size_t)s->n_jobs))
			jobs_there(s);
		for (int i = 0; s->busy && late && i < s->n_jobs; i++)
			if (!s->jobs[i].over)
				LATE("a %s of %zu bytes, tag %d, is not over after %u s",
				     s->jobs[i].op.is_recv ? "receive" : "send",
				     s->jobs[i].msg[0].size, s->jobs[i].op.tag[0],
				     (unsigned)s->now.ms / 1000);
	}
	if (s->busy && late)
		LATE("%s: not there after %u s", what[s->now.what],
		     (unsigned)((now_us() - s->from) / 1000000));
}

static void obey(struct servant *s)
{
	static void (*const rows[])(struct servant *s) = {
		[FAR_HELLO] = on_hello, [FAR_LISTEN] = on_listen, [FAR_ACCEPT] = on_slow,
		[FAR_CONNECT] = on_slow, [FAR_TOUCH] = on_touch, [FAR_POST] = on_post,
		[FAR_WAIT] = on_slow, [FAR_CLOSE] = on_close, [FAR_HOLD] = on_hold,
		[FAR_FREEZE] = on_freeze, [FAR_DIE] = on_die, [FAR_COUNT] = on_count,
		[FAR_QUIT] = on_quit, [FAR_STREAM] = on_stream,
	};

	if (order_move(s->fd, &s->now, false, ANSWER_MS) != 0 || s->now.magic != order_magic)
		_exit(0);
	s->busy = true;
	s->from = now_us();
	s->now.status = 0;
	if (s->now.what >= sizeof(rows) / sizeof(rows[0]) || !rows[s->now.what] ||
	    (!s->v.net && s->now.what != FAR_HELLO && s->now.what != FAR_QUIT))
		refuse(s, "an order that is not known");
	rows[s->now.what](s);
}

_Noreturn void servant_serve(int fd, const struct options *w)
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
	struct options w = { .plugin = env->plugin, .dev = env->dev };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint32_t magic = 0;

	if (poll(&p, 1, DIAL_MS) != 1 || recv(fd, &magic, sizeof(magic), MSG_PEEK) != sizeof(magic))
		return 0;
	if (magic != order_magic)
		return perf_worker_main(fd, env);
	servant_serve(fd, &w);
}
