/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_reap.c - when idle links are closed and dead ones freed, by a clock that only the test moves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/units.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/reap.h"
#include "tests/lib/pair.h"

enum { IDLE_S = 5, DIALLER = 0, ACCEPTER = 1, CLOSES = 2 };

static struct null_pair pair;
static struct braid_params saved;
static struct braid_transport tr;	/* the null transport; it counts lanes that are closed */
static unsigned closes;

static void lane_close(struct braid_lane *lane)
{
	closes++;
	null_transport.lane_close(lane);
}

static struct braid_link *link_at(unsigned end)
{
	return pair.end[end];
}

/* Both ends are in the table, and neither has had a comm. */
static int begin(void **state)
{
	struct null_config config = { .lanes = 2, .window = 1 << 16, .held = true };

	(void)state;
	saved = braid_param;
	braid_param.link_idle = IDLE_S;
	null_pair_init(&pair, &config);
	null_now_ns += 1000 * SEC;
	tr = null_transport;
	tr.lane_close = lane_close;
	closes = 0;
	braid_svc_lock();
	braid_links_init();
	braid_handshakes_init();
	for (unsigned i = 0; i < 2; i++) {
		braid_link_list(link_at(i));
		for (unsigned k = 0; k < 2; k++)
			link_at(i)->lane[k]->tr = &tr;
	}
	return 0;
}

static int end(void **state)
{
	(void)state;
	braid_svc_unlock();
	null_pair_fini(&pair);
	braid_param = saved;
	return 0;
}

static bool dead(unsigned end)
{
	return atomic_load(&link_at(end)->state) == BRAID_LINK_DEAD;
}

static bool reap(unsigned end)
{
	struct braid_link_key key = link_at(end)->key;
	bool freed = braid_reap_link(link_at(end), null_now_ns);

	if (freed)			/* one for null_pair_fini() */
		pair.end[end] = braid_link_new(&key);
	return freed;
}

static void kill_link(unsigned end)
{
	braid_link_fail(link_at(end), -EREMOTEIO, "%s", "the case ends it [peer-ended]");
}

static bool listed(const struct braid_link *which)
{
	struct braid_link *l;

	braid_list_for(l, &braid_svc.links, table.node) {
		if (l == which)
			return true;
	}
	return false;
}

static struct braid_comm *comm_at(unsigned end)
{
	struct braid_comm *c[2];

	null_comms(&pair, DIALLER, &c[0], &c[1]);
	return c[end];
}

static bool closed_on_the_wire(unsigned from)
{
	struct braid_hdr h;

	return null_peek(&pair, from, 0, &h) && h.type == BRAID_F_CLOSE;
}

/* For how long it is kept: it is closed at that time, and not a millisecond sooner. */
static void assert_closed_after(unsigned end, uint64_t ms)
{
	reap(end);
	assert_false(dead(end));
	null_now_ns += (ms - 1) * MS;
	reap(end);
	assert_false(dead(end));
	null_now_ns += MS;
	reap(end);
	assert_true(dead(end));
}

/* --- idle ---------------------------------------------------------------------------------- */

static void an_idle_link_is_closed_after_its_time(void **state)
{
	(void)state;
	assert_closed_after(DIALLER, IDLE_S * 1000);
	assert_true(closed_on_the_wire(DIALLER));
	assert_int_equal(atomic_load(&link_at(DIALLER)->err), -ENOTCONN);
	assert_int_equal(warn_count, 0);
	assert_int_equal(closes, 0);		/* the next turn closes the lanes */
}

static void using_a_link_restarts_its_idle_time(void **state)
{
	struct braid_comm *c;

	(void)state;
	reap(DIALLER);
	null_now_ns += IDLE_S * SEC;
	atomic_store(&link_at(DIALLER)->thread.pins, 1);	/* a call is under way */
	reap(DIALLER);
	atomic_store(&link_at(DIALLER)->thread.pins, 0);
	reap(DIALLER);
	null_now_ns += IDLE_S * SEC;
	atomic_store(&link_at(DIALLER)->msg.refusals, (void *)link_at(DIALLER));
	reap(DIALLER);				/* REFUSED frames are due */
	atomic_store(&link_at(DIALLER)->msg.refusals, NULL);
	reap(DIALLER);
	null_now_ns += IDLE_S * SEC;
	c = comm_at(DIALLER);
	reap(DIALLER);
	braid_lock_wait(&link_at(DIALLER)->lock);
	braid_comm_free(c);
	braid_unlock(&link_at(DIALLER)->lock);
	assert_closed_after(DIALLER, IDLE_S * 1000);
}

static void an_accepted_link_waits_longer_for_its_first_comm(void **state)
{
	(void)state;
	braid_param.link_idle = 0;
	assert_closed_after(ACCEPTER, 2000);
}

static void it_waits_as_long_as_others_if_that_is_longer(void **state)
{
	(void)state;
	assert_closed_after(ACCEPTER, IDLE_S * 1000);
}

static void a_socket_may_come_late_where_rdma_was_tried(void **state)
{
	(void)state;
	link_at(ACCEPTER)->setup.better = true;
	assert_closed_after(ACCEPTER, 10000);
}

static void an_accepted_link_that_was_used_waits_no_longer_than_others(void **state)
{
	(void)state;
	braid_param.link_idle = 1;
	atomic_store(&link_at(ACCEPTER)->msg.used, true);
	assert_closed_after(ACCEPTER, 1000);
}

static void links_that_are_not_shared_are_closed_at_once(void **state)
{
	(void)state;
	braid_param.share = 0;
	assert_false(reap(DIALLER));
	assert_true(dead(DIALLER));
}

static void a_link_whose_peer_has_closed_is_closed_at_once(void **state)
{
	(void)state;
	atomic_store(&link_at(DIALLER)->rx.peer_gone, true);
	assert_false(reap(DIALLER));
	assert_true(dead(DIALLER));
	assert_false(closed_on_the_wire(DIALLER));	/* nobody reads it */
}

static void an_idle_link_gives_its_rings_back(void **state)
{
	(void)state;
	reap(DIALLER);
	null_now_ns += 50 * MS;
	reap(DIALLER);
	assert_true(atomic_load(&link_at(DIALLER)->lanes.attached));
	null_now_ns += 1;
	reap(DIALLER);
	assert_false(atomic_load(&link_at(DIALLER)->lanes.attached));
	/* It gets them again to say that it is over. */
	null_now_ns += IDLE_S * SEC;
	reap(DIALLER);
	assert_true(closed_on_the_wire(DIALLER));
}

static void a_link_that_is_not_up_is_not_idle(void **state)
{
	(void)state;
	atomic_store(&link_at(DIALLER)->state, BRAID_LINK_DIALING);
	reap(DIALLER);
	null_now_ns += 2 * IDLE_S * SEC;
	assert_false(reap(DIALLER));
	assert_false(dead(DIALLER));
}

/* --- too many ------------------------------------------------------------------------------ */

static void of_too_many_idle_links_the_idlest_is_closed(void **state)
{
	(void)state;
	braid_param.links_idle = 1;
	atomic_store(&link_at(ACCEPTER)->msg.used, true);
	reap(ACCEPTER);
	braid_reap_idlest();
	assert_false(dead(ACCEPTER));
	null_now_ns += MS;
	reap(DIALLER);
	braid_reap_idlest();
	assert_true(dead(ACCEPTER));
	assert_false(dead(DIALLER));
}

static void dead_links_are_not_counted(void **state)
{
	(void)state;
	braid_param.links_idle = 1;
	atomic_store(&link_at(ACCEPTER)->msg.used, true);
	reap(DIALLER);
	null_now_ns += MS;
	reap(ACCEPTER);
	kill_link(ACCEPTER);
	braid_reap_idlest();
	assert_false(dead(DIALLER));
}

static void a_link_whose_first_comm_is_on_its_way_is_not_too_many(void **state)
{
	(void)state;
	braid_param.links_idle = 0;
	reap(ACCEPTER);
	braid_reap_idlest();
	assert_false(dead(ACCEPTER));
	reap(DIALLER);
	braid_reap_idlest();
	assert_false(dead(ACCEPTER));
	assert_true(dead(DIALLER));
}

/* --- dead ---------------------------------------------------------------------------------- */

static void a_dead_link_is_freed_with_its_lanes_closed(void **state)
{
	const struct braid_link *was = link_at(DIALLER);

	(void)state;
	kill_link(DIALLER);
	assert_true(reap(DIALLER));
	assert_true(closes >= CLOSES);
	assert_false(listed(was));
}

static void a_comm_keeps_a_dead_link_until_it_is_closed(void **state)
{
	struct braid_comm *c = comm_at(DIALLER);

	(void)state;
	kill_link(DIALLER);
	assert_false(reap(DIALLER));
	assert_int_equal(closes, CLOSES);	/* its lanes are closed all the same */
	for (unsigned k = 0; k < 2; k++) {	/* and a call that was about to poll one does not */
		assert_false(braid_lane_up(link_at(DIALLER)->lane[k]));
		assert_false(braid_lane_unread(link_at(DIALLER)->lane[k]));
	}
	c->closed = true;
	assert_true(reap(DIALLER));
}

/* It has no owner who could close it, and nothing was received that accept() could still return. */
static void a_comm_that_failed_before_accept_is_freed(void **state)
{
	struct braid_comm *c = comm_at(ACCEPTER);
	struct braid_listen listen = { .nready = 1 };

	(void)state;
	braid_list_init(&listen.ready);
	braid_list_add_tail(&listen.ready, &c->listen_node);
	c->listen = &listen;
	kill_link(ACCEPTER);
	assert_true(reap(ACCEPTER));
	assert_int_equal(listen.nready, 0);
	assert_true(braid_list_empty(&listen.ready));
}

static void a_comm_that_did_not_fail_stays_for_accept(void **state)
{
	struct braid_comm *c = comm_at(ACCEPTER);
	struct braid_listen listen = { .nready = 1 };

	(void)state;
	braid_list_init(&listen.ready);
	braid_list_add_tail(&listen.ready, &c->listen_node);
	c->listen = &listen;
	kill_link(ACCEPTER);
	atomic_store(&c->err, 0);		/* all that its sender sent has come */
	assert_false(reap(ACCEPTER));
	assert_int_equal(listen.nready, 1);
	braid_list_del(&c->listen_node);
}

static void calls_and_readers_keep_a_dead_link(void **state)
{
	struct braid_link *l = link_at(DIALLER);

	(void)state;
	kill_link(DIALLER);
	atomic_store(&l->thread.pins, 1);
	assert_false(reap(DIALLER));
	atomic_store(&l->thread.pins, 0);
	assert_ptr_equal(braid_links_next(NULL), l);
	assert_false(reap(DIALLER));
	braid_links_leave(l);
	assert_true(reap(DIALLER));
}

static void handshakes_of_a_dead_link_end_and_it_is_not_watched(void **state)
{
	struct braid_conn *c = calloc(1, sizeof(*c));

	(void)state;
	c->dialler = true;
	c->link = link_at(DIALLER);
	c->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	braid_list_add_tail(&braid_handshakes, &c->node);
	atomic_store(&link_at(DIALLER)->thread.watched, true);
	atomic_store(&link_at(DIALLER)->thread.pins, 1);
	kill_link(DIALLER);
	assert_false(reap(DIALLER));
	assert_true(braid_list_empty(&braid_handshakes));
	assert_false(atomic_load(&link_at(DIALLER)->thread.watched));
	atomic_store(&link_at(DIALLER)->thread.pins, 0);
}

static void a_nic_that_has_not_stopped_keeps_a_dead_link(void **state)
{
	struct braid_dev *dev = &pair.dev[DIALLER];

	(void)state;
	atomic_store(&dev->stopping.begun, 3);
	atomic_store(&dev->stopping.done, 2);
	kill_link(DIALLER);
	assert_false(reap(DIALLER));
	atomic_store(&dev->stopping.begun, 4);	/* a later request is not about this link */
	assert_false(reap(DIALLER));
	atomic_store(&dev->stopping.done, 3);
	assert_true(reap(DIALLER));
}

static void the_last_service_thread_waits_for_nics_alone(void **state)
{
	struct braid_dev *dev = &pair.dev[DIALLER];
	struct braid_link_key key = link_at(DIALLER)->key;

	(void)state;
	comm_at(DIALLER)->closed = true;
	atomic_store(&dev->stopping.begun, 1);
	kill_link(DIALLER);
	kill_link(ACCEPTER);
	assert_true(braid_reap_all());
	atomic_store(&dev->stopping.done, 1);
	assert_false(braid_reap_all());
	assert_true(listed(link_at(ACCEPTER)));	/* its comm keeps it, for a later thread */
	pair.end[DIALLER] = braid_link_new(&key);
}

/* --- CLOSE --------------------------------------------------------------------------------- */

static void close_follows_all_that_is_due(void **state)
{
	struct braid_link *l = link_at(ACCEPTER);
	struct braid_hdr h;

	(void)state;
	atomic_store(&l->lanes.ask, 3);		/* a LANES frame is due */
	braid_lock_wait(&l->lock);
	braid_reap_send_close(l);
	braid_unlock(&l->lock);
	assert_true(null_peek(&pair, ACCEPTER, 0, &h));
	assert_int_equal(h.type, BRAID_F_LANES);
	assert_int_equal(null_deliver(&pair, ACCEPTER, 0), 1);
	assert_true(closed_on_the_wire(ACCEPTER));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_idle_link_is_closed_after_its_time),
		CASE(using_a_link_restarts_its_idle_time),
		CASE(an_accepted_link_waits_longer_for_its_first_comm),
		CASE(it_waits_as_long_as_others_if_that_is_longer),
		CASE(a_socket_may_come_late_where_rdma_was_tried),
		CASE(an_accepted_link_that_was_used_waits_no_longer_than_others),
		CASE(links_that_are_not_shared_are_closed_at_once),
		CASE(a_link_whose_peer_has_closed_is_closed_at_once),
		CASE(an_idle_link_gives_its_rings_back),
		CASE(a_link_that_is_not_up_is_not_idle),
		CASE(of_too_many_idle_links_the_idlest_is_closed),
		CASE(dead_links_are_not_counted),
		CASE(a_link_whose_first_comm_is_on_its_way_is_not_too_many),
		CASE(a_dead_link_is_freed_with_its_lanes_closed),
		CASE(a_comm_keeps_a_dead_link_until_it_is_closed),
		CASE(a_comm_that_failed_before_accept_is_freed),
		CASE(a_comm_that_did_not_fail_stays_for_accept),
		CASE(calls_and_readers_keep_a_dead_link),
		CASE(handshakes_of_a_dead_link_end_and_it_is_not_watched),
		CASE(a_nic_that_has_not_stopped_keeps_a_dead_link),
		CASE(the_last_service_thread_waits_for_nics_alone),
		CASE(close_follows_all_that_is_due),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
