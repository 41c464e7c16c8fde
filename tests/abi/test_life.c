/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_life.c - load, init, finalize and unload, any number of times, without leaks.
 *
 * From v11 on NCCL calls init once per communicator: contexts live side by side and go one by
 * one.  Before that there is one init and no finalize.  NCCL may dlclose the plugin when the last
 * communicator is gone and load it again for the next.
 */
#undef _FORTIFY_SOURCE
#include "tests/abi/abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

struct usage {
	unsigned fds, threads;
};

static struct usage usage(void)
{
	return (struct usage){ count_fds(), count_threads() };
}

/* Waits until nothing changes: the thread for braid stat opens its socket a little later. */
static struct usage settled(void)
{
	struct usage now = usage(), last;
	unsigned same = 0;

	for (int i = 0; i < 400 && same < 40; i++) {
		last = now;
		nap_ms(5);
		now = usage();
		same = now.fds == last.fds && now.threads == last.threads ? same + 1 : 0;
	}
	return now;
}

/* Retries, since a thread that was joined is listed in /proc for a moment longer. */
static void no_more_than(struct usage before)
{
	struct usage now = usage();

	for (int i = 0; i < 100 && (now.threads > before.threads || now.fds > before.fds); i++) {
		usleep(10000);
		now = usage();
	}
	if (now.fds > before.fds || now.threads > before.threads)
		FAIL("%u descriptors and %u threads, were %u and %u", now.fds, now.threads,
		     before.fds, before.threads);
}

static void init_often(struct abi *t)
{
	struct net *net = abi_up(t);
	struct usage before;
	int ndev;

	OK(net_finalize(net));
	before = usage();
	for (int i = 0; i < 1000; i++) {
		OK(net_init(net, (uint64_t)i, -1, abi_log, NULL));
		OK(net_devices(net, &ndev));
		TRUE(ndev >= 1);
		OK(net_finalize(net));
	}
	no_more_than(before);
	net_unload(net);
}

/* As init_often(), with a service thread, sockets and a link each time. */
static void use_often(struct abi *t)
{
	struct usage before = { 0, 0 };
	struct net *net;

	setenv("BRAID_LANES", "1", 1);
	net = abi_up(t);
	for (int i = 0; i < (t->newest ? 60 : 10); i++) {
		struct pair p;

		if (i)
			OK(net_init(net, (uint64_t)i, -1, abi_log, NULL));
		pair_open(net, &p);
		exchange(net, p.send, p.recv, 100000, (uint64_t)i);
		pair_close(net, &p);
		OK(net_finalize(net));
		if (i == 0)
			before = usage();
	}
	no_more_than(before);
	net_unload(net);
}

static void load_often(struct abi *t)
{
	struct usage before = { 0, 0 };

	setenv("BRAID_LANES", "1", 1);
	for (int i = 0; i < 100; i++) {
		struct net *net = abi_up(t);

		if (i % 10 == 0) {
			struct pair p;

			pair_open(net, &p);
			exchange(net, p.send, p.recv, 1000, (uint64_t)i);
			pair_close(net, &p);
		}
		abi_down(net);
		if (i == 0)
			before = settled();
	}
	no_more_than(before);
}

/* The service thread ends without a finalize() once the last link has closed. */
static void idle_goes(struct abi *t)
{
	struct usage before;
	struct net *net;
	struct pair p;

	setenv("BRAID_LINK_IDLE", "0", 1);
	net = abi_up(t);
	before = usage();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	WAIT_FOR(count_threads() <= before.threads && count_fds() <= before.fds);
	pair_open(net, &p);		/* and comes again */
	exchange(net, p.send, p.recv, 1000, 2);
	pair_close(net, &p);
	abi_down(net);
}

/* -- contexts ------------------------------------------------------------------------------ */

/* Switches contexts: proxy.c makes its calls for net->ctx. */
static void as(struct net *net, void *ctx)
{
	net->ctx = ctx;
}

static void two_contexts(struct abi *t)
{
	struct net *net = abi_up(t);
	void *ctx[2] = { net->ctx, NULL };
	struct pair p[2][3];

	OK(net_init_ctx(net, &ctx[1], 2, -1, abi_log, NULL));
	TRUE(ctx[0] && ctx[1] && ctx[0] != ctx[1]);
	for (int i = 0; i < 6; i++) {
		as(net, ctx[i % 2]);
		pair_open(net, &p[i % 2][i / 2]);
	}
	for (int i = 0; i < 60; i++) {
		struct pair *one = &p[i % 2][i % 3];

		exchange(net, one->send, one->recv, (size_t)i * 1000, (uint64_t)i);
	}
	for (int i = 0; i < 3; i++)
		pair_close(net, &p[0][i]);
	OK(net_finalize_ctx(net, ctx[0]));
	for (int i = 0; i < 3; i++)
		exchange(net, p[1][i].send, p[1][i].recv, 200000, (uint64_t)i);
	as(net, ctx[1]);
	pair_close(net, &p[1][0]);
	pair_open(net, &p[1][0]);	/* it can also still connect */
	exchange(net, p[1][0].send, p[1][0].recv, 1000, 9);
	for (int i = 0; i < 3; i++)
		pair_close(net, &p[1][i]);
	abi_down(net);
}

/* One context ends with comms open and messages outstanding; the other context's messages go on. */
static void other_context_aborts(struct abi *t)
{
	struct net *net = abi_up(t);
	void *ctx[2] = { net->ctx, NULL };
	struct buf from, to;
	struct op ops[2];
	struct pair p[2];

	warns_expected();
	OK(net_init_ctx(net, &ctx[1], 2, -1, abi_log, NULL));
	for (int i = 0; i < 2; i++) {
		as(net, ctx[i]);
		pair_open(net, &p[i]);
	}
	for (int i = 0; i < 2; i++) {
		size_t size = 8 << 20;

		from = buf_new(net, p[i].send, size, 0);
		to = buf_new(net, p[i].recv, size, 0);
		fill(from.data, size, (uint64_t)i);
		ops[0] = op_recv(net, p[i].recv, &to, size, 0);
		ops[1] = op_send(net, p[i].send, &from, size, 0);
		ops_post(ops, 2);
	}
	OK(net_finalize_ctx(net, ctx[0]));	/* `ops` are those of ctx[1] */
	ops_run(ops, 2);
	filled(to.data, to.size, 1);
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p[1]);
	abi_down(net);
}

static void many_contexts(struct abi *t)
{
	enum { N = 20 };
	struct net *net = abi_up(t);
	unsigned order[N];
	struct usage before;
	void *ctx[N];

	OK(net_finalize(net));
	before = usage();
	for (int round = 0; round < (t->newest ? 20 : 3); round++) {
		for (unsigned i = 0; i < N; i++)
			OK(net_init_ctx(net, &ctx[i], i, -1, abi_log, NULL));
		shuffle(t, order, N);
		for (unsigned i = 0; i < N; i++)
			OK(net_finalize_ctx(net, ctx[order[i]]));
	}
	no_more_than(before);
	net_unload(net);
}

/* -- what is logged at the end -------------------------------------------------------------- */

static void traffic_told(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p[2];

	OK(net_finalize(net));
	OK(net_init(net, 3, -1, abi_hear("traffic: "), NULL));
	for (int i = 0; i < 2; i++)
		pair_open(net, &p[i]);
	exchange(net, p[0].send, p[0].recv, 1000, 1);
	exchange(net, p[0].send, p[0].recv, 0, 2);
	exchange(net, p[1].send, p[1].recv, 300000, 3);
	pair_close(net, &p[0]);
	abi_heard("");
	pair_close(net, &p[1]);
	abi_heard("traffic: sent 3 messages of 301000 bytes, received 3 of 301000, since it was found");
	pair_open(net, &p[0]);
	pair_close(net, &p[0]);
	abi_heard("");
	pair_open(net, &p[0]);
	exchange(net, p[0].send, p[0].recv, 24, 4);
	pair_close(net, &p[0]);
	abi_heard("traffic: sent 4 messages of 301024 bytes, received 4 of 301024, since it was found");
	abi_down(net);
}

/* The peer is this same process, which has both ends of the link. */
static void closed_links_told(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	OK(net_finalize(net));
	setenv("BRAID_LINK_IDLE", "0", 1);
	OK(net_init(net, 3, -1, abi_hear("idle link closed"), NULL));
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	abi_heard("");
	pair_close(net, &p);
	WAIT_FOR(abi_has_heard());
	abi_heard("idle link closed [link-closed]");
	abi_down(net);
}

/* -- a service thread that hangs ------------------------------------------------------------ */

static atomic_bool hangs, hung;

/* Overrides libc's epoll_wait() for the plugin: while `hangs`, its service thread does not return. */
__attribute__((visibility("default")))
int epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	static _Atomic(void *) next;
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	while (atomic_load(&hangs) && strcmp(name, "braid-service") == 0) {
		atomic_store(&hung, true);
		usleep(1000);
	}
	if (!next)
		next = dlsym(RTLD_NEXT, "epoll_wait");
	return ((int (*)(int, struct epoll_event *, int, int))next)(ep, ev, max, timeout);
}

static void thread_is_left(struct abi *t)
{
	struct usage before;
	struct net *net;
	struct pair p;

#ifdef __SANITIZE_THREAD__
	skip_because("ThreadSanitizer reports a thread that nobody joins, which this one is");
#endif
	net = abi_up(t);
	before = settled();
	warns_expected();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	atomic_store(&hangs, true);
	pair_close(net, &p);
	WAIT_FOR(atomic_load(&hung));
	OK(net_finalize(net));
	warned_with("thread-left");
	TRUE(strstr(net_last_warn(), "did not end within 6 s"));
	atomic_store(&hangs, false);	/* and it ends after all */
	no_more_than(before);
	net_unload(net);
}

static const struct abi_case cases[] = {
	CASE("a thousand times init leave nothing behind", init_often),
	CASE("contexts that were used leave nothing behind", use_often, .since = 11),
	CASE("a hundred times load, init and unload leave nothing behind", load_often, .every = true),
	CASE("with no comm left the threads and descriptors go, and come again", idle_goes,
	     .until = 10),
	CASE("two contexts do not notice each other's end", two_contexts, .since = 11),
	CASE("a context that aborts leaves the other's messages alone", other_context_aborts,
	     .since = 11),
	CASE("contexts end in any order", many_contexts, .since = 11),
	CASE("when the last comm is closed the traffic is reported, if there was any", traffic_told,
	     .every = true),
	CASE("an unused link is closed, and that is reported", closed_links_told, ONCE),
	CASE("a service thread that hangs is left behind, and that is reported", thread_is_left, ONCE),
};

ABI_MAIN(cases)
