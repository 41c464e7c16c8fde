/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp.h - a lane's carrier over verbs: a queue pair and all that belongs to it.
 *
 * The handshake makes it (qp_setup.c; over iWARP with cm.c), tx.c and rx.c send and receive with
 * it, and the lane closes it (life.c).  Receives, slots of BRAID_SLOT bytes, are posted in advance.
 * A sender never uses more slots than the peer has posted.  It uses a slot again once the peer has
 * acknowledged the frame that took it, or has counted the slot as posted again.
 *
 *	qp_mem	its registered memory
 *	qp_make, grow	the NIC's objects: made, destroyed, receives posted; more of them
 *	qp_state, qp_gid, ece	its states, and what they need
 *	cm	the same over iWARP
 *	qp_try, life	a first packet; references, its end
 *	qp_setup	the handshake
 *	qp_self	a queue pair that is its own peer
 *
 * Each file calls only those above it.
 */
#ifndef BRAID_VERBS_QP_H
#define BRAID_VERBS_QP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/mem/mr.h"
#include "core/link/lane_io.h"
#include "core/base/param.h"
#include "core/base/ports.h"
#include "verbs/blob.h"
#include "verbs/grow.h"
#include "verbs/port.h"
#include "verbs/qp_mem.h"

enum {
	BRAID_WR_TX = 256,		/* wanted; a device with fewer must have at least: */
	BRAID_WR_TX_LEAST = 64,
	BRAID_CHAIN = 16,		/* work requests posted together */
	BRAID_POLL_MAX = 16,
	BRAID_INLINE = 220,		/* bytes wanted; fewer if the device takes fewer */
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
	uint8_t reads_out;		/* of the peer's memory, at once; 0: none */
	uint8_t reads_in;		/* of ours, by the peer; 0: none */
	int gid;			/* index of our GID, or BRAID_GID_NONE */
	uint16_t dlid;			/* InfiniBand: where its packets go ... */
	unsigned peer_gid;		/* ... and for which of the peer's GIDs */
	unsigned moves;			/* port->moves at set-up */
	bool ece;			/* options have been agreed on */
	bool receives;			/* it can receive, or could: RTR and later */

	/* its end: verbs/life.c */
	atomic_uint users;		/* references: the owner's, and one of each job */
	atomic_bool gone;		/* the owner has dropped its reference */
	struct braid_stop stopping;
	atomic_bool posting;		/* taken by the job that posts to or destroys the QP */
	struct braid_job stop_check, stop, end;
	struct ibv_recv_wr *kept;	/* receives that completed while it was stopped */
	atomic_bool last_wqe;		/* the device has reported its last shared receive */
	atomic_bool lost;		/* receives of the shared queue may be lost */

	/* set-up: the job's until `made`, then the service thread's */
	struct braid_job make;
	atomic_bool made;		/* the job is over, with the result in err */
	int err;
	struct braid_setup setup;	/* a copy */
	struct sockaddr_storage to;
	struct braid_qp_blob peer, mine;

	/* iWARP: verbs/cm.c, in jobs of BRAID_MAKE only */
	struct braid_qp *next;	/* port->setups */
	struct rdma_cm_id *id;
	uint64_t nonce;
	_Atomic int cm;			/* enum braid_cm_state */
	atomic_bool connected;		/* connected, now or before */
	bool connects, has_peer;	/* this end connects, and sends first; `peer` is set */
	bool asked;			/* connect or accept was sent and not yet answered */
	bool left;			/* its owner is gone: destroyed when the answer comes */
	bool redial;			/* its TCP port was in use: try another */
	struct braid_ports walk;	/* over the ports to dial from */
	unsigned dials;
	int cm_err;
	int traffic_class;		/* NCCL's; -1: none */
	uint64_t tried_ns;		/* when its first packet was sent: qp_try.c */

	/* sending: the link's lock */
	struct braid_can can;		/* what the lane may offer: braid_verbs_tx_init() */
	struct braid_chain chain;
	char *ring;			/* the lane's */
	struct braid_ring *rings;	/* the lane's first; the NIC may still read the others */
	uint32_t bounces, bounces_back;	/* pieces ever taken; given back, in order */
	struct { int piece; uint32_t wr; } bounce[BRAID_BOUNCES];	/* free after `wr` */
	uint32_t sq_posted, sq_signal;	/* work requests ever posted; the last signalled one */
	_Atomic uint32_t sq_done;	/* of them, known to be completed */
	unsigned sq_max, inline_max;
	uint32_t wr_head, wr_tail;	/* the peer's slots: ever used, known to be posted again */
	uint32_t wr_frame[BRAID_SLOTS_RX];	/* the frame whose acknowledgement frees a slot */
	unsigned wr_max;		/* it may grow */
	uint32_t count_seen;		/* the peer's last count of slots posted again */
	_Atomic uint64_t odd_ns;	/* since when its counts don't fit their checksum; or 0 */
	bool may_send;			/* iWARP: only once the end that connects has sent */
	uint64_t peer_ack;		/* the peer's memory into which we write counts */
	uint32_t peer_ack_key;

	/* receiving: the lane's io lock */
	uint32_t ack_seen;
	struct ibv_recv_wr *again, **again_end;	/* slots to be posted again */
	unsigned nagain;		/* of them: fewer than BRAID_REPOST after each poll */
	struct braid_grow grow;		/* more slots of its own */
	uint32_t slots;			/* own slots emptied, ever: the peer may use them again */
	uint32_t slots_reported;	/* of them, known to the peer */
	uint32_t mark_frames, mark_slots;	/* acknowledging these frames reports these slots */
	bool count_due;			/* the count is to be written into the peer's memory */
	atomic_bool broken;		/* failed in lane_open(), or by a device's event */
	struct ibv_wc wc[BRAID_POLL_MAX];
	int wc_beg, wc_end;

	/* health: the service thread */
	struct braid_progress progress;
};

/* --- qp_make.c ----------------------------------------------------------------------------- */

/* Notes `call` as the one that failed, if err is not 0; returns err. */
int braid_qp_failed(struct braid_qp *w, const char *call, int err);
/* -ECANCELED if the owner has dropped its reference, perhaps while the NIC was busy; else 0. */
int braid_qp_check_owner(const struct braid_qp *w);
/* Makes what each needs.  loop: it is its own peer and shares no receives.  0 or negative errno. */
int braid_qp_fill(struct braid_qp *w, bool loop);
/* Make the queue pair, on w->id unless that is NULL; post its receives.  0 or a negative errno. */
int braid_qp_create(struct braid_qp *w);
int braid_qp_post_all(struct braid_qp *w);
void braid_qp_destroy(struct braid_qp *w);
/* Posts receives, chained by `next`.  0 or a negative errno. */
int braid_qp_post_recv(struct braid_qp *w, struct ibv_recv_wr *first);

/* --- qp_state.c, ece.c --------------------------------------------------------------------- */

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

/* To INIT, with these access flags; through RTR to RTS, connected.  0 or a negative errno. */
int braid_qp_to_init(struct braid_qp *w, unsigned access);
int braid_qp_to_ready(struct braid_qp *w, const struct braid_qp_blob *peer, int traffic_class);

/* Put our queue pair's options into the blob; set the peer's on our queue pair, before RTR. */
void braid_ece_pack(const struct braid_qp *w, struct braid_qp_blob *b);
void braid_ece_apply(struct braid_qp *w, const struct braid_qp_blob *peer);

/* --- qp_gid.c ------------------------------------------------------------------------------ */

/* Chooses our GID of that type, for the address in use; logs it if it is final. */
int braid_qp_pick_gid(struct braid_qp *w, const struct braid_dev *dev, enum braid_gid_type type,
		      bool final, struct braid_gid *ret);
/* Returns -EADDRNOTAVAIL.  If the user has set a GID index, s->why says that it is wrong here. */
int braid_qp_no_gid(struct braid_setup *s);
/* Puts our GIDs into the blob.  peer: what the dialler offers, or NULL: we are the dialler. */
int braid_qp_gids(struct braid_qp *w, const struct braid_dev *dev,
		  const struct braid_qp_blob *peer, struct braid_qp_blob *b);
/* At the dialler: uses our GID of the type that the accepter has chosen. */
int braid_qp_settle_gid(struct braid_qp *w, struct braid_setup *s,
			const struct braid_qp_blob *peer);

/* --- qp_try.c ------------------------------------------------------------------------------ */

int braid_qp_try(struct braid_qp *w);	/* in its job */
/* Has that packet been answered?  0; -EAGAIN; -EHOSTUNREACH, with s->why: not within s->try_ms. */
int braid_qp_tried(struct braid_qp *w, struct braid_setup *s);

/* --- life.c -------------------------------------------------------------------------------- */

/* The new queue pair has one reference, its owner's.  NULL: no memory. */
struct braid_qp *braid_qp_new(struct braid_ibport *p, struct braid_dev *dev);
/* The owner and each job hold a reference.  When the last is dropped, a job destroys it. */
static inline void braid_qp_get(struct braid_qp *w)
{
	atomic_fetch_add(&w->users, 1);
}

static inline void braid_qp_put(struct braid_qp *w)
{
	/* Only one thread at a time may use rdma_cm: that of BRAID_MAKE. */
	if (atomic_fetch_sub(&w->users, 1) == 1)
		braid_later(w->dev, w->port->cm ? BRAID_MAKE : BRAID_END, &w->end);
}

/* A job stops the queue pair (core/mem/later.h).  The lane posts and polls nothing from now on. */
void braid_qp_fence(struct braid_qp *w);
/* Drops the owner's reference; jobs stop and destroy the queue pair later.  w may be NULL. */
void braid_qp_free(struct braid_qp *w);
/* Destroys it at once: only in a job, or at init. */
void braid_qp_end(struct braid_qp *w);

/* --- qp_setup.c: the setup members of struct braid_transport ------------------------------- */

int braid_qp_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_qp_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_qp_ready(struct braid_setup *s);
void braid_qp_drop(struct braid_setup *s);

/* --- qp_self.c ----------------------------------------------------------------------------- */

/*
 * Does immediate data arrive, with a WRITE and with a SEND?  Tried at init with a queue pair to
 * itself, which takes some ms, or a second if no data arrives.  Not tried for iWARP, whose WRITEs
 * have no immediate data.
 */
bool braid_qp_proves_imm(struct braid_ibport *p, struct braid_dev *dev, char *why, size_t len);

/*
 * Makes a queue pair that is its own peer, with RDMA READ allowed.  0, or a negative errno:
 * -EOPNOTSUPP for iWARP.  *ret_failed, unless ret_failed is NULL: the call that failed, or NULL.
 */
int braid_qp_loop(struct braid_ibport *p, struct braid_dev *dev, struct braid_qp **ret,
		  const char **ret_failed);

#endif
