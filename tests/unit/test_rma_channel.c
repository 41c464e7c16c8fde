/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_channel.c - a channel from end to end: frames in pieces, on lost lanes, out of order, from
 * a peer that lies; and its end.
 *
 * The property: whatever lanes do, each byte of a put and of a get is right, each signal is added
 * once, and a signal is never seen before what it stands for.  A seed makes operations of several
 * contexts, which are posted while frames are delivered from any lane, whole or in pieces, and
 * while lanes are lost with all that was on its way.  BRAID_TEST_SEED=n runs that seed alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tests/lib/channel.h"

enum { OPS = 60, WORDS = 8 * OPS, SLOT = 160 * K, SEEDS = 300, STUCK = 400, SIZE = 64 * K };

static char bytes[SIZE];

/* --- the property -------------------------------------------------------------------------- */

struct step {
	unsigned what;
	uint8_t context;
	size_t at, size;		/* of its slot in the window */
	char *buf;
	struct braid_rma_op *op;
	bool posted, done, seen;	/* seen: its signal was */
};

static struct {
	struct null_rnd rnd;
	unsigned n, posted, lanes;
	struct step s[OPS];
	struct win *data, *words, *sum;
} w;

static uint64_t below(uint64_t n)
{
	return null_below(&w.rnd, n);
}

static char pattern(unsigned step, size_t i)
{
	return (char)(1 + (step * 31 + i * 7 + (i >> 8)) % 255);
}

static size_t random_size(void)
{
	switch (below(6)) {
	case 0:
		return 1 + below(40);
	case 1:
		return BRAID_RMA_INLINE_MAX - 1 + below(3);
	case 2:
		return 1 + below(SLOT);
	default:
		return 1 + below(20000);
	}
}

static void plan_step(struct step *s, unsigned i, size_t *room)
{
	static const unsigned kinds[] = {
		BRAID_RMA_DATA, BRAID_RMA_DATA | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
		BRAID_RMA_DATA | BRAID_RMA_SIGNAL, BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
		BRAID_RMA_SIGNAL, BRAID_RMA_GET,
	};

	s->what = kinds[below(6)];
	s->context = (uint8_t)(below(3) * 127);
	if (s->what & (BRAID_RMA_DATA | BRAID_RMA_GET)) {
		s->size = random_size();
		s->buf = malloc(s->size);
	}
	for (size_t k = 0; k < s->size; k++)
		s->buf[k] = pattern(i, k);
	if (s->what & BRAID_RMA_DATA && s->size > BRAID_RMA_INLINE_MAX) {
		s->what ^= BRAID_RMA_DATA | BRAID_RMA_BULK;
		if (s->what & BRAID_RMA_SIGNAL)
			s->what |= BRAID_RMA_ORDERED;
	}
	s->at = *room;
	*room += s->size;
}

/* What gets read is there from the start. */
static void fill_gets(void)
{
	for (unsigned i = 0; i < w.n; i++) {
		struct step *s = &w.s[i];

		if (s->what != BRAID_RMA_GET)
			continue;
		memcpy(w.data->bytes + s->at, s->buf, s->size);
		memset(s->buf, 0, s->size);
	}
}

/* As after four billion operations, epochs and gets. */
static void grow_old(void)
{
	ca->next_seq = cb->next_seq = (uint32_t)-(int)below(20);
	ca->next_get = (uint32_t)-(int)below(5);
	for (unsigned i = 0; i < 3; i++) {
		uint8_t context = (uint8_t)(i * 127);
		struct {
			uint32_t first, now;
		} *o = (void *)braid_rma_order_of(cb, context);

		o->first = o->now = ca->epoch[context] = (uint32_t)-(int)below(10);
	}
}

static void plan(uint64_t seed)
{
	static const size_t limits[] = { 0, 0, 3000, 100000 }, bites[] = { 0, 0, 60, 5000 };
	struct null_config config = { .window = 512 * K };
	size_t room = 8;

	memset(&w, 0, sizeof(w));
	w.rnd.s = (seed + 1) * 0x9e3779b97f4a7c15ull;
	for (int i = 0; i < 8; i++)
		null_rnd(&w.rnd);
	config.lanes = w.lanes = 1 + (unsigned)below(4);
	config.held = below(4);			/* else frames are received whole, at once */
	config.limit = limits[below(4)];
	config.bite = bites[below(4)];
	braid_param.chunk = 4096 << below(5);
	start(&config);
	channel_start();
	w.n = 1 + (unsigned)below(OPS);
	for (unsigned i = 0; i < w.n; i++)
		plan_step(&w.s[i], i, &room);
	if (!below(3))
		grow_old();
	w.data = win(B, room);
	w.words = win(B, 8 * OPS);
	w.sum = win(B, 8);
	fill_gets();
}

static void post_step(unsigned i)
{
	struct step *s = &w.s[i];
	struct braid_rma_hdr h = {
		.what = (uint8_t)s->what, .context = s->context, .window = w.data->w.number,
		.offset = s->at, .size = s->size, .signal_window = w.words->w.number,
		.signal_offset = 8 * i, .value = i + 1,
	};

	if (s->what & BRAID_RMA_SIGNAL && i % 3 == 0) {	/* many signals to one word */
		h.signal_window = w.sum->w.number;
		h.signal_offset = 0;
	}
	s->op = below(2) ? post(h, s->buf) : post_more(h, s->buf);
	s->posted = true;
}

static void assert_landed(unsigned i, unsigned signal)
{
	const struct step *s = &w.s[i];

	for (size_t k = 0; k < s->size; k++) {
		if (w.data->bytes[s->at + k] != pattern(i, k))
			fail_msg("signal %u is here, byte %zu of %zu of put %u is not", signal, k,
				 s->size, i);
	}
}

/* Signal i is seen for the first time: what it stands for must be here. */
static void signal_seen(unsigned i)
{
	w.s[i].seen = true;
	for (unsigned k = 0; k <= i && w.s[i].what & BRAID_RMA_ORDERED; k++) {
		if (w.s[k].context == w.s[i].context && w.s[k].what & (BRAID_RMA_DATA | BRAID_RMA_BULK))
			assert_landed(k, i);
	}
	if (w.s[i].what & BRAID_RMA_DATA)
		assert_landed(i, i);
}

static void look_at_signals(void)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < w.n; i++) {
		bool signals = w.s[i].what & BRAID_RMA_SIGNAL, summed = signals && i % 3 == 0;
		uint64_t got = word_at(w.words, 8 * i);

		most += summed ? i + 1 : 0;
		if (got && (!signals || summed || got != i + 1))
			fail_msg("the word of signal %u is %llu", i, (unsigned long long)got);
		if (got && !w.s[i].seen)
			signal_seen(i);
	}
	assert_true(word_at(w.sum, 0) <= most);
}

static bool test_step(unsigned i)
{
	struct step *s = &w.s[i];

	if (!s->posted || s->done || !op_done(s->op))
		return false;
	assert_int_equal(op_end(s->op), 0);
	s->done = true;
	for (size_t k = 0; s->what == BRAID_RMA_GET && k < s->size; k++)
		assert_int_equal(s->buf[k], pattern(i, k));
	free(s->buf);			/* the memory is the owner's again */
	s->buf = NULL;
	return true;
}

static void one_event(void)
{
	unsigned end = (unsigned)below(2), lane = (unsigned)below(w.lanes);

	switch (below(12)) {
	case 0:
	case 1:
		if (w.posted < w.n)
			post_step(w.posted++);
		break;
	case 2:
		if (w.posted)
			test_step((unsigned)below(w.posted));
		break;
	case 3:
		braid_link_progress(pair.end[end], NULL, NULL);
		braid_link_try_flush_control(pair.end[end]);
		break;
	case 4:
		if (!below(20))
			null_lose(&pair, lane);
		break;
	case 5:
		assert_true(null_deliver_some(&pair, end, lane, below(3000)) >= 0);
		break;
	default:
		assert_true(null_deliver(&pair, end, lane) >= 0);
	}
	look_at_signals();
}

static void finish(void)
{
	unsigned left = w.n;

	while (w.posted < w.n)
		post_step(w.posted++);
	for (unsigned still = 0; left && still < STUCK; still++) {
		null_settle(&pair);
		left = 0;
		for (unsigned i = 0; i < w.n; i++) {
			if (test_step(i))
				still = 0;
			left += !w.s[i].done;
		}
	}
	if (left)
		null_dump(&pair);
	assert_int_equal(left, 0);
	null_settle(&pair);
	look_at_signals();
}

static void check_end(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < w.n; i++) {
		bool signals = w.s[i].what & BRAID_RMA_SIGNAL, summed = i % 3 == 0;

		sum += signals && summed ? i + 1 : 0;
		assert_int_equal(word_at(w.words, 8 * i), signals && !summed ? i + 1 : 0);
		assert_landed(i, i);
	}
	assert_int_equal(word_at(w.sum, 0), sum);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(w.data->bytes[i], 0);
	assert_int_equal(cb->due, 0);
	assert_false(ca->spread || cb->spread);
	assert_int_equal(warn_count, 0);
	braid_comm_close(cs);
	null_settle(&pair);
	braid_comm_close(cr);
	null_settle(&pair);
	if (null_not_idle(&pair))
		fail_msg("after all was closed: %s", null_not_idle(&pair));
}

static void one_seed(uint64_t seed)
{
	plan(seed);
	for (unsigned i = (unsigned)below(4000); i; i--)
		one_event();
	finish();
	check_end();
	teardown_channel(NULL);
}

static uint64_t number(const char *name, uint64_t def)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : def;
}

static uint64_t seed_now;

static int tell_seed(void **state)
{
	(void)state;
	print_message("the last seed was %llu\n", (unsigned long long)seed_now);
	return 0;
}

static void whatever_lanes_do_each_byte_is_right_and_each_signal_counted_once(void **state)
{
	const char *sanitizer = getenv("BRAID_TEST_SANITIZER");
	uint64_t n = number("BRAID_TEST_SEEDS", sanitizer && *sanitizer ? SEEDS / 5 : SEEDS);
	struct braid_params saved = braid_param;

	(void)state;
	seed_now = number("BRAID_TEST_SEED", 0);
	if (getenv("BRAID_TEST_SEED"))
		n = seed_now + 1;
	for (; seed_now < n; seed_now++) {
		one_seed(seed_now);
		braid_param = saved;
	}
}

/* --- single frames ------------------------------------------------------------------------- */

static struct braid_rma_hdr strong(void)
{
	return (struct braid_rma_hdr){ .what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .value = 1 };
}

static void an_operation_may_arrive_in_pieces(void **state)
{
	struct win *win0 = win_here(SIZE);
	char *from = message(5000, 1);

	(void)state;
	post((struct braid_rma_hdr){ .what = BRAID_RMA_DATA | BRAID_RMA_SIGNAL, .offset = 8,
				     .size = 5000, .value = 3 }, from);
	pass_frame(A, BRAID_F_EAGER);		/* the rank */
	for (int i = 0; i < 40; i++) {
		assert_int_equal(null_deliver_some(&pair, A, 0, 100), 1);
		assert_int_equal(word_at(win0, 0), 0);
		assert_int_equal(win0->bytes[8], 0);
	}
	assert_int_equal(null_deliver(&pair, A, 0), 1);
	assert_int_equal(word_at(win0, 0), 3);
	assert_memory_equal(win0->bytes + 8, from, 5000);
	free(from);
}

static void an_operation_half_received_on_a_lost_lane_is_applied_once(void **state)
{
	struct win *win0 = win_here(SIZE);
	char *from = message(5000, 1);

	(void)state;
	post((struct braid_rma_hdr){ .what = BRAID_RMA_DATA | BRAID_RMA_SIGNAL, .offset = 8,
				     .size = 5000, .value = 3 }, from);
	post(strong(), NULL);
	pass_frame(A, BRAID_F_EAGER);
	assert_int_equal(null_deliver_some(&pair, A, 0, 2000), 1);
	null_lose(&pair, 0);
	null_settle(&pair);
	assert_int_equal(word_at(win0, 0), 4);
	assert_memory_equal(win0->bytes + 8, from, 5000);
	free(from);
}

static void a_chunk_may_overtake_its_operation(void **state)
{
	struct win *win0 = win_here(SIZE);
	struct braid_rma_hdr h = { .what = BRAID_RMA_BULK | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
				   .offset = 8, .size = 100, .value = 1 };

	(void)state;
	memset(bytes, 7, sizeof(bytes));
	assert_int_equal(forge_chunk(2, 0, 8, 60, 0, 0, bytes), 0);
	assert_int_equal(win0->bytes[8], 7);
	assert_int_equal(forge_op(h, NULL), 0);
	assert_int_equal(word_at(win0, 0), 0);
	assert_int_equal(forge_chunk(1, 0, 68, 40, 0, 0, bytes), 0);
	assert_int_equal(word_at(win0, 0), 1);
}

#define OP .type = BRAID_F_EAGER, .len = BRAID_RMA_HDR_SIZE, .size = BRAID_RMA_HDR_SIZE
#define CHUNK .type = BRAID_F_CHUNK

static const struct {
	const char *what;
	unsigned lane;
	struct braid_hdr h;
} lies[] = {			/* window 0 has 64 bytes; the payload is a signal to its second word */
	{ "an operation skipped", 0, { OP, .seq = 2 } },
	{ "an operation again", 0, { OP, .seq = 0 } },
	{ "an operation with flags", 0, { OP, .seq = 1, .flags = BRAID_FLAG_CREDITED } },
	{ "an operation too long", 0, { .type = BRAID_F_EAGER, .seq = 1, .len = BRAID_COPY_MAX + 1,
					.size = BRAID_COPY_MAX + 1 } },
	{ "an operation too short", 0, { .type = BRAID_F_EAGER, .seq = 1, .len = 40, .size = 40 } },
	{ "a chunk beyond its window", 1, { CHUNK, .offset = 60, .len = 5, .size = 65, .seq = 1 } },
	{ "a chunk far beyond", 2, { CHUNK, .offset = 65, .len = 1, .size = 66, .seq = 1 } },
	{ "a chunk to no window", 1, { CHUNK, .tag = 1, .len = 1, .size = 1, .seq = 1 } },
	{ "a chunk to a window of no number", 1, { CHUNK, .tag = -1, .len = 1, .size = 1, .seq = 1 } },
	{ "a chunk of an epoch that is over", 1, { CHUNK, .len = 1, .size = 1, .seq = 0 } },
	{ "a chunk of an epoch far ahead", 1, { CHUNK, .len = 1, .size = 1, .seq = 1 << 16 | 1 } },
	{ "a chunk that a NIC has written", 1, { CHUNK, .len = 1, .size = 1, .seq = 1,
						 .flags = BRAID_FLAG_PLACED } },
	{ "a window for a target", 0, { .type = BRAID_F_CREDIT, .size = 8, .rseq = 1 } },
	{ "a window closed for a target", 0, { .type = BRAID_F_RETIRE, .n = 1 } },
	{ "a start", 0, { .type = BRAID_F_START, .size = 8 } },
	{ "a want", 0, { .type = BRAID_F_WANT, .size = 8 } },
};

static void lies_to_a_target_are_refused(void **state)
{
	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct win *win0 = win_here(64);
		struct braid_hdr h = lies[i].h;
		struct braid_rma_hdr s = strong();
		int err;

		s.signal_offset = 8;
		assert_int_equal(forge_op(s, NULL), 0);		/* number 0, and epoch 0 */
		memset(bytes, 0, sizeof(bytes));
		braid_rma_pack(&s, bytes);
		h.comm = cr->id;
		err = null_forge(&pair, A, lies[i].lane, &h, bytes);
		if (err != -EBADMSG)
			fail_msg("%s: %d", lies[i].what, err);
		assert_int_equal(word_at(win0, 8), 1);
		teardown_channel(state);
		setup_channel_lanes(state);
	}
}

/* --- its end ------------------------------------------------------------------------------- */

static void operations_left_in_a_channel_are_its_communicators(void **state)
{
	struct braid_rma_op *op = post(strong(), NULL);

	(void)state;
	braid_comm_close(cs);
	assert_ptr_equal(rma[A].lost.next, &op->node);
	assert_true(braid_list_empty(&rma[A].channels));
	null_settle(&pair);
	assert_int_equal(cr->err, -EREMOTEIO);	/* it was given up: the operation waited */
	assert_int_equal(atomic_load(&rma[A].err), 0);
}

static void a_channel_closed_under_traffic_leaves_the_memory_alone(void **state)
{
	for (unsigned target = 0; target < 2; target++) {
		struct win *win0 = win_here(SIZE);
		char *from = message(SIZE, 1);

		post((struct braid_rma_hdr){ .what = BRAID_RMA_BULK, .size = SIZE }, from);
		post((struct braid_rma_hdr){ .what = BRAID_RMA_GET, .size = SIZE }, bytes);
		for (unsigned l = 0; l < 3; l++)
			null_deliver_some(&pair, A, l, 100);
		braid_link_progress(pair.end[B], NULL, NULL);
		null_deliver_some(&pair, B, 1, 100);
		if (target) {
			braid_comm_close(cr);
			win_close(win0);
		} else {
			braid_comm_close(cs);
			memset(from, 0, SIZE);
			free(from);
		}
		null_settle(&pair);
		assert_int_equal(atomic_load(target ? &cs->err : &cr->err), -EREMOTEIO);
		braid_comm_close(target ? cs : cr);
		if (target)
			free(from);
		null_settle(&pair);
		if (null_not_idle(&pair))
			fail_msg("%s", null_not_idle(&pair));
		teardown_channel(state);
		setup_channel_lanes(state);
	}
}

static void the_first_channel_that_fails_is_the_communicators_error(void **state)
{
	(void)state;
	braid_lock_wait(&cs->link->lock);
	ca->adopted = false;			/* connect() would try another link */
	braid_comm_fail(cs, -EREMOTEIO);
	assert_int_equal(atomic_load(&rma[A].err), 0);
	braid_rma_adopt(ca, B);			/* it has returned this one */
	braid_unlock(&cs->link->lock);
	assert_int_equal(atomic_load(&rma[A].err), -EREMOTEIO);
	assert_ptr_equal(atomic_load(&rma[A].failed), cs);
	cb->next_seq = 1;			/* an operation has come */
	braid_lock_wait(&cr->link->lock);
	braid_comm_fail(cr, -ENOMEM);
	braid_unlock(&cr->link->lock);
	assert_int_equal(atomic_load(&rma[B].err), -ENOMEM);
	assert_ptr_equal(atomic_load(&rma[B].failed), cr);
	assert_int_equal(braid_rma_error(cr), -ENOMEM);
	braid_comm_close(cr);
	assert_null(atomic_load(&rma[B].failed));
	assert_int_equal(atomic_load(&rma[B].err), -ENOMEM);
}

/* Its answer was lost, so the peer's connect() goes on by another link. */
static void a_channel_that_fails_before_its_first_operation_is_no_error(void **state)
{
	(void)state;
	braid_lock_wait(&cr->link->lock);
	braid_comm_fail(cr, -EREMOTEIO);
	braid_unlock(&cr->link->lock);
	assert_int_equal(atomic_load(&rma[B].err), 0);
	assert_null(atomic_load(&rma[B].failed));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(whatever_lanes_do_each_byte_is_right_and_each_signal_counted_once,
					  tell_seed),
		CHANNEL(an_operation_may_arrive_in_pieces),
		CHANNEL_LANES(an_operation_half_received_on_a_lost_lane_is_applied_once),
		CHANNEL_LANES(a_chunk_may_overtake_its_operation),
		CHANNEL_LANES(lies_to_a_target_are_refused),
		CHANNEL(operations_left_in_a_channel_are_its_communicators),
		CHANNEL_LANES(a_channel_closed_under_traffic_leaves_the_memory_alone),
		CHANNEL(the_first_channel_that_fails_is_the_communicators_error),
		CHANNEL(a_channel_that_fails_before_its_first_operation_is_no_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
