/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ep.h - a lane's carrier over UCX: an endpoint, the worker that drives it, and its messages.
 *
 * Three kinds of messages go through it, each with a tag of its own.  Heads and payloads are
 * described in ucx.c; a hello is the empty message that ends the set-up.  Receives for all heads
 * are posted in advance, those for payloads when it is known where the payload belongs.
 *
 *	exit.c	the list of all endpoints; what happens when the process exits
 *	msg.c	posting receives, sending, progress
 *	ep.c	making an endpoint, stopping and destroying it
 *	setup.c	the handshake
 *	tx.c, rx.c, ucx.c	the lane
 *
 * Calls on the worker need the endpoint's lock, and so do the functions below unless a comment says
 * otherwise.  The link's lock, and braid_ucx_eps_lock, are taken before an endpoint's.
 */
#ifndef BRAID_UCX_EP_H
#define BRAID_UCX_EP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/mem/mr.h"
#include "core/link/lane_io.h"
#include "core/base/work.h"
#include "gdr/stage.h"
#include "ucx/port.h"

enum {
	BRAID_UCX_SLOT = BRAID_HDR_SIZE + BRAID_COPY_MAX,
	BRAID_UCX_SLOTS = 16,
	BRAID_UCX_PAYLOADS = 8,		/* receives for payloads posted at a time */
	BRAID_UCX_PROGRESS_MAX = 8,	/* calls of ucp_worker_progress() in one of ours */
};

/* Tags of messages, in the lowest BRAID_UCX_TAG_BITS. */
enum { BRAID_UCX_HEAD, BRAID_UCX_PAYLOAD, BRAID_UCX_HELLO, BRAID_UCX_TAG_BITS = 2 };

#define BRAID_UCX_OURS UINT32_MAX

/* A receive that is posted, or what came with it. */
struct ucx_slot {
	atomic_bool waits;		/* while it is true, UCX owns the rest */
	void *req;
	ucs_status_t status;
	size_t len;
	char *at;
	uint32_t comm;			/* the comm whose memory that is, or BRAID_UCX_OURS */
};

struct ucx_setup;

struct ucx_ep {
	struct braid_work ending;
	struct braid_dev *dev;		/* set with `over` */
	struct braid_job stop;
	struct braid_stop stopping;
	atomic_uint users;		/* references: the owner's, and the job `stop`'s */
	bool over;			/* stopped: the lane moves no more frames */
	struct braid_list node;		/* of braid_ucx_eps */
	struct braid_lock lock;
	struct ucx_setup *setup;	/* of the service thread; NULL: no set-up is under way */
	ucp_worker_h worker;		/* NULL: fenced, or left at exit */
	ucp_ep_h ep;
	int efd;
	_Atomic ucs_status_t status;	/* the first error, or UCS_OK */
	uint64_t tag_rx, tag_tx;
	ucp_request_param_t send_param;	/* the same for all */
	unsigned flying;
	bool rdma, wired, stranded;
	char *memory;
	/* Receives for heads; the oldest is number `slots`, the next `posted`. */
	struct ucx_slot slot[BRAID_UCX_SLOTS];
	struct ucx_slot hello;
	/* The same for payloads: `payloads_done`, `payloads_posted`. */
	struct ucx_slot payload[BRAID_UCX_PAYLOADS];
	bool awaits_payload;		/* the head of the oldest payload has been taken */
	bool blind;			/* the place of the next payload is not known yet */
	char *scratch;			/* receives a payload that is thrown away */
	unsigned slots, posted, seen;	/* heads before `seen` have been read ahead */
	unsigned payloads_done, payloads_posted;
	struct braid_progress progress;	/* the service thread's */
	struct braid_stage *gpu;	/* of the first GPU whose memory was given to UCX */
};

static inline struct ucx_ep *braid_ucx_ep_of(const struct braid_lane *lane)
{
	return lane->priv;
}

/* --- exit.c -------------------------------------------------------------------------------- */

extern struct braid_lock braid_ucx_eps_lock;
extern struct braid_list braid_ucx_eps;	/* all endpoints; with that lock held */
extern atomic_bool braid_ucx_left;	/* the process exits: UCX must not be called */

/* Makes exit() leave all endpoints alone.  False: not possible, or the process already exits. */
bool braid_ucx_watch_exit(void);
/* Takes w->lock.  False: the process exits, UCX must not be called, and the lock is not held. */
bool braid_ucx_enter(struct ucx_ep *w);

/* --- msg.c --------------------------------------------------------------------------------- */

/* Keeps the endpoint's first error.  UCX calls this too, as the endpoint's error handler. */
void braid_ucx_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status);
/* Fills w->send_param. */
void braid_ucx_send_init(struct ucx_ep *w);
/* Calls ucp_worker_progress() once. */
unsigned braid_ucx_progress_once(struct ucx_ep *w);
/* Calls it until it finds nothing, at most BRAID_UCX_PROGRESS_MAX times. */
void braid_ucx_progress(struct ucx_ep *w);
/* Posts a receive to s->at.  gpu: the GPU memory in which that lies, or NULL. */
void braid_ucx_post(struct ucx_ep *w, struct ucx_slot *s, size_t size, uint64_t tag,
		    const struct braid_mr *gpu);
void braid_ucx_post_heads(struct ucx_ep *w);	/* in all free slots */
/* 0; -EAGAIN: too many sends in flight; or an error.  gpu: the GPU memory of `data`, or NULL. */
int braid_ucx_send(struct ucx_ep *w, const void *data, size_t len, uint64_t tag,
		   const struct braid_mr *gpu);

/* --- ep.c, without w->lock ----------------------------------------------------------------- */

struct ucx_ep *braid_ucx_ep_new(struct braid_dev *dev);	/* NULL: no memory */
/* Have the two ends exchanged hellos? */
bool braid_ucx_is_wired(struct ucx_ep *w);
/* Destroys the worker now, which may take long. */
void braid_ucx_ep_fence(struct ucx_ep *w);
/* Starts a job that fences the endpoint; braid_stops_past() says when it is over. */
void braid_ucx_ep_stop(struct ucx_ep *w, struct braid_dev *dev);
/* Drops the owner's reference; another thread destroys what is left.  NULL is nothing. */
void braid_ucx_ep_free(struct ucx_ep *w);
/* Destroys stranded endpoints whose first message has gone or failed: see braid_ucx_ep_free(). */
void braid_ucx_ep_sweep(void);

/* --- members of struct braid_transport ----------------------------------------------------- */

int braid_ucx_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine);
int braid_ucx_setup_peer(struct braid_setup *s, const uint8_t *theirs);
int braid_ucx_setup_ready(struct braid_setup *s);
void braid_ucx_setup_drop(struct braid_setup *s);

int braid_ucx_push(struct braid_lane *lane);
int braid_ucx_lane_post(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len);
int braid_ucx_poll(struct braid_lane *lane);

/* Logs and returns why the lane ended.  -ENOTCONN: the peer closed it, so UCX is not at fault. */
int braid_ucx_broken(const struct braid_lane *lane, const struct ucx_ep *w);

#endif
