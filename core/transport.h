/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - the contract between the core and a transport.
 *
 * A transport moves frames of a lane and does nothing else.  The core owns what every transport
 * would otherwise repeat: devices, the handle, the handshake, links, comms, matching, credits,
 * windows, requests, acknowledgements, parameters, logs.
 *
 * For all functions of struct braid_transport and struct braid_gpu:
 *   - 0 is success, a negative errno failure.  -EAGAIN means "not now, nothing changed": it is no
 *     error and never logged.
 *   - Nothing waits.  A driver call that may sleep is a job for the threads of core/mem/later.h.
 *     Only reg() and dereg() may sleep: their callers hold no lock.
 *   - Lanes come from the core, zeroed, lane_size bytes long with struct braid_lane first.
 *   - None may be NULL, except `post`, `read`, `lands`, `lane_rest` and `keeps_key`, and `gpu` as a
 *     whole.
 *
 * Locks: poll() is called with the lane's `io` lock held, so one thread at a time reads a lane.
 * push() and post() are called with the link's lock held, which also guards the queue of frames
 * (core/link/lane.h) and the upward calls (core/link/lane_io.h: braid_rx_*()).  poll()
 * only tries to take the link's lock, and returns if it is held.  A transport drops the link's lock
 * while it copies more than BRAID_COPY_LOCKED bytes, so that several threads copy on several lanes
 * at once.  No other thread uses a lane while it is attached, detached, fenced or closed.
 */
#ifndef BRAID_CORE_TRANSPORT_H
#define BRAID_CORE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/base/transports.h"
#include "core/gpu.h"
#include "core/proto/hello.h"

struct braid_dev;
struct braid_lane;
struct braid_read;

enum {
	BRAID_COPY_LOCKED = 16384,	/* larger copies are made without the link's lock */
	BRAID_CALL_BUDGET = (1 << 20) + 4096,	/* bytes that one push() or poll() moves at most:
						 * a message of 1 MiB and its headers fit */
};

struct braid_key {			/* how a NIC addresses registered memory */
	void *mr;
	uint32_t local, remote;
	int gpu;			/* the GPU it belongs to; -1: host memory, or not known */
	bool sealed;			/* registered read-only: `remote` has no meaning */
};

struct braid_mem {			/* a buffer of the user's */
	void *data;
	size_t size;
	bool gpu;			/* GPU memory, which the CPU never touches */
	bool send_only;			/* of a send comm: the peer's NIC must not write there */
	bool readable;			/* a window: peers' NICs may also read it */
	int gpu_index;			/* the driver's number of the GPU; -1: not known */
	uint64_t gpu_id;		/* of the allocation, as in gdr/cuda.h; 0: not known */
	int fd;				/* its DMA-BUF, where it begins at `offset`; -1: none */
	uint64_t offset;
};

struct braid_health {			/* how the carrier of a lane is doing */
	bool unacked;			/* the peer's host has not acknowledged all bytes */
	bool held_back;			/* bytes don't leave, although the peer would take them */
	unsigned resent;		/* retransmissions in a row */
	unsigned rtt_ms;		/* round trip to the peer's host */
	uint32_t segment;		/* payload of a packet; 0: not known to this host */
	uint64_t acked;			/* bytes the peer's host has acknowledged, ever */
	bool old_key;			/* its key has been used for long: replace the carrier */
};

struct braid_wire_state {		/* the state of a carrier, for people */
	uint64_t resent;		/* packets, ever, by the present carrier */
	char text[160];			/* may be "" */
};

struct braid_setup {			/* set-up of one lane, over an authenticated socket */
	struct braid_dev *dev;		/* the member that the socket belongs to */
	const struct sockaddr *to;	/* the peer's address */
	unsigned lane;
	bool again;			/* the lane had a carrier before: another path is better */
	int traffic_class;
	bool dialler;
	bool reversed;			/* dialler: what it connects does not get through; the peer
					 * is to connect whatever the transport connects */
	bool has_ticket;		/* `ticket` is set, from wire version 2 on */
	unsigned try_ms;		/* to wait for a first packet's answer, if there is one */
	uint8_t ticket[BRAID_MAC_SIZE];	/* only the two ends know it: see braid_auth_ticket() */
	void *priv;			/* made by setup(), taken over by lane_open() */
	const char *failed;		/* the library call that failed, for people; or NULL */
	char why[160];			/* text for people in place of the errno; or "" */
};

struct braid_transport {
	const char *name;
	uint8_t id;
	bool dma;			/* the NIC uses user memory until lane_fence(); without
					 * dma, lane->lent says so of memory that is read */
	bool ports;			/* its ports are not chosen by the names of interfaces */
	bool copies;			/* push() and poll() copy bytes: core/link/mover.h */
	size_t lane_size;

	/*
	 * At init: set dev->port[id] of each device to what this transport needs to use it, and
	 * add devices that no other transport found.  Finding none is success; `why`, if not NULL,
	 * then gets the reason in one line.
	 */
	int (*probe)(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len);
	/* Can dev carry a lane now, as far as this end knows?  Without a lock; never waits. */
	bool (*usable)(const struct braid_dev *dev);
	bool (*keeps_key)(void);	/* must the peer keep its key?  NULL: it may change it */
	/* A descriptor for a device's events that belong to no lane; -1: none. */
	int (*event_fd)(const struct braid_dev *dev);
	/*
	 * Read those events.  The service thread calls this when the descriptor is readable, and
	 * when the thread ends.  True: more is coming, and is worth a moment's wait at the end.
	 */
	bool (*events)(struct braid_dev *dev);
	/* Register host memory: from now on the NIC may access it.  *ret: keys on dev. */
	int (*reg)(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret);
	void (*dereg)(struct braid_dev *dev, struct braid_key *key);
	const struct braid_gpu *gpu;	/* NULL: no GPU memory over this transport */

	/* The handshake exchanges BRAID_BLOB_SIZE bytes; lane->fd only shows if the peer ends. */
	bool blob;			/* false: frames use lane->fd; no set-up calls */
	bool blind;			/* health() can't see if the peer's host acknowledges */
	bool slow;			/* set-up limit: half BRAID_HANDSHAKE_TIMEOUT; false: 1 s */
	unsigned rest_s;		/* after set-up failed on a path, only sockets use it for at
					 * least so many seconds; 0: core/setup/path.c decides */
	/*
	 * Make s->priv and fill `mine`, which the peer gets; the accepting end has `theirs`.
	 * 0, or -EAGAIN: call again in a moment.  -EALREADY, also from setup_peer() and
	 * setup_ready(): set-up with this peer failed recently, and that has been reported.
	 */
	int (*setup)(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
	/* At the dialling end: the peer's bytes have arrived. */
	int (*setup_peer)(struct braid_setup *s, const uint8_t *theirs);
	/* Is s->priv ready for a lane?  0, or -EAGAIN: ask again in a moment. */
	int (*setup_ready)(struct braid_setup *s);
	/* Free s->priv.  May be called at any time, unless lane_open() has taken s->priv. */
	void (*setup_drop)(struct braid_setup *s);

	/* Take over lane->fd, whose peer has just been authenticated, and lane->priv. */
	int (*lane_open)(struct braid_lane *lane);
	/*
	 * Allocate memory for traffic when the first comm attaches; free it after the last.  If
	 * another lane then fails to attach, lane_attach() is later called again, without
	 * lane_detach() in between.  lane_detach() is called with the lane's io lock held and
	 * the link's, and while no thread pushes.
	 */
	int (*lane_attach)(struct braid_lane *lane);
	void (*lane_detach)(struct braid_lane *lane);
	/*
	 * With dma: the lane is at rest, so give back what the next use can have again in the
	 * background.  True: the NIC does not read the queue of frames now.  False: it may, ask
	 * again later.  Called with the lane's io lock and the link's.  NULL: it always may.
	 */
	bool (*lane_rest)(struct braid_lane *lane);
	/*
	 * Close a lane in any state.  Afterwards it reads and writes no user memory, except by a
	 * NIC that was asked to stop and has not yet stopped: see braid_stops_mark().
	 */
	void (*lane_close)(struct braid_lane *lane);
	/* Stop access to user memory as lane_close() does, but keep lane->fd open. */
	void (*lane_fence)(struct braid_lane *lane);
	/*
	 * May memory of that comm be filled between calls of poll(), other than by chunks written
	 * with the keys of a credit?  NULL: never.  Called while no thread moves the link.
	 */
	bool (*lands)(const struct braid_lane *lane, uint32_t comm);
	/*
	 * Before the service thread sleeps: make lane->event_fd, if any, readable on arrivals and,
	 * without dma, writable if lane->blocked.  The caller polls once more for what came before.
	 * False: the lane always has work left, and the next tick tries again.
	 */
	bool (*arm)(struct braid_lane *lane);

	/*
	 * Hand at most BRAID_CALL_BUDGET queued bytes to the carrier and call braid_tx_advance().
	 * Never called from two threads at once.  0: none is left or the budget is spent; -EAGAIN:
	 * the carrier takes no more now; else the lane is dead.
	 */
	int (*push)(struct braid_lane *lane);
	/*
	 * Send the payload of the next frame, which lies in the ring, before the frame is queued.
	 * `imm`, or the short header in front of the payload, replaces its header.
	 * 0: it was sent; else the frame is sent like any other.  NULL: not supported.
	 */
	int (*post)(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len);
	/*
	 * Have the NIC read the peer's memory, and call braid_reads_over() when that is done, in
	 * the order of these calls.  0, or -EAGAIN: not now.  Only after braid_reads_offer().
	 */
	int (*read)(struct braid_lane *lane, struct braid_read *r);
	/*
	 * Read what has arrived, at most BRAID_CALL_BUDGET bytes.  Returns how many frames or
	 * pieces were read, 0 if nothing had arrived, or a negative errno: the lane is dead.
	 */
	int (*poll)(struct braid_lane *lane);
	/* Report how the carrier is doing.  The service thread calls this without a lock. */
	int (*health)(struct braid_lane *lane, struct braid_health *ret);
	/* Describe the carrier, for people.  *ret is zeroed; only the link's lock is held. */
	void (*describe)(struct braid_lane *lane, struct braid_wire_state *ret);
};

/* Default members, for transports without that feature: they do nothing, or return -EOPNOTSUPP. */
int braid_no_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret);
void braid_no_dereg(struct braid_dev *dev, struct braid_key *key);
int braid_no_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_no_setup_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_no_setup_ready(struct braid_setup *s);
void braid_no_setup_drop(struct braid_setup *s);
void braid_no_lane(struct braid_lane *lane);
void braid_no_describe(struct braid_lane *lane, struct braid_wire_state *ret);
bool braid_no_arm(struct braid_lane *lane);
bool braid_always(const struct braid_dev *dev);
int braid_no_event_fd(const struct braid_dev *dev);
bool braid_no_events(struct braid_dev *dev);

/* Transports in use, best first, NULL-terminated; plugin/device.c sets this list. */
extern const struct braid_transport *const *braid_transports;
void braid_transports_use(const struct braid_transport *const *list);
const struct braid_transport *braid_transport_find(uint8_t id);	/* or NULL */

#endif
