/* SPDX-License-Identifier: BSD-3-Clause */
/* test_descriptors.c - a process that runs out of descriptors, or whose child holds them. */
#include "tests/lib/hostile.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- descriptors ------------------------------------------------------------------------------ */

struct fillers {
	int n, fd[512];
	struct rlimit old;
};

/* Twice, since another thread may close what it has just read in /proc. */
static void fds_exhaust(struct fillers *f)
{
	struct rlimit lim;
	int fd;

	f->n = 0;
	TRUE(!getrlimit(RLIMIT_NOFILE, &f->old));
	lim = f->old;
	lim.rlim_cur = 256;
	TRUE(!setrlimit(RLIMIT_NOFILE, &lim));
	for (int i = 0; i < 2; i++) {
		while ((fd = dup(STDERR_FILENO)) >= 0) {
			TRUE(f->n < 512);
			f->fd[f->n++] = fd;
		}
		EQ(EMFILE, errno);
		nap_ms(100);
	}
}

static void fds_return(struct fillers *f)
{
	while (f->n)
		close(f->fd[--f->n]);
	TRUE(!setrlimit(RLIMIT_NOFILE, &f->old));
}

static void accept_without_fds(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct fillers f;
	struct stage s;
	void *recv = NULL;
	uint64_t from;
	unsigned w;

	setenv("BRAID_STAT", "0", 1);	/* no thread for braid stat, which opens descriptors */
	friend_ready(&friend);
	stage_up(t, &s);
	OK(TIMED(SETUP_MS, net_accept(s.net, s.listen, &recv)));	/* TIMED() opens a /proc file once */
	fds_exhaust(&f);
	give(friend.fd, s.handle, sizeof(s.handle));
	for (from = now_us(); now_us() < from + 400000; nap_ms(1)) {
		OK(TIMED(SETUP_MS, net_accept(s.net, s.listen, &recv)));
		TRUE(!recv);
	}
	w = warns() - s.warns;
	fds_return(&f);
	from = now_us();
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	printf("v%d: descriptors came back: accepted %llu us later, %u WARN\n", t->abi,
	       (unsigned long long)(now_us() - from), w);
	EQ(1, w);
	warned("ulimit -n", NULL);
	recv_one(s.net, recv, 100000, 42);
	meet(friend.fd);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	laps_say(t, "accept without descriptors");
	stage_down(&s);
}

/* accept(2) fails for lack of a descriptor even if no connection waits. */
static void accept_with_the_last_fd(struct abi *t)
{
	struct peer friend;
	struct fillers f;
	struct stage s;
	void *recv = NULL;

	if (over_rdma())
		skip_because("there more than a socket is wanted");
	setenv("BRAID_LANES", "1", 1);		/* a second lane would need a second descriptor */
	friend = friend_start(t);
	setenv("BRAID_STAT", "0", 1);
	friend_ready(&friend);
	stage_up(t, &s);
	fds_exhaust(&f);
	close(f.fd[--f.n]);
	give(friend.fd, s.handle, sizeof(s.handle));
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	EQ(0, warns() - s.warns);
	fds_return(&f);
	recv_one(s.net, recv, 100000, 42);
	meet(friend.fd);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	stage_down(&s);
}

static void waiting_body(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 7);
	meet(fd);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void connect_without_fds(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer = peer_start(t, waiting_body);
	struct net *net;
	struct fillers f;
	void *send = NULL, *listen = NULL;
	uint64_t from;
	unsigned w;

	setenv("BRAID_STAT", "0", 1);
	net = hostile_up(t);

	OK(net_listen(net, 0, handle, &listen));	/* the service thread runs */
	OK(net_close_listen(net, listen));
	take(peer.fd, handle, sizeof(handle));
	TRUE(TIMED(SETUP_MS, true));
	fds_exhaust(&f);
	for (from = now_us(); now_us() < from + 400000; nap_ms(1)) {
		OK(TIMED(SETUP_MS, net_connect(net, 0, handle, &send)));
		TRUE(!send);
	}
	w = warns();
	fds_return(&f);
	from = now_us();
	WAIT_FOR(connect_step(net, handle, &send));
	printf("v%d: descriptors came back: connected %llu us later, %u WARN\n", t->abi,
	       (unsigned long long)(now_us() - from), w);
	EQ(1, w);
	warned("ulimit -n", NULL);
	send_one(net, send, 1000, 7);
	meet(peer.fd);
	OK(net_close_send(net, send));
	peer_join(&peer);
	laps_say(t, "connect without descriptors");
	abi_down(net);
}

static void listen_without_fds(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = hostile_up(t);
	struct fillers f;
	struct pair p;
	void *listen = NULL;

	fds_exhaust(&f);
	RES(ncclSystemError, net_listen(net, 0, handle, &listen));
	TRUE(!listen);
	EQ(1, warns());
	warned("ulimit -n", NULL);
	fds_return(&f);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* -- forks ------------------------------------------------------------------------------------ */

/*
 * A child made without libc's fork(), like posix_spawn()'s until it execs, has a copy of each
 * descriptor, so epoll goes on to report events of sockets that the parent has closed.
 */
static void fork_holds_on(struct abi *t)
{
	struct peer friend = friend_start(t);
	struct stage s;
	int fd[20];
	pid_t child;

	setenv("BRAID_HALF_OPEN", "4", 1);
	friend_ready(&friend);
	stage_up(t, &s);
	for (int i = 0; i < 4; i++)
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
	nap_ms(50);
	child = (pid_t)syscall(SYS_fork);
	if (child == 0) {
		nap_ms(1000);
		_exit(0);
	}
	for (int i = 4; i < 20; i++)		/* these take the places of the first four */
		TRUE((fd[i] = speak_connect(s.to.port)) >= 0);
	nap_ms(50);
	for (int i = 0; i < 20; i++) {
		speak_write(fd[i], "surprise", 8);
		close(fd[i]);
	}
	nap_ms(50);
	friend_served(t, s.net, s.listen, s.handle, &friend, "a child held what strangers had");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	stage_empty(&s);
	stage_down(&s);
}

static const struct abi_case cases[] = {
	CASE("accept goes on when descriptors come back", accept_without_fds, ONCE),
	CASE("accept takes a peer with the last descriptor", accept_with_the_last_fd, ONCE),
	CASE("connect goes on when descriptors come back",
	     connect_without_fds, ONCE, .warns = "no-descriptors"),
	CASE("listen goes on when descriptors come back", listen_without_fds, ONCE, .warns = "no-start"),
	CASE("strangers whose sockets a child still holds block no peer", fork_holds_on, ONCE),
};

ABI_MAIN(cases)
