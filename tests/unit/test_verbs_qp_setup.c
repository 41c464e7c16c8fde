/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_setup.c - the handshake of a queue pair: verbs/qp_setup.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "verbs/events.h"

static void two_ends_agree_on_slots_and_where_counts_are_written(void **state)
{
	struct ends e;
	struct braid_qp *a, *b;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	a = qp_at(&e.dialler);
	b = qp_at(&e.accepter);
	assert_int_equal(a->peer.qpn, b->qp->qp_num);
	assert_int_equal(b->peer.qpn, a->qp->qp_num);
	assert_int_equal(a->wr_max, BRAID_SLOTS_RX - BRAID_REPOST);
	assert_true(a->peer_ack == (uint64_t)(uintptr_t)b->m->ack);
	assert_int_equal(a->peer_ack_key, b->m->ack_mr->rkey);
	assert_int_equal(a->qp->state, IBV_QPS_RTS);
	assert_int_equal(b->qp->state, IBV_QPS_RTS);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static void ends_without_immediate_data_write_without_it(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("plain:1")), 0);
	assert_int_equal(qp_at(&e.dialler)->imm_max, 0);
	assert_int_equal(qp_at(&e.accepter)->imm_max, 0);
	ends_part(&e);
}

static void a_peer_of_another_fabric_is_refused(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("roce0:1")), -EPROTOTYPE);
	ends_part(&e);
}

static void a_blob_that_no_peer_sends_is_refused(void **state)
{
	uint8_t theirs[BRAID_BLOB_SIZE], mine[BRAID_BLOB_SIZE];
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_setup s = { .dev = dev, .to = &dev->net.addr.sa };

	(void)state;
	memset(theirs, 0xff, sizeof(theirs));
	assert_int_equal(braid_qp_setup(&s, theirs, mine), -EBADMSG);
	assert_null(s.priv);
}

static void a_port_that_is_down_makes_no_queue_pair(void **state)
{
	struct ends e;

	(void)state;
	ports_ctl("port ib0 down");
	UNTIL(!braid_ibport_usable(dev_named("ib0:1")));
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), -ENETDOWN);
	ports_ctl("port ib0 up");
	ends_part(&e);
	UNTIL(braid_ibport_usable(dev_named("ib0:1")));
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	ends_part(&e);
}

static void a_setup_may_be_dropped_while_its_job_runs(void **state)
{
	uint8_t mine[BRAID_BLOB_SIZE];
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_setup s = { .dev = dev, .to = &dev->net.addr.sa, .dialler = true };

	(void)state;
	assert_int_equal(braid_qp_setup(&s, NULL, mine), -EAGAIN);
	braid_qp_drop(&s);
	assert_null(s.priv);
	jobs_done(dev);
	assert_int_equal(ports_ctl("live qp"), 0);
	assert_int_equal(ports_ctl("live cq"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ends_agree_on_slots_and_where_counts_are_written),
		cmocka_unit_test(ends_without_immediate_data_write_without_it),
		cmocka_unit_test(a_peer_of_another_fabric_is_refused),
		cmocka_unit_test(a_blob_that_no_peer_sends_is_refused),
		cmocka_unit_test(a_port_that_is_down_makes_no_queue_pair),
		cmocka_unit_test(a_setup_may_be_dropped_while_its_job_runs),
	};

	ports_of("ib0:ib;ib1:ib;plain:ib,imm=0;roce0:rocev2,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
