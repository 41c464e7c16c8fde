/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - the operations of a channel: what EAGER frames carry on a comm for one-sided traffic.
 *
 * docs/dev/wire.md, One-sided, says what each means.
 */
#ifndef BRAID_PROTO_RMA_H
#define BRAID_PROTO_RMA_H

#include <stddef.h>
#include <stdint.h>

enum {
	BRAID_RMA_HDR_SIZE = 48,
	BRAID_RMA_CONTEXTS = 256,	/* orders that one channel keeps apart */
	BRAID_RMA_SLOTS = 64,		/* puts whose chunks immediate data can name at a time */
	BRAID_RMA_TURNS = 128,		/* puts by one slot that it can tell apart */
	BRAID_RMA_SLOT = 1 << 16,	/* in `id` of BULK, with the turn times 256, and the slot */
	BRAID_RMA_TAKES_SLOTS = 1,	/* in n of a CREDIT */
	BRAID_RMA_TAKES_JOINED = 2,	/* the same: several operations in a frame */
};

enum braid_rma_what {
	BRAID_RMA_DATA = 1,	/* `size` bytes follow: they go to `offset` of `window` */
	BRAID_RMA_BULK = 2,	/* `size` bytes come in chunks; `id`: a slot, or 0 */
	BRAID_RMA_SIGNAL = 4,	/* add `value` to the word at `signal_offset` of `signal_window` */
	BRAID_RMA_ORDERED = 8,	/* SIGNAL: once all that its context sent before is here */
	BRAID_RMA_GET = 16,	/* send these `size` bytes, in chunks of number `id` */
	BRAID_RMA_RANK = 32,	/* the sender's rank is `id`: the first of a channel */
};

struct braid_rma_hdr {
	uint8_t what;
	uint8_t context;
	uint32_t window;
	uint64_t offset, size;
	uint32_t signal_window;
	uint32_t id;
	uint64_t signal_offset, value;
};

void braid_rma_pack(const struct braid_rma_hdr *h, void *to);
/*
 * `n`: bytes of the frame's payload from here on.  Returns those of this operation and its data, or
 * -EBADMSG: there is no such operation, or it lacks bytes.
 */
int braid_rma_unpack(const void *from, size_t n, struct braid_rma_hdr *ret);

#endif
