/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_comm.c - single cases of matching, windows, leaving and failing, frame by frame.
 *
 * test_match.c has every interleaving there is; here each case is one that somebody thought of,
 * with the frames that must be on the wire.  Frames are held until a case delivers them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/link/lane_io.h"
#include "core/link/refusal.h"
#include "core/setup/service.h"
#include "tests/lib/null.h"

enum { K = 1024, BIG = 200 * K, A = 0, B = 1 };		/* A sends to B, mostly */

static struct null_pair p;
static struct braid_comm *cs, *cr;	/* send comm at A, receive comm at B */
static struct braid_params saved;
static int offer_err;			/* what braid_listen_offer() says */
static struct braid_comm *offered;

int __wrap_braid_listen_check(const struct braid_link *link, uint32_t comm,
			      const struct braid_open *open);
int __wrap_braid_listen_check(const struct braid_link *link, uint32_t comm,
			      const struct braid_open *open)
{
	(void)link, (void)comm, (void)open;
	return offer_err;
}

int __wrap_braid_listen_offer(struct braid_comm *c, const struct braid_open *open);
int __wrap_braid_listen_offer(struct braid_comm *c, const struct braid_open *open)
{
	(void)open;
	offered = offer_err ? NULL : c;
	return offer_err;
}

static void start(unsigned lanes, uint64_t window)
{
	struct null_config config = { .lanes = lanes, .window = window, .held = true };

	null_pair_init(&p, &config);
	null_comms(&p, A, &cs, &cr);
}

static int setup(void **state)
{
	(void)state;
	saved = braid_param;
	offer_err = 0;
	offered = NULL;
	start(1, 512 * K);
	return 0;
}

static int setup_lanes(void **state)
{
	(void)state;
	saved = braid_param;
	start(3, 512 * K);
	return 0;
}

static int setup_floor(void **state)
{
	(void)state;
	saved = braid_param;
	start(1, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	null_pair_fini(&p);
	braid_param = saved;
	braid_pool_trim();
	return 0;
}

/* --- small words for what follows ---------------------------------------------------------- */

static char *message(size_t size, char seed)
{
	char *m = malloc(size ? size : 1);

	for (size_t i = 0; i < size; i++)
		m[i] = (char)(seed + (char)(i * 7) + (char)(i >> 8));
	return m;
}

static struct braid_req *isend(struct braid_comm *c, const void *data, size_t size, int tag)
{
	struct braid_req *req;

	assert_int_equal(braid_comm_isend(c, data, size, tag, NULL, &req), 0);
	return req;
}

static struct braid_req *irecv(struct braid_comm *c, void *data, size_t size, int tag)
{
	struct braid_req *req;

	assert_int_equal(braid_comm_irecv(c, 1, &data, &size, &tag, NULL, &req), 0);
	return req;
}

static bool done(struct braid_req *req)
{
	bool ret;

	assert_int_equal(braid_comm_test(req, &ret, NULL), 0);
	return ret;
}

/* Is it done once its caller has waited a little, so that no more of a burst is expected? */
static bool settled(struct braid_req *req)
{
	for (int i = 0; i < 4 && !atomic_load(&req->done); i++)
		done(req);
	return done(req);
}

static int error_of(struct braid_req *req)
{
	bool ret;

	return braid_comm_test(req, &ret, NULL);
}

static int size_of(struct braid_req *req)
{
	int size[BRAID_RECVS_MAX];
	bool ret;

	assert_int_equal(braid_comm_test(req, &ret, size), 0);
	assert_true(ret);
	return size[0];
}

/* The next frame from that end on home is of that type; its header. */
static struct braid_hdr next(unsigned from, enum braid_frame type)
{
	struct braid_hdr h = { 0 };

	if (!null_peek(&p, from, 0, &h))
		fail_msg("no frame from end %u where a %s was due", from, braid_frame_name(type));
	if (h.type != type)
		fail_msg("a %s frame from end %u where a %s was due", braid_frame_name(h.type),
			 from, braid_frame_name(type));
	return h;
}

static struct braid_hdr pass(unsigned from, enum braid_frame type)
{
	struct braid_hdr h = next(from, type);

	assert_int_equal(null_deliver(&p, from, 0), 1);
	return h;
}

static void assert_no_frame(unsigned from)
{
	struct braid_hdr h;

	if (null_peek(&p, from, 0, &h))
		fail_msg("a %s frame from end %u", braid_frame_name(h.type), from);
}

/* Everybody calls and everything arrives, without the service thread. */
static void run(struct braid_req *a, struct braid_req *b)
{
	bool more = true;

	for (int i = 0; i < 20 || (more && i < 2000); i++) {
		bool ret;

		more = (a && !atomic_load(&a->done)) || (b && !atomic_load(&b->done));
		if (a && !atomic_load(&a->done))
			braid_comm_test(a, &ret, NULL);
		if (b && !atomic_load(&b->done))
			braid_comm_test(b, &ret, NULL);
		braid_link_progress(p.end[A], cs, NULL);
		braid_link_progress(p.end[B], cr, NULL);
		null_deliver_all(&p);
	}
}

static void one_message(size_t size, int tag)
{
	char *from = message(size, (char)tag), *to = calloc(1, size + 1);
	struct braid_req *r = irecv(cr, to, size, tag), *s = isend(cs, from, size, tag);

	run(s, r);
	assert_int_equal(size_of(r), size);
	assert_true(done(s));
	assert_memory_equal(from, to, size);
	free(from);
	free(to);
}

static void close_both(void)
{
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&p);
	assert_null(null_not_idle(&p));
}

/* --- small, large, empty ------------------------------------------------------------------- */

static void a_small_message_goes_at_once_and_is_retired(void **state)
{
	char to[8];
	struct braid_req *s = isend(cs, "hello", 6, 3), *r;

	(void)state;
	assert_true(done(s));			/* copied, and handed over */
	assert_int_equal(pass(A, BRAID_F_EAGER).flags, 0);
	r = irecv(cr, to, sizeof(to), 3);
	assert_int_equal(size_of(r), 6);
	assert_string_equal(to, "hello");
	braid_link_try_flush_control(p.end[B]);
	assert_int_equal(pass(B, BRAID_F_RETIRE).n, 1);
	assert_int_equal(p.end[A]->shared_out, 0);
	close_both();
	assert_int_equal(null_warns, 0);
}

/* Did that one leave before it was booked? */
static bool leads(size_t size, int tag)
{
	unsigned before = null_posts;

	one_message(size, tag);
	return null_posts != before;
}

static void a_message_leads_if_its_caller_waits_and_its_header_says_nothing_new(void **state)
{
	char to[2][8];
	struct braid_req *r, *s[2];
	uint64_t window = p.end[A]->tx_window;
	unsigned before;

	(void)state;
	assert_false(leads(8, 3));		/* another tag than before */
	assert_true(leads(8, 3));
	for (unsigned i = 0; i <= BRAID_FLOOR / BRAID_COPY_MAX; i++)
		assert_true(leads(BRAID_COPY_MAX, 3));
	assert_true(p.end[A]->shared_out > 0);	/* of the window of all */
	p.end[A]->tx_window = p.end[A]->shared_out;
	assert_false(leads(BRAID_COPY_MAX, 3));
	p.end[A]->tx_window = window;
	assert_false(leads(BRAID_COPY_MAX + 1, 3));
	assert_false(leads(100 * K, 3));
	r = irecv(cr, to[0], sizeof(to[0]), 3);
	null_settle(&p);			/* it gets a credit, after a large one */
	before = null_posts;
	s[0] = isend(cs, "met", 4, 3);
	assert_int_equal(null_posts, before);
	run(s[0], r);
	assert_int_equal(size_of(r), 4);
	assert_true(done(s[0]));
	assert_true(leads(8, 3));
	assert_false(leads(0, 3));
	before = null_posts;
	s[0] = isend(cs, "one", 4, 3);
	s[1] = isend(cs, "two", 4, 3);		/* a burst goes together */
	assert_int_equal(null_posts, before + 1);
	for (unsigned i = 0; i < 2; i++) {
		r = irecv(cr, to[i], sizeof(to[i]), 3);
		run(s[i], r);
		assert_int_equal(size_of(r), 4);
		assert_true(done(s[i]));
	}
	assert_string_equal(to[0], "one");
	assert_string_equal(to[1], "two");
	braid_param.eager = 0;
	assert_false(leads(8, 3));
	close_both();
	assert_int_equal(null_warns, 0);
}

static void an_uncopied_eager_message_is_done_when_acknowledged(void **state)
{
	char *from = message(20 * K, 1), *to = malloc(20 * K);
	struct braid_req *r = irecv(cr, to, 20 * K, 0), *s = isend(cs, from, 20 * K, 0);

	(void)state;
	assert_false(done(s));
	pass(A, BRAID_F_EAGER);
	assert_int_equal(size_of(r), 20 * K);
	assert_memory_equal(from, to, 20 * K);
	assert_false(done(s));
	/* The sender waits for it, so it goes alone at the first call that finds nothing to do. */
	braid_link_progress(p.end[B], cr, NULL);
	while (null_deliver(&p, B, 0))
		;
	assert_true(done(s));
	free(from);
	free(to);
}

static void a_large_message_wants_a_credit_and_starts(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *s = isend(cs, from, BIG, 9), *r;
	struct braid_hdr h;

	(void)state;
	h = pass(A, BRAID_F_WANT);
	assert_true(h.seq == 0 && h.tag == 9 && h.size == BIG);
	assert_no_frame(A);
	r = irecv(cr, to, BIG + 5, 9);
	assert_false(done(r));			/* and with that, urgent as it is: */
	h = pass(B, BRAID_F_CREDIT);
	assert_true(h.rseq == 0 && h.tag == 9 && h.size == BIG + 5);
	assert_false(done(s));
	h = pass(A, BRAID_F_START);
	assert_true(h.seq == 0 && h.rseq == 0 && h.size == BIG);
	h = next(A, BRAID_F_CHUNK);
	assert_true(h.offset == 0 && h.size == BIG && h.len % BRAID_CHUNK_ALIGN == 0);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_true(done(s));
	assert_memory_equal(from, to, BIG);
	free(from);
	free(to);
	close_both();
}

/* After a large one, receives announce themselves. */
static void a_credit_that_came_first_is_used_without_a_word(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *r, *s;
	struct braid_hdr h;

	(void)state;
	one_message(BIG, 1);
	null_settle(&p);
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	assert_int_equal(pass(B, BRAID_F_CREDIT).rseq, 1);
	s = isend(cs, from, BIG, 1);
	h = pass(A, BRAID_F_START);
	assert_true(h.seq == 1 && h.rseq == 1);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_true(done(s));

	r = irecv(cr, to, BIG, 1);		/* and by a small one */
	assert_false(done(r));
	pass(B, BRAID_F_CREDIT);
	s = isend(cs, from, 100, 1);
	h = pass(A, BRAID_F_EAGER);
	assert_int_equal(h.flags, BRAID_FLAG_CREDITED);
	assert_int_equal(h.rseq, 2);
	assert_int_equal(size_of(r), 100);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

static void empty_messages_match_like_any(void **state)
{
	struct braid_req *r, *s;

	(void)state;
	s = isend(cs, NULL, 0, 4);
	assert_true(done(s));
	r = irecv(cr, NULL, 0, 4);
	run(NULL, r);
	assert_int_equal(size_of(r), 0);
	r = irecv(cr, NULL, 0, 4);
	s = isend(cs, NULL, 0, 4);
	run(s, r);
	assert_int_equal(size_of(r), 0);
	assert_true(done(s));
	close_both();
}

/* Its header costs window too; without any it goes by credit, and there is nothing to carry. */
static void an_empty_message_without_window_arrives(void **state)
{
	char to[8192], *from = message(8128, 1);
	struct braid_req *s[3], *r;

	(void)state;
	s[0] = isend(cs, from, 8128, 0);
	s[1] = isend(cs, from, 8128, 0);	/* with their headers all that the floor has */
	s[2] = isend(cs, NULL, 0, 0);
	run(s[2], NULL);
	assert_true(done(s[0]) && done(s[1]));
	assert_false(done(s[2]));
	for (unsigned i = 0; i < 3; i++) {
		r = irecv(cr, to, sizeof(to), 0);
		run(s[2], r);
		assert_int_equal(size_of(r), i < 2 ? 8128 : 0);
	}
	assert_true(done(s[2]));
	assert_int_equal(null_warns, 0);
	free(from);
	close_both();
}

/* --- groups and tags ----------------------------------------------------------------------- */

static void a_group_takes_its_messages_in_any_order_of_tags(void **state)
{
	char to[4][16] = { "" };
	void *data[4] = { to[0], to[1], to[2], to[3] };
	size_t sizes[4] = { 16, 16, 16, 16 };
	int tags[4] = { 7, 5, 7, 6 };
	int got[BRAID_RECVS_MAX];
	struct braid_req *r;
	bool is_done;

	(void)state;
	assert_true(settled(isend(cs, "five", 5, 5)));
	assert_int_equal(null_deliver_all(&p), 1);
	assert_int_equal(braid_comm_irecv(cr, 4, data, sizes, tags, NULL, &r), 0);
	assert_string_equal(to[1], "five");
	assert_true(settled(isend(cs, "first seven", 12, 7)));
	assert_true(settled(isend(cs, "six", 4, 6)));
	null_deliver_all(&p);
	assert_false(done(r));
	assert_true(settled(isend(cs, "7b", 3, 7)));
	null_deliver_all(&p);
	assert_int_equal(braid_comm_test(r, &is_done, got), 0);
	assert_true(is_done);
	assert_string_equal(to[0], "first seven");
	assert_string_equal(to[2], "7b");
	assert_string_equal(to[3], "six");
	assert_true(got[0] == 12 && got[1] == 5 && got[2] == 3 && got[3] == 4);
	null_settle(&p);
	close_both();
}

static void requests_may_be_tested_in_any_order(void **state)
{
	char to[32][8];
	struct braid_req *r[32], *s[32];

	(void)state;
	for (int i = 0; i < 32; i++) {
		r[i] = irecv(cr, to[i], 8, 1);
		s[i] = isend(cs, &i, sizeof(i), 1);
	}
	for (int i = 31; i >= 0; i--)
		run(s[i], r[i]);
	for (int i = 31; i >= 0; i--) {
		assert_true(done(s[i]));
		assert_int_equal(size_of(r[i]), sizeof(int));
		assert_memory_equal(to[i], &i, sizeof(i));
	}
}

static void more_requests_than_a_comm_has_must_wait(void **state)
{
	struct braid_req *s[BRAID_SLOTS], *r[BRAID_SLOTS];
	char to[BRAID_SLOTS];

	(void)state;
	for (unsigned i = 0; i < BRAID_SLOTS; i++) {
		s[i] = isend(cs, "x", 1, 0);
		assert_non_null(s[i]);
	}
	assert_null(isend(cs, "x", 1, 0));
	for (unsigned i = 0; i < BRAID_SLOTS; i++)
		assert_true(settled(s[i]));
	assert_null(isend(cs, "x", 1, 0));	/* they have met nothing yet */
	for (unsigned i = 0; i < BRAID_SLOTS; i++)
		assert_non_null(r[i] = irecv(cr, &to[i], 1, 1));
	assert_null(irecv(cr, to, 1, 1));
	null_deliver_all(&p);
	assert_int_equal(null_warns, 0);
	assert_int_equal(p.end[B]->um_bytes, BRAID_SLOTS * (1 + BRAID_UNEXP_COST) - BRAID_FLOOR);
	(void)r;
}

/* --- frames that cross --------------------------------------------------------------------- */

/* Make the comm one whose receives give credits, and nothing is left of that. */
static void make_large(void)
{
	one_message(BIG, 1);
	null_settle(&p);
	assert_no_frame(A);
	assert_no_frame(B);
}

static void an_eager_message_that_crosses_a_credit_uses_it_up(void **state)
{
	char to[2][64];
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to[0], 64, 1);
	assert_false(done(r));
	next(B, BRAID_F_CREDIT);
	s = isend(cs, "crossed", 8, 1);
	assert_true(settled(s));
	assert_int_equal(pass(A, BRAID_F_EAGER).flags, 0);
	pass(B, BRAID_F_CREDIT);
	assert_int_equal(size_of(r), 8);
	assert_int_equal(p.end[A]->shared_out + cs->eager_out, 0);
	braid_link_try_flush_control(p.end[B]);
	while (null_waiting(&p, B, 0))
		assert_int_not_equal(pass(B, BRAID_F_ACK).type, BRAID_F_RETIRE);
	/* The next one must not think that it still has a credit. */
	s = isend(cs, "after", 6, 1);
	assert_true(settled(s));
	assert_int_equal(pass(A, BRAID_F_EAGER).flags, 0);
	r = irecv(cr, to[1], 64, 1);
	assert_int_equal(size_of(r), 6);
	assert_string_equal(to[1], "after");
	null_settle(&p);
	close_both();
}

static void a_want_that_crosses_a_credit_gets_no_second_one(void **state)
{
	char *from = message(BIG, 5), *to = malloc(BIG);
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	s = isend(cs, from, BIG, 1);
	pass(A, BRAID_F_WANT);
	pass(B, BRAID_F_CREDIT);
	assert_false(done(r));
	assert_no_frame(B);
	assert_false(done(s));
	assert_int_equal(pass(A, BRAID_F_START).seq, 1);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

static void a_retirement_is_told_before_any_later_credit(void **state)
{
	char small[8], *from = message(BIG, 6), *to = malloc(BIG);
	struct braid_req *r[2], *s[2];

	(void)state;
	r[0] = irecv(cr, small, 8, 1);
	r[1] = irecv(cr, to, BIG, 1);
	s[0] = isend(cs, "small", 6, 1);
	s[1] = isend(cs, from, BIG, 1);
	pass(A, BRAID_F_EAGER);
	pass(A, BRAID_F_WANT);
	assert_int_equal(size_of(r[0]), 6);
	assert_false(done(r[1]));
	pass(B, BRAID_F_RETIRE);
	assert_int_equal(pass(B, BRAID_F_CREDIT).rseq, 1);
	run(s[1], r[1]);
	assert_int_equal(size_of(r[1]), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s[0]) && done(s[1]));
	free(from);
	free(to);
	close_both();
}

static void a_chunk_may_overtake_its_start(void **state)
{
	char *from = message(BIG, 8), *to = malloc(BIG);
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	null_deliver_all(&p);
	s = isend(cs, from, BIG, 1);
	for (int i = 0; i < 10; i++) {
		bool ret;

		braid_comm_test(s, &ret, NULL);
		for (unsigned l = 1; l < 3; l++) {
			while (null_deliver(&p, A, l) > 0)
				;
		}
	}
	next(A, BRAID_F_START);			/* has not moved */
	assert_true(p.end[B]->lane[1]->rx_frames > 0);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

/* The receiver leaves as soon as it has all of it, and its goodbye is the first that it says. */
static void a_goodbye_finds_the_send_acknowledged_on_every_lane(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *s = isend(cs, from, BIG, 0), *r = irecv(cr, to, BIG, 0);
	struct braid_hdr h;
	bool ret;

	(void)state;
	pass(A, BRAID_F_WANT);
	braid_link_progress(p.end[B], cr, NULL);
	pass(B, BRAID_F_CREDIT);
	for (int i = 0; i < 1000 && !atomic_load(&r->done); i++) {
		braid_comm_test(s, &ret, NULL);
		for (unsigned lane = 0; lane < 3; lane++)
			null_deliver(&p, A, lane);
	}
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_false(atomic_load(&s->done));
	braid_comm_close(cr);
	do
		assert_true(null_peek(&p, B, 0, &h));
	while (null_deliver(&p, B, 0) && h.type != BRAID_F_BYE);
	assert_true(done(s));
	assert_int_equal(null_warns, 0);
	braid_comm_close(cs);
	null_settle(&p);
	assert_null(null_not_idle(&p));
	free(from);
	free(to);
}

/* --- windows ------------------------------------------------------------------------------- */

static void without_window_a_message_goes_by_credit(void **state)
{
	char *from = message(8 * K, 1), *to = malloc(8 * K);
	struct braid_req *s[3], *r;

	(void)state;
	for (int i = 0; i < 3; i++)
		s[i] = isend(cs, from, 8000, 0);
	run(s[2], NULL);
	for (int i = 0; i < 2; i++)
		assert_true(done(s[i]));	/* in the floor of 16 KiB */
	assert_false(done(s[2]));
	for (int i = 0; i < 3; i++) {
		r = irecv(cr, to, 8000, 0);
		run(s[2], r);
		assert_int_equal(size_of(r), 8000);
		assert_memory_equal(from, to, 8000);
		memset(to, 0, 8000);
	}
	assert_true(done(s[2]));
	free(from);
	free(to);
	close_both();
}

static void a_comm_whose_receiver_posts_nothing_holds_up_no_other(void **state)
{
	struct braid_comm *other_s, *other_r, *mine_s = cs, *mine_r = cr;
	char *from = message(BIG, 1);
	unsigned sent = 0;

	(void)state;
	null_comms(&p, A, &other_s, &other_r);
	/* As much as goes, small and large, and nobody takes it. */
	for (unsigned i = 0; i < 200; i++) {
		struct braid_req *s = isend(other_s, from, i % 8 ? 8 * K : BIG, 0);

		sent += s != NULL;
		null_deliver_all(&p);
		braid_link_try_flush_control(p.end[B]);
		null_deliver_all(&p);
	}
	assert_true(sent > 100);
	assert_true(p.end[A]->shared_out > 500 * K);
	cs = mine_s;
	cr = mine_r;
	for (int i = 0; i < 50; i++) {
		one_message(i % 2 ? 100 : 20 * K, 0);
		one_message(BIG, 0);
	}
	free(from);
}

static void the_window_comes_back_with_the_messages(void **state)
{
	char *from = message(60 * K, 1), *to = malloc(60 * K);

	(void)state;
	for (int i = 0; i < 100; i++) {		/* far more than the window, met at once */
		struct braid_req *s = isend(cs, from, 60 * K, 0), *r;

		null_deliver_all(&p);
		r = irecv(cr, to, 60 * K, 0);
		run(s, r);
		assert_int_equal(size_of(r), 60 * K);
		assert_true(done(s));
	}
	null_settle(&p);
	assert_int_equal(p.end[A]->shared_out, 0);
	assert_int_equal(p.end[B]->um_bytes, 0);
	free(from);
	free(to);
	close_both();
}

/* --- sizes that do not fit ----------------------------------------------------------------- */

static void assert_oversize(struct braid_req *s, struct braid_req *r, const char *to, size_t room,
			    const char *sizes, const char *rooms)
{
	unsigned warns = null_warns;

	run(NULL, NULL);
	assert_int_equal(error_of(r), -EMSGSIZE);
	assert_int_equal(atomic_load(&cs->err), -EMSGSIZE);
	s = isend(cs, "x", 1, 0);
	assert_int_equal(error_of(s), -EMSGSIZE);
	assert_int_equal(warns <= 2 && null_warns == 2, 1);	/* one at each end */
	assert_non_null(strstr(null_warn, sizes));
	assert_non_null(strstr(null_warn, rooms));
	for (size_t i = 0; i < room; i++)
		assert_int_equal(to[i], 0x55);
	null_warns_clear();
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&p);
	assert_int_equal(null_warns, 0);
	null_comms(&p, A, &cs, &cr);
	one_message(BIG, 0);			/* the link is as good as ever */
}

static void a_message_larger_than_its_receive_fails_both_ends_and_writes_nothing(void **state)
{
	char *from = message(BIG, 1), *to = malloc(BIG);
	struct braid_req *s, *r;

	(void)state;
	memset(to, 0x55, BIG);
	r = irecv(cr, to, 99, 0);		/* eager, receive first */
	s = isend(cs, from, 100, 0);
	assert_oversize(s, r, to, BIG, "100", "99");

	s = isend(cs, from, 100, 0);		/* eager, message first */
	run(NULL, NULL);
	r = irecv(cr, to, 99, 0);
	assert_oversize(s, r, to, BIG, "100", "99");

	r = irecv(cr, to, BIG - 1, 0);		/* large, receive first */
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "204799");

	s = isend(cs, from, BIG, 0);		/* large, message first */
	run(NULL, NULL);
	r = irecv(cr, to, BIG - 1, 0);
	assert_oversize(s, r, to, BIG, "204800", "204799");

	one_message(BIG, 0);			/* large, credit known */
	r = irecv(cr, to, 50, 0);
	assert_false(done(r));
	run(NULL, NULL);
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "50");

	make_large();				/* large, credit crosses */
	r = irecv(cr, to, 50, 0);
	assert_false(done(r));
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "50");
	free(from);
	free(to);
}

/* --- leaving ------------------------------------------------------------------------------- */

static void a_comm_is_gone_when_both_said_goodbye(void **state)
{
	(void)state;
	braid_comm_close(cs);
	pass(A, BRAID_F_BYE);
	assert_int_equal(p.end[A]->ncomms, 1);
	assert_int_equal(p.end[B]->ncomms, 1);
	braid_comm_close(cr);
	assert_int_equal(p.end[B]->ncomms, 0);
	pass(B, BRAID_F_BYE);
	assert_int_equal(p.end[A]->ncomms, 0);

	null_comms(&p, A, &cs, &cr);		/* goodbyes that cross */
	braid_comm_close(cs);
	braid_comm_close(cr);
	pass(A, BRAID_F_BYE);
	pass(B, BRAID_F_BYE);
	assert_int_equal(p.end[A]->ncomms, 0);
	assert_int_equal(p.end[B]->ncomms, 0);
	null_settle(&p);
	assert_null(null_not_idle(&p));
	assert_int_equal(null_warns, 0);
}

static void messages_sent_before_a_goodbye_are_received(void **state)
{
	char to[16];
	struct braid_req *r;

	(void)state;
	assert_true(settled(isend(cs, "one", 4, 0)));
	assert_true(settled(isend(cs, "two", 4, 0)));
	braid_comm_close(cs);
	null_deliver_all(&p);
	r = irecv(cr, to, sizeof(to), 0);
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to, "one");
	r = irecv(cr, to, sizeof(to), 0);
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to, "two");
	assert_int_equal(null_warns, 0);
	r = irecv(cr, to, sizeof(to), 0);	/* there is no third */
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(null_warns, 1);
	braid_comm_close(cr);
	null_settle(&p);
	assert_null(null_not_idle(&p));
}

static void a_request_that_waits_for_a_peer_that_left_fails_and_says_so(void **state)
{
	char to[16], *from = message(BIG, 0);
	struct braid_req *r = irecv(cr, to, sizeof(to), 0), *s;

	(void)state;
	braid_comm_close(cs);
	run(NULL, NULL);
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(null_warns, 1);
	braid_comm_close(cr);
	null_settle(&p);

	null_comms(&p, A, &cs, &cr);
	s = isend(cs, from, BIG, 0);
	braid_comm_close(cr);
	run(NULL, NULL);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(null_warns, 2);	/* once a link, and this end's is another one */
	braid_comm_close(cs);
	null_settle(&p);
	assert_null(null_not_idle(&p));

	null_comms(&p, A, &cs, &cr);
	braid_comm_close(cr);
	run(NULL, NULL);
	for (int i = 0; i < BRAID_SLOTS; i++)
		assert_non_null(s = isend(cs, "x", 1, 0));
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &r), 0);
	assert_null(r);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &s), -EREMOTEIO);
	assert_int_equal(null_warns, 2);	/* as before */
	free(from);
}

/* NCCL expects isend and irecv to take a post, and the error from test(). */
static void a_comm_that_failed_takes_posts_until_test_has_said_so(void **state)
{
	char to[3][16];
	void *data[] = { to[0], to[1], to[2] };
	size_t size[] = { 16, 16, 16 };
	int tag[] = { 1, 2, 3 };
	struct braid_req *s, *r, *group;

	(void)state;
	for (int i = 0; i < BRAID_SLOTS; i++) {	/* each slot holds a message that meets none */
		s = isend(cs, "x", 1, 0);
		assert_non_null(s);
		null_settle(&p);
		assert_true(settled(s));
	}
	assert_null(isend(cs, "x", 1, 0));
	braid_comm_fail(cs, -EREMOTEIO);
	s = isend(cs, "x", 1, 0);
	assert_non_null(s);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &s), -EREMOTEIO);

	r = irecv(cr, to[0], sizeof(to[0]), 9);
	braid_comm_fail(cr, -EREMOTEIO);
	assert_int_equal(braid_comm_irecv(cr, 3, data, size, tag, NULL, &group), 0);
	assert_non_null(group);
	assert_int_equal(error_of(group), -EREMOTEIO);
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(braid_comm_irecv(cr, 3, data, size, tag, NULL, &group), -EREMOTEIO);
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&p);
	assert_null(null_not_idle(&p));
}

static void closing_takes_the_memory_away_but_tears_no_frame(void **state)
{
	struct braid_comm *other_s, *other_r, *a = cs, *b = cr;

	(void)state;
	null_comms(&p, A, &other_s, &other_r);
	for (size_t cut = 1; cut < 100000; cut += 7919) {
		char *from = message(BIG, 3), *to = malloc(BIG);
		struct braid_req *r, *s;

		null_comms(&p, A, &cs, &cr);
		r = irecv(cr, to, BIG, 0);
		s = isend(cs, from, BIG, 0);
		for (int i = 0; i < 3; i++) {
			done(s);
			done(r);
			null_deliver_some(&p, A, 0, 0);
			null_deliver(&p, B, 0);
		}
		null_deliver_some(&p, A, 0, cut);
		braid_comm_close(cs);
		memset(from, 0, BIG);
		free(from);
		null_deliver_some(&p, A, 0, cut);
		braid_comm_close(cr);
		memset(to, 0, BIG);
		free(to);
		null_settle(&p);
		assert_int_equal(p.end[A]->ncomms, 2);
		assert_int_equal(p.end[B]->ncomms, 2);
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
	struct braid_mr mr = { .comm = cr, .data = to, .size = BIG }, *mrs = &mr, other = mr;
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
		null_deliver(&p, B, 0);
		for (unsigned l = 0; l < 3; l++)
			null_deliver_some(&p, A, l, 1000);
	}
	braid_comm_cancel(cr, &other);		/* not that one */
	assert_int_equal(error_of(r), 0);
	braid_comm_cancel(cr, &mr);
	free(to);				/* a sanitizer sees the rest */
	null_settle(&p);
	assert_int_equal(error_of(r), -ECANCELED);
	assert_int_equal(atomic_load(&cs->err), -EREMOTEIO);
	assert_int_equal(null_warns, 0);	/* nobody has asked at the peer; here it was wanted */
	told = error_of(s);			/* 0: its bytes had all been taken */
	assert_int_equal(null_warns, told ? 1 : 0);
	close_both();
	free(from);
}

/* Frames that were on their way when a comm failed are no reason to lose the link. */
static void a_failed_comm_ignores_what_still_comes(void **state)
{
	char *from = message(BIG, 3), *to = malloc(BIG);
	struct braid_comm *gone_s = cs, *gone_r = cr;
	struct braid_req *r;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	null_deliver_all(&p);
	isend(cs, from, BIG, 1);		/* START and chunks */
	isend(cs, from, BIG, 1);		/* WANT */
	isend(cs, from, 10, 1);			/* EAGER */
	isend(cs, from, 50 * K, 2);
	braid_comm_cancel(cr, NULL);
	free(to);
	null_settle(&p);
	assert_int_equal(atomic_load(&p.end[B]->state), BRAID_LINK_UP);
	null_comms(&p, A, &cs, &cr);
	one_message(BIG, 0);
	braid_comm_close(gone_s);
	braid_comm_close(gone_r);
	close_both();
	free(from);
}

static void frames_of_a_comm_that_is_gone_are_dropped(void **state)
{
	static const uint8_t types[] = {
		BRAID_F_EAGER, BRAID_F_START, BRAID_F_WANT, BRAID_F_CREDIT, BRAID_F_RETIRE,
		BRAID_F_OPENED, BRAID_F_REFUSED, BRAID_F_BYE, BRAID_F_FAIL, BRAID_F_CHUNK,
	};
	char payload[64] = { 0 };

	(void)state;
	for (unsigned i = 0; i < sizeof(types); i++) {
		struct braid_hdr h = { .type = types[i], .comm = 4242, .seq = 9, .rseq = 9 };

		if (h.type == BRAID_F_EAGER || h.type == BRAID_F_CHUNK) {
			h.len = sizeof(payload);
			h.size = sizeof(payload);
		}
		assert_int_equal(null_forge(&p, A, 0, &h, payload), 0);
	}
	one_message(BIG, 0);
	assert_int_equal(p.end[B]->ncomms, 1);
}

/* Ids that fall into the same bucket of the link's table. */
static void comms_are_told_apart_by_their_whole_id(void **state)
{
	struct braid_comm *s[3] = { cs }, *r[3] = { cr };

	(void)state;
	for (unsigned i = 1; i < 3; i++) {
		p.end[A]->next_comm = i * 2 * BRAID_LINK_BUCKETS;
		null_comms(&p, A, &s[i], &r[i]);
	}
	for (unsigned i = 0; i < 3; i++) {
		cs = s[i];
		cr = r[i];
		one_message(100 + i, 0);
		one_message(BIG + i, 0);
	}
	for (unsigned i = 0; i < 3; i++) {	/* the oldest, which is last in the bucket, first */
		braid_comm_close(s[i]);
		braid_comm_close(r[i]);
		null_settle(&p);
		assert_int_equal(p.end[A]->ncomms, 2 - i);
		assert_int_equal(p.end[B]->ncomms, 2 - i);
	}
	assert_null(null_not_idle(&p));
}

static void a_link_that_dies_takes_its_comms_with_it_and_says_so_once(void **state)
{
	struct braid_comm *other_s, *other_r;
	char to[8];
	struct braid_req *r, *q;

	(void)state;
	null_comms(&p, B, &other_s, &other_r);
	r = irecv(cr, to, sizeof(to), 0);
	braid_link_fail(p.end[B], -EREMOTEIO, "the cable of %s was cut", "null1");
	braid_link_fail(p.end[B], -ENOMEM, "again");
	assert_int_equal(null_warns, 1);
	assert_non_null(strstr(null_warn, "the cable of null1 was cut"));
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(braid_comm_irecv(cr, 1, &(void *){ to }, &(size_t){ 8 }, &(int){ 0 }, NULL,
					  &q), -EREMOTEIO);
	q = isend(other_s, "x", 1, 0);
	assert_non_null(q);
	assert_int_equal(error_of(q), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(other_s, "x", 1, 0, NULL, &q), -EREMOTEIO);
	braid_comm_close(cr);
	braid_comm_close(other_s);
	assert_int_equal(p.end[B]->ncomms, 0);
}

/* --- acknowledgements ---------------------------------------------------------------------- */

/* However short the last chunk is: its sender waits for it. */
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
		null_deliver_all(&p);
	}
	assert_int_equal(size_of(r), 64 * K + 100);
	braid_link_progress(p.end[B], cr, NULL);
	null_deliver_all(&p);
	assert_true(done(s));
	free(from);
	free(to);
}

/* Its receiver has nothing more posted there, and asks about other links alone. */
static void the_last_message_is_acknowledged_by_an_idle_call_on_another_link(void **state)
{
	char *from = message(20 * K, 1), *to = malloc(20 * K);
	struct braid_req *r, *s;

	(void)state;
	r = irecv(cr, to, 20 * K, 0);
	null_deliver_all(&p);
	s = isend(cs, from, 20 * K, 0);
	assert_false(done(s));
	null_deliver_all(&p);
	assert_int_equal(size_of(r), 20 * K);
	assert_no_frame(B);		/* it may go with what is posted next */
	braid_link_progress(p.end[A], cs, NULL);
	while (null_deliver(&p, B, 0))
		;
	assert_true(done(s));
	free(from);
	free(to);
}

/* What could not ride on a frame that had begun to leave goes by itself afterwards. */
static void an_acknowledgement_is_not_lost_behind_a_frame_half_sent(void **state)
{
	struct null_config config = { .window = 512 * K, .held = true, .limit = 1000 };
	char *from = message(30 * K, 3), *to = malloc(30 * K);
	struct braid_comm *back_s, *back_r;
	struct braid_req *r, *s, *back;

	null_pair_fini(&p);
	null_pair_init(&p, &config);
	null_comms(&p, A, &cs, &cr);
	null_comms(&p, B, &back_s, &back_r);
	(void)state;
	make_large();
	r = irecv(cr, to, 30 * K, 1);
	assert_false(done(r));
	null_deliver_all(&p);
	braid_param.eager = 0;
	s = isend(cs, from, 30 * K, 1);
	braid_param.eager = 64 * K;
	back = isend(back_s, from, 30 * K, 0);	/* from B: a part of it in its short wire */
	while (!atomic_load(&r->done)) {
		braid_link_progress(p.end[A], cs, NULL);
		null_deliver(&p, A, 0);
	}
	assert_int_equal(size_of(r), 30 * K);
	for (int i = 0; i < 100; i++) {		/* B calls, for it has a send; the wire drains */
		done(back);
		null_deliver(&p, B, 0);
	}
	assert_true(done(s));
	free(from);
	free(to);
}

/* A START that found the wire full waits for its chunk, and that not for the START. */
static void a_start_that_finds_no_room_leaves_with_its_chunk(void **state)
{
	struct null_config config = {
		.window = 512 * K, .held = true, .limit = BIG + 2 * BRAID_HDR_SIZE,
	};
	char *from = message(BIG, 5), *to[2] = { malloc(BIG), malloc(BIG) };
	struct braid_req *r[2], *s[2];
	struct braid_lane *lane;

	(void)state;
	null_pair_fini(&p);
	null_pair_init(&p, &config);
	null_comms(&p, A, &cs, &cr);
	make_large();
	lane = p.end[A]->lane[0];
	lane->flight_max = 1;
	for (int i = 0; i < 2; i++)
		r[i] = irecv(cr, to[i], BIG, 1);
	assert_false(done(r[1]));
	null_deliver_all(&p);
	for (int i = 0; i < 2; i++)
		s[i] = isend(cs, from, BIG, 1);
	assert_int_equal(null_waiting(&p, A, 0), config.limit);
	assert_int_equal(lane->tx.unsent, BRAID_HDR_SIZE);
	assert_true(braid_link_try_flush_control(p.end[A]));
	assert_int_equal(lane->tx.unsent, BRAID_HDR_SIZE);
	for (int i = 0; i < 2; i++) {
		run(s[i], r[i]);
		assert_int_equal(size_of(r[i]), BIG);
		assert_memory_equal(from, to[i], BIG);
		assert_true(done(s[i]));
		free(to[i]);
	}
	free(from);
}

/* --- memory lent while there is traffic ---------------------------------------------------- */

static void an_idle_link_gives_its_memory_back_and_takes_it_again(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		one_message(100, 0);
		one_message(BIG, 0);
		close_both();
		for (unsigned e = 0; e < 2; e++) {
			braid_link_detach(p.end[e]);
			assert_false(p.end[e]->attached);
			assert_null(p.end[e]->lane[0]->tx.ring);
		}
		assert_int_equal(braid_link_attach(p.end[A]), 0);
		assert_int_equal(braid_link_attach(p.end[B]), 0);
		null_comms(&p, A, &cs, &cr);
	}
	one_message(BIG, 0);
	assert_int_equal(null_warns, 0);
}

static int forge_open(uint32_t id)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .comm = id, .len = BRAID_OPEN_SIZE };
	uint8_t payload[BRAID_OPEN_SIZE] = { 0 };

	return null_forge(&p, A, 0, &h, payload);
}

static void an_open_is_answered(void **state)
{
	(void)state;
	assert_int_equal(forge_open(100), 0);
	assert_non_null(offered);
	assert_int_equal(offered->id, 100);
	assert_false(offered->sender);
	braid_link_progress(p.end[B], cr, NULL);
	assert_int_equal(next(B, BRAID_F_OPENED).comm, 100);
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
	assert_int_equal(null_forge(&p, B, 0, &h, payload), 0);
	assert_true(cs->opened);
	assert_int_equal(atomic_load(&cs->err), 0);
	opening(7);
	payload[39] ^= 1;			/* the last byte of the MAC */
	assert_int_equal(null_forge(&p, B, 0, &h, payload), 0);
	assert_false(cs->opened);
	assert_int_equal(atomic_load(&cs->err), -EACCES);
}

static void an_open_that_nobody_listens_for_is_refused(void **state)
{
	(void)state;
	offer_err = -ENOENT;
	assert_int_equal(forge_open(100), 0);
	braid_link_try_flush_control(p.end[B]);
	assert_int_equal(next(B, BRAID_F_REFUSED).comm, 100);
	assert_int_equal(p.end[B]->ncomms, 1);
	pass(B, BRAID_F_REFUSED);		/* of a comm that A has given up: nothing */
}

/* A peer that has no proof, and reads no answers. */
static void opens_without_proof_take_no_memory(void **state)
{
	unsigned i;

	(void)state;
	offer_err = -EACCES;
	for (i = 0; i < 2 * BRAID_REFUSALS_MAX && !forge_open(100 + 2 * i); i++)
		assert_int_equal(p.end[B]->ncomms, 1);
	assert_int_equal(i, BRAID_REFUSALS_MAX);
	braid_link_try_flush_control(p.end[B]);
	assert_int_equal(next(B, BRAID_F_REFUSED).comm, 100);
	assert_int_equal(p.end[B]->ncomms, 1);
}

static void one_comm_too_many_is_refused(void **state)
{
	unsigned had = atomic_load(&p.end[B]->ncomms);

	(void)state;
	atomic_store(&p.end[B]->ncomms, BRAID_LINK_COMMS_MAX);
	assert_int_equal(forge_open(100), 0);
	assert_null(offered);
	atomic_store(&p.end[B]->ncomms, had);
	braid_link_try_flush_control(p.end[B]);
	assert_int_equal(next(B, BRAID_F_REFUSED).n, BRAID_HELLO_NO_ROOM);
}

static void a_comm_that_was_refused_fails(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_REFUSED, .comm = cs->id };

	(void)state;
	cs->opened = false;
	assert_int_equal(null_forge(&p, B, 0, &h, NULL), 0);
	assert_int_equal(atomic_load(&cs->err), -ECONNREFUSED);
	assert_false(cs->opened);
	braid_comm_close(cs);
	assert_int_equal(p.end[A]->ncomms, 0);
}

/* The first comm after a rest comes to a link that has given its memory back. */
static void an_open_is_answered_on_a_link_that_was_idle(void **state)
{
	(void)state;
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_deliver_all(&p);
	for (unsigned e = 0; e < 2; e++) {
		struct braid_txq *q = &p.end[e]->lane[0]->tx;

		q->f_acked = q->f_peer_acked = q->f_head;	/* as after any rest */
		braid_link_detach(p.end[e]);
	}
	assert_int_equal(forge_open(100), 0);
	braid_link_try_flush_control(p.end[B]);
	assert_int_equal(pass(B, BRAID_F_OPENED).comm, 100);
}

/* --- a peer that lies ---------------------------------------------------------------------- */

static void lies_are_refused(void **state)
{
	/* From the sender of `cs` to the receiver, which has posted one receive of 1000 bytes with
	 * tag 1 and given no credit, and has received message 0. */
	static const struct {
		const char *what;
		struct braid_hdr h;
		unsigned lane;
	} rows[] = {
		{ "a message skipped", { .type = BRAID_F_EAGER, .seq = 2 }, 0 },
		{ "a message again", { .type = BRAID_F_EAGER, .seq = 0 }, 0 },
		{ "a credit nobody gave",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1,
		    .flags = BRAID_FLAG_CREDITED }, 0 },
		{ "a credit of no receive",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 77,
		    .flags = BRAID_FLAG_CREDITED }, 0 },
		{ "more than the window",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 9, .len = 540 * K,
		    .size = 540 * K }, 0 },
		{ "a start without credit",
		  { .type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 1, .size = 10 }, 0 },
		{ "a start of no receive",
		  { .type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 9, .size = 10 }, 0 },
		{ "a want skipped", { .type = BRAID_F_WANT, .seq = 2, .tag = 1, .size = 10 }, 0 },
		{ "a chunk without credit",
		  { .type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .len = 8, .size = 8 }, 0 },
		{ "a chunk without credit on another lane",
		  { .type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .len = 8, .size = 8 }, 2 },
		{ "a credit for a receiver", { .type = BRAID_F_CREDIT, .tag = 1, .size = 10 }, 0 },
		{ "a retirement for a receiver", { .type = BRAID_F_RETIRE, .n = 1 }, 0 },
		{ "opened, to the one who was opened", { .type = BRAID_F_OPENED }, 0 },
		{ "refused, to the one who was opened", { .type = BRAID_F_REFUSED }, 0 },
		{ "an acknowledgement of no lane", { .type = BRAID_F_ACK, .n = 3 }, 0 },
		{ "an acknowledgement of what was not sent",
		  { .type = BRAID_F_ACK, .n = 1, .seq = 1 }, 0 },
		{ "an acknowledgement in a header", { .type = BRAID_F_ACK, .ack = 1000 }, 0 },
		{ "an open with an id of ours", { .type = BRAID_F_OPEN, .comm = 1,
		  .len = BRAID_OPEN_SIZE }, 0 },
		{ "an open with an id in use", { .type = BRAID_F_OPEN,
		  .len = BRAID_OPEN_SIZE }, 0 },
		{ "a wish for lanes to who can't dial", { .type = BRAID_F_LANES, .n = 2 }, 0 },
	};
	char *payload = calloc(1, 600 * K);

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_hdr h = rows[i].h;
		char to[1000];
		struct braid_req *r;
		int err;

		if (i) {
			teardown(state);
			setup_lanes(state);
		}
		assert_true(settled(isend(cs, "0", 1, 1)));
		null_deliver_all(&p);
		r = irecv(cr, to, sizeof(to), 1);
		assert_true(done(r));
		r = irecv(cr, to, sizeof(to), 1);
		assert_false(done(r));
		null_deliver_all(&p);
		memset(to, 0x55, sizeof(to));
		if (h.type != BRAID_F_OPEN)
			h.comm = cs->id;
		err = null_forge(&p, A, rows[i].lane, &h, payload);
		if (err != -EBADMSG && err != -EPROTO)
			fail_msg("%s: %d", rows[i].what, err);
		for (size_t k = 0; k < sizeof(to); k++)
			assert_int_equal(to[k], 0x55);
		/* The next call of anybody finds the link dead; it is said once. */
		if (rows[i].lane)
			p.end[B]->spread++;
		assert_int_equal(null_warns, 0);
		braid_link_progress(p.end[B], cr, NULL);
		assert_int_equal(error_of(r), -EREMOTEIO);
		assert_int_equal(null_warns, 1);
		assert_non_null(strstr(null_warn, "broken"));
	}
	free(payload);
}

static void lies_to_a_sender_are_refused(void **state)
{
	/* From the receiver of `cs`, which has sent one small message and wants a credit for a
	 * large one with tag 1. */
	static const struct {
		const char *what;
		struct braid_hdr h;
	} rows[] = {
		{ "an eager message", { .type = BRAID_F_EAGER } },
		{ "a start", { .type = BRAID_F_START, .size = 1 } },
		{ "a want", { .type = BRAID_F_WANT } },
		{ "a chunk", { .type = BRAID_F_CHUNK, .len = 1, .size = 1 } },
		{ "a retirement of what was never sent",
		  { .type = BRAID_F_RETIRE, .seq = 2, .n = 1 } },
		{ "a retirement of what waits for a credit",
		  { .type = BRAID_F_RETIRE, .seq = 1, .n = 1 } },
		{ "a retirement of too many", { .type = BRAID_F_RETIRE, .seq = 0, .n = 257 } },
		{ "a retirement before the first",
		  { .type = BRAID_F_RETIRE, .seq = 0xffffffff, .n = 2 } },
		{ "an open with an id of ours", { .type = BRAID_F_OPEN, .comm = 2,
		  .len = BRAID_OPEN_SIZE } },
		{ "a wish for no lanes", { .type = BRAID_F_LANES, .n = 0 } },
		{ "a wish for more lanes than there can be", { .type = BRAID_F_LANES,
		  .n = BRAID_LANES_MAX + 1 } },
	};
	char *from = message(BIG, 0);
	uint8_t payload[BRAID_OPEN_SIZE] = { 0 };

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_hdr h = rows[i].h;
		struct braid_req *s;
		int err;

		if (i) {
			teardown(state);
			setup(state);
		}
		isend(cs, "0", 1, 1);
		s = isend(cs, from, BIG, 1);
		null_deliver_all(&p);
		if (h.type != BRAID_F_OPEN)
			h.comm = cs->id;
		err = null_forge(&p, B, 0, &h, payload);
		if (err != -EBADMSG)
			fail_msg("%s: %d", rows[i].what, err);
		braid_link_progress(p.end[A], cs, NULL);
		assert_int_equal(error_of(s), -EREMOTEIO);
	}
	free(from);
}

static bool in_short;			/* else nothing but immediate data */

static int bare(uint32_t comm, uint32_t seq, size_t n)
{
	return null_bare(&p, A, 0, braid_short(comm, seq), "without", n, in_short);
}

/* The number and tag of what comes without a header are those that the comm expects. */
static void a_message_without_its_header_is_the_next(void **state)
{
	char to[3][8] = { "" };
	struct braid_req *r, *other;

	(void)state;
	isend(cs, "first", 6, 5);
	null_deliver_all(&p);
	assert_int_equal(bare(cs->id, 1, 8), 0);	/* before its receive */
	r = irecv(cr, to[0], 8, 5);
	assert_int_equal(size_of(r), 6);
	r = irecv(cr, to[1], 8, 5);
	assert_int_equal(size_of(r), 8);
	r = irecv(cr, to[2], 8, 5);
	assert_int_equal(bare(cs->id, 2, 4), 0);	/* and after */
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to[0], "first");
	assert_string_equal(to[1], "without");
	assert_memory_equal(to[2], "with\0\0\0", 8);
	other = irecv(cr, to[0], 8, 6);
	r = irecv(cr, to[1], 8, 5);
	assert_int_equal(bare(cs->id, 3, 8), 0);	/* not the oldest receive's */
	assert_int_equal(size_of(r), 8);
	assert_false(done(other));
	assert_int_equal(bare(cs->id + 1000, 0, 8), 0);	/* of a comm that is gone: dropped */
	assert_int_equal(null_warns, 0);
}

static void lies_without_a_header_are_refused(void **state)
{
	static const struct {
		bool back;			/* of the comm that sends itself */
		uint32_t seq;
		size_t n;
	} rows[] = {
		{ true, 0, 8 },
		{ false, 0, 0 },		/* nothing */
		{ false, 1, 8 },		/* not the next */
		{ false, 0xffff, 8 },		/* one that has been */
	};
	struct braid_comm *back, *there;
	const unsigned nrows = sizeof(rows) / sizeof(rows[0]);
	char to[8];
	int err = 0;

	for (unsigned n = 0; n < 2 * nrows; n++) {
		unsigned i = n / 2;

		null_comms(&p, B, &back, &there);
		if (n % 2)
			irecv(cr, to, sizeof(to), 0);	/* which waits for a message */
		assert_int_equal(bare(rows[i].back ? back->id : cs->id, rows[i].seq, rows[i].n),
				 -EBADMSG);
		teardown(state);
		setup(state);
	}
	irecv(cr, to, 4, 0);
	assert_int_equal(bare(cs->id, 0, 8), 0);	/* more than fits */
	assert_int_equal(atomic_load(&cr->err), -EMSGSIZE);
	teardown(state);

	setup_floor(state);
	for (uint32_t seq = 0; !err && seq < BRAID_SLOTS; seq++)
		err = bare(cs->id, seq, 8);
	assert_int_equal(err, -EBADMSG);		/* beyond what was granted */
}

static void a_short_header_says_the_same(void **state)
{
	in_short = true;
	a_message_without_its_header_is_the_next(state);
	teardown(state);
	setup(state);
	lies_without_a_header_are_refused(state);
	in_short = false;
}

static void credits_beyond_what_a_comm_can_have_are_refused(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_CREDIT, .comm = cs->id, .tag = 7, .size = 10 };

	(void)state;
	for (h.rseq = 0; h.rseq < BRAID_SLOTS; h.rseq++)
		assert_int_equal(null_forge(&p, B, 0, &h, NULL), 0);
	assert_int_equal(null_forge(&p, B, 0, &h, NULL), -EBADMSG);
}

static void a_frame_out_of_its_number_is_refused(void **state)
{
	struct braid_lane *lane = p.end[B]->lane[0];

	(void)state;
	lane->rx_hdr = (struct braid_hdr){ .type = BRAID_F_ACK, .lseq = lane->rx_frames + 1 };
	assert_int_equal(braid_rx_begin(lane), -EBADMSG);
}

/* What a lane's poll() finds, other than frames. */
static const char *odd_what;

static int odd_poll(struct braid_lane *lane)
{
	return odd_what ? braid_rx_broken(lane, odd_what, -EPROTO) : -EPROTO;
}

static void poll_oddly(struct braid_link *link, const char *what)
{
	static struct braid_transport odd;
	struct braid_lane *lane = link->lane[0];

	odd = *lane->tr;
	odd.poll = odd_poll;
	odd_what = what;
	lane->tr = &odd;
	lane->rx_hdr.type = BRAID_F_LANES;	/* of long ago */
	null_warns_clear();
	braid_link_move(link);
	lane->tr = &null_transport;
}

static void what_is_broken_but_no_frame_is_not_called_by_the_last_one(void **state)
{
	(void)state;
	poll_oddly(p.end[B], "count");
	assert_int_equal(atomic_load(&p.end[B]->state), BRAID_LINK_DEAD);
	assert_non_null(strstr(null_warn, "(count)"));
}

/* A socket can say so, of a path that ICMP speaks ill of. */
static void an_error_of_the_kernels_is_not_the_peers(void **state)
{
	(void)state;
	poll_oddly(p.end[B], NULL);
	assert_int_equal(atomic_load(&p.end[B]->state), BRAID_LINK_UP);
	assert_false(braid_lane_up(p.end[B]->lane[0]));
	assert_int_equal(null_warns, 0);
}

static unsigned polls;

static int counted_poll(struct braid_lane *lane)
{
	polls++;
	return null_transport.poll(lane);
}

/* So that to deregister costs nothing but the locks, whatever a look at the lanes costs. */
static void memory_that_nobody_uses_is_taken_back_without_a_look(void **state)
{
	static struct braid_transport counted;
	char to[64];
	struct braid_mr mr = { .comm = cr, .data = to, .size = sizeof(to) }, *mrs = &mr, other = mr;
	size_t size = sizeof(to);
	int tag = 0;
	void *data = to;
	struct braid_req *r;

	(void)state;
	counted = null_transport;
	counted.poll = counted_poll;
	p.end[B]->lane[0]->tr = &counted;
	assert_int_equal(braid_comm_irecv(cr, 1, &data, &size, &tag, &mrs, &r), 0);
	polls = 0;
	braid_comm_cancel(cr, &other);
	assert_int_equal(polls, 0);
	braid_comm_cancel(cr, &mr);		/* the peer is to hear of it at once */
	assert_int_not_equal(polls, 0);
	assert_int_equal(error_of(r), -ECANCELED);
	p.end[B]->lane[0]->tr = &null_transport;
	null_settle(&p);
	close_both();
}

/*
 * What a receive with a credit may be told: chunks of one size, each once, in bounds, and a START
 * that fits; and nothing else may be going on in its buffer.
 */
static struct braid_req *credited(char *to, size_t room)
{
	struct braid_req *r;

	make_large();
	r = irecv(cr, to, room, 1);
	assert_false(done(r));
	return r;
}

static char *place_at(unsigned end, const struct braid_hdr *h)
{
	const struct braid_mr *gpu;

	return braid_comm_rx_place(p.end[end]->lane[0], h, &gpu);
}

static void lies_about_a_credited_receive_are_refused(void **state)
{
	struct braid_hdr start = {
		.type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 1, .size = 1000,
	};
	struct braid_hdr chunk = {
		.type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .n = 0, .len = 500, .size = 1000,
	};
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1, .len = 1000, .size = 1000,
		.flags = BRAID_FLAG_CREDITED,
	};
	static const struct {
		const char *what;
		char first, second;	/* S, C, E; small letter: changed as below */
		struct braid_hdr change;	/* fields to add */
	} rows[] = {
		{ "a chunk twice", 'C', 'c', { 0 } },
		{ "another size in a chunk", 'C', 'c', { .n = 1, .size = 1 } },
		{ "more chunks than the size", 'C', 'c', { .n = 1, .len = 1 } },
		{ "a start of another size", 'C', 's', { .size = 1 } },
		{ "two starts", 'S', 's', { .seq = 1 } },
		{ "a start with another tag", 'C', 's', { .tag = 1 } },
		{ "a start beyond the room", 0, 's', { .size = 1 } },
		{ "a chunk beyond the room", 0, 'c', { .size = 1 } },
		{ "a message whole after a chunk of it", 'C', 'e', { 0 } },
		{ "a message whole after its start", 'S', 'e', { .seq = 1 } },
		{ "a message whole beyond the room", 0, 'e', { .len = 1, .size = 1 } },
		{ "a message whole with another tag", 0, 'e', { .tag = 1 } },
		{ "a chunk after the whole message", 'E', 'c', { 0 } },
		{ "a start after the whole message", 'E', 's', { .seq = 1 } },
	};
	char payload[2000] = { 0 }, to[1000];

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int err = 0;

		if (i) {
			teardown(state);
			setup(state);
		}
		credited(to, sizeof(to));
		for (int k = 0; k < 2; k++) {
			char kind = k ? rows[i].second : rows[i].first;
			struct braid_hdr h = kind == 'S' || kind == 's' ? start :
					     kind == 'C' || kind == 'c' ? chunk : eager;

			h.comm = cs->id;
			if (k) {
				h.n = (uint16_t)(h.n + rows[i].change.n);
				h.seq += rows[i].change.seq;
				h.tag += rows[i].change.tag;
				h.len += rows[i].change.len;
				h.size += rows[i].change.size;
			}
			if (!kind)
				continue;
			assert_int_equal(err, 0);
			/* Nor is a place told for a chunk that will be refused, or is none. */
			if (place_at(B, &h) != (kind == 'C' ? to : NULL))
				fail_msg("%s: its place", rows[i].what);
			err = null_forge(&p, A, 0, &h, payload);
		}
		if (err != -EBADMSG)
			fail_msg("%s: %d", rows[i].what, err);
	}
}

static void the_place_of_a_chunk_is_told_while_its_receive_waits(void **state)
{
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .n = 1, .len = 500, .offset = 500,
		.size = 1000, .comm = cs->id,
	};
	struct braid_mr gpu = { .gpu = true };
	char to[1000];

	(void)state;
	credited(to, sizeof(to));
	assert_ptr_equal(place_at(B, &h), to + 500);
	h.rseq = 2;
	assert_null(place_at(B, &h));	/* not asked for yet */
	h.rseq = 1;
	h.comm += 2;
	assert_null(place_at(B, &h));	/* no such comm */
	h.comm -= 2;
	assert_null(place_at(A, &h));	/* who sends receives nothing */
	cr->recv[1]->mr = &gpu;
	assert_null(place_at(B, &h));	/* it comes here first */
	p.end[B]->lane[0]->gpu = true;
	assert_ptr_equal(place_at(B, &h), to + 500);
	cr->recv[1]->mr = NULL;
	braid_comm_fail(cr, -EIO);
	assert_null(place_at(B, &h));
}

/* Of two receives whose credits are due, the first is met by a small message, tested and freed. */
static void a_credit_that_is_due_outlives_the_receive_before_it(void **state)
{
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = cs->next_seq, .tag = 1, .comm = cs->id,
		.len = 4, .size = 4,
	};
	char to[3][16];
	struct braid_req *first, *second;

	(void)state;
	cr->large = true;
	first = irecv(cr, to[0], sizeof(to[0]), 1);
	second = irecv(cr, to[1], sizeof(to[1]), 2);
	assert_int_equal(cr->ndue, 2);
	assert_int_equal(null_forge(&p, A, 0, &eager, "abc"), 0);
	assert_true(done(first));
	irecv(cr, to[2], sizeof(to[2]), 3);
	assert_null(cr->recv[0]);
	assert_false(done(second));
	null_settle(&p);
	assert_int_equal(cr->ndue, 0);
}

/* While one lane is in the middle of a chunk, the receive can't be completed by another. */
static void nobody_completes_a_receive_that_is_being_written(void **state)
{
	char *from = message(BIG, 1), *to = malloc(BIG);
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1, .comm = cs->id,
		.len = 100, .size = 100,
	};
	struct braid_req *r, *s;

	for (unsigned flags = 0; flags < 2; flags++) {
		if (flags) {
			teardown(state);
			setup_lanes(state);
		}
		r = credited(to, BIG);
		null_deliver_all(&p);
		s = isend(cs, from, BIG, 1);
		assert_false(done(s));
		for (unsigned l = 1; l < 3; l++)
			null_deliver_some(&p, A, l, 1000);
		assert_true(p.end[B]->lane[1]->rx_left && p.end[B]->lane[2]->rx_left);
		eager.flags = (uint8_t)flags;
		eager.comm = cs->id;
		assert_int_equal(null_forge(&p, A, 0, &eager, from), -EBADMSG);
		assert_false(atomic_load(&r->done));
	}
	free(from);
	free(to);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_LANES(f) cmocka_unit_test_setup_teardown(f, setup_lanes, teardown)
#define CASE_FLOOR(f) cmocka_unit_test_setup_teardown(f, setup_floor, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_small_message_goes_at_once_and_is_retired),
		CASE(a_message_leads_if_its_caller_waits_and_its_header_says_nothing_new),
		CASE(an_uncopied_eager_message_is_done_when_acknowledged),
		CASE(a_large_message_wants_a_credit_and_starts),
		CASE(a_credit_that_came_first_is_used_without_a_word),
		CASE(empty_messages_match_like_any),
		CASE_FLOOR(an_empty_message_without_window_arrives),
		CASE(a_group_takes_its_messages_in_any_order_of_tags),
		CASE(requests_may_be_tested_in_any_order),
		CASE(more_requests_than_a_comm_has_must_wait),
		CASE(an_eager_message_that_crosses_a_credit_uses_it_up),
		CASE(a_want_that_crosses_a_credit_gets_no_second_one),
		CASE(a_retirement_is_told_before_any_later_credit),
		CASE_LANES(a_goodbye_finds_the_send_acknowledged_on_every_lane),
		CASE_LANES(a_chunk_may_overtake_its_start),
		CASE_FLOOR(without_window_a_message_goes_by_credit),
		CASE(a_comm_whose_receiver_posts_nothing_holds_up_no_other),
		CASE(the_window_comes_back_with_the_messages),
		CASE(a_message_larger_than_its_receive_fails_both_ends_and_writes_nothing),
		CASE(a_comm_is_gone_when_both_said_goodbye),
		CASE(messages_sent_before_a_goodbye_are_received),
		CASE(a_request_that_waits_for_a_peer_that_left_fails_and_says_so),
		CASE(a_comm_that_failed_takes_posts_until_test_has_said_so),
		CASE(closing_takes_the_memory_away_but_tears_no_frame),
		CASE_LANES(a_receive_cancelled_in_the_middle_is_not_written_any_more),
		CASE(a_failed_comm_ignores_what_still_comes),
		CASE(frames_of_a_comm_that_is_gone_are_dropped),
		CASE(comms_are_told_apart_by_their_whole_id),
		CASE(a_link_that_dies_takes_its_comms_with_it_and_says_so_once),
		CASE(every_chunk_is_acknowledged_at_the_first_idle_call),
		CASE(the_last_message_is_acknowledged_by_an_idle_call_on_another_link),
		CASE(an_acknowledgement_is_not_lost_behind_a_frame_half_sent),
		CASE(a_start_that_finds_no_room_leaves_with_its_chunk),
		CASE(an_idle_link_gives_its_memory_back_and_takes_it_again),
		CASE(an_open_is_answered),
		CASE(an_answer_with_proof_opens_a_comm),
		CASE(an_open_that_nobody_listens_for_is_refused),
		CASE(opens_without_proof_take_no_memory),
		CASE(one_comm_too_many_is_refused),
		CASE(a_comm_that_was_refused_fails),
		CASE(an_open_is_answered_on_a_link_that_was_idle),
		CASE_LANES(lies_are_refused),
		CASE(lies_to_a_sender_are_refused),
		CASE(a_message_without_its_header_is_the_next),
		CASE(lies_without_a_header_are_refused),
		CASE(a_short_header_says_the_same),
		CASE(credits_beyond_what_a_comm_can_have_are_refused),
		CASE(a_frame_out_of_its_number_is_refused),
		CASE(what_is_broken_but_no_frame_is_not_called_by_the_last_one),
		CASE(an_error_of_the_kernels_is_not_the_peers),
		CASE(memory_that_nobody_uses_is_taken_back_without_a_look),
		CASE(lies_about_a_credited_receive_are_refused),
		CASE(the_place_of_a_chunk_is_told_while_its_receive_waits),
		CASE(a_credit_that_is_due_outlives_the_receive_before_it),
		CASE_LANES(nobody_completes_a_receive_that_is_being_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
