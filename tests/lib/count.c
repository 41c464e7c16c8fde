/* SPDX-License-Identifier: BSD-3-Clause */
/* count.c - see count.h. */
#undef _FORTIFY_SOURCE		/* with it, libc's headers define a recv() of their own */

#include "tests/lib/count.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

enum counter { SENDS, RECVS, FULL, EMPTY, SENT, RECEIVED, WAITS, COUNTERS };

static _Thread_local uint64_t mine[COUNTERS];
static _Atomic uint64_t all[COUNTERS];

static void add(enum counter c, uint64_t n)
{
	mine[c] += n;
	atomic_fetch_add_explicit(&all[c], n, memory_order_relaxed);
}

static struct calls read_all(const uint64_t *v)
{
	return (struct calls){
		.sends = v[SENDS], .recvs = v[RECVS], .full = v[FULL], .empty = v[EMPTY],
		.sent = v[SENT], .received = v[RECEIVED], .waits = v[WAITS],
	};
}

struct calls calls_mine(void)
{
	return read_all(mine);
}

struct calls calls_all(void)
{
	uint64_t v[COUNTERS];

	for (int i = 0; i < COUNTERS; i++)
		v[i] = atomic_load(&all[i]);
	return read_all(v);
}

struct calls calls_since(struct calls now, struct calls then)
{
	return (struct calls){
		.sends = now.sends - then.sends, .recvs = now.recvs - then.recvs,
		.full = now.full - then.full, .empty = now.empty - then.empty,
		.sent = now.sent - then.sent, .received = now.received - then.received,
		.waits = now.waits - then.waits,
	};
}

/* The next definition, looked up once.  Two threads may both look it up, and find the same. */
static void *next(_Atomic(void *) *known, const char *name)
{
	void *fn = atomic_load_explicit(known, memory_order_acquire);

	if (!fn) {
		fn = dlsym(RTLD_NEXT, name);
		atomic_store_explicit(known, fn, memory_order_release);
	}
	return fn;
}

#define NEXT(ret, name, ...)							\
	static _Atomic(void *) known_;						\
	ret (*real_)(__VA_ARGS__) = (ret (*)(__VA_ARGS__))next(&known_, name)

static ssize_t sent(ssize_t n)
{
	add(n > 0 ? SENDS : FULL, 1);
	if (n > 0)
		add(SENT, (uint64_t)n);
	return n;
}

static ssize_t received(ssize_t n)
{
	add(n > 0 ? RECVS : EMPTY, 1);
	if (n > 0)
		add(RECEIVED, (uint64_t)n);
	return n;
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	NEXT(ssize_t, "send", int, const void *, size_t, int);

	return sent(real_(fd, buf, len, flags));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	NEXT(ssize_t, "sendmsg", int, const struct msghdr *, int);

	return sent(real_(fd, msg, flags));
}

EXPORT ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	NEXT(ssize_t, "recv", int, void *, size_t, int);

	return received(real_(fd, buf, len, flags));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	NEXT(ssize_t, "recvmsg", int, struct msghdr *, int);

	return received(real_(fd, msg, flags));
}

EXPORT int epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	NEXT(int, "epoll_wait", int, struct epoll_event *, int, int);

	add(WAITS, 1);
	return real_(ep, ev, max, timeout);
}
