/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_pool.c - links outlive their comms, and comms between the same two processes share one.
 *
 * Promised: the second comm and the thousandth take no new descriptor, at most 16 KiB at each end
 * and a fraction of the first one's time, and wait for no thread of Braid's.  An idle link holds at
 * most 64 KiB of memory.  Idle links are bounded in number.  Sharing can be turned off.
 */
#include "tests/abi/abi.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMS = 1000, PEERS = 128, IDLE_MAX = 64 << 10, COMM_MAX = 16 << 10 };

static bool any_stream(int fd)
{
	(void)fd;
	return true;
}

/* No further lanes and no socket for braid stat, which may open at any time and upset the counts. */
static void no_latecomers(void)
{
	setenv("BRAID_LANES", "1", 1);
	setenv("BRAID_STAT", "0", 1);
}

/* Bytes that malloc() has handed out; 0 where a sanitizer replaces it. */
static size_t heap(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* -- one after another ------------------------------------------------------------------------ */

static void taker(struct abi *t, int fd)
{
	static void *recv[COMMS];
	struct net *net = abi_up(t);
	unsigned fds = 0;
	size_t bytes = 0;

	for (int i = 0; i < COMMS; i++) {
		recv[i] = recv_from(net, fd);
		if (i)
			continue;
		fds = count_fds();
		bytes = heap();
	}
	TRUE(heap() <= bytes + (size_t)COMMS * COMM_MAX);
	WAIT_FOR(count_fds() <= fds);	/* some may be about to close */
	recv_one(net, recv[0], 1000, 1);
	recv_one(net, recv[COMMS - 1], 1000, 2);
	for (int i = 0; i < COMMS; i++)
		OK(net_close_recv(net, recv[i]));
	meet(fd);
	abi_down(net);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void thousand(struct abi *t)
{
	static void *send[COMMS];
	static uint64_t us[COMMS];
	uint64_t first, tenth;
	struct peer peer;
	struct net *net;
	unsigned fds = 0;
	size_t bytes = 0;

	no_latecomers();
	peer = peer_start(t, taker);
	net = abi_up(t);
	for (int i = 0; i < COMMS; i++) {
		_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];

		take(peer.fd, handle, sizeof(handle));
		us[i] = now_us();
		WAIT_FOR(connect_step(net, handle, &send[i]));
		us[i] = now_us() - us[i];
		if (i)
			continue;
		fds = count_fds();
		bytes = heap();
	}
	bytes = heap() - bytes;
	TRUE(bytes <= (size_t)COMMS * COMM_MAX);
	WAIT_FOR(count_fds() <= fds);
	first = us[0];
	qsort(us + 1, COMMS - 1, sizeof(us[0]), by_value);
	tenth = us[COMMS / 10];
	printf("v%d: the first of %d connects took %llu us, of the others a tenth at most %llu us "
	       "(%.3f of it, promised 0.2), half %llu, the longest %llu; no descriptor more, "
	       "%zu bytes each\n",
	       t->abi, COMMS, (unsigned long long)first, (unsigned long long)tenth,
	       (double)tenth / (double)first, (unsigned long long)us[COMMS / 2],
	       (unsigned long long)us[COMMS - 1], bytes / (COMMS - 1));
	/* Ten times the promise.  On a busy host most comms wait for a CPU; the first may not. */
	TRUE(tenth <= 2 * first);
	send_one(net, send[0], 1000, 1);
	send_one(net, send[COMMS - 1], 1000, 2);
	for (int i = 0; i < COMMS; i++)
		OK(net_close_send(net, send[i]));
	meet(peer.fd);
	abi_down(net);
	peer_join(&peer);
}

/* -- by the calling threads alone ------------------------------------------------------------- */

/* The id of the process's thread of that name, or 0. */
static pid_t thread_named(pid_t pid, const char *name)
{
	char path[64], text[32];
	struct dirent *d;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir))) {
		int tid = atoi(d->d_name);
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, tid);
		f = fopen(path, "r");
		if (f && fgets(text, sizeof(text), f)) {
			text[strcspn(text, "\n")] = '\0';
			found = strcmp(text, name) ? 0 : tid;
		}
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Is the service thread in epoll_wait()?  There it holds no lock. */
static bool is_waiting(pid_t tid)
{
	char path[64];
	long nr = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)tid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%ld", &nr) != 1)
		nr = -1;
	if (f)
		fclose(f);
	return nr == SYS_epoll_wait || nr == SYS_epoll_pwait;
}

/* Stops the service thread of a process while it waits; false: ptrace() is not allowed here. */
static bool freeze(pid_t pid)
{
	pid_t tid = thread_named(pid, "braid-service");

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
		return false;
	for (;;) {
		if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) || waitpid(tid, NULL, __WALL) != tid)
			return false;
		if (is_waiting(tid))
			return true;
		ptrace(PTRACE_CONT, tid, NULL, NULL);
		usleep(1000);
	}
}

/* Reports whether it could stop the service threads of two processes.  They go on when it ends. */
static void jailer(struct abi *t, int fd)
{
	pid_t pid[2];
	bool frozen;

	(void)t;
	take(fd, pid, sizeof(pid));
	frozen = freeze(pid[0]) && freeze(pid[1]);
	give(fd, &frozen, sizeof(frozen));
	meet(fd);
}

static void second_taker(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv[2];

	recv[0] = recv_from(net, fd);
	meet(fd);			/* the service threads are stopped */
	recv[1] = recv_from(net, fd);
	meet(fd);			/* the service threads go on */
	recv_one(net, recv[1], 1000, 5);
	for (int i = 0; i < 2; i++)
		OK(net_close_recv(net, recv[i]));
	meet(fd);
	abi_down(net);
}

static void second_alone(struct abi *t)
{
	struct peer guard, peer;
	struct net *net;
	void *send[2];
	bool frozen;

	no_latecomers();
	peer = peer_start(t, second_taker);
	guard = peer_start(t, jailer);
	net = abi_up(t);
	send[0] = send_to(net, peer.fd);
	give(guard.fd, (pid_t[]){ getpid(), peer.pid }, 2 * sizeof(pid_t));
	take(guard.fd, &frozen, sizeof(frozen));
	meet(peer.fd);
	send[1] = send_to(net, peer.fd);
	meet(guard.fd);
	peer_join(&guard);
	meet(peer.fd);
	send_one(net, send[1], 1000, 5);
	for (int i = 0; i < 2; i++)
		OK(net_close_send(net, send[i]));
	meet(peer.fd);
	abi_down(net);
	peer_join(&peer);
	if (!frozen)
		skip_because("no thread of another process may be stopped here (ptrace)");
}

/* -- many peers ------------------------------------------------------------------------------- */

static void visitor(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	send_one(net, send, 100000, 3);
	OK(net_close_send(net, send));
	meet(fd);
	abi_down(net);
}

/* Receives a message from a peer and closes the comm: an idle link stays. */
static void visit(struct net *net, struct peer *peer)
{
	void *recv = recv_from(net, peer->fd);

	recv_one(net, recv, 100000, 3);
	OK(net_close_recv(net, recv));
}

/* Each peer has inherited the descriptors of those before it, so close() alone would not reach them. */
static void all_leave(struct peer *peer, int n)
{
	for (int i = 0; i < n; i++)
		meet(peer[i].fd);
	for (int i = 0; i < n; i++)
		shutdown(peer[i].fd, SHUT_RDWR);
	for (int i = 0; i < n; i++)
		peer_join(&peer[i]);
}

static void idle_links(struct abi *t)
{
	static struct peer peer[PEERS];
	const char *sanitizer = getenv("BRAID_TEST_SANITIZER");
	int peers = sanitizer && *sanitizer ? 16 : PEERS;	/* each peer is a process */
	struct net *net;
	size_t before, after, each;

	if (over_rdma())
		skip_because("a queue pair has half a megabyte of receives posted, UCX more");
	no_latecomers();
	setenv("BRAID_LINK_IDLE", "60", 1);
	for (int i = 0; i < peers; i++)
		peer[i] = peer_start(t, visitor);
	net = abi_up(t);
	visit(net, &peer[0]);		/* allocates what all links share */
	nap_ms(300);
	before = mallinfo2().uordblks;
	for (int i = 1; i < peers; i++)
		visit(net, &peer[i]);
	nap_ms(300);
	after = mallinfo2().uordblks;
	each = (after > before ? after - before : 0) / (size_t)(peers - 1);
	printf("v%d: %d idle links: %zu bytes each, %u streams\n", t->abi, peers, each,
	       count_streams(any_stream));
	EQ(peers, count_streams(any_stream));
	TRUE(each <= IDLE_MAX);
	all_leave(peer, peers);
	abi_down(net);
}

static void bounded(struct abi *t)
{
	enum { FEW = 5, MOST = 2 };
	struct peer peer[FEW];
	struct net *net;

	streams_are_ours();
	no_latecomers();
	setenv("BRAID_LINK_IDLE", "60", 1);
	for (int i = 0; i < FEW; i++)
		peer[i] = peer_start(t, visitor);
	setenv("BRAID_LINKS_IDLE", "2", 1);
	net = abi_up(t);
	for (int i = 0; i < FEW; i++)
		visit(net, &peer[i]);
	WAIT_FOR(count_streams(any_stream) == MOST);
	all_leave(peer, FEW);
	abi_down(net);
}

/* -- long idle -------------------------------------------------------------------------------- */

static void returning(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv;

	for (int i = 0; i < 2; i++) {
		recv = recv_from(net, fd);
		recv_one(net, recv, 1000, 5);
		OK(net_close_recv(net, recv));
		meet(fd);
	}
	abi_down(net);
}

/* A link that is idle for longer than BRAID_PEER_TIMEOUT does not make its peer count as dead. */
static void long_idle(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send;

	streams_are_ours();
	no_latecomers();
	setenv("BRAID_LINK_IDLE", "60", 1);
	setenv("BRAID_PEER_TIMEOUT", "1", 1);
	peer = peer_start(t, returning);
	net = abi_up(t);
	for (int i = 0; i < 2; i++) {
		send = send_to(net, peer.fd);
		send_one(net, send, 1000, 5);
		OK(net_close_send(net, send));
		EQ(1, count_streams(any_stream));
		meet(peer.fd);			/* after the last one the peer ends */
		if (!i)
			nap_ms(2500);
	}
	abi_down(net);
	peer_join(&peer);
}

/* -- not shared ------------------------------------------------------------------------------- */

static void two_of_them(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv[2];

	for (int i = 0; i < 2; i++)
		recv[i] = recv_from(net, fd);
	EQ(2, count_streams(any_stream));
	for (int i = 0; i < 2; i++)
		recv_one(net, recv[i], 1000, 4);
	for (int i = 0; i < 2; i++)
		OK(net_close_recv(net, recv[i]));
	meet(fd);
	abi_down(net);
}

static void unshared(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send[2];

	streams_are_ours();
	no_latecomers();
	setenv("BRAID_SHARE", "0", 1);
	peer = peer_start(t, two_of_them);
	net = abi_up(t);
	for (int i = 0; i < 2; i++)
		send[i] = send_to(net, peer.fd);
	for (int i = 0; i < 2; i++)
		send_one(net, send[i], 1000, 4);
	for (int i = 0; i < 2; i++)
		OK(net_close_send(net, send[i]));
	meet(peer.fd);
	abi_down(net);
	peer_join(&peer);
}

static const struct abi_case cases[] = {
	CASE("the thousandth comm takes no descriptor, and less time than the first", thousand, ONCE),
	CASE("a further comm is made by the calling threads alone", second_alone, ONCE),
	CASE("idle links of 128 peers hold at most 64 KiB each", idle_links, ONCE),
	CASE("idle links are bounded in number", bounded, ONCE),
	CASE("a link that was idle for long serves the next comm", long_idle, ONCE),
	CASE("with sharing off each comm has its link", unshared, .since = 5),
};

ABI_MAIN(cases)
