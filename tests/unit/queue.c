/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.c - see queue.h. */
#include "tests/unit/queue.h"

#include <string.h>

#include "core/link/txq.h"

struct fixture f;
const char text[TEXT] = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.";

int setup(void **state)
{
	(void)state;
	memset(&f, 0, sizeof(f));
	f.lane.link = &f.link;
	braid_lock_wait(&f.link.lock);
	return braid_txq_init(&f.lane.tx, RING, FRAMES);
}

int teardown(void **state)
{
	(void)state;
	braid_txq_fini(&f.lane.tx);
	return 0;
}

struct braid_xfer *send_of(unsigned i, unsigned parts, unsigned comm)
{
	f.done[i] = false;
	f.send[i] = (struct braid_xfer){ .comm = comm, .parts = parts, .done = &f.done[i] };
	return &f.send[i];
}

bool is_done(unsigned i)
{
	return atomic_load(&f.done[i]);
}

void add(const char *copy, const char *ext, size_t len, struct braid_xfer *owner)
{
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .len = (uint32_t)len, .size = len, .seq = 1000 + f.queued,
	};

	braid_tx_add(&f.lane, &h, copy, ext, owner);
	assert_int_equal(h.lseq, f.lane.tx.f_head - 1);
	braid_hdr_pack(&h, f.want + f.nwant);
	f.nwant += BRAID_HDR_SIZE;
	if (len)
		memcpy(f.want + f.nwant, copy ? copy : ext, len);
	f.nwant += len;
	f.queued++;
}

struct braid_piece gather(struct iovec *iov, int max, size_t budget)
{
	struct braid_can can = { .iov = iov, .niov = max, .max = budget };
	struct braid_piece p = { .bytes = 0 };

	braid_lane_next(&f.lane, &can, &p);
	return p;
}

size_t move(size_t n, int max, size_t budget)
{
	struct iovec iov[IOV];
	size_t sum = 0, left;
	struct braid_piece p = gather(iov, max, budget);
	int count = p.niov;

	assert_true(count <= max);
	for (int i = 0; i < count; i++)
		sum += iov[i].iov_len;
	assert_int_equal(sum, p.bytes);
	if (n > p.bytes)
		n = p.bytes;
	left = n;
	for (int i = 0; i < count && left; i++) {
		size_t len = iov[i].iov_len < left ? iov[i].iov_len : left;

		memcpy(f.got + f.ngot, iov[i].iov_base, len);
		f.ngot += len;
		left -= len;
	}
	braid_tx_advance(&f.lane, n);
	return n;
}

void assert_stream(void)
{
	assert_int_equal(f.ngot, f.nwant);
	assert_memory_equal(f.got, f.want, f.nwant);
}

void five_frames(void)
{
	add(NULL, NULL, 0, NULL);
	add(text, NULL, 11, send_of(0, 1, 0));
	add(NULL, text + 3, 50, send_of(1, 1, 0));
	add(NULL, NULL, 0, send_of(2, 1, 0));
	add(text, NULL, TEXT, send_of(3, 1, 0));
	add(NULL, text, 1, send_of(4, 1, 0));
}
