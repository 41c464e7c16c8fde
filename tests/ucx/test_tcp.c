/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_tcp.c - how UCX is set up over its TCP.  tests/ucx/tcp.sh runs it.
 */
#include "tests/abi/abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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

/* UCX refuses to send pieces that are larger than those it receives. */
static void users_pieces(struct abi *t)
{
	setenv("UCX_TCP_RX_SEG_SIZE", "16K", 1);
	most_with(t);
}

/* Of UCX's sends, the next one with data is cut short, and the one after that fails. */
enum { WHOLE, CUT_SHORT, FAIL };
static atomic_int sends = WHOLE;
static atomic_uint failed;

/* How many of `len` bytes UCX may send now; -1: errno says why not. */
static ssize_t may_send(const void *caller, size_t len)
{
	Dl_info by;

	if (len < 4096 || !dladdr(caller, &by) || !strstr(by.dli_fname, "libucs"))
		return (ssize_t)len;
	switch (atomic_load(&sends)) {
	case CUT_SHORT:
		atomic_store(&sends, FAIL);
		return 100;
	case FAIL:
		atomic_store(&sends, WHOLE);
		atomic_fetch_add(&failed, 1);
		errno = ECONNRESET;
		return -1;
	default:
		return (ssize_t)len;
	}
}

/* These two override libc's for the libraries, too. */
__attribute__((visibility("default")))
ssize_t send(int fd, const void *data, size_t len, int flags)
{
	ssize_t n = may_send(__builtin_return_address(0), len);

	return n < 0 ? n : sendto(fd, data, (size_t)n, flags, NULL, 0);
}

__attribute__((visibility("default")))
ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static _Atomic(void *) next;
	struct iovec cut;
	struct msghdr short_msg = { .msg_iov = &cut, .msg_iovlen = 1 };
	size_t len = 0;
	ssize_t n;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	n = may_send(__builtin_return_address(0), len);
	if (n < 0)
		return n;
	if (!next)
		next = dlsym(RTLD_NEXT, "sendmsg");
	if ((size_t)n < len) {
		cut = msg->msg_iov[0];
		cut.iov_len = cut.iov_len < (size_t)n ? cut.iov_len : (size_t)n;
		msg = &short_msg;
	}
	return ((ssize_t (*)(int, const struct msghdr *, int))next)(fd, msg, flags);
}

/* UCX completes such a send twice, and aborts the process, if the memory was the caller's. */
static void send_fails(struct abi *t)
{
	struct net *net;
	struct pair p;

	setenv("BRAID_TRANSPORTS", "ucx,tcp", 1);
	net = abi_up(t);
	warns_expected();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1 << 20, 1);
	EQ(0, atomic_load(&failed));
	atomic_store(&sends, CUT_SHORT);
	exchange(net, p.send, p.recv, 8 << 20, 1);
	EQ(1, atomic_load(&failed));
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("UCX fetches one event a call", one_event, ONCE),
	CASE("a send of UCX's fails part way: TCP carries the message", send_fails, ONCE),
	CASE("UCX_TCP_RX_SEG_SIZE is left as the user sets it", users_pieces, ONCE),
	CASE("UCX_TCP_MAX_POLL is left as the user sets it", users_choice, ONCE),
};

ABI_MAIN(cases)
