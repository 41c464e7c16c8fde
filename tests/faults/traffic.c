/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * traffic.c - one end: loads the plugin, and drives it as NCCL's proxy thread does (messages.c), or
 * the thread of one-sided operations (puts.c).
 *
 * An act is connect, traffic, close.  Message k of a flow has a size and a content that follow
 * from the seed, the act, the flow and k, so that a byte that is lost, changed or doubled, in
 * whatever message, is seen by the receiver at once.  The sender writes to the flow's limit how
 * many messages it will certainly send.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
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

#include "tests/faults/actor.h"
#include "tools/proxy.h"

enum { BURST_MS = 20 };			/* so much may be sent at once */

/* -- complaints --------------------------------------------------------------------------- */

void broken(struct actor *a, const char *fmt, ...)
{
	va_list ap;

	if (a->end->broken++)
		return;
	va_start(ap, fmt);
	vsnprintf(a->end->text, sizeof(a->end->text), fmt, ap);
	va_end(ap);
}

void give_up(struct actor *a)
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

uint8_t *slot_mem(struct actor *a, struct stream *s, uint64_t k)
{
	return s->mem + k % a->st->slots * a->slot_size;
}

void slot_spoil(struct actor *a, struct stream *s, uint64_t k)
{
	uint8_t *p = slot_mem(a, s, k);
	size_t size = message_size(a->st, message_key(a->st, a->act, s->f, k));

	memset(p, GUARD_BYTE, size < 256 ? size : 256);	/* not the slot's old message */
	memset(p + size, GUARD_BYTE, GUARD);
}

void arrived(struct actor *a, struct stream *s, uint64_t k, int got)
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

void failed(struct actor *a, struct stream *s, ncclResult_t res)
{
	s->error = res;
	a->last_error_ns = now_ns();
	if (!a->end->error) {
		a->end->error_ns = a->last_error_ns;
		a->end->error = (int)res;
	}
	if (s->comm) {
		ncclResult_t again = a->way->again(a, s);

		if (again != res)
			broken(a, "flow %u: after %s the next call said %s", s->f,
			       net_result_name(res), net_result_name(again));
	}
}

void paced(struct actor *a, struct stream *s, size_t size)
{
	uint64_t now = now_ns(), pace = a->st->pace;

	if (!pace)
		return;
	if (s->due_ns + BURST_MS * 1000000ULL < now)	/* what was not sent is not made up for */
		s->due_ns = now - BURST_MS * 1000000ULL;
	s->due_ns += size * 1000000000ULL / pace;
}

bool may_post(struct actor *a, struct stream *s)
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
	       !(s->sends ? a->st->idle || (s->due_ns && now_ns() < s->due_ns) : a->st->hold[a->who]);
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

void told(struct actor *a, const struct stream *s)
{
	a->end->half[s->f].posted = s->posted;
	a->end->half[s->f].done = s->done;
	a->end->half[s->f].error = (int)s->error;
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

static void look_at_heap(struct actor *a)
{
	unsigned asked = a->st->heap_ask;
	struct mallinfo2 m;

	if (a->end->heap_answered == asked)
		return;
	m = mallinfo2();
	a->end->heap = m.uordblks + m.hblkhd;
	a->end->heap_answered = asked;
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

		if (!s->sends)
			memset(s->flow->handle, 0, sizeof(s->flow->handle));
		res = a->way->listen(a, s);
		if (res != ncclSuccess) {
			broken(a, "listen: %s", net_result_name(res));
			failed(a, s, res);
			give_up(a);
		}
		if (!s->sends)
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
	ncclResult_t res = ncclSuccess;
	bool known;

	do {
		known = a->way->try_old(a, a->st->old, &res);
		usleep(100);
	} while (!known && now_ns() - from < 10000000000);
	if (res == ncclSuccess)
		broken(a, "the handle of a job that is over %s", known ? "was accepted" : "gives no error");
	a->end->old_error = (int)res;
}

static void open_all(struct actor *a)
{
	unsigned left;

	do {
		left = 0;
		for (int f = 0; f < FLOWS; f++) {
			struct stream *s = &a->stream[f];

			if (s->comm)
				a->way->step(a, s);	/* comms that are up carry traffic meanwhile */
			if (s->comm || s->error)
				continue;
			left++;
			if (s->sends && !s->has_handle) {
				if (!s->flow->listening)
					continue;
				memcpy(s->handle, s->flow->handle, sizeof(s->handle));
				s->has_handle = true;
			}
			a->way->open(a, s);
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
			moved |= a->way->step(a, &a->stream[f]);
			drained &= stream_drained(&a->stream[f]);
		}
		if (a->end->error && !a->end->errors_ns && all_failed(a))
			a->end->errors_ns = a->last_error_ns;
		if (drained)
			return;
		look_at_children(a);
		look_at_heap(a);
		pause_a_while(a, moved);
	}
}

static void close_one(struct actor *a, struct stream *s, unsigned what)
{
	ncclResult_t res = ncclSuccess;

	if (what == 0 && s->listen) {
		res = a->way->close_listen(a, s);
		s->listen = NULL;
	} else if (what == 1 && s->comm && s->mr) {
		res = a->way->dereg(a, s);
		s->mr = NULL;
	} else if (what == 2 && s->comm) {
		res = a->way->close(a, s);
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

static void take_plugin(struct actor *a)
{
	/* poll() fails above RLIMIT_NOFILE too, so take more descriptors than the plugin ever polls. */
	for (int i = 0; i < 64; i++)
		a->end->files = dup(STDERR_FILENO) + 1;
	if (a->st->no_logger)		/* keep the plugin's lines out of the runner's output */
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
	a->way->take(a);
}

_Noreturn void traffic_end(struct stage *st, unsigned who)
{
	struct sigaction quiet = { .sa_handler = nothing };	/* and no SA_RESTART */
	struct actor a = { .st = st, .end = &st->end[who], .who = who,
			   .way = st->one_sided ? &way_puts : &way_messages,
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
	if (a.way->end(&a) != ncclSuccess)
		broken(&a, "finalize failed");
	a.end->state = ST_ENDED;
	exit(0);			/* not _exit(): LeakSanitizer looks for leaks at exit */
}
