/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fake_faults.c - what goes wrong with the fake NICs of tests/fake: paths, devices, limits, calls,
 * threads and processes.
 *
 * What a rule forbids is tried and must be refused in the way that the specification, or a real
 * driver, does it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include "tests/unit/fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- paths that don't work ------------------------------------------------------------------------ */

static void s_peer_psn(struct ibv_qp_attr *a) { a->rq_psn--; }
static void s_peer_later(struct ibv_qp_attr *a) { a->rq_psn++; }
static void s_peer_mtu(struct ibv_qp_attr *a) { a->path_mtu = IBV_MTU_512; }
static void s_peer_qpn(struct ibv_qp_attr *a) { a->dest_qp_num ^= 1 << 12; }
static void s_peer_lid(struct ibv_qp_attr *a) { a->ah_attr.dlid = 0x1234; }
static void s_peer_gid(struct ibv_qp_attr *a) { a->ah_attr.grh.dgid.raw[15] ^= 0x40; }
static void s_peer_v1(struct ibv_qp_attr *a) { a->ah_attr.grh.sgid_index = 2; }

static void s_nothing(struct ibv_qp_attr *a) { (void)a; }
/* The attributes of the two ends do not match, so nothing arrives. */
static void mismatch_ends(const char *dev_a, const char *dev_b, void (*spoil_a)(struct ibv_qp_attr *),
			  void (*spoil_b)(struct ibv_qp_attr *), enum ibv_wc_status status)
{
	struct ibv_qp_attr attr;
	struct end a, b;
	struct addr aa, ab;

	end_open(&a, dev_a, BUF);
	end_open(&b, dev_b, BUF);
	a.sgid_index = b.sgid_index = dev_a[0] == 'v' ? 3 : 0;
	aa = addr_of(&a);
	ab = addr_of(&b);
	attr = attr_to(&a, &ab);
	spoil_a(&attr);
	assert_int_equal(walk(&a, &attr), 0);
	attr = attr_to(&b, &aa);
	spoil_b(&attr);
	assert_int_equal(walk(&b, &attr), 0);
	memset(b.buf, 0x11, 8);
	memset(a.buf, 0x22, 8);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &ab, 0, 8, IBV_SEND_SIGNALED), 0);
	wait_status(&a, status);
	assert_int_equal(b.buf[0], 0x11);
	end_close(&a);
	end_close(&b);
}

static void mismatch(const char *dev_a, const char *dev_b, void (*spoil_a)(struct ibv_qp_attr *),
		     void (*spoil_b)(struct ibv_qp_attr *))
{
	mismatch_ends(dev_a, dev_b, spoil_a, spoil_b, IBV_WC_RETRY_EXC_ERR);
}

static void test_ends_that_dont_fit(void **state)
{
	(void)state;
	mismatch("ib0", "ib1", s_nothing, s_peer_psn);
	/* what was expected before is taken for a packet that came twice: acknowledged, and thrown away */
	mismatch_ends("ib0", "ib1", s_nothing, s_peer_later, IBV_WC_SUCCESS);
	mismatch("ib0", "ib1", s_nothing, s_peer_mtu);
	mismatch("ib0", "ib1", s_nothing, s_peer_qpn);
	mismatch("ib0", "ib1", s_peer_qpn, s_nothing);
	mismatch("ib0", "ib1", s_peer_lid, s_nothing);
	mismatch("ib0", "ib1", s_nothing, s_peer_lid);
	mismatch("v2", "w2", s_peer_gid, s_nothing);
	mismatch("v2", "w2", s_nothing, s_peer_gid);
	mismatch("v2", "w2", s_nothing, s_peer_v1);
	mismatch("v2", "w2", s_peer_v1, s_nothing);
}

/* A dead path is noticed after the queue pair's timeout, not before and not much later. */
static void test_a_dead_path_is_noticed_in_time(void **state)
{
	struct ibv_qp_attr attr;
	struct end a, b;
	struct addr ab;
	uint64_t t;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	ab = addr_of(&b);
	attr = attr_to(&a, &ab);
	attr.timeout = 14;		/* 67 ms */
	attr.retry_cnt = 3;
	assert_int_equal(walk(&a, &attr), 0);
	t = ms_now();
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &ab, 0, 8, 0), 0);
	wait_status(&a, IBV_WC_RETRY_EXC_ERR);
	t = ms_now() - t;
	if (t < 4 * 67 || t > 4 * 67 + 5000)
		fail_msg("noticed after %llu ms", (unsigned long long)t);
	end_close(&a);
	end_close(&b);
}

static void test_port_goes_and_returns(void **state)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr;
	struct end a, b;
	struct addr aa, ab;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	aa = addr_of(&a);
	ab = addr_of(&b);
	attr = attr_to(&a, &ab);
	attr.timeout = 15;		/* 134 ms, eight times */
	attr.retry_cnt = 7;
	assert_int_equal(walk(&a, &attr), 0);
	join(&b, &aa);
	fill(&a, BUF, 42);
	ok("port ib1/1 down");
	wait_event(&b, IBV_EVENT_PORT_ERR);
	assert_int_equal(ibv_query_port(b.ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &ab, 0, BUF, IBV_SEND_SIGNALED), 0);
	usleep(50000);
	assert_int_equal(b.buf[BUF - 1], 0);
	ok("port ib1/1 up");
	wait_event(&b, IBV_EVENT_PORT_ACTIVE);
	wait_status(&a, IBV_WC_SUCCESS);	/* it was sent again */
	assert_memory_equal(a.buf, b.buf, BUF);
	assert_true(braid_fake_ctl("count retries") > 0);
	ok("drop ib0 1");
	attr = (struct ibv_qp_attr){ 0 };
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &ab, 0, 8, 0), 0);
	wait_status(&a, IBV_WC_RETRY_EXC_ERR);
	ok("drop ib0 0");
	end_close(&a);
	end_close(&b);
}

/* Packets of data, acknowledgements and responses are lost: each message still arrives once, whole. */
static void test_lost_packets_are_sent_again(void **state)
{
	struct ibv_qp_attr attr;
	struct end a, b;
	struct addr aa, ab;

	(void)state;
	end_open(&a, "ib0", 16 * BUF);
	end_open(&b, "ib1", 16 * BUF);
	aa = addr_of(&a);
	ab = addr_of(&b);
	attr = attr_to(&a, &ab);
	attr.timeout = 10;
	attr.retry_cnt = 7;
	assert_int_equal(walk(&a, &attr), 0);
	join(&b, &aa);
	for (unsigned k = 0; k < 40; k++) {
		char cmd[32];

		snprintf(cmd, sizeof(cmd), "lose %s %u", k & 1 ? "ib0" : "ib1", 1 + k % 3);
		fill(&a, 16 * BUF, k);
		assert_int_equal(take(&b, 0, 0), 0);
		ok(cmd);
		if (k & 2)
			assert_int_equal(post(&a, IBV_WR_RDMA_READ, &ab, 8 * BUF, 8 * BUF, 0), 0);
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, &ab, 0, 8 * BUF, IBV_SEND_SIGNALED), 0);
		wait_status(&a, IBV_WC_SUCCESS);
		wait_status(&b, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, (k & 2 ? 16 : 8) * BUF);
		ok("lose ib0 0");
		ok("lose ib1 0");
	}
	end_close(&a);
	end_close(&b);
}

static void test_a_bit_is_flipped(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM };
	struct end a, b;
	struct addr to;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned flips = 0; flips < 2; flips++) {
			unsigned changed = 0;

			ok(!flips ? "flip ib0 sends 0" : k ? "flip ib0 writes 1" : "flip ib0 sends 1");
			fill(&a, BUF, k);
			memset(b.buf, 0, BUF);
			assert_int_equal(take(&b, 0, BUF), 0);
			assert_int_equal(post(&a, ops[k], &to, 0, BUF, IBV_SEND_SIGNALED), 0);
			wait_status(&a, IBV_WC_SUCCESS);
			wait_status(&b, IBV_WC_SUCCESS);
			for (unsigned i = 0; i < BUF; i++)
				changed += (unsigned)__builtin_popcount((uint8_t)(a.buf[i] ^ b.buf[i]));
			assert_int_equal(changed, flips);
		}
	}
	assert_int_equal(braid_fake_ctl("count flips"), 2);
	assert_int_equal(braid_fake_ctl("flip ib0 reads 1"), -EINVAL);
	end_close(&a);
	end_close(&b);
}

static void test_delay(void **state)
{
	struct end a, b;
	struct addr to;
	uint64_t t;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	ok("delay ib1 30000");
	t = ms_now();
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_true(ms_now() - t >= 29);
	ok("delay ib1 0");
	end_close(&a);
	end_close(&b);
}

/* --- what can happen to a queue pair, a GID, a device ----------------------------------------------- */

static void test_queue_pair_is_forced_into_error(void **state)
{
	struct end a, b;
	char cmd[64];

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	assert_int_equal(take(&a, 0, 8), 0);
	snprintf(cmd, sizeof(cmd), "qp %u error", a.qp->qp_num);
	ok(cmd);
	wait_event(&a, IBV_EVENT_QP_FATAL);
	wait_status(&a, IBV_WC_WR_FLUSH_ERR);
	end_close(&a);
	assert_int_equal(braid_fake_ctl(cmd), -ENOENT);
	end_close(&b);
}

static void test_send_queue_drains(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end a, b;
	struct addr to;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, BUF, IBV_SEND_SIGNALED), 0);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	wait_event(&a, IBV_EVENT_SQ_DRAINED);
	wait_status(&a, IBV_WC_SUCCESS);
	fill(&a, 8, 123);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, IBV_SEND_SIGNALED), 0);
	usleep(10000);
	assert_int_equal(b.buf[0], 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	end_close(&a);
	end_close(&b);
}

static void test_gid_tables(void **state)
{
	static const uint8_t v4[16] = { [10] = 0xff, 0xff, 192, 0, 2, 2 };
	struct ibv_gid_entry e;
	struct end a;

	(void)state;
	end_open(&a, "v2", BUF);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 0, &e, 0), 0);
	assert_int_equal(e.gid_type, IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(e.gid.raw[0], 0xfe);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 3, &e, 0), 0);
	assert_int_equal(e.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_memory_equal(e.gid.raw, v4, 16);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 5, &e, 0), 0);
	assert_int_equal(e.gid.raw[0], 0x20);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 6, &e, 0), ENODATA);
	ok("gid v2/1 3 none");
	wait_event(&a, IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 3, &e, 0), ENODATA);
	ok("gid v2/1 3 192.0.2.2 v2");
	wait_event(&a, IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 3, &e, 0), 0);
	assert_memory_equal(e.gid.raw, v4, 16);
	end_close(&a);
	end_open(&a, "ib0", BUF);
	assert_int_equal(ibv_query_gid_ex(a.ctx, 1, 0, &e, 0), 0);
	assert_int_equal(e.gid_type, IBV_GID_TYPE_IB);
	assert_int_equal(a.port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	assert_true(a.port.lid > 0 && a.port.lid < 0xc000);
	end_close(&a);
}

static void test_pci_address(void **state)
{
	struct ibv_context *ctx = open_dev("v1");
	char path[512], real[PATH_MAX];

	(void)state;
	snprintf(path, sizeof(path), "%s/device", ctx->device->ibdev_path);
	assert_non_null(realpath(path, real));
	assert_string_equal(strrchr(real, '/'), "/0000:01:00.0");
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* RoCE resolves an address when a handle is made; this fails for an address that no host has. */
static void test_address_handles(void **state)
{
	struct end a;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	(void)state;
	end_open(&a, "v2", BUF);
	a.sgid_index = 3;
	attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
		.grh = { .dgid = addr_of(&a).gid, .sgid_index = 3 } };
	ah = ibv_create_ah(a.pd, &attr);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	attr.grh.dgid.raw[15] ^= 0x55;
	assert_null(ibv_create_ah(a.pd, &attr));
	assert_int_equal(errno, ETIMEDOUT);
	attr.is_global = 0;
	assert_null(ibv_create_ah(a.pd, &attr));
	end_close(&a);
}

static void test_device_dies(void **state)
{
	struct ibv_device_attr attr;
	struct end a;
	struct addr to;

	(void)state;
	end_open(&a, "dies", BUF);
	to = addr_of(&a);
	join(&a, &to);
	assert_int_equal(take(&a, 0, 8), 0);
	ok("fatal dies");
	wait_event(&a, IBV_EVENT_DEVICE_FATAL);
	wait_status(&a, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_query_device(a.ctx, &attr), EIO);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), EIO);
	assert_null(ibv_alloc_pd(a.ctx));
	assert_int_equal(errno, EIO);
	end_close(&a);
}

/* --- limits, and calls that fail -------------------------------------------------------------------- */

static void test_limits(void **state)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct end a;

	(void)state;
	end_open(&a, "small", 4096);	/* max_qp=2 max_cq=2 max_mr=2 max_cqe=64 max_wr=16 memlock=8192 */
	init.send_cq = init.recv_cq = a.cq;
	qp = ibv_create_qp(a.pd, &init);
	assert_non_null(qp);
	assert_null(ibv_create_qp(a.pd, &init));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	init.cap.max_send_wr = 17;
	assert_null(ibv_create_qp(a.pd, &init));
	assert_int_equal(errno, EINVAL);
	cq = ibv_create_cq(a.ctx, 64, NULL, NULL, 0);
	assert_non_null(cq);
	assert_null(ibv_create_cq(a.ctx, 64, NULL, NULL, 0));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_null(ibv_create_cq(a.ctx, 65, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
	mr = ibv_reg_mr(a.pd, a.buf, 4096, ALL);
	assert_non_null(mr);
	assert_null(ibv_reg_mr(a.pd, a.buf, 4096, ALL));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(a.pd, a.buf, 4095, ALL);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	end_close(&a);
}

/* Makes all objects, gives up at the first failure, and destroys those that were made. */
static bool life(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_port_attr port;
	static char buf[64];
	bool good = false;

	if (!list)
		return false;
	ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (ctx && !ibv_query_port(ctx, 1, &port) && (pd = ibv_alloc_pd(ctx)) &&
	    (mr = ibv_reg_mr(pd, buf, sizeof(buf), ALL)) && (cq = ibv_create_cq(ctx, 1, NULL, NULL, 0)))
		good = true;
	if (cq)
		ibv_destroy_cq(cq);
	if (mr)
		ibv_dereg_mr(mr);
	if (pd)
		ibv_dealloc_pd(pd);
	if (ctx)
		ibv_close_device(ctx);
	return good;
}

static void test_every_call_can_fail(void **state)
{
	char cmd[64];
	int k = 0;

	(void)state;
	do {
		snprintf(cmd, sizeof(cmd), "fail %d EIO", ++k);
		ok(cmd);
		errno = 0;
	} while (!life() && braid_fake_failed());
	assert_int_equal(k, 7);
	assert_int_equal(braid_fake_ctl("calls"), 6);
	ok("fail 1 ibv_reg_mr ENOMEM");
	assert_false(life());
	assert_string_equal(braid_fake_failed(), "ibv_reg_mr");
	assert_true(life());
	ok("fail 1 ibv_reg_mr on");
	assert_false(life());
	assert_false(life());
	ok("fail 0");
	assert_true(life());
	assert_int_equal(braid_fake_ctl("live mr"), 0);
	assert_int_equal(braid_fake_ctl("live ctx"), 0);
}

/* --- threads -------------------------------------------------------------------------------------- */

static struct end shared[2];

/* Queue pairs come and go on two devices, which other threads use too; no thread gets another's bytes. */
static void *busy(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	for (unsigned round = 0; round < 10; round++) {
		struct end e[2] = { shared[0], shared[1] };
		struct addr to[2];

		for (unsigned i = 0; i < 2; i++) {
			e[i].cq = ibv_create_cq(e[i].ctx, 4 * DEPTH, NULL, NULL, 0);
			e[i].qp = make_qp(&e[i]);
			e[i].buf = malloc(BUF);
			memset(e[i].buf, 0, BUF);
			e[i].mr = ibv_reg_mr(e[i].pd, e[i].buf, BUF, ALL);
			assert_true(e[i].cq && e[i].qp && e[i].mr);
			to[i] = addr_of(&e[i]);
		}
		join(&e[0], &to[1]);
		join(&e[1], &to[0]);
		for (unsigned k = 0; k < 10; k++) {
			uint32_t n = (me * 7919 + round * 104729 + k * 1299709) % BUF;

			fill(&e[0], BUF, me + k);
			assert_int_equal(take(&e[1], 0, 0), 0);
			assert_int_equal(post(&e[0], IBV_WR_RDMA_WRITE_WITH_IMM, &to[1], 0, n,
					      IBV_SEND_SIGNALED), 0);
			wait_status(&e[1], IBV_WC_SUCCESS);
			wait_status(&e[0], IBV_WC_SUCCESS);
			assert_memory_equal(e[0].buf, e[1].buf, n);
		}
		/* the last leaves with work outstanding */
		post(&e[0], IBV_WR_RDMA_WRITE, &to[1], 0, BUF, 0);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(ibv_dereg_mr(e[i].mr), 0);
			free(e[i].buf);
			assert_int_equal(ibv_destroy_qp(e[i].qp), 0);
			assert_int_equal(ibv_destroy_cq(e[i].cq), 0);
		}
	}
	return NULL;
}

static void test_threads_share_devices(void **state)
{
	pthread_t t[4];

	(void)state;
	end_open(&shared[0], "ib0", BUF);
	end_open(&shared[1], "ib1", BUF);
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, busy, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	end_close(&shared[0]);
	end_close(&shared[1]);
}

/* --- processes -------------------------------------------------------------------------------------- */

struct other {
	pid_t pid;
	int to, from;
};

/* Another process with one end, before we have any: it runs `body` and ends. */
static struct other start(void (*body)(int from, int to))
{
	struct other o;
	int up[2], down[2];

	assert_int_equal(braid_fake_ctl("live ctx"), 0);
	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	o.pid = fork();
	assert_true(o.pid >= 0);
	if (!o.pid) {
		close(up[0]);
		close(down[1]);
		body(down[0], up[1]);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	o.to = down[1];
	o.from = up[0];
	return o;
}

static void must(bool good)
{
	if (!good)
		_exit(1);
}

static void swap(int from, int to, const struct addr *mine, struct addr *theirs)
{
	must(write(to, mine, sizeof(*mine)) == sizeof(*mine));
	must(read(from, theirs, sizeof(*theirs)) == sizeof(*theirs));
}

/* It connects, and then makes no call at all until the test ends. */
static void passive_target(int from, int to)
{
	struct addr mine, theirs;
	struct end b;
	char c;

	end_open(&b, "ib1", BUF);
	mine = addr_of(&b);
	swap(from, to, &mine, &theirs);
	join(&b, &theirs);
	must(write(to, "x", 1) == 1);
	must(read(from, &c, 1) == 1);
	for (unsigned i = 0; i < BUF; i++)
		must(b.buf[i] == (char)(i * 7 + 9 + (i >> 8)));
	end_close(&b);
}

static int ended(struct other *o)
{
	int status;

	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	close(o->to);
	close(o->from);
	return status;
}

static void test_another_process_is_written_to(void **state)
{
	struct other o = start(passive_target);
	struct addr mine, theirs;
	struct end a;
	char c;

	(void)state;
	end_open(&a, "ib0", BUF);
	mine = addr_of(&a);
	swap(o.from, o.to, &mine, &theirs);
	join(&a, &theirs);
	assert_int_equal(read(o.from, &c, 1), 1);
	fill(&a, BUF, 9);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &theirs, 0, BUF, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	memset(a.buf, 0, BUF);
	assert_int_equal(post(&a, IBV_WR_RDMA_READ, &theirs, 0, BUF, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_int_equal(a.buf[1], 16);
	assert_int_equal(write(o.to, "x", 1), 1);
	assert_int_equal(ended(&o), 0);
	end_close(&a);
}

static void test_a_killed_peer_is_noticed(void **state)
{
	struct other o = start(passive_target);
	struct addr mine, theirs;
	struct end a;
	char c;

	(void)state;
	end_open(&a, "ib0", BUF);
	mine = addr_of(&a);
	swap(o.from, o.to, &mine, &theirs);
	join(&a, &theirs);
	assert_int_equal(read(o.from, &c, 1), 1);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &theirs, 0, 8, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	/* a stopped process is not dead: its unanswered packets are not lost */
	kill(o.pid, SIGSTOP);
	usleep(20000);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &theirs, 0, 8, IBV_SEND_SIGNALED), 0);
	usleep(100000);
	kill(o.pid, SIGCONT);
	wait_status(&a, IBV_WC_SUCCESS);
	kill(o.pid, SIGKILL);
	ended(&o);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &theirs, 0, 8, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_RETRY_EXC_ERR);
	end_close(&a);
}

/* A forked child has copies of its parent's objects, but not the NIC: freeing them does no harm. */
static void test_a_forked_child_does_nothing(void **state)
{
	struct end a, b;
	struct addr to;
	int status;
	pid_t pid;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	pid = fork();
	if (!pid) {
		struct ibv_wc wc;

		must(post(&a, IBV_WR_SEND, &to, 0, 8, 0) == EIO);
		must(ibv_poll_cq(a.cq, 1, &wc) < 0);
		must(!ibv_destroy_qp(a.qp) && !ibv_dereg_mr(a.mr) && !ibv_destroy_cq(a.cq));
		must(!ibv_dealloc_pd(a.pd) && !ibv_close_device(a.ctx));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fill(&a, BUF, 6);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, BUF, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, BUF);
	end_close(&a);
	end_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ends_that_dont_fit),
		cmocka_unit_test(test_a_dead_path_is_noticed_in_time),
		cmocka_unit_test(test_port_goes_and_returns),
		cmocka_unit_test(test_lost_packets_are_sent_again),
		cmocka_unit_test(test_a_bit_is_flipped),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_queue_pair_is_forced_into_error),
		cmocka_unit_test(test_send_queue_drains),
		cmocka_unit_test(test_gid_tables),
		cmocka_unit_test(test_pci_address),
		cmocka_unit_test(test_address_handles),
		cmocka_unit_test(test_device_dies),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_every_call_can_fail),
		cmocka_unit_test(test_threads_share_devices),
		cmocka_unit_test(test_another_process_is_written_to),
		cmocka_unit_test(test_a_killed_peer_is_noticed),
		cmocka_unit_test(test_a_forked_child_does_nothing),
	};

	return cmocka_run_group_tests(tests, fabric_new, fabric_end);
}
