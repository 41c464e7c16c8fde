/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fake.c - the fake NICs of tests/fake keep the rules that the tests over them rely on.
 *
 * What a rule forbids is tried and must be refused in the way that the specification, or a real
 * driver, does it.  Two ends are two devices of one process, or of two (fork before anything is open).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

#define DEVICES "ib0:ib;ib1:ib;v1:rocev1,addr=192.0.2.1;v2:rocev2,addr=192.0.2.2+2001:db8::2;" \
	"w2:rocev2,addr=192.0.2.3;iw0:iwarp,addr=192.0.2.4,linger=300"

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

static void cm_connect(struct cm_pair *c, const char *ip)
{
	struct rdma_conn_param param = {
		.private_data = "cookie", .private_data_len = 7, .responder_resources = 2, .initiator_depth = 2,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	struct sockaddr_in in = ip4(ip, 0);
	struct rdma_cm_event *ev;

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
	assert_int_equal(rdma_connect(c->active, &param), 0);
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
	static const char *const ips[] = { "192.0.2.1", "192.0.2.2" };
	struct cm_pair c;
	struct addr to;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		cm_connect(&c, ips[i]);
		to = addr_cm(&c.p);
		fill(&c.a, BUF, i);
		assert_int_equal(post(&c.a, IBV_WR_RDMA_WRITE_WITH_IMM, &to, 0, BUF, 0), 0);
		wait_status(&c.p, IBV_WC_SUCCESS);
		assert_memory_equal(c.a.buf, c.p.buf, BUF);
		cm_close(&c);
	}
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ctl_words),
		cmocka_unit_test(test_ib_data),
		cmocka_unit_test(test_roce_v1_data),
		cmocka_unit_test(test_roce_v2_data),
		cmocka_unit_test(test_iwarp_connects),
		cmocka_unit_test(test_cm_on_ib_and_roce),
	};

	setenv("BRAID_TEST_FAKE_DEVICES", DEVICES, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
