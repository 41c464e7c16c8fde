/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_gpu_copy.c - copies in and out of a GPU, where its NIC does not carry the message.
 *
 * A lane over TCP can't reach memory of a GPU.  So this end's NIC copies it, in a loop to itself, or
 * the driver does.
 */
#include "tests/abi/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAKEN = 24, STUCK_MS = 500, FEW = 100, GONE_MS = 40000 };

/* -- over TCP --------------------------------------------------------------------------------- */

static const size_t over_tcp[] = { 8, 8192, 65536, 3 * MEG + 5 };
enum { OVER_TCP = sizeof(over_tcp) / sizeof(over_tcp[0]) };

static void plain_peer(struct abi *t, int fd)
{
	struct net *net;
	void *send, *recv;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	send = send_to(net, fd);
	for (unsigned i = 0; i < OVER_TCP; i++) {
		recv_one(net, recv, over_tcp[i], i);
		send_one(net, send, over_tcp[i], i + 100);
	}
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/*
 * The lane is a socket, which can't reach the GPU's memory: this end's NIC or the driver copies out
 * of it and into it.  Returns how many copies the driver made.
 */
static long over_sockets(struct abi *t, const char *stage, const char *cmd)
{
	struct peer peer = peer_start(t, plain_peer);
	struct buf out[OVER_TCP], in[OVER_TCP];
	struct net *net;
	void *send, *recv;
	long copies;

	setenv("BRAID_GPU_STAGE", stage, 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	warns_expected();		/* TCP carries the link */
	send = send_to(net, peer.fd);
	recv = recv_from(net, peer.fd);
	for (unsigned i = 0; i < OVER_TCP; i++) {
		out[i] = gpu_new(net, send, over_tcp[i]);
		in[i] = gpu_new(net, recv, over_tcp[i]);
		fill(bytes_of(&out[i]), over_tcp[i], i);
	}
	nic_do(cmd);
	gpu_do("kernel 1");
	for (unsigned i = 0; i < OVER_TCP; i++) {
		struct op op = op_send(net, send, &out[i], over_tcp[i], 0);

		ops_run(&op, 1);
		op = op_recv(net, recv, &in[i], over_tcp[i], 0);
		ops_run(&op, 1);
		filled(bytes_of(&in[i]), over_tcp[i], i + 100);
	}
	gpu_do("kernel 0");
	for (unsigned i = 0; i < OVER_TCP; i++) {
		gpu_end(net, &out[i]);
		gpu_end(net, &in[i]);
	}
	EQ(0, gpu_do("blocked"));
	EQ(0, gpu_do("stray"));
	EQ(0, gpu_do("staging"));
	copies = gpu_do("copies");
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
	return copies;
}

static void by_nic(struct abi *t)
{
	EQ(0, over_sockets(t, "1", "drop nic0 0"));
}

static void by_driver(struct abi *t)
{
	TRUE(over_sockets(t, "2", "drop nic0 0") > 0);
}

static void nic_gone(struct abi *t)
{
	TRUE(over_sockets(t, "1", "fatal nic0") > 0);
}

/* The wait that finds the NIC silent comes once, not for each of some dozen pieces. */
static void no_loop(struct abi *t)
{
	uint64_t start = now_us();

	TRUE(over_sockets(t, "1", "drop nic0 1") > 0);
	TRUE(now_us() - start < 40 * STUCK_MS * 1000 * (uint64_t)drive_slow());
}

/* Waits for a message that never comes. */
static void idle_peer(struct abi *t, int fd)
{
	struct net *net;
	struct buf in;
	struct op op;
	void *recv;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	in = buf_new(net, recv, over_tcp[0], 0);
	op = op_recv(net, recv, &in, over_tcp[0], 0);
	ops_settle(&op, 1);
	for (;;)
		pause();
}

/* Neither NIC nor driver can copy: the comm fails, and the warning gives the reasons. */
static void no_way_left(struct abi *t, const char *stage, const char *cmd, const char *reason)
{
	struct peer peer = peer_start(t, idle_peer);
	struct net *net;
	struct buf out;
	struct op op;
	void *send;

	setenv("BRAID_GPU_STAGE", stage, 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	warns_expected();
	send = send_to(net, peer.fd);
	gpu_do(cmd);
	out = gpu_new(net, send, over_tcp[0]);
	nic_do("fail 1 post EIO on");
	op = op_send(net, send, &out, over_tcp[0], 0);
	ops_settle(&op, 1);
	TRUE(op.res != ncclSuccess);
	if (!strstr(net_last_warn(), "memory of a GPU") || !strstr(net_last_warn(), reason))
		FAIL("the reason is missing: %s", net_last_warn());
	peer_kill(&peer);
	end_well();
}

static void nothing_left(struct abi *t)
{
	no_way_left(t, "0", "fail 0", "nor by the driver (BRAID_GPU_STAGE: ");
}

static void no_stage(struct abi *t)
{
	no_way_left(t, "1", "fail 1 cuMemHostAlloc on", "nor by the driver (cuMemHostAlloc: Input");
}

static void no_engine(struct abi *t)
{
	no_way_left(t, "1", "fail 1 cuMemcpyDtoHAsync_v2 on", "nor by the driver (Input/output error)");
}

static void last_sender(struct abi *t, int fd)
{
	struct net *net;

	setenv("BRAID_TRANSPORTS", "tcp", 1);
	net = abi_up(t);
	send_one(net, send_to(net, fd), 8, 1);
	for (;;)
		pause();
}

/* A second registration of the memory remains, so the NIC could write on: it must not. */
static void copy_taken(struct abi *t)
{
	struct peer peer = peer_start(t, last_sender);
	static const uint8_t none[8];
	struct net *net;
	struct buf in;
	struct op op;
	long before;
	void *recv, *other;

	setenv("BRAID_GPU_STAGE", "0", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	warns_expected();
	recv = recv_from(net, peer.fd);
	in = gpu_new(net, recv, 8);
	OK(net_reg(net, recv, in.data, 8, NCCL_PTR_CUDA, &other));
	nic_do("delay nic0 100000");
	before = nic_do("count sends");
	op = op_recv(net, recv, &in, 8, 0);
	ops_post(&op, 1);
	WAIT_FOR((op_test(&op), nic_do("count sends") > before));
	OK(net_dereg(net, recv, in.mr));
	TRUE(!memcmp(bytes_of(&in), none, 8));		/* otherwise this shows nothing */
	nap_ms(300);
	TRUE(!memcmp(bytes_of(&in), none, 8));
	nic_do("delay nic0 0");
	peer_kill(&peer);
	end_well();
}

/* -- by the driver ---------------------------------------------------------------------------- */

static void staged(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	gpu_messages(t, "rocev2", ALL_WAYS);
	TRUE(gpu_do("copies") > 0);
	EQ(0, gpu_do("stray"));
}

/* Set-up and copies alike happen under capture, and in a thread that has no context. */
static void staged_capture(struct abi *t)
{
	struct buf from = { .size = MEG }, host;
	struct pair p = { 0 };
	struct net *net;
	uint64_t at;

	setenv("BRAID_GPU_STAGE", "2", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	EQ(0, gpu_alloc(&at, MEG));
	from.data = (uint8_t *)(uintptr_t)at;
	from.comm = p.recv;
	host = buf_new(net, p.send, MEG, 0);
	gpu_do("capture 1");
	gpu_do("context 0");
	OK(net_reg(net, p.recv, from.data, MEG, NCCL_PTR_CUDA, &from.mr));
	for (unsigned i = 0; i < FEW; i++)
		TRUE(pass(net, &p, &host, &from, 8 * i, i));
	TRUE(gpu_do("copies") >= FEW);
	EQ(0, gpu_do("mode"));
	OK(net_dereg(net, p.recv, from.mr));
	EQ(0, gpu_do("staging"));
	EQ(0, gpu_do("mode"));
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

/*
 * The driver can't say whether a copy is complete.  It may still be under way, so nothing else copies
 * those bytes: the driver's copy would land on what the caller has written there since.
 */
static void unknown(struct abi *t, const char *fault)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf host, to;

	pair_open(net, &p);
	host = buf_new(net, p.send, 8192, 0);
	to = gpu_new(net, p.recv, 8192);
	gpu_do("engine 200000");
	EQ(0, gpu_do(fault));
	if (pass(net, &p, &host, &to, 8192, 1)) {
		fill(bytes_of(&to), 8192, 2);
		WAIT_FOR(!gpu_do("under_way"));
		filled(bytes_of(&to), 8192, 2);
	}
	gpu_end(net, &to);
	buf_free(net, &host);
	pair_close(net, &p);
	abi_down(net);
}

static void staged_unknown(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	warns_expected();
	unknown(t, "fail 1 cuEventRecord");
	gpu_do("engine 50");
	unknown(t, "fail 1 cuEventQuery");
}

static const size_t dying[] = { 8, 8192, 65536, MEG };
enum { DYING = sizeof(dying) / sizeof(dying[0]), DEATHS = 40 };

/* The NIC's device dies under messages both ways: messages go on over TCP, and flushes still work. */
static void dies(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p = { 0 };
	struct buf from, to, host[2];

	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	host[0] = buf_new(net, p.send, MEG, 0);
	host[1] = buf_new(net, p.recv, MEG, 0);
	gpu_do("flush 1");
	for (unsigned i = 0; i < DEATHS; i++) {
		struct op ops[] = { op_recv(net, p.recv, &to, MEG, 0), op_send(net, p.send, &from, MEG, 0) };

		if (i == 4) {
			fill(bytes_of(&from), MEG, i);
			ops_post(ops, 2);
			op_test(&ops[0]);
			nic_do("fatal nic0");
			ops_run(ops, 2);
			filled(bytes_of(&to), MEG, i);
		}
		TRUE(pass(net, &p, &from, &to, dying[i % DYING], 3 * i));
		TRUE(pass(net, &p, &from, &host[1], dying[i % DYING], 3 * i + 1));
		TRUE(pass(net, &p, &host[0], &to, dying[i % DYING], 3 * i + 2));
		OK(flush(net, p.recv, &to, 8));
	}
	TRUE(gpu_do("copies") > 0 && gpu_do("seen") > 0);
	laps_say(t, "with a NIC that is gone");
	EQ(0, gpu_do("blocked"));
	EQ(0, gpu_do("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	EQ(0, gpu_do("staging"));
	buf_free(net, &host[0]);
	buf_free(net, &host[1]);
	pair_close(net, &p);
	abi_down(net);
}

/* The port goes down: the driver copies.  It comes up: the NIC carries messages again. */
static void returns(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	uint64_t end = deadline_ms(GONE_MS);
	struct pair p = { 0 };
	struct buf from, to;
	long copies;

	warns_expected();
	pair_open(net, &p);
	from = gpu_new(net, p.send, MEG);
	to = gpu_new(net, p.recv, MEG);
	TRUE(pass(net, &p, &from, &to, MEG, 1));
	EQ(0, gpu_do("copies"));
	nic_do("port nic0 down");
	for (unsigned i = 0; !gpu_do("copies"); i++) {
		TRUE(pass(net, &p, &from, &to, MEG, i));
		wait_tick(end, __FILE__, __LINE__, "a copy by the driver");
	}
	nic_do("port nic0 up");
	do {
		nap_ms(10);
		copies = gpu_do("copies");
		TRUE(pass(net, &p, &from, &to, MEG, 7));
		wait_tick(end, __FILE__, __LINE__, "the NIC to be used again");
	} while (copies != gpu_do("copies"));
	EQ(0, gpu_do("blocked"));
	EQ(0, gpu_do("stray"));
	gpu_end(net, &from);
	gpu_end(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* A kernel that polls LL128's flags and LL's words: it must never see a word half written. */
struct poller {
	const _Atomic uint64_t *at;
	atomic_uint sent, early, wrong;	/* messages sent; lines seen before test() said done; torn lines */
	atomic_bool stop;
};

enum { LINES = 64, LINE_WORDS = 16, SENT = 60, ENGINE_US = 400 };

static void *poll_lines(void *arg)
{
	struct poller *p = arg;

	while (!atomic_load(&p->stop)) {
		uint64_t sent = atomic_load(&p->sent), want = sent << 32 | sent;

		for (unsigned i = 0; i < LINES; i++) {
			const _Atomic uint64_t *line = p->at + (size_t)i * LINE_WORDS;
			bool flag = atomic_load(&line[LINE_WORDS - 1]) == want;

			for (unsigned k = 0; k < LINE_WORDS; k++) {
				uint64_t w = atomic_load(&line[k]);

				p->wrong += w >> 32 != (uint32_t)w || (flag && w < want);
			}
			p->early += flag && atomic_load(&p->sent) == sent;
		}
	}
	return NULL;
}

static void lines(struct abi *t)
{
	size_t size = (size_t)LINES * LINE_WORDS * 8;
	struct poller poller = { 0 };
	struct pair p = { 0 };
	struct buf from, to;
	pthread_t thread;
	struct net *net;
	uint64_t *words;

	setenv("BRAID_GPU_STAGE", "2", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	pair_open(net, &p);
	from = buf_new(net, p.send, size, 0);
	to = gpu_new(net, p.recv, size);
	gpu_do("engine 400");
	poller.at = bytes_of(&to);
	words = (uint64_t *)(void *)from.data;
	TRUE(!pthread_create(&thread, NULL, poll_lines, &poller));
	for (uint64_t i = 1; i <= SENT; i++) {
		struct op ops[] = { op_recv(net, p.recv, &to, size, 0), op_send(net, p.send, &from, size, 0) };

		for (unsigned k = 0; k < LINES * LINE_WORDS; k++)
			words[k] = i << 32 | i;
		atomic_store(&poller.sent, (unsigned)i);
		ops_run(ops, 2);
	}
	atomic_store(&poller.stop, true);
	TRUE(!pthread_join(thread, NULL));
	printf("%u times a line was seen whole before the message was said to be there\n", poller.early);
	fflush(stdout);
	TRUE(poller.early > SENT);
	EQ(0, poller.wrong);
	EQ(2 * SENT, gpu_do("copies"));
	gpu_end(net, &to);
	buf_free(net, &from);
	pair_close(net, &p);
	abi_down(net);
}

/* Memory is deregistered, or its comm closed, under copies into it and out of it: nothing touches it later. */
static void staged_taken(struct abi *t)
{
	struct net *net = gpu_up(t, "rocev2", ALL_WAYS);
	struct pair p[TAKEN] = { 0 };
	struct buf from[TAKEN], to[TAKEN];
	unsigned under_way = 0;

	warns_expected();
	for (unsigned i = 0; i < TAKEN; i++) {
		pair_open(net, &p[i]);
		from[i] = gpu_new(net, p[i].send, MEG);
		to[i] = gpu_new(net, p[i].recv, MEG);
	}
	gpu_do("engine 3000");
	nic_do("fatal nic0");
	TRUE(pass(net, &p[0], &from[0], &to[0], MEG, 1));
	for (unsigned i = 0; i < TAKEN; i++) {
		struct op ops[] = { op_recv(net, p[i].recv, &to[i], MEG, 0),
				    op_send(net, p[i].send, &from[i], MEG, 0) };
		bool out = i & 1;

		ops_post(ops, 2);
		for (uint64_t until = now_us() + i * 3000; now_us() < until;) {
			op_test(&ops[0]);
			op_test(&ops[1]);
		}
		under_way += gpu_do("under_way") > 0;
		if (i & 2)
			gpu_end(net, out ? &from[i] : &to[i]);
		else if (out)
			OK(net_close_send(net, p[i].send));
		else
			OK(net_close_recv(net, p[i].recv));
		if (!(i & 2))
			EQ(0, gpu_free((uint64_t)(uintptr_t)(out ? from : to)[i].data));
		if (!(i & 2) && out)
			p[i].send = NULL;
		else if (!(i & 2))
			p[i].recv = NULL;
		ops_settle(&ops[out ? 0 : 1], i & 2 ? 1 : 0);
		gpu_end(net, out ? &to[i] : &from[i]);
		pair_close(net, &p[i]);
	}
	printf("memory was taken back %u times with copies under way\n", under_way);
	fflush(stdout);
	TRUE(under_way > TAKEN / 4);
	WAIT_FOR(!gpu_do("under_way"));
	EQ(0, gpu_do("stray"));
	EQ(0, gpu_do("staging"));
	abi_down(net);
}

static void big_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send;

	setenv("BRAID_CHUNK", "8m", 1);
	send = begin_by_tcp(t, fd, &net);
	send_one(net, send, BIG, 1);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void nobody_calls(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	warns_expected();		/* TCP carries the link */
	gpu_comes_alone(t, big_sender);
}

enum { LEFT_N = 8, LEFT = 3000 };

static void small_sender(struct abi *t, int fd)
{
	struct net *net;
	void *send = begin_by_tcp(t, fd, &net);

	for (uint64_t i = 0; i < LEFT_N; i++)
		send_one(net, send, LEFT, i);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

/* Data that arrived before the link ended can still be copied into the GPU. */
static void sender_left(struct abi *t)
{
	struct peer peer = peer_start(t, small_sender);
	struct buf in[LEFT_N];
	struct op ops[LEFT_N];
	struct net *net;
	void *recv;

	net = gpu_up(t, "rocev2", ALL_WAYS);
	warns_expected();		/* TCP carries the link */
	recv = recv_from(net, peer.fd);
	for (unsigned i = 0; i < LEFT_N; i++) {
		in[i] = gpu_new(net, recv, LEFT);
		blank(bytes_of(&in[i]), LEFT);
		ops[i] = op_recv(net, recv, &in[i], LEFT, 0);
	}
	meet(peer.fd);
	peer_join(&peer);
	nap_ms(50);
	ops_run(ops, LEFT_N);
	for (unsigned i = 0; i < LEFT_N; i++) {
		filled(bytes_of(&in[i]), LEFT, i);
		gpu_end(net, &in[i]);
	}
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void sender_left_staged(struct abi *t)
{
	setenv("BRAID_GPU_STAGE", "2", 1);
	sender_left(t);
}

/* A GPU that hangs: the receive fails in bounded time, and deregMr() returns in bounded time. */
static void stuck(struct abi *t)
{
	struct pair p[2] = { 0 };
	struct buf from[2], to[2];
	struct op ops[2];
	struct net *net;
	uint64_t start;
	long before;

	warns_expected();
	setenv("BRAID_GPU_STAGE", "2", 1);
	net = gpu_up(t, "rocev2", ALL_WAYS);
	for (unsigned i = 0; i < 2; i++) {
		pair_open(net, &p[i]);
		from[i] = buf_new(net, p[i].send, 8192, 0);
		to[i] = gpu_new(net, p[i].recv, 8192);
	}
	gpu_do("hold 1");
	start = now_us();
	TRUE(!pass(net, &p[0], &from[0], &to[0], 8192, 1));
	/* The last warning may be the other end's, in this same process. */
	if (!net_warned("nor by the driver (Connection timed out)"))
		FAIL("the reason is missing: %s", net_last_warn());
	ops[0] = op_recv(net, p[1].recv, &to[1], 8192, 0);
	ops[1] = op_send(net, p[1].send, &from[1], 8192, 0);
	before = gpu_do("under_way");
	ops_post(ops, 2);
	WAIT_FOR((op_test(&ops[0]), gpu_do("under_way") > before));
	gpu_end(net, &to[1]);
	if (!net_warned("is the GPU alive"))
		FAIL("the reason is missing: %s", net_last_warn());
	TRUE(now_us() - start < 20 * 1000000ull * drive_slow());
	gpu_do("hold 0");
	end_well();
}

static const struct abi_case cases[] = {
	CASE("a peer without RDMA sends to GPU memory and receives from it over TCP",
	     by_nic, ONCE, .warns = "peer-lacks-transport"),
	CASE("GPU data over TCP: copied by the driver", by_driver, ONCE),
	CASE("GPU data over TCP: the driver copies if the NIC is gone", nic_gone, ONCE),
	CASE("GPU data over TCP: the driver copies if the NIC hangs, which is detected once",
	     no_loop, ONCE),
	CASE("GPU data over TCP: without NIC and driver the comm fails, and the log says so",
	     nothing_left, ONCE, .warns = "gpu-copy-failed"),
	CASE("GPU data over TCP: without NIC, and driver without memory, the comm fails",
	     no_stage, ONCE),
	CASE("GPU data over TCP: without NIC, and driver that copies nothing, the comm fails",
	     no_engine, ONCE),
	CASE("messages between GPU and host, by the driver", staged, ONCE),
	CASE("messages between GPU and host during graph capture, and without a context",
	     staged_capture, ONCE),
	CASE("a copy whose state the driver can't report is not repeated by a NIC",
	     staged_unknown, ONCE),
	CASE("the NIC is lost under GPU messages: messages and flushes go on over TCP", dies, ONCE),
	CASE("a port goes down and up again: the driver copies, and no more", returns, ONCE),
	CASE("a GPU kernel that polls lines sees flags after payload, and no torn words",
	     lines, ONCE),
	CASE("memory is taken back, and comms are closed, with copies under way", staged_taken, ONCE),
	CASE("memory is taken back with a NIC's copy under way", copy_taken, ONCE),
	CASE("a message is copied into a GPU although the application makes no call",
	     nobody_calls, ONCE),
	CASE("data is copied into a GPU although its sender exited long ago", sender_left, ONCE),
	CASE("data is copied into a GPU by the driver although its sender exited long ago",
	     sender_left_staged, ONCE),
	CASE("a GPU that copies nothing any more is an error, and deregMr returns",
	     stuck, ONCE, .warns = "gpu-copy-late"),
};

GPU_MAIN(cases)
