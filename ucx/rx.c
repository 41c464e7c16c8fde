/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rx.c - a lane over UCX receives.
 *
 * UCX sends a large payload only when its receive is posted, which costs a round trip.  So while
 * one payload is awaited, the heads behind it are read ahead, and receives for their payloads are
 * posted.
 *
 * Where a comment does not say otherwise, the link's lock is held.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "ucx/ep.h"

static void post_payload(struct ucx_ep *w, const struct braid_rx_rest *rest)
{
	struct ucx_slot *s = &w->payload[w->payloads_posted++ % BRAID_UCX_PAYLOADS];

	s->at = rest->dst;
	s->comm = rest->comm;
	braid_ucx_post(w, s, rest->len, BRAID_UCX_PAYLOAD, rest->gpu);
}

static int await_payload(struct braid_lane *lane, struct ucx_ep *w)
{
	struct braid_rx_rest rest = braid_rx_rest(lane);

	if (!rest.dst && w->payloads_posted == w->payloads_done) {
		rest.dst = w->scratch = malloc(rest.len);
		if (!rest.dst)
			return braid_no_memory("a message that nobody waits for");
		rest.comm = BRAID_UCX_OURS;
		rest.gpu = NULL;
	}
	braid_lock_wait(&w->lock);
	w->awaits_payload = true;
	if (w->payloads_posted == w->payloads_done)
		post_payload(w, &rest);
	braid_unlock(&w->lock);
	return 0;
}

/* Has another head come that may say where its payload goes? */
static inline bool may_post_ahead(const struct ucx_ep *w)
{
	const struct ucx_slot *s = &w->slot[w->seen % BRAID_UCX_SLOTS];

	return w->awaits_payload && !w->blind &&
	       w->payloads_posted - w->payloads_done < BRAID_UCX_PAYLOADS &&
	       w->seen != w->posted && !s->waits && s->status == UCS_OK;
}

/* Posts receives ahead, in the order of the heads, since payloads come in that order. */
static void post_ahead(struct braid_lane *lane, struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	for (; w->worker && may_post_ahead(w); w->seen += !w->blind) {
		const struct ucx_slot *s = &w->slot[w->seen % BRAID_UCX_SLOTS];
		const struct braid_rx_rest rest = braid_rx_ahead(lane, s->at, s->len);

		if (rest.dst)
			post_payload(w, &rest);
		w->blind = rest.len && !rest.dst;
	}
	braid_unlock(&w->lock);
}

/* A receive fails only if its endpoint has; UCX may report the endpoint's error later. */
static int lost(struct ucx_ep *w, ucs_status_t status)
{
	braid_ucx_ep_error(w, NULL, status);
	return -EIO;
}

static int finish_payload(struct braid_lane *lane, struct ucx_ep *w)
{
	const struct ucx_slot *s = &w->payload[w->payloads_done % BRAID_UCX_PAYLOADS];
	int err;

	free(w->scratch);
	w->scratch = NULL;
	if (braid_rx_rest(lane).len && s->status != UCS_OK)
		return lost(w, s->status);
	err = braid_rx_placed(lane, s->len);
	w->awaits_payload = err == -EAGAIN;
	w->payloads_done += !w->awaits_payload;
	return err;
}

static int read_head(struct braid_lane *lane, struct ucx_ep *w)
{
	struct ucx_slot *s = &w->slot[w->slots % BRAID_UCX_SLOTS];
	int err = s->status == UCS_OK ? braid_rx_message(lane, s->at, s->len) : lost(w, s->status);

	if (err == -EAGAIN)
		return err;
	w->seen += w->seen == w->slots;
	w->slots++;
	w->blind = false;
	return err;
}

/* Has the next message in order come? */
static inline bool has_something(const struct ucx_ep *w)
{
	if (w->awaits_payload)
		return !w->payload[w->payloads_done % BRAID_UCX_PAYLOADS].waits;
	return w->slots != w->posted && !w->slot[w->slots % BRAID_UCX_SLOTS].waits;
}

/* Lets UCX progress until the next message in order has come, and no longer: it is read first. */
static bool progress(struct ucx_ep *w)
{
	braid_ucx_post_heads(w);
	for (unsigned i = 0; i < BRAID_UCX_PROGRESS_MAX; i++) {
		unsigned n = braid_ucx_progress_once(w);

		if (has_something(w))
			return true;
		if (!n)
			break;
	}
	return false;
}

/*
 * Takes what has come, in order.  Returns how many messages, or an error.  The data of the last may
 * still be on its way into a GPU.
 */
static int read_messages(struct braid_lane *lane, struct ucx_ep *w)
{
	int count = 0, err = 0;

	braid_assert_locked(&lane->link->lock);
	while (!err && has_something(w)) {
		err = w->awaits_payload ? finish_payload(lane, w) : read_head(lane, w);
		if (!err && braid_rx_rest(lane).len)
			err = await_payload(lane, w);
		count++;
	}
	if (may_post_ahead(w))
		post_ahead(lane, w);
	return err && err != -EAGAIN ? err : count;
}

static int progress_and_read(struct braid_lane *lane)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);
	bool some, more;
	int n;

	if (!braid_trylock(&w->lock))
		return 1;		/* another thread sends */
	if (!w->worker) {
		braid_unlock(&w->lock);
		return 0;
	}
	some = progress(w);
	more = some || may_post_ahead(w);
	braid_unlock(&w->lock);
	if (w->status != UCS_OK && !some)
		return braid_ucx_broken(lane, w);	/* what had come before it has been taken */
	if (more) {
		if (!braid_trylock(&lane->link->lock))
			return 1;
		n = read_messages(lane, w);
		braid_unlock(&lane->link->lock);
		return n == -EIO ? braid_ucx_broken(lane, w) : n;
	}
	return 0;
}

int braid_ucx_poll(struct braid_lane *lane)
{
	braid_assert_locked(&lane->io);
	return braid_ucx_ep_of(lane)->over ? 0 : progress_and_read(lane);
}
