/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_replay.c - frames are sent again or not at all: over a new carrier, over another lane, or as a
 * VOID once their memory has gone.
 */
#include "tests/unit/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/txq_int.h"

/* The linker gives these the calls of calloc() of all but libraries (tests/local.mk). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool no_calloc;

void *__wrap_calloc(size_t n, size_t size)
{
	return no_calloc ? NULL : __real_calloc(n, size);
}

/* --- letting go of a comm's memory --------------------------------------------------------- */

/* Frame i of four with 100 bytes each is a word without bytes from now on. */
static void want_void(unsigned i)
{
	char *at = f.want;
	struct braid_hdr h;

	for (; i; i--) {
		assert_int_equal(braid_hdr_unpack(at, &h), 0);
		at += BRAID_HDR_SIZE + h.len;
	}
	assert_int_equal(braid_hdr_unpack(at, &h), 0);
	memmove(at + BRAID_HDR_SIZE, at + BRAID_HDR_SIZE + h.len,
		f.nwant - (size_t)(at - f.want) - BRAID_HDR_SIZE - h.len);
	f.nwant -= h.len;
	h = (struct braid_hdr){
		.type = BRAID_F_VOID, .lseq = h.lseq, .comm = h.comm, .seq = h.seq,
	};
	braid_hdr_pack(&h, at);
}

static void what_was_not_handed_over_is_void_when_its_memory_goes_but_never_torn(void **state)
{
	enum { WHOLE = BRAID_HDR_SIZE + 100 };
	char *gone[4];

	for (unsigned cut = 0; cut <= 4 * (BRAID_HDR_SIZE + 100); cut += 13) {
		teardown(state);
		setup(state);
		for (unsigned i = 0; i < 4; i++) {
			gone[i] = malloc(100);
			memset(gone[i], 'a' + (int)i, 100);
			add(NULL, gone[i], 100, send_of(i, 1, i & 1));
		}
		move(cut, IOV, SIZE_MAX / 2);
		assert_int_equal(braid_tx_release(&f.lane, 1), 0);
		if (cut <= 3 * WHOLE)
			want_void(3);
		if (cut <= 1 * WHOLE)
			want_void(1);
		memset(gone[1], 'x', 100);
		memset(gone[3], 'x', 100);
		free(gone[1]);
		free(gone[3]);
		while (move(77, IOV, SIZE_MAX / 2))
			;
		assert_stream();
		assert_int_equal(braid_tx_acked(&f.lane, 4), 0);
		assert_true(is_done(0) && is_done(2));		/* the other comm's */
		assert_false(is_done(1) || is_done(3));		/* their requests are gone */
		free(gone[0]);
		free(gone[2]);
	}
}

/* --- a socket is lost ---------------------------------------------------------------------- */

/* Frames that the peer has not received are sent again, unchanged. */
static void the_rest_goes_again(void **state)
{
	size_t all, at[7] = { 0 };

	five_frames();
	all = f.nwant;
	for (size_t cut = 0; cut <= all; cut += 3) {
		for (uint32_t has = 0; has <= 6; has++) {
			size_t n = 0;

			teardown(state);
			setup(state);
			five_frames();
			for (uint32_t i = 0; i < 6; i++) {
				const struct braid_txf *x = &f.lane.tx.f[i];

				at[i + 1] = at[i] + x->inl + x->ext_len;
			}
			while (n < cut)
				n += move(cut - n, IOV, SIZE_MAX / 2);
			if (at[has] > cut) {
				assert_int_equal(braid_tx_rewind(&f.lane, has), -EPROTO);
				continue;
			}
			assert_int_equal(braid_tx_rewind(&f.lane, has), 0);
			assert_int_equal(f.lane.tx.f_acked, has);
			assert_int_equal(f.lane.tx.unsent, all - at[has]);
			f.ngot = at[has];
			while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
				;
			assert_stream();
			assert_int_equal(braid_tx_acked(&f.lane, 6), 0);
			assert_true(is_done(0) && is_done(1) && is_done(2) && is_done(3) &&
				    is_done(4));
		}
	}
}

static void a_peer_can_not_have_lost_what_it_has_acknowledged(void **state)
{
	(void)state;
	five_frames();
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_int_equal(braid_tx_acked(&f.lane, 4), 0);
	assert_int_equal(braid_tx_rewind(&f.lane, 3), 0);	/* goes on from what there is */
	assert_int_equal(f.lane.tx.f_sent, 4);
	assert_int_equal(braid_tx_rewind(&f.lane, 7), -EPROTO);
}

/* Chunks that were not acknowledged go to another lane, the newest first, and fit in there. */
static void chunks_of_a_lost_lane_go_to_another(void **state)
{
	struct braid_lane other = { .link = &f.link };
	struct braid_hdr h;

	(void)state;
	assert_int_equal(braid_txq_init(&other.tx, RING, FRAMES), 0);
	for (unsigned i = 0; i < 3; i++)
		add(NULL, text + i, 10, send_of(i, 1, 0));
	move(BRAID_HDR_SIZE + 5, IOV, SIZE_MAX / 2);
	assert_int_equal(braid_tx_rewind(&f.lane, 0), 0);
	for (uint32_t i = 0; i < 3; i++) {
		braid_tx_move(&f.lane, &other);
		assert_int_equal(braid_hdr_unpack(other.tx.ring + other.tx.f[i].off, &h), 0);
		assert_int_equal(h.lseq, i);
		assert_int_equal(h.seq, 1000 + 2 - i);
		assert_ptr_equal(other.tx.f[i].ext, text + 2 - i);
	}
	assert_int_equal(f.lane.tx.f_head, 0);
	assert_int_equal(f.lane.tx.unsent, 0);
	assert_int_equal(f.lane.tx.unacked, 0);
	assert_int_equal(other.tx.unacked, 30);
	assert_int_equal(other.tx.unsent, 3 * (BRAID_HDR_SIZE + 10));
	other.tx.f_sent = 3;
	assert_int_equal(braid_tx_acked(&other, 3), 0);
	assert_true(is_done(0) && is_done(1) && is_done(2));
	braid_txq_fini(&other.tx);
}

/* The CPU can't read GPU memory to save the frame.  The lane was fenced, so the frame may be voided. */
static void a_gpus_frame_that_is_half_out_is_void_when_its_memory_goes(void **state)
{
	struct braid_mr mr = { .gpu = true };
	const char *untouchable = (const char *)64;
	struct braid_hdr h;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		h = (struct braid_hdr){ .type = BRAID_F_CHUNK, .len = 100, .size = 100 };
		braid_tx_add(&f.lane, &h, NULL, untouchable, send_of(i, 1, 0));
		f.send[i].mr = &mr;
	}
	braid_tx_advance(&f.lane, BRAID_HDR_SIZE + 40);
	assert_int_equal(braid_tx_release(&f.lane, 0), 0);
	assert_int_equal(f.lane.tx.unacked, 0);
	assert_int_equal(f.lane.tx.unsent, BRAID_HDR_SIZE);
	assert_int_equal(braid_tx_rewind(&f.lane, 0), 0);
	assert_int_equal(f.lane.tx.unsent, 2 * BRAID_HDR_SIZE);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_hdr_unpack(f.lane.tx.ring + f.lane.tx.f[i].off, &h), 0);
		assert_int_equal(h.type, BRAID_F_VOID);
		assert_int_equal(f.lane.tx.f[i].ext_len, 0);
	}
}

static void a_queue_ended_early_leaks_nothing(void **state)
{
	(void)state;
	add(NULL, text, 30, send_of(0, 1, 0));
	add(NULL, text, 30, send_of(1, 1, 0));
	assert_int_equal(braid_tx_release(&f.lane, 0), 0);
	move(BRAID_HDR_SIZE + 5, IOV, SIZE_MAX / 2);
}

/* --- another lane becomes home ------------------------------------------------------------- */

/* Chunks may stay behind, to be sent by another lane later: they are numbered in a row then. */
static void what_is_no_chunk_goes_to_the_new_home_alone(void **state)
{
	static const uint8_t type[] = {
		BRAID_F_START, BRAID_F_CHUNK, BRAID_F_ALIVE, BRAID_F_CHUNK, BRAID_F_ACK,
	};
	const struct braid_transport tr = { .name = "none" };
	struct braid_lane to = { .link = &f.link, .tr = &tr };
	struct braid_txq *q = &f.lane.tx;
	static char data[2][256];
	struct braid_hdr h;
	unsigned chunks = 0;

	(void)state;
	assert_int_equal(braid_txq_init(&to.tx, 1 << 16, 64), 0);
	for (unsigned i = 0; i < sizeof(type); i++) {
		bool chunk = type[i] == BRAID_F_CHUNK;

		h = (struct braid_hdr){ .type = type[i], .n = (uint16_t)i };
		if (chunk)
			h.len = (uint32_t)(h.size = 128u << chunks);
		braid_tx_add(&f.lane, &h, NULL, chunk ? data[chunks++] : NULL, NULL);
	}
	assert_int_equal(braid_tx_take_over(&f.lane, &to, true), 0);
	assert_int_equal(to.tx.f_head - to.tx.f_acked, 3);
	assert_int_equal(to.tx.unsent, 3 * BRAID_HDR_SIZE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(braid_hdr_unpack(to.tx.ring + to.tx.f[i].off, &h), 0);
		assert_int_equal(h.type, type[2 * i]);
		assert_int_equal(h.lseq, i);
	}
	assert_int_equal(q->f_head - q->f_acked, 2);
	assert_int_equal(q->unsent, 2 * BRAID_HDR_SIZE + 128 + 256);
	assert_int_equal(q->unacked, 128 + 256);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_hdr_unpack(q->ring + q->f[i].off, &h), 0);
		assert_int_equal(h.n, 2 * i + 1);
		assert_int_equal(h.lseq, i);
		assert_ptr_equal(q->f[i].ext, data[i]);
	}
	/* The rest moves like the chunks of a lane that never was home. */
	while (q->f_head != q->f_acked)
		braid_tx_move(&f.lane, &to);
	assert_int_equal(q->head, q->tail);
	assert_int_equal(q->unsent, 0);
	assert_int_equal(to.tx.unacked, 128 + 256);
	braid_txq_fini(&to.tx);
}

/* An old home without queues gives the new one none: the next attach would lose them. */
static void an_idle_link_changes_home_without_queues(void **state)
{
	const struct braid_transport tr = { .name = "none" };
	struct braid_lane to = { .link = &f.link, .tr = &tr };

	(void)state;
	braid_txq_fini(&f.lane.tx);
	assert_int_equal(braid_tx_take_over(&f.lane, &to, false), 0);
	assert_null(to.tx.ring);
	assert_null(to.tx.f);
}

static struct braid_kept *kept_of(char *ring)
{
	struct braid_kept *k = malloc(sizeof(*k));

	*k = (struct braid_kept){ .ring = ring };
	return k;
}

/* The frames of both lanes, and a ring that a NIC may still read, are as they were. */
static void a_home_without_memory_for_more_frames_keeps_its_own(void **state)
{
	const struct braid_transport tr = { .name = "none", .dma = true };
	struct braid_lane to = { .link = &f.link, .tr = &tr };
	struct braid_hdr h = { .type = BRAID_F_ALIVE };
	struct braid_txq was;

	(void)state;
	assert_int_equal(braid_txq_init(&to.tx, RING, FRAMES), 0);
	to.tx.kept = kept_of(malloc(RING));
	braid_tx_add(&to, &h, NULL, NULL, NULL);
	five_frames();
	was = to.tx;
	no_calloc = true;
	assert_int_equal(braid_tx_take_over(&f.lane, &to, false), -ENOMEM);
	no_calloc = false;
	assert_memory_equal(&to.tx, &was, sizeof(was));
	assert_int_equal(f.lane.tx.f_head - f.lane.tx.f_acked, 6);
	assert_int_equal(braid_tx_take_over(&f.lane, &to, false), 0);
	assert_int_equal(to.tx.f_head - to.tx.f_acked, 7);
	assert_ptr_equal(to.tx.kept->ring, was.ring);
	assert_ptr_equal(to.tx.kept->next, was.kept);
	braid_txq_fini(&to.tx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_was_not_handed_over_is_void_when_its_memory_goes_but_never_torn),
		CASE(the_rest_goes_again),
		CASE(a_peer_can_not_have_lost_what_it_has_acknowledged),
		CASE(chunks_of_a_lost_lane_go_to_another),
		CASE(a_gpus_frame_that_is_half_out_is_void_when_its_memory_goes),
		CASE(a_queue_ended_early_leaks_nothing),
		CASE(what_is_no_chunk_goes_to_the_new_home_alone),
		CASE(an_idle_link_changes_home_without_queues),
		CASE(a_home_without_memory_for_more_frames_keeps_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
