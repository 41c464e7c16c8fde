/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stub.h - a link by itself, for tests of core/link.
 *
 * The message layer above the link and the transport below it are stubs, which count their calls
 * and do as a case says.  What a lane sends is kept, and a case reads it frame by frame.  Clock,
 * log and wakeups of the service thread are the test's, too.  Every call into the message layer
 * asserts that the link's lock is held.
 */
#ifndef BRAID_TESTS_UNIT_STUB_H
#define BRAID_TESTS_UNIT_STUB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/dev.h"
#include "core/link/link.h"
#include "core/link/upcalls.h"

enum { STUB_LANES = 4, STUB_PAYLOAD = 1 << 18, STUB_WIRE = 1 << 20 };

extern const struct braid_transport stub_socket, stub_nic;	/* the latter has `dma` and `blob` */

struct stub_lane {			/* a lane's transport, by the lane's index */
	size_t takes;			/* bytes that the carrier takes, before -EAGAIN */
	int push_err, poll;		/* the answer of push(), if not 0; of poll() */
	int open_err, attach_err;
	unsigned pushes, polls, attaches, detaches, fences, closes;
	int closed_fd;			/* the lane's descriptor, at the last close */
	char *wire;			/* what was sent and not read by the case */
	size_t n;
};

struct stub {
	struct braid_dev dev;
	struct braid_link *link;
	struct stub_lane lane[STUB_LANES];
	uint64_t ns;
	unsigned wakes;
	void (*on_wake)(void);
	unsigned order[64], norder;	/* the lanes that were polled or pushed, in order */

	/* The message layer. */
	int init_err;			/* of braid_comms_init() */
	unsigned ended;			/* calls of braid_comms_end() */
	bool ctl_due;			/* a comm's control frame, an ALIVE, is due */
	unsigned ctl_calls;		/* of braid_comms_send_control() */
	bool copying;			/* braid_comm_deliver() does not complete */
	unsigned deliveries, leaves;
	bool waits;			/* a caller waits for the link */
	int failed;			/* the last error that comms failed with */
	unsigned fails;
	int begin_err, end_err, open_err, imm_err;
	bool fast;			/* whole messages are for the oldest receive */
	struct braid_hdr begun;		/* the last frame that began */
	unsigned begins, ends, opens, undos, imms, fasts;
	unsigned imm_slot;
	bool imm_whole;
	char in[STUB_PAYLOAD];		/* where payload goes */
	const struct braid_mr *in_mr;	/* its registration, if it is GPU memory */

	unsigned infos, warns;
	char info[1024], warn[1024];	/* the last ones */
};
extern struct stub stub;

/* A link with n lanes of that transport, attached and up. */
void stub_up(const struct braid_transport *tr, unsigned n);
void stub_add_lane(const struct braid_transport *tr);
void stub_down(void);
struct braid_lane *stub_at(unsigned lane);

void stub_lock(void);
void stub_unlock(void);

/* The next frame that the lane has sent, which must be whole; false: none. */
bool stub_sent(unsigned lane, struct braid_hdr *ret);
/* The next frame, which must be of that type. */
struct braid_hdr stub_expect(unsigned lane, enum braid_frame type);
void stub_expect_none(unsigned lane);
/* The peer sends a frame on that lane, numbered as the next; returns the error of receiving it. */
int stub_receive(unsigned lane, struct braid_hdr h, const void *payload);
/* Queue a frame without payload, or a chunk of `len` bytes, on a lane. */
void stub_add(unsigned lane, enum braid_frame type);
void stub_add_chunk(unsigned lane, uint32_t len, struct braid_xfer *owner);

/* Push a lane; returns the bytes sent. */
size_t stub_push(unsigned lane);

extern const struct braid_xfer_ops stub_xfer_ops;
struct stub_send {			/* a large message: chunks to cut */
	struct braid_xfer x;
	atomic_bool done;
	bool start_due;
	unsigned left;			/* chunks */
	uint32_t len;			/* of each */
};
/* Queue a message of so many chunks. */
void stub_send(struct stub_send *s, unsigned chunks, uint32_t len);

#endif
