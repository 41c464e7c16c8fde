/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * upcalls.h - all that a link asks of the message layer, which core/msg defines.
 *
 * This is the only way up from core/link.  The calls are direct, so that link-time optimisation can
 * inline them.  All but the first two are made with the link's lock held.
 */
#ifndef BRAID_LINK_UPCALLS_H
#define BRAID_LINK_UPCALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/link/xfer.h"

struct braid_hdr;
struct braid_lane;
struct braid_link;
struct braid_open;

/* Limits of messages that both layers know. */
enum {
	BRAID_RECVS_MAX = 8,			/* buffers of one receive request */
	BRAID_SLOTS = 32 * BRAID_RECVS_MAX,	/* open sends, or receive entries, of one comm */
};

/* Prepare a new link for comms, before other threads know the link: 0 or -ENOMEM. */
int braid_comms_init(struct braid_link *link);
/* Undo braid_comms_init() while the link is freed.  Its lanes are gone. */
void braid_comms_end(struct braid_link *link);

/* --- sending ------------------------------------------------------------------------------- */

/* Queue the control frames of comms that are due; false: no room for all. */
bool braid_comms_send_control(struct braid_link *link);

/* --- receiving ----------------------------------------------------------------------------- */

/*
 * The frame in lane->rx_hdr begins: decide where its payload goes.  Frames of a comm that is gone
 * are dropped.  0, or a negative errno, which ends the link.
 */
int braid_comm_rx_begin(struct braid_lane *lane);
/* The frame's payload is complete.  As above, or -EAGAIN: it is still being copied, call again. */
int braid_comm_rx_end(struct braid_lane *lane);
/* The payload of an OPEN is in lane->rx_ctl: make the comm, or refuse it. */
int braid_open_came(struct braid_lane *lane);
/* Fill in lane->rx_hdr for a message that came without header; `seq`: low half of its number. */
void braid_comm_rx_nohdr(struct braid_lane *lane, uint16_t seq);
/*
 * Fast path of a message that is here whole: if it is small, and for the oldest receive, copy its
 * payload there and complete the receive.  False: it is not, and nothing was changed; or, of
 * one-sided operations, one is wrong, and rx_end() says so.
 */
bool braid_comm_rx_fast(struct braid_lane *lane, const char *payload);	/* an EAGER in rx_hdr */
/* The same without a header: `imm` of braid_short(). */
bool braid_comm_rx_nohdr_fast(struct braid_link *link, uint32_t imm, const char *payload,
			      size_t size);
/* The NIC wrote the chunk of lane->rx_hdr into that slot's receive.  whole: it is the message. */
int braid_comm_rx_imm(struct braid_lane *lane, unsigned slot, bool whole);
/*
 * Where the payload of a chunk that has not begun will go; NULL: not known yet, ask later.
 * *ret_gpu: its registration, if it is GPU memory, which only a lane with lane->gpu gets.
 */
char *braid_comm_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
			  const struct braid_mr **ret_gpu);
/* Forget the chunk half received on this lane: it will be sent again. */
void braid_comm_rx_undo(struct braid_lane *lane);

/* --- on other occasions -------------------------------------------------------------------- */

/* Advance the copies of unexpected messages into GPUs; false: some are not complete. */
bool braid_comm_deliver(struct braid_link *link);
void braid_comm_leave(struct braid_link *link);	/* end the copies of failed comms */
/* Does a caller depend on a comm that fails with the link? */
bool braid_comms_wait(const struct braid_link *link);
/* Fail the comms of a link that failed, except receive comms that have all their data. */
void braid_comms_fail(struct braid_link *link, int err);

#endif
