/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rdma_calls.c - each verbs call fails once, the end comes early, a thousand connections come and go.
 *
 * BRAID_TEST_RDMA_CALLS=1 fails each call, not one in STRIDE.  That takes minutes, so set
 * BRAID_TEST_SLOW=20 as well.
 */
#include "tests/abi/rdma.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRIDE = 61 };

/* -- calls --------------------------------------------------------------------------------- */

static long *most_calls;		/* the most that any life has made */
static atomic_long *calls_named;	/* warnings that had to name the call */

/* A warning that a lane has no queue pair names the call that failed. */
static void names_call(const char *which)
{
	static const char *const calls[] = { "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp",
					     "ibv_create_ah", "ibv_modify_qp", "rdma_create_id",
					     "rdma_resolve_addr", "rdma_resolve_route", "rdma_connect" };
	const char *name = fake_failed(), *line = was_said("this end can't have verbs (");

	if (!line || !name || strcmp(which, "setup"))
		return;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(name, calls[i]) && strncmp(strchr(line, '(') + 1, name, strlen(name)))
			FAIL("%s failed, and what was said is: %.200s", name, line);
	atomic_fetch_add(calls_named, 1);
}

/* Two comms; one posted receive loses its memory, so that the lane is set up again. */
static void life(struct abi *t, unsigned k, const char *which)
{
	struct pair a, b;
	struct net *net;
	struct buf buf;
	struct op op;
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "fail %u %s", k, which);
	ctl(cmd);
	net = heard_up(t);
	pair_open(net, &a);
	exchange(net, a.send, a.recv, 100, 1);
	exchange(net, a.send, a.recv, MOST, 2);
	pair_open(net, &b);
	exchange(net, b.send, b.recv, MOST, 3);
	buf = buf_new(net, b.recv, MOST, 0);
	op = op_recv(net, b.recv, &buf, MOST, 0);
	ops_post(&op, 1);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, a.send, a.recv, sizes[i], i);
	buf_free(net, &buf);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, a.send, a.recv, sizes[i], i);
	pair_close(net, &b);
	pair_close(net, &a);
	abi_down(net);
	objects_gone();
	names_call(which);
	if (ctl("calls") > *most_calls)
		*most_calls = ctl("calls");
}

static void each_call(struct abi *t, const char *kind, const char *which)
{
	/* Without events, ending a queue pair that has sent a request does wait for the answer. */
	const char *more = strstr(which, " on") ? ",mpa=200" : "";
	unsigned step = getenv("BRAID_TEST_RDMA_CALLS") ? 1 : STRIDE, k = 0;
	int status = 0;

	most_calls = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRUE(most_calls != MAP_FAILED);
	calls_named = (atomic_long *)&most_calls[1];
	unsetenv("BRAID_TEST_RDMA_CALLS");
	setenv("BRAID_LINK_IDLE", "1", 1);
	/* No call fails in the first life, which counts them. */
	for (; k <= *most_calls; k += k ? step : 1 + rnd_below(t, step)) {
		pid_t pid;

		fflush(NULL);
		nic(kind, more);
		pid = fork();
		TRUE(pid >= 0);
		if (!pid) {
			nic(kind, more);
			warns_expected();
			life(t, k, which);
			_exit(0);
		}
		TRUE(waitpid(pid, &status, 0) == pid);
		if (status)
			FAIL("call %u of %s of %s: status %x", k, which, kind, status);
	}
	TRUE(*most_calls > 50);
	printf("%s, %s: %ld calls, one in %u was failed; %ld times a lane had to do without\n", kind,
	       which, *most_calls, step, (long)*calls_named);
}

static void setup_calls(struct abi *t, const char *kind)
{
	each_call(t, kind, "setup");
}

static void setup_calls_on(struct abi *t, const char *kind)
{
	each_call(t, kind, "setup EIO on");
}

static void post_calls(struct abi *t, const char *kind)
{
	each_call(t, kind, "post");
}

/* -- the end comes early ------------------------------------------------------------------- */

/* finalize() while a connection is half set up, or while a lane is dialled again. */
static void early(struct abi *t, const char *kind)
{
	warns_expected();
	setenv("BRAID_LANES", "2", 1);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t until;
		struct net *net;
		struct pair p;

		nic(kind, "");
		net = abi_up(t);
		pair_listen(net, &p);
		if (i % 3 == 2) {
			WAIT_FOR(pair_step(net, &p));
			exchange(net, p.send, p.recv, MOST, i);
			while (break_qp(rnd_below(t, QPNS)))
				;
		}
		for (until = now_us() + rnd_below(t, 6000); now_us() < until;)
			pair_step(net, &p);
		pair_close(net, &p);
		if (i % 3)
			nap_ms(rnd_below(t, 4));
		abi_down(net);
		objects_gone();
	}
}

/* -- again and again ----------------------------------------------------------------------- */

static void cycles(struct abi *t, const char *kind)
{
	uint64_t from = now_us();
	unsigned fds = 0;
	struct net *net;

	nic(kind, "");
	setenv("BRAID_SHARE", "0", 1);
	setenv("BRAID_STAT", "0", 1);	/* its thread opens a socket at any time */
	net = abi_up(t);
	for (unsigned i = 0; i < 1000; i++) {
		struct pair p;

		pair_open(net, &p);
		exchange(net, p.send, p.recv, i % 2 ? 100 : 20000, i);
		pair_close(net, &p);
		if (i == 100)
			fds = count_fds();
	}
	printf("%s: %u us a cycle\n", kind, (unsigned)((now_us() - from) / 1000));
	WAIT_FOR(!ctl("live qp") && ctl("live mr") <= MRS_KEPT && !ctl("live cq"));
	TRUE(count_fds() <= fds);
	abi_down(net);
	objects_gone();
}

/* -- events -------------------------------------------------------------------------------- */

enum { EVENT_READS = 1000 };	/* about twenty are needed */

/*
 * finalize() waits while a request has no answer, since its queue pair can't be destroyed.  Each read
 * of an event is a system call: there is one for each event, and few in vain.
 */
static void event_reads(struct abi *t)
{
	struct net *net;
	struct pair p;
	uint64_t until;
	long calls;

	warns_expected();
	setenv("BRAID_LANES", "1", 1);
	nic("iwarp", "");
	net = abi_up(t);
	ctl("requests nic0 600");
	ctl("fail 0 rdma_get_cm_event");
	pair_listen(net, &p);
	for (until = now_us() + 10000000; !ctl("live qp") && now_us() < until;)
		pair_step(net, &p);
	pair_close(net, &p);
	abi_down(net);
	calls = ctl("calls");
	objects_gone();
	printf("%ld calls of rdma_get_cm_event\n", calls);
	TRUE(calls > 0 && calls < EVENT_READS);
}

EACH_KIND(setup_calls)
EACH_KIND(setup_calls_on)
EACH_KIND(post_calls)
EACH_KIND(early)
EACH_KIND(cycles)

static const struct abi_case cases[] = {
	BOTH("each call that sets something up fails", setup_calls),
	BOTH("each call that sets something up fails, and all that follow", setup_calls_on),
	BOTH("each call that moves data fails", post_calls),
	BOTH("a thousand connections leave nothing", cycles),
	BOTH("the end comes while a connection is made", early),
	CASE("iWARP: events are read when they come, not in a spin", event_reads, LONG),
};

RDMA_MAIN(cases)
