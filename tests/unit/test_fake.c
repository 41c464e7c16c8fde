/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fake.c - the fake NICs of tests/fake keep the rules that the tests over them rely on.
 *
 * What a rule forbids is tried and must be refused in the way that the specification, or a real
 * driver, does it.  Two ends are two devices of one process, or of two (fork before anything is open).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* nftw */
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "tests/fake/ctl.h"

enum {
	DEPTH = 16,
	BUF = 1 << 16,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

#define DEVICES "ib0:ib,addr=192.0.2.10;ib1:ib;v1:rocev1,addr=192.0.2.1,path=0000:01:00.0;" \
	"v2:rocev2,addr=192.0.2.2+2001:db8::2;w2:rocev2,addr=192.0.2.3;" \
	"iw0:iwarp,addr=192.0.2.4,linger=2000,mpa=1000;dies:ib;" \
	"small:ib,max_qp=2,max_cq=2,max_mr=2,max_cqe=64,max_wr=16,memlock=8192"

static void ok(const char *cmd)
{
	long rc = braid_fake_ctl(cmd);

	if (rc)
		fail_msg("%s: %ld", cmd, rc);
}

static uint64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* --- one end ------------------------------------------------------------------------------------ */

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_srq *srq;
	struct ibv_port_attr port;
	char *buf;
	uint8_t sgid_index;
	uint8_t eth;
};

static struct ibv_context *open_dev(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static struct ibv_qp *make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .srq = e->srq, .qp_type = IBV_QPT_RC,
		.cap = { DEPTH, DEPTH, 4, 4, 64 },
	};

	return ibv_create_qp(e->pd, &init);
}

/* `gid`: which index to use on RoCE; the first that is v2 and not link-local is 3. */
static void end_open(struct end *e, const char *dev, size_t bytes)
{
	memset(e, 0, sizeof(*e));
	e->ctx = open_dev(dev);
	assert_int_equal(ibv_query_port(e->ctx, 1, &e->port), 0);
	e->eth = e->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0);
	assert_non_null(e->pd);
	assert_non_null(e->cq);
	e->qp = make_qp(e);
	assert_non_null(e->qp);
	e->buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(e->buf != MAP_FAILED);
	e->mr = ibv_reg_mr(e->pd, e->buf, bytes, ALL);
	assert_non_null(e->mr);
}

static void end_close(struct end *e)
{
	size_t bytes = e->mr->length;

	if (e->qp)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	munmap(e->buf, bytes);
}

/* What one end tells the other. */
struct addr {
	uint32_t qpn, lid, rkey;
	uint64_t va;
	union ibv_gid gid;
};

static struct addr addr_of(struct end *e)
{
	struct addr a = { e->qp->qp_num, e->port.lid, e->mr->rkey, (uintptr_t)e->buf, { { 0 } } };

	assert_int_equal(ibv_query_gid(e->ctx, 1, e->sgid_index, &a.gid), 0);
	return a;
}

static const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

static struct ibv_qp_attr attr_to(const struct end *e, const struct addr *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn, .rq_psn = 5, .sq_psn = 5, .max_dest_rd_atomic = 4, .max_rd_atomic = 4,
		.min_rnr_timer = 1, .timeout = 8, .retry_cnt = 2, .rnr_retry = 7,
	};

	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = (uint16_t)peer->lid;
	a.ah_attr.is_global = e->eth;
	a.ah_attr.grh.dgid = peer->gid;
	a.ah_attr.grh.sgid_index = e->sgid_index;
	a.ah_attr.grh.hop_limit = 64;
	return a;
}

static int walk(struct end *e, struct ibv_qp_attr *a)
{
	int rc = ibv_modify_qp(e->qp, a, to_init);

	a->qp_state = IBV_QPS_RTR;
	rc = rc ? rc : ibv_modify_qp(e->qp, a, to_rtr);
	a->qp_state = IBV_QPS_RTS;
	return rc ? rc : ibv_modify_qp(e->qp, a, to_rts);
}

static void join(struct end *e, const struct addr *peer)
{
	struct ibv_qp_attr a = attr_to(e, peer);

	assert_int_equal(walk(e, &a), 0);
}

static void pair(struct end *a, struct end *b, const char *dev_a, const char *dev_b, size_t bytes)
{
	struct addr aa, ab;
	uint8_t gid = dev_a[0] == 'v' && dev_a[1] == '2' ? 3 : dev_a[0] == 'v' ? 1 : 0;

	end_open(a, dev_a, bytes);
	end_open(b, dev_b, bytes);
	a->sgid_index = b->sgid_index = gid;
	aa = addr_of(a);
	ab = addr_of(b);
	join(a, &ab);
	join(b, &aa);
}

static int post(struct end *e, enum ibv_wr_opcode op, const struct addr *to, uint64_t off, uint32_t len,
		unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + off, len, e->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 100 + (uint64_t)op, .sg_list = &sge, .num_sge = len ? 1 : 0, .opcode = op,
		.send_flags = flags, .imm_data = htonl(0x1234567), .wr.rdma = { to->va + off, to->rkey },
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

static int take(struct end *e, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + off, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 200, .sg_list = &sge, .num_sge = len ? 1 : 0 }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

static struct ibv_wc wait_wc(struct end *e)
{
	uint64_t until = ms_now() + 20000;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(e->cq, 1, &wc)))
		if (ms_now() > until)
			fail_msg("no completion came");
	assert_int_equal(n, 1);
	return wc;
}

static void wait_status(struct end *e, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(e);

	if (wc.status != status)
		fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static void fill(struct end *e, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		e->buf[i] = (char)(i * 7 + seed + (i >> 8));
}

/* --- data --------------------------------------------------------------------------------------- */

static void every_opcode(const char *dev_a, const char *dev_b)
{
	struct end a, b;
	struct addr at;
	struct ibv_wc wc;

	pair(&a, &b, dev_a, dev_b, BUF);
	at = addr_of(&b);
	fill(&a, BUF, 1);

	assert_int_equal(take(&b, 0, BUF), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &at, 0, 5000, IBV_SEND_SIGNALED), 0);
	wc = wait_wc(&b);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 5000);
	assert_memory_equal(a.buf, b.buf, 5000);
	wc = wait_wc(&a);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	assert_int_equal(wc.wr_id, 100 + IBV_WR_SEND);

	assert_int_equal(take(&b, 0, 0), 0);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, &at, 0, BUF, IBV_SEND_SIGNALED), 0);
	wc = wait_wc(&b);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 0x1234567);
	assert_int_equal(wc.byte_len, BUF);
	assert_memory_equal(a.buf, b.buf, BUF);
	wait_status(&a, IBV_WC_SUCCESS);

	fill(&b, BUF, 99);
	assert_int_equal(post(&a, IBV_WR_RDMA_READ, &at, 0, BUF, IBV_SEND_SIGNALED), 0);
	wc = wait_wc(&a);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(a.buf, b.buf, BUF);

	fill(&a, 64, 3);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &at, 0, 64, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
	memset(a.buf, 0, 64);		/* inline: it has been read */
	wait_status(&a, IBV_WC_SUCCESS);
	fill(&a, 64, 3);
	assert_memory_equal(a.buf, b.buf, 64);
	end_close(&a);
	end_close(&b);
}

static void test_ib_data(void **state)
{
	(void)state;
	every_opcode("ib0", "ib1");
}

static void test_roce_v1_data(void **state)
{
	(void)state;
	every_opcode("v1", "v1");
}

static void test_roce_v2_data(void **state)
{
	(void)state;
	every_opcode("v2", "w2");
}

/* A list of three goes out, and comes in in a list cut elsewhere. */
static void test_scatter_lists(void **state)
{
	struct end a, b;
	struct ibv_send_wr swr = { .num_sge = 3, .opcode = IBV_WR_SEND }, *sbad;
	struct ibv_recv_wr rwr = { .num_sge = 2 }, *rbad;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	fill(&a, BUF, 8);
	uintptr_t from = (uintptr_t)a.buf, to = (uintptr_t)b.buf;
	struct ibv_sge out[3] = { { from, 3000, a.mr->lkey }, { from + 3000, 1, a.mr->lkey },
				  { from + 3001, 4000, a.mr->lkey } };
	struct ibv_sge in[2] = { { to, 1111, b.mr->lkey }, { to + 1111, 9000, b.mr->lkey } };

	rwr.sg_list = in;
	swr.sg_list = out;
	assert_int_equal(ibv_post_recv(b.qp, &rwr, &rbad), 0);
	assert_int_equal(ibv_post_send(a.qp, &swr, &sbad), 0);
	assert_int_equal(wait_wc(&b).byte_len, 7001);
	assert_memory_equal(a.buf, b.buf, 7001);
	end_close(&a);
	end_close(&b);
}

static void test_many_bytes(void **state)
{
	enum { MANY = 64 << 20 };
	struct end a, b;
	struct addr at;
	uint64_t t;

	(void)state;
	pair(&a, &b, "ib0", "ib1", MANY);
	at = addr_of(&b);
	fill(&a, MANY, 5);
	t = ms_now();
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &at, 0, MANY, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	print_message("64 MiB: %llu ms\n", (unsigned long long)(ms_now() - t));
	assert_memory_equal(a.buf, b.buf, MANY);
	end_close(&a);
	end_close(&b);
}

/* One packet for each path MTU of a message, one for an empty one. */
static void test_packets_are_counted(void **state)
{
	struct end a, b;
	struct addr at;
	char cmd[64];

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	at = addr_of(&b);
	snprintf(cmd, sizeof(cmd), "count packets %u", a.qp->qp_num);
	assert_int_equal(braid_fake_ctl(cmd), 0);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &at, 0, 0, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_int_equal(braid_fake_ctl(cmd), 1);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &at, 0, 40 * 1024 + 1, IBV_SEND_SIGNALED), 0);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_int_equal(braid_fake_ctl(cmd), 1 + 41);
	snprintf(cmd, sizeof(cmd), "count sends %u", a.qp->qp_num);
	assert_int_equal(braid_fake_ctl(cmd), 2);
	end_close(&a);
	end_close(&b);
}

/* --- states ------------------------------------------------------------------------------------- */

/* From the state it is in: each required bit left out, and bits that don't belong there. */
static void refuses_other_masks(struct end *e, const struct ibv_qp_attr *good, int mask, int foreign)
{
	struct ibv_qp_attr a = *good;

	for (int bit = 0; bit < 26; bit++) {
		if (mask & 1 << bit && bit)
			assert_int_equal(ibv_modify_qp(e->qp, &a, mask & ~(1 << bit)), EINVAL);
		if (foreign & 1 << bit)
			assert_int_equal(ibv_modify_qp(e->qp, &a, mask | 1 << bit), EINVAL);
	}
}

static void test_states_need_their_attributes(void **state)
{
	struct end a, b;
	struct addr to;
	struct ibv_qp_attr attr;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	to = addr_of(&b);
	attr = attr_to(&a, &to);

	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rtr), EINVAL);	/* not from RESET */
	attr.qp_state = IBV_QPS_INIT;
	refuses_other_masks(&a, &attr, to_init, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_QKEY);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_init), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rts), EINVAL);	/* not from INIT */
	attr.qp_state = IBV_QPS_RTR;
	refuses_other_masks(&a, &attr, to_rtr, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rtr), 0);
	attr.qp_state = IBV_QPS_RTS;
	refuses_other_masks(&a, &attr, to_rts, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_PORT);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rts), 0);
	assert_int_equal(a.qp->state, IBV_QPS_RTS);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU), EINVAL);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rts), EINVAL);	/* not from ERR */
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	end_close(&a);
	end_close(&b);
}

static int try_with(struct end *e, const struct addr *to, void (*spoil)(struct ibv_qp_attr *))
{
	struct ibv_qp_attr a = attr_to(e, to), reset = { .qp_state = IBV_QPS_RESET };
	int rc;

	spoil(&a);
	rc = walk(e, &a);
	assert_int_equal(ibv_modify_qp(e->qp, &reset, IBV_QP_STATE), 0);
	return rc;
}

static void s_nothing(struct ibv_qp_attr *a) { (void)a; }
static void s_dlid_0(struct ibv_qp_attr *a) { a->ah_attr.dlid = 0; }
static void s_dlid_mcast(struct ibv_qp_attr *a) { a->ah_attr.dlid = 0xc000; }
static void s_port(struct ibv_qp_attr *a) { a->port_num = 2; }
static void s_av_port(struct ibv_qp_attr *a) { a->ah_attr.port_num = 2; }
static void s_pkey(struct ibv_qp_attr *a) { a->pkey_index = 1; }
static void s_mtu(struct ibv_qp_attr *a) { a->path_mtu = (enum ibv_mtu)6; }
static void s_psn(struct ibv_qp_attr *a) { a->rq_psn = 1 << 24; }
static void s_rd(struct ibv_qp_attr *a) { a->max_rd_atomic = 17; }
static void s_dest_rd(struct ibv_qp_attr *a) { a->max_dest_rd_atomic = 17; }
static void s_retry(struct ibv_qp_attr *a) { a->retry_cnt = 8; }
static void s_rights(struct ibv_qp_attr *a) { a->qp_access_flags = 1 << 7; }
static void s_no_grh(struct ibv_qp_attr *a) { a->ah_attr.is_global = 0; }
static void s_sgid(struct ibv_qp_attr *a) { a->ah_attr.grh.sgid_index = 31; }

static void test_values_are_checked(void **state)
{
	static void (*const bad[])(struct ibv_qp_attr *) = {
		s_dlid_0, s_dlid_mcast, s_port, s_av_port, s_pkey, s_mtu, s_psn, s_rd, s_dest_rd, s_retry,
		s_rights,
	};
	struct end a, b;
	struct addr to;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	to = addr_of(&b);
	assert_int_equal(try_with(&a, &to, s_nothing), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (try_with(&a, &to, bad[i]) != EINVAL)
			fail_msg("value %u is taken", i);
	end_close(&a);
	end_close(&b);
	end_open(&a, "v2", BUF);
	to = addr_of(&a);
	assert_int_equal(try_with(&a, &to, s_nothing), 0);
	assert_int_equal(try_with(&a, &to, s_no_grh), EINVAL);
	assert_int_equal(try_with(&a, &to, s_sgid), EINVAL);
	assert_int_equal(try_with(&a, &to, s_dlid_0), 0);	/* there are none on Ethernet */
	end_close(&a);
}

static void test_posts_are_checked(void **state)
{
	struct end a, b;
	struct addr to;
	struct ibv_qp_attr attr;
	struct ibv_sge sge[5] = { { 0 } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = 5, .opcode = IBV_WR_SEND }, *bad;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	to = addr_of(&b);
	attr = attr_to(&a, &to);
	assert_int_equal(take(&a, 0, 8), EINVAL);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), EINVAL);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_init), 0);
	assert_int_equal(take(&a, 0, 8), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), EINVAL);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rtr), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_rts), 0);
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 65, IBV_SEND_INLINE), EINVAL);
	assert_int_equal(post(&a, IBV_WR_RDMA_READ, &to, 0, 8, IBV_SEND_INLINE), EINVAL);
	assert_int_equal(post(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, &to, 0, 8, 0), EINVAL);
	for (int i = 1; i < DEPTH; i++)
		assert_int_equal(take(&a, 0, 8), 0);
	assert_int_equal(take(&a, 0, 8), ENOMEM);
	end_close(&a);
	end_close(&b);
}

/* A slot is free when its completion was polled: who asks for none at all runs out of them. */
static void test_slots_come_back_by_polling(void **state)
{
	struct end a, b;
	struct addr to;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	for (int i = 0; i < DEPTH - 1; i++)
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, 0), 0);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, IBV_SEND_SIGNALED), 0);
	usleep(20000);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, 0), ENOMEM);
	wait_status(&a, IBV_WC_SUCCESS);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, 0), 0);
	end_close(&a);
	end_close(&b);
}

/* --- rights ------------------------------------------------------------------------------------- */

static void wait_event(struct end *e, enum ibv_event_type type)
{
	struct pollfd pfd = { .fd = e->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	if (poll(&pfd, 1, 10000) != 1)
		fail_msg("no event, %s was to come", ibv_event_type_str(type));
	assert_int_equal(ibv_get_async_event(e->ctx, &ev), 0);
	if (ev.event_type != type)
		fail_msg("%s instead of %s", ibv_event_type_str(ev.event_type), ibv_event_type_str(type));
	ibv_ack_async_event(&ev);
}

static void test_registration_is_checked(void **state)
{
	struct end a;

	(void)state;
	end_open(&a, "ib0", BUF);
	assert_null(ibv_reg_mr(a.pd, a.buf, BUF, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(a.pd, a.buf, 0, ALL));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(a.pd, (void *)4096, 4096, ALL));
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ibv_dealloc_pd(a.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(a.cq), EBUSY);
	assert_int_equal(ibv_close_device(a.ctx), EBUSY);
	end_close(&a);
}

enum wrong { WRONG_RKEY, WRONG_BOUNDS, WRONG_RIGHT, WRONG_PD, WRONG_QP_RIGHT, WRONG_GONE };

/* The requester is told, the responder's queue pair is in error; without a receive of its own it
   has an event. */
static void remote_error(enum wrong wrong, enum ibv_wr_opcode op, enum ibv_wc_status status)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *mr = NULL;
	struct end a, b;
	struct addr to;
	unsigned rights = wrong == WRONG_RIGHT ? IBV_ACCESS_LOCAL_WRITE : ALL;

	pair(&a, &b, "ib0", "ib1", BUF);
	to = addr_of(&b);
	if (wrong == WRONG_PD)
		pd = ibv_alloc_pd(b.ctx);
	if (wrong == WRONG_RIGHT || wrong == WRONG_PD || wrong == WRONG_GONE) {
		mr = ibv_reg_mr(pd ? pd : b.pd, b.buf, BUF, rights);
		assert_non_null(mr);
		to.rkey = mr->rkey;
	}
	if (wrong == WRONG_GONE) {
		ibv_dereg_mr(mr);
		mr = NULL;
	}
	if (wrong == WRONG_RKEY)
		to.rkey ^= 1;
	if (wrong == WRONG_BOUNDS)
		to.va += 1;
	if (wrong == WRONG_QP_RIGHT) {
		attr = (struct ibv_qp_attr){ .qp_access_flags = IBV_ACCESS_LOCAL_WRITE };
		assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	}
	assert_int_equal(post(&a, op, &to, 0, BUF, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 1, 0), 0);
	wait_status(&a, status);
	wait_status(&a, IBV_WC_WR_FLUSH_ERR);	/* though it was not signalled */
	wait_event(&b, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(ibv_query_qp(b.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_ERR);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 1, 0), 0);
	wait_status(&a, IBV_WC_WR_FLUSH_ERR);
	if (mr)
		ibv_dereg_mr(mr);
	if (pd)
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	end_close(&a);
	end_close(&b);
}

static void test_remote_rights(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		remote_error(WRONG_RKEY, ops[i], IBV_WC_REM_ACCESS_ERR);
		remote_error(WRONG_BOUNDS, ops[i], IBV_WC_REM_ACCESS_ERR);
		remote_error(WRONG_RIGHT, ops[i], IBV_WC_REM_ACCESS_ERR);
		remote_error(WRONG_PD, ops[i], IBV_WC_REM_ACCESS_ERR);
		remote_error(WRONG_GONE, ops[i], IBV_WC_REM_ACCESS_ERR);
		remote_error(WRONG_QP_RIGHT, ops[i], IBV_WC_REM_INV_REQ_ERR);
	}
}

static void test_local_rights(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr rwr = { .sg_list = &sge, .num_sge = 1 }, *rbad;
	struct end a, b;
	struct addr to;

	(void)state;
	pair(&a, &b, "ib0", "ib1", BUF);
	sge = (struct ibv_sge){ (uintptr_t)a.buf, 8, a.mr->lkey ^ 1 };
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	wait_status(&a, IBV_WC_LOC_PROT_ERR);
	end_close(&a);
	end_close(&b);

	/* a receive with a bad key, one that is too short */
	for (unsigned i = 0; i < 2; i++) {
		pair(&a, &b, "ib0", "ib1", BUF);
		to = addr_of(&b);
		sge = (struct ibv_sge){ (uintptr_t)b.buf, i ? 7 : 8, i ? b.mr->lkey : b.mr->lkey ^ 1 };
		assert_int_equal(ibv_post_recv(b.qp, &rwr, &rbad), 0);
		assert_int_equal(take(&b, 0, 8), 0);
		assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), 0);
		wait_status(&a, i ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
		wait_status(&b, i ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
		wait_status(&b, IBV_WC_WR_FLUSH_ERR);
		end_close(&a);
		end_close(&b);
	}
}

/* --- reads -------------------------------------------------------------------------------------- */

static void test_reads_have_limits(void **state)
{
	static const uint8_t depth[][2] = { { 0, 4 }, { 4, 1 }, { 4, 4 }, { 1, 4 } };
	static const enum ibv_wc_status expect[] = { IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_INV_REQ_ERR,
						     IBV_WC_SUCCESS, IBV_WC_SUCCESS };
	struct ibv_sge sge;
	struct ibv_send_wr wr[4], *bad;

	(void)state;
	for (unsigned k = 0; k < 4; k++) {
		struct ibv_qp_attr attr;
		struct end a, b;
		struct addr aa, ab;
		unsigned good = 0, failed = 0;

		end_open(&a, "ib0", BUF);
		end_open(&b, "ib1", BUF);
		aa = addr_of(&a);
		ab = addr_of(&b);
		attr = attr_to(&a, &ab);
		attr.max_rd_atomic = depth[k][0];
		assert_int_equal(walk(&a, &attr), 0);
		attr = attr_to(&b, &aa);
		attr.max_dest_rd_atomic = depth[k][1];
		assert_int_equal(walk(&b, &attr), 0);
		sge = (struct ibv_sge){ (uintptr_t)a.buf, BUF, a.mr->lkey };
		for (unsigned i = 0; i < 4; i++)
			wr[i] = (struct ibv_send_wr){
				.next = i < 3 ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
				.opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { ab.va, ab.rkey },
			};
		assert_int_equal(ibv_post_send(a.qp, wr, &bad), 0);
		for (unsigned i = 0; i < 4; i++) {
			struct ibv_wc wc = wait_wc(&a);

			if (wc.status == IBV_WC_SUCCESS)
				good++;
			else if (!failed++)
				assert_int_equal(wc.status, expect[k]);
		}
		assert_true(expect[k] == IBV_WC_SUCCESS ? good == 4 : failed > 0);
		end_close(&a);
		end_close(&b);
	}
}

/* --- receives that are not there ------------------------------------------------------------------ */

static void rnr(uint8_t retry, bool comes)
{
	struct ibv_qp_attr attr;
	struct end a, b;
	struct addr aa, ab;

	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	aa = addr_of(&a);
	ab = addr_of(&b);
	attr = attr_to(&a, &ab);
	attr.rnr_retry = retry;
	assert_int_equal(walk(&a, &attr), 0);
	join(&b, &aa);
	fill(&a, BUF, retry);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, &ab, 0, BUF, IBV_SEND_SIGNALED), 0);
	if (comes) {
		usleep(30000);
		assert_int_equal(take(&b, 0, 0), 0);
		wait_status(&b, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, BUF);
	}
	wait_status(&a, comes ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
	assert_true(braid_fake_ctl("count rnr") > 0);
	end_close(&a);
	end_close(&b);
}

static void test_receiver_not_ready(void **state)
{
	(void)state;
	rnr(0, false);
	rnr(3, false);
	rnr(7, true);
}

static void test_shared_receive_queue(void **state)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct end a, b;
	struct addr aa, ab;
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	assert_int_equal(ibv_destroy_qp(b.qp), 0);
	b.srq = ibv_create_srq(b.pd, &init);
	assert_non_null(b.srq);
	b.qp = make_qp(&b);
	aa = addr_of(&a);
	ab = addr_of(&b);
	join(&a, &ab);
	join(&b, &aa);
	assert_int_equal(ibv_destroy_srq(b.srq), EBUSY);
	for (int i = 0; i < 4; i++)
		assert_int_equal(take(&b, 0, BUF), 0);
	assert_int_equal(take(&b, 0, BUF), ENOMEM);
	assert_int_equal(ibv_modify_srq(b.srq, &limit, IBV_SRQ_LIMIT), 0);
	fill(&a, BUF, 77);
	for (int i = 0; i < 3; i++)
		assert_int_equal(post(&a, IBV_WR_SEND, &ab, 0, BUF, 0), 0);
	for (int i = 0; i < 3; i++)
		wait_status(&b, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, BUF);
	wait_event(&b, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_int_equal(ibv_modify_qp(b.qp, &err, IBV_QP_STATE), 0);
	wait_event(&b, IBV_EVENT_QP_LAST_WQE_REACHED);
	end_close(&a);
	end_close(&b);
}

/* --- completion queues ---------------------------------------------------------------------------- */

static void test_completion_queue_overflows(void **state)
{
	struct end a, b;
	struct addr to;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	assert_int_equal(ibv_destroy_qp(a.qp), 0);
	assert_int_equal(ibv_destroy_cq(a.cq), 0);
	a.cq = ibv_create_cq(a.ctx, 3, NULL, NULL, 0);
	a.qp = make_qp(&a);
	to = addr_of(&a);
	join(&b, &to);
	to = addr_of(&b);
	join(&a, &to);
	for (int i = 0; i < 4; i++)
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, &to, 0, 8, IBV_SEND_SIGNALED), 0);
	wait_event(&a, IBV_EVENT_CQ_ERR);
	end_close(&a);
	end_close(&b);
}

static bool readable(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) == 1;
}

static void test_notification(void **state)
{
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct end a, b;
	struct addr to;
	void *what;

	(void)state;
	end_open(&a, "ib0", BUF);
	end_open(&b, "ib1", BUF);
	assert_int_equal(ibv_destroy_qp(b.qp), 0);
	assert_int_equal(ibv_destroy_cq(b.cq), 0);
	ch = ibv_create_comp_channel(b.ctx);
	b.cq = ibv_create_cq(b.ctx, DEPTH, &b, ch, 0);
	b.qp = make_qp(&b);
	to = addr_of(&a);
	join(&b, &to);
	to = addr_of(&b);
	join(&a, &to);
	for (int i = 0; i < 4; i++)
		assert_int_equal(take(&b, 0, 8), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	assert_false(readable(ch->fd, 20));		/* nobody asked */
	assert_int_equal(ibv_req_notify_cq(b.cq, 1), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	assert_false(readable(ch->fd, 20));		/* not solicited */
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, IBV_SEND_SOLICITED), 0);
	assert_true(readable(ch->fd, 10000));
	assert_int_equal(ibv_get_cq_event(ch, &cq, &what), 0);
	assert_ptr_equal(cq, b.cq);
	assert_ptr_equal(what, &b);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
	assert_int_equal(post(&a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	assert_true(readable(ch->fd, 10000));
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(ibv_get_cq_event(ch, &cq, &what), 0);
	ibv_ack_cq_events(cq, 1);
	assert_int_equal(ibv_get_cq_event(ch, &cq, &what), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	end_close(&a);
	assert_int_equal(ibv_destroy_qp(b.qp), 0);
	b.qp = NULL;
	assert_int_equal(ibv_destroy_cq(b.cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	b.cq = ibv_create_cq(b.ctx, 1, NULL, NULL, 0);
	end_close(&b);
}

/* --- paths that don't work ------------------------------------------------------------------------ */

static void s_peer_psn(struct ibv_qp_attr *a) { a->rq_psn--; }
static void s_peer_later(struct ibv_qp_attr *a) { a->rq_psn++; }
static void s_peer_mtu(struct ibv_qp_attr *a) { a->path_mtu = IBV_MTU_512; }
static void s_peer_qpn(struct ibv_qp_attr *a) { a->dest_qp_num ^= 1 << 12; }
static void s_peer_lid(struct ibv_qp_attr *a) { a->ah_attr.dlid = 0x1234; }
static void s_peer_gid(struct ibv_qp_attr *a) { a->ah_attr.grh.dgid.raw[15] ^= 0x40; }
static void s_peer_v1(struct ibv_qp_attr *a) { a->ah_attr.grh.sgid_index = 2; }

/* One end has something else than the other: nothing arrives. */
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

/* As long as the queue pair was told to wait, not shorter and not much longer. */
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

/* Single packets are lost, of data, acknowledgements and responses: all comes once and whole. */
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

/* RoCE resolves an address when a handle is made: one that nobody has fails. */
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

/* A life that gives up at its first failure and takes back what it has. */
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

/* Queue pairs come and go on two devices that others use too; no byte of theirs is ours. */
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

/* It connects, and then makes no call at all until it is told that all is over. */
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
	/* stopped is not dead: what it has not answered is not lost */
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

/* A child has its parent's objects and nothing of the NIC: it may end them, and harms nobody. */
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

/* --- rdma_cm ------------------------------------------------------------------------------------ */

static struct rdma_event_channel *chan;

static struct rdma_cm_id *next_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_get_cm_event(chan, &ev), 0);
	if (ev->event != type)
		fail_msg("%s instead of %s", rdma_event_str(ev->event), rdma_event_str(type));
	id = ev->id;
	assert_int_equal(rdma_ack_cm_event(ev), 0);
	return id;
}

static struct sockaddr_in ip4(const char *ip, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = port };

	inet_pton(AF_INET, ip, &in.sin_addr);
	return in;
}

/* What an end needs beside its id, on that id's context. */
static void end_on(struct end *e, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { DEPTH, DEPTH, 4, 4, 64 } };

	memset(e, 0, sizeof(*e));
	e->ctx = id->verbs;
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->cq;
	assert_int_equal(rdma_create_qp(id, e->pd, &init), 0);
	e->qp = id->qp;
	e->buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF, ALL);
	assert_non_null(e->mr);
}

static void end_off(struct end *e, struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	munmap(e->buf, BUF);
	assert_int_equal(rdma_destroy_id(id), 0);
}

struct cm_pair {
	struct rdma_cm_id *listener, *active, *passive;
	struct end a, p;
};

static void cm_dial(struct cm_pair *c, const char *ip, struct rdma_conn_param *param)
{
	struct sockaddr_in in = ip4(ip, 0);

	chan = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(chan, &c->listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(c->listener, (struct sockaddr *)&in), 0);
	assert_int_equal(rdma_listen(c->listener, 4), 0);
	in = ip4(ip, rdma_get_src_port(c->listener));
	assert_int_equal(rdma_create_id(chan, &c->active, c, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(c->active, NULL, (struct sockaddr *)&in, 100), 0);
	assert_ptr_equal(next_event(RDMA_CM_EVENT_ADDR_RESOLVED), c->active);
	assert_int_equal(rdma_resolve_route(c->active, 100), 0);
	next_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	end_on(&c->a, c->active);
	assert_int_equal(rdma_connect(c->active, param), 0);
}

static void cm_connect(struct cm_pair *c, const char *ip)
{
	struct rdma_conn_param param = {
		.private_data = "cookie", .private_data_len = 7, .responder_resources = 2, .initiator_depth = 2,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	struct rdma_cm_event *ev;

	cm_dial(c, ip, &param);
	assert_int_equal(rdma_get_cm_event(chan, &ev), 0);
	assert_int_equal(ev->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(ev->listen_id, c->listener);
	assert_memory_equal(ev->param.conn.private_data, "cookie", 7);
	c->passive = ev->id;
	rdma_ack_cm_event(ev);
	end_on(&c->p, c->passive);
	assert_int_equal(take(&c->p, 0, 64), 0);
	assert_int_equal(rdma_accept(c->passive, &param), 0);
	next_event(RDMA_CM_EVENT_ESTABLISHED);
	next_event(RDMA_CM_EVENT_ESTABLISHED);
}

static void cm_close(struct cm_pair *c)
{
	end_off(&c->a, c->active);
	end_off(&c->p, c->passive);
	assert_int_equal(rdma_destroy_id(c->listener), 0);
	rdma_destroy_event_channel(chan);
}

static struct addr addr_cm(struct end *e)
{
	return (struct addr){ .va = (uintptr_t)e->buf, .rkey = e->mr->rkey };
}

static void test_iwarp_connects(void **state)
{
	struct cm_pair c;
	struct addr to;

	(void)state;
	cm_connect(&c, "192.0.2.4");
	to = addr_cm(&c.p);
	fill(&c.a, BUF, 4);
	assert_int_equal(post(&c.a, IBV_WR_RDMA_WRITE, &to, 0, BUF, 0), 0);
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 64, IBV_SEND_SIGNALED), 0);
	wait_status(&c.p, IBV_WC_SUCCESS);
	assert_memory_equal(c.a.buf, c.p.buf, BUF);
	wait_status(&c.a, IBV_WC_SUCCESS);
	/* the one thing it can't */
	assert_int_equal(post(&c.a, IBV_WR_RDMA_WRITE_WITH_IMM, &to, 0, 64, 0), EINVAL);
	assert_int_equal(post(&c.a, IBV_WR_RDMA_READ, &to, 0, BUF, IBV_SEND_SIGNALED), 0);
	wait_status(&c.a, IBV_WC_SUCCESS);
	assert_int_equal(rdma_disconnect(c.active), 0);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	cm_close(&c);
}

static void test_cm_on_ib_and_roce(void **state)
{
	static const char *const ips[] = { "192.0.2.1", "192.0.2.2", "192.0.2.10" };
	struct cm_pair c;
	struct addr to;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		cm_connect(&c, ips[i]);
		to = addr_cm(&c.p);
		fill(&c.a, BUF, i);
		assert_int_equal(post(&c.a, IBV_WR_RDMA_WRITE_WITH_IMM, &to, 0, BUF, 0), 0);
		wait_status(&c.p, IBV_WC_SUCCESS);
		assert_memory_equal(c.a.buf, c.p.buf, BUF);
		cm_close(&c);
	}
}

static void test_iwarp_by_hand_is_refused(void **state)
{
	struct end a;
	struct addr to;
	struct ibv_qp_attr attr;

	(void)state;
	end_open(&a, "iw0", BUF);
	assert_int_equal(a.ctx->device->transport_type, IBV_TRANSPORT_IWARP);
	assert_int_equal(a.ctx->device->node_type, IBV_NODE_RNIC);
	assert_int_equal(a.port.link_layer, IBV_LINK_LAYER_ETHERNET);
	to = addr_of(&a);
	attr = attr_to(&a, &to);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, to_init), EINVAL);
	end_close(&a);
}

static void test_iwarp_dies_without_a_receive(void **state)
{
	struct cm_pair c;
	struct addr to;

	(void)state;
	cm_connect(&c, "192.0.2.4");
	to = addr_cm(&c.p);
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	wait_status(&c.p, IBV_WC_SUCCESS);
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	wait_event(&c.p, IBV_EVENT_QP_FATAL);
	wait_event(&c.a, IBV_EVENT_QP_FATAL);
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 8, 0), 0);
	wait_status(&c.a, IBV_WC_WR_FLUSH_ERR);
	cm_close(&c);
}

/* Who accepted may not speak first. */
static void test_iwarp_initiator_sends_first(void **state)
{
	struct cm_pair c;
	struct addr to;

	(void)state;
	cm_connect(&c, "192.0.2.4");
	to = addr_cm(&c.a);
	assert_int_equal(take(&c.a, 0, 8), 0);
	assert_int_equal(post(&c.p, IBV_WR_SEND, &to, 0, 8, 0), 0);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	next_event(RDMA_CM_EVENT_DISCONNECTED);
	wait_status(&c.a, IBV_WC_WR_FLUSH_ERR);
	cm_close(&c);
}

static void test_iwarp_read_needs_a_writable_sink(void **state)
{
	struct cm_pair c;
	struct addr to;
	struct ibv_mr *mr, *old;

	(void)state;
	cm_connect(&c, "192.0.2.4");
	to = addr_cm(&c.p);
	old = c.a.mr;
	mr = ibv_reg_mr(c.a.pd, c.a.buf, BUF, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	c.a.mr = mr;
	assert_int_equal(post(&c.a, IBV_WR_RDMA_READ, &to, 0, 8, 0), 0);
	wait_status(&c.a, IBV_WC_LOC_PROT_ERR);
	c.a.mr = old;
	ibv_dereg_mr(mr);
	cm_close(&c);
}

/* TCP keeps what a path that is down does not take, for so long. */
static void test_iwarp_survives_a_short_outage(void **state)
{
	struct cm_pair c;
	struct addr to;

	(void)state;
	cm_connect(&c, "192.0.2.4");
	to = addr_cm(&c.p);
	fill(&c.a, BUF, 1);
	ok("port iw0 down");
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 64, IBV_SEND_SIGNALED), 0);
	usleep(50000);
	ok("port iw0 up");
	wait_status(&c.a, IBV_WC_SUCCESS);
	wait_status(&c.p, IBV_WC_SUCCESS);
	assert_memory_equal(c.a.buf, c.p.buf, 64);
	ok("port iw0 down");
	assert_int_equal(post(&c.a, IBV_WR_SEND, &to, 0, 64, IBV_SEND_SIGNALED), 0);
	wait_status(&c.a, IBV_WC_WR_FLUSH_ERR);
	ok("port iw0 up");
	cm_close(&c);
}

static void test_cm_refusals(void **state)
{
	struct rdma_cm_id *id;
	struct sockaddr_in in = ip4("192.0.2.4", htons(9));
	struct rdma_conn_param param = { 0 };
	struct end a;

	(void)state;
	chan = rdma_create_event_channel();
	assert_int_equal(rdma_create_id(chan, &id, NULL, RDMA_PS_TCP), 0);
	fcntl(chan->fd, F_SETFL, O_NONBLOCK);
	struct rdma_cm_event *ev;
	assert_int_equal(rdma_get_cm_event(chan, &ev), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(rdma_connect(id, &param), -1);		/* too early */
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&in, 100), 0);
	next_event(RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 100), 0);
	next_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
	end_on(&a, id);
	assert_int_equal(rdma_connect(id, &param), 0);
	next_event(RDMA_CM_EVENT_REJECTED);			/* nobody listens */
	end_off(&a, id);
	assert_int_equal(rdma_create_id(chan, &id, NULL, RDMA_PS_TCP), 0);
	in = ip4("192.0.2.99", htons(9));
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&in, 100), 0);
	next_event(RDMA_CM_EVENT_ADDR_ERROR);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(chan);
}

/* A request that takes its time is answered all the same; who ends its queue pair waits for that. */
static void test_iwarp_waits_for_an_answer(void **state)
{
	struct rdma_conn_param param = { 0 };
	struct cm_pair c;
	uint64_t from = ms_now();

	(void)state;
	ok("requests iw0 200");
	cm_dial(&c, "192.0.2.4", &param);
	c.passive = next_event(RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_true(ms_now() - from >= 200);
	assert_int_equal(rdma_reject(c.passive, NULL, 0), 0);
	end_off(&c.a, c.active);
	assert_int_equal(rdma_destroy_id(c.passive), 0);
	assert_int_equal(rdma_destroy_id(c.listener), 0);
	rdma_destroy_event_channel(chan);

	ok("requests iw0 60000");
	from = ms_now();
	cm_dial(&c, "192.0.2.4", &param);
	rdma_destroy_qp(c.active);
	assert_true(ms_now() - from >= 1000);
	next_event(RDMA_CM_EVENT_UNREACHABLE);
	end_off(&c.a, c.active);
	assert_int_equal(rdma_destroy_id(c.listener), 0);
	rdma_destroy_event_channel(chan);
	ok("requests iw0 0");
}

static void test_ctl_words(void **state)
{
	struct ibv_context *ctx = open_dev("ib0");

	(void)state;
	ok("port ib0 up");
	assert_int_equal(braid_fake_ctl("port nobody up"), -ENOENT);
	assert_int_equal(braid_fake_ctl("port ib0 sideways"), -EINVAL);
	assert_int_equal(braid_fake_ctl("juggle ib0"), -EINVAL);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static char fabric[64];

static int set_up(void **state)
{
	(void)state;
	snprintf(fabric, sizeof(fabric), "/dev/shm/braid-test-XXXXXX");
	close(mkstemp(fabric));
	setenv("BRAID_TEST_FAKE_FABRIC", fabric, 1);
	setenv("BRAID_TEST_FAKE_DEVICES", DEVICES, 1);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	unlink(fabric);
	strcat(fabric, ".d");
	nftw(fabric, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ib_data),
		cmocka_unit_test(test_roce_v1_data),
		cmocka_unit_test(test_roce_v2_data),
		cmocka_unit_test(test_scatter_lists),
		cmocka_unit_test(test_many_bytes),
		cmocka_unit_test(test_packets_are_counted),
		cmocka_unit_test(test_states_need_their_attributes),
		cmocka_unit_test(test_values_are_checked),
		cmocka_unit_test(test_posts_are_checked),
		cmocka_unit_test(test_slots_come_back_by_polling),
		cmocka_unit_test(test_registration_is_checked),
		cmocka_unit_test(test_remote_rights),
		cmocka_unit_test(test_local_rights),
		cmocka_unit_test(test_reads_have_limits),
		cmocka_unit_test(test_receiver_not_ready),
		cmocka_unit_test(test_shared_receive_queue),
		cmocka_unit_test(test_completion_queue_overflows),
		cmocka_unit_test(test_notification),
		cmocka_unit_test(test_ends_that_dont_fit),
		cmocka_unit_test(test_a_dead_path_is_noticed_in_time),
		cmocka_unit_test(test_port_goes_and_returns),
		cmocka_unit_test(test_lost_packets_are_sent_again),
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
		cmocka_unit_test(test_iwarp_connects),
		cmocka_unit_test(test_cm_on_ib_and_roce),
		cmocka_unit_test(test_iwarp_by_hand_is_refused),
		cmocka_unit_test(test_iwarp_dies_without_a_receive),
		cmocka_unit_test(test_iwarp_initiator_sends_first),
		cmocka_unit_test(test_iwarp_read_needs_a_writable_sink),
		cmocka_unit_test(test_iwarp_survives_a_short_outage),
		cmocka_unit_test(test_cm_refusals),
		cmocka_unit_test(test_iwarp_waits_for_an_answer),
		cmocka_unit_test(test_ctl_words),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
