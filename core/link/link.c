/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.c - a link from its first lane to its end, and the locks that make all of it stand still.
 *
 * A link ends for good.  It is marked as dead and its comms fail; the service thread frees it when
 * nothing uses it any more.
 */
#include "core/link/link_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/link/upcalls.h"

struct braid_link *braid_link_new(const struct braid_link_key *key)
{
	struct braid_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	if (braid_comms_init(link)) {
		free(link);
		return NULL;
	}
	link->key = *key;
	braid_hint(&link->tx.quiet, true);
	link->lanes.active = 1;
	braid_list_init(&link->tx.pending);
	return link;
}

void braid_link_free(struct braid_link *link)
{
	braid_link_forget_deferred(link);
	braid_link_forget_woken(link);
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		braid_lock_wait(&lane->io);
		lane->tr->lane_close(lane);
		braid_txq_fini(&lane->tx);
		free(lane->rx_stage);
		braid_hist_free(&lane->acks);
		free(lane);
	}
	braid_comms_end(link);
	free(link);
}

int braid_link_attach(struct braid_link *link)
{
	for (unsigned i = 0; !link->lanes.attached && i < link->nlanes; i++) {
		int err = braid_lane_attach(link->lane[i]);

		if (err) {		/* lane_detach() needs more locks than the caller holds */
			while (i--)
				braid_txq_fini(&link->lane[i]->tx);
			return err;
		}
	}
	link->lanes.attached = true;
	return 0;
}

void braid_link_detach(struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (!braid_txq_idle(&link->lane[i]->tx) || link->lane[i]->rx_left ||
		    link->lane[i]->tr->dma)	/* its NIC may still read the ring */
			return;
	}
	for (unsigned i = 0; link->lanes.attached && i < link->nlanes; i++)
		braid_lane_detach(link->lane[i]);
	link->lanes.attached = false;
}

/* Are there buffers to give back that are not needed at rest? */
static bool may_trim(const struct braid_transport *tr)
{
	return tr->dma ? tr->lane_rest != NULL : !tr->blob;
}

/* True: it is done, or there is nothing to do. */
static bool lane_trim(struct braid_lane *lane)
{
	const struct braid_transport *tr = lane->tr;
	bool done = false;

	if (!may_trim(tr) || !braid_lane_up(lane) || lane->rx_left)
		return true;
	if (!braid_trylock(&lane->io))
		return false;
	if (braid_trylock(&lane->link->lock)) {
		done = !lane->pushing && (!tr->lane_rest || tr->lane_rest(lane));
		if (done && !tr->dma)
			tr->lane_detach(lane);
		if (done)
			braid_txq_trim(&lane->tx);
		braid_unlock(&lane->link->lock);
	}
	braid_unlock(&lane->io);
	return done;
}

bool braid_link_trim(struct braid_link *link)
{
	bool done = true;

	for (unsigned i = 0; i < link->nlanes; i++)
		done &= lane_trim(link->lane[i]);
	return done;
}

void braid_link_down(struct braid_link *link, int err, const char *why)
{
	int state = atomic_load(&link->state);
	/* A caller waits for a link that is not up yet, unless this end stops it. */
	bool affected = (state != BRAID_LINK_UP && err != -ENOTCONN && !link->spare) ||
			braid_comms_wait(link);

	braid_assert_locked(&link->lock);
	if (state == BRAID_LINK_DEAD) {
		if (err == -ENOTCONN)
			braid_comms_fail(link, err);
		return;
	}
	braid_log(affected ? BRAID_LOG_WARN : BRAID_LOG_INFO, __FILE__, __LINE__,
		  "device %s, peer %s: %s", link->key.dev->net.name, link->peer, why);
	braid_event(BRAID_EVENT_LINK_DOWN, link->number, BRAID_FLIGHT_NONE, err, 0);
	atomic_store(&link->err, err);
	braid_comms_fail(link, err);	/* after the WARN: a caller that sees err finds it */
	atomic_store(&link->state, BRAID_LINK_DEAD);
	braid_link_wake(link);
}

void braid_link_fail(struct braid_link *link, int err, const char *fmt, ...)
{
	char why[BRAID_LOG_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	braid_lock_wait(&link->lock);
	braid_link_down(link, err, why);
	braid_unlock(&link->lock);
}

static bool anybody_pushes(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (link->lane[i]->pushing)
			return true;
	}
	return false;
}

unsigned braid_link_stop(struct braid_link *link)
{
	for (;;) {
		unsigned n = atomic_load(&link->nlanes);

		for (unsigned i = 0; i < n; i++)
			braid_lock_wait(&link->lane[i]->io);
		braid_lock_wait(&link->lock);
		/* A lane may have been added before the lock was taken; none is ever removed. */
		if (n == atomic_load(&link->nlanes) && !anybody_pushes(link))
			return n;
		braid_link_go(link, n);
		braid_yield();
	}
}

void braid_link_go(struct braid_link *link, unsigned n)
{
	braid_unlock(&link->lock);
	for (unsigned i = 0; i < n; i++)
		braid_unlock(&link->lane[i]->io);
}
