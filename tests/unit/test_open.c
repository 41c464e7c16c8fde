/* SPDX-License-Identifier: BSD-3-Clause */
/* test_open.c - OPEN frames: a comm is made and answered, or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "core/link/control.h"
#include "core/msg/open.h"
#include "core/proto/hello.h"
#include "tests/lib/comms.h"

static int offer_err;			/* what the listen answers: 0 or an errno */
static struct braid_comm *offered;	/* the comm that it was asked to take */

static int open_check(const struct braid_link *link, uint32_t comm, const struct braid_open *open)
{
	(void)link, (void)comm, (void)open;
	return offer_err;
}

static int open_offer(struct braid_comm *c, const struct braid_open *open)
{
	(void)open;
	offered = offer_err ? NULL : c;
	return offer_err;
}

static int setup_open(void **state)
{
	braid_comm_hooks.open_check = open_check;
	braid_comm_hooks.open_offer = open_offer;
	offer_err = 0;
	offered = NULL;
	return setup(state);
}

#define CASE_OPEN(f) cmocka_unit_test_setup_teardown(f, setup_open, teardown)

static int forge_open(uint32_t id)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .comm = id, .len = BRAID_OPEN_SIZE };
	uint8_t payload[BRAID_OPEN_SIZE] = { 0 };

	return null_forge(&pair, A, 0, &h, payload);
}

static void an_open_is_answered(void **state)
{
	(void)state;
	assert_int_equal(forge_open(100), 0);
	assert_non_null(offered);
	assert_int_equal(offered->id, 100);
	assert_false(offered->sender);
	braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
	assert_int_equal(next_frame(B, BRAID_F_OPENED).comm, 100);
}

static void an_open_without_a_listen_is_refused(void **state)
{
	(void)state;
	offer_err = -ENOENT;
	assert_int_equal(forge_open(100), 0);
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(next_frame(B, BRAID_F_REFUSED).comm, 100);
	assert_int_equal(pair.end[B]->msg.ncomms, 1);
	pass_frame(B, BRAID_F_REFUSED);		/* A has given up that comm: no effect */
}

static void an_open_of_a_connect_that_came_before_is_told_so(void **state)
{
	(void)state;
	offer_err = -EALREADY;
	assert_int_equal(forge_open(100), 0);
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(next_frame(B, BRAID_F_REFUSED).n, BRAID_HELLO_CROSSED);
	assert_int_equal(pair.end[B]->msg.ncomms, 1);
}

/* A peer sends OPEN frames without proof, and reads no answers. */
static void opens_without_proof_take_no_memory(void **state)
{
	unsigned i;

	(void)state;
	offer_err = -EACCES;
	for (i = 0; i < 2 * BRAID_REFUSALS_MAX && !forge_open(100 + 2 * i); i++)
		assert_int_equal(pair.end[B]->msg.ncomms, 1);
	assert_int_equal(i, BRAID_REFUSALS_MAX);
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(next_frame(B, BRAID_F_REFUSED).comm, 100);
	assert_int_equal(pair.end[B]->msg.ncomms, 1);
}

static void one_comm_too_many_is_refused(void **state)
{
	unsigned had = atomic_load(&pair.end[B]->msg.ncomms);

	(void)state;
	atomic_store(&pair.end[B]->msg.ncomms, BRAID_LINK_COMMS_MAX);
	assert_int_equal(forge_open(100), 0);
	assert_null(offered);
	atomic_store(&pair.end[B]->msg.ncomms, had);
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(next_frame(B, BRAID_F_REFUSED).n, BRAID_HELLO_NO_ROOM);
}

/* The first comm after a rest comes to a link that has given its memory back. */
static void an_open_is_answered_on_a_link_that_was_idle(void **state)
{
	(void)state;
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_deliver_all(&pair);
	for (unsigned e = 0; e < 2; e++) {
		struct braid_txq *q = &pair.end[e]->lane[0]->tx;

		q->f_acked = q->f_peer_acked = q->f_head;	/* as after any rest */
		braid_link_detach(pair.end[e]);
	}
	assert_int_equal(forge_open(100), 0);
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(pass_frame(B, BRAID_F_OPENED).comm, 100);
}

/* The end of a link fails its comms.  Receives of a comm made after that would wait for ever. */
static void an_open_read_before_the_link_ended_makes_no_comm(void **state)
{
	unsigned had = atomic_load(&pair.end[B]->msg.ncomms);

	(void)state;
	braid_link_fail(pair.end[B], -ENOMEM, "out of memory");
	assert_int_equal(forge_open(100), 0);
	assert_null(offered);
	assert_int_equal(pair.end[B]->msg.ncomms, had);
	assert_null(pair.end[B]->msg.refusals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_OPEN(an_open_is_answered),
		CASE_OPEN(an_open_without_a_listen_is_refused),
		CASE_OPEN(an_open_of_a_connect_that_came_before_is_told_so),
		CASE_OPEN(opens_without_proof_take_no_memory),
		CASE_OPEN(one_comm_too_many_is_refused),
		CASE_OPEN(an_open_is_answered_on_a_link_that_was_idle),
		CASE_OPEN(an_open_read_before_the_link_ended_makes_no_comm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
