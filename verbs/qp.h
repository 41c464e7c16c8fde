/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp.h - a lane's carrier over verbs: a queue pair and all that belongs to it.
 *
 * The handshake makes it (qp.c; over iWARP with cm.c), verbs.c sends and receives with it, and the
 * lane closes it (life.c).  Receives are posted in advance: BRAID_SLOTS_RX slots of BRAID_SLOT
 * bytes.  A sender never uses more slots than the peer has posted.  It uses a slot again once the
 * peer has acknowledged the frame that took it, or has counted the slot as posted again.
 */
#ifndef BRAID_VERBS_QP_H
#define BRAID_VERBS_QP_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/msg/comm.h"
#include "core/link/lane_io.h"
#include "core/mem/later.h"
#include "core/base/param.h"
#include "verbs/port.h"
#include "verbs/recv.h"

enum {
	BRAID_BOUNCES = 8,		/* for memory that the NIC does not know */
	BRAID_WR_TX = 256,		/* wanted; a device that has fewer must have these: */
	BRAID_WR_TX_LEAST = 64,
	BRAID_CHAIN = 16,		/* work requests posted together */
	BRAID_POLL_MAX = 16,
	BRAID_INLINE = 220,		/* bytes wanted; less if the device takes less */
	BRAID_ACK_OUT = 16,		/* index in `ack` of the two words for the peer's `ack` */
};

/* Registered memory of one queue pair; the port keeps it for the next queue pair. */
struct braid_qp_memory {
	struct braid_qp_memory *next;
	struct braid_slots *slots;	/* NULL: it receives from a shared queue */
	char *bounce;			/* BRAID_BOUNCES pieces */
	_Atomic uint32_t *ack;		/* two words that the peer writes: frames that it has
					 * received; slots that it has posted again, plus 1 */
	struct ibv_mr *bounce_mr, *ack_mr;
};

/* A lane's send ring, which the NIC reads by itself as soon as it is registered. */
struct braid_ring {
	struct braid_ring *next;
	struct braid_qp *qp;
	struct braid_job job;
	char *at;
	size_t size;
	_Atomic(struct ibv_mr *) mr;	/* NULL: not registered, data is copied before it is sent */
};

/* What the two ends exchange in the handshake. */
struct braid_qp_blob {
	uint8_t fabric, mtu, imm, ngids, grh;
	uint16_t lid, slots, cm_port;
	uint32_t qpn, psn, ack_key;
	uint64_t ack, nonce;
	uint32_t ece_vendor, ece_options;	/* 0: none */
	struct {
		uint8_t type, raw[16];
	} gid[2];			/* the dialler's, best first; or the accepter's choice */
};

/* Work requests on their way to the NIC. */
struct braid_chain {
	struct ibv_send_wr wr[BRAID_CHAIN];
	struct ibv_sge sge[BRAID_CHAIN];
	char hdrs[BRAID_CHAIN][2 * BRAID_HDR_SIZE];
	unsigned n;
};

enum braid_cm_state { BRAID_CM_NONE, BRAID_CM_WORKS, BRAID_CM_UP, BRAID_CM_FAILED };

struct braid_qp {
	struct braid_ibport *port;
	struct braid_dev *dev;
	struct braid_qp_memory *m;
	struct braid_srq *srq;		/* NULL: its slots are m->slots */
	struct ibv_qp *qp;
	uint32_t qpn;			/* once it carries a lane */
	bool over;			/* fenced: the lane posts and polls no more */
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	_Atomic(const char *) failed;	/* name of the call that failed during set-up */
	uint32_t psn;
	uint32_t imm_max;		/* bytes of the largest message with immediate data */
	int gid;			/* index of ours; BRAID_GID_NONE */
	uint16_t dlid;			/* InfiniBand: where its packets go ... */
	unsigned peer_gid;		/* ... and for which of the peer's GIDs */
	unsigned moves;			/* port->moves at set-up */
	bool ece;			/* options have been agreed on */

	/* its end: verbs/life.c */
	atomic_uint users;		/* references: the owner's, and one of each job */
	atomic_bool gone;		/* the owner has dropped its reference */
	struct braid_stop stopping;
	atomic_bool posting;		/* taken by the job that posts to or destroys the QP */
	struct braid_job see, stop, end;
	struct ibv_recv_wr *kept;	/* receives that completed while it was stopped */

	/* set-up: the job's until `made`, then the service thread's */
	struct braid_job make;
	atomic_bool made;		/* the job is over; err: how */
	int err;
	struct braid_setup setup;	/* a copy */
	struct sockaddr_storage to;
	struct braid_qp_blob peer, mine;

	/* iWARP: verbs/cm.c, in jobs of BRAID_MAKE only */
	struct braid_qp *next;	/* port->setups */
	struct rdma_cm_id *id;
	uint64_t nonce;
	_Atomic int cm;			/* enum braid_cm_state */
	atomic_bool connected;		/* it is, or has been */
	bool asked;			/* connect or accept was sent and not yet answered */
	bool left;			/* its owner is gone: destroyed when the answer comes */
	bool redial;			/* its TCP port was in use: try another */
	unsigned dials;
	int cm_err;
	int traffic_class;		/* NCCL's; -1: none */
	bool dialler;

	/* sending: the link's lock */
	struct braid_chain chain;
	char *ring;			/* the lane's */
	struct braid_ring *rings;	/* that one first; the NIC may still read the others */
	uint32_t bounces;		/* ever taken */
	uint32_t bounce_wr[BRAID_BOUNCES];	/* the work request after which it is free again */
	uint32_t sq_posted, sq_signal;	/* work requests ever posted; the last signalled one */
	_Atomic uint32_t sq_done;	/* of them, known to be completed */
	unsigned sq_max, inline_max;
	uint32_t wr_head, wr_tail;	/* the peer's slots: ever used, known to be posted again */
	uint32_t wr_frame[BRAID_SLOTS_RX];	/* the frame whose acknowledgement frees it */
	unsigned wr_max;
	uint32_t count_seen;		/* the peer's last count of them */
	bool may_speak;			/* iWARP: the dialler has sent something */
	uint64_t peer_ack;		/* where the peer looks for acknowledgements */
	uint32_t peer_ack_key;

	/* receiving: the lane's io lock */
	uint32_t ack_seen;
	struct ibv_recv_wr *again, **again_end;	/* slots to be posted again */
	unsigned nagain;		/* of them: fewer than BRAID_REPOST after each poll */
	uint32_t slots;			/* own slots emptied, ever: the peer may use them again */
	uint32_t slots_told;		/* of them, known to the peer */
	uint32_t mark_frames, mark_slots;	/* acknowledging these frames reports these slots */
	bool count_due;			/* the count is to be written into the peer's memory */
	atomic_bool broken;		/* it failed in lane_open(), or the device reports it */
	struct ibv_wc wc[BRAID_POLL_MAX];
	int wc_beg, wc_end;
	unsigned idle_polls;

	/* health: the service thread */
	struct braid_look look;
};

/* The setup members of struct braid_transport. */
int braid_qp_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_qp_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_qp_ready(struct braid_setup *s);
void braid_qp_drop(struct braid_setup *s);

/*
 * Does immediate data arrive, with a WRITE and with a SEND?  Tried at init with a queue pair to
 * itself: that takes some ms, a second if none arrives.  Never for iWARP, whose WRITEs have none.
 */
bool braid_qp_proves_imm(struct braid_ibport *p, struct braid_dev *dev, char *why, size_t len);

/*
 * Makes a queue pair that is its own peer, with RDMA READ allowed.  0, or a negative errno:
 * -EOPNOTSUPP for iWARP.  *ret_failed, unless ret_failed is NULL: the call that failed, or NULL.
 */
int braid_qp_loop(struct braid_ibport *p, struct braid_dev *dev, struct braid_qp **ret,
		    const char **ret_failed);

/* A job stops the queue pair (core/mem/later.h).  The lane posts and polls nothing from now on. */
void braid_qp_fence(struct braid_qp *w);
/* Drops the owner's reference; jobs stop and destroy the queue pair later.  NULL is nothing. */
void braid_qp_free(struct braid_qp *w);
/* Destroys it at once: only in a job, or at init. */
void braid_qp_end(struct braid_qp *w);
void braid_qp_destroy(struct braid_qp *w);
/* A reference, held by each of its jobs. */
void braid_qp_get(struct braid_qp *w);
void braid_qp_put(struct braid_qp *w);

/*
 * Memory that an earlier lane left, or new memory: pinning that may take long.  own: with slots,
 * for receives that are not shared.  NULL: none can be allocated or registered.
 */
struct braid_qp_memory *braid_qp_memory(struct braid_ibport *p, bool own);
/* Makes this the ring to send from, and has a job register it.  0 or -ENOMEM. */
int braid_qp_ring(struct braid_qp *w, char *ring, size_t size);

/*
 * Around calls in which soft-iWARP (siw) may write to a socket: it does so without MSG_NOSIGNAL,
 * and SIGPIPE comes if the peer has closed the socket.  Three system calls; none in a process that
 * ignored SIGPIPE when that was last checked.
 */
struct braid_hush {
	bool on, was_pending;
	sigset_t old;
};
static inline bool braid_may_pipe(const struct braid_ibport *p)
{
	return p->siw && !atomic_load_explicit(&p->pipe_ignored, memory_order_relaxed);
}

void braid_hush(const struct braid_ibport *p, struct braid_hush *h);
void braid_unhush(const struct braid_hush *h);
void braid_hush_look(struct braid_ibport *p);	/* checks that now and then: Python ignores it */

/*
 * The traffic class byte of our IP headers, whose upper six bits are the DSCP.  traffic_class:
 * NCCL's, the same byte (-1: none).
 */
uint8_t braid_qp_class(int traffic_class);
/* Retransmissions of a packet: at most 6, since 7 means for ever to some drivers. */
static inline uint8_t braid_qp_retries(void)
{
	return (uint8_t)(braid_param.ib_retry < 6 ? braid_param.ib_retry : 6);
}
/* Notes `call` as the one that failed, if err is not 0; returns err. */
int braid_qp_failed(struct braid_qp *w, const char *call, int err);
/* Make the queue pair, on w->id unless that is NULL; post its receives.  0 or a negative errno. */
int braid_qp_create(struct braid_qp *w);
int braid_qp_post_all(struct braid_qp *w);
/* Posts receives, chained by `next`.  0 or a negative errno. */
int braid_qp_post_recv(struct braid_qp *w, struct ibv_recv_wr *first);

/* verbs/ece.c: put our queue pair's options into the blob; set the peer's on it, before RTR. */
void braid_ece_tell(const struct braid_qp *w, struct braid_qp_blob *b);
void braid_ece_take(struct braid_qp *w, const struct braid_qp_blob *peer);

void braid_qp_blob_pack(const struct braid_qp_blob *b, uint8_t *to);
int braid_qp_blob_unpack(const uint8_t *from, struct braid_qp_blob *ret);

#endif
