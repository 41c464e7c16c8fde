/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fake_cm.c - the fake rdma_cm of tests/fake, and iWARP, which needs it.
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

/* The accepting end may not send first. */
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

/* TCP retransmits for a while: a short outage loses nothing, a long one ends the connection. */
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

/* A slow connection request is answered in the end; ending its queue pair waits for the answer. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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

	return cmocka_run_group_tests(tests, fabric_new, fabric_end);
}
