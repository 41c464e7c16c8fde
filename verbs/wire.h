/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.h - a queue pair and all that belongs to it: what carries a lane over verbs.
 *
 * Made in the handshake (qp.c; for iWARP with the help of cm.c), moved by verbs.c, closed by the
 * lane.  Receives are posted in advance, SLOTS of them, each with room for SLOT bytes; a sender
 * never has more on the way than there are: one that was used is known to be there again once the
 * frame that it was part of is acknowledged, or the peer has counted it.
 */
#ifndef BRAID_VERBS_WIRE_H
#define BRAID_VERBS_WIRE_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/comm.h"
#include "core/lane.h"
#include "core/later.h"
#include "core/param.h"
#include "verbs/port.h"
#include "verbs/recv.h"

enum {
	BRAID_BOUNCES = 8,		/* for memory that the NIC does not know */
	BRAID_WR_TX = 256,		/* wanted; what there is is taken, but not less than: */
	BRAID_WR_TX_LEAST = 64,
	BRAID_CHAIN = 16,		/* work requests posted together */
	BRAID_POLL_MAX = 16,
	BRAID_INLINE = 220,		/* asked for; what there is is taken */
	BRAID_ACK_OUT = 16,		/* words from ack on: what is written into the peer's */
};

/* What a wire reads and writes itself: kept registered by its port for the next one. */
struct braid_wire_memory {
	struct braid_wire_memory *next;
	struct braid_slots *slots;	/* NULL: it receives from a shared queue */
	char *bounce;			/* BRAID_BOUNCES pieces */
	_Atomic uint32_t *ack;		/* two words that the peer writes: frames that it has
					 * received; slots that it has posted again, and 1 */
	struct ibv_mr *bounce_mr, *ack_mr;
};

/* A lane's, in which what it sends lies: the NIC may read it as soon as it is registered. */
struct braid_ring {
	struct braid_ring *next;
	struct braid_wire *wire;
	struct braid_job job;
	char *at;
	size_t size;
	_Atomic(struct ibv_mr *) mr;	/* NULL: not yet, or it can't be: what goes is copied */
};

/* What both ends tell each other in the handshake. */
struct braid_wire_blob {
	uint8_t fabric, mtu, imm, ngids, grh;
	uint16_t lid, slots, cm_port;
	uint32_t qpn, psn, ack_key;
	uint64_t ack, nonce;
	uint32_t ece_vendor, ece_options;	/* 0: none */
	struct {
		uint8_t type, raw[16];
	} gid[2];			/* the dialler's, best first; the accepter's choice */
};

/* Work requests on their way to the NIC. */
struct braid_chain {
	struct ibv_send_wr wr[BRAID_CHAIN];
	struct ibv_sge sge[BRAID_CHAIN];
	char hdrs[BRAID_CHAIN][2 * BRAID_HDR_SIZE];
	unsigned n;
};

enum braid_cm_state { BRAID_CM_NONE, BRAID_CM_WORKS, BRAID_CM_UP, BRAID_CM_FAILED };

struct braid_wire {
	struct braid_port *port;
	struct braid_dev *dev;
	struct braid_wire_memory *m;
	struct braid_srq *srq;		/* NULL: its slots are m->slots */
	struct ibv_qp *qp;
	uint32_t qpn;			/* once it carries a lane */
	bool over;			/* fenced: nobody posts or polls any more */
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	_Atomic(const char *) failed;	/* the call that did, while it comes up */
	uint32_t psn;
	uint32_t imm_max;		/* both ends take immediate data with that many bytes */
	int gid;			/* index of ours; BRAID_GID_NONE */
	uint16_t dlid;			/* InfiniBand: where its packets go ... */
	unsigned peer_gid;		/* ... and for which of the peer's GIDs */
	unsigned moves;			/* the port's, when it was made */
	bool ece;			/* options have been agreed on */

	/* who still has to do with it: verbs/life.c */
	atomic_uint users;		/* its owner, and jobs of its own */
	atomic_bool gone;		/* its owner is not among them any more */
	struct braid_stop stopping;
	atomic_bool posting;		/* a job posts to the queue pair, or is to destroy it */
	struct braid_job see, stop, end;
	struct ibv_recv_wr *kept;	/* receives that were seen meanwhile */

	/* while it comes up: the job's until it is made, then the service thread's */
	struct braid_job make;
	atomic_bool made;		/* or it has failed: err */
	int err;
	struct braid_setup setup;	/* a copy */
	struct sockaddr_storage to;
	struct braid_wire_blob peer, mine;

	/* iWARP: verbs/cm.c, in jobs of BRAID_MAKE only */
	struct braid_wire *next;	/* port->wires */
	struct rdma_cm_id *id;
	uint64_t nonce;
	_Atomic int cm;			/* enum braid_cm_state */
	atomic_bool connected;		/* it is, or has been */
	bool asked;			/* the peer, who has not answered yet */
	bool left;			/* goes with the answer */
	bool redial;			/* its port was in use: another is to be tried */
	unsigned dials;
	int cm_err;
	int traffic_class;		/* NCCL's; -1: none */
	bool dialler;

	/* sending: the link's lock */
	struct braid_chain chain;
	char *ring;			/* the lane's */
	struct braid_ring *rings;	/* the first is that; others may be read yet */
	uint32_t bounces;		/* ever taken */
	uint32_t bounce_wr[BRAID_BOUNCES];	/* sq_posted when that one is free again */
	uint32_t sq_posted, sq_signal;	/* work requests ever, at the last one that is signalled */
	_Atomic uint32_t sq_done;	/* of them, known to be over */
	unsigned sq_max, inline_max;
	uint32_t wr_head, wr_tail;	/* the peer's receives: used, known to be posted again */
	uint32_t wr_frame[BRAID_SLOTS_RX];	/* which frame's acknowledgement says so */
	unsigned wr_max;
	uint32_t count_seen;		/* the peer's count of them, as it was last */
	bool may_speak;			/* iWARP: the dialler has */
	uint64_t peer_ack;		/* where the peer looks for acknowledgements */
	uint32_t peer_ack_key;

	/* receiving: the lane's io lock */
	uint32_t ack_seen;
	struct ibv_recv_wr *again, **again_end;	/* slots to be posted again */
	unsigned nagain;		/* of them: fewer than BRAID_REPOST */
	uint32_t slots;			/* of ours that the peer may use again, ever */
	uint32_t slots_told;		/* of them, known to the peer */
	uint32_t mark_frames, mark_slots;	/* so many had been used for so many frames */
	bool count_due;
	atomic_bool broken;		/* before it was used, or the device says so */
	struct ibv_wc wc[BRAID_POLL_MAX];
	int wc_beg, wc_end;
	unsigned fruitless;

	/* health: the service thread */
	struct braid_look look;
};

/* The transport's setup members, which see: core/transport.h. */
int braid_wire_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_wire_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_wire_ready(struct braid_setup *s);
void braid_wire_drop(struct braid_setup *s);

/*
 * Does immediate data arrive, with a write and with a send?  A queue pair to itself tries it, which
 * takes some ms, a second if it does not.  At init; never for iWARP, whose standard writes lack it.
 */
bool braid_wire_proves_imm(struct braid_port *p, struct braid_dev *dev, char *why, size_t len);

/* A queue pair that is its own peer, and may read what it may write.  Not with iWARP.
 * ret_failed, if not NULL: the call that did, or NULL. */
int braid_wire_loop(struct braid_port *p, struct braid_dev *dev, struct braid_wire **ret,
		    const char **ret_failed);

/* The NIC is asked to stop, and no more (core/later.h): nothing is posted or polled from now on. */
void braid_wire_fence(struct braid_wire *w);
/* Its owner lets go of it: it is stopped and destroyed, by and by. */
void braid_wire_free(struct braid_wire *w);
/* In a job, or at init: at once. */
void braid_wire_end(struct braid_wire *w);
void braid_wire_destroy_qp(struct braid_wire *w);
/* Around each job of it. */
void braid_wire_get(struct braid_wire *w);
void braid_wire_put(struct braid_wire *w);

/*
 * What a lane had that is lost, or memory that is pinned now, which takes its time; own: with
 * slots.  NULL: it can't be had.
 */
struct braid_wire_memory *braid_wire_memory(struct braid_port *p, bool own);
/* The NIC is to read `size` bytes there from now on: 0 or -ENOMEM. */
int braid_wire_ring(struct braid_wire *w, char *ring, size_t size);
/*
 * Around what may make soft-iWARP (siw) write to a socket in our own call: of one that the peer has
 * closed it raises SIGPIPE, as the kernel's TCP does for who does not ask it not to.  Three system
 * calls, and none in a process that ignored the signal when it was last looked at.
 */
struct braid_hush {
	bool on, was_pending;
	sigset_t old;
};
static inline bool braid_may_pipe(const struct braid_port *p)
{
	return p->siw && !atomic_load_explicit(&p->pipe_ignored, memory_order_relaxed);
}

void braid_hush(const struct braid_port *p, struct braid_hush *h);
void braid_unhush(const struct braid_hush *h);
void braid_hush_look(struct braid_port *p);	/* now and then: Python ignores it, say */

/*
 * The byte of the IP header that packets are marked with, for a traffic class of NCCL's, which is
 * that byte (-1: none).  DSCP are its upper six bits.
 */
uint8_t braid_wire_class(int traffic_class);
/* How often a packet is sent again; 7 is for ever with some drivers. */
static inline uint8_t braid_wire_retries(void)
{
	return (uint8_t)(braid_param.ib_retry < 6 ? braid_param.ib_retry : 6);
}
/* Notes which call failed, if err is one; returns err. */
int braid_wire_failed(struct braid_wire *w, const char *call, int err);
/* The queue pair, on w->id if there is one; then all its receives.  0 or a negative errno. */
int braid_wire_qp(struct braid_wire *w);
int braid_wire_post_all(struct braid_wire *w);
/* Receives, chained by `next`; 0 or a negative errno. */
int braid_wire_post_recv(struct braid_wire *w, struct ibv_recv_wr *first);

/* verbs/ece.c: the options of our queue pair for the peer; and the peer's for ours, before RTR. */
void braid_ece_tell(const struct braid_wire *w, struct braid_wire_blob *b);
void braid_ece_take(struct braid_wire *w, const struct braid_wire_blob *peer);

void braid_wire_blob_pack(const struct braid_wire_blob *b, uint8_t *to);
int braid_wire_blob_unpack(const uint8_t *from, struct braid_wire_blob *ret);

#endif
