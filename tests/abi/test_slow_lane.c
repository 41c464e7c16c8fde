/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_slow_lane.c - of two lanes of a link one goes through a relay that delays its bytes: the report,
 * and `braid stat --slowest`, show which.
 */
#include "tests/lib/hostile.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BYTES = 1 << 20, DEPTH = 4, SLOW = 1, DELAY_MS = 10, TIMED = 12, ROUNDS = 5000 };

static char dir[] = "/tmp/braid-test-XXXXXX";

/* -- the relay: each connection has a process of its own ----------------------------------------- */

static bool forward(int from, int to, unsigned ms)
{
	static char buf[65536];
	ssize_t n = recv(from, buf, sizeof(buf), MSG_DONTWAIT);

	if (n > 0 && ms)
		nap_ms(ms);
	return n > 0 && speak_write(to, buf, (size_t)n);
}

static _Noreturn void connection(int dialler, int listener, unsigned ms)
{
	struct pollfd p[2] = { { .fd = dialler, .events = POLLIN }, { .fd = listener, .events = POLLIN } };
	bool open = true;

	while (open && poll(p, 2, -1) > 0) {
		if (p[0].revents)
			open = forward(dialler, listener, ms);
		if (open && p[1].revents)
			open = forward(listener, dialler, 0);
	}
	_exit(0);
}

/* Connections come in the order of lanes.  A byte over `fd` ends it. */
static void relay(struct abi *t, int fd)
{
	uint16_t real, port;
	int listener = speak_listen(&port);
	uint8_t end;

	(void)t;
	TRUE(listener >= 0);
	give(fd, &port, sizeof(port));
	take(fd, &real, sizeof(real));
	for (unsigned lane = 0;; lane++) {
		struct pollfd p[2] = { { .fd = listener, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
		int a, b;

		poll(p, 2, -1);
		if (p[1].revents)
			break;
		a = speak_accept(listener);
		b = speak_connect(real);
		if (fork() == 0) {
			close(listener);
			close(fd);
			connection(a, b, lane == SLOW ? DELAY_MS : 0);
		}
		close(a);
		close(b);
	}
	take(fd, &end, 1);
	end_well();
}

/* -- what the sender shows ------------------------------------------------------------------------ */

/* This process's report. */
static json_t *report(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char text[1 << 20];
	size_t len = 0;
	ssize_t n;
	json_t *o;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%d", dir, (int)getpid());
	WAIT_FOR(access(sa.sun_path, F_OK) == 0);
	TRUE(connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	TRUE(send(fd, "stat\n", 5, MSG_NOSIGNAL) == 5);
	while ((n = read(fd, text + len, sizeof(text) - len)) > 0)
		len += (size_t)n;
	close(fd);
	o = json_loadb(text, len, 0, NULL);
	TRUE(o);
	return o;
}

static long long of_lane(const json_t *report, size_t lane, const char *key)
{
	json_t *link = json_array_get(json_object_get(report, "links"), 0);
	json_t *l = json_array_get(json_object_get(link, "lanes"), lane);

	return json_integer_value(json_object_get(json_object_get(l, "acks"), key));
}

static bool are_timed(void)
{
	json_t *o = report();
	bool ret = of_lane(o, 0, "timed") >= TIMED && of_lane(o, SLOW, "timed") >= TIMED;

	json_decref(o);
	return ret;
}

static void shows_the_slow_lane(void)
{
	json_t *o = report(), *link = json_array_get(json_object_get(o, "links"), 0);
	const char *braid = getenv("BRAID_TEST_BRAID");
	char line[1024] = "", want[64];
	FILE *f;

	TRUE(of_lane(o, SLOW, "p50_ns") >= DELAY_MS * 1000000);
	TRUE(of_lane(o, SLOW, "p50_ns") > 2 * of_lane(o, 0, "p50_ns"));
	TRUE(json_integer_value(json_object_get(json_object_get(link, "large_sends"), "timed")) >= TIMED);
	printf("p50: lane 0 %lld ns, lane %d %lld ns\n", of_lane(o, 0, "p50_ns"), SLOW,
	       of_lane(o, SLOW, "p50_ns"));
	json_decref(o);
	if (!braid)
		return;
	snprintf(line, sizeof(line), "%s stat --slowest %d", braid, (int)getpid());
	snprintf(want, sizeof(want), "slowest lane: %d of link 1 ", SLOW);
	f = popen(line, "re");
	while (f && fgets(line, sizeof(line), f) && strncmp(line, want, strlen(want)) != 0)
		;
	TRUE(f && strncmp(line, want, strlen(want)) == 0);
	TRUE(strstr(line, "that of the other lane is"));
	pclose(f);
}

static void many(struct net *net, void *comm, struct buf *b, bool send)
{
	struct op ops[DEPTH];

	for (int i = 0; i < DEPTH; i++)
		ops[i] = send ? op_send(net, comm, &b[i], BYTES, i) : op_recv(net, comm, &b[i], BYTES, i);
	ops_run(ops, DEPTH);
}

static void bufs_new(struct net *net, void *comm, struct buf b[DEPTH])
{
	for (int i = 0; i < DEPTH; i++)
		b[i] = buf_new(net, comm, BYTES, 0);
}

static void bufs_free(struct net *net, struct buf b[DEPTH])
{
	for (int i = 0; i < DEPTH; i++)
		buf_free(net, &b[i]);
}

/* Sends until both lanes have been timed often enough; a byte says whether more comes. */
static void sender(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);
	struct buf b[DEPTH];
	uint8_t more = 1;

	bufs_new(net, send, b);
	for (unsigned i = 0; more && i < ROUNDS; i++) {
		give(fd, &more, 1);
		many(net, send, b, true);
		more = !are_timed();
	}
	TRUE(!more);
	give(fd, &more, 1);
	shows_the_slow_lane();
	bufs_free(net, b);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

static void slow_lane(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer path, friend;
	struct buf b[DEPTH];
	struct stage s;
	void *recv = NULL;
	uint8_t more;

	if (over_rdma())
		skip_because("the relay carries only TCP");
	TRUE(mkdtemp(dir));
	setenv("BRAID_STAT_DIR", dir, 1);
	setenv("BRAID_LANES", "2", 1);
	path = peer_start(t, relay);
	friend = peer_start(t, sender);
	stage_up(t, &s);
	relay_through(&path, &s.to, handle);
	give(friend.fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(s.net, s.listen, &recv));
	bufs_new(s.net, recv, b);
	for (take(friend.fd, &more, 1); more; take(friend.fd, &more, 1))
		many(s.net, recv, b, false);
	bufs_free(s.net, b);
	OK(net_close_recv(s.net, recv));
	peer_join(&friend);
	more = 0;
	give(path.fd, &more, 1);
	peer_join(&path);
	stage_down(&s);
	rmdir(dir);
}

static const struct abi_case cases[] = {
	CASE("a lane whose bytes are delayed is the slowest", slow_lane, ONCE),
};

ABI_MAIN(cases)
