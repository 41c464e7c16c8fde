/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucopy.h - bytes of a GPU's memory, which the CPU never touches, to or from our own.
 *
 * The NICs of the device are asked first: what they write is ordered as what a peer's would.  If
 * none does it, its device being gone, the driver does (gdr/stage.h).  Neither is waited for but
 * for some microseconds: whoever needs the bytes asks again.  While a copy is under way its link is
 * moved, if nobody else calls, by the service thread.
 */
#ifndef BRAID_CORE_GPUCOPY_H
#define BRAID_CORE_GPUCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport.h"

struct braid_mr;
struct braid_staged;

struct braid_gpucopy {
	const struct braid_mr *mr;	/* NULL: nothing is under way */
	const struct braid_mr *of;	/* the same, and stays */
	struct braid_gpu_copy left;
	unsigned way;			/* whose turn it is */
	struct braid_staged *piece;	/* of the driver's, under way */
	size_t piece_len;
	bool lost;			/* it has failed, and may write there yet */
	uint64_t until_ns;		/* then it must be over; 0: it was not begun */
	int nic_err, stage_err;		/* why they did not do it */
};

void braid_gpucopy_begin(struct braid_gpucopy *c, const struct braid_mr *mr, char *at, void *own,
			 size_t len, bool to_gpu);
/* 0: it is done; -EAGAIN: not yet; else nobody can do it.  But for -EAGAIN, c->mr is then NULL. */
int braid_gpucopy_move(struct braid_gpucopy *c);
/*
 * Give it up, if it is under way: afterwards nothing reads or writes that memory, nor our own.  A
 * NIC's queue pair is ended; the driver is waited for, a few seconds if it must be.  A driver that
 * has not copied a piece by then has stopped, which is said in a WARN.
 */
void braid_gpucopy_end(struct braid_gpucopy *c);

#endif
