/* SPDX-License-Identifier: BSD-3-Clause */
/* far.c - a check's side of its servant: starts it, gives it orders, and makes comms to it. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/perf/key.h"
#include "tools/tcp.h"
#include "tools/text.h"
#include "tools/validate/far.h"

enum { DIAL_MS = 5000 };

static bool exit_allowed;

void far_allow_exit(bool fine)
{
	exit_allowed = fine;
}

static _Noreturn void gone(struct validate *v)
{
	if (v->far_pid)
		FAIL("the other process has ended");
	FAIL("the peer %s has gone", v->w->connect);
}

void far_send(struct validate *v, struct order *o)
{
	if (order_move(v->far, o, true, ANSWER_MS) != 0 && !exit_allowed)
		gone(v);
}

bool far_answer(struct validate *v, struct order *ret, int ms)
{
	struct pollfd p = { .fd = v->far, .events = POLLIN };

	if (poll(&p, 1, ms) != 1)
		return false;
	if (order_move(v->far, ret, false, ANSWER_MS) != 0) {
		if (exit_allowed)
			return true;
		gone(v);
	}
	text_clean(ret->text, sizeof(ret->text), "");
	if (ret->magic != order_magic)
		FAIL("the peer is of another version");
	drive_late = drive_late || (ret->status && ret->flags & FAR_LATE);
	if (ret->status)
		FAIL("the other end: %.390s", ret->text);
	return true;
}

void far_call(struct validate *v, struct order *o)
{
	far_send(v, o);
	if (!far_answer(v, o, ANSWER_MS))
		LATE("the other end has not answered for %d s", ANSWER_MS / 1000);
}

void far_call_stepping(struct validate *v, struct order *o, bool (*own_end)(void *), void *arg)
{
	unsigned ms = o->ms ? (unsigned)o->ms : WAIT_MS;
	uint64_t end = deadline_ms(ms);
	bool done = false, answered = false;

	far_send(v, o);
	while (!done || !answered) {
		if (!done)
			done = own_end(arg);
		if (!answered)
			answered = far_answer(v, o, done ? 10 : 0);
		if (now_us() > end)
			LATE("%s end is not done after %u s%s%.200s", done ? "the other" : "this",
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
		servant_serve(fds[1], v->w);
	}
	close(fds[1]);
	v->far = fds[0];
}

void both_up_as(struct validate *v, unsigned flags)
{
	struct order o = { .what = FAR_HELLO, .abi = v->abi, .flags = flags };

	far_start(v);
	net_up(v);
	step(v, "the other end's init");
	far_call(v, &o);
}

void both_up(struct validate *v)
{
	both_up_as(v, 0);
}

struct own_end {
	struct validate *v;
	struct order order;
	void *listen;
	struct conn *conn;
};

static bool own_step(void *arg)
{
	struct own_end *o = arg;

	return o->conn->out ? connect_step(o->v->net, o->order.handle, &o->conn->comm) :
			     accept_step(o->v->net, o->listen, &o->conn->comm);
}

struct conn conn_open(struct validate *v, bool out)
{
	struct conn conn = { .out = out };
	struct own_end o = { .v = v, .conn = &conn };
	struct order ask = { .what = out ? FAR_LISTEN : FAR_CONNECT };

	step(v, out ? "connecting to the other end" : "the other end connects");
	if (out) {
		far_call(v, &ask);
		o.order = ask;
		ask.what = FAR_ACCEPT;
	} else {
		OK(net_listen(v->net, v->dev, ask.handle, &o.listen));
	}
	far_call_stepping(v, &ask, own_step, &o);
	conn.far = ask.comm;
	if (!out)
		OK(net_close_listen(v->net, o.listen));
	return conn;
}

void conn_close(struct validate *v, struct conn *conn)
{
	struct order o = { .what = FAR_CLOSE, .comm = conn->far };

	step(v, "closing");
	OK(conn->out ? net_close_send(v->net, conn->comm) : net_close_recv(v->net, conn->comm));
	far_call(v, &o);
	conn->comm = NULL;
}
