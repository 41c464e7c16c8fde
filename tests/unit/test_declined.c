/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_declined.c - a transport that both ends have could not be set up: at which end, why, and
 * whether trying again is of any use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/setup/conn.h"
#include "core/setup/declined.h"
#include "core/transport.h"

static const struct braid_transport rdma = { .name = "rdma" };
static const struct braid_transport rests = { .name = "rests", .rest_s = 60 };
static struct braid_conn c;

/* Both ends agree on rdma, and it fails with these errnos. */
static int decline(uint16_t mine, uint16_t theirs)
{
	memset(&c, 0, sizeof(c));
	c.refused = &rdma;
	c.mine_setup.err = mine;
	c.their_setup.err = theirs;
	return braid_declined_err(&c);
}

static void assert_text(const char *want)
{
	char text[320];

	braid_declined_text(&c, text, sizeof(text));
	assert_string_equal(text, want);
}

static void a_lane_that_came_up_is_no_refusal(void **state)
{
	(void)state;
	assert_int_equal(decline(0, 0), 0);
	c.refused = NULL;
	assert_text("");
}

static void the_end_that_could_not_is_named(void **state)
{
	(void)state;
	assert_int_equal(decline(EPERM, 0), EPERM);
	assert_text("this end can't have rdma (Operation not permitted)");
	assert_int_equal(decline(0, EPERM), EPERM);
	assert_text("the peer can't have rdma (Operation not permitted)");
	/* The peer may have given up only because this end had. */
	assert_int_equal(decline(EPERM, EIO), EPERM);
	assert_text("this end can't have rdma (Operation not permitted)");
}

static void errors_of_a_set_up_say_what_to_look_for(void **state)
{
	static const struct {
		uint16_t err;
		const char *says;
	} rows[] = {
		{ EPROTOTYPE, "of different kinds" },
		{ EADDRNOTAVAIL, "BRAID_IB_GID" },
		{ ENOPROTOOPT, "that end's log says why" },
		{ ENETDOWN, "its port is down" },
		{ EHOSTUNREACH, "had no answer" },
		{ EBUSY, "does not answer commands" },
		{ ENOMEM, "Cannot allocate memory" },
	};
	char text[320];

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		decline(0, rows[i].err);
		braid_declined_text(&c, text, sizeof(text));
		if (!strstr(text, rows[i].says))
			fail_msg("no \"%s\" in: %s", rows[i].says, text);
	}
}

static void the_call_that_failed_here_is_named(void **state)
{
	(void)state;
	decline(ENOMEM, 0);
	c.setup.failed = "ibv_create_qp";
	assert_text("this end can't have rdma (ibv_create_qp: Cannot allocate memory)");
	/* This end's call has nothing to do with the peer's failure. */
	decline(0, ENOMEM);
	c.setup.failed = "ibv_create_qp";
	assert_text("the peer can't have rdma (Cannot allocate memory)");
}

static void the_transports_own_text_replaces_that_of_the_errno(void **state)
{
	(void)state;
	decline(EPROTOTYPE, 0);
	snprintf(c.setup.why, sizeof(c.setup.why), "it is Tuesday");
	assert_text("this end can't have rdma (it is Tuesday)");
}

static void text_is_cut_to_its_room(void **state)
{
	char text[12];

	(void)state;
	decline(EPERM, 0);
	memset(text, 'x', sizeof(text));
	braid_declined_text(&c, text, 9);
	assert_string_equal(text, "this end");
	assert_int_equal(text[9], 'x');
}

static void only_what_cannot_change_is_final(void **state)
{
	(void)state;
	decline(EPERM, 0);
	assert_true(braid_declined_for_good(&c, EPROTOTYPE));	/* ports of different kinds */
	assert_true(braid_declined_for_good(&c, EALREADY));	/* reported before */
	assert_false(braid_declined_for_good(&c, 0));
	assert_false(braid_declined_for_good(&c, EPERM));
	assert_false(braid_declined_for_good(&c, ENETDOWN));
}

/* Every new lane would wait for a NIC that hangs; a transport that is merely slow is tried again. */
static void a_timeout_is_final_where_the_transport_wants_rest(void **state)
{
	(void)state;
	decline(ETIMEDOUT, 0);
	assert_false(braid_declined_for_good(&c, ETIMEDOUT));
	c.refused = &rests;
	assert_true(braid_declined_for_good(&c, ETIMEDOUT));
	assert_false(braid_declined_for_good(&c, EPERM));
	c.refused = NULL;
	assert_false(braid_declined_for_good(&c, ETIMEDOUT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_that_came_up_is_no_refusal),
		cmocka_unit_test(the_end_that_could_not_is_named),
		cmocka_unit_test(errors_of_a_set_up_say_what_to_look_for),
		cmocka_unit_test(the_call_that_failed_here_is_named),
		cmocka_unit_test(the_transports_own_text_replaces_that_of_the_errno),
		cmocka_unit_test(text_is_cut_to_its_room),
		cmocka_unit_test(only_what_cannot_change_is_final),
		cmocka_unit_test(a_timeout_is_final_where_the_transport_wants_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
