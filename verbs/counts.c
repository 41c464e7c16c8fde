/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counts.c - the words that the peer writes into our memory: its counts of received frames and of
 * slots posted again, and its window.
 *
 * They are read when the peer's slots are used up, and the first of them by every poll.
 */
#include <endian.h>

#include "core/base/crc32c.h"
#include "core/base/os.h"
#include "verbs/verbs.h"

/* While the NIC writes, some words are still old: a checksum that is wrong may be right soon. */
BRAID_APART bool braid_verbs_counts(const struct braid_lane *lane, struct braid_qp *w,
				    uint32_t ret[2])
{
	uint32_t words[3];
	bool same, fits;

	braid_assert_locked(&lane->link->lock);
	for (unsigned i = 0; i < 3; i++)
		words[i] = atomic_load_explicit(&w->m->ack[i], memory_order_acquire);
	ret[0] = le32toh(words[0]);
	ret[1] = le32toh(words[1]);
	same = ret[0] == w->ack_seen && ret[1] == w->count_seen;
	fits = !lane->link->checksums || braid_crc32c(0, words, 8) == le32toh(words[2]);
	if (same || fits)
		atomic_store_explicit(&w->odd_ns, 0, memory_order_relaxed);
	else if (!atomic_load_explicit(&w->odd_ns, memory_order_relaxed))
		atomic_store_explicit(&w->odd_ns, braid_os->now_ns(), memory_order_relaxed);
	return !same && fits;
}

void braid_verbs_window(struct braid_lane *lane, struct braid_qp *w)
{
	uint32_t word = le32toh(atomic_load_explicit(&w->m->ack[BRAID_ACK_WINDOW],
						     memory_order_acquire));
	uint32_t n = word & 0xffff;

	braid_assert_locked(&lane->link->lock);
	if (!word || word == braid_window_word(w->wr_max))
		return;
	if (word == braid_window_word(n) && n > w->wr_max && n <= w->peer.slots &&
	    n <= BRAID_SLOTS_RX) {
		w->wr_max = n;
		return;
	}
	lane->rx_broken = "a window that it can't have";
	atomic_store(&w->broken, true);		/* the next poll reports it */
}
