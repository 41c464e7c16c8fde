/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rdma_peer.c - a peer that is killed, stopped, or can't do the same RDMA. */
#include "tests/abi/rdma.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void killed(struct abi *t, const char *kind)
{
	uint64_t from, end;
	struct peer p;
	struct job *j;

	nic(kind, "");
	setenv("BRAID_IB_TIMEOUT", "21", 1);	/* too long for lost packets to show the death */
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	kill(p.pid, SIGKILL);
	from = now_us();
	end = deadline_ms(NOTICE_MS * SLACK);
	for (;;) {
		struct op *op = &j->in.op[j->in.oldest % DEPTH];

		if (!op->posted && !op_post(op))
			continue;
		if ((op->done || op_test(op)) && op->res)
			break;
		if (op->done)
			op->posted = op->done = false;
		wait_tick(end, __FILE__, __LINE__, "an error");
	}
	printf("%s: %s after %llu ms\n", kind, net_result_name(j->in.op[j->in.oldest % DEPTH].res),
	       (unsigned long long)(now_us() - from) / 1000);
	OK(net_close_send(j->net, j->out.comm));
	OK(net_close_recv(j->net, j->in.comm));
	abi_down(j->net);
	objects_gone();
	peer_kill(&p);
}

static void stopped(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = rdma_start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	kill(p.pid, SIGSTOP);
	job_play(j, 4500);
	kill(p.pid, SIGCONT);
	job_need(j, 100, STALL_MS * SLACK);
	rdma_returns(j, kind);
	rdma_finish(j, &p);
}

static void without(struct abi *t, int fd)
{
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	rdma_follow(t, fd);
}

static void elsewhere(struct abi *t, int fd)
{
	bool roce = strstr(getenv("BRAID_TEST_FAKE_DEVICES"), nic_kinds[0]) != NULL;
	char text[64];

	setenv("BRAID_TEST_FAKE_HOST", "elsewhere", 1);
	snprintf(text, sizeof(text), "nic0:%s,netdev=lo", nic_kinds[roce]);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	rdma_follow(t, fd);
}

static void unlike(struct abi *t, const char *kind, void (*body)(struct abi *t, int fd))
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = rdma_start_with(t, &p, body);
	job_need(j, 200, STALL_MS * SLACK);
	job_play(j, 3000);
	TRUE(!uses_rdma(j));
	EQ(1, net_warn_count());
	printf("%s: %s\n", kind, net_last_warn());
	rdma_finish(j, &p);
}

static void peer_has_none(struct abi *t, const char *kind)
{
	unlike(t, kind, without);
}

static void peer_has_other(struct abi *t, const char *kind)
{
	unlike(t, kind, elsewhere);
}

EACH_KIND(killed)
EACH_KIND(stopped)
EACH_KIND(peer_has_none)
EACH_KIND(peer_has_other)

static const struct abi_case cases[] = {
	BOTH("a peer that is killed is noticed at once", killed),
	BOTH("a peer that is stopped is waited for", stopped),
	BOTH("a peer without RDMA is met over TCP", peer_has_none),
	BOTH("a peer with another kind of NIC is met over TCP", peer_has_other),
};

RDMA_MAIN(cases)
