/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cq.c - completion queues and completion channels.
 *
 * A completion queue has exactly as many entries as were asked for.  A work request's slot is free
 * again only when its completion, or a later one of the same queue, has been polled.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fctx *c = to_ctx(context);
	struct fchannel *ch;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return NULL;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->ibv.context = context;
	ch->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->ibv.fd < 0) {
		free(ch);
		return NULL;
	}
	pthread_mutex_init(&ch->lock, NULL);
	pthread_mutex_lock(&c->lock);
	c->channels++;
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_add(&live_channel, 1);
	return &ch->ibv;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct fchannel *ch = TO(fchannel, ibv);
	struct fctx *c = to_ctx(ibv->context);
	bool busy;

	call_takes(ibv->context, __func__);
	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		busy = ibv->refcnt > 0;
		if (!busy)
			c->channels--;
		pthread_mutex_unlock(&c->lock);
		if (busy)
			return EBUSY;
	}
	close(ibv->fd);
	free(ch->queue);
	free(ch);
	atomic_fetch_sub(&live_channel, 1);
	return 0;
}

static _Atomic uint64_t vectors;

long cq_vectors(void)
{
	return __builtin_popcountll(atomic_load(&vectors));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector)
{
	struct fctx *c = to_ctx(context);
	struct fcq *cq;

	call_takes(context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(context))
		return NULL;
	if (cqe < 1 || (uint32_t)cqe > c->dev->max.max_cqe || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	atomic_fetch_or(&vectors, UINT64_C(1) << comp_vector % 64);
	if (atomic_fetch_add(&c->dev->cqs, 1) >= c->dev->max.max_cq)
		goto full;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		goto full;
	cq->ring = calloc((size_t)cqe, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		goto full;
	}
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cqe;
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_lock(&c->lock);
	c->cqs++;
	if (channel)
		channel->refcnt++;
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_add(&live_cq, 1);
	return &cq->ibv;
full:
	atomic_fetch_sub(&c->dev->cqs, 1);
	errno = ENOMEM;
	return NULL;
}

/* Removes a completion queue that is destroyed from its channel. */
static void channel_forget(struct fchannel *ch, struct fcq *cq)
{
	unsigned kept = 0;

	pthread_mutex_lock(&ch->lock);
	for (unsigned i = 0; i < ch->n; i++) {
		uint64_t one;

		if (ch->queue[i] != cq)
			ch->queue[kept++] = ch->queue[i];
		else if (read(ch->ibv.fd, &one, sizeof(one)) < 0)
			perror("fake libibverbs: eventfd");
	}
	ch->n = kept;
	pthread_mutex_unlock(&ch->lock);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct fcq *cq = TO(fcq, ibv);
	struct fctx *c = to_ctx(ibv->context);

	call_takes(ibv->context, __func__);
	if (!c->dead) {
		if (atomic_load(&cq->users))
			return EBUSY;
		if (ibv->channel)
			channel_forget(TO(fchannel, ibv->channel), cq);
		ctx_events_drop(c, cq);
		ctx_events_wait(c, &cq->comp_events, &ibv->comp_events_completed);
		ctx_events_wait(c, &cq->async_events, &ibv->async_events_completed);
		pthread_mutex_lock(&c->lock);
		c->cqs--;
		if (ibv->channel)
			ibv->channel->refcnt--;
		pthread_mutex_unlock(&c->lock);
	}
	atomic_fetch_sub(&c->dev->cqs, 1);
	free(cq->ring);
	free(cq);
	atomic_fetch_sub(&live_cq, 1);
	return 0;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	(void)cq;
	(void)cqe;
	return EOPNOTSUPP;
}

/* --- channels ----------------------------------------------------------------------------------- */

static void channel_push(struct fchannel *ch, struct fcq *cq)
{
	uint64_t one = 1;

	pthread_mutex_lock(&ch->lock);
	if (ch->n == ch->room) {
		unsigned room = ch->room ? ch->room * 2 : 16;
		struct fcq **queue = realloc(ch->queue, room * sizeof(struct fcq *));

		if (!queue) {
			pthread_mutex_unlock(&ch->lock);
			return;
		}
		ch->queue = queue;
		ch->room = room;
	}
	ch->queue[ch->n++] = cq;
	if (write(ch->ibv.fd, &one, sizeof(one)) < 0)
		perror("fake libibverbs: eventfd");
	pthread_mutex_unlock(&ch->lock);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct fchannel *ch = TO(fchannel, channel);
	struct fctx *c = to_ctx(channel->context);
	struct fcq *got = NULL;
	uint64_t one;

	if (call_fails(CALL_POST, __func__))
		return -1;
	while (!got) {
		if (read(channel->fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&ch->lock);
		if (ch->n) {
			got = ch->queue[0];
			memmove(ch->queue, ch->queue + 1, --ch->n * sizeof(struct fcq *));
			pthread_mutex_lock(&c->ev_lock);
			got->comp_events++;
			pthread_mutex_unlock(&c->ev_lock);
		}
		pthread_mutex_unlock(&ch->lock);
	}
	*cq = &got->ibv;
	*cq_context = got->ibv.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	struct fctx *c = to_ctx(cq->context);

	pthread_mutex_lock(&c->ev_lock);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&c->ev_acked);
	pthread_mutex_unlock(&c->ev_lock);
}

/* --- entries ------------------------------------------------------------------------------------ */

void cq_push(struct fcq *cq, const struct fcqe *e, bool solicited)
{
	bool fire;

	pthread_mutex_lock(&cq->lock);
	if (cq->silent) {
		pthread_mutex_unlock(&cq->lock);
		return;
	}
	if (cq->overrun || cq->tail - cq->head == (uint32_t)cq->ibv.cqe) {
		bool first = !cq->overrun;

		cq->overrun = true;
		pthread_mutex_unlock(&cq->lock);
		if (first)
			ctx_event(to_ctx(cq->ibv.context), IBV_EVENT_CQ_ERR, cq, 0);
		return;
	}
	cq->ring[cq->tail++ % (uint32_t)cq->ibv.cqe] = *e;
	fire = cq->armed == ARM_ANY ||
	       (cq->armed == ARM_SOLICITED && (solicited || e->wc.status != IBV_WC_SUCCESS));
	if (fire)
		cq->armed = ARM_NO;
	if (fire && cq->ibv.channel)
		channel_push(TO(fchannel, cq->ibv.channel), cq);
	pthread_mutex_unlock(&cq->lock);
}

bool cq_break(struct fcq *cq)
{
	bool first;

	pthread_mutex_lock(&cq->lock);
	first = !cq->silent;
	cq->silent = true;
	pthread_mutex_unlock(&cq->lock);
	if (first)
		ctx_event(to_ctx(cq->ibv.context), IBV_EVENT_CQ_ERR, cq, 0);
	return first;
}

/* The queue pair is destroyed or reset: removes its completions. */
void cq_clean(struct fcq *cq, struct fqp *qp)
{
	uint32_t kept = 0, n, size = (uint32_t)cq->ibv.cqe;

	pthread_mutex_lock(&cq->lock);
	n = cq->tail - cq->head;
	for (uint32_t i = 0; i < n; i++) {
		struct fcqe *e = &cq->ring[(cq->head + i) % size];

		if (e->qp != qp)
			cq->ring[(cq->head + kept++) % size] = *e;
		else if (e->srq)
			atomic_fetch_sub(&e->srq->held, 1);
	}
	cq->tail = cq->head + kept;
	pthread_mutex_unlock(&cq->lock);
}

int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct fcq *cq = TO(fcq, ibv);
	struct fctx *c = to_ctx(ibv->context);
	int got = 0;

	if (call_fails(CALL_POLL, "ibv_poll_cq"))
		return -errno;
	if (c->dead)
		return -EIO;
	nic_help(c);
	pthread_mutex_lock(&cq->lock);
	while (got < n && cq->head != cq->tail && !cq->silent) {
		struct fcqe *e = &cq->ring[cq->head++ % (uint32_t)ibv->cqe];

		wc[got++] = e->wc;
		if (e->send)
			atomic_store(&e->qp->sq_polled, e->upto);
		else if (e->srq)
			atomic_fetch_sub(&e->srq->held, 1);
		else
			atomic_store(&e->qp->rq_polled, e->upto);
	}
	if (!got && cq->overrun)
		got = -EIO;
	pthread_mutex_unlock(&cq->lock);
	return got;
}

int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct fcq *cq = TO(fcq, ibv);

	if (call_fails(CALL_POST, "ibv_req_notify_cq") || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&cq->lock);
	if (!solicited_only)
		cq->armed = ARM_ANY;
	else if (cq->armed == ARM_NO)
		cq->armed = ARM_SOLICITED;
	pthread_mutex_unlock(&cq->lock);
	nic_armed(to_ctx(ibv->context));
	return 0;
}
