/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * os.c - the real clock, sockets and threads behind braid_os.
 *
 * Descriptors are noted in a bitmap when made and forgotten when closed.  It is read in one place
 * only: the child of a fork, which must close them without taking any lock.
 *
 * Random bytes come from getrandom(), or from /dev/urandom where a seccomp filter or an old kernel
 * refuses that call.
 */
#include "core/base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "topo/thread.h"

enum { FDS_MAX = 1 << 20, WORD_BITS = 64 };

static _Atomic uint64_t fd_bits[FDS_MAX / WORD_BITS];	/* zero pages until used */
static atomic_int fd_top;				/* one past the highest ever noted */
static void (*child_wipe)(void);
static struct braid_cpus near_cpus;			/* empty: anywhere */

atomic_bool braid_forked;

/* If stdout is closed, our descriptor must not get its number, or others would print into it. */
static int above_stdio(int fd)
{
	int up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), err = errno;

	close(fd);
	errno = err;
	return up;
}

static int fd_note(int fd)
{
	int top;

	if (fd >= 0 && fd <= STDERR_FILENO)
		fd = above_stdio(fd);
	if (fd < 0)
		return fd;
	if (fd >= FDS_MAX) {
		close(fd);
		errno = EMFILE;
		return -1;
	}
	atomic_fetch_or(&fd_bits[fd / WORD_BITS], 1ull << (fd % WORD_BITS));
	top = atomic_load(&fd_top);
	while (fd >= top && !atomic_compare_exchange_weak(&fd_top, &top, fd + 1))
		;
	return fd;
}

static int os_close(int fd)
{
	if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_and(&fd_bits[fd / WORD_BITS], ~(1ull << (fd % WORD_BITS)));
	return close(fd);
}

static int os_shutdown(int fd)
{
	return shutdown(fd, SHUT_RDWR);
}

static void os_note(int fd, bool ours)
{
	if (ours)
		fd_note(fd);
	else if (fd >= 0 && fd < FDS_MAX)
		atomic_fetch_and(&fd_bits[fd / WORD_BITS], ~(1ull << (fd % WORD_BITS)));
}

static void forked_child(void)
{
	int top = atomic_load(&fd_top);

	atomic_store(&braid_forked, true);
	for (int fd = 0; fd < top; fd++) {
		if (atomic_load(&fd_bits[fd / WORD_BITS]) >> (fd % WORD_BITS) & 1)
			close(fd);
	}
	if (child_wipe)
		child_wipe();
}

int braid_os_atfork(void (*wipe)(void))
{
	static bool done;
	int err;

	if (done)
		return 0;
	child_wipe = wipe;
	err = -pthread_atfork(NULL, NULL, forked_child);
	done = !err;
	return err;
}

void braid_yield(void)
{
	sched_yield();
}

BRAID_APART void braid_lock_wait(struct braid_lock *l)
{
	const struct timespec nap = { .tv_nsec = 20000 };

	if (braid_trylock(l))
		return;
	atomic_fetch_add(&l->waiting, 1);
	for (unsigned spins = 0; !braid_lock_take(l); spins++) {
		if (spins > 120)
			nanosleep(&nap, NULL);	/* its holder may need this very CPU */
		else if (spins > 100)
			braid_yield();
	}
	atomic_fetch_sub(&l->waiting, 1);
}

#ifdef BRAID_CHECK_LOCKS
void braid_lock_check(const struct braid_lock *l, const char *lock, const char *func)
{
	if (atomic_load(&l->held) && atomic_load(&l->owner) == pthread_self())
		return;
	fprintf(stderr, "braid: %s() was called without %s\n", func, lock);
	abort();
}
#endif

static uint64_t os_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int random_from_file(char *p, size_t len)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC), err = 0;
	struct stat st;

	if (fd < 0)
		return errno == EACCES ? -EPERM : -errno;	/* -EACCES means a wrong key */
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISCHR(st.st_mode))
		err = -ENODEV;		/* a container's image may have a plain file there */
	while (len && !err) {
		ssize_t n = read(fd, p, len);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (!n || errno != EINTR) {
			err = n ? -errno : -EIO;
		}
	}
	close(fd);
	return err;
}

static int os_random(void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (!n || errno != EINTR) {
			return random_from_file(p, len);
		}
	}
	return 0;
}

static int os_socket(int family, int protocol)
{
	return fd_note(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

static int os_watch_addrs(void)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK |
				  RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };
	int fd = fd_note(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC,
				NETLINK_ROUTE));

	if (fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		int err = errno;

		os_close(fd);
		errno = err;
		return -1;
	}
	return fd;
}

static int os_accept(int fd, struct sockaddr *sa, socklen_t *len)
{
	return fd_note(accept4(fd, sa, len, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static int os_epoll_create(void)
{
	return fd_note(epoll_create1(EPOLL_CLOEXEC));
}

static int os_eventfd(void)
{
	return fd_note(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

static int os_wake(int efd)
{
	uint64_t one = 1;

	return write(efd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN ? 0 : -errno;
}

static void os_unwake(int efd)
{
	uint64_t count;

	while (read(efd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

void braid_os_near(const struct braid_cpus *near)
{
	near_cpus = near ? *near : (struct braid_cpus){ .bits = { 0 } };
}

static void os_thread_near(pthread_t thread, const struct braid_cpus *near)
{
	struct braid_cpus cpus = { .bits = { 0 } };
	cpu_set_t *set = (cpu_set_t *)(void *)cpus.bits;

	if (pthread_getaffinity_np(thread, sizeof(cpus), set) != 0)
		return;
	braid_cpus_keep(&cpus, near);
	if (!braid_cpus_empty(&cpus))
		pthread_setaffinity_np(thread, sizeof(cpus), set);
}

static unsigned os_cpus(void)
{
	struct braid_cpus cpus = { .bits = { 0 } };
	cpu_set_t *set = (cpu_set_t *)(void *)cpus.bits;

	if (pthread_getaffinity_np(pthread_self(), sizeof(cpus), set) != 0)
		return 1;
	return (unsigned)CPU_COUNT_S(sizeof(cpus), set);
}

static int os_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(ret, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err) {
		pthread_setname_np(*ret, name);
		os_thread_near(*ret, &near_cpus);
	}
	return -err;
}

static void os_nap(uint64_t ns)
{
	const struct timespec nap = { .tv_nsec = (long)ns };

	nanosleep(&nap, NULL);
}

static int os_thread_join(pthread_t thread, unsigned timeout_ms)
{
	uint64_t end = os_now_ns() + timeout_ms * 1000000ull;
	int err;

	/* pthread_timedjoin_np() uses a clock that jumps when somebody sets the time. */
	while ((err = pthread_tryjoin_np(thread, NULL)) == EBUSY && os_now_ns() < end)
		os_nap(100000);
	return -err;
}

static bool os_cpu(uint64_t *ret_used_ms, uint64_t *ret_queued_ms)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts))
		return false;
	*ret_used_ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	*ret_queued_ms = braid_thread_queued_ms();
	return true;
}

static void os_discard(void *page, size_t len)
{
	madvise(page, len, MADV_DONTNEED);
}

void braid_os_discard(void *mem, size_t len)
{
	uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t beg = ((uintptr_t)mem + size - 1) / size * size;
	uintptr_t end = ((uintptr_t)mem + len) / size * size;

	if (mem && beg < end && braid_os->discard)
		braid_os->discard((char *)mem + (beg - (uintptr_t)mem), end - beg);
}

static const struct braid_os real = {
	.now_ns = os_now_ns,
	.nap = os_nap,
	.random = os_random,
	.socket = os_socket,
	.bind = bind,
	.listen = listen,
	.accept = os_accept,
	.connect = connect,
	.getsockname = getsockname,
	.getpeername = getpeername,
	.setsockopt = setsockopt,
	.getsockopt = getsockopt,
	.sendmsg = sendmsg,
	.recvmsg = recvmsg,
	.send = send,
	.recv = recv,
	.shutdown = os_shutdown,
	.close = os_close,
	.route = braid_route_get,
	.watch_addrs = os_watch_addrs,
	.getifaddrs = getifaddrs,
	.freeifaddrs = freeifaddrs,
	.note = os_note,
	.epoll_create = os_epoll_create,
	.epoll_ctl = epoll_ctl,
	.epoll_wait = epoll_wait,
	.eventfd = os_eventfd,
	.wake = os_wake,
	.unwake = os_unwake,
	.thread_start = os_thread_start,
	.thread_join = os_thread_join,
	.thread_near = os_thread_near,
	.cpus = os_cpus,
	.cpu = os_cpu,
	.discard = os_discard,
};

const struct braid_os *braid_os = &real;
