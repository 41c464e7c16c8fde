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
 *   - Nothing waits.  What a NIC's driver may sleep in goes to core/later.h; reg() and dereg() are
 *     made by callers who wait for it anyway, with no lock.
 *   - Lanes come from the core, zeroed, lane_size bytes long with struct braid_lane first.
 *   - All members are set, but for `gpu`, `post` and `lands`.
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
#include <sys/socket.h>

#include "core/wire.h"

struct braid_dev;
struct braid_lane;

enum {				/* ids on the wire */
	BRAID_TRANSPORT_TCP = 1,
	BRAID_TRANSPORT_VERBS,
	BRAID_TRANSPORT_SMC,
	BRAID_TRANSPORT_UCX,
	BRAID_TRANSPORT_IDS,
};

/* Bytes that one call moves each way: room for a message of 1 MiB and its headers. */
enum { BRAID_COPY_LOCKED = 16384, BRAID_CALL_BUDGET = (1 << 20) + 4096 };

struct braid_key {			/* what the wire calls a piece of memory */
	void *mr;
	uint32_t local, remote;
	int gpu;			/* whose memory it is; -1: the CPU's, or not known */
	bool sealed;			/* nobody may write there; `remote` means nothing */
};

struct braid_mem {			/* of the user */
	void *data;
	size_t size;
	bool gpu;			/* a GPU's, which the CPU never touches */
	int gpu_index;			/* the driver's number of that; -1: not known */
	uint64_t gpu_id;		/* of its allocations, as in gdr/cuda.h; 0: not known */
	int fd;				/* its DMA-BUF, in which it begins at `offset`; -1: none */
	uint64_t offset;
};

enum {				/* what a NIC can with memory of GPUs */
	BRAID_GPU_REG = 1,	/* reg() takes it */
	BRAID_GPU_DMABUF = 2,	/* also with a DMA-BUF */
	BRAID_GPU_DIRECT = 4,	/* it writes by another way than it says so: always flush */
};

struct braid_gpu_flush {		/* one that may be under way; the transport's, but for */
	bool insist;			/* else -EHOSTDOWN if it has failed of late */
	uint64_t id;
	unsigned tries;
	int err;
};

struct braid_gpu_copy {			/* of a GPU's memory, to or from our own */
	char *at, *own;			/* what is left of it */
	size_t len;
	bool to_gpu;
	bool insist;			/* else -EHOSTDOWN if it has failed of late */
	size_t piece;			/* the transport's: under way; 0: nothing is */
	uint64_t id;
	unsigned tries;
	int err;
};

/* What a transport can do with memory of a GPU.  Any thread may call, also with a link's lock. */
struct braid_gpu {
	/*
	 * At init, in a thread that has a context of the driver's: which of BRAID_GPU_* was seen
	 * to work on that device.  `why` says in one line what was tried.
	 */
	unsigned (*probe)(struct braid_dev *dev, char *why, size_t len);
	int (*reg)(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret);
	/*
	 * Bytes of memory that reg() took; what the wire has written there before is seen.  0,
	 * -EAGAIN: not yet, call again with the same, else it can't, and nothing is under way.
	 */
	int (*copy)(struct braid_dev *dev, const struct braid_key *key, struct braid_gpu_copy *c);
	/* That copy is given up: nothing of it is under way any more. */
	void (*copy_end)(struct braid_dev *dev, struct braid_gpu_copy *c);
	/*
	 * What the wire has written into that memory before is seen: 0, -EAGAIN: not yet, call
	 * again with the same, else it can't be said.  *f is zeroed by the caller at first, who may
	 * forget it at any time.
	 */
	int (*flush)(struct braid_dev *dev, const struct braid_key *key, char *at,
		     struct braid_gpu_flush *f);
};

struct braid_health {			/* what the wire says of a lane */
	bool unacked;			/* bytes are under way that the peer's host has not taken */
	unsigned resent;		/* times in a row that they were sent again */
	unsigned rtt_ms;		/* to the peer's host and back */
	uint32_t segment;		/* bytes in each of its packets; 0: not the host's to say */
	uint64_t acked;			/* bytes that the peer's host has taken, ever */
};

struct braid_wire_state {		/* the same for people, who have asked */
	uint64_t resent;		/* packets, ever, of what carries it now */
	char text[160];			/* "" if there is nothing to say */
};

struct braid_setup {			/* one lane on its way up, over an authenticated socket */
	struct braid_dev *dev;		/* the member whose socket it is */
	const struct sockaddr *to;	/* where the other end is */
	unsigned lane;
	int traffic_class;
	bool dialler;
	void *wire;			/* what setup() made, for lane_open() to take */
	const char *failed;		/* the call of a library that did, for people; or NULL */
	char why[160];			/* what is to be said in place of the errno; or "" */
};

struct braid_transport {
	const char *name;
	uint8_t id;
	bool dma;			/* the wire reads and writes memory without being called:
					 * lane_fence() must be, before somebody takes it back */
	bool ports;			/* it finds ports by itself, which names of interfaces
					 * neither name nor exclude */
	size_t lane_size;

	/*
	 * At init: note in dev->port[id] of each device what this transport needs to use it, and
	 * add devices that nobody else has found.  Finding none is success; `why`, if not NULL,
	 * then says in one line why.
	 */
	int (*probe)(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len);
	/* May a lane be had over dev now, as far as this end knows?  With no lock, never waits. */
	bool (*usable)(const struct braid_dev *dev);
	/*
	 * What a device hears that is no lane's: a descriptor (-1: there is none), and what the
	 * service thread calls when it has become readable, and at its end.  True: there is more
	 * to come, for which it is worth waiting a moment at the end.
	 */
	int (*event_fd)(const struct braid_dev *dev);
	bool (*events)(struct braid_dev *dev);
	/* Memory of the user that the wire may read and write from now on: keys for dev. */
	int (*reg)(struct braid_dev *dev, void *data, size_t size, struct braid_key *ret);
	void (*dereg)(struct braid_dev *dev, struct braid_key *key);
	const struct braid_gpu *gpu;	/* NULL: it knows nothing of GPUs */

	/*
	 * In the handshake the two ends of a lane tell each other BRAID_BLOB_SIZE bytes, the
	 * dialler first.  setup() makes s->wire and fills `mine`; it has `theirs` at the accepting
	 * end.  setup_peer(), at the dialling end, has the answer.  setup() and setup_ready(): 0,
	 * or -EAGAIN: ask again in a moment.  setup_drop(): at any time, unless lane_open() has
	 * taken s->wire.
	 * -EALREADY of any of them: it has failed lately with this peer, and people know.
	 * Where `blob` is false nothing is told, and none of them is called.
	 */
	bool blob;
	bool slow;			/* it may take half of BRAID_HANDSHAKE_TIMEOUT; else 1 s */
	unsigned rest_s;		/* once it has failed, sockets have that path for so long,
					 * at least; 0: as core/path.c thinks */
	int (*setup)(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
	int (*setup_peer)(struct braid_setup *s, const uint8_t *theirs);
	int (*setup_ready)(struct braid_setup *s);
	void (*setup_drop)(struct braid_setup *s);

	/* Take over lane->fd, which has just authenticated itself, and lane->wire. */
	int (*lane_open)(struct braid_lane *lane);
	/* Memory for traffic: taken when the first comm attaches, given back after the last. */
	int (*lane_attach)(struct braid_lane *lane);
	void (*lane_detach)(struct braid_lane *lane);
	/*
	 * A fence: afterwards nothing of this lane reads or writes anybody's memory, but for a NIC
	 * that has been asked to stop and has not (braid_stops_mark() says until when).  Any state.
	 */
	void (*lane_close)(struct braid_lane *lane);
	/* The same, and no more: lane->fd stays. */
	void (*lane_fence)(struct braid_lane *lane);
	/*
	 * May the wire go on filling memory of that comm's between calls of poll?  NULL: it never
	 * does.  Called while the link stands still.
	 */
	bool (*lands)(const struct braid_lane *lane, uint32_t comm);
	/*
	 * The service thread is about to sleep: have lane->event_fd, if there is one, become
	 * readable when something arrives (and, without dma, writable where lane->blocked says
	 * that room is waited for).  What came before is to be polled once more.  False:
	 * there is always something left to do, the next tick tries again.
	 */
	bool (*arm)(struct braid_lane *lane);

	/*
	 * Hand queued frames to the wire, at most BRAID_CALL_BUDGET bytes, and tell the queue
	 * (braid_tx_advance).  Called with the link's lock held, which it drops while it moves
	 * more than BRAID_COPY_LOCKED bytes; never from two threads at once.  0: none is left or
	 * the budget is spent; -EAGAIN: the wire takes no more now; else the lane is dead.
	 */
	int (*push)(struct braid_lane *lane);
	/*
	 * Send the payload of a frame that is about to be queued, where no other waits: it lies in
	 * the ring, and goes with these 32 bits in place of its header (braid_tx_bare), or with the
	 * short header that lies before it and stays like that.  NULL: it can't.  0: it has left;
	 * else it has not, and the frame goes as any other.  With the link's lock held.
	 */
	int (*post)(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len);
	/*
	 * Take what has arrived, at most BRAID_CALL_BUDGET bytes.  Returns how many frames or
	 * pieces were taken (0: nothing there), or a negative errno: the lane is dead.
	 */
	int (*poll)(struct braid_lane *lane);
	/* How is it?  Called by the service thread, with no lock, now and then. */
	int (*health)(struct braid_lane *lane, struct braid_health *ret);
	/* Who asks sees this; *ret is zeroed.  With the link's lock held, and no other. */
	void (*describe)(struct braid_lane *lane, struct braid_wire_state *ret);
};

/* For members that a transport has nothing to do in. */
int braid_no_reg(struct braid_dev *dev, void *data, size_t size, struct braid_key *ret);
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

/* Those in use, best first, NULL-terminated: plugin/device.c is the one place that names them. */
extern const struct braid_transport *braid_transports[];
const struct braid_transport *braid_transport_find(uint8_t id);	/* NULL: not among them */

#endif
