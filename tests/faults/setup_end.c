/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup_end.c - an end of a case of the matrix (setup.h): it lives once to see what a life leaves
 * behind, then connects or accepts, sends or receives one message, closes, and connects anew.  With
 * puts in place of the message: setup_puts.c.
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/faults/setup_self.h"
#include "tests/lib/fault.h"
#include "tools/proxy.h"

enum { SMALL = 1000, QUIET_S = 20, NAP_US = 300 };

void is_broken(struct self *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->role->broken, sizeof(s->role->broken), fmt, ap);
	va_end(ap);
	_exit(1);
}

int ordered(const struct self *s)
{
	int all = s->show->order, own = s->show->ordered[s->who];

	return own > all ? own : all;
}

void turn(struct self *s)
{
	if (s->role->no_memory != s->failing) {
		s->failing = s->role->no_memory;
		if (s->show->counts_memory)
			fault_memory(s->failing);
		s->role->has_none = s->failing;
	}
	usleep(NAP_US);
}

void waits_for(struct self *s, enum call entry)
{
	s->role->entry = (int)entry;
	s->role->since_ns = now_ns();
}

void comes_to(struct self *s, enum phase phase)
{
	if (phase == IS_DONE)
		s->role->done_ns = now_ns();
	s->role->phase = (int)phase;
}

static void wait_order(struct self *s, enum order order)
{
	while (ordered(s) < (int)order)
		turn(s);
}

bool has_error(struct self *s, ncclResult_t res)
{
	if (res == ncclSuccess)
		return false;
	s->role->error = (int)res;
	comes_to(s, IS_DONE);
	return true;
}

static void up(struct self *s)
{
	if (!s->life->init(s))
		is_broken(s, "init found no device");
}

/* -- a pair in this process, and what its life leaves -------------------------------------- */

static ncclResult_t moved(struct self *s, void *req, uint64_t until)
{
	ncclResult_t res = ncclSuccess;
	int done = 0, size = -1;

	while (!res && !done && now_ns() < until) {
		res = net_test(s->net, req, &done, &size);
		turn(s);
	}
	return res ? res : done ? ncclSuccess : ncclInternalError;
}

static ncclResult_t pair(struct self *s, size_t size, unsigned inside)
{
	uint64_t until = now_ns() + FRESH_S * 1000000000ULL;
	static uint8_t out[SIZE], in[SIZE];
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *listen = NULL, *send = NULL, *recv = NULL, *smr = NULL, *rmr = NULL;
	void *sent = NULL, *got = NULL, *to = in;
	size_t room = size;
	int tag = 0;
	ncclResult_t res = net_listen(s->net, 0, handle, &listen);

	while (!res && !(send && recv) && now_ns() < until) {
		if (!send)
			res = net_connect(s->net, 0, handle, &send);
		if (!res && !recv)
			res = net_accept(s->net, listen, &recv);
		turn(s);
	}
	if (!res && !(send && recv))
		res = ncclInternalError;
	memset(out, 7, size);
	memset(in, 0, size);
	if (!res)
		res = net_reg(s->net, send, out, size, NCCL_PTR_HOST, &smr);
	if (!res)
		res = net_reg(s->net, recv, in, size, NCCL_PTR_HOST, &rmr);
	while (!res && !got && now_ns() < until)
		res = net_irecv(s->net, recv, 1, &to, &room, &tag, &rmr, NULL, &got);
	while (!res && !sent && now_ns() < until)
		res = net_isend(s->net, send, out, size, 0, smr, NULL, &sent);
	if (!res)
		res = sent && got ? moved(s, got, until) : ncclInternalError;
	if (!res)
		res = moved(s, sent, until);
	if (!res && memcmp(in, out, size))
		is_broken(s, "a new pair moved other bytes");
	if (!res && inside)
		res = pair(s, size, inside - 1);
	if (smr)
		net_dereg(s->net, send, smr);
	if (rmr)
		net_dereg(s->net, recv, rmr);
	net_close_send(s->net, send);
	net_close_recv(s->net, recv);
	net_close_listen(s->net, listen);
	return res;
}

static unsigned entries(const char *path)
{
	unsigned n = 0;
	DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static void count(struct left *ret)
{
	*ret = (struct left){ entries("/proc/self/fd"), entries("/proc/self/task"), fault_blocks() };
}

/* What is left, for whoever looks into it. */
static void list_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[64], to[128];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%.16s", e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0)
			witness_keeps(NCCL_LOG_INFO, 0, "", 0, "left: %s is %.*s", e->d_name, (int)n, to);
	}
	if (d)
		closedir(d);
}

/* A thread that was joined is listed for a moment longer.  True: nothing is left. */
static bool nothing_left(struct self *s)
{
	const struct left *before = &s->role->before, *after = &s->role->after;
	uint64_t until = now_ns() + QUIET_S * 1000000000ULL;
	bool left;

	do {
		usleep(1000);
		count(&s->role->after);
		left = after->fds > before->fds || after->threads > before->threads ||
		       after->blocks > before->blocks + s->show->kept;
	} while (left && now_ns() < until);
	return !left;
}

/*
 * Over iWARP a queue pair is destroyed once rdma_cm has given a silent peer up: after finalize there
 * is nobody to do so.  The next use of the plugin does.
 */
static void count_after(struct self *s)
{
	const char *nics = getenv("BRAID_TEST_FAKE_DEVICES");

	if (nothing_left(s))
		return;
	list_fds();
	if (!nics || !strstr(nics, "iwarp"))
		return;
	up(s);
	if (s->life->pair(s, SIZE, 2) != ncclSuccess)
		is_broken(s, "no connection after a silent peer");
	CALLED(s, CALL_FINALIZE, s->life->finalize(s));
	nothing_left(s);
}

static void first_life(struct self *s)
{
	for (int i = 0; i < 2; i++) {
		up(s);
		if (s->life->pair(s, SIZE, 2) != ncclSuccess)
			is_broken(s, "no connection without a fault");
		CALLED(s, CALL_FINALIZE, s->life->finalize(s));
	}
	memset(s->role->end.timing, 0, sizeof(s->role->end.timing));
	usleep(20000);
	count(&s->role->before);
}

/* -- the life that the fault comes into ----------------------------------------------------- */

static ncclResult_t listens(struct self *s)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	ncclResult_t res;

	waits_for(s, CALL_LISTEN);
	res = CALLED(s, CALL_LISTEN, net_listen(s->net, 0, handle, &s->listen));
	if (res == ncclSuccess) {
		memcpy(s->show->handle, handle, sizeof(handle));
		s->show->listens = true;
	}
	return res;
}

/* True: it is open. */
static bool opens(struct self *s)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];

	if (s->who == ACCEPTS && has_error(s, listens(s)))
		return false;
	while (!s->show->relayed && ordered(s) < TO_CLOSE)
		turn(s);
	memcpy(handle, s->show->handle, sizeof(handle));
	comes_to(s, IS_CONNECTING);
	waits_for(s, s->who == DIALS ? CALL_CONNECT : CALL_ACCEPT);
	while (!s->comm && ordered(s) < TO_CLOSE) {
		ncclResult_t res = s->who == DIALS ?
			CALLED(s, CALL_CONNECT, net_connect(s->net, 0, handle, &s->comm)) :
			CALLED(s, CALL_ACCEPT, net_accept(s->net, s->listen, &s->comm));

		if (has_error(s, res))
			return false;
		turn(s);
	}
	return s->comm;
}

static bool request_is_done(struct self *s, enum call entry)
{
	int done = 0, size = -1;
	ncclResult_t res;

	waits_for(s, entry);
	while (!done && ordered(s) < TO_CLOSE) {
		res = CALLED(s, CALL_TEST, net_test(s->net, s->req, &done, &size));
		if (has_error(s, res))
			return false;
		turn(s);
	}
	return done;
}

static bool posts(struct self *s)
{
	void *data = s->mem;
	size_t room = SIZE;
	int tag = 0;

	waits_for(s, s->who == DIALS ? CALL_ISEND : CALL_IRECV);
	while (!s->req && ordered(s) < TO_CLOSE) {
		ncclResult_t res = s->who == DIALS ?
			CALLED(s, CALL_ISEND, net_isend(s->net, s->comm, data, SIZE, 0, s->mr, NULL, &s->req)) :
			CALLED(s, CALL_IRECV, net_irecv(s->net, s->comm, 1, &data, &room, &tag, &s->mr, NULL,
							&s->req));

		if (has_error(s, res))
			return false;
		turn(s);
	}
	return s->req;
}

/* Posts the second half of a message that the other end may not post; and reads it back. */
static void talks(struct self *s)
{
	void *data = s->mem;
	int size = SIZE;

	waits_for(s, CALL_REG);
	if (has_error(s, CALLED(s, CALL_REG, net_reg(s->net, s->comm, s->mem, SIZE, NCCL_PTR_HOST, &s->mr))) ||
	    !posts(s) || !request_is_done(s, s->who == DIALS ? CALL_ISEND : CALL_IRECV))
		return;
	if (s->who == ACCEPTS) {
		if (message_differs(s->mem, SIZE, 1) != SIZE)
			is_broken(s, "other bytes came than were sent");
		s->req = NULL;
		if (has_error(s, CALLED(s, CALL_FLUSH, net_iflush(s->net, s->comm, 1, &data, &size, &s->mr,
							      &s->req))))
			return;
		if (s->req && !request_is_done(s, CALL_FLUSH))
			return;
	}
	comes_to(s, IS_DONE);
}

static void closes(struct self *s)
{
	if (s->mr)
		CALLED(s, CALL_DEREG, net_dereg(s->net, s->comm, s->mr));
	if (s->comm && s->who == DIALS)
		CALLED(s, CALL_CLOSE, net_close_send(s->net, s->comm));
	if (s->comm && s->who == ACCEPTS)
		CALLED(s, CALL_CLOSE, net_close_recv(s->net, s->comm));
	if (s->listen)
		CALLED(s, CALL_CLOSE, net_close_listen(s->net, s->listen));
}

static void *load(struct self *s, char *err, size_t len)
{
	s->net = net_load(s->show->plugin, 0, err, len);
	return s->net ? s->net->dl : NULL;
}

static bool init(struct self *s)
{
	int ndev = 0;

	return net_init(s->net, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, witness_keeps, NULL) == ncclSuccess &&
	       net_devices(s->net, &ndev) == ncclSuccess && ndev;
}

static ncclResult_t finalize(struct self *s)
{
	return net_finalize(s->net);
}

const struct life life_messages = { load, init, finalize, pair, opens, talks, closes };

/* -- the frame ------------------------------------------------------------------------------ */

static void takes_plugin(struct self *s)
{
	char err[120];
	void *dl;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	witness_starts(&s->role->end, now_ns());
	dl = s->life->load(s, err, sizeof(err));
	if (!dl)
		is_broken(s, "%s", err);
	if (s->show->counts_memory)
		s->show->counts_memory = fault_install(dl);
}

_Noreturn void setup_end(struct show *show, unsigned who)
{
	struct self s = { .show = show, .role = &show->role[who], .who = who, .mem = malloc(SIZE),
			  .life = show->puts ? &life_puts : &life_messages };

	if (who == DIALS)
		message_fill(s.mem, SIZE, 1);
	takes_plugin(&s);
	first_life(&s);
	comes_to(&s, IS_READY);
	wait_order(&s, TO_CONNECT);
	up(&s);
	if (s.life->opens(&s)) {
		comes_to(&s, IS_OPEN);
		wait_order(&s, TO_TALK);
		if (ordered(&s) < TO_CLOSE)
			s.life->talks(&s);
	}
	wait_order(&s, TO_CLOSE);
	s.life->closes(&s);
	if (!show->renews_first)
		CALLED(&s, CALL_FINALIZE, s.life->finalize(&s));
	comes_to(&s, IS_CLOSED);
	wait_order(&s, TO_RENEW);
	turn(&s);
	if (!show->renews_first)
		up(&s);
	if (s.life->pair(&s, SMALL, 0) != ncclSuccess)
		is_broken(&s, "no new connection after the fault");
	CALLED(&s, CALL_FINALIZE, s.life->finalize(&s));
	count_after(&s);
	comes_to(&s, IS_ENDED);
	_exit(0);
}
