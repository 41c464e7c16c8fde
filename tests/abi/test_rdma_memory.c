/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rdma_memory.c - buffers that the NIC does not know, or that are deregistered under a message. */
#include "tests/abi/rdma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { BIG = 9 << 20, BATCH = 4, SMALL = 4000, HOME_RING = 256 << 10 };

static void plain_messages(struct net *net, void *send, void *recv)
{
	struct buf out = buf_new(net, NULL, BIG, 1), in = buf_new(net, NULL, BIG, 3);

	for (unsigned i = 0; i < 6; i++) {
		struct op ops[] = { op_recv(net, recv, &in, BIG, 0), op_send(net, send, &out, BIG, 0) };

		if (i & 1)
			OK(net_reg(net, send, out.data, BIG, NCCL_PTR_HOST, &ops[1].mr[0]));
		fill(out.data, BIG, i);
		blank(in.data, BIG);
		/* Memory that can only be read can be sent. */
		TRUE(!mprotect(out.map, out.map_len, PROT_READ));
		ops_run(ops, 2);
		filled(in.data, BIG, i);
		if (ops[1].mr[0])
			OK(net_dereg(net, send, ops[1].mr[0]));
		TRUE(!mprotect(out.map, out.map_len, PROT_READ | PROT_WRITE));
	}
	buf_free(net, &out);
	buf_free(net, &in);
}

static void plain_other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	plain_messages(net, send, recv);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	objects_gone();
}

/* Chunks of unregistered memory that need more slots than there are, both ways, nothing inline. */
static void plain_memory(struct abi *t, const char *kind)
{
	struct peer p;
	struct net *net;
	void *send, *recv;

	nic(kind, ",max_inline=0");
	setenv("BRAID_CHUNK", "4m", 1);
	p = peer_start(t, plain_other);
	net = abi_up(t);
	recv = recv_from(net, p.fd);
	send = send_to(net, p.fd);
	plain_messages(net, send, recv);
	TRUE(nic_sends() > BIG / 8240);
	meet(p.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	objects_gone();
	peer_join(&p);
}

enum { DEREG_RECV, CLOSE_RECV, DEREG_SEND, ROUND_KINDS, ROUNDS = 24 };

/* The sender of a round.  The first message shows the receiver that messages are large. */
static void round_send(struct abi *t, struct job *j, int fd, char kind)
{
	uint64_t end = deadline_ms(20000);
	struct buf b[BATCH];
	struct op ops[BATCH];
	void *comm = send_to(j->net, fd);
	bool over = false;

	send_one(j->net, comm, MOST, 7);
	for (unsigned i = 0; i < BATCH; i++) {
		b[i] = buf_new(j->net, comm, MOST, 0);
		fill(b[i].data, MOST, i);
		/* A second registration: the NIC keeps knowing this memory. */
		OK(net_reg(j->net, j->out.comm, b[i].data, MOST, NCCL_PTR_HOST, &b[i].comm));
		ops[i] = op_send(j->net, comm, &b[i], MOST, 0);
	}
	for (uint64_t until = now_us() + rnd_below(t, 4000); now_us() < until;) {
		ops_step(ops, BATCH);
		job_step(j);
	}
	for (unsigned i = 0; kind == DEREG_SEND && i < BATCH; i++) {
		OK(net_dereg(j->net, comm, b[i].mr));
		blank(b[i].data, MOST);
	}
	while (kind != DEREG_SEND && !over) {
		over = ops_step(ops, BATCH);
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "sends to end");
	}
	for (unsigned i = 0; i < BATCH; i++) {
		if (kind != DEREG_SEND)
			OK(net_dereg(j->net, comm, b[i].mr));
		OK(net_dereg(j->net, j->out.comm, b[i].comm));
		b[i].comm = NULL;
		buf_free(j->net, &b[i]);
	}
	OK(net_close_send(j->net, comm));
}

/* The receiver of a round: memory that was deregistered is not written any more. */
static void round_recv(struct abi *t, struct job *j, int fd, char kind)
{
	uint64_t end = deadline_ms(20000);
	struct buf b[BATCH];
	struct op ops[BATCH];
	void *comm = recv_from(j->net, fd);
	bool over = false;

	recv_one(j->net, comm, MOST, 7);
	for (unsigned i = 0; i < BATCH; i++) {
		b[i] = buf_new(j->net, comm, MOST, 0);
		OK(net_reg(j->net, j->in.comm, b[i].data, MOST, NCCL_PTR_HOST, &b[i].comm));
		ops[i] = op_recv(j->net, comm, &b[i], MOST, 0);
	}
	for (unsigned i = 0; i < BATCH; i++)	/* the sender may have deregistered already */
		WAIT_FOR(op_post(&ops[i]));
	for (uint64_t until = now_us() + rnd_below(t, 3000); now_us() < until;) {
		ops_step(ops, BATCH);
		job_step(j);
	}
	while (kind == DEREG_SEND && !over) {
		over = ops_step(ops, BATCH);
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "receives to end");
	}
	for (unsigned i = 0; i < BATCH; i++)
		if (ops[i].done && !ops[i].res)
			filled(b[i].data, MOST, i);
	if (kind == CLOSE_RECV)
		OK(net_close_recv(j->net, comm));
	for (unsigned i = 0; kind != CLOSE_RECV && i < BATCH; i++)
		OK(net_dereg(j->net, comm, b[i].mr));
	for (unsigned i = 0; i < BATCH; i++)
		memset(b[i].data, 0x77, MOST);
	job_play(j, 30);
	for (unsigned i = 0; i < BATCH; i++) {
		for (size_t k = 0; k < MOST; k++)
			if (b[i].data[k] != 0x77)
				FAIL("byte %zu was written after it was taken back", k);
		OK(net_dereg(j->net, j->in.comm, b[i].comm));
		b[i].comm = NULL;
		buf_free(j->net, &b[i]);
	}
	if (kind != CLOSE_RECV)
		OK(net_close_recv(j->net, comm));
}

static bool recv_now(int fd, char *ret)
{
	return recv(fd, ret, 1, MSG_DONTWAIT) == 1;
}

static void follow_rounds(struct abi *t, int fd)
{
	static struct job j;
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	char kind;

	warns_expected();
	job_new(&j, net, send, recv);
	while (!j.in.stops) {
		job_step(&j);
		if (recv_now(fd, &kind))
			round_send(t, &j, fd, kind);
	}
	j.out.stop = true;
	job_finish(&j);
	meet(fd);
	job_close(&j);
	objects_gone();
}

static void taken_back(struct abi *t, const char *kind, const char *lanes)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	j = rdma_start_with(t, &p, follow_rounds);
	job_play(j, 100);
	for (unsigned i = 0; i < ROUNDS; i++) {
		char how = (char)(i % ROUND_KINDS);

		give(p.fd, &how, 1);
		round_recv(t, j, p.fd, how);
		job_need(j, 4, STALL_MS * SLACK);
	}
	rdma_returns(j, kind);
	rdma_finish(j, &p);
}

static void memory(struct abi *t, const char *kind)
{
	taken_back(t, kind, "1");
}

static void memory_lanes(struct abi *t, const char *kind)
{
	taken_back(t, kind, "4");
}

static void memory_ib(struct abi *t)
{
	memory_lanes(t, nic_kinds[2]);
}

/* The service thread does it, and the next messages undo it: three times. */
static void at_rest(struct abi *t, const char *kind)
{
	struct buf out, in;
	struct net *net;
	struct pair p;
	long fresh;

	nic(kind, "");
	setenv("BRAID_LANES", "1", 1);
	net = abi_up(t);
	pair_open(net, &p);
	out = buf_new(net, NULL, SMALL, 1);
	in = buf_new(net, NULL, SMALL, 3);
	fresh = ctl("live pinned");
	for (unsigned i = 0; i < 3; i++) {
		uint64_t end = deadline_ms(20000);

		do {
			struct op ops[] = {
				op_recv(net, p.recv, &in, SMALL, 0), op_send(net, p.send, &out, SMALL, 0),
			};

			fill(out.data, SMALL, i);
			ops_run(ops, 2);
			filled(in.data, SMALL, i);
			wait_tick(end, __FILE__, __LINE__, "the queue of frames to be registered");
		} while (ctl("live pinned") < fresh + HOME_RING);
		WAIT_FOR(ctl("live pinned") <= fresh);
	}
	buf_free(net, &out);
	buf_free(net, &in);
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

EACH_KIND(plain_memory)
EACH_KIND(at_rest)
EACH_KIND(memory)
EACH_KIND(memory_lanes)

static const struct abi_case cases[] = {
	BOTH("memory that the NIC does not know is sent and received", plain_memory),
	BOTH("a link at rest gives its registered memory back, and gets it again", at_rest),
	BOTH("memory that is taken back is left alone", memory),
	BOTH("so it is with several lanes", memory_lanes),
	CASE("IB: memory that is taken back is left alone", memory_ib, LONG),
};

RDMA_MAIN(cases)
