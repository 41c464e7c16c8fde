/* SPDX-License-Identifier: BSD-3-Clause */
/* test_msg_control.c - control frames: acknowledgements that are due, and answers to OPEN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "core/proto/hello.h"
#include "tests/lib/comms.h"

/* Even a short last chunk is acknowledged at once, since its sender waits for that. */
static void every_chunk_is_acknowledged_at_the_first_idle_call(void **state)
{
	char *from = message(64 * K + 100, 3), *to = malloc(64 * K + 100);
	struct braid_req *r, *s;

	(void)state;
	braid_param.chunk = 4096;
	r = irecv(cr, to, 64 * K + 100, 0);
	s = isend(cs, from, 64 * K + 100, 0);
	for (int i = 0; i < 100 && !atomic_load(&r->done); i++) {
		done(s);
		done(r);
		null_deliver_all(&pair);
	}
	assert_int_equal(size_of(r), 64 * K + 100);
	braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
	null_deliver_all(&pair);
	assert_true(done(s));
	free(from);
	free(to);
}

/* The receiver has nothing more posted on this link, and only tests requests of other links. */
static void the_last_message_is_acknowledged_by_an_idle_call_on_another_link(void **state)
{
	char *from = message(20 * K, 1), *to = malloc(20 * K);
	struct braid_req *r, *s;

	(void)state;
	r = irecv(cr, to, 20 * K, 0);
	null_deliver_all(&pair);
	s = isend(cs, from, 20 * K, 0);
	assert_false(done(s));
	null_deliver_all(&pair);
	assert_int_equal(size_of(r), 20 * K);
	assert_no_frame(B);		/* it may go with what is posted next */
	braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
	while (null_deliver(&pair, B, 0))
		;
	assert_true(done(s));
	free(from);
	free(to);
}

/* An acknowledgement that comes too late for a frame half sent goes in a frame of its own. */
static void an_acknowledgement_is_not_lost_behind_a_frame_half_sent(void **state)
{
	struct null_config config = { .window = 512 * K, .held = true, .limit = 1000 };
	char *from = message(30 * K, 3), *to = malloc(30 * K);
	struct braid_comm *back_s, *back_r;
	struct braid_req *r, *s, *back;

	null_pair_fini(&pair);
	start(&config);
	null_comms(&pair, B, &back_s, &back_r);
	(void)state;
	make_large();
	r = irecv(cr, to, 30 * K, 1);
	assert_false(done(r));
	null_deliver_all(&pair);
	braid_param.eager = 0;
	s = isend(cs, from, 30 * K, 1);
	braid_param.eager = 64 * K;
	back = isend(back_s, from, 30 * K, 0);	/* from B: a part of it in its short wire */
	while (!atomic_load(&r->done)) {
		braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
		null_deliver(&pair, A, 0);
	}
	assert_int_equal(size_of(r), 30 * K);
	for (int i = 0; i < 100; i++) {		/* B calls, since it has a send; the wire drains */
		done(back);
		null_deliver(&pair, B, 0);
	}
	assert_true(done(s));
	free(from);
	free(to);
}

/* A send comm as connect() leaves it: OPEN is on its way. */
static void opening(uint8_t mac)
{
	cs->opened = false;
	memset(cs->opened_mac, mac, sizeof(cs->opened_mac));
}

static void an_answer_with_proof_opens_a_comm(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_OPENED, .comm = cs->id, .len = BRAID_OPEN_SIZE };
	struct braid_open open = { .listen_id = 1 };
	uint8_t payload[BRAID_OPEN_SIZE];

	(void)state;
	memset(open.mac, 7, sizeof(open.mac));
	braid_open_pack(&open, payload);
	opening(7);
	assert_int_equal(null_forge(&pair, B, 0, &h, payload), 0);
	assert_true(cs->opened);
	assert_int_equal(atomic_load(&cs->err), 0);
	opening(7);
	payload[39] ^= 1;			/* the last byte of the MAC */
	assert_int_equal(null_forge(&pair, B, 0, &h, payload), 0);
	assert_false(cs->opened);
	assert_int_equal(atomic_load(&cs->err), -EACCES);
}

static void a_comm_that_was_refused_fails(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_REFUSED, .comm = cs->id };

	(void)state;
	cs->opened = false;
	assert_int_equal(null_forge(&pair, B, 0, &h, NULL), 0);
	assert_int_equal(atomic_load(&cs->err), -ECONNREFUSED);
	assert_false(cs->opened);
	braid_comm_close(cs);
	assert_int_equal(pair.end[A]->msg.ncomms, 0);
}

static void a_connect_that_came_twice_is_told_so(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_REFUSED, .comm = cs->id, .n = BRAID_HELLO_CROSSED };

	(void)state;
	cs->opened = false;
	assert_int_equal(null_forge(&pair, B, 0, &h, NULL), 0);
	assert_int_equal(atomic_load(&cs->err), -EALREADY);
}

/* This end has given it up in the meantime, and nothing more will come for it. */
static void a_closed_comm_that_is_refused_is_forgotten(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_REFUSED, .comm = cs->id };

	(void)state;
	cs->opened = false;
	braid_comm_close(cs);
	assert_int_equal(pair.end[A]->msg.ncomms, 1);
	assert_int_equal(null_forge(&pair, B, 0, &h, NULL), 0);
	assert_int_equal(pair.end[A]->msg.ncomms, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_chunk_is_acknowledged_at_the_first_idle_call),
		CASE(the_last_message_is_acknowledged_by_an_idle_call_on_another_link),
		CASE(an_acknowledgement_is_not_lost_behind_a_frame_half_sent),
		CASE(an_answer_with_proof_opens_a_comm),
		CASE(a_comm_that_was_refused_fails),
		CASE(a_connect_that_came_twice_is_told_so),
		CASE(a_closed_comm_that_is_refused_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
