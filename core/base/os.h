/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * os.h - the one table through which time, randomness, sockets and threads reach Braid.
 *
 * Everything in core/ and in the stream engine goes through braid_os, so that a simulator can put
 * a virtual clock and virtual sockets in its place.  Members have the meaning of the call they
 * are named after; descriptors are close-on-exec and non-blocking, and known to the table, so
 * that a forked child can close them all.
 */
#ifndef BRAID_BASE_OS_H
#define BRAID_BASE_OS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "topo/cpus.h"
#include "topo/route.h"

struct ifaddrs;

struct braid_os {
	uint64_t (*now_ns)(void);			/* monotonic */
	void (*nap)(uint64_t ns);			/* less than a second */
	int (*random)(void *buf, size_t len);		/* cryptographic; 0 or a negative errno */

	int (*socket)(int family, int protocol);	/* SOCK_STREAM */
	int (*bind)(int fd, const struct sockaddr *sa, socklen_t len);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, struct sockaddr *sa, socklen_t *len);
	int (*connect)(int fd, const struct sockaddr *sa, socklen_t len);
	int (*getsockname)(int fd, struct sockaddr *sa, socklen_t *len);
	int (*getpeername)(int fd, struct sockaddr *sa, socklen_t *len);
	int (*setsockopt)(int fd, int level, int name, const void *val, socklen_t len);
	int (*getsockopt)(int fd, int level, int name, void *val, socklen_t *len);
	ssize_t (*sendmsg)(int fd, const struct msghdr *msg, int flags);
	ssize_t (*recvmsg)(int fd, struct msghdr *msg, int flags);
	ssize_t (*send)(int fd, const void *buf, size_t len, int flags);
	ssize_t (*recv)(int fd, void *buf, size_t len, int flags);
	int (*shutdown)(int fd);			/* both ways */
	int (*close)(int fd);
	braid_route_fn *route;				/* topo/route.h */
	/* A descriptor to recv() from when an interface or one of its addresses has changed. */
	int (*watch_addrs)(void);
	int (*getifaddrs)(struct ifaddrs **ret);
	void (*freeifaddrs)(struct ifaddrs *list);
	void (*note)(int fd, bool ours);		/* a descriptor from a library */

	int (*epoll_create)(void);
	int (*epoll_ctl)(int ep, int op, int fd, struct epoll_event *ev);
	int (*epoll_wait)(int ep, struct epoll_event *ev, int max, int timeout_ms);
	int (*eventfd)(void);
	int (*wake)(int efd);				/* one write */
	void (*unwake)(int efd);			/* one read */

	/* Starts a named thread with all signals blocked; it ends by returning. */
	int (*thread_start)(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name);
	int (*thread_join)(pthread_t thread, unsigned timeout_ms);
	/* Restrict it to those of its CPUs that are in `near`; if there are none, it keeps all. */
	void (*thread_near)(pthread_t thread, const struct braid_cpus *near);
	unsigned (*cpus)(void);				/* that this thread may run on */
	/* Ever: CPU time of this process; how long this thread was ready, and waited for a CPU. */
	bool (*cpu)(uint64_t *ret_used_ms, uint64_t *ret_queued_ms);	/* false: not known */
	void (*discard)(void *page, size_t len);	/* whole pages; NULL: it can't */
};

extern const struct braid_os *braid_os;

/*
 * Give the pages that lie within malloc()ed memory back to the system.  Their bytes are lost; the
 * memory stays allocated, and is backed again when it is next written.
 */
void braid_os_discard(void *mem, size_t len);

/*
 * The time from `then` to `now`; 0 if `then` is later, since another thread, or a later step of
 * this turn, may have set it after `now` was read.
 */
static inline uint64_t braid_since(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}

/* True in a child that forked without exec: everything of Braid's is closed and wiped there. */
extern atomic_bool braid_forked;

/*
 * Arrange, once and under the caller's lock, that a forked child closes Braid's descriptors and
 * then calls `wipe`, which must be async-signal-safe.  0 or a negative errno.
 */
int braid_os_atfork(void (*wipe)(void));

/*
 * Restrict threads that are started from now on to those CPUs of `near` that they inherit.  If
 * there are none, or `near` is NULL, they run on all CPUs that they inherit.  Called from init.
 */
void braid_os_near(const struct braid_cpus *near);

/*
 * A spinlock.  The data path only tries it.  A thread that may wait spins and yields, and then goes
 * before those that try: a sender in the kernel may hold its link's lock nearly all the time.
 */
struct braid_lock {
	atomic_bool held;
	atomic_ushort waiting;		/* threads that wait; braid_trylock() fails then */
#ifdef BRAID_CHECK_LOCKS
	_Atomic pthread_t owner;	/* of the thread that holds it; else 0 */
#endif
};

/*
 * At the head of a function whose callers hold that lock.  It aborts if this thread does not hold
 * it, in builds with --enable-debug, --enable-sanitizer or --enable-werror; else it does nothing.
 */
#ifdef BRAID_CHECK_LOCKS
#define braid_assert_locked(lock) braid_lock_check(lock, #lock, __func__)
void braid_lock_check(const struct braid_lock *l, const char *lock, const char *func);
#else
#define braid_assert_locked(lock) ((void)(lock))
#endif

static inline bool braid_lock_owned(struct braid_lock *l, bool mine)
{
#ifdef BRAID_CHECK_LOCKS
	atomic_store_explicit(&l->owner, mine ? pthread_self() : 0, memory_order_relaxed);
#endif
	(void)l;
	return mine;
}

/* Take the lock if it is free, even if others wait for it. */
static inline bool braid_lock_take(struct braid_lock *l)
{
	return !atomic_load_explicit(&l->held, memory_order_relaxed) &&
	       !atomic_exchange_explicit(&l->held, true, memory_order_acquire) &&
	       braid_lock_owned(l, true);
}

static inline bool braid_trylock(struct braid_lock *l)
{
	return !atomic_load_explicit(&l->waiting, memory_order_relaxed) && braid_lock_take(l);
}

/*
 * Keep those that only try the lock away from it, until braid_lock_unclaim().  One thread at a time
 * has such a claim, and takes the lock by braid_lock_take_claimed() unless others wait for it.
 */
static inline void braid_lock_claim(struct braid_lock *l)
{
	atomic_fetch_add(&l->waiting, 1);
}

static inline void braid_lock_unclaim(struct braid_lock *l)
{
	atomic_fetch_sub(&l->waiting, 1);
}

static inline bool braid_lock_take_claimed(struct braid_lock *l)
{
	return atomic_load_explicit(&l->waiting, memory_order_relaxed) == 1 && braid_lock_take(l);
}

static inline void braid_unlock(struct braid_lock *l)
{
	braid_lock_owned(l, false);
	atomic_store_explicit(&l->held, false, memory_order_release);
}

/* Set a flag without a barrier: a lock orders it, or other threads need not see it at once. */
static inline void braid_hint(atomic_bool *flag, bool value)
{
	atomic_store_explicit(flag, value, memory_order_relaxed);
}

/* Add to a counter that has one writer at a time.  Readers need no lock. */
static inline void braid_count(_Atomic uint64_t *counter, uint64_t more)
{
	uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/* Not for the data path. */
void braid_lock_wait(struct braid_lock *l);
void braid_yield(void);

/*
 * Never inlined, so that a caller that rarely makes the call need not save registers for it.  What
 * this and BRAID_HOT buy: docs/results/hot-code.md.
 */
#define BRAID_APART __attribute__((noinline))

/* For functions that begin or receive a message: all calls are inlined, except BRAID_APART. */
#define BRAID_HOT __attribute__((flatten, hot))

#define braid_container(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

#endif
