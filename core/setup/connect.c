/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - see connect.h. */
#include "core/setup/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/secret.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/link/txq.h"
#include "core/msg/comm.h"
#include "core/rma/rma.h"
#include "core/proto/auth.h"
#include "core/proto/frame.h"
#include "core/proto/handle.h"
#include "core/setup/dial.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/peer_handle.h"
#include "core/setup/service.h"
#include "core/setup/stopped.h"
#include "core/setup/tries.h"

enum {
	TRIES_MAX = 10,			/* links tried for one connect */
	LOCK_WAIT_NS = 1000000,		/* how long one call waits for braid_svc.lock */
};

struct leg {				/* a link to the peer, and our comm on it */
	struct braid_link *link;
	struct braid_comm *comm;
};

struct attempt {			/* one connect, until it is over */
	uint32_t gen;
	uint64_t nonce;
	bool used;
	struct braid_handle to;		/* without its token: */
	uint8_t *token;			/* core/base/secret.h */
	struct braid_dev *dev;
	int traffic_class;
	struct braid_rma *rma;		/* NULL: NCCL's messages */
	struct leg leg, beside;		/* beside: see attempt_doubt() */
	uint64_t connect;		/* in each OPEN: of equal ones the peer takes the first */
	uint64_t up_ns;			/* when the link of `leg` was seen up; 0: not yet */
	unsigned tries;
	bool distrusts;			/* the peer's own link: see attempt_distrust() */
	bool doubted;			/* there is, or was, a leg beside */
	uint64_t deadline_ns;
};

static struct braid_log_gate gate_short;
static const struct braid_handle_state no_state;
static struct attempt **attempts;	/* under braid_svc.lock */
static unsigned nattempts;
static unsigned nused;			/* attempts in use */

bool braid_connects_left(void)
{
	braid_svc_assert_locked();
	return nused;
}

void braid_connects_free(void)
{
	braid_svc_assert_locked();
	for (unsigned i = 0; i < nattempts; i++)
		free(attempts[i]);
	free(attempts);
	attempts = NULL;
	nattempts = nused = 0;
}

static int attempt_new(struct attempt **ret)
{
	struct attempt *a;
	uint64_t nonce[2];
	uint8_t *token;
	unsigned i;
	int err = braid_os->random(nonce, sizeof(nonce));

	if (err)
		return braid_no_random(err);

	for (i = 0; i < nattempts && attempts[i]->used; i++)
		;
	if (i == nattempts) {
		struct attempt **more = NULL;

		a = calloc(1, sizeof(*a));
		if (a)
			more = realloc(attempts, (nattempts + 1) * sizeof(*more));
		if (!more) {
			free(a);
			return braid_no_memory("a connect");
		}
		attempts = more;
		attempts[nattempts++] = a;
	}
	token = braid_secret_new();
	if (!token)
		return braid_no_memory("a connect");
	a = attempts[i];
	*a = (struct attempt){ .used = true, .gen = a->gen + 1, .nonce = nonce[0], .token = token,
			       .connect = nonce[1] | 1 };
	nused++;
	*ret = a;
	return 0;
}

static void leave(struct leg *l)
{
	if (l->comm)
		braid_comm_close(l->comm);
	if (l->link)
		braid_link_unpin(l->link);
	*l = (struct leg){ NULL, NULL };
}

static void attempt_end(struct attempt *a)
{
	leave(&a->leg);
	leave(&a->beside);
	a->used = false;
	braid_secret_free(a->token);
	nused--;
}

static int attempt_find(const struct braid_handle *h, void *handle, struct attempt **ret)
{
	struct braid_handle_state st;
	struct attempt *a = NULL;
	int err;

	if (h->state.slot) {
		if (h->state.slot > nattempts)
			return -EBADMSG;
		a = attempts[h->state.slot - 1];
		if (!a->used || a->gen != h->state.gen || a->nonce != h->state.nonce)
			return -EBADMSG;
		*ret = a;
		return 0;
	}
	if (h->state.gen || h->state.nonce)
		return -EBADMSG;
	err = attempt_new(&a);
	if (err)
		return err;
	for (st.slot = 0; attempts[st.slot] != a; st.slot++)
		;
	st.slot++;
	st.gen = a->gen;
	st.nonce = a->nonce;
	braid_handle_put_state(handle, &st);
	a->to = *h;
	memcpy(a->token, h->token, BRAID_KEY_SIZE);
	braid_auth_wipe(a->to.token, sizeof(a->to.token));
	a->deadline_ns = braid_os->now_ns() + (uint64_t)braid_param.connect_timeout * SEC;
	*ret = a;
	return 0;
}

/* Start the service thread.  -EAGAIN: descriptors or threads are short, but may be free soon. */
static int start_service(const struct attempt *a)
{
	int err = braid_service_try();
	uint64_t now;

	if (err != -EMFILE && err != -ENFILE && err != -EAGAIN)
		return err ? braid_service_failed(err) : 0;
	now = braid_os->now_ns();
	if (now >= a->deadline_ns) {
		braid_service_failed(err);
		return err == -EAGAIN ? -ENOBUFS : err;	/* -EAGAIN would mean "not yet" */
	}
	if (braid_log_gate_open(&gate_short, now))
		braid_warn("device %s: can't start the service thread yet: %s; trying on%s "
			   "[no-descriptors]", a->dev->net.name, strerror(-err),
			   err == -EMFILE ? ". Raise ulimit -n" : "");
	return -EAGAIN;
}

/* Choose the link: one that exists, or a new one, which is dialled. */
static int attempt_link(struct attempt *a, struct leg *l)
{
	const bool beside = l == &a->beside;
	struct braid_link_key key = { 0 };
	struct braid_link *link = NULL;

	memcpy(key.process, a->to.process, sizeof(key.process));
	key.dev = a->dev;
	key.peer_dev = a->to.dev;
	key.traffic_class = (int16_t)a->traffic_class;
	if (braid_param.share)
		link = beside ? braid_link_find_proven(&key) : braid_link_find(&key, false);
	if (!link) {
		int err = start_service(a);

		if (err)
			return err;
		link = braid_link_new(&key);
		if (link)
			link->dial.token = braid_secret_new();
		if (!link || !link->dial.token) {
			if (link)
				braid_link_free(link);
			return braid_no_memory("a link");
		}
		link->dialler = true;
		link->dial.target = a->to;
		memcpy(link->dial.token, a->token, BRAID_KEY_SIZE);
		link->dial.until_ns = a->deadline_ns;
		link->dial.alone = a->distrusts || beside;
		link->spare = beside;
		braid_path_text(link, 0, link->peer, sizeof(link->peer));
		braid_link_number(link);
		braid_link_list(link);
		braid_event(BRAID_EVENT_LINK_DIAL, link->number, BRAID_FLIGHT_NONE, 0, 0);
		braid_dial_at_once(link);
	}
	braid_link_pin(link);
	l->link = link;
	return 0;
}

static int attempt_open(struct attempt *a, struct leg *l)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE };
	struct braid_link *link = l->link;
	struct braid_open open = { .listen_id = a->to.listen_id, .connect = a->connect };
	uint8_t payload[BRAID_OPEN_SIZE];
	int err;

	braid_lock_wait(&link->lock);
	err = braid_link_attach(link);
	if (!err && !braid_txq_room_ctl(&braid_link_home(link)->tx))
		err = -EAGAIN;
	if (!err) {
		l->comm = braid_comm_new(link, link->setup.next_comm, true);
		err = l->comm ? 0 : -ENOMEM;
	}
	if (!err && a->rma && braid_rma_channel_new(a->rma, l->comm)) {
		braid_comm_free(l->comm);
		l->comm = NULL;
		err = -ENOMEM;
	}
	if (!err) {
		h.comm = l->comm->id;
		link->setup.next_comm += 2;
		braid_auth_open(a->token, link->setup.session, h.comm, open.listen_id, open.mac);
		braid_auth_opened(a->token, link->setup.session, h.comm, open.listen_id,
				  l->comm->opened_mac);
		braid_open_pack(&open, payload);
		braid_link_ctl(link, &h, payload);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
	return err == -ENOMEM ? braid_no_memory("a connection") : err;
}

/* The peer's answer: 0, with *ret_opened true once the peer has our comm; or an error. */
static int leg_answer(const struct leg *l, bool *ret_opened)
{
	int err;

	braid_link_progress(l->link, NULL, NULL);
	braid_lock_wait(&l->link->lock);
	*ret_opened = l->comm->opened;
	err = atomic_load(&l->comm->err);
	braid_unlock(&l->link->lock);
	return err;
}

/* Go on by the leg beside, if there is one.  Else another link is tried next, by a new number. */
static int attempt_elsewhere(struct attempt *a)
{
	leave(&a->leg);
	a->leg = a->beside;
	a->beside = (struct leg){ NULL, NULL };
	if (a->leg.link)
		a->leg.link->spare = false;
	else
		a->connect += 2;
	a->up_ns = 0;
	a->doubted = false;
	return -EAGAIN;
}

/*
 * The link died before the peer acknowledged our comm.  Nothing was sent on the comm yet, so
 * another link will do, unless it was our own dial that failed.
 */
static int attempt_again(struct attempt *a)
{
	struct braid_link *link = a->leg.link;
	int err = atomic_load(&link->err);
	/* The link was idle and closing, or it was dialled for another listen, which is gone. */
	bool closed = err == -ENOTCONN || braid_link_peer_gone(link) ||
		      (!link->nlanes && link->dial.target.listen_id != a->to.listen_id);
	bool failed = !link->nlanes, beside = a->beside.link;
	char peer[sizeof(link->peer)];

	memcpy(peer, link->peer, sizeof(peer));
	attempt_elsewhere(a);
	if (closed || beside || (!failed && err == -EREMOTEIO && ++a->tries < TRIES_MAX))
		return -EAGAIN;
	if (!failed && err == -EREMOTEIO)	/* else the cause has been logged */
		braid_warn("device %s, peer %s: %u links in a row were lost before a connection "
			   "was open; look for the first error in that rank's log [links-lost]",
			   a->dev->net.name, peer, a->tries);
	return err;
}

/*
 * A refusal over a link that the peer dialled.  Its dialler knew a token of ours, but perhaps only
 * claims to be the process that made the handle.  So dial that process itself.
 */
static int attempt_distrust(struct attempt *a)
{
	a->leg.link->setup.distrusted = true;
	a->distrusts = true;
	return attempt_elsewhere(a);
}

/*
 * The answer is late over a link that the peer dialled, so the link may lead to another process, or
 * an honest peer is slow.  So keep our comm on it, and open a second one over a link that we dial.
 * The peer takes the one that comes first, and refuses the other.
 */
static void attempt_doubt(struct attempt *a)
{
	struct leg *l = &a->beside;
	bool opened = false;
	int err, state;

	if (!l->link) {
		if (a->doubted || a->leg.link->setup.proven || !a->up_ns ||
		    braid_since(a->up_ns, braid_os->now_ns()) < braid_tries_patience())
			return;
		a->doubted = attempt_link(a, l) != -EAGAIN;
		return;
	}
	state = atomic_load(&l->link->state);
	if (state == BRAID_LINK_DIALING || state == BRAID_LINK_WAITING)
		return;
	if (state == BRAID_LINK_DEAD || !l->link->setup.proven || !l->link->setup.one_comm)
		err = -ENOTCONN;
	else if (!l->comm)
		err = attempt_open(a, l);
	else
		err = leg_answer(l, &opened);
	if (opened) {
		a->leg.link->setup.distrusted = true;
		attempt_elsewhere(a);
	} else if (err && err != -EAGAIN) {
		leave(l);
	}
}

/* What ends the connect, if something does. */
static int attempt_refused(const struct attempt *a, int err, bool late)
{
	const char *dev = a->dev->net.name, *peer = a->leg.link->peer;
	char how[BRAID_STOPPED_TEXT];

	if (err == -ECONNREFUSED)
		return braid_error(-EREMOTEIO, "device %s, peer %s: it no longer listens for this "
				   "connection; did that rank abort? [not-listening]", dev, peer);
	if (err == -EACCES)
		return braid_error(err,
				   "device %s, peer %s: it does not know this connection's token: "
				   "it is not the process that made the handle [wrong-token]",
				   dev, peer);
	if (err == -ENOBUFS)
		return braid_error(-EREMOTEIO, "device %s, peer %s: it has no room for this "
				   "connection; its own log says why [peer-no-room]", dev, peer);
	if (late)
		return braid_error(-EREMOTEIO, "device %s, peer %s: connected, but no answer "
				   "within %lld s (BRAID_CONNECT_TIMEOUT): %s [no-answer]",
				   dev, peer,
				   (long long)braid_param.connect_timeout,
				   braid_stopped_why(a->leg.link, how));
	return -EAGAIN;
}

static int attempt_step(struct attempt *a)
{
	struct braid_link *link;
	bool opened, late;
	int err, state;

	if (!a->leg.link) {
		err = attempt_link(a, &a->leg);
		if (err)
			return err;
	}
	attempt_doubt(a);
	link = a->leg.link;
	braid_dial_help(link);
	state = atomic_load(&link->state);
	if (state == BRAID_LINK_DEAD)
		return attempt_again(a);
	if (state != BRAID_LINK_UP)
		return -EAGAIN;
	if (!a->up_ns)
		a->up_ns = braid_os->now_ns();
	if (!a->leg.comm) {
		err = attempt_open(a, &a->leg);
		if (err)
			return err;
	}
	err = leg_answer(&a->leg, &opened);
	if (opened) {
		link->setup.proven = true;
		return 0;
	}
	if (!link->setup.proven &&
	    (err == -ECONNREFUSED || err == -EACCES || err == -ENOBUFS || err == -EALREADY))
		return attempt_distrust(a);
	late = braid_os->now_ns() >= a->deadline_ns;
	/* It took the other comm: that link was lost since, or it listens no more. */
	if ((err == -EALREADY || (err == -ECONNREFUSED && a->beside.link)) && !late)
		return attempt_elsewhere(a);
	return attempt_refused(a, err, late);
}

/* The lock's holder may not be running: don't wait long for it, since NCCL calls again anyway. */
static bool enter(void)
{
	uint64_t until = braid_os->now_ns() + LOCK_WAIT_NS;

	while (!braid_svc_trylock()) {
		if (braid_os->now_ns() >= until)
			return false;
		braid_yield();
	}
	return true;
}

void braid_connect_give_up(void *handle)
{
	struct braid_handle h;
	struct attempt *a = NULL;

	if (braid_handle_unpack(handle, &h))
		return;
	braid_svc_lock();
	if (h.state.slot && !attempt_find(&h, handle, &a))
		attempt_end(a);
	braid_svc_unlock();
	braid_handle_put_state(handle, &no_state);
	braid_auth_wipe(&h, sizeof(h));
}

int braid_connect(struct braid_dev *dev, int traffic_class, void *handle, struct braid_rma *rma,
		  struct braid_comm **ret)
{
	struct braid_handle h;
	struct attempt *a = NULL;
	int err = braid_peer_handle(dev, handle, &h);

	*ret = NULL;
	if (err)
		return err;
	if (!enter()) {
		braid_auth_wipe(&h, sizeof(h));
		return 0;
	}
	err = attempt_find(&h, handle, &a);
	if (!err) {
		a->dev = dev;
		a->traffic_class = traffic_class;
		a->rma = rma;
		err = attempt_step(a);
		if (!err) {
			*ret = a->leg.comm;
			a->leg.comm = NULL;
		}
		if (err != -EAGAIN)
			attempt_end(a);
		if (err && err != -EAGAIN)	/* a further call is a new attempt */
			braid_handle_put_state(handle, &no_state);
	}
	braid_svc_unlock();
	braid_auth_wipe(&h, sizeof(h));
	if (err == -EBADMSG && !a)
		return braid_error(-EINVAL,
				   "device %s: the peer's handle was damaged, or used again "
				   "after its connect had ended [bad-handle]",
				   dev->net.name);
	return err == -EAGAIN ? 0 : err;
}
