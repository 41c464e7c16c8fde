/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c - see connect.h. */
#include "core/setup/connect.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/secret.h"
#include "core/base/units.h"
#include "core/base/wakeup.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/link/txq.h"
#include "core/msg/comm.h"
#include "core/proto/auth.h"
#include "core/proto/frame.h"
#include "core/proto/handle.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/service.h"

enum {
	TRIES_MAX = 10,			/* links tried for one connect */
	LOCK_WAIT_NS = 1000000,		/* how long one call waits for braid_svc.lock */
};

struct attempt {			/* one connect, until it is over */
	uint32_t gen;
	uint64_t nonce;
	bool used;
	struct braid_handle to;		/* without its token: */
	uint8_t *token;			/* core/base/secret.h */
	struct braid_dev *dev;
	int traffic_class;
	struct braid_link *link;
	struct braid_comm *comm;
	unsigned tries;
	bool distrusts;			/* the peer's own link: see attempt_distrust() */
	uint64_t deadline_ns;
};

static struct braid_log_gate gate_short;

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
	uint64_t nonce;
	uint8_t *token;
	unsigned i;
	int err = braid_os->random(&nonce, sizeof(nonce));

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
	*a = (struct attempt){ .used = true, .gen = a->gen + 1, .nonce = nonce, .token = token };
	nused++;
	*ret = a;
	return 0;
}

static void attempt_end(struct attempt *a)
{
	if (a->link)
		braid_link_unpin(a->link);
	a->link = NULL;
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

/* Choose the link: one that exists, or a new one that the service thread will dial. */
static int attempt_link(struct attempt *a)
{
	struct braid_link_key key = { 0 };
	struct braid_link *link;

	memcpy(key.process, a->to.process, sizeof(key.process));
	key.dev = a->dev;
	key.peer_dev = a->to.dev;
	key.traffic_class = (int16_t)a->traffic_class;
	link = braid_param.share ? braid_link_find(&key, false) : NULL;
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
		link->dial.alone = a->distrusts;
		braid_path_text(link, 0, link->peer, sizeof(link->peer));
		braid_link_number(link);
		braid_link_list(link);
		braid_event(BRAID_EVENT_LINK_DIAL, link->number, BRAID_FLIGHT_NONE, 0, 0);
		braid_wake_service();
	}
	braid_link_pin(link);
	a->link = link;
	return 0;
}

static int attempt_open(struct attempt *a)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE };
	struct braid_link *link = a->link;
	struct braid_open open = { .listen_id = a->to.listen_id };
	uint8_t payload[BRAID_OPEN_SIZE];
	int err;

	braid_lock_wait(&link->lock);
	err = braid_link_attach(link);
	if (!err && !braid_txq_room_ctl(&braid_link_home(link)->tx))
		err = -EAGAIN;
	if (!err) {
		a->comm = braid_comm_new(link, link->setup.next_comm, true);
		err = a->comm ? 0 : -ENOMEM;
	}
	if (!err) {
		h.comm = a->comm->id;
		link->setup.next_comm += 2;
		braid_auth_open(a->token, link->setup.session, h.comm, open.listen_id, open.mac);
		braid_auth_opened(a->token, link->setup.session, h.comm, open.listen_id,
				  a->comm->opened_mac);
		braid_open_pack(&open, payload);
		braid_link_ctl(link, &h, payload);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
	return err == -ENOMEM ? braid_no_memory("a connection") : err;
}

/* Another link is tried next. */
static void leave_link(struct attempt *a)
{
	if (a->comm)
		braid_comm_close(a->comm);
	a->comm = NULL;
	braid_link_unpin(a->link);
	a->link = NULL;
}

/*
 * The link died before the peer acknowledged our comm.  Nothing was sent on the comm yet, so
 * another link will do, unless it was our own dial that failed.
 */
static int attempt_again(struct attempt *a)
{
	int err = atomic_load(&a->link->err);
	/* The link was idle and closing, or it was dialled for another listen, which is gone. */
	bool closed = err == -ENOTCONN || braid_link_peer_gone(a->link) ||
		      (!a->link->nlanes && a->link->dial.target.listen_id != a->to.listen_id);
	bool failed = !a->link->nlanes;
	char peer[sizeof(a->link->peer)];

	memcpy(peer, a->link->peer, sizeof(peer));
	leave_link(a);
	if (closed || (!failed && err == -EREMOTEIO && ++a->tries < TRIES_MAX))
		return -EAGAIN;
	if (!failed)		/* a failed dial has been logged */
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
	a->link->setup.distrusted = true;
	a->distrusts = true;
	leave_link(a);
	return -EAGAIN;
}

static int attempt_step(struct attempt *a)
{
	struct braid_link *link;
	bool opened;
	int err, state;

	if (!a->link) {
		err = attempt_link(a);
		if (err)
			return err;
	}
	link = a->link;
	state = atomic_load(&link->state);
	if (state == BRAID_LINK_DEAD)
		return attempt_again(a);
	if (state != BRAID_LINK_UP)
		return -EAGAIN;
	if (!a->comm) {
		err = attempt_open(a);
		if (err)
			return err;
	}
	braid_link_progress(link, NULL, NULL);
	braid_lock_wait(&link->lock);
	opened = a->comm->opened;
	err = atomic_load(&a->comm->err);
	braid_unlock(&link->lock);
	if (opened) {
		link->setup.proven = true;
		return 0;
	}
	if (!link->setup.proven && (err == -ECONNREFUSED || err == -EACCES || err == -ENOBUFS))
		return attempt_distrust(a);
	if (err == -ECONNREFUSED)
		return braid_error(-EREMOTEIO,
				   "device %s, peer %s: it no longer listens for this connection; "
				   "did that rank abort? [not-listening]",
				   a->dev->net.name, link->peer);
	if (err == -EACCES)
		return braid_error(err,
				   "device %s, peer %s: it does not know this connection's token: "
				   "it is not the process that made the handle [wrong-token]",
				   a->dev->net.name, link->peer);
	if (err == -ENOBUFS)
		return braid_error(-EREMOTEIO,
				   "device %s, peer %s: it has no room for this connection; its "
				   "own log says why [peer-no-room]",
				   a->dev->net.name, link->peer);
	if (braid_os->now_ns() >= a->deadline_ns)
		return braid_error(-EREMOTEIO,
				   "device %s, peer %s: connected, but no answer within "
				   "%lld s (BRAID_CONNECT_TIMEOUT): is that process stopped? "
				   "[no-answer]",
				   a->dev->net.name, link->peer,
				   (long long)braid_param.connect_timeout);
	return -EAGAIN;
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

int braid_connect(struct braid_dev *dev, int traffic_class, void *handle, struct braid_comm **ret)
{
	static const struct braid_handle_state no_state;
	struct braid_handle h;
	struct attempt *a = NULL;
	int err = braid_handle_unpack(handle, &h);

	*ret = NULL;
	if (err == -EPROTO)
		return braid_error(-EPROTONOSUPPORT,
				   "device %s: the peer's handle is not Braid's: it "
				   "runs another NCCL net plugin; set NCCL_NET_PLUGIN=braid on "
				   "every rank [other-plugin]",
				   dev->net.name);
	if (err == -EPROTONOSUPPORT)
		return braid_error(
			err,
			"device %s: the peer speaks Braid's wire versions %u to %u, this "
			"library %u to %u: install the same Braid release on both hosts "
			"[wire-version]",
			dev->net.name, h.least, h.most, BRAID_WIRE_LEAST, BRAID_WIRE_MOST);
	if (err)
		return braid_error(-EINVAL, "device %s: the peer's handle was damaged on its way "
				   "[bad-handle]",
				   dev->net.name);
	if (!enter()) {
		braid_auth_wipe(&h, sizeof(h));
		return 0;
	}
	err = attempt_find(&h, handle, &a);
	if (!err) {
		a->dev = dev;
		a->traffic_class = traffic_class;
		err = attempt_step(a);
		if (!err)
			*ret = a->comm;
		if (err != -EAGAIN) {
			if (err && a->comm)
				braid_comm_close(a->comm);
			attempt_end(a);
			if (err)	/* a further call is a new attempt */
				braid_handle_put_state(handle, &no_state);
		}
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
