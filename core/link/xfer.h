/* SPDX-License-Identifier: BSD-3-Clause */
/* xfer.h - all that a lane, and a transport, know of the message whose bytes they carry. */
#ifndef BRAID_LINK_XFER_H
#define BRAID_LINK_XFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/mem/mr.h"

struct braid_gpucopy;
struct braid_lane;
struct braid_xfer;

enum { BRAID_COPY_MAX = 8192 };		/* messages up to this size are copied when posted */

struct braid_xfer_ops {		/* calls up to the message layer, with the link's lock held */
	/* Queue its next chunk on this lane; false: no room for that. */
	bool (*cut)(struct braid_lane *lane, struct braid_xfer *x);
	/* GPU memory can't be read: `copy` failed; NULL: no host memory for a copy. */
	void (*no_gpu)(struct braid_xfer *x, const struct braid_gpucopy *copy);
	/* Only if it reads (core/link/reads.h): `len` bytes are here; not `read`: they are lost. */
	void (*read_over)(struct braid_xfer *x, uint32_t len, bool read);
	/* Only if it sets posted_ns: all of it is done. */
	void (*timed)(const struct braid_xfer *x);
};

enum braid_xfer_imm {			/* what immediate data may name one of its chunks by */
	BRAID_XFER_BY_RECV,		/* the receive that it belongs to */
	BRAID_XFER_BY_HDR,		/* nothing: it needs its header */
	BRAID_XFER_BY_SLOT,		/* `slot` and `slot_turn` */
};

/* Part of struct braid_send (core/msg/comm.h). */
struct braid_xfer {
	const struct braid_xfer_ops *ops;
	struct braid_list node;		/* link->tx.pending: chunks are left to cut */
	uint32_t comm;			/* its id */
	uint32_t seq;			/* its number in the comm */
	uint32_t parts;			/* frames not done; +1 while something is left to cut */
	bool same_tag;			/* as the comm's message before it */
	bool until_acked;		/* copied frames, too, are done once acknowledged */
	enum braid_xfer_imm imm;
	uint8_t slot, slot_turn;	/* BY_SLOT */
	atomic_bool *done;		/* set when no part is left */
	struct braid_xfer *joined;	/* others in its only frame, done when it is; or NULL */
	uint64_t posted_ns;		/* when posted, if it is one of those timed; else 0 */
	struct braid_mr *mr;		/* of its memory; or NULL */
	struct braid_place to;
};

static inline void braid_xfer_part_done(struct braid_xfer *x)
{
	struct braid_xfer *next;

	if (--x->parts)
		return;
	if (__builtin_expect(x->posted_ns != 0, false))
		x->ops->timed(x);
	for (; x; x = next) {		/* once it is done, its owner may use it again */
		next = x->joined;
		atomic_store_explicit(x->done, true, memory_order_release);
	}
}

static inline bool braid_xfer_is_gpu(const struct braid_xfer *x)
{
	return x && x->mr && x->mr->gpu;
}

#endif
