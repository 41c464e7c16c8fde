/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_life.c - how a queue pair ends: verbs/life.c. */
#include "tests/unit/ports.h"

#include <stdio.h>

#include "verbs/events.h"

enum { ENDS = 1000, SENDS = 5 };

static void nothing_is_left_of_a_queue_pair_that_is_freed(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	assert_int_equal(ports_ctl("live qp"), 2);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
	assert_int_equal(ports_ctl("live cq"), 0);
	assert_int_equal(ports_ctl("live channel"), 0);
	assert_int_equal(ports_ctl("live srq"), 0);
}

static void the_last_reference_destroys_it(void **state)
{
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	w = qp_at(&e.dialler);
	braid_qp_get(w);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 1);
	braid_qp_put(w);
	jobs_done(e.dialler.dev);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static void a_fence_stops_it_without_waiting(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_stops stops;
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev, dev_named("ib1:1")), 0);
	w = qp_at(&e.dialler);
	ports_ctl("slow ibv_modify_qp:ERR 200");
	braid_qp_fence(w);
	braid_stops_mark(dev, &stops);
	assert_true(w->over);
	assert_false(braid_stops_past(dev, &stops));
	UNTIL(braid_stops_past(dev, &stops));
	assert_int_equal(w->qp->state, IBV_QPS_ERR);
	ports_ctl("slow none");
	braid_qp_fence(w);		/* once is enough */
	ends_part(&e);
}

static void a_command_that_hangs_is_overtaken_by_a_request_that_can_not_succeed(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_stops stops;
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev, dev_named("ib1:1")), 0);
	ports_ctl("slow ibv_modify_qp:ERR 3000");
	braid_qp_fence(qp_at(&e.dialler));
	braid_stops_mark(dev, &stops);
	UNTIL(braid_stops_past(dev, &stops));
	assert_true(braid_later_busy(dev, BRAID_STOP));	/* the command has not returned */
	ports_ctl("slow none");
	ends_part(&e);
}

static void a_queue_pair_that_failed_during_set_up_needs_no_stop(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_qp *w = braid_qp_new(braid_ibport_of(dev), dev);
	uint64_t before = atomic_load(&dev->stopping.begun);

	(void)state;
	assert_non_null(w);
	braid_qp_free(w);
	braid_qp_free(NULL);
	jobs_done(dev);
	assert_true(atomic_load(&dev->stopping.begun) == before);
}

/* --- shared receives ------------------------------------------------------------------------ */

/* Messages that arrive and that nobody polls. */
static void send_some(const struct ends *e)
{
	char data[8] = "", cmd[64];
	struct ibv_sge sge = { .addr = (uint64_t)(uintptr_t)data, .length = sizeof(data) };
	struct ibv_send_wr *bad, wr = {
		.wr_id = BRAID_WR_IS_SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};

	for (unsigned i = 0; i < SENDS; i++)
		assert_int_equal(ibv_post_send(qp_at(&e->dialler)->qp, &wr, &bad), 0);
	snprintf(cmd, sizeof(cmd), "count recvs %u", qp_at(&e->accepter)->qp->qp_num);
	UNTIL(ports_ctl(cmd) == SENDS);
}

/* A lane comes and ends, at both ends, while another stays. */
static void flap(struct braid_dev *from, struct braid_dev *to)
{
	struct ends e;

	assert_int_equal(ends_meet(&e, from, to), 0);
	send_some(&e);
	ends_part(&e);
}

static void lanes_that_end_take_no_shared_receives_along(void **state)
{
	struct braid_dev *lo = dev_named("roce0:1");
	struct braid_srq *s;
	struct ends stays;
	long pinned;

	(void)state;
	assert_int_equal(ends_meet(&stays, lo, lo), 0);
	s = qp_at(&stays.dialler)->srq;
	flap(lo, lo);
	pinned = ports_ctl("live pinned");
	for (unsigned i = 0; i < ENDS; i++)
		flap(lo, lo);
	assert_ptr_equal(braid_ibport_of(lo)->srq, s);
	assert_int_equal(ports_ctl("live srq"), 1);
	assert_int_equal(ports_ctl("live pinned"), pinned);
	assert_int_equal(ports_ctl("live posted"), s->nslots * BRAID_SLOTS_RX);
	ends_part(&stays);
}

static void an_attempt_that_never_could_receive_takes_none_along(void **state)
{
	struct braid_dev *lo = dev_named("roce0:1");
	struct braid_srq *s;
	struct ends stays;

	(void)state;
	assert_int_equal(ends_meet(&stays, lo, lo), 0);
	s = qp_at(&stays.dialler)->srq;
	for (unsigned i = 0; i < 200; i++) {
		struct braid_setup dials = {
			.dev = lo, .to = &lo->net.addr.sa, .traffic_class = -1, .dialler = true,
		};
		uint8_t asked[BRAID_BLOB_SIZE];

		UNTIL(!braid_qp_setup(&dials, NULL, asked));
		braid_qp_drop(&dials);
		jobs_done(lo);
	}
	assert_int_equal(s->left, 0);
	assert_int_equal(ports_ctl("live posted"), s->nslots * BRAID_SLOTS_RX);
	ends_part(&stays);
}

/* Then nobody knows how many are missing, so that the queue must end. */
static void where_the_last_receive_is_not_reported_a_queue_wears_out(void **state)
{
	struct braid_dev *dev = dev_named("mute0:1");
	struct braid_ibport *p = port_named("mute0:1");
	struct braid_srq *s;
	struct ends stays;

	(void)state;
	assert_int_equal(ends_meet(&stays, dev, dev_named("mute1:1")), 0);
	s = qp_at(&stays.dialler)->srq;
	for (unsigned i = 0; i < 100 && p->srq == s; i++)
		flap(dev, dev_named("mute1:1"));
	assert_ptr_not_equal(p->srq, s);
	assert_true(atomic_load(&p->no_last_wqe));
	ends_part(&stays);
	assert_int_equal(ports_ctl("live srq"), 0);
}

static void a_queue_of_completions_that_breaks_loses_receives(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct ends stays, e;

	(void)state;
	assert_int_equal(ends_meet(&stays, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	ports_ctl("cq error");
	UNTIL((braid_ibport_events(p), atomic_load(&qp_at(&e.dialler)->broken)));
	ends_part(&e);
	assert_int_equal(p->srq->left, 1);
	ends_part(&stays);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_of_a_queue_pair_that_is_freed),
		cmocka_unit_test(the_last_reference_destroys_it),
		cmocka_unit_test(a_fence_stops_it_without_waiting),
		cmocka_unit_test(a_command_that_hangs_is_overtaken_by_a_request_that_can_not_succeed),
		cmocka_unit_test(a_queue_pair_that_failed_during_set_up_needs_no_stop),
		cmocka_unit_test(lanes_that_end_take_no_shared_receives_along),
		cmocka_unit_test(an_attempt_that_never_could_receive_takes_none_along),
		cmocka_unit_test(where_the_last_receive_is_not_reported_a_queue_wears_out),
		cmocka_unit_test(a_queue_of_completions_that_breaks_loses_receives),
	};

	ports_of("ib0:ib;ib1:ib;roce0:rocev2,netdev=lo;mute0:ib,last_wqe=0;mute1:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
