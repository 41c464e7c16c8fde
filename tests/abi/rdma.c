/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma.c - see rdma.h. */
#include "tests/abi/rdma.h"

#include <stdio.h>
#include <stdlib.h>

bool fuses;
unsigned qps_left;

const char *const nic_kinds[] = { "rocev2", "iwarp", "ib" };

long nic_sends(void)
{
	return ctl("count sends");
}

void objects_gone(void)
{
	static const char *const what[] = { "live qp", "live cq", "live srq", "live ah", "live channel" };

	for (unsigned i = 0; i < 5; i++)
		if (ctl(what[i]))
			FAIL("%s is %ld after finalize", what[i], ctl(what[i]));
	if (ctl("live mr") > (fuses ? 2 : 1) * MRS_KEPT)
		FAIL("%ld registrations after finalize", ctl("live mr"));
}

static struct net *net_up(struct abi *t)
{
	struct net *net;

	if (fuses)
		return fused_up(t);
	net = abi_up(t);
	on_device(0);
	return net;
}

void rdma_follow(struct abi *t, int fd)
{
	static struct job j;
	struct net *net = net_up(t);
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
	if (qps_left)
		EQ(qps_left, ctl("live qp"));
	meet(fd);
	job_close(&j);
	objects_gone();
}

struct job *rdma_start_with(struct abi *t, struct peer *p, void (*body)(struct abi *t, int fd))
{
	static struct job j;
	struct net *net;
	void *send, *recv;

	*p = peer_start(t, body);
	net = net_up(t);
	recv = recv_from(net, p->fd);
	send = send_to(net, p->fd);
	warns_expected();
	job_new(&j, net, send, recv);
	return &j;
}

struct job *rdma_start(struct abi *t, struct peer *p)
{
	return rdma_start_with(t, p, rdma_follow);
}

struct job *rdma_start_lanes(struct abi *t, struct peer *p, const char *kind, const char *more,
			     const char *lanes)
{
	struct job *j;

	nic(kind, more);
	setenv("BRAID_LANES", lanes, 1);
	j = rdma_start(t, p);
	job_play(j, 100);
	return j;
}

void rdma_finish(struct job *j, struct peer *p)
{
	j->out.stop = true;
	job_finish(j);
	meet(p->fd);
	job_close(j);
	objects_gone();
	peer_join(p);
}

bool uses_rdma(struct job *j)
{
	long before = nic_sends();

	job_need(j, 16, 10000 * SLACK);
	return nic_sends() - before > 16;
}

void stall_ends(struct job *j, const char *what)
{
	job_need(j, 100, STALL_MS * SLACK);
	printf("%s: the longest stall was %llu ms\n", what, (unsigned long long)j->longest_us / 1000);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	j->longest_us = 0;
}

void rdma_returns(struct job *j, const char *what)
{
	uint64_t from = now_us(), end = deadline_ms(RETURN_MS * SLACK);

	while (!uses_rdma(j))
		wait_tick(end, __FILE__, __LINE__, "RDMA to be used again");
	printf("%s: back on RDMA after %llu ms\n", what, (unsigned long long)(now_us() - from) / 1000);
	j->longest_us = 0;
}

bool break_qp(unsigned from)
{
	char cmd[32];

	for (unsigned i = 0; i < QPNS; i++) {
		snprintf(cmd, sizeof(cmd), "qp %u error", (from + i) % QPNS);
		if (!fake_ctl(cmd))
			return true;
	}
	return false;
}

int rdma_main(const char *group, const struct abi_case *cases, size_t n)
{
	int failed;

	fakes_load();
	failed = abi_main(group, cases, n);
	fakes_forget();
	return failed;
}
