/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - the contract between the core and a transport.
 *
 * A transport moves frames of a lane and does nothing else.  The core owns what every transport
 * would otherwise repeat: devices, the handle, the handshake, links, comms, matching, credits,
 * windows, requests, acknowledgements, parameters, logs.
 *
 * For every member:
 *   - 0 is success, a negative errno failure.  -EAGAIN means "not now, nothing changed": it is no
 *     error and never logged.
 *   - Nothing waits.
 *   - Lanes come from the core, zeroed, lane_size bytes long with struct braid_lane first.
 *   - All members are set.
 *
 * Locks: every lane call but lane_open() is made with the lane's `io` lock held, so one thread at
 * a time moves a lane.  The queue of frames (core/lane.h) and the upward calls (core/link.h:
 * braid_rx_begin, braid_rx_end) belong to the link's lock.  A transport takes that lock by trying
 * and comes back later if it can't; it lets go of it while it copies more than
 * BRAID_COPY_LOCKED bytes, so that several threads copy on several lanes at once.
 */
#ifndef BRAID_CORE_TRANSPORT_H
#define BRAID_CORE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct braid_lane;

enum {				/* ids on the wire */
	BRAID_TRANSPORT_TCP = 1,
	BRAID_TRANSPORT_VERBS,
	BRAID_TRANSPORT_SMC,
	BRAID_TRANSPORT_UCX,
};

enum { BRAID_COPY_LOCKED = 16384, BRAID_CALL_BUDGET = 1 << 20 };

struct braid_health {			/* what the wire says of a lane */
	bool unacked;			/* bytes are under way that the peer's host has not taken */
	unsigned resent;		/* times in a row that they were sent again */
	unsigned rtt_ms;		/* to the peer's host and back */
};

struct braid_transport {
	const char *name;
	uint8_t id;
	size_t lane_size;

	/* Take over lane->fd, which has just authenticated itself. */
	int (*lane_open)(struct braid_lane *lane);
	/* Memory for traffic: taken when the first comm attaches, given back after the last. */
	int (*lane_attach)(struct braid_lane *lane);
	void (*lane_detach)(struct braid_lane *lane);
	/* A fence: afterwards nothing of this lane reads or writes anybody's memory.  Any state. */
	void (*lane_close)(struct braid_lane *lane);

	/*
	 * Hand queued frames to the wire, at most BRAID_CALL_BUDGET bytes, and tell the queue
	 * (braid_tx_advance).  Called with the link's lock held, which it drops while it moves
	 * more than BRAID_COPY_LOCKED bytes; never from two threads at once.  0: none is left or
	 * the budget is spent; -EAGAIN: the wire takes no more now; else the lane is dead.
	 */
	int (*push)(struct braid_lane *lane);
	/*
	 * Take what has arrived, at most BRAID_CALL_BUDGET bytes.  Returns how many frames or
	 * pieces were taken (0: nothing there), or a negative errno: the lane is dead.
	 */
	int (*poll)(struct braid_lane *lane);
	/* How is it?  Called by the service thread, with no lock, now and then. */
	int (*health)(struct braid_lane *lane, struct braid_health *ret);
};

/* All of them, NULL-terminated: plugin/device.c is the one place that names them. */
extern const struct braid_transport *const braid_transports[];
const struct braid_transport *braid_transport_find(uint8_t id);

#endif
