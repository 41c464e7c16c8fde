/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_tcp.c - how UCX is set up over its TCP.  tests/ucx/tcp.sh runs it.
 */
#include "tests/abi/abi.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static atomic_int most;			/* events that a call of UCX's TCP had room for */

/* Overrides libc's epoll_wait() for the libraries, too. */
__attribute__((visibility("default")))
int epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	static _Atomic(void *) next;
	Dl_info by;

	if (dladdr(__builtin_return_address(0), &by) && strstr(by.dli_fname, "libucs") &&
	    timeout == 0 && max > atomic_load(&most))
		atomic_store(&most, max);
	if (!next)
		next = dlsym(RTLD_NEXT, "epoll_wait");
	return ((int (*)(int, struct epoll_event *, int, int))next)(ep, ev, max, timeout);
}

static int most_with(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	atomic_store(&most, 0);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1 << 20, 1);
	pair_close(net, &p);
	abi_down(net);
	return atomic_load(&most);
}

/* Of several events, one may close the endpoint of another; UCX 1.13 then aborts the process. */
static void one_event(struct abi *t)
{
	EQ(1, most_with(t));
}

static void users_choice(struct abi *t)
{
	setenv("UCX_TCP_MAX_POLL", "5", 1);
	EQ(5, most_with(t));
}

static const struct abi_case cases[] = {
	CASE("UCX fetches one event a call", one_event, ONCE),
	CASE("UCX_TCP_MAX_POLL is left as the user sets it", users_choice, ONCE),
};

ABI_MAIN(cases)
