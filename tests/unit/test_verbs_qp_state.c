/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_state.c - the states of a queue pair: verbs/qp_state.c. */
#include "tests/unit/ports.h"

#include <errno.h>

#include "core/base/param.h"

static struct braid_qp *made(const char *name)
{
	struct braid_dev *dev = dev_named(name);
	struct braid_qp *w = braid_qp_new(braid_ibport_of(dev), dev);

	assert_non_null(w);
	assert_int_equal(braid_qp_fill(w, false), 0);
	return w;
}

static struct braid_qp_blob itself(const struct braid_qp *w)
{
	return (struct braid_qp_blob){
		.mtu = (uint8_t)atomic_load(&w->port->mtu), .lid = atomic_load(&w->port->lid),
		.qpn = w->qp->qp_num, .psn = w->psn,
	};
}

static void a_queue_pair_gets_ready_in_two_steps(void **state)
{
	struct braid_qp *w = made("ib0:1");
	struct braid_qp_blob b = itself(w);

	(void)state;
	w->dlid = b.lid;
	assert_int_equal(braid_qp_to_init(w, IBV_ACCESS_REMOTE_WRITE), 0);
	assert_int_equal(w->qp->state, IBV_QPS_INIT);
	assert_int_equal(braid_qp_to_ready(w, &b, -1), 0);
	assert_int_equal(w->qp->state, IBV_QPS_RTS);
	braid_qp_end(w);
}

static void the_call_that_failed_is_named(void **state)
{
	struct braid_qp *w = made("ib0:1");
	struct braid_qp_blob b = itself(w);

	(void)state;
	w->dlid = b.lid;
	assert_int_equal(braid_qp_to_ready(w, &b, -1), -EINVAL);	/* it is not in INIT */
	assert_string_equal(w->failed, "ibv_modify_qp to RTR");
	braid_qp_end(w);
}

static void an_address_that_can_not_be_reached_fails_at_once(void **state)
{
	struct braid_qp *w = made("roce0:1");
	struct braid_qp_blob b = itself(w);

	(void)state;
	w->gid = 0;
	b.ngids = 1;
	ports_ctl("fail 1 ibv_create_ah ETIMEDOUT");	/* no answer to ARP */
	assert_int_equal(braid_qp_to_init(w, 0), 0);
	assert_int_equal(braid_qp_to_ready(w, &b, -1), -ETIMEDOUT);
	ports_ctl("fail 0");
	assert_string_equal(w->failed, "ibv_create_ah");
	braid_qp_end(w);
}

static void the_traffic_class_is_the_users_or_nccls(void **state)
{
	(void)state;
	assert_int_equal(braid_qp_class(-1), braid_param.ib_tc);
	assert_int_equal(braid_qp_class(104), 104);
	braid_param.dscp = 26;
	assert_int_equal(braid_qp_class(8), 26 << 2);
	braid_param.dscp = -1;
}

static void retransmissions_have_an_end(void **state)
{
	int64_t saved = braid_param.ib_retry;

	(void)state;
	braid_param.ib_retry = 7;
	assert_int_equal(braid_qp_retries(), 6);
	braid_param.ib_retry = 2;
	assert_int_equal(braid_qp_retries(), 2);
	braid_param.ib_retry = saved;
}

static int (*modify)(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask);
static unsigned ports_seen;		/* bit n: a UDP port with n as its last four bits */

/* NICs make the UDP source port of the flow label, as rdma_flow_label_to_udp_sport() does. */
static int note_port(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	uint32_t flow = a->ah_attr.grh.flow_label;

	if (mask & IBV_QP_AV)
		ports_seen |= 1u << (((flow & 0x3fff) ^ flow >> 14) & 15);
	return modify(qp, a, mask);
}

static void lanes_over_roce_have_udp_ports_that_differ_in_their_last_bits(void **state)
{
	(void)state;
	modify = braid_ibv.modify_qp;
	braid_ibv.modify_qp = note_port;
	for (unsigned lane = 0; lane < 16; lane++) {
		struct braid_qp *w = made("roce0:1");
		struct braid_qp_blob b = itself(w);

		w->setup.lane = lane;
		assert_int_equal(braid_qp_gids(w, w->dev, NULL, &b), 0);
		w->gid = 0;
		assert_int_equal(braid_qp_to_init(w, IBV_ACCESS_REMOTE_WRITE), 0);
		assert_int_equal(braid_qp_to_ready(w, &b, -1), 0);
		braid_qp_end(w);
	}
	braid_ibv.modify_qp = modify;
	assert_int_equal(ports_seen, 0xffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_pair_gets_ready_in_two_steps),
		cmocka_unit_test(the_call_that_failed_is_named),
		cmocka_unit_test(an_address_that_can_not_be_reached_fails_at_once),
		cmocka_unit_test(the_traffic_class_is_the_users_or_nccls),
		cmocka_unit_test(lanes_over_roce_have_udp_ports_that_differ_in_their_last_bits),
		cmocka_unit_test(retransmissions_have_an_end),
	};

	ports_of("ib0:ib;roce0:rocev2,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
