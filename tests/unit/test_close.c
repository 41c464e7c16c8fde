/* SPDX-License-Identifier: BSD-3-Clause */
/* test_close.c - close and cancel: what still arrives, and that memory is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/msg/open.h"
#include "tests/lib/comms.h"
#include "tests/lib/req.h"

/* The linker wraps this (-Wl,--wrap=braid_link_go): what another thread does as soon as it can. */
static void (*at_go)(struct braid_link *link);

void __wrap_braid_link_go(struct braid_link *link, unsigned n);
void __real_braid_link_go(struct braid_link *link, unsigned n);

void __wrap_braid_link_go(struct braid_link *link, unsigned n)
{
	__real_braid_link_go(link, n);
	if (at_go)
		at_go(link);
}

static void a_comm_is_freed_when_both_ends_sent_bye(void **state)
{
	(void)state;
	braid_comm_close(cs);
	pass_frame(A, BRAID_F_BYE);
	assert_int_equal(pair.end[A]->msg.ncomms, 1);
	assert_int_equal(pair.end[B]->msg.ncomms, 1);
	braid_comm_close(cr);
	assert_int_equal(pair.end[B]->msg.ncomms, 0);
	pass_frame(B, BRAID_F_BYE);
	assert_int_equal(pair.end[A]->msg.ncomms, 0);

	null_comms(&pair, A, &cs, &cr);		/* goodbyes that cross */
	braid_comm_close(cs);
	braid_comm_close(cr);
	pass_frame(A, BRAID_F_BYE);
	pass_frame(B, BRAID_F_BYE);
	assert_int_equal(pair.end[A]->msg.ncomms, 0);
	assert_int_equal(pair.end[B]->msg.ncomms, 0);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
	assert_int_equal(warn_count, 0);
}

static void messages_sent_before_a_goodbye_are_received(void **state)
{
	char to[16];
	struct braid_req *r;

	(void)state;
	assert_true(settled(isend(cs, "one", 4, 0)));
	assert_true(settled(isend(cs, "two", 4, 0)));
	braid_comm_close(cs);
	null_deliver_all(&pair);
	r = irecv(cr, to, sizeof(to), 0);
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to, "one");
	r = irecv(cr, to, sizeof(to), 0);
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to, "two");
	assert_int_equal(warn_count, 0);
	r = irecv(cr, to, sizeof(to), 0);	/* there is no third */
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	braid_comm_close(cr);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
}

/* The receiver closes as soon as it has the whole message, before it has sent an acknowledgement. */
static void a_goodbye_finds_the_send_acknowledged_on_every_lane(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *s = isend(cs, from, BIG, 0), *r = irecv(cr, to, BIG, 0);
	struct braid_hdr h;
	bool ret;

	(void)state;
	pass_frame(A, BRAID_F_WANT);
	braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
	pass_frame(B, BRAID_F_CREDIT);
	for (int i = 0; i < 1000 && !atomic_load(&r->done); i++) {
		req_test(s, &ret, NULL);
		for (unsigned lane = 0; lane < 3; lane++)
			null_deliver(&pair, A, lane);
	}
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_false(atomic_load(&s->done));
	braid_comm_close(cr);
	do
		assert_true(null_peek(&pair, B, 0, &h));
	while (null_deliver(&pair, B, 0) && h.type != BRAID_F_BYE);
	assert_true(done(s));
	assert_int_equal(warn_count, 0);
	braid_comm_close(cs);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
	free(from);
	free(to);
}

static void closing_takes_the_memory_away_but_tears_no_frame(void **state)
{
	struct braid_comm *other_s, *other_r, *a = cs, *b = cr;

	(void)state;
	null_comms(&pair, A, &other_s, &other_r);
	for (size_t cut = 1; cut < 100000; cut += 7919) {
		char *from = message(BIG, 3), *to = malloc(BIG);
		struct braid_req *r, *s;

		null_comms(&pair, A, &cs, &cr);
		r = irecv(cr, to, BIG, 0);
		s = isend(cs, from, BIG, 0);
		for (int i = 0; i < 3; i++) {
			done(s);
			done(r);
			null_deliver_some(&pair, A, 0, 0);
			null_deliver(&pair, B, 0);
		}
		null_deliver_some(&pair, A, 0, cut);
		braid_comm_close(cs);
		memset(from, 0, BIG);
		free(from);
		null_deliver_some(&pair, A, 0, cut);
		braid_comm_close(cr);
		memset(to, 0, BIG);
		free(to);
		null_settle(&pair);
		assert_int_equal(pair.end[A]->msg.ncomms, 2);
		assert_int_equal(pair.end[B]->msg.ncomms, 2);
		cs = other_s;
		cr = other_r;
		one_message(100, 0);
	}
	cs = a;
	cr = b;
	one_message(BIG, 0);
}

static void a_receive_cancelled_in_the_middle_is_not_written_any_more(void **state)
{
	char *from = message(BIG, 3), *to = malloc(BIG);
	struct braid_mr mr = { .dev = cr->link->key.dev, .data = to, .size = BIG }, *mrs = &mr, other = mr;
	size_t size = BIG;
	int tag = 0;
	void *data = to;
	struct braid_req *r, *s = isend(cs, from, BIG, 0);
	int told;

	(void)state;
	assert_int_equal(braid_comm_irecv(cr, 1, &data, &size, &tag, &mrs, &r), 0);
	for (int i = 0; i < 4; i++) {
		done(s);
		done(r);
		null_deliver(&pair, B, 0);
		for (unsigned l = 0; l < 3; l++)
			null_deliver_some(&pair, A, l, 1000);
	}
	braid_comm_cancel(cr, &other);		/* not that one */
	assert_int_equal(error_of(r), 0);
	braid_comm_cancel(cr, &mr);
	free(to);				/* a sanitizer sees the rest */
	null_settle(&pair);
	assert_int_equal(error_of(r), -ECANCELED);
	assert_int_equal(atomic_load(&cs->err), -EREMOTEIO);
	assert_int_equal(warn_count, 0);	/* the peer has called nothing yet; this end canceled */
	told = error_of(s);			/* 0: all its bytes had left before */
	assert_int_equal(warn_count, told ? 1 : 0);
	close_both();
	free(from);
}

static unsigned polls;

static int counted_poll(struct braid_lane *lane)
{
	polls++;
	return null_transport.poll(lane);
}

/* Deregistering memory that no request uses must not poll lanes, which may be slow. */
static void unused_memory_is_taken_back_without_a_poll(void **state)
{
	static struct braid_transport counted;
	char to[64];
	struct braid_mr mr = { .data = to, .size = sizeof(to) }, *mrs = &mr, other = mr;
	size_t size = sizeof(to);
	int tag = 0;
	void *data = to;
	struct braid_req *r;

	(void)state;
	counted = null_transport;
	counted.poll = counted_poll;
	pair.end[B]->lane[0]->tr = &counted;
	assert_int_equal(braid_comm_irecv(cr, 1, &data, &size, &tag, &mrs, &r), 0);
	polls = 0;
	braid_comm_cancel(cr, &other);
	assert_int_equal(polls, 0);
	braid_comm_cancel(cr, &mr);		/* the peer must learn of it at once */
	assert_int_not_equal(polls, 0);
	assert_int_equal(error_of(r), -ECANCELED);
	pair.end[B]->lane[0]->tr = &null_transport;
	null_settle(&pair);
	close_both();
}

static unsigned hooks;

static void count_hook(const struct braid_link *link)
{
	(void)link;
	hooks++;
}

static void revoke(struct braid_link *link)
{
	link->lanes.rkey_epoch++;
}

/* The hook takes braid_svc.lock, which connect() holds when it closes a comm. */
static void a_close_does_not_report_what_another_thread_revoked(void **state)
{
	struct braid_comm_hooks standing = braid_comm_hooks;

	(void)state;
	hooks = 0;
	braid_comm_hooks.revoked = count_hook;
	at_go = revoke;
	braid_comm_close(cs);
	at_go = NULL;
	assert_int_equal(hooks, 0);
	braid_comm_hooks = standing;
	braid_comm_close(cr);
	null_settle(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_comm_is_freed_when_both_ends_sent_bye),
		CASE(messages_sent_before_a_goodbye_are_received),
		CASE_LANES(a_goodbye_finds_the_send_acknowledged_on_every_lane),
		CASE(closing_takes_the_memory_away_but_tears_no_frame),
		CASE_LANES(a_receive_cancelled_in_the_middle_is_not_written_any_more),
		CASE(unused_memory_is_taken_back_without_a_poll),
		CASE(a_close_does_not_report_what_another_thread_revoked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
