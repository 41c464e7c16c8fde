/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.c - see fake.h. */
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

#define DEVICES "ib0:ib,addr=192.0.2.10;ib1:ib;v1:rocev1,addr=192.0.2.1,path=0000:01:00.0;" \
	"v2:rocev2,addr=192.0.2.2+2001:db8::2;w2:rocev2,addr=192.0.2.3;" \
	"iw0:iwarp,addr=192.0.2.4,linger=2000,mpa=1000;dies:ib;" \
	"small:ib,max_qp=2,max_cq=2,max_mr=2,max_cqe=64,max_wr=16,memlock=8192"

void ok(const char *cmd)
{
	long rc = braid_fake_ctl(cmd);

	if (rc)
		fail_msg("%s: %ld", cmd, rc);
}

uint64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct ibv_context *open_dev(const char *name)
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

struct ibv_qp *make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq, .srq = e->srq, .qp_type = IBV_QPT_RC,
		.cap = { DEPTH, DEPTH, 4, 4, 64 },
	};

	return ibv_create_qp(e->pd, &init);
}

/* `gid`: which index to use on RoCE; the first that is v2 and not link-local is 3. */
void end_open(struct end *e, const char *dev, size_t bytes)
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

void end_close(struct end *e)
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

struct addr addr_of(struct end *e)
{
	struct addr a = { e->qp->qp_num, e->port.lid, e->mr->rkey, (uintptr_t)e->buf, { { 0 } } };

	assert_int_equal(ibv_query_gid(e->ctx, 1, e->sgid_index, &a.gid), 0);
	return a;
}

const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
const int to_rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

struct ibv_qp_attr attr_to(const struct end *e, const struct addr *peer)
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

int walk(struct end *e, struct ibv_qp_attr *a)
{
	int rc = ibv_modify_qp(e->qp, a, to_init);

	a->qp_state = IBV_QPS_RTR;
	rc = rc ? rc : ibv_modify_qp(e->qp, a, to_rtr);
	a->qp_state = IBV_QPS_RTS;
	return rc ? rc : ibv_modify_qp(e->qp, a, to_rts);
}

void join(struct end *e, const struct addr *peer)
{
	struct ibv_qp_attr a = attr_to(e, peer);

	assert_int_equal(walk(e, &a), 0);
}

void pair(struct end *a, struct end *b, const char *dev_a, const char *dev_b, size_t bytes)
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

int post(struct end *e, enum ibv_wr_opcode op, const struct addr *to, uint64_t off, uint32_t len,
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

int take(struct end *e, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + off, len, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 200, .sg_list = &sge, .num_sge = len ? 1 : 0 }, *bad;

	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

struct ibv_wc wait_wc(struct end *e)
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

void wait_status(struct end *e, enum ibv_wc_status status)
{
	struct ibv_wc wc = wait_wc(e);

	if (wc.status != status)
		fail_msg("%s instead of %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

void fill(struct end *e, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		e->buf[i] = (char)(i * 7 + seed + (i >> 8));
}

void wait_event(struct end *e, enum ibv_event_type type)
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

/* --- the fabric --------------------------------------------------------------------------------- */

static char fabric[64];

int fabric_new(void **state)
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

int fabric_end(void **state)
{
	(void)state;
	unlink(fabric);
	strcat(fabric, ".d");
	nftw(fabric, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return 0;
}
