/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * traffic.c - one end: loads the plugin, and drives it as NCCL's proxy thread does.
 *
 * An act is connect, traffic, close.  Message k of a flow has a size and a content that follow
 * from the seed, the act, the flow and k, so that a byte that is lost, changed or doubled, in
 * whatever message, is seen by the receiver at once.  The sender writes to the flow's limit how
 * many messages it will certainly send, and the receiver posts no more receives than that.  So
 * when all is to stop, every posted receive gets its message.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/witness.h"
#include "tools/proxy.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

struct slot {
	void *req;
	uint64_t k;
};

struct stream {				/* this end's half of a flow */
	unsigned f;
	struct flow *flow;
	bool sends;
	void *listen, *comm, *mr;
	uint8_t *mem;
	struct slot slot[SLOTS_MAX];
	uint64_t posted, done;
	ncclResult_t error;
};

struct actor {
	struct stage *st;
	struct end *end;
	unsigned who;
	struct net *net;
	int dev;
	struct stream stream[FLOWS];
	size_t slot_size;
	unsigned act, forks;
	uint64_t chance, idle_since, last_error_ns;
};

/* -- complaints --------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3)))
static void broken(struct actor *a, const char *fmt, ...)
{
	va_list ap;

	if (a->end->broken++)
		return;
	va_start(ap, fmt);
	vsnprintf(a->end->text, sizeof(a->end->text), fmt, ap);
	va_end(ap);
}

static _Noreturn void give_up(struct actor *a)
{
	a->end->state = ST_ENDED;
	_exit(1);
}

/* -- streams ------------------------------------------------------------------------------ */

static bool guard_is_whole(const uint8_t *p)
{
	for (int i = 0; i < GUARD; i++) {
		if (p[i] != GUARD_BYTE)
			return false;
	}
	return true;
}

static uint8_t *slot_mem(struct actor *a, struct stream *s, uint64_t k)
{
	return s->mem + k % a->st->slots * a->slot_size;
}

static void arrived(struct actor *a, struct stream *s, uint64_t k, int got)
{
	uint64_t key = message_key(a->st, a->act, s->f, k), now = now_ns(), last = s->flow->last_ns;
	size_t size = message_size(a->st, key), at = 0;
	const uint8_t *p = slot_mem(a, s, k);

	if ((size_t)got != size || (at = message_differs(p, size, key)) < size ||
	    !guard_is_whole(p + size)) {
		a->end->wrong++;
		broken(a, "flow %u message %llu of %zu bytes: got %d, first wrong byte at %zu, guard %s",
		       s->f, (unsigned long long)k, size, got, at,
		       guard_is_whole(p + size) ? "whole" : "overwritten");
	}
	if (a->st->fault_ns && now - last > s->flow->gap_ns)
		s->flow->gap_ns = now - last;
	s->flow->last_ns = now;
	s->flow->bytes += size;
	s->flow->received++;
}

/* Notes a flow's error.  Every later call of its comm must return the same error. */
static void failed(struct actor *a, struct stream *s, ncclResult_t res)
{
	s->error = res;
	a->last_error_ns = now_ns();
	if (!a->end->error) {
		a->end->error_ns = a->last_error_ns;
		a->end->error = (int)res;
	}
	if (s->comm) {
		void *req = NULL;
		int tag = 0;
		size_t size = 0;
		void *data = s->mem;
		ncclResult_t again = s->sends ?
			TIMED(a->end, CALL_ISEND, net_isend(a->net, s->comm, data, 0, 0, s->mr, NULL, &req)) :
			TIMED(a->end, CALL_IRECV, net_irecv(a->net, s->comm, 1, &data, &size, &tag, &s->mr,
						       NULL, &req));

		if (again != res)
			broken(a, "flow %u: after %s the next call said %s", s->f,
			       net_result_name(res), net_result_name(again));
	}
}

/* Takes the result of isend() or irecv().  False: there is no request, so the call is repeated. */
static bool posted(struct actor *a, struct stream *s, const struct slot *slot, ncclResult_t res)
{
	if (res != ncclSuccess)
		failed(a, s, res);
	if (res != ncclSuccess || !slot->req)
		return false;
	s->posted++;
	if (s->sends)
		s->flow->sent++;
	return true;
}

static bool post_send(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	uint8_t *p = slot_mem(a, s, s->posted);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	size_t size = message_size(a->st, key);
	ncclResult_t res;

	if (slot->k != s->posted + 1) {		/* fill it once, though isend() may give no request yet */
		message_fill(p, size, key);
		slot->k = s->posted + 1;
	}
	slot->req = NULL;
	res = TIMED(a->end, CALL_ISEND, net_isend(a->net, s->comm, p, size, message_tag(key), s->mr, NULL,
					     &slot->req));
	return posted(a, s, slot, res);
}

static bool post_recv(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	uint8_t *p = slot_mem(a, s, s->posted);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	size_t size = message_size(a->st, key), room = key >> 60 & 1 ? size : a->st->max_size;
	int tag = message_tag(key);
	ncclResult_t res;
	void *data = p;

	if (slot->k != s->posted + 1) {
		memset(p, GUARD_BYTE, size < 256 ? size : 256);	/* not the slot's old message */
		memset(p + size, GUARD_BYTE, GUARD);
		slot->k = s->posted + 1;
	}
	slot->req = NULL;
	res = TIMED(a->end, CALL_IRECV, net_irecv(a->net, s->comm, 1, &data, &room, &tag, &s->mr, NULL,
					     &slot->req));
	return posted(a, s, slot, res);
}

static bool may_post(struct actor *a, struct stream *s)
{
	if (s->error)
		return false;
	if (s->sends) {
		if (a->st->stop)
			s->flow->final = true;
		else
			s->flow->limit = s->done + a->st->slots;
	}
	return s->posted < s->flow->limit && s->posted - s->done < a->st->slots &&
	       !(s->sends ? a->st->idle : a->st->hold[a->who]);
}

/* True if every flow has an error, or nothing to wait for. */
static bool all_failed(const struct actor *a)
{
	for (int f = 0; f < FLOWS; f++) {
		const struct stream *s = &a->stream[f];

		if (!s->error && (s->done < s->posted || s->posted < s->flow->limit))
			return false;
	}
	return true;
}

/* Tests requests in the order of posting, as NCCL does; true if something happened. */
static bool stream_step(struct actor *a, struct stream *s)
{
	bool moved = false;

	while (may_post(a, s) && (s->sends ? post_send(a, s) : post_recv(a, s)))
		moved = true;
	while (!s->error && s->done < s->posted) {
		struct slot *slot = &s->slot[s->done % a->st->slots];
		int done = 0, size = -1;
		ncclResult_t res = TIMED(a->end, CALL_TEST, net_test(a->net, slot->req, &done, &size));

		if (res != ncclSuccess)
			failed(a, s, res);
		if (res != ncclSuccess || !done)
			break;
		if (!s->sends)
			arrived(a, s, s->done, size);
		s->done++;
		moved = true;
	}
	a->end->half[s->f].posted = s->posted;
	a->end->half[s->f].done = s->done;
	a->end->half[s->f].error = (int)s->error;
	return moved;
}

static bool stream_drained(const struct stream *s)
{
	return s->error || (s->flow->final && s->done == s->flow->limit);
}

/* -- children ----------------------------------------------------------------------------- */

/* Forks as a data loader does: the child writes to its copy of our memory and calls no plugin. */
static void fork_one(struct actor *a)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct timespec ts = { .tv_sec = a->st->fork_ms / 1000,
				       .tv_nsec = a->st->fork_ms % 1000 * 1000000L };

		for (int f = 0; f < FLOWS; f++)
			memset(a->stream[f].mem, 0x77, a->slot_size);
		nanosleep(&ts, NULL);
		_exit(0);
	}
	if (pid < 0)
		broken(a, "fork: %s", strerror(errno));
	a->end->child[a->forks % CHILDREN_MAX] = pid;
	a->end->forks = ++a->forks;
}

static void look_at_children(struct actor *a)
{
	while (a->forks < a->st->fork_ask[a->who])
		fork_one(a);
	if (a->forks)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
}

/* -- acts --------------------------------------------------------------------------------- */

/* Gives way: an end that has been idle for a while need not take a CPU from the others. */
static void pause_a_while(struct actor *a, bool moved)
{
	uint64_t now;

	if (moved) {
		a->idle_since = 0;
		return;
	}
	now = now_ns();
	if (!a->idle_since)
		a->idle_since = now;
	if (now - a->idle_since < 300000)
		sched_yield();
	else
		usleep(50);
}

static void listen_all(struct actor *a)
{
	for (int f = 0; f < FLOWS; f++) {
		struct stream *s = &a->stream[f];
		ncclResult_t res;

		if (s->sends)
			continue;
		memset(s->flow->handle, 0, sizeof(s->flow->handle));
		res = TIMED(a->end, CALL_LISTEN, net_listen(a->net, a->dev, s->flow->handle, &s->listen));
		if (res != ncclSuccess) {
			broken(a, "listen: %s", net_result_name(res));
			failed(a, s, res);
			give_up(a);
		}
		s->flow->listening = true;
	}
	a->end->state = ST_LISTENING;
	while (!a->st->go)
		usleep(200);
}

/* Returns the write end of a full pipe, whose read end is closed or never read. */
static int unread_pipe(bool closed)
{
	char page[4096] = { 0 };
	int fds[2];

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -1;
	while (write(fds[1], page, sizeof(page)) > 0)
		;
	fcntl(fds[1], F_SETFL, 0);
	if (closed)
		close(fds[0]);
	return fds[1];
}

/* Closes or replaces stdio.  Once it is closed, the plugin's next descriptors are 0 to 2. */
static void spoil_stdio(struct actor *a)
{
	int fd = -1;

	if (a->st->stdio == STDIO_KEPT)
		return;
	witness_prints();
	if (a->st->stdio == STDIO_FULL)
		fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	if (a->st->stdio == STDIO_UNREAD)
		fd = unread_pipe(a->who == END_A);
	for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
		if (a->st->stdio == STDIO_CLOSED)
			close(i);
		else
			dup2(fd, i);
	}
}

/* Connects with the handle of a job that is over.  Another job has its port now, and must refuse. */
static void try_old(struct actor *a)
{
	uint64_t from = now_ns();
	ncclResult_t res;
	void *comm = NULL;

	do {
		res = TIMED(a->end, CALL_CONNECT, net_connect(a->net, a->dev, a->st->old, &comm));
		usleep(100);
	} while (res == ncclSuccess && !comm && now_ns() - from < 10000000000);
	if (res == ncclSuccess)
		broken(a, "the handle of a job that is over %s", comm ? "was accepted" : "gives no error");
	a->end->old_error = (int)res;
}

/* Calls connect() or accept() once; an error ends this flow. */
static void open_step(struct actor *a, struct stream *s, uint8_t *handle)
{
	ncclResult_t res;

	if (s->sends)
		res = TIMED(a->end, CALL_CONNECT, net_connect(a->net, a->dev, handle, &s->comm));
	else
		res = TIMED(a->end, CALL_ACCEPT, net_accept(a->net, s->listen, &s->comm));
	if (res != ncclSuccess) {
		s->comm = NULL;
		failed(a, s, res);
		return;
	}
	if (s->comm) {
		res = TIMED(a->end, CALL_REG, net_reg(a->net, s->comm, s->mem, a->slot_size * a->st->slots,
						 NCCL_PTR_HOST, &s->mr));
		if (res != ncclSuccess)
			failed(a, s, res);
		s->flow->last_ns = now_ns();
	}
}

static void open_all(struct actor *a)
{
	_Alignas(16) uint8_t handle[FLOWS][NCCL_NET_HANDLE_MAXSIZE];
	bool have[FLOWS] = { false };
	unsigned left;

	do {
		left = 0;
		for (int f = 0; f < FLOWS; f++) {
			struct stream *s = &a->stream[f];

			if (s->comm)
				stream_step(a, s);	/* comms that are up carry traffic meanwhile */
			if (s->comm || s->error)
				continue;
			left++;
			if (s->sends && !have[f]) {
				if (!s->flow->listening)
					continue;
				memcpy(handle[f], s->flow->handle, sizeof(handle[f]));
				have[f] = true;
			}
			open_step(a, s, handle[f]);
		}
		if (left)
			usleep(20);
	} while (left && !a->st->abort[a->who]);
	a->end->open_ns = now_ns();
	if (!a->end->error)
		a->end->state = ST_OPEN;
}

static void talk(struct actor *a)
{
	while (!a->st->abort[a->who]) {
		bool moved = false, drained = true;

		for (int f = 0; f < FLOWS; f++) {
			moved |= stream_step(a, &a->stream[f]);
			drained &= stream_drained(&a->stream[f]);
		}
		if (a->end->error && !a->end->errors_ns && all_failed(a))
			a->end->errors_ns = a->last_error_ns;
		if (drained)
			return;
		look_at_children(a);
		pause_a_while(a, moved);
	}
}

static void close_one(struct actor *a, struct stream *s, unsigned what)
{
	ncclResult_t res = ncclSuccess;

	if (what == 0 && s->listen) {
		res = TIMED(a->end, CALL_CLOSE, net_close_listen(a->net, s->listen));
		s->listen = NULL;
	} else if (what == 1 && s->comm && s->mr) {
		res = TIMED(a->end, CALL_DEREG, net_dereg(a->net, s->comm, s->mr));
		s->mr = NULL;
	} else if (what == 2 && s->comm) {
		res = TIMED(a->end, CALL_CLOSE, s->sends ? net_close_send(a->net, s->comm) :
						      net_close_recv(a->net, s->comm));
		s->comm = NULL;
	}
	if (res != ncclSuccess)
		broken(a, "flow %u: %s said %s", s->f, what == 1 ? "deregMr" : "close",
		       net_result_name(res));
}

/* Closes all flows in random order: of each the listen, then the memory, then the comm. */
static void close_all(struct actor *a)
{
	unsigned order[FLOWS] = { 0 };

	for (unsigned i = 0; i < FLOWS; i++) {
		unsigned j = (unsigned)(mix(a->chance++, a->act) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
	for (unsigned i = 0; i < FLOWS; i++) {
		close_one(a, &a->stream[order[i]], 0);
		close_one(a, &a->stream[order[i]], 1);
		close_one(a, &a->stream[order[i]], 2);
	}
}

static void play_act(struct actor *a)
{
	for (unsigned f = 0; f < FLOWS; f++) {
		struct stream *s = &a->stream[f];
		uint8_t *mem = s->mem;

		*s = (struct stream){ .f = f, .flow = &a->st->flow[f], .mem = mem,
				      .sends = flow_sender(f) == a->who };
	}
	listen_all(a);
	spoil_stdio(a);
	if (a->st->has_old && a->who == END_A)
		try_old(a);
	open_all(a);
	for (unsigned f = 0; f < FLOWS && a->end->state == ST_OPEN; f++)
		close_one(a, &a->stream[f], 0);
	talk(a);
	close_all(a);
	a->end->state = ST_CLOSED;
}

/* -- life --------------------------------------------------------------------------------- */

static void nothing(int sig)
{
	(void)sig;
}

static void *memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Fuses all devices into one, if the run has several paths. */
static ncclResult_t fuse(struct actor *a, int ndev)
{
	ncclNetVDeviceProps_v12_t all = { .ndevs = a->st->devices[a->who] };

	if (ndev < all.ndevs)
		return ncclInvalidUsage;
	for (int i = 0; i < all.ndevs; i++)
		all.devs[i] = i;
	if (a->net->abi >= 12)
		return ((const ncclNet_v12_t *)a->net->table)->makeVDevice(&a->dev, &all);
	return ((const ncclNet_v9_t *)a->net->table)->makeVDevice(
		&a->dev, &(ncclNetVDeviceProps_v9_t){ .ndevs = 2, .devs = { 0, 1 } });
}

static void take_plugin(struct actor *a)
{
	char err[200];
	int ndev = 0;

	/* poll() fails above RLIMIT_NOFILE too, so take more descriptors than the plugin ever polls. */
	for (int i = 0; i < 64; i++)
		a->end->files = dup(STDERR_FILENO) + 1;
	setenv("BRAID_FUSE", "any", 1);
	a->net = net_load(a->st->plugin, a->st->abi[a->who], err, sizeof(err));
	if (!a->net) {
		broken(a, "%s", err);
		give_up(a);
	}
	if (a->st->no_logger)		/* keep the plugin's lines out of the runner's output */
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
	if (net_init(a->net, a->st->seed, NCCL_NET_TRAFFIC_CLASS_UNDEF,
		     a->st->no_logger ? NULL : witness_keeps, NULL) != ncclSuccess ||
	    net_devices(a->net, &ndev) != ncclSuccess || ndev <= a->st->dev[a->who]) {
		broken(a, "init found no device");
		give_up(a);
	}
	a->dev = a->st->dev[a->who];
	if (a->st->devices[a->who] > 1) {
		a->end->lacks_fusion = !a->net->has_vdevice;
		if (a->end->lacks_fusion || fuse(a, ndev) != ncclSuccess) {
			broken(a, "makeVDevice failed");
			give_up(a);
		}
	}
}

_Noreturn void traffic_end(struct stage *st, unsigned who)
{
	struct sigaction quiet = { .sa_handler = nothing };	/* and no SA_RESTART */
	struct actor a = { .st = st, .end = &st->end[who], .who = who,
			   .chance = mix(st->seed, 100 + who) };

	sigaction(SIGUSR1, &quiet, NULL);
	witness_starts(a.end, st->born_ns);
	a.slot_size = (st->max_size + GUARD + 63) / 64 * 64;
	for (int f = 0; f < FLOWS; f++) {
		a.stream[f].mem = memory(a.slot_size * st->slots);
		if (!a.stream[f].mem) {
			broken(&a, "no memory");
			give_up(&a);
		}
	}
	take_plugin(&a);
	for (;;) {
		play_act(&a);
		while (st->act == a.act && !st->last_act)
			usleep(100);
		if (st->last_act)
			break;
		a.act = st->act;
	}
	if (net_finalize(a.net) != ncclSuccess)
		broken(&a, "finalize failed");
	net_unload(a.net);
	a.end->state = ST_ENDED;
	exit(0);			/* not _exit(): LeakSanitizer looks for leaks at exit */
}
