/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cross.c - two processes dial each other at the same moment: which of the two dials goes on,
 * and when the other one gives way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/self.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/cross.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"

static const uint64_t start = 1000 * SEC;
static struct braid_link link_;

/* This process has the id 5, and dials the peer; our connection has come to `state`. */
static struct braid_conn *dial(uint8_t peer, enum braid_conn_state state)
{
	struct braid_conn *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	memset(&link_, 0, sizeof(link_));
	memset(braid_self.process, 5, sizeof(braid_self.process));
	memset(link_.key.process, peer, sizeof(link_.key.process));
	link_.dialler = true;
	link_.dial.conn = c;
	c->fd = -1;
	c->dialler = true;
	c->link = &link_;
	c->state = state;
	braid_list_add_tail(&braid_handshakes, &c->node);
	return c;
}

static bool refuses(unsigned ms)		/* after the start */
{
	bool refused;

	braid_svc_lock();
	refused = braid_cross_refuse(&link_, start + ms * MS);
	braid_svc_unlock();
	return refused;
}

static bool heard(unsigned ms)
{
	bool was_heard;

	braid_svc_lock();
	was_heard = braid_cross_is_recent(&link_, start + ms * MS);
	braid_svc_unlock();
	return was_heard;
}

static int setup(void **state)
{
	(void)state;
	braid_svc_lock();
	braid_handshakes_init();
	braid_svc_unlock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_lock();
	braid_handshakes_close();
	braid_svc_unlock();
	return 0;
}

static void assert_dialling(const struct braid_conn *c)
{
	assert_ptr_equal(link_.dial.conn, c);
	assert_int_equal(atomic_load(&link_.state), BRAID_LINK_DIALING);
}

/* Our dial has ended, and the next one leaves the peer's some time. */
static void assert_gave_way(unsigned ms)
{
	assert_null(link_.dial.conn);
	assert_true(braid_list_empty(&braid_handshakes));
	assert_int_equal(atomic_load(&link_.state), BRAID_LINK_WAITING);
	assert_int_equal(link_.dial.at_ns, start + (ms + 2000) * MS);
}

static void the_smaller_process_refuses_the_others_dial(void **state)
{
	struct braid_conn *c = dial(9, BRAID_CONN_RX_ANSWER);

	(void)state;
	assert_true(refuses(0));
	assert_dialling(c);
}

static void the_larger_process_admits_the_others_dial(void **state)
{
	struct braid_conn *c = dial(2, BRAID_CONN_RX_ANSWER);

	(void)state;
	assert_false(refuses(0));
	assert_dialling(c);		/* the peer refuses it, which ends it */
	assert_int_equal(link_.dial.crossed_ns, 0);
}

static void a_dial_that_tcp_has_not_connected_gives_way_at_once(void **state)
{
	(void)state;
	dial(9, BRAID_CONN_CONNECT);
	assert_false(refuses(3));
	assert_gave_way(3);
}

static void a_dial_without_a_connection_gives_way_at_once(void **state)
{
	(void)state;
	braid_svc_lock();
	dial(9, BRAID_CONN_CONNECT);
	braid_handshake_end(link_.dial.conn);	/* between two tries */
	braid_svc_unlock();
	assert_false(refuses(3));
	assert_gave_way(3);
}

static void one_that_gets_no_answer_gives_way_after_a_while(void **state)
{
	struct braid_conn *c = dial(9, BRAID_CONN_RX_ANSWER);

	(void)state;
	assert_true(refuses(0));
	assert_true(refuses(500));
	assert_true(refuses(899));
	assert_dialling(c);
	assert_false(refuses(900));
	assert_gave_way(900);
}

static void one_whose_peer_has_shown_the_key_never_gives_way(void **state)
{
	struct braid_conn *c = dial(9, BRAID_CONN_TX_PROOF);

	(void)state;
	c->known = true;
	assert_true(refuses(0));
	assert_true(refuses(60000));
	assert_dialling(c);
}

static void a_link_that_is_not_being_dialled_refuses_nothing(void **state)
{
	struct braid_conn *c = dial(9, BRAID_CONN_RX_ANSWER);

	(void)state;
	link_.dialler = false;
	assert_false(refuses(0));
	link_.dialler = true;
	atomic_store(&link_.state, BRAID_LINK_WAITING);
	assert_false(refuses(0));
	assert_ptr_equal(link_.dial.conn, c);
	assert_int_equal(link_.dial.at_ns, 0);
}

static void a_recent_dial_counts_as_a_sign_of_life(void **state)
{
	(void)state;
	dial(9, BRAID_CONN_RX_ANSWER);
	assert_false(heard(0));
	assert_true(refuses(0));
	assert_true(heard(1499));
	assert_false(heard(1500));
}

static void the_end_that_was_refused_dials_again_in_half_a_second(void **state)
{
	(void)state;
	dial(2, BRAID_CONN_RX_ANSWER);
	braid_svc_lock();
	braid_cross_refused(&link_, start);
	braid_svc_unlock();
	assert_int_equal(atomic_load(&link_.state), BRAID_LINK_WAITING);
	assert_int_equal(link_.dial.at_ns, start + 500 * MS);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_smaller_process_refuses_the_others_dial),
		CASE(the_larger_process_admits_the_others_dial),
		CASE(a_dial_that_tcp_has_not_connected_gives_way_at_once),
		CASE(a_dial_without_a_connection_gives_way_at_once),
		CASE(one_that_gets_no_answer_gives_way_after_a_while),
		CASE(one_whose_peer_has_shown_the_key_never_gives_way),
		CASE(a_link_that_is_not_being_dialled_refuses_nothing),
		CASE(a_recent_dial_counts_as_a_sign_of_life),
		CASE(the_end_that_was_refused_dials_again_in_half_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
