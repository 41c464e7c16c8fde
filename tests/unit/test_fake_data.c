/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fake_data.c - queue pairs of the fake NICs of tests/fake: data, states, rights, completions.
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

/* A send slot is free again once a completion was polled: without any completion the slots run out. */
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

/* The requester gets `status`, the responder's queue pair fails; if no receive shows that, an event does. */
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
	};

	return cmocka_run_group_tests(tests, fabric_new, fabric_end);
}
