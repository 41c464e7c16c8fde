/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_setup.c - the handshake of a queue pair.
 *
 * The dialler makes a queue pair and sends its number, first packet number, LID, MTU and the GIDs
 * that it could use.  The accepter makes its own queue pair, chooses a GID of the same type as one
 * of those, connects, and answers with the same data.  Then the dialler connects.  Over iWARP
 * rdma_cm connects instead: verbs/cm.h.
 *
 * The NIC's commands may take long, so each step is a job.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/base/os.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/qp.h"
#include "verbs/route.h"
#include "verbs/sigpipe.h"

static void apply_peer_blob(struct braid_qp *w, const struct braid_qp_blob *peer)
{
	if (!peer->imm)
		w->imm_max = 0;
	w->reads_out = peer->nreads < w->port->reads_out ? peer->nreads : w->port->reads_out;
	w->wr_max = peer->begins ? peer->begins : peer->slots;
	if (w->wr_max > BRAID_SLOTS_RX)
		w->wr_max = BRAID_SLOTS_RX;
	w->peer_ack = peer->ack;
	w->peer_ack_key = peer->ack_key;
}

/* A copy of the dialler's blob whose first GID is of the type that the accepter has chosen. */
static struct braid_qp_blob of_type(const struct braid_qp_blob *peer, uint8_t type)
{
	struct braid_qp_blob b = *peer;

	for (unsigned i = 0; i < peer->ngids; i++) {
		if (peer->gid[i].type == type) {
			b.gid[0] = peer->gid[i];
			break;
		}
	}
	return b;
}

/* iWARP: the end that connects begins once it has the peer's blob, the other one before. */
static int cm_begin(struct braid_qp *w, const struct braid_qp_blob *peer)
{
	w->has_peer = peer;
	if (!w->connects)
		braid_cm_accept(w);
	return w->connects && peer ? braid_cm_connect(w) : 0;
}

static int cm_peer(struct braid_qp *w)
{
	if (!w->connects && w->peer.reversed) {
		braid_cm_know_peer(w);
		return 0;
	}
	braid_cm_close(w);		/* if the peer is older, and waits, too */
	w->connects = true;
	return braid_cm_connect(w);
}

static int setup(struct braid_qp *w, const struct braid_qp_blob *peer,
		 struct braid_qp_blob *b)
{
	int err;

	w->moves = atomic_load(&w->port->moves);
	braid_ibport_refresh(w->port);
	err = braid_qp_gids(w, w->dev, peer, b);
	if (err)
		err = braid_qp_no_gid(&w->setup);
	if (!err && peer && w->port->fabric == BRAID_FABRIC_IB)
		err = braid_route_find(w, peer, w->setup.why, sizeof(w->setup.why));
	if (!err && w->port->fabric == BRAID_FABRIC_IWARP)
		err = cm_begin(w, peer);
	else if (!err)
		err = braid_qp_to_init(w, IBV_ACCESS_REMOTE_WRITE |
					  (w->reads_in ? IBV_ACCESS_REMOTE_READ : 0));
	if (!err && w->qp)
		err = braid_qp_post_all(w);
	if (!err && peer && w->qp) {
		struct braid_qp_blob mine = of_type(peer, b->ngids ? b->gid[0].type : 0);

		err = braid_qp_to_ready(w, &mine, w->setup.traffic_class);
	}
	if (!err && (!peer || w->ece))
		braid_ece_pack(w, b);
	return err;
}

static void make_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, make);
	const struct braid_qp_blob *peer = w->setup.dialler ? NULL : &w->peer;

	w->err = braid_qp_check_owner(w);
	if (!w->err)
		w->err = braid_qp_fill(w, false);
	if (!w->err)
		w->err = braid_qp_check_owner(w);
	if (!w->err && peer)
		apply_peer_blob(w, peer);
	if (!w->err && peer && !peer->begins)
		w->err = braid_grow_now(w, false);
	if (!w->err)
		w->err = setup(w, peer, &w->mine);
	atomic_store(&w->made, true);
	braid_qp_put(w);
}

static void peer_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, make);

	w->err = braid_qp_check_owner(w);
	if (!w->err && !w->peer.begins)
		w->err = braid_grow_now(w, w->qp);
	if (!w->err && w->port->fabric == BRAID_FABRIC_IWARP) {
		w->err = cm_peer(w);
	} else if (!w->err) {
		w->err = braid_qp_settle_gid(w, &w->setup, &w->peer);
		if (!w->err)
			w->err = braid_qp_to_ready(w, &w->peer, w->setup.traffic_class);
		if (!w->err)
			w->err = braid_qp_try(w);
	}
	atomic_store(&w->made, true);
	braid_qp_put(w);
}

static void make(struct braid_qp *w, const char *what, void (*run)(struct braid_job *job))
{
	w->make = (struct braid_job){ .what = what, .run = run };
	atomic_store(&w->made, false);
	braid_qp_get(w);
	braid_later(w->dev, BRAID_MAKE, &w->make);
}

/* Do the NIC's commands hang?  Then waiting only delays the lane, which can use a socket. */
static bool hangs(struct braid_dev *dev)
{
	uint64_t now = braid_os->now_ns();

	return braid_later_hangs(dev, BRAID_MAKE, now) || braid_later_hangs(dev, BRAID_STOP, now);
}

static int setup_begin(struct braid_setup *s, const uint8_t *theirs)
{
	struct braid_ibport *p = braid_ibport_of(s->dev);
	struct braid_qp_blob peer = { 0 };
	struct braid_qp *w;
	int err = 0;

	braid_ibport_events(p);		/* without a lane, nothing else reads them */
	braid_sigpipe_check(p);
	if (atomic_load(&p->down))
		return -ENETDOWN;
	if (hangs(s->dev))
		return -EBUSY;
	if (theirs)
		err = braid_qp_blob_unpack(theirs, &peer);
	if (!err && theirs && peer.fabric != p->fabric)
		err = -EPROTOTYPE;	/* InfiniBand here, RoCE or iWARP there */
	w = err ? NULL : braid_qp_new(p, s->dev);
	if (!w)
		return err ? err : -ENOMEM;
	w->setup = *s;
	w->reads_in = braid_reads_allowed() ? p->reads_in : 0;
	memcpy(&w->to, s->to, s->to->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
							     sizeof(struct sockaddr_in6));
	w->peer = peer;
	w->connects = p->fabric == BRAID_FABRIC_IWARP &&
		      s->dialler != (theirs ? peer.reversed : s->reversed);
	w->traffic_class = s->traffic_class;
	braid_os->random(&w->psn, sizeof(w->psn));
	if (s->has_ticket)
		memcpy(&w->nonce, s->ticket, sizeof(w->nonce));
	else
		braid_os->random(&w->nonce, sizeof(w->nonce));
	w->psn &= 0xffffff;
	s->priv = w;
	make(w, "to make a queue pair", make_run);
	return -EAGAIN;
}

/* The job's result; copies the reason of a failure, for the log. */
static int outcome(struct braid_setup *s, const struct braid_qp *w)
{
	s->failed = w->failed;
	memcpy(s->why, w->setup.why, sizeof(s->why));
	return w->err;
}

static void pack_own_blob(struct braid_qp *w, uint8_t *ret)
{
	const struct braid_ibport *p = w->port;
	struct braid_qp_blob *b = &w->mine;

	b->fabric = (uint8_t)p->fabric;
	b->mtu = (uint8_t)atomic_load(&p->mtu);
	b->imm = p->imm;
	b->nreads = w->reads_in;
	b->lid = atomic_load(&p->lid);
	b->grh = p->grh;
	b->slots = BRAID_WINDOW;
	b->begins = w->srq || w->m->more ? BRAID_WINDOW : BRAID_WINDOW_FEW;
	b->cm_port = p->cm_port;
	b->reversed = p->fabric == BRAID_FABRIC_IWARP && w->connects != w->setup.dialler;
	b->qpn = p->fabric == BRAID_FABRIC_IWARP ? 0 : w->qp->qp_num;
	b->psn = w->psn;
	b->ack = (uint64_t)(uintptr_t)w->m->ack;
	b->ack_key = w->m->ack_mr->rkey;
	b->nonce = w->setup.has_ticket ? 0 : w->nonce;
	braid_qp_blob_pack(b, ret);
}

int braid_qp_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct braid_qp *w = s->priv;
	int err;

	if (!w)
		return setup_begin(s, theirs);
	if (!atomic_load(&w->made))
		return -EAGAIN;
	err = outcome(s, w);
	if (err)
		braid_qp_drop(s);
	else
		pack_own_blob(w, mine);
	return err;
}

int braid_qp_peer(struct braid_setup *s, const uint8_t *theirs)
{
	struct braid_qp *w = s->priv;
	int err = braid_qp_blob_unpack(theirs, &w->peer);

	if (err)
		return err;
	apply_peer_blob(w, &w->peer);
	if (w->port->fabric == BRAID_FABRIC_IWARP && !w->setup.has_ticket)
		w->nonce = w->peer.nonce;
	make(w, "to connect a queue pair", peer_run);
	return 0;
}

int braid_qp_ready(struct braid_setup *s)
{
	struct braid_qp *w = s->priv;
	int err;

	if (!atomic_load(&w->made))
		return -EAGAIN;
	err = outcome(s, w);
	if (err)
		return err;
	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return braid_cm_state(w);
	return s->dialler ? braid_qp_tried(w, s) : 0;
}

void braid_qp_drop(struct braid_setup *s)
{
	braid_qp_free(s->priv);
	s->priv = NULL;
}
