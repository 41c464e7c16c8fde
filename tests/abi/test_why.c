/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_why.c - warnings name the true cause: a peer that never answers, one that is stopped, memory of
 * a type that the plugin did not offer.  Causes that need two hosts are in tests/net/why.sh.
 */
#include "tests/abi/abi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void says(const char *id, const char *word, const char *not)
{
	warned_with(id);
	if (!strstr(net_last_warn(), word))
		FAIL("\"%s\" is not in: %s", word, net_last_warn());
	if (not && strstr(net_last_warn(), not))
		FAIL("\"%s\" is in: %s", not, net_last_warn());
}

/* -- before the first contact ---------------------------------------------------------------- */

static void listens_and_stops(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net = abi_up(t);
	void *listen;

	OK(net_listen(net, the_device(), handle, &listen));
	give(fd, handle, sizeof(handle));
	raise(SIGSTOP);
}

/* The peer's kernel accepts connections, the peer does not; `handshake`: seconds until each redial. */
static void never_answers(struct abi *t, const char *handshake)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer;
	struct net *net;
	void *send = NULL;
	ncclResult_t res;

	setenv("BRAID_CONNECT_TIMEOUT", "3", 1);
	setenv("BRAID_HANDSHAKE_TIMEOUT", handshake, 1);
	peer = peer_start(t, listens_and_stops);
	net = abi_up(t);
	warns_expected();
	take(peer.fd, handle, sizeof(handle));
	peer_stopped(&peer);
	do {
		res = net_connect(net, the_device(), handle, &send);
		nap_ms(1);
	} while (res == ncclSuccess && !send);
	RES(ncclRemoteError, res);
	says("no-answer", "takes the connection", "firewall");
	peer_kill(&peer);
	abi_down(net);
}

static void stopped_before(struct abi *t)
{
	never_answers(t, "5");
}

static void stopped_before_often(struct abi *t)
{
	never_answers(t, "1");
}

/* -- accept() -------------------------------------------------------------------------------- */

static void nobody_comes(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net;
	void *listen, *recv = NULL;

	setenv("BRAID_STALL_WARN", "1", 1);
	net = abi_up(t);
	warns_expected();
	OK(net_listen(net, the_device(), handle, &listen));
	while (!net_warn_count()) {
		OK(net_accept(net, listen, &recv));
		TRUE(!recv);
		nap_ms(1);
	}
	says("accept-waits", "accept() has waited for 1 s, and no peer has come", NULL);
	OK(net_close_listen(net, listen));
	abi_down(net);
}

/* -- later ----------------------------------------------------------------------------------- */

static void stops(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 1);
	raise(SIGSTOP);
}

static void stopped_later(struct abi *t)
{
	struct peer peer;
	struct net *net;
	struct buf b;
	struct op op;
	void *send;

	setenv("BRAID_PEER_TIMEOUT", "5", 1);
	peer = peer_start(t, stops);
	net = abi_up(t);
	warns_expected();
	send = send_to(net, peer.fd);
	send_one(net, send, 1000, 1);
	peer_stopped(&peer);
	b = buf_new(net, send, 1 << 20, 0);
	op = op_send(net, send, &b, b.size, 0);
	ops_post(&op, 1);
	while (!net_warn_count()) {
		op_test(&op);
		nap_ms(1);
	}
	says("peer-silent", "is stopped, by SIGSTOP or a debugger (pid ", "the process does not run");
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	says("peer-lost", "in state T", NULL);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	peer_kill(&peer);
	abi_down(net);
}

/* Functions that make a process, the peer or this one, silent, and that end the silence. */
struct silence {
	void (*begin)(void), (*end)(void);
};

/* Calls nothing of the plugin until the other process has read the WARN. */
static void held(struct abi *t, int fd, const struct silence *s)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);
	struct buf b;
	struct op op;

	warns_expected();
	recv_one(net, recv, 1000, 1);
	b = buf_new(net, recv, 1 << 20, 0);
	op = op_recv(net, recv, &b, b.size, 0);
	nap_ms(5500);			/* it announces its CPU time each 4 s at least */
	s->begin();
	meet(fd);
	meet(fd);
	s->end();
	ops_post(&op, 1);
	ops_run(&op, 1);
	filled(b.data, b.size, 7);
	meet(fd);
	buf_free(net, &b);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* The WARN names `cause`; then the peer goes on, and the message arrives. */
static void silent(struct abi *t, struct peer *peer, const struct silence *s, const char *cause,
		   bool is_starved)
{
	struct net *net = abi_up(t);
	struct buf b;
	struct op op;
	void *send;

	warns_expected();
	send = send_to(net, peer->fd);
	send_one(net, send, 1000, 1);
	meet(peer->fd);
	s->begin();
	b = buf_new(net, send, 1 << 20, 0);
	fill(b.data, b.size, 7);
	op = op_send(net, send, &b, b.size, 0);
	ops_post(&op, 1);
	WAIT_FOR((op_test(&op), net_warn_count() > 0));
	s->end();
	says("peer-silent", cause, "does not run");
	meet(peer->fd);
	ops_run(&op, 1);
	if (is_starved)			/* what it announces then confirms the cause */
		WAIT_FOR(net_warned("not stopped, but starved") && net_warned("[peer-starved]"));
	EQ(1 + is_starved, net_warn_count());
	meet(peer->fd);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	peer_join(peer);
	abi_down(net);
}

static void nothing(void)
{
}

static const struct silence none = { nothing, nothing };

static void silent_by_itself(struct abi *t, void (*body)(struct abi *t, int fd), const char *cause,
			     bool is_starved)
{
	struct peer peer = peer_start(t, body);

	silent(t, &peer, &none, cause, is_starved);
}

/* The id of the plugin's service thread; 0: not found. */
static pid_t service_thread(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	pid_t found = 0;

	TRUE(d);
	while (!found && (e = readdir(d))) {
		char path[64], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", e->d_name);
		f = fopen(path, "re");
		if (f && fgets(name, sizeof(name), f) && !strcmp(name, "braid-service\n"))
			found = atoi(e->d_name);
		if (f)
			fclose(f);
	}
	closedir(d);
	return found;
}

/* -- no CPU: many busy processes share one CPU with the service thread, and leave it little -- */

enum { BUSY = 24 };

static pid_t busy[BUSY], starved_tid;
static cpu_set_t anywhere;

static void pin(pid_t tid, unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	TRUE(!sched_setaffinity(tid, sizeof(set), &set));
}

static void starve(void)
{
	const struct sched_param unused = { 0 };
	pid_t tid = service_thread();
	int cpu = sched_getcpu();

	TRUE(tid > 0 && cpu >= 0);
	TRUE(!sched_getaffinity(tid, sizeof(anywhere), &anywhere));
	for (unsigned i = 0; i < BUSY; i++) {
		busy[i] = fork();
		TRUE(busy[i] >= 0);
		if (busy[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(0, (unsigned)cpu);
		for (;;)
			;
	}
	pin(tid, (unsigned)cpu);
	TRUE(!sched_setscheduler(tid, SCHED_IDLE, &unused));
	starved_tid = tid;
}

/* Without the right to raise a priority the thread keeps SCHED_IDLE, but may use other CPUs again. */
static void feed(void)
{
	const struct sched_param unused = { 0 };

	for (unsigned i = 0; i < BUSY; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
	TRUE(!sched_setaffinity(starved_tid, sizeof(anywhere), &anywhere));
	sched_setscheduler(starved_tid, SCHED_OTHER, &unused);
}

static void is_starved(struct abi *t, int fd)
{
	held(t, fd, &(struct silence){ starve, feed });
}

static void starved(struct abi *t)
{
	silent_by_itself(t, is_starved, "it gets no CPU (pid ", true);
}

/* -- held up by the kernel: a thread in vfork() waits for its child in state D ------------ */

static atomic_int wait_for_fd = -1;	/* a pipe: the child ends when its other end is closed */
static int ends[2];

static void stay_in_kernel(int fd)
{
	char unused;

	if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
		close(ends[1]);
		_exit((int)read(fd, &unused, 1));
	}
}

/* Overrides libc's epoll_wait() for the plugin. */
__attribute__((visibility("default")))
int epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	static _Atomic(void *) next;
	char name[16] = "";
	int fd = -1;

	prctl(PR_GET_NAME, name);
	if (strcmp(name, "braid-service") == 0)
		fd = atomic_exchange(&wait_for_fd, -1);
	if (fd >= 0)
		stay_in_kernel(fd);
	if (!next)
		next = dlsym(RTLD_NEXT, "epoll_wait");
	return ((int (*)(int, struct epoll_event *, int, int))next)(ep, ev, max, timeout);
}

static void hold_up(void)
{
	TRUE(!pipe2(ends, O_CLOEXEC));
	atomic_store(&wait_for_fd, ends[0]);
}

static void let_up(void)
{
	close(ends[1]);
}

static void is_held_up(struct abi *t, int fd)
{
	held(t, fd, &(struct silence){ hold_up, let_up });
}

static void held_up(struct abi *t)
{
	silent_by_itself(t, is_held_up, "the kernel holds it up: storage, swap, a driver (pid ", false);
}

/* -- frozen, as by docker pause: by either version of cgroups -- */

static const struct freezer {
	const char *root, *file, *freeze, *thaw;
} freezers[] = {
	{ "/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED" },
	{ "/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0" },
	{ "/sys/fs/cgroup", "cgroup.freeze", "1", "0" },
};

static struct {
	const struct freezer *by;
	char dir[96];
	pid_t guard;
	int fd;				/* when it is closed, the guard thaws the peer */
} ice;

static bool put(const char *dir, const char *file, const char *text)
{
	char path[192];
	int fd;
	bool done;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

/* Thaws the peer even if the test dies, since a frozen process can't be killed. */
_Noreturn static void guard(int fd, const char *pid)
{
	char unused;

	setsid();
	while (read(fd, &unused, 1) > 0)
		;
	put(ice.dir, ice.by->file, ice.by->thaw);
	put(ice.by->root, "cgroup.procs", pid);
	for (unsigned i = 0; rmdir(ice.dir) && i < 100; i++)
		usleep(10000);
	_exit(0);
}

/* Moves the peer into a new cgroup; false: no cgroup of that kind can be made here. */
static bool peer_moves(const struct freezer *by, pid_t peer)
{
	char pid[16], path[192];
	int fds[2];

	ice.by = by;
	snprintf(pid, sizeof(pid), "%d", (int)peer);
	snprintf(ice.dir, sizeof(ice.dir), "%s/braid-test-%d", by->root, (int)getpid());
	snprintf(path, sizeof(path), "%s/cgroup.procs", by->root);
	if (access(path, W_OK) || mkdir(ice.dir, 0755))
		return false;
	TRUE(!pipe2(fds, O_CLOEXEC));
	ice.fd = fds[1];
	ice.guard = fork();
	TRUE(ice.guard >= 0);
	if (!ice.guard) {
		close(fds[1]);
		guard(fds[0], pid);
	}
	close(fds[0]);
	snprintf(path, sizeof(path), "%s/%s", ice.dir, by->file);
	return !access(path, W_OK) && put(ice.dir, "cgroup.procs", pid);
}

static void freeze(void)
{
	TRUE(put(ice.dir, ice.by->file, ice.by->freeze));
}

static void thaw(void)
{
	close(ice.fd);
	waitpid(ice.guard, NULL, 0);
}

static void is_frozen(struct abi *t, int fd)
{
	held(t, fd, &none);
}

static void frozen_by(struct abi *t, const struct freezer *by)
{
	struct peer peer = peer_start(t, is_frozen);

	if (!peer_moves(by, peer.pid))
		skip_because("no cgroup that freezes can be made in %s", by->root);
	silent(t, &peer, &(struct silence){ freeze, thaw },
	       "its cgroup is frozen, as docker pause and schedulers do (pid ", false);
}

static void frozen_v1(struct abi *t)
{
	frozen_by(t, &freezers[0]);
}

static void frozen_v2(struct abi *t)
{
	frozen_by(t, access(freezers[1].root, F_OK) ? &freezers[2] : &freezers[1]);
}

/* -- lanes ----------------------------------------------------------------------------------- */

enum { LANES = 4 };

static atomic_uint opened[LANES];		/* the number in the lane's first line "is back" */

__attribute__((format(printf, 5, 6)))
static void opened_log(int level, unsigned long flags, const char *file, int line, const char *fmt,
		       ...)
{
	char text[1024];
	const char *at;
	unsigned lane, times;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	at = strstr(text, ": lane ");
	if (at && sscanf(at, ": lane %u is back over %*s (opened %u times)", &lane, &times) == 2 &&
	    lane < LANES && !opened[lane])
		opened[lane] = times;
	abi_log(level, flags, file, line, "%s", text);
}

static struct net *lanes_up(struct abi *t)
{
	struct net *net;
	char err[512];

	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, opened_log, NULL));
	return net;
}

static bool any(int fd)
{
	(void)fd;
	return true;
}

static bool shut(int fd)
{
	return !shutdown(fd, SHUT_RDWR);
}

static bool all_are_back(void)
{
	for (unsigned i = 0; i < LANES; i++) {
		if (!opened[i])
			return false;
	}
	return true;
}

/* All lanes are lost once; `shuts`: this end shuts them down. */
static void lose_once(struct net *net, void *comm, bool is_recv, int fd, bool shuts)
{
	if (is_recv)
		recv_one(net, comm, 1 << 20, 1);
	else
		send_one(net, comm, 1 << 20, 1);
	WAIT_FOR(count_streams(any) >= LANES);
	meet(fd);
	if (shuts)
		TRUE(count_streams(shut) >= LANES);
	WAIT_FOR(all_are_back());
	for (unsigned i = 0; i < LANES; i++)
		EQ(2, opened[i]);
	meet(fd);
	if (is_recv)
		recv_one(net, comm, 1000, 2);
	else
		send_one(net, comm, 1000, 2);
}

static void loses_peer(struct abi *t, int fd)
{
	struct net *net = lanes_up(t);
	void *recv = recv_from(net, fd);

	lose_once(net, recv, true, fd, false);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void lanes_are_counted(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send;

	setenv("BRAID_LANES", "4", 1);
	peer = peer_start(t, loses_peer);
	net = lanes_up(t);
	send = send_to(net, peer.fd);
	lose_once(net, send, false, peer.fd, true);
	OK(net_close_send(net, send));
	peer_join(&peer);
	abi_down(net);
}

/* -- memory ----------------------------------------------------------------------------------- */

/* NCCL may pass GPU memory to a NIC that did not offer it, if a topology file has gdr="1" there. */
static void gpu_memory(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	char data[64];
	void *mr;

	warns_expected();
	pair_open(net, &p);
	RES(ncclInternalError, net_reg(net, p.send, data, sizeof(data), NCCL_PTR_CUDA, &mr));
	says("gpu-memory-not-offered", "NCCL_TOPO_FILE", "type 2");
	RES(ncclInternalError, net_reg(net, p.send, data, sizeof(data), 99, &mr));
	says("bad-memory-type", "type 99", NULL);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a peer that is stopped before it answers is no firewall", stopped_before, ONCE),
	CASE("a stopped peer that is dialled again and again is no firewall",
	     stopped_before_often, ONCE),
	CASE("an accept() to which nobody comes says so", nobody_comes, ONCE, .warns = "accept-waits"),
	CASE("a peer on this host that is stopped is reported as stopped", stopped_later, ONCE),
	CASE("a peer that gets no CPU is reported, and afterwards as one that was starved", starved,
	     ONCE, .warns = "peer-silent peer-starved"),
	CASE("a peer on this host that the kernel blocks is reported", held_up, ONCE),
	CASE("a peer on this host whose cgroup of version 1 is frozen is reported",
	     frozen_v1, ONCE),
	CASE("a peer on this host whose cgroup of version 2 is frozen is reported",
	     frozen_v2, ONCE),
	CASE("a lane that is lost once is back, opened twice, at both ends", lanes_are_counted,
	     ONCE),
	CASE("GPU memory that no device offered to register names the topology file", gpu_memory),
};

ABI_MAIN(cases)
