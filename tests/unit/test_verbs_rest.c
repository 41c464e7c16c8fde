/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_rest.c - a lane over verbs at rest gives registered memory back, and gets it again. */
#include "tests/unit/lanes.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/link/control.h"
#include "verbs/verbs.h"

enum { IDLE_MAX = 64 << 10, MESSAGE = 4000 };

static struct braid_ring *ring(struct lanes *l, unsigned end)
{
	return lane_qp(l, end)->rings;
}

static bool is_registered(struct lanes *l, unsigned end)
{
	return atomic_load(&ring(l, end)->mr) != NULL;
}

static void both_jobs_done(struct lanes *l)
{
	jobs_done(l->e.dialler.dev);
	jobs_done(l->e.accepter.dev);
}

static bool trim(struct lanes *l, unsigned end)
{
	braid_link_move(l->link[end]);
	return braid_link_trim(l->link[end]);
}

/* As the service thread does it: again, until the NIC has completed all requests. */
static void rest(struct lanes *l)
{
	UNTIL(trim(l, 0));
	UNTIL(trim(l, 1));
	both_jobs_done(l);
}

/* Only a message that is not sent inline needs the ring registered. */
static void use(struct lanes *l)
{
	lanes_move(l, MESSAGE, false);
	both_jobs_done(l);
	assert_true(is_registered(l, 0));
}

static void a_lane_at_rest_has_little_registered_and_traffic_comes_back(void **state)
{
	struct lanes l;
	long none, idle;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	none = ports_ctl("live pinned");
	for (unsigned i = 0; i < 3; i++) {
		use(&l);
		assert_true(ports_ctl("live pinned") >= none + (long)ring(&l, 0)->size);
		rest(&l);
		assert_false(is_registered(&l, 0) || is_registered(&l, 1));
		assert_int_equal(ports_ctl("live pinned"), none);
		lanes_move(&l, 300000, true);
		lanes_move(&l, 70000, false);
		lanes_move(&l, 8, false);
	}
	lanes_down(&l);
	idle = none - ports_ctl("live pinned");
	assert_true(idle > 0 && idle < 2 * IDLE_MAX);	/* of both ends; the rest is the port's */
}

static void a_ring_stays_registered_while_a_request_may_read_it(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	use(&l);
	ports_ctl("port ib1 down");	/* what is sent now is sent again until the port is up */
	braid_lock_wait(&l.link[0]->lock);
	braid_verbs_write_counts(lane_at(&l, 0), lane_qp(&l, 0));
	assert_int_equal(braid_verbs_chain_post(lane_qp(&l, 0)), 0);
	braid_unlock(&l.link[0]->lock);
	for (unsigned i = 0; i < 20; i++) {
		assert_false(trim(&l, 0));
		assert_true(is_registered(&l, 0));
		ports_nap(i, "the NIC sends again");
	}
	ports_ctl("port ib1 up");
	rest(&l);
	assert_false(is_registered(&l, 0));
	lanes_move(&l, MESSAGE, false);
	lanes_down(&l);
}

static void requests_that_ask_for_no_completion_are_followed_by_one_that_does(void **state)
{
	struct lanes l;
	struct braid_qp *w;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	use(&l);
	w = lane_qp(&l, 0);
	lanes_move(&l, MESSAGE, false);
	if (w->sq_signal == w->sq_posted)
		lanes_move(&l, MESSAGE, false);
	assert_int_not_equal(w->sq_signal, w->sq_posted);
	assert_false(trim(&l, 0));
	assert_int_equal(w->sq_signal, w->sq_posted);
	for (uint32_t posted = w->sq_posted; !trim(&l, 0);)
		assert_int_equal(w->sq_posted, posted);		/* one is enough */
	rest(&l);
	lanes_down(&l);
}

static void what_is_sent_inline_needs_no_registered_memory(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	for (unsigned i = 0; i < 100; i++)
		lanes_move(&l, 8, false);
	both_jobs_done(&l);
	assert_false(is_registered(&l, 0) || is_registered(&l, 1));
	assert_int_equal(lane_qp(&l, 0)->bounces, 0);
	lanes_down(&l);
}

static void without_inline_data_small_messages_register_the_ring(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "plain0:1", "plain1:1");
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 10; k++)	/* some go with their header */
			lanes_move(&l, 8, false);
		both_jobs_done(&l);
		assert_true(is_registered(&l, 0));
		rest(&l);
	}
	lanes_down(&l);
}

static void a_ring_that_could_not_be_registered_is_tried_again_after_a_rest(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	for (unsigned i = 0; i < 20; i++) {
		lanes_move(&l, MESSAGE, false);
		both_jobs_done(&l);
	}
	assert_int_equal(ports_ctl("calls"), 1);	/* not for each message */
	assert_false(is_registered(&l, 0));
	assert_true(lane_qp(&l, 0)->bounces >= 20);
	ports_ctl("fail 0");
	rest(&l);
	use(&l);
	lanes_down(&l);
}

static void a_lane_dies_while_its_ring_is_deregistered_or_registered(void **state)
{
	long mrs = ports_ctl("live mr");
	struct lanes l;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		lanes_up(&l, "ib0:1", "ib1:1");
		if (i < 2)
			use(&l);
		ports_ctl(i < 2 ? "slow ibv_dereg_mr 50" : "slow ibv_reg_mr 50");
		if (i < 2) {
			UNTIL(trim(&l, 0));
			assert_true(atomic_load(&ring(&l, 0)->busy));
		}
		if (i & 1)		/* used again before that is over, or for the first time */
			lanes_move(&l, MESSAGE, false);
		lanes_down(&l);
		ports_ctl("slow none");
	}
	assert_true(ports_ctl("live mr") <= mrs + 2);	/* what the ports keep */
}

static void dies(bool fenced)
{
	struct braid_bounces *b = &port_named("ib0:1")->bounces;
	struct lanes l;
	uint64_t all;

	lanes_up(&l, "ib0:1", "ib1:1");
	all = atomic_load(&b->free);
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	ports_ctl("port ib1 down");
	braid_lock_wait(&l.link[0]->lock);
	while (lane_qp(&l, 0)->bounces - lane_qp(&l, 0)->bounces_back < 3) {
		struct braid_hdr h = { .type = BRAID_F_VOID, .len = 600 };
		static const char data[600];

		braid_tx_add(lane_at(&l, 0), &h, data, NULL, NULL);
		braid_verbs_push(lane_at(&l, 0));
	}
	braid_unlock(&l.link[0]->lock);
	assert_int_not_equal(atomic_load(&b->free), all);
	ports_ctl("fail 0");
	if (fenced) {			/* not only when it is destroyed, which may take long */
		braid_lock_wait(&l.link[0]->lock);
		braid_qp_fence(lane_qp(&l, 0));
		braid_unlock(&l.link[0]->lock);
		UNTIL(atomic_load(&b->free) == all);
	}
	lanes_down(&l);
	ports_ctl("port ib1 up");
	assert_int_equal(atomic_load(&b->free), all);
}

static void all_pieces_come_back_from_a_lane_that_dies(void **state)
{
	(void)state;
	dies(false);
	dies(true);
}

static void *give_later(void *arg)
{
	struct braid_bounces *b = arg;
	const struct timespec nap = { .tv_nsec = 50000000 };

	nanosleep(&nap, NULL);
	for (int i = 0; i < 3; i++)
		braid_bounce_put(b, i);
	return NULL;
}

static void a_lane_without_a_free_piece_goes_on_when_others_give_theirs_back(void **state)
{
	struct braid_bounces *b = &port_named("ib0:1")->bounces;
	struct lanes l;
	pthread_t thread;
	uint64_t all;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	all = atomic_load(&b->free);
	while (braid_bounce_take(b) >= 0)
		;
	assert_int_equal(pthread_create(&thread, NULL, give_later, b), 0);
	lanes_move(&l, 300000, false);
	pthread_join(thread, NULL);
	rest(&l);
	assert_int_equal(atomic_load(&b->free), 7);
	atomic_store(&b->free, all);
	lanes_down(&l);
}

static void a_strict_lane_has_pieces_of_its_own_and_rests_too(void **state)
{
	struct braid_bounces *b = &port_named("ib0:1")->bounces;
	struct lanes l;
	uint64_t all = atomic_load(&b->free);

	(void)state;
	braid_param.rdma_strict = 1;
	lanes_up(&l, "ib0:1", "ib1:1");
	atomic_store(&b->free, 0);
	use(&l);
	rest(&l);
	assert_false(is_registered(&l, 0));
	lanes_move(&l, 300000, true);
	lanes_down(&l);
	atomic_store(&b->free, all);
	braid_param.rdma_strict = 0;
}

static void so_it_is_over_iwarp(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "iw0:1", "iw0:1");
	lanes_move(&l, 8, false);		/* the dialler sends first */
	for (unsigned i = 0; i < 3; i++) {
		use(&l);
		rest(&l);
		assert_false(is_registered(&l, 0) || is_registered(&l, 1));
		lanes_move(&l, 300000, true);
	}
	lanes_down(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_at_rest_has_little_registered_and_traffic_comes_back),
		cmocka_unit_test(a_ring_stays_registered_while_a_request_may_read_it),
		cmocka_unit_test(requests_that_ask_for_no_completion_are_followed_by_one_that_does),
		cmocka_unit_test(what_is_sent_inline_needs_no_registered_memory),
		cmocka_unit_test(without_inline_data_small_messages_register_the_ring),
		cmocka_unit_test(a_ring_that_could_not_be_registered_is_tried_again_after_a_rest),
		cmocka_unit_test(a_lane_dies_while_its_ring_is_deregistered_or_registered),
		cmocka_unit_test(all_pieces_come_back_from_a_lane_that_dies),
		cmocka_unit_test(a_lane_without_a_free_piece_goes_on_when_others_give_theirs_back),
		cmocka_unit_test(a_strict_lane_has_pieces_of_its_own_and_rests_too),
		cmocka_unit_test(so_it_is_over_iwarp),
	};

	ports_of("ib0:ib;ib1:ib;plain0:ib,max_inline=0;plain1:ib,max_inline=0;iw0:iwarp,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
