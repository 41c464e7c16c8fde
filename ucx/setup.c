/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup.c - the handshake of an endpoint.
 *
 * The two ends exchange their workers' addresses and the tags that they receive with.  Each then
 * sends a hello, an empty message: the peer's hello shows that messages arrive.
 *
 * To make a worker and its endpoint, UCX pins memory and makes queue pairs, which has taken a
 * second and more.  So during set-up all calls on a worker are made by a thread of its own
 * (core/base/work.h), which owns the endpoint until it is done.
 */
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/work.h"
#include "ucx/ep.h"

enum { AT_TAG = 0, AT_LEN = 8, AT_ADDRESS = 16, ADDRESS_MAX = BRAID_BLOB_SIZE - AT_ADDRESS };

/* A set-up under way.  Its thread owns all of it, but for atomic members, until it is done. */
struct ucx_setup {
	struct braid_work work;
	struct ucx_ep *w;			/* NULL: the service thread has taken it */
	const struct braid_ucx_port *port;
	bool opens, meets;
	atomic_bool answered;		/* `err` and `mine` are set */
	atomic_bool unwanted;
	int err;
	const char *failed;
	uint8_t theirs[BRAID_BLOB_SIZE], mine[BRAID_BLOB_SIZE];
};

static int failed(struct ucx_setup *c, const char *call, ucs_status_t status)
{
	if (status != UCS_OK) {
		c->failed = call;
		braid_info("ucx: %s: %s: %s", c->port->nets, call, braid_ucp.status_string(status));
	}
	return braid_ucp_errno(status);
}

static int open_worker(struct ucx_setup *c, struct ucx_ep *w)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucs_status_t status;

	braid_ucx_warn_listens();
	status = braid_ucp.worker_create(c->port->ctx, &params, &w->worker);
	if (status != UCS_OK) {
		w->worker = NULL;
		return failed(c, "ucp_worker_create", status);
	}
	status = braid_ucp.worker_get_efd(w->worker, &w->efd);
	if (status != UCS_OK) {
		w->efd = -1;
		return failed(c, "ucp_worker_get_efd", status);
	}
	braid_os->note(w->efd, true);
	return 0;
}

static int pack_address(struct ucx_setup *c, struct ucx_ep *w)
{
	uint64_t tag = htole64(w->tag_rx);
	ucp_address_t *address;
	size_t len;
	ucs_status_t status = braid_ucp.worker_get_address(w->worker, &address, &len);
	uint16_t len16;

	if (status != UCS_OK)
		return failed(c, "ucp_worker_get_address", status);
	if (len > ADDRESS_MAX) {
		braid_warn("ucx: the address of %s is %zu bytes, and the handshake has room for "
			   "%d: have fewer devices or transports, by UCX_NET_DEVICES or UCX_TLS "
			   "[ucx-address]", c->port->nets, len, ADDRESS_MAX);
		braid_ucp.worker_release_address(w->worker, address);
		return -EMSGSIZE;
	}
	len16 = htole16((uint16_t)len);
	memcpy(c->mine + AT_TAG, &tag, sizeof(tag));
	memcpy(c->mine + AT_LEN, &len16, sizeof(len16));
	memcpy(c->mine + AT_ADDRESS, address, len);
	braid_ucp.worker_release_address(w->worker, address);
	return 0;
}

static int open_ep(struct ucx_setup *c, struct ucx_ep *w)
{
	int err = open_worker(c, w);

	if (err)
		return err;
	for (unsigned i = 0; i < BRAID_UCX_SLOTS; i++)
		w->slot[i].at = w->memory + i * BRAID_UCX_SLOT;
	braid_ucx_post_heads(w);
	braid_ucx_post(w, &w->hello, 0, BRAID_UCX_HELLO, NULL);
	return pack_address(c, w);
}

/* Connects to the peer's worker.  The first message, a hello, shows that messages arrive. */
static int meet_peer(struct ucx_setup *c, struct ucx_ep *w)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)(c->theirs + AT_ADDRESS),
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = braid_ucx_ep_error, .arg = w },
	};
	uint16_t len;
	int err;

	memcpy(&w->tag_tx, c->theirs + AT_TAG, sizeof(w->tag_tx));
	memcpy(&len, c->theirs + AT_LEN, sizeof(len));
	w->tag_tx = le64toh(w->tag_tx);
	if (!len || le16toh(len) > ADDRESS_MAX || w->tag_tx & ((1 << BRAID_UCX_TAG_BITS) - 1))
		return -EBADMSG;
	err = failed(c, "ucp_ep_create", braid_ucp.ep_create(w->worker, &params, &w->ep));
	return err ? err : braid_ucx_send(w, "", 0, BRAID_UCX_HELLO, NULL);
}

/* Makes one step with w->lock held, unless the set-up is no longer wanted. */
static int setup_step(struct ucx_setup *c, int (*step)(struct ucx_setup *c, struct ucx_ep *w))
{
	int err;

	if (atomic_load(&c->unwanted) || !braid_ucx_enter(c->w))
		return -EALREADY;
	err = step(c, c->w);
	braid_unlock(&c->w->lock);
	braid_work_next(&c->work);
	return err;
}

static int connect_ep(struct ucx_setup *c, struct ucx_ep *w)
{
	(void)c;
	braid_ucx_progress(w);
	return w->status == UCS_OK && !braid_ucx_is_wired(w) ? -EAGAIN : 0;
}

static void setup_run(struct braid_work *work)
{
	static const struct timespec nap = { .tv_nsec = 500000 };
	struct ucx_setup *c = braid_container(work, struct ucx_setup, work);
	int err = c->opens ? setup_step(c, open_ep) : 0;

	if (!err && c->meets)
		err = setup_step(c, meet_peer);
	c->err = err;
	atomic_store(&c->answered, true);
	/* UCX makes the rest of its queue pairs as the two ends hear of each other. */
	if (!err && c->meets) {
		while (setup_step(c, connect_ep) == -EAGAIN)
			nanosleep(&nap, NULL);
	}
}

static void setup_free(struct braid_work *work)
{
	struct ucx_setup *c = braid_container(work, struct ucx_setup, work);

	braid_ucx_ep_free(c->w);
	free(c);
}

static void setup_leave(struct ucx_ep *w)
{
	struct ucx_setup *c = w->setup;

	w->setup = NULL;
	atomic_store(&c->unwanted, true);
	braid_work_leave(&c->work);
}

/* The set-up's thread is done: the service thread takes the endpoint. */
static void setup_take(struct ucx_ep *w)
{
	w->setup->w = NULL;
	setup_leave(w);
}

static int setup_start(struct braid_setup *s, bool opens, const uint8_t *theirs)
{
	struct ucx_ep *w = s->priv;
	struct ucx_setup *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->w = w;
	c->port = braid_ucx_port_of(s->dev);
	c->opens = opens;
	c->meets = theirs;
	if (theirs)
		memcpy(c->theirs, theirs, BRAID_BLOB_SIZE);
	c->work.slow = true;
	w->setup = c;
	if (!braid_work_start(&c->work, opens ? "the making of a worker of UCX's" :
						"the making of an endpoint of UCX's",
			      setup_run, setup_free))
		return 0;
	w->setup = NULL;
	free(c);
	return -ENOMEM;			/* -EAGAIN, as of pthread_create(), means: ask again */
}

void braid_ucx_setup_drop(struct braid_setup *s)
{
	struct ucx_ep *w = s->priv;

	s->priv = NULL;
	if (w && w->setup)
		setup_leave(w);		/* setup_free() ends the endpoint, too */
	else
		braid_ucx_ep_free(w);
}

static int begin(struct braid_setup *s, const uint8_t *theirs)
{
	int err;

	braid_ucx_ep_sweep();
	if (!braid_ucx_watch_exit())
		return -EALREADY;
	s->priv = braid_ucx_ep_new(s->dev);
	err = s->priv ? setup_start(s, true, theirs) : -ENOMEM;
	if (err) {
		braid_ucx_setup_drop(s);
		return err;
	}
	snprintf(s->why, sizeof(s->why), "UCX has not made its worker in time");
	return -EAGAIN;
}

int braid_ucx_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct ucx_ep *w = s->priv;
	int err;

	if (!w)
		return begin(s, theirs);
	if (!(theirs ? atomic_load(&w->setup->answered) : braid_work_done(&w->setup->work)))
		return -EAGAIN;
	s->why[0] = '\0';
	s->failed = w->setup->failed;
	memcpy(mine, w->setup->mine, BRAID_BLOB_SIZE);
	err = w->setup->err;
	if (err)
		braid_ucx_setup_drop(s);
	return err;
}

int braid_ucx_setup_peer(struct braid_setup *s, const uint8_t *theirs)
{
	setup_take(s->priv);
	return setup_start(s, false, theirs);
}

int braid_ucx_setup_ready(struct braid_setup *s)
{
	struct ucx_ep *w = s->priv;
	ucs_status_t status = w->status;
	bool wired;

	if (w->setup && !braid_work_done(&w->setup->work))
		return -EAGAIN;
	if (w->setup) {
		s->failed = w->setup->failed;
		if (w->setup->err)
			return w->setup->err;
		setup_take(w);
	}
	if (!braid_ucx_enter(w))
		return -EAGAIN;
	braid_ucx_progress(w);
	wired = braid_ucx_is_wired(w);
	braid_unlock(&w->lock);
	status = w->status;
	if (status == UCS_OK)
		return wired ? 0 : -EAGAIN;
	s->failed = "the endpoint";
	braid_info("ucx: %s: %s: %s", braid_ucx_port_of(s->dev)->nets, s->failed,
		   braid_ucp.status_string(status));
	return braid_ucp_errno(status);
}
