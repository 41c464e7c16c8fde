/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rdma.c - RDMA fails in every way that the fake NICs know, and nothing is lost by it.
 *
 * Two processes send messages of all sizes to each other and check every byte, while their NIC is
 * taken away and given back, is full, or refuses the k-th call.  Each case is run over RoCE v2 and
 * iWARP, some over InfiniBand too.  BRAID_TEST_RDMA_CALLS=1 fails each call, not one in STRIDE.
 */
#include "tests/abi/abi.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH = 4, MOST = 1 << 20, STOP = 3, STRIDE = 7 };
enum { STALL_MS = 2000, RETURN_MS = 5000, SLACK = 10 };

/* -- the NICs ----------------------------------------------------------------------------- */

static char dir[64];			/* of the fabrics */
static long (*fake_ctl)(const char *cmd);
static const char *(*fake_failed)(void);

static void load(const char *libs, const char *name)
{
	char path[PATH_MAX];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", libs, name);
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(99);
	}
	if (!fake_ctl) {
		*(void **)&fake_ctl = dlsym(lib, "braid_fake_ctl");
		*(void **)&fake_failed = dlsym(lib, "braid_fake_failed");
	}
}

/* Before the plugin asks for them by name: what is loaded already is found first. */
static void fakes_load(void)
{
	const char *build = getenv("BRAID_TEST_BUILDDIR");
	char libs[PATH_MAX];

	snprintf(libs, sizeof(libs), "%s/tests/fake/.libs", build ? build : ".");
	load(libs, "libibverbs.so.1");
	load(libs, "librdmacm.so.1");
	snprintf(dir, sizeof(dir), "/dev/shm/braid-test-XXXXXX");
	if (!mkdtemp(dir))
		exit(99);
}

static void fakes_forget(void)
{
	DIR *d = opendir(dir);
	char path[PATH_MAX];

	for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

static const char *const kinds[] = { "rocev2", "iwarp", "ib" };

/* This case's NIC, of which `more` is known as well (",max_qp=1"). */
static void nic(const char *kind, const char *more)
{
	char text[256];

	snprintf(text, sizeof(text), "%s/%d", dir, (int)getpid());
	setenv("BRAID_TEST_FAKE_FABRIC", text, 1);
	snprintf(text, sizeof(text), "nic0:%s,netdev=lo%s", kind, more);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
}

static long ctl(const char *cmd)
{
	long n = fake_ctl(cmd);

	if (n < 0)
		FAIL("%s: %s", cmd, strerror((int)-n));
	return n;
}

static long sends(void)
{
	return ctl("count sends");
}

/* -- traffic ------------------------------------------------------------------------------ */

static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, MOST };

struct talk {				/* messages one way */
	void *comm;
	bool is_recv, stop;		/* stop: the last DEPTH messages say that they are */
	struct buf buf[DEPTH];
	struct op op[DEPTH];
	uint64_t oldest;
	unsigned stops;
};

struct job {
	struct net *net;
	struct talk out, in;
	uint64_t moved_us, longest_us;
};

static size_t size_of(uint64_t i)
{
	return sizes[i * 2654435761u % 4294967296u >> 13 & 7];
}

static void again(struct net *net, struct talk *k, uint64_t n)
{
	unsigned i = n % DEPTH;
	size_t size = k->stop ? STOP : size_of(n);

	if (k->is_recv) {
		k->op[i] = op_recv(net, k->comm, &k->buf[i], MOST, 0);
		return;
	}
	fill(k->buf[i].data, size, n);
	k->op[i] = op_send(net, k->comm, &k->buf[i], size, 0);
	k->stops += k->stop;
}

static void talk_new(struct net *net, struct talk *k, void *comm, bool is_recv)
{
	*k = (struct talk){ .comm = comm, .is_recv = is_recv };
	for (unsigned i = 0; i < DEPTH; i++) {
		k->buf[i] = buf_new(net, comm, MOST, i);
		again(net, k, i);
	}
}

static bool talk_over(const struct talk *k)
{
	return k->stops == DEPTH && (k->is_recv || k->op[k->oldest % DEPTH].done);
}

static void check(struct talk *k, const struct op *op)
{
	size_t size = op->got[0] == STOP ? STOP : size_of(k->oldest);

	OK(op->res);
	if (!k->is_recv)
		return;
	EQ(size, op->got[0]);
	filled(op->data[0], size, k->oldest);
	k->stops += size == STOP;
}

/* One round: in the order in which they were posted.  True if one is through. */
static bool talk_step(struct net *net, struct talk *k)
{
	struct op *op = &k->op[k->oldest % DEPTH];

	for (unsigned n = 0; n < DEPTH; n++) {
		struct op *o = &k->op[(k->oldest + n) % DEPTH];

		if (!o->posted && !op_post(o))
			break;
	}
	if (!op->posted || op->done || !op_test(op))
		return false;
	check(k, op);
	k->oldest++;
	if (!k->stops || (!k->is_recv && k->stops < DEPTH)) {
		again(net, k, k->oldest + DEPTH - 1);
		return true;
	}
	return true;
}

static bool job_step(struct job *j)
{
	bool moved = talk_step(j->net, &j->out);

	moved = talk_step(j->net, &j->in) || moved;
	if (moved) {
		uint64_t now = now_us();

		if (now - j->moved_us > j->longest_us)
			j->longest_us = now - j->moved_us;
		j->moved_us = now;
	}
	sched_yield();
	return moved;
}

static void job_play(struct job *j, unsigned ms)
{
	for (uint64_t until = now_us() + ms * 1000; now_us() < until;)
		job_step(j);
}

/* Until that many more messages came in, or it takes too long. */
static void job_need(struct job *j, unsigned n, unsigned ms)
{
	uint64_t want = j->in.oldest + n, end = deadline_ms(ms);

	while (j->in.oldest < want) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "messages");
	}
}

static void job_finish(struct job *j)
{
	uint64_t end = deadline_ms(60000);

	while (!talk_over(&j->out) || !talk_over(&j->in)) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "the last messages");
	}
	for (unsigned i = 0; i < DEPTH; i++) {
		buf_free(j->net, &j->out.buf[i]);
		buf_free(j->net, &j->in.buf[i]);
	}
}

static void job_new(struct job *j, struct net *net, void *send, void *recv)
{
	j->net = net;
	talk_new(net, &j->out, send, false);
	talk_new(net, &j->in, recv, true);
	j->moved_us = now_us();
	j->longest_us = 0;
}

static void job_close(struct job *j)
{
	OK(net_close_send(j->net, j->out.comm));
	OK(net_close_recv(j->net, j->in.comm));
	abi_down(j->net);
}

static void objects_gone(void)
{
	static const char *const what[] = { "live qp", "live cq", "live mr", "live ah", "live channel" };

	for (unsigned i = 0; i < 5; i++)
		if (ctl(what[i]))
			FAIL("%s is %ld after finalize", what[i], ctl(what[i]));
}

/* The other end: it does as it is told by the last messages. */
static void follow(struct abi *t, int fd)
{
	static struct job j;
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	uint64_t end = deadline_ms(300000);

	warns_expected();
	job_new(&j, net, send, recv);
	while (!j.in.stops) {
		job_step(&j);
		wait_tick(end, __FILE__, __LINE__, "the first end to stop");
	}
	j.out.stop = true;
	job_finish(&j);
	meet(fd);
	job_close(&j);
	objects_gone();
}

static struct job *start(struct abi *t, struct peer *p)
{
	static struct job j;
	struct net *net;
	void *send, *recv;

	*p = peer_start(t, follow);
	net = abi_up(t);
	recv = recv_from(net, p->fd);
	send = send_to(net, p->fd);
	warns_expected();
	job_new(&j, net, send, recv);
	return &j;
}

static void finish(struct job *j, struct peer *p)
{
	j->out.stop = true;
	job_finish(j);
	meet(p->fd);
	job_close(j);
	objects_gone();
	peer_join(p);
}

/* Does what is sent go over RDMA? */
static bool went_over_rdma(struct job *j)
{
	long before = sends();

	job_need(j, 16, 10000 * SLACK);
	return sends() - before > 16;
}

static void stall_ends(struct job *j, const char *what)
{
	job_need(j, 100, STALL_MS * SLACK);
	printf("%s: the longest stall was %llu ms\n", what, (unsigned long long)j->longest_us / 1000);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	j->longest_us = 0;
}

static void returns(struct job *j, const char *what)
{
	uint64_t from = now_us(), end = deadline_ms(RETURN_MS * SLACK);

	while (!went_over_rdma(j))
		wait_tick(end, __FILE__, __LINE__, "RDMA to be used again");
	printf("%s: back on RDMA after %llu ms\n", what, (unsigned long long)(now_us() - from) / 1000);
	j->longest_us = 0;
}

/* -- it fails and comes back -------------------------------------------------------------- */

static void down_and_up(struct abi *t, const char *kind, const char *lanes, const char *down,
			const char *up)
{
	struct peer p;
	struct job *j;
	char what[64];

	snprintf(what, sizeof(what), "%s, %s lanes, %s", kind, lanes, down);
	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	j = start(t, &p);
	job_play(j, 200);
	TRUE(went_over_rdma(j));
	ctl(down);
	stall_ends(j, what);
	job_play(j, 500);
	TRUE(!went_over_rdma(j));
	ctl(up);
	returns(j, what);
	finish(j, &p);
}

#define EACH_KIND(body)							\
	static void body##_roce(struct abi *t) { body(t, kinds[0]); }	\
	static void body##_iwarp(struct abi *t) { body(t, kinds[1]); }

static void port_down(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "port nic0 down", "port nic0 up");
}

static void port_down_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "port nic0 down", "port nic0 up");
}

static void black_hole(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "drop nic0 1", "drop nic0 0");
}

static void black_hole_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "drop nic0 1", "drop nic0 0");
}

EACH_KIND(port_down)
EACH_KIND(port_down_lanes)
EACH_KIND(black_hole)
EACH_KIND(black_hole_lanes)

#define ONCE .since = NET_ABI_NEWEST, .seconds = 120

static const struct abi_case cases[] = {
	CASE("RoCE: a port that goes down costs a moment", port_down_roce, ONCE),
	CASE("iWARP: a port that goes down costs a moment", port_down_iwarp, ONCE),
	CASE("RoCE: so it does with several lanes", port_down_lanes_roce, ONCE),
	CASE("iWARP: so it does with several lanes", port_down_lanes_iwarp, ONCE),
	CASE("RoCE: packets that vanish cost a moment", black_hole_roce, ONCE),
	CASE("iWARP: packets that vanish cost a moment", black_hole_iwarp, ONCE),
	CASE("RoCE: so they do with several lanes", black_hole_lanes_roce, ONCE),
	CASE("iWARP: so they do with several lanes", black_hole_lanes_iwarp, ONCE),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
